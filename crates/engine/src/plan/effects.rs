//! Effects: the complete result of a proposal's edits.
//!
//! Effects are complete: a blueprint follows from them without further choices. Each entry has a
//! reason, the edit that requested it or the role that required it. They are comparable as
//! canonical JSON, so server and browser compare them by hash.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::{self, Hash};
use crate::cluster::{ConnectionChange, EdgeDoc, NoderoleKey};
use crate::gate::Policy;
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// The net result of a proposal's edits: anything that one edit adds and a later one removes is
/// omitted. Each list is in the order of the decisions.
///
/// Newer lists are omitted from the JSON if empty, so that the hash of older effects stays the
/// same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Effects {
    /// New deployments, parents first.
    pub deployments: Vec<NewDeployment>,
    /// Barclamps that deployments start to use, or use in another version.
    pub barclamps: Vec<BarclampUse>,
    /// Roles added to deployments.
    pub roles: Vec<NewRole>,
    /// New data of deployment roles.
    pub role_data: Vec<RoleData>,
    /// Nodes that move to another deployment.
    pub moved: Vec<NodeMove>,
    /// New noderoles.
    pub bound: Vec<Bound>,
    /// New data of noderoles.
    pub noderole_data: Vec<NoderoleData>,
    /// Noderoles that an edit re-runs.
    pub reruns: Vec<Rerun>,
    /// Removed deployments, with their phantom nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_deployments: Vec<RemovedDeployment>,
    /// Deployments that get another parent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved_deployments: Vec<DeploymentMove>,
    /// Roles removed from deployments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_roles: Vec<RemovedRole>,
    /// Barclamp versions that deployments no longer pin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpinned: Vec<UnpinnedBarclamp>,
    /// Removed noderoles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unbound: Vec<RemovedNoderole>,
    /// Expunged nodes, with everything on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expunged: Vec<ExpungedNode>,
    /// Existing noderoles whose parents change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewired: Vec<RewiredNoderole>,
    /// Deployment roles and noderoles whose role content changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repinned: Vec<RoleContentChange>,
    /// Connection changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionUpdate>,
    /// Nodes whose hints are replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<NewHints>,
    /// Jigs that are turned on or off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jigs: Vec<JigSwitch>,
    /// The new approval policy, if it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<NewPolicy>,
    /// Edits that cannot take effect.
    pub refused: Vec<Refusal>,
}

impl Effects {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        // Destructured completely, so that the compiler reports a new field that is missing here.
        let Self {
            deployments,
            barclamps,
            roles,
            role_data,
            moved,
            bound,
            noderole_data,
            reruns,
            removed_deployments,
            moved_deployments,
            removed_roles,
            unpinned,
            unbound,
            expunged,
            rewired,
            repinned,
            connections,
            hints,
            jigs,
            policy,
            refused: _,
        } = self;
        deployments.is_empty()
            && barclamps.is_empty()
            && roles.is_empty()
            && role_data.is_empty()
            && moved.is_empty()
            && bound.is_empty()
            && noderole_data.is_empty()
            && reruns.is_empty()
            && removed_deployments.is_empty()
            && moved_deployments.is_empty()
            && removed_roles.is_empty()
            && unpinned.is_empty()
            && unbound.is_empty()
            && expunged.is_empty()
            && rewired.is_empty()
            && repinned.is_empty()
            && connections.is_empty()
            && hints.is_empty()
            && jigs.is_empty()
            && policy.is_none()
    }

    /// The hash that planners compare.
    ///
    /// # Errors
    /// Data that canonical JSON cannot represent.
    pub fn hash(&self) -> Result<Hash, serde_json::Error> {
        canonical::hash(self)
    }
}

/// Why something is part of the effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EffectCause {
    /// An edit requests it.
    Requested {
        /// Number of the edit.
        edit: u32,
    },
    /// Something else requires it.
    Required {
        /// Number of the edit that caused it.
        edit: u32,
        /// The role that requires it.
        by: RoleName,
        /// Whether it is implicit, that is, always bound to the same node.
        implicit: bool,
    },
}

impl EffectCause {
    /// Number of the edit that caused it.
    pub fn edit(&self) -> u32 {
        match self {
            Self::Requested { edit } | Self::Required { edit, .. } => *edit,
        }
    }
}

/// A new deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewDeployment {
    /// The deployment's id, chosen by the edit.
    pub id: DeploymentId,
    /// The phantom node's id, chosen by the edit.
    pub phantom: NodeId,
    /// The phantom node's name, derived from the deployment's id.
    pub phantom_fqdn: Fqdn,
    /// The deployment's name, unique in the cluster.
    pub name: DeploymentName,
    /// The parent deployment.
    pub parent: DeploymentId,
    /// The reason.
    pub cause: EffectCause,
}

/// A barclamp that a deployment starts to use, or uses in another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarclampUse {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The barclamp.
    pub barclamp: BarclampName,
    /// Content hash of the version.
    pub version: Hash,
    /// The reason.
    pub cause: EffectCause,
}

/// A role added to a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewRole {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
    /// Content hash of the role.
    pub content: Hash,
    /// The reason.
    pub cause: EffectCause,
}

/// New data of a deployment role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleData {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
    /// The complete new data.
    pub data: Value,
    /// The reason.
    pub cause: EffectCause,
}

/// A node that moves to another deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeMove {
    /// The node.
    pub node: NodeId,
    /// The previous deployment.
    pub from: DeploymentId,
    /// The new deployment.
    pub to: DeploymentId,
    /// The reason.
    pub cause: EffectCause,
}

/// A new noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// The noderole's id, derived from node, role and instance.
    pub id: NoderoleId,
    /// The node.
    pub node: NodeId,
    /// The noderole's role and instance.
    pub noderole: NoderoleKey,
    /// The deployment in which it is bound.
    pub deployment: DeploymentId,
    /// Content hash of the role.
    pub role: Hash,
    /// Length of the longest path from a root of the graph.
    pub rank: u32,
    /// The noderoles that it waits for, ordered by id.
    pub parents: Vec<EdgeDoc>,
    /// The reason.
    pub cause: EffectCause,
}

/// New data of a noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleData {
    /// The node.
    pub node: NodeId,
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The complete new data.
    pub data: Value,
    /// The reason.
    pub cause: EffectCause,
}

/// A change of a node's connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectionUpdate {
    /// The node.
    pub node: NodeId,
    /// The fields to change.
    pub connection: ConnectionChange,
    /// The reason.
    pub cause: EffectCause,
}

/// New hints of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewHints {
    /// The node.
    pub node: NodeId,
    /// The complete new hints.
    pub hints: Map<String, Value>,
    /// The reason.
    pub cause: EffectCause,
}

/// A noderole that runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rerun {
    /// The node.
    pub node: NodeId,
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The reason that the author of the edit gave.
    pub reason: String,
    /// The edit that requested it.
    pub cause: EffectCause,
}

/// A removed deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedDeployment {
    /// The deployment.
    pub id: DeploymentId,
    /// Its phantom node, which is removed too.
    pub phantom: NodeId,
    /// The deployment's name.
    pub name: DeploymentName,
    /// The reason.
    pub cause: EffectCause,
}

/// A deployment that gets another parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentMove {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The previous parent.
    pub from: DeploymentId,
    /// The new parent.
    pub to: DeploymentId,
    /// The reason.
    pub cause: EffectCause,
}

/// A role removed from a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedRole {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
    /// The reason.
    pub cause: EffectCause,
}

/// A barclamp version that a deployment no longer pins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnpinnedBarclamp {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The barclamp.
    pub barclamp: BarclampName,
    /// Content hash of the previous version.
    pub from: Hash,
    /// Content hash of the inherited version; null if the deployment no longer has the barclamp.
    pub to: Option<Hash>,
    /// The reason.
    pub cause: EffectCause,
}

/// A removed noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedNoderole {
    /// The noderole's id, derived from node, role and instance.
    pub id: NoderoleId,
    /// The node.
    pub node: NodeId,
    /// The noderole's role and instance.
    pub noderole: NoderoleKey,
    /// The deployment in which it was bound.
    pub deployment: DeploymentId,
    /// The reason: an edit requests it, or it depends on a removed noderole.
    pub cause: EffectCause,
}

/// An expunged node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExpungedNode {
    /// The node.
    pub node: NodeId,
    /// The node's name.
    pub fqdn: Fqdn,
    /// The reason that the author of the edit gave.
    pub reason: String,
    /// The edit that requested it.
    pub cause: EffectCause,
}

/// An existing noderole whose parents change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RewiredNoderole {
    /// The node.
    pub node: NodeId,
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The deployment in which it is bound.
    pub deployment: DeploymentId,
    /// New length of the longest path from a root of the graph.
    pub rank: u32,
    /// The new parents, ordered by id.
    pub parents: Vec<EdgeDoc>,
}

/// A deployment role or noderole whose role content changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleContentChange {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The node; null for the deployment role itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The role and instance.
    pub noderole: NoderoleKey,
    /// Content hash of the previous role.
    pub from: Hash,
    /// Content hash of the new role.
    pub to: Hash,
}

/// A jig that is turned on or off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JigSwitch {
    /// The jig.
    pub jig: JigName,
    /// Whether it is turned on.
    pub active: bool,
    /// The reason.
    pub cause: EffectCause,
}

/// A new approval policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewPolicy {
    /// The complete policy.
    pub policy: Policy,
    /// The reason.
    pub cause: EffectCause,
}

/// An edit that cannot take effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Number of the edit.
    pub edit: u32,
    /// Error code for API clients: the variant of the error.
    pub code: String,
    /// The problem and how to fix it.
    pub reason: String,
}

/// Values that edits set. The last edit wins.
#[derive(Default)]
pub(super) struct Set {
    pub role_data: LastValues<(DeploymentId, RoleName), RoleData>,
    pub noderole_data: LastValues<(NodeId, NoderoleKey), NoderoleData>,
    pub reruns: LastValues<(NodeId, NoderoleKey), Rerun>,
    pub connections: LastValues<NodeId, ConnectionUpdate>,
    pub hints: LastValues<NodeId, NewHints>,
    pub jigs: LastValues<JigName, JigSwitch>,
    pub policy: Option<NewPolicy>,
}

/// The last entry of each key, indexed because thousands of edits may each set one. Output is in
/// the order of the edits.
pub(super) struct LastValues<K, T> {
    count: u64,
    entries: BTreeMap<K, (u64, T)>,
}

impl<K, T> Default for LastValues<K, T> {
    fn default() -> Self {
        Self { count: 0, entries: BTreeMap::new() }
    }
}

impl<K: Ord, T> LastValues<K, T> {
    pub fn set(&mut self, key: K, entry: T) {
        self.count += 1;
        self.entries.insert(key, (self.count, entry));
    }

    pub fn last(&self, key: &K) -> Option<&T> {
        self.entries.get(key).map(|(_, entry)| entry)
    }

    /// The entries that satisfy the condition, in the order of the edits.
    pub fn in_order(&self, holds: impl Fn(&T) -> bool) -> Vec<T>
    where
        T: Clone,
    {
        in_order(self.entries.values().filter(|(_, entry)| holds(entry)).cloned().collect())
    }
}

pub(super) fn in_order<T>(mut numbered: Vec<(u64, T)>) -> Vec<T> {
    numbered.sort_by_key(|(at, _)| *at);
    numbered.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_entry_of_key_wins() {
        let mut values = LastValues::default();
        for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("a", 4)] {
            values.set(key, value);
        }
        assert_eq!(values.in_order(|_| true), [2, 3, 4]);
        assert_eq!(values.in_order(|value| *value != 3), [2, 4]);
    }
}
