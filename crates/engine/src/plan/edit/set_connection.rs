use serde::{Deserialize, Serialize};

use super::{EditKind, EditNames, Written};
use crate::cluster::ConnectionChange;
use crate::ids::NodeId;
use crate::plan::conflicts::{ClashSubject, Conflicts};
use crate::plan::draft::Draft;
use crate::plan::effects::{ConnectionUpdate, EffectCause};
use crate::plan::refusal::EditError;
use crate::plan::set_values::{SetValue, ValueOwner};
use crate::plan::writing::{MaterializeError, Writing};

/// Changes the given connection fields of a node in a blueprint. A node in no blueprint is
/// edited without a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(deny_unknown_fields)]
pub struct SetConnection {
    /// The node.
    pub node: NodeId,
    /// The fields to change.
    pub connection: ConnectionChange,
}

impl EditKind for SetConnection {
    fn check(&self) -> Result<(), EditError> {
        if self.connection.is_empty() {
            return Err(EditError::NoConnectionField);
        }
        self.connection.checked().map_err(EditError::Connection)?;
        Ok(())
    }

    fn apply(&self, draft: &mut Draft<'_>, seq: u32) -> Result<(), EditError> {
        let node = self.node;
        let cause = EffectCause::Requested { edit: seq };
        draft.documented(node)?;
        let change = self.connection.checked().map_err(EditError::Connection)?;
        let earlier =
            draft.set.connections.last(&node).map(|set| set.connection.clone()).unwrap_or_default();
        draft
            .set
            .connections
            .set(node, ConnectionUpdate { node, connection: change.after(earlier), cause });
        Ok(())
    }

    fn record(&self, conflicts: &mut Conflicts<'_>) {
        for (field, value) in self.connection.fields() {
            conflicts.record(ClashSubject::Connection { node: self.node, field }, &value);
        }
    }

    fn written(&self) -> Written<'_> {
        Written::Node(self.node)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn text(&self, names: &dyn EditNames) -> String {
        let fields: Vec<String> =
            self.connection.fields().into_iter().map(|(field, _)| field).collect();
        format!("change the connection of {}: {}", names.node(self.node), fields.join(", "))
    }
}

impl SetValue for ConnectionUpdate {
    fn cause(&self) -> &EffectCause {
        &self.cause
    }

    fn has_effect(&self, draft: &Draft<'_>) -> bool {
        draft.node(self.node).is_ok()
    }

    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError> {
        let doc = writing.node(self.node)?;
        let applied = self.connection.apply(doc.connection.as_ref());
        let failed = |error| MaterializeError::Connection { node: doc.fqdn.clone(), error };
        doc.connection = Some(applied.map_err(failed)?);
        Ok(())
    }

    fn report(&self, names: &dyn EditNames) -> Option<(String, ValueOwner)> {
        let fields: Vec<String> =
            self.connection.fields().into_iter().map(|(field, _)| field).collect();
        let (node, fields) = (names.node(self.node), fields.join(", "));
        Some((format!("The connection of {node} changes: {fields}"), ValueOwner::Node(self.node)))
    }
}
