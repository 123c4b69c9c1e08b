//! Workers under test: in the test's process, or in a separate process that can be killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::PgPool;
use store::{Connecting, Store};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use worker::Config;

/// Configuration with short intervals.
pub fn quick(folder: &Path) -> Config {
    Config {
        lease: Duration::from_secs(3),
        sweep: Duration::from_millis(500),
        health_check_interval: Duration::from_millis(300),
        grace_period: Duration::from_millis(300),
        local_nodes: true,
        ..Config::in_folder(folder)
    }
}

/// A worker in this process.
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start(config: Config, pool: &PgPool) -> Self {
        let (stop, stopped) = oneshot::channel();
        let pool = pool.clone();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            worker::run(config, pool, shutdown).await.expect("the worker runs");
        });
        Self { stop: Some(stop), task }
    }

    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.task.await.expect("the worker stops");
    }
}

const URL: &str = "GANTRY_TEST_WORKER_URL";
const FOLDER: &str = "GANTRY_TEST_WORKER_FOLDER";

/// Starts a worker process: this test program, restricted to the test below.
pub fn spawn(url: &str, folder: &Path) -> Process {
    spawn_with(url, folder, folder)
}

/// Like `spawn`, with a folder of secrets.
pub fn spawn_with(url: &str, folder: &Path, secrets: &Path) -> Process {
    let child = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "process::worker_process", "--ignored", "--nocapture"])
        .env(URL, url)
        .env(FOLDER, folder)
        .env("GANTRY_SECRETS", secrets)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Process(child.expect("this program starts"))
}

/// A worker process. It gets SIGKILL on drop.
pub struct Process(Child);

impl Process {
    pub fn kill(&mut self) {
        self.0.kill().expect("the test owns it");
        self.0.wait().expect("the test owns it");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "not a test: runs as a worker process for other tests"]
async fn worker_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let folder = std::env::var(FOLDER).expect("the folder is set");
    let store = Store::open(&Connecting::to(url)).expect("a valid URL");
    let secrets = std::env::var_os("GANTRY_SECRETS").map(Into::into);
    worker::run(
        Config { secrets, ..quick(Path::new(&folder)) },
        store.pool().clone(),
        std::future::pending(),
    )
    .await
    .expect("the worker runs");
}
