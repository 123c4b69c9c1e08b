//! People and how they come in: the rows behind sign-ins and sessions.
//!
//! Theory: nothing here knows a token, only the SHA-256 of one, so that who reads the database can't come in with what it holds.
//! Every moment is the database's own (`now()`), because several servers judge the same session and their clocks differ. A one-time
//! sign-in is spent by a single `UPDATE ... RETURNING`: of two that come at once, one finds it spent. The database begins sessions only for
//! the plain text of a link or the proof of a password, and writes in a person's name only after [`act_as`]: its role alone is nobody. Whether a session still holds
//! is asked of the rows each time and kept nowhere else, so disabling a person works with the next request. The same holds for what they
//! may: everywhere (`person.permissions`) and in parts of the tree (`scoped_grant`), which the database spreads over all below.
//!
//! Whatever notes that a session or a token was used notes in the same statement that its person was here ([`VISITED`]): that outlives both,
//! and takes no write that there would not be anyway.

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

/// What a one-time sign-in asks for that was made to set a password by.
pub const ASKS_PASSWORD: &str = "password";

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
    /// Words of the permissions that they have everywhere.
    pub permissions: Vec<String>,
    /// Words of those that they have in single deployments besides, with all below the ones that they were given for.
    pub inside: BTreeMap<DeploymentId, Vec<String>>,
}

/// The columns of a [`PersonRow`], of a person `p`.
pub(crate) const PERSON: &str = "p.id, p.name, p.kind, p.disabled, p.permissions,
    (SELECT jsonb_object_agg(c.deployment_id, c.words) FROM
      (SELECT deployment_id, jsonb_agg(permission) AS words FROM covered(p.id) GROUP BY deployment_id) c) AS inside";

type Inside = Json<BTreeMap<Uuid, Vec<String>>>;

#[derive(Debug, sqlx::FromRow)]
pub(crate) struct RawPerson {
    id: Uuid,
    name: String,
    kind: String,
    disabled: bool,
    permissions: Vec<String>,
    inside: Option<Inside>,
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

fn spread(inside: Option<Inside>) -> BTreeMap<DeploymentId, Vec<String>> {
    inside
        .map(|Json(inside)| inside)
        .unwrap_or_default()
        .into_iter()
        .map(|(id, words)| (DeploymentId(id), words))
        .collect()
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
    /// By which it is named.
    pub id: Uuid,
    /// Whether it was begun by a one-time sign-in.
    pub by_link: bool,
    /// The admin whose link began it, until a password is set in it.
    pub link_by: Option<PersonId>,
    /// Whether its second factor is still to be presented.
    pub lacks_factor: bool,
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
    let sql = format!("SELECT {PERSON} FROM person p WHERE p.name = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(name).fetch_optional(pool).await?;
    Ok(row.map(PersonRow::from))
}

/// A person.
///
/// # Errors
/// When the database does not answer.
pub async fn person(pool: &PgPool, id: PersonId) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {PERSON} FROM person p WHERE p.id = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(pool).await?;
    Ok(row.map(PersonRow::from))
}

/// Keeps a person out, or lets them in again; hands back whether there is such a person and this changed something.
///
/// # Errors
/// When the database does not answer.
pub async fn set_disabled(
    db: &mut PgConnection,
    id: PersonId,
    disabled: bool,
) -> Result<bool, StoreError> {
    let sql = "UPDATE person SET disabled = $2 WHERE id = $1 AND disabled <> $2";
    let done = sqlx::query(sql).bind(id.0).bind(disabled).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Adds a one-time sign-in. `asks`: what whoever spends it is asked to do ([`ASKS_PASSWORD`]).
///
/// # Errors
/// When the database does not answer.
pub async fn insert_sign_in(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    lifetime: Duration,
    asks: &[&str],
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO token (kind, hash, person_id, expires_at, scopes)
         VALUES ('sign_in', $1, $2, now() + make_interval(secs => $3), $4)",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(lifetime.as_secs_f64())
    .bind(asks)
    .execute(db)
    .await?;
    Ok(())
}

/// Why [`begin_session_by_link`] found nothing to spend. Whoever asks has the token, so the answer tells no stranger anything.
///
/// # Errors
/// When the database does not answer.
pub async fn unspendable(
    db: &mut PgConnection,
    hash: &TokenHash,
) -> Result<Unspendable, StoreError> {
    let sql = "SELECT used_at IS NOT NULL FROM token WHERE hash = $1 AND kind = 'sign_in'";
    let used: Option<bool> =
        sqlx::query_scalar(sql).bind(hash.as_slice()).fetch_optional(db).await?;
    Ok(match used {
        None => Unspendable::Unknown,
        Some(true) => Unspendable::Used,
        Some(false) => Unspendable::Expired,
    })
}

/// Behind a `WITH noted AS (... RETURNING person_id)`: that person was here. An earlier moment, of who came first and wrote last, changes nothing.
pub(crate) const VISITED: &str =
    "INSERT INTO visit (person_id, at) SELECT person_id, now() FROM noted
     ON CONFLICT (person_id) DO UPDATE SET at = greatest(visit.at, excluded.at)";

/// Most sessions of a person at once.
pub const MOST_SESSIONS: i64 = 100;

/// Spends a one-time sign-in, whose plain text proves it, and begins a session; returns its person and what the link asks for. None:
/// there is no such link, it was used, has expired or is revoked, or its person is disabled or a program.
///
/// # Errors
/// When the database does not answer.
pub async fn begin_session_by_link(
    db: &mut PgConnection,
    link: &str,
    hash: &TokenHash,
    times: SessionTimes,
    origin: &Origin,
) -> Result<Option<(PersonId, Vec<String>)>, StoreError> {
    let sql = format!(
        "WITH begun AS (
           SELECT who, asks FROM begin_session_by_link($1, $2, make_interval(secs => $3), make_interval(secs => $4), $5, $6)),
         noted AS (SELECT who AS person_id FROM begun), visited AS ({VISITED})
         SELECT who, asks FROM begun"
    );
    let begun: Option<(Uuid, Vec<String>)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(link)
        .bind(hash.as_slice())
        .bind(times.idle.as_secs_f64())
        .bind(times.absolute.as_secs_f64())
        .bind(&origin.user_agent)
        .bind(&origin.address)
        .fetch_optional(&mut *db)
        .await?;
    let Some((person, asks)) = begun else { return Ok(None) };
    end_old_sessions(db, PersonId(person)).await?;
    Ok(Some((PersonId(person), asks)))
}

/// Begins a session of a person whose password is proven by its Argon2id output; false: it is not, or they are disabled or a program.
///
/// # Errors
/// When the database does not answer.
pub async fn begin_session_by_password(
    db: &mut PgConnection,
    person: PersonId,
    proof: &[u8],
    hash: &TokenHash,
    times: SessionTimes,
    origin: &Origin,
) -> Result<bool, StoreError> {
    let sql = format!(
        "WITH noted AS (
           SELECT $1::uuid AS person_id
           WHERE begin_session_by_password($1, $2, $3, make_interval(secs => $4), make_interval(secs => $5), $6, $7))
         {VISITED}"
    );
    let begun = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(person.0)
        .bind(proof)
        .bind(hash.as_slice())
        .bind(times.idle.as_secs_f64())
        .bind(times.absolute.as_secs_f64())
        .bind(&origin.user_agent)
        .bind(&origin.address)
        .execute(&mut *db)
        .await?;
    if begun.rows_affected() == 0 {
        return Ok(false);
    }
    end_old_sessions(db, person).await?;
    Ok(true)
}

/// Begins a session without any proof, which only the database's owner may. It counts as one that presented a second factor.
///
/// # Errors
/// When the database does not answer, or the connection is not the owner's.
pub async fn insert_session(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    times: SessionTimes,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at, by_link, factor_at)
         VALUES ($1, $2, now() + make_interval(secs => $3), now() + make_interval(secs => $4), false, now())",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(times.idle.as_secs_f64())
    .bind(times.absolute.as_secs_f64())
    .execute(db)
    .await?;
    Ok(())
}

/// Removes a person's sessions that have ended, and the least recently used ones beyond [`MOST_SESSIONS`]: a sign-in is never refused
/// because of sessions elsewhere.
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
    .bind(MOST_SESSIONS)
    .execute(db)
    .await?;
    Ok(())
}

/// Sessions that one round forgets.
const SESSIONS: i64 = 1_000;

/// Forgets sessions whose time is over, a batch of them; says how many. One that ended by not being used stays until then: it lets nobody
/// in.
///
/// # Errors
/// When the database does not answer.
pub async fn forget_sessions(pool: &PgPool) -> Result<u64, StoreError> {
    let gone = sqlx::query(
        "DELETE FROM session WHERE token_hash IN (
           SELECT token_hash FROM session WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(SESSIONS)
    .execute(pool)
    .await?;
    Ok(gone.rows_affected())
}

/// The session of a token, if it holds.
///
/// # Errors
/// When the database does not answer.
pub async fn session(
    pool: &PgPool,
    hash: &TokenHash,
    times: SessionTimes,
) -> Result<Option<SessionRow>, StoreError> {
    let sql = format!(
        "SELECT {PERSON}, extract(epoch FROM now() - s.fresh_at)::float8 AS fresh,
                s.last_seen_at < now() - make_interval(secs => $2) AS note_due, s.id AS session, s.by_link, s.link_by,
                lacks_factor(s.person_id, s.factor_at) AS lacks_factor
         FROM session s JOIN person p ON p.id = s.person_id
         WHERE s.token_hash = $1 AND s.expires_at > now() AND s.idle_expires_at > now() AND NOT p.disabled"
    );
    let row: Option<RawSession> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(hash.as_slice())
        .bind(times.note_every.as_secs_f64())
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

/// A person who is let in, as they are until this transaction ends: nobody changes or disables them meanwhile.
///
/// # Errors
/// When the database does not answer.
pub async fn lock_person(
    db: &mut PgConnection,
    id: PersonId,
) -> Result<Option<PersonRow>, StoreError> {
    let sql = "SELECT 1 FROM person WHERE id = $1 AND NOT disabled FOR SHARE";
    let found: Option<i32> = sqlx::query_scalar(sql).bind(id.0).fetch_optional(&mut *db).await?;
    if found.is_none() {
        return Ok(None);
    }
    // By a statement of its own: what they were given in parts of the tree may have changed while the first one waited for the row.
    let sql = format!("SELECT {PERSON} FROM person p WHERE p.id = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(db).await?;
    Ok(row.map(PersonRow::from))
}

/// Acts for the person of a session or API token until this transaction ends, and whether the session lacks its second factor; None: the
/// credential is not valid (any more). The database refuses what this transaction writes in anybody else's name, and almost everything
/// while the factor is missing. The caller has the person's row ([`lock_person`]).
///
/// # Errors
/// When the database does not answer.
pub async fn act_as(
    db: &mut PgConnection,
    credential: &str,
) -> Result<Option<(PersonId, bool)>, StoreError> {
    // The second function reads what the first one wrote.
    let sql = "WITH a AS MATERIALIZED (SELECT act_as($1) AS person)
               SELECT a.person, a.person IS NOT NULL AND acting_pending() FROM a";
    let (person, pending): (Option<Uuid>, bool) =
        sqlx::query_as(sql).bind(credential).fetch_one(db).await?;
    Ok(person.map(|person| (PersonId(person), pending)))
}

/// Notes a visit, unless somebody noted one within `note_every`.
///
/// # Errors
/// When the database does not answer.
pub async fn note_visit(
    pool: &PgPool,
    hash: &TokenHash,
    times: SessionTimes,
) -> Result<(), StoreError> {
    let sql = format!(
        "WITH noted AS (
           UPDATE session SET last_seen_at = now(),
                  idle_expires_at = least(expires_at, now() + make_interval(secs => $2))
           WHERE token_hash = $1 AND idle_expires_at > now()
             AND last_seen_at < now() - make_interval(secs => $3)
           RETURNING person_id)
         {VISITED}"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql))
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

/// Ends every session of a person but one, if one is named, and revokes the sign-ins they have not used; hands back how many sessions
/// ended.
///
/// # Errors
/// When the database does not answer.
pub async fn end_everything_of(
    db: &mut PgConnection,
    person: PersonId,
    but: Option<&TokenHash>,
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
            .bind(but.map(<[u8; 32]>::as_slice))
            .execute(db)
            .await?;
    Ok(ended.rows_affected())
}

tokio::task_local! {
    static TOKEN: Uuid;
}

/// Does something that was asked for by a token: whatever is audited meanwhile names it.
pub async fn by_token<W: Future>(token: Uuid, work: W) -> W::Output {
    TOKEN.scope(token, work).await
}

/// What is written down of a person: with the token that they came by, if it was one.
pub(crate) fn with_token(mut detail: Value) -> Value {
    if let (Ok(token), Some(object)) = (TOKEN.try_get(), detail.as_object_mut()) {
        object.insert("by_token".into(), token.to_string().into());
    }
    detail
}

/// Writes down who did what, and by which token if it was by one. `detail` holds no secret: audit rows are kept for ever and exported.
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
    let detail = match actor {
        Some(_) => with_token(detail.clone()),
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
