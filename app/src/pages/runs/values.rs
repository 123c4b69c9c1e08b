//! Values and their sources: of a noderole now, and of a run's input. The state is in the address,
//! and the page works without JavaScript. The form is outside of the loaded part, so its input
//! survives errors.

use api::calls::Call;
use api::live::Topic;
use api::values::{MAX_VALUE_CHARS, SetBy, ValuePage, ValueView, ValuesQuery, ValuesView};
use engine::counting::many;
use engine::ids::{NoderoleId, RunId};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};
use serde::{Deserialize, Serialize};

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::json::DataView;
use crate::components::list::one_of;
use crate::components::notice::problem_in_page;
use crate::components::{
    Empty, EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, QueryForm, icon,
    load_with_error,
};
use crate::failure::{Failure, ServerResult};
use crate::live::{Event, NOW, use_live};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The owner of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ValuesOwner {
    Noderole(NoderoleId),
    Run(RunId),
}

impl ValuesOwner {
    fn path(self) -> String {
        match self {
            Self::Noderole(id) => addresses::noderole_values(id),
            Self::Run(id) => addresses::run_values(id),
        }
    }

    /// The equivalent API call.
    fn api_call(self, query: &ValuesQuery) -> Call {
        match self {
            Self::Noderole(id) => api::calls::noderole_data(id, &query.filter, query.own),
            Self::Run(id) => api::calls::run_data(id, &query.filter),
        }
    }

    async fn ask(self, query: ValuesQuery) -> ServerResult<ValuesView> {
        match self {
            Self::Noderole(id) => noderole_values(id, query).await,
            Self::Run(id) => run_values(id, query).await,
        }
    }
}

fn address(of: ValuesOwner, parameters: &ValuesQuery) -> String {
    let own = parameters.own.then(|| "own=true".to_owned());
    let filter = (!parameters.filter.is_empty())
        .then(|| format!("filter={}", addresses::encoded(&parameters.filter)));
    let after =
        parameters.after.as_ref().map(|after| format!("after={}", addresses::encoded(after)));
    let query: Vec<String> = own.into_iter().chain(filter).chain(after).collect();
    if query.is_empty() { of.path() } else { format!("{}?{}", of.path(), query.join("&")) }
}

/// The input of a noderole's next run.
#[component]
pub fn NoderoleValues() -> impl IntoView {
    page(|id| id.parse().ok().map(ValuesOwner::Noderole))
}

/// The input of a run.
#[component]
pub fn RunValues() -> impl IntoView {
    page(|id| id.parse().ok().map(ValuesOwner::Run))
}

/// The parameters of the address, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AddressParams {
    id: String,
    filter: String,
    after: Option<String>,
    own: String,
}

impl AddressParams {
    fn query(&self) -> ServerResult<ValuesQuery> {
        let own =
            one_of("own", &self.own, &[true, false], |own| if own { "true" } else { "false" })?;
        Ok(ValuesQuery {
            filter: self.filter.clone(),
            after: self.after.clone(),
            own: own.unwrap_or_default(),
        })
    }
}

fn page(meant: fn(&str) -> Option<ValuesOwner>) -> impl IntoView {
    let (params, query) = (use_params_map(), use_query_map());
    let params = Memo::new(move |_| {
        let (query, params) = (query.read(), params.read());
        let word = |name: &str| query.get(name).unwrap_or_default();
        let id = params.get("id").unwrap_or_default();
        AddressParams {
            id,
            filter: word("filter"),
            after: query.get("after").filter(|after| !after.is_empty()),
            own: word("own"),
        }
    });
    let of = Memo::new(move |_| meant(&params.read().id));
    let fetch = move |params: AddressParams| async move {
        let of = meant(&params.id).ok_or_else(missing)?;
        let parsed_query = params.query()?;
        Ok((of, parsed_query.clone(), of.ask(parsed_query).await?))
    };
    let values = Resource::new(move || params.get(), fetch);
    let head = move || {
        Suspend::new(async move {
            match values.await {
                Ok((of, parsed_query, first)) => head(of, &parsed_query, &first),
                Err(_) => view! { <Title text="Data"/> <div class="head"><h1>"Data"</h1></div> }
                    .into_any(),
            }
        })
    };
    let same = move |_: FormValues| {
        let (params, of) = (params.read(), of.get());
        of.zip(params.query().ok())
            .map(|(of, parsed_query)| of.api_call(&parsed_query))
            .into_iter()
            .collect()
    };
    let show_error = move |problem| {
        problem_in_page(problem, correction_links(of.get_untracked(), &params.read_untracked()))
    };
    view! {
        <Transition>{head}</Transition>
        {move || of.get().map(|of| form(of, params))}
        {load_with_error(values, |(of, query, first)| view! {
            <Loaded of query first/>
        }, show_error)}
        <EquivalentCommands of=same/>
    }
    .into_any()
}

fn form(of: ValuesOwner, params: Memo<AddressParams>) -> impl IntoView {
    let own = move || {
        let own = Some(params.read().own.clone()).filter(|own| !own.is_empty());
        own.map(|own| view! { <input type="hidden" name="own" value=own/> })
    };
    let filter = move || params.read().filter.clone();
    view! {
        <QueryForm place=of.path()>
            {own}
            <div class="field">
                <label for="filter-values">"Path, value or source contains"</label>
                <input
                    class="input"
                    id="filter-values"
                    name="filter"
                    type="search"
                    autocomplete="off"
                    maxlength=MAX_VALUE_CHARS
                    value=filter
                    prop:value=filter
                />
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
        </QueryForm>
    }
    .into_any()
}

/// Links that correct the address.
fn correction_links(of: Option<ValuesOwner>, params: &AddressParams) -> AnyView {
    let Some(of) = of else {
        return view! { <a class="button" href=addresses::NODES>"All nodes"</a> }.into_any();
    };
    let narrow = !(params.filter.is_empty() && params.own.is_empty() && params.after.is_none());
    narrow.then(|| view! { <a class="button" href=of.path()>"All values"</a> }).into_any()
}

/// The heading: the owner of the values and the selected view.
fn head(of: ValuesOwner, query: &ValuesQuery, first: &ValuesView) -> AnyView {
    let title = format!("Data of {}", first.name);
    let noderole = first.noderole;
    let back = match of {
        ValuesOwner::Noderole(id) => {
            view! { <a href=addresses::noderole(id)>{first.name.clone()}</a> }.into_any()
        }
        ValuesOwner::Run(id) => view! { <a href=addresses::run(id)>"Run " {id.0}</a> }.into_any(),
    };
    let about = match of {
        ValuesOwner::Noderole(id) => tabs(id, query).into_any(),
        ValuesOwner::Run(_) => view! {
            <p class="muted">
                "The input of the run when it started. Secrets are shown by name. "
                <a href=addresses::noderole_values(noderole)>"Input of the next run"</a>
            </p>
        }
        .into_any(),
    };
    view! {
        <Title text=title.clone()/>
        <div class="head"><div><div class="muted">{back}</div><h1>{title}</h1></div></div>
        {about}
    }
    .into_any()
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found("This ID is not valid. Check that you copied the whole address.").into()
}

#[component]
fn Loaded(of: ValuesOwner, query: ValuesQuery, first: ValuesView) -> impl IntoView {
    let deployment = first.deployment_id;
    let surroundings = first.surroundings.clone();
    let ask = query.clone();
    let feed = Feed::new(first, move || of.ask(ask.clone()));
    if matches!(of, ValuesOwner::Noderole(_)) {
        let on_events = move |events: &[Event]| {
            let moves = |event: &Event| {
                matches!(event, Event::Step { .. } | Event::Blueprint { .. } | Event::Reset)
            };
            if events.iter().any(moves) {
                feed.soon();
            }
        };
        use_live().subscribe(
            vec![Topic::Deployment(deployment), Topic::Blueprints],
            NOW,
            on_events,
        );
    }
    let page = Memo::new(move |_| feed.value().read().page.clone());
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <div class="card">{move || table(of, &query, page.get())}</div>
        {surroundings.map(surroundings_view)}
    }
    .into_any()
}

/// Two views that are easily confused: the values that a run gets from others, and the values that
/// this noderole sets for others.
fn tabs(id: NoderoleId, query: &ValuesQuery) -> impl IntoView + use<> {
    let link = |own: bool, word: &'static str| {
        let address =
            address(ValuesOwner::Noderole(id), &ValuesQuery { own, after: None, ..query.clone() });
        let current = (query.own == own).then_some("page");
        view! {
            <a class="button small" class:quiet=current.is_none() href=address aria-current=current>
                {word}
            </a>
        }
    };
    view! {
        <nav class="filters" aria-label="Values">
            {link(false, "Input of the next run")}
            {link(true, "Values of this noderole")}
        </nav>
    }
}

fn table(of: ValuesOwner, query: &ValuesQuery, page: ValuePage) -> AnyView {
    if page.values.is_empty() {
        let title = if page.all == 0 { "No data" } else { "No matching values" };
        return view! {
            <Empty icon=Icon::Search title>
                <p>
                    "Values come from roles, deployments, edits of a noderole and outputs of runs."
                </p>
            </Empty>
        }
        .into_any();
    }
    let count = match page.matching == page.all {
        true => many(page.all, "value"),
        false => format!("{} of {}", page.matching, many(page.all, "value")),
    };
    let next =
        page.next.map(|next| address(of, &ValuesQuery { after: Some(next), ..query.clone() }));
    let first =
        query.after.is_some().then(|| address(of, &ValuesQuery { after: None, ..query.clone() }));
    view! {
        <div class="table-scroll">
            <table class="table responsive values">
                <thead>
                    <tr>
                        <th scope="col">"Path"</th> <th scope="col">"Value"</th>
                        <th scope="col">"From"</th>
                    </tr>
                </thead>
                <tbody>{page.values.into_iter().map(row).collect_view()}</tbody>
            </table>
        </div>
        <nav class="pager" aria-label="Pages of the list">
            {first.map(|first| view! {
                <a class="button small" href=first>{icon(Icon::Up)} "First"</a>
            })}
            <span class="grow">{count}</span>
            {next.map(|next| view! {
                <a class="button small" href=next>"More" {icon(Icon::Right)}</a>
            })}
        </nav>
    }
    .into_any()
}

fn row(value: ValueView) -> impl IntoView {
    let source = match value.noderole {
        Some(id) => view! { <a href=addresses::noderole(id)>{value.source}</a> }.into_any(),
        None => view! { <span>{value.source}</span> }.into_any(),
    };
    view! {
        <tr>
            <td data-label="Path"><code>{value.path}</code></td>
            <td data-label="Value"><code>{value.value}</code></td>
            <td data-label="From">
                <div>
                    {source}
                    {value.run.map(|run| view! {
                        <div class="muted">
                            "output of " <a href=addresses::run(run)>"run " {run.0}</a>
                        </div>
                    })}
                    {value.edit.map(set_by)}
                </div>
            </td>
        </tr>
    }
}

fn set_by(edit: SetBy) -> impl IntoView {
    view! {
        <div class="muted">
            {format!("set by {}, ", edit.by)} <TimeText at=edit.at/>
            {format!(", proposal {}, blueprint {}", edit.proposal, edit.blueprint)}
        </div>
    }
}

fn surroundings_view(surroundings: serde_json::Value) -> impl IntoView {
    view! {
        <section class="card" aria-label="Surroundings">
            <details class="fold">
                <summary>
                    {icon(Icon::Right)} "Surroundings"
                    <span class="muted">
                        "its node, stored results and the nodes that it waited for"
                    </span>
                </summary>
                <div class="padded"><DataView value=surroundings/></div>
            </details>
        </section>
    }
    .into_any()
}

/// The input of the noderole's next run, or the values that the noderole itself sets.
#[server(
    name = ReadNoderoleValues,
    prefix = "/call",
    endpoint = "noderole-values",
    input = AsJson,
    output = AsJson
)]
pub async fn noderole_values(id: NoderoleId, query: ValuesQuery) -> ServerResult<ValuesView> {
    let (request, actor) = signed_in()?;
    answer(request.control.noderole_values(&actor, id, &query).await).await
}

/// The input of a run.
#[server(
    name = ReadRunValues,
    prefix = "/call",
    endpoint = "run-values",
    input = AsJson,
    output = AsJson
)]
pub async fn run_values(id: RunId, query: ValuesQuery) -> ServerResult<ValuesView> {
    let (request, actor) = signed_in()?;
    answer(request.control.run_values(&actor, id, &query).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_query_round_trips_through_address() {
        let of = ValuesOwner::Run(RunId(7));
        let query = |filter: &str, after: Option<&str>, own: bool| {
            address(
                of,
                &ValuesQuery { filter: filter.into(), after: after.map(str::to_owned), own },
            )
        };
        assert_eq!(query("", None, false), "/runs/7/data");
        assert_eq!(
            query("a b", Some("/x~1y"), true),
            "/runs/7/data?own=true&filter=a%20b&after=%2Fx~1y"
        );
    }
}
