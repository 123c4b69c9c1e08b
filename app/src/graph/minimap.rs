//! A small overview of a picture that is larger than its window, with a frame around the visible
//! part.
//!
//! It duplicates functions for the pointer only: keys scroll the picture and move between boxes,
//! and the table contains all text. So it is hidden from screen readers.

use std::collections::BTreeMap;

use leptos::ev::PointerEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::{GraphState, MEASURES};

/// Maximum size, in pixels of the page.
const MAX_SIZE: (f64, f64) = (184.0, 120.0);

/// Pixels of the page per pixel of the picture.
fn scale(width: f64, height: f64) -> f64 {
    (MAX_SIZE.0 / width.max(1.0)).min(MAX_SIZE.1 / height.max(1.0))
}

#[component]
pub(super) fn Minimap(
    shown: GraphState,
    /// The visible part of the picture: x, y, width, height, in the picture's pixels.
    seen: Signal<(f64, f64, f64, f64)>,
) -> impl IntoView {
    let whole = Memo::new(move |_| {
        let layout = shown.layout.read();
        (layout.width, layout.height)
    });
    let is_larger = Memo::new(move |_| {
        let (whole, (_, _, width, height)) = (whole.get(), seen.get());
        width > 0.0 && (whole.0 > width + 1.0 || whole.1 > height + 1.0)
    });
    // One path per color, since an element for each of a thousand boxes would be slow.
    let boxes = move || {
        let (layout, view, scale) = (shown.layout.read(), shown.view.read(), shown.scale.read());
        let mut paths: BTreeMap<&'static str, String> = BTreeMap::new();
        let small = self::scale(layout.width, layout.height);
        // Boxes are at least two pixels of the page wide and high.
        let (width, height) = (MEASURES.width.max(2.0 / small), MEASURES.height.max(2.0 / small));
        for (vertex, (x, y)) in view.vertices.iter().zip(&layout.places) {
            let path = paths.entry(scale.tone(vertex)).or_default();
            path.push_str(&format!("M{x} {y}h{width:.0}v{height:.0}h-{width:.0}z"));
        }
        paths
            .into_iter()
            .map(|(tone, d)| view! { <path class="part" data-state=tone d=d></path> })
            .collect_view()
    };
    let go = move |event: &PointerEvent| {
        let Some(element) =
            event.current_target().and_then(|t| t.dyn_into::<web_sys::Element>().ok())
        else {
            return;
        };
        let Some(room) = shown.room.get_untracked() else { return };
        let (frame, (width, height), zoom) =
            (element.get_bounding_client_rect(), whole.get_untracked(), shown.zoom.get_untracked());
        let x = (f64::from(event.client_x()) - frame.left()) / frame.width() * width;
        let y = (f64::from(event.client_y()) - frame.top()) / frame.height() * height;
        room.set_scroll_left((x * zoom - f64::from(room.client_width()) / 2.0) as i32);
        room.set_scroll_top((y * zoom - f64::from(room.client_height()) / 2.0) as i32);
    };
    let map = move || {
        let (width, height) = whole.get();
        let small = scale(width, height);
        let part = move || {
            let (x, y, w, h) = seen.get();
            let (x, y) = (x.max(0.0), y.max(0.0));
            view! {
                <rect
                    class="viewport"
                    x=x.to_string()
                    y=y.to_string()
                    width=w.min(width - x).max(1.0).to_string()
                    height=h.min(height - y).max(1.0).to_string()
                ></rect>
            }
        };
        view! {
            <svg
                class="minimap"
                aria-hidden="true"
                width=(width * small).round().max(8.0).to_string()
                height=(height * small).round().max(8.0).to_string()
                viewBox=format!("0 0 {width} {height}")
                preserveAspectRatio="none"
                on:pointerdown=move |event| {
                    event.prevent_default();
                    if let Some(element) = event
                        .current_target()
                        .and_then(|t| t.dyn_into::<web_sys::Element>().ok()) {
                        let _ = element.set_pointer_capture(event.pointer_id());
                    }
                    go(&event);
                }
                on:pointermove=move |event| {
                    if event.buttons() & 1 == 1 {
                        go(&event);
                    }
                }
            >
                {move || boxes()}
                {move || part()}
            </svg>
        }
    };
    move || is_larger.get().then(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimap_fits_its_maximum_size() {
        for (width, height) in [(10_000.0, 400.0), (300.0, 90_000.0), (184.0, 120.0), (0.0, 0.0)] {
            let small = scale(width, height);
            assert!(width * small <= MAX_SIZE.0 + 1e-9 && height * small <= MAX_SIZE.1 + 1e-9);
        }
    }
}
