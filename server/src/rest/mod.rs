//! `/api/v1`: the REST API, over the same use cases as the pages.
//!
//! Every handler is one call into [`control`]. A session cookie or a token authenticates the client
//! ([`crate::http::session`]). A client with a cookie must send `X-Gantry: 1` with every change
//! ([`crate::http::guard`]). Errors are problem details (RFC 9457).

pub(crate) mod graphs;
pub(crate) mod nodes;
pub(crate) mod overview;
pub(crate) mod people;
pub(crate) mod second_factor;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use api::Problem;
use api::catalog::{
    ImportPage, ImportsWanted, RoleGraph, RoleGraphWanted, RolePage, RoleView, RoleWanted,
    RolesWanted,
};
use api::console::{
    Board, Carriers, CarriersWanted, CatalogPage, Comparison, DeploymentPage, Discussion,
    DraftedNoderole, Foreseen, LogFound, LogPart, MAX_DOCUMENTS, NodePage, NodeWish, NoderoleView,
    Opened, Point, ProposalView, Restored, ReviewView, RunPage, RunView, ScopeView, SinceLook,
    TargetPage,
};
use api::listing::{BarclampsWanted, DeploymentsWanted, NodesWanted, RunsWanted, TargetsWanted};
use api::nodes::AddedNodes;
use api::overview::DeploymentWay;
use api::people::{Signature, SignatureRequest};
use api::reviews::{ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted};
use api::values::{ResultLines, ResultsWanted, ValuesView, ValuesWanted};
use api::waiting::{WaitingPage, WaitingWanted};
use control::people::Permission;
use control::{Imported, ToCommit};
use engine::Hash;
use engine::blueprint::{Anchor, Consequences};
use engine::catalog::read::MAX_PRIORITY;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{BlueprintNumber, CommentId, NodeId, NoderoleId, ProposalId, ReviewId, RunId};
use engine::plan::{Edit, Report};

use crate::AppState;
use crate::http::contract::{self, Created, Operations, Versioned, op};
use crate::http::limits;
use crate::http::problems::{Asked, Given, Perhaps, Place, Refusal};
use crate::http::session::SignedIn;
use crate::live;
use crate::rest::nodes::Machine;

pub(crate) type Answer<T> = Result<Json<T>, Refusal>;
/// The response for a created resource without a URL of its own.
pub(crate) type CreatedResult<T> = Result<(StatusCode, Json<T>), Refusal>;
/// The response for a created resource with its URL.
pub(crate) type CreatedWithLocation<T> = Result<Created<T>, Refusal>;

/// The operations. Without a state, only for their list.
pub(crate) fn operations(state: Option<&AppState>) -> Operations {
    let all = Operations::of(state);
    let all =
        blueprint_operations(review_operations(proposal_operations(deployment_operations(all))));
    let all = second_factor::operations(all);
    people::operations(overview::operations(nodes::operations(graphs::operations(
        run_operations(all),
    ))))
    .get("/nodes", nodes, op("listNodes", "List nodes"))
    .post("/nodes", add_node, op("addNode", "Add a node to the inventory"))
    .post(
        "/nodes/many",
        add_nodes,
        op("addNodes", "Add several nodes to the inventory").about(
            "`text` contains one node per line: its name, then fields, for example \
             `web-7.rack1.example.com root=/srv/nodes/web-7`. docs/nodes.md lists all fields. If a \
             line is invalid, no node is added, and `errors` lists the invalid lines.",
        ),
    )
    .get(
        "/waiting",
        waiting,
        op("listWaiting", "List pending steps").about(
            "Steps are grouped by pending reason. Within a reason, the steps that have been \
             pending longest come first. With `sort=-since`, the newest come first. Each response \
             covers the first 10,000 steps of each state in this order. If `more` is true, a count \
             covers only these steps. A reason is missing from `groups` if all of its steps come \
             later.",
        ),
    )
    .post("/execution", switch, op("switchExecution", "Turn execution on or off"))
    .get("/barclamps", catalog, op("listBarclamps", "List imported barclamps"))
    .post(
        "/barclamps",
        import,
        op("importBarclamps", "Import barclamps").body(limits::MAX_IMPORT_BYTES).also(&[422]).about(
            "Adds the content of the files to the catalog. Running steps do not change. The keys \
             of `files` are paths. A script must be next to the file of its barclamp.",
        ),
    )
    .get("/roles", roles, op("listRoles", "List roles"))
    .get("/roles/{name}", role, op("getRole", "Get a role"))
    .get("/catalog/graph", role_graph, op("getRoleGraph", "Get the dependency graph of roles"))
    .get("/imports", imports, op("listImports", "List import reports"))
    .get(
        "/scripts/{hash}",
        script,
        op("getScript", "Get a script of a role").content(&["text/plain"]),
    )
    .get(
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

fn deployment_operations(all: Operations) -> Operations {
    all.get("/deployments", deployments, op("listDeployments", "List deployments"))
        .get("/deployments/{name}/board", board, op("getBoard", "Get the board of a deployment"))
        .get(
            "/deployments/{name}/way",
            way,
            op("getDeploymentWay", "Get the progress of a deployment").about(
                "A deployment is stuck by the same rule as a target: all remaining steps wait for \
                 a person. `GET /api/v1/waiting?deployment=` returns the reasons.",
            ),
        )
        .get(
            "/deployments/{name}/carriers",
            carriers,
            op("getCarriers", "List the nodes that have a role").also(&[409]).about(
                "If the last row of a page was removed, the request for the next page \
                    returns 409 `moved`. Start again with the first page.",
            ),
        )
        .post(
            "/deployments/{name}/proposals",
            propose,
            op("openProposal", "Open a proposal for a deployment, or return the open one"),
        )
        .post(
            "/deployments/{name}/hold",
            hold,
            op("holdDeployment", "Put a deployment on hold, or end the hold"),
        )
        .post(
            "/deployments/{name}/priority",
            prioritise,
            op("prioritiseDeployment", "Set the priority of a deployment"),
        )
        .post(
            "/deployments/{name}/restore",
            restore,
            op("restoreDeployment", "Propose to restore a deployment from a target"),
        )
}

fn proposal_operations(all: Operations) -> Operations {
    all.post(
        "/nodes/{id}/proposals",
        propose_on_node,
        op("openNodeProposal", "Open a proposal for a node"),
    )
    .get("/proposals", proposals, op("listProposals", "List open proposals"))
    .get("/proposals/{id}", proposal, op("getProposal", "Get an open proposal").also(&[409]))
    .get(
        "/proposals/{id}/noderole",
        drafted,
        op("getDraftedNoderole", "Get the data of a noderole in an open proposal").also(&[409]),
    )
    .post(
        "/proposals/{id}/edits",
        edit,
        op("editProposal", "Append edits to a proposal").on_version().also(&[422]),
    )
    .post(
        "/proposals/{id}/undo",
        undo,
        op("undoEdit", "Undo the last edit").on_version().also(&[428]),
    )
    .post(
        "/proposals/{id}/redo",
        redo,
        op("redoEdit", "Redo the last undone edit").on_version().also(&[428]),
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
        "/proposals/{id}/foresee",
        foresee,
        op("foreseeEdits", "Preview the impact of edits").also(&[422]),
    )
    .get(
        "/proposals/{id}/report",
        report,
        op("getProposalReport", "Get the planning report of a proposal").also(&[409]),
    )
}

fn review_operations(all: Operations) -> Operations {
    const DIFFERENCE: &[&str] = &["application/json", "text/plain"];
    all.get("/submissions", reviews, op("listSubmissions", "List reviews"))
        .get("/submissions/{id}", review, op("getSubmission", "Get a review"))
        .get("/submissions/{id}/difference", review_difference, op("getSubmissionDifference", "Get \
            the changes of a review").content(DIFFERENCE))
        .get("/submissions/{id}/consequences", consequences, op("getConsequences", "Get the impact \
            of a review"))
        .get("/submissions/{id}/report", review_report, op("getSubmissionReport", "Get the \
            planning report of a review").also(&[409]))
        .post("/submissions/{id}/verdicts", judge, op("giveVerdict", "Give a verdict on a review"))
        .post(
            "/submissions/{id}/verdicts/options",
            verdict_options,
            op("getVerdictOptions", "Get the WebAuthn options to sign a verdict").about(
                "Pass the options to navigator.credentials.get in the browser. Send the nonce and \
                 the result as the signature of the verdict. The signature covers the change, its \
                 base, its policy, its risks and its authors.",
            ),
        )
        .post("/submissions/{id}/commit", commit, op("commitSubmission", "Commit a review").also(&[422]).about(
            "The gate must be open. The response contains the new target. `Location` is the URL of \
             its progress.",
        ))
        .get("/submissions/{id}/discussion", discussion, op("getDiscussion", "Get the discussion \
            of a review"))
        .post("/submissions/{id}/threads", open_thread, op("openThread", "Start a thread on a \
            review"))
        .get("/submissions/{id}/since", since_look, op("getSinceLook", "Compare a review with the \
            one that you last viewed"))
        .get("/submissions/{id}/opened", opened, op("getOpened", "List the changes of a review \
            that you viewed"))
        .post("/submissions/{id}/opened", open_changes, op("openChanges", "Mark changes of a \
            review as viewed"))
        .post("/submissions/{id}/look", look, op("lookAtSubmission", "Mark a review as viewed"))
        .post("/threads/{id}/replies", reply, op("replyToThread", "Reply to a thread"))
        .post("/threads/{id}/resolve", resolve, op("resolveThread", "Resolve a thread"))
        .post("/threads/{id}/reopen", reopen, op("reopenThread", "Reopen a thread"))
}

fn blueprint_operations(all: Operations) -> Operations {
    const DIFFERENCE: &[&str] = &["application/json", "text/plain"];
    all.get("/targets", targets, op("listTargets", "List targets")).get(
        "/targets/compare",
        compare,
        op("compareTargets", "Compare two targets").content(DIFFERENCE),
    )
}

fn run_operations(all: Operations) -> Operations {
    all.get("/noderoles/{id}", noderole, op("getNoderole", "Get a noderole"))
        .get(
            "/noderoles/{id}/data",
            noderole_values,
            op("getNoderoleData", "Get the data that a run of a noderole would get now"),
        )
        .post("/noderoles/{id}/retry", retry, op("retryNoderole", "Retry a failed noderole"))
        .get("/nodes/{id}/results", results, op("listResults", "List the stored results of a node"))
        .get("/runs", runs, op("listRuns", "List runs"))
        .get("/runs/{id}", run, op("getRun", "Get a run"))
        .get("/runs/{id}/data", run_values, op("getRunData", "Get the data that a run got"))
        .get("/runs/{id}/log", log, op("getRunLog", "Get a part of a run's log"))
        .get("/runs/{id}/log/search", search_log, op("searchRunLog", "Search a run's log"))
        .post("/runs/{id}/cancel", cancel, op("cancelRun", "Cancel a run"))
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
fn agreed(headers: &HeaderMap, version: Option<i32>) -> Result<i32, Problem> {
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
            "version_wanted",
            "Version required",
            "Send the version of the proposal that you fetched: If-Match: \"3\", or {\"version\": \
             3} in the body. The version protects changes by other people.",
        )),
        (Some(version), _) | (None, Some(version)) => Ok(version),
    }
}

/// A proposal at a version.
#[derive(Debug, Serialize, JsonSchema)]
struct AtVersion {
    version: i32,
}

/// Change of one version of a proposal.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OnVersion {
    /// Expected version of the proposal. Optional if `If-Match` names it.
    #[serde(default)]
    version: Option<i32>,
}

/// Success without further data.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Done {}

async fn deployments(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<DeploymentsWanted>,
) -> Answer<DeploymentPage> {
    Ok(Json(state.control.find_deployments(&actor, &wanted).await?))
}

async fn board(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
) -> Answer<Board> {
    Ok(Json(state.control.board(&actor, &name).await?))
}

async fn way(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
) -> Answer<DeploymentWay> {
    Ok(Json(state.control.deployment_progress(&actor, &name).await?))
}

async fn carriers(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Asked(wanted): Asked<CarriersWanted>,
) -> Answer<Carriers> {
    Ok(Json(state.control.find_role_noderoles(&actor, &name, &wanted).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DraftNoderoleQuery {
    node: NodeId,
    /// Role of the noderole. Use `app/1` for a second instance on the node.
    noderole: NoderoleKey,
}

async fn drafted(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    Asked(wanted): Asked<DraftNoderoleQuery>,
) -> Answer<DraftedNoderole> {
    Ok(Json(state.control.drafted(&actor, id, wanted.node, &wanted.noderole).await?))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Proposed {
    proposal: ProposalId,
}

/// The response with the URL of a proposal, for all operations that open one.
fn proposal_created<T>(proposal: ProposalId, made: T) -> Created<T> {
    Created(format!("/proposals/{proposal}"), made)
}

async fn propose(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Perhaps(_): Perhaps<Nothing>,
) -> CreatedWithLocation<Proposed> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    let proposal = state.control.propose(&actor, deployment).await?;
    Ok(proposal_created(proposal, Proposed { proposal }))
}

async fn propose_on_node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(node): Machine,
    Perhaps(_): Perhaps<Nothing>,
) -> CreatedWithLocation<Proposed> {
    let proposal = state.control.propose_on_node(&actor, node).await?;
    Ok(proposal_created(proposal, Proposed { proposal }))
}

async fn proposals(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<ProposalsWanted>,
) -> Answer<ProposalPage> {
    Ok(Json(state.control.proposals(&actor, &wanted).await?))
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
    Place(id): Place<ProposalId>,
) -> Result<Versioned<OpenProposal>, Refusal> {
    let (scope, proposal) = state.control.proposal(&actor, id).await?;
    Ok(Versioned(proposal.version.into(), OpenProposal { scope, proposal }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Holding {
    held: bool,
    #[schemars(length(min = 1, max = 1000))]
    reason: String,
}

async fn hold(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Given(holding): Given<Holding>,
) -> Answer<Done> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    state.control.hold(&actor, deployment, holding.held, holding.reason).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Prioritising {
    #[serde(deserialize_with = "priority")]
    #[schemars(range(min = -MAX_PRIORITY, max = MAX_PRIORITY))]
    priority: i32,
    #[schemars(length(min = 1, max = 1000))]
    reason: String,
}

/// A number that is far out of range gets an error with the range of priorities, not of integers.
fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let in_range = number.as_i64().and_then(|number| i32::try_from(number).ok());
    in_range.ok_or_else(|| {
        D::Error::custom(format!(
            "the priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        ))
    })
}

async fn prioritise(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Given(wanted): Given<Prioritising>,
) -> Answer<Done> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    state.control.prioritise(&actor, deployment, wanted.priority, wanted.reason).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Restoring {
    target: BlueprintNumber,
    /// Skip parts that can't be restored, instead of failing.
    #[serde(default)]
    partial: bool,
}

async fn restore(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Given(restoring): Given<Restoring>,
) -> CreatedWithLocation<Restored> {
    let restored =
        state.control.restore(&actor, &name, restoring.target, restoring.partial).await?;
    Ok(proposal_created(restored.proposal, restored))
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
    Place(id): Place<ProposalId>,
    headers: HeaderMap,
    Given(given): Given<Edits>,
) -> Answer<AtVersion> {
    let version =
        state.control.edit(&actor, id, agreed(&headers, Some(given.version))?, given.edits).await?;
    Ok(Json(AtVersion { version }))
}

#[derive(Debug, Deserialize, JsonSchema)]
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

async fn report(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
) -> Answer<Report> {
    Ok(Json(state.control.report(&actor, id).await?))
}

async fn review_report(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
) -> Answer<Report> {
    let report = state.control.review_report(&actor, id).await?;
    let why = "Only the newest version of an open proposal has a planning report. Open the newest \
        review of the proposal.";
    Ok(Json(report.ok_or_else(|| Problem::conflict("not_planned", why))?))
}

async fn undo(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    headers: HeaderMap,
    Perhaps(on): Perhaps<OnVersion>,
) -> Answer<AtVersion> {
    let version = state.control.undo(&actor, id, agreed(&headers, on.version)?).await?;
    Ok(Json(AtVersion { version }))
}

async fn redo(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    headers: HeaderMap,
    Perhaps(on): Perhaps<OnVersion>,
) -> Answer<AtVersion> {
    let version = state.control.redo(&actor, id, agreed(&headers, on.version)?).await?;
    Ok(Json(AtVersion { version }))
}

async fn discard(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    headers: HeaderMap,
    Perhaps(on): Perhaps<OnVersion>,
) -> Answer<Done> {
    state.control.discard(&actor, id, agreed(&headers, on.version)?).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Submitting {
    version: i32,
    title: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Submitted {
    submission: ReviewId,
}

async fn submit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ProposalId>,
    headers: HeaderMap,
    Given(given): Given<Submitting>,
) -> CreatedWithLocation<Submitted> {
    let submission = state
        .control
        .submit(&actor, id, agreed(&headers, Some(given.version))?, given.title)
        .await?;
    Ok(Created(format!("/submissions/{submission}"), Submitted { submission }))
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
    Place(id): Place<ReviewId>,
) -> Answer<ReviewView> {
    Ok(Json(state.control.review(&actor, id).await?.cut(MAX_DOCUMENTS)))
}

async fn consequences(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
) -> Answer<Consequences> {
    Ok(Json(state.control.consequences(&actor, id).await?))
}

async fn opened(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
) -> Answer<Opened> {
    Ok(Json(state.control.opened(&actor, id).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Opening {
    anchors: Vec<Anchor>,
}

async fn open_changes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    Given(opening): Given<Opening>,
) -> Answer<Opened> {
    Ok(Json(state.control.open_changes(&actor, id, opening.anchors).await?))
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

async fn judge(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    Given(verdict): Given<Verdict>,
) -> CreatedResult<Done> {
    state
        .control
        .give_signed_verdict(&actor, id, verdict.kind, verdict.reason, verdict.signature)
        .await?;
    Ok((StatusCode::CREATED, Json(Done {})))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToSign {
    kind: VerdictKind,
}

async fn verdict_options(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    headers: HeaderMap,
    Given(input): Given<ToSign>,
) -> Answer<SignatureRequest> {
    // A missing permission takes precedence over the error about passkeys and the site.
    actor.require_in_person()?;
    actor.require(Permission::Viewer)?;
    let site = state.address.site(&headers)?;
    Ok(Json(state.control.verdict_options(&actor, &site, id, input.kind).await?))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Committed {
    target: BlueprintNumber,
}

/// The response with the URL of a target's rollout.
fn followed(target: BlueprintNumber) -> Created<Committed> {
    Created(format!("/targets/{target}"), Committed { target })
}

/// Options of a commit. If the change can't be undone, `name` must be the name of the affected
/// deployment or node.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Committing {
    #[serde(default)]
    name: Option<String>,
    /// Cancel running steps that this change replaces.
    #[serde(default)]
    cancel: bool,
}

async fn commit(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    Perhaps(committing): Perhaps<Committing>,
) -> CreatedWithLocation<Committed> {
    let what = ToCommit { submission: id, typed: committing.name, cancel: committing.cancel };
    Ok(followed(state.control.commit(&actor, what).await?))
}

async fn discussion(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
) -> Answer<Discussion> {
    Ok(Json(state.control.discussion(&actor, id).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Saying {
    /// Part of the review that the comment is about. Default: the whole review.
    #[serde(default)]
    anchor: String,
    #[schemars(length(min = 1))]
    body: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Said {
    comment: CommentId,
}

async fn open_thread(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    Given(saying): Given<Saying>,
) -> CreatedResult<Said> {
    let anchor: Anchor =
        saying.anchor.parse().map_err(|error: engine::blueprint::anchor::NotAnAnchor| {
            Problem::invalid(error.to_string())
        })?;
    let comment = state.control.open_thread(&actor, id, anchor, saying.body).await?;
    Ok((StatusCode::CREATED, Json(Said { comment })))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replying {
    #[schemars(length(min = 1))]
    body: String,
}

async fn reply(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<CommentId>,
    Given(input): Given<Replying>,
) -> CreatedResult<Said> {
    let comment = state.control.reply(&actor, id, input.body).await?;
    Ok((StatusCode::CREATED, Json(Said { comment })))
}

async fn resolve(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<CommentId>,
) -> Answer<Done> {
    state.control.resolve_thread(&actor, id, true).await?;
    Ok(Json(Done {}))
}

async fn reopen(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<CommentId>,
) -> Answer<Done> {
    state.control.resolve_thread(&actor, id, false).await?;
    Ok(Json(Done {}))
}

/// Cursor of a list of documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Behind {
    after: Option<Anchor>,
}

async fn since_look(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    Asked(asked): Asked<Behind>,
) -> Answer<SinceLook> {
    Ok(Json(state.control.since_look(&actor, id).await?.page(asked.after.as_ref(), MAX_DOCUMENTS)?))
}

async fn look(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
) -> Answer<Done> {
    state.control.look(&actor, id).await?;
    Ok(Json(Done {}))
}

async fn targets(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<TargetsWanted>,
) -> Answer<TargetPage> {
    Ok(Json(state.control.targets(&actor, &wanted).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CompareQuery {
    from: String,
    to: String,
    deployment: Option<String>,
    /// Format of the response. For links, which can't set an `Accept` header.
    #[serde(rename = "as")]
    form: Option<Form>,
    /// Return documents after this one (JSON only).
    after: Option<Anchor>,
}

/// Format of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Form {
    Text,
    Json,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReviewDifferenceQuery {
    #[serde(rename = "as")]
    form: Option<Form>,
    after: Option<Anchor>,
}

async fn compare(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(pair): Asked<CompareQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let (from, to, deployment) =
        (Point::named(&pair.from)?, Point::named(&pair.to)?, pair.deployment.as_deref());
    let found = state.control.compare(&actor, from, to, deployment).await?;
    compared(pair.form, &headers, found, pair.after.as_ref())
}

async fn review_difference(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<ReviewId>,
    Asked(asked): Asked<ReviewDifferenceQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let found = state.control.review_difference(&actor, id).await?;
    compared(asked.form, &headers, found, asked.after.as_ref())
}

/// Returns the format named in the URL. Without one, text if the client accepts only text, and JSON
/// otherwise. Text is complete. JSON is paged by document.
fn compared(
    form: Option<Form>,
    headers: &HeaderMap,
    found: Comparison,
    after: Option<&Anchor>,
) -> Result<Response, Refusal> {
    let accepted =
        headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let as_text = form
        .map_or(accepted.contains("text/plain") && !accepted.contains("json"), |form| {
            form == Form::Text
        });
    let mut answer = match as_text {
        true => found.text().into_response(),
        false => Json(found.page(after, MAX_DOCUMENTS)?).into_response(),
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

async fn results(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(id): Machine,
    Asked(wanted): Asked<ResultsWanted>,
) -> Answer<ResultLines> {
    Ok(Json(state.control.results(&actor, id, &wanted).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Because {
    #[schemars(length(min = 1, max = 1000))]
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

async fn runs(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<RunsWanted>,
) -> Answer<RunPage> {
    Ok(Json(state.control.find_runs(&actor, &wanted).await?))
}

async fn run(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
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
    Place(id): Place<RunId>,
    Asked(from): Asked<LogQuery>,
) -> Answer<LogPart> {
    Ok(Json(state.control.log(&actor, id, from.offset).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogSearchQuery {
    #[schemars(length(min = 1, max = 200))]
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
    Asked(wanted): Asked<LogSearchQuery>,
) -> Answer<LogFound> {
    Ok(Json(
        state.control.search_log(&actor, id, &wanted.text, wanted.any_case, &wanted.after).await?,
    ))
}

/// An empty object.
#[derive(Debug, Default, Deserialize, JsonSchema)]
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

async fn nodes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<NodesWanted>,
) -> Answer<NodePage> {
    Ok(Json(state.control.find_nodes(&actor, &wanted).await?))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Added {
    node: NodeId,
}

async fn add_node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(new): Given<NodeWish>,
) -> CreatedWithLocation<Added> {
    let node = state.control.add_node(&actor, new).await?;
    Ok(Created(format!("/nodes/{node}"), Added { node }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Inventory {
    /// Node list with one node per line.
    text: String,
}

async fn add_nodes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(inventory): Given<Inventory>,
) -> CreatedResult<AddedNodes> {
    Ok((StatusCode::CREATED, Json(state.control.add_nodes(&actor, &inventory.text).await?)))
}

async fn waiting(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<WaitingWanted>,
) -> Answer<WaitingPage> {
    Ok(Json(state.control.waiting(&actor, &wanted).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Switching {
    enabled: bool,
    #[schemars(length(min = 1, max = 1000))]
    reason: String,
}

async fn switch(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(input): Given<Switching>,
) -> CreatedWithLocation<Committed> {
    Ok(followed(state.control.switch(&actor, input.enabled, input.reason).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Files {
    files: BTreeMap<String, String>,
}

/// Returns any script as plain text, so that a browser shows it and executes nothing.
async fn script(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(hash): Place<Hash>,
) -> Result<Response, Refusal> {
    let body = state.control.script(&actor, hash).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

async fn catalog(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<BarclampsWanted>,
) -> Answer<CatalogPage> {
    Ok(Json(state.control.find_barclamps(&actor, &wanted).await?))
}

async fn roles(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<RolesWanted>,
) -> Answer<RolePage> {
    Ok(Json(state.control.roles(&actor, &wanted).await?))
}

async fn role(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Asked(wanted): Asked<RoleWanted>,
) -> Answer<RoleView> {
    Ok(Json(state.control.role(&actor, &name, &wanted).await?))
}

async fn role_graph(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<RoleGraphWanted>,
) -> Answer<RoleGraph> {
    Ok(Json(state.control.role_graph(&actor, &wanted).await?))
}

async fn imports(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<ImportsWanted>,
) -> Answer<ImportPage> {
    Ok(Json(state.control.imports(&actor, &wanted).await?))
}

async fn import(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(given): Given<Files>,
) -> CreatedResult<Imported> {
    let files = given.files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
    let imported = state.control.import_barclamps(Some(&actor), &files).await?;
    Ok((StatusCode::CREATED, Json(imported)))
}
