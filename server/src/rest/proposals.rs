//! `/api/v1/proposals`: edits, undo, preview, discard and submit.

use api::proposals::{ProposalPage, ProposalView, ProposalsQuery, ScopeView};
use api::views::board::EditsPreview;
use api::views::node_proposal::ProposedNoderole;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use engine::cluster::NoderoleKey;
use engine::ids::{NodeId, ProposalId, ReviewId};
use engine::plan::Edit;
use engine::report::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AppState;
use crate::http::contract::{Created, Operations, Versioned, op};
use crate::http::problems::{JsonBody, OptionalJson, PathParams, QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::named::PathNode;
use crate::rest::{
    Answer, CreatedWithLocation, EmptyObject, ExpectedProposalVersion, ProposalVersion, Success,
    agreed, outdated,
};

pub(crate) fn operations(all: Operations) -> Operations {
    all.post(
        "/nodes/{id}/proposals",
        propose_on_node,
        op("openNodeProposal", "Open a proposal for a node"),
    )
    .get("/proposals", proposals, op("listProposals", "List open proposals"))
    .get("/proposals/{id}", proposal, op("getProposal", "Get an open proposal").also(&[409]))
    .get(
        "/proposals/{id}/noderole",
        proposed_noderole,
        op("getProposedNoderole", "Get the data of a noderole in an open proposal").also(&[409]),
    )
    .post(
        "/proposals/{id}/edits",
        edit,
        op("editProposal", "Append edits to a proposal").on_version().also(&[422]),
    )
    .post(
        "/proposals/{id}/undo",
        undo,
        op("undoEdit", "Undo the edits of the last request").on_version().also(&[428]),
    )
    .post(
        "/proposals/{id}/redo",
        redo,
        op("redoEdit", "Redo the edits that were undone last").on_version().also(&[428]),
    )
    .post(
        "/proposals/{id}/discard",
        discard,
        op("discardProposal", "Discard a proposal").on_version().also(&[428]),
    )
    .post(
        "/proposals/{id}/submit",
        submit,
        op("submitProposal", "Submit a proposal for review").on_version(),
    )
    .post(
        "/proposals/{id}/preview",
        preview,
        op("previewEdits", "Preview the impact of edits").also(&[422]),
    )
    .get(
        "/proposals/{id}/report",
        report,
        op("getProposalReport", "Get the planning report of a proposal").also(&[409]),
    )
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProposedNoderoleQuery {
    node: NodeId,
    /// Role of the noderole. Use `app/1` for a second instance on the node.
    noderole: NoderoleKey,
}

async fn proposed_noderole(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    QueryParams(query): QueryParams<ProposedNoderoleQuery>,
) -> Answer<ProposedNoderole> {
    Ok(Json(state.control.proposed_noderole(&actor, id, query.node, &query.noderole).await?))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Proposed {
    pub proposal: ProposalId,
}

/// The response with the URL of a proposal, for all operations that open one.
pub(super) fn proposal_created<T>(proposal: ProposalId, made: T) -> Created<T> {
    Created(format!("/proposals/{proposal}"), made)
}

async fn propose_on_node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    OptionalJson(_): OptionalJson<EmptyObject>,
) -> CreatedWithLocation<Proposed> {
    let proposal = state.control.propose_on_node(&actor, node).await?;
    Ok(proposal_created(proposal, Proposed { proposal }))
}

async fn proposals(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<ProposalsQuery>,
) -> Answer<ProposalPage> {
    Ok(Json(state.control.proposals(&actor, &query).await?))
}

/// A new proposal and its scope.
#[derive(Debug, Serialize, JsonSchema)]
struct OpenProposal {
    scope: ScopeView,
    #[serde(flatten)]
    proposal: ProposalView,
}

async fn proposal(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
) -> Result<Versioned<OpenProposal>, Refusal> {
    let (scope, proposal) = state.control.proposal(&actor, id).await?;
    Ok(Versioned(proposal.version.into(), OpenProposal { scope, proposal }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edits {
    version: i32,
    edits: Vec<Edit>,
}

async fn edit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    headers: HeaderMap,
    JsonBody(given): JsonBody<Edits>,
) -> Answer<ProposalVersion> {
    let version = agreed(&headers, Some(given.version))?;
    let edited = state.control.edit(&actor, id, version, given.edits).await;
    let version = edited.map_err(outdated(&headers))?;
    Ok(Json(ProposalVersion { version }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PreviewRequest {
    edits: Vec<Edit>,
}

async fn preview(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    JsonBody(given): JsonBody<PreviewRequest>,
) -> Answer<EditsPreview> {
    Ok(Json(state.control.preview_edits(&actor, id, given.edits).await?))
}

async fn report(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
) -> Answer<Report> {
    Ok(Json(state.control.report(&actor, id).await?))
}

async fn undo(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    headers: HeaderMap,
    OptionalJson(on): OptionalJson<ExpectedProposalVersion>,
) -> Answer<ProposalVersion> {
    let done = state.control.undo(&actor, id, agreed(&headers, on.version)?).await;
    let version = done.map_err(outdated(&headers))?;
    Ok(Json(ProposalVersion { version }))
}

async fn redo(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    headers: HeaderMap,
    OptionalJson(on): OptionalJson<ExpectedProposalVersion>,
) -> Answer<ProposalVersion> {
    let done = state.control.redo(&actor, id, agreed(&headers, on.version)?).await;
    let version = done.map_err(outdated(&headers))?;
    Ok(Json(ProposalVersion { version }))
}

async fn discard(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    headers: HeaderMap,
    OptionalJson(on): OptionalJson<ExpectedProposalVersion>,
) -> Answer<Success> {
    let done = state.control.discard(&actor, id, agreed(&headers, on.version)?).await;
    done.map_err(outdated(&headers))?;
    Ok(Json(Success {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubmitRequest {
    version: i32,
    title: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Submitted {
    review: ReviewId,
}

async fn submit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ProposalId>,
    headers: HeaderMap,
    JsonBody(given): JsonBody<SubmitRequest>,
) -> CreatedWithLocation<Submitted> {
    let version = agreed(&headers, Some(given.version))?;
    let submitted = state.control.submit(&actor, id, version, given.title).await;
    let review = submitted.map_err(outdated(&headers))?;
    Ok(Created(format!("/reviews/{review}"), Submitted { review }))
}
