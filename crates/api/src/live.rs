//! The live stream of events from the journal. All tabs of a browser share one stream.
//!
//! An event is a hint with enough data to update a noderole. A page in doubt fetches its data
//! again. Events have durable ids, so an interrupted stream resumes after the last event. If the
//! cursor is too old, the server sends `reset` and the client fetches everything again. Log content
//! is never in the stream. An event has the length of a log, and the page fetches from its own
//! offset.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::runs::{RunState, StepState};
use engine::ids::{BlueprintNumber, DeploymentId, NoderoleId, ProposalId, ReviewId, RunId};

/// Maximum number of topics of one stream, which all tabs of a browser share.
pub const MAX_TOPICS: usize = 128;

/// A topic of a stream: `/events?after=CURSOR&topics=TOPICS`, topics separated by commas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Steps and runs of the noderoles bound in a deployment, and its proposals.
    Deployment(DeploymentId),
    /// A run and the growth of its log.
    Run(RunId),
    Proposal(ProposalId),
    Review(ReviewId),
    /// All changes of the list of reviews.
    Reviews,
    /// All changes of the list of nodes.
    Nodes,
    /// All changes of the list of runs: starts and ends, without the growth of logs.
    Runs,
    /// New blueprints and new versions in the catalog, which are the base of proposals.
    Blueprints,
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(id) => write!(f, "deployment:{id}"),
            Self::Run(id) => write!(f, "run:{id}"),
            Self::Proposal(id) => write!(f, "proposal:{id}"),
            Self::Review(id) => write!(f, "review:{id}"),
            Self::Reviews => f.write_str("reviews"),
            Self::Nodes => f.write_str("nodes"),
            Self::Runs => f.write_str("runs"),
            Self::Blueprints => f.write_str("blueprints"),
        }
    }
}

/// An unknown topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown topic {0:?}, use reviews, nodes, runs, blueprints, deployment:ID, run:ID, \
     proposal:ID or review:ID"
)]
pub struct UnknownTopic(String);

impl FromStr for Topic {
    type Err = UnknownTopic;
    fn from_str(text: &str) -> Result<Self, UnknownTopic> {
        let (kind, id) = text.split_once(':').unwrap_or((text, ""));
        let topic = match kind {
            "deployment" => id.parse().ok().map(Self::Deployment),
            "run" => id.parse().ok().map(Self::Run),
            "proposal" => id.parse().ok().map(Self::Proposal),
            "review" => id.parse().ok().map(Self::Review),
            _ => [Self::Reviews, Self::Nodes, Self::Runs, Self::Blueprints]
                .into_iter()
                .find(|t| t.to_string() == text),
        };
        topic.ok_or_else(|| UnknownTopic(text.chars().take(64).collect()))
    }
}

/// An event of the live stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Live {
    /// A step changed its state.
    Step {
        /// The noderole of the step.
        noderole: NoderoleId,
        /// New state.
        state: StepState,
    },
    /// A run started, wrote to its log or ended.
    Run {
        /// Run number.
        run: RunId,
        /// The noderole of the run.
        noderole: NoderoleId,
        /// New state.
        state: RunState,
        /// Length of the log, in bytes.
        log_bytes: i64,
    },
    /// A proposal was opened, edited, submitted or closed.
    Proposal {
        /// Proposal number.
        proposal: ProposalId,
        /// New version.
        version: i32,
    },
    /// A review got a verdict or a comment, or was replaced.
    Review {
        /// Review number.
        review: ReviewId,
    },
    /// A blueprint was committed.
    Blueprint {
        /// Blueprint number.
        blueprint: BlueprintNumber,
    },
    /// Barclamp versions were imported.
    Catalog,
    /// A node was added or removed, or changed between alive and dead.
    Node {
        /// Name of the node.
        fqdn: String,
    },
    /// A deployment was put on hold, or its hold ended.
    Hold {
        /// The deployment. The hold includes its descendants.
        deployment: DeploymentId,
        /// The person who put it on hold, or null if the hold ended.
        by: Option<String>,
    },
    /// The drain of a worker began or ended.
    Worker {
        /// Id of the worker.
        worker: uuid::Uuid,
        /// Whether the worker is draining now.
        draining: bool,
    },
    /// The priority of a deployment's steps changed.
    Priority {
        /// Id of the deployment.
        deployment: DeploymentId,
        /// New priority.
        priority: i32,
    },
    /// The cursor is too old. Fetch everything again.
    Reset,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_parses_its_own_text() {
        let deployment = DeploymentId(uuid::Uuid::from_u128(7));
        for topic in [
            Topic::Deployment(deployment),
            Topic::Run(RunId(3)),
            Topic::Proposal(ProposalId(4)),
            Topic::Review(ReviewId(5)),
            Topic::Reviews,
            Topic::Nodes,
            Topic::Runs,
            Topic::Blueprints,
        ] {
            assert_eq!(topic.to_string().parse(), Ok(topic));
        }
        for wrong in ["", "run", "run:x", "deployment:", "nodes:1", "reviews "] {
            assert!(wrong.parse::<Topic>().is_err(), "{wrong}");
        }
    }
}
