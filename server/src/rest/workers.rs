//! `/api/v1/workers`: workers, their runs and their drains.

use api::workers::{WorkerPage, WorkerView, WorkersQuery};
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{JsonBody, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::named::NameOrId;
use crate::rest::{Answer, Success};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/workers", workers, op("listWorkers", "List workers"))
        .get("/workers/{id}", worker, op("getWorker", "Get a worker and its runs"))
        .post(
            "/workers/{id}/drain",
            drain,
            op("drainWorker", "Drain a worker: it finishes its runs and takes no further ones"),
        )
        .post(
            "/workers/{id}/resume",
            resume,
            op("resumeWorker", "End the drain of a worker: it takes runs again"),
        )
}

async fn workers(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(wanted): QueryParams<WorkersQuery>,
) -> Answer<WorkerPage> {
    Ok(Json(state.control.workers(&actor, &wanted).await?))
}

async fn worker(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(worker): NameOrId,
) -> Answer<WorkerView> {
    Ok(Json(state.control.worker_named(&actor, &worker).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    #[schemars(length(min = 1, max = 1000))]
    reason: String,
}

async fn drain(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(worker): NameOrId,
    JsonBody(wanted): JsonBody<DrainRequest>,
) -> Answer<Success> {
    state.control.drain(&actor, &worker, true, wanted.reason).await?;
    Ok(Json(Success {}))
}

async fn resume(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(worker): NameOrId,
    JsonBody(wanted): JsonBody<DrainRequest>,
) -> Answer<Success> {
    state.control.drain(&actor, &worker, false, wanted.reason).await?;
    Ok(Json(Success {}))
}
