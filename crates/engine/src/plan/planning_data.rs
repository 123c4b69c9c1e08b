//! The input of planning in the browser: the skeleton and the part of the catalog that is in use.
//!
//! The catalog contains every version ever imported, but planning reads only those that are pinned,
//! bound or used. A client with the data of a proposal therefore computes the same effects as the
//! server, by hash. The exception is a further edit that uses a version outside of this data; then
//! [`PlanningContext::effects_with`] returns nothing.
//!
//! One module builds and reads the data, so that both sides agree on what it omits.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Edit, Effects, NumberedEdit, edit, resolve};
use crate::canonical::Hash;
use crate::catalog::{Barclamp, Catalog, CatalogError, Role};
use crate::cluster::Skeleton;

/// The input of planning: skeleton and relevant catalog entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanningData {
    /// All deployments, nodes and noderoles. The receiver must build its index with
    /// [`PlanningData::open`].
    pub skeleton: Skeleton,
    /// The barclamps in use now or after the edits, by content hash.
    pub barclamps: Vec<(Hash, Barclamp)>,
    /// Their roles and all other roles in use, by content hash.
    pub roles: Vec<(Hash, Role)>,
}

/// The barclamp versions in use now or after the edits.
pub fn versions(skeleton: &Skeleton, edits: &[NumberedEdit]) -> BTreeSet<Hash> {
    let pinned =
        skeleton.deployments.values().flat_map(|deployment| deployment.barclamps.values().copied());
    pinned.chain(edits.iter().filter_map(|numbered| used(&numbered.edit))).collect()
}

fn used(edit: &Edit) -> Option<Hash> {
    match edit {
        Edit::UseBarclamp(edit::UseBarclamp { version, .. }) => Some(*version),
        _ => None,
    }
}

impl PlanningData {
    /// The data of these [`versions`]. Returns `None` if it has more than `max_parts` nodes,
    /// noderoles, edges and roles.
    pub fn of(
        skeleton: &Skeleton,
        catalog: &Catalog,
        versions: &BTreeSet<Hash>,
        max_parts: usize,
    ) -> Option<Self> {
        // Checks the size first, so that excessive data is never copied.
        let left = max_parts.checked_sub(parts(skeleton, max_parts))?;
        let roles = roles(skeleton, catalog, versions);
        if roles.len() > left {
            return None;
        }
        let barclamps = versions
            .iter()
            .filter_map(|hash| Some((*hash, (**catalog.barclamp(*hash).ok()?).clone())));
        let roles =
            roles.into_iter().filter_map(|hash| Some((hash, (**catalog.role(hash).ok()?).clone())));
        Some(Self {
            skeleton: skeleton.clone(),
            barclamps: barclamps.collect(),
            roles: roles.collect(),
        })
    }

    /// Builds the index for planning.
    ///
    /// # Errors
    /// [`CatalogError`] if the data lacks a role that a noderole pins.
    pub fn open(self) -> Result<PlanningContext, CatalogError> {
        let mut catalog = Catalog::default();
        for (hash, barclamp) in self.barclamps {
            catalog.add_barclamp(hash, Arc::new(barclamp));
        }
        for (hash, role) in self.roles {
            catalog.add_role(hash, Arc::new(role));
        }
        let mut skeleton = self.skeleton;
        skeleton.index(&catalog)?;
        Ok(PlanningContext { skeleton, catalog })
    }
}

/// The roles of these versions, and all roles in use from other versions.
fn roles(skeleton: &Skeleton, catalog: &Catalog, versions: &BTreeSet<Hash>) -> BTreeSet<Hash> {
    let known = versions.iter().filter_map(|version| catalog.barclamp(*version).ok());
    let mut roles: BTreeSet<Hash> =
        known.flat_map(|barclamp| barclamp.roles.values().copied()).collect();
    roles.extend(skeleton.deployments.values().flat_map(|deployment| deployment.roles.values()));
    let nodes = skeleton.nodes.values();
    roles.extend(nodes.flat_map(|node| node.noderoles.values()).map(|noderole| noderole.role));
    roles
}

/// Counts nodes, noderoles and edges. Stops above `max_parts`.
fn parts(skeleton: &Skeleton, max_parts: usize) -> usize {
    let mut parts = skeleton.nodes.len();
    for noderole in skeleton.nodes.values().flat_map(|node| node.noderoles.values()) {
        if parts > max_parts {
            break;
        }
        parts += 1 + noderole.parents.len();
    }
    parts
}

/// Planning data with the indexes that planning needs.
#[derive(Debug, Clone)]
pub struct PlanningContext {
    /// The skeleton with its index.
    pub skeleton: Skeleton,
    /// Contains only the catalog entries of the data.
    pub catalog: Catalog,
}

impl PlanningContext {
    /// The effects of the proposal's edits together with further ones. Returns `None` if one of
    /// these uses a version that the data omits, because this client cannot know its content.
    pub fn effects_with(
        &self,
        edits: &[NumberedEdit],
        further: &[NumberedEdit],
    ) -> Option<Effects> {
        let mut used = further.iter().filter_map(|numbered| used(&numbered.edit));
        if used.any(|version| self.catalog.barclamp(version).is_err()) {
            return None;
        }
        let all: Vec<NumberedEdit> = edits.iter().chain(further).cloned().collect();
        Some(resolve(&self.skeleton, &self.catalog, &all))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::cluster::{SkeletonDeployment, SkeletonNode};
    use crate::ids::{DeploymentId, DeploymentName, Fqdn, NodeId, RoleName};

    /// A cluster with this many nodes and further roles.
    fn cluster(nodes: u128, roles: u128) -> Skeleton {
        let node = |n: u128| {
            let fqdn = Fqdn::parse(&format!("n{n}.large.example.com")).unwrap();
            let deployment = DeploymentId(Uuid::nil());
            let node = SkeletonNode {
                fqdn,
                deployment,
                phantom: false,
                record_only: true,
                noderoles: BTreeMap::new(),
            };
            (NodeId(Uuid::from_u128(n)), node)
        };
        let mut skeleton = Skeleton::default();
        skeleton.nodes.extend((0..nodes).map(node));
        let role = |n: u128| {
            (RoleName::parse(&format!("role-{n}")).unwrap(), Hash::of_bytes(&n.to_be_bytes()))
        };
        let deployment = SkeletonDeployment {
            name: DeploymentName::parse("system").unwrap(),
            parent: None,
            phantom: NodeId(Uuid::nil()),
            barclamps: BTreeMap::new(),
            roles: (0..roles).map(role).collect(),
            roles_with_data: BTreeSet::new(),
            inactive_jigs: BTreeSet::new(),
        };
        skeleton.deployments.insert(DeploymentId(Uuid::nil()), deployment);
        skeleton
    }

    #[test]
    fn oversized_ground_is_omitted() {
        let is_some = |nodes, roles| {
            PlanningData::of(&cluster(nodes, roles), &Catalog::default(), &BTreeSet::new(), 1_000)
                .is_some()
        };
        assert!(is_some(1_000, 0) && is_some(998, 2));
        assert!(!is_some(1_001, 0) && !is_some(998, 3));
    }
}
