//! The difference between blueprints, and its text.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::blueprint::difference::{Mark, Sides};
use engine::blueprint::text::{HashDescriptions, Names, PinDescription};
use engine::blueprint::{apply, changes, compare, difference};
use engine::catalog::Role;
use engine::cluster::{
    Blueprint, Connection, DeploymentDoc, DeploymentRoleDoc, EdgeDoc, EdgeKind, NodeDoc,
    NoderoleDoc,
};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId};
use engine::plan::{Edit, edit};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{
    EDGE, SYSTEM, WEB, World, bind, data, fqdn, key, name, node, rerun, role, role_data,
};

fn text(old: &Blueprint, new: &Blueprint) -> String {
    let found = difference(old, new, &compare(old, new)).unwrap();
    found.text(&Names::of(&found, old, new), &HashDescriptions::default())
}

fn example_world() -> World {
    let roles = vec![
        role("base", &[]),
        role("runtime", &["base"]),
        role("app", &["runtime"]),
        role("db", &["base"]),
    ];
    let mut world = World::of(roles);
    world.commit(&[
        bind(WEB, 1, "app"),
        bind(WEB, 2, "app"),
        bind(WEB, 3, "db"),
        bind(EDGE, 4, "db"),
    ]);
    world
}

#[test]
fn difference_lists_additions_and_changed_values() {
    let mut world = example_world();
    world.commit(&[data(
        1,
        "app",
        json!({"port": 8080, "key": {"$secret": "tls", "version": 1}, "old": true}),
    )]);
    let newer = vec![
        role("app", &["runtime", "base"]),
        role("base", &[]),
        role("runtime", &["base"]),
        role("db", &[]),
    ];
    let pin = world.import("2", newer);
    let (id, phantom) = (DeploymentId(Uuid::from_u128(9)), NodeId(Uuid::from_u128(99)));
    let edits = [
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: WEB,
            barclamp: BarclampName::parse("house").unwrap(),
            version: pin,
        }),
        role_data(WEB, "app", json!({"threads": 4})),
        data(
            1,
            "app",
            json!({"port": 9090, "key": {"$secret": "tls", "version": 2}, "list": [1, 2]}),
        ),
        rerun(3, "db"),
        Edit::CreateDeployment(edit::CreateDeployment {
            id,
            phantom,
            name: DeploymentName::parse("blue").unwrap(),
            parent: WEB,
        }),
        bind(id, 5, "app"),
        Edit::MoveNode(edit::MoveNode { node: node(2), deployment: id }),
    ];
    let changed = world.change(&edits);
    insta::assert_snapshot!(text(&changed.old, &changed.new));
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    insta::assert_json_snapshot!(found);
}

#[test]
fn content_of_hash_is_listed_once() {
    let mut world = example_world();
    let newer = |text: &str, requires: &[&str]| Role {
        description: "newer".into(),
        ..role(text, requires)
    };
    let roles = vec![
        newer("app", &["runtime"]),
        newer("base", &[]),
        role("runtime", &["base"]),
        role("db", &["base"]),
    ];
    let pin = world.import("2", roles);
    let barclamp = BarclampName::parse("house").unwrap();
    let changed = world.change(&[Edit::UseBarclamp(edit::UseBarclamp {
        deployment: WEB,
        barclamp: barclamp.clone(),
        version: pin,
    })]);
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    let pair = |role: &str| {
        let of = |blueprint: &Blueprint| blueprint.deployments[&WEB].doc.roles[&name(role)].role;
        (of(&changed.old), of(&changed.new))
    };
    let one = |text: &str| Hash::of_bytes(text.as_bytes());
    let unused = Sides { old: Some(one("unused")), new: Some(one("unused, newer")) };
    let versions =
        Sides { old: Some("1 (0a1b2c3d), from system".into()), new: Some("2 (4e5f6071)".into()) };
    let roles =
        vec![(name("new"), Sides { old: None, new: Some(one("new")) }), (name("unused"), unused)];
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let behind = HashDescriptions {
        pins: [((WEB, barclamp), PinDescription { versions, roles })].into(),
        contents: [
            (
                pair("app"),
                lines(&["/description: \"\" -> \"newer\"", "* script 10-a.sh: +3 -1 lines"]),
            ),
            (pair("base"), lines(&["- script 20-b.sh: +0 -9 lines"])),
            ((one("unused"), one("unused, newer")), lines(&["+ script 30-c.sh: +2 -0 lines"])),
        ]
        .into(),
    };
    insta::assert_snapshot!(found.text(&Names::of(&found, &changed.old, &changed.new), &behind));
}

#[test]
fn difference_lists_removals_first() {
    let world = example_world();
    let mut new = world.with_node(1, |doc| {
        doc.fqdn = Fqdn::parse("other.house.example.com").unwrap();
        doc.phantom = true;
        doc.noderoles.remove(&key("app"));
        let runtime = doc.noderoles.get_mut(&key("runtime")).unwrap();
        (runtime.rank, runtime.deployment) = (7, SYSTEM);
        runtime.parents[0].kind = EdgeKind::OrderOnly;
        runtime.parents.push(EdgeDoc { parent: key("db").id(node(4)), kind: EdgeKind::Soft });
    });
    new.nodes.remove(&node(2));
    let mut edge = (*new.deployments.get(&EDGE).unwrap().doc).clone();
    (edge.name, edge.parent, edge.phantom) =
        (DeploymentName::parse("rim").unwrap(), Some(WEB), node(3));
    edge.roles.remove(&name("db"));
    edge.inactive_jigs.insert(JigName::parse("script").unwrap());
    new.insert_deployment(edge).unwrap();
    insta::assert_snapshot!(text(&world.blueprint, &new));
    insta::assert_snapshot!("the_same_seen_in_the_mirror", text(&new, &world.blueprint));
}

#[test]
fn empty_and_long_differences_are_readable() {
    let world = example_world();
    insta::assert_snapshot!(text(&world.blueprint, &world.blueprint), @r"
    No differences.
    0 removed, 0 changed, 0 added, 7 documents unchanged.
    ");
    let mut many = World::of((0..60).map(|n| role(&format!("r{n}"), &[])).collect());
    many.commit(&(0..60).map(|n| bind(WEB, 1, &format!("r{n}"))).collect::<Vec<_>>());
    let changed = many.change(&[rerun(1, "r7")]);
    insta::assert_snapshot!(text(&changed.old, &changed.new), @r"
    * node n1.house.example.com
      * r7
        runs again: requested
      59 noderoles unchanged

    0 removed, 1 changed, 0 added, 3 documents unchanged.
    ");
}

#[test]
fn difference_shows_secret_names_only() {
    let mut world = example_world();
    world.commit(&[data(
        1,
        "app",
        json!({"plain": "hunter2", "rotated": {"$secret": "s3cr3t", "version": 1}}),
    )]);
    let secret = json!({"$secret": "s3cr3t", "version": 2});
    let changed = world.change(&[data(1, "app", json!({"plain": secret, "rotated": secret}))]);
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    let all = text(&changed.old, &changed.new) + &serde_json::to_string(&found).unwrap();
    assert!(!all.contains("hunter"), "{all}");
    assert!(all.contains("/plain: a plain value -> \"(secret s3cr3t version 2)\""), "{all}");
    assert!(
        all.contains("/rotated: \"(secret s3cr3t version 1)\" -> \"(secret s3cr3t version 2)\""),
        "{all}"
    );
}

/// Blueprints of a few documents that can differ in anything, including changes that no edit makes.
fn blueprint() -> impl Strategy<Value = Blueprint> {
    let value = || {
        prop_oneof![
            Just(json!({})),
            (0..3).prop_map(|n| json!({"a": n})),
            Just(json!({"b": {"$secret": "s"}}))
        ]
    };
    let hash = || (0u8..3).prop_map(|n| Hash::of_bytes(&[n]));
    let edge = (0u128..4, 0usize..3).prop_map(|(n, kind)| EdgeDoc {
        parent: NoderoleId(Uuid::from_u128(n)),
        kind: [EdgeKind::Hard, EdgeKind::OrderOnly, EdgeKind::Soft][kind],
    });
    let edges = prop::collection::btree_map(0..1u8, edge, 0..2)
        .prop_map(|edges| edges.into_values().collect::<Vec<_>>());
    let noderole = (0u128..2, hash(), value(), 0u32..2, 0u32..2, edges).prop_map(
        |(deployment, role, data, reruns, rank, parents)| NoderoleDoc {
            deployment: DeploymentId(Uuid::from_u128(deployment)),
            role,
            data,
            reruns,
            rank,
            parents,
        },
    );
    let noderoles =
        prop::collection::btree_map((0u8..3).prop_map(|n| key(&format!("r{n}"))), noderole, 0..3);
    let node_doc = (0u128..2, 0u128..3, any::<bool>(), 0u8..4, noderoles);
    let roles = prop::collection::btree_map(
        (0u8..2).prop_map(|n| name(&format!("r{n}"))),
        (hash(), value()).prop_map(|(role, data)| DeploymentRoleDoc { role, data }),
        0..2,
    );
    let pins = prop::collection::btree_map(Just(BarclampName::parse("b").unwrap()), hash(), 0..2);
    let jigs = prop::collection::btree_set(
        (0u8..2).prop_map(|n| JigName::parse(&format!("j{n}")).unwrap()),
        0..2,
    );
    let deployment_doc = (0u8..3, prop::option::of(0u128..2), 0u128..2, pins, roles, jigs);
    let deployments = prop::collection::btree_map(0u128..3, deployment_doc, 0..3);
    let nodes = prop::collection::btree_map(0u128..4, node_doc, 0..4);
    (deployments, nodes).prop_map(|(deployments, nodes)| written(deployments, nodes))
}

type Deployment = (
    u8,
    Option<u128>,
    u128,
    BTreeMap<BarclampName, Hash>,
    BTreeMap<engine::ids::RoleName, DeploymentRoleDoc>,
    BTreeSet<JigName>,
);
type Node = (u128, u128, bool, u8, BTreeMap<engine::cluster::NoderoleKey, NoderoleDoc>);

fn written(deployments: BTreeMap<u128, Deployment>, nodes: BTreeMap<u128, Node>) -> Blueprint {
    let mut blueprint = Blueprint::default();
    let id = |n: u128| DeploymentId(Uuid::from_u128(n));
    for (n, (label, parent, phantom, barclamps, roles, inactive_jigs)) in deployments {
        let name = DeploymentName::parse(&format!("d{label}")).unwrap();
        let doc = DeploymentDoc {
            id: id(n),
            name,
            parent: parent.map(id),
            phantom: node(phantom),
            barclamps,
            roles,
            inactive_jigs,
        };
        blueprint.insert_deployment(doc).unwrap();
    }
    for (n, (deployment, label, phantom, record, noderoles)) in nodes {
        let connection =
            (record > 0).then(|| Connection::Local { root: format!("/{}", record % 2) });
        let hints = (record > 1).then(|| ("rack".to_owned(), json!(record))).into_iter().collect();
        let doc = NodeDoc {
            id: node(n),
            fqdn: fqdn(label),
            deployment: id(deployment),
            phantom,
            connection,
            hints,
            noderoles,
        };
        blueprint.insert_node(doc).unwrap();
    }
    blueprint
}

fn overlay(old: &Value, changes: &[engine::data::Change]) -> Value {
    let mut new = old.clone();
    for change in changes {
        let key = change.path.trim_start_matches('/');
        match &change.new {
            Some(value) => drop(new.as_object_mut().unwrap().insert(key.into(), value.clone())),
            None => drop(new.as_object_mut().unwrap().remove(key)),
        }
    }
    new
}

proptest! {
    #[test]
    fn difference_is_complete_and_symmetric(old in blueprint(), new in blueprint()) {
        let changed = compare(&old, &new);
        prop_assert_eq!(&changed, &changes(&old.root(), &new.root()));
        prop_assert_eq!(apply(&old.root(), &changed).unwrap(), new.root());

        let found = difference(&old, &new, &changed).unwrap();
        prop_assert_eq!(found.deployments.len() + found.nodes.len(), changed.len(), "what differs is there, and nothing else");
        let back = difference(&new, &old, &compare(&new, &old)).unwrap();
        prop_assert_eq!(&found.clone().mirrored(), &back);
        prop_assert_eq!(&back.mirrored(), &found);
        let itself = difference(&new, &new, &compare(&new, &new)).unwrap();
        prop_assert!(itself.is_empty() && itself.unchanged == new.deployments.len() + new.nodes.len());

        // Each changed document has at least one change. Changed values that are not secrets,
        // merged over the old data, give the new data.
        for node in &found.nodes {
            prop_assert!(
                node.moved.is_some()
                    || node.renamed.is_some()
                    || node.phantom.is_some()
                    || node.connection.is_some()
                    || !node.hints.is_empty()
                    || !node.noderoles.is_empty()
            );
            for noderole in &node.noderoles {
                let data = |side: &Blueprint| side.noderole(node.id, &noderole.noderole).map_or(json!({}), |(_, n)| n.data.clone());
                if noderole.data.iter().all(|change| !change.secret) {
                    prop_assert_eq!(overlay(&data(&old), &noderole.data), data(&new));
                }
            }
        }
        for deployment in &found.deployments {
            let fields = [deployment.renamed.is_some(), deployment.parent.is_some(), deployment.phantom.is_some()];
            let lists = deployment.barclamps.len() + deployment.roles.len() + deployment.inactive_jigs.len();
            prop_assert!(deployment.mark != Mark::Changed || fields.contains(&true) || lists > 0);
        }
        let through_json: engine::blueprint::Difference =
            serde_json::from_value(serde_json::to_value(&found).unwrap()).unwrap();
        prop_assert_eq!(through_json, found);
    }
}
