//! The side effects of an edit, which only the planner knows.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::NoderoleKey;
use crate::ids::{DeploymentId, NodeId};

/// Effects of an edit beyond the things that it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideEffects {
    /// Dependent noderoles that it also unbinds.
    pub gone: BTreeSet<(NodeId, NoderoleKey)>,
    /// Nodes that it also moves, each with the new deployment.
    pub moved: BTreeMap<NodeId, DeploymentId>,
}

impl SideEffects {
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.moved.is_empty()
    }
}
