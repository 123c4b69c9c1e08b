//! What changes without saying so: no event tells that a worker was not heard, or that a queue grew older.

use std::time::Duration;

use leptos::prelude::*;

use super::feed::Feed;

/// How often it is looked again.
const PERIOD: Duration = Duration::from_secs(15);

/// Fetches again from time to time while somebody looks at the page.
pub fn pulse<T: Send + Sync + 'static>(feed: Feed<T>) {
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
