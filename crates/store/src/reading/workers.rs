//! Workers: each start of one is a row, which goes a week after its lease unless a run names it
//! ([`crate::housekeeping::forget_workers`]).

use api::listing::{Key, Order, WorkerSort};
use sqlx::{PgConnection, Postgres, QueryBuilder};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// A worker's row, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkerRow {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// How far it has joined.
    pub phase: String,
    /// Whether its lease holds and its capacity counts.
    pub alive: bool,
    /// Runs that it takes at once.
    pub capacity: i32,
    /// Runs that it holds.
    pub held: i64,
    /// The first of them, oldest first.
    pub runs: Vec<i64>,
    /// Classes of jigs.
    pub jigs: Vec<String>,
    /// Its machine.
    pub host: String,
    /// Its process there.
    pub pid: Option<i32>,
    /// Its build.
    pub version: String,
    /// When it started.
    pub started_at: OffsetDateTime,
    /// When it was heard last.
    pub heard_at: OffsetDateTime,
    /// Until when it counts without being heard again.
    pub lease_until: OffsetDateTime,
    /// Why it left.
    pub reason: Option<String>,
}

/// Which workers are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerFilter<'f> {
    /// Alive, or not.
    pub alive: Option<bool>,
    /// Of this phase.
    pub phase: Option<&'f str>,
    /// With this in the name.
    pub name: Option<&'f str>,
    /// In this order.
    pub order: Order<WorkerSort>,
    /// Behind the one with these keys, as they were: it may be gone by now, and its lease has moved.
    pub behind: Option<&'f [Key]>,
}

impl WorkerRow {
    /// Its keys in a list that is sorted by this.
    pub fn keys(&self, sort: WorkerSort) -> Vec<Key> {
        let id = Key::Text(self.id.to_string());
        match sort {
            WorkerSort::Started => vec![micros(self.started_at), id],
            // A lease is renewed whenever one is heard, and is as long for all.
            WorkerSort::Heard => vec![micros(self.lease_until), id],
            WorkerSort::Name => vec![Key::from(self.name.as_str())],
        }
    }
}

/// A moment as exactly as the database has it.
fn micros(at: OffsetDateTime) -> Key {
    Key::Number(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX))
}

/// The moment of a key. None: no calendar has it, so no row has it either.
fn moment(micros: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).ok()
}

fn rows(runs: i64) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(
        "SELECT w.id, w.name, w.phase, w.phase = 'confirmed' AND w.lease_until > now() AS alive, w.capacity, \
         (SELECT count(*) FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL) AS held, \
         ARRAY(SELECT r.id FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL ORDER BY r.id LIMIT ",
    );
    query.push_bind(runs).push(
        ") AS runs, w.jigs, w.host, w.pid, w.version, w.started_at, w.heard_at, w.lease_until, w.reason FROM worker w WHERE ",
    );
    query
}

/// Workers in an order; at most so many, each with so many of its runs.
pub async fn workers(
    on: &mut PgConnection,
    filter: WorkerFilter<'_>,
    most: i64,
    runs: i64,
) -> Result<Vec<WorkerRow>, StoreError> {
    let mut query = rows(runs);
    query.push("true");
    if let Some(alive) = filter.alive {
        query.push(" AND (w.phase = 'confirmed' AND w.lease_until > now()) = ").push_bind(alive);
    }
    if let Some(phase) = filter.phase {
        query.push(" AND w.phase = ").push_bind(phase);
    }
    if let Some(name) = filter.name {
        query.push(" AND position(").push_bind(name).push(" IN w.name) > 0");
    }
    let (sign, way) = if filter.order.falling { (" < (", "DESC") } else { (" > (", "ASC") };
    let (columns, ordered) = match filter.order.by {
        WorkerSort::Started => ("w.started_at, w.id", format!("w.started_at {way}, w.id {way}")),
        WorkerSort::Heard => ("w.lease_until, w.id", format!("w.lease_until {way}, w.id {way}")),
        WorkerSort::Name => ("w.name", format!("w.name {way}")),
    };
    match filter.behind {
        Some([Key::Text(name)]) => {
            query.push(" AND (").push(columns).push(")").push(sign).push_bind(name).push(")");
        }
        Some([Key::Number(at), Key::Text(id)]) => {
            let Some((at, id)) = moment(*at).zip(id.parse::<Uuid>().ok()) else {
                return Ok(Vec::new());
            };
            query
                .push(" AND (")
                .push(columns)
                .push(")")
                .push(sign)
                .push_bind(at)
                .push(", ")
                .push_bind(id)
                .push(")");
        }
        _ => {}
    }
    query.push(" ORDER BY ").push(ordered).push(" LIMIT ").push_bind(most);
    Ok(query.build_query_as().fetch_all(on).await?)
}

/// The worker that has this name; no two have one.
pub async fn worker_named(on: &mut PgConnection, name: &str) -> Result<Option<Uuid>, StoreError> {
    Ok(sqlx::query_scalar("SELECT id FROM worker WHERE name = $1")
        .bind(name)
        .fetch_optional(on)
        .await?)
}

/// One worker, with so many of its runs.
pub async fn worker(
    on: &mut PgConnection,
    id: Uuid,
    runs: i64,
) -> Result<Option<WorkerRow>, StoreError> {
    let mut query = rows(runs);
    query.push("w.id = ").push_bind(id);
    Ok(query.build_query_as().fetch_optional(on).await?)
}
