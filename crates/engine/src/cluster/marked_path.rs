//! Marked paths through the graph of noderoles: all paths between two sets, the longest path, and
//! waves.
//!
//! A marked path is computed on noderoles and marked on the folded graph afterwards. The reverse
//! would be wrong: in a folded graph, `dns` before `run` and `run` before `app` can concern
//! different nodes. A path through both would then be one that no step waits for.
//!
//! Invariants (`tests/graph_paths.rs` checks each against all paths of small graphs):
//!
//! * An edge is on the marked path between two sets if and only if some path between them uses it.
//! * The longest path is a path with the greatest weight. Among equal ones, the choice does not
//!   depend on the order of the items.
//! * A noderole's wave is one more than the last wave of its parents.
//!
//! All functions are linear in noderoles and edges, times a logarithm for id lookups. A noderole in
//! a cycle has no wave and is on no longest path. A blueprint has no cycle, but a review overlays
//! two blueprints.

use std::collections::BTreeSet;

use petgraph::Incoming;
use petgraph::graph::NodeIndex;

pub use crate::cluster::graph::PathSet;
use crate::cluster::graph::{Direction, Item, indexed, reach};
use crate::ids::NoderoleId;
use crate::walk::{self, acyclic};

/// All paths from one of `from` down to one of `to`, in the direction from parents to children.
pub fn between(items: &[Item], from: &BTreeSet<NoderoleId>, to: &BTreeSet<NoderoleId>) -> PathSet {
    let descendants = reach(items, from, Direction::Down, usize::MAX);
    let before = reach(items, to, Direction::Up, usize::MAX);
    let mut marked_path = PathSet::default();
    for item in items.iter().filter(|item| before.contains(&item.id)) {
        for (parent, _) in item.parents.iter().filter(|(parent, _)| descendants.contains(parent)) {
            marked_path.edges.insert((*parent, item.id));
            marked_path.noderoles.extend([*parent, item.id]);
        }
    }
    marked_path
}

/// The path of the greatest weight, from its first noderole to its last. Among equal paths, it
/// prefers the first noderoles by deployment, role and node, starting at the end.
pub fn longest(items: &[Item], weight: impl Fn(NoderoleId) -> u64) -> Vec<NoderoleId> {
    let graph = indexed(items);
    let name = |at: NodeIndex| {
        let item = &items[at.index()];
        (item.deployment, &item.noderole, &item.fqdn, item.id)
    };
    let better = |a: &(u64, NodeIndex), b: &(u64, NodeIndex)| {
        a.0.cmp(&b.0).then_with(|| name(b.1).cmp(&name(a.1)))
    };
    let mut heaviest: Vec<(u64, Option<NodeIndex>)> = vec![(0, None); items.len()];
    let order = acyclic(&graph);
    for at in &order {
        let parents = graph.neighbors_directed(*at, Incoming);
        let best = parents.map(|parent| (heaviest[parent.index()].0, parent)).max_by(better);
        let before = best.map_or(0, |(weight, _)| weight);
        heaviest[at.index()] =
            (before.saturating_add(weight(items[at.index()].id)), best.map(|(_, parent)| parent));
    }
    let last = order.iter().map(|at| (heaviest[at.index()].0, *at)).max_by(better);
    let mut at = last.map(|(_, at)| at);
    let mut path = Vec::new();
    while let Some(now) = at {
        path.push(items[now.index()].id);
        at = heaviest[now.index()].1;
    }
    path.reverse();
    path
}

/// The marked path that is a single path.
pub fn along(path: &[NoderoleId]) -> PathSet {
    PathSet {
        noderoles: path.iter().copied().collect(),
        edges: path.windows(2).map(|pair| (pair[0], pair[1])).collect(),
    }
}

/// The wave of each noderole, starting at 1: one more than the last wave of its parents. `None` for
/// a noderole in a cycle or after one.
pub fn waves(items: &[Item]) -> Vec<Option<u32>> {
    let depths = walk::depths(&indexed(items));
    depths.into_iter().map(|depth| depth.map(|depth| depth.saturating_add(1))).collect()
}
