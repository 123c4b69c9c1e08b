//! The worker executes approved runs.
//!
//! One process shares one connection pool between five tasks. They share only the register of
//! leased runs ([`held`]), notifiers and the SSH connections to nodes.
//! * The annealer ([`annealer`]) claims runnable steps and ends lost runs.
//! * The queue ([`backend`]) leases queued runs to an apalis worker as slots become free.
//! * The heartbeat ([`heartbeat`]) renews leases and stops runs that this worker no longer leases.
//! * Health checks ([`looking`]) test whether nodes are reachable.
//! * The listener ([`listen`]) wakes the other tasks.
//!
//! A run goes through four phases: lease, verify and prepare the input ([`prepare`]), execute with
//! a jig ([`jig`]), finish. The worker only reports the result. One transaction in the store
//! decides the step's next state.
//!
//! Invariants:
//! * Any part may die at any moment. The database and the node have enough state to continue.
//! * If the worker can't renew a lease, it ends the run before another worker may lease it.
//! * A database error never ends a worker. It waits and retries.
//! * Shutdown is graceful: the worker stops leasing, waits for the grace period, then ends the
//!   remaining runs and returns them to the queue.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis::prelude::{Monitor, WorkerBuilder};
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use engine::anneal::Limits;
use sqlx::PgPool;
use store::workers::{NewWorker, WorkerId};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub mod annealer;
pub mod backend;
mod backoff;
pub mod boot;
pub mod heartbeat;
pub mod held;
pub mod jig;
pub mod listen;
pub mod log;
pub mod looking;
pub mod node_record;
pub mod objects;
pub mod prepare;
pub mod reach;
pub mod runner;
pub mod secrets;
mod signatures;
pub mod together;

use annealer::Annealer;
use backend::{Asking, RunQueue};
use heartbeat::Heartbeat;
use held::Held;
use jig::script::ScriptJig;
use jig::{Jigs, StopReason};
use listen::Bells;
use looking::Looking;
use objects::Objects;
use prepare::Preparing;
use reach::Reachable;
use runner::Runner;
use secrets::{SecretFolder, SecretSource};

/// Settings of a worker process.
#[derive(Debug, Clone)]
pub struct Config {
    /// Display name. Each start appends a unique suffix.
    pub name: String,
    /// Maximum concurrent runs in this process.
    pub capacity: u32,
    /// Maximum concurrent runs over all workers (`GANTRY_MAX_RUNNING`).
    pub max_running: u32,
    /// Duration of a lease. The worker renews it after a third of this time.
    pub lease: Duration,
    /// Interval of the sweep that makes up for lost notifications.
    pub sweep: Duration,
    /// Health check interval of each node that is reached over a network.
    pub health_check_interval: Duration,
    /// Time that running jobs have to finish after shutdown begins.
    pub grace_period: Duration,
    /// Upper limit for the duration of any run. It overrides the timeout of the role.
    pub max_run_time: Duration,
    /// Folder for runs that execute for a node but not on it.
    pub folder: PathBuf,
    /// Folder of secrets, `<name>/<version>` (`GANTRY_SECRETS`).
    pub secrets: Option<PathBuf>,
    /// Whether a node may be on this host, at a loopback address or one of the host's own addresses
    /// (`GANTRY_ALLOW_LOOPBACK_NODES`).
    pub local_nodes: bool,
}

impl Config {
    /// Defaults: 10 concurrent runs, one-minute leases, a sweep every five seconds, a grace period
    /// of ten seconds, and a limit of one day per run.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            name: "worker".to_owned(),
            capacity: 10,
            max_running: 10,
            lease: Duration::from_secs(60),
            sweep: Duration::from_secs(5),
            health_check_interval: Duration::from_secs(10),
            grace_period: Duration::from_secs(10),
            max_run_time: Duration::from_secs(24 * 3600),
            folder: folder.into(),
            secrets: None,
            local_nodes: false,
        }
    }
}

/// Why a worker process ended on its own.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The apalis monitor failed.
    #[error("The worker's monitor ended: {0}")]
    Monitor(#[from] apalis::prelude::MonitorError),
}

/// Time after the grace period to end the last runs. After that, the process exits anyway.
const FINAL_STOP_TIME: Duration = Duration::from_secs(20);

/// Runs one worker process until `shutdown` resolves, then stops it gracefully.
///
/// The database may be unavailable at the start and at any later time.
///
/// # Errors
/// Returns only unrecoverable errors. An unavailable database is not one of them.
pub async fn run(
    config: Config,
    pool: PgPool,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), WorkerError> {
    let hello = hello(&config);
    let (held, todo, cancelled) =
        (Arc::new(Held::default()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let objects = Arc::new(Objects::of(pool.clone()));
    let secrets: Arc<dyn SecretSource> = Arc::new(SecretFolder(config.secrets.clone()));
    let reachable = Reachable::beside(&pool, config.local_nodes);
    let script = Arc::new(ScriptJig::new(
        objects.clone(),
        secrets.clone(),
        config.folder.join("on-behalf"),
        reachable,
    ));
    let runner = Arc::new(Runner {
        preparer: Preparing::new(pool.clone(), hello.id, objects.clone(), secrets),
        jigs: Jigs::new(script.clone()),
    });
    let notifiers = Bells { held: held.clone(), todo: todo.clone(), cancelled: cancelled.clone() };
    let limits =
        Limits { running: config.max_running, batch: Limits::default().batch.max(config.capacity) };
    let looking = Looking::new(
        pool.clone(),
        objects.clone(),
        script.clone(),
        config.health_check_interval,
        hello.name.clone(),
    );
    let annealer =
        Annealer { pool: pool.clone(), objects, limits, sweep: config.sweep, todo, script };
    let heartbeat = Heartbeat {
        pool: pool.clone(),
        hello: hello.clone(),
        lease: config.lease,
        held: held.clone(),
        cancelled,
    };

    let _listener = AbortOnDropHandle::new(tokio::spawn(notifiers.listen(pool.clone())));
    let _heartbeat = AbortOnDropHandle::new(tokio::spawn(heartbeat.beat()));
    let reporting = report_secrets(
        pool.clone(),
        hello.id,
        SecretFolder(config.secrets.clone()),
        config.lease / 3,
    );
    let _reporting = AbortOnDropHandle::new(tokio::spawn(reporting));
    let _looking = AbortOnDropHandle::new(tokio::spawn(looking.look()));
    let annealing = AbortOnDropHandle::new(tokio::spawn(annealer.anneal()));
    tracing::info!(worker = %hello.name, capacity = config.capacity, "worker started");

    let monitor = monitor(&config, &pool, &hello, &held, &runner);
    let shutdown_begun = Notify::new();
    let signal = async {
        shutdown.await;
        tracing::info!(worker = %hello.name, running = held.count(), "worker is stopping");
        shutdown_begun.notify_one();
        Ok(())
    };
    let forced_stop = async {
        shutdown_begun.notified().await;
        annealing.abort();
        stop_after_grace(&config, &held).await;
        std::future::pending().await
    };
    let result = tokio::select! {
        result = monitor.run_with_signal(signal) => result,
        never = forced_stop => never,
    };
    if let Err(error) = store::workers::end_worker(&pool, hello.id, "stopped").await {
        tracing::warn!(%error, "cannot end the worker's lease, so it will expire");
    }
    Ok(result?)
}

/// Reports the names of the secrets in the folder periodically, because files change while the
/// worker runs.
async fn report_secrets(pool: PgPool, worker: WorkerId, folder: SecretFolder, interval: Duration) {
    let mut pause = Duration::from_millis(250).min(interval);
    loop {
        let known = tokio::task::spawn_blocking({
            let folder = folder.clone();
            move || folder.known()
        });
        if let Ok(known) = known.await {
            match store::workers::report_secrets(&pool, worker, &known).await {
                Ok(true) => pause = interval,
                // The worker's row does not exist yet. The heartbeat inserts it.
                Ok(false) => {}
                Err(error) => {
                    pause = interval;
                    tracing::warn!(%error, "cannot report the worker's secrets, retrying");
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Ends the remaining runs after the grace period.
async fn stop_after_grace(config: &Config, held: &Held) {
    tokio::time::sleep(config.grace_period).await;
    if held.count() > 0 {
        tracing::warn!(
            runs = held.count(),
            "the grace period is over, so remaining runs are ended"
        );
    }
    held.stop_all(StopReason::WorkerShutdown);
}

fn monitor(
    config: &Config,
    pool: &PgPool,
    hello: &NewWorker,
    held: &Arc<Held>,
    runner: &Arc<Runner>,
) -> Monitor {
    let queue_config = Asking {
        worker: hello.id,
        capacity: usize::try_from(config.capacity).unwrap_or(usize::MAX),
        lease: config.lease,
        sweep: config.sweep,
    };
    let (pool, name, held, runner) =
        (pool.clone(), hello.name.clone(), held.clone(), runner.clone());
    let ends = Arc::new(backend::ends(pool.clone(), hello.id));
    let (max_run_time, stop_time) = (config.max_run_time, config.grace_period + FINAL_STOP_TIME);
    // The sleep must start at shutdown, so it is created when this future is first polled.
    let terminator = async move { tokio::time::sleep(stop_time).await };
    Monitor::new()
        .register(move |restart| {
            WorkerBuilder::new(format!("{name}/{restart}"))
                .backend(RunQueue::new(
                    pool.clone(),
                    queue_config.clone(),
                    held.clone(),
                    ends.clone(),
                ))
                .data(runner.clone())
                .concurrency(queue_config.capacity)
                .timeout(max_run_time)
                .enable_tracing()
                .parallelize(spawn_abortable)
                .build(runner::carry_out)
        })
        .should_restart(|_, error| {
            tracing::error!(%error, "a task of the worker ended and is restarted");
            true
        })
        .with_terminator(terminator)
}

/// Spawns a task that is aborted when its handle is dropped.
fn spawn_abortable<F>(future: F) -> AbortOnDropHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(future))
}

fn hello(config: &Config) -> NewWorker {
    let id = Uuid::new_v4();
    let host = nix::unistd::gethostname()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned());
    NewWorker {
        id: WorkerId(id),
        name: format!("{}@{host}/{}", config.name, &id.simple().to_string()[..8]),
        capacity: config.capacity,
        jigs: Jigs::classes().map(str::to_owned).to_vec(),
        host,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
