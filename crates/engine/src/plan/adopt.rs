//! Applies another version of a barclamp to everything that is bound from it.
//!
//! A deployment that uses another version uses it for existing noderoles too. The roles of every
//! deployment that sees the pin get the new contents, together with their noderoles. Noderoles
//! whose content changed run again, which the review shows.
//!
//! Then all noderoles there get the parents that binding would give them now. Each keeps the
//! parents that still satisfy it, loses those that no role requires, and gets the missing ones.
//! This includes noderoles with unchanged content. A version can change the client role of a jig or
//! the owner of an attribute. A role that becomes implicit must be on the same node. Soft edges
//! follow the `preceeds` of the new contents.
//!
//! A deployment that moves below another parent adopts all versions that it inherits there at once.
//! A parent of a noderole then also needs to be in the same deployment, above it or on the same
//! node.
//!
//! A deployment that unpins its version inherits the version of an ancestor and adopts it in the
//! same way. If no ancestor pins the barclamp, it goes out of use, so none of its roles may be in
//! use.
//!
//! A version is refused if it lacks a role in use, or changes that role's `cluster` or `service`
//! flag. Otherwise a running noderole would silently lose its definition, the barrier that others
//! wait for, or its node. To use such a version, unbind the role, use the version, and bind the
//! role again.

use std::collections::{BTreeMap, BTreeSet};

use super::bind::BindingPath;
use super::draft::Draft;
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey};
use crate::ids::{BarclampName, DeploymentId, NodeId, NoderoleId, RoleName};

/// The version to adopt.
struct New<'b> {
    /// The deployment whose pin changes.
    at: DeploymentId,
    barclamp: &'b BarclampName,
    /// `None`: the barclamp goes out of use.
    version: Option<Hash>,
    /// The deployments that adopt the version.
    seeing: &'b BTreeSet<DeploymentId>,
}

impl Draft<'_> {
    /// Applies a deployment's current version of a barclamp, its own or an inherited one, to it and
    /// its descendants. Descendants below another pin of the barclamp are unchanged.
    pub fn adopt(
        &mut self,
        at: DeploymentId,
        barclamp: &BarclampName,
        edit: u32,
    ) -> Result<(), EditError> {
        let seeing = self.seeing(at, barclamp);
        let repinned = self.repin_outdated(at, barclamp, &seeing)?;
        let touched = self.touched_by(&seeing, &repinned);
        self.replan(&touched, &repinned, edit)
    }

    /// Applies the versions that a moved deployment inherits now, and replaces parents that are no
    /// longer above it. `before` are the versions that it saw before.
    pub fn adopt_ancestors(
        &mut self,
        at: DeploymentId,
        before: &BTreeMap<BarclampName, Hash>,
        subtree: &BTreeSet<DeploymentId>,
        edit: u32,
    ) -> Result<(), EditError> {
        let now = self.visible_versions(at)?;
        let names: BTreeSet<&BarclampName> = before.keys().chain(now.keys()).collect();
        let mut repinned = BTreeSet::new();
        for barclamp in names.into_iter().filter(|name| before.get(*name) != now.get(*name)) {
            let result = self.repin_outdated(at, barclamp, &self.seeing(at, barclamp));
            repinned.extend(result.map_err(|error| self.after_move(at, error))?);
        }
        let touched = self.touched_by(subtree, &repinned);
        for (_, id) in &touched {
            self.check_bound_above(at, *id)?;
        }
        self.replan(&touched, &repinned, edit)
    }

    /// An error of a move. It names the new ancestors, because the old ones may use the barclamp.
    fn after_move(&self, moved: DeploymentId, error: EditError) -> EditError {
        let EditError::BarclampInUse { barclamp, at, deployment, role } = error else {
            return error;
        };
        let above = self.chain(moved).into_iter().skip(1).map(|id| self.deployment_name(id));
        let above: Vec<String> = above.collect();
        EditError::BarclampInUseBelow {
            barclamp,
            moved: at,
            parent: above.first().cloned().unwrap_or_default(),
            above,
            deployment,
            role,
        }
    }

    /// Whether a required role is on the node that runs it, such as a service on the phantom node.
    fn is_on_running_node(
        &self,
        deployment: DeploymentId,
        node: NodeId,
        requires: &RoleName,
    ) -> Result<bool, EditError> {
        let Some(content) = self.required_content(deployment, requires)? else { return Ok(false) };
        let running = self.running_node(deployment, node, content)?;
        let key = NoderoleKey::first(self.catalog.role(content)?.name.clone());
        Ok(self.node(running)?.noderoles.contains_key(&key))
    }

    /// Repins the roles and noderoles of a barclamp to the version that `at` sees. Returns the
    /// noderoles whose content changed.
    fn repin_outdated(
        &mut self,
        at: DeploymentId,
        barclamp: &BarclampName,
        seeing: &BTreeSet<DeploymentId>,
    ) -> Result<BTreeSet<NoderoleId>, EditError> {
        let new = New { at, barclamp, version: self.visible_version(at, barclamp), seeing };
        for deployment in seeing {
            for (role, content) in self.outdated_roles(*deployment, &new)? {
                self.deployment_mut(*deployment)?.roles.insert(role, content);
            }
        }
        let outdated = self.outdated_noderoles(&new)?;
        for (_, id, content) in &outdated {
            self.repin(*id, *content)?;
        }
        Ok(outdated.into_iter().map(|(_, id, _)| id).collect())
    }

    /// Plans the parents of noderoles again, by rank.
    fn replan(
        &mut self,
        touched: &BTreeSet<(u32, NoderoleId)>,
        repinned: &BTreeSet<NoderoleId>,
        edit: u32,
    ) -> Result<(), EditError> {
        for (_, id) in touched {
            self.recompute_parents(*id, repinned.contains(id), edit)?;
        }
        for (_, id) in touched {
            self.link_predecessors(*id)?;
        }
        Ok(())
    }

    /// Requires that all parents of a noderole exist, because a move binds no roles.
    fn check_bound_above(&self, moved: DeploymentId, id: NoderoleId) -> Result<(), EditError> {
        let (Some((node, _, noderole)), Some(role)) = (self.noderole(id), self.role_of(id)) else {
            return Ok(());
        };
        if role.gathers.is_some() {
            return Ok(());
        }
        let deployment = noderole.deployment;
        for requires in self.parent_names(deployment, role)? {
            let implicit = self.is_implicit(deployment, &requires)?;
            if self.current_parent(node, deployment, &noderole.parents, &requires)?.is_some()
                || self.serving(deployment, node, &requires, implicit, &|_| true)?.is_some()
                || self.is_on_running_node(deployment, node, &requires)?
            {
                continue;
            }
            let parent = self.deployment(moved)?.parent;
            return Err(EditError::NotBoundAbove {
                moved: self.deployment_name(moved),
                parent: parent.map(|parent| self.deployment_name(parent)).unwrap_or_default(),
                noderole: self.noderole_text(id),
                requires,
                deployment: self.deployment_name(deployment),
            });
        }
        Ok(())
    }

    /// Noderoles whose parents may change, by rank: all that are bound where the version is
    /// visible. Also those elsewhere that wait for a role with changed names, or that a role now
    /// precedes.
    fn touched_by(
        &self,
        seeing: &BTreeSet<DeploymentId>,
        repinned: &BTreeSet<NoderoleId>,
    ) -> BTreeSet<(u32, NoderoleId)> {
        let mut touched = BTreeSet::new();
        for (node, carrier) in self.nodes() {
            let seen = carrier
                .noderoles
                .iter()
                .filter(|(_, noderole)| seeing.contains(&noderole.deployment));
            touched.extend(seen.map(|(key, noderole)| (noderole.rank, key.id(node))));
        }
        let preceded = |id: NoderoleId| {
            let node = self.noderole(id).map(|(node, _, _)| node);
            let later = self.role_of(id).into_iter().flat_map(|role| &role.preceeds);
            later.filter_map(move |later| Some(NoderoleKey::first(later.clone()).id(node?)))
        };
        let children = repinned.iter().flat_map(|id| self.children(*id)).map(|(child, _)| child);
        let other = children.chain(repinned.iter().flat_map(|id| preceded(*id)));
        touched.extend(other.filter_map(|id| Some((self.noderole(id)?.2.rank, id))));
        touched
    }

    /// The deployment and its descendants, except those with a nearer pin of the barclamp.
    fn seeing(&self, at: DeploymentId, barclamp: &BarclampName) -> BTreeSet<DeploymentId> {
        let stops = |id: &DeploymentId| {
            *id == at
                || self.deployment(*id).is_ok_and(|found| found.barclamps.contains_key(barclamp))
        };
        let nearest = |id: DeploymentId| self.chain(id).into_iter().find(stops);
        self.deployments().map(|(id, _)| id).filter(|id| nearest(*id) == Some(at)).collect()
    }

    /// The content of a role in the new version. `None` if it is unchanged or the role belongs to
    /// another barclamp.
    fn newer(
        &self,
        deployment: DeploymentId,
        new: &New<'_>,
        content: Hash,
    ) -> Result<Option<Hash>, EditError> {
        let New { at, barclamp, version, .. } = new;
        let was = self.catalog.role(content)?;
        if was.barclamp != **barclamp || was.gathers.is_some() {
            return Ok(None);
        }
        let barclamp_in_use = || EditError::BarclampInUse {
            barclamp: (*barclamp).clone(),
            at: self.deployment_name(*at),
            deployment: self.deployment_name(deployment),
            role: was.name.clone(),
        };
        let new = self.catalog.barclamp(version.ok_or_else(barclamp_in_use)?)?;
        let refused = |how| EditError::VersionUnfit {
            barclamp: (*barclamp).clone(),
            version: new.version.clone(),
            role: was.name.clone(),
            deployment: self.deployment_name(deployment),
            how,
        };
        let hash = *new.roles.get(&was.name).ok_or_else(|| refused("lacks"))?;
        let is = &self.catalog.role(hash)?.flags;
        if is.cluster != was.flags.cluster {
            return Err(refused("changes the cluster flag of"));
        }
        if is.service != was.flags.service {
            return Err(refused("changes the service flag of"));
        }
        Ok((hash != content).then_some(hash))
    }

    fn outdated_roles(
        &self,
        deployment: DeploymentId,
        new: &New<'_>,
    ) -> Result<Vec<(RoleName, Hash)>, EditError> {
        let mut outdated = Vec::new();
        for (role, content) in &self.deployment(deployment)?.roles {
            let newer = self.newer(deployment, new, *content)?;
            outdated.extend(newer.map(|newer| (role.clone(), newer)));
        }
        Ok(outdated)
    }

    fn outdated_noderoles(&self, new: &New<'_>) -> Result<Vec<(u32, NoderoleId, Hash)>, EditError> {
        let mut outdated = Vec::new();
        for (node, carrier) in self.nodes() {
            for (key, noderole) in
                carrier.noderoles.iter().filter(|(_, n)| new.seeing.contains(&n.deployment))
            {
                let newer = self.newer(noderole.deployment, new, noderole.role)?;
                outdated.extend(newer.map(|newer| (noderole.rank, key.id(node), newer)));
            }
        }
        outdated.sort_by_key(|(rank, id, _)| (*rank, *id));
        Ok(outdated)
    }

    /// Sets a noderole's parents to those that its role requires now. Suitable parents stay;
    /// missing ones are found or bound.
    fn recompute_parents(
        &mut self,
        id: NoderoleId,
        is_repinned: bool,
        edit: u32,
    ) -> Result<(), EditError> {
        let catalog = self.catalog;
        let Some((node, key, noderole)) = self.noderole(id) else { return Ok(()) };
        let role = &**catalog.role(noderole.role)?;
        if role.gathers.is_some() {
            return Ok(());
        }
        let (deployment, old) = (noderole.deployment, noderole.parents.clone());
        let mut binding = BindingPath { deployment, edit, path: vec![key.role.clone()] };
        if is_repinned {
            self.check_bindable(deployment, role)?;
            self.check_conflicts(node, role)?;
        }
        let stays = |edge: &&EdgeDoc| match edge.kind {
            EdgeKind::Hard => false,
            EdgeKind::OrderOnly => true,
            EdgeKind::Soft => self.is_ordered(edge.parent, id),
        };
        let mut parents: BTreeSet<EdgeDoc> = old.iter().filter(stays).copied().collect();
        for required in self.parent_names(deployment, role)? {
            let parent = match self.current_parent(node, deployment, &old, &required)? {
                Some(parent) => parent,
                None => {
                    let found = self.parent(&mut binding, node, role, &required)?;
                    self.effective_parent(found)
                }
            };
            let known = old.iter().any(|edge| edge.parent == parent);
            if !known && self.waits_for(parent, id) {
                return Err(EditError::NoderoleCycle {
                    child: self.noderole_text(id),
                    parent: self.noderole_text(parent),
                });
            }
            parents.retain(|edge| edge.parent != parent);
            parents.insert(EdgeDoc { parent, kind: EdgeKind::Hard });
        }
        // A role bound in the meantime may precede this one and has already added its edge.
        let new = self.noderole(id).map(|(_, _, n)| n.parents.clone()).unwrap_or_default();
        let linked = new
            .iter()
            .filter(|edge| !old.contains(edge) && parents.iter().all(|p| p.parent != edge.parent));
        parents.extend(linked.copied().collect::<Vec<_>>());
        if parents.iter().eq(&new) { Ok(()) } else { self.rewire(id, parents) }
    }

    /// The current parent for a name, if it can stay. For an implicit role it returns nothing,
    /// because binding always finds the one on the same node first.
    fn current_parent(
        &self,
        node: NodeId,
        deployment: DeploymentId,
        old: &[EdgeDoc],
        required: &RoleName,
    ) -> Result<Option<NoderoleId>, EditError> {
        if self.is_implicit(deployment, required)? {
            return Ok(None);
        }
        let above = &self.visible_catalog(deployment)?.chain;
        let mut hard =
            old.iter().filter(|edge| edge.kind == EdgeKind::Hard).map(|edge| edge.parent);
        Ok(hard.find(|parent| {
            self.serves(*parent, required) && self.is_near_or_above(*parent, node, above)
        }))
    }

    /// Whether a noderole of a node can wait for this one: it is on the node or in one of these
    /// deployments, or it is the barrier of one on the node.
    fn is_near_or_above(&self, id: NoderoleId, node: NodeId, above: &[DeploymentId]) -> bool {
        let is_on_node =
            |id: NoderoleId| self.noderole(id).is_some_and(|(place, _, _)| place == node);
        self.noderole(id).is_some_and(|(_, _, found)| {
            let is_barrier = self.role_of(id).is_some_and(|role| role.gathers.is_some());
            above.contains(&found.deployment)
                || is_on_node(id)
                || is_barrier && found.parents.iter().any(|edge| is_on_node(edge.parent))
        })
    }
}
