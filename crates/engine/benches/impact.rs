//! Measures the impact analysis of a change of 20,000 noderoles.
//!
//! Run it with `cargo bench -p engine --bench impact`.

#![expect(clippy::unwrap_used, reason = "a benchmark that panics has failed")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Hash;
use engine::anneal::StepState;
use engine::blueprint::impact::{Planned, impact};
use engine::blueprint::viewed::contents;
use engine::blueprint::{compare, difference, project};
use engine::catalog::{Catalog, Role};
use engine::cluster::{
    Blueprint, DeploymentDoc, EdgeDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey,
};
use engine::ids::{DeploymentId, DeploymentName, Fqdn, NodeId, RoleName};
use engine::plan::Effects;
use serde_json::{Value, json};
use uuid::Uuid;

const GOAL: Duration = Duration::from_millis(500);
const TIMES: usize = 10;
const WEB: DeploymentId = DeploymentId(Uuid::from_u128(1));

fn key(n: u128) -> NoderoleKey {
    NoderoleKey::first(RoleName::parse(&format!("r{n}")).unwrap())
}

fn role(n: u128) -> Role {
    serde_json::from_value(
        json!({"name": format!("r{n}"), "barclamp": "bench", "jig": "noop", "jig_class": "noop"}),
    )
    .unwrap()
}

/// A blueprint with this many nodes, each with a chain of noderoles that have this data.
fn blueprint(nodes: u128, each: u128, roles: &[Hash], data: &Value) -> Blueprint {
    let mut blueprint = Blueprint::default();
    let deployment = DeploymentDoc {
        id: WEB,
        name: DeploymentName::parse("web").unwrap(),
        parent: None,
        phantom: NodeId(Uuid::from_u128(2)),
        barclamps: BTreeMap::new(),
        roles: BTreeMap::new(),
        inactive_jigs: BTreeSet::new(),
    };
    blueprint.insert_deployment(deployment).unwrap();
    for n in 0..nodes {
        let id = NodeId(Uuid::from_u128(1_000 + n * 7_919));
        let noderole = |r: u128| NoderoleDoc {
            deployment: WEB,
            role: roles[usize::try_from(r).unwrap()],
            data: data.clone(),
            reruns: 0,
            rank: u32::try_from(r).unwrap(),
            parents: (r > 0)
                .then(|| EdgeDoc { parent: key(r - 1).id(id), kind: EdgeKind::Hard })
                .into_iter()
                .collect(),
        };
        let doc = NodeDoc {
            id,
            fqdn: Fqdn::parse(&format!("n{n}.bench.example.com")).unwrap(),
            deployment: WEB,
            phantom: false,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: (0..each).map(|r| (key(r), noderole(r))).collect(),
        };
        blueprint.insert_node(doc).unwrap();
    }
    blueprint
}

fn median(mut elapsed: Vec<Duration>) -> Duration {
    elapsed.sort();
    elapsed[elapsed.len() / 2]
}

fn main() {
    // `cargo test --benches` also builds and runs this, but has nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut catalog = Catalog::default();
    let roles: Vec<Hash> = (0..20)
        .map(|n| {
            let role = role(n);
            let hash = engine::canonical::hash(&role).unwrap();
            catalog.add_role(hash, Arc::new(role));
            hash
        })
        .collect();
    let old = blueprint(1_000, 20, &roles, &json!({"port": 8080}));
    let new = blueprint(1_000, 20, &roles, &json!({"port": 9090}));
    let changes = compare(&old, &new);
    let found = difference(&old, &new, &changes).unwrap();
    let projection = project(&old, &new, &changes, &catalog).unwrap();
    let effects = Effects::default();
    let planned = Planned {
        old: &old,
        new: &new,
        difference: &found,
        projection: &projection,
        effects: &effects,
        catalog: &catalog,
    };
    let (mut reported, mut marked, mut bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..TIMES {
        let began = Instant::now();
        let view = impact(black_box(&planned), Some(&|_| Some(StepState::Active)));
        reported.push(began.elapsed());
        assert_eq!(
            (view.restarts.count, view.interrupted, view.waves.len()),
            (20_000, Some(20_000), 20)
        );
        bytes = serde_json::to_vec(&view).unwrap().len();
        let began = Instant::now();
        assert_eq!(contents(black_box(&found)).unwrap().len(), 1_000);
        marked.push(began.elapsed());
    }
    for (label, elapsed) in
        [("the impact", median(reported)), ("the content of each viewed mark", median(marked))]
    {
        let word = if elapsed <= GOAL { "within" } else { "ABOVE" };
        println!(
            "a change of 1,000 x 20 noderoles: {label}: median {elapsed:.1?}; goal {GOAL:.0?}: {word}"
        );
    }
    println!("a change of 1,000 x 20 noderoles: {bytes} bytes of JSON");
}
