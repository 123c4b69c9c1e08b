//! The parts that the browser's module is loaded in: one for each page.
//!
//! # Theory
//!
//! A first visit loads what all pages need and the part of its own page, and going to another page loads that one's. `cargo xtask site`
//! cuts the module along these functions (`wasm_split`): what only one page reaches goes into its part, what several reach into files
//! that these share, and everything else is in the main file. On the server a part is a plain call.
//!
//! *Beforehand.* The server says in the page's head which files its part is made of, so they are fetched beside the main file, not
//! after it.
//!
//! *Of one build.* A part fits the main file that it was cut from and no other. All files of a build lie in a folder named by what they
//! hold; where that is gone (Gantry was replaced while the page was open) the part can't be loaded, and the browser goes to the wanted
//! address by itself, to the new build's page. Where the server is away it stays in the console, which says so. A page whose own part can't be loaded while it is being taken over is loaded again once;
//! after that it stays what the server sent, whose links and forms work without any of this.
//!
//! *Pieces.* What a page shows only to who asks for it (a board's panel, a review's graph) is cut off once more, and loaded when it is
//! asked for. Where the address asks already it is loaded before the page is taken over: what the server drew is taken over at once or
//! never.
//!
//! A page is added by a line in [`parts`] below and `view=part::NAME()` in its route; a piece by a line in a [`pieces`].

use std::future::Future;

use api::console::{GraphView, NoderoleView, ReviewView};
use engine::ids::SubmissionId;
use leptos::prelude::*;
use leptos::wasm_split::{SplitLoaderError, wasm_split};
#[cfg(feature = "ssr")]
use leptos_meta::Link;
use leptos_router::hooks::use_url;
use leptos_router::location::Url;
use leptos_router::{Lazy, LazyRoute};

use crate::calls;
use crate::failure::{Failure, UNREACHABLE};
use crate::graph::address::Address;
use crate::pages::review::{Detail, OfReport};
use crate::parts::{ProblemNotice, problem_page};

/// `NAME: PAGE` makes a function `NAME` for the route of `PAGE`, a component below [`crate::pages`]. The name is that of the part, too.
/// `with PIECE if ASKED`, once for each, names a piece that an address may ask for, and what tells whether it does.
macro_rules! parts {
    ($($name:ident: $($page:ident)::+ $(with $piece:ident if $($asked:ident)::+)*,)+) => {$(
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
                    name_in_head(stringify!($name));
                    match page().await {
                        Ok(page) => page,
                        // `preload` comes first, and ends without the part only where the server is away.
                        Err(_) => away().into_any(),
                    }
                }

                async fn preload() {
                    loaded(load()).await;
                    $(if $crate::pages::$($asked)::+(&use_url().read_untracked()) {
                        loaded($piece::load()).await;
                    })*
                    // Not before all of it is there: a page of which a piece is missing would be loaded again without end.
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
    blueprints: blueprints::Blueprints,
    board: board::BoardPage with noderole_panel if board::asks_for_panel,
    catalog: catalog::Catalog,
    deployments: deployments::Deployments,
    graph: graph::GraphPage,
    graphs: graph::Graphs,
    imports: imports::Imports,
    node: node::NodePage,
    node_looks: node::looks::LooksPage,
    node_noderoles: node::noderoles::NoderolesPage,
    node_proposal: node_proposal::NodeProposalPage,
    node_results: node::results::ResultsPage,
    noderole: noderole::NoderolePage,
    noderole_values: values::NoderoleValues,
    nodes: nodes::Nodes,
    overview: overview::OverviewPage,
    people: settings::people::People,
    person: settings::person::PersonPage,
    policy: settings::policy::PolicyPage,
    review: review::ReviewPage with review_details if review::asks_for_details with review_graph if review::asks_for_graph,
    reviews: reviews::Reviews,
    role: role::RolePage,
    role_graph: role_graph::RoleGraphPage,
    roles: roles::Roles,
    run: run::RunPage,
    run_values: values::RunValues,
    runs: runs::Runs,
    search: search::Search,
    second_factor: second_factor::SecondFactorPage,
    services: settings::people::Services,
    sign_in: sign_in::SignIn,
    waiting: waiting::Waiting,
    worker: workers::WorkerPage,
    workers: workers::Workers,
}

/// `NAME(ARGUMENTS) VIEW` makes a function `NAME::shown`, which loads the piece and makes the view, and `NAME::load`, which loads it
/// beforehand. Who has a piece of their own makes it where it belongs.
macro_rules! pieces {
    ($($name:ident($($argument:ident: $kind:ty),*) $view:expr;)+) => {$(
        pub(crate) mod $name {
            use ::leptos::wasm_split::{SplitLoaderError, wasm_split};

            use super::*;

            #[wasm_split($name, fallible, wasm_split_path = ::leptos::wasm_split, preload(load))]
            pub(crate) fn piece($($argument: $kind),*) -> Result<AnyView, SplitLoaderError> {
                Ok($view.into_any())
            }

            pub(crate) async fn shown($($argument: $kind),*) -> AnyView {
                #[cfg(feature = "ssr")]
                $crate::pages::part::name_in_head(stringify!($name));
                piece($($argument),*).await.unwrap_or_else(|_| $crate::pages::part::not_loaded())
            }
        }
    )+};
}
pub(super) use pieces;

pieces! {
    noderole_panel(first: NoderoleView, edited: Callback<()>) crate::pages::noderole::details(first, edited);
    review_details(which: Detail, review: RwSignal<ReviewView>, report: Resource<OfReport>) which.view(review, report);
    review_graph(first: GraphView, id: SubmissionId, address: Memo<Address>) crate::pages::review::graph_of(first, id, address);
}

/// What stands where a piece can't be loaded.
pub(super) fn not_loaded() -> AnyView {
    let problem = api::Problem::unavailable(
        "This part of the page could not be loaded: the connection is gone, or Gantry was replaced by another version meanwhile. Load the \
         page again.",
    );
    view! { <ProblemNotice problem=Some(problem)/> }.into_any()
}

/// Says in the page's head which files a part is made of. By hand: what leptos has for it is provided while the page is being built already,
/// by another thread, so that a page in two would miss it.
#[cfg(feature = "ssr")]
pub(super) fn name_in_head(part: &str) {
    let Some(split) = use_context::<leptos::WasmSplitManifest>() else { return };
    let (folder, parts, loader) = split.0.get_value();
    for file in parts.get(part).into_iter().flatten() {
        let href = format!("{folder}/{file}.wasm");
        // A tag of the head registers itself and leaves nothing in its place.
        _ = view! { <Link rel="preload" href as_="fetch" type_="application/wasm" crossorigin="anonymous"/> }.to_html();
    }
    _ = view! { <Link rel="modulepreload" href=format!("{folder}/{loader}") crossorigin="anonymous"/> }.to_html();
}

/// What stands in a page's place while nothing of it can be had.
fn away() -> impl IntoView {
    let detail = "This page was not loaded yet, and the server does not answer. What you were looking at is a step back.";
    problem_page(api::Problem::new(503, UNREACHABLE, "The server can't be reached", detail))
}

/// Ends when the part is there; where it can't be had, the browser goes where this was to lead, and nothing more happens here. Not where the
/// server is away, and the browser would have a page of its own to show for it: the console stays, and says so.
async fn loaded(part: impl Future<Output = Result<(), SplitLoaderError>>) {
    let wanted = use_url();
    if part.await.is_err() {
        let is_away = |failure: Failure| failure.0.code == UNREACHABLE;
        if is_taken_over() && calls::frame().await.is_err_and(is_away) {
            return;
        }
        go(&wanted.read_untracked());
        std::future::pending().await
    }
}

/// Where it is kept that a page was loaded again, until one is taken over.
const RELOADED: &str = "gantry-reloaded";

fn go(wanted: &Url) {
    let location = window().location();
    let asked = if wanted.search().is_empty() { "" } else { "?" };
    let address = format!("{}{asked}{}{}", wanted.path(), wanted.search(), wanted.hash());
    let here = location.href().is_ok_and(|href| href == format!("{}{address}", wanted.origin()));
    // What fails here, fails in the browser's own hands, and it says so.
    let _ = match is_taken_over() {
        true if here => location.reload(),
        true => location.assign(&address),
        false => match remember_reload(&address) {
            true => location.reload(),
            false => Ok(()),
        },
    };
}

fn is_taken_over() -> bool {
    document().document_element().is_some_and(|root| root.has_attribute("data-hydrated"))
}

/// Whether this is the first time. Without a memory there is none: better a page without scripts than one that is loaded without end.
fn remember_reload(address: &str) -> bool {
    let Ok(Some(memory)) = window().session_storage() else { return false };
    let again = memory.get_item(RELOADED).is_ok_and(|last| last.as_deref() == Some(address));
    !again && memory.set_item(RELOADED, address).is_ok()
}

fn forget_reload() {
    #[cfg(target_arch = "wasm32")]
    if let Ok(Some(memory)) = window().session_storage() {
        let _ = memory.remove_item(RELOADED);
    }
}
