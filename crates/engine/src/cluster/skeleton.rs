//! The skeleton: what planning asks of a cluster, and nothing more.
//!
//! It leaves out data, so it can go to a browser and be compared by what matters there: who is bound where, in which deployment,
//! after whom. Nodes that have no document yet are part of it, since people bind them.
//!
//! The index by deployment and role name answers the one question that binding asks over and over, "who in this deployment answers
//! to that name?", without a walk over all nodes. Among several, the first by node name is taken: OpenCrowbar took an arbitrary
//! one, which nobody can explain.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::document::{Blueprint, EdgeDoc, NodeDoc, NoderoleKey};
use crate::canonical::Hash;
use crate::catalog::{Catalog, CatalogError};
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// What planning sees of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skeleton {
    /// All deployments.
    pub deployments: BTreeMap<DeploymentId, SkeletonDeployment>,
    /// All nodes, those without intent too.
    pub nodes: BTreeMap<NodeId, SkeletonNode>,
    /// Names that a deployment's noderoles answer to. Derived: [`Skeleton::index`].
    #[serde(skip)]
    answering: BTreeMap<(DeploymentId, RoleName), BTreeSet<Answer>>,
    /// Where each noderole is. Derived.
    #[serde(skip)]
    places: BTreeMap<NoderoleId, (NodeId, NoderoleKey)>,
    /// Who waits for whom, as (waited for, waiting). Derived.
    #[serde(skip)]
    children: BTreeSet<(NoderoleId, NoderoleId)>,
}

/// A noderole that answers to a name, in the order in which binding prefers them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The node's name, which decides.
    pub fqdn: Fqdn,
    /// The node.
    pub node: NodeId,
    /// The noderole there.
    pub key: NoderoleKey,
}

/// A deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkeletonDeployment {
    /// Unique.
    pub name: DeploymentName,
    /// None for *system*.
    pub parent: Option<DeploymentId>,
    /// Its phantom node.
    pub phantom: NodeId,
    /// What it pins.
    pub barclamps: BTreeMap<BarclampName, Hash>,
    /// Roles that may be bound here, by content.
    pub roles: BTreeMap<RoleName, Hash>,
    /// Jigs that are switched off; the root's alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inactive_jigs: BTreeSet<JigName>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkeletonNode {
    /// Its name.
    pub fqdn: Fqdn,
    /// Where it belongs.
    pub deployment: DeploymentId,
    /// Whether it stands for a deployment.
    pub phantom: bool,
    /// Whether no document speaks of it: there is a record, and no intent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// What it carries.
    pub noderoles: BTreeMap<NoderoleKey, SkeletonNoderole>,
}

/// A noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkeletonNoderole {
    /// Where it was bound.
    pub deployment: DeploymentId,
    /// The role's content.
    pub role: Hash,
    /// Longest way from a root.
    pub rank: u32,
    /// What it waits for.
    pub parents: Vec<EdgeDoc>,
}

impl Skeleton {
    /// The skeleton of a blueprint and of the nodes that have no document yet.
    ///
    /// # Errors
    /// When the catalog lacks a role that a noderole pins.
    pub fn of(
        blueprint: &Blueprint,
        bare: impl IntoIterator<Item = (NodeId, Fqdn, DeploymentId)>,
        catalog: &Catalog,
    ) -> Result<Self, CatalogError> {
        let nodes = blueprint.nodes.iter().map(|(id, stored)| (*id, SkeletonNode::of(&stored.doc)));
        let mut skeleton = Self {
            deployments: deployments_of(blueprint),
            nodes: nodes.collect(),
            ..Self::default()
        };
        for (id, fqdn, deployment) in bare {
            skeleton.nodes.entry(id).or_insert(SkeletonNode::bare(fqdn, deployment));
        }
        skeleton.index(catalog)?;
        Ok(skeleton)
    }

    /// Makes the skeleton of `before` that of `after`: what is the same in both costs a comparison of hashes. The result is what
    /// [`Skeleton::of`] makes of `after`.
    ///
    /// # Errors
    /// When the catalog lacks a role that a noderole pins. The skeleton is then of no use any more.
    pub fn follow(
        &mut self,
        before: &Blueprint,
        after: &Blueprint,
        bare: impl IntoIterator<Item = (NodeId, Fqdn, DeploymentId)>,
        catalog: &Catalog,
    ) -> Result<(), CatalogError> {
        self.deployments = deployments_of(after);
        let same = |one: &Blueprint, other: &Blueprint, id| {
            one.nodes.get(id).map(|stored| stored.hash)
                == other.nodes.get(id).map(|stored| stored.hash)
        };
        let mut wanted: BTreeMap<NodeId, Option<SkeletonNode>> = BTreeMap::new();
        for id in before.nodes.keys().filter(|id| !after.nodes.contains_key(id)) {
            wanted.insert(*id, None);
        }
        for (id, stored) in after.nodes.iter().filter(|(id, _)| !same(before, after, id)) {
            wanted.insert(*id, Some(SkeletonNode::of(&stored.doc)));
        }
        let bare: BTreeMap<NodeId, SkeletonNode> = bare
            .into_iter()
            .map(|(id, fqdn, place)| (id, SkeletonNode::bare(fqdn, place)))
            .collect();
        let documented = |id: &NodeId| after.nodes.contains_key(id);
        for (id, _) in self
            .nodes
            .iter()
            .filter(|(id, node)| node.bare && !bare.contains_key(id) && !documented(id))
        {
            wanted.insert(*id, None);
        }
        for (id, node) in bare {
            if !documented(&id) && self.nodes.get(&id) != Some(&node) {
                wanted.insert(id, Some(node));
            }
        }
        for (id, node) in wanted {
            self.replace(id, node, catalog)?;
        }
        Ok(())
    }

    fn replace(
        &mut self,
        id: NodeId,
        node: Option<SkeletonNode>,
        catalog: &Catalog,
    ) -> Result<(), CatalogError> {
        if let Some(old) = self.nodes.remove(&id) {
            self.forget(id, &old, catalog)?;
        }
        if let Some(new) = node {
            self.note(id, &new, catalog)?;
            self.nodes.insert(id, new);
        }
        Ok(())
    }

    /// Builds the index; to be called after deserializing.
    ///
    /// # Errors
    /// When the catalog lacks a role that a noderole pins.
    pub fn index(&mut self, catalog: &Catalog) -> Result<(), CatalogError> {
        self.answering.clear();
        self.places.clear();
        self.children.clear();
        let nodes = std::mem::take(&mut self.nodes);
        let noted = nodes.iter().try_for_each(|(id, node)| self.note(*id, node, catalog));
        self.nodes = nodes;
        noted
    }

    /// Enters a node into the index.
    fn note(
        &mut self,
        id: NodeId,
        node: &SkeletonNode,
        catalog: &Catalog,
    ) -> Result<(), CatalogError> {
        for (key, noderole) in &node.noderoles {
            let child = key.id(id);
            self.places.insert(child, (id, key.clone()));
            for edge in &noderole.parents {
                self.children.insert((edge.parent, child));
            }
            for name in catalog.role(noderole.role)?.names() {
                let answer = Answer { fqdn: node.fqdn.clone(), node: id, key: key.clone() };
                self.answering
                    .entry((noderole.deployment, name.clone()))
                    .or_default()
                    .insert(answer);
            }
        }
        Ok(())
    }

    /// The reverse of [`Skeleton::note`].
    fn forget(
        &mut self,
        id: NodeId,
        node: &SkeletonNode,
        catalog: &Catalog,
    ) -> Result<(), CatalogError> {
        for (key, noderole) in &node.noderoles {
            let child = key.id(id);
            self.places.remove(&child);
            for edge in &noderole.parents {
                self.children.remove(&(edge.parent, child));
            }
            for name in catalog.role(noderole.role)?.names() {
                let name = (noderole.deployment, name.clone());
                let answer = Answer { fqdn: node.fqdn.clone(), node: id, key: key.clone() };
                let Some(answers) = self.answering.get_mut(&name) else { continue };
                answers.remove(&answer);
                if answers.is_empty() {
                    self.answering.remove(&name);
                }
            }
        }
        Ok(())
    }

    /// Who in this deployment answers to the name, the preferred one first.
    pub fn answering(
        &self,
        deployment: DeploymentId,
        name: &RoleName,
    ) -> impl Iterator<Item = &Answer> {
        // The key is owned by the map; a lookup clones two words and a reference count.
        self.answering.get(&(deployment, name.clone())).into_iter().flatten()
    }

    /// Where a noderole is.
    pub fn place(&self, id: NoderoleId) -> Option<&(NodeId, NoderoleKey)> {
        self.places.get(&id)
    }

    /// Who waits for a noderole, by whatever kind of edge, in the order of their ids.
    pub fn children(&self, id: NoderoleId) -> impl Iterator<Item = NoderoleId> {
        let (first, last) = (NoderoleId(Uuid::nil()), NoderoleId(Uuid::max()));
        self.children.range((id, first)..=(id, last)).map(|(_, child)| *child)
    }

    /// A deployment and its ancestors, nearest first. Bounded by the number of deployments, so a broken tree ends too.
    pub fn chain(&self, deployment: DeploymentId) -> Vec<DeploymentId> {
        let mut chain = Vec::new();
        let mut next = Some(deployment);
        while let Some(id) = next {
            if chain.contains(&id) {
                break;
            }
            let Some(found) = self.deployments.get(&id) else { break };
            chain.push(id);
            next = found.parent;
        }
        chain
    }
}

impl SkeletonNode {
    fn of(doc: &NodeDoc) -> Self {
        let noderoles = doc.noderoles.iter().map(|(key, noderole)| {
            let noderole = SkeletonNoderole {
                deployment: noderole.deployment,
                role: noderole.role,
                rank: noderole.rank,
                parents: noderole.parents.clone(),
            };
            (key.clone(), noderole)
        });
        Self {
            fqdn: doc.fqdn.clone(),
            deployment: doc.deployment,
            phantom: doc.phantom,
            bare: false,
            noderoles: noderoles.collect(),
        }
    }

    fn bare(fqdn: Fqdn, deployment: DeploymentId) -> Self {
        Self { fqdn, deployment, phantom: false, bare: true, noderoles: BTreeMap::new() }
    }
}

fn deployments_of(blueprint: &Blueprint) -> BTreeMap<DeploymentId, SkeletonDeployment> {
    let deployments = blueprint.deployments.iter().map(|(id, stored)| {
        let doc = &stored.doc;
        let deployment = SkeletonDeployment {
            name: doc.name.clone(),
            parent: doc.parent,
            phantom: doc.phantom,
            barclamps: doc.barclamps.clone(),
            roles: doc.roles.iter().map(|(name, role)| (name.clone(), role.role)).collect(),
            inactive_jigs: doc.inactive_jigs.clone(),
        };
        (*id, deployment)
    });
    deployments.collect()
}
