//! Deployments as a resource: created and removed via proposals.

use axum::http::Method;
use serde_json::json;

use super::*;

impl TestServer {
    async fn remove_deployment(&self, name: &str, cookie: &str) -> Answer {
        let request = self.post(&format!("/api/v1/deployments/{name}")).method(Method::DELETE);
        self.ask(request.header(header::COOKIE, cookie).body(Body::empty()).expect("a request"))
            .await
    }

    /// Approves and commits an open proposal.
    async fn commit_proposal(&self, made: &Value, ada: &str, cy: &str, name: &str) {
        let proposal = made["proposal"].as_i64().expect("a proposal");
        let version = made["version"].as_i64().expect("a version");
        let review = self.submit(ada, (proposal, version)).await;
        let approve = json!({"kind": "approve", "reason": "fine"});
        self.send_post(&format!("/api/v1/reviews/{review}/verdicts"), cy, approve).await.json();
        let name = json!({"name": name});
        self.send_post(&format!("/api/v1/reviews/{review}/commit"), ada, name).await.json();
    }
}

#[tokio::test]
async fn deployment_is_created_and_removed_via_proposals() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let cy = server.person("cy", [Permission::Reviewer]).await;
    let web = server.send_get("/api/v1/deployments/web", &ada).await;
    assert!(web.header(header::ETAG).starts_with('"'));
    let web = web.json();
    assert_eq!(
        (&web["name"], &web["parent"], &web["on_hold"], &web["priority"], &web["depth"]),
        (&json!("web"), &json!("system"), &Value::Null, &json!(0), &json!(1))
    );
    let missing = server.send_get("/api/v1/deployments/wbe", &ada).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.problem()["detail"].as_str().is_some_and(|text| text.contains("\"web\"")));

    let request = json!({"name": "canary", "parent": "web"});
    let made = server.send_post("/api/v1/deployments", &ada, request.clone()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let place = made.header(header::LOCATION).to_owned();
    let made = made.json();
    assert_eq!(place, format!("/api/v1/proposals/{}", made["proposal"]));
    assert_eq!(
        server.send_get("/api/v1/deployments/canary", &ada).await.status,
        StatusCode::NOT_FOUND,
        "nothing changes before the commit"
    );
    let twice = server.send_post("/api/v1/deployments", &ada, request).await;
    assert_eq!(twice.problem()["code"], "edit_refused");
    let more =
        server.send_post("/api/v1/deployments", &ada, json!({"name": "blue", "parent": "web"}));
    let more = more.await.json();
    assert_eq!(more["proposal"], made["proposal"], "the open proposal is extended");
    server.commit_proposal(&more, &ada, &cy, "web").await;
    let canary = server.send_get("/api/v1/deployments/canary", &ada).await.json();
    assert_eq!((&canary["id"], &canary["parent"]), (&made["id"], &json!("web")));

    let gone = server.remove_deployment("canary", &ada).await;
    assert_eq!(gone.status, StatusCode::CREATED, "{}", gone.text());
    let gone = gone.json();
    assert_eq!(gone["id"], made["id"]);
    server.commit_proposal(&gone, &ada, &cy, "canary").await;
    let missing = server.send_get("/api/v1/deployments/canary", &ada).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn refused_deployment_edit_opens_no_proposal() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let proposals =
        async || server.send_get("/api/v1/proposals", &ada).await.json()["proposals"].clone();
    let before = proposals().await;
    for name in ["system", "web"] {
        let request = json!({"name": "edge", "parent": name});
        assert_eq!(
            server.send_post("/api/v1/deployments", &ada, request).await.status.as_u16(),
            422
        );
    }
    assert_eq!(server.remove_deployment("system", &ada).await.status.as_u16(), 422);
    assert_eq!(proposals().await, before);
    let request = json!({"name": "x", "parent": "nowhere"});
    assert_eq!(
        server.send_post("/api/v1/deployments", &ada, request).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn named_resources_are_found_by_name_and_id() {
    let server = TestServer::new().await;
    server.furnish().await;
    let root = server.person("root", [Permission::Operator, Permission::Admin]).await;
    let worker = "INSERT INTO worker (name, lease_until) VALUES ('w1', now() + interval '1 hour')";
    sqlx::query(worker).execute(server.db.owner()).await.expect("a worker");
    for (path, name, id) in [
        ("deployments", "web", "/id"),
        ("people", "ada", "/person/id"),
        ("nodes", "n1.house.example.com", "/id"),
        ("workers", "w1", "/id"),
    ] {
        let get = async |key: &str| {
            let answer = server.send_get(&format!("/api/v1/{path}/{key}"), &root).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}/{key}: {}", answer.text());
            let mut resource = answer.json();
            // The cursor of the live stream counts the events of all resources.
            resource.as_object_mut().expect("an object").remove("cursor");
            resource
        };
        let by_name = get(name).await;
        let id = by_name
            .pointer(id)
            .or(by_name.pointer("/id"))
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{path}: {by_name}"));
        assert_eq!(get(id).await, by_name, "{path}");
        for unknown in ["nowhere", "00000000-0000-4000-8000-00000000beef"] {
            let answer = server.send_get(&format!("/api/v1/{path}/{unknown}"), &root).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}/{unknown}");
        }
    }
    let web = server.send_get("/api/v1/deployments/web", &root).await.json();
    let id = web["id"].as_str().expect("an id");
    for list in ["nodes", "runs", "pending", "reviews", "proposals", "blueprints"] {
        let get = async |key: &str| {
            server.send_get(&format!("/api/v1/{list}?deployment={key}"), &root).await.json()
        };
        assert_eq!(get(id).await, get("web").await, "{list}");
    }
}
