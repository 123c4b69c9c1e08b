//! What is wrong with what is typed in a field, where it is.

use leptos::prelude::*;

use super::icon::{Icon, icon};

/// A line below a field; nothing while it says nothing. Whoever hears the page hears of it.
#[component]
pub fn Fault(
    /// By which the field names it (`aria-describedby`).
    #[prop(into)]
    id: String,
    /// What is wrong.
    #[prop(into)]
    of: Signal<Option<String>>,
) -> impl IntoView {
    let said = move |fault: String| view! { <p class="fault">{icon(Icon::Error)} <span>{fault}</span></p> };
    view! { <div id=id aria-live="polite">{move || of.get().map(said)}</div> }.into_any()
}
