//! Searches for leaked secrets: a secret from the worker's file to a script that prints it, and all
//! credentials of people and clients. All have a recognizable form. The test searches answers,
//! pages, errors, logs, metrics and every table.

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::installation::{Installation, Plan, has};

const SECRET: &str = "canary-secret-zephyr-4713";
const METRICS: &str = "canary-metrics-mistral-4714";
const PASSWORD: &str = "canary-database-sirocco-4715";

const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: For tests}
jigs:
  - {name: script, class: script, description: Runs scripts}
roles:
  - {name: tells, jig: script, timeout: 30s}
  - {name: fails, jig: script, timeout: 30s}
";

/// Leaks its secret in every way that a script could. Also stores it on the node, which proves that
/// the script had it.
const LEAKING_SCRIPT: &str = r#"#!/bin/sh
printf %s "$GANTRY_DATA_DB_PASSWORD" >heard
echo "I was told: $GANTRY_DATA_DB_PASSWORD"
echo "and say it here, too: $GANTRY_DATA_DB_PASSWORD" >&2
cat "$GANTRY_INPUT"
printf '{"db": {"url": "db://u:%s@h", "%s": 1}}' "$GANTRY_DATA_DB_PASSWORD" "$GANTRY_DATA_DB_PASSWORD" >"$GANTRY_OUTPUT"
"#;
const FAILS: &str = "echo \"no: $GANTRY_DATA_DB_PASSWORD\" >&2\nexit 3\n";

const DECLARED: &str = "
deployment: web
bindings: {tells: [n1], fails: [n2]}
data:
  tells: {db: {password: {$secret: deploy/key, version: 1}}}
  fails: {db: {password: {$secret: deploy/key, version: 1}}}
";

struct LeakTest {
    installation: Installation,
    canaries: Vec<(&'static str, String)>,
    review: String,
}

impl LeakTest {
    #[track_caller]
    fn check(&self, place: &str, text: &str) {
        for (name, canary) in &self.canaries {
            assert!(!text.contains(canary.as_str()), "{place} contains {name}");
        }
    }

    fn canary(&self, name: &str) -> &str {
        &self.canaries.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Status and text of a response. For a stream, the messages within a moment.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> (u16, String) {
        let server = self.installation.address.trim_start_matches("http://").to_owned();
        let stream = TcpStream::connect(&server).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let carrying = tokio::spawn(connection);
        let mut request =
            Request::builder().method(method.clone()).uri(path).header("host", &server);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("x-gantry", "1").header("content-type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer =
            sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        self.check(&format!("the headers of {method} {path}"), &format!("{:?}", answer.headers()));
        let mut coming = answer.into_body();
        let mut bytes = Vec::new();
        while let Ok(Some(frame)) = timeout(Duration::from_secs(3), coming.frame()).await {
            if let Ok(data) = frame.unwrap().into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        carrying.abort();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.check(&format!("{method} {path}"), &text);
        (status, text)
    }

    /// Searches everything that is stored.
    async fn stored(&self) {
        let admin = self.installation.admin().await;
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND \
             relkind = 'r'",
        )
        .fetch_all(&admin)
        .await
        .unwrap();
        assert!(
            tables.iter().any(|table| table == "run_log_rest") && tables.len() > 30,
            "{tables:?}"
        );
        for table in tables {
            let sql =
                format!("SELECT coalesce(string_agg(to_jsonb(t)::text, ' '), '') FROM {table} t");
            let text: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&admin).await.unwrap();
            self.check(&table, &text);
            for (name, canary) in &self.canaries {
                let digits: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
                assert!(!text.contains(&digits), "table {table} contains {name} as bytes");
            }
        }
        // A chunk border may split a secret, so search whole logs too.
        let logs: Vec<Vec<u8>> = sqlx::query_scalar(
            "SELECT string_agg(body, ''::bytea ORDER BY at_offset) FROM run_log GROUP BY run_id",
        )
        .fetch_all(&admin)
        .await
        .unwrap();
        let logs =
            logs.iter().map(|log| String::from_utf8_lossy(log)).collect::<Vec<_>>().join("\n");
        assert!(
            logs.contains("I was told: (secret)"),
            "the logs must contain the scripts' output: {logs}"
        );
        self.check("a run's log", &logs);
        admin.close().await;
    }
}

async fn start_leak_test() -> LeakTest {
    let barclamps = vec![
        ("stack/stack.yml", BARCLAMP.to_owned()),
        ("stack/scripts/tells/10-say", LEAKING_SCRIPT.to_owned()),
        ("stack/scripts/fails/10-say", format!("{LEAKING_SCRIPT}{FAILS}")),
    ];
    let environment = vec![("GANTRY_METRICS_TOKEN", METRICS.to_owned())];
    let plan =
        Plan { barclamps, roles: vec!["tells", "fails"], environment, password: Some(PASSWORD) };
    let mut installation = Installation::of(plan).await;
    std::fs::create_dir_all(installation.secrets().join("deploy/key")).unwrap();
    std::fs::write(installation.secrets().join("deploy/key/1"), format!("{SECRET}\n")).unwrap();
    let descriptor = installation.secrets().join("deploy/key/secret.toml");
    std::fs::write(descriptor, "kind = \"data\"\ndeployments = [\"*\"]\n").unwrap();
    let review = installation.submitted(DECLARED);
    installation.committed(&review);
    installation.start_worker();
    installation.reaches("tells", "active", 1).await;
    installation.reaches("fails", "error", 1).await;
    assert!(
        (1..=2).all(|n| has(&installation.root(n).join("heard"), SECRET)),
        "the runs must have received the secret"
    );
    let contexts =
        std::fs::read_to_string(installation.folder.path().join("config/gantry/contexts.toml"))
            .unwrap();
    let sessions: Vec<String> = contexts
        .split('"')
        .filter_map(|text| text.strip_prefix("gantry_session=").map(str::to_owned))
        .collect();
    let [ada, bo] = sessions.as_slice() else {
        panic!("expected the sessions of two people: {}", sessions.len())
    };
    let make = ["token", "create", "--name", "ci", "--permission", "viewer", "--json"];
    let token = installation.gantry(&make).json()["token"].as_str().unwrap().to_owned();
    let canaries = vec![
        ("the secret", SECRET.to_owned()),
        ("the metrics token", METRICS.to_owned()),
        ("the database's password", PASSWORD.to_owned()),
        ("ada's session", ada.clone()),
        ("bo's session", bo.clone()),
        ("the token", token),
    ];
    LeakTest { installation, canaries, review }
}

/// Everything readable: every GET in the OpenAPI document, and the pages.
async fn addresses(leak_test: &LeakTest, cookie: &str) -> Vec<String> {
    let (_, contract) = leak_test
        .ask(Method::GET, "/api/v1/openapi.json", &[("cookie", cookie)], &Value::Null)
        .await;
    let contract: Value = serde_json::from_str(&contract).unwrap();
    let installation = &leak_test.installation;
    let json = |words: &[&str]| installation.gantry(&[words, &["--json"]].concat()).json();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let runs = json(&["run", "list"]);
    let of = |role: &str| {
        let found = runs["runs"].as_array().unwrap().iter().find(|run| run["role"] == role);
        text(&found.unwrap_or_else(|| panic!("{role} has no run: {runs}"))["id"])
    };
    let (tells, fails) = (of("tells"), of("fails"));
    let noderole = |name: &str| text(&json(&["noderole", "show", name])["id"]);
    let of_noderoles = [noderole("n1/tells"), noderole("n2/fails")];
    let worker = text(&json(&["workers"])["workers"][0]["id"]);
    let person = text(&json(&["me"])["person"]["id"]);
    let review = &leak_test.review;
    let filled = |path: &str, which: usize| {
        let id: &str = match path.split('/').nth(3).unwrap_or_default() {
            "deployments" => "web",
            "nodes" => ["n1.house.example.com", "n2.house.example.com"][which],
            "noderoles" => &of_noderoles[which],
            "runs" => [tells.as_str(), fails.as_str()][which],
            "roles" => ["tells", "fails"][which],
            "workers" => &worker,
            "people" => &person,
            "reviews" => review,
            // Its proposal is committed. An unknown id gets a response too.
            _ => "1",
        };
        let parts = path.split('/').map(|part| if part.starts_with('{') { id } else { part });
        parts.collect::<Vec<_>>().join("/")
    };
    let mut all = Vec::new();
    for (path, operations) in contract["paths"].as_object().unwrap() {
        if operations.get("get").is_none() {
            continue;
        }
        let query = match path.rsplit('/').next().unwrap_or_default() {
            "noderoles" => "?role=tells",
            "search" if path.contains("/log/") => "?q=told",
            "search" => "?q=tells",
            "compare" => "?from=1&to=2",
            _ => "",
        };
        all.extend([0, 1].map(|which| format!("{}{query}", filled(path, which))));
    }
    let pages = [
        "",
        "deployments",
        "deployments/web",
        "graph/web",
        "nodes",
        "reviews",
        "runs",
        "pending",
        "blueprints",
        "catalog",
    ];
    let more = [
        "catalog/roles",
        "workers",
        "audit",
        "search?q=tells",
        "settings/people",
        "settings/account",
    ];
    all.extend(pages.into_iter().chain(more).map(|page| format!("/{page}")));
    for which in [0, 1] {
        let (node, noderole) = (["n1", "n2"][which], &of_noderoles[which]);
        let run = [&tells, &fails][which];
        all.push(format!("/nodes/{node}.house.example.com"));
        all.push(format!("/nodes/{node}.house.example.com/results"));
        all.push(format!("/noderoles/{noderole}"));
        all.push(format!("/noderoles/{noderole}/data"));
        all.push(format!("/runs/{run}"));
        all.push(format!("/runs/{run}/data"));
        all.push(format!("/runs/{run}/log"));
    }
    all.push(format!("/reviews/{review}"));
    all.push(format!("/workers/{worker}"));
    all.push("/graph/web/graph.svg".to_owned());
    all.push("/events".to_owned());
    all.sort();
    all.dedup();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_printed_by_script_is_leaked_nowhere() {
    let mut leak_test = start_leak_test().await;
    let cookie = format!("gantry_session={}", leak_test.canary("ada's session"));
    let bearer = format!("Bearer {}", leak_test.canary("the token"));
    let (as_ada, by_token) = ([("cookie", cookie.as_str())], [("authorization", bearer.as_str())]);
    let page = [("cookie", cookie.as_str()), ("accept", "text/html")];
    let all = addresses(&leak_test, &cookie).await;
    assert!(all.len() > 80, "{all:?}");
    let mut masked = 0;
    let mut seen = 0;
    for path in &all {
        let headers = if path.starts_with("/api/") {
            vec![&as_ada[..], &by_token[..]]
        } else {
            vec![&page[..]]
        };
        for headers in headers {
            let (status, text) = leak_test.ask(Method::GET, path, headers, &Value::Null).await;
            assert!(status < 500 && status != 401, "{path}: {status} {text}");
            seen += usize::from(status == 200);
            masked += usize::from(text.contains("(secret)"));
        }
    }
    assert!(
        seen > 80 && masked > 4,
        "only {seen} responses have content, and {masked} of them a masked secret"
    );

    // A review names the secret and its version.
    for more in [&[][..], &["--json"]] {
        let output = leak_test
            .installation
            .gantry(&[&["review", "show", &leak_test.review][..], more].concat());
        leak_test.check("gantry review show", &(output.out.clone() + &output.err));
        let page = output.ok();
        assert!(page.contains("deploy/key") && page.contains("version"), "{page}");
    }

    // Errors that contain their input, and metrics.
    let wrong = format!("Bearer {METRICS}x");
    let refused =
        leak_test.ask(Method::GET, "/metrics", &[("authorization", &wrong)], &Value::Null).await;
    assert!(matches!(refused.0, 401 | 403), "{refused:?}");
    let collect = format!("Bearer {METRICS}");
    let metrics =
        leak_test.ask(Method::GET, "/metrics", &[("authorization", &collect)], &Value::Null).await;
    assert!(metrics.0 == 200 && metrics.1.contains("gantry_"), "{metrics:?}");
    let stale = format!("{bearer}x");
    assert_eq!(
        leak_test
            .ask(Method::GET, "/api/v1/people", &[("authorization", &stale)], &Value::Null)
            .await
            .0,
        401
    );
    let retry = json!({"reason": "look again"});
    let noderole =
        leak_test.installation.gantry(&["noderole", "show", "n2/fails", "--json"]).json()["id"]
            .clone();
    let retry_at = format!("/api/v1/noderoles/{}/retry", noderole.as_str().unwrap());
    assert!(leak_test.ask(Method::POST, &retry_at, &as_ada, &retry).await.0 < 300);
    leak_test.installation.reaches("fails", "error", 1).await;
    for words in [&["logs"][..], &["run", "show"]] {
        for run in leak_test.installation.gantry(&["run", "list", "--json"]).json()["runs"]
            .as_array()
            .unwrap()
        {
            let id = run["id"].to_string();
            let output = leak_test.installation.gantry(&[words, &[id.as_str()]].concat());
            leak_test.check(&format!("gantry {words:?}"), &(output.out + &output.err));
        }
    }

    // The database is unavailable for a while. No error may contain its URL.
    leak_test.stored().await;
    leak_test.installation.loses_its_database();
    let (status, _) = leak_test.ask(Method::GET, "/api/v1/overview", &as_ada, &Value::Null).await;
    assert_eq!(status, 503);
    tokio::time::sleep(Duration::from_secs(2)).await;
    leak_test.installation.postgres.ensure_running().await.unwrap();
    let log = leak_test.installation.log();
    assert!(
        log.contains("worker") && log.contains("/api/v1/"),
        "the log must contain entries of the server and the worker"
    );
    leak_test.check("the log", &log);
    leak_test.stored().await;
}
