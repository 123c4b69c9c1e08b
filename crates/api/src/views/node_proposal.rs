//! The page of a proposal on a single node.

use engine::cluster::NoderoleKey;
use engine::ids::{DeploymentId, DeploymentName, RoleName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Allowed;
use crate::deployments::AttribView;
use crate::proposals::{ProposalView, ScopeView};

/// A proposal on a node, with the available edits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeProposal {
    /// Scope of the proposal.
    pub scope: ScopeView,
    /// The proposal.
    pub proposal: ProposalView,
    /// Noderoles of the node, with the draft's edits.
    pub noderoles: Vec<NodeRole>,
    /// Roles that can be bound to the node.
    pub choices: Vec<NodeChoice>,
    /// Whether you can edit it. Otherwise the reason.
    pub may_edit: Allowed,
    /// Journal position of this view.
    pub cursor: i64,
}

/// A noderole of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRole {
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The deployment that it is bound in.
    pub deployment: DeploymentName,
    /// Whether it exists only in the draft.
    pub proposed: bool,
    /// Whether its removal runs `remove` on the node. Otherwise its files and services stay there.
    #[serde(default)]
    pub runs_remove: bool,
}

/// A noderole with the edits of a proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposedNoderole {
    /// The version of the proposal.
    pub version: i32,
    /// Its user data, with the proposal's edits.
    pub data: Value,
    /// The person whose edit in the proposal sets the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_by: Option<String>,
    /// Values that apply without user data, with secrets masked.
    pub defaults: Value,
    /// Schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// Whether it exists only in the proposal.
    pub proposed: bool,
    /// Whether the proposal runs it again.
    pub rerun: bool,
}

/// A role that can be bound to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeChoice {
    /// Id of the deployment.
    pub deployment: DeploymentId,
    /// Name of the deployment.
    pub name: DeploymentName,
    /// Name of the role.
    pub role: RoleName,
}
