//! Nodes over REST, and the permissions of a node's token: its reports, and nothing else.

use axum::http::Method;
use leptos::server_fn::axum::server_fn_paths;
use serde_json::json;

use super::*;
use crate::rest;

const HOST_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

impl TestServer {
    /// Adds a node and returns its name.
    async fn machine(&self, cookie: &str) -> String {
        let ssh = json!({"addresses": ["10.0.3.7"], "key": "deploy/ssh", "host_key": HOST_KEY});
        let added = self
            .send_post("/api/v1/nodes", cookie, json!({"fqdn": "m1.rack1.example.com", "ssh": ssh}))
            .await;
        format!("/api/v1/nodes/{}", added.json()["node"].as_str().expect("an id"))
    }
}

#[tokio::test]
async fn node_change_requires_current_version() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let path = server.machine(&ada).await;
    let seen = server.send_get(&path, &ada).await;
    assert!(seen.header(header::ETAG).starts_with("\"1."), "{}", seen.header(header::ETAG));
    assert_eq!(seen.json()["version"], 1);
    let by_name = server.send_get("/api/v1/nodes/m1.rack1.example.com", &ada).await;
    // The cursor of the live stream changes with every event.
    let without_cursor = |answer: &Answer| {
        let mut node = answer.json();
        node.as_object_mut().expect("a node").remove("cursor").expect("a cursor");
        node
    };
    assert_eq!(without_cursor(&by_name), without_cursor(&seen));
    let own = [("cookie", ada.as_str()), ("x-gantry", "1")];
    let on = |tag: &'static str| [own[0], own[1], ("if-match", tag)];
    let patch = Method::PATCH;
    let door = json!({"description": "By the door"});
    let unsaid = server.send(patch.clone(), &path, &own, door.clone()).await;
    assert_eq!(
        (unsaid.status.as_u16(), unsaid.problem()["code"].as_str()),
        (428, Some("version_required"))
    );
    assert_eq!(
        unsaid.problem()["detail"],
        "Fetch the node and send its ETag header as If-Match. The version protects changes by \
         other people."
    );
    for wrong in ["1", "*", "W/\"1\"", "\"one\""] {
        let refused = server
            .send(patch.clone(), &path, &[own[0], own[1], ("if-match", wrong)], door.clone())
            .await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let changed = server.send(patch.clone(), &path, &on("\"1\""), door.clone()).await;
    assert_eq!((changed.header(header::ETAG), changed.json()), ("\"2\"", json!({"version": 2})));
    let late = server.send(patch.clone(), &path, &on("\"1\""), json!({"serial": "x"})).await;
    assert_eq!(
        (late.status.as_u16(), late.problem()["code"].as_str()),
        (412, Some("changed_meanwhile"))
    );
    let unknown = server.send(patch.clone(), &path, &on("\"2\""), json!({"alive": true})).await;
    assert_eq!(
        unknown.status,
        StatusCode::BAD_REQUEST,
        "health checks are not part of the request"
    );
    let change = json!({"connection": {"addresses": ["10.0.3.8", "10.0.3.9"]}});
    assert_eq!(server.send(patch, &path, &on("\"2\""), change).await.json()["version"], 3);

    let maintenance = format!("{path}/start-maintenance");
    let out = json!({"reason": "new disks"});
    let tokens = format!("{path}/tokens");
    for (method, path, body) in [
        (Method::POST, maintenance.clone(), out.clone()),
        (Method::POST, tokens.clone(), json!({"name": "its unit"})),
        (Method::DELETE, format!("{tokens}/00000000-0000-0000-0000-000000000001"), Value::Null),
    ] {
        let late = server.send(method, &path, &on("\"2\""), body).await;
        assert_eq!(
            (late.status.as_u16(), late.problem()["code"].as_str()),
            (412, Some("changed_meanwhile")),
            "{path}"
        );
    }
    server.send(Method::POST, &tokens, &on("\"3\""), json!({"name": "its unit"})).await.json();
    server.send(Method::POST, &maintenance, &own, out.clone()).await.json();
    assert_eq!(server.send(Method::POST, &maintenance, &own, out).await.problem()["code"], "state");
    let shown = server.send_get(&path, &ada).await.json();
    assert_eq!(shown["status"]["maintenance"]["reason"], "new disks");
    assert_eq!(shown["connection"]["ssh"]["addresses"], json!(["10.0.3.8", "10.0.3.9"]));
    let checks = server.send_get(&format!("{path}/health-checks"), &ada).await.json();
    assert_eq!(checks, json!({"health_checks": [], "next": null}));
    assert_eq!(
        server.send_get(&format!("{path}/health-checks?before=x"), &ada).await.status,
        StatusCode::BAD_REQUEST
    );

    let delete = Method::DELETE;
    assert_eq!(
        server.send(delete.clone(), &path, &on("\"1\""), Value::Null).await.status.as_u16(),
        412
    );
    server.send(delete, &path, &on("\"3\""), Value::Null).await.json();
    assert_eq!(server.send_get(&path, &ada).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn connection_in_a_blueprint_needs_a_proposal() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let (n1, web) = (server.n1(&ada).await, server.id_of("web", &ada).await);
    let bind = json!([{"edit": "bind", "deployment": web, "node": n1, "role": "app"}]);
    server.passes(&ada, "web", bind, &[&bo]).await;
    let path = format!("/api/v1/nodes/{}", n1.as_str().expect("an id"));
    let headers = [("cookie", ada.as_str()), ("x-gantry", "1"), ("if-match", "\"1\"")];
    let change = json!({"connection": {"root": "/srv/elsewhere"}});
    for body in [change.clone(), json!({"hints": {"rack": 7}})] {
        let refused = server.send(Method::PATCH, &path, &headers, body).await;
        let problem = refused.problem();
        assert_eq!(
            (refused.status.as_u16(), problem["code"].as_str()),
            (409, Some("in_blueprint"))
        );
        assert!(
            problem["detail"].as_str().is_some_and(|text| text.contains("--propose")),
            "{problem}"
        );
    }
    let by_reason =
        json!({"connection": {"root": "/srv/elsewhere"}, "reason": "its disk was moved"});
    assert_eq!(
        server.send(Method::PATCH, &path, &headers, by_reason).await.status,
        StatusCode::BAD_REQUEST
    );
    let proposal =
        server.send_post(&format!("{path}/proposals"), &ada, json!({})).await.json()["proposal"]
            .clone();
    let edits =
        json!([{"edit": "set_connection", "node": n1, "connection": {"root": "/srv/elsewhere"}}]);
    let version = server.append(&ada, proposal.as_i64().expect("a number"), 0, edits).await;
    assert_eq!(version, 1);
}

#[tokio::test]
async fn node_name_works_everywhere() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    server.machine(&ada).await;
    let path = "/api/v1/nodes/m1.rack1.example.com";
    let own = [("cookie", ada.as_str()), ("x-gantry", "1")];
    let on = [own[0], own[1], ("if-match", "\"1\"")];
    let changed = server.send(Method::PATCH, path, &on, json!({"serial": "CN-1"})).await;
    assert_eq!(changed.json(), json!({"version": 2}));
    let out = json!({"reason": "new disks"});
    for verb in ["start-maintenance", "end-maintenance"] {
        server.send(Method::POST, &format!("{path}/{verb}"), &own, out.clone()).await.json();
    }
    let made =
        server.send_post(&format!("{path}/tokens"), &ada, json!({"name": "its unit"})).await.json();
    let token = format!("{path}/tokens/{}", made["id"].as_str().expect("an id"));
    server.send(Method::DELETE, &token, &own, Value::Null).await.json();
    assert_eq!(server.send_get(&format!("{path}/results"), &ada).await.json()["all"], 0);
    let proposed = server.send_post(&format!("{path}/proposals"), &ada, json!({})).await;
    assert!(
        proposed.status != StatusCode::BAD_REQUEST && proposed.status != StatusCode::NOT_FOUND,
        "{}",
        proposed.text()
    );
    let nobody =
        server.send(Method::DELETE, "/api/v1/nodes/m7.rack1.example.com", &own, Value::Null).await;
    assert_eq!(nobody.status, StatusCode::NOT_FOUND);
    assert!(
        nobody.problem()["detail"]
            .as_str()
            .is_some_and(|text| text.contains("Node m7.rack1.example.com does not exist."))
    );
    server.send(Method::DELETE, path, &own, Value::Null).await.json();
}

#[tokio::test]
async fn node_list_is_added_atomically() {
    const ADD_MANY: &str = "/api/v1/nodes/bulk";
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let text = |text: &str| json!({"text": text});
    let nodes_with_boot_file = async || {
        let nodes =
            server.send_get("/api/v1/nodes?filter=rack1", &ada).await.json()["nodes"].clone();
        nodes
            .as_array()
            .expect("a list")
            .iter()
            .map(|node| node["fqdn"].clone())
            .collect::<Vec<_>>()
    };
    let lines = |problem: &Value| {
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["at"].clone()).collect::<Vec<_>>()
    };
    let wrong =
        "m1.rack1.example.com root=/srv/m1\nm2 root=/srv/m2\n\nm3.rack1.example.com rot=/srv/m3";
    let wrong = server.send_post(ADD_MANY, &ada, text(wrong)).await.problem();
    assert_eq!(
        (&wrong["status"], lines(&wrong)),
        (&json!(400), vec![json!("line 2"), json!("line 4")]),
        "{wrong}"
    );
    assert_eq!(nodes_with_boot_file().await, [""; 0]);

    let good = format!(
        "# rack 1\nm1.rack1.example.com root=/srv/m1\nm2.rack1.example.com ssh=10.0.3.7 \
         key=deploy/ssh host_key=\"{HOST_KEY}\""
    );
    assert_eq!(server.send_post(ADD_MANY, &bo, text(&good)).await.status, StatusCode::FORBIDDEN);
    let keyed = async || {
        let mut request = server.post_json(ADD_MANY, &ada, text(&good).to_string());
        request.headers_mut().insert("idempotency-key", "rack-1".parse().expect("a value"));
        server.ask(request).await
    };
    let made = keyed().await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let names = ["m1.rack1.example.com", "m2.rack1.example.com"];
    for (at, name) in names.iter().enumerate() {
        let shown = server.send_get(&format!("/api/v1/nodes/{name}"), &ada).await.json();
        assert_eq!(made.json()["nodes"][at], json!({"fqdn": name, "node": shown["id"]}));
    }
    assert_eq!(nodes_with_boot_file().await, names);
    let again = keyed().await;
    assert_eq!((again.json(), again.header("idempotency-replayed")), (made.json(), "true"));
    let twice = server.send_post(ADD_MANY, &ada, text(&good)).await.problem();
    assert_eq!(
        (&twice["code"], lines(&twice)),
        (&json!("nodes_refused"), vec![json!("line 2"), json!("line 3")])
    );

    let many = "m4.rack1.example.com root=/srv/m4\n".repeat(api::limits::INVENTORY + 1);
    let long = "#".repeat(api::limits::INVENTORY_BYTES + 1);
    for refused in [json!({}), json!({"text": ""}), json!({"nodes": []}), text(&many), text(&long)]
    {
        assert_eq!(server.send_post(ADD_MANY, &ada, refused).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(nodes_with_boot_file().await, names);
}

#[tokio::test]
async fn node_list_counts_each_address() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let line = |n: usize| {
        let address = |k: usize| format!(" ssh=10.{k}.{}.{}", n / 200, n % 200 + 1);
        let addresses: String = (1..=api::limits::ADDRESSES).map(address).collect();
        format!("m{n}.rack1.example.com{addresses} key=deploy/ssh host_key=\"{HOST_KEY}\"\n")
    };
    let add_nodes = async |text: String| {
        server.send_post("/api/v1/nodes/bulk", &ada, json!({"text": text})).await
    };
    let all: String = (1..=api::limits::INVENTORY).map(line).collect();
    let made = add_nodes(all).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let refused = add_nodes(line(0)).await;
    assert_eq!(
        (refused.status, refused.problem()["code"].as_str()),
        (StatusCode::TOO_MANY_REQUESTS, Some("too_many_addresses"))
    );
    assert!(refused.header(header::RETRY_AFTER).parse::<u64>().is_ok_and(|wait| wait <= 3_600));
    let detail = refused.problem()["detail"].clone();
    assert!(
        detail
            .as_str()
            .is_some_and(|detail| detail.contains("4000 addresses of nodes within one hour")),
        "{detail}"
    );
}

/// Over REST (single node, text list, change) and on the page.
#[tokio::test]
async fn record_of_refused_address_is_rejected_everywhere() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let path = server.machine(&ada).await;
    let own = [("cookie", ada.as_str()), ("x-gantry", "1"), ("if-match", "\"1\"")];
    let addresses = [
        "169.254.169.254",
        "fe80::1",
        "metadata.google.internal",
        "127.0.0.1",
        "localhost",
        "::",
        "fd00:ec2::254",
    ];
    for address in addresses {
        let ssh =
            json!({"addresses": ["10.0.3.8", address], "key": "deploy/ssh", "host_key": HOST_KEY});
        let request = json!({"fqdn": "m2.rack1.example.com", "ssh": ssh});
        let line =
            format!("m2.rack1.example.com ssh={address} key=deploy/ssh host_key=\"{HOST_KEY}\"");
        let change = json!({"connection": {"addresses": [address]}});
        let form = format!(
            "fqdn=m2.rack1.example.com&root=&address={address}&port=22&user=root&key=deploy%2Fssh&host_key={}",
            HOST_KEY.replace(' ', "+").replace('/', "%2F")
        );
        for answer in [
            server.send_post("/api/v1/nodes", &ada, request).await,
            server.send_post("/api/v1/nodes/bulk", &ada, json!({"text": line})).await,
            server.send(Method::PATCH, &path, &own, change).await,
            server.post_form("/call/add-node", &ada, &form).await,
        ] {
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{address}: {}", answer.text());
            let text = answer.text();
            assert!(text.contains(&format!("{address}\\\" is not allowed: ")), "{address}: {text}");
        }
    }
    let nodes = server.send_get("/api/v1/nodes?filter=m2.rack1", &ada).await.json();
    assert_eq!(nodes["nodes"], json!([]));
}

/// Every REST operation, with `1` for each path parameter, except the public OpenAPI document.
fn rest_routes() -> Vec<(Method, String)> {
    let list = rest::operations(None)
        .into_list()
        .into_iter()
        .filter(|operation| operation.op.id != "getDocument");
    list.map(|operation| {
        let part =
            |part: &str| if part.starts_with('{') { "1".to_owned() } else { part.to_owned() };
        let path = operation.path.split('/').map(part).collect::<Vec<_>>().join("/");
        (operation.method, format!("/api/v1{path}"))
    })
    .collect()
}

#[tokio::test]
async fn node_token_only_permits_reports() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let path = server.machine(&ada).await;
    let made = server.send_post(&format!("{path}/tokens"), &ada, json!({"name": "its unit"})).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let made = made.json();
    let token = made["token"].as_str().expect("a token").to_owned();
    assert!(
        !server.send_get(&path, &ada).await.text().contains(&token),
        "the token is shown only once"
    );
    let bearer = format!("Bearer {token}");
    let itself = [("authorization", bearer.as_str()), ("x-gantry", "1")];

    let reports = [
        (Method::POST, "startup", json!({"boot_id": "7b0d"})),
        (Method::POST, "shutdown", Value::Null),
        (Method::POST, "bootenv", json!({"bootenv": "local"})),
        (Method::PUT, "facts", json!({"cpu": {"cores": 4}})),
    ];
    for (method, action, body) in &reports {
        let place = format!("/api/v1/self/{action}");
        assert_eq!(
            server.send(method.clone(), &place, &itself, body.clone()).await.json(),
            json!({}),
            "{action}"
        );
        let strangers: [&[(&str, &str)]; 4] = [
            &[("x-gantry", "1")],
            &[("authorization", "Bearer nonsense"), ("x-gantry", "1")],
            &[("cookie", ada.as_str()), ("x-gantry", "1")],
            &[("authorization", "Basic eDp5"), ("x-gantry", "1")],
        ];
        for stranger in strangers {
            let refused = server.send(method.clone(), &place, stranger, body.clone()).await;
            assert_eq!(
                (refused.status.as_u16(), refused.problem()["code"].as_str()),
                (401, Some("no_node_token")),
                "{action}"
            );
        }
        let page = [("authorization", bearer.as_str()), ("origin", "http://evil.example")];
        assert_eq!(
            server.send(method.clone(), &place, &page, body.clone()).await.status,
            StatusCode::FORBIDDEN
        );
    }
    let large = json!({"x": "y".repeat(2 * api::limits::FACTS)});
    let refused = server.send(Method::PUT, "/api/v1/self/facts", &itself, large).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(
        server.send_get(&path, &ada).await.json()["facts"][0]["facts"],
        json!({"cpu": {"cores": 4}})
    );

    // As a bearer token and as a cookie of either name.
    let cookies = [format!("gantry_session={token}"), format!("__Host-gantry={token}")];
    let mut credentials: Vec<Vec<(&str, &str)>> = vec![itself.to_vec()];
    credentials
        .extend(cookies.iter().map(|cookie| vec![("cookie", cookie.as_str()), ("x-gantry", "1")]));
    let routes = rest_routes();
    assert!(
        routes.len() > 50 && routes.iter().any(|(_, path)| path == "/api/v1/self/facts"),
        "{routes:?}"
    );
    let others = [
        "/events?topics=nodes",
        "/runs/1/log",
        "/graph.svg",
        "/graph/web/graph.svg",
        "/reviews/1/graph.svg",
    ];
    let mut all: Vec<(Method, String)> =
        routes.into_iter().filter(|(_, path)| !path.contains("/self/")).collect();
    all.extend(others.map(|path| (Method::GET, path.to_owned())));
    all.extend(["/sign-out", "/sign-out/everywhere"].map(|path| (Method::POST, path.to_owned())));
    for (method, path) in &all {
        for headers in &credentials {
            let answer = server.send(method.clone(), path, headers, json!({})).await;
            assert_eq!(
                answer.status,
                StatusCode::UNAUTHORIZED,
                "{method} {path}: {}",
                answer.text()
            );
        }
    }
    // The frame of every page, and a function that sets a display cookie. Both are public.
    let open = ["/call/frame", "/call/hide-first-steps"];
    let calls: Vec<_> = server_fn_paths()
        .filter(|(path, _)| !open.iter().any(|open| path.ends_with(open)))
        .collect();
    assert!(calls.len() > 40, "{calls:?}");
    for (path, method) in calls {
        for headers in &credentials {
            let answer = server.send(method.clone(), path, headers, json!({})).await;
            // Only a malformed request is rejected before authentication.
            assert!(
                matches!(answer.status.as_u16(), 400 | 401 | 422 | 500),
                "{path}: {} {}",
                answer.status,
                answer.text()
            );
            assert!(
                answer.status != StatusCode::INTERNAL_SERVER_ERROR
                    || answer.text().contains("missing"),
                "{path}"
            );
        }
    }
    for page in [
        "/",
        "/deployments",
        "/nodes",
        "/nodes/m1.rack1.example.com",
        "/runs",
        "/reviews",
        "/catalog",
        "/blueprints",
    ] {
        for headers in &credentials {
            let request = headers
                .iter()
                .fold(server.get(page), |request, (name, value)| request.header(*name, *value));
            let request =
                request.header(header::ACCEPT, "text/html").body(Body::empty()).expect("a request");
            let answer = server.ask(request).await;
            assert_eq!(answer.status, StatusCode::SEE_OTHER, "{page}");
            assert!(answer.header(header::LOCATION).starts_with("/sign-in"), "{page}");
        }
    }

    let own = [("cookie", ada.as_str()), ("x-gantry", "1")];
    let one = format!("{path}/tokens/{}", made["id"].as_str().expect("an id"));
    server.send(Method::DELETE, &one, &own, Value::Null).await.json();
    let refused = server.send(Method::POST, "/api/v1/self/shutdown", &itself, Value::Null).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "the token is revoked");
}
