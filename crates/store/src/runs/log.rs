//! Logs of runs: bytes addressed by run and offset.

use std::time::Duration;

use engine::ids::RunId;
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::StoreError;
use crate::events::CHANNEL_LOG;
use crate::workers::WorkerId;

/// The end of a run's log, and the bytes of the run's streams that it contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPosition {
    pub log: u64,
    pub out: u64,
    pub err: u64,
}

/// Appends a chunk at its offset, and notifies viewers. A chunk that is sent twice
/// is stored once. A chunk of a worker whose run another worker adopted is dropped.
///
/// # Errors
///
/// The database fails. Nothing is stored, and the caller should send the chunk again.
pub async fn append_log(
    pool: &PgPool,
    run: RunId,
    worker: Option<WorkerId>,
    at: LogPosition,
    age: Duration,
    body: &[u8],
) -> Result<(), StoreError> {
    let LogPosition { log: offset, out, err } = at;
    let end = offset.cast_signed() + body.len().cast_signed() as i64;
    sqlx::query(include_str!("statements/append_log.sql"))
        .bind(run.0)
        .bind(offset.cast_signed())
        .bind(age.as_secs_f64())
        .bind(body)
        .bind(end)
        .bind(CHANNEL_LOG)
        .bind(worker.map(|worker| worker.0))
        .bind(out.cast_signed())
        .bind(err.cast_signed())
        .execute(pool)
        .await?;
    Ok(())
}

/// A chunk of a log.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LogPiece {
    /// The number of log bytes before it.
    pub at_offset: i64,
    /// When the worker received it.
    pub at: OffsetDateTime,
    /// The bytes, with complete lines except for very long ones. Not necessarily UTF-8.
    pub body: Vec<u8>,
}

/// The chunks of a log from `offset` to `until`, in order, at most `limit`. The first may begin
/// before `offset`, and the last may end after `until`. The cost depends on the result, not on the
/// size of the log.
pub async fn read_log_range(
    pool: &PgPool,
    run: RunId,
    offset: u64,
    until: u64,
    limit: u32,
) -> Result<Vec<LogPiece>, StoreError> {
    let chunks = sqlx::query_as(
        "SELECT at_offset, at, body FROM run_log
         WHERE run_id = $1 AND at_offset >= coalesce(
           (SELECT max(at_offset) FROM run_log WHERE run_id = $1 AND at_offset <= $2), 0)
           AND at_offset < $3 AND at_offset + length(body) > $2
         ORDER BY at_offset LIMIT $4",
    )
    .bind(run.0)
    .bind(offset.cast_signed())
    .bind(until.cast_signed())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(chunks)
}
