//! Edits: the typed steps of a proposal.
//!
//! An edit says what a person wants, not what follows from it. Ids that an edit creates are minted by whoever makes the edit and
//! are part of it, so that resolving it again gives the same.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::Hash;
use crate::cluster::NoderoleKey;
use crate::ids::{BarclampName, DeploymentId, DeploymentName, NodeId, RoleName};

/// One step of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "edit", rename_all = "snake_case", deny_unknown_fields)]
pub enum Edit {
    /// Makes a deployment.
    CreateDeployment {
        /// Minted here.
        id: DeploymentId,
        /// Minted here: the new deployment's phantom node.
        phantom: NodeId,
        /// Unique.
        name: DeploymentName,
        /// The one above it.
        parent: DeploymentId,
    },
    /// Makes a barclamp's content available to a deployment and those below it.
    UseBarclamp {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        barclamp: BarclampName,
        /// Its content.
        version: Hash,
    },
    /// Lets a role be bound in a deployment.
    AddRole {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        role: RoleName,
    },
    /// Sets the deployment's data for a role: replaces what it set before.
    SetRoleData {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        role: RoleName,
        /// An object.
        data: Value,
    },
    /// Binds a role to a node.
    Bind {
        /// For which deployment.
        deployment: DeploymentId,
        /// Where.
        node: NodeId,
        /// What.
        role: RoleName,
    },
    /// Sets a noderole's own data: replaces what it had before.
    SetNoderoleData {
        /// The node.
        node: NodeId,
        /// The noderole on it.
        noderole: NoderoleKey,
        /// An object.
        data: Value,
    },
    /// Moves a node to another deployment.
    MoveNode {
        /// Which.
        node: NodeId,
        /// Where to.
        deployment: DeploymentId,
    },
    /// Asks a noderole to run again although nothing about it changed.
    Rerun {
        /// The node.
        node: NodeId,
        /// The noderole on it.
        noderole: NoderoleKey,
        /// Why; shown in the review and with the run.
        reason: String,
    },
}

/// An edit and its place in the proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedEdit {
    /// Rises by one from 1; numbers of undone edits are not used again.
    pub seq: u32,
    /// What is wanted.
    pub edit: Edit,
}
