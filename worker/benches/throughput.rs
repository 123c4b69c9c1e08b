//! Throughput of one worker with empty runs, from claim to ACTIVE, in runs per second. Compared
//! with empty jobs of graphile-worker on the same PostgreSQL.
//!
//! 4,000 independent steps (80 nodes, 50 compatible roles) with the `noop` jig, a private
//! PostgreSQL without fsync, one worker. This measures the database work of a run: claim, lease,
//! preparation (chain, documents, input), finish with events. A job of graphile-worker is a row
//! that is taken and deleted. It has no order, approval, stored input or journal, so its figure is
//! the cost of a queue alone.
//!
//! `cargo bench -p worker --bench throughput`; add `--profile dev` for a debug build. Without the
//! npm packages (`scripts/npm-packages worker/benches/graphile`), the comparison is skipped with a
//! message.

#[path = "../tests/it/cluster.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "the benchmark uses a part of the tests' cluster"
)]
mod cluster;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::{Bind, Cluster, bind, role};
use engine::catalog::JigClass;
use testdb::TestDatabase;

const NODES: usize = 80;
const ROLES: usize = 50;

fn main() {
    // `cargo test --benches` also runs this. There is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for at_once in [10, 100] {
            measure(at_once).await;
        }
        match modules() {
            Ok(modules) => measure_graphile(&modules).await,
            Err(reason) => println!("graphile-worker is left out: {reason}"),
        }
    });
}

async fn measure(at_once: u32) {
    let mut cluster = Cluster::of(NODES).await;
    let names: Vec<&'static str> =
        (0..ROLES).map(|n| &*Box::leak(format!("r{n}").into_boxed_str())).collect();
    for name in &names {
        let mut role = role(name, JigClass::Noop);
        role.run.exclusive = false;
        cluster.add_role(role).await;
    }
    let binds: Vec<Bind> =
        (0..NODES).flat_map(|node| names.iter().map(move |name| bind(node, name))).collect();
    let begun = Instant::now();
    cluster.commit(&binds).await;
    let committed = begun.elapsed();
    sqlx::query("ANALYZE").execute(cluster.db.owner()).await.expect("analyzed tables");
    let config = worker::Config {
        max_running: at_once,
        capacity: at_once,
        ..worker::Config::in_folder(cluster.folder())
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pool = cluster.pool().clone();
    let begun = Instant::now();
    let running = tokio::spawn(worker::run(config, pool, async {
        let _ = stopped.await;
    }));
    while cluster.count("step WHERE state <> 'active'").await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    let _ = stop.send(());
    let _ = running.await;
    let runs = NODES * ROLES;
    println!(
        "gantry, {runs} noop runs, at most {at_once} at once: {:.2} s, {:.0} runs/s (commit of \
         {runs} steps: {:.2} s)",
        took.as_secs_f64(),
        runs as f64 / took.as_secs_f64(),
        committed.as_secs_f64()
    );
}

fn modules() -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/npm-packages");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/graphile");
    let output = Command::new(script).arg(folder).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

async fn measure_graphile(modules: &str) {
    let jobs = NODES * ROLES;
    for (at_once, mode) in [(10, "plain"), (24, "plain"), (24, "batched")] {
        let database = TestDatabase::new().await;
        let drain = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/graphile/drain.mjs");
        // These jobs are fast, so use more of them.
        let jobs = jobs * 5;
        let output = tokio::process::Command::new("node")
            .arg(drain)
            .args([database.owner_url(), &jobs.to_string(), &at_once.to_string(), mode])
            .env("MODULES", modules)
            .output()
            .await
            .expect("node");
        let seconds: Option<f64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
        match seconds {
            Some(seconds) => println!(
                "graphile-worker ({mode}), {jobs} jobs, {at_once} at once: {seconds:.2} s, {:.0} \
                 jobs/s",
                jobs as f64 / seconds
            ),
            None => println!(
                "graphile-worker ({mode}): {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }
}
