//! Workers: the phase of their join, the runs that they lease, their drains, and the background
//! tasks.

mod background_tasks;

use api::Allowed;
use api::JoinPhase;
use api::calls::List;
use api::live::Topic;
use api::workers::WorkerSort;
use api::workers::{WorkerPage, WorkerView, WorkersQuery};
use engine::counting::many;
use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;
use uuid::Uuid;

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::action::{on_success, problem_of};
use crate::components::icon::drawn;
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::poll_while_visible::poll_while_visible;
use crate::components::{
    Empty, EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, load_one,
    reset_on_success,
};
use crate::failure::{Failure, ServerResult};
use crate::live::{NOW, use_live};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

columns_of!(Part {
    Worker "worker" "Worker",
    State "state" "State",
    Runs "runs" "Leased runs",
    Jigs "jigs" "Jigs",
    Heartbeat "heartbeat" "Last contact",
    Started "started" "Started",
});

/// The color, shape and word of a worker's join phase.
fn phase_style(phase: JoinPhase) -> (&'static str, Icon, &'static str) {
    match phase {
        JoinPhase::None => ("blocked", Icon::Leave, "left"),
        JoinPhase::Welcomed => ("todo", Icon::Todo, "welcomed"),
        JoinPhase::Integrated => ("todo", Icon::Todo, "integrated"),
        JoinPhase::Finalized => ("todo", Icon::Todo, "finalized"),
        JoinPhase::Confirmed => ("active", Icon::Active, "confirmed"),
        JoinPhase::Nack => ("error", Icon::Error, "refused"),
    }
}

/// Whether a worker responds. `None` if its phase makes that irrelevant.
fn alive_style(worker: &WorkerView) -> Option<(&'static str, Icon, &'static str)> {
    match (worker.alive, worker.phase) {
        (true, _) => Some(("active", Icon::Dot, "alive")),
        (false, JoinPhase::Confirmed) => Some(("error", Icon::Lost, "no contact")),
        (false, _) => None,
    }
}

/// The state of a worker's drain, while the worker runs.
fn drain_style(worker: &WorkerView) -> Option<(&'static str, Icon, String)> {
    if !worker.alive {
        return None;
    }
    let drain = worker.drain.as_ref()?;
    Some(match drain.drained {
        true => ("warn", Icon::Check, "drained".to_owned()),
        false => ("warn", Icon::Paused, format!("draining, {}", many(worker.leased, "run"))),
    })
}

fn drain_pill(worker: &WorkerView) -> impl IntoView + use<> {
    drain_style(worker).map(|(color, shape, word)| {
        view! { <span class="pill" data-state=color>{drawn(shape, "icon")} {word}</span> }
            .into_any()
    })
}

fn pill((color, shape, word): (&'static str, Icon, &'static str)) -> impl IntoView {
    view! { <span class="pill" data-state=color>{drawn(shape, "icon")} {word}</span> }.into_any()
}

/// The leased runs as links, with the number of further ones, and a link to all runs of the worker.
fn runs(worker: &WorkerView) -> impl IntoView + use<> {
    let links =
        worker.runs.iter().map(|run| view! { <a href=addresses::run(*run)>"run " {run.0}</a> " " });
    let has_more = worker.leased - i64::try_from(worker.runs.len()).unwrap_or(i64::MAX);
    let leases = format!("{} of {}", worker.leased, worker.capacity);
    view! {
        <div>
            <span class="num">{leases}</span>
            <div class="links">
                {links.collect_view()}
                {(has_more > 0).then(|| view! {
                    <span class="muted">{format!("and {has_more} more")}</span> " "
                })}
                <a
                    href=addresses::runs_of_worker(&worker.name)
                    aria-label=format!("all runs of {}", worker.name)
                >
                    "all runs"
                </a>
            </div>
        </div>
    }
    .into_any()
}

#[derive(Clone, Copy)]
struct AllWorkers;

impl ListPage for AllWorkers {
    type Sort = WorkerSort;
    type Part = Part;
    type Page = WorkerPage;
    type Key = Uuid;

    const ID: &'static str = "worker";
    const NAMES: (&'static str, &'static str) = ("worker", "workers");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[
        Field::text("filter", "Name contains", "name contains"),
        Field::choice("alive", "State", "alive is", || {
            vec![("true", "alive"), ("false", "not alive")]
        }),
        Field::choice("phase", "Join phase", "join phase is", || {
            JoinPhase::ALL.map(|phase| (phase.as_str(), phase_style(phase).2)).to_vec()
        }),
    ];
    const SORTS: &'static [(WorkerSort, &'static str)] = &[
        (WorkerSort::Started, "started"),
        (WorkerSort::Heartbeat, "last contact"),
        (WorkerSort::Name, "name"),
    ];
    const API_LIST: List = List::Workers;

    fn path(self) -> String {
        addresses::WORKERS.to_owned()
    }

    async fn fetch(self, address: ListAddress<WorkerSort>) -> ServerResult<Self::Page> {
        let alive = address
            .one_of("alive", &[true, false], |alive| if alive { "true" } else { "false" })?;
        let phase = address.one_of("phase", &JoinPhase::ALL, JoinPhase::as_str)?;
        let (sort, before) = address.page_position()?;
        workers(WorkersQuery {
            alive,
            draining: None,
            phase,
            filter: address.param("filter"),
            sort,
            limit: None,
            before,
        })
        .await
    }

    fn sorted_by(column: Part) -> Option<(WorkerSort, bool)> {
        match column {
            Part::Worker => Some((WorkerSort::Name, false)),
            Part::Heartbeat => Some((WorkerSort::Heartbeat, true)),
            Part::Started => Some((WorkerSort::Started, true)),
            Part::State | Part::Runs | Part::Jigs => None,
        }
    }

    fn key(worker: &WorkerView) -> Uuid {
        worker.id
    }

    fn follow(self, feed: Feed<Self::Page>) {
        use_live().subscribe(vec![Topic::Runs], NOW, move |_| feed.eventually());
        poll_while_visible(feed);
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Worker title="No workers yet">
                <p>
                    "No run starts without a worker. Start one on a machine that can reach the \
                     database:"
                </p>
                <p><code>"gantry worker"</code></p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, worker: Memo<WorkerView>, with: RowContext<Self>) -> AnyView {
        let id = worker.read_untracked().id;
        let life = move || alive_style(&worker.read()).map(pill);
        let drain = move || drain_pill(&worker.read());
        let state = view! {
            <span class="buttons">
                {move || pill(phase_style(worker.read().phase))} {life} {drain}
            </span>
        };
        view! {
            <tr>
                <td>
                    <div>
                        <a class="main" href=addresses::worker(id)>
                            {move || worker.read().name.clone()}
                        </a>
                        <div class="muted">
                            "on " {move || worker.read().host.clone()} ", Gantry "
                            {move || worker.read().version.clone()}
                        </div>
                    </div>
                </td>
                {with.cell(Part::State, "", state)}
                {with.cell(Part::Runs, "", move || runs(&worker.read()))}
                {with.cell(Part::Jigs, "", move || worker.read().jigs.join(", "))}
                {with.cell(Part::Heartbeat, "muted", move || view! {
                    <TimeText at=worker.read().last_heartbeat/>
                })}
                {with.cell(Part::Started, "muted", move || view! {
                    <TimeText at=worker.read().started/>
                })}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn Workers() -> impl IntoView {
    let list = ListOf::new(AllWorkers);
    view! {
        <Title text="Workers"/>
        <div class="head"><h1>"Workers"</h1></div>
        {list.view()}
        <background_tasks::Section/>
    }
    .into_any()
}

/// A worker, by the id in the address.
#[component]
pub fn WorkerPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let worker = Resource::new(move || id.get(), by_text);
    load_one(worker, (addresses::WORKERS, "All workers"), |first| view! { <One first/> })
}

async fn by_text(id: String) -> ServerResult<WorkerView> {
    let id = id.parse::<Uuid>().map_err(|_| missing())?;
    worker(id).await
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found("This is not the ID of a worker. Select a worker in the list.").into()
}

#[component]
fn One(first: WorkerView) -> impl IntoView {
    let (id, name) = (first.id, first.name.clone());
    let feed = Feed::new(first, move || worker(id));
    use_live().subscribe(vec![Topic::Runs], NOW, move |_| feed.eventually());
    poll_while_visible(feed);
    let worker = feed.value();
    let title = format!("Worker {name}");
    let pid = move || worker.read().pid.map(|pid| format!(", process {pid}"));
    let left = move || {
        let reason = worker.read().reason.clone();
        reason.map(|reason| view! { <dt>"Reason for ending"</dt> <dd>{reason}</dd> })
    };
    let drain = move || {
        let worker = worker.read();
        let drain = worker.drain.clone().filter(|_| worker.alive)?;
        let left = match drain.drained {
            true => "It has no runs left, so you can stop it.".to_owned(),
            false => {
                format!("It finishes {} and takes no further ones.", many(worker.leased, "run"))
            }
        };
        let text = format!("Draining, set by {}: {}. {left}", drain.by, drain.reason);
        Some(view! {
            <li>{text} " " <small class="muted">"Since " <TimeText at=drain.since/></small></li>
        })
    };
    view! {
        <Title text=title.clone()/>
        <div class="head">
            <h1>
                {title}
                {move || pill(phase_style(worker.read().phase))}
                {move || alive_style(&worker.read()).map(pill)}
                {move || drain_pill(&worker.read())}
            </h1>
        </div>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <section class="card" aria-label="About this worker">
            <div class="padded">
                <ul class="reason-list" aria-label="Reasons">{drain}</ul>
                <DrainForm feed/>
                <dl class="facts">
                    <dt>"Leased runs"</dt>
                    <dd>{move || runs(&worker.read())}</dd>
                    <dt>"Jigs"</dt>
                    <dd>{move || worker.read().jigs.join(", ")}</dd>
                    <dt>"Host"</dt>
                    <dd>{move || worker.read().host.clone()} {pid}</dd>
                    <dt>"Version"</dt>
                    <dd>"Gantry " {move || worker.read().version.clone()}</dd>
                    <dt>"Started"</dt>
                    <dd>{move || view! { <TimeText at=worker.read().started/> }}</dd>
                    <dt>"Last contact"</dt>
                    <dd>{move || view! { <TimeText at=worker.read().last_heartbeat/> }}</dd>
                    {left}
                    <dt>"ID"</dt>
                    <dd><code>{id.to_string()}</code></dd>
                </dl>
                <p class="muted">
                    "A worker that restarts gets a new ID. When a lease expires, the run ends as \
                     lost."
                </p>
            </div>
        </section>
    }
    .into_any()
}

/// Starts or ends the drain of the worker.
#[component]
fn DrainForm(feed: Feed<WorkerView>) -> impl IntoView {
    let worker = feed.value();
    let set = ServerAction::<DrainWorker>::new();
    on_success(set, move |()| feed.now());
    let is_draining = Memo::new(move |_| worker.read().drain.is_some());
    let may = Memo::new(move |_| worker.read().may_drain.clone());
    let id = worker.read_untracked().id;
    move || match may.get() {
        Allowed::No { reason } => view! { <p class="muted">{reason}</p> }.into_any(),
        Allowed::Yes => {
            let (title, hint, label, shape, value) = match is_draining.get() {
                true => (
                    "Reason for resuming",
                    "The worker takes runs again.",
                    "Resume worker",
                    Icon::Run,
                    "false",
                ),
                false => (
                    "Reason for the drain",
                    "The worker finishes its runs and takes no further ones.",
                    "Drain worker",
                    Icon::Paused,
                    "true",
                ),
            };
            let reason = reset_on_success(set, |refused| {
                view! {
                    <input
                        class="input"
                        id="drain-reason"
                        name="reason" required
                        maxlength=MAX_REASON
                        autocomplete="off"
                        placeholder="Reason"
                        value=refused.typed("reason")
                    />
                }
                .into_any()
            });
            view! {
                <ActionForm action=set attr:class="form">
                    <input type="hidden" name="worker" value=id.to_string()/>
                    <input type="hidden" name="drain" value=value/>
                    <div class="field">
                        <label for="drain-reason">{title}</label>
                        {reason}
                        <span class="hint">{hint}</span>
                    </div>
                    <ProblemNotice problem=problem_of(set)/>
                    <EquivalentCommands of=move |typed: FormValues| {
                        vec![api::calls::drain(id, !is_draining.get(), &typed.or("reason", "WHY"))]
                    }/>
                    <div class="buttons">
                        <button class="button" type="submit" disabled=move || set.pending().get()>
                            {icon(shape)} {label}
                        </button>
                    </div>
                </ActionForm>
            }
            .into_any()
        }
    }
}

#[server(
    name = ReadWorkers,
    prefix = "/call",
    endpoint = "workers",
    input = AsJson,
    output = AsJson
)]
pub async fn workers(query: WorkersQuery) -> ServerResult<WorkerPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.workers(&actor, &query).await).await
}

#[server(name = ReadWorker, prefix = "/call", endpoint = "worker", input = AsJson, output = AsJson)]
pub async fn worker(id: Uuid) -> ServerResult<WorkerView> {
    let (request, actor) = signed_in()?;
    answer(request.control.worker(&actor, id).await).await
}

/// Starts or ends the drain of a worker.
#[server(name = DrainWorker, prefix = "/call", endpoint = "drain-worker", output = AsJson)]
pub async fn drain_worker(worker: Uuid, drain: bool, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.drain(&actor, &worker.to_string(), drain, reason).await).await
}
