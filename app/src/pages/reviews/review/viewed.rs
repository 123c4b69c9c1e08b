//! Records which changes a reader has viewed. A change counts as viewed when all its documents do.
//!
//! Expanding a card is not enough: the whole card must have been visible. Each of its parts ends in
//! an [`end`]. The card is recorded when each `end` has been in the window. Collapsed or
//! scrolled-out content is not in the window. It counts only after the reader opens or scrolls to
//! it. Visible content may still be unread. But content that was never visible is certainly unread.
//!
//! Records are sent in batches after a short delay, and again later after an error. Responses may
//! arrive out of order. So a response without a record does not remove it: the set of viewed
//! changes only grows.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use api::reviews::ViewedChanges;
use engine::blueprint::Anchor;
use engine::counting::{either, many};
use engine::ids::ReviewId;
use leptos::html;
use leptos::prelude::*;
use leptos::server_fn::ServerFn;
use leptos::task::spawn_local;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::Closure;

use super::server_functions::{self, MarkViewed};
use crate::components::{Icon, icon};

/// Cards that are viewed within this time share one request.
const GATHER: Duration = Duration::from_millis(200);
/// The delay before a failed request is repeated.
const AGAIN: Duration = Duration::from_secs(5);
/// The maximum number of documents in one request.
const MAX_BATCH: usize = 2_000;

/// The changes of a review that this person has viewed.
#[derive(Clone, Copy)]
pub(super) struct Marks {
    review: ReviewId,
    opened: RwSignal<ViewedChanges>,
    /// The documents of each card.
    cards: StoredValue<Vec<Vec<Anchor>>>,
    waiting: StoredValue<BTreeSet<Anchor>>,
    /// Set to expand all cards.
    all: RwSignal<bool>,
}

impl Marks {
    pub fn of(review: ReviewId, opened: ViewedChanges, cards: Vec<Vec<Anchor>>) -> Self {
        Self {
            review,
            opened: RwSignal::new(opened),
            cards: StoredValue::new(cards),
            waiting: StoredValue::default(),
            all: RwSignal::new(false),
        }
    }

    /// The number of viewed cards, and of all cards.
    fn seen(self) -> (usize, usize) {
        let opened = self.opened.read();
        self.cards.with_value(|cards| {
            let seen = cards
                .iter()
                .filter(|card| card.iter().all(|anchor| opened.viewed.contains(anchor)));
            (seen.count(), cards.len())
        })
    }

    fn mark(self, card: &[Anchor]) {
        let opened = self.opened.read_untracked();
        let new: Vec<Anchor> =
            card.iter().filter(|anchor| !opened.viewed.contains(anchor)).cloned().collect();
        drop(opened);
        let begins = self.waiting.try_update_value(|waiting| {
            let was_empty = waiting.is_empty();
            waiting.extend(new);
            was_empty && !waiting.is_empty()
        });
        if begins == Some(true) {
            set_timeout(move || self.send(), GATHER);
        }
    }

    fn send(self) {
        let Some(waiting) = self.waiting.try_update_value(std::mem::take) else { return };
        let waiting: Vec<Anchor> = waiting.into_iter().collect();
        spawn_local(async move {
            for some in waiting.chunks(MAX_BATCH) {
                let words: Vec<String> = some.iter().map(ToString::to_string).collect();
                match server_functions::mark_viewed(self.review, words.join(" ")).await {
                    Ok(now) => drop(self.opened.try_update(|known| known.more(now))),
                    Err(_) => {
                        let some = some.to_vec();
                        set_timeout(move || self.mark(&some), AGAIN);
                    }
                }
            }
        });
    }
}

/// The number of viewed changes, next to the tabs. `is_part`: further pages have more changes.
pub(super) fn viewed_count(marks: Marks, is_part: bool) -> impl IntoView {
    let of = if is_part { "on this page" } else { "" };
    let text = move || {
        let (seen, all) = marks.seen();
        match all - seen {
            0 => view! {
                "viewed all " <b class="num">{all}</b> {either(all, " change ", " changes ")} {of}
            }
            .into_any(),
            _ => view! {
                "viewed " <b class="num">{seen}</b> " of " <b class="num">{all}</b>
                {either(all, " change ", " changes ")} {of}
            }
            .into_any(),
        }
    };
    let title = "A change counts as viewed once you scroll to its end with every section expanded. \
        Views of the same change in an earlier version count, too.";
    view! {
        <span class="muted viewed-count" title=title>
            <span class="visually-hidden">"You have "</span> {move || text()}
        </span>
    }
    .into_any()
}

/// A button that expands every card. Cards then count once they were visible.
pub(super) fn expand_all_button(marks: Marks) -> impl IntoView {
    let some_left = move || {
        let (seen, all) = marks.seen();
        seen < all
    };
    view! {
        <small class="muted">
            "A change counts as viewed once you scroll to its end with every section expanded."
        </small>
        <button
            class="button small after-hydration"
            type="button"
            hidden=move || !some_left()
            on:click=move |_| marks.all.set(true)
        >
            "Expand all changes"
        </button>
    }
    .into_any()
}

/// Shows whether a card was viewed. Without JavaScript, it is a button.
pub(super) fn mark(marks: Option<Marks>, card: &[Anchor]) -> AnyView {
    let Some(marks) = marks else { return ().into_any() };
    let stored = StoredValue::new(card.to_vec());
    let state = Memo::new(move |_| {
        let opened = marks.opened.read();
        stored.with_value(|card| {
            let is_opened = card.iter().all(|anchor| opened.viewed.contains(anchor));
            (is_opened, card.iter().any(|anchor| opened.outdated.contains(anchor)))
        })
    });
    let anchors = card.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let word = move || match state.get() {
        (true, _) => {
            view! { <span class="pill flat">{icon(Icon::Check)} "viewed"</span> }.into_any()
        }
        (false, true) => {
            view! { <span class="pill" data-state="warn">"changed since you viewed it"</span> }
                .into_any()
        }
        (false, false) => ().into_any(),
    };
    let path = MarkViewed::PATH;
    view! {
        {move || word()}
        <form class="before-hydration" method="post" action=path hidden=move || state.get().0>
            <input type="hidden" name="review" value=marks.review.to_string()/>
            <input type="hidden" name="anchors" value=anchors/>
            <button class="button small" type="submit">"Mark as viewed"</button>
        </form>
    }
    .into_any()
}

/// The content of a card, collapsed until the reader expands it. Without records it is always
/// expanded.
pub(super) fn fold(
    marks: Option<Marks>,
    card: Vec<Anchor>,
    rows: usize,
    open: bool,
    inside: AnyView,
) -> AnyView {
    let Some(marks) = marks else { return inside };
    let details = NodeRef::<html::Details>::new();
    let stored = StoredValue::new(card);
    Effect::new(move |_| {
        if let Some(details) = details.get() {
            watch(&details, move || {
                stored.try_with_value(|card| marks.mark(card));
            });
        }
    });
    Effect::new(move |_| {
        if marks.all.get()
            && let Some(details) = details.get_untracked()
        {
            unfold(&enclosing_card(&details));
        }
    });
    // The review counts roles, barclamps and noderoles. Each may have several lines here.
    let label = many(rows, "line");
    view! {
        <details class="fold" node_ref=details open=open>
            <summary>{label}</summary>
            {inside}
            {end()}
        </details>
    }
    .into_any()
}

/// Marks the end of a card's part. Each part that can be collapsed or scrolled has one.
pub(super) fn end() -> AnyView {
    view! { <span class="end" aria-hidden="true"></span> }.into_any()
}

/// The card around a collapsible section. Its heading may have further parts.
fn enclosing_card(details: &web_sys::Element) -> web_sys::Element {
    details.closest(".card").ok().flatten().unwrap_or_else(|| details.clone())
}

fn unfold(card: &web_sys::Element) {
    for details in query_all(card, "details:not(.runs-with)") {
        let _ = details.set_attribute("open", "");
    }
}

fn query_all(card: &web_sys::Element, selector: &str) -> Vec<web_sys::Element> {
    let Ok(found) = card.query_selector_all(selector) else { return Vec::new() };
    (0..found.length()).filter_map(|n| found.item(n)?.dyn_into().ok()).collect()
}

/// Calls `seen` when every end in the card has been in the window.
fn watch(details: &web_sys::Element, seen: impl Fn() + 'static) {
    let ends = query_all(&enclosing_card(details), ".end");
    let left = Cell::new(ends.len());
    let callback = move |entries: js_sys::Array, observer: web_sys::IntersectionObserver| {
        for entry in
            entries.iter().map(JsCast::unchecked_into::<web_sys::IntersectionObserverEntry>)
        {
            if entry.is_intersecting() {
                observer.unobserve(&entry.target());
                left.set(left.get().saturating_sub(1));
                if left.get() == 0 {
                    seen();
                }
            }
        }
    };
    let callback = Closure::<dyn Fn(js_sys::Array, web_sys::IntersectionObserver)>::new(callback)
        .into_js_value();
    // A browser without `IntersectionObserver` records nothing.
    let Ok(observer) = web_sys::IntersectionObserver::new(callback.unchecked_ref()) else { return };
    ends.iter().for_each(|end| observer.observe(end));
    let observer = StoredValue::new_local(observer);
    on_cleanup(move || {
        observer.try_with_value(web_sys::IntersectionObserver::disconnect);
    });
}
