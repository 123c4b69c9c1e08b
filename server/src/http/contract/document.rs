//! Generates the OpenAPI 3.1 document from the operations.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::names::{LOCAL_SESSION_COOKIE, SESSION_COOKIE};
use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::http::contract::describe::{Caller, Forms, OperationTypes};
use crate::http::contract::normal_form::SCHEMAS;
use crate::http::contract::rules::accepts_idempotency_key;
use crate::http::contract::{Operation, ROOT, normal_form};
use crate::http::idempotency::MAX_KEY_LENGTH;

/// Descriptions of the error statuses.
const ERROR_RESPONSES: &[(u16, &str)] = &[
    (400, "Invalid request. The problem names the error and the solution."),
    (401, "Not signed in, or the token is invalid."),
    (403, "The client lacks the permission, or the request is cross-site."),
    (404, "The resource does not exist."),
    (405, "The path does not support this method. `Allow` lists the supported ones."),
    (
        409,
        "The current state does not allow the request, or a request with the same idempotency key \
         is still running (`Retry-After`).",
    ),
    (408, "The request body timed out. Nothing was changed."),
    (412, "The resource has another version than `If-Match`."),
    (413, "The request body is too large."),
    (
        415,
        "The request body is not JSON, its Content-Type is missing, or it has a Content-Encoding.",
    ),
    (416, "The range is outside of the content."),
    (421, "The host name of the request is unknown."),
    (
        422,
        "The request is valid JSON but cannot be applied. `code` names the reason. An edit has no \
         valid effect (`edit_refused`). Data does not match the schema of its role \
         (`schema_mismatch`). A barclamp is invalid (`barclamp`). A confirmation name is missing \
         (`confirmation_required`). The idempotency key was used for another request \
         (`idempotency_key_reused`).",
    ),
    (428, "The version is missing. Send it with `If-Match`."),
    (429, "Too many requests. Retry after the time in `Retry-After`."),
    (500, "Internal error. The server's log has the cause."),
    (
        503,
        "The database is unavailable, or the server is overloaded. Retry after the time in \
         `Retry-After`. Without that header (`unknown_outcome`), the request may have taken \
         effect. Check before you try again.",
    ),
    (504, "The request timed out and may have taken effect. Check before you try again."),
];

/// Generates the document for these operations.
pub(crate) fn document(operations: &[Operation]) -> Value {
    let mut forms = Forms::new();
    let problem = Value::from(forms.written.subschema_for::<Problem>());
    // Requests are generated separately, because their schemas may be renamed below.
    let mut drafts = Vec::new();
    for operation in operations {
        let mut types = OperationTypes::new(&mut forms);
        (operation.describe)(&mut types);
        drafts.push(Draft::of(operation, &types));
    }
    let written = forms.written.take_definitions(true);
    let read = forms.read.take_definitions(true);
    let differ = differing(&read, &written);
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for draft in drafts {
        let Draft { path, method, asks, mut item } = draft;
        let asks = renamed(asks, &differ);
        if let (Value::Object(item), Value::Object(asks)) = (&mut item, asks) {
            item.extend(asks);
        }
        paths.entry(path).or_default().insert(method, item);
    }
    let mut schemas = written;
    for (name, schema) in read {
        let schema = renamed(schema, &differ);
        let name = if differ.contains(&name) { input(&name) } else { name };
        schemas.entry(name).or_insert(schema);
    }
    normal_form::normalize_named(&mut schemas);
    let mut paths = json!(paths);
    normal_form::normalize(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gantry",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Deploys and maintains clusters. Every change is planned and reviewed \
                before it runs.",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that returned this document."}],
        "tags": tags(operations),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": security_schemes(),
            "parameters": parameters(),
            "responses": responses(&problem),
            "headers": headers(),
        },
    })
}

const ABOUT: &str = "Every error is a problem (RFC 9457, `application/problem+json`). `code` is \
    stable for API clients, `type` is its URI, and `detail` explains the solution. `docs/api.md` \
    lists the codes.\n\nTimes are texts in the format of RFC 3339, in UTC.\n\nLists are paged. \
    `limit` is the maximum number of items of a page. Send the `next` value of a page as `before` \
    or `after` of the next request, as the operation names it. If `next` is `null` or missing, \
    there are no more pages. An unknown query parameter is an error that lists the valid \
    ones.\n\nEvery JSON response to a GET has an `ETag`. With `If-None-Match`, an unchanged \
    response is 304. A signed-in client can send an `Idempotency-Key` with a POST. For 24 hours, \
    the same request with the same key runs once and returns the same response. See `docs/api.md` \
    for the limits.";

/// One operation, with request and response separate.
struct Draft {
    path: String,
    method: String,
    /// Parameters and body.
    asks: Value,
    /// Everything but parameters and body.
    item: Value,
}

impl Draft {
    fn of(operation: &Operation, types: &OperationTypes<'_>) -> Self {
        let mut item = Map::new();
        let op = &operation.op;
        item.insert("operationId".into(), op.id.into());
        item.insert("summary".into(), op.summary.into());
        if !op.about.is_empty() {
            item.insert("description".into(), op.about.into());
        }
        item.insert("tags".into(), json!([tag(operation.path)]));
        item.insert("security".into(), security(operation, types.caller));
        item.insert("responses".into(), answers(operation, types));
        Self {
            path: format!("{ROOT}{}", operation.path),
            method: operation.method.as_str().to_ascii_lowercase(),
            asks: asks(operation, types),
            item: item.into(),
        }
    }
}

fn tag(path: &str) -> &str {
    path.trim_start_matches('/').split(['/', '.']).next().unwrap_or_default()
}

fn tags(operations: &[Operation]) -> Value {
    let tags: BTreeSet<&str> = operations.iter().map(|operation| tag(operation.path)).collect();
    tags.into_iter().map(|name| json!({"name": name})).collect()
}

/// Whether its responses have entity tags.
fn is_tagged(operation: &Operation, types: &OperationTypes<'_>) -> bool {
    operation.method == Method::GET
        && (types.answer.is_some() || operation.op.content.contains(&"application/json"))
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

fn security(operation: &Operation, caller: Caller) -> Value {
    let who = match caller {
        Caller::Anonymous => return json!([]),
        Caller::Person => &["session", "token"][..],
        Caller::Node => &["machine"][..],
    };
    who.iter()
        .map(|scheme| match changes(&operation.method) {
            true => json!({*scheme: [], "program": []}),
            false => json!({*scheme: []}),
        })
        .collect()
}

/// Names of the parameters in a path.
pub(crate) fn places(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn asks(operation: &Operation, types: &OperationTypes<'_>) -> Value {
    let mut parameters = Vec::new();
    for (at, name) in places(operation.path).enumerate() {
        let schema = types.places.get(at).cloned().unwrap_or_else(|| json!({"type": "string"}));
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
    }
    for (name, (schema, required)) in &types.query {
        let mut schema = schema.clone();
        let about = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter =
            json!({"name": name, "in": "query", "required": required, "schema": schema});
        if let Some(about) = about {
            parameter["description"] = about;
        }
        parameters.push(parameter);
    }
    let shared = |name: &str| json!({"$ref": format!("#/components/parameters/{name}")});
    if operation.op.on_version {
        parameters.push(shared("IfMatch"));
    }
    if accepts_idempotency_key(&operation.method, types.caller) {
        parameters.push(shared("IdempotencyKey"));
    }
    if is_tagged(operation, types) {
        parameters.push(shared("IfNoneMatch"));
    }
    let mut asks = Map::new();
    asks.insert("parameters".into(), parameters.into());
    if let Some((schema, required)) = &types.body {
        let body =
            json!({"required": required, "content": {"application/json": {"schema": schema}}});
        asks.insert("requestBody".into(), body);
    }
    asks.into()
}

fn answers(operation: &Operation, types: &OperationTypes<'_>) -> Value {
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    let op = &operation.op;
    let mut headers = Map::new();
    let header = |name: &str| json!({"$ref": format!("#/components/headers/{name}")});
    if is_tagged(operation, types) {
        headers.insert("ETag".into(), header("ETag"));
        answers.insert(
            "304".into(),
            json!({"description": "Not modified since the `ETag` in `If-None-Match`."}),
        );
    }
    if types.located {
        headers.insert("Location".into(), header("Location"));
    }
    if accepts_idempotency_key(&operation.method, types.caller) {
        headers.insert("Idempotency-Replayed".into(), header("IdempotencyReplayed"));
    }
    let mut content = Map::new();
    let mut status = StatusCode::OK;
    if let Some((code, schema)) = &types.answer {
        status = *code;
        content.insert("application/json".into(), json!({"schema": schema}));
    }
    for kind in op.content {
        let schema = match *kind {
            "application/json" => json!({}),
            _ => json!({"type": "string"}),
        };
        content.insert((*kind).to_owned(), json!({"schema": schema}));
    }
    let about = if status == StatusCode::CREATED { "Created." } else { "Success." };
    let mut good = json!({"description": about, "content": content});
    if !headers.is_empty() {
        good["headers"] = headers.into();
    }
    answers.insert(status.as_u16().to_string(), good);
    for status in refusals(operation, types) {
        answers.insert(
            status.to_string(),
            json!({"$ref": format!("#/components/responses/{}", response(status))}),
        );
    }
    json!(answers)
}

/// The error statuses of an operation.
fn refusals(operation: &Operation, types: &OperationTypes<'_>) -> BTreeSet<u16> {
    let op = &operation.op;
    let changes = changes(&operation.method);
    let mut statuses = BTreeSet::from([400, 421, 500, 503, 504]);
    let mut on = |condition: bool, codes: &[u16]| {
        if condition {
            statuses.extend(codes);
        }
    };
    // Tokens of people and machines are rate-limited, as is the use of keys.
    on(types.caller != Caller::Anonymous, &[401, 403, 429]);
    on(changes, &[403, 409]);
    on(places(operation.path).next().is_some(), &[404]);
    // A query or a body may name an unknown resource.
    on(!types.query.is_empty() || types.body.is_some(), &[404]);
    on(types.body.is_some(), &[408, 413, 415]);
    on(op.on_version, &[412]);
    on(accepts_idempotency_key(&operation.method, types.caller), &[409, 422]);
    on(true, op.also);
    statuses
}

fn response(status: u16) -> String {
    let reason = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Refused");
    reason.split_whitespace().collect()
}

fn responses(problem: &Value) -> Value {
    let text = |status: u16, about: &str| {
        let mut answer = json!(
            {"description": about, "content": {"application/problem+json": {"schema": problem}}}
        );
        let header = |name: &str| json!({"$ref": format!("#/components/headers/{name}")});
        match status {
            401 => answer["headers"] = json!({"WWW-Authenticate": header("WwwAuthenticate")}),
            409 | 429 | 503 => answer["headers"] = json!({"Retry-After": header("RetryAfter")}),
            _ => {}
        }
        (response(status), answer)
    };
    ERROR_RESPONSES.iter().map(|(status, about)| text(*status, about)).collect::<Map<_, _>>().into()
}

fn security_schemes() -> Value {
    json!({
        "session": {
            "type": "apiKey", "in": "cookie", "name": LOCAL_SESSION_COOKIE,
            "description": format!("The session cookie that `POST /sign-in` sets. Over HTTPS, its \
                name is `{SESSION_COOKIE}`."),
        },
        "program": {
            "type": "apiKey", "in": "header", "name": "X-Gantry",
            "description": "`X-Gantry: 1` is required with every change. It protects against \
                cross-site requests. Browsers send `Origin` instead.",
        },
        "token": {
            "type": "http", "scheme": "bearer",
            "description": "A token of a person or a service account.",
        },
        "machine": {
            "type": "http", "scheme": "bearer",
            "description": "A token of a node. It is valid only for reports of that node.",
        },
    })
}

fn parameters() -> Value {
    json!({
        "IfMatch": {
            "name": "If-Match", "in": "header", "required": false,
            "schema": {
                "type": "string",
                "pattern": r#"^"-?[0-9]{1,9}([.][0-9a-f]{16})?(-br|-gzip)?"$"#,
                "examples": ["\"3\""]
            },
            "description": "The `ETag` of the resource that the change is based on, or its version \
                in quotation marks. Only the version is compared. Another version returns 412.",
        },
        "IfNoneMatch": {
            "name": "If-None-Match", "in": "header", "required": false,
            "schema": {"type": "string"},
            "description": "`ETag`s of cached responses. If one of them is current, the response \
                is 304.",
        },
        "IdempotencyKey": {
            "name": "Idempotency-Key", "in": "header", "required": false,
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_KEY_LENGTH,
                "pattern": "^[!-~]+$"
            },
            "description": "A unique value for this request, such as a UUID. If you repeat the \
                request with the same key within 24 hours, you get the first response.",
        },
    })
}

fn headers() -> Value {
    json!({
        "ETag": {
            "schema": {"type": "string"},
            "description": "Identifies the exact bytes of this response. It begins with the \
                version if the resource has one.",
        },
        "IdempotencyReplayed": {
            "schema": {"type": "string", "const": "true"},
            "description": "This is the stored response to the first request with this key. \
                Nothing was changed.",
        },
        "Location": {
            "schema": {"type": "string", "format": "uri-reference"},
            "description": "The URL of the created resource. For a token, the URL to revoke it.",
        },
        "RetryAfter": {"schema": {"type": "string"}, "description": "Seconds to wait before a \
            retry."},
        "WwwAuthenticate": {
            "schema": {"type": "string", "pattern": "^Bearer "},
            "description": "Send a bearer token. `error=\"invalid_token\"` means that the token is \
                invalid.",
        },
    })
}

fn input(name: &str) -> String {
    format!("{name}Input")
}

/// Types whose input and output schemas differ, directly or through a nested type.
fn differing(read: &Map<String, Value>, written: &Map<String, Value>) -> BTreeSet<String> {
    let other =
        |name: &String, schema: &Value| written.get(name).is_some_and(|written| written != schema);
    let mut differ: BTreeSet<String> = read
        .iter()
        .filter(|(name, schema)| other(name, schema))
        .map(|(name, _)| name.clone())
        .collect();
    loop {
        let refers_to_differing = |(name, schema): &(&String, &Value)| {
            !differ.contains(*name) && has_reference_to(schema, &differ)
        };
        let more: Vec<String> =
            read.iter().filter(refers_to_differing).map(|(name, _)| name.clone()).collect();
        if more.is_empty() {
            return differ;
        }
        differ.extend(more);
    }
}

fn has_reference_to(schema: &Value, names: &BTreeSet<String>) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| match (key.as_str(), value.as_str()) {
                ("$ref", Some(to)) => {
                    to.strip_prefix(SCHEMAS).is_some_and(|name| names.contains(name))
                }
                _ => has_reference_to(value, names),
            })
        }
        Value::Array(items) => items.iter().any(|item| has_reference_to(item, names)),
        _ => false,
    }
}

/// Renames references to types whose input schema differs.
fn renamed(schema: Value, differ: &BTreeSet<String>) -> Value {
    match schema {
        Value::Object(fields) => {
            let field = |(key, value): (String, Value)| {
                let name =
                    value.as_str().and_then(|to| to.strip_prefix(SCHEMAS)).map(str::to_owned);
                match name {
                    Some(name) if key == "$ref" && differ.contains(&name) => {
                        (key, format!("{SCHEMAS}{}", input(&name)).into())
                    }
                    _ => (key, renamed(value, differ)),
                }
            };
            Value::Object(fields.into_iter().map(field).collect())
        }
        Value::Array(items) => items.into_iter().map(|item| renamed(item, differ)).collect(),
        value => value,
    }
}
