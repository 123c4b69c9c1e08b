//! How much of a change somebody has opened: what a mark stands on.
//!
//! A mark says that a person had one document's change before their eyes. It is kept under the change's content, not under the
//! submission: a newer submission keeps the marks of what is the same in it, and loses those of what differs, be it one value. It is
//! information and no rule of the gate: nobody can tell that what was opened was read.
//!
//! Invariant: two changes of a document have the same content exactly if a reader is shown the same. So what is only counted beside
//! it (noderoles that stay as they are) does not count.

use std::collections::BTreeMap;

use super::anchor::Anchor;
use super::difference::{Difference, NodeDifference};
use crate::canonical::{self, Hash};

/// The content of each document's change, by its anchor ([`Anchor::Deployment`] or [`Anchor::Node`]), and of the policy's
/// ([`Anchor::Policy`]), which is no document and looked at like one.
///
/// # Errors
/// A value that JSON can't hold.
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
