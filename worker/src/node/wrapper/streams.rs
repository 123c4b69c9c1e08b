//! The streams of an attempt: its input, and its output into the log.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::filter::OutputFilter;
use crate::job::log::{Lines, Log, Stream};
use crate::node::session::process::{LATE_OUTPUT_TIME, Reader, Writer};

/// Time after which an unfinished line is shown.
const UNFINISHED_LINE_DELAY: Duration = Duration::from_millis(500);

/// The parts of an attempt's streams that have been received.
pub(super) struct Received {
    pub(super) out: Lines,
    pub(super) err: Lines,
}

impl Received {
    /// Continues after the parts that the log contains already.
    pub(super) fn of(log: &Log) -> Self {
        Self { out: log.lines(Stream::Stdout), err: log.lines(Stream::Err) }
    }
}

/// Sends the input to an attempt. Once the whole report has arrived, confirms it, so that the node
/// deletes it.
pub(super) async fn feed_and_confirm(
    stdin: Option<Writer>,
    text: &[u8],
    mut arrived: watch::Receiver<bool>,
) {
    let Some(mut stdin) = stdin else { return };
    // If a command ends before it has read all input, its exit code has the reason.
    let _ = stdin.write_all(text).await;
    let _ = stdin.flush().await;
    if arrived.wait_for(|arrived| *arrived).await.is_ok() {
        let _ = stdin.write_all(b"taken\n").await;
    }
    let _ = stdin.shutdown().await;
}

pub(super) async fn is_over(mut over: watch::Receiver<bool>) {
    let _ = over.wait_for(|over| *over).await;
}

/// Reads a stream into the log until it ends, or until its process has ended and no more output
/// arrives for a moment.
pub(super) async fn read_output(
    from: Option<Reader>,
    lines: &mut Lines,
    mut over: watch::Receiver<bool>,
    filter: &mut impl OutputFilter,
) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 16 << 10];
    let mut deadline = None;
    loop {
        let wait = match deadline {
            Some(deadline) => Instant::now().max(deadline) - Instant::now(),
            None => UNFINISHED_LINE_DELAY,
        };
        tokio::select! {
            biased;
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => filter.take(&buffer[..length], |bytes| lines.push(bytes)),
            },
            Ok(()) = over.changed() => deadline = Some(Instant::now() + LATE_OUTPUT_TIME),
            () = tokio::time::sleep(wait) => match deadline {
                Some(_) => return,
                None => lines.flush_unfinished(),
            },
        }
    }
}
