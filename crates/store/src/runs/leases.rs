//! Leases of queued runs, their renewal, and the adoption of runs whose worker was lost.

use std::time::Duration;

use engine::ids::RunId;
use serde_json::Value;
use sqlx::PgPool;

use super::log::LogPosition;
use super::transition::end_unstarted;
use crate::StoreError;
use crate::locks::lock_apply_shared;
use crate::workers::WorkerId;

/// A run leased by this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    pub run: RunId,
    /// The time limit from its role.
    pub timeout: Duration,
}

#[derive(sqlx::FromRow)]
struct LeaseRow {
    id: i64,
    timeout_s: i32,
    may_start: bool,
}

/// Leases up to `limit` queued runs with these jigs, oldest first, for the time `lease`.
///
/// A queued run that may no longer start ends as unstarted, and its step becomes due again.
/// Reasons: its deployment is on hold, its node is in maintenance, execution is off, or its step
/// has a newer generation.
///
/// # Errors
///
/// The database fails. Nothing was leased.
pub async fn lease_runs(
    pool: &PgPool,
    worker: WorkerId,
    jigs: &[&str],
    limit: u32,
    lease: Duration,
) -> Result<Vec<Leased>, StoreError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let rows: Vec<LeaseRow> = sqlx::query_as(include_str!("statements/lease.sql"))
        .bind(worker.0)
        .bind(jigs)
        .bind(i64::from(limit))
        .bind(lease.as_secs_f64())
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let mut leased = Vec::with_capacity(rows.len());
    for row in rows {
        let run = RunId(row.id);
        if row.may_start {
            leased.push(Leased {
                run,
                timeout: Duration::from_secs(row.timeout_s.unsigned_abs().into()),
            });
        } else if let Err(error) = end_unstarted(pool, run).await {
            // The worker must still receive its leased runs. The reaper ends this one.
            tracing::warn!(%run, %error, "could not end a run that is not allowed to start");
        }
    }
    Ok(leased)
}

/// A run that this worker continues after its worker was lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Adopted {
    /// The input with which it was started, as stored.
    pub input: Value,
    /// The end of its log.
    pub log: LogPosition,
}

/// Leases a running run whose lease has expired to this worker. The run keeps its token, its start
/// and its log. `None`: it may not be adopted, for example because another worker was faster.
///
/// # Errors
///
/// The database fails. Nothing has changed.
pub async fn adopt_run(
    pool: &PgPool,
    run: RunId,
    worker: WorkerId,
    lease: Duration,
) -> Result<Option<Adopted>, StoreError> {
    let mut transaction = pool.begin().await?;
    lock_apply_shared(&mut transaction).await?;
    let row: Option<(Value, i64, i64, i64)> = sqlx::query_as(include_str!("statements/adopt.sql"))
        .bind(run.0)
        .bind(worker.0)
        .bind(lease.as_secs_f64())
        .fetch_optional(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let bytes = i64::unsigned_abs;
    Ok(row.map(|(input, log, out, err)| Adopted {
        input,
        log: LogPosition { log: bytes(log), out: bytes(out), err: bytes(err) },
    }))
}

/// A run whose lease was renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    pub run: RunId,
    /// Whether its cancellation was requested.
    pub cancel: bool,
}

/// Renews the leases of a worker's runs in one statement. The worker no longer has the runs that
/// are missing in the result, and must stop them at once.
///
/// # Errors
///
/// The database fails. Nothing was renewed.
pub async fn renew_runs(
    pool: &PgPool,
    worker: WorkerId,
    runs: &[RunId],
    lease: Duration,
) -> Result<Vec<Renewed>, StoreError> {
    let ids: Vec<i64> = runs.iter().map(|run| run.0).collect();
    let rows: Vec<(i64, bool)> = sqlx::query_as(
        "UPDATE run SET lease_until = now() + make_interval(secs => $3)
         WHERE id = ANY($2) AND worker_id = $1 AND state = 'running'
         RETURNING id, cancel_requested",
    )
    .bind(worker.0)
    .bind(ids)
    .bind(lease.as_secs_f64())
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(id, cancel)| Renewed { run: RunId(id), cancel }).collect())
}
