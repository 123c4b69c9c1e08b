use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Bind, Edit, EditKind, EditNames, Written};
use crate::ids::{DeploymentId, NodeId, RoleName};
use crate::plan::conflicts::Conflicts;
use crate::plan::draft::Draft;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Binds a role to several nodes. Equal to single bindings in the order of the node ids, but
/// either all take effect or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct BindNodes {
    /// The deployment in which to bind the role.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
    /// The nodes, 1 to 1,000.
    pub nodes: BTreeSet<NodeId>,
}

impl EditKind for BindNodes {
    fn each(&self) -> Option<Vec<Edit>> {
        let one = |node: &NodeId| {
            Bind { deployment: self.deployment, node: *node, role: self.role.clone() }.into()
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
        Written::Deployment(self.deployment)
    }

    fn goals(&self, earlier: &State) -> Vec<Goal> {
        self.each().iter().flatten().flat_map(|single| single.goals(earlier)).collect()
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!(
            "bind {} to {}{}",
            names.nodes(&self.nodes),
            self.role,
            names.in_deployment(self.deployment)
        )
    }
}
