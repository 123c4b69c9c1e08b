//! Runs, newest first.

use api::console::{RunPage, RunSummary};
use api::live::Topic;
use engine::ids::RunId;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use crate::calls;
use crate::clock::{Moment, Span};
use crate::live::{NOW, use_live};
use crate::parts::badge::{RUN_STATES, run_look};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, RunPill, SameList, icon, load, rows};
use crate::places;

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    state: String,
    before: Option<RunId>,
}

impl Wanted {
    fn address(&self) -> String {
        let state = (!self.state.is_empty()).then(|| format!("state={}", places::encoded(&self.state)));
        let before = self.before.map(|before| format!("before={before}"));
        let query: Vec<String> = state.into_iter().chain(before).collect();
        match query.is_empty() {
            true => places::RUNS.into(),
            false => format!("{}?{}", places::RUNS, query.join("&")),
        }
    }
}

/// The list of runs.
#[component]
pub fn Runs() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        Wanted {
            state: query.get("state").unwrap_or_default(),
            before: query.get("before").and_then(|id| id.parse().ok()),
        }
    });
    let runs = Resource::new(move || wanted.get(), |wanted| calls::runs(wanted.state, wanted.before));
    view! {
        <Title text="Runs"/>
        <div class="head"><h1>"Runs"</h1></div>
        <nav class="filters" aria-label="Filter by state">{move || filters(&wanted.get())}</nav>
        {load(runs, move |first| view! { <List first wanted=wanted.get_untracked()/> })}
        <SameList of=api::calls::List::Runs/>
    }
    .into_any()
}

fn filters(wanted: &Wanted) -> impl IntoView + use<> {
    let link = |state: &str, word: &str| {
        let is_here = (wanted.state == state).then_some("true");
        let address = Wanted { state: state.into(), before: None }.address();
        view! { <a class="button small" class:quiet=is_here.is_none() href=address aria-current=is_here>{word.to_owned()}</a> }
    };
    let states = RUN_STATES.map(|state| {
        let word = run_look(state).2;
        link(word, word)
    });
    (link("", "all"), states.collect_view()).into_view()
}

#[component]
fn List(first: RunPage, wanted: Wanted) -> impl IntoView {
    let next = first.next.map(|next| Wanted { before: Some(next), ..wanted.clone() }.address());
    let newest = wanted.before.map(|_| Wanted { before: None, ..wanted.clone() }.address());
    let feed = Feed::new(first, move || calls::runs(wanted.state.clone(), wanted.before));
    use_live().hear(vec![Topic::Runs], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().runs.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let table = move || match is_empty.get() {
        true => view! {
            <Empty icon=Icon::Run title="No runs">
                <p>"Steps run when a change is committed. Here is every attempt, with its log."</p>
            </Empty>
        }
        .into_any(),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Run"</th>
                        <th scope="col">"State"</th>
                        <th scope="col">"Noderole"</th>
                        <th scope="col">"Deployment"</th>
                        <th scope="col" class="number">"Took"</th>
                        <th scope="col">"Queued"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |run| run.id, row)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {table}
            {(next.is_some() || newest.is_some())
                .then(|| {
                    view! {
                        <nav class="pager" aria-label="Pages of the list">
                            {newest.map(|newest| view! { <a class="button small" href=newest>{icon(Icon::Up)} "Newest"</a> })}
                            <span class="grow"></span>
                            {next.map(|next| view! { <a class="button small" href=next>"Older" {icon(Icon::Right)}</a> })}
                        </nav>
                    }
                })}
        </div>
    }
    .into_any()
}

fn row(run: Memo<RunSummary>) -> impl IntoView {
    let id = run.read_untracked().id;
    view! {
        <tr>
            <td data-label="Run" class="tight"><a class="main" href=places::run(id)>{id.0}</a></td>
            <td data-label="State">{move || view! { <RunPill state=run.read().state/> }}</td>
            <td data-label="Noderole">
                <div>
                    <a href=move || places::noderole(run.read().noderole)><b>{move || run.read().role.to_string()}</b></a>
                    " on " {move || run.read().fqdn.clone()}
                    {move || run.read().error.clone().map(|error| view! { <div class="fault">{error}</div> })}
                    {move || run.read().cause.clone().map(|cause| view! { <div class="muted">{cause}</div> })}
                </div>
            </td>
            <td data-label="Deployment">{move || {
                let name = run.read().deployment.clone();
                view! { <a href=places::deployment(&name)>{name.to_string()}</a> }
            }}</td>
            <td data-label="Took" class="number">{move || run.read().started.map(|from| view! { <Span from to=run.read().ended/> })}</td>
            <td data-label="Queued" class="muted">{move || view! { <Moment at=run.read().queued/> }}</td>
        </tr>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_its_address() {
        let wanted =
            |state: &str, before: Option<i64>| Wanted { state: state.into(), before: before.map(RunId) }.address();
        assert_eq!(wanted("", None), "/runs");
        assert_eq!(wanted("failed", Some(7)), "/runs?state=failed&before=7");
    }
}
