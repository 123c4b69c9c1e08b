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
    /// Written by these: `application` or `database`. None: by both.
    pub source: Option<&'f str>,
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
    /// `application` or `database`.
    pub source: String,
    /// Its place in the chain.
    pub seq: Option<i64>,
}

/// Entries, newest first or oldest first; at most so many.
///
/// Newest is what was written last, by its id. Within a window of time it is by the moment, which an index finds: a clock that was set back
/// makes both differ, and no bound on ids would hold then. So within a window nothing is behind an entry that there is not ([`is_entry`]).
pub async fn audit(
    on: &mut PgConnection,
    filter: AuditFilter<'_>,
    most: i64,
) -> Result<Vec<AuditRow>, StoreError> {
    let mut query: QueryBuilder<Postgres> = QueryBuilder::new(
        "SELECT a.id, a.at, a.actor, p.name, a.action, a.subject, a.detail, a.source, s.seq FROM audit a \
         LEFT JOIN person p ON p.id = a.actor LEFT JOIN seal s ON s.audit_id = a.id WHERE true",
    );
    match filter.who {
        Some(AuditActor::Person(person)) => drop(query.push(" AND a.actor = ").push_bind(person.0)),
        Some(AuditActor::Gantry) => drop(query.push(" AND a.actor IS NULL")),
        None => {}
    }
    match filter.source {
        // Literally, so that a partial index serves it.
        Some("application") => drop(query.push(" AND a.source = 'application'")),
        Some(source) => drop(query.push(" AND a.source = ").push_bind(source)),
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
    }
    if let Some(until) = filter.until {
        query.push(" AND a.at < ").push_bind(until);
    }
    let (sign, way) = if filter.rising { (">", "ASC") } else { ("<", "DESC") };
    let in_window = filter.since.is_some() || filter.until.is_some();
    match filter.behind {
        Some(behind) if in_window => {
            let place =
                format!(" AND (a.at, a.id) {sign} (SELECT b.at, b.id FROM audit b WHERE b.id = ");
            query.push(place).push_bind(behind).push(")");
        }
        Some(behind) => drop(query.push(format!(" AND a.id {sign} ")).push_bind(behind)),
        None => {}
    }
    let order = if in_window { format!("a.at {way}, a.id {way}") } else { format!("a.id {way}") };
    query.push(format!(" ORDER BY {order} LIMIT ")).push_bind(most);
    Ok(query.build_query_as().fetch_all(on).await?)
}

/// Whether there is an entry of this number.
pub async fn is_entry(on: &mut PgConnection, id: i64) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar("SELECT EXISTS (SELECT FROM audit WHERE id = $1)")
        .bind(id)
        .fetch_one(on)
        .await?)
}

/// Links of the chain behind a place, in order; at most so many.
pub async fn sealed(
    on: &mut PgConnection,
    after: i64,
    most: i64,
) -> Result<Vec<Sealed>, StoreError> {
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
                Hash::from_bytes(bytes)
                    .ok_or_else(|| StoreError::corrupt("seal.hash", "a hash has 32 bytes"))
            };
            Ok(Sealed {
                seq: seq.unsigned_abs(),
                previous: hash_of(&previous)?,
                hash: hash_of(&hash)?,
                content,
            })
        })
        .collect()
}

/// The last link: its place, and itself. None: nothing is sealed yet.
pub async fn last_seal(on: &mut PgConnection) -> Result<Option<(i64, Hash)>, StoreError> {
    seal_where(on, "SELECT seq, hash FROM seal WHERE seq <= $1 ORDER BY seq DESC LIMIT 1", i64::MAX)
        .await
}

/// The link at a place.
pub async fn seal_at(on: &mut PgConnection, seq: i64) -> Result<Option<(i64, Hash)>, StoreError> {
    seal_where(on, "SELECT seq, hash FROM seal WHERE seq = $1", seq).await
}

async fn seal_where(
    on: &mut PgConnection,
    sql: &'static str,
    seq: i64,
) -> Result<Option<(i64, Hash)>, StoreError> {
    let row: Option<(i64, Vec<u8>)> = sqlx::query_as(sql).bind(seq).fetch_optional(on).await?;
    let read = |(seq, hash): (i64, Vec<u8>)| Some((seq, Hash::from_bytes(&hash)?));
    match row {
        None => Ok(None),
        Some(row) => read(row)
            .map(Some)
            .ok_or_else(|| StoreError::corrupt("seal.hash", "a hash has 32 bytes")),
    }
}

/// How often a backup was restored, plus 1.
pub async fn epoch(on: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar("SELECT epoch FROM head").fetch_one(on).await?)
}

/// Entries that are not sealed yet; at most so many are counted.
pub async fn unsealed(on: &mut PgConnection, most: i64) -> Result<i64, StoreError> {
    let sql = "SELECT count(*) FROM (SELECT FROM audit_unsealed LIMIT $1) u";
    Ok(sqlx::query_scalar(sql).bind(most).fetch_one(on).await?)
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;
    use time::macros::datetime;

    use super::*;

    #[tokio::test]
    async fn a_window_of_time_has_all_of_its_entries_whatever_the_clock_did() {
        let db = TestDatabase::new().await;
        // The clock was a day ahead for the tenth entry; between it and the last are more than anybody would guess.
        let sql = "INSERT INTO audit (at, action, subject) \
                   SELECT timestamptz '2026-01-01 00:00Z' + make_interval(mins => n) + make_interval(days => (n = 10)::int), 'clock.set', n::text \
                   FROM generate_series(1, 30000) n";
        sqlx::query(sql).execute(db.owner()).await.unwrap();
        let mut on = db.app().acquire().await.unwrap();
        let (since, until) = (datetime!(2026-01-01 23:50 UTC), datetime!(2026-01-02 00:13 UTC));
        for rising in [true, false] {
            let (mut told, mut behind) = (Vec::new(), None);
            loop {
                let filter = AuditFilter {
                    action: Some("clock.set"),
                    since: Some(since),
                    until: Some(until),
                    rising,
                    behind,
                    ..AuditFilter::default()
                };
                let page = audit(&mut on, filter, 5).await.unwrap();
                let Some(last) = page.last() else { break };
                behind = Some(last.id);
                told.extend(page.iter().map(|row| row.subject.clone()));
            }
            let mut expected: Vec<String> =
                (1430..1450).map(|n| n.to_string()).chain(["10".into()]).collect();
            expected.extend((1450..1453).map(|n| n.to_string()));
            if !rising {
                expected.reverse();
            }
            assert_eq!(told, expected);
        }
    }
}
