//! Versions of the gate's policy.

use engine::Hash;
use engine::gate::Policy;
use engine::ids::{BlueprintNumber, PersonId, PolicyNumber};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;

pub async fn policy(
    connection: &mut PgConnection,
    number: PolicyNumber,
) -> Result<Option<Policy>, StoreError> {
    let row: Option<(Vec<u8>,)> = sqlx::query_as(
        "SELECT o.body FROM policy p JOIN object o ON o.hash = p.hash WHERE p.number = $1",
    )
    .bind(number.0)
    .fetch_optional(connection)
    .await?;
    let parse = |(body,): (Vec<u8>,)| serde_json::from_slice(&body);
    row.map(parse).transpose().map_err(|e| StoreError::corrupt(format!("policy {number}"), e))
}

/// The policy that was in force after a target was committed.
pub async fn policy_at(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
) -> Result<Option<Policy>, StoreError> {
    let row: Option<(Vec<u8>,)> = sqlx::query_as(
        "SELECT o.body FROM policy p JOIN object o ON o.hash = p.hash WHERE p.blueprint_number <= $1 ORDER BY p.blueprint_number DESC LIMIT 1",
    )
    .bind(blueprint.0)
    .fetch_optional(connection)
    .await?;
    let parse = |(body,): (Vec<u8>,)| serde_json::from_slice(&body);
    row.map(parse)
        .transpose()
        .map_err(|e| StoreError::corrupt(format!("policy of blueprint {blueprint}"), e))
}

/// Adds a version of the policy, whose object is stored. Works only in the transaction of its
/// commit.
pub async fn insert_policy(
    connection: &mut PgConnection,
    number: PolicyNumber,
    hash: Hash,
    by: Option<PersonId>,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO policy (number, hash, created_by) VALUES ($1, $2, $3)")
        .bind(number.0)
        .bind(hash.as_bytes().as_slice())
        .bind(by.map(|p| p.0))
        .execute(connection)
        .await?;
    Ok(())
}

/// The creation time, creator and blueprint of a policy version.
pub async fn policy_origin(
    connection: &mut PgConnection,
    number: i64,
) -> Result<Option<(OffsetDateTime, Option<String>, i64)>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT p.created_at, w.name, p.blueprint_number FROM policy p LEFT JOIN person w ON w.id = p.created_by WHERE p.number = $1",
    )
    .bind(number)
    .fetch_optional(connection)
    .await?)
}
