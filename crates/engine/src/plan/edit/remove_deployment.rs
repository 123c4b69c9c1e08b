use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::ids::DeploymentId;
use crate::plan::conflicts::{ClashSubject, Conflicts, SettingScope};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;

/// Removes an empty deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct RemoveDeployment {
    /// The deployment.
    pub deployment: DeploymentId,
}

impl EditKind for RemoveDeployment {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        draft.drop_deployment(self.deployment, EffectCause::Requested { edit: seq })
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let deployment = self.deployment;
        let over = ClashSubject::Deployment { deployment };
        conflicts.record_removal(over, &SettingScope::Deployment(deployment));
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("remove {}", names.deployment(self.deployment))
    }
}
