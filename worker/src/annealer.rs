//! The annealer: claims what may start, and ends what was lost.
//!
//! Every worker process runs one; the database sees to it that one at a time claims. It works when it is told that something may
//! have become admissible, and looks by itself every few seconds, because notifications get lost and time passes (backoffs end,
//! leases run out). It holds nothing between two looks.

use std::sync::Arc;
use std::time::Duration;

use engine::anneal::Limits;
use engine::ids::{RunId, StepId};
use sqlx::PgPool;
use store::StoreError;
use store::housekeeping::keep_house;
use store::running::{self, OverdueRun};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use crate::jig::script::{Left, ScriptJig};

/// Most overdue runs that one look of the janitor ends.
const OVERDUE: u32 = 100;

/// How often the audit is sealed, room for logs is made and old events are forgotten.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// How long a destructive run that was lost waits for its node to say whether it started, before it counts as started.
const PROOF: Duration = Duration::from_secs(30);

/// The annealer.
pub struct Annealer {
    /// The database.
    pub pool: PgPool,
    /// Most runs at once, everywhere.
    pub limits: Limits,
    /// How often it looks without being told.
    pub sweep: Duration,
    /// Rung when something may be admissible.
    pub todo: Arc<Notify>,
    /// Asks nodes whether a lost run started.
    pub script: Arc<ScriptJig>,
}

impl Annealer {
    /// Anneals until it is dropped.
    pub async fn anneal(self) {
        let mut sweep = tokio::time::interval(self.sweep);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut cleaned, mut kept) = (None, None);
        loop {
            let told = tokio::select! {
                () = self.todo.notified() => true,
                _ = sweep.tick() => false,
            };
            let due = cleaned.is_none_or(|at: Instant| at.elapsed() >= self.sweep);
            if (!told || due)
                && let Err(error) = self.clean_up().await
            {
                tracing::warn!(%error, "the janitor could not look; trying again");
            }
            if due {
                cleaned = Some(Instant::now());
            }
            self.claim().await;
            if kept.is_none_or(|at: Instant| at.elapsed() >= HOUSEKEEPING) {
                kept = Some(Instant::now());
                if let Err(error) = keep_house(&self.pool).await {
                    tracing::warn!(%error, "the house could not be kept; trying again");
                }
            }
        }
    }

    async fn claim(&self) {
        match running::claim_runs(&self.pool, self.limits).await {
            Ok(claimed) if claimed.runs.is_empty() => {}
            Ok(claimed) => tracing::debug!(runs = claimed.runs.len(), "claimed"),
            Err(error) => tracing::warn!(%error, "nothing could be claimed; trying again"),
        }
    }

    /// Ends runs whose leases are over, and settles what a crash left between two batches.
    async fn clean_up(&self) -> Result<(), StoreError> {
        running::settle_leftovers(&self.pool).await?;
        for overdue in running::overdue_runs(&self.pool, OVERDUE).await? {
            let run = RunId(overdue.run);
            let never_started = !overdue.leased || self.proves_unstarted(&overdue).await;
            running::end_overdue_run(&self.pool, run, never_started).await?;
            tracing::warn!(%run, never_started, "a lost run was ended");
        }
        Ok(())
    }

    /// Only a run that loses data is worth asking its node: all others are repeated anyway.
    async fn proves_unstarted(&self, overdue: &OverdueRun) -> bool {
        if !(overdue.destructive && overdue.on_node && overdue.jig == "script") {
            return false;
        }
        let (step, run) = (StepId(overdue.step), RunId(overdue.run));
        let asked = self.script.end_lost(&overdue.connection, step, overdue.epoch, run);
        match tokio::time::timeout(PROOF, asked).await {
            Ok(Ok(left)) => left == Left::NeverStarted,
            Ok(Err(reason)) => {
                tracing::warn!(%run, reason, "a node could not say whether a lost run started");
                false
            }
            Err(_) => false,
        }
    }
}
