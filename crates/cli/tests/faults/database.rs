//! A PostgreSQL that is restarted, and one that is gone for longer than anybody's lease.

use nix::sys::signal::Signal;

use crate::evidence::watch;
use crate::workers::all_is_well;
use crate::world::World;

#[tokio::test]
async fn a_restart_of_postgresql_loses_nothing() {
    let mut world = World::running(2, 2).await;
    watch(&world.admin).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    world.started(0, "base", 0).await;
    // What waits in the queue, and what is about to be claimed, is there afterwards too.
    world.change("west", vec![world.bind(1, "top"), world.bind(1, "flaky")]).await;
    world.end_postgres(Signal::SIGINT);
    assert!(world.postgres.ensure_running().await.unwrap());
    world.keep(0, "base", false);
    world.converged(9).await;
    assert_eq!(world.count("target").await, 3);
    all_is_well(&world).await;
}

/// A minute is a lease; here a lease is shorter ([`crate::world::LEASE`]), and so is the time that PostgreSQL is gone. A run goes on for as long as its worker may believe that it is its own, and is
/// ended on the node before anybody else could have it.
#[tokio::test]
async fn postgresql_may_be_gone_for_longer_than_a_lease() {
    let mut world = World::running(2, 2).await;
    watch(&world.admin).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "base", 0).await;
    world.change("west", vec![world.bind(1, "top")]).await;
    // As when the machine loses its power.
    world.end_postgres(Signal::SIGQUIT);
    world.gone_from(0, run).await;
    let refused = world.ada().get("/deployments").await;
    assert!(matches!(refused, Err(crate::rest::NotDone::Refused(500..=599, _))), "{refused:?}");
    assert!(world.postgres.ensure_running().await.unwrap());
    world.started(0, "base", run).await;
    world.keep(0, "base", false);
    world.converged(8).await;
    assert_eq!(world.count("target").await, 3);
    all_is_well(&world).await;
}
