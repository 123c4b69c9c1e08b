//! `/api/v1`: what programs ask, over the same use cases as the pages.
//!
//! Every handler is one call into [`control`]. Whoever asks is known by the session's cookie, or by a token (see
//! [`crate::session`]); a program with a cookie sends `X-Gantry: 1` with whatever changes something (see [`crate::guard`]). Refusals are problem details (RFC 9457).

use std::collections::BTreeMap;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use api::Problem;
use api::console::{
    Board, CatalogPage, Comparison, DOCUMENTS_SHOWN, DeploymentSummary, Discussion, Foreseen, LogFound, LogPart,
    NodePage, NodeWish, NoderoleView, Opened, Point, ProposalView, Restored, ReviewView, RunPage, RunView, ScopeView,
    SinceLook, TargetPage,
};
use api::reviews::{ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted};
use api::values::{ResultPage, ValuesView, ValuesWanted};
use api::waiting::{WaitingPage, WaitingWanted};
use control::{Imported, ToCommit};
use engine::Hash;
use engine::blueprint::{Anchor, Consequences};
use engine::gate::VerdictKind;
use engine::ids::{CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, RunId, SubmissionId, TargetNo};
use engine::plan::{Edit, Report};

use crate::machines::Machine;
use crate::refusal::{Asked, Given, Perhaps, Place, Refusal};
use crate::session::SignedIn;
use crate::state::AppState;
use crate::{limits, machines, people_rest};

pub(crate) type Answer<T> = Result<Json<T>, Refusal>;
pub(crate) type Made<T> = Result<(StatusCode, Json<T>), Refusal>;

pub(crate) fn routes() -> Router<AppState> {
    let import = post(import).layer(DefaultBodyLimit::max(limits::IMPORT_BODY));
    let paths = Router::new()
        .route("/deployments", get(deployments))
        .route("/deployments/{name}/board", get(board))
        .route("/deployments/{name}/proposals", post(propose))
        .route("/deployments/{name}/hold", post(hold))
        .route("/deployments/{name}/priority", post(prioritise))
        .route("/deployments/{name}/restore", post(restore))
        .route("/nodes/{id}/proposals", post(propose_on_node))
        .route("/nodes/{id}/results", get(results))
        .route("/proposals", get(proposals))
        .route("/proposals/{id}", get(proposal))
        .route("/proposals/{id}/edits", post(edit))
        .route("/proposals/{id}/undo", post(undo))
        .route("/proposals/{id}/redo", post(redo))
        .route("/proposals/{id}/discard", post(discard))
        .route("/proposals/{id}/submit", post(submit))
        .route("/submissions", get(reviews))
        .route("/submissions/{id}", get(review))
        .route("/submissions/{id}/difference", get(review_difference))
        .route("/submissions/{id}/consequences", get(consequences))
        .route("/submissions/{id}/verdicts", post(judge))
        .route("/submissions/{id}/commit", post(commit))
        .route("/submissions/{id}/discussion", get(discussion))
        .route("/submissions/{id}/threads", post(open_thread))
        .route("/submissions/{id}/since", get(since_look))
        .route("/submissions/{id}/opened", get(opened).post(open_changes))
        .route("/submissions/{id}/look", post(look))
        .route("/threads/{id}/replies", post(reply))
        .route("/threads/{id}/resolve", post(resolve))
        .route("/threads/{id}/reopen", post(reopen))
        .route("/targets", get(targets))
        .route("/targets/compare", get(compare))
        .route("/noderoles/{id}", get(noderole))
        .route("/noderoles/{id}/data", get(noderole_values))
        .route("/noderoles/{id}/retry", post(retry))
        .route("/runs", get(runs))
        .route("/runs/{id}", get(run))
        .route("/runs/{id}/data", get(run_values))
        .route("/runs/{id}/log", get(log))
        .route("/runs/{id}/log/search", get(search_log))
        .route("/runs/{id}/cancel", post(cancel))
        .route("/nodes", get(nodes).post(add_node))
        .route("/scripts/{hash}", get(script))
        .route("/waiting", get(waiting))
        .route("/execution", post(switch))
        .route("/proposals/{id}/foresee", post(foresee))
        .route("/proposals/{id}/report", get(report))
        .route("/submissions/{id}/report", get(review_report))
        .route("/barclamps", import.get(catalog));
    Router::new().nest("/api/v1", paths.merge(machines::routes()).merge(people_rest::routes()))
}

/// A proposal at a version.
#[derive(Debug, Serialize)]
struct AtVersion {
    version: i32,
}

/// A command that fits one version of a proposal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnVersion {
    version: i32,
}

/// Nothing to say but that it is done.
#[derive(Debug, Serialize)]
pub(crate) struct Done {}

async fn deployments(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Vec<DeploymentSummary>> {
    Ok(Json(state.control.deployments(&actor).await?))
}

async fn board(state: State<AppState>, SignedIn(actor): SignedIn, Place(name): Place<String>) -> Answer<Board> {
    Ok(Json(state.control.board(&actor, &name).await?))
}

#[derive(Debug, Serialize)]
struct Proposed {
    proposal: ProposalId,
}

async fn propose(state: State<AppState>, SignedIn(actor): SignedIn, Place(name): Place<String>) -> Made<Proposed> {
    let deployment = named(&state, &actor, &name).await?;
    let proposal = state.control.propose(&actor, deployment).await?;
    Ok((StatusCode::CREATED, Json(Proposed { proposal })))
}

async fn propose_on_node(state: State<AppState>, SignedIn(actor): SignedIn, Machine(node): Machine) -> Made<Proposed> {
    let proposal = state.control.propose_on_node(&actor, node).await?;
    Ok((StatusCode::CREATED, Json(Proposed { proposal })))
}

async fn proposals(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<ProposalsWanted>,
) -> Answer<ProposalPage> {
    Ok(Json(state.control.proposals(&actor, &wanted).await?))
}

/// An open proposal and what it may touch.
#[derive(Debug, Serialize)]
struct OpenProposal {
    scope: ScopeView,
    #[serde(flatten)]
    proposal: ProposalView,
}

async fn proposal(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
) -> Answer<OpenProposal> {
    let (scope, proposal) = state.control.proposal(&actor, id).await?;
    Ok(Json(OpenProposal { scope, proposal }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holding {
    held: bool,
    reason: String,
}

async fn hold(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Given(holding): Given<Holding>,
) -> Answer<Done> {
    let deployment = named(&state, &actor, &name).await?;
    state.control.hold(&actor, deployment, holding.held, holding.reason).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prioritising {
    priority: i32,
    reason: String,
}

async fn prioritise(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Given(wanted): Given<Prioritising>,
) -> Answer<Done> {
    let deployment = named(&state, &actor, &name).await?;
    state.control.prioritise(&actor, deployment, wanted.priority, wanted.reason).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restoring {
    target: TargetNo,
    /// Leaves out what can't be brought back.
    #[serde(default)]
    partial: bool,
}

async fn restore(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Given(restoring): Given<Restoring>,
) -> Made<Restored> {
    let restored = state.control.restore(&actor, &name, restoring.target, restoring.partial).await?;
    Ok((StatusCode::CREATED, Json(restored)))
}

async fn named(state: &AppState, actor: &control::people::Actor, name: &str) -> Result<DeploymentId, Problem> {
    let all = state.control.deployments(actor).await?;
    let found = all.into_iter().find(|deployment| deployment.name.as_str() == name);
    let shown: String = name.chars().take(96).collect();
    found.map(|deployment| deployment.id).ok_or_else(|| {
        Problem::not_found(format!("There is no deployment {shown}. GET /api/v1/deployments lists them."))
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edits {
    version: i32,
    edits: Vec<Edit>,
}

async fn edit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Given(given): Given<Edits>,
) -> Answer<AtVersion> {
    let version = state.control.edit(&actor, id, given.version, given.edits).await?;
    Ok(Json(AtVersion { version }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreseeing {
    edits: Vec<Edit>,
}

async fn foresee(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Given(given): Given<Foreseeing>,
) -> Answer<Foreseen> {
    Ok(Json(state.control.foresee(&actor, id, given.edits).await?))
}

async fn report(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<ProposalId>) -> Answer<Report> {
    Ok(Json(state.control.report(&actor, id).await?))
}

async fn review_report(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
) -> Answer<Report> {
    let report = state.control.review_report(&actor, id).await?;
    let why = "How it was planned is told for the newest version of an open proposal only.";
    Ok(Json(report.ok_or_else(|| Problem::conflict("not_planned", why))?))
}

async fn undo(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Given(on): Given<OnVersion>,
) -> Answer<AtVersion> {
    let version = state.control.undo(&actor, id, on.version).await?;
    Ok(Json(AtVersion { version }))
}

async fn redo(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Given(on): Given<OnVersion>,
) -> Answer<AtVersion> {
    let version = state.control.redo(&actor, id, on.version).await?;
    Ok(Json(AtVersion { version }))
}

async fn discard(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Given(on): Given<OnVersion>,
) -> Answer<Done> {
    state.control.discard(&actor, id, on.version).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Submitting {
    version: i32,
    title: String,
}

#[derive(Debug, Serialize)]
struct Submitted {
    submission: SubmissionId,
}

async fn submit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Given(given): Given<Submitting>,
) -> Made<Submitted> {
    let submission = state.control.submit(&actor, id, given.version, given.title).await?;
    Ok((StatusCode::CREATED, Json(Submitted { submission })))
}

async fn reviews(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<ReviewsWanted>,
) -> Answer<ReviewPage> {
    Ok(Json(state.control.reviews(&actor, &wanted).await?))
}

async fn review(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
) -> Answer<ReviewView> {
    Ok(Json(state.control.review(&actor, id).await?.cut(DOCUMENTS_SHOWN)))
}

async fn consequences(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
) -> Answer<Consequences> {
    Ok(Json(state.control.consequences(&actor, id).await?))
}

async fn opened(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<SubmissionId>) -> Answer<Opened> {
    Ok(Json(state.control.opened(&actor, id).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    anchors: Vec<Anchor>,
}

async fn open_changes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
    Given(opening): Given<Opening>,
) -> Answer<Opened> {
    Ok(Json(state.control.open_changes(&actor, id, opening.anchors).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    kind: VerdictKind,
    #[serde(default)]
    reason: String,
}

async fn judge(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
    Given(verdict): Given<Verdict>,
) -> Made<Done> {
    state.control.judge(&actor, id, verdict.kind, verdict.reason).await?;
    Ok((StatusCode::CREATED, Json(Done {})))
}

#[derive(Debug, Serialize)]
struct Committed {
    target: TargetNo,
}

/// The name that stands for a change that can't be undone; nothing for the others.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Committing {
    #[serde(default)]
    name: Option<String>,
    /// Ends the runs under way of steps that it changes.
    #[serde(default)]
    cancel: bool,
}

async fn commit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
    Perhaps(committing): Perhaps<Committing>,
) -> Made<Committed> {
    let what = ToCommit { submission: id, typed: committing.name, cancel: committing.cancel };
    let target = state.control.commit(&actor, what).await?;
    Ok((StatusCode::CREATED, Json(Committed { target })))
}

async fn discussion(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
) -> Answer<Discussion> {
    Ok(Json(state.control.discussion(&actor, id).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saying {
    /// Absent: it is about the change as a whole.
    #[serde(default)]
    anchor: String,
    body: String,
}

#[derive(Debug, Serialize)]
struct Said {
    comment: CommentId,
}

async fn open_thread(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
    Given(saying): Given<Saying>,
) -> Made<Said> {
    let anchor: Anchor = saying
        .anchor
        .parse()
        .map_err(|error: engine::blueprint::anchor::NotAnAnchor| Problem::invalid(error.to_string()))?;
    let comment = state.control.open_thread(&actor, id, anchor, saying.body).await?;
    Ok((StatusCode::CREATED, Json(Said { comment })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replying {
    body: String,
}

async fn reply(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<CommentId>,
    Given(replying): Given<Replying>,
) -> Made<Said> {
    let comment = state.control.reply(&actor, id, replying.body).await?;
    Ok((StatusCode::CREATED, Json(Said { comment })))
}

async fn resolve(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<CommentId>) -> Answer<Done> {
    state.control.resolve_thread(&actor, id, true).await?;
    Ok(Json(Done {}))
}

async fn reopen(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<CommentId>) -> Answer<Done> {
    state.control.resolve_thread(&actor, id, false).await?;
    Ok(Json(Done {}))
}

/// Where a list of documents goes on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behind {
    after: Option<Anchor>,
}

async fn since_look(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
    Asked(asked): Asked<Behind>,
) -> Answer<SinceLook> {
    Ok(Json(state.control.since_look(&actor, id).await?.page(asked.after.as_ref(), DOCUMENTS_SHOWN)?))
}

async fn look(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<SubmissionId>) -> Answer<Done> {
    state.control.look(&actor, id).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsWanted {
    before: Option<TargetNo>,
    deployment: Option<String>,
}

async fn targets(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<TargetsWanted>,
) -> Answer<TargetPage> {
    Ok(Json(state.control.targets(&actor, wanted.deployment.as_deref(), wanted.before).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    from: String,
    to: String,
    deployment: Option<String>,
    /// What a link can ask for, which has no say in the Accept header.
    #[serde(rename = "as")]
    form: Option<Form>,
    /// JSON goes on behind this document.
    after: Option<Anchor>,
}

/// How a difference is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    Text,
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InForm {
    #[serde(rename = "as")]
    form: Option<Form>,
    after: Option<Anchor>,
}

async fn compare(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(pair): Asked<Pair>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let (from, to, deployment) = (Point::named(&pair.from)?, Point::named(&pair.to)?, pair.deployment.as_deref());
    let found = state.control.compare(&actor, from, to, deployment).await?;
    compared(pair.form, &headers, found, pair.after.as_ref())
}

async fn review_difference(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<SubmissionId>,
    Asked(asked): Asked<InForm>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let found = state.control.review_difference(&actor, id).await?;
    compared(asked.form, &headers, found, asked.after.as_ref())
}

/// In the form that the address names; else as text for those who accept text alone, else as JSON. A text is the whole; JSON has so many
/// documents, and says behind which to go on.
fn compared(
    form: Option<Form>,
    headers: &HeaderMap,
    found: Comparison,
    after: Option<&Anchor>,
) -> Result<Response, Refusal> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let as_text = form.map_or(accepted.contains("text/plain") && !accepted.contains("json"), |form| form == Form::Text);
    let mut answer = match as_text {
        true => found.text().into_response(),
        false => Json(found.page(after, DOCUMENTS_SHOWN)?).into_response(),
    };
    answer.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    Ok(answer)
}

async fn noderole(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<NoderoleId>,
) -> Answer<NoderoleView> {
    Ok(Json(state.control.noderole(&actor, id).await?))
}

async fn noderole_values(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<NoderoleId>,
    Asked(wanted): Asked<ValuesWanted>,
) -> Answer<ValuesView> {
    Ok(Json(state.control.noderole_values(&actor, id, &wanted).await?))
}

async fn run_values(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
    Asked(wanted): Asked<ValuesWanted>,
) -> Answer<ValuesView> {
    Ok(Json(state.control.run_values(&actor, id, &wanted).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultsWanted {
    before: Option<RunId>,
}

async fn results(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(id): Machine,
    Asked(wanted): Asked<ResultsWanted>,
) -> Answer<ResultPage> {
    Ok(Json(state.control.results(&actor, id, wanted.before).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Because {
    reason: String,
}

async fn retry(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<NoderoleId>,
    Given(because): Given<Because>,
) -> Answer<Done> {
    state.control.retry(&actor, id, because.reason).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunsWanted {
    #[serde(default)]
    state: String,
    before: Option<RunId>,
}

async fn runs(state: State<AppState>, SignedIn(actor): SignedIn, Asked(wanted): Asked<RunsWanted>) -> Answer<RunPage> {
    Ok(Json(state.control.runs(&actor, wanted.state, wanted.before).await?))
}

async fn run(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<RunId>) -> Answer<RunView> {
    Ok(Json(state.control.run(&actor, id).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FromOffset {
    #[serde(default)]
    offset: i64,
}

async fn log(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
    Asked(from): Asked<FromOffset>,
) -> Answer<LogPart> {
    Ok(Json(state.control.log(&actor, id, from.offset).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LookedFor {
    text: String,
    #[serde(default)]
    any_case: bool,
    #[serde(default)]
    after: String,
}

async fn search_log(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
    Asked(wanted): Asked<LookedFor>,
) -> Answer<LogFound> {
    Ok(Json(state.control.search_log(&actor, id, &wanted.text, wanted.any_case, &wanted.after).await?))
}

/// A body that says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

async fn cancel(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
    Perhaps(_): Perhaps<Nothing>,
) -> Answer<Done> {
    state.control.cancel(&actor, id).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesWanted {
    #[serde(default)]
    filter: String,
    after: Option<String>,
}

async fn nodes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<NodesWanted>,
) -> Answer<NodePage> {
    Ok(Json(state.control.nodes(&actor, wanted.filter, wanted.after).await?))
}

#[derive(Debug, Serialize)]
struct Added {
    node: NodeId,
}

async fn add_node(state: State<AppState>, SignedIn(actor): SignedIn, Given(new): Given<NodeWish>) -> Made<Added> {
    let node = state.control.add_node(&actor, new).await?;
    Ok((StatusCode::CREATED, Json(Added { node })))
}

async fn waiting(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<WaitingWanted>,
) -> Answer<WaitingPage> {
    Ok(Json(state.control.waiting(&actor, &wanted).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switching {
    enabled: bool,
    reason: String,
}

async fn switch(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(switching): Given<Switching>,
) -> Made<Committed> {
    let target = state.control.switch(&actor, switching.enabled, switching.reason).await?;
    Ok((StatusCode::CREATED, Json(Committed { target })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    files: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionsWanted {
    after: Option<Hash>,
}

/// A script as plain text, whatever it is: a browser shows it and runs nothing.
async fn script(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(hash): Place<Hash>,
) -> Result<impl IntoResponse, Refusal> {
    let body = state.control.script(&actor, hash).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body))
}

async fn catalog(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<VersionsWanted>,
) -> Answer<CatalogPage> {
    Ok(Json(state.control.catalog(&actor, wanted.after).await?))
}

async fn import(state: State<AppState>, SignedIn(actor): SignedIn, Given(given): Given<Files>) -> Made<Imported> {
    let files = given.files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
    let imported = state.control.import_barclamps(Some(&actor), &files).await?;
    Ok((StatusCode::CREATED, Json(imported)))
}
