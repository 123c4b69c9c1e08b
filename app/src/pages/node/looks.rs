//! What came of looks at a node: its own page has the first of them. The newest page is looked at again from time to time.

use api::At;
use api::nodes::LookPage;
use leptos::prelude::*;

use super::kept::{Asked, Sheet, kept, ways};
use super::looks_table;
use crate::calls;
use crate::parts::pulse::pulse;
use crate::parts::{Empty, Feed, Icon};
use crate::places;

/// The page.
#[component]
pub fn LooksPage() -> impl IntoView {
    kept(|text| text.parse().ok().map(At), calls::node_looks, |asked, first| view! { <Loaded asked first/> })
}

#[component]
fn Loaded(asked: Asked<At>, first: LookPage) -> impl IntoView {
    let (name, before) = asked;
    let of = name.clone();
    let feed = Feed::new(first, move || calls::node_looks(of.clone(), before));
    if before.is_none() {
        pulse(feed);
    }
    let page = feed.value();
    let looks = Memo::new(move |_| page.read().looks.clone());
    let on = Memo::new(move |_| page.read().next);
    let at = name.clone();
    let pager = move || {
        ways(before.map(|_| places::node_looks(&at, None)), on.get().map(|next| places::node_looks(&at, Some(next))))
    };
    let none = move || match before {
        None => "Nobody has looked yet.",
        Some(_) => "No look is kept from before that: the last 50 of a node are.",
    };
    let about = view! { "Workers look at it every ten seconds. The last 50 looks are kept." }.into_any();
    let same = api::calls::node_looks(&name);
    view! {
        <Sheet title=format!("Looks at {name}") name about problem=feed.problem() same>
            {move || match looks.read().is_empty() {
                true => view! { <Empty icon=Icon::Search title="No looks"><p>{none()}</p></Empty> }.into_any(),
                false => looks_table(looks.get()).into_any(),
            }}
            {pager}
        </Sheet>
    }
    .into_any()
}
