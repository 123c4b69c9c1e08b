//! One attempt at a step: its input, its log, its stop signal and how it ended.
//!
//! The queue, the runner, the jigs and the wrapper on nodes share these types. They know no node,
//! and a log reaches the database only through a [`log::LogStore`].

use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::catalog::{Check, Role, RunLocation, Script};
use engine::ids::{ActionName, BlueprintNumber, Fqdn, NodeId, RoleName, RunId, StepId};
use serde_json::Value;

mod ended;
pub mod log;
mod stop;

pub use ended::{Ended, MAX_REASON, MAX_RESULT, Object, shorten};
pub use stop::{Stop, StopReason, StopSender};

/// One attempt at a step with everything that it needs.
#[derive(Debug, Clone)]
pub struct Job {
    /// The attempt, which is also its fencing token.
    pub run: RunId,
    pub step: StepId,
    pub action: ActionName,
    /// Number of restores of the database. It orders tokens from before and after a restore.
    pub epoch: i64,
    /// The target that last changed or re-ran the step.
    pub generation: BlueprintNumber,
    /// Hash of the role's content and the step's own reviewed data, without outputs. The node's
    /// ledger compares it.
    pub content: Hash,
    pub node: NodeId,
    pub fqdn: Fqdn,
    pub connection: Value,
    /// Whether this is the phantom node of a deployment, which has the noderoles of its services.
    pub phantom: bool,
    pub role: Arc<Role>,
    /// Whether no other exclusive run may be on the node at the same time.
    pub exclusive: bool,
    /// The data that the run sees, with secrets resolved.
    pub input: Value,
    /// Further data ([`engine::data::surroundings`]), with secrets as references.
    pub surroundings: Value,
}

impl Job {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.role.run.timeout.max(1).into())
    }

    /// The scripts of its action, in the order in which they run.
    pub fn scripts(&self) -> impl Iterator<Item = &Script> + Clone {
        self.role.scripts_of(&self.action)
    }

    /// Whether the step runs on its node. Otherwise it runs on the worker for the node.
    pub fn on_node(&self) -> bool {
        self.role.run.location == RunLocation::Node && !self.phantom
    }
}

/// The check of a role, with everything that it needs.
#[derive(Debug, Clone)]
pub struct CheckJob {
    pub policy: Check,
    pub script: Script,
    pub role: RoleName,
    pub node: NodeId,
    pub fqdn: Fqdn,
    pub connection: Value,
    /// Whether it runs on its node. Otherwise it runs on the worker for the node.
    pub on_node: bool,
    /// The data of the last successful run, with secrets resolved.
    pub input: Value,
    /// The further data of that run, with secrets as references.
    pub surroundings: Value,
}

impl CheckJob {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.policy.timeout.max(1).into())
    }
}
