//! The desired state of one deployment, for files that declare it.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::deployments::{DeclarationQuery, DeclaredRole, DeploymentDeclaration};
use engine::catalog::Catalog;
use engine::cluster::{Blueprint, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey, phantom};
use engine::ids::{DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName};

use crate::Control;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposals::change::{counting, plan_on_pool};

impl Control {
    /// The desired state of a deployment, by the deployment's name.
    pub async fn declaration(
        &self,
        actor: &Actor,
        deployment: &str,
        query: &DeclarationQuery,
    ) -> Result<DeploymentDeclaration, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let id = present.named(deployment)?;
        let mut connection = self.connection().await?;
        let open =
            store::proposals::open_proposal(&mut connection, id).await.map_err(from_store)?;
        let rows = match open.filter(|_| query.draft) {
            Some(open) => {
                store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?
            }
            None => Vec::new(),
        };
        drop(connection);
        let edits = counting(&rows);
        if edits.is_empty() {
            let present = present.clone();
            let declared = move || declared(&present, &present.blueprint, id);
            return self.compute_for(actor).work(declared).await?;
        }
        let planned = plan_on_pool(&self.compute_for(actor), &present, edits).await?;
        let declared = move || declared(&present, &planned.materialized.blueprint, id);
        self.compute_for(actor).work(declared).await?
    }
}

fn declared(
    present: &CurrentState,
    blueprint: &Blueprint,
    id: DeploymentId,
) -> Result<DeploymentDeclaration, Problem> {
    let removed = || Problem::not_found("The open proposal removes this deployment.");
    let doc = &blueprint.deployments.get(&id).ok_or_else(removed)?.doc;
    let name = |id: DeploymentId| blueprint.deployments.get(&id).map(|d| d.doc.name.clone());
    let version = |hash| present.catalog.barclamp(hash).map(|found| found.version.clone());
    let versions = doc
        .barclamps
        .iter()
        .filter_map(|(barclamp, hash)| Some((barclamp.clone(), version(*hash).ok()?)))
        .collect();
    let mut roles: BTreeMap<RoleName, DeclaredRole> = doc
        .roles
        .iter()
        .map(|(role, doc)| {
            (role.clone(), DeclaredRole { data: doc.data.clone(), ..DeclaredRole::default() })
        })
        .collect();
    let mut node_data: BTreeMap<String, BTreeMap<NoderoleKey, _>> = BTreeMap::new();
    for (node, key, noderole) in noderoles(blueprint) {
        if noderole.deployment != id || is_barrier(&present.catalog, noderole) {
            continue;
        }
        let node = node_name(node, name);
        let role = roles.entry(key.role.clone()).or_default();
        role.nodes.push(node.clone());
        if noderole.data.as_object().is_some_and(|data| !data.is_empty()) {
            node_data.entry(node).or_default().insert(key.clone(), noderole.data.clone());
        }
    }
    add_requirements(&mut roles, blueprint, &present.catalog, id);
    roles.values_mut().for_each(|role| role.nodes.sort_unstable());
    Ok(DeploymentDeclaration {
        deployment: doc.name.clone(),
        parent: doc.parent.and_then(name),
        phantom: doc.phantom,
        versions,
        members: members(present, blueprint, id),
        roles,
        node_data,
    })
}

fn noderoles(
    blueprint: &Blueprint,
) -> impl Iterator<Item = (&NodeDoc, &NoderoleKey, &NoderoleDoc)> {
    let nodes = blueprint.nodes.values().map(|node| &*node.doc);
    nodes.flat_map(|node| node.noderoles.iter().map(move |(key, doc)| (node, key, doc)))
}

fn is_barrier(catalog: &Catalog, noderole: &NoderoleDoc) -> bool {
    catalog.role(noderole.role).is_ok_and(|role| role.gathers.is_some())
}

fn node_name(node: &NodeDoc, name: impl Fn(DeploymentId) -> Option<DeploymentName>) -> String {
    phantom::name(&node.fqdn, |id| name(id).map(|name| name.to_string())).into_owned()
}

/// The nodes of a deployment, with those that have no document yet.
fn members(present: &CurrentState, blueprint: &Blueprint, id: DeploymentId) -> Vec<String> {
    let documented: BTreeSet<NodeId> = blueprint.nodes.keys().copied().collect();
    let machines = blueprint.nodes.values().map(|node| &node.doc);
    let machines = machines
        .filter(|node| node.deployment == id && !node.phantom)
        .map(|node| node.fqdn.to_string());
    let record_only = present.skeleton.nodes.iter().filter(|(node, found)| {
        found.record_only && found.deployment == id && !documented.contains(*node)
    });
    let mut members: Vec<String> =
        machines.chain(record_only.map(|(_, node)| node.fqdn.to_string())).collect();
    members.sort_unstable();
    members
}

/// Adds the roles that noderoles of each role wait for. A barrier counts as the role of its
/// members.
fn add_requirements(
    roles: &mut BTreeMap<RoleName, DeclaredRole>,
    blueprint: &Blueprint,
    catalog: &Catalog,
    id: DeploymentId,
) {
    let mut own: BTreeMap<NoderoleId, RoleName> = BTreeMap::new();
    for (node, key, noderole) in noderoles(blueprint).filter(|(.., n)| n.deployment == id) {
        let gathered = catalog.role(noderole.role).ok().and_then(|role| role.gathers.clone());
        own.insert(key.id(node.id), gathered.unwrap_or_else(|| key.role.clone()));
    }
    for (node, key, noderole) in noderoles(blueprint) {
        let child = own.get(&key.id(node.id));
        let hard = noderole.parents.iter().filter(|edge| edge.kind == EdgeKind::Hard);
        for parent in hard.filter_map(|edge| own.get(&edge.parent)) {
            match child {
                Some(child) if child == parent => {}
                Some(child) => {
                    if let Some(role) = roles.get_mut(child) {
                        role.requires.insert(parent.clone());
                    }
                }
                None => {
                    if let Some(role) = roles.get_mut(parent) {
                        role.required_elsewhere = true;
                    }
                }
            }
        }
    }
}
