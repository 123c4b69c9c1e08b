//! Reviews whose base changed, and the result of replanning them.
//!
//! Each review is replanned at most once. Its id is the key of the row, and the raised version of
//! the proposal makes the review outdated. So a second server or a sweep finds nothing to do.

use engine::ids::{BlueprintNumber, ProposalId, ReviewId};
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;

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

type Row = (i64, i64, Option<i64>, i32, i64, Vec<String>, Value);

fn to_replan((before, proposal, after, version, target, moved, refused): Row) -> ReplanRow {
    ReplanRow {
        before: ReviewId(before),
        proposal: ProposalId(proposal),
        after: after.map(ReviewId),
        version,
        target: BlueprintNumber(target),
        moved,
        refused,
    }
}

const COLUMNS: &str = "before_id, proposal_id, after_id, version, blueprint_number, moved, refused";

/// Records the result. The caller has raised the proposal's version in the same transaction.
pub async fn insert_replan(
    connection: &mut PgConnection,
    new: &ReplanRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO replan (before_id, proposal_id, after_id, version, blueprint_number, moved, refused) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(new.before.0)
    .bind(new.proposal.0)
    .bind(new.after.map(|s| s.0))
    .bind(new.version)
    .bind(new.target.0)
    .bind(&new.moved)
    .bind(&new.refused)
    .execute(connection)
    .await?;
    Ok(())
}

/// The replans that led to a review and away from it. If authors resubmitted a returned proposal
/// unchanged, the first is the replan that returned it.
pub async fn replans(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<(Option<ReplanRow>, Option<ReplanRow>), StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM replan WHERE before_id = $1 \
         UNION ALL SELECT {COLUMNS} FROM replan WHERE (proposal_id, version) = \
           (SELECT s.proposal_id, s.version FROM review s WHERE s.id = $1) LIMIT 2"
    );
    let rows: Vec<Row> =
        sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(id.0).fetch_all(connection).await?;
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
    let query = format!("SELECT {COLUMNS} FROM replan WHERE proposal_id = $1 AND version = $2");
    let query = sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(proposal.0).bind(version);
    let row: Option<Row> = query.fetch_optional(connection).await?;
    Ok(row.map(to_replan))
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

/// Newest reviews of open proposals that are outdated, oldest first. A deployment of the base, a
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
