//! Submitting a proposal: the review becomes immutable rows that describe the complete change.

use std::collections::BTreeMap;

use api::live::{Live, Topic};
use api::problem::Finding;
use api::reviews::WaveView;
use api::{Problem, limits};
use engine::blueprint::impact::{self, Impact, Wave, WaveGroup};
use engine::blueprint::text::NamedNoderole;
use engine::blueprint::{Difference, change_hash};
use engine::ids::{BlueprintNumber, DeploymentId, NoderoleId, PersonId, ProposalId, ReviewId};
use engine::plan::base::{base, beyond};
use engine::plan::drop_preview::required_reasons_of;
use serde_json::json;
use store::proposals::{EditRow, ProposalRow};
use store::reviews::NewReview;

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposals::change::{
    Planned, authors, check_scope, counting, notify_proposal, place_of, plan_on_pool,
    proposal_changed, reaches, within,
};
use crate::proposals::edit_text::Names;
use crate::proposals::proposal::{clash_views, not_restored};
use crate::proposals::{lint, summary};
use crate::reviews::review::{places, review_risks};
use crate::reviews::summary::Summary;
use crate::{Control, done, text};

impl Control {
    /// Submits a proposal for review under a title.
    pub async fn submit(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        version: i32,
        title: String,
    ) -> Result<ReviewId, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let title = text::plain(&title)?;
        if title.is_empty() || title.chars().count() > limits::TITLE {
            return Err(Problem::invalid(format!(
                "The title must have 1 to {} characters. Reviewers see it in their list.",
                limits::TITLE
            )));
        }
        let (present, row, rows) = self.load_at_version(proposal, version).await?;
        actor.require_in(Permission::Operator, place_of(&present, &row))?;
        let planned = plan_on_pool(&self.compute_for(actor), &present, counting(&rows)).await?;
        let mut transaction = self.begin().await?;
        let input = SubmitInput { title: title.to_owned(), by: actor.person };
        let mut new =
            self.to_submit(&mut transaction, &present, &row, &rows, &planned, input).await?;
        let locked = store::proposals::lock_proposal(&mut transaction, proposal)
            .await
            .map_err(from_store)?;
        if locked.is_none_or(|p| p.version != version || p.state != "open") {
            return Err(proposal_changed());
        }
        let actor = &actor.revalidate(&mut transaction).await?;
        actor.require_in(Permission::Operator, place_of(&present, &row))?;
        if let Some(known) = store::reviews::review_of_version(&mut transaction, proposal, version)
            .await
            .map_err(from_store)?
        {
            new.version = self.next_version(&mut transaction, known, &new).await?;
        }
        let id =
            self.insert_review(&mut transaction, Some(actor.person), &row, &planned, &new).await?;
        // A review may touch further deployments, for example the one from which a node moves.
        let places = places(&mut transaction, actor, id).await?;
        let names = Names::of(&present, rows.iter().map(|row| &row.edit.edit));
        actor.require_in_all(Permission::Operator, &places, |id| names.deployment(id))?;
        done(transaction).await?;
        Ok(id)
    }

    /// The submission of a planned proposal. Returns an error if it cannot be reviewed.
    pub(crate) async fn to_submit(
        &self,
        on: &mut sqlx::PgConnection,
        present: &CurrentState,
        row: &ProposalRow,
        rows: &[EditRow],
        planned: &Planned,
        input: SubmitInput,
    ) -> Result<NewReview, Problem> {
        check_submittable(planned)?;
        // The node may have moved since the edit.
        if let Some(other) = beyond(&present.skeleton, row.scope(), &planned.effects) {
            return Err(Problem::conflict(
                "change_out_of_scope",
                format!("{}.", text::capitalize(&reaches(present, row.scope(), &other))),
            ));
        }
        let internal = |error: serde_json::Error| {
            tracing::error!(%error, "cannot write a plan as JSON");
            Problem::internal()
        };
        let number = |id: &DeploymentId| present.row(*id).map(|r| (*id, r.head_no));
        let covered = base(&present.skeleton, row.scope(), &planned.effects);
        check_scope(present, row, rows)?;
        within(present, row, planned, &covered)?;
        let base: BTreeMap<DeploymentId, BlueprintNumber> =
            covered.iter().filter_map(number).collect();
        let mut summary = summary(present, rows, planned);
        let context = self.plan_context(on, present).await?;
        let mut authors = authors(rows);
        authors.insert(input.by);
        summary.not_restored = not_restored(on, row.id).await?;
        summary.findings =
            lint::findings(present, planned, &summary.impact, context.lint(&authors))?;
        let root = planned.materialized.objects.last().map(|o| o.hash);
        Ok(NewReview {
            proposal: row.id,
            version: row.version,
            title: input.title,
            change: change_hash(&planned.materialized.changes).map_err(internal)?,
            effects: planned.effects.hash().map_err(internal)?,
            policy: present.head.policy,
            new_policy: planned.policy.as_ref().map(|object| object.hash),
            // A change of the policy must satisfy the old and the new policy, so that no policy can
            // lock its authors out.
            approvals: planned.approvals(&context.policy),
            epoch: present.head.epoch,
            root: root.ok_or_else(Problem::internal)?,
            summary: serde_json::to_value(summary).map_err(internal)?,
            risks: planned.risks.clone(),
            by: input.by,
            base,
            authors,
            documents: planned.materialized.changes.clone(),
        })
    }

    /// Inserts a submission and notifies open pages. The caller has the lock of the proposal, at
    /// the submission's version.
    pub(crate) async fn insert_review(
        &self,
        on: &mut sqlx::PgConnection,
        actor: Option<PersonId>,
        row: &ProposalRow,
        planned: &Planned,
        new: &NewReview,
    ) -> Result<ReviewId, Problem> {
        store::catalog::ensure_objects(on, &planned.objects()).await.map_err(from_store)?;
        let id = store::reviews::insert_review(on, new).await.map_err(from_store)?;
        let detail = json!({"proposal": new.proposal, "version": new.version, "change": new.change, "effects": new.effects});
        store::audit::append_audit(on, actor, "review.submit", &id.to_string(), &detail)
            .await
            .map_err(from_store)?;
        notify_proposal(on, row.id, row.deployment, new.version).await?;
        let topics = [Topic::Reviews, Topic::Review(id)];
        store::events::append_event_to_topics(on, &topics, &Live::Review { review: id })
            .await
            .map_err(from_store)?;
        Ok(id)
    }

    /// A version is submitted only once. If the base of the plan has changed since, this raises the
    /// version, which discards all verdicts on the previous submission.
    async fn next_version(
        &self,
        on: &mut sqlx::PgConnection,
        known: ReviewId,
        new: &NewReview,
    ) -> Result<i32, Problem> {
        let previous = store::reviews::find_review(on, known)
            .await
            .map_err(from_store)?
            .ok_or_else(Problem::internal)?;
        let base = store::reviews::base(on, known).await.map_err(from_store)?;
        // The numbers of ancestors may differ in a base that has not moved.
        let moved = store::reviews::moved_base(on, known).await.map_err(from_store)?;
        let same_base = moved.is_empty() && base.keys().eq(new.base.keys());
        // A newer build may classify more risks than the one that made the earlier submission.
        let was = (previous.policy, previous.epoch, previous.change, previous.effects);
        let is_same = was == (new.policy, new.epoch, new.change, new.effects)
            && review_risks(&previous) == new.risks;
        if same_base && is_same {
            return Err(Problem::conflict(
                "submitted_already",
                format!("This version is already submitted, as review {known}."),
            ));
        }
        let raised = store::proposals::increment_version(on, new.proposal, new.version)
            .await
            .map_err(from_store)?;
        raised.ok_or_else(proposal_changed)
    }
}

/// The person's input for a submission.
pub(crate) struct SubmitInput {
    pub title: String,
    pub by: PersonId,
}

fn check_submittable(planned: &Planned) -> Result<(), Problem> {
    if let Some(first) = planned.effects.refused.first() {
        let mut problem = Problem::conflict(
            "edit_refused",
            format!(
                "Edit {} cannot take effect: {} Resolve this or undo the edit, then submit.",
                first.edit,
                text::sentence(&first.reason)
            ),
        );
        let finding = |r: &engine::plan::Refusal| Finding {
            at: format!("edit {}", r.edit),
            detail: text::sentence(&r.reason),
        };
        problem.errors = planned.effects.refused.iter().map(finding).collect();
        return Err(problem);
    }
    let documents = !planned.materialized.changes.is_empty();
    if planned.effects.is_empty() || !(documents || planned.effects.policy.is_some()) {
        return Err(Problem::conflict(
            "empty",
            "There is nothing to review, because the proposal changes nothing. Add an edit first.",
        ));
    }
    Ok(())
}

/// The summary of a plan for the review page.
fn summary(present: &CurrentState, rows: &[EditRow], planned: &Planned) -> Summary {
    let edits = counting(rows);
    let names = Names::of(present, edits.iter().map(|e| &e.edit));
    let new = planned.effects.deployments.iter().map(|d| (d.id, d.name.clone()));
    let known = present.skeleton.deployments.iter().map(|(id, d)| (*id, d.name.clone()));
    let impact = impact::impact(&planned.from(present), None);
    let text = summary::all(&names, &planned.effects, &impact);
    let requested = summary::requested_changes(&names, &planned.effects);
    Summary {
        short: text.short(&requested),
        severe_count: Some(text.severe_count()),
        lines: text.bounded(),
        requested: requested.bounded(),
        waves: waves(&impact),
        impact,
        findings: Vec::new(),
        not_restored: None,
        clashes: clash_views(present, &names, rows, planned),
        brought: required_reasons_of(&planned.effects),
        deployments: known.chain(new).collect(),
        noderoles: external_parents(present, &planned.difference),
    }
}

/// Parents of changed noderoles that the difference itself does not contain.
fn external_parents(
    present: &CurrentState,
    difference: &Difference,
) -> BTreeMap<NoderoleId, NamedNoderole> {
    let mut named = present.parents([difference]);
    for noderole in difference.nodes.iter().flat_map(|node| &node.noderoles) {
        named.remove(&noderole.id);
    }
    named
}

/// The waves as text.
fn waves(impact: &Impact) -> Vec<WaveView> {
    let item = |group: &WaveGroup| {
        let suffix = match group.at_once {
            Some(1) => ", one at a time".to_owned(),
            Some(n) => format!(", {n} at a time"),
            None if group.immediate => ", immediate".to_owned(),
            None => String::new(),
        };
        let step = match group.action.is_run() {
            true => group.role.to_string(),
            false => format!("{} of {}", group.action, group.role),
        };
        if group.is_phantom() {
            return format!("{step} for {} as a whole{suffix}", group.deployment);
        }
        format!("{step} on {}{suffix}", text::count(group.nodes, "node"))
    };
    let view = |wave: &Wave| WaveView {
        number: wave.number,
        items: wave.groups.iter().map(item).collect(),
        noderoles: wave.runs + wave.immediate,
    };
    impact.waves.iter().map(view).collect()
}
