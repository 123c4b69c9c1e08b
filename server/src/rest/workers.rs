//! `/api/v1/workers`: workers and their runs.

use api::workers::{WorkerPage, WorkerView, WorkersQuery};
use axum::Json;
use axum::extract::State;
use uuid::Uuid;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{PathParams, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::Answer;

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/workers", workers, op("listWorkers", "List workers")).get(
        "/workers/{id}",
        worker,
        op("getWorker", "Get a worker and its runs"),
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
    PathParams(id): PathParams<Uuid>,
) -> Answer<WorkerView> {
    Ok(Json(state.control.worker(&actor, id).await?))
}
