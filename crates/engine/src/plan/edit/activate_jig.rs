use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::catalog::JigClass;
use crate::ids::JigName;
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::{EffectCause, JigSwitch};
use crate::plan::refusal::EditError;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};
use crate::suggestion::nearest;

/// Turns a jig on or off in all deployments. While it is off, no step that needs it starts,
/// and no role that needs it can be bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct ActivateJig {
    /// The jig.
    pub jig: JigName,
    /// Whether to turn the jig on.
    pub active: bool,
}

impl EditKind for ActivateJig {
    // Jigs serve all deployments, so the root deployment stores which ones are off.
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { jig, active } = self;
        let active = *active;
        let cause = EffectCause::Requested { edit: seq };
        check_known_jig(draft, jig)?;
        let Some(root) = draft.root() else { return Ok(()) };
        if draft.deployment(root)?.inactive_jigs.contains(jig) != active {
            return Err(EditError::JigStateUnchanged { jig: jig.clone(), active });
        }
        let inactive = &mut draft.deployment_mut(root)?.inactive_jigs;
        if active {
            inactive.remove(jig);
        } else {
            inactive.insert(jig.clone());
        }
        draft.set.jigs.set(jig.clone(), JigSwitch { jig: jig.clone(), active, cause });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts.record(ClashSubject::Jig { jig: self.jig.clone() }, &self.active.to_string());
    }

    fn written(&self) -> Written<'_> {
        // It concerns all deployments. It writes the root, which is in every base.
        Written::Any
    }

    fn text(&self, _: &dyn EditNames) -> String {
        format!(
            "turn jig {} {} for every deployment",
            self.jig,
            if self.active { "on" } else { "off" }
        )
    }
}

fn check_known_jig(draft: &Draft<'_>, jig: &JigName) -> Result<(), EditError> {
    let mut declared = BTreeSet::new();
    for (_, deployment) in draft.deployments() {
        for pin in deployment.barclamps.values() {
            declared.extend(draft.catalog.barclamp(*pin)?.jigs.keys().cloned());
        }
    }
    if declared.contains(jig) || JigClass::built_in(jig.as_str()).is_some() {
        return Ok(());
    }
    let nearest = nearest(jig.as_str(), declared.iter().map(JigName::as_str));
    Err(EditError::UnknownJig { jig: jig.clone(), nearest })
}

impl SetValue for JigSwitch {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, draft: &Draft<'_>) -> bool {
        draft.was_inactive(&self.jig).is_none_or(|inactive| inactive == self.active)
    }

    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError> {
        let inactive = &mut writing.root()?.inactive_jigs;
        if self.active {
            inactive.remove(&self.jig);
        } else {
            inactive.insert(self.jig.clone());
        }
        Ok(())
    }

    fn report(&self, _: &dyn EditNames) -> Option<(String, ValueOwner)> {
        let state = if self.active { "on" } else { "off" };
        Some((format!("Jig {} is switched {state}", self.jig), ValueOwner::Catalog))
    }
}
