//! Workers that are killed, suspended or duplicated, get no notifications, or have a wrong clock.

use nix::sys::signal::Signal;

use crate::checker::{Evidence, Kind, Line, judge};
use crate::evidence::{gather, watch};
use crate::world::{LEASE, World};

/// No work is lost, no step ran twice at once, and no step is stuck.
pub async fn all_is_well(world: &World) {
    let violations = judge(&gather(world).await);
    assert_eq!(violations.total(), 0, "{violations}");
}

/// A world with a run in progress that waits for permission to end.
async fn running_world(workers: usize) -> (World, i64) {
    let world = World::running(1, workers).await;
    watch(&world.admin).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "base", 0).await;
    (world, run)
}

/// A world with a destructive run in progress.
async fn destroying(workers: usize) -> (World, i64) {
    let world = World::running(1, workers).await;
    watch(&world.admin).await;
    world.keep(0, "wipe", true);
    world.change("east", vec![world.bind(0, "wipe")]).await;
    let run = world.started(0, "wipe", 0).await;
    (world, run)
}

/// The result is unknown, so the step waits for a person, although its role would retry a failure.
/// After the retry, it starts once more.
async fn waits_for_a_person(world: &World, run: i64) {
    world.until(1, "step WHERE destructive AND state = 'error'").await;
    let outcomes: Vec<String> = sqlx::query_scalar(
        "SELECT outcome FROM run JOIN step s ON s.id = step_id WHERE destructive",
    )
    .fetch_all(&world.admin)
    .await
    .unwrap();
    let [outcome] = outcomes.as_slice() else { panic!("{outcomes:?}\n{}", world.picture().await) };
    assert!(["lost", "failed"].contains(&outcome.as_str()), "{outcome}");
    world.keep(0, "wipe", false);
    world.retry(0, "wipe").await;
    let again = world.started(0, "wipe", run).await;
    world.converged(2).await;
    all_is_well(world).await;
    let wiped = |line: &Line| matches!(line, Line::Start { role, .. } if role == "wipe");
    assert_eq!(
        world.journal(0).iter().filter(|line| wiped(line)).count(),
        2,
        "the destructive step must start twice, in runs {run} and {again}"
    );
    let unrequested = Evidence { requested: Vec::new(), ..gather(world).await };
    assert_eq!(
        judge(&unrequested).count(Kind::DestroyedTwice),
        1,
        "the checker must report a second start without a request"
    );
}

/// The next worker continues the run, so its result is known.
#[tokio::test]
async fn destructive_run_of_killed_worker_is_adopted() {
    let (mut world, run) = destroying(1).await;
    world.workers.clear();
    world.start_worker();
    world.until(1, &format!("run WHERE id = {run} AND adoptions = 1")).await;
    world.keep(0, "wipe", false);
    world.converged(2).await;
    all_is_well(&world).await;
    assert_eq!(world.count("run r JOIN step s ON s.id = r.step_id WHERE s.destructive").await, 1);
}

#[tokio::test]
async fn destructive_run_that_is_not_adopted_needs_person() {
    let (mut world, run) = destroying(1).await;
    world.workers.clear();
    let exhausted = "UPDATE run SET adoptions = 5 WHERE state = 'running'";
    sqlx::query(exhausted).execute(&world.admin).await.unwrap();
    world.start_worker();
    waits_for_a_person(&world, run).await;
}

/// As if the node ran out of memory: the run and its supervisor die, but the connection works.
#[tokio::test]
async fn destructive_run_killed_on_node_needs_person() {
    let (world, run) = destroying(1).await;
    world.kill_on(0);
    waits_for_a_person(&world, run).await;
}

#[tokio::test]
async fn destructive_run_after_power_failure_needs_person() {
    let (mut world, run) = destroying(1).await;
    world.crash(0);
    world.until(1, "node WHERE transport = 'ssh' AND NOT alive").await;
    world.testbed.node(0).restart().unwrap();
    world.until(1, "node WHERE transport = 'ssh' AND alive").await;
    waits_for_a_person(&world, run).await;
}

#[tokio::test]
async fn destructive_run_of_two_workers_starts_once() {
    let (mut world, run) = destroying(1).await;
    world.workers[0].signal(Signal::SIGSTOP);
    queue_again(&world, run).await;
    world.start_worker();
    world.until(1, &format!("run WHERE id = {run} AND ended_at IS NOT NULL")).await;
    world.workers[0].signal(Signal::SIGCONT);
    waits_for_a_person(&world, run).await;
}

#[tokio::test]
async fn run_of_killed_worker_is_adopted() {
    let (mut world, run) = running_world(1).await;
    world.workers.clear();
    world.start_worker();
    world.until(1, &format!("run WHERE id = {run} AND adoptions = 1")).await;
    world.keep(0, "base", false);
    world.converged(4).await;
    all_is_well(&world).await;
    assert_eq!(world.count(&format!("run WHERE id = {run} AND outcome = 'succeeded'")).await, 1);
    assert_eq!(world.count("run WHERE outcome <> 'succeeded'").await, 0);
}

#[tokio::test]
async fn suspended_worker_loses_its_run() {
    let (mut world, run) = running_world(1).await;
    let sleeper = world.workers.remove(0);
    sleeper.signal(Signal::SIGSTOP);
    world.start_worker();
    world.until(1, &format!("run WHERE id = {run} AND adoptions = 1")).await;
    // The worker resumes while the other one has the run, and ends it on the node. The other one
    // does not take that for a result.
    sleeper.signal(Signal::SIGCONT);
    let again = world.started(0, "base", run).await;
    tokio::time::sleep(LEASE / 2).await;
    world.keep(0, "base", false);
    world.converged(4).await;
    world.until(2, "worker WHERE phase = 'confirmed' AND lease_until > now()").await;
    all_is_well(&world).await;
    let outcomes: Vec<(i64, String)> = sqlx::query_as(
        "SELECT id, outcome FROM run r WHERE step_id = (SELECT step_id FROM run WHERE id = $1) \
         ORDER BY id",
    )
    .bind(run)
    .fetch_all(&world.admin)
    .await
    .unwrap();
    assert_eq!(outcomes.last().unwrap().1, "succeeded", "{outcomes:?}");
    assert!(
        ["lost", "late"].contains(&outcomes[0].1.as_str())
            && outcomes.iter().any(|(id, _)| *id == again)
    );
}

/// Queues a leased run again and returns its worker.
async fn queue_again(world: &World, run: i64) -> String {
    let queued = sqlx::query_scalar(
        "WITH was AS (SELECT id, worker_id FROM run WHERE id = $1)
         UPDATE run r SET state = 'queued', worker_id = NULL, started_at = NULL, lease_until =
         now() + interval '1 min'
         FROM was WHERE r.id = was.id RETURNING was.worker_id::text",
    );
    queued.bind(run).fetch_one(&world.admin).await.unwrap()
}

/// A running attempt is queued again, so two workers have the same attempt.
#[tokio::test]
async fn node_starts_run_of_two_workers_once() {
    let (mut world, run) = running_world(1).await;
    world.workers[0].signal(Signal::SIGSTOP);
    let first = queue_again(&world, run).await;
    world.start_worker();
    world.until(1, &format!("run WHERE id = {run} AND worker_id <> '{first}'")).await;
    world.workers[0].signal(Signal::SIGCONT);
    let refused = format!(
        "run WHERE id = {run} AND outcome = 'failed' AND error LIKE '%attempt {run} of this step \
         is outdated%'"
    );
    world.until(1, &refused).await;
    world.keep(0, "base", false);
    world.converged(4).await;
    all_is_well(&world).await;
    let begun = world
        .journal(0)
        .iter()
        .filter(|line| matches!(line, Line::Start { run: its, .. } if *its == run))
        .count();
    assert_eq!(begun, 1);
}

#[tokio::test]
async fn workers_without_notifications_find_all_runs() {
    let world = World::running(2, 1).await;
    watch(&world.admin).await;
    let blocked = world.block_notifications().await;
    world.change("east", vec![world.bind(0, "top")]).await;
    world.change("west", vec![world.bind(1, "top")]).await;
    world.converged(8).await;
    all_is_well(&world).await;
    let lost = blocked.stop().await;
    assert!(lost > 0, "no connection for notifications was cut");
}

/// Leases, backoffs and log times all use the database's clock.
#[tokio::test]
async fn worker_clock_may_be_an_hour_off() {
    let mut world = World::running(2, 0).await;
    watch(&world.admin).await;
    world.start_worker_at(3_600);
    world.start_worker_at(-3_600);
    world.keep(0, "base", true);
    let bind = [(0, "top"), (0, "flaky")].map(|(node, role)| world.bind(node, role));
    world.change("east", bind.to_vec()).await;
    world.change("west", vec![world.bind(1, "top")]).await;
    world.started(0, "base", 0).await;
    // More than one lease passes. Neither worker considers a lease expired.
    let renewed = "run WHERE state = 'running' AND lease_until > started_at + interval '15 s'";
    world.until(1, renewed).await;
    world.keep(0, "base", false);
    world.converged(9).await;
    all_is_well(&world).await;
    assert_eq!(world.count("worker WHERE lease_until > now() + interval '1 min'").await, 0);
    assert!(world.count("run_log").await > 0, "no run wrote a log");
    let wrong = "run_log l JOIN run r ON r.id = l.run_id
                 WHERE l.at NOT BETWEEN r.started_at - interval '1 min' AND r.ended_at + interval
                 '1 min'";
    assert_eq!(
        world.count(wrong).await,
        0,
        "a log entry has a time that differs from the server's clock"
    );
}
