//! The annealer claims runnable steps and ends lost runs.
//!
//! Every worker process runs an annealer. A database lock lets one claim at a time. A notification
//! wakes it when a step may have become admissible. It also sweeps every few seconds, because
//! notifications get lost and time passes (backoffs end, leases expire). It keeps no state between
//! two passes.

use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::anneal::Limits;
use engine::catalog::JigClass;
use engine::ids::{RunId, StepId};
use serde_json::Value;
use sqlx::PgPool;
use store::housekeeping::run_housekeeping;
use store::runs::{Finished, Overdue, OverdueRun};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::database::objects::Objects;
use crate::node::Nodes;
use crate::node::connection::record;
use crate::node::wrapper::LostRun;

/// Maximum overdue runs that one pass of the janitor ends.
const OVERDUE_BATCH: u32 = 100;

/// Interval at which the janitor seals the audit chain, trims logs and deletes old events.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60);

/// Time to ask a node whether a lost destructive run started. After that, the run counts as
/// started.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Annealer {
    pub pool: PgPool,
    /// Cache of node documents.
    pub objects: Arc<Objects>,
    /// Limits on concurrent runs over all workers.
    pub limits: Limits,
    /// Interval of the sweep that makes up for lost notifications.
    pub sweep: Duration,
    /// Notified when a step may have become admissible.
    pub todo: Arc<Notify>,
    /// Asks nodes whether a lost run started.
    pub nodes: Arc<Nodes>,
}

impl Annealer {
    /// Runs until it is dropped. Claiming does not wait for the janitor, which may have to wait for
    /// nodes.
    pub async fn run(self) {
        tokio::join!(self.claim_loop(), self.cleanup_loop());
    }

    async fn claim_loop(&self) {
        let mut sweep = self.sweeps();
        loop {
            tokio::select! {
                () = self.todo.notified() => {}
                _ = sweep.tick() => {}
            }
            self.claim().await;
        }
    }

    async fn cleanup_loop(&self) {
        let mut sweep = self.sweeps();
        let mut last_housekeeping = None;
        loop {
            sweep.tick().await;
            self.clean_up().await;
            if last_housekeeping.is_none_or(|at: Instant| at.elapsed() >= HOUSEKEEPING_INTERVAL) {
                last_housekeeping = Some(Instant::now());
                if let Err(error) = run_housekeeping(&self.pool).await {
                    tracing::warn!(%error, "maintenance of the queue failed, retrying");
                }
            }
        }
    }

    fn sweeps(&self) -> Interval {
        let mut sweep = tokio::time::interval(self.sweep);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        sweep
    }

    async fn claim(&self) {
        match store::runs::claim_runs(&self.pool, self.limits).await {
            Ok(claimed) if claimed.runs.is_empty() => {}
            Ok(claimed) => tracing::debug!(runs = claimed.runs.len(), "claimed"),
            Err(error) => tracing::warn!(%error, "cannot claim steps, retrying"),
        }
    }

    /// Ends runs with expired leases, and repairs the state that a crash left between two batches.
    /// It logs and skips errors, so one broken row does not block the others.
    async fn clean_up(&self) {
        match store::runs::settle_leftovers(&self.pool).await {
            Ok(0) => {}
            // The ended runs may have freed capacity. The sweep would notice this too, but later.
            Ok(_) => self.todo.notify_one(),
            Err(error) => {
                tracing::warn!(%error, "cannot settle the claims of a crashed process, retrying")
            }
        }
        let overdue =
            store::runs::overdue_runs(&self.pool, OVERDUE_BATCH).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot look for lost runs, retrying");
                Vec::new()
            });
        for overdue in overdue {
            let run = RunId(overdue.run);
            let finding = match overdue.leased {
                false => Overdue::Queued,
                true if self.proves_unstarted(&overdue).await => Overdue::NeverStarted,
                true => Overdue::Lost,
            };
            match store::runs::end_overdue_run(&self.pool, run, finding).await {
                Ok(Finished::Applied) => tracing::warn!(%run, ?finding, "ended a lost run"),
                Ok(Finished::Late) => {
                    tracing::info!(%run, ?finding, "a run that seemed lost is still running or has \
                        ended")
                }
                Err(error) => {
                    tracing::error!(%run, %error, "cannot end a lost run, retrying")
                }
            }
        }
    }

    /// Asks the node whether a destructive run never started. Other lost runs are repeated without
    /// asking.
    async fn proves_unstarted(&self, overdue: &OverdueRun) -> bool {
        if !(overdue.destructive && overdue.on_node && overdue.jig == JigClass::Script.as_str()) {
            return false;
        }
        let (step, run) = (StepId(overdue.step), RunId(overdue.run));
        let query = async {
            let hash = overdue.doc.as_deref().and_then(Hash::from_bytes);
            let row = overdue.connection.as_ref().unwrap_or(&Value::Null);
            let connection = record::load_connection(&self.objects, hash, row)
                .await
                .map_err(|e| e.to_string())?;
            self.nodes.end_lost_run(&connection, step, overdue.epoch, run).await
        };
        match tokio::time::timeout(PROOF_TIMEOUT, query).await {
            Ok(Ok(state)) => state == LostRun::NeverStarted,
            Ok(Err(reason)) => {
                tracing::warn!(%run, reason, "cannot find out whether a lost run started on its \
                    node");
                false
            }
            Err(_) => false,
        }
    }
}
