//! The projection: the steps that a change adds, changes or removes.
//!
//! Documents are the source of truth for intent, and rows follow from them. A commit writes the
//! projection of the difference between the old and the new root, and nothing else writes intent.
//! The projection is pure. So `gantry verify` rebuilds all rows with an empty old blueprint.
//!
//! A step runs again if its reviewed intent changes: its role's content, its own data, its
//! deployment's data for the role, or a requested re-run. Edges and rank alone do not re-run it. A
//! role may exclude changes of content and data ([`OnChange::Keep`]).
//!
//! # Removal
//!
//! A noderole that is unbound from a node that stays has a *removal step* if its role has the
//! action `remove`. Documents contain no removals: the change is the removal. A review approves the
//! old and the new document of the node by hash, and so it approves the role's content, the data
//! and the fact that the noderole goes. Invariants:
//!
//! * A removal step exists only for a noderole that the old document has and the new one lacks. Its
//!   content hash comes from the old documents.
//! * Removal steps run against the hard edges of the old graph: the `remove` of a child ends before
//!   that of its parent starts. A removed noderole without `remove` passes the order on.
//! * A noderole is gone when its removal step is ACTIVE, or at the commit if it has none. The
//!   commit drops the removal step of a noderole that never ran.
//! * Binding the noderole again drops its removal step.
//! * A node that leaves the blueprint has no removal steps, because nothing can run on it any more.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::DocumentChange;
use crate::canonical::{self, Hash};
use crate::catalog::{
    Catalog, CatalogError, ConcurrencyGroupMode, JigClass, Join, Needs, OnChange, OnError, Role,
    RunLocation, RunPolicy,
};
use crate::cluster::{Blueprint, DeploymentRoleDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey};
use crate::ids::{
    ActionName, ConcurrencyGroupName, DeploymentId, JigName, NodeId, NoderoleId, StepId,
};
use crate::walk::reachable;

/// The rows that a change affects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Projection {
    /// Steps that are added or changed, by rank, then id: parents before children.
    pub steps: Vec<StepIntent>,
    /// Noderoles that are no longer part of the desired state.
    pub removed: Vec<NoderoleId>,
    /// The removal steps of these noderoles, by rank, then id: children before parents.
    pub removals: Vec<StepIntent>,
}

/// The desired state of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepIntent {
    /// Derived from noderole and action.
    pub id: StepId,
    pub noderole: NoderoleId,
    pub node: NodeId,
    /// Role and instance.
    pub key: NoderoleKey,
    /// The deployment in which it is bound.
    pub deployment: DeploymentId,
    pub action: ActionName,
    /// Hash of the role's content.
    pub role: Hash,
    /// The hash that the wrapper on the node compares: role, own data, the deployment's data for
    /// the role, and re-runs.
    pub content: Hash,
    /// Longest path from a root.
    pub rank: u32,
    /// Its concurrency group.
    pub concurrency_group: ConcurrencyGroupIntent,
    /// The jig that executes it.
    pub jig: JigName,
    /// The class of the jig.
    pub jig_class: JigClass,
    /// Whether it loses data, and so runs once per generation.
    pub destructive: bool,
    /// Whether it becomes ACTIVE without a run as soon as its join holds.
    pub immediate: bool,
    /// Other rules of its role.
    pub run: RunPolicy,
    /// The steps that it waits for.
    pub parents: Vec<(StepId, EdgeKind)>,
    /// The effect of the change on its progress.
    pub change: StepChange,
}

/// The concurrency group of a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConcurrencyGroupIntent {
    /// Unique in the deployment.
    pub name: ConcurrencyGroupName,
    /// `None` means no limit.
    pub max_running: Option<u32>,
    pub mode: ConcurrencyGroupMode,
}

/// Effect of a change on a step's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepChange {
    /// The step is new.
    New,
    /// The step runs again.
    Rerun(RerunCause),
    /// The step keeps its progress.
    Keep,
}

/// Reason why a reviewed change re-runs a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RerunCause {
    /// The change requests the re-run.
    Requested,
    /// The content of the role changed.
    RoleChanged,
    /// The data of the noderole, or the deployment's data for the role, changed.
    DataChanged,
}

impl StepIntent {
    /// Whether an ERROR of it freezes its node.
    pub fn blocks_node(&self) -> bool {
        self.run.on_error == OnError::Node
    }

    /// The state that its node must have.
    pub fn needs(&self) -> Needs {
        self.run.needs
    }

    /// Whether it runs on the node, or elsewhere for the node.
    pub fn location(&self) -> RunLocation {
        self.run.location
    }

    pub fn join(&self) -> Join {
        self.run.join
    }

    /// The interval of its check in seconds. A removal has no check.
    pub fn check_interval(&self) -> Option<u32> {
        self.run.check.as_ref().filter(|_| self.action.is_run()).map(|check| check.interval)
    }
}

/// The effect of the difference between two blueprints on the steps.
///
/// # Errors
/// If the catalog lacks a role that the new blueprint pins.
pub fn project(
    old: &Blueprint,
    new: &Blueprint,
    changes: &[DocumentChange],
    catalog: &Catalog,
) -> Result<Projection, CatalogError> {
    let mut found = Projection::default();
    let mut done = BTreeSet::new();
    for change in changes {
        let DocumentChange::Node { id, .. } = change else { continue };
        let (was, is) = (old.nodes.get(id).map(|n| &*n.doc), new.nodes.get(id).map(|n| &*n.doc));
        project_node(old, new, was, is, catalog, &mut found)?;
        done.insert(*id);
    }
    project_role_data(old, new, changes, &done, catalog, &mut found)?;
    found.removals = removals(old, new, &done, catalog)?;
    found.steps.sort_by_key(|step| (step.rank, step.id));
    Ok(found)
}

fn project_node(
    old: &Blueprint,
    new: &Blueprint,
    was: Option<&NodeDoc>,
    is: Option<&NodeDoc>,
    catalog: &Catalog,
    found: &mut Projection,
) -> Result<(), CatalogError> {
    for (key, noderole) in is.into_iter().flat_map(|node| &node.noderoles) {
        let Some(node) = is else { continue };
        let before = was.and_then(|node| node.noderoles.get(key));
        let role_was = before.and_then(|n| role_doc(old, n, key));
        let role_is = role_doc(new, noderole, key);
        let change = step_change(catalog.role(noderole.role)?, before, noderole, role_was, role_is);
        // A step that keeps its progress also gets another content hash if its deployment's data
        // changed.
        let data_of = |role: Option<&DeploymentRoleDoc>| role.map(|role| role.data.clone());
        if before != Some(noderole)
            || change != StepChange::Keep
            || data_of(role_was) != data_of(role_is)
        {
            found.steps.push(intent(
                node,
                key,
                noderole,
                role_is,
                &ActionName::run(),
                change,
                catalog,
            )?);
        }
    }
    for (key, _) in was.into_iter().flat_map(|node| &node.noderoles) {
        if let Some(node) = was
            && !is.is_some_and(|n| n.noderoles.contains_key(key))
        {
            found.removed.push(key.id(node.id));
        }
    }
    Ok(())
}

/// A noderole that is removed, or a barrier that other noderoles pass.
struct Removed<'b> {
    node: &'b NodeDoc,
    key: &'b NoderoleKey,
    noderole: &'b NoderoleDoc,
    /// Whether it has a removal step.
    runs: bool,
}

/// The removal steps of the noderoles that changed nodes lose.
fn removals(
    old: &Blueprint,
    new: &Blueprint,
    changed: &BTreeSet<NodeId>,
    catalog: &Catalog,
) -> Result<Vec<StepIntent>, CatalogError> {
    let removed = removed_noderoles(old, new, changed, catalog)?;
    let mut children: BTreeMap<NoderoleId, Vec<NoderoleId>> = BTreeMap::new();
    for (id, child) in &removed {
        for edge in child.noderole.parents.iter().filter(|edge| edge.kind == EdgeKind::Hard) {
            children.entry(edge.parent).or_default().push(*id);
        }
    }
    let mut by_depth: Vec<(&NoderoleId, &Removed<'_>)> =
        removed.iter().filter(|(_, found)| found.runs).collect();
    // Children have a higher rank than their parents, so they come first.
    by_depth.sort_by_key(|(id, found)| (std::cmp::Reverse(found.noderole.rank), **id));
    let (action, mut ranks, mut steps) = (ActionName::remove(), BTreeMap::new(), Vec::new());
    for (id, found) in by_depth {
        let first = removed_children(*id, &children, &removed);
        let rank =
            first.iter().filter_map(|child| ranks.get(child)).max().map_or(0, |rank| rank + 1);
        ranks.insert(*id, rank);
        let Removed { node, key, noderole, .. } = *found;
        let role_doc = role_doc(old, noderole, key);
        let step = intent(node, key, noderole, role_doc, &action, StepChange::New, catalog)?;
        let parents = first.iter().map(|child| (StepId::of(*child, &action), EdgeKind::Hard));
        steps.push(StepIntent {
            rank,
            parents: parents.collect(),
            // The role's join counts the parents of `run`.
            run: RunPolicy { join: Join::default(), ..step.run },
            destructive: false,
            immediate: false,
            ..step
        });
    }
    steps.sort_by_key(|step| (step.rank, step.id));
    Ok(steps)
}

fn removed_noderoles<'b>(
    old: &'b Blueprint,
    new: &Blueprint,
    changed: &BTreeSet<NodeId>,
    catalog: &Catalog,
) -> Result<BTreeMap<NoderoleId, Removed<'b>>, CatalogError> {
    let mut removed = BTreeMap::new();
    for id in changed {
        let Some(node) = old.nodes.get(id).map(|stored| &*stored.doc) else { continue };
        let now = new.nodes.get(id).map(|stored| &stored.doc.noderoles);
        for (key, noderole) in &node.noderoles {
            if now.is_some_and(|now| now.contains_key(key)) {
                continue;
            }
            let runs = now.is_some() && catalog.role(noderole.role)?.has(&ActionName::remove());
            removed.insert(key.id(*id), Removed { node, key, noderole, runs });
        }
    }
    if !removed.values().any(|found| found.runs) {
        return Ok(BTreeMap::new());
    }
    // Children of a cluster role depend on its barrier, which stays as long as a member stays.
    let phantoms = old.nodes.values().filter(|stored| stored.doc.phantom);
    for node in phantoms.map(|stored| &*stored.doc) {
        for (key, noderole) in &node.noderoles {
            if catalog.role(noderole.role)?.gathers.is_some() {
                let barrier = Removed { node, key, noderole, runs: false };
                removed.entry(key.id(node.id)).or_insert(barrier);
            }
        }
    }
    Ok(removed)
}

/// The nearest noderoles with removal steps that depend on a removed one.
fn removed_children(
    of: NoderoleId,
    children: &BTreeMap<NoderoleId, Vec<NoderoleId>>,
    removed: &BTreeMap<NoderoleId, Removed<'_>>,
) -> BTreeSet<NoderoleId> {
    let runs = |id: &NoderoleId| *id != of && removed.get(id).is_some_and(|found| found.runs);
    let next =
        |id: NoderoleId| children.get(&id).filter(|_| !runs(&id)).into_iter().flatten().copied();
    reachable([of], next).filter(runs).collect()
}

/// Adds noderoles on unchanged nodes if their deployment's data for their role changed.
fn project_role_data(
    old: &Blueprint,
    new: &Blueprint,
    changes: &[DocumentChange],
    done: &BTreeSet<NodeId>,
    catalog: &Catalog,
    found: &mut Projection,
) -> Result<(), CatalogError> {
    let mut touched = BTreeMap::new();
    for change in changes {
        let DocumentChange::Deployment { id, .. } = change else { continue };
        let (Some(was), Some(is)) = (old.deployments.get(id), new.deployments.get(id)) else {
            continue;
        };
        for (name, role) in &is.doc.roles {
            let before = was.doc.roles.get(name);
            if before.is_some_and(|before| before.data != role.data) {
                touched.insert((*id, name.clone()), (before, role));
            }
        }
    }
    if touched.is_empty() {
        return Ok(());
    }
    for (id, node) in &new.nodes {
        if done.contains(id) {
            continue;
        }
        for (key, noderole) in &node.doc.noderoles {
            let Some((was, is)) = touched.get(&(noderole.deployment, key.role.clone())) else {
                continue;
            };
            let role = catalog.role(noderole.role)?;
            let change = step_change(role, Some(noderole), noderole, *was, Some(is));
            found.steps.push(intent(
                &node.doc,
                key,
                noderole,
                Some(is),
                &ActionName::run(),
                change,
                catalog,
            )?);
        }
    }
    Ok(())
}

fn role_doc<'b>(
    blueprint: &'b Blueprint,
    noderole: &NoderoleDoc,
    key: &NoderoleKey,
) -> Option<&'b DeploymentRoleDoc> {
    blueprint.deployments.get(&noderole.deployment)?.doc.roles.get(&key.role)
}

fn step_change(
    role: &Role,
    before: Option<&NoderoleDoc>,
    after: &NoderoleDoc,
    role_was: Option<&DeploymentRoleDoc>,
    role_is: Option<&DeploymentRoleDoc>,
) -> StepChange {
    let Some(before) = before else { return StepChange::New };
    if before.reruns != after.reruns {
        return StepChange::Rerun(RerunCause::Requested);
    }
    if role.run.on_change == OnChange::Keep {
        return StepChange::Keep;
    }
    if before.role != after.role {
        return StepChange::Rerun(RerunCause::RoleChanged);
    }
    let data_of = |data: Option<&DeploymentRoleDoc>| {
        data.map(|d| d.data.clone()).unwrap_or_else(|| serde_json::json!({}))
    };
    if before.data != after.data || data_of(role_was) != data_of(role_is) {
        return StepChange::Rerun(RerunCause::DataChanged);
    }
    StepChange::Keep
}

fn intent(
    node: &NodeDoc,
    key: &NoderoleKey,
    noderole: &NoderoleDoc,
    role_doc: Option<&DeploymentRoleDoc>,
    action: &ActionName,
    change: StepChange,
    catalog: &Catalog,
) -> Result<StepIntent, CatalogError> {
    let role = catalog.role(noderole.role)?;
    let id = key.id(node.id);
    let (name, max_running, mode) = role.concurrency_group();
    let parents = noderole.parents.iter().map(|edge| (StepId::of(edge.parent, action), edge.kind));
    Ok(StepIntent {
        id: StepId::of(id, action),
        noderole: id,
        node: node.id,
        key: key.clone(),
        deployment: noderole.deployment,
        role: noderole.role,
        content: content(noderole, role_doc, action)?,
        rank: noderole.rank,
        concurrency_group: ConcurrencyGroupIntent { name, max_running, mode },
        jig: role.jig.clone(),
        jig_class: role.jig_class.clone(),
        destructive: role.flags.destructive,
        immediate: role.is_immediate(),
        run: RunPolicy { exclusive: role.run.exclusive && !node.phantom, ..role.run.clone() },
        parents: parents.collect(),
        change,
        action: action.clone(),
    })
}

/// The hash that the node's ledger compares. It covers only reviewed intent, never outputs.
///
/// # Errors
/// If the data has no canonical form.
pub fn content(
    noderole: &NoderoleDoc,
    role: Option<&DeploymentRoleDoc>,
    action: &ActionName,
) -> Result<Hash, CatalogError> {
    let parts = (noderole.role, noderole.reruns, &noderole.data, role.map(|r| &r.data));
    // Steps from before other actions existed keep their hash.
    let hash = match action.is_run() {
        true => canonical::hash(&parts),
        false => canonical::hash(&(action, parts)),
    };
    hash.map_err(|e| CatalogError::Unreadable {
        kind: "noderole document",
        hash: noderole.role,
        reason: e.to_string(),
    })
}
