//! Workers. Each start of a worker is a row. It is deleted a week after its lease unless a run
//! references it ([`crate::housekeeping::delete_old_workers`]).

use api::listing::{Key, Order, WorkerSort};
use sqlx::{PgConnection, Postgres, QueryBuilder};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// A worker with its leased runs.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkerRow {
    pub id: Uuid,
    pub name: String,
    /// The join phase.
    pub phase: String,
    /// Whether its lease is valid and its capacity counts.
    pub alive: bool,
    /// The maximum number of concurrent runs.
    pub capacity: i32,
    /// The number of leased runs.
    pub held: i64,
    /// The oldest leased runs.
    pub runs: Vec<i64>,
    /// Jig classes.
    pub jigs: Vec<String>,
    pub host: String,
    pub pid: Option<i32>,
    pub version: String,
    pub started_at: OffsetDateTime,
    /// The last renewal of its lease.
    pub last_heartbeat_at: OffsetDateTime,
    pub lease_until: OffsetDateTime,
    /// Why it ended.
    pub reason: Option<String>,
}

/// A filter for workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerFilter<'f> {
    pub alive: Option<bool>,
    pub phase: Option<&'f str>,
    /// Text in the name.
    pub name: Option<&'f str>,
    pub order: Order<WorkerSort>,
    /// Only workers after these keys. They are compared by value, because the worker may be gone
    /// and its lease renewed.
    pub behind: Option<&'f [Key]>,
}

impl WorkerRow {
    /// The sort keys of this worker.
    pub fn keys(&self, sort: WorkerSort) -> Vec<Key> {
        let id = Key::Text(self.id.to_string());
        match sort {
            WorkerSort::Started => vec![micros(self.started_at), id],
            // All leases are equally long, so they have the order of the last renewals.
            WorkerSort::Heard => vec![micros(self.lease_until), id],
            WorkerSort::Name => vec![Key::from(self.name.as_str())],
        }
    }
}

/// A time in microseconds, the precision of the database.
fn micros(at: OffsetDateTime) -> Key {
    Key::Number(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX))
}

/// The time of a key. `None`: outside of the calendar, so no row has it.
fn moment(micros: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).ok()
}

fn rows(runs: i64) -> QueryBuilder<Postgres> {
    QueryBuilder::new(format!(
        "SELECT w.id, w.name, w.phase, w.phase = 'confirmed' AND w.lease_until > now() AS alive, w.capacity, \
         (SELECT count(*) FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL) AS held, \
         ARRAY(SELECT r.id FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL ORDER BY r.id LIMIT {runs}) AS runs, \
         w.jigs, w.host, w.pid, w.version, w.started_at, w.last_heartbeat_at, w.lease_until, w.reason FROM worker w WHERE "
    ))
}

/// Workers in an order, each with up to `runs` of its runs.
pub async fn workers(
    connection: &mut PgConnection,
    filter: WorkerFilter<'_>,
    limit: i64,
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
    let (sign, direction) =
        if filter.order.descending { (" < (", "DESC") } else { (" > (", "ASC") };
    let (columns, order_by) = match filter.order.by {
        WorkerSort::Started => {
            ("w.started_at, w.id", format!("w.started_at {direction}, w.id {direction}"))
        }
        WorkerSort::Heard => {
            ("w.lease_until, w.id", format!("w.lease_until {direction}, w.id {direction}"))
        }
        WorkerSort::Name => ("w.name", format!("w.name {direction}")),
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
    query.push(" ORDER BY ").push(order_by).push(" LIMIT ").push_bind(limit);
    Ok(query.build_query_as().fetch_all(connection).await?)
}

/// The worker with this name, which is unique.
pub async fn worker_id_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<Uuid>, StoreError> {
    Ok(sqlx::query_scalar("SELECT id FROM worker WHERE name = $1")
        .bind(name)
        .fetch_optional(connection)
        .await?)
}

/// A worker with up to `runs` of its runs.
pub async fn worker(
    connection: &mut PgConnection,
    id: Uuid,
    runs: i64,
) -> Result<Option<WorkerRow>, StoreError> {
    let mut query = rows(runs);
    query.push("w.id = ").push_bind(id);
    Ok(query.build_query_as().fetch_optional(connection).await?)
}
