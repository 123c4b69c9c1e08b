//! `/api/v1/noderoles` and `/api/v1/steps`: a noderole, its data, and its retry; the list of steps.

use api::deployments::{NoderoleView, StepPage, StepsQuery};
use api::values::{ValuesQuery, ValuesView};
use axum::Json;
use axum::extract::State;
use engine::ids::NoderoleId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{JsonBody, PathParams, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::{Answer, Success};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/noderoles/{id}", noderole, op("getNoderole", "Get a noderole"))
        .get(
            "/noderoles/{id}/data",
            noderole_values,
            op("getNoderoleData", "Get the data that a run of a noderole would get now"),
        )
        .get(
            "/steps",
            steps,
            op("listSteps", "List steps").about(
                "A step is an action of a noderole. Filters select failed or stale steps, and the \
                 steps of a deployment, node, role or blueprint.",
            ),
        )
        .post("/noderoles/{id}/retry", retry, op("retryNoderole", "Retry a failed noderole"))
}

async fn noderole(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<NoderoleId>,
) -> Answer<NoderoleView> {
    Ok(Json(state.control.noderole(&actor, id).await?))
}

async fn noderole_values(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<NoderoleId>,
    QueryParams(query): QueryParams<ValuesQuery>,
) -> Answer<ValuesView> {
    Ok(Json(state.control.noderole_values(&actor, id, &query).await?))
}

async fn steps(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<StepsQuery>,
) -> Answer<StepPage> {
    Ok(Json(state.control.find_steps(&actor, &query).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RetryRequest {
    #[schemars(length(min = 1, max = 1000))]
    reason: String,
}

async fn retry(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<NoderoleId>,
    JsonBody(because): JsonBody<RetryRequest>,
) -> Answer<Success> {
    state.control.retry(&actor, id, because.reason).await?;
    Ok(Json(Success {}))
}
