//! The log of a run, as it comes.
//!
//! A run's output is one line of bytes, addressed by offset; each chunk has the time at which it came. Jigs write into a [`Log`],
//! which never makes them wait: neither for the database nor for whoever looks on. A task of its own gathers what came within
//! 100 ms (or 8 KiB) and hands it to a [`LogStore`]. While the database is away the log waits in memory; its length is bounded by
//! [`MAX_LOG`], beyond which a run's output is counted but not kept.
//!
//! Lines of standard output and standard error are kept whole, so that two streams never mix within a line; a line that is not
//! finished after a while is shown as far as it goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::secrets::Secrets;

/// Most bytes of a run's log (16 MiB).
pub const MAX_LOG: u64 = 16 << 20;
/// A chunk is written when it has grown so long, in bytes.
pub const CHUNK: usize = 8 << 10;
/// A chunk is written when it has waited so long.
pub const WAIT: Duration = Duration::from_millis(100);

/// Where a line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// Gantry itself.
    Gantry,
}

/// Part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// When its first byte came. What time that was is for the database to say: a worker's clock may be off.
    pub at: Instant,
    /// What came: whole lines, but for a line that takes long.
    pub text: Vec<u8>,
}

/// Where a log goes.
pub trait LogStore: Send + Sync + 'static {
    /// Appends at this offset. Called again with the same offset and more text when it failed.
    fn append<'a>(&'a self, offset: u64, chunk: &'a Chunk) -> BoxFuture<'a, Result<(), String>>;
}

/// Where a run's output goes.
#[derive(Debug, Clone)]
pub struct Log {
    sender: mpsc::UnboundedSender<Chunk>,
    taken: Arc<AtomicU64>,
    secrets: Secrets,
}

impl Log {
    /// A log that ends in `store`; the returned task ends when all copies of the log are gone and everything is written (or given
    /// up).
    pub fn into_store(
        store: Arc<dyn LogStore>,
        secrets: Secrets,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let log = Self { sender, taken: Arc::default(), secrets };
        (log, tokio::spawn(write_out(store, receiver)))
    }

    /// Writes one line of ours or of a jig without streams.
    pub fn line(&self, stream: Stream, line: &str) {
        let mut text = self.secrets.mask(line).into_bytes();
        text.push(b'\n');
        self.write(stream, text);
    }

    /// The secrets that this log hides.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Writes text that is masked already.
    fn write(&self, stream: Stream, text: Vec<u8>) {
        let length = text.len() as u64;
        let before = self.taken.fetch_add(length, Ordering::Relaxed);
        let text = if stream == Stream::Gantry || before + length <= MAX_LOG {
            text
        } else if before <= MAX_LOG {
            format!("[gantry: more than {MAX_LOG} bytes of output; the rest is not kept]\n")
                .into_bytes()
        } else {
            return;
        };
        let chunk = Chunk { at: Instant::now(), text };
        // A log without a writer has been given up.
        let _ = self.sender.send(chunk);
    }

    /// A pipe into the log for one stream of a process.
    pub fn lines(&self, stream: Stream) -> Lines {
        Lines {
            log: self.clone(),
            stream,
            mask: self.secrets.stream(),
            open: Vec::new(),
            last: String::new(),
            taken: 0,
        }
    }
}

/// Most bytes of a line that are waited for.
const OPEN_LINE: usize = 64 << 10;

/// Takes the bytes of one stream, masks them and passes whole lines on.
#[derive(Debug)]
pub struct Lines {
    log: Log,
    stream: Stream,
    mask: crate::secrets::StreamMask,
    open: Vec<u8>,
    last: String,
    taken: u64,
}

impl Lines {
    /// How many bytes came.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.taken += bytes.len() as u64;
        let shown = self.mask.push(bytes);
        self.open.extend(shown);
        let whole = match self.open.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.open.len() > OPEN_LINE => self.open.len(),
            None => return,
        };
        let rest = self.open.split_off(whole);
        let lines = std::mem::replace(&mut self.open, rest);
        self.pass_on(lines);
    }

    /// Shows an unfinished line that has waited long enough (a prompt, a progress bar).
    pub fn show_open(&mut self) {
        if !self.open.is_empty() {
            let lines = std::mem::take(&mut self.open);
            self.pass_on(lines);
        }
    }

    /// Ends the stream; gives its last line that was not empty.
    pub fn finish(mut self) -> String {
        let held = self.mask.finish();
        self.open.extend(held);
        if !self.open.is_empty() {
            self.open.push(b'\n');
            self.show_open();
        }
        self.last
    }

    fn pass_on(&mut self, lines: Vec<u8>) {
        let last = lines
            .rsplit(|byte| *byte == b'\n')
            .map(|line| String::from_utf8_lossy(line).trim().to_owned())
            .find(|line| !line.is_empty());
        if let Some(last) = last {
            self.last = last;
        }
        self.log.write(self.stream, lines);
    }
}

async fn write_out(store: Arc<dyn LogStore>, mut chunks: mpsc::UnboundedReceiver<Chunk>) {
    let mut offset = 0;
    let mut ended = false;
    while !ended {
        let Some(mut chunk) = chunks.recv().await else {
            return;
        };
        let due = Instant::now() + WAIT;
        while chunk.text.len() < CHUNK {
            tokio::select! {
                more = chunks.recv() => match more {
                    Some(more) => chunk.text.extend(more.text),
                    None => { ended = true; break }
                },
                () = tokio::time::sleep_until(due) => break,
            }
        }
        if !written(store.as_ref(), offset, &chunk).await {
            return;
        }
        offset += chunk.text.len() as u64;
    }
}

/// How long a log waits for a database that is away.
const GIVE_UP: Duration = Duration::from_secs(300);

async fn written(store: &dyn LogStore, offset: u64, chunk: &Chunk) -> bool {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        match store.append(offset, chunk).await {
            Ok(()) => return true,
            Err(error) if begun.elapsed() > GIVE_UP => {
                tracing::error!(%error, offset, "a log could not be written for five minutes; the rest of it is lost");
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, offset, "a log could not be written; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::Mutex;

    /// Keeps a log in memory.
    #[derive(Debug, Default)]
    pub(crate) struct Kept(pub Mutex<Vec<(u64, Chunk)>>);

    impl Kept {
        pub(crate) fn text(&self) -> String {
            let chunks = self.0.lock().expect("no test panics while it holds this");
            chunks
                .iter()
                .map(|(_, chunk)| String::from_utf8_lossy(&chunk.text).into_owned())
                .collect()
        }
    }

    impl LogStore for Kept {
        fn append<'a>(
            &'a self,
            offset: u64,
            chunk: &'a Chunk,
        ) -> BoxFuture<'a, Result<(), String>> {
            async move {
                let mut chunks = self.0.lock().expect("no test panics while it holds this");
                chunks.push((offset, chunk.clone()));
                Ok(())
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn two_streams_never_mix_within_a_line_and_offsets_have_no_gap() {
        let kept = Arc::new(Kept::default());
        let (log, writer) = Log::into_store(kept.clone(), Secrets::default());
        let (mut out, mut err) = (log.lines(Stream::Out), log.lines(Stream::Err));
        out.push(b"one");
        err.push(b"bad\n\n  ");
        out.push(b" two\nthree");
        assert_eq!(err.finish(), "bad");
        assert_eq!(out.finish(), "three");
        log.write(Stream::Out, vec![b'x'; CHUNK]);
        drop(log);
        writer.await.expect("the writer ends");
        let text = kept.text();
        assert!(text.starts_with("bad\n\none two\n  \nthree\n"), "{text:?}");
        let chunks = kept.0.lock().expect("nobody panicked");
        let mut expected = 0;
        for (offset, chunk) in chunks.iter() {
            assert_eq!(*offset, expected);
            expected += chunk.text.len() as u64;
        }
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_not_kept_and_says_so() {
        let kept = Arc::new(Kept::default());
        let (log, writer) = Log::into_store(kept.clone(), Secrets::default());
        for _ in 0..(MAX_LOG / (1 << 20)) + 2 {
            log.write(Stream::Out, vec![b'y'; 1 << 20]);
        }
        log.line(Stream::Gantry, "ended");
        drop(log);
        writer.await.expect("the writer ends");
        let text = kept.text();
        assert!((text.len() as u64) < MAX_LOG + 200);
        assert_eq!(text.matches("the rest is not kept").count(), 1);
        assert!(text.ends_with("ended\n"));
    }
}
