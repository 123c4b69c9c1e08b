//! Servers that are killed.

use std::time::Duration;

use crate::evidence::watch;
use crate::rest::NotDone;
use crate::workers::all_is_well;
use crate::world::{World, commit};

/// The server dies when its commit has written the target and all steps, and not yet ended.
#[tokio::test]
async fn a_server_that_is_killed_amid_a_commit_has_committed_nothing() {
    let mut world = World::running(1, 1).await;
    watch(&world.admin).await;
    let submission = world.approved("east", vec![world.bind(0, "top")]).await.unwrap();
    // The audit is among the last that a commit writes.
    let mut holder = world.admin.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit IN SHARE MODE").execute(&mut *holder).await.unwrap();
    let ada = world.ada();
    let committing = tokio::spawn(async move { commit(&ada, submission).await });
    let waits =
        "pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%audit%' AND datname = current_database()
                 AND pid <> pg_backend_pid()";
    world.until(1, waits).await;
    assert_eq!(world.count("target").await, 1, "nobody sees it yet");
    world.servers.clear();
    let answer = committing.await.unwrap();
    assert!(matches!(answer, Err(NotDone::Broken(_))), "{answer:?}");
    holder.rollback().await.unwrap();
    // PostgreSQL finds nobody to answer to, and takes it all back; nobody waits for its locks longer than that.
    world.until(0, "pg_locks WHERE locktype = 'advisory' AND objid = 2 AND mode = 'ExclusiveLock'").await;
    assert_eq!((world.count("target").await, world.count("step").await, world.count("run").await), (1, 0, 0));

    world.start_server();
    assert_eq!(world.commit(submission).await.unwrap(), 2);
    world.converged(4).await;
    all_is_well(&world).await;
    let again = world.commit(submission).await;
    assert!(matches!(again, Err(NotDone::Refused(409, _))), "{again:?}");
    assert_eq!(world.count("target").await, 2);
}

/// Whoever was not answered asks again, and learns what became of it.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_there_once() {
    let mut world = World::running(1, 1).await;
    watch(&world.admin).await;
    let submission = world.approved("east", vec![world.bind(0, "top")]).await.unwrap();
    let ada = world.ada();
    let committing = tokio::spawn(async move { commit(&ada, submission).await });
    world.until(2, "target").await;
    world.servers.clear();
    // Answered or not: it was committed.
    let _ = committing.await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.start_server();
    let again = world.commit(submission).await;
    assert!(matches!(again, Err(NotDone::Refused(409, _))), "{again:?}");
    let state = world.ada().get(&format!("/submissions/{submission}")).await.unwrap()["state"].clone();
    assert_eq!(state, "committed");
    world.converged(4).await;
    all_is_well(&world).await;
}
