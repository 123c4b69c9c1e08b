//! The head: the current blueprint, the execution switch, the policy in force and the epoch.

use engine::Hash;
use engine::ids::{BlueprintNumber, DeploymentId, PersonId, PolicyNumber};
use sqlx::PgConnection;
use uuid::Uuid;

use super::hash;
use crate::StoreError;
use crate::running::CHANNEL_TODO;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The current blueprint. 0 before genesis.
    pub number: BlueprintNumber,
    /// `None` before genesis.
    pub root: Option<Hash>,
    /// Whether steps are started.
    pub enabled: bool,
    /// The policy in force.
    pub policy: PolicyNumber,
    /// Rises with each restore of a backup.
    pub epoch: i64,
}

pub async fn head(connection: &mut PgConnection) -> Result<Head, StoreError> {
    let row = sqlx::query_as(
        "SELECT h.number, t.root, h.enabled, h.policy_number, h.epoch FROM head h LEFT JOIN blueprint t ON t.number = h.number",
    )
    .fetch_one(connection)
    .await?;
    to_head(row)
}

/// Takes the locks of a commit before it reads anything: APPLY, then the head.
pub async fn lock_for_commit(connection: &mut PgConnection) -> Result<Head, StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::APPLY_LOCK)
        .execute(&mut *connection)
        .await?;
    sqlx::query("SELECT 1 FROM head FOR UPDATE").execute(&mut *connection).await?;
    head(connection).await
}

fn to_head(row: (i64, Option<Vec<u8>>, bool, i64, i64)) -> Result<Head, StoreError> {
    let (number, root, enabled, policy, epoch) = row;
    let root = root.map(|bytes| hash("blueprint.root", &bytes)).transpose()?;
    Ok(Head { number: BlueprintNumber(number), root, enabled, policy: PolicyNumber(policy), epoch })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentRow {
    pub id: DeploymentId,
    pub name: String,
    /// The blueprint that last changed it or one of its nodes.
    pub head_no: BlueprintNumber,
    pub parent: Option<DeploymentId>,
    /// The person who put it on hold, and the reason.
    pub held: Option<(String, String)>,
    /// Added to the priority of its steps when runs are claimed.
    pub priority: i32,
}

/// All deployments. There are few, because people name each of them.
pub async fn deployment_rows(
    connection: &mut PgConnection,
) -> Result<Vec<DeploymentRow>, StoreError> {
    type Row = (Uuid, String, i64, Option<Uuid>, Option<String>, Option<String>, i32);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT d.id, d.name, d.head_no, d.parent, p.name, d.held_reason, d.priority FROM deployment d \
         LEFT JOIN person p ON p.id = d.held_by WHERE d.removed_in IS NULL ORDER BY d.name",
    )
    .fetch_all(connection)
    .await?;
    let row = |(id, name, head_no, parent, held_by, reason, priority): Row| DeploymentRow {
        id: DeploymentId(id),
        name,
        head_no: BlueprintNumber(head_no),
        parent: parent.map(DeploymentId),
        held: held_by.map(|by| (by, reason.unwrap_or_default())),
        priority,
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Puts a deployment on hold or ends the hold. `false`: nothing changed. A hold stops new runs in
/// the deployment and its descendants. The caller holds APPLY exclusively, so that no claim or
/// lease is in progress.
pub async fn set_hold(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    hold: Option<(PersonId, &str)>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE deployment SET held_by = $2, held_reason = $3, held_at = CASE WHEN $2::uuid IS NULL THEN NULL ELSE now() END \
         WHERE id = $1 AND removed_in IS NULL AND (held_by IS NULL) = ($2::uuid IS NOT NULL)",
    )
    .bind(deployment.0)
    .bind(hold.map(|(by, _)| by.0))
    .bind(hold.map(|(_, reason)| reason))
    .execute(&mut *connection)
    .await?;
    if done.rows_affected() == 1 && hold.is_none() {
        sqlx::query("SELECT pg_notify($1, '')").bind(CHANNEL_TODO).execute(connection).await?;
    }
    Ok(done.rows_affected() == 1)
}

/// Sets the priority of a deployment's steps for claims. `false`: unchanged, or the deployment is
/// removed.
pub async fn set_priority(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    priority: i32,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE deployment SET priority = $2 WHERE id = $1 AND removed_in IS NULL AND priority <> $2")
            .bind(deployment.0)
            .bind(priority)
            .execute(&mut *connection)
            .await?;
    Ok(done.rows_affected() == 1)
}

/// The last removed deployment with this name, and the blueprint that removed it.
pub async fn removed_deployment(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<(DeploymentId, BlueprintNumber)>, StoreError> {
    let row: Option<(Uuid, i64)> = sqlx::query_as(
        "SELECT id, removed_in FROM deployment WHERE name = $1 AND removed_in IS NOT NULL ORDER BY removed_in DESC LIMIT 1",
    )
    .bind(name)
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|(id, removed_in)| (DeploymentId(id), BlueprintNumber(removed_in))))
}
