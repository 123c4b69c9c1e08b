//! Proposals: opening, editing and planning. [`crate::reviews::submit`] submits them for review.
//!
//! Planning is pure and runs outside of transactions. The write that follows names the planned
//! version of the proposal, so it fails if another edit came in between.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::live::{Live, Topic};
use api::problem::Finding;
use engine::blueprint::impact::{self};
use engine::blueprint::{Difference, Projection, difference, project};
use engine::canonical::{Object, ObjectKind};
use engine::cluster::{Connection, ConnectionChange, phantom};
use engine::gate::{Policy, Risk};
use engine::ids::{DeploymentId, NodeId, PersonId, ProposalId};
use engine::plan::base::{ScopeChecker, ScopeViolation, beyond, outside, written};
use engine::plan::drop_preview::DropPreview;
use engine::plan::drop_preview::preview_drop;
use engine::plan::materialize;
use engine::plan::materialize::Materialized;
use engine::plan::{
    Edit, EditError, Effects, NumberedEdit, Scope, SideEffects, edit, order, resolve, resolve_with,
};
use serde_json::json;
use store::proposals::{EditRow, MAX_EDITS, ProposalRow, UndoResult};

use crate::compute::ComputeLimit;
use crate::current::CurrentState;
use crate::nodes::address_policy;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_node, no_proposal};
use crate::proposals::edit_text::{Names, check_edit};
use crate::{Control, done, text};

/// Maximum number of edits per call.
pub const MAX_EDITS_PER_CALL: usize = 1_000;
/// Maximum total number of nodes that the edits of a proposal name; lists count each node. It
/// limits the cost of planning.
pub const MAX_SINGLES: usize = 50_000;
/// Maximum number of nodes per drag.
pub const MAX_DRAGGED: usize = 1_000;

/// A proposal, planned on the present.
pub(crate) struct Planned {
    pub effects: Effects,
    /// The side effects of each edit, by its number.
    pub side_effects: BTreeMap<u32, SideEffects>,
    pub materialized: Materialized,
    pub projection: Projection,
    pub difference: Difference,
    pub risks: BTreeSet<Risk>,
    /// The policy that the proposal sets.
    pub policy: Option<Object>,
}

impl Planned {
    /// Required approvals while this policy is in force.
    pub(crate) fn approvals(&self, policy: &Policy) -> u32 {
        let brought =
            self.effects.policy.as_ref().map_or(0, |set| set.policy.approvals_for(&self.risks));
        policy.approvals_for(&self.risks).max(brought)
    }

    /// All objects that a submission or a target refers to.
    pub fn objects(&self) -> Vec<Object> {
        self.materialized.objects.iter().chain(&self.policy).cloned().collect()
    }
}

/// Whether the person can review the proposal now, but would become an author by editing it.
pub(crate) fn makes_author(actor: &Actor, edits: &[EditRow]) -> bool {
    let is_foreign = !edits.is_empty() && !authors(edits).contains(&actor.person);
    is_foreign
        && actor.has_permission_somewhere(Permission::Reviewer)
        && actor.has_permission_somewhere(Permission::Operator)
}

/// Whether another person opened the proposal or made, undid or redid one of its edits. Undone
/// edits count.
pub(crate) fn has_other_authors(actor: &Actor, row: &ProposalRow, edits: &[EditRow]) -> bool {
    row.created_by != actor.person || authors(edits).iter().any(|author| *author != actor.person)
}

/// The deployment of a proposal; for a proposal on a node, the node's current deployment. Editing
/// requires the permission there.
pub(crate) fn place_of(present: &CurrentState, row: &ProposalRow) -> DeploymentId {
    let node = row.node.and_then(|node| present.skeleton.nodes.get(&node));
    node.map_or(row.deployment, |node| node.deployment)
}

/// The name of the person who made the edit with this number.
pub(crate) fn author_of(edits: &[EditRow], number: u32) -> Option<String> {
    edits.iter().find(|row| row.edit.seq == number).map(|row| row.actor_name.clone())
}

/// The edits that are not undone, in order.
pub(crate) fn counting(edits: &[EditRow]) -> Vec<NumberedEdit> {
    edits.iter().filter(|e| !e.undone).map(|e| e.edit.clone()).collect()
}

/// Plans a proposal on the present.
pub(crate) fn plan(present: &CurrentState, edits: &[NumberedEdit]) -> Result<Planned, Problem> {
    let (effects, side_effects) = resolve_with(&present.skeleton, &present.catalog, edits);
    let materialized = materialize(&present.blueprint, &|id| present.node_record(id), &effects)
        .map_err(|error| Problem::conflict("plan", text::sentence(&error.to_string())))?;
    let projection = project(
        &present.blueprint,
        &materialized.blueprint,
        &materialized.changes,
        &present.catalog,
    )
    .map_err(|error| Problem::conflict("catalog", text::sentence(&error.to_string())))?;
    let difference = difference(&present.blueprint, &materialized.blueprint, &materialized.changes)
        .map_err(|error| Problem::conflict("data", text::sentence(&error.to_string())))?;
    let policy =
        effects.policy.as_ref().map(|set| Object::of(ObjectKind::Policy, &set.policy)).transpose();
    let policy =
        policy.map_err(|error| Problem::conflict("policy", text::sentence(&error.to_string())))?;
    let mut planned = Planned {
        effects,
        side_effects,
        materialized,
        projection,
        difference,
        risks: BTreeSet::new(),
        policy,
    };
    planned.risks = impact::risks(&planned.from(present));
    Ok(planned)
}

/// Like [`plan`], outside of the threads that answer requests, because it visits the whole cluster.
pub(crate) async fn plan_on_pool(
    by: &ComputeLimit,
    present: &CurrentState,
    edits: Vec<NumberedEdit>,
) -> Result<Planned, Problem> {
    let present = present.clone();
    by.work(move || plan(&present, &edits)).await?
}

/// New edits in the order in which they take effect.
#[derive(Debug, Clone)]
pub(crate) struct NewEdits {
    pub edits: Vec<Edit>,
    /// The position of each edit in the request, for errors.
    positions: Vec<usize>,
}

impl NewEdits {
    /// Edits that take effect in the given order.
    pub fn as_given(edits: Vec<Edit>) -> Self {
        Self { positions: (0..edits.len()).collect(), edits }
    }

    /// The edits of one request in the order of the graph: see [`engine::plan::order`].
    pub async fn in_order(
        by: &ComputeLimit,
        present: &CurrentState,
        rows: &[EditRow],
        edits: Vec<Edit>,
    ) -> Result<Self, Problem> {
        if edits.len() == 1 {
            return Ok(Self::as_given(edits));
        }
        let (present, known) = (present.clone(), counting(rows));
        by.work(move || {
            let positions = order(&present.skeleton, &present.catalog, &known, &edits);
            let edits = positions.iter().map(|position| edits[*position].clone()).collect();
            Self { edits, positions }
        })
        .await
    }
}

/// Like [`objections`], outside of the threads that answer requests.
pub(crate) async fn edit_errors_on_pool(
    by: &ComputeLimit,
    present: &CurrentState,
    scope: Scope,
    rows: &[EditRow],
    edits: &NewEdits,
) -> Result<Vec<Finding>, Problem> {
    let (present, rows, edits) = (present.clone(), rows.to_vec(), edits.clone());
    by.work(move || objections(&present, scope, &rows, &edits)).await
}

impl Planned {
    /// The plan together with the state that it changes.
    pub fn from<'a>(&'a self, present: &'a CurrentState) -> impact::Planned<'a> {
        impact::Planned {
            old: &present.blueprint,
            new: &self.materialized.blueprint,
            difference: &self.difference,
            projection: &self.projection,
            effects: &self.effects,
            catalog: &present.catalog,
        }
    }
}

/// All people who made, undid or redid an edit. The person who submits is an author too.
pub(crate) fn authors(rows: &[EditRow]) -> BTreeSet<PersonId> {
    rows.iter().flat_map(|e| e.touched_by.iter().copied().chain([e.actor])).collect()
}

impl Control {
    /// Like [`Control::propose`], with the deployment's name.
    pub async fn propose_by_name(
        &self,
        actor: &Actor,
        deployment: &str,
    ) -> Result<ProposalId, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let id = self.current_state().await?.named(deployment)?;
        self.propose(actor, id).await
    }

    /// Opens a proposal on a deployment, or returns the open one. A proposal on *system* creates
    /// and removes top-level deployments, moves nodes back to *system*, and changes shared
    /// settings. Its base is the whole tree, so every commit makes Gantry plan it again.
    pub async fn propose(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
    ) -> Result<ProposalId, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let present = self.current_state().await?;
        let found = present.skeleton.deployments.get(&deployment);
        let found = found.ok_or_else(|| {
            Problem::not_found("This deployment no longer exists. See the list of deployments.")
        })?;
        actor.require_in(Permission::Operator, deployment)?;
        let mut transaction = self.begin().await?;
        let (id, new) =
            store::proposals::ensure_proposal(&mut transaction, deployment, actor.person)
                .await
                .map_err(from_store)?;
        actor.revalidate(&mut transaction).await?.require_in(Permission::Operator, deployment)?;
        if new {
            let detail = json!({"deployment": found.name});
            store::audit::append_audit(
                &mut transaction,
                Some(actor.person),
                "proposal.open",
                &id.to_string(),
                &detail,
            )
            .await
            .map_err(from_store)?;
            notify_proposal(&mut transaction, id, deployment, 0).await?;
        }
        done(transaction).await?;
        Ok(id)
    }

    /// Opens a proposal on a single node, or returns the open one. It is independent of the
    /// proposal on the node's deployment. It also works in *system*, where new nodes get their
    /// first roles.
    pub async fn propose_on_node(
        &self,
        actor: &Actor,
        node: NodeId,
    ) -> Result<ProposalId, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let present = self.current_state().await?;
        let found = present.skeleton.nodes.get(&node);
        let found = found.ok_or_else(no_node)?;
        actor.require_in(Permission::Operator, found.deployment)?;
        if found.phantom {
            let deployment = present.name_of(found.deployment);
            return Err(Problem::conflict(
                "phantom",
                format!(
                    "{} is a phantom node. Propose the change on its deployment: gantry deployment \
                     show {deployment}",
                    phantom::command_name_of(&deployment)
                ),
            ));
        }
        let mut transaction = self.begin().await?;
        let (id, new) = store::proposals::ensure_node_proposal(
            &mut transaction,
            found.deployment,
            node,
            actor.person,
        )
        .await
        .map_err(from_store)?;
        actor
            .revalidate(&mut transaction)
            .await?
            .require_in(Permission::Operator, found.deployment)?;
        if new {
            let detail = json!({"node": found.fqdn});
            store::audit::append_audit(
                &mut transaction,
                Some(actor.person),
                "proposal.open",
                &id.to_string(),
                &detail,
            )
            .await
            .map_err(from_store)?;
            notify_proposal(&mut transaction, id, found.deployment, 0).await?;
        }
        done(transaction).await?;
        Ok(id)
    }

    /// Appends edits to a proposal at a version, all or none. Returns the new version. Bindings and
    /// removals that follow each other take effect in the order of the graph.
    pub async fn edit(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        version: i32,
        edits: Vec<Edit>,
    ) -> Result<i32, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        if edits.is_empty() || edits.len() > MAX_EDITS_PER_CALL {
            return Err(Problem::invalid(format!(
                "Send 1 to {MAX_EDITS_PER_CALL} edits per request."
            )));
        }
        edits.iter().try_for_each(check_edit)?;
        let (present, row, rows) = self.load_at_version(proposal, version).await?;
        actor.require_in(Permission::Operator, place_of(&present, &row))?;
        self.check_new_ids(&edits).await?;
        let by = self.compute_for(actor);
        let new = NewEdits::in_order(&by, &present, &rows, edits).await?;
        self.check_edits(&by, &present, row.scope(), &rows, &new).await?;
        let edits = new.edits;
        self.check_edit_data(&by, &present, &rows, &edits).await?;
        self.check_connections(&present, &rows, &edits)?;
        let mut transaction = self.begin().await?;
        let version = store::proposals::append_edits(
            &mut transaction,
            proposal,
            version,
            actor.person,
            &edits,
        )
        .await
        .map_err(from_store)?
        .ok_or_else(proposal_changed)?;
        actor
            .revalidate(&mut transaction)
            .await?
            .require_in(Permission::Operator, place_of(&present, &row))?;
        let names = Names::of(&present, edits.iter());
        let detail = json!({"edits": edits.iter().map(|e| names.edit(e)).collect::<Vec<_>>()});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "proposal.edit",
            &proposal.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify_proposal(&mut transaction, proposal, row.deployment, version).await?;
        done(transaction).await?;
        Ok(version)
    }

    /// Ids in edits must be new. The skeleton contains existing ids; only the database knows
    /// removed ones.
    async fn check_new_ids(&self, edits: &[Edit]) -> Result<(), Problem> {
        let minted = |edit: &Edit| match edit {
            Edit::CreateDeployment(edit::CreateDeployment { id, phantom, .. }) => {
                Some((*id, *phantom))
            }
            _ => None,
        };
        let ids: Vec<_> =
            edits.iter().filter_map(minted).flat_map(|(id, phantom)| [id.0, phantom.0]).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut connection = self.connection().await?;
        let removed = store::nodes::removed_ids(&mut connection, &ids).await.map_err(from_store)?;
        for (at, (id, phantom)) in
            edits.iter().enumerate().filter_map(|(at, edit)| Some((at + 1, minted(edit)?)))
        {
            let refused = match (removed.contains(&id.0), removed.contains(&phantom.0)) {
                (true, _) => EditError::DeploymentIdUsed(id),
                (false, true) => EditError::PhantomTaken(phantom),
                (false, false) => continue,
            };
            let detail = text::sentence(&refused.to_string());
            let mut problem =
                Problem::new(422, "edit_refused", "The edit cannot take effect", detail.clone());
            problem.errors.push(Finding { at: format!("edit {at}"), detail });
            return Err(problem);
        }
        Ok(())
    }

    /// Every new edit must take effect and stay in the proposal's scope.
    pub(crate) async fn check_edits(
        &self,
        by: &ComputeLimit,
        present: &CurrentState,
        scope: Scope,
        rows: &[EditRow],
        new: &NewEdits,
    ) -> Result<(), Problem> {
        if rows.len() + new.edits.len() > MAX_EDITS {
            return Err(Problem::conflict(
                "too_many_edits",
                format!(
                    "A proposal can have at most {MAX_EDITS} edits. Submit this one and open \
                     another."
                ),
            ));
        }
        let known = rows.iter().filter(|row| !row.undone).map(|row| &row.edit.edit);
        if known.chain(&new.edits).map(Edit::singles).sum::<usize>() > MAX_SINGLES {
            return Err(Problem::conflict(
                "too_many_nodes",
                format!(
                    "The edits of a proposal can list at most {MAX_SINGLES} nodes in total. Submit \
                     this one and open another."
                ),
            ));
        }
        let findings = edit_errors_on_pool(by, present, scope, rows, new).await?;
        let Some(finding) = findings.first() else { return Ok(()) };
        let mut problem = Problem::new(
            422,
            "edit_refused",
            "The edit cannot take effect",
            finding.detail.clone(),
        );
        problem.errors = findings;
        Err(problem)
    }

    /// Refuses a connection with fields that the node's transport does not have, and a forbidden
    /// root folder. The planner does not check connections.
    fn check_connections(
        &self,
        present: &CurrentState,
        rows: &[EditRow],
        edits: &[Edit],
    ) -> Result<(), Problem> {
        let mut changes: BTreeMap<NodeId, ConnectionChange> = BTreeMap::new();
        let known = counting(rows);
        let known = known.iter().map(|numbered| (None, &numbered.edit));
        for (new, edit) in
            known.chain(edits.iter().enumerate().map(|(n, edit)| (Some(n + 1), edit)))
        {
            let Edit::SetConnection(edit::SetConnection { node, connection }) = edit else {
                continue;
            };
            let change = connection.clone().after(changes.remove(node).unwrap_or_default());
            if let (Some(new), Some(stored)) = (new, present.blueprint.nodes.get(node)) {
                let applied =
                    change.apply(stored.doc.connection.as_ref()).map_err(|error| error.to_string());
                let checked = applied.and_then(|connection| match connection {
                    Connection::Local { root } => {
                        self.in_folder(&root).map(drop).map_err(|problem| problem.detail)
                    }
                    Connection::Ssh(ssh) => {
                        address_policy::check(&self.reach, &ssh.addresses, ssh.port)
                            .map_err(|problem| problem.detail)
                    }
                });
                if let Err(detail) = checked {
                    let detail = text::sentence(&text::capitalize(&detail));
                    let mut problem = Problem::new(
                        422,
                        "edit_refused",
                        "The edit cannot take effect",
                        detail.clone(),
                    );
                    problem.errors.push(Finding { at: format!("edit {new}"), detail });
                    return Err(problem);
                }
            }
            changes.insert(*node, change);
        }
        Ok(())
    }

    /// Undoes the edits of the last request. Returns the new version.
    pub async fn undo(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        version: i32,
    ) -> Result<i32, Problem> {
        self.undo_or_redo(actor, proposal, version, true).await
    }

    /// Redoes the edits of the last undone request. Returns the new version.
    pub async fn redo(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        version: i32,
    ) -> Result<i32, Problem> {
        self.undo_or_redo(actor, proposal, version, false).await
    }

    async fn undo_or_redo(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        version: i32,
        is_undo: bool,
    ) -> Result<i32, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let (present, row, rows) = self.load_at_version(proposal, version).await?;
        actor.require_in(Permission::Operator, place_of(&present, &row))?;
        let mut transaction = self.begin().await?;
        let (action, stepped) = if is_undo {
            (
                "proposal.undo",
                store::proposals::undo_edit(&mut transaction, proposal, version, actor.person)
                    .await,
            )
        } else {
            (
                "proposal.redo",
                store::proposals::redo_edit(&mut transaction, proposal, version, actor.person)
                    .await,
            )
        };
        let nothing =
            if is_undo { "There is no edit to undo." } else { "There is no edit to redo." };
        let (version, edits) = match stepped.map_err(from_store)? {
            UndoResult::To { version, edits } => (version, edits),
            UndoResult::Nothing => return Err(Problem::conflict("nothing_to_do", nothing)),
            UndoResult::VersionConflict => return Err(proposal_changed()),
        };
        actor
            .revalidate(&mut transaction)
            .await?
            .require_in(Permission::Operator, place_of(&present, &row))?;
        // The edit may concern a deployment that another edit creates.
        let names = Names::of(&present, rows.iter().map(|row| &row.edit.edit));
        let texts: Vec<String> = edits.iter().map(|edit| names.edit(&edit.edit)).collect();
        let detail = json!({"edits": texts, "number": edits.first().map(|edit| edit.seq)});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            action,
            &proposal.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        notify_proposal(&mut transaction, proposal, row.deployment, version).await?;
        done(transaction).await?;
        Ok(version)
    }

    /// Closes a proposal without effect.
    pub async fn discard(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        version: i32,
    ) -> Result<(), Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let (present, row, _) = self.load_at_version(proposal, version).await?;
        actor.require_in(Permission::Operator, place_of(&present, &row))?;
        let mut transaction = self.begin().await?;
        if !store::proposals::discard_proposal(&mut transaction, proposal, version)
            .await
            .map_err(from_store)?
        {
            return Err(proposal_changed());
        }
        actor
            .revalidate(&mut transaction)
            .await?
            .require_in(Permission::Operator, place_of(&present, &row))?;
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "proposal.discard",
            &proposal.to_string(),
            &json!({}),
        )
        .await
        .map_err(from_store)?;
        notify_proposal(&mut transaction, proposal, row.deployment, version).await?;
        done(transaction).await
    }

    /// The possible drop targets of these nodes in the deployment's open proposal.
    pub async fn preview_drop(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
        nodes: Vec<NodeId>,
    ) -> Result<DropPreview, Problem> {
        actor.require(Permission::Viewer)?;
        if nodes.is_empty() || nodes.len() > MAX_DRAGGED {
            return Err(Problem::invalid(format!("Send 1 to {MAX_DRAGGED} nodes per request.")));
        }
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let open = store::proposals::open_proposal(&mut connection, deployment)
            .await
            .map_err(from_store)?;
        let rows = match open {
            Some(open) => {
                store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?
            }
            None => Vec::new(),
        };
        let edits = counting(&rows);
        let next = rows.last().map_or(1, |e| e.edit.seq + 1);
        drop(connection);
        let targets = move || {
            preview_drop(&present.skeleton, &present.catalog, &edits, next, deployment, &nodes)
        };
        self.compute_for(actor).work(targets).await
    }

    /// The present, the proposal and its edits. Returns an error unless the proposal is open at
    /// this version.
    pub(crate) async fn load_at_version(
        &self,
        proposal: ProposalId,
        version: i32,
    ) -> Result<(CurrentState, ProposalRow, Vec<EditRow>), Problem> {
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let row =
            store::proposals::proposal(&mut connection, proposal).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_proposal(proposal))?;
        if row.state != "open" {
            return Err(closed(&row.state));
        }
        if row.version != version {
            return Err(proposal_changed());
        }
        let edits = store::proposals::edits(&mut connection, proposal).await.map_err(from_store)?;
        Ok((present, row, edits))
    }

    /// The policy in force.
    pub(crate) async fn policy(
        &self,
        on: &mut sqlx::PgConnection,
        present: &CurrentState,
    ) -> Result<Policy, Problem> {
        let policy =
            store::blueprints::policy(on, present.head.policy).await.map_err(from_store)?;
        policy.ok_or_else(|| {
            tracing::error!(policy = %present.head.policy, "the policy in force is missing");
            Problem::internal()
        })
    }
}

/// Refusals of edits because they name something that does not exist.
const NOWHERE: [&str; 2] = ["unknown_deployment", "unknown_node"];

/// The objections to new edits: edits that cannot take effect, and edits outside of the proposal's
/// scope.
pub(crate) fn objections(
    present: &CurrentState,
    scope: Scope,
    rows: &[EditRow],
    NewEdits { edits, positions }: &NewEdits,
) -> Vec<Finding> {
    let first = rows.last().map_or(1, |e| e.edit.seq + 1);
    let mut all = counting(rows);
    let mut outside = Vec::new();
    let mut within = ScopeChecker::new(&present.skeleton, scope);
    all.iter().for_each(|known| within.record(&known.edit));
    for (seq, edit) in (first..).zip(edits) {
        if !within.covers(edit) {
            outside.push(seq);
        }
        within.record(edit);
        all.push(NumberedEdit { seq, edit: edit.clone() });
    }
    let effects = resolve(&present.skeleton, &present.catalog, &all);
    let refused = || effects.refused.iter().filter(|r| r.edit >= first);
    let found = |seq: u32, detail: &str| {
        let position = usize::try_from(seq - first).ok().and_then(|place| positions.get(place));
        let at = format!("edit {}", position.map_or(edits.len(), |position| position + 1));
        Finding { at, detail: text::sentence(detail) }
    };
    // An unknown object is not out of scope. That error would send people to another proposal.
    let is_unknown = |seq| refused().any(|r| r.edit == seq && NOWHERE.contains(&r.code.as_str()));
    let outside = outside.into_iter().filter(|seq| !is_unknown(*seq));
    let mut findings: Vec<Finding> =
        outside.map(|seq| found(seq, &out_of_scope(present, scope))).collect();
    findings.extend(refused().map(|r| found(r.edit, &r.reason)));
    if findings.is_empty()
        && let Some(other) = beyond(&present.skeleton, scope, &effects)
    {
        findings.push(Finding {
            at: format!("edit {}", edits.len()),
            detail: text::sentence(&reaches(present, scope, &other)),
        });
    }
    findings
}

fn closed(state: &str) -> Problem {
    Problem::conflict(
        "version",
        format!("This proposal was {state} and accepts no more edits. Open a new proposal."),
    )
}

pub(crate) fn proposal_changed() -> Problem {
    Problem::conflict(
        "version",
        "This proposal was changed or closed after you loaded it. Reload it, then try again.",
    )
}

fn out_of_scope(present: &CurrentState, scope: Scope) -> String {
    match scope {
        Scope::Node(node) => format!(
            "This proposal is only for node {}, so it can only change that node and its noderoles. \
             Propose this change on the deployment",
            node_name(present, node)
        ),
        Scope::Deployment(deployment) => format!(
            "This proposal is only for deployment {} and the deployments below it. Propose this \
             change on the other deployment",
            present.name_of(deployment)
        ),
    }
}

pub(crate) fn reaches(present: &CurrentState, scope: Scope, other: &ScopeViolation) -> String {
    let node = match scope {
        Scope::Node(node) => node_name(present, node),
        Scope::Deployment(_) => String::new(),
    };
    match other {
        ScopeViolation::Machine(other) => format!(
            "This proposal is only for node {node}, but {other} would change too. Propose this \
             change on the deployment"
        ),
        ScopeViolation::Service { role, deployment } => {
            let deployment = present.name_of(*deployment);
            format!(
                "This proposal is only for node {node}, but {role} is a service of the whole \
                 deployment {deployment}. Propose this change on {deployment}"
            )
        }
    }
}

/// Each edit was in scope when it was made, but its subject may have moved since. The database
/// refuses every commit outside of the scope, even with all approvals.
pub(crate) fn check_scope(
    present: &CurrentState,
    row: &ProposalRow,
    rows: &[EditRow],
) -> Result<(), Problem> {
    let counting = counting(rows);
    let mut within = ScopeChecker::new(&present.skeleton, row.scope());
    let mut strays = Vec::new();
    for edit in &counting {
        if !within.covers(&edit.edit) {
            strays.push(edit);
        }
        within.record(&edit.edit);
    }
    let Some(first) = strays.first() else { return Ok(()) };
    let names = Names::of(present, counting.iter().map(|e| &e.edit));
    let reason = out_of_scope(present, row.scope());
    let mut problem = Problem::conflict(
        "edit_out_of_scope",
        format!(
            "Edit {} ({}) is no longer in the scope of this proposal. {reason}. Undo it, then \
             submit.",
            first.seq,
            names.edit(&first.edit)
        ),
    );
    let by: BTreeMap<u32, &str> =
        rows.iter().map(|row| (row.edit.seq, row.actor_name.as_str())).collect();
    let finding = |edit: &&NumberedEdit| Finding {
        at: format!("edit {}, by {}", edit.seq, by.get(&edit.seq).copied().unwrap_or_default()),
        detail: format!("{}: {reason}.", names.edit(&edit.edit)),
    };
    problem.errors = strays.iter().map(finding).collect();
    Err(problem)
}

/// The written documents must be inside the base, or the database refuses every commit.
pub(crate) fn within(
    present: &CurrentState,
    row: &ProposalRow,
    planned: &Planned,
    covered: &BTreeSet<DeploymentId>,
) -> Result<(), Problem> {
    let written =
        written(&present.blueprint, &planned.materialized.blueprint, &planned.materialized.changes);
    let outside = outside(&present.skeleton, covered, &written);
    let outside: Vec<String> = outside.into_iter().map(|id| present.name_of(id)).collect();
    if outside.is_empty() {
        return Ok(());
    }
    let named = outside.join(", ");
    Err(Problem::conflict(
        "outside_base",
        format!(
            "The proposal affects {named}, which its review does not cover. {}. Undo the edits \
             that affect it, then submit.",
            out_of_scope(present, row.scope())
        ),
    ))
}

pub(crate) async fn notify_proposal(
    on: &mut sqlx::PgConnection,
    proposal: ProposalId,
    deployment: DeploymentId,
    version: i32,
) -> Result<(), Problem> {
    // The page of reviews also lists drafts.
    let topics = [Topic::Reviews, Topic::Proposal(proposal), Topic::Deployment(deployment)];
    store::events::append_event_to_topics(on, &topics, &Live::Proposal { proposal, version })
        .await
        .map_err(from_store)
}

pub(crate) fn node_name(present: &CurrentState, node: NodeId) -> String {
    present.skeleton.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.fqdn.to_string())
}
