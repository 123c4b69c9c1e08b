//! Renders the console's pages and their server functions ([`app`]).
//!
//! Each request gets a context with an `Arc<dyn Console>` that is bound to its client. It also gets
//! a content security policy with the nonce of leptos's inline scripts.

pub(crate) mod accounts;
pub(crate) mod bound;
pub(crate) mod embedded_site;
pub(crate) mod graph_image;
pub(crate) mod log_file;
pub(crate) mod oversight;
pub(crate) mod sign_in;
pub(crate) mod site;

use std::sync::Arc;

use app::accounts::Accounts;
use app::console::Console;
use app::oversight::Oversight;
use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use control::people::Actor;
use leptos::context::{provide_context, use_context};
use leptos::nonce::use_nonce;
use leptos_axum::{
    ErrorHandler, LeptosRoutes, ResponseOptions,
    generate_route_list_with_exclusions_and_ssg_and_context,
};
use tower::ServiceExt as _;

use crate::AppState;
use crate::http::form_input;
use crate::http::guard;
use crate::http::problems::{Refusal, wants_page};
use crate::http::session::{self, Who};
use crate::pages::bound::Bound;

/// Routes of all pages, and of the server functions below `/call/`.
pub(crate) fn routes(state: &AppState) -> Router<AppState> {
    // Finding the routes renders the frame once, without a client.
    let context = context(state.clone());
    let (routes, _) =
        generate_route_list_with_exclusions_and_ssg_and_context(app::App, None, context.clone());
    let leptos = state.leptos.clone();
    Router::new()
        .leptos_routes_with_context(state, routes, context, move || app::shell(leptos.clone()))
        .route_layer(from_fn(form_input::keep))
        .route_layer(from_fn(session::redirect_to_sign_in))
        .route_layer(from_fn_with_state(state.clone(), session::look_up))
}

/// The page for an unknown path.
pub(crate) async fn not_found(state: AppState, mut request: Request) -> Response {
    if !wants_page(&request) {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    match session::session_actor(&state, request.headers()).await {
        Ok(actor) => drop(request.extensions_mut().insert(Who(actor))),
        Err(problem) => return Refusal(problem).into_response(),
    }
    let leptos = state.leptos.clone();
    match ErrorHandler::new_with_context(context(state), app::shell, leptos).oneshot(request).await
    {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

/// The context of pages and server functions.
fn context(state: AppState) -> impl Fn() + Clone + Send + Sync + 'static {
    let manifest = state.site.manifest();
    move || {
        provide_context(manifest.clone());
        let answer = use_context::<ResponseOptions>().unwrap_or_default();
        if let Some(policy) = use_nonce().and_then(|nonce| guard::page_csp(&nonce)) {
            answer.insert_header(header::CONTENT_SECURITY_POLICY, policy);
        }
        let bound = Arc::new(Bound {
            control: Arc::clone(&state.control),
            people: state.people.clone(),
            address: Arc::clone(&state.address),
            actor: actor(),
            visitor: use_context::<Parts>()
                .map(|parts| session::visitor(&state, &parts))
                .unwrap_or_default(),
            host: host(),
            answer,
        });
        provide_context::<Arc<dyn Console>>(bound.clone());
        provide_context::<Arc<dyn Accounts>>(bound.clone());
        provide_context::<Arc<dyn Oversight>>(bound);
    }
}

fn host() -> Option<String> {
    let parts = use_context::<Parts>()?;
    parts.headers.get(header::HOST)?.to_str().ok().map(str::to_owned)
}

fn actor() -> Option<Actor> {
    use_context::<Parts>()?.extensions.get::<Who>()?.0.clone()
}
