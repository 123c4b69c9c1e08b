//! Light or dark: as the system says, or as the reader chose.
//!
//! The choice is a cookie, so that the server renders the page in it and nothing flashes.

use leptos::prelude::*;
use wasm_bindgen::JsCast;

use crate::parts::{Icon, icon};

/// The cookie with the reader's choice.
pub const COOKIE: &str = "gantry_theme";
const YEAR: u32 = 31_536_000;

/// The choice that the request carries; None: as the system says.
pub fn of_request() -> Option<&'static str> {
    #[cfg(feature = "ssr")]
    return known(crate::respond::cookie(COOKIE).as_deref());
    #[cfg(not(feature = "ssr"))]
    None
}

fn known(word: Option<&str>) -> Option<&'static str> {
    ["light", "dark"].into_iter().find(|known| Some(*known) == word)
}

/// The choice that the page shows now.
fn of_page() -> Option<&'static str> {
    #[cfg(feature = "ssr")]
    return of_request();
    #[cfg(not(feature = "ssr"))]
    known(
        document().document_element().and_then(|root| root.get_attribute("data-theme")).as_deref(),
    )
}

/// What is chosen now, for all that show it.
#[derive(Clone, Copy)]
struct Chosen(RwSignal<Option<&'static str>>);

/// Lets everything below show the same choice.
pub(super) fn provide_chosen() {
    provide_context(Chosen(RwSignal::new(of_page())));
}

/// The choice that is shown, to be taken where a view is made.
pub(super) fn chosen() -> RwSignal<Option<&'static str>> {
    use_context::<Chosen>().map_or_else(|| RwSignal::new(of_page()), |Chosen(chosen)| chosen)
}

/// Chooses, and shows it.
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

/// Chooses between the three.
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
    view! { <div class="segmented needs-scripts" role="group" aria-label="Colours">{buttons.collect_view()}</div> }
        .into_any()
}
