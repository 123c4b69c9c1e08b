//! The path of a change over REST, from the proposal to the run's log.

use api::At;
use api::live::Live;
use api::runs::RunState;
use control::Demo;
use control::DemoDeployment;
use engine::anneal::Limits;
use engine::gate::Policy;
use engine::ids::{DeploymentName, Fqdn, NodeId, RoleName, RunId};
use serde_json::json;
use store::runs::{LogPosition, RunEnd};
use store::workers::{NewWorker, WorkerId};
use uuid::Uuid;

use super::streaming::StreamClient;
use super::*;

const LEASE: Duration = Duration::from_secs(600);
const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: For tests}
roles:
  - {name: app, jig: noop}
";

impl TestServer {
    /// Creates the deployments `web` and `edge`, which may bind `app`, one node, and a reviewer.
    /// Returns the reviewer.
    pub(super) async fn furnish(&self) -> PersonId {
        let control = Control::new(Store::over(self.db.app().clone()));
        let files = [("stack/stack.yml".to_owned(), BARCLAMP.as_bytes().to_vec())].into();
        control.import_barclamps(None, &files).await.expect("a barclamp");
        let deployment = |name: &str| DemoDeployment {
            name: DeploymentName::parse(name).expect("a name"),
            roles: vec![RoleName::parse("app").expect("a name")],
        };
        let node = (Fqdn::parse("n1.house.example.com").expect("a name"), "/srv/n1".to_owned());
        let policy = Policy { approvals: 1, by_risk: Default::default(), ..Policy::default() };
        let demo =
            Demo { deployments: vec![deployment("web"), deployment("edge")], nodes: vec![node] };
        control.ensure_genesis(&policy, &demo).await.expect("genesis");
        let bo = NewPerson::human("bo", [Permission::Reviewer]);
        self.people.create_person(None, &bo).await.expect("a person")
    }

    pub(super) async fn send_post(&self, path: &str, cookie: &str, body: Value) -> Answer {
        self.ask(self.post_json(path, cookie, body.to_string())).await
    }
}

#[tokio::test]
async fn change_is_proposed_reviewed_and_run_over_rest() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);

    let nodes = server.send_get("/api/v1/nodes?filter=n1", &ada).await.json();
    let node = &nodes["nodes"][0]["id"];
    let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
    let refused = server.send_post("/api/v1/deployments/web/proposals", &bo, json!({})).await;
    assert_eq!(refused.problem()["code"], "forbidden");
    let proposal = server.send_post("/api/v1/deployments/web/proposals", &ada, json!({})).await;
    assert_eq!(proposal.status, StatusCode::CREATED);
    let proposal = proposal.json()["proposal"].as_i64().expect("an id");
    let at = |action: &str| format!("/api/v1/proposals/{proposal}/{action}");

    let bind = json!({"edit": "bind", "deployment": board["id"], "node": node, "role": "app"});
    let version =
        server.send_get("/api/v1/deployments/web/board", &ada).await.json()["proposal"]["version"]
            .clone();
    let edits = json!({"version": version, "edits": [bind]});
    let version =
        server.send_post(&at("edits"), &ada, edits.clone()).await.json()["version"].clone();
    assert_eq!(
        server.send_post(&at("edits"), &ada, edits).await.status,
        StatusCode::CONFLICT,
        "the edits are for an older version"
    );
    let version =
        server.send_post(&at("undo"), &ada, json!({"version": version})).await.json()["version"]
            .clone();
    let version =
        server.send_post(&at("redo"), &ada, json!({"version": version})).await.json()["version"]
            .clone();
    let submit = json!({"version": version, "title": "app on n1"});
    let review = server.send_post(&at("submit"), &ada, submit).await.json()["review"]
        .as_i64()
        .expect("an id");

    let of = |suffix: &str| format!("/api/v1/reviews/{review}{suffix}");
    let reported = server.send_get(&of("/impact"), &bo).await.json();
    assert_eq!(
        (&reported["starts"]["count"], &reported["interrupted"]),
        (&json!(reported["starts"]["first"].as_array().map_or(0, Vec::len)), &json!(0))
    );
    let node_change = json!({"anchors": [format!("node/{}", node.as_str().expect("an id"))]});
    assert_eq!(
        server.send_post(&of("/viewed"), &bo, node_change).await.json()["viewed"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        server.send_get(&of("/viewed"), &ada).await.json()["viewed"],
        json!([]),
        "each person has their own marks"
    );
    assert_eq!(
        server.send_post(&of("/viewed"), &bo, json!({"anchors": ["somewhere"]})).await.status,
        StatusCode::BAD_REQUEST
    );
    let report = server.send_get(&of("/report"), &bo).await.json();
    assert_eq!(report, server.send_get(&at("report"), &bo).await.json());
    let stages: Vec<&str> = report["stages"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|s| s["stage"].as_str())
        .collect();
    assert_eq!(stages, ["catalog", "edits", "bind", "move", "order", "check", "lint"]);
    assert!(
        report["stages"][2]["effects"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("Bind app")),
        "{report}"
    );
    let approve = json!({"kind": "approve", "reason": "fine"});
    assert_eq!(
        server.send_post(&of("/commit"), &ada, json!({})).await.status,
        StatusCode::CONFLICT,
        "the review is not approved yet"
    );
    assert_eq!(
        server.send_post(&of("/verdicts"), &ada, approve.clone()).await.problem()["code"],
        "author"
    );
    server.send_post(&of("/verdicts"), &bo, approve).await.json();
    let nowhere = json!({"anchor": "somewhere", "body": "?"});
    assert_eq!(
        server.send_post(&of("/threads"), &bo, nowhere).await.status,
        StatusCode::BAD_REQUEST
    );
    let message =
        server.send_post(&of("/threads"), &bo, json!({"anchor": "", "body": "On a Friday?"})).await;
    let thread = message.json()["comment"].as_i64().expect("an id");
    server
        .send_post(
            &format!("/api/v1/threads/{thread}/replies"),
            &ada,
            json!({"body": "It is Monday."}),
        )
        .await
        .json();
    assert_eq!(
        server.send_post(&of("/commit"), &ada, json!({})).await.problem()["code"],
        "open_threads"
    );
    let resolve = format!("/api/v1/threads/{thread}/resolve");
    assert_eq!(
        server.send_post(&resolve, &ada, json!({})).await.status,
        StatusCode::FORBIDDEN,
        "an author cannot resolve the thread"
    );
    server.send_post(&resolve, &bo, json!({})).await.json();
    let discussion = server.send_get(&of("/discussion"), &ada).await.json();
    assert_eq!(
        (&discussion["open"], &discussion["threads"][0]["resolved"]["by"]),
        (&json!(0), &json!("bo"))
    );
    server.send_post(&of("/view"), &bo, json!({})).await.json();
    assert_eq!(server.send_get(&of("/since"), &bo).await.json()["before"], Value::Null);
    assert_eq!(
        server.send_post(&of("/commit"), &ada, json!({})).await.json(),
        json!({"blueprint": 2})
    );
    assert_eq!(server.send_get(&of(""), &bo).await.json()["state"], "committed");
    assert_eq!(server.send_get(&of("/report"), &bo).await.problem()["code"], "not_planned");

    let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
    let noderole = board["groups"][0]["roles"][0]["noderoles"][0]["noderole"]
        .as_str()
        .expect("an id")
        .to_owned();
    let path = format!("/api/v1/noderoles/{noderole}");
    assert_eq!(server.send_get(&path, &ada).await.json()["role"], "app");
    let retry =
        server.send_post(&format!("{path}/retry"), &ada, json!({"reason": "why not"})).await;
    assert_eq!(retry.status, StatusCode::CONFLICT, "{}", retry.text());
    assert_eq!(
        server.send_post("/api/v1/execution/off", &ada, json!({"reason": "a pause"})).await.json(),
        json!({"blueprint": 3})
    );
    let line = server.send_get("/api/v1/blueprints?deployment=web", &ada).await.json();
    assert_eq!(
        (&line["blueprints"][0]["number"], &line["head"]),
        (&json!(2), &json!(3)),
        "a switch is not in the history of a deployment"
    );
    assert_eq!(line["blueprints"][0]["approved_by"], json!(["bo"]));
    let compared = server
        .send_get("/api/v1/blueprints/compare?from=3&to=1&deployment=web&format=text", &ada)
        .await;
    let text = compared.text();
    assert!(text.starts_with("from blueprint 3 (") && text.contains("in   web\n"), "{text}");
    let restore = json!({"blueprint": 1});
    assert_eq!(
        server.send_post("/api/v1/deployments/web/restore", &bo, restore.clone()).await.status,
        StatusCode::FORBIDDEN
    );
    let restored = server.send_post("/api/v1/deployments/web/restore", &ada, restore).await;
    assert_eq!(restored.status, StatusCode::CREATED, "{}", restored.text());
    assert_eq!(restored.json()["missing"], json!([]));
    let catalog = server.send_get("/api/v1/barclamps", &bo).await.json();
    let version = &catalog["versions"][0];
    assert_eq!((&version["barclamp"], &version["removed_parts"]), (&json!("stack"), &json!([])));
    assert_eq!(catalog["next"], Value::Null);
    let added = server.add_n2(&ada).await;
    assert_eq!(added.status, StatusCode::CREATED, "{}", added.text());
    let slip = json!({"macs": ["zz", "00:25:90:aa:00:09"], "root": "/srv/slip"});
    let slip = server.send_post("/api/v1/nodes", &ada, slip).await.problem();
    assert!(
        slip["detail"]
            .as_str()
            .is_some_and(|message| message.contains("\"zz\" is not a valid MAC")),
        "{slip}"
    );
    let by_mac = |root: &str| {
        json!(
            {"macs": ["00-25-90-AA-00-01"], "domain": "house.example.com", "root": root}
        )
    };
    assert_eq!(
        server.send_post("/api/v1/nodes", &ada, by_mac("/srv/n3")).await.status,
        StatusCode::CREATED
    );
    let found = server.send_get("/api/v1/nodes?filter=d00-25-90-aa-00-01", &ada).await.json();
    assert_eq!(found["nodes"][0]["fqdn"], "d00-25-90-aa-00-01.house.example.com");
    let twice = server.send_post("/api/v1/nodes", &ada, by_mac("/srv/n4")).await;
    assert_eq!(twice.problem()["code"], "node_exists");
    assert!(twice.text().contains("this is probably the same machine"), "{}", twice.text());
    let again = server
        .send_post(
            "/api/v1/nodes",
            &ada,
            json!({"fqdn": "n2.house.example.com", "root": "/srv/n2"}),
        )
        .await;
    assert_eq!(again.status, StatusCode::CONFLICT);
}

/// Submits a proposal that binds `app` on `n1`. Returns the ids of the node and the review.
async fn submitted_bind(server: &TestServer, ada: &str) -> (Value, Value) {
    let board = server.send_get("/api/v1/deployments/web/board", ada).await.json();
    let node =
        server.send_get("/api/v1/nodes?filter=n1", ada).await.json()["nodes"][0]["id"].clone();
    let proposal = server
        .send_post("/api/v1/deployments/web/proposals", ada, json!({}))
        .await
        .json()["proposal"]
        .clone();
    let version =
        server.send_get("/api/v1/deployments/web/board", ada).await.json()["proposal"]["version"]
            .clone();
    let path = |action: &str| format!("/api/v1/proposals/{proposal}/{action}");
    let bind = json!({"edit": "bind", "deployment": board["id"], "node": node, "role": "app"});
    let edits = json!({"version": version, "edits": [bind]});
    let version = server.send_post(&path("edits"), ada, edits).await.json()["version"].clone();
    let submit = json!({"version": version, "title": "app"});
    let review = server.send_post(&path("submit"), ada, submit).await.json()["review"].clone();
    (node, review)
}

/// Commits a step on a node without a health check. Returns the node.
pub(super) async fn committed(server: &TestServer) -> NodeId {
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let (node, review) = submitted_bind(server, &ada).await;
    server
        .send_post(&format!("/api/v1/reviews/{review}/verdicts"), &bo, json!({"kind": "approve"}))
        .await
        .json();
    server.send_post(&format!("/api/v1/reviews/{review}/commit"), &ada, json!({})).await.json();
    node.as_str().expect("an id").parse().expect("an id")
}

/// A worker with these jigs.
pub(super) async fn working(server: &TestServer, jigs: &[&str]) -> WorkerId {
    let worker = WorkerId(Uuid::new_v4());
    let hello = NewWorker {
        id: worker,
        name: worker.to_string(),
        capacity: 10,
        jigs: jigs.iter().map(|jig| (*jig).to_owned()).collect(),
        host: "here".into(),
        pid: 1,
        version: "0".into(),
    };
    store::workers::ensure_worker(server.db.worker(), &hello, LEASE).await.expect("a worker");
    store::workers::confirm_worker(server.db.worker(), worker).await.expect("a worker");
    worker
}

/// Commits, claims and leases a step. Returns the run and its worker.
pub(super) async fn in_progress(server: &TestServer) -> (RunId, WorkerId) {
    let node = committed(server).await;
    let worker = working(server, &["noop"]).await;
    store::runs::set_node_alive(server.db.owner(), node, true).await.expect("a node");
    let claimed =
        store::runs::claim_runs(server.db.worker(), Limits::default()).await.expect("a claim");
    let leased = store::runs::lease_runs(server.db.worker(), worker, &["noop"], 10, LEASE)
        .await
        .expect("a lease");
    assert_eq!((claimed.runs.len(), leased.len()), (1, 1));
    (claimed.runs[0], worker)
}

#[tokio::test]
async fn growing_log_is_streamed_and_downloaded() {
    let server = TestServer::new().await;
    let (run, worker) = in_progress(&server).await;
    let cookie = server.cookie().await;
    let mut tab = StreamClient::open(&server, &cookie, &format!("topics=run:{run}"), "").await;
    let length = |live: Live| match live {
        Live::Run { run: reported, state, log_bytes, .. } if reported == run => (state, log_bytes),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        length(tab.next_live().await),
        (RunState::Running, 0),
        "the stream starts with the current state"
    );

    // Chunks that end within a character, and invalid UTF-8.
    let mut log: Vec<u8> = "größer 世界\n".repeat(30_000).into_bytes();
    log.extend([0xff, 0x00, b'\n']);
    let mut offset = 0;
    for piece in log.chunks(65_521) {
        let at = LogPosition { log: offset, ..LogPosition::default() };
        store::runs::append_log(server.db.worker(), run, None, at, Duration::ZERO, piece)
            .await
            .expect("an appended chunk");
        offset += piece.len() as u64;
    }
    while length(tab.next_live().await) != (RunState::Running, log.len() as i64) {}

    let file = server.send_get(&format!("/runs/{run}/log"), &cookie).await;
    assert_eq!(
        file.header(header::CONTENT_DISPOSITION),
        format!("attachment; filename=\"run-{run}.log\"")
    );
    assert!(file.body == log, "downloaded {} of {} bytes", file.body.len(), log.len());
    assert!(file.header(header::CONTENT_TYPE).starts_with("text/plain"));
    let part =
        server.send_get(&format!("/api/v1/runs/{run}/log?offset=-100"), &cookie).await.json();
    assert_eq!(
        (part["next"].as_i64(), part["complete"].as_bool()),
        (Some(log.len() as i64), Some(false))
    );

    let end = RunEnd::Succeeded { result: Default::default(), output: json!({}) };
    store::runs::finish_run(server.db.worker(), run, worker, &end).await.expect("a finished run");
    loop {
        if let (RunState::Succeeded, bytes) = length(tab.next_live().await) {
            assert_eq!(bytes, log.len() as i64);
            break;
        }
    }
    let runs = server.send_get("/api/v1/runs?state=succeeded", &cookie).await.json();
    let queued =
        sqlx::query_scalar("SELECT (extract(epoch FROM queued_at) * 1000)::bigint FROM run")
            .fetch_one(server.db.app());
    let queued: i64 = queued.await.expect("a delay");
    for (words, found) in [
        ("deployment=web&node=n1.house.example.com&role=app".to_owned(), 1),
        ("deployment=edge".to_owned(), 0),
        ("role=none".to_owned(), 0),
        (format!("since={}", At(queued - 1)), 1),
        (format!("since={}", At(queued + 1)), 0),
        (format!("until={}", At(queued + 1)), 1),
        (format!("until={}", At(queued - 1)), 0),
    ] {
        let listed = server.send_get(&format!("/api/v1/runs?{words}"), &cookie).await.json();
        assert_eq!(listed["runs"].as_array().map(Vec::len), Some(found), "{words}: {listed}");
    }
    assert_eq!(runs["runs"][0]["id"], run.0);
    assert_eq!(
        server.send_get(&format!("/runs/{}/log", run.0 + 1), &cookie).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn graph_svg_is_self_contained() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let (_, review) = submitted_bind(&server, &ada).await;

    let graph = server.send_get(&format!("/reviews/{review}/graph.svg?color=wave"), &bo).await;
    let picture = String::from_utf8(graph.body.to_vec()).expect("text");
    assert!(
        picture.contains("app") && picture.contains("added") && picture.contains("wave 1"),
        "{picture}"
    );

    let file = server.send_get("/graph/web/graph.svg?longest=count&roles=app", &ada).await;
    assert_eq!(file.header(header::CONTENT_DISPOSITION), "attachment; filename=\"graph-web.svg\"");
    assert!(file.header(header::CONTENT_TYPE).starts_with("image/svg+xml"));
    assert!(file.header(header::CONTENT_SECURITY_POLICY).starts_with("default-src 'none';"));
    let picture = String::from_utf8(file.body.to_vec()).expect("text");
    assert!(picture.contains("web: 0 noderoles, 0 edges · Longest path: 0 noderoles"), "{picture}");
    let file = server.send_get("/graph.svg?color=owner", &ada).await;
    let name = "attachment; filename=\"graph-cluster.svg\"";
    assert_eq!(file.header(header::CONTENT_DISPOSITION), name);
    assert_eq!(
        server.send_get("/graph/nowhere/graph.svg", &ada).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(server.send_get("/reviews/77/graph.svg", &ada).await.status, StatusCode::NOT_FOUND);

    // A page shows the whole graph with a warning. An API client would mistake it for the requested
    // part.
    let page = server.send_get("/graph/web/graph.svg?focus=nope", &ada).await;
    assert_eq!(page.status, StatusCode::OK);
    for path in [
        "/api/v1/graph".to_owned(),
        "/api/v1/deployments/web/graph".to_owned(),
        format!("/api/v1/reviews/{review}/graph"),
    ] {
        let refused = server.send_get(&format!("{path}?focus=nope"), &ada).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
        let detail = refused.problem()["detail"].clone();
        assert!(
            detail
                .as_str()
                .is_some_and(|text| text.starts_with("focus: ") && text.contains("nope")),
            "{detail}"
        );
    }
    let path = format!("/api/v1/reviews/{review}/graph?focus=web:app");
    assert_eq!(server.send_get(&path, &ada).await.status, StatusCode::OK);
}

#[tokio::test]
async fn catalog_is_paged() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let file = |n: usize| {
        (
            format!("b{n}/b{n}.yml"),
            format!("barclamp: {{name: b{n:03}, version: '1'}}\nroles: []\n"),
        )
    };
    let files: std::collections::BTreeMap<String, String> = (0..230).map(file).collect();
    server.send_post("/api/v1/barclamps", &ada, json!({"files": files})).await.json();
    let (mut names, mut sizes, mut path) = (Vec::new(), Vec::new(), "/api/v1/barclamps".to_owned());
    loop {
        let page = server.send_get(&path, &ada).await.json();
        let versions = page["versions"].as_array().expect("a list");
        sizes.push(versions.len());
        names.extend(
            versions.iter().map(|version| version["barclamp"].as_str().expect("a name").to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/barclamps?after={next}");
    }
    let mut expected: Vec<String> =
        (0..230).map(|n| format!("b{n:03}")).chain(["stack".to_owned()]).collect();
    expected.sort();
    assert_eq!((sizes, names), (vec![100, 100, 31], expected));
    let unknown = format!("/api/v1/barclamps?after={}", "0".repeat(64));
    assert_eq!(server.send_get(&unknown, &ada).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        server.send_get("/api/v1/barclamps?after=1", &ada).await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn cancel_requires_permission() {
    let server = TestServer::new().await;
    let (run, _) = in_progress(&server).await;
    let eve = NewPerson::human("eve", [Permission::Viewer]);
    let eve = server.people.create_person(None, &eve).await.expect("a person");
    let (ada, eve) = (server.cookie().await, server.cookie_for(eve).await);
    let path = format!("/api/v1/runs/{run}/cancel");
    assert_eq!(server.send_post(&path, &eve, json!({})).await.problem()["code"], "forbidden");
    server.send_post(&path, &ada, json!({})).await.json();
    assert_eq!(
        server.send_get(&format!("/api/v1/runs/{run}"), &eve).await.json()["run"]["id"],
        run.0
    );
}

#[tokio::test]
async fn targets_are_compared_as_json_and_text() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let page = server.send_get("/api/v1/blueprints", &ada).await.json();
    assert_eq!(
        (page["blueprints"][0]["kind"].as_str(), page["next"].is_null()),
        (Some("genesis"), true)
    );
    let as_kind = async |kind: &str| {
        let request =
            server.get("/api/v1/blueprints/compare?from=1&to=1").header(header::COOKIE, &ada);
        server
            .ask(request.header(header::ACCEPT, kind).body(Body::empty()).expect("a request"))
            .await
    };
    let json = as_kind("application/json").await;
    assert_eq!(json.headers[header::VARY], "accept");
    assert_eq!(json.json()["difference"]["nodes"], json!([]));
    let text = as_kind("text/plain").await;
    assert!(text.headers[header::CONTENT_TYPE].to_str().expect("text").starts_with("text/plain"));
    let text = String::from_utf8(text.body.to_vec()).expect("text");
    assert!(text.contains("No differences.") && text.starts_with("from blueprint 1 ("), "{text}");
    assert!(as_kind("*/*").await.json().is_object(), "JSON is the default");

    let refused = server.send_get("/api/v1/blueprints/compare?from=1&to=x", &ada).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.problem()["detail"].as_str().is_some_and(|d| d.contains("Invalid blueprint")));
    assert_eq!(
        server.send_get("/api/v1/blueprints/compare?from=1&to=7", &ada).await.status,
        StatusCode::NOT_FOUND
    );
    let nowhere = format!("/api/v1/blueprints/compare?from=1&to=1&after=node/{}", Uuid::nil());
    let refused = server.send_get(&nowhere, &ada).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("Invalid value node/"), "{}", refused.text());
    assert!(refused.text().contains("for `after`. Use the `next` value"), "{}", refused.text());
    let unread =
        server.send_get("/api/v1/blueprints/compare?from=1&to=1&after=nowhere", &ada).await;
    assert_eq!(unread.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        server.send_get("/api/v1/reviews/7/difference", &ada).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        server.send_get("/api/v1/reviews/7/impact", &ada).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        server.send_get("/api/v1/reviews/7/viewed", &ada).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn script_is_read_by_its_hash() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let script = format!("#!/bin/sh\necho {} <script>\n", "x".repeat(10_000));
    let files = [
        (
            "tool/tool.yml".to_owned(),
            b"barclamp: {name: tool, version: '1'}\nroles: [{name: saw, jig: script}]\n".to_vec(),
        ),
        ("tool/scripts/saw/10-cut".to_owned(), script.clone().into_bytes()),
    ];
    let control = Control::new(Store::over(server.db.app().clone()));
    control.import_barclamps(None, &files.into()).await.expect("a barclamp");
    let path = format!("/api/v1/scripts/{}", engine::Hash::of_bytes(script.as_bytes()));
    let read = server.send_get(&path, &ada).await;
    assert_eq!((read.status, read.text()), (StatusCode::OK, script.as_str()));
    assert_eq!(read.header(header::CONTENT_TYPE), "text/plain; charset=utf-8");
    assert_eq!(
        read.header("x-content-type-options"),
        "nosniff",
        "browsers must not guess the type of the script"
    );
    assert_eq!(server.send_get(&path, "").await.status, StatusCode::UNAUTHORIZED);
    let other = format!("/api/v1/scripts/{}", engine::Hash::of_bytes(b"no script"));
    assert_eq!(server.send_get(&other, &ada).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.send_get("/api/v1/scripts/x", &ada).await.status, StatusCode::BAD_REQUEST);
}
