//! What takes as long as the cluster is large runs beside the threads that answer requests.
//!
//! Not by the clock, which is another one on each machine: the one thread that there is for such work is kept busy, and then nothing of
//! it may come to an end.

use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use api::console::Point;
use engine::cluster::NoderoleKey;
use engine::ids::TargetNo;
use engine::plan::Edit;
use serde_json::json;
use tokio::time::timeout;

use crate::house::{House, role};

/// Long enough for each of these on any machine, if it did not wait.
const SOON: Duration = Duration::from_millis(300);

async fn waits<T>(what: &str, asked: impl Future<Output = T>) {
    let (free, busy) = mpsc::channel::<()>();
    let kept = tokio::task::spawn_blocking(move || busy.recv());
    let mut asked = std::pin::pin!(asked);
    assert!(timeout(SOON, &mut asked).await.is_err(), "{what} holds up whoever else is to be answered");
    drop(free);
    assert!(kept.await.unwrap().is_err());
    assert!(timeout(Duration::from_secs(60), asked).await.is_ok(), "{what} comes to its end then");
}

async fn look(house: &House) {
    let then = house.bound("web", 1, "app").await;
    let (web, n1, n2) = (house.id("web").await, house.node(1).await, house.node(2).await);
    house.bound("web", 2, "wipe").await;
    let bind = house.bind("web", 3, "app").await;
    let (proposal, version) = house.propose(&house.ada, "web", vec![bind]).await;
    let data =
        |port: u16| Edit::SetRoleData { deployment: web, role: role("app"), data: json!({"app": {"port": port}}) };
    let (control, ada) = (&house.control, &house.ada);
    let noderole = NoderoleKey::first(role("app"));

    waits("planner", control.planner(ada, web, None)).await;
    waits("board", control.board(ada, "web")).await;
    waits("carriers", control.carriers(ada, "web", None, &role("app"))).await;
    waits("proposal", control.proposal(ada, proposal)).await;
    waits("drafted", control.drafted(ada, proposal, n1, &noderole)).await;
    waits("noderole", control.noderole(ada, noderole.id(n1))).await;
    waits("lift", control.lift(ada, web, vec![n2])).await;
    waits("foresee", control.foresee(ada, proposal, vec![data(1)])).await;
    waits("edit", control.edit(ada, proposal, version, vec![data(2)])).await;
    waits("submit", control.submit(ada, proposal, version + 1, "a change".into())).await;
    waits("compare", control.compare(ada, Point::Target(TargetNo(1)), Point::Target(then), None)).await;
    control.discard(ada, proposal, version + 1).await.unwrap();
    waits("restore", control.restore(ada, "web", then, false)).await;
}

#[test]
fn planning_runs_beside_the_threads_that_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async { look(&House::new().await).await });
}
