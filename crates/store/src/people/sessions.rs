//! Sessions.
//!
//! * A single `UPDATE ... RETURNING` uses a sign-in link, so one of two concurrent requests fails.
//! * The database begins sessions only for the text of a link or the proof of a password. It writes
//!   rows in a person's name only after [`act_as`]; the server's role alone acts for no one.
//!
//! The statement that records the use of a session or token also records the person's visit
//! ([`RECORD_VISIT`]). The visit outlives both and needs no additional write.

use std::time::Duration;

use engine::ids::PersonId;
use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{
    ColumnTrait, Condition, DerivePartialModel, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait as _,
};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::person::{PERSON_COLUMNS, PersonRow, RawPerson, TokenHash};
use super::revoke_sign_in_links;
use crate::StoreError;
use crate::connect::orm;
use crate::entity::session;

/// A valid session with its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub person: PersonRow,
    /// The time since they last proved their identity.
    pub fresh_for: Duration,
    /// Whether this visit should be recorded, because the last record is old enough.
    pub note_due: bool,
    /// The id for requests.
    pub id: Uuid,
    /// Whether it began with a sign-in link.
    pub by_link: bool,
    /// The admin whose link began it, until it sets a password.
    pub link_by: Option<PersonId>,
    /// Whether it still needs its second factor.
    pub lacks_factor: bool,
}

/// The recorded origin of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    pub address: String,
    pub user_agent: String,
}

/// Time limits of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimeouts {
    /// Without a request.
    pub idle: Duration,
    /// In total.
    pub absolute: Duration,
    /// The minimum time between two recorded visits.
    pub visit_interval: Duration,
}

/// Follows a `WITH noted AS (... RETURNING person_id)` and records that person's visit. A
/// concurrent later visit is not overwritten.
pub(crate) const RECORD_VISIT: &str =
    "INSERT INTO visit (person_id, at) SELECT person_id, now() FROM noted
     ON CONFLICT (person_id) DO UPDATE SET at = greatest(visit.at, excluded.at)";

/// The maximum number of sessions per person.
pub const MAX_SESSIONS: i64 = 100;

/// Uses a sign-in link and begins a session. Returns the person and the required steps. `None`: the
/// link does not exist, was used, expired or is revoked, or its person is disabled or a service
/// account.
pub async fn begin_session_by_link(
    db: &mut PgConnection,
    link: &str,
    hash: &TokenHash,
    timeouts: SessionTimeouts,
    client: &Origin,
) -> Result<Option<(PersonId, Vec<String>)>, StoreError> {
    let sql = format!(
        "WITH begun AS (
           SELECT who, asks FROM begin_session_by_link($1, $2, make_interval(secs => $3), make_interval(secs => $4), $5, $6)),
         noted AS (SELECT who AS person_id FROM begun), visited AS ({RECORD_VISIT})
         SELECT who, asks FROM begun"
    );
    let begun: Option<(Uuid, Vec<String>)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(link)
        .bind(hash.as_slice())
        .bind(timeouts.idle.as_secs_f64())
        .bind(timeouts.absolute.as_secs_f64())
        .bind(&client.user_agent)
        .bind(&client.address)
        .fetch_optional(&mut *db)
        .await?;
    let Some((person, required_steps)) = begun else { return Ok(None) };
    end_old_sessions(db, PersonId(person)).await?;
    Ok(Some((PersonId(person), required_steps)))
}

/// Begins a session if `proof`, the Argon2id output of the password, is correct. `false`: it is
/// wrong, or the person is disabled or a service account.
pub async fn begin_session_by_password(
    db: &mut PgConnection,
    person: PersonId,
    proof: &[u8],
    hash: &TokenHash,
    timeouts: SessionTimeouts,
    client: &Origin,
) -> Result<bool, StoreError> {
    let sql = format!(
        "WITH noted AS (
           SELECT $1::uuid AS person_id
           WHERE begin_session_by_password($1, $2, $3, make_interval(secs => $4), make_interval(secs => $5), $6, $7))
         {RECORD_VISIT}"
    );
    let begun = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(person.0)
        .bind(proof)
        .bind(hash.as_slice())
        .bind(timeouts.idle.as_secs_f64())
        .bind(timeouts.absolute.as_secs_f64())
        .bind(&client.user_agent)
        .bind(&client.address)
        .execute(&mut *db)
        .await?;
    if begun.rows_affected() == 0 {
        return Ok(false);
    }
    end_old_sessions(db, person).await?;
    Ok(true)
}

/// Begins a session without proof, which only the database's owner may do. Its second factor counts
/// as verified.
pub async fn insert_session(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    timeouts: SessionTimeouts,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at, by_link, factor_at)
         VALUES ($1, $2, now() + make_interval(secs => $3), now() + make_interval(secs => $4), false, now())",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(timeouts.idle.as_secs_f64())
    .bind(timeouts.absolute.as_secs_f64())
    .execute(db)
    .await?;
    Ok(())
}

/// Removes a person's expired sessions, and the least recently used ones above [`MAX_SESSIONS`].
/// So sessions elsewhere never prevent a sign-in.
async fn end_old_sessions(db: &mut PgConnection, person: PersonId) -> Result<(), StoreError> {
    let now = Expr::current_timestamp;
    let is_expired = Condition::any()
        .add(session::Column::ExpiresAt.into_expr().lte(now()))
        .add(session::Column::IdleExpiresAt.into_expr().lte(now()));
    session::Entity::delete_many()
        .filter(session::Column::PersonId.eq(person.0))
        .filter(is_expired)
        .exec(&orm(db))
        .await?;
    let least_recent = session::Entity::find()
        .filter(session::Column::PersonId.eq(person.0))
        .order_by_desc(session::Column::LastSeenAt)
        .order_by_desc(session::Column::CreatedAt)
        .order_by_asc(session::Column::Id)
        .offset(MAX_SESSIONS.unsigned_abs())
        .select_only()
        .column(session::Column::TokenHash)
        .into_query();
    session::Entity::delete_many()
        .filter(session::Column::TokenHash.in_subquery(least_recent))
        .exec(&orm(db))
        .await?;
    Ok(())
}

/// The maximum number of sessions that one round deletes.
const SESSION_DELETE_BATCH: i64 = 1_000;

/// Deletes a batch of sessions past their absolute limit and returns their number. Sessions past
/// their idle limit stay until then, but are invalid.
pub async fn delete_expired_sessions(pool: &PgPool) -> Result<u64, StoreError> {
    let deleted = sqlx::query(
        "DELETE FROM session WHERE token_hash IN (
           SELECT token_hash FROM session WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(SESSION_DELETE_BATCH)
    .execute(pool)
    .await?;
    Ok(deleted.rows_affected())
}

/// The valid session of a token.
pub async fn session(
    pool: &PgPool,
    hash: &TokenHash,
    timeouts: SessionTimeouts,
) -> Result<Option<SessionRow>, StoreError> {
    let sql = format!(
        "SELECT {PERSON_COLUMNS}, extract(epoch FROM now() - s.fresh_at)::float8 AS fresh,
                s.last_seen_at < now() - make_interval(secs => $2) AS note_due, s.id AS session, s.by_link, s.link_by,
                lacks_factor(s.person_id, s.factor_at) AS lacks_factor
         FROM session s JOIN person p ON p.id = s.person_id
         WHERE s.token_hash = $1 AND s.expires_at > now() AND s.idle_expires_at > now() AND NOT p.disabled"
    );
    let row: Option<RawSession> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(hash.as_slice())
        .bind(timeouts.visit_interval.as_secs_f64())
        .fetch_optional(pool)
        .await?;
    Ok(row.map(|row| SessionRow {
        person: row.person.into(),
        fresh_for: Duration::from_secs_f64(row.fresh.max(0.0)),
        note_due: row.note_due,
        id: row.session,
        by_link: row.by_link,
        link_by: row.link_by.map(PersonId),
        lacks_factor: row.lacks_factor,
    }))
}

#[derive(Debug, sqlx::FromRow)]
struct RawSession {
    #[sqlx(flatten)]
    person: RawPerson,
    fresh: f64,
    note_due: bool,
    session: Uuid,
    by_link: bool,
    link_by: Option<Uuid>,
    lacks_factor: bool,
}

/// Acts for the person of a session or API token until the transaction ends. Returns the person,
/// and whether the session lacks its second factor. `None`: the credential is invalid. The database
/// then rejects rows in any other person's name, and almost everything while the factor is missing.
/// The caller has locked the person ([`lock_person`]).
pub async fn act_as(
    db: &mut PgConnection,
    credential: &str,
) -> Result<Option<(PersonId, bool)>, StoreError> {
    // `acting_pending` reads the row that `act_as` writes.
    let sql = "WITH a AS MATERIALIZED (SELECT act_as($1) AS person)
               SELECT a.person, a.person IS NOT NULL AND acting_pending() FROM a";
    let (person, pending): (Option<Uuid>, bool) =
        sqlx::query_as(sql).bind(credential).fetch_one(db).await?;
    Ok(person.map(|person| (PersonId(person), pending)))
}

/// Records a visit, at most once per `visit_interval`.
pub async fn record_visit(
    pool: &PgPool,
    hash: &TokenHash,
    timeouts: SessionTimeouts,
) -> Result<(), StoreError> {
    let sql = format!(
        "WITH noted AS (
           UPDATE session SET last_seen_at = now(),
                  idle_expires_at = least(expires_at, now() + make_interval(secs => $2))
           WHERE token_hash = $1 AND idle_expires_at > now()
             AND last_seen_at < now() - make_interval(secs => $3)
           RETURNING person_id)
         {RECORD_VISIT}"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(hash.as_slice())
        .bind(timeouts.idle.as_secs_f64())
        .bind(timeouts.visit_interval.as_secs_f64())
        .execute(pool)
        .await?;
    Ok(())
}

/// Ends a session and returns its person.
pub async fn end_session(
    db: &mut PgConnection,
    hash: &TokenHash,
) -> Result<Option<PersonId>, StoreError> {
    let session = session::Entity::delete_by_id(hash.to_vec());
    let ended = session.exec_with_returning(&orm(db)).await?;
    Ok(ended.map(|session| PersonId(session.person_id)))
}

/// Ends all sessions of a person, except the one with the token `except`, and revokes their unused
/// sign-in links. Returns the number of ended sessions.
pub async fn end_all_sessions(
    db: &mut PgConnection,
    person: PersonId,
    except: Option<&TokenHash>,
) -> Result<u64, StoreError> {
    revoke_sign_in_links(db, person).await?;
    let mut query = session::Entity::delete_many().filter(session::Column::PersonId.eq(person.0));
    if let Some(except) = except {
        query = query.filter(session::Column::TokenHash.ne(except.as_slice()));
    }
    Ok(query.exec(&orm(db)).await?.rows_affected)
}

/// A session without its token.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "session::Entity")]
pub struct SessionListRow {
    /// The id for requests.
    pub id: Uuid,
    /// SHA-256 of its token, to recognize the session of the request.
    pub token_hash: Vec<u8>,
    pub created_at: OffsetDateTime,
    pub last_seen_at: OffsetDateTime,
    /// The absolute limit.
    pub expires_at: OffsetDateTime,
    pub user_agent: String,
    pub address: String,
}

/// The valid sessions of a person, newest first.
pub async fn sessions(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<SessionListRow>, StoreError> {
    let rows = session::Entity::find()
        .filter(session::Column::PersonId.eq(person.0))
        .filter(session::Column::ExpiresAt.into_expr().gt(Expr::current_timestamp()))
        .filter(session::Column::IdleExpiresAt.into_expr().gt(Expr::current_timestamp()))
        .order_by_desc(session::Column::CreatedAt)
        .order_by_asc(session::Column::Id)
        .limit(MAX_SESSIONS.unsigned_abs())
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// Ends a session of a person. Returns whether it existed.
pub async fn end_session_by_id(
    connection: &mut PgConnection,
    person: PersonId,
    session_id: Uuid,
) -> Result<bool, StoreError> {
    let ended = session::Entity::delete_many()
        .filter(session::Column::PersonId.eq(person.0))
        .filter(session::Column::Id.eq(session_id))
        .exec(&orm(connection))
        .await?;
    Ok(ended.rows_affected == 1)
}
