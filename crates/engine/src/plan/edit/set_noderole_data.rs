use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EditKind, EditNames, Written};
use crate::cluster::NoderoleKey;
use crate::ids::NodeId;
use crate::plan::conflicts::{Conflicts, Owner};
use crate::plan::draft::Draft;
use crate::plan::effects::{EffectCause, NoderoleData};
use crate::plan::refusal::EditError;
use crate::plan::resolve::check_object;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};

/// Sets a noderole's own data. Replaces the previous data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct SetNoderoleData {
    pub node: NodeId,
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The data, a JSON object.
    pub data: Value,
}

impl EditKind for SetNoderoleData {
    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let Self { node, noderole, data } = self;
        let node = *node;
        let cause = EffectCause::Requested { edit: seq };
        let fqdn = &draft.noderole_on(node, noderole)?.fqdn;
        check_object(data)
            .map_err(|error| EditError::Data { subject: format!("{noderole} on {fqdn}"), error })?;
        let entry = NoderoleData { node, noderole: noderole.clone(), data: data.clone(), cause };
        draft.set.noderole_data.set((node, noderole.clone()), entry);
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        conflicts.set(Owner::Noderole(self.node, self.noderole.clone()), &self.data);
    }

    fn written(&self) -> Written<'_> {
        Written::Noderole(self.node, &self.noderole)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        format!("set data of {} on {}", self.noderole, names.node(self.node))
    }
}

impl SetValue for NoderoleData {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, draft: &Draft<'_>) -> bool {
        draft.bound_by(self.node, &self.noderole).is_some_and(|edit| edit <= self.cause.edit())
    }

    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError> {
        writing.noderole(self.node, &self.noderole)?.data = self.data.clone();
        Ok(())
    }

    fn report(&self, names: &dyn EditNames) -> Option<(String, ValueOwner)> {
        let (noderole, node) = (&self.noderole, self.node);
        let text = format!("Data of {noderole} on {} is replaced", names.node(node));
        Some((text, ValueOwner::Noderole(noderole.id(node))))
    }
}
