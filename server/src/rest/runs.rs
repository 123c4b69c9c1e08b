//! `/api/v1/runs` and `/api/v1/pending`: runs, their logs and data, and the steps that wait.

use api::pending::{PendingPage, PendingQuery};
use api::runs::{LogPart, LogSearchResult, RunPage, RunView, RunsQuery};
use api::values::{ValuesQuery, ValuesView};
use axum::Json;
use axum::extract::State;
use engine::ids::RunId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{OptionalJson, PathParams, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::{Answer, EmptyObject, Success};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/runs", runs, op("listRuns", "List runs"))
        .get("/runs/{id}", run, op("getRun", "Get a run"))
        .get("/runs/{id}/data", run_values, op("getRunData", "Get the data that a run got"))
        .get("/runs/{id}/log", log, op("getRunLog", "Get a part of a run's log"))
        .get("/runs/{id}/log/search", search_log, op("searchRunLog", "Search a run's log"))
        .post("/runs/{id}/cancel", cancel, op("cancelRun", "Cancel a run"))
        .get(
            "/pending",
            pending,
            op("listPending", "List pending steps").about(
                "Steps are grouped by pending reason. Within a reason, the steps that have been \
                 pending longest come first. With `sort=-since`, the newest come first. Each \
                 response covers the first 10,000 steps of each state in this order. If `more` is \
                 true, a count covers only these steps. A reason is missing from `groups` if all \
                 of its steps come later.",
            ),
        )
}

async fn run_values(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<RunId>,
    QueryParams(query): QueryParams<ValuesQuery>,
) -> Answer<ValuesView> {
    Ok(Json(state.control.run_values(&actor, id, &query).await?))
}

async fn runs(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<RunsQuery>,
) -> Answer<RunPage> {
    Ok(Json(state.control.find_runs(&actor, &query).await?))
}

async fn run(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<RunId>,
) -> Answer<RunView> {
    Ok(Json(state.control.run(&actor, id).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    #[serde(default)]
    offset: i64,
}

async fn log(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<RunId>,
    QueryParams(from): QueryParams<LogQuery>,
) -> Answer<LogPart> {
    Ok(Json(state.control.log(&actor, id, from.offset).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogSearchQuery {
    /// Text that the lines contain.
    #[schemars(length(min = 1, max = 200))]
    q: String,
    /// Whether to ignore case. Default: false.
    #[serde(default)]
    ignore_case: bool,
    /// Cursor: the `next` value of the previous page.
    #[serde(default)]
    after: String,
}

async fn search_log(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<RunId>,
    QueryParams(query): QueryParams<LogSearchQuery>,
) -> Answer<LogSearchResult> {
    Ok(Json(state.control.search_log(&actor, id, &query.q, query.ignore_case, &query.after).await?))
}

async fn cancel(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<RunId>,
    OptionalJson(_): OptionalJson<EmptyObject>,
) -> Answer<Success> {
    state.control.cancel(&actor, id).await?;
    Ok(Json(Success {}))
}

async fn pending(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<PendingQuery>,
) -> Answer<PendingPage> {
    Ok(Json(state.control.pending(&actor, &query).await?))
}
