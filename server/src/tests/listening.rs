//! The log as tests hear it.
//!
//! Whether a place logs at all is decided once for the whole process, when it is first passed: by the listener of the thread that passes it,
//! as long as there is one listener only. Tests run side by side in one process, so a listener of one thread would find places that another
//! test passed before and that stay silent from then on. Hence one listener for the process, which never says "never" and writes what happens
//! on the threads that asked to hear it.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

thread_local! {
    static HEARD: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

struct Ear;

impl Write for Ear {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        HEARD.with_borrow_mut(|heard| {
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

/// Keeps everything that this thread logs, at its most talkative, from now on until [`Listening::end`].
pub(super) struct Listening(());

impl Listening {
    pub(super) fn begin() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let wanted = dynamic_filter_fn(|_, _| HEARD.with_borrow(Option::is_some))
                .with_max_level_hint(LevelFilter::TRACE);
            let layer = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_writer(|| Ear)
                .with_filter(wanted);
            tracing_subscriber::registry().with(layer).init();
        });
        HEARD.set(Some(Vec::new()));
        Self(())
    }

    pub(super) fn end(self) -> String {
        HEARD.take().map(|heard| String::from_utf8_lossy(&heard).into_owned()).unwrap_or_default()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        HEARD.set(None);
    }
}
