//! app
#[cfg(feature = "ssr")]
pub mod console;
use leptos::prelude::*;
/// The console.
#[component]
pub fn App() -> impl IntoView { view! { <p>"gantry"</p> } }
