//! VisibleCatalog: the part of the catalog that is visible in a deployment.
//!
//! A deployment sees the barclamps that it or an ancestor pins, each in one version. The nearest
//! pin hides all others ([`visible_barclamps`]). A role that a newer version dropped is therefore
//! invisible where that version is used. Two versions never define one role, attribute or jig
//! twice.
//!
//! Binding repeatedly looks up roles by name, providers, owners of attributes and client roles of
//! jigs. One pass over the visible barclamps builds an index for all of these.

use std::collections::BTreeMap;

use super::refusal::EditError;
use crate::canonical::Hash;
use crate::catalog::{Catalog, visible_barclamps};
use crate::ids::{AttribName, BarclampName, DeploymentId, JigName, RoleName};

/// The catalog entries that a deployment sees. No two visible barclamps have a role of the same
/// name. If several barclamps define the same provided name, attribute or jig, the nearest one is
/// used. Among equally near ones, the first by name is used.
#[derive(Default)]
pub(super) struct VisibleCatalog {
    /// The deployment and its ancestors, nearest first.
    pub chain: Vec<DeploymentId>,
    /// For each barclamp, the number of levels above the deployment at which the version is pinned.
    pub barclamps: BTreeMap<BarclampName, usize>,
    /// Roles by name, with the level of the pin of their barclamp, and their content hash.
    pub roles: BTreeMap<RoleName, (usize, Hash)>,
    /// For each name, the bindable roles that provide it.
    pub providers: BTreeMap<RoleName, BTreeMap<RoleName, Hash>>,
    /// The role that owns each attribute.
    pub owners: BTreeMap<AttribName, RoleName>,
    /// The role that a node needs for each jig; `None` if the jig needs none.
    pub clients: BTreeMap<JigName, Option<RoleName>>,
    /// For each role, the roles that precede it.
    pub before: BTreeMap<RoleName, Vec<RoleName>>,
}

impl VisibleCatalog {
    /// The catalog that is visible to the first deployment of `chain`, whose deployments have these
    /// pins.
    pub fn of<'p>(
        catalog: &Catalog,
        chain: Vec<DeploymentId>,
        pins: impl IntoIterator<Item = &'p BTreeMap<BarclampName, Hash>>,
    ) -> Result<Self, EditError> {
        let mut visible_catalog = Self { chain, ..Self::default() };
        for pin in visible_barclamps(pins) {
            visible_catalog.barclamps.insert(pin.barclamp.clone(), pin.up);
            visible_catalog.add_pin(catalog, pin.up, pin.version)?;
        }
        Ok(visible_catalog)
    }

    /// Whether a nearer pin hides entries of this barclamp at level `up`.
    pub fn hides(&self, barclamp: &BarclampName, up: usize) -> bool {
        self.barclamps.get(barclamp).is_some_and(|at| *at < up)
    }

    fn add_pin(&mut self, catalog: &Catalog, up: usize, pin: Hash) -> Result<(), EditError> {
        let barclamp = catalog.barclamp(pin)?;
        for (name, hash) in &barclamp.roles {
            if self.roles.contains_key(name) {
                continue;
            }
            self.roles.insert(name.clone(), (up, *hash));
            let role = catalog.role(*hash)?;
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
