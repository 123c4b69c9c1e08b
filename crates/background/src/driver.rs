//! Runs tasks with their period, retries failures and catches panics.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::metrics::Metrics;
use crate::process::Process;
use crate::report;
use crate::status::{LastRun, Status, Statuses};
use crate::task::{Failure, Task, TaskResult};

/// Maximum delay after failures in a row, as a multiple of the period.
const MAX_BACKOFF_PERIODS: u32 = 8;
/// Maximum delay after failures in a row. A task with a longer period keeps its period.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Share of the period by which a run is delayed at random, at most. Processes that start together
/// would otherwise query the database together forever.
const JITTER: f64 = 0.1;

/// Starts a run of a task immediately. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Activator(Arc<Notify>);

impl Activator {
    /// Starts a run. If one is in progress, exactly one more follows, however often this is called.
    pub fn activate(&self) {
        self.0.notify_one();
    }
}

/// Runs the tasks of a process. If it is dropped, all tasks end.
#[derive(Debug)]
pub struct Driver {
    metrics: Metrics,
    statuses: Statuses,
    stopping: CancellationToken,
    running: JoinSet<()>,
}

impl Driver {
    /// The tasks end with `stopping`.
    pub fn new(metrics: Metrics, stopping: CancellationToken) -> Self {
        Self { metrics, statuses: Statuses::default(), stopping, running: JoinSet::new() }
    }

    /// Starts a task. Its first run begins immediately.
    pub fn add(&mut self, task: impl Task) -> Activator {
        self.add_until(CancellationToken::new(), task)
    }

    /// Starts a task that also ends with `signal`, before the driver stops.
    pub fn add_until(&mut self, signal: CancellationToken, task: impl Task) -> Activator {
        let activator = Activator::default();
        self.statuses.add(&task);
        let driving = drive(task, self.statuses.clone(), self.metrics.clone(), activator.clone());
        let stopping = self.stopping.clone();
        self.running.spawn(async move {
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                () = signal.cancelled() => {}
                () = driving => {}
            }
        });
        activator
    }

    /// Reports the status of all tasks to the database until the driver stops.
    pub fn report(&mut self, pool: PgPool, process: Process) {
        self.running.spawn(report::run(
            pool,
            process,
            self.statuses.clone(),
            self.stopping.clone(),
        ));
    }

    /// The status of each task, by name.
    pub fn status(&self) -> Vec<Status> {
        self.statuses.all()
    }

    /// Stops all tasks and waits until they have ended.
    pub async fn stop(mut self) {
        self.stopping.cancel();
        while self.running.join_next().await.is_some() {}
    }
}

async fn drive(mut task: impl Task, statuses: Statuses, metrics: Metrics, activator: Activator) {
    let (name, period, backs_off) = (task.name(), task.period(), task.backs_off());
    let (mut due, mut failures) = (Instant::now(), 0_u32);
    loop {
        tokio::select! {
            () = activator.0.notified() => {}
            () = sleep_until(due) => {}
        }
        let started = Instant::now();
        statuses.update(name, |status| {
            status.last_start = Some(started);
            status.next_due = None;
        });
        let run = AssertUnwindSafe(task.run()).catch_unwind();
        let run = run.instrument(tracing::info_span!("background task", task = name));
        let result = run
            .await
            .unwrap_or_else(|panic| Err(Failure::logged("The task panicked", reason(&*panic))));
        let ended = Instant::now();
        let took = ended - started;
        failures = if result.is_ok() { 0 } else { failures.saturating_add(1) };
        let delaying = if backs_off { failures } else { 0 };
        due = next_start(started, ended, period, delaying) + jitter(period);
        log(name, &result, failures, due - ended);
        metrics.count(name, result.is_ok(), took);
        statuses.update(name, |status| {
            status.last_run = Some(LastRun { ended, took, result });
            status.failures = failures;
            status.next_due = Some(due);
        });
    }
}

/// After a success, the period counts from the start of the run, and a run that took longer is
/// followed by the next one. After a failure, the delay counts from its end, because a run that
/// fails often takes as long as a timeout.
fn next_start(started: Instant, ended: Instant, period: Duration, failures: u32) -> Instant {
    match failures {
        0 => (started + period).max(ended),
        failures => ended + backoff(period, failures),
    }
}

/// The period after the first failure. It doubles with each further one up to a limit.
fn backoff(period: Duration, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1)).min(MAX_BACKOFF_PERIODS);
    (period * factor).min(MAX_BACKOFF).max(period)
}

fn jitter(period: Duration) -> Duration {
    period.mul_f64(rand::random_range(0.0..JITTER))
}

/// A failure that repeats is an error. A single one may be a restart of the database.
fn log(task: &str, result: &TaskResult, failures: u32, retry_in: Duration) {
    match (result, failures) {
        (Ok(outcome), _) => tracing::debug!(task, "{}", outcome.as_str()),
        (Err(failure), 1) => {
            tracing::warn!(task, ?retry_in, cause = failure.cause(), "{}", failure.text())
        }
        (Err(failure), _) => {
            tracing::error!(
                task,
                failures,
                ?retry_in,
                cause = failure.cause(),
                "{}",
                failure.text()
            )
        }
    }
}

/// The message of a panic.
fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests;
