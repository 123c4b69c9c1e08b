//! The entry point of the browser's module: hydrates the server-rendered pages of `app`.
//!
//! A page is hydrated once its chunk is loaded (`app::pages::part`), possibly long after the start.
//! Until then the router already listens but cannot render a page. So its click handler is blocked,
//! and the browser handles links and forms.

use leptos::mount::hydrate_from_async;
use leptos::prelude::{document, window};
use leptos::tachys::dom::body;
use leptos::web_sys::Event;
use wasm_bindgen::JsCast as _;
use wasm_bindgen::closure::Closure;
use wasm_bindgen_futures::spawn_local;

/// Set on the document's root once the page is interactive, for CSS and for end-to-end tests.
const HYDRATED_ATTRIBUTE: &str = "data-hydrated";

/// Called by the page's loader once the module is loaded.
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    block_clicks_until_hydrated();
    mark_start();
    spawn_local(async {
        hydrate_from_async(body(), app::App).await.forget();
        // Fails only in a document without a root.
        if let Some(root) = document().document_element() {
            let _ = root.set_attribute(HYDRATED_ATTRIBUTE, "");
        }
    });
}

/// Hides clicks from all listeners until the page is hydrated. The browser's default action still
/// happens.
fn block_clicks_until_hydrated() {
    let listener = Closure::<dyn Fn(Event)>::new(|click: Event| {
        if document().document_element().is_some_and(|root| !root.has_attribute(HYDRATED_ATTRIBUTE))
        {
            click.stop_propagation();
        }
    });
    // In the capture phase, before any listener of the bubbling phase.
    let _ = window().add_event_listener_with_callback_and_bool(
        "click",
        listener.as_ref().unchecked_ref(),
        true,
    );
    listener.forget();
}

/// Adds a mark to the User Timing API, as the planner does. From here on, the page waits for its
/// chunk.
fn mark_start() {
    if let Some(timeline) = window().performance() {
        let _ = timeline.mark("gantry: started");
    }
}
