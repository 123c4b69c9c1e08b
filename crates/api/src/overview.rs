//! The overview page, the approval policy, and the progress of deployments.

use engine::gate::Policy;
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, PolicyNumber, ReviewId};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::blueprints::{BlueprintSummary, Progress};
use crate::call::Call;
use crate::pending::PendingGroup;
use crate::reviews::ReviewCount;
use crate::rollout::Rollout;
use crate::runs::StateCounts;

/// Maximum number of commits in an overview.
pub const MAX_COMMITS: usize = 5;
/// Maximum number of rollouts in an overview.
pub const MAX_ROLLOUTS: usize = 3;

/// Summary of the whole installation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overview {
    /// Number of the newest blueprint.
    pub blueprint: BlueprintNumber,
    /// Whether execution is on.
    pub enabled: bool,
    /// Deployments by state.
    pub deployments: DeploymentTally,
    /// Nodes by state.
    pub nodes: NodeTally,
    /// Steps by state.
    pub steps: StateCounts,
    /// Pending steps by reason, each with the first step. Reasons without steps are left out.
    pub stuck: Vec<PendingGroup>,
    /// Reviews that need your action.
    pub reviews: ReviewCount,
    /// Number of open reviews. The count stops at 1,000.
    pub open_reviews: i64,
    /// The newest blueprints whose rollout is not complete, newest first, at most three.
    #[serde(default)]
    pub rollouts: Vec<Rollout>,
    /// Latest commits, newest first.
    pub commits: Vec<BlueprintSummary>,
    /// Queued and running runs.
    pub queue: QueueTally,
    /// Workers that are alive.
    pub workers: WorkerTally,
    /// Runs of the last 24 hours, by the hour in which they were queued, oldest first. With very
    /// many runs, hours that could not be counted completely are left out.
    pub hours: Vec<Hour>,
    /// Your progress with the first steps, or null if you can't make proposals.
    pub first_steps: Option<FirstSteps>,
}

/// Runs that were queued within one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hour {
    /// Start of the hour.
    pub from: At,
    /// Number of runs.
    pub runs: i64,
    /// Number of runs that failed or were lost.
    pub failed: i64,
}

/// A person's progress with the tutorial steps, from the first edit to a retried step. Each step
/// counts once it has happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirstSteps {
    /// They edited a proposal.
    pub edited: bool,
    /// They submitted a proposal.
    pub submitted: bool,
    /// Another person gave a verdict on it, or they gave one on another person's review.
    pub reviewed: bool,
    /// It was committed, or they committed another person's review.
    pub committed: bool,
    /// A run of it ended.
    pub run_ended: bool,
    /// A failed step of it was retried.
    pub retried: bool,
    /// The deployment that they edited last, or one to start with.
    pub deployment: Option<DeploymentName>,
    /// The review that they submitted last.
    pub review: Option<ReviewId>,
}

impl FirstSteps {
    /// Whether all steps are done.
    pub fn is_complete(&self) -> bool {
        self.edited
            && self.submitted
            && self.reviewed
            && self.committed
            && self.run_ended
            && self.retried
    }
}

/// Numbers of deployments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentTally {
    /// All deployments.
    pub all: i64,
    /// Deployments on hold.
    pub on_hold: i64,
    /// Deployments with an open proposal.
    pub proposed: i64,
}

/// Numbers of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTally {
    /// All nodes.
    pub all: i64,
    /// Dead nodes.
    pub dead: i64,
    /// Nodes in maintenance.
    pub maintenance: i64,
}

/// Numbers of open runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueTally {
    /// Runs that wait for a worker.
    pub queued: i64,
    /// Runs that a worker executes.
    pub running: i64,
    /// Queue time of the oldest waiting run.
    pub oldest: Option<At>,
}

/// Numbers of workers with a valid lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerTally {
    /// Workers that are alive.
    pub alive: i64,
    /// Total number of runs that they execute at once. Draining workers take none.
    pub capacity: i64,
}

/// The approval policy in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyView {
    /// Policy number.
    pub number: PolicyNumber,
    /// Rules of the policy.
    pub policy: Policy,
    /// Time when the policy came into force.
    pub since: At,
    /// The person who changed the policy, or null for the initial policy.
    pub by: Option<String>,
    /// The blueprint that introduced the policy.
    pub blueprint: BlueprintNumber,
}

/// Progress of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentProgress {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// Progress. A deployment without steps is converged.
    pub progress: Progress,
    /// Steps of the deployment, by state.
    pub steps: StateCounts,
}

pub fn show_call() -> Call {
    Call::get("/overview").command(["overview"])
}
