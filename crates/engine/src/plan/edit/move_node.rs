use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::ids::{DeploymentId, NodeId};
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Moves a node to another deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct MoveNode {
    pub node: NodeId,
    /// The new deployment.
    pub deployment: DeploymentId,
}

impl EditKind for MoveNode {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let (node, to) = (self.node, self.deployment);
        let deployment = draft.deployment(to)?.name.to_string();
        let found = draft.node(node)?;
        if found.phantom {
            return Err(EditError::Phantom(draft.full_name(found)));
        }
        if found.deployment == to {
            return Err(EditError::AlreadyThere { node: found.fqdn.clone(), deployment });
        }
        let chain = draft.chain(to);
        if let Some((noderole, bound)) =
            found.noderoles.iter().find(|(_, n)| !chain.contains(&n.deployment))
        {
            return Err(EditError::WouldLeaveBehind {
                node: found.fqdn.clone(),
                noderole: noderole.clone(),
                deployment: draft.deployment_name(bound.deployment),
            });
        }
        draft.move_node(node, to, EffectCause::Requested { edit: seq })
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts
            .record(ClashSubject::NodeDeployment { node: self.node }, &self.deployment.to_string());
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn goals(&self, _: &State) -> Vec<Goal> {
        vec![Goal::Node(self.node)]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("move {} to {}", names.node(self.node), names.deployment(self.deployment))
    }
}
