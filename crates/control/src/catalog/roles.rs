//! The catalog by role: the list of roles, the details of a role, the role graph, and the list of
//! imports.
//!
//! A role is shown as defined in the newest version of its barclamp. Noderoles may use older
//! versions, so counts include all versions. Import records are shown as they were stored.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::catalog::{
    ImportPage, ImportReport, ImportSort, ImportsQuery, MAX_GRAPH_ROLES, MAX_VERSIONS,
    ResolvedName, RoleEdge, RoleEdgeReason, RoleGraph, RoleGraphQuery, RolePage, RoleQuery,
    RoleSort, RoleSummary, RoleUse, RoleVersion, RoleVertex, RoleView, RolesQuery,
};
use api::deployments::AttribView;
use api::listing::{Cursor, Key, Limit, PAGE_SIZE};
use engine::Hash;
use engine::catalog::version::{newest, order};
use engine::catalog::{Barclamp, Catalog, Flags, Role};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, RoleName};
use engine::walk::reachable;
use serde_json::Value;

use crate::catalog::barclamps::missing;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{self, at, quoted};
use crate::{Control, cursor};

/// A role in the newest version of its barclamp.
#[derive(Clone, Copy)]
struct NewestRole<'c> {
    version: &'c Barclamp,
    hash: Hash,
    role: &'c Role,
}

/// All roles of the newest versions, by barclamp and name.
fn newest_roles(catalog: &Catalog) -> Result<Vec<NewestRole<'_>>, Problem> {
    let mut all = Vec::new();
    for (_, version) in newest(catalog).into_values() {
        for hash in version.roles.values() {
            all.push(NewestRole {
                version,
                hash: *hash,
                role: catalog.role(*hash).map_err(missing)?,
            });
        }
    }
    Ok(all)
}

/// The number of noderoles per role and deployment.
type Bound = BTreeMap<(BarclampName, RoleName), BTreeMap<DeploymentId, usize>>;

fn bound(present: &CurrentState) -> Bound {
    let mut by_content: BTreeMap<(Hash, DeploymentId), usize> = BTreeMap::new();
    for noderole in present.skeleton.nodes.values().flat_map(|node| node.noderoles.values()) {
        *by_content.entry((noderole.role, noderole.deployment)).or_default() += 1;
    }
    let mut bound = Bound::new();
    let unbound = present.skeleton.deployments.iter();
    let unbound = unbound
        .flat_map(|(id, deployment)| deployment.roles.values().map(|hash| ((*hash, *id), 0)));
    for ((hash, deployment), count) in by_content.into_iter().chain(unbound) {
        let Ok(role) = present.catalog.role(hash) else { continue };
        let of_role = bound.entry((role.barclamp.clone(), role.name.clone())).or_default();
        *of_role.entry(deployment).or_default() += count;
    }
    bound
}

/// The names of the flags that are set, as in barclamp files.
fn flags(flags: &Flags) -> Vec<String> {
    let Ok(Value::Object(all)) = serde_json::to_value(flags) else { return Vec::new() };
    all.into_iter().filter(|(_, set)| *set == Value::Bool(true)).map(|(word, _)| word).collect()
}

fn keys(role: &RoleSummary, sort: RoleSort) -> Vec<Key> {
    let (name, barclamp) = (Key::from(role.name.as_str()), Key::from(role.barclamp.as_str()));
    match sort {
        RoleSort::Name => vec![name, barclamp],
        RoleSort::Barclamp => vec![barclamp, name],
        RoleSort::Jig => vec![Key::from(role.jig.as_str()), name, barclamp],
        RoleSort::Bound => {
            vec![Key::from(i64::try_from(role.noderoles).unwrap_or(i64::MAX)), name, barclamp]
        }
    }
}

/// The edges between roles (parent, child, reason).
fn edges(all: &[NewestRole<'_>]) -> BTreeSet<RoleEdge> {
    let mut by_name: BTreeMap<&RoleName, Vec<usize>> = BTreeMap::new();
    let mut by_attribute: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, known) in all.iter().enumerate() {
        known.role.names().for_each(|name| by_name.entry(name).or_default().push(index));
        known
            .role
            .attribs
            .iter()
            .for_each(|attrib| by_attribute.entry(attrib.name.as_str()).or_default().push(index));
    }
    let meant = |name: &RoleName| by_name.get(name).into_iter().flatten().copied();
    let mut edges = BTreeSet::new();
    for (index, known) in all.iter().enumerate() {
        let required = known.role.requires.iter().flat_map(meant);
        edges.extend(required.map(|from| RoleEdge {
            from,
            to: index,
            reason: RoleEdgeReason::Requires,
        }));
        let read = known
            .role
            .wants
            .iter()
            .flat_map(|name| by_attribute.get(name.as_str()).into_iter().flatten().copied());
        edges.extend(read.map(|from| RoleEdge { from, to: index, reason: RoleEdgeReason::Reads }));
        let preceded = known.role.preceeds.iter().flat_map(meant);
        edges.extend(preceded.map(|to| RoleEdge {
            from: index,
            to,
            reason: RoleEdgeReason::Preceeds,
        }));
    }
    edges.retain(|edge| edge.from != edge.to);
    edges
}

/// The indexes that can be reached from these along the edges, up or down.
fn reached(from: &BTreeSet<usize>, edges: &BTreeSet<RoleEdge>, upward: bool) -> BTreeSet<usize> {
    let mut next: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for edge in edges {
        let (from_index, to_index) =
            if upward { (edge.to, edge.from) } else { (edge.from, edge.to) };
        next.entry(from_index).or_default().push(to_index);
    }
    let next = |index| next.get(&index).into_iter().flatten().copied();
    reachable(from.iter().copied(), next).collect()
}

fn no_role(name: &str, all: &[NewestRole<'_>]) -> Problem {
    let hint = engine::suggestion::nearest(name, all.iter().map(|known| known.role.name.as_str()));
    let hint = hint.map(|near| format!(" Did you mean {near:?}?")).unwrap_or_default();
    Problem::not_found(format!(
        "No barclamp of the catalog has a role {} in its newest version.{hint}",
        quoted(name)
    ))
}

/// The error for a role that exists, but not in this barclamp.
fn not_in_barclamp(name: &str, barclamp: &str, of: &[&BarclampName]) -> Problem {
    let of: Vec<&str> = of.iter().map(|barclamp| barclamp.as_str()).collect();
    Problem::not_found(format!(
        "The barclamp {} has no role {} in its newest version. Barclamps with this role: {}.",
        quoted(barclamp),
        quoted(name),
        of.join(", ")
    ))
}

fn no_barclamp(name: &str, all: &[NewestRole<'_>]) -> Problem {
    let hint =
        engine::suggestion::nearest(name, all.iter().map(|known| known.version.name.as_str()));
    let hint = hint.map(|near| format!(" Did you mean {near:?}?")).unwrap_or_default();
    Problem::not_found(format!("The catalog has no barclamp {} with roles.{hint}", quoted(name)))
}

impl Control {
    /// A page of the roles of the newest versions.
    pub async fn roles(&self, actor: &Actor, query: &RolesQuery) -> Result<RolePage, Problem> {
        actor.require(Permission::Viewer)?;
        let text = text::filter_text(&query.filter)?.unwrap_or_default().to_lowercase();
        let barclamp = text::filter_text(&query.barclamp)?;
        let present = self.current_state().await?;
        let all = newest_roles(&present.catalog)?;
        if let Some(name) =
            barclamp.filter(|name| all.iter().all(|known| known.version.name.as_str() != *name))
        {
            return Err(no_barclamp(name, &all));
        }
        let fits = |known: &&NewestRole<'_>| {
            let role = known.role;
            let has_text = role.name.as_str().contains(&text)
                || role.description.to_lowercase().contains(&text);
            has_text && barclamp.is_none_or(|name| known.version.name.as_str() == name)
        };
        let bound = bound(&present);
        let summary = |known: &NewestRole<'_>| {
            let role = known.role;
            let places = bound.get(&(role.barclamp.clone(), role.name.clone()));
            RoleSummary {
                name: role.name.clone(),
                barclamp: role.barclamp.clone(),
                version: known.version.version.clone(),
                description: role.description.clone(),
                jig: role.jig.clone(),
                flags: flags(&role.flags),
                requires: role.requires.len(),
                deployments: places.map_or(0, BTreeMap::len),
                noderoles: places.map_or(0, |places| places.values().sum()),
            }
        };
        let roles: Vec<RoleSummary> = all.iter().filter(fits).map(summary).collect();
        let count = roles.len();
        let (roles, next) = cursor::page(
            roles,
            keys,
            query.sort,
            query.after.as_ref(),
            Limit::rows(query.limit, PAGE_SIZE),
        )?;
        Ok(RolePage { roles, count, next })
    }

    /// A role with its details, by name.
    pub async fn role(
        &self,
        actor: &Actor,
        name: &str,
        query: &RoleQuery,
    ) -> Result<RoleView, Problem> {
        actor.require(Permission::Viewer)?;
        let barclamp = text::filter_text(&query.barclamp)?;
        let present = self.current_state().await?;
        let all = newest_roles(&present.catalog)?;
        let mut named =
            all.iter().enumerate().filter(|(_, known)| known.role.name.as_str() == name);
        let also_defined_in: Vec<&BarclampName> =
            named.clone().map(|(_, known)| &known.version.name).collect();
        let found = named
            .find(|(_, known)| barclamp.is_none_or(|query| known.version.name.as_str() == query));
        let (index, known) = found.ok_or_else(|| match barclamp {
            Some(barclamp) if all.iter().all(|known| known.version.name.as_str() != barclamp) => {
                no_barclamp(barclamp, &all)
            }
            Some(barclamp) if !also_defined_in.is_empty() => {
                not_in_barclamp(name, barclamp, &also_defined_in)
            }
            _ => no_role(name, &all),
        })?;
        let role = known.role;
        let names = |places: Vec<usize>| {
            places.into_iter().map(|index| all[index].role.name.clone()).collect()
        };
        let roles_named = |name: &RoleName| {
            let by = all
                .iter()
                .filter(|known| known.role.satisfies(name))
                .map(|known| known.role.name.clone());
            ResolvedName { name: name.clone(), by: by.collect() }
        };
        let roles_with_attribute = |name: &engine::ids::AttribName| {
            let has_attribute = |known: &&NewestRole<'_>| {
                known.role.attribs.iter().any(|attrib| attrib.name == *name)
            };
            ResolvedName {
                name: name.clone(),
                by: all.iter().filter(has_attribute).map(|known| known.role.name.clone()).collect(),
            }
        };
        let children = edges(&all)
            .into_iter()
            .filter(|edge| edge.from == index && edge.reason == RoleEdgeReason::Requires);
        let bound =
            bound(&present).remove(&(role.barclamp.clone(), role.name.clone())).unwrap_or_default();
        let uses = bound.into_iter().filter_map(|(id, noderoles)| {
            let deployment = present.skeleton.deployments.get(&id)?.name.clone();
            Some(RoleUse { deployment, deployment_id: id, noderoles })
        });
        let mut uses: Vec<RoleUse> = uses.collect();
        uses.sort_by(|a, b| a.deployment.cmp(&b.deployment));
        Ok(RoleView {
            role: role.clone(),
            hash: known.hash,
            version: known.version.version.clone(),
            flags: flags(&role.flags),
            requires: role.requires.iter().map(roles_named).collect(),
            wants: role.wants.iter().map(roles_with_attribute).collect(),
            required_by: names(children.map(|edge| edge.to).collect()),
            also_defined_in: also_defined_in
                .into_iter()
                .filter(|other| **other != role.barclamp)
                .cloned()
                .collect(),
            versions: versions(&present, known),
            bound: uses,
        })
    }

    /// The graph of the roles of the newest versions.
    pub async fn role_graph(
        &self,
        actor: &Actor,
        query: &RoleGraphQuery,
    ) -> Result<RoleGraph, Problem> {
        actor.require(Permission::Viewer)?;
        let (barclamp, role) =
            (text::filter_text(&query.barclamp)?, text::filter_text(&query.role)?);
        let present = self.current_state().await?;
        let all = newest_roles(&present.catalog)?;
        let edges = edges(&all);
        let mut shown: BTreeSet<usize> = (0..all.len()).collect();
        if let Some(name) = barclamp {
            let own = |index: &usize| all[*index].version.name.as_str() == name;
            let own: BTreeSet<usize> = (0..all.len()).filter(own).collect();
            if own.is_empty() {
                return Err(no_barclamp(name, &all));
            }
            let near =
                edges.iter().filter(|edge| own.contains(&edge.from) || own.contains(&edge.to));
            shown = near.flat_map(|edge| [edge.from, edge.to]).chain(own.iter().copied()).collect();
        }
        if let Some(name) = role {
            let start: BTreeSet<usize> =
                (0..all.len()).filter(|index| all[*index].role.name.as_str() == name).collect();
            if start.is_empty() {
                return Err(no_role(name, &all));
            }
            let connected: BTreeSet<usize> =
                &reached(&start, &edges, true) | &reached(&start, &edges, false);
            shown = &shown & &connected;
        }
        let count = shown.len();
        if count > MAX_GRAPH_ROLES {
            return Ok(RoleGraph { count, ..RoleGraph::default() });
        }
        let places: BTreeMap<usize, usize> =
            shown.iter().enumerate().map(|(new, old)| (*old, new)).collect();
        let vertex = |index: &usize| {
            let role = all[*index].role;
            RoleVertex {
                name: role.name.clone(),
                barclamp: role.barclamp.clone(),
                flags: flags(&role.flags),
            }
        };
        let reindexed = |edge: &RoleEdge| {
            let (from, to) = (*places.get(&edge.from)?, *places.get(&edge.to)?);
            Some(RoleEdge { from, to, reason: edge.reason })
        };
        Ok(RoleGraph {
            roles: shown.iter().map(vertex).collect(),
            edges: edges.iter().filter_map(reindexed).collect(),
            count,
        })
    }

    /// A page of the list of imports.
    pub async fn imports(
        &self,
        actor: &Actor,
        query: &ImportsQuery,
    ) -> Result<ImportPage, Problem> {
        actor.require(Permission::Viewer)?;
        let barclamp = text::filter_text(&query.barclamp)?;
        let after = cursor::decode(query.sort, query.before.as_ref())?;
        let ImportSort::Imported = query.sort.by;
        let last = match after.as_deref() {
            Some([Key::Number(id)]) => Some(*id),
            _ => None,
        };
        let mut connection = self.connection().await?;
        let size = Limit::rows(query.limit, IMPORTS_PER_PAGE).min(IMPORTS_PER_PAGE);
        let mut rows = store::catalog::import_reports(
            &mut connection,
            barclamp,
            query.sort.descending,
            last,
            size as u64 + 1,
        )
        .await
        .map_err(from_store)?;
        let more = rows.len() > size;
        rows.truncate(size);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::after_row(query.sort, &[Key::from(row.id)]));
        let report = |row: store::catalog::ImportRow<_>| ImportReport {
            id: row.id,
            at: at(row.at),
            by: row.by,
            report: row.report,
        };
        Ok(ImportPage { imports: rows.into_iter().map(report).collect(), next })
    }
}

/// Imports per page. Each may have a thousand lines.
const IMPORTS_PER_PAGE: usize = 20;

/// The versions of a role's barclamp that contain the role, newest first.
fn versions(present: &CurrentState, known: &NewestRole<'_>) -> Vec<RoleVersion> {
    let name = &known.version.name;
    let same_barclamp = present.catalog.barclamps().filter(|(_, version)| version.name == *name);
    let mut with_role: Vec<(Hash, &Barclamp, Hash)> = same_barclamp
        .filter_map(|(hash, version)| {
            Some((hash, &**version, *version.roles.get(&known.role.name)?))
        })
        .collect();
    with_role.sort_by(|(_, a, _), (_, b, _)| {
        order(&b.version, &a.version).then_with(|| b.version.cmp(&a.version))
    });
    with_role.truncate(MAX_VERSIONS);
    let version = |(hash, version, role): (Hash, &Barclamp, Hash)| {
        let pins = |deployment: &&engine::cluster::SkeletonDeployment| {
            deployment.barclamps.get(name) == Some(&hash)
        };
        let used_by = present
            .skeleton
            .deployments
            .values()
            .filter(pins)
            .map(|deployment| deployment.name.clone());
        let mut used_by: Vec<DeploymentName> = used_by.collect();
        used_by.sort();
        RoleVersion { version: version.version.clone(), same: role == known.hash, used_by }
    };
    with_role.into_iter().map(version).collect()
}

/// A path of keys as a JSON pointer.
pub(crate) fn pointer(keys: &[String]) -> String {
    keys.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}

/// The attributes of a role, with their schemas.
pub(crate) fn attribs(role: &Role) -> Vec<AttribView> {
    let view = |attrib: &engine::catalog::Attrib| AttribView {
        name: attrib.name.to_string(),
        path: pointer(&attrib.map),
        description: attrib.description.clone(),
        schema: attrib.schema.clone(),
    };
    role.attribs.iter().map(view).collect()
}
