//! Sight: what binding in a deployment can reach of the catalog.
//!
//! A deployment sees the barclamps that it pins itself, then those of each ancestor, each barclamp in one version: the nearest pin
//! hides those above it as a whole ([`in_sight`]). So what a newer version dropped is out of sight where that version is used, and
//! two versions never say two things about one role, attribute or jig.
//!
//! Binding asks over and over which role a name means, who provides it, who owns an attribute and which role a jig needs; one pass
//! over the barclamps in sight answers all of it.

use std::collections::BTreeMap;

use super::draft::Draft;
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::catalog::in_sight;
use crate::ids::{AttribName, BarclampName, DeploymentId, JigName, RoleName};

/// What a deployment sees. Where several barclamps have a name the nearest counts, and among equals the first by the barclamp's name.
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
