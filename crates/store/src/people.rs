//! People, sign-in links and sessions.
//!
//! * This module handles only the SHA-256 of a token, so the database's content does not allow
//!   anyone to sign in.
//! * All times are the database's (`now()`), because several servers check the same session and
//!   their clocks differ.
//! * A single `UPDATE ... RETURNING` uses a sign-in link, so one of two concurrent requests fails.
//! * The database begins sessions only for the text of a link or the proof of a password. It writes
//!   rows in a person's name only after [`act_as`]; the server's role alone acts for no one.
//! * Each request checks the rows of its session and its person, without a cache. So disabling a
//!   person takes effect on the next request. The same applies to permissions, everywhere
//!   (`person.permissions`) and in parts of the tree (`scoped_grant`, which includes descendants).
//!
//! The statement that records the use of a session or token also records the person's visit
//! ([`RECORD_VISIT`]). The visit outlives both and needs no additional write.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ids::{DeploymentId, PersonId};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StoreError;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// The purpose of a sign-in link that is made to set a password.
pub const REQUIRES_PASSWORD: &str = "password";

/// A kind of person, as stored in the database.
pub const HUMAN: &str = "human";
/// A service account, as stored in the database.
pub const SERVICE: &str = "service";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    pub id: PersonId,
    /// Unique.
    pub name: String,
    /// [`HUMAN`] or [`SERVICE`].
    pub kind: String,
    pub disabled: bool,
    /// Permissions in the whole tree.
    pub permissions: Vec<String>,
    /// Additional permissions per deployment, with the descendants of each scoped grant.
    pub inside: BTreeMap<DeploymentId, Vec<String>>,
}

/// The columns of a [`PersonRow`], for a person `p`.
pub(crate) const PERSON_COLUMNS: &str = "p.id, p.name, p.kind, p.disabled, p.permissions,
    (SELECT jsonb_object_agg(c.deployment_id, c.words) FROM
      (SELECT deployment_id, jsonb_agg(permission) AS words FROM covered(p.id) GROUP BY deployment_id) c) AS inside";

type ScopedPermissions = Json<BTreeMap<Uuid, Vec<String>>>;

#[derive(Debug, sqlx::FromRow)]
pub(crate) struct RawPerson {
    id: Uuid,
    name: String,
    kind: String,
    disabled: bool,
    permissions: Vec<String>,
    inside: Option<ScopedPermissions>,
}

impl From<RawPerson> for PersonRow {
    fn from(raw: RawPerson) -> Self {
        Self {
            id: PersonId(raw.id),
            name: raw.name,
            kind: raw.kind,
            disabled: raw.disabled,
            permissions: raw.permissions,
            inside: spread(raw.inside),
        }
    }
}

fn spread(inside: Option<ScopedPermissions>) -> BTreeMap<DeploymentId, Vec<String>> {
    inside
        .map(|Json(inside)| inside)
        .unwrap_or_default()
        .into_iter()
        .map(|(id, words)| (DeploymentId(id), words))
        .collect()
}

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

/// The reason why a sign-in link cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// It does not exist.
    Unknown,
    /// It was used before.
    Used,
    /// It is too old or revoked.
    Expired,
}

/// Inserts a person. `None`: the name is taken.
///
/// # Errors
///
/// The name is invalid or reserved, or the database fails.
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

pub async fn person_by_name(pool: &PgPool, name: &str) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {PERSON_COLUMNS} FROM person p WHERE p.name = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(name).fetch_optional(pool).await?;
    Ok(row.map(PersonRow::from))
}

pub async fn person(pool: &PgPool, id: PersonId) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {PERSON_COLUMNS} FROM person p WHERE p.id = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(pool).await?;
    Ok(row.map(PersonRow::from))
}

/// Disables or enables a person. `false`: there is no such person, or nothing changed.
pub async fn set_disabled(
    db: &mut PgConnection,
    id: PersonId,
    disabled: bool,
) -> Result<bool, StoreError> {
    let sql = "UPDATE person SET disabled = $2 WHERE id = $1 AND disabled <> $2";
    let done = sqlx::query(sql).bind(id.0).bind(disabled).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Inserts a sign-in link. `required_steps` lists the steps required after its use
/// ([`REQUIRES_PASSWORD`]).
pub async fn insert_sign_in_link(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    lifetime: Duration,
    required_steps: &[&str],
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO token (kind, hash, person_id, expires_at, scopes)
         VALUES ('sign_in', $1, $2, now() + make_interval(secs => $3), $4)",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(lifetime.as_secs_f64())
    .bind(required_steps)
    .execute(db)
    .await?;
    Ok(())
}

/// The reason why [`begin_session_by_link`] found no valid link. The client has the link's token,
/// so the answer reveals nothing to others.
pub async fn link_error(db: &mut PgConnection, hash: &TokenHash) -> Result<LinkError, StoreError> {
    let sql = "SELECT used_at IS NOT NULL FROM token WHERE hash = $1 AND kind = 'sign_in'";
    let used: Option<bool> =
        sqlx::query_scalar(sql).bind(hash.as_slice()).fetch_optional(db).await?;
    Ok(match used {
        None => LinkError::Unknown,
        Some(true) => LinkError::Used,
        Some(false) => LinkError::Expired,
    })
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
    sqlx::query("DELETE FROM session WHERE person_id = $1 AND (expires_at <= now() OR idle_expires_at <= now())")
        .bind(person.0)
        .execute(&mut *db)
        .await?;
    sqlx::query(
        "DELETE FROM session WHERE token_hash IN (
           SELECT token_hash FROM session WHERE person_id = $1 ORDER BY last_seen_at DESC, created_at DESC, id OFFSET $2)",
    )
    .bind(person.0)
    .bind(MAX_SESSIONS)
    .execute(db)
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

/// Locks an enabled person, whom no other transaction can change or disable until this one ends.
pub async fn lock_person(
    db: &mut PgConnection,
    id: PersonId,
) -> Result<Option<PersonRow>, StoreError> {
    let sql = "SELECT 1 FROM person WHERE id = $1 AND NOT disabled FOR SHARE";
    let found: Option<i32> = sqlx::query_scalar(sql).bind(id.0).fetch_optional(&mut *db).await?;
    if found.is_none() {
        return Ok(None);
    }
    // A statement of its own, because scoped grants may have changed while the first one waited for
    // the lock.
    let sql = format!("SELECT {PERSON_COLUMNS} FROM person p WHERE p.id = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(db).await?;
    Ok(row.map(PersonRow::from))
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
    let person: Option<Uuid> =
        sqlx::query_scalar("DELETE FROM session WHERE token_hash = $1 RETURNING person_id")
            .bind(hash.as_slice())
            .fetch_optional(db)
            .await?;
    Ok(person.map(PersonId))
}

/// Ends all sessions of a person except `but`, and revokes their unused sign-in links. Returns the
/// number of ended sessions.
pub async fn end_all_sessions(
    db: &mut PgConnection,
    person: PersonId,
    except: Option<&TokenHash>,
) -> Result<u64, StoreError> {
    sqlx::query(
        "UPDATE token SET revoked_at = now()
         WHERE person_id = $1 AND kind = 'sign_in' AND used_at IS NULL AND revoked_at IS NULL",
    )
    .bind(person.0)
    .execute(&mut *db)
    .await?;
    let ended =
        sqlx::query("DELETE FROM session WHERE person_id = $1 AND token_hash IS DISTINCT FROM $2")
            .bind(person.0)
            .bind(except.map(<[u8; 32]>::as_slice))
            .execute(db)
            .await?;
    Ok(ended.rows_affected())
}

tokio::task_local! {
    static TOKEN: Uuid;
}

/// Runs a future on behalf of an API token, which all audit rows of the future name.
pub async fn run_with_token<W: Future>(token: Uuid, future: W) -> W::Output {
    TOKEN.scope(token, future).await
}

/// Adds the API token of the request, if any, to the detail of an audit row.
pub(crate) fn add_token(mut detail: Value) -> Value {
    if let (Ok(token), Some(object)) = (TOKEN.try_get(), detail.as_object_mut()) {
        object.insert("by_token".into(), token.to_string().into());
    }
    detail
}

/// Appends an audit row with the actor and the API token, if any. `detail` must not contain a
/// secret: audit rows are permanent and exported.
pub async fn append_audit(
    db: &mut PgConnection,
    actor: Option<PersonId>,
    action: &str,
    subject: &str,
    detail: &Value,
) -> Result<(), StoreError> {
    let detail = match actor {
        Some(_) => add_token(detail.clone()),
        None => detail.clone(),
    };
    sqlx::query("INSERT INTO audit (actor, action, subject, detail) VALUES ($1, $2, $3, $4)")
        .bind(actor.map(|person| person.0))
        .bind(action)
        .bind(subject)
        .bind(detail)
        .execute(db)
        .await?;
    Ok(())
}
