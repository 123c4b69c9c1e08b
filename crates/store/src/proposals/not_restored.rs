//! The parts of a deployment that a restoring proposal cannot restore.

use std::ops::RangeInclusive;

use engine::ids::{BlueprintNumber, ProposalId};
use sea_orm::sea_query::ExprTrait as _;
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, Set};
use sqlx::PgConnection;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{edit, join, not_restored};

/// The maximum number of entries stored by name. Further ones are only counted.
pub const MAX_NOT_RESTORED: usize = 200;

/// The parts that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRestoredRow {
    /// The blueprint from which the deployment is restored.
    pub target: BlueprintNumber,
    /// Entries with their reason, at most [`MAX_NOT_RESTORED`].
    pub missing: Vec<String>,
    /// The number of further entries.
    pub more: usize,
}

/// Records the parts that the edits with these numbers cannot restore.
pub async fn insert_not_restored(
    connection: &mut PgConnection,
    proposal: ProposalId,
    edits: RangeInclusive<u32>,
    omitted: &NotRestoredRow,
) -> Result<(), StoreError> {
    let number = |seq: u32| i32::try_from(seq).unwrap_or(i32::MAX);
    let row = not_restored::ActiveModel {
        proposal_id: Set(proposal.0),
        first_edit: Set(number(*edits.start())),
        last_edit: Set(number(*edits.end())),
        blueprint_number: Set(omitted.target.0),
        missing: Set(omitted.missing.clone()),
        more: Set(i32::try_from(omitted.more).unwrap_or(i32::MAX)),
    };
    not_restored::Entity::insert(row).exec_without_returning(&orm(connection)).await?;
    Ok(())
}

/// The parts that a proposal cannot restore, as long as one of the restoring edits is valid.
pub async fn not_restored(
    connection: &mut PgConnection,
    proposal: ProposalId,
) -> Result<Option<NotRestoredRow>, StoreError> {
    let seq = edit::Column::Seq.into_expr();
    let (first, last) = (not_restored::Column::FirstEdit, not_restored::Column::LastEdit);
    let found = not_restored::Entity::find()
        .join(JoinType::InnerJoin, join(not_restored::Column::ProposalId, edit::Column::ProposalId))
        .filter(not_restored::Column::ProposalId.eq(proposal.0))
        .filter(seq.between(first.into_expr(), last.into_expr()))
        .filter(edit::Column::Undone.eq(false))
        .order_by_desc(first)
        .one(&orm(connection))
        .await?;
    Ok(found.map(|row| NotRestoredRow {
        target: BlueprintNumber(row.blueprint_number),
        missing: row.missing,
        more: usize::try_from(row.more).unwrap_or_default(),
    }))
}
