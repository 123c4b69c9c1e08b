//! Where the vertices of a graph stand: in layers, what waits to the right of what it waits for.
//!
//! Pure and deterministic, so the server's picture and the browser's are the same to the byte, and nothing jumps when the page is
//! taken over. Four steps, each near-linear in vertices and edges:
//!
//! 1. edges that close a cycle are turned round (a folded graph may have some);
//! 2. a vertex's layer is its longest way from a root, so every edge goes to the right;
//! 3. an edge over several layers gets a place in each (a *bend*), and each layer is sorted by where its neighbours stand
//!    (barycentres), to the right and back a fixed number of times. Ties keep the given order, which is by name: so positions stay
//!    from one blueprint to the next;
//! 4. a vertex stands as near to its neighbours' middle as the order and the gaps allow: least squares, exactly, by pooling.
//!
//! Bends are what could explode: a thousand layers with long edges would have millions. An edge longer than [`LONGEST_BENT`] layers
//! is drawn straight instead, and takes no part in the sorting.

use std::collections::BTreeMap;

/// Layers that an edge may cross and still have a bend in each.
const LONGEST_BENT: usize = 16;
/// How often layers are sorted, to the right and back.
const SWEEPS: usize = 6;
/// How often vertices are moved towards their neighbours.
const SETTLINGS: usize = 8;

/// What is to be laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// Width of a vertex.
    pub width: f64,
    /// Height of a vertex.
    pub height: f64,
    /// Room between layers.
    pub across: f64,
    /// Room between vertices of a layer.
    pub between: f64,
    /// Room around all.
    pub margin: f64,
}

/// Where everything stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    /// The left upper corner of each vertex.
    pub places: Vec<(f64, f64)>,
    /// The layer of each vertex, from 0.
    pub layers: Vec<usize>,
    /// The points of each edge, from the right of the one to the left of the other.
    pub paths: Vec<Vec<(f64, f64)>>,
    /// How wide all of it is.
    pub width: f64,
    /// How high all of it is.
    pub height: f64,
}

/// Lays out vertices `0..count`; `edges` lead from what is waited for to what waits.
pub fn lay_out(count: usize, edges: &[(usize, usize)], measures: Measures) -> Layout {
    let forward = forward(count, edges);
    let layers = layers(count, &forward);
    let mut columns = Columns::new(count, &forward, &layers);
    columns.sort();
    columns.settle(measures);
    columns.drawn(edges, &forward, layers, measures)
}

/// The edges with those turned round that would close a cycle; loops are left out (None).
fn forward(count: usize, edges: &[(usize, usize)]) -> Vec<Option<(usize, usize)>> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, (from, to)) in edges.iter().enumerate() {
        if from != to {
            children[*from].push(at);
        }
    }
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let mut seen = vec![Seen::No; count];
    let mut forward: Vec<_> = edges.iter().map(|(from, to)| (from != to).then_some((*from, *to))).collect();
    for root in 0..count {
        if seen[root] != Seen::No {
            continue;
        }
        // A stack of its own: a chain of thousands must not be a recursion of thousands.
        let mut stack = vec![(root, 0)];
        seen[root] = Seen::Open;
        while let Some((vertex, next)) = stack.pop() {
            let Some(edge) = children[vertex].get(next) else {
                seen[vertex] = Seen::Done;
                continue;
            };
            stack.push((vertex, next + 1));
            let to = edges[*edge].1;
            match seen[to] {
                Seen::No => {
                    seen[to] = Seen::Open;
                    stack.push((to, 0));
                }
                Seen::Open => forward[*edge] = Some((to, vertex)),
                Seen::Done => {}
            }
        }
    }
    forward
}

/// The longest way of each vertex from a root.
fn layers(count: usize, edges: &[Option<(usize, usize)>]) -> Vec<usize> {
    let mut waiting = vec![0; count];
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (from, to) in edges.iter().flatten() {
        children[*from].push(*to);
        waiting[*to] += 1;
    }
    let mut layers = vec![0; count];
    let mut ready: Vec<usize> = (0..count).filter(|vertex| waiting[*vertex] == 0).collect();
    while let Some(vertex) = ready.pop() {
        for child in &children[vertex] {
            layers[*child] = layers[*child].max(layers[vertex] + 1);
            waiting[*child] -= 1;
            if waiting[*child] == 0 {
                ready.push(*child);
            }
        }
    }
    layers
}

/// Vertices and bends, by layer.
struct Columns {
    /// What stands in each layer, from above: vertices are `0..count`, bends follow.
    columns: Vec<Vec<usize>>,
    /// Neighbours to the left and to the right, of vertices and bends.
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    /// The bends of each edge, from the left.
    bends: Vec<Vec<usize>>,
    /// How many are vertices.
    count: usize,
    /// The middle of each, from above.
    middle: Vec<f64>,
}

impl Columns {
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
            if layers[to] - layers[from] > LONGEST_BENT {
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

    /// Sorts each layer by the mean place of its neighbours on one side, then on the other.
    fn sort(&mut self) {
        for sweep in 0..SWEEPS {
            let to_the_right = sweep % 2 == 0;
            let mut place = vec![0.0; self.left.len()];
            let width = self.columns.len();
            for step in 0..width {
                let layer = if to_the_right { step } else { width - 1 - step };
                let near = if to_the_right { &self.left } else { &self.right };
                let mut keyed: Vec<(f64, usize)> = self.columns[layer]
                    .iter()
                    .enumerate()
                    .map(|(at, one)| {
                        let mean = mean(near[*one].iter().map(|near| place[*near]));
                        // In parts of the layer, since layers differ in length.
                        (mean.unwrap_or_else(|| share(at, self.columns[layer].len())), *one)
                    })
                    .collect();
                // Stable: who has the same keeps their order.
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                for (at, (_, one)) in keyed.iter().enumerate() {
                    place[*one] = share(at, keyed.len());
                }
                self.columns[layer] = keyed.into_iter().map(|(_, one)| one).collect();
            }
        }
    }

    /// Moves everything as near to its neighbours' middle as order and gaps allow.
    fn settle(&mut self, measures: Measures) {
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
        for settling in 0..SETTLINGS {
            for step in 0..width {
                let layer = if settling % 2 == 0 { step } else { width - 1 - step };
                let column = &self.columns[layer];
                let wanted: Vec<f64> = column
                    .iter()
                    .map(|one| {
                        let near = self.left[*one].iter().chain(&self.right[*one]);
                        mean(near.map(|near| self.middle[*near])).unwrap_or(self.middle[*one])
                    })
                    .collect();
                let gaps: Vec<f64> =
                    column.windows(2).map(|pair| gap(pair[0], pair[1], self.count, measures)).collect();
                for (one, y) in column.iter().zip(apart(&wanted, &gaps)) {
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
        measures: Measures,
    ) -> Layout {
        let x_of = |layer: usize| measures.margin + layer as f64 * (measures.width + measures.across);
        let half = measures.height / 2.0;
        let vertices = &self.middle[..self.count];
        let top = vertices.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0) - half - measures.margin;
        // A bend may stand above or below every vertex.
        let top = self.middle.iter().copied().min_by(f64::total_cmp).map_or(top, |y| top.min(y - measures.margin));
        let bottom = vertices.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0) + half + measures.margin;
        let bottom =
            self.middle.iter().copied().max_by(f64::total_cmp).map_or(bottom, |y| bottom.max(y + measures.margin));
        let y_of = |one: usize| whole(self.middle[one] - top);
        let places = (0..self.count).map(|vertex| (x_of(layers[vertex]), y_of(vertex) - half)).collect();
        let paths = edges.iter().enumerate().map(|(edge, (from, to))| {
            let Some(turned) = forward[edge].map(|ends| ends != (*from, *to)) else { return Vec::new() };
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

/// A place in a layer, between 0 and 1.
fn share(at: usize, of: usize) -> f64 {
    (at as f64 + 0.5) / of.max(1) as f64
}

/// Whole pixels: the text of a picture is shorter, and two machines can't differ in the last digit.
fn whole(value: f64) -> f64 {
    value.round()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// The room between the middles of two that stand one above the other; bends need little.
fn gap(a: usize, b: usize, count: usize, measures: Measures) -> f64 {
    let half = |one: usize| if one < count { measures.height / 2.0 } else { measures.between / 4.0 };
    half(a) + half(b) + measures.between
}

/// The places nearest to the wanted ones (least squares) that keep the order and are at least `gaps` apart.
///
/// With the gaps taken off, that is a regression onto a rising line: neighbours in the wrong order are pooled to their mean.
fn apart(wanted: &[f64], gaps: &[f64]) -> Vec<f64> {
    let mut offset = 0.0;
    let offsets: Vec<f64> = std::iter::once(0.0)
        .chain(gaps.iter().map(|gap| {
            offset += gap;
            offset
        }))
        .collect();
    // Pools: the sum and the number of what was put together.
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(wanted.len());
    for (wanted, offset) in wanted.iter().zip(&offsets) {
        let mut pool = (wanted - offset, 1);
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

/// Neighbours of each vertex, for walks by keyboard: what it waits for and what waits for it, from above.
pub fn neighbours(layout: &Layout, edges: &[(usize, usize)]) -> BTreeMap<usize, (Vec<usize>, Vec<usize>)> {
    let mut near: BTreeMap<usize, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (from, to) in edges {
        near.entry(*to).or_default().0.push(*from);
        near.entry(*from).or_default().1.push(*to);
    }
    for (before, behind) in near.values_mut() {
        for side in [before, behind] {
            side.sort_by(|a, b| layout.places[*a].1.total_cmp(&layout.places[*b].1).then(a.cmp(b)));
            side.dedup();
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURES: Measures = Measures { width: 100.0, height: 40.0, across: 60.0, between: 20.0, margin: 10.0 };

    /// Numbers that look random and are the same each time.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
    fn edges_go_to_the_right_and_nothing_overlaps() {
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
                    "{a} is inside"
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
    fn paths_begin_and_end_at_their_vertices_cycles_or_not() {
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

    #[test]
    fn the_same_graph_is_laid_out_the_same_way_and_another_vertex_moves_no_layer() {
        let edges = random(7, 40, 80, false);
        assert_eq!(lay_out(40, &edges, MEASURES), lay_out(40, &edges, MEASURES));
        let with_one_more = lay_out(41, &edges, MEASURES);
        assert_eq!(lay_out(40, &edges, MEASURES).layers, with_one_more.layers[..40]);
    }

    #[test]
    fn two_chains_that_are_given_crossed_are_drawn_uncrossed() {
        // 0 -> 3 and 1 -> 2: sorted by name the second layer would be 2, 3 and cross.
        let layout = lay_out(4, &[(0, 3), (1, 2)], MEASURES);
        assert!(layout.places[0].1 < layout.places[1].1);
        assert!(layout.places[3].1 < layout.places[2].1);
        assert_eq!(layout.places[0].1, layout.places[3].1, "and each stands beside its own");
    }

    #[test]
    fn deep_and_wide_graphs_are_no_matter() {
        let chain: Vec<_> = (0..4_999).map(|n| (n, n + 1)).collect();
        assert_eq!(lay_out(5_000, &chain, MEASURES).layers[4_999], 4_999);
        let fan: Vec<_> = (1..5_000).map(|n| (0, n)).collect();
        assert_eq!(lay_out(5_000, &fan, MEASURES).layers.iter().filter(|layer| **layer == 1).count(), 4_999);
        // Every tenth of a chain also waits for the first: straight where it would be too long.
        let long: Vec<_> = chain.iter().copied().chain((1..500).map(|n| (0, n * 10))).collect();
        let layout = lay_out(5_000, &long, MEASURES);
        assert_eq!(layout.paths[chain.len() + 400].len(), 2);
        assert!(layout.paths[chain.len()].len() > 2);
    }

    #[test]
    fn ten_thousand_edges_are_laid_out_in_a_moment() {
        let edges = random(3, 2_500, 10_000, false);
        let began = std::time::Instant::now();
        let layout = lay_out(2_500, &edges, MEASURES);
        assert_eq!(layout.places.len(), 2_500);
        // Some hundred milliseconds unoptimised, on one core that others share: this guards against another order of growth.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn nothing_and_one_are_graphs_too() {
        assert_eq!(lay_out(0, &[], MEASURES).places, []);
        let one = lay_out(1, &[(0, 0)], MEASURES);
        assert_eq!((one.width, one.height), (120.0, 60.0));
        assert_eq!(one.paths, [vec![]]);
    }

    #[test]
    fn places_keep_their_order_and_gaps() {
        let placed = apart(&[5.0, 0.0, 0.0, 40.0], &[10.0, 10.0, 10.0]);
        assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 10.0 - 1e-9), "{placed:?}");
        assert_eq!(placed[3], 40.0, "who is far enough away stays");
    }
}
