//! app
use leptos::prelude::*;
/// The console.
#[component]
pub fn App() -> impl IntoView { view! { <p>"gantry"</p> } }
