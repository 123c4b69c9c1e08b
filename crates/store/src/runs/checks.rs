//! Checks of roles: the steps whose check is due, and the effect of results.
//!
//! Every worker runs checks. It leases those that are due, one per node. So the load on a node does
//! not depend on the number of workers. If a worker dies, its lease ends and the check is due
//! again. [`engine::anneal::check_transition`] decides what a result means. The change of the step
//! is a transition like any other.
//!
//! Invariants:
//! * A check runs only while a run could: execution is on, the deployment is not on hold, and the
//!   node is joined, available and in the state that the step needs. It also runs only while the
//!   step is ACTIVE, or ERROR because of its check, and while no exclusive run is open on the node.
//! * A result counts only if the step has not changed since the lease. A failure counts only if all
//!   of this still holds at its end. Otherwise the check runs again.
//! * The row of the step is locked before the row of its check, as in the transaction that makes a
//!   step ACTIVE.

use std::time::Duration;

use engine::Hash;
use engine::anneal::{Change, CheckHistory, CheckedStep, check_transition};
use engine::catalog::Check;
use engine::ids::{BlueprintNumber, DeploymentId, NodeId, NoderoleId, StepId};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::change_error::ChangeError;
use super::world::{decide, write};
use crate::StoreError;
use crate::connect::hash;
use crate::events::{CHANNEL_TODO, append_events, step_event};
use crate::locks::lock_apply_shared;
use crate::workers::WorkerId;

/// The maximum number of characters of `role_check.detail`.
pub const MAX_CHECK_DETAIL: usize = 2000;

/// A leased check.
#[derive(Debug, Clone, PartialEq)]
pub struct DueCheck {
    pub step: StepId,
    /// Identifies the lease.
    pub leased_at: OffsetDateTime,
    pub noderole: NoderoleId,
    pub node: NodeId,
    pub role: String,
    pub instance: u32,
    /// The content hash of the role in the noderole's row.
    pub role_hash: Hash,
    pub deployment: DeploymentId,
    /// The blueprint that last changed or re-ran the step.
    pub generation: BlueprintNumber,
    /// The node's name.
    pub fqdn: String,
    /// The connection in the node's row, in the form of a document. `None` for a phantom.
    pub connection: Option<Value>,
    pub epoch: i64,
    /// The blueprint in force, and its root.
    pub head: BlueprintNumber,
    pub head_root: Hash,
    /// The last reviewed blueprint up to `head`.
    pub reviewed: BlueprintNumber,
    /// The input of the step's last successful run, with its sources.
    pub input: Option<Value>,
    /// The further data of that run.
    pub surroundings: Option<Value>,
}

#[derive(sqlx::FromRow)]
struct DueRow {
    step_id: Uuid,
    leased_at: OffsetDateTime,
    noderole_id: Uuid,
    node_id: Uuid,
    role: String,
    instance: i32,
    role_hash: Vec<u8>,
    deployment_id: Uuid,
    generation: i64,
    fqdn: String,
    connection: Option<Value>,
    epoch: i64,
    head: i64,
    head_root: Vec<u8>,
    reviewed: i64,
    input: Option<Value>,
    surroundings: Option<Value>,
}

impl TryFrom<DueRow> for DueCheck {
    type Error = StoreError;

    fn try_from(row: DueRow) -> Result<Self, StoreError> {
        Ok(Self {
            step: StepId(row.step_id),
            leased_at: row.leased_at,
            noderole: NoderoleId(row.noderole_id),
            node: NodeId(row.node_id),
            role: row.role,
            instance: row.instance.unsigned_abs(),
            role_hash: hash("noderole", &row.role_hash)?,
            deployment: DeploymentId(row.deployment_id),
            generation: BlueprintNumber(row.generation),
            fqdn: row.fqdn,
            connection: row.connection,
            epoch: row.epoch,
            head: BlueprintNumber(row.head),
            head_root: hash("blueprint", &row.head_root)?,
            reviewed: BlueprintNumber(row.reviewed),
            input: row.input,
            surroundings: row.surroundings,
        })
    }
}

/// Leases checks that are due, the longest first, at most `limit` and one per node.
pub async fn lease_checks(
    pool: &PgPool,
    worker: WorkerId,
    limit: u32,
) -> Result<Vec<DueCheck>, StoreError> {
    let rows: Vec<DueRow> = sqlx::query_as(include_str!("statements/lease_checks.sql"))
        .bind(worker.0)
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    rows.into_iter().map(TryInto::try_into).collect()
}

/// The last result of the check of a step.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RoleCheckRow {
    /// The generation of the step at the result. 0: there is no result.
    pub generation: i64,
    pub state: String,
    pub failures: i32,
    pub caused_rerun: bool,
    pub detail: String,
    pub duration_ms: i32,
    pub checked_at: Option<OffsetDateTime>,
    pub changed_at: Option<OffsetDateTime>,
    /// Whether it is a success that still counts.
    pub passes: bool,
}

/// The last result of the check of a step. `None` if the step has no check or was never ACTIVE.
pub async fn role_check(
    connection: &mut PgConnection,
    step: StepId,
) -> Result<Option<RoleCheckRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT generation, state, failures, caused_rerun, detail, duration_ms, checked_at, changed_at,
           passes_until > now() AS passes
         FROM role_check WHERE step_id = $1",
    )
    .bind(step.0)
    .fetch_optional(connection)
    .await?)
}

/// The first reason why no worker can run the check of a step now. `None` if one can.
pub async fn check_obstacle(
    connection: &mut PgConnection,
    step: StepId,
) -> Result<Option<String>, StoreError> {
    let found: Option<Option<String>> =
        sqlx::query_scalar(include_str!("statements/check_obstacle.sql"))
            .bind(step.0)
            .fetch_optional(connection)
            .await?;
    Ok(found.flatten())
}

/// The result of a leased check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    pub step: StepId,
    pub leased_at: OffsetDateTime,
    pub policy: Check,
    /// Why it failed, in one line without secrets. `None`: it passed.
    pub reason: Option<String>,
    /// The end of its output, with secrets masked.
    pub detail: String,
    pub took: Duration,
}

/// The effect of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckEffect {
    /// The step keeps its state.
    Recorded,
    /// The step runs again.
    CausedRerun,
    /// The step is ERROR.
    Failed,
    /// The step is ACTIVE again.
    Recovered,
    /// The result counts no longer. The check runs again.
    Outdated,
}

#[derive(sqlx::FromRow)]
struct CheckedRow {
    generation: i64,
    is_failed: bool,
    destructive: bool,
    noderole_id: Uuid,
    deployment_id: Uuid,
    check_s: i32,
    checked_generation: i64,
    checked_state: String,
    failures: i32,
    caused_rerun: bool,
    disturbed: bool,
}

impl CheckedRow {
    /// The failures of another generation do not count.
    fn history(&self) -> CheckHistory {
        match self.checked_generation == self.generation {
            true => CheckHistory {
                failures: self.failures.unsigned_abs(),
                caused_rerun: self.caused_rerun,
            },
            false => CheckHistory::default(),
        }
    }
}

/// Stores the result of a leased check and changes its step in one transaction.
///
/// # Errors
///
/// The database fails. Nothing has changed.
pub async fn record_check(
    pool: &PgPool,
    worker: WorkerId,
    result: &CheckResult,
) -> Result<CheckEffect, StoreError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let row: Option<CheckedRow> = sqlx::query_as(include_str!("statements/lock_checked_step.sql"))
        .bind(result.step.0)
        .bind(worker.0)
        .bind(result.leased_at)
        .fetch_optional(&mut *transaction)
        .await?;
    let Some(row) = row.filter(|row| result.reason.is_none() || !row.disturbed) else {
        return_lease(&mut transaction, worker, (result.step, result.leased_at), 5.0).await?;
        transaction.commit().await?;
        return Ok(CheckEffect::Outdated);
    };
    let step = CheckedStep { is_failed: row.is_failed, destructive: row.destructive };
    let (history, event) =
        check_transition(&result.policy, row.history(), step, result.reason.as_deref());
    let state = if result.reason.is_some() { "failing" } else { "passing" };
    sqlx::query(include_str!("statements/record_check.sql"))
        .bind(result.step.0)
        .bind(row.generation)
        .bind(state)
        .bind(history.failures.cast_signed())
        .bind(history.caused_rerun)
        .bind(&result.detail)
        .bind(i32::try_from(result.took.as_millis()).unwrap_or(i32::MAX))
        .bind(f64::from(row.check_s))
        .execute(&mut *transaction)
        .await?;
    let effect = match &event {
        None => CheckEffect::Recorded,
        Some(engine::anneal::Event::CheckPassed) => CheckEffect::Recovered,
        Some(_) if history.caused_rerun && history.failures == 0 => CheckEffect::CausedRerun,
        Some(_) => CheckEffect::Failed,
    };
    if let Some(event) = event {
        let change = Change::Step { step: result.step, event };
        let outcome = match decide(&mut transaction, &change, &[result.step]).await {
            Ok(outcome) => outcome,
            Err(ChangeError::Store(error)) => return Err(error),
            Err(other) => return Err(StoreError::corrupt("step", other)),
        };
        let events = write(&mut transaction, &outcome).await?;
        append_events(&mut transaction, &events, &[CHANNEL_TODO]).await?;
    } else if row.checked_state != state || row.checked_generation != row.generation {
        let word = if row.is_failed { "error" } else { "active" };
        let event = step_event(row.deployment_id, row.noderole_id, word);
        append_events(&mut transaction, &[event], &[]).await?;
    }
    transaction.commit().await?;
    Ok(effect)
}

/// Returns the lease of a check that could not run. It is due again in half a minute.
pub async fn return_check(
    pool: &PgPool,
    worker: WorkerId,
    due: &DueCheck,
) -> Result<(), StoreError> {
    let mut connection = pool.acquire().await?;
    return_lease(&mut connection, worker, (due.step, due.leased_at), 30.0).await
}

async fn return_lease(
    connection: &mut PgConnection,
    worker: WorkerId,
    (step, leased_at): (StepId, OffsetDateTime),
    wait_s: f64,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE role_check SET worker_id = NULL, leased_at = NULL, due_at = now() + make_interval(secs => $4)
         WHERE step_id = $1 AND worker_id = $2 AND leased_at = $3",
    )
    .bind(step.0)
    .bind(worker.0)
    .bind(leased_at)
    .bind(wait_s)
    .execute(connection)
    .await?;
    Ok(())
}
