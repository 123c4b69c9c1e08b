//! Replanning: after a commit, plans the reviews whose base has moved again.
//!
//! A submission whose base has moved is permanently void: it can be neither approved nor committed.
//! So Gantry plans its edits again on the current target. If the plan equals the submitted one, a
//! new submission without verdicts replaces the old one. Otherwise (the edits cannot be planned, or
//! have other effects) the proposal returns to its authors with the reason. Only an author's own
//! credential can submit other content; the database checks this
//! (`guard_with_credential_review`).
//!
//! The call that committed replans for up to [`AT_ONCE`] and finishes the submission that it has
//! begun. The sweep of each server handles the rest, also after a crash. The commit transaction
//! itself does not replan, because all other commits would wait for it. Nothing is lost, because
//! the work is found by void submissions, not by a queue. Nothing is done twice, because replanning
//! takes the proposal's lock and raises its version.
//!
//! The committing person does not become an author of the replanned proposal. Its original
//! submitter remains.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::Problem;
use api::live::{Live, Topic};
use api::problem::Finding;
use api::proposals::Replanned;
use engine::blueprint::{DocumentChange, EffectDifference};
use engine::gate::VerdictKind;
use engine::ids::{ProposalId, ReviewId};
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::proposals::EditRow;
use store::reviews::{NewReview, ReplanRow, ReviewRow};

use crate::compute::ComputeLimit;
use crate::current::CurrentState;
use crate::problems::from_store;
use crate::proposals::change::{Planned, counting, notify_proposal, plan_on_pool};
use crate::reviews::review::{changed, moved_documents, named, review_risks};
use crate::reviews::submit::SubmitInput;
use crate::{Control, done, text};

/// How long after a commit further submissions are replanned. The caller waits for the last one
/// that began; the sweep handles the rest.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Maximum number of submissions that one query finds.
const MAX_STALE: i64 = 100;

impl Control {
    /// Replans after a commit. The commit is done in any case, so errors are only logged; the sweep
    /// tries again.
    pub(crate) async fn replan_after_change(&self) {
        if let Err(problem) = self.replan_until(Instant::now() + AT_ONCE).await {
            tracing::warn!(%problem, "cannot replan after a commit, the next sweep tries again");
        }
    }

    /// Replans submissions whose base has moved, and returns their number. The sweep calls this.
    ///
    /// # Errors
    /// If the query fails. An error in a single submission is logged, and the next sweep tries it
    /// again.
    pub async fn replan_stale(&self) -> Result<usize, Problem> {
        self.replan_until(Instant::now() + Duration::from_secs(60)).await
    }

    async fn replan_until(&self, end: Instant) -> Result<usize, Problem> {
        let mut connection = self.connection().await?;
        let stale =
            store::reviews::stale_reviews(&mut connection, MAX_STALE).await.map_err(from_store)?;
        drop(connection);
        let mut planned = 0;
        for id in stale {
            if Instant::now() > end {
                break;
            }
            match self.replan(id).await {
                Ok(done) => planned += usize::from(done),
                Err(problem) => {
                    tracing::warn!(%problem, review = %id, "cannot replan a review yet")
                }
            }
        }
        Ok(planned)
    }

    /// False if another process replanned it, or a person edited or closed the proposal.
    async fn replan(&self, id: ReviewId) -> Result<bool, Problem> {
        let mut connection = self.connection().await?;
        let before = store::reviews::find_review(&mut connection, id)
            .await
            .map_err(from_store)?
            .ok_or_else(Problem::internal)?;
        drop(connection);
        let (present, row, rows) = match self.load_at_version(before.proposal, before.version).await
        {
            Err(problem) if problem.code == "version" => return Ok(false),
            found => found?,
        };
        let planned = plan_on_pool(&self.compute_for_system(), &present, counting(&rows)).await;
        let mut transaction = self.begin().await?;
        let moved = changed_base_text(&mut transaction, &present, id).await?;
        let input = SubmitInput { title: before.title.clone(), by: before.by };
        let new = match &planned {
            Ok(planned) => {
                match self.to_submit(&mut transaction, &present, &row, &rows, planned, input).await
                {
                    Ok(new) => unchanged(&mut transaction, &present, &before, new).await?,
                    Err(problem) => Err(problem),
                }
            }
            Err(problem) => Err(problem.clone()),
        };
        store::proposals::lock_proposal(&mut transaction, row.id).await.map_err(from_store)?;
        let raised = store::proposals::increment_version(&mut transaction, row.id, row.version)
            .await
            .map_err(from_store)?;
        let Some(version) = raised else { return Ok(false) };
        let mut replan = ReplanRow {
            before: id,
            proposal: row.id,
            after: None,
            version,
            target: present.head.number,
            moved,
            refused: json!([]),
        };
        match (planned, new) {
            (Ok(planned), Ok(mut new)) => {
                new.version = version;
                replan.after =
                    Some(self.insert_review(&mut transaction, None, &row, &planned, &new).await?);
            }
            (planned, Err(problem)) => {
                replan.refused = refused(&planned, &rows, problem)?;
                notify_proposal(&mut transaction, row.id, row.deployment, version).await?;
            }
            (Err(problem), Ok(_)) => return Err(problem),
        }
        store::reviews::insert_replan(&mut transaction, &replan).await.map_err(from_store)?;
        record_replan(&mut transaction, &replan).await?;
        done(transaction).await?;
        tracing::info!(
            review = %id,
            after = ?replan.after,
            "replanned a review, because its base changed"
        );
        Ok(true)
    }

    /// The replanning that led to this submission, and the one that replaced it.
    pub(crate) async fn replanned(
        &self,
        by: &ComputeLimit,
        id: ReviewId,
    ) -> Result<(Option<Replanned>, Option<Replanned>), Problem> {
        let mut connection = self.connection().await?;
        let (replan_before, outgoing) =
            store::reviews::replans(&mut connection, id).await.map_err(from_store)?;
        drop(connection);
        Ok((
            self.replanned_view(by, replan_before).await?,
            self.replanned_view(by, outgoing).await?,
        ))
    }

    /// A replanning for display, with the difference between the two submissions.
    async fn replanned_view(
        &self,
        by: &ComputeLimit,
        row: Option<ReplanRow>,
    ) -> Result<Option<Replanned>, Problem> {
        let Some(row) = row else { return Ok(None) };
        let (same_effect, effect_changes) = match row.after {
            Some(after) => {
                let mut connection = self.connection().await?;
                let before = submitted(&mut connection, row.before).await?;
                let after = submitted(&mut connection, after).await?;
                drop(connection);
                let was = changed(self, by, &before.0, &before.1).await?;
                let is = changed(self, by, &after.0, &after.1).await?;
                let effect_changes = EffectDifference::between(&was, &is);
                let same = effect_changes.is_empty() && before.0.risks == after.0.risks;
                (same, effect_changes)
            }
            None => (false, EffectDifference::default()),
        };
        let mut connection = self.connection().await?;
        replanned_view(&mut connection, row, same_effect, effect_changes).await.map(Some)
    }

    /// The reason why a proposal returned to its authors at this version, if it did.
    pub(crate) async fn sent_back(
        &self,
        on: &mut PgConnection,
        proposal: ProposalId,
        version: i32,
    ) -> Result<Option<Replanned>, Problem> {
        let row =
            store::reviews::replan_for_version(on, proposal, version).await.map_err(from_store)?;
        match row.filter(|row| row.after.is_none()) {
            Some(row) => {
                replanned_view(on, row, false, EffectDifference::default()).await.map(Some)
            }
            None => Ok(None),
        }
    }
}

/// The changed parts of a submission's base, as text.
async fn changed_base_text(
    on: &mut PgConnection,
    present: &CurrentState,
    id: ReviewId,
) -> Result<Vec<String>, Problem> {
    let base = store::reviews::moved_base(on, id).await.map_err(from_store)?;
    let documents = store::reviews::documents(on, id).await.map_err(from_store)?;
    let records = store::reviews::moved_records(on, id).await.map_err(from_store)?;
    Ok(engine::gate::moved(&base, &moved_documents(present, &documents), &records))
}

/// The new submission if it equals the old one in content and effects. Otherwise the differences as
/// an error.
async fn unchanged(
    on: &mut PgConnection,
    present: &CurrentState,
    before: &ReviewRow,
    new: NewReview,
) -> Result<Result<NewReview, Problem>, Problem> {
    let documents = store::reviews::documents(on, before.id).await.map_err(from_store)?;
    let base = store::reviews::base(on, before.id).await.map_err(from_store)?;
    let finding = |at: String, detail: &str| Finding { at, detail: detail.to_owned() };
    let (old_documents, now): (BTreeSet<_>, BTreeSet<_>) =
        (documents.iter().collect(), new.documents.iter().collect());
    let ids: BTreeSet<_> =
        old_documents.symmetric_difference(&now).map(|change| named(present, change)).collect();
    let mut findings: Vec<Finding> = ids
        .into_iter()
        .map(|name| {
            finding(
                name,
                "It has changed, so the proposal would now change it differently than submitted.",
            )
        })
        .collect();
    if before.new_policy != new.new_policy {
        findings.push(finding(
            "the policy".into(),
            "The policy would now differ from the submitted one.",
        ));
    }
    let dropped =
        base.keys().filter(|id| present.row(**id).is_some() && !new.base.contains_key(id));
    findings.extend(
        dropped.map(|id| finding(present.name_of(*id), "The proposal no longer depends on it.")),
    );
    let same = (before.effects, &before.summary, review_risks(before))
        == (new.effects, &new.summary, new.risks.clone());
    if findings.is_empty() && !same {
        findings.push(finding(
            "the whole change".into(),
            "The change would now have other effects or risks than submitted.",
        ));
    }
    if findings.is_empty() {
        return Ok(Ok(new));
    }
    let mut problem = Problem::conflict(
        "changed_since",
        "The proposal would now make other changes than the submitted ones.",
    );
    problem.errors = findings;
    Ok(Err(problem))
}

/// The reasons why the proposal cannot be planned, by edit. A server error is not a reason; the
/// next sweep tries again.
fn refused(
    planned: &Result<Planned, Problem>,
    rows: &[EditRow],
    problem: Problem,
) -> Result<Value, Problem> {
    if problem.status >= 500 {
        return Err(problem);
    }
    let refusals = planned.iter().flat_map(|planned| &planned.effects.refused);
    let name = |seq: u32| {
        let row = rows.iter().find(|row| row.edit.seq == seq);
        row.map_or_else(
            || format!("edit {seq}"),
            |row| format!("edit {seq}, by {}", row.actor_name),
        )
    };
    let mut findings: Vec<Finding> =
        refusals.map(|r| Finding { at: name(r.edit), detail: text::sentence(&r.reason) }).collect();
    if findings.is_empty() {
        findings = problem.errors;
    }
    if findings.is_empty() {
        findings.push(Finding { at: "the whole change".into(), detail: problem.detail });
    }
    serde_json::to_value(findings).map_err(|_| Problem::internal())
}

async fn record_replan(on: &mut PgConnection, replan: &ReplanRow) -> Result<(), Problem> {
    let detail = json!({
        "became": replan.after, "version": replan.version, "target": replan.target, "moved": replan.moved,
        "refused": replan.refused,
    });
    store::audit::append_audit(on, None, "review.replan", &replan.before.to_string(), &detail)
        .await
        .map_err(from_store)?;
    let topics = [Topic::Reviews, Topic::Review(replan.before)];
    store::events::append_event_to_topics(on, &topics, &Live::Review { review: replan.before })
        .await
        .map_err(from_store)
}

/// A replanning for display, with the verdicts that it discarded.
async fn replanned_view(
    on: &mut PgConnection,
    row: ReplanRow,
    same_effect: bool,
    effect_changes: EffectDifference,
) -> Result<Replanned, Problem> {
    let verdicts = store::reviews::verdicts(on, row.before).await.map_err(from_store)?;
    let mut dropped = Vec::new();
    for verdict in verdicts.iter().rev() {
        if !dropped.iter().any(|(name, _)| *name == verdict.name) {
            dropped.push((verdict.name.clone(), verdict.kind));
        }
    }
    let word = |kind| match kind {
        VerdictKind::Approve => "approved",
        VerdictKind::RequestChanges => "requested changes",
        VerdictKind::Reject => "rejected",
    };
    Ok(Replanned {
        before: row.before,
        after: row.after,
        blueprint: row.target,
        moved: row.moved,
        voided_verdicts: dropped
            .into_iter()
            .map(|(name, kind)| format!("{name} ({})", word(kind)))
            .collect(),
        same_effect,
        effect_changes,
        more: 0,
        refused: serde_json::from_value(row.refused).unwrap_or_default(),
    })
}

/// A submission and the documents that it changes.
async fn submitted(
    on: &mut PgConnection,
    id: ReviewId,
) -> Result<(ReviewRow, Vec<DocumentChange>), Problem> {
    let row = store::reviews::find_review(on, id)
        .await
        .map_err(from_store)?
        .ok_or_else(Problem::internal)?;
    let documents = store::reviews::documents(on, id).await.map_err(from_store)?;
    Ok((row, documents))
}
