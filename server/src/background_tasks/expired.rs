//! Deletes expired rows in batches.

use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use sqlx::PgPool;
use store::{idempotency, people};

use crate::background_tasks::SWEEP_PERIOD;

pub(super) struct DeleteExpiredKeys(pub PgPool);

impl Task for DeleteExpiredKeys {
    fn name(&self) -> &'static str {
        "delete-expired-idempotency-keys"
    }

    fn purpose(&self) -> &'static str {
        "Deletes the keys and responses of repeatable requests after a day."
    }

    fn period(&self) -> Duration {
        SWEEP_PERIOD
    }

    async fn run(&mut self) -> TaskResult {
        let deleted = idempotency::delete_expired_keys(&self.0)
            .await
            .map_err(|error| Failure::logged("Cannot delete expired idempotency keys", error))?;
        Ok(Outcome::counted(deleted, "Deleted", "key", "keys", "No key has expired."))
    }
}

/// A person's own sessions are also deleted at their next sign-in. These belong to people who don't
/// return.
pub(super) struct DeleteExpiredSessions(pub PgPool);

impl Task for DeleteExpiredSessions {
    fn name(&self) -> &'static str {
        "delete-expired-sessions"
    }

    fn purpose(&self) -> &'static str {
        "Deletes expired sessions of people who have not signed in again."
    }

    fn period(&self) -> Duration {
        SWEEP_PERIOD
    }

    async fn run(&mut self) -> TaskResult {
        let deleted = people::delete_expired_sessions(&self.0).await;
        let deleted =
            deleted.map_err(|error| Failure::logged("Cannot delete expired sessions", error))?;
        Ok(Outcome::counted(deleted, "Deleted", "session", "sessions", "No session has expired."))
    }
}
