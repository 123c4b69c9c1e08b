use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::cluster::NoderoleKey;
use crate::ids::{DeploymentId, NodeId, RoleName};
use crate::plan::conflicts::{ClashSubject, Conflicts, PRESENT};
use crate::plan::draft::Draft;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Binds a role to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// The deployment in which to bind the role.
    pub deployment: DeploymentId,
    pub node: NodeId,
    /// The role.
    pub role: RoleName,
}

impl EditKind for Bind {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        draft.bind(self.deployment, self.node, &self.role, seq)
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let noderole = NoderoleKey::first(self.role.clone());
        conflicts.record(ClashSubject::Noderole { node: self.node, noderole }, PRESENT);
        // Moving the node is a side effect, so it counts only against an edit that placed the node
        // elsewhere.
        let place = ClashSubject::NodeDeployment { node: self.node };
        let moves = conflicts
            .side_effects()
            .is_some_and(|side_effects| side_effects.moved.contains_key(&self.node));
        if moves && conflicts.has(&place) {
            conflicts.record(place, &self.deployment.to_string());
        }
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn goals(&self, _: &State) -> Vec<Goal> {
        vec![Goal::Noderole(self.node, NoderoleKey::first(self.role.clone()))]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!(
            "bind {} to {}{}",
            names.node(self.node),
            self.role,
            names.in_deployment(self.deployment)
        )
    }
}
