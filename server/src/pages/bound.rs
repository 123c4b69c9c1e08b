//! Implements [`Console`] for the pages, bound to the client of the request.
//!
//! It is thin on purpose: [`crate::http::session`] authenticates, and [`control`] authorizes and
//! executes. This module rejects requests without a session, and deletes the cookie when a session
//! ends.

use std::sync::Arc;

use api::Problem;
use api::catalog::{
    ImportPage, ImportsWanted, RoleGraph, RoleGraphWanted, RolePage, RoleView, RoleWanted,
    RolesWanted,
};
use api::console::{
    Board, Carriers, CatalogPage, Comparison, DeploymentPage, Discussion, DraftedNoderole,
    DropPreview, Foreseen, Frame, GraphView, GraphWish, LogFound, LogPart, MAX_DOCUMENTS, NodePage,
    NodeProposal, NodeWish, NoderoleView, Opened, PlannerView, Point, Restored, ReviewView,
    RunPage, RunView, SinceLook, TargetPage,
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
use app::console::Console;
use async_trait::async_trait;
use axum::http::{HeaderValue, header};
use control::people::{Actor, ClientInfo, People, Permission};
use control::{Control, Lost, ToCommit};
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, ReviewId, RoleName,
    RunId,
};
use engine::plan::{Edit, Report};
use leptos_axum::ResponseOptions;
use passkeys::RelyingParty;
use uuid::Uuid;

use crate::http::address::PublicAddress;
use crate::http::session;

pub(crate) struct Bound {
    pub control: Arc<Control>,
    pub people: People,
    pub address: Arc<PublicAddress>,
    pub actor: Option<Actor>,
    /// The client that sent the request.
    pub visitor: ClientInfo,
    pub host: Option<String>,
    /// Receives the cookies of the answer.
    pub answer: ResponseOptions,
}

impl Bound {
    pub fn actor(&self) -> Result<&Actor, Problem> {
        self.actor.as_ref().ok_or_else(Problem::signed_out)
    }

    /// The site on which passkeys of this request work.
    pub fn site(&self) -> Result<RelyingParty, Problem> {
        self.address.relying_party_for_host(self.host.as_deref())
    }

    /// Adds to a missing permission the people who can grant it.
    pub async fn told<T>(&self, answer: Result<T, Problem>) -> Result<T, Problem> {
        match answer {
            Err(problem) => Err(self.control.add_admin_contacts(problem).await),
            done => done,
        }
    }
}

/// Calls the same method of `control` as the actor.
macro_rules! asked {
    ($self:ident . $method:ident ( $($argument:expr),* )) => {{
        let answer = $self.control.$method($self.actor()? $(, $argument)*).await;
        $self.told(answer).await
    }};
}

#[async_trait]
impl Console for Bound {
    async fn frame(&self) -> Result<Option<Frame>, Problem> {
        match &self.actor {
            Some(actor) => self.control.frame(actor).await.map(Some),
            None => Ok(None),
        }
    }

    async fn deployments(&self, wanted: DeploymentsWanted) -> Result<DeploymentPage, Problem> {
        asked!(self.find_deployments(&wanted))
    }

    async fn policy(&self) -> Result<PolicyView, Problem> {
        asked!(self.policy_in_force())
    }

    async fn board(&self, deployment: &str) -> Result<Board, Problem> {
        asked!(self.board(deployment))
    }

    async fn carriers(
        &self,
        deployment: &str,
        of_ancestor: Option<String>,
        role: RoleName,
    ) -> Result<Carriers, Problem> {
        asked!(self.carriers(deployment, of_ancestor.as_deref(), &role))
    }

    async fn lift(
        &self,
        deployment: DeploymentId,
        nodes: Vec<NodeId>,
    ) -> Result<DropPreview, Problem> {
        asked!(self.lift(deployment, nodes))
    }

    async fn planner(
        &self,
        deployment: DeploymentId,
        known: Option<String>,
    ) -> Result<Option<PlannerView>, Problem> {
        asked!(self.planner(deployment, known.as_deref()))
    }

    async fn noderole(&self, id: NoderoleId) -> Result<NoderoleView, Problem> {
        asked!(self.noderole(id))
    }

    async fn noderole_values(
        &self,
        id: NoderoleId,
        wanted: ValuesWanted,
    ) -> Result<ValuesView, Problem> {
        asked!(self.noderole_values(id, &wanted))
    }

    async fn run_values(&self, id: RunId, wanted: ValuesWanted) -> Result<ValuesView, Problem> {
        asked!(self.run_values(id, &wanted))
    }

    async fn nodes(&self, wanted: NodesWanted) -> Result<NodePage, Problem> {
        asked!(self.find_nodes(&wanted))
    }

    async fn waiting(&self, wanted: WaitingWanted) -> Result<WaitingPage, Problem> {
        asked!(self.waiting(&wanted))
    }

    async fn runs(&self, wanted: RunsWanted) -> Result<RunPage, Problem> {
        asked!(self.find_runs(&wanted))
    }

    async fn run(&self, id: RunId) -> Result<RunView, Problem> {
        asked!(self.run(id))
    }

    async fn log(&self, id: RunId, offset: i64) -> Result<LogPart, Problem> {
        asked!(self.log(id, offset))
    }

    async fn search_log(
        &self,
        id: RunId,
        text: String,
        any_case: bool,
        after: String,
    ) -> Result<LogFound, Problem> {
        asked!(self.search_log(id, &text, any_case, &after))
    }

    async fn reviews(&self, wanted: ReviewsWanted) -> Result<ReviewPage, Problem> {
        asked!(self.reviews(&wanted))
    }

    async fn proposals(&self, wanted: ProposalsWanted) -> Result<ProposalPage, Problem> {
        asked!(self.proposals(&wanted))
    }

    async fn review(&self, id: ReviewId, after: Option<Anchor>) -> Result<ReviewView, Problem> {
        asked!(self.review(id))?.page(after.as_ref(), MAX_DOCUMENTS)
    }

    async fn graph(&self, deployment: &str, wish: GraphWish) -> Result<GraphView, Problem> {
        asked!(self.graph(deployment, &wish, Lost::Note))
    }

    async fn review_graph(&self, id: ReviewId, wish: GraphWish) -> Result<GraphView, Problem> {
        asked!(self.review_graph(id, &wish, Lost::Note))
    }

    async fn discussion(&self, id: ReviewId) -> Result<Discussion, Problem> {
        asked!(self.discussion(id))
    }

    async fn since_look(&self, id: ReviewId) -> Result<SinceLook, Problem> {
        asked!(self.since_look(id))?.page(None, MAX_DOCUMENTS)
    }

    async fn opened(&self, id: ReviewId) -> Result<Opened, Problem> {
        asked!(self.opened(id))
    }

    async fn open_changes(&self, id: ReviewId, anchors: Vec<Anchor>) -> Result<Opened, Problem> {
        asked!(self.open_changes(id, anchors))
    }

    async fn targets(&self, wanted: TargetsWanted) -> Result<TargetPage, Problem> {
        asked!(self.targets(&wanted))
    }

    async fn compare(
        &self,
        from: String,
        to: String,
        deployment: Option<String>,
    ) -> Result<Comparison, Problem> {
        let (from, to) = (Point::named(&from)?, Point::named(&to)?);
        let found = asked!(self.compare(from, to, deployment.as_deref()))?;
        Ok(found.cut(MAX_DOCUMENTS))
    }

    async fn look(&self, id: ReviewId) -> Result<(), Problem> {
        asked!(self.look(id))
    }

    async fn open_thread(
        &self,
        submission: ReviewId,
        anchor: Anchor,
        body: String,
    ) -> Result<CommentId, Problem> {
        asked!(self.open_thread(submission, anchor, body))
    }

    async fn reply(&self, thread: CommentId, body: String) -> Result<CommentId, Problem> {
        asked!(self.reply(thread, body))
    }

    async fn resolve_thread(&self, thread: CommentId, resolved: bool) -> Result<(), Problem> {
        asked!(self.resolve_thread(thread, resolved))
    }

    async fn propose(&self, deployment: DeploymentId) -> Result<ProposalId, Problem> {
        asked!(self.propose(deployment))
    }

    async fn propose_by_name(&self, deployment: &str) -> Result<ProposalId, Problem> {
        asked!(self.propose_by_name(deployment))
    }

    async fn restore(
        &self,
        deployment: String,
        target: BlueprintNumber,
        partial: bool,
    ) -> Result<Restored, Problem> {
        asked!(self.restore(&deployment, target, partial))
    }

    async fn propose_on_node(&self, node: NodeId) -> Result<ProposalId, Problem> {
        asked!(self.propose_on_node(node))
    }

    async fn node_proposal(&self, id: ProposalId) -> Result<NodeProposal, Problem> {
        asked!(self.node_proposal(id))
    }

    async fn drafted(
        &self,
        proposal: ProposalId,
        node: NodeId,
        noderole: NoderoleKey,
    ) -> Result<DraftedNoderole, Problem> {
        asked!(self.drafted(proposal, node, &noderole))
    }

    async fn edit(
        &self,
        proposal: ProposalId,
        version: i32,
        edits: Vec<Edit>,
    ) -> Result<i32, Problem> {
        asked!(self.edit(proposal, version, edits))
    }

    async fn foresee(&self, proposal: ProposalId, edits: Vec<Edit>) -> Result<Foreseen, Problem> {
        asked!(self.foresee(proposal, edits))
    }

    async fn catalog(&self, wanted: BarclampsWanted) -> Result<CatalogPage, Problem> {
        asked!(self.find_barclamps(&wanted))
    }

    async fn roles(&self, wanted: RolesWanted) -> Result<RolePage, Problem> {
        asked!(self.roles(&wanted))
    }

    async fn role(&self, name: &str, wanted: RoleWanted) -> Result<RoleView, Problem> {
        asked!(self.role(name, &wanted))
    }

    async fn role_graph(&self, wanted: RoleGraphWanted) -> Result<RoleGraph, Problem> {
        asked!(self.role_graph(&wanted))
    }

    async fn imports(&self, wanted: ImportsWanted) -> Result<ImportPage, Problem> {
        asked!(self.imports(&wanted))
    }

    async fn import(&self, path: String, text: String) -> Result<Vec<String>, Problem> {
        let files = [(path, text.into_bytes())].into();
        match self.control.import_barclamps(Some(self.actor()?), &files).await {
            Ok(imported) => Ok(imported.lines()),
            Err(problem) => Err(self.control.add_admin_contacts(problem).await),
        }
    }

    async fn undo(&self, proposal: ProposalId, version: i32) -> Result<i32, Problem> {
        asked!(self.undo(proposal, version))
    }

    async fn redo(&self, proposal: ProposalId, version: i32) -> Result<i32, Problem> {
        asked!(self.redo(proposal, version))
    }

    async fn discard(&self, proposal: ProposalId, version: i32) -> Result<(), Problem> {
        asked!(self.discard(proposal, version))
    }

    async fn submit(
        &self,
        proposal: ProposalId,
        version: i32,
        title: String,
    ) -> Result<ReviewId, Problem> {
        asked!(self.submit(proposal, version, title))
    }

    async fn judge(
        &self,
        submission: ReviewId,
        kind: VerdictKind,
        reason: String,
    ) -> Result<(), Problem> {
        asked!(self.judge(submission, kind, reason))
    }

    async fn verdict_options(
        &self,
        submission: ReviewId,
        kind: VerdictKind,
    ) -> Result<SignatureRequest, Problem> {
        // A reader without permission should get that error, not the one about passkeys and the
        // site.
        self.told(self.actor()?.require(Permission::Viewer)).await?;
        let site = self.site()?;
        asked!(self.verdict_options(&site, submission, kind))
    }

    async fn sign_verdict(
        &self,
        submission: ReviewId,
        kind: VerdictKind,
        reason: String,
        signature: Signature,
    ) -> Result<(), Problem> {
        asked!(self.give_signed_verdict(submission, kind, reason, Some(signature)))
    }

    async fn commit(
        &self,
        submission: ReviewId,
        typed: Option<String>,
        cancel: bool,
    ) -> Result<BlueprintNumber, Problem> {
        asked!(self.commit(ToCommit { submission, typed, cancel }))
    }

    async fn retry(&self, noderole: NoderoleId, reason: String) -> Result<(), Problem> {
        asked!(self.retry(noderole, reason))
    }

    async fn cancel(&self, run: RunId) -> Result<(), Problem> {
        asked!(self.cancel(run))
    }

    async fn add_node(&self, wish: NodeWish) -> Result<NodeId, Problem> {
        asked!(self.add_node(wish))
    }

    async fn add_nodes(&self, text: &str) -> Result<AddedNodes, Problem> {
        asked!(self.add_nodes(text))
    }

    async fn node(&self, name: &str) -> Result<NodeView, Problem> {
        asked!(self.node(name))
    }

    async fn node_looks(&self, name: &str, wanted: LooksWanted) -> Result<LookPage, Problem> {
        asked!(self.node_looks(name, &wanted))
    }

    async fn node_results(
        &self,
        name: &str,
        wanted: ResultsWanted,
    ) -> Result<ResultLines, Problem> {
        asked!(self.node_results(name, &wanted))
    }

    async fn node_noderoles(
        &self,
        name: &str,
        wanted: CarriedWanted,
    ) -> Result<CarriedPage, Problem> {
        asked!(self.node_noderoles(name, &wanted))
    }

    async fn change_node(
        &self,
        node: NodeId,
        version: i32,
        change: NodeChange,
    ) -> Result<i32, Problem> {
        asked!(self.change_node(node, version, change))
    }

    async fn set_available(
        &self,
        node: NodeId,
        available: bool,
        reason: String,
    ) -> Result<(), Problem> {
        asked!(self.set_available(node, available, reason))
    }

    async fn mint_node_token(
        &self,
        node: NodeId,
        name: String,
        days: u32,
    ) -> Result<MintedToken, Problem> {
        asked!(self.mint_node_token(node, name, days))
    }

    async fn revoke_node_token(&self, node: NodeId, token: Uuid) -> Result<(), Problem> {
        asked!(self.revoke_node_token(node, token))
    }

    async fn take_out_node(&self, node: NodeId) -> Result<(), Problem> {
        asked!(self.take_out_node(node, None))
    }

    async fn review_report(&self, id: ReviewId) -> Result<Option<Report>, Problem> {
        asked!(self.review_report(id))
    }

    async fn hold(
        &self,
        deployment: DeploymentId,
        held: bool,
        reason: String,
    ) -> Result<(), Problem> {
        asked!(self.hold(deployment, held, reason))
    }

    async fn prioritise(
        &self,
        deployment: DeploymentId,
        priority: i32,
        reason: String,
    ) -> Result<(), Problem> {
        asked!(self.prioritise(deployment, priority, reason))
    }

    async fn switch(&self, enabled: bool, reason: String) -> Result<BlueprintNumber, Problem> {
        asked!(self.switch(enabled, reason))
    }

    async fn sign_out(&self) -> Result<(), Problem> {
        self.people.sign_out(self.actor()?).await?;
        if let Ok(cookie) = HeaderValue::from_str(&session::end(&self.address).to_string()) {
            self.answer.append_header(header::SET_COOKIE, cookie);
        }
        Ok(())
    }
}
