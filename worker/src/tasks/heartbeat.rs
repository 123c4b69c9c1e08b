//! Renews the leases of the worker and of its runs.
//!
//! A lease is the only sign of a run's liveness for the rest of the system. Renewal is therefore a
//! task of its own. It renews after every third of a lease, and immediately when a user cancels a
//! run. Three conditions end a run here: the database reports that it is no longer leased by this
//! worker, a user canceled it, or its lease is about to expire unrenewed. The last one ends the run
//! slightly early. If it still overlaps with its successor, the lock on the node resolves that.

use std::sync::Arc;
use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use engine::ids::RunId;
use sqlx::PgPool;
use store::StoreError;
use store::workers::{NewWorker, Phase};
use tokio::time::Instant;

use crate::job::StopReason;
use crate::queue::leases::Leases;

/// Margin before the end of a lease at which an unrenewed run is ended.
fn margin(lease: Duration) -> Duration {
    lease / 6
}

/// Renews the leases of the worker and of its runs.
pub struct RenewLeases {
    pub pool: PgPool,
    /// This worker's registration. Sent again if the worker's row has been deleted.
    pub hello: NewWorker,
    /// Duration of a lease.
    pub lease: Duration,
    /// Runs that this worker leases.
    pub leases: Arc<Leases>,
}

impl Task for RenewLeases {
    fn name(&self) -> &'static str {
        "renew-leases"
    }

    fn purpose(&self) -> &'static str {
        "Renews the leases of this worker and its runs. Without it, other workers take over."
    }

    fn period(&self) -> Duration {
        self.lease / 3
    }

    /// A lease must not expire because of a delay.
    fn backs_off(&self) -> bool {
        false
    }

    async fn run(&mut self) -> TaskResult {
        let renewed = self.renew().await;
        let runs = renewed.map_err(|error| Failure::logged("Cannot renew leases", error))?;
        let none = "Renewed the lease of the worker.";
        Ok(Outcome::counted(
            runs as u64,
            "Renewed the leases of the worker and",
            "run",
            "runs",
            none,
        ))
    }
}

impl RenewLeases {
    /// Returns the number of renewed runs.
    async fn renew(&self) -> Result<usize, StoreError> {
        let since = Instant::now();
        match store::workers::renew_worker(&self.pool, self.hello.id, self.lease).await? {
            Some(Phase::Confirmed) => {}
            Some(Phase::Other) => store::workers::confirm_worker(&self.pool, self.hello.id).await?,
            None => {
                store::workers::ensure_worker(&self.pool, &self.hello, self.lease).await?;
                store::workers::confirm_worker(&self.pool, self.hello.id).await?;
            }
        }
        let run_ids = self.leases.ids();
        if run_ids.is_empty() {
            return Ok(0);
        }
        let renewed =
            store::runs::renew_runs(&self.pool, self.hello.id, &run_ids, self.lease).await?;
        for renewed in &renewed {
            self.leases.renewed(renewed.run, since, self.lease);
            if renewed.cancel {
                self.leases.stop(renewed.run, StopReason::Canceled);
            }
        }
        let is_lost = |run: &&RunId| !renewed.iter().any(|renewed| renewed.run == **run);
        for run in run_ids.iter().filter(is_lost) {
            // A finished run is no longer in the register, so this stops only runs that the
            // database took away.
            self.leases.stop(*run, StopReason::LeaseLost);
        }
        Ok(renewed.len())
    }
}

/// Ends runs whose lease is about to expire. Runs more often than leases are renewed, and while a
/// statement of a renewal hangs.
pub struct StopExpiredRuns {
    /// Duration of a lease.
    pub lease: Duration,
    /// Runs that this worker leases.
    pub leases: Arc<Leases>,
}

impl Task for StopExpiredRuns {
    fn name(&self) -> &'static str {
        "stop-expired-runs"
    }

    fn purpose(&self) -> &'static str {
        "Ends runs on this worker shortly before their lease expires unrenewed."
    }

    fn period(&self) -> Duration {
        (self.lease / 12).max(Duration::from_millis(20))
    }

    async fn run(&mut self) -> TaskResult {
        let expired = self.leases.stop_expired(Instant::now() + margin(self.lease));
        for run in &expired {
            tracing::warn!(%run, "a lease was not renewed in time, so the run is ended here \
                because other workers may have it");
        }
        let none = "No lease is about to expire.";
        Ok(Outcome::counted(expired.len() as u64, "Ended", "run", "runs", none))
    }
}
