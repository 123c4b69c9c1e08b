//! Streams the log of a run to the database.
//!
//! A run's output is one sequence of bytes, addressed by offset. Each chunk has its arrival time.
//! Jigs write into a [`Log`], which never blocks them, neither on the database nor on a reader. A
//! separate task collects output for 100 ms (or 8 KiB) and passes it to a [`LogStore`]. While the
//! database is unavailable, the log waits in memory. [`MAX_LOG`] limits its length: output beyond
//! that is counted but dropped.
//!
//! Lines of standard output and standard error stay whole, so the two streams never mix within a
//! line. If a line stays unfinished for a while, its beginning is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use store::runs::LogPosition;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::database::backoff::Backoff;
use crate::secrets::Secrets;

/// Maximum length of a run's log: 16 MiB.
pub const MAX_LOG: u64 = 16 << 20;
/// Size in bytes at which a chunk is written.
pub const CHUNK_SIZE: usize = 8 << 10;
/// Age at which a chunk is written.
pub const CHUNK_DELAY: Duration = Duration::from_millis(100);

/// The source of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Err,
    /// Messages of Gantry itself.
    Gantry,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Arrival of the first byte. The database converts it to a time, because a worker's clock may
    /// be wrong.
    pub at: Instant,
    /// Whole lines, except for a line that takes long to finish.
    pub text: Vec<u8>,
    /// Bytes of standard output up to the end of this chunk, if known.
    pub out: Option<u64>,
    /// The same for standard error.
    pub err: Option<u64>,
}

/// Storage for a log.
pub trait LogStore: Send + Sync + 'static {
    /// Appends at this position: the length of the log before the chunk, and the bytes of each
    /// stream that the log contains with it. After an error, it is called again with the same
    /// offset and more text.
    fn append<'a>(&'a self, at: LogPosition, chunk: &'a Chunk)
    -> BoxFuture<'a, Result<(), String>>;
}

/// Receives the output of a run.
#[derive(Debug, Clone)]
pub struct Log {
    sender: mpsc::UnboundedSender<Chunk>,
    taken: Arc<AtomicU64>,
    /// Its end when it was opened.
    from: LogPosition,
    secrets: Secrets,
}

impl Log {
    /// Creates a log that writes to `store`, after the given position. The returned task ends when
    /// all clones of the log are dropped and everything is written or given up.
    pub fn into_store(
        store: Arc<dyn LogStore>,
        secrets: Secrets,
        from: LogPosition,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let log = Self { sender, taken: Arc::new(from.log.into()), from, secrets };
        (log, tokio::spawn(write_out(store, receiver, from)))
    }

    /// Writes one line of Gantry, or of a jig without streams.
    pub fn line(&self, stream: Stream, line: &str) {
        let mut text = self.secrets.mask(line).into_bytes();
        text.push(b'\n');
        self.write(stream, text, None);
    }

    /// The secrets that this log masks.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Writes text that is already masked. `until`: the bytes of the stream that the log then
    /// contains, if known.
    fn write(&self, stream: Stream, text: Vec<u8>, until: Option<u64>) {
        let length = text.len() as u64;
        let before = self.taken.fetch_add(length, Ordering::Relaxed);
        let text = if stream == Stream::Gantry || before + length <= MAX_LOG {
            text
        } else if before <= MAX_LOG {
            format!("[gantry: more than {MAX_LOG} bytes of output, the rest is not stored]\n")
                .into_bytes()
        } else {
            return;
        };
        let of = |which| until.filter(|_| stream == which);
        let (out, err) = (of(Stream::Stdout), of(Stream::Err));
        let chunk = Chunk { at: Instant::now(), text, out, err };
        // The receiver is gone only if the writer gave up on the log.
        let _ = self.sender.send(chunk);
    }

    /// Returns a line buffer for one stream of a process. It begins after the bytes that the log
    /// contains already.
    pub fn lines(&self, stream: Stream) -> Lines {
        let taken = match stream {
            Stream::Stdout => self.from.out,
            Stream::Err => self.from.err,
            Stream::Gantry => 0,
        };
        Lines {
            log: self.clone(),
            stream,
            mask: self.secrets.stream(),
            open: Vec::new(),
            last: String::new(),
            taken,
        }
    }
}

/// Maximum length in bytes of an unfinished line before it is passed on.
const MAX_UNFINISHED_LINE: usize = 64 << 10;

/// Masks the bytes of one stream and passes on whole lines.
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
    /// Number of bytes received.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // In two parts, because the position in the stream is known only at the end of a line.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (lines, rest) = bytes.split_at(whole);
        for part in [lines, rest].into_iter().filter(|part| !part.is_empty()) {
            self.push_part(part);
        }
    }

    fn push_part(&mut self, bytes: &[u8]) {
        self.taken += bytes.len() as u64;
        let masked = self.mask.push(bytes);
        self.open.extend(masked);
        let whole = match self.open.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.open.len() > MAX_UNFINISHED_LINE => self.open.len(),
            None => return,
        };
        let rest = self.open.split_off(whole);
        let lines = std::mem::replace(&mut self.open, rest);
        self.pass_on(lines);
    }

    /// Passes on an unfinished line that has waited long enough, such as a prompt or a progress
    /// bar.
    pub fn flush_unfinished(&mut self) {
        if !self.open.is_empty() {
            let lines = std::mem::take(&mut self.open);
            self.pass_on(lines);
        }
    }

    /// Ends the stream and returns its last non-empty line.
    pub fn finish(mut self) -> String {
        let rest = self.mask.finish();
        self.open.extend(rest);
        if !self.open.is_empty() {
            self.open.push(b'\n');
            self.flush_unfinished();
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
        // Bytes that are withheld here are not in the log.
        let is_complete = self.open.is_empty() && self.mask.is_empty();
        self.log.write(self.stream, lines, is_complete.then_some(self.taken));
    }
}

async fn write_out(
    store: Arc<dyn LogStore>,
    mut chunks: mpsc::UnboundedReceiver<Chunk>,
    mut at: LogPosition,
) {
    let mut ended = false;
    while !ended {
        let Some(mut chunk) = chunks.recv().await else {
            return;
        };
        let due = Instant::now() + CHUNK_DELAY;
        while chunk.text.len() < CHUNK_SIZE {
            tokio::select! {
                more = chunks.recv() => match more {
                    Some(more) => {
                        chunk.text.extend(more.text);
                        (chunk.out, chunk.err) = (more.out.or(chunk.out), more.err.or(chunk.err));
                    }
                    None => { ended = true; break }
                },
                () = tokio::time::sleep_until(due) => break,
            }
        }
        (at.out, at.err) = (chunk.out.unwrap_or(at.out), chunk.err.unwrap_or(at.err));
        if !written(store.as_ref(), at, &chunk).await {
            return;
        }
        at.log += chunk.text.len() as u64;
    }
}

/// Maximum time that a log waits for an unavailable database.
const MAX_RETRY_TIME: Duration = Duration::from_secs(300);

async fn written(store: &dyn LogStore, at: LogPosition, chunk: &Chunk) -> bool {
    let offset = at.log;
    let started = Instant::now();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match store.append(at, chunk).await {
            Ok(()) => return true,
            Err(error) if started.elapsed() > MAX_RETRY_TIME => {
                tracing::error!(%error, offset, "cannot write a log for five minutes, so its rest \
                    is lost");
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, offset, "cannot write a log, retrying");
                backoff.pause().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::Mutex;

    /// Keeps a log in memory.
    #[derive(Debug, Default)]
    struct MemoryStore(Mutex<Vec<(LogPosition, Chunk)>>);

    impl MemoryStore {
        fn text(&self) -> String {
            let chunks = self.0.lock().expect("an unpoisoned lock");
            chunks
                .iter()
                .map(|(_, chunk)| String::from_utf8_lossy(&chunk.text).into_owned())
                .collect()
        }
    }

    impl LogStore for MemoryStore {
        fn append<'a>(
            &'a self,
            at: LogPosition,
            chunk: &'a Chunk,
        ) -> BoxFuture<'a, Result<(), String>> {
            async move {
                let mut chunks = self.0.lock().expect("an unpoisoned lock");
                chunks.push((at, chunk.clone()));
                Ok(())
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn streams_never_mix_and_offsets_are_continuous() {
        let store = Arc::new(MemoryStore::default());
        let from = LogPosition { log: 100, out: 40, err: 60 };
        let (log, writer) = Log::into_store(store.clone(), Secrets::default(), from);
        let (mut out, mut err) = (log.lines(Stream::Stdout), log.lines(Stream::Err));
        out.push(b"one");
        err.push(b"bad\n\n  ");
        out.push(b" two\nthree");
        assert_eq!(err.finish(), "bad");
        assert_eq!(out.finish(), "three");
        log.write(Stream::Stdout, vec![b'x'; CHUNK_SIZE], None);
        drop(log);
        writer.await.expect("the writer ends");
        let text = store.text();
        assert!(text.starts_with("bad\n\none two\n  \nthree\n"), "{text:?}");
        let chunks = store.0.lock().expect("an unpoisoned lock");
        let mut expected = 100;
        for (at, chunk) in chunks.iter() {
            assert_eq!(at.log, expected);
            expected += chunk.text.len() as u64;
        }
        let last = chunks.last().expect("a chunk").0;
        assert_eq!(
            (last.out, last.err),
            (40 + 13, 60 + 7),
            "another worker continues at these offsets"
        );
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_dropped_with_notice() {
        let store = Arc::new(MemoryStore::default());
        let (log, writer) =
            Log::into_store(store.clone(), Secrets::default(), LogPosition::default());
        for _ in 0..(MAX_LOG / (1 << 20)) + 2 {
            log.write(Stream::Stdout, vec![b'y'; 1 << 20], None);
        }
        log.line(Stream::Gantry, "ended");
        drop(log);
        writer.await.expect("the writer ends");
        let text = store.text();
        assert!((text.len() as u64) < MAX_LOG + 200);
        assert_eq!(text.matches("the rest is not stored").count(), 1);
        assert!(text.ends_with("ended\n"));
    }
}
