//! Measures the difference of two blueprints with 20,000 noderoles that differ in one.
//!
//! Run it with `cargo bench -p engine --bench blueprint`.

#![expect(clippy::unwrap_used, reason = "a benchmark that panics has failed")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use engine::Hash;
use engine::blueprint::text::{HashDescriptions, Names};
use engine::blueprint::{compare, difference};
use engine::cluster::{Blueprint, EdgeDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey};
use engine::ids::{DeploymentId, Fqdn, NodeId, RoleName};
use serde_json::json;
use uuid::Uuid;

const GOAL: Duration = Duration::from_millis(1);
const TIMES: usize = 200;

fn key(n: u128) -> NoderoleKey {
    NoderoleKey::first(RoleName::parse(&format!("r{n}")).unwrap())
}

/// A blueprint with this many nodes, each with a chain of `each` noderoles.
fn blueprint(nodes: u128, each: u128) -> Blueprint {
    let mut blueprint = Blueprint::default();
    for n in 0..nodes {
        let id = NodeId(Uuid::from_u128(1_000 + n * 7_919));
        let noderole = |r: u128| NoderoleDoc {
            deployment: DeploymentId(Uuid::from_u128(1)),
            role: Hash::of_bytes(&r.to_be_bytes()),
            data: json!({"port": 8080, "names": ["a", "b"], "limits": {"files": 1024}}),
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
            deployment: DeploymentId(Uuid::from_u128(1)),
            phantom: false,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: (0..each).map(|r| (key(r), noderole(r))).collect(),
        };
        blueprint.insert_node(doc).unwrap();
    }
    blueprint
}

fn main() {
    // `cargo test --benches` also builds and runs this, but has nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for (nodes, each) in [(1_000, 20), (20_000, 1)] {
        let old = blueprint(nodes, each);
        let mut new = old.clone();
        let mut doc =
            (*new.nodes.values().nth(usize::try_from(nodes / 2).unwrap()).unwrap().doc).clone();
        doc.noderoles.values_mut().last().unwrap().data = json!({"port": 9090});
        new.insert_node(doc).unwrap();
        let mut took = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let began = Instant::now();
            let changes = compare(black_box(&old), black_box(&new));
            let found = difference(&old, &new, &changes).unwrap();
            let text = found.text(&Names::of(&found, &old, &new), &HashDescriptions::default());
            took.push(began.elapsed());
            assert_eq!((changes.len(), black_box(text).lines().count() > 3), (1, true));
        }
        took.sort();
        let (median, slowest) = (took[TIMES / 2], took[TIMES - 1]);
        let word = if median <= GOAL { "within" } else { "ABOVE" };
        println!(
            "difference of two blueprints of {nodes} x {each} noderoles that differ in one, as text too: median {median:.1?}, \
             slowest {slowest:.1?}; goal {GOAL:.0?}: {word}"
        );
    }
}
