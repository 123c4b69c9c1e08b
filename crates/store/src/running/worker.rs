//! Workers' rows. A worker is new with every start: a name that lives on would hide that what ran under it has died.

use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use super::event::CHANNEL_TODO;
use crate::StoreError;

/// One start of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub Uuid);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a worker says of itself.
#[derive(Debug, Clone)]
pub struct Hello {
    /// Its id, minted at its start.
    pub id: WorkerId,
    /// For people; unique as the id is.
    pub name: String,
    /// Runs at once.
    pub capacity: u32,
    /// Classes of jigs that it has.
    pub jigs: Vec<String>,
    /// Where it is.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// The build.
    pub version: String,
}

/// Makes the worker known (phase welcomed). Saying hello again, after the database was away, changes nothing but its lease.
///
/// # Errors
/// What the database refused.
pub async fn ensure_worker(pool: &PgPool, hello: &Hello, lease: Duration) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO worker (id, name, phase, capacity, jigs, host, pid, version, lease_until)
         VALUES ($1, $2, 'welcomed', $3, $4, $5, $6, $7, now() + make_interval(secs => $8))
         ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, heard_at = now()",
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

/// Counts the worker's capacity from now on: it has its connections, and listens.
///
/// # Errors
/// What the database refused.
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

/// How far a worker has joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its capacity counts.
    Confirmed,
    /// It does not yet, or no more.
    Other,
}

/// Renews the worker's own lease; gives its phase. None: its row is gone.
///
/// # Errors
/// What the database refused.
pub async fn renew_worker(pool: &PgPool, worker: WorkerId, lease: Duration) -> Result<Option<Phase>, StoreError> {
    let phase: Option<String> = sqlx::query_scalar(
        "UPDATE worker SET lease_until = now() + make_interval(secs => $2), heard_at = now() WHERE id = $1 RETURNING phase",
    )
    .bind(worker.0)
    .bind(lease.as_secs_f64())
    .fetch_optional(pool)
    .await?;
    Ok(phase.map(|phase| if phase == "confirmed" { Phase::Confirmed } else { Phase::Other }))
}

/// Ends a worker: its capacity counts no more from now on.
///
/// # Errors
/// What the database refused.
pub async fn bye(pool: &PgPool, worker: WorkerId, reason: &str) -> Result<(), StoreError> {
    sqlx::query("UPDATE worker SET phase = 'none', lease_until = now(), reason = $2 WHERE id = $1")
        .bind(worker.0)
        .bind(reason)
        .execute(pool)
        .await?;
    Ok(())
}
