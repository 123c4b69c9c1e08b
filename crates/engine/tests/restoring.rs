//! Restores a deployment with many nodes, with a limit on the number of edits and no side effects.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::canonical::{self, Object, ObjectKind};
use engine::catalog::{Barclamp, Catalog, Flags, Role};
use engine::cluster::{Blueprint, DeploymentDoc, NodeDoc, Skeleton};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, RoleName};
use engine::plan::resolve::phantom_fqdn;
use engine::plan::restore::{Restore, RestoreInput, restore};
use engine::plan::{Edit, MAX_LISTED, NumberedEdit, edit, materialize, resolve};
use serde_json::json;
use uuid::Uuid;

/// More noderoles than a proposal may have edits.
const NODES: u128 = 1_010;
const ROLES: usize = 10;
const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));
const WEB: DeploymentId = DeploymentId(Uuid::from_u128(2));

fn name(n: usize) -> RoleName {
    RoleName::parse(&format!("r{n}")).unwrap()
}

fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(1_000 + n))
}

/// Each role requires the one below it on the same node, except a shared one, which is on its own
/// node.
fn role(n: usize) -> Role {
    let role: Role = serde_json::from_value(
        json!({"name": name(n), "barclamp": "b", "jig": "noop", "jig_class": "noop"}),
    )
    .unwrap();
    let requires = match n {
        0 | 1 => vec![],
        2 => vec![name(0), name(1)],
        _ => vec![name(n - 1)],
    };
    Role { flags: Flags { implicit: n != 0, ..Flags::default() }, requires, ..role }
}

fn world() -> (Catalog, Blueprint) {
    let mut catalog = Catalog::default();
    let mut content = BTreeMap::new();
    for role in (0..ROLES).map(role) {
        let hash = canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        catalog.add_role(hash, Arc::new(role));
    }
    let base: Barclamp =
        serde_json::from_value(json!({"name": "b", "version": "1", "roles": {}})).unwrap();
    let pin = Object::of(ObjectKind::Barclamp, &Barclamp { roles: content, ..base }).unwrap();
    catalog.add(&pin).unwrap();
    let mut blueprint = Blueprint::default();
    for (phantom, id, label, parent) in
        [(50, SYSTEM, "system", None), (51, WEB, "web", Some(SYSTEM))]
    {
        let phantom = NodeId(Uuid::from_u128(phantom));
        let pins = parent.is_none().then(|| (BarclampName::parse("b").unwrap(), pin.hash));
        let doc = DeploymentDoc {
            id,
            name: DeploymentName::parse(label).unwrap(),
            parent,
            phantom,
            barclamps: pins.into_iter().collect(),
            roles: BTreeMap::new(),
            inactive_jigs: BTreeSet::new(),
        };
        blueprint.insert_deployment(doc).unwrap();
        let fqdn = phantom_fqdn(id);
        let doc = NodeDoc {
            id: phantom,
            fqdn,
            deployment: id,
            phantom: true,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: BTreeMap::new(),
        };
        blueprint.insert_node(doc).unwrap();
    }
    for n in 0..NODES {
        let fqdn = Fqdn::parse(&format!("n{n:04}.many.example.com")).unwrap();
        let doc = NodeDoc {
            id: node(n),
            fqdn,
            deployment: WEB,
            phantom: false,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: BTreeMap::new(),
        };
        blueprint.insert_node(doc).unwrap();
    }
    (catalog, blueprint)
}

fn taken(blueprint: &Blueprint, catalog: &Catalog, edits: &[Edit]) -> Blueprint {
    let skeleton = Skeleton::of(blueprint, [], catalog).unwrap();
    let numbered: Vec<NumberedEdit> =
        (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect();
    let effects = resolve(&skeleton, catalog, &numbered);
    assert_eq!(effects.refused, vec![]);
    materialize(blueprint, &|_| None, &effects).unwrap().blueprint
}

fn restored(now: &Blueprint, then: &Blueprint, catalog: &Catalog) -> Restore {
    let skeleton = Skeleton::of(now, [], catalog).unwrap();
    let now = RestoreInput { blueprint: now, skeleton: &skeleton, catalog, records: &|_| None };
    restore(now, then, WEB).unwrap()
}

#[test]
fn restore_needs_few_edits_for_many_noderoles() {
    let (catalog, empty) = world();
    // The shared role is on an otherwise empty node, which is last by name. Restoring must not add
    // another instance in its place.
    let shared = Edit::Bind(edit::Bind { deployment: WEB, node: node(NODES - 1), role: name(0) });
    let everywhere = (0..NODES - 1)
        .map(|n| Edit::Bind(edit::Bind { deployment: WEB, node: node(n), role: name(ROLES - 1) }));
    let full = taken(&empty, &catalog, &[shared].into_iter().chain(everywhere).collect::<Vec<_>>());
    let noderoles = full.nodes.values().map(|node| node.doc.noderoles.len()).sum::<usize>();
    assert_eq!(noderoles, 1 + usize::try_from(NODES - 1).unwrap() * (ROLES - 1));

    let Restore { edits, missing } = restored(&empty, &full, &catalog);
    assert_eq!(missing, vec![]);
    let lists = usize::try_from(NODES - 1).unwrap().div_ceil(MAX_LISTED);
    let roles =
        edits.iter().filter(|edit| matches!(edit, Edit::AddRole(edit::AddRole { .. }))).count();
    assert_eq!((roles, edits.len()), (ROLES, ROLES + 1 + lists), "{edits:?}");
    let back = taken(&empty, &catalog, &edits);
    assert_eq!(back.root(), full.root(), "the documents must be identical");

    let Restore { edits, missing } = restored(&full, &empty, &catalog);
    assert_eq!(missing, vec![]);
    assert_eq!(edits.len(), (ROLES - 1) * lists + 1 + ROLES, "{edits:?}");
    assert_eq!(taken(&full, &catalog, &edits).root(), empty.root());
}

#[test]
fn list_edit_is_atomic_and_equals_singles() {
    let (catalog, empty) = world();
    let skeleton = Skeleton::of(&empty, [], &catalog).unwrap();
    let nodes = |numbers: &[u128]| numbers.iter().map(|n| node(*n)).collect::<BTreeSet<_>>();
    let bind = |numbers: &[u128]| {
        Edit::BindNodes(edit::BindNodes { deployment: WEB, role: name(3), nodes: nodes(numbers) })
    };
    let codes = |edits: &[Edit]| {
        let numbered: Vec<NumberedEdit> =
            (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect();
        let effects = resolve(&skeleton, &catalog, &numbered);
        (
            effects.refused.into_iter().map(|refused| refused.code).collect::<Vec<_>>(),
            effects.bound.len(),
        )
    };
    let single = |n: u128| Edit::Bind(edit::Bind { deployment: WEB, node: node(n), role: name(3) });
    let listed = taken(&empty, &catalog, &[bind(&[3, 1, 2])]);
    assert_eq!(listed.root(), taken(&empty, &catalog, &[single(1), single(2), single(3)]).root());

    let elsewhere = Edit::Bind(edit::Bind { deployment: SYSTEM, node: node(2), role: name(3) });
    let (refused, bound) = codes(&[elsewhere, bind(&[1, 2, 3])]);
    assert_eq!(
        (refused, bound),
        (vec!["already_bound".to_owned()], 4),
        "a rejected list must leave no bindings"
    );
    let (refused, bound) = codes(&[single(2), bind(&[1, 2, 3])]);
    assert_eq!((refused.len(), bound), (0, 10), "an existing noderole does not fail the list");
    let long: Vec<u128> = (0..u128::try_from(MAX_LISTED).unwrap() + 1).collect();
    assert_eq!(codes(&[bind(&[])]).0, ["no_nodes"]);
    assert_eq!(codes(&[bind(&long)]).0, ["long_list"]);

    let unbind = |numbers: &[u128]| {
        Edit::UnbindNodes(edit::UnbindNodes {
            noderole: engine::cluster::NoderoleKey::first(name(3)),
            nodes: nodes(numbers),
        })
    };
    assert_eq!(codes(&[bind(&[1, 2]), unbind(&[2, 3])]).0, ["unknown_noderole"]);
    let (refused, bound) = codes(&[bind(&[1, 2]), unbind(&[1, 2])]);
    assert_eq!((refused.len(), bound), (0, 5), "roles that were bound with it remain");
    assert_eq!(bind(&[1, 2, 3]).singles(), 3);
    assert_eq!(single(1).singles(), 1);
}

#[test]
fn restore_removes_own_pins() {
    let (mut catalog, empty) = world();
    let barclamp = BarclampName::parse("b").unwrap();
    let first = empty.deployments[&SYSTEM].doc.barclamps[&barclamp];
    let imported = |catalog: &mut Catalog, name: &str, number: &str, roles: &Barclamp| {
        let new = Barclamp {
            name: BarclampName::parse(name).unwrap(),
            version: number.into(),
            ..roles.clone()
        };
        let object = Object::of(ObjectKind::Barclamp, &new).unwrap();
        catalog.add(&object).unwrap();
        object.hash
    };
    let known = (**catalog.barclamp(first).unwrap()).clone();
    let second = imported(&mut catalog, "b", "2", &known);
    let other = imported(&mut catalog, "other", "1", &Barclamp { roles: BTreeMap::new(), ..known });
    let now = taken(&empty, &catalog, &[using(WEB, "b", second), using(WEB, "other", other)]);
    let Restore { edits, missing } = restored(&now, &empty, &catalog);
    assert_eq!(missing, vec![]);
    assert_eq!(edits, [inherit("b"), inherit("other")]);
    assert_eq!(
        taken(&now, &catalog, &edits).root(),
        empty.root(),
        "the deployment has no version of its own left"
    );
}

#[test]
fn restore_pins_what_was_pinned() {
    let (catalog, empty) = world();
    let barclamp = BarclampName::parse("b").unwrap();
    let inherited = empty.deployments[&SYSTEM].doc.barclamps[&barclamp];
    let pin = [using(WEB, "b", inherited)];
    let pinned = taken(&empty, &catalog, &pin);
    for (now, then, edits) in
        [(&pinned, &empty, vec![inherit("b")]), (&empty, &pinned, pin.to_vec())]
    {
        let restore = restored(now, then, &catalog);
        assert_eq!((&restore.edits, restore.missing), (&edits, vec![]));
        assert_eq!(taken(now, &catalog, &edits).root(), then.root());
    }
}

/// A barclamp version whose roles require the named ones.
fn imported(catalog: &mut Catalog, label: &str, roles: &[(&str, &[&str])]) -> Hash {
    let mut content = BTreeMap::new();
    for (role, requires) in roles {
        let role = json!({"name": role, "barclamp": label, "jig": "noop", "jig_class": "noop", "requires": requires});
        let role: Role = serde_json::from_value(role).unwrap();
        let role =
            Role { flags: Flags { implicit: role.requires.is_empty(), ..role.flags }, ..role };
        let hash = canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        catalog.add_role(hash, Arc::new(role));
    }
    let stored = json!({"name": label, "version": content.len().to_string(), "roles": content});
    let object =
        Object::of(ObjectKind::Barclamp, &serde_json::from_value::<Barclamp>(stored).unwrap())
            .unwrap();
    catalog.add(&object).unwrap();
    object.hash
}

fn using(deployment: DeploymentId, label: &str, version: Hash) -> Edit {
    Edit::UseBarclamp(edit::UseBarclamp {
        deployment,
        barclamp: BarclampName::parse(label).unwrap(),
        version,
    })
}

fn inherit(label: &str) -> Edit {
    Edit::InheritBarclamp(edit::InheritBarclamp {
        deployment: WEB,
        barclamp: BarclampName::parse(label).unwrap(),
    })
}

fn reasons(restore: &Restore) -> Vec<(&str, &str)> {
    restore.missing.iter().map(|missing| (missing.name.as_str(), missing.reason.as_str())).collect()
}

#[test]
fn dependents_of_refused_version_report_reason() {
    let (mut catalog, empty) = world();
    let old = imported(&mut catalog, "old", &[("x", &[]), ("low", &[]), ("top", &["low"])]);
    let new = imported(&mut catalog, "new", &[("x", &[])]);
    let top = RoleName::parse("top").unwrap();
    let bind = Edit::Bind(edit::Bind { deployment: WEB, node: node(1), role: top });
    let then = taken(&empty, &catalog, &[using(WEB, "old", old), bind]);
    let now = taken(&empty, &catalog, &[using(SYSTEM, "new", new)]);
    let restore = restored(&now, &then, &catalog);
    assert_eq!(restore.edits, []);
    let twice = "Barclamps old and new both have a role x, and deployment web would see both";
    let found: Vec<(&str, &str)> = reasons(&restore);
    let reported = |name: &str| found.iter().find(|(found, _)| *found == name).unwrap().1;
    assert!(reported("version of barclamp old").starts_with(twice), "{found:?}");
    assert!(
        reported("low on n0001").starts_with(twice),
        "the report says that it is bound with another role: {found:?}"
    );
    let unknown = "No barclamp that deployment web uses has a role \"top\"";
    assert_eq!((reported("role top"), reported("top on n0001")), (unknown, unknown));
}

#[test]
fn refused_inherited_version_reports_reason() {
    let (mut catalog, empty) = world();
    let first = imported(&mut catalog, "tool", &[("x", &[])]);
    let second = imported(&mut catalog, "tool", &[("y", &[]), ("z", &[])]);
    let new = imported(&mut catalog, "new", &[("x", &[])]);
    let below = DeploymentId(Uuid::from_u128(90));
    let make = Edit::CreateDeployment(edit::CreateDeployment {
        id: below,
        phantom: NodeId(Uuid::from_u128(91)),
        name: DeploymentName::parse("below").unwrap(),
        parent: WEB,
    });
    let add =
        Edit::AddRole(edit::AddRole { deployment: below, role: RoleName::parse("x").unwrap() });
    let then = taken(&empty, &catalog, &[using(SYSTEM, "tool", first)]);
    let now =
        taken(&then, &catalog, &[make, using(WEB, "tool", second), using(WEB, "new", new), add]);
    let restore = restored(&now, &then, &catalog);
    assert_eq!(restore.edits, []);
    let found = reasons(&restore);
    let version = found.iter().find(|(name, _)| *name == "version of barclamp tool").unwrap();
    assert!(version.1.starts_with("Barclamps tool and new both have a role x"), "{found:?}");
}

#[test]
fn restore_moves_deployment_back() {
    let (catalog, empty) = world();
    let other = DeploymentId(Uuid::from_u128(90));
    let make = Edit::CreateDeployment(edit::CreateDeployment {
        id: other,
        phantom: NodeId(Uuid::from_u128(91)),
        name: DeploymentName::parse("other").unwrap(),
        parent: SYSTEM,
    });
    let then = taken(&empty, &catalog, &[make]);
    let below = |parent| Edit::MoveDeployment(edit::MoveDeployment { deployment: WEB, parent });
    let now = taken(&then, &catalog, &[below(other)]);
    assert_eq!(restored(&now, &then, &catalog).edits, [below(SYSTEM)]);
    // The old parent is gone.
    let up = taken(&now, &catalog, &[below(SYSTEM)]);
    let gone = taken(
        &up,
        &catalog,
        &[Edit::RemoveDeployment(edit::RemoveDeployment { deployment: other })],
    );
    let Restore { edits, missing } = restored(&gone, &now, &catalog);
    assert_eq!((edits, missing.len()), (vec![], 1));
    assert!(
        missing[0].to_string().starts_with("the parent deployment: Deployment"),
        "{}",
        missing[0]
    );
}
