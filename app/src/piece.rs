//! The chunks of sections of a page that are shown only on request, such as a board's panel or a
//! review's graph. See [`part`](crate::part) for the chunks of pages.
//!
//! To add a piece, add a line to a [`pieces`] in the module of its page.

#[cfg(feature = "ssr")]
use leptos::context::use_context;
use leptos::prelude::*;
#[cfg(feature = "ssr")]
use leptos_meta::Link;

use crate::components::{ProblemNotice, Retry};

/// `NAME(ARGUMENTS) VIEW` defines a function `NAME::shown`, which loads the piece and builds the
/// view, and `NAME::load`, which preloads it.
macro_rules! pieces {
    ($($name:ident($($argument:ident: $kind:ty),*) $view:expr;)+) => {$(
        pub(crate) mod $name {
            use ::leptos::wasm_split::{SplitLoaderError, wasm_split};

            use super::*;

            #[wasm_split($name, fallible, wasm_split_path = ::leptos::wasm_split, preload(load))]
            pub(crate) fn piece($($argument: $kind),*) -> Result<AnyView, SplitLoaderError> {
                Ok($view.into_any())
            }

            pub(crate) async fn shown($($argument: $kind),*) -> AnyView {
                #[cfg(feature = "ssr")]
                $crate::piece::preload_in_head(stringify!($name));
                piece($($argument),*).await.unwrap_or_else(|_| $crate::piece::load_error())
            }
        }
    )+};
}
pub(super) use pieces;

/// The message instead of a piece that cannot be loaded.
pub(super) fn load_error() -> AnyView {
    let problem = api::Problem::unavailable(
        "This part of the page could not be loaded: the connection was lost, or Gantry was \
         upgraded. Reload the page.",
    );
    // Nothing to retry: the button reloads the page.
    view! { <ProblemNotice problem=Some(problem) retry=Retry::new()/> }.into_any()
}

/// Adds the preload links of a chunk to the page's head. The mechanism of leptos does not work
/// here: another thread provides it while the page is already being built, so every second page
/// would miss it. A module in one file has no chunks.
#[cfg(feature = "ssr")]
pub(super) fn preload_in_head(part: &str) {
    let Some(split) = use_context::<leptos::WasmSplitManifest>() else { return };
    let (folder, parts, loader) = split.0.get_value();
    let Some(files) = parts.get(part) else { return };
    for file in files {
        let href = format!("{folder}/{file}.wasm");
        // A tag for the head registers itself and renders nothing in place.
        _ = view! {
            <Link rel="preload" href as_="fetch" type_="application/wasm" crossorigin="anonymous"/>
        }
        .to_html();
    }
    _ = view! {
        <Link rel="modulepreload" href=format!("{folder}/{loader}") crossorigin="anonymous"/>
    }
    .to_html();
}
