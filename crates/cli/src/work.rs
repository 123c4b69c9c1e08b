//! `gantry worker`: one worker process.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use store::{Connecting, Store};

use crate::{home, signals};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The database as the application's role, `postgres://...`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// A folder of this worker's own [default: /var/lib/gantry/worker for root, else ~/.local/share/gantry/worker]
    #[arg(long, env = "GANTRY_WORKER_FOLDER")]
    folder: Option<PathBuf>,
    /// Its name, for people
    #[arg(long, env = "GANTRY_WORKER_NAME", default_value = "worker")]
    name: String,
    /// Runs that it carries at once
    #[arg(long, env = "GANTRY_WORKER_CAPACITY", default_value_t = 10)]
    capacity: u32,
    /// Stop when standard input ends: for whoever starts it as a child
    #[arg(long, hide = true)]
    until_orphaned: bool,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let store = Store::open(&Connecting::to(arguments.database_url)).context("DATABASE_URL can't be used")?;
    let folder = match arguments.folder {
        Some(folder) => folder,
        None => home::data_folder(None)?.join("worker"),
    };
    home::make_private(&folder)?;
    let config =
        worker::Config { name: arguments.name, capacity: arguments.capacity, ..worker::Config::in_folder(folder) };
    let config = config.with_environment().map_err(|error| anyhow!(error))?;
    let orphaned = arguments.until_orphaned;
    let shutdown = async move {
        tokio::select! {
            () = signals::stopped() => {}
            () = signals::orphaned(), if orphaned => {}
        }
        tracing::info!("stopping: running jobs are given their time");
    };
    worker::run(config, store.pool().clone(), shutdown).await.context("the worker ended")
}
