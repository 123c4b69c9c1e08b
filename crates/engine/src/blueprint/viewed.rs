//! Content hashes of the changes that a reviewer has viewed.
//!
//! A *viewed* mark says that a person has seen the change of one document. It is stored with the
//! content of the change, not with the submission. So a newer submission keeps the marks of
//! unchanged content and loses the others, even if only one value differs. The gate ignores these
//! marks, because Gantry cannot verify that a person has read the content.
//!
//! Invariant: two changes of a document have the same hash exactly if a reviewer sees the same
//! content. So the number of unchanged noderoles is not part of the hash.

use std::collections::BTreeMap;

use super::anchor::Anchor;
use super::difference::{Difference, NodeDifference};
use crate::canonical::{self, Hash};

/// The content hash of each document's change, by its anchor ([`Anchor::Deployment`] or
/// [`Anchor::Node`]). Includes the policy ([`Anchor::Policy`]), which is viewed like a document.
///
/// # Errors
/// If JSON cannot represent a value.
pub fn contents(difference: &Difference) -> Result<BTreeMap<Anchor, Hash>, serde_json::Error> {
    let mut contents = BTreeMap::new();
    if let Some(policy) = &difference.policy {
        contents.insert(Anchor::Policy(None), canonical::hash(policy)?);
    }
    for deployment in &difference.deployments {
        contents.insert(Anchor::Deployment(deployment.id), canonical::hash(deployment)?);
    }
    for node in &difference.nodes {
        let shown = NodeDifference { unchanged: 0, ..node.clone() };
        contents.insert(Anchor::Node(node.id), canonical::hash(&shown)?);
    }
    Ok(contents)
}
