//! Accounts: people, their grants, their passwords and their sessions.
//!
//! To change a person's permissions, a transaction first locks the person's row
//! ([`lock_people`]). Permission checks lock it too ([`crate::people::lock_person`]). The
//! database itself ensures that an admin remains.

use std::collections::BTreeSet;

use engine::ids::{DeploymentId, PersonId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::people::TokenHash;

/// A person in a list.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AccountRow {
    pub id: Uuid,
    pub name: String,
    /// [`crate::people::HUMAN`] or [`crate::people::SERVICE`].
    pub kind: String,
    pub disabled: bool,
    /// Permissions in the whole tree.
    pub permissions: Vec<String>,
    /// The version of all permissions, scoped grants included.
    pub grants_version: i32,
    /// Whether they have a password.
    pub password: bool,
    /// The last request, with a session or a token. `None`: never.
    pub seen: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

/// A search for accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountListQuery {
    /// Text in the name.
    pub text: String,
    pub kind: Option<String>,
    pub disabled: Option<bool>,
    /// Descending order.
    pub descending: bool,
    /// Only names after this one.
    pub after: Option<String>,
}

const ACCOUNT: &str = "p.id, p.name, p.kind, p.disabled, p.permissions, p.grants_version,
    EXISTS (SELECT FROM account a WHERE a.person_id = p.id) AS password,
    (SELECT v.at FROM visit v WHERE v.person_id = p.id) AS seen, p.created_at";

/// Accounts ordered by name.
pub async fn accounts(
    connection: &mut PgConnection,
    find: &AccountListQuery,
    limit: i64,
) -> Result<Vec<AccountRow>, StoreError> {
    let (sign, direction) = if find.descending { ("<", "DESC") } else { (">", "ASC") };
    let sql = format!(
        "SELECT {ACCOUNT} FROM person p
         WHERE position($1 IN p.name) > 0 AND ($2::text IS NULL OR p.kind = $2) AND ($3::bool IS NULL OR p.disabled = $3)
           AND ($4::text IS NULL OR p.name {sign} $4)
         ORDER BY p.name {direction} LIMIT $5"
    );
    let rows = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(&find.text)
        .bind(&find.kind)
        .bind(find.disabled)
        .bind(&find.after)
        .bind(limit)
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

pub async fn account(
    connection: &mut PgConnection,
    id: PersonId,
) -> Result<Option<AccountRow>, StoreError> {
    let sql = format!("SELECT {ACCOUNT} FROM person p WHERE p.id = $1");
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(connection).await?)
}

/// A permission in a part of the tree.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct GrantRow {
    pub person_id: Uuid,
    pub permission: String,
    /// The deployment with all descendants.
    pub deployment_id: Uuid,
    /// `None`: the deployment is removed, and the grant has no effect.
    pub deployment: Option<String>,
}

/// The scoped grants of these people.
pub async fn grants(
    connection: &mut PgConnection,
    ids: &[PersonId],
) -> Result<Vec<GrantRow>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_as(
        "SELECT g.person_id, g.permission, g.deployment_id, CASE WHEN d.removed_in IS NULL THEN d.name END AS deployment
         FROM scoped_grant g JOIN deployment d ON d.id = g.deployment_id
         WHERE g.person_id = ANY($1) ORDER BY g.person_id, d.name, g.permission",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// Locks the rows of these people in one order. No other transaction can change or check their
/// permissions until this one ends.
pub async fn lock_people(
    connection: &mut PgConnection,
    ids: &[PersonId],
) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    sqlx::query("SELECT FROM person WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE")
        .bind(ids)
        .execute(connection)
        .await?;
    Ok(())
}

/// Sets the permissions of a person, everywhere and in parts of the tree, and raises their version.
/// The caller has locked the person.
///
/// # Errors
///
/// No admin would be left, or a deployment does not exist.
pub async fn set_grants(
    connection: &mut PgConnection,
    id: PersonId,
    global: &[&str],
    scoped: &BTreeSet<(&str, DeploymentId)>,
) -> Result<(), StoreError> {
    // Also for equal permissions: the update raises the version.
    sqlx::query("UPDATE person SET permissions = $2 WHERE id = $1")
        .bind(id.0)
        .bind(global)
        .execute(&mut *connection)
        .await?;
    let (words, deployments): (Vec<&str>, Vec<Uuid>) =
        scoped.iter().map(|(word, place)| (*word, place.0)).unzip();
    sqlx::query(
        "DELETE FROM scoped_grant g WHERE g.person_id = $1
         AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::uuid[]) AS x (w, d) WHERE x.w = g.permission AND x.d = g.deployment_id)",
    )
    .bind(id.0)
    .bind(&words)
    .bind(&deployments)
    .execute(&mut *connection)
    .await?;
    // Existing grants stay. The guard would reject a new grant for a removed deployment.
    sqlx::query(
        "INSERT INTO scoped_grant (person_id, permission, deployment_id)
         SELECT $1, x.w, x.d FROM unnest($2::text[], $3::uuid[]) AS x (w, d)
         WHERE NOT EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = $1 AND g.permission = x.w AND g.deployment_id = x.d)",
    )
    .bind(id.0)
    .bind(&words)
    .bind(&deployments)
    .execute(connection)
    .await?;
    Ok(())
}

/// The stored password of a person. `None`: they have no password, are disabled or are a service
/// account.
pub async fn password_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<(PersonId, String)>, StoreError> {
    let row: Option<(Uuid, String)> = sqlx::query_as(
        "SELECT p.id, a.password_hash FROM person p JOIN account a ON a.person_id = p.id
         WHERE p.name = $1 AND NOT p.disabled AND p.kind = 'human'",
    )
    .bind(name)
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|(id, hash)| (PersonId(id), hash)))
}

/// The stored password of a person.
pub async fn password(
    connection: &mut PgConnection,
    id: PersonId,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT password_hash FROM account WHERE person_id = $1";
    Ok(sqlx::query_scalar(sql).bind(id.0).fetch_optional(connection).await?)
}

/// Sets the password of the acting person, if the stored one still equals `current_hash` (`None`:
/// no password yet). It also replaces the token of their session, which voids the old token.
/// Returns whether the password was set. `old` is the proof of the old password; without it, the
/// session must have begun with a link recently.
///
/// # Errors
///
/// The proof of the old password is missing or wrong.
pub async fn set_password(
    connection: &mut PgConnection,
    current_hash: Option<&str>,
    after: &str,
    proof: Option<&[u8]>,
    session: &TokenHash,
) -> Result<bool, StoreError> {
    let set = sqlx::query_scalar("SELECT set_password($1, $2, $3, $4)")
        .bind(current_hash)
        .bind(after)
        .bind(proof)
        .bind(session.as_slice())
        .fetch_one(connection)
        .await?;
    Ok(set)
}
