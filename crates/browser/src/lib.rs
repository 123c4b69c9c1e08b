//! Hydrates the pages that the server rendered: the whole of Gantry's WebAssembly is `app`, started here.

/// Called by the page's loader once the module is there.
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    leptos::mount::hydrate_body(app::App);
}
