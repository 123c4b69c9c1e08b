//! The search for things by what they are called: a few of each kind.

use engine::ids::{
    BarclampName, DeploymentId, DeploymentName, NodeId, PersonId, RoleName, RunId, SubmissionId,
};
use serde::{Deserialize, Serialize};

use crate::console::RunState;

/// Things of one kind that a search names.
pub const HITS: usize = 8;
/// Longest text that is searched for, in characters.
pub const LONGEST_SEARCH: usize = 200;

/// What is searched for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SearchWanted {
    /// A part of a name or a title, or the number of a run or a review; at most 200 characters.
    pub q: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Hit {
    /// A deployment.
    Deployment {
        /// Which.
        id: DeploymentId,
        /// Its name.
        name: DeploymentName,
    },
    /// A node.
    Node {
        /// Which.
        id: NodeId,
        /// Its name.
        fqdn: String,
        /// Where it belongs.
        deployment: DeploymentName,
    },
    /// A role of the catalog, as the newest version of its barclamp has it.
    Role {
        /// Its name: `GET /api/v1/roles/NAME` has it, and `/catalog/roles/NAME` is its page.
        role: RoleName,
        /// Whose it is: barclamps that are not used together may both have one of this name.
        barclamp: BarclampName,
    },
    /// A run.
    Run {
        /// Which.
        id: RunId,
        /// Its role.
        role: RoleName,
        /// The node's name.
        fqdn: String,
        /// How it is.
        state: RunState,
    },
    /// A review.
    Review {
        /// Which.
        id: SubmissionId,
        /// Its title.
        title: String,
        /// What it was proposed on.
        deployment: String,
    },
    /// Somebody, or a program; for admins alone.
    Person {
        /// Who.
        id: PersonId,
        /// Short name.
        name: String,
        /// Whether it is a program's account.
        service: bool,
    },
}

/// What is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HitKind {
    /// Deployments, by name.
    Deployment,
    /// Nodes, by name.
    Node,
    /// Roles, by name.
    Role,
    /// Runs, by number.
    Run,
    /// Reviews, by title or number.
    Review,
    /// People and service accounts, by name.
    Person,
}

impl HitKind {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 6] =
        [Self::Deployment, Self::Node, Self::Role, Self::Run, Self::Review, Self::Person];
}

impl Hit {
    /// Of which kind.
    pub fn kind(&self) -> HitKind {
        match self {
            Self::Deployment { .. } => HitKind::Deployment,
            Self::Node { .. } => HitKind::Node,
            Self::Role { .. } => HitKind::Role,
            Self::Run { .. } => HitKind::Run,
            Self::Review { .. } => HitKind::Review,
            Self::Person { .. } => HitKind::Person,
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Found {
    /// By kind; in each what is called so first, then what begins so, then what has it within. At most 8 of a kind.
    pub hits: Vec<Hit>,
    /// Kinds of which there are more.
    pub more: Vec<HitKind>,
}
