//! Lists over REST: fixed sort orders, and cursors.

use std::collections::BTreeSet;

use serde_json::json;

use super::change_flow::committed;
use super::*;
use crate::rest;

#[tokio::test]
async fn unknown_sort_order_is_rejected() {
    let server = TestServer::new().await;
    committed(&server).await;
    let ada = server.cookie().await;
    for (path, known) in [
        ("nodes", "name, -name, state, -state, deployment, -deployment"),
        ("runs", "queued, -queued, state, -state, duration, -duration"),
        ("reviews", "submitted, -submitted, title, -title"),
        (
            "deployments",
            "tree, -tree, name, -name, nodes, -nodes, errors, -errors, blueprint, -blueprint",
        ),
        ("barclamps", "name, -name, imported, -imported, roles, -roles"),
        ("roles", "name, -name, barclamp, -barclamp, jig, -jig, bound, -bound"),
        ("imports", "imported, -imported"),
        ("pending", "since, -since"),
        ("steps", "id, -id"),
        ("tokens", "valid, -valid, created, -created, name, -name"),
        ("me/sessions", "since, -since, last_seen, -last_seen"),
        ("nodes/n1.house.example.com/health-checks", "at, -at"),
        ("nodes/n1.house.example.com/results", "run, -run"),
        ("nodes/n1.house.example.com/noderoles", "order, -order"),
    ] {
        let refused = server.send_get(&format!("/api/v1/{path}?sort=color"), &ada).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{path}");
        let detail = refused.problem()["detail"].as_str().expect("a text").to_owned();
        assert!(
            detail.contains("unknown sort order") && detail.contains(known),
            "{path}: {detail}"
        );
        for word in known.split(", ").chain([""]) {
            let taken = server.send_get(&format!("/api/v1/{path}?sort={word}"), &ada).await;
            assert_eq!(taken.status, StatusCode::OK, "{path}: sort={word} must be accepted");
        }
        assert_eq!(
            server.send_get(&format!("/api/v1/{path}?order=name"), &ada).await.status,
            StatusCode::BAD_REQUEST
        );
    }
}

#[tokio::test]
async fn node_filter_matches_literally() {
    let server = TestServer::new().await;
    committed(&server).await;
    let ada = server.cookie().await;
    let found = async |text: &str| {
        let nodes = server.send_get(&format!("/api/v1/nodes?filter={text}"), &ada).await.json();
        nodes["nodes"].as_array().expect("a list").len()
    };
    assert!(found("n1").await > 0);
    for wild in ["%25", "_", "n%25", "n_.house", "%5C"] {
        assert_eq!(found(wild).await, 0, "{wild}");
    }
}

/// The lists of the document, with the names of their query parameters.
fn lists() -> Vec<(String, BTreeSet<String>)> {
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").iter();
    let words = |item: &Value| -> BTreeSet<String> {
        let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
        parameters.filter_map(|word| word["name"].as_str()).map(str::to_owned).collect()
    };
    let all = paths.map(|(path, item)| (path.clone(), words(item)));
    all.filter(|(_, words)| words.contains("sort")).collect()
}

#[tokio::test]
async fn list_without_order_has_a_limit() {
    let server = TestServer::new().await;
    let n1 = committed(&server).await;
    let ada = server.cookie().await;
    let process = store::background_tasks::ProcessRow {
        id: uuid::Uuid::nil(),
        kind: "server",
        name: "s".to_owned(),
    };
    let task = |task| store::background_tasks::TaskReport {
        task,
        purpose: "Tests.",
        period: Duration::from_secs(1),
        started_ago: None,
        ended_ago: None,
        took: None,
        outcome: None,
        error: None,
        failures: 0,
        due_in: None,
    };
    let tasks = [task("a"), task("b")];
    let lease = Duration::from_secs(60);
    store::background_tasks::report(server.db.app(), &process, &tasks, lease)
        .await
        .expect("a report");
    // A second node with the role, in a proposal.
    let added = json!({"fqdn": "n2.house.example.com", "root": "/srv/n2"});
    let n2 = server.send_post("/api/v1/nodes", &ada, added).await.json()["node"].clone();
    let id = server.id_of("web", &ada).await;
    let edit = json!({"edit": "bind", "deployment": id, "node": n2, "role": "app"});
    server.draft(&ada, "web", json!([edit])).await;

    for (path, items, more, all) in [
        ("/api/v1/deployments/web/noderoles?role=app", "noderoles", json!(1), 2),
        ("/api/v1/search?q=house", "hits", json!(["node"]), 2),
        ("/api/v1/background-tasks?", "background_tasks", json!(true), 2),
    ] {
        let read = async |limit: &str| {
            let path = format!("{path}&{limit}").replace("?&", "?");
            server.send_get(path.trim_end_matches(['?', '&']), &ada).await
        };
        let count = |answer: &Value| answer[items].as_array().expect("a list").len();
        assert_eq!(count(&read("").await.json()), all, "{path}");
        assert_eq!(count(&read("limit=200").await.json()), all, "{path}");
        let page = read("limit=1").await.json();
        assert_eq!((count(&page), &page["more"]), (1, &more), "{path}: {page}");
        for limit in ["0", "201", "-1", "all", ""] {
            let refused = read(&format!("limit={limit}")).await.problem();
            let detail = refused["detail"].as_str().unwrap_or_default();
            assert!(
                refused["status"] == 400 && detail.contains("a whole number from 1 to 200"),
                "{path} {limit}: {detail}"
            );
        }
    }
    let first = &server
        .send_get("/api/v1/deployments/web/noderoles?role=app&limit=1", &ada)
        .await
        .json()["noderoles"][0];
    let after = first["noderole"].as_str().expect("an id");
    let path = format!("/api/v1/deployments/web/noderoles?role=app&limit=1&after={after}");
    let rest = server.send_get(&path, &ada).await.json();
    assert_eq!((&rest["noderoles"][0]["node"], &rest["more"]), (&n2, &json!(0)), "{n1}");
}

#[tokio::test]
async fn every_list_has_a_limit() {
    let server = TestServer::new().await;
    committed(&server).await;
    let admin =
        server.person("root", [Permission::Viewer, Permission::Operator, Permission::Admin]).await;
    let lists = lists();
    assert!(lists.len() > 15, "{lists:?}");
    for (path, words) in lists {
        assert!(words.contains("limit"), "{path}");
        let path = path.replace("{id}", "n1.house.example.com");
        for limit in ["1", "200"] {
            let answer = server.send_get(&format!("{path}?limit={limit}"), &admin).await;
            assert_eq!(
                answer.status,
                StatusCode::OK,
                "{path}?limit={limit} must be accepted: {}",
                answer.text()
            );
        }
        for limit in ["0", "201", "-1", "all", ""] {
            let refused = server.send_get(&format!("{path}?limit={limit}"), &admin).await.problem();
            let detail = refused["detail"].as_str().unwrap_or_default();
            assert!(
                refused["status"] == 400 && detail.contains("a whole number from 1 to 200"),
                "{path}?limit={limit} must be rejected: {detail}"
            );
        }
    }
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let page =
            server.send_get(&format!("/api/v1/deployments?limit=1{after}"), &admin).await.json();
        let rows = page["deployments"].as_array().expect("a list").clone();
        assert_eq!(rows.len(), 1);
        names.push(rows[0]["name"].clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", next.replace(' ', "%20"));
    }
    assert_eq!(names, ["system", "edge", "web"]);
}

#[tokio::test]
async fn cursor_of_other_sort_order_is_rejected() {
    let server = TestServer::new().await;
    committed(&server).await;
    let ada = server.cookie().await;
    for (good, bad) in [
        ("nodes?sort=state&after=state~-0~-a.b.c", "nodes?sort=-state&after=state~-0~-a.b.c"),
        ("nodes?after=zzz.example.com", "nodes?after=%F0%9F%98%80"),
        ("nodes?after=n1.house.example.com", "nodes?sort=-name&after=n1.house.example.com"),
        ("runs?before=7", "runs?sort=duration&before=7"),
        ("reviews?sort=title&before=title~-a~-7", "reviews?before=title~-a~-7"),
        ("roles?after=name~-a~-b", "roles?after=a"),
        ("imports?before=7", "imports?before=x"),
        ("runs?before=2720000000000000", "runs?before=-5"),
        ("audit?before=2720000000000000", "audit?before=-5"),
        (
            "audit?since=1970-01-01T00:00:00Z",
            "audit?since=1970-01-01T00:00:00Z&before=2720000000000000",
        ),
        ("tokens?sort=name&before=name~-a~-b", "tokens?before=7"),
        ("me/sessions?before=-since~-7~-a", "me/sessions?sort=last_seen&before=-since~-7~-a"),
        (
            "nodes/n1.house.example.com/health-checks?before=7",
            "nodes/n1.house.example.com/health-checks?sort=at&before=7",
        ),
        (
            "nodes/n1.house.example.com/results?sort=run&before=run~-7",
            "nodes/n1.house.example.com/results?before=run~-7",
        ),
        (
            "nodes/n1.house.example.com/noderoles?after=order~-0~-00000000-0000-0000-0000-000000000001",
            "nodes/n1.house.example.com/noderoles?after=order~-0~-x",
        ),
        (
            "pending?reason=failed&sort=-since&after=-since~-7~-00000000-0000-0000-0000-000000000001",
            "pending?reason=failed&after=-since~-7~-00000000-0000-0000-0000-000000000001",
        ),
    ] {
        assert_eq!(
            server.send_get(&format!("/api/v1/{good}"), &ada).await.status,
            StatusCode::OK,
            "{good}"
        );
        let refused = server.send_get(&format!("/api/v1/{bad}"), &ada).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad}");
        let detail = refused.problem()["detail"].as_str().expect("a text").to_owned();
        assert!(
            detail.contains("Use the `next` value of the previous page with the same sort order."),
            "{bad}: {detail}"
        );
    }
}

#[tokio::test]
async fn stale_cursor_returns_documented_409() {
    let server = TestServer::new().await;
    committed(&server).await;
    let ada = server.cookie().await;
    let path =
        "/api/v1/deployments/system/noderoles?role=app&after=00000000-0000-0000-0000-000000000001";
    let refused = server.send_get(path, &ada).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert_eq!(refused.problem()["code"], "moved");
    let document = server.send_get("/api/v1/openapi.json", &ada).await.json();
    let answers = &document["paths"]["/api/v1/deployments/{id}/noderoles"]["get"]["responses"];
    assert!(answers["409"].is_object(), "{answers}");
}

#[tokio::test]
async fn role_and_role_graph_are_returned() {
    let server = TestServer::new().await;
    committed(&server).await;
    let ada = server.cookie().await;
    let roles = server.send_get("/api/v1/roles", &ada).await.json();
    let first = roles["roles"][0]["name"].as_str().expect("a name").to_owned();
    let role = server.send_get(&format!("/api/v1/roles/{first}"), &ada).await.json();
    assert_eq!(role["role"]["name"], first);
    assert_eq!(server.send_get("/api/v1/roles/nothing", &ada).await.status, StatusCode::NOT_FOUND);
    let elsewhere = server.send_get(&format!("/api/v1/roles/{first}?barclamp=nope"), &ada).await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND);
    let detail = elsewhere.problem()["detail"].as_str().expect("a text").to_owned();
    assert!(
        detail.contains("no barclamp \"nope\""),
        "the error must name the missing barclamp: {detail}"
    );
    let graph = server.send_get("/api/v1/catalog/graph", &ada).await.json();
    assert_eq!(graph["count"], roles["count"]);
    assert_eq!(
        server.send_get("/api/v1/catalog/graph?role=nothing", &ada).await.status,
        StatusCode::NOT_FOUND
    );
    let imports = server.send_get("/api/v1/imports", &ada).await.json();
    assert_eq!(imports["imports"][0]["barclamps"][0]["new"], true);
}

/// PostgreSQL can't search for NUL. Sending one must never cause a server error.
#[tokio::test]
async fn nul_character_causes_no_server_error() {
    let server = TestServer::new().await;
    committed(&server).await;
    let root =
        server.person("root", [Permission::Viewer, Permission::Operator, Permission::Admin]).await;
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let mut requests = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        // A stream does not end, and its parameters never reach a statement.
        let Some(get) = item.get("get").filter(|_| path.as_str() != "/api/v1/watch") else {
            continue;
        };
        let parameters = get["parameters"].as_array().cloned().unwrap_or_default();
        let names = |place: &str| -> Vec<String> {
            let matching = parameters.iter().filter(|parameter| parameter["in"] == place);
            matching.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned())).collect()
        };
        let with = |value: &str| {
            names("path").iter().fold(path.clone(), |p, n| p.replace(&format!("{{{n}}}"), value))
        };
        let mut addresses: Vec<String> =
            if path.contains('{') { vec![with("a%00b")] } else { Vec::new() };
        for query in names("query") {
            let base = if path.contains("/deployments/") { with("web") } else { with("1") };
            addresses.push(format!("{base}?{query}=%00"));
            addresses.push(format!("{base}?{query}=a%00b"));
        }
        for address in addresses {
            let status = server.send_get(&address, &root).await.status;
            assert!(!status.is_server_error(), "{address}: {status}");
            requests += 1;
        }
    }
    assert!(requests > 100, "{requests}");
    for page in ["/reviews?filter=%00", "/nodes?filter=%00", "/runs?node=%00", "/audit?subject=%00"]
    {
        let answer = server.visit(page, &root).await;
        assert!(!answer.status.is_server_error(), "{page}: {} {}", answer.status, answer.text());
    }
    let refused = server.send_get("/api/v1/reviews?filter=%00", &root).await;
    assert_eq!(
        refused.problem()["status"],
        400,
        "the field must be checked before the database is queried: {}",
        refused.text()
    );
    assert!(refused.problem()["detail"].as_str().is_some_and(|text| text.contains("U+0000")));
}
