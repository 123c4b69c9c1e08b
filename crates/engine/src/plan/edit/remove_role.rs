use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::ids::{DeploymentId, RoleName};
use crate::plan::conflicts::{ClashSubject, Conflicts, Owner, SettingScope};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Removes an unbound role from a deployment, together with the deployment's data for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct RemoveRole {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
}

impl EditKind for RemoveRole {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        draft.drop_role(self.deployment, &self.role, EffectCause::Requested { edit: seq })
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let over = ClashSubject::Role { deployment: self.deployment, role: self.role.clone() };
        conflicts.record_removal(over, &SettingScope::Role(self.deployment, &self.role));
        conflicts.clear_data(Owner::Role(self.deployment, self.role.clone()));
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn goals(&self, _: &State) -> Vec<Goal> {
        vec![Goal::WithoutRole(self.role.clone())]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("remove role {}{}", self.role, names.in_deployment(self.deployment))
    }
}
