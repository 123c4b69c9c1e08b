//! The base of a change: the deployments that its plan depends on.
//!
//! A review is valid only while the state that its plan read is unchanged. A plan for a deployment
//! reads the deployment, its ancestors and its descendants. The ancestors provide parents and
//! barclamps. Each deployment records the number of the target that last changed it. A review
//! stores these numbers, and a commit inside them voids it. A commit in a sibling does not. A
//! commit in an ancestor voids it only if it changed something that the review reads there (see
//! [`super::reads`]).
//!
//! A deployment counts as changed in these cases:
//!
//! * Its document changes.
//! * A noderole bound in it is added, removed or changed.
//! * A node enters it, or leaves it to a deployment that is not a descendant.
//! * The connection or the hints of one of its nodes change.
//! * A child deployment is added or removed, or moves to it or away from it.
//!
//! Moving a node down to a descendant does not count. The noderoles that the node has for the
//! deployment stay, so no plan reads anything different. This matters because new nodes are in
//! *system* and each first binding takes one from there. Otherwise, each would void every review in
//! the cluster. Two changes that take the same node conflict on the node's document, whose old hash
//! a review lists.

use std::collections::{BTreeMap, BTreeSet};

use super::edit::{self, Edit, EditKind, Written};
use super::effects::{Bound, EffectCause, Effects};
use crate::cluster::change::DocumentChange;
use crate::cluster::{Blueprint, NoderoleKey, Skeleton};
use crate::ids::{DeploymentId, Fqdn, NodeId, RoleName};

/// The part of the cluster that a proposal may change.
///
/// A node scope is narrow: the proposal binds roles for the node itself (discovery, bootstrap). It
/// can exist in parallel to a proposal on the node's deployment. It cannot change another machine,
/// and a phantom node only by roles that its bindings also add. Its base is the node's deployment
/// and the ancestors, since its plan reads nothing of their descendants. The role flags `discovery`
/// and `bootstrap` are stored but have no effect yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A deployment and its descendants.
    Deployment(DeploymentId),
    /// One node, with the noderoles that its deployment and the ancestors have on it.
    Node(NodeId),
}

impl From<DeploymentId> for Scope {
    fn from(deployment: DeploymentId) -> Self {
        Self::Deployment(deployment)
    }
}

/// The node's deployment and its ancestors; empty if the node is gone.
fn deployment_and_ancestors(skeleton: &Skeleton, node: NodeId) -> Vec<DeploymentId> {
    skeleton.nodes.get(&node).map(|node| skeleton.chain(node.deployment)).unwrap_or_default()
}

/// A deployment and its descendants.
fn subtree(skeleton: &Skeleton, top: DeploymentId) -> impl Iterator<Item = DeploymentId> {
    skeleton.deployments.keys().copied().filter(move |id| skeleton.chain(*id).contains(&top))
}

/// The deployments that a plan in this scope with these effects depends on.
pub fn base(
    skeleton: &Skeleton,
    scope: impl Into<Scope>,
    effects: &Effects,
) -> BTreeSet<DeploymentId> {
    let mut base = BTreeSet::new();
    match scope.into() {
        Scope::Deployment(deployment) => {
            base.extend(skeleton.chain(deployment));
            base.extend(subtree(skeleton, deployment));
        }
        Scope::Node(node) => base.extend(deployment_and_ancestors(skeleton, node)),
    }
    for moved in &effects.moved {
        base.extend(skeleton.chain(moved.from));
        base.extend(skeleton.chain(moved.to));
    }
    // The descendants of a moved deployment inherit from other ancestors.
    for moved in &effects.moved_deployments {
        base.extend(skeleton.chain(moved.from));
        base.extend(skeleton.chain(moved.to));
        base.extend(subtree(skeleton, moved.deployment));
    }
    // A removal can rewire noderoles in any descendant.
    for rewired in &effects.rewired {
        base.extend(skeleton.chain(rewired.deployment));
    }
    // Dependents can be bound in descendants. For example, a node-scoped proposal can remove a
    // service together with its dependents on phantom nodes.
    for gone in &effects.unbound {
        base.extend(skeleton.chain(gone.deployment));
    }
    base
}

/// The deployments that a change writes.
pub fn written(
    old: &Blueprint,
    new: &Blueprint,
    changes: &[DocumentChange],
) -> BTreeSet<DeploymentId> {
    let mut written = BTreeSet::new();
    for change in changes {
        match change {
            DocumentChange::Deployment { id, .. } => {
                written.insert(*id);
                let parent = |blueprint: &Blueprint| {
                    blueprint.deployments.get(id).map(|stored| stored.doc.parent)
                };
                let (was, is) = (parent(old), parent(new));
                if was != is {
                    written.extend([was, is].into_iter().flatten().flatten());
                }
            }
            DocumentChange::Node { id, .. } => add_node_writes(old, new, *id, &mut written),
        }
    }
    written
}

/// The written deployments outside of a base. A deployment that the change itself creates is never
/// outside, because no target has changed it.
pub fn outside(
    skeleton: &Skeleton,
    base: &BTreeSet<DeploymentId>,
    written: &BTreeSet<DeploymentId>,
) -> BTreeSet<DeploymentId> {
    written.difference(base).filter(|id| skeleton.deployments.contains_key(*id)).copied().collect()
}

fn add_node_writes(
    old: &Blueprint,
    new: &Blueprint,
    id: NodeId,
    written: &mut BTreeSet<DeploymentId>,
) {
    let (before, after) = (old.nodes.get(&id).map(|n| &n.doc), new.nodes.get(&id).map(|n| &n.doc));
    let (from, to) = (before.map(|n| n.deployment), after.map(|n| n.deployment));
    if from != to {
        written.extend(to);
        let down = from.zip(to).is_some_and(|(from, to)| new.is_within(to, from));
        if !down {
            written.extend(from);
        }
    }
    if let (Some(was), Some(is)) = (before, after)
        && (&was.connection, &was.hints) != (&is.connection, &is.hints)
    {
        written.insert(is.deployment);
    }
    let keys: BTreeSet<_> =
        [before, after].into_iter().flatten().flat_map(|node| node.noderoles.keys()).collect();
    for key in keys {
        let was = before.and_then(|n| n.noderoles.get(key));
        let is = after.and_then(|n| n.noderoles.get(key));
        if was != is {
            written.extend([was, is].into_iter().flatten().map(|n| n.deployment));
        }
    }
}

/// An effect that a node-scoped plan must not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeViolation {
    /// It changes another machine.
    Machine(Fqdn),
    /// It binds a service directly, which would run on a deployment's phantom node.
    Service {
        role: RoleName,
        /// The deployment of the phantom node.
        deployment: DeploymentId,
    },
}

/// The first effect outside of a node's scope: another machine changes because of the node, or an
/// edit binds a service directly. A deployment scope has no such limit.
pub fn beyond(
    skeleton: &Skeleton,
    scope: impl Into<Scope>,
    effects: &Effects,
) -> Option<ScopeViolation> {
    let Scope::Node(only) = scope.into() else { return None };
    let requested = effects
        .bound
        .iter()
        .find(|e| e.node != only && matches!(e.cause, EffectCause::Requested { .. }));
    if let Some(Bound { noderole, deployment, .. }) = requested {
        return Some(ScopeViolation::Service {
            role: noderole.role.clone(),
            deployment: *deployment,
        });
    }
    let bound = effects.bound.iter().map(|e| e.node);
    let unbound = effects.unbound.iter().map(|e| e.node);
    let rewired = effects.rewired.iter().map(|e| e.node);
    let moved = effects.moved.iter().map(|e| e.node);
    let touched = bound.chain(unbound).chain(rewired).chain(moved).filter(|node| *node != only);
    let machine = touched.filter_map(|node| skeleton.nodes.get(&node)).find(|node| !node.phantom);
    machine.map(|node| ScopeViolation::Machine(node.fqdn.clone()))
}

/// Whether a single edit may be part of a proposal on a node. It must concern that node and
/// noderoles of the node's deployment or its ancestors.
fn on_node(skeleton: &Skeleton, only: NodeId, edit: &Edit) -> bool {
    let deployment = match edit.written() {
        Written::Deployment(deployment) => Some(deployment),
        _ => None,
    };
    edit.node() == Some(only)
        && deployment.is_none_or(|id| deployment_and_ancestors(skeleton, only).contains(&id))
}

/// Checks edit by edit whether a proposal's scope covers it. A deployment scope covers edits that
/// write the deployment or a descendant, including those that earlier edits create. An edit with a
/// wider reach would not be covered by the review's base.
///
/// It is called for each of thousands of edits. Deployments that earlier edits create are therefore
/// recorded once ([`ScopeChecker::record`]).
#[derive(Debug)]
pub struct ScopeChecker<'a> {
    skeleton: &'a Skeleton,
    scope: Scope,
    /// The deployments that earlier edits create, each with its parent.
    made: BTreeMap<DeploymentId, DeploymentId>,
}

impl<'a> ScopeChecker<'a> {
    /// The state before the first edit.
    pub fn new(skeleton: &'a Skeleton, scope: impl Into<Scope>) -> Self {
        Self { skeleton, scope: scope.into(), made: BTreeMap::new() }
    }

    /// Records an edit that precedes those still to be checked.
    pub fn record(&mut self, edit: &Edit) {
        if let Edit::CreateDeployment(edit::CreateDeployment { id, parent, .. }) = edit {
            self.made.insert(*id, *parent);
        }
    }

    /// Whether the scope covers this edit.
    pub fn covers(&self, edit: &Edit) -> bool {
        edit.each().iter().all(|single| self.covers_single(single))
    }

    fn covers_single(&self, edit: &Edit) -> bool {
        let deployment = match self.scope {
            Scope::Deployment(deployment) => deployment,
            Scope::Node(node) => return on_node(self.skeleton, node, edit),
        };
        let bound =
            |node: NodeId, key: &NoderoleKey| self.skeleton.nodes.get(&node)?.noderoles.get(key);
        let mut written = match edit.written() {
            Written::Any => return true,
            Written::Deployment(written) => Some(written),
            Written::Node(node) => self.skeleton.nodes.get(&node).map(|n| n.deployment),
            // A noderole that an earlier edit binds is in scope, because that edit was checked.
            Written::Noderole(node, key) => {
                Some(bound(node, key).map_or(deployment, |noderole| noderole.deployment))
            }
        };
        // Bounded, because edits that create a cycle of deployments are only refused later.
        for _ in 0..=self.skeleton.deployments.len() + self.made.len() {
            let Some(id) = written else { return false };
            if id == deployment {
                return true;
            }
            let above = self.made.get(&id).copied();
            written = above.or_else(|| self.skeleton.deployments.get(&id).and_then(|d| d.parent));
        }
        false
    }
}
