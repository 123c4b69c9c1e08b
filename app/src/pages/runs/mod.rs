//! The list of runs, by default newest first. A run is one attempt of a step.

pub mod pending;
pub mod run;
pub mod values;

use api::calls::List;
use api::live::Topic;
use api::runs::{RunPage, RunSummary};
use api::runs::{RunSort, RunsQuery};
use engine::ids::RunId;
use leptos::prelude::*;
use leptos_meta::Title;

use crate::addresses;
use crate::clock::{Elapsed, TimeText};
use crate::codec::AsJson;
use crate::components::badge::{RUN_STATES, action_pill, run_style};
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{Empty, Icon, RunPill};
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

columns_of!(Part {
    Run "run" "Run",
    State "state" "State",
    Noderole "noderole" "Noderole",
    Deployment "deployment" "Deployment",
    Worker "worker" "Worker",
    Duration "duration" "Duration",
    Queued "queued" "Queued",
});

#[derive(Clone, Copy)]
struct AllRuns;

impl ListPage for AllRuns {
    type Sort = RunSort;
    type Part = Part;
    type Page = RunPage;
    type Key = RunId;

    const ID: &'static str = "run";
    const NAMES: (&'static str, &'static str) = ("run", "runs");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[
        Field::choice("state", "State", "state is", || {
            RUN_STATES.map(|state| (run_style(state).2, run_style(state).2)).to_vec()
        }),
        Field::text("deployment", "Deployment", "deployment is"),
        Field::text("node", "Node", "node is"),
        Field::text("role", "Role", "role is"),
        Field::text("worker", "Worker", "worker is"),
    ];
    const NUMBERS: &'static [Part] = &[Part::Duration];
    const SORTS: &'static [(RunSort, &'static str)] =
        &[(RunSort::Queued, "queued"), (RunSort::State, "state"), (RunSort::Durations, "duration")];
    const TOPICS: &'static [Topic] = &[Topic::Runs];
    const API_LIST: List = List::Runs;

    fn path(self) -> String {
        addresses::RUNS.to_owned()
    }

    async fn fetch(self, address: ListAddress<RunSort>) -> ServerResult<RunPage> {
        let state = address.one_of("state", &RUN_STATES, |state| run_style(state).2)?;
        let (sort, before) = address.page_position()?;
        let query = RunsQuery {
            state: state.map(|state| run_style(state).2.to_owned()).unwrap_or_default(),
            deployment: address.param("deployment"),
            node: address.param("node"),
            role: address.param("role"),
            worker: address.param("worker"),
            sort,
            before,
            ..RunsQuery::default()
        };
        runs(query).await
    }

    fn sorted_by(column: Part) -> Option<(RunSort, bool)> {
        match column {
            Part::State => Some((RunSort::State, false)),
            Part::Duration => Some((RunSort::Durations, true)),
            Part::Queued => Some((RunSort::Queued, true)),
            Part::Run | Part::Noderole | Part::Deployment | Part::Worker => None,
        }
    }

    fn key(run: &RunSummary) -> RunId {
        run.id
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Run title="No runs yet">
                <p>"Commit a change to start runs. Every attempt is listed here with its log."</p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, run: Memo<RunSummary>, with: RowContext<Self>) -> AnyView {
        let id = run.read_untracked().id;
        let noderole = view! {
            <div>
                <a href=move || addresses::noderole(run.read().noderole)>
                    <b>{move || run.read().role.to_string()}</b>
                </a>
                {move || action_pill(&run.read().action)}
                " on " {move || run.read().fqdn.clone()}
                {move || run.read().error.clone().map(|error| view! {
                    <div class="error-text">{error}</div>
                })}
                {move || run.read().cause.clone().map(|cause| view! {
                    <div class="muted">{cause}</div>
                })}
            </div>
        };
        let deployment = move || {
            let name = run.read().deployment.clone();
            view! { <a href=addresses::deployment(&name)>{name.to_string()}</a> }
        };
        let took =
            move || run.read().started.map(|from| view! { <Elapsed from to=run.read().ended/> });
        view! {
            <tr>
                <td data-label="Run" class="tight">
                    <a class="main" href=addresses::run(id)>{id.0}</a>
                </td>
                {with.cell(Part::State, "", move || view! { <RunPill state=run.read().state/> })}
                {with.cell(Part::Noderole, "", noderole)}
                {with.cell(Part::Deployment, "", deployment)}
                {with.cell(Part::Worker, "", move || run.read().worker.clone())}
                {with.cell(Part::Duration, "", took)}
                {with.cell(Part::Queued, "muted", move || view! {
                    <TimeText at=run.read().queued/>
                })}
            </tr>
        }
        .into_any()
    }
}

#[component]
pub fn Runs() -> impl IntoView {
    let list = ListOf::new(AllRuns);
    view! {
        <Title text="Runs"/>
        <div class="head"><h1>"Runs"</h1></div>
        {list.view()}
    }
    .into_any()
}

#[server(name = ReadRuns, prefix = "/call", endpoint = "runs", input = AsJson, output = AsJson)]
pub async fn runs(query: RunsQuery) -> ServerResult<RunPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_runs(&actor, &query).await).await
}
