//! Back and Forward: restores the scroll position, and closes dialogs and menus.
//!
//! The browser restores the position before the page has loaded its content, when the document is
//! too short. So the position is set again until the page is complete, or until the reader scrolls.

use std::time::Duration;

use leptos::ev;
use leptos::prelude::*;
use leptos_router::hooks::use_location;
use wasm_bindgen::JsCast;

use crate::components::progress::{Progress, use_progress};

/// The interval at which the position is set.
const INTERVAL: Duration = Duration::from_millis(50);
/// The number of intervals for which a complete page must keep its position.
const STEADY: u32 = 6;
/// The maximum number of intervals: ten seconds.
const MAX_INTERVALS: u32 = 200;
/// The maximum number of addresses with a recorded position.
const MAX_ADDRESSES: usize = 50;

/// The position to restore.
struct Target {
    address: String,
    top: f64,
    intervals: u32,
    steady: u32,
}

#[derive(Default)]
struct History {
    /// The last vertical scroll position of each address, oldest first.
    tops: Vec<(String, f64)>,
    target: Option<Target>,
}

/// Listens to the browser, for all pages.
pub(super) fn follow() {
    let history = StoredValue::new(History::default());
    let progress = use_progress();
    let path = use_location().pathname;
    Effect::new(move |_| {
        let on_scroll = window_event_listener(ev::scroll, move |_| {
            // The next page may be shown before the browser has its address.
            let current = window().location().pathname().unwrap_or_default();
            if path.with_untracked(|path| *path != current) {
                return;
            }
            let (address, top) = (address(), top());
            history.update_value(|history| {
                if history.target.is_some() {
                    return;
                }
                history.tops.retain(|(known, _)| *known != address);
                if history.tops.len() >= MAX_ADDRESSES {
                    history.tops.remove(0);
                }
                history.tops.push((address, top));
            });
        });
        let on_back = window_event_listener(ev::popstate, move |_| {
            close_overlays();
            let address = address();
            let is_restoring = history.try_update_value(|history| {
                // Without scrolling, the browser restores the position correctly.
                let known = history.tops.iter().find(|(known, _)| *known == address);
                let target =
                    known.map(|(_, top)| Target { address, top: *top, intervals: 0, steady: 0 });
                std::mem::replace(&mut history.target, target).is_some()
            });
            if is_restoring == Some(false) {
                restore(history, progress);
            }
        });
        // The reader's own scrolling takes precedence.
        let on_input = ["wheel", "touchstart", "pointerdown", "keydown"].map(|event| {
            window_event_listener_untyped(event, move |_| {
                history.update_value(|history| history.target = None);
            })
        });
        on_cleanup(move || {
            for listener in [on_scroll, on_back].into_iter().chain(on_input) {
                listener.remove();
            }
        });
    });
}

/// Sets the position, and again after an interval until the page keeps it.
fn restore(history: StoredValue<History>, progress: Progress) {
    let is_restoring = history.try_update_value(|history| {
        let Some(target) = &mut history.target else { return false };
        target.intervals += 1;
        if target.intervals > MAX_INTERVALS || target.address != address() {
            history.target = None;
            return false;
        }
        if (top() - target.top).abs() > 1.0 {
            window().scroll_to_with_x_and_y(0.0, target.top);
        }
        let is_complete = !progress.is_busy() && (top() - target.top).abs() <= 1.0;
        target.steady = if is_complete { target.steady + 1 } else { 0 };
        if target.steady >= STEADY {
            history.target = None;
        }
        history.target.is_some()
    });
    if is_restoring == Some(true) {
        set_timeout(move || restore(history, progress), INTERVAL);
    }
}

fn address() -> String {
    window().location().href().unwrap_or_default()
}

fn top() -> f64 {
    window().scroll_y().unwrap_or_default()
}

/// Closes what covers the page.
fn close_overlays() {
    let each = |selector: &str, close: fn(&web_sys::Element)| {
        let Ok(found) = document().query_selector_all(selector) else { return };
        for at in 0..found.length() {
            if let Some(element) = found.item(at).and_then(|node| node.dyn_into().ok()) {
                close(&element);
            }
        }
    };
    each("dialog[open]", |dialog| dialog.unchecked_ref::<web_sys::HtmlDialogElement>().close());
    each("[popover]:popover-open", |popover| {
        // Fails if it was closed in the meantime, which is fine.
        let _ = popover.unchecked_ref::<web_sys::HtmlElement>().hide_popover();
    });
}
