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
    twice_among(catalog, barclamp, sight, |_| true)
}

/// The same, asked of some of its roles.
fn twice_among<'c>(
    catalog: &'c Catalog,
    barclamp: &'c Barclamp,
    sight: &[InSight<'_>],
    counts: impl Fn(&RoleName) -> bool,
) -> Result<Option<(&'c BarclampName, &'c RoleName)>, CatalogError> {
    for pin in sight.iter().filter(|pin| *pin.barclamp != barclamp.name) {
        let other = catalog.barclamp(pin.version)?;
        let mut both = barclamp.roles.keys().filter(|role| other.roles.contains_key(*role));
        if let Some(role) = both.find(|role| counts(role)) {
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
        let (Edit::UseBarclamp { deployment, barclamp, .. } | Edit::InheritBarclamp { deployment, barclamp }) =
            &edit.edit
        else {
            return None;
        };
        Some(Self { edit: edit.seq, deployment: *deployment, barclamp })
    }
}

/// A role name that begins to mean two things.
struct Doubled<'a> {
    deployment: DeploymentId,
    /// It and its ancestors up to the one whose version of the barclamp is in sight. What those above pin is hidden.
    chain: Vec<DeploymentId>,
    /// The same for the other one.
    other_chain: Vec<DeploymentId>,
    /// The barclamp whose version in sight has the role anew.
    barclamp: BarclampName,
    other: &'a BarclampName,
    role: &'a RoleName,
}

impl Doubled<'_> {
    /// The edits that brought the two versions into sight, the later one first. That one is at fault; the other one is none where the
    /// version was seen before.
    fn edits(&self, pins: &[Pinned<'_>]) -> Option<(u32, Option<u32>)> {
        let last = |barclamp: &BarclampName, chain: &[DeploymentId]| {
            let of_it = pins.iter().filter(|pin| pin.barclamp == barclamp && chain.contains(&pin.deployment));
            of_it.map(|pin| pin.edit).max()
        };
        let (one, two) = (last(&self.barclamp, &self.chain), last(self.other, &self.other_chain));
        Some((one.max(two)?, one.min(two)))
    }

    fn error(&self, draft: &Draft<'_>) -> EditError {
        EditError::RoleTwice {
            barclamp: self.barclamp.clone(),
            other: self.other.clone(),
            role: self.role.clone(),
            deployment: draft.deployment_name(self.deployment),
        }
    }
}

impl<'a> Draft<'a> {
    /// The edits by which, after all of them, a role name begins to mean two things somewhere; `pins` are those that took effect. Of two
    /// that are at odds it is the later one, unless the earlier one goes already.
    pub fn doubling(&self, pins: &[Pinned<'_>]) -> BTreeMap<u32, EditError> {
        let doubled = match self.doubled() {
            Ok(doubled) => doubled,
            // A version in sight is not in the catalog, so nobody can say what its roles are.
            Err(error) => return pins.iter().map(|pin| (pin.edit, error.clone())).collect(),
        };
        let found: Vec<_> = doubled.iter().filter_map(|found| Some((found, found.edits(pins)?))).collect();
        let at_fault: BTreeSet<u32> = found.iter().map(|(_, (later, _))| *later).collect();
        let stands = |earlier: &Option<u32>| earlier.is_none_or(|earlier| !at_fault.contains(&earlier));
        let first = found.iter().filter(|(_, (_, earlier))| stands(earlier));
        first.map(|(found, (later, _))| (*later, found.error(self))).collect()
    }

    /// What the version that was seen `before` had twice already is none: else nobody could use a version that mends it by halves.
    fn doubled(&self) -> Result<Vec<Doubled<'a>>, EditError> {
        let (catalog, repinned) = (self.catalog, self.repinned());
        let mut doubled = Vec::new();
        if repinned.is_empty() {
            return Ok(doubled);
        }
        // Who pins nothing sees what the deployment above sees.
        let pinning = self.deployments().filter(|(id, d)| repinned.contains(id) || !d.barclamps.is_empty());
        for (deployment, _) in pinning {
            let chain = self.chain(deployment);
            if !chain.iter().any(|id| repinned.contains(id)) {
                continue;
            }
            let before = in_sight(self.pinned_before(&chain));
            let before: BTreeMap<&BarclampName, Hash> =
                before.into_iter().map(|pin| (pin.barclamp, pin.version)).collect();
            let pins: Result<Vec<_>, EditError> =
                chain.iter().map(|id| self.deployment(*id).map(|found| &found.barclamps)).collect();
            let sight = in_sight(pins?);
            for pin in sight.iter().filter(|pin| before.get(pin.barclamp) != Some(&pin.version)) {
                let known = before.get(pin.barclamp).map(|known| catalog.barclamp(*known)).transpose()?;
                let anew = |role: &RoleName| known.is_none_or(|known| !known.roles.contains_key(role));
                if let Some((other, role)) = twice_among(catalog, catalog.barclamp(pin.version)?, &sight, anew)? {
                    let up = sight.iter().find(|pin| pin.barclamp == other).map_or(0, |pin| pin.up);
                    let [chain, other_chain] = [pin.up, up].map(|up| chain.iter().take(up + 1).copied().collect());
                    doubled.push(Doubled {
                        deployment,
                        chain,
                        other_chain,
                        barclamp: pin.barclamp.clone(),
                        other,
                        role,
                    });
                }
            }
        }
        Ok(doubled)
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
        let pins: Result<Vec<_>, EditError> =
            sight.chain.iter().map(|id| draft.deployment(*id).map(|found| &found.barclamps)).collect();
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
