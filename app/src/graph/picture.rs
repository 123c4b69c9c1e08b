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

use super::colours::Scale;
use super::layout::{Layout, Neighbours, neighbours};
use super::minimap::Minimap;
use super::{MEASURES, Shown, drawn_as, named, rewired, worst};
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
    let focused = keep_focus(shown);
    let around = Memo::new(move |_| neighbours(&shown.layout.read(), &shown.ends()));
    let vertices = move || {
        let view = shown.view.read();
        let scale = shown.scale.read();
        let found: Option<BTreeSet<usize>> = shown.found().map(|found| found.into_iter().collect());
        let at = shown.at();
        let keys = Keys::new(shown, around);
        let of = |place: &usize| {
            let vertex = view.vertices.get(*place)?;
            Some(vertex_view(shown, *place, vertex, at, found.as_ref(), &scale, &keys, focused))
        };
        near.read().iter().filter_map(of).collect_view()
    };
    let seen = RwSignal::new((0.0, 0.0, 0.0, 0.0));
    let note = move || {
        let Some(room) = shown.room.get_untracked() else { return };
        let zoom = shown.zoom.get_untracked();
        let real = [room.scroll_left(), room.scroll_top(), room.client_width(), room.client_height()];
        let [x, y, width, height] = real.map(|value| f64::from(value) / zoom);
        if seen.get_untracked() != (x, y, width, height) {
            seen.set((x, y, width, height));
        }
        let coarse = |value: f64| (value / STEP).floor() * STEP;
        let now = (coarse(x), coarse(y), (width / STEP).ceil() * STEP, (height / STEP).ceil() * STEP);
        if shown.window.get_untracked() != now {
            shown.window.set(now);
        }
    };
    hold_still(shown);
    Effect::new(move |_| {
        shown.zoom.track();
        shown.layout.track();
        note();
    });
    view! {
        <div class="picture-frame">
        <div class="picture" node_ref=shown.room on:scroll=move |_| note()>
            <svg class="graph-svg" width=width height=height viewBox=view_box role="group" aria-label="Boxes and what waits for what">
                {paths}
                {vertices}
            </svg>
        </div>
        <Minimap shown seen=seen.into()/>
        </div>
    }
    .into_any()
}

/// Who walks by keyboard stays on their box when the picture is drawn anew, for another one is looked at or a path begins. Gives what
/// boxes note their key in when they get the focus.
fn keep_focus(shown: Shown) -> StoredValue<Option<String>> {
    let focused = StoredValue::new(None::<String>);
    Effect::new(move |_| {
        shown.address.track();
        shown.view.track();
        request_animation_frame(move || {
            let nowhere = document().active_element().is_none_or(|active| active.tag_name() == "BODY");
            let Some(key) = focused.try_get_value().flatten().filter(|_| nowhere) else { return };
            if let Ok(Some(found)) = document().query_selector(&format!("a.box[data-key='{key}']")) {
                let _ = found.unchecked_into::<web_sys::SvgElement>().focus();
            }
        });
    });
    focused
}

/// The keys of boxes, and where these stand.
type Places = (Vec<String>, Vec<(f64, f64)>);

/// Where somebody looks stays where it is when the picture becomes another one under it: the box that is looked at, else the one
/// that is nearest to the middle of the window, keeps its place on the page.
fn hold_still(shown: Shown) {
    Effect::new(move |last: Option<Places>| {
        let places = shown.layout.read().places.clone();
        let keys: Vec<String> = shown.view.read_untracked().vertices.iter().map(|v| v.key.clone()).collect();
        if let (Some((old_keys, old)), Some(room)) = (last, shown.room.get_untracked())
            && old != places
        {
            let zoom = shown.zoom.get_untracked();
            let middle = (
                (f64::from(room.scroll_left()) + f64::from(room.client_width()) / 2.0) / zoom,
                (f64::from(room.scroll_top()) + f64::from(room.client_height()) / 2.0) / zoom,
            );
            let at = shown.address.read_untracked().at.clone();
            if let Some((x, y)) = moved_by(&old_keys, &old, &keys, &places, at.as_deref(), middle) {
                room.set_scroll_left(room.scroll_left() + (x * zoom).round() as i32);
                room.set_scroll_top(room.scroll_top() + (y * zoom).round() as i32);
            }
        }
        (keys, places)
    });
}

/// How far what is looked at moved: the box of that key, or the one nearest to the middle that is there before and after.
fn moved_by(
    old_keys: &[String],
    old: &[(f64, f64)],
    keys: &[String],
    places: &[(f64, f64)],
    at: Option<&str>,
    middle: (f64, f64),
) -> Option<(f64, f64)> {
    let now: BTreeMap<&str, (f64, f64)> = keys.iter().map(String::as_str).zip(places.iter().copied()).collect();
    let both = old_keys.iter().zip(old).filter_map(|(key, was)| Some((key, *was, *now.get(key.as_str())?)));
    let distance = |key: &str, (x, y): (f64, f64)| {
        if at == Some(key) { -1.0 } else { (x - middle.0).powi(2) + (y - middle.1).powi(2) }
    };
    let nearest = both.min_by(|a, b| distance(a.0, a.1).total_cmp(&distance(b.0, b.1)));
    nearest.map(|(_, was, is)| (is.0 - was.0, is.1 - was.1))
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
        let here = at == Some(edge.from) || at == Some(edge.to);
        let kind = match (rewired(edge).map(|(class, _)| class), edge.kind) {
            (None, _) if edge.on_trail > 0 => "wire trail",
            (Some("gone"), _) => {
                if here {
                    "wire gone here"
                } else {
                    "wire gone"
                }
            }
            (Some("added"), _) => {
                if here {
                    "wire added here"
                } else {
                    "wire added"
                }
            }
            (Some(_), _) => {
                if here {
                    "wire changed here"
                } else {
                    "wire changed"
                }
            }
            (None, _) if here => "wire here",
            (None, EdgeKind::Hard) => "wire",
            (None, EdgeKind::OrderOnly | EdgeKind::Soft) => "wire soft",
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
pub(super) fn curve(path: &[(f64, f64)]) -> String {
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

pub(super) fn arrow(path: &[(f64, f64)]) -> String {
    let (x, y) = path[path.len() - 1];
    // An edge that was turned round arrives from the right.
    let back = if path.len() > 1 && path[path.len() - 2].0 > x { 7 } else { -7 };
    format!("M{x} {y}l{back} -4v8z")
}

/// What keys need to know of the picture.
#[derive(Clone, Copy)]
struct Keys {
    /// Worked out when a key asks for it first, and not each time the window moves.
    near: Memo<Neighbours>,
    /// The one box that the tabulator reaches.
    first: Option<usize>,
}

impl Keys {
    fn new(shown: Shown, near: Memo<Neighbours>) -> Self {
        let layout = shown.layout.read();
        let order = |at: &usize| (layout.layers[*at], layout.places[*at].1 as i64);
        let first = shown.at().or_else(|| (0..layout.places.len()).min_by_key(order));
        Self { near, first }
    }
}

#[expect(clippy::too_many_arguments, reason = "one box and everything that it shows and notes")]
fn vertex_view(
    shown: Shown,
    place: usize,
    vertex: &GraphVertex,
    at: Option<usize>,
    found: Option<&BTreeSet<usize>>,
    scale: &Scale,
    keys: &Keys,
    focused: StoredValue<Option<String>>,
) -> impl IntoView + use<> {
    let layout = shown.layout.read();
    let (x, y) = layout.places.get(place).copied().unwrap_or_default();
    let (colour, _, _) = worst(vertex).map_or(("", crate::parts::Icon::Dot, ""), drawn_as);
    let class = match found {
        Some(found) if found.contains(&place) => "box found",
        Some(_) => "box dim",
        None if vertex.on_trail > 0 => "box trail",
        None => "box",
    };
    let said = short(&scale.said(vertex));
    let address = shown.address.read();
    let link = address.at(&vertex.key).link();
    let label = spoken(vertex, &said);
    let near = keys.near;
    let (key, navigate) = (vertex.key.clone(), use_navigate());
    let own_key = key.clone();
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
            on:focus=move |_| focused.set_value(Some(own_key.clone()))
        >
            <rect class="ground" width=MEASURES.width.to_string() height=MEASURES.height.to_string() rx="6"></rect>
            <text class="name" x="12" y="23">{short(&in_box(vertex))}</text>
            {members(vertex).map(|members| view! { " " <text class="members" x=(MEASURES.width - 12.0).to_string() y="23">{members}</text> })}
            {bars(vertex, scale)}
            " "
            <text class="said" x="12" y="52">{said}</text>
        </a>
        </g>
    }
    .into_any()
}

/// A single noderole's box has its node first: its neighbours mostly are of the same role.
pub(super) fn in_box(vertex: &GraphVertex) -> String {
    match &vertex.one {
        Some(one) => format!("{} · {}", one.short, vertex.role),
        None => vertex.role.to_string(),
    }
}

pub(super) fn members(vertex: &GraphVertex) -> Option<String> {
    (vertex.members > 1).then(|| format!("×{}", vertex.members))
}

/// A box's name for who hears or speaks it: first what it shows, letter by letter, so that "click app 1 added" finds it
/// (WCAG 2.5.3), then what it leaves out.
fn spoken(vertex: &GraphVertex, said: &str) -> String {
    let shown = [Some(short(&in_box(vertex))), members(vertex), Some(said.to_owned())];
    let shown = shown.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let trail = on_trail(vertex).map(|words| format!(", {words}")).unwrap_or_default();
    let whole = format!("{}, {}", named(vertex), super::said(vertex));
    match shown.contains('…') {
        true => format!("{shown}, in {}{trail}: {whole}", vertex.deployment),
        false => format!("{shown}, in {}{trail}", vertex.deployment),
    }
}

/// How much of a vertex is marked, in words.
pub(super) fn on_trail(vertex: &GraphVertex) -> Option<String> {
    match (vertex.on_trail, vertex.members) {
        (0, _) => None,
        (n, all) if n == all => Some("on the path".into()),
        (n, all) => Some(format!("{n} of {all} on the path")),
    }
}

pub(super) fn short(text: &str) -> String {
    match text.chars().count() > LETTERS {
        true => text.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A bar in parts, as long as there are noderoles of each colour: colour, left end, width.
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
        view! { <rect class="part" data-state=tone x=x.to_string() y="31" width=width.to_string() height="7" rx="2"></rect> }
    };
    bar(&scale.parts(vertex)).into_iter().map(part).collect_view()
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
    near: Memo<Neighbours>,
    navigate: &(impl Fn(&str, NavigateOptions) + Clone),
    event: &KeyboardEvent,
) {
    if event.ctrl_key() || event.meta_key() || event.alt_key() {
        return;
    }
    let along = |before: bool| {
        near.with_untracked(|near| {
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
        "p" | "P" => return go(event, navigate, &address.path_by(key).link()),
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
    fn what_is_looked_at_stays_on_the_page() {
        let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (old_keys, old) = (keys(&["a", "b", "c"]), [(0.0, 0.0), (0.0, 100.0), (0.0, 200.0)]);
        let (new_keys, new) = (keys(&["a", "new", "b"]), [(0.0, 0.0), (0.0, 80.0), (5.0, 160.0)]);
        let moved = |at, middle| moved_by(&old_keys, &old, &new_keys, &new, at, middle);
        assert_eq!(moved(Some("b"), (0.0, 0.0)), Some((5.0, 60.0)));
        assert_eq!(moved(None, (0.0, 10.0)), Some((0.0, 0.0)));
        assert_eq!(moved(Some("c"), (0.0, 210.0)), Some((5.0, 60.0)), "the nearest that is still there");
        assert_eq!(moved_by(&[], &[], &new_keys, &new, None, (0.0, 0.0)), None);
    }

    #[test]
    fn a_bar_is_as_long_as_its_box_whatever_its_parts() {
        for parts in [vec![("active", 1)], vec![("active", 3), ("error", 1)], vec![("a", 1_000), ("b", 1), ("c", 1)]] {
            let bar = bar(&parts);
            let (_, x, width) = bar[bar.len() - 1];
            assert!(bar.iter().all(|(_, _, width)| *width >= 1.0));
            assert!(x + width <= MEASURES.width - 10.0, "{bar:?}");
        }
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
