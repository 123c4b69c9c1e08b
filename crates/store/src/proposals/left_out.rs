//! The parts of a deployment that a restoring proposal cannot restore.

use std::ops::RangeInclusive;

use engine::ids::{BlueprintNumber, ProposalId};
use sea_orm::sea_query::ExprTrait as _;
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, Set};
use sqlx::PgConnection;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{edit, join, left_out};

/// The maximum number of entries stored by name. Further ones are only counted.
pub const MAX_LEFT_OUT: usize = 200;

/// The parts that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutRow {
    /// The blueprint from which the deployment is restored.
    pub target: BlueprintNumber,
    /// Entries with their reason, at most [`MAX_LEFT_OUT`].
    pub missing: Vec<String>,
    /// The number of further entries.
    pub more: usize,
}

/// Records the parts that the edits with these numbers cannot restore.
pub async fn insert_omitted_parts(
    connection: &mut PgConnection,
    proposal: ProposalId,
    edits: RangeInclusive<u32>,
    omitted: &LeftOutRow,
) -> Result<(), StoreError> {
    let number = |seq: u32| i32::try_from(seq).unwrap_or(i32::MAX);
    let row = left_out::ActiveModel {
        proposal_id: Set(proposal.0),
        first_edit: Set(number(*edits.start())),
        last_edit: Set(number(*edits.end())),
        blueprint_number: Set(omitted.target.0),
        missing: Set(omitted.missing.clone()),
        more: Set(i32::try_from(omitted.more).unwrap_or(i32::MAX)),
    };
    left_out::Entity::insert(row).exec_without_returning(&orm(connection)).await?;
    Ok(())
}

/// The parts that a proposal cannot restore, as long as one of the restoring edits is valid.
pub async fn left_out(
    connection: &mut PgConnection,
    proposal: ProposalId,
) -> Result<Option<LeftOutRow>, StoreError> {
    let seq = edit::Column::Seq.into_expr();
    let (first, last) = (left_out::Column::FirstEdit, left_out::Column::LastEdit);
    let found = left_out::Entity::find()
        .join(JoinType::InnerJoin, join(left_out::Column::ProposalId, edit::Column::ProposalId))
        .filter(left_out::Column::ProposalId.eq(proposal.0))
        .filter(seq.between(first.into_expr(), last.into_expr()))
        .filter(edit::Column::Undone.eq(false))
        .order_by_desc(first)
        .one(&orm(connection))
        .await?;
    Ok(found.map(|row| LeftOutRow {
        target: BlueprintNumber(row.blueprint_number),
        missing: row.missing,
        more: usize::try_from(row.more).unwrap_or_default(),
    }))
}
