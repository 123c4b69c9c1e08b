//! The second factor over HTTP: the paths that are allowed without it, its operations, and the form
//! without scripts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use authenticator::Authenticator;
use axum::http::Method;
use serde_json::json;
use totp_rs::{Builder, Secret};

use super::*;

const PASSWORD: &str = "vague otter lamp";

fn code_of(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.problem()["code"].as_str().unwrap_or_default().to_owned())
}

/// The code of a secret, this number of time steps from now. The server accepts one step before and
/// after. An older code is generated early in a time step, so that it is still valid when it
/// arrives.
fn code(secret: &str, steps: i64) -> String {
    let app = Builder::new()
        .with_secret(Secret::try_from_base32(secret).expect("base32"))
        .build()
        .expect("an app");
    let mut now = unix_seconds();
    while steps < 0 && now % 30 > 20 {
        std::thread::sleep(Duration::from_millis(200));
        now = unix_seconds();
    }
    app.generate(now.saturating_add_signed(30 * steps)).to_string()
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

impl TestServer {
    /// An operator with a password.
    async fn dee(&self) -> PersonId {
        self.furnish().await;
        let new = NewPerson::human("dee", [Permission::Viewer, Permission::Operator]);
        let dee = self.people.create_person(None, &new).await.expect("a person");
        let cookie = self.cookie_for(dee).await;
        let set = self
            .send_json_as(Method::PUT, "/api/v1/me/password", &cookie, json!({ "new": PASSWORD }))
            .await;
        assert_eq!(set.status, StatusCode::OK, "{}", set.text());
        dee
    }

    async fn by_password(&self) -> String {
        let answer = self
            .posted("/sign-in", "", &format!("name=dee&password={}", PASSWORD.replace(' ', "+")))
            .await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER);
        answer.cookie().split(';').next().expect("a cookie").to_owned()
    }

    async fn send_json_as(&self, method: Method, path: &str, cookie: &str, body: Value) -> Answer {
        let mut request = self.post_json(path, cookie, body.to_string());
        *request.method_mut() = method;
        self.ask(request).await
    }

    /// As a form without scripts sends it.
    async fn posted(&self, path: &str, cookie: &str, form: &str) -> Answer {
        let request =
            self.post(path).header(header::COOKIE, cookie).header(header::ACCEPT, "text/html");
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.ask(request.body(Body::from(form.to_owned())).expect("a request")).await
    }

    async fn set_up(&self, cookie: &str) -> String {
        let made = self.send_json_as(Method::POST, "/api/v1/me/totp", cookie, json!({})).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let secret = made.json()["secret"].as_str().expect("a secret").to_owned();
        let body = json!({ "code": code(&secret, -1) });
        let confirmed =
            self.send_json_as(Method::POST, "/api/v1/me/totp/confirm", cookie, body).await;
        assert_eq!(confirmed.status, StatusCode::OK, "{}", confirmed.text());
        secret
    }
}

#[tokio::test]
async fn session_without_factor_reaches_few_paths() {
    // Passkeys need a host name.
    let server = TestServer::at("http://localhost:7780", "localhost:7780", |_| {}).await;
    server.dee().await;
    let secret = server.set_up(&server.by_password().await).await;
    let dee = server.by_password().await;
    for path in [
        "/api/v1/nodes",
        "/api/v1/people/me",
        "/api/v1/me/sessions",
        "/events?after=1",
        "/graph/x/graph.svg",
    ] {
        assert_eq!(
            code_of(&server.send_get(path, &dee).await),
            (403, "second_factor_needed".into()),
            "{path}"
        );
    }
    for call in ["/call/nodes", "/call/account", "/call/frame"] {
        let answer = server.ask(server.post_json(call, &dee, "{}")).await;
        assert_eq!(code_of(&answer), (403, "second_factor_needed".into()), "{call}");
    }
    let away = server.visit("/runs?state=failed", &dee).await;
    assert_eq!(away.header(header::LOCATION), "/second-factor?next=%2Fruns%3Fstate%3Dfailed");
    let page = server.visit("/second-factor?next=%2Fruns", &dee).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(
        page.text().contains("one-time-code") && !page.text().contains(&secret),
        "{}",
        page.text()
    );
    let state = server.send_get("/api/v1/me/second-factor", &dee).await.json();
    assert_eq!(state, json!({ "totp": true, "passkeys": 0, "required": false, "needed": true }));
    let set_up = server.send_json_as(Method::POST, "/api/v1/me/totp", &dee, json!({})).await;
    assert_eq!(
        code_of(&set_up),
        (403, "second_factor_needed".into()),
        "a stolen password must not allow the setup of a factor"
    );
    let options =
        server.send_json_as(Method::POST, "/api/v1/me/passkeys/options", &dee, json!({})).await;
    assert_eq!(code_of(&options), (403, "second_factor_needed".into()));
    let options = server.ask(server.post_json("/call/passkey-options", &dee, "{}")).await;
    assert_eq!(options.status, StatusCode::FORBIDDEN);
    assert!(options.text().contains("second_factor_needed"), "{}", options.text());

    let present = async |body: Value| {
        server.send_json_as(Method::POST, "/api/v1/me/second-factor", &dee, body).await
    };
    assert_eq!(code_of(&present(json!({})).await), (400, "invalid".into()));
    let number = present(json!({ "code": 987654 })).await;
    assert_eq!(number.status, StatusCode::BAD_REQUEST);
    assert!(!number.text().contains("987654"), "{}", number.text());
    assert_eq!(
        code_of(&present(json!({ "code": code(&secret, 9) })).await),
        (403, "code_wrong".into())
    );
    let now = code(&secret, 0);
    assert_eq!(present(json!({ "code": now })).await.status, StatusCode::OK);
    assert_eq!(code_of(&present(json!({ "code": now })).await), (403, "code_used".into()));
    assert_eq!(server.send_get("/api/v1/nodes", &dee).await.status, StatusCode::OK);
    let me = server.send_get("/api/v1/people/me", &dee).await.json();
    assert_eq!(me["second_factor"]["totp"], true);
}

#[tokio::test]
async fn token_needs_no_second_factor() {
    let server = TestServer::new().await;
    server.dee().await;
    let dee = server.by_password().await;
    server.set_up(&dee).await;
    let made = server
        .send_json_as(
            Method::POST,
            "/api/v1/tokens",
            &dee,
            json!({ "name": "t", "scopes": ["viewer"] }),
        )
        .await;
    let bearer = format!("Bearer {}", made.json()["token"].as_str().expect("a token"));
    let ask = async |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).header(header::HOST, server.host);
        let request = request
            .header(header::AUTHORIZATION, &bearer)
            .header(header::CONTENT_TYPE, "application/json");
        server.ask(request.body(Body::from(r#"{"code": "123456"}"#)).expect("a request")).await
    };
    assert_eq!(ask(Method::GET, "/api/v1/nodes").await.status, StatusCode::OK);
    assert_eq!(
        code_of(&ask(Method::POST, "/api/v1/me/second-factor").await),
        (403, "session_required".into())
    );
}

#[tokio::test]
async fn form_sets_up_presents_and_removes_without_scripts() {
    let server = TestServer::new().await;
    server.dee().await;
    let dee = server.by_password().await;
    let post = async |cookie: &str, form: &str| server.posted("/second-factor", cookie, form).await;
    let begun = post(&dee, "act=start&next=/settings/account").await;
    let path = "/second-factor?next=%2Fsettings%2Faccount";
    assert_eq!((begun.status, begun.header(header::LOCATION)), (StatusCode::SEE_OTHER, path));
    let page = server.visit(path, &dee).await;
    let secret = page
        .text()
        .split("secret=")
        .nth(1)
        .and_then(|rest| rest.split('&').next())
        .expect("a secret")
        .to_owned();
    assert!(page.text().contains(&secret[..4]) && page.text().contains("value=\"confirm\""));
    let other = server.by_password().await;
    assert!(
        !server.visit(path, &other).await.text().contains(&secret),
        "another session must not see the secret"
    );
    let wrong = post(&dee, "act=confirm&code=12345&next=/settings/account").await;
    assert_eq!(wrong.header(header::LOCATION), format!("{path}&problem=wrong"));
    let first = code(&secret, -1);
    let confirmed = post(&dee, &format!("act=confirm&code={first}&next=/settings/account")).await;
    assert_eq!(confirmed.header(header::LOCATION), "/settings/account");
    let account = server.visit("/settings/account", &dee).await;
    assert!(account.text().contains("Remove the authenticator app"), "{}", account.text());

    let dee = server.by_password().await;
    let used = post(&dee, &format!("act=present&code={first}&next=/runs")).await;
    assert_eq!(used.header(header::LOCATION), "/second-factor?next=%2Fruns&problem=used");
    assert!(
        server
            .visit("/second-factor?problem=used", &dee)
            .await
            .text()
            .contains("Each code works once")
    );
    let refused = post(&dee, "act=remove").await;
    assert_eq!(refused.header(header::LOCATION), "/second-factor?problem=other");
    let foreign =
        post(&dee, &format!("act=present&code={}&next=//evil.example", code(&secret, 0))).await;
    assert_eq!(foreign.header(header::LOCATION), "/");
    let removed = post(&dee, "act=remove&next=/settings/account").await;
    assert_eq!(removed.header(header::LOCATION), "/settings/account");
    assert_eq!(
        server.send_get("/api/v1/nodes", &server.by_password().await).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn passkey_is_a_second_factor() {
    let server = TestServer::at("http://localhost:7780", "localhost:7780", |_| {}).await;
    let dee = server.dee().await;
    let (session, key, origin) =
        (server.by_password().await, Authenticator::new(), "http://localhost:7780");
    let post = async |path: &str, cookie: &str, body: Value| {
        server.send_json_as(Method::POST, path, cookie, body).await
    };
    let options = post("/api/v1/me/passkeys/options", &session, json!({})).await.json();
    let request = json!({ "name": "key", "answer": key.create(origin, &options["options"]) });
    assert_eq!(post("/api/v1/me/passkeys", &session, request).await.status, StatusCode::CREATED);
    assert_eq!(
        server.send_get("/api/v1/nodes", &session).await.status,
        StatusCode::OK,
        "the session presented the passkey"
    );
    let session = server.by_password().await;
    let options = post("/api/v1/me/second-factor/options", &session, json!({})).await.json();
    let answer = json!({ "answer": key.get(origin, &options["options"]) });
    let presented = post("/api/v1/me/second-factor", &session, answer.clone()).await;
    assert_eq!(presented.status, StatusCode::OK, "{}", presented.text());
    assert_eq!(
        code_of(&post("/api/v1/me/second-factor", &session, answer).await),
        (409, "no_passkey_request".into())
    );

    // An admin resets the factor.
    let admin = NewPerson::human("root", [Permission::Admin]);
    let admin = server.people.create_person(None, &admin).await.expect("a person");
    let root = server.cookie_for(admin).await;
    let reset = server
        .send_json_as(
            Method::DELETE,
            &format!("/api/v1/people/{dee}/second-factor"),
            &root,
            json!({}),
        )
        .await;
    assert_eq!(reset.status, StatusCode::OK, "{}", reset.text());
    assert_eq!(server.send_get("/api/v1/nodes", &session).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        server.send_get("/api/v1/nodes", &server.by_password().await).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn policy_requires_everyone_to_set_up_a_factor() {
    let origin = "http://localhost:7780";
    let server = TestServer::at(origin, "localhost:7780", |_| {}).await;
    server.dee().await;
    let dee = server.by_password().await;
    assert_eq!(server.send_get("/api/v1/nodes", &dee).await.status, StatusCode::OK);
    let sql = "UPDATE object o SET body = convert_to((convert_from(o.body, 'UTF8')::jsonb ||
        '{\"second_factor\": true}')::text, 'UTF8')
               FROM policy p, head h WHERE p.number = h.policy_number AND o.hash = p.hash";
    let sql = format!(
        "ALTER TABLE object DISABLE TRIGGER USER; ALTER TABLE object DROP CONSTRAINT IF EXISTS \
         object_hash_is_of_body; {sql}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(server.db.owner())
        .await
        .expect("another policy");
    assert_eq!(
        code_of(&server.send_get("/api/v1/nodes", &dee).await),
        (403, "second_factor_needed".into())
    );
    let page = server.visit("/second-factor", &dee).await;
    assert!(
        page.text().contains("The policy requires a second factor"),
        "{} {}",
        page.status,
        page.text()
    );
    server.set_up(&dee).await;
    assert_eq!(server.send_get("/api/v1/nodes", &dee).await.status, StatusCode::OK);

    // The page offers a passkey too.
    sqlx::query("DELETE FROM totp").execute(server.db.owner()).await.expect("the app is deleted");
    let dee = server.by_password().await;
    assert!(server.visit("/second-factor", &dee).await.text().contains("Register a passkey"));
    let call = async |name: &str, body: Value| {
        server.ask(server.post_json(name, &dee, body.to_string())).await
    };
    let challenge = call("/call/passkey-options", json!({})).await;
    assert_eq!(challenge.status, StatusCode::OK, "{}", challenge.text());
    let answer = Authenticator::new().create(origin, &challenge.json()["options"]);
    let made =
        call("/call/register-passkey", json!({"body": {"name": "key", "answer": answer}})).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text());
    assert_eq!(server.send_get("/api/v1/nodes", &dee).await.status, StatusCode::OK);
}
