//! Workers: each start of one is a row, which goes a week after its lease unless a run names it
//! ([`crate::housekeeping::forget_workers`]).

use api::workers::WorkerSort;
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
    /// In which order.
    pub sort: WorkerSort,
    /// Behind this one.
    pub before: Option<Uuid>,
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
    let (behind, order) = match filter.sort {
        WorkerSort::Started => (
            " AND (w.started_at, w.id) < (SELECT b.started_at, b.id FROM worker b WHERE b.id = ",
            " ORDER BY w.started_at DESC, w.id DESC LIMIT ",
        ),
        // A lease is renewed whenever one is heard, and is as long for all.
        WorkerSort::Heard => (
            " AND (w.lease_until, w.id) < (SELECT b.lease_until, b.id FROM worker b WHERE b.id = ",
            " ORDER BY w.lease_until DESC, w.id DESC LIMIT ",
        ),
        WorkerSort::Name => (" AND w.name > (SELECT b.name FROM worker b WHERE b.id = ", " ORDER BY w.name LIMIT "),
    };
    if let Some(before) = filter.before {
        query.push(behind).push_bind(before).push(")");
    }
    query.push(order).push_bind(most);
    Ok(query.build_query_as().fetch_all(on).await?)
}

/// One worker, with so many of its runs.
pub async fn worker(on: &mut PgConnection, id: Uuid, runs: i64) -> Result<Option<WorkerRow>, StoreError> {
    let mut query = rows(runs);
    query.push("w.id = ").push_bind(id);
    Ok(query.build_query_as().fetch_optional(on).await?)
}
