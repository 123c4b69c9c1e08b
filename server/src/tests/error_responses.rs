//! Rejected requests, the format of errors, and the headers of every response.

use api::Problem;
use serde_json::json;

use super::*;
use crate::http::{connections, permits, problems};

#[tokio::test]
async fn cross_site_request_changes_nothing() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let paths = ["/sign-out", "/api/v1/nodes", "/call/sign-out", "/sign-in", "/nothing"];
    let headers: [&[(&str, &str)]; 4] = [
        &[],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "null"), ("x-gantry", "1")],
    ];
    for path in paths {
        for headers in headers {
            let mut request = Request::post(path)
                .header(header::HOST, LOCAL_HOST)
                .header(header::COOKIE, &cookie);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = server.ask(request.body(Body::empty()).expect("a request")).await;
            assert_eq!(answer.problem()["code"], "other_origin", "{path} {headers:?}");
        }
    }
    assert_eq!(
        server.send_get("/events?after=x", &cookie).await.status,
        StatusCode::BAD_REQUEST,
        "the session is still valid"
    );

    let program =
        Request::post("/sign-out").header(header::HOST, LOCAL_HOST).header(header::COOKIE, &cookie);
    let answer =
        server.ask(program.header("x-gantry", "1").body(Body::empty()).expect("a request")).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn unknown_host_name_is_rejected() {
    let server = TestServer::new().await;
    for host in ["evil.example:7780", "127.0.0.1.evil.example", ""] {
        let request = Request::get("/sign-in")
            .header(header::HOST, host)
            .body(Body::empty())
            .expect("a request");
        let answer = server.ask(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem()["code"].as_str()),
            (421, Some("other_host")),
            "{host}"
        );
        let health = Request::get("/readyz")
            .header(header::HOST, host)
            .body(Body::empty())
            .expect("a request");
        assert_eq!(server.ask(health).await.status, StatusCode::OK);
    }
}

/// Sends bytes over a real socket. Returns the response up to the end of the connection, or half a
/// second without data.
async fn raw(router: &Router, sent: &[u8]) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let stopping = CancellationToken::new();
    let bounds = connections::Bounds::default();
    tokio::spawn(connections::serve(listener, router.clone(), bounds, stopping.clone()));
    let (mut from, mut to) =
        tokio::net::TcpStream::connect(address).await.expect("a connection").into_split();
    let sent = sent.to_vec();
    // The server may respond and close before it has read everything.
    tokio::spawn(async move {
        let _ = to.write_all(&sent).await;
        std::future::pending::<()>().await;
    });
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(Ok(length)) =
        tokio::time::timeout(Duration::from_millis(500), from.read(&mut buffer)).await
    {
        if length == 0 {
            break;
        }
        read.extend_from_slice(&buffer[..length]);
    }
    stopping.cancel();
    String::from_utf8_lossy(&read).into_owned()
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect()
}

#[tokio::test]
async fn ambiguous_request_head_is_rejected() {
    let server = TestServer::new().await;
    let get = |target: &str, more: &str| format!("GET {target} HTTP/1.1\r\n{more}\r\n");
    let near = format!("Host: {LOCAL_HOST}\r\n");
    for (case, head, status) in [
        ("one host", get("/healthz", &near), "200"),
        ("the same host in both", get(&format!("http://{LOCAL_HOST}/healthz"), &near), "200"),
        ("two hosts", get("/healthz", &format!("{near}Host: evil.example\r\n")), "400"),
        ("the same host twice", get("/healthz", &format!("{near}hOST: {LOCAL_HOST}\r\n")), "400"),
        ("another host in the target", get("http://evil.example/healthz", &near), "400"),
        ("a person in the target", get(&format!("http://a@{LOCAL_HOST}/healthz"), &near), "400"),
    ] {
        let answer = raw(&server.router, head.as_bytes()).await;
        assert_eq!(statuses(&answer), [status], "{case}: {answer}");
    }
    let refused = raw(&server.router, get("/", &format!("{near}Host: x\r\n")).as_bytes())
        .await
        .to_lowercase();
    for part in ["connection: close", "x-content-type-options: nosniff", "several host headers"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[tokio::test]
async fn request_head_above_its_limit_is_rejected() {
    let server = TestServer::new().await;
    let head = |more: usize| {
        // Many headers, because each one grows the read buffer.
        let headers: String =
            (0..8).map(|n| format!("X-{n}: {}\r\n", "a".repeat(more / 8))).collect();
        format!("GET /healthz HTTP/1.1\r\nHost: {LOCAL_HOST}\r\n{headers}\r\n")
    };
    for (size, status) in [
        (limits::MAX_HEAD_BYTES - 1024, "200"),
        (limits::MAX_HEAD_BYTES, "431"),
        (limits::MAX_HEAD_BYTES + 8192, "431"),
        (limits::MAX_HEAD_BYTES * 4, "431"),
    ] {
        let answer = raw(&server.router, head(size).as_bytes()).await;
        assert_eq!(statuses(&answer), [status], "{size}: {answer}");
    }
    let one = format!(
        "GET /healthz?{} HTTP/1.1\r\nHost: {LOCAL_HOST}\r\n\r\n",
        "a".repeat(limits::MAX_HEAD_BYTES)
    );
    let answer = raw(&server.router, one.as_bytes()).await;
    assert!(matches!(statuses(&answer)[..], ["431" | "414"]), "{answer}");
}

#[tokio::test]
async fn request_with_two_lengths_is_rejected() {
    let server = TestServer::new().await;
    let smuggled = format!("GET /healthz HTTP/1.1\r\nHost: {LOCAL_HOST}\r\n\r\n");
    let post = |headers: &str, body: &str| {
        format!(
            "POST /sign-out HTTP/1.1\r\nHost: {LOCAL_HOST}\r\nX-Gantry: 1\r\n{headers}\r\n{body}"
        )
    };
    let length = format!("Content-Length: {}\r\n", 5 + smuggled.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    let body = format!("0\r\n\r\n{smuggled}");
    for headers in [format!("{length}{chunked}"), format!("{chunked}{length}"), chunked.to_owned()]
    {
        let answer = raw(&server.router, post(&headers, &body).as_bytes()).await;
        assert_eq!(statuses(&answer).len(), 1, "{headers}: {answer}");
        assert!(answer.contains("connection: close"), "{headers}: {answer}");
    }
    let two_lengths =
        raw(&server.router, post(&format!("{length}Content-Length: 5\r\n"), &body).as_bytes())
            .await;
    assert_eq!(statuses(&two_lengths), ["400"], "{two_lengths}");
    let unknown =
        raw(&server.router, post("Transfer-Encoding: chunked, identity\r\n", &body).as_bytes())
            .await;
    assert_eq!(statuses(&unknown), ["400"], "{unknown}");
}

/// The snapshot lists the client, request and error of each case: `snapshots/`.
#[tokio::test]
async fn refusals_have_one_form() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let id = "00000000-0000-0000-0000-000000000001";
    let too_large = format!(r#"{{"fqdn":"{}","root":""}}"#, "x".repeat(limits::MAX_BODY_BYTES));
    let edits = r#"{"version":1,"edits":[{"edit":"bind","deployment":7}]}"#;
    let mut refused = std::collections::BTreeMap::new();
    let mut note = |case: &str, answer: Answer| refused.insert(case.to_owned(), answer.problem());
    note("an unknown API path", server.send_get("/api/v1/nothing", &cookie).await);
    note("an unknown page requested by an API client", server.send_get("/nothing", &cookie).await);
    note(
        "an unknown server function",
        server.ask(server.post_json("/call/nothing", &cookie, "{}")).await,
    );
    note("a wrong method", server.ask(server.post_json("/api/v1/runs/1", &cookie, "{}")).await);
    note("an id that is not a number", server.send_get("/api/v1/runs/seven", &cookie).await);
    note("an unknown query parameter", server.send_get("/api/v1/runs?before=x", &cookie).await);
    note("an unknown topic", server.send_get("/events?topics=weather", &cookie).await);
    note(
        "broken JSON",
        server.ask(server.post_json("/api/v1/nodes", &cookie, "{\"fqdn\": }")).await,
    );
    note(
        "a missing field",
        server.ask(server.post_json("/api/v1/nodes", &cookie, "{\"ssh\":{}}")).await,
    );
    note(
        "an unknown field",
        server.ask(server.post_json("/api/v1/nodes", &cookie, "{\"fqnd\":\"a.b.c\"}")).await,
    );
    note(
        "an invalid edit",
        server.ask(server.post_json("/api/v1/proposals/1/edits", &cookie, edits)).await,
    );
    note(
        "a body that is too large",
        server.ask(server.post_json("/api/v1/nodes", &cookie, too_large)).await,
    );
    let mut call = server.post_json("/call/frame", &cookie, "{}");
    call.headers_mut().insert(header::CONTENT_LENGTH, (limits::MAX_BODY_BYTES + 1).into());
    note("a body that is too large for a server function", server.ask(call).await);
    note("an invalid noderole id", server.send_get("/api/v1/noderoles/x", &cookie).await);
    let plain =
        server.post(&format!("/api/v1/noderoles/{id}/retry")).header(header::COOKIE, &cookie);
    note(
        "an array instead of an object",
        server.ask(server.post_json("/api/v1/nodes", &cookie, r#"["a.b.c"]"#)).await,
    );
    let list = r#"{"fqdn":"a.b.c","ssh":[["10.0.0.1"],22,"root","k",1,"h"]}"#;
    note(
        "an array instead of a nested object",
        server.ask(server.post_json("/api/v1/nodes", &cookie, list)).await,
    );
    let edits = r#"{"version":1,"edits":[["bind"]]}"#;
    note(
        "an array instead of an edit",
        server.ask(server.post_json("/api/v1/proposals/1/edits", &cookie, edits)).await,
    );
    note(
        "an unknown parameter of the stream",
        server.send_get("/events?topic=nodes", &cookie).await,
    );
    note("an unknown node", server.send_get("/api/v1/nodes/web-9/results", &cookie).await);
    note(
        "an invalid cursor",
        server.send_get("/api/v1/nodes?sort=state&after=junk", &cookie).await,
    );
    note(
        "a body that is not JSON",
        server.ask(plain.body(Body::from("reason")).expect("a request")).await,
    );
    insta::assert_json_snapshot!(refused);
}

/// An error quotes only the beginning of long input, followed by the remedy.
#[tokio::test]
async fn error_quotes_only_start_of_input() {
    let server = TestServer::new().await;
    server.furnish().await;
    let cookie = server.cookie().await;
    let long = "x".repeat(5_000);
    for answer in [
        server.send_get(&format!("/api/v1/deployments/{long}/board"), &cookie).await,
        server.send_get(&format!("/api/v1/runs/{long}"), &cookie).await,
        server.ask(server.post_json("/api/v1/nodes", &cookie, format!("{{\"{long}\":1}}"))).await,
    ] {
        let problem = answer.problem();
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("xxx…") && answer.body.len() < 3_000, "{}", answer.text());
    }
}

#[tokio::test]
async fn wrong_method_lists_allowed_ones() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let answer = server.ask(server.post_json("/api/v1/runs/1", &cookie, "{}")).await;
    assert_eq!(
        (answer.status, answer.header(header::ALLOW)),
        (StatusCode::METHOD_NOT_ALLOWED, "GET,HEAD")
    );
    assert_eq!(
        answer.problem()["detail"],
        "This path does not support the request method. Use one of: GET, HEAD."
    );
}

#[tokio::test]
async fn retryable_errors_have_retry_after() {
    let server = TestServer::at("http://127.0.0.1:7780", LOCAL_HOST, |state| {
        state.streams = permits::Permits::new(0, 1);
    })
    .await;
    let cookie = server.cookie().await;
    let full = server.send_get("/events", &cookie).await;
    assert_eq!(
        (full.status.as_u16(), full.header(header::RETRY_AFTER)),
        (503, "5"),
        "{}",
        full.text()
    );
    assert!(full.problem().get("again_after").is_none(), "the time to wait is only in the header");
    server.stopping.cancel();
    let page = server
        .get("/readyz")
        .header(header::ACCEPT, "text/html")
        .body(Body::empty())
        .expect("a request");
    let ready = server.ask(page).await;
    assert_eq!(
        (ready.status.as_u16(), ready.header(header::RETRY_AFTER)),
        (503, "5"),
        "{}",
        ready.text()
    );
    assert_eq!(ready.headers.get_all(header::RETRY_AFTER).iter().count(), 1);
    assert_eq!(
        server.send_get("/api/v1/runs/1", "").await.header(header::RETRY_AFTER),
        "",
        "a retry does not help"
    );
    let mut attempts = Vec::new();
    for _ in 0..11 {
        let form = server
            .post("/sign-in")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let form = form.body(Body::from("token=nonsense")).expect("a request");
        attempts.push(server.ask(form).await);
    }
    let slow = &attempts[10];
    let wait = slow.header(header::RETRY_AFTER).parse::<u32>();
    assert_eq!(slow.status, StatusCode::TOO_MANY_REQUESTS, "{}", slow.text());
    assert!(wait.is_ok_and(|seconds| (1..=600).contains(&seconds)), "{:?}", slow.headers);
}

/// A server with other limits over the same database, and the cookie of a session.
async fn server_with_limits(
    change: impl FnOnce(&mut AppState),
) -> (TestServer, AppState, Router, String) {
    let mut known = None;
    let server =
        TestServer::at("http://127.0.0.1:7780", LOCAL_HOST, |state| known = Some(state.clone()))
            .await;
    let cookie = server.cookie().await;
    let mut state = known.expect("a state");
    change(&mut state);
    let router = crate::router(state.clone());
    (server, state, router, cookie)
}

async fn send_to(router: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = router.clone().oneshot(request).await.expect("an answer").into_parts();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: to_bytes(body, limits::MAX_BODY_BYTES).await.expect("a body"),
    }
}

fn endless_body() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>())
}

#[tokio::test]
async fn requests_beyond_limit_get_503() {
    let (server, _, router, cookie) = server_with_limits(|state| {
        state.requests = std::sync::Arc::new(tokio::sync::Semaphore::new(0))
    })
    .await;
    let request = server
        .get("/api/v1/nodes")
        .header(header::COOKIE, &cookie)
        .body(Body::empty())
        .expect("a request");
    let answer = send_to(&router, request).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header(header::RETRY_AFTER)),
        (503, "5"),
        "{}",
        answer.text()
    );
    assert_eq!(answer.problem()["code"], "unavailable");
    let page = server
        .get("/nodes")
        .header(header::ACCEPT, "text/html")
        .body(Body::empty())
        .expect("a request");
    let page = send_to(&router, page).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(page.text().contains("limit of concurrent requests"), "{}", page.text());
}

/// A server at its limits still answers health checks and metrics.
#[tokio::test]
async fn full_server_answers_health_and_metrics() {
    let server = TestServer::at("http://127.0.0.1:7780", LOCAL_HOST, |state| {
        state.requests = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    })
    .await;
    assert_eq!(
        server.send_get("/sign-in", "").await.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "the server is at its limit"
    );
    for (path, text) in [
        (
            "/healthz", "ok
",
        ),
        ("/readyz", "ready\n"),
    ] {
        let answer = server.send_get(path, "").await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, text), "{path}");
    }
    let metrics = server.collect(&[("host", LOCAL_HOST)], [127, 0, 0, 1]).await;
    assert_eq!(metrics.status, StatusCode::OK, "{}", metrics.text());
    let refused = "gantry_http_requests_total{method=\"GET\",route=\"none\",status=\"503\"} 1";
    assert!(metrics.text().contains(refused), "{}", metrics.text());
}

/// A request keeps its permit after its timeout response, because its work continues.
#[tokio::test]
async fn permit_is_released_when_work_ends() {
    let (server, state, router, cookie) = server_with_limits(|state| {
        state.requests = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        state.patience.answer = Duration::from_millis(50);
        state.patience.body = Duration::from_secs(5);
    })
    .await;
    let late = send_to(&router, server.post_json("/api/v1/nodes", &cookie, endless_body())).await;
    assert_eq!(
        (late.status.as_u16(), late.header(header::RETRY_AFTER)),
        (504, ""),
        "{}",
        late.text()
    );
    assert_eq!(late.problem()["code"], "too_slow");
    assert_eq!(state.requests.available_permits(), 0, "the request still holds its permit");
    let next = send_to(&router, server.post_json("/api/v1/nodes", &cookie, "{}")).await;
    assert_eq!(next.status, StatusCode::SERVICE_UNAVAILABLE, "{}", next.text());
    let free = tokio::time::timeout(Duration::from_secs(30), state.requests.acquire()).await;
    assert!(free.is_ok(), "a permit is released if the body never arrives");
}

#[tokio::test]
async fn slow_request_body_times_out() {
    let (server, _, router, cookie) =
        server_with_limits(|state| state.patience.body = Duration::from_millis(50)).await;
    let slow = send_to(&router, server.post_json("/api/v1/nodes", &cookie, endless_body())).await;
    assert_eq!(
        (slow.status.as_u16(), slow.problem()["code"].as_str()),
        (408, Some("body_too_slow"))
    );
    let form =
        server.post("/sign-in").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let slow = send_to(&router, form.body(endless_body()).expect("a request")).await;
    assert_eq!(
        (slow.status.as_u16(), slow.problem()["code"].as_str()),
        (408, Some("body_too_slow"))
    );
}

/// If the request may have been executed, no `Retry-After` invites clients to repeat it.
#[tokio::test]
async fn possibly_executed_request_has_no_retry_after() {
    let lost = || async { problems::Refusal(Problem::unknown_outcome("Look first.")) };
    let away = || async { problems::Refusal(Problem::unavailable("Later.")) };
    let router = Router::new()
        .route("/api/lost", axum::routing::get(lost))
        .route("/api/away", axum::routing::get(away))
        .layer(axum::middleware::from_fn(problems::shape));
    for (path, code, wait) in
        [("/api/lost", "unknown_outcome", None), ("/api/away", "unavailable", Some("5"))]
    {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let reported = answer
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        assert_eq!((answer.status().as_u16(), reported.as_deref()), (503, wait), "{path}");
        let body = to_bytes(answer.into_body(), 10_000).await.expect("a body");
        let problem: Value = serde_json::from_slice(&body).expect("a problem");
        assert_eq!(problem["code"], code);
    }
}

/// An error about a missing permission names the people who can grant it, for API clients and on
/// pages.
#[tokio::test]
async fn missing_permission_names_contacts() {
    let server = TestServer::new().await;
    let add = |name: &str, may| NewPerson::human(name, may);
    let eve = server
        .people
        .create_person(None, &add("eve", vec![Permission::Viewer]))
        .await
        .expect("a person");
    let eve = server.cookie_for(eve).await;
    let body = r#"{"fqdn":"n1.a.example","root":"/srv/nodes/n1"}"#;
    let ask = async || {
        let refused = server.ask(server.post_json("/api/v1/nodes", &eve, body)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        let problem = refused.problem();
        assert!(problem.get("admins_give").is_none(), "{problem}");
        problem["detail"].as_str().expect("text").to_owned()
    };
    let text = ask().await;
    assert!(
        text.starts_with(
            "Permission missing: eve does not have the permission operator. An admin can grant it. \
             There is no admin yet."
        ),
        "{text}"
    );
    for name in ["dora", "al"] {
        server
            .people
            .create_person(None, &add(name, vec![Permission::Admin]))
            .await
            .expect("a person");
    }
    assert!(ask().await.ends_with("An admin can grant it. Admins are al and dora."));
    let page = server.post("/call/set-execution").header(header::COOKIE, &eve);
    let page = page
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from("enabled=false&reason=x"));
    let answer = server.ask(page.expect("a request")).await;
    assert!(answer.text().contains("Admins are al and dora."), "{}", answer.text());
}

/// An invalid name in a path is not looked up.
#[tokio::test]
async fn invalid_name_returns_404() {
    let server = TestServer::new().await;
    server.furnish().await;
    let cookie = server.cookie().await;
    // A list reports the invalid parameter.
    let list = server.send_get("/api/v1/blueprints?deployment=%00", &cookie).await;
    assert_eq!(list.status, StatusCode::BAD_REQUEST, "{}", list.text());
    for path in [
        "/api/v1/blueprints/compare?from=1&to=1&deployment=%00",
        "/api/v1/deployments/%00/board",
        "/graph/%00/graph.svg",
    ] {
        let answer = server.send_get(path, &cookie).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}: {}", answer.text());
    }
    for path in [
        "/blueprints?deployment=%00",
        "/blueprints?from=1&to=1&deployment=%00",
        "/graph/%00",
        "/deployments/%00",
    ] {
        let page = server.visit(path, &cookie).await;
        assert!(page.status.as_u16() < 500, "{path}: {}", page.status);
    }
}

#[tokio::test]
async fn only_imports_accept_large_bodies() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let json =
        json!({"files": {"web/scripts/x": "x".repeat(2 * limits::MAX_BODY_BYTES)}}).to_string();
    let answer = server.ask(server.post_json("/api/v1/barclamps", &cookie, json)).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text());
    assert!(answer.problem()["detail"].as_str().expect("text").contains("has no barclamp file"));
}

#[tokio::test]
async fn browsers_get_error_pages() {
    let server = TestServer::new().await;
    server.furnish().await;
    let cookie = server.cookie().await;
    let page = server.visit("/nothing/here", &cookie).await;
    assert_eq!(
        (page.status, page.header(header::CONTENT_TYPE)),
        (StatusCode::NOT_FOUND, "text/html; charset=utf-8")
    );
    assert!(page.header(header::CONTENT_SECURITY_POLICY).contains("'nonce-"));

    for nowhere in ["/runs/x", "/workers/x", "/noderoles/x", "/reviews/x"] {
        let page = server.visit(nowhere, &cookie).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{nowhere}");
    }
    // Only admins learn whether an account exists.
    let root = server.person("root", [Permission::Viewer, Permission::Admin]).await;
    for (who, status) in [(&cookie, StatusCode::FORBIDDEN), (&root, StatusCode::NOT_FOUND)] {
        let page = server.visit("/settings/people/x", who).await;
        assert_eq!(page.status, status);
    }

    let plain = server.visit("/runs/seven/log", &cookie).await;
    assert_eq!(plain.status, StatusCode::BAD_REQUEST);
    assert!(
        plain.text().starts_with("<!DOCTYPE html>") && plain.text().contains("seven"),
        "{}",
        plain.text()
    );
    assert!(plain.header(header::CONTENT_SECURITY_POLICY).starts_with("default-src 'none';"));
}

/// A number with a thousands separator: 10,000.
fn with_separator(number: usize) -> String {
    format!("{},{:03}", number / 1_000, number % 1_000)
}

#[test]
fn documented_limits_match_the_code() {
    let docs = include_str!("../../../docs/limits.md");
    let (mib, kib, shares) = (1024 * 1024, 1024, control::Shares::NOW);
    let minutes = control::people::FAILURE_WINDOW.as_secs() / 60;
    let failing = format!("{} in {minutes} minutes", control::people::FAILED_SIGN_INS);
    let lines = [
        format!(
            "| a request's first line and headers | {} KiB | 431 |",
            limits::MAX_HEAD_BYTES / kib
        ),
        format!("| a request's body | {} MiB |", limits::MAX_BODY_BYTES / mib),
        format!(
            "| an import of barclamps: over REST; in the console | {} MiB; {} MiB |",
            limits::MAX_IMPORT_BYTES / mib,
            limits::MAX_BODY_BYTES / mib
        ),
        format!(
            "| {} KiB as sent, {} KiB as JSON |",
            limits::MAX_REPORT_BYTES / kib,
            api::limits::FACTS / kib
        ),
        format!(
            "| a list of nodes to add: its nodes; its size; lines in its error | {}; {} KiB; {} |",
            api::limits::INVENTORY,
            api::limits::INVENTORY_BYTES / kib,
            api::limits::INVENTORY_ERRORS
        ),
        format!("| levels of a JSON body | {} |", limits::MAX_JSON_DEPTH),
        format!("| levels of a role's or noderole's data | {} |", engine::data::MAX_DEPTH),
        format!(
            "| edits in a request; edits in a proposal; nodes in these edits | {}; {}; {} |",
            with_separator(control::MAX_EDITS_PER_CALL),
            with_separator(store::proposals::MAX_EDITS),
            with_separator(control::MAX_SINGLES)
        ),
        format!(
            "| a quoted value in an error; the text of an error | {}; {} characters |",
            api::limits::ERROR_WORD,
            with_separator(api::limits::ERROR_TEXT)
        ),
        format!("| noderoles on the page of a node | {},", store::nodes::MAX_NODE_NODEROLES),
        format!("| a page of a list | {} rows", api::listing::PAGE_SIZE),
        format!("| topics of a live stream | {} |", api::live::MAX_TOPICS),
        format!(
            "| a title; a verdict's reason, a comment | {}; 10,000 characters |",
            api::limits::TITLE
        ),
        format!("| a password | {} to 1,024 characters |", api::limits::MIN_PASSWORD),
        format!("| grants of a person | {} |", api::limits::GRANTS),
        format!(
            "| {}; {} | 409 |",
            store::people::api_tokens::MAX_TOKENS,
            store::nodes::MAX_TOKENS
        ),
        format!("| failing sign-ins from an address (an IPv6 /64) | {failing} | 429 |"),
        format!("| wrong passwords for a name, known or not | {failing} | 429 |"),
        format!("with failing sign-ins | {failing} | 429 |"),
        format!("until it is confirmed | {} minutes |", api::limits::TOTP_SETUP_MINUTES),
        format!(
            "| a passkey's answer to its options | {} minutes, once |",
            api::limits::PASSKEY_TIMEOUT_SECONDS / 60
        ),
        format!("| requests with a token | {} a minute | 429 |", control::people::TOKEN_REQUESTS),
        format!("| {} a minute | 429 |", control::people::SESSION_REQUESTS),
        format!(
            "| passwords hashed at once; with waiting ones | {}; {} |",
            control::people::HASH_CONCURRENCY,
            control::people::MAX_HASH_TASKS
        ),
        format!(
            "| a database statement; an idle transaction | {} seconds |",
            store::STATEMENT_TIME.trim_end_matches('s')
        ),
        format!(
            "| live streams, per server; per person | {}; {} |",
            limits::MAX_STREAMS,
            limits::MAX_STREAMS_PER_PERSON
        ),
        format!(
            "| downloads (logs of runs, exports of the audit), per server; per person | {}; {} |",
            limits::MAX_DOWNLOADS,
            limits::MAX_DOWNLOADS_PER_PERSON
        ),
        format!(
            "| its cores, at least 2; {}, each {} seconds | 503 |",
            shares.waiting,
            shares.patience.as_secs()
        ),
        format!(
            "| the same for one person: active; with waiting ones | all but one; one in {} | 503 |",
            shares.shares
        ),
        format!(
            "for one person, with waiting ones | 1; {}, each {} seconds; {} | 503 |",
            shares.waiting,
            shares.patience.as_secs(),
            shares.reviews_per_person
        ),
        format!(
            "| {}; {} | the current state is returned",
            limits::MAX_WAITING,
            limits::MAX_WAITING_PER_PERSON
        ),
        format!("then the newest of the others) | {} |", api::limits::LISTED_TOKENS),
        format!("| sessions of a person at once | {} |", store::people::MAX_SESSIONS),
        format!("| reports of a node | {} a minute |", store::nodes::MAX_REPORTS),
        format!(
            "| addresses that a person adds to nodes: one node at a time; in total | {} a minute; \
             {} an hour | 429 |",
            control::nodes::address_policy::ADDRESSES_PER_MINUTE,
            with_separator(control::nodes::address_policy::ADDRESSES_PER_HOUR as usize)
        ),
        format!("in the audit | 1 in {} seconds |", store::reviews::REFUSAL_INTERVAL.as_secs()),
        format!("| active requests, per server | {} |", limits::MAX_REQUESTS),
        format!("| connections, per server | {} |", with_separator(limits::MAX_CONNECTIONS)),
        format!("an idle connection | {} seconds |", limits::HEAD_TIMEOUT.as_secs()),
        format!(
            "| until the body of a request is complete | {} seconds | 408;",
            limits::BODY_TIMEOUT.as_secs()
        ),
        format!("| until a response begins | {} seconds |", limits::REQUEST_TIMEOUT.as_secs()),
        format!("| open responses at shutdown | {} seconds |", limits::SHUTDOWN_GRACE.as_secs()),
        format!(
            "| {} hours; 7 days | sign in again |",
            control::people::SESSION_IDLE.as_secs() / 3600
        ),
        format!(
            "| a one-time link: from an admin; from a start | {} hours;",
            control::people::LINK_VALIDITY.as_secs() / 3600
        ),
        format!(
            "| a token: for the API; for a node | {} days; {} days |",
            api::limits::API_TOKEN_DAYS,
            api::limits::NODE_TOKEN_DAYS
        ),
    ];
    for line in lines {
        assert!(docs.contains(&line), "docs/limits.md lacks the line: {line}");
    }
    assert_eq!(
        (
            limits::MAX_STREAMS,
            api::limits::VERDICT_REASON,
            api::limits::COMMENT,
            api::limits::MAX_PASSWORD
        ),
        (1_024, 10_000, 10_000, 1_024)
    );
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    for path in [
        "/sign-in",
        "/nothing",
        "/api/v1/nothing",
        "/pkg/a1b2/gantry.js",
        "/healthz",
        "/events?after=x",
    ] {
        let answer = server.visit(path, &cookie).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-embedder-policy", "require-corp"),
            ("origin-agent-cluster", "?1"),
            ("x-permitted-cross-domain-policies", "none"),
        ] {
            assert_eq!(answer.header(name), value, "{path}");
        }
        let policy = answer.header(header::CONTENT_SECURITY_POLICY);
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"));
        assert!(
            policy.contains("base-uri 'none'") && policy.contains("form-action"),
            "{path}: {policy}"
        );
        assert!(
            !policy.contains('*') && !policy.contains("http"),
            "the policy must not allow other sites: {path}: {policy}"
        );
        assert!(answer.header("permissions-policy").contains("camera=()"));
        assert_eq!(
            answer.header(header::STRICT_TRANSPORT_SECURITY),
            "",
            "HSTS must not affect other programs on the loopback address"
        );
        if path != "/pkg/a1b2/gantry.js" {
            assert_eq!(answer.header(header::CACHE_CONTROL), "no-store", "{path}");
        }
    }
}

#[tokio::test]
async fn page_scripts_use_the_policy_nonce() {
    let server = TestServer::new().await;
    let mut nonces = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let page = server.visit("/sign-in", "").await;
        let nonce = page.nonce();
        assert!(nonce.len() >= 22, "the nonce must have at least 128 bits: {nonce}");
        let scripts = page.text().matches("<script").count();
        assert!(scripts > 0);
        assert_eq!(
            page.text().matches(&format!("nonce=\"{nonce}\"")).count(),
            scripts + count_preloads(page.text()),
            "{}",
            page.text()
        );
        assert!(!page.text().contains(" style=\""));
        nonces.insert(nonce.to_owned());
    }
    assert_eq!(nonces.len(), 3);
}

/// Number of preload links with a nonce.
fn count_preloads(page: &str) -> usize {
    page.split("<link")
        .skip(1)
        .filter(|link| link.split('>').next().is_some_and(|tag| tag.contains(" nonce=\"")))
        .count()
}

#[tokio::test]
async fn site_files_are_compressed_and_public() {
    let server = TestServer::new().await;
    let packed = server
        .get("/pkg/a1b2/gantry.js")
        .header(header::ACCEPT_ENCODING, "br")
        .body(Body::empty())
        .expect("a request");
    let packed = server.ask(packed).await;
    assert_eq!(
        (packed.status, packed.text(), packed.header("content-encoding")),
        (StatusCode::OK, "packed", "br")
    );
    assert_eq!(packed.header(header::CACHE_CONTROL), "public, max-age=31536000, immutable");
    let plain = server.send_get("/pkg/a1b2/gantry.js", "").await;
    assert_eq!(plain.text(), "plain");
    let again = server
        .get("/pkg/a1b2/gantry.js")
        .header(header::IF_MODIFIED_SINCE, plain.header(header::LAST_MODIFIED));
    assert_eq!(
        server.ask(again.body(Body::empty()).expect("a request")).await.status,
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(
        server.send_get("/fonts/inter.woff2", "").await.header(header::CACHE_CONTROL),
        "public, max-age=604800"
    );
    let icon = server.send_get("/favicon.svg", "").await;
    assert_eq!(icon.header(header::CONTENT_TYPE), "image/svg+xml");
    assert_eq!(icon.header(header::CACHE_CONTROL), "public, no-cache");
    assert_eq!(
        server.send_get("/pkg/0000/gantry.js", "").await.status,
        StatusCode::NOT_FOUND,
        "the file belongs to another build"
    );
    std::fs::write(server.site.path().with_extension("secret"), "secret").expect("a file");
    let name = server.site.path().with_extension("secret");
    let name = name.file_name().and_then(|name| name.to_str()).expect("a name");
    for path in [
        format!("/pkg/../../{name}"),
        format!("/pkg/%2e%2e/%2e%2e/{name}"),
        "/pkg".into(),
        "/pkg/".into(),
    ] {
        assert_eq!(server.send_get(&path, "").await.status, StatusCode::NOT_FOUND, "{path}");
    }
    std::fs::remove_file(server.site.path().with_extension("secret")).expect("the file is deleted");
}

#[tokio::test]
async fn page_links_files_of_its_build() {
    let server = TestServer::new().await;
    let page = server.visit("/sign-in", "").await;
    let head = page.text().split("</head>").next().expect("a head");
    for file in [
        "gantry.css",
        "gantry.js",
        "gantry.wasm",
        "split.js",
        "chunk_0_sign_in.wasm",
        "split_sign_in.wasm",
    ] {
        assert!(head.contains(&format!("\"/pkg/a1b2/{file}\"")), "{file}: {head}");
    }
}

#[tokio::test]
async fn page_without_chunks_links_no_loader() {
    let server = TestServer::new().await;
    let page = server.visit("/nodes", &server.cookie().await).await;
    let head = page.text().split("</head>").next().expect("a head");
    assert!(head.contains("gantry.wasm") && !head.contains("split.js"), "{head}");
}

#[tokio::test]
async fn compressed_body_is_rejected() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let propose = async |coding: &str| {
        let mut request = server.post_json("/api/v1/deployments/web/proposals", &ada, "{}");
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_ENCODING, coding.parse().expect("a value"));
        server.ask(request).await
    };
    for coding in ["gzip", "br", "identity, gzip", "x"] {
        let refused = propose(coding).await;
        assert_eq!(refused.header(header::ACCEPT_ENCODING), "identity", "{coding}");
        let problem = refused.problem();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(415), &json!("unsupported_encoding")),
            "{coding}"
        );
    }
    assert_eq!(propose("identity").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn malformed_request_id_is_replaced() {
    let server = TestServer::new().await;
    let request =
        server.get("/healthz").header("x-request-id", "theirs\tand more").body(Body::empty());
    let answer = server.ask(request.expect("a request")).await;
    assert_eq!(answer.header("x-request-id").len(), 36);
}

#[tokio::test]
async fn database_outage_fails_only_readiness() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    assert_eq!(server.send_get("/readyz", "").await.status, StatusCode::OK);
    server.db.set_connections_allowed(false).await.expect("connections are rejected");
    assert_eq!(server.send_get("/healthz", "").await.status, StatusCode::OK);
    assert_eq!(server.send_get("/readyz", "").await.problem()["status"], 503);
    let page = server.visit("/", &cookie).await;
    assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(page.text().contains("database does not answer"), "{}", page.text());
    server.db.set_connections_allowed(true).await.expect("connections are allowed");
    assert_eq!(
        server.send_get("/events?after=x", &cookie).await.status,
        StatusCode::BAD_REQUEST,
        "the session works again without a restart"
    );
}
