//! What planning rests on, as it is sent to who plans elsewhere: the skeleton, and of the catalog no more than what is in use.
//!
//! A catalog keeps every version that there ever was, and planning looks at those alone that something pins, has, or comes to use by an
//! edit. So whoever has the ground of a proposal comes to the same effects, by hash, as who has the whole catalog; unless a further edit
//! brings a version into use that nobody used before: then it can't say ([`Grounded::effects_with`]).
//!
//! One home for both ends, so that what is left out by the one is what the other one knows to be missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Edit, Effects, NumberedEdit, resolve};
use crate::canonical::Hash;
use crate::catalog::{Barclamp, Catalog, CatalogError, Role};
use crate::cluster::Skeleton;

/// What planning rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ground {
    /// Who is bound where. Its index has to be built by whoever receives it: [`Ground::open`].
    pub skeleton: Skeleton,
    /// The barclamps that are in use, or would be with the edits, by content.
    pub barclamps: Vec<(Hash, Barclamp)>,
    /// Their roles, and all others that something has, by content.
    pub roles: Vec<(Hash, Role)>,
}

/// The versions of barclamps that are in use, or come into use by the edits.
pub fn versions(skeleton: &Skeleton, edits: &[NumberedEdit]) -> BTreeSet<Hash> {
    let pinned =
        skeleton.deployments.values().flat_map(|deployment| deployment.barclamps.values().copied());
    pinned.chain(edits.iter().filter_map(|numbered| used(&numbered.edit))).collect()
}

fn used(edit: &Edit) -> Option<Hash> {
    match edit {
        Edit::UseBarclamp { version, .. } => Some(*version),
        _ => None,
    }
}

impl Ground {
    /// The ground of these [`versions`], unless it has more than `most` parts (nodes, noderoles, edges and roles).
    pub fn of(
        skeleton: &Skeleton,
        catalog: &Catalog,
        versions: &BTreeSet<Hash>,
        most: usize,
    ) -> Option<Self> {
        // Before anything is gathered: what is too large is looked at and not copied.
        let left = most.checked_sub(parts(skeleton, most))?;
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

    /// Makes it ready to be planned on.
    ///
    /// # Errors
    /// When it lacks a role that a noderole has.
    pub fn open(self) -> Result<Grounded, CatalogError> {
        let mut catalog = Catalog::default();
        for (hash, barclamp) in self.barclamps {
            catalog.add_barclamp(hash, Arc::new(barclamp));
        }
        for (hash, role) in self.roles {
            catalog.add_role(hash, Arc::new(role));
        }
        let mut skeleton = self.skeleton;
        skeleton.index(&catalog)?;
        Ok(Grounded { skeleton, catalog })
    }
}

/// The roles of these versions, and those that something still has from another one.
fn roles(skeleton: &Skeleton, catalog: &Catalog, versions: &BTreeSet<Hash>) -> BTreeSet<Hash> {
    let known = versions.iter().filter_map(|version| catalog.barclamp(*version).ok());
    let mut roles: BTreeSet<Hash> =
        known.flat_map(|barclamp| barclamp.roles.values().copied()).collect();
    roles.extend(skeleton.deployments.values().flat_map(|deployment| deployment.roles.values()));
    let nodes = skeleton.nodes.values();
    roles.extend(nodes.flat_map(|node| node.noderoles.values()).map(|noderole| noderole.role));
    roles
}

/// Nodes, noderoles and edges, counted until they are more than `most`.
fn parts(skeleton: &Skeleton, most: usize) -> usize {
    let mut parts = skeleton.nodes.len();
    for noderole in skeleton.nodes.values().flat_map(|node| node.noderoles.values()) {
        if parts > most {
            break;
        }
        parts += 1 + noderole.parents.len();
    }
    parts
}

/// A ground that can be planned on.
#[derive(Debug, Clone)]
pub struct Grounded {
    /// With its index.
    pub skeleton: Skeleton,
    /// No more than what the ground brought.
    pub catalog: Catalog,
}

impl Grounded {
    /// What the edits that the ground was made for come to together with further ones. None where one of those uses a version that the
    /// ground has not got: whether there is one, and what is in it, can't be said here.
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

    /// With so many nodes, and so many roles beside them.
    fn cluster(nodes: u128, roles: u128) -> Skeleton {
        let node = |n: u128| {
            let fqdn = Fqdn::parse(&format!("n{n}.large.example.com")).unwrap();
            let deployment = DeploymentId(Uuid::nil());
            let node = SkeletonNode {
                fqdn,
                deployment,
                phantom: false,
                bare: true,
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
            inactive_jigs: BTreeSet::new(),
        };
        skeleton.deployments.insert(DeploymentId(Uuid::nil()), deployment);
        skeleton
    }

    #[test]
    fn a_ground_that_is_too_large_is_none() {
        let is_some = |nodes, roles| {
            Ground::of(&cluster(nodes, roles), &Catalog::default(), &BTreeSet::new(), 1_000)
                .is_some()
        };
        assert!(is_some(1_000, 0) && is_some(998, 2));
        assert!(!is_some(1_001, 0) && !is_some(998, 3));
    }
}
