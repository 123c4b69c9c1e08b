//! The page for unknown addresses.

use api::Problem;
use leptos::prelude::*;

use crate::components::problem_page;

#[component]
pub fn NotFound() -> impl IntoView {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    let problem = Problem::not_found("This page does not exist. Check the address.");
    view! { <main class="page standalone">{problem_page(problem)}</main> }.into_any()
}
