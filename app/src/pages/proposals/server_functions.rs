//! Server functions of proposals, for boards, the page of a proposal on a node and previews.

use api::views::board::EditsPreview;
use api::views::node_proposal::ProposedNoderole;
use engine::cluster::NoderoleKey;
use engine::ids::{NodeId, ProposalId, ReviewId};
use engine::plan::Edit;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// Opens a proposal on a node. Redirects to its page.
#[server(name = ProposeOnNode, prefix = "/call", endpoint = "propose-on-node", output = AsJson)]
pub async fn propose_on_node(node: NodeId) -> ServerResult<ProposalId> {
    let (request, actor) = signed_in()?;
    let proposal = answer(request.control.propose_on_node(&actor, node).await).await?;
    leptos_axum::redirect(&crate::addresses::proposal(proposal));
    Ok(proposal)
}

/// A noderole as the open proposal would change it.
#[server(
    name = ReadProposedNoderole,
    prefix = "/call",
    endpoint = "proposed-noderole",
    input = AsJson,
    output = AsJson
)]
pub async fn proposed_noderole(
    proposal: ProposalId,
    node: NodeId,
    noderole: NoderoleKey,
) -> ServerResult<ProposedNoderole> {
    let (request, actor) = signed_in()?;
    answer(request.control.proposed_noderole(&actor, proposal, node, &noderole).await).await
}

/// Appends edits to a proposal: all or none. Returns the new version.
#[server(name = AppendEdits, prefix = "/call", endpoint = "edit", input = AsJson, output = AsJson)]
pub async fn edit(proposal: ProposalId, version: i32, edits: Vec<Edit>) -> ServerResult<i32> {
    let (request, actor) = signed_in()?;
    answer(request.control.edit(&actor, proposal, version, edits).await).await
}

/// A preview of a proposal with further edits, which are not saved.
#[server(
    name = PreviewEdits,
    prefix = "/call",
    endpoint = "preview-edits",
    input = AsJson,
    output = AsJson
)]
pub async fn preview_edits(proposal: ProposalId, edits: Vec<Edit>) -> ServerResult<EditsPreview> {
    let (request, actor) = signed_in()?;
    answer(request.control.preview_edits(&actor, proposal, edits).await).await
}

/// Undoes the last edit.
#[server(name = Undo, prefix = "/call", endpoint = "undo", output = AsJson)]
pub async fn undo(proposal: ProposalId, version: i32) -> ServerResult<i32> {
    let (request, actor) = signed_in()?;
    answer(request.control.undo(&actor, proposal, version).await).await
}

/// Redoes the last undone edit.
#[server(name = Redo, prefix = "/call", endpoint = "redo", output = AsJson)]
pub async fn redo(proposal: ProposalId, version: i32) -> ServerResult<i32> {
    let (request, actor) = signed_in()?;
    answer(request.control.redo(&actor, proposal, version).await).await
}

#[server(name = Discard, prefix = "/call", endpoint = "discard", output = AsJson)]
pub async fn discard(proposal: ProposalId, version: i32) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.discard(&actor, proposal, version).await).await
}

/// Submits a proposal. Redirects to the review.
#[server(name = Submit, prefix = "/call", endpoint = "submit", output = AsJson)]
pub async fn submit(proposal: ProposalId, version: i32, title: String) -> ServerResult<ReviewId> {
    let (request, actor) = signed_in()?;
    let review = answer(request.control.submit(&actor, proposal, version, title).await).await?;
    leptos_axum::redirect(&crate::addresses::review(review));
    Ok(review)
}
