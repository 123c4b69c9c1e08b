//! Nodes that disappear and return, that change their host key, or whose disk is full.

use std::fs;

use crate::checker::{Kind, Line, judge};
use crate::evidence::{gather, watch};
use crate::namespace::{self, Room};
use crate::workers::all_is_well;
use crate::world::World;

/// The network fails. The node does not notice, and its script continues.
#[tokio::test]
async fn returning_node_ends_its_lost_run() {
    let mut world = World::running(2, 2).await;
    watch(&world.admin).await;
    world.keep(0, "left", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "left", 0).await;
    world.testbed.node(0).stop();
    world.until(1, "node WHERE transport = 'ssh' AND NOT alive").await;
    world.until(1, &format!("run WHERE id = {run} AND outcome = 'lost'")).await;
    // Other nodes are not affected.
    world.change("west", vec![world.bind(1, "top")]).await;
    world.until(4, "step WHERE state = 'active'").await;
    assert!(world.exists(0, run), "the run stays open because no worker reached the node");
    world.testbed.node(0).restart().unwrap();
    let again = world.started(0, "left", run).await;
    world.keep(0, "left", false);
    world.converged(8).await;
    all_is_well(&world).await;
    let base_again = world.journal(0).iter().any(|line| {
        matches!(
            line,
            Line::Start { run, role, .. } if role == "base" && *run < again && *run > 1
        )
    });
    assert!(!base_again, "the machine did not restart, so the applied step did not run again");
}

/// A dependency on another node's step also holds while that node is unreachable.
#[tokio::test]
async fn dependency_on_unreachable_node_is_respected() {
    let mut world = World::running(3, 2).await;
    watch(&world.admin).await;
    world.keep(0, "hub", true);
    world.change("east", vec![world.bind(0, "hub")]).await;
    world.change("east", vec![world.bind(2, "spoke")]).await;
    let run = world.started(0, "hub", 0).await;
    world.crash(0);
    world.until(1, "node WHERE transport = 'ssh' AND NOT alive").await;
    world
        .until(
            1,
            "step s JOIN noderole n ON n.id = s.noderole_id WHERE n.role = 'spoke' AND \
            s.state = 'blocked'",
        )
        .await;
    world.testbed.node(0).restart().unwrap();
    world.started(0, "hub", run).await;
    world.keep(0, "hub", false);
    world.converged(3).await;
    all_is_well(&world).await;
    let evidence = gather(&world).await;
    assert_eq!(evidence.edges.iter().filter(|edge| edge.node != edge.parent_node).count(), 1);
    let mut early = evidence.clone();
    early.claimed.values_mut().for_each(|at| *at = 0);
    assert_eq!(
        judge(&early).count(Kind::Order),
        1,
        "the checker must report a child that was claimed before its parent"
    );
}

/// The node loses power, and all its processes end.
#[tokio::test]
async fn node_power_failure_restarts_the_run() {
    let mut world = World::running(1, 1).await;
    watch(&world.admin).await;
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "base", 0).await;
    world.crash(0);
    world.until(1, "node WHERE transport = 'ssh' AND NOT alive").await;
    world.testbed.node(0).restart().unwrap();
    world.started(0, "base", run).await;
    world.keep(0, "base", false);
    world.converged(4).await;
    all_is_well(&world).await;
}

#[tokio::test]
async fn node_with_other_host_key_runs_nothing() {
    let mut world = World::running(1, 1).await;
    watch(&world.admin).await;
    world.until(1, "node WHERE transport = 'ssh' AND alive").await;
    world.other_host_key(0, true);
    world.until(1, "node WHERE transport = 'ssh' AND NOT alive").await;
    let text = "health_check WHERE NOT reached AND detail LIKE '%Unexpected host key of%' AND \
        detail LIKE '%reinstalled%'";
    assert!(world.count(text).await >= 1);
    world.change("east", vec![world.bind(0, "top")]).await;
    world
        .until(1, "step s JOIN node n ON n.id = s.node_id WHERE s.state = 'todo' AND NOT n.alive")
        .await;
    let log = fs::read_to_string(world.testbed.nodes()[0].root.with_file_name("sshd.log")).unwrap();
    assert!(!log.contains("Accepted"), "a key was offered to the unknown server: {log}");
    assert!(world.journal(0).is_empty());
    world.other_host_key(0, false);
    world.converged(4).await;
    all_is_well(&world).await;
}

/// Uses a small disk in a mount namespace, without root.
#[test]
fn full_disk_is_reported_and_recovers() {
    let test = "nodes::full_disk_is_reported_and_recovers";
    if namespace::entered(test, Room::Disk) {
        tokio::runtime::Runtime::new().unwrap().block_on(no_room_and_room_again());
    }
}

/// Works on every system: the files may not grow.
#[test]
fn file_size_limit_acts_like_full_disk() {
    if namespace::entered("nodes::file_size_limit_acts_like_full_disk", Room::Files) {
        tokio::runtime::Runtime::new().unwrap().block_on(no_room_and_room_again());
    }
}

async fn no_room_and_room_again() {
    let mut world = World::of(1).await;
    namespace::small_disk(&world.nodes[0].root);
    watch(&world.admin).await;
    world.start_server();
    world.start_worker();
    world.keep(0, "base", true);
    world.change("east", vec![world.bind(0, "top")]).await;
    let run = world.started(0, "base", 0).await;
    // During the run: it can only write its result into the reserve.
    world.fill_disk(0, true);
    world.keep(0, "base", false);
    let full = "the disk of this node is full";
    world
        .until(1, &format!("run WHERE id = {run} AND outcome = 'failed' AND error LIKE '%{full}%'"))
        .await;
    // No new run starts.
    world.full_until(0, "run WHERE outcome = 'failed' AND error LIKE '%is the disk full?%'").await;
    world.fill_disk(0, false);
    world.converged(4).await;
    all_is_well(&world).await;
}
