//! Edits: the typed steps of a proposal.
//!
//! An edit states what a person wants, not what follows from it. The client that creates an edit
//! mints the ids of new things and stores them in the edit. Resolving it again therefore gives the
//! same result.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::refusal::EditError;
use crate::canonical::Hash;
use crate::cluster::{ConnectionChange, NoderoleKey};
use crate::data::secret::contains_reference;
use crate::gate::Policy;
use crate::ids::{BarclampName, DeploymentId, DeploymentName, JigName, NodeId, RoleName};
use crate::text::{deceiving, number};

/// Maximum length of a reason, in characters. A reason is copied to each noderole that it re-runs,
/// so a long one would be stored many times.
pub const MAX_REASON: usize = 1_000;

/// Maximum number of nodes in one edit.
pub const MAX_LISTED: usize = 1_000;

/// Maximum size of a node's hints, in bytes of JSON.
pub const MAX_HINTS: usize = 64 * 1024;

/// Maximum depth of the deployment tree, including *system*. Lookups, binding and review bases walk
/// all ancestors.
pub const MAX_LEVELS: usize = 16;

/// One step of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "edit", rename_all = "snake_case", deny_unknown_fields)]
pub enum Edit {
    /// Creates a deployment.
    CreateDeployment {
        /// Id of the new deployment, a random UUID chosen by the client.
        id: DeploymentId,
        /// Id of the new deployment's phantom node, a random UUID chosen by the client.
        phantom: NodeId,
        /// The deployment's name, unique in the cluster.
        name: DeploymentName,
        /// The parent deployment.
        parent: DeploymentId,
    },
    /// Removes an empty deployment.
    RemoveDeployment {
        /// The deployment.
        deployment: DeploymentId,
    },
    /// Makes a version of a barclamp available to a deployment and its descendants.
    UseBarclamp {
        /// The deployment.
        deployment: DeploymentId,
        /// The barclamp.
        barclamp: BarclampName,
        /// Content hash of the version.
        version: Hash,
    },
    /// Removes a deployment's own version of a barclamp. The deployment then uses the version of
    /// its nearest ancestor, if any.
    InheritBarclamp {
        /// The deployment.
        deployment: DeploymentId,
        /// The barclamp.
        barclamp: BarclampName,
    },
    /// Adds a role to a deployment, so that it can be bound there.
    AddRole {
        /// The deployment.
        deployment: DeploymentId,
        /// The role.
        role: RoleName,
    },
    /// Removes an unbound role from a deployment, together with the deployment's data for it.
    RemoveRole {
        /// The deployment.
        deployment: DeploymentId,
        /// The role.
        role: RoleName,
    },
    /// Sets the deployment's data for a role. Replaces the previous data.
    SetRoleData {
        /// The deployment.
        deployment: DeploymentId,
        /// The role.
        role: RoleName,
        /// The data, a JSON object.
        data: Value,
    },
    /// Binds a role to a node.
    Bind {
        /// The deployment in which to bind the role.
        deployment: DeploymentId,
        /// The node.
        node: NodeId,
        /// The role.
        role: RoleName,
    },
    /// Binds a role to several nodes. Equal to single bindings in the order of the node ids, but
    /// either all take effect or none.
    BindNodes {
        /// The deployment in which to bind the role.
        deployment: DeploymentId,
        /// The role.
        role: RoleName,
        /// The nodes, 1 to 1,000.
        nodes: BTreeSet<NodeId>,
    },
    /// Removes a noderole from its node. The noderoles that it required stay. Its children get
    /// another parent if binding would find one. Otherwise, the edit is refused unless
    /// `with_dependents` is set.
    Unbind {
        /// The node.
        node: NodeId,
        /// The noderole.
        noderole: NoderoleKey,
        /// Whether to also remove noderoles that cannot exist without this one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_dependents: bool,
    },
    /// Removes the same noderole from several nodes. Equal to single edits in the order of the node
    /// ids, but either all take effect or none.
    UnbindNodes {
        /// The noderole.
        noderole: NoderoleKey,
        /// The nodes, 1 to 1,000.
        nodes: BTreeSet<NodeId>,
    },
    /// Sets a noderole's own data. Replaces the previous data.
    SetNoderoleData {
        /// The node.
        node: NodeId,
        /// The noderole.
        noderole: NoderoleKey,
        /// The data, a JSON object.
        data: Value,
    },
    /// Moves a node to another deployment.
    MoveNode {
        /// The node.
        node: NodeId,
        /// The new deployment.
        deployment: DeploymentId,
    },
    /// Changes the given connection fields of a node in a blueprint. A node in no blueprint is
    /// edited without a proposal.
    SetConnection {
        /// The node.
        node: NodeId,
        /// The fields to change.
        connection: ConnectionChange,
    },
    /// Sets the hints of a node in a blueprint. Replaces the previous hints.
    SetHints {
        /// The node.
        node: NodeId,
        /// The hints, a JSON object of at most 64 KiB without references to secrets.
        hints: Value,
    },
    /// Expunges a node that is physically gone. Everything on it counts as gone at once, nothing
    /// runs for it, and its id is never used again.
    ExpungeNode {
        /// The node.
        node: NodeId,
        /// The reason, at most 1,000 characters. Shown in the review.
        reason: String,
    },
    /// Runs a noderole again although nothing about it changed.
    Rerun {
        /// The node.
        node: NodeId,
        /// The noderole.
        noderole: NoderoleKey,
        /// The reason, at most 1,000 characters. Shown in the review and with the run.
        reason: String,
    },
    /// Runs all noderoles of some roles in a deployment again, and all noderoles there that wait
    /// for them.
    RerunSlice {
        /// The deployment.
        deployment: DeploymentId,
        /// The roles to start from.
        roles: BTreeSet<RoleName>,
        /// The reason, at most 1,000 characters. Shown in the review and with each run.
        reason: String,
    },
    /// Switches a jig on or off in all deployments. While it is off, no step that needs it starts,
    /// and no role that needs it can be bound.
    ActivateJig {
        /// The jig.
        jig: JigName,
        /// Whether to switch the jig on.
        active: bool,
    },
    /// Replaces the approval policy. The change must pass under both policies.
    SetPolicy {
        /// The complete new policy.
        policy: Policy,
    },
}

impl Edit {
    /// The edit's reason, for edits that have one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::ExpungeNode { reason, .. }
            | Self::Rerun { reason, .. }
            | Self::RerunSlice { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// The single edits of a list edit, in order. Any other edit is its own single edit. Rules are
    /// checked on single edits, so list edits have no rules of their own.
    pub fn each(&self) -> Cow<'_, [Self]> {
        match self {
            Self::BindNodes { deployment, role, nodes } => {
                let one = |node: &NodeId| Self::Bind {
                    deployment: *deployment,
                    node: *node,
                    role: role.clone(),
                };
                nodes.iter().map(one).collect()
            }
            Self::UnbindNodes { noderole, nodes } => {
                let one = |node: &NodeId| Self::Unbind {
                    node: *node,
                    noderole: noderole.clone(),
                    with_dependents: false,
                };
                nodes.iter().map(one).collect()
            }
            _ => Cow::Borrowed(std::slice::from_ref(self)),
        }
    }

    /// The number of single edits.
    pub fn singles(&self) -> usize {
        self.listed().map_or(1, BTreeSet::len)
    }

    fn listed(&self) -> Option<&BTreeSet<NodeId>> {
        match self {
            Self::BindNodes { nodes, .. } | Self::UnbindNodes { nodes, .. } => Some(nodes),
            _ => None,
        }
    }

    /// Checks an edit by itself, before it is resolved or stored.
    ///
    /// # Errors
    /// [`EditError`] if the reason, the node list or a new id is invalid.
    pub fn check(&self) -> Result<(), EditError> {
        if let Self::CreateDeployment { id, phantom, name, .. } = self {
            // Several clients that forget to mint an id would otherwise all use this one.
            if id.0.is_nil() || phantom.0.is_nil() {
                return Err(EditError::NilId(name.to_string()));
            }
            if id.0 == phantom.0 {
                return Err(EditError::OneIdForTwo(name.to_string()));
            }
        }
        if let Self::SetConnection { connection, .. } = self {
            if connection.is_empty() {
                return Err(EditError::NoConnectionField);
            }
            connection.checked().map_err(EditError::Connection)?;
        }
        if let Self::SetHints { hints, .. } = self {
            check_hints(hints)?;
        }
        let length = self.reason().map_or(0, |reason| reason.chars().count());
        if length > MAX_REASON {
            return Err(EditError::LongReason { length });
        }
        if let Some(c) = self.reason().and_then(deceiving) {
            return Err(EditError::DeceptiveReason { number: number(c) });
        }
        match self.listed().map(BTreeSet::len) {
            Some(0) => Err(EditError::NoNodes),
            Some(length) if length > MAX_LISTED => Err(EditError::LongList { length }),
            _ => Ok(()),
        }
    }
}

/// Rejects hints that are too large or refer to a secret. Everyone who can view the node can read
/// its hints.
fn check_hints(hints: &Value) -> Result<(), EditError> {
    let Value::Object(_) = hints else {
        return Err(EditError::Hints("a JSON object is required".into()));
    };
    if serde_json::to_vec(hints).map_or(usize::MAX, |bytes| bytes.len()) > MAX_HINTS {
        return Err(EditError::Hints(format!(
            "they can have at most {} KiB as JSON",
            MAX_HINTS / 1024
        )));
    }
    if contains_reference(hints) {
        return Err(EditError::Hints(
            "they cannot refer to a secret, because every viewer can read them".into(),
        ));
    }
    Ok(())
}

/// An edit with its number in the proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NumberedEdit {
    /// Numbers start at 1 and rise by one. Numbers of undone edits are not reused.
    pub seq: u32,
    /// The edit.
    pub edit: Edit,
}
