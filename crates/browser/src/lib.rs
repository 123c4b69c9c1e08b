//! Hydrates the pages that the server rendered: the whole of Gantry's WebAssembly is `app`, started here.

use leptos::prelude::document;

/// Called by the page's loader once the module is there.
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    leptos::mount::hydrate_body(app::App);
    // Says that the page answers from now on, to styles and to whoever drives it. It can fail only in a document
    // without a root, and then there is nothing to tell it to.
    if let Some(root) = document().document_element() {
        let _ = root.set_attribute("data-hydrated", "");
    }
}
