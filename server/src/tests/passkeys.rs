//! Passkeys and signed verdicts over REST, with a software authenticator.

use authenticator::Authenticator;
use axum::http::Method;
use serde_json::json;

use super::*;

const HOST: &str = "localhost:7780";
const ORIGIN: &str = "http://localhost:7780";

async fn server() -> TestServer {
    TestServer::at("http://127.0.0.1:7780", HOST, |_| {}).await
}

impl TestServer {
    /// Registers a passkey and returns it.
    async fn registered(&self, cookie: &str, key: &Authenticator) -> Value {
        let options = self.send_post("/api/v1/me/passkeys/options", cookie, json!({})).await.json();
        let answer = key.create(ORIGIN, &options["options"]);
        let made = self
            .send_post("/api/v1/me/passkeys", cookie, json!({"name": "Laptop", "answer": answer}))
            .await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        made.json()
    }

    async fn confirmed(&self, passkey: &Value) {
        let mut owner = self.db.owner().acquire().await.expect("a connection");
        let id = serde_json::from_value(passkey["id"].clone()).expect("an id");
        assert!(
            store::people::passkeys::confirm_as_owner(&mut owner, id)
                .await
                .expect("the passkey is confirmed")
        );
    }

    /// Submits a change as ada. Returns the review and the path of its verdicts.
    async fn verdicts(&self, ada: &str) -> (i64, String) {
        let node = self.n1(ada).await;
        let board = self.send_get("/api/v1/deployments/web/board", ada).await.json();
        let bind =
            json!([{"edit": "bind", "deployment": board["id"], "node": node, "role": "app"}]);
        let draft = self.draft(ada, "web", bind).await;
        let id = self.submit(ada, draft).await;
        (id, format!("/api/v1/reviews/{id}/verdicts"))
    }

    /// Signs an approval.
    async fn signature(&self, cookie: &str, verdicts: &str, key: &Authenticator) -> Value {
        let challenge = self
            .send_post(&format!("{verdicts}/options"), cookie, json!({"kind": "approve"}))
            .await
            .json();
        json!({"nonce": challenge["nonce"], "answer": key.get(ORIGIN, &challenge["options"])})
    }
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.problem()["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn signed_approval_passes_the_gate() {
    let server = server().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let key = Authenticator::new();
    let passkey = server.registered(&bo, &key).await;
    assert_eq!((&passkey["host"], &passkey["confirmed"]), (&json!("localhost"), &json!(false)));
    let me = server.send_get("/api/v1/people/me", &bo).await.json();
    assert_eq!(me["passkeys"][0]["fingerprint"], passkey["fingerprint"]);

    let (id, verdicts) = server.verdicts(&ada).await;
    let options = format!("{verdicts}/options");
    assert_eq!(
        code(&server.send_post(&options, &bo, json!({"kind": "approve"})).await),
        (409, "no_passkey".into())
    );
    server.confirmed(&passkey).await;
    let signature = server.signature(&bo, &verdicts, &key).await;
    let signed =
        server.send_post(&verdicts, &bo, json!({"kind": "approve", "signature": signature})).await;
    assert_eq!(signed.status, StatusCode::CREATED, "{}", signed.text());
    let review = server.send_get(&format!("/api/v1/reviews/{id}"), &bo).await.json();
    assert_eq!(
        (&review["may_sign"], &review["verdicts"][0]["signed"]),
        (&json!(true), &json!("Laptop"))
    );
    server
        .send_post(&format!("/api/v1/reviews/{id}/commit"), &ada, json!({"name": "web"}))
        .await
        .json();

    let path = format!("/api/v1/passkeys/{}", passkey["id"].as_str().expect("an id"));
    let request = |cookie: &str| {
        let request = server.post(&path).method(Method::DELETE).header(header::COOKIE, cookie);
        request.body(Body::empty()).expect("a request")
    };
    assert_eq!(
        code(&server.ask(request(&ada)).await),
        (404, "not_found".into()),
        "ada has no permission to see it"
    );
    server.ask(request(&bo)).await.json();
    assert_eq!(server.send_get("/api/v1/people/me", &bo).await.json()["passkeys"], json!([]));
}

#[tokio::test]
async fn wrong_signature_is_rejected() {
    let server = server().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let key = Authenticator::new();
    server.confirmed(&server.registered(&bo, &key).await).await;
    let (_, verdicts) = server.verdicts(&ada).await;
    let challenge = server
        .send_post(&format!("{verdicts}/options"), &bo, json!({"kind": "approve"}))
        .await
        .json();
    let (nonce, options) = (&challenge["nonce"], &challenge["options"]);
    let give = async |kind: &str, nonce: &Value, answer: Value| {
        let signature = json!({"nonce": nonce, "answer": answer});
        server
            .send_post(&verdicts, &bo, json!({"kind": kind, "reason": "x", "signature": signature}))
            .await
    };
    let good = key.get(ORIGIN, options);
    let rejected = (400, "passkey_rejected".to_owned());
    assert_eq!(
        code(&give("approve", &json!("0".repeat(32)), good.clone()).await),
        rejected,
        "the nonce differs"
    );
    assert_eq!(
        code(&give("approve", nonce, key.get("http://evil.example", options)).await),
        rejected,
        "the origin differs"
    );
    assert_eq!(code(&give("reject", nonce, good.clone()).await), rejected, "the verdict differs");
    assert_eq!(
        code(&give("approve", nonce, json!({"id": "x"})).await),
        rejected,
        "the assertion is malformed"
    );
    assert_eq!(code(&give("approve", &json!("x"), good.clone()).await), (400, "invalid".into()));
    let stranger = Authenticator::new();
    let unknown = give("approve", nonce, stranger.get(ORIGIN, options)).await;
    assert_eq!(code(&unknown), (403, "passkey_unknown".into()));
    assert_eq!(server.count("verdict").await, 0, "a rejected signature must store no verdict");
    assert_eq!(give("approve", nonce, good.clone()).await.status, StatusCode::CREATED);
    assert_eq!(code(&give("approve", nonce, good).await), (409, "signature_used".into()));
}

#[tokio::test]
async fn wrong_registration_is_rejected() {
    let server = server().await;
    let ada = server.cookie().await;
    let register = async |answer: Value| {
        server
            .send_post("/api/v1/me/passkeys", &ada, json!({"name": "Laptop", "answer": answer}))
            .await
    };
    let options = async || {
        server.send_post("/api/v1/me/passkeys/options", &ada, json!({})).await.json()["options"]
            .clone()
    };
    let key = Authenticator::new();
    let begun = options().await;
    let good = key.create(ORIGIN, &begun);
    let evil = register(key.create("http://evil.example", &begun)).await;
    assert_eq!(code(&evil), (400, "passkey_rejected".into()));
    for answer in [
        json!({}),
        json!(null),
        json!([1]),
        json!({"id": "x", "response": {"clientDataJSON": "!"}}),
    ] {
        options().await;
        assert_eq!(code(&register(answer).await), (400, "passkey_rejected".into()));
    }
    options().await;
    assert_eq!(
        code(&register(good).await),
        (400, "passkey_rejected".into()),
        "the response belongs to earlier options"
    );
    let token = server.token(&ada, &["operator"]).await;
    let request = server
        .post("/api/v1/me/passkeys/options")
        .header(header::AUTHORIZATION, format!("Bearer {token}"));
    assert_eq!(
        server.ask(request.body(Body::empty()).expect("a request")).await.status,
        StatusCode::FORBIDDEN
    );
    let by_address = TestServer::new().await;
    let cookie = by_address.cookie().await;
    let refused = by_address.send_post("/api/v1/me/passkeys/options", &cookie, json!({})).await;
    assert_eq!(code(&refused), (409, "no_host_name".into()));
}
