//! The line of targets, newest first.

use api::console::PAGE_SIZE;
use engine::Hash;
use engine::canonical::ObjectKind;
use engine::ids::TargetNo;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;

/// A target with the names around it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct TargetRow {
    /// Its place in the line.
    pub number: i64,
    /// `genesis`, `change`, `switch`.
    pub kind: String,
    /// The hash of its root.
    pub root: Vec<u8>,
    /// Whether steps are started from it on.
    pub enabled: bool,
    /// Why execution was switched.
    pub reason: Option<String>,
    /// When.
    pub at: OffsetDateTime,
    /// Who committed it.
    pub by: Option<String>,
    /// The submission that it carries out.
    pub submission: Option<i64>,
    /// That one's title.
    pub title: Option<String>,
    /// The deployment that was proposed on.
    pub deployment: Option<String>,
}

/// Targets before one, newest first; one more than a page.
pub async fn targets(on: &mut PgConnection, before: Option<TargetNo>) -> Result<Vec<TargetRow>, StoreError> {
    let rows = sqlx::query_as(
        "SELECT t.number, t.kind, t.root, t.enabled, t.reason, t.committed_at AS at, p.name AS by, s.id AS submission, s.title, \
         d.name AS deployment FROM target t LEFT JOIN person p ON p.id = t.committed_by \
         LEFT JOIN submission s ON s.id = t.submission_id LEFT JOIN proposal o ON o.id = s.proposal_id \
         LEFT JOIN deployment d ON d.id = o.deployment_id \
         WHERE t.number < $1 ORDER BY t.number DESC LIMIT $2",
    )
    .bind(before.map_or(i64::MAX, |before| before.0))
    .bind(PAGE_SIZE as i64 + 1)
    .fetch_all(on)
    .await?;
    Ok(rows)
}

/// The root of a target.
pub async fn root_of(on: &mut PgConnection, number: TargetNo) -> Result<Option<Hash>, StoreError> {
    let root: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT root FROM target WHERE number = $1").bind(number.0).fetch_optional(on).await?;
    let read = |bytes: Vec<u8>| {
        Hash::from_bytes(&bytes).ok_or_else(|| StoreError::corrupt("target.root", "a hash has 32 bytes"))
    };
    root.map(read).transpose()
}

/// Whether a root is stored under this hash.
pub async fn is_root(on: &mut PgConnection, hash: Hash) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM object WHERE hash = $1 AND kind = $2)")
        .bind(hash.as_bytes().as_slice())
        .bind(ObjectKind::Root.as_str())
        .fetch_one(on)
        .await?;
    Ok(found)
}
