//! The names of objects in texts about edits.

use std::collections::BTreeSet;

use crate::canonical::Hash;
use crate::ids::{DeploymentId, NodeId};

/// The names that the text of an edit contains.
pub trait EditNames {
    /// The name of a deployment.
    fn deployment(&self, id: DeploymentId) -> String;
    /// ` in web`; empty for the deployment of the reader.
    fn in_deployment(&self, deployment: DeploymentId) -> String;
    /// The version of a barclamp.
    fn version(&self, hash: Hash) -> String;
    /// The name of a node.
    fn node(&self, id: NodeId) -> String;
    /// The names of several nodes; a long list is cut.
    fn nodes(&self, nodes: &BTreeSet<NodeId>) -> String;
}
