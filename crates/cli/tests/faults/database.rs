//! PostgreSQL is restarted, or unavailable for longer than a lease.

use nix::sys::signal::Signal;

use crate::evidence::watch;
use crate::workers::all_is_well;
use crate::world::World;

#[tokio::test]
async fn postgresql_restart_loses_nothing() {
    let mut world = World::running(2, 2).await;
    watch(&world.admin).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    world.started(0, "base", 0).await;
    // Queued runs and steps about to be claimed must survive.
    world.change("west", vec![world.bind(1, "top"), world.bind(1, "flaky")]).await;
    world.end_postgres(Signal::SIGINT);
    assert!(world.postgres.ensure_running().await.unwrap());
    world.keep(0, "base", false);
    world.converged(9).await;
    assert_eq!(world.count("blueprint").await, 3);
    all_is_well(&world).await;
}

/// PostgreSQL is unavailable for longer than a lease ([`crate::world::LEASE`]). A run continues
/// while its worker may have the lease. The worker ends it on the node before another one could
/// lease it.
#[tokio::test]
async fn postgresql_outage_beyond_a_lease_loses_nothing() {
    let mut world = World::running(2, 2).await;
    watch(&world.admin).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "base", 0).await;
    world.change("west", vec![world.bind(1, "top")]).await;
    // Like a power failure.
    world.end_postgres(Signal::SIGQUIT);
    world.gone_from(0, run).await;
    let refused = world.ada().get("/deployments").await;
    assert!(
        matches!(refused, Err(crate::rest::RequestFailure::Refused(500..=599, _))),
        "{refused:?}"
    );
    assert!(world.postgres.ensure_running().await.unwrap());
    world.started(0, "base", run).await;
    world.keep(0, "base", false);
    world.converged(8).await;
    assert_eq!(world.count("blueprint").await, 3);
    all_is_well(&world).await;
}
