//! Pending reasons: the one reason that each unfinished step is listed under.
//!
//! [`unmet_rules`] returns all reasons of one step, and its page shows them. A list shows only the
//! first, in the order in which [`PendingReason`] declares them. First come reasons that concern
//! this step and need a person. Next are those that stop everything, then those that pass by
//! themselves. So the steps under *paused* start as soon as execution resumes; a step whose node is
//! also dead is not among them.
//!
//! The database computes the same in SQL: `migrations/src/admission.sql` for TODO steps,
//! `pending.sql` in `store` for the others. A test compares the two over random states.
//!
//! Two kinds of BLOCKED steps differ. After a failure, nothing happens until a person acts on an
//! ancestor ([`blocked_by_failure`]). The others only wait for ancestors that are still going to
//! run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::admission::{AdmissionView, Limits, Reason, unmet_rules};
use super::{Child, StepState};
use crate::catalog::JoinAfter;
use crate::cluster::EdgeKind;
use crate::ids::StepId;
use crate::walk::reachable;

/// Seconds after its timeout before a run counts as overdue, because its worker needs time to end
/// it.
pub const OVERDUE_GRACE: u32 = 60;

macro_rules! pending_reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal, $heading:literal, $frees:literal;)*) => {
        /// Why a step is pending. If several reasons apply, the first one in this order is
        /// reported.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum PendingReason {
            $($(#[doc = $doc])* $name,)*
        }

        impl PendingReason {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The value in URLs, and in the result of the database.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The heading of a list of such steps.
            pub fn heading(self) -> &'static str {
                match self { $(Self::$name => $heading,)* }
            }

            /// The person, or the event, that frees such steps.
            pub fn frees(self) -> &'static str {
                match self { $(Self::$name => $frees,)* }
            }
        }
    };
}

pending_reasons! {
    /// The step needs no run and becomes ACTIVE soon.
    NoRunNeeded = "no_run_needed", "No run needed", "the next sweep of a worker, within seconds";
    /// The step refers to something that does not exist, is in TRANSITION without an attempt, or is
    /// TODO although a parent is not done.
    Unknown = "unknown", "Damaged", "a person: run `gantry verify`, then restore the reported \
                                     objects from a backup";
    /// The step is in ERROR: it failed too often, or a person canceled it.
    Failed = "failed", "Failed", "a person: read the error, then retry the step or propose a change";
    /// An ancestor of the step is in ERROR.
    DependencyFailed = "dependency_failed", "Waiting for failed steps", "a person: retry or \
                                                                   change the failed step that they depend on";
    /// The jig of the step is turned off.
    Jig = "jig", "Jig turned off", "a person: submit a proposal that turns the jig on";
    /// No worker supports the jig of the step.
    NoWorkerForJig = "no_worker_for_jig", "No worker for the jig", "a person: start a worker that \
                                                     supports the jig";
    /// The node is in maintenance.
    Maintenance = "maintenance", "Node in maintenance", "a person: end the maintenance";
    /// The node is dead.
    NodeDead = "node_dead", "Node does not answer", "the node when it answers again, or a person \
                                                     if it is lost";
    /// The node has not joined yet.
    NotJoined = "not_joined", "Node has not joined", "a worker, as soon as the node accepts its \
                                                      connection";
    /// The step needs a dead node, and the node is alive.
    NodeAlive = "node_alive", "Node is up but must be down", "the node, when it is down";
    /// The ERROR of another step blocks the node.
    NodeBlocked = "node_blocked", "Node blocked by a failed step", "a person: retry or change the step that failed on the node";
    /// The deployment or an ancestor is on hold.
    OnHold = "on_hold", "Deployment on hold", "an operator: release the hold";
    /// Execution is off.
    Paused = "paused", "Execution is off", "an operator: turn execution on";
    /// No worker is running, or all are draining.
    NoWorker = "no_worker", "No worker", "a person: start or resume a worker";
    /// The run is queued, and no worker has leased it yet.
    Queued = "queued", "Queued for a worker", "a worker, as soon as it has a free slot";
    /// The run should have ended already.
    Overdue = "overdue", "Overdue", "a worker: it ends runs whose workers were lost";
    /// The step failed and waits for its next attempt.
    Backoff = "backoff", "Waiting for a retry", "the end of the retry delay, or an operator who \
                                                 retries it now";
    /// The disruption budget is exhausted.
    DisruptionBudget = "disruption_budget", "Disruption budget exhausted", "the nodes that are \
                                                       down, when they are up again";
    /// A chunk of the concurrency group is still running.
    Chunk = "chunk", "Chunk in progress", "the last run of the current chunk, when it ends";
    /// The concurrency group is full.
    ConcurrencyGroup = "concurrency_group", "Concurrency group full", "a run of the group, when it \
                                                                      ends";
    /// An exclusive run is open on the node.
    Exclusive = "exclusive", "Node busy", "the run on the node, when it ends";
    /// A run of another action of the noderole is open.
    OtherAction = "other_action", "Another action is running", "the other action of the noderole, \
                                                               when it ends";
    /// The limit of open runs is reached.
    RunLimit = "run_limit", "Run limit reached", "any run when it ends, or more workers";
    /// The parents of the step have not finished.
    Parents = "parents", "Waiting for other steps", "the parent steps, when they are done";
    /// Nothing prevents the step from starting.
    Ready = "ready", "Ready to start", "a worker, within seconds";
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unknown pending reason {0:?}")]
pub struct UnknownPendingReason(pub String);

impl FromStr for PendingReason {
    type Err = UnknownPendingReason;
    fn from_str(text: &str) -> Result<Self, UnknownPendingReason> {
        let found =
            Self::ALL.iter().copied().find(|pending_reason| pending_reason.as_str() == text);
        found.ok_or_else(|| UnknownPendingReason(text.chars().take(64).collect()))
    }
}

impl fmt::Display for PendingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PendingReason {
    /// Whether a person must act on this step or on one of its ancestors. This excludes a missing
    /// worker or node, because it returns by itself after a restart or an upgrade.
    pub fn needs_person(self) -> bool {
        matches!(
            self,
            Self::Unknown
                | Self::Failed
                | Self::DependencyFailed
                | Self::Jig
                | Self::Maintenance
                | Self::NodeBlocked
                | Self::OnHold
                | Self::Paused
        )
    }

    /// The states in which a step can have this reason.
    pub fn states(self) -> &'static [StepState] {
        match self {
            Self::Failed => &[StepState::Error],
            Self::DependencyFailed | Self::Parents => &[StepState::Blocked],
            Self::Queued | Self::Overdue => &[StepState::Transition],
            Self::Unknown | Self::NoWorkerForJig | Self::NoWorker => {
                &[StepState::Todo, StepState::Transition]
            }
            _ => &[StepState::Todo],
        }
    }
}

impl Reason {
    /// The pending reason of a step with this rule, if no earlier one applies.
    pub fn pending_reason(&self) -> PendingReason {
        match self {
            Self::Paused => PendingReason::Paused,
            Self::RunLimit { capacity: 0, .. } => PendingReason::NoWorker,
            Self::RunLimit { .. } => PendingReason::RunLimit,
            Self::State { state: StepState::Error, .. } => PendingReason::Failed,
            Self::State { state: StepState::Blocked, .. } => PendingReason::Parents,
            Self::State { state: StepState::Transition, .. } => PendingReason::Queued,
            Self::State { .. } => PendingReason::Ready,
            Self::NoRunNeeded => PendingReason::NoRunNeeded,
            Self::Backoff { .. } => PendingReason::Backoff,
            Self::Jig { .. } => PendingReason::Jig,
            Self::NoWorkerForJig { .. } => PendingReason::NoWorkerForJig,
            Self::OnHold { .. } => PendingReason::OnHold,
            Self::Maintenance { .. } => PendingReason::Maintenance,
            Self::NodeDead { .. } => PendingReason::NodeDead,
            Self::NodeAlive { .. } => PendingReason::NodeAlive,
            Self::NotJoined { .. } => PendingReason::NotJoined,
            Self::NodeBlocked { .. } => PendingReason::NodeBlocked,
            Self::Exclusive { .. } => PendingReason::Exclusive,
            Self::OtherAction { .. } => PendingReason::OtherAction,
            Self::ConcurrencyGroup { .. } => PendingReason::ConcurrencyGroup,
            Self::Chunk { .. } => PendingReason::Chunk,
            Self::DisruptionBudget { .. } => PendingReason::DisruptionBudget,
            Self::Unknown { .. } | Self::Miscounted => PendingReason::Unknown,
        }
    }
}

/// Progress of the open attempt at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// No worker has leased it.
    Queued,
    /// A worker has leased it.
    Running {
        /// Its lease, or its timeout plus [`OVERDUE_GRACE`], has expired.
        overdue: bool,
    },
}

/// The first pending reason of a step. `None` if the step is done or its attempt is running.
///
/// `attempt` is the attempt of a step in TRANSITION. `blocked_by_failure` says whether a BLOCKED
/// step comes after a failure.
pub fn pending_reason(
    view: &AdmissionView,
    limits: Limits,
    step: StepId,
    attempt: Option<Attempt>,
    blocked_by_failure: bool,
) -> Option<PendingReason> {
    let found = view.steps.get(&step)?;
    match (found.state, attempt) {
        (StepState::Active, _)
        | (StepState::Transition, Some(Attempt::Running { overdue: false })) => None,
        (StepState::Error, _) => Some(PendingReason::Failed),
        (StepState::Blocked, _) if blocked_by_failure => Some(PendingReason::DependencyFailed),
        (StepState::Blocked, _) => Some(PendingReason::Parents),
        (StepState::Transition, None) => Some(PendingReason::Unknown),
        (StepState::Transition, Some(Attempt::Running { overdue: true })) => {
            Some(PendingReason::Overdue)
        }
        (StepState::Transition, Some(Attempt::Queued)) if view.capacity == 0 => {
            Some(PendingReason::NoWorker)
        }
        (StepState::Transition, Some(Attempt::Queued))
            if view.unsupported_jigs.contains(&found.jig) =>
        {
            Some(PendingReason::NoWorkerForJig)
        }
        (StepState::Transition, Some(Attempt::Queued)) => Some(PendingReason::Queued),
        (StepState::Todo, _) => Some(
            unmet_rules(view, limits, step)
                .iter()
                .map(Reason::pending_reason)
                .min()
                .unwrap_or(PendingReason::Ready),
        ),
    }
}

/// The columns of a step that [`blocked_by_failure`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub state: StepState,
    /// Whether its parents must succeed or only end.
    pub after: JoinAfter,
    /// Left out, for example by a condition.
    pub skipped: bool,
}

/// The BLOCKED steps after a step in ERROR: its children, their children and so on.
pub fn blocked_by_failure(
    steps: &BTreeMap<StepId, Link>,
    children: &BTreeMap<StepId, Vec<Child>>,
) -> BTreeSet<StepId> {
    let failed = steps.iter().filter(|(_, link)| link.state == StepState::Error).map(|(id, _)| *id);
    let blocks = |above: &Link, child: &Child| {
        let below = steps.get(&child.step).filter(|below| below.state == StepState::Blocked);
        below.is_some_and(|below| match above.state {
            StepState::Error => {
                child.kind != EdgeKind::OrderOnly && below.after == JoinAfter::Success
            }
            _ => !(child.kind == EdgeKind::OrderOnly && above.skipped),
        })
    };
    let blocked = |parent: StepId| {
        let edges = steps.get(&parent).zip(children.get(&parent)).into_iter();
        let below = edges.flat_map(|(above, children)| children.iter().map(move |c| (above, c)));
        below.filter(|(above, child)| blocks(above, child)).map(|(_, child)| child.step)
    };
    let is_blocked =
        |id: &StepId| steps.get(id).is_some_and(|step| step.state == StepState::Blocked);
    reachable(failed, blocked).filter(is_blocked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn manual_pending_reason_names_responsible_person() {
        let people = ["a person", "an operator"];
        let named = |pending_reason: &PendingReason| {
            people.iter().any(|person| pending_reason.frees().starts_with(person))
        };
        assert!(
            PendingReason::ALL
                .iter()
                .filter(|pending_reason| pending_reason.needs_person())
                .all(named)
        );
        for passes in [
            PendingReason::Parents,
            PendingReason::Backoff,
            PendingReason::DisruptionBudget,
            PendingReason::NoWorker,
            PendingReason::NodeDead,
            PendingReason::Ready,
            PendingReason::Queued,
        ] {
            assert!(!passes.needs_person(), "{passes}");
        }
    }

    #[test]
    fn pending_reason_names_round_trip_and_are_unique() {
        let words: BTreeSet<&str> =
            PendingReason::ALL.iter().map(|pending_reason| pending_reason.as_str()).collect();
        assert_eq!(words.len(), PendingReason::ALL.len());
        for pending_reason in PendingReason::ALL {
            assert_eq!(pending_reason.as_str().parse(), Ok(*pending_reason));
            assert_eq!(serde_json::to_value(pending_reason).unwrap(), pending_reason.as_str());
            assert!(!pending_reason.states().is_empty());
        }
        assert!("Failed".parse::<PendingReason>().is_err());
    }

    #[test]
    fn failure_affects_only_dependent_blocked_steps() {
        let id = |n: u128| StepId(Uuid::from_u128(n));
        let link = |state, after| Link { state, after, skipped: false };
        use StepState::{Active, Blocked, Error, Todo};
        let steps = BTreeMap::from([
            (id(1), link(Error, JoinAfter::Success)),
            (id(2), link(Blocked, JoinAfter::Success)),
            (id(3), link(Blocked, JoinAfter::Success)),
            (id(4), link(Blocked, JoinAfter::End)),
            (id(5), link(Blocked, JoinAfter::Success)),
            (id(6), link(Active, JoinAfter::Success)),
            (id(7), link(Todo, JoinAfter::Success)),
            (id(8), link(Blocked, JoinAfter::Success)),
        ]);
        let to = |n, kind| Child { step: id(n), kind };
        let children = BTreeMap::from([
            (
                id(1),
                vec![
                    to(2, EdgeKind::Hard),
                    to(4, EdgeKind::Hard),
                    to(5, EdgeKind::OrderOnly),
                    to(6, EdgeKind::Soft),
                ],
            ),
            (id(2), vec![to(3, EdgeKind::OrderOnly)]),
            (id(6), vec![to(8, EdgeKind::Hard)]),
            (id(7), vec![to(8, EdgeKind::Hard)]),
        ]);
        assert_eq!(blocked_by_failure(&steps, &children), BTreeSet::from([id(2), id(3)]));
    }
}
