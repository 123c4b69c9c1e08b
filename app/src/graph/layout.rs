//! The layout of a graph: layers from left to right, with dependents to the right of their
//! dependencies.
//!
//! The layout is pure and deterministic. So the server's picture and the browser's are identical to
//! the byte, and nothing moves on hydration. It has four steps, each near-linear in vertices and
//! edges:
//!
//! 1. Reverse edges that close a cycle (a folded graph may have some).
//! 2. Put each vertex into the layer of its longest path from a root, so that every edge points
//!    right.
//! 3. Add a *bend* to each layer that an edge crosses. Then sort each layer, from the left, by the
//!    position of the median of each vertex's dependencies. Ties keep the given order, which is by
//!    name.
//! 4. Move each vertex as close to the middle of its neighbors as the order and the gaps allow.
//!    This is an exact least-squares solution by pooling.
//!
//! Bends bound the cost: a thousand layers with long edges would have millions. An edge across more
//! than [`MAX_BENT_LAYERS`] layers is drawn straight and does not take part in the sorting.
//!
//! # Stability
//!
//! **In a graph without cycles, adding a vertex keeps the layer of every vertex that does not
//! depend on it. Two such vertices in one layer also keep their order.** So readers find known
//! vertices again: they never move sideways, and move up or down only to make room. Distances are
//! not guaranteed, since all vertices take part in the least squares. Vertices that depend on the
//! new one may move to later layers. A folded picture, whose vertices are roles, stays identical to
//! the pixel while no role is added.
//!
//! This is why step 3 looks only to the left, and uses the median and not the mean. The proof is by
//! induction from the left. A vertex that does not depend on the new one has the same parents as
//! before, in the same order. So its median is the same parent, and sorting by parents in the same
//! order gives the same order. Sweeps from the right would cross slightly fewer edges, and the mean
//! would be slightly closer. But with either, a new leaf could reorder unrelated vertices.

use std::collections::BTreeMap;

use engine::walk;

/// Maximum number of layers that an edge with bends crosses.
const MAX_BENT_LAYERS: usize = 16;
/// The number of passes that move vertices towards their neighbors.
const SETTLE_PASSES: usize = 8;

/// Sizes, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dimensions {
    /// Width of a vertex.
    pub width: f64,
    /// Height of a vertex.
    pub height: f64,
    /// Gap between layers.
    pub layer_gap: f64,
    /// Gap between vertices of a layer.
    pub between: f64,
    /// Margin around the picture.
    pub margin: f64,
}

/// Positions, in pixels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    /// The top left corner of each vertex.
    pub places: Vec<(f64, f64)>,
    /// The layer of each vertex, from 0.
    pub layers: Vec<usize>,
    /// The points of each edge, from the right side of one vertex to the left side of the other.
    pub paths: Vec<Vec<(f64, f64)>>,
    pub width: f64,
    pub height: f64,
}

/// Lays out the vertices `0..count`. An edge leads from a dependency to its dependent.
pub fn lay_out(count: usize, edges: &[(usize, usize)], measures: Dimensions) -> Layout {
    let forward = forward(count, edges);
    let layers = layers(count, &forward);
    let mut columns = LayerOrder::new(count, &forward, &layers);
    columns.sort(&forward);
    columns.settle(measures);
    columns.drawn(edges, &forward, layers, measures)
}

/// Reverses the edges that close a cycle, and replaces self-loops by `None`.
fn forward(count: usize, edges: &[(usize, usize)]) -> Vec<Option<(usize, usize)>> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, (from, to)) in edges.iter().enumerate() {
        if from != to {
            children[*from].push(at);
        }
    }
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        No,
        Open,
        Done,
    }
    let mut seen = vec![VisitState::No; count];
    let mut forward: Vec<_> =
        edges.iter().map(|(from, to)| (from != to).then_some((*from, *to))).collect();
    for root in 0..count {
        if seen[root] != VisitState::No {
            continue;
        }
        // An explicit stack, since a chain of thousands of vertices would overflow the call stack.
        // The depth-first search of petgraph that finds these edges recurses.
        let mut stack = vec![(root, 0)];
        seen[root] = VisitState::Open;
        while let Some((vertex, next)) = stack.pop() {
            let Some(edge) = children[vertex].get(next) else {
                seen[vertex] = VisitState::Done;
                continue;
            };
            stack.push((vertex, next + 1));
            let to = edges[*edge].1;
            match seen[to] {
                VisitState::No => {
                    seen[to] = VisitState::Open;
                    stack.push((to, 0));
                }
                VisitState::Open => forward[*edge] = Some((to, vertex)),
                VisitState::Done => {}
            }
        }
    }
    forward
}

/// The length of the longest path from a root to each vertex.
fn layers(count: usize, edges: &[Option<(usize, usize)>]) -> Vec<usize> {
    let graph = walk::digraph(count, edges.iter().flatten().copied());
    // No edge closes a cycle any more, so each vertex has a depth.
    walk::depths(&graph).into_iter().map(|depth| depth.unwrap_or(0) as usize).collect()
}

/// Vertices and bends, by layer.
struct LayerOrder {
    /// The content of each layer, from the top. Vertices are `0..count`, and bends follow.
    columns: Vec<Vec<usize>>,
    /// The neighbors to the left and to the right, for vertices and bends.
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    /// The bends of each edge, from the left.
    bends: Vec<Vec<usize>>,
    /// The number of vertices.
    count: usize,
    /// The vertical center of each vertex and bend.
    middle: Vec<f64>,
}

impl LayerOrder {
    fn new(count: usize, edges: &[Option<(usize, usize)>], layers: &[usize]) -> Self {
        let width = layers.iter().max().map_or(0, |last| last + 1);
        let mut made = Self {
            columns: vec![Vec::new(); width],
            left: vec![Vec::new(); count],
            right: vec![Vec::new(); count],
            bends: vec![Vec::new(); edges.len()],
            count,
            middle: Vec::new(),
        };
        for (vertex, layer) in layers.iter().enumerate() {
            made.columns[*layer].push(vertex);
        }
        for (edge, ends) in edges.iter().enumerate() {
            let Some((from, to)) = *ends else { continue };
            if layers[to] - layers[from] > MAX_BENT_LAYERS {
                continue;
            }
            let mut last = from;
            for layer in layers[from] + 1..layers[to] {
                let bend = made.left.len();
                made.columns[layer].push(bend);
                made.left.push(Vec::new());
                made.right.push(Vec::new());
                made.bends[edge].push(bend);
                made.connect(last, bend);
                last = bend;
            }
            made.connect(last, to);
        }
        made
    }

    fn connect(&mut self, from: usize, to: usize) {
        self.right[from].push(to);
        self.left[to].push(from);
    }

    /// Sorts each layer by the position of the median neighbor to the left.
    fn sort(&mut self, edges: &[Option<(usize, usize)>]) {
        // A bend moves with the vertex at the end of its edge.
        let mut goes_with: Vec<usize> = (0..self.left.len()).collect();
        for (bends, edge) in self.bends.iter().zip(edges) {
            for bend in bends {
                goes_with[*bend] = edge.map_or(*bend, |(_, to)| to);
            }
        }
        let mut index = vec![0; self.left.len()];
        for column in &mut self.columns {
            let mut keyed: Vec<(usize, usize, usize)> = column
                .iter()
                .map(|one| {
                    let mut near: Vec<usize> =
                        self.left[*one].iter().map(|near| index[*near]).collect();
                    let middle = near.len().saturating_sub(1) / 2;
                    // Vertices without a neighbor to the left come last. In the first layer these
                    // are all.
                    let middle = if near.is_empty() {
                        usize::MAX
                    } else {
                        *near.select_nth_unstable(middle).1
                    };
                    (middle, goes_with[*one], *one)
                })
                .collect();
            keyed.sort_unstable();
            *column = keyed.into_iter().map(|(_, _, one)| one).collect();
            for (at, one) in column.iter().enumerate() {
                index[*one] = at;
            }
        }
    }

    /// Moves everything as close to the middle of its neighbors as the order and the gaps allow.
    fn settle(&mut self, measures: Dimensions) {
        self.middle = vec![0.0; self.left.len()];
        for column in &self.columns {
            let mut y = 0.0;
            let mut last: Option<usize> = None;
            for one in column {
                y += last.map_or(0.0, |last| gap(last, *one, self.count, measures));
                self.middle[*one] = y;
                last = Some(*one);
            }
        }
        let width = self.columns.len();
        for scheduled in 0..SETTLE_PASSES {
            for step in 0..width {
                let layer = if scheduled % 2 == 0 { step } else { width - 1 - step };
                let column = &self.columns[layer];
                let desired: Vec<f64> = column
                    .iter()
                    .map(|one| {
                        let near = self.left[*one].iter().chain(&self.right[*one]);
                        mean(near.map(|near| self.middle[*near])).unwrap_or(self.middle[*one])
                    })
                    .collect();
                let gaps: Vec<f64> = column
                    .windows(2)
                    .map(|pair| gap(pair[0], pair[1], self.count, measures))
                    .collect();
                for (one, y) in column.iter().zip(apart(&desired, &gaps)) {
                    self.middle[*one] = y;
                }
            }
        }
    }

    fn drawn(
        self,
        edges: &[(usize, usize)],
        forward: &[Option<(usize, usize)>],
        layers: Vec<usize>,
        measures: Dimensions,
    ) -> Layout {
        let x_of =
            |layer: usize| measures.margin + layer as f64 * (measures.width + measures.layer_gap);
        let half = measures.height / 2.0;
        let vertices = &self.middle[..self.count];
        let top =
            vertices.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0) - half - measures.margin;
        // A bend may be above or below all vertices.
        let top = self
            .middle
            .iter()
            .copied()
            .min_by(f64::total_cmp)
            .map_or(top, |y| top.min(y - measures.margin));
        let bottom =
            vertices.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0) + half + measures.margin;
        let bottom = self
            .middle
            .iter()
            .copied()
            .max_by(f64::total_cmp)
            .map_or(bottom, |y| bottom.max(y + measures.margin));
        let y_of = |one: usize| whole(self.middle[one] - top);
        let places =
            (0..self.count).map(|vertex| (x_of(layers[vertex]), y_of(vertex) - half)).collect();
        let paths = edges.iter().enumerate().map(|(edge, (from, to))| {
            let Some(turned) = forward[edge].map(|ends| ends != (*from, *to)) else {
                return Vec::new();
            };
            let (a, b) = if turned { (*to, *from) } else { (*from, *to) };
            let mut path = vec![(x_of(layers[a]) + measures.width, y_of(a))];
            for (n, bend) in self.bends[edge].iter().enumerate() {
                let x = x_of(layers[a] + 1 + n);
                path.push((x, y_of(*bend)));
                path.push((x + measures.width, y_of(*bend)));
            }
            path.push((x_of(layers[b]), y_of(b)));
            if turned {
                path.reverse();
            }
            path
        });
        let paths = paths.collect();
        let last = layers.iter().max().copied().unwrap_or(0);
        Layout {
            places,
            paths,
            width: x_of(last) + measures.width + measures.margin,
            height: whole(bottom - top),
            layers,
        }
    }
}

/// Rounds to whole pixels. This shortens the SVG, and avoids differences between machines in the
/// last digit.
fn whole(value: f64) -> f64 {
    value.round()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// The distance between the centers of two vertical neighbors. Bends need little.
fn gap(a: usize, b: usize, count: usize, measures: Dimensions) -> f64 {
    let half =
        |one: usize| if one < count { measures.height / 2.0 } else { measures.between / 4.0 };
    half(a) + half(b) + measures.between
}

/// The positions closest to `desired` (least squares) that keep the order and are at least `gaps`
/// apart.
///
/// After subtracting the gaps, this is an isotonic regression: neighbors in the wrong order are
/// pooled to their mean.
fn apart(desired: &[f64], gaps: &[f64]) -> Vec<f64> {
    let mut offset = 0.0;
    let offsets: Vec<f64> = std::iter::once(0.0)
        .chain(gaps.iter().map(|gap| {
            offset += gap;
            offset
        }))
        .collect();
    // Pools: the sum and the number of their members.
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(desired.len());
    for (desired, offset) in desired.iter().zip(&offsets) {
        let mut pool = (desired - offset, 1);
        while let Some(last) = pools.last() {
            if last.0 / last.1 as f64 <= pool.0 / pool.1 as f64 {
                break;
            }
            pool = (pool.0 + last.0, pool.1 + last.1);
            pools.pop();
        }
        pools.push(pool);
    }
    let flat = pools.iter().flat_map(|(sum, n)| std::iter::repeat_n(sum / *n as f64, *n));
    flat.zip(&offsets).map(|(y, offset)| y + offset).collect()
}

/// The dependencies and dependents of each vertex.
pub type Neighbors = BTreeMap<usize, (Vec<usize>, Vec<usize>)>;

/// The neighbors of each vertex, from the top, for keyboard navigation.
pub fn neighbors(layout: &Layout, edges: &[(usize, usize)]) -> Neighbors {
    let mut near = Neighbors::new();
    for (from, to) in edges {
        near.entry(*to).or_default().0.push(*from);
        near.entry(*from).or_default().1.push(*to);
    }
    for (before, after) in near.values_mut() {
        for side in [before, after] {
            side.sort_by(|a, b| layout.places[*a].1.total_cmp(&layout.places[*b].1).then(a.cmp(b)));
            side.dedup();
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURES: Dimensions =
        Dimensions { width: 100.0, height: 40.0, layer_gap: 60.0, between: 20.0, margin: 10.0 };

    /// A deterministic pseudo-random generator.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below.max(1)
        }
    }

    fn random(seed: u64, count: usize, edges: usize, cycles: bool) -> Vec<(usize, usize)> {
        let mut next = numbers(seed);
        let pair = |_| {
            let (a, b) = (next(count), next(count));
            if cycles { (a, b) } else { (a.min(b), a.max(b)) }
        };
        (0..edges).map(pair).filter(|(a, b)| a != b).collect()
    }

    #[test]
    fn edges_point_right_and_vertices_never_overlap() {
        for seed in 0..40 {
            let edges = random(seed, 30, 60, false);
            let layout = lay_out(30, &edges, MEASURES);
            for (from, to) in &edges {
                assert!(layout.layers[*from] < layout.layers[*to], "{from} -> {to}");
            }
            for a in 0..30 {
                let (x, y) = layout.places[a];
                assert!(
                    x >= 0.0 && y >= 0.0 && x + 100.0 <= layout.width && y + 40.0 <= layout.height,
                    "{a} is outside of the picture"
                );
                for b in 0..a {
                    let (ox, oy) = layout.places[b];
                    assert!(
                        (x - ox).abs() >= 100.0 || (y - oy).abs() >= 40.0,
                        "{a} and {b} overlap at {x},{y} {ox},{oy}"
                    );
                }
            }
        }
    }

    #[test]
    fn paths_end_at_vertices_even_in_cycles() {
        for seed in 0..40 {
            let edges = random(seed, 20, 50, true);
            let layout = lay_out(20, &edges, MEASURES);
            for ((from, to), path) in edges.iter().zip(&layout.paths) {
                let (first, last) = (path[0], path[path.len() - 1]);
                let touches = |vertex: usize, (x, y): (f64, f64)| {
                    let (vx, vy) = layout.places[vertex];
                    (x == vx || x == vx + 100.0) && y == vy + 20.0
                };
                assert!(touches(*from, first) && touches(*to, last), "{from} -> {to}: {path:?}");
            }
        }
    }

    /// The same graph with a new vertex at index `new`, with some dependencies and dependents.
    fn with_one_more(
        edges: &[(usize, usize)],
        count: usize,
        new: usize,
        seed: u64,
    ) -> Vec<(usize, usize)> {
        let moved = |vertex: usize| if vertex >= new { vertex + 1 } else { vertex };
        let mut all: Vec<_> = edges.iter().map(|(from, to)| (moved(*from), moved(*to))).collect();
        let mut next = numbers(seed);
        for _ in 0..4 {
            // In these graphs, vertices depend only on earlier ones.
            let other = next(count + 1);
            match other.cmp(&new) {
                std::cmp::Ordering::Less => all.push((other, new)),
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => all.push((new, other)),
            }
        }
        all
    }

    fn follows_from(edges: &[(usize, usize)], count: usize, one: usize) -> Vec<bool> {
        let mut follows = vec![false; count];
        follows[one] = true;
        // Edges lead to higher indices, so one pass in sorted order is enough.
        let mut sorted = edges.to_vec();
        sorted.sort_unstable();
        for (from, to) in sorted {
            follows[to] = follows[to] || follows[from];
        }
        follows
    }

    #[test]
    fn new_vertex_keeps_unrelated_layers() {
        let count = 40;
        let mut watched = 0;
        for seed in 0..200 {
            let edges = random(seed, count, 70, false);
            let new = numbers(seed + 1_000)(count + 1);
            let more = with_one_more(&edges, count, new, seed + 2_000);
            let (was, is) = (lay_out(count, &edges, MEASURES), lay_out(count + 1, &more, MEASURES));
            let follows = follows_from(&more, count + 1, new);
            let moved = |vertex: usize| if vertex >= new { vertex + 1 } else { vertex };
            let others: Vec<usize> = (0..count).filter(|vertex| !follows[moved(*vertex)]).collect();
            for a in &others {
                assert_eq!(
                    was.layers[*a],
                    is.layers[moved(*a)],
                    "seed {seed}: the layer of {a} changed"
                );
                for b in others.iter().filter(|b| was.layers[**b] == was.layers[*a] && **b != *a) {
                    watched += 1;
                    let before = was.places[*a].1 < was.places[*b].1;
                    let now = is.places[moved(*a)].1 < is.places[moved(*b)].1;
                    assert_eq!(before, now, "seed {seed}: the order of {a} and {b} changed");
                }
            }
        }
        assert!(watched > 10_000, "{watched}");
    }

    /// The number of crossings between edges of neighboring layers.
    fn crossings(layout: &Layout, edges: &[(usize, usize)]) -> usize {
        let pieces: Vec<_> = edges
            .iter()
            .zip(&layout.paths)
            .flat_map(|(_, path)| path.windows(2))
            .filter(|pair| pair[1].0 - pair[0].0 == MEASURES.layer_gap)
            .map(|pair| (pair[0].0 as i64, pair[0].1, pair[1].1))
            .collect();
        let cross = |a: &(i64, f64, f64), b: &(i64, f64, f64)| {
            a.0 == b.0 && (a.1 - b.1) * (a.2 - b.2) < 0.0
        };
        (0..pieces.len()).map(|a| pieces[..a].iter().filter(|b| cross(&pieces[a], b)).count()).sum()
    }

    #[test]
    fn typical_cluster_has_few_crossings() {
        // 30 nodes, each with dns, then runtime and collector, then app after both. Ordered by
        // role, then by node, as in real graphs.
        let nodes = 30;
        let chains: Vec<_> = (0..nodes)
            .flat_map(|n| {
                [(0, 1), (0, 2), (1, 3), (2, 3)]
                    .map(|(from, to)| (from * nodes + n, to * nodes + n))
            })
            .collect();
        assert_eq!(crossings(&lay_out(4 * nodes, &chains, MEASURES), &chains), 0);
    }

    #[test]
    fn layout_is_deterministic() {
        let edges = random(7, 40, 80, false);
        assert_eq!(lay_out(40, &edges, MEASURES), lay_out(40, &edges, MEASURES));
    }

    #[test]
    fn crossed_chains_are_uncrossed() {
        // 0 -> 3 and 1 -> 2. Sorted by name, the second layer would be 2, 3, and the edges would
        // cross.
        let layout = lay_out(4, &[(0, 3), (1, 2)], MEASURES);
        assert!(layout.places[0].1 < layout.places[1].1);
        assert!(layout.places[3].1 < layout.places[2].1);
        assert_eq!(layout.places[0].1, layout.places[3].1, "each end is in the row of its start");
    }

    #[test]
    fn deep_and_wide_graphs_are_laid_out() {
        let chain: Vec<_> = (0..4_999).map(|n| (n, n + 1)).collect();
        assert_eq!(lay_out(5_000, &chain, MEASURES).layers[4_999], 4_999);
        let fan: Vec<_> = (1..5_000).map(|n| (0, n)).collect();
        assert_eq!(
            lay_out(5_000, &fan, MEASURES).layers.iter().filter(|layer| **layer == 1).count(),
            4_999
        );
        // Every tenth vertex of the chain also depends on the first one. These edges are straight
        // if they are too long.
        let long: Vec<_> = chain.iter().copied().chain((1..500).map(|n| (0, n * 10))).collect();
        let layout = lay_out(5_000, &long, MEASURES);
        assert_eq!(layout.paths[chain.len() + 400].len(), 2);
        assert!(layout.paths[chain.len()].len() > 2);
    }

    #[test]
    fn ten_thousand_edges_are_laid_out_quickly() {
        let edges = random(3, 2_500, 10_000, false);
        let began = std::time::Instant::now();
        let layout = lay_out(2_500, &edges, MEASURES);
        assert_eq!(layout.places.len(), 2_500);
        // Takes a few hundred milliseconds unoptimized on a shared core. The limit only guards
        // against a different order of growth.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn empty_and_single_vertex_graphs_work() {
        assert_eq!(lay_out(0, &[], MEASURES).places, []);
        let one = lay_out(1, &[(0, 0)], MEASURES);
        assert_eq!((one.width, one.height), (120.0, 60.0));
        assert_eq!(one.paths, [vec![]]);
    }

    #[test]
    fn positions_keep_order_and_gaps() {
        let placed = apart(&[5.0, 0.0, 0.0, 40.0], &[10.0, 10.0, 10.0]);
        assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 10.0 - 1e-9), "{placed:?}");
        assert_eq!(placed[3], 40.0, "a vertex with enough distance keeps its position");
    }
}
