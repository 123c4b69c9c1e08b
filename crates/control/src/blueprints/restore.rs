//! Restores a deployment: a proposal with the edits that lead back to an earlier target.
//!
//! It is an ordinary proposal: people can edit it, another person reviews it, and its commit
//! creates the next target. It must start empty, because the edits are computed against the current
//! target, not against a draft.

use api::Problem;
use api::blueprints::Point;
use api::live::{Live, Topic};
use api::problem::Finding;
use api::proposals::Restored;
use engine::ids::{BlueprintNumber, ProposalId};
use engine::plan::Scope;
use engine::plan::restore::{Missing, RestoreError, RestoreInput, restore};
use serde_json::json;
use sqlx::PgConnection;
use store::proposals::{EditRow, MAX_NOT_RESTORED, NotRestoredRow};

use crate::blueprints::side;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::proposals::change::{NewEdits, counting, proposal_changed};
use crate::{Control, done, text};

impl Control {
    /// Opens a proposal that restores a deployment to a target. If a part cannot be restored, it is
    /// refused with the reasons; with `partial`, the proposal leaves that part out.
    ///
    /// # Errors
    /// If the target does not contain the deployment, the open proposal has edits, or nothing can
    /// be restored.
    pub async fn restore(
        &self,
        actor: &Actor,
        deployment: &str,
        target: BlueprintNumber,
        partial: bool,
    ) -> Result<Restored, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let present = self.current_state().await?;
        let id = present.named(deployment)?;
        actor.require_in(Permission::Operator, id)?;
        if id == present.system()? {
            return Err(Problem::conflict(
                "system",
                "Deployment system cannot be restored, because all deployments depend on it. \
                 Restore the other deployments one at a time.",
            ));
        }
        // Planning time grows with the size of the cluster, so meanwhile this has neither a
        // connection nor the proposal's lock.
        let compute = self.compute_for(actor);
        let (_, old_blueprint) = side(self, &compute, &present, Point::Number(target)).await?;
        let mut connection = self.connection().await?;
        let rows =
            match store::proposals::open_proposal(&mut connection, id).await.map_err(from_store)? {
                Some(open) => {
                    store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?
                }
                None => Vec::new(),
            };
        drop(connection);
        let now = present.clone();
        let found = compute.work(move || {
            let (blueprint, skeleton, catalog) = (&now.blueprint, &now.skeleton, &now.catalog);
            restore(
                RestoreInput {
                    blueprint,
                    skeleton,
                    catalog,
                    records: &|node| now.node_record(node),
                },
                &old_blueprint,
                id,
            )
        });
        let found = found.await?.map_err(|error| not_restorable(&error))?;
        if found.edits.is_empty() && found.missing.is_empty() {
            return Err(Problem::conflict(
                "nothing_to_restore",
                format!(
                    "There is nothing to restore, because deployment {deployment} is the same as \
                     at blueprint {target}."
                ),
            ));
        }
        if found.edits.is_empty() || (!partial && !found.missing.is_empty()) {
            return Err(lost(deployment, target, &found.missing, found.edits.is_empty()));
        }
        require_no_edits(&rows, deployment)?;
        let edits = NewEdits::as_given(found.edits.clone());
        self.check_edits(&compute, &present, Scope::Deployment(id), &rows, &edits).await?;
        let mut transaction = self.begin().await?;
        let (proposal, new) = store::proposals::ensure_proposal(&mut transaction, id, actor.person)
            .await
            .map_err(from_store)?;
        let row = store::proposals::lock_proposal(&mut transaction, proposal)
            .await
            .map_err(from_store)?;
        let row = row.ok_or_else(proposal_changed)?;
        actor.revalidate(&mut transaction).await?.require_in(Permission::Operator, id)?;
        let now = store::proposals::edits(&mut transaction, proposal).await.map_err(from_store)?;
        require_no_edits(&now, deployment)?;
        if now != rows {
            return Err(proposal_changed());
        }
        let version = store::proposals::append_edits(
            &mut transaction,
            proposal,
            row.version,
            actor.person,
            &found.edits,
        )
        .await
        .map_err(from_store)?
        .ok_or_else(proposal_changed)?;
        let title = format!("Restore {deployment} as of blueprint {target}");
        store::proposals::set_title(&mut transaction, proposal, &title)
            .await
            .map_err(from_store)?;
        let missing: Vec<String> = found.missing.iter().map(ToString::to_string).collect();
        let first = rows.last().map_or(1, |row| row.edit.seq + 1);
        insert_not_restored(&mut transaction, proposal, first, found.edits.len(), target, &missing)
            .await?;
        let detail = json!({"deployment": deployment, "target": target, "edits": found.edits.len(), "missing": missing, "new": new});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "proposal.restore",
            &proposal.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        let topics = [Topic::Proposal(proposal), Topic::Deployment(id)];
        store::events::append_event_to_topics(
            &mut transaction,
            &topics,
            &Live::Proposal { proposal, version },
        )
        .await
        .map_err(from_store)?;
        done(transaction).await?;
        Ok(Restored { proposal, version, edits: found.edits.len(), missing })
    }
}

/// The edits are computed against the current target, so the draft must be empty.
fn require_no_edits(rows: &[EditRow], deployment: &str) -> Result<(), Problem> {
    if counting(rows).is_empty() {
        return Ok(());
    }
    Err(Problem::conflict(
        "proposal_open",
        format!("A proposal with edits is open on {deployment}. Submit it or discard it first."),
    ))
}

/// Records the left-out parts, because the reviewers must see them too.
async fn insert_not_restored(
    on: &mut PgConnection,
    proposal: ProposalId,
    first: u32,
    edits: usize,
    target: BlueprintNumber,
    missing: &[String],
) -> Result<(), Problem> {
    if missing.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = missing.iter().take(MAX_NOT_RESTORED).cloned().collect();
    let not_restored = NotRestoredRow { target, more: missing.len() - named.len(), missing: named };
    let last = first + u32::try_from(edits).unwrap_or(u32::MAX) - 1;
    store::proposals::insert_not_restored(on, proposal, first..=last, &not_restored)
        .await
        .map_err(from_store)
}

fn not_restorable(error: &RestoreError) -> Problem {
    let detail = text::sentence(&error.to_string());
    Problem::conflict("not_restorable", detail)
}

fn lost(
    deployment: &str,
    target: BlueprintNumber,
    missing: &[Missing],
    nothing_left: bool,
) -> Problem {
    let items = text::count(missing.len(), "item");
    let advice = match nothing_left {
        true => "Nothing else differs from that blueprint",
        false => "Restore without them, or add what they require first",
    };
    let detail = format!(
        "Cannot restore {items} of deployment {deployment} from blueprint {target}. {advice}."
    );
    let mut problem = Problem::conflict("not_restorable", detail);
    problem.errors = missing
        .iter()
        .map(|lost| Finding { at: lost.name.clone(), detail: text::sentence(&lost.reason) })
        .collect();
    problem
}
