//! `/api/v1/blueprints` and `/api/v1/execution`: history, progress and comparison of blueprints,
//! and the requests that turn execution on or off.

use std::time::Duration;

use api::Problem;
use api::blueprints::{
    BlueprintPage, BlueprintQuery, BlueprintView, BlueprintsQuery, Comparison, MAX_DOCUMENTS, Point,
};
use api::rollout::{BlueprintProgress, RetriedSteps, RetryFailed};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::IntoResponse;
use engine::blueprint::Anchor;
use engine::ids::BlueprintNumber;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AppState;
use crate::http::contract::{Created, Negotiated, Operations, op};
use crate::http::limits;
use crate::http::problems::{JsonBody, PathParams, QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::{Answer, CreatedWithLocation, SwitchRequest};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/blueprints", blueprints, op("listBlueprints", "List blueprints"))
        .get(
            "/blueprints/compare",
            compare,
            op("compareBlueprints", "Compare two blueprints").content(&["text/plain"]),
        )
        .get(
            "/blueprints/{number}",
            target,
            op("getBlueprint", "Get a blueprint and its progress").about(
                "With `wait`, the response is sent once nothing more happens automatically, or \
                 when the time is over. If too many requests are waiting, the response is \
                 immediate. Send the request again.",
            ),
        )
        .get(
            "/blueprints/{number}/progress",
            progress,
            op("getBlueprintProgress", "Get the rollout of a blueprint").about(
                "Steps by wave, failed steps, and runs by node. Lists are bounded, and the \
                 response says what it leaves out.",
            ),
        )
        .post(
            "/blueprints/{number}/retry",
            retry,
            op("retryBlueprint", "Retry the failed steps of a blueprint").about(
                "Retries at most 200 steps, those that run first. It leaves out steps in \
                 deployments that you do not operate and, without `destructive`, steps that \
                 destroy data.",
            ),
        )
        .post("/execution/on", execution_on, op("turnExecutionOn", "Turn execution on"))
        .post("/execution/off", execution_off, op("turnExecutionOff", "Turn execution off"))
}

async fn blueprints(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<BlueprintsQuery>,
) -> Answer<BlueprintPage> {
    Ok(Json(state.control.targets(&actor, &query).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CompareQuery {
    from: String,
    to: String,
    deployment: Option<String>,
    /// Format of the response. For links, which can't set an `Accept` header.
    format: Option<DifferenceFormat>,
    /// Return documents after this one (JSON only).
    after: Option<Anchor>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Committed {
    blueprint: BlueprintNumber,
}

/// The response with the URL of a target's rollout.
pub(super) fn followed(target: BlueprintNumber) -> Created<Committed> {
    Created(format!("/blueprints/{target}"), Committed { blueprint: target })
}

/// Format of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DifferenceFormat {
    Text,
    Json,
}

async fn compare(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(pair): QueryParams<CompareQuery>,
    headers: HeaderMap,
) -> Result<Negotiated<Comparison>, Refusal> {
    let (from, to, deployment) =
        (Point::named(&pair.from)?, Point::named(&pair.to)?, pair.deployment.as_deref());
    let found = state.control.compare(&actor, from, to, deployment).await?;
    compared(pair.format, &headers, found, pair.after.as_ref())
}

/// Returns the format named in the URL. Without one, text if the client accepts only text, and JSON
/// otherwise. Text is complete. JSON is paged by document.
pub(super) fn compared(
    format: Option<DifferenceFormat>,
    headers: &HeaderMap,
    found: Comparison,
    after: Option<&Anchor>,
) -> Result<Negotiated<Comparison>, Refusal> {
    let accepted =
        headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let as_text = format
        .map_or(accepted.contains("text/plain") && !accepted.contains("json"), |format| {
            format == DifferenceFormat::Text
        });
    let mut answer = match as_text {
        true => found.text().into_response(),
        false => Json(found.page(after, MAX_DOCUMENTS)?).into_response(),
    };
    answer.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    Ok(answer.into())
}

async fn execution_on(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(body): JsonBody<SwitchRequest>,
) -> CreatedWithLocation<Committed> {
    Ok(followed(state.control.switch(&actor, true, body.reason).await?))
}

async fn execution_off(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(body): JsonBody<SwitchRequest>,
) -> CreatedWithLocation<Committed> {
    Ok(followed(state.control.switch(&actor, false, body.reason).await?))
}

async fn target(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(number): PathParams<BlueprintNumber>,
    QueryParams(query): QueryParams<BlueprintQuery>,
) -> Answer<BlueprintView> {
    let wait = Duration::from_secs(query.wait.into());
    if wait > limits::MAX_WAIT {
        return Err(Problem::invalid(format!(
            "Invalid `wait`: the limit is {} seconds. Send the request again after that time.",
            limits::MAX_WAIT.as_secs()
        ))
        .into());
    }
    // The response must begin before the request's time is over.
    let wait = wait.min(limits::REQUEST_TIMEOUT.saturating_sub(limits::WAIT_MARGIN));
    let view = match state.waiting.take(actor.person) {
        Ok(_permit) if !wait.is_zero() => {
            state.control.wait_for_blueprint(&actor, number, wait).await?
        }
        _ => state.control.target(&actor, number).await?,
    };
    Ok(Json(view))
}

async fn progress(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(number): PathParams<BlueprintNumber>,
) -> Answer<BlueprintProgress> {
    Ok(Json(state.control.blueprint_progress(&actor, number).await?))
}

async fn retry(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(number): PathParams<BlueprintNumber>,
    JsonBody(request): JsonBody<RetryFailed>,
) -> Answer<RetriedSteps> {
    Ok(Json(state.control.retry_failed(&actor, number, &request).await?))
}
