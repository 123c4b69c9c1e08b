//! Edits: the typed steps of a proposal.
//!
//! An edit says what a person wants, not what follows from it. Ids that an edit creates are minted by whoever makes the edit and
//! are part of it, so that resolving it again gives the same.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::refusal::EditError;
use crate::canonical::Hash;
use crate::cluster::{ConnectionChange, NoderoleKey};
use crate::data::secret::holds_reference;
use crate::gate::Policy;
use crate::ids::{BarclampName, DeploymentId, DeploymentName, JigName, NodeId, RoleName};
use crate::text::{deceiving, number};

/// Longest reason, in characters. A reason is copied to each noderole that it lets run again, so a long one would be paid for many
/// times over.
pub const MAX_REASON: usize = 1_000;

/// Most nodes that one edit lists.
pub const MAX_LISTED: usize = 1_000;

/// Most bytes of a node's hints, as JSON.
pub const MAX_HINTS: usize = 64 * 1024;

/// Most deployments one above the other, *system* included. Whatever is asked of a deployment is asked of those above it, too: what is
/// seen, what serves, what a review rests upon.
pub const MAX_LEVELS: usize = 16;

/// One step of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Removes a deployment that nothing is in any more.
    RemoveDeployment {
        /// Which.
        deployment: DeploymentId,
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
    /// Takes a deployment's own version of a barclamp away: it has what the one above it has again, or none.
    InheritBarclamp {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        barclamp: BarclampName,
    },
    /// Lets a role be bound in a deployment.
    AddRole {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        role: RoleName,
    },
    /// Takes a role that no node carries, and the deployment's data for it, out of a deployment.
    RemoveRole {
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
    /// Binds a role to several nodes, as so many single bindings in the order of their ids would: all of them, or none.
    BindNodes {
        /// For which deployment.
        deployment: DeploymentId,
        /// What.
        role: RoleName,
        /// Where.
        nodes: BTreeSet<NodeId>,
    },
    /// Takes a noderole off its node. What it needed stays. What needs it is wired to another that serves as well, if binding would
    /// find one; where there is none, the edit is refused unless it says that dependents go along.
    Unbind {
        /// The node.
        node: NodeId,
        /// The noderole on it.
        noderole: NoderoleKey,
        /// Whether noderoles that can't be without it go too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_dependents: bool,
    },
    /// Takes the same noderole off several nodes, as so many single ones in the order of their ids would: off all of them, or none.
    UnbindNodes {
        /// What.
        noderole: NoderoleKey,
        /// Where.
        nodes: BTreeSet<NodeId>,
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
    /// Changes how a node in a blueprint is reached: only the fields that are named. The record of a node in no blueprint is edited
    /// without a proposal.
    SetConnection {
        /// Which.
        node: NodeId,
        /// The fields that change.
        connection: ConnectionChange,
    },
    /// Sets the hints of a node in a blueprint: replaces those that it had before.
    SetHints {
        /// Which.
        node: NodeId,
        /// An object, without references to secrets.
        hints: Value,
    },
    /// Gives a node up that is physically gone: everything on it counts as gone at once, nothing is run for it, and its id never
    /// comes back.
    ExpungeNode {
        /// Which.
        node: NodeId,
        /// Why; shown in the review.
        reason: String,
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
    /// Asks all noderoles of some roles in a deployment, and whatever there waits for them, to run again.
    RerunSlice {
        /// Where.
        deployment: DeploymentId,
        /// From where on.
        roles: BTreeSet<RoleName>,
        /// Why; shown in the review and with each run.
        reason: String,
    },
    /// Switches a jig on or off, for all deployments. Nothing starts by one that is off, and nothing new is bound that needs it.
    ActivateJig {
        /// Which.
        jig: JigName,
        /// On.
        active: bool,
    },
    /// Brings another policy of the gate into force. The change itself passes under both.
    SetPolicy {
        /// The whole new policy.
        policy: Policy,
    },
}

impl Edit {
    /// Why it is wanted, where an edit says so.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::ExpungeNode { reason, .. }
            | Self::Rerun { reason, .. }
            | Self::RerunSlice { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// The single edits that it stands for, in their order: one for each node of a list, else itself. What holds for an edit is asked
    /// of these, so lists have no rules of their own.
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

    /// How many single edits it stands for.
    pub fn singles(&self) -> usize {
        self.listed().map_or(1, BTreeSet::len)
    }

    fn listed(&self) -> Option<&BTreeSet<NodeId>> {
        match self {
            Self::BindNodes { nodes, .. } | Self::UnbindNodes { nodes, .. } => Some(nodes),
            _ => None,
        }
    }

    /// What can be said of an edit by itself, so that it is refused before anything is worked out or stored.
    ///
    /// # Errors
    /// When its reason or its list of nodes is too long, the list is empty, or ids that it makes are none.
    pub fn check(&self) -> Result<(), EditError> {
        if let Self::CreateDeployment { id, phantom, name, .. } = self {
            // What many programs send that forgot to mint one would soon be everybody's.
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

/// Refuses hints that are too large or refer to a secret: everybody who may see the node reads them.
fn check_hints(hints: &Value) -> Result<(), EditError> {
    let Value::Object(_) = hints else {
        return Err(EditError::Hints("a JSON object is needed".into()));
    };
    if serde_json::to_vec(hints).map_or(usize::MAX, |bytes| bytes.len()) > MAX_HINTS {
        return Err(EditError::Hints(format!(
            "they may have at most {} KiB as JSON",
            MAX_HINTS / 1024
        )));
    }
    if holds_reference(hints) {
        return Err(EditError::Hints(
            "they can't refer to a secret, because every viewer reads them".into(),
        ));
    }
    Ok(())
}

/// An edit and its place in the proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NumberedEdit {
    /// Rises by one from 1; numbers of undone edits are not used again.
    pub seq: u32,
    /// What is wanted.
    pub edit: Edit,
}
