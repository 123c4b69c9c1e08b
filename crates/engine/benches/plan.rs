//! Measures planning a cluster of 1,000 nodes with 20 roles each, from nothing, and one more
//! binding on top.
//!
//! Run it with `cargo bench -p engine --bench plan`.
//!
//! The roles resemble real ones: implicit ones at the bottom, shared services, a cluster with a
//! barrier, and a milestone that requires everything.
//!
//! The browser has 16 ms for one more binding while the user drags. It runs the same code as
//! WebAssembly.

#![expect(clippy::unwrap_used, reason = "what a benchmark can’t go on without, it fails without")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::canonical::{self, Object, ObjectKind};
use engine::catalog::{Barclamp, Catalog, Flags, Role};
use engine::cluster::{Blueprint, DeploymentDoc, NodeDoc, Skeleton};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, RoleName};
use engine::plan::resolve::phantom_fqdn;
use engine::plan::{Edit, NumberedEdit, edit, materialize, resolve};
use serde_json::json;
use uuid::Uuid;

const NODES: u128 = 1_000;
const ROLES: usize = 20;
const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));
const WEB: DeploymentId = DeploymentId(Uuid::from_u128(2));

fn name(n: usize) -> RoleName {
    RoleName::parse(&format!("role-{n:02}")).unwrap()
}

/// Each role requires up to three with lower numbers. Every third role is implicit, and one is a
/// cluster.
fn role(n: usize) -> Role {
    let role: Role = serde_json::from_value(
        json!({"name": name(n), "barclamp": "b", "jig": "noop", "jig_class": "noop"}),
    )
    .unwrap();
    let flags = Flags {
        implicit: n.is_multiple_of(3),
        cluster: n == 7,
        milestone: n == ROLES,
        ..Flags::default()
    };
    let requires = match n {
        // The last role requires every other role on its node.
        ROLES => (0..ROLES).map(name).collect(),
        _ => [1, 3, 7].into_iter().filter_map(|back| n.checked_sub(back)).map(name).collect(),
    };
    Role { flags, requires, ..role }
}

fn catalog() -> (Catalog, Object) {
    let mut catalog = Catalog::default();
    let mut content = BTreeMap::new();
    for role in (0..=ROLES).map(role) {
        let hash = canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        catalog.add_role(hash, Arc::new(role));
    }
    let base: Barclamp =
        serde_json::from_value(json!({"name": "b", "version": "1", "roles": {}})).unwrap();
    let pin = Object::of(ObjectKind::Barclamp, &Barclamp { roles: content, ..base }).unwrap();
    catalog.add(&pin).unwrap();
    (catalog, pin)
}

fn empty(pin: &Object) -> Blueprint {
    let mut blueprint = Blueprint::default();
    for (n, id, label, parent) in [(50, SYSTEM, "system", None), (51, WEB, "web", Some(SYSTEM))] {
        let phantom = NodeId(Uuid::from_u128(n));
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
        blueprint
            .insert_node(NodeDoc {
                id: phantom,
                fqdn,
                deployment: id,
                phantom: true,
                connection: None,
                hints: serde_json::Map::new(),
                noderoles: BTreeMap::new(),
            })
            .unwrap();
    }
    blueprint
}

fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(1_000 + n))
}

fn node_records(nodes: u128) -> Vec<(NodeId, Fqdn, DeploymentId)> {
    (0..nodes)
        .map(|n| (node(n), Fqdn::parse(&format!("n{n:04}.bench.example.com")).unwrap(), SYSTEM))
        .collect()
}

fn edits(binds: impl Iterator<Item = (u128, usize)>) -> Vec<NumberedEdit> {
    let bind = |(n, r)| Edit::Bind(edit::Bind { deployment: WEB, node: node(n), role: name(r) });
    (1..).zip(binds.map(bind)).map(|(seq, edit)| NumberedEdit { seq, edit }).collect()
}

/// The median of several measurements.
fn median(times: usize, mut work: impl FnMut()) -> Duration {
    let mut taken: Vec<Duration> = (0..times)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    taken.sort();
    taken[times / 2]
}

fn print_result(label: &str, taken: Duration, goal: &str) {
    println!("{label:<58} {:>9.2} ms   goal {goal}", taken.as_secs_f64() * 1000.0);
}

fn main() {
    // `cargo test --benches` also builds and runs this, but has nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let (catalog, pin) = catalog();
    let blueprint = empty(&pin);
    // One more node than is bound, for the additional binding.
    let nodes = node_records(NODES + 1);
    let skeleton = Skeleton::of(&blueprint, nodes.clone(), &catalog).unwrap();
    let one_by_one = edits((0..NODES).flat_map(|n| (0..ROLES).map(move |r| (n, r))));
    let on_top = edits((0..NODES).map(|n| (n, ROLES)));

    let mut effects = resolve(&skeleton, &catalog, &one_by_one);
    assert_eq!(effects.refused.iter().filter(|r| r.code != "already_bound").count(), 0);
    println!("{NODES} nodes x {ROLES} roles: {} noderoles", effects.bound.len());
    let taken = median(3, || drop(black_box(resolve(&skeleton, &catalog, &one_by_one))));
    print_result("all noderoles bound, each with an edit", taken, "1000 ms");
    let taken = median(3, || effects = black_box(resolve(&skeleton, &catalog, &on_top)));
    print_result("all noderoles bound, required by a milestone", taken, "1000 ms");

    let records = |id: NodeId| {
        nodes
            .iter()
            .find(|(known, ..)| *known == id)
            .map(|(_, fqdn, at)| (fqdn.clone(), *at).into())
    };
    effects = resolve(&skeleton, &catalog, &one_by_one);
    let mut full = materialize(&blueprint, &records, &effects).unwrap().blueprint;
    let taken = median(3, || {
        full = black_box(materialize(&blueprint, &records, &effects).unwrap().blueprint)
    });
    print_result("  and written as documents", taken, "-");
    let taken =
        median(5, || drop(black_box(Skeleton::of(&full, nodes.clone(), &catalog).unwrap())));
    print_result("the indexed skeleton (once for each blueprint)", taken, "-");

    let skeleton = Skeleton::of(&full, nodes.clone(), &catalog).unwrap();
    let one_more = edits([(NODES, ROLES - 1)].into_iter());
    let more = resolve(&skeleton, &catalog, &one_more);
    assert!(more.refused.is_empty() && !more.bound.is_empty());
    let taken = median(50, || {
        let effects = resolve(&skeleton, &catalog, &one_more);
        black_box(effects.hash().unwrap());
    });
    print_result("one more binding, with its hash", taken, "5 ms (16 ms in a browser)");
    let joins = edits([(NODES, 7)].into_iter());
    let taken = median(50, || {
        let effects = resolve(&skeleton, &catalog, &joins);
        black_box(effects.hash().unwrap());
    });
    print_result(
        "one more member of the cluster that all depend on",
        taken,
        "5 ms (16 ms in a browser)",
    );
    let taken = median(10, || drop(black_box(materialize(&full, &records, &more).unwrap())));
    print_result("  and one more binding written as documents", taken, "-");
}
