//! Writes effects into documents.
//!
//! This stage makes no decisions. Every effect changes exactly one document. Unchanged documents
//! keep their hash and are shared with the previous blueprint.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::effects::{Effects, RoleContentChange};
use super::set_values::set_values;
use super::writing::Writing;
pub use super::writing::{MaterializeError, NodeRecordLookup, UndocumentedNode};
use crate::canonical::Object;
use crate::cluster::change::{DocumentChange, compare};
use crate::cluster::{Blueprint, DeploymentDoc, DeploymentRoleDoc, NodeDoc, NoderoleDoc};
use crate::ids::{DeploymentId, NodeId};

/// A new blueprint and its differences to the previous one.
#[derive(Debug, Clone)]
pub struct Materialized {
    pub blueprint: Blueprint,
    /// The documents to store, the root last.
    pub objects: Vec<Object>,
    /// Every changed document, by kind and id.
    pub changes: Vec<DocumentChange>,
}

/// Writes the effects into a new blueprint. `records` returns the records of nodes without a
/// document. A node's first document takes its connection and hints from there, so that the change
/// hash covers them.
///
/// # Errors
/// [`MaterializeError`] if the effects were resolved on another blueprint.
pub fn materialize(
    old: &Blueprint,
    records: NodeRecordLookup<'_>,
    effects: &Effects,
) -> Result<Materialized, MaterializeError> {
    let mut writing = Writing::new(old, records);
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
    for value in set_values(effects) {
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
