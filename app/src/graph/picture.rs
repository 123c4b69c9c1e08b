//! The picture: boxes and edges as SVG in a window that scrolls.
//!
//! Scrolling is the browser's own, so wheel, touch and keys do what they do everywhere. All edges of a kind are one path. Of a large
//! picture only what is near the window is in the page; the window is noted in coarse steps, so that scrolling costs a redrawing only
//! now and then.

use std::collections::{BTreeMap, BTreeSet};

use api::console::GraphVertex;
use engine::cluster::EdgeKind;
use leptos::ev::{KeyboardEvent, MouseEvent};
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::use_navigate;
use wasm_bindgen::JsCast;

use super::layout::{Layout, neighbours};
use super::{MEASURES, Shown, drawn_as, named, said, worst};
use api::console::GraphWay;

/// Vertices that are drawn whatever the window shows.
const ALL_DRAWN: usize = 250;
/// The window is noted in steps of this many pixels, and this much around it is drawn too.
const STEP: f64 = 400.0;
/// Letters of a name that a box has room for.
const LETTERS: usize = 22;

#[component]
pub(super) fn Picture(shown: Shown) -> impl IntoView {
    let near = Memo::new(move |_| near(&shown.layout.read(), shown.window.get()));
    let width = move || (shown.layout.read().width * shown.zoom.get()).round().to_string();
    let height = move || (shown.layout.read().height * shown.zoom.get()).round().to_string();
    let view_box = move || format!("0 0 {} {}", shown.layout.read().width, shown.layout.read().height);
    let paths = move || edges(shown, &near.read());
    let vertices = move || {
        let view = shown.view.read();
        let found = shown.found();
        let at = shown.at();
        let keys = Keys::new(shown);
        let of = |place: &usize| {
            view.vertices.get(*place).map(|vertex| vertex_view(shown, *place, vertex, at, found.as_deref(), &keys))
        };
        near.read().iter().filter_map(of).collect_view()
    };
    let note = move || {
        let Some(room) = shown.room.get_untracked() else { return };
        let zoom = shown.zoom.get_untracked();
        let real = [room.scroll_left(), room.scroll_top(), room.client_width(), room.client_height()];
        let [x, y, width, height] = real.map(|value| f64::from(value) / zoom);
        let coarse = |value: f64| (value / STEP).floor() * STEP;
        let now = (coarse(x), coarse(y), (width / STEP).ceil() * STEP, (height / STEP).ceil() * STEP);
        if shown.window.get_untracked() != now {
            shown.window.set(now);
        }
    };
    Effect::new(move |_| {
        shown.zoom.track();
        shown.layout.track();
        note();
    });
    view! {
        <div class="picture" node_ref=shown.room on:scroll=move |_| note()>
            <svg class="graph-svg" width=width height=height viewBox=view_box role="group" aria-label="Boxes and what waits for what">
                {paths}
                {vertices}
            </svg>
        </div>
    }
    .into_any()
}

/// Places of the vertices that are near the window.
fn near(layout: &Layout, (x, y, width, height): (f64, f64, f64, f64)) -> Vec<usize> {
    let is_near = |(vx, vy): (f64, f64)| {
        vx + MEASURES.width >= x - STEP
            && vx <= x + width + STEP
            && vy + MEASURES.height >= y - STEP
            && vy <= y + height + STEP
    };
    let all = layout.places.iter().enumerate();
    all.filter(|(_, place)| layout.places.len() <= ALL_DRAWN || is_near(**place)).map(|(at, _)| at).collect()
}

/// The edges at what is drawn: one path for each kind, and one for those at the vertex that is looked at.
fn edges(shown: Shown, near: &[usize]) -> impl IntoView + use<> {
    let (view, layout, at) = (shown.view.read(), shown.layout.read(), shown.at());
    let drawn: BTreeSet<usize> = near.iter().copied().collect();
    let mut lines: BTreeMap<&'static str, (String, String)> = BTreeMap::new();
    for (edge, path) in view.edges.iter().zip(&layout.paths) {
        if path.is_empty() || !(drawn.contains(&edge.from) || drawn.contains(&edge.to)) {
            continue;
        }
        let kind = match edge.kind {
            _ if at == Some(edge.from) || at == Some(edge.to) => "wire here",
            EdgeKind::Hard => "wire",
            EdgeKind::OrderOnly | EdgeKind::Soft => "wire soft",
        };
        let (line, head) = lines.entry(kind).or_default();
        line.push_str(&curve(path));
        head.push_str(&arrow(path));
    }
    let drawn = lines.into_iter().map(|(kind, (line, head))| {
        view! {
            <g class=kind aria-hidden="true">
                <path class="line" d=line></path>
                <path class="head" d=head></path>
            </g>
        }
    });
    drawn.collect_view()
}

/// A path that leaves and arrives level.
fn curve(path: &[(f64, f64)]) -> String {
    let mut d = format!("M{} {}", path[0].0, path[0].1);
    for pair in path.windows(2) {
        let ((ax, ay), (bx, by)) = (pair[0], pair[1]);
        match ay == by {
            true => d.push_str(&format!("L{bx} {by}")),
            false => {
                let middle = ((ax + bx) / 2.0).round();
                d.push_str(&format!("C{middle} {ay} {middle} {by} {bx} {by}"));
            }
        }
    }
    d
}

fn arrow(path: &[(f64, f64)]) -> String {
    let (x, y) = path[path.len() - 1];
    // An edge that was turned round arrives from the right.
    let back = if path.len() > 1 && path[path.len() - 2].0 > x { 7 } else { -7 };
    format!("M{x} {y}l{back} -4v8z")
}

/// What keys need to know of the picture.
#[derive(Clone)]
struct Keys {
    near: StoredValue<BTreeMap<usize, (Vec<usize>, Vec<usize>)>>,
    /// The one box that the tabulator reaches.
    first: Option<usize>,
}

impl Keys {
    fn new(shown: Shown) -> Self {
        let layout = shown.layout.read();
        let order = |at: &usize| (layout.layers[*at], layout.places[*at].1 as i64);
        let first = shown.at().or_else(|| (0..layout.places.len()).min_by_key(order));
        Self { near: StoredValue::new(neighbours(&layout, &shown.ends())), first }
    }
}

fn vertex_view(
    shown: Shown,
    place: usize,
    vertex: &GraphVertex,
    at: Option<usize>,
    found: Option<&[usize]>,
    keys: &Keys,
) -> impl IntoView + use<> {
    let layout = shown.layout.read();
    let (x, y) = layout.places.get(place).copied().unwrap_or_default();
    let (colour, _, _) = worst(vertex).map_or(("", crate::parts::Icon::Dot, ""), drawn_as);
    let class = match found {
        Some(found) if found.contains(&place) => "box found",
        Some(_) => "box dim",
        None => "box",
    };
    let address = shown.address.read();
    let link = address.at(&vertex.key).link();
    let label = spoken(vertex);
    let near = keys.near;
    let (key, navigate) = (vertex.key.clone(), use_navigate());
    let to = link.clone();
    let role = vertex.role.clone();
    let press = {
        let (navigate, to) = (navigate.clone(), to.clone());
        move |event: KeyboardEvent| pressed(shown, place, &key, &role, &to, near, &navigate, &event)
    };
    let click = move |event: MouseEvent| {
        if event.ctrl_key() || event.meta_key() || event.shift_key() || event.button() != 0 {
            return;
        }
        event.prevent_default();
        event.stop_propagation();
        navigate(&to, stay());
    };
    view! {
        <g transform=format!("translate({x} {y})")>
        <a
            class=class
            href=link
            aria-label=label
            aria-current=(at == Some(place)).then_some("true")
            tabindex=if keys.first == Some(place) { "0" } else { "-1" }
            data-key=vertex.key.clone()
            data-vertex=place.to_string()
            data-state=colour
            on:click=click
            on:keydown=press
        >
            <rect class="ground" width=MEASURES.width.to_string() height=MEASURES.height.to_string() rx="6"></rect>
            <text class="name" x="12" y="23">{short(&named_in_box(vertex))}</text>
            {members(vertex).map(|members| view! { " " <text class="members" x=(MEASURES.width - 12.0).to_string() y="23">{members}</text> })}
            {bars(vertex)}
            " "
            <text class="said" x="12" y="52">{short(&said(vertex))}</text>
        </a>
        </g>
    }
    .into_any()
}

/// A single noderole's box has its node first: its neighbours mostly are of the same role.
fn named_in_box(vertex: &GraphVertex) -> String {
    match &vertex.one {
        Some(one) => format!("{} · {}", one.short, vertex.role),
        None => vertex.role.to_string(),
    }
}

fn members(vertex: &GraphVertex) -> Option<String> {
    (vertex.members > 1).then(|| format!("×{}", vertex.members))
}

/// A box's name for who hears or speaks it: first what it shows, letter by letter, so that "click app 1 added" finds it
/// (WCAG 2.5.3), then what it leaves out.
fn spoken(vertex: &GraphVertex) -> String {
    let shown = [Some(short(&named_in_box(vertex))), members(vertex), Some(short(&said(vertex)))];
    let shown = shown.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let whole = format!("{}, {}", named(vertex), said(vertex));
    match shown.contains('…') {
        true => format!("{shown}, in {}: {whole}", vertex.deployment),
        false => format!("{shown}, in {}", vertex.deployment),
    }
}

fn short(text: &str) -> String {
    match text.chars().count() > LETTERS {
        true => text.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A bar in parts, as long as there are noderoles of each look.
fn bars(vertex: &GraphVertex) -> impl IntoView + use<> {
    let room = MEASURES.width - 24.0;
    let all: usize = vertex.looks.iter().map(|(_, n)| *n).sum();
    let mut x = 12.0;
    let parts: Vec<_> = vertex
        .looks
        .iter()
        .map(|(look, n)| {
            let width = (room * *n as f64 / all.max(1) as f64).round();
            let part = view! { <rect class="part" data-state=drawn_as(*look).0 x=x.to_string() y="31" width=(width - 1.0).max(1.0).to_string() height="7" rx="2"></rect> };
            x += width;
            part
        })
        .collect();
    parts.collect_view()
}

fn stay() -> NavigateOptions {
    NavigateOptions { scroll: false, ..Default::default() }
}

#[expect(clippy::too_many_arguments, reason = "one box and everything a key may do with it")]
fn pressed(
    shown: Shown,
    place: usize,
    key: &str,
    role: &engine::ids::RoleName,
    link: &str,
    near: StoredValue<BTreeMap<usize, (Vec<usize>, Vec<usize>)>>,
    navigate: &(impl Fn(&str, NavigateOptions) + Clone),
    event: &KeyboardEvent,
) {
    if event.ctrl_key() || event.meta_key() || event.alt_key() {
        return;
    }
    let along = |before: bool| {
        near.with_value(|near| {
            let (parents, children) = near.get(&place)?;
            let side = if before { parents } else { children };
            // The one in the middle: the straightest way on.
            side.get(side.len() / 2).copied()
        })
    };
    let address = shown.address.get_untracked();
    let to = match event.key().as_str() {
        "ArrowRight" => along(false),
        "ArrowLeft" => along(true),
        "ArrowDown" => beside(&shown.layout.read_untracked(), place, 1),
        "ArrowUp" => beside(&shown.layout.read_untracked(), place, -1),
        "u" | "U" => return go(event, navigate, &address.toggled_role(role).link()),
        "f" | "F" => return go(event, navigate, &address.focused(key, GraphWay::Both).link()),
        "Enter" | " " => return go(event, navigate, link),
        _ => return,
    };
    event.prevent_default();
    if let Some(to) = to {
        bring_into_sight(shown, to);
    }
}

fn go(event: &KeyboardEvent, navigate: &(impl Fn(&str, NavigateOptions) + Clone), link: &str) {
    event.prevent_default();
    navigate(link, stay());
}

/// The next one above or below in the same layer.
fn beside(layout: &Layout, place: usize, step: isize) -> Option<usize> {
    let mut column: Vec<usize> =
        (0..layout.layers.len()).filter(|at| layout.layers[*at] == layout.layers[place]).collect();
    column.sort_by(|a, b| layout.places[*a].1.total_cmp(&layout.places[*b].1));
    let now = column.iter().position(|at| *at == place)?;
    column.get(now.checked_add_signed(step)?).copied()
}

/// Scrolls to a box and puts the focus on it.
pub(super) fn bring_into_sight(shown: Shown, place: usize) {
    let Some(room) = shown.room.get_untracked() else { return };
    let zoom = shown.zoom.get_untracked();
    let Some((x, y)) = shown.layout.read_untracked().places.get(place).copied() else { return };
    let (left, top) = (f64::from(room.scroll_left()), f64::from(room.scroll_top()));
    let (width, height) = (f64::from(room.client_width()), f64::from(room.client_height()));
    let inside = x * zoom >= left
        && (x + MEASURES.width) * zoom <= left + width
        && y * zoom >= top
        && (y + MEASURES.height) * zoom <= top + height;
    if !inside {
        room.set_scroll_left(((x + MEASURES.width / 2.0) * zoom - width / 2.0) as i32);
        room.set_scroll_top(((y + MEASURES.height / 2.0) * zoom - height / 2.0) as i32);
    }
    // It may be drawn only now.
    request_animation_frame(move || {
        if let Ok(Some(found)) = document().query_selector(&format!("[data-vertex='{place}']")) {
            let _ = found.unchecked_into::<web_sys::SvgElement>().focus();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::layout::lay_out;

    #[test]
    fn of_a_large_picture_only_what_is_near_is_drawn() {
        let edges: Vec<_> = (0..999).map(|n| (n, n + 1)).collect();
        let layout = lay_out(1_000, &edges, MEASURES);
        let window = (8_000.0, 0.0, 1_600.0, 800.0);
        let drawn = near(&layout, window);
        assert!(drawn.len() < 20 && drawn.len() > 5, "{}", drawn.len());
        assert_eq!(near(&lay_out(10, &edges[..9], MEASURES), window).len(), 10, "a small one is always whole");
    }

    #[test]
    fn arrows_point_where_the_edge_goes() {
        assert_eq!(arrow(&[(0.0, 0.0), (10.0, 5.0)]), "M10 5l-7 -4v8z");
        assert_eq!(arrow(&[(10.0, 0.0), (0.0, 5.0)]), "M0 5l7 -4v8z");
        assert_eq!(curve(&[(0.0, 1.0), (10.0, 1.0), (20.0, 5.0)]), "M0 1L10 1C15 1 15 5 20 5");
    }

    #[test]
    fn up_and_down_stay_in_the_layer() {
        let layout = lay_out(3, &[(0, 1), (0, 2)], MEASURES);
        assert_eq!(beside(&layout, 1, 1), Some(2));
        assert_eq!(beside(&layout, 2, 1), None);
        assert_eq!(beside(&layout, 0, -1), None);
    }

    #[test]
    fn names_fit_their_box() {
        assert_eq!(short("app"), "app");
        assert_eq!(short(&"x".repeat(40)).chars().count(), LETTERS);
    }
}
