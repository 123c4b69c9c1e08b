//! Binding by OpenCrowbar's rules.
//!
//! Binding a role to a node creates a noderole. Its parents are the noderoles of the required
//! roles, of its jig's client role, and of the owners of wanted attributes. For each of these,
//! binding uses, in this order:
//!
//! 1. A noderole on the same node that has the name or provides it.
//! 2. Unless the role is implicit: one in the same deployment, then in each ancestor, first by node
//!    name.
//! 3. Otherwise, it binds the role to the same node in the same deployment, by these same rules.
//!
//! Three rules are added:
//!
//! * A *service* role is bound to its deployment's phantom node, regardless of the node in the
//!   edit.
//! * The noderoles of a *cluster* role in a deployment act as one parent. Their children wait for a
//!   barrier ([`Role::barrier`]), which exists from the first member to the last. A member that
//!   joins later thus precedes all existing children.
//! * If a role *precedes* another and both are bound, a soft edge orders them.
//!
//! The parent of a soft edge is the noderole of the earlier role on the same node. Otherwise,
//! unless the later role is implicit, it is the first in the deployment. An edge for every pair
//! would need N x M edges. The search happens when the later role is bound, the earlier role is
//! first bound, a version comes into use, or the current parent is removed. The order is thus
//! preserved as long as any suitable parent exists. The parent found stays: a new search at each
//! binding would write documents of unrelated machines.
//!
//! Source: OpenCrowbar's and Digital Rebar's models. If they choose one of several parents
//! arbitrarily, Gantry chooses by name.

use std::collections::BTreeSet;

use super::draft::Draft;
use super::effects::EffectCause;
use super::limits::MAX_DEPTH;
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::catalog::{JigClass, Role};
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey, SkeletonNode};
use crate::ids::{DeploymentId, NodeId, NoderoleId, RoleName};
use crate::suggestion::nearest;

/// A binding in progress: its deployment, its edit, and the chain of roles that led to it.
pub(super) struct BindingPath {
    pub deployment: DeploymentId,
    pub edit: u32,
    pub path: Vec<RoleName>,
}

impl Draft<'_> {
    /// The role of this name in a deployment. Searches the deployments' own roles, nearest first,
    /// then the pinned barclamps. An ancestor's role is hidden if a nearer pin has another version
    /// of its barclamp.
    fn role_content(
        &self,
        deployment: DeploymentId,
        name: &RoleName,
    ) -> Result<Option<Hash>, EditError> {
        let visible_catalog = self.visible_catalog(deployment)?;
        let seen = visible_catalog.roles.get(name);
        for (up, id) in visible_catalog.chain.iter().enumerate() {
            if let Some(hash) = self.deployment(*id)?.roles.get(name)
                && !visible_catalog.hides(&self.catalog.role(*hash)?.barclamp, up)
            {
                return Ok(Some(*hash));
            }
            if let Some((at, hash)) = seen
                && *at == up
            {
                return Ok(Some(*hash));
            }
        }
        Ok(None)
    }

    /// The role for a *required* name: as above, or else the first bindable role by name that
    /// provides it.
    pub fn required_content(
        &self,
        deployment: DeploymentId,
        name: &RoleName,
    ) -> Result<Option<Hash>, EditError> {
        if let Some(hash) = self.role_content(deployment, name)?
            && !self.catalog.role(hash)?.flags.is_abstract
        {
            return Ok(Some(hash));
        }
        let visible_catalog = self.visible_catalog(deployment)?;
        Ok(visible_catalog
            .providers
            .get(name)
            .and_then(|providers| providers.values().next().copied()))
    }

    /// Whether a required name refers to an implicit role, which counts only on its own node.
    pub fn is_implicit(
        &self,
        deployment: DeploymentId,
        name: &RoleName,
    ) -> Result<bool, EditError> {
        match self.required_content(deployment, name)? {
            Some(hash) => Ok(self.catalog.role(hash)?.flags.implicit),
            None => Ok(false),
        }
    }

    /// The visible role of this name, as an edit names it.
    pub fn visible_role(
        &self,
        deployment: DeploymentId,
        role: &RoleName,
    ) -> Result<Hash, EditError> {
        self.role_content(deployment, role)?.ok_or_else(|| EditError::UnknownRole {
            deployment: self.deployment_name(deployment),
            role: role.to_string(),
            nearest: self.similar_role(deployment, role.as_str()),
        })
    }

    /// The error for a requirement that no role satisfies.
    fn unresolved(
        &self,
        deployment: DeploymentId,
        child: &Role,
        requires: &RoleName,
    ) -> Result<EditError, EditError> {
        let (role, requires) = (child.name.clone(), requires.clone());
        let named = self.deployment_name(deployment);
        // A bindable role would have been found.
        if self.role_content(deployment, &requires)?.is_some() {
            return Ok(EditError::RequiresAbstract { deployment: named, role, requires });
        }
        let nearest = self.similar_role(deployment, requires.as_str());
        Ok(EditError::UnresolvedRequire { deployment: named, role, requires, nearest })
    }

    /// The visible role name that is most similar to this one.
    fn similar_role(&self, deployment: DeploymentId, name: &str) -> Option<String> {
        let visible_catalog = self.visible_catalog(deployment).ok()?;
        let mut names: BTreeSet<&RoleName> = visible_catalog.roles.keys().collect();
        for (up, id) in visible_catalog.chain.iter().enumerate() {
            let hidden = |hash| {
                self.catalog.role(hash).is_ok_and(|role| visible_catalog.hides(&role.barclamp, up))
            };
            let roles = &self.deployment(*id).ok()?.roles;
            names.extend(roles.iter().filter(|(_, hash)| !hidden(**hash)).map(|(name, _)| name));
        }
        // Excludes the name itself, which is present if its role cannot be bound.
        nearest(name, names.into_iter().map(RoleName::as_str).filter(|other| *other != name))
    }

    /// The names of the roles whose noderoles become parents, each once.
    pub fn parent_names(
        &self,
        deployment: DeploymentId,
        role: &Role,
    ) -> Result<Vec<RoleName>, EditError> {
        let visible_catalog = self.visible_catalog(deployment)?;
        let mut required = role.requires.clone();
        required.extend(visible_catalog.clients.get(&role.jig).into_iter().flatten().cloned());
        if self.rules.wants_attribs_make_parents {
            required.extend(
                role.wants.iter().filter_map(|attrib| visible_catalog.owners.get(attrib)).cloned(),
            );
        }
        let mut seen = BTreeSet::from([role.name.clone()]);
        required.retain(|name| seen.insert(name.clone()));
        Ok(required)
    }

    /// Binds the role of an edit to its node. If the deployment has bound it there already, this
    /// only marks the noderole as requested.
    pub fn bind(
        &mut self,
        deployment: DeploymentId,
        node: NodeId,
        role: &RoleName,
        seq: u32,
    ) -> Result<(), EditError> {
        self.count_considered();
        let is_own_phantom = self.deployment(deployment)?.phantom == node;
        let found = self.node(node)?;
        if found.phantom && !is_own_phantom {
            return Err(EditError::Phantom(self.full_name(found)));
        }
        let moves = self.requires_move(found, deployment)?;
        let content = self.visible_role(deployment, role)?;
        if found.phantom && !self.catalog.role(content)?.flags.service {
            return Err(EditError::Phantom(self.full_name(found)));
        }
        let stands_on = self.running_node(deployment, node, content)?;
        let carrier = self.node(stands_on)?;
        let key = NoderoleKey::first(role.clone());
        if let Some(bound) = carrier.noderoles.get(&key) {
            if bound.deployment != deployment {
                return Err(EditError::AlreadyBound {
                    role: role.clone(),
                    node: carrier.fqdn.clone(),
                });
            }
            self.request(key.id(stands_on), seq);
            return Ok(());
        }
        // The phantom node runs the service, so the named node does not move.
        if moves && stands_on == node {
            self.side_effects.moved.insert(node, deployment);
            self.move_node(
                node,
                deployment,
                EffectCause::Required { edit: seq, by: role.clone(), implicit: false },
            )?;
        }
        let mut binding = BindingPath { deployment, edit: seq, path: Vec::new() };
        self.bind_with_parents(&mut binding, node, content, EffectCause::Requested { edit: seq })?;
        Ok(())
    }

    /// Whether the binding also moves the node to the deployment. Refused if the node belongs to a
    /// deployment that is neither an ancestor nor a descendant.
    fn requires_move(
        &self,
        node: &SkeletonNode,
        deployment: DeploymentId,
    ) -> Result<bool, EditError> {
        if self.chain(node.deployment).contains(&deployment) {
            return Ok(false);
        }
        if self.chain(deployment).contains(&node.deployment) {
            return Ok(true);
        }
        Err(EditError::Sibling {
            node: node.fqdn.clone(),
            owner: self.deployment_name(node.deployment),
            deployment: self.deployment_name(deployment),
        })
    }

    /// The node that runs a role if an edit binds it to this node.
    pub fn running_node(
        &self,
        deployment: DeploymentId,
        node: NodeId,
        content: Hash,
    ) -> Result<NodeId, EditError> {
        let service =
            self.rules.service_roles_to_phantom && self.catalog.role(content)?.flags.service;
        if service { Ok(self.deployment(deployment)?.phantom) } else { Ok(node) }
    }

    /// Creates one noderole and all that it requires.
    fn bind_with_parents(
        &mut self,
        binding: &mut BindingPath,
        node: NodeId,
        content: Hash,
        cause: EffectCause,
    ) -> Result<NoderoleId, EditError> {
        self.count_considered();
        let catalog = self.catalog;
        let role = &**catalog.role(content)?;
        let node = self.running_node(binding.deployment, node, content)?;
        let key = NoderoleKey::first(role.name.clone());
        if self.node(node)?.noderoles.contains_key(&key) {
            return Ok(key.id(node));
        }
        if let Some(start) = binding.path.iter().position(|r| *r == role.name) {
            let mut cycle = binding.path[start..].to_vec();
            cycle.push(role.name.clone());
            return Err(EditError::RoleCycle(cycle));
        }
        if binding.path.len() >= MAX_DEPTH {
            return Err(EditError::TooDeep(binding.path.first().unwrap_or(&role.name).clone()));
        }
        self.check_bindable(binding.deployment, role)?;
        self.check_conflicts(node, role)?;

        binding.path.push(role.name.clone());
        let before = self.mark();
        let mut parents = BTreeSet::new();
        for required in self.parent_names(binding.deployment, role)? {
            let parent = self.parent(binding, node, role, &required)?;
            parents.insert(EdgeDoc { parent: self.effective_parent(parent), kind: EdgeKind::Hard });
        }
        binding.path.pop();
        // A parent may have added a provider that conflicts with this role.
        if self.added_since(before).next().is_some() {
            self.check_conflicts(node, role)?;
        }

        if !self.deployment(binding.deployment)?.roles.contains_key(&role.name) {
            self.add_role(binding.deployment, &role.name, content, cause.clone())?;
        }
        let id = self.put(node, key, binding.deployment, content, parents, cause)?;
        if role.flags.cluster {
            self.add_cluster_member(binding, id, content, role)?;
        }
        if self.rules.preceeds_soft_edges {
            self.link_soft_edges(id, role)?;
        }
        Ok(id)
    }

    /// The noderole that satisfies a required name of a role on a node. Binds a new one if
    /// necessary.
    pub fn parent(
        &mut self,
        binding: &mut BindingPath,
        node: NodeId,
        child: &Role,
        required: &RoleName,
    ) -> Result<NoderoleId, EditError> {
        let content = self.required_content(binding.deployment, required)?;
        let implicit = self.is_implicit(binding.deployment, required)?;
        if let Some(found) =
            self.serving(binding.deployment, node, required, implicit, &|_| true)?
        {
            return Ok(found);
        }
        let content = match content {
            Some(content) => content,
            None => return Err(self.unresolved(binding.deployment, child, required)?),
        };
        let cause = EffectCause::Required { edit: binding.edit, by: child.name.clone(), implicit };
        let found = self.bind_with_parents(binding, node, content, cause)?;
        // A node has a role only once. It may be bound there by a deployment with another version.
        match self.noderole(found) {
            Some((place, key, noderole))
                if !self.catalog.role(noderole.role)?.satisfies(required) =>
            {
                Err(EditError::ServedByOtherVersion {
                    role: child.name.clone(),
                    requires: required.clone(),
                    provider: key.role.clone(),
                    node: self.node(place)?.fqdn.clone(),
                    deployment: self.deployment_name(noderole.deployment),
                })
            }
            _ => Ok(found),
        }
    }

    /// An existing noderole that satisfies a required name: on the node, or, unless implicit, in
    /// the deployment and its ancestors.
    pub fn serving(
        &self,
        deployment: DeploymentId,
        node: NodeId,
        required: &RoleName,
        implicit: bool,
        fits: &dyn Fn(NoderoleId) -> bool,
    ) -> Result<Option<NoderoleId>, EditError> {
        let noderoles = &self.node(node)?.noderoles;
        let own = NoderoleKey::first(required.clone());
        if noderoles.contains_key(&own) && fits(own.id(node)) {
            return Ok(Some(own.id(node)));
        }
        for (key, noderole) in noderoles {
            if self.catalog.role(noderole.role)?.satisfies(required) && fits(key.id(node)) {
                return Ok(Some(key.id(node)));
            }
        }
        if implicit {
            return Ok(None);
        }
        let visible_catalog = self.visible_catalog(deployment)?;
        Ok(visible_catalog
            .chain
            .iter()
            .find_map(|id| self.candidates(*id, required).find(|found| fits(*found))))
    }

    /// Another noderole that satisfies every name for which the child waits for `parent`, and that
    /// can replace it.
    pub fn replacement(
        &self,
        child: NoderoleId,
        parent: NoderoleId,
        fits: &dyn Fn(NoderoleId) -> bool,
    ) -> Result<Option<BTreeSet<NoderoleId>>, EditError> {
        let (Some((node, _, noderole)), Some(role)) = (self.noderole(child), self.role_of(child))
        else {
            return Ok(None);
        };
        let deployment = noderole.deployment;
        let mut required = self.parent_names(deployment, role)?;
        required.retain(|name| self.serves(parent, name));
        let mut found = BTreeSet::new();
        for name in &required {
            let implicit = self.is_implicit(deployment, name)?;
            let is_acyclic = |other: NoderoleId| {
                fits(other) && !self.waits_for(self.effective_parent(other), child)
            };
            match self.serving(deployment, node, name, implicit, &is_acyclic)? {
                Some(other) => drop(found.insert(self.effective_parent(other))),
                None => return Ok(None),
            }
        }
        Ok((!found.is_empty()).then_some(found))
    }

    /// Whether a noderole satisfies a required name. A barrier does so through its members.
    pub fn serves(&self, parent: NoderoleId, required: &RoleName) -> bool {
        self.role_of(parent).is_some_and(|role| role.satisfies(required))
            || self.has_member_providing(parent, required)
    }

    fn has_member_providing(&self, barrier: NoderoleId, required: &RoleName) -> bool {
        let Some(gathered) = self.role_of(barrier).and_then(|role| role.gathers.as_ref()) else {
            return false;
        };
        let members =
            self.noderole(barrier).map(|(_, _, n)| n.parents.as_slice()).unwrap_or_default();
        gathered == required
            || members
                .iter()
                .any(|m| self.role_of(m.parent).is_some_and(|role| role.satisfies(required)))
    }

    /// The parent for children of this noderole: its cluster's barrier, or the noderole itself.
    pub fn effective_parent(&self, id: NoderoleId) -> NoderoleId {
        self.barrier_of(id).unwrap_or(id)
    }

    /// The barrier after a noderole of a cluster role.
    fn barrier_of(&self, id: NoderoleId) -> Option<NoderoleId> {
        let (_, _, noderole) = self.noderole(id)?;
        let role = self.catalog.role(noderole.role).ok().filter(|role| role.flags.cluster)?;
        let phantom = self.deployment(noderole.deployment).ok()?.phantom;
        let barrier = NoderoleKey::first(role.name.barrier()).id(phantom);
        self.noderole(barrier).map(|_| barrier)
    }

    /// Adds a new cluster member as a parent of the cluster's barrier. The first member creates the
    /// barrier.
    fn add_cluster_member(
        &mut self,
        binding: &BindingPath,
        member: NoderoleId,
        content: Hash,
        role: &Role,
    ) -> Result<(), EditError> {
        if let Some(barrier) = self.barrier_of(member) {
            return self.link(member, barrier, EdgeKind::Hard);
        }
        let phantom = self.deployment(binding.deployment)?.phantom;
        let missing = crate::catalog::CatalogError::Missing { kind: "role", hash: content };
        let barrier = self.catalog.barrier(content).ok_or(missing)?;
        let parents = BTreeSet::from([EdgeDoc { parent: member, kind: EdgeKind::Hard }]);
        let cause =
            EffectCause::Required { edit: binding.edit, by: role.name.clone(), implicit: true };
        self.put(
            phantom,
            NoderoleKey::first(role.name.barrier()),
            binding.deployment,
            barrier,
            parents,
            cause,
        )?;
        Ok(())
    }

    /// Adds soft edges between a new noderole and noderoles that it precedes or that precede it.
    fn link_soft_edges(&mut self, new: NoderoleId, role: &Role) -> Result<(), EditError> {
        for later in &role.preceeds {
            for later in self.successors(new, role, later) {
                self.link(new, later, EdgeKind::Soft)?;
            }
        }
        for earlier in self.preceding(new)? {
            if let Some(earlier) = self.earlier_noderole(new, &earlier, &|_| true) {
                self.link(earlier, new, EdgeKind::Soft)?;
            }
        }
        Ok(())
    }

    /// The visible roles that precede a noderole's role.
    fn preceding(&self, id: NoderoleId) -> Result<Vec<RoleName>, EditError> {
        let (Some((_, key, noderole)), true) = (self.noderole(id), self.rules.preceeds_soft_edges)
        else {
            return Ok(Vec::new());
        };
        Ok(self
            .visible_catalog(noderole.deployment)?
            .before
            .get(&key.role)
            .cloned()
            .unwrap_or_default())
    }

    /// The noderoles that must wait for a new one: that of the later role on its node. If the new
    /// one is the first of its role, also all that wait for none yet.
    fn successors(&self, new: NoderoleId, role: &Role, later: &RoleName) -> Vec<NoderoleId> {
        let Some((node, _, noderole)) = self.noderole(new) else { return Vec::new() };
        let own = NoderoleKey::first(later.clone()).id(node);
        let mut successors: Vec<NoderoleId> = self.noderole(own).map(|_| own).into_iter().collect();
        let is_of = |id: NoderoleId, name: &RoleName| {
            self.role_of(id).is_some_and(|found| found.name == *name)
        };
        if self
            .candidates(noderole.deployment, &role.name)
            .any(|other| other != new && is_of(other, &role.name))
        {
            return successors;
        }
        let elsewhere = self.candidates(noderole.deployment, later).filter(|id| {
            let implicit = self.role_of(*id).is_some_and(|found| found.flags.implicit);
            *id != own && is_of(*id, later) && !implicit && !self.waits_for_role(*id, &role.name)
        });
        successors.extend(elsewhere);
        successors
    }

    /// The noderole of the earlier role for which a later one must wait and does not yet. It is the
    /// one on the same node. Otherwise, it is the first in the deployment, unless the later role is
    /// implicit or already waits for one.
    fn earlier_noderole(
        &self,
        later: NoderoleId,
        earlier: &RoleName,
        fits: &dyn Fn(NoderoleId) -> bool,
    ) -> Option<NoderoleId> {
        let (node, _, noderole) = self.noderole(later)?;
        let role = self.role_of(later)?;
        let precedes = |id: &NoderoleId| {
            let found = self
                .role_of(*id)
                .filter(|found| found.name == *earlier && found.preceeds.contains(&role.name));
            found.is_some() && fits(*id)
        };
        let own = NoderoleKey::first(earlier.clone()).id(node);
        if precedes(&own) {
            return Some(own);
        }
        if role.flags.implicit || self.waits_for_role(later, earlier) {
            return None;
        }
        self.candidates(noderole.deployment, earlier).find(precedes)
    }

    fn waits_for_role(&self, child: NoderoleId, role: &RoleName) -> bool {
        let parents =
            self.noderole(child).map(|(_, _, n)| n.parents.as_slice()).unwrap_or_default();
        let mut above = parents.iter().filter_map(|edge| self.role_of(edge.parent));
        above.any(|parent| parent.name == *role || parent.gathers.as_ref() == Some(role))
    }

    /// Adds a soft edge from an existing noderole to one of an earlier role, if a suitable one
    /// exists.
    pub fn follow(&mut self, later: NoderoleId, earlier: &RoleName) -> Result<(), EditError> {
        if !self.rules.preceeds_soft_edges {
            return Ok(());
        }
        match self.earlier_noderole(later, earlier, &|id| !self.waits_for(id, later)) {
            Some(parent) => self.link(parent, later, EdgeKind::Soft),
            None => Ok(()),
        }
    }

    /// Calls [`Self::follow`] for all roles that precede the noderole's role.
    pub fn link_predecessors(&mut self, later: NoderoleId) -> Result<(), EditError> {
        self.preceding(later)?.iter().try_for_each(|earlier| self.follow(later, earlier))
    }

    /// Whether the roles at both ends justify a soft edge.
    pub fn is_ordered(&self, earlier: NoderoleId, later: NoderoleId) -> bool {
        let (Some(first), Some(second)) = (self.role_of(earlier), self.role_of(later)) else {
            return false;
        };
        let node = |id| self.noderole(id).map(|(node, _, _)| node);
        first.preceeds.contains(&second.name)
            && (!second.flags.implicit || node(earlier) == node(later))
    }

    pub fn check_bindable(&self, deployment: DeploymentId, role: &Role) -> Result<(), EditError> {
        if role.gathers.is_some() {
            return Err(EditError::BarrierIsAutomatic(role.name.clone()));
        }
        if role.flags.is_abstract {
            let providers = self
                .visible_catalog(deployment)?
                .providers
                .get(&role.name)
                .cloned()
                .unwrap_or_default();
            return Err(EditError::Abstract {
                role: role.name.clone(),
                providers: providers.into_keys().collect(),
            });
        }
        if let JigClass::Other(class) = &role.jig_class {
            let (jig, class) = (role.jig.to_string(), class.clone());
            return Err(EditError::NoSuchJig { role: role.name.clone(), jig, class });
        }
        let root = self.root().map(|root| self.deployment(root)).transpose()?;
        if root.is_some_and(|root| root.inactive_jigs.contains(&role.jig)) {
            return Err(EditError::InactiveJig { role: role.name.clone(), jig: role.jig.clone() });
        }
        Ok(())
    }

    pub fn check_conflicts(&self, node: NodeId, role: &Role) -> Result<(), EditError> {
        let found = self.node(node)?;
        for noderole in found.noderoles.values() {
            let other = self.catalog.role(noderole.role)?;
            if excludes(role, other) || excludes(other, role) {
                return Err(EditError::Conflict {
                    role: role.name.clone(),
                    with: other.name.clone(),
                    node: found.fqdn.clone(),
                });
            }
            if other.name != role.name
                && let Some(name) = role.names().find(|name| other.satisfies(name))
            {
                return Err(EditError::NameAlreadyProvided {
                    role: role.name.clone(),
                    with: other.name.clone(),
                    name: name.clone(),
                    node: found.fqdn.clone(),
                });
            }
        }
        Ok(())
    }
}

fn excludes(role: &Role, other: &Role) -> bool {
    other.name != role.name
        && other.names().any(|name| role.conflicts.contains(name) && !role.provides.contains(name))
}
