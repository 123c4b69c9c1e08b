//! The head: the current blueprint, the execution switch, the policy in force and the epoch.

use engine::Hash;
use engine::ids::{BlueprintNumber, PolicyNumber};
use sqlx::PgConnection;

use crate::StoreError;
use crate::connect::hash;

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
