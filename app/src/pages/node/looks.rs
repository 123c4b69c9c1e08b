//! What came of looks at a node, newest first, a page at a time: its own page has the first of them.
//!
//! The newest page is looked at again from time to time; a page further back shows what was, and stays as it is.

use api::At;
use api::nodes::LookPage;
use leptos::prelude::*;
use leptos_meta::Title;

use super::{looks_table, part_of_node, ways};
use crate::calls;
use crate::parts::pulse::pulse;
use crate::parts::{Empty, Feed, Icon, ProblemNotice, Same, Typed, load};
use crate::places;

/// The page.
#[component]
pub fn LooksPage() -> impl IntoView {
    let asked = part_of_node::<At>(|text| text.parse().ok().map(At));
    let ask = |asked: Result<(String, Option<At>), String>| async move {
        let (name, before) = super::answered(asked)?;
        let page = calls::node_looks(name.clone(), before).await?;
        Ok((name, before, page))
    };
    let looks = Resource::new(move || asked.get(), ask);
    load(looks, |(name, before, first)| view! { <Loaded name before first/> })
}

#[component]
fn Loaded(name: String, before: Option<At>, first: LookPage) -> impl IntoView {
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
    let title = format!("Looks at {name}");
    let call = name.clone();
    view! {
        <Title text=title.clone()/>
        <div class="head">
            <div>
                <div class="muted"><a href=places::node(&name)>{name.clone()}</a></div>
                <h1>{title}</h1>
                <p class="muted">"Workers look at it every ten seconds. The last 50 looks are kept."</p>
            </div>
        </div>
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {move || match looks.read().is_empty() {
                true => view! { <Empty icon=Icon::Search title="No looks"><p>{none()}</p></Empty> }.into_any(),
                false => looks_table(looks.get()).into_any(),
            }}
            {pager}
        </div>
        <Same of=move |_: Typed| vec![api::calls::node_looks(&call)]/>
    }
    .into_any()
}
