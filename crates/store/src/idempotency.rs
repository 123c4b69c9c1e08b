//! Idempotency keys of people's requests.
//!
//! A request claims its key before it executes, and stores its answer with the key. A claim expires
//! after [`LEASE`] unless it is renewed ([`renew_claim`]), so a crashed server does not block the
//! key. The next request with the same key then executes again. A claim has its own id, so a late
//! request cannot overwrite the answer of another one. All times are the database's.

use std::time::Duration;

use engine::ids::PersonId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, Condition, DerivePartialModel, EntityTrait, QueryFilter};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::idempotency;

/// The lifetime of a claim without an answer or renewal. A longer request has to renew its claim.
pub const LEASE: Duration = Duration::from_secs(120);
/// The retention of answers.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of rows that one round deletes.
pub const DELETE_BATCH: i64 = 1_000;
/// The maximum number of keys per person. Old keys are not deleted for new ones.
pub const MAX_KEYS: i64 = 10_000;

/// A key of a person for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub person: PersonId,
    pub key: String,
    /// SHA-256 of the request.
    pub request: [u8; 32],
}

/// The reason why a body is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmitReason {
    /// It contains a secret.
    Secret,
    TooLarge,
}

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub headers: Value,
    /// The body, or the reason why it is not stored.
    pub body: Result<Vec<u8>, OmitReason>,
}

/// The result of claiming a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// Execute the request, then call [`store_response`] or [`release_key`] with this id.
    Yours(Uuid),
    /// The request was answered before.
    Completed(StoredResponse),
    /// Another server executes the request, for at most this number of seconds.
    UnderWay(u64),
    /// The key was used for another request.
    Other,
    /// The person has the maximum number of keys. The oldest is deleted in this number of seconds.
    TooMany(u64),
}

#[derive(DerivePartialModel)]
#[sea_orm(entity = "idempotency::Entity")]
struct Row {
    request: Vec<u8>,
    status: Option<i16>,
    headers: Option<Value>,
    body: Option<Vec<u8>>,
    withheld: Option<String>,
    /// Seconds until the claim expires.
    #[sea_orm(from_expr = "Expr::cust(\"extract(epoch FROM claimed_until - now())::float8\")")]
    left: f64,
}

/// Claims a key. One of several concurrent requests gets it.
pub async fn claim_key(connection: &mut PgConnection, key: &Key) -> Result<Claimed, StoreError> {
    let claim = Uuid::new_v4();
    // Takes over a key past its retention, or the expired claim of an equal request.
    let claimed: Option<Uuid> = sqlx::query_scalar(include_str!("statements/claim_key.sql"))
        .bind(key.person.0)
        .bind(&key.key)
        .bind(key.request.as_slice())
        .bind(claim)
        .bind(LEASE.as_secs_f64())
        .bind(RETENTION.as_secs_f64())
        .bind(MAX_KEYS)
        .fetch_optional(&mut *connection)
        .await?;
    if claimed.is_some() {
        return Ok(Claimed::Yours(claim));
    }
    let query = idempotency::Entity::find_by_id((key.person.0, key.key.clone()));
    let row: Option<Row> = query.into_partial_model().one(&orm(connection)).await?;
    let Some(row) = row else { return claim_result_without_row(connection, key.person).await };
    if row.request != key.request {
        return Ok(Claimed::Other);
    }
    let Some(status) = row.status else {
        return Ok(Claimed::UnderWay(row.left.clamp(1.0, 600.0).ceil() as u64));
    };
    let withheld = match row.withheld.as_deref() {
        Some("secret") => OmitReason::Secret,
        _ => OmitReason::TooLarge,
    };
    let headers = row.headers.unwrap_or_default();
    Ok(Claimed::Completed(StoredResponse {
        status: status.unsigned_abs(),
        headers,
        body: row.body.ok_or(withheld),
    }))
}

/// Nothing was claimed and no row exists. Either the person has too many keys, or the key was freed
/// just now and the next attempt gets it.
async fn claim_result_without_row(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<Claimed, StoreError> {
    let (count, left): (i64, Option<f64>) = sqlx::query_as(
        "SELECT count(*), extract(epoch FROM min(claimed_at) + make_interval(secs => $3) - now())::float8 \
         FROM (SELECT claimed_at FROM idempotency WHERE person_id = $1 LIMIT $2) k",
    )
    .bind(person.0)
    .bind(MAX_KEYS)
    .bind(RETENTION.as_secs_f64())
    .fetch_one(connection)
    .await?;
    let left = left.unwrap_or_default().clamp(1.0, RETENTION.as_secs_f64()).ceil() as u64;
    Ok(if count < MAX_KEYS { Claimed::UnderWay(1) } else { Claimed::TooMany(left) })
}

/// Extends a claim by [`LEASE`] from now. `false`: the claim no longer exists.
pub async fn renew_claim(pool: &PgPool, key: &Key, claim: Uuid) -> Result<bool, StoreError> {
    let mut connection = pool.acquire().await?;
    let until = "now() + make_interval(secs => $1)";
    let until = Expr::cust_with_values(until, [LEASE.as_secs_f64()]);
    let renewed = idempotency::Entity::update_many()
        .col_expr(idempotency::Column::ClaimedUntil, until)
        .filter(open_claim(key, claim))
        .exec(&orm(&mut connection))
        .await?;
    Ok(renewed.rows_affected == 1)
}

/// The row of a claim without an answer.
fn open_claim(key: &Key, claim: Uuid) -> Condition {
    Condition::all()
        .add(idempotency::Column::PersonId.eq(key.person.0))
        .add(idempotency::Column::Key.eq(&key.key))
        .add(idempotency::Column::Claim.eq(claim))
        .add(idempotency::Column::Status.is_null())
}

/// Stores the answer of the request with this claim. `false`: the claim no longer exists.
pub async fn store_response(
    connection: &mut PgConnection,
    key: &Key,
    claim: Uuid,
    response: &StoredResponse,
) -> Result<bool, StoreError> {
    let (body, withheld) = match &response.body {
        Ok(body) => (Some(body.clone()), None),
        Err(OmitReason::Secret) => (None, Some("secret")),
        Err(OmitReason::TooLarge) => (None, Some("large")),
    };
    let stored = idempotency::Entity::update_many()
        .col_expr(idempotency::Column::Status, Expr::value(response.status.cast_signed()))
        .col_expr(idempotency::Column::Headers, Expr::value(response.headers.clone()))
        .col_expr(idempotency::Column::Body, Expr::value(body))
        .col_expr(idempotency::Column::Withheld, Expr::value(withheld))
        .filter(open_claim(key, claim))
        .exec(&orm(connection))
        .await?;
    Ok(stored.rows_affected == 1)
}

/// Frees the key of a request that was rejected without an effect.
pub async fn release_key(
    connection: &mut PgConnection,
    key: &Key,
    claim: Uuid,
) -> Result<(), StoreError> {
    let query = idempotency::Entity::delete_many().filter(open_claim(key, claim));
    query.exec(&orm(connection)).await?;
    Ok(())
}

/// Deletes keys past their retention and returns their number, at most [`DELETE_BATCH`].
pub async fn delete_expired_keys(pool: &PgPool) -> Result<u64, StoreError> {
    let deleted = sqlx::query(
        "DELETE FROM idempotency WHERE (person_id, key) IN (SELECT person_id, key FROM idempotency \
         WHERE claimed_at < now() - make_interval(secs => $1) ORDER BY claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(RETENTION.as_secs_f64())
    .bind(DELETE_BATCH)
    .execute(pool)
    .await?;
    Ok(deleted.rows_affected())
}
