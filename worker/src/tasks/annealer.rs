//! The annealer claims runnable steps and ends lost runs.
//!
//! Every worker process runs an annealer. A database lock lets one claim at a time. A notification
//! activates it when a step may have become admissible. It also sweeps every few seconds, because
//! notifications get lost and time passes (backoffs end, leases expire). It keeps no state between
//! two runs.

use std::sync::Arc;
use std::time::Duration;

use background::{Activator, Failure, Outcome, Task, TaskResult};
use engine::Hash;
use engine::anneal::Limits;
use engine::catalog::JigClass;
use engine::ids::{RunId, StepId};
use serde_json::Value;
use sqlx::PgPool;
use store::StoreError;
use store::runs::{self, Finished, Overdue, OverdueRun};
use store::workers::WorkerId;
use tokio::time::Instant;

use crate::database::objects::Objects;
use crate::node::Nodes;
use crate::node::connection::record;
use crate::node::wrapper::LostRun;
use crate::queue::leases::Leases;

/// Maximum overdue runs that one run of the task ends.
const OVERDUE_BATCH: u32 = 100;

/// Time to ask a node whether a lost destructive run started. After that, the run counts as
/// started.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);

/// Claims the steps that may start.
pub struct ClaimSteps {
    pub pool: PgPool,
    /// Limits on concurrent runs over all workers.
    pub limits: Limits,
    /// Interval of the sweep that makes up for lost notifications.
    pub sweep: Duration,
}

impl Task for ClaimSteps {
    fn name(&self) -> &'static str {
        "claim-steps"
    }

    fn purpose(&self) -> &'static str {
        "Queues runs for the steps that may start. A notification starts it, too."
    }

    fn period(&self) -> Duration {
        self.sweep
    }

    async fn run(&mut self) -> TaskResult {
        let claimed = runs::claim_runs(&self.pool, self.limits).await;
        let claimed = claimed.map_err(|error| Failure::logged("Cannot claim steps", error))?;
        let none = match claimed.busy {
            true => "Another transaction holds the lock for claims.",
            false => "No step may start.",
        };
        Ok(Outcome::counted(claimed.runs.len() as u64, "Claimed", "step", "steps", none))
    }
}

/// Adopts or ends runs with expired leases, and repairs the state that a crash left between two
/// batches. It is a task of its own, because claiming must not wait for nodes.
///
/// Scripts continue on their node without their worker, so a run of scripts is adopted
/// ([`crate::node::wrapper`]). Other runs ended with their worker.
pub struct EndLostRuns {
    pub pool: PgPool,
    /// Cache of node documents.
    pub objects: Arc<Objects>,
    /// Interval of the sweep.
    pub sweep: Duration,
    /// Activated when ended runs may have freed capacity.
    pub claims: Activator,
    /// Asks nodes whether a lost run started.
    pub nodes: Arc<Nodes>,
    pub worker: WorkerId,
    /// Duration of a lease.
    pub lease: Duration,
    /// Runs that this worker leases. The queue continues the adopted ones.
    pub leases: Arc<Leases>,
    /// Maximum leased runs, including adopted ones that wait for a slot.
    pub most: usize,
}

impl Task for EndLostRuns {
    fn name(&self) -> &'static str {
        "end-lost-runs"
    }

    fn purpose(&self) -> &'static str {
        "Adopts or ends runs whose worker no longer renews their lease."
    }

    fn period(&self) -> Duration {
        self.sweep
    }

    /// One broken run does not block the others: its error is logged and skipped.
    async fn run(&mut self) -> TaskResult {
        // A worker that joins could not adopt the runs yet, and a draining one must not. So neither
        // may end them while another worker can adopt them.
        let may_end = store::workers::may_end_lost_runs(&self.pool, self.worker).await;
        if !may_end.map_err(|error| Failure::logged("Cannot find lost runs", error))? {
            return Ok(Outcome::from("The worker has not joined yet, or is draining.".to_owned()));
        }
        // The sweep of claims would notice freed capacity too, but later.
        let settled = runs::settle_leftovers(&self.pool).await;
        if !matches!(settled, Ok(0) | Err(_)) {
            self.claims.activate();
        }
        let overdue = runs::overdue_runs(&self.pool, OVERDUE_BATCH).await;
        let overdue = overdue.map_err(|error| Failure::logged("Cannot find lost runs", error))?;
        let mut ended = 0;
        for overdue in overdue {
            ended += u64::from(self.end(&overdue).await);
        }
        settled.map_err(|error| {
            Failure::logged("Cannot settle the claims of a crashed process", error)
        })?;
        Ok(Outcome::counted(ended, "Ended", "lost run", "lost runs", "No run is lost."))
    }
}

impl EndLostRuns {
    /// Returns whether the run was lost and is ended.
    async fn end(&self, overdue: &OverdueRun) -> bool {
        let run = RunId(overdue.run);
        match self.adopt(overdue).await {
            Ok(true) => return false,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%run, %error, "cannot adopt a lost run, retrying");
                return false;
            }
        }
        let finding = match overdue.leased {
            false => Overdue::Queued,
            true if self.proves_unstarted(overdue).await => Overdue::NeverStarted,
            true => Overdue::Lost,
        };
        match runs::end_overdue_run(&self.pool, run, finding).await {
            Ok(Finished::Applied) => {
                tracing::warn!(%run, ?finding, "ended a lost run");
                true
            }
            Ok(Finished::Late) => {
                tracing::info!(%run, ?finding, "a run that seemed lost is still running or has \
                    ended");
                false
            }
            Err(error) => {
                tracing::error!(%run, %error, "cannot end a lost run, retrying");
                false
            }
        }
    }

    /// Leases a run of scripts on a node to this worker, if it may be continued.
    async fn adopt(&self, overdue: &OverdueRun) -> Result<bool, StoreError> {
        if !(overdue.leased && on_node(overdue)) || self.leases.count() >= self.most {
            return Ok(false);
        }
        let (run, since) = (RunId(overdue.run), Instant::now());
        let adopted = runs::adopt_run(&self.pool, run, self.worker, self.lease).await?;
        let Some(adopted) = adopted else { return Ok(false) };
        tracing::info!(%run, "adopting a run whose worker was lost");
        self.leases.adopt(run, adopted, since, self.lease);
        Ok(true)
    }

    /// Asks the node whether a destructive run never started. Other lost runs are repeated without
    /// asking.
    async fn proves_unstarted(&self, overdue: &OverdueRun) -> bool {
        if !(overdue.destructive && on_node(overdue)) {
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

/// Whether a run executes scripts on its node, where its ledger lists it.
fn on_node(overdue: &OverdueRun) -> bool {
    overdue.on_node && overdue.jig == JigClass::Script.as_str()
}
