//! Effects: everything that a proposal's edits come to.
//!
//! They are complete (a blueprint follows from them without another choice), explained (each entry names the edit that asked for it
//! or what brought it along) and comparable (canonical JSON; server and browser agree by hash).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::{self, Hash};
use crate::cluster::{ConnectionChange, EdgeDoc, NoderoleKey};
use crate::gate::Policy;
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// What a proposal's edits come to as a whole: what one edit adds and a later one takes away is not there. Each list is in the
/// order in which things were decided.
///
/// Kinds that came later are left out of the JSON where they are empty, so that the hash of older effects stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Effects {
    /// New deployments, parents first.
    pub deployments: Vec<NewDeployment>,
    /// Barclamps that deployments begin to use, or use in another version.
    pub barclamps: Vec<BarclampUse>,
    /// Roles that become bindable.
    pub roles: Vec<NewRole>,
    /// Data of roles in deployments.
    pub role_data: Vec<RoleData>,
    /// Nodes that change their deployment.
    pub moved: Vec<Moved>,
    /// New noderoles.
    pub bound: Vec<Bound>,
    /// Data of noderoles.
    pub noderole_data: Vec<NoderoleData>,
    /// Noderoles that run again because an edit says so.
    pub reruns: Vec<Rerun>,
    /// Deployments that go, with their phantom nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_deployments: Vec<RemovedDeployment>,
    /// Roles that can't be bound in a deployment any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_roles: Vec<RemovedRole>,
    /// Versions of barclamps that deployments don't have of their own any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpinned: Vec<Unpinned>,
    /// Noderoles that go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unbound: Vec<Unbound>,
    /// Nodes that are given up, with everything on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expunged: Vec<Expunged>,
    /// Noderoles that stay and wait for others than before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewired: Vec<Rewired>,
    /// Roles and noderoles that get another content of their role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repinned: Vec<Repinned>,
    /// Connections that change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionSet>,
    /// Hints that are replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<HintsSet>,
    /// Jigs that are switched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jigs: Vec<JigSwitch>,
    /// The policy that comes into force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySet>,
    /// Edits that can't take effect.
    pub refused: Vec<Refusal>,
}

impl Effects {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        // Every field is named, so that a new one can't be forgotten here.
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

    /// The hash by which two planners agree.
    ///
    /// # Errors
    /// For data that canonical JSON can't say.
    pub fn hash(&self) -> Result<Hash, serde_json::Error> {
        canonical::hash(self)
    }
}

/// Why something is part of the effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// A person asked for it.
    Asked {
        /// By this edit.
        edit: u32,
    },
    /// It comes along with something else.
    Brought {
        /// By this edit, in the end.
        edit: u32,
        /// By this role, at once.
        by: RoleName,
        /// Because it always comes along on the same node.
        implicit: bool,
    },
}

impl Why {
    /// The edit at the bottom of it.
    pub fn edit(&self) -> u32 {
        match self {
            Self::Asked { edit } | Self::Brought { edit, .. } => *edit,
        }
    }
}

/// A new deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewDeployment {
    /// Minted by the edit.
    pub id: DeploymentId,
    /// Minted by the edit.
    pub phantom: NodeId,
    /// The phantom node's name, derived from the deployment's.
    pub phantom_fqdn: Fqdn,
    /// Unique.
    pub name: DeploymentName,
    /// The one above.
    pub parent: DeploymentId,
    /// Why.
    pub why: Why,
}

/// A barclamp that a deployment begins to use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarclampUse {
    /// Where.
    pub deployment: DeploymentId,
    /// Which.
    pub barclamp: BarclampName,
    /// Its content.
    pub version: Hash,
    /// Why.
    pub why: Why,
}

/// A role that becomes bindable in a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewRole {
    /// Where.
    pub deployment: DeploymentId,
    /// Which.
    pub role: RoleName,
    /// Its content.
    pub content: Hash,
    /// Why.
    pub why: Why,
}

/// Data of a role in a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleData {
    /// Where.
    pub deployment: DeploymentId,
    /// Which.
    pub role: RoleName,
    /// The whole new data.
    pub data: Value,
    /// Why.
    pub why: Why,
}

/// A node that changes its deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moved {
    /// Which.
    pub node: NodeId,
    /// Where it was.
    pub from: DeploymentId,
    /// Where it will be.
    pub to: DeploymentId,
    /// Why.
    pub why: Why,
}

/// A new noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// Derived from node, role and instance.
    pub id: NoderoleId,
    /// Where.
    pub node: NodeId,
    /// What.
    pub noderole: NoderoleKey,
    /// In which deployment.
    pub deployment: DeploymentId,
    /// The role's content.
    pub role: Hash,
    /// Longest way from a root.
    pub rank: u32,
    /// What it waits for, in the order of ids.
    pub parents: Vec<EdgeDoc>,
    /// Why.
    pub why: Why,
}

/// Data of a noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleData {
    /// The node.
    pub node: NodeId,
    /// The noderole on it.
    pub noderole: NoderoleKey,
    /// The whole new data.
    pub data: Value,
    /// Why.
    pub why: Why,
}

/// A change of how a node is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectionSet {
    /// The node.
    pub node: NodeId,
    /// The fields that change.
    pub connection: ConnectionChange,
    /// Why.
    pub why: Why,
}

/// New hints of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HintsSet {
    /// The node.
    pub node: NodeId,
    /// All of them.
    pub hints: Map<String, Value>,
    /// Why.
    pub why: Why,
}

/// A noderole that runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rerun {
    /// The node.
    pub node: NodeId,
    /// The noderole on it.
    pub noderole: NoderoleKey,
    /// The reason that a person gave.
    pub reason: String,
    /// Why.
    pub why: Why,
}

/// A deployment that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedDeployment {
    /// Which.
    pub id: DeploymentId,
    /// Its phantom node, which goes too.
    pub phantom: NodeId,
    /// Its name.
    pub name: DeploymentName,
    /// Why.
    pub why: Why,
}

/// A role that can't be bound in a deployment any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedRole {
    /// Where.
    pub deployment: DeploymentId,
    /// Which.
    pub role: RoleName,
    /// Why.
    pub why: Why,
}

/// A barclamp's version that a deployment does not have of its own any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unpinned {
    /// Where.
    pub deployment: DeploymentId,
    /// Which.
    pub barclamp: BarclampName,
    /// Its own version until now.
    pub from: Hash,
    /// The version from above that it has from now on; None: it has the barclamp no more.
    pub to: Option<Hash>,
    /// Why.
    pub why: Why,
}

/// A noderole that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unbound {
    /// Derived from node, role and instance.
    pub id: NoderoleId,
    /// Where it was.
    pub node: NodeId,
    /// What.
    pub noderole: NoderoleKey,
    /// In which deployment.
    pub deployment: DeploymentId,
    /// Why: asked for, or because it can't be without what goes.
    pub why: Why,
}

/// A node that is given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expunged {
    /// Which.
    pub node: NodeId,
    /// Its name.
    pub fqdn: Fqdn,
    /// The reason that a person gave.
    pub reason: String,
    /// Why.
    pub why: Why,
}

/// A noderole that stays and waits for others than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rewired {
    /// Where.
    pub node: NodeId,
    /// What.
    pub noderole: NoderoleKey,
    /// In which deployment.
    pub deployment: DeploymentId,
    /// Longest way from a root, as it will be.
    pub rank: u32,
    /// What it will wait for, in the order of ids.
    pub parents: Vec<EdgeDoc>,
}

/// A deployment's role, or a noderole, that gets another content of its role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Repinned {
    /// In which deployment.
    pub deployment: DeploymentId,
    /// On which node; none for the deployment's own pin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// What.
    pub noderole: NoderoleKey,
    /// The role's content until now.
    pub from: Hash,
    /// The role's content from now on.
    pub to: Hash,
}

/// A jig that is switched on or off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JigSwitch {
    /// Which.
    pub jig: JigName,
    /// On.
    pub active: bool,
    /// Why.
    pub why: Why,
}

/// A policy that comes into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicySet {
    /// The whole of it.
    pub policy: Policy,
    /// Why.
    pub why: Why,
}

/// An edit that can't take effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Which edit.
    pub edit: u32,
    /// A word for programs: the variant of the error.
    pub code: String,
    /// What is wrong and what to do.
    pub reason: String,
}
