//! Walks through directed graphs with petgraph.
//!
//! A graph has one of two forms. If all edges are at hand, it is a petgraph graph of the vertices
//! `0..count` ([`digraph`]). If looking at all edges costs more than the walk, a function returns
//! the next vertices of a vertex, and petgraph walks that ([`reachable`]).
//!
//! No function recurses, because a chain may have thousands of vertices. No result depends on the
//! order of the edges.

use std::collections::HashSet;
use std::hash::Hash;
use std::marker::PhantomData;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{Dfs, GraphBase, GraphRef, IntoNeighbors};

/// The graph of the vertices `0..count`, with edges (from, to) between them.
pub fn digraph(count: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> DiGraph<(), ()> {
    let mut graph = DiGraph::with_capacity(count, 0);
    for _ in 0..count {
        graph.add_node(());
    }
    let edges = edges.into_iter().filter(|(from, to)| *from < count && *to < count);
    graph.extend_with_edges(edges.map(|(from, to)| (NodeIndex::new(from), NodeIndex::new(to))));
    graph
}

/// The vertices in topological order, without those in a cycle or after one.
///
/// `petgraph::algo::toposort` returns nothing if there is a cycle, and `petgraph::visit::Topo` is
/// quadratic in the number of edges into one vertex. A barrier has thousands.
pub(crate) fn acyclic(graph: &DiGraph<(), ()>) -> Vec<NodeIndex> {
    let mut order = Vec::with_capacity(graph.node_count());
    let mut ordered = vec![false; graph.node_count()];
    // The components come in reverse topological order.
    for component in kosaraju_scc(graph).into_iter().rev() {
        let [vertex] = component[..] else { continue };
        // A vertex with an edge to itself is its own parent.
        let mut parents = graph.neighbors_directed(vertex, petgraph::Incoming);
        if parents.all(|parent| ordered[parent.index()]) {
            ordered[vertex.index()] = true;
            order.push(vertex);
        }
    }
    order
}

/// The number of edges on the longest path to each vertex. `None` for a vertex in a cycle or after
/// one.
pub fn depths(graph: &DiGraph<(), ()>) -> Vec<Option<u32>> {
    let mut depths = vec![None; graph.node_count()];
    for vertex in acyclic(graph) {
        let parents = graph.neighbors_directed(vertex, petgraph::Incoming);
        let deepest = parents.filter_map(|parent| depths[parent.index()]).max();
        depths[vertex.index()] = Some(deepest.map_or(0, |deepest: u32| deepest + 1));
    }
    depths
}

/// The vertices that can be reached from some, including these. Each vertex comes once.
pub fn reachable<N, I>(
    from: impl IntoIterator<Item = N>,
    next: impl Fn(N) -> I,
) -> impl Iterator<Item = N>
where
    N: Copy + Eq + Hash,
    I: Iterator<Item = N>,
{
    let mut search = Dfs::from_parts(from.into_iter().collect(), HashSet::new());
    std::iter::from_fn(move || search.next(OnDemand(&next, PhantomData)))
}

/// A graph whose edges a function returns.
#[derive(Clone, Copy)]
struct OnDemand<N, F>(F, PhantomData<N>);

impl<N: Copy + PartialEq, F: Copy> GraphBase for OnDemand<N, F> {
    type NodeId = N;
    type EdgeId = (N, N);
}

impl<N: Copy + PartialEq, F: Copy> GraphRef for OnDemand<N, F> {}

impl<N, F, I> IntoNeighbors for OnDemand<N, F>
where
    N: Copy + PartialEq,
    F: Fn(N) -> I + Copy,
    I: Iterator<Item = N>,
{
    type Neighbors = I;

    fn neighbors(self, of: N) -> I {
        (self.0)(of)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const COUNT: usize = 8;

    fn edges() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0..COUNT, 0..COUNT), 0..16)
    }

    fn after(from: usize, edges: &[(usize, usize)]) -> BTreeSet<usize> {
        let next = |at: usize| edges.iter().filter(move |edge| edge.0 == at).map(|edge| edge.1);
        reachable([from], next).collect()
    }

    proptest! {
        #[test]
        fn reachable_set_is_smallest_closed_set(edges in edges(), from in 0..COUNT) {
            let found = after(from, &edges);
            prop_assert!(found.contains(&from));
            for (parent, child) in &edges {
                prop_assert!(!found.contains(parent) || found.contains(child));
            }
            // Each other vertex has a parent in the set that is reachable without it.
            for vertex in found.iter().filter(|vertex| **vertex != from) {
                let others: Vec<_> =
                    edges.iter().copied().filter(|edge| edge.0 != *vertex).collect();
                prop_assert!(after(from, &others).contains(vertex));
                prop_assert!(edges.iter().any(|edge| edge.1 == *vertex && found.contains(&edge.0)));
            }
        }

        #[test]
        fn depth_exceeds_parents_by_one_outside_cycles(edges in edges()) {
            let depths = depths(&digraph(COUNT, edges.iter().copied()));
            for vertex in 0..COUNT {
                let parents: Vec<usize> =
                    edges.iter().filter(|edge| edge.1 == vertex).map(|edge| edge.0).collect();
                match depths[vertex] {
                    Some(depth) => {
                        prop_assert!(parents.iter().all(|parent| depths[*parent].is_some()));
                        let deepest = parents.iter().filter_map(|parent| depths[*parent]).max();
                        prop_assert_eq!(depth, deepest.map_or(0, |deepest| deepest + 1));
                    }
                    None => {
                        let cyclic = |at: usize| {
                            edges.iter().any(|edge| edge.0 == at && after(edge.1, &edges).contains(&at))
                        };
                        let is_after = |at: usize| after(at, &edges).contains(&vertex);
                        prop_assert!((0..COUNT).any(|at| cyclic(at) && is_after(at)));
                    }
                }
            }
        }
    }

    #[test]
    fn long_chain_and_wide_barrier_are_fast() {
        let count = 200_000;
        let chain = digraph(count, (1..count).map(|to| (to - 1, to)));
        assert_eq!(depths(&chain)[count - 1], Some(199_999));
        let barrier = digraph(count, (1..count).map(|from| (from, 0)));
        assert_eq!(depths(&barrier)[0], Some(1));
        assert_eq!(
            reachable([0], |at| (at + 1 < count).then_some(at + 1).into_iter()).count(),
            count
        );
    }
}
