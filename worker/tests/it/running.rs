//! A run from claim to ACTIVE, and everything that can interrupt it.

use std::time::Duration;

use engine::catalog::JigClass;
use serde_json::json;

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};
use crate::scripts::{appears, is_alive};

#[tokio::test]
async fn steps_run_in_order_with_new_outputs() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_role(role("first", JigClass::Test)).await;
    cluster.add_role(role("second", JigClass::Test)).await;
    let reported =
        json!({"test": {"prints": ["hello"], "returns": {"port": 80, "found": 7}}, "port": 80});
    cluster.commit(&[bind(0, "first").data(reported), bind(0, "second").after(0, "first")]).await;
    assert_eq!(cluster.state(0, "first").await, "todo");
    assert_eq!(cluster.state(0, "second").await, "blocked");

    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "second", "active").await;
    worker.stop().await;

    assert_eq!(
        cluster.output(0, "first").await,
        Some(json!({"found": 7})),
        "a value that was already in the input is not part of the output"
    );
    let runs = cluster.runs(0, "second").await;
    let input = runs[0].input.clone().expect("a stored input");
    assert_eq!(input["data"]["found"], 7, "the child must see its parent's output");
    let source = &input["sources"]["/found"];
    assert_eq!(source["layer"], "output");
    let first = &cluster.runs(0, "first").await[0];
    assert_eq!(first.outcome.as_deref(), Some("succeeded"));
    assert_eq!(cluster.log(engine::ids::RunId(first.id)).await, "hello\n");
    assert_eq!(
        cluster.count("worker WHERE phase = 'confirmed'").await,
        0,
        "the worker must sign off when it stops"
    );
}

#[tokio::test]
async fn failed_step_has_reason_and_can_retry() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_role(role("bad", JigClass::Test)).await;
    cluster.add_role(role("child", JigClass::Noop)).await;
    let reported = json!({"test": {"fail": "no such disk"}});
    cluster.commit(&[bind(0, "bad").data(reported), bind(0, "child").after(0, "bad")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "bad", "error").await;
    assert_eq!(cluster.error(0, "bad").await.as_deref(), Some("no such disk"));
    assert_eq!(cluster.state(0, "child").await, "blocked");

    cluster.commit(&[bind(0, "bad").data(json!({}))]).await;
    cluster.reaches(0, "child", "active").await;
    worker.stop().await;
    let live = cluster.count("event WHERE kind = 'step' AND body->>'state' = 'error'").await;
    assert_eq!(live, 1);
}

#[tokio::test]
async fn concurrent_runs_stay_within_capacity() {
    let mut cluster = Cluster::of(12).await;
    cluster.add_role(role("slow", JigClass::Test)).await;
    let reported = json!({"test": {"seconds": 0.4}});
    let binds: Vec<_> = (0..12).map(|node| bind(node, "slow").data(reported.clone())).collect();
    cluster.commit(&binds).await;
    let config = worker::Config { max_running: 3, ..quick(&cluster.folder()) };
    let worker = Running::start(config, cluster.pool());
    let mut most = 0;
    while cluster.count("step WHERE state = 'active'").await < 12 {
        most = most.max(cluster.count("run WHERE ended_at IS NULL").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.stop().await;
    assert_eq!(most, 3);
}

#[tokio::test]
async fn sweep_finds_steps_without_notification() {
    let mut cluster = Cluster::of(2).await;
    cluster.add_role(role("bad", JigClass::Test)).await;
    cluster.add_role(role("noop", JigClass::Noop)).await;
    let reported = json!({"test": {"fail": true}});
    cluster.commit(&[bind(0, "bad").data(reported), bind(1, "noop")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "bad", "error").await;
    cluster.reaches(1, "noop", "active").await;

    // A step becomes TODO and a run is queued without a notification.
    cluster.sql("UPDATE step SET state = 'todo', since = now() WHERE state = 'error'").await;
    cluster
        .sql(
            "WITH moved AS (UPDATE step SET state = 'transition', applied_generation = 0 WHERE
                 state = 'active' RETURNING *)
             INSERT INTO run (step_id, node_id, concurrency_group_id, generation, content_hash,
             blueprint_number, epoch, exclusive, lease_until)
             SELECT m.id, m.node_id, m.concurrency_group_id, m.generation, m.content_hash,
             h.number, h.epoch, m.exclusive,
               now() + interval '1 min' FROM moved m, head h",
        )
        .await;
    cluster.reaches(1, "noop", "active").await;
    cluster.reaches(0, "bad", "error").await;
    assert_eq!(cluster.runs(0, "bad").await.len(), 2);
    assert_eq!(cluster.runs(1, "noop").await.len(), 2);
    worker.stop().await;
}

#[tokio::test]
async fn broken_database_connections_are_reopened() {
    let mut cluster = Cluster::of(6).await;
    cluster.add_role(role("slow", JigClass::Test)).await;
    let reported = json!({"test": {"seconds": 0.3}});
    let binds: Vec<_> = (0..6).map(|node| bind(node, "slow").data(reported.clone())).collect();
    let config = worker::Config { max_running: 1, ..quick(&cluster.folder()) };
    let worker = Running::start(config, cluster.pool());
    cluster.commit(&binds).await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(350)).await;
        cluster.db.terminate_connections().await.expect("the change is applied");
    }
    for node in 0..6 {
        cluster.reaches(node, "slow", "active").await;
        assert_eq!(cluster.runs(node, "slow").await.len(), 1, "the run must not be lost");
    }
    worker.stop().await;
}

#[tokio::test]
async fn database_outage_only_delays_runs() {
    let mut cluster = Cluster::of(2).await;
    let short = "#!/bin/sh\necho x >>starts\necho before\nsleep 1\necho after\n";
    cluster.add_script_role("short", short, |_| ()).await;
    let long = "#!/bin/sh\necho $$ >>starts\n[ $(wc -l <starts) -ge 2 ] || sleep 300\n";
    cluster.add_script_role("long", long, |role| role.run.backoff = 0).await;
    cluster.commit(&[bind(0, "short"), bind(1, "long")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let long = appears(&cluster.nodes[1].root.join("starts")).await;
    appears(&cluster.nodes[0].root.join("starts")).await;

    cluster.db.set_connections_allowed(false).await.expect("the change is applied");
    // The worker must end a run that it can't renew while the database is still unavailable.
    let ended = tokio::time::timeout(Duration::from_secs(60), async {
        while is_alive(&long) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    ended.await.expect("the run outlived its lease");
    cluster.db.set_connections_allowed(true).await.expect("the change is applied");

    cluster.reaches(0, "short", "active").await;
    cluster.reaches(1, "long", "active").await;
    worker.stop().await;
    let starts = |node: usize| {
        std::fs::read_to_string(cluster.nodes[node].root.join("starts")).expect("the script ran")
    };
    assert_eq!(starts(1).lines().count(), 2);
    let run = cluster.runs(0, "short").await[0].clone();
    let log = cluster.log(engine::ids::RunId(run.id)).await;
    assert_eq!(log, "before\nafter\n", "the log must contain the lines from during the outage");
}

/// The run's generation was approved. It would execute the root of a later target without an
/// approval.
#[tokio::test]
async fn unapproved_root_is_not_executed() {
    let mut cluster = Cluster::of(2).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.commit(&[bind(0, "right")]).await;
    cluster.commit(&[bind(1, "right")]).await;
    for statement in [
        "ALTER TABLE verdict DISABLE TRIGGER guard_append_only",
        "UPDATE verdict SET kind = 'reject' WHERE review_id = (SELECT max(review_id) FROM \
         blueprint)",
    ] {
        sqlx::raw_sql(statement)
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
    }
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    for node in [0, 1] {
        cluster.reaches(node, "right", "error").await;
        let error = cluster.error(node, "right").await.expect("a reason");
        assert!(error.contains("0 of 1 approval"), "{error}");
        assert!(!cluster.nodes[node].root.join("ran").exists());
    }
    worker.stop().await;
}

#[tokio::test]
async fn run_differing_from_approval_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.add_script_role("wrong", "#!/bin/sh\necho y >ran\n", |_| ()).await;
    cluster.commit(&[bind(0, "right"), bind(1, "right"), bind(1, "wrong"), bind(2, "right")]).await;
    // As an attacker who owns the database: another role's content, and a forged approval.
    for statement in [
        "ALTER TABLE noderole DISABLE TRIGGER guard_intent",
        "UPDATE noderole SET role_hash = (SELECT role_hash FROM noderole WHERE role = 'wrong')
         WHERE role = 'right' AND node_id = (SELECT id FROM node WHERE fqdn = 'n0.test.gantry')",
        "ALTER TABLE step DISABLE TRIGGER guard_intent",
        "UPDATE step SET content_hash = sha256('other') WHERE node_id = (SELECT id FROM node WHERE \
         fqdn = 'n2.test.gantry')",
    ] {
        sqlx::raw_sql(statement)
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
    }
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "right", "error").await;
    cluster.reaches(1, "right", "active").await;
    cluster.reaches(2, "right", "error").await;
    for (node, reason) in [(0, "the row of the noderole has"), (2, "belongs neither to generation")]
    {
        let error = cluster.error(node, "right").await.expect("a reason");
        assert!(error.contains("does not match its approval") && error.contains(reason), "{error}");
        assert!(!cluster.nodes[node].root.join("ran").exists());
        let run = engine::ids::RunId(cluster.runs(node, "right").await[0].id);
        assert!(cluster.log(run).await.contains(reason), "the log must also contain the reason");
    }

    for statement in [
        "ALTER TABLE verdict DISABLE TRIGGER guard_append_only",
        "UPDATE verdict SET kind = 'reject'",
    ] {
        sqlx::raw_sql(statement)
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
    }
    let step = cluster.step(1, "right");
    store::runs::rerun_step(cluster.pool(), step, engine::anneal::RerunReason::Drift)
        .await
        .expect("a re-run");
    cluster.reaches(1, "right", "error").await;
    let error = cluster.error(1, "right").await.expect("a reason");
    assert!(error.contains("0 of 1 approval"), "{error}");
    worker.stop().await;
}

/// As an attacker who owns the database and bypasses every guard.
#[tokio::test]
async fn row_that_differs_stops_its_run() {
    let fields = [
        ("noderole.data", "UPDATE noderole SET data = '{\"right\": 1}' WHERE"),
        (
            "node.deployment_id",
            "UPDATE node SET deployment_id = (SELECT id FROM deployment WHERE name = 'other') \
             WHERE id IN (SELECT node_id FROM noderole WHERE",
        ),
        ("step.destructive", "UPDATE step SET destructive = true WHERE"),
        ("step.jig", "UPDATE step SET jig = 'test' WHERE"),
        ("step.exclusive", "UPDATE step SET exclusive = false WHERE"),
        ("step.needs", "UPDATE step SET needs = 'any' WHERE"),
        ("step.run_location", "UPDATE step SET run_location = 'worker' WHERE"),
        ("step.timeout_s", "UPDATE step SET timeout_s = 77 WHERE"),
        (
            "concurrency_group.name",
            "UPDATE step SET concurrency_group_id = (SELECT min(id) FROM concurrency_group) WHERE",
        ),
        (
            "edge.parent",
            "INSERT INTO edge SELECT s.id, (SELECT id FROM step WHERE state = 'active' LIMIT 1), \
             'hard' FROM step s WHERE",
        ),
    ];
    let mut cluster = Cluster::of(fields.len() + 1).await;
    cluster.add_script_role("right", "#!/bin/sh\necho x >ran\n", |_| ()).await;
    cluster.add_role(role("zz", JigClass::Noop)).await;
    cluster.commit(&[bind(fields.len(), "zz")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(fields.len(), "zz", "active").await;
    cluster
        .sql(
            "UPDATE deployment SET on_hold_by = (SELECT id FROM person LIMIT 1), on_hold_since = \
              now()",
        )
        .await;
    let binds: Vec<_> = (0..fields.len()).map(|node| bind(node, "right")).collect();
    cluster.commit(&binds).await;
    for table in ["deployment", "node", "noderole", "step", "edge"] {
        let off = format!("ALTER TABLE {table} DISABLE TRIGGER USER");
        sqlx::raw_sql(sqlx::AssertSqlSafe(off))
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
    }
    cluster
        .sql(
            "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
             SELECT gen_random_uuid(), id, 'other', phantom, doc, head_no FROM deployment",
        )
        .await;
    for (node, (_, change)) in fields.iter().enumerate() {
        let of = cluster.nodes[node].id;
        let close = if change.contains("IN (SELECT") { ")" } else { "" };
        let key = if change.starts_with("INSERT") { "s.node_id" } else { "node_id" };
        let change = format!("{change} {key} = '{of}'{close}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(change))
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
    }
    cluster.sql("UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL").await;
    for (node, (field, _)) in fields.iter().enumerate() {
        cluster.reaches(node, "right", "error").await;
        let error = cluster.error(node, "right").await.expect("a reason");
        assert!(
            error.contains("a row differs from its document") && error.contains(field),
            "{field}: {error}"
        );
        assert!(!cluster.nodes[node].root.join("ran").exists(), "{field}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn worker_lists_its_tasks_until_it_stops() {
    let cluster = Cluster::of(1).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let succeeded = "background_task b JOIN worker w ON w.id = b.process_id AND w.name = b.process
         WHERE b.failures = 0 AND b.outcome IS NOT NULL";
    for _ in 0..1_500 {
        if cluster.count(succeeded).await == 9 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(cluster.count(succeeded).await, 9);
    worker.stop().await;
    assert_eq!(cluster.count("background_task").await, 0);
}
