//! People and how they come in: the rows behind sign-ins and sessions.
//!
//! Theory: nothing here knows a token, only the SHA-256 of one, so that who reads the database can't come in with what it holds.
//! Every moment is the database's own (`now()`), because several servers judge the same session and their clocks differ. A one-time
//! sign-in is spent by a single `UPDATE ... RETURNING`: of two that come at once, one finds it spent. Whether a session still holds
//! is asked of the rows each time and kept nowhere else, so disabling a person works with the next request.

use std::time::Duration;

use engine::ids::PersonId;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StoreError;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Kinds of persons, as the database calls them.
pub const HUMAN: &str = "human";
/// A service account.
pub const SERVICE: &str = "service";

/// A person's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    /// Who.
    pub id: PersonId,
    /// Short name; unique.
    pub name: String,
    /// [`HUMAN`] or [`SERVICE`].
    pub kind: String,
    /// Whether they are kept out.
    pub disabled: bool,
    /// Words of permissions.
    pub permissions: Vec<String>,
}

/// A session that holds, with whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Whose.
    pub person: PersonRow,
    /// How long ago they proved who they are.
    pub fresh_for: Duration,
    /// Whether the last visit was noted long enough ago to note this one.
    pub note_due: bool,
}

/// What is noted about where a session comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub address: String,
    /// What it calls itself.
    pub user_agent: String,
}

/// How long sessions last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    /// Without a visit.
    pub idle: Duration,
    /// In all.
    pub absolute: Duration,
    /// Visits are noted no more often.
    pub note_every: Duration,
}

/// Why a sign-in can't be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unspendable {
    /// There never was one like it.
    Unknown,
    /// Somebody spent it.
    Used,
    /// It is too old, or was taken back.
    Expired,
}

type PersonTuple = (Uuid, String, String, bool, Vec<String>);
type SessionTuple = (Uuid, String, String, bool, Vec<String>, f64, bool);

fn person_row((id, name, kind, disabled, permissions): PersonTuple) -> PersonRow {
    PersonRow { id: PersonId(id), name, kind, disabled, permissions }
}

/// Adds a person; None when the name is taken.
///
/// # Errors
/// When the database does not answer or refuses the name.
pub async fn insert_person(
    db: &mut PgConnection,
    name: &str,
    kind: &str,
    permissions: &[&str],
) -> Result<Option<PersonId>, StoreError> {
    let id: Option<Uuid> = sqlx::query_scalar(
        "INSERT INTO person (name, kind, permissions) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING RETURNING id",
    )
    .bind(name)
    .bind(kind)
    .bind(permissions)
    .fetch_optional(db)
    .await?;
    Ok(id.map(PersonId))
}

/// A person by name.
///
/// # Errors
/// When the database does not answer.
pub async fn person_by_name(pool: &PgPool, name: &str) -> Result<Option<PersonRow>, StoreError> {
    let sql = "SELECT id, name, kind, disabled, permissions FROM person WHERE name = $1";
    let row: Option<PersonTuple> = sqlx::query_as(sql).bind(name).fetch_optional(pool).await?;
    Ok(row.map(person_row))
}

/// A person.
///
/// # Errors
/// When the database does not answer.
pub async fn person(pool: &PgPool, id: PersonId) -> Result<Option<PersonRow>, StoreError> {
    let sql = "SELECT id, name, kind, disabled, permissions FROM person WHERE id = $1";
    let row: Option<PersonTuple> = sqlx::query_as(sql).bind(id.0).fetch_optional(pool).await?;
    Ok(row.map(person_row))
}

/// Keeps a person out, or lets them in again; hands back whether there is such a person and this changed something.
///
/// # Errors
/// When the database does not answer.
pub async fn set_disabled(db: &mut PgConnection, id: PersonId, disabled: bool) -> Result<bool, StoreError> {
    let sql = "UPDATE person SET disabled = $2 WHERE id = $1 AND disabled <> $2";
    let done = sqlx::query(sql).bind(id.0).bind(disabled).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Adds a one-time sign-in.
///
/// # Errors
/// When the database does not answer.
pub async fn insert_sign_in(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    lifetime: Duration,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO token (kind, hash, person_id, expires_at)
         VALUES ('sign_in', $1, $2, now() + make_interval(secs => $3))",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(lifetime.as_secs_f64())
    .execute(db)
    .await?;
    Ok(())
}

/// Spends a one-time sign-in; None when there is none, it was used, has expired or is revoked, or its person is disabled.
///
/// # Errors
/// When the database does not answer.
pub async fn claim_sign_in(db: &mut PgConnection, hash: &TokenHash) -> Result<Option<PersonId>, StoreError> {
    let person: Option<Uuid> = sqlx::query_scalar(
        "UPDATE token t SET used_at = now() FROM person p
         WHERE t.hash = $1 AND t.kind = 'sign_in' AND t.used_at IS NULL AND t.revoked_at IS NULL
           AND t.expires_at > now() AND p.id = t.person_id AND NOT p.disabled
         RETURNING p.id",
    )
    .bind(hash.as_slice())
    .fetch_optional(db)
    .await?;
    Ok(person.map(PersonId))
}

/// Why [`claim_sign_in`] found nothing to spend. Whoever asks has the token, so the answer tells no stranger anything.
///
/// # Errors
/// When the database does not answer.
pub async fn unspendable(db: &mut PgConnection, hash: &TokenHash) -> Result<Unspendable, StoreError> {
    let sql = "SELECT used_at IS NOT NULL FROM token WHERE hash = $1 AND kind = 'sign_in'";
    let used: Option<bool> = sqlx::query_scalar(sql).bind(hash.as_slice()).fetch_optional(db).await?;
    Ok(match used {
        None => Unspendable::Unknown,
        Some(true) => Unspendable::Used,
        Some(false) => Unspendable::Expired,
    })
}

/// Begins a session, and forgets those of the same person that have ended.
///
/// # Errors
/// When the database does not answer.
pub async fn insert_session(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    times: SessionTimes,
    origin: &Origin,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM session WHERE person_id = $1 AND (expires_at <= now() OR idle_expires_at <= now())")
        .bind(person.0)
        .execute(&mut *db)
        .await?;
    sqlx::query(
        "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at, user_agent, address)
         VALUES ($1, $2, now() + make_interval(secs => $3), now() + make_interval(secs => $4), $5, $6)",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(times.idle.as_secs_f64())
    .bind(times.absolute.as_secs_f64())
    .bind(&origin.user_agent)
    .bind(&origin.address)
    .execute(db)
    .await?;
    Ok(())
}

/// The session of a token, if it holds.
///
/// # Errors
/// When the database does not answer.
pub async fn session(pool: &PgPool, hash: &TokenHash, times: SessionTimes) -> Result<Option<SessionRow>, StoreError> {
    let row: Option<SessionTuple> = sqlx::query_as(
        "SELECT p.id, p.name, p.kind, p.disabled, p.permissions,
                extract(epoch FROM now() - s.fresh_at)::float8,
                s.last_seen_at < now() - make_interval(secs => $2)
         FROM session s JOIN person p ON p.id = s.person_id
         WHERE s.token_hash = $1 AND s.expires_at > now() AND s.idle_expires_at > now() AND NOT p.disabled",
    )
    .bind(hash.as_slice())
    .bind(times.note_every.as_secs_f64())
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|(id, name, kind, disabled, permissions, fresh, note_due)| SessionRow {
        person: person_row((id, name, kind, disabled, permissions)),
        fresh_for: Duration::from_secs_f64(fresh.max(0.0)),
        note_due,
    }))
}

/// A person who is let in, as they are until this transaction ends: nobody changes or disables them meanwhile.
///
/// # Errors
/// When the database does not answer.
pub async fn lock_person(db: &mut PgConnection, id: PersonId) -> Result<Option<PersonRow>, StoreError> {
    let sql = "SELECT id, name, kind, disabled, permissions FROM person WHERE id = $1 AND NOT disabled FOR SHARE";
    let row: Option<PersonTuple> = sqlx::query_as(sql).bind(id.0).fetch_optional(db).await?;
    Ok(row.map(person_row))
}

/// Whether a session holds, and then it does until this transaction ends.
///
/// # Errors
/// When the database does not answer.
pub async fn lock_session(db: &mut PgConnection, hash: &TokenHash) -> Result<bool, StoreError> {
    let sql =
        "SELECT 1 FROM session WHERE token_hash = $1 AND expires_at > now() AND idle_expires_at > now() FOR SHARE";
    let row: Option<i32> = sqlx::query_scalar(sql).bind(hash.as_slice()).fetch_optional(db).await?;
    Ok(row.is_some())
}

/// Notes a visit, unless somebody noted one within `note_every`.
///
/// # Errors
/// When the database does not answer.
pub async fn note_visit(pool: &PgPool, hash: &TokenHash, times: SessionTimes) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE session SET last_seen_at = now(),
                idle_expires_at = least(expires_at, now() + make_interval(secs => $2))
         WHERE token_hash = $1 AND idle_expires_at > now()
           AND last_seen_at < now() - make_interval(secs => $3)",
    )
    .bind(hash.as_slice())
    .bind(times.idle.as_secs_f64())
    .bind(times.note_every.as_secs_f64())
    .execute(pool)
    .await?;
    Ok(())
}

/// Ends a session; hands back whose it was, if there was one.
///
/// # Errors
/// When the database does not answer.
pub async fn end_session(db: &mut PgConnection, hash: &TokenHash) -> Result<Option<PersonId>, StoreError> {
    let person: Option<Uuid> = sqlx::query_scalar("DELETE FROM session WHERE token_hash = $1 RETURNING person_id")
        .bind(hash.as_slice())
        .fetch_optional(db)
        .await?;
    Ok(person.map(PersonId))
}

/// Ends every session of a person and revokes the sign-ins they have not used; hands back how many sessions ended.
///
/// # Errors
/// When the database does not answer.
pub async fn end_everything_of(db: &mut PgConnection, person: PersonId) -> Result<u64, StoreError> {
    sqlx::query(
        "UPDATE token SET revoked_at = now()
         WHERE person_id = $1 AND kind = 'sign_in' AND used_at IS NULL AND revoked_at IS NULL",
    )
    .bind(person.0)
    .execute(&mut *db)
    .await?;
    let ended = sqlx::query("DELETE FROM session WHERE person_id = $1").bind(person.0).execute(db).await?;
    Ok(ended.rows_affected())
}

/// Writes down who did what. `detail` holds no secret: audit rows are kept for ever and exported.
///
/// # Errors
/// When the database does not answer.
pub async fn append_audit(
    db: &mut PgConnection,
    actor: Option<PersonId>,
    action: &str,
    subject: &str,
    detail: &Value,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO audit (actor, action, subject, detail) VALUES ($1, $2, $3, $4)")
        .bind(actor.map(|person| person.0))
        .bind(action)
        .bind(subject)
        .bind(detail)
        .execute(db)
        .await?;
    Ok(())
}
