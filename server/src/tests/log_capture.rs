//! Captures the log of a test.
//!
//! `tracing` caches for the whole process whether a callsite is enabled. The first thread that
//! passes it decides, as long as there is only one subscriber. Tests run concurrently in one
//! process, so a thread's subscriber would miss callsites that another test disabled. So there is
//! one global subscriber that never answers "never". It writes the events of threads that capture.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

thread_local! {
    static CAPTURED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

struct CaptureWriter;

impl Write for CaptureWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CAPTURED.with_borrow_mut(|heard| {
            if let Some(heard) = heard {
                heard.extend_from_slice(bytes)
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures everything that this thread logs, at trace level, until [`LogCapture::end`].
pub(super) struct LogCapture(());

impl LogCapture {
    pub(super) fn begin() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let is_captured = dynamic_filter_fn(|_, _| CAPTURED.with_borrow(Option::is_some))
                .with_max_level_hint(LevelFilter::TRACE);
            let layer = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_writer(|| CaptureWriter)
                .with_filter(is_captured);
            tracing_subscriber::registry().with(layer).init();
        });
        CAPTURED.set(Some(Vec::new()));
        Self(())
    }

    pub(super) fn end(self) -> String {
        CAPTURED
            .take()
            .map(|heard| String::from_utf8_lossy(&heard).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for LogCapture {
    fn drop(&mut self) {
        CAPTURED.set(None);
    }
}
