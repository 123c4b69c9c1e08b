//! Runs: every attempt of a step, newest first if nobody asks otherwise.

use api::console::{RunPage, RunSummary};
use api::listing::{RunSort, RunsWanted};
use api::live::Topic;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::calls;
use crate::clock::{Moment, Span};
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::parts::badge::{RUN_STATES, run_look};
use crate::parts::list::{
    Column, Listed, Shown, choice_field, columns, filters, head, hidden, one_of, pager, plain_head, text_field,
};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, RunPill, SameList, load, rows};
use crate::places;

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    state: String,
    deployment: String,
    node: String,
    role: String,
    listed: Listed<RunSort>,
}

impl Asked {
    fn read(query: &ParamsMap) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        let (state, deployment, node, role) = (word("state"), word("deployment"), word("node"), word("role"));
        let listed = Listed::read(places::RUNS, query, "before")
            .asked("state", "state is", &state)
            .asked("deployment", "deployment is", &deployment)
            .asked("node", "node is", &node)
            .asked("role", "role is", &role);
        Self { state, deployment, node, role, listed }
    }

    fn wanted(&self) -> Result<RunsWanted, Failure> {
        let state = one_of("state", &self.state, &RUN_STATES, |state| run_look(state).2)?;
        Ok(RunsWanted {
            state: state.map(|state| run_look(state).2.to_owned()).unwrap_or_default(),
            deployment: self.deployment.clone(),
            node: self.node.clone(),
            role: self.role.clone(),
            sort: self.listed.order()?,
            before: self.listed.place(),
            ..RunsWanted::default()
        })
    }
}

const SORTS: &[(RunSort, &str)] = &[(RunSort::Queued, "queued"), (RunSort::State, "state"), (RunSort::Took, "took")];

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Run,
    State,
    Noderole,
    Deployment,
    Worker,
    Took,
    Queued,
}

impl Column for Part {
    const EVERY: &'static [Self] =
        &[Self::Run, Self::State, Self::Noderole, Self::Deployment, Self::Worker, Self::Took, Self::Queued];

    fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::State => "state",
            Self::Noderole => "noderole",
            Self::Deployment => "deployment",
            Self::Worker => "worker",
            Self::Took => "took",
            Self::Queued => "queued",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::State => "State",
            Self::Noderole => "Noderole",
            Self::Deployment => "Deployment",
            Self::Worker => "Worker",
            Self::Took => "Took",
            Self::Queued => "Queued",
        }
    }
}

async fn fetch(asked: Asked) -> Answer<RunPage> {
    calls::runs(asked.wanted()?).await
}

/// The list of runs.
#[component]
pub fn Runs() -> impl IntoView {
    let query = use_query_map();
    let asked = Memo::new(move |_| Asked::read(&query.read()));
    let listed = Memo::new(move |_| asked.read().listed.clone());
    let runs = Resource::new(move || asked.get(), fetch);
    let states = RUN_STATES.map(|state| (run_look(state).2, run_look(state).2));
    let fields = (
        choice_field("run-state", "state", "State", Signal::derive(move || asked.read().state.clone()), states),
        text_field(
            "run-deployment",
            "deployment",
            "Deployment",
            Signal::derive(move || asked.read().deployment.clone()),
        ),
        text_field("run-node", "node", "Node", Signal::derive(move || asked.read().node.clone())),
        text_field("run-role", "role", "Role", Signal::derive(move || asked.read().role.clone())),
    );
    view! {
        <Title text="Runs"/>
        <div class="head"><h1>"Runs"</h1></div>
        {filters(listed, SORTS, fields)}
        {columns::<_, Part>(listed)}
        {load(runs, move |first| view! { <List first asked=asked.get_untracked()/> })}
        <SameList of=api::calls::List::Runs/>
    }
    .into_any()
}

#[component]
fn List(first: RunPage, asked: Asked) -> impl IntoView {
    let listed = asked.listed.clone();
    let feed = Feed::new(first, move || fetch(asked.clone()));
    use_live().hear(vec![Topic::Runs], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().runs.clone());
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let shown = Shown::of(&listed);
    let of = StoredValue::new(listed);
    let table = move || match is_empty.get() {
        true => of.with_value(|listed| hidden(listed, "run", "runs")).unwrap_or_else(|| {
            view! {
                <Empty icon=Icon::Run title="No runs">
                    <p>"Steps run when a change is committed. Here is every attempt, with its log."</p>
                </Empty>
            }
            .into_any()
        }),
        false => view! {
            <table class="table folds">
                <thead><tr>{of.with_value(|listed| heads(listed, shown))}</tr></thead>
                <tbody>{rows(list.into(), |run| run.id, move |run| row(run, shown))}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table} {move || of.with_value(|listed| pager(listed, next.get().as_ref()))}</div>
    }
    .into_any()
}

fn heads(listed: &Listed<RunSort>, shown: Shown<Part>) -> AnyView {
    let one = |part: &Part| match part {
        Part::State => head(listed, RunSort::State, part.label(), false),
        Part::Took => head(listed, RunSort::Took, part.label(), true),
        Part::Queued => head(listed, RunSort::Queued, part.label(), true),
        Part::Run | Part::Noderole | Part::Deployment | Part::Worker => plain_head(part.label()),
    };
    Part::EVERY.iter().filter(|part| shown.has(**part)).map(one).collect_view().into_any()
}

fn row(run: Memo<RunSummary>, shown: Shown<Part>) -> impl IntoView {
    let id = run.read_untracked().id;
    view! {
        <tr>
            <td data-label="Run" class="tight"><a class="main" href=places::run(id)>{id.0}</a></td>
            {shown.has(Part::State).then(|| view! {
                <td data-label="State">{move || view! { <RunPill state=run.read().state/> }}</td>
            })}
            {shown.has(Part::Noderole).then(|| view! {
                <td data-label="Noderole">
                    <div>
                        <a href=move || places::noderole(run.read().noderole)><b>{move || run.read().role.to_string()}</b></a>
                        " on " {move || run.read().fqdn.clone()}
                        {move || run.read().error.clone().map(|error| view! { <div class="fault">{error}</div> })}
                        {move || run.read().cause.clone().map(|cause| view! { <div class="muted">{cause}</div> })}
                    </div>
                </td>
            })}
            {shown.has(Part::Deployment).then(|| view! {
                <td data-label="Deployment">{move || {
                    let name = run.read().deployment.clone();
                    view! { <a href=places::deployment(&name)>{name.to_string()}</a> }
                }}</td>
            })}
            {shown.has(Part::Worker).then(|| view! { <td data-label="Worker">{move || run.read().worker.clone()}</td> })}
            {shown.has(Part::Took).then(|| view! {
                <td data-label="Took" class="number">{move || run.read().started.map(|from| view! { <Span from to=run.read().ended/> })}</td>
            })}
            {shown.has(Part::Queued).then(|| view! {
                <td data-label="Queued" class="muted">{move || view! { <Moment at=run.read().queued/> }}</td>
            })}
        </tr>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[(&str, &str)]) -> Asked {
        let mut query = ParamsMap::new();
        for (name, value) in words {
            query.insert((*name).to_owned(), (*value).to_owned());
        }
        Asked::read(&query)
    }

    #[test]
    fn the_list_is_in_its_address() {
        assert_eq!(asked(&[("state", ""), ("sort", "-queued")]).listed.address(), "/runs");
        let all = asked(&[("state", "failed"), ("node", "n1"), ("sort", "took"), ("before", "took~-5~-7")]);
        assert_eq!(all.listed.address(), "/runs?state=failed&node=n1&sort=took&before=took~-5~-7");
        assert_eq!(all.wanted().unwrap().before.unwrap().as_str(), "took~-5~-7");
    }

    #[test]
    fn a_state_that_there_is_not_is_said() {
        let error = asked(&[("state", "sleeping"), ("node", "n1")]).wanted().unwrap_err();
        assert!(error.0.detail.starts_with("state: there is no \"sleeping\" here. There are: queued"), "{error:?}");
    }
}
