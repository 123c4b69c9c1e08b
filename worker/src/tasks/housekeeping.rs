//! Maintenance of the tables that workers fill.

use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use sqlx::PgPool;
use store::housekeeping::run_housekeeping;

pub(crate) struct MaintainTables(pub PgPool);

impl Task for MaintainTables {
    fn name(&self) -> &'static str {
        "maintain-tables"
    }

    fn purpose(&self) -> &'static str {
        "Seals the audit, creates partitions for logs, and deletes old events and workers."
    }

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn run(&mut self) -> TaskResult {
        let done = run_housekeeping(&self.0).await;
        done.map_err(|error| Failure::logged("Cannot maintain the tables", error))?;
        Ok(Outcome::from("All tables are maintained."))
    }
}
