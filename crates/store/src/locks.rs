//! The advisory locks that every transaction takes first, in this order.
//!
//! The lock of imports is separate ([`crate::catalog::lock_imports`]): no transaction takes it
//! together with one of these.

use sqlx::PgConnection;

use crate::StoreError;

/// The lock of claims. It is tried, never waited for, because the holder gets the same
/// notification.
pub(crate) const CLAIM_KEY: i64 = migrations::CLAIM_LOCK;
/// Commits take it exclusively. Claim, lease, finish and reaper share it.
pub(crate) const APPLY_KEY: i64 = migrations::APPLY_LOCK;

/// Takes CLAIM until the transaction ends. `false`: another transaction has it.
pub(crate) async fn try_claim(transaction: &mut PgConnection) -> Result<bool, StoreError> {
    let acquired = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(CLAIM_KEY)
        .fetch_one(transaction)
        .await?;
    Ok(acquired)
}

/// Takes APPLY until the transaction ends, shared with others.
pub async fn lock_apply_shared(transaction: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock_shared($1)")
        .bind(APPLY_KEY)
        .execute(transaction)
        .await?;
    Ok(())
}

/// Takes APPLY exclusively until the transaction ends.
pub(crate) async fn lock_apply_exclusive(transaction: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(APPLY_KEY).execute(transaction).await?;
    Ok(())
}
