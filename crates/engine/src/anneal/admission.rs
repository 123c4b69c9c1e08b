//! Admission: which TODO steps may start now, and the reasons against the others.
//!
//! This module is the model of the SQL functions that the claim and the pending page use
//! (`migrations/src/admission.sql`). A property test compares the two. The rules:
//!
//! | rule | passes if |
//! |---|---|
//! | execution | it is enabled |
//! | run limit | fewer open runs than the global limit and the capacity of the workers |
//! | step | it is TODO, its backoff is over, and it needs a run ([`super::Step::needs_no_run`]) |
//! | jig | it is active, and a live worker supports it |
//! | deployment | neither it nor an ancestor is on hold |
//! | node | not in maintenance, and as the action needs it: alive and confirmed, any, or dead |
//! | node blocked | no other step on the node has an ERROR that freezes its node |
//! | exclusive | an exclusive step finds no other exclusive run open on its node |
//! | noderole | no other action of the noderole has an open run |
//! | concurrency group | fewer open runs than its limit; chunk: also none when the claim began |
//! | disruption budget | its node is down already, or fewer nodes are down than the budget allows |
//!
//! A draining worker takes no further runs. Its runs count for the global limit, but use no slot of
//! the capacity, because it offers none.
//!
//! Phantom nodes are always alive, available and confirmed. A disruption budget counts each node at
//! most once. A node is *down* if it is dead, or if a step in the budget runs, failed or is in
//! ERROR.
//!
//! A failed step can be BLOCKED, because a parent runs again. Its node stays down until that parent
//! is done, and the parent may be on another node of the same budget. So if no step of the down
//! nodes can start, one step that they wait for ([`awaited_steps`]) may exceed the budget.
//! Otherwise they would wait for each other forever.
//!
//! **Order**: priority (highest first), deployment with the fewest open runs, ready since, rank,
//! id. Deployments take turns, so a large one cannot starve a small one. *Ready since* comes before
//! *rank* so that new shallow steps cannot starve a deep step. The steps of one commit become ready
//! at the same time, and then rank decides.
//!
//! [`admit`] is greedy and maximal for one claim. The SQL statement may choose other steps, because
//! it limits by concurrency group before it limits by node. Both must meet two conditions: each
//! step is admissible after those taken before ([`ClaimPlan::take`]), and SQL takes none only if
//! [`admit`] does.
//!
//! An id that is missing from the view is never admitted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::StepState;
use crate::catalog::{ConcurrencyGroupMode, Needs, OnError};
use crate::counting::{either, many};
use crate::ids::{
    ConcurrencyGroupName, DeploymentId, DeploymentName, JigName, NodeId, NoderoleId, StepId,
};

/// Maximum number of open runs that a reason names.
const NAMED_RUNS: usize = 3;

/// Point in time, in microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Number of a disruption budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct BudgetId(pub i64);

/// Concurrency group of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConcurrencyGroupKey {
    /// Deployment of the concurrency group.
    pub deployment: DeploymentId,
    /// Name of the role or Fuel group. Unique in the deployment.
    pub name: ConcurrencyGroupName,
}

/// Limits across all deployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open runs.
    pub running: u32,
    /// Maximum number of steps that one claim takes.
    pub batch: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { running: 10, batch: 10 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentView {
    /// For messages.
    pub name: DeploymentName,
    /// A hold also applies to descendants.
    pub parent: Option<DeploymentId>,
    /// The person who put it on hold, for messages.
    pub on_hold_by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyGroupLimit {
    /// Maximum number of open runs. `None` means no limit.
    pub max_running: Option<u32>,
    pub mode: ConcurrencyGroupMode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetView {
    pub name: String,
    /// Maximum number of nodes that are down at the same time.
    pub max_down: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    /// Represents a deployment: always up, and takes several runs at once.
    pub phantom: bool,
    pub alive: bool,
    /// Not in maintenance.
    pub available: bool,
    /// Joined: the runs on it are known.
    pub confirmed: bool,
}

/// The columns of a step that claims read. The view needs all TODO steps. For disruption budgets
/// and frozen nodes it also needs the steps in TRANSITION or ERROR and those that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepView {
    /// The noderole whose action it is.
    pub noderole: NoderoleId,
    /// The node that it runs on, or for.
    pub node: NodeId,
    /// Its noderole's deployment and concurrency group.
    pub concurrency_group: ConcurrencyGroupKey,
    pub jig: JigName,
    pub state: StepState,
    /// Number of missing parents.
    pub pending: u32,
    /// Higher values run first.
    pub priority: i32,
    /// When it became TODO.
    pub ready_since: Timestamp,
    /// Longest path from a root.
    pub rank: u32,
    /// Earliest start (end of the backoff).
    pub not_before: Timestamp,
    /// Failures that were retried.
    pub failures: u32,
    /// The state that its node must have.
    pub needs: Needs,
    /// Runs alone on its node.
    pub exclusive: bool,
    pub on_error: OnError,
    /// Disruption budgets that it counts against.
    pub budgets: BTreeSet<BudgetId>,
    /// Becomes ACTIVE without a run: [`super::Step::needs_no_run`].
    pub needs_no_run: bool,
    /// Its parents satisfy its join. Not so although the step is TODO: its count is wrong.
    pub is_joined: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    pub step: StepId,
    pub noderole: NoderoleId,
    pub node: NodeId,
    pub concurrency_group: ConcurrencyGroupKey,
    pub exclusive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionView {
    /// The time of the claim.
    pub now: Timestamp,
    pub enabled: bool,
    /// Number of slots of all live, confirmed workers that are not draining.
    pub capacity: u32,
    /// Number of open runs of draining workers.
    pub draining: u32,
    /// Includes all ancestors.
    pub deployments: BTreeMap<DeploymentId, DeploymentView>,
    pub concurrency_groups: BTreeMap<ConcurrencyGroupKey, ConcurrencyGroupLimit>,
    pub budgets: BTreeMap<BudgetId, BudgetView>,
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// Whether each jig is active.
    pub jigs: BTreeMap<JigName, bool>,
    /// Jigs that no worker with slots supports. A run with such a jig would occupy a slot and
    /// never be leased.
    pub unsupported_jigs: BTreeSet<JigName>,
    pub steps: BTreeMap<StepId, StepView>,
    /// See [`awaited_steps`].
    pub awaited: BTreeMap<BudgetId, BTreeSet<StepId>>,
    /// In the order in which the runs were queued.
    pub open: Vec<OpenRun>,
}

/// The TODO steps for which BLOCKED steps of each disruption budget wait, if they failed before.
pub fn awaited_steps(
    steps: &BTreeMap<StepId, StepView>,
    parents: &BTreeMap<StepId, Vec<StepId>>,
) -> BTreeMap<BudgetId, BTreeSet<StepId>> {
    let mut awaited: BTreeMap<BudgetId, BTreeSet<StepId>> = BTreeMap::new();
    let failed = |step: &&StepView| step.state == StepState::Blocked && step.failures > 0;
    for (id, step) in steps.iter().filter(|(_, step)| failed(step)) {
        let (mut seen, mut open) = (BTreeSet::from([*id]), vec![*id]);
        while let Some(next) = open.pop() {
            let above = parents.get(&next).into_iter().flatten();
            for parent in above.filter(|parent| steps.contains_key(parent)) {
                let state = steps[parent].state;
                if state == StepState::Todo {
                    step.budgets.iter().for_each(|budget| {
                        awaited.entry(*budget).or_default().insert(*parent);
                    });
                } else if state == StepState::Blocked && seen.insert(*parent) {
                    open.push(*parent);
                }
            }
        }
    }
    awaited
}

/// Rule that prevents a step from starting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Reason {
    /// Execution is off.
    Paused,
    /// The limit of open runs is reached.
    RunLimit {
        /// Number of open runs.
        running: u32,
        /// Number of open runs on draining workers.
        draining: u32,
        /// Maximum number of open runs.
        limit: u32,
        /// Number of slots of all workers that are not draining.
        capacity: u32,
    },
    /// The step is not TODO.
    State {
        /// State of the step.
        state: StepState,
        /// Number of missing parents.
        pending: u32,
    },
    /// The step needs no run and becomes ACTIVE by itself.
    NoRunNeeded,
    /// The step failed and waits for its next attempt.
    Backoff {
        /// Time of the next attempt.
        until: Timestamp,
        /// Seconds until the next attempt.
        seconds: i64,
        /// Number of failures so far.
        failures: u32,
    },
    /// The jig of the step is inactive.
    Jig {
        /// Name of the jig.
        jig: JigName,
    },
    /// No worker supports the jig of the step.
    NoWorkerForJig {
        /// Name of the jig.
        jig: JigName,
    },
    /// The deployment or an ancestor is on hold.
    OnHold {
        /// Name of the deployment that is on hold.
        deployment: DeploymentName,
        /// Person who put it on hold.
        by: String,
    },
    /// The node is in maintenance.
    Maintenance {
        /// Name of the node.
        node: String,
    },
    /// The node is dead, and the step needs it alive.
    NodeDead {
        /// Name of the node.
        node: String,
    },
    /// The node is alive, and the step needs it dead.
    NodeAlive {
        /// Name of the node.
        node: String,
    },
    /// The node has not joined yet.
    NotJoined {
        /// Name of the node.
        node: String,
    },
    /// The ERROR of another step freezes the node.
    NodeBlocked {
        /// Name of the node.
        node: String,
        /// First step that freezes the node.
        by: StepId,
    },
    /// An exclusive run is open on the node.
    Exclusive {
        /// Name of the node.
        node: String,
        /// Step of the exclusive run.
        by: StepId,
    },
    /// A run of another action of the noderole is open.
    OtherAction {
        /// Step of that action.
        by: StepId,
    },
    /// The concurrency group is full.
    ConcurrencyGroup {
        /// Concurrency group, as `deployment/name`.
        group: String,
        /// Number of open runs.
        running: u32,
        /// Maximum number of open runs.
        max_running: u32,
        /// The steps of the first open runs.
        by: Vec<StepId>,
    },
    /// A chunk of the concurrency group is still running.
    Chunk {
        /// Concurrency group, as `deployment/name`.
        group: String,
        /// Number of open runs.
        running: u32,
        /// The steps of the first open runs.
        by: Vec<StepId>,
    },
    /// The disruption budget is exhausted.
    DisruptionBudget {
        /// Name of the disruption budget.
        budget: String,
        /// Number of nodes that are down.
        down: u32,
        /// Maximum number of nodes that are down.
        max_down: u32,
    },
    /// The step refers to something that does not exist.
    Unknown {
        /// Description of the missing object.
        object: String,
    },
    /// The step is TODO although a parent is not done, and no other rule prevents its start.
    Miscounted,
}

impl Reason {
    /// The steps that someone can look at, because they prevent the start.
    pub fn blocking_steps(&self) -> &[StepId] {
        match self {
            Self::NodeBlocked { by, .. }
            | Self::Exclusive { by, .. }
            | Self::OtherAction { by } => std::slice::from_ref(by),
            Self::ConcurrencyGroup { by, .. } | Self::Chunk { by, .. } => by,
            _ => &[],
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("Execution is off. An operator must turn it on"),
            Self::RunLimit { running, limit, capacity: 0, .. } => {
                let open = many(*running, "run");
                write!(
                    f,
                    "No worker is running, or all are draining ({open} open, {limit} allowed). \
                     Start one with `gantry worker`"
                )
            }
            Self::RunLimit { running, draining, limit, capacity } => {
                let (open, are) = (many(*running, "run"), either(*running, "is", "are"));
                write!(f, "The run limit is reached: {open} {are} open")?;
                if *draining > 0 {
                    write!(f, ", {draining} of them on draining workers")?;
                }
                write!(f, ". The limit is {limit}, and the workers can run {capacity}")
            }
            Self::State { state: StepState::Blocked, pending: 1 } => {
                f.write_str("Waits for 1 parent")
            }
            Self::State { state: StepState::Blocked, pending } => {
                write!(f, "Waits for {pending} parents")
            }
            Self::State { state: StepState::Transition, .. } => {
                f.write_str("A run of this step is open")
            }
            Self::State { state: StepState::Error, .. } => {
                f.write_str("The step failed: look at its last run, then retry it")
            }
            Self::State { state, .. } => {
                write!(f, "The step is {state}, so there is nothing to start")
            }
            Self::NoRunNeeded => f.write_str("The step needs no run and becomes active by itself"),
            Self::Backoff { seconds, failures, .. } => {
                let times = many(*failures, "time");
                write!(
                    f,
                    "The step failed {times}. It runs again in {seconds} s, or immediately with a \
                     retry"
                )
            }
            Self::Jig { jig } => write!(f, "Jig {jig} is turned off. Propose to turn it on"),
            Self::NoWorkerForJig { jig } => {
                write!(f, "No worker supports jig {jig}. Start one that does")
            }
            Self::OnHold { deployment, by } => {
                write!(f, "Deployment {deployment} was put on hold by {by}")
            }
            Self::Maintenance { node } => {
                write!(f, "Node {node} is in maintenance. End the maintenance")
            }
            Self::NodeDead { node } => write!(f, "Node {node} does not answer"),
            Self::NodeAlive { node } => {
                write!(f, "Node {node} is up, but this step runs only for a dead node")
            }
            Self::NotJoined { node } => {
                write!(f, "Node {node} has not joined yet. A worker must reach it first")
            }
            Self::NodeBlocked { node, by } => {
                write!(
                    f,
                    "Node {node} is blocked by the error of step {by}. Retry or change that step"
                )
            }
            Self::Exclusive { node, by } => {
                write!(f, "Waits for node {node}: step {by} runs there")
            }
            Self::OtherAction { by } => {
                write!(f, "Waits for another action of this noderole: step {by} runs")
            }
            Self::ConcurrencyGroup { group, running, max_running, .. } => {
                write!(
                    f,
                    "Concurrency group {group} is full: {running} of {max_running} runs are open"
                )
            }
            Self::Chunk { group, running, .. } => {
                write!(
                    f,
                    "Waits for the current chunk of concurrency group {group}: {running} still \
                     running"
                )
            }
            Self::DisruptionBudget { budget, down, max_down } => {
                let (nodes, are) = (many(*max_down, "node"), either(*down, "is", "are"));
                write!(
                    f,
                    "Disruption budget {budget} is exhausted: {down} {are} down, and the limit is \
                     {nodes}"
                )
            }
            Self::Unknown { object } => {
                write!(f, "Unknown {object}. Restore it from a backup, or report a bug")
            }
            Self::Miscounted => f.write_str(
                "The step is TODO, but a parent is not done: its stored count is wrong. Run \
                 `gantry verify`, then restore the step from a backup",
            ),
        }
    }
}

/// The steps that one claim takes, in order.
pub fn admit(view: &AdmissionView, limits: Limits) -> Vec<StepId> {
    let mut claim = ClaimPlan::new(view, limits);
    let mut queues = queues(view);
    let mut picks = Vec::new();
    while picks.len() < limits.batch as usize && !claim.is_full() {
        // Each step that is taken leaves less room, so a rejected step stays rejected in this
        // claim.
        for queue in queues.values_mut() {
            while queue.first().is_some_and(|(.., id)| !claim.reasons(*id).is_empty()) {
                queue.pop_first();
            }
        }
        let turn = |(deployment, queue): (&DeploymentId, &BTreeSet<QueuePosition>)| {
            let (priority, since, rank, id) = *queue.first()?;
            Some((priority, claim.runs_of(*deployment), since, rank, id))
        };
        let Some((.., next)) = queues.iter().filter_map(turn).min() else { break };
        if claim.take(next).is_ok() {
            picks.push(next);
        }
    }
    picks
}

/// Position of a step in the queue of its deployment.
type QueuePosition = (Reverse<i32>, Timestamp, u32, StepId);

fn queues(view: &AdmissionView) -> BTreeMap<DeploymentId, BTreeSet<QueuePosition>> {
    let mut queues: BTreeMap<_, BTreeSet<QueuePosition>> = BTreeMap::new();
    for (id, step) in view.steps.iter().filter(|(_, step)| step.state == StepState::Todo) {
        let position = (Reverse(step.priority), step.ready_since, step.rank, *id);
        queues.entry(step.concurrency_group.deployment).or_default().insert(position);
    }
    queues
}

/// Every rule that prevents a step from starting now. Empty if a claim would take it first.
pub fn unmet_rules(view: &AdmissionView, limits: Limits, step: StepId) -> Vec<Reason> {
    ClaimPlan::new(view, limits).reasons(step)
}

/// A view, and the steps that a claim has taken from it so far.
#[derive(Debug)]
pub struct ClaimPlan<'v> {
    view: &'v AdmissionView,
    limits: Limits,
    steps: BTreeSet<StepId>,
    running: u32,
    concurrency_groups: BTreeMap<&'v ConcurrencyGroupKey, Vec<StepId>>,
    deployments: BTreeMap<DeploymentId, u32>,
    /// Concurrency groups with an open run when the claim began.
    busy: BTreeSet<&'v ConcurrencyGroupKey>,
    exclusive: BTreeMap<NodeId, StepId>,
    noderoles: BTreeMap<NoderoleId, StepId>,
    frozen: BTreeMap<NodeId, BTreeSet<StepId>>,
    down: BTreeMap<BudgetId, BTreeSet<NodeId>>,
    /// See [`ClaimPlan::stuck_budgets`]. When the claim began.
    stuck: BTreeMap<BudgetId, usize>,
}

impl<'v> ClaimPlan<'v> {
    pub fn new(view: &'v AdmissionView, limits: Limits) -> Self {
        let mut claim = Self {
            view,
            limits,
            steps: BTreeSet::new(),
            running: 0,
            concurrency_groups: BTreeMap::new(),
            deployments: BTreeMap::new(),
            busy: view.open.iter().map(|run| &run.concurrency_group).collect(),
            exclusive: BTreeMap::new(),
            noderoles: BTreeMap::new(),
            frozen: BTreeMap::new(),
            down: BTreeMap::new(),
            stuck: BTreeMap::new(),
        };
        for run in &view.open {
            claim.record_run(
                run.step,
                run.noderole,
                run.node,
                &run.concurrency_group,
                run.exclusive,
            );
        }
        for (id, step) in &view.steps {
            if step.state == StepState::Error && step.on_error == OnError::Node {
                claim.frozen.entry(step.node).or_default().insert(*id);
            }
            if claim.is_down(step) {
                claim.mark_down(step);
            }
        }
        claim.stuck = claim.stuck_budgets();
        claim
    }

    /// The budgets of which no down node has a step that can start or runs, with the number of down
    /// nodes.
    fn stuck_budgets(&self) -> BTreeMap<BudgetId, usize> {
        let mut stuck: BTreeMap<_, _> =
            self.down.iter().map(|(budget, nodes)| (*budget, nodes.len())).collect();
        let only_waits = |step: &StepView| {
            self.is_node_up(step) && matches!(step.state, StepState::Blocked | StepState::Active)
        };
        for step in self.view.steps.values().filter(|step| !only_waits(step)) {
            for budget in &step.budgets {
                if self.down.get(budget).is_some_and(|nodes| nodes.contains(&step.node)) {
                    stuck.remove(budget);
                }
            }
        }
        stuck
    }

    fn record_run(
        &mut self,
        step: StepId,
        noderole: NoderoleId,
        node: NodeId,
        concurrency_group: &'v ConcurrencyGroupKey,
        exclusive: bool,
    ) {
        self.running += 1;
        self.concurrency_groups.entry(concurrency_group).or_default().push(step);
        self.noderoles.insert(noderole, step);
        *self.deployments.entry(concurrency_group.deployment).or_default() += 1;
        if exclusive {
            self.exclusive.insert(node, step);
        }
    }

    fn is_node_up(&self, step: &StepView) -> bool {
        self.view.nodes.get(&step.node).is_some_and(|node| node.phantom || node.alive)
    }

    fn is_down(&self, step: &StepView) -> bool {
        matches!(step.state, StepState::Transition | StepState::Error)
            || step.failures > 0
            || !self.is_node_up(step)
    }

    fn mark_down(&mut self, step: &'v StepView) {
        for budget in &step.budgets {
            self.down.entry(*budget).or_default().insert(step.node);
        }
    }

    /// Open runs of a deployment, including those that the claim took.
    fn runs_of(&self, deployment: DeploymentId) -> u32 {
        self.deployments.get(&deployment).copied().unwrap_or(0)
    }

    /// Whether the claim can take no further step.
    pub fn is_full(&self) -> bool {
        !self.view.enabled || !self.has_room()
    }

    fn has_room(&self) -> bool {
        let slots = self.view.capacity.saturating_add(self.view.draining);
        self.running < self.limits.running.min(slots)
    }

    /// Takes a step if it is admissible after those taken before.
    ///
    /// # Errors
    /// The rules against it.
    pub fn take(&mut self, id: StepId) -> Result<(), Vec<Reason>> {
        let reasons = self.reasons(id);
        let view = self.view;
        match view.steps.get(&id) {
            Some(step) if reasons.is_empty() => {
                self.steps.insert(id);
                self.record_run(
                    id,
                    step.noderole,
                    step.node,
                    &step.concurrency_group,
                    step.exclusive,
                );
                self.mark_down(step);
                Ok(())
            }
            _ => Err(reasons),
        }
    }

    /// The rules against taking a step next.
    pub fn reasons(&self, id: StepId) -> Vec<Reason> {
        let Some(step) = self.view.steps.get(&id) else {
            return vec![Reason::Unknown { object: format!("step {id}") }];
        };
        if self.steps.contains(&id) || step.state != StepState::Todo {
            let state = if self.steps.contains(&id) { StepState::Transition } else { step.state };
            return vec![Reason::State { state, pending: step.pending }];
        }
        let mut reasons = Vec::new();
        self.check_global(&mut reasons);
        self.check_step(step, &mut reasons);
        self.check_deployment(step, &mut reasons);
        self.check_node(id, step, &mut reasons);
        self.check_concurrency_group(step, &mut reasons);
        self.check_disruption_budgets(id, step, &mut reasons);
        // Last, because the database reads the parents only of a step without another reason.
        if reasons.is_empty() && !step.is_joined {
            reasons.push(Reason::Miscounted);
        }
        reasons
    }

    fn check_global(&self, reasons: &mut Vec<Reason>) {
        if !self.view.enabled {
            reasons.push(Reason::Paused);
        }
        if !self.has_room() {
            reasons.push(Reason::RunLimit {
                running: self.running,
                draining: self.view.draining,
                limit: self.limits.running,
                capacity: self.view.capacity,
            });
        }
    }

    fn check_step(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        if step.needs_no_run {
            reasons.push(Reason::NoRunNeeded);
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
            None => reasons.push(Reason::Unknown { object: format!("jig {}", step.jig) }),
        }
        // Without any worker, `Reason::RunLimit` says so already.
        if self.view.capacity > 0 && self.view.unsupported_jigs.contains(&step.jig) {
            reasons.push(Reason::NoWorkerForJig { jig: step.jig.clone() });
        }
    }

    fn check_deployment(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        let mut next = Some(step.concurrency_group.deployment);
        let mut seen = BTreeSet::new();
        while let Some(id) = next {
            let Some(deployment) = self.view.deployments.get(&id).filter(|_| seen.insert(id))
            else {
                reasons.push(Reason::Unknown { object: format!("chain of deployment {id}") });
                return;
            };
            if let Some(by) = &deployment.on_hold_by {
                reasons
                    .push(Reason::OnHold { deployment: deployment.name.clone(), by: by.clone() });
            }
            next = deployment.parent;
        }
    }

    fn check_node(&self, id: StepId, step: &StepView, reasons: &mut Vec<Reason>) {
        let Some(node) = self.view.nodes.get(&step.node) else {
            reasons.push(Reason::Unknown { object: format!("node {}", step.node) });
            return;
        };
        let name = || node.name.clone();
        if !node.available && !node.phantom {
            reasons.push(Reason::Maintenance { node: name() });
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
            reasons.push(Reason::NodeBlocked { node: name(), by: *by });
        }
        if let Some(by) = self.exclusive.get(&step.node).filter(|_| step.exclusive) {
            reasons.push(Reason::Exclusive { node: name(), by: *by });
        }
        if let Some(by) = self.noderoles.get(&step.noderole).filter(|by| **by != id) {
            reasons.push(Reason::OtherAction { by: *by });
        }
    }

    fn check_concurrency_group(&self, step: &StepView, reasons: &mut Vec<Reason>) {
        let deployment = self.view.deployments.get(&step.concurrency_group.deployment);
        let group = deployment.map_or_else(|| "?".to_owned(), |d| d.name.to_string())
            + "/"
            + step.concurrency_group.name.as_str();
        let Some(limit) = self.view.concurrency_groups.get(&step.concurrency_group) else {
            reasons.push(Reason::Unknown { object: format!("concurrency group {group}") });
            return;
        };
        let open = self
            .concurrency_groups
            .get(&step.concurrency_group)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let running = u32::try_from(open.len()).unwrap_or(u32::MAX);
        let named = || open.iter().copied().take(NAMED_RUNS).collect();
        if limit.mode == ConcurrencyGroupMode::Chunk && self.busy.contains(&step.concurrency_group)
        {
            reasons.push(Reason::Chunk { group, running, by: named() });
            return;
        }
        if let Some(max_running) = limit.max_running.filter(|max| running >= *max) {
            reasons.push(Reason::ConcurrencyGroup { group, running, max_running, by: named() });
        }
    }

    fn check_disruption_budgets(
        &self,
        step_id: StepId,
        step: &StepView,
        reasons: &mut Vec<Reason>,
    ) {
        for id in &step.budgets {
            let Some(budget) = self.view.budgets.get(id) else {
                reasons.push(Reason::Unknown { object: format!("disruption budget {}", id.0) });
                continue;
            };
            let down = self.down.get(id);
            let count = down.map_or(0, |nodes| u32::try_from(nodes.len()).unwrap_or(u32::MAX));
            let down_already = down.is_some_and(|nodes| nodes.contains(&step.node));
            let may_exceed = self.stuck.get(id) == Some(&down.map_or(0, BTreeSet::len))
                && self.view.awaited.get(id).is_some_and(|awaited| awaited.contains(&step_id));
            if !down_already && !may_exceed && count >= budget.max_down {
                reasons.push(Reason::DisruptionBudget {
                    budget: budget.name.clone(),
                    down: count,
                    max_down: budget.max_down,
                });
            }
        }
    }
}
