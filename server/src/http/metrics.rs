//! `GET /metrics` for Prometheus.
//!
//! Labels have a bounded set of values and never contain client input: the route's template, a
//! known method, the status, the name of a worker. Clients can't increase the number of time
//! series. Process metrics are counted as they happen. Database metrics are queried on collection,
//! at most once per [`CACHE_TTL`]. If the database does not answer, they are omitted
//! (`gantry_database_up 0`), because old numbers would look current.
//!
//! Metrics show the amount of work and its progress, so access is restricted. With a token
//! (`Config::metrics_token`), a client must send it as a bearer token. Without one, only this
//! machine has access, and only under the server's own name and without a reverse proxy. A public
//! HTTPS address implies a proxy, whose clients would all seem to be on this machine.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use api::Problem;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::{MetricValues, WorkerLoad};
use engine::Hash;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::AppState;
use crate::http::limits;
use crate::http::problems::Refusal;
use crate::http::run_metrics::{FloatGauge, RunMetrics, register_workers};

/// Maximum age of database metrics.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Timeout of the database query, including the wait for earlier ones.
const ANSWER: Duration = Duration::from_secs(5);
/// Upper bounds of the request duration histogram, in seconds.
const DURATION_BUCKETS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Headers that show that a proxy forwarded the request.
const FORWARDING_HEADERS: [&str; 4] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];
/// Label of requests without a route.
const NO_ROUTE: &str = "none";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    method: &'static str,
    route: Route,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: Route,
}

/// A route's template.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Route(Arc<str>);

impl prometheus_client::encoding::EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        use std::fmt::Write as _;
        encoder.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// The counters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Inner>);

struct Inner {
    answered: Family<ResponseLabels, Counter>,
    took: Family<RequestLabels, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    streams: Gauge,
    pool: Family<StateLabel, Gauge>,
    pool_max: Gauge,
    up: Gauge,
    background_tasks: background::Metrics,
    runs: RunMetrics,
    process: Registry,
    /// The last database metrics and the time of their query.
    database: Mutex<Option<(Instant, DatabaseNumbers)>>,
}

fn histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

impl Default for Metrics {
    fn default() -> Self {
        let mut process = Registry::with_prefix("gantry");
        let mut inner = Inner {
            answered: Family::default(),
            took: Family::new_with_constructor(histogram),
            in_flight: Gauge::default(),
            streams: Gauge::default(),
            pool: Family::default(),
            pool_max: Gauge::default(),
            up: Gauge::default(),
            background_tasks: background::Metrics::default(),
            runs: RunMetrics::registered(&mut process),
            process,
            database: Mutex::default(),
        };
        let to = &mut inner.process;
        to.register(
            "build",
            "Build information",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let started = FloatGauge::default();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        started.set(now.as_secs_f64());
        to.register_with_unit(
            "start_time",
            "Start time of the server, in seconds since the Unix epoch",
            Unit::Seconds,
            started,
        );
        to.register("http_requests", "Completed requests", inner.answered.clone());
        let took = "Time until the response began";
        to.register_with_unit("http_request_duration", took, Unit::Seconds, inner.took.clone());
        to.register(
            "http_requests_in_flight",
            "Requests without a response yet",
            inner.in_flight.clone(),
        );
        to.register("streams_open", "Open live streams", inner.streams.clone());
        to.register(
            "database_connections",
            "Connections of this server's pool, by state",
            inner.pool.clone(),
        );
        to.register(
            "database_connections_max",
            "Maximum number of connections in the pool",
            inner.pool_max.clone(),
        );
        to.register("database_up", "Whether the database returned its metrics", inner.up.clone());
        inner.background_tasks.register(to);
        Self(Arc::new(inner))
    }
}

impl Metrics {
    /// The counters of background tasks.
    pub(crate) fn background_tasks(&self) -> background::Metrics {
        self.0.background_tasks.clone()
    }
}

fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Counts a request, including one that ends without a response.
struct Underway<'m>(&'m Inner);

impl<'m> Underway<'m> {
    fn begin(inner: &'m Inner) -> Self {
        inner.in_flight.inc();
        Self(inner)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

/// Holds the route that a request matched.
#[derive(Debug, Clone, Default)]
pub(crate) struct MatchedRoute(Arc<OnceLock<MatchedPath>>);

impl MatchedRoute {
    /// The template of the route. A request that was rejected before the router has none.
    pub(crate) fn template(&self) -> &str {
        self.0.get().map_or(NO_ROUTE, MatchedPath::as_str)
    }
}

/// Passes the matched route to [`count`], which runs outside of the router and does not see it.
pub(crate) async fn record_route(
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    if let (Some(path), Some(routed)) = (path, request.extensions().get::<MatchedRoute>()) {
        let _ = routed.0.set(path);
    }
    next.run(request).await
}

/// Counts every request, outside of all limits.
pub(crate) async fn count(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let inner = &*state.metrics.0;
    let routed = MatchedRoute::default();
    request.extensions_mut().insert(routed.clone());
    let (method, began) = (known(request.method()), Instant::now());
    let in_flight = Underway::begin(inner);
    let answer = next.run(request).await;
    drop(in_flight);
    let route = Route(routed.template().into());
    inner
        .took
        .get_or_create(&RequestLabels { method, route: route.clone() })
        .observe(began.elapsed().as_secs_f64());
    inner
        .answered
        .get_or_create(&ResponseLabels { method, route, status: answer.status().as_u16() })
        .inc();
    answer
}

/// Returns all metrics as text.
pub(crate) async fn collect(
    State(state): State<AppState>,
    request: Request,
) -> Result<Response, Refusal> {
    authorize(&state, &request)?;
    let numbers = tokio::time::timeout(ANSWER, numbers(&state)).await.ok().flatten();
    let inner = &*state.metrics.0;
    let pool = state.control.store().pool();
    let idle = i64::try_from(pool.num_idle()).unwrap_or(i64::MAX);
    inner.pool.get_or_create(&StateLabel { state: "idle" }).set(idle);
    inner
        .pool
        .get_or_create(&StateLabel { state: "used" })
        .set((i64::from(pool.size()) - idle).max(0));
    inner.pool_max.set(pool.options().get_max_connections().into());
    let free = state.streams.free();
    inner.streams.set(i64::try_from(limits::MAX_STREAMS.saturating_sub(free)).unwrap_or(i64::MAX));
    inner.up.set(i64::from(numbers.is_some()));
    let mut text = String::new();
    let written = match numbers {
        None => encode(&mut text, &inner.process),
        // The text has one end marker, so the database metrics go before it.
        Some(numbers) => encode(&mut text, &inner.process).and_then(|()| {
            text.truncate(text.trim_end().trim_end_matches("# EOF").len());
            encode(&mut text, &database_registry(&numbers))
        }),
    };
    written.map_err(|_| Problem::internal())?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Metrics from the database.
#[derive(Clone)]
struct DatabaseNumbers {
    numbers: MetricValues,
    workers: Vec<WorkerLoad>,
}

async fn numbers(state: &AppState) -> Option<DatabaseNumbers> {
    // Concurrent requests wait for the same result.
    let mut cached = state.metrics.0.database.lock().await;
    if let Some((at, numbers)) = &*cached
        && at.elapsed() < CACHE_TTL
    {
        return Some(numbers.clone());
    }
    *cached = None;
    state.metrics.0.runs.update(&state.control).await?;
    let numbers = DatabaseNumbers {
        numbers: state.control.numbers().await.ok()?,
        workers: state.control.worker_loads().await.ok()?,
    };
    *cached = Some((Instant::now(), numbers.clone()));
    Some(numbers)
}

fn database_registry(numbers: &DatabaseNumbers) -> Registry {
    let mut to = Registry::with_prefix("gantry");
    register_workers(&mut to, &numbers.workers);
    let MetricValues { tally, steps } = &numbers.numbers;
    let mut register_by_state = |name: &str, help: &str, states: &[(&'static str, i64)]| {
        let family = Family::<StateLabel, Gauge>::default();
        for (state, count) in states {
            family.get_or_create(&StateLabel { state }).set(*count);
        }
        to.register(name, help, family);
    };
    let states = [
        ("blocked", steps.blocked),
        ("todo", steps.todo),
        ("transition", steps.transition),
        ("active", steps.active),
        ("error", steps.error),
        ("stale", steps.stale),
        ("unchecked", steps.unchecked),
    ];
    register_by_state("steps", "Steps by state; stale and unchecked ones are also active", &states);
    register_by_state(
        "runs_open",
        "Open runs by state",
        &[("queued", tally.queued), ("running", tally.running)],
    );
    let nodes = [("dead", tally.dead), ("maintenance", tally.maintenance), ("all", tally.nodes)];
    register_by_state("nodes", "Nodes: all, dead, and in maintenance", &nodes);
    register_by_state(
        "deployments",
        "Deployments: all, and on hold",
        &[("on_hold", tally.on_hold), ("all", tally.deployments)],
    );
    let mut one = |name: &str, help: &str, value: i64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        to.register(name, help, gauge);
    };
    one("workers_alive", "Workers that are alive", tally.workers);
    one(
        "workers_capacity",
        "Maximum number of runs at once of the workers that are not draining",
        tally.capacity,
    );
    one("reviews_open", "Open reviews, counted up to 1000", tally.open_reviews);
    let age = FloatGauge::default();
    age.set(tally.oldest_age);
    to.register_with_unit("queue_oldest_age", "Age of the oldest queued run", Unit::Seconds, age);
    to
}

/// The metrics token. It has a minimum length and is stored as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsToken(Hash);

impl MetricsToken {
    pub(crate) fn hash(self) -> Hash {
        self.0
    }
}

/// The token is too short, so it could be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "The metrics token is too short. Use at least {} characters, for example the output of \
     `openssl rand -hex 16`.",
    limits::MIN_METRICS_TOKEN_LENGTH
)]
pub struct MetricsTokenError;

impl FromStr for MetricsToken {
    type Err = MetricsTokenError;

    fn from_str(text: &str) -> Result<Self, MetricsTokenError> {
        let token = text.trim();
        match token.len() < limits::MIN_METRICS_TOKEN_LENGTH {
            true => Err(MetricsTokenError),
            false => Ok(Self(Hash::of_bytes(token.as_bytes()))),
        }
    }
}

/// Checks whether a request may read metrics.
fn authorize(state: &AppState, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    if let Some(token) = &state.metrics_token {
        let sent = bearer(headers).map(|sent| Hash::of_bytes(sent.as_bytes()));
        return match sent == Some(*token) {
            true => Ok(()),
            false => Err(Problem::new(
                401,
                "no_metrics_token",
                "Invalid metrics token",
                "Send the value of GANTRY_METRICS_TOKEN: Authorization: Bearer TOKEN.",
            )),
        };
    }
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let is_local = from.is_some_and(|from| from.0.ip().to_canonical().is_loopback());
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let is_own_host = host.is_some_and(|host| state.address.is_host(host));
    let is_direct = !state.address.is_secure()
        && !FORWARDING_HEADERS.iter().any(|name| headers.contains_key(*name));
    match is_local && is_own_host && is_direct {
        true => Ok(()),
        false => Err(Problem::forbidden(
            "Without a token, metrics are available only on this machine and not through a proxy. \
             Start the server with GANTRY_METRICS_TOKEN to read them from another machine.",
        )),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
