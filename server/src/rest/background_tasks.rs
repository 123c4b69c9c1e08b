//! `/api/v1/background-tasks`: the periodic work of servers and workers.

use api::background_tasks::{BackgroundTasks, BackgroundTasksQuery};
use axum::Json;
use axum::extract::State;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::QueryParams;
use crate::http::session::SignedIn;
use crate::rest::Answer;

pub(crate) fn operations(all: Operations) -> Operations {
    all.get(
        "/background-tasks",
        background_tasks,
        op("listBackgroundTasks", "List background tasks").about(
            "The periodic work of each server and worker, with the result of its last run. A \
             process reports a change within 5 seconds. Tasks of a process that ended without \
             notice are listed for another minute.",
        ),
    )
}

async fn background_tasks(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<BackgroundTasksQuery>,
) -> Answer<BackgroundTasks> {
    Ok(Json(state.control.background_tasks(&actor, &query).await?))
}
