//! The color theme: light, dark or the system's.
//!
//! The choice is a cookie, so that the server renders the page with the right theme and nothing
//! flashes.

use leptos::prelude::*;
use wasm_bindgen::JsCast;

use crate::components::{Icon, icon};

pub const COOKIE: &str = "gantry_theme";
const YEAR: u32 = 31_536_000;

/// The choice in the request's cookie. `None`: the system's theme.
pub fn from_request() -> Option<&'static str> {
    #[cfg(feature = "ssr")]
    return known(crate::respond::cookie(COOKIE).as_deref());
    #[cfg(not(feature = "ssr"))]
    None
}

fn known(word: Option<&str>) -> Option<&'static str> {
    ["light", "dark"].into_iter().find(|known| Some(*known) == word)
}

/// The choice that the document shows now.
fn from_page() -> Option<&'static str> {
    #[cfg(feature = "ssr")]
    return from_request();
    #[cfg(not(feature = "ssr"))]
    known(
        document().document_element().and_then(|root| root.get_attribute("data-theme")).as_deref(),
    )
}

/// The current choice, shared by all components that show it.
#[derive(Clone, Copy)]
struct CurrentTheme(RwSignal<Option<&'static str>>);

pub(super) fn provide_current() {
    provide_context(CurrentTheme(RwSignal::new(from_page())));
}

/// The current choice. Call it while a view is built, because it reads the context.
pub(super) fn chosen() -> RwSignal<Option<&'static str>> {
    use_context::<CurrentTheme>()
        .map_or_else(|| RwSignal::new(from_page()), |CurrentTheme(chosen)| chosen)
}

/// Stores a choice and applies it.
pub(super) fn choose(chosen: RwSignal<Option<&'static str>>, theme: Option<&'static str>) {
    chosen.set(theme);
    if let Some(root) = document().document_element() {
        let _ = match theme {
            Some(theme) => root.set_attribute("data-theme", theme),
            None => root.remove_attribute("data-theme"),
        };
    }
    let (value, age) = theme.map_or(("", 0), |theme| (theme, YEAR));
    let document: web_sys::HtmlDocument = document().unchecked_into();
    let _ = document.set_cookie(&format!("{COOKIE}={value}; path=/; max-age={age}; samesite=lax"));
}

/// The control for the three choices.
#[component]
pub fn ThemeChoice() -> impl IntoView {
    let chosen = chosen();
    let all = [
        (None, Icon::System, "System"),
        (Some("light"), Icon::Light, "Light"),
        (Some("dark"), Icon::Dark, "Dark"),
    ];
    let buttons = all.into_iter().map(|(theme, shape, word)| {
        view! {
            <button
                type="button"
                aria-pressed=move || if chosen.get() == theme { "true" } else { "false" }
                on:click=move |_| choose(chosen, theme)
            >
                {icon(shape)}
                {word}
            </button>
        }
    });
    view! {
        <div class="segmented needs-scripts" role="group" aria-label="Theme">
            {buttons.collect_view()}
        </div>
    }
    .into_any()
}
