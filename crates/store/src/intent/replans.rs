//! Submissions whose base moved, and what planning them anew came to.
//!
//! Each submission is planned anew at most once: its id is the row's key, and the version that is raised with it makes it stale no
//! more. So whoever comes second, another server or a sweep, finds nothing to do.

use engine::ids::{ProposalId, SubmissionId, TargetNo};
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;

/// What became of a submission whose base moved.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplanRow {
    /// The one whose base moved.
    pub before: SubmissionId,
    /// Of which proposal.
    pub proposal: ProposalId,
    /// The one that took its place; None: the proposal is back with its authors.
    pub after: Option<SubmissionId>,
    /// The proposal's version from then on.
    pub version: i32,
    /// Where the line stood.
    pub target: TargetNo,
    /// What had moved, in words.
    pub moved: Vec<String>,
    /// Why the proposal is back with its authors.
    pub refused: Value,
}

type Row = (i64, i64, Option<i64>, i32, i64, Vec<String>, Value);

fn to_replan((before, proposal, after, version, target, moved, refused): Row) -> ReplanRow {
    ReplanRow {
        before: SubmissionId(before),
        proposal: ProposalId(proposal),
        after: after.map(SubmissionId),
        version,
        target: TargetNo(target),
        moved,
        refused,
    }
}

const COLUMNS: &str = "before_id, proposal_id, after_id, version, target, moved, refused";

/// Notes it. The caller has raised the proposal's version to this one in the same transaction.
pub async fn insert_replan(on: &mut PgConnection, new: &ReplanRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO replan (before_id, proposal_id, after_id, version, target, moved, refused) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(new.before.0)
    .bind(new.proposal.0)
    .bind(new.after.map(|s| s.0))
    .bind(new.version)
    .bind(new.target.0)
    .bind(&new.moved)
    .bind(&new.refused)
    .execute(on)
    .await?;
    Ok(())
}

/// How a submission came about and what became of it, as far as moved bases are concerned. If authors submitted again what was sent
/// back to them, as it was, then the one before is what it came from.
pub async fn replans(
    on: &mut PgConnection,
    id: SubmissionId,
) -> Result<(Option<ReplanRow>, Option<ReplanRow>), StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM replan WHERE before_id = $1 \
         UNION ALL SELECT {COLUMNS} FROM replan WHERE (proposal_id, version) = \
           (SELECT s.proposal_id, s.version FROM submission s WHERE s.id = $1) LIMIT 2"
    );
    let rows: Vec<Row> =
        sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(id.0).fetch_all(on).await?;
    let (went, came): (Vec<_>, Vec<_>) =
        rows.into_iter().map(to_replan).partition(|row| row.before == id);
    let came = came.into_iter().next().map(|row| ReplanRow { after: Some(id), ..row });
    Ok((came, went.into_iter().next()))
}

/// What a proposal's version came from, if a moved base made it.
pub async fn replan_to(
    on: &mut PgConnection,
    proposal: ProposalId,
    version: i32,
) -> Result<Option<ReplanRow>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM replan WHERE proposal_id = $1 AND version = $2");
    let query = sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(proposal.0).bind(version);
    let row: Option<Row> = query.fetch_optional(on).await?;
    Ok(row.map(to_replan))
}

/// The nodes whose first document a submission writes and whose record changed since it was planned.
pub async fn moved_records(
    on: &mut PgConnection,
    id: SubmissionId,
) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("SELECT fqdn FROM moved_records($1) ORDER BY fqdn")
        .bind(id.0)
        .fetch_all(on)
        .await?)
}

/// The newest submissions of open proposals of which something that they rest upon changed: a deployment of the base, a document that
/// they replace, or the record of a node whose first document they write. Oldest first.
pub async fn stale_submissions(
    on: &mut PgConnection,
    limit: i64,
) -> Result<Vec<SubmissionId>, StoreError> {
    let rows: Vec<(i64,)> = sqlx::query_as(
        "SELECT s.id FROM proposal p JOIN submission s ON s.proposal_id = p.id AND s.version = p.version \
         JOIN head h ON h.epoch = s.epoch \
         WHERE p.state = 'open' AND (EXISTS ( \
             SELECT FROM submission_base b LEFT JOIN deployment d ON d.id = b.deployment_id \
             WHERE b.submission_id = s.id AND d.head_no IS DISTINCT FROM b.head_no) \
           OR EXISTS ( \
             SELECT FROM submission_document x \
             LEFT JOIN deployment d ON x.kind = 'deployment' AND d.id = x.id AND d.removed_in IS NULL \
             LEFT JOIN node n ON x.kind = 'node' AND n.id = x.id AND n.removed_in IS NULL \
             WHERE x.submission_id = s.id AND coalesce(d.doc, n.doc) IS DISTINCT FROM x.old_hash) \
           OR EXISTS (SELECT FROM moved_records(s.id))) \
         ORDER BY s.id LIMIT $1",
    )
    .bind(limit)
    .fetch_all(on)
    .await?;
    Ok(rows.into_iter().map(|(id,)| SubmissionId(id)).collect())
}
