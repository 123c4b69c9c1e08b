//! `gantry worker`: one worker process.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{database, home, serve, signals};

/// Environment variable of the stop grace, which `gantry up` passes to its worker.
pub const STOP_GRACE_VARIABLE: &str = "GANTRY_WORKER_STOP_GRACE";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Worker {
    /// Without a command, a worker starts.
    #[command(subcommand)]
    pub command: Option<client::WorkerCommand>,
    #[command(flatten)]
    pub process: Arguments,
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Database URL with this program's role: gantry_worker
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Folder for this worker only [default: /var/lib/gantry/worker for root, otherwise
    /// ~/.local/share/gantry/worker]
    #[arg(long, env = "GANTRY_WORKER_FOLDER")]
    folder: Option<PathBuf>,
    /// Name of the worker, for people
    #[arg(long, env = "GANTRY_WORKER_NAME", default_value = "worker")]
    name: String,
    /// Maximum number of simultaneous runs, at least 1
    #[arg(
        long,
        env = "GANTRY_WORKER_CAPACITY",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    capacity: u32,
    /// Folder with the secrets of runs and connections [default: secrets in the data folder;
    /// `gantry worker`: none]
    #[arg(long, env = "GANTRY_SECRETS")]
    secrets: Option<PathBuf>,
    /// Maximum number of simultaneous runs across all workers. Use the same value for all workers
    #[arg(long, env = "GANTRY_MAX_RUNNING", value_parser = clap::value_parser!(u32).range(1..))]
    max_running: Option<u32>,
    /// Seconds without a heartbeat after which the worker's runs are lost; it sends three per
    /// lease. Use the same value for all workers
    #[arg(long, env = "GANTRY_WORKER_LEASE", default_value = "60", value_parser = lease)]
    lease: Duration,
    /// Interval in seconds between searches for work without a notification
    #[arg(long, env = "GANTRY_WORKER_SWEEP", default_value = "5", value_parser = interval)]
    sweep: Duration,
    /// Health check interval, in seconds
    #[arg(
        long,
        env = "GANTRY_WORKER_HEALTH_CHECK_INTERVAL",
        default_value = "10",
        value_parser = interval
    )]
    health_check_interval: Duration,
    /// Seconds that runs have to end after a stop request. After that, runs over SSH continue for
    /// the next worker, and others are ended
    #[arg(long, env = STOP_GRACE_VARIABLE, default_value = "10", value_parser = stop_grace)]
    stop_grace: Duration,
    /// Allow nodes on Gantry's own hosts, for example at loopback addresses. Use the same value for
    /// servers and workers [default: no; `gantry up`: yes if it listens on loopback]
    #[arg(long, env = serve::LOCAL_NODES_VARIABLE)]
    allow_loopback_nodes: bool,
    /// Stop when standard input ends, for parent processes
    #[arg(long, hide = true)]
    until_orphaned: bool,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let url = arguments.database_url.ok_or(database::NoUrl)?;
    let folder = match arguments.folder {
        Some(folder) => folder,
        None => home::ensure_data_folder(None)?.join("worker"),
    };
    home::ensure_private_folder(&folder)?;
    let usual = worker::Config::in_folder(folder);
    let config = worker::Config {
        name: arguments.name,
        capacity: arguments.capacity,
        lease: arguments.lease,
        sweep: arguments.sweep,
        health_check_interval: arguments.health_check_interval,
        grace_period: arguments.stop_grace,
        secrets: arguments.secrets,
        local_nodes: arguments.allow_loopback_nodes,
        max_running: arguments.max_running.unwrap_or(usual.max_running),
        ..usual
    };
    let orphaned = arguments.until_orphaned;
    let stop = async move {
        tokio::select! {
            () = signals::stopped() => {}
            () = signals::orphaned(), if orphaned => {}
        }
    };
    tokio::pin!(stop);
    let store = tokio::select! {
        () = &mut stop => return Ok(()),
        store = database::open_with_retry(&url, database::Role::WORKER) => store?,
    };
    let shutdown = async move {
        stop.await;
        tracing::info!("stopping, running runs have time to finish");
    };
    worker::run(config, store.pool().clone(), shutdown).await.context(
        "The worker stopped with an \
        error",
    )
}

/// Minimum lease in seconds. With less, a pause of a busy machine would expire leases.
const MIN_LEASE_SECONDS: f64 = 2.0;
const MIN_INTERVAL_SECONDS: f64 = 0.1;
/// Maximum lease and interval in seconds. With more, a lost worker would block its runs for too
/// long.
const MAX_SECONDS: f64 = 3600.0;

fn lease(text: &str) -> Result<Duration, String> {
    seconds(text, MIN_LEASE_SECONDS)
}

fn interval(text: &str) -> Result<Duration, String> {
    seconds(text, MIN_INTERVAL_SECONDS)
}

/// Parses the stop grace. With 0, runs are not waited for.
pub fn stop_grace(text: &str) -> Result<Duration, String> {
    seconds(text, 0.0)
}

fn seconds(text: &str, min: f64) -> Result<Duration, String> {
    let number: Option<f64> = text.parse().ok().filter(|n| (min..=MAX_SECONDS).contains(n));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("must be a number of seconds from {min} to {MAX_SECONDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_within_bounds() {
        assert_eq!(lease("2.5"), Ok(Duration::from_millis(2_500)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(stop_grace("0"), Ok(Duration::ZERO));
        assert!(stop_grace("-1").is_err() && stop_grace("3601").is_err());
        for wrong in ["", "1m", "-3", "0", "NaN", "inf", "1", "3601"] {
            let message = lease(wrong).expect_err(wrong);
            assert_eq!(message, "must be a number of seconds from 2 to 3600");
        }
    }
}
