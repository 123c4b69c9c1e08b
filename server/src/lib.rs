//! The web server: pages, REST, the live stream, sign-in.
//!
//! A server process has no state that another one could miss. Sessions and everything else are in
//! the database, so any number of servers can run in parallel. A server does not authorize requests
//! itself. It adds the web to [`control`]: the sender of a request, protection against cross-site
//! requests, and the format of the answer.
//!
//! A request passes these layers, from outside in:
//! 1. Request id, span and access log.
//! 2. The format of errors, then response headers.
//! 3. Limits on concurrency and time, except for health and metrics.
//! 4. Compression, then the checks of [`guard`].
//! 5. The router. Pages, server functions and REST look up the session there. Site files and health
//!    checks don't.
//!
//! Invariants:
//! * A GET changes nothing. Other methods are accepted from our own pages or from API clients only.
//! * Tokens, cookies and query strings are never logged.
//! * Every error is a [`Problem`](api::Problem) with its status, from every layer.
//! * A stream misses no event ([`feed`]).

// A page is one deeply nested type.
#![recursion_limit = "512"]

mod background_tasks;
pub mod http;
mod live;
mod pages;
mod rest;

use std::path::PathBuf;
use std::sync::Arc;

use api::Problem;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, Request, State};
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use control::Control;
use control::people::People;
use engine::Hash;
use leptos::config::LeptosOptions;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{
    MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::trace::{DefaultOnFailure, TraceLayer};
use tracing::{Instrument as _, Level, Span};

use crate::http::access_log::REQUEST_ID;
use crate::http::metrics::Metrics;
use crate::http::permits::Permits;
use crate::http::problems::Refusal;
use crate::http::timeouts::Timeouts;
use crate::live::StreamIntervals;
use crate::live::feed::Feed;
use crate::pages::site::Site;

pub use crate::background_tasks::checkpoints::{Checkpoints, Destination};
pub use crate::http::address::{AddressError, PublicAddress};
pub use crate::http::metrics::{MetricsToken, MetricsTokenError};
pub use crate::http::proxies::{ProxiesError, TrustedProxies};

/// The shared state of all handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppState {
    pub control: Arc<Control>,
    pub people: People,
    pub address: Arc<PublicAddress>,
    pub proxies: Arc<TrustedProxies>,
    pub site: Arc<Site>,
    pub feed: Feed,
    /// Permits for live streams.
    pub streams: Permits,
    /// Intervals of live streams.
    pub stream_intervals: StreamIntervals,
    /// Permits for downloads.
    pub downloads: Permits,
    /// Held by a readiness check: one at a time may use the database.
    pub readiness_check: Arc<Mutex<()>>,
    /// Permits for requests that wait for an event.
    pub waiting: Permits,
    /// Permits for requests. A request keeps its permit until its work ends, whether it was
    /// answered or not.
    pub requests: Arc<Semaphore>,
    /// Timeouts of requests.
    pub patience: Timeouts,
    pub metrics: Metrics,
    /// Hash of the token that grants access to metrics.
    pub metrics_token: Option<Hash>,
    /// Signals shutdown.
    pub stopping: CancellationToken,
    pub leptos: LeptosOptions,
}

impl FromRef<AppState> for LeptosOptions {
    fn from_ref(state: &AppState) -> Self {
        state.leptos.clone()
    }
}

/// Settings of a server.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The public address. `None`: the address of the listener, for users on this machine.
    pub address: Option<PublicAddress>,
    /// The folder with the site's files, as `cargo xtask site` writes it. `None`: the embedded
    /// site, or else `target/site`.
    pub site: Option<PathBuf>,
    /// Grants access to metrics from any address. `None`: only this machine has access.
    pub metrics_token: Option<MetricsToken>,
    /// Trusted reverse proxies (`X-Forwarded-For`).
    pub trusted_proxies: TrustedProxies,
    /// Key and destination of audit checkpoints. `None`: no checkpoints.
    pub checkpoints: Option<Checkpoints>,
}

/// Why a server can't start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no safe address to reach the server.
    #[error("Invalid public address: {0}.")]
    Address(#[from] AddressError),
    #[error("The web server failed: {0}.")]
    Listener(#[from] std::io::Error),
}

/// Serves until `shutdown` resolves, then waits up to [`http::limits::SHUTDOWN_GRACE`] for answers
/// in progress.
///
/// # Errors
/// If there is no safe public address, or the listener fails.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    control: Control,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let stopping = CancellationToken::new();
    let site = Site::named(config.site);
    let address = match config.address {
        Some(address) => address,
        None => PublicAddress::from_listener(listener.local_addr()?)?,
    };
    let mut state = state(address, site, control, stopping.clone());
    state.metrics_token = config.metrics_token.map(MetricsToken::hash);
    state.proxies = Arc::new(config.trusted_proxies);
    let tasks = background_tasks::start(
        &state.control,
        &state.metrics,
        config.checkpoints,
        stopping.clone(),
    );
    let router = router(state);
    let shutdown_signal = stopping.clone();
    tokio::spawn(async move {
        shutdown.await;
        shutdown_signal.cancel();
    });
    let serving = http::connections::serve(
        listener,
        router,
        http::connections::Bounds::default(),
        stopping.clone(),
    );
    let grace_period = async {
        stopping.cancelled().await;
        tokio::time::sleep(http::limits::SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        () = serving => {}
        () = grace_period => tracing::info!("canceling responses that are still open"),
    }
    tasks.stop().await;
    Ok(())
}

/// The shared state of all handlers. The task of the feed ends with `stopping`.
fn state(
    address: PublicAddress,
    site: Site,
    control: Control,
    stopping: CancellationToken,
) -> AppState {
    let leptos = LeptosOptions::builder().output_name("gantry").site_pkg_dir(site.pkg()).build();
    AppState {
        people: People::over(control.store().clone()),
        feed: Feed::start(control.store().clone(), stopping.clone()),
        control: Arc::new(control),
        address: Arc::new(address),
        proxies: Arc::default(),
        site: Arc::new(site),
        streams: Permits::new(http::limits::MAX_STREAMS, http::limits::MAX_STREAMS_PER_PERSON),
        downloads: Permits::new(
            http::limits::MAX_DOWNLOADS,
            http::limits::MAX_DOWNLOADS_PER_PERSON,
        ),
        readiness_check: Arc::default(),
        waiting: Permits::new(http::limits::MAX_WAITING, http::limits::MAX_WAITING_PER_PERSON),
        requests: Arc::new(Semaphore::new(http::limits::MAX_REQUESTS)),
        patience: Timeouts::default(),
        metrics: Metrics::default(),
        metrics_token: None,
        stream_intervals: StreamIntervals::default(),
        stopping,
        leptos,
    }
}

/// Answers a request within the limits, or returns an error.
///
/// A request continues after its client disconnects or its time is over. No handler is written to
/// be canceled at an arbitrary point. A commit that was not confirmed either happened or did not.
/// The request keeps its permit until it ends. So the permits limit the work, not only the waiting
/// clients. [`Timeouts::body`] and the statement timeout of the database limit its duration.
///
/// Monitoring needs an answer most when no permit is left. Its paths
/// ([`http::health::PROBE_PATHS`]) therefore need no permit. They read no body, and limit the time
/// and connections of their database queries themselves.
async fn enforce_limits(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if http::health::PROBE_PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Ok(place) = Arc::clone(&state.requests).try_acquire_owned() else {
        return Refusal(Problem::unavailable(
            "The server has reached its limit of concurrent requests. Try again in a moment.",
        ))
        .into_response();
    };
    let patience = state.patience;
    let request = request.map(|body| http::timeouts::within(body, patience.body));
    let work = async move {
        let answer = http::problems::add_admin_contacts(&state, next.run(request).await).await;
        drop(place);
        answer
    };
    let working = tokio::spawn(work.in_current_span());
    match tokio::time::timeout(patience.answer, working).await {
        Ok(Ok(response)) => response,
        Ok(Err(ended)) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Refusal(Problem::unknown_outcome(
                "The server is stopping. Check whether the request took effect before you try \
                 again.",
            ))
            .into_response(),
        },
        Err(_) => Refusal(Problem::new(
            504,
            "too_slow",
            "Request timed out",
            "The request took too long and may have taken effect. Check before you try again.",
        ))
        .into_response(),
    }
}

/// All routes.
fn routes(state: &AppState) -> Router {
    let authenticated_routes = rest::operations(Some(state))
        .into_router()
        .route("/second-factor", post(rest::second_factor::post))
        .route("/sign-out", post(pages::sign_in::sign_out))
        .route("/sign-out/everywhere", post(pages::sign_in::sign_out_everywhere))
        .route("/events", get(live::events))
        .route("/runs/{id}/log", get(pages::log_file::download))
        .route("/graph.svg", get(pages::graph_image::of_cluster))
        .route("/graph/{name}/graph.svg", get(pages::graph_image::of_deployment))
        .route("/reviews/{id}/graph.svg", get(pages::graph_image::of_review))
        .layer(DefaultBodyLimit::max(http::limits::MAX_BODY_BYTES))
        .route_layer(from_fn_with_state(state.clone(), http::session::authenticate));
    let protected_routes = Router::new()
        .merge(authenticated_routes)
        .merge(pages::routes(state).layer(RequestBodyLimitLayer::new(http::limits::MAX_BODY_BYTES)))
        .route(
            "/sign-in",
            post(pages::sign_in::sign_in)
                .layer(DefaultBodyLimit::max(http::limits::MAX_BODY_BYTES)),
        )
        .fallback(pages::site::file_or_not_found)
        .layer(from_fn_with_state(state.clone(), http::guard::pass));
    let probe_routes = Router::new()
        .route(http::health::LIVENESS_PATH, get(http::health::is_alive))
        .route(http::health::READINESS_PATH, get(http::health::ready))
        .route(http::health::METRICS_PATH, get(http::metrics::collect));
    protected_routes
        .merge(probe_routes)
        .layer(from_fn(http::metrics::record_route))
        .with_state(state.clone())
}

/// The complete service.
fn router(state: AppState) -> Router {
    let around = ServiceBuilder::new()
        .layer(from_fn_with_state(state.clone(), http::metrics::count))
        .layer(from_fn(http::access_log::check_request_id))
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                .on_request(())
                .on_response(())
                .on_failure(DefaultOnFailure::new().level(Level::WARN)),
        )
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(from_fn(http::access_log::record))
        .layer(from_fn(http::contract::add_encoding_to_etag))
        .layer(CompressionLayer::new())
        .layer(from_fn_with_state(state.clone(), http::guard::add_headers))
        .layer(from_fn(http::problems::shape))
        .layer(from_fn(http::guard::check_head))
        .layer(from_fn_with_state(state.clone(), enforce_limits))
        // A bug must not close the connection without an answer.
        .layer(CatchPanicLayer::new());
    // Layers wrap the router as a fallback service. As router layers, they would not apply to its
    // 405 answers.
    Router::new().fallback_service(around.service(routes(&state)))
}

/// The span of a request in the log. It omits the query, which may contain a token.
fn span(request: &Request) -> Span {
    let id = request.extensions().get::<RequestId>().map(RequestId::header_value);
    let id = id.and_then(|id| HeaderValue::to_str(id).ok()).unwrap_or_default();
    tracing::info_span!("request", method = %request.method(), path = request.uri().path(), id)
}

#[cfg(test)]
mod tests;
