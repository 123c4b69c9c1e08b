use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::cluster::NoderoleKey;
use crate::ids::NodeId;
use crate::plan::conflicts::Conflicts;
use crate::plan::draft::Draft;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Removes a noderole from its node. The noderoles that it required stay. Its children get
/// another parent if binding would find one. Otherwise, the edit is refused unless
/// `with_dependents` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct Unbind {
    pub node: NodeId,
    /// The noderole.
    pub noderole: NoderoleKey,
    /// Whether to also remove noderoles that cannot exist without this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_dependents: bool,
}

impl EditKind for Unbind {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        draft.unbind(self.node, &self.noderole, self.with_dependents, seq)
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts.unbind(self.node, &self.noderole);
        for (node, noderole) in
            conflicts.side_effects().into_iter().flat_map(|side_effects| &side_effects.gone)
        {
            conflicts.unbind(*node, noderole);
        }
    }

    fn written(&self) -> Written<'_> {
        Written::Noderole(self.node, &self.noderole)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn goals(&self, _: &State) -> Vec<Goal> {
        vec![Goal::WithoutNoderole(self.node, self.noderole.clone())]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        let suffix = if self.with_dependents { " and everything that requires it" } else { "" };
        format!("unbind {} from {}{suffix}", self.noderole, names.node(self.node))
    }
}
