//! A step as the annealer sees it: its intent, its progress and the count of its parents.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::StepState;
use crate::catalog::{Join, JoinAfter, JoinNeed, Needs};
use crate::cluster::EdgeKind;
use crate::ids::{BlueprintNumber, NodeId, StepId};

/// The maximum delay before a retry.
pub const MAX_BACKOFF: Duration = Duration::from_secs(3600);

/// A step: its intent, which only a commit changes, and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Derived from node, role, instance and action.
    pub id: StepId,
    /// The node that it runs on, or for.
    pub node: NodeId,
    /// Longest path from a root. Rises along every edge.
    pub rank: u32,
    /// The parents that must finish before it starts.
    pub join: Join,
    /// Loses data, and so runs once per generation.
    pub destructive: bool,
    /// Has no run: milestones, stages, barriers.
    pub immediate: bool,
    /// Left out. It passes like an immediate step and has no output. The reason is stored
    /// elsewhere.
    pub skipped: bool,
    /// The state that its node must have.
    pub needs: Needs,
    /// Number of failures that are retried. The next one is an ERROR.
    pub retries: u32,
    /// Seconds before the first retry; see [`backoff`].
    pub backoff: u32,
    pub progress: Progress,
}

/// The columns of a step that transitions write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub state: StepState,
    /// Parents that the join still lacks, plus order-only parents that are still going to run.
    pub pending: u32,
    /// Number of hard and soft parents that satisfy the join. For joins other than *all*, the
    /// caller loads it, from a column or by counting the parents. For *all* it is neither read nor
    /// written, because each parent changes `pending` by exactly one. For *any* and *at least n*,
    /// `pending = 0` does not say how many satisfied parents exceed the need.
    pub satisfied: u32,
    /// The target that last changed or re-ran it.
    pub generation: BlueprintNumber,
    /// The generation whose result is applied. `None` before the first success (0 in the database).
    pub applied: Option<BlueprintNumber>,
    /// Failures since the last success, re-run or retry by a person.
    pub failures: u32,
    /// Why it must run again although a result is applied. Without a cause the result stays valid.
    /// So this field decides whether a BLOCKED step runs, or becomes ACTIVE at once, when its join
    /// holds again.
    pub cause: Option<Cause>,
    /// The last error. Stays during retries.
    pub error: Option<String>,
    /// Whether its node is alive. Always true on a phantom.
    pub node_up: bool,
}

impl Progress {
    /// A step before its commit. [`super::Change::Commit`] counts its parents and sets its state.
    pub fn new(generation: BlueprintNumber, node_up: bool) -> Self {
        Self {
            state: StepState::Blocked,
            pending: 0,
            satisfied: 0,
            generation,
            applied: None,
            failures: 0,
            cause: None,
            error: None,
            node_up,
        }
    }
}

/// Reason for a re-run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RerunReason {
    /// A commit changed the desired state of the step.
    Changed,
    /// A commit re-runs the step as part of a slice.
    Slice,
    /// Data that the step reads changed without a commit (system data, output of a parent).
    Data,
    /// A hook requested the re-run.
    Hook,
    /// The inventory contradicts the applied result.
    Drift,
    /// A check of the applied result failed.
    Check,
    /// Its node does not answer. Replaced when the node returns, so no run has this cause.
    NodeAway,
    /// The node died and came back.
    NodeBack,
    /// A person retried the step.
    Retry,
}

impl RerunReason {
    const ALL: [Self; 9] = [
        Self::Changed,
        Self::Slice,
        Self::Data,
        Self::Hook,
        Self::Drift,
        Self::Check,
        Self::NodeAway,
        Self::NodeBack,
        Self::Retry,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Slice => "slice",
            Self::Data => "data",
            Self::Hook => "hook",
            Self::Drift => "drift",
            Self::Check => "check",
            Self::NodeAway => "node_away",
            Self::NodeBack => "node_back",
            Self::Retry => "retry",
        }
    }
}

/// A pending re-run. The database stores it as text: `drift`, or `drift again`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    pub reason: RerunReason,
    /// The cause arose while an attempt was running. The attempt started before it, so its success
    /// is applied and the step runs once more.
    pub again: bool,
}

impl Cause {
    /// A cause that the next attempt resolves.
    pub fn new(reason: RerunReason) -> Self {
        Self { reason, again: false }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())?;
        if self.again { f.write_str(" again") } else { Ok(()) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unknown cause of a re-run: {0:?}")]
pub struct UnknownCause(pub String);

impl FromStr for Cause {
    type Err = UnknownCause;
    fn from_str(text: &str) -> Result<Self, UnknownCause> {
        let (word, again) = match text.strip_suffix(" again") {
            Some(word) => (word, true),
            None => (text, false),
        };
        let reason = RerunReason::ALL.into_iter().find(|reason| reason.as_str() == word);
        reason.map(|reason| Self { reason, again }).ok_or_else(|| UnknownCause(text.to_owned()))
    }
}

impl Serialize for Cause {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Step {
    /// Whether it becomes ACTIVE without a run as soon as its join holds.
    pub fn is_immediate(&self) -> bool {
        self.immediate || self.skipped
    }

    /// Whether the result of its generation is applied.
    pub fn is_applied(&self) -> bool {
        self.progress.applied == Some(self.progress.generation)
    }

    /// Whether it must not run again at this generation: destructive and applied. A skipped step
    /// did nothing.
    pub fn is_final(&self) -> bool {
        self.destructive && self.is_applied() && !self.is_immediate()
    }

    /// Whether it becomes ACTIVE without a run when its join holds: immediate, or applied without a
    /// cause. An applied destructive step ignores its cause.
    ///
    /// A TODO step for which this is true is left over from a batch ([`super::BATCH`]) and must not
    /// start.
    pub fn needs_no_run(&self) -> bool {
        self.is_immediate()
            || (self.is_applied() && (self.destructive || self.progress.cause.is_none()))
    }

    /// Whether it is ERROR because of its check. A failed run of an applied step leaves a cause.
    pub fn is_check_failed(&self) -> bool {
        self.progress.state == StepState::Error
            && self.is_applied()
            && self.progress.cause.is_none()
            && !self.is_immediate()
    }

    /// Whether nothing is left to do.
    pub fn is_converged(&self) -> bool {
        self.progress.state == StepState::Active && self.is_applied()
    }
}

/// The result of counting a step's parents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// The value of [`Progress::pending`].
    pub pending: u32,
    /// The value of [`Progress::satisfied`], for joins other than *all*.
    pub satisfied: u32,
}

/// Counts a step's parents. Each parent has the kind of its edge, its state, and whether it is
/// skipped.
///
/// A *hard* or *soft* parent satisfies the join when it is ACTIVE, or in ERROR for joins *after
/// end*. An *order-only* parent never counts for the join. It delays its child while it runs or is
/// still going to run, unless it is skipped.
///
/// *At least n* with fewer than n parents never holds: it fails closed, and planning rejects it.
/// *Any* without parents holds.
pub fn count(join: Join, parents: impl IntoIterator<Item = (EdgeKind, StepState, bool)>) -> Count {
    let (mut countable, mut satisfied, mut unfinished) = (0, 0, 0);
    for (kind, state, skipped) in parents {
        let satisfies = satisfies(kind, join.after, state, skipped);
        if kind == EdgeKind::OrderOnly {
            unfinished += u32::from(!satisfies);
        } else {
            countable += 1;
            satisfied += u32::from(satisfies);
        }
    }
    let missing = match join.need {
        JoinNeed::All => countable - satisfied,
        JoinNeed::Any if countable == 0 => 0,
        need => missing(need, satisfied),
    };
    let satisfied = if join.need == JoinNeed::All { 0 } else { satisfied };
    Count { pending: missing + unfinished, satisfied }
}

/// Whether a parent in this state satisfies a child's edge of this kind.
pub(super) fn satisfies(kind: EdgeKind, after: JoinAfter, state: StepState, skipped: bool) -> bool {
    match kind {
        EdgeKind::OrderOnly => skipped || !state.is_ahead(),
        EdgeKind::Hard | EdgeKind::Soft => {
            state == StepState::Active || (state == StepState::Error && after == JoinAfter::End)
        }
    }
}

/// Number of missing parents. Not for *all*, which also needs the number of parents.
pub(super) fn missing(need: JoinNeed, satisfied: u32) -> u32 {
    match need {
        JoinNeed::All => 0,
        JoinNeed::Any => u32::from(satisfied == 0),
        JoinNeed::AtLeast(n) => n.saturating_sub(satisfied),
    }
}

/// The delay before the next attempt: `initial` seconds after the first failure, twice as long
/// after each further one, at most [`MAX_BACKOFF`].
pub fn backoff(initial: u32, failures: u32) -> Duration {
    let doubled = u64::from(initial).saturating_mul(1 << failures.saturating_sub(1).min(31));
    Duration::from_secs(doubled).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use StepState::*;

    #[test]
    fn causes_round_trip() {
        for reason in RerunReason::ALL {
            for again in [false, true] {
                let cause = Cause { reason, again };
                assert_eq!(cause.to_string().parse(), Ok(cause));
                assert_eq!(
                    serde_json::from_value::<Cause>(serde_json::to_value(cause).unwrap()).unwrap(),
                    cause
                );
            }
        }
        assert!("again".parse::<Cause>().is_err() && "Drift".parse::<Cause>().is_err());
    }

    #[test]
    fn join_counts_missing_parents() {
        use EdgeKind::*;
        let join = |need, after| Join { need, after };
        let pending = |join, parents: &[(EdgeKind, StepState, bool)]| {
            count(join, parents.iter().copied()).pending
        };
        let parents = [
            (Hard, Active, false),
            (Soft, Error, false),
            (Hard, Blocked, true),
            (OrderOnly, Todo, false),
            (OrderOnly, Error, false),
            (OrderOnly, Blocked, true),
        ];
        for (need, after, expected) in [
            (JoinNeed::All, JoinAfter::Success, 2 + 1),
            (JoinNeed::All, JoinAfter::End, 1 + 1),
            (JoinNeed::Any, JoinAfter::Success, 1),
            (JoinNeed::AtLeast(2), JoinAfter::Success, 1 + 1),
            (JoinNeed::AtLeast(2), JoinAfter::End, 1),
            (JoinNeed::AtLeast(5), JoinAfter::End, 3 + 1),
        ] {
            assert_eq!(pending(join(need, after), &parents), expected, "{need:?} {after:?}");
        }
        assert_eq!(pending(join(JoinNeed::Any, JoinAfter::Success), &[]), 0);
        assert_eq!(
            pending(join(JoinNeed::Any, JoinAfter::Success), &[(OrderOnly, Transition, false)]),
            1
        );
        assert_eq!(
            pending(join(JoinNeed::AtLeast(1), JoinAfter::Success), &[]),
            1,
            "a join that needs more parents than it has stays blocked"
        );
    }

    #[test]
    fn backoff_doubles_up_to_one_hour() {
        let seconds: Vec<u64> = (0..5).map(|n| backoff(5, n).as_secs()).collect();
        assert_eq!(seconds, [5, 5, 10, 20, 40]);
        assert_eq!(backoff(5, u32::MAX), MAX_BACKOFF);
        assert_eq!(backoff(u32::MAX, 40), MAX_BACKOFF);
        assert_eq!(backoff(0, 9), Duration::ZERO);
    }
}
