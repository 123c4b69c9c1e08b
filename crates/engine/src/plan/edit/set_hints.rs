use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EditKind, EditNames, Written};
use crate::data::secret::contains_reference;
use crate::ids::NodeId;
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::{EffectCause, NewHints};
use crate::plan::refusal::EditError;
use crate::plan::resolve::check_object;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};

/// Maximum size of a node's hints, in bytes of JSON.
pub const MAX_HINTS: usize = 64 * 1024;

/// Sets the hints of a node in a blueprint. Replaces the previous hints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct SetHints {
    /// The node.
    pub node: NodeId,
    /// The hints, a JSON object of at most 64 KiB without references to secrets.
    pub hints: Value,
}

impl EditKind for SetHints {
    fn check(&self) -> Result<(), EditError> {
        let hints = &self.hints;
        // Everyone who can view the node can read its hints.
        let Value::Object(_) = hints else {
            return Err(EditError::Hints("a JSON object is required".into()));
        };
        if serde_json::to_vec(hints).map_or(usize::MAX, |bytes| bytes.len()) > MAX_HINTS {
            return Err(EditError::Hints(format!(
                "they can have at most {} KiB as JSON",
                MAX_HINTS / 1024
            )));
        }
        if contains_reference(hints) {
            return Err(EditError::Hints(
                "they cannot refer to a secret, because every viewer can read them".into(),
            ));
        }
        Ok(())
    }

    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let node = self.node;
        let cause = EffectCause::Requested { edit: seq };
        let fqdn = draft.documented(node)?;
        check_object(&self.hints)
            .map_err(|error| EditError::Data { subject: format!("the hints of {fqdn}"), error })?;
        let hints = self.hints.as_object().cloned().unwrap_or_default();
        draft.set.hints.set(node, NewHints { node, hints, cause });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts.record(ClashSubject::Hints { node: self.node }, &self.hints.to_string());
    }

    fn written(&self) -> Written<'_> {
        Written::Node(self.node)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("set the hints of {}", names.node(self.node))
    }
}

impl SetValue for NewHints {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, draft: &Draft<'_>) -> bool {
        draft.node(self.node).is_ok()
    }

    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError> {
        writing.node(self.node)?.hints = self.hints.clone();
        Ok(())
    }

    fn report(&self, names: &dyn EditNames) -> Option<(String, ValueOwner)> {
        let text = format!("The hints of {} are replaced", names.node(self.node));
        Some((text, ValueOwner::Node(self.node)))
    }
}
