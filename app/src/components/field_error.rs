//! Validation errors next to their field.

use leptos::prelude::*;

use super::icon::{Icon, icon};

/// A line below a field, empty while there is no error. Screen readers announce it.
#[component]
pub fn FieldError(
    /// The id for the field's `aria-describedby`.
    #[prop(into)]
    id: String,
    #[prop(into)] of: Signal<Option<String>>,
) -> impl IntoView {
    let text = move |error: String| {
        view! {
            <p class="error-text">{icon(Icon::Error)} <span>{error}</span></p>
        }
    };
    view! { <div id=id aria-live="polite">{move || of.get().map(text)}</div> }.into_any()
}
