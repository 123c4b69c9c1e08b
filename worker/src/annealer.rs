//! The annealer: claims what may start, and ends what was lost.
//!
//! Every worker process runs one; the database sees to it that one at a time claims. It works when it is told that something may
//! have become admissible, and looks by itself every few seconds, because notifications get lost and time passes (backoffs end,
//! leases run out). It holds nothing between two looks.

use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::anneal::Limits;
use engine::ids::{RunId, StepId};
use serde_json::Value;
use sqlx::PgPool;
use store::housekeeping::keep_house;
use store::running::{self, Finished, Overdue, OverdueRun};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::jig::script::{Left, ScriptJig};
use crate::node_record;
use crate::objects::Objects;

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
    /// Documents of nodes.
    pub objects: Arc<Objects>,
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
    /// Anneals until it is dropped. Claiming never waits for the janitor, who may have to wait for nodes.
    pub async fn anneal(self) {
        tokio::join!(self.keep_claiming(), self.keep_clean());
    }

    async fn keep_claiming(&self) {
        let mut sweep = self.sweeps();
        loop {
            tokio::select! {
                () = self.todo.notified() => {}
                _ = sweep.tick() => {}
            }
            self.claim().await;
        }
    }

    async fn keep_clean(&self) {
        let mut sweep = self.sweeps();
        let mut kept = None;
        loop {
            sweep.tick().await;
            self.clean_up().await;
            if kept.is_none_or(|at: Instant| at.elapsed() >= HOUSEKEEPING) {
                kept = Some(Instant::now());
                if let Err(error) = keep_house(&self.pool).await {
                    tracing::warn!(%error, "the house could not be kept; trying again");
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
        match running::claim_runs(&self.pool, self.limits).await {
            Ok(claimed) if claimed.runs.is_empty() => {}
            Ok(claimed) => tracing::debug!(runs = claimed.runs.len(), "claimed"),
            Err(error) => tracing::warn!(%error, "nothing could be claimed; trying again"),
        }
    }

    /// Ends runs whose leases are over, and settles what a crash left between two batches. What can't be done is told and left: one
    /// broken row must not keep all others waiting.
    async fn clean_up(&self) {
        match running::settle_leftovers(&self.pool).await {
            Ok(0) => {}
            // What was freed may be claimed; whoever comes round next would see it, this is sooner.
            Ok(_) => self.todo.notify_one(),
            Err(error) => {
                tracing::warn!(%error, "what a crash left could not be settled; trying again")
            }
        }
        let overdue = running::overdue_runs(&self.pool, OVERDUE).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the janitor could not look for lost runs; trying again");
            Vec::new()
        });
        for overdue in overdue {
            let run = RunId(overdue.run);
            let found = match overdue.leased {
                false => Overdue::Queued,
                true if self.proves_unstarted(&overdue).await => Overdue::NeverStarted,
                true => Overdue::Lost,
            };
            match running::end_overdue_run(&self.pool, run, found).await {
                Ok(Finished::Applied) => tracing::warn!(%run, ?found, "a lost run was ended"),
                Ok(Finished::Late) => {
                    tracing::info!(%run, ?found, "a run that seemed lost goes on, or has ended")
                }
                Err(error) => {
                    tracing::error!(%run, %error, "a lost run could not be ended; trying again")
                }
            }
        }
    }

    /// Only a run that loses data is worth asking its node: all others are repeated anyway.
    async fn proves_unstarted(&self, overdue: &OverdueRun) -> bool {
        if !(overdue.destructive && overdue.on_node && overdue.jig == "script") {
            return false;
        }
        let (step, run) = (StepId(overdue.step), RunId(overdue.run));
        let asked = async {
            let hash = overdue.doc.as_deref().and_then(Hash::from_bytes);
            let row = overdue.connection.as_ref().unwrap_or(&Value::Null);
            let connection = node_record::connection_of(&self.objects, hash, row)
                .await
                .map_err(|e| e.to_string())?;
            self.script.end_lost(&connection, step, overdue.epoch, run).await
        };
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
