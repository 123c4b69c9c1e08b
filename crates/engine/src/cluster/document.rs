//! Documents: the content-addressed parts of a blueprint.
//!
//! A blueprint consists of one root, one document per deployment and one per node that has a
//! desired state. The root names the others by hash. Blueprints therefore share unchanged
//! documents, and a comparison visits only differences. A noderole is part of its node's document,
//! because changes and ledgers are per node.
//!
//! Documents contain intent only: never outputs, facts, states or times. A noderole names the
//! content hash of its role, so an approval covers the scripts that will run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::connection::Connection;
use crate::canonical::{Hash, Object, ObjectKind};
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// The root of a blueprint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RootDoc {
    /// The document hash of every deployment.
    pub deployments: BTreeMap<DeploymentId, Hash>,
    /// The document hash of every node that has a desired state.
    pub nodes: BTreeMap<NodeId, Hash>,
}

impl RootDoc {
    /// The root as an object to store. Every commit writes the whole root, which names each node,
    /// so this skips the sorting step of canonical JSON. The fields are declared in canonical
    /// order. Ids and hashes are plain ASCII, so the order of the maps is canonical too.
    ///
    /// # Errors
    /// [`BlueprintError`], which no root document can cause in practice.
    pub fn object(&self) -> Result<Object, BlueprintError> {
        let written = serde_json::to_vec(self);
        let body = written
            .map_err(|e| BlueprintError::NotCanonical { kind: "root", reason: e.to_string() })?;
        Ok(Object::of_bytes(ObjectKind::Root, body))
    }
}

/// The desired state of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentDoc {
    /// The deployment's id, assigned by the edit that created it.
    pub id: DeploymentId,
    /// The deployment's name, unique in the cluster.
    pub name: DeploymentName,
    /// The parent deployment; null for *system*.
    pub parent: Option<DeploymentId>,
    /// The phantom node, which runs service roles, stages and barriers.
    pub phantom: NodeId,
    /// Barclamps that this deployment and its descendants use, by content hash.
    pub barclamps: BTreeMap<BarclampName, Hash>,
    /// Roles that can be bound here, with the deployment's data for them.
    pub roles: BTreeMap<RoleName, DeploymentRoleDoc>,
    /// Jigs that are turned off. Jigs serve all deployments, so only the root deployment has this
    /// field.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inactive_jigs: BTreeSet<JigName>,
}

/// A role in a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentRoleDoc {
    /// The content hash of the role.
    pub role: Hash,
    /// Data for all noderoles of the role in this deployment.
    pub data: Value,
}

/// The desired state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDoc {
    /// The node's id, assigned when the node was created.
    pub id: NodeId,
    /// The node's fully qualified domain name.
    pub fqdn: Fqdn,
    /// The deployment that the node belongs to.
    pub deployment: DeploymentId,
    /// Whether this is a deployment's phantom node and not a machine.
    pub phantom: bool,
    /// How a worker connects to the node. Null for a phantom node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// Data that the node's roles may read before their first run, as a JSON object.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub hints: serde_json::Map<String, Value>,
    /// The noderoles of the node.
    pub noderoles: BTreeMap<NoderoleKey, NoderoleDoc>,
}

/// A role and its instance on a node, written as `app` or `app/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct NoderoleKey {
    pub role: RoleName,
    /// 0 unless a node has the role more than once.
    pub instance: u32,
}

impl NoderoleKey {
    /// The role's first instance, usually the only one.
    pub fn first(role: RoleName) -> Self {
        Self { role, instance: 0 }
    }

    /// The noderole's id on this node.
    pub fn id(&self, node: NodeId) -> NoderoleId {
        NoderoleId::of(node, &self.role, self.instance)
    }
}

impl fmt::Display for NoderoleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instance {
            0 => self.role.fmt(f),
            n => write!(f, "{}/{n}", self.role),
        }
    }
}

impl FromStr for NoderoleKey {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (role, instance) = match text.split_once('/') {
            None => (text, 0),
            Some((role, n)) => {
                (role, n.parse().map_err(|_| format!("{n:?} is not an instance number"))?)
            }
        };
        let role = RoleName::parse(role).map_err(|e| e.to_string())?;
        Ok(Self { role, instance })
    }
}

impl TryFrom<String> for NoderoleKey {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<NoderoleKey> for String {
    fn from(key: NoderoleKey) -> String {
        key.to_string()
    }
}

/// The desired state of a noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleDoc {
    /// The deployment in which the role was bound: that of the node or one of its ancestors.
    pub deployment: DeploymentId,
    /// The content hash of the role: definition, scripts and schemas.
    pub role: Hash,
    /// The noderole's own reviewed data.
    pub data: Value,
    /// How many reviewed changes have re-run it.
    pub reruns: u32,
    /// Length of the longest path from a root of the graph. It rises along every edge.
    pub rank: u32,
    /// The noderoles that this one waits for, ordered by id.
    pub parents: Vec<EdgeDoc>,
}

/// An edge to a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EdgeDoc {
    /// The parent noderole.
    pub parent: NoderoleId,
    /// The kind of the edge.
    pub kind: EdgeKind,
}

/// The kind of an edge between noderoles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// Affects order, data and removal.
    Hard,
    /// Affects order only, and only if both noderoles run.
    OrderOnly,
    /// Affects order, but not data or removal (`preceeds`).
    Soft,
}

impl EdgeKind {
    /// The kind as the database spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::OrderOnly => "order_only",
            Self::Soft => "soft",
        }
    }
}

/// A blueprint in memory. Blueprints with the same documents share them.
#[derive(Debug, Clone, Default)]
pub struct Blueprint {
    pub deployments: BTreeMap<DeploymentId, Stored<DeploymentDoc>>,
    pub nodes: BTreeMap<NodeId, Stored<NodeDoc>>,
}

/// A document and its hash.
#[derive(Debug)]
pub struct Stored<T> {
    /// The hash of its canonical bytes.
    pub hash: Hash,
    pub doc: Arc<T>,
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Self { hash: self.hash, doc: Arc::clone(&self.doc) }
    }
}

/// An inconsistent blueprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlueprintError {
    /// A document cannot be written as canonical JSON.
    #[error("A {kind} document cannot be stored: {reason}.")]
    NotCanonical {
        kind: &'static str,
        /// The serializer's message.
        reason: String,
    },
    /// Stored bytes do not parse as the expected document.
    #[error("Object {hash} is not a {kind} document: {reason}. Restore it from a backup.")]
    Unreadable {
        kind: &'static str,
        hash: Hash,
        /// The parser's message.
        reason: String,
    },
}

impl Blueprint {
    /// Whether a deployment is the other one or a descendant of it.
    pub fn is_within(&self, deployment: DeploymentId, above: DeploymentId) -> bool {
        let mut next = Some(deployment);
        let mut left = self.deployments.len();
        while let Some(id) = next {
            if id == above {
                return true;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            next = self.deployments.get(&id).and_then(|d| d.doc.parent);
        }
        false
    }

    /// The pins of a deployment and its ancestors, nearest first.
    pub fn pins(
        &self,
        deployment: DeploymentId,
    ) -> impl Iterator<Item = &BTreeMap<BarclampName, Hash>> {
        let mut next = Some(deployment);
        let chain = std::iter::from_fn(move || {
            let stored = self.deployments.get(&next?)?;
            next = stored.doc.parent;
            Some(&stored.doc.barclamps)
        });
        // Bounded, so that a cycle of parents in broken documents ends too.
        chain.take(self.deployments.len())
    }

    /// The version of a barclamp that a deployment uses, pinned by it or by an ancestor.
    pub fn visible_version(
        &self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
    ) -> Option<Hash> {
        self.pins(deployment).find_map(|pins| pins.get(barclamp).copied())
    }

    pub fn root(&self) -> RootDoc {
        RootDoc {
            deployments: self.deployments.iter().map(|(id, d)| (*id, d.hash)).collect(),
            nodes: self.nodes.iter().map(|(id, n)| (*id, n.hash)).collect(),
        }
    }

    pub fn root_object(&self) -> Result<Object, BlueprintError> {
        self.root().object()
    }

    /// Inserts or replaces a deployment's document and returns its object.
    pub fn insert_deployment(&mut self, doc: DeploymentDoc) -> Result<Object, BlueprintError> {
        let object = object(ObjectKind::Deployment, &doc)?;
        self.deployments.insert(doc.id, Stored { hash: object.hash, doc: Arc::new(doc) });
        Ok(object)
    }

    /// Inserts or replaces a node's document and returns its object.
    pub fn insert_node(&mut self, doc: NodeDoc) -> Result<Object, BlueprintError> {
        let object = object(ObjectKind::Node, &doc)?;
        self.nodes.insert(doc.id, Stored { hash: object.hash, doc: Arc::new(doc) });
        Ok(object)
    }

    /// Parses a stored document and inserts it under its hash.
    pub fn load_deployment(&mut self, hash: Hash, body: &[u8]) -> Result<(), BlueprintError> {
        let doc: DeploymentDoc = parse("deployment", hash, body)?;
        self.deployments.insert(doc.id, Stored { hash, doc: Arc::new(doc) });
        Ok(())
    }

    /// Parses a stored document and inserts it under its hash.
    pub fn load_node(&mut self, hash: Hash, body: &[u8]) -> Result<(), BlueprintError> {
        let doc: NodeDoc = parse("node", hash, body)?;
        self.nodes.insert(doc.id, Stored { hash, doc: Arc::new(doc) });
        Ok(())
    }

    /// A noderole and its node.
    pub fn noderole(&self, node: NodeId, key: &NoderoleKey) -> Option<(&NodeDoc, &NoderoleDoc)> {
        let node = &self.nodes.get(&node)?.doc;
        Some((node, node.noderoles.get(key)?))
    }
}

fn object<T: Serialize>(kind: ObjectKind, doc: &T) -> Result<Object, BlueprintError> {
    Object::of(kind, doc)
        .map_err(|e| BlueprintError::NotCanonical { kind: kind.as_str(), reason: e.to_string() })
}

/// Parses a stored document.
pub fn parse<T: for<'de> Deserialize<'de>>(
    kind: &'static str,
    hash: Hash,
    body: &[u8],
) -> Result<T, BlueprintError> {
    serde_json::from_slice(body).map_err(|e| BlueprintError::Unreadable {
        kind,
        hash,
        reason: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn hash() -> impl Strategy<Value = Hash> {
        any::<[u8; 32]>().prop_map(|bytes| Hash::from_bytes(&bytes).unwrap())
    }

    fn root() -> impl Strategy<Value = RootDoc> {
        let deployments =
            btree_map(any::<u128>().prop_map(|id| DeploymentId(Uuid::from_u128(id))), hash(), 0..8);
        let nodes =
            btree_map(any::<u128>().prop_map(|id| NodeId(Uuid::from_u128(id))), hash(), 0..40);
        (deployments, nodes).prop_map(|(deployments, nodes)| RootDoc { deployments, nodes })
    }

    proptest! {
        #[test]
        fn root_object_is_canonical(root in root()) {
            let object = root.object().unwrap();
            prop_assert_eq!(&object.body, &crate::canonical::bytes(&root).unwrap());
            prop_assert_eq!(parse::<RootDoc>("root", object.hash, &object.body).unwrap(), root);
        }
    }
}
