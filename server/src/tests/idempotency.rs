//! Idempotency keys: a repeated request is not executed again.

use serde_json::json;

use super::*;

const NODES: &str = "/api/v1/nodes";

impl TestServer {
    async fn keyed(&self, path: &str, cookie: &str, key: &str, body: Value) -> Answer {
        let mut request = self.post_json(path, cookie, body.to_string());
        request.headers_mut().insert("idempotency-key", key.parse().expect("a value"));
        self.ask(request).await
    }

    /// The path that creates tokens of a new node.
    async fn node_tokens_path(&self, cookie: &str) -> String {
        let host_key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
        let ssh = json!({"addresses": ["10.0.3.7"], "key": "deploy/ssh", "host_key": host_key});
        let made = self
            .send_post(NODES, cookie, json!({"fqdn": "m1.rack1.example.com", "ssh": ssh}))
            .await
            .json();
        format!("{NODES}/{}/tokens", made["node"].as_str().expect("an id"))
    }
}

fn node(name: &str) -> Value {
    json!({"fqdn": format!("{name}.house.example.com"), "root": format!("/srv/{name}")})
}

#[tokio::test]
async fn repeated_request_is_executed_once() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let admin =
        NewPerson::human("cy", [Permission::Viewer, Permission::Operator, Permission::Admin]);
    let cy = server.people.create_person(None, &admin).await.expect("cy");
    let (ada, bo, cy) =
        (server.cookie().await, server.cookie_for(bo).await, server.cookie_for(cy).await);
    let first = server.keyed(NODES, &cy, "k-1", node("n2")).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (StatusCode::CREATED, ""));
    let again = server.keyed(NODES, &cy, "k-1", node("n2")).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (StatusCode::CREATED, "true"));
    assert_eq!(
        (again.json(), again.header(header::CONTENT_TYPE)),
        (first.json(), "application/json")
    );
    // Without a key, or with another one, it is another request.
    assert_eq!(server.send_post(NODES, &cy, node("n2")).await.status, StatusCode::CONFLICT);
    let other = server.keyed(NODES, &cy, "k-1", node("n3")).await;
    assert_eq!(
        (other.status.as_u16(), other.problem()["code"].as_str()),
        (422, Some("idempotency_key_reused"))
    );
    let elsewhere = server.keyed("/api/v1/execution/off", &cy, "k-1", node("n2")).await;
    assert_eq!(elsewhere.status, StatusCode::UNPROCESSABLE_ENTITY, "a key is bound to its address");
    // Keys belong to a person.
    assert_eq!(server.keyed(NODES, &bo, "k-1", node("n3")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        server.keyed(NODES, &ada, "k-1", node("n3")).await.header("idempotency-replayed"),
        ""
    );
    // An error changed nothing and is not stored.
    assert_eq!(server.keyed(NODES, &cy, "k-2", node("n2")).await.status, StatusCode::CONFLICT);
    assert_eq!(server.keyed(NODES, &cy, "k-2", node("n4")).await.status, StatusCode::CREATED);
    for wrong in ["", "with a space", &"x".repeat(256)] {
        assert_eq!(
            server.keyed(NODES, &cy, wrong, node("n5")).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong:?}"
        );
    }
    let mut twice = server.post_json(NODES, &cy, node("n5").to_string());
    for key in ["a", "b"] {
        twice.headers_mut().append("idempotency-key", key.parse().expect("a value"));
    }
    assert_eq!(server.ask(twice).await.status, StatusCode::BAD_REQUEST);
    let nobody = server.keyed(NODES, "", "k-9", node("n5")).await;
    assert_eq!(nobody.status, StatusCode::UNAUTHORIZED);
    let large = json!({"fqdn": "x".repeat(limits::MAX_BODY_BYTES)});
    assert_eq!(server.keyed(NODES, &cy, "k-9", large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    // A key is forgotten after a day, even before the sweep deletes it.
    server.sql("UPDATE idempotency SET claimed_at = now() - interval '25 hours'").await;
    assert_eq!(server.keyed(NODES, &cy, "k-1", node("n6")).await.status, StatusCode::CREATED);
    assert!(store::idempotency::delete_expired_keys(server.db.app()).await.expect("deleted") >= 2);
    assert_eq!(
        server.keyed(NODES, &cy, "k-1", node("n6")).await.header("idempotency-replayed"),
        "true"
    );
}

#[tokio::test]
async fn abandoned_claim_expires() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let body = json!({"reason": "a while"});
    let path = "/api/v1/deployments/web/hold";
    server.keyed(path, &ada, "k", body.clone()).await.json();
    // The state after a server was killed between the work and storing its response.
    server.sql("UPDATE idempotency SET status = NULL, headers = NULL, body = NULL").await;
    let early = server.keyed(path, &ada, "k", body.clone()).await;
    assert_eq!(
        (early.status.as_u16(), early.problem()["code"].as_str()),
        (409, Some("in_progress"))
    );
    assert!(early.header(header::RETRY_AFTER).parse::<u32>().is_ok_and(|seconds| seconds > 0));
    server.sql("UPDATE idempotency SET claimed_until = now() - interval '1 second'").await;
    let later = server.keyed(path, &ada, "k", body.clone()).await;
    assert_eq!(
        later.problem()["code"],
        "state",
        "the request runs again, and the state of the review rejects it: {}",
        later.text()
    );

    // One of the concurrent requests is executed. The others get its response or a 409.
    let (add, mut made, mut seen) = (node("n7"), 0, 0);
    let all = (0..8).map(|_| server.keyed(NODES, &ada, "many", add.clone()));
    for answer in futures::future::join_all(all).await {
        match (answer.status, answer.header("idempotency-replayed")) {
            (StatusCode::CREATED, "") => made += 1,
            (StatusCode::CREATED | StatusCode::CONFLICT, _) => seen += 1,
            other => panic!("{other:?}: {}", answer.text()),
        }
    }
    assert_eq!((made, seen), (1, 7));
}

/// The expected version and the token are part of the request.
#[tokio::test]
async fn version_and_token_distinguish_requests() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let path = server.node_tokens_path(&ada).await;
    let send = async |name: header::HeaderName, value: &str| {
        let mut request = server.post_json(&path, &ada, r#"{"name": "a sensor"}"#);
        request.headers_mut().insert("idempotency-key", "one".parse().expect("a value"));
        request.headers_mut().insert(name, value.parse().expect("a value"));
        server.ask(request).await
    };
    let (any, agent) = ("*", header::USER_AGENT);
    assert_eq!(send(agent.clone(), any).await.status, StatusCode::CREATED);
    let code = |answer: Answer| {
        (answer.status.as_u16(), answer.problem()["code"].as_str().map(str::to_owned))
    };
    assert_eq!(
        code(send(agent, any).await),
        (409, Some("shown_once".into())),
        "another client sent the same request"
    );
    let another = (422, Some("idempotency_key_reused".to_owned()));
    assert_eq!(code(send(header::IF_MATCH, "\"3\"").await), another);
    let token = server
        .send_post("/api/v1/tokens", &ada, json!({"name": "ci", "scopes": ["operator"]}))
        .await
        .json();
    let bearer = format!("Bearer {}", token["token"].as_str().expect("a token"));
    assert_eq!(code(send(header::AUTHORIZATION, &bearer).await), another);
}

/// A request that takes longer than a claim is not executed a second time.
#[tokio::test]
async fn long_request_renews_its_claim() {
    use store::idempotency::{Claimed, Key, claim_key, renew_claim};
    let server = TestServer::new().await;
    let mut on = server.db.app().acquire().await.expect("a connection");
    let key = Key { person: server.ada, key: "long".into(), request: [7; 32] };
    let Claimed::Yours(claim) = claim_key(&mut on, &key).await.expect("a claim") else {
        panic!("the key must be new")
    };
    server.sql("UPDATE idempotency SET claimed_until = now() - interval '1 second'").await;
    assert!(renew_claim(server.db.app(), &key, claim).await.expect("a renewed claim"));
    assert!(matches!(claim_key(&mut on, &key).await.expect("an answer"), Claimed::UnderWay(_)));
    assert!(
        !renew_claim(server.db.app(), &key, uuid::Uuid::new_v4()).await.expect("an answer"),
        "another request holds the claim"
    );
    server.sql("UPDATE idempotency SET claimed_until = now() - interval '1 second'").await;
    assert!(
        matches!(claim_key(&mut on, &key).await.expect("an answer"), Claimed::Yours(_)),
        "the claim of the dead request has expired"
    );
    assert!(
        !renew_claim(server.db.app(), &key, claim).await.expect("an answer"),
        "another request took the claim over"
    );
}

#[tokio::test]
async fn response_with_secret_is_not_stored() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let path = server.node_tokens_path(&ada).await;
    let made = server.keyed(&path, &ada, "t", json!({"name": "its unit"})).await;
    let token = made.json()["token"].as_str().expect("a token").to_owned();
    let again = server.keyed(&path, &ada, "t", json!({"name": "its unit"})).await;
    assert_eq!(
        (again.problem()["code"].as_str(), again.header("idempotency-replayed")),
        (Some("shown_once"), "true")
    );
    let rows: Vec<String> = sqlx::query_scalar("SELECT row_to_json(i)::text FROM idempotency i")
        .fetch_all(server.db.owner())
        .await
        .expect("rows");
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| !row.contains(&token) && !row.contains(&hex)),
        "{rows:?}"
    );
}
