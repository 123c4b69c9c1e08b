//! Renewal of leases: the worker's own and those of its runs, in step.
//!
//! A lease is what others believe about a run while they can't ask its worker. So renewal runs by itself, beside whatever the worker
//! does: every third of a lease, and at once when somebody cancels. Three things end a run from here: the database says that it is
//! no longer ours; somebody cancelled it; or nothing could be renewed until the lease was over, after which others may have it
//! (the run is ended a little before, so that it never overlaps with its successor by more than the node's own lock sorts out).

use std::sync::Arc;
use std::time::Duration;

use engine::ids::RunId;
use sqlx::PgPool;
use store::StoreError;
use store::running::{self, Hello, Phase};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use crate::held::Held;
use crate::jig::StopReason;

/// How much earlier than its lease ends a run that could not be renewed is ended here.
fn margin(lease: Duration) -> Duration {
    lease / 6
}

/// What the heartbeat needs.
pub struct Heartbeat {
    /// The database.
    pub pool: PgPool,
    /// Who we are; said again when our row is gone.
    pub hello: Hello,
    /// How long a lease is good for.
    pub lease: Duration,
    /// Our runs.
    pub held: Arc<Held>,
    /// Rung when somebody cancelled a run.
    pub cancelled: Arc<Notify>,
}

impl Heartbeat {
    /// Beats until it is dropped.
    pub async fn beat(self) {
        let mut ticks = tokio::time::interval(self.lease / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Looked at more often than beaten: a lease must not end unseen while a statement hangs.
        let mut clock = tokio::time::interval((self.lease / 12).max(Duration::from_millis(20)));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One renewal at a time, and never one broken off: half a hello is worse than a late one.
        let mut beating = Box::pin(self.renew());
        let mut resting = false;
        let mut again = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => again = true,
                () = self.cancelled.notified() => again = true,
                _ = clock.tick() => self.stop_outdated(),
                done = &mut beating, if !resting => {
                    resting = true;
                    if let Err(error) = done {
                        tracing::warn!(%error, "leases could not be renewed; trying again");
                    }
                }
            }
            if resting && again {
                (resting, again) = (false, false);
                beating.set(self.renew());
            }
        }
    }

    fn stop_outdated(&self) {
        for run in self.held.stop_outdated(Instant::now() + margin(self.lease)) {
            tracing::warn!(%run, "a lease could not be renewed in time; the run is ended here, others may have it");
        }
    }

    async fn renew(&self) -> Result<(), StoreError> {
        let since = Instant::now();
        match running::renew_worker(&self.pool, self.hello.id, self.lease).await? {
            Some(Phase::Confirmed) => {}
            Some(Phase::Other) => running::confirm_worker(&self.pool, self.hello.id).await?,
            None => {
                running::ensure_worker(&self.pool, &self.hello, self.lease).await?;
                running::confirm_worker(&self.pool, self.hello.id).await?;
            }
        }
        let ours = self.held.ids();
        if ours.is_empty() {
            return Ok(());
        }
        let renewed = running::renew_runs(&self.pool, self.hello.id, &ours, self.lease).await?;
        for renewed in &renewed {
            self.held.renewed(renewed.run, since, self.lease);
            if renewed.cancel {
                self.held.stop(renewed.run, StopReason::Cancelled);
            }
        }
        let gone = |run: &&RunId| !renewed.iter().any(|renewed| renewed.run == **run);
        for run in ours.iter().filter(gone) {
            // A run that has just been finished is no longer held, so this finds only those that were taken from us.
            self.held.stop(*run, StopReason::NotOurs);
        }
        Ok(())
    }
}
