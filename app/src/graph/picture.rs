//! The picture: boxes and edges as SVG in a scrollable window.
//!
//! The browser scrolls natively, so wheel, touch and keys work as everywhere. The content follows
//! the window piece by piece, in coarse steps ([`super::visible_pieces`]). The picture has one
//! listener for clicks and keys instead of one per box.
//!
//! It opens fitted to its window. If labels would be too small to read, it opens at the boxes that
//! need attention instead, and the minimap shows the rest.

use std::collections::BTreeMap;

use leptos::ev::{FocusEvent, KeyboardEvent, MouseEvent, WheelEvent};
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::use_navigate;
use wasm_bindgen::JsCast;

use super::boxes::Boxes;
use super::edges::Edges;
use super::layout::{Layout, Neighbors, neighbors};
use super::minimap::Minimap;
use super::viewport::{Detail, Viewport};
use super::visible_pieces::Rect;
use super::{GraphState, MEASURES, worst_state};
use api::runs::StepState;
use api::views::graph::{Appearance, GraphDirection, GraphVertex};

/// The step in which the window's position is recorded, in pixels of the page.
const SCROLL_STEP: f64 = 200.0;
/// The margin around the window that is also drawn, in pixels of the page.
const DRAW_MARGIN: f64 = 400.0;
/// Below this zoom, labels are hard to read, so no picture opens with it.
const READABLE_ZOOM: f64 = 0.65;
/// The minimum and maximum zoom.
pub(super) const ZOOM_RANGE: (f64, f64) = (0.1, 2.0);

#[component]
pub(super) fn Picture(shown: GraphState) -> impl IntoView {
    let viewport = Viewport::of(shown);
    let width = move || (shown.layout.read().width * shown.zoom.get()).round().to_string();
    let height = move || (shown.layout.read().height * shown.zoom.get()).round().to_string();
    let view_box =
        move || format!("0 0 {} {}", shown.layout.read().width, shown.layout.read().height);
    let class = move || {
        if viewport.detail.get() == Detail::Far { "graph-svg zoomed-out" } else { "graph-svg" }
    };
    let seen = RwSignal::new((0.0, 0.0, 0.0, 0.0));
    let note = move || note(shown, seen);
    let focused = keep_focus(shown);
    keep_position(shown);
    Effect::new(move |_| {
        if shown.room.get().is_some() {
            request_animation_frame(move || open(shown));
        }
    });
    Effect::new(move |_| {
        shown.zoom.track();
        shown.layout.track();
        note();
    });
    // Computed on the first key press and not on each scroll.
    let near = Memo::new(move |_| neighbors(&shown.layout.read(), &shown.ends()));
    let navigate = use_navigate();
    let click = {
        let navigate = navigate.clone();
        move |event: MouseEvent| on_click(shown, viewport, &navigate, &event)
    };
    let on_key = move |event: KeyboardEvent| pressed(shown, near, &navigate, &event);
    let focus = move |event: FocusEvent| {
        if let Some(key) =
            event_box(event.target()).and_then(|found| found.get_attribute("data-key"))
        {
            focused.set_value(Some(key));
        }
    };
    view! {
        <div class="picture-frame">
        <div
            class="picture"
            node_ref=shown.room
            on:scroll=move |_| note()
            on:wheel=move |event| turned(shown, &event)
        >
            <svg
                class=class
                width=width
                height=height
                viewBox=view_box
                role="group"
                aria-label="Dependency graph"
                on:click=click
                on:keydown=on_key
                on:focusin=focus
            >
                <Edges shown viewport/>
                <Boxes shown viewport/>
            </svg>
        </div>
        <Minimap shown seen=seen.into()/>
        </div>
    }
    .into_any()
}

/// Records the visible part: exact for the minimap, in steps for the picture.
fn note(shown: GraphState, seen: RwSignal<(f64, f64, f64, f64)>) {
    let Some(room) = shown.room.get_untracked() else { return };
    let zoom = shown.zoom.get_untracked();
    let real = [room.scroll_left(), room.scroll_top(), room.client_width(), room.client_height()];
    let [x, y, width, height] = real.map(|value| f64::from(value) / zoom);
    if seen.get_untracked() != (x, y, width, height) {
        seen.set((x, y, width, height));
    }
    let (step, around) = (SCROLL_STEP / zoom, DRAW_MARGIN / zoom);
    let now = Rect {
        left: (x / step).floor() * step - around,
        top: (y / step).floor() * step - around,
        right: ((x + width) / step).ceil() * step + around,
        bottom: ((y + height) / step).ceil() * step + around,
    };
    if shown.window.get_untracked() != now {
        shown.window.set(now);
    }
}

/// The size of the picture's window, in pixels of the page.
fn room_size(room: &web_sys::HtmlElement) -> (f64, f64) {
    (f64::from(room.client_width()), f64::from(room.client_height()))
}

/// The zoom at which an area fits into a window. At most 1.
fn fitted(area: (f64, f64), window: (f64, f64)) -> f64 {
    // Slightly smaller, so that rounding never causes scroll bars.
    ((window.0 / area.0.max(1.0)).min(window.1 / area.1.max(1.0)) * 0.999).min(1.0)
}

/// Zooms so that the whole picture is visible.
pub(super) fn fit(shown: GraphState) {
    let Some(room) = shown.room.get_untracked() else { return };
    let layout = shown.layout.read_untracked();
    let zoom = fitted((layout.width, layout.height), room_size(&room));
    shown.zoom.set(zoom.clamp(ZOOM_RANGE.0, 1.0));
}

/// Sets the zoom and the visible part of a picture that was just opened.
fn open(shown: GraphState) {
    let Some(room) = shown.room.try_get_untracked().flatten() else { return };
    let (width, height) = room_size(&room);
    let (zoom, (x, y)) = {
        let (view, layout) = (shown.view.read_untracked(), shown.layout.read_untracked());
        let at = untrack(|| shown.at());
        let urgent = at.map_or_else(|| urgent(&view.vertices), |at| vec![at]);
        opening(&layout, &urgent, (width, height))
    };
    shown.zoom.set(zoom);
    // In the next frame, the picture has its new size and can scroll.
    request_animation_frame(move || {
        room.set_scroll_left((x * zoom - width / 2.0).round() as i32);
        room.set_scroll_top((y * zoom - height / 2.0).round() as i32);
    });
}

/// The boxes that need attention: those in ERROR. If there are none, all that are not done.
fn urgent(vertices: &[GraphVertex]) -> Vec<usize> {
    let of = |is_urgent: fn(Appearance) -> bool| -> Vec<usize> {
        let boxes = vertices.iter().enumerate();
        boxes.filter(|(_, v)| worst_state(v).is_some_and(is_urgent)).map(|(at, _)| at).collect()
    };
    let failed = of(|appearance| appearance == Appearance::State(StepState::Error));
    if !failed.is_empty() {
        return failed;
    }
    of(|appearance| match appearance {
        Appearance::State(state) => state != StepState::Active,
        Appearance::Added | Appearance::Removed | Appearance::Changed => true,
        Appearance::Downstream | Appearance::Around => false,
    })
}

/// The zoom and the center with which a picture opens: the whole picture, or the urgent boxes if
/// labels in the whole picture would be too small. If these do not fit either, the first of them.
fn opening(layout: &Layout, urgent: &[usize], window: (f64, f64)) -> (f64, (f64, f64)) {
    let whole = fitted((layout.width, layout.height), window);
    if whole >= READABLE_ZOOM {
        return (whole, (layout.width / 2.0, layout.height / 2.0));
    }
    let places: Vec<(f64, f64)> =
        urgent.iter().filter_map(|at| layout.places.get(*at).copied()).collect();
    let first = places.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let Some(first) = first else { return (READABLE_ZOOM, (0.0, 0.0)) };
    let around = MEASURES.margin;
    let (mut left, mut top, mut right, mut bottom) = (first.0, first.1, first.0, first.1);
    for (x, y) in places {
        (left, right) = (left.min(x), right.max(x));
        (top, bottom) = (top.min(y), bottom.max(y));
    }
    let (width, height) = (
        right - left + MEASURES.width + 2.0 * around,
        bottom - top + MEASURES.height + 2.0 * around,
    );
    let zoom = fitted((width, height), window);
    if zoom >= READABLE_ZOOM {
        return (zoom, (left - around + width / 2.0, top - around + height / 2.0));
    }
    (READABLE_ZOOM, (first.0 + MEASURES.width / 2.0, first.1 + MEASURES.height / 2.0))
}

/// Multiplies the zoom. The point `fixed` of the window stays in place. Default: the center.
pub(super) fn zoom_by(shown: GraphState, factor: f64, fixed: Option<(f64, f64)>) {
    let before = shown.zoom.get_untracked();
    let after = (before * factor).clamp(ZOOM_RANGE.0, ZOOM_RANGE.1);
    if after == before {
        return;
    }
    let Some(room) = shown.room.get_untracked() else { return shown.zoom.set(after) };
    let (left, top) = fixed
        .unwrap_or((f64::from(room.client_width()) / 2.0, f64::from(room.client_height()) / 2.0));
    let (x, y) = (
        (f64::from(room.scroll_left()) + left) / before,
        (f64::from(room.scroll_top()) + top) / before,
    );
    shown.zoom.set(after);
    // In the next frame, the picture has its new size and can scroll.
    request_animation_frame(move || {
        room.set_scroll_left((x * after - left).round() as i32);
        room.set_scroll_top((y * after - top).round() as i32);
    });
}

/// Zooms at the pointer on Ctrl + wheel. Browsers report a pinch on a touchpad as this event.
fn turned(shown: GraphState, event: &WheelEvent) {
    if !event.ctrl_key() {
        return;
    }
    event.prevent_default();
    let Some(room) = shown.room.get_untracked() else { return };
    let frame = room.get_bounding_client_rect();
    let fixed =
        (f64::from(event.client_x()) - frame.left(), f64::from(event.client_y()) - frame.top());
    // A notch of a wheel is about a hundred pixels, a step of a pinch a few.
    zoom_by(shown, (-event.delta_y().clamp(-100.0, 100.0) / 400.0).exp(), Some(fixed));
}

/// The box of an event.
fn event_box(target: Option<web_sys::EventTarget>) -> Option<web_sys::Element> {
    target?.dyn_into::<web_sys::Element>().ok()?.closest("a.box").ok()?
}

fn box_of(target: Option<web_sys::EventTarget>) -> Option<usize> {
    event_box(target)?.get_attribute("data-vertex")?.parse().ok()
}

/// The box under the pointer. When zoomed out, boxes are shapes, so it is found by its position.
fn under(shown: GraphState, viewport: Viewport, event: &MouseEvent) -> Option<usize> {
    if viewport.detail.get_untracked() == Detail::Near {
        return box_of(event.target());
    }
    let picture = event.current_target()?.dyn_into::<web_sys::Element>().ok()?;
    let (frame, zoom) = (picture.get_bounding_client_rect(), shown.zoom.get_untracked());
    let x = (f64::from(event.client_x()) - frame.left()) / zoom;
    let y = (f64::from(event.client_y()) - frame.top()) / zoom;
    box_at_point(&shown.layout.read_untracked(), (x, y))
}

/// The box that covers a point.
fn box_at_point(layout: &Layout, (x, y): (f64, f64)) -> Option<usize> {
    let covers = |(left, top): &(f64, f64)| {
        (*left..=left + MEASURES.width).contains(&x) && (*top..=top + MEASURES.height).contains(&y)
    };
    layout.places.iter().position(covers)
}

fn on_click(
    shown: GraphState,
    viewport: Viewport,
    navigate: &impl Fn(&str, NavigateOptions),
    event: &MouseEvent,
) {
    if event.ctrl_key() || event.meta_key() || event.shift_key() || event.button() != 0 {
        return;
    }
    let Some(link) = under(shown, viewport, event).and_then(|index| link_to(shown, index)) else {
        return;
    };
    event.prevent_default();
    event.stop_propagation();
    navigate(&link, without_scroll());
}

fn link_to(shown: GraphState, index: usize) -> Option<String> {
    let view = shown.view.read_untracked();
    Some(shown.address.read_untracked().at(&view.vertices.get(index)?.key).link())
}

/// Keeps the focus on a box when the picture is redrawn, for example after a selection. Returns the
/// value in which boxes record their key on focus.
fn keep_focus(shown: GraphState) -> StoredValue<Option<String>> {
    let focused = StoredValue::new(None::<String>);
    Effect::new(move |_| {
        shown.address.track();
        shown.view.track();
        request_animation_frame(move || {
            let nowhere =
                document().active_element().is_none_or(|active| active.tag_name() == "BODY");
            let Some(key) = focused.try_get_value().flatten().filter(|_| nowhere) else { return };
            if let Ok(Some(found)) = document().query_selector(&format!("a.box[data-key='{key}']"))
            {
                let _ = found.unchecked_into::<web_sys::SvgElement>().focus();
            }
        });
    });
    focused
}

/// The keys and positions of boxes.
type BoxPositions = (Vec<String>, Vec<(f64, f64)>);

/// Keeps the reader's view steady when the picture changes. The selected box keeps its position on
/// the page. Without a selection, the box nearest to the center of the window does.
fn keep_position(shown: GraphState) {
    Effect::new(move |last: Option<BoxPositions>| {
        let places = shown.layout.read().places.clone();
        let keys: Vec<String> =
            shown.view.read_untracked().vertices.iter().map(|v| v.key.clone()).collect();
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

/// The displacement of the selected box. Without a selection, of the box nearest to the center that
/// exists before and after.
fn moved_by(
    old_keys: &[String],
    old: &[(f64, f64)],
    keys: &[String],
    places: &[(f64, f64)],
    at: Option<&str>,
    middle: (f64, f64),
) -> Option<(f64, f64)> {
    let now: BTreeMap<&str, (f64, f64)> =
        keys.iter().map(String::as_str).zip(places.iter().copied()).collect();
    let both = old_keys
        .iter()
        .zip(old)
        .filter_map(|(key, was)| Some((key, *was, *now.get(key.as_str())?)));
    let distance = |key: &str, (x, y): (f64, f64)| {
        if at == Some(key) { -1.0 } else { (x - middle.0).powi(2) + (y - middle.1).powi(2) }
    };
    let nearest = both.min_by(|a, b| distance(a.0, a.1).total_cmp(&distance(b.0, b.1)));
    nearest.map(|(_, was, is)| (is.0 - was.0, is.1 - was.1))
}

fn without_scroll() -> NavigateOptions {
    NavigateOptions { scroll: false, ..Default::default() }
}

fn pressed(
    shown: GraphState,
    near: Memo<Neighbors>,
    navigate: &(impl Fn(&str, NavigateOptions) + Clone),
    event: &KeyboardEvent,
) {
    if event.ctrl_key() || event.meta_key() || event.alt_key() {
        return;
    }
    let Some(index) = box_of(event.target()) else { return };
    let Some((key, role)) = shown
        .view
        .read_untracked()
        .vertices
        .get(index)
        .map(|vertex| (vertex.key.clone(), vertex.role.clone()))
    else {
        return;
    };
    let along = |before: bool| {
        near.with_untracked(|near| {
            let (parents, children) = near.get(&index)?;
            let side = if before { parents } else { children };
            // The middle one is the straightest continuation.
            side.get(side.len() / 2).copied()
        })
    };
    let address = shown.address.get_untracked();
    let to = match event.key().as_str() {
        "ArrowRight" => along(false),
        "ArrowLeft" => along(true),
        "ArrowDown" => adjacent_box(&shown.layout.read_untracked(), index, 1),
        "ArrowUp" => adjacent_box(&shown.layout.read_untracked(), index, -1),
        "u" | "U" => return go(event, navigate, &address.toggled_role(&role).link()),
        "p" | "P" => return go(event, navigate, &address.with_path_at(&key).link()),
        "f" | "F" => {
            return go(event, navigate, &address.focused(&key, GraphDirection::Both).link());
        }
        "Enter" | " " => return go(event, navigate, &address.at(&key).link()),
        _ => return,
    };
    event.prevent_default();
    if let Some(to) = to {
        scroll_to_box(shown, to);
    }
}

fn go(event: &KeyboardEvent, navigate: &(impl Fn(&str, NavigateOptions) + Clone), link: &str) {
    event.prevent_default();
    navigate(link, without_scroll());
}

/// The next box above or below in the same layer.
fn adjacent_box(layout: &Layout, index: usize, step: isize) -> Option<usize> {
    let mut column: Vec<usize> =
        (0..layout.layers.len()).filter(|at| layout.layers[*at] == layout.layers[index]).collect();
    column.sort_by(|a, b| layout.places[*a].1.total_cmp(&layout.places[*b].1));
    let now = column.iter().position(|at| *at == index)?;
    column.get(now.checked_add_signed(step)?).copied()
}

/// Scrolls to a box and focuses it.
pub(super) fn scroll_to_box(shown: GraphState, index: usize) {
    let Some(room) = shown.room.get_untracked() else { return };
    let zoom = shown.zoom.get_untracked();
    shown.selected_box.set(Some(index));
    let Some((x, y)) = shown.layout.read_untracked().places.get(index).copied() else { return };
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
    // The box may be drawn only after the scroll.
    request_animation_frame(move || {
        if let Ok(Some(found)) = document().query_selector(&format!("[data-vertex='{index}']")) {
            let _ = found.unchecked_into::<web_sys::SvgElement>().focus();
        }
    });
}

#[cfg(test)]
mod tests {
    use api::views::graph::AppearanceCount;

    use super::*;
    use crate::graph::layout::lay_out;

    #[test]
    fn zoomed_out_click_finds_box_by_position() {
        let layout = lay_out(3, &[(0, 1), (0, 2)], MEASURES);
        for (index, (x, y)) in layout.places.iter().enumerate() {
            assert_eq!(box_at_point(&layout, (x + 1.0, y + MEASURES.height - 1.0)), Some(index));
        }
        assert_eq!(box_at_point(&layout, (0.0, 0.0)), None);
    }

    #[test]
    fn small_graph_opens_unscaled() {
        let layout = lay_out(3, &[(0, 1), (0, 2)], MEASURES);
        let middle = (layout.width / 2.0, layout.height / 2.0);
        assert_eq!(opening(&layout, &[2], (4_000.0, 3_000.0)), (1.0, middle));
        let narrow = (layout.width * 0.9, 3_000.0);
        let (zoom, center) = opening(&layout, &[2], narrow);
        assert!((READABLE_ZOOM..0.9).contains(&zoom), "{zoom}");
        assert_eq!(center, middle);
    }

    #[test]
    fn large_picture_opens_at_urgent_boxes() {
        let chain: Vec<(usize, usize)> = (0..40).map(|at| (at, at + 1)).collect();
        let layout = lay_out(41, &chain, MEASURES);
        let window = (900.0, 600.0);
        let center = |at: usize| {
            (
                layout.places[at].0 + MEASURES.width / 2.0,
                layout.places[at].1 + MEASURES.height / 2.0,
            )
        };
        assert_eq!(opening(&layout, &[30], window), (1.0, center(30)));
        let (zoom, (x, _)) = opening(&layout, &[30, 31], window);
        assert!(zoom >= READABLE_ZOOM && center(30).0 < x && x < center(31).0, "{zoom} {x}");
        let first = (READABLE_ZOOM, center(5));
        assert_eq!(
            opening(&layout, &[35, 5], window),
            first,
            "if both boxes do not fit, the picture opens at the first"
        );
        assert_eq!(opening(&layout, &[], window), (READABLE_ZOOM, (0.0, 0.0)));
    }

    #[test]
    fn failed_boxes_are_the_most_urgent() {
        let vertices = crate::graph::colors::tests::view(&["a", "b", "c", "d"]).vertices;
        let with = |states: [&[StepState]; 4]| {
            let mut vertices = vertices.clone();
            for (vertex, states) in vertices.iter_mut().zip(states) {
                let part =
                    |state| AppearanceCount { appearance: Appearance::State(state), count: 1 };
                vertex.appearances = states.iter().copied().map(part).collect();
            }
            urgent(&vertices)
        };
        let (active, error, blocked) = ([StepState::Active], StepState::Error, StepState::Blocked);
        assert_eq!(with([&active, &[error, StepState::Active], &[blocked], &active]), [1]);
        assert_eq!(with([&active, &[StepState::Todo], &[blocked], &active]), [1, 2]);
        assert_eq!(with([&active, &active, &active, &active]), [0_usize; 0]);
    }

    #[test]
    fn selected_box_keeps_its_position() {
        let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (old_keys, old) = (keys(&["a", "b", "c"]), [(0.0, 0.0), (0.0, 100.0), (0.0, 200.0)]);
        let (new_keys, new) = (keys(&["a", "new", "b"]), [(0.0, 0.0), (0.0, 80.0), (5.0, 160.0)]);
        let moved = |at, middle| moved_by(&old_keys, &old, &new_keys, &new, at, middle);
        assert_eq!(moved(Some("b"), (0.0, 0.0)), Some((5.0, 60.0)));
        assert_eq!(moved(None, (0.0, 10.0)), Some((0.0, 0.0)));
        assert_eq!(
            moved(Some("c"), (0.0, 210.0)),
            Some((5.0, 60.0)),
            "the nearest remaining box keeps its position"
        );
        assert_eq!(moved_by(&[], &[], &new_keys, &new, None, (0.0, 0.0)), None);
    }

    #[test]
    fn up_and_down_keys_stay_in_layer() {
        let layout = lay_out(3, &[(0, 1), (0, 2)], MEASURES);
        assert_eq!(adjacent_box(&layout, 1, 1), Some(2));
        assert_eq!(adjacent_box(&layout, 2, 1), None);
        assert_eq!(adjacent_box(&layout, 0, -1), None);
    }
}
