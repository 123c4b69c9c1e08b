//! The progress line at the top of the window, for navigations that take noticeable time.
//!
//! A page or a part of it that loads counts as busy. The line appears only after a delay, so that
//! it does not flash during fast navigations.

use std::time::Duration;

use leptos::prelude::*;

/// The time after which a navigation is slow.
const SLOW_AFTER: Duration = Duration::from_millis(150);

/// The loads in progress.
#[derive(Clone, Copy)]
pub struct Progress {
    loads: RwSignal<usize>,
    slow: RwSignal<bool>,
}

impl Progress {
    /// Counts the loads of the tab.
    pub fn start() -> Self {
        let progress = Self { loads: RwSignal::new(0), slow: RwSignal::new(false) };
        let is_busy = Memo::new(move |_| progress.loads.get() > 0);
        Effect::new(move |_| {
            if !is_busy.get() {
                return progress.slow.set(false);
            }
            let timer = set_timeout_with_handle(move || progress.slow.set(true), SLOW_AFTER);
            on_cleanup(move || {
                if let Ok(timer) = timer {
                    timer.clear();
                }
            });
        });
        progress
    }

    /// Whether a load takes noticeable time.
    pub fn is_slow(self) -> bool {
        self.slow.get()
    }

    /// Whether anything loads.
    pub fn is_busy(self) -> bool {
        self.loads.try_get_untracked().is_some_and(|loads| loads > 0)
    }
}

pub fn use_progress() -> Progress {
    use_context().unwrap_or_else(Progress::start)
}

/// A load in progress, until it is dropped.
pub struct Load(Progress);

impl Load {
    pub fn begin(progress: Progress) -> Self {
        progress.loads.try_update(|loads| *loads += 1);
        Self(progress)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.loads.try_update(|loads| *loads = loads.saturating_sub(1));
    }
}

/// Counts the loads of a part of a page, for `set_pending` of its `Transition`.
pub fn loads() -> SignalSetter<bool> {
    let progress = use_progress();
    let load = StoredValue::new(None::<Load>);
    SignalSetter::map(move |is_pending: bool| {
        // Several threads render one page on the server, which has no progress line.
        if cfg!(not(feature = "ssr")) {
            load.try_set_value(is_pending.then(|| Load::begin(progress)));
        }
    })
}
