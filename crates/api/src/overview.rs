//! How it stands: a few numbers, what is stuck, and what was committed last.

use engine::gate::Policy;
use engine::ids::{DeploymentName, PolicyNo, SubmissionId, TargetNo};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::console::{StateCounts, TargetSummary};
use crate::reviews::Waiting;
use crate::waiting::WaitingGroup;

/// Commits that an overview names.
pub const COMMITS: usize = 5;

/// How it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overview {
    /// The newest target.
    pub target: TargetNo,
    /// Whether steps are started.
    pub enabled: bool,
    /// Deployments.
    pub deployments: DeploymentTally,
    /// Machines.
    pub nodes: NodeTally,
    /// Steps by state.
    pub steps: StateCounts,
    /// What waits, by what it waits for, each with the first of it; reasons for which nothing waits are left out.
    pub stuck: Vec<WaitingGroup>,
    /// Reviews that wait for the reader.
    pub reviews: Waiting,
    /// Reviews that are open, at most 1,000 counted.
    pub open_reviews: i64,
    /// What was committed last, newest first.
    pub commits: Vec<TargetSummary>,
    /// Runs that are queued and running.
    pub queue: QueueTally,
    /// Who carries them out.
    pub workers: WorkerTally,
    /// Runs by the hour in which they were queued, the last 24 hours, oldest first. Where there are very many, hours that could not be
    /// counted whole are left out.
    pub hours: Vec<Hour>,
    /// How far the reader has come with the first steps; None: they are nobody who proposes.
    pub first_steps: Option<FirstSteps>,
}

/// Runs that were queued in one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hour {
    /// Its beginning.
    pub from: At,
    /// All.
    pub runs: i64,
    /// Those that failed or were lost.
    pub failed: i64,
}

/// What somebody who proposes has done of what leads from a board to a step that was tried again. Each is what really happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirstSteps {
    /// They edited a proposal.
    pub edited: bool,
    /// They submitted one.
    pub submitted: bool,
    /// Somebody else gave a verdict on it.
    pub judged: bool,
    /// It was committed.
    pub committed: bool,
    /// A run that it asked for has ended.
    pub ran: bool,
    /// One failed, and the step was tried again.
    pub retried: bool,
    /// Where they edited last, else where they may begin.
    pub deployment: Option<DeploymentName>,
    /// What they submitted last.
    pub submission: Option<SubmissionId>,
}

impl FirstSteps {
    /// Whether nothing of it is left.
    pub fn are_done(&self) -> bool {
        self.edited && self.submitted && self.judged && self.committed && self.ran && self.retried
    }
}

/// Deployments, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentTally {
    /// All.
    pub all: i64,
    /// In which no runs start.
    pub held: i64,
    /// With an open proposal.
    pub proposed: i64,
}

/// Machines, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTally {
    /// All.
    pub all: i64,
    /// That are not reached.
    pub dead: i64,
    /// That somebody took out of service.
    pub unavailable: i64,
}

/// Runs that are open, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueTally {
    /// That wait for a worker.
    pub queued: i64,
    /// That are carried out.
    pub running: i64,
    /// Since when the oldest of those that wait does.
    pub oldest: Option<At>,
}

/// Workers that are heard, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerTally {
    /// That are alive.
    pub alive: i64,
    /// Runs that they take at once.
    pub capacity: i64,
}

/// The gate's policy that is in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyView {
    /// Its number.
    pub number: PolicyNo,
    /// What it says.
    pub policy: Policy,
    /// Since when it is there.
    pub since: At,
    /// Who made it; None: it came with the beginning.
    pub by: Option<String>,
    /// The target that brought it.
    pub target: TargetNo,
}

/// How far reality has come to what a target says, or a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Every step that it asked for has applied it, but for those that a later target asked anew; every step of the deployment has applied
    /// what is meant.
    Converged,
    /// Steps are carried out, or will be without anybody doing anything more, whichever target asked for them. A worker or a node that is
    /// missing may come back.
    UnderWay,
    /// What is left waits for somebody: a step failed and others wait for it, a deployment is held, execution is off.
    Stuck,
}

/// A target, and how far reality has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetView {
    /// Itself.
    pub target: TargetSummary,
    /// In one word.
    pub way: Way,
    /// The steps that it asked for and no later target asked anew, by state.
    pub steps: StateCounts,
    /// How many of them have applied it.
    pub applied: i64,
}

/// How far reality has come to what a deployment says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentWay {
    /// Its name.
    pub deployment: DeploymentName,
    /// In one word. One without steps is converged.
    pub way: Way,
    /// Its steps, by state.
    pub steps: StateCounts,
}

/// How long to wait for a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TargetWanted {
    /// Answer once it has converged or is stuck, or after so many seconds, at most 30.
    #[cfg_attr(feature = "schema", schemars(range(max = 30)))]
    pub wait: u8,
}
