//! The audit in pages, and its chain in the order in which it was sealed.

use engine::Hash;
use engine::audit::Sealed;
use engine::ids::PersonId;
use serde_json::Value;
use sqlx::{PgConnection, Postgres, QueryBuilder};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// Who did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditActor {
    /// A person or a service account.
    Person(PersonId),
    /// Gantry itself.
    Gantry,
}

/// Which entries are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditFilter<'f> {
    /// By whom; None: by anybody.
    pub who: Option<AuditActor>,
    /// Of this action.
    pub action: Option<&'f str>,
    /// About this.
    pub subject: Option<&'f str>,
    /// From this moment on.
    pub since: Option<OffsetDateTime>,
    /// Before this moment.
    pub until: Option<OffsetDateTime>,
    /// Oldest first.
    pub rising: bool,
    /// Behind this entry, in that order.
    pub behind: Option<i64>,
}

/// An entry with its actor's name and its place in the chain.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct AuditRow {
    /// Which.
    pub id: i64,
    /// When.
    pub at: OffsetDateTime,
    /// Who; None: Gantry itself.
    pub actor: Option<Uuid>,
    /// Their name.
    pub name: Option<String>,
    /// What was done.
    pub action: String,
    /// To what.
    pub subject: String,
    /// What else there is to say.
    pub detail: Value,
    /// Its place in the chain.
    pub seq: Option<i64>,
}

/// Ids rise with the moments of entries, but for those of transactions that ran beside each other: by so many at most. With them a window of
/// long ago is found without reading everything since.
const AT_ONCE: i64 = 10_000;

/// Entries, newest first or oldest first; at most so many.
pub async fn audit(on: &mut PgConnection, filter: AuditFilter<'_>, most: i64) -> Result<Vec<AuditRow>, StoreError> {
    let mut query: QueryBuilder<Postgres> = QueryBuilder::new(
        "SELECT a.id, a.at, a.actor, p.name, a.action, a.subject, a.detail, s.seq FROM audit a \
         LEFT JOIN person p ON p.id = a.actor LEFT JOIN seal s ON s.audit_id = a.id WHERE true",
    );
    match filter.who {
        Some(AuditActor::Person(person)) => drop(query.push(" AND a.actor = ").push_bind(person.0)),
        Some(AuditActor::Gantry) => drop(query.push(" AND a.actor IS NULL")),
        None => {}
    }
    if let Some(action) = filter.action {
        query.push(" AND a.action = ").push_bind(action);
    }
    if let Some(subject) = filter.subject {
        query.push(" AND a.subject = ").push_bind(subject);
    }
    if let Some(since) = filter.since {
        query.push(" AND a.at >= ").push_bind(since);
        query
            .push(" AND a.id >= (SELECT b.id - ")
            .push_bind(AT_ONCE)
            .push(" FROM audit b WHERE b.at >= ")
            .push_bind(since);
        query.push(" ORDER BY b.at, b.id LIMIT 1)");
    }
    if let Some(until) = filter.until {
        query.push(" AND a.at < ").push_bind(until);
        query
            .push(" AND a.id <= (SELECT b.id + ")
            .push_bind(AT_ONCE)
            .push(" FROM audit b WHERE b.at < ")
            .push_bind(until);
        query.push(" ORDER BY b.at DESC, b.id DESC LIMIT 1)");
    }
    let (sign, way) = if filter.rising { (" AND a.id > ", "ASC") } else { (" AND a.id < ", "DESC") };
    if let Some(behind) = filter.behind {
        query.push(sign).push_bind(behind);
    }
    query.push(" ORDER BY a.id ").push(way).push(" LIMIT ").push_bind(most);
    Ok(query.build_query_as().fetch_all(on).await?)
}

/// Links of the chain behind a place, in order; at most so many.
pub async fn sealed(on: &mut PgConnection, after: i64, most: i64) -> Result<Vec<Sealed>, StoreError> {
    let rows: Vec<(i64, Vec<u8>, Vec<u8>, String)> = sqlx::query_as(
        "SELECT s.seq, s.prev_hash, s.hash, audit_content(a) FROM seal s JOIN audit a ON a.id = s.audit_id \
         WHERE s.seq > $1 ORDER BY s.seq LIMIT $2",
    )
    .bind(after)
    .bind(most)
    .fetch_all(on)
    .await?;
    rows.into_iter()
        .map(|(seq, previous, hash, content)| {
            let hash_of = |bytes: &[u8]| {
                Hash::from_bytes(bytes).ok_or_else(|| StoreError::corrupt("seal.hash", "a hash has 32 bytes"))
            };
            Ok(Sealed { seq: seq.unsigned_abs(), previous: hash_of(&previous)?, hash: hash_of(&hash)?, content })
        })
        .collect()
}

/// The last link: its place, and itself. None: nothing is sealed yet.
pub async fn last_seal(on: &mut PgConnection) -> Result<Option<(i64, Hash)>, StoreError> {
    seal_where(on, "SELECT seq, hash FROM seal WHERE seq <= $1 ORDER BY seq DESC LIMIT 1", i64::MAX).await
}

/// The link at a place.
pub async fn seal_at(on: &mut PgConnection, seq: i64) -> Result<Option<(i64, Hash)>, StoreError> {
    seal_where(on, "SELECT seq, hash FROM seal WHERE seq = $1", seq).await
}

async fn seal_where(on: &mut PgConnection, sql: &'static str, seq: i64) -> Result<Option<(i64, Hash)>, StoreError> {
    let row: Option<(i64, Vec<u8>)> = sqlx::query_as(sql).bind(seq).fetch_optional(on).await?;
    let read = |(seq, hash): (i64, Vec<u8>)| Some((seq, Hash::from_bytes(&hash)?));
    match row {
        None => Ok(None),
        Some(row) => read(row).map(Some).ok_or_else(|| StoreError::corrupt("seal.hash", "a hash has 32 bytes")),
    }
}

/// Entries that are not sealed yet; at most so many are counted, of the newest ten times as many.
pub async fn unsealed(on: &mut PgConnection, most: i64) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT 1 FROM (SELECT id FROM audit ORDER BY id DESC LIMIT $1 * 10) a \
         WHERE NOT EXISTS (SELECT 1 FROM seal s WHERE s.audit_id = a.id) LIMIT $1) u",
    )
    .bind(most)
    .fetch_one(on)
    .await?)
}
