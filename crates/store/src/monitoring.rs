//! Runs and workers as metrics report them.

use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;

/// A position in the runs by the time of their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct EndCursor {
    pub ended_at: OffsetDateTime,
    pub id: i64,
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct EndedRun {
    #[sqlx(flatten)]
    pub cursor: EndCursor,
    pub outcome: String,
    /// Seconds from start to end. `None` if it never started.
    pub run_seconds: Option<f64>,
    /// Seconds in the queue before it started.
    pub queued: Option<f64>,
}

/// Load of a worker.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct WorkerLoad {
    pub name: String,
    pub capacity: i64,
    /// Number of leased runs.
    pub runs: i64,
    /// Seconds since its last heartbeat.
    pub heartbeat_age: f64,
    pub draining: bool,
}

/// The present end of the runs. [`ended_runs`] returns the runs that end later.
pub async fn end_of_runs(connection: &mut PgConnection) -> Result<EndCursor, StoreError> {
    let sql = "SELECT now() - interval '10 seconds' AS ended_at, 0::bigint AS id";
    Ok(sqlx::query_as(sql).fetch_one(connection).await?)
}

/// The next runs after a cursor, at most 10,000. A run becomes visible when its transaction
/// commits, which is later than its end. So runs of the last ten seconds follow later.
pub async fn ended_runs(
    connection: &mut PgConnection,
    after: EndCursor,
) -> Result<Vec<EndedRun>, StoreError> {
    let rows = sqlx::query_as(
        "SELECT id, ended_at, outcome, extract(epoch FROM ended_at - started_at)::float8 AS run_seconds, \
         extract(epoch FROM started_at - queued_at)::float8 AS queued FROM run \
         WHERE ended_at IS NOT NULL AND (ended_at, id) > ($1, $2) \
         AND ended_at < now() - interval '10 seconds' ORDER BY ended_at, id LIMIT 10000",
    )
    .bind(after.ended_at)
    .bind(after.id)
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// The workers whose lease is valid or expired within the last ten minutes, at most 200.
pub async fn worker_loads(connection: &mut PgConnection) -> Result<Vec<WorkerLoad>, StoreError> {
    let rows = sqlx::query_as(
        "SELECT w.name, w.capacity::bigint AS capacity, \
         (SELECT count(*) FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL) AS runs, \
         greatest(extract(epoch FROM now() - w.last_heartbeat_at), 0)::float8 AS heartbeat_age, \
         w.drain_since IS NOT NULL AS draining \
         FROM worker w WHERE w.phase = 'confirmed' AND w.lease_until > now() - interval '10 minutes' \
         ORDER BY w.lease_until DESC, w.id LIMIT 200",
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}
