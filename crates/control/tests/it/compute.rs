//! CPU-bound work runs outside of the threads that answer requests, and blocks no other request
//! while it waits.
//!
//! The tests do not rely on time alone, because it differs between machines. Each call runs once
//! with the blocking thread free, to measure it, and once with the thread busy. In the second case
//! it must not finish, and must not occupy a connection. With a single connection and no permit,
//! the connection must be available all the time.

use api::views::board::BoardQuery;
use std::fmt::Debug;
use std::future::Future;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use api::Problem;
use api::blueprints::Point;
use api::nodes::NodesQuery;
use api::views::graph::GraphOptions;
use control::{Control, MissingVertex};
use engine::blueprint::Anchor;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::BlueprintNumber;
use engine::plan::{Edit, edit};
use serde_json::json;
use store::{Connecting, Store};
use tokio::time::timeout;

use crate::installation::{self, Installation, role};

/// Extra time for each call, in addition to several times its measured duration.
const SOON: Duration = Duration::from_millis(150);

/// Calls twice, the second time with the blocking thread busy. Meanwhile, no connection may be
/// taken.
async fn waits<T>(
    installation: &Installation,
    name: &str,
    free: impl Future<Output = T>,
    request: impl Future<Output = T>,
) {
    let begun = Instant::now();
    assert!(timeout(SOON * 20, free).await.is_ok(), "{name} must finish while a thread is free");
    let took = begun.elapsed();
    let (free, busy) = mpsc::channel::<()>();
    let blocked = tokio::task::spawn_blocking(move || busy.recv());
    let mut request = std::pin::pin!(request);
    assert!(
        timeout(took * 4 + SOON, &mut request).await.is_err(),
        "{name} must wait while no thread is free, without blocking others"
    );
    let pool = installation.database.app();
    assert_eq!(pool.size() - pool.num_idle() as u32, 0, "{name} holds a connection while it waits");
    drop(free);
    assert!(blocked.await.unwrap().is_err());
    assert!(
        timeout(Duration::from_secs(60), request).await.is_ok(),
        "{name} must finish after the thread is free"
    );
}

async fn check_calls(installation: &Installation) {
    let then = installation.bound("web", 1, "app").await;
    let (web, n1, n2) =
        (installation.id("web").await, installation.node(1).await, installation.node(2).await);
    installation.bound("web", 2, "wipe").await;
    let bind = installation.bind("web", 3, "app").await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![bind]).await;
    let data = |port: u16| {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: web,
            role: role("app"),
            data: json!({"app": {"port": port}}),
        })
    };
    let (control, ada) = (&installation.control, &installation.ada);
    let noderole = NoderoleKey::first(role("app"));

    macro_rules! waits {
        ($name:literal, $call:expr) => {
            waits(installation, $name, $call, $call).await
        };
    }
    waits!("planner", control.planner(ada, web, None));
    waits!("board", control.board(ada, "web", BoardQuery::default()));
    waits!("role_noderoles", control.role_noderoles(ada, "web", None, &role("app")));
    waits!("proposal", control.proposal(ada, proposal));
    waits!("proposed_noderole", control.proposed_noderole(ada, proposal, n1, &noderole));
    waits!("noderole", control.noderole(ada, noderole.id(n1)));
    waits!("preview_drop", control.preview_drop(ada, web, vec![n2]));
    waits!("preview_edits", control.preview_edits(ada, proposal, vec![data(1)]));
    let edit = |version| control.edit(ada, proposal, version, vec![data(2)]);
    waits(installation, "edit", edit(version), edit(version + 1)).await;
    waits!("submit", control.submit(ada, proposal, version + 2, "a change".into()));
    // These load an old target and parse its documents on the blocking thread, too.
    waits!(
        "compare",
        control.compare(ada, Point::Number(BlueprintNumber(1)), Point::Number(then), None)
    );
    control.discard(ada, proposal, version + 2).await.unwrap();
    waits!("restore", control.restore(ada, "web", then, false));
    let options = GraphOptions { blueprint: Some(then), ..GraphOptions::default() };
    waits!("graph", control.graph(ada, "web", &options, MissingVertex::Note));
    let now = GraphOptions::default();
    waits!("cluster graph", control.cluster_graph(ada, &now, MissingVertex::Note));
}

#[test]
fn planning_runs_on_blocking_threads() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async { check_calls(&Installation::new().await).await });
}

/// The same database with one connection and no free permit; calls wait for a permit for
/// `patience`.
fn narrow(installation: &Installation, patience: Duration) -> (Store, Control) {
    let how = Connecting {
        connections: 1,
        wait: Duration::from_secs(2),
        ..Connecting::to(installation.database.app_url())
    };
    let store = Store::open(&how).unwrap();
    (store.clone(), Control::new(store).computing(0, 256, patience))
}

/// Calls something that waits for a permit in vain. Meanwhile the only connection must be available
/// to others.
async fn leaves_it<T: Debug>(
    store: &Store,
    name: &str,
    request: impl Future<Output = Result<T, Problem>>,
) {
    let others = async {
        for _ in 0..10_000 {
            let answer = sqlx::query("SELECT 1").execute(store.pool()).await;
            assert!(answer.is_ok(), "{name} holds the only connection while it waits: {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        answer = request => {
            let refused = answer.expect_err("no free permit");
            assert!(refused.status == 503 && refused.detail.contains("busy with other requests"), "{name}: {refused:?}");
        }
        () = others => panic!("{name} waits without a time limit"),
    }
}

#[tokio::test]
async fn waiting_for_permit_uses_no_connection() {
    let installation = Installation::new().await;
    let then = installation.bound("web", 1, "app").await;
    let web = installation.id("web").await;
    let (n1, n2) = (installation.node(1).await, installation.node(2).await);
    let one = installation.bind("web", 2, "app").await;
    let review = installation.submit(&installation.ada, "web", vec![one]).await;
    let proposal = installation.board("web").await.proposal.unwrap();
    let data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 1}}),
    });
    let (store, control) = narrow(&installation, Duration::from_secs(4));
    let (store, control, ada, bo) = (&store, &control, &installation.ada, &installation.bo);
    let options = GraphOptions { blueprint: Some(then), ..GraphOptions::default() };
    let (app, key) = (role("app"), NoderoleKey::first(role("app")));
    let anchor = Anchor::Node(n2);
    tokio::join!(
        leaves_it(store, "board", control.board(ada, "web", BoardQuery::default())),
        leaves_it(store, "role_noderoles", control.role_noderoles(ada, "web", None, &app)),
        leaves_it(store, "proposal", control.proposal(ada, proposal.id)),
        leaves_it(store, "noderole", control.noderole(ada, key.id(n1))),
        leaves_it(store, "preview_drop", control.preview_drop(ada, web, vec![n2])),
        leaves_it(store, "review", control.review(bo, review)),
        leaves_it(store, "discussion", control.discussion(bo, review)),
        leaves_it(store, "opened", control.viewed_changes(bo, review)),
        leaves_it(store, "mark_viewed", control.mark_viewed(bo, review, vec![anchor.clone()])),
    );
    tokio::join!(
        leaves_it(store, "graph", control.graph(ada, "web", &options, MissingVertex::Note)),
        leaves_it(
            store,
            "cluster graph",
            control.cluster_graph(ada, &options, MissingVertex::Note)
        ),
        leaves_it(
            store,
            "compare",
            control.compare(ada, Point::Number(BlueprintNumber(1)), Point::Number(then), None)
        ),
        leaves_it(store, "restore", control.restore(ada, "web", then, false)),
        leaves_it(store, "edit", control.edit(ada, proposal.id, proposal.version, vec![data])),
        leaves_it(
            store,
            "submit",
            control.submit(ada, proposal.id, proposal.version, "a change".into())
        ),
        leaves_it(store, "commit", control.commit(ada, review)),
        leaves_it(store, "open_thread", control.open_thread(bo, review, anchor, "Why n2?".into())),
    );
}

#[tokio::test]
async fn waiting_comment_does_not_block_verdict_or_commit() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let anchor = Anchor::Node(installation.node(1).await);
    let (_, control) = narrow(&installation, Duration::from_secs(300));
    let mut commenting = tokio::spawn({
        let (control, bo) = (control.clone(), installation.bo.clone());
        async move { control.open_thread(&bo, id, anchor, "Why n1?".into()).await }
    });
    assert!(
        timeout(Duration::from_secs(1), &mut commenting).await.is_err(),
        "the comment must wait, because no permit is free"
    );
    // A verdict needs no permit, and no other request has the proposal's lock.
    let verdict = timeout(
        Duration::from_secs(30),
        control.give_verdict(&installation.bo, id, VerdictKind::Approve, String::new()),
    );
    verdict.await.expect("the verdict does not wait").unwrap();
    let committed = timeout(Duration::from_secs(30), installation.commit(&installation.ada, id));
    committed.await.expect("the commit does not wait").unwrap();
    commenting.abort();
    assert!(
        commenting.await.is_err_and(|error| error.is_cancelled()),
        "the comment waited until it was canceled"
    );
}

#[tokio::test]
async fn plain_reads_need_no_permit() {
    let installation = Installation::new().await;
    let (_, control) = narrow(&installation, Duration::ZERO);
    let before = control.frame(&installation.ada).await.unwrap();
    assert!(before.execution.is_some());
    let target = installation.bound("web", 1, "app").await;
    let now = control.deployment_named(&installation.ada, "web").await.unwrap();
    assert_eq!(now, installation.id("web").await);
    let page = control.find_nodes(&installation.ada, &NodesQuery::default()).await.unwrap();
    let n1 = page.nodes.iter().find(|node| node.fqdn.starts_with("n1.")).unwrap();
    assert!(!n1.record_only, "the response must show the changes of blueprint {target}");
}

/// Searches the source code: functions that wait for a permit take no connection, and never wait
/// within a transaction.
#[test]
fn computing_functions_use_no_connection() {
    let mut computing = 0;
    for file in installation::sources() {
        let source = std::fs::read_to_string(&file).unwrap();
        let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for function in code.split("async fn ").skip(1) {
            if let Some((_, within)) = function.split_once(".begin()") {
                let waits = [
                    ".work(",
                    "plan_on_pool(",
                    "edit_errors_on_pool(",
                    ".check_edits(",
                    ".check_edit_data(",
                    ".plan_review(",
                    ".contains_change(",
                    ".current_state()",
                ];
                let waits = waits.into_iter().find(|call| within.contains(call));
                assert_eq!(
                    waits,
                    None,
                    "{}: {function} computes within a transaction",
                    file.display()
                );
            }
            let begins = function.split(" {\n").next().unwrap_or_default();
            if !begins.contains(": &ComputeLimit") {
                continue;
            }
            computing += 1;
            assert!(!begins.contains("PgConnection"), "{}: {begins}", file.display());
            assert!(!function.contains(".begin()"), "{}: {begins}", file.display());
        }
    }
    assert!(
        computing > 10,
        "found only {computing} functions that compute: adapt the search of this test"
    );
}
