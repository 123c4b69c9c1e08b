//! Sight: what binding in a deployment can reach of the catalog.
//!
//! A deployment sees the barclamps that it pins itself, then those of each ancestor, each barclamp in one version: the nearest pin
//! hides those above it as a whole ([`in_sight`]). So what a newer version dropped is out of sight where that version is used, and
//! two versions never say two things about one role, attribute or jig.
//!
//! Binding asks over and over which role a name means, who provides it, who owns an attribute and which role a jig needs; one pass
//! over the barclamps in sight answers all of it.
//!
//! Two barclamps that have a role of one name would make that name mean one thing today and another when a third pin comes or goes.
//! So a proposal brings no two such barclamps into one sight ([`Draft::doubling`]), and what is there from the beginning is checked by
//! the same rule ([`twice`]). It is its end that counts: in between two barclamps may have a role of one name, for that is the only way to
//! let the one have it instead of the other, whichever gets its new version first.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::Draft;
use super::edit::{Edit, NumberedEdit};
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::catalog::{Barclamp, Catalog, CatalogError, InSight, in_sight};
use crate::ids::{AttribName, BarclampName, DeploymentId, JigName, RoleName};

/// A role name that a barclamp has and another one in sight has too: the other barclamp, and the role.
///
/// # Errors
/// When the catalog lacks a version in sight.
pub fn twice<'c>(
    catalog: &'c Catalog,
    barclamp: &'c Barclamp,
    sight: &[InSight<'_>],
) -> Result<Option<(&'c BarclampName, &'c RoleName)>, CatalogError> {
    for pin in sight.iter().filter(|pin| *pin.barclamp != barclamp.name) {
        let other = catalog.barclamp(pin.version)?;
        if let Some(role) = barclamp.roles.keys().find(|role| other.roles.contains_key(*role)) {
            return Ok(Some((&other.name, role)));
        }
    }
    Ok(None)
}

/// An edit that took effect and gave a deployment a version of its own, or took that away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pinned<'e> {
    edit: u32,
    deployment: DeploymentId,
    barclamp: &'e BarclampName,
}

impl<'e> Pinned<'e> {
    pub fn by(edit: &'e NumberedEdit) -> Option<Self> {
        let (Edit::UseBarclamp { deployment, barclamp, .. }
        | Edit::InheritBarclamp { deployment, barclamp }) = &edit.edit
        else {
            return None;
        };
        Some(Self { edit: edit.seq, deployment: *deployment, barclamp })
    }
}

/// What deployments see otherwise after all edits than before, as far as it may make a role name mean two things.
#[derive(Default)]
struct Watched<'a> {
    /// The deployments, and who has the roles there that others would have anew: by versions from before, or by edits that stay.
    sights: Vec<(DeploymentId, BTreeMap<&'a RoleName, &'a BarclampName>)>,
    /// What each edit would bring into which of these sights.
    coming: BTreeMap<u32, Vec<Coming<'a>>>,
}

/// Roles that a barclamp has anew in a sight.
struct Coming<'a> {
    sight: usize,
    barclamp: &'a BarclampName,
    roles: Vec<&'a RoleName>,
}

/// The last edit that took effect about a barclamp in a deployment.
type LastPins<'p> = BTreeMap<(DeploymentId, &'p BarclampName), u32>;

impl<'a> Draft<'a> {
    /// The edits by which, after all of them, a role name begins to mean two things somewhere; `pins` are those that took effect, in
    /// their order. Of two that are at odds it is the later one, unless the earlier one goes already. What a barclamp had before is no
    /// edit's, so who takes it too is at fault whenever it does.
    pub fn doubling(&self, pins: &[Pinned<'_>]) -> BTreeMap<u32, EditError> {
        let Watched { mut sights, coming } = match self.watched(pins) {
            Ok(watched) => watched,
            // A version in sight is not in the catalog, so nobody can say what its roles are.
            Err(error) => return pins.iter().map(|pin| (pin.edit, error.clone())).collect(),
        };
        let mut at_fault = BTreeMap::new();
        for (edit, coming) in coming {
            let error = coming.iter().find_map(|coming| {
                let (deployment, holders) = &sights[coming.sight];
                let (role, other) =
                    coming.roles.iter().find_map(|role| holders.get_key_value(*role))?;
                Some(EditError::RoleTwice {
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
            for Coming { sight, barclamp, roles } in coming {
                sights[sight].1.extend(roles.into_iter().map(|role| (role, barclamp)));
            }
        }
        at_fault
    }

    fn watched(&self, pins: &[Pinned<'_>]) -> Result<Watched<'a>, EditError> {
        let repinned = self.repinned();
        let mut watched = Watched::default();
        if repinned.is_empty() {
            return Ok(watched);
        }
        let last: LastPins<'_> =
            pins.iter().map(|pin| ((pin.deployment, pin.barclamp), pin.edit)).collect();
        // Who pins nothing sees what the deployment above sees.
        let pinning =
            self.deployments().filter(|(id, d)| repinned.contains(id) || !d.barclamps.is_empty());
        for (deployment, _) in pinning {
            let chain = self.chain(deployment);
            if chain.iter().any(|id| repinned.contains(id)) {
                self.watch(&mut watched, &chain, deployment, &last)?;
            }
        }
        Ok(watched)
    }

    /// What the version that was seen before had twice already is none: else nobody could use a version that mends it by halves.
    fn watch(
        &self,
        watched: &mut Watched<'a>,
        chain: &[DeploymentId],
        deployment: DeploymentId,
        last: &LastPins<'_>,
    ) -> Result<(), EditError> {
        let catalog = self.catalog;
        let before = in_sight(self.pinned_before(chain));
        let before: BTreeMap<&BarclampName, Hash> =
            before.into_iter().map(|pin| (pin.barclamp, pin.version)).collect();
        let pins: Result<Vec<_>, EditError> =
            chain.iter().map(|id| self.deployment(*id).map(|found| &found.barclamps)).collect();
        let sight = in_sight(pins?);
        let mut anew: BTreeMap<&RoleName, BTreeSet<&BarclampName>> = BTreeMap::new();
        for pin in sight.iter().filter(|pin| before.get(pin.barclamp) != Some(&pin.version)) {
            let known =
                before.get(pin.barclamp).map(|known| catalog.barclamp(*known)).transpose()?;
            let content = catalog.barclamp(pin.version)?;
            let is_new =
                |role: &&RoleName| known.is_none_or(|known| !known.roles.contains_key(*role));
            let roles: Vec<&RoleName> = content.roles.keys().filter(is_new).collect();
            // What is pinned above the version in sight is hidden, so it did not bring it there.
            let by =
                chain.iter().take(pin.up + 1).filter_map(|id| last.get(&(*id, pin.barclamp))).max();
            let Some(edit) = by.filter(|_| !roles.is_empty()) else { continue };
            for role in &roles {
                anew.entry(*role).or_default().insert(&content.name);
            }
            let coming = Coming { sight: watched.sights.len(), barclamp: &content.name, roles };
            watched.coming.entry(*edit).or_default().push(coming);
        }
        if anew.is_empty() {
            return Ok(());
        }
        let mut holders = BTreeMap::new();
        for pin in &sight {
            let content = catalog.barclamp(pin.version)?;
            let had =
                |role: &&RoleName| anew.get(*role).is_some_and(|by| !by.contains(&content.name));
            holders.extend(content.roles.keys().filter(had).map(|role| (role, &content.name)));
        }
        watched.sights.push((deployment, holders));
        Ok(())
    }
}

/// What a deployment sees. No two barclamps in sight have a role of one name; where several provide a name, own an attribute or have a
/// jig of one name the nearest counts, and among equals the first by the barclamp's name.
#[derive(Default)]
pub(super) struct Sight {
    /// The deployment and its ancestors, nearest first.
    pub chain: Vec<DeploymentId>,
    /// For each barclamp, how many deployments up the version in sight is pinned.
    pub barclamps: BTreeMap<BarclampName, usize>,
    /// A role by name: how many deployments up its barclamp is pinned, and its content.
    pub roles: BTreeMap<RoleName, (usize, Hash)>,
    /// For each name, the roles that provide it and can be bound.
    pub providers: BTreeMap<RoleName, BTreeMap<RoleName, Hash>>,
    /// The role that owns an attribute.
    pub owners: BTreeMap<AttribName, RoleName>,
    /// The role that nodes need before a jig can work on them; none for a jig that needs none.
    pub clients: BTreeMap<JigName, Option<RoleName>>,
    /// For each role, those that precede it.
    pub before: BTreeMap<RoleName, Vec<RoleName>>,
}

impl Sight {
    pub fn of(draft: &Draft<'_>, deployment: DeploymentId) -> Result<Self, EditError> {
        let mut sight = Self { chain: draft.chain(deployment), ..Self::default() };
        let pins: Result<Vec<_>, EditError> = sight
            .chain
            .iter()
            .map(|id| draft.deployment(*id).map(|found| &found.barclamps))
            .collect();
        for pin in in_sight(pins?) {
            sight.barclamps.insert(pin.barclamp.clone(), pin.up);
            sight.take_in(draft, pin.up, pin.version)?;
        }
        Ok(sight)
    }

    /// Whether what is of this barclamp, so many deployments up, is hidden by a pin below.
    pub fn hides(&self, barclamp: &BarclampName, up: usize) -> bool {
        self.barclamps.get(barclamp).is_some_and(|at| *at < up)
    }

    fn take_in(&mut self, draft: &Draft<'_>, up: usize, pin: Hash) -> Result<(), EditError> {
        let barclamp = draft.catalog.barclamp(pin)?;
        for (name, hash) in &barclamp.roles {
            if self.roles.contains_key(name) {
                continue;
            }
            self.roles.insert(name.clone(), (up, *hash));
            let role = draft.catalog.role(*hash)?;
            if !role.flags.is_abstract {
                for provided in &role.provides {
                    self.providers.entry(provided.clone()).or_default().insert(name.clone(), *hash);
                }
            }
            for attrib in &role.attribs {
                self.owners.entry(attrib.name.clone()).or_insert_with(|| name.clone());
            }
            for later in &role.preceeds {
                self.before.entry(later.clone()).or_default().push(name.clone());
            }
        }
        for (name, jig) in &barclamp.jigs {
            self.clients.entry(name.clone()).or_insert_with(|| jig.client_role.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use uuid::Uuid;

    use super::super::bind::Rules;
    use super::*;
    use crate::canonical::{self, Object, ObjectKind};
    use crate::catalog::Role;
    use crate::cluster::{Skeleton, SkeletonDeployment};
    use crate::ids::{DeploymentName, NodeId};

    const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));

    /// What is at fault at the first look when these barclamps, named by what their edit is and with these roles, come into use.
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
                let edit = Edit::UseBarclamp { deployment: SYSTEM, barclamp: stored.name, version: object.hash };
                NumberedEdit { seq, edit }
            })
            .collect();
        let system = SkeletonDeployment {
            name: DeploymentName::parse("system").unwrap(),
            parent: None,
            phantom: NodeId(Uuid::from_u128(2)),
            barclamps: BTreeMap::new(),
            roles: BTreeMap::new(),
            inactive_jigs: BTreeSet::new(),
        };
        let mut skeleton = Skeleton::default();
        skeleton.deployments.insert(SYSTEM, system);
        let mut draft = Draft::new(&skeleton, &catalog, Rules::default());
        for NumberedEdit { seq, edit } in &used {
            draft.apply(*seq, edit).unwrap();
        }
        let pins: Vec<Pinned<'_>> = used.iter().filter_map(Pinned::by).collect();
        draft.doubling(&pins).into_keys().collect()
    }

    #[test]
    fn one_look_finds_all_that_are_at_fault() {
        let row: [(&str, &[&str]); 6] = [
            ("f", &["r1", "r2"]),
            ("e", &["r2", "r3"]),
            ("d", &["r3", "r4"]),
            ("c", &["r4", "r5"]),
            ("b", &["r5", "r6"]),
            ("a", &["r6", "r7"]),
        ];
        assert_eq!(at_fault(&row), [2, 4, 6], "each shares a role with the next");
        let spokes: [(&str, &[&str]); 3] = [("a", &["r1"]), ("c", &["r2"]), ("d", &["r3"])];
        let hub: [(&str, &[&str]); 1] = [("b", &["r1", "r2", "r3"])];
        assert_eq!(at_fault(&[hub.as_slice(), spokes.as_slice()].concat()), [2, 3, 4]);
        assert_eq!(at_fault(&[spokes.as_slice(), hub.as_slice()].concat()), [4]);
    }
}
