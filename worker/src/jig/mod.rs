//! # Jigs: the ways to carry out a step
//!
//! A jig gets a [`Job`] (what is to be done where, with all data resolved), a [`Log`] to write lines to, and a [`Stop`] that may
//! be called at any moment. It answers with how it [`Ended`]. It knows nothing of the database: what a run means for its step is
//! decided by whoever called it.
//!
//! Invariants:
//! * a jig that is dropped, or told to stop, leaves nothing running on the node that belongs to the run;
//! * what it returns is a JSON object; everything else is a failure that says so;
//! * secrets are in [`Job::input`] and nowhere else: logs and results pass through the masks of [`crate::secrets`] before they
//!   leave the worker.

use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::catalog::{JigClass, Place, Role};
use engine::ids::{Fqdn, NodeId, RunId, StepId, TargetNo};
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::log::Log;

pub mod noop;
pub mod script;
pub mod test;

/// Most bytes of a result (1 MiB). What a node has to say about itself fits; a disk image does not.
pub const MAX_RESULT: usize = 1 << 20;
/// Most characters of a failure's reason.
pub const MAX_REASON: usize = 2_000;

/// A JSON object: what a run returns.
pub type Object = Map<String, Value>;

/// One attempt at a step, with everything that it needs.
#[derive(Debug, Clone)]
pub struct Job {
    /// The attempt, and its fencing token.
    pub run: RunId,
    /// What is attempted.
    pub step: StepId,
    /// How often the database has been restored; orders tokens of before and after.
    pub epoch: i64,
    /// The target that last changed or re-ran the step.
    pub generation: TargetNo,
    /// Hash of the role's content and the step's own reviewed data, never of walls: what the node's ledger compares.
    pub content: Hash,
    /// Where, by id.
    pub node: NodeId,
    /// Where, by name.
    pub fqdn: Fqdn,
    /// How to reach the node.
    pub connection: Value,
    /// Whether the node is none: the place where a deployment's services have their noderoles.
    pub phantom: bool,
    /// What the role says.
    pub role: Arc<Role>,
    /// Whether no other exclusive run may be on the node meanwhile.
    pub exclusive: bool,
    /// What the run sees, secrets resolved.
    pub input: Value,
    /// What it is given beside that ([`engine::data::surroundings`]), secrets as references.
    pub surroundings: Value,
}

impl Job {
    /// Seconds that the run may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.role.run.timeout.max(1).into())
    }

    /// Whether it runs on its node, rather than on the worker for it.
    pub fn on_node(&self) -> bool {
        self.role.run.place == Place::On && !self.phantom
    }
}

/// How a run ended, as far as the jig can tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// Well; with what it returned.
    Returned(Object),
    /// It failed.
    Failed {
        /// For people: one line, what happened and what to look at.
        reason: String,
        /// What it returned nevertheless.
        found: Object,
    },
    /// The node refused it before it started: the attempt is outdated, or something there contradicts it.
    Refused(String),
    /// It was told to stop.
    Stopped {
        /// Why it was told.
        why: StopReason,
        /// Whether it ever started on the node; `None` when that can't be known.
        started: Option<bool>,
        /// What it had returned by then.
        found: Object,
    },
}

impl Ended {
    /// A failure that returned nothing. Reasons may have secrets in them here, and any length: whoever takes them hides the first
    /// and then cuts to the second, for half a secret is one that nobody finds.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), found: Object::new() }
    }

    /// Told to stop, and nothing returned.
    pub fn stopped(why: StopReason, started: Option<bool>) -> Self {
        Self::Stopped { why, started, found: Object::new() }
    }
}

/// Cuts a reason at [`MAX_REASON`] characters.
pub fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_REASON) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Why a run has to stop before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The database no longer counts it as this worker's: it was lost, or taken over.
    NotOurs,
    /// Somebody cancelled it.
    Cancelled,
    /// The worker ends and the grace period is over.
    WorkerEnds,
}

/// What a jig listens to.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<Option<StopReason>>);

/// The other end of a [`Stop`].
#[derive(Debug, Clone)]
pub struct Stopper(Arc<watch::Sender<Option<StopReason>>>);

impl Stopper {
    /// A stopper and its stop.
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(None);
        (Self(Arc::new(sender)), Stop(receiver))
    }

    /// Tells the run to stop; the first reason counts.
    pub fn stop(&self, why: StopReason) {
        self.0.send_if_modified(|current| {
            let first = current.is_none();
            current.get_or_insert(why);
            first
        });
    }
}

impl Stop {
    /// Waits until the run is told to stop; for ever, if it never is.
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

    /// Whether it was told already.
    pub fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }
}

/// A way to carry out steps.
pub trait Jig: Send + Sync {
    /// Carries the job out. Never panics on what a script, a node or a document says.
    fn run<'a>(&'a self, job: &'a Job, log: &'a Log, stop: Stop) -> BoxFuture<'a, Ended>;
}

/// Where the bytes of scripts come from.
pub trait Scripts: Send + Sync {
    /// The script with this hash.
    fn script(&self, hash: Hash) -> BoxFuture<'_, Result<Vec<u8>, String>>;
}

/// The jigs of this worker.
pub struct Jigs {
    script: Arc<script::ScriptJig>,
}

impl Jigs {
    /// All of them.
    pub fn new(script: Arc<script::ScriptJig>) -> Self {
        Self { script }
    }

    /// The words of all classes that this worker serves.
    pub fn classes() -> [&'static str; 3] {
        ["script", "noop", "test"]
    }

    /// The jig that carries out this class, if this worker has it.
    pub fn of(&self, class: &JigClass) -> Option<&dyn Jig> {
        match class {
            JigClass::Script => Some(self.script.as_ref()),
            JigClass::Noop => Some(&noop::Noop),
            JigClass::Test => Some(&test::Test),
            JigClass::Other(_) => None,
        }
    }
}
