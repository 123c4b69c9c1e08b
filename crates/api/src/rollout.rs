//! The rollout of a blueprint: its progress by wave, its failed steps, and its runs by node.

use engine::counting::{duration, either, grouped, many};
use engine::ids::{ActionName, DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName, RunId};
use serde::{Deserialize, Serialize};

use crate::blueprints::{BlueprintSummary, Progress};
use crate::runs::{RunState, StateCounts};
use crate::{Allowed, At};

/// Maximum number of waves in a rollout.
pub const MAX_WAVES: usize = 200;
/// Maximum number of failed steps in a rollout.
pub const MAX_FAILED_STEPS: usize = 100;
/// Maximum number of steps that one request retries.
pub const MAX_RETRIED_STEPS: usize = 200;
/// Maximum number of nodes in a timeline.
pub const MAX_TIMELINE_NODES: usize = 100;
/// Maximum number of newest runs in a timeline.
pub const MAX_TIMELINE_RUNS: usize = 400;
/// Maximum number of failed runs in a timeline, in addition to the newest runs.
pub const MAX_TIMELINE_FAILED_RUNS: usize = 100;

/// The steps of a blueprint that no later blueprint changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rollout {
    /// The blueprint.
    pub blueprint: BlueprintSummary,
    /// Progress.
    pub progress: Progress,
    /// Steps by state.
    pub steps: StateCounts,
    /// Number of steps.
    pub all: i64,
    /// Number of steps that are applied.
    pub applied: i64,
    /// Estimated time until the rollout is complete, in seconds, from the pace of its last 100
    /// runs. Null if it is not in progress, or if fewer than five runs succeeded.
    pub seconds_left: Option<i64>,
}

impl Rollout {
    /// `640 of 1,000 steps, about 70 s left, 3 failed`.
    pub fn text(&self) -> String {
        let noun = either(self.all, "step", "steps");
        let mut text = format!("{} of {} {noun}", grouped(self.applied), grouped(self.all));
        if let Some(left) = self.seconds_left {
            text += &format!(", about {} left", approximate(left));
        }
        if self.steps.error > 0 {
            text += &format!(", {} failed", grouped(self.steps.error));
        }
        text
    }
}

/// An estimated duration without false precision: `70 s`, `12 min`, `3 h 10 min`.
fn approximate(seconds: i64) -> String {
    match seconds {
        ..20 => format!("{} s", seconds.max(1)),
        20..120 => format!("{} s", (seconds + 5) / 10 * 10),
        120..3600 => format!("{} min", (seconds + 30) / 60),
        _ => duration(u64::try_from((seconds + 150) / 300 * 300 * 1000).unwrap_or(u64::MAX)),
    }
}

/// The rollout of a blueprint in detail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlueprintProgress {
    /// The rollout in numbers.
    pub rollout: Rollout,
    /// Steps by wave, in the order in which they run. A wave waits only for earlier waves.
    pub waves: Vec<StateCounts>,
    /// Whether further waves are left out.
    pub more_waves: bool,
    /// Failed steps in the order in which they run, at most 100.
    pub failed: Vec<FailedStep>,
    /// Number of failed steps that are destructive.
    pub failed_destructive: i64,
    /// Runs by node.
    pub timeline: Timeline,
    /// Whether you can retry failed steps. Otherwise the reason.
    pub may_retry: Allowed,
    /// Journal position of this view.
    pub cursor: i64,
}

/// A failed step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedStep {
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// The action of the step.
    #[serde(default = "ActionName::run", skip_serializing_if = "ActionName::is_run")]
    pub action: ActionName,
    /// Id of the node.
    pub node: NodeId,
    /// Full name of the node.
    pub fqdn: String,
    /// The deployment that the noderole is bound in.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// Whether the step destroys data.
    pub destructive: bool,
    /// Error message.
    pub error: Option<String>,
    /// Time when it failed.
    pub since: At,
}

/// The runs of a blueprint, by node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timeline {
    /// Nodes with their runs: those with a failed newest run first, then by the first run.
    pub nodes: Vec<TimelineNode>,
    /// Number of nodes with runs.
    pub all_nodes: i64,
    /// Number of runs. The count stops at 100,000.
    pub all_runs: i64,
}

/// The runs on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimelineNode {
    /// Id of the node.
    pub node: NodeId,
    /// Full name of the node.
    pub fqdn: String,
    /// Its runs, oldest first.
    pub runs: Vec<TimelineRun>,
}

/// A run in a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimelineRun {
    /// Run number.
    pub id: RunId,
    /// The role.
    pub role: RoleName,
    /// State of the run.
    pub state: RunState,
    /// Time when a worker leased it, or when it was queued.
    pub from: At,
    /// Time when it ended.
    pub to: Option<At>,
}

/// Retries the failed steps of a blueprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryFailed {
    /// Reason, which the audit stores for each step.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub reason: String,
    /// Also retry steps that destroy data. Otherwise they are left out.
    #[serde(default)]
    pub destructive: bool,
}

/// Outcome of a retry of a blueprint's failed steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetriedSteps {
    /// Number of steps that run again.
    pub retried: usize,
    /// Number of destructive steps that were left out because the request did not include them.
    pub destructive: usize,
    /// Steps that could not be retried, with the reason.
    pub refused: Vec<RefusedRetry>,
    /// Whether further steps failed. Send the request again to retry them.
    pub more: bool,
}

impl RetriedSteps {
    /// The outcome in one to three sentences.
    pub fn text(&self) -> String {
        let mut text = match (self.retried, self.destructive + self.refused.len()) {
            (0, 0) => "No step of this blueprint has failed.".to_owned(),
            (1, _) => "1 step runs again.".to_owned(),
            (n, _) => format!("{n} steps run again."),
        };
        if self.destructive > 0 {
            let verb = if self.destructive == 1 { "was" } else { "were" };
            let steps = many(self.destructive, "destructive step");
            text += &format!(" {steps} {verb} left out: confirm to include them.");
        }
        if let Some(first) = self.refused.first() {
            let steps = many(self.refused.len(), "step");
            let RefusedRetry { role, fqdn, reason, .. } = first;
            text += &format!(" {steps} could not be retried, first {role} on {fqdn}: {reason}");
        }
        if self.more {
            text += " More steps have failed. Retry again.";
        }
        text
    }
}

/// A step that could not be retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedRetry {
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// Id of the node.
    pub node: NodeId,
    /// Full name of the node.
    pub fqdn: String,
    /// The reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_rounded() {
        let message =
            [(0, "1 s"), (7, "7 s"), (68, "70 s"), (700, "12 min"), (11_390, "3 h 10 min")];
        for (seconds, text) in message {
            assert_eq!(approximate(seconds), text);
        }
    }

    #[test]
    fn outcome_names_all_left_out_steps() {
        assert_eq!(RetriedSteps::default().text(), "No step of this blueprint has failed.");
        let refused = RefusedRetry {
            noderole: NoderoleId(uuid::Uuid::nil()),
            role: RoleName::parse("app").expect("a name"),
            node: NodeId(uuid::Uuid::nil()),
            fqdn: "n1.demo".into(),
            reason: "It was removed.".into(),
        };
        let mixed = RetriedSteps { retried: 3, destructive: 1, refused: vec![refused], more: true };
        assert_eq!(
            mixed.text(),
            "3 steps run again. 1 destructive step was left out: confirm to include them. 1 step \
             could not be retried, first app on n1.demo: It was removed. More steps have failed. \
             Retry again."
        );
    }
}
