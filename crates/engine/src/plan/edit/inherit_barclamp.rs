use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::ids::{BarclampName, DeploymentId};
use crate::plan::conflicts::{ClashSubject, Conflicts, REMOVED};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Removes a deployment's own version of a barclamp. The deployment then uses the version of
/// its nearest ancestor, if any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct InheritBarclamp {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The barclamp.
    pub barclamp: BarclampName,
}

impl EditKind for InheritBarclamp {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { deployment, barclamp } = self;
        let deployment = *deployment;
        if draft.pin(deployment, barclamp, None)?.is_none() {
            let deployment = draft.deployment_name(deployment);
            return Err(EditError::NoOwnVersion { deployment, barclamp: barclamp.clone() });
        }
        draft.adopt(deployment, barclamp, seq)?;
        draft.record_pin_origin(deployment, barclamp, EffectCause::Requested { edit: seq });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let over =
            ClashSubject::Barclamp { deployment: self.deployment, barclamp: self.barclamp.clone() };
        conflicts.record(over, REMOVED);
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn goals(&self, earlier: &State) -> Vec<Goal> {
        vec![earlier.version_goal(&self.barclamp)]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!(
            "inherit {}{} from the parent deployment",
            self.barclamp,
            names.in_deployment(self.deployment)
        )
    }
}
