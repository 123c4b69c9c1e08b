//! Sight: what binding in a deployment can reach of the catalog.
//!
//! A deployment sees the barclamps that it pins itself, then those of each ancestor. Binding asks over and over which role a name
//! means, who provides it, who owns an attribute and which role a jig needs; one pass over the pinned barclamps answers all of it.

use std::collections::BTreeMap;

use super::draft::Draft;
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::ids::{AttribName, DeploymentId, JigName, RoleName};

/// What a deployment sees. Where several have a name the nearest counts, and among equals the first by the barclamp's name.
#[derive(Default)]
pub(super) struct Sight {
    /// The deployment and its ancestors, nearest first.
    pub chain: Vec<DeploymentId>,
    /// A role by name: how many deployments up its barclamp is pinned, and its content.
    pub roles: BTreeMap<RoleName, (usize, Hash)>,
    /// For each name, the roles that provide it and can be bound.
    pub providers: BTreeMap<RoleName, BTreeMap<RoleName, Hash>>,
    /// The role that owns an attribute.
    pub owners: BTreeMap<AttribName, RoleName>,
    /// The roles that nodes need before a jig can work on them.
    pub clients: BTreeMap<JigName, Vec<RoleName>>,
    /// For each role, those that precede it.
    pub before: BTreeMap<RoleName, Vec<RoleName>>,
}

impl Sight {
    pub fn of(draft: &Draft<'_>, deployment: DeploymentId) -> Result<Self, EditError> {
        let mut sight = Self { chain: draft.chain(deployment), ..Self::default() };
        for (up, id) in sight.chain.clone().into_iter().enumerate() {
            for pin in draft.deployment(id)?.barclamps.values() {
                sight.take_in(draft, up, *pin)?;
            }
        }
        Ok(sight)
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
            self.clients.entry(name.clone()).or_default().extend(jig.client_role.clone());
        }
        Ok(())
    }
}
