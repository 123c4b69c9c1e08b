//! The parts of a picture that are in the page: pieces near the window, added and removed one by
//! one.
//!
//! A picture is cut once, when it is laid out: boxes into cells of a layer, edges into strands. A
//! piece is in the page while its frame meets the window or the margin around it. So the cost of
//! scrolling is proportional to the newly visible part, and remaining elements stay untouched. A
//! browser that paints a part of the window skips all paths outside of it. A single path for ten
//! thousand edges would be small. But the browser would stroke all of it for each painted part.
//!
//! Edge lengths differ by orders of magnitude. Each edge goes into a grid with cells of about its
//! length. So long edges do not enlarge the frames of short ones.

use std::collections::BTreeMap;

use super::MEASURES;
use super::layout::Layout;

/// Height of a cell of boxes, and of the finest cells of edges, in the picture's pixels.
const CELL_HEIGHT: f64 = 256.0;
/// Maximum number of edges of a strand.
const MAX_STRAND_EDGES: usize = 64;
/// The distance that an edge's arrow extends from its path.
const ARROW_LENGTH: f64 = 8.0;
/// Maximum numbers of boxes and edges of a picture that is entirely in the page. Such a picture
/// works without JavaScript.
const SMALL_PICTURE: (usize, usize) = (250, 2_000);

/// A rectangle, in the picture's pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Rect {
    fn from_points(points: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        points.map(|(x, y)| Self { left: x, top: y, right: x, bottom: y }).reduce(Self::with)
    }

    fn from_box((x, y): (f64, f64)) -> Self {
        Self { left: x, top: y, right: x + MEASURES.width, bottom: y + MEASURES.height }
    }

    fn with(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }

    fn grown(self, by: f64) -> Self {
        Self {
            left: self.left - by,
            top: self.top - by,
            right: self.right + by,
            bottom: self.bottom + by,
        }
    }

    fn meets(self, other: Self) -> bool {
        self.left <= other.right
            && other.left <= self.right
            && self.top <= other.bottom
            && other.top <= self.bottom
    }

    fn longest_side(self) -> f64 {
        (self.right - self.left).max(self.bottom - self.top)
    }
}

/// Boxes or edges that are in the page all together or not at all.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub frame: Rect,
    /// Their indices in the view.
    pub members: Vec<usize>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pieces {
    pub boxes: Vec<Piece>,
    pub wires: Vec<Piece>,
    is_small: bool,
}

impl Pieces {
    pub(super) fn of(layout: &Layout) -> Self {
        let is_small =
            layout.places.len() <= SMALL_PICTURE.0 && layout.paths.len() <= SMALL_PICTURE.1;
        Self { boxes: cells(layout), wires: strands(layout), is_small }
    }

    /// The indices of the visible ones of `pieces`, which are either the cells of boxes or the
    /// strands of edges.
    pub(super) fn in_sight(&self, pieces: &[Piece], window: Rect) -> Vec<usize> {
        let all = pieces.iter().enumerate();
        all.filter(|(_, piece)| self.is_small || piece.frame.meets(window))
            .map(|(at, _)| at)
            .collect()
    }
}

/// Groups neighboring boxes of one layer.
fn cells(layout: &Layout) -> Vec<Piece> {
    let mut cells: BTreeMap<(usize, i64), Vec<usize>> = BTreeMap::new();
    for (at, (layer, (_, y))) in layout.layers.iter().zip(&layout.places).enumerate() {
        cells.entry((*layer, (y / CELL_HEIGHT).floor() as i64)).or_default().push(at);
    }
    let piece = |members: Vec<usize>| {
        let frame =
            members.iter().map(|at| Rect::from_box(layout.places[*at])).reduce(Rect::with)?;
        Some(Piece { frame, members })
    };
    cells.into_values().filter_map(piece).collect()
}

/// Groups neighboring edges of similar length.
fn strands(layout: &Layout) -> Vec<Piece> {
    let mut grids: BTreeMap<(u32, i64, i64), Vec<(usize, Rect)>> = BTreeMap::new();
    for (edge, path) in layout.paths.iter().enumerate() {
        let Some(area) = Rect::from_points(path.iter().copied()) else { continue };
        let coarse = (area.longest_side() / CELL_HEIGHT).max(1.0).log2().ceil() as u32;
        let side = CELL_HEIGHT * f64::from(coarse).exp2();
        let cell = |value: f64| (value / side).floor() as i64;
        grids.entry((coarse, cell(area.left), cell(area.top))).or_default().push((edge, area));
    }
    let mut pieces = Vec::new();
    for mut members in grids.into_values() {
        members.sort_by(|(a, this), (b, other)| {
            let middle = |area: &Rect| area.top + area.bottom;
            this.left
                .total_cmp(&other.left)
                .then(middle(this).total_cmp(&middle(other)))
                .then(a.cmp(b))
        });
        for strand in members.chunks(MAX_STRAND_EDGES) {
            let Some(frame) = strand.iter().map(|(_, area)| *area).reduce(Rect::with) else {
                continue;
            };
            let members = strand.iter().map(|(edge, _)| *edge).collect();
            pieces.push(Piece { frame: frame.grown(ARROW_LENGTH), members });
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::layout::lay_out;

    /// Five roles on many nodes. Each noderole depends on the previous role on its node, and on
    /// others at growing distances.
    fn large(nodes: usize, wires: usize) -> Layout {
        let far = |round: usize, to: usize| {
            (to / nodes - 1) * nodes + (to % nodes + round * round) % nodes
        };
        let edges = (0..).flat_map(|round| (nodes..5 * nodes).map(move |to| (far(round, to), to)));
        lay_out(5 * nodes, &edges.take(wires).collect::<Vec<_>>(), MEASURES)
    }

    fn window(left: f64, top: f64) -> Rect {
        Rect { left, top, right: left + 1_400.0, bottom: top + 1_000.0 }
    }

    #[test]
    fn pieces_partition_boxes_and_edges() {
        let layout = large(300, 10_000);
        let pieces = Pieces::of(&layout);
        let mut boxes: Vec<usize> =
            pieces.boxes.iter().flat_map(|piece| piece.members.clone()).collect();
        let mut wires: Vec<usize> =
            pieces.wires.iter().flat_map(|piece| piece.members.clone()).collect();
        boxes.sort_unstable();
        wires.sort_unstable();
        assert!(boxes.into_iter().eq(0..1_500) && wires.into_iter().eq(0..10_000));
        for piece in &pieces.wires {
            for (x, y) in piece.members.iter().flat_map(|edge| &layout.paths[*edge]) {
                assert!(piece.frame.left <= *x && *x <= piece.frame.right, "{piece:?}");
                assert!(piece.frame.top <= *y && *y <= piece.frame.bottom, "{piece:?}");
            }
        }
    }

    #[test]
    fn window_content_is_drawn_with_little_excess() {
        let layout = large(300, 1_600);
        let pieces = Pieces::of(&layout);
        for top in [0.0, 5_000.0, 20_000.0] {
            let window = window(0.0, top);
            let drawn = |all: &[Piece]| -> Vec<usize> {
                pieces
                    .in_sight(all, window)
                    .into_iter()
                    .flat_map(|at| all[at].members.clone())
                    .collect()
            };
            let (boxes, wires) = (drawn(&pieces.boxes), drawn(&pieces.wires));
            let shown = |at: &usize| Rect::from_box(layout.places[*at]).meets(window);
            assert!((0..1_500).filter(shown).all(|at| boxes.contains(&at)));
            assert!((40..140).contains(&boxes.len()), "found {} boxes", boxes.len());
            let crosses = |edge: &usize| {
                Rect::from_points(layout.paths[*edge].iter().copied()).unwrap().meets(window)
            };
            assert!((0..1_600).filter(crosses).all(|edge| wires.contains(&edge)));
            assert!((40..500).contains(&wires.len()), "found {} edges", wires.len());
        }
    }

    #[test]
    fn long_edges_have_separate_strands() {
        // A chain of short edges, and an edge from its first to its tenth vertex.
        let mut edges: Vec<_> = (0..200).map(|n| (n, n + 1)).collect();
        edges.push((0, 10));
        let pieces = strands(&lay_out(201, &edges, MEASURES));
        let long = pieces.iter().find(|piece| piece.members.contains(&200)).unwrap();
        assert_eq!(long.members, [200]);
        assert!(
            pieces
                .iter()
                .filter(|piece| *piece != long)
                .all(|piece| piece.frame.longest_side() < 4.0 * CELL_HEIGHT)
        );
    }

    #[test]
    fn small_picture_is_always_complete() {
        let pieces = Pieces::of(&large(40, 300));
        let everywhere = pieces.in_sight(&pieces.boxes, window(90_000.0, 90_000.0));
        assert_eq!(everywhere.len(), pieces.boxes.len());
        let large = Pieces::of(&large(60, 300));
        assert!(large.in_sight(&large.boxes, window(90_000.0, 90_000.0)).is_empty());
        assert_eq!(Pieces::of(&Layout::default()), Pieces { is_small: true, ..Pieces::default() });
    }
}
