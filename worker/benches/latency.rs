//! Latency from a commit to its first run on an idle system.
//!
//! A worker idles over a small cluster. 300 times, a regular commit changes one noderole. The next
//! commit waits until the run has ended. It prints two times in milliseconds by the database's
//! clock. Both begin at the return of the commit call. One ends when the worker leases the run,
//! which starts then, the other when the step is ACTIVE.
//!
//! `cargo bench -p worker --bench latency`.

#[path = "../tests/it/cluster.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "the benchmark uses a part of the tests' cluster"
)]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, bind, role};
use engine::catalog::JigClass;
use serde_json::json;

const CHANGES: usize = 300;

#[tokio::main]
async fn main() {
    // `cargo test --benches` also runs this. There is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut cluster = Cluster::of(4).await;
    cluster.add_role(role("one", JigClass::Noop)).await;
    let config = worker::Config::in_folder(cluster.folder());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let pool = cluster.pool().clone();
    let running = tokio::spawn(worker::run(config, pool, async {
        let _ = stopped.await;
    }));
    let (mut to_start, mut to_active) = (Vec::new(), Vec::new());
    for n in 0..CHANGES {
        let node = n % 4;
        cluster.commit(&[bind(node, "one").data(json!({"n": n}))]).await;
        let (returned,): (f64,) =
            sqlx::query_as("SELECT extract(epoch FROM clock_timestamp())::float8 * 1000")
                .fetch_one(cluster.pool())
                .await
                .expect("the time");
        let (started, ended) = ended(&cluster, n + 1).await;
        // The first ones warm up connections and prepared statements.
        if n >= 20 {
            to_start.push((started - returned).max(0.0));
            to_active.push((ended - returned).max(0.0));
        }
    }
    let _ = stop.send(());
    let _ = running.await;
    for (name, times) in
        [("its first run starts", &mut to_start), ("that run's step is ACTIVE", &mut to_active)]
    {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "from a commit until {name}: p50 {:.1} ms, p99 {:.1} ms, slowest {:.1} ms ({} commits, \
             nothing else running)",
            at(0.5),
            at(0.99),
            at(1.0),
            times.len()
        );
    }
}

/// Start and end time of the newest run.
async fn ended(cluster: &Cluster, runs: usize) -> (f64, f64) {
    loop {
        let newest: Option<(f64, f64)> = sqlx::query_as(
            "SELECT extract(epoch FROM started_at)::float8 * 1000, extract(epoch FROM
                 ended_at)::float8 * 1000
             FROM run WHERE ended_at IS NOT NULL AND (SELECT count(*) FROM run WHERE ended_at IS
             NOT NULL) = $1
             ORDER BY id DESC LIMIT 1",
        )
        .bind(i64::try_from(runs).expect("a small number"))
        .fetch_optional(cluster.pool())
        .await
        .expect("the run");
        match newest {
            Some(times) => return times,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
