//! Accounts: who there is, what they were given, their passwords and their sessions by name.
//!
//! A change of what somebody may takes their row first ([`lock_to_change`]), as whoever counts on it does ([`crate::people::lock_person`]).
//! That somebody is left who may decide about people is the database's own rule.

use std::collections::BTreeSet;

use engine::ids::{DeploymentId, PersonId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::people::{MOST_SESSIONS, TokenHash};

/// A person as a list shows them.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AccountRow {
    /// Who.
    pub id: Uuid,
    /// Short name.
    pub name: String,
    /// [`crate::people::HUMAN`] or [`crate::people::SERVICE`].
    pub kind: String,
    /// Whether they are kept out.
    pub disabled: bool,
    /// Words of what they may everywhere.
    pub permissions: Vec<String>,
    /// The version of what they may, everywhere and in parts of the tree.
    pub grants_version: i32,
    /// Whether they have a password.
    pub password: bool,
    /// When they were last here, in a session or by a token; None: never.
    pub seen: Option<OffsetDateTime>,
    /// Since when they are known.
    pub created_at: OffsetDateTime,
}

/// Which accounts are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FindAccounts {
    /// In their names.
    pub text: String,
    /// Of this kind only.
    pub kind: Option<String>,
    /// Only those who are kept out, or who are not.
    pub disabled: Option<bool>,
    /// From the last name on.
    pub falling: bool,
    /// Behind this name.
    pub after: Option<String>,
}

const ACCOUNT: &str = "p.id, p.name, p.kind, p.disabled, p.permissions, p.grants_version,
    EXISTS (SELECT FROM account a WHERE a.person_id = p.id) AS password,
    (SELECT v.at FROM visit v WHERE v.person_id = p.id) AS seen, p.created_at";

/// Accounts in the order of their names, or from the last one.
///
/// # Errors
/// When the database does not answer.
pub async fn accounts(
    on: &mut PgConnection,
    find: &FindAccounts,
    most: i64,
) -> Result<Vec<AccountRow>, StoreError> {
    let (sign, way) = if find.falling { ("<", "DESC") } else { (">", "ASC") };
    let sql = format!(
        "SELECT {ACCOUNT} FROM person p
         WHERE position($1 IN p.name) > 0 AND ($2::text IS NULL OR p.kind = $2) AND ($3::bool IS NULL OR p.disabled = $3)
           AND ($4::text IS NULL OR p.name {sign} $4)
         ORDER BY p.name {way} LIMIT $5"
    );
    let rows = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(&find.text)
        .bind(&find.kind)
        .bind(find.disabled)
        .bind(&find.after)
        .bind(most)
        .fetch_all(on)
        .await?;
    Ok(rows)
}

/// One account.
///
/// # Errors
/// When the database does not answer.
pub async fn account(
    on: &mut PgConnection,
    id: PersonId,
) -> Result<Option<AccountRow>, StoreError> {
    let sql = format!("SELECT {ACCOUNT} FROM person p WHERE p.id = $1");
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(on).await?)
}

/// A permission that somebody was given in a part of the tree.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct GrantRow {
    /// Whom.
    pub person_id: Uuid,
    /// What.
    pub permission: String,
    /// In which deployment and all below it.
    pub deployment_id: Uuid,
    /// Its name; None: it is gone, and the permission is for nothing.
    pub deployment: Option<String>,
}

/// What these people were given in parts of the tree.
///
/// # Errors
/// When the database does not answer.
pub async fn grants(on: &mut PgConnection, ids: &[PersonId]) -> Result<Vec<GrantRow>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_as(
        "SELECT g.person_id, g.permission, g.deployment_id, CASE WHEN d.removed_in IS NULL THEN d.name END AS deployment
         FROM scoped_grant g JOIN deployment d ON d.id = g.deployment_id
         WHERE g.person_id = ANY($1) ORDER BY g.person_id, d.name, g.permission",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(rows)
}

/// Takes these people's rows, in one order, so that nobody else changes what they may, or counts on it, until this transaction ends.
///
/// # Errors
/// When the database does not answer.
pub async fn lock_to_change(on: &mut PgConnection, ids: &[PersonId]) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    sqlx::query("SELECT FROM person WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE")
        .bind(ids)
        .execute(on)
        .await?;
    Ok(())
}

/// Says what a person may: everywhere, and in parts of the tree besides; that is another version. The caller has their row.
///
/// # Errors
/// When the database does not answer, nobody would be left who may decide about people, or a deployment is none.
pub async fn set_grants(
    on: &mut PgConnection,
    id: PersonId,
    everywhere: &[&str],
    inside: &BTreeSet<(&str, DeploymentId)>,
) -> Result<(), StoreError> {
    // Also where they are the same: this raises the version.
    sqlx::query("UPDATE person SET permissions = $2 WHERE id = $1")
        .bind(id.0)
        .bind(everywhere)
        .execute(&mut *on)
        .await?;
    let (words, places): (Vec<&str>, Vec<Uuid>) =
        inside.iter().map(|(word, place)| (*word, place.0)).unzip();
    sqlx::query(
        "DELETE FROM scoped_grant g WHERE g.person_id = $1
         AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::uuid[]) AS x (w, d) WHERE x.w = g.permission AND x.d = g.deployment_id)",
    )
    .bind(id.0)
    .bind(&words)
    .bind(&places)
    .execute(&mut *on)
    .await?;
    // What is there stays: a deployment that is gone since would be refused as a new one.
    sqlx::query(
        "INSERT INTO scoped_grant (person_id, permission, deployment_id)
         SELECT $1, x.w, x.d FROM unnest($2::text[], $3::uuid[]) AS x (w, d)
         WHERE NOT EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = $1 AND g.permission = x.w AND g.deployment_id = x.d)",
    )
    .bind(id.0)
    .bind(&words)
    .bind(&places)
    .execute(on)
    .await?;
    Ok(())
}

/// A person's password as it is kept, with who they are; None: they have none, are kept out, or are a program.
///
/// # Errors
/// When the database does not answer.
pub async fn password_of_name(
    on: &mut PgConnection,
    name: &str,
) -> Result<Option<(PersonId, String)>, StoreError> {
    let row: Option<(Uuid, String)> = sqlx::query_as(
        "SELECT p.id, a.password_hash FROM person p JOIN account a ON a.person_id = p.id
         WHERE p.name = $1 AND NOT p.disabled AND p.kind = 'human'",
    )
    .bind(name)
    .fetch_optional(on)
    .await?;
    Ok(row.map(|(id, hash)| (PersonId(id), hash)))
}

/// A person's password as it is kept.
///
/// # Errors
/// When the database does not answer.
pub async fn password(on: &mut PgConnection, id: PersonId) -> Result<Option<String>, StoreError> {
    let sql = "SELECT password_hash FROM account WHERE person_id = $1";
    Ok(sqlx::query_scalar(sql).bind(id.0).fetch_optional(on).await?)
}

/// Sets the password of the person that this transaction acts for, if the one before is still this one (None: there is none), and gives
/// their session another token, so that the one before is void. Returns whether it was. `old`: the proof of the password before, without
/// which the session has to be a recent one by a link.
///
/// # Errors
/// When the database does not answer, or the old password is not proven.
pub async fn set_password(
    on: &mut PgConnection,
    before: Option<&str>,
    after: &str,
    old: Option<&[u8]>,
    session: &TokenHash,
) -> Result<bool, StoreError> {
    let set = sqlx::query_scalar("SELECT set_password($1, $2, $3, $4)")
        .bind(before)
        .bind(after)
        .bind(old)
        .bind(session.as_slice())
        .fetch_one(on)
        .await?;
    Ok(set)
}

/// A session, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct OwnSessionRow {
    /// By which it is named.
    pub id: Uuid,
    /// SHA-256 of its token, to tell which one asks.
    pub token_hash: Vec<u8>,
    /// Since when.
    pub created_at: OffsetDateTime,
    /// When it was last used.
    pub last_seen_at: OffsetDateTime,
    /// When it ends at the latest.
    pub expires_at: OffsetDateTime,
    /// What the client calls itself.
    pub user_agent: String,
    /// Where it came from.
    pub address: String,
}

/// A person's sessions that hold, newest first; no more than there may be at once.
///
/// # Errors
/// When the database does not answer.
pub async fn sessions(
    on: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<OwnSessionRow>, StoreError> {
    let rows = sqlx::query_as(
        "SELECT id, token_hash, created_at, last_seen_at, expires_at, user_agent, address FROM session
         WHERE person_id = $1 AND expires_at > now() AND idle_expires_at > now() ORDER BY created_at DESC, id LIMIT $2",
    )
    .bind(person.0)
    .bind(MOST_SESSIONS)
    .fetch_all(on)
    .await?;
    Ok(rows)
}

/// Ends a session of a person; hands back whether there was one.
///
/// # Errors
/// When the database does not answer.
pub async fn end_session_named(
    on: &mut PgConnection,
    person: PersonId,
    session: Uuid,
) -> Result<bool, StoreError> {
    let sql = "DELETE FROM session WHERE person_id = $1 AND id = $2";
    let done = sqlx::query(sql).bind(person.0).bind(session).execute(on).await?;
    Ok(done.rows_affected() == 1)
}

/// A deployment that is there, by name.
///
/// # Errors
/// When the database does not answer.
pub async fn deployment_named(
    on: &mut PgConnection,
    name: &str,
) -> Result<Option<DeploymentId>, StoreError> {
    let sql = "SELECT id FROM deployment WHERE name = $1 AND removed_in IS NULL";
    let id: Option<Uuid> = sqlx::query_scalar(sql).bind(name).fetch_optional(on).await?;
    Ok(id.map(DeploymentId))
}

/// The name of a deployment that is there.
///
/// # Errors
/// When the database does not answer.
pub async fn name_of_deployment(
    on: &mut PgConnection,
    id: DeploymentId,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT name FROM deployment WHERE id = $1 AND removed_in IS NULL";
    Ok(sqlx::query_scalar(sql).bind(id.0).fetch_optional(on).await?)
}

/// The first deployment, above all others; None: there is no genesis yet.
///
/// # Errors
/// When the database does not answer.
pub async fn top(on: &mut PgConnection) -> Result<Option<DeploymentId>, StoreError> {
    let id: Option<Uuid> =
        sqlx::query_scalar("SELECT id FROM deployment WHERE system").fetch_optional(on).await?;
    Ok(id.map(DeploymentId))
}

/// Revokes the one-time sign-ins of a person that nobody has used.
///
/// # Errors
/// When the database does not answer.
pub async fn revoke_sign_ins(on: &mut PgConnection, person: PersonId) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE token SET revoked_at = now()
         WHERE person_id = $1 AND kind = 'sign_in' AND used_at IS NULL AND revoked_at IS NULL",
    )
    .bind(person.0)
    .execute(on)
    .await?;
    Ok(())
}
