//! The complete router, with a separate database for each test.

mod canary;
mod change_flow;
mod contract;
mod deployments;
mod error_responses;
mod gate;
mod idempotency;
mod lists;
mod log_capture;
mod logs;
mod matrix;
mod monitoring;
mod nodes;
mod overview;
mod passkeys;
mod pending;
mod people;
mod scopes;
mod second_factor;
mod server_functions;
mod sign_in;
mod streaming;
mod values;

use std::time::Duration;

use api::problem_codes::{CODES, TYPE_PREFIX};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use control::Control;
use control::people::{NewPerson, People, Permission, Token};
use engine::ids::PersonId;
use serde_json::Value;
use store::Store;
use tempfile::TempDir;
use testdb::TestDatabase;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::AppState;
use crate::http::limits;
use crate::live;

const LOCAL_HOST: &str = "127.0.0.1:7780";

/// A server with one person who has the viewer and operator permissions.
struct TestServer {
    db: TestDatabase,
    router: Router,
    /// The router's routes, without the layers around them.
    routes: Router,
    people: People,
    ada: PersonId,
    site: TempDir,
    stopping: CancellationToken,
    host: &'static str,
}

impl TestServer {
    async fn new() -> Self {
        Self::at("http://127.0.0.1:7780", LOCAL_HOST, |_| {}).await
    }

    async fn at(address: &str, host: &'static str, change: impl FnOnce(&mut AppState)) -> Self {
        let db = TestDatabase::new().await;
        let store = Store::over(db.app().clone());
        let site = site();
        let stopping = CancellationToken::new();
        let address = address.parse().expect("an address");
        let mut state = crate::state(
            address,
            crate::Site::named(Some(site.path().into())),
            Control::new(store.clone()),
            stopping.clone(),
        );
        change(&mut state);
        let people = state.people.clone().with_owner(Store::over(db.owner().clone()));
        let new = NewPerson::human("ada", [Permission::Viewer, Permission::Operator]);
        let ada = people.create_person(None, &new).await.expect("a person");
        let routes = crate::routes(&state);
        Self { db, router: crate::router(state), routes, people, ada, site, stopping, host }
    }

    async fn link(&self) -> Token {
        self.link_for(self.ada).await
    }

    async fn link_for(&self, person: PersonId) -> Token {
        self.people
            .create_sign_in_link(None, person, Duration::from_secs(60))
            .await
            .expect("a sign-in")
    }

    async fn cookie(&self) -> String {
        self.cookie_for(self.ada).await
    }

    async fn cookie_for(&self, person: PersonId) -> String {
        let answer = self.ask(self.sign_in(&self.link_for(person).await)).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER);
        answer.cookie().split(';').next().expect("a cookie").to_owned()
    }

    fn sign_in(&self, token: &Token) -> Request<Body> {
        self.post("/sign-in")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(format!("token={}", token.reveal())))
            .expect("a request")
    }

    fn get(&self, path: &str) -> Builder {
        Request::get(path).header(header::HOST, self.host)
    }

    /// A POST as a page of this server sends it.
    fn post(&self, path: &str) -> Builder {
        Request::post(path).header(header::HOST, self.host).header("sec-fetch-site", "same-origin")
    }

    fn post_json(&self, path: &str, cookie: &str, json: impl Into<Body>) -> Request<Body> {
        let builder = self.post(path).header(header::COOKIE, cookie);
        builder
            .header(header::CONTENT_TYPE, "application/json")
            .body(json.into())
            .expect("a request")
    }

    /// A server with short intervals of the event stream.
    async fn with_short_intervals() -> Self {
        let stream_intervals = live::StreamIntervals {
            heartbeat: Duration::from_millis(40),
            session_check: Duration::from_millis(100),
        };
        Self::at("http://127.0.0.1:7780", LOCAL_HOST, |state| {
            state.stream_intervals = stream_intervals
        })
        .await
    }

    async fn add_n2(&self, cookie: &str) -> Answer {
        let node = serde_json::json!({"fqdn": "n2.house.example.com", "root": "/srv/n2"});
        self.send_post("/api/v1/nodes", cookie, node).await
    }

    /// Sends a request with only these headers: none of a browser, and no `X-Gantry`.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header(header::HOST, self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.ask(
            request.header(header::CONTENT_TYPE, "application/json").body(body).expect("a request"),
        )
        .await
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        let answer = self.router.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = answer.into_parts();
        let body = to_bytes(body, limits::MAX_BODY_BYTES).await.expect("a body");
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn send_get(&self, path: &str, cookie: &str) -> Answer {
        self.ask(
            self.get(path).header(header::COOKIE, cookie).body(Body::empty()).expect("a request"),
        )
        .await
    }

    /// A browser's navigation to a page.
    async fn visit(&self, path: &str, cookie: &str) -> Answer {
        let request = self
            .get(path)
            .header(header::COOKIE, cookie)
            .header(header::ACCEPT, "text/html,*/*;q=0.8");
        self.ask(request.body(Body::empty()).expect("a request")).await
    }
}

fn site() -> TempDir {
    let site = tempfile::tempdir().expect("a folder");
    for folder in ["pkg/a1b2", "fonts"] {
        std::fs::create_dir_all(site.path().join(folder)).expect("a folder");
    }
    for (path, text) in [
        (
            "site.json",
            r#"{"build": "a1b2", "parts": {"sign_in": ["chunk_0_sign_in", "split_sign_in"]}}"#,
        ),
        ("pkg/a1b2/gantry.js", "plain"),
        ("pkg/a1b2/gantry.js.br", "packed"),
        ("pkg/a1b2/gantry.css", "plain"),
        ("fonts/inter.woff2", "font"),
        ("favicon.svg", "<svg/>"),
    ] {
        std::fs::write(site.path().join(path), text).expect("a file");
    }
    site
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Names of people, deployments and roles at the start of problem details.
const NAMES: [&str; 7] = ["ada", "bo", "cy", "eve", "web", "system", "app"];

impl Answer {
    fn header(&self, name: impl AsRef<str>) -> &str {
        self.headers
            .get(name.as_ref())
            .map(|value| value.to_str().expect("text"))
            .unwrap_or_default()
    }

    fn cookie(&self) -> &str {
        self.header(header::SET_COOKIE)
    }

    /// The nonce of the content security policy.
    fn nonce(&self) -> &str {
        let policy = self.header(header::CONTENT_SECURITY_POLICY);
        let nonce = policy.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        nonce.expect("a nonce")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    fn json(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text());
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn problem(&self) -> Value {
        assert_eq!(
            self.header(header::CONTENT_TYPE),
            "application/problem+json",
            "{}",
            self.text()
        );
        let problem: Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(problem["status"], self.status.as_u16());
        let code = problem["code"].as_str().expect("a code");
        assert!(CODES.iter().any(|(known, _)| *known == code), "{code} is not documented");
        assert_eq!(problem["type"], format!("{TYPE_PREFIX}{code}"));
        let first = problem["detail"]
            .as_str()
            .and_then(|detail| Some(detail.split_once(' ')?.0))
            .unwrap_or_default();
        let is_name = first.is_empty()
            || !first.bytes().all(|byte| byte.is_ascii_lowercase())
            || NAMES.contains(&first);
        assert!(is_name, "the detail must begin with a capital letter or a name: {problem}");
        problem
    }
}
