//! # A worker: carries out what was approved
//!
//! One process runs, over one pool of connections: an **annealer** ([`annealer`]) that claims what may start and ends what was
//! lost; a **queue** ([`backend`]) that leases queued runs to an apalis worker as slots become free; a **heartbeat** ([`heartbeat`])
//! that renews leases and ends runs that are no longer ours; a **look-out** ([`looking`]) that tries whether machines are there; and a
//! **listener** ([`listen`]) that wakes the others. They share nothing but the register of held runs ([`held`]), bells, and the
//! connections to nodes.
//!
//! A run goes: lease, check that it is what was approved and put its input together ([`prepare`]), jig ([`jig`]), finish. What a
//! run means for its step is decided in one transaction of the store; the worker only reports.
//!
//! Invariants:
//! * any part of this may die at any moment; the database and the node know enough to go on;
//! * a run whose lease can't be renewed is ended here before others may have it;
//! * no error of the database ends a worker: it waits, and goes on by itself;
//! * stopping is graceful: no new leases, a grace period for what runs, then it is ended and handed back.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis::prelude::{Monitor, WorkerBuilder};
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use engine::anneal::Limits;
use sqlx::PgPool;
use store::running::{self, Hello, WorkerId};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

pub mod annealer;
pub mod backend;
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

/// How a worker process behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// For people; what makes a start unique is added to it.
    pub name: String,
    /// Runs that this process carries at once.
    pub capacity: u32,
    /// Runs at once over all workers (`GANTRY_MAX_RUNNING`).
    pub max_running: u32,
    /// How long a lease is good for. A third of it passes between renewals.
    pub lease: Duration,
    /// How often everything is looked at without being told.
    pub sweep: Duration,
    /// How often each node that is reached over a network is looked at.
    pub looks: Duration,
    /// How long running jobs may go on once the worker is told to stop.
    pub grace: Duration,
    /// Longest time that any run may take here, whatever its role says.
    pub ceiling: Duration,
    /// The folder for what runs for nodes that need not be there.
    pub folder: PathBuf,
    /// The folder of secrets, `<name>/<version>` (`GANTRY_SECRETS`).
    pub secrets: Option<PathBuf>,
    /// Whether nodes may be on this host: at loopback or one of its own addresses (`GANTRY_ALLOW_LOOPBACK_NODES`).
    pub local_nodes: bool,
}

impl Config {
    /// Defaults: 10 runs at once, leases of a minute, a look every five seconds, ten seconds' grace, a day's ceiling.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            name: "worker".to_owned(),
            capacity: 10,
            max_running: 10,
            lease: Duration::from_secs(60),
            sweep: Duration::from_secs(5),
            looks: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            ceiling: Duration::from_secs(24 * 3600),
            folder: folder.into(),
            secrets: None,
            local_nodes: false,
        }
    }
}

/// Why a worker process ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// apalis's monitor gave up.
    #[error("the worker's monitor ended: {0}")]
    Monitor(#[from] apalis::prelude::MonitorError),
}

/// How long ending the last runs may take beyond the grace period before the process goes anyway.
const LAST: Duration = Duration::from_secs(20);

/// Runs one worker process until `shutdown` is ready, and then stops gracefully.
///
/// The database may be away at the start, and for any time later.
///
/// # Errors
/// Only what the worker can't go on after; an absent database is none of it.
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
        preparing: Preparing::new(pool.clone(), hello.id, objects.clone(), secrets),
        jigs: Jigs::new(script.clone()),
    });
    let bells = Bells { held: held.clone(), todo: todo.clone(), cancelled: cancelled.clone() };
    let limits =
        Limits { running: config.max_running, batch: Limits::default().batch.max(config.capacity) };
    let looking = Looking::new(
        pool.clone(),
        objects.clone(),
        script.clone(),
        config.looks,
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

    let _listener = AbortOnDropHandle::new(tokio::spawn(bells.listen(pool.clone())));
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
    let told = Notify::new();
    let signal = async {
        shutdown.await;
        tracing::info!(worker = %hello.name, running = held.count(), "worker stops");
        told.notify_one();
        Ok(())
    };
    let ending = async {
        told.notified().await;
        annealing.abort();
        after_grace(&config, &held).await;
        std::future::pending().await
    };
    let stopped = tokio::select! {
        stopped = monitor.run_with_signal(signal) => stopped,
        never = ending => never,
    };
    if let Err(error) = running::bye(&pool, hello.id, "stopped").await {
        tracing::warn!(%error, "the worker could not say good-bye; its lease ends by itself");
    }
    Ok(stopped?)
}

/// Reports the names of the secrets in the folder, again and again: files come and go while the worker runs.
async fn report_secrets(pool: PgPool, worker: WorkerId, folder: SecretFolder, every: Duration) {
    let mut pause = Duration::from_millis(250).min(every);
    loop {
        let known = tokio::task::spawn_blocking({
            let folder = folder.clone();
            move || folder.known()
        });
        if let Ok(known) = known.await {
            match running::report_secrets(&pool, worker, &known).await {
                Ok(true) => pause = every,
                // The heartbeat makes the row in a moment.
                Ok(false) => {}
                Err(error) => {
                    pause = every;
                    tracing::warn!(%error, "the worker's secrets could not be reported; trying again");
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Ends what still runs when the grace period is over.
async fn after_grace(config: &Config, held: &Held) {
    tokio::time::sleep(config.grace).await;
    if held.count() > 0 {
        tracing::warn!(runs = held.count(), "the grace period is over; what still runs is ended");
    }
    held.stop_all(StopReason::WorkerEnds);
}

fn monitor(
    config: &Config,
    pool: &PgPool,
    hello: &Hello,
    held: &Arc<Held>,
    runner: &Arc<Runner>,
) -> Monitor {
    let asking = Asking {
        worker: hello.id,
        capacity: usize::try_from(config.capacity).unwrap_or(usize::MAX),
        lease: config.lease,
        sweep: config.sweep,
    };
    let (pool, name, held, runner) =
        (pool.clone(), hello.name.clone(), held.clone(), runner.clone());
    let ends = Arc::new(backend::ends(pool.clone(), hello.id));
    let (ceiling, whole) = (config.ceiling, config.grace + LAST);
    // Its time begins when it is first polled, which is when the shutdown begins.
    let last = async move { tokio::time::sleep(whole).await };
    Monitor::new()
        .register(move |restart| {
            WorkerBuilder::new(format!("{name}/{restart}"))
                .backend(RunQueue::new(pool.clone(), asking.clone(), held.clone(), ends.clone()))
                .data(runner.clone())
                .concurrency(asking.capacity)
                .timeout(ceiling)
                .enable_tracing()
                .parallelize(spawned)
                .build(runner::carry_out)
        })
        .should_restart(|_, error| {
            tracing::error!(%error, "the worker's loop ended; it is started again");
            true
        })
        .with_terminator(last)
}

/// A task of its own, that ends when nobody waits for it any more.
fn spawned<F>(future: F) -> AbortOnDropHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(future))
}

fn hello(config: &Config) -> Hello {
    let id = Uuid::new_v4();
    let host = nix::unistd::gethostname()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned());
    Hello {
        id: WorkerId(id),
        name: format!("{}@{host}/{}", config.name, &id.simple().to_string()[..8]),
        capacity: config.capacity,
        jigs: Jigs::classes().map(str::to_owned).to_vec(),
        host,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
