//! The chunks of the browser's module: one for each page.
//!
//! A first visit loads the main file and the chunk of its own page. A navigation loads the next
//! page's chunk. `cargo xtask site` splits the module at these functions (`wasm_split`). Code of a
//! single page goes into its chunk, and code of several pages into shared files. All other code
//! stays in the main file. On the server, a chunk is a plain function call.
//!
//! * **Preloading**: the server lists the chunk's files in the page's head, so that they load in
//!   parallel with the main file.
//! * **Versions**: a chunk fits only the main file of the same build. All files of a build are in a
//!   folder that is named by a hash of their content. If Gantry was upgraded while the page was
//!   open, the folder is gone and the chunk fails to load. Then the browser navigates to the
//!   address itself and gets the new build. If the server is unreachable, the console remains and
//!   shows this.
//! * **Hydration**: if the page's own chunk fails to load during hydration, the page reloads once.
//!   After a second failure it remains as rendered by the server. Its links and forms work without
//!   the module.
//! * **Pieces**: content that is shown only on request is a separate chunk
//!   ([`piece`](crate::piece)). If the address already requests it, it loads before hydration: the
//!   server's rendering is hydrated at once or not at all.
//!
//! To add a page, add a line to [`parts`] below and `view=part::NAME()` to its route.

use std::future::Future;

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::{SplitLoaderError, wasm_split};
use leptos_router::hooks::use_url;
use leptos_router::location::Url;
use leptos_router::{Lazy, LazyRoute};

use crate::components::progress::{Load, use_progress};
use crate::components::{Retry, problem_page};
use crate::failure::{Failure, UNREACHABLE};
use crate::frame::server_functions;
#[cfg(feature = "ssr")]
use crate::piece::preload_in_head;

/// `NAME: PAGE` defines a function `NAME` for the route of `PAGE`, a component below
/// [`crate::pages`]. `NAME` is also the name of the chunk. `with PIECE if DETECTOR` (repeatable)
/// names a piece that an address may request, and the function that detects this.
macro_rules! parts {
    (
        $($name:ident: $($page:ident)::+ $(with $($piece:ident)::+ if $($detector:ident)::+)*,)+
    ) => {$(
        mod $name {
            use super::*;

            #[wasm_split($name, fallible, wasm_split_path = ::leptos::wasm_split, preload(load))]
            fn page() -> Result<AnyView, SplitLoaderError> {
                Ok($crate::pages::$($page)::+().into_any())
            }

            #[derive(Debug)]
            pub struct Part;

            impl LazyRoute for Part {
                fn data() -> Self {
                    Self
                }

                async fn view(_: Self) -> AnyView {
                    #[cfg(feature = "ssr")]
                    preload_in_head(stringify!($name));
                    match page().await {
                        Ok(page) => page,
                        // `preload` runs first. It returns without the chunk only if the server is
                        // unreachable.
                        Err(_) => away().into_any(),
                    }
                }

                async fn preload() {
                    loaded(load()).await;
                    $(if $crate::pages::$($detector)::+(&use_url().read_untracked()) {
                        loaded($crate::pages::$($piece)::+::load()).await;
                    })*
                    // Only after all pieces are loaded. Otherwise a page with a missing piece would
                    // reload forever.
                    forget_reload();
                }
            }
        }

        pub(crate) fn $name() -> Lazy<$name::Part> {
            Lazy::new()
        }
    )+};
}

parts! {
    account: settings::account::Account,
    audit: audit::Audit,
    blueprint: blueprints::blueprint::BlueprintPage,
    blueprints: blueprints::Blueprints,
    board: deployments::board::BoardPage with deployments::noderole::noderole_panel if deployments::board::has_panel,
    catalog: catalog::Catalog,
    cluster_graph: deployments::graph::ClusterGraphPage,
    deployments: deployments::Deployments,
    graph: deployments::graph::GraphPage,
    graphs: deployments::graph::Graphs,
    imports: catalog::imports::Imports,
    node: nodes::node::NodePage,
    node_health_checks: nodes::node::health_checks::HealthChecksPage,
    node_noderoles: nodes::node::noderoles::NoderolesPage,
    node_proposal: nodes::proposal::NodeProposalPage,
    node_results: nodes::node::results::ResultsPage,
    noderole: deployments::noderole::NoderolePage,
    noderole_values: runs::values::NoderoleValues,
    nodes: nodes::Nodes,
    overview: overview::OverviewPage,
    people: settings::people::People,
    person: settings::person::PersonPage,
    policy: settings::policy::PolicyPage,
    review: reviews::review::ReviewPage with reviews::review::review_details if reviews::review::has_details_tab with reviews::review::review_discussion if reviews::review::has_discussion_tab with reviews::review::review_graph if reviews::review::has_graph_tab,
    reviews: reviews::Reviews,
    role: catalog::role::RolePage,
    role_graph: catalog::role_graph::RoleGraphPage,
    roles: catalog::roles::Roles,
    run: runs::run::RunPage,
    run_values: runs::values::RunValues,
    runs: runs::Runs,
    search: search::Search,
    second_factor: second_factor::SecondFactorPage,
    services: settings::people::Services,
    sign_in: sign_in::SignIn,
    pending: runs::pending::Pending,
    worker: workers::WorkerPage,
    workers: workers::Workers,
}

/// The message instead of a page while its chunk cannot be loaded and the server is unreachable.
/// The page opens when the server responds.
fn away() -> impl IntoView {
    let detail = "This page was not loaded before, and the server does not respond. Go back to \
        return to the previous page.";
    let problem = api::Problem::new(503, UNREACHABLE, "Cannot reach the server", detail);
    let (retry, url) = (Retry::new(), use_url().get_untracked());
    wait_for_server(retry, url, problem.clone());
    provide_context(retry);
    problem_page(problem)
}

fn wait_for_server(retry: Retry, url: Url, problem: api::Problem) {
    let failed = problem.clone();
    let again = move || {
        let (url, problem) = (url.clone(), problem.clone());
        spawn_local(async move {
            match is_unreachable().await {
                true => wait_for_server(retry, url, problem),
                false => go(&url),
            }
        });
    };
    retry.failed(&failed, again);
}

async fn is_unreachable() -> bool {
    let answer = server_functions::frame().await;
    answer.is_err_and(|failure: Failure| failure.0.code == UNREACHABLE)
}

/// Waits for the chunk. If it cannot be loaded, the browser navigates to the requested address, and
/// this future never completes. If the server is unreachable, it returns, so that the console shows
/// this instead of the browser's error page.
async fn loaded(part: impl Future<Output = Result<(), SplitLoaderError>>) {
    let url = use_url();
    // Before hydration, the page is as the server rendered it.
    let loading =
        (cfg!(not(feature = "ssr")) && is_hydrated()).then(|| Load::begin(use_progress()));
    let loaded = part.await;
    drop(loading);
    if loaded.is_err() {
        if is_hydrated() && is_unreachable().await {
            return;
        }
        go(&url.read_untracked());
        std::future::pending().await
    }
}

/// The session storage key of an address that was reloaded. Removed after a successful hydration.
const RELOADED_KEY: &str = "gantry-reloaded";

fn go(url: &Url) {
    let location = window().location();
    let separator = if url.search().is_empty() { "" } else { "?" };
    let address = format!("{}{separator}{}{}", url.path(), url.search(), url.hash());
    let is_current = location.href().is_ok_and(|href| href == format!("{}{address}", url.origin()));
    // If this fails, the browser shows its own error.
    let _ = match is_hydrated() {
        true if is_current => location.reload(),
        true => location.assign(&address),
        false => match remember_reload(&address) {
            true => location.reload(),
            false => Ok(()),
        },
    };
}

fn is_hydrated() -> bool {
    document().document_element().is_some_and(|root| root.has_attribute("data-hydrated"))
}

/// Whether this is the first reload. False without session storage: a page without JavaScript is
/// better than an endless reload.
fn remember_reload(address: &str) -> bool {
    let Ok(Some(memory)) = window().session_storage() else { return false };
    let again = memory.get_item(RELOADED_KEY).is_ok_and(|last| last.as_deref() == Some(address));
    !again && memory.set_item(RELOADED_KEY, address).is_ok()
}

fn forget_reload() {
    #[cfg(target_arch = "wasm32")]
    if let Ok(Some(memory)) = window().session_storage() {
        let _ = memory.remove_item(RELOADED_KEY);
    }
}
