//! The documents that differ between two blueprints, by hash.
//!
//! A submission lists them, and its commit may change nothing else. Applied to the old root they
//! give exactly the new one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Blueprint, RootDoc};
use crate::canonical::{self, Hash};
use crate::ids::{DeploymentId, NodeId};

/// Document that differs between two blueprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DocumentChange {
    /// A deployment document.
    Deployment {
        /// Id of the deployment.
        id: DeploymentId,
        /// Hash of the old document. Null if the deployment is new.
        old: Option<Hash>,
        /// Hash of the new document. Null if the deployment is removed.
        new: Option<Hash>,
    },
    /// A node document.
    Node {
        /// Id of the node.
        id: NodeId,
        /// Hash of the old document. Null if the node is new.
        old: Option<Hash>,
        /// Hash of the new document. Null if the node is removed.
        new: Option<Hash>,
    },
}

/// The documents that differ between two roots: first deployments, then nodes, each by id.
pub fn changes(old: &RootDoc, new: &RootDoc) -> Vec<DocumentChange> {
    listed(
        differing(&old.deployments, &new.deployments, |hash| *hash),
        differing(&old.nodes, &new.nodes, |hash| *hash),
    )
}

/// Like [`changes`], but compares two blueprints without writing their roots first.
pub fn compare(old: &Blueprint, new: &Blueprint) -> Vec<DocumentChange> {
    listed(
        differing(&old.deployments, &new.deployments, |stored| stored.hash),
        differing(&old.nodes, &new.nodes, |stored| stored.hash),
    )
}

type HashChange<K> = (K, Option<Hash>, Option<Hash>);

fn listed(
    deployments: impl Iterator<Item = HashChange<DeploymentId>>,
    nodes: impl Iterator<Item = HashChange<NodeId>>,
) -> Vec<DocumentChange> {
    let deployments = deployments.map(|(id, old, new)| DocumentChange::Deployment { id, old, new });
    deployments.chain(nodes.map(|(id, old, new)| DocumentChange::Node { id, old, new })).collect()
}

/// The change belongs to another root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "The change was made on another state: an old document that it names is different here. Plan \
     it again."
)]
pub struct RootMismatch {
    /// The first document that does not match.
    pub change: DocumentChange,
}

/// Applies a change to a root.
///
/// # Errors
/// [`RootMismatch`] if a document is not the old document of the change.
pub fn apply(root: &RootDoc, changes: &[DocumentChange]) -> Result<RootDoc, RootMismatch> {
    fn put<K: Ord>(map: &mut BTreeMap<K, Hash>, id: K, new: Option<Hash>) -> Option<Hash> {
        match new {
            Some(hash) => map.insert(id, hash),
            None => map.remove(&id),
        }
    }
    let mut applied = root.clone();
    for change in changes {
        let (found, old) = match *change {
            DocumentChange::Deployment { id, old, new } => {
                (put(&mut applied.deployments, id, new), old)
            }
            DocumentChange::Node { id, old, new } => (put(&mut applied.nodes, id, new), old),
        };
        if found != old {
            return Err(RootMismatch { change: *change });
        }
    }
    Ok(applied)
}

/// The hash that identifies a change: the hash of the list of its documents.
///
/// # Errors
/// Never for lists from [`changes`]. The type comes from the serializer.
pub fn change_hash(changes: &[DocumentChange]) -> Result<Hash, serde_json::Error> {
    canonical::hash(&changes)
}

fn differing<'m, K: Ord + Copy, V>(
    old: &'m BTreeMap<K, V>,
    new: &'m BTreeMap<K, V>,
    hash: impl Fn(&V) -> Hash + 'm,
) -> impl Iterator<Item = HashChange<K>> + 'm {
    let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
    let next = move || {
        let (l, r) = (left.peek().map(|(k, _)| **k), right.peek().map(|(k, _)| **k));
        let key = l.into_iter().chain(r).min()?;
        let take = |side: Option<K>| side == Some(key);
        let was = if take(l) { left.next().map(|(_, value)| hash(value)) } else { None };
        let is = if take(r) { right.next().map(|(_, value)| hash(value)) } else { None };
        Some((key, was, is))
    };
    std::iter::from_fn(next).filter(|(_, was, is)| was != is)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    proptest! {
        #[test]
        fn changes_list_exactly_the_differing_documents(
            old in prop::collection::btree_map(0u128..20, 0u8..3, 0..12),
            new in prop::collection::btree_map(0u128..20, 0u8..3, 0..12),
        ) {
            let root = |map: &BTreeMap<u128, u8>| RootDoc {
                nodes: map.iter().map(|(k, v)| (NodeId(Uuid::from_u128(*k)), Hash::of_bytes(&[*v]))).collect(),
                ..RootDoc::default()
            };
            let found: BTreeMap<NodeId, (Option<Hash>, Option<Hash>)> = changes(&root(&old), &root(&new))
                .into_iter()
                .map(|change| match change {
                    DocumentChange::Node { id, old, new } => (id, (old, new)),
                    DocumentChange::Deployment { .. } => unreachable!("no deployments"),
                })
                .collect();
            let (old, new) = (root(&old), root(&new));
            let changed = changes(&old, &new);
            prop_assert_eq!(apply(&old, &changed), Ok(new.clone()));
            prop_assert_eq!(apply(&new, &changed).is_err(), !changed.is_empty(), "it fits the root that it was made on alone");
            for id in old.nodes.keys().chain(new.nodes.keys()) {
                let (was, is) = (old.nodes.get(id).copied(), new.nodes.get(id).copied());
                prop_assert_eq!(found.get(id).copied(), (was != is).then_some((was, is)));
            }
        }
    }
}
