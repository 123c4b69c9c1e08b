//! Renews the leases of the worker and of its runs.
//!
//! A lease is the only sign of a run's liveness for the rest of the system. Renewal is therefore a
//! task of its own. It renews after every third of a lease, and immediately when a user cancels a
//! run. Three conditions end a run here: the database reports that it is no longer leased by this
//! worker, a user canceled it, or its lease is about to expire unrenewed. The last one ends the run
//! slightly early. If it still overlaps with its successor, the lock on the node resolves that.

use std::sync::Arc;
use std::time::Duration;

use engine::ids::RunId;
use sqlx::PgPool;
use store::StoreError;
use store::workers::{NewWorker, Phase};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use crate::job::StopReason;
use crate::queue::leases::Leases;

/// Margin before the end of a lease at which an unrenewed run is ended.
fn margin(lease: Duration) -> Duration {
    lease / 6
}

pub struct Heartbeat {
    pub pool: PgPool,
    /// This worker's registration. Sent again if the worker's row has been deleted.
    pub hello: NewWorker,
    /// Duration of a lease.
    pub lease: Duration,
    /// Runs that this worker leases.
    pub leases: Arc<Leases>,
    /// Notified when a user cancels a run.
    pub cancelled: Arc<Notify>,
}

impl Heartbeat {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(self.lease / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Expiry is checked more often than leases are renewed. A lease must not expire unnoticed
        // while a statement hangs.
        let mut clock = tokio::time::interval((self.lease / 12).max(Duration::from_millis(20)));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One renewal at a time, never canceled midway. A partial registration is worse than a late
        // one.
        let mut beating = Box::pin(self.renew());
        let mut idle = false;
        let mut due = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => due = true,
                () = self.cancelled.notified() => due = true,
                _ = clock.tick() => self.stop_expired(),
                result = &mut beating, if !idle => {
                    idle = true;
                    if let Err(error) = result {
                        tracing::warn!(%error, "cannot renew leases, retrying");
                    }
                }
            }
            if idle && due {
                (idle, due) = (false, false);
                beating.set(self.renew());
            }
        }
    }

    fn stop_expired(&self) {
        for run in self.leases.stop_expired(Instant::now() + margin(self.lease)) {
            tracing::warn!(%run, "a lease was not renewed in time, so the run is ended here \
                because other workers may have it");
        }
    }

    async fn renew(&self) -> Result<(), StoreError> {
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
            return Ok(());
        }
        let renewed =
            store::runs::renew_runs(&self.pool, self.hello.id, &run_ids, self.lease).await?;
        for renewed in &renewed {
            self.leases.renewed(renewed.run, since, self.lease);
            if renewed.cancel {
                self.leases.stop(renewed.run, StopReason::Cancelled);
            }
        }
        let is_lost = |run: &&RunId| !renewed.iter().any(|renewed| renewed.run == **run);
        for run in run_ids.iter().filter(is_lost) {
            // A finished run is no longer in the register, so this stops only runs that the
            // database took away.
            self.leases.stop(*run, StopReason::LeaseLost);
        }
        Ok(())
    }
}
