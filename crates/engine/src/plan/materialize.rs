//! Writes effects into documents.
//!
//! This stage makes no decisions. Every effect changes exactly one document. Unchanged documents
//! keep their hash and are shared with the previous blueprint.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::effects::{Effects, RoleContentChange};
use crate::canonical::Object;
use crate::cluster::change::{DocumentChange, compare};
use crate::cluster::{
    Blueprint, BlueprintError, Connection, ConnectionError, DeploymentDoc, DeploymentRoleDoc,
    NodeDoc, NoderoleDoc,
};
use crate::ids::{DeploymentId, Fqdn, NodeId};

/// A new blueprint and its differences to the previous one.
#[derive(Debug, Clone)]
pub struct Materialized {
    pub blueprint: Blueprint,
    /// The documents to store, the root last.
    pub objects: Vec<Object>,
    /// Every changed document, by kind and id.
    pub changes: Vec<DocumentChange>,
}

/// The effects do not fit the blueprint to write them into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaterializeError {
    /// The effects name a deployment that neither they nor the blueprint have.
    #[error("The plan names deployment {0}, which the blueprint does not have. Plan again")]
    NoDeployment(DeploymentId),
    /// The effects name a node that is neither in the blueprint nor among the records.
    #[error("The plan names node {0}, which does not exist. Plan again")]
    NoNode(NodeId),
    /// The effects name a noderole that the node does not have.
    #[error("The plan names noderole {noderole} of node {node}, which does not exist. Plan again")]
    NoNoderole { node: NodeId, noderole: String },
    /// The effects name a role that the deployment does not have.
    #[error(
        "The plan sets data of role {role}, which deployment {deployment} does not have. Plan \
         again"
    )]
    NoRole { deployment: DeploymentId, role: String },
    /// The effects change a connection field that does not exist for the transport.
    #[error("The connection of node {node} cannot be set: {error}")]
    Connection { node: Fqdn, error: ConnectionError },
    /// The blueprint has no root deployment, which stores the jig switches.
    #[error(
        "The blueprint has no root deployment, so jigs cannot be switched. Restore it from a \
         backup"
    )]
    NoRoot,
    /// A document cannot be written as canonical JSON.
    #[error(transparent)]
    Blueprint(#[from] BlueprintError),
}

/// The record of a node without a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndocumentedNode {
    pub fqdn: Fqdn,
    pub deployment: DeploymentId,
    /// `None`: the record has no valid connection, so no run starts there.
    pub connection: Option<Connection>,
    pub hints: Map<String, Value>,
}

impl From<(Fqdn, DeploymentId)> for UndocumentedNode {
    fn from((fqdn, deployment): (Fqdn, DeploymentId)) -> Self {
        Self { fqdn, deployment, connection: None, hints: Map::new() }
    }
}

/// Looks up the record of a node without a document.
pub type NodeRecordLookup<'a> = &'a dyn Fn(NodeId) -> Option<UndocumentedNode>;

pub(super) struct Writing<'a> {
    old: &'a Blueprint,
    bare: NodeRecordLookup<'a>,
    deployments: BTreeMap<DeploymentId, DeploymentDoc>,
    nodes: BTreeMap<NodeId, NodeDoc>,
}

impl Writing<'_> {
    pub fn deployment(&mut self, id: DeploymentId) -> Result<&mut DeploymentDoc, MaterializeError> {
        if !self.deployments.contains_key(&id) {
            let stored = self.old.deployments.get(&id).ok_or(MaterializeError::NoDeployment(id))?;
            self.deployments.insert(id, (*stored.doc).clone());
        }
        self.deployments.get_mut(&id).ok_or(MaterializeError::NoDeployment(id))
    }

    pub fn node(&mut self, id: NodeId) -> Result<&mut NodeDoc, MaterializeError> {
        if !self.nodes.contains_key(&id) {
            let doc = match self.old.nodes.get(&id) {
                Some(stored) => (*stored.doc).clone(),
                None => {
                    let UndocumentedNode { fqdn, deployment, connection, hints } =
                        (self.bare)(id).ok_or(MaterializeError::NoNode(id))?;
                    NodeDoc {
                        id,
                        fqdn,
                        deployment,
                        phantom: false,
                        connection,
                        hints,
                        noderoles: BTreeMap::new(),
                    }
                }
            };
            self.nodes.insert(id, doc);
        }
        self.nodes.get_mut(&id).ok_or(MaterializeError::NoNode(id))
    }

    /// The root deployment, which stores what concerns all deployments.
    pub fn root(&mut self) -> Result<&mut DeploymentDoc, MaterializeError> {
        let root = self.old.deployments.values().find(|d| d.doc.parent.is_none());
        self.deployment(root.ok_or(MaterializeError::NoRoot)?.doc.id)
    }

    pub fn noderole(
        &mut self,
        node: NodeId,
        key: &crate::cluster::NoderoleKey,
    ) -> Result<&mut NoderoleDoc, MaterializeError> {
        let missing = MaterializeError::NoNoderole { node, noderole: key.to_string() };
        self.node(node)?.noderoles.get_mut(key).ok_or(missing)
    }
}

/// Writes the effects into a new blueprint. `bare` returns the records of nodes without a document.
/// A node's first document takes its connection and hints from there, so that the change hash
/// covers them.
///
/// # Errors
/// [`MaterializeError`] if the effects were resolved on another blueprint.
pub fn materialize(
    old: &Blueprint,
    bare: NodeRecordLookup<'_>,
    effects: &Effects,
) -> Result<Materialized, MaterializeError> {
    let mut writing = Writing { old, bare, deployments: BTreeMap::new(), nodes: BTreeMap::new() };
    // Removals come first, so that something removed and added again starts fresh.
    for gone in &effects.removed_roles {
        writing.deployment(gone.deployment)?.roles.remove(&gone.role);
    }
    for gone in &effects.unpinned {
        writing.deployment(gone.deployment)?.barclamps.remove(&gone.barclamp);
    }
    for gone in &effects.unbound {
        writing.node(gone.node)?.noderoles.remove(&gone.noderole);
    }
    for new in &effects.deployments {
        let phantom = NodeDoc {
            id: new.phantom,
            fqdn: new.phantom_fqdn.clone(),
            deployment: new.id,
            phantom: true,
            connection: None,
            hints: Map::new(),
            noderoles: BTreeMap::new(),
        };
        let doc = DeploymentDoc {
            id: new.id,
            name: new.name.clone(),
            parent: Some(new.parent),
            phantom: new.phantom,
            barclamps: BTreeMap::new(),
            roles: BTreeMap::new(),
            inactive_jigs: BTreeSet::new(),
        };
        writing.nodes.insert(new.phantom, phantom);
        writing.deployments.insert(new.id, doc);
    }
    for moved in &effects.moved_deployments {
        writing.deployment(moved.deployment)?.parent = Some(moved.to);
    }
    for pin in &effects.barclamps {
        writing.deployment(pin.deployment)?.barclamps.insert(pin.barclamp.clone(), pin.version);
    }
    for new in &effects.roles {
        let role = DeploymentRoleDoc { role: new.content, data: empty() };
        writing.deployment(new.deployment)?.roles.insert(new.role.clone(), role);
    }
    for repin in &effects.repinned {
        write_repin(&mut writing, repin)?;
    }
    for moved in &effects.moved {
        writing.node(moved.node)?.deployment = moved.to;
    }
    for new in &effects.bound {
        let noderole = NoderoleDoc {
            deployment: new.deployment,
            role: new.role,
            data: empty(),
            reruns: 0,
            rank: new.rank,
            parents: new.parents.clone(),
        };
        writing.node(new.node)?.noderoles.insert(new.noderole.clone(), noderole);
    }
    for rewire in &effects.rewired {
        let noderole = writing.noderole(rewire.node, &rewire.noderole)?;
        noderole.rank = rewire.rank;
        noderole.parents.clone_from(&rewire.parents);
    }
    for value in effects.set_values() {
        value.write(&mut writing)?;
    }
    let gone = RemovedDocuments {
        deployments: effects.removed_deployments.iter().map(|d| d.id).collect(),
        nodes: effects
            .removed_deployments
            .iter()
            .map(|d| d.phantom)
            .chain(effects.expunged.iter().map(|e| e.node))
            .collect(),
    };
    finish(old, writing, &gone)
}

/// Documents that the new blueprint does not have.
struct RemovedDocuments {
    deployments: BTreeSet<DeploymentId>,
    nodes: BTreeSet<NodeId>,
}

fn write_repin(
    writing: &mut Writing<'_>,
    repin: &RoleContentChange,
) -> Result<(), MaterializeError> {
    match repin.node {
        Some(node) => writing.noderole(node, &repin.noderole)?.role = repin.to,
        None => {
            let role = &repin.noderole.role;
            let missing =
                MaterializeError::NoRole { deployment: repin.deployment, role: role.to_string() };
            writing.deployment(repin.deployment)?.roles.get_mut(role).ok_or(missing)?.role =
                repin.to;
        }
    }
    Ok(())
}

fn finish(
    old: &Blueprint,
    writing: Writing<'_>,
    gone: &RemovedDocuments,
) -> Result<Materialized, MaterializeError> {
    let mut blueprint = old.clone();
    let mut objects = Vec::new();
    blueprint.deployments.retain(|id, _| !gone.deployments.contains(id));
    blueprint.nodes.retain(|id, _| !gone.nodes.contains(id));
    for doc in writing.deployments.into_values().filter(|doc| !gone.deployments.contains(&doc.id)) {
        objects.push(blueprint.insert_deployment(doc)?);
    }
    for doc in writing.nodes.into_values().filter(|doc| !gone.nodes.contains(&doc.id)) {
        objects.push(blueprint.insert_node(doc)?);
    }
    objects.push(blueprint.root_object()?);
    let changes = compare(old, &blueprint);
    Ok(Materialized { blueprint, objects, changes })
}

fn empty() -> Value {
    json!({})
}
