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
//! So no edit brings two such barclamps into one sight ([`Draft::check_names`]), and what is there from the beginning is checked by
//! the same rule ([`twice`]).

use std::collections::BTreeMap;

use super::draft::Draft;
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

impl Draft<'_> {
    /// Refuses a pin by which a role name begins to mean two things somewhere. What the version that was seen there `before` had twice
    /// already is no reason: else nobody could use a version that mends it by halves.
    pub fn check_names(
        &self,
        at: DeploymentId,
        barclamp: &BarclampName,
        before: Option<Hash>,
    ) -> Result<(), EditError> {
        let pinned = self.deployment(at)?.barclamps.get(barclamp);
        let Some(version) = pinned else { return Ok(()) };
        let mut new = (**self.catalog.barclamp(*version)?).clone();
        if let Some(before) = before {
            let known = self.catalog.barclamp(before)?;
            new.roles.retain(|role, _| !known.roles.contains_key(role));
        }
        // Who pins nothing sees what the deployment above sees.
        let pinning = self.deployments().filter(|(id, d)| *id == at || !d.barclamps.is_empty()).map(|(id, _)| id);
        for deployment in pinning {
            let chain = self.chain(deployment);
            let hidden = chain
                .iter()
                .take_while(|id| **id != at)
                .any(|id| self.deployment(*id).is_ok_and(|found| found.barclamps.contains_key(barclamp)));
            if hidden || !chain.contains(&at) {
                continue;
            }
            let pins: Result<Vec<_>, EditError> =
                chain.iter().map(|id| self.deployment(*id).map(|found| &found.barclamps)).collect();
            if let Some((other, role)) = twice(self.catalog, &new, &in_sight(pins?))? {
                return Err(EditError::RoleTwice {
                    barclamp: barclamp.clone(),
                    other: other.clone(),
                    role: role.clone(),
                    deployment: self.deployment_name(deployment),
                });
            }
        }
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
