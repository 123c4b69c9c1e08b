//! The worker executes approved runs.
//!
//! One process shares one connection pool between its tasks. They share only the register of leased
//! runs ([`queue::leases`]), notifiers and the sessions with nodes.
//! * The annealer ([`tasks::annealer`]) claims runnable steps and ends lost runs.
//! * The queue ([`queue::backend`]) leases queued runs to an apalis worker as slots become free.
//! * The heartbeat ([`tasks::heartbeat`]) renews leases and stops runs that this worker no longer
//!   leases.
//! * Health checks ([`tasks::health`]) test whether nodes are reachable.
//! * Checks of roles ([`tasks::checks`]) test whether applied steps still hold.
//! * The listener ([`tasks::listen`]) wakes the other tasks.
//!
//! A run goes through four phases: lease, verify and prepare the input ([`run::prepare`]), execute
//! with a jig ([`jig`]), finish. Jigs reach nodes via [`node`]. The worker only reports the result.
//! One transaction in the store decides the step's next state.
//!
//! Invariants:
//! * Any part may die at any moment. The database and the node have enough state to continue.
//! * If the worker can't renew a lease, it ends the run before another worker may lease it.
//! * A database error never ends a worker. It waits and retries.
//! * Shutdown is graceful: the worker stops leasing and waits for the grace period. After that,
//!   runs on nodes over SSH continue there, and the next worker adopts them. It ends all others.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis::prelude::{Monitor, WorkerBuilder};
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use background::{Driver, Process, ProcessKind};
use engine::anneal::Limits;
use engine::catalog::JigClass;
use sqlx::PgPool;
use store::workers::{NewWorker, WorkerId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub mod database;
pub mod jig;
pub mod job;
pub mod node;
pub mod queue;
pub mod run;
pub mod secrets;
pub mod tasks;

use database::objects::Objects;
use jig::Jigs;
use job::StopReason;
use node::Nodes;
use node::connection::Dialer;
use queue::backend::{QueueSettings, RunQueue};
use queue::leases::Leases;
use run::prepare::Preparer;
use run::runner::{self, Runner};
use secrets::{SecretFolder, SecretSource};
use tasks::annealer::{ClaimSteps, EndLostRuns};
use tasks::checks::CheckRoles;
use tasks::health::CheckNodes;
use tasks::heartbeat::{RenewLeases, StopExpiredRuns};
use tasks::housekeeping::MaintainTables;
use tasks::inputs::{CompareInputs, Deferred};
use tasks::listen::Notifiers;
use tasks::secrets::ReportSecrets;

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
    let leases = Arc::new(Leases::default());
    let objects = Arc::new(Objects::of(pool.clone()));
    let secrets: Arc<dyn SecretSource> = Arc::new(SecretFolder(config.secrets.clone()));
    let dialer = Dialer::for_pool(&pool, config.local_nodes);
    let nodes = Arc::new(Nodes::new(secrets.clone(), dialer, config.folder.join("on-behalf")));
    let runner = Arc::new(Runner {
        preparer: Preparer::new(pool.clone(), hello.id, objects.clone(), secrets),
        jigs: Jigs::new(objects.clone(), nodes.clone()),
    });
    let claiming = CancellationToken::new();
    let (driver, notifiers) =
        start_tasks(&config, &pool, &hello, (objects, nodes), &runner, &leases, &claiming);
    let _listener = AbortOnDropHandle::new(tokio::spawn(notifiers.run(pool.clone())));
    tracing::info!(worker = %hello.name, capacity = config.capacity, "worker started");

    let monitor = monitor(&config, &pool, &hello, &leases, &runner);
    let shutdown_begun = Notify::new();
    let signal = async {
        shutdown.await;
        tracing::info!(worker = %hello.name, running = leases.count(), "worker is stopping");
        shutdown_begun.notify_one();
        Ok(())
    };
    let forced_stop = async {
        shutdown_begun.notified().await;
        claiming.cancel();
        stop_after_grace(&config, &leases).await;
        std::future::pending().await
    };
    let result = tokio::select! {
        result = monitor.run_with_signal(signal) => result,
        never = forced_stop => never,
    };
    // A renewal after the end would make the worker appear alive.
    driver.stop().await;
    if let Err(error) = store::workers::end_worker(&pool, hello.id, "stopped").await {
        tracing::warn!(%error, "cannot end the worker's lease, so it will expire");
    }
    Ok(result?)
}

/// Starts the background tasks. Those that claim or end runs stop with `claiming`, the others with
/// the driver.
fn start_tasks(
    config: &Config,
    pool: &PgPool,
    hello: &NewWorker,
    (objects, nodes): (Arc<Objects>, Arc<Nodes>),
    runner: &Arc<Runner>,
    leases: &Arc<Leases>,
    claiming: &CancellationToken,
) -> (Driver, Notifiers) {
    let mut driver = Driver::new(background::Metrics::default(), CancellationToken::new());
    let renewals = driver.add(RenewLeases {
        pool: pool.clone(),
        hello: hello.clone(),
        lease: config.lease,
        leases: leases.clone(),
    });
    driver.add(StopExpiredRuns { lease: config.lease, leases: leases.clone() });
    driver.add(ReportSecrets {
        pool: pool.clone(),
        worker: hello.id,
        folder: SecretFolder(config.secrets.clone()),
        period: config.lease / 3,
    });
    driver.add(CheckNodes::new(
        pool.clone(),
        objects.clone(),
        nodes.clone(),
        config.health_check_interval,
        hello.name.clone(),
    ));
    let access = (objects.clone(), nodes.clone());
    let batch = Limits::default().batch.max(config.capacity);
    let claims = driver.add_until(
        claiming.clone(),
        ClaimSteps {
            pool: pool.clone(),
            limits: Limits { running: config.max_running, batch },
            sweep: config.sweep,
        },
    );
    driver.add_until(
        claiming.clone(),
        EndLostRuns {
            pool: pool.clone(),
            objects,
            sweep: config.sweep,
            claims: claims.clone(),
            nodes,
            worker: hello.id,
            lease: config.lease,
            leases: leases.clone(),
            most: usize::try_from(config.capacity).unwrap_or(usize::MAX).saturating_mul(2),
        },
    );
    let inputs = driver.add_until(
        claiming.clone(),
        CompareInputs {
            runner: Arc::clone(runner),
            sweep: config.sweep,
            deferred: Deferred::default(),
        },
    );
    driver.add_until(
        claiming.clone(),
        CheckRoles::new(hello.id, Arc::clone(runner), access, config.sweep),
    );
    driver.add_until(claiming.clone(), MaintainTables(pool.clone()));
    let process = Process { kind: ProcessKind::Worker, id: hello.id.0, name: hello.name.clone() };
    driver.report(pool.clone(), process);
    (driver, Notifiers { leases: leases.clone(), claims, inputs, renewals })
}

/// Ends the remaining runs after the grace period.
async fn stop_after_grace(config: &Config, leases: &Leases) {
    tokio::time::sleep(config.grace_period).await;
    if leases.count() > 0 {
        tracing::warn!(
            runs = leases.count(),
            "the grace period is over: runs over SSH continue on their nodes, others are ended"
        );
    }
    leases.stop_all(StopReason::WorkerShutdown);
}

fn monitor(
    config: &Config,
    pool: &PgPool,
    hello: &NewWorker,
    leases: &Arc<Leases>,
    runner: &Arc<Runner>,
) -> Monitor {
    let queue_config = QueueSettings {
        worker: hello.id,
        capacity: usize::try_from(config.capacity).unwrap_or(usize::MAX),
        lease: config.lease,
        sweep: config.sweep,
    };
    let (pool, name, leases, runner) =
        (pool.clone(), hello.name.clone(), leases.clone(), runner.clone());
    let ends = Arc::new(queue::backend::ends(pool.clone(), hello.id));
    let (max_run_time, stop_time) = (config.max_run_time, config.grace_period + FINAL_STOP_TIME);
    // The sleep must start at shutdown, so it is created when this future is first polled.
    let terminator = async move { tokio::time::sleep(stop_time).await };
    Monitor::new()
        .register(move |restart| {
            WorkerBuilder::new(format!("{name}/{restart}"))
                .backend(RunQueue::new(
                    pool.clone(),
                    queue_config.clone(),
                    leases.clone(),
                    ends.clone(),
                ))
                .data(runner.clone())
                .concurrency(queue_config.capacity)
                .timeout(max_run_time)
                .enable_tracing()
                .parallelize(spawn_abortable)
                .build(runner::execute)
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
        jigs: JigClass::names().map(str::to_owned).collect(),
        host,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
