//! The permission matrix of the server functions: every function below `/call/`, called by every
//! client, on its own and on other resources.
//!
//! The functions come from the registry. The test fails if a function is missing in the table, or
//! if the table has one that no longer exists. Tokens don't open pages, so every token counts as
//! not signed in.

use std::collections::BTreeSet;

use leptos::server_fn::axum::server_fn_paths;

use super::matrix::{ALL, Takes, Who, World};
use super::*;

/// A call: name, required permission, and body (JSON if it starts with a brace, otherwise a form).
type Row = (&'static str, Takes, &'static str);

const READ_CALLS: &[Row] = &[
    ("frame", Takes::Open, "{}"),
    ("overview", Takes::Look, "{}"),
    ("deployments", Takes::Look, r#"{"wanted":{}}"#),
    ("board", Takes::Look, r#"{"deployment":"$deployment"}"#),
    ("carriers", Takes::Look, r#"{"deployment":"$deployment","of_ancestor":null,"role":"app"}"#),
    ("lift", Takes::Look, r#"{"deployment":"$place","nodes":["$node"]}"#),
    ("planner", Takes::Look, r#"{"deployment":"$place","known":null}"#),
    ("noderole", Takes::Look, r#"{"id":"$binding"}"#),
    ("noderole_values", Takes::Look, r#"{"id":"$binding","wanted":{}}"#),
    ("run_values", Takes::Look, r#"{"id":$run,"wanted":{}}"#),
    ("node", Takes::Look, r#"{"name":"$node"}"#),
    ("node_looks", Takes::Look, r#"{"name":"$node","wanted":{}}"#),
    ("node_noderoles", Takes::Look, r#"{"name":"$node","wanted":{}}"#),
    ("node_results", Takes::Look, r#"{"name":"$node","wanted":{}}"#),
    ("nodes", Takes::Look, r#"{"wanted":{}}"#),
    ("runs", Takes::Look, r#"{"wanted":{}}"#),
    ("run", Takes::Look, r#"{"id":$run}"#),
    ("log", Takes::Look, r#"{"id":$run,"offset":0}"#),
    ("search_log", Takes::Look, r#"{"id":$run,"text":"x","any_case":false,"after":""}"#),
    ("waiting", Takes::Look, r#"{"wanted":{}}"#),
    ("reviews", Takes::Look, r#"{"wanted":{}}"#),
    ("proposals", Takes::Look, r#"{"wanted":{}}"#),
    ("review", Takes::Look, r#"{"id":$submission,"after":null}"#),
    ("graph", Takes::Look, r#"{"deployment":"$deployment","wish":{}}"#),
    ("review_graph", Takes::Look, r#"{"id":$submission,"wish":{}}"#),
    ("discussion", Takes::Look, r#"{"id":$submission}"#),
    ("since_look", Takes::Look, r#"{"id":$submission}"#),
    ("opened", Takes::Look, r#"{"id":$submission}"#),
    ("report", Takes::Look, r#"{"id":$submission}"#),
    ("node_proposal", Takes::Look, r#"{"id":$proposal}"#),
    ("drafted", Takes::Look, r#"{"proposal":$proposal,"node":"$node","noderole":"app"}"#),
    ("targets", Takes::Look, r#"{"wanted":{}}"#),
    ("compare", Takes::Look, r#"{"from":"1","to":"1","deployment":null}"#),
    ("policy", Takes::Look, "{}"),
    ("catalog", Takes::Look, r#"{"wanted":{}}"#),
    ("roles", Takes::Look, r#"{"wanted":{}}"#),
    ("role", Takes::Look, r#"{"name":"app","wanted":{}}"#),
    ("role_graph", Takes::Look, r#"{"wanted":{}}"#),
    ("imports", Takes::Look, r#"{"wanted":{}}"#),
    ("search", Takes::Look, r#"{"text":"app"}"#),
    ("workers", Takes::Look, r#"{"wanted":{}}"#),
    ("worker", Takes::Look, r#"{"id":"$worker"}"#),
    ("audit", Takes::MoreThanView, r#"{"wanted":{}}"#),
    ("chain", Takes::MoreThanView, r#"{"after":0}"#),
    ("account", Takes::SignedIn, "{}"),
    ("second-factor", Takes::SignedIn, "{}"),
    ("people", Takes::Administer, r#"{"wanted":{}}"#),
    ("person", Takes::Administer, r#"{"id":"$victim"}"#),
];

const WRITE_CALLS: &[Row] = &[
    ("put_first_steps_away", Takes::Open, "back=false"),
    ("look", Takes::ViewInSession, r#"{"id":$submission}"#),
    ("open_changes", Takes::ViewInSession, "submission=$submission&anchors="),
    ("open_thread", Takes::OperateOrReview, "submission=$submission&body=why"),
    ("reply", Takes::OperateOrReview, "thread=$thread&body=so"),
    ("resolve_thread", Takes::Review, "thread=$thread&resolved=true"),
    ("propose", Takes::Operate, "deployment=$place"),
    ("propose_policy", Takes::Operate, "deployment=$deployment"),
    ("propose_move", Takes::Operate, "deployment=$deployment&node=n1"),
    ("propose_on_node", Takes::Operate, "node=$node"),
    ("restore", Takes::Operate, "deployment=$deployment&target=1&partial=true"),
    ("foresee", Takes::Operate, r#"{"proposal":$proposal,"edits":[$edit]}"#),
    ("edit", Takes::Operate, r#"{"proposal":$proposal,"version":$version,"edits":[$edit]}"#),
    ("undo", Takes::Operate, "proposal=$proposal&version=$version"),
    ("redo", Takes::Operate, "proposal=$proposal&version=$version"),
    ("judge", Takes::Review, "submission=$submission&kind=approve&reason=because"),
    ("commit", Takes::OperateOrReview, "submission=$submission"),
    ("submit", Takes::Operate, "proposal=$proposal&version=$version&title=again"),
    ("discard", Takes::Operate, "proposal=$proposal&version=$version"),
    ("import", Takes::OperateEverywhere, "path=x.yml&text=barclamp"),
    ("retry", Takes::Operate, "noderole=$binding&reason=because"),
    ("cancel", Takes::Operate, "run=$run"),
    ("hold", Takes::Operate, "deployment=$place&held=true&reason=because"),
    ("prioritise", Takes::Operate, "deployment=$place&priority=1&reason=because"),
    ("switch", Takes::OperateEverywhere, "enabled=false&reason=because"),
    ("add-node", Takes::OperateEverywhere, "fqdn=m9.house.example.com&root=/srv/m9"),
    ("add-nodes", Takes::OperateEverywhere, "text=m8.house.example.com+root%3D/srv/m8"),
    ("change-node", Takes::Operate, "node=$node&version=1&description=x"),
    ("propose-change", Takes::Operate, "node=$node&root=/srv/other"),
    ("set-available", Takes::Operate, "node=$node&available=false&reason=because"),
    ("mint-node-token", Takes::OperateOrAdmin, "node=$node&name=x"),
    ("revoke-node-token", Takes::OperateOrAdmin, "node=$node&token=$its_token"),
    ("take-out-node", Takes::OperateEverywhere, "node=$node"),
    ("add-person", Takes::Administer, "name=someone-new&kind=human&viewer=on"),
    ("change-grants", Takes::Administer, "person=$victim&version=1&viewer=on"),
    ("confirm-person", Takes::Administer, "person=$victim"),
    ("dismiss-notices", Takes::InPerson, ""),
    ("factor-options", Takes::InPerson, "{}"),
    ("present-passkey", Takes::InPerson, r#"{"passkey":{}}"#),
    ("reset-factor", Takes::Administer, "person=$victim"),
    ("passkey-options", Takes::InPerson, "{}"),
    ("register-passkey", Takes::InPerson, r#"{"wish":{"name":"x","answer":{}}}"#),
    ("revoke-passkey", Takes::InPerson, "passkey=$passkey"),
    ("confirmation-options", Takes::InPerson, r#"{"passkey":"$passkey"}"#),
    (
        "confirm-passkey",
        Takes::InPerson,
        r#"{"passkey":"$passkey","signature":{"nonce":"x","answer":{}}}"#,
    ),
    ("verdict-options", Takes::ViewInSession, r#"{"submission":$submission,"kind":"approve"}"#),
    (
        "sign-verdict",
        Takes::Review,
        r#"{"submission":$submission,"kind":"approve","reason":"","signature":{"nonce":"x","answer":{}}}"#,
    ),
    ("set-disabled", Takes::Administer, "person=$victim&disabled=true"),
    ("new-link", Takes::Administer, "person=$victim"),
    ("set-password", Takes::InPerson, "new=short&again=short"),
    ("end-session", Takes::InPerson, "session=$session"),
    ("make-token", Takes::Administer, "name=x&admin=on"),
    ("revoke-token", Takes::InPerson, "token=$api_token"),
    ("end-other-sessions", Takes::InPerson, ""),
    ("sign-out", Takes::InPerson, ""),
];

impl World {
    async fn call(&self, (name, _, sent): &Row, who: Who, place: usize) -> Answer {
        let places = &self.places[place];
        let mut sent = (*sent).to_owned();
        for (word, of) in [
            ("$deployment", "deployment"),
            ("$place", "deployment_id"),
            ("$node", "node"),
            ("$binding", "noderole"),
            ("$run", "run"),
            ("$submission", "submission"),
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
            self.house.post(&format!("/call/{name}")).header(header::CONTENT_TYPE, kind);
        request = request.header(header::ACCEPT, "application/json");
        if let Some((name, value)) = self.everybody.get(&who) {
            request = request.header(*name, value);
        }
        self.house.ask(request.body(Body::from(sent)).expect("a request")).await
    }
}

/// Whether a client may call it. Server functions accept only a session.
fn lets(takes: Takes, who: Who, own: bool) -> bool {
    let is_token = matches!(who, Who::ServiceToken | Who::ScopedToken | Who::FullToken);
    takes == Takes::Open || (!is_token && takes.lets(who, own))
}

#[test]
fn every_server_function_is_in_the_matrix() {
    let known: BTreeSet<&str> =
        READ_CALLS.iter().chain(WRITE_CALLS).map(|(name, ..)| *name).collect();
    assert_eq!(known.len(), READ_CALLS.len() + WRITE_CALLS.len(), "each once");
    let there: BTreeSet<&str> =
        server_fn_paths().filter_map(|(path, _)| path.strip_prefix("/call/")).collect();
    assert!(there.len() > 60, "{there:?}");
    let unknown: Vec<_> = there.difference(&known).collect();
    assert!(unknown.is_empty(), "the tables do not say who may ask these: {unknown:?}");
    let gone: Vec<_> = known.difference(&there).collect();
    assert!(gone.is_empty(), "there are none of these: {gone:?}");
    let open: Vec<_> = WRITE_CALLS
        .iter()
        .filter(|(_, takes, _)| *takes == Takes::Open)
        .map(|(name, ..)| *name)
        .collect();
    assert_eq!(open, ["put_first_steps_away"], "it keeps a cookie, and nothing here");
}

#[tokio::test]
async fn clients_call_only_permitted_server_functions() {
    let world = World::new().await;
    let before = world.house.state().await;
    let all = || READ_CALLS.iter().chain(WRITE_CALLS);
    for row in all() {
        for (who, place) in ALL.into_iter().flat_map(|who| [(who, 0), (who, 1)]) {
            if lets(row.1, who, place == 0) {
                continue;
            }
            let answer = world.call(row, who, place).await;
            let is_nobody = who == Who::Nobody || !world.everybody[&who].0.eq("cookie");
            let wanted = if is_nobody { 401 } else { 403 };
            let what = format!("{who:?} {} {}", row.0, ["own", "other"][place]);
            assert_eq!(answer.status.as_u16(), wanted, "{what}: {}", answer.text());
        }
    }
    assert_eq!(world.house.state().await, before, "whoever is refused changes nothing");
    for row in all().filter(|row| row.0 != "sign-out") {
        for (who, place) in ALL.into_iter().flat_map(|who| [(who, 0), (who, 1)]) {
            if !lets(row.1, who, place == 0) {
                continue;
            }
            let answer = world.call(row, who, place).await;
            let what = format!(
                "{who:?} {} {}: {} {}",
                row.0,
                ["own", "other"][place],
                answer.status,
                answer.text()
            );
            assert!(!matches!(answer.status.as_u16(), 401 | 403), "{what}");
            assert!(
                answer.status.as_u16() < 500 && !answer.text().contains("missing field"),
                "{what}"
            );
        }
    }
}
