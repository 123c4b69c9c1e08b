use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Edit, EditKind, EditNames, Unbind, Written};
use crate::cluster::NoderoleKey;
use crate::ids::NodeId;
use crate::plan::conflicts::Conflicts;
use crate::plan::draft::Draft;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Removes the same noderole from several nodes. Equal to single edits in the order of the node
/// ids, but either all take effect or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct UnbindNodes {
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The nodes, 1 to 1,000.
    pub nodes: BTreeSet<NodeId>,
}

impl EditKind for UnbindNodes {
    fn each(&self) -> Option<Vec<Edit>> {
        let one = |node: &NodeId| {
            let noderole = self.noderole.clone();
            Unbind { node: *node, noderole, with_dependents: false }.into()
        };
        Some(self.nodes.iter().map(one).collect())
    }

    fn listed(&self) -> Option<&BTreeSet<NodeId>> {
        Some(&self.nodes)
    }

    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        self.each().iter().flatten().try_for_each(|single| EditKind::apply(single, draft, seq))
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        self.each().iter().flatten().for_each(|single| single.record(conflicts));
    }

    fn written(&self) -> Written<'_> {
        // Checked as single edits.
        Written::Any
    }

    fn goals(&self, earlier: &State) -> Vec<Goal> {
        self.each().iter().flatten().flat_map(|single| single.goals(earlier)).collect()
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("unbind {} from {}", self.noderole, names.nodes(&self.nodes))
    }
}
