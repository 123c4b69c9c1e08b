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
    assert_refused(
        "output after the run was applied",
        world.app(later).await,
        Refusal::OutputWithoutRun,
    );
    // A re-run with a cause fails and is retried.
    world
        .app("UPDATE step SET state = 'todo', cause = 'drift' WHERE state = 'active'")
        .await
        .unwrap();
    assert_refused(
        "a re-run without its cause",
        world.app(&claim(N1)).await,
        Refusal::StepNotStartable,
    );
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
        "output that differs from the result",
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
    for outcome in ["succeeded", "failed", "canceled", "lost", "unstarted"] {
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
        "an operator of storage",
        world.app_as(world.eve, retry).await,
        Refusal::InvalidStepTransition,
    );
    grant_operator(&world, world.eve, world.web).await;
    world.app_as(world.eve, retry).await.unwrap();
    assert_refused(
        "a claim whose retry names no person",
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
async fn retry_does_not_keep_earlier_name() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "failed", "state = 'error', error = 'no', cause = 'retry'").await.unwrap();
    world.owner("UPDATE step SET cause_by = 'ada' WHERE state = 'error'").await.unwrap();
    let again = "UPDATE step SET state = 'todo' WHERE state = 'error'";
    assert_refused("no person", world.app(again).await, Refusal::PersonMismatch);
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
    assert_refused("no person", world.app(&named("ada")).await, Refusal::PersonMismatch);
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
    assert_refused("no person", world.app(cancel).await, Refusal::PersonMismatch);
    assert_refused(
        "a cancellation in the name of a commit",
        world.app(superseded).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a person in the name of a commit",
        world.app_as(world.ada, superseded).await,
        Refusal::PersonMismatch,
    );
    assert_refused("a reviewer", world.app_as(world.bo, cancel).await, Refusal::PersonMismatch);
    assert_refused(
        "another person",
        world.app_as(world.eve, cancel).await,
        Refusal::PersonMismatch,
    );
    let reported = "UPDATE run SET error = 'canceled by ada'";
    assert_refused(
        "an error text without a cancellation",
        world.app(reported).await,
        Refusal::PersonMismatch,
    );
    world.app_as(world.ada, cancel).await.unwrap();
}

#[tokio::test]
async fn queued_run_is_canceled_only_on_request() {
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
        "a lost run whose step is due again",
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
    assert_refused("a run whose step is TODO", world.app(by_hand).await, Refusal::StepNotStartable);
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
    for (case, before, after) in [
        (
            "hold",
            "UPDATE deployment SET on_hold_by = (SELECT id FROM person LIMIT 1), on_hold_since = now() WHERE name = 'system'"
                .to_owned(),
            "UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL".to_owned(),
        ),
        ("maintenance", "UPDATE node SET available = false".into(), "UPDATE node SET available = true".into()),
        ("not joined", "UPDATE node SET joined = 'welcomed'".into(), "UPDATE node SET joined = 'confirmed'".into()),
        ("jig", format!("{jig} false"), format!("{jig} true")),
    ] {
        let machines = |sql: &str| {
            if sql.starts_with("UPDATE node") { format!("{sql} WHERE NOT phantom") } else { sql.to_owned() }
        };
        sqlx::raw_sql(sqlx::AssertSqlSafe(machines(&before))).execute(world.db.owner()).await.unwrap();
        assert_refused(case, world.app(&claim(N1)).await, Refusal::StepNotStartable);
        sqlx::raw_sql(sqlx::AssertSqlSafe(machines(&after))).execute(world.db.owner()).await.unwrap();
    }
    world.switch(false).await.unwrap();
    assert_refused(
        "a claim while the switch is off",
        world.app(&claim(N1)).await,
        Refusal::StepNotStartable,
    );
    world.switch(true).await.unwrap();
    // A parent is not done, although `pending` is 0.
    let edge = "ALTER TABLE edge DISABLE TRIGGER guard_intent;
                INSERT INTO edge SELECT c.id, p.id, 'hard' FROM step c, step p WHERE c.id <> p.id LIMIT 1";
    sqlx::raw_sql(edge).execute(world.db.owner()).await.unwrap();
    let both = [world.app(&claim(N1)).await, world.app(&claim(N2)).await];
    assert_eq!(
        both.iter().filter(|claimed| claimed.is_err()).count(),
        1,
        "only the child must be rejected: {both:?}"
    );
}

#[tokio::test]
async fn draining_worker_gets_no_run() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    let drain = |worker: &str| {
        format!(
            "UPDATE worker SET drain_by = (SELECT id FROM person LIMIT 1), drain_since = now(), drain_reason = 'x'
             WHERE id = '{worker}'"
        )
    };
    world.owner(&drain(WORKER)).await.unwrap();
    let leased =
        format!("UPDATE run SET state = 'running', worker_id = '{WORKER}', started_at = now()");
    assert_refused(
        "a lease of a draining worker",
        world.worker(&leased).await,
        Refusal::InvalidRunTransition,
    );
    let resume = "UPDATE worker SET drain_by = NULL, drain_since = NULL, drain_reason = NULL";
    world.owner(resume).await.unwrap();
    lease(&world).await;
    // Its runs go on, and another draining worker does not adopt them.
    world.owner(&drain(WORKER)).await.unwrap();
    world.worker("UPDATE run SET input = '{}'").await.unwrap();
    world.worker("UPDATE run SET lease_until = now() + interval '1 minute'").await.unwrap();
    world.owner("UPDATE run SET lease_until = now() - interval '1 minute'").await.unwrap();
    let other = "00000000-0000-0000-0000-000000000002";
    let insert = format!(
        "INSERT INTO worker (id, name, phase, capacity, jigs, lease_until)
         VALUES ('{other}', 'o', 'confirmed', 9, '{{script}}', now() + interval '1 hour')"
    );
    world.worker(&insert).await.unwrap();
    world.owner(&drain(other)).await.unwrap();
    let adopted = format!(
        "UPDATE run SET worker_id = '{other}', adoptions = adoptions + 1, lease_until = now() + interval '1 minute'"
    );
    assert_refused(
        "an adoption by a draining worker",
        world.worker(&adopted).await,
        Refusal::InvalidRunTransition,
    );
    finish(&world, "succeeded", DONE).await.unwrap();
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
        .owner("UPDATE deployment SET on_hold_by = (SELECT id FROM person LIMIT 1), on_hold_since = now() WHERE name = 'web'")
        .await
        .unwrap();
    let leased =
        format!("UPDATE run SET state = 'running', worker_id = '{WORKER}', started_at = now()");
    assert_refused(
        "a lease during a hold",
        world.app(&leased).await,
        Refusal::InvalidRunTransition,
    );
    world.owner("UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL").await.unwrap();
    let log = |run: i64, at: i64| {
        format!(
            "INSERT INTO run_log (run_id, at_offset, body) VALUES ({run}, {at}, 'x') ON CONFLICT DO NOTHING"
        )
    };
    assert_refused(
        "a log of a run without a worker",
        world.app(&log(1, 0)).await,
        Refusal::InvalidLogWrite,
    );
    lease(&world).await;
    assert_refused("a gap in the log", world.app(&log(1, 7)).await, Refusal::InvalidLogWrite);
    assert_refused(
        "a log of an unknown run",
        world.app(&log(99, 0)).await,
        Refusal::InvalidLogWrite,
    );
    assert_eq!(
        (world.app(&log(1, 0)).await.unwrap(), world.app(&log(1, 0)).await.unwrap()),
        (1, 0)
    );
    let back = "UPDATE run SET state = 'queued', worker_id = NULL, started_at = NULL";
    assert_refused(
        "a run that returns to an earlier state",
        world.app(back).await,
        Refusal::InvalidRunTransition,
    );
    assert_refused(
        "a changed transaction id",
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
    world.owner("UPDATE run SET lease_until = now()").await.unwrap();
}

#[tokio::test]
async fn lease_lasts_at_most_one_hour() {
    let world = ready().await;
    let renew =
        |until: &str| format!("UPDATE run SET lease_until = {until} WHERE ended_at IS NULL");
    let wrong =
        ["'infinity'", "'-infinity'", "now() - interval '1 s'", "now() + interval '61 min'"];
    for until in wrong {
        let claimed = claim(N1).replace("now() + interval '1 min'", until);
        let refused = state(world.app(&claimed).await);
        assert!(
            ["GY048", "23514"].contains(&refused.as_str()),
            "a lease until {until} was claimed: {refused}"
        );
    }
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    for until in wrong {
        let refused = state(world.worker(&renew(until)).await);
        assert!(
            ["GY049", "23514"].contains(&refused.as_str()),
            "a lease was renewed until {until}: {refused}"
        );
    }
    assert_eq!(world.worker(&renew("now() + interval '1 hour'")).await.unwrap(), 1);
}

#[tokio::test]
async fn ended_run_does_not_leave_step_in_transition() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    let end = "UPDATE run SET state = 'ended', outcome = 'unstarted', ended_at = now() WHERE state = 'queued'";
    assert_refused("server", world.app(end).await, Refusal::InvalidRunTransition);
    assert_refused("worker", world.worker(end).await, Refusal::InvalidRunTransition);
    finish(&world, "unstarted", "state = 'todo'").await.unwrap();
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    let lost = "UPDATE run SET state = 'ended', outcome = 'lost', ended_at = now() WHERE state = 'running'";
    assert_refused(
        "a lost run whose lease is valid",
        world.worker(lost).await,
        Refusal::InvalidRunTransition,
    );
}

#[tokio::test]
async fn next_chunk_waits_for_previous_one() {
    let world = ready().await;
    sqlx::raw_sql(
        "ALTER TABLE step DISABLE TRIGGER guard_intent;
         ALTER TABLE concurrency_group DISABLE TRIGGER guard_intent;
         UPDATE step SET concurrency_group_id = (SELECT min(concurrency_group_id) FROM step);
         UPDATE concurrency_group SET mode = 'chunk', max_running = 5",
    )
    .execute(world.db.owner())
    .await
    .unwrap();
    world.app(&claim(N1)).await.unwrap();
    assert_refused(
        "a claim before the previous chunk ended",
        world.app(&claim(N2)).await,
        Refusal::StepNotStartable,
    );
    finish(&world, "unstarted", "state = 'todo'").await.unwrap();
    let both = claim(N1)
        .replace(&format!("= '{N1}'"), "LIKE 'n_.x.example'")
        .replace("= (SELECT id FROM node", "IN (SELECT id FROM node");
    assert_eq!(world.app(&both).await.unwrap(), 2, "both rows belong to one chunk");
}

#[tokio::test]
async fn worker_deletes_only_excess_results() {
    let world = ready().await;
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "succeeded", DONE).await.unwrap();
    for sql in
        ["UPDATE run SET result = NULL", "UPDATE run SET result = NULL WHERE state = 'ended'"]
    {
        assert_refused(sql, world.worker(sql).await, Refusal::InvalidRunTransition);
    }
    let stored = async || {
        world.worker("SELECT forget_excess_results(ARRAY[1])").await.unwrap();
        let sql = "SELECT result IS NOT NULL FROM run WHERE id = 1";
        sqlx::query_scalar::<_, bool>(sql).fetch_one(world.db.owner()).await.unwrap()
    };
    assert!(stored().await, "the only result of a step stays");
    let newer = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch,
                   content_hash, exclusive, lease_until, state, outcome, ended_at, result, result_bytes)
                 SELECT step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch,
                   content_hash, exclusive, now(), 'ended', 'failed', now(), '{}', 1 FROM run WHERE id = 1";
    for _ in 0..9 {
        world.owner(newer).await.unwrap();
    }
    assert!(stored().await, "the tenth result stays");
    world.owner(newer).await.unwrap();
    assert!(!stored().await, "the eleventh result is deleted");
    let large = "UPDATE run SET result = '{}', result_bytes = 4194304 WHERE id = 1";
    world.owner("UPDATE run SET result = NULL WHERE id > 1").await.unwrap();
    world.owner(large).await.unwrap();
    assert!(stored().await, "results of 4 MiB in total stay");
    world.owner(&large.replace("304", "305")).await.unwrap();
    assert!(!stored().await, "a result beyond 4 MiB in total is deleted");
}

#[tokio::test]
async fn counters_rise_by_one() {
    let world = ready().await;
    for counter in ["connection_no", "report_no", "version"] {
        for value in ["2147483647", &format!("{counter} + 2")] {
            let sql = format!("UPDATE node SET {counter} = {value} WHERE NOT phantom");
            assert_refused(&sql, world.app(&sql).await, Refusal::NodeStateWithoutEvidence);
        }
        let next = format!("UPDATE node SET {counter} = {counter} + 1 WHERE NOT phantom");
        world.app(&next).await.unwrap();
    }
    for set in ["failures = 2147483647", "input_version = 2147483647", "input_version = 0"] {
        world.owner("UPDATE step SET input_version = 5").await.unwrap();
        let sql = format!("UPDATE step SET {set}");
        assert_refused(set, world.app(&sql).await, Refusal::InvalidStepTransition);
    }
    let checks = |n: i32| format!("UPDATE node SET contradicting_checks = {n} WHERE NOT phantom");
    let many = world.app(&checks(i32::MAX)).await;
    assert_refused("several health checks at once", many, Refusal::NodeStateWithoutEvidence);
    world.app(&checks(2)).await.unwrap();
    world.propose(world.web, world.ada).await;
    let version = "UPDATE proposal SET version = 2147483647";
    assert_refused(
        "a skipped version of a proposal",
        world.app_as(world.ada, version).await,
        Refusal::AlreadyUsed,
    );
}

#[tokio::test]
async fn health_check_in_the_future_is_refused() {
    let world = ready().await;
    for at in ["'infinity'", "now() + interval '1 s'"] {
        let sql = format!("UPDATE node SET health_checked_at = {at} WHERE NOT phantom");
        let refused = state(world.app(&sql).await);
        assert!(["GY052", "23514"].contains(&refused.as_str()), "{at}: {refused}");
    }
    for at in ["NULL", "now()"] {
        let sql = format!("UPDATE node SET health_checked_at = {at} WHERE NOT phantom");
        world.app(&sql).await.unwrap();
    }
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
    let health_check = |reached| {
        format!(
            "INSERT INTO health_check (node_id, reached, duration_ms, by) VALUES ('{}', {reached}, 1, 'w')",
            world.n1
        )
    };
    let up = "UPDATE node SET alive = true, joined = 'confirmed', boot_id = 'x', last_seen_at = now() WHERE fqdn = 'n1.x.example'";
    world.app(&health_check(false)).await.unwrap();
    assert_refused(
        "a node that no health check reached",
        world.app(up).await,
        Refusal::NodeStateWithoutEvidence,
    );
    world.app(&health_check(true)).await.unwrap();
    world.app(up).await.unwrap();
    world.app(&health_check(false)).await.unwrap();
    world.app("UPDATE node SET alive = false WHERE fqdn = 'n1.x.example'").await.unwrap();
    let new = "INSERT INTO node (fqdn, deployment_id, transport, alive, joined)
               SELECT 'n8.x.example', id, 'ssh', true, 'confirmed' FROM deployment WHERE system";
    assert_refused(
        "a new node that is alive",
        world.app(new).await,
        Refusal::NodeStateWithoutEvidence,
    );
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

/// An ACTIVE step with a check.
async fn checked() -> World {
    let world = ready().await;
    world
        .owner("ALTER TABLE step DISABLE TRIGGER guard_intent; UPDATE step SET check_s = 60")
        .await
        .unwrap();
    world.app(&claim(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "succeeded", DONE).await.unwrap();
    world
}

fn lease_check(worker: &str) -> String {
    format!(
        "UPDATE role_check SET worker_id = '{worker}', leased_at = now(), due_at = now() + interval '70 s'"
    )
}

/// The result of a leased check.
fn check_result(state: &str, failures: i32) -> String {
    let passes = if state == "passing" { "now() + interval '2 min'" } else { "now()" };
    format!(
        "UPDATE role_check c SET state = '{state}', failures = {failures}, generation = s.generation, detail = 'x',
           checked_at = now(), changed_at = CASE c.state WHEN '{state}' THEN c.changed_at ELSE now() END,
           passes_until = {passes}, due_at = now() + interval '60 s', worker_id = NULL, leased_at = NULL
         FROM step s WHERE s.id = c.step_id"
    )
}

/// A result and a change of its step in one transaction.
async fn record(world: &World, result: &str, step: &str) -> Result<(), sqlx::Error> {
    world.owner("UPDATE role_check SET due_at = now(), worker_id = NULL, leased_at = NULL").await?;
    world.worker(&lease_check(WORKER)).await?;
    let mut tx = world.db.worker().begin().await?;
    tx.execute(sqlx::AssertSqlSafe(result.to_owned())).await?;
    tx.execute(sqlx::AssertSqlSafe(step.to_owned())).await?;
    tx.commit().await
}

#[tokio::test]
async fn check_moves_its_step_only_with_a_result() {
    let world = checked().await;
    let fails = "UPDATE step SET state = 'error', error = 'x' WHERE state = 'active'";
    let reruns = "UPDATE step SET state = 'todo', cause = 'check' WHERE state = 'active'";
    let recovers = "UPDATE step SET state = 'active', error = NULL WHERE state = 'error'";
    let refused = Refusal::InvalidStepTransition;
    assert_refused("ERROR without a result of the check", world.worker(fails).await, refused);
    assert_refused("TODO without a result of the check", world.worker(reruns).await, refused);
    let passing = check_result("passing", 0);
    assert_refused("a check that passed", record(&world, &passing, fails).await, refused);
    assert_refused("a check that passed", record(&world, &passing, reruns).await, refused);
    let failing = check_result("failing", 1);
    record(&world, &failing, fails).await.unwrap();
    assert_refused("a recovery without a result", world.worker(recovers).await, refused);
    let failing = check_result("failing", 2);
    assert_refused("a check that failed", record(&world, &failing, recovers).await, refused);
    let runs = "UPDATE step SET state = 'todo', cause = 'check' WHERE state = 'error'";
    assert_refused("a new run of a step in ERROR", record(&world, &failing, runs).await, refused);
    record(&world, &passing, recovers).await.unwrap();
    let failing = check_result("failing", 1);
    record(&world, &failing, reruns).await.unwrap();
    world.app(&with_cause(N1)).await.unwrap();
    let cause: String = sqlx::query_scalar("SELECT cause FROM run ORDER BY id DESC LIMIT 1")
        .fetch_one(world.db.owner())
        .await
        .unwrap();
    assert_eq!(cause, "check");
}

#[tokio::test]
async fn check_result_without_lease_is_refused() {
    let world = checked().await;
    let refused = Refusal::InvalidStepTransition;
    assert_refused(
        "a result without a lease",
        world.worker(&check_result("failing", 1)).await,
        refused,
    );
    let unknown = lease_check("00000000-0000-0000-0000-000000000009");
    assert_refused("a lease of an unknown worker", world.worker(&unknown).await, refused);
    world.worker(&lease_check(WORKER)).await.unwrap();
    assert_refused("a second lease", world.worker(&lease_check(WORKER)).await, refused);
    for (case, set) in [
        ("a result without a time", "detail = 'other'"),
        ("a result that never expires", "passes_until = now() + interval '1 day'"),
        ("a check that is due too late", "due_at = now() + interval '2 days'"),
        ("a check that is due in the past", "due_at = now() - interval '1 s'"),
        ("a failure count without a result", "failures = 1"),
    ] {
        let sql = format!("UPDATE role_check SET {set}");
        assert_refused(case, world.worker(&sql).await, refused);
    }
    let infinite = world.worker("UPDATE role_check SET due_at = 'infinity'").await;
    assert!(["GY047", "23514"].contains(&state(infinite).as_str()));
    assert_refused(
        "several failures at once",
        world.worker(&check_result("failing", 2)).await,
        refused,
    );
    world.worker(&check_result("failing", 1)).await.unwrap();
    for sql in ["DELETE FROM role_check", "UPDATE role_check SET step_id = step_id"] {
        assert_eq!(state(world.db.worker().execute(sql).await), "42501", "{sql}");
    }
}

#[tokio::test]
async fn check_is_due_when_its_step_becomes_active() {
    let world = checked().await;
    record(&world, &check_result("passing", 0), "SELECT 1").await.unwrap();
    let due = "SELECT count(*) FROM role_check WHERE due_at <= now() AND passes_until <= now()";
    let due = async || sqlx::query_scalar::<_, i64>(due).fetch_one(world.db.owner()).await.unwrap();
    assert_eq!(due().await, 0);
    world
        .app("UPDATE step SET state = 'todo', cause = 'drift' WHERE state = 'active'")
        .await
        .unwrap();
    world.app(&with_cause(N1)).await.unwrap();
    lease(&world).await;
    finish(&world, "succeeded", &format!("{DONE}, cause = NULL")).await.unwrap();
    assert_eq!(due().await, 1);
    world.owner("UPDATE step SET check_s = NULL").await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM role_check")
        .fetch_one(world.db.owner())
        .await
        .unwrap();
    assert_eq!(left, 0);
}
