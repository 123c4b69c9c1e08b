//! What answers at an address before anybody is let in.
//!
//! The SSH library says of whatever is no SSH server that it disconnected, or nothing until the time is over. Who has written a wrong port
//! into a record needs to be told what is there. So the first bytes that come are kept: an SSH server begins with a line that says so
//! (RFC 4253, 4.2), and no other server does. What it says is others' text: it is cut, and shown as text.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use engine::text::shown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are kept. A server may say some lines before the one that counts.
const KEPT: usize = 1024;
/// Characters that are shown of what something says.
const SHOWN: usize = 80;
/// What OpenSSH says instead of its name when it takes nobody at the moment.
const NOT_NOW: [&str; 2] = ["Exceeded MaxStartups", "Not allowed at this time"];

/// The first bytes that came over a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn note(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT.saturating_sub(kept.len());
        kept.extend(bytes.iter().take(room));
    }

    /// Whether what is there has said that it is an SSH server; its first line otherwise, if anything came.
    fn said(&self) -> Result<(), Option<String>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"SSH-")) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&kept);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        Err(line.map(|line| shown(&line.chars().take(SHOWN).collect::<String>()).into_owned()))
    }

    /// Why nobody was let in when the connection failed so.
    pub(super) fn failed(&self, port: u16, error: &dyn std::fmt::Display) -> String {
        match self.said() {
            Ok(()) => {
                format!(
                    "its SSH server ended the connection before it had let us in ({error}): its log says why"
                )
            }
            Err(said) => not_ssh(port, said, "hangs up without a word"),
        }
    }

    /// Why nobody was let in when the time was over.
    pub(super) fn too_late(&self, port: u16, time: Duration) -> String {
        let seconds = time.as_secs();
        match self.said() {
            Ok(()) => format!("it did not let us in within {seconds} seconds"),
            Err(said) => not_ssh(port, said, &format!("says nothing within {seconds} seconds")),
        }
    }
}

fn not_ssh(port: u16, said: Option<String>, silent: &str) -> String {
    match said {
        Some(said) if NOT_NOW.iter().any(|not_now| said.starts_with(not_now)) => {
            format!(
                "its SSH server takes nobody at the moment (it says \"{said}\"): look at MaxStartups and PerSourcePenalties of its sshd"
            )
        }
        Some(said) => format!(
            "what answers at port {port} is no SSH server (it says \"{said}\"): put the port of the machine's SSH server into the node's record"
        ),
        None => format!(
            "something takes connections at port {port} and {silent}, as no SSH server in order does: look whether that is the port of the \
             machine's SSH server, and into that server's log"
        ),
    }
}

/// A connection of which the first bytes that come are kept.
#[derive(Debug)]
pub(super) struct Listened<S> {
    pub stream: S,
    pub heard: Heard,
}

impl<S: AsyncRead + Unpin> AsyncRead for Listened<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let came = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(new) = buffer.filled().get(before..) {
            self.heard.note(new);
        }
        came
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listened<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &[u8]) -> Heard {
        let heard = Heard::default();
        text.chunks(3).for_each(|piece| heard.note(piece));
        heard
    }

    #[test]
    fn what_answers_is_told_by_its_first_line() {
        let told = |text: &[u8]| heard(text).failed(8080, &"Disconnected");
        assert!(told(b"SSH-2.0-x\r\n").starts_with("its SSH server ended the connection"));
        assert!(
            told(b"welcome\r\nSSH-2.0-x\r\n").starts_with("its SSH server ended the connection")
        );
        let web = told(b"\r\nHTTP/1.1 400 Bad Request\r\nServer: x\r\n");
        assert!(
            web.contains("port 8080 is no SSH server (it says \"HTTP/1.1 400 Bad Request\")"),
            "{web}"
        );
        assert!(told(b"").contains("hangs up without a word"));
        assert!(told(b"Exceeded MaxStartups\r\n").contains("takes nobody at the moment"));
        let late = |text: &[u8]| heard(text).too_late(22, Duration::from_secs(15));
        assert_eq!(late(b"SSH-2.0-x\r\n"), "it did not let us in within 15 seconds");
        assert!(late(b"").contains("says nothing within 15 seconds"));
    }

    #[test]
    fn what_others_say_is_short_and_seen() {
        let long = heard("\u{202e}x".repeat(10_000).as_bytes());
        let told = long.failed(22, &"");
        assert!(
            told.contains("<U+202E>") && !told.contains('\u{202e}') && told.len() < 1_000,
            "{told}"
        );
        heard(&[0xff, 0, 0xfe]).failed(22, &"");
    }
}
