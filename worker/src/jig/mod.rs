//! Jigs execute steps.
//!
//! A jig gets a [`Job`] (action, node and all data resolved), a [`Log`] for output, and a [`Stop`]
//! that may fire at any moment. It returns how the job [`Ended`]. It does not know the database:
//! the caller decides what the result means for the step.
//!
//! Invariants:
//! * If a jig is dropped or stopped, it leaves no process of the run on the node.
//! * A result is a JSON object. Anything else is a failure with a reason.
//! * Only [`Job::input`] contains secrets. The masks of [`crate::secrets`] cover logs and results
//!   before they leave the worker.

use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::catalog::{JigClass, Place, Role, Script};
use engine::ids::{ActionName, BlueprintNumber, Fqdn, NodeId, RunId, StepId};
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::log::Log;

pub mod noop;
pub mod script;
pub mod test;

/// Maximum size of a result: 1 MiB. Facts about a node fit; a disk image does not.
pub const MAX_RESULT: usize = 1 << 20;
/// Maximum number of characters in the reason of a failure.
pub const MAX_REASON: usize = 2_000;

/// The result of a run, a JSON object.
pub type Object = Map<String, Value>;

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
        self.role.run.place == Place::On && !self.phantom
    }
}

/// How a run ended, as reported by the jig.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// Success, with the result.
    Returned(Object),
    Failed {
        /// One line for users: the problem and its location.
        reason: String,
        /// Data that the run returned before it failed.
        found: Object,
    },
    /// The node refused the run before it started: the attempt is outdated or contradicts the
    /// ledger.
    Refused(String),
    Stopped {
        /// Why the run was stopped.
        why: StopReason,
        /// Whether the run ever started on the node; `None` if unknown.
        started: Option<bool>,
        /// Data that the run had returned so far.
        found: Object,
    },
}

impl Ended {
    /// A failure without a result. The reason may contain secrets and have any length. The caller
    /// masks it and only then cuts it, because no mask finds half a secret.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), found: Object::new() }
    }

    /// A stopped run without a result.
    pub fn stopped(why: StopReason, started: Option<bool>) -> Self {
        Self::Stopped { why, started, found: Object::new() }
    }
}

/// Cuts a reason at [`MAX_REASON`] characters.
pub fn shorten(text: String) -> String {
    match text.char_indices().nth(MAX_REASON) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Why a run is stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// This worker no longer leases the run: it was lost or taken over.
    LeaseLost,
    /// A user canceled it.
    Cancelled,
    /// The worker shuts down and the grace period is over.
    WorkerShutdown,
}

/// Signals a jig to stop.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<Option<StopReason>>);

/// The sending half of a [`Stop`].
#[derive(Debug, Clone)]
pub struct StopSender(Arc<watch::Sender<Option<StopReason>>>);

impl StopSender {
    /// Creates a stopper and its stop signal.
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(None);
        (Self(Arc::new(sender)), Stop(receiver))
    }

    /// Signals the run to stop. Only the first reason counts.
    pub fn stop(&self, why: StopReason) {
        self.0.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(why);
            is_first
        });
    }
}

impl Stop {
    /// Waits until the run is stopped.
    pub async fn called(&mut self) -> StopReason {
        loop {
            if let Some(why) = *self.0.borrow_and_update() {
                return why;
            }
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The reason, if the run has been stopped.
    pub fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }
}

pub trait Jig: Send + Sync {
    /// Executes the job. Must not panic for any content of a script, a node or a document.
    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, stop: Stop) -> BoxFuture<'a, Ended>;

    /// Whether the jig enforces the timeout itself.
    fn keeps_time(&self) -> bool {
        false
    }
}

/// Source of script content.
pub trait ScriptSource: Send + Sync {
    /// Returns the script with this hash.
    fn script(&self, hash: Hash) -> BoxFuture<'_, Result<Vec<u8>, String>>;
}

/// The jigs of this worker.
pub struct Jigs {
    script: Arc<script::ScriptJig>,
}

impl Jigs {
    pub fn new(script: Arc<script::ScriptJig>) -> Self {
        Self { script }
    }

    /// Names of all jig classes that this worker serves.
    pub fn classes() -> [&'static str; 3] {
        ["script", "noop", "test"]
    }

    /// The jig for this class, if this worker has it.
    pub fn of(&self, class: &JigClass) -> Option<&dyn Jig> {
        match class {
            JigClass::Script => Some(self.script.as_ref()),
            JigClass::Noop => Some(&noop::Noop),
            JigClass::Test => Some(&test::Test),
            JigClass::Other(_) => None,
        }
    }
}
