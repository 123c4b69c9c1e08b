//! The live stream: what the event journal tells, one stream for each tab.
//!
//! Events are hints with enough in them to move a chip; a page that is in doubt fetches again. They carry durable ids, so a stream
//! that was cut resumes behind the last one seen, and a cursor that is too old is answered by `reset`: fetch everything again. Log
//! bytes never travel here: an event tells how long a log is, and the page fetches from the offset that it has.

use serde::{Deserialize, Serialize};

use crate::console::{RunState, StepState};
use engine::ids::{NoderoleId, ProposalId, RunId, SubmissionId, TargetNo};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Live {
    /// A step is in another state.
    Step {
        /// Whose.
        noderole: NoderoleId,
        /// Now.
        state: StepState,
    },
    /// A run began, went on or ended.
    Run {
        /// Which.
        run: RunId,
        /// Whose.
        noderole: NoderoleId,
        /// Now.
        state: RunState,
        /// Bytes of its log.
        log_bytes: i64,
    },
    /// A proposal was opened, edited, submitted or closed.
    Proposal {
        /// Which.
        proposal: ProposalId,
        /// Its version now.
        version: i32,
    },
    /// A verdict was given, or the submission was replaced.
    Submission {
        /// Which.
        submission: SubmissionId,
    },
    /// There is a new target.
    Target {
        /// Which.
        target: TargetNo,
    },
    /// A node came, went, died or came back.
    Node {
        /// Its name.
        fqdn: String,
    },
    /// The cursor is too old: fetch everything again.
    Reset,
}
