//! Whether the process lives (`/healthz`) and whether it can be of use (`/readyz`): for whoever starts it and sends people to it.

use std::time::Duration;

use axum::extract::State;

use api::Problem;

use crate::refusal::Refusal;
use crate::state::AppState;

/// How long the database may take.
const ANSWER: Duration = Duration::from_secs(2);

/// The process answers.
pub(crate) async fn lives() -> &'static str {
    "lives\n"
}

/// The database answers, too, and the server is not on its way out.
pub(crate) async fn ready(State(state): State<AppState>) -> Result<&'static str, Refusal> {
    let ask = sqlx::query("SELECT number FROM head").fetch_one(state.control.store().pool());
    let answers = matches!(tokio::time::timeout(ANSWER, ask).await, Ok(Ok(_)));
    match answers && !state.stopping.is_cancelled() {
        true => Ok("ready\n"),
        false => Err(Problem::unavailable("The database does not answer, or this server is stopping.").into()),
    }
}
