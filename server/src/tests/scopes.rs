//! Scopes of proposals over REST, and putting a deployment on hold.

use serde_json::json;

use super::*;

#[tokio::test]
async fn node_proposal_is_opened_and_listed() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let node =
        server.send_get("/api/v1/nodes?filter=n1", &ada).await.json()["nodes"][0]["id"].clone();
    let path = format!("/api/v1/nodes/{}/proposals", node.as_str().expect("an id"));
    assert_eq!(server.send_post(&path, &bo, json!({})).await.problem()["code"], "forbidden");
    let opened = server.send_post(&path, &ada, json!({})).await;
    assert_eq!(opened.status, StatusCode::CREATED);
    let id = opened.json()["proposal"].as_i64().expect("an id");
    server.send_post("/api/v1/deployments/web/proposals", &ada, json!({})).await.json();

    let system =
        server.send_get("/api/v1/deployments/system/board", &ada).await.json()["id"].clone();
    let web = server.send_get("/api/v1/deployments/web/board", &ada).await.json()["id"].clone();
    let edits = |deployment| {
        json!(
            {
                "version": 0, "edits": [
                    {"edit": "bind", "deployment": deployment, "node": node, "role": "app"}
                ]
            }
        )
    };
    let refused =
        server.send_post(&format!("/api/v1/proposals/{id}/edits"), &ada, edits(web)).await;
    assert_eq!(refused.problem()["code"], "edit_refused", "the edit would move the node to web");
    server.send_post(&format!("/api/v1/proposals/{id}/edits"), &ada, edits(system)).await.json();

    let list = server.send_get("/api/v1/proposals", &bo).await.json();
    let scopes: Vec<(&Value, &Value)> = list["proposals"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| (&p["scope"]["deployment"], &p["scope"]["node"]["fqdn"]))
        .collect();
    assert_eq!(
        scopes,
        [(&json!("web"), &Value::Null), (&json!("system"), &json!("n1.house.example.com"))]
    );
    let shown = server.send_get(&format!("/api/v1/proposals/{id}"), &bo).await.json();
    assert_eq!(
        (&shown["scope"]["node"]["id"], &shown["added"], &shown["version"]),
        (&node, &json!(1), &json!(1))
    );
    let submitted = server
        .send_post(
            &format!("/api/v1/proposals/{id}/submit"),
            &ada,
            json!({"version": 1, "title": "bootstrap"}),
        )
        .await;
    let review = format!("/api/v1/reviews/{}", submitted.json()["review"]);
    assert_eq!(server.send_get(&review, &bo).await.json()["fqdn"], "n1.house.example.com");
    assert_eq!(
        server.send_get("/api/v1/reviews", &bo).await.json()["reviews"][0]["fqdn"],
        "n1.house.example.com"
    );
    let found = async |query: &str| {
        let page = server.send_get(&format!("/api/v1/{query}"), &bo).await.json();
        let list = page.get("reviews").or(page.get("proposals")).expect("a list");
        (list.as_array().expect("a list").len(), page["next"].clone())
    };
    let none = (0, Value::Null);
    assert_eq!(
        found("reviews?involvement=for_me&deployment=system&filter=BOOT").await,
        (1, Value::Null)
    );
    assert_eq!(found("reviews?involvement=mine&state=any").await, none);
    assert_eq!(found("reviews?state=committed").await, none);
    assert_eq!(found("reviews?before=1").await, none);
    assert_eq!(
        found("proposals?drafts=true").await,
        (1, Value::Null),
        "only the proposal on web is listed"
    );
    assert_eq!(found("proposals?mine=true").await, none);
    for wrong in ["reviews?involvement=nobody", "reviews?of=web", "proposals?before=x"] {
        assert_eq!(
            server.send_get(&format!("/api/v1/{wrong}"), &bo).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
    let unknown = format!("/api/v1/nodes/{}/proposals", uuid::Uuid::nil());
    assert_eq!(server.send_post(&unknown, &ada, json!({})).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn overriding_edits_are_reported() {
    let server = TestServer::new().await;
    server.furnish().await;
    let cy = server
        .people
        .create_person(None, &NewPerson::human("cy", [Permission::Operator]))
        .await
        .expect("a person");
    let (ada, cy) = (server.cookie().await, server.cookie_for(cy).await);
    let web = server.send_get("/api/v1/deployments/web/board", &ada).await.json()["id"].clone();
    let id =
        server.send_post(
            "/api/v1/deployments/web/proposals",
            &ada,
            json!({})
        ).await.json()["proposal"]
            .clone();
    let path = format!("/api/v1/proposals/{id}/edits");
    for (who, version, port) in [(&ada, 0, 1), (&cy, 1, 2)] {
        let edit = json!(
            {"edit": "set_role_data", "deployment": web, "role": "app", "data": {"port": port}}
        );
        server.send_post(&path, who, json!({"version": version, "edits": [edit]})).await.json();
    }
    let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
    let clash = json!({
        "earlier": 1, "earlier_by": "ada", "later": 2, "later_by": "cy", "subject": "/port of app",
        "setting": {"kind": "role_value", "deployment": web, "role": "app", "path": "/port"},
    });
    assert_eq!(board["proposal"]["clashes"], json!([clash]));
}

#[tokio::test]
async fn priority_is_set_and_shown_on_board() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let board = async || server.send_get("/api/v1/deployments/web/board", &bo).await.json();
    let web = board().await;
    assert_eq!(web["priority"], 0);
    let form = |priority: &str| {
        format!(
            "deployment={}&priority={priority}&reason=because",
            web["id"].as_str().expect("an id")
        )
    };
    let by_page = async |who: &str, priority: &str| {
        server.post_form("/call/set-priority", who, &form(priority)).await
    };
    assert_eq!(
        by_page(&bo, "5").await.status,
        StatusCode::FORBIDDEN,
        "a reviewer cannot set the priority"
    );
    for wrong in ["x", "", "1.5", "101", "-101", "99999999999"] {
        assert_eq!(by_page(&ada, wrong).await.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    for wrong in [json!(101), json!(999_999_999_999_i64), json!(1.5)] {
        let request = json!({"priority": wrong, "reason": "because"});
        let refused =
            server.send_post("/api/v1/deployments/web/priority", &ada, request).await.problem();
        let detail = refused["detail"].as_str().expect("a text");
        assert!(
            refused["status"] == 400 && detail.contains("from -100 to 100"),
            "{wrong}: {detail}"
        );
    }
    assert_eq!(board().await["priority"], 0, "a rejected request must change nothing");

    assert!(by_page(&ada, "-5").await.status.is_success());
    assert_eq!(board().await["priority"], -5);
    let by_rest = json!({"priority": 7, "reason": "the shop opens at nine"});
    assert_eq!(
        server.send_post("/api/v1/deployments/web/priority", &ada, by_rest.clone()).await.json(),
        json!({})
    );
    assert_eq!(board().await["priority"], 7);
    assert_eq!(
        server.send_post("/api/v1/deployments/web/priority", &ada, by_rest).await.problem()["code"],
        "state"
    );
    let sql = "SELECT body FROM event WHERE kind = 'priority' ORDER BY id";
    let listed: Vec<Value> =
        sqlx::query_scalar(sql).fetch_all(server.db.owner()).await.expect("events");
    let id = &web["id"];
    let expected = [-5, 7].map(|priority| json!({"deployment": id, "priority": priority}));
    assert_eq!(listed, expected, "subscribers of the board get the event");
}

#[tokio::test]
async fn hold_is_set_and_released_with_reason() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let path = "/api/v1/deployments/web/hold";
    let body = json!({"reason": "the switch is replaced"});
    assert_eq!(
        server.send_post(path, &bo, body.clone()).await.problem()["code"],
        "forbidden",
        "a reviewer cannot hold a deployment"
    );
    assert_eq!(server.send_post(path, "", body.clone()).await.status, StatusCode::UNAUTHORIZED);
    let nowhere = server.send_post("/api/v1/deployments/wob/hold", &ada, body.clone()).await;
    assert_eq!(nowhere.problem()["code"], "not_found");
    for wrong in [json!({}), json!({"on_hold": true, "reason": "x"}), json!({"reason": " "})] {
        assert_eq!(
            server.send_post(path, &ada, wrong.clone()).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
    let board = |name: &'static str| server.send_get(name, &ada);
    assert_eq!(board("/api/v1/deployments/web/board").await.json()["hold"], Value::Null);

    assert_eq!(server.send_post(path, &ada, body).await.json(), json!({}));
    let web = board("/api/v1/deployments/web/board").await.json();
    assert_eq!(
        web["hold"],
        json!({"deployment": "web", "by": "ada", "reason": "the switch is replaced"})
    );
    assert_eq!(
        board("/api/v1/deployments/edge/board").await.json()["hold"],
        Value::Null,
        "a sibling deployment is not on hold"
    );
    let release = "/api/v1/deployments/web/release";
    server.send_post(release, &ada, json!({"reason": "it is there"})).await.json();
    assert_eq!(board("/api/v1/deployments/web/board").await.json()["hold"], Value::Null);
    let sql =
        "SELECT count(*) FROM audit WHERE action LIKE 'deployment.%' AND source = 'application'";
    let audited: i64 = sqlx::query_scalar(sql).fetch_one(server.db.owner()).await.expect("a count");
    assert_eq!(audited, 2);
}
