//! Guarantees for runs: retry limits and backoff by role, timeouts, the execution switch, causes,
//! commits over running steps. Also destructive steps that run once, frozen nodes, batches of
//! immediate steps, and damaged rows that don't leave steps in TRANSITION.

use std::time::Duration;

use background::Task as _;
use engine::anneal::{Limits, Reason, RerunReason};
use engine::catalog::{JigClass, OnError};
use engine::ids::PersonId;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use store::runs::RunEnd;
use tokio::time::{Instant, sleep};
use worker::tasks::annealer::ClaimSteps;

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};
use crate::queue::confirmed;

const LONG: Duration = Duration::from_secs(60);
const EVERY: Limits = Limits { running: 1_000, batch: 1_000 };

fn lasts(seconds: f64) -> Value {
    json!({"test": {"seconds": seconds}})
}

fn fails() -> Value {
    json!({"test": {"fail": "no such disk"}})
}

async fn with(cluster: &mut Cluster, name: &str, change: impl FnOnce(&mut engine::catalog::Role)) {
    let mut role = role(name, JigClass::Test);
    change(&mut role);
    cluster.add_role(role).await;
}

/// For each run of a step: outcome, cause, requester, and the number of earlier failures.
type ReportedRun = (Option<String>, Option<String>, Option<String>, i32);

async fn reported(cluster: &Cluster, node: usize, role: &str) -> Vec<ReportedRun> {
    sqlx::query_as(
        "SELECT outcome, cause, cause_by, failures FROM run WHERE step_id = $1 ORDER BY id",
    )
    .bind(cluster.step(node, role).0)
    .fetch_all(cluster.pool())
    .await
    .expect("runs")
}

async fn own(cluster: &Cluster, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
}

async fn until(cluster: &Cluster, from: &'static str, expected: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while cluster.count(from).await != expected {
        assert!(
            Instant::now() < deadline,
            "{from}: got {}, expected {expected}",
            cluster.count(from).await
        );
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn role_limits_retries_and_attempts_are_numbered() {
    let mut cluster = Cluster::of(2).await;
    with(&mut cluster, "twice", |role| (role.run.retries, role.run.backoff) = (2, 0)).await;
    with(&mut cluster, "later", |role| (role.run.retries, role.run.backoff) = (1, 600)).await;
    cluster.commit(&[bind(0, "twice").data(fails()), bind(1, "later").data(fails())]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "twice", "error").await;
    let failed = |failures| (Some("failed".to_owned()), None, None, failures);
    assert_eq!(
        reported(&cluster, 0, "twice").await,
        [failed(0), failed(1), failed(2)],
        "the role sets the limit"
    );
    until(
        &cluster,
        "step WHERE state = 'todo' AND failures = 1 AND not_before > now() + interval '9 minutes'",
        1,
    )
    .await;

    store::runs::retry_step(cluster.db.owner(), cluster.step(0, "twice"), "bo")
        .await
        .expect("a retry");
    cluster.reaches(0, "twice", "error").await;
    let by_bo = |failures| {
        (Some("failed".to_owned()), Some("retry".to_owned()), Some("bo".to_owned()), failures)
    };
    assert_eq!(
        reported(&cluster, 0, "twice").await[3..],
        [by_bo(0), by_bo(1), by_bo(2)],
        "a retry by a person must start the count again"
    );
    worker.stop().await;
}

#[tokio::test]
async fn every_jig_obeys_the_role_timeout() {
    let mut cluster = Cluster::of(1).await;
    with(&mut cluster, "slow", |role| role.run.timeout = 1).await;
    cluster.commit(&[bind(0, "slow").data(lasts(300.0))]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "slow", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "slow").await.expect("a reason");
    assert!(error.contains("longer than 1 seconds"), "{error}");
}

async fn switch(cluster: &Cluster, enabled: bool) {
    let mut transaction = cluster.db.owner().begin().await.expect("a transaction");
    let head = store::blueprints::lock_for_commit(&mut transaction).await.expect("the head");
    let (by,): (uuid::Uuid,) =
        sqlx::query_as("SELECT id FROM person WHERE 'operator' = ANY (permissions)")
            .fetch_one(&mut *transaction)
            .await
            .expect("a person");
    store::blueprints::insert_switch(&mut transaction, &head, enabled, "test", PersonId(by))
        .await
        .expect("a switch");
    transaction.commit().await.expect("a switch");
}

#[tokio::test]
async fn disabled_execution_starts_nothing_and_finishes_running() {
    let mut cluster = Cluster::of(3).await;
    with(&mut cluster, "app", |_| ()).await;
    cluster.commit(&[0, 1, 2].map(|node| bind(node, "app"))).await;
    let worker = confirmed(&cluster, 2).await;
    store::runs::claim_runs(cluster.pool(), EVERY).await.expect("a claim");
    let leased =
        store::runs::lease_runs(cluster.pool(), worker, &["test"], 1, LONG).await.expect("a lease");
    switch(&cluster, false).await;

    let more =
        store::runs::lease_runs(cluster.pool(), worker, &["test"], 5, LONG).await.expect("a lease");
    assert!(more.is_empty(), "a queued run must not start");
    assert_eq!(cluster.count("run WHERE outcome = 'unstarted'").await, 1);
    assert_eq!(cluster.count("step WHERE state = 'todo' AND failures = 0").await, 2);
    assert!(store::runs::claim_runs(cluster.pool(), EVERY).await.expect("a claim").runs.is_empty());
    let end = RunEnd::Succeeded { result: serde_json::Map::new(), output: json!({}) };
    store::runs::finish_run(cluster.pool(), leased[0].run, worker, &end).await.expect("an end");
    assert_eq!(
        cluster.count("step WHERE state = 'active'").await,
        1,
        "the result of the active run must be applied"
    );

    switch(&cluster, true).await;
    assert_eq!(
        store::runs::claim_runs(cluster.pool(), EVERY).await.expect("a claim").runs.len(),
        2
    );
}

#[tokio::test]
async fn commit_over_running_step_discards_its_result() {
    let mut cluster = Cluster::of(1).await;
    with(&mut cluster, "app", |_| ()).await;
    with(&mut cluster, "child", |_| ()).await;
    let first = json!({"test": {"seconds": 2, "returns": {"port": 1}}});
    cluster.commit(&[bind(0, "app").data(first), bind(0, "child").after(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let run = cluster.running(0, "app").await;
    let second = json!({"test": {"returns": {"port": 2}}});
    let target = cluster.commit(&[bind(0, "app").data(second)]).await;
    assert_eq!(cluster.state(0, "app").await, "transition", "the attempt must continue");
    assert_eq!(cluster.running(0, "app").await, run);

    cluster.reaches(0, "child", "active").await;
    worker.stop().await;
    let again = (Some("succeeded".to_owned()), Some("changed".to_owned()), None, 0);
    assert_eq!(
        reported(&cluster, 0, "app").await,
        [(Some("succeeded".to_owned()), None, None, 0), again]
    );
    assert_eq!(
        cluster.runs(0, "app").await[0].result,
        Some(json!({"port": 1})),
        "the result of the first attempt must be stored"
    );
    assert_eq!(
        cluster.output(0, "app").await,
        Some(json!({"port": 2})),
        "only the result of the new generation must be applied"
    );
    assert_eq!(
        cluster.runs(0, "child").await.len(),
        1,
        "the child must only run with the second result"
    );
    assert_eq!(
        cluster.runs(0, "child").await[0].input.as_ref().expect("an input")["data"]["port"],
        2
    );
    let applied: i64 = sqlx::query_scalar("SELECT applied_generation FROM step WHERE id = $1")
        .bind(cluster.step(0, "app").0)
        .fetch_one(cluster.pool())
        .await
        .expect("the step");
    assert_eq!(applied, target.0);
}

#[tokio::test]
async fn commit_with_cancel_ends_replaced_runs() {
    let mut cluster = Cluster::of(2).await;
    with(&mut cluster, "app", |_| ()).await;
    cluster.commit(&[bind(0, "app").data(lasts(300.0)), bind(1, "app").data(lasts(300.0))]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let other = cluster.running(1, "app").await;
    cluster.running(0, "app").await;
    let target = cluster.commit(&[bind(0, "app").data(json!({}))]).await;
    let mut transaction = cluster.db.owner().begin().await.expect("a transaction");
    assert_eq!(
        store::runs::cancel_superseded(&mut transaction, target).await.expect("an answer"),
        1
    );
    transaction.commit().await.expect("a commit");
    cluster.reaches(0, "app", "active").await;
    let runs = cluster.runs(0, "app").await;
    let text = format!("canceled by the commit of blueprint {target}");
    assert_eq!(
        (runs[0].outcome.as_deref(), runs[0].error.as_deref()),
        (Some("canceled"), Some(text.as_str()))
    );
    assert_eq!(runs.len(), 2);
    assert_eq!(cluster.count("event WHERE kind = 'step' AND body->>'state' = 'error'").await, 0);
    assert_eq!(
        cluster.running(1, "app").await,
        other,
        "a run that the change does not replace must continue"
    );
    worker.stop().await;
}

#[tokio::test]
async fn destructive_step_runs_once_despite_drift() {
    let mut cluster = Cluster::of(2).await;
    with(&mut cluster, "wipe", |role| role.flags.destructive = true).await;
    with(&mut cluster, "app", |_| ()).await;
    let slow = bind(1, "wipe").data(lasts(300.0));
    cluster.commit(&[bind(0, "wipe"), bind(0, "app").after(0, "wipe"), slow]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "app", "active").await;
    cluster.running(1, "wipe").await;
    for node in [0, 1] {
        store::runs::set_node_alive(cluster.db.owner(), cluster.nodes[node].id, false)
            .await
            .expect("a node");
    }
    assert_eq!(
        cluster.state(0, "wipe").await,
        "active",
        "a completed destructive step must stay ACTIVE"
    );
    assert_eq!(cluster.state(0, "app").await, "todo");
    assert_eq!(
        cluster.state(1, "wipe").await,
        "error",
        "an interrupted destructive step needs a decision"
    );
    for node in [0, 1] {
        store::runs::set_node_alive(cluster.db.owner(), cluster.nodes[node].id, true)
            .await
            .expect("a node");
    }
    cluster.reaches(0, "app", "active").await;
    let node_back = Some("node_back".to_owned());
    assert_eq!(
        reported(&cluster, 0, "app").await.iter().map(|run| run.1.clone()).collect::<Vec<_>>(),
        [None, node_back]
    );
    for node in [0, 1] {
        let step = cluster.step(node, "wipe");
        let refused = store::runs::rerun_step(cluster.pool(), step, RerunReason::Drift)
            .await
            .expect_err("a run without a request");
        assert!(refused.to_string().contains("destructive"), "{refused}");
        assert_eq!(cluster.runs(node, "wipe").await.len(), 1);
    }
    // A retry requires a signed-in user or the database's owner.
    let unsigned = store::runs::retry_step(cluster.server(), cluster.step(1, "wipe"), "bo")
        .await
        .expect_err("a retry by an absent person");
    assert!(
        unsigned.to_string().contains("no operator of its deployment retries it"),
        "{unsigned}"
    );
    store::runs::retry_step(cluster.db.owner(), cluster.step(1, "wipe"), "bo")
        .await
        .expect("a retry");
    cluster.running(1, "wipe").await;
    assert_eq!(cluster.runs(1, "wipe").await.len(), 2);
    worker.stop().await;
}

#[tokio::test]
async fn error_freezes_according_to_role_policy() {
    let mut cluster = Cluster::of(2).await;
    with(&mut cluster, "mild", |_| ()).await;
    with(&mut cluster, "grave", |role| role.run.on_error = OnError::Node).await;
    with(&mut cluster, "below", |_| ()).await;
    with(&mut cluster, "beside", |_| ()).await;
    cluster
        .commit(&[
            bind(0, "mild").data(fails()),
            bind(0, "below").after(0, "mild"),
            bind(1, "grave").data(fails()),
            bind(1, "below").after(1, "grave"),
        ])
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "mild", "error").await;
    cluster.reaches(1, "grave", "error").await;
    cluster.commit(&[bind(0, "beside"), bind(1, "beside")]).await;
    cluster.reaches(0, "beside", "active").await;
    assert_eq!(
        cluster.state(0, "below").await,
        "blocked",
        "a dependent of the failed step must wait"
    );
    assert_eq!(cluster.state(1, "beside").await, "todo", "every step of the node must wait");
    assert_eq!(cluster.runs(1, "beside").await.len(), 0);

    cluster.commit(&[bind(1, "grave").data(json!({}))]).await;
    for role in ["grave", "below", "beside"] {
        cluster.reaches(1, role, "active").await;
    }
    worker.stop().await;
}

/// A step on node 0 with 10,000 immediate steps below it, in five rows of 2,000.
async fn fan() -> Cluster {
    let mut cluster = Cluster::of(1).await;
    with(&mut cluster, "root", |_| ()).await;
    cluster.commit(&[bind(0, "root")]).await;
    let root = cluster.step(0, "root");
    let sql = format!(
        "ALTER TABLE noderole DISABLE TRIGGER guard_intent; ALTER TABLE step DISABLE TRIGGER
             guard_intent;
         ALTER TABLE edge DISABLE TRIGGER guard_intent;
         INSERT INTO noderole (id, node_id, role, instance, deployment_id, role_hash)
         SELECT md5('m' || g)::uuid, n.node_id, 'milestone', g, n.deployment_id, n.role_hash
         FROM step s JOIN noderole n ON n.id = s.noderole_id, generate_series(1, 10000) g WHERE
         s.id = '{root}';
         INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation,
         content_hash, immediate, state, pending, node_up)
         SELECT md5('m' || g)::uuid, md5('m' || g)::uuid, node_id, concurrency_group_id, 1 + (g -
         1) / 2000, jig, generation, content_hash, true,
           'blocked', 1, true
         FROM step, generate_series(1, 10000) g WHERE id = '{root}';
         INSERT INTO edge (child, parent, kind)
         SELECT md5('m' || g)::uuid, CASE WHEN g <= 2000 THEN '{root}'::uuid ELSE md5('m' || (g -
         2000))::uuid END, 'hard'
         FROM generate_series(1, 10000) g;"
    );
    own(&cluster, &sql).await;
    cluster
}

const DONE: &str = "step WHERE immediate AND state = 'active'";
const LEFT: &str = "step WHERE immediate AND state = 'todo'";

#[tokio::test]
async fn immediate_steps_pass_in_bounded_transactions() {
    let cluster = fan().await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    until(&cluster, DONE, 10_000).await;
    worker.stop().await;
    let sizes: Vec<i64> =
        sqlx::query_scalar("SELECT count(*) FROM step WHERE immediate GROUP BY xmin::text")
            .fetch_all(cluster.pool())
            .await
            .expect("sizes");
    assert!(sizes.len() >= 10 && sizes.iter().all(|size| *size <= 1_000), "{sizes:?}");
}

#[tokio::test]
async fn interrupted_immediate_steps_are_completed_later() {
    let cluster = fan().await;
    // The process dies in its third transaction. A sequence keeps its value if the transaction
    // rolls back.
    let dies = "CREATE SEQUENCE written; GRANT USAGE ON SEQUENCE written TO PUBLIC;
         CREATE FUNCTION dies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF (SELECT count(*) FROM changed) > 500 AND nextval('written') > 2 THEN
             RAISE EXCEPTION 'killed' USING ERRCODE = '57P01';
           END IF; RETURN NULL; END $$;
         CREATE TRIGGER dies AFTER UPDATE ON step REFERENCING NEW TABLE AS changed FOR EACH
         STATEMENT EXECUTE FUNCTION dies();";
    own(&cluster, dies).await;
    let worker = confirmed(&cluster, 5).await;
    store::runs::claim_runs(cluster.pool(), EVERY).await.expect("a claim");
    let leased =
        store::runs::lease_runs(cluster.pool(), worker, &["test"], 1, LONG).await.expect("a lease");
    let end = RunEnd::Succeeded { result: serde_json::Map::new(), output: json!({}) };
    store::runs::finish_run(cluster.pool(), leased[0].run, worker, &end)
        .await
        .expect("the run is finished");
    assert_eq!(cluster.state(0, "root").await, "active");
    let (done, left) = (cluster.count(DONE).await, cluster.count(LEFT).await);
    assert!(
        done > 0 && left > 0,
        "{done} steps are done and {left} are left: the driver must be interrupted in between"
    );
    assert!(
        store::runs::claim_runs(cluster.pool(), EVERY).await.expect("a claim").runs.is_empty(),
        "immediate steps must not be claimed"
    );

    own(&cluster, "DROP TRIGGER dies ON step").await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    until(&cluster, DONE, 10_000).await;
    worker.stop().await;
    assert_eq!(cluster.count("run").await, 1, "immediate steps must have no run");
}

#[tokio::test]
async fn step_with_wrong_count_is_pending_as_damaged() {
    let mut cluster = Cluster::of(1).await;
    for name in ["parent", "child", "other"] {
        with(&mut cluster, name, |_| ()).await;
    }
    let binds = [bind(0, "parent"), bind(0, "child").after(0, "parent"), bind(0, "other")];
    cluster.commit(&binds).await;
    confirmed(&cluster, 10).await;
    let child = cluster.step(0, "child");
    let wrong = "UPDATE step SET state = 'todo', pending = 0, since = '2020-01-01' WHERE id =";
    own(&cluster, &format!("ALTER TABLE step DISABLE TRIGGER guard_intent; {wrong} '{child}'"))
        .await;
    let mut on = cluster.server().acquire().await.expect("a connection");
    let found = store::runs::admission_reasons(&mut on, EVERY, &[child]).await.expect("reasons");
    assert_eq!(found[&child], [Reason::Miscounted]);
    drop(on);

    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "other", "active").await;
    cluster.reaches(0, "parent", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "parent").await.expect("a reason");
    let named = format!("the stored number of pending parents of step {child} is too low");
    assert!(error.contains(&named) && !error.contains(".."), "{error}");
    assert_eq!(cluster.runs(0, "child").await.len(), 0);
}

#[tokio::test]
async fn blocked_claim_is_reported() {
    let cluster = Cluster::of(1).await;
    let sweep = Duration::from_secs(1);
    let mut claims = ClaimSteps { pool: cluster.pool().clone(), limits: EVERY, sweep };
    let mut holder = cluster.pool().begin().await.expect("a transaction");
    // The key is migrations::CLAIM_LOCK.
    sqlx::query("SELECT pg_advisory_xact_lock(1)").execute(&mut *holder).await.expect("the lock");
    let busy = claims.run().await.expect("an outcome");
    assert_eq!(busy.as_str(), "Another transaction holds the lock for claims.");
    drop(holder);
    assert_eq!(claims.run().await.expect("an outcome").as_str(), "No step may start.");
}

#[tokio::test]
async fn damaged_row_ends_in_error_without_retries() {
    let mut cluster = Cluster::of(2).await;
    with(&mut cluster, "before", |_| ()).await;
    with(&mut cluster, "after", |_| ()).await;
    cluster.commit(&[bind(0, "before"), bind(1, "after").data(lasts(1.0))]).await;
    // One step that can't be prepared, and one whose end can't be computed.
    own(
        &cluster,
        &format!(
            "ALTER TABLE step DISABLE TRIGGER guard_intent; ALTER TABLE step DROP CONSTRAINT
                 step_content_hash_check;
             ALTER TABLE run DROP CONSTRAINT run_content_hash_check;
             UPDATE step SET content_hash = '\\x00' WHERE id = '{}'",
            cluster.step(0, "before")
        ),
    )
    .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.running(1, "after").await;
    own(
        &cluster,
        &format!("UPDATE step SET cause = 'whim' WHERE id = '{}'", cluster.step(1, "after")),
    )
    .await;
    cluster.reaches(0, "before", "error").await;
    cluster.reaches(1, "after", "error").await;
    worker.stop().await;
    for (node, role, text) in [
        (0, "before", "a hash must have 32 bytes"),
        (1, "after", "Unknown cause of a re-run: \"whim\""),
    ] {
        let error = cluster.error(node, role).await.expect("a reason");
        assert!(error.contains(text) && error.contains("Restore it from a backup"), "{error}");
        let runs = cluster.runs(node, role).await;
        assert_eq!((runs.len(), runs[0].outcome.as_deref()), (1, Some("failed")), "{runs:?}");
    }
}
