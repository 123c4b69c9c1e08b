//! What the pages ask of the server, as one trait.
//!
//! The server provides an `Arc<dyn Console>` in every request's context, already bound to whoever is signed in. Pages reach it
//! through server functions that do nothing but call one method here. Every method checks by itself whether its caller may: a page
//! that shows a button decides nothing.

use api::Problem;
use api::catalog::{
    ImportPage, ImportsWanted, RoleGraph, RoleGraphWanted, RolePage, RoleView, RoleWanted,
    RolesWanted,
};
use api::console::{
    Board, Carriers, CatalogPage, Comparison, DeploymentPage, Discussion, DraftedNoderole,
    Foreseen, Frame, GraphView, GraphWish, Lift, LogFound, LogPart, NodePage, NodeProposal,
    NodeWish, NoderoleView, Opened, PlannerView, Restored, ReviewView, RunPage, RunView, SinceLook,
    TargetPage,
};
use api::listing::{BarclampsWanted, DeploymentsWanted, NodesWanted, RunsWanted, TargetsWanted};
use api::nodes::{
    AddedNodes, CarriedPage, CarriedWanted, LookPage, LooksWanted, MintedToken, NodeChange,
    NodeView,
};
use api::overview::PolicyView;
use api::people::{Signature, SignatureRequest};
use api::reviews::{ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted};
use api::values::{ResultLines, ResultsWanted, ValuesView, ValuesWanted};
use api::waiting::{WaitingPage, WaitingWanted};
use async_trait::async_trait;
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{
    CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, RoleName, RunId, SubmissionId,
    TargetNo,
};
use engine::plan::{Edit, Report};
use uuid::Uuid;

/// The server's side of the pages.
#[async_trait]
pub trait Console: Send + Sync {
    /// What every page has around it; the only method that answers without a sign-in, and then with nothing.
    async fn frame(&self) -> Result<Option<Frame>, Problem>;
    /// A page of deployments.
    async fn deployments(&self, wanted: DeploymentsWanted) -> Result<DeploymentPage, Problem>;
    /// A deployment's board, by name.
    async fn board(&self, deployment: &str) -> Result<Board, Problem>;
    /// Everything that carries a role of a board: of the deployment itself, or of an ancestor.
    async fn carriers(
        &self,
        deployment: &str,
        of_ancestor: Option<String>,
        role: RoleName,
    ) -> Result<Carriers, Problem>;
    /// What lifting these nodes would allow in the open proposal on the deployment.
    async fn lift(&self, deployment: DeploymentId, nodes: Vec<NodeId>) -> Result<Lift, Problem>;
    /// What planning in the browser on the deployment's open proposal takes; the ground is left out for who knows its stamp.
    async fn planner(
        &self,
        deployment: DeploymentId,
        known: Option<String>,
    ) -> Result<Option<PlannerView>, Problem>;
    /// What a run of a noderole would see now, or what it says itself; each value with where it comes from.
    async fn noderole_values(
        &self,
        id: NoderoleId,
        wanted: ValuesWanted,
    ) -> Result<ValuesView, Problem>;
    /// What a run was told, each value with where it came from.
    async fn run_values(&self, id: RunId, wanted: ValuesWanted) -> Result<ValuesView, Problem>;
    /// A noderole's panel.
    async fn noderole(&self, id: NoderoleId) -> Result<NoderoleView, Problem>;
    /// A page of nodes.
    async fn nodes(&self, wanted: NodesWanted) -> Result<NodePage, Problem>;
    /// A page of runs.
    async fn runs(&self, wanted: RunsWanted) -> Result<RunPage, Problem>;
    /// The gate's policy that is in force.
    async fn policy(&self) -> Result<PolicyView, Problem>;
    /// What waits, for what, and who or what frees it.
    async fn waiting(&self, wanted: WaitingWanted) -> Result<WaitingPage, Problem>;
    /// A run.
    async fn run(&self, id: RunId) -> Result<RunView, Problem>;
    /// A part of a run's log from an offset on; at most 256 KiB. A negative offset counts from the end.
    async fn log(&self, id: RunId, offset: i64) -> Result<LogPart, Problem>;
    /// Lines of a run's log that have a text, from the beginning or from where the answer before said.
    async fn search_log(
        &self,
        id: RunId,
        text: String,
        any_case: bool,
        after: String,
    ) -> Result<LogFound, Problem>;
    /// A page of the list of reviews.
    async fn reviews(&self, wanted: ReviewsWanted) -> Result<ReviewPage, Problem>;
    /// A page of the list of open proposals.
    async fn proposals(&self, wanted: ProposalsWanted) -> Result<ProposalPage, Problem>;
    /// A deployment's graph, by the deployment's name, folded as wished.
    async fn graph(&self, deployment: &str, wish: GraphWish) -> Result<GraphView, Problem>;
    /// What a submission changes and one step around it, as a graph.
    async fn review_graph(&self, id: SubmissionId, wish: GraphWish) -> Result<GraphView, Problem>;
    /// A submission, with those of its documents that come behind one, or the first: at most `DOCUMENTS_SHOWN`.
    async fn review(&self, id: SubmissionId, after: Option<Anchor>) -> Result<ReviewView, Problem>;
    /// What is said of a submission's proposal.
    async fn discussion(&self, id: SubmissionId) -> Result<Discussion, Problem>;
    /// What a submission changes against the one that this person looked at before.
    async fn since_look(&self, id: SubmissionId) -> Result<SinceLook, Problem>;

    /// How much of a submission this person has opened.
    async fn opened(&self, id: SubmissionId) -> Result<Opened, Problem>;

    /// Notes that this person opened the changes of these documents.
    async fn open_changes(&self, id: SubmissionId, anchors: Vec<Anchor>)
    -> Result<Opened, Problem>;
    /// Targets, newest first, before `before`: all, or those that changed a deployment.
    async fn targets(&self, wanted: TargetsWanted) -> Result<TargetPage, Problem>;
    /// Two blueprints compared, each named by a target's number or a root's hash: everywhere, or in one deployment. At most
    /// `DOCUMENTS_SHOWN` documents.
    async fn compare(
        &self,
        from: String,
        to: String,
        deployment: Option<String>,
    ) -> Result<Comparison, Problem>;

    /// Notes that this person has looked at a submission.
    async fn look(&self, id: SubmissionId) -> Result<(), Problem>;
    /// Opens a thread on a change of a submission.
    async fn open_thread(
        &self,
        submission: SubmissionId,
        anchor: Anchor,
        body: String,
    ) -> Result<CommentId, Problem>;
    /// Answers in a thread.
    async fn reply(&self, thread: CommentId, body: String) -> Result<CommentId, Problem>;
    /// Resolves a thread, or opens it again.
    async fn resolve_thread(&self, thread: CommentId, resolved: bool) -> Result<(), Problem>;
    /// Opens a proposal on a deployment, or hands back the one that is open.
    async fn propose(&self, deployment: DeploymentId) -> Result<ProposalId, Problem>;
    /// The same, of a deployment by its name.
    async fn propose_by_name(&self, deployment: &str) -> Result<ProposalId, Problem>;
    /// Opens a proposal that brings a deployment, by name, back to what it was at a target; `partial` leaves out what can't be
    /// brought back.
    async fn restore(
        &self,
        deployment: String,
        target: TargetNo,
        partial: bool,
    ) -> Result<Restored, Problem>;
    /// Opens a proposal on a single node, or hands back the one that is open.
    async fn propose_on_node(&self, node: NodeId) -> Result<ProposalId, Problem>;
    /// An open proposal on a node.
    async fn node_proposal(&self, id: ProposalId) -> Result<NodeProposal, Problem>;
    /// A noderole as an open proposal would have it.
    async fn drafted(
        &self,
        proposal: ProposalId,
        node: NodeId,
        noderole: NoderoleKey,
    ) -> Result<DraftedNoderole, Problem>;
    /// Appends edits to a proposal at a version, all or none; hands back the new version.
    async fn edit(
        &self,
        proposal: ProposalId,
        version: i32,
        edits: Vec<Edit>,
    ) -> Result<i32, Problem>;
    /// What a proposal would come to with further edits, which are not made by this.
    async fn foresee(&self, proposal: ProposalId, edits: Vec<Edit>) -> Result<Foreseen, Problem>;
    /// A page of the imported versions.
    async fn catalog(&self, wanted: BarclampsWanted) -> Result<CatalogPage, Problem>;
    /// A page of the roles of the newest versions.
    async fn roles(&self, wanted: RolesWanted) -> Result<RolePage, Problem>;
    /// A role, by its name.
    async fn role(&self, name: &str, wanted: RoleWanted) -> Result<RoleView, Problem>;
    /// How roles hang together.
    async fn role_graph(&self, wanted: RoleGraphWanted) -> Result<RoleGraph, Problem>;
    /// A page of what imports brought.
    async fn imports(&self, wanted: ImportsWanted) -> Result<ImportPage, Problem>;
    /// Imports a barclamp's file without scripts; hands back what came of it, one line each.
    async fn import(&self, path: String, text: String) -> Result<Vec<String>, Problem>;
    /// Takes the last edit back; hands back the new version.
    async fn undo(&self, proposal: ProposalId, version: i32) -> Result<i32, Problem>;
    /// Brings the last undone edit back; hands back the new version.
    async fn redo(&self, proposal: ProposalId, version: i32) -> Result<i32, Problem>;
    /// Closes a proposal without effect.
    async fn discard(&self, proposal: ProposalId, version: i32) -> Result<(), Problem>;
    /// Submits a proposal for review under a title.
    async fn submit(
        &self,
        proposal: ProposalId,
        version: i32,
        title: String,
    ) -> Result<SubmissionId, Problem>;
    /// Gives a verdict.
    async fn judge(
        &self,
        submission: SubmissionId,
        kind: VerdictKind,
        reason: String,
    ) -> Result<(), Problem>;
    /// What the browser signs for a verdict.
    async fn verdict_options(
        &self,
        submission: SubmissionId,
        kind: VerdictKind,
    ) -> Result<SignatureRequest, Problem>;
    /// Gives a verdict that is signed with a passkey.
    async fn sign_verdict(
        &self,
        submission: SubmissionId,
        kind: VerdictKind,
        reason: String,
        signature: Signature,
    ) -> Result<(), Problem>;
    /// Makes a submission the next target; with the name that was typed for it, where one is asked for.
    /// `cancel` ends the runs under way of steps that it changes.
    async fn commit(
        &self,
        submission: SubmissionId,
        typed: Option<String>,
        cancel: bool,
    ) -> Result<TargetNo, Problem>;
    /// Lets a step in ERROR try again.
    async fn retry(&self, noderole: NoderoleId, reason: String) -> Result<(), Problem>;
    /// Stops a run.
    async fn cancel(&self, run: RunId) -> Result<(), Problem>;
    /// Adds a node whose root is a folder on the worker's machine.
    async fn add_node(&self, wish: NodeWish) -> Result<NodeId, Problem>;
    /// Adds the nodes of a text, a node a line: all or none.
    async fn add_nodes(&self, text: &str) -> Result<AddedNodes, Problem>;
    /// Everything about a node, by its name or id.
    async fn node(&self, name: &str) -> Result<NodeView, Problem>;
    /// A page of what came of the last looks at a node, by its name or id.
    async fn node_looks(&self, name: &str, wanted: LooksWanted) -> Result<LookPage, Problem>;
    /// A page of what attempts returned that is kept for a node, by its name or id.
    async fn node_results(&self, name: &str, wanted: ResultsWanted)
    -> Result<ResultLines, Problem>;
    /// A page of what a node carries, by its name or id.
    async fn node_noderoles(
        &self,
        name: &str,
        wanted: CarriedWanted,
    ) -> Result<CarriedPage, Problem>;
    /// Changes what people say of a node, made on a version of it; hands back the new one.
    async fn change_node(
        &self,
        node: NodeId,
        version: i32,
        change: NodeChange,
    ) -> Result<i32, Problem>;
    /// Says that steps may start on a node, or that none may.
    async fn set_available(
        &self,
        node: NodeId,
        available: bool,
        reason: String,
    ) -> Result<(), Problem>;
    /// Makes a token by which a node speaks for itself, for so many days.
    async fn mint_node_token(
        &self,
        node: NodeId,
        name: String,
        days: u32,
    ) -> Result<MintedToken, Problem>;
    /// Takes a node's token back.
    async fn revoke_node_token(&self, node: NodeId, token: Uuid) -> Result<(), Problem>;
    /// Takes the record of a node out that no target speaks of.
    async fn take_out_node(&self, node: NodeId) -> Result<(), Problem>;
    /// How a submission was planned, as long as it is its open proposal's newest version.
    async fn review_report(&self, id: SubmissionId) -> Result<Option<Report>, Problem>;
    /// Holds a deployment, so that no new run starts in it and below it, or lets it go on.
    async fn hold(
        &self,
        deployment: DeploymentId,
        held: bool,
        reason: String,
    ) -> Result<(), Problem>;
    /// Lets a deployment's steps go before those of others, or behind them.
    async fn prioritise(
        &self,
        deployment: DeploymentId,
        priority: i32,
        reason: String,
    ) -> Result<(), Problem>;
    /// Switches execution on or off for everything.
    async fn switch(&self, enabled: bool, reason: String) -> Result<TargetNo, Problem>;
    /// Ends this session.
    async fn sign_out(&self) -> Result<(), Problem>;
}
