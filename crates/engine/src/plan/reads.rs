//! The parts that a review reads in the ancestors of its deployment.
//!
//! A commit in an ancestor voids a review only if it changed something that the review reads there.
//! Everything that the plan could find in an ancestor counts, and the data that its runs would
//! see: noderoles above its own ones, roles that answer to a name that it looks up, owners of
//! attributes, client roles and switches of jigs, and versions of its barclamps.
//!
//! The database decides, by the same rule on the same documents (`migrations/src/guards/base.sql`),
//! so that no client can understate what a review reads. This module is the model: a test shows
//! that a commit outside of the reads leaves the plan identical, and another one compares the
//! database with it. A review that reads too much is replanned in vain. A review that reads too
//! little would be committed with other effects than the approved ones, if the commit did not
//! compare the plan too.

use std::collections::{BTreeMap, BTreeSet};

use crate::canonical::Hash;
use crate::catalog::{Barclamp, Catalog, CatalogError, Role};
use crate::cluster::change::DocumentChange;
use crate::cluster::{Blueprint, DeploymentDoc, NodeDoc, Skeleton};
use crate::ids::{AttribName, BarclampName, DeploymentId, JigName, NodeId, NoderoleId, RoleName};

/// The documents of a change, before and after. The blueprints may contain further documents.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    pub old: &'a Blueprint,
    pub new: &'a Blueprint,
    pub documents: &'a [DocumentChange],
}

/// The parts that a review reads in the ancestors of its deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// It reads more than the other fields, so every commit in its base voids it. It changes the
    /// policy, or the place, the versions or the jigs of a deployment.
    pub wide: bool,
    /// The noderoles that its own ones wait for, over any number of edges. Its own ones are those
    /// on nodes whose documents it changes, and those of deployment roles that it changes.
    pub noderoles: BTreeSet<NoderoleId>,
    /// The nodes of these.
    pub nodes: BTreeSet<NodeId>,
    /// The names that its roles have or provide.
    pub own: BTreeSet<RoleName>,
    /// These, the names that its roles require or precede, and the roles of noderoles above.
    pub names: BTreeSet<RoleName>,
    /// The attributes that its roles want.
    pub wants: BTreeSet<AttribName>,
    /// The barclamps of all these roles.
    pub barclamps: BTreeSet<BarclampName>,
    /// The jigs of all these roles.
    pub jigs: BTreeSet<JigName>,
}

impl Reads {
    /// The reads of a review. `now` is the current skeleton.
    ///
    /// # Errors
    /// [`CatalogError`] if the catalog lacks a role of the review.
    pub fn of(
        review: Change<'_>,
        sets_policy: bool,
        now: &Skeleton,
        catalog: &Catalog,
    ) -> Result<Self, CatalogError> {
        let mut reads = Self { wide: sets_policy, ..Self::default() };
        let mut roles: BTreeSet<Hash> = BTreeSet::new();
        let mut above: Vec<NoderoleId> = Vec::new();
        for change in review.documents {
            match change {
                DocumentChange::Node { id, .. } => {
                    for doc in node_sides(review, *id).into_iter().flatten() {
                        for noderole in doc.noderoles.values() {
                            roles.insert(noderole.role);
                            above.extend(noderole.parents.iter().map(|edge| edge.parent));
                        }
                    }
                }
                DocumentChange::Deployment { id, .. } => {
                    let (Some(was), Some(is)) = deployment_sides(review, *id) else {
                        reads.wide = true;
                        continue;
                    };
                    reads.wide |= !same_except_roles(was, is);
                    for (name, was, is) in differing(&was.roles, &is.roles) {
                        roles.extend([was, is].into_iter().flatten().map(|role| role.role));
                        let bound = now.candidates(*id, name).filter(|a| a.key.role == *name);
                        for answer in bound {
                            roles.insert(now.nodes[&answer.node].noderoles[&answer.key].role);
                            above.push(answer.key.id(answer.node));
                        }
                    }
                }
            }
        }
        for hash in roles {
            reads.add_own(catalog.role(hash)?);
        }
        while let Some(id) = above.pop() {
            if !reads.noderoles.insert(id) {
                continue;
            }
            let Some((node, key)) = now.location(id) else { continue };
            let noderole = &now.nodes[node].noderoles[key];
            reads.nodes.insert(*node);
            reads.add(catalog.role(noderole.role)?);
            above.extend(noderole.parents.iter().map(|edge| edge.parent));
        }
        Ok(reads)
    }

    fn add(&mut self, role: &Role) {
        self.names.insert(role.name.clone());
        self.barclamps.insert(role.barclamp.clone());
        self.jigs.insert(role.jig.clone());
    }

    fn add_own(&mut self, role: &Role) {
        self.add(role);
        self.own.extend(role.names().cloned());
        self.names.extend(role.names().chain(&role.requires).chain(&role.preceeds).cloned());
        self.wants.extend(role.wants.iter().cloned());
    }

    /// Whether a commit changed something that the review reads in this ancestor.
    ///
    /// # Errors
    /// [`CatalogError`] if the catalog lacks a role or a version of the commit.
    pub fn changed_by(
        &self,
        commit: Change<'_>,
        ancestor: DeploymentId,
        catalog: &Catalog,
    ) -> Result<bool, CatalogError> {
        if self.wide {
            return Ok(true);
        }
        for change in commit.documents {
            let changed = match change {
                DocumentChange::Deployment { id, .. } if *id == ancestor => {
                    match deployment_sides(commit, *id) {
                        (Some(was), Some(is)) => self.deployment_changed(was, is, catalog)?,
                        _ => true,
                    }
                }
                DocumentChange::Deployment { .. } => false,
                DocumentChange::Node { id, .. } => {
                    let sides = node_sides(commit, *id);
                    self.node_changed(*id, sides, ancestor, catalog)?
                }
            };
            if changed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the review reads a role: the role answers to a name, precedes one of the review's
    /// roles, or owns a wanted attribute.
    fn has(&self, role: &Role) -> bool {
        role.names().any(|name| self.names.contains(name))
            || role.preceeds.iter().any(|later| self.own.contains(later))
            || role.attribs.iter().any(|attrib| self.wants.contains(&attrib.name))
    }

    fn deployment_changed(
        &self,
        was: &DeploymentDoc,
        is: &DeploymentDoc,
        catalog: &Catalog,
    ) -> Result<bool, CatalogError> {
        if (&was.name, was.parent, was.phantom) != (&is.name, is.parent, is.phantom)
            || was
                .inactive_jigs
                .symmetric_difference(&is.inactive_jigs)
                .any(|j| self.jigs.contains(j))
        {
            return Ok(true);
        }
        for (name, was, is) in differing(&was.roles, &is.roles) {
            if self.names.contains(name) {
                return Ok(true);
            }
            for role in [was, is].into_iter().flatten() {
                if self.has(catalog.role(role.role)?) {
                    return Ok(true);
                }
            }
        }
        for (name, was, is) in differing(&was.barclamps, &is.barclamps) {
            let version =
                |hash: Option<&Hash>| hash.map(|hash| catalog.barclamp(*hash)).transpose();
            let (was, is) = (version(was)?, version(is)?);
            let (was, is) = (was.map(|found| &**found), is.map(|found| &**found));
            if self.barclamps.contains(name) || self.versions_differ(was, is, catalog)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether two versions of a barclamp differ in something that the review reads.
    fn versions_differ(
        &self,
        was: Option<&Barclamp>,
        is: Option<&Barclamp>,
        catalog: &Catalog,
    ) -> Result<bool, CatalogError> {
        let none = BTreeMap::new();
        let [old, new] = [was, is].map(|side| side.map_or(&none, |side| &side.roles));
        for (_, was, is) in differing(old, new) {
            for hash in [was, is].into_iter().flatten() {
                if self.has(catalog.role(*hash)?) {
                    return Ok(true);
                }
            }
        }
        let client = |side: Option<&Barclamp>, jig| {
            side.and_then(|side| side.jigs.get(jig)).map(|jig| jig.client_role.clone())
        };
        Ok(self.jigs.iter().any(|jig| client(was, jig) != client(is, jig)))
    }

    fn node_changed(
        &self,
        id: NodeId,
        [was, is]: [Option<&NodeDoc>; 2],
        ancestor: DeploymentId,
        catalog: &Catalog,
    ) -> Result<bool, CatalogError> {
        let own = |doc: Option<&NodeDoc>| {
            doc.map(|doc| NodeDoc { noderoles: BTreeMap::new(), ..doc.clone() })
        };
        if self.nodes.contains(&id) && own(was) != own(is) {
            return Ok(true);
        }
        let none = BTreeMap::new();
        let (was, is) =
            (was.map_or(&none, |doc| &doc.noderoles), is.map_or(&none, |doc| &doc.noderoles));
        for (key, was, is) in differing(was, is) {
            let sides = || [was, is].into_iter().flatten();
            if sides().all(|noderole| noderole.deployment != ancestor) {
                continue;
            }
            if self.noderoles.contains(&key.id(id)) {
                return Ok(true);
            }
            for noderole in sides() {
                if self.has(catalog.role(noderole.role)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn deployment_sides(
    change: Change<'_>,
    id: DeploymentId,
) -> (Option<&DeploymentDoc>, Option<&DeploymentDoc>) {
    let [was, is] =
        [change.old, change.new].map(|side| side.deployments.get(&id).map(|found| &*found.doc));
    (was, is)
}

fn node_sides(change: Change<'_>, id: NodeId) -> [Option<&NodeDoc>; 2] {
    [change.old, change.new].map(|side| side.nodes.get(&id).map(|node| &*node.doc))
}

fn same_except_roles(was: &DeploymentDoc, is: &DeploymentDoc) -> bool {
    let without = |doc: &DeploymentDoc| DeploymentDoc { roles: BTreeMap::new(), ..doc.clone() };
    without(was) == without(is)
}

/// The entries in which two maps differ, each with its values.
fn differing<'m, K: Ord, V: PartialEq>(
    was: &'m BTreeMap<K, V>,
    is: &'m BTreeMap<K, V>,
) -> impl Iterator<Item = (&'m K, Option<&'m V>, Option<&'m V>)> {
    let keys: BTreeSet<&K> = was.keys().chain(is.keys()).collect();
    let sides = |key| (key, was.get(key), is.get(key));
    keys.into_iter().map(sides).filter(|(_, was, is)| was != is)
}
