//! Search by name across all kinds of resources, with a few results of each kind.

use engine::ids::{
    BarclampName, DeploymentId, DeploymentName, NodeId, PersonId, ReviewId, RoleName, RunId,
};
use serde::{Deserialize, Serialize};

use crate::listing::Limit;
use crate::runs::RunState;

/// Maximum number of results of one kind, without a limit in the query.
pub const HITS: usize = 8;
/// Maximum length of a search text, in characters.
pub const MAX_QUERY_CHARS: usize = 200;

/// A search query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SearchQuery {
    /// Part of a name or a title, or the number of a run or a review. At most 200 characters.
    pub q: String,
    /// Maximum number of results of each kind, from 1 to 200 (default 8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// A search result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Hit {
    /// A deployment.
    Deployment {
        /// Id of the deployment.
        id: DeploymentId,
        /// Name of the deployment.
        name: DeploymentName,
    },
    /// A node.
    Node {
        /// Id of the node.
        id: NodeId,
        /// Name of the node.
        fqdn: String,
        /// The deployment that it belongs to.
        deployment: DeploymentName,
    },
    /// A role in the newest version of its barclamp.
    Role {
        /// Name of the role, as in `GET /api/v1/roles/NAME` and on the page `/catalog/roles/NAME`.
        role: RoleName,
        /// The barclamp of the role. Different barclamps can have roles with the same name.
        barclamp: BarclampName,
    },
    /// A run.
    Run {
        /// Run number.
        id: RunId,
        /// The role.
        role: RoleName,
        /// Name of the node.
        fqdn: String,
        /// State of the run.
        state: RunState,
    },
    /// A review.
    Review {
        /// Review number.
        id: ReviewId,
        /// Title of the review.
        title: String,
        /// The deployment that the proposal is on.
        deployment: String,
    },
    /// A person or a service account. Only admins get these.
    Person {
        /// Id of the person.
        id: PersonId,
        /// Short name.
        name: String,
        /// Whether the person is a service account.
        service: bool,
    },
}

/// A kind of resource that the search covers.
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
    /// All kinds, in the order of the results.
    pub const ALL: [Self; 6] =
        [Self::Deployment, Self::Node, Self::Role, Self::Run, Self::Review, Self::Person];
}

impl Hit {
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

/// Results of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchResults {
    /// The results by kind, at most 8 of each without a `limit`. Exact matches come first, then
    /// prefixes, then other matches.
    pub hits: Vec<Hit>,
    /// Kinds with more results.
    pub more: Vec<HitKind>,
}
