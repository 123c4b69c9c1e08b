//! `/api/v1`: the REST API, over the same use cases as the pages.
//!
//! Every handler is one call into [`control`]. A session cookie or a token authenticates the client
//! ([`crate::http::session`]). A client with a cookie must send `X-Gantry: 1` with every change
//! ([`crate::http::guard`]). Errors are problem details (RFC 9457).

mod audit;
mod background_tasks;
mod blueprints;
mod catalog;
mod deployments;
pub(crate) mod graphs;
mod named;
mod noderoles;
pub(crate) mod nodes;
pub(crate) mod overview;
pub(crate) mod people;
mod proposals;
mod reviews;
mod runs;
pub(crate) mod second_factor;
mod workers;

use std::sync::OnceLock;

use api::Problem;
use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::contract::{self, Created, Operations, op};
use crate::http::problems::Refusal;
use crate::{AppState, live};

pub(crate) type Answer<T> = Result<Json<T>, Refusal>;
/// The response for a created resource without a URL of its own.
pub(crate) type CreatedResult<T> = Result<(StatusCode, Json<T>), Refusal>;
/// The response for a created resource with its URL.
pub(crate) type CreatedWithLocation<T> = Result<Created<T>, Refusal>;

/// The operations. Without a state, only for their list.
pub(crate) fn operations(state: Option<&AppState>) -> Operations {
    const NOUNS: &[fn(Operations) -> Operations] = &[
        overview::operations,
        catalog::operations,
        nodes::operations,
        deployments::operations,
        noderoles::operations,
        graphs::operations,
        proposals::operations,
        reviews::operations,
        blueprints::operations,
        runs::operations,
        workers::operations,
        background_tasks::operations,
        people::operations,
        second_factor::operations,
        audit::operations,
    ];
    let all = NOUNS.iter().fold(Operations::of(state), |all, noun| noun(all));
    all.get(
        "/watch",
        live::events,
        op("watch", "Stream events").content(&["text/event-stream"]).about(
            "Server-sent events. Each message has a `Live` object as JSON in `data` and its cursor \
             in `id`. `Last-Event-ID` takes precedence over `after`. After a `reset` message, the \
             client must fetch everything again. A `heartbeat` event every 15 seconds has the \
             cursor up to which all events were sent.",
        ),
    )
    .get(
        "/openapi.json",
        openapi,
        op("getDocument", "Get the OpenAPI document").content(&["application/json"]),
    )
}

/// The OpenAPI document, generated once per process.
pub(crate) fn described() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let document = contract::document(&operations(None).into_list());
        // A value made from values can always be serialized.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    })
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], described()).into_response()
}

/// The expected version of a proposal, from `If-Match` or the body. If both name one, they must be
/// equal.
pub(crate) fn agreed(headers: &HeaderMap, version: Option<i32>) -> Result<i32, Problem> {
    match (contract::version(headers)?, version) {
        (Some(other), Some(version)) if other != version => Err(Problem::new(
            412,
            "changed_meanwhile",
            "Changed in the meantime",
            format!(
                "If-Match names version {other}, but the body names version {version}. Fetch the \
                 proposal again and send only one version."
            ),
        )),
        (None, None) => Err(Problem::new(
            428,
            "version_required",
            "Version required",
            "Fetch the proposal and send its version as If-Match, in double quotes, or as \
             `version` in the body. The version protects changes by other \
             people.",
        )),
        (Some(version), _) | (None, Some(version)) => Ok(version),
    }
}

/// The error of a change with an old version: 412 if `If-Match` names the version, 409 if only the
/// body does.
pub(crate) fn outdated(headers: &HeaderMap) -> impl Fn(Problem) -> Problem {
    let is_conditional = headers.contains_key(header::IF_MATCH);
    move |problem| match is_conditional && problem.code == "version" {
        true => Problem::new(412, "changed_meanwhile", "Changed in the meantime", problem.detail),
        false => problem,
    }
}

/// A proposal at a version.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProposalVersion {
    version: i32,
}

/// Change of one version of a proposal.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedProposalVersion {
    /// Expected version of the proposal. Optional if `If-Match` names it.
    #[serde(default)]
    version: Option<i32>,
}

/// The body of a request that switches the state of a resource, such as a hold or a drain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchRequest {
    /// Reason, which everyone can read.
    #[schemars(length(min = 1, max = 1000))]
    pub(crate) reason: String,
}

/// Success without further data.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Success {}

/// An empty object.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyObject {}
