//! The queue as an apalis backend.
//!
//! Gantry uses apalis's worker builder, tower layers, monitor and shutdown. It does not use the
//! PostgreSQL backends of apalis. They would add a second source of truth (a jobs table next to
//! `run`) that loses or duplicates long jobs. Here, the `run` table *is* the queue.
//!
//! The traits of apalis-core 1.0 work for this under conditions that their types don't state. These
//! come from its source and from tests:
//!
//! * The worker polls for a task only after the service is ready. With a concurrency layer, nothing
//!   is leased without a free slot. One statement may lease as many runs as there are free slots
//!   ([`Leases::count`]).
//! * **An error from `poll_next` ends the worker and drops its running tasks.** A database failure
//!   therefore never becomes an error here. The polled future retries the query.
//! * **Heartbeats must not depend on polling**: a backend whose slots are all taken is not polled
//!   until one is free. A separate task ([`crate::tasks::heartbeat`]) renews the leases in the
//!   register.
//! * **Acknowledging is a tower layer** (`AcknowledgeLayer`). It is the outermost layer, so it also
//!   sees the results of the timeout and the panic catcher. apalis would only log its error. So
//!   [`Finish`] retries until the run is finished or no longer leased here.
//! * A worker polls all its tasks in one tokio task. They are spawned (`parallelize`) so that one
//!   can't delay another. Their handles abort on drop, because a dropped worker must not leave
//!   runs.
//! * At shutdown the worker stops polling, waits for its tasks, then calls `poll_close` until it is
//!   ready. `poll_close` completes a lease query in progress and returns the leased runs to the
//!   queue. Canceling the query could lose a lease that the database has granted.
//! * Notifications, freed slots and reconnections wake the queue through [`Leases::wake`], which
//!   stores one permit if no task waits. A sweep every [`QueueSettings::sweep`] makes up for lost
//!   notifications.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::error::BoxDynError;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::{RandomId, TaskId};
use apalis_core::task::{ExecutionContext, Task};
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::ack::{Acknowledge, AcknowledgeLayer};
use engine::catalog::JigClass;
use engine::ids::RunId;
use futures::FutureExt;
use futures::future::BoxFuture;
use sqlx::PgPool;
use store::runs::{Finished, RunEnd};
use store::workers::WorkerId;
use tokio::time::Instant;

use super::leases::{LeasedRun, Leases};
use crate::database::backoff::Backoff;
use crate::database::batching::Batcher;

/// The end of a run as its handler reports it. `None` if the run is no longer leased here, so there
/// is nothing to report.
pub type Report = Option<RunEnd>;

/// Settings for polling the queue.
#[derive(Debug, Clone)]
pub struct QueueSettings {
    pub worker: WorkerId,
    /// Maximum concurrent runs.
    pub capacity: usize,
    /// Duration of a lease.
    pub lease: Duration,
    /// Interval of the sweep that makes up for lost notifications.
    pub sweep: Duration,
}

pub struct RunQueue {
    inner: Arc<Inner>,
    leased: VecDeque<LeasedRun>,
    leasing: Option<BoxFuture<'static, Vec<LeasedRun>>>,
    closing: Option<BoxFuture<'static, ()>>,
}

/// Results of runs, written to the database in batches.
pub type RunEndBatcher = Batcher<(RunId, RunEnd), Finished>;

pub fn ends(pool: PgPool, worker: WorkerId) -> RunEndBatcher {
    Batcher::new(move |ends: Vec<(RunId, RunEnd)>| {
        let pool = pool.clone();
        async move {
            match ends.as_slice() {
                [(run, end)] => Ok(vec![store::runs::finish_run(&pool, *run, worker, end).await?]),
                _ => store::runs::finish_runs(&pool, worker, &ends).await,
            }
        }
        .boxed()
    })
}

struct Inner {
    pool: PgPool,
    ends: Arc<RunEndBatcher>,
    settings: QueueSettings,
    leases: Arc<Leases>,
    closed: AtomicBool,
}

impl RunQueue {
    pub fn new(
        pool: PgPool,
        settings: QueueSettings,
        leases: Arc<Leases>,
        ends: Arc<RunEndBatcher>,
    ) -> Self {
        let closed = AtomicBool::new(false);
        Self {
            inner: Arc::new(Inner { pool, ends, settings, leases, closed }),
            leased: VecDeque::new(),
            leasing: None,
            closing: None,
        }
    }
}

impl Inner {
    /// Waits for queued runs and leases them. Returns an empty list only if the queue is closed.
    async fn next(self: Arc<Self>) -> Vec<LeasedRun> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        while !self.closed.load(Ordering::Acquire) {
            let adopted = self.leases.claim_adopted();
            if !adopted.is_empty() {
                return adopted;
            }
            let free_slots = self.settings.capacity.saturating_sub(self.leases.count());
            if free_slots > 0 {
                match self.lease(free_slots).await {
                    Ok(leased) if !leased.is_empty() => return leased,
                    Ok(_) => backoff.reset(),
                    Err(error) => {
                        tracing::warn!(%error, "cannot query the queue, retrying");
                        backoff.pause().await;
                        continue;
                    }
                }
            }
            let _ = tokio::time::timeout(self.settings.sweep, self.leases.wake.notified()).await;
        }
        Vec::new()
    }

    async fn lease(&self, free_slots: usize) -> Result<Vec<LeasedRun>, store::StoreError> {
        let since = Instant::now();
        let limit = u32::try_from(free_slots).unwrap_or(u32::MAX);
        let settings = &self.settings;
        let jigs: Vec<&str> = JigClass::names().collect();
        let leased =
            store::runs::lease_runs(&self.pool, settings.worker, &jigs, limit, settings.lease)
                .await?;
        let leased = leased.into_iter().map(|leased| LeasedRun {
            run: leased.run,
            stop: self.leases.add(leased.run, since, settings.lease),
            adopted: None,
        });
        Ok(leased.collect())
    }

    /// Returns runs that never started to the queue.
    async fn return_runs(&self, runs: impl IntoIterator<Item = LeasedRun>) {
        for LeasedRun { run, adopted, .. } in runs {
            // It runs on its node. The end of this worker releases its lease.
            if adopted.is_some() {
                continue;
            }
            let result =
                store::runs::finish_run(&self.pool, run, self.settings.worker, &RunEnd::Unstarted)
                    .await;
            if let Err(error) = result {
                tracing::warn!(%run, %error, "cannot return a run to the queue, so its lease will \
                    expire");
            }
            self.leases.release(run);
        }
    }
}

impl Backend for RunQueue {
    type Task = Task<LeasedRun>;
    type Error = Infallible;

    fn poll_ready(
        &mut self,
        _: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Option<Result<Task<LeasedRun>, Infallible>>> {
        loop {
            if let Some(leased) = self.leased.pop_front() {
                let id = TaskId::from_int(leased.run.0.unsigned_abs());
                return Poll::Ready(Some(Ok(TaskBuilder::new(leased).task_id(id).build())));
            }
            let leasing =
                self.leasing.get_or_insert_with(|| Inner::next(Arc::clone(&self.inner)).boxed());
            let Poll::Ready(leased) = leasing.poll_unpin(cx) else {
                return Poll::Pending;
            };
            self.leasing = None;
            if leased.is_empty() {
                return Poll::Ready(None);
            }
            self.leased.extend(leased);
        }
    }

    fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        let closing = self.closing.get_or_insert_with(|| {
            let inner = Arc::clone(&self.inner);
            let (leasing, unstarted) = (self.leasing.take(), std::mem::take(&mut self.leased));
            inner.closed.store(true, Ordering::Release);
            inner.leases.wake.notify_one();
            async move {
                let last_runs = match leasing {
                    Some(leasing) => leasing.await,
                    None => Vec::new(),
                };
                inner.return_runs(unstarted.into_iter().chain(last_runs)).await;
            }
            .boxed()
        });
        closing.poll_unpin(cx).map(Ok)
    }
}

impl BackendConfig for RunQueue {
    type Args = LeasedRun;
    type Id = RandomId;
    type Kind = Ephemeral;
    type Config = QueueSettings;
    type Layer = AcknowledgeLayer<Finish>;

    fn config(&self) -> &QueueSettings {
        &self.inner.settings
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> Self::Layer {
        AcknowledgeLayer::new(Finish(Arc::clone(&self.inner)))
    }
}

/// The acknowledge layer: finishes the run of a task.
#[derive(Clone)]
pub struct Finish(Arc<Inner>);

impl Acknowledge<Report> for Finish {
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<(), Infallible>>;

    fn ack(
        &mut self,
        result: &Result<Report, BoxDynError>,
        task: &ExecutionContext,
    ) -> Self::Future {
        let inner = Arc::clone(&self.0);
        let run = task.task_id().and_then(TaskId::as_int).map(|id| RunId(id.cast_signed()));
        let end = match result {
            Ok(report) => report.clone(),
            // The error comes from a layer: a panic, or the worker's upper limit for a run.
            Err(error) => Some(RunEnd::failed(format!("The worker gave up the run: {error}"))),
        };
        async move {
            if let Some(run) = run {
                if let Some(end) = end {
                    inner.finish(run, &end).await;
                }
                inner.leases.release(run);
            }
            Ok(())
        }
        .boxed()
    }
}

impl Inner {
    /// Finishes a run. Retries until the database is available, but only while the run is leased
    /// here.
    async fn finish(&self, run: RunId, end: &RunEnd) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let started = Instant::now();
        loop {
            match self.ends.execute((run, end.clone())).await {
                Ok(Finished::Applied) => return,
                Ok(Finished::Late) => {
                    tracing::warn!(%run, "a run ended after its lease was lost, so its result is \
                        stored but not applied");
                    return;
                }
                Err(error) if started.elapsed() > MAX_RETRY_TIME => {
                    tracing::error!(%run, %error, "cannot finish a run for ten minutes, so it will \
                        count as lost");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%run, %error, "cannot finish a run, retrying");
                    backoff.pause().await;
                }
            }
        }
    }
}

/// Maximum time to retry writing the result of a run.
const MAX_RETRY_TIME: Duration = Duration::from_secs(600);
