//! The head: the current blueprint, the execution switch, the policy in force and the epoch.

use engine::Hash;
use engine::ids::{BlueprintNumber, PolicyNumber};
use sea_orm::{EntityTrait, JoinType, QuerySelect};
use sqlx::PgConnection;

use crate::StoreError;
use crate::connect::{hash, orm};
use crate::entity::{blueprint, head, join};
use crate::locks::lock_apply_exclusive;

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
    type Row = (i64, Option<Vec<u8>>, bool, i64, i64);
    let row: Option<Row> = head::Entity::find()
        .join(JoinType::LeftJoin, join(head::Column::Number, blueprint::Column::Number))
        .select_only()
        .column(head::Column::Number)
        .column(blueprint::Column::Root)
        .columns([head::Column::Enabled, head::Column::PolicyNumber, head::Column::Epoch])
        .into_tuple()
        .one(&orm(connection))
        .await?;
    let (number, root, enabled, policy, epoch) =
        row.ok_or_else(|| StoreError::corrupt("head", "there is no row"))?;
    let root = root.map(|bytes| hash("blueprint.root", &bytes)).transpose()?;
    Ok(Head { number: BlueprintNumber(number), root, enabled, policy: PolicyNumber(policy), epoch })
}

/// Takes the locks of a commit before it reads anything: APPLY, then the head.
pub async fn lock_for_commit(connection: &mut PgConnection) -> Result<Head, StoreError> {
    lock_apply_exclusive(connection).await?;
    sqlx::query("SELECT 1 FROM head FOR UPDATE").execute(&mut *connection).await?;
    head(connection).await
}
