//! Resolves a proposal's edits into effects.
//!
//! The edits apply to a [`Draft`] of the skeleton in order. Each takes effect as a whole, or is
//! refused with a reason and no effect. The effects are the final difference between draft and
//! skeleton.
//!
//! One rule concerns the result and not a single edit: no role name may refer to two roles
//! ([`Draft::duplicate_role_edits`]). If two barclamps exchange a role, the rule is broken between
//! the edits in any order. It is therefore checked after all edits. The edit at fault is then
//! refused, and the others are applied again without it.
//!
//! [`edit`](super::edit) has the effect of each kind. [`bind`](super::bind) and
//! [`remove`](super::remove) have the rules for additional bindings and for dependents.
//!
//! A cycle among roles appears as a role that requires itself during binding. Noderoles cannot form
//! a cycle. A new one only waits for existing ones, and an edge between existing ones that would
//! create a cycle is refused.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::draft::Draft;
use super::duplicate_roles::VisibilityEdit;
use super::edit::{Edit, EditKind, NumberedEdit};
use super::effects::{Effects, Refusal};
use super::refusal::EditError;
use super::rules::Rules;
use super::set_values;
use super::side_effects::SideEffects;
use crate::catalog::Catalog;
use crate::cluster::Skeleton;
pub use crate::cluster::phantom::fqdn as phantom_fqdn;
use crate::data::{self, DataError};
use crate::ids::{Fqdn, NodeId};

/// The effects of the edits. Edits that cannot take effect are in [`Effects::refused`].
pub fn resolve(skeleton: &Skeleton, catalog: &Catalog, edits: &[NumberedEdit]) -> Effects {
    resolve_with_rules(Rules::default(), skeleton, catalog, edits)
}

/// The effects of the edits under the rules of one of OpenCrowbar's versions.
pub fn resolve_with_rules(
    rules: Rules,
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
) -> Effects {
    let AppliedEdits { draft, refused, .. } = apply_edits(rules, skeleton, catalog, edits);
    set_values::effects(draft, refused)
}

/// The effects of the edits, and the side effects of each edit by its number.
pub fn resolve_with(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
) -> (Effects, BTreeMap<u32, SideEffects>) {
    let AppliedEdits { draft, refused, side_effects } =
        apply_edits(Rules::default(), skeleton, catalog, edits);
    (set_values::effects(draft, refused), side_effects)
}

/// Edits applied to a skeleton.
pub(super) struct AppliedEdits<'a> {
    pub draft: Draft<'a>,
    pub refused: Vec<Refusal>,
    /// The side effects of each edit, if it has any.
    pub side_effects: BTreeMap<u32, SideEffects>,
}

/// Applies all edits to the skeleton.
pub(super) fn apply_edits<'a>(
    rules: Rules,
    skeleton: &'a Skeleton,
    catalog: &'a Catalog,
    edits: &[NumberedEdit],
) -> AppliedEdits<'a> {
    let mut at_fault = BTreeMap::new();
    // The first pass finds all edits at fault, so the second is usually the last. Another pass is
    // needed if a refused edit causes others to fail, or leaves a version visible that it hid. Each
    // pass refuses at least one more edit, so the loop ends.
    loop {
        let applied = apply_edits_except(&at_fault, Draft::new(skeleton, catalog, rules), edits);
        let refused: BTreeSet<u32> = applied.refused.iter().map(|refusal| refusal.edit).collect();
        let taken = edits.iter().filter(|edit| !refused.contains(&edit.seq));
        let more = applied
            .draft
            .duplicate_role_edits(&taken.filter_map(VisibilityEdit::by).collect::<Vec<_>>());
        if more.is_empty() {
            return applied;
        }
        at_fault.extend(more);
    }
}

fn apply_edits_except<'a>(
    at_fault: &BTreeMap<u32, EditError>,
    mut draft: Draft<'a>,
    edits: &[NumberedEdit],
) -> AppliedEdits<'a> {
    let (mut refused, mut side_effects) = (Vec::new(), BTreeMap::new());
    for NumberedEdit { seq, edit } in edits {
        let result = match at_fault.get(seq) {
            Some(error) => Err(error.clone()),
            None => draft.apply_or_roll_back(|draft| draft.apply(*seq, edit)),
        };
        let own = std::mem::take(&mut draft.side_effects);
        match result {
            Ok(()) if own.is_empty() => {}
            Ok(()) => drop(side_effects.insert(*seq, own)),
            Err(error) => {
                refused.push(Refusal {
                    edit: *seq,
                    code: error.code().into(),
                    reason: error.to_string(),
                });
            }
        }
    }
    AppliedEdits { draft, refused, side_effects }
}

impl Draft<'_> {
    pub fn apply(&mut self, seq: u32, edit: &Edit) -> Result<(), EditError> {
        edit.check()?;
        edit.apply(self, seq)
    }

    /// Requires a machine with a document. Any other node is edited without a proposal.
    pub fn documented(&self, node: NodeId) -> Result<&Fqdn, EditError> {
        let found = self.node(node)?;
        match (found.phantom, found.record_only) {
            (true, _) => Err(EditError::Phantom(self.full_name(found))),
            (_, true) => Err(EditError::BareNode(found.fqdn.clone())),
            _ => Ok(&found.fqdn),
        }
    }
}

/// Data layers merge by key, so data must be an object. A secret in its place could not be merged.
pub(super) fn check_object(data: &Value) -> Result<(), DataError> {
    data::object(data, || "The data of a role".into())?;
    data::check_user_data(data)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::cluster::NoderoleKey;
    use crate::ids::{DeploymentId, RoleName};
    use crate::plan::{MAX_REASON, edit};

    /// The refusals of edits with this reason that name missing things.
    fn refusals(reason: &str) -> Vec<String> {
        let (node, deployment, reason) =
            (NodeId(Uuid::nil()), DeploymentId(Uuid::nil()), reason.to_owned());
        let role = RoleName::parse("app").unwrap();
        let edits = [
            Edit::ExpungeNode(edit::ExpungeNode { node, reason: reason.clone() }),
            Edit::Rerun(edit::Rerun {
                node,
                noderole: NoderoleKey::first(role.clone()),
                reason: reason.clone(),
            }),
            Edit::RerunSlice(edit::RerunSlice { deployment, roles: [role].into(), reason }),
        ];
        let edits: Vec<NumberedEdit> =
            (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit }).collect();
        let effects = resolve(&Skeleton::default(), &Catalog::default(), &edits);
        effects.refused.into_iter().map(|refusal| refusal.code).collect()
    }

    #[test]
    fn invalid_reason_is_refused_before_lookups() {
        assert_eq!(
            refusals(&"ä".repeat(MAX_REASON)),
            ["unknown_node", "unknown_node", "unknown_deployment"]
        );
        assert_eq!(refusals(&"ä".repeat(MAX_REASON + 1)), ["long_reason"; 3]);
        assert_eq!(refusals("nothing\u{202e}epiw"), ["deceptive_reason"; 3]);
    }
}
