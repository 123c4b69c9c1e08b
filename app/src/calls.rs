//! Server functions: one for each method of `Console`.
//!
//! Each is a public endpoint and makes no decisions. It calls the method of the same name, which
//! knows the signed-in user and checks their permissions. Commands whose arguments fit a form
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
    BlueprintPage, Board, CatalogPage, ChangesSinceView, Comparison, DeploymentPage, Discussion,
    DraftedNoderole, DropPreview, EditsPreview, Frame, GraphOptions, GraphView, LogFound, LogPart,
    NodePage, NodeProposal, NoderoleView, PlannerView, Restored, ReviewView, RoleNoderoles,
    RunPage, RunView, ViewedChanges,
};
#[cfg(feature = "ssr")]
use api::console::{NodeRequest, SshRequest};
use api::listing::{BarclampsWanted, BlueprintsWanted, DeploymentsWanted, NodesWanted, RunsWanted};
use api::nodes::{
    CreatedNodeToken, HealthCheckPage, HealthChecksWanted, NodeNoderolePage, NodeNoderolesWanted,
    NodeView,
};
#[cfg(feature = "ssr")]
use api::nodes::{NodeChange, WayChange};
use api::overview::PolicyView;
use api::people::{Signature, SignatureRequest};
use api::reviews::{ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted};
use api::values::{ResultLines, ResultsWanted, ValuesView, ValuesWanted};
use api::waiting::{PendingPage, PendingWanted};
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, ReviewId, RoleName,
    RunId,
};
use engine::plan::Edit;
use engine::report::Report;
use leptos::prelude::*;
use uuid::Uuid;

use crate::failure::ServerResult;
use crate::wire::AsJson;

#[cfg(feature = "ssr")]
mod server {
    use std::sync::Arc;

    use api::Problem;
    use leptos::prelude::*;

    use crate::console::Console;
    use crate::failure::{Failure, ServerResult};

    /// The console of this request, bound to the signed-in user.
    pub(super) fn console() -> ServerResult<Arc<dyn Console>> {
        use_context::<Arc<dyn Console>>().ok_or_else(|| Failure(Problem::internal()))
    }

    /// Returns the result. A problem also sets the status of the page or the call.
    pub(super) fn answer<T>(result: Result<T, Problem>) -> ServerResult<T> {
        result.map_err(|problem| {
            crate::respond::status(problem.status);
            crate::respond::again_after(problem.again_after);
            Failure(problem)
        })
    }

    /// Splits a field with several values.
    pub(super) fn several(text: &str) -> Vec<String> {
        let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';');
        text.split(is_separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn number<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, Problem> {
        let text = text.trim();
        text.parse().map_err(|_| {
            Problem::invalid(format!("Invalid value for {field}: {text:?} is not a whole number or is out of range. Enter another number."))
        })
    }
}
#[cfg(feature = "ssr")]
use server::{answer, console, number, several};

#[server(name = ReadFrame, prefix = "/call", endpoint = "frame", input = AsJson, output = AsJson)]
pub async fn frame() -> ServerResult<Option<Frame>> {
    answer(console()?.frame().await)
}

#[server(name = ReadDeployments, prefix = "/call", endpoint = "deployments", input = AsJson, output = AsJson)]
pub async fn deployments(wanted: DeploymentsWanted) -> ServerResult<DeploymentPage> {
    answer(console()?.deployments(wanted).await)
}

#[server(name = ReadBoard, prefix = "/call", endpoint = "board", input = AsJson, output = AsJson)]
pub async fn board(deployment: String) -> ServerResult<Board> {
    answer(console()?.board(&deployment).await)
}

/// All nodes with a role of a board.
#[server(name = ReadNodesWithRole, prefix = "/call", endpoint = "carriers", input = AsJson, output = AsJson)]
pub async fn carriers(
    deployment: String,
    of_ancestor: Option<String>,
    role: RoleName,
) -> ServerResult<RoleNoderoles> {
    answer(console()?.carriers(&deployment, of_ancestor, role).await)
}

/// The actions that the open proposal allows for these nodes.
#[server(name = ReadBindOptions, prefix = "/call", endpoint = "lift", input = AsJson, output = AsJson)]
pub async fn lift(deployment: DeploymentId, nodes: Vec<NodeId>) -> ServerResult<DropPreview> {
    answer(console()?.lift(deployment, nodes).await)
}

/// The data that the browser needs to plan. See [`crate::pages::board`].
#[server(name = ReadPlanner, prefix = "/call", endpoint = "planner", input = AsJson, output = AsJson)]
pub async fn planner(
    deployment: DeploymentId,
    known: Option<String>,
) -> ServerResult<Option<PlannerView>> {
    answer(console()?.planner(deployment, known).await)
}

#[server(name = ReadNoderole, prefix = "/call", endpoint = "noderole", input = AsJson, output = AsJson)]
pub async fn noderole(id: NoderoleId) -> ServerResult<NoderoleView> {
    answer(console()?.noderole(id).await)
}

/// The input of the noderole's next run, or the values that the noderole itself sets.
#[server(name = ReadNoderoleValues, prefix = "/call", endpoint = "noderole_values", input = AsJson, output = AsJson)]
pub async fn noderole_values(id: NoderoleId, wanted: ValuesWanted) -> ServerResult<ValuesView> {
    answer(console()?.noderole_values(id, wanted).await)
}

/// The input of a run.
#[server(name = ReadRunValues, prefix = "/call", endpoint = "run_values", input = AsJson, output = AsJson)]
pub async fn run_values(id: RunId, wanted: ValuesWanted) -> ServerResult<ValuesView> {
    answer(console()?.run_values(id, wanted).await)
}

#[server(name = ReadNodes, prefix = "/call", endpoint = "nodes", input = AsJson, output = AsJson)]
pub async fn nodes(wanted: NodesWanted) -> ServerResult<NodePage> {
    answer(console()?.nodes(wanted).await)
}

#[server(name = ReadRuns, prefix = "/call", endpoint = "runs", input = AsJson, output = AsJson)]
pub async fn runs(wanted: RunsWanted) -> ServerResult<RunPage> {
    answer(console()?.runs(wanted).await)
}

#[server(name = ReadPending, prefix = "/call", endpoint = "waiting", input = AsJson, output = AsJson)]
pub async fn waiting(wanted: PendingWanted) -> ServerResult<PendingPage> {
    answer(console()?.waiting(wanted).await)
}

#[server(name = ReadRun, prefix = "/call", endpoint = "run", input = AsJson, output = AsJson)]
pub async fn run(id: RunId) -> ServerResult<RunView> {
    answer(console()?.run(id).await)
}

#[server(name = ReadLog, prefix = "/call", endpoint = "log", input = AsJson, output = AsJson)]
pub async fn log(id: RunId, offset: i64) -> ServerResult<LogPart> {
    answer(console()?.log(id, offset).await)
}

/// Lines of a run's log that contain a text.
#[server(name = SearchLog, prefix = "/call", endpoint = "search_log", input = AsJson, output = AsJson)]
pub async fn search_log(
    id: RunId,
    text: String,
    any_case: bool,
    after: String,
) -> ServerResult<LogFound> {
    answer(console()?.search_log(id, text, any_case, after).await)
}

#[server(name = ReadReviews, prefix = "/call", endpoint = "reviews", input = AsJson, output = AsJson)]
pub async fn reviews(wanted: ReviewsWanted) -> ServerResult<ReviewPage> {
    answer(console()?.reviews(wanted).await)
}

#[server(name = ReadProposals, prefix = "/call", endpoint = "proposals", input = AsJson, output = AsJson)]
pub async fn proposals(wanted: ProposalsWanted) -> ServerResult<ProposalPage> {
    answer(console()?.proposals(wanted).await)
}

/// A review, with the documents after `after`, or the first ones.
#[server(name = ReadReview, prefix = "/call", endpoint = "review", input = AsJson, output = AsJson)]
pub async fn review(id: ReviewId, after: Option<Anchor>) -> ServerResult<ReviewView> {
    answer(console()?.review(id, after).await)
}

#[server(name = ReadGraph, prefix = "/call", endpoint = "graph", input = AsJson, output = AsJson)]
pub async fn graph(deployment: String, wish: GraphOptions) -> ServerResult<GraphView> {
    answer(console()?.graph(&deployment, wish).await)
}

#[server(name = ReadReviewGraph, prefix = "/call", endpoint = "review_graph", input = AsJson, output = AsJson)]
pub async fn review_graph(id: ReviewId, wish: GraphOptions) -> ServerResult<GraphView> {
    answer(console()?.review_graph(id, wish).await)
}

#[server(name = ReadDiscussion, prefix = "/call", endpoint = "discussion", input = AsJson, output = AsJson)]
pub async fn discussion(id: ReviewId) -> ServerResult<Discussion> {
    answer(console()?.discussion(id).await)
}

/// The changes since this person last viewed the review.
#[server(name = ReadChangesSinceView, prefix = "/call", endpoint = "since_look", input = AsJson, output = AsJson)]
pub async fn since_look(id: ReviewId) -> ServerResult<ChangesSinceView> {
    answer(console()?.since_look(id).await)
}

#[server(name = ReadBlueprints, prefix = "/call", endpoint = "targets", input = AsJson, output = AsJson)]
pub async fn targets(wanted: BlueprintsWanted) -> ServerResult<BlueprintPage> {
    answer(console()?.targets(wanted).await)
}

#[server(name = ReadComparison, prefix = "/call", endpoint = "compare", input = AsJson, output = AsJson)]
pub async fn compare(
    from: String,
    to: String,
    deployment: Option<String>,
) -> ServerResult<Comparison> {
    answer(console()?.compare(from, to, deployment).await)
}

/// Records that this person viewed the review.
#[server(name = Look, prefix = "/call", endpoint = "look", input = AsJson, output = AsJson)]
pub async fn look(id: ReviewId) -> ServerResult<()> {
    answer(console()?.look(id).await)
}

/// How many of the changes this person has viewed.
#[server(name = ReadViewedChanges, prefix = "/call", endpoint = "opened", input = AsJson, output = AsJson)]
pub async fn opened(id: ReviewId) -> ServerResult<ViewedChanges> {
    answer(console()?.opened(id).await)
}

/// Marks changes as viewed. `anchors` are separated by spaces, so that a form can send them.
#[server(name = MarkViewed, prefix = "/call", endpoint = "open_changes", output = AsJson)]
pub async fn open_changes(submission: ReviewId, anchors: String) -> ServerResult<ViewedChanges> {
    let read = |text: &str| {
        text.parse::<Anchor>().map_err(|error| api::Problem::invalid(error.to_string()))
    };
    let anchors = anchors.split_whitespace().map(read).collect::<Result<Vec<Anchor>, _>>()?;
    answer(console()?.open_changes(submission, anchors).await)
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
    answer(console()?.open_thread(submission, anchor, body).await)
}

#[server(name = Reply, prefix = "/call", endpoint = "reply", output = AsJson)]
pub async fn reply(thread: CommentId, body: String) -> ServerResult<CommentId> {
    answer(console()?.reply(thread, body).await)
}

#[server(name = ResolveThread, prefix = "/call", endpoint = "resolve_thread", output = AsJson)]
pub async fn resolve_thread(thread: CommentId, resolved: bool) -> ServerResult<()> {
    answer(console()?.resolve_thread(thread, resolved).await)
}

/// The approval policy in force.
#[server(name = ReadPolicy, prefix = "/call", endpoint = "policy", input = AsJson, output = AsJson)]
pub async fn policy() -> ServerResult<PolicyView> {
    answer(console()?.policy().await)
}

#[server(name = Propose, prefix = "/call", endpoint = "propose", output = AsJson)]
pub async fn propose(deployment: DeploymentId) -> ServerResult<ProposalId> {
    answer(console()?.propose(deployment).await)
}

/// Opens a proposal on a deployment, or joins the open one. Redirects to its board with the policy
/// dialog.
#[server(name = ProposePolicy, prefix = "/call", endpoint = "propose_policy", output = AsJson)]
pub async fn propose_policy(deployment: String) -> ServerResult<ProposalId> {
    let proposal = answer(console()?.propose_by_name(&deployment).await)?;
    leptos_axum::redirect(&crate::places::board_for_policy(&deployment));
    Ok(proposal)
}

/// Opens a proposal on the deployment that receives a node, or joins the open one. Redirects to its
/// board with the move dialog.
#[server(name = ProposeMove, prefix = "/call", endpoint = "propose_move", output = AsJson)]
pub async fn propose_move(deployment: String, node: String) -> ServerResult<ProposalId> {
    let deployment = deployment.trim();
    let proposal = answer(console()?.propose_by_name(deployment).await)?;
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
    let restored = answer(console()?.restore(deployment, target, partial).await)?;
    leptos_axum::redirect(&board);
    Ok(restored)
}

/// Opens a proposal on a node. Redirects to its page.
#[server(name = ProposeOnNode, prefix = "/call", endpoint = "propose_on_node", output = AsJson)]
pub async fn propose_on_node(node: NodeId) -> ServerResult<ProposalId> {
    let proposal = answer(console()?.propose_on_node(node).await)?;
    leptos_axum::redirect(&crate::places::proposal(proposal));
    Ok(proposal)
}

#[server(name = ReadNodeProposal, prefix = "/call", endpoint = "node_proposal", input = AsJson, output = AsJson)]
pub async fn node_proposal(id: ProposalId) -> ServerResult<NodeProposal> {
    answer(console()?.node_proposal(id).await)
}

/// A noderole as the open proposal would change it.
#[server(name = ReadProposedNoderole, prefix = "/call", endpoint = "drafted", input = AsJson, output = AsJson)]
pub async fn drafted(
    proposal: ProposalId,
    node: NodeId,
    noderole: NoderoleKey,
) -> ServerResult<DraftedNoderole> {
    answer(console()?.drafted(proposal, node, noderole).await)
}

/// Appends edits to a proposal: all or none. Returns the new version.
#[server(name = AppendEdits, prefix = "/call", endpoint = "edit", input = AsJson, output = AsJson)]
pub async fn edit(proposal: ProposalId, version: i32, edits: Vec<Edit>) -> ServerResult<i32> {
    answer(console()?.edit(proposal, version, edits).await)
}

/// A preview of a proposal with further edits, which are not saved.
#[server(name = PreviewEdits, prefix = "/call", endpoint = "foresee", input = AsJson, output = AsJson)]
pub async fn foresee(proposal: ProposalId, edits: Vec<Edit>) -> ServerResult<EditsPreview> {
    answer(console()?.foresee(proposal, edits).await)
}

#[server(name = ReadCatalog, prefix = "/call", endpoint = "catalog", input = AsJson, output = AsJson)]
pub async fn catalog(wanted: BarclampsWanted) -> ServerResult<CatalogPage> {
    answer(console()?.catalog(wanted).await)
}

#[server(name = ReadRoles, prefix = "/call", endpoint = "roles", input = AsJson, output = AsJson)]
pub async fn roles(wanted: RolesWanted) -> ServerResult<RolePage> {
    answer(console()?.roles(wanted).await)
}

#[server(name = ReadRole, prefix = "/call", endpoint = "role", input = AsJson, output = AsJson)]
pub async fn role(name: String, wanted: RoleWanted) -> ServerResult<RoleView> {
    answer(console()?.role(&name, wanted).await)
}

/// The graph of dependencies between roles.
#[server(name = ReadRoleGraph, prefix = "/call", endpoint = "role_graph", input = AsJson, output = AsJson)]
pub async fn role_graph(wanted: RoleGraphWanted) -> ServerResult<RoleGraph> {
    answer(console()?.role_graph(wanted).await)
}

/// A page of the import history.
#[server(name = ReadImports, prefix = "/call", endpoint = "imports", input = AsJson, output = AsJson)]
pub async fn imports(wanted: ImportsWanted) -> ServerResult<ImportPage> {
    answer(console()?.imports(wanted).await)
}

#[server(name = ImportBarclamp, prefix = "/call", endpoint = "import", output = AsJson)]
pub async fn import(path: String, text: String) -> ServerResult<Vec<String>> {
    answer(console()?.import(path, text).await)
}

/// Undoes the last edit.
#[server(name = Undo, prefix = "/call", endpoint = "undo", output = AsJson)]
pub async fn undo(proposal: ProposalId, version: i32) -> ServerResult<i32> {
    answer(console()?.undo(proposal, version).await)
}

/// Redoes the last undone edit.
#[server(name = Redo, prefix = "/call", endpoint = "redo", output = AsJson)]
pub async fn redo(proposal: ProposalId, version: i32) -> ServerResult<i32> {
    answer(console()?.redo(proposal, version).await)
}

#[server(name = Discard, prefix = "/call", endpoint = "discard", output = AsJson)]
pub async fn discard(proposal: ProposalId, version: i32) -> ServerResult<()> {
    answer(console()?.discard(proposal, version).await)
}

/// Submits a proposal. Redirects to the review.
#[server(name = Submit, prefix = "/call", endpoint = "submit", output = AsJson)]
pub async fn submit(proposal: ProposalId, version: i32, title: String) -> ServerResult<ReviewId> {
    let submission = answer(console()?.submit(proposal, version, title).await)?;
    leptos_axum::redirect(&crate::places::review(submission));
    Ok(submission)
}

#[server(name = Judge, prefix = "/call", endpoint = "judge", output = AsJson)]
pub async fn judge(submission: ReviewId, kind: VerdictKind, reason: String) -> ServerResult<()> {
    answer(console()?.judge(submission, kind, reason).await)
}

/// The challenge that the browser signs for a verdict.
#[server(name = VerdictOptions, prefix = "/call", endpoint = "verdict-options", input = AsJson, output = AsJson)]
pub async fn verdict_options(
    submission: ReviewId,
    kind: VerdictKind,
) -> ServerResult<SignatureRequest> {
    answer(console()?.verdict_options(submission, kind).await)
}

/// Gives a verdict that is signed with a passkey.
#[server(name = SignVerdict, prefix = "/call", endpoint = "sign-verdict", input = AsJson, output = AsJson)]
pub async fn sign_verdict(
    submission: ReviewId,
    kind: VerdictKind,
    reason: String,
    signature: Signature,
) -> ServerResult<()> {
    answer(console()?.sign_verdict(submission, kind, reason, signature).await)
}

/// Makes a review's blueprint the next target.
#[server(name = Commit, prefix = "/call", endpoint = "commit", output = AsJson)]
pub async fn commit(
    submission: ReviewId,
    #[server(default)] name: String,
    #[server(default)] cancel: bool,
) -> ServerResult<BlueprintNumber> {
    answer(console()?.commit(submission, (!name.is_empty()).then_some(name), cancel).await)
}

/// Retries a step in ERROR.
#[server(name = Retry, prefix = "/call", endpoint = "retry", output = AsJson)]
pub async fn retry(noderole: NoderoleId, reason: String) -> ServerResult<()> {
    answer(console()?.retry(noderole, reason).await)
}

#[server(name = Cancel, prefix = "/call", endpoint = "cancel", output = AsJson)]
pub async fn cancel(run: RunId) -> ServerResult<()> {
    answer(console()?.cancel(run).await)
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
    let port = if port.trim().is_empty() { 22 } else { answer(number("port", &port))? };
    let user = Some(user.trim()).filter(|user| !user.is_empty()).unwrap_or("root").to_owned();
    let ssh = SshRequest {
        addresses: several(&address),
        port,
        user,
        key: key.trim().to_owned(),
        key_version: 1,
        host_key,
    };
    let wish = NodeRequest {
        macs: several(&mac),
        serial,
        ssh: is_ssh.then_some(ssh),
        ..NodeRequest::named(fqdn, root)
    };
    answer(console()?.add_node(wish).await)
}

/// Adds nodes from a text with one node per line: all or none. Returns their number.
#[server(name = AddNodes, prefix = "/call", endpoint = "add-nodes", output = AsJson)]
pub async fn add_nodes(#[server(default)] text: String) -> ServerResult<usize> {
    Ok(answer(console()?.add_nodes(&text).await)?.nodes.len())
}

#[server(name = ReadNode, prefix = "/call", endpoint = "node", input = AsJson, output = AsJson)]
pub async fn node(name: String) -> ServerResult<NodeView> {
    answer(console()?.node(&name).await)
}

/// A page of the results of a node's health checks.
#[server(name = ReadNodeHealthChecks, prefix = "/call", endpoint = "node_looks", input = AsJson, output = AsJson)]
pub async fn node_looks(name: String, wanted: HealthChecksWanted) -> ServerResult<HealthCheckPage> {
    answer(console()?.node_looks(&name, wanted).await)
}

/// A page of the results that attempts returned on a node.
#[server(name = ReadNodeResults, prefix = "/call", endpoint = "node_results", input = AsJson, output = AsJson)]
pub async fn node_results(name: String, wanted: ResultsWanted) -> ServerResult<ResultLines> {
    answer(console()?.node_results(&name, wanted).await)
}

/// A page of a node's noderoles.
#[server(name = ReadNodeNoderoles, prefix = "/call", endpoint = "node_noderoles", input = AsJson, output = AsJson)]
pub async fn node_noderoles(
    name: String,
    wanted: NodeNoderolesWanted,
) -> ServerResult<NodeNoderolePage> {
    answer(console()?.node_noderoles(&name, wanted).await)
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
    let way = answer(way_of(root, address, port, user, key, key_version, host_key))?;
    let hints = answer(hints.as_deref().map(parse_hints).transpose())?;
    // The form always contains these three fields. Decoding cannot tell an empty field from a
    // missing one.
    let (description, macs, serial) = (Some(description), Some(several(&mac)), Some(serial));
    let change = NodeChange {
        description,
        macs,
        serial,
        hints,
        connection: Some(way).filter(|way| !way.is_empty()),
    };
    answer(console()?.change_node(node, version, change).await)
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
    let way = answer(way_of(root, address, port, user, key, key_version, host_key))?;
    let hints = answer(hints.as_deref().map(parse_hints).transpose())?;
    let now = answer(console()?.node(&node.to_string()).await)?;
    let change =
        now.differing(NodeChange { hints, connection: Some(way), ..NodeChange::default() });
    let edits = change.edits(node);
    if edits.is_empty() {
        return answer(Err(api::Problem::invalid(
            "The change is empty: it equals the connection and the hints of the node. Change at least one field.",
        )));
    }
    let proposal = answer(console()?.propose_on_node(node).await)?;
    let version = answer(console()?.node_proposal(proposal).await)?.proposal.version;
    answer(console()?.edit(proposal, version, edits).await)?;
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
    answer(console()?.set_available(node, available, reason).await)
}

/// Creates a token with which a node authenticates.
#[server(name = CreateNodeToken, prefix = "/call", endpoint = "mint-node-token", output = AsJson)]
pub async fn mint_node_token(
    node: NodeId,
    name: String,
    #[server(default)] days: String,
) -> ServerResult<CreatedNodeToken> {
    answer(crate::respond::ensure_displayable("a new token", "POST /api/v1/nodes/ID/tokens"))?;
    let days = if days.trim().is_empty() {
        Ok(api::people::default_days())
    } else {
        number::<u32>("days", &days)
    };
    answer(console()?.mint_node_token(node, name, answer(days)?).await)
}

#[server(name = RevokeNodeToken, prefix = "/call", endpoint = "revoke-node-token", output = AsJson)]
pub async fn revoke_node_token(node: NodeId, token: Uuid) -> ServerResult<()> {
    answer(console()?.revoke_node_token(node, token).await)
}

/// Deletes the record of a node that no target contains.
#[server(name = DeleteNode, prefix = "/call", endpoint = "take-out-node", output = AsJson)]
pub async fn take_out_node(node: NodeId) -> ServerResult<()> {
    answer(console()?.take_out_node(node).await)
}

/// The report of the planner.
#[server(name = ReadReport, prefix = "/call", endpoint = "report", input = AsJson, output = AsJson)]
pub async fn review_report(id: ReviewId) -> ServerResult<Option<Report>> {
    answer(console()?.review_report(id).await)
}

/// Puts a deployment on hold or releases it.
#[server(name = Hold, prefix = "/call", endpoint = "hold", output = AsJson)]
pub async fn hold(deployment: DeploymentId, held: bool, reason: String) -> ServerResult<()> {
    answer(console()?.hold(deployment, held, reason).await)
}

/// Sets the priority of a deployment's steps.
#[server(name = SetPriority, prefix = "/call", endpoint = "prioritise", output = AsJson)]
pub async fn prioritise(
    deployment: DeploymentId,
    priority: String,
    reason: String,
) -> ServerResult<()> {
    let priority = answer(number::<i32>("priority", &priority))?;
    answer(console()?.prioritise(deployment, priority, reason).await)
}

/// Pauses or resumes execution.
#[server(name = SetExecution, prefix = "/call", endpoint = "switch", output = AsJson)]
pub async fn switch(enabled: bool, reason: String) -> ServerResult<BlueprintNumber> {
    answer(console()?.switch(enabled, reason).await)
}

/// Ends this session. Redirects to the sign-in page.
#[server(name = SignOut, prefix = "/call", endpoint = "sign-out", output = AsJson)]
pub async fn sign_out() -> ServerResult<()> {
    answer(console()?.sign_out().await)?;
    leptos_axum::redirect(crate::places::SIGN_IN);
    Ok(())
}
