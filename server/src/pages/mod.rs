//! Renders the console's pages and their server functions ([`app`]).
//!
//! Each request gets a [`RequestContext`] with its client and the use cases. It also gets a content
//! security policy with the nonce of leptos's inline scripts.

pub(crate) mod embedded_site;
pub(crate) mod graph_image;
pub(crate) mod log_file;
pub(crate) mod sign_in;
pub(crate) mod site;

use std::sync::{Arc, OnceLock};

use app::request::RequestContext;
use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use leptos::context::{provide_context, use_context};
use leptos::nonce::use_nonce;
use leptos_axum::{
    AxumRouteListing, ErrorHandler, LeptosRoutes, ResponseOptions,
    generate_route_list_with_exclusions_and_ssg_and_context,
};
use tower::ServiceExt as _;

use crate::AppState;
use crate::http::form_input;
use crate::http::guard;
use crate::http::problems::{Refusal, expects_page};
use crate::http::session::{self, RequestActor};

/// Routes of all pages, and of the server functions below `/call/`.
pub(crate) fn routes(state: &AppState) -> Router<AppState> {
    // Finding the routes renders the frame without a client. In that time, no page of this process
    // loads its data, so it must not happen again while another server answers, as in tests.
    static ROUTES: OnceLock<Vec<AxumRouteListing>> = OnceLock::new();
    let context = context(state.clone());
    let routes = ROUTES.get_or_init(|| {
        generate_route_list_with_exclusions_and_ssg_and_context(app::App, None, context.clone()).0
    });
    let leptos = state.leptos.clone();
    Router::new()
        .leptos_routes_with_context(state, routes.clone(), context, move || {
            app::shell(leptos.clone())
        })
        .route_layer(from_fn(form_input::keep_input))
        .route_layer(from_fn(session::redirect_to_sign_in))
        .route_layer(from_fn_with_state(state.clone(), session::look_up))
}

/// The page for an unknown path.
pub(crate) async fn not_found(state: AppState, mut request: Request) -> Response {
    if !expects_page(&request) {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    match session::session_actor(&state, request.headers()).await {
        Ok(actor) => drop(request.extensions_mut().insert(RequestActor(actor))),
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
        provide_context(request_context(&state));
    }
}

/// The client of the current request. Anonymous while the routes are generated.
fn request_context(state: &AppState) -> RequestContext {
    let parts = use_context::<Parts>();
    let host = parts.as_ref().and_then(|parts| parts.headers.get(header::HOST)?.to_str().ok());
    RequestContext {
        control: Arc::clone(&state.control),
        people: state.people.clone(),
        actor: parts.as_ref().and_then(|parts| parts.extensions.get::<RequestActor>()?.0.clone()),
        client: parts.as_ref().map(|parts| session::visitor(state, parts)).unwrap_or_default(),
        site: state.address.relying_party_for_host(host),
        session_cookie: state.address.session_cookie(),
    }
}
