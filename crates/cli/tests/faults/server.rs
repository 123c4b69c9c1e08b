//! Servers that are killed.

use nix::sys::signal::Signal;

use crate::evidence::watch;
use crate::rest::RequestFailure;
use crate::workers::all_is_well;
use crate::world::{World, commit};

/// The server dies after its commit has written the target and all steps, before the transaction
/// ends.
#[tokio::test]
async fn server_killed_during_commit_commits_nothing() {
    let mut world = World::running(1, 1).await;
    watch(&world.admin).await;
    let review = world.approved("east", vec![world.bind(0, "top")]).await.unwrap();
    // A commit writes to the audit after its target.
    let mut holder = world.admin.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit IN SHARE MODE").execute(&mut *holder).await.unwrap();
    let ada = world.ada();
    let committing = tokio::spawn(async move { commit(&ada, review).await });
    let waits =
        "pg_locks WHERE NOT granted AND relation = 'audit'::regclass AND pid <> pg_backend_pid()";
    world.until(1, waits).await;
    assert_eq!(world.count("blueprint").await, 1, "the unfinished commit is not visible");
    world.servers.clear();
    let answer = committing.await.unwrap();
    assert!(matches!(answer, Err(RequestFailure::NoResponse(_))), "{answer:?}");
    holder.rollback().await.unwrap();
    // PostgreSQL notices the lost connection and rolls back, which releases the locks.
    world
        .until(0, "pg_locks WHERE locktype = 'advisory' AND objid = 2 AND mode = 'ExclusiveLock'")
        .await;
    assert_eq!(
        (world.count("blueprint").await, world.count("step").await, world.count("run").await),
        (1, 0, 0)
    );

    world.start_server();
    assert_eq!(world.commit(review).await.unwrap(), 2);
    world.converged(4).await;
    all_is_well(&world).await;
    let again = world.commit(review).await;
    assert!(matches!(again, Err(RequestFailure::Refused(409, _))), "{again:?}");
    assert_eq!(world.count("blueprint").await, 2);
}

/// The database fails after storing the target, before it reports success. (It waits for a
/// synchronous standby that does not exist.)
#[tokio::test]
async fn commit_with_lost_response_exists_once() {
    let mut world = World::of(1).await;
    watch(&world.admin).await;
    for setting in ["wal_level = 'replica'", "max_wal_senders = 2"] {
        world.set_postgres(setting).await;
    }
    world.end_postgres(Signal::SIGINT);
    world.postgres.ensure_running().await.unwrap();
    world.start_server();
    let review = world.approved("east", vec![world.bind(0, "top")]).await.unwrap();
    world.set_postgres("synchronous_standby_names = 'nobody'").await;
    let ada = world.ada();
    let committing = tokio::spawn(async move { commit(&ada, review).await });
    world.until(1, "pg_stat_activity WHERE wait_event = 'SyncRep'").await;
    let cut = "(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = \
        'SyncRep') AS cut";
    assert_eq!(world.count(cut).await, 1);
    match committing.await.unwrap() {
        Err(RequestFailure::Refused(503, problem)) => {
            assert_eq!(problem["code"], "unknown_outcome", "{problem}")
        }
        other => panic!("{other:?}"),
    }
    world.set_postgres("synchronous_standby_names = ''").await;
    let again = world.commit(review).await;
    assert!(matches!(again, Err(RequestFailure::Refused(409, _))), "{again:?}");
    let state = world.ada().get(&format!("/reviews/{review}")).await.unwrap()["state"].clone();
    assert_eq!((state, world.count("blueprint").await), (serde_json::json!("committed"), 2));
    world.start_worker();
    world.converged(4).await;
    all_is_well(&world).await;
}
