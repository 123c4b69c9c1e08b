//! The permission matrix of the server functions: every function below `/call/`, called by every
//! client, on its own and on other resources.
//!
//! The functions come from the registry. The test fails if a function is missing in the table, or
//! if the table has one that no longer exists. Tokens don't open pages, so every token counts as
//! not signed in.

use std::collections::BTreeSet;

use leptos::server_fn::axum::server_fn_paths;

use super::matrix::{ALL, Caller, Requirement, World};
use super::*;

/// A call: name, required permission, and body (JSON if it starts with a brace, otherwise a form).
type Row = (&'static str, Requirement, &'static str);

const READ_CALLS: &[Row] = &[
    ("frame", Requirement::Open, "{}"),
    ("overview", Requirement::View, "{}"),
    ("deployments", Requirement::View, r#"{"query":{}}"#),
    ("board", Requirement::View, r#"{"deployment":"$deployment","query":{}}"#),
    (
        "nodes-with-role",
        Requirement::View,
        r#"{"deployment":"$deployment","of_ancestor":null,"role":"app"}"#,
    ),
    ("tray-nodes", Requirement::View, r#"{"deployment":"$deployment","text":"n","show":"all"}"#),
    ("bind-options", Requirement::View, r#"{"deployment":"$place","nodes":["$node"]}"#),
    ("planner", Requirement::View, r#"{"deployment":"$place","known":null}"#),
    ("noderole", Requirement::View, r#"{"id":"$binding"}"#),
    ("noderole-values", Requirement::View, r#"{"id":"$binding","query":{}}"#),
    ("run-values", Requirement::View, r#"{"id":$run,"query":{}}"#),
    ("node", Requirement::View, r#"{"name":"$node"}"#),
    ("node-health-checks", Requirement::View, r#"{"name":"$node","query":{}}"#),
    ("node-noderoles", Requirement::View, r#"{"name":"$node","query":{}}"#),
    ("node-results", Requirement::View, r#"{"name":"$node","query":{}}"#),
    ("nodes", Requirement::View, r#"{"query":{}}"#),
    ("runs", Requirement::View, r#"{"query":{}}"#),
    ("run", Requirement::View, r#"{"id":$run}"#),
    ("log", Requirement::View, r#"{"id":$run,"offset":0}"#),
    ("search-log", Requirement::View, r#"{"id":$run,"text":"x","ignore_case":false,"after":""}"#),
    ("pending", Requirement::View, r#"{"query":{}}"#),
    ("reviews", Requirement::View, r#"{"query":{}}"#),
    ("proposals", Requirement::View, r#"{"query":{}}"#),
    ("review", Requirement::View, r#"{"id":$review,"after":null}"#),
    ("graph", Requirement::View, r#"{"deployment":"$deployment","options":{}}"#),
    ("cluster-graph", Requirement::View, r#"{"options":{}}"#),
    ("review-graph", Requirement::View, r#"{"id":$review,"options":{}}"#),
    ("discussion", Requirement::View, r#"{"id":$review}"#),
    ("changes-since-view", Requirement::View, r#"{"id":$review}"#),
    ("viewed-changes", Requirement::View, r#"{"id":$review}"#),
    ("report", Requirement::View, r#"{"id":$review}"#),
    ("reviewed-noderole", Requirement::View, r#"{"id":$review,"node":"$node","noderole":"app"}"#),
    ("node-proposal", Requirement::View, r#"{"id":$proposal}"#),
    (
        "proposed-noderole",
        Requirement::View,
        r#"{"proposal":$proposal,"node":"$node","noderole":"app"}"#,
    ),
    ("blueprints", Requirement::View, r#"{"query":{}}"#),
    ("compare", Requirement::View, r#"{"from":"1","to":"1","deployment":null}"#),
    ("blueprint-progress", Requirement::View, r#"{"number":1}"#),
    ("policy", Requirement::View, "{}"),
    ("catalog", Requirement::View, r#"{"query":{}}"#),
    ("roles", Requirement::View, r#"{"query":{}}"#),
    ("role", Requirement::View, r#"{"name":"app","query":{}}"#),
    ("role-graph", Requirement::View, r#"{"query":{}}"#),
    ("imports", Requirement::View, r#"{"query":{}}"#),
    ("search", Requirement::View, r#"{"text":"app"}"#),
    ("workers", Requirement::View, r#"{"query":{}}"#),
    ("worker", Requirement::View, r#"{"id":"$worker"}"#),
    ("background-tasks", Requirement::View, "{}"),
    ("audit", Requirement::MoreThanView, r#"{"query":{}}"#),
    ("chain", Requirement::MoreThanView, r#"{"after":0}"#),
    ("account", Requirement::SignedIn, "{}"),
    ("second-factor", Requirement::SignedIn, "{}"),
    ("people", Requirement::Administer, r#"{"query":{}}"#),
    ("person", Requirement::Administer, r#"{"person":"$victim"}"#),
];

const WRITE_CALLS: &[Row] = &[
    ("hide-first-steps", Requirement::Open, "show=false"),
    ("record-view", Requirement::ViewInSession, r#"{"id":$review}"#),
    ("mark-viewed", Requirement::ViewInSession, "review=$review&anchors="),
    ("open-thread", Requirement::OperateOrReview, "review=$review&body=why"),
    ("reply", Requirement::OperateOrReview, "thread=$thread&body=so"),
    ("resolve-thread", Requirement::Review, "thread=$thread&resolved=true"),
    ("propose", Requirement::Operate, "deployment=$place"),
    ("propose-policy", Requirement::Operate, "deployment=$deployment"),
    ("propose-move", Requirement::Operate, "deployment=$deployment&node=n1"),
    ("propose-on-node", Requirement::Operate, "node=$node"),
    ("restore", Requirement::Operate, "deployment=$deployment&target=1&partial=true"),
    ("preview-edits", Requirement::Operate, r#"{"proposal":$proposal,"edits":[$edit]}"#),
    ("edit", Requirement::Operate, r#"{"proposal":$proposal,"version":$version,"edits":[$edit]}"#),
    ("undo", Requirement::Operate, "proposal=$proposal&version=$version"),
    ("redo", Requirement::Operate, "proposal=$proposal&version=$version"),
    ("give-verdict", Requirement::Review, "review=$review&kind=approve&reason=because"),
    ("commit", Requirement::OperateOrReview, "review=$review"),
    ("submit", Requirement::Operate, "proposal=$proposal&version=$version&title=again"),
    ("discard", Requirement::Operate, "proposal=$proposal&version=$version"),
    ("import", Requirement::OperateEverywhere, "path=x.yml&text=barclamp"),
    ("retry", Requirement::Operate, "noderole=$binding&reason=because"),
    ("retry-failed", Requirement::OperateSomewhere, "blueprint=1&reason=because"),
    ("cancel", Requirement::Operate, "run=$run"),
    ("hold", Requirement::Operate, "deployment=$place&on_hold=true&reason=because"),
    ("set-priority", Requirement::Operate, "deployment=$place&priority=1&reason=because"),
    ("set-execution", Requirement::OperateEverywhere, "enabled=false&reason=because"),
    ("add-node", Requirement::OperateEverywhere, "fqdn=m9.house.example.com&root=/srv/m9"),
    ("add-nodes", Requirement::OperateEverywhere, "text=m8.house.example.com+root%3D/srv/m8"),
    ("change-node", Requirement::Operate, "node=$node&version=1&description=x"),
    ("propose-change", Requirement::Operate, "node=$node&root=/srv/other"),
    ("drain-worker", Requirement::OperateEverywhere, "worker=$worker&drain=true&reason=because"),
    ("set-maintenance", Requirement::Operate, "node=$node&maintenance=true&reason=because"),
    ("create-node-token", Requirement::OperateOrAdmin, "node=$node&name=x"),
    ("revoke-node-token", Requirement::OperateOrAdmin, "node=$node&token=$its_token"),
    ("delete-node", Requirement::OperateEverywhere, "node=$node"),
    ("add-person", Requirement::Administer, "name=someone-new&kind=human&viewer=on"),
    ("change-grants", Requirement::Administer, "person=$victim&version=1&viewer=on"),
    ("confirm-person", Requirement::Administer, "person=$victim"),
    ("dismiss-notices", Requirement::Session, ""),
    ("factor-options", Requirement::Session, "{}"),
    ("present-passkey", Requirement::Session, r#"{"passkey":{}}"#),
    ("reset-factor", Requirement::Administer, "person=$victim"),
    ("passkey-options", Requirement::Session, "{}"),
    ("register-passkey", Requirement::Session, r#"{"body":{"name":"x","answer":{}}}"#),
    ("revoke-passkey", Requirement::Session, "passkey=$passkey"),
    ("confirmation-options", Requirement::Session, r#"{"passkey":"$passkey"}"#),
    (
        "confirm-passkey",
        Requirement::Session,
        r#"{"passkey":"$passkey","signature":{"nonce":"x","answer":{}}}"#,
    ),
    ("verdict-options", Requirement::ViewInSession, r#"{"review":$review,"kind":"approve"}"#),
    (
        "sign-verdict",
        Requirement::Review,
        r#"{"review":$review,"kind":"approve","reason":"","signature":{"nonce":"x","answer":{}}}"#,
    ),
    ("set-disabled", Requirement::Administer, "person=$victim&disabled=true"),
    ("new-link", Requirement::Administer, "person=$victim"),
    ("set-password", Requirement::Session, "new=short&again=short"),
    ("end-session", Requirement::Session, "session=$session"),
    ("create-token", Requirement::Administer, "name=x&admin=on"),
    ("revoke-token", Requirement::Session, "token=$api_token"),
    ("end-other-sessions", Requirement::Session, ""),
    ("sign-out", Requirement::Session, ""),
];

impl World {
    async fn call(&self, (name, _, sent): &Row, who: Caller, place: usize) -> Answer {
        let places = &self.places[place];
        let mut sent = (*sent).to_owned();
        for (word, of) in [
            ("$deployment", "deployment"),
            ("$place", "deployment_id"),
            ("$node", "node"),
            ("$binding", "noderole"),
            ("$run", "run"),
            ("$review", "review"),
            ("$proposal", "proposal"),
            ("$thread", "thread"),
            ("$worker", "worker"),
            ("$victim", "victim"),
            ("$its_token", "node_token"),
            ("$session", "victim_session"),
            ("$passkey", "passkey"),
            ("$api_token", "victim_token"),
        ] {
            sent = sent.replace(word, &places[of]);
        }
        sent = sent.replace("$version", &self.versions[place].to_string());
        sent = sent.replace("$edit", &self.edits[place].to_string());
        let kind = if sent.starts_with('{') {
            "application/json"
        } else {
            "application/x-www-form-urlencoded"
        };
        let mut request =
            self.server.post(&format!("/call/{name}")).header(header::CONTENT_TYPE, kind);
        request = request.header(header::ACCEPT, "application/json");
        if let Some((name, value)) = self.everybody.get(&who) {
            request = request.header(*name, value);
        }
        self.server.ask(request.body(Body::from(sent)).expect("a request")).await
    }
}

/// Whether a client may call it. Server functions accept only a session.
fn lets(takes: Requirement, who: Caller, own: bool) -> bool {
    let is_token = matches!(who, Caller::ServiceToken | Caller::ScopedToken | Caller::FullToken);
    takes == Requirement::Open || (!is_token && takes.lets(who, own))
}

#[test]
fn every_server_function_is_in_the_matrix() {
    let known: BTreeSet<&str> =
        READ_CALLS.iter().chain(WRITE_CALLS).map(|(name, ..)| *name).collect();
    assert_eq!(known.len(), READ_CALLS.len() + WRITE_CALLS.len(), "each call is listed once");
    let existing: BTreeSet<&str> =
        server_fn_paths().filter_map(|(path, _)| path.strip_prefix("/call/")).collect();
    assert!(existing.len() > 60, "{existing:?}");
    let unknown: Vec<_> = existing.difference(&known).collect();
    assert!(unknown.is_empty(), "the tables have no permission for these calls: {unknown:?}");
    let gone: Vec<_> = known.difference(&existing).collect();
    assert!(gone.is_empty(), "these calls do not exist: {gone:?}");
    let open: Vec<_> = WRITE_CALLS
        .iter()
        .filter(|(_, takes, _)| *takes == Requirement::Open)
        .map(|(name, ..)| *name)
        .collect();
    assert_eq!(open, ["hide-first-steps"], "the call only sets a cookie");
}

#[tokio::test]
async fn clients_call_only_permitted_server_functions() {
    let world = World::new().await;
    let before = world.server.state().await;
    let all = || READ_CALLS.iter().chain(WRITE_CALLS);
    for row in all() {
        for (who, place) in ALL.into_iter().flat_map(|who| [(who, 0), (who, 1)]) {
            if lets(row.1, who, place == 0) {
                continue;
            }
            let answer = world.call(row, who, place).await;
            let is_nobody = who == Caller::Nobody || !world.everybody[&who].0.eq("cookie");
            let expected = if is_nobody { 401 } else { 403 };
            let case = format!("{who:?} {} {}", row.0, ["own", "other"][place]);
            assert_eq!(answer.status.as_u16(), expected, "{case}: {}", answer.text());
        }
    }
    assert_eq!(world.server.state().await, before, "a rejected request must change nothing");
    for row in all().filter(|row| row.0 != "sign-out") {
        for (who, place) in ALL.into_iter().flat_map(|who| [(who, 0), (who, 1)]) {
            if !lets(row.1, who, place == 0) {
                continue;
            }
            let answer = world.call(row, who, place).await;
            let case = format!(
                "{who:?} {} {}: {} {}",
                row.0,
                ["own", "other"][place],
                answer.status,
                answer.text()
            );
            assert!(!matches!(answer.status.as_u16(), 401 | 403), "{case}");
            assert!(
                answer.status.as_u16() < 500 && !answer.text().contains("missing field"),
                "{case}"
            );
        }
    }
}
