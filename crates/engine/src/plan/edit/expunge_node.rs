use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::ids::NodeId;
use crate::plan::conflicts::{ClashSubject, Conflicts, SettingScope};
use crate::plan::draft::Draft;
use crate::plan::refusal::EditError;

/// Expunges a node that is physically gone. Everything on it counts as gone at once, nothing
/// runs for it, and its id is never used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct ExpungeNode {
    /// The node.
    pub node: NodeId,
    /// The reason, at most 1,000 characters. Shown in the review.
    pub reason: String,
}

impl EditKind for ExpungeNode {
    fn reason(&self) -> Option<&str> {
        Some(&self.reason)
    }

    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        draft.expunge_node(self.node, &self.reason, seq)
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let over = ClashSubject::Node { node: self.node };
        conflicts.record_removal(over, &SettingScope::Node(self.node));
    }

    fn written(&self) -> Written<'_> {
        Written::Node(self.node)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("expunge {}", names.node(self.node))
    }
}
