//! A form that asks for a page: what is chosen in it becomes the page's address.
//!
//! Without scripts the browser sends it, every field with its name, the empty ones too. With them the address has only what was asked for,
//! so that two ways to the same list have one address, and no page is loaded anew.

use leptos::ev::SubmitEvent;
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::use_navigate;
use wasm_bindgen::JsCast as _;
use web_sys::{FormData, HtmlFormElement, UrlSearchParams};

/// A form that asks for the page at `place`.
#[component]
pub fn Ask(
    /// Where.
    #[prop(into)]
    place: String,
    /// How it is laid out.
    #[prop(default = "filters")]
    class: &'static str,
    /// What it is for those who hear the page: `form` where it looks for nothing.
    #[prop(default = "search")]
    role: &'static str,
    children: Children,
) -> impl IntoView {
    let navigate = use_navigate();
    let to = place.clone();
    let ask = move |event: SubmitEvent| {
        let Some(wanted) = filled_in(&event) else { return };
        event.prevent_default();
        navigate(&address(&to, &wanted), NavigateOptions::default());
    };
    view! { <form method="get" action=place class=class role=role on:submit=ask>{children()}</form> }.into_any()
}

/// The form's fields as a query.
fn filled_in(event: &SubmitEvent) -> Option<String> {
    let form = event.target()?.dyn_into::<HtmlFormElement>().ok()?;
    let fields = FormData::new_with_form(&form).ok()?;
    let query = UrlSearchParams::new_with_str_sequence_sequence(&fields).ok()?;
    Some(query.to_string().into())
}

fn address(place: &str, query: &str) -> String {
    let says_something =
        |pair: &&str| pair.split_once('=').is_some_and(|(_, value)| !value.is_empty());
    let said = query.split('&').filter(says_something).collect::<Vec<_>>().join("&");
    if said.is_empty() { place.to_owned() } else { format!("{place}?{said}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_what_was_asked_for_and_nothing_else() {
        assert_eq!(address("/nodes", "filter=&state=dead&sort=&="), "/nodes?state=dead");
        assert_eq!(
            address("/nodes", "filter=a%26b&columns=x&columns=y"),
            "/nodes?filter=a%26b&columns=x&columns=y"
        );
        assert_eq!(address("/nodes", "filter="), "/nodes");
    }
}
