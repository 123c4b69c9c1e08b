//! Server functions: the calls of the pages to the server.
//!
//! Each is a public endpoint and makes no decisions. It calls a use case of [`control`] as the actor
//! of the request, and the use case checks the permissions. Commands whose arguments fit a form
//! accept a form, so that they work without JavaScript. The others accept JSON.
#![expect(
    missing_docs,
    reason = "the macro generates a struct from the arguments of each function"
)]
#![expect(clippy::too_many_arguments, reason = "each field of a form is one argument")]

pub mod oversight;
pub mod people;

use api::catalog::{
    ImportPage, ImportsWanted, RoleGraph, RoleGraphWanted, RolePage, RoleView, RoleWanted,
    RolesWanted,
};
use api::console::{
    Board, Carriers, CatalogPage, Comparison, DeploymentPage, Discussion, DraftedNoderole,
    DropPreview, Foreseen, Frame, GraphView, GraphWish, LogFound, LogPart, NodePage, NodeProposal,
    NoderoleView, Opened, PlannerView, Restored, ReviewView, RunPage, RunView, SinceLook,
    TargetPage,
};
#[cfg(feature = "ssr")]
use api::console::{MAX_DOCUMENTS, NodeWish, Point, SshWish};
use api::listing::{BarclampsWanted, DeploymentsWanted, NodesWanted, RunsWanted, TargetsWanted};
use api::nodes::{CarriedPage, CarriedWanted, LookPage, LooksWanted, MintedToken, NodeView};
#[cfg(feature = "ssr")]
use api::nodes::{NodeChange, WayChange};
use api::overview::PolicyView;
use api::people::{Signature, SignatureRequest};
use api::reviews::{ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted};
use api::values::{ResultLines, ResultsWanted, ValuesView, ValuesWanted};
use api::waiting::{WaitingPage, WaitingWanted};
#[cfg(feature = "ssr")]
use control::people::Permission;
#[cfg(feature = "ssr")]
use control::{Lost, ToCommit};
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, ReviewId, RoleName,
    RunId,
};
use engine::plan::{Edit, Report};
use leptos::prelude::*;
use uuid::Uuid;

use crate::failure::ServerResult;
use crate::wire::AsJson;

#[cfg(feature = "ssr")]
use crate::fields::{number, several};
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, request, signed_in};
#[cfg(feature = "ssr")]
use crate::respond;

#[server(name = ReadFrame, prefix = "/call", endpoint = "frame", input = AsJson, output = AsJson)]
pub async fn frame() -> ServerResult<Option<Frame>> {
    let request = request()?;
    let Some(actor) = &request.actor else { return Ok(None) };
    answer(request.control.frame(actor).await.map(Some)).await
}

#[server(name = ReadDeployments, prefix = "/call", endpoint = "deployments", input = AsJson, output = AsJson)]
pub async fn deployments(wanted: DeploymentsWanted) -> ServerResult<DeploymentPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_deployments(&actor, &wanted).await).await
}

#[server(name = ReadBoard, prefix = "/call", endpoint = "board", input = AsJson, output = AsJson)]
pub async fn board(deployment: String) -> ServerResult<Board> {
    let (request, actor) = signed_in()?;
    answer(request.control.board(&actor, &deployment).await).await
}

/// All nodes with a role of a board.
#[server(name = ReadNodesWithRole, prefix = "/call", endpoint = "carriers", input = AsJson, output = AsJson)]
pub async fn carriers(
    deployment: String,
    of_ancestor: Option<String>,
    role: RoleName,
) -> ServerResult<Carriers> {
    let (request, actor) = signed_in()?;
    answer(request.control.carriers(&actor, &deployment, of_ancestor.as_deref(), &role).await).await
}

/// The actions that the open proposal allows for these nodes.
#[server(name = ReadBindOptions, prefix = "/call", endpoint = "lift", input = AsJson, output = AsJson)]
pub async fn lift(deployment: DeploymentId, nodes: Vec<NodeId>) -> ServerResult<DropPreview> {
    let (request, actor) = signed_in()?;
    answer(request.control.lift(&actor, deployment, nodes).await).await
}

/// The data that the browser needs to plan. See [`crate::pages::board`].
#[server(name = ReadPlanner, prefix = "/call", endpoint = "planner", input = AsJson, output = AsJson)]
pub async fn planner(
    deployment: DeploymentId,
    known: Option<String>,
) -> ServerResult<Option<PlannerView>> {
    let (request, actor) = signed_in()?;
    answer(request.control.planner(&actor, deployment, known.as_deref()).await).await
}

#[server(name = ReadNoderole, prefix = "/call", endpoint = "noderole", input = AsJson, output = AsJson)]
pub async fn noderole(id: NoderoleId) -> ServerResult<NoderoleView> {
    let (request, actor) = signed_in()?;
    answer(request.control.noderole(&actor, id).await).await
}

/// The input of the noderole's next run, or the values that the noderole itself sets.
#[server(name = ReadNoderoleValues, prefix = "/call", endpoint = "noderole_values", input = AsJson, output = AsJson)]
pub async fn noderole_values(id: NoderoleId, wanted: ValuesWanted) -> ServerResult<ValuesView> {
    let (request, actor) = signed_in()?;
    answer(request.control.noderole_values(&actor, id, &wanted).await).await
}

/// The input of a run.
#[server(name = ReadRunValues, prefix = "/call", endpoint = "run_values", input = AsJson, output = AsJson)]
pub async fn run_values(id: RunId, wanted: ValuesWanted) -> ServerResult<ValuesView> {
    let (request, actor) = signed_in()?;
    answer(request.control.run_values(&actor, id, &wanted).await).await
}

#[server(name = ReadNodes, prefix = "/call", endpoint = "nodes", input = AsJson, output = AsJson)]
pub async fn nodes(wanted: NodesWanted) -> ServerResult<NodePage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_nodes(&actor, &wanted).await).await
}

#[server(name = ReadRuns, prefix = "/call", endpoint = "runs", input = AsJson, output = AsJson)]
pub async fn runs(wanted: RunsWanted) -> ServerResult<RunPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_runs(&actor, &wanted).await).await
}

#[server(name = ReadPending, prefix = "/call", endpoint = "waiting", input = AsJson, output = AsJson)]
pub async fn waiting(wanted: WaitingWanted) -> ServerResult<WaitingPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.waiting(&actor, &wanted).await).await
}

#[server(name = ReadRun, prefix = "/call", endpoint = "run", input = AsJson, output = AsJson)]
pub async fn run(id: RunId) -> ServerResult<RunView> {
    let (request, actor) = signed_in()?;
    answer(request.control.run(&actor, id).await).await
}

#[server(name = ReadLog, prefix = "/call", endpoint = "log", input = AsJson, output = AsJson)]
pub async fn log(id: RunId, offset: i64) -> ServerResult<LogPart> {
    let (request, actor) = signed_in()?;
    answer(request.control.log(&actor, id, offset).await).await
}

/// Lines of a run's log that contain a text.
#[server(name = SearchLog, prefix = "/call", endpoint = "search_log", input = AsJson, output = AsJson)]
pub async fn search_log(
    id: RunId,
    text: String,
    any_case: bool,
    after: String,
) -> ServerResult<LogFound> {
    let (request, actor) = signed_in()?;
    answer(request.control.search_log(&actor, id, &text, any_case, &after).await).await
}

#[server(name = ReadReviews, prefix = "/call", endpoint = "reviews", input = AsJson, output = AsJson)]
pub async fn reviews(wanted: ReviewsWanted) -> ServerResult<ReviewPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.reviews(&actor, &wanted).await).await
}

#[server(name = ReadProposals, prefix = "/call", endpoint = "proposals", input = AsJson, output = AsJson)]
pub async fn proposals(wanted: ProposalsWanted) -> ServerResult<ProposalPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.proposals(&actor, &wanted).await).await
}

/// A review, with the documents after `after`, or the first ones.
#[server(name = ReadReview, prefix = "/call", endpoint = "review", input = AsJson, output = AsJson)]
pub async fn review(id: ReviewId, after: Option<Anchor>) -> ServerResult<ReviewView> {
    let (request, actor) = signed_in()?;
    let review = answer(request.control.review(&actor, id).await).await?;
    answer(review.page(after.as_ref(), MAX_DOCUMENTS)).await
}

#[server(name = ReadGraph, prefix = "/call", endpoint = "graph", input = AsJson, output = AsJson)]
pub async fn graph(deployment: String, wish: GraphWish) -> ServerResult<GraphView> {
    let (request, actor) = signed_in()?;
    answer(request.control.graph(&actor, &deployment, &wish, Lost::Note).await).await
}

#[server(name = ReadReviewGraph, prefix = "/call", endpoint = "review_graph", input = AsJson, output = AsJson)]
pub async fn review_graph(id: ReviewId, wish: GraphWish) -> ServerResult<GraphView> {
    let (request, actor) = signed_in()?;
    answer(request.control.review_graph(&actor, id, &wish, Lost::Note).await).await
}

#[server(name = ReadDiscussion, prefix = "/call", endpoint = "discussion", input = AsJson, output = AsJson)]
pub async fn discussion(id: ReviewId) -> ServerResult<Discussion> {
    let (request, actor) = signed_in()?;
    answer(request.control.discussion(&actor, id).await).await
}

/// The changes since this person last viewed the review.
#[server(name = ReadChangesSinceView, prefix = "/call", endpoint = "since_look", input = AsJson, output = AsJson)]
pub async fn since_look(id: ReviewId) -> ServerResult<SinceLook> {
    let (request, actor) = signed_in()?;
    let changes = answer(request.control.since_look(&actor, id).await).await?;
    answer(changes.page(None, MAX_DOCUMENTS)).await
}

#[server(name = ReadBlueprints, prefix = "/call", endpoint = "targets", input = AsJson, output = AsJson)]
pub async fn targets(wanted: TargetsWanted) -> ServerResult<TargetPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.targets(&actor, &wanted).await).await
}

#[server(name = ReadComparison, prefix = "/call", endpoint = "compare", input = AsJson, output = AsJson)]
pub async fn compare(
    from: String,
    to: String,
    deployment: Option<String>,
) -> ServerResult<Comparison> {
    let (request, actor) = signed_in()?;
    let from = Point::named(&from).map_err(refuse)?;
    let to = Point::named(&to).map_err(refuse)?;
    let found = request.control.compare(&actor, from, to, deployment.as_deref()).await;
    Ok(answer(found).await?.cut(MAX_DOCUMENTS))
}

/// Records that this person viewed the review.
#[server(name = Look, prefix = "/call", endpoint = "look", input = AsJson, output = AsJson)]
pub async fn look(id: ReviewId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.look(&actor, id).await).await
}

/// How many of the changes this person has viewed.
#[server(name = ReadViewedChanges, prefix = "/call", endpoint = "opened", input = AsJson, output = AsJson)]
pub async fn opened(id: ReviewId) -> ServerResult<Opened> {
    let (request, actor) = signed_in()?;
    answer(request.control.opened(&actor, id).await).await
}

/// Marks changes as viewed. `anchors` are separated by spaces, so that a form can send them.
#[server(name = MarkViewed, prefix = "/call", endpoint = "open_changes", output = AsJson)]
pub async fn open_changes(submission: ReviewId, anchors: String) -> ServerResult<Opened> {
    let read = |text: &str| {
        text.parse::<Anchor>().map_err(|error| api::Problem::invalid(error.to_string()))
    };
    let anchors = anchors.split_whitespace().map(read).collect::<Result<Vec<Anchor>, _>>()?;
    let (request, actor) = signed_in()?;
    answer(request.control.open_changes(&actor, submission, anchors).await).await
}

#[server(name = OpenThread, prefix = "/call", endpoint = "open_thread", output = AsJson)]
pub async fn open_thread(
    submission: ReviewId,
    #[server(default)] anchor: String,
    body: String,
) -> ServerResult<CommentId> {
    let anchor: Anchor = anchor.parse().map_err(|error: engine::blueprint::NotAnAnchor| {
        api::Problem::invalid(error.to_string())
    })?;
    let (request, actor) = signed_in()?;
    answer(request.control.open_thread(&actor, submission, anchor, body).await).await
}

#[server(name = Reply, prefix = "/call", endpoint = "reply", output = AsJson)]
pub async fn reply(thread: CommentId, body: String) -> ServerResult<CommentId> {
    let (request, actor) = signed_in()?;
    answer(request.control.reply(&actor, thread, body).await).await
}

#[server(name = ResolveThread, prefix = "/call", endpoint = "resolve_thread", output = AsJson)]
pub async fn resolve_thread(thread: CommentId, resolved: bool) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.resolve_thread(&actor, thread, resolved).await).await
}

/// The approval policy in force.
#[server(name = ReadPolicy, prefix = "/call", endpoint = "policy", input = AsJson, output = AsJson)]
pub async fn policy() -> ServerResult<PolicyView> {
    let (request, actor) = signed_in()?;
    answer(request.control.policy_in_force(&actor).await).await
}

#[server(name = Propose, prefix = "/call", endpoint = "propose", output = AsJson)]
pub async fn propose(deployment: DeploymentId) -> ServerResult<ProposalId> {
    let (request, actor) = signed_in()?;
    answer(request.control.propose(&actor, deployment).await).await
}

/// Opens a proposal on a deployment, or joins the open one. Redirects to its board with the policy
/// dialog.
#[server(name = ProposePolicy, prefix = "/call", endpoint = "propose_policy", output = AsJson)]
pub async fn propose_policy(deployment: String) -> ServerResult<ProposalId> {
    let (request, actor) = signed_in()?;
    let proposal = answer(request.control.propose_by_name(&actor, &deployment).await).await?;
    leptos_axum::redirect(&crate::places::board_for_policy(&deployment));
    Ok(proposal)
}

/// Opens a proposal on the deployment that receives a node, or joins the open one. Redirects to its
/// board with the move dialog.
#[server(name = ProposeMove, prefix = "/call", endpoint = "propose_move", output = AsJson)]
pub async fn propose_move(deployment: String, node: String) -> ServerResult<ProposalId> {
    let deployment = deployment.trim();
    let (request, actor) = signed_in()?;
    let proposal = answer(request.control.propose_by_name(&actor, deployment).await).await?;
    leptos_axum::redirect(&crate::places::bring(deployment, &node));
    Ok(proposal)
}

/// Opens a proposal that restores a deployment. Redirects to its board.
#[server(name = ProposeRestore, prefix = "/call", endpoint = "restore", output = AsJson)]
pub async fn restore(
    deployment: String,
    target: BlueprintNumber,
    #[server(default)] partial: bool,
) -> ServerResult<Restored> {
    let board = crate::places::board_by_name(&deployment);
    let (request, actor) = signed_in()?;
    let restored =
        answer(request.control.restore(&actor, &deployment, target, partial).await).await?;
    leptos_axum::redirect(&board);
    Ok(restored)
}

/// Opens a proposal on a node. Redirects to its page.
#[server(name = ProposeOnNode, prefix = "/call", endpoint = "propose_on_node", output = AsJson)]
pub async fn propose_on_node(node: NodeId) -> ServerResult<ProposalId> {
    let (request, actor) = signed_in()?;
    let proposal = answer(request.control.propose_on_node(&actor, node).await).await?;
    leptos_axum::redirect(&crate::places::proposal(proposal));
    Ok(proposal)
}

#[server(name = ReadNodeProposal, prefix = "/call", endpoint = "node_proposal", input = AsJson, output = AsJson)]
pub async fn node_proposal(id: ProposalId) -> ServerResult<NodeProposal> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_proposal(&actor, id).await).await
}

/// A noderole as the open proposal would change it.
#[server(name = ReadProposedNoderole, prefix = "/call", endpoint = "drafted", input = AsJson, output = AsJson)]
pub async fn drafted(
    proposal: ProposalId,
    node: NodeId,
    noderole: NoderoleKey,
) -> ServerResult<DraftedNoderole> {
    let (request, actor) = signed_in()?;
    answer(request.control.drafted(&actor, proposal, node, &noderole).await).await
}

/// Appends edits to a proposal: all or none. Returns the new version.
#[server(name = AppendEdits, prefix = "/call", endpoint = "edit", input = AsJson, output = AsJson)]
pub async fn edit(proposal: ProposalId, version: i32, edits: Vec<Edit>) -> ServerResult<i32> {
    let (request, actor) = signed_in()?;
    answer(request.control.edit(&actor, proposal, version, edits).await).await
}

/// A preview of a proposal with further edits, which are not saved.
#[server(name = PreviewEdits, prefix = "/call", endpoint = "foresee", input = AsJson, output = AsJson)]
pub async fn foresee(proposal: ProposalId, edits: Vec<Edit>) -> ServerResult<Foreseen> {
    let (request, actor) = signed_in()?;
    answer(request.control.foresee(&actor, proposal, edits).await).await
}

#[server(name = ReadCatalog, prefix = "/call", endpoint = "catalog", input = AsJson, output = AsJson)]
pub async fn catalog(wanted: BarclampsWanted) -> ServerResult<CatalogPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_barclamps(&actor, &wanted).await).await
}

#[server(name = ReadRoles, prefix = "/call", endpoint = "roles", input = AsJson, output = AsJson)]
pub async fn roles(wanted: RolesWanted) -> ServerResult<RolePage> {
    let (request, actor) = signed_in()?;
    answer(request.control.roles(&actor, &wanted).await).await
}

#[server(name = ReadRole, prefix = "/call", endpoint = "role", input = AsJson, output = AsJson)]
pub async fn role(name: String, wanted: RoleWanted) -> ServerResult<RoleView> {
    let (request, actor) = signed_in()?;
    answer(request.control.role(&actor, &name, &wanted).await).await
}

/// The graph of dependencies between roles.
#[server(name = ReadRoleGraph, prefix = "/call", endpoint = "role_graph", input = AsJson, output = AsJson)]
pub async fn role_graph(wanted: RoleGraphWanted) -> ServerResult<RoleGraph> {
    let (request, actor) = signed_in()?;
    answer(request.control.role_graph(&actor, &wanted).await).await
}

/// A page of the import history.
#[server(name = ReadImports, prefix = "/call", endpoint = "imports", input = AsJson, output = AsJson)]
pub async fn imports(wanted: ImportsWanted) -> ServerResult<ImportPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.imports(&actor, &wanted).await).await
}

#[server(name = ImportBarclamp, prefix = "/call", endpoint = "import", output = AsJson)]
pub async fn import(path: String, text: String) -> ServerResult<Vec<String>> {
    let (request, actor) = signed_in()?;
    let files = [(path, text.into_bytes())].into();
    let imported = request.control.import_barclamps(Some(&actor), &files).await;
    Ok(answer(imported).await?.lines())
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
    let submission = answer(request.control.submit(&actor, proposal, version, title).await).await?;
    leptos_axum::redirect(&crate::places::review(submission));
    Ok(submission)
}

#[server(name = Judge, prefix = "/call", endpoint = "judge", output = AsJson)]
pub async fn judge(submission: ReviewId, kind: VerdictKind, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.judge(&actor, submission, kind, reason).await).await
}

/// The challenge that the browser signs for a verdict.
#[server(name = VerdictOptions, prefix = "/call", endpoint = "verdict-options", input = AsJson, output = AsJson)]
pub async fn verdict_options(
    submission: ReviewId,
    kind: VerdictKind,
) -> ServerResult<SignatureRequest> {
    let (request, actor) = signed_in()?;
    // A reader without permission should get that error, not the one about passkeys and the site.
    answer(actor.require(Permission::Viewer)).await?;
    let site = request.site.map_err(refuse)?;
    answer(request.control.verdict_options(&actor, &site, submission, kind).await).await
}

/// Gives a verdict that is signed with a passkey.
#[server(name = SignVerdict, prefix = "/call", endpoint = "sign-verdict", input = AsJson, output = AsJson)]
pub async fn sign_verdict(
    submission: ReviewId,
    kind: VerdictKind,
    reason: String,
    signature: Signature,
) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(
        request
            .control
            .give_signed_verdict(&actor, submission, kind, reason, Some(signature))
            .await,
    )
    .await
}

/// Makes a review's blueprint the next target.
#[server(name = Commit, prefix = "/call", endpoint = "commit", output = AsJson)]
pub async fn commit(
    submission: ReviewId,
    #[server(default)] name: String,
    #[server(default)] cancel: bool,
) -> ServerResult<BlueprintNumber> {
    let (request, actor) = signed_in()?;
    let typed = (!name.is_empty()).then_some(name);
    answer(request.control.commit(&actor, ToCommit { submission, typed, cancel }).await).await
}

/// Retries a step in ERROR.
#[server(name = Retry, prefix = "/call", endpoint = "retry", output = AsJson)]
pub async fn retry(noderole: NoderoleId, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.retry(&actor, noderole, reason).await).await
}

#[server(name = Cancel, prefix = "/call", endpoint = "cancel", output = AsJson)]
pub async fn cancel(run: RunId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.cancel(&actor, run).await).await
}

#[server(name = AddNode, prefix = "/call", endpoint = "add-node", output = AsJson)]
pub async fn add_node(
    #[server(default)] fqdn: String,
    #[server(default)] mac: String,
    #[server(default)] serial: String,
    #[server(default)] root: String,
    #[server(default)] address: String,
    #[server(default)] port: String,
    #[server(default)] user: String,
    #[server(default)] key: String,
    #[server(default)] host_key: String,
) -> ServerResult<NodeId> {
    // If only some SSH fields have a value, this is still an SSH node. The error then names the
    // missing address.
    let is_ssh =
        [&address, &port, &user, &key, &host_key].iter().any(|text| !text.trim().is_empty());
    let port = if port.trim().is_empty() { 22 } else { number("port", &port).map_err(refuse)? };
    let user = Some(user.trim()).filter(|user| !user.is_empty()).unwrap_or("root").to_owned();
    let ssh = SshWish {
        addresses: several(&address),
        port,
        user,
        key: key.trim().to_owned(),
        key_version: 1,
        host_key,
    };
    let wish = NodeWish {
        macs: several(&mac),
        serial,
        ssh: is_ssh.then_some(ssh),
        ..NodeWish::named(fqdn, root)
    };
    let (request, actor) = signed_in()?;
    answer(request.control.add_node(&actor, wish).await).await
}

/// Adds nodes from a text with one node per line: all or none. Returns their number.
#[server(name = AddNodes, prefix = "/call", endpoint = "add-nodes", output = AsJson)]
pub async fn add_nodes(#[server(default)] text: String) -> ServerResult<usize> {
    let (request, actor) = signed_in()?;
    Ok(answer(request.control.add_nodes(&actor, &text).await).await?.nodes.len())
}

#[server(name = ReadNode, prefix = "/call", endpoint = "node", input = AsJson, output = AsJson)]
pub async fn node(name: String) -> ServerResult<NodeView> {
    let (request, actor) = signed_in()?;
    answer(request.control.node(&actor, &name).await).await
}

/// A page of the results of a node's health checks.
#[server(name = ReadNodeHealthChecks, prefix = "/call", endpoint = "node_looks", input = AsJson, output = AsJson)]
pub async fn node_looks(name: String, wanted: LooksWanted) -> ServerResult<LookPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_looks(&actor, &name, &wanted).await).await
}

/// A page of the results that attempts returned on a node.
#[server(name = ReadNodeResults, prefix = "/call", endpoint = "node_results", input = AsJson, output = AsJson)]
pub async fn node_results(name: String, wanted: ResultsWanted) -> ServerResult<ResultLines> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_results(&actor, &name, &wanted).await).await
}

/// A page of a node's noderoles.
#[server(name = ReadNodeNoderoles, prefix = "/call", endpoint = "node_noderoles", input = AsJson, output = AsJson)]
pub async fn node_noderoles(name: String, wanted: CarriedWanted) -> ServerResult<CarriedPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_noderoles(&actor, &name, &wanted).await).await
}

/// Changes a node's record. Hints and connection settings that the form does not contain stay
/// unchanged.
#[server(name = ChangeNode, prefix = "/call", endpoint = "change-node", output = AsJson)]
pub async fn change_node(
    node: NodeId,
    version: i32,
    #[server(default)] description: String,
    #[server(default)] mac: String,
    #[server(default)] serial: String,
    hints: Option<String>,
    root: Option<String>,
    address: Option<String>,
    port: Option<String>,
    user: Option<String>,
    key: Option<String>,
    key_version: Option<String>,
    host_key: Option<String>,
) -> ServerResult<i32> {
    let way = way_of(root, address, port, user, key, key_version, host_key).map_err(refuse)?;
    let hints = hints.as_deref().map(parse_hints).transpose().map_err(refuse)?;
    // The form always contains these three fields. Decoding cannot tell an empty field from a
    // missing one.
    let (description, macs, serial) = (Some(description), Some(several(&mac)), Some(serial));
    let change = NodeChange {
        description,
        macs,
        serial,
        hints,
        way: Some(way).filter(|way| !way.is_empty()),
    };
    let (request, actor) = signed_in()?;
    answer(request.control.change_node(&actor, node, version, change).await).await
}

/// Proposes another connection or other hints for a node in a blueprint. Adds the differences to
/// the proposal on the node and redirects there.
#[server(name = ProposeChange, prefix = "/call", endpoint = "propose-change", output = AsJson)]
pub async fn propose_change(
    node: NodeId,
    hints: Option<String>,
    root: Option<String>,
    address: Option<String>,
    port: Option<String>,
    user: Option<String>,
    key: Option<String>,
    key_version: Option<String>,
    host_key: Option<String>,
) -> ServerResult<ProposalId> {
    let way = way_of(root, address, port, user, key, key_version, host_key).map_err(refuse)?;
    let hints = hints.as_deref().map(parse_hints).transpose().map_err(refuse)?;
    let (request, actor) = signed_in()?;
    let now = answer(request.control.node(&actor, &node.to_string()).await).await?;
    let change = now.differing(NodeChange { hints, way: Some(way), ..NodeChange::default() });
    let edits = change.edits(node);
    if edits.is_empty() {
        return Err(refuse(api::Problem::invalid(
            "The change is empty: it equals the connection and the hints of the node. Change at least one field.",
        )));
    }
    let proposal = answer(request.control.propose_on_node(&actor, node).await).await?;
    let version =
        answer(request.control.node_proposal(&actor, proposal).await).await?.proposal.version;
    answer(request.control.edit(&actor, proposal, version, edits).await).await?;
    leptos_axum::redirect(&crate::places::proposal(proposal));
    Ok(proposal)
}

#[cfg(feature = "ssr")]
fn way_of(
    root: Option<String>,
    address: Option<String>,
    port: Option<String>,
    user: Option<String>,
    key: Option<String>,
    key_version: Option<String>,
    host_key: Option<String>,
) -> Result<WayChange, api::Problem> {
    let trimmed = |text: Option<String>| text.map(|text| text.trim().to_owned());
    Ok(WayChange {
        root,
        addresses: address.as_deref().map(several),
        port: port.as_deref().map(|text| number::<u16>("port", text)).transpose()?,
        user: trimmed(user),
        key: trimmed(key),
        key_version: key_version
            .as_deref()
            .map(|text| number::<i64>("key_version", text))
            .transpose()?,
        host_key,
    })
}

#[cfg(feature = "ssr")]
fn parse_hints(text: &str) -> Result<serde_json::Value, api::Problem> {
    let told = |why: String| api::Problem::invalid(format!("Invalid hints: {why}"));
    crate::check::read(text)
        .map_err(|fault| told(format!("{} {}", fault.at, fault.detail).trim().to_owned()))
}

/// Starts or ends a node's maintenance.
#[server(name = SetAvailable, prefix = "/call", endpoint = "set-available", output = AsJson)]
pub async fn set_available(node: NodeId, available: bool, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.set_available(&actor, node, available, reason).await).await
}

/// Creates a token with which a node authenticates.
#[server(name = CreateNodeToken, prefix = "/call", endpoint = "mint-node-token", output = AsJson)]
pub async fn mint_node_token(
    node: NodeId,
    name: String,
    #[server(default)] days: String,
) -> ServerResult<MintedToken> {
    respond::ensure_displayable("a new token", "POST /api/v1/nodes/ID/tokens").map_err(refuse)?;
    let days = if days.trim().is_empty() {
        Ok(api::people::default_days())
    } else {
        number::<u32>("days", &days)
    }
    .map_err(refuse)?;
    let (request, actor) = signed_in()?;
    answer(request.control.mint_node_token(&actor, node, name, days).await).await
}

#[server(name = RevokeNodeToken, prefix = "/call", endpoint = "revoke-node-token", output = AsJson)]
pub async fn revoke_node_token(node: NodeId, token: Uuid) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.revoke_node_token(&actor, node, token).await).await
}

/// Deletes the record of a node that no target contains.
#[server(name = DeleteNode, prefix = "/call", endpoint = "take-out-node", output = AsJson)]
pub async fn take_out_node(node: NodeId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.take_out_node(&actor, node, None).await).await
}

/// The report of the planner.
#[server(name = ReadReport, prefix = "/call", endpoint = "report", input = AsJson, output = AsJson)]
pub async fn review_report(id: ReviewId) -> ServerResult<Option<Report>> {
    let (request, actor) = signed_in()?;
    answer(request.control.review_report(&actor, id).await).await
}

/// Puts a deployment on hold or releases it.
#[server(name = Hold, prefix = "/call", endpoint = "hold", output = AsJson)]
pub async fn hold(deployment: DeploymentId, held: bool, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.hold(&actor, deployment, held, reason).await).await
}

/// Sets the priority of a deployment's steps.
#[server(name = SetPriority, prefix = "/call", endpoint = "prioritise", output = AsJson)]
pub async fn prioritise(
    deployment: DeploymentId,
    priority: String,
    reason: String,
) -> ServerResult<()> {
    let priority = number::<i32>("priority", &priority).map_err(refuse)?;
    let (request, actor) = signed_in()?;
    answer(request.control.prioritise(&actor, deployment, priority, reason).await).await
}

/// Pauses or resumes execution.
#[server(name = SetExecution, prefix = "/call", endpoint = "switch", output = AsJson)]
pub async fn switch(enabled: bool, reason: String) -> ServerResult<BlueprintNumber> {
    let (request, actor) = signed_in()?;
    answer(request.control.switch(&actor, enabled, reason).await).await
}

/// Ends this session. Redirects to the sign-in page.
#[server(name = SignOut, prefix = "/call", endpoint = "sign-out", output = AsJson)]
pub async fn sign_out() -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.sign_out(&actor).await).await?;
    respond::append_cookie(&request.session_cookie.end());
    leptos_axum::redirect(crate::places::SIGN_IN);
    Ok(())
}
