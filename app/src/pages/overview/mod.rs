//! The overview: is everything well? The server counts everything in one request. Each number links
//! to the list of counted items.

mod first_steps;
mod hours;

use api::blueprints::{BlueprintKind, BlueprintSummary, Progress};
use api::deployments::DeploymentState;
use api::live::Topic;
use api::nodes::NodeState;
use api::overview::{Overview, WorkerTally};
use api::pending::PendingGroup;
use api::reviews::ReviewFilter;
use api::rollout::Rollout;
use api::runs::{StateCounts, StepState};
use engine::anneal::PendingReason;
use engine::counting::{either, many};
use engine::ids::actor_name;
use leptos::prelude::*;
use leptos_meta::Title;
use serde::{Deserialize, Serialize};

use crate::addresses;
use crate::clock::{Elapsed, TimeText};
use crate::codec::AsJson;
use crate::components::badge::StateBar;
use crate::components::poll_while_visible::poll_while_visible;
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, load, mark, rows,
};
use crate::failure::ServerResult;
use crate::live::{NOW, use_live};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};
use first_steps::FirstSteps;
use hours::Hours;

/// The maximum number of listed pending reasons.
const MAX_REASONS: usize = 6;

#[component]
pub fn OverviewPage() -> impl IntoView {
    let overview = Resource::new(|| (), |()| overview());
    view! {
        <Title text="Overview"/>
        {load(overview, |first| view! { <Loaded first/> })}
    }
    .into_any()
}

#[component]
fn Loaded(first: OverviewView) -> impl IntoView {
    let feed = Feed::new(first, overview);
    let topics = vec![Topic::Runs, Topic::Nodes, Topic::Reviews, Topic::Blueprints];
    use_live().subscribe(topics, NOW, move |_| feed.eventually());
    poll_while_visible(feed);
    let overview = Memo::new(move |_| feed.value().read().overview.clone());
    let first_steps = Memo::new(move |_| feed.value().read().overview.first_steps.clone());
    let hidden = Memo::new(move |_| feed.value().read().first_steps_hidden);
    let is_new = Memo::new(move |_| is_new(&overview.read()));
    view! {
        <div class="head">
            <h1>"Overview" <Verdict overview/></h1>
        </div>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <div class="stack wide">
            {move || is_new.get().then(begin)}
            <FirstSteps steps=first_steps hidden changed=Callback::new(move |()| feed.now())/>
            <Rollouts overview/>
            <Steps overview/>
            <div class="overview">
                <Stuck overview/>
                <Reviews overview/>
                <SystemStatus overview/>
                <Commits overview/>
            </div>
            <EquivalentCommands of=move |_: FormValues| vec![api::overview::show_call()]/>
        </div>
    }
    .into_any()
}

/// Whether there are neither nodes nor steps yet.
fn is_new(overview: &Overview) -> bool {
    overview.nodes.all == 0 && overview.steps == StateCounts::default()
}

/// The first steps for an empty system.
fn begin() -> AnyView {
    view! {
        <section class="card" aria-label="Get started">
            <header><h2>"Get started"</h2></header>
            <ol class="padded numbered">
                <li>
                    <a class="main" href=addresses::NODES>"Add a node"</a>
                    ": a machine that workers reach over SSH, or a folder on a worker's machine."
                </li>
                <li>
                    <a class="main" href=addresses::CATALOG>"Import a barclamp"</a>
                    ": a package of roles with their scripts."
                </li>
                <li>
                    <a class="main" href=addresses::DEPLOYMENTS>"Propose a change"</a>
                    ": bind a role to the node. After another person approves it and the review is \
                     committed, it runs."
                </li>
            </ol>
        </section>
    }
    .into_any()
}

/// The problems, each in a few words.
fn problems(overview: &Overview) -> Vec<String> {
    let some = |n: i64, one: &str, many: &str| match n {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    };
    let mut problems = Vec::new();
    problems.extend((!overview.enabled).then(|| "execution is off".to_owned()));
    problems.extend(match overview.workers {
        WorkerTally { alive: 0, .. } => Some("no worker is alive".to_owned()),
        WorkerTally { capacity: 0, .. } => Some("all workers are draining".to_owned()),
        WorkerTally { .. } => None,
    });
    problems.extend(some(overview.steps.error, "step failed", "steps failed"));
    problems.extend(some(
        overview.steps.stale,
        "step has changed input",
        "steps have changed input",
    ));
    problems.extend(some(
        overview.steps.unchecked,
        "step has a check that does not pass",
        "steps have a check that does not pass",
    ));
    problems.extend(some(overview.nodes.dead, "node is dead", "nodes are dead"));
    problems.extend(some(
        overview.deployments.on_hold,
        "deployment is on hold",
        "deployments are on hold",
    ));
    problems
}

/// The rollouts that are under way, in a few words.
fn in_progress(overview: &Overview) -> Vec<String> {
    let moving =
        overview.rollouts.iter().filter(|rollout| rollout.progress == Progress::InProgress);
    moving
        .map(|rollout| format!("blueprint {}: {}", rollout.blueprint.number, rollout.text()))
        .collect()
}

/// The overall state, as shape, color and words.
#[component]
fn Verdict(overview: Memo<Overview>) -> impl IntoView {
    let text = Memo::new(move |_| problems(&overview.read()));
    let is_bad = move || {
        let overview = overview.read();
        overview.steps.error > 0 || overview.nodes.dead > 0 || overview.workers.capacity == 0
    };
    let moving = Memo::new(move |_| in_progress(&overview.read()));
    let style = move || match (text.read().is_empty(), is_bad(), moving.read().is_empty()) {
        (true, _, true) => ("active", Icon::Active),
        (true, _, false) => ("transition", Icon::Transition),
        (false, true, _) => ("error", Icon::Error),
        (false, false, _) => ("warn", Icon::Warn),
    };
    let words = move || {
        let all: Vec<String> = text.read().iter().chain(moving.read().iter()).cloned().collect();
        if all.is_empty() { "no problems".to_owned() } else { all.join(", ") }
    };
    view! {
        <span class="pill wraps" data-state=move || style().0>
            {move || icon(style().1)} {words}
        </span>
    }
    .into_any()
}

/// The blueprints that are not rolled out completely, with links to their pages.
#[component]
fn Rollouts(overview: Memo<Overview>) -> impl IntoView {
    let list = Memo::new(move |_| overview.read().rollouts.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let row = |rollout: Memo<Rollout>| {
        let blueprint = rollout.read_untracked().blueprint.clone();
        let number = blueprint.number;
        let stuck = move || (rollout.read().progress == Progress::Stuck).then_some(", stuck");
        view! {
            <li>
                <a class="main" href=addresses::blueprint(number)>
                    "Blueprint " {number.0} ": " <bdi>{blueprint.title}</bdi>
                </a>
                {move || view! { <StateBar counts=rollout.read().steps/> }}
                <small class="muted">{move || rollout.read().text()} {stuck}</small>
            </li>
        }
    };
    move || {
        (!is_empty.get()).then(|| {
            view! {
                <section class="card" aria-label="Rollouts">
                    <header><h2>"Rollouts"</h2></header>
                    <ul class="short-lines rollouts">
                        {rows(list.into(), |rollout| rollout.blueprint.number, row)}
                    </ul>
                </section>
            }
        })
    }
}

/// Steps by state, and runs by hour.
#[component]
fn Steps(overview: Memo<Overview>) -> impl IntoView {
    let figure = move |state: StepState, count: fn(&StateCounts) -> i64, place: String| {
        view! {
            <li>
                <a href=place data-state=state.as_str()>
                    {mark(state)}
                    <b class="figure">{move || count(&overview.read().steps)}</b>
                    <span>{state.label()}</span>
                </a>
            </li>
        }
    };
    let hours = Memo::new(move |_| overview.read().hours.clone());
    view! {
        <section class="card" aria-label="Steps">
            <header>
                <h2>"Steps"</h2>
                <a class="muted" href=addresses::BLUEPRINTS>
                    "blueprint " {move || overview.read().blueprint.0}
                </a>
            </header>
            <div class="padded">
                <ul class="figures">
                    {
                        figure(
                            StepState::Error,
                            |c| c.error,
                            addresses::pending_for(PendingReason::Failed.as_str())
                        )
                    }
                    {
                        figure(
                            StepState::Transition,
                            |c| c.transition,
                            format!("{}?state=running", addresses::RUNS)
                        )
                    }
                    {figure(StepState::Todo, |c| c.todo, addresses::PENDING.to_owned())}
                    {figure(StepState::Blocked, |c| c.blocked, addresses::PENDING.to_owned())}
                    {figure(StepState::Active, |c| c.active, addresses::DEPLOYMENTS.to_owned())}
                </ul>
                <Hours hours/>
            </div>
        </section>
    }
    .into_any()
}

/// Pending steps by reason.
#[component]
fn Stuck(overview: Memo<Overview>) -> impl IntoView {
    let all = Memo::new(move |_| {
        overview
            .read()
            .stuck
            .iter()
            .map(|group| PendingGroup { steps: Vec::new(), ..group.clone() })
            .collect::<Vec<_>>()
    });
    let shown =
        Memo::new(move |_| all.read().iter().take(MAX_REASONS).cloned().collect::<Vec<_>>());
    let beyond = move || all.read().len().saturating_sub(MAX_REASONS);
    let row = |group: Memo<PendingGroup>| {
        let number = move || {
            let group = group.read();
            format!("{}{}", group.count.unwrap_or_default(), if group.more { "+" } else { "" })
        };
        let reason = group.read_untracked().reason;
        view! {
            <li>
                <a class="main" href=addresses::pending_for(reason.as_str())>
                    {reason.heading()} <span class="num">{number}</span>
                </a>
                <small class="muted">"resolved by " {reason.frees()}</small>
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Pending steps">
            <header><h2>"Pending steps"</h2></header>
            <ul class="short-lines">
                {rows(shown.into(), |group| group.reason, row)}
                {move || all.read().is_empty().then(|| view! {
                    <li class="muted">"No pending steps."</li>
                })}
                {move || (beyond() > 0).then(|| view! {
                    <li>
                        <a href=addresses::PENDING>
                            "and " {beyond()} {either(beyond(), " more reason", " more reasons")}
                        </a>
                    </li>
                })}
            </ul>
        </section>
    }
    .into_any()
}

/// Reviews that the reader can act on, and all open ones.
#[component]
fn Reviews(overview: Memo<Overview>) -> impl IntoView {
    let mine = format!("{}?involvement={}", addresses::REVIEWS, ReviewFilter::ForMe.as_str());
    let proposed = addresses::deployments_in_state(DeploymentState::Proposed);
    view! {
        <section class="card" aria-label="Reviews">
            <header><h2>"Reviews"</h2></header>
            <ul class="short-lines">
                <li>
                    <a class="main" href=mine>
                        "Waiting for you"
                        <span class="num">{move || overview.read().reviews.to_string()}</span>
                    </a>
                </li>
                <li>
                    <a href=addresses::REVIEWS>
                        "Open reviews"
                        <span class="num">{move || overview.read().open_reviews}</span>
                    </a>
                </li>
                <li>
                    <a href=proposed>
                        "Deployments with an open proposal"
                        <span class="num">{move || overview.read().deployments.proposed}</span>
                    </a>
                </li>
            </ul>
        </section>
    }
    .into_any()
}

/// The execution switch, workers, the queue and nodes.
#[component]
fn SystemStatus(overview: Memo<Overview>) -> impl IntoView {
    let switch = move || match overview.read().enabled {
        true => view! {
            <span class="pill" data-state="active">{icon(Icon::Run)} "on"</span>
        }
        .into_any(),
        false => view! {
            <span class="pill" data-state="warn">
                {icon(Icon::Paused)} "off, no run starts"
            </span>
        }
        .into_any(),
    };
    let oldest = Memo::new(move |_| overview.read().queue.oldest);
    let waits = move || {
        oldest.get().map(
            |from| view! { <span class="muted">", the oldest for " <Elapsed from to=None/></span> },
        )
    };
    let link = |state: &str| format!("{}?state={state}", addresses::RUNS);
    view! {
        <section class="card" aria-label="System status">
            <header><h2>"System status"</h2></header>
            <dl class="facts padded">
                <dt>"Execution"</dt>
                <dd>{switch}</dd>
                <dt>"Workers"</dt>
                <dd>
                    <a href=format!("{}?alive=true", addresses::WORKERS)>
                        <span class="num">{move || overview.read().workers.alive}</span> " alive"
                    </a>
                    ", up to " {move || many(overview.read().workers.capacity, "run")} " at once"
                </dd>
                <dt>"Queue"</dt>
                <dd>
                    <a href=link("queued")>
                        <span class="num">{move || overview.read().queue.queued}</span> " queued"
                    </a>
                    {waits}
                </dd>
                <dt>"Running"</dt>
                <dd>
                    <a href=link("running")>
                        <span class="num">{move || overview.read().queue.running}</span>
                        {move || either(overview.read().queue.running, " run", " runs")}
                    </a>
                </dd>
                <dt>"Nodes"</dt>
                <dd>
                    <a href=addresses::NODES>
                        <span class="num">{move || overview.read().nodes.all}</span> " in total"
                    </a>
                    ", "
                    <a href=addresses::nodes_in_state(NodeState::Dead)>
                        <span class="num">{move || overview.read().nodes.dead}</span> " dead"
                    </a>
                    ", "
                    <a href=addresses::nodes_in_state(NodeState::Maintenance)>
                        <span class="num">{move || overview.read().nodes.maintenance}</span>
                        " in maintenance"
                    </a>
                </dd>
                <dt>"Deployments"</dt>
                <dd>
                    <a href=addresses::DEPLOYMENTS>
                        <span class="num">{move || overview.read().deployments.all}</span>
                        " in total"
                    </a>
                    ", "
                    <a href=addresses::deployments_in_state(DeploymentState::OnHold)>
                        <span class="num">{move || overview.read().deployments.on_hold}</span>
                        " on hold"
                    </a>
                </dd>
            </dl>
        </section>
    }
    .into_any()
}

/// The latest commits.
#[component]
fn Commits(overview: Memo<Overview>) -> impl IntoView {
    let list = Memo::new(move |_| overview.read().commits.clone());
    let row = |target: Memo<BlueprintSummary>| {
        let BlueprintSummary { number, kind, at, by, review, title, deployment, .. } =
            target.get_untracked();
        let place = review.map_or_else(|| addresses::BLUEPRINTS.to_owned(), addresses::review);
        let title = if title.is_empty() { format!("Blueprint {number}") } else { title };
        let by = actor_name(by.as_deref()).to_owned();
        let on =
            deployment.filter(|_| kind == BlueprintKind::Change).map(|name| format!(" on {name}"));
        view! {
            <li>
                <a class="main" href=place><bdi>{title}</bdi></a>
                <small class="muted">
                    <a href=addresses::blueprint(number)>"blueprint " {number.0}</a> {on} " by "
                    {by} ", " <TimeText at/>
                </small>
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Latest commits">
            <header>
                <h2 class="grow">"Latest commits"</h2>
                <a href=addresses::BLUEPRINTS>"All blueprints"</a>
            </header>
            <ul class="short-lines">{rows(list.into(), |target| target.number, row)}</ul>
        </section>
    }
    .into_any()
}

/// The cookie that hides the first steps in this browser.
#[cfg(feature = "ssr")]
const FIRST_STEPS_COOKIE: &str = "gantry_first_steps";

/// The content of the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverviewView {
    overview: Overview,
    /// Whether this browser hides the first steps.
    first_steps_hidden: bool,
}

#[server(
    name = ReadOverview,
    prefix = "/call",
    endpoint = "overview",
    input = AsJson,
    output = AsJson
)]
pub async fn overview() -> ServerResult<OverviewView> {
    let (request, actor) = signed_in()?;
    let overview = answer(request.control.overview(&actor).await).await?;
    let first_steps_hidden =
        crate::respond::cookie(FIRST_STEPS_COOKIE).as_deref() == Some("hidden");
    Ok(OverviewView { overview, first_steps_hidden })
}

/// Hides the first steps in this browser, or shows them again. Redirects to the overview.
#[server(
    name = HideFirstSteps,
    prefix = "/call",
    endpoint = "hide-first-steps",
    output = AsJson
)]
pub async fn hide_first_steps(#[server(default)] show: bool) -> ServerResult<()> {
    crate::respond::set_cookie(FIRST_STEPS_COOKIE, (!show).then_some("hidden"));
    leptos_axum::redirect(addresses::OVERVIEW);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::overview::{DeploymentTally, NodeTally, QueueTally, WorkerTally};
    use api::reviews::ReviewCount;
    use engine::ids::BlueprintNumber;

    fn calm() -> Overview {
        Overview {
            blueprint: BlueprintNumber(7),
            enabled: true,
            deployments: DeploymentTally { all: 3, on_hold: 0, proposed: 1 },
            nodes: NodeTally { all: 2, dead: 0, maintenance: 0 },
            steps: StateCounts { active: 4, ..StateCounts::default() },
            stuck: Vec::new(),
            reviews: ReviewCount::default(),
            open_reviews: 0,
            rollouts: Vec::new(),
            commits: Vec::new(),
            queue: QueueTally::default(),
            workers: WorkerTally { alive: 1, capacity: 4 },
            hours: Vec::new(),
            first_steps: None,
        }
    }

    #[test]
    fn problems_are_listed() {
        assert_eq!(problems(&calm()), Vec::<String>::new());
        let mut ill = calm();
        ill.enabled = false;
        ill.workers.alive = 0;
        ill.steps.error = 1;
        ill.nodes.dead = 2;
        ill.deployments.on_hold = 1;
        let text = [
            "execution is off",
            "no worker is alive",
            "1 step failed",
            "2 nodes are dead",
            "1 deployment is on hold",
        ];
        assert_eq!(problems(&ill), text);
        let draining = Overview { workers: WorkerTally { alive: 1, capacity: 0 }, ..calm() };
        assert_eq!(problems(&draining), ["all workers are draining"]);
    }

    #[test]
    fn installation_without_nodes_is_new() {
        assert!(!is_new(&calm()));
        let none =
            Overview { nodes: NodeTally::default(), steps: StateCounts::default(), ..calm() };
        assert!(is_new(&none));
        assert!(!is_new(&Overview { nodes: NodeTally { all: 1, ..NodeTally::default() }, ..none }));
    }
}
