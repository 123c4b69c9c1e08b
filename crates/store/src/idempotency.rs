//! Idempotency keys: which request of a person is under way, or was answered, under a word of theirs.
//!
//! # Theory
//!
//! A key is claimed before its request is carried out, and the answer is kept behind it. The claim ends by itself ([`LEASE`]): who died in
//! between blocks nobody for ever (who is alive renews it: [`renew_key`]), and who comes later under the same key carries the request out. A claim has an id of its own, so a
//! late one keeps nothing in the place of another. Every moment is the database's own.

use std::time::Duration;

use engine::ids::PersonId;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StoreError;

/// How long a claim holds without an answer and without being renewed. A request may take longer than this, so it renews its own.
pub const LEASE: Duration = Duration::from_secs(120);
/// How long answers are kept.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Rows that one round of forgetting takes.
pub const FORGOTTEN: i64 = 1_000;
/// Keys of one person at once; the oldest are not forgotten for newer ones.
pub const MOST_KEYS: i64 = 10_000;

/// A key of somebody for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Whose.
    pub person: PersonId,
    /// The word.
    pub key: String,
    /// SHA-256 of what is asked for.
    pub request: [u8; 32],
}

/// Why an answer is not kept in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// It showed a secret.
    Secret,
    /// It is too large.
    Large,
}

/// An answer that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its status.
    pub status: u16,
    /// Headers, by their names.
    pub headers: Value,
    /// The body, or why there is none.
    pub body: Result<Vec<u8>, Withheld>,
}

/// What claiming a key comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It is yours: carry the request out, then [`keep_answer`] or [`free_key`] by this id.
    Yours(Uuid),
    /// It was answered.
    Answered(Kept),
    /// Somebody carries it out; so many seconds are left at most.
    UnderWay(u64),
    /// It stands for another request.
    Other,
    /// This person has as many keys as there may be; in so many seconds the first of them is forgotten.
    TooMany(u64),
}

#[derive(sqlx::FromRow)]
struct Row {
    request: Vec<u8>,
    status: Option<i16>,
    headers: Option<Value>,
    body: Option<Vec<u8>>,
    withheld: Option<String>,
    left: f64,
}

/// Claims a key: of several that come at once, one gets it.
///
/// # Errors
/// What the database refused.
pub async fn claim_key(on: &mut PgConnection, key: &Key) -> Result<Claimed, StoreError> {
    let claim = Uuid::new_v4();
    // One that is too old to count, or whose bearer is dead, is taken over with what stands there now.
    let mine: Option<Uuid> = sqlx::query_scalar(
        "INSERT INTO idempotency AS i (person_id, key, request, claim, claimed_until) \
         SELECT $1, $2, $3, $4, now() + make_interval(secs => $5) \
         WHERE (SELECT count(*) FROM (SELECT 1 FROM idempotency WHERE person_id = $1 LIMIT $7) k) < $7 \
            OR EXISTS (SELECT 1 FROM idempotency WHERE person_id = $1 AND key = $2) \
         ON CONFLICT (person_id, key) DO UPDATE SET request = excluded.request, claim = excluded.claim, claimed_at = now(), \
           claimed_until = excluded.claimed_until, status = NULL, headers = NULL, body = NULL, withheld = NULL \
         WHERE i.claimed_at < now() - make_interval(secs => $6) \
            OR (i.status IS NULL AND i.claimed_until < now() AND i.request = excluded.request) \
         RETURNING claim",
    )
    .bind(key.person.0)
    .bind(&key.key)
    .bind(key.request.as_slice())
    .bind(claim)
    .bind(LEASE.as_secs_f64())
    .bind(KEPT.as_secs_f64())
    .bind(MOST_KEYS)
    .fetch_optional(&mut *on)
    .await?;
    if mine.is_some() {
        return Ok(Claimed::Yours(claim));
    }
    let row: Option<Row> = sqlx::query_as(
        "SELECT request, status, headers, body, withheld, extract(epoch FROM claimed_until - now())::float8 AS left \
         FROM idempotency WHERE person_id = $1 AND key = $2",
    )
    .bind(key.person.0)
    .bind(&key.key)
    .fetch_optional(&mut *on)
    .await?;
    let Some(row) = row else { return without_row(on, key.person).await };
    if row.request != key.request {
        return Ok(Claimed::Other);
    }
    let Some(status) = row.status else {
        return Ok(Claimed::UnderWay(row.left.clamp(1.0, 600.0).ceil() as u64));
    };
    let withheld = match row.withheld.as_deref() {
        Some("secret") => Withheld::Secret,
        _ => Withheld::Large,
    };
    let headers = row.headers.unwrap_or_default();
    Ok(Claimed::Answered(Kept {
        status: status.unsigned_abs(),
        headers,
        body: row.body.ok_or(withheld),
    }))
}

/// Nothing was claimed, and nothing is there: there are too many, or it was freed just now, and whoever comes again gets it.
async fn without_row(on: &mut PgConnection, person: PersonId) -> Result<Claimed, StoreError> {
    let (count, left): (i64, Option<f64>) = sqlx::query_as(
        "SELECT count(*), extract(epoch FROM min(claimed_at) + make_interval(secs => $3) - now())::float8 \
         FROM (SELECT claimed_at FROM idempotency WHERE person_id = $1 LIMIT $2) k",
    )
    .bind(person.0)
    .bind(MOST_KEYS)
    .bind(KEPT.as_secs_f64())
    .fetch_one(on)
    .await?;
    let left = left.unwrap_or_default().clamp(1.0, KEPT.as_secs_f64()).ceil() as u64;
    Ok(if count < MOST_KEYS { Claimed::UnderWay(1) } else { Claimed::TooMany(left) })
}

/// Holds a claim for another [`LEASE`] from now, as its request is still carried out; false: it is not there any more.
///
/// # Errors
/// What the database refused.
pub async fn renew_key(pool: &PgPool, key: &Key, claim: Uuid) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE idempotency SET claimed_until = now() + make_interval(secs => $4) \
         WHERE person_id = $1 AND key = $2 AND claim = $3 AND status IS NULL",
    )
    .bind(key.person.0)
    .bind(&key.key)
    .bind(claim)
    .bind(LEASE.as_secs_f64())
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Keeps the answer to a request that was carried out under this claim; false: the claim is not there any more.
///
/// # Errors
/// What the database refused.
pub async fn keep_answer(
    on: &mut PgConnection,
    key: &Key,
    claim: Uuid,
    kept: &Kept,
) -> Result<bool, StoreError> {
    let (body, withheld) = match &kept.body {
        Ok(body) => (Some(body.as_slice()), None),
        Err(Withheld::Secret) => (None, Some("secret")),
        Err(Withheld::Large) => (None, Some("large")),
    };
    let done = sqlx::query(
        "UPDATE idempotency SET status = $4, headers = $5, body = $6, withheld = $7 \
         WHERE person_id = $1 AND key = $2 AND claim = $3 AND status IS NULL",
    )
    .bind(key.person.0)
    .bind(&key.key)
    .bind(claim)
    .bind(kept.status.cast_signed())
    .bind(&kept.headers)
    .bind(body)
    .bind(withheld)
    .execute(on)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives a key back whose request was refused: it was not done.
///
/// # Errors
/// What the database refused.
pub async fn free_key(on: &mut PgConnection, key: &Key, claim: Uuid) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE person_id = $1 AND key = $2 AND claim = $3 AND status IS NULL")
        .bind(key.person.0)
        .bind(&key.key)
        .bind(claim)
        .execute(on)
        .await?;
    Ok(())
}

/// Forgets keys that are too old to count; says how many, at most [`FORGOTTEN`].
///
/// # Errors
/// What the database refused.
pub async fn forget_keys(pool: &PgPool) -> Result<u64, StoreError> {
    let gone = sqlx::query(
        "DELETE FROM idempotency WHERE (person_id, key) IN (SELECT person_id, key FROM idempotency \
         WHERE claimed_at < now() - make_interval(secs => $1) ORDER BY claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(KEPT.as_secs_f64())
    .bind(FORGOTTEN)
    .execute(pool)
    .await?;
    Ok(gone.rows_affected())
}
