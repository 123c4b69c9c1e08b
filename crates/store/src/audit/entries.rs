//! The audit in pages, and its hash chain in sealed order.

use engine::Hash;
use engine::audit::SealedEntry;
use engine::ids::PersonId;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, Order, QueryFilter, QueryOrder,
    QuerySelect, Select,
};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::{hash, orm};
use crate::entity::{audit, equals_literal, head, join, person, seal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditActor {
    /// A person or a service account.
    Person(PersonId),
    /// Gantry itself.
    Gantry,
}

/// A filter for audit entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditFilter<'f> {
    /// `None`: any actor.
    pub actor: Option<AuditActor>,
    /// `application` or `database`. `None`: both.
    pub source: Option<&'f str>,
    pub action: Option<&'f str>,
    pub subject: Option<&'f str>,
    /// Inclusive.
    pub since: Option<OffsetDateTime>,
    /// Exclusive.
    pub until: Option<OffsetDateTime>,
    /// Oldest first.
    pub ascending: bool,
    /// Only entries after this one in the order.
    pub after: Option<i64>,
}

/// An entry with its actor's name and its position in the chain.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "audit::Entity")]
pub struct AuditRow {
    pub id: i64,
    pub at: OffsetDateTime,
    /// `None`: Gantry itself.
    pub actor: Option<Uuid>,
    /// The actor's name.
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
    pub name: Option<String>,
    pub action: String,
    pub subject: String,
    pub detail: Value,
    /// `application` or `database`.
    pub source: String,
    /// Its position in the chain.
    #[sea_orm(from_expr = "Expr::col((seal::Entity, seal::Column::Seq))")]
    pub seq: Option<i64>,
}

/// Audit entries, newest or oldest first, at most `limit`.
///
/// The order is by id, which is the order of writing. Within a time range it is by time, which has
/// an index. Both differ if the clock was set back, so no bound on ids is correct then. A cursor
/// within a time range must therefore be an existing entry ([`entry_exists`]).
pub async fn audit(
    on: &mut PgConnection,
    filter: AuditFilter<'_>,
    limit: u64,
) -> Result<Vec<AuditRow>, StoreError> {
    let mut query = audit::Entity::find()
        .join(JoinType::LeftJoin, join(audit::Column::Actor, person::Column::Id))
        .join(JoinType::LeftJoin, join(audit::Column::Id, seal::Column::AuditId))
        .limit(limit);
    query = match filter.actor {
        Some(AuditActor::Person(person)) => query.filter(audit::Column::Actor.eq(person.0)),
        Some(AuditActor::Gantry) => query.filter(audit::Column::Actor.is_null()),
        None => query,
    };
    if let Some(source) = filter.source {
        query = query.filter(equals_literal(audit::Column::Source, source));
    }
    if let Some(action) = filter.action {
        query = query.filter(audit::Column::Action.eq(action));
    }
    if let Some(subject) = filter.subject {
        query = query.filter(audit::Column::Subject.eq(subject));
    }
    if let Some(since) = filter.since {
        query = query.filter(audit::Column::At.gte(since));
    }
    if let Some(until) = filter.until {
        query = query.filter(audit::Column::At.lt(until));
    }
    let (sign, direction) = if filter.ascending { (">", Order::Asc) } else { ("<", Order::Desc) };
    let has_time_range = filter.since.is_some() || filter.until.is_some();
    if let Some(after) = filter.after {
        let after_cursor = match has_time_range {
            true => format!(
                "(audit.at, audit.id) {sign} (SELECT b.at, b.id FROM audit b WHERE b.id = $1)"
            ),
            false => format!("audit.id {sign} $1"),
        };
        query = query.filter(Expr::cust_with_values(after_cursor, [after]));
    }
    if has_time_range {
        query = query.order_by(audit::Column::At, direction.clone());
    }
    let query = query.order_by(audit::Column::Id, direction);
    Ok(query.into_partial_model().all(&orm(on)).await?)
}

/// Whether an entry with this id exists.
pub async fn entry_exists(on: &mut PgConnection, id: i64) -> Result<bool, StoreError> {
    let query = audit::Entity::find_by_id(id).select_only().column(audit::Column::Id);
    let found: Option<i64> = query.into_tuple().one(&orm(on)).await?;
    Ok(found.is_some())
}

/// Entries of the chain after a position, in order.
pub async fn sealed(
    on: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<SealedEntry>, StoreError> {
    let rows: Vec<(i64, Vec<u8>, Vec<u8>, String)> = sqlx::query_as(
        "SELECT s.seq, s.prev_hash, s.hash, audit_content(a) FROM seal s JOIN audit a ON a.id = s.audit_id \
         WHERE s.seq > $1 ORDER BY s.seq LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(on)
    .await?;
    rows.into_iter()
        .map(|(seq, previous, own, content)| {
            Ok(SealedEntry {
                seq: seq.unsigned_abs(),
                previous: hash("seal.prev_hash", &previous)?,
                hash: hash("seal.hash", &own)?,
                content,
            })
        })
        .collect()
}

/// The position and hash of the last entry. `None`: nothing is sealed yet.
pub async fn last_seal(on: &mut PgConnection) -> Result<Option<(i64, Hash)>, StoreError> {
    read_seal(on, seal::Entity::find().order_by_desc(seal::Column::Seq)).await
}

/// The position and hash of an entry.
pub async fn seal_at(on: &mut PgConnection, seq: i64) -> Result<Option<(i64, Hash)>, StoreError> {
    read_seal(on, seal::Entity::find_by_id(seq)).await
}

async fn read_seal(
    on: &mut PgConnection,
    query: Select<seal::Entity>,
) -> Result<Option<(i64, Hash)>, StoreError> {
    let query = query.select_only().columns([seal::Column::Seq, seal::Column::Hash]);
    let row: Option<(i64, Vec<u8>)> = query.into_tuple().one(&orm(on)).await?;
    row.map(|(seq, bytes)| Ok((seq, hash("seal.hash", &bytes)?))).transpose()
}

/// The number of restores plus 1.
pub async fn epoch(on: &mut PgConnection) -> Result<i64, StoreError> {
    let query = head::Entity::find().select_only().column(head::Column::Epoch).into_tuple();
    let epoch: Option<i64> = query.one(&orm(on)).await?;
    epoch.ok_or_else(|| StoreError::corrupt("head", "there is no row"))
}

/// The number of unsealed entries, counted up to `limit`.
pub async fn unsealed(on: &mut PgConnection, limit: i64) -> Result<i64, StoreError> {
    let sql = "SELECT count(*) FROM (SELECT FROM audit_unsealed LIMIT $1) u";
    Ok(sqlx::query_scalar(sql).bind(limit).fetch_one(on).await?)
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;
    use time::macros::datetime;

    use super::*;

    #[tokio::test]
    async fn time_range_is_complete_after_clock_change() {
        let db = TestDatabase::new().await;
        // The clock was a day ahead for the tenth entry, which is far from the last one.
        let sql = "INSERT INTO audit (at, action, subject) \
                   SELECT timestamptz '2026-01-01 00:00Z' + make_interval(mins => n) + make_interval(days => (n = 10)::int), 'clock.set', n::text \
                   FROM generate_series(1, 30000) n";
        sqlx::query(sql).execute(db.owner()).await.unwrap();
        let mut on = db.app().acquire().await.unwrap();
        let (since, until) = (datetime!(2026-01-01 23:50 UTC), datetime!(2026-01-02 00:13 UTC));
        for ascending in [true, false] {
            let (mut subjects, mut after) = (Vec::new(), None);
            loop {
                let filter = AuditFilter {
                    action: Some("clock.set"),
                    since: Some(since),
                    until: Some(until),
                    ascending,
                    after,
                    ..AuditFilter::default()
                };
                let page = audit(&mut on, filter, 5).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                subjects.extend(page.iter().map(|row| row.subject.clone()));
            }
            let mut expected: Vec<String> =
                (1430..1450).map(|n| n.to_string()).chain(["10".into()]).collect();
            expected.extend((1450..1453).map(|n| n.to_string()));
            if !ascending {
                expected.reverse();
            }
            assert_eq!(subjects, expected);
        }
    }
}
