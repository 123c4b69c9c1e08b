//! One transition in graphs of 1,000, 10,000, 100,000 and 1,000,000 steps: a transition costs its
//! children, never the graph.
//!
//! A regular commit makes a small cluster of step pairs, where the second step depends on the
//! first. The database's owner then adds steps and edges of other nodes, with the guards off. Half
//! of these steps are ACTIVE and half BLOCKED, each with one parent on its own node and one on
//! another. Measured 200 times: claim one of all steps, lease it, and finish it, which frees its
//! child.
//!
//! `cargo bench -p worker --bench transition`. `GANTRY_BENCH_STEPS` sets other sizes, separated by
//! commas.

#[path = "../tests/it/cluster.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "the benchmark uses a part of the tests' cluster"
)]
mod cluster;

use std::time::{Duration, Instant};

use cluster::{Bind, Cluster, bind, role};
use engine::anneal::Limits;
use engine::catalog::JigClass;
use serde_json::json;
use store::runs::{Finished, RunEnd};
use store::workers::{NewWorker, WorkerId};
use uuid::Uuid;

const PAIRS: usize = 220;
/// Iterations that warm up the connection's prepared statements.
const WARM: usize = 20;
const LEASE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() {
    // `cargo test --benches` also runs this. There is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let sizes = std::env::var("GANTRY_BENCH_STEPS")
        .unwrap_or_else(|_| "1000,10000,100000,1000000".to_owned());
    for size in sizes.split(',') {
        measure(
            size.trim().parse().expect("GANTRY_BENCH_STEPS has numbers with commas between them"),
        )
        .await;
    }
}

async fn measure(size: i64) {
    let mut cluster = Cluster::of(PAIRS).await;
    cluster.add_role(role("first", JigClass::Noop)).await;
    cluster.add_role(role("second", JigClass::Noop)).await;
    let firsts = (0..PAIRS).map(|node| bind(node, "first"));
    let seconds = (0..PAIRS).map(|node| bind(node, "second").after(node, "first"));
    let binds: Vec<Bind> = firsts.chain(seconds).collect();
    cluster.commit(&binds).await;
    fill(&cluster, size).await;
    let worker = WorkerId(Uuid::new_v4());
    let hello = NewWorker {
        id: worker,
        name: "bench".to_owned(),
        capacity: 1,
        jigs: vec!["noop".to_owned()],
        host: String::new(),
        pid: 1,
        version: String::new(),
    };
    store::workers::ensure_worker(cluster.pool(), &hello, LEASE).await.expect("a worker");
    store::workers::confirm_worker(cluster.pool(), worker).await.expect("a worker");
    let (mut claims, mut leases, mut finishes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let begun = Instant::now();
        let claimed = store::runs::claim_runs(cluster.pool(), Limits { running: 1, batch: 1 })
            .await
            .expect("a claim");
        claims.push(begun.elapsed());
        assert_eq!(claimed.runs.len(), 1);
        let begun = Instant::now();
        let leased = store::runs::lease_runs(cluster.pool(), worker, &["noop"], 1, LEASE)
            .await
            .expect("a lease");
        leases.push(begun.elapsed());
        let end = RunEnd::Succeeded { result: serde_json::Map::new(), output: json!({}) };
        let begun = Instant::now();
        let finished = store::runs::finish_run(cluster.pool(), leased[0].run, worker, &end)
            .await
            .expect("an end");
        finishes.push(begun.elapsed());
        assert_eq!(finished, Finished::Applied);
    }
    let steps = cluster.count("step").await;
    let edges = cluster.count("edge").await;
    println!(
        "{steps} steps, {edges} edges: claim {}, lease {}, finish {}",
        report(&mut claims),
        report(&mut leases),
        report(&mut finishes)
    );
}

fn report(times: &mut Vec<Duration>) -> String {
    times.drain(..WARM);
    times.sort();
    format!("{:.2?} (p99 {:.2?})", times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Copies existing rows to other nodes, twenty steps each.
async fn fill(cluster: &Cluster, size: i64) {
    let existing = cluster.count("step").await;
    let nodes = (size - existing).max(0) / 20;
    let owner = cluster.db.owner();
    let tables = ["node", "noderole", "step", "edge"];
    let mut sql = String::new();
    for table in tables {
        sql.push_str(&format!("ALTER TABLE {table} DISABLE TRIGGER USER;\n"));
    }
    sql.push_str(&format!(
        "CREATE TEMP TABLE one AS SELECT s.*, n.deployment_id, n.role_hash FROM step s JOIN
             noderole n ON n.id = s.noderole_id
           WHERE s.rank = 1 LIMIT 1;
         INSERT INTO node (id, fqdn, deployment_id, alive, joined, transport)
           SELECT md5('n' || i)::uuid, 'f' || i || '.fill.gantry', (SELECT deployment_id FROM one),
           true, 'confirmed', 'local'
           FROM generate_series(1, {nodes}) i;
         INSERT INTO noderole (id, node_id, role, deployment_id, role_hash)
           SELECT md5('r' || i || '-' || k)::uuid, md5('n' || i)::uuid, 'fill-' || k,
           one.deployment_id, one.role_hash
           FROM one, generate_series(1, {nodes}) i, generate_series(1, 20) k;
         INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation,
         content_hash, state, pending,
                           applied_generation, node_up, node_fits)
           SELECT md5('r' || i || '-' || k)::uuid, md5('r' || i || '-' || k)::uuid, md5('n' ||
           i)::uuid, one.concurrency_group_id, k, 'noop',
             one.generation, one.content_hash, CASE WHEN k <= 10 THEN 'active' ELSE 'blocked' END,
             CASE WHEN k <= 10 THEN 0 ELSE 2 END, CASE WHEN k <= 10 THEN one.generation ELSE 0 END,
             true, true
           FROM one, generate_series(1, {nodes}) i, generate_series(1, 20) k;
         INSERT INTO edge (child, parent, kind)
           SELECT md5('r' || i || '-' || k)::uuid, md5('r' || p.above || '-' || k - 1)::uuid, 'hard'
           FROM generate_series(1, {nodes}) i, generate_series(2, 20) k,
             LATERAL (VALUES (i), (1 + (i * 7919 + k) % {nodes})) p (above)
           ON CONFLICT DO NOTHING;\n",
    ));
    for table in tables {
        sql.push_str(&format!("ALTER TABLE {table} ENABLE TRIGGER USER;\n"));
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(owner).await.expect("the tables are filled");
    sqlx::raw_sql("VACUUM ANALYZE").execute(owner).await.expect("analyzed tables");
}
