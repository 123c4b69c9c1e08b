//! The commit: the only way to change the desired state.
//!
//! The plan is computed again on the current target, outside of the transaction. Under the locks,
//! the transaction rereads all facts that may have changed and evaluates the gate on them. If
//! another target was committed in between, the commit plans again. Hashes show whether the plan
//! still equals the approved one.

use api::Problem;
use api::live::{Live, Topic};
use api::problem::Finding;
use engine::blueprint::DocumentChange;
use engine::gate::contacts::ignored_objectors;
use engine::gate::{Facts, NameNotConfirmed, Rule, RuleResult, check_name, evaluate};
use engine::ids::{BlueprintNumber, ReviewId};
use engine::plan::base::written;
use serde_json::json;
use store::blueprints::NewBlueprint;

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_review};
use crate::proposals::change::{Planned, counting, plan};
use crate::reviews::impact::settle;
use crate::reviews::review::{Case, confirmation_name, may_commit, places, review_risks};
use crate::text::capitalize;
use crate::{Control, done};

/// How often a commit plans again after another commit preceded it. After that, the caller must
/// retry.
const MAX_ATTEMPTS: usize = 8;

/// A review to commit, with the name that the person typed. A change that destroys or removes
/// something requires the name of the proposal's deployment or node.
#[derive(Debug, Clone)]
pub struct CommitInput {
    pub review: ReviewId,
    /// The name, as typed.
    pub typed: Option<String>,
    /// Cancel running steps that this change replaces. Otherwise they finish; their results are
    /// discarded either way.
    pub cancel: bool,
}

impl From<ReviewId> for CommitInput {
    fn from(review: ReviewId) -> Self {
        Self { review, typed: None, cancel: false }
    }
}

impl Control {
    /// Commits a review: its blueprint becomes the target.
    pub async fn commit(
        &self,
        actor: &Actor,
        input: impl Into<CommitInput>,
    ) -> Result<BlueprintNumber, Problem> {
        let input = input.into();
        let id = input.review;
        let committed = self.commit_with_retries(actor, &input).await;
        match &committed {
            Ok(_) => self.replan_after_change().await,
            Err(error) if error.status < 500 => {
                self.audit_refusal(actor, "review.commit.refused", id, &error.code).await?
            }
            Err(_) => {}
        }
        committed
    }

    async fn commit_with_retries(
        &self,
        actor: &Actor,
        input: &CommitInput,
    ) -> Result<BlueprintNumber, Problem> {
        actor.require_any_somewhere(&[Permission::Operator, Permission::Reviewer])?;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(number) = self.try_commit(actor, input).await? {
                return Ok(number);
            }
        }
        Err(Problem::conflict(
            "busy",
            "The review was not committed: too many commits are in progress. Try again.",
        ))
    }

    /// `None` if another commit came first; the caller plans again.
    async fn try_commit(
        &self,
        actor: &Actor,
        input: &CommitInput,
    ) -> Result<Option<BlueprintNumber>, Problem> {
        let id = input.review;
        let present = self.current_state().await?;
        let planned = self.plan_review_edits(actor, &present, id).await?;
        let mut transaction = self.begin().await?;
        let head =
            store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        if head.number != present.head.number {
            return Ok(None);
        }
        let row = store::reviews::find_review(&mut transaction, id)
            .await
            .map_err(from_store)?
            .ok_or_else(Problem::internal)?;
        store::proposals::lock_proposal(&mut transaction, row.proposal)
            .await
            .map_err(from_store)?;
        let actor = &actor.revalidate(&mut transaction).await?;
        let places = places(&mut transaction, actor, id).await?;
        actor.require_any_in_all(&[Permission::Operator, Permission::Reviewer], &places, |id| {
            present.name_of(id)
        })?;
        // Deployment rows can only change together with the head, which is locked now.
        let mut case = self.case(&mut transaction, &present, id, true).await?;
        let context = self.plan_context(&mut transaction, &present).await?;
        settle(&mut case, planned.as_ref(), &context);
        let gate = evaluate(&case.facts);
        if let Err(reason) = may_commit(actor, &present, &places, &case, &gate) {
            // After its commit a review always breaks rules, because its base has changed. Do not
            // report them.
            let broken = || gate.broken().filter(|_| case.row.target.is_none());
            let code =
                broken().next().map_or("committed", |rule| rule_code(rule.rule, &case.facts));
            let mut problem = Problem::conflict(code, reason);
            problem.errors = broken().map(|rule| finding(rule, &case.facts)).collect();
            return Err(problem);
        }
        let name = confirmation_name(&present, &case)?;
        check_name(&review_risks(&case.row), &name, input.typed.as_deref())
            .map_err(|error| name_not_confirmed(&error))?;
        let planned = planned.ok_or_else(Problem::internal)?;
        let new = NewBlueprint {
            head,
            review: Some(id),
            policy: planned.policy.as_ref().map(|object| object.hash),
            by: Some(actor.person),
            old: &present.blueprint,
            new: &planned.materialized.blueprint,
            root: planned
                .materialized
                .objects
                .last()
                .map(|o| o.hash)
                .ok_or_else(Problem::internal)?,
            changes: &planned.materialized.changes,
            written: &written(
                &present.blueprint,
                &planned.materialized.blueprint,
                &planned.materialized.changes,
            ),
            projection: &planned.projection,
        };
        store::catalog::ensure_objects(&mut transaction, &planned.objects())
            .await
            .map_err(from_store)?;
        let number =
            store::blueprints::commit_change(&mut transaction, &new).await.map_err(from_store)?;
        store::blueprints::close_committed_proposal(&mut transaction, id)
            .await
            .map_err(from_store)?;
        let mut detail = json!({"target": number, "root": new.root, "change": case.row.change});
        if input.cancel {
            let ended = store::runs::cancel_superseded(&mut transaction, number)
                .await
                .map_err(from_store)?;
            detail["canceled_runs"] = json!(ended);
        }
        let ignored = ignored_objectors(&case.facts);
        if !ignored.is_empty() {
            detail["ignored_objections"] = json!(ignored);
        }
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "review.commit",
            &id.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        self.discard_removed_proposals(&mut transaction, actor, &case, new.changes).await?;
        let written = new.written.iter().map(|d| Topic::Deployment(*d));
        let topics: Vec<Topic> = written
            .chain([
                Topic::Blueprints,
                Topic::Reviews,
                Topic::Review(id),
                Topic::Proposal(case.row.proposal),
            ])
            .collect();
        store::events::append_event_to_topics(
            &mut transaction,
            &topics,
            &Live::Blueprint { blueprint: number },
        )
        .await
        .map_err(from_store)?;
        done(transaction).await?;
        tracing::info!(target = %number, review = %id, by = %actor.name, "committed");
        Ok(Some(number))
    }

    /// Discards proposals on deployments and nodes that this commit removes.
    async fn discard_removed_proposals(
        &self,
        on: &mut sqlx::PgConnection,
        actor: &Actor,
        case: &Case,
        changes: &[DocumentChange],
    ) -> Result<(), Problem> {
        let removed = changes.iter().filter_map(|change| match change {
            DocumentChange::Deployment { id, new: None, .. } => Some(*id),
            _ => None,
        });
        let nodes = changes.iter().filter_map(|change| match change {
            DocumentChange::Node { id, new: None, .. } => Some(*id),
            _ => None,
        });
        let (removed, nodes): (Vec<_>, Vec<_>) = (removed.collect(), nodes.collect());
        if removed.is_empty() && nodes.is_empty() {
            return Ok(());
        }
        let closed =
            store::proposals::discard_proposals_on(on, &removed, &nodes, Some(case.row.proposal))
                .await
                .map_err(from_store)?;
        for proposal in closed {
            let detail = json!({"removed_with": case.row.id});
            store::audit::append_audit(
                on,
                Some(actor.person),
                "proposal.discard",
                &proposal.id.to_string(),
                &detail,
            )
            .await
            .map_err(from_store)?;
            let event = Live::Proposal { proposal: proposal.id, version: proposal.version };
            store::events::append_event_to_topics(
                on,
                &[Topic::Proposal(proposal.id), Topic::Reviews],
                &event,
            )
            .await
            .map_err(from_store)?;
        }
        Ok(())
    }

    /// Plans the review's edits on the current target. `None` if the edits cannot be planned any
    /// more; the gate reports why.
    async fn plan_review_edits(
        &self,
        actor: &Actor,
        present: &CurrentState,
        id: ReviewId,
    ) -> Result<Option<Planned>, Problem> {
        let mut connection = self.connection().await?;
        let row = store::reviews::find_review(&mut connection, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_review(id))?;
        let edits =
            store::proposals::edits(&mut connection, row.proposal).await.map_err(from_store)?;
        drop(connection);
        let present = present.clone();
        self.compute_for(actor).work(move || plan(&present, &counting(&edits)).ok()).await
    }
}

fn name_not_confirmed(error: &NameNotConfirmed) -> Problem {
    let detail = format!(
        "{}. API clients send it as {{\"name\": {:?}}}.",
        capitalize(&error.to_string()),
        error.name
    );
    let mut problem = Problem::new(422, "confirmation_required", "Name not confirmed", detail);
    problem.errors.push(Finding { at: "name".into(), detail: format!("Type {}.", error.name) });
    problem
}

/// One of the rules that a refused commit breaks. The problem's detail names only the first rule;
/// the findings list all of them.
fn finding(rule: &RuleResult, facts: &Facts) -> Finding {
    Finding { at: rule_code(rule.rule, facts).into(), detail: rule.text.clone() }
}

fn rule_code(rule: Rule, facts: &Facts) -> &'static str {
    match rule {
        Rule::Newest => "not_newest",
        Rule::Resolved if facts.is_stopped_by_hold() => "leaves_hold",
        Rule::Resolved => "edit_refused",
        Rule::Lint => "lint",
        Rule::Base => "base_moved",
        Rule::Epoch => "other_epoch",
        Rule::Policy => "policy_moved",
        Rule::Objections | Rule::Approvals => "not_approved",
        Rule::Threads => "open_threads",
    }
}
