//! # The console
//!
//! Pages and components, built twice: into the server, which renders them, and into the browser's module, which takes over what was
//! rendered. What pages read and what they command goes through server functions ([`calls`]) that each call one method of the trait
//! `console::Console`; the server implements it. So nothing here decides who may do what.
//!
//! * [`pages`]: one module for each page.
//! * [`frame`]: what is around them.
//! * [`parts`]: what they are made of.
//! * [`graph`]: pictures of what waits for what.
//! * [`live`]: how they learn what happens.
//!
//! Rules of the house: a page is readable without scripts and its state is in its address; live data changes what is shown and never
//! what somebody holds (a lifted chip, a text half typed); no inline styles or scripts, since the server's content policy allows none;
//! a state is shape, colour and word.

// The macros of leptos make deep types.
#![recursion_limit = "512"]

#[cfg(not(erase_components))]
compile_error!("compile with `--cfg erase_components`, as .cargo/config.toml does: is RUSTFLAGS set?");

#[cfg(feature = "ssr")]
pub mod accounts;
pub mod calls;
pub mod check;
pub mod clock;
#[cfg(feature = "ssr")]
pub mod console;
pub mod failure;
pub mod finding;
pub mod frame;
pub mod graph;
pub mod live;
#[cfg(feature = "ssr")]
pub mod oversight;
pub mod pages;
pub mod parts;
pub mod places;
pub mod reader;
#[cfg(feature = "ssr")]
mod respond;
mod wire;

use leptos::prelude::*;
use leptos_meta::{MetaTags, Title, provide_meta_context};
use leptos_router::SsrMode;
use leptos_router::components::{ParentRoute, Route, Router, Routes};
use leptos_router::path;

/// The document around the pages. On the server only.
pub fn shell(options: LeptosOptions) -> impl IntoView {
    view! {
        <!DOCTYPE html>
        <html lang="en" data-theme=frame::theme::of_request()>
            <head>
                <meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1"/>
                <meta name="color-scheme" content="light dark"/>
                <link rel="icon" href="/favicon.svg" type="image/svg+xml"/>
                <link rel="preload" href="/fonts/inter-latin-wght-normal.woff2" r#as="font" r#type="font/woff2" crossorigin="anonymous"/>
                <link rel="stylesheet" href="/pkg/gantry.css"/>
                <HydrationScripts options/>
                <MetaTags/>
            </head>
            <body>
                <App/>
            </body>
        </html>
    }
    .into_any()
}

/// The console: every page and what is around it.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    provide_context(clock::Clock::start());
    provide_context(live::Live::start());
    // The browser's module has taken over: tests wait for it, and styles may show what only works with it.
    Effect::new(|_| {
        request_animation_frame(|| {
            if let Some(root) = document().document_element() {
                let _ = root.set_attribute("data-hydrated", "");
            }
        });
    });
    view! {
        <Title formatter=|title: String| if title.is_empty() { "Gantry".into() } else { format!("{title} · Gantry") }/>
        <Router>
            <Routes fallback=pages::not_found::NotFound>
                <Route path=path!("/sign-in") view=pages::sign_in::SignIn ssr=SsrMode::Async/>
                <ParentRoute path=path!("") view=frame::Frame ssr=SsrMode::Async>
                    <Route path=path!("/") view=pages::overview::OverviewPage ssr=SsrMode::Async/>
                    <Route path=path!("/workers") view=pages::workers::Workers ssr=SsrMode::Async/>
                    <Route path=path!("/workers/:id") view=pages::workers::WorkerPage ssr=SsrMode::Async/>
                    <Route path=path!("/audit") view=pages::audit::Audit ssr=SsrMode::Async/>
                    <Route path=path!("/search") view=pages::search::Search ssr=SsrMode::Async/>
                    <Route path=path!("/deployments") view=pages::deployments::Deployments ssr=SsrMode::Async/>
                    <Route path=path!("/deployments/:name") view=pages::board::BoardPage ssr=SsrMode::Async/>
                    <Route path=path!("/graph") view=pages::graph::Graphs ssr=SsrMode::Async/>
                    <Route path=path!("/graph/:name") view=pages::graph::GraphPage ssr=SsrMode::Async/>
                    <Route path=path!("/noderoles/:id") view=pages::noderole::NoderolePage ssr=SsrMode::Async/>
                    <Route path=path!("/noderoles/:id/data") view=pages::values::NoderoleValues ssr=SsrMode::Async/>
                    <Route path=path!("/runs/:id/data") view=pages::values::RunValues ssr=SsrMode::Async/>
                    <Route path=path!("/reviews") view=pages::reviews::Reviews ssr=SsrMode::Async/>
                    <Route path=path!("/reviews/:id") view=pages::review::ReviewPage ssr=SsrMode::Async/>
                    <Route path=path!("/runs") view=pages::runs::Runs ssr=SsrMode::Async/>
                    <Route path=path!("/runs/:id") view=pages::run::RunPage ssr=SsrMode::Async/>
                    <Route path=path!("/waiting") view=pages::waiting::Waiting ssr=SsrMode::Async/>
                    <Route path=path!("/blueprints") view=pages::blueprints::Blueprints ssr=SsrMode::Async/>
                    <Route path=path!("/catalog") view=pages::catalog::Catalog ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/roles") view=pages::roles::Roles ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/roles/:name") view=pages::role::RolePage ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/graph") view=pages::role_graph::RoleGraphPage ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/imports") view=pages::imports::Imports ssr=SsrMode::Async/>
                    <Route path=path!("/proposals/:id") view=pages::node_proposal::NodeProposalPage ssr=SsrMode::Async/>
                    <Route path=path!("/nodes") view=pages::nodes::Nodes ssr=SsrMode::Async/>
                    <Route path=path!("/nodes/:name") view=pages::node::NodePage ssr=SsrMode::Async/>
                    <Route path=path!("/settings") view=pages::settings::account::Account ssr=SsrMode::Async/>
                    <Route path=path!("/settings/account") view=pages::settings::account::Account ssr=SsrMode::Async/>
                    <Route path=path!("/settings/people") view=pages::settings::people::People ssr=SsrMode::Async/>
                    <Route path=path!("/settings/people/:id") view=pages::settings::person::PersonPage ssr=SsrMode::Async/>
                    <Route path=path!("/settings/policy") view=pages::settings::policy::PolicyPage ssr=SsrMode::Async/>
                    <Route path=path!("/settings/services") view=pages::settings::people::Services ssr=SsrMode::Async/>
                </ParentRoute>
            </Routes>
        </Router>
    }
    .into_any()
}
