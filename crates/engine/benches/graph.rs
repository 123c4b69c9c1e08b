//! Measures the server's work for a graph page (folding, waves, paths).
//!
//! Run it with `cargo bench -p engine --bench graph`.
//!
//! The edges resemble real ones: a chain of roles on each node, with a shared service for every
//! tenth noderole. The last column is the cost of ten times as many edges. It must not grow faster
//! than their number.

#![expect(clippy::unwrap_used, reason = "what a benchmark can’t go on without, it fails without")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use engine::cluster::graph::{Item, Unfold, fold};
use engine::cluster::marked_path::{PathSet, between, longest, waves};
use engine::cluster::{EdgeKind, NoderoleKey};
use engine::ids::{DeploymentId, Fqdn, NodeId, NoderoleId, RoleName};
use uuid::Uuid;

const ROLES: usize = 10;

fn role(n: usize) -> RoleName {
    RoleName::parse(&format!("role-{n:02}")).unwrap()
}

fn node(n: usize) -> NodeId {
    NodeId(Uuid::from_u128(1_000 + n as u128))
}

/// A graph with about this many edges.
fn graph(edges: usize) -> Vec<Item> {
    let nodes = edges / ROLES;
    let mut items = Vec::new();
    for at in 0..nodes * ROLES {
        let (n, r) = (at / ROLES, at % ROLES);
        let id = |n: usize, r: usize| NoderoleId::of(node(n), &role(r), 0);
        let mut parents = Vec::new();
        parents.extend((r > 0).then(|| (id(n, r - 1), EdgeKind::Hard)));
        parents.extend((r > 0 && at % 10 == 5).then(|| (id(0, r - 1), EdgeKind::Hard)));
        items.push(Item {
            id: id(n, r),
            noderole: NoderoleKey::first(role(r)),
            deployment: DeploymentId(Uuid::from_u128(1)),
            node: node(n),
            fqdn: Fqdn::parse(&format!("n{n}.bench.example.com")).unwrap(),
            parents,
        });
    }
    items
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut taken: Vec<Duration> = (0..9)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed()
        })
        .collect();
    taken.sort();
    taken[4]
}

fn main() {
    let [small, large, huge] = [1_000, 10_000, 100_000].map(graph);
    let print_timing = |label: &str, work: &dyn Fn(&[Item])| {
        let [small, large, huge] =
            [&small, &large, &huge].map(|items| median(|| work(items)).as_secs_f64() * 1_000.0);
        println!("{label:40} {small:9.2} ms {large:9.2} ms {huge:9.2} ms   x {:.1}", huge / large);
    };
    println!("{:40} {:>12} {:>12} {:>12}", "edges", "1,000", "10,000", "100,000");
    let ends = |items: &[Item]| {
        let of = |r: usize| {
            items
                .iter()
                .filter(|i| i.noderole.role == role(r))
                .map(|i| i.id)
                .collect::<BTreeSet<_>>()
        };
        (of(0), of(ROLES - 1))
    };
    print_timing("folded by role", &|items| {
        drop(black_box(fold(items, &Unfold::default(), &PathSet::default())))
    });
    print_timing("not folded", &|items| {
        let all = Unfold { roles: (0..ROLES).map(role).collect(), ..Unfold::default() };
        drop(black_box(fold(items, &all, &PathSet::default())));
    });
    print_timing("waves", &|items| drop(black_box(waves(items))));
    print_timing("paths between two roles", &|items| {
        let (from, to) = ends(items);
        drop(black_box(between(items, &from, &to)));
    });
    print_timing("the longest path", &|items| drop(black_box(longest(items, |_| 1))));
}
