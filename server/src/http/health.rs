//! Liveness (`/healthz`) and readiness (`/readyz`), for process supervisors and load balancers.
//!
//! Neither needs a request permit: a server at its limit is alive, and must not be restarted for
//! that.

use std::time::Duration;

use axum::extract::State;

use api::Problem;

use crate::AppState;
use crate::http::problems::Refusal;

/// Path of the liveness check.
pub(crate) const LIVENESS_PATH: &str = "/healthz";
/// Path of the readiness check.
pub(crate) const READINESS_PATH: &str = "/readyz";
/// Path of the metrics ([`crate::http::metrics`]).
pub(crate) const METRICS_PATH: &str = "/metrics";
/// Paths that need no request permit.
pub(crate) const PROBE_PATHS: [&str; 3] = [LIVENESS_PATH, READINESS_PATH, METRICS_PATH];

/// Timeout for the database, including the wait for earlier checks.
const ANSWER: Duration = Duration::from_secs(2);

/// The process is alive.
pub(crate) async fn is_alive() -> &'static str {
    "ok
"
}

/// The database answers and the server is not shutting down.
pub(crate) async fn ready(State(state): State<AppState>) -> Result<&'static str, Refusal> {
    // At most one connection, however many checks arrive.
    let ask = async {
        let _guard = state.readiness_check.lock().await;
        sqlx::query("SELECT number FROM head").fetch_one(state.control.store().pool()).await
    };
    let answers = matches!(tokio::time::timeout(ANSWER, ask).await, Ok(Ok(_)));
    match answers && !state.stopping.is_cancelled() {
        true => Ok("ready\n"),
        false => Err(Problem::unavailable(
            "The database is not available, or this server is stopping. \
                Try again in a moment.",
        )
        .into()),
    }
}
