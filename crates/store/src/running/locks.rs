//! The advisory locks that everybody takes first, in this order.
//!
//! Imports have one of their own, which stands outside of it ([`crate::intent::lock_imports`]): whoever has that takes neither of these, and
//! whoever has one of these does not import.

use sqlx::PgConnection;

use crate::StoreError;

/// Whoever claims. Tried, never waited for: the holder hears the same notification.
pub(super) const CLAIM: i64 = migrations::CLAIM_LOCK;
/// Whoever applies a change takes it alone; claim, lease, finish and janitor share it.
pub(super) const APPLY: i64 = migrations::APPLY_LOCK;

/// Takes CLAIM until the transaction ends, if nobody has it.
pub(super) async fn try_claim(transaction: &mut PgConnection) -> Result<bool, StoreError> {
    let taken = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(CLAIM)
        .fetch_one(transaction)
        .await?;
    Ok(taken)
}

/// Takes APPLY until the transaction ends, together with others that share it.
///
/// # Errors
/// What the database refused.
pub async fn share_apply(transaction: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock_shared($1)").bind(APPLY).execute(transaction).await?;
    Ok(())
}

/// Takes APPLY alone until the transaction ends.
pub(super) async fn take_apply(transaction: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(APPLY).execute(transaction).await?;
    Ok(())
}
