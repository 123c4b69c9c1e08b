//! How a run ended, as its jig reports it.

use serde_json::{Map, Value};

use super::stop::StopReason;

/// Maximum size of a result: 1 MiB. Facts about a node fit; a disk image does not.
pub const MAX_RESULT: usize = 1 << 20;
/// Maximum number of characters in the reason of a failure.
pub const MAX_REASON: usize = 2_000;

/// The result of a run, a JSON object.
pub type Object = Map<String, Value>;

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
    /// The worker stops, and the attempt continues on its node.
    LeftOnNode,
    /// An adopted attempt is not on its node any more, or was ended there.
    Lost {
        /// Whether the attempt ever started on the node; `None` if unknown.
        started: Option<bool>,
    },
    Stopped {
        /// Why the run was stopped.
        reason: StopReason,
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
    pub fn stopped(reason: StopReason, started: Option<bool>) -> Self {
        Self::Stopped { reason, started, found: Object::new() }
    }
}

/// Cuts a reason at [`MAX_REASON`] characters.
pub fn shorten(text: String) -> String {
    match text.char_indices().nth(MAX_REASON) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
