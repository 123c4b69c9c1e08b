//! Searches for leaked credentials. All credentials have a recognizable form. The tests search
//! answers, pages, errors, the log at trace level, the audit and the database. Secrets of runs
//! never reach the server. `crates/cli/tests/whole/canary.rs` searches for those with a real
//! worker.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::json;

use super::log_capture::LogCapture;
use super::matrix::World;
use super::streaming::StreamClient;
use super::*;

const PASSWORD: &str = "canary-password-aurora-4711";
const WRONG_PASSWORD: &str = "canary-guess-borealis-4712";

/// The credentials that were found, with their places, and the source of each expected one.
struct LeakCheck {
    server: TestServer,
    canaries: Vec<(&'static str, String)>,
}

impl LeakCheck {
    #[track_caller]
    fn check(&self, place: &str, text: &str) {
        for (name, canary) in &self.canaries {
            assert!(!text.contains(canary.as_str()), "{place} contains {name}");
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let headers = [headers, &[("x-gantry", "1")]].concat();
        let answer = self.server.send(method.clone(), path, &headers, body).await;
        self.check(&format!("{method} {path}"), &String::from_utf8_lossy(&answer.body));
        self.check(&format!("the headers of {method} {path}"), &format!("{:?}", answer.headers));
        answer
    }

    /// Everything that is stored, as text.
    async fn stored(&self) {
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND \
             relkind = 'r'",
        )
        .fetch_all(self.server.db.owner())
        .await
        .expect("tables");
        assert!(tables.len() > 30 && tables.iter().any(|table| table == "audit"), "{tables:?}");
        for table in tables {
            let sql =
                format!("SELECT coalesce(string_agg(to_jsonb(t)::text, ' '), '') FROM {table} t");
            let text: String = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .fetch_one(self.server.db.owner())
                .await
                .expect("a text");
            self.check(&table, &text);
        }
    }
}

/// An admin with a password and two tokens, with the admin's session, another person's session, and
/// the unused link of a new person. Also changes, reviews and runs, one of which got a secret.
async fn caged() -> (LeakCheck, String, BTreeSet<String>) {
    let world = World::new().await;
    let (readable, run) = (world.readable().await, world.places[0]["run"].clone());
    let noderole = world.places[0]["noderole"].clone();
    let server = world.server;
    let root = server.person("root", [Permission::Operator, Permission::Admin]).await;
    let second = server.person("second", [Permission::Reviewer]).await;
    let json_of = |answer: Answer| answer.json();
    let set = server.post("/api/v1/me/password").method(Method::PUT).header(header::COOKIE, &root);
    let set = set
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(json!({"new": PASSWORD}).to_string()));
    let set = server.ask(set.expect("a request")).await;
    assert!(set.status.is_success(), "{}", set.text());
    let old_cookie = root;
    let root = set.cookie().split(';').next().expect("a cookie").to_owned();
    let made = json_of(
        server
            .send_post("/api/v1/tokens", &root, json!({"name": "t", "scopes": ["viewer", "admin"]}))
            .await,
    );
    let token = made["token"].as_str().expect("a token").to_owned();
    let added =
        json_of(server.send_post("/api/v1/people", &root, json!({"name": "newcomer"})).await);
    let link = added["link"]["link"]
        .as_str()
        .expect("a link")
        .rsplit('=')
        .next()
        .expect("a token")
        .to_owned();
    let n1 = server.n1(&root).await;
    let path = format!("/api/v1/nodes/{}/tokens", n1.as_str().expect("an id"));
    let node_token =
        json_of(server.send_post(&path, &root, json!({"name": "its unit"})).await)["token"].clone();
    let brought =
        json!({"/app/key": {"step": server.step(&noderole).await, "layer": {"profile": "small"}}});
    let reported = json!(
        {"data": {"app": {"key": {"$secret": "deploy/ssh", "version": 1}}}, "sources": brought}
    );
    sqlx::query("UPDATE run SET input = $1, surroundings = '{}' WHERE id = $2::bigint")
        .bind(reported)
        .bind(run.parse::<i64>().expect("a number"))
        .execute(server.db.owner())
        .await
        .expect("the owner has the permission");
    let data = server.send_get(&format!("/api/v1/runs/{run}/data"), &root).await.json();
    assert_eq!(data["page"]["values"][0]["value"], "(secret)", "{data}");
    let value = |cookie: &str| cookie.split('=').next_back().expect("a value").to_owned();
    let canaries = vec![
        ("the password", PASSWORD.to_owned()),
        ("a wrong password", WRONG_PASSWORD.to_owned()),
        ("the token", token),
        ("the link", link),
        ("the machine's token", node_token.as_str().expect("a token").to_owned()),
        ("the session", value(&root)),
        ("the session before", value(&old_cookie)),
        ("somebody else's session", value(&second)),
    ];
    (LeakCheck { server, canaries }, root, readable)
}

#[tokio::test]
async fn credentials_are_leaked_nowhere() {
    let log_capture = LogCapture::begin();
    let (cage, root, readable) = caged().await;
    let of = |name: &str| {
        cage.canaries.iter().find(|(known, _)| *known == name).expect("a canary").1.clone()
    };
    let bearer = format!("Bearer {}", of("the token"));
    let (as_root, as_token) = ([("cookie", root.as_str())], [("authorization", bearer.as_str())]);
    let page = [("cookie", root.as_str()), ("accept", "text/html")];

    let streams = ["/events", "/api/v1/watch"];
    let mut missing = Vec::new();
    for path in
        readable.iter().filter(|path| !streams.iter().any(|stream| path.starts_with(stream)))
    {
        for headers in [&as_root[..], &as_token, &page] {
            let answer = cage.ask(Method::GET, path, headers, Value::Null).await;
            if answer.status == StatusCode::NOT_FOUND {
                missing.push(path.clone());
            }
        }
    }
    assert!(readable.len() > 80, "{readable:?}");
    missing.dedup();
    // An unknown script, a binding that the node does not have, and the page of a proposal on a
    // node, of which there are none.
    let known = |path: &String| {
        path.starts_with("/api/v1/scripts/")
            || path.contains("noderole=")
            || path.starts_with("/proposals/")
    };
    assert!(missing.iter().all(known), "{missing:?}");
    let metrics = cage.server.collect(&[("host", LOCAL_HOST)], [127, 0, 0, 1]).await;
    assert!(
        metrics.status.is_success() && metrics.text().contains("gantry_"),
        "{}",
        metrics.text()
    );
    cage.check("the metrics", metrics.text());
    for stream in streams {
        let mut tab = StreamClient::open_at(&cage.server, &root, stream, "").await;
        let mut reported = vec![tab.next().await.expect("a heartbeat").text()];
        let files = json!({"files": {"b.yml": format!("barclamp: {{name: b{}, version: '1', \
            description: x}}\nroles: []\n", stream.len())}});
        cage.server.send_post("/api/v1/barclamps", &root, files).await.json();
        reported.push(format!("{:?}", tab.next_live().await));
        assert!(reported[1].contains("Catalog"), "{reported:?}");
        cage.check(stream, &reported.concat());
    }
    for path in [
        "/api/v1/people?filter=newcomer",
        "/api/v1/nodes/n1.house.example.com",
        "/settings/people?filter=root",
    ] {
        assert!(
            cage.ask(Method::GET, path, &as_root, Value::Null).await.status.is_success(),
            "{path}"
        );
    }

    // Errors that contain their input.
    let (put, post) = (Method::PUT, Method::POST);
    let wrong = [
        (put.clone(), "/api/v1/me/password", json!({"old": WRONG_PASSWORD, "new": PASSWORD})),
        (put.clone(), "/api/v1/me/password", json!({"new": {"text": WRONG_PASSWORD}})),
        (put.clone(), "/api/v1/me/password", json!({"new": [WRONG_PASSWORD]})),
        (put, "/api/v1/me/password", json!({"old": 4_712, "new": WRONG_PASSWORD, "more": 1})),
        (post.clone(), "/api/v1/tokens", json!({"name": 1, "scopes": ["viewer"]})),
        (post, "/sign-in", json!({"name": "root", "password": WRONG_PASSWORD})),
    ];
    for (method, path, body) in wrong {
        let answer = cage.ask(method, path, &as_root, body).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
    }
    let number = cage
        .ask(Method::PUT, "/api/v1/me/password", &as_root, json!({"new": 987_654_321_012_u64}))
        .await;
    assert!(!number.text().contains("987654321012"), "{}", number.text());
    for form in [
        format!("name=root&password={WRONG_PASSWORD}"),
        format!("name=root&password={PASSWORD}&password=x"),
        format!("token={WRONG_PASSWORD}"),
        format!("name=nobody&password={PASSWORD}"),
    ] {
        let request = cage
            .server
            .post("/sign-in")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request =
            request.header(header::ACCEPT, "text/html").body(Body::from(form)).expect("a request");
        let answer = cage.server.ask(request).await;
        let cookie = answer.cookie();
        assert!(
            cookie.is_empty() || cookie.starts_with("gantry_name="),
            "only the name of the failed attempt is stored: {cookie}"
        );
        cage.check("a refused sign-in", &format!("{:?} {}", answer.headers, answer.text()));
    }
    let stale = format!("Bearer {}x", of("the token"));
    let refused =
        cage.ask(Method::GET, "/api/v1/people", &[("authorization", &stale)], Value::Null).await;
    assert_eq!(
        (refused.status.as_u16(), refused.problem()["code"].as_str()),
        (401, Some("token_refused"))
    );
    cage.ask(
        Method::GET,
        &format!("/api/v1/nothing?token={}", of("the link")),
        &as_root,
        Value::Null,
    )
    .await;

    // The credentials are valid, so the search looked for the right values.
    assert!(
        cage.ask(Method::GET, "/api/v1/people/me", &as_token, Value::Null)
            .await
            .status
            .is_success()
    );
    let right = format!("name=root&password={PASSWORD}");
    let request = cage
        .server
        .post("/sign-in")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let in_again = cage.server.ask(request.body(Body::from(right)).expect("a request")).await;
    assert_eq!(in_again.status, StatusCode::SEE_OTHER);
    cage.stored().await;
    let log = log_capture.end();
    assert!(
        log.contains("a sign-in with a password was rejected") && log.contains("/api/v1/people"),
        "the log must contain the sign-in and the request"
    );
    cage.check("the log", &log);
    let session = in_again.cookie().split([';', '=']).nth(1).expect("a value").to_owned();
    assert!(!log.contains(&session), "the log must not contain the new session");
}
