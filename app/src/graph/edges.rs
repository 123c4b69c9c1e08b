//! Edges: one path for each kind in each strand. Above them, the highlighted edges and those of the
//! selected box.
//!
//! The strands change only with the layout, so a new selection or state redraws none of them. When
//! zoomed out, edges are straight, since curves and arrows are smaller than a pixel.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::views::graph::GraphEdge;
use engine::cluster::EdgeKind;
use leptos::prelude::*;

use super::layout::Layout;
use super::viewport::{Detail, Viewport};
use super::{GraphState, rewired};

/// A line with its arrows, as path data.
#[derive(Default)]
struct EdgePath {
    line: String,
    heads: String,
}

impl EdgePath {
    fn add(&mut self, path: &[(f64, f64)], detail: Detail) {
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
        // Writing to a string cannot fail.
        match detail {
            Detail::Far => {
                let _ = write!(self.line, "M{} {}L{} {}", first.0, first.1, last.0, last.1);
            }
            Detail::Near => {
                push_curve(&mut self.line, path);
                push_arrow(&mut self.heads, path);
            }
        }
    }

    fn view(self, class: &'static str) -> impl IntoView + use<> {
        let heads =
            (!self.heads.is_empty()).then(|| view! { <path class="head" d=self.heads></path> });
        view! { <g class=class><path class="line" d=self.line></path>{heads}</g> }
    }
}

/// All edges in view.
#[component]
pub(super) fn Edges(shown: GraphState, viewport: Viewport) -> impl IntoView {
    let marked = Memo::new(move |_| {
        let marks: Vec<bool> =
            shown.view.read().edges.iter().map(|edge| edge.on_path > 0).collect();
        marks.contains(&true).then_some(marks)
    });
    let classes = Memo::new(move |_| {
        shown.view.read().edges.iter().map(|edge| classes(edge).0).collect::<Vec<_>>()
    });
    let strand = move |name: (u32, usize)| {
        move || {
            let (classes, layout, detail) =
                (classes.read(), shown.layout.read_untracked(), viewport.detail.get());
            let mut lines: BTreeMap<&'static str, EdgePath> = BTreeMap::new();
            for edge in viewport.edges_of(name) {
                lines
                    .entry(classes.get(edge).copied().unwrap_or("edge"))
                    .or_default()
                    .add(edge_path(&layout, edge), detail);
            }
            lines.into_iter().map(|(class, drawn)| drawn.view(class)).collect_view()
        }
    };
    let marked_strand = move |name: (u32, usize)| {
        move || {
            let (marked, layout, detail) =
                (marked.read(), shown.layout.read_untracked(), viewport.detail.get());
            let is_marked =
                |edge: &usize| marked.as_ref().and_then(|marks| marks.get(*edge)) == Some(&true);
            let mut drawn = EdgePath::default();
            for edge in viewport.edges_of(name).into_iter().filter(is_marked) {
                drawn.add(edge_path(&layout, edge), detail);
            }
            (!drawn.line.is_empty()).then(|| {
                view! {
                    <path class="line" d=drawn.line></path> <path class="head" d=drawn.heads></path>
                }
            })
        }
    };
    let is_marked = Memo::new(move |_| marked.read().is_some());
    let marked_path = move || {
        is_marked.get().then(|| {
            view! {
                <g class="edge on-path">
                    <For each=move || viewport.strands() key=|key| *key children=marked_strand/>
                </g>
            }
        })
    };
    view! {
        <g aria-hidden="true">
            <For each=move || viewport.strands() key=|key| *key children=strand/>
            {move || selected_edges(shown, viewport.detail.get())}
            {move || marked_path()}
        </g>
    }
    .into_any()
}

fn edge_path(layout: &Layout, edge: usize) -> &[(f64, f64)] {
    layout.paths.get(edge).map_or(&[], Vec::as_slice)
}

/// The classes of an edge, and of an edge of the selected box. The change to an edge takes
/// precedence over its kind.
fn classes(edge: &GraphEdge) -> (&'static str, &'static str) {
    match (rewired(edge).map(|(class, _)| class), edge.kind) {
        (Some("removed"), _) => ("edge removed", "edge removed current"),
        (Some("added"), _) => ("edge added", "edge added current"),
        (Some(_), _) => ("edge changed", "edge changed current"),
        (None, EdgeKind::Hard) => ("edge", "edge current"),
        (None, EdgeKind::OrderOnly | EdgeKind::Soft) => ("edge soft", "edge current"),
    }
}

/// The edges of the selected box.
fn selected_edges(shown: GraphState, detail: Detail) -> Option<impl IntoView + use<>> {
    let at = shown.at()?;
    let (view, layout) = (shown.view.read(), shown.layout.read());
    let mut lines: BTreeMap<&'static str, EdgePath> = BTreeMap::new();
    let ends = |edge: &GraphEdge| edge.from == at || edge.to == at;
    for (edge, path) in view.edges.iter().zip(&layout.paths).filter(|(edge, _)| ends(edge)) {
        lines.entry(classes(edge).1).or_default().add(path, detail);
    }
    let lines = lines.into_iter().filter(|(_, drawn)| !drawn.line.is_empty());
    Some(lines.map(|(class, drawn)| drawn.view(class)).collect_view())
}

/// A curve that is horizontal at both ends.
pub(crate) fn curve(path: &[(f64, f64)]) -> String {
    let mut d = String::new();
    push_curve(&mut d, path);
    d
}

pub(crate) fn arrow(path: &[(f64, f64)]) -> String {
    let mut d = String::new();
    push_arrow(&mut d, path);
    d
}

fn push_curve(d: &mut String, path: &[(f64, f64)]) {
    let _ = write!(d, "M{} {}", path[0].0, path[0].1);
    for pair in path.windows(2) {
        let ((ax, ay), (bx, by)) = (pair[0], pair[1]);
        let _ = match ay == by {
            true => write!(d, "L{bx} {by}"),
            false => {
                let middle = ((ax + bx) / 2.0).round();
                write!(d, "C{middle} {ay} {middle} {by} {bx} {by}")
            }
        };
    }
}

fn push_arrow(d: &mut String, path: &[(f64, f64)]) {
    let (x, y) = path[path.len() - 1];
    // A reversed edge arrives from the right.
    let back = if path.len() > 1 && path[path.len() - 2].0 > x { 7 } else { -7 };
    let _ = write!(d, "M{x} {y}l{back} -4v8z");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_points_along_its_edge() {
        assert_eq!(arrow(&[(0.0, 0.0), (10.0, 5.0)]), "M10 5l-7 -4v8z");
        assert_eq!(arrow(&[(10.0, 0.0), (0.0, 5.0)]), "M0 5l7 -4v8z");
        assert_eq!(curve(&[(0.0, 1.0), (10.0, 1.0), (20.0, 5.0)]), "M0 1L10 1C15 1 15 5 20 5");
    }

    #[test]
    fn zoomed_out_edge_is_straight_without_arrow() {
        let mut drawn = EdgePath::default();
        drawn.add(&[(0.0, 1.0), (10.0, 1.0), (20.0, 5.0)], Detail::Far);
        drawn.add(&[], Detail::Far);
        assert_eq!((drawn.line.as_str(), drawn.heads.as_str()), ("M0 1L20 5", ""));
    }
}
