//! `/api/v1/workers`: workers, their runs and their drains.

use api::workers::{WorkerPage, WorkerView, WorkersQuery};
use axum::Json;
use axum::extract::State;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{JsonBody, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::named::NameOrId;
use crate::rest::{Answer, Success, SwitchRequest};

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
    QueryParams(query): QueryParams<WorkersQuery>,
) -> Answer<WorkerPage> {
    Ok(Json(state.control.workers(&actor, &query).await?))
}

async fn worker(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(worker): NameOrId,
) -> Answer<WorkerView> {
    Ok(Json(state.control.worker_named(&actor, &worker).await?))
}

async fn drain(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(worker): NameOrId,
    JsonBody(request): JsonBody<SwitchRequest>,
) -> Answer<Success> {
    state.control.drain(&actor, &worker, true, request.reason).await?;
    Ok(Json(Success {}))
}

async fn resume(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(worker): NameOrId,
    JsonBody(request): JsonBody<SwitchRequest>,
) -> Answer<Success> {
    state.control.drain(&actor, &worker, false, request.reason).await?;
    Ok(Json(Success {}))
}
