//! Measures dragging nodes over a board of 50 roles, and restoring, in a cluster of 1,000 nodes
//! with 20 roles each.
//!
//! Run it with `cargo bench -p engine --bench drop_preview`.
//!
//! The dragged nodes are fresh (new machines), alike (each with the same 10 roles) or all different
//! (each with its own roles), the worst case. The browser runs the same code as WebAssembly while
//! the user drags.

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
use engine::plan::restore::{RestoreInput, restore};
use engine::plan::{Edit, NumberedEdit, edit, materialize, preview_drop, resolve};
use serde_json::json;
use uuid::Uuid;

const BOUND: u128 = 1_000;
const DRAGGED: u128 = 200;
const ROLES: usize = 50;
const STACK: usize = 10;
const EACH: usize = 20;
const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));
const WEB: DeploymentId = DeploymentId(Uuid::from_u128(2));

fn name(n: usize) -> RoleName {
    RoleName::parse(&format!("role-{n:02}")).unwrap()
}

/// Stacks of ten roles on one role that all require. Each requires up to two below it in its stack.
/// Every third role is implicit, and one is a cluster.
fn role(n: usize) -> Role {
    let role: Role = serde_json::from_value(
        json!({"name": name(n), "barclamp": "b", "jig": "noop", "jig_class": "noop"}),
    )
    .unwrap();
    let flags = Flags { implicit: n.is_multiple_of(3), cluster: n == 7, ..Flags::default() };
    let in_stack = n % STACK;
    let below = [1, 3].into_iter().filter(|back| in_stack >= *back).map(|back| n - back);
    let requires = below.chain((in_stack == 0 && n > 0).then_some(0)).map(name).collect();
    Role { flags, requires, ..role }
}

fn catalog() -> (Catalog, Object) {
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
    (catalog, pin)
}

fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(1_000 + n))
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
    for n in 0..BOUND + 3 * DRAGGED {
        let fqdn = Fqdn::parse(&format!("n{n:04}.bench.example.com")).unwrap();
        let doc = NodeDoc {
            id: node(n),
            fqdn,
            deployment: SYSTEM,
            phantom: false,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: BTreeMap::new(),
        };
        blueprint.insert_node(doc).unwrap();
    }
    blueprint
}

fn numbered(edits: Vec<Edit>) -> Vec<NumberedEdit> {
    (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit }).collect()
}

fn bind(n: u128, role: usize) -> Edit {
    Edit::Bind(edit::Bind { deployment: WEB, node: node(n), role: name(role) })
}

/// The minimum of several measurements, because other load on the machine only adds time.
fn best(times: usize, mut work: impl FnMut()) -> Duration {
    let mut taken: Vec<Duration> = (0..times)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    taken.sort();
    taken[0]
}

fn print_result(work: &str, taken: Duration, goal: u64) {
    let word = if taken <= Duration::from_millis(goal) { "within" } else { "ABOVE" };
    println!("{work:<58} {:>9.2} ms   goal {goal} ms: {word}", taken.as_secs_f64() * 1000.0);
}

fn main() {
    // `cargo test --benches` also builds and runs this, but has nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let (catalog, pin) = catalog();
    let blueprint = empty(&pin);
    let skeleton = Skeleton::of(&blueprint, [], &catalog).unwrap();
    let mut edits: Vec<Edit> =
        (0..BOUND).flat_map(|n| (0..EACH).map(move |role| bind(n, role))).collect();
    edits.extend(
        (0..ROLES).map(|role| Edit::AddRole(edit::AddRole { deployment: WEB, role: name(role) })),
    );
    let (fresh, alike, different) = (BOUND, BOUND + DRAGGED, BOUND + 2 * DRAGGED);
    edits.extend((0..DRAGGED).map(|n| bind(alike + n, 9)));
    for n in 0..DRAGGED {
        edits.extend(
            (0..8).filter(|bit| n >> bit & 1 == 1).map(|bit| bind(different + n, 6 * bit + 2)),
        );
    }
    let effects = resolve(&skeleton, &catalog, &numbered(edits));
    let others: Vec<_> = effects
        .refused
        .iter()
        .filter(|refused| !["already_bound", "role_exists"].contains(&refused.code.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    let full = materialize(&blueprint, &|_| None, &effects).unwrap().blueprint;
    let skeleton = Skeleton::of(&full, [], &catalog).unwrap();

    for (label, first) in [("fresh", fresh), ("alike", alike), ("all different", different)] {
        for (count, goal, times) in [(10, 16, 50), (DRAGGED, 100, 10)] {
            let nodes: Vec<NodeId> = (0..count).map(|n| node(first + n)).collect();
            let reported = preview_drop(&skeleton, &catalog, &[], 1, WEB, &nodes);
            assert_eq!(reported.roles.len(), ROLES);
            let unknown: usize = reported.roles.iter().map(|role| role.unknown.len()).sum();
            let taken = best(times, || {
                drop(black_box(preview_drop(&skeleton, &catalog, &[], 1, WEB, &nodes)))
            });
            print_result(
                &format!("{count} nodes dragged, {label}; {unknown} answers left out"),
                taken,
                goal,
            );
        }
    }

    for (label, now, then) in
        [("from nothing", &blueprint, &full), ("to nothing", &full, &blueprint)]
    {
        let skeleton = Skeleton::of(now, [], &catalog).unwrap();
        let now = RestoreInput {
            blueprint: now,
            skeleton: &skeleton,
            catalog: &catalog,
            records: &|_| None,
        };
        let back = restore(now, then, WEB).unwrap();
        let taken = best(3, || drop(black_box(restore(now, then, WEB).unwrap())));
        let (edits, missing) = (back.edits.len(), back.missing.len());
        print_result(
            &format!("1,000 x 20 brought back {label}: {edits} edits, {missing} missing"),
            taken,
            5_000,
        );
    }
}
