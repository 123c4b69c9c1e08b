//! The search page, by kind: for browsers without JavaScript, and for complete results.

#[cfg(feature = "ssr")]
use api::search::SearchQuery;
use api::search::{HitKind, MAX_QUERY_CHARS, SearchResults};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::addresses;
use crate::codec::AsJson;
use crate::components::notice::problem_in_page;
use crate::components::{
    Empty, EquivalentCommands, FormValues, Icon, QueryForm, icon, load_with_error,
};
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};
use crate::search_results::{Choice, ChoiceAction, heading, offers, pages, search_text};

#[component]
pub fn Search() -> impl IntoView {
    let query = use_query_map();
    let text = Memo::new(move |_| query.read().get("q").unwrap_or_default().trim().to_owned());
    let found = Resource::new(
        move || text.get(),
        |text| async move { search(search_text(&text).to_owned()).await },
    );
    let same = move |_: FormValues| {
        let text = text.read();
        let search = search_text(&text);
        if search.is_empty() { Vec::new() } else { vec![api::calls::search(search)] }
    };
    view! {
        <Title text="Search"/>
        <div class="head"><h1>"Search"</h1></div>
        <QueryForm place=addresses::SEARCH>
            <div class="field">
                <label for="search-text">"Part of a name or title, or a number"</label>
                <input
                    class="input"
                    id="search-text"
                    name="q"
                    autocomplete="off"
                    maxlength=MAX_QUERY_CHARS.to_string()
                    value=move || text.get()
                    prop:value=move || text.get()
                />
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Search"</button>
        </QueryForm>
        {load_with_error(
            found,
            move |found| results(&text.get_untracked(), &found),
            |problem| problem_in_page(problem, view! {
                <a class="button" href=addresses::SEARCH>"New search"</a>
            }.into_any()),
        )}
        <EquivalentCommands of=same/>
    }
    .into_any()
}

fn results(text: &str, found: &SearchResults) -> AnyView {
    let pages = pages(text);
    if found.hits.is_empty() && pages.is_empty() {
        return view! {
            <div class="card">
                <Empty icon=Icon::Search title="No results">
                    <p>
                        "Search for part of the name or title of a deployment, node, role, review \
                         or person, or for the number of a run or review."
                    </p>
                </Empty>
            </div>
        }
        .into_any();
    }
    let kinds = HitKind::ALL.into_iter().filter_map(|kind| {
        let offers: Vec<Choice> =
            found.hits.iter().filter(|hit| hit.kind() == kind).flat_map(offers).collect();
        (!offers.is_empty()).then(|| part(heading(kind), offers, found.more.contains(&kind)))
    });
    let kinds = kinds.collect_view();
    let pages = (!pages.is_empty()).then(|| part("Pages", pages, false));
    view! { <div class="stack">{kinds} {pages}</div> }.into_any()
}

/// The hits of one kind. Only links: further commands are on the linked page.
fn part(title: &'static str, choices: Vec<Choice>, more: bool) -> AnyView {
    let line = |Choice { name, about, icon: shape, action }| match action {
        ChoiceAction::Go(place) => Some(view! {
            <li>
                <a class="main" href=place>{icon(shape)} " " <bdi>{name}</bdi></a>
                <small class="muted">{about}</small>
            </li>
        }),
        _ => None,
    };
    let lines = choices.into_iter().filter_map(line).collect_view();
    view! {
        <section class="card" aria-label=title>
            <header><h2>{title}</h2></header>
            <ul class="short-lines">
                {lines}
                {more.then(|| view! {
                    <li class="muted">"There are more results. Enter more of the name."</li>
                })}
            </ul>
        </section>
    }
    .into_any()
}

/// Searches by name. An empty text finds nothing.
#[server(name = Search, prefix = "/call", endpoint = "search", input = AsJson, output = AsJson)]
pub async fn search(text: String) -> ServerResult<SearchResults> {
    if text.trim().is_empty() {
        return Ok(SearchResults::default());
    }
    let (request, actor) = signed_in()?;
    answer(request.control.search(&actor, &SearchQuery { q: text, limit: None }).await).await
}
