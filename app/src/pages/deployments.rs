//! All deployments, in the order of their tree.

use api::console::DeploymentSummary;
use api::listing::{DeploymentSort, DeploymentState, DeploymentsWanted, Order};
use api::live::{PAGE_TOPICS, Topic};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::calls;
use crate::failure::{Answer, Failure};
use crate::live::use_live;
use crate::parts::list::{
    Column, Listed, Shown, choice_field, columns, filters, head, hidden, one_of, plain_head, text_field,
};
use crate::parts::{Counts, Empty, Feed, Icon, ProblemNotice, SameList, icon, load, rows};
use crate::places;

/// Levels that are indented; of those below, the level is said.
pub(super) const INDENTED: u32 = 8;

/// What a list of deployments is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    filter: String,
    state: String,
    pub(super) listed: Listed<DeploymentSort>,
}

impl Asked {
    /// The list at a path.
    pub(super) fn read(path: &'static str, query: &ParamsMap) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        let (filter, state) = (word("filter"), word("state"));
        let listed = Listed::read(path, query, "after")
            .asked("filter", "name contains", &filter)
            .asked("state", "state is", &state);
        Self { filter, state, listed }
    }

    fn wanted(&self) -> Result<DeploymentsWanted, Failure> {
        Ok(DeploymentsWanted {
            filter: self.filter.clone(),
            state: one_of("state", &self.state, &DeploymentState::EVERY, DeploymentState::as_str)?,
            sort: self.listed.order()?,
        })
    }

    /// Whether what stands above a deployment in the tree stands above it in the list.
    pub(super) fn is_tree(&self) -> bool {
        !self.listed.is_narrow() && self.listed.order().is_ok_and(Order::is_usual)
    }
}

pub(super) const SORTS: &[(DeploymentSort, &str)] = &[
    (DeploymentSort::Tree, "tree"),
    (DeploymentSort::Name, "name"),
    (DeploymentSort::Errors, "errors"),
    (DeploymentSort::Nodes, "nodes"),
    (DeploymentSort::Target, "last changed"),
];

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Deployment,
    Steps,
    Nodes,
    UnderWay,
    Changed,
}

impl Column for Part {
    const EVERY: &'static [Self] = &[Self::Deployment, Self::Steps, Self::Nodes, Self::UnderWay, Self::Changed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::Steps => "steps",
            Self::Nodes => "nodes",
            Self::UnderWay => "under_way",
            Self::Changed => "changed",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::Steps => "Steps",
            Self::Nodes => "Nodes",
            Self::UnderWay => "Under way",
            Self::Changed => "Changed by",
        }
    }
}

pub(super) async fn fetch(asked: Asked) -> Answer<Vec<DeploymentSummary>> {
    calls::find_deployments(asked.wanted()?).await
}

/// What a form asks of a list of deployments.
pub(super) fn fields(asked: Memo<Asked>) -> impl IntoView {
    let states = [
        ("held", "held"),
        ("proposed", "has a proposal"),
        ("review", "in review"),
        ("error", "with errors"),
        ("working", "working"),
        ("idle", "idle"),
    ];
    let (filter, state) =
        (Signal::derive(move || asked.read().filter.clone()), Signal::derive(move || asked.read().state.clone()));
    (
        text_field("deployment-filter", "filter", "Name contains", filter),
        choice_field("deployment-state", "state", "State", state, states),
    )
}

/// The list of deployments.
#[component]
pub fn Deployments() -> impl IntoView {
    let query = use_query_map();
    let asked = Memo::new(move |_| Asked::read(places::DEPLOYMENTS, &query.read()));
    let listed = Memo::new(move |_| asked.read().listed.clone());
    let deployments = Resource::new(move || asked.get(), fetch);
    view! {
        <Title text="Deployments"/>
        <div class="head"><h1>"Deployments"</h1></div>
        {filters(listed, SORTS, fields(asked))}
        {columns::<_, Part>(listed)}
        {load(deployments, move |first| view! { <List first asked=asked.get_untracked()/> })}
        <SameList of=api::calls::List::Deployments/>
    }
    .into_any()
}

#[component]
fn List(first: Vec<DeploymentSummary>, asked: Asked) -> impl IntoView {
    let own = first.iter().map(|deployment| Topic::Deployment(deployment.id));
    // The frame listens too, and a stream has only so many topics.
    let topics = [Topic::Targets, Topic::Reviews].into_iter().chain(own).take(PAGE_TOPICS - 2).collect();
    let (listed, is_tree) = (asked.listed.clone(), asked.is_tree());
    let feed = Feed::new(first, move || fetch(asked.clone()));
    use_live().hear(topics, crate::live::NOW, move |_| feed.eventually());
    let list = feed.value();
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let shown = Shown::of(&listed);
    let of = StoredValue::new(listed);
    let table = move || {
        match is_empty.get() {
        true => of.with_value(|listed| hidden(listed, "deployment", "deployments")).unwrap_or_else(|| {
            view! {
                <Empty icon=Icon::Deployments title="No deployments yet">
                    <p>"The first one, system, is there as soon as the first target is."</p>
                </Empty>
            }
            .into_any()
        }),
        false => view! {
            <table class="table folds deployments">
                <thead><tr>{of.with_value(|listed| heads(listed, shown))}</tr></thead>
                <tbody>{rows(list.into(), |deployment| deployment.id, move |deployment| row(deployment, shown, is_tree))}</tbody>
            </table>
        }
        .into_any(),
    }
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table}</div>
    }
    .into_any()
}

fn heads(listed: &Listed<DeploymentSort>, shown: Shown<Part>) -> AnyView {
    let one = |part: &Part| match part {
        Part::Deployment => head(listed, DeploymentSort::Name, part.label(), false),
        Part::Steps => head(listed, DeploymentSort::Errors, part.label(), true),
        Part::Nodes => head(listed, DeploymentSort::Nodes, part.label(), true),
        Part::UnderWay => plain_head(part.label()),
        Part::Changed => head(listed, DeploymentSort::Target, part.label(), true),
    };
    Part::EVERY.iter().filter(|part| shown.has(**part)).map(one).collect_view().into_any()
}

/// How deep a deployment stands that is indented no further than those above it.
pub(super) fn deep(depth: u32) -> Option<impl IntoView> {
    (depth > INDENTED).then(|| view! { " " <small class="muted">"level " {depth}</small> })
}

fn row(deployment: Memo<DeploymentSummary>, shown: Shown<Part>, is_tree: bool) -> impl IntoView {
    let board = move || places::deployment(&deployment.read().name);
    let depth = move || if is_tree { deployment.read().depth } else { 0 };
    let under_way = move || {
        let (proposal, submission) = deployment.with(|found| (found.proposal, found.submission));
        let proposed = proposal
            .map(|_| view! { <a class="pill" data-state="proposed" href=board>{icon(Icon::Proposed)} "PROPOSED"</a> });
        let submitted = submission.map(|id| {
            view! { <a class="pill" data-state="warn" href=places::review(id)>{icon(Icon::Review)} "in review " {id.0}</a> }
        });
        (proposed, submitted)
    };
    view! {
        <tr>
            <td class="name" data-depth=move || depth().min(INDENTED).to_string()>
                <span>
                    <a class="main" href=board>{move || deployment.read().name.to_string()}</a>
                    {move || deep(depth())}
                </span>
            </td>
            {shown.has(Part::Steps).then(|| view! {
                <td data-label="Steps">{move || view! { <Counts counts=deployment.read().steps/> }}</td>
            })}
            {shown.has(Part::Nodes).then(|| view! { <td data-label="Nodes" class="number">{move || deployment.read().nodes}</td> })}
            {shown.has(Part::UnderWay).then(|| view! { <td data-label="Under way"><span class="buttons">{under_way}</span></td> })}
            {shown.has(Part::Changed).then(|| view! {
                <td data-label="Changed by" class="number muted">"target " {move || deployment.read().target.0}</td>
            })}
        </tr>
    }
    .into_any()
}
