//! The statements of the queue.

use std::time::Duration;

use engine::anneal::Limits;
use engine::catalog::JigClass;
use engine::ids::RunId;
use serde_json::json;
use store::runs::{Finished, Overdue, RunEnd};
use store::workers::{NewWorker, WorkerId};
use uuid::Uuid;

use crate::cluster::{Bind, Cluster, bind, role};

const LONG: Duration = Duration::from_secs(60);
const JIGS: [&str; 3] = ["noop", "test", "script"];

/// Inserts a confirmed worker with a lease of one minute.
pub async fn confirmed(cluster: &Cluster, capacity: u32) -> WorkerId {
    let id = WorkerId(Uuid::new_v4());
    let hello = NewWorker {
        id,
        name: id.to_string(),
        capacity,
        jigs: JIGS.map(str::to_owned).to_vec(),
        host: "here".to_owned(),
        pid: 1,
        version: "1".to_owned(),
    };
    store::workers::ensure_worker(cluster.pool(), &hello, LONG).await.expect("a worker");
    store::workers::confirm_worker(cluster.pool(), id).await.expect("a worker");
    id
}

fn limits(running: u32) -> Limits {
    Limits { running, batch: 1_000 }
}

async fn noops(nodes: usize) -> Cluster {
    let mut cluster = Cluster::of(nodes).await;
    cluster.add_role(role("noop", JigClass::Noop)).await;
    let binds: Vec<Bind> = (0..nodes).map(|node| bind(node, "noop")).collect();
    cluster.commit(&binds).await;
    cluster
}

async fn lease(cluster: &Cluster, worker: WorkerId, limit: u32) -> Vec<RunId> {
    let leased =
        store::runs::lease_runs(cluster.pool(), worker, &JIGS, limit, LONG).await.expect("leases");
    leased.into_iter().map(|leased| leased.run).collect()
}

fn succeeded() -> RunEnd {
    RunEnd::Succeeded { result: serde_json::Map::new(), output: json!({}) }
}

#[tokio::test]
async fn concurrent_claims_never_exceed_limits() {
    let cluster = noops(30).await;
    confirmed(&cluster, 100).await;
    let claims = (0..8).map(|_| store::runs::claim_runs(cluster.pool(), limits(10)));
    let claimed = futures::future::join_all(claims).await;
    let queued: usize =
        claimed.iter().map(|claimed| claimed.as_ref().expect("a claim").runs.len()).sum();
    assert_eq!(queued, 10);
    assert_eq!(cluster.count("run WHERE ended_at IS NULL").await, 10);
    assert_eq!(cluster.count("step WHERE state = 'transition'").await, 10);
}

#[tokio::test]
async fn nothing_is_claimed_without_worker_or_execution() {
    let cluster = noops(2).await;
    let claimed = store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    assert!(claimed.runs.is_empty() && !claimed.busy);
    let worker = confirmed(&cluster, 1).await;
    let claimed = store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    assert_eq!(claimed.runs.len(), 1, "the claim is limited by the capacity of the workers");
    store::workers::end_worker(cluster.pool(), worker, "test").await.expect("the worker is ended");
    assert!(lease(&cluster, worker, 5).await.is_empty(), "a stopped worker must not lease runs");
}

#[tokio::test]
async fn run_is_leased_and_finished_once() {
    let cluster = noops(1).await;
    let (first, second) = (confirmed(&cluster, 5).await, confirmed(&cluster, 5).await);
    store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    let leases = futures::join!(lease(&cluster, first, 5), lease(&cluster, second, 5));
    assert_eq!(leases.0.len() + leases.1.len(), 1);
    let (owner, other) = if leases.0.is_empty() { (second, first) } else { (first, second) };
    let run = *leases.0.first().or(leases.1.first()).expect("one worker leased it");

    let finish = |worker| store::runs::finish_run(cluster.pool(), run, worker, &SUCCEEDED);
    assert_eq!(
        finish(other).await.expect("an answer"),
        Finished::Late,
        "a run of another worker cannot be finished"
    );
    assert_eq!(cluster.state(0, "noop").await, "transition");
    assert_eq!(finish(owner).await.expect("an answer"), Finished::Applied);
    assert_eq!(cluster.state(0, "noop").await, "active");
    assert_eq!(finish(owner).await.expect("an answer"), Finished::Late);
    assert_eq!(cluster.runs(0, "noop").await[0].outcome.as_deref(), Some("succeeded"));
}

/// Drains a worker as the owner, or ends its drain.
async fn set_drain(cluster: &Cluster, worker: WorkerId, drain: bool) {
    let person: Uuid = sqlx::query_scalar("SELECT id FROM person LIMIT 1")
        .fetch_one(cluster.db.owner())
        .await
        .expect("a person");
    let by = drain.then_some((engine::ids::PersonId(person), "an upgrade"));
    let mut transaction = cluster.db.owner().begin().await.expect("a transaction");
    let row = store::workers::lock_worker(&mut transaction, worker.0).await.expect("an answer");
    assert_eq!(row.expect("a worker").draining, !drain);
    store::workers::set_drain(&mut transaction, worker.0, by).await.expect("a drain");
    transaction.commit().await.expect("a commit");
}

#[tokio::test]
async fn draining_worker_only_finishes_its_runs() {
    let cluster = noops(6).await;
    let first = confirmed(&cluster, 2).await;
    let claim = async || {
        let claimed = store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
        claimed.runs.len()
    };
    assert_eq!(claim().await, 2);
    let run = lease(&cluster, first, 1).await[0];
    set_drain(&cluster, first, true).await;
    assert_eq!(claim().await, 0, "a draining worker has no capacity");
    assert_eq!(
        lease(&cluster, first, 5).await,
        [],
        "a draining worker must not lease a queued run"
    );
    let minute = store::runs::renew_runs(cluster.pool(), first, &[run], LONG).await;
    assert_eq!(minute.expect("an answer").len(), 1, "a draining worker must keep its lease");

    let second = confirmed(&cluster, 3).await;
    // One run is queued already, and the run of the first worker uses no slot of the second.
    assert_eq!(claim().await, 2);
    assert_eq!(lease(&cluster, second, 5).await.len(), 3);
    let finished = store::runs::finish_run(cluster.pool(), run, first, &SUCCEEDED).await;
    assert_eq!(finished.expect("an answer"), Finished::Applied);
    assert_eq!(claim().await, 0);

    set_drain(&cluster, first, false).await;
    assert_eq!(claim().await, 2);
    assert_eq!(lease(&cluster, first, 5).await.len(), 2);
}

#[tokio::test]
async fn draining_worker_leaves_lost_runs_to_others() {
    let cluster = noops(1).await;
    let (first, second) = (confirmed(&cluster, 5).await, confirmed(&cluster, 5).await);
    let ends = async |worker| {
        store::workers::may_end_lost_runs(cluster.pool(), worker).await.expect("an answer")
    };
    assert!(ends(first).await && ends(second).await);
    set_drain(&cluster, first, true).await;
    assert!(!ends(first).await && ends(second).await);
    store::workers::end_worker(cluster.pool(), second, "test").await.expect("an end");
    assert!(
        ends(first).await && !ends(second).await,
        "only the draining worker is left, so it must end the lost runs"
    );
}

#[tokio::test]
async fn run_leased_after_reaper_query_counts_started() {
    let cluster = noops(1).await;
    let worker = confirmed(&cluster, 5).await;
    store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    let over = "UPDATE run SET lease_until = now() - interval '1 s'";
    cluster.sql(over).await;
    let overdue = store::runs::overdue_runs(cluster.pool(), 10).await.expect("the overdue runs");
    assert!(overdue.len() == 1 && !overdue[0].leased);
    // The run starts, and its worker dies, while the reaper queries other nodes.
    let run = lease(&cluster, worker, 1).await[0];
    cluster.sql(over).await;
    let ended = store::runs::end_overdue_run(cluster.pool(), run, Overdue::Queued)
        .await
        .expect("an answer");
    assert_eq!(ended, Finished::Late, "a run that may have started must not end as unstarted");
    assert_eq!(cluster.state(0, "noop").await, "transition");
    let overdue = store::runs::overdue_runs(cluster.pool(), 10).await.expect("the overdue runs");
    assert!(overdue.len() == 1 && overdue[0].leased, "the next query must see the lease");
    let ended =
        store::runs::end_overdue_run(cluster.pool(), run, Overdue::Lost).await.expect("an answer");
    assert_eq!(ended, Finished::Applied);
    assert_eq!(cluster.count("step WHERE failures = 1").await, 1);
}

static SUCCEEDED: std::sync::LazyLock<RunEnd> = std::sync::LazyLock::new(succeeded);

#[tokio::test]
async fn reaper_ends_lost_runs_without_late_results() {
    let cluster = noops(2).await;
    let worker = confirmed(&cluster, 5).await;
    store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    let run = lease(&cluster, worker, 1).await[0];
    assert!(
        store::runs::overdue_runs(cluster.pool(), 10).await.expect("the overdue runs").is_empty()
    );
    cluster.sql("UPDATE run SET lease_until = now() - interval '1 s'").await;
    let overdue = store::runs::overdue_runs(cluster.pool(), 10).await.expect("the overdue runs");
    assert_eq!(overdue.len(), 2);
    for run in overdue {
        let found = if run.leased { Overdue::Lost } else { Overdue::Queued };
        store::runs::end_overdue_run(cluster.pool(), RunId(run.run), found).await.expect("an end");
    }
    assert_eq!(cluster.count("step WHERE state = 'todo'").await, 2);
    assert_eq!(
        cluster.count("step WHERE failures = 1").await,
        1,
        "a run that never started is not a failure"
    );
    assert_eq!(cluster.count("run WHERE outcome = 'unstarted'").await, 1);
    assert!(
        store::runs::renew_runs(cluster.pool(), worker, &[run], LONG)
            .await
            .expect("an answer")
            .is_empty()
    );

    let result = serde_json::Map::from_iter([("found".to_owned(), json!(1))]);
    let end = RunEnd::Succeeded { result, output: json!({"found": 1}) };
    assert_eq!(
        store::runs::finish_run(cluster.pool(), run, worker, &end).await.expect("an answer"),
        Finished::Late
    );
    assert_eq!(cluster.count("run WHERE outcome = 'late' AND result = '{\"found\": 1}'").await, 1);
    assert_eq!(cluster.count("step WHERE output IS NOT NULL OR state = 'active'").await, 0);
}

#[tokio::test]
async fn inadmissible_queued_run_returns_to_todo() {
    let cluster = noops(1).await;
    let worker = confirmed(&cluster, 5).await;
    store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    cluster
        .sql(
            "UPDATE deployment SET on_hold_by = (SELECT id FROM person LIMIT 1), on_hold_since = \
              now()",
        )
        .await;
    assert!(lease(&cluster, worker, 5).await.is_empty());
    assert_eq!(cluster.state(0, "noop").await, "todo");
    assert!(
        store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim").runs.is_empty()
    );
    cluster.sql("UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL").await;
    assert_eq!(
        store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim").runs.len(),
        1
    );
}

#[tokio::test]
async fn dead_node_loses_its_runs_and_recovers() {
    let mut cluster = Cluster::of(1).await;
    for name in ["done", "going"] {
        cluster.add_role(role(name, JigClass::Noop)).await;
    }
    cluster.commit(&[bind(0, "done"), bind(0, "going").after(0, "done")]).await;
    let worker = confirmed(&cluster, 5).await;
    store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    let run = lease(&cluster, worker, 1).await[0];
    store::runs::finish_run(cluster.pool(), run, worker, &SUCCEEDED).await.expect("an end");
    store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim");
    let run = lease(&cluster, worker, 1).await[0];

    let node = cluster.nodes[0].id;
    assert!(store::runs::set_node_alive(cluster.db.owner(), node, false).await.expect("an answer"));
    assert!(
        !store::runs::set_node_alive(cluster.db.owner(), node, false).await.expect("an answer"),
        "the node must already be dead"
    );
    assert_eq!(cluster.state(0, "done").await, "todo");
    assert_eq!(cluster.state(0, "going").await, "blocked");
    assert!(
        store::runs::renew_runs(cluster.pool(), worker, &[run], LONG)
            .await
            .expect("an answer")
            .is_empty()
    );
    assert!(
        store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim").runs.is_empty()
    );
    assert_eq!(
        store::runs::finish_run(cluster.pool(), run, worker, &SUCCEEDED).await.expect("an end"),
        Finished::Late
    );
    assert_eq!(cluster.state(0, "going").await, "blocked");

    assert!(store::runs::set_node_alive(cluster.db.owner(), node, true).await.expect("an answer"));
    assert_eq!(
        store::runs::claim_runs(cluster.pool(), limits(10)).await.expect("a claim").runs.len(),
        1
    );
}

#[tokio::test]
async fn retry_outside_error_names_the_remedy() {
    let cluster = noops(1).await;
    let refused = store::runs::retry_step(cluster.db.owner(), cluster.step(0, "noop"), "bo")
        .await
        .expect_err("a step that is TODO");
    assert!(refused.to_string().contains("already waits for a worker"), "{refused}");
}
