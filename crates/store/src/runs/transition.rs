//! Ends of runs and other step changes between commits: finish, reaper, retry, cancel, nodes that
//! die and return.
//!
//! All follow one pattern. They take APPLY, end the run's row, and lock the step and its
//! dependents. Then the engine decides, and they write its outcome and append events. A change of
//! too many steps for one transaction continues in further ones ([`Outcome::more`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::alive::is_same_boot;
use engine::anneal::{BATCH, Change, Event as StepEvent, Outcome, RerunReason};
use engine::catalog::OnReturn;
use engine::ids::{BlueprintNumber, NodeId, PersonId, RunId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::change_error::ChangeError;
use super::facts::store_returned_facts;
use super::results::delete_excess_results;
use super::world::{decide, decide_each, write};
use crate::StoreError;
use crate::connect::orm;
use crate::entity::{node, run, step};
use crate::events::{
    CHANNEL_CANCEL, CHANNEL_TODO, Event, append_events, node_event, notify, run_events, step_event,
};
use crate::locks::{lock_apply_exclusive, lock_apply_shared};
use crate::workers::WorkerId;

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// Secrets are masked in both fields.
    Succeeded {
        /// The returned data.
        result: Map<String, Value>,
        /// The part of the result that the input does not contain ([`engine::data::output`]),
        /// compared with the input after its secrets are resolved.
        output: Value,
    },
    Failed {
        /// One line for people, without secrets.
        reason: String,
        /// The returned data, if any, with secrets masked.
        found: Map<String, Value>,
    },
    /// It had started, but its worker stopped renewing the lease.
    Lost {
        /// One line for people.
        reason: String,
    },
    /// It never started and never will.
    Unstarted,
    /// A person or a commit canceled it.
    Canceled {
        /// The data returned until then, with secrets masked.
        found: Map<String, Value>,
    },
}

impl RunEnd {
    /// A failure without returned data.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), found: Map::new() }
    }

    fn outcome(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Lost { .. } => "lost",
            Self::Unstarted => "unstarted",
            Self::Canceled { .. } => "canceled",
        }
    }

    fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { reason, .. } | Self::Lost { reason } => Some(reason),
            _ => None,
        }
    }

    /// The returned data. An empty result of a successful run is a result; for the other outcomes
    /// it means that no such step exists.
    fn result(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Succeeded { result, .. } => Some(result),
            Self::Failed { found, .. } | Self::Canceled { found } => {
                Some(found).filter(|found| !found.is_empty())
            }
            Self::Lost { .. } | Self::Unstarted => None,
        }
    }

    fn returned(&self) -> (Option<Value>, i32) {
        let Some(result) = self.result() else { return (None, 0) };
        let value = Value::Object(result.clone());
        let bytes = if result.is_empty() { 0 } else { value.to_string().len() };
        (Some(value), i32::try_from(bytes).unwrap_or(i32::MAX))
    }

    fn event(&self, generation: BlueprintNumber, by: String) -> StepEvent {
        match self {
            Self::Succeeded { .. } => StepEvent::Succeeded { generation },
            Self::Failed { reason, .. } => {
                StepEvent::Failed { generation, reason: reason.clone(), retry: true }
            }
            Self::Lost { .. } => StepEvent::Lost { generation },
            Self::Unstarted => StepEvent::NeverStarted,
            Self::Canceled { .. } => StepEvent::Canceled { by },
        }
    }
}

/// Whether a run's end had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Its step has changed.
    Applied,
    /// The run had already ended. Its result is stored and not applied.
    Late,
}

/// The component that ends a run, which limits the runs that it may end.
#[derive(Debug, Clone, Copy)]
enum Ender {
    /// The worker that leased it.
    Worker(WorkerId),
    /// The queue, which found that it may not start.
    Queue,
    /// The reaper, after its lease expired.
    Reaper,
    /// The reaper, for a run that no worker leased. A worker may have leased it since; then it
    /// must not end as unstarted.
    ReaperForQueued,
}

#[derive(sqlx::FromRow)]
struct EndedRow {
    id: i64,
    step_id: Uuid,
    node_id: Uuid,
    noderole_id: Uuid,
    deployment_id: Uuid,
    generation: i64,
    log_bytes: i64,
    superseded: bool,
    canceled_by: Option<String>,
}

impl EndedRow {
    /// A canceled run did not fail, even if its worker reports a failure. A success remains a
    /// success.
    fn effective_end<'e>(&self, end: &'e RunEnd) -> Cow<'e, RunEnd> {
        match (end, &self.canceled_by) {
            (RunEnd::Succeeded { .. }, _) | (_, None) => Cow::Borrowed(end),
            (other, Some(_)) => {
                Cow::Owned(RunEnd::Canceled { found: other.result().cloned().unwrap_or_default() })
            }
        }
    }

    fn event(&self, end: &RunEnd) -> StepEvent {
        let generation = BlueprintNumber(self.generation);
        // The run is canceled because a commit replaced it. That is not a failure of the step, so
        // the step runs again, as after any outdated attempt.
        if self.superseded && matches!(end, RunEnd::Canceled { .. }) {
            return StepEvent::Failed {
                generation,
                reason: "a commit canceled the run".to_owned(),
                retry: true,
            };
        }
        let by = self.canceled_by.clone().unwrap_or_else(|| "Gantry".to_owned());
        end.event(generation, by)
    }
}

const CANCELED_BY_PREFIX: &str = "canceled by ";

/// The maximum number of characters of `step.cause_by`.
const MAX_CAUSE_BY: usize = 200;

/// Ends a worker's run and changes its step in one transaction.
///
/// # Errors
///
/// The database fails. Nothing has changed, and a retry is safe.
pub async fn finish_run(
    pool: &PgPool,
    run: RunId,
    worker: WorkerId,
    end: &RunEnd,
) -> Result<Finished, StoreError> {
    end_run(pool, run, Ender::Worker(worker), end).await
}

/// Ends several runs of a worker in one transaction. Most of the cost of a single end is the
/// transaction and the locks. They end one after the other, with the same effect as single calls.
/// Results are in the order of `ends`.
///
/// # Errors
///
/// The database fails, or rejects one of the runs. Nothing has changed, and calling [`finish_run`]
/// for each is safe.
pub async fn finish_runs(
    pool: &PgPool,
    worker: WorkerId,
    ends: &[(RunId, RunEnd)],
) -> Result<Vec<Finished>, StoreError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let rows = end_worker_rows(&mut transaction, worker, ends).await?;
    let mut changes = Vec::with_capacity(rows.len());
    let mut events = Vec::new();
    let mut listed: Vec<EndedRun<'_>> = Vec::with_capacity(rows.len());
    let mut finished = Vec::with_capacity(ends.len());
    for (run, end) in ends {
        let Some(row) = rows.get(run) else {
            store_late_result(&mut transaction, *run, worker, end).await?;
            finished.push(Finished::Late);
            continue;
        };
        let (step, end) = (StepId(row.step_id), row.effective_end(end));
        changes.push(Change::Step { step, event: row.event(&end) });
        events.extend(run_events(
            run.0,
            row.noderole_id,
            row.deployment_id,
            end.outcome(),
            row.log_bytes,
        ));
        listed.push((*run, NodeId(row.node_id), step, end));
        finished.push(Finished::Applied);
    }
    let steps: Vec<StepId> = listed.iter().map(|(_, _, step, _)| *step).collect();
    let outcome = match decide_each(&mut transaction, &changes, &steps).await {
        Ok(outcome) => outcome,
        Err(ChangeError::Store(error)) => return Err(error),
        Err(other) => return Err(StoreError::corrupt("step", other)),
    };
    let mut all_events = write(&mut transaction, &outcome).await?;
    all_events.extend(store_results(&mut transaction, &outcome, &listed).await?);
    all_events.append(&mut events);
    append_events(&mut transaction, &all_events, &[CHANNEL_TODO]).await?;
    transaction.commit().await?;
    settle_remaining(pool, outcome.more).await;
    Ok(finished)
}

/// Ends a queued run that may not start. Its step becomes due again.
pub(crate) async fn end_unstarted(pool: &PgPool, run: RunId) -> Result<Finished, StoreError> {
    end_run(pool, run, Ender::Queue, &RunEnd::Unstarted).await
}

async fn end_run(
    pool: &PgPool,
    run: RunId,
    ended_by: Ender,
    end: &RunEnd,
) -> Result<Finished, StoreError> {
    match try_end(pool, run, ended_by, end).await {
        Err(error) if !error.is_transient() => fail_broken_run(pool, run, ended_by, &error).await,
        tried => tried,
    }
}

/// Ends a run whose related rows cannot be read or are inconsistent. Its step changes to ERROR with
/// the cause, so that people see it, instead of staying in TRANSITION forever. Dependent steps and
/// their counts do not change.
async fn fail_broken_run(
    pool: &PgPool,
    run: RunId,
    ended_by: Ender,
    error: &StoreError,
) -> Result<Finished, StoreError> {
    tracing::error!(%run, %error, "could not process the end of a run, so its step failed");
    let text = format!("Gantry could not process the end of the run: {error}");
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let end = RunEnd::failed(text.clone());
    let Some(row) = end_row(&mut transaction, run, ended_by, &end).await? else {
        return Ok(Finished::Late);
    };
    let moved = step::Entity::update_many()
        .col_expr(step::Column::State, Expr::value("error"))
        .col_expr(step::Column::Error, Expr::value(text))
        .col_expr(step::Column::Since, Expr::current_timestamp())
        .filter(step::Column::Id.eq(row.step_id))
        .filter(step::Column::State.eq("transition"))
        .exec(&orm(&mut transaction))
        .await?;
    let mut events =
        run_events(run.0, row.noderole_id, row.deployment_id, end.outcome(), row.log_bytes)
            .to_vec();
    if moved.rows_affected == 1 {
        events.push(step_event(row.deployment_id, row.noderole_id, "error"));
    }
    append_events(&mut transaction, &events, &[CHANNEL_TODO]).await?;
    transaction.commit().await?;
    Ok(Finished::Applied)
}

async fn try_end(
    pool: &PgPool,
    run: RunId,
    ended_by: Ender,
    end: &RunEnd,
) -> Result<Finished, StoreError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let Some(row) = end_row(&mut transaction, run, ended_by, end).await? else {
        if let Ender::Worker(worker) = ended_by {
            store_late_result(&mut transaction, run, worker, end).await?;
            transaction.commit().await?;
        }
        return Ok(Finished::Late);
    };
    let step = StepId(row.step_id);
    let end = row.effective_end(end);
    let event = row.event(&end);
    let outcome = match decide(&mut transaction, &Change::Step { step, event }, &[step]).await {
        Ok(outcome) => outcome,
        Err(ChangeError::Refused(refused)) => {
            // Its step no longer waits for it, for example because its node died. Only the run
            // ends.
            tracing::info!(%run, %refused, "a run ended, but its step no longer waits for it");
            Outcome::default()
        }
        Err(ChangeError::NoderoleRemoved(step)) => {
            tracing::info!(%run, %step, "a run ended, but its noderole was removed");
            Outcome::default()
        }
        Err(ChangeError::Store(error)) => return Err(error),
        Err(other) => return Err(StoreError::corrupt(format!("run {run}"), other)),
    };
    let mut events = write(&mut transaction, &outcome).await?;
    let reported = (run, NodeId(row.node_id), step, end.clone());
    events.extend(store_results(&mut transaction, &outcome, &[reported]).await?);
    events.extend(run_events(
        run.0,
        row.noderole_id,
        row.deployment_id,
        end.outcome(),
        row.log_bytes,
    ));
    append_events(&mut transaction, &events, &[CHANNEL_TODO]).await?;
    transaction.commit().await?;
    settle_remaining(pool, outcome.more).await;
    Ok(Finished::Applied)
}

async fn end_row(
    transaction: &mut PgConnection,
    run: RunId,
    ended_by: Ender,
    end: &RunEnd,
) -> Result<Option<EndedRow>, StoreError> {
    let (worker, which) = match ended_by {
        Ender::Worker(worker) => (Some(worker.0), "worker"),
        Ender::Queue => (None, "queue"),
        Ender::Reaper => (None, "reaper"),
        Ender::ReaperForQueued => (None, "reaper_queued"),
    };
    let (result, bytes) = end.returned();
    // The server ends runs that no worker has leased, and has no privilege to write results.
    let returned = match &result {
        Some(_) => {
            "result = CASE WHEN nd.removed_in IS NULL THEN $7::jsonb END, result_bytes = $8,"
        }
        None => "",
    };
    let sql = format!(include_str!("statements/end_row.sql"), returned = returned);
    let mut query = sqlx::query_as(AssertSqlSafe(sql))
        .bind(run.0)
        .bind(worker)
        .bind(which)
        .bind(end.outcome())
        .bind(end.error())
        .bind(CANCELED_BY_PREFIX);
    if let Some(result) = result {
        query = query.bind(result).bind(bytes);
    }
    Ok(query.fetch_optional(transaction).await?)
}

/// Ends several runs of a worker. Runs that are no longer leased by it are missing in the result.
async fn end_worker_rows(
    transaction: &mut PgConnection,
    worker: WorkerId,
    ends: &[(RunId, RunEnd)],
) -> Result<BTreeMap<RunId, EndedRow>, StoreError> {
    let (results, bytes): (Vec<_>, Vec<_>) = ends.iter().map(|(_, end)| end.returned()).unzip();
    let rows: Vec<EndedRow> = sqlx::query_as(include_str!("statements/end_worker_rows.sql"))
        .bind(worker.0)
        .bind(ends.iter().map(|(run, _)| run.0).collect::<Vec<_>>())
        .bind(ends.iter().map(|(_, end)| end.outcome()).collect::<Vec<_>>())
        .bind(ends.iter().map(|(_, end)| end.error()).collect::<Vec<_>>())
        .bind(results)
        .bind(CANCELED_BY_PREFIX)
        .bind(bytes)
        .fetch_all(transaction)
        .await?;
    Ok(rows.into_iter().map(|row| (RunId(row.id), row)).collect())
}

async fn store_late_result(
    transaction: &mut PgConnection,
    run: RunId,
    worker: WorkerId,
    end: &RunEnd,
) -> Result<(), StoreError> {
    let (result, bytes) = end.returned();
    let node: Option<Uuid> = sqlx::query_scalar(
        "UPDATE run r SET outcome = 'late', result = CASE WHEN nd.removed_in IS NULL THEN $3::jsonb END, result_bytes = $5,
           error = coalesce($4, r.error)
         FROM node nd WHERE r.id = $1 AND r.worker_id = $2 AND r.state = 'ended' AND r.outcome = 'lost' AND nd.id = r.node_id
         RETURNING r.node_id",
    )
    .bind(run.0)
    .bind(worker.0)
    .bind(result)
    .bind(end.error())
    .bind(bytes)
    .fetch_optional(&mut *transaction)
    .await?;
    match node.filter(|_| bytes > 0) {
        Some(node) => delete_excess_results(transaction, NodeId(node)).await,
        None => Ok(()),
    }
}

/// An ended run with its node and step.
type EndedRun<'e> = (RunId, NodeId, StepId, Cow<'e, RunEnd>);

/// Stores results, outputs and facts, and returns their events. A step gets its latest result,
/// for every outcome. A node stores results within its limits. An output is stored only if it
/// was applied.
async fn store_results(
    transaction: &mut PgConnection,
    outcome: &Outcome,
    ended: &[EndedRun<'_>],
) -> Result<Vec<Event>, StoreError> {
    let applied = |step| {
        outcome.deltas.iter().any(|d| d.step == step && d.now.applied == Some(d.now.generation))
    };
    let (mut steps, mut runs, mut results, mut outputs) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // Ordered by id, which is the lock order.
    let mut nodes: BTreeMap<NodeId, Vec<&EndedRun<'_>>> = BTreeMap::new();
    for reported in ended {
        let (run, node, step, end) = reported;
        let Some(result) = end.result() else { continue };
        let output = match &**end {
            RunEnd::Succeeded { output, .. } if applied(*step) => Some(output),
            _ => None,
        };
        steps.push(step.0);
        runs.push(run.0);
        results.push(Value::Object(result.clone()));
        outputs.push(output);
        if !result.is_empty() {
            nodes.entry(*node).or_default().push(reported);
        }
    }
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query(include_str!("statements/store_results.sql"))
        .bind(steps)
        .bind(runs)
        .bind(results)
        .bind(outputs)
        .execute(&mut *transaction)
        .await?;
    let mut events = Vec::new();
    for (node, reported) in nodes {
        for (run, _, step, end) in reported {
            if let RunEnd::Succeeded { result, .. } = &**end {
                events.extend(store_returned_facts(transaction, *run, *step, result).await?);
            }
        }
        delete_excess_results(transaction, node).await?;
    }
    Ok(events)
}

/// Settles the remaining steps, one batch per transaction.
async fn settle(pool: &PgPool, more: Vec<StepId>) -> Result<(), StoreError> {
    let mut left: VecDeque<StepId> = more.into();
    while !left.is_empty() {
        let batch: Vec<StepId> = left.drain(..left.len().min(BATCH)).collect();
        let change = Change::Settle { steps: batch.clone() };
        match change_steps(pool, &change, &batch).await {
            Ok(outcome) => left.extend(outcome.more),
            Err(ChangeError::Store(error)) => return Err(error),
            Err(other) => return Err(StoreError::corrupt("step", other)),
        }
    }
    Ok(())
}

/// Settles steps after a change that is already committed. If this fails, the next sweep does it
/// ([`settle_leftovers`]).
async fn settle_remaining(pool: &PgPool, more: Vec<StepId>) {
    let count = more.len();
    if let Err(error) = settle(pool, more).await {
        tracing::warn!(count, %error, "could not settle immediate steps; the next sweep retries");
    }
}

/// Applies a change of progress in its own transaction.
async fn change_steps(
    pool: &PgPool,
    change: &Change,
    initial_steps: &[StepId],
) -> Result<Outcome, ChangeError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let outcome = apply_change(&mut transaction, change, initial_steps).await?;
    transaction.commit().await?;
    Ok(outcome)
}

/// Applies a change within a transaction that has taken APPLY.
async fn apply_change(
    transaction: &mut PgConnection,
    change: &Change,
    initial_steps: &[StepId],
) -> Result<Outcome, ChangeError> {
    let outcome = decide(transaction, change, initial_steps).await?;
    let events = write(transaction, &outcome).await?;
    append_events(transaction, &events, &[CHANNEL_TODO]).await?;
    Ok(outcome)
}

/// Sets the states of the steps that a commit has written, within its transaction, which holds
/// APPLY exclusively. It also settles all steps without a run, so a commit leaves nothing
/// unsettled.
///
/// # Errors
///
/// The database fails, or rows are inconsistent.
pub async fn commit_steps(
    transaction: &mut PgConnection,
    change: &Change,
) -> Result<(), StoreError> {
    let initial_steps: Vec<StepId> = match change {
        Change::Commit(steps) => steps.iter().map(|committed| committed.step).collect(),
        _ => Vec::new(),
    };
    let apply_all = async {
        let mut more = apply_change(transaction, change, &initial_steps).await?.more;
        while !more.is_empty() {
            let settle = Change::Settle { steps: more.clone() };
            more = apply_change(transaction, &settle, &more).await?.more;
        }
        Ok(())
    };
    apply_all.await.map_err(|error| match error {
        ChangeError::Store(error) => error,
        other => StoreError::corrupt("step", other),
    })
}

/// Settles steps that need no run but stayed TODO after a crash between two batches. Returns their
/// number.
///
/// # Errors
///
/// The database fails. Earlier batches stay settled.
pub async fn settle_leftovers(pool: &PgPool) -> Result<usize, StoreError> {
    let mut count = 0;
    loop {
        let left: Vec<(Uuid,)> = sqlx::query_as(
            "SELECT id FROM step WHERE state = 'todo' AND (immediate OR skipped IS NOT NULL
               OR (applied_generation = generation AND (destructive OR cause IS NULL)))
             ORDER BY rank, id LIMIT $1",
        )
        .bind(BATCH as i64)
        .fetch_all(pool)
        .await?;
        let left: Vec<StepId> = left.into_iter().map(|(id,)| StepId(id)).collect();
        let (found, is_full) = (left.len(), left.len() == BATCH);
        settle(pool, left).await?;
        count += found;
        if !is_full {
            return Ok(count);
        }
    }
}

/// Retries a step in ERROR on behalf of a person.
///
/// # Errors
///
/// [`ChangeError::Refused`] with a remedy if the step is in another state.
pub async fn retry_step(pool: &PgPool, step: StepId, by: &str) -> Result<(), ChangeError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    request_retry(&mut transaction, step, by).await?;
    transaction.commit().await?;
    Ok(())
}

/// Does the same within a transaction that has taken APPLY ([`lock_apply_shared`]).
///
/// # Errors
///
/// See [`retry_step`].
pub async fn request_retry(
    transaction: &mut PgConnection,
    step: StepId,
    by: &str,
) -> Result<(), ChangeError> {
    let event = StepEvent::Retry { reason: RerunReason::Retry };
    apply_change(transaction, &Change::Step { step, event }, &[step]).await?;
    let by: String = by.chars().take(MAX_CAUSE_BY).collect();
    step::Entity::update_many()
        .col_expr(step::Column::CauseBy, Expr::value(by))
        .filter(step::Column::Id.eq(step.0))
        .exec(&orm(transaction))
        .await?;
    Ok(())
}

/// Runs a step again at its present generation for a cause that is progress: drift, a hook or
/// changed input.
///
/// # Errors
///
/// [`ChangeError::Refused`] if the step is destructive and done.
pub async fn rerun_step(
    pool: &PgPool,
    step: StepId,
    reason: RerunReason,
) -> Result<(), ChangeError> {
    let query = step::Entity::find_by_id(step.0).select_only().column(step::Column::Generation);
    let generation: Option<i64> = query.into_tuple().one(&orm(&mut *pool.acquire().await?)).await?;
    let Some(generation) = generation else {
        return Err(StoreError::corrupt(format!("step {step}"), "the step does not exist").into());
    };
    let event = StepEvent::Rerun { generation: BlueprintNumber(generation), reason };
    change_steps(pool, &Change::Step { step, event }, &[step]).await.map(|_| ())
}

/// Cancels a run: a queued one at once, a running one when its worker notices or its lease expires.
///
/// # Errors
///
/// [`ChangeError::RunNotOpen`] if the run has ended or does not exist.
pub async fn cancel_run(pool: &PgPool, run: RunId, by: &str) -> Result<(), ChangeError> {
    let mut transaction = pool.begin().await?;
    let canceled_run = request_cancel(&mut transaction, run, by).await?;
    transaction.commit().await?;
    finish_cancel(pool, run, canceled_run).await
}

/// Whether a run to cancel was still queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "one that is queued is ended once this is committed: `end_canceled`"]
pub struct Queued(bool);

/// The first half of [`cancel_run`]: requests the cancellation. It must be the first statement of
/// its transaction.
///
/// # Errors
///
/// [`ChangeError::RunNotOpen`] if the run has ended or does not exist.
pub async fn request_cancel(
    transaction: &mut PgConnection,
    run: RunId,
    by: &str,
) -> Result<Queued, ChangeError> {
    lock_apply_shared(transaction).await?;
    let open: Option<(String,)> = sqlx::query_as(
        "UPDATE run SET cancel_requested = true, error = $2 || $3 WHERE id = $1 AND ended_at IS NULL RETURNING state",
    )
    .bind(run.0)
    .bind(CANCELED_BY_PREFIX)
    .bind(by)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some((state,)) = open else {
        return Err(ChangeError::RunNotOpen(run));
    };
    notify(transaction, CHANNEL_CANCEL, &run.to_string()).await?;
    Ok(Queued(state == "queued"))
}

/// Whether a run exists, open or ended.
pub async fn run_exists(on: &mut PgConnection, run: RunId) -> Result<bool, StoreError> {
    let query = run::Entity::find_by_id(run.0).select_only().column(run::Column::Id);
    let found: Option<i64> = query.into_tuple().one(&orm(on)).await?;
    Ok(found.is_some())
}

/// The second half of [`cancel_run`], after the first is committed: ends the run if no worker has
/// leased it.
pub async fn finish_cancel(
    pool: &PgPool,
    run: RunId,
    Queued(queued): Queued,
) -> Result<(), ChangeError> {
    if queued {
        // If a worker has leased it since, that worker cancels it.
        end_run(pool, run, Ender::Queue, &RunEnd::Canceled { found: Map::new() }).await?;
    }
    Ok(())
}

/// Requests the cancellation of running runs of steps that this blueprint changed or re-runs,
/// because their results would not be applied. Returns their number. The transaction of the commit
/// calls it.
pub async fn cancel_superseded(
    transaction: &mut PgConnection,
    blueprint: BlueprintNumber,
) -> Result<u64, StoreError> {
    let canceled = sqlx::query(
        "UPDATE run r SET cancel_requested = true, superseded = true, error = $2 || 'the commit of blueprint ' || $1::text
         FROM step s WHERE s.id = r.step_id AND r.ended_at IS NULL AND r.state = 'running'
           AND s.generation = $1 AND r.generation < $1",
    )
    .bind(blueprint.0)
    .bind(CANCELED_BY_PREFIX)
    .execute(&mut *transaction)
    .await?;
    if canceled.rows_affected() > 0 {
        notify(transaction, CHANNEL_CANCEL, "").await?;
    }
    Ok(canceled.rows_affected())
}

/// A run whose lease has expired.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct OverdueRun {
    pub run: i64,
    pub step: Uuid,
    pub epoch: i64,
    /// Whether a worker ever leased it.
    pub leased: bool,
    /// Whether its step is destructive, so that it runs again only with a proof that it never
    /// started.
    pub destructive: bool,
    pub jig: String,
    /// Whether the run executes on its node, so that the node's ledger lists it.
    pub on_node: bool,
    /// The hash of the node's document.
    pub doc: Option<Vec<u8>>,
    /// The connection in the node's row, in the form of a document.
    pub connection: Option<Value>,
}

/// Runs whose leases have expired, oldest first.
pub async fn overdue_runs(pool: &PgPool, limit: u32) -> Result<Vec<OverdueRun>, StoreError> {
    let rows = sqlx::query_as(include_str!("statements/overdue_runs.sql"))
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    Ok(rows)
}

/// The reaper's finding about an overdue run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// No worker had leased it when the reaper read it.
    Queued,
    /// A worker had leased it, but the node's ledger proves that it never ran and never will.
    NeverStarted,
    /// A worker had leased it.
    Lost,
}

/// Ends an overdue run if the finding still applies. Checks of other runs may have taken minutes,
/// in which a worker may have leased it or renewed its lease.
///
/// # Errors
///
/// The database fails. Nothing has changed.
pub async fn end_overdue_run(
    pool: &PgPool,
    run: RunId,
    found: Overdue,
) -> Result<Finished, StoreError> {
    let lost = || RunEnd::Lost { reason: "the worker did not renew its lease in time".to_owned() };
    match found {
        Overdue::Queued => end_run(pool, run, Ender::ReaperForQueued, &RunEnd::Unstarted).await,
        Overdue::NeverStarted => end_run(pool, run, Ender::Reaper, &RunEnd::Unstarted).await,
        Overdue::Lost => end_run(pool, run, Ender::Reaper, &lost()).await,
    }
}

/// Sets whether a node is alive, and applies the effect on its steps in the same transaction. Runs
/// on a dead node end as lost; their workers notice at their next renewal. Returns whether anything
/// changed.
///
/// # Errors
///
/// [`ChangeError::NoNode`] if the node does not exist.
pub async fn set_node_alive(pool: &PgPool, node: NodeId, alive: bool) -> Result<bool, ChangeError> {
    change_node_alive(pool, node, alive, None, None).await
}

/// The result of a successful connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionResult<'a> {
    pub boot_id: &'a str,
    /// The version of the machine's reports for which its running processes are known. `None`:
    /// unknown, so nothing starts on the node.
    pub confirmed: Option<i32>,
}

/// The node state on which a health check based its decision, before it had the lock. The node
/// changes only if this still applies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    /// The connection number that it used.
    pub connection_no: i32,
    /// The number of results against the believed state, with this check. Any other check changes
    /// it.
    pub contradicting: i32,
    /// The known boot id. Empty: none.
    pub boot_id: &'a str,
}

#[derive(sqlx::FromRow)]
struct ReachedNode {
    alive: bool,
    phantom: bool,
    fqdn: String,
    connection_no: i32,
    report_no: i32,
    contradicting_checks: i32,
    boot_id: String,
}

impl ReachedNode {
    fn is(&self, expected: &Expected<'_>) -> bool {
        // The health check that records the first boot id also changes the node.
        let is_same_boot = expected.boot_id.is_empty() || expected.boot_id == self.boot_id;
        is_same_boot
            && (self.connection_no, self.contradicting_checks)
                == (expected.connection_no, expected.contradicting)
    }
}

/// Does the same with the result of a connection. Does nothing if the node is no longer in the
/// expected state.
pub(crate) async fn change_node_alive(
    pool: &PgPool,
    node: NodeId,
    alive: bool,
    joined: Option<ConnectionResult<'_>>,
    expected: Option<Expected<'_>>,
) -> Result<bool, ChangeError> {
    let mut transaction = pool.begin().await?;
    lock_apply_exclusive(&mut transaction).await?;
    let found: Option<ReachedNode> = sqlx::query_as(
        "SELECT alive, phantom, fqdn, connection_no, report_no, contradicting_checks, coalesce(boot_id, '') AS boot_id
         FROM node WHERE id = $1 FOR UPDATE",
    )
    .bind(node.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let found = found.ok_or(ChangeError::NoNode(node))?;
    if found.alive == alive
        || found.phantom
        || expected.is_some_and(|expected| !found.is(&expected))
    {
        return Ok(false);
    }
    let confirmed = joined.map(|joined| joined.confirmed == Some(found.report_no));
    if !alive {
        for step in
            end_unattended_runs(&mut transaction, RunSelection::QueuedOnDeadNode(node)).await?
        {
            apply_change(
                &mut transaction,
                &Change::Step { step, event: StepEvent::NeverStarted },
                &[step],
            )
            .await?;
        }
    }
    let is_same_boot = joined.is_some_and(|joined| is_same_boot(&found.boot_id, joined.boot_id));
    // The transition locks the steps in the common order before the node's trigger updates them.
    let change = match alive {
        true => {
            let resumed = resumed_steps(&mut transaction, node, is_same_boot).await?;
            Change::NodeUp { node, resumed }
        }
        false => Change::NodeDown { node },
    };
    let outcome = decide(&mut transaction, &change, &[]).await?;
    // Steps leave TRANSITION together with their runs, so the runs end first.
    end_unattended_runs(&mut transaction, RunSelection::OfOutdatedSteps(&outcome.outdated)).await?;
    let events = write(&mut transaction, &outcome).await?;
    append_events(&mut transaction, &events, &[CHANNEL_TODO]).await?;
    sqlx::query(
        "UPDATE node SET alive = $2, alive_since = now(), last_seen_at = CASE WHEN $2 THEN now() ELSE last_seen_at END,
           contradicting_checks = 0, boot_id = coalesce($3, boot_id), joined = coalesce($4, joined),
           joined_at = CASE WHEN $4 = 'confirmed' THEN now() ELSE joined_at END
         WHERE id = $1",
    )
    .bind(node.0)
    .bind(alive)
    .bind(joined.map(|joined| joined.boot_id))
    .bind(confirmed.map(|confirmed| if confirmed { "confirmed" } else { "welcomed" }))
    .execute(&mut *transaction)
    .await?;
    append_events(&mut transaction, &[node_event(&found.fqdn)], &[]).await?;
    transaction.commit().await?;
    settle_remaining(pool, outcome.more).await;
    Ok(true)
}

/// The steps of a returning node whose results are still valid, by the policies of their roles
/// ([`OnReturn`]).
async fn resumed_steps(
    transaction: &mut PgConnection,
    node: NodeId,
    is_same_boot: bool,
) -> Result<BTreeSet<StepId>, StoreError> {
    let rows: Vec<(Uuid, Option<Value>)> =
        sqlx::query_as(include_str!("statements/steps_of_returning_node.sql"))
            .bind(node.0)
            .fetch_all(transaction)
            .await?;
    let mut resumed = BTreeSet::new();
    for (step, policy) in rows {
        let policy: OnReturn = policy
            .map(serde_json::from_value)
            .transpose()
            .map_err(|e| StoreError::corrupt(format!("the role of step {step}"), e))?
            .unwrap_or_default();
        if policy.resumes(is_same_boot) {
            resumed.insert(StepId(step));
        }
    }
    Ok(resumed)
}

/// Puts a node in maintenance, with person and reason, or ends its maintenance. Running runs
/// continue, and every step keeps its state; queued runs return. The caller's transaction must hold
/// no locks yet. Returns whether it changed, or `None` if there is no such node.
pub async fn set_node_maintenance(
    transaction: &mut PgConnection,
    node: NodeId,
    maintenance: Option<(PersonId, &str)>,
) -> Result<Option<bool>, ChangeError> {
    lock_apply_exclusive(&mut *transaction).await?;
    let was_available: Option<bool> = sqlx::query_scalar(
        "SELECT available FROM node WHERE id = $1 AND NOT phantom AND removed_in IS NULL FOR UPDATE",
    )
    .bind(node.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(was_available) = was_available else { return Ok(None) };
    let available = maintenance.is_none();
    if was_available == available {
        return Ok(Some(false));
    }
    if !available {
        for step in
            end_unattended_runs(transaction, RunSelection::QueuedOnNodeInMaintenance(node)).await?
        {
            apply_change(
                transaction,
                &Change::Step { step, event: StepEvent::NeverStarted },
                &[step],
            )
            .await?;
        }
    }
    let since = if available { Expr::cust("NULL") } else { Expr::current_timestamp() };
    let (by, reason) = maintenance.map(|(person, reason)| (person.0, reason)).unzip();
    node::Entity::update_many()
        .col_expr(node::Column::Available, Expr::value(available))
        .col_expr(node::Column::UnavailableBy, Expr::value(by))
        .col_expr(node::Column::UnavailableReason, Expr::value(reason))
        .col_expr(node::Column::UnavailableAt, since)
        .filter(node::Column::Id.eq(node.0))
        .exec(&orm(transaction))
        .await?;
    notify(transaction, CHANNEL_TODO, "").await?;
    Ok(Some(true))
}

/// The open runs to end without their workers.
#[derive(Debug, Clone, Copy)]
enum RunSelection<'a> {
    /// Queued runs on a dead node.
    QueuedOnDeadNode(NodeId),
    /// Queued runs on a node in maintenance.
    QueuedOnNodeInMaintenance(NodeId),
    /// Runs of steps that no longer count them, because their node died.
    OfOutdatedSteps(&'a [StepId]),
    /// Queued runs of removed noderoles.
    QueuedOfSteps(&'a [StepId]),
    /// All runs on expunged nodes, which no worker reaches any more.
    On(&'a [NodeId]),
}

#[derive(sqlx::FromRow)]
struct UnattendedRow {
    id: i64,
    step_id: Uuid,
    noderole_id: Uuid,
    deployment_id: Uuid,
    outcome: String,
    log_bytes: i64,
}

/// Ends runs without their workers. Returns their steps.
async fn end_unattended_runs(
    transaction: &mut PgConnection,
    which: RunSelection<'_>,
) -> Result<Vec<StepId>, StoreError> {
    let ids = |steps: &[StepId]| steps.iter().map(|step| step.0).collect::<Vec<Uuid>>();
    let (nodes, steps, queued, reason) = match which {
        RunSelection::QueuedOnDeadNode(node) => (vec![node.0], Vec::new(), true, "the node died"),
        RunSelection::QueuedOnNodeInMaintenance(node) => {
            (vec![node.0], Vec::new(), true, "the node was put in maintenance")
        }
        RunSelection::OfOutdatedSteps(steps) => (Vec::new(), ids(steps), false, "the node died"),
        RunSelection::QueuedOfSteps(steps) => {
            (Vec::new(), ids(steps), true, "the noderole was removed")
        }
        RunSelection::On(nodes) => {
            (nodes.iter().map(|n| n.0).collect(), Vec::new(), false, "the node was expunged")
        }
    };
    let rows: Vec<UnattendedRow> = sqlx::query_as(
        "UPDATE run r SET outcome = CASE r.state WHEN 'queued' THEN 'unstarted' ELSE 'lost' END, state = 'ended',
           ended_at = now(), error = $4
         FROM step s JOIN noderole n ON n.id = s.noderole_id
         WHERE s.id = r.step_id AND r.ended_at IS NULL AND (r.step_id = ANY($2) OR r.node_id = ANY($1))
           AND (r.state = 'queued' OR NOT $3)
         RETURNING r.id, r.step_id, s.noderole_id, n.deployment_id, r.outcome, r.log_bytes",
    )
    .bind(nodes)
    .bind(steps)
    .bind(queued)
    .bind(reason)
    .fetch_all(&mut *transaction)
    .await?;
    let reported = |row: &UnattendedRow| {
        run_events(row.id, row.noderole_id, row.deployment_id, &row.outcome, row.log_bytes)
    };
    let events: Vec<_> = rows.iter().flat_map(reported).collect();
    append_events(transaction, &events, &[]).await?;
    Ok(rows.into_iter().map(|row| StepId(row.step_id)).collect())
}

/// Ends runs that a commit makes pointless: queued runs of these steps, and every run on these
/// nodes. Other runs continue to their end. The transaction holds APPLY exclusively.
pub async fn end_removed_runs(
    transaction: &mut PgConnection,
    steps: &[StepId],
    nodes: &[NodeId],
) -> Result<(), StoreError> {
    end_unattended_runs(transaction, RunSelection::On(nodes)).await?;
    end_unattended_runs(transaction, RunSelection::QueuedOfSteps(steps)).await?;
    Ok(())
}
