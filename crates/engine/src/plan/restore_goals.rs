//! The state that restoring a deployment covers, and the goals to reach it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::draft::Draft;
use crate::canonical::Hash;
use crate::catalog::{Catalog, visible_barclamps};
use crate::cluster::{Blueprint, NoderoleKey};
use crate::ids::{BarclampName, DeploymentId, NodeId, NoderoleId, RoleName};

/// The state of a deployment that restoring covers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Its parent; `None` for the root.
    pub parent: Option<DeploymentId>,
    /// The visible version of each barclamp: its own pin or that of the nearest ancestor.
    pub versions: BTreeMap<BarclampName, Hash>,
    /// The barclamps that it pins itself.
    pub own_versions: BTreeSet<BarclampName>,
    /// The version of each barclamp that it would see without its own pins.
    pub inherited: BTreeMap<BarclampName, Hash>,
    /// Its roles, with content and data.
    pub roles: BTreeMap<RoleName, (Hash, Value)>,
    /// The noderoles bound in it, with content and data. Barriers are omitted because they follow
    /// their members.
    pub noderoles: BTreeMap<(NodeId, NoderoleKey), (Hash, Value)>,
    /// Its machines.
    pub nodes: BTreeSet<NodeId>,
}

impl State {
    /// A deployment's state in a blueprint; `None` if the blueprint does not contain it.
    pub fn of(blueprint: &Blueprint, catalog: &Catalog, deployment: DeploymentId) -> Option<Self> {
        let doc = &blueprint.deployments.get(&deployment)?.doc;
        let mut state = Self {
            parent: doc.parent,
            roles: doc
                .roles
                .iter()
                .map(|(name, role)| (name.clone(), (role.role, role.data.clone())))
                .collect(),
            ..Self::default()
        };
        state.versions = visible_versions(blueprint, deployment);
        state.own_versions = doc.barclamps.keys().cloned().collect();
        let parent = doc.parent.map(|parent| visible_versions(blueprint, parent));
        state.inherited = parent.unwrap_or_default();
        for (id, node) in &blueprint.nodes {
            if node.doc.deployment == deployment && !node.doc.phantom {
                state.nodes.insert(*id);
            }
            for (key, noderole) in
                node.doc.noderoles.iter().filter(|(_, n)| n.deployment == deployment)
            {
                if !is_barrier(catalog, noderole.role) {
                    state
                        .noderoles
                        .insert((*id, key.clone()), (noderole.role, noderole.data.clone()));
                }
            }
        }
        Some(state)
    }

    /// The differences between this state and another one.
    pub(super) fn differences_from(&self, current: &Self) -> BTreeSet<Goal> {
        let mut goals = BTreeSet::new();
        goals.extend((self.parent != current.parent).then_some(Goal::Parent));
        let versions = self
            .versions
            .iter()
            .filter(|(name, version)| current.versions.get(*name) != Some(*version));
        goals.extend(versions.map(|(name, _)| Goal::Version(name.clone())));
        let additional = current.versions.keys().filter(|name| !self.versions.contains_key(*name));
        goals.extend(additional.map(|name| Goal::WithoutBarclamp(name.clone())));
        let is_seen =
            |name: &&BarclampName| self.versions.get(*name) == current.versions.get(*name);
        let unpinned = self.own_versions.difference(&current.own_versions).filter(is_seen);
        goals.extend(unpinned.map(|name| Goal::OwnVersion(name.clone())));
        let pinned = current.own_versions.difference(&self.own_versions).filter(is_seen);
        let pinned = pinned.filter(|name| self.versions.get(*name) == current.inherited.get(*name));
        goals.extend(pinned.map(|name| Goal::WithoutOwnVersion(name.clone())));
        for name in self.roles.keys().chain(current.roles.keys()) {
            match (self.roles.get(name), current.roles.get(name)) {
                (Some(was), Some(current)) if was == current => {}
                (Some(_), _) => drop(goals.insert(Goal::Role(name.clone()))),
                (None, _) => drop(goals.insert(Goal::WithoutRole(name.clone()))),
            }
        }
        for (node, key) in self.noderoles.keys().chain(current.noderoles.keys()) {
            let at = (*node, key.clone());
            match (self.noderoles.get(&at), current.noderoles.get(&at)) {
                (Some(was), Some(current)) if was == current => {}
                (Some(_), _) => drop(goals.insert(Goal::Noderole(*node, key.clone()))),
                (None, _) => drop(goals.insert(Goal::WithoutNoderole(*node, key.clone()))),
            }
        }
        goals.extend(self.nodes.difference(&current.nodes).map(|node| Goal::Node(*node)));
        goals
    }
}

impl State {
    /// The goal that an edit of a barclamp's version serves.
    pub(super) fn version_goal(&self, barclamp: &BarclampName) -> Goal {
        match self.versions.contains_key(barclamp) {
            true => Goal::Version(barclamp.clone()),
            false => Goal::WithoutBarclamp(barclamp.clone()),
        }
    }

    /// The barclamp version that a goal depends on: that of its role's barclamp. Used for goals
    /// without an edit of their own.
    pub(super) fn version_of(&self, catalog: &Catalog, goal: &Goal) -> Option<Goal> {
        let (content, _) = match goal {
            Goal::Role(role) => self.roles.get(role)?,
            Goal::Noderole(node, key) => self.noderoles.get(&(*node, key.clone()))?,
            _ => return None,
        };
        Some(Goal::Version(catalog.role(*content).ok()?.barclamp.clone()))
    }

    /// Whether a noderole of a draft existed in the earlier state. True for barriers, which follow
    /// their members.
    pub(super) fn has(&self, draft: &Draft<'_>, id: NoderoleId, deployment: DeploymentId) -> bool {
        let Some((node, key, noderole)) = draft.noderole(id) else { return false };
        let existed =
            noderole.deployment == deployment && self.noderoles.contains_key(&(node, key.clone()));
        existed || is_barrier(draft.catalog, noderole.role)
    }
}

/// The version of each barclamp that a deployment sees.
fn visible_versions(
    blueprint: &Blueprint,
    deployment: DeploymentId,
) -> BTreeMap<BarclampName, Hash> {
    let pins = visible_barclamps(blueprint.pins(deployment)).into_iter();
    pins.map(|pin| (pin.barclamp.clone(), pin.version)).collect()
}

pub(super) fn is_barrier(catalog: &Catalog, role: Hash) -> bool {
    catalog.role(role).is_ok_and(|role| role.gathers.is_some())
}

/// A goal: one condition for a deployment to be in its earlier state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goal {
    /// The deployment is below its earlier parent.
    Parent,
    /// The deployment sees the barclamp in its earlier version.
    Version(BarclampName),
    /// The deployment does not see the barclamp.
    WithoutBarclamp(BarclampName),
    /// The deployment pins the barclamp itself.
    OwnVersion(BarclampName),
    /// The deployment inherits the barclamp.
    WithoutOwnVersion(BarclampName),
    /// The node belongs to the deployment.
    Node(NodeId),
    /// The deployment has the role, with its earlier content and data.
    Role(RoleName),
    /// The deployment does not have the role.
    WithoutRole(RoleName),
    /// The noderole is bound in the deployment, with its earlier content and data.
    Noderole(NodeId, NoderoleKey),
    /// The noderole is not bound in the deployment.
    WithoutNoderole(NodeId, NoderoleKey),
}
