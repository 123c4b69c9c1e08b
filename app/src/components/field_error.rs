//! Validation errors next to their field.

use leptos::prelude::*;

use super::icon::{Icon, icon};

/// A line below a field, empty while there is no error. Screen readers announce it.
#[component]
pub fn Fault(
    /// The id for the field's `aria-describedby`.
    #[prop(into)]
    id: String,
    #[prop(into)] of: Signal<Option<String>>,
) -> impl IntoView {
    let text = move |fault: String| view! { <p class="fault">{icon(Icon::Error)} <span>{fault}</span></p> };
    view! { <div id=id aria-live="polite">{move || of.get().map(text)}</div> }.into_any()
}
