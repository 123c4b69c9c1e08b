//! Runs and the states of steps.

use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId, ReviewId,
    RoleName, RunId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};
use crate::values::Provenance;
use crate::{Allowed, At};

/// State of a step. `proposed` marks an addition of a draft and is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// A draft adds the step.
    Proposed,
    /// The step waits for other steps.
    Blocked,
    /// The step is ready to run.
    Todo,
    /// The step runs or is about to run.
    Transition,
    /// The step is applied.
    Active,
    /// The step failed.
    Error,
}

impl StepState {
    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Proposed => "PROPOSED",
            Self::Blocked => "BLOCKED",
            Self::Todo => "TODO",
            Self::Transition => "TRANSITION",
            Self::Active => "ACTIVE",
            Self::Error => "ERROR",
        }
    }

    /// The name in CSS classes and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Blocked => "blocked",
            Self::Todo => "todo",
            Self::Transition => "transition",
            Self::Active => "active",
            Self::Error => "error",
        }
    }

    pub fn from_name(word: &str) -> Option<Self> {
        let all = [
            Self::Proposed,
            Self::Blocked,
            Self::Todo,
            Self::Transition,
            Self::Active,
            Self::Error,
        ];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

/// Numbers of steps by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateCounts {
    /// Steps in BLOCKED.
    pub blocked: i64,
    /// Steps in TODO.
    pub todo: i64,
    /// Steps in TRANSITION.
    pub transition: i64,
    /// Steps in ACTIVE.
    pub active: i64,
    /// Steps in ERROR.
    pub error: i64,
    /// Steps in ACTIVE whose input has changed since their last run, or is being compared. A
    /// deployment with stale steps is not converged.
    #[serde(default)]
    pub stale: i64,
    /// Steps in ACTIVE whose check does not pass: it failed, has not run since the step became
    /// ACTIVE, or no worker runs it. A deployment with such steps is not converged.
    #[serde(default)]
    pub unchecked: i64,
}

impl StateCounts {
    /// The number of steps in a state. Proposed noderoles are not steps yet, so they are not
    /// counted.
    pub fn of(&self, state: StepState) -> i64 {
        match state {
            StepState::Proposed => 0,
            StepState::Blocked => self.blocked,
            StepState::Todo => self.todo,
            StepState::Transition => self.transition,
            StepState::Active => self.active,
            StepState::Error => self.error,
        }
    }

    pub fn count(&mut self, state: StepState) {
        match state {
            StepState::Proposed => {}
            StepState::Blocked => self.blocked += 1,
            StepState::Todo => self.todo += 1,
            StepState::Transition => self.transition += 1,
            StepState::Active => self.active += 1,
            StepState::Error => self.error += 1,
        }
    }

    /// The numbers of stale and unchecked steps in words, such as `2 stale`. Zeros are left out.
    pub fn marks(&self) -> impl Iterator<Item = String> + use<> {
        let all = [(self.stale, "stale"), (self.unchecked, "unchecked")];
        all.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"))
    }
}

sort! {
    RunSort, Order::descending(Self::Queued), {
        Queued "queued" [Number],
        /// Name of the state.
        State "state" [Text, Number],
        /// Duration. A run that has not ended counts as zero.
        Durations "duration" [Number, Number],
    }
}

/// Filters of the list of runs. An empty filter matches all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RunsQuery {
    /// `queued`, `running`, `succeeded`, `failed`, `lost`, `canceled` or `unstarted`.
    pub state: String,
    /// Name of the deployment that the noderole is bound in.
    pub deployment: String,
    /// Name or id of the node.
    pub node: String,
    /// Role name.
    pub role: String,
    /// Name or id of the worker that executes or executed the run.
    pub worker: String,
    /// Earliest queue time, inclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<At>,
    /// Latest queue time, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<At>,
    /// Sort order. Default: newest first.
    pub sort: Order<RunSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run waits for a worker.
    Queued,
    /// A worker executes the run.
    Running,
    /// The run succeeded.
    Succeeded,
    /// The run failed.
    Failed,
    /// The worker's lease expired.
    Lost,
    /// A person canceled the run.
    Canceled,
    /// The run ended before it started. Its step is pending again.
    Unstarted,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// Run number, which is also the fencing token.
    pub id: RunId,
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// The action of the step: `run`, or `remove` for a noderole that is removed.
    #[serde(default = "ActionName::run", skip_serializing_if = "ActionName::is_run")]
    pub action: ActionName,
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node.
    pub fqdn: String,
    /// The deployment that the noderole is bound in.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// State of the run.
    pub state: RunState,
    /// Reason of a re-run.
    pub cause: Option<String>,
    /// The blueprint that it executes.
    pub blueprint: BlueprintNumber,
    /// The worker that executes or executed it.
    pub worker: Option<String>,
    /// Id of the worker.
    pub worker_id: Option<Uuid>,
    /// Time when it was queued.
    pub queued: At,
    /// Time when a worker leased it.
    pub started: Option<At>,
    /// Time when it ended.
    pub ended: Option<At>,
    /// Error message.
    pub error: Option<String>,
}

/// A run with its input and result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunView {
    /// The run.
    pub run: RunSummary,
    /// Input, with secrets as references.
    pub input: Value,
    /// Source of each input value, at most 200.
    pub provenance: Vec<Provenance>,
    /// Number of input values.
    pub values: usize,
    /// Result of the run, also of a failed one. Null if it returned none or it is no longer stored.
    pub result: Option<Value>,
    /// Whether it returned a result that is no longer stored.
    pub result_expired: bool,
    /// Output: the difference between result and input.
    pub output: Option<Value>,
    /// All runs of the same step, newest first, at most 50.
    pub attempts: Vec<RunSummary>,
    /// The review that approved the run's blueprint.
    pub review: Option<ReviewId>,
    /// Whether you can cancel it. Otherwise the reason.
    pub may_cancel: Allowed,
    /// Length of the log, in bytes.
    pub log_bytes: i64,
    /// Journal position of this view.
    pub cursor: i64,
    /// Limits of runs from the role (retries, timeout, error scope, priority).
    #[serde(default)]
    pub limits: Vec<RunLimit>,
}

/// A limit of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunLimit {
    /// Name of the limit, for example `Time limit`.
    pub name: String,
    /// Value as text, for example `60 s`.
    pub value: String,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPart {
    /// Consecutive pieces, without gaps or overlaps.
    pub pieces: Vec<LogPiece>,
    /// Offset of the next part.
    pub next: i64,
    /// Whether the run has ended and this is the last part.
    pub complete: bool,
}

/// A piece of a log, as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPiece {
    /// Offset of its first byte in the log.
    pub offset: i64,
    /// Length in bytes of the log. It differs from the length of `text` if the piece is invalid
    /// UTF-8. Then `text` is only a note about it.
    pub bytes: i64,
    /// Time when it was received.
    pub at: At,
    /// Text of the piece.
    pub text: String,
}

/// Result of a search in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogSearchResult {
    /// Matching lines, in order.
    pub hits: Vec<LogHit>,
    /// Cursor to continue the search.
    pub next: String,
    /// Number of bytes searched so far, from the start of the log.
    pub searched: i64,
    /// Current length of the log, in bytes.
    pub length: i64,
    /// Whether there is more to search.
    pub more: bool,
}

/// A line of a log that matches a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogHit {
    /// Offset of the line's first byte in the log.
    pub offset: i64,
    /// Line number, starting at 1.
    pub line: i64,
    /// Text of the line around the match, at most 200 characters.
    pub text: String,
}

/// A page of the list of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunPage {
    /// The runs, newest first by default.
    pub runs: Vec<RunSummary>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

paged! {
    RunPage: runs of RunSummary,
}
