//! `/api/v1/reviews` and `/api/v1/threads`: changes, verdicts, discussion and commit of a review.

use api::Problem;
use api::blueprints::{Comparison, MAX_DOCUMENTS};
use api::people::{Signature, SignatureRequest};
use api::reviews::{
    ChangesSinceView, Discussion, ReviewPage, ReviewView, ReviewedNoderole, ReviewedNoderoleQuery,
    ReviewsQuery, ViewedChanges,
};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use control::CommitInput;
use control::people::Permission;
use engine::blueprint::{Anchor, Impact};
use engine::gate::VerdictKind;
use engine::ids::{CommentId, ReviewId};
use engine::report::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AppState;
use crate::http::contract::{Negotiated, Operations, op};
use crate::http::problems::{JsonBody, OptionalJson, PathParams, QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::blueprints::{Committed, DifferenceFormat, compared, followed};
use crate::rest::{Answer, CreatedResult, CreatedWithLocation, Success};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/reviews", reviews, op("listReviews", "List reviews"))
        .get("/reviews/{id}", review, op("getReview", "Get a review"))
        .get(
            "/reviews/{id}/difference",
            review_difference,
            op("getReviewDifference", "Get the changes of a review").content(&["text/plain"]),
        )
        .get("/reviews/{id}/impact", impact, op("getImpact", "Get the impact of a review"))
        .get(
            "/reviews/{id}/noderole",
            reviewed_noderole,
            op("getReviewedNoderole", "Get the values and scripts of a noderole in a review"),
        )
        .get(
            "/reviews/{id}/report",
            review_report,
            op("getReviewReport", "Get the planning report of a review").also(&[409]),
        )
        .post(
            "/reviews/{id}/verdicts",
            give_verdict,
            op("giveVerdict", "Give a verdict on a review"),
        )
        .post(
            "/reviews/{id}/verdicts/options",
            verdict_options,
            op("getVerdictOptions", "Get the WebAuthn options to sign a verdict").about(
                "Pass the options to navigator.credentials.get in the browser. Send the nonce and \
                 the result as the signature of the verdict. The signature covers the change, its \
                 base, its policy, its risks and its authors.",
            ),
        )
        .post(
            "/reviews/{id}/commit",
            commit,
            op("commitReview", "Commit a review").also(&[422]).about(
                "The gate must be open. The response contains the number of the new blueprint. \
             `Location` is the URL of its progress.",
            ),
        )
        .get(
            "/reviews/{id}/discussion",
            discussion,
            op("getDiscussion", "Get the discussion of a review"),
        )
        .post("/reviews/{id}/threads", open_thread, op("openThread", "Start a thread on a review"))
        .get(
            "/reviews/{id}/since",
            since_view,
            op("getChangesSinceView", "Compare a review with the one that you last viewed"),
        )
        .get(
            "/reviews/{id}/viewed",
            viewed_changes,
            op("listViewedChanges", "List the changes of a review that you viewed"),
        )
        .post(
            "/reviews/{id}/viewed",
            mark_viewed,
            op("markChangesViewed", "Mark changes of a review as viewed"),
        )
        .post("/reviews/{id}/view", view_review, op("viewReview", "Mark a review as viewed"))
        .post("/threads/{id}/replies", reply, op("replyToThread", "Reply to a thread"))
        .post("/threads/{id}/resolve", resolve, op("resolveThread", "Resolve a thread"))
        .post("/threads/{id}/reopen", reopen, op("reopenThread", "Reopen a thread"))
}

async fn reviewed_noderole(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    QueryParams(query): QueryParams<ReviewedNoderoleQuery>,
) -> Answer<ReviewedNoderole> {
    Ok(Json(state.control.reviewed_noderole(&actor, id, query.node, &query.noderole).await?))
}

async fn review_report(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
) -> Answer<Report> {
    let report = state.control.review_report(&actor, id).await?;
    let message = "Only the newest version of an open proposal has a planning report. Open the \
        newest review of the proposal.";
    Ok(Json(report.ok_or_else(|| Problem::conflict("not_planned", message))?))
}

async fn reviews(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<ReviewsQuery>,
) -> Answer<ReviewPage> {
    Ok(Json(state.control.reviews(&actor, &query).await?))
}

async fn review(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
) -> Answer<ReviewView> {
    Ok(Json(state.control.review(&actor, id).await?.cut(MAX_DOCUMENTS)))
}

async fn impact(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
) -> Answer<Impact> {
    Ok(Json(state.control.impact(&actor, id).await?))
}

async fn viewed_changes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
) -> Answer<ViewedChanges> {
    Ok(Json(state.control.viewed_changes(&actor, id).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ViewedRequest {
    anchors: Vec<Anchor>,
}

async fn mark_viewed(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    JsonBody(opening): JsonBody<ViewedRequest>,
) -> Answer<ViewedChanges> {
    Ok(Json(state.control.mark_viewed(&actor, id, opening.anchors).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Verdict {
    kind: VerdictKind,
    #[serde(default)]
    reason: String,
    /// Passkey signature. Optional: without it, the verdict is not signed.
    #[serde(default)]
    signature: Option<Signature>,
}

async fn give_verdict(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    JsonBody(verdict): JsonBody<Verdict>,
) -> CreatedResult<Success> {
    state
        .control
        .add_signed_verdict(&actor, id, verdict.kind, verdict.reason, verdict.signature)
        .await?;
    Ok((StatusCode::CREATED, Json(Success {})))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignatureOptionsRequest {
    kind: VerdictKind,
}

async fn verdict_options(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    headers: HeaderMap,
    JsonBody(input): JsonBody<SignatureOptionsRequest>,
) -> Answer<SignatureRequest> {
    // A missing permission takes precedence over the error about passkeys and the site.
    actor.require_in_person()?;
    actor.require(Permission::Viewer)?;
    let site = state.address.site(&headers)?;
    Ok(Json(state.control.verdict_options(&actor, &site, id, input.kind).await?))
}

/// Options of a commit. If the change can't be undone, `name` must be the name of the affected
/// deployment or node.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommitRequest {
    #[serde(default)]
    name: Option<String>,
    /// Cancel running steps that this change replaces.
    #[serde(default)]
    cancel: bool,
}

async fn commit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    OptionalJson(committing): OptionalJson<CommitRequest>,
) -> CreatedWithLocation<Committed> {
    let input = CommitInput { review: id, typed: committing.name, cancel: committing.cancel };
    Ok(followed(state.control.commit(&actor, input).await?))
}

async fn discussion(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
) -> Answer<Discussion> {
    Ok(Json(state.control.discussion(&actor, id).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ThreadRequest {
    /// Part of the review that the comment is about. Default: the whole review.
    #[serde(default)]
    anchor: String,
    #[schemars(length(min = 1))]
    body: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CreatedComment {
    comment: CommentId,
}

async fn open_thread(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    JsonBody(request): JsonBody<ThreadRequest>,
) -> CreatedResult<CreatedComment> {
    let anchor: Anchor =
        request.anchor.parse().map_err(|error: engine::blueprint::anchor::NotAnAnchor| {
            Problem::invalid(error.to_string())
        })?;
    let comment = state.control.open_thread(&actor, id, anchor, request.body).await?;
    Ok((StatusCode::CREATED, Json(CreatedComment { comment })))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplyRequest {
    #[schemars(length(min = 1))]
    body: String,
}

async fn reply(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<CommentId>,
    JsonBody(input): JsonBody<ReplyRequest>,
) -> CreatedResult<CreatedComment> {
    let comment = state.control.reply(&actor, id, input.body).await?;
    Ok((StatusCode::CREATED, Json(CreatedComment { comment })))
}

async fn resolve(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<CommentId>,
) -> Answer<Success> {
    state.control.resolve_thread(&actor, id, true).await?;
    Ok(Json(Success {}))
}

async fn reopen(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<CommentId>,
) -> Answer<Success> {
    state.control.resolve_thread(&actor, id, false).await?;
    Ok(Json(Success {}))
}

/// Cursor of a list of documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DocumentCursor {
    after: Option<Anchor>,
}

async fn since_view(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    QueryParams(cursor): QueryParams<DocumentCursor>,
) -> Answer<ChangesSinceView> {
    Ok(Json(
        state
            .control
            .changes_since_view(&actor, id)
            .await?
            .page(cursor.after.as_ref(), MAX_DOCUMENTS)?,
    ))
}

async fn view_review(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
) -> Answer<Success> {
    state.control.record_view(&actor, id).await?;
    Ok(Json(Success {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReviewDifferenceQuery {
    /// Format of the response. For links, which can't set an `Accept` header.
    format: Option<DifferenceFormat>,
    after: Option<Anchor>,
}

async fn review_difference(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    QueryParams(query): QueryParams<ReviewDifferenceQuery>,
    headers: HeaderMap,
) -> Result<Negotiated<Comparison>, Refusal> {
    let found = state.control.review_difference(&actor, id).await?;
    compared(query.format, &headers, found, query.after.as_ref())
}
