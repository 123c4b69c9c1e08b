//! What takes as long as the cluster is large runs beside the threads that answer requests.
//!
//! Not by the clock alone, which is another one on each machine: each is called once with the thread free for such work, which says how
//! long it takes, and once with it kept busy. Then nothing of it may come to an end, and none may keep a connection from others.

use std::future::Future;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use api::console::{GraphWish, Point};
use control::Lost;
use engine::cluster::NoderoleKey;
use engine::ids::TargetNo;
use engine::plan::Edit;
use serde_json::json;
use tokio::time::timeout;

use crate::house::{House, role};

/// What every call is given beside several times what it took with the thread free.
const SOON: Duration = Duration::from_millis(150);

/// Asks twice, the second time with the thread kept busy; meanwhile it may hold so many connections.
async fn waits<T>(house: &House, what: &str, held: u32, free: impl Future<Output = T>, asked: impl Future<Output = T>) {
    let begun = Instant::now();
    assert!(timeout(SOON * 20, free).await.is_ok(), "{what} comes to its end with the thread free");
    let took = begun.elapsed();
    let (free, busy) = mpsc::channel::<()>();
    let kept = tokio::task::spawn_blocking(move || busy.recv());
    let mut asked = std::pin::pin!(asked);
    assert!(timeout(took * 4 + SOON, &mut asked).await.is_err(), "{what} holds up whoever else is to be answered");
    let pool = house.database.app();
    assert!(pool.size() - pool.num_idle() as u32 <= held, "{what} keeps a connection while it waits");
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

    macro_rules! waits {
        ($what:literal, $held:literal, $call:expr) => {
            waits(house, $what, $held, $call, $call).await
        };
    }
    waits!("planner", 0, control.planner(ada, web, None));
    waits!("board", 0, control.board(ada, "web"));
    waits!("carriers", 0, control.carriers(ada, "web", None, &role("app")));
    waits!("proposal", 0, control.proposal(ada, proposal));
    waits!("drafted", 0, control.drafted(ada, proposal, n1, &noderole));
    waits!("noderole", 0, control.noderole(ada, noderole.id(n1)));
    waits!("lift", 0, control.lift(ada, web, vec![n2]));
    waits!("foresee", 0, control.foresee(ada, proposal, vec![data(1)]));
    let edit = |version| control.edit(ada, proposal, version, vec![data(2)]);
    waits(house, "edit", 0, edit(version), edit(version + 1)).await;
    waits!("submit", 0, control.submit(ada, proposal, version + 2, "a change".into()));
    // These read an old target, whose documents are parsed beside, too.
    waits!("compare", 1, control.compare(ada, Point::Target(TargetNo(1)), Point::Target(then), None));
    control.discard(ada, proposal, version + 2).await.unwrap();
    waits!("restore", 1, control.restore(ada, "web", then, false));
    let wish = GraphWish { target: Some(then), ..GraphWish::default() };
    waits!("graph", 1, control.graph(ada, "web", &wish, Lost::Told));
}

#[test]
fn planning_runs_beside_the_threads_that_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async { look(&House::new().await).await });
}
