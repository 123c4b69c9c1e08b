//! Overview, audit, rollout of a target, and metrics.

use std::net::SocketAddr;

use api::At;
use axum::extract::ConnectInfo;
use engine::Hash;
use engine::ids::{Fqdn, RoleName};
use serde_json::json;
use store::background_tasks;
use store::workers::{NewWorker, WorkerId};
use uuid::Uuid;

use super::*;

impl TestServer {
    /// Commits a change of `web` and returns the response.
    async fn committed(&self, ada: &str, bo: &str) -> Answer {
        let board = self.send_get("/api/v1/deployments/web/board", ada).await.json();
        let node =
            self.send_get("/api/v1/nodes?filter=n1", ada).await.json()["nodes"][0]["id"].clone();
        let opened =
            self.send_post("/api/v1/deployments/web/proposals", ada, json!({})).await.json();
        let proposal = opened["proposal"].as_i64().expect("an id");
        let version =
            self.send_get(&format!("/api/v1/proposals/{proposal}"), ada).await.json()["version"]
                .clone();
        let bind = json!({"edit": "bind", "deployment": board["id"], "node": node, "role": "app"});
        let edits = json!({"version": version, "edits": [bind]});
        let edited =
            self.send_post(&format!("/api/v1/proposals/{proposal}/edits"), ada, edits).await.json();
        let submit = json!({"version": edited["version"], "title": "app on n1"});
        let submitted = self
            .send_post(&format!("/api/v1/proposals/{proposal}/submit"), ada, submit)
            .await
            .json();
        let of = |action: &str| format!("/api/v1/reviews/{}/{action}", submitted["review"]);
        self.send_post(&of("verdicts"), bo, json!({"kind": "approve", "reason": "fine"}))
            .await
            .json();
        self.send_post(&of("commit"), ada, json!({})).await
    }
}

async fn register_worker(server: &TestServer, id: u128, name: &str, capacity: u32) -> WorkerId {
    let worker = NewWorker {
        id: WorkerId(Uuid::from_u128(id)),
        name: name.into(),
        capacity,
        jigs: vec!["noop".into()],
        host: "h1".into(),
        pid: 12,
        version: "0.1.0".into(),
    };
    store::workers::ensure_worker(server.db.worker(), &worker, Duration::from_secs(60))
        .await
        .expect("a registered worker");
    worker.id
}

#[tokio::test]
async fn rollout_is_followed_to_its_end() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let committed = server.committed(&ada, &bo).await;
    let place = committed.header(header::LOCATION).to_owned();
    assert_eq!((committed.status, place.as_str()), (StatusCode::CREATED, "/api/v1/blueprints/2"));
    let view = server.send_get(&place, &ada).await.json();
    assert_eq!(
        (&view["progress"], &view["blueprint"]["number"]),
        (&json!("in_progress"), &json!(2))
    );
    let all: i64 = ["blocked", "todo", "transition", "active", "error"]
        .iter()
        .map(|s| view["steps"][s].as_i64().unwrap())
        .sum();
    assert!(all > 0 && view["applied"].as_i64().unwrap() < all, "{view}");

    // A waiting client gets its response at the end of the rollout, not after the timeout.
    let finish = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let done = "UPDATE step SET state = 'active', pending = 0, applied_generation = \
            generation, input_checked = input_version WHERE generation = 2";
        sqlx::query(done).execute(server.db.owner()).await.expect("the owner has the permission");
    };
    let waits = format!("{place}?wait=30");
    let waited = async {
        tokio::time::timeout(Duration::from_secs(20), server.send_get(&waits, &ada)).await
    };
    let ((), waited) = tokio::join!(finish, waited);
    let view = waited.expect("a response within the time limit").json();
    assert_eq!((&view["progress"], &view["applied"]), (&json!("converged"), &json!(all)));

    for wait in ["31", "300", "-1"] {
        let refused = server.send_get(&format!("{place}?wait={wait}"), &ada).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        let text = refused.text();
        assert!(text.contains("from 0 to 30") || text.contains("limit is 30 seconds"), "{text}");
    }
    assert_eq!(server.send_get("/api/v1/blueprints/99", &ada).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn overview_shows_current_state() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    server.committed(&ada, &bo).await.json();
    let worker = register_worker(&server, 7, "w-7", 4).await;
    let view = server.send_get("/api/v1/overview", &ada).await.json();
    assert_eq!((&view["blueprint"], &view["enabled"]), (&json!(2), &json!(true)));
    assert_eq!(view["deployments"], json!({"all": 3, "on_hold": 0, "proposed": 0}));
    assert_eq!(
        (&view["nodes"]["all"], &view["workers"]),
        (&json!(1), &json!({"alive": 0, "capacity": 0}))
    );
    assert!(view["stuck"].as_array().is_some_and(|stuck| !stuck.is_empty()), "{view}");
    assert_eq!(view["commits"][0]["number"], 2);
    assert_eq!(view["queue"], json!({"queued": 0, "running": 0, "oldest": null}));

    store::workers::confirm_worker(server.db.worker(), worker).await.expect("confirmed");
    let view = server.send_get("/api/v1/overview", &ada).await.json();
    assert_eq!(view["workers"], json!({"alive": 1, "capacity": 4}));
    let workers = server.send_get("/api/v1/workers?alive=true", &ada).await.json();
    let worker = &workers["workers"][0];
    assert_eq!(
        (&worker["name"], &worker["phase"], &worker["leased"]),
        (&json!("w-7"), &json!("confirmed"), &json!(0))
    );
    assert_eq!(
        server.send_get("/api/v1/workers?alive=false", &ada).await.json()["workers"],
        json!([])
    );
    assert_eq!(
        server.send_get("/api/v1/workers?phase=nack", &ada).await.json()["workers"],
        json!([])
    );
    let before = format!("/api/v1/workers?before={}", Uuid::from_u128(7));
    assert_eq!(server.send_get(&before, &ada).await.status, StatusCode::BAD_REQUEST);

    let policy = server.send_get("/api/v1/policy", &ada).await;
    assert!(policy.header(header::ETAG).starts_with("\"1."), "{}", policy.header(header::ETAG));
    assert_eq!(policy.json()["policy"]["approvals"], 1);
}

#[tokio::test]
async fn audit_is_listed_verified_and_exported() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let eve = server.person("eve", [Permission::Viewer]).await;
    server.committed(&ada, &bo).await.json();
    for path in ["/api/v1/audit", "/api/v1/audit/chain", "/api/v1/audit/export"] {
        assert_eq!(
            server.send_get(path, &eve).await.status,
            StatusCode::FORBIDDEN,
            "{path}: a viewer has no access"
        );
    }
    let of = async |query: &str| {
        server.send_get(&format!("/api/v1/audit?{query}"), &ada).await.json()["entries"].clone()
    };
    let commits = of("action=review.commit&actor=ada").await;
    assert_eq!((commits.as_array().map(Vec::len), &commits[0]["name"]), (Some(1), &json!("ada")));
    assert_eq!(of("action=review.commit&actor=bo").await, json!([]));
    let subject = commits[0]["subject"].as_str().expect("a subject");
    assert!(
        of(&format!("subject={subject}&actor=bo"))
            .await
            .as_array()
            .is_some_and(|entries| !entries.is_empty())
    );
    let At(at) = commits[0]["at"].as_str().expect("a time").parse().expect("RFC 3339");
    assert_eq!(of(&format!("action=review.commit&since={}", At(at + 1))).await, json!([]));
    assert_eq!(of(&format!("action=review.commit&until={}", At(at + 1))).await, commits);
    assert_eq!(
        of(&format!("action=review.commit&since={}&until={}", At(at - 1), At(at + 1))).await,
        commits
    );
    assert_eq!(
        of("until=1970-01-01T00:00:01Z").await,
        json!([]),
        "the audit has no entries that old"
    );
    let all = of("").await;
    let before = all[0]["id"].as_i64().expect("an id");
    assert_eq!(of(&format!("before={before}")).await[0], all[1]);
    for wrong in
        ["actor=nobody", "since=1790000000000", "action=a&actoin=b", "until=0000-01-01T00:00:00Z"]
    {
        assert!(
            server.send_get(&format!("/api/v1/audit?{wrong}"), &ada).await.status.is_client_error(),
            "{wrong}"
        );
    }

    let unsealed = server.send_get("/api/v1/audit/chain", &ada).await.json();
    assert_eq!((&unsealed["end"], &unsealed["broken"]), (&json!(0), &Value::Null));
    sqlx::query("SELECT seal_audit(1000)").execute(server.db.app()).await.expect("a sealed audit");
    let chain = server.send_get("/api/v1/audit/chain", &ada).await.json();
    assert_eq!((&chain["end"], &chain["unsealed"]), (&chain["chain"]["last"], &json!(0)));
    let export = server.send_get("/api/v1/audit/export", &ada).await;
    let proven = engine::audit::export::verify(export.text().lines()).expect("a valid export");
    let computed = proven.chain;
    assert_eq!(
        (json!(computed.hash), json!(computed.last)),
        (chain["hash"].clone(), chain["end"].clone())
    );
    assert!(
        proven.whole && proven.totals.blueprints == 2 && proven.totals.verdicts == 1,
        "{proven:?}"
    );
    let later = server.send_get("/api/v1/audit/export?after=2", &ada).await;
    assert_eq!(
        engine::audit::export::verify(later.text().lines())
            .map(|later| (later.chain.first, later.chain.hash)),
        Ok((3, computed.hash))
    );

    // Entries of the database are listed on request.
    let sources = async |query: &str| {
        let entries = of(query).await;
        entries
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| entry["source"].clone())
            .collect::<Vec<_>>()
    };
    assert!(sources("").await.iter().all(|source| source == "application"));
    assert!(sources("source=all").await.contains(&json!("database")));
    assert_eq!(sources("source=database&action=verdict.insert").await, [json!("database")]);

    // Manipulation by the database's owner is detected.
    for statement in [
        "ALTER TABLE audit DISABLE TRIGGER USER",
        "UPDATE audit SET subject = 'another' WHERE id = (SELECT audit_id FROM seal WHERE seq = 3)",
    ] {
        sqlx::query(statement)
            .execute(server.db.owner())
            .await
            .expect("the owner has the permission");
    }
    let broken = server.send_get("/api/v1/audit/chain", &ada).await.json();
    assert_eq!(
        (&broken["broken"], &broken["next"]),
        (&json!("Entry 3 was altered: its text does not match its link"), &Value::Null)
    );
    let export = server.send_get("/api/v1/audit/export", &ada).await;
    assert_eq!(
        engine::audit::export::verify(export.text().lines()),
        Err(engine::audit::ChainDefect::Content(3))
    );
}

impl TestServer {
    pub(super) async fn collect(&self, headers: &[(&str, &str)], from: [u8; 4]) -> Answer {
        let request = headers
            .iter()
            .fold(Request::get("/metrics"), |request, (name, value)| request.header(*name, *value));
        let mut request = request.body(Body::empty()).expect("a request");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((from, 40_000))));
        self.ask(request).await
    }
}

#[tokio::test]
async fn metrics_require_access() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    server.send_get("/api/v1/runs/77777", &ada).await;
    server.send_get("/nowhere/secret-1", &ada).await;
    let (near, far, own) = ([127, 0, 0, 1], [10, 0, 0, 9], ("host", LOCAL_HOST));
    let text = server.collect(&[own], near).await;
    assert!(text.header(header::CONTENT_TYPE).starts_with("application/openmetrics-text"));
    let text = text.text();
    for line in [
        "gantry_http_requests_total{method=\"GET\",route=\"/api/v1/runs/{id}\",status=\"404\"} 1",
        "gantry_database_up 1",
        "gantry_steps{state=\"active\"} 0",
        "gantry_nodes{state=\"all\"} 1",
        "gantry_workers_alive 0",
        "gantry_runs_open{state=\"queued\"} 0",
        "gantry_queue_oldest_age_seconds 0.0",
        "gantry_streams_open 0",
        "gantry_http_request_duration_seconds_bucket{le=\"0.005\",method=\"GET\",route=\"/api/v1/runs/{id}\"}",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    // Labels never contain client input.
    assert!(!text.contains("77777") && !text.contains("secret-1"), "{text}");

    type MetricsRequest<'h> = (&'h [(&'h str, &'h str)], [u8; 4]);
    let from_others: [MetricsRequest<'_>; 4] = [
        (&[own], far),
        (&[("host", "evil.example")], near),
        (&[own, ("x-forwarded-for", "127.0.0.1")], near),
        (&[own, ("authorization", "Bearer x")], far),
    ];
    for (headers, from) in from_others {
        assert_eq!(
            server.collect(headers, from).await.status,
            StatusCode::FORBIDDEN,
            "{headers:?} {from:?}"
        );
    }
    let token = "0123456789abcdef";
    let change =
        |state: &mut AppState| state.metrics_token = Some(Hash::of_bytes(token.as_bytes()));
    let server = TestServer::at("https://gantry.example.com", "gantry.example.com", change).await;
    let bearer = format!("Bearer {token}");
    assert_eq!(server.collect(&[("authorization", &bearer)], far).await.status, StatusCode::OK);
    for wrong in ["Bearer 0123456789abcdee", "Basic 0123456789abcdef", ""] {
        assert_eq!(
            server.collect(&[("authorization", wrong), own], near).await.status,
            StatusCode::UNAUTHORIZED
        );
    }
    let server = TestServer::at("https://gantry.example.com", "gantry.example.com", |_| {}).await;
    let refused = server.collect(&[("host", "gantry.example.com")], near).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "a request through a proxy is not local");
}

#[tokio::test]
async fn failing_background_tasks_come_first() {
    let server = TestServer::new().await;
    let ada = server.cookie().await;
    let process = |n, kind| background_tasks::ProcessRow {
        id: Uuid::from_u128(n),
        kind,
        name: format!("{kind}-{n}"),
    };
    let task = |task, error, due_in| background_tasks::TaskReport {
        task,
        purpose: "Works.",
        period: Duration::from_secs(20),
        started_ago: Some(Duration::from_secs(9)),
        ended_ago: Some(Duration::from_secs(8)),
        took: Some(Duration::from_secs(1)),
        outcome: None,
        error,
        failures: u32::from(error.is_some()),
        due_in,
    };
    let soon = Some(Duration::from_secs(11));
    let report = async |pool, process, task, lease| {
        background_tasks::report(pool, &process, &[task], Duration::from_secs(lease))
            .await
            .expect("a report");
    };
    report(server.db.app(), process(1, "server"), task("a", None, None), 60).await;
    report(server.db.worker(), process(2, "worker"), task("b", Some("broken"), soon), 60).await;
    report(server.db.worker(), process(3, "worker"), task("c", None, soon), 0).await;

    let page = server.send_get("/api/v1/background-tasks", &ada).await.json();
    let tasks = page["background_tasks"].as_array().expect("tasks");
    let names: Vec<_> = tasks.iter().map(|task| task["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["b", "a"], "failing tasks come first, without those of an expired process");
    assert_eq!(page["more"], json!(false));
    let failing = &tasks[0];
    assert_eq!(
        failing["process"],
        json!({"id": Uuid::from_u128(2), "kind": "worker", "name": "worker-2"})
    );
    assert_eq!(
        (&failing["error"], &failing["failures"], &failing["running"], &failing["period_ms"]),
        (&json!("broken"), &json!(1), &json!(false), &json!(20_000))
    );
    let time =
        |field: &str| failing[field].as_str().expect("a time").parse::<At>().expect("RFC 3339");
    let between = time("next").0 - time("ended").0;
    assert!((18_900..=19_100).contains(&between), "{failing}");
    assert_eq!((&tasks[1]["running"], &tasks[1]["next"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn workers_are_filtered_and_sorted() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    for (n, name) in [(1, "beta"), (2, "alpha"), (3, "alps")] {
        register_worker(&server, n, name, 2).await;
        let later =
            "UPDATE worker SET lease_until = now() + make_interval(mins => $1) WHERE name = $2";
        let minutes = 10 - i32::try_from(n).expect("a small number");
        sqlx::query(later)
            .bind(minutes)
            .bind(name)
            .execute(server.db.owner())
            .await
            .expect("the owner has the permission");
    }
    let names = async |query: &str| {
        let page = server.send_get(&format!("/api/v1/workers?{query}"), &ada).await.json();
        let workers = page["workers"].as_array().expect("workers").clone();
        workers
            .into_iter()
            .map(|worker| worker["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["alps", "alpha", "beta"]);
    assert_eq!(names("sort=name").await, ["alpha", "alps", "beta"]);
    assert_eq!(names("sort=-heartbeat").await, ["beta", "alpha", "alps"]);
    assert_eq!(names("filter=alp").await, ["alps", "alpha"]);
    let after = |name: &str| format!("sort=name&before=name~-{name}");
    assert_eq!(names(&after("alpha")).await, ["alps", "beta"]);
    assert_eq!(names(&after("b")).await, ["beta"], "a cursor stays valid when its worker is gone");
    assert_eq!(
        server.send_get("/api/v1/workers?sort=size", &ada).await.status,
        StatusCode::BAD_REQUEST
    );

    let one =
        server.send_get(&format!("/api/v1/workers/{}", Uuid::from_u128(2)), &ada).await.json();
    assert_eq!((&one["name"], &one["leased"]), (&json!("alpha"), &json!(0)));
    let none = server.send_get(&format!("/api/v1/workers/{}", Uuid::from_u128(9)), &ada).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn worker_is_drained_and_resumed() {
    let server = TestServer::new().await;
    let (run, worker) = change_flow::in_progress(&server).await;
    let ada = server.cookie().await;
    let cy = server.person("cy", [Permission::Reviewer]).await;
    let name = worker.to_string();
    let path = format!("/api/v1/workers/{name}");
    let post = async |who: &str, verb: &str, body: Value| {
        server.send_post(&format!("{path}/{verb}"), who, body).await
    };
    let because = || json!({"reason": "a new kernel"});
    let state = async |verb: &str| {
        let answer = post(&ada, verb, because()).await;
        assert_eq!(answer.status, StatusCode::CONFLICT);
        let problem = answer.problem();
        assert_eq!(problem["code"], "state");
        problem["detail"].as_str().expect("a text").to_owned()
    };
    let view = async || server.send_get(&path, &ada).await.json();

    assert_eq!(view().await["drain"], Value::Null);
    assert_eq!(view().await["may_drain"], json!({"allowed": true}));
    assert_eq!(post(&cy, "drain", because()).await.status, StatusCode::FORBIDDEN);
    assert_eq!(post(&ada, "drain", json!({})).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(post(&ada, "drain", json!({"reason": " "})).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(state("resume").await, format!("Worker {name} is not draining."));
    for unknown in ["w-9".to_owned(), Uuid::from_u128(9).to_string()] {
        let path = format!("/api/v1/workers/{unknown}/drain");
        let answer = server.send_post(&path, &ada, because()).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{unknown}");
    }

    let draining = async |is: bool| {
        let path = format!("/api/v1/workers?draining={is}");
        let workers = server.send_get(&path, &ada).await.json()["workers"].clone();
        workers.as_array().expect("workers").iter().any(|worker| worker["name"] == json!(name))
    };
    assert_eq!((draining(true).await, draining(false).await), (false, true));
    post(&ada, "drain", because()).await.json();
    assert_eq!((draining(true).await, draining(false).await), (true, false));
    assert_eq!(
        state("drain").await,
        format!("Worker {name} is already being drained by ada: a new kernel")
    );
    let drain = view().await["drain"].clone();
    assert_eq!(
        (&drain["by"], &drain["reason"], &drain["drained"]),
        (&json!("ada"), &json!("a new kernel"), &json!(false))
    );
    let overview = server.send_get("/api/v1/overview", &ada).await.json();
    assert_eq!(overview["workers"], json!({"alive": 1, "capacity": 0}));
    let end = store::runs::RunEnd::Succeeded { result: serde_json::Map::new(), output: json!({}) };
    store::runs::finish_run(server.db.worker(), run, worker, &end).await.expect("an end");
    let listed = server.send_get("/api/v1/workers", &ada).await.json();
    assert_eq!(listed["workers"][0]["drain"]["drained"], true);
    post(&ada, "resume", because()).await.json();
    assert_eq!(view().await["drain"], Value::Null);

    let audit = server.send_get("/api/v1/audit", &ada).await.json();
    let mut actions: Vec<&str> = audit["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter(|entry| entry["subject"] == json!(name))
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    actions.sort_unstable();
    assert_eq!(actions, ["worker.drain", "worker.resume"]);
    let events: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM event WHERE topic = 'runs' AND kind = 'worker' AND body ->> 'worker' \
         = $1",
    )
    .bind(&name)
    .fetch_one(server.db.owner())
    .await
    .expect("a number");
    assert_eq!(events, 2);

    store::workers::end_worker(server.db.worker(), worker, "test").await.expect("an end");
    assert!(state("drain").await.starts_with(&format!("Worker {name} has ended.")));
    assert_eq!(view().await["may_drain"]["allowed"], false);
}

#[tokio::test]
async fn search_finds_resources_by_name() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    server.committed(&ada, &bo).await.json();
    let root = server.person("root", [Permission::Admin]).await;
    let found = async |query: &str, who: &str| {
        let answer = server.send_get(&format!("/api/v1/search?{query}"), who).await.json();
        let hits = answer["hits"].as_array().expect("hits").clone();
        let name = |hit: &Value| {
            let named = ["name", "fqdn", "role", "title"]
                .iter()
                .find_map(|key| hit[key].as_str())
                .unwrap_or_default();
            format!("{} {named}", hit["kind"].as_str().unwrap_or_default())
        };
        hits.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(found("q=we", &ada).await, ["deployment web"]);
    assert_eq!(found("q=WEB", &ada).await, ["deployment web"], "the search ignores case");
    assert_eq!(found("q=n1.house", &ada).await, ["node n1.house.example.com"]);
    let apps = found("q=app", &ada).await;
    assert!(
        apps.contains(&"role app".to_owned()) && apps.contains(&"review app on n1".to_owned()),
        "{apps:?}"
    );
    assert!(
        found("q=1", &ada).await.contains(&"review app on n1".to_owned()),
        "a review is found by its number"
    );
    assert_eq!(found("q=nothing-like-it", &ada).await, Vec::<String>::new());
    assert_eq!(
        found("q=100%25", &ada).await,
        Vec::<String>::new(),
        "wildcards are matched literally"
    );
    let text = "barclamp: {name: storage, version: '1', description: x}\nroles: \
        [{name: ceph-osd, jig: noop}]\n";
    server
        .send_post("/api/v1/barclamps", &ada, json!({"files": {"storage.yml": text}}))
        .await
        .json();
    assert_eq!(
        found("q=ceph", &ada).await,
        ["role ceph-osd"],
        "a role is found even if no deployment has it"
    );
    let hit = server.send_get("/api/v1/search?q=ceph", &ada).await.json()["hits"][0].clone();
    assert_eq!(hit, json!({"kind": "role", "role": "ceph-osd", "barclamp": "storage"}));
    server.send_get("/api/v1/roles/ceph-osd?barclamp=storage", &ada).await.json();
    assert_eq!(found("q=root", &ada).await, Vec::<String>::new(), "only admins find people");
    assert_eq!(found("q=root", &root).await, ["person root"]);
    for wrong in ["", "q=", "q=%20", "q=a&kind=node", &format!("q={}", "x".repeat(201))] {
        let answer = server.send_get(&format!("/api/v1/search?{wrong}"), &ada).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn first_steps_reflect_actual_events() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    // As in the demo. Only people who may propose get the list.
    sqlx::query("UPDATE person SET permissions = '{operator, reviewer}' WHERE name = 'bo'")
        .execute(server.db.owner())
        .await
        .expect("a permission");
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let eve = server.person("eve", [Permission::Viewer]).await;
    let steps_of = async |cookie: &str| {
        server.send_get("/api/v1/overview", cookie).await.json()["first_steps"].clone()
    };
    let steps = async || steps_of(&ada).await;
    let is = |edited, submitted, reviewed, committed, ran, retried| {
        json!(
            {
                "edited": edited, "submitted": submitted, "reviewed": reviewed,
                "committed": committed, "run_ended": ran, "retried": retried
            }
        )
    };
    let of = |steps: &Value| {
        let mut steps = steps.as_object().expect("steps").clone();
        let place = (steps.remove("deployment"), steps.remove("review"));
        (Value::Object(steps), place)
    };
    let nothing = is(false, false, false, false, false, false);
    assert_eq!(of(&steps().await).0, nothing);
    let control = Control::new(Store::over(server.db.app().clone()));
    let seeded = server.people.sign_in_as_owner("ada").await.expect("ada");
    let binds = [(
        RoleName::parse("app").expect("a role"),
        Fqdn::parse("n1.house.example.com").expect("a name"),
    )];
    control
        .propose_binding(&seeded, "edge", "First application on the edge", &binds)
        .await
        .expect("a change");
    assert_eq!(
        of(&steps().await),
        (nothing, (Some(json!("web")), Some(Value::Null))),
        "a demo begins with these steps"
    );
    let first = server.count("review").await;
    let verdicts = format!("/api/v1/reviews/{first}/verdicts");
    server.send_post(&verdicts, &bo, json!({"kind": "approve", "reason": "fine"})).await.json();
    assert_eq!(
        of(&steps().await).0,
        is(false, false, false, false, false, false),
        "the approval must not complete a step of the author"
    );
    assert_eq!(
        of(&steps_of(&bo).await).0,
        is(false, false, true, false, false, false),
        "a verdict completes a step of the reviewer"
    );
    assert_eq!(
        server.send_get("/api/v1/overview", &eve).await.json()["first_steps"],
        Value::Null,
        "a viewer has no first steps"
    );

    let (id, n1) = (server.id_of("web", &ada).await, server.n1(&ada).await);
    let edit = json!([{"edit": "bind", "deployment": id, "node": n1, "role": "app"}]);
    let (proposal, version) = server.draft(&ada, "web", edit).await;
    let (reported, (place, review)) = of(&steps().await);
    assert_eq!(reported, is(true, false, false, false, false, false));
    assert_eq!((place, review), (Some(json!("web")), Some(Value::Null)));
    let discard = json!({"version": version});
    server.send_post(&format!("/api/v1/proposals/{proposal}/discard"), &ada, discard).await.json();

    server.committed(&ada, &bo).await.json();
    let (reported, (place, review)) = of(&steps().await);
    assert_eq!(reported, is(true, true, true, true, false, false));
    assert_eq!(place, Some(json!("web")));
    assert!(review.is_some_and(|id| id.is_i64()));

    let run = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, \
        blueprint_number, epoch, content_hash, exclusive, state, outcome, \
               ended_at, lease_until) SELECT id, node_id, concurrency_group_id, generation, \
               generation, 1, content_hash, false, 'ended', $1, now(), now() \
               FROM step WHERE generation = 2 ORDER BY rank, id LIMIT 1";
    sqlx::query(run).bind("failed").execute(server.db.owner()).await.expect("a run");
    assert_eq!(of(&steps().await).0, is(true, true, true, true, true, false));
    sqlx::query(run).bind("succeeded").execute(server.db.owner()).await.expect("a run");
    assert_eq!(
        of(&steps().await).0,
        is(true, true, true, true, true, false),
        "the automatic retry completes the step"
    );
    let retry = "INSERT INTO audit (actor, action, subject) SELECT $1, 'step.retry', \
        noderole_id::text FROM step WHERE generation = 2 ORDER BY rank, id LIMIT \
                 1";
    sqlx::query(retry).bind(server.ada.0).execute(server.db.owner()).await.expect("an entry");
    assert_eq!(of(&steps().await).0, is(true, true, true, true, true, true));

    let hours = server.send_get("/api/v1/overview", &ada).await.json()["hours"].clone();
    let hours = hours.as_array().expect("hours");
    let sum =
        |state: &str| hours.iter().map(|hour| hour[state].as_i64().expect("a number")).sum::<i64>();
    assert_eq!((hours.len(), sum("runs"), sum("failed")), (24, 2, 1));
    assert!(
        hours
            .windows(2)
            .all(|two| two[1]["from"].as_i64()
                == two[0]["from"].as_i64().map(|from| from + 3_600_000))
    );
}
