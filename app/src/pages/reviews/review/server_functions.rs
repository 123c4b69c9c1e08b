//! Server functions of the page of a review.

#[cfg(feature = "ssr")]
use api::blueprints::MAX_DOCUMENTS;
use api::people::{Signature, SignatureRequest};
use api::reviews::{ChangesSinceView, Discussion, ReviewView, ReviewedNoderole, ViewedChanges};
use api::views::graph::{GraphOptions, GraphView};
#[cfg(feature = "ssr")]
use control::people::Permission;
#[cfg(feature = "ssr")]
use control::{CommitInput, MissingVertex};
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{BlueprintNumber, CommentId, NodeId, ReviewId};
use engine::report::Report;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};

/// A review, with the documents after `after`, or the first ones.
#[server(name = ReadReview, prefix = "/call", endpoint = "review", input = AsJson, output = AsJson)]
pub async fn review(id: ReviewId, after: Option<Anchor>) -> ServerResult<ReviewView> {
    let (request, actor) = signed_in()?;
    let review = answer(request.control.review(&actor, id).await).await?;
    answer(review.page(after.as_ref(), MAX_DOCUMENTS)).await
}

#[server(
    name = ReadReviewGraph,
    prefix = "/call",
    endpoint = "review-graph",
    input = AsJson,
    output = AsJson
)]
pub async fn review_graph(id: ReviewId, options: GraphOptions) -> ServerResult<GraphView> {
    let (request, actor) = signed_in()?;
    answer(request.control.review_graph(&actor, id, &options, MissingVertex::Note).await).await
}

/// The report of the planner.
#[server(name = ReadReport, prefix = "/call", endpoint = "report", input = AsJson, output = AsJson)]
pub async fn review_report(id: ReviewId) -> ServerResult<Option<Report>> {
    let (request, actor) = signed_in()?;
    answer(request.control.review_report(&actor, id).await).await
}

/// The values and scripts of a noderole in a review.
#[server(
    name = ReadReviewedNoderole,
    prefix = "/call",
    endpoint = "reviewed-noderole",
    input = AsJson,
    output = AsJson
)]
pub async fn reviewed_noderole(
    id: ReviewId,
    node: NodeId,
    noderole: NoderoleKey,
) -> ServerResult<ReviewedNoderole> {
    let (request, actor) = signed_in()?;
    answer(request.control.reviewed_noderole(&actor, id, node, &noderole).await).await
}

#[server(
    name = ReadDiscussion,
    prefix = "/call",
    endpoint = "discussion",
    input = AsJson,
    output = AsJson
)]
pub async fn discussion(id: ReviewId) -> ServerResult<Discussion> {
    let (request, actor) = signed_in()?;
    answer(request.control.discussion(&actor, id).await).await
}

/// The changes since this person last viewed the review.
#[server(
    name = ReadChangesSinceView,
    prefix = "/call",
    endpoint = "changes-since-view",
    input = AsJson,
    output = AsJson
)]
pub async fn changes_since_view(id: ReviewId) -> ServerResult<ChangesSinceView> {
    let (request, actor) = signed_in()?;
    let changes = answer(request.control.changes_since_view(&actor, id).await).await?;
    answer(changes.page(None, MAX_DOCUMENTS)).await
}

/// Records that this person viewed the review.
#[server(
    name = RecordView,
    prefix = "/call",
    endpoint = "record-view",
    input = AsJson,
    output = AsJson
)]
pub async fn record_view(id: ReviewId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.record_view(&actor, id).await).await
}

/// How many of the changes this person has viewed.
#[server(
    name = ReadViewedChanges,
    prefix = "/call",
    endpoint = "viewed-changes",
    input = AsJson,
    output = AsJson
)]
pub async fn viewed_changes(id: ReviewId) -> ServerResult<ViewedChanges> {
    let (request, actor) = signed_in()?;
    answer(request.control.viewed_changes(&actor, id).await).await
}

/// Marks changes as viewed. `anchors` are separated by spaces, so that a form can send them.
#[server(name = MarkViewed, prefix = "/call", endpoint = "mark-viewed", output = AsJson)]
pub async fn mark_viewed(review: ReviewId, anchors: String) -> ServerResult<ViewedChanges> {
    let read = |text: &str| {
        text.parse::<Anchor>().map_err(|error| api::Problem::invalid(error.to_string()))
    };
    let anchors = anchors.split_whitespace().map(read).collect::<Result<Vec<Anchor>, _>>()?;
    let (request, actor) = signed_in()?;
    answer(request.control.mark_viewed(&actor, review, anchors).await).await
}

#[server(name = OpenThread, prefix = "/call", endpoint = "open-thread", output = AsJson)]
pub async fn open_thread(
    review: ReviewId,
    #[server(default)] anchor: String,
    body: String,
) -> ServerResult<CommentId> {
    let anchor: Anchor = anchor.parse().map_err(|error: engine::blueprint::NotAnAnchor| {
        api::Problem::invalid(error.to_string())
    })?;
    let (request, actor) = signed_in()?;
    answer(request.control.open_thread(&actor, review, anchor, body).await).await
}

#[server(name = Reply, prefix = "/call", endpoint = "reply", output = AsJson)]
pub async fn reply(thread: CommentId, body: String) -> ServerResult<CommentId> {
    let (request, actor) = signed_in()?;
    answer(request.control.reply(&actor, thread, body).await).await
}

#[server(name = ResolveThread, prefix = "/call", endpoint = "resolve-thread", output = AsJson)]
pub async fn resolve_thread(thread: CommentId, resolved: bool) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.resolve_thread(&actor, thread, resolved).await).await
}

#[server(name = GiveVerdict, prefix = "/call", endpoint = "give-verdict", output = AsJson)]
pub async fn give_verdict(review: ReviewId, kind: VerdictKind, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.give_verdict(&actor, review, kind, reason).await).await
}

/// The challenge that the browser signs for a verdict.
#[server(
    name = VerdictOptions,
    prefix = "/call",
    endpoint = "verdict-options",
    input = AsJson,
    output = AsJson
)]
pub async fn verdict_options(
    review: ReviewId,
    kind: VerdictKind,
) -> ServerResult<SignatureRequest> {
    let (request, actor) = signed_in()?;
    // A reader without permission should get that error, not the one about passkeys and the site.
    answer(actor.require(Permission::Viewer)).await?;
    let site = request.site.map_err(refuse)?;
    answer(request.control.verdict_options(&actor, &site, review, kind).await).await
}

/// Gives a verdict that is signed with a passkey.
#[server(
    name = SignVerdict,
    prefix = "/call",
    endpoint = "sign-verdict",
    input = AsJson,
    output = AsJson
)]
pub async fn sign_verdict(
    review: ReviewId,
    kind: VerdictKind,
    reason: String,
    signature: Signature,
) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.add_signed_verdict(&actor, review, kind, reason, Some(signature)).await)
        .await
}

/// Makes a review's blueprint the next target. Redirects to its rollout.
#[server(name = Commit, prefix = "/call", endpoint = "commit", output = AsJson)]
pub async fn commit(
    review: ReviewId,
    #[server(default)] name: String,
    #[server(default)] cancel: bool,
) -> ServerResult<BlueprintNumber> {
    let (request, actor) = signed_in()?;
    let typed = (!name.is_empty()).then_some(name);
    let committed =
        answer(request.control.commit(&actor, CommitInput { review, typed, cancel }).await).await?;
    leptos_axum::redirect(&crate::addresses::blueprint(committed));
    Ok(committed)
}
