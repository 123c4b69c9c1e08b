//! Role names that would have two meanings in one deployment.
//!
//! If two visible barclamps had a role of the same name, its meaning would depend on further pins.
//! A proposal must therefore not make two such barclamps visible in one deployment
//! ([`Draft::duplicate_role_edits`]). The same rule checks existing state ([`duplicate_role`]).
//! Only the result of the proposal counts. Between edits, two barclamps may share a role name.
//! Otherwise, a role could not move from one to the other.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::Draft;
use super::edit::{self, Edit, NumberedEdit};
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::catalog::{Barclamp, Catalog, CatalogError, VisibleBarclamp, visible_barclamps};
use crate::ids::{BarclampName, DeploymentId, RoleName};

/// A role name that the barclamp and another visible one both have: the other barclamp, and the
/// role.
///
/// # Errors
/// [`CatalogError`] if the catalog lacks a visible version.
pub fn duplicate_role<'c>(
    catalog: &'c Catalog,
    barclamp: &'c Barclamp,
    visible: &[VisibleBarclamp<'_>],
) -> Result<Option<(&'c BarclampName, &'c RoleName)>, CatalogError> {
    for pin in visible.iter().filter(|pin| *pin.barclamp != barclamp.name) {
        let other = catalog.barclamp(pin.version)?;
        if let Some(role) = barclamp.roles.keys().find(|role| other.roles.contains_key(*role)) {
            return Ok(Some((&other.name, role)));
        }
    }
    Ok(None)
}

/// An edit that took effect and changed which barclamps a deployment sees.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisibilityEdit<'e> {
    edit: u32,
    deployment: DeploymentId,
    /// The barclamp that the edit pinned or unpinned; `None` if it moved the deployment.
    barclamp: Option<&'e BarclampName>,
}

impl<'e> VisibilityEdit<'e> {
    pub fn by(edit: &'e NumberedEdit) -> Option<Self> {
        let (deployment, barclamp) = match &edit.edit {
            Edit::UseBarclamp(edit::UseBarclamp { deployment, barclamp, .. })
            | Edit::InheritBarclamp(edit::InheritBarclamp { deployment, barclamp }) => {
                (*deployment, Some(barclamp))
            }
            Edit::MoveDeployment(edit::MoveDeployment { deployment, .. }) => (*deployment, None),
            _ => return None,
        };
        Some(Self { edit: edit.seq, deployment, barclamp })
    }
}

/// The changes in what deployments see that could give a role name two meanings.
#[derive(Default)]
struct ContestedNames<'a> {
    /// The deployments, each with the barclamp that already has a contested role: from earlier
    /// versions, or from edits that stay.
    deployments: Vec<(DeploymentId, BTreeMap<&'a RoleName, &'a BarclampName>)>,
    /// The new roles that each edit makes visible.
    coming: BTreeMap<u32, Vec<NewRoles<'a>>>,
}

/// New roles of a barclamp in one deployment.
struct NewRoles<'a> {
    /// Index in `deployments`.
    deployment: usize,
    barclamp: &'a BarclampName,
    roles: Vec<&'a RoleName>,
}

/// The last edit of a barclamp's pin in a deployment, and the last move of a deployment (`None`).
type LastEdits<'p> = BTreeMap<(DeploymentId, Option<&'p BarclampName>), u32>;

/// The last edit that made a pin visible, which is `up` levels above the first deployment of the
/// chain.
fn made_visible(
    last: &LastEdits<'_>,
    chain: &[DeploymentId],
    barclamp: &BarclampName,
    up: usize,
) -> Option<u32> {
    // Pins above the visible version are hidden, so they did not make it visible. A move shows a
    // deployment what is above it.
    let pins = chain.iter().take(up + 1).filter_map(|id| last.get(&(*id, Some(barclamp))));
    let moves = chain.iter().take(up).filter_map(|id| last.get(&(*id, None)));
    pins.chain(moves).max().copied()
}

impl<'a> Draft<'a> {
    /// The edits that give a role name two meanings in some deployment after all edits. `edits` are
    /// those that took effect, in order. If two edits conflict, the later one is at fault, unless
    /// the earlier one is refused already. An edit that conflicts with a barclamp from before the
    /// edits is always at fault.
    pub fn duplicate_role_edits(&self, edits: &[VisibilityEdit<'_>]) -> BTreeMap<u32, EditError> {
        let ContestedNames { mut deployments, coming } = match self.contested(edits) {
            Ok(contested) => contested,
            // The catalog lacks a visible version, so its roles are unknown.
            Err(error) => return edits.iter().map(|edit| (edit.edit, error.clone())).collect(),
        };
        let mut at_fault = BTreeMap::new();
        for (edit, coming) in coming {
            let error = coming.iter().find_map(|coming| {
                let (deployment, holders) = &deployments[coming.deployment];
                let (role, other) =
                    coming.roles.iter().find_map(|role| holders.get_key_value(*role))?;
                Some(EditError::DuplicateRole {
                    barclamp: coming.barclamp.clone(),
                    other: (*other).clone(),
                    role: (*role).clone(),
                    deployment: self.deployment_name(*deployment),
                })
            });
            if let Some(error) = error {
                at_fault.insert(edit, error);
                continue;
            }
            for NewRoles { deployment, barclamp, roles } in coming {
                deployments[deployment].1.extend(roles.into_iter().map(|role| (role, barclamp)));
            }
        }
        at_fault
    }

    fn contested(&self, edits: &[VisibilityEdit<'_>]) -> Result<ContestedNames<'a>, EditError> {
        let changed = self.repinned_or_moved();
        let mut contested = ContestedNames::default();
        if changed.is_empty() {
            return Ok(contested);
        }
        let last: LastEdits<'_> =
            edits.iter().map(|edit| ((edit.deployment, edit.barclamp), edit.edit)).collect();
        // A deployment without pins sees the same as its parent.
        let pinning =
            self.deployments().filter(|(id, d)| changed.contains(id) || !d.barclamps.is_empty());
        for (deployment, _) in pinning {
            let chain = self.chain(deployment);
            if chain.iter().any(|id| changed.contains(id)) {
                self.watch(&mut contested, &chain, deployment, &last)?;
            }
        }
        Ok(contested)
    }

    /// Records conflicts that are new. Conflicts of the previous version are ignored; otherwise, no
    /// version that fixes only some of them could be used.
    fn watch(
        &self,
        contested: &mut ContestedNames<'a>,
        chain: &[DeploymentId],
        deployment: DeploymentId,
        last: &LastEdits<'_>,
    ) -> Result<(), EditError> {
        let catalog = self.catalog;
        let before = visible_barclamps(self.original_pins(chain));
        let before: BTreeMap<&BarclampName, Hash> =
            before.into_iter().map(|pin| (pin.barclamp, pin.version)).collect();
        let pins: Result<Vec<_>, EditError> =
            chain.iter().map(|id| self.deployment(*id).map(|found| &found.barclamps)).collect();
        let visible = visible_barclamps(pins?);
        let mut newly_visible: BTreeMap<&RoleName, BTreeSet<&BarclampName>> = BTreeMap::new();
        for pin in visible.iter().filter(|pin| before.get(pin.barclamp) != Some(&pin.version)) {
            let known =
                before.get(pin.barclamp).map(|known| catalog.barclamp(*known)).transpose()?;
            let content = catalog.barclamp(pin.version)?;
            let is_new =
                |role: &&RoleName| known.is_none_or(|known| !known.roles.contains_key(*role));
            let roles: Vec<&RoleName> = content.roles.keys().filter(is_new).collect();
            let by = made_visible(last, chain, pin.barclamp, pin.up);
            let Some(edit) = by.filter(|_| !roles.is_empty()) else { continue };
            for role in &roles {
                newly_visible.entry(*role).or_default().insert(&content.name);
            }
            let coming = NewRoles {
                deployment: contested.deployments.len(),
                barclamp: &content.name,
                roles,
            };
            contested.coming.entry(edit).or_default().push(coming);
        }
        if newly_visible.is_empty() {
            return Ok(());
        }
        let mut holders = BTreeMap::new();
        for pin in &visible {
            let content = catalog.barclamp(pin.version)?;
            let had = |role: &&RoleName| {
                newly_visible.get(*role).is_some_and(|by| !by.contains(&content.name))
            };
            holders.extend(content.roles.keys().filter(had).map(|role| (role, &content.name)));
        }
        contested.deployments.push((deployment, holders));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use uuid::Uuid;

    use super::super::rules::Rules;
    use super::*;
    use crate::canonical::{self, Object, ObjectKind};
    use crate::catalog::Role;
    use crate::cluster::{Skeleton, SkeletonDeployment};
    use crate::ids::{DeploymentName, NodeId};

    const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));

    /// The edits at fault in the first pass, where each edit adds a barclamp of this name with
    /// these roles.
    fn at_fault(barclamps: &[(&str, &[&str])]) -> Vec<u32> {
        let mut catalog = Catalog::default();
        let used: Vec<NumberedEdit> = (1..)
            .zip(barclamps)
            .map(|(seq, (label, roles))| {
                let mut content = BTreeMap::new();
                for role in *roles {
                    let role = json!({"name": role, "barclamp": label, "jig": "noop", "jig_class": "noop"});
                    let role: Role = serde_json::from_value(role).unwrap();
                    let hash = canonical::hash(&role).unwrap();
                    content.insert(role.name.clone(), hash);
                    catalog.add_role(hash, Arc::new(role));
                }
                let stored = json!({"name": label, "version": "1", "roles": content});
                let stored: Barclamp = serde_json::from_value(stored).unwrap();
                let object = Object::of(ObjectKind::Barclamp, &stored).unwrap();
                catalog.add(&object).unwrap();
                let edit = Edit::UseBarclamp(edit::UseBarclamp { deployment: SYSTEM, barclamp: stored.name, version: object.hash });
                NumberedEdit { seq, edit }
            })
            .collect();
        let system = SkeletonDeployment {
            name: DeploymentName::parse("system").unwrap(),
            parent: None,
            phantom: NodeId(Uuid::from_u128(2)),
            barclamps: BTreeMap::new(),
            roles: BTreeMap::new(),
            roles_with_data: BTreeSet::new(),
            inactive_jigs: BTreeSet::new(),
        };
        let mut skeleton = Skeleton::default();
        skeleton.deployments.insert(SYSTEM, system);
        let mut draft = Draft::new(&skeleton, &catalog, Rules::default());
        for NumberedEdit { seq, edit } in &used {
            draft.apply(*seq, edit).unwrap();
        }
        let edits: Vec<VisibilityEdit<'_>> = used.iter().filter_map(VisibilityEdit::by).collect();
        draft.duplicate_role_edits(&edits).into_keys().collect()
    }

    #[test]
    fn one_pass_finds_all_conflicting_edits() {
        let row: [(&str, &[&str]); 6] = [
            ("f", &["r1", "r2"]),
            ("e", &["r2", "r3"]),
            ("d", &["r3", "r4"]),
            ("c", &["r4", "r5"]),
            ("b", &["r5", "r6"]),
            ("a", &["r6", "r7"]),
        ];
        assert_eq!(at_fault(&row), [2, 4, 6], "each edit shares a role with the next one");
        let spokes: [(&str, &[&str]); 3] = [("a", &["r1"]), ("c", &["r2"]), ("d", &["r3"])];
        let hub: [(&str, &[&str]); 1] = [("b", &["r1", "r2", "r3"])];
        assert_eq!(at_fault(&[hub.as_slice(), spokes.as_slice()].concat()), [2, 3, 4]);
        assert_eq!(at_fault(&[spokes.as_slice(), hub.as_slice()].concat()), [4]);
    }
}
