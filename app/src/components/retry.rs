//! Retries of failed loads: of pages, of their parts and of updates.
//!
//! A load that failed for a temporary reason runs again after a growing delay. It runs at once when
//! the live stream is connected again, when the browser is online again, and when the reader asks
//! for it. A refusal (403, 404, 422) is not retried, because it would be the same.

use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use leptos::prelude::*;

use super::icon::{Icon, icon};
use crate::failure::is_temporary;
#[cfg(not(feature = "ssr"))]
use crate::live::{Status, use_live};

/// Delays before retries, in seconds. The last one repeats.
const DELAYS_SECS: [u64; 4] = [2, 5, 10, 30];

/// The number of times that the connection came back.
#[derive(Clone, Copy)]
pub struct Reconnects(RwSignal<u32>);

impl Reconnects {
    /// Watches the live stream and the browser, for all loads of the tab.
    pub fn start() -> Self {
        let count = RwSignal::new(0);
        #[cfg(not(feature = "ssr"))]
        {
            let live = use_live();
            Effect::new(move |was_lost: Option<bool>| {
                let status = live.status();
                if was_lost == Some(true) && status == Status::Live {
                    count.update(|count| *count += 1);
                }
                matches!(status, Status::Lost { .. })
            });
            let online = window_event_listener(leptos::ev::online, move |_| {
                count.update(|count| *count += 1);
            });
            on_cleanup(move || online.remove());
        }
        Self(count)
    }
}

type Command = Arc<dyn Fn() + Send + Sync>;

/// The retry of one load.
#[derive(Clone, Copy)]
pub struct Retry {
    /// The command of the failed load, until it runs again.
    pending: StoredValue<Option<Command>>,
    failures: StoredValue<usize>,
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

impl Retry {
    pub fn new() -> Self {
        let retry = Self { pending: StoredValue::new(None), failures: StoredValue::new(0) };
        if let Some(Reconnects(count)) = use_context::<Reconnects>() {
            Effect::new(move |last: Option<u32>| {
                let now = count.get();
                if last.is_some_and(|last| last != now) {
                    retry.now();
                }
                now
            });
        }
        retry
    }

    /// Schedules `again` if the problem is temporary.
    pub fn failed(self, problem: &Problem, again: impl Fn() + Send + Sync + 'static) {
        self.schedule(problem, Arc::new(again));
    }

    fn schedule(self, problem: &Problem, again: Command) {
        if cfg!(feature = "ssr") || !is_temporary(problem) {
            return self.succeeded();
        }
        let failures = self.failures.try_update_value(|failures| {
            *failures += 1;
            *failures
        });
        // `None`: the page is gone.
        let Some(failures) = failures else { return };
        self.pending.try_set_value(Some(again));
        set_timeout(
            move || {
                // Not if the load ran in the meantime, for another reason.
                if self.failures.try_get_value() == Some(failures) {
                    self.now();
                }
            },
            Duration::from_secs(DELAYS_SECS[(failures - 1).min(DELAYS_SECS.len() - 1)]),
        );
    }

    pub fn succeeded(self) {
        self.failures.try_set_value(0);
        self.pending.try_set_value(None);
    }

    /// Runs a failed load again at once. Returns whether the load has failed.
    pub fn now(self) -> bool {
        let pending = self.pending.try_update_value(Option::take).flatten();
        if let Some(again) = pending {
            again();
        }
        self.failures.try_get_value().is_some_and(|failures| failures > 0)
    }
}

/// The button for a failed load. Without JavaScript, a link that loads the page again.
pub fn try_again(
    problem: &Problem,
    retry: Option<Retry>,
    class: &'static str,
    address: String,
) -> Option<AnyView> {
    is_temporary(problem).then(|| {
        let again = move |event: leptos::ev::MouseEvent| {
            if retry.is_some_and(Retry::now) {
                event.prevent_default();
            }
        };
        view! {
            <a class=class rel="external" href=address on:click=again>
                {icon(Icon::Rerun)} "Try again"
            </a>
        }
        .into_any()
    })
}
