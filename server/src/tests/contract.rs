//! The OpenAPI document: the committed file, and the routes of the router.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use api::problem_codes::CODES;
use serde_json::{Map, json};

use super::*;
use crate::rest;

const STORED_DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");

#[tokio::test]
async fn committed_openapi_document_is_current() {
    let server = TestServer::new().await;
    let served = server
        .ask(server.get("/api/v1/openapi.json").body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(served.header(header::CONTENT_TYPE), "application/json");
    assert_eq!(served.text(), rest::described());
    if std::env::var_os("GANTRY_WRITE").is_some() {
        std::fs::write(STORED_DOCUMENT, served.text()).expect("a written file");
    }
    let committed = std::fs::read_to_string(STORED_DOCUMENT).expect("docs/openapi.json");
    assert!(
        committed == served.text(),
        "docs/openapi.json is outdated: GANTRY_WRITE=1 cargo test -p server committed_openapi"
    );
}

/// 422 has two meanings: a valid request that can't be executed, and an idempotency key of another
/// request.
#[test]
fn meanings_of_422_are_documented() {
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let text = document["components"]["responses"]["UnprocessableEntity"]["description"]
        .as_str()
        .expect("a text");
    for code in [
        "edit_refused",
        "schema_mismatch",
        "barclamp",
        "confirmation_required",
        "idempotency_key_reused",
    ] {
        assert!(text.contains(&format!("`{code}`")), "{code}: {text}");
    }
    for (path, method) in [
        ("/api/v1/proposals/{id}/edits", "post"),
        ("/api/v1/proposals/{id}/preview", "post"),
        ("/api/v1/reviews/{id}/commit", "post"),
        ("/api/v1/barclamps", "post"),
    ] {
        let answers = &document["paths"][path][method]["responses"];
        assert!(answers.get("422").is_some() && answers.get("408").is_some(), "{path}: {answers}");
    }
}

/// Generated forms and clients use the bounds of numbers.
#[test]
fn number_schemas_have_bounds() {
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    for (schema, field, least, most) in [
        ("PriorityRequest", "priority", -100, 100),
        ("TokenRequest", "days", 1, 365),
        ("NodeTokenRequest", "days", 1, 366),
    ] {
        let property = &document["components"]["schemas"][schema]["properties"][field];
        assert_eq!(
            (&property["minimum"], &property["maximum"]),
            (&json!(least), &json!(most)),
            "{schema}: {property}"
        );
    }
}

/// Schemas whose references have no id, or only an id, with the reason (docs/api.md, "Names and
/// ids").
const OTHER_REFERENCES: [(&str, &str); 29] = [
    ("AccessChangeView", "history of a grant"),
    ("ClashSubjectBarclamp", "difference: `deployments` has the names"),
    ("ClashSubjectDeployment", "difference: `deployments` has the names"),
    ("ClashSubjectParent", "difference: `deployments` has the names"),
    ("ClashSubjectRole", "difference: `deployments` has the names"),
    ("ClashSubjectRoleValue", "difference: `deployments` has the names"),
    ("Comparison", "repeats the query"),
    ("DeploymentDeclaration", "has the form of a file"),
    ("Downstream", "planned effect"),
    ("FirstSteps", "data of a page"),
    ("GraphVertex", "planned effect"),
    ("HitNode", "search result"),
    ("HitReview", "search result"),
    ("HoldView", "data of a page"),
    ("LossBarclamp", "planned effect"),
    ("LossContent", "planned effect"),
    ("LossNode", "planned effect"),
    ("LossNoderole", "planned effect"),
    ("LossRole", "planned effect"),
    ("NoderoleDifference", "difference: `deployments` has the names"),
    ("NoderoleRerun", "planned effect"),
    ("PinChange", "difference: `deployments` has the names"),
    ("RoleValueChange", "difference: `deployments` has the names"),
    ("SecretChange", "planned effect"),
    ("TokenView", "scope of a token, as in its grant"),
    ("Touched", "planned effect"),
    ("TrayNode", "data of a page"),
    ("WaveDependency", "planned effect"),
    ("WaveGroup", "planned effect"),
];

/// A client that stores a reference needs its id, because another resource can get the name later.
#[test]
fn references_have_name_and_id() {
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let mut found = BTreeSet::new();
    for (name, schema) in schemas {
        let Some(fields) = schema["properties"].as_object() else { continue };
        // A request has a name or an id in one field.
        if schema["additionalProperties"] == json!(false) {
            continue;
        }
        let has = |field: &str| fields.contains_key(field);
        let lacks_id = (has("deployment") && !has("deployment_id"))
            || (has("worker") && !has("worker_id"))
            || (has("fqdn") && !has("node") && !has("id"));
        if lacks_id {
            found.insert(name.as_str());
        }
    }
    assert_eq!(found, OTHER_REFERENCES.iter().map(|(name, _)| *name).collect());
}

/// Methods and paths below `/api/v1`, parsed from the router's `Debug` output.
fn routed(router: &Router) -> BTreeSet<String> {
    let text = format!("{router:?}");
    let (mut methods, mut paths) = (BTreeMap::new(), BTreeMap::new());
    for piece in text.split("RouteId(").skip(1) {
        let Some((id, rest)) = piece.split_once("): ") else { continue };
        if let Some(path) = rest.strip_prefix('"') {
            // The fallback router numbers its routes again.
            paths.entry(id).or_insert_with(|| path.split('"').next().expect("a path"));
        } else if let Some(routes) = rest.strip_prefix("MethodRouter(MethodRouter { ") {
            let named = routes
                .split(", ")
                .take(9)
                .filter(|field| !field.ends_with("None") && !field.starts_with("head"));
            let named = named.filter_map(|field| field.split(':').next());
            methods.entry(id).or_insert_with(|| named.collect::<Vec<_>>());
        }
    }
    assert!(
        paths.len() > 80 && methods.len() > 80,
        "the debug output of a router has another form: {text}"
    );
    let below = paths.into_iter().filter(|(_, path)| path.starts_with("/api/"));
    below
        .flat_map(|(id, path)| methods[id].iter().map(move |method| format!("{method} {path}")))
        .collect()
}

#[tokio::test]
async fn every_route_is_documented() {
    let server = TestServer::new().await;
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let described = paths.iter().flat_map(|(path, item)| {
        item.as_object().expect("operations").keys().map(move |method| format!("{method} {path}"))
    });
    assert_eq!(routed(&server.routes), described.collect());
    // An undocumented route is noticed.
    let more = server.routes.clone().route("/api/v1/forgotten", axum::routing::delete(|| async {}));
    assert!(routed(&more).contains("delete /api/v1/forgotten"));
}

/// All references of a document, and the names of its operations.
fn walk<'v>(value: &'v Value, references: &mut BTreeSet<&'v str>, names: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str));
            names.extend(fields.get("operationId").and_then(Value::as_str));
            fields.values().for_each(|value| walk(value, references, names));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, references, names)),
        _ => {}
    }
}

#[test]
fn openapi_document_is_complete() {
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let (mut references, mut names) = (BTreeSet::new(), Vec::new());
    walk(&document, &mut references, &mut names);
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("in the document");
        assert!(document.pointer(pointer).is_some(), "{reference} does not exist");
    }
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len(), "two operations have the same name");
    for operation in rest::operations(None).into_list() {
        assert!(
            !operation.op.summary.is_empty() && !operation.op.summary.ends_with('.'),
            "{operation:?}"
        );
        let answer = &document["paths"][format!("/api/v1{}", operation.path)]
            [operation.method.as_str().to_lowercase()];
        let good = answer["responses"]
            .as_object()
            .expect("answers")
            .iter()
            .find(|(status, _)| status.starts_with('2'));
        let content = good.and_then(|(_, good)| good["content"].as_object()).expect("content");
        assert!(!content.is_empty(), "{} has no response content", operation.op.id);
        assert!(
            answer["responses"].get("503").is_some() && answer["responses"].get("400").is_some()
        );
    }
}

/// The sources of the workspace, without their tests.
fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"))
    {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            *found += text.split("#[cfg(test)]").next().unwrap_or_default();
        }
    }
}

/// The code of a problem that a source constructs directly, if the text begins with one.
fn constructed(text: &str) -> Option<&str> {
    let (arguments, skipped) = match text.strip_prefix("new(") {
        Some(arguments) => (arguments, 1),
        None => (text.strip_prefix("conflict(")?, 0),
    };
    let code =
        arguments.splitn(3, ',').nth(skipped)?.trim().strip_prefix('"')?.strip_suffix('"')?;
    code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(code)
}

#[test]
fn problem_codes_are_documented() {
    let listed: BTreeSet<&str> = CODES.iter().map(|(code, _)| *code).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for folder in ["server/src", "crates/control/src"] {
        sources(&root.join(folder), &mut text);
    }
    let used: BTreeSet<&str> = text.split("Problem::").filter_map(constructed).collect();
    assert!(used.len() > 50, "{used:?}");
    let unlisted: Vec<_> = used.difference(&listed).collect();
    assert!(unlisted.is_empty(), "missing in problem_codes: {unlisted:?}");
    sources(&root.join("crates/api/src"), &mut text);
    let unused: Vec<_> =
        listed.iter().filter(|code| text.matches(&format!("\"{code}\"")).count() < 2).collect();
    assert!(unused.is_empty(), "not used in any source file: {unused:?}");
    let book = std::fs::read_to_string(root.join("docs/api.md")).expect("the chapter");
    for (code, about) in CODES {
        assert!(
            book.contains(&format!("\n| `{code}` | {about} |\n")),
            "docs/api.md lacks the row of {code}"
        );
    }
    let rows = book.split("### Codes").nth(1).expect("a section").split("\n## ").next();
    let rows = rows.unwrap_or_default().lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, CODES.len(), "docs/api.md has other codes than problem_codes");
}

/// Client generators name types after schemas, so every alternative of a union needs a name.
#[test]
fn unions_of_document_have_named_alternatives() {
    fn check(value: &Value, document: &Value) {
        match value {
            Value::Object(fields) => {
                assert!(fields.get("schema") != Some(&json!(true)), "{value}");
                for alternative in
                    fields.get("oneOf").into_iter().filter_map(Value::as_array).flatten()
                {
                    let name =
                        alternative["$ref"].as_str().expect("a name").trim_start_matches('#');
                    let named = document.pointer(name).expect("a schema");
                    let tag = named["properties"]
                        .as_object()
                        .into_iter()
                        .flat_map(Map::iter)
                        .find(|(_, property)| property.get("const").is_some());
                    let Some((tag, word)) = tag else { continue };
                    let word = word["const"].as_str().expect("a tag");
                    let discriminator = &fields["discriminator"];
                    assert_eq!(discriminator["propertyName"], tag.as_str(), "{value}");
                    assert_eq!(discriminator["mapping"][word], alternative["$ref"], "{value}");
                }
                fields.values().for_each(|value| check(value, document));
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, document)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    check(&document, &document);
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["EditBindInput"]["properties"]["edit"]["const"], "bind");
    assert_eq!(schemas["AccountKind"]["enum"], json!(["human", "service"]));
}

/// Operations that create something without a URL of its own. Verdicts and comments are part of
/// their review, imports of the catalog, passkeys of the account. Each of several nodes has its own
/// URL. A link or an app's secret is shown once.
const WITHOUT_LOCATION: [&str; 8] = [
    "giveVerdict",
    "openThread",
    "replyToThread",
    "addNodes",
    "importBarclamps",
    "createLink",
    "registerPasskey",
    "startTotp",
];

#[test]
fn creating_operations_return_a_location() {
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    let mut nowhere = BTreeSet::new();
    for operation in rest::operations(None).into_list() {
        let path = format!("/api/v1{}", operation.path);
        let answers =
            &document["paths"][path][operation.method.as_str().to_lowercase()]["responses"];
        let Some(made) = answers.get("201") else { continue };
        if made["headers"].get("Location").is_none() {
            nowhere.insert(operation.op.id);
        }
    }
    assert_eq!(nowhere, BTreeSet::from(WITHOUT_LOCATION));
}

#[tokio::test]
async fn location_of_created_resource_works() {
    let server = TestServer::new().await;
    server.furnish().await;
    let root =
        server.person("root", [Permission::Viewer, Permission::Operator, Permission::Admin]).await;
    let on_node = "/api/v1/nodes/n1.house.example.com/proposals";
    for (path, request, field) in [
        ("/api/v1/deployments/web/proposals", json!({}), "proposal"),
        (on_node, json!({}), "proposal"),
        ("/api/v1/nodes", json!({"fqdn": "m9.house.example.com", "root": "/srv/m9"}), "node"),
        ("/api/v1/people", json!({"name": "dee", "grants": [{"permission": "viewer"}]}), "id"),
    ] {
        let made = server.send_post(path, &root, request).await;
        assert_eq!(made.status, StatusCode::CREATED, "{path}: {}", made.text());
        let id = made.json()[field].to_string();
        let place = made.header(header::LOCATION);
        assert!(
            place.starts_with("/api/v1/") && place.ends_with(&format!("/{}", id.trim_matches('"'))),
            "{path}: {place}"
        );
        assert_eq!(server.send_get(place, &root).await.status, StatusCode::OK, "{place}");
    }
    let made =
        server.send_post("/api/v1/tokens", &root, json!({"name": "t", "scopes": ["viewer"]})).await;
    let place = made.header(header::LOCATION);
    let take_back =
        Request::delete(place).header(header::HOST, server.host).header(header::COOKIE, &root);
    let taken =
        server.ask(take_back.header("x-gantry", "1").body(Body::empty()).expect("a request")).await;
    assert_eq!(taken.status, StatusCode::OK, "{place}: {}", taken.text());
}

#[tokio::test]
async fn unchanged_response_returns_304() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let ask = async |path: &str, headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(server.get(path), |request, (name, value)| request.header(*name, *value));
        server
            .ask(request.header(header::COOKIE, &ada).body(Body::empty()).expect("a request"))
            .await
    };
    let path = "/api/v1/deployments";
    let first = ask(path, &[]).await;
    let tag = first.header(header::ETAG).to_owned();
    assert!(
        tag.starts_with('"') && first.status == StatusCode::OK,
        "the response must have a strong ETag: {tag}"
    );
    let same = ask(path, &[("if-none-match", &tag)]).await;
    assert_eq!(
        (same.status, same.body.len(), same.header(header::ETAG)),
        (StatusCode::NOT_MODIFIED, 0, tag.as_str())
    );
    // A compressed response has a different tag, and both match the resource.
    let packed = ask(path, &[("accept-encoding", "gzip")]).await;
    let of_packed = packed.header(header::ETAG).to_owned();
    assert_eq!(
        (packed.header(header::CONTENT_ENCODING), of_packed.ends_with("-gzip\"")),
        ("gzip", true)
    );
    let same = ask(path, &[("if-none-match", &of_packed)]).await;
    assert_eq!(
        (same.status, same.header(header::ETAG)),
        (StatusCode::NOT_MODIFIED, of_packed.as_str())
    );
    let hold = json!({"reason": "a while"});
    server.send_post("/api/v1/deployments/web/hold", &ada, hold).await.json();
    let board = ask("/api/v1/deployments/web/board", &[]).await.header(header::ETAG).to_owned();
    let back = json!({"reason": "on it goes"});
    server.send_post("/api/v1/deployments/web/release", &ada, back).await.json();
    let other = ask("/api/v1/deployments/web/board", &[("if-none-match", &board)]).await;
    assert_eq!(other.status, StatusCode::OK, "the resource has changed");
}

#[tokio::test]
async fn unsupported_if_match_is_rejected() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let ask = async |path: &str, body: Value| {
        let mut request = server.post_json(path, &ada, body.to_string());
        request.headers_mut().insert(header::IF_MATCH, "\"7\"".parse().expect("a value"));
        server.ask(request).await
    };
    let hold = ask("/api/v1/deployments/web/hold", json!({"reason": "a while"})).await;
    assert!(
        hold.problem()["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("does not support If-Match")),
        "{}",
        hold.text()
    );
    let proposal = server
        .send_post("/api/v1/deployments/web/proposals", &ada, json!({}))
        .await
        .json()["proposal"]
        .clone();
    let undo = ask(&format!("/api/v1/proposals/{proposal}/undo"), json!({"version": 1})).await;
    assert_eq!(
        (undo.status.as_u16(), undo.problem()["code"].as_str()),
        (412, Some("changed_meanwhile"))
    );
}

#[tokio::test]
async fn version_in_if_match_needs_no_body() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let opened = server.send_post("/api/v1/deployments/web/proposals", &ada, json!({})).await;
    let place = opened.header(header::LOCATION);
    let discard = async |tag: Option<&str>| {
        let request = server.post(&format!("{place}/discard")).header(header::COOKIE, &ada);
        let request =
            tag.into_iter().fold(request, |request, tag| request.header(header::IF_MATCH, tag));
        server.ask(request.body(Body::empty()).expect("a request")).await
    };
    let refused = discard(None).await;
    assert_eq!(
        (refused.status.as_u16(), refused.problem()["code"].as_str()),
        (428, Some("version_required"))
    );
    let detail = refused.problem()["detail"].to_string();
    assert!(!detail.contains(|c: char| c.is_ascii_digit()), "no version to copy: {detail}");
    let tag = server.send_get(place, &ada).await.header(header::ETAG).to_owned();
    let old = discard(Some("\"9\"")).await;
    assert_eq!(
        (old.status.as_u16(), old.problem()["code"].as_str()),
        (412, Some("changed_meanwhile"))
    );
    let body = json!({"version": 9});
    let old = server.send_post(&format!("{place}/redo"), &ada, body).await;
    assert_eq!((old.status.as_u16(), old.problem()["code"].as_str()), (409, Some("version")));
    let done = discard(Some(&tag)).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.text());
    assert_eq!(
        server.send_get(place, &ada).await.status,
        StatusCode::CONFLICT,
        "the proposal is closed"
    );
    let document: Value = serde_json::from_str(rest::described()).expect("JSON");
    for path in ["undo", "redo", "discard"] {
        let reported = &document["paths"][format!("/api/v1/proposals/{{id}}/{path}")]["post"];
        assert_eq!(reported["requestBody"]["required"], false, "{path}");
        assert!(reported["responses"].get("428").is_some(), "{path}");
    }
}

#[tokio::test]
async fn unknown_query_parameter_is_rejected() {
    let server = TestServer::new().await;
    let ada = server.cookie().await;
    for (path, known) in [
        ("/api/v1/runs?stat=running", "before"),
        ("/api/v1/deployments?name=web", "after, filter, limit, sort, state"),
        ("/api/v1/nodes?x", "filter"),
    ] {
        let refused = server.send_get(path, &ada).await.problem();
        let detail = refused["detail"].as_str().unwrap_or_default();
        assert!(refused["status"] == 400 && detail.contains(known), "{path}: {detail}");
    }
}

#[tokio::test]
async fn invalid_utf_8_in_query_is_rejected() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    for path in ["/api/v1/deployments?filter=%FF", "/api/v1/nodes?filter=a%C3"] {
        let refused = server.send_get(path, &ada).await.problem();
        assert_eq!(refused["status"], 400, "{path}");
        assert_eq!(
            refused["detail"], "Invalid query parameters: the query is not valid UTF-8.",
            "{path}"
        );
    }
    let found = server.send_get("/api/v1/deployments?filter=%C3%A9", &ada).await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.text());
}

#[tokio::test]
async fn foreign_cursor_of_names_is_rejected() {
    let server = TestServer::new().await;
    server.furnish().await;
    let (ada, root) = (server.cookie().await, server.root().await);
    for (path, by) in
        [("/api/v1/deployments?after=zzz", &ada), ("/api/v1/people?after=x%27", &root)]
    {
        let refused = server.send_get(path, by).await.problem();
        let detail = refused["detail"].as_str().unwrap_or_default();
        assert!(
            refused["status"] == 400 && detail.starts_with("Invalid cursor"),
            "{path}: {detail}"
        );
    }
    let first = server.send_get("/api/v1/deployments?limit=1", &ada).await.json();
    let next = first["next"].as_str().expect("a second page").replace(' ', "%20");
    let second = server.send_get(&format!("/api/v1/deployments?after={next}"), &ada).await;
    assert_eq!(second.status, StatusCode::OK, "{}", second.text());
}

#[tokio::test]
async fn unsupported_method_returns_405() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    for (method, path) in
        [("TRACE", "/api/v1/deployments/web/hold"), ("DELETE", "/api/v1/barclamps?x=1")]
    {
        let request = Request::builder().method(method).uri(path).header(header::HOST, server.host);
        let request = request
            .header(header::COOKIE, &ada)
            .header("x-gantry", "1")
            .header("idempotency-key", "k");
        let answer = server
            .ask(request.header(header::IF_MATCH, "\"1\"").body(Body::empty()).expect("a request"))
            .await;
        assert_eq!(answer.problem()["code"], "method_not_allowed", "{method} {path}");
        assert!(answer.header(header::ALLOW).contains("POST"), "{method} {path}");
    }
}

#[tokio::test]
async fn lists_filter_by_parameters() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, _) = (server.cookie().await, bo);
    let of = async |path: &str| server.send_get(&format!("/api/v1/{path}"), &ada).await.json();
    let names = |page: &Value| {
        page["deployments"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|d| d["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&of("deployments?filter=ed").await), ["edge"]);
    assert_eq!(names(&of("deployments?state=on_hold").await), [""; 0]);
    server
        .send_post("/api/v1/deployments/web/hold", &ada, json!({"reason": "a while"}))
        .await
        .json();
    assert_eq!(names(&of("deployments?state=on_hold").await), ["web"]);
    server.send_post("/api/v1/deployments/edge/proposals", &ada, json!({})).await.json();
    assert_eq!(names(&of("deployments?state=proposed").await), ["edge"]);
    assert_eq!(names(&of("deployments?state=idle").await), ["system"]);
    assert_eq!(
        names(&of("deployments?after=system").await),
        ["edge", "web"],
        "the list continues after the cursor"
    );
    assert_eq!(names(&of("deployments?sort=-name&after=-name~-web").await), ["system", "edge"]);
    assert_eq!(of("blueprints?sort=number").await["blueprints"][0]["number"], 1);
    assert_eq!(of("blueprints?sort=number&before=number~-99").await["blueprints"], json!([]));

    let count = |page: &Value, list: &str| page[list].as_array().expect("a list").len();
    for (query, found) in [
        ("state=alive", 1),
        ("state=dead", 0),
        ("state=maintenance", 0),
        ("state=record_only", 1),
        ("deployment=system", 1),
        ("deployment=web", 0),
        ("filter=n1&deployment=system&state=alive", 1),
    ] {
        assert_eq!(count(&of(&format!("nodes?{query}")).await, "nodes"), found, "{query}");
    }
    assert_eq!(count(&of("barclamps?filter=tac").await, "versions"), 1);
    assert_eq!(count(&of("barclamps?filter=x").await, "versions"), 0);
    for refused in [
        "nodes?state=tired",
        "deployments?state=x",
        "deployments?sort=name&after=system%20web~-1",
        "blueprints?before=x",
        "blueprints?sort=name",
        "runs?since=x",
    ] {
        assert_eq!(
            server.send_get(&format!("/api/v1/{refused}"), &ada).await.status,
            StatusCode::BAD_REQUEST,
            "{refused}"
        );
    }
    for nowhere in [
        "nodes?deployment=x",
        "runs?deployment=x",
        "runs?node=x",
        "runs?worker=x",
        "blueprints?deployment=x",
    ] {
        assert_eq!(
            server.send_get(&format!("/api/v1/{nowhere}"), &ada).await.status,
            StatusCode::NOT_FOUND,
            "{nowhere}"
        );
    }
}
