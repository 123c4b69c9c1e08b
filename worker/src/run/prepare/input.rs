//! The hash of the input that a step reads from other noderoles, for a run and for an applied step.

use engine::Hash;
use engine::catalog::{OnInput, Role};
use engine::cluster::NoderoleKey;
use engine::data::{OwnData, input_hash};
use engine::ids::RoleName;
use serde_json::Value;
use store::runs::{ChangedInput, VisibleStep};

use super::Preparer;
use super::visible::{VisibleNoderole, see};
use crate::run::refusal::{Refusal, named};

/// The hash of the input of a run that sees these noderoles.
pub(super) fn hash_input(
    role: &Role,
    below: &[VisibleNoderole],
    visible: &Value,
) -> Result<Hash, Refusal> {
    let read = below.iter().filter_map(VisibleNoderole::read).collect::<Result<Vec<_>, _>>()?;
    let paths = role.read_paths(below.iter().flat_map(VisibleNoderole::attribs));
    Ok(input_hash(paths.as_ref(), &read, visible)?)
}

/// The input that an applied step would read now.
pub struct CurrentInput {
    /// `None` if it cannot be computed, for example because an output has become too large. A run
    /// would fail with that.
    pub hash: Option<Hash>,
    /// Reaction of the role to a change.
    pub policy: OnInput,
}

impl Preparer {
    /// Reads the input of an applied step. Returns `None` if the noderole is not in the target.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn current_input(
        &self,
        step: &ChangedInput,
        seen: Vec<VisibleStep>,
    ) -> Result<Option<CurrentInput>, Refusal> {
        let root = self.objects.root(step.head_root).await?;
        let key =
            NoderoleKey { role: named(RoleName::parse(&step.role))?, instance: step.instance };
        let Some(documents) = self.documents(&root, step.node, &key).await? else {
            return Ok(None);
        };
        let role = self.objects.role(documents.noderole.role).await?;
        let below = self.below(step.head_root, (step.head, step.head_root), seen).await?;
        let own = OwnData {
            template: &role.template,
            profiles: &[],
            deployment_role: &documents.deployment,
            system: &step.system_data,
            user: &documents.noderole.data,
        };
        let visible = see(step.step, own, &below).map_err(Refusal::from);
        let hash = match visible.and_then(|visible| hash_input(&role, &below, &visible.value)) {
            Ok(hash) => Some(hash),
            Err(Refusal::Data(error)) => {
                tracing::warn!(step = %step.step, %error, "cannot compute the input of a step");
                None
            }
            Err(other) => return Err(other),
        };
        Ok(Some(CurrentInput { hash, policy: role.on_changed_input() }))
    }
}
