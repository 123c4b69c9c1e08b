//! Sign-in, sign-out, cookies, and paths that need a session.

use super::log_capture::LogCapture;
use super::*;

async fn spent(server: &TestServer) -> i64 {
    let sql = "SELECT count(*) FROM token WHERE used_at IS NOT NULL";
    sqlx::query_scalar(sql).fetch_one(server.db.app()).await.expect("a count")
}

#[tokio::test]
async fn opening_a_link_does_not_use_it() {
    let server = TestServer::new().await;
    let link = server.link().await;
    for _ in 0..3 {
        // Browsers don't send the fragment.
        let page = server.visit("/sign-in", "").await;
        assert_eq!((page.status, page.cookie()), (StatusCode::OK, ""));
        let nonce = page.nonce();
        let script = page
            .text()
            .split("<script")
            .find(|script| script.contains("#token="))
            .expect("the page's script");
        assert!(script.contains(&format!("nonce=\"{nonce}\"")), "{script}");
    }
    let page = server.visit(&format!("/sign-in?token={}", link.reveal()), "").await;
    assert!(page.text().contains("Links of this form are not accepted"), "{}", page.text());
    assert!(
        !page.text().contains(link.reveal()),
        "the page must not contain the token of the query"
    );
    assert_eq!(spent(&server).await, 0);
    let answer = server.ask(server.sign_in(&link)).await;
    assert_eq!((answer.status, answer.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/"));
    let pair = answer.cookie().split(';').next().expect("a cookie").to_owned();
    assert_eq!(
        server.send_get("/events?after=x", &pair).await.status,
        StatusCode::BAD_REQUEST,
        "the person must be signed in"
    );

    let again = server.ask(server.sign_in(&link)).await;
    assert_eq!((again.status, again.cookie()), (StatusCode::UNAUTHORIZED, ""));
    assert_eq!(again.problem()["code"], "sign_in_used");
}

#[tokio::test]
async fn rejected_sign_in_shows_the_page_again() {
    let server = TestServer::new().await;
    let request = |next: &str| {
        server
            .post("/sign-in")
            .header(header::ACCEPT, "text/html")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(format!("token=wrong&next={next}")))
            .expect("a request")
    };
    let answer = server.ask(request("/runs?state=failed")).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(
        answer.header(header::LOCATION),
        "/sign-in?next=%2Fruns%3Fstate%3Dfailed&problem=unknown"
    );
    let elsewhere = server.ask(request("//evil.example")).await;
    assert_eq!(elsewhere.header(header::LOCATION), "/sign-in?problem=unknown");
    let form = server.post("/sign-in").body(Body::from("{}")).expect("a request");
    assert_eq!(server.ask(form).await.problem()["status"], 400);
}

#[tokio::test]
async fn trailing_slash_redirects_to_page() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let page = server.visit("/nodes/?filter=n1", &cookie).await;
    assert_eq!(
        (page.status, page.header(header::LOCATION)),
        (StatusCode::PERMANENT_REDIRECT, "/nodes?filter=n1")
    );
    assert_eq!(
        server.send_get("/api/v1/nodes/", &cookie).await.status,
        StatusCode::NOT_FOUND,
        "the API does not redirect a trailing slash"
    );
}

#[tokio::test]
async fn unauthenticated_clients_see_no_data() {
    let server = TestServer::new().await;
    server.furnish().await;
    let call = server.ask(server.post_json("/call/frame", "", "{}")).await;
    assert_eq!((call.status, call.text()), (StatusCode::OK, "null"));
    for path in ["/sign-in", "/nothing"] {
        let page = server.visit(path, "").await;
        assert!(!page.text().contains("cursor"), "{path}: {}", page.text());
    }
    // A client that does not accept pages gets no redirect before the page is rendered.
    let page = server.send_get("/nodes", "").await;
    assert!(!page.text().contains("cursor"), "{}", page.text());
    let cookie = server.cookie().await;
    let reported = server.ask(server.post_json("/call/frame", &cookie, "{}")).await.json();
    assert_eq!((&reported["me"]["name"], reported["cursor"].is_i64()), (&"ada".into(), true));
}

#[tokio::test]
async fn cookie_attributes_depend_on_public_address() {
    let near = TestServer::new().await;
    let answer = near.ask(near.sign_in(&near.link().await)).await;
    let (pair, flags) = answer.cookie().split_once("; ").expect("flags");
    assert!(pair.starts_with("gantry_session="), "{pair}");
    assert_eq!(flags, "HttpOnly; SameSite=Lax; Path=/; Max-Age=604800");

    let far = TestServer::at("https://gantry.example.com", "gantry.example.com", |_| {}).await;
    let answer = far.ask(far.sign_in(&far.link().await)).await;
    let (pair, flags) = answer.cookie().split_once("; ").expect("flags");
    assert!(pair.starts_with("__Host-gantry="), "{pair}");
    assert_eq!(flags, "HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=604800");
    assert_eq!(answer.header(header::STRICT_TRANSPORT_SECURITY), "max-age=31536000");
    let pair = pair.replace("__Host-gantry", "gantry_session");
    assert_eq!(
        far.send_get("/api/v1/runs", &pair).await.status,
        StatusCode::UNAUTHORIZED,
        "a cookie with the weaker name is ignored"
    );
}

#[tokio::test]
async fn missing_session_redirects_browsers_and_rejects_clients() {
    let server = TestServer::new().await;
    for cookie in ["", "gantry_session=", "gantry_session=0000", "gantry_session=\u{1}"] {
        let Ok(cookie) = axum::http::HeaderValue::from_str(cookie) else { continue };
        let cookie = cookie.to_str().expect("text");
        let page = server.visit("/?a=b", cookie).await;
        assert_eq!(
            (page.status, page.header(header::LOCATION)),
            (StatusCode::SEE_OTHER, "/sign-in?next=%2F%3Fa%3Db")
        );
        for path in ["/api/v1/deployments", "/events", "/runs/1/log", "/graph/web/graph.svg"] {
            let answer = server.send_get(path, cookie).await;
            assert_eq!(
                (answer.status, answer.problem()["code"].as_str()),
                (StatusCode::UNAUTHORIZED, Some("signed_out"))
            );
            assert_eq!(
                answer.header(header::WWW_AUTHENTICATE),
                "Bearer realm=\"gantry\"",
                "{path}"
            );
            let detail = answer.problem()["detail"].as_str().unwrap_or_default().to_owned();
            assert!(
                detail.contains("Authorization: Bearer gantry_") && !detail.contains("page"),
                "{path}: {detail}"
            );
        }
    }
}

#[tokio::test]
async fn sign_out_ends_one_or_all_sessions() {
    let server = TestServer::new().await;
    let (one, two) = (server.cookie().await, server.cookie().await);
    let out = |path: &str, cookie: &str| {
        server.post(path).header(header::COOKIE, cookie).body(Body::empty()).expect("a request")
    };
    let answer = server.ask(out("/sign-out", &one)).await;
    assert_eq!(
        (answer.status, answer.header(header::LOCATION)),
        (StatusCode::SEE_OTHER, "/sign-in")
    );
    assert!(
        answer.cookie().starts_with("gantry_session=;") && answer.cookie().contains("Max-Age=0")
    );
    assert_eq!(server.send_get("/events?after=x", &one).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.send_get("/events?after=x", &two).await.status, StatusCode::BAD_REQUEST);
    let three = server.cookie().await;
    server.ask(out("/sign-out/everywhere", &three)).await;
    assert_eq!(server.send_get("/events?after=x", &two).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn disabling_takes_effect_on_next_request() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    assert_eq!(server.send_get("/events?after=x", &cookie).await.status, StatusCode::BAD_REQUEST);
    server.people.disable(None, server.ada).await.expect("the person is disabled");
    assert_eq!(server.send_get("/events?after=x", &cookie).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn expired_session_is_rejected() {
    let server = TestServer::new().await;
    let cookie = server.cookie().await;
    let sql = "UPDATE session SET idle_expires_at = now() - interval '1 second'";
    sqlx::query(sql).execute(server.db.owner()).await.expect("the statement succeeds");
    assert_eq!(server.send_get("/events?after=x", &cookie).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn secrets_never_reach_the_log() {
    let server = TestServer::new().await;
    let (link, other) = (server.link().await, server.link().await);
    let log_capture = LogCapture::begin();
    server.visit(&format!("/sign-in?token={}", link.reveal()), "").await;
    let answer = server.ask(server.sign_in(&link)).await;
    server.ask(server.sign_in(&link)).await;
    let cookie = answer.cookie().split(';').next().expect("a cookie").to_owned();
    server.send_get(&format!("/nothing?token={}", other.reveal()), &cookie).await;
    let log = log_capture.end();
    assert!(
        log.contains("/nothing") && log.contains("a sign-in with a link was rejected"),
        "{log}"
    );
    let session = cookie.split('=').next_back().expect("a value");
    for secret in [link.reveal(), other.reveal(), session] {
        assert!(!log.contains(secret));
    }
}

/// Over HTTPS, a header has the client's address, but clients can also send that header.
#[tokio::test]
async fn forged_client_address_gives_no_extra_attempts() {
    let host = "gantry.example.com";
    let server = TestServer::at("https://gantry.example.com", host, |_| {}).await;
    let attempt = async |connected: &str, forwarded: String| {
        let connected: std::net::SocketAddr = connected.parse().expect("an address");
        let form = server
            .post("/sign-in")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let form = form
            .header("x-forwarded-for", forwarded)
            .extension(axum::extract::ConnectInfo(connected));
        server
            .ask(form.body(Body::from("token=nonsense")).expect("a request"))
            .await
            .status
            .as_u16()
    };
    let mut strangers = Vec::new();
    for number in 0..11 {
        strangers.push(attempt("198.51.100.4:4000", format!("203.0.113.{number}")).await);
    }
    assert!(
        strangers[..10].iter().all(|status| *status == 401) && strangers[10] == 429,
        "{strangers:?}"
    );
    let mut through_the_proxy = Vec::new();
    for number in 0..11 {
        through_the_proxy
            .push(attempt("127.0.0.1:4000", format!("10.9.9.9, 203.0.113.{number}")).await);
    }
    assert!(
        through_the_proxy.iter().all(|status| *status == 401),
        "each forwarded address has its own attempts: {through_the_proxy:?}"
    );
    for _ in 0..9 {
        attempt("127.0.0.1:4000", "203.0.113.7".to_owned()).await;
    }
    assert_eq!(attempt("127.0.0.1:4000", "203.0.113.7".to_owned()).await, 429);
}

#[tokio::test]
async fn invalid_name_fails_like_a_wrong_one() {
    let server = TestServer::new().await;
    for name in ["nobody", "a%00b", "%00", "ada%00"] {
        let form = server
            .post("/sign-in")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = server
            .ask(form.body(Body::from(format!("name={name}&password=x"))).expect("a request"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem()["code"].as_str()),
            (401, Some("sign_in_wrong")),
            "{name}"
        );
    }
}
