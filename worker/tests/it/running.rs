//! A run from claim to ACTIVE, and everything that can come in between.

use std::time::Duration;

use engine::catalog::JigClass;
use serde_json::json;

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};

#[tokio::test]
async fn steps_run_one_after_the_other_and_walls_are_news() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_role(role("first", JigClass::Test)).await;
    cluster.add_role(role("second", JigClass::Test)).await;
    let told = json!({"test": {"prints": ["hello"], "returns": {"port": 80, "found": 7}}, "port": 80});
    cluster.commit(&[bind(0, "first").data(told), bind(0, "second").after(0, "first")]).await;
    assert_eq!(cluster.state(0, "first").await, "todo");
    assert_eq!(cluster.state(0, "second").await, "blocked");

    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "second", "active").await;
    worker.stop().await;

    assert_eq!(cluster.wall(0, "first").await, Some(json!({"found": 7})), "what it was told already is no news");
    let runs = cluster.runs(0, "second").await;
    let input = runs[0].input.clone().expect("the input is kept");
    assert_eq!(input["data"]["found"], 7, "a child sees its parent's wall");
    let source = &input["sources"]["/found"];
    assert_eq!(source["layer"], "wall");
    let first = &cluster.runs(0, "first").await[0];
    assert_eq!(first.outcome.as_deref(), Some("succeeded"));
    assert_eq!(cluster.log(engine::ids::RunId(first.id)).await, "hello\n");
    assert_eq!(cluster.count("worker WHERE phase = 'confirmed'").await, 0, "it said good-bye");
}

#[tokio::test]
async fn a_failure_is_an_error_with_its_reason_and_a_retry_helps() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_role(role("bad", JigClass::Test)).await;
    cluster.add_role(role("child", JigClass::Noop)).await;
    let told = json!({"test": {"fail": "no such disk"}});
    cluster.commit(&[bind(0, "bad").data(told), bind(0, "child").after(0, "bad")]).await;
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
async fn at_most_so_many_run_at_once() {
    let mut cluster = Cluster::of(12).await;
    cluster.add_role(role("slow", JigClass::Test)).await;
    let told = json!({"test": {"seconds": 0.4}});
    let binds: Vec<_> = (0..12).map(|node| bind(node, "slow").data(told.clone())).collect();
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
