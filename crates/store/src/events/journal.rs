//! The journal of events, in an order in which no event appears before one already read.
//!
//! An event gets its id when it is inserted, but becomes visible when its transaction commits. A
//! reader that remembers the last id would miss a lower id that a slow transaction commits later.
//! So events carry the id of their transaction and are read in the order (transaction, id). Readers
//! stop at the oldest open transaction (`pg_snapshot_xmin`). Every transaction below that horizon
//! has ended. So a [`Position`] once read is final, and a stream can resume after it without a gap.
//!
//! Invariants:
//! * [`read`] returns ascending positions, and later calls never return lower ones.
//! * An event becomes readable once all older writing transactions have ended. A long transaction
//!   delays the stream but causes no gap.
//! * A *cursor* ([`cursor`]) read before a page's data leads to every event that the data does not
//!   include. It may repeat some that it includes. Events are hints, so a repeated one does no
//!   harm.
//!
//! Transaction ids restart in a cluster that was restored from a dump, and old events are deleted.
//! Both invalidate a cursor, and [`resume`] reports that.

use std::fmt;
use std::str::FromStr;

use engine::ids::RunId;
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, Set};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::append::{CHANNEL_EVENT, notify};
use crate::StoreError;
use crate::connect::orm;
use crate::entity::{event, join, run, step};

/// A position in the journal. Everything up to and including it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The transaction, an `xid8`. It does not exceed 63 bits in practice.
    pub xid: i64,
    /// The event. 0: before the first event of the transaction.
    pub id: i64,
}

impl Position {
    /// The position of a page's cursor.
    pub fn from_cursor(cursor: i64) -> Self {
        Self { xid: cursor, id: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xid, self.id)
    }
}

/// A text that is not a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the cursor of a page or the ID of an event, such as `812-4031`")]
pub struct InvalidPosition;

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (xid, id) = text.split_once('-').unwrap_or((text, "0"));
        let number = |batch: &str| match batch.bytes().all(|b| b.is_ascii_digit()) {
            true => batch.parse().map_err(|_| InvalidPosition),
            false => Err(InvalidPosition),
        };
        Ok(Self { xid: number(xid)?, id: number(id)? })
    }
}

/// An event in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<E> {
    pub position: Position,
    /// `deployment:<id>`, `run:<id>`, or a word.
    pub topic: String,
    pub event: E,
}

/// A part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<E> {
    /// In journal order.
    pub entries: Vec<Entry<E>>,
    /// The start of the next part. It may be after the last entry, because events of an unknown
    /// kind are skipped.
    pub next: Position,
    /// Whether the limit cut off further events.
    pub more: bool,
    /// The horizon below which the journal is final, as a cursor.
    pub horizon: i64,
    /// Whether committed events wait for an older transaction to end.
    pub is_delayed: bool,
}

/// Whether a stream can resume at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// It can.
    There,
    /// The position is invalid (deleted, too old or from another database). Fetch everything again
    /// and continue from the given position.
    Reset(Position),
}

/// The cursor of a page. Read it before the page's data, or in the same snapshot.
pub async fn cursor(db: impl PgExecutor<'_>) -> Result<i64, StoreError> {
    let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
    Ok(sqlx::query_scalar(sql).fetch_one(db).await?)
}

type Row = (i64, bool, Option<i64>, Option<i64>, Option<String>, Option<String>, Option<Value>);

/// The events after a position, at most `limit`.
pub async fn read<E: DeserializeOwned>(
    pool: &PgPool,
    after: Position,
    limit: i64,
) -> Result<Batch<E>, StoreError> {
    // One statement, so that the horizon and the events come from one snapshot.
    let rows: Vec<Row> = sqlx::query_as(
        "WITH line AS MATERIALIZED (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid)
         SELECT line.xid::text::bigint, EXISTS (SELECT FROM event later WHERE later.xid >= line.xid),
                e.xid::text::bigint, e.id, e.topic, e.kind, e.body
         FROM line LEFT JOIN LATERAL (
           SELECT * FROM event
           WHERE (xid, id) > ($1::text::xid8, $2) AND xid < line.xid ORDER BY xid, id LIMIT $3) e ON true
         ORDER BY e.xid, e.id",
    )
    .bind(after.xid.to_string())
    .bind(after.id)
    .bind(limit)
    .fetch_all(pool)
    .await?;
    let (horizon, is_delayed) = rows.first().map_or((after.xid, false), |row| (row.0, row.1));
    let mut batch = Batch { entries: Vec::new(), next: after, more: false, horizon, is_delayed };
    let mut read = 0;
    for (_, _, xid, id, topic, kind, body) in rows {
        let (Some(xid), Some(id), Some(topic), Some(kind), Some(body)) =
            (xid, id, topic, kind, body)
        else {
            continue;
        };
        read += 1;
        batch.next = Position { xid, id };
        match parse(&kind, body) {
            Ok(event) => batch.entries.push(Entry { position: batch.next, topic, event }),
            Err(reason) => {
                tracing::debug!(position = %batch.next, kind, %reason, "skipped an unknown event")
            }
        }
    }
    batch.more = read == limit;
    Ok(batch)
}

/// A row stores the kind in its own column and the other fields in the body.
fn parse<E: DeserializeOwned>(kind: &str, mut body: Value) -> Result<E, serde_json::Error> {
    if let Some(fields) = body.as_object_mut() {
        fields.insert("kind".into(), kind.into());
    }
    serde_json::from_value(body)
}

/// Whether a stream can resume at a position with at most `max_missed` missed events.
pub async fn resume(pool: &PgPool, after: Position, max_missed: i64) -> Result<Resume, StoreError> {
    let (horizon, deleted_xid, deleted_id, missed): (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, forgotten.xid::text::bigint, forgotten.id,
                (SELECT count(*) FROM (
                   SELECT FROM event WHERE (xid, id) > ($1::text::xid8, $2) LIMIT $3) few)
         FROM event_cutoff forgotten",
    )
    .bind(after.xid.to_string())
    .bind(after.id)
    .bind(max_missed.saturating_add(1))
    .fetch_one(pool)
    .await?;
    let is_foreign = after.xid > horizon;
    let forgotten = after < Position { xid: deleted_xid, id: deleted_id };
    match is_foreign || forgotten || missed > max_missed {
        true => Ok(Resume::Reset(Position::from_cursor(horizon))),
        false => Ok(Resume::There),
    }
}

/// The states and log sizes of these runs, as events.
pub async fn lengths<E: DeserializeOwned>(
    pool: &PgPool,
    runs: &[RunId],
) -> Result<Vec<E>, StoreError> {
    type Row = (i64, Uuid, String, Option<String>, i64);
    let mut connection = pool.acquire().await?;
    let rows: Vec<Row> = run::Entity::find()
        .join(JoinType::InnerJoin, join(run::Column::StepId, step::Column::Id))
        .filter(run::Column::Id.eq_any(runs.iter().map(|run| run.0)))
        .order_by_asc(run::Column::Id)
        .select_only()
        .column(run::Column::Id)
        .column(step::Column::NoderoleId)
        .columns([run::Column::State, run::Column::Outcome, run::Column::LogBytes])
        .into_tuple()
        .all(&orm(&mut connection))
        .await?;
    let events = rows.into_iter().filter_map(|(run, noderole, state, outcome, log_bytes)| {
        let state = outcome.unwrap_or(state);
        let body = serde_json::json!({"run": run, "noderole": noderole, "state": state, "log_bytes": log_bytes});
        parse("run", body).ok()
    });
    Ok(events.collect())
}

/// Appends an event and notifies listeners. Both take effect when the transaction commits.
///
/// # Errors
///
/// The database fails, or the event cannot be written as JSON.
pub async fn append_event(
    db: &mut PgConnection,
    topic: &str,
    subject: &str,
    content: &impl Serialize,
) -> Result<(), StoreError> {
    let corrupt =
        |reason: &dyn fmt::Display| StoreError::corrupt(format!("event of {topic}"), reason);
    let mut body = serde_json::to_value(content).map_err(|e| corrupt(&e))?;
    let kind = body.as_object_mut().and_then(|fields| fields.remove("kind"));
    let kind =
        kind.as_ref().and_then(Value::as_str).ok_or_else(|| corrupt(&"the event has no kind"))?;
    let row = event::ActiveModel {
        topic: Set(topic.to_owned()),
        subject: Set(subject.to_owned()),
        kind: Set(kind.to_owned()),
        body: Set(body),
        ..Default::default()
    };
    event::Entity::insert(row).exec_without_returning(&orm(db)).await?;
    notify(db, CHANNEL_EVENT, "").await
}

/// Appends an event to the journal under each topic. Clients receive it when the transaction
/// commits.
pub async fn append_event_to_topics(
    connection: &mut PgConnection,
    topics: &[impl fmt::Display],
    event: &impl Serialize,
) -> Result<(), StoreError> {
    for topic in topics {
        append_event(connection, &topic.to_string(), "", event).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ids::{BlueprintNumber, NoderoleId};
    use serde::Deserialize;
    use testdb::TestDatabase;

    /// Two kinds of events, in the form of `api::live::Live`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Live {
        Blueprint { blueprint: BlueprintNumber },
        Step { noderole: NoderoleId, state: String },
    }

    const START: Position = Position { xid: 0, id: 0 };

    fn target(number: i64) -> Live {
        Live::Blueprint { blueprint: BlueprintNumber(number) }
    }

    fn lives(batch: &Batch<Live>) -> Vec<Live> {
        batch.entries.iter().map(|entry| entry.event.clone()).collect()
    }

    #[test]
    fn position_round_trips_and_rejects_other_text() {
        for place in [START, Position { xid: 7, id: 12 }, Position::from_cursor(99)] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        assert_eq!("99".parse(), Ok(Position::from_cursor(99)));
        for text in ["", "-", "1-", "-1", "1-2-3", "+1-2", "x", "1-99999999999999999999"] {
            assert_eq!(text.parse::<Position>(), Err(InvalidPosition), "{text:?}");
        }
    }

    #[tokio::test]
    async fn late_commit_of_older_transaction_is_read() {
        let db = TestDatabase::new().await;
        let mut slow = db.app().begin().await.expect("a transaction");
        append_event(&mut slow, "target", "1", &target(1)).await.expect("an event");
        let mut fast = db.app().begin().await.expect("a transaction");
        append_event(&mut fast, "target", "2", &target(2)).await.expect("an event");
        fast.commit().await.expect("a commit");

        let before = read(db.app(), START, 10).await.expect("the journal");
        assert_eq!(lives(&before), []);
        assert!(before.is_delayed);
        slow.commit().await.expect("a commit");

        let after = eventually(&db, before.next, 2).await;
        assert_eq!(lives(&after), [target(1), target(2)]);
        assert_eq!(lives(&read(db.app(), after.next, 10).await.expect("the journal")), []);
    }

    /// Transactions of other tests in the same cluster briefly hold back the horizon.
    async fn eventually(db: &TestDatabase, after: Position, count: usize) -> Batch<Live> {
        for _ in 0..400 {
            let batch = read(db.app(), after, 10).await.expect("the journal");
            if batch.entries.len() >= count {
                return batch;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        panic!("the journal did not return {count} events within 10 s")
    }

    #[tokio::test]
    async fn parts_join_and_skip_unknown_events() {
        let db = TestDatabase::new().await;
        for number in 1..=7 {
            let mut one = db.app().begin().await.expect("a transaction");
            append_event(&mut one, "target", "", &target(number)).await.expect("an event");
            if number == 3 {
                let unknown =
                    "INSERT INTO event (topic, kind, body) VALUES ('x', 'of tomorrow', '{}')";
                sqlx::query(unknown).execute(&mut *one).await.expect("an event");
            }
            one.commit().await.expect("a commit");
        }
        eventually(&db, START, 7).await;
        let (mut all, mut place, mut more) = (Vec::new(), START, true);
        while more {
            let batch = read(db.app(), place, 2).await.expect("the journal");
            all.extend(lives(&batch));
            (place, more) = (batch.next, batch.more);
        }
        assert_eq!(all, (1..=7).map(target).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn event_kind_is_read_from_column_or_body() {
        let db = TestDatabase::new().await;
        let noderole = NoderoleId(Uuid::from_u128(5));
        let step = Live::Step { noderole, state: "active".to_owned() };
        for body in [
            serde_json::json!({"noderole": noderole, "state": "active"}),
            serde_json::to_value(&step).expect("JSON"),
        ] {
            let sql = "INSERT INTO event (topic, kind, body) VALUES ('deployment:x', 'step', $1)";
            sqlx::query(sql).bind(body).execute(db.app()).await.expect("an event");
        }
        assert_eq!(lives(&eventually(&db, START, 2).await), [step.clone(), step]);
    }

    /// Events are numbered on insert and ordered by transaction, so the first event need not have
    /// number one.
    #[tokio::test]
    async fn resume_works_if_first_event_is_not_one() {
        let db = TestDatabase::new().await;
        let before = Position::from_cursor(cursor(db.app()).await.expect("a cursor"));
        let mut elder = db.app().begin().await.expect("a transaction");
        sqlx::query("SELECT pg_current_xact_id()").execute(&mut *elder).await.expect("a number");
        let mut younger = db.app().begin().await.expect("a transaction");
        append_event(&mut younger, "target", "", &target(1)).await.expect("an event");
        append_event(&mut elder, "target", "", &target(2)).await.expect("an event");
        elder.commit().await.expect("a commit");
        assert_eq!(
            resume(db.app(), before, 10).await.expect("an answer"),
            Resume::There,
            "the first transaction is still open"
        );
        younger.commit().await.expect("a commit");
        let batch = eventually(&db, before, 2).await;
        assert_eq!(lives(&batch), [target(2), target(1)]);
        assert_eq!(resume(db.app(), before, 10).await.expect("an answer"), Resume::There);
    }

    #[tokio::test]
    async fn invalid_cursor_is_detected() {
        let db = TestDatabase::new().await;
        for number in 1..=4 {
            let mut one = db.app().begin().await.expect("a transaction");
            append_event(&mut one, "target", "", &target(number)).await.expect("an event");
            one.commit().await.expect("a commit");
        }
        let all = eventually(&db, START, 4).await;
        let goes_on = async |place, max_missed| {
            resume(db.app(), place, max_missed).await.expect("an answer") == Resume::There
        };
        assert!(goes_on(START, 4).await);
        assert!(!goes_on(START, 3).await, "the journal has too many events to catch up on");
        assert!(
            !goes_on(Position::from_cursor(all.horizon + 1_000_000), 10).await,
            "the cursor belongs to another database"
        );

        let old = "INSERT INTO event (topic, kind, body, at) VALUES ('x', 'y', '{}', now() - interval '9 days') RETURNING id";
        let forgotten: i64 =
            sqlx::query_scalar(old).fetch_one(db.owner()).await.expect("an old event");
        assert!(goes_on(START, 10).await);
        sqlx::query("SELECT forget_events(interval '2 days')")
            .execute(db.worker())
            .await
            .expect("old events are deleted");
        assert!(!goes_on(START, 10).await, "the events after the cursor were deleted");
        assert!(!goes_on(all.next, 10).await, "a deleted event is not returned");
        // Open transactions of other tests in the cluster briefly hold back the cursor.
        let can_resume_from_now = async || {
            let now = Position::from_cursor(cursor(db.app()).await.expect("a cursor"));
            goes_on(now, 10).await
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !can_resume_from_now().await {
            assert!(
                std::time::Instant::now() < deadline,
                "a reader without a cursor learns that events are missing"
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(forgotten > 4);
    }
}
