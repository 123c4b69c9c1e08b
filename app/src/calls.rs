//! What pages ask of the server: one server function for each method of the console.
//!
//! They are public endpoints and decide nothing. Each calls the one method of `Console` that is named like it; that one knows who is
//! signed in and what they may. Commands whose arguments fit a form take one, so that they work in a browser without scripts; the
//! others take JSON.
#![expect(
    missing_docs,
    reason = "the macro makes a struct of each function's arguments, whose names say what they are"
)]

use api::console::{
    Board, DeploymentSummary, Discussion, Frame, GraphView, GraphWish, Lift, LogPart, NodePage, NodeProposal,
    NoderoleView, PlannerView, ReviewSummary, ReviewView, RunPage, RunView, SinceLook,
};
#[cfg(feature = "ssr")]
use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use engine::ids::{CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, RunId, SubmissionId, TargetNo};
use engine::plan::Edit;
use leptos::prelude::*;

use crate::failure::Answer;
use crate::wire::AsJson;

#[cfg(feature = "ssr")]
mod server {
    use std::sync::Arc;

    use api::Problem;
    use leptos::prelude::*;

    use crate::console::Console;
    use crate::failure::{Answer, Failure};

    /// The server's side, bound to whoever is signed in.
    pub(super) fn console() -> Answer<Arc<dyn Console>> {
        use_context::<Arc<dyn Console>>().ok_or_else(|| Failure(Problem::internal()))
    }

    /// Hands the answer on; a problem also becomes the status of the page or the call.
    pub(super) fn answer<T>(result: Result<T, Problem>) -> Answer<T> {
        result.map_err(|problem| {
            crate::respond::status(problem.status);
            Failure(problem)
        })
    }
}
#[cfg(feature = "ssr")]
use server::{answer, console};

/// What is around every page.
#[server(name = ReadFrame, prefix = "/call", endpoint = "frame", input = AsJson, output = AsJson)]
pub async fn frame() -> Answer<Frame> {
    answer(console()?.frame().await)
}

/// All deployments.
#[server(name = ReadDeployments, prefix = "/call", endpoint = "deployments", input = AsJson, output = AsJson)]
pub async fn deployments() -> Answer<Vec<DeploymentSummary>> {
    answer(console()?.deployments().await)
}

/// A deployment's board.
#[server(name = ReadBoard, prefix = "/call", endpoint = "board", input = AsJson, output = AsJson)]
pub async fn board(deployment: String) -> Answer<Board> {
    answer(console()?.board(&deployment).await)
}

/// What lifting nodes would allow.
#[server(name = ReadLift, prefix = "/call", endpoint = "lift", input = AsJson, output = AsJson)]
pub async fn lift(deployment: DeploymentId, nodes: Vec<NodeId>) -> Answer<Lift> {
    answer(console()?.lift(deployment, nodes).await)
}

/// What planning in the browser takes.
#[server(name = ReadPlanner, prefix = "/call", endpoint = "planner", input = AsJson, output = AsJson)]
pub async fn planner(deployment: DeploymentId, known: Option<String>) -> Answer<PlannerView> {
    answer(console()?.planner(deployment, known).await)
}

/// A noderole.
#[server(name = ReadNoderole, prefix = "/call", endpoint = "noderole", input = AsJson, output = AsJson)]
pub async fn noderole(id: NoderoleId) -> Answer<NoderoleView> {
    answer(console()?.noderole(id).await)
}

/// A page of nodes.
#[server(name = ReadNodes, prefix = "/call", endpoint = "nodes", input = AsJson, output = AsJson)]
pub async fn nodes(filter: String, after: Option<String>) -> Answer<NodePage> {
    answer(console()?.nodes(filter, after).await)
}

/// A page of runs.
#[server(name = ReadRuns, prefix = "/call", endpoint = "runs", input = AsJson, output = AsJson)]
pub async fn runs(state: String, before: Option<RunId>) -> Answer<RunPage> {
    answer(console()?.runs(state, before).await)
}

/// A run.
#[server(name = ReadRun, prefix = "/call", endpoint = "run", input = AsJson, output = AsJson)]
pub async fn run(id: RunId) -> Answer<RunView> {
    answer(console()?.run(id).await)
}

/// A part of a run's log.
#[server(name = ReadLog, prefix = "/call", endpoint = "log", input = AsJson, output = AsJson)]
pub async fn log(id: RunId, offset: i64) -> Answer<LogPart> {
    answer(console()?.log(id, offset).await)
}

/// All submissions.
#[server(name = ReadReviews, prefix = "/call", endpoint = "reviews", input = AsJson, output = AsJson)]
pub async fn reviews() -> Answer<Vec<ReviewSummary>> {
    answer(console()?.reviews().await)
}

/// A submission.
#[server(name = ReadReview, prefix = "/call", endpoint = "review", input = AsJson, output = AsJson)]
pub async fn review(id: SubmissionId) -> Answer<ReviewView> {
    answer(console()?.review(id).await)
}

/// A deployment's graph.
#[server(name = ReadGraph, prefix = "/call", endpoint = "graph", input = AsJson, output = AsJson)]
pub async fn graph(deployment: String, wish: GraphWish) -> Answer<GraphView> {
    answer(console()?.graph(&deployment, wish).await)
}

/// A submission's graph.
#[server(name = ReadReviewGraph, prefix = "/call", endpoint = "review_graph", input = AsJson, output = AsJson)]
pub async fn review_graph(id: SubmissionId, wish: GraphWish) -> Answer<GraphView> {
    answer(console()?.review_graph(id, wish).await)
}

/// What is said of a submission.
#[server(name = ReadDiscussion, prefix = "/call", endpoint = "discussion", input = AsJson, output = AsJson)]
pub async fn discussion(id: SubmissionId) -> Answer<Discussion> {
    answer(console()?.discussion(id).await)
}

/// What is new since the last look.
#[server(name = ReadSinceLook, prefix = "/call", endpoint = "since_look", input = AsJson, output = AsJson)]
pub async fn since_look(id: SubmissionId) -> Answer<SinceLook> {
    answer(console()?.since_look(id).await)
}

/// Notes a look.
#[server(name = Look, prefix = "/call", endpoint = "look", input = AsJson, output = AsJson)]
pub async fn look(id: SubmissionId) -> Answer<()> {
    answer(console()?.look(id).await)
}

/// Opens a thread.
#[server(name = OpenThread, prefix = "/call", endpoint = "open_thread", output = AsJson)]
pub async fn open_thread(
    submission: SubmissionId,
    #[server(default)] anchor: String,
    body: String,
) -> Answer<CommentId> {
    let anchor: Anchor =
        anchor.parse().map_err(|error: engine::blueprint::NotAnAnchor| api::Problem::invalid(error.to_string()))?;
    answer(console()?.open_thread(submission, anchor, body).await)
}

/// Answers in a thread.
#[server(name = Reply, prefix = "/call", endpoint = "reply", output = AsJson)]
pub async fn reply(thread: CommentId, body: String) -> Answer<CommentId> {
    answer(console()?.reply(thread, body).await)
}

/// Resolves a thread, or opens it again.
#[server(name = ResolveThread, prefix = "/call", endpoint = "resolve_thread", output = AsJson)]
pub async fn resolve_thread(thread: CommentId, resolved: bool) -> Answer<()> {
    answer(console()?.resolve_thread(thread, resolved).await)
}

/// Opens a proposal.
#[server(name = Propose, prefix = "/call", endpoint = "propose", output = AsJson)]
pub async fn propose(deployment: DeploymentId) -> Answer<ProposalId> {
    answer(console()?.propose(deployment).await)
}

/// Opens a proposal on a node; leads to its page.
#[server(name = ProposeOnNode, prefix = "/call", endpoint = "propose_on_node", output = AsJson)]
pub async fn propose_on_node(node: NodeId) -> Answer<ProposalId> {
    let proposal = answer(console()?.propose_on_node(node).await)?;
    leptos_axum::redirect(&crate::places::proposal(proposal));
    Ok(proposal)
}

/// An open proposal on a node.
#[server(name = ReadNodeProposal, prefix = "/call", endpoint = "node_proposal", input = AsJson, output = AsJson)]
pub async fn node_proposal(id: ProposalId) -> Answer<NodeProposal> {
    answer(console()?.node_proposal(id).await)
}

/// Appends edits, all or none.
#[server(name = AppendEdits, prefix = "/call", endpoint = "edit", input = AsJson, output = AsJson)]
pub async fn edit(proposal: ProposalId, version: i32, edits: Vec<Edit>) -> Answer<i32> {
    answer(console()?.edit(proposal, version, edits).await)
}

/// Takes the last edit back.
#[server(name = Undo, prefix = "/call", endpoint = "undo", output = AsJson)]
pub async fn undo(proposal: ProposalId, version: i32) -> Answer<i32> {
    answer(console()?.undo(proposal, version).await)
}

/// Brings the last undone edit back.
#[server(name = Redo, prefix = "/call", endpoint = "redo", output = AsJson)]
pub async fn redo(proposal: ProposalId, version: i32) -> Answer<i32> {
    answer(console()?.redo(proposal, version).await)
}

/// Closes a proposal without effect.
#[server(name = Discard, prefix = "/call", endpoint = "discard", output = AsJson)]
pub async fn discard(proposal: ProposalId, version: i32) -> Answer<()> {
    answer(console()?.discard(proposal, version).await)
}

/// Submits a proposal; leads to the review.
#[server(name = Submit, prefix = "/call", endpoint = "submit", output = AsJson)]
pub async fn submit(proposal: ProposalId, version: i32, title: String) -> Answer<SubmissionId> {
    let submission = answer(console()?.submit(proposal, version, title).await)?;
    leptos_axum::redirect(&crate::places::review(submission));
    Ok(submission)
}

/// Gives a verdict.
#[server(name = Judge, prefix = "/call", endpoint = "judge", output = AsJson)]
pub async fn judge(submission: SubmissionId, kind: VerdictKind, reason: String) -> Answer<()> {
    answer(console()?.judge(submission, kind, reason).await)
}

/// Makes a submission the next target.
#[server(name = Commit, prefix = "/call", endpoint = "commit", output = AsJson)]
pub async fn commit(submission: SubmissionId, #[server(default)] name: String) -> Answer<TargetNo> {
    answer(console()?.commit(submission, (!name.is_empty()).then_some(name)).await)
}

/// Lets a step in ERROR try again.
#[server(name = Retry, prefix = "/call", endpoint = "retry", output = AsJson)]
pub async fn retry(noderole: NoderoleId, reason: String) -> Answer<()> {
    answer(console()?.retry(noderole, reason).await)
}

/// Stops a run.
#[server(name = Cancel, prefix = "/call", endpoint = "cancel", output = AsJson)]
pub async fn cancel(run: RunId) -> Answer<()> {
    answer(console()?.cancel(run).await)
}

/// Adds a node.
#[server(name = AddNode, prefix = "/call", endpoint = "add-node", output = AsJson)]
pub async fn add_node(fqdn: String, root: String) -> Answer<NodeId> {
    answer(console()?.add_node(fqdn, root).await)
}

/// Switches execution on or off.
#[server(name = Switch, prefix = "/call", endpoint = "switch", output = AsJson)]
pub async fn switch(enabled: bool, reason: String) -> Answer<TargetNo> {
    answer(console()?.switch(enabled, reason).await)
}

/// Ends this session; leads to the sign-in.
#[server(name = SignOut, prefix = "/call", endpoint = "sign-out", output = AsJson)]
pub async fn sign_out() -> Answer<()> {
    answer(console()?.sign_out().await)?;
    leptos_axum::redirect(crate::places::SIGN_IN);
    Ok(())
}
