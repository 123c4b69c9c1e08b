//! The catalog: versions of barclamps, the deployments that use them, and the differences between
//! versions.
//!
//! Differences are computed from the two versions, which are stored permanently. So the result is
//! the same at import, years later, and in the version choice of a proposal.

use std::collections::BTreeMap;

use api::Problem;
use api::catalog::{BarclampSort, BarclampsQuery};
use api::catalog::{BarclampVersion, CatalogPage};
use api::listing::{Cursor, Key, Limit};
use api::views::board::{InheritedVersion, OwnVersion, VersionChoice};
use engine::Hash;
use engine::catalog::version::{compare, order};
use engine::catalog::{Barclamp, Catalog, visible_barclamps};
use engine::ids::{BarclampName, DeploymentId};
use engine::plan::Effects;

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{self, at};
use crate::{Control, cursor};

/// Newest versions of a barclamp that a board offers, in addition to the version in use.
const MAX_OFFERED: usize = 10;

/// Versions per page of the catalog.
const PAGE: usize = 100;

fn unknown_version(hash: &str) -> Problem {
    Problem::invalid(format!(
        "after: no version has the content {}. Omit it to start at the first page.",
        text::quoted(hash)
    ))
}

pub(crate) fn missing(error: engine::catalog::CatalogError) -> Problem {
    tracing::error!(%error, "an imported barclamp is incomplete");
    Problem::internal()
}

/// One line for each item that the old version has and the new one lacks. Empty if the versions are
/// equal.
fn lacks(catalog: &Catalog, old: Hash, new: Hash) -> Result<Vec<String>, Problem> {
    let (old, new) =
        (catalog.barclamp(old).map_err(missing)?, catalog.barclamp(new).map_err(missing)?);
    Ok(compare(old, new, catalog).map_err(missing)?.removed_parts())
}

impl Control {
    /// A page of the imported versions. By default they are sorted by barclamp, with the newest
    /// version first.
    pub async fn find_barclamps(
        &self,
        actor: &Actor,
        query: &BarclampsQuery,
    ) -> Result<CatalogPage, Problem> {
        actor.require(Permission::Viewer)?;
        let name = text::filter_text(&query.filter)?.unwrap_or_default();
        let mut connection = self.connection().await?;
        let mut rows = store::catalog::barclamps(&mut connection).await.map_err(from_store)?;
        drop(connection);
        rows.sort_by(|a, b| {
            let newest_first =
                || order(&b.version, &a.version).then_with(|| b.version.cmp(&a.version));
            a.name.cmp(&b.name).then_with(newest_first)
        });
        // Imported versions are never deleted, so the present has all of them.
        let present = self.current_state().await?;
        // The preceding version of each row: the next row in version order, if it has the same
        // name.
        let before =
            |index: usize| rows.get(index + 1).filter(|older| older.name == rows[index].name);
        let mut indexes: Vec<usize> =
            (0..rows.len()).filter(|index| rows[*index].name.as_str().contains(name)).collect();
        let roles = |index: &usize| {
            present.catalog.barclamp(rows[*index].hash).map_or(0, |barclamp| barclamp.roles.len())
        };
        // The sort is stable, so equal rows keep their order.
        match query.sort.by {
            BarclampSort::Name => {}
            BarclampSort::Imported => indexes.sort_by_key(|index| rows[*index].imported_at),
            BarclampSort::Roles => indexes.sort_by_cached_key(roles),
        }
        if query.sort.descending {
            indexes.reverse();
        }
        let first = match cursor::decode(query.sort, query.after.as_ref())?.as_deref() {
            Some([Key::Text(hash)]) => {
                1 + indexes
                    .iter()
                    .position(|index| rows[*index].hash.to_string() == *hash)
                    .ok_or_else(|| unknown_version(hash))?
            }
            _ => 0,
        };
        let size = Limit::rows(query.limit, PAGE);
        let more = indexes.len() > first.saturating_add(size);
        let indexes: Vec<usize> = indexes.into_iter().skip(first).take(size).collect();
        let page: Vec<&Barclamp> = (indexes.iter())
            .map(|index| present.catalog.barclamp(rows[*index].hash).map(|barclamp| &**barclamp))
            .collect::<Result<_, _>>()
            .map_err(missing)?;
        let hidden_characters = self
            .cache
            .hidden_character_scans
            .scan_versions(self, &self.compute_for(actor), &page, &present.catalog)
            .await?;
        let mut versions = Vec::new();
        for ((index, barclamp), hidden_characters) in
            indexes.into_iter().zip(page).zip(hidden_characters)
        {
            let (row, before) = (&rows[index], before(index));
            let using = present
                .skeleton
                .deployments
                .values()
                .filter(|d| d.barclamps.get(&row.name) == Some(&row.hash));
            versions.push(BarclampVersion {
                barclamp: row.name.clone(),
                version: row.version.clone(),
                hash: row.hash.to_string(),
                description: barclamp.description.clone(),
                roles: barclamp.roles.len(),
                imported: at(row.imported_at),
                by: row.by.clone(),
                used_by: using.map(|d| d.name.clone()).collect(),
                previous: before.map(|older| older.version.clone()),
                removed_parts: match before {
                    Some(older) => lacks(&present.catalog, older.hash, row.hash)?,
                    None => Vec::new(),
                },
                hidden_characters,
            });
        }
        let next = versions.last().filter(|_| more);
        let next =
            next.map(|version| Cursor::after_row(query.sort, &[Key::from(version.hash.as_str())]));
        Ok(CatalogPage { versions, next })
    }
}

/// The versions that a deployment can use. For each: the items that it lacks compared to the
/// version in use.
pub(crate) fn choices(
    present: &CurrentState,
    deployment: DeploymentId,
    effects: Option<&Effects>,
) -> Result<Vec<VersionChoice>, Problem> {
    let chain = present.skeleton.chain(deployment).into_iter().map(|id| own(present, id, effects));
    let chain: Vec<_> = chain.collect();
    let in_use: BTreeMap<BarclampName, Hash> = visible_barclamps(&chain)
        .into_iter()
        .map(|pin| (pin.barclamp.clone(), pin.version))
        .collect();
    let mut versions: BTreeMap<BarclampName, Vec<(String, Hash)>> = BTreeMap::new();
    for (hash, barclamp) in present.catalog.barclamps() {
        versions.entry(barclamp.name.clone()).or_default().push((barclamp.version.clone(), hash));
    }
    let offered = versions.into_iter().flat_map(|(barclamp, mut all)| {
        all.sort_by(|a, b| order(&b.0, &a.0).then(a.1.cmp(&b.1)));
        let used = in_use.get(&barclamp).copied();
        let shown = all
            .into_iter()
            .enumerate()
            .filter(move |(n, (_, hash))| *n < MAX_OFFERED || used == Some(*hash));
        shown.map(move |(_, (version, hash))| (barclamp.clone(), version, hash))
    });
    let choice = |(barclamp, version, hash): (BarclampName, String, Hash)| {
        let used = in_use.get(&barclamp).copied();
        let lacks =
            used.map(|used| lacks(&present.catalog, used, hash)).transpose()?.unwrap_or_default();
        Ok(VersionChoice { in_use: used == Some(hash), barclamp, version, hash, missing: lacks })
    };
    offered.map(choice).collect()
}

/// The versions that a deployment pins itself, with the draft applied.
pub(crate) fn own(
    present: &CurrentState,
    id: DeploymentId,
    effects: Option<&Effects>,
) -> BTreeMap<BarclampName, Hash> {
    let known = present.skeleton.deployments.get(&id).map(|found| found.barclamps.clone());
    let mut pins = known.unwrap_or_default();
    let Some(effects) = effects else { return pins };
    for removed in effects.unpinned.iter().filter(|removed| removed.deployment == id) {
        pins.remove(&removed.barclamp);
    }
    let new = effects.barclamps.iter().filter(|pin| pin.deployment == id);
    pins.extend(new.map(|pin| (pin.barclamp.clone(), pin.version)));
    pins
}

/// The versions that a deployment pins itself, each with the version that it would inherit without
/// its pin.
pub(crate) fn own_versions(
    present: &CurrentState,
    deployment: DeploymentId,
    effects: &Effects,
) -> Result<Vec<OwnVersion>, Problem> {
    let catalog = &present.catalog;
    let called = |hash: Hash| {
        catalog.barclamp(hash).map_or_else(|_| hash.short(), |found| found.version.clone())
    };
    let above = |barclamp: &BarclampName| {
        present.skeleton.chain(deployment).into_iter().skip(1).find_map(|id| {
            let version = *own(present, id, Some(effects)).get(barclamp)?;
            Some((version, present.skeleton.deployments.get(&id)?.name.clone()))
        })
    };
    let version_view = |(barclamp, hash): (BarclampName, Hash)| {
        let above = above(&barclamp).map(|(version, from)| {
            let lacks = lacks(catalog, hash, version)?;
            Ok(InheritedVersion { from, version: called(version), hash: version, missing: lacks })
        });
        Ok(OwnVersion { inherited: above.transpose()?, version: called(hash), hash, barclamp })
    };
    own(present, deployment, Some(effects)).into_iter().map(version_view).collect()
}
