use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::canonical::Hash;
use crate::ids::{BarclampName, DeploymentId};
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::EffectCause;
use crate::plan::refusal::EditError;
use crate::plan::restore_goals::{Goal, State};

/// Makes a version of a barclamp available to a deployment and its descendants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct UseBarclamp {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The barclamp.
    pub barclamp: BarclampName,
    /// Content hash of the version.
    pub version: Hash,
}

impl EditKind for UseBarclamp {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { deployment, barclamp, version } = self;
        let (deployment, version) = (*deployment, *version);
        draft.deployment(deployment)?;
        let content = draft.catalog.barclamp(version)?;
        if content.name != *barclamp {
            return Err(EditError::OtherBarclamp {
                version,
                found: content.name.clone(),
                requested: barclamp.clone(),
            });
        }
        draft.pin(deployment, barclamp, Some(version))?;
        draft.adopt(deployment, barclamp, seq)?;
        draft.record_pin_origin(deployment, barclamp, EffectCause::Requested { edit: seq });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let over =
            ClashSubject::Barclamp { deployment: self.deployment, barclamp: self.barclamp.clone() };
        conflicts.record(over, &self.version.to_string());
    }

    fn written(&self) -> Written<'_> {
        Written::Deployment(self.deployment)
    }

    fn goals(&self, earlier: &State) -> Vec<Goal> {
        vec![earlier.version_goal(&self.barclamp)]
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!(
            "use {} {}{}",
            self.barclamp,
            names.version(self.version),
            names.in_deployment(self.deployment)
        )
    }
}
