//! The server's side of the pages, as one trait.
//!
//! The server provides an `Arc<dyn Console>` in the context of each request, bound to the signed-in
//! user. Pages reach it through server functions that each call one method here. Every method
//! checks the caller's permissions itself. A button on a page grants nothing.

use api::Problem;
use api::catalog::{
    ImportPage, ImportsWanted, RoleGraph, RoleGraphWanted, RolePage, RoleView, RoleWanted,
    RolesWanted,
};
use api::console::{
    BlueprintPage, Board, CatalogPage, ChangesSinceView, Comparison, DeploymentPage, Discussion,
    DraftedNoderole, DropPreview, EditsPreview, Frame, GraphOptions, GraphView, LogFound, LogPart,
    NodePage, NodeProposal, NodeRequest, NoderoleView, PlannerView, Restored, ReviewView,
    RoleNoderoles, RunPage, RunView, ViewedChanges,
};
use api::listing::{BarclampsWanted, BlueprintsWanted, DeploymentsWanted, NodesWanted, RunsWanted};
use api::nodes::{
    AddedNodes, CreatedNodeToken, HealthCheckPage, HealthChecksWanted, NodeChange,
    NodeNoderolePage, NodeNoderolesWanted, NodeView,
};
use api::overview::PolicyView;
use api::people::{Signature, SignatureRequest};
use api::reviews::{ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted};
use api::values::{ResultLines, ResultsWanted, ValuesView, ValuesWanted};
use api::waiting::{PendingPage, PendingWanted};
use async_trait::async_trait;
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, ReviewId, RoleName,
    RunId,
};
use engine::plan::Edit;
use engine::report::Report;
use uuid::Uuid;

#[async_trait]
pub trait Console: Send + Sync {
    /// The data of the frame around every page. The only method that works without a sign-in: it
    /// then returns `None`.
    async fn frame(&self) -> Result<Option<Frame>, Problem>;
    async fn deployments(&self, wanted: DeploymentsWanted) -> Result<DeploymentPage, Problem>;
    /// A deployment's board, by name.
    async fn board(&self, deployment: &str) -> Result<Board, Problem>;
    /// All nodes with a role of a board, in the deployment itself or in an ancestor.
    async fn carriers(
        &self,
        deployment: &str,
        ancestor: Option<String>,
        role: RoleName,
    ) -> Result<RoleNoderoles, Problem>;
    /// The actions that the open proposal on the deployment allows for these nodes.
    async fn lift(
        &self,
        deployment: DeploymentId,
        nodes: Vec<NodeId>,
    ) -> Result<DropPreview, Problem>;
    /// The data that the browser needs to plan the open proposal on the deployment. Leaves out the
    /// base data if the client already has the current stamp.
    async fn planner(
        &self,
        deployment: DeploymentId,
        known: Option<String>,
    ) -> Result<Option<PlannerView>, Problem>;
    /// The input of the noderole's next run, or the values that the noderole itself sets. Each
    /// value has its source.
    async fn noderole_values(
        &self,
        id: NoderoleId,
        wanted: ValuesWanted,
    ) -> Result<ValuesView, Problem>;
    /// The input of a run. Each value has its source.
    async fn run_values(&self, id: RunId, wanted: ValuesWanted) -> Result<ValuesView, Problem>;
    async fn noderole(&self, id: NoderoleId) -> Result<NoderoleView, Problem>;
    async fn nodes(&self, wanted: NodesWanted) -> Result<NodePage, Problem>;
    async fn runs(&self, wanted: RunsWanted) -> Result<RunPage, Problem>;
    /// The approval policy in force.
    async fn policy(&self) -> Result<PolicyView, Problem>;
    /// Pending steps, with the reason and the person or event that unblocks each.
    async fn waiting(&self, wanted: PendingWanted) -> Result<PendingPage, Problem>;
    async fn run(&self, id: RunId) -> Result<RunView, Problem>;
    /// At most 256 KiB of a run's log, from an offset. A negative offset counts from the end.
    async fn log(&self, id: RunId, offset: i64) -> Result<LogPart, Problem>;
    /// Lines of a run's log that contain a text. Starts at the beginning, or where the last search
    /// ended.
    async fn search_log(
        &self,
        id: RunId,
        text: String,
        any_case: bool,
        after: String,
    ) -> Result<LogFound, Problem>;
    async fn reviews(&self, wanted: ReviewsWanted) -> Result<ReviewPage, Problem>;
    async fn proposals(&self, wanted: ProposalsWanted) -> Result<ProposalPage, Problem>;
    /// A deployment's graph, by the deployment's name, folded as requested.
    async fn graph(&self, deployment: &str, wish: GraphOptions) -> Result<GraphView, Problem>;
    /// The changes of a review and their direct neighbours, as a graph.
    async fn review_graph(&self, id: ReviewId, wish: GraphOptions) -> Result<GraphView, Problem>;
    /// A review, with at most `MAX_DOCUMENTS` documents: those after `after`, or the first ones.
    async fn review(&self, id: ReviewId, after: Option<Anchor>) -> Result<ReviewView, Problem>;
    /// The threads on a review's proposal.
    async fn discussion(&self, id: ReviewId) -> Result<Discussion, Problem>;
    /// The difference between a review and the version that this person last viewed.
    async fn since_look(&self, id: ReviewId) -> Result<ChangesSinceView, Problem>;

    /// How many of a review's changes this person has viewed.
    async fn opened(&self, id: ReviewId) -> Result<ViewedChanges, Problem>;

    /// Records that this person viewed the changes of these documents.
    async fn open_changes(
        &self,
        id: ReviewId,
        anchors: Vec<Anchor>,
    ) -> Result<ViewedChanges, Problem>;
    /// Targets, newest first, optionally only those that changed a deployment.
    async fn targets(&self, wanted: BlueprintsWanted) -> Result<BlueprintPage, Problem>;
    /// Compares two blueprints, in one deployment or in all. Each is given by a target's number or
    /// a root's hash. Returns at most `MAX_DOCUMENTS` documents.
    async fn compare(
        &self,
        from: String,
        to: String,
        deployment: Option<String>,
    ) -> Result<Comparison, Problem>;

    /// Records that this person viewed a review.
    async fn look(&self, id: ReviewId) -> Result<(), Problem>;
    /// Opens a thread on a change of a review.
    async fn open_thread(
        &self,
        submission: ReviewId,
        anchor: Anchor,
        body: String,
    ) -> Result<CommentId, Problem>;
    async fn reply(&self, thread: CommentId, body: String) -> Result<CommentId, Problem>;
    async fn resolve_thread(&self, thread: CommentId, resolved: bool) -> Result<(), Problem>;
    /// Opens a proposal on a deployment, or returns the open one.
    async fn propose(&self, deployment: DeploymentId) -> Result<ProposalId, Problem>;
    /// As [`propose`](Self::propose), by the deployment's name.
    async fn propose_by_name(&self, deployment: &str) -> Result<ProposalId, Problem>;
    /// Opens a proposal that restores a deployment, by name, to its state at a target. `partial`
    /// leaves out the parts that cannot be restored.
    async fn restore(
        &self,
        deployment: String,
        target: BlueprintNumber,
        partial: bool,
    ) -> Result<Restored, Problem>;
    /// Opens a proposal on a single node, or returns the open one.
    async fn propose_on_node(&self, node: NodeId) -> Result<ProposalId, Problem>;
    async fn node_proposal(&self, id: ProposalId) -> Result<NodeProposal, Problem>;
    /// A noderole as the open proposal would change it.
    async fn drafted(
        &self,
        proposal: ProposalId,
        node: NodeId,
        noderole: NoderoleKey,
    ) -> Result<DraftedNoderole, Problem>;
    /// Appends edits to a version of a proposal: all or none. Returns the new version.
    async fn edit(
        &self,
        proposal: ProposalId,
        version: i32,
        edits: Vec<Edit>,
    ) -> Result<i32, Problem>;
    /// A preview of a proposal with further edits, which are not saved.
    async fn foresee(
        &self,
        proposal: ProposalId,
        edits: Vec<Edit>,
    ) -> Result<EditsPreview, Problem>;
    async fn catalog(&self, wanted: BarclampsWanted) -> Result<CatalogPage, Problem>;
    async fn roles(&self, wanted: RolesWanted) -> Result<RolePage, Problem>;
    async fn role(&self, name: &str, wanted: RoleWanted) -> Result<RoleView, Problem>;
    /// The graph of dependencies between roles.
    async fn role_graph(&self, wanted: RoleGraphWanted) -> Result<RoleGraph, Problem>;
    /// A page of the import history.
    async fn imports(&self, wanted: ImportsWanted) -> Result<ImportPage, Problem>;
    /// Imports a barclamp's file, for browsers without JavaScript. Returns the outcome, one entry
    /// per line.
    async fn import(&self, path: String, text: String) -> Result<Vec<String>, Problem>;
    /// Undoes the last edit. Returns the new version.
    async fn undo(&self, proposal: ProposalId, version: i32) -> Result<i32, Problem>;
    /// Redoes the last undone edit. Returns the new version.
    async fn redo(&self, proposal: ProposalId, version: i32) -> Result<i32, Problem>;
    async fn discard(&self, proposal: ProposalId, version: i32) -> Result<(), Problem>;
    async fn submit(
        &self,
        proposal: ProposalId,
        version: i32,
        title: String,
    ) -> Result<ReviewId, Problem>;
    async fn judge(
        &self,
        submission: ReviewId,
        kind: VerdictKind,
        reason: String,
    ) -> Result<(), Problem>;
    /// The challenge that the browser signs for a verdict.
    async fn verdict_options(
        &self,
        submission: ReviewId,
        kind: VerdictKind,
    ) -> Result<SignatureRequest, Problem>;
    async fn sign_verdict(
        &self,
        submission: ReviewId,
        kind: VerdictKind,
        reason: String,
        signature: Signature,
    ) -> Result<(), Problem>;
    /// Makes a review's blueprint the next target. `confirmation` is the confirmation that the user
    /// typed, if the change requires one. `cancel` cancels running steps that the change replaces.
    async fn commit(
        &self,
        submission: ReviewId,
        confirmation: Option<String>,
        cancel: bool,
    ) -> Result<BlueprintNumber, Problem>;
    /// Retries a step in ERROR.
    async fn retry(&self, noderole: NoderoleId, reason: String) -> Result<(), Problem>;
    async fn cancel(&self, run: RunId) -> Result<(), Problem>;
    async fn add_node(&self, wish: NodeRequest) -> Result<NodeId, Problem>;
    /// Adds nodes from a text with one node per line: all or none.
    async fn add_nodes(&self, text: &str) -> Result<AddedNodes, Problem>;
    /// A node, by its name or id.
    async fn node(&self, name: &str) -> Result<NodeView, Problem>;
    /// A page of a node's latest health checks, by the node's name or id.
    async fn node_looks(
        &self,
        name: &str,
        wanted: HealthChecksWanted,
    ) -> Result<HealthCheckPage, Problem>;
    /// A page of the stored results of attempts on a node, by the node's name or id.
    async fn node_results(&self, name: &str, wanted: ResultsWanted)
    -> Result<ResultLines, Problem>;
    /// A page of a node's noderoles, by the node's name or id.
    async fn node_noderoles(
        &self,
        name: &str,
        wanted: NodeNoderolesWanted,
    ) -> Result<NodeNoderolePage, Problem>;
    /// Changes a version of a node's record. Returns the new version.
    async fn change_node(
        &self,
        node: NodeId,
        version: i32,
        change: NodeChange,
    ) -> Result<i32, Problem>;
    /// Starts or ends a node's maintenance.
    async fn set_available(
        &self,
        node: NodeId,
        available: bool,
        reason: String,
    ) -> Result<(), Problem>;
    /// Creates a token with which a node authenticates, valid for `days` days.
    async fn mint_node_token(
        &self,
        node: NodeId,
        name: String,
        days: u32,
    ) -> Result<CreatedNodeToken, Problem>;
    async fn revoke_node_token(&self, node: NodeId, token: Uuid) -> Result<(), Problem>;
    /// Deletes the record of a node that no target contains.
    async fn take_out_node(&self, node: NodeId) -> Result<(), Problem>;
    /// The report of the planner. Exists only while the review is the newest version of an open
    /// proposal.
    async fn review_report(&self, id: ReviewId) -> Result<Option<Report>, Problem>;
    /// Puts a deployment on hold or releases it. On hold, no new run starts in it or its
    /// descendants.
    async fn hold(
        &self,
        deployment: DeploymentId,
        on_hold: bool,
        reason: String,
    ) -> Result<(), Problem>;
    /// Sets the priority of a deployment's steps relative to other deployments.
    async fn prioritise(
        &self,
        deployment: DeploymentId,
        priority: i32,
        reason: String,
    ) -> Result<(), Problem>;
    /// Pauses or resumes execution everywhere.
    async fn switch(&self, enabled: bool, reason: String) -> Result<BlueprintNumber, Problem>;
    async fn sign_out(&self) -> Result<(), Problem>;
}
