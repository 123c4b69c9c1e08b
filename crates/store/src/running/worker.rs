//! Workers' rows. A worker is new with every start: a name that lives on would hide that what ran under it has died.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::data::secret::KnownSecret;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
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
pub async fn ensure_worker(
    pool: &PgPool,
    hello: &Hello,
    lease: Duration,
) -> Result<(), StoreError> {
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
pub async fn renew_worker(
    pool: &PgPool,
    worker: WorkerId,
    lease: Duration,
) -> Result<Option<Phase>, StoreError> {
    let phase: Option<String> = sqlx::query_scalar(
        "UPDATE worker SET lease_until = now() + make_interval(secs => $2), heard_at = now() WHERE id = $1 RETURNING phase",
    )
    .bind(worker.0)
    .bind(lease.as_secs_f64())
    .fetch_optional(pool)
    .await?;
    Ok(phase.map(|phase| if phase == "confirmed" { Phase::Confirmed } else { Phase::Other }))
}

/// Reports the secrets that a worker has. False: its row is not there yet, or is gone.
///
/// # Errors
/// What the database refused.
pub async fn report_secrets(
    pool: &PgPool,
    worker: WorkerId,
    secrets: &[KnownSecret],
) -> Result<bool, StoreError> {
    // Only another list is written: the row is renewed often enough.
    let there: Option<bool> = sqlx::query_scalar(
        "WITH reported AS (UPDATE worker SET secrets = $2 WHERE id = $1 AND secrets IS DISTINCT FROM $2)
         SELECT true FROM worker WHERE id = $1",
    )
    .bind(worker.0)
    .bind(Json(secrets))
    .fetch_optional(pool)
    .await?;
    Ok(there.is_some())
}

/// The secrets that the workers have which take runs now. None: no such worker has reported any, so nothing is known.
///
/// A version counts as soon as one worker has it. Of two descriptors, none counts if they differ.
///
/// # Errors
/// What the database refused.
pub async fn known_secrets(
    on: &mut PgConnection,
) -> Result<Option<BTreeMap<String, KnownSecret>>, StoreError> {
    let reported: Vec<Json<Vec<KnownSecret>>> = sqlx::query_scalar(
        "SELECT secrets FROM worker WHERE phase = 'confirmed' AND lease_until > now() AND secrets <> '[]'",
    )
    .fetch_all(on)
    .await?;
    let mut known: BTreeMap<String, KnownSecret> = BTreeMap::new();
    for secret in reported.iter().flat_map(|list| &list.0) {
        let of_all = known.entry(secret.name.clone()).or_insert_with(|| secret.clone());
        of_all.versions.extend(&secret.versions);
        of_all.descriptor =
            of_all.descriptor.take().filter(|one| Some(one) == secret.descriptor.as_ref());
    }
    Ok((!known.is_empty()).then_some(known))
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
