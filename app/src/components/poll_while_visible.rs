//! Polling for changes without an event, such as a worker that stopped responding or a growing
//! queue age.

use std::time::Duration;

use leptos::prelude::*;

use super::feed::Feed;

const PERIOD: Duration = Duration::from_secs(15);

/// Fetches periodically while the page is visible.
pub fn poll_while_visible<T: Send + Sync + 'static>(feed: Feed<T>) {
    Effect::new(move |_| {
        let beat = move || {
            if !document().hidden() {
                feed.now();
            }
        };
        let timer = set_interval_with_handle(beat, PERIOD);
        on_cleanup(move || {
            if let Ok(timer) = timer {
                timer.clear();
            }
        });
    });
}
