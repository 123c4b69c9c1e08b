//! Pending reasons over REST: one step through every reason.

use engine::anneal::Limits;
use serde_json::json;
use store::runs::RunEnd;

use super::change_flow::{committed, working};
use super::*;

const LEASE: Duration = Duration::from_secs(600);

/// The only reason, its count, and its only step.
async fn only(server: &TestServer, cookie: &str, query: &str) -> (String, i64, Value) {
    let page = server.send_get(&format!("/api/v1/pending{query}"), cookie).await.json();
    let groups = page["groups"].as_array().expect("a list");
    assert_eq!(groups.len(), 1, "{page}");
    let (group, steps) = (&groups[0], groups[0]["steps"].as_array().expect("a list"));
    assert_eq!(steps.len(), 1, "{page}");
    let reason = group["reason"].as_str().expect("a string").to_owned();
    (reason, group["count"].as_i64().expect("a number"), steps[0].clone())
}

async fn assert_reason(server: &TestServer, cookie: &str, reason: &str, words: &str) -> Value {
    let (found, count, step) = only(server, cookie, "").await;
    assert_eq!((found.as_str(), count), (reason, 1), "{step}");
    assert!(step["reasons"].to_string().contains(words), "{step}");
    assert_eq!((&step["role"], &step["deployment"]), (&json!("app"), &json!("web")));
    step["resolved_by"].clone()
}

/// The progress of `web`, the same value as for its target.
async fn progress_of_web(server: &TestServer, cookie: &str) -> String {
    let deployment = server.send_get("/api/v1/deployments/web/progress", cookie).await.json();
    let target = server.send_get("/api/v1/blueprints/2", cookie).await.json();
    assert_eq!(
        (&deployment["deployment"], &deployment["progress"]),
        (&json!("web"), &target["progress"]),
        "{deployment} {target}"
    );
    deployment["progress"].as_str().expect("a string").to_owned()
}

#[tokio::test]
async fn step_has_pending_reason_until_it_runs() {
    let server = TestServer::new().await;
    let node = committed(&server).await;
    let ada = server.cookie().await;
    store::runs::set_node_alive(server.db.owner(), node, false).await.expect("a node");

    let freed_by = assert_reason(&server, &ada, "node_dead", "does not answer").await;
    let n1 = server.n1(&ada).await;
    assert_eq!(freed_by, json!([{"kind": "node", "node": n1, "fqdn": "n1.house.example.com"}]));
    store::runs::set_node_alive(server.db.owner(), node, true).await.expect("a node");
    assert_reason(&server, &ada, "no_worker", "No worker is running").await;
    working(&server, &["script"]).await;
    assert_reason(&server, &ada, "no_worker_for_jig", "supports jig noop").await;
    let worker = working(&server, &["noop"]).await;
    assert_reason(&server, &ada, "ready", "starts when a worker claims it").await;

    let reason = json!({"reason": "a look at the disks"});
    server.send_post("/api/v1/deployments/web/hold", &ada, reason).await.json();
    let freed_by =
        assert_reason(&server, &ada, "on_hold", "Deployment web was put on hold by ada").await;
    let web = server.send_get("/api/v1/deployments/web", &ada).await.json()["id"].clone();
    assert_eq!(freed_by, json!([{"kind": "deployment", "id": web, "name": "web"}]));
    assert_eq!(progress_of_web(&server, &ada).await, "stuck", "the deployment is on hold");
    server.send_post("/api/v1/execution/off", &ada, json!({"reason": "power"})).await.json();
    assert_reason(&server, &ada, "on_hold", "xecution is off").await;
    server
        .send_post("/api/v1/deployments/web/release", &ada, json!({"reason": "done"}))
        .await
        .json();
    assert_reason(&server, &ada, "paused", "an operator can turn it on").await;
    assert_eq!(progress_of_web(&server, &ada).await, "stuck", "the switch is off");
    server.send_post("/api/v1/execution/on", &ada, json!({"reason": "power"})).await.json();

    assert_eq!(progress_of_web(&server, &ada).await, "in_progress");
    let claimed =
        store::runs::claim_runs(server.db.worker(), Limits::default()).await.expect("a claim");
    let run = claimed.runs[0];
    assert_eq!(
        assert_reason(&server, &ada, "queued", "free slot").await,
        json!([{"kind": "run", "run": run}])
    );
    store::runs::lease_runs(server.db.worker(), worker, &["noop"], 1, LEASE)
        .await
        .expect("a lease");
    assert_eq!(
        server.send_get("/api/v1/pending", &ada).await.json(),
        json!({"groups": []}),
        "the step is running"
    );
    let end = RunEnd::failed("no such disk");
    store::runs::finish_run(server.db.worker(), run, worker, &end).await.expect("an end");
    assert_eq!(
        assert_reason(&server, &ada, "failed", "no such disk").await,
        json!([{"kind": "run", "run": run}])
    );
    assert_eq!(progress_of_web(&server, &ada).await, "stuck", "the step failed");
}

#[tokio::test]
async fn pending_steps_are_filtered() {
    let server = TestServer::new().await;
    let node = committed(&server).await;
    let ada = server.cookie().await;
    store::runs::set_node_alive(server.db.owner(), node, false).await.expect("a node");
    for query in [
        "?deployment=web".to_owned(),
        format!("?node={node}"),
        "?node=n1.house.example.com&reason=node_dead".to_owned(),
    ] {
        assert_eq!(only(&server, &ada, &query).await.0, "node_dead", "{query}");
    }
    let nothing = server.send_get("/api/v1/pending?deployment=edge", &ada).await.json();
    assert_eq!(nothing, json!({"groups": []}));
    let other = server.send_get("/api/v1/pending?reason=failed", &ada).await.json();
    assert_eq!(
        (&other["groups"][0]["count"], &other["groups"][0]["steps"]),
        (&json!(1), &json!([]))
    );
    for (query, status) in [
        ("?deployment=nowhere", 404),
        ("?node=n9.house.example.com", 404),
        ("?reason=whim", 400),
        ("?after=x", 400),
        ("?after=since~-1~-00000000-0000-0000-0000-000000000000", 400),
        ("?reason=failed&after=since~-1~-x", 400),
        (
            "?reason=failed&after=since~-9223372036854775807~-00000000-0000-0000-0000-000000000000",
            400,
        ),
        ("?of=web", 400),
    ] {
        let problem = server.send_get(&format!("/api/v1/pending{query}"), &ada).await.problem();
        assert_eq!(problem["status"], status, "{query}: {problem}");
    }
    assert_eq!(server.send_get("/api/v1/pending", "").await.status, StatusCode::UNAUTHORIZED);
}
