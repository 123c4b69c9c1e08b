//! Admission: which TODO steps may start now.
//!
//! The claim is one SQL statement over all steps; this is what it must agree with, and what answers "why not yet?". The rules:
//!
//! | rule | holds when |
//! |---|---|
//! | execution | it is enabled |
//! | room | fewer runs are open than the global limit and than the workers' capacity |
//! | step | it is TODO, its backoff is over, and it needs a run at all ([`super::Step::rests`]) |
//! | jig | it is active, and a worker that is heard of carries it out |
//! | deployment | neither it nor any above it is held |
//! | node | available; as the action needs it: alive and confirmed, any, or dead. Phantoms are always there |
//! | frozen | no other step on the node is an ERROR that freezes its node |
//! | exclusive | an exclusive step finds no other exclusive run open on its node |
//! | lane | rolling: fewer runs open in it than its limit; chunk: as rolling, and none was open when the claim began |
//! | budget | its node is down already, or fewer nodes are down than the budget allows |
//!
//! A node is *down* for a budget when one of its steps in that budget is running, in ERROR, has failed, or has its node dead: one
//! node counts once, however many of its steps are at it.
//!
//! **Order**: priority (higher first), then the deployment with the fewest runs open (those taken before included), then ready since,
//! rank, id. So deployments take turns, and a large one can't starve a small one. *Ready since* goes before *rank* so that a deep
//! step that became ready an hour ago is not overtaken for ever by shallow ones that keep coming; steps of one commit are ready in
//! one instant, and then rank decides.
//!
//! [`admit`] takes steps in that order, each if it fits beside those taken before: the greedy, maximal answer of one round. A
//! statement that cuts by lane before it cuts by node may take others in one round. What it must share with this function is: every
//! step that it takes is admissible beside the ones it took before ([`Taken::take`]), and when it takes none, [`admit`] takes none.
//!
//! What the view does not mention is not admitted: a missing rule means no.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::StepState;
use crate::catalog::{LaneMode, Needs, OnError};
use crate::counting::{either, many};
use crate::ids::{DeploymentId, DeploymentName, JigName, LaneName, NodeId, StepId};

/// A point in time: microseconds since 1970-01-01 UTC, as the database counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Moment(pub i64);

/// A failure-domain budget, by its number in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct BudgetId(pub i64);

/// A lane: unique by name in its deployment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaneKey {
    /// Where.
    pub deployment: DeploymentId,
    /// Its name: a role or a group.
    pub name: LaneName,
}

/// Limits that hold everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most runs open at once.
    pub running: u32,
    /// Most steps that one claim takes.
    pub batch: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { running: 10, batch: 10 }
    }
}

/// A deployment, as far as claims care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentView {
    /// For people.
    pub name: DeploymentName,
    /// A hold counts for those below it too.
    pub parent: Option<DeploymentId>,
    /// Who holds it, for people.
    pub held_by: Option<String>,
}

/// A lane's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneView {
    /// Most runs open at once; none for no limit.
    pub max_running: Option<u32>,
    /// How it fills.
    pub mode: LaneMode,
}

/// A budget's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetView {
    /// For people.
    pub name: String,
    /// Most nodes down at once.
    pub max_down: u32,
}

/// A node, as far as claims care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// For people.
    pub name: String,
    /// Stands for a deployment: always up, several runs at once.
    pub phantom: bool,
    /// It answers.
    pub alive: bool,
    /// Nobody took it out of service.
    pub available: bool,
    /// It has joined: what runs on it is known.
    pub confirmed: bool,
}

/// A step, as far as claims care. The view needs those that are TODO, and for budgets and frozen nodes those that are not well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepView {
    /// Where it runs, or for which node.
    pub node: NodeId,
    /// Its noderole's deployment and its lane there.
    pub lane: LaneKey,
    /// How it is carried out.
    pub jig: JigName,
    /// Its state.
    pub state: StepState,
    /// Parents missing.
    pub pending: u32,
    /// Higher first.
    pub priority: i32,
    /// Since when it is TODO.
    pub ready_since: Moment,
    /// Longest way from a root.
    pub rank: u32,
    /// No earlier than this.
    pub not_before: Moment,
    /// Failures that were retried.
    pub failures: u32,
    /// What it needs its node to be.
    pub needs: Needs,
    /// It wants its node for itself.
    pub exclusive: bool,
    /// What an ERROR of it stops.
    pub on_error: OnError,
    /// Budgets that it draws on.
    pub budgets: BTreeSet<BudgetId>,
    /// It becomes ACTIVE without a run: [`super::Step::rests`].
    pub rests: bool,
}

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// Of which step.
    pub step: StepId,
    /// On or for which node.
    pub node: NodeId,
    /// In which lane.
    pub lane: LaneKey,
    /// Whether it has the node for itself.
    pub exclusive: bool,
}

/// Everything that admission looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionView {
    /// The moment of the claim.
    pub now: Moment,
    /// The execution switch.
    pub enabled: bool,
    /// Slots of all confirmed workers that are heard of.
    pub capacity: u32,
    /// Deployments, those above included.
    pub deployments: BTreeMap<DeploymentId, DeploymentView>,
    /// Lanes.
    pub lanes: BTreeMap<LaneKey, LaneView>,
    /// Budgets.
    pub budgets: BTreeMap<BudgetId, BudgetView>,
    /// Nodes.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// Jigs, and whether each is active.
    pub jigs: BTreeMap<JigName, bool>,
    /// Those of them that no confirmed worker carries out: a run of theirs would take a slot and find nobody.
    pub unserved: BTreeSet<JigName>,
    /// Steps.
    pub steps: BTreeMap<StepId, StepView>,
    /// Runs that have not ended.
    pub open: Vec<OpenRun>,
}

/// A rule that keeps a step from starting, in words that tell what has to happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Reason {
    /// The execution switch is off.
    Paused,
    /// As many runs are open as may be.
    Room {
        /// Open.
        running: u32,
        /// Allowed everywhere.
        limit: u32,
        /// What the workers can carry.
        capacity: u32,
    },
    /// It is not TODO.
    State {
        /// Its state.
        state: StepState,
        /// Parents missing.
        pending: u32,
    },
    /// It becomes ACTIVE without a run.
    Rests,
    /// Its backoff is not over.
    Backoff {
        /// When it is over.
        until: Moment,
        /// Seconds until then.
        seconds: i64,
        /// Failures so far.
        failures: u32,
    },
    /// Its jig is not active.
    Jig {
        /// Which.
        jig: JigName,
    },
    /// No worker carries out its jig.
    Unserved {
        /// Which.
        jig: JigName,
    },
    /// A deployment is on hold.
    Held {
        /// Which: its own or one above.
        deployment: DeploymentName,
        /// Who holds it.
        by: String,
    },
    /// Its node was taken out of service.
    Unavailable {
        /// Which.
        node: String,
    },
    /// Its node does not answer.
    NodeDead {
        /// Which.
        node: String,
    },
    /// It is for a dead node, and this one answers.
    NodeAlive {
        /// Which.
        node: String,
    },
    /// Its node has not joined yet.
    NotJoined {
        /// Which.
        node: String,
    },
    /// An ERROR freezes its node.
    Frozen {
        /// Which.
        node: String,
        /// The first such step.
        by: StepId,
    },
    /// Its node is taken by an exclusive run.
    Exclusive {
        /// Which.
        node: String,
        /// The step that runs there.
        by: StepId,
    },
    /// Its lane is full.
    Lane {
        /// The lane, as deployment/name.
        lane: String,
        /// Taken.
        running: u32,
        /// Allowed.
        max_running: u32,
    },
    /// A chunk of its lane is not done.
    Chunk {
        /// The lane, as deployment/name.
        lane: String,
        /// Still running.
        running: u32,
    },
    /// As many nodes are down as its budget allows.
    Budget {
        /// Which.
        budget: String,
        /// Nodes down.
        down: u32,
        /// Allowed.
        max_down: u32,
    },
    /// Something that it names is not known.
    Unknown {
        /// What.
        what: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("execution is paused: resume it to go on"),
            Self::Room { running, limit, capacity: 0 } => {
                let open = many(*running, "run");
                write!(
                    f,
                    "no worker is there ({open} open, {limit} allowed): start one with `gantry worker`"
                )
            }
            Self::Room { running, limit, capacity } => {
                let (open, are) = (many(*running, "run"), either(*running, "is", "are"));
                write!(
                    f,
                    "waits for room: {open} {are} open, {limit} are allowed and workers can carry {capacity}"
                )
            }
            Self::State { state: StepState::Blocked, pending: 1 } => {
                f.write_str("waits for 1 parent")
            }
            Self::State { state: StepState::Blocked, pending } => {
                write!(f, "waits for {pending} parents")
            }
            Self::State { state: StepState::Transition, .. } => {
                f.write_str("an attempt at it is open")
            }
            Self::State { state: StepState::Error, .. } => {
                f.write_str("it failed: look at its last run, then retry it")
            }
            Self::State { state, .. } => write!(f, "it is {state}: there is nothing to start"),
            Self::Rests => f.write_str("it needs no run and becomes active by itself"),
            Self::Backoff { seconds, failures, .. } => {
                let times = many(*failures, "time");
                write!(f, "failed {times}; tried again in {seconds} s, or at once by a retry")
            }
            Self::Jig { jig } => write!(f, "jig {jig} is not active: activate it"),
            Self::Unserved { jig } => {
                write!(f, "no worker carries out jig {jig}: start one that does")
            }
            Self::Held { deployment, by } => write!(f, "deployment {deployment} is held by {by}"),
            Self::Unavailable { node } => {
                write!(f, "node {node} is out of service: make it available")
            }
            Self::NodeDead { node } => write!(f, "node {node} does not answer"),
            Self::NodeAlive { node } => {
                write!(f, "node {node} answers, and this is done for a dead node only")
            }
            Self::NotJoined { node } => {
                write!(f, "node {node} has not joined yet: a worker must reach it first")
            }
            Self::Frozen { node, by } => {
                write!(f, "node {node} is frozen by the error of step {by}: retry or change that")
            }
            Self::Exclusive { node, by } => {
                write!(f, "waits for node {node}: step {by} runs there")
            }
            Self::Lane { lane, running, max_running } => {
                write!(f, "waits for a slot of lane {lane}: {running} of {max_running} taken")
            }
            Self::Chunk { lane, running } => {
                write!(f, "waits for the present chunk of lane {lane}: {running} still running")
            }
            Self::Budget { budget, down, max_down } => {
                let (nodes, are) = (many(*max_down, "node"), either(*down, "is", "are"));
                write!(f, "waits for budget {budget}: {down} of {nodes} {are} down already")
            }
            Self::Unknown { what } => {
                write!(
                    f,
                    "{what} is not known, so nothing says that it may start: restore it from a backup, or report it"
                )
            }
        }
    }
}

/// The steps that one claim takes, in order.
pub fn admit(view: &AdmissionView, limits: Limits) -> Vec<StepId> {
    let mut taken = Taken::new(view, limits);
    let mut queues = queues(view);
    let mut picks = Vec::new();
    while picks.len() < limits.batch as usize && !taken.is_full() {
        // What is taken only ever takes room, so a step that does not fit now fits nowhere in this claim.
        for queue in queues.values_mut() {
            while queue.first().is_some_and(|(.., id)| !taken.reasons(*id).is_empty()) {
                queue.pop_first();
            }
        }
        let turn = |(deployment, queue): (&DeploymentId, &BTreeSet<Place>)| {
            let (priority, since, rank, id) = *queue.first()?;
            Some((priority, taken.runs_of(*deployment), since, rank, id))
        };
        let Some((.., next)) = queues.iter().filter_map(turn).min() else { break };
        if taken.take(next).is_ok() {
            picks.push(next);
        }
    }
    picks
}

/// Where a step stands among those of its deployment.
type Place = (Reverse<i32>, Moment, u32, StepId);

fn queues(view: &AdmissionView) -> BTreeMap<DeploymentId, BTreeSet<Place>> {
    let mut queues: BTreeMap<_, BTreeSet<Place>> = BTreeMap::new();
    for (id, step) in view.steps.iter().filter(|(_, step)| step.state == StepState::Todo) {
        let place = (Reverse(step.priority), step.ready_since, step.rank, *id);
        queues.entry(step.lane.deployment).or_default().insert(place);
    }
    queues
}

/// Every rule that keeps a step from starting now; none when a claim would take it as the first.
pub fn why_not(view: &AdmissionView, limits: Limits, step: StepId) -> Vec<Reason> {
    Taken::new(view, limits).reasons(step)
}

/// A view, and the steps that a claim has taken from it so far.
#[derive(Debug)]
pub struct Taken<'v> {
    view: &'v AdmissionView,
    limits: Limits,
    steps: BTreeSet<StepId>,
    running: u32,
    lanes: BTreeMap<&'v LaneKey, u32>,
    deployments: BTreeMap<DeploymentId, u32>,
    /// Lanes in which something ran when the claim began.
    busy: BTreeSet<&'v LaneKey>,
    exclusive: BTreeMap<NodeId, StepId>,
    frozen: BTreeMap<NodeId, BTreeSet<StepId>>,
    down: BTreeMap<BudgetId, BTreeSet<NodeId>>,
}

impl<'v> Taken<'v> {
    /// Nothing taken yet.
    pub fn new(view: &'v AdmissionView, limits: Limits) -> Self {
        let mut taken = Self {
            view,
            limits,
            steps: BTreeSet::new(),
            running: 0,
            lanes: BTreeMap::new(),
            deployments: BTreeMap::new(),
            busy: view.open.iter().map(|run| &run.lane).collect(),
            exclusive: BTreeMap::new(),
            frozen: BTreeMap::new(),
            down: BTreeMap::new(),
        };
        for run in &view.open {
            taken.occupy(run.step, run.node, &run.lane, run.exclusive);
        }
        for (id, step) in &view.steps {
            if step.state == StepState::Error && step.on_error == OnError::Node {
                taken.frozen.entry(step.node).or_default().insert(*id);
            }
            if taken.is_down(step) {
                taken.goes_down(step);
            }
        }
        taken
    }

    fn occupy(&mut self, step: StepId, node: NodeId, lane: &'v LaneKey, exclusive: bool) {
        self.running += 1;
        *self.lanes.entry(lane).or_default() += 1;
        *self.deployments.entry(lane.deployment).or_default() += 1;
        if exclusive {
            self.exclusive.insert(node, step);
        }
    }

    fn is_down(&self, step: &StepView) -> bool {
        let up = self.view.nodes.get(&step.node).is_some_and(|node| node.phantom || node.alive);
        matches!(step.state, StepState::Transition | StepState::Error) || step.failures > 0 || !up
    }

    fn goes_down(&mut self, step: &'v StepView) {
        for budget in &step.budgets {
            self.down.entry(*budget).or_default().insert(step.node);
        }
    }

    /// Runs of a deployment, those taken included.
    fn runs_of(&self, deployment: DeploymentId) -> u32 {
        self.deployments.get(&deployment).copied().unwrap_or(0)
    }

    /// Whether no further step can be taken, whichever it is.
    pub fn is_full(&self) -> bool {
        !self.view.enabled || self.running >= self.limits.running.min(self.view.capacity)
    }

    /// Takes a step, if it is admissible beside those taken before.
    ///
    /// # Errors
    /// The rules against it.
    pub fn take(&mut self, id: StepId) -> Result<(), Vec<Reason>> {
        let reasons = self.reasons(id);
        let view = self.view;
        match view.steps.get(&id) {
            Some(step) if reasons.is_empty() => {
                self.steps.insert(id);
                self.occupy(id, step.node, &step.lane, step.exclusive);
                self.goes_down(step);
                Ok(())
            }
            _ => Err(reasons),
        }
    }

    /// The rules against taking a step next.
    pub fn reasons(&self, id: StepId) -> Vec<Reason> {
        let Some(step) = self.view.steps.get(&id) else {
            return vec![Reason::Unknown { what: format!("step {id}") }];
        };
        if self.steps.contains(&id) || step.state != StepState::Todo {
            let state = if self.steps.contains(&id) { StepState::Transition } else { step.state };
            return vec![Reason::State { state, pending: step.pending }];
        }
        let mut reasons = Vec::new();
        self.check_everywhere(&mut reasons);
        self.check_step(step, &mut reasons);
        self.check_deployment(step, &mut reasons);
        self.check_node(id, step, &mut reasons);
        self.check_lane(step, &mut reasons);
        self.check_budgets(step, &mut reasons);
        reasons
    }

    fn check_everywhere(&self, reasons: &mut Vec<Reason>) {
        if !self.view.enabled {
            reasons.push(Reason::Paused);
        }
        let (limit, capacity) = (self.limits.running, self.view.capacity);
        if self.running >= limit.min(capacity) {
            reasons.push(Reason::Room { running: self.running, limit, capacity });
        }
    }

    fn check_step(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        if step.rests {
            reasons.push(Reason::Rests);
        }
        if step.not_before > self.view.now {
            let wait = step.not_before.0.saturating_sub(self.view.now.0);
            let seconds = wait / 1_000_000 + i64::from(wait % 1_000_000 > 0);
            reasons.push(Reason::Backoff {
                until: step.not_before,
                seconds,
                failures: step.failures,
            });
        }
        match self.view.jigs.get(&step.jig) {
            Some(true) => {}
            Some(false) => reasons.push(Reason::Jig { jig: step.jig.clone() }),
            None => reasons.push(Reason::Unknown { what: format!("jig {}", step.jig) }),
        }
        // Where no worker is at all, that is what is said.
        if self.view.capacity > 0 && self.view.unserved.contains(&step.jig) {
            reasons.push(Reason::Unserved { jig: step.jig.clone() });
        }
    }

    fn check_deployment(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        let mut next = Some(step.lane.deployment);
        let mut seen = BTreeSet::new();
        while let Some(id) = next {
            let Some(deployment) = self.view.deployments.get(&id).filter(|_| seen.insert(id))
            else {
                reasons.push(Reason::Unknown { what: format!("the chain of deployment {id}") });
                return;
            };
            if let Some(by) = &deployment.held_by {
                reasons.push(Reason::Held { deployment: deployment.name.clone(), by: by.clone() });
            }
            next = deployment.parent;
        }
    }

    fn check_node(&self, id: StepId, step: &StepView, reasons: &mut Vec<Reason>) {
        let Some(node) = self.view.nodes.get(&step.node) else {
            reasons.push(Reason::Unknown { what: format!("node {}", step.node) });
            return;
        };
        let name = || node.name.clone();
        if !node.available && !node.phantom {
            reasons.push(Reason::Unavailable { node: name() });
        }
        let alive = node.alive || node.phantom;
        match step.needs {
            Needs::Alive if !alive => reasons.push(Reason::NodeDead { node: name() }),
            Needs::Alive if !(node.confirmed || node.phantom) => {
                reasons.push(Reason::NotJoined { node: name() })
            }
            Needs::Dead if alive => reasons.push(Reason::NodeAlive { node: name() }),
            _ => {}
        }
        let freezes = self.frozen.get(&step.node).and_then(|by| by.iter().find(|by| **by != id));
        if let Some(by) = freezes {
            reasons.push(Reason::Frozen { node: name(), by: *by });
        }
        if let Some(by) = self.exclusive.get(&step.node).filter(|_| step.exclusive) {
            reasons.push(Reason::Exclusive { node: name(), by: *by });
        }
    }

    fn check_lane(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        let deployment = self.view.deployments.get(&step.lane.deployment);
        let lane = deployment.map_or_else(|| "?".to_owned(), |d| d.name.to_string())
            + "/"
            + step.lane.name.as_str();
        let Some(limit) = self.view.lanes.get(&step.lane) else {
            reasons.push(Reason::Unknown { what: format!("lane {lane}") });
            return;
        };
        let running = self.lanes.get(&step.lane).copied().unwrap_or(0);
        if limit.mode == LaneMode::Chunk && self.busy.contains(&step.lane) {
            reasons.push(Reason::Chunk { lane, running });
            return;
        }
        if let Some(max_running) = limit.max_running.filter(|max| running >= *max) {
            reasons.push(Reason::Lane { lane, running, max_running });
        }
    }

    fn check_budgets(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        for id in &step.budgets {
            let Some(budget) = self.view.budgets.get(id) else {
                reasons.push(Reason::Unknown { what: format!("budget {}", id.0) });
                continue;
            };
            let down = self.down.get(id);
            let count = down.map_or(0, |nodes| u32::try_from(nodes.len()).unwrap_or(u32::MAX));
            let down_already = down.is_some_and(|nodes| nodes.contains(&step.node));
            if !down_already && count >= budget.max_down {
                reasons.push(Reason::Budget {
                    budget: budget.name.clone(),
                    down: count,
                    max_down: budget.max_down,
                });
            }
        }
    }
}
