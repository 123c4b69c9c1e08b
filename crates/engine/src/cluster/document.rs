//! Documents: a blueprint's content-addressed parts.
//!
//! A blueprint is one root, one document for each deployment and one for each node that has any intent. A root names the others by
//! hash, so two blueprints share what they have in common, and comparing them walks only what differs. A noderole lives in its
//! node's document, because a node is what a change touches and what a ledger answers for.
//!
//! Documents hold intent alone: no wall, fact, state or time ever enters them. A noderole names the content hash of its role, so
//! what an approval covers includes the scripts that will run.

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
    /// Every deployment's document.
    pub deployments: BTreeMap<DeploymentId, Hash>,
    /// The document of every node that has one; a node without intent has none.
    pub nodes: BTreeMap<NodeId, Hash>,
}

impl RootDoc {
    /// The object to store. Every commit writes a whole root, which names each node, so it is not taken apart and sorted once more: its
    /// fields stand in order, and of ids and hashes, which are plain ASCII, the maps' order is the canonical one.
    ///
    /// # Errors
    /// None that these documents could give rise to.
    pub fn object(&self) -> Result<Object, BlueprintError> {
        let written = serde_json::to_vec(self);
        let body = written
            .map_err(|e| BlueprintError::NotCanonical { kind: "root", reason: e.to_string() })?;
        Ok(Object::of_bytes(ObjectKind::Root, body))
    }
}

/// What is meant for a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentDoc {
    /// Minted by the edit that made it.
    pub id: DeploymentId,
    /// Unique.
    pub name: DeploymentName,
    /// None for *system* alone.
    pub parent: Option<DeploymentId>,
    /// The node that service roles, stages and barriers stand on.
    pub phantom: NodeId,
    /// Barclamps that this deployment and those below it use, by content.
    pub barclamps: BTreeMap<BarclampName, Hash>,
    /// Roles that may be bound here, with the deployment's own data for them.
    pub roles: BTreeMap<RoleName, DeploymentRoleDoc>,
    /// Jigs that are switched off. Jigs serve all deployments, so the root's document alone says it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inactive_jigs: BTreeSet<JigName>,
}

/// A role in a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentRoleDoc {
    /// The role's content.
    pub role: Hash,
    /// Data for all its noderoles here.
    pub data: Value,
}

/// What is meant for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDoc {
    /// Minted when the node was made.
    pub id: NodeId,
    /// Its name.
    pub fqdn: Fqdn,
    /// Where it belongs.
    pub deployment: DeploymentId,
    /// Whether it stands for a deployment instead of a machine.
    pub phantom: bool,
    /// How a worker reaches it. None: a phantom, or a document from before connections were part of it, which no run uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// What its roles may want to know before their first run; an object.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub hints: serde_json::Map<String, Value>,
    /// What it carries.
    pub noderoles: BTreeMap<NoderoleKey, NoderoleDoc>,
}

/// A role's instance on a node; `app` or `app/1` in text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct NoderoleKey {
    /// The role.
    pub role: RoleName,
    /// 0 unless a node carries a role more than once.
    pub instance: u32,
}

impl NoderoleKey {
    /// The role's only instance.
    pub fn first(role: RoleName) -> Self {
        Self { role, instance: 0 }
    }

    /// The id that it has on a node.
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

/// What is meant for a noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleDoc {
    /// The deployment it was bound in: its node's or an ancestor of that.
    pub deployment: DeploymentId,
    /// The role's content: definition, scripts, schemas.
    pub role: Hash,
    /// Its own reviewed data.
    pub data: Value,
    /// How often a reviewed change asked it to run again.
    pub reruns: u32,
    /// Longest way from a root of the graph; rises along every edge.
    pub rank: u32,
    /// What it waits for, in the order of ids.
    pub parents: Vec<EdgeDoc>,
}

/// An edge to a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EdgeDoc {
    /// The parent.
    pub parent: NoderoleId,
    /// What the edge means.
    pub kind: EdgeKind,
}

/// What an edge means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// Order, data and removal.
    Hard,
    /// Order alone, and only if both run.
    OrderOnly,
    /// Order, but neither data nor removal (`preceeds`).
    Soft,
}

impl EdgeKind {
    /// The word in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::OrderOnly => "order_only",
            Self::Soft => "soft",
        }
    }
}

/// A blueprint in memory. Parts are shared with others that have the same.
#[derive(Debug, Clone, Default)]
pub struct Blueprint {
    /// Every deployment's document.
    pub deployments: BTreeMap<DeploymentId, Stored<DeploymentDoc>>,
    /// Every node's document.
    pub nodes: BTreeMap<NodeId, Stored<NodeDoc>>,
}

/// A document and the hash that it is stored under.
#[derive(Debug)]
pub struct Stored<T> {
    /// Of its canonical bytes.
    pub hash: Hash,
    /// The document.
    pub doc: Arc<T>,
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Self { hash: self.hash, doc: Arc::clone(&self.doc) }
    }
}

/// A blueprint that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlueprintError {
    /// A document can't be written as canonical JSON.
    #[error("a {kind} document can't be stored: {reason}")]
    NotCanonical {
        /// Which kind.
        kind: &'static str,
        /// From the writer.
        reason: String,
    },
    /// Stored bytes are not the document that they should be.
    #[error("object {hash} is not a {kind} document: {reason}; restore it from a backup")]
    Unreadable {
        /// Which kind.
        kind: &'static str,
        /// Its hash.
        hash: Hash,
        /// From the parser.
        reason: String,
    },
}

impl Blueprint {
    /// What a deployment and those above it pin, nearest first.
    pub fn pins_from(
        &self,
        deployment: DeploymentId,
    ) -> impl Iterator<Item = &BTreeMap<BarclampName, Hash>> {
        let mut next = Some(deployment);
        let chain = std::iter::from_fn(move || {
            let stored = self.deployments.get(&next?)?;
            next = stored.doc.parent;
            Some(&stored.doc.barclamps)
        });
        // Documents that stand in a circle must not be walked for ever.
        chain.take(self.deployments.len())
    }

    /// The version of a barclamp that a deployment has, of its own or from above.
    pub fn version_in_sight(
        &self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
    ) -> Option<Hash> {
        self.pins_from(deployment).find_map(|pins| pins.get(barclamp).copied())
    }

    /// The document of the root.
    pub fn root(&self) -> RootDoc {
        RootDoc {
            deployments: self.deployments.iter().map(|(id, d)| (*id, d.hash)).collect(),
            nodes: self.nodes.iter().map(|(id, n)| (*id, n.hash)).collect(),
        }
    }

    /// The root as an object to store.
    pub fn root_object(&self) -> Result<Object, BlueprintError> {
        self.root().object()
    }

    /// Puts a deployment's document in place of what was there and returns its object.
    pub fn put_deployment(&mut self, doc: DeploymentDoc) -> Result<Object, BlueprintError> {
        let object = object(ObjectKind::Deployment, &doc)?;
        self.deployments.insert(doc.id, Stored { hash: object.hash, doc: Arc::new(doc) });
        Ok(object)
    }

    /// Puts a node's document in place of what was there and returns its object.
    pub fn put_node(&mut self, doc: NodeDoc) -> Result<Object, BlueprintError> {
        let object = object(ObjectKind::Node, &doc)?;
        self.nodes.insert(doc.id, Stored { hash: object.hash, doc: Arc::new(doc) });
        Ok(object)
    }

    /// Takes in a stored document under the hash that names it.
    pub fn load_deployment(&mut self, hash: Hash, body: &[u8]) -> Result<(), BlueprintError> {
        let doc: DeploymentDoc = parse("deployment", hash, body)?;
        self.deployments.insert(doc.id, Stored { hash, doc: Arc::new(doc) });
        Ok(())
    }

    /// Takes in a stored document under the hash that names it.
    pub fn load_node(&mut self, hash: Hash, body: &[u8]) -> Result<(), BlueprintError> {
        let doc: NodeDoc = parse("node", hash, body)?;
        self.nodes.insert(doc.id, Stored { hash, doc: Arc::new(doc) });
        Ok(())
    }

    /// A noderole and the node that carries it.
    pub fn noderole(&self, node: NodeId, key: &NoderoleKey) -> Option<(&NodeDoc, &NoderoleDoc)> {
        let node = &self.nodes.get(&node)?.doc;
        Some((node, node.noderoles.get(key)?))
    }
}

fn object<T: Serialize>(kind: ObjectKind, doc: &T) -> Result<Object, BlueprintError> {
    Object::of(kind, doc)
        .map_err(|e| BlueprintError::NotCanonical { kind: kind.as_str(), reason: e.to_string() })
}

/// Reads a stored document.
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
        fn a_root_is_written_canonically(root in root()) {
            let object = root.object().unwrap();
            prop_assert_eq!(&object.body, &crate::canonical::bytes(&root).unwrap());
            prop_assert_eq!(parse::<RootDoc>("root", object.hash, &object.body).unwrap(), root);
        }
    }
}
