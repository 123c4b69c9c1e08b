//! Boxes: one for each role or single noderole. It shows the name, and the states as a bar and as
//! text.
//!
//! A box has no event listeners. The picture handles clicks and keys and looks up the box under
//! them. Each cell of the picture updates its boxes in place when a state changes. Elements remain,
//! and so does the focus.
//!
//! When zoomed out too far to read text, a cell is one path per color. The selected and the
//! focused box remain complete, otherwise the keyboard would have no element to focus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use api::views::graph::GraphVertex;
use leptos::prelude::*;

use super::address::Address;
use super::colors::Scale;
use super::viewport::{Detail, Viewport};
use super::{GraphState, MEASURES, named, state_style, worst_state};

/// Maximum number of characters of a name in a box.
const MAX_NAME_CHARS: usize = 22;

/// The state of boxes other than the noderoles' states.
#[derive(Clone, Copy)]
struct Marks {
    /// The selected box.
    at: Memo<Option<usize>>,
    /// The box that Tab focuses.
    first: Memo<Option<usize>>,
    /// The boxes whose names contain the search text.
    found: Memo<Option<BTreeSet<usize>>>,
    /// The address without the selection, since links of boxes replace the selection.
    base: Memo<Address>,
}

impl Marks {
    fn of(shown: GraphState) -> Self {
        let at = Memo::new(move |_| shown.at());
        let first = Memo::new(move |_| {
            let layout = shown.layout.read();
            let order = |at: &usize| (layout.layers[*at], layout.places[*at].1 as i64);
            at.get().or_else(|| (0..layout.places.len()).min_by_key(order))
        });
        Self {
            at,
            first,
            found: Memo::new(move |_| shown.found().map(|found| found.into_iter().collect())),
            base: Memo::new(move |_| Address { at: None, ..shown.address.get() }),
        }
    }

    /// The CSS class for the highlighting of a box.
    fn class(self, index: usize, vertex: &GraphVertex) -> &'static str {
        match &*self.found.read() {
            Some(found) if found.contains(&index) => "found",
            Some(_) => "dim",
            None if vertex.on_path > 0 => "on-path",
            None => "",
        }
    }
}

/// All boxes in view.
#[component]
pub(super) fn Boxes(shown: GraphState, viewport: Viewport) -> impl IntoView {
    let marks = Marks::of(shown);
    let cell = move |key: (u32, usize)| {
        move || {
            let members = viewport.boxes_of(key);
            match viewport.detail.get() {
                Detail::Near => whole(shown, marks, &members),
                Detail::Far => plain_boxes(shown, marks, &members),
            }
        }
    };
    let in_hand = move || {
        (viewport.detail.get() == Detail::Far).then(|| {
            let places = [marks.at.get(), marks.first.get(), shown.selected_box.get()];
            let places: BTreeSet<usize> = places.into_iter().flatten().collect();
            whole(shown, marks, &places.into_iter().collect::<Vec<_>>())
        })
    };
    view! {
        <For each=move || viewport.cells() key=|key| *key children=cell/>
        {move || in_hand()}
    }
    .into_any()
}

fn whole(shown: GraphState, marks: Marks, places: &[usize]) -> AnyView {
    let (view, layout, scale, base) =
        (shown.view.read(), shown.layout.read(), shown.scale.read(), marks.base.read());
    let of = |index: &usize| {
        let (vertex, at) = (view.vertices.get(*index)?, layout.places.get(*index)?);
        Some(one(*index, vertex, *at, (marks, view.deployment.is_none()), &scale, &base))
    };
    places.iter().filter_map(of).collect_view().into_any()
}

/// The boxes as plain shapes: one path for each color and class.
fn plain_boxes(shown: GraphState, marks: Marks, places: &[usize]) -> AnyView {
    let (view, layout, scale) = (shown.view.read(), shown.layout.read(), shown.scale.read());
    let mut paths: BTreeMap<(&'static str, &'static str), String> = BTreeMap::new();
    for index in places {
        let (Some(vertex), Some((x, y))) = (view.vertices.get(*index), layout.places.get(*index))
        else {
            continue;
        };
        let d = paths.entry((marks.class(*index, vertex), scale.tone(vertex))).or_default();
        // Writing to a string cannot fail.
        let _ = write!(d, "M{x} {y}h{}v{}h-{}z", MEASURES.width, MEASURES.height, MEASURES.width);
    }
    let path = |((mark, tone), d): ((&'static str, &'static str), String)| {
        let class = if mark.is_empty() { "part".to_owned() } else { format!("part {mark}") };
        view! { <path class=class data-state=tone d=d></path> }
    };
    paths.into_iter().map(path).collect_view().into_any()
}

fn one(
    index: usize,
    vertex: &GraphVertex,
    (x, y): (f64, f64),
    (marks, with_owner): (Marks, bool),
    scale: &Scale,
    base: &Address,
) -> impl IntoView + use<> {
    let (color, _, _) =
        worst_state(vertex).map_or(("", crate::components::Icon::Dot, ""), state_style);
    let class = match marks.class(index, vertex) {
        "" => "box".to_owned(),
        mark => format!("box {mark}"),
    };
    let message = short(&scale.box_text(vertex));
    let title = short(&box_title(vertex, with_owner));
    let label = accessible_name(vertex, &title, &message);
    view! {
        <g transform=format!("translate({x} {y})")>
        <a
            class=class
            href=base.at(&vertex.key).link()
            aria-label=label
            aria-current=(marks.at.get() == Some(index)).then_some("true")
            tabindex=if marks.first.get() == Some(index) { "0" } else { "-1" }
            data-key=vertex.key.clone()
            data-vertex=index.to_string()
            data-state=color
        >
            <rect
                class="shape"
                width=MEASURES.width.to_string()
                height=MEASURES.height.to_string()
                rx="6"
            ></rect>
            <text class="name" x="12" y="23">{title}</text>
            {members(vertex).map(|members| view! {
                " "
                <text class="members" x=(MEASURES.width - 12.0).to_string() y="23">{members}</text>
            })}
            {bars(vertex, scale)}
            " "
            <text class="message" x="12" y="52">{message}</text>
        </a>
        </g>
    }
    .into_any()
}

/// The title of a box. A single noderole shows its node first, because its neighbors mostly have
/// the same role. In the graph of the cluster, a role shows its deployment: several deployments
/// have the same role.
pub(super) fn box_title(vertex: &GraphVertex, with_owner: bool) -> String {
    match &vertex.noderole {
        Some(one) => format!("{} · {}", one.short, vertex.role),
        None if with_owner => format!("{} · {}", vertex.role, vertex.deployment),
        None => vertex.role.to_string(),
    }
}

pub(super) fn members(vertex: &GraphVertex) -> Option<String> {
    (vertex.members > 1).then(|| format!("×{}", vertex.members))
}

/// The accessible name of a box. It starts with exactly the visible text, so that the voice command
/// "click app 1 added" works (WCAG 2.5.3).
fn accessible_name(vertex: &GraphVertex, title: &str, text: &str) -> String {
    let shown = [Some(title.to_owned()), members(vertex), Some(text.to_owned())];
    let shown = shown.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let marked_path = on_path(vertex).map(|words| format!(", {words}")).unwrap_or_default();
    let whole = format!("{}, {}", named(vertex), super::state_text(vertex));
    match shown.contains('…') {
        true => format!("{shown}, in {}{marked_path}: {whole}", vertex.deployment),
        false => format!("{shown}, in {}{marked_path}", vertex.deployment),
    }
}

/// How much of a vertex is highlighted, in words.
pub(super) fn on_path(vertex: &GraphVertex) -> Option<String> {
    match (vertex.on_path, vertex.members) {
        (0, _) => None,
        (n, all) if n == all => Some("on the path".into()),
        (n, all) => Some(format!("{n} of {all} on the path")),
    }
}

pub(super) fn short(text: &str) -> String {
    match text.chars().count() > MAX_NAME_CHARS {
        true => text.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The segments of a bar in proportion to the noderoles of each color: color, left end, width.
pub(super) fn bar(parts: &[(&'static str, usize)]) -> Vec<(&'static str, f64, f64)> {
    let room = MEASURES.width - 24.0;
    let all: usize = parts.iter().map(|(_, n)| *n).sum();
    let mut x = 12.0;
    let part = |(tone, n): &(&'static str, usize)| {
        let (left, width) = (x, (room * *n as f64 / all.max(1) as f64).round());
        x += width;
        (*tone, left, (width - 1.0).max(1.0))
    };
    parts.iter().map(part).collect()
}

fn bars(vertex: &GraphVertex, scale: &Scale) -> impl IntoView + use<> {
    let part = |(tone, x, width): (&'static str, f64, f64)| {
        view! {
            <rect
                class="part"
                data-state=tone
                x=x.to_string()
                y="31"
                width=width.to_string()
                height="7"
                rx="2"
            ></rect>
        }
    };
    bar(&scale.parts(vertex)).into_iter().map(part).collect_view()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_fills_its_box() {
        for parts in [
            vec![("active", 1)],
            vec![("active", 3), ("error", 1)],
            vec![("a", 1_000), ("b", 1), ("c", 1)],
        ] {
            let bar = bar(&parts);
            let (_, x, width) = bar[bar.len() - 1];
            assert!(bar.iter().all(|(_, _, width)| *width >= 1.0));
            assert!(x + width <= MEASURES.width - 10.0, "{bar:?}");
        }
    }

    #[test]
    fn long_name_is_shortened() {
        assert_eq!(short("app"), "app");
        assert_eq!(short(&"x".repeat(40)).chars().count(), MAX_NAME_CHARS);
    }
}
