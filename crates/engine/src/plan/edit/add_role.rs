use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::ids::{DeploymentId, RoleName};
use crate::plan::conflicts::{ClashSubject, Conflicts, PRESENT};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Adds a role to a deployment, so that it can be bound there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct AddRole {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
}

impl EditKind for AddRole {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { deployment, role } = self;
        let deployment = *deployment;
        if draft.deployment(deployment)?.roles.contains_key(role) {
            let deployment = draft.deployment_name(deployment);
            return Err(EditError::RoleExists { deployment, role: role.clone() });
        }
        let content = draft.visible_role(deployment, role)?;
        draft.add_role(deployment, role, content, EffectCause::Requested { edit: seq })
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let over = ClashSubject::Role { deployment: self.deployment, role: self.role.clone() };
        conflicts.record(over, PRESENT);
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn goals(&self, _: &State) -> Vec<Goal> {
        vec![Goal::Role(self.role.clone())]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("add role {}{}", self.role, names.in_deployment(self.deployment))
    }
}
