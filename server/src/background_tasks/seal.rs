//! Seals the audit. Workers seal too, but there may be no worker. Entries must be sealed soon, or
//! the seal proves little.

use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use sqlx::PgPool;
use store::housekeeping;

use crate::background_tasks::SWEEP_PERIOD;

pub(super) struct SealAudit(pub PgPool);

impl Task for SealAudit {
    fn name(&self) -> &'static str {
        "seal-audit"
    }

    fn purpose(&self) -> &'static str {
        "Adds new audit entries to the hash chain."
    }

    fn period(&self) -> Duration {
        SWEEP_PERIOD
    }

    async fn run(&mut self) -> TaskResult {
        let sealed = housekeeping::seal(&self.0).await;
        let sealed = sealed.map_err(|error| Failure::logged("Cannot seal the audit", error))?;
        let none = "All entries are sealed.";
        Ok(Outcome::counted(sealed.unsigned_abs().into(), "Sealed", "entry", "entries", none))
    }
}
