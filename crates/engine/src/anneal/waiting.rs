//! Why not yet: every step that is not done, by the one thing that it waits for first.
//!
//! A step may have many reasons not to start ([`why_not`]); a list has one place for it. So the reasons have an order, the order of
//! [`Wait`]'s declaration: what holds this step alone, and stays until somebody does something, comes before what holds everything,
//! and that before what passes by itself. When execution is switched on again, what was listed under *paused* starts; what has a
//! dead node beside was listed there.
//!
//! The database says the same of many steps in one statement (`store`'s `waiting.sql`); a test compares the two over random states.
//! What a page tells of a single step in full sentences is [`why_not`] again.
//!
//! Of what is blocked, two kinds are told apart: behind a failure, where nothing happens until a person acts on a step above
//! ([`struck`]), and in line, where everything above is still going to run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::admission::{AdmissionView, Limits, Reason, why_not};
use super::{Child, StepState};
use crate::catalog::JoinAfter;
use crate::cluster::EdgeKind;
use crate::ids::StepId;

/// Seconds that a run may take beyond its time before it is called overdue: its worker ends it, and ending takes a moment.
pub const ENDING: u32 = 60;

macro_rules! waits {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal, $heading:literal, $frees:literal;)*) => {
        /// What a step waits for first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Wait {
            $($(#[doc = $doc])* $name,)*
        }

        impl Wait {
            /// All of them, the first to be told first.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in addresses and in the database's answer.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// What stands above a list of such steps.
            pub fn heading(self) -> &'static str {
                match self { $(Self::$name => $heading,)* }
            }

            /// Who or what frees such steps.
            pub fn frees(self) -> &'static str {
                match self { $(Self::$name => $frees,)* }
            }
        }
    };
}

waits! {
    /// A TODO step that needs no run.
    Rests = "rests", "Become active by themselves", "the next sweep of a worker, within seconds";
    /// Something that it names is not there, or a step in TRANSITION has no attempt.
    Unknown = "unknown", "Damaged", "a person: run `gantry verify`, and restore from a backup what it names";
    /// It is in ERROR: its failures went beyond its role's limit, or somebody cancelled it.
    Failed = "failed", "Failed", "a person: look at the last run, then retry the step or change it by a proposal";
    /// A step above it is in ERROR.
    BehindFailure = "behind_failure", "Behind a failure", "a person: retry or change the failed step above";
    /// Its jig is switched off.
    Jig = "jig", "Jig switched off", "a person: a proposal that switches the jig on";
    /// No worker carries out its jig.
    Unserved = "unserved", "No worker for the jig", "a person: start a worker that has the jig";
    /// Its node was taken out of service.
    Unavailable = "unavailable", "Node out of service", "a person: make the node available";
    /// Its node does not answer.
    NodeDead = "node_dead", "Node does not answer", "the node, as soon as it answers; a person, if it never will";
    /// Its node has not joined.
    NotJoined = "not_joined", "Node has not joined", "a worker, as soon as it is let in on the node";
    /// It is for a dead node, and this one answers.
    NodeAlive = "node_alive", "Node answers, and should not", "the node, when it is down";
    /// An ERROR freezes its node.
    Frozen = "frozen", "Node frozen by a failure", "a person: retry or change the step that failed on the node";
    /// Its deployment, or one above, is held.
    Held = "held", "Deployment held", "whoever holds the deployment, or another operator: release it";
    /// Execution is off.
    Paused = "paused", "Execution is off", "an operator: switch execution on";
    /// No worker is there.
    NoWorker = "no_worker", "No worker", "a person: start a worker";
    /// A run is queued, and no worker has taken it yet.
    Queued = "queued", "Queued for a worker", "a worker, as soon as it has a free slot";
    /// Its run should have ended.
    Overdue = "overdue", "Overdue", "a worker: it ends runs whose workers are not heard of, and goes on";
    /// It failed, and is tried again later.
    Backoff = "backoff", "Waits to be tried again", "time, or an operator who retries it now";
    /// Its failure domain has as many nodes down as may be.
    Budget = "budget", "Budget used up", "the nodes that are down, when they are well again";
    /// A chunk of its lane is under way.
    Chunk = "chunk", "Chunk under way", "the runs of the present chunk, when the last has ended";
    /// Its lane is full.
    Lane = "lane", "Lane full", "a run of the lane, when it ends";
    /// An exclusive run is on its node.
    Exclusive = "exclusive", "Node busy", "the run on its node, when it ends";
    /// As many runs are open as may be.
    Room = "room", "No room", "any run, when it ends; more workers help";
    /// Its parents are still to run.
    Parents = "parents", "In line behind other steps", "the steps that it waits for, when they are done";
    /// Nothing is against it.
    Next = "next", "Start next", "the next claim, within seconds";
}

/// A text that is no reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is nothing that steps wait for")]
pub struct UnknownWait(pub String);

impl FromStr for Wait {
    type Err = UnknownWait;
    fn from_str(text: &str) -> Result<Self, UnknownWait> {
        let found = Self::ALL.iter().copied().find(|wait| wait.as_str() == text);
        found.ok_or_else(|| UnknownWait(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Wait {
    /// Whether nothing happens until somebody does something about this step or what is before it. A worker or a node that is missing is
    /// not of that kind: they come back by themselves, after a restart or an upgrade, and what waits for them goes on.
    pub fn needs_somebody(self) -> bool {
        matches!(
            self,
            Self::Unknown
                | Self::Failed
                | Self::BehindFailure
                | Self::Jig
                | Self::Unavailable
                | Self::Frozen
                | Self::Held
                | Self::Paused
        )
    }

    /// The states in which a step may wait for this.
    pub fn states(self) -> &'static [StepState] {
        match self {
            Self::Failed => &[StepState::Error],
            Self::BehindFailure | Self::Parents => &[StepState::Blocked],
            Self::Queued | Self::Overdue => &[StepState::Transition],
            Self::Unknown | Self::Unserved | Self::NoWorker => {
                &[StepState::Todo, StepState::Transition]
            }
            _ => &[StepState::Todo],
        }
    }
}

impl Reason {
    /// Under which heading a step with this reason is listed, if it has no earlier one.
    pub fn wait(&self) -> Wait {
        match self {
            Self::Paused => Wait::Paused,
            Self::Room { capacity: 0, .. } => Wait::NoWorker,
            Self::Room { .. } => Wait::Room,
            Self::State { state: StepState::Error, .. } => Wait::Failed,
            Self::State { state: StepState::Blocked, .. } => Wait::Parents,
            Self::State { state: StepState::Transition, .. } => Wait::Queued,
            Self::State { .. } => Wait::Next,
            Self::Rests => Wait::Rests,
            Self::Backoff { .. } => Wait::Backoff,
            Self::Jig { .. } => Wait::Jig,
            Self::Unserved { .. } => Wait::Unserved,
            Self::Held { .. } => Wait::Held,
            Self::Unavailable { .. } => Wait::Unavailable,
            Self::NodeDead { .. } => Wait::NodeDead,
            Self::NodeAlive { .. } => Wait::NodeAlive,
            Self::NotJoined { .. } => Wait::NotJoined,
            Self::Frozen { .. } => Wait::Frozen,
            Self::Exclusive { .. } => Wait::Exclusive,
            Self::Lane { .. } => Wait::Lane,
            Self::Chunk { .. } => Wait::Chunk,
            Self::Budget { .. } => Wait::Budget,
            Self::Unknown { .. } => Wait::Unknown,
        }
    }
}

/// How far the open attempt at a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// No worker has it.
    Queued,
    /// A worker has it.
    Running {
        /// Its lease or its time (with [`ENDING`]) is over.
        over: bool,
    },
}

/// What a step waits for first; none for one that is done, or whose attempt is going on.
///
/// `attempt` is that of a step in TRANSITION; `struck` says of a BLOCKED one whether it is behind a failure.
pub fn wait_of(
    view: &AdmissionView,
    limits: Limits,
    step: StepId,
    attempt: Option<Attempt>,
    struck: bool,
) -> Option<Wait> {
    let found = view.steps.get(&step)?;
    match (found.state, attempt) {
        (StepState::Active, _)
        | (StepState::Transition, Some(Attempt::Running { over: false })) => None,
        (StepState::Error, _) => Some(Wait::Failed),
        (StepState::Blocked, _) if struck => Some(Wait::BehindFailure),
        (StepState::Blocked, _) => Some(Wait::Parents),
        (StepState::Transition, None) => Some(Wait::Unknown),
        (StepState::Transition, Some(Attempt::Running { over: true })) => Some(Wait::Overdue),
        (StepState::Transition, Some(Attempt::Queued)) if view.capacity == 0 => {
            Some(Wait::NoWorker)
        }
        (StepState::Transition, Some(Attempt::Queued)) if view.unserved.contains(&found.jig) => {
            Some(Wait::Unserved)
        }
        (StepState::Transition, Some(Attempt::Queued)) => Some(Wait::Queued),
        (StepState::Todo, _) => {
            Some(why_not(view, limits, step).iter().map(Reason::wait).min().unwrap_or(Wait::Next))
        }
    }
}

/// A step, as far as failures above it matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its state.
    pub state: StepState,
    /// What of its parents satisfies it.
    pub after: JoinAfter,
    /// It is left out.
    pub skipped: bool,
}

/// The BLOCKED steps that are behind a step in ERROR: directly, or behind others that are.
pub fn struck(
    steps: &BTreeMap<StepId, Link>,
    children: &BTreeMap<StepId, Vec<Child>>,
) -> BTreeSet<StepId> {
    let failed = steps.iter().filter(|(_, link)| link.state == StepState::Error).map(|(id, _)| *id);
    let mut open: Vec<StepId> = failed.collect();
    let mut found = BTreeSet::new();
    while let Some(parent) = open.pop() {
        let Some(above) = steps.get(&parent) else { continue };
        for child in children.get(&parent).into_iter().flatten() {
            let Some(below) =
                steps.get(&child.step).filter(|below| below.state == StepState::Blocked)
            else {
                continue;
            };
            let holds = match above.state {
                StepState::Error => {
                    child.kind != EdgeKind::OrderOnly && below.after == JoinAfter::Success
                }
                _ => !(child.kind == EdgeKind::OrderOnly && above.skipped),
            };
            if holds && found.insert(child.step) {
                open.push(child.step);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn what_needs_somebody_says_whom() {
        let people = ["a person", "an operator", "whoever"];
        let named = |wait: &Wait| people.iter().any(|somebody| wait.frees().starts_with(somebody));
        assert!(Wait::ALL.iter().filter(|wait| wait.needs_somebody()).all(named));
        for passes in [
            Wait::Parents,
            Wait::Backoff,
            Wait::Budget,
            Wait::NoWorker,
            Wait::NodeDead,
            Wait::Next,
            Wait::Queued,
        ] {
            assert!(!passes.needs_somebody(), "{passes}");
        }
    }

    #[test]
    fn words_are_read_as_they_are_written_and_none_comes_twice() {
        let words: BTreeSet<&str> = Wait::ALL.iter().map(|wait| wait.as_str()).collect();
        assert_eq!(words.len(), Wait::ALL.len());
        for wait in Wait::ALL {
            assert_eq!(wait.as_str().parse(), Ok(*wait));
            assert_eq!(serde_json::to_value(wait).unwrap(), wait.as_str());
            assert!(!wait.states().is_empty());
        }
        assert!("Failed".parse::<Wait>().is_err());
    }

    #[test]
    fn a_failure_strikes_what_waits_for_it_and_no_more() {
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
        assert_eq!(struck(&steps, &children), BTreeSet::from([id(2), id(3)]));
    }
}
