//! Workers. Each start of a worker is a row. It is deleted a week after its lease unless a run
//! references it ([`crate::housekeeping::delete_old_workers`]).

use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{
    ColumnTrait, EntityTrait, FromQueryResult, Iterable, QueryFilter, QuerySelect, Select,
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::connect::orm;
use crate::entity::worker;
use crate::list::ColumnType;
use crate::{Key, Page, Sort, StoreError};

/// A worker with its leased runs.
#[derive(Debug, Clone, PartialEq, Eq, FromQueryResult)]
pub struct WorkerRow {
    pub id: Uuid,
    pub name: String,
    /// The join phase.
    pub phase: String,
    /// Whether it has joined and its lease is valid.
    pub alive: bool,
    /// Whether its lease is valid, even if it has not joined yet.
    pub lease_valid: bool,
    /// The maximum number of concurrent runs.
    pub capacity: i32,
    /// The number of leased runs.
    pub leased: i64,
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
    /// Since when it takes no further runs.
    pub drain_since: Option<OffsetDateTime>,
    /// The name of the person who drains it.
    pub drain_by: Option<String>,
    pub drain_reason: Option<String>,
}

/// A filter for workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerFilter<'f> {
    pub alive: Option<bool>,
    /// Whether it takes no further runs.
    pub draining: Option<bool>,
    pub phase: Option<&'f str>,
    /// Text in the name.
    pub name: Option<&'f str>,
}

/// A cursor is compared by value, because the worker may be gone and its lease renewed.
impl WorkerRow {
    pub const BY_START: Sort<Self> = Sort {
        columns: &[("worker.started_at", ColumnType::Time), ("worker.id", ColumnType::Id)],
        keys: |row| vec![Key::from(row.started_at), Key::from(row.id)],
    };
    /// All leases are equally long, so they have the order of the last renewals.
    pub const BY_HEARTBEAT: Sort<Self> = Sort {
        columns: &[("worker.lease_until", ColumnType::Time), ("worker.id", ColumnType::Id)],
        keys: |row| vec![Key::from(row.lease_until), Key::from(row.id)],
    };
    pub const BY_NAME: Sort<Self> = Sort {
        columns: &[("worker.name", ColumnType::Text)],
        keys: |row| vec![Key::from(row.name.as_str())],
    };
}

/// Whether a worker has joined and its lease is valid.
const ALIVE: &str = "worker.phase = 'confirmed' AND worker.lease_until > now()";
const RUNS: &str = "FROM run r WHERE r.worker_id = worker.id AND r.ended_at IS NULL";

/// Workers, each with up to `runs` of its runs.
fn query(runs: u32) -> Select<worker::Entity> {
    worker::Entity::find()
        .select_only()
        .columns(
            worker::Column::iter().filter(|column| {
                !matches!(column, worker::Column::Secrets | worker::Column::DrainBy)
            }),
        )
        .expr_as(
            Expr::cust("(SELECT p.name FROM person p WHERE p.id = worker.drain_by)"),
            "drain_by",
        )
        .expr_as(Expr::cust(ALIVE), "alive")
        .expr_as(Expr::cust("worker.lease_until > now()"), "lease_valid")
        .expr_as(Expr::cust(format!("(SELECT count(*) {RUNS})")), "leased")
        .expr_as(
            Expr::cust(format!("ARRAY(SELECT r.id {RUNS} ORDER BY r.id LIMIT {runs})")),
            "runs",
        )
}

/// A page of workers, each with up to `runs` of its runs.
pub async fn workers(
    connection: &mut PgConnection,
    filter: WorkerFilter<'_>,
    page: &Page<WorkerRow>,
    runs: u32,
) -> Result<Vec<WorkerRow>, StoreError> {
    let mut query = page.of(query(runs));
    if let Some(alive) = filter.alive {
        let is_alive = Expr::cust(ALIVE);
        query = query.filter(if alive { is_alive } else { is_alive.not() });
    }
    if let Some(draining) = filter.draining {
        let since = worker::Column::DrainSince;
        query = query.filter(if draining { since.is_not_null() } else { since.is_null() });
    }
    if let Some(phase) = filter.phase {
        query = query.filter(worker::Column::Phase.eq(phase));
    }
    if let Some(name) = filter.name {
        query = query.filter(Expr::cust_with_values("position($1 IN worker.name) > 0", [name]));
    }
    Ok(query.into_model().all(&orm(connection)).await?)
}

/// The worker with this name, which is unique.
pub async fn worker_id_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<Uuid>, StoreError> {
    let query = worker::Entity::find().filter(worker::Column::Name.eq(name));
    let query = query.select_only().column(worker::Column::Id).into_tuple();
    Ok(query.one(&orm(connection)).await?)
}

/// A worker with up to `runs` of its runs.
pub async fn worker(
    connection: &mut PgConnection,
    id: Uuid,
    runs: u32,
) -> Result<Option<WorkerRow>, StoreError> {
    let query = query(runs).filter(worker::Column::Id.eq(id));
    Ok(query.into_model().one(&orm(connection)).await?)
}
