//! Values over REST: the data of a noderole and the input of a run, each with its source, and the
//! results of attempts.

use serde_json::{Map, json};
use store::runs::RunEnd;

use super::change_flow::in_progress;
use super::*;

async fn import_shaped(server: &TestServer, cookie: &str) {
    let files = json!({"files": {"shaped/shaped.yml": SCHEMA_BARCLAMP}});
    server.send_post("/api/v1/barclamps", cookie, files).await.json();
}

async fn noderole_of(server: &TestServer, run: engine::ids::RunId, cookie: &str) -> String {
    let view = server.send_get(&format!("/api/v1/runs/{run}"), cookie).await.json();
    view["run"]["noderole"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn each_value_names_its_source() {
    let server = TestServer::new().await;
    let (run, worker) = in_progress(&server).await;
    let ada = server.cookie().await;
    let noderole = noderole_of(&server, run, &ada).await;
    let given = json!({"data": {"app": {"port": 8080, "key": {"$secret": "db", "version": 1}}},
        "sources": {
        "/app/port": {"step": server.step(&noderole).await, "layer": "output", "run": run},
        "/app/key": {"step": server.step(&noderole).await, "layer": {"profile": "small"}}}});
    sqlx::query("UPDATE run SET input = $1, surroundings = '{\"results\": []}' WHERE id = $2")
        .bind(&given)
        .bind(run.0)
        .execute(server.db.owner())
        .await
        .expect("the owner has the permission");
    let found = Map::from_iter([
        ("volume".to_owned(), json!("v-1")),
        ("longest".to_owned(), json!("x".repeat(100_000))),
    ]);
    let whole = Value::Object(found.clone());
    let end = RunEnd::Failed { reason: "no luck".into(), found };
    store::runs::finish_run(server.db.worker(), run, worker, &end).await.expect("a finished run");

    let reported = server.send_get(&format!("/api/v1/runs/{run}/data"), &ada).await.json();
    let values = &reported["page"]["values"];
    assert_eq!(
        (&reported["page"]["all"], &reported["surroundings"]),
        (&json!(2), &json!({"results": []}))
    );
    assert_eq!(
        (&values[0]["path"], &values[0]["value"], &values[0]["layer"]),
        (&json!("/app/key"), &json!("(secret)"), &json!("profile"))
    );
    assert_eq!((&values[1]["run"], &values[1]["noderole"]), (&json!(run), &json!(noderole)));
    assert_eq!(values[1]["source"], "output of app on n1.house.example.com");
    let some = server.send_get(&format!("/api/v1/runs/{run}/data?filter=PORT"), &ada).await.json();
    assert_eq!(
        (&some["page"]["matching"], &some["page"]["values"][0]["value"]),
        (&json!(1), &json!("8080"))
    );

    let node = server.n1(&ada).await;
    let path = format!("/api/v1/nodes/{}/results", node.as_str().expect("an id"));
    let page = server.send_get(&path, &ada).await.json();
    let result = &page["results"][0];
    assert_eq!(
        (&result["run"], &result["outcome"], &result["role"]),
        (&json!(run), &json!("failed"), &json!("app"))
    );
    assert_eq!((&page["all"], &page["next"]), (&json!(1), &Value::Null));
    let begins = result["result"].as_str().expect("text");
    assert!(
        begins.starts_with("{\"volume\": \"v-1\", \"longest\": \"xx") && begins.ends_with("xx…"),
        "{begins}"
    );
    assert_eq!(
        (begins.chars().count(), &result["bytes"]),
        (501, &json!(whole.to_string().len())),
        "the page shows only the beginning of the result"
    );
    assert_eq!(
        server.send_get(&format!("/api/v1/runs/{run}"), &ada).await.json()["result"],
        whole,
        "the run has the whole result"
    );
    for (query, found) in [
        (format!("before={run}"), 0),
        ("outcome=failed&role=app".to_owned(), 1),
        ("outcome=late".to_owned(), 0),
        ("role=base".to_owned(), 0),
        ("sort=run".to_owned(), 1),
        (format!("sort=run&before=run~-{run}"), 0),
    ] {
        let some = server.send_get(&format!("{path}?{query}"), &ada).await.json();
        assert_eq!(
            (some["results"].as_array().map(Vec::len), &some["all"]),
            (Some(found), &json!(1)),
            "{query}"
        );
    }
    assert_eq!(
        server.send_get(&format!("{path}?outcome=purple"), &ada).await.status,
        StatusCode::BAD_REQUEST
    );

    // A value names the edit that first set it.
    let bo = server.person("bea", [Permission::Viewer, Permission::Reviewer]).await;
    let web = server.id_of("web", &ada).await;
    for data in [json!({"n": 1, "m": 1}), json!({"n": 1, "m": 2})] {
        let edits =
            json!([{"edit": "set_role_data", "deployment": web, "role": "app", "data": data}]);
        server.passes(&ada, "web", edits, &[&bo]).await;
    }
    let now = server.send_get(&format!("/api/v1/noderoles/{noderole}/data"), &ada).await.json();
    let values = now["page"]["values"].as_array().expect("a list").clone();
    let of =
        |path: &str| values.iter().find(|value| value["path"] == path).cloned().expect("it exists");
    assert_eq!(
        (&of("/n")["edit"]["blueprint"], &of("/n")["edit"]["by"]),
        (&json!(3), &json!("ada"))
    );
    assert_eq!(
        (&of("/m")["edit"]["blueprint"], &of("/m")["layer"]),
        (&json!(4), &json!("deployment_role"))
    );

    let nobody =
        server.send_get("/api/v1/noderoles/00000000-0000-0000-0000-000000000001/data", &ada).await;
    assert_eq!(nobody.status, StatusCode::NOT_FOUND);
    let long = format!("/api/v1/noderoles/{noderole}/data?filter={}", "x".repeat(501));
    assert_eq!(server.send_get(&long, &ada).await.status, StatusCode::BAD_REQUEST);
    let odd = format!("/api/v1/noderoles/{noderole}/data?search=x");
    assert_eq!(server.send_get(&odd, &ada).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn values_are_paged_without_gaps() {
    let server = TestServer::new().await;
    let (run, _) = in_progress(&server).await;
    let ada = server.cookie().await;
    let noderole = noderole_of(&server, run, &ada).await;
    let bo = server.person("bea", [Permission::Viewer, Permission::Reviewer]).await;
    let web = server.id_of("web", &ada).await;
    let many: Map<String, Value> =
        (0..750).map(|n| (format!("key/{n:03}~"), json!({"a": n}))).collect();
    let edits = json!([{"edit": "set_role_data", "deployment": web, "role": "app", "data": many}]);
    server.passes(&ada, "web", edits, &[&bo]).await;
    let path = format!("/api/v1/noderoles/{noderole}/data?filter=key");
    let (mut paths, mut sizes, mut next) = (Vec::new(), Vec::new(), path.clone());
    loop {
        let page = server.send_get(&next, &ada).await.json()["page"].clone();
        let values = page["values"].as_array().expect("a list");
        sizes.push(values.len());
        paths.extend(values.iter().map(|value| value["path"].as_str().expect("a path").to_owned()));
        let Some(after) = page["next"].as_str() else { break };
        next = format!("{path}&after={}", after.replace('/', "%2F"));
    }
    let junk = server.send_get(&format!("{path}&after=junk"), &ada).await;
    assert_eq!(junk.status, StatusCode::BAD_REQUEST, "{}", junk.text());
    assert!(junk.text().contains("is not the path of a value"), "{}", junk.text());
    let expected: Vec<String> = (0..750).map(|n| format!("/key~1{n:03}~0/a")).collect();
    assert_eq!((sizes, paths), (vec![200, 200, 200, 150], expected));
    let panel = server.send_get(&format!("/api/v1/noderoles/{noderole}"), &ada).await.json();
    assert_eq!(panel["provenance"].as_array().expect("a list").len(), 200);
    assert!(panel["values"].as_u64() >= Some(750));
}

const SCHEMA_BARCLAMP: &str = "barclamp: {name: shaped, version: '1'}
roles:
- name: shaped
  jig: noop
  attribs:
  - {name: shape, schema: {type: map, mapping: {port: {type: int, required: true, range: {min: 1}}, tags: {type: seq, sequence: [{type: str}]}}}}
";

#[tokio::test]
async fn invalid_data_is_rejected_with_pointers() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    import_shaped(&server, &ada).await;
    let (web, node) = (server.id_of("web", &ada).await, server.n1(&ada).await);
    let edits = json!([
        {
            "edit": "use_barclamp",
            "deployment": web,
            "barclamp": "shaped",
            "version": server.version(&ada, "shaped").await
        },
        {"edit": "add_role", "deployment": web, "role": "shaped"},
        {"edit": "bind", "deployment": web, "node": node, "role": "shaped"},
    ]);
    let (proposal, version) = server.draft(&ada, "web", edits).await;
    let path = format!("/api/v1/proposals/{proposal}/edits");
    let of_role = |data: Value| {
        json!(
            {"edit": "set_role_data", "deployment": web, "role": "shaped", "data": data}
        )
    };
    let own = |data: Value| {
        json!(
            {"edit": "set_noderole_data", "node": node, "noderole": "shaped", "data": data}
        )
    };
    let reported = async |edits: Value| {
        let problem = server
            .send_post(&path, &ada, json!({"version": version, "edits": edits}))
            .await
            .problem();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(422), &json!("schema_mismatch")),
            "{problem}"
        );
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.ends_with("See GET /api/v1/roles/NAME."), "{detail}");
        let errors = problem["errors"].as_array().expect("a list").clone();
        errors
            .iter()
            .map(|e| {
                format!(
                    "{} {}",
                    e["at"].as_str().unwrap_or("?"),
                    e["detail"].as_str().unwrap_or("?")
                )
            })
            .collect::<Vec<_>>()
    };
    let wrong = json!([
        of_role(json!({"other": 1})),
        of_role(json!({"shape": {"port": 0, "tags": ["a", 7]}}))
    ]);
    let expected = [
        "/edits/1/data/shape/port must be at least 1",
        "/edits/1/data/shape/tags/1 is a number, but must be a string",
    ];
    assert_eq!(reported(wrong).await, expected);
    assert_eq!(
        reported(json!([own(json!({"shape": {"tags": []}}))])).await,
        ["/edits/0/data/shape/port is required but missing"]
    );
    assert_eq!(
        reported(json!([own(json!({"shape": 5}))])).await,
        ["/edits/0/data/shape is a number, but must be an object"]
    );
    assert_eq!(server.count("edit").await, 3, "the rejected edit must not be stored");
    // The deployment's data supplies the missing part in the same edit.
    let fine =
        json!([of_role(json!({"shape": {"port": 80}})), own(json!({"shape": {"tags": ["a"]}}))]);
    server.append(&ada, proposal, version, fine).await;
}

#[tokio::test]
async fn noderole_uses_data_of_its_binding_deployment() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let bo = server.person("bea", [Permission::Viewer, Permission::Reviewer]).await;
    import_shaped(&server, &ada).await;
    let (system, web, node) = (
        server.id_of("system", &ada).await,
        server.id_of("web", &ada).await,
        server.n1(&ada).await,
    );
    let version = server.version(&ada, "shaped").await;
    let of = |deployment: &Value, port: u16| {
        vec![
            json!(
                {
                    "edit": "use_barclamp", "deployment": deployment, "barclamp": "shaped",
                    "version": version
                }
            ),
            json!({"edit": "add_role", "deployment": deployment, "role": "shaped"}),
            json!(
                {
                    "edit": "set_role_data", "deployment": deployment, "role": "shaped", "data": {
                        "shape": {"port": port}
                    }
                }
            ),
        ]
    };
    let mut above = of(&system, 80);
    above.push(json!({"edit": "bind", "deployment": system, "node": node, "role": "shaped"}));
    server.passes(&ada, "system", json!(above), &[&bo]).await;
    // The node moves to a child deployment. Its noderoles stay in the deployment where they are
    // bound.
    let mut below = of(&web, 81);
    below.push(json!({"edit": "bind", "deployment": web, "node": node, "role": "app"}));
    server.passes(&ada, "web", json!(below), &[&bo]).await;
    let noderole: uuid::Uuid = sqlx::query_scalar("SELECT id FROM noderole WHERE role = 'shaped'")
        .fetch_one(server.db.owner())
        .await
        .expect("a noderole");
    let path = format!("/api/v1/noderoles/{noderole}");
    assert_eq!(server.send_get(&path, &ada).await.json()["deployment"], "system");
    let values =
        server.send_get(&format!("{path}/data"), &ada).await.json()["page"]["values"].clone();
    assert_eq!(
        (&values[0]["path"], &values[0]["value"]),
        (&json!("/shape/port"), &json!("80")),
        "{values}"
    );
    assert_eq!(
        (&values[0]["layer"], &values[0]["edit"]["blueprint"]),
        (&json!("deployment_role"), &json!(2))
    );
}

impl TestServer {
    async fn version(&self, cookie: &str, barclamp: &str) -> Value {
        let catalog = self.send_get("/api/v1/barclamps", cookie).await.json();
        let versions = catalog["versions"].as_array().expect("a list").clone();
        versions
            .into_iter()
            .find(|version| version["barclamp"] == barclamp)
            .expect("an imported barclamp")["hash"]
            .clone()
    }

    pub(super) async fn step(&self, noderole: &str) -> Value {
        let id: uuid::Uuid =
            sqlx::query_scalar("SELECT id FROM step WHERE noderole_id = $1::text::uuid")
                .bind(noderole)
                .fetch_one(self.db.owner())
                .await
                .expect("a step");
        json!(id)
    }
}

#[tokio::test]
async fn review_names_secrets_by_version() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let web = server.send_get("/api/v1/deployments/web/board", &ada).await.json()["id"].clone();
    let secret = |version: u32| json!({"$secret": "db/password", "version": version});
    let data = |data: Value| {
        json!(
            {"edit": "set_role_data", "deployment": web, "role": "app", "data": data}
        )
    };
    let bind =
        json!({"edit": "bind", "deployment": web, "node": server.n1(&ada).await, "role": "app"});
    let reviewed = async |edits: Value| {
        let draft = server.draft(&ada, "web", edits).await;
        let id = server.submit(&ada, draft).await;
        (id, server.send_get(&format!("/api/v1/reviews/{id}"), &bo).await.json())
    };
    let has_risk =
        |review: &Value| review["risks"].as_array().expect("a list").contains(&json!("secret"));
    let commit = async |id: i64| {
        server
            .send_post(&format!("/api/v1/reviews/{id}/verdicts"), &bo, json!({"kind": "approve"}))
            .await
            .json();
        server
            .send_post(&format!("/api/v1/reviews/{id}/commit"), &ada, json!({"name": "web"}))
            .await
            .json();
    };

    let (id, review) = reviewed(json!([bind, data(json!({"key": secret(1)}))])).await;
    let used = &review["impact"]["secrets"][0];
    assert_eq!(
        (&used["change"], &used["secret"], &used["role"]),
        (&json!("added"), &secret(1), &json!("app")),
        "{used}"
    );
    assert!(has_risk(&review), "{review}");
    commit(id).await;
    let (id, review) = reviewed(json!([data(json!({"key": secret(2)}))])).await;
    let used = &review["impact"]["secrets"][0];
    assert_eq!(
        (&used["change"], &used["secret"], &used["was"]),
        (&json!("replaced"), &secret(2), &secret(1)),
        "{used}"
    );
    assert!(has_risk(&review), "{review}");
    commit(id).await;
    let (_, review) = reviewed(json!([data(json!({"port": 80}))])).await;
    let used = &review["impact"]["secrets"][0];
    assert_eq!((&used["change"], &used["secret"]), (&json!("removed"), &secret(2)), "{used}");
    assert!(!has_risk(&review), "{review}");
}

#[tokio::test]
async fn review_shows_effective_values_of_role_data() {
    let server = TestServer::new().await;
    in_progress(&server).await;
    let ada = server.cookie().await;
    let web = server.id_of("web", &ada).await;
    let n1 = server.n1(&ada).await;
    let role = json!(
        {
            "edit": "set_role_data", "deployment": web, "role": "app", "data": {
                "port": 8080,
                "key": {"$secret": "db", "version": 1}
            }
        }
    );
    let (proposal, version) = server.draft(&ada, "web", json!([role])).await;
    let review = server.submit(&ada, (proposal, version)).await;
    let values = async |review: i64, resource: &str| {
        let path = format!("/api/v1/reviews/{review}{resource}");
        server.send_get(&path, &ada).await.json()["role_values"].clone()
    };
    let port = |values: &Value, overridden: i64| {
        let found = values.as_array().expect("values").iter().find(|v| v["path"] == "/port");
        let expected = json!({"deployment": web, "role": "app", "path": "/port", "before": null,
            "after": {"value": "8080", "source": "deployment role"}, "noderoles": 1,
            "overridden": overridden});
        assert_eq!(found, Some(&expected), "{values}");
    };
    let all = values(review, "").await;
    port(&all, 0);
    assert!(all.to_string().contains("(secret db version 1)"), "{all}");
    assert_eq!(values(review, "/difference").await, all);
    let text =
        server.send_get(&format!("/api/v1/reviews/{review}/difference?format=text"), &ada).await;
    let line = "web: app /port: no value -> 8080 (deployment role). Applies to 1 noderole.";
    assert!(text.text().contains(line), "{}", text.text());

    // The noderole overrides the value, so the change has no effect.
    let own =
        json!({"edit": "set_noderole_data", "node": n1, "noderole": "app", "data": {"port": 9}});
    let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
    let version = board["proposal"]["version"].as_i64().expect("a version");
    let version = server.append(&ada, proposal, version, json!([own])).await;
    let review = server.submit(&ada, (proposal, version)).await;
    port(&values(review, "").await, 1);
    let text =
        server.send_get(&format!("/api/v1/reviews/{review}/difference?format=text"), &ada).await;
    assert!(text.text().contains("No effect: 1 noderole overrides it."), "{}", text.text());
}

const CHECKED_BARCLAMP: &str = "barclamp: {name: checked, version: 'VERSION'}
roles:
- name: checked
  jig: script
  template: {port: PORT, mode: fast}
  check: {script: alive, interval: 30s, timeout: 5s, failures: 2}
";

impl TestServer {
    /// Imports a version of the barclamp `checked` and returns its hash.
    async fn import_checked(&self, cookie: &str, version: &str, port: &str) -> Value {
        let barclamp = CHECKED_BARCLAMP.replace("VERSION", version).replace("PORT", port);
        let script = "#!/bin/sh\ntrue\n";
        let files = json!({"checked/checked.yml": barclamp,
            "checked/scripts/checked/start": script, "checked/scripts/checked/alive": script});
        let imported =
            self.send_post("/api/v1/barclamps", cookie, json!({"files": files})).await.json();
        imported["barclamps"][0]["hash"].clone()
    }
}

#[tokio::test]
async fn review_shows_changed_template_values() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let (web, node) = (server.id_of("web", &ada).await, server.n1(&ada).await);
    let uses = |version: Value| {
        json!(
            {"edit": "use_barclamp", "deployment": web, "barclamp": "checked", "version": version}
        )
    };
    let first = server.import_checked(&ada, "1", "80").await;
    let edits = json!([
        uses(first),
        {"edit": "add_role", "deployment": web, "role": "checked"},
        {"edit": "set_role_data", "deployment": web, "role": "checked", "data": {"mode": "slow"}},
        {"edit": "bind", "deployment": web, "node": node, "role": "checked"},
    ]);
    server.passes(&ada, "web", edits, &[&bo]).await;
    let second = server.import_checked(&ada, "2", "81").await;
    let draft = server.draft(&ada, "web", json!([uses(second)])).await;
    let review = server.submit(&ada, draft).await;
    let found = server.send_get(&format!("/api/v1/reviews/{review}"), &ada).await.json();
    // The deployment's data decides `/mode` in both versions, so the change has no effect on it.
    let expected = json!([{"deployment": web, "role": "checked", "path": "/port",
        "before": {"value": "80", "source": "role template"},
        "after": {"value": "81", "source": "role template"}, "noderoles": 1, "overridden": 0}]);
    assert_eq!(found["role_values"], expected, "{}", found["difference"]);

    let node = node.as_str().expect("an id");
    let path = format!("/api/v1/reviews/{review}/noderole?node={node}&noderole=checked");
    let shown = server.send_get(&path, &ada).await.json();
    assert_eq!(
        shown["check"],
        "every 30 s, at most 5 s each; after 2 failures in a row, the step runs again, once"
    );
}

#[tokio::test]
async fn noderole_names_why_its_check_cannot_run() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let (web, node) = (server.id_of("web", &ada).await, server.n1(&ada).await);
    let version = server.import_checked(&ada, "1", "80").await;
    let edits = json!([
        {"edit": "use_barclamp", "deployment": web, "barclamp": "checked", "version": version},
        {"edit": "add_role", "deployment": web, "role": "checked"},
        {"edit": "bind", "deployment": web, "node": node, "role": "checked"},
    ]);
    server.passes(&ada, "web", edits, &[&bo]).await;
    let worker = change_flow::working(&server, &["script"]).await;
    let id = node.as_str().expect("an id").parse().expect("an id");
    store::runs::set_node_alive(server.db.owner(), id, true).await.expect("a node");
    let limits = engine::anneal::Limits::default();
    let claimed = store::runs::claim_runs(server.db.worker(), limits).await.expect("a claim");
    let lease = Duration::from_secs(60);
    store::runs::lease_runs(server.db.worker(), worker, &["script"], 10, lease)
        .await
        .expect("a lease");
    let end = RunEnd::Succeeded { result: Map::new(), output: json!({}) };
    store::runs::finish_run(server.db.worker(), claimed.runs[0], worker, &end)
        .await
        .expect("an end");

    let steps = server.send_get("/api/v1/steps?unchecked=true", &ada).await.json();
    let step = &steps["steps"][0];
    assert_eq!(
        (&step["noderole"], &step["state"], &step["unchecked"]),
        (&json!("checked"), &json!("active"), &json!(true)),
        "{steps}"
    );
    let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
    assert_eq!(
        board["omitted"]["unchecked"], 1,
        "the count of the board includes listed noderoles"
    );
    let path = format!("/api/v1/noderoles/{}", step["id"].as_str().expect("an id"));
    assert_eq!(server.send_get(&path, &ada).await.json()["stale"], false);
    sqlx::query("UPDATE step SET stale = true WHERE state = 'active' AND action = 'run'")
        .execute(server.db.owner())
        .await
        .expect("an update");
    let stale = server.send_get(&path, &ada).await.json();
    assert_eq!(stale["stale"], true);
    assert_eq!(
        stale["reasons"][0],
        "The input changed since the last run. Propose to run the step again."
    );
    let reasons = async || server.send_get(&path, &ada).await.json()["reasons"].to_string();
    let can = "The check has not run. It runs as soon as a worker can run it.";
    assert!(reasons().await.contains(can), "{}", reasons().await);
    let because = json!({"reason": "a test"});
    server.send_post("/api/v1/deployments/web/hold", &ada, because.clone()).await.json();
    assert!(
        reasons().await.contains("It cannot run: the deployment is on hold."),
        "{}",
        reasons().await
    );
    server.send_post("/api/v1/deployments/web/release", &ada, because).await.json();
    assert!(reasons().await.contains(can), "{}", reasons().await);
    store::workers::end_worker(server.db.worker(), worker, "test").await.expect("an end");
    assert!(
        reasons().await.contains("It cannot run: no worker is running."),
        "{}",
        reasons().await
    );
}
