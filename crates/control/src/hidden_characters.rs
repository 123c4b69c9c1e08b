//! Finds scripts with hidden characters, which make a script run differently than it reads.
//!
//! A script may need invisible characters, so an import accepts it with a warning. But the reviewer
//! may be another person. So the first review of such a script and the catalog repeat the warning.
//! The module [`engine::text`] defines the characters, for the import too.
//!
//! Findings are computed from the stored bytes and are not stored, so a stricter rule also applies
//! to old scripts. Objects are immutable, so a process scans each script once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use api::Problem;
use api::catalog::{HiddenCharacters, HiddenCharactersScript, PinChange, TextPosition};
use engine::Hash;
use engine::blueprint::Difference;
use engine::blueprint::difference::Sides;
use engine::catalog::{Barclamp, Catalog, Role};
use engine::ids::{BarclampName, RoleName};
use engine::text::DeceptiveText;

use crate::Control;
use crate::compute::ComputeLimit;
use crate::problems::from_store;

/// Scripts that a warning lists by name.
const MAX_LISTED: usize = 50;
/// Scripts that one query reads. At the maximum script size, this is 8 MiB.
const AT_ONCE: usize = 32;

/// The scan results by script hash; `None`: nothing found.
#[derive(Debug, Default)]
pub(crate) struct ScanResults(RwLock<BTreeMap<Hash, Option<Arc<DeceptiveText>>>>);

impl ScanResults {
    /// The scripts of `hashes` that have findings.
    async fn among(
        &self,
        control: &Control,
        compute: &ComputeLimit,
        hashes: BTreeSet<Hash>,
    ) -> Result<BTreeMap<Hash, Arc<DeceptiveText>>, Problem> {
        let mut new: Vec<Hash> = Vec::new();
        let mut found = BTreeMap::new();
        let mut sort = |hash: Hash, known: Option<&Option<Arc<DeceptiveText>>>| match known {
            None => new.push(hash),
            Some(None) => {}
            Some(Some(deceit)) => drop(found.insert(hash, Arc::clone(deceit))),
        };
        match self.0.read() {
            Ok(known) => hashes.into_iter().for_each(|hash| sort(hash, known.get(&hash))),
            Err(_) => hashes.into_iter().for_each(|hash| sort(hash, None)),
        }
        for batch in new.chunks(AT_ONCE) {
            let mut connection = control.connection().await?;
            let scripts =
                store::catalog::bodies(&mut connection, batch).await.map_err(from_store)?;
            drop(connection);
            let looked = move || {
                scripts
                    .into_iter()
                    .map(|(hash, body)| (hash, DeceptiveText::within(&body).map(Arc::new)))
            };
            let looked: Vec<_> = compute.work(move || looked().collect()).await?;
            found.extend(
                looked
                    .iter()
                    .filter_map(|(hash, deceit)| Some((*hash, Arc::clone(deceit.as_ref()?)))),
            );
            if let Ok(mut known) = self.0.write() {
                known.extend(looked);
            }
        }
        Ok(found)
    }

    /// Scripts with findings that a difference begins to use: those of new roles, and new ones of
    /// existing roles.
    pub async fn begun(
        &self,
        control: &Control,
        compute: &ComputeLimit,
        difference: &Difference,
        pins: &[PinChange],
        catalog: &Catalog,
    ) -> Result<HiddenCharacters, Problem> {
        let places: BTreeSet<ScriptUse<'_>> = begun(difference, pins, catalog)
            .into_iter()
            .filter_map(|sides| Some((catalog.role(sides.new?).ok()?, sides.old)))
            .flat_map(|(is, old)| {
                added_scripts(is, old.and_then(|old| catalog.role(old).ok()).map(|was| &**was))
            })
            .collect();
        let found = self.among(control, compute, hashes(&places)).await?;
        Ok(hidden_characters_of(places, &found))
    }

    /// The scripts with findings of each of these versions.
    pub async fn scan_versions(
        &self,
        control: &Control,
        compute: &ComputeLimit,
        versions: &[&Barclamp],
        catalog: &Catalog,
    ) -> Result<Vec<HiddenCharacters>, Problem> {
        let of = |version: &Barclamp| -> BTreeSet<ScriptUse<'_>> {
            version
                .roles
                .values()
                .filter_map(|role| catalog.role(*role).ok())
                .flat_map(|role| added_scripts(role, None))
                .collect()
        };
        let uses: Vec<BTreeSet<ScriptUse<'_>>> =
            versions.iter().map(|version| of(version)).collect();
        let found = self.among(control, compute, uses.iter().flat_map(hashes).collect()).await?;
        Ok(uses.into_iter().map(|places| hidden_characters_of(places, &found)).collect())
    }
}

/// A script and the role that uses it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ScriptUse<'r> {
    barclamp: &'r BarclampName,
    role: &'r RoleName,
    file: &'r str,
    hash: Hash,
}

/// The scripts of a role that its old content does not have.
fn added_scripts<'r>(is: &'r Role, was: Option<&'r Role>) -> impl Iterator<Item = ScriptUse<'r>> {
    let new = is.scripts.iter().filter(move |script| {
        !was.is_some_and(|was| was.scripts.iter().any(|s| s.hash == script.hash))
    });
    new.map(|script| ScriptUse {
        barclamp: &is.barclamp,
        role: &is.name,
        file: &script.name,
        hash: script.hash,
    })
}

fn hashes(places: &BTreeSet<ScriptUse<'_>>) -> BTreeSet<Hash> {
    places.iter().map(|script_use| script_use.hash).collect()
}

fn hidden_characters_of(
    places: BTreeSet<ScriptUse<'_>>,
    found: &BTreeMap<Hash, Arc<DeceptiveText>>,
) -> HiddenCharacters {
    let script = |script_use: ScriptUse<'_>| {
        let deceit = found.get(&script_use.hash)?;
        Some(HiddenCharactersScript {
            barclamp: script_use.barclamp.clone(),
            role: script_use.role.clone(),
            file: script_use.file.to_owned(),
            hash: script_use.hash,
            at: TextPosition { line: deceit.line, column: deceit.column },
            description: format!("The script has {deceit}"),
        })
    };
    let mut scripts: Vec<HiddenCharactersScript> = places.into_iter().filter_map(script).collect();
    let more = scripts.len().saturating_sub(MAX_LISTED);
    scripts.truncate(MAX_LISTED);
    HiddenCharacters { scripts, more }
}

/// The contents of new and changed roles, each with the content that it replaces. Binding a role
/// that the deployment already has adds nothing new.
fn begun(
    difference: &Difference,
    pins: &[PinChange],
    catalog: &Catalog,
) -> Vec<Sides<Option<Hash>>> {
    let roles = difference
        .deployments
        .iter()
        .flat_map(|deployment| &deployment.roles)
        .filter_map(|role| role.contents);
    let noderoles = difference
        .nodes
        .iter()
        .flat_map(|node| &node.noderoles)
        .filter_map(|noderole| noderole.contents);
    let noderoles = noderoles.filter(|sides| sides.old.is_some());
    let pinned = pins.iter().flat_map(|pin| &pin.roles).map(|role| role.contents);
    // If the deployment did not see this barclamp before, all roles of the first pinned version are
    // new.
    let first = pins.iter().filter(|pin| pin.old.is_none()).filter_map(|pin| {
        let new = pin.new.as_ref()?;
        let is_it =
            |barclamp: &Barclamp| barclamp.name == pin.barclamp && barclamp.version == new.version;
        catalog.barclamps().map(|(_, barclamp)| barclamp).find(|barclamp| is_it(barclamp))
    });
    let first = first.flat_map(|barclamp| {
        barclamp.roles.values().map(|role| Sides { old: None, new: Some(*role) })
    });
    roles.chain(noderoles).chain(pinned).chain(first).collect()
}
