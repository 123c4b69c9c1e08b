use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EditKind, EditNames, Written};
use crate::ids::{DeploymentId, RoleName};
use crate::plan::conflicts::{Conflicts, Owner};
use crate::plan::draft::Draft;
use crate::plan::effects::{EffectCause, RoleData};
use crate::plan::refusal::EditError;
use crate::plan::resolve::check_object;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};

/// Sets the deployment's data for a role. Replaces the previous data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct SetRoleData {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The role.
    pub role: RoleName,
    /// The data, a JSON object.
    pub data: Value,
}

impl EditKind for SetRoleData {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { deployment, role, data } = self;
        let deployment = *deployment;
        let cause = EffectCause::Requested { edit: seq };
        let name = draft.deployment(deployment)?.name.to_string();
        if !draft.deployment(deployment)?.roles.contains_key(role) {
            return Err(EditError::NotARoleHere { deployment: name, role: role.clone() });
        }
        check_object(data)
            .map_err(|error| EditError::Data { subject: format!("{role} in {name}"), error })?;
        let entry = RoleData { deployment, role: role.clone(), data: data.clone(), cause };
        draft.set.role_data.set((deployment, role.clone()), entry);
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts.set(Owner::Role(self.deployment, self.role.clone()), &self.data);
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("set data of {}{}", self.role, names.in_deployment(self.deployment))
    }
}

impl SetValue for RoleData {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, draft: &Draft<'_>) -> bool {
        draft
            .role_removed_by(self.deployment, &self.role)
            .is_some_and(|edit| edit <= self.cause.edit())
    }

    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError> {
        let (deployment, role) = (self.deployment, self.role.to_string());
        let roles = &mut writing.deployment(deployment)?.roles;
        let missing = MaterializeError::NoRole { deployment, role };
        roles.get_mut(&self.role).ok_or(missing)?.data = self.data.clone();
        Ok(())
    }

    fn report(&self, names: &dyn EditNames) -> Option<(String, ValueOwner)> {
        let (role, deployment) = (&self.role, self.deployment);
        let text = format!("Data of {role} in {} is replaced", names.deployment(deployment));
        Some((text, ValueOwner::Deployment(deployment)))
    }
}
