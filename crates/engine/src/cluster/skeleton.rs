//! The skeleton: the part of a cluster's documents that planning reads.
//!
//! It omits data, so it is small enough for a browser, but says where there are data. Two skeletons
//! are equal if they agree on this and on which roles are bound where, in which deployment and in
//! which order. Nodes without a document are part of it, because users can bind them.
//!
//! Binding often searches the noderoles of a deployment that answer to a name. The index by
//! deployment and role name saves a walk over all nodes. If several match, binding takes the first
//! by node name. OpenCrowbar took an arbitrary one, which no report could explain.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::document::{Blueprint, EdgeDoc, NodeDoc, NoderoleKey};
use crate::canonical::Hash;
use crate::catalog::{Catalog, CatalogError};
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// The part of a cluster that planning reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skeleton {
    /// All deployments.
    pub deployments: BTreeMap<DeploymentId, SkeletonDeployment>,
    /// All nodes, including those without a document.
    pub nodes: BTreeMap<NodeId, SkeletonNode>,
    /// The noderoles that answer to each name, per deployment. Derived by [`Skeleton::index`].
    #[serde(skip)]
    candidates: BTreeMap<(DeploymentId, RoleName), BTreeSet<Candidate>>,
    /// The node and key of each noderole. Derived.
    #[serde(skip)]
    places: BTreeMap<NoderoleId, (NodeId, NoderoleKey)>,
    /// Edges between noderoles as (parent, child). Derived.
    #[serde(skip)]
    children: BTreeSet<(NoderoleId, NoderoleId)>,
}

/// A noderole that answers to a name. Binding prefers the lowest in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The node's name, which comes first and so decides the order.
    pub fqdn: Fqdn,
    pub node: NodeId,
    pub key: NoderoleKey,
}

/// A deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkeletonDeployment {
    /// The deployment's name, unique in the cluster.
    pub name: DeploymentName,
    /// The parent deployment; null for *system*.
    pub parent: Option<DeploymentId>,
    /// The deployment's phantom node.
    pub phantom: NodeId,
    /// The barclamp versions that the deployment pins.
    pub barclamps: BTreeMap<BarclampName, Hash>,
    /// The roles of the deployment, by content hash. Only these can be bound here.
    pub roles: BTreeMap<RoleName, Hash>,
    /// The roles that have data, which is lost if they are removed and added again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles_with_data: BTreeSet<RoleName>,
    /// Jigs that are turned off. Only the root deployment can have any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inactive_jigs: BTreeSet<JigName>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkeletonNode {
    /// The node's name.
    pub fqdn: Fqdn,
    /// The deployment that the node belongs to.
    pub deployment: DeploymentId,
    /// Whether this is a deployment's phantom node.
    pub phantom: bool,
    /// Whether the node has a record but no document, that is, no desired state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub record_only: bool,
    /// The noderoles of the node.
    pub noderoles: BTreeMap<NoderoleKey, SkeletonNoderole>,
}

/// A noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkeletonNoderole {
    /// The deployment in which the role was bound.
    pub deployment: DeploymentId,
    /// The content hash of the role.
    pub role: Hash,
    /// Length of the longest path from a root of the graph.
    pub rank: u32,
    /// The noderoles that this one waits for.
    pub parents: Vec<EdgeDoc>,
    /// Whether it has its own data or a count of re-runs, which are lost if it is unbound and bound
    /// again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub customized: bool,
}

impl Skeleton {
    /// Builds the skeleton of a blueprint, plus the nodes that have no document yet (`records`).
    ///
    /// # Errors
    /// [`CatalogError`] if the catalog lacks a role that a noderole pins.
    pub fn of(
        blueprint: &Blueprint,
        records: impl IntoIterator<Item = (NodeId, Fqdn, DeploymentId)>,
        catalog: &Catalog,
    ) -> Result<Self, CatalogError> {
        let nodes = blueprint.nodes.iter().map(|(id, stored)| (*id, SkeletonNode::of(&stored.doc)));
        let mut skeleton = Self {
            deployments: deployments_of(blueprint),
            nodes: nodes.collect(),
            ..Self::default()
        };
        for (id, fqdn, deployment) in records {
            skeleton.nodes.entry(id).or_insert(SkeletonNode::record_only(fqdn, deployment));
        }
        skeleton.index(catalog)?;
        Ok(skeleton)
    }

    /// Turns the skeleton of `before` into that of `after`, with the same result as
    /// [`Skeleton::of`]. Unchanged nodes cost only a comparison of hashes.
    ///
    /// # Errors
    /// [`CatalogError`] if the catalog lacks a role that a noderole pins. Discard the skeleton
    /// then, because it is partly updated.
    pub fn follow(
        &mut self,
        before: &Blueprint,
        after: &Blueprint,
        records: impl IntoIterator<Item = (NodeId, Fqdn, DeploymentId)>,
        catalog: &Catalog,
    ) -> Result<(), CatalogError> {
        self.deployments = deployments_of(after);
        let same = |one: &Blueprint, other: &Blueprint, id| {
            one.nodes.get(id).map(|stored| stored.hash)
                == other.nodes.get(id).map(|stored| stored.hash)
        };
        let mut changed: BTreeMap<NodeId, Option<SkeletonNode>> = BTreeMap::new();
        for id in before.nodes.keys().filter(|id| !after.nodes.contains_key(id)) {
            changed.insert(*id, None);
        }
        for (id, stored) in after.nodes.iter().filter(|(id, _)| !same(before, after, id)) {
            changed.insert(*id, Some(SkeletonNode::of(&stored.doc)));
        }
        let records: BTreeMap<NodeId, SkeletonNode> = records
            .into_iter()
            .map(|(id, fqdn, place)| (id, SkeletonNode::record_only(fqdn, place)))
            .collect();
        let documented = |id: &NodeId| after.nodes.contains_key(id);
        for (id, _) in self
            .nodes
            .iter()
            .filter(|(id, node)| node.record_only && !records.contains_key(id) && !documented(id))
        {
            changed.insert(*id, None);
        }
        for (id, node) in records {
            if !documented(&id) && self.nodes.get(&id) != Some(&node) {
                changed.insert(id, Some(node));
            }
        }
        for (id, node) in changed {
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
            self.remove_from_index(id, &old, catalog)?;
        }
        if let Some(new) = node {
            self.add_to_index(id, &new, catalog)?;
            self.nodes.insert(id, new);
        }
        Ok(())
    }

    /// Builds the index. Call this after deserializing.
    ///
    /// # Errors
    /// [`CatalogError`] if the catalog lacks a role that a noderole pins.
    pub fn index(&mut self, catalog: &Catalog) -> Result<(), CatalogError> {
        self.candidates.clear();
        self.places.clear();
        self.children.clear();
        let nodes = std::mem::take(&mut self.nodes);
        let result = nodes.iter().try_for_each(|(id, node)| self.add_to_index(*id, node, catalog));
        self.nodes = nodes;
        result
    }

    /// Adds a node to the index.
    fn add_to_index(
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
                let candidate = Candidate { fqdn: node.fqdn.clone(), node: id, key: key.clone() };
                self.candidates
                    .entry((noderole.deployment, name.clone()))
                    .or_default()
                    .insert(candidate);
            }
        }
        Ok(())
    }

    /// Removes a node from the index, the reverse of [`Skeleton::add_to_index`].
    fn remove_from_index(
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
                let candidate = Candidate { fqdn: node.fqdn.clone(), node: id, key: key.clone() };
                let Some(candidates) = self.candidates.get_mut(&name) else { continue };
                candidates.remove(&candidate);
                if candidates.is_empty() {
                    self.candidates.remove(&name);
                }
            }
        }
        Ok(())
    }

    /// The noderoles of this deployment that answer to the name, preferred first.
    pub fn candidates(
        &self,
        deployment: DeploymentId,
        name: &RoleName,
    ) -> impl Iterator<Item = &Candidate> {
        // The map owns its keys. A lookup clones two words and a reference count.
        self.candidates.get(&(deployment, name.clone())).into_iter().flatten()
    }

    /// The node and key of a noderole.
    pub fn location(&self, id: NoderoleId) -> Option<&(NodeId, NoderoleKey)> {
        self.places.get(&id)
    }

    /// The noderoles that wait for this one over an edge of any kind, ordered by id.
    pub fn children(&self, id: NoderoleId) -> impl Iterator<Item = NoderoleId> {
        let (first, last) = (NoderoleId(Uuid::nil()), NoderoleId(Uuid::max()));
        self.children.range((id, first)..=(id, last)).map(|(_, child)| *child)
    }

    /// A deployment and its ancestors, nearest first. Stops at the first repetition, so it ends
    /// even if the tree is broken.
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
                customized: noderole.reruns > 0 || has_values(&noderole.data),
            };
            (key.clone(), noderole)
        });
        Self {
            fqdn: doc.fqdn.clone(),
            deployment: doc.deployment,
            phantom: doc.phantom,
            record_only: false,
            noderoles: noderoles.collect(),
        }
    }

    fn record_only(fqdn: Fqdn, deployment: DeploymentId) -> Self {
        Self { fqdn, deployment, phantom: false, record_only: true, noderoles: BTreeMap::new() }
    }
}

/// Whether the data differ from those of something just added.
fn has_values(data: &Value) -> bool {
    data.as_object().is_none_or(|object| !object.is_empty())
}

fn deployments_of(blueprint: &Blueprint) -> BTreeMap<DeploymentId, SkeletonDeployment> {
    let deployments = blueprint.deployments.iter().map(|(id, stored)| {
        let doc = &stored.doc;
        let with_data = doc.roles.iter().filter(|(_, role)| has_values(&role.data));
        let deployment = SkeletonDeployment {
            name: doc.name.clone(),
            parent: doc.parent,
            phantom: doc.phantom,
            barclamps: doc.barclamps.clone(),
            roles: doc.roles.iter().map(|(name, role)| (name.clone(), role.role)).collect(),
            roles_with_data: with_data.map(|(name, _)| name.clone()).collect(),
            inactive_jigs: doc.inactive_jigs.clone(),
        };
        (*id, deployment)
    });
    deployments.collect()
}
