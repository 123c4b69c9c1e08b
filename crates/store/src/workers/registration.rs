//! Workers' rows. Each start of a worker gets a new row. A reused one would hide that the earlier
//! process's runs died.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::data::secret::KnownSecret;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{run, worker};
use crate::events::CHANNEL_TODO;

/// One start of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub Uuid);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A worker's data at its start.
#[derive(Debug, Clone)]
pub struct NewWorker {
    /// Generated at its start.
    pub id: WorkerId,
    /// A name for people. Unique because it contains the id.
    pub name: String,
    /// The maximum number of concurrent runs.
    pub capacity: u32,
    /// The classes of jigs that it supports.
    pub jigs: Vec<String>,
    pub host: String,
    pub pid: u32,
    pub version: String,
}

/// Inserts the worker's row (phase welcomed). A repeated call, for example after a database outage,
/// only renews the lease.
pub async fn ensure_worker(
    pool: &PgPool,
    hello: &NewWorker,
    lease: Duration,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO worker (id, name, phase, capacity, jigs, host, pid, version, lease_until)
         VALUES ($1, $2, 'welcomed', $3, $4, $5, $6, $7, now() + make_interval(secs => $8))
         ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, last_heartbeat_at = now()",
    )
    .bind(hello.id.0)
    .bind(&hello.name)
    .bind(hello.capacity.cast_signed())
    .bind(&hello.jigs)
    .bind(&hello.host)
    .bind(hello.pid.cast_signed())
    .bind(&hello.version)
    .bind(lease.as_secs_f64())
    .execute(pool)
    .await?;
    Ok(())
}

/// Marks the worker as ready for runs: it is connected and listens.
pub async fn confirm_worker(pool: &PgPool, worker: WorkerId) -> Result<(), StoreError> {
    sqlx::query(
        "WITH confirmed AS (UPDATE worker SET phase = 'confirmed' WHERE id = $1 AND phase <> 'nack')
         SELECT pg_notify($2, '')",
    )
    .bind(worker.0)
    .bind(CHANNEL_TODO)
    .execute(pool)
    .await?;
    Ok(())
}

/// Whether the worker adopts or ends lost runs: it is confirmed and its lease is valid. A draining
/// worker leaves them to the others, which can adopt them. Without any, it ends them.
pub async fn may_end_lost_runs(pool: &PgPool, worker: WorkerId) -> Result<bool, StoreError> {
    let may: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM worker w WHERE w.id = $1 AND w.phase = 'confirmed' AND w.lease_until > now()
           AND (w.drain_since IS NULL OR NOT EXISTS (SELECT FROM live_workers())))",
    )
    .bind(worker.0)
    .fetch_one(pool)
    .await?;
    Ok(may)
}

/// The join phase of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its capacity counts.
    Confirmed,
    /// Its capacity does not count yet, or no longer.
    Other,
}

/// Renews the worker's own lease and returns its phase. `None`: its row is gone.
pub async fn renew_worker(
    pool: &PgPool,
    worker: WorkerId,
    lease: Duration,
) -> Result<Option<Phase>, StoreError> {
    let phase: Option<String> = sqlx::query_scalar(
        "UPDATE worker SET lease_until = now() + make_interval(secs => $2), last_heartbeat_at = now() WHERE id = $1 RETURNING phase",
    )
    .bind(worker.0)
    .bind(lease.as_secs_f64())
    .fetch_optional(pool)
    .await?;
    Ok(phase.map(|phase| if phase == "confirmed" { Phase::Confirmed } else { Phase::Other }))
}

/// Stores the list of a worker's secrets. `false`: the worker has no row.
pub async fn report_secrets(
    pool: &PgPool,
    worker: WorkerId,
    secrets: &[KnownSecret],
) -> Result<bool, StoreError> {
    // Writes only changes, because the row is updated often enough.
    let exists: Option<bool> = sqlx::query_scalar(
        "WITH reported AS (UPDATE worker SET secrets = $2 WHERE id = $1 AND secrets IS DISTINCT FROM $2)
         SELECT true FROM worker WHERE id = $1",
    )
    .bind(worker.0)
    .bind(Json(secrets))
    .fetch_optional(pool)
    .await?;
    Ok(exists.is_some())
}

/// The secrets of all workers that accept runs now. `None`: none of these workers has reported any,
/// so nothing is known.
///
/// A version counts as soon as one worker has it. If workers report different descriptors, none of
/// them counts.
pub async fn known_secrets(
    connection: &mut PgConnection,
) -> Result<Option<BTreeMap<String, KnownSecret>>, StoreError> {
    let reported: Vec<Value> = worker::Entity::find()
        .filter(Expr::cust(
            "worker.phase = 'confirmed' AND worker.lease_until > now() AND worker.drain_since IS NULL",
        ))
        .filter(Expr::cust("worker.secrets <> '[]'"))
        .select_only()
        .column(worker::Column::Secrets)
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let mut known: BTreeMap<String, KnownSecret> = BTreeMap::new();
    for list in reported {
        let secrets: Vec<KnownSecret> =
            serde_json::from_value(list).map_err(|e| StoreError::corrupt("worker.secrets", e))?;
        for secret in secrets {
            let merged = known.entry(secret.name.clone()).or_insert_with(|| secret.clone());
            merged.versions.extend(&secret.versions);
            merged.descriptor =
                merged.descriptor.take().filter(|one| Some(one) == secret.descriptor.as_ref());
        }
    }
    Ok((!known.is_empty()).then_some(known))
}

/// Ends a worker, whose capacity no longer counts. Runs that it left on their nodes can be adopted
/// at once.
pub async fn end_worker(pool: &PgPool, worker: WorkerId, reason: &str) -> Result<(), StoreError> {
    let mut connection = pool.acquire().await?;
    worker::Entity::update_many()
        .col_expr(worker::Column::Phase, Expr::value("none"))
        .col_expr(worker::Column::LeaseUntil, Expr::current_timestamp())
        .col_expr(worker::Column::Reason, Expr::value(reason))
        .filter(worker::Column::Id.eq(worker.0))
        .exec(&orm(&mut connection))
        .await?;
    run::Entity::update_many()
        .col_expr(run::Column::LeaseUntil, Expr::current_timestamp())
        .filter(run::Column::WorkerId.eq(worker.0))
        .filter(run::Column::State.eq("running"))
        .exec(&orm(&mut connection))
        .await?;
    Ok(())
}
