//! A GET form whose fields become the query of a page's address.
//!
//! Without JavaScript, the browser sends all fields, including empty ones. With JavaScript, the
//! address contains only fields with a value. So each list has one address, and the page is not
//! reloaded.

use leptos::ev::SubmitEvent;
use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::use_navigate;
use wasm_bindgen::JsCast as _;
use web_sys::{FormData, HtmlFormElement, UrlSearchParams};

/// A GET form for the page at `place`.
#[component]
pub fn QueryForm(
    #[prop(into)] place: String,
    /// The CSS class, which determines the layout.
    #[prop(default = "filters")]
    class: &'static str,
    /// The ARIA role. Use `form` if the form does not search.
    #[prop(default = "search")]
    role: &'static str,
    children: Children,
) -> impl IntoView {
    let navigate = use_navigate();
    let to = place.clone();
    let ask = move |event: SubmitEvent| {
        let Some(query) = form_query(&event) else { return };
        event.prevent_default();
        navigate(&address(&to, &query), NavigateOptions::default());
    };
    view! {
        <form method="get" action=place class=class role=role on:submit=ask>{children()}</form>
    }
    .into_any()
}

/// Encodes the form's fields as a query.
fn form_query(event: &SubmitEvent) -> Option<String> {
    let form = event.target()?.dyn_into::<HtmlFormElement>().ok()?;
    let fields = FormData::new_with_form(&form).ok()?;
    let query = UrlSearchParams::new_with_str_sequence_sequence(&fields).ok()?;
    Some(query.to_string().into())
}

fn address(place: &str, query: &str) -> String {
    let has_text = |pair: &&str| pair.split_once('=').is_some_and(|(_, value)| !value.is_empty());
    let text = query.split('&').filter(has_text).collect::<Vec<_>>().join("&");
    if text.is_empty() { place.to_owned() } else { format!("{place}?{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_only_filled_in_fields() {
        assert_eq!(address("/nodes", "filter=&state=dead&sort=&="), "/nodes?state=dead");
        assert_eq!(
            address("/nodes", "filter=a%26b&columns=x&columns=y"),
            "/nodes?filter=a%26b&columns=x&columns=y"
        );
        assert_eq!(address("/nodes", "filter="), "/nodes");
    }
}
