//! Trails through the graph of noderoles: every way from some to others, the longest way there is, and the wave of each.
//!
//! A trail is looked for among noderoles and marked on the fold afterwards, never the other way round: `dns` before `run` and `run`
//! before `app` in a folded picture may be about different nodes, and a way through both would be one that nobody waits for.
//!
//! Invariants (`tests/graph_trails.rs` checks each against every way of small graphs):
//! * an edge is on the trail between two sets if and only if some way from the one to the other uses it;
//! * the longest way is a way, no other weighs more, and of equal ones the same is told each time, whatever order they come in;
//! * a noderole's wave is one more than the last wave of those that it waits for.
//!
//! Everything is linear in noderoles and edges (times a logarithm for looking up ids). What stands in a cycle has no wave and is on
//! no longest way: a blueprint has none, but what is laid over it in a review mixes two.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::graph::{Item, Way, reach};
use crate::ids::NoderoleId;

/// Edges of a graph that belong together, and their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// The ends of its edges; of the longest way, a single noderole that has none.
    pub noderoles: BTreeSet<NoderoleId>,
    /// From what is waited for to what waits.
    pub edges: BTreeSet<(NoderoleId, NoderoleId)>,
}

impl Trail {
    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.noderoles.is_empty()
    }
}

/// Every way from one of `from` to one of `to`, along what waits.
pub fn between(items: &[Item], from: &BTreeSet<NoderoleId>, to: &BTreeSet<NoderoleId>) -> Trail {
    let behind = reach(items, from, Way::Down, usize::MAX);
    let before = reach(items, to, Way::Up, usize::MAX);
    let mut trail = Trail::default();
    for item in items.iter().filter(|item| before.contains(&item.id)) {
        for (parent, _) in item.parents.iter().filter(|(parent, _)| behind.contains(parent)) {
            trail.edges.insert((*parent, item.id));
            trail.noderoles.extend([*parent, item.id]);
        }
    }
    trail
}

/// The way of the greatest weight, from its first noderole to its last; of equal ones, the one that ends with, and comes by, what is
/// first by deployment, role and node.
pub fn longest(items: &[Item], weight: impl Fn(NoderoleId) -> u64) -> Vec<NoderoleId> {
    let order = Order::of(items);
    let name = |at: usize| {
        let item = &items[at];
        (item.deployment, &item.noderole, &item.fqdn, item.id)
    };
    let better =
        |a: (u64, usize), b: (u64, usize)| a.0.cmp(&b.0).then_with(|| name(b.1).cmp(&name(a.1)));
    let mut heaviest: Vec<(u64, Option<usize>)> = vec![(0, None); items.len()];
    for at in &order.sorted {
        let ways = order.parents[*at].iter().map(|parent| (heaviest[*parent].0, *parent));
        let best = ways.max_by(|a, b| better(*a, *b));
        let before = best.map_or(0, |(weight, _)| weight);
        heaviest[*at] =
            (before.saturating_add(weight(items[*at].id)), best.map(|(_, parent)| parent));
    }
    let last = order.sorted.iter().map(|at| (heaviest[*at].0, *at)).max_by(|a, b| better(*a, *b));
    let mut at = last.map(|(_, at)| at);
    let mut way = Vec::new();
    while let Some(now) = at {
        way.push(items[now].id);
        at = heaviest[now].1;
    }
    way.reverse();
    way
}

/// A way as a trail.
pub fn along(way: &[NoderoleId]) -> Trail {
    Trail {
        noderoles: way.iter().copied().collect(),
        edges: way.windows(2).map(|pair| (pair[0], pair[1])).collect(),
    }
}

/// The wave of each noderole, from 1: one more than the last of those that it waits for. None: it stands in, or behind, a cycle.
pub fn waves(items: &[Item]) -> Vec<Option<u32>> {
    let order = Order::of(items);
    let mut waves: Vec<Option<u32>> = vec![None; items.len()];
    for at in &order.sorted {
        let before = order.parents[*at].iter().filter_map(|parent| waves[*parent]).max();
        waves[*at] = Some(before.unwrap_or(0).saturating_add(1));
    }
    waves
}

/// Places of items, each behind all that it waits for; without what stands in or behind a cycle.
struct Order {
    parents: Vec<Vec<usize>>,
    sorted: Vec<usize>,
}

impl Order {
    fn of(items: &[Item]) -> Self {
        let place: BTreeMap<NoderoleId, usize> =
            items.iter().enumerate().map(|(at, item)| (item.id, at)).collect();
        let known = |item: &Item| {
            item.parents.iter().filter_map(|(parent, _)| place.get(parent).copied()).collect()
        };
        let parents: Vec<Vec<usize>> = items.iter().map(known).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
        for (at, parents) in parents.iter().enumerate() {
            for parent in parents {
                children[*parent].push(at);
            }
        }
        let mut waiting: Vec<usize> = parents.iter().map(Vec::len).collect();
        let mut sorted: Vec<usize> = (0..items.len()).filter(|at| waiting[*at] == 0).collect();
        let mut next = 0;
        while let Some(at) = sorted.get(next).copied() {
            next += 1;
            for child in &children[at] {
                waiting[*child] -= 1;
                if waiting[*child] == 0 {
                    sorted.push(*child);
                }
            }
        }
        Self { parents, sorted }
    }
}
