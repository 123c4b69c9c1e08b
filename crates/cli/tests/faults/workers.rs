//! Workers that are killed, stopped, doubled, not told, or wrong about the time.

use nix::sys::signal::Signal;

use crate::checker::judge;
use crate::evidence::{gather, watch};
use crate::world::{LEASE, World};

/// Nothing is lost, nothing ran twice at once, nothing is stuck.
pub async fn all_is_well(world: &World) {
    let violations = judge(&gather(world).await);
    assert_eq!(violations.total(), 0, "{violations}");
}

/// A world with a run under way that waits to be let go on.
async fn under_way(workers: usize) -> (World, i64) {
    let world = World::running(1, workers).await;
    watch(&world.owner).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "base", 0).await;
    (world, run)
}

#[tokio::test]
async fn a_worker_that_is_killed_is_replaced_and_its_run_begins_anew() {
    let (mut world, run) = under_way(1).await;
    world.workers.clear();
    world.start_worker();
    let again = world.started(0, "base", run).await;
    world.keep(0, "base", false);
    world.converged(4).await;
    all_is_well(&world).await;
    let lost = format!("run WHERE id = {run} AND outcome = 'lost'");
    assert_eq!(world.count(&lost).await, 1);
    assert!(again > run);
}

#[tokio::test]
async fn a_worker_that_sleeps_past_its_lease_finds_that_others_have_its_run() {
    let (mut world, run) = under_way(1).await;
    let sleeper = world.workers.remove(0);
    sleeper.signal(Signal::SIGSTOP);
    world.start_worker();
    let again = world.started(0, "base", run).await;
    // It wakes while the other one has the step, and again after that; nothing of what it says counts.
    sleeper.signal(Signal::SIGCONT);
    tokio::time::sleep(LEASE / 2).await;
    world.keep(0, "base", false);
    world.converged(4).await;
    world.until(2, "worker WHERE phase = 'confirmed' AND lease_until > now()").await;
    all_is_well(&world).await;
    let outcomes: Vec<(i64, String)> = sqlx::query_as(
        "SELECT id, outcome FROM run r WHERE step_id = (SELECT step_id FROM run WHERE id = $1) ORDER BY id",
    )
    .bind(run)
    .fetch_all(&world.owner)
    .await
    .unwrap();
    assert_eq!(outcomes.last().unwrap().1, "succeeded", "{outcomes:?}");
    assert!(["lost", "late"].contains(&outcomes[0].1.as_str()) && outcomes.iter().any(|(id, _)| *id == again));
}
