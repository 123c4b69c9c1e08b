//! What is kept for a node, newest first, a page at a time: what came of looks, what runs handed back.
//!
//! The address says behind which place a page begins. The newest page may move; one further back shows what was, and stays as it is.

use api::Problem;
use api::calls::Call;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Answer;
use crate::parts::{ProblemNotice, Same, Typed, list, load_one};
use crate::places;

/// A page as its address asks for it: whose, and behind which place; None: the newest.
pub(super) type Asked<P> = (String, Option<P>);

/// Fetches the page that the address asks for, and shows it.
pub(super) fn kept<P, T, F, V>(
    place: fn(&str) -> Option<P>,
    fetch: fn(String, Option<P>) -> F,
    show: fn(Asked<P>, T) -> V,
) -> impl IntoView
where
    P: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static,
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    F: Future<Output = Answer<T>> + Send + 'static,
    V: IntoView + 'static,
{
    let (params, query) = (use_params_map(), use_query_map());
    let asked = Memo::new(move |_| {
        let name = params.read().get("name").unwrap_or_default();
        match query.read().get("before").filter(|before| !before.is_empty()) {
            None => Ok((name, None)),
            Some(before) => place(&before).map(|place| (name, Some(place))).ok_or(before),
        }
    });
    let ask = move |asked: Result<Asked<P>, String>| async move {
        let (name, before) = answered(asked)?;
        let page = fetch(name.clone(), before.clone()).await?;
        Ok(((name, before), page))
    };
    load_one(Resource::new(move || asked.get(), ask), (places::NODES, "All nodes"), move |(asked, page)| {
        show(asked, page)
    })
}

/// The same, where a place that is none is a failure.
fn answered<P>(asked: Result<Asked<P>, String>) -> Answer<Asked<P>> {
    asked.map_err(|before| {
        #[cfg(feature = "ssr")]
        crate::respond::status(400);
        let before: String = before.chars().take(80).collect();
        Problem::invalid(format!("before: {before:?} is no place in this list. Leave it out to begin at the newest."))
            .into()
    })
}

/// A page around what is kept.
#[component]
pub(super) fn Sheet(
    /// The node.
    name: String,
    /// What it is.
    title: String,
    /// How long it is kept.
    about: AnyView,
    /// Why it could not be fetched again.
    #[prop(optional, into)]
    problem: Option<Signal<Option<Problem>>>,
    /// The same as a command.
    same: Call,
    /// The list, and the ways on.
    children: Children,
) -> impl IntoView {
    view! {
        <Title text=title.clone()/>
        <div class="head">
            <div>
                <div class="muted"><a href=places::node(&name)>{name.clone()}</a></div>
                <h1>{title}</h1>
                <p class="muted">{about}</p>
            </div>
        </div>
        {problem.map(|problem| view! { <ProblemNotice problem/> })}
        <div class="card">{children()}</div>
        <Same of=move |_: Typed| vec![same.clone()]/>
    }
    .into_any()
}

/// The ways to the newest page and on; nothing, where there is one page alone.
pub(super) fn ways(newest: Option<String>, older: Option<String>) -> AnyView {
    list::ways(newest, older, ("Newest", "Older"))
}
