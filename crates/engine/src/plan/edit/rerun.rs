use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::cluster::NoderoleKey;
use crate::ids::NodeId;
use crate::plan::conflicts::{ClashSubject, Conflicts, PRESENT};
use crate::plan::draft::Draft;
use crate::plan::effects::{self, EffectCause};
use crate::plan::refusal::EditError;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};

/// Runs a noderole again although nothing about it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct Rerun {
    pub node: NodeId,
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The reason, at most 1,000 characters. Shown in the review and with the run.
    pub reason: String,
}

impl EditKind for Rerun {
    fn reason(&self) -> Option<&str> {
        Some(&self.reason)
    }

    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { node, noderole, reason } = self;
        let node = *node;
        let cause = EffectCause::Requested { edit: seq };
        let fqdn = draft.noderole_on(node, noderole)?.fqdn.clone();
        if reason.trim().is_empty() {
            return Err(EditError::NoReason { node: fqdn, noderole: noderole.clone() });
        }
        let entry = effects::Rerun {
            node,
            noderole: noderole.clone(),
            reason: reason.trim().to_owned(),
            cause,
        };
        draft.set.reruns.set((node, noderole.clone()), entry);
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        let over = ClashSubject::Rerun { node: self.node, noderole: self.noderole.clone() };
        conflicts.record(over, PRESENT);
    }

    fn written(&self) -> Written<'_> {
        Written::Noderole(self.node, &self.noderole)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("run {} on {} again", self.noderole, names.node(self.node))
    }
}

impl SetValue for effects::Rerun {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, draft: &Draft<'_>) -> bool {
        draft.bound_by(self.node, &self.noderole).is_some_and(|edit| edit <= self.cause.edit())
    }

    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError> {
        writing.noderole(self.node, &self.noderole)?.reruns += 1;
        Ok(())
    }

    fn report(&self, _: &dyn EditNames) -> Option<(String, ValueOwner)> {
        // The report groups re-runs by role.
        None
    }
}
