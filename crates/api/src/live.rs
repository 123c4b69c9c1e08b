//! The live stream: what the event journal tells, one stream for all tabs of a browser, or for a program.
//!
//! Events are hints with enough in them to move a chip; a page that is in doubt fetches again. They carry durable ids, so a stream
//! that was cut resumes behind the last one seen, and a cursor that is too old is answered by `reset`: fetch everything again. Log
//! bytes never travel here: an event tells how long a log is, and the page fetches from the offset that it has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::console::{RunState, StepState};
use engine::ids::{DeploymentId, NoderoleId, ProposalId, RunId, SubmissionId, TargetNo};

/// Most topics of one stream, which all tabs of a browser share.
pub const MAX_TOPICS: usize = 128;
/// Most topics of one page, so that those of several tabs fit on their stream.
pub const PAGE_TOPICS: usize = 32;

/// What a stream listens to: `/events?after=<cursor>&topics=<topics, by comma>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Steps and runs of the noderoles bound in a deployment, and the proposals on it.
    Deployment(DeploymentId),
    /// A run and the growth of its log.
    Run(RunId),
    /// A proposal.
    Proposal(ProposalId),
    /// A submission.
    Submission(SubmissionId),
    /// Whatever changes the list of reviews.
    Reviews,
    /// Whatever changes the list of nodes.
    Nodes,
    /// Whatever changes the list of runs: their beginnings and ends, not the growth of their logs.
    Runs,
    /// What proposals begin with: new targets, and new versions in the catalog.
    Targets,
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(id) => write!(f, "deployment:{id}"),
            Self::Run(id) => write!(f, "run:{id}"),
            Self::Proposal(id) => write!(f, "proposal:{id}"),
            Self::Submission(id) => write!(f, "submission:{id}"),
            Self::Reviews => f.write_str("reviews"),
            Self::Nodes => f.write_str("nodes"),
            Self::Runs => f.write_str("runs"),
            Self::Targets => f.write_str("targets"),
        }
    }
}

/// A text that is no topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no topic: there are reviews, nodes, runs, targets, deployment:ID, run:ID, proposal:ID and submission:ID"
)]
pub struct NotATopic(String);

impl FromStr for Topic {
    type Err = NotATopic;
    fn from_str(text: &str) -> Result<Self, NotATopic> {
        let (word, id) = text.split_once(':').unwrap_or((text, ""));
        let topic = match word {
            "deployment" => id.parse().ok().map(Self::Deployment),
            "run" => id.parse().ok().map(Self::Run),
            "proposal" => id.parse().ok().map(Self::Proposal),
            "submission" => id.parse().ok().map(Self::Submission),
            _ => [Self::Reviews, Self::Nodes, Self::Runs, Self::Targets]
                .into_iter()
                .find(|t| t.to_string() == text),
        };
        topic.ok_or_else(|| NotATopic(text.chars().take(64).collect()))
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// A verdict was given, something was said, or the submission was replaced.
    Submission {
        /// Which.
        submission: SubmissionId,
    },
    /// There is a new target.
    Target {
        /// Which.
        target: TargetNo,
    },
    /// Versions of barclamps were imported.
    Catalog,
    /// A node came, went, died or came back.
    Node {
        /// Its name.
        fqdn: String,
    },
    /// A deployment is held, or goes on.
    Hold {
        /// Which; those below it are held with it.
        deployment: DeploymentId,
        /// Who holds it; None: it goes on.
        by: Option<String>,
    },
    /// A deployment's steps go before others than until now, or behind others.
    Priority {
        /// Which.
        deployment: DeploymentId,
        /// Now.
        priority: i32,
    },
    /// The cursor is too old: fetch everything again.
    Reset,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_read_as_it_is_written() {
        let deployment = DeploymentId(uuid::Uuid::from_u128(7));
        for topic in [
            Topic::Deployment(deployment),
            Topic::Run(RunId(3)),
            Topic::Proposal(ProposalId(4)),
            Topic::Submission(SubmissionId(5)),
            Topic::Reviews,
            Topic::Nodes,
            Topic::Runs,
            Topic::Targets,
        ] {
            assert_eq!(topic.to_string().parse(), Ok(topic));
        }
        for wrong in ["", "run", "run:x", "deployment:", "nodes:1", "reviews "] {
            assert!(wrong.parse::<Topic>().is_err(), "{wrong}");
        }
    }
}
