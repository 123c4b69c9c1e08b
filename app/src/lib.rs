//! The console: pages and components, compiled twice. The server renders them, and the browser's
//! module hydrates them. Pages read and write through server functions, which call the use cases of
//! the crate `control` as the actor of the request (`request`). The use cases authorize, so this
//! crate decides nothing about permissions.
//!
//! * [`pages`]: one module for each page, with its server functions. Each page is a separate
//!   WebAssembly chunk that loads on the first visit ([`part`]).
//! * [`frame`]: the navigation and header around the pages.
//! * [`components`]: shared components.
//! * [`graph`]: pictures of dependencies.
//! * [`live`]: live updates.
//!
//! Rules:
//!
//! * A server function is a public endpoint. Commands whose arguments fit a form accept a form, so
//!   that they work without JavaScript. The others accept JSON.
//! * A page is readable without JavaScript, and its state is in its address.
//! * Live data updates the display. It never changes user input, such as dragged nodes or a
//!   half-typed text.
//! * No inline styles or scripts: the server's content security policy forbids them.
//! * A state is shown by shape, color and word.

// The macros of leptos produce deeply nested types.
#![recursion_limit = "512"]

#[cfg(not(erase_components))]
compile_error!(
    "the flag `--cfg erase_components` is missing. Unset RUSTFLAGS, so that .cargo/config.toml \
     applies."
);

pub mod addresses;
pub mod clock;
mod codec;
pub mod components;
pub mod failure;
#[cfg(feature = "ssr")]
mod fields;
pub mod frame;
pub mod graph;
pub mod live;
pub mod pages;
mod part;
pub mod passkey;
pub mod permissions;
mod piece;
#[cfg(feature = "ssr")]
pub mod request;
#[cfg(feature = "ssr")]
mod respond;
pub mod search_results;
#[cfg(feature = "ssr")]
pub mod session_cookie;
#[cfg(all(test, feature = "ssr"))]
mod tests;
pub mod validation;

use leptos::prelude::*;
use leptos_meta::{MetaTags, Title, provide_meta_context};
use leptos_router::components::{ParentRoute, Route, Router, Routes};
use leptos_router::{SsrMode, path};

/// The HTML document around the pages, on the server only.
pub fn shell(options: LeptosOptions) -> impl IntoView {
    view! {
        <!DOCTYPE html>
        <html lang="en" data-theme=frame::theme::from_request()>
            <head>
                <meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1"/>
                <meta name="color-scheme" content="light dark"/>
                <link rel="icon" href="/favicon.svg" type="image/svg+xml"/>
                <link
                    rel="preload"
                    href="/fonts/inter-latin-wght-normal.woff2" r#as="font" r#type="font/woff2"
                    crossorigin="anonymous"
                />
                <link rel="stylesheet" href=format!("/{}/gantry.css", options.site_pkg_dir)/>
                <HydrationScripts options/>
                {pages::sign_in::script()}
                <MetaTags/>
            </head>
            <body>
                <App/>
            </body>
        </html>
    }
    .into_any()
}

/// The root component.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    provide_context(clock::Clock::start());
    provide_context(live::Live::start());
    provide_context(components::retry::Reconnects::start());
    provide_context(components::progress::Progress::start());
    view! {
        <Title
            formatter=|title: String| if title.is_empty() { "Gantry".into() } else {
                format!("{title} · Gantry")
            }
        />
        <Router>
            <Routes fallback=pages::not_found::NotFound>
                <Route path=path!("/sign-in") view=part::sign_in() ssr=SsrMode::Async/>
                <Route path=path!("/second-factor") view=part::second_factor() ssr=SsrMode::Async/>
                <ParentRoute path=path!("") view=frame::Frame ssr=SsrMode::Async>
                    <Route path=path!("/") view=part::overview() ssr=SsrMode::Async/>
                    <Route path=path!("/workers") view=part::workers() ssr=SsrMode::Async/>
                    <Route path=path!("/workers/:id") view=part::worker() ssr=SsrMode::Async/>
                    <Route path=path!("/audit") view=part::audit() ssr=SsrMode::Async/>
                    <Route path=path!("/search") view=part::search() ssr=SsrMode::Async/>
                    <Route path=path!("/deployments") view=part::deployments() ssr=SsrMode::Async/>
                    <Route path=path!("/deployments/:name") view=part::board() ssr=SsrMode::Async/>
                    <Route path=path!("/graph") view=part::cluster_graph() ssr=SsrMode::Async/>
                    <Route path=path!("/graphs") view=part::graphs() ssr=SsrMode::Async/>
                    <Route path=path!("/graph/:name") view=part::graph() ssr=SsrMode::Async/>
                    <Route path=path!("/noderoles/:id") view=part::noderole() ssr=SsrMode::Async/>
                    <Route
                        path=path!("/noderoles/:id/data")
                        view=part::noderole_values()
                        ssr=SsrMode::Async
                    />
                    <Route path=path!("/runs/:id/data") view=part::run_values() ssr=SsrMode::Async/>
                    <Route path=path!("/reviews") view=part::reviews() ssr=SsrMode::Async/>
                    <Route path=path!("/reviews/:id") view=part::review() ssr=SsrMode::Async/>
                    <Route path=path!("/runs") view=part::runs() ssr=SsrMode::Async/>
                    <Route path=path!("/runs/:id") view=part::run() ssr=SsrMode::Async/>
                    <Route path=path!("/pending") view=part::pending() ssr=SsrMode::Async/>
                    <Route path=path!("/blueprints") view=part::blueprints() ssr=SsrMode::Async/>
                    <Route
                        path=path!("/blueprints/:number")
                        view=part::blueprint()
                        ssr=SsrMode::Async
                    />
                    <Route path=path!("/catalog") view=part::catalog() ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/roles") view=part::roles() ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/roles/:name") view=part::role() ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/graph") view=part::role_graph() ssr=SsrMode::Async/>
                    <Route path=path!("/catalog/imports") view=part::imports() ssr=SsrMode::Async/>
                    <Route
                        path=path!("/proposals/:id")
                        view=part::node_proposal()
                        ssr=SsrMode::Async
                    />
                    <Route path=path!("/nodes") view=part::nodes() ssr=SsrMode::Async/>
                    <Route path=path!("/nodes/:name") view=part::node() ssr=SsrMode::Async/>
                    <Route
                        path=path!("/nodes/:name/health-checks")
                        view=part::node_health_checks()
                        ssr=SsrMode::Async
                    />
                    <Route
                        path=path!("/nodes/:name/noderoles")
                        view=part::node_noderoles()
                        ssr=SsrMode::Async
                    />
                    <Route
                        path=path!("/nodes/:name/results")
                        view=part::node_results()
                        ssr=SsrMode::Async
                    />
                    <Route path=path!("/settings") view=part::account() ssr=SsrMode::Async/>
                    <Route path=path!("/settings/account") view=part::account() ssr=SsrMode::Async/>
                    <Route path=path!("/settings/people") view=part::people() ssr=SsrMode::Async/>
                    <Route
                        path=path!("/settings/people/:id")
                        view=part::person()
                        ssr=SsrMode::Async
                    />
                    <Route path=path!("/settings/policy") view=part::policy() ssr=SsrMode::Async/>
                    <Route
                        path=path!("/settings/services")
                        view=part::services()
                        ssr=SsrMode::Async
                    />
                </ParentRoute>
            </Routes>
        </Router>
    }
    .into_any()
}
