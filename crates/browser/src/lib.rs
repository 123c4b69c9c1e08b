//! Hydrates the pages that the server rendered: the whole of Gantry's WebAssembly is `app`, started here.
//!
//! A page is taken over when its part of the module is there (`app::pages::part`), which may be later than this starts. Until then the
//! router listens already, and has nothing yet that it could show: so clicks are kept from it, and links and forms are the browser's own.

use leptos::mount::hydrate_from_async;
use leptos::prelude::{document, window};
use leptos::tachys::dom::body;
use leptos::web_sys::Event;
use wasm_bindgen::JsCast as _;
use wasm_bindgen::closure::Closure;
use wasm_bindgen_futures::spawn_local;

/// On the document's root from when the page answers, for styles and for whoever drives it.
const TAKEN_OVER: &str = "data-hydrated";

/// Called by the page's loader once the module is there.
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    leave_clicks_to_the_browser();
    note_start();
    spawn_local(async {
        hydrate_from_async(body(), app::App).await.forget();
        // It can fail only in a document without a root, and then there is nothing to tell it to.
        if let Some(root) = document().document_element() {
            let _ = root.set_attribute(TAKEN_OVER, "");
        }
    });
}

/// Until the page is taken over, nobody but the browser learns of a click. What the browser does of itself isn't prevented by that.
fn leave_clicks_to_the_browser() {
    let keep = Closure::<dyn Fn(Event)>::new(|click: Event| {
        if document().document_element().is_some_and(|root| !root.has_attribute(TAKEN_OVER)) {
            click.stop_propagation();
        }
    });
    // On its way down, before anybody who listens as it comes up.
    let _ = window().add_event_listener_with_callback_and_bool(
        "click",
        keep.as_ref().unchecked_ref(),
        true,
    );
    keep.forget();
}

/// In the page's timeline, as the planner's work is: from here on it is the page's part that is waited for.
fn note_start() {
    if let Some(timeline) = window().performance() {
        let _ = timeline.mark("gantry: started");
    }
}
