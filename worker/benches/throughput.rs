//! From claim to ACTIVE: how many runs a second one worker gets through when the runs themselves do nothing.
//!
//! 2,000 independent steps (40 nodes, 50 roles that don't exclude each other) with the noop jig, a private PostgreSQL without
//! fsync, one worker. What it measures is the way of a run through the database: claim, lease, preparing (chain, documents, input),
//! finish with its events. `cargo bench -p worker`, or with `--profile dev` for the numbers of a debug build.

#[path = "../tests/it/cluster.rs"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod cluster;

use std::time::{Duration, Instant};

use cluster::{Bind, Cluster, bind, role};
use engine::catalog::JigClass;

const NODES: usize = 40;
const ROLES: usize = 50;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (running, capacity) in [(10, 10), (100, 100)] {
            measure(running, capacity).await;
        }
    });
}

async fn measure(max_running: u32, capacity: u32) {
    let mut cluster = Cluster::of(NODES).await;
    let names: Vec<&'static str> = (0..ROLES).map(|n| &*Box::leak(format!("r{n}").into_boxed_str())).collect();
    for name in &names {
        let mut role = role(name, JigClass::Noop);
        role.run.exclusive = false;
        cluster.add_role(role).await;
    }
    let binds: Vec<Bind> = (0..NODES).flat_map(|node| names.iter().map(move |name| bind(node, name))).collect();
    let begun = Instant::now();
    cluster.commit(&binds).await;
    let committed = begun.elapsed();
    let config = worker::Config { max_running, capacity, ..worker::Config::in_folder(cluster.folder()) };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pool = cluster.pool().clone();
    let begun = Instant::now();
    let running = tokio::spawn(worker::run(config, pool, async {
        let _ = stopped.await;
    }));
    while cluster.count("step WHERE state <> 'active'").await > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let took = begun.elapsed();
    let _ = stop.send(());
    let _ = running.await;
    let runs = NODES * ROLES;
    println!(
        "{runs} noop runs, at most {max_running} at once: {:.1} s, {:.0} runs/s (commit of {runs} steps: {:.2} s)",
        took.as_secs_f64(),
        runs as f64 / took.as_secs_f64(),
        committed.as_secs_f64()
    );
}
