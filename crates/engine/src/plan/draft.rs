//! The draft: the skeleton with the edits so far as an overlay.
//!
//! The overlay stores the differences, and lookups read it first. Binding and unbinding therefore
//! cost what they touch, not the cluster: each touched node is copied once. Edits that concern
//! everything (another version of a barclamp, a new deployment's name) do visit everything. Each
//! change first writes the old value to a journal, so that a refused edit is fully rolled back. A
//! trial runs like an edit and is always rolled back.
//!
//! Three indexes (noderoles by name, by id, and by parent) only grow within a draft. Their entries
//! may have been removed again, so every lookup checks that the noderole still exists. This keeps
//! rollback cheap.
//!
//! The effects are not recorded during the edits: they are the final difference between overlay and
//! skeleton. Edits that undo each other leave no trace, and the effects always agree with the
//! result. Only the reasons are stored separately.
//!
//! Ranks are exact at all times: the longest path from a root. An edge that would create a cycle is
//! refused when it is added, so updating ranks always terminates.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::effects::{
    BarclampUse, Bound, DeploymentMove, EffectCause, Effects, ExpungedNode, NewDeployment, NewRole,
    NodeMove, Refusal, RemovedDeployment, RemovedNoderole, RemovedRole, RewiredNoderole,
    RoleContentChange, Set, UnpinnedBarclamp, in_order,
};
use super::refusal::EditError;
use super::rules::Rules;
use super::side_effects::SideEffects;
use super::visible_catalog::VisibleCatalog;
use crate::canonical::Hash;
use crate::catalog::{Catalog, Role, visible_barclamps};
use crate::cluster::phantom;
use crate::cluster::skeleton::Candidate;
use crate::cluster::{
    EdgeDoc, EdgeKind, NoderoleKey, Skeleton, SkeletonDeployment, SkeletonNode, SkeletonNoderole,
};
use crate::ids::{BarclampName, DeploymentId, JigName, NodeId, NoderoleId, RoleName};
use crate::walk::reachable;

/// The skeleton with the edits so far as an overlay.
pub(super) struct Draft<'a> {
    skeleton: &'a Skeleton,
    pub catalog: &'a Catalog,
    pub rules: Rules,
    /// `None`: removed.
    deployments: BTreeMap<DeploymentId, Option<SkeletonDeployment>>,
    /// `None`: removed.
    nodes: BTreeMap<NodeId, Option<SkeletonNode>>,
    journal: Vec<JournalEntry>,
    /// Nodes already in the journal for the current edit.
    journaled: BTreeSet<NodeId>,
    /// Nesting depth of edits and trials in progress. The journal is needed while it is above 0.
    depth: usize,
    considered: u64,
    candidates: BTreeMap<(DeploymentId, RoleName), BTreeSet<Candidate>>,
    places: BTreeMap<NoderoleId, (NodeId, NoderoleKey)>,
    children: BTreeMap<NoderoleId, BTreeSet<NoderoleId>>,
    visible_catalogs: RefCell<BTreeMap<DeploymentId, Rc<VisibleCatalog>>>,
    reasons: Origins,
    /// Values that edits set without changing the shape of the graph.
    pub set: Set,
    /// Side effects of the current edit.
    pub side_effects: SideEffects,
}

/// The value of something before the current edit.
enum JournalEntry {
    /// `affects_visibility`: whether the change may affect what deployments see.
    Deployment {
        id: DeploymentId,
        was: Option<Option<SkeletonDeployment>>,
        affects_visibility: bool,
    },
    Node(NodeId, Option<Option<SkeletonNode>>),
    Put(NoderoleId),
    Requested(NoderoleId, Option<(u64, u32)>),
}

/// A position in the journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(usize);

/// The reasons for additions and removals, with their order. A reason for something that no longer
/// differs is ignored.
#[derive(Default)]
struct Origins {
    count: u64,
    deployments: BTreeMap<DeploymentId, (u64, EffectCause)>,
    barclamps: BTreeMap<(DeploymentId, BarclampName), (u64, EffectCause)>,
    roles: BTreeMap<(DeploymentId, RoleName), (u64, EffectCause)>,
    moved: BTreeMap<NodeId, (u64, EffectCause)>,
    moved_deployments: BTreeMap<DeploymentId, (u64, EffectCause)>,
    bound: BTreeMap<NoderoleId, (u64, EffectCause)>,
    /// The edits that bind a noderole which an earlier edit added for another role.
    requested: BTreeMap<NoderoleId, (u64, u32)>,
    gone: BTreeMap<NoderoleId, (u64, EffectCause)>,
    removed_deployments: BTreeMap<DeploymentId, (u64, EffectCause)>,
    gone_roles: BTreeMap<(DeploymentId, RoleName), (u64, EffectCause)>,
    expunged: BTreeMap<NodeId, (u64, (String, EffectCause))>,
}

impl Origins {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

impl<'a> Draft<'a> {
    pub fn new(skeleton: &'a Skeleton, catalog: &'a Catalog, rules: Rules) -> Self {
        Self {
            skeleton,
            catalog,
            rules,
            deployments: BTreeMap::new(),
            nodes: BTreeMap::new(),
            journal: Vec::new(),
            journaled: BTreeSet::new(),
            depth: 0,
            considered: 0,
            candidates: BTreeMap::new(),
            places: BTreeMap::new(),
            children: BTreeMap::new(),
            visible_catalogs: RefCell::default(),
            reasons: Origins::default(),
            set: Set::default(),
            side_effects: SideEffects::default(),
        }
    }

    /// Runs an edit and rolls it back if it fails.
    pub fn apply_or_roll_back<E>(
        &mut self,
        edit: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.within(edit, Result::is_err)
    }

    /// Runs a trial and always rolls it back.
    pub fn run_trial<T>(&mut self, operation: impl FnOnce(&mut Self) -> T) -> T {
        self.within(operation, |_| true)
    }

    fn within<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> T,
        is_reverted: impl FnOnce(&T) -> bool,
    ) -> T {
        let (mark, journaled) = (self.journal.len(), std::mem::take(&mut self.journaled));
        self.depth += 1;
        let done = operation(self);
        self.depth -= 1;
        // A node may be in the journal twice then. Rollback restores the older state last.
        self.journaled = journaled;
        if is_reverted(&done) {
            self.roll_back(mark);
        } else if self.depth == 0 {
            self.journal.clear();
        }
        done
    }

    fn roll_back(&mut self, mark: usize) {
        for former in self.journal.drain(mark..).rev() {
            match former {
                JournalEntry::Deployment { id, was, affects_visibility } => {
                    restore_entry(&mut self.deployments, id, was);
                    // Rebuilding all visible catalogs after every rollback would cost more than the
                    // edits.
                    if affects_visibility {
                        self.visible_catalogs.get_mut().clear();
                    }
                }
                JournalEntry::Node(id, was) => restore_entry(&mut self.nodes, id, was),
                JournalEntry::Put(_) => {}
                JournalEntry::Requested(id, None) => drop(self.reasons.requested.remove(&id)),
                JournalEntry::Requested(id, Some(was)) => {
                    self.reasons.requested.insert(id, was);
                }
            }
        }
    }

    /// The current position of the journal, within an edit or a trial.
    pub fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    /// The noderoles added since the mark, in order.
    pub fn added_since(&self, mark: Mark) -> impl Iterator<Item = NoderoleId> {
        self.journal[mark.0..].iter().filter_map(|former| match former {
            JournalEntry::Put(id) => Some(*id),
            _ => None,
        })
    }

    /// The nodes touched since the mark.
    pub fn touched_since(&self, mark: Mark) -> impl Iterator<Item = NodeId> {
        self.journal[mark.0..].iter().filter_map(|former| match former {
            JournalEntry::Node(id, _) => Some(*id),
            _ => None,
        })
    }

    /// Number of roles considered for binding so far, including refused and rolled-back ones. A
    /// measure of the work done.
    pub fn considered_count(&self) -> u64 {
        self.considered
    }

    pub fn count_considered(&mut self) {
        self.considered += 1;
    }

    /// Why an edit bound a noderole.
    pub fn bind_origin(&self, id: NoderoleId) -> Option<&EffectCause> {
        self.reasons.bound.get(&id).map(|(_, cause)| cause)
    }

    // Lookups read the overlay first, then the skeleton.

    pub fn deployment(&self, id: DeploymentId) -> Result<&SkeletonDeployment, EditError> {
        let found = match self.deployments.get(&id) {
            Some(overlay) => overlay.as_ref(),
            None => self.skeleton.deployments.get(&id),
        };
        found.ok_or(EditError::UnknownDeployment(id))
    }

    /// Whether a deployment with this id exists or existed before the edits.
    pub fn had_deployment(&self, id: DeploymentId) -> bool {
        self.deployments.contains_key(&id) || self.skeleton.deployments.contains_key(&id)
    }

    /// Whether a node with this id exists or existed before the edits.
    pub fn had_node(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id) || self.skeleton.nodes.contains_key(&id)
    }

    pub fn deployment_name(&self, id: DeploymentId) -> String {
        self.deployment(id).map(|d| d.name.to_string()).unwrap_or_else(|_| id.to_string())
    }

    pub fn deployments(&self) -> impl Iterator<Item = (DeploymentId, &SkeletonDeployment)> {
        let unchanged =
            self.skeleton.deployments.iter().filter(|(id, _)| !self.deployments.contains_key(id));
        let overlay = self.deployments.iter().filter_map(|(id, d)| Some((id, d.as_ref()?)));
        unchanged.chain(overlay).map(|(id, d)| (*id, d))
    }

    /// The root deployment.
    pub fn root(&self) -> Option<DeploymentId> {
        self.deployments().find(|(_, d)| d.parent.is_none()).map(|(id, _)| id)
    }

    pub fn node(&self, id: NodeId) -> Result<&SkeletonNode, EditError> {
        let found = match self.nodes.get(&id) {
            Some(overlay) => overlay.as_ref(),
            None => self.skeleton.nodes.get(&id),
        };
        found.ok_or(EditError::UnknownNode(id))
    }

    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &SkeletonNode)> {
        let unchanged = self.skeleton.nodes.iter().filter(|(id, _)| !self.nodes.contains_key(id));
        let overlay = self.nodes.iter().filter_map(|(id, n)| Some((id, n.as_ref()?)));
        unchanged.chain(overlay).map(|(id, n)| (*id, n))
    }

    pub fn noderole_on(
        &self,
        node: NodeId,
        noderole: &NoderoleKey,
    ) -> Result<&SkeletonNode, EditError> {
        let found = self.node(node)?;
        if !found.noderoles.contains_key(noderole) {
            return Err(EditError::UnknownNoderole {
                node: found.fqdn.clone(),
                noderole: noderole.clone(),
            });
        }
        Ok(found)
    }

    /// A noderole by id, if it exists.
    pub fn noderole(&self, id: NoderoleId) -> Option<(NodeId, &NoderoleKey, &SkeletonNoderole)> {
        let (node, key) = self.places.get(&id).or_else(|| self.skeleton.location(id))?;
        Some((*node, key, self.node(*node).ok()?.noderoles.get(key)?))
    }

    /// A noderole as it was before the edits.
    fn old_noderole(&self, id: NoderoleId) -> Option<&SkeletonNoderole> {
        let (node, key) = self.skeleton.location(id)?;
        self.skeleton.nodes.get(node)?.noderoles.get(key)
    }

    /// The noderole as text: `app on n1`.
    pub fn noderole_text(&self, id: NoderoleId) -> String {
        let Some((node, key, _)) = self.noderole(id) else { return id.to_string() };
        self.node(node)
            .map(|n| format!("{key} on {}", self.short_name(n)))
            .unwrap_or_else(|_| key.to_string())
    }

    /// The display name of a node.
    pub fn short_name(&self, node: &SkeletonNode) -> String {
        phantom::short_name(&node.fqdn, |id| self.deployment(id).ok().map(|d| d.name.to_string()))
            .into_owned()
    }

    /// The name of a node in commands: a machine's full name, or `phantom:web`.
    pub fn full_name(&self, node: &SkeletonNode) -> String {
        phantom::name(&node.fqdn, |id| self.deployment(id).ok().map(|d| d.name.to_string()))
            .into_owned()
    }

    /// A deployment and its ancestors, nearest first.
    pub fn chain(&self, id: DeploymentId) -> Vec<DeploymentId> {
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| !chain.contains(id)) {
            chain.push(id);
            next = self.deployment(id).ok().and_then(|d| d.parent);
        }
        chain
    }

    /// A deployment and its descendants.
    pub fn subtree(&self, id: DeploymentId) -> BTreeSet<DeploymentId> {
        self.deployments()
            .map(|(other, _)| other)
            .filter(|o| self.chain(*o).contains(&id))
            .collect()
    }

    /// The part of the catalog that is visible in a deployment.
    pub fn visible_catalog(&self, id: DeploymentId) -> Result<Rc<VisibleCatalog>, EditError> {
        if let Some(known) = self.visible_catalogs.borrow().get(&id) {
            return Ok(Rc::clone(known));
        }
        let chain = self.chain(id);
        let pins: Result<Vec<_>, EditError> =
            chain.iter().map(|id| self.deployment(*id).map(|found| &found.barclamps)).collect();
        let visible_catalog = Rc::new(VisibleCatalog::of(self.catalog, chain, pins?)?);
        self.visible_catalogs.borrow_mut().insert(id, Rc::clone(&visible_catalog));
        Ok(visible_catalog)
    }

    /// The noderoles of a deployment that answer to a name, preferred first.
    pub fn candidates(
        &self,
        deployment: DeploymentId,
        name: &RoleName,
    ) -> impl Iterator<Item = NoderoleId> {
        let mut new =
            self.candidates.get(&(deployment, name.clone())).into_iter().flatten().peekable();
        let mut old = self.skeleton.candidates(deployment, name).peekable();
        let merged = std::iter::from_fn(move || match (new.peek(), old.peek()) {
            (Some(a), Some(b)) if a <= b => {
                // A noderole that was removed and bound again is in both.
                if a == b {
                    old.next();
                }
                new.next()
            }
            (_, Some(_)) => old.next(),
            (_, None) => new.next(),
        });
        merged.filter_map(move |answer| {
            let noderole = self.node(answer.node).ok()?.noderoles.get(&answer.key)?;
            let still = noderole.deployment == deployment
                && self.catalog.role(noderole.role).is_ok_and(|role| role.satisfies(name));
            still.then(|| answer.key.id(answer.node))
        })
    }

    /// The noderoles that wait for this one, with the kind of each edge.
    pub fn children(&self, id: NoderoleId) -> Vec<(NoderoleId, EdgeKind)> {
        let new = self.children.get(&id).into_iter().flatten();
        let known: BTreeSet<NoderoleId> = self.skeleton.children(id).chain(new.copied()).collect();
        let edge = |child: NoderoleId| {
            let (_, _, noderole) = self.noderole(child)?;
            noderole.parents.iter().find(|edge| edge.parent == id).map(|edge| (child, edge.kind))
        };
        known.into_iter().filter_map(edge).collect()
    }

    /// The role of a noderole.
    pub fn role_of(&self, id: NoderoleId) -> Option<&'a Role> {
        let (_, _, noderole) = self.noderole(id)?;
        self.catalog.role(noderole.role).ok().map(|role| &**role)
    }

    /// Whether `later` waits for `earlier` directly or indirectly. Ranks bound the walk, because
    /// they rise along every edge.
    pub fn waits_for(&self, later: NoderoleId, earlier: NoderoleId) -> bool {
        // An unknown noderole has no descendants.
        let floor = self.noderole(earlier).map_or(u32::MAX, |(_, _, n)| n.rank);
        let above = |id| {
            let found = self.noderole(id).filter(|(_, _, n)| n.rank > floor);
            found.into_iter().flat_map(|(_, _, n)| n.parents.iter().map(|edge| edge.parent))
        };
        reachable([later], above).any(|id| id == earlier)
    }

    // Changes go through `deployment_mut` or `node_mut`, which write the journal.

    pub fn deployment_mut(
        &mut self,
        id: DeploymentId,
    ) -> Result<&mut SkeletonDeployment, EditError> {
        let was = self.deployment(id)?.clone();
        self.journal_deployment(id, true);
        Ok(self.deployments.entry(id).or_default().insert(was))
    }

    fn journal_deployment(&mut self, id: DeploymentId, affects_visibility: bool) {
        self.journal.push(JournalEntry::Deployment {
            id,
            was: self.deployments.get(&id).cloned(),
            affects_visibility,
        });
        if affects_visibility {
            self.visible_catalogs.get_mut().clear();
        }
    }

    fn journal_node(&mut self, id: NodeId) {
        if self.journaled.insert(id) {
            self.journal.push(JournalEntry::Node(id, self.nodes.get(&id).cloned()));
        }
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut SkeletonNode, EditError> {
        self.node(id)?;
        self.journal_node(id);
        let was = self.skeleton.nodes.get(&id);
        let overlay = self.nodes.entry(id).or_insert_with(|| was.cloned());
        overlay.as_mut().ok_or(EditError::UnknownNode(id))
    }

    pub fn insert_deployment(&mut self, new: NewDeployment) {
        let deployment = SkeletonDeployment {
            name: new.name,
            parent: Some(new.parent),
            phantom: new.phantom,
            barclamps: BTreeMap::new(),
            roles: BTreeMap::new(),
            roles_with_data: BTreeSet::new(),
            inactive_jigs: BTreeSet::new(),
        };
        let phantom = SkeletonNode {
            fqdn: new.phantom_fqdn,
            deployment: new.id,
            phantom: true,
            record_only: false,
            noderoles: BTreeMap::new(),
        };
        self.journal_deployment(new.id, true);
        self.journal_node(new.phantom);
        self.deployments.insert(new.id, Some(deployment));
        self.nodes.insert(new.phantom, Some(phantom));
        let at = self.reasons.next();
        self.reasons.deployments.insert(new.id, (at, new.cause));
    }

    pub fn remove_deployment(
        &mut self,
        id: DeploymentId,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        let phantom = self.deployment(id)?.phantom;
        self.journal_deployment(id, true);
        self.journal_node(phantom);
        self.deployments.insert(id, None);
        self.nodes.insert(phantom, None);
        let at = self.reasons.next();
        self.reasons.removed_deployments.insert(id, (at, cause));
        Ok(())
    }

    /// Gives a deployment another parent. The caller must plan again what it inherits.
    pub fn move_deployment(
        &mut self,
        id: DeploymentId,
        to: DeploymentId,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        self.deployment_mut(id)?.parent = Some(to);
        let at = self.reasons.next();
        self.reasons.moved_deployments.insert(id, (at, cause));
        // New deployments are listed in this order, parents first.
        let mut below: Vec<DeploymentId> = self.subtree(id).into_iter().collect();
        below.sort_by_key(|id| self.chain(*id).len());
        for id in below {
            let at = self.reasons.next();
            if let Some((position, _)) = self.reasons.deployments.get_mut(&id) {
                *position = at;
            }
        }
        Ok(())
    }

    /// Pins a version of a barclamp in a deployment, or removes the pin.
    /// [`Draft::record_pin_origin`] records the reason once the edit takes effect.
    pub fn pin(
        &mut self,
        id: DeploymentId,
        barclamp: &BarclampName,
        version: Option<Hash>,
    ) -> Result<Option<Hash>, EditError> {
        let pins = &mut self.deployment_mut(id)?.barclamps;
        Ok(match version {
            Some(version) => pins.insert(barclamp.clone(), version),
            None => pins.remove(barclamp),
        })
    }

    pub fn record_pin_origin(
        &mut self,
        id: DeploymentId,
        barclamp: &BarclampName,
        cause: EffectCause,
    ) {
        let at = self.reasons.next();
        self.reasons.barclamps.insert((id, barclamp.clone()), (at, cause));
    }

    /// The version that a deployment uses, its own or an inherited one.
    pub fn visible_version(&self, id: DeploymentId, barclamp: &BarclampName) -> Option<Hash> {
        self.chain(id)
            .iter()
            .find_map(|id| self.deployment(*id).ok()?.barclamps.get(barclamp).copied())
    }

    /// The versions that a deployment uses, its own and inherited ones.
    pub fn visible_versions(
        &self,
        id: DeploymentId,
    ) -> Result<BTreeMap<BarclampName, Hash>, EditError> {
        let chain = self.chain(id);
        let pins: Result<Vec<_>, EditError> =
            chain.iter().map(|id| self.deployment(*id).map(|found| &found.barclamps)).collect();
        let visible = visible_barclamps(pins?).into_iter();
        Ok(visible.map(|pin| (pin.barclamp.clone(), pin.version)).collect())
    }

    /// The deployments whose own pins or parent the edits changed. Only these and their descendants
    /// can see other versions than before.
    pub fn repinned_or_moved(&self) -> BTreeSet<DeploymentId> {
        let none = BTreeMap::new();
        let pins = |id| self.skeleton.deployments.get(id).map_or(&none, |was| &was.barclamps);
        let moved = |id, is: &SkeletonDeployment| {
            self.skeleton.deployments.get(id).is_some_and(|was| was.parent != is.parent)
        };
        let existing = self.deployments.iter().filter_map(|(id, is)| Some((id, is.as_ref()?)));
        existing
            .filter(|(id, is)| is.barclamps != *pins(id) || moved(id, is))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The own pins of a deployment and its ancestors before the edits. For a deployment that the
    /// edits create, those of its nearest ancestor that existed.
    pub fn original_pins(&self, chain: &[DeploymentId]) -> Vec<&'a BTreeMap<BarclampName, Hash>> {
        let skeleton = self.skeleton;
        let known = chain.iter().find(|id| skeleton.deployments.contains_key(id));
        let before = known.map(|id| skeleton.chain(*id)).unwrap_or_default();
        let before = before.into_iter().filter_map(|id| skeleton.deployments.get(&id));
        before.map(|was| &was.barclamps).collect()
    }

    pub fn add_role(
        &mut self,
        id: DeploymentId,
        role: &RoleName,
        content: Hash,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        // A visible catalog does not depend on deployment names, so the cached ones stay valid.
        let was = self.deployment(id)?.clone();
        self.journal_deployment(id, false);
        let found = self.deployments.entry(id).or_default().insert(was);
        found.roles.insert(role.clone(), content);
        let at = self.reasons.next();
        self.reasons.roles.insert((id, role.clone()), (at, cause));
        Ok(())
    }

    pub fn remove_role(
        &mut self,
        id: DeploymentId,
        role: &RoleName,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        self.deployment_mut(id)?.roles.remove(role);
        let at = self.reasons.next();
        self.reasons.gone_roles.insert((id, role.clone()), (at, cause));
        Ok(())
    }

    pub fn move_node(
        &mut self,
        node: NodeId,
        to: DeploymentId,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        self.node_mut(node)?.deployment = to;
        let at = self.reasons.next();
        self.reasons.moved.insert(node, (at, cause));
        Ok(())
    }

    pub fn expunge(
        &mut self,
        node: NodeId,
        reason: String,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        self.journal_node(node);
        self.nodes.insert(node, None);
        let at = self.reasons.next();
        self.reasons.expunged.insert(node, (at, (reason, cause)));
        Ok(())
    }

    /// Adds a new noderole. Its rank follows from its parents.
    pub fn put(
        &mut self,
        node: NodeId,
        key: NoderoleKey,
        deployment: DeploymentId,
        content: Hash,
        parents: BTreeSet<EdgeDoc>,
        cause: EffectCause,
    ) -> Result<NoderoleId, EditError> {
        let (id, role) = (key.id(node), self.catalog.role(content)?);
        for edge in &parents {
            self.children.entry(edge.parent).or_default().insert(id);
        }
        self.places.insert(id, (node, key.clone()));
        let rank = self.rank_after(parents.iter());
        let found = self.node_mut(node)?;
        let fqdn = found.fqdn.clone();
        let noderole = SkeletonNoderole {
            deployment,
            role: content,
            rank,
            parents: parents.into_iter().collect(),
            customized: false,
        };
        found.noderoles.insert(key.clone(), noderole);
        for name in role.names() {
            let answer = Candidate { fqdn: fqdn.clone(), node, key: key.clone() };
            self.candidates.entry((deployment, name.clone())).or_default().insert(answer);
        }
        self.journal.push(JournalEntry::Put(id));
        let at = self.reasons.next();
        self.reasons.bound.insert(id, (at, cause));
        Ok(id)
    }

    /// Marks an existing noderole as requested by an edit. The effects then name this edit as the
    /// reason, and the noderole stays if the edit that added it is undone.
    pub fn request(&mut self, id: NoderoleId, edit: u32) {
        let at = self.reasons.next();
        let was = self.reasons.requested.insert(id, (at, edit));
        self.journal.push(JournalEntry::Requested(id, was));
    }

    /// The reason for a new noderole: an edit that binds it, or the edit that added it.
    fn reason(&self, id: NoderoleId, at: u64, cause: &EffectCause) -> EffectCause {
        // A request before `at` concerns a noderole that was removed and bound again.
        match self.reasons.requested.get(&id).filter(|(requested, _)| *requested > at) {
            Some((_, edit)) if matches!(cause, EffectCause::Required { .. }) => {
                EffectCause::Requested { edit: *edit }
            }
            _ => cause.clone(),
        }
    }

    /// Removes a noderole. The caller must handle the edges to its children.
    pub fn take(&mut self, id: NoderoleId, cause: EffectCause) -> Result<(), EditError> {
        let Some((node, key, _)) = self.noderole(id) else { return Ok(()) };
        let key = key.clone();
        self.node_mut(node)?.noderoles.remove(&key);
        let at = self.reasons.next();
        self.reasons.gone.insert(id, (at, cause));
        Ok(())
    }

    /// Makes a noderole wait for another. An existing edge is unchanged.
    pub fn link(
        &mut self,
        parent: NoderoleId,
        child: NoderoleId,
        kind: EdgeKind,
    ) -> Result<(), EditError> {
        let Some((_, _, noderole)) = self.noderole(child) else { return Ok(()) };
        let weaker =
            noderole.parents.iter().find(|edge| edge.parent == parent).map(|edge| edge.kind);
        if weaker.is_some_and(|known| known <= kind) {
            return Ok(());
        }
        if self.waits_for(parent, child) {
            return Err(EditError::NoderoleCycle {
                child: self.noderole_text(child),
                parent: self.noderole_text(parent),
            });
        }
        // A barrier may have thousands of parents. A new edge can only raise the child's rank, so
        // this does not read the ranks of the others.
        let raises = self.noderole(parent).is_some_and(|(_, _, above)| above.rank >= noderole.rank);
        self.children.entry(parent).or_default().insert(child);
        self.change(child, |noderole| {
            noderole.parents.retain(|edge| edge.parent != parent);
            let edge = EdgeDoc { parent, kind };
            let at = noderole.parents.partition_point(|known| *known < edge);
            noderole.parents.insert(at, edge);
        })?;
        if raises { self.settle(child) } else { Ok(()) }
    }

    /// Replaces the parents of a noderole and updates the ranks of its descendants.
    pub fn rewire(&mut self, id: NoderoleId, parents: BTreeSet<EdgeDoc>) -> Result<(), EditError> {
        for edge in &parents {
            self.children.entry(edge.parent).or_default().insert(id);
        }
        self.change(id, |noderole| noderole.parents = parents.into_iter().collect())?;
        self.settle(id)
    }

    /// Pins another content of a noderole's role.
    pub fn repin(&mut self, id: NoderoleId, content: Hash) -> Result<(), EditError> {
        let role = self.catalog.role(content)?;
        let Some((node, key, noderole)) = self.noderole(id) else { return Ok(()) };
        let (key, deployment, fqdn) =
            (key.clone(), noderole.deployment, self.node(node)?.fqdn.clone());
        for name in role.names() {
            let answer = Candidate { fqdn: fqdn.clone(), node, key: key.clone() };
            self.candidates.entry((deployment, name.clone())).or_default().insert(answer);
        }
        self.change(id, |noderole| noderole.role = content)
    }

    fn change(
        &mut self,
        id: NoderoleId,
        how: impl FnOnce(&mut SkeletonNoderole),
    ) -> Result<(), EditError> {
        let Some((node, key, _)) = self.noderole(id) else { return Ok(()) };
        let key = key.clone();
        if let Some(noderole) = self.node_mut(node)?.noderoles.get_mut(&key) {
            how(noderole);
        }
        Ok(())
    }

    fn rank_after<'e>(&self, parents: impl Iterator<Item = &'e EdgeDoc>) -> u32 {
        let ranks =
            parents.filter_map(|edge| self.noderole(edge.parent)).map(|(_, _, n)| n.rank + 1);
        ranks.max().unwrap_or(0)
    }

    /// Updates the rank of a noderole and of all its descendants.
    ///
    /// petgraph computes longest paths only for a whole graph. An edit changes the ranks of few
    /// noderoles, so this visits only those, lowest rank first.
    fn settle(&mut self, id: NoderoleId) -> Result<(), EditError> {
        let mut open = BTreeSet::from([(0, id)]);
        while let Some((_, id)) = open.pop_first() {
            let Some((_, _, noderole)) = self.noderole(id) else { continue };
            let (was, is) = (noderole.rank, self.rank_after(noderole.parents.iter()));
            if was == is {
                continue;
            }
            self.change(id, |noderole| noderole.rank = is)?;
            for (child, _) in self.children(id) {
                let rank = self.noderole(child).map_or(0, |(_, _, n)| n.rank);
                open.insert((rank, child));
            }
        }
        Ok(())
    }

    // Computing the effects.

    /// The difference between the draft and the skeleton.
    /// The effects without the values that edits set, which [`effects`](super::set_values::effects)
    /// adds.
    pub fn graph_effects(&self, refused: Vec<Refusal>) -> Effects {
        let mut effects = Effects { refused, ..Effects::default() };
        self.add_deployment_effects(&mut effects);
        self.add_node_effects(&mut effects);
        effects
    }

    fn add_deployment_effects(&self, effects: &mut Effects) {
        let (mut new, mut gone, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pins, mut unpinned) = (Vec::new(), Vec::new());
        let (mut roles, mut gone_roles) = (Vec::new(), Vec::new());
        for (id, overlay) in &self.deployments {
            let was = self.skeleton.deployments.get(id);
            let Some(is) = overlay else {
                if let (Some(was), Some((at, cause))) =
                    (was, self.reasons.removed_deployments.get(id))
                {
                    let cause = cause.clone();
                    gone.push((
                        *at,
                        RemovedDeployment {
                            id: *id,
                            phantom: was.phantom,
                            name: was.name.clone(),
                            cause,
                        },
                    ));
                }
                continue;
            };
            if let (None, Some(parent), Some((at, cause))) =
                (was, is.parent, self.reasons.deployments.get(id))
            {
                let fqdn = self.node(is.phantom).map(|n| n.fqdn.clone());
                let deployment = NewDeployment {
                    id: *id,
                    phantom: is.phantom,
                    phantom_fqdn: fqdn.unwrap_or_else(|_| super::resolve::phantom_fqdn(*id)),
                    name: is.name.clone(),
                    parent,
                    cause: cause.clone(),
                };
                new.push((*at, deployment));
            }
            if let (Some(from), Some(to), Some((at, cause))) =
                (was.and_then(|was| was.parent), is.parent, self.reasons.moved_deployments.get(id))
                && from != to
            {
                let cause = cause.clone();
                moved.push((*at, DeploymentMove { deployment: *id, from, to, cause }));
            }
            for (barclamp, version) in &is.barclamps {
                let known = was.and_then(|was| was.barclamps.get(barclamp));
                if let Some((at, cause)) = self.reasons.barclamps.get(&(*id, barclamp.clone()))
                    && known != Some(version)
                {
                    let (barclamp, cause) = (barclamp.clone(), cause.clone());
                    pins.push((
                        *at,
                        BarclampUse { deployment: *id, barclamp, version: *version, cause },
                    ));
                }
            }
            for (barclamp, from) in was.into_iter().flat_map(|was| &was.barclamps) {
                let dropped = self.reasons.barclamps.get(&(*id, barclamp.clone()));
                let Some((at, cause)) = dropped.filter(|_| !is.barclamps.contains_key(barclamp))
                else {
                    continue;
                };
                let (to, cause) = (self.visible_version(*id, barclamp), cause.clone());
                unpinned.push((
                    *at,
                    UnpinnedBarclamp {
                        deployment: *id,
                        barclamp: barclamp.clone(),
                        from: *from,
                        to,
                        cause,
                    },
                ));
            }
            for (role, content) in &is.roles {
                let (known, key) = (was.and_then(|was| was.roles.get(role)), (*id, role.clone()));
                let dropped = self.reasons.gone_roles.get(&key).map(|(at, _)| *at);
                let added = self
                    .reasons
                    .roles
                    .get(&key)
                    .filter(|(at, _)| known.is_none() || dropped.is_some_and(|d| d < *at))
                    .filter(|_| !was.is_some_and(|was| is_same_role(was, is, role)));
                match (known, added) {
                    (_, Some((at, cause))) => {
                        let (role, cause) = (role.clone(), cause.clone());
                        roles.push((
                            *at,
                            NewRole { deployment: *id, role, content: *content, cause },
                        ));
                    }
                    (Some(known), None) if known != content => {
                        effects.repinned.push(RoleContentChange {
                            deployment: *id,
                            node: None,
                            noderole: NoderoleKey::first(role.clone()),
                            from: *known,
                            to: *content,
                        })
                    }
                    _ => {}
                }
            }
            for role in was.into_iter().flat_map(|was| was.roles.keys()) {
                let key = (*id, role.clone());
                let Some((at, cause)) = self.reasons.gone_roles.get(&key) else { continue };
                if was.is_some_and(|was| is_same_role(was, is, role)) {
                    continue;
                }
                // A role that was removed and added again has lost its data, so the effects list
                // both.
                gone_roles.push((
                    *at,
                    RemovedRole { deployment: *id, role: role.clone(), cause: cause.clone() },
                ));
            }
        }
        effects.deployments = in_order(new);
        effects.removed_deployments = in_order(gone);
        effects.moved_deployments = in_order(moved);
        effects.barclamps = in_order(pins);
        effects.unpinned = in_order(unpinned);
        effects.roles = in_order(roles);
        effects.removed_roles = in_order(gone_roles);
    }

    fn add_node_effects(&self, effects: &mut Effects) {
        let (mut moved, mut expunged) = (Vec::new(), Vec::new());
        let (mut bound, mut unbound) = (Vec::new(), Vec::new());
        for (id, overlay) in &self.nodes {
            let was = self.skeleton.nodes.get(id);
            let Some(is) = overlay else {
                if let (Some(was), Some((at, (reason, cause)))) =
                    (was, self.reasons.expunged.get(id))
                {
                    let (fqdn, reason, cause) = (was.fqdn.clone(), reason.clone(), cause.clone());
                    expunged.push((*at, ExpungedNode { node: *id, fqdn, reason, cause }));
                }
                continue;
            };
            if let (Some(was), Some((at, cause))) = (was, self.reasons.moved.get(id))
                && was.deployment != is.deployment
            {
                moved.push((
                    *at,
                    NodeMove {
                        node: *id,
                        from: was.deployment,
                        to: is.deployment,
                        cause: cause.clone(),
                    },
                ));
            }
            for (key, noderole) in &is.noderoles {
                self.add_noderole_effects(
                    *id,
                    was.and_then(|was| was.noderoles.get(key)),
                    key,
                    noderole,
                    effects,
                    &mut bound,
                );
            }
            for (key, noderole) in was.into_iter().flat_map(|was| &was.noderoles) {
                let noderole_id = key.id(*id);
                let Some((at, cause)) = self.reasons.gone.get(&noderole_id) else { continue };
                if is.noderoles.contains_key(key) && !self.was_rebound(noderole_id) {
                    continue;
                }
                let (noderole_key, cause) = (key.clone(), cause.clone());
                let gone = RemovedNoderole {
                    id: noderole_id,
                    node: *id,
                    noderole: noderole_key,
                    deployment: noderole.deployment,
                    cause,
                };
                unbound.push((*at, gone));
            }
        }
        effects.moved = in_order(moved);
        effects.expunged = in_order(expunged);
        effects.bound = in_order(bound);
        effects.unbound = in_order(unbound);
    }

    /// Whether a noderole was removed and bound again, and differs now.
    fn was_rebound(&self, id: NoderoleId) -> bool {
        let (bound, gone) = (self.reasons.bound.get(&id), self.reasons.gone.get(&id));
        let again = bound.zip(gone).is_some_and(|((bound, _), (gone, _))| bound > gone);
        again && self.old_noderole(id) != self.noderole(id).map(|(_, _, noderole)| noderole)
    }

    fn add_noderole_effects(
        &self,
        node: NodeId,
        was: Option<&SkeletonNoderole>,
        key: &NoderoleKey,
        is: &SkeletonNoderole,
        effects: &mut Effects,
        bound: &mut Vec<(u64, Bound)>,
    ) {
        let id = key.id(node);
        if let Some((at, cause)) =
            self.reasons.bound.get(&id).filter(|_| was.is_none() || self.was_rebound(id))
        {
            let (deployment, role, rank) = (is.deployment, is.role, is.rank);
            let (noderole, parents) = (key.clone(), is.parents.clone());
            let cause = self.reason(id, *at, cause);
            bound.push((*at, Bound { id, node, noderole, deployment, role, rank, parents, cause }));
            return;
        }
        let Some(was) = was else { return };
        if was.role != is.role {
            let (noderole, from, to) = (key.clone(), was.role, is.role);
            effects.repinned.push(RoleContentChange {
                deployment: is.deployment,
                node: Some(node),
                noderole,
                from,
                to,
            });
        }
        if (was.rank, &was.parents) != (is.rank, &is.parents) {
            let (noderole, parents) = (key.clone(), is.parents.clone());
            effects.rewired.push(RewiredNoderole {
                node,
                noderole,
                deployment: is.deployment,
                rank: is.rank,
                parents,
            });
        }
    }

    /// The edit that bound a noderole, or 0 if the blueprint has it. `None`: it is not bound.
    pub fn bound_by(&self, node: NodeId, key: &NoderoleKey) -> Option<u32> {
        let id = key.id(node);
        let exists = self.node(node).is_ok_and(|n| n.noderoles.contains_key(key));
        let is_new = !self.skeleton.nodes.get(&node).is_some_and(|n| n.noderoles.contains_key(key))
            || self.was_rebound(id);
        let bound =
            self.reasons.bound.get(&id).filter(|_| is_new).map_or(0, |(_, cause)| cause.edit());
        exists.then_some(bound)
    }

    /// The edit that last removed a role from a deployment, or 0. `None`: the deployment does not
    /// have the role.
    pub fn role_removed_by(&self, deployment: DeploymentId, role: &RoleName) -> Option<u32> {
        let exists = self.deployment(deployment).is_ok_and(|d| d.roles.contains_key(role));
        let gone = self.reasons.gone_roles.get(&(deployment, role.clone()));
        exists.then_some(gone.map_or(0, |(_, cause)| cause.edit()))
    }

    /// Whether a jig of the blueprint is turned off. `None` without a root deployment.
    pub fn was_inactive(&self, jig: &JigName) -> Option<bool> {
        let root = self.skeleton.deployments.get(&self.root()?)?;
        Some(root.inactive_jigs.contains(jig))
    }
}

/// Whether a deployment has the same role with the same content as before, and no data were lost.
fn is_same_role(was: &SkeletonDeployment, is: &SkeletonDeployment, role: &RoleName) -> bool {
    let (old, new) = (was.roles.get(role), is.roles.get(role));
    old.is_some() && old == new && !was.roles_with_data.contains(role)
}

fn restore_entry<K: Ord, T>(overlay: &mut BTreeMap<K, Option<T>>, key: K, was: Option<Option<T>>) {
    match was {
        Some(was) => drop(overlay.insert(key, was)),
        None => drop(overlay.remove(&key)),
    }
}
