//! The base of a change: what it was planned upon, and what it writes.
//!
//! A review is worth something only while what it looked at is still so. What a plan for a deployment looks at are the deployment,
//! its ancestors (whose roles serve as parents and whose barclamps it uses) and its descendants. Each deployment carries the number
//! of the target that last changed it; a submission notes these numbers, and a commit inside them voids it. A sibling's does not.
//!
//! A deployment counts as changed when its document changes, when a noderole bound in it comes, goes or changes, when a node arrives
//! in it or leaves it sideways, when the connection or the hints of one of its nodes change, and when a deployment below it comes or goes. A node that moves *down* from it does not change it:
//! what the node carries for it stays, so nothing that a plan reads becomes different. That matters, because new nodes wait in
//! *system*, and every first binding takes one from there; otherwise each of them would void every review in the cluster. Two changes
//! that take the same node are told apart by the node's own document, whose old hash a submission lists.

use std::collections::{BTreeMap, BTreeSet};

use super::edit::Edit;
use super::effects::{Bound, Effects, Why};
use crate::blueprint::DocumentChange;
use crate::cluster::{Blueprint, Skeleton};
use crate::ids::{DeploymentId, Fqdn, NodeId, RoleName};

/// What a proposal may touch.
///
/// A node's is the narrow one: it binds what the node needs for itself (discovery, bootstrap), beside whatever is proposed on its
/// deployment at the same time. So it reaches no other machine; phantom nodes only with what comes along. And it rests on the node's
/// deployments alone: what happens in those below can't change what such a plan reads. (The flags `discovery` and `bootstrap` of a role
/// are read and kept, and do nothing yet: they come with the joining of nodes.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A deployment and those below it.
    Deployment(DeploymentId),
    /// One node, with what its deployment and those above it have on it.
    Node(NodeId),
}

impl From<DeploymentId> for Scope {
    fn from(deployment: DeploymentId) -> Self {
        Self::Deployment(deployment)
    }
}

/// A node's deployment and those above it; none for a node that is gone.
fn around(skeleton: &Skeleton, node: NodeId) -> Vec<DeploymentId> {
    skeleton.nodes.get(&node).map(|node| skeleton.chain(node.deployment)).unwrap_or_default()
}

/// The deployments that a plan in this scope with these effects rests upon.
pub fn base(
    skeleton: &Skeleton,
    scope: impl Into<Scope>,
    effects: &Effects,
) -> BTreeSet<DeploymentId> {
    let mut base = BTreeSet::new();
    match scope.into() {
        Scope::Deployment(deployment) => {
            base.extend(skeleton.chain(deployment));
            base.extend(
                skeleton.deployments.keys().filter(|id| skeleton.chain(**id).contains(&deployment)),
            );
        }
        Scope::Node(node) => base.extend(around(skeleton, node)),
    }
    for moved in &effects.moved {
        base.extend(skeleton.chain(moved.from));
        base.extend(skeleton.chain(moved.to));
    }
    // Taking something away may wire noderoles anew that wait for it from anywhere below.
    for rewired in &effects.rewired {
        base.extend(skeleton.chain(rewired.deployment));
    }
    // What goes along may be bound below: a node's proposal takes a service away together with what needs it on the phantoms there.
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
                let came_or_went =
                    old.deployments.contains_key(id) != new.deployments.contains_key(id);
                if came_or_went {
                    let known = new.deployments.get(id).or_else(|| old.deployments.get(id));
                    written.extend(known.and_then(|d| d.doc.parent));
                }
            }
            DocumentChange::Node { id, .. } => node_writes(old, new, *id, &mut written),
        }
    }
    written
}

/// What of it is outside of a base. A deployment that the change itself makes is in nobody's: there is no target that changed it.
pub fn outside(
    skeleton: &Skeleton,
    base: &BTreeSet<DeploymentId>,
    written: &BTreeSet<DeploymentId>,
) -> BTreeSet<DeploymentId> {
    written.difference(base).filter(|id| skeleton.deployments.contains_key(*id)).copied().collect()
}

fn node_writes(old: &Blueprint, new: &Blueprint, id: NodeId, written: &mut BTreeSet<DeploymentId>) {
    let (before, after) = (old.nodes.get(&id).map(|n| &n.doc), new.nodes.get(&id).map(|n| &n.doc));
    let (from, to) = (before.map(|n| n.deployment), after.map(|n| n.deployment));
    if from != to {
        written.extend(to);
        let down = from.zip(to).is_some_and(|(from, to)| is_below(new, to, from));
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

/// Whether a deployment is another one, or stands somewhere below it.
pub(crate) fn is_below(
    blueprint: &Blueprint,
    deployment: DeploymentId,
    above: DeploymentId,
) -> bool {
    let mut next = Some(deployment);
    let mut left = blueprint.deployments.len();
    while let Some(id) = next {
        if id == above {
            return true;
        }
        if left == 0 {
            return false;
        }
        left -= 1;
        next = blueprint.deployments.get(&id).and_then(|d| d.doc.parent);
    }
    false
}

/// What a plan in a node's scope may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beyond {
    /// It touches another machine.
    Machine(Fqdn),
    /// It was asked to bind a service, which stands on a deployment's phantom and not on the node.
    Service {
        /// Which.
        role: RoleName,
        /// The deployment that it stands for.
        deployment: DeploymentId,
    },
}

/// What of these effects is beyond a node's scope: another machine that is wired anew or goes because of the node, or a service that
/// does not come along with what the node needs but was asked for by itself. A deployment's scope has no such bound.
pub fn beyond(skeleton: &Skeleton, scope: impl Into<Scope>, effects: &Effects) -> Option<Beyond> {
    let Scope::Node(only) = scope.into() else { return None };
    let asked = effects.bound.iter().find(|e| e.node != only && matches!(e.why, Why::Asked { .. }));
    if let Some(Bound { noderole, deployment, .. }) = asked {
        return Some(Beyond::Service { role: noderole.role.clone(), deployment: *deployment });
    }
    let bound = effects.bound.iter().map(|e| e.node);
    let unbound = effects.unbound.iter().map(|e| e.node);
    let rewired = effects.rewired.iter().map(|e| e.node);
    let moved = effects.moved.iter().map(|e| e.node);
    let touched = bound.chain(unbound).chain(rewired).chain(moved).filter(|node| *node != only);
    let machine = touched.filter_map(|node| skeleton.nodes.get(&node)).find(|node| !node.phantom);
    machine.map(|node| Beyond::Machine(node.fqdn.clone()))
}

/// Whether a single edit may be part of a proposal on a node: it is about that node, and about what the node's deployments have there.
fn on_node(skeleton: &Skeleton, only: NodeId, edit: &Edit) -> bool {
    match edit {
        Edit::Bind { deployment, node, .. } => {
            *node == only && around(skeleton, only).contains(deployment)
        }
        Edit::Unbind { node, .. }
        | Edit::SetNoderoleData { node, .. }
        | Edit::Rerun { node, .. }
        | Edit::SetConnection { node, .. }
        | Edit::SetHints { node, .. }
        | Edit::ExpungeNode { node, .. } => *node == only,
        Edit::CreateDeployment { .. }
        | Edit::RemoveDeployment { .. }
        | Edit::UseBarclamp { .. }
        | Edit::InheritBarclamp { .. }
        | Edit::AddRole { .. }
        | Edit::RemoveRole { .. }
        | Edit::SetRoleData { .. }
        | Edit::MoveNode { .. }
        | Edit::RerunSlice { .. }
        | Edit::BindNodes { .. }
        | Edit::UnbindNodes { .. }
        | Edit::ActivateJig { .. }
        | Edit::SetPolicy { .. } => false,
    }
}

/// What a proposal in a scope may say, asked edit by edit. On a deployment: what writes that one, or one below it (those that earlier
/// edits make included). An edit that reaches further than the proposal's base would not be covered by its review.
///
/// It is asked for each of thousands of edits, so what those before it make is noted once ([`Within::take_in`]) and not looked for
/// again.
#[derive(Debug)]
pub struct Within<'a> {
    skeleton: &'a Skeleton,
    scope: Scope,
    /// The deployments that earlier edits make, each with the one above it.
    made: BTreeMap<DeploymentId, DeploymentId>,
}

impl<'a> Within<'a> {
    /// Before the first edit.
    pub fn new(skeleton: &'a Skeleton, scope: impl Into<Scope>) -> Self {
        Self { skeleton, scope: scope.into(), made: BTreeMap::new() }
    }

    /// Notes an edit that those to come stand behind.
    pub fn take_in(&mut self, edit: &Edit) {
        if let Edit::CreateDeployment { id, parent, .. } = edit {
            self.made.insert(*id, *parent);
        }
    }

    /// Whether an edit may come next.
    pub fn covers(&self, edit: &Edit) -> bool {
        edit.each().iter().all(|single| self.covers_single(single))
    }

    fn covers_single(&self, edit: &Edit) -> bool {
        let deployment = match self.scope {
            Scope::Deployment(deployment) => deployment,
            Scope::Node(node) => return on_node(self.skeleton, node, edit),
        };
        let mut written = match edit {
            Edit::CreateDeployment { parent, .. } => Some(*parent),
            // These concern all deployments. Every submission is void once the policy changes; who switches a jig writes the root,
            // which is in every base.
            Edit::SetPolicy { .. } | Edit::ActivateJig { .. } => Some(deployment),
            Edit::ExpungeNode { node, .. }
            | Edit::SetConnection { node, .. }
            | Edit::SetHints { node, .. } => self.skeleton.nodes.get(node).map(|n| n.deployment),
            Edit::RemoveDeployment { deployment }
            | Edit::UseBarclamp { deployment, .. }
            | Edit::InheritBarclamp { deployment, .. }
            | Edit::AddRole { deployment, .. }
            | Edit::RemoveRole { deployment, .. }
            | Edit::RerunSlice { deployment, .. }
            | Edit::SetRoleData { deployment, .. }
            | Edit::Bind { deployment, .. }
            | Edit::BindNodes { deployment, .. }
            | Edit::MoveNode { deployment, .. } => Some(*deployment),
            // Asked in its single edits.
            Edit::UnbindNodes { .. } => Some(deployment),
            Edit::SetNoderoleData { node, noderole, .. }
            | Edit::Unbind { node, noderole, .. }
            | Edit::Rerun { node, noderole, .. } => {
                let bound = self
                    .skeleton
                    .nodes
                    .get(node)
                    .and_then(|n| n.noderoles.get(noderole))
                    .map(|n| n.deployment);
                // A noderole that an earlier edit binds is bound in scope, or that edit would not be there.
                bound.or(Some(deployment))
            }
        };
        // One that made deployments stand in a circle would be refused; here it must not be walked for ever.
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
