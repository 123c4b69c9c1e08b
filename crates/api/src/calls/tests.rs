use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

/// Operations that change something but have no call, with the reason.
const WITHOUT_CALL: [(&str, &str); 15] = [
    ("POST /api/v1/deployments", "pages show the edit of the proposal instead"),
    ("DELETE /api/v1/deployments/{id}", "pages show the edit of the proposal instead"),
    ("POST /api/v1/me/second-factor", "a code works only once and for 30 seconds"),
    ("POST /api/v1/me/second-factor/options", "only a browser can use a passkey"),
    ("POST /api/v1/me/totp", "the secret belongs in an app, not in a terminal"),
    ("POST /api/v1/me/totp/confirm", "a code works only once and for 30 seconds"),
    ("POST /api/v1/me/passkeys/options", "only a browser can create a passkey"),
    ("POST /api/v1/me/passkeys", "only a browser can create a passkey"),
    ("POST /api/v1/passkeys/{id}/confirm/options", "only a browser can sign with a passkey"),
    ("POST /api/v1/passkeys/{id}/confirm", "only a browser can sign with a passkey"),
    ("POST /api/v1/reviews/{id}/verdicts/options", "only a browser can sign with a passkey"),
    ("POST /api/v1/self/bootenv", "a report of a node about itself"),
    ("PUT /api/v1/self/facts", "a report of a node about itself"),
    ("POST /api/v1/self/shutdown", "a report of a node about itself"),
    ("POST /api/v1/self/startup", "a report of a node about itself"),
];

fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("docs/openapi.json")).expect("JSON")
}

fn all() -> Vec<Call> {
    samples().expect("the samples")
}

/// Finds the path template of a call. Templates with fewer parameters take precedence.
fn template<'a>(document: &'a Value, call: &Call) -> (&'a str, &'a Value) {
    let path = call.path();
    let fits = |template: &str| {
        let (segments, template_segments): (Vec<_>, Vec<_>) =
            (path.split('/').collect(), template.split('/').collect());
        segments.len() == template_segments.len()
            && segments
                .iter()
                .zip(template_segments)
                .all(|(our, their)| their.starts_with('{') || *our == their)
    };
    let paths = document["paths"].as_object().expect("paths");
    let mut found: Vec<_> = paths.iter().filter(|(template, _)| fits(template)).collect();
    found.sort_by_key(|(template, _)| template.matches('{').count());
    let (template, operations) =
        found.first().unwrap_or_else(|| panic!("{path} does not match any path of the API"));
    let method = call.method().as_str().to_lowercase();
    let operation =
        operations.get(&method).unwrap_or_else(|| panic!("{template} has no method {method}"));
    (template, operation)
}

/// Resolves the `$ref` of a schema.
fn followed<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').expect("a reference within the document");
            followed(
                document,
                document.pointer(pointer).unwrap_or_else(|| panic!("{reference} does not exist")),
            )
        }
        None => schema,
    }
}

/// Lists the parts of a value that violate a schema. It supports the JSON Schema keywords that the
/// API's requests use and ignores all others.
fn schema_errors(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let schema = followed(document, schema);
    let any = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)?.as_array());
    if let Some(choices) = any {
        let results: Vec<_> =
            choices.iter().map(|choice| schema_errors(document, choice, value, at)).collect();
        if results.iter().all(|errors| !errors.is_empty()) {
            return vec![format!("{at}: matches none of {results:?}")];
        }
    }
    let mut found = Vec::new();
    if schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{at}: is not {}", schema["const"]));
    }
    if let Some(known) = schema.get("enum").and_then(Value::as_array)
        && !known.contains(value)
    {
        found.push(format!("{at}: {value} is not one of {known:?}"));
    }
    if let Some(types) = schema.get("type") {
        let types: Vec<&str> = match types {
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let type_name = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if !types.contains(&type_name) {
            found.push(format!("{at}: is of type {type_name}, not {types:?}"));
        }
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        found.extend(
            values
                .iter()
                .flat_map(|value| schema_errors(document, items, value, &format!("{at}/*"))),
        );
    }
    if let Some(fields) = value.as_object() {
        let none = serde_json::Map::new();
        let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        for (name, value) in fields {
            match known.get(name) {
                Some(schema) => {
                    found.extend(schema_errors(document, schema, value, &format!("{at}/{name}")))
                }
                None if schema.get("additionalProperties") == Some(&json!(false)) => {
                    found.push(format!("{at}/{name}: unknown field"));
                }
                None => {}
            }
        }
        let required = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        found.extend(
            required
                .filter(|name| !fields.contains_key(*name))
                .map(|name| format!("{at}/{name}: is missing")),
        );
    }
    found
}

#[test]
fn every_request_matches_the_openapi_document() {
    let document = document();
    for call in all() {
        let (template, operation) = template(&document, &call);
        let schema = operation.pointer("/requestBody/content/application~1json/schema");
        match (call.body(), schema) {
            (Body::Json(body), Some(schema)) => {
                let schema_errors = schema_errors(&document, schema, body, "");
                assert!(schema_errors.is_empty(), "{template}: {body}: {schema_errors:?}");
            }
            (Body::File(_), Some(_)) | (Body::Empty, None) => {}
            (Body::Empty, Some(_)) if operation["requestBody"]["required"] == false => {}
            (body, schema) => panic!("{template}: sends {body:?}, expected {schema:?}"),
        }
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let parameters: Vec<&Value> =
            parameters.iter().map(|one| followed(&document, one)).collect();
        for (word, _) in call.query() {
            let is_known = parameters.iter().any(|one| one["in"] == "query" && one["name"] == word);
            assert!(is_known, "{template} has no query parameter {word}");
        }
        let takes_version = parameters.iter().any(|one| one["name"] == "If-Match");
        assert!(takes_version || !call.has_version(), "{template} accepts no version in a header");
    }
}

#[test]
fn every_changing_operation_has_a_call() {
    let document = document();
    let shown: BTreeSet<String> = all()
        .iter()
        .map(|call| format!("{} {}", call.method().as_str(), template(&document, call).0))
        .collect();
    let not_shown: BTreeSet<String> =
        WITHOUT_CALL.iter().map(|(operation, _)| (*operation).to_owned()).collect();
    let mut can: BTreeSet<String> = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let changing = ["post", "put", "patch", "delete"]
            .into_iter()
            .filter(|method| operations.get(method).is_some());
        can.extend(changing.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let missing: Vec<_> =
        can.difference(&shown).filter(|operation| !not_shown.contains(*operation)).collect();
    assert!(missing.is_empty(), "no call exists for {missing:?}");
    let wrong: Vec<_> = not_shown
        .iter()
        .filter(|operation| !can.contains(*operation) || shown.contains(*operation))
        .collect();
    assert!(wrong.is_empty(), "these operations have a call but are listed without one: {wrong:?}");
}

#[test]
fn required_version_is_sent() {
    let document = document();
    for call in all() {
        let (template, operation) = template(&document, &call);
        if operation.pointer("/responses/428").is_some() {
            let in_body = call.curl().contains("\"version\":");
            assert!(
                call.has_version() || in_body,
                "{template} requires a version, but neither header nor body has it"
            );
        }
    }
}

#[test]
fn command_and_request_name_same_version() {
    for call in all().into_iter().filter(Call::has_version) {
        let words = call.arguments();
        let named = |word: &str| {
            words.iter().position(|one| one == word).and_then(|at| words.get(at + 1)).cloned()
        };
        let by_option = named("--version").map(|version| format!("\"{version}\""));
        let text = by_option
            .or_else(|| named("--if-match"))
            .unwrap_or_else(|| panic!("{} has no version", call.cli()));
        assert!(
            call.curl().contains(&format!("If-Match: {text}")),
            "the version of {} is missing in {}",
            call.cli(),
            call.curl()
        );
    }
}

#[test]
fn single_unbind_has_its_own_command() {
    use engine::cluster::NoderoleKey;
    use engine::ids::{DeploymentId, DeploymentName, NodeId, ProposalId, RoleName};
    use engine::plan::{Edit, edit};

    let node = NodeId(uuid::Uuid::from_u128(2));
    let web = DeploymentName::parse("web").expect("a name");
    let noderole = NoderoleKey::first(RoleName::parse("app").expect("a name"));
    let off = Edit::Unbind(edit::Unbind { node, noderole, with_dependents: true });
    let moved =
        Edit::MoveNode(edit::MoveNode { node, deployment: DeploymentId(uuid::Uuid::from_u128(1)) });
    let text = |board, edits: &[Edit]| put((ProposalId(9), 3), board, edits).cli();
    let only = std::slice::from_ref(&off);
    assert_eq!(
        text(Some(&web), only),
        format!("gantry unbind {node} app --in web --with-dependents")
    );
    // A proposal on a node has no deployment, and several edits are sent together: both use `edit`.
    for several in [text(None, only), text(Some(&web), &[off.clone(), moved])] {
        assert!(several.ends_with("| gantry proposal edit 9 --file=- --version 3"), "{several}");
    }
    let body = put((ProposalId(9), 3), Some(&web), only).body().clone();
    assert_eq!(
        body,
        Body::Json(json!({"version": 3, "edits": [off]})),
        "the request does not depend on the command"
    );
}

#[test]
fn session_only_operations_use_a_session() {
    // docs/people.md: no token can give a verdict, create a token, change people or passwords, or
    // end sessions.
    for call in all() {
        let path = call.path();
        let is_about_people =
            ["/people", "/tokens", "/me/", "/passkeys/"].iter().any(|part| path.contains(part));
        let requires_session = call.method() != Method::Get
            && (path.ends_with("/verdicts")
                || is_about_people
                    && !(path.contains("/nodes/") && call.method() == Method::Delete));
        assert_eq!(call.curl().contains("$GANTRY_SESSION"), requires_session, "{}", call.curl());
        assert_ne!(call.curl().contains("$GANTRY_TOKEN"), requires_session, "{}", call.curl());
    }
}

#[test]
fn shell_parses_commands_to_the_same_arguments() {
    for call in all() {
        let read = |line: &str, name: &str| {
            let script = format!("{name}() {{ printf '%s\\0' \"$@\"; }}; {line}");
            let out = std::process::Command::new("sh")
                .arg("-c")
                .arg(script)
                .env("GANTRY_SERVER", "http://x")
                .output();
            let out = String::from_utf8(out.expect("a shell").stdout).expect("text");
            out.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(read(&call.cli(), "gantry"), call.arguments());
        if let Some(input) = call.input() {
            let script = format!("gantry() {{ cat; }}; {}", call.cli());
            let out =
                std::process::Command::new("sh").arg("-c").arg(script).output().expect("a shell");
            assert_eq!(String::from_utf8(out.stdout).expect("text"), input);
        }
        let words = read(&call.curl(), "curl");
        assert!(words.last().expect("an address").starts_with("http://x/api/v1/"), "{words:?}");
        if let Body::Json(body) = call.body() {
            let sent =
                words.iter().position(|word| word == "--json").and_then(|at| words.get(at + 1));
            assert_eq!(serde_json::from_str::<Value>(sent.expect("a body")).expect("JSON"), *body);
        }
    }
}

#[test]
fn commands_have_readable_form() {
    let read = |call: &Call| (call.cli(), call.curl());
    let all = all();
    let (cli, curl) = read(all.iter().find(|call| call.path().ends_with("/hold")).expect("hold"));
    assert_eq!(cli, r#"gantry deployment hold web --reason 'ada'\''s switch; $HOME & "more"'"#);
    assert_eq!(
        curl,
        "curl -sS --fail-with-body -H \"Authorization: Bearer $GANTRY_TOKEN\" -H 'X-Gantry: 1' \
         --json \
         '{\"reason\":\"ada'\\''s switch; $HOME & \\\"more\\\"\"}' \"$GANTRY_SERVER/api/v1/deployments/web/hold\""
    );
    let runs = list(List::Runs, |word| match word {
        "state" => Some("failed".into()),
        "node" => Some("n1 & co".into()),
        "role" => Some(" ".into()),
        _ => None,
    });
    assert_eq!(runs.cli(), "gantry run list --state failed --node 'n1 & co'");
    assert_eq!(
        runs.curl(),
        "curl -sS --fail-with-body -H \"Authorization: Bearer $GANTRY_TOKEN\" \
         \"$GANTRY_SERVER/api/v1/runs?state=failed&node=n1%20%26%20co\""
    );
    let version = |call: &Call| call.cli().ends_with(" --version 3");
    let named: Vec<&Call> =
        all.iter().filter(|call| call.path().starts_with("/api/v1/proposals/9/")).collect();
    assert_eq!(
        named.iter().filter(|call| version(call)).count(),
        5,
        "edit, undo, redo, discard and submit have a version"
    );
    let node = engine::ids::NodeId(uuid::Uuid::nil());
    assert_eq!(delete_node(node).cli(), format!("gantry node remove {node}"));
    assert!(set_maintenance(node, 4, false, "x").curl().contains("-H 'If-Match: \"4\"' --json"));
    assert_eq!(
        set_maintenance(node, 4, false, "x").cli(),
        format!("gantry node end-maintenance {node} --reason x --version 4")
    );
    let fields = json!({ "hints": { "rack": "it's 7" } }).as_object().cloned().expect("an object");
    assert_eq!(
        change_node(node, 4, fields).cli(),
        format!(
            "printf %s '{{\"hints\":{{\"rack\":\"it'\\''s 7\"}}}}' | gantry api PATCH \
             /nodes/{node} --body - --if-match '\"4\"'"
        )
    );
    assert_eq!(reply(engine::ids::CommentId(3), "-1").cli(), "gantry review reply 3 -- -1");
}
