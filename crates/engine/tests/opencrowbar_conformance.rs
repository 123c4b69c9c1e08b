//! Compares binding with scenarios that were derived by hand from OpenCrowbar's sources.
//!
//! It reads all files `$GANTRY_CORPUS/opencrowbar/worked/*.json`. A scenario contains a folder of
//! barclamp files, binding steps, three switches, and the expected noderoles, edges and cohorts.
//! The test compares them with the result of [`resolve_with_rules`], with barriers expanded to
//! their members.
//!
//! Two things have no counterpart in files and are created here by the scenarios' assumptions.
//! These are the role that a server creates for each network (`network-NAME`), and workers for jigs
//! that Gantry lacks.
//!
//! Without the corpus, the test passes with a message. If `GANTRY_CORPUS` is set, the files must
//! exist.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::canonical::{self, Object, ObjectKind};
use engine::catalog::read::{Source, import};
use engine::catalog::{Barclamp, Catalog, Flags, Jig, JigClass, Role};
use engine::cluster::{
    Blueprint, DeploymentDoc, EdgeDoc, EdgeKind, NodeDoc, NoderoleKey, Skeleton,
};
use engine::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};
use engine::plan::effects::{Bound, EffectCause};
use engine::plan::resolve::phantom_fqdn;
use engine::plan::{Edit, Effects, NumberedEdit, Rules, edit, resolve_with_rules};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));
const PHANTOM: NodeId = NodeId(Uuid::from_u128(2));
/// The scenarios' name for the phantom node of the system deployment.
const PHANTOM_NAME: &str = "system-phantom";

#[derive(Deserialize)]
struct Worked {
    scenarios: BTreeMap<String, Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    corpus: String,
    bind_steps: Vec<(String, String)>,
    wants_attribs_make_parents: bool,
    service_roles_to_phantom: bool,
    preceeds_soft_edges: bool,
    #[serde(rename = "noderoles_topological")]
    noderoles: Vec<WorkedNoderole>,
    edges: Vec<WorkedEdge>,
}

#[derive(Deserialize)]
struct WorkedNoderole {
    name: String,
    cohort: u32,
}

#[derive(Deserialize)]
struct WorkedEdge {
    parent: String,
    child: String,
    soft: bool,
}

/// The result of a scenario: noderoles by `node/role` with their cohorts, and edges with whether
/// they are soft.
#[derive(Default)]
struct Outcome {
    cohorts: BTreeMap<String, u32>,
    edges: BTreeMap<(String, String), bool>,
}

impl Scenario {
    fn expected(&self) -> Outcome {
        let edge = |e: &WorkedEdge| ((e.parent.clone(), e.child.clone()), e.soft);
        Outcome {
            cohorts: self.noderoles.iter().map(|n| (n.name.clone(), n.cohort)).collect(),
            edges: self.edges.iter().map(edge).collect(),
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            wants_attribs_make_parents: self.wants_attribs_make_parents,
            service_roles_to_phantom: self.service_roles_to_phantom,
            preceeds_soft_edges: self.preceeds_soft_edges,
        }
    }
}

fn corpus() -> Option<PathBuf> {
    let named = std::env::var_os("GANTRY_CORPUS").map(PathBuf::from);
    let default_corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    found(named.as_deref(), &default_corpus)
}

/// The scenarios' folder: in the named corpus, where it must exist, or in one next to the
/// workspace.
fn found(named: Option<&Path>, default_corpus: &Path) -> Option<PathBuf> {
    let folder = named.unwrap_or(default_corpus).join("opencrowbar");
    if folder.join("worked").is_dir() {
        return Some(folder);
    }
    assert!(
        named.is_none(),
        "GANTRY_CORPUS is set, but folder {} does not exist",
        folder.join("worked").display()
    );
    eprintln!(
        "skipped: no worked scenarios (set GANTRY_CORPUS to the folder that has opencrowbar/worked)"
    );
    None
}

#[test]
fn missing_corpus_is_skipped() {
    assert_eq!(found(None, Path::new("/nowhere")), None);
}

#[test]
#[should_panic(
    expected = "GANTRY_CORPUS is set, but folder /nowhere/opencrowbar/worked does not exist"
)]
fn named_corpus_must_exist() {
    found(Some(Path::new("/nowhere")), Path::new("/nowhere"));
}

/// All `.yml` files of a folder and its subfolders. Files of the folder come first, and each level
/// is ordered by name.
fn files(root: &Path, folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let (folders, plain): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
    for path in plain.iter().filter(|path| path.extension().is_some_and(|ending| ending == "yml")) {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        // Parameter files of Ansible jigs are no barclamps.
        if path.file_name().is_some_and(|name| name != "role.yml") {
            found.push((name, fs::read(path).unwrap()));
        }
    }
    for inner in folders {
        files(root, &inner, found);
    }
}

/// The roles and jigs of a folder, including those that the scenarios assume.
fn roles(folder: &Path) -> Result<(Vec<Role>, BTreeMap<JigName, Jig>), String> {
    let mut bytes = Vec::new();
    files(folder, folder, &mut bytes);
    let none = BTreeMap::new();
    let sources: Vec<Source<'_>> = bytes
        .iter()
        .map(|(path, bytes)| Source { path, bytes, folder: "", files: &none })
        .collect();
    let import = import(&sources, &Catalog::default()).map_err(|findings| findings.to_string())?;
    let jigs = import.barclamps.iter().flat_map(|b| b.barclamp.jigs.clone()).collect();
    let mut roles: Vec<Role> = import.barclamps.iter().flat_map(|b| b.roles.clone()).collect();
    roles.extend(networks(&roles));
    for role in &mut roles {
        // Every jig gets a worker.
        role.jig_class = JigClass::Noop;
    }
    Ok((roles, jigs))
}

/// The role that a server creates for each network: implicit, with jig chef-solo, and requires the
/// network server.
fn networks(roles: &[Role]) -> Vec<Role> {
    let known: BTreeSet<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    let required: BTreeSet<&str> =
        roles.iter().flat_map(|role| &role.requires).map(RoleName::as_str).collect();
    let missing =
        required.into_iter().filter(|name| name.starts_with("network-") && !known.contains(name));
    let role = |name: &str| -> Role {
        let jig =
            json!({"name": name, "barclamp": "network", "jig": "chef-solo", "jig_class": "noop"});
        let role: Role = serde_json::from_value(jig).unwrap();
        let requires =
            ["network-server", "chef-solo"].map(|name| RoleName::parse(name).unwrap()).into();
        Role { flags: Flags { implicit: true, ..Flags::default() }, requires, ..role }
    };
    missing.map(role).collect()
}

struct World {
    catalog: Catalog,
    skeleton: Skeleton,
    nodes: BTreeMap<String, NodeId>,
}

fn world(folder: &Path, names: BTreeSet<&str>) -> Result<World, String> {
    let (roles, jigs) = roles(folder)?;
    let mut catalog = Catalog::default();
    let mut content = BTreeMap::new();
    for role in roles {
        let hash = canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        catalog.add_role(hash, Arc::new(role));
    }
    let base: Barclamp =
        serde_json::from_value(json!({"name": "all", "version": "1", "roles": {}})).unwrap();
    let barclamp = Barclamp { roles: content, jigs, ..base };
    let pin = Object::of(ObjectKind::Barclamp, &barclamp).unwrap();
    catalog.add(&pin).unwrap();

    let mut blueprint = Blueprint::default();
    let deployment = DeploymentDoc {
        id: SYSTEM,
        name: DeploymentName::parse("system").unwrap(),
        parent: None,
        phantom: PHANTOM,
        barclamps: [(BarclampName::parse("all").unwrap(), pin.hash)].into(),
        roles: BTreeMap::new(),
        inactive_jigs: BTreeSet::new(),
    };
    blueprint.insert_deployment(deployment).unwrap();
    let fqdn = phantom_fqdn(SYSTEM);
    let phantom = NodeDoc {
        id: PHANTOM,
        fqdn,
        deployment: SYSTEM,
        phantom: true,
        connection: None,
        hints: serde_json::Map::new(),
        noderoles: BTreeMap::new(),
    };
    blueprint.insert_node(phantom).unwrap();
    let nodes: BTreeMap<String, NodeId> =
        (100..).zip(names).map(|(n, name)| (name.to_owned(), NodeId(Uuid::from_u128(n)))).collect();
    let records = nodes.iter().map(|(name, id)| {
        (*id, Fqdn::parse(&format!("{name}.worked.example.com")).unwrap(), SYSTEM)
    });
    let skeleton = Skeleton::of(&blueprint, records, &catalog).map_err(|e| e.to_string())?;
    Ok(World { catalog, skeleton, nodes })
}

fn run(corpus: &Path, scenario: &Scenario) -> Result<Outcome, String> {
    let world = world(
        &corpus.join(&scenario.corpus),
        scenario.bind_steps.iter().map(|(node, _)| node.as_str()).collect(),
    )?;
    let edit = |(node, role): &(String, String)| {
        Ok::<_, String>(Edit::Bind(edit::Bind {
            deployment: SYSTEM,
            node: world.nodes[node],
            role: RoleName::parse(role).map_err(|e| e.to_string())?,
        }))
    };
    let edits = scenario.bind_steps.iter().map(edit).collect::<Result<Vec<_>, _>>()?;
    let numbered: Vec<NumberedEdit> =
        (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit }).collect();
    let effects = resolve_with_rules(scenario.rules(), &world.skeleton, &world.catalog, &numbered);
    if let Some(refusal) = effects.refused.first() {
        return Err(format!("bind step {} is refused: {}", refusal.edit, refusal.reason));
    }
    Ok(outcome(&world, &effects))
}

/// The effects with barriers expanded: a noderole that waits for a barrier waits for all its
/// members.
fn outcome(world: &World, effects: &Effects) -> Outcome {
    let name_of = |node: NodeId| {
        let named = world.nodes.iter().find(|(_, id)| **id == node);
        named.map_or(PHANTOM_NAME, |(name, _)| name.as_str()).to_owned()
    };
    let label = |node: NodeId, key: &NoderoleKey| format!("{}/{key}", name_of(node));
    let is_barrier = |role| world.catalog.role(role).unwrap().gathers.is_some();
    let barriers: BTreeMap<NoderoleId, &[_]> = effects
        .bound
        .iter()
        .filter(|b| is_barrier(b.role))
        .map(|b| (b.id, b.parents.as_slice()))
        .collect();
    let names: BTreeMap<NoderoleId, String> =
        effects.bound.iter().map(|b| (b.id, label(b.node, &b.noderole))).collect();
    let mut found = Outcome::default();
    for bound in effects.bound.iter().filter(|b| !barriers.contains_key(&b.id)) {
        found.cohorts.insert(names[&bound.id].clone(), 0);
        for edge in &bound.parents {
            let own = [*edge];
            for parent in barriers.get(&edge.parent).copied().unwrap_or(&own) {
                let soft = edge.kind == EdgeKind::Soft;
                let edge = (names[&parent.parent].clone(), names[&bound.id].clone());
                // An edge to a member can exist next to one through its barrier. The hard one
                // includes the other.
                found.edges.entry(edge).and_modify(|known| *known &= soft).or_insert(soft);
            }
        }
    }
    // A barrier has a rank but no cohort, so cohorts are computed on the expanded edges.
    loop {
        let mut higher = Vec::new();
        for (parent, child) in found.edges.keys() {
            if found.cohorts[child] <= found.cohorts[parent] {
                higher.push((child.clone(), found.cohorts[parent] + 1));
            }
        }
        if higher.is_empty() {
            return found;
        }
        found.cohorts.extend(higher);
    }
}

/// Tests both orders, because the ids of a barrier and its members have no fixed order.
#[test]
fn hard_edge_through_barrier_overrides_soft_edge() {
    let key = |name: &str| NoderoleKey::first(RoleName::parse(name).unwrap());
    let world = |content: &[&Role]| {
        let mut catalog = Catalog::default();
        for role in content {
            catalog.add_role(canonical::hash(role).unwrap(), Arc::new((*role).clone()));
        }
        World { catalog, skeleton: Skeleton::default(), nodes: BTreeMap::new() }
    };
    let member: Role = serde_json::from_value(
        json!({"name": "db", "barclamp": "b", "jig": "noop", "jig_class": "noop"}),
    )
    .unwrap();
    let member = Role { flags: Flags { cluster: true, ..Flags::default() }, ..member };
    let (barrier, child) = (
        member.barrier().unwrap(),
        Role { name: RoleName::parse("app").unwrap(), ..member.clone() },
    );
    let world = world(&[&member, &barrier, &child]);
    let bound = |role: &Role, parents: Vec<EdgeDoc>| {
        let noderole = key(role.name.as_str());
        let (id, role) = (noderole.id(PHANTOM), canonical::hash(role).unwrap());
        Bound {
            id,
            node: PHANTOM,
            noderole,
            deployment: SYSTEM,
            role,
            rank: 0,
            parents,
            cause: EffectCause::Requested { edit: 1 },
        }
    };
    let to = |role: &Role, kind| EdgeDoc { parent: key(role.name.as_str()).id(PHANTOM), kind };
    for swapped in [false, true] {
        let mut parents = vec![to(&member, EdgeKind::Soft), to(&barrier, EdgeKind::Hard)];
        if swapped {
            parents.reverse();
        }
        let barrier_hash = vec![to(&member, EdgeKind::Hard)];
        let effects = Effects {
            bound: vec![
                bound(&member, Vec::new()),
                bound(&barrier, barrier_hash),
                bound(&child, parents),
            ],
            ..Effects::default()
        };
        let edge = (format!("{PHANTOM_NAME}/db"), format!("{PHANTOM_NAME}/app"));
        assert_eq!(outcome(&world, &effects).edges, [(edge, false)].into());
    }
}

/// One line for each difference.
fn differences(expected: &Outcome, found: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, cohort) in &expected.cohorts {
        match found.cohorts.get(name) {
            None => lines.push(format!("noderole {name} is missing")),
            Some(other) if other != cohort => {
                lines.push(format!("{name} has cohort {other}, not {cohort}"))
            }
            Some(_) => {}
        }
    }
    let more = found.cohorts.keys().filter(|name| !expected.cohorts.contains_key(*name));
    lines.extend(more.map(|name| format!("noderole {name} is one too many")));
    let kind = |soft: bool| if soft { "soft" } else { "hard" };
    for ((parent, child), soft) in &expected.edges {
        match found.edges.get(&(parent.clone(), child.clone())) {
            None => lines.push(format!("edge {parent} -> {child} is missing")),
            Some(other) if other != soft => {
                lines.push(format!(
                    "edge {parent} -> {child} is {}, not {}",
                    kind(*other),
                    kind(*soft)
                ));
            }
            Some(_) => {}
        }
    }
    let more = found.edges.keys().filter(|edge| !expected.edges.contains_key(*edge));
    lines.extend(more.map(|(parent, child)| format!("edge {parent} -> {child} is one too many")));
    lines
}

#[test]
fn binding_matches_worked_scenarios() {
    let Some(corpus) = corpus() else { return };
    let mut paths: Vec<PathBuf> =
        fs::read_dir(corpus.join("worked")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let (mut passed, mut failed) = (0, 0);
    for path in &paths {
        let worked: Worked = serde_json::from_slice(&fs::read(path).unwrap())
            .unwrap_or_else(|error| panic!("{} is not a valid scenario: {error}", path.display()));
        for (name, scenario) in &worked.scenarios {
            let differences = match run(&corpus, scenario) {
                Ok(found) => differences(&scenario.expected(), &found),
                Err(error) => vec![error],
            };
            if differences.is_empty() {
                passed += 1;
                continue;
            }
            failed += 1;
            println!("{} {name}:\n  {}", path.display(), differences.join("\n  "));
        }
    }
    // The print macros' output is swallowed if the test passes, but the count is useful then too.
    // libtest may already have started a line with the test's name.
    writeln!(io::stdout().lock(), "\n{passed} passed, {failed} failed").unwrap();
    assert_eq!(failed, 0, "some of {} scenarios failed", passed + failed);
    assert!(passed > 0, "{} contains no scenario", corpus.display());
}
