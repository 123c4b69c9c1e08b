//! Identifies the server at an address when the SSH handshake fails.
//!
//! If the peer is not an SSH server, the SSH library only reports a disconnect or a timeout. A user
//! with a wrong port in a node record needs to know what answered there. This module therefore
//! keeps the first bytes. An SSH server begins with a line that identifies it (RFC 4253, section
//! 4.2); other servers don't. The text is untrusted: it is cut and escaped before display.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use engine::text::shown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes to keep. A server may send other lines before its identification.
const MAX_BYTES: usize = 1024;
/// Number of characters of the server's text to show.
const MAX_SHOWN_CHARS: usize = 80;
/// Lines that OpenSSH sends instead of its identification when it refuses connections.
const REFUSAL_LINES: [&str; 2] = ["Exceeded MaxStartups", "Not allowed at this time"];

/// The first bytes received over a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstBytes(Arc<Mutex<Vec<u8>>>);

impl FirstBytes {
    fn note(&self, bytes: &[u8]) {
        let mut received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = MAX_BYTES.saturating_sub(received.len());
        received.extend(bytes.iter().take(free));
    }

    /// Returns `Ok` if the peer identified itself as an SSH server. Otherwise returns its first
    /// line, if any.
    fn identified(&self) -> Result<(), Option<String>> {
        let received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if received.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"SSH-")) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&received);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        Err(line.map(|line| {
            shown(&line.chars().take(MAX_SHOWN_CHARS).collect::<String>()).into_owned()
        }))
    }

    /// Explains a failed connection.
    pub(super) fn failed(&self, port: u16, error: &dyn std::fmt::Display) -> String {
        match self.identified() {
            Ok(()) => {
                format!(
                    "its SSH server closed the connection before the login ({error}): see its log"
                )
            }
            Err(line) => no_identification_text(port, line, "closes them without data"),
        }
    }

    /// Explains a timeout.
    pub(super) fn too_late(&self, port: u16, time: Duration) -> String {
        let seconds = time.as_secs();
        match self.identified() {
            Ok(()) => format!("no login within {seconds} seconds"),
            Err(line) => no_identification_text(
                port,
                line,
                &format!("sends no data within {seconds} seconds"),
            ),
        }
    }
}

fn no_identification_text(port: u16, line: Option<String>, silence: &str) -> String {
    match line {
        Some(line) if REFUSAL_LINES.iter().any(|refusal| line.starts_with(refusal)) => {
            format!(
                "its SSH server accepts no logins at the moment (it sent \"{line}\"): check \
                 MaxStartups and PerSourcePenalties of its sshd"
            )
        }
        Some(line) => format!(
            "no SSH server listens at port {port} (the answer was \"{line}\"): set the node's SSH \
             port in its record"
        ),
        None => format!(
            "a program accepts connections at port {port}, but {silence}: check the port of the \
             node's SSH server, and the log of that server"
        ),
    }
}

/// A connection that keeps the first bytes received.
#[derive(Debug)]
pub(super) struct Recorded<S> {
    pub stream: S,
    pub first_bytes: FirstBytes,
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(new) = buffer.filled().get(before..) {
            self.first_bytes.note(new);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
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
    use crate::node::session::ssh::identification::*;

    fn first_bytes(text: &[u8]) -> FirstBytes {
        let first_bytes = FirstBytes::default();
        text.chunks(3).for_each(|piece| first_bytes.note(piece));
        first_bytes
    }

    #[test]
    fn first_line_identifies_the_server() {
        let error = |text: &[u8]| first_bytes(text).failed(8080, &"Disconnected");
        assert!(error(b"SSH-2.0-x\r\n").starts_with("its SSH server closed the connection"));
        assert!(
            error(b"welcome\r\nSSH-2.0-x\r\n").starts_with("its SSH server closed the connection")
        );
        let web = error(b"\r\nHTTP/1.1 400 Bad Request\r\nServer: x\r\n");
        assert!(
            web.contains(
                "no SSH server listens at port 8080 (the answer was \"HTTP/1.1 400 Bad \
                Request\")"
            ),
            "{web}"
        );
        assert!(error(b"").contains("closes them without data"));
        assert!(error(b"Exceeded MaxStartups\r\n").contains("accepts no logins at the moment"));
        let late = |text: &[u8]| first_bytes(text).too_late(22, Duration::from_secs(15));
        assert_eq!(late(b"SSH-2.0-x\r\n"), "no login within 15 seconds");
        assert!(late(b"").contains("sends no data within 15 seconds"));
    }

    #[test]
    fn foreign_greeting_is_cut_and_escaped() {
        let long = first_bytes("\u{202e}x".repeat(10_000).as_bytes());
        let error = long.failed(22, &"");
        assert!(
            error.contains("<U+202E>") && !error.contains('\u{202e}') && error.len() < 1_000,
            "{error}"
        );
        first_bytes(&[0xff, 0, 0xfe]).failed(22, &"");
    }
}
