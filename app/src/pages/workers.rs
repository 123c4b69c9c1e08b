//! Workers: who carries out runs, how far they have joined, and what they hold.

use api::live::Topic;
use api::workers::{Phase, WorkerPage, WorkerSort, WorkerView, WorkersWanted};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::{use_params_map, use_query_map};
use uuid::Uuid;

use crate::calls::oversight as calls;
use crate::clock::Moment;
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::parts::icon::drawn;
use crate::parts::pulse::pulse;
use crate::parts::{Empty, Feed, Icon, ProblemNotice, SameList, icon, load, rows};
use crate::places;

/// The address of a list of workers.
fn address(wanted: &WorkersWanted) -> String {
    let alive = wanted.alive.map(|alive| format!("alive={alive}"));
    let phase = wanted.phase.map(|phase| format!("phase={}", phase.as_str()));
    let name = (!wanted.name.is_empty()).then(|| format!("name={}", places::encoded(&wanted.name)));
    let sort = (!wanted.sort.is_usual()).then(|| format!("sort={}", wanted.sort.as_str()));
    let before = wanted.before.map(|before| format!("before={before}"));
    let query: Vec<String> = [name, alive, phase, sort, before].into_iter().flatten().collect();
    match query.is_empty() {
        true => places::WORKERS.into(),
        false => format!("{}?{}", places::WORKERS, query.join("&")),
    }
}

/// What an address asks for. What it asks for and there is not is left out.
fn wanted(get: impl Fn(&str) -> Option<String>) -> WorkersWanted {
    WorkersWanted {
        name: get("name").unwrap_or_default(),
        alive: get("alive").and_then(|word| word.parse().ok()),
        phase: get("phase").and_then(|word| Phase::from_word(&word)),
        sort: get("sort").and_then(|word| WorkerSort::from_word(&word)).unwrap_or_default(),
        before: get("before").and_then(|id| id.parse().ok()),
    }
}

/// Colour, shape and word of how far a worker has joined.
fn phase_look(phase: Phase) -> (&'static str, Icon, &'static str) {
    match phase {
        Phase::None => ("blocked", Icon::Leave, "left"),
        Phase::Welcomed => ("todo", Icon::Todo, "welcomed"),
        Phase::Integrated => ("todo", Icon::Todo, "integrated"),
        Phase::Finalized => ("todo", Icon::Todo, "finalized"),
        Phase::Confirmed => ("active", Icon::Active, "confirmed"),
        Phase::Nack => ("error", Icon::Error, "refused"),
    }
}

/// Whether a worker is heard, where that means something.
fn life_look(worker: &WorkerView) -> Option<(&'static str, Icon, &'static str)> {
    match (worker.alive, worker.phase) {
        (true, _) => Some(("active", Icon::Dot, "alive")),
        (false, Phase::Confirmed) => Some(("error", Icon::Lost, "not heard")),
        (false, _) => None,
    }
}

fn pill((colour, shape, word): (&'static str, Icon, &'static str)) -> impl IntoView {
    view! { <span class="pill" data-state=colour>{drawn(shape, "icon")} {word}</span> }.into_any()
}

/// The runs that a worker holds, each a link, and how many more there are.
fn runs(worker: &WorkerView) -> impl IntoView + use<> {
    let links = worker.runs.iter().map(|run| view! { <a href=places::run(*run)>"run " {run.0}</a> " " });
    let beyond = worker.held - i64::try_from(worker.runs.len()).unwrap_or(i64::MAX);
    let held = format!("{} of {}", worker.held, worker.capacity);
    view! {
        <div>
            <span class="num">{held}</span>
            <div class="links">
                {links.collect_view()}
                {(beyond > 0).then(|| view! { <span class="muted">{format!("and {beyond} more")}</span> })}
            </div>
        </div>
    }
    .into_any()
}

/// The list of workers.
#[component]
pub fn Workers() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        wanted(|name| query.get(name))
    });
    let found = Resource::new(move || wanted.get(), calls::workers);
    let alive = move |word: &'static str| wanted.read().alive.map(|a| a.to_string()).unwrap_or_default() == word;
    let phases = move || {
        let option = |phase: Phase| {
            let chosen = move || wanted.read().phase == Some(phase);
            view! { <option value=phase.as_str() selected=chosen>{phase_look(phase).2}</option> }
        };
        Phase::ALL.map(option).collect_view()
    };
    let sorts = move || {
        let option = |(sort, words): (WorkerSort, &'static str)| {
            let chosen = move || wanted.read().sort == sort;
            view! { <option value=sort.as_str() selected=chosen>{words}</option> }
        };
        [(WorkerSort::Started, "Started last"), (WorkerSort::Heard, "Heard last"), (WorkerSort::Name, "Name")]
            .map(option)
            .collect_view()
    };
    view! {
        <Title text="Workers"/>
        <div class="head"><h1>"Workers"</h1></div>
        <Form method="GET" action=places::WORKERS attr:class="filters" attr:role="search">
            <div class="field">
                <label for="worker-name">"Name contains"</label>
                <input class="input" id="worker-name" name="name" autocomplete="off" maxlength="200" value=move || wanted.read().name.clone()/>
            </div>
            <div class="field">
                <label for="worker-alive">"Life"</label>
                <select class="input" id="worker-alive" name="alive">
                    <option value="" selected=move || alive("")>"All"</option>
                    <option value="true" selected=move || alive("true")>"Alive"</option>
                    <option value="false" selected=move || alive("false")>"Not alive"</option>
                </select>
            </div>
            <div class="field">
                <label for="worker-phase">"Joined"</label>
                <select class="input" id="worker-phase" name="phase">
                    <option value="" selected=move || wanted.read().phase.is_none()>"However far"</option>
                    {phases()}
                </select>
            </div>
            <div class="field">
                <label for="worker-sort">"Order"</label>
                <select class="input" id="worker-sort" name="sort">{sorts()}</select>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Show"</button>
        </Form>
        {load(found, move |first| view! { <List first wanted=wanted.get_untracked()/> })}
        <SameList of=api::calls::List::Workers/>
    }
    .into_any()
}

#[component]
fn List(first: WorkerPage, wanted: WorkersWanted) -> impl IntoView {
    let top = WorkersWanted { before: None, ..wanted.clone() };
    let is_filtered = WorkersWanted { sort: WorkerSort::default(), ..top.clone() } != WorkersWanted::default();
    let first_page = wanted.before.map(|_| address(&top));
    let next = first.next.map(|next| address(&WorkersWanted { before: Some(next), ..top }));
    let feed = Feed::new(first, move || calls::workers(wanted.clone()));
    use_live().hear(vec![Topic::Runs], NOW, move |_| feed.eventually());
    pulse(feed);
    let list = Memo::new(move |_| feed.value().read().workers.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let table = move || {
        match (is_empty.get(), is_filtered) {
        (true, true) => view! {
            <Empty icon=Icon::Search title="No worker fits">
                <a class="button" href=places::WORKERS>"All workers"</a>
            </Empty>
        }
        .into_any(),
        (true, false) => view! {
            <Empty icon=Icon::Worker title="No worker yet">
                <p>"A worker carries out the runs of approved changes; without one nothing starts. Start one where the database can be reached:"</p>
                <p><code>"gantry worker"</code></p>
            </Empty>
        }
        .into_any(),
        (false, _) => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Worker"</th>
                        <th scope="col">"State"</th>
                        <th scope="col">"Runs held"</th>
                        <th scope="col">"Jigs"</th>
                        <th scope="col">"Heard"</th>
                        <th scope="col">"Started"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |worker| worker.id, row)}</tbody>
            </table>
        }
        .into_any(),
    }
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {table}
            {(next.is_some() || first_page.is_some()).then(|| view! {
                <nav class="pager" aria-label="Pages of the list">
                    {first_page.map(|first| view! { <a class="button small" href=first>{icon(Icon::Up)} "First page"</a> })}
                    <span class="grow"></span>
                    {next.map(|next| view! { <a class="button small" href=next>"Next" {icon(Icon::Right)}</a> })}
                </nav>
            })}
        </div>
    }
    .into_any()
}

fn row(worker: Memo<WorkerView>) -> impl IntoView {
    let id = worker.read_untracked().id;
    let life = move || life_look(&worker.read()).map(pill);
    view! {
        <tr>
            <td>
                <div>
                    <a class="main" href=places::worker(id)>{move || worker.read().name.clone()}</a>
                    <div class="muted">"on " {move || worker.read().host.clone()} ", Gantry " {move || worker.read().version.clone()}</div>
                </div>
            </td>
            <td data-label="State">
                <span class="buttons">{move || pill(phase_look(worker.read().phase))} {life}</span>
            </td>
            <td data-label="Runs held">{move || runs(&worker.read())}</td>
            <td data-label="Jigs">{move || worker.read().jigs.join(", ")}</td>
            <td data-label="Heard" class="muted">{move || view! { <Moment at=worker.read().heard/> }}</td>
            <td data-label="Started" class="muted">{move || view! { <Moment at=worker.read().started/> }}</td>
        </tr>
    }
    .into_any()
}

/// A worker, by the id in the address.
#[component]
pub fn WorkerPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let worker = Resource::new(move || id.get(), by_text);
    load(worker, |first| view! { <One first/> })
}

async fn by_text(id: String) -> Answer<WorkerView> {
    let id = id.parse::<Uuid>().map_err(|_| missing())?;
    calls::worker(id).await
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found("Workers have ids, and this is none. The list of workers has them all.").into()
}

#[component]
fn One(first: WorkerView) -> impl IntoView {
    let (id, name) = (first.id, first.name.clone());
    let feed = Feed::new(first, move || calls::worker(id));
    use_live().hear(vec![Topic::Runs], NOW, move |_| feed.eventually());
    pulse(feed);
    let worker = feed.value();
    let title = format!("Worker {name}");
    let pid = move || worker.read().pid.map(|pid| format!(", process {pid}"));
    let left = move || {
        let reason = worker.read().reason.clone();
        reason.map(|reason| view! { <dt>"Why it left"</dt> <dd>{reason}</dd> })
    };
    view! {
        <Title text=title.clone()/>
        <div class="head">
            <h1>
                {title}
                {move || pill(phase_look(worker.read().phase))}
                {move || life_look(&worker.read()).map(pill)}
            </h1>
        </div>
        <ProblemNotice problem=feed.problem()/>
        <section class="card" aria-label="About this worker">
            <div class="inside">
                <dl class="facts">
                    <dt>"Runs held"</dt>
                    <dd>{move || runs(&worker.read())}</dd>
                    <dt>"Jigs"</dt>
                    <dd>{move || worker.read().jigs.join(", ")}</dd>
                    <dt>"Runs on"</dt>
                    <dd>{move || worker.read().host.clone()} {pid}</dd>
                    <dt>"Build"</dt>
                    <dd>"Gantry " {move || worker.read().version.clone()}</dd>
                    <dt>"Started"</dt>
                    <dd>{move || view! { <Moment at=worker.read().started/> }}</dd>
                    <dt>"Heard"</dt>
                    <dd>{move || view! { <Moment at=worker.read().heard/> }}</dd>
                    {left}
                    <dt>"Id"</dt>
                    <dd><code>{id.to_string()}</code></dd>
                </dl>
                <p class="muted">"A worker that starts again is another one. What one holds that is not heard any more is ended and tried again by others."</p>
            </div>
        </section>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_its_address() {
        let read = |query: &[(&str, &str)]| {
            wanted(|name| query.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(address(&read(&[])), "/workers");
        let id = Uuid::from_u128(7).to_string();
        let all = [("name", "w 1"), ("alive", "true"), ("phase", "confirmed"), ("sort", "heard"), ("before", &id)];
        assert_eq!(
            address(&read(&all)),
            format!("/workers?name=w%201&alive=true&phase=confirmed&sort=heard&before={id}")
        );
        assert_eq!(address(&read(&[("phase", "x"), ("sort", "x"), ("alive", "perhaps")])), "/workers");
    }
}
