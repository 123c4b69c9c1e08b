//! Whether the process lives (`/healthz`) and whether it can be of use (`/readyz`): for whoever starts it and sends people to it.
//!
//! Neither takes one of the places that requests have: a server that is full lives, and whoever starts it must not end it for that.

use std::time::Duration;

use axum::extract::State;

use api::Problem;

use crate::refusal::Refusal;
use crate::state::AppState;

/// Whether the process lives.
pub(crate) const LIVES: &str = "/healthz";
/// Whether it can be of use.
pub(crate) const READY: &str = "/readyz";
/// What is counted: [`crate::metrics`].
pub(crate) const METRICS: &str = "/metrics";
/// What is answered however much else is asked for.
pub(crate) const WATCHED: [&str; 3] = [LIVES, READY, METRICS];

/// How long the database may take, with those who ask before.
const ANSWER: Duration = Duration::from_secs(2);

/// The process answers.
pub(crate) async fn lives() -> &'static str {
    "lives\n"
}

/// The database answers, too, and the server is not on its way out.
pub(crate) async fn ready(State(state): State<AppState>) -> Result<&'static str, Refusal> {
    // One connection at most, also when many ask.
    let ask = async {
        let _asks = state.asks_database.lock().await;
        sqlx::query("SELECT number FROM head").fetch_one(state.control.store().pool()).await
    };
    let answers = matches!(tokio::time::timeout(ANSWER, ask).await, Ok(Ok(_)));
    match answers && !state.stopping.is_cancelled() {
        true => Ok("ready\n"),
        false => {
            Err(Problem::unavailable("The database does not answer, or this server is stopping.")
                .into())
        }
    }
}
