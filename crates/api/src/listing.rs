//! The words that lists of runs, nodes, deployments and barclamps can be asked by. What is left out or empty asks for nothing.

use engine::Hash;
use engine::ids::RunId;
use serde::{Deserialize, Serialize};

use crate::At;

/// Which runs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RunsWanted {
    /// `queued`, `running`, `succeeded`, `failed`, `lost`, `cancelled` or `unstarted`; empty: in any state.
    pub state: String,
    /// Of what is bound in this deployment, by its name; empty: in any.
    pub deployment: String,
    /// On this node, by its name or its id; empty: on any.
    pub node: String,
    /// Of this role; empty: of any.
    pub role: String,
    /// Queued from this moment on, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<At>,
    /// Queued before this moment, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<At>,
    /// Before this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<RunId>,
}

/// How a node is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is reached.
    Alive,
    /// It is not.
    Dead,
    /// Somebody took it out of service.
    Unavailable,
    /// No target speaks of it.
    Record,
}

/// Which nodes a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NodesWanted {
    /// With this in the name; empty: with any.
    pub filter: String,
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// That belong to this deployment, by its name; empty: to any.
    pub deployment: String,
    /// Behind this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What of a deployment is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// No runs start in it.
    Held,
    /// It has an open proposal.
    Proposed,
    /// That was submitted.
    Review,
    /// A step of it failed.
    Error,
    /// Steps of it are to be carried out, or are.
    Working,
    /// Nothing of that.
    Idle,
}

/// Which deployments a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeploymentsWanted {
    /// With this in the name; empty: with any.
    pub filter: String,
    /// Of which this is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeploymentState>,
}

/// Which barclamps a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BarclampsWanted {
    /// With this in the name; empty: with any.
    pub filter: String,
    /// Behind this version, by its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Hash>,
}
