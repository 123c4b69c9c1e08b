//! What has to be done now and then, by whoever comes round: sealing the audit, making room for logs, forgetting old events.
//!
//! Each of these is one function of the database that takes its own lock, so several workers that come round at once do no harm.

use sqlx::PgPool;

use crate::StoreError;

/// Audit rows that one round seals.
const SEALS: i32 = 1_000;
/// Days for which events are kept: a live stream that was away for longer begins anew.
const EVENT_DAYS: i32 = 7;

/// Seals what of the audit is not sealed yet, a batch of it; says how much.
///
/// # Errors
/// What the database refused.
pub async fn seal(pool: &PgPool) -> Result<i32, StoreError> {
    Ok(sqlx::query_scalar("SELECT seal_audit($1)").bind(SEALS).fetch_one(pool).await?)
}

/// One round.
///
/// # Errors
/// What the database refused; what was done before stays done.
pub async fn keep_house(pool: &PgPool) -> Result<(), StoreError> {
    seal(pool).await?;
    sqlx::query("SELECT ensure_run_log_room()").execute(pool).await?;
    sqlx::query("SELECT forget_events(make_interval(days => $1))").bind(EVENT_DAYS).execute(pool).await?;
    Ok(())
}
