//! The values that edits set without changing the shape of the graph.
//!
//! The file of each edit implements [`SetValue`] for its effect.

use super::draft::Draft;
use super::effects::{EffectCause, Effects, Refusal, Set};
use super::names::EditNames;
use super::writing::{MaterializeError, Writing};
use crate::ids::{DeploymentId, NodeId, NoderoleId};

/// A value that an edit sets without changing the shape of the graph. The edit's file implements
/// this for its effect.
pub(super) trait SetValue {
    fn cause(&self) -> &EffectCause;

    /// Whether the value has an effect: the owner still exists, and the value differs.
    fn has_effect(&self, draft: &Draft<'_>) -> bool;

    /// Writes the value into its document.
    fn write(&self, writing: &mut Writing<'_>) -> Result<(), MaterializeError>;

    /// The statement of the planner's report. `None`: the report has other lines about it.
    fn report(&self, names: &dyn EditNames) -> Option<(String, ValueOwner)>;
}

/// The owner of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueOwner {
    Deployment(DeploymentId),
    Node(NodeId),
    Noderole(NoderoleId),
    /// All deployments use jigs.
    Catalog,
    Policy,
}

/// The effects of a draft.
pub(super) fn effects(mut draft: Draft<'_>, refused: Vec<Refusal>) -> Effects {
    let mut effects = draft.graph_effects(refused);
    // Values of things that were removed afterwards have no effect.
    let set = std::mem::take(&mut draft.set);
    let Set { role_data, noderole_data, reruns, connections, hints, jigs, policy } = set;
    effects.role_data = role_data.in_order(|set| set.has_effect(&draft));
    effects.noderole_data = noderole_data.in_order(|set| set.has_effect(&draft));
    effects.reruns = reruns.in_order(|set| set.has_effect(&draft));
    effects.connections = connections.in_order(|set| set.has_effect(&draft));
    effects.hints = hints.in_order(|set| set.has_effect(&draft));
    effects.jigs = jigs.in_order(|set| set.has_effect(&draft));
    effects.policy = policy;
    effects
}

/// The values that edits set.
pub(super) fn set_values(effects: &Effects) -> impl Iterator<Item = &dyn SetValue> {
    fn all<T: SetValue>(values: &[T]) -> impl Iterator<Item = &dyn SetValue> {
        values.iter().map(|value| value as &dyn SetValue)
    }
    all(&effects.role_data)
        .chain(all(&effects.noderole_data))
        .chain(all(&effects.reruns))
        .chain(all(&effects.connections))
        .chain(all(&effects.hints))
        .chain(all(&effects.jigs))
        .chain(all(effects.policy.as_slice()))
}

/// The statements about values that edits set, for the planner's report.
pub(crate) fn value_lines<'e>(
    effects: &'e Effects,
    names: &'e dyn EditNames,
) -> impl Iterator<Item = (&'e EffectCause, String, ValueOwner)> {
    set_values(effects).filter_map(|value| {
        let (text, owner) = value.report(names)?;
        Some((value.cause(), text, owner))
    })
}
