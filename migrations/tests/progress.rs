//! Progress moves only along the state machine. A guard rejects each manual statement of the
//! application role, and the normal flow of a worker passes.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use sqlx::Executor as _;
use uuid::Uuid;
use world::{World, assert_refused, state};

const WORKER: &str = "00000000-0000-0000-0000-000000000001";

/// Both nodes are alive, and there is a worker.
async fn ready() -> World {
    let world = World::new().await;
    world.grant_all().await;
    world
        .owner("UPDATE node SET alive = true, joined = 'confirmed' WHERE NOT phantom")
        .await
        .unwrap();
    let worker = format!(
        "INSERT INTO worker (id, name, phase, capacity, jigs, lease_until)
         VALUES ('{WORKER}', 'w', 'confirmed', 9, '{{script}}', now() + interval '1 hour')"
    );
    world.app(&worker).await.unwrap();
    world
}

/// A claim of a node's step, with another value in one column of the run.
fn claim_with(fqdn: &str, column: &str, value: &str) -> String {
    let columns = [
        "node_id",
        "concurrency_group_id",
        "generation",
        "content_hash",
        "exclusive",
        "blueprint_number",
        "epoch",
        "state",
    ];
    let values = [
        "m.node_id",
        "m.concurrency_group_id",
        "m.generation",
        "m.content_hash",
        "m.exclusive",
        "h.number",
        "h.epoch",
        "'queued'",
    ];
    let values =
        columns.iter().zip(values).map(|(name, usual)| if *name == column { value } else { usual });
    format!(
        "WITH moved AS (UPDATE step SET state = 'transition', since = now()
           WHERE node_id = (SELECT id FROM node WHERE fqdn = '{fqdn}') AND state = 'todo' RETURNING *)
         INSERT INTO run (step_id, {}, lease_until) SELECT m.id, {}, now() + interval '1 min' FROM moved m, head h",
        columns.join(", "),
        values.collect::<Vec<_>>().join(", ")
    )
}

fn claim(fqdn: &str) -> String {
    claim_with(fqdn, "", "")
}

/// The same with the cause of the step.
fn with_cause(fqdn: &str) -> String {
    claim(fqdn)
        .replace("lease_until)", "cause, lease_until)")
        .replace(", now() + ", ", m.cause, now() + ")
}

const N1: &str = "n1.x.example";
const N2: &str = "n2.x.example";

async fn lease(world: &World) {
    let sql = format!(
        "UPDATE run SET state = 'running', worker_id = '{WORKER}', started_at = now() WHERE state = 'queued'"
    );
    assert_eq!(world.app(&sql).await.unwrap(), 1);
}

/// Ends a run in one transaction, as a worker does.
async fn finish(world: &World, outcome: &str, step: &str) -> Result<(), sqlx::Error> {
    let mut tx = world.db.worker().begin().await?;
    let end = format!(
        "UPDATE run SET state = 'ended', ended_at = now(), outcome = '{outcome}', result = '{{\"a\": 1}}', result_bytes = 8
         WHERE ended_at IS NULL"
    );
    tx.execute(sqlx::AssertSqlSafe(end)).await?;
    let step = format!("UPDATE step SET {step} WHERE state = 'transition'");
    tx.execute(sqlx::AssertSqlSafe(step)).await?;
    tx.commit().await
}

const DONE: &str = "state = 'active', applied_generation = generation";
const OUTPUT: &str = "UPDATE step SET results = '{\"a\": 1}', output = '{\"a\": 1}', output_run = 1 WHERE state = 'active'";

#[tokio::test]
async fn claimed_run_changes_its_step() {
    let world = ready().await;
    assert_eq!(world.app(&claim(N1)).await.unwrap(), 1);
    lease(&world).await;
    world.app("INSERT INTO run_log (run_id, at_offset, body) VALUES (1, 0, 'x')").await.unwrap();
    finish(
        &world,
        "succeeded",
        &format!("{DONE}, results = '{{\"a\": 1}}', output = '{{\"a\": 1}}', output_run = 1"),
    )
    .await
    .unwrap();
    let later = "UPDATE step SET output = '{\"a\": 2}' WHERE state = 'active'";
    assert_refused("later", world.app(later).await, Refusal::OutputWithoutRun);
    // A re-run with a cause fails and is retried.
    world
        .app("UPDATE step SET state = 'todo', cause = 'drift' WHERE state = 'active'")
        .await
        .unwrap();
    assert_refused("its cause is missing", world.app(&claim(N1)).await, Refusal::StepNotStartable);
    world.app(&with_cause(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "failed", "state = 'error', error = 'no'").await.unwrap();
    world
        .app("UPDATE step SET state = 'todo', cause = 'retry' WHERE state = 'error'")
        .await
        .unwrap();
}

#[tokio::test]
async fn step_change_without_run_is_refused() {
    let world = ready().await;
    for (sql, by) in [
        ("UPDATE step SET state = 'transition'", Refusal::InvalidStepTransition),
        (
            "UPDATE step SET state = 'active', applied_generation = generation",
            Refusal::InvalidStepTransition,
        ),
        ("UPDATE step SET state = 'active'", Refusal::InvalidStepTransition),
        ("UPDATE step SET state = 'error'", Refusal::InvalidStepTransition),
        ("UPDATE step SET applied_generation = 1", Refusal::InvalidStepTransition),
        ("UPDATE step SET output = '{\"a\": 1}'", Refusal::OutputWithoutRun),
        ("UPDATE step SET output = '{\"a\": 1}', output_run = 1", Refusal::OutputWithoutRun),
        ("UPDATE step SET results = '{}'", Refusal::OutputWithoutRun),
        ("UPDATE noderole SET system_data = '{\"a\": 1}'", Refusal::OutputWithoutRun),
        (OUTPUT.replace(" WHERE state = 'active'", "").as_str(), Refusal::OutputWithoutRun),
    ] {
        assert_refused(sql, world.app(sql).await, by);
    }
    // While its run is open.
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    for set in [DONE, "state = 'todo'", "state = 'error'", "state = 'blocked', pending = 1"] {
        let sql = format!("UPDATE step SET {set} WHERE state = 'transition'");
        assert_refused(set, world.app(&sql).await, Refusal::InvalidStepTransition);
    }
    // After its run ended with another outcome.
    for (outcome, set) in [("failed", DONE), ("succeeded", "state = 'error'"), ("lost", DONE)] {
        assert_refused(outcome, finish(&world, outcome, set).await, Refusal::InvalidStepTransition);
    }
    let other = format!("{DONE}, results = '{{\"a\": 2}}'");
    assert_refused(
        "another result",
        finish(&world, "succeeded", &other).await,
        Refusal::OutputWithoutRun,
    );
    let foreign = format!("{DONE}, results = '{{\"a\": 1}}', output = '{{}}', output_run = 7");
    assert_refused(
        "output of another run",
        finish(&world, "succeeded", &foreign).await,
        Refusal::OutputWithoutRun,
    );
    finish(&world, "succeeded", DONE).await.unwrap();
    for (sql, by) in [
        ("UPDATE step SET state = 'todo' WHERE state = 'active'", Refusal::InvalidStepTransition),
        (
            "UPDATE step SET state = 'transition' WHERE state = 'active'",
            Refusal::InvalidStepTransition,
        ),
        ("UPDATE step SET state = 'error' WHERE state = 'active'", Refusal::InvalidStepTransition),
        (
            "UPDATE step SET applied_generation = 0 WHERE state = 'active'",
            Refusal::InvalidStepTransition,
        ),
    ] {
        assert_refused(sql, world.app(sql).await, by);
    }
}

#[tokio::test]
async fn server_cannot_report_run_result() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    for outcome in ["succeeded", "failed", "canceled", "lost"] {
        let end =
            format!("UPDATE run SET state = 'ended', ended_at = now(), outcome = '{outcome}'");
        assert_refused(outcome, world.app(&end).await, Refusal::InvalidRunTransition);
    }
}

#[tokio::test]
async fn only_person_retries_destructive_step() {
    let world = ready().await;
    world
        .owner("ALTER TABLE step DISABLE TRIGGER guard_intent; ALTER TABLE step DISABLE TRIGGER guard_risk_again")
        .await
        .unwrap();
    world.owner("UPDATE step SET destructive = true").await.unwrap();
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "failed", "state = 'error', error = 'no'").await.unwrap();
    let retry = "UPDATE step SET state = 'todo', cause = 'retry' WHERE state = 'error'";
    assert_refused("server", world.app(retry).await, Refusal::InvalidStepTransition);
    assert_refused("worker", world.worker(retry).await, Refusal::InvalidStepTransition);
    assert_refused(
        "a reviewer",
        world.app_as(world.bo, retry).await,
        Refusal::InvalidStepTransition,
    );
    // An operator of another deployment.
    world
        .owner(&format!("UPDATE person SET permissions = '{{}}' WHERE id = '{}'", world.eve))
        .await
        .unwrap();
    grant_operator(&world, world.eve, world.storage).await;
    assert_refused(
        "of storage",
        world.app_as(world.eve, retry).await,
        Refusal::InvalidStepTransition,
    );
    grant_operator(&world, world.eve, world.web).await;
    world.app_as(world.eve, retry).await.unwrap();
    assert_refused(
        "its retry names no person",
        world.app(&with_cause(N1)).await,
        Refusal::StepNotStartable,
    );
}

async fn grant_operator(world: &World, person: Uuid, place: Uuid) {
    let sql = format!(
        "INSERT INTO scoped_grant (person_id, permission, deployment_id) VALUES ('{person}', 'operator', '{place}')"
    );
    world.owner(&sql).await.unwrap();
}

#[tokio::test]
async fn retry_keeps_no_name_of_an_earlier_one() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "failed", "state = 'error', error = 'no', cause = 'retry'").await.unwrap();
    world.owner("UPDATE step SET cause_by = 'ada' WHERE state = 'error'").await.unwrap();
    let again = "UPDATE step SET state = 'todo' WHERE state = 'error'";
    assert_refused("nobody", world.app(again).await, Refusal::PersonMismatch);
    assert_refused("another person", world.app_as(world.eve, again).await, Refusal::PersonMismatch);
    world.app_as(world.ada, again).await.unwrap();
}

#[tokio::test]
async fn retry_names_its_operator() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "failed", "state = 'error', error = 'no'").await.unwrap();
    let named = |name: &str| {
        format!(
            "UPDATE step SET state = 'todo', cause = 'retry', cause_by = '{name}' WHERE state = 'error'"
        )
    };
    assert_refused("nobody", world.app(&named("ada")).await, Refusal::PersonMismatch);
    assert_refused("worker", world.worker(&named("ada")).await, Refusal::PersonMismatch);
    assert_refused(
        "another person",
        world.app_as(world.eve, &named("ada")).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a reviewer",
        world.app_as(world.bo, &named("bo")).await,
        Refusal::PersonMismatch,
    );
    world.app_as(world.ada, &named("ada")).await.unwrap();
}

#[tokio::test]
async fn only_operator_or_commit_cancels_run() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    let cancel = "UPDATE run SET cancel_requested = true, error = 'canceled by ada'";
    let superseded = "UPDATE run SET cancel_requested = true, superseded = true";
    assert_refused("nobody", world.app(cancel).await, Refusal::PersonMismatch);
    assert_refused("no commit", world.app(superseded).await, Refusal::PersonMismatch);
    assert_refused(
        "no commit, a person",
        world.app_as(world.ada, superseded).await,
        Refusal::PersonMismatch,
    );
    assert_refused("a reviewer", world.app_as(world.bo, cancel).await, Refusal::PersonMismatch);
    assert_refused(
        "another person",
        world.app_as(world.eve, cancel).await,
        Refusal::PersonMismatch,
    );
    let told = "UPDATE run SET error = 'canceled by ada'";
    assert_refused("its words alone", world.app(told).await, Refusal::PersonMismatch);
    world.app_as(world.ada, cancel).await.unwrap();
}

#[tokio::test]
async fn queued_run_is_not_canceled_unasked() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    let end = "UPDATE run SET state = 'ended', ended_at = now(), outcome = 'canceled'";
    assert_refused("server", world.app(end).await, Refusal::InvalidRunTransition);
    assert_refused("worker", world.worker(end).await, Refusal::InvalidRunTransition);
    let named = "UPDATE run SET state = 'ended', ended_at = now(), outcome = 'unstarted', cancel_requested = true,
                 error = 'canceled by ada'";
    assert_refused("server", world.app(named).await, Refusal::PersonMismatch);
    let unstarted = named.replace("cancel_requested = true,", "");
    assert_refused("worker", world.worker(&unstarted).await, Refusal::PersonMismatch);
}

#[tokio::test]
async fn unknown_cause_is_refused() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "succeeded", DONE).await.unwrap();
    let again = "UPDATE step SET state = 'todo', cause = 'retry by bo' WHERE state = 'active'";
    assert_refused("server", world.app(again).await, Refusal::InvalidStepTransition);
    assert_refused("worker", world.worker(again).await, Refusal::InvalidStepTransition);
}

#[tokio::test]
async fn destructive_applied_step_never_runs_again() {
    let world = ready().await;
    world
        .owner("ALTER TABLE step DISABLE TRIGGER guard_intent; ALTER TABLE step DISABLE TRIGGER guard_risk_again")
        .await
        .unwrap();
    world.owner("UPDATE step SET destructive = true").await.unwrap();
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    assert_refused(
        "lost",
        finish(&world, "lost", "state = 'todo'").await,
        Refusal::InvalidStepTransition,
    );
    finish(&world, "succeeded", DONE).await.unwrap();
    for set in [
        "state = 'todo', cause = 'drift'",
        "state = 'blocked', pending = 1",
        "state = 'todo', applied_generation = 0",
    ] {
        let sql = format!("UPDATE step SET {set} WHERE state = 'active'");
        let refused = state(world.app(&sql).await);
        assert!(["GY047", "23514"].contains(&refused.as_str()), "{set}: {refused}");
    }
}

#[tokio::test]
async fn run_that_is_not_due_is_refused() {
    let world = ready().await;
    let by_hand = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until)
                   SELECT id, node_id, concurrency_group_id, generation, 1, 1, content_hash, exclusive, now() FROM step";
    assert_refused("its step is TODO", world.app(by_hand).await, Refusal::StepNotStartable);
    let another = "(SELECT id FROM node WHERE fqdn = 'n2.x.example')";
    let concurrency_group = "(SELECT l.id FROM concurrency_group l JOIN deployment d ON d.id = l.deployment_id WHERE d.name = 'storage')";
    for (column, value) in [
        ("node_id", another),
        ("concurrency_group_id", concurrency_group),
        ("generation", "m.generation + 1"),
        ("content_hash", "sha256('other')"),
        ("exclusive", "false"),
        ("epoch", "h.epoch + 1"),
    ] {
        let refused = world.app(&claim_with(N1, column, value)).await;
        let refused = state(refused);
        assert!(["GY047", "GY048"].contains(&refused.as_str()), "{column}: {refused}");
    }
    let jig = "ALTER TABLE jig DISABLE TRIGGER guard_intent; UPDATE jig SET active =";
    for (why, before, after) in [
        (
            "hold",
            "UPDATE deployment SET held_by = (SELECT id FROM person LIMIT 1), held_at = now() WHERE name = 'system'"
                .to_owned(),
            "UPDATE deployment SET held_by = NULL, held_at = NULL".to_owned(),
        ),
        ("maintenance", "UPDATE node SET available = false".into(), "UPDATE node SET available = true".into()),
        ("not joined", "UPDATE node SET joined = 'welcomed'".into(), "UPDATE node SET joined = 'confirmed'".into()),
        ("jig", format!("{jig} false"), format!("{jig} true")),
    ] {
        let machines = |sql: &str| {
            if sql.starts_with("UPDATE node") { format!("{sql} WHERE NOT phantom") } else { sql.to_owned() }
        };
        sqlx::raw_sql(sqlx::AssertSqlSafe(machines(&before))).execute(world.db.owner()).await.unwrap();
        assert_refused(why, world.app(&claim(N1)).await, Refusal::StepNotStartable);
        sqlx::raw_sql(sqlx::AssertSqlSafe(machines(&after))).execute(world.db.owner()).await.unwrap();
    }
    world.switch(false).await.unwrap();
    assert_refused("switch", world.app(&claim(N1)).await, Refusal::StepNotStartable);
    world.switch(true).await.unwrap();
    // A parent is not done, although `pending` is 0.
    let edge = "ALTER TABLE edge DISABLE TRIGGER guard_intent;
                INSERT INTO edge SELECT c.id, p.id, 'hard' FROM step c, step p WHERE c.id <> p.id LIMIT 1";
    sqlx::raw_sql(edge).execute(world.db.owner()).await.unwrap();
    let both = [world.app(&claim(N1)).await, world.app(&claim(N2)).await];
    assert_eq!(
        both.iter().filter(|claimed| claimed.is_err()).count(),
        1,
        "the child alone: {both:?}"
    );
}

#[tokio::test]
async fn run_passes_each_state_once() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    for sql in [
        "UPDATE run SET state = 'ended', ended_at = now(), outcome = 'succeeded'",
        "UPDATE run SET worker_id = '00000000-0000-0000-0000-000000000001'",
        "UPDATE run SET input = '{}'",
        "UPDATE run SET result = '{}'",
    ] {
        assert_refused(sql, world.app(sql).await, Refusal::InvalidRunTransition);
    }
    world
        .owner("UPDATE deployment SET held_by = (SELECT id FROM person LIMIT 1), held_at = now() WHERE name = 'web'")
        .await
        .unwrap();
    let leased =
        format!("UPDATE run SET state = 'running', worker_id = '{WORKER}', started_at = now()");
    assert_refused("hold", world.app(&leased).await, Refusal::InvalidRunTransition);
    world.owner("UPDATE deployment SET held_by = NULL, held_at = NULL").await.unwrap();
    let log = |run: i64, at: i64| {
        format!(
            "INSERT INTO run_log (run_id, at_offset, body) VALUES ({run}, {at}, 'x') ON CONFLICT DO NOTHING"
        )
    };
    assert_refused("nobody has it", world.app(&log(1, 0)).await, Refusal::InvalidLogWrite);
    lease(&world).await;
    assert_refused("a gap", world.app(&log(1, 7)).await, Refusal::InvalidLogWrite);
    assert_refused("no such run", world.app(&log(99, 0)).await, Refusal::InvalidLogWrite);
    assert_eq!(
        (world.app(&log(1, 0)).await.unwrap(), world.app(&log(1, 0)).await.unwrap()),
        (1, 0)
    );
    let back = "UPDATE run SET state = 'queued', worker_id = NULL, started_at = NULL";
    assert_refused("back", world.app(back).await, Refusal::InvalidRunTransition);
    assert_refused(
        "stamp",
        world.app("UPDATE run SET ended_xid = pg_current_xact_id()").await,
        Refusal::RunIdentityChanged,
    );
    finish(&world, "succeeded", DONE).await.unwrap();
    for sql in [
        "UPDATE run SET outcome = 'failed'",
        "UPDATE run SET result = '{\"a\": 2}'",
        "UPDATE run SET input = '{}'",
    ] {
        assert_refused(sql, world.app(sql).await, Refusal::InvalidRunTransition);
    }
    world.app("UPDATE run SET result = NULL").await.unwrap();
    world.owner("UPDATE run SET lease_until = now()").await.unwrap();
}

#[tokio::test]
async fn node_change_without_health_check_is_refused() {
    let world = World::new().await;
    world.grant_all().await;
    // Makes it an SSH node, unlike its document.
    world
        .db
        .owner()
        .execute(
            "ALTER TABLE node DISABLE TRIGGER guard_node_record;
             UPDATE node SET transport = 'ssh', address = '[\"10.0.0.1\"]', alive = false, joined = 'none'
             WHERE fqdn = 'n1.x.example';
             ALTER TABLE node ENABLE TRIGGER guard_node_record",
        )
        .await
        .unwrap();
    for set in [
        "alive = true",
        "joined = 'confirmed'",
        "joined = 'finalized'",
        "boot_id = 'x'",
        "last_seen_at = now()",
        "facts = '{\"cpus\": 4}'",
        "connection_no = connection_no - 1",
    ] {
        let sql = format!("UPDATE node SET {set} WHERE fqdn = 'n1.x.example'");
        let refused = state(world.app(&sql).await);
        assert!(["GY052", "23514"].contains(&refused.as_str()), "{set}: {refused}");
    }
    let look = |reached| {
        format!(
            "INSERT INTO health_check (node_id, reached, took_ms, by) VALUES ('{}', {reached}, 1, 'w')",
            world.n1
        )
    };
    let up = "UPDATE node SET alive = true, joined = 'confirmed', boot_id = 'x', last_seen_at = now() WHERE fqdn = 'n1.x.example'";
    world.app(&look(false)).await.unwrap();
    assert_refused("not reached", world.app(up).await, Refusal::NodeStateWithoutEvidence);
    world.app(&look(true)).await.unwrap();
    world.app(up).await.unwrap();
    world.app(&look(false)).await.unwrap();
    world.app("UPDATE node SET alive = false WHERE fqdn = 'n1.x.example'").await.unwrap();
    let new = "INSERT INTO node (fqdn, deployment_id, transport, alive, joined)
               SELECT 'n8.x.example', id, 'ssh', true, 'confirmed' FROM deployment WHERE system";
    assert_refused("a new one", world.app(new).await, Refusal::NodeStateWithoutEvidence);
    let fact = format!(
        "INSERT INTO node_fact (node_id, source, facts, run_id) SELECT '{}', 'role app', '{{\"cpus\": 4}}', id FROM run",
        world.n2
    );
    world
        .owner("UPDATE node SET alive = true, joined = 'confirmed' WHERE fqdn = 'n2.x.example'")
        .await
        .unwrap();
    world.app(&claim(N2)).await.unwrap();
    assert_refused(
        "facts without a result",
        world.app(&fact).await,
        Refusal::NodeStateWithoutEvidence,
    );
}
