//! Reports the names of this worker's secrets, because files change while the worker runs.

use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use sqlx::PgPool;
use store::workers::{self, WorkerId};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::secrets::SecretFolder;

/// Delay between two attempts while the worker has no row yet.
const RETRY_DELAY: Duration = Duration::from_millis(250);

pub(crate) struct ReportSecrets {
    pub pool: PgPool,
    pub worker: WorkerId,
    pub folder: SecretFolder,
    pub period: Duration,
}

impl Task for ReportSecrets {
    fn name(&self) -> &'static str {
        "report-secrets"
    }

    fn purpose(&self) -> &'static str {
        "Reports the names and versions of the secrets in the worker's folder."
    }

    fn period(&self) -> Duration {
        self.period
    }

    async fn run(&mut self) -> TaskResult {
        let failed = "Cannot report the worker's secrets";
        loop {
            let folder = self.folder.clone();
            let known = spawn_blocking(move || folder.known()).await;
            let known = known.map_err(|error| Failure::logged(failed, error))?;
            let reported = workers::report_secrets(&self.pool, self.worker, &known).await;
            if reported.map_err(|error| Failure::logged(failed, error))? {
                let none = "The worker has no secrets.";
                let count = known.len() as u64;
                return Ok(Outcome::counted(count, "Reported", "secret", "secrets", none));
            }
            // The worker's row does not exist yet. The heartbeat inserts it.
            sleep(RETRY_DELAY).await;
        }
    }
}
