//! The target history, of everything or of one deployment.

use engine::Hash;
use engine::canonical::ObjectKind;
use engine::ids::{BlueprintNumber, DeploymentId};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::connect::hash;

/// A blueprint in the target history, with names for display.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct TargetRow {
    pub number: i64,
    /// `genesis`, `change` or `switch`.
    pub kind: String,
    /// The hash of its root.
    pub root: Vec<u8>,
    /// Whether execution is enabled from it on.
    pub enabled: bool,
    /// The reason of a switch.
    pub reason: Option<String>,
    /// When it was committed.
    pub at: OffsetDateTime,
    /// Who committed it.
    pub by: Option<String>,
    /// The review that it commits.
    pub review: Option<i64>,
    /// The title of the review.
    pub title: Option<String>,
    /// The deployment of the proposal.
    pub deployment: Option<String>,
    /// The names of the authors.
    pub authors: Vec<String>,
    /// The people whose last verdict is an approval that counts.
    pub approved_by: Vec<String>,
}

/// Blueprints after a cursor by number. With a deployment: only blueprints that changed it.
pub async fn targets(
    connection: &mut PgConnection,
    deployment: Option<DeploymentId>,
    descending: bool,
    after: Option<BlueprintNumber>,
    limit: i64,
) -> Result<Vec<TargetRow>, StoreError> {
    let end = if descending { i64::MAX } else { i64::MIN };
    let sql = match (deployment, descending) {
        (None, true) => {
            "SELECT number FROM blueprint WHERE number < $1 ORDER BY number DESC LIMIT $2"
        }
        (None, false) => "SELECT number FROM blueprint WHERE number > $1 ORDER BY number LIMIT $2",
        (Some(_), true) => {
            "SELECT blueprint_number FROM blueprint_deployment WHERE deployment_id = $3 AND blueprint_number < $1 \
             ORDER BY blueprint_number DESC LIMIT $2"
        }
        (Some(_), false) => {
            "SELECT blueprint_number FROM blueprint_deployment WHERE deployment_id = $3 AND blueprint_number > $1 \
             ORDER BY blueprint_number LIMIT $2"
        }
    };
    let numbers_query =
        sqlx::query_scalar(sql).bind(after.map_or(end, |after| after.0)).bind(limit);
    let numbers_query =
        deployment.iter().fold(numbers_query, |numbers_query, id| numbers_query.bind(id.0));
    let numbers: Vec<i64> = numbers_query.fetch_all(&mut *connection).await?;
    let mut rows = blueprints_by_number(connection, &numbers).await?;
    if !descending {
        rows.reverse();
    }
    Ok(rows)
}

pub async fn target(
    connection: &mut PgConnection,
    number: BlueprintNumber,
) -> Result<Option<TargetRow>, StoreError> {
    Ok(blueprints_by_number(connection, &[number.0]).await?.pop())
}

/// Blueprints with these numbers, newest first.
async fn blueprints_by_number(
    connection: &mut PgConnection,
    numbers: &[i64],
) -> Result<Vec<TargetRow>, StoreError> {
    let rows = sqlx::query_as(
        "SELECT t.number, t.kind, t.root, t.enabled, t.reason, t.committed_at AS at, p.name AS by, s.id AS review, s.title, \
         d.name AS deployment, \
         ARRAY(SELECT w.name FROM review_author a JOIN person w ON w.id = a.person_id \
               WHERE a.review_id = s.id ORDER BY w.name) AS authors, \
         ARRAY(SELECT w.name FROM (SELECT DISTINCT ON (v.person_id) v.person_id, v.kind, v.at FROM verdict v \
                                   WHERE v.review_id = s.id AND v.person_id IS NOT NULL ORDER BY v.person_id, v.id DESC) v \
               JOIN person w ON w.id = v.person_id WHERE v.kind = 'approve' \
                 AND NOT approval_barred(v.person_id, s.id, v.at) ORDER BY w.name) AS approved_by \
         FROM blueprint t LEFT JOIN person p ON p.id = t.committed_by \
         LEFT JOIN review s ON s.id = t.review_id LEFT JOIN proposal o ON o.id = s.proposal_id \
         LEFT JOIN deployment d ON d.id = o.deployment_id WHERE t.number = ANY($1) ORDER BY t.number DESC",
    )
    .bind(numbers)
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// The root of a blueprint.
pub async fn blueprint_root(
    connection: &mut PgConnection,
    number: BlueprintNumber,
) -> Result<Option<Hash>, StoreError> {
    let root: Option<Vec<u8>> = sqlx::query_scalar("SELECT root FROM blueprint WHERE number = $1")
        .bind(number.0)
        .fetch_optional(connection)
        .await?;
    root.map(|bytes| hash("blueprint.root", &bytes)).transpose()
}

/// Whether a root with this hash is stored.
pub async fn is_root(connection: &mut PgConnection, hash: Hash) -> Result<bool, StoreError> {
    let exists =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM object WHERE hash = $1 AND kind = $2)")
            .bind(hash.as_bytes().as_slice())
            .bind(ObjectKind::Root.as_str())
            .fetch_one(connection)
            .await?;
    Ok(exists)
}
