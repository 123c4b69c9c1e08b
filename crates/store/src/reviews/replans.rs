//! Reviews whose base changed, and the result of replanning them.
//!
//! Each review is replanned at most once. Its id is the key of the row, and the raised version of
//! the proposal makes the review outdated. So a second server or a sweep finds nothing to do.

use engine::gate::LeftHold;
use engine::ids::{BlueprintNumber, ProposalId, ReviewId};
use sea_orm::sea_query::ExprTrait as _;
use sea_orm::{ColumnTrait, Condition, EntityTrait, JoinType, QueryFilter, QuerySelect, Set};
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{join, replan, review};

/// The result of replanning a review.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplanRow {
    /// The review whose base changed.
    pub before: ReviewId,
    pub proposal: ProposalId,
    /// The review that replaces it. `None`: the proposal is back with its authors.
    pub after: Option<ReviewId>,
    /// The new version of the proposal.
    pub version: i32,
    /// The blueprint in force at that time.
    pub target: BlueprintNumber,
    /// Descriptions of the changed parts of the base.
    pub moved: Vec<String>,
    /// The reason why the proposal is back with its authors.
    pub refused: Value,
}

fn to_replan(row: replan::Model) -> ReplanRow {
    ReplanRow {
        before: ReviewId(row.before_id),
        proposal: ProposalId(row.proposal_id),
        after: row.after_id.map(ReviewId),
        version: row.version,
        target: BlueprintNumber(row.blueprint_number),
        moved: row.moved,
        refused: row.refused,
    }
}

/// Records the result. The caller has raised the proposal's version in the same transaction.
pub async fn insert_replan(
    connection: &mut PgConnection,
    new: &ReplanRow,
) -> Result<(), StoreError> {
    let row = replan::ActiveModel {
        before_id: Set(new.before.0),
        proposal_id: Set(new.proposal.0),
        after_id: Set(new.after.map(|review| review.0)),
        version: Set(new.version),
        blueprint_number: Set(new.target.0),
        moved: Set(new.moved.clone()),
        refused: Set(new.refused.clone()),
        ..Default::default()
    };
    replan::Entity::insert(row).exec_without_returning(&orm(connection)).await?;
    Ok(())
}

/// The newest review of a proposal.
pub async fn newest_of_proposal(
    connection: &mut PgConnection,
    proposal: ProposalId,
) -> Result<Option<ReviewId>, StoreError> {
    let newest: Option<Option<i64>> = review::Entity::find()
        .filter(review::Column::ProposalId.eq(proposal.0))
        .select_only()
        .expr(review::Column::Id.max())
        .into_tuple()
        .one(&orm(connection))
        .await?;
    Ok(newest.flatten().map(ReviewId))
}

/// The replans that led to a review and away from it. If authors resubmitted a returned proposal
/// unchanged, the first is the replan that returned it.
pub async fn replans(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<(Option<ReplanRow>, Option<ReplanRow>), StoreError> {
    let leads_to_it = replan::Column::Version.into_expr().eq(review::Column::Version.into_expr());
    let rows = replan::Entity::find()
        .join(JoinType::InnerJoin, join(replan::Column::ProposalId, review::Column::ProposalId))
        .filter(review::Column::Id.eq(id.0))
        .filter(Condition::any().add(replan::Column::BeforeId.eq(id.0)).add(leads_to_it))
        .limit(2)
        .all(&orm(connection))
        .await?;
    let (outgoing, incoming): (Vec<_>, Vec<_>) =
        rows.into_iter().map(to_replan).partition(|row| row.before == id);
    let incoming = incoming.into_iter().next().map(|row| ReplanRow { after: Some(id), ..row });
    Ok((incoming, outgoing.into_iter().next()))
}

/// The replan that created this version of a proposal, if any.
pub async fn replan_for_version(
    connection: &mut PgConnection,
    proposal: ProposalId,
    version: i32,
) -> Result<Option<ReplanRow>, StoreError> {
    let row = replan::Entity::find()
        .filter(replan::Column::ProposalId.eq(proposal.0))
        .filter(replan::Column::Version.eq(version))
        .one(&orm(connection))
        .await?;
    Ok(row.map(to_replan))
}

/// Deployments of a review's base that have changed in a way that voids it, each with the number of
/// the blueprint that last changed it. The database decides (`base_moved`). A commit in an ancestor
/// counts only if it changed something that the review reads.
pub async fn moved_base(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<(String, i64)>, StoreError> {
    Ok(sqlx::query_as("SELECT name, head_no FROM moved_base($1) ORDER BY deployment_id")
        .bind(id.0)
        .fetch_all(connection)
        .await?)
}

/// The holds that a review moves a deployment out of. The database decides (`left_holds`), and
/// refuses the commit.
pub async fn left_holds(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<LeftHold>, StoreError> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT name, on_hold, held_by FROM left_holds($1)")
            .bind(id.0)
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().map(|(moved, on_hold, by)| LeftHold { moved, on_hold, by }).collect())
}

/// The nodes whose first document a review writes and whose record changed since it was planned.
pub async fn moved_records(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("SELECT fqdn FROM moved_records($1) ORDER BY fqdn")
        .bind(id.0)
        .fetch_all(connection)
        .await?)
}

/// Newest reviews of open proposals that are outdated, oldest first. Their base ([`moved_base`]), a
/// replaced document or the record of a node without a document has changed.
pub async fn stale_reviews(
    connection: &mut PgConnection,
    limit: i64,
) -> Result<Vec<ReviewId>, StoreError> {
    let rows: Vec<(i64,)> = sqlx::query_as(include_str!("statements/stale_reviews.sql"))
        .bind(limit)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|(id,)| ReviewId(id)).collect())
}
