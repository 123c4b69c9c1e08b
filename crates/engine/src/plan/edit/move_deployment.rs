//! Moves a deployment with its descendants below another parent.
//!
//! Ids, names, nodes, pins, roles and noderoles stay. The ancestors change, and with them
//! everything that the deployment and its descendants inherit. The planner therefore plans these
//! parts again:
//!
//! * **Barclamp versions.** A version that the deployment inherits can change. Roles and noderoles
//!   get the contents of the new version, and noderoles with other content run again.
//! * **Parents of noderoles.** A parent stays if it is on the same node, in the same deployment or
//!   in a new ancestor. Otherwise the noderole waits for another one that binding would find.
//!
//! Permissions, holds and signature rules of the ancestors need no plan: they follow the tree.
//! Data, disruption budgets and concurrency groups are not inherited from ancestors.
//!
//! The edit is refused in these cases:
//!
//! * The deployment is the root, or the new parent is the deployment itself or a descendant.
//! * The deployment is already below this parent.
//! * The tree would exceed [`MAX_LEVELS`].
//! * A node of the deployment has a noderole of an ancestor that is not above the new parent.
//! * A role in use belongs to a barclamp that no new ancestor uses.
//! * A required role is not bound above the new parent. A move binds no roles, because they would
//!   run where no one asked for them.
//! * Two barclamps with a role of the same name would become visible.
//!
//! The move writes the deployment, the old and the new parent. People need permissions in all
//! three, and the signature rules of all their ancestors apply. A move always has the risk `move`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, MAX_LEVELS, Written};
use crate::ids::DeploymentId;
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Moves a deployment with its descendants below another parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct MoveDeployment {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The new parent.
    pub parent: DeploymentId,
}

impl MoveDeployment {
    fn check_place(&self, draft: &Draft<'_>) -> Result<(), EditError> {
        let found = draft.deployment(self.deployment)?;
        let (deployment, parent) =
            (found.name.to_string(), draft.deployment(self.parent)?.name.to_string());
        if found.parent.is_none() {
            return Err(EditError::RootDeployment(deployment));
        }
        if found.parent == Some(self.parent) {
            return Err(EditError::AlreadyBelow { deployment, parent });
        }
        if draft.chain(self.parent).contains(&self.deployment) {
            return Err(EditError::BelowItself { deployment, parent });
        }
        Ok(())
    }

    fn check_levels(
        &self,
        draft: &Draft<'_>,
        subtree: &BTreeSet<DeploymentId>,
    ) -> Result<(), EditError> {
        let above = draft.chain(self.deployment).len() - 1;
        let lowest = subtree.iter().map(|id| draft.chain(*id).len()).max().unwrap_or_default();
        if draft.chain(self.parent).len() + lowest - above > MAX_LEVELS {
            return Err(EditError::TreeTooDeep {
                name: draft.deployment_name(self.deployment),
                parent: draft.deployment_name(self.parent),
            });
        }
        Ok(())
    }

    /// The nodes of the subtree may only have noderoles of deployments that stay above them.
    fn check_nodes(
        &self,
        draft: &Draft<'_>,
        subtree: &BTreeSet<DeploymentId>,
    ) -> Result<(), EditError> {
        let above = draft.chain(self.parent);
        for (_, node) in draft.nodes().filter(|(_, node)| subtree.contains(&node.deployment)) {
            let stays = |id| subtree.contains(&id) || above.contains(&id);
            let left = node.noderoles.iter().find(|(_, noderole)| !stays(noderole.deployment));
            if let Some((noderole, found)) = left {
                return Err(EditError::NodeWouldLeaveBehind {
                    moved: draft.deployment_name(self.deployment),
                    node: draft.short_name(node),
                    noderole: noderole.clone(),
                    deployment: draft.deployment_name(found.deployment),
                });
            }
        }
        Ok(())
    }
}

impl EditKind for MoveDeployment {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        self.check_place(draft)?;
        let subtree = draft.subtree(self.deployment);
        self.check_levels(draft, &subtree)?;
        self.check_nodes(draft, &subtree)?;
        let before = draft.visible_versions(self.deployment)?;
        draft.move_deployment(
            self.deployment,
            self.parent,
            EffectCause::Requested { edit: seq },
        )?;
        draft.adopt_ancestors(self.deployment, &before, &subtree, seq)
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let setting = ClashSubject::Parent { deployment: self.deployment };
        conflicts.record(setting, &self.parent.to_string());
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn goals(&self, _: &State) -> Vec<Goal> {
        vec![Goal::Parent]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        let (deployment, parent) =
            (names.deployment(self.deployment), names.deployment(self.parent));
        format!("move deployment {deployment} below {parent}")
    }
}
