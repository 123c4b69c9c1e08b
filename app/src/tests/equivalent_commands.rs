//! *CLI and API*: the equivalent commands of forms and pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use api::Allowed;
use api::calls::{Body, samples};
use api::runs::StepState;

use super::fake::{self, Fake};
use super::serve::get;

/// A text as it appears in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn assert_contains(fake: &Fake, path: &str, lines: &[&str]) {
    let page = get(fake, path).await;
    assert_eq!(page.status, 200, "{path}");
    let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
    page.assert_contains(&["CLI and API"]);
    page.assert_contains(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[tokio::test]
async fn board_shows_proposal_and_hold_commands() {
    assert_contains(
        &Fake::new(|_| {}),
        "/deployments/web",
        &[
            "gantry deployment propose web",
            "-X POST \"$GANTRY_SERVER/api/v1/deployments/web/proposals\"",
            "gantry deployment hold web --reason WHY",
            "--json '{\"reason\":\"WHY\"}' \"$GANTRY_SERVER/api/v1/deployments/web/hold\"",
            "gantry deployment priority web 0 --reason WHY",
            "--json '{\"priority\":0,\"reason\":\"WHY\"}'",
        ],
    )
    .await;
    let fake = Fake::new(|world| {
        world.board = fake::proposed_board();
        let proposal = world.board.proposal.as_mut().expect("a proposal");
        proposal.title = "Ada's \"proxy\" for $5".into();
        proposal.redo = Some("bind web-9 to store".into());
    });
    let proposal =
        fake.0.lock().expect("an unpoisoned lock").board.proposal.clone().expect("a proposal");
    let (id, version) = (proposal.id, proposal.version);
    let lines = [
        format!("gantry proposal undo {id}"),
        format!("gantry proposal redo {id}"),
        format!("gantry proposal discard {id}"),
        format!("gantry proposal submit {id} --title 'Ada'\\''s \"proxy\" for $5'"),
        format!("--json '{{\"version\":{version}}}' \"$GANTRY_SERVER/api/v1/proposals/{id}/undo\""),
    ];
    assert_contains(&fake, "/deployments/web", &lines.each_ref().map(String::as_str)).await;
    get(&fake, "/deployments/web").await.assert_lacks(&["gantry deployment propose web"]);
}

#[tokio::test]
async fn review_shows_verdict_and_commit_commands() {
    let lines = [
        "gantry review show 128",
        "\"$GANTRY_SERVER/api/v1/reviews/128\"",
        "gantry review approve 128",
        "gantry review request-changes 128 --reason WHY",
        "gantry review reject 128 --reason WHY",
        "gantry review commit 128",
        "-b \"$GANTRY_SESSION\"",
        "\"$GANTRY_SERVER/api/v1/reviews/128/commit\"",
    ];
    assert_contains(&Fake::new(|_| {}), "/reviews/128", &lines).await;
    let talk = ["\"$GANTRY_SERVER/api/v1/reviews/128/threads\"", "/resolve\""];
    assert_contains(&Fake::new(|_| {}), "/reviews/128?tab=discussion", &talk).await;
    let about = "{\"anchor\":\"policy#/approvals\",\"body\":\"TEXT\"}";
    assert_contains(
        &Fake::new(|_| {}),
        "/reviews/128?tab=discussion&about=policy%23%2Fapprovals",
        &[about],
    )
    .await;
    let graph = ["gantry review graph 128 --roles app", "/api/v1/reviews/128/graph?roles=app\""];
    assert_contains(&Fake::new(|_| {}), "/reviews/128?tab=graph&roles=app", &graph).await;
    // A closed review accepts no verdicts.
    let closed = Fake::new(|world| world.review.state = api::reviews::ReviewState::Discarded);
    get(&closed, "/reviews/128").await.assert_lacks(&["gantry review approve"]);
}

#[tokio::test]
async fn lists_show_equivalent_commands() {
    let fake = Fake::new(|_| {});
    assert_contains(
        &fake,
        "/runs?state=failed",
        &["gantry run list --state failed", "/api/v1/runs?state=failed\""],
    )
    .await;
    assert_contains(
        &fake,
        "/nodes?filter=web%201",
        &["gantry node list --filter 'web 1'", "/api/v1/nodes?filter=web%201\""],
    )
    .await;
    assert_contains(
        &fake,
        "/deployments",
        &["gantry deployment list", "\"$GANTRY_SERVER/api/v1/deployments\""],
    )
    .await;
    assert_contains(
        &fake,
        "/pending?reason=on_hold&node=n1",
        &["/api/v1/pending?node=n1&reason=on_hold\""],
    )
    .await;
    assert_contains(
        &fake,
        "/pending?sort=-since",
        &["gantry pending --sort=-since", "/api/v1/pending?sort=-since\""],
    )
    .await;
    assert_contains(&fake, "/blueprints?deployment=web", &["/api/v1/blueprints?deployment=web\""])
        .await;
    assert_contains(
        &fake,
        "/reviews?involvement=mine&filter=it's",
        &["gantry review list --involvement mine --state open --filter 'it'\\''s'"],
    )
    .await;
    assert_contains(
        &fake,
        "/reviews?state=drafts",
        &["gantry proposal list --drafts", "/api/v1/proposals?drafts=true\""],
    )
    .await;
    assert_contains(
        &fake,
        "/catalog",
        &["gantry barclamp list", "gantry barclamp import", "--json @barclamps.json"],
    )
    .await;
}

#[tokio::test]
async fn graph_page_shows_equivalent_command() {
    let fake = Fake::new(|_| {});
    assert_contains(
        &fake,
        "/graph/web",
        &["gantry deployment graph web", "\"$GANTRY_SERVER/api/v1/deployments/web/graph\""],
    )
    .await;
    let cluster = ["gantry graph --longest time", "/api/v1/graph?longest=time\""];
    assert_contains(&fake, "/graph?longest=time", &cluster).await;
    // Display options of a page are not part of the API request.
    let path = "/graph/web?focus=web%3Aapp&direction=up&steps=2&color=wave&as=table&at=web%3Aapp";
    let lines = [
        "gantry deployment graph web --focus web:app --direction up --steps 2",
        "/api/v1/deployments/web/graph?focus=web%3Aapp&direction=up&steps=2\"",
    ];
    assert_contains(&fake, path, &lines).await;
}

#[tokio::test]
async fn node_and_run_actions_show_commands() {
    let fake = Fake::new(|world| {
        world.noderole.state = StepState::Error;
        world.noderole.may_retry = Allowed::Yes;
    });
    let id = fake.0.lock().expect("an unpoisoned lock").noderole.id;
    let retry = format!("gantry noderole retry {id} --reason WHY");
    assert_contains(&fake, &format!("/noderoles/{id}"), &[&retry]).await;
    assert_contains(
        &fake,
        "/nodes",
        &[
            "gantry node add NAME.EXAMPLE.COM --root /FOLDER",
            "{\"fqdn\":\"NAME.EXAMPLE.COM\",\"root\":\"/FOLDER\"}",
            "printf %s 'NAME.EXAMPLE.COM root=/FOLDER' | gantry node add --file=-",
            "{\"text\":\"NAME.EXAMPLE.COM root=/FOLDER\"}",
        ],
    )
    .await;
    // The execution switch is on every page.
    assert_contains(
        &fake,
        "/runs",
        &["gantry execution off --reason WHY", "\"$GANTRY_SERVER/api/v1/execution/off\""],
    )
    .await;
    let restorable = Fake::new(|world| {
        world.comparison.from.blueprint = Some(engine::ids::BlueprintNumber(3));
        world.comparison.to.blueprint = Some(engine::ids::BlueprintNumber(1));
        world.comparison.deployment = Some(fake::deployment("web"));
    });
    let path = "/blueprints?deployment=web&from=3&to=1";
    assert_contains(
        &restorable,
        path,
        &["gantry deployment restore web --blueprint 1", "{\"blueprint\":1,\"partial\":false}"],
    )
    .await;
}

#[tokio::test]
async fn node_change_commands_name_displayed_version() {
    let fake = Fake::new(|_| {});
    let (id, version) = {
        let world = fake.0.lock().expect("an unpoisoned lock");
        (world.machine.id, world.machine.version)
    };
    let lines = [
        format!("-H 'If-Match: \"{version}\"' --json"),
        format!("\"$GANTRY_SERVER/api/v1/nodes/{id}/start-maintenance\""),
        format!("gantry node start-maintenance {id} --reason WHY --version {version}"),
        format!("gantry node edit {id} --description TEXT --version {version}"),
        format!("\"$GANTRY_SERVER/api/v1/nodes/{id}/proposals\""),
        format!("gantry node token create {id} --name NAME --days 90"),
    ];
    let name = fake.0.lock().expect("an unpoisoned lock").machine.fqdn.clone();
    assert_contains(&fake, &format!("/nodes/{name}"), &lines.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn audit_shows_verify_and_export_commands() {
    let lines = [
        "gantry audit chain",
        "\"$GANTRY_SERVER/api/v1/audit/chain\"",
        "gantry audit export --file gantry-audit.jsonl",
        "\"$GANTRY_SERVER/api/v1/audit/export\"",
    ];
    assert_contains(&Fake::new(|_| {}), "/audit", &lines).await;
}

#[tokio::test]
async fn overview_and_sign_out_show_commands() {
    let lines = [
        "gantry overview",
        "\"$GANTRY_SERVER/api/v1/overview\"",
        "gantry session end 00000000-0000-0000-0000-000000000007",
        "-b \"$GANTRY_SESSION\" -H 'X-Gantry: 1' -X DELETE",
        "/api/v1/me/sessions/00000000-0000-0000-0000-000000000007\"",
    ];
    assert_contains(&Fake::new(|_| {}), "/", &lines).await;
}

/// The actions of forms with equivalent commands, by their names in the code.
const WITH_COMMAND: [(&str, &str); 44] = [
    ("AddNode", "add_node"),
    ("AddNodes", "add_nodes"),
    ("AddPerson", "add_person"),
    ("Cancel", "cancel_run"),
    ("ChangeGrants", "change_grants"),
    ("ChangeNode", "change_node"),
    ("Commit", "commit"),
    ("Discard", "discard"),
    ("ConfirmPerson", "confirm_person"),
    ("DismissNotices", "dismiss_notices"),
    ("DrainWorker", "drain"),
    ("EndOtherSessions", "end_other_sessions"),
    ("EndSession", "end_session"),
    ("Hold", "hold"),
    ("ImportBarclamp", "import"),
    ("GiveVerdict", "verdict"),
    ("CreateToken", "create_token"),
    ("CreateNodeToken", "create_node_token"),
    ("CreateLink", "create_link"),
    ("OpenThread", "comment"),
    ("SetPriority", "set_priority"),
    ("Propose", "propose"),
    ("ProposeMove", "propose"),
    ("ProposeChange", "propose_on_node"),
    ("ProposeOnNode", "propose_on_node"),
    ("ProposePolicy", "propose"),
    ("Redo", "redo"),
    ("Reply", "reply"),
    ("ResetFactor", "reset_factor"),
    ("ResolveThread", "resolve"),
    ("ProposeRestore", "restore"),
    ("Retry", "retry"),
    ("RetryFailedSteps", "retry_failed"),
    ("RevokeNodeToken", "revoke_node_token"),
    ("RevokePasskey", "revoke_passkey"),
    ("RevokeToken", "revoke_token"),
    ("SetMaintenance", "set_maintenance"),
    ("SetDisabled", "disable_person"),
    ("SetPassword", "set_password"),
    ("SignOut", "end_session"),
    ("Submit", "submit"),
    ("SetExecution", "execution"),
    ("DeleteNode", "delete_node"),
    ("Undo", "undo"),
];

/// The actions without equivalent commands, with the reason.
const WITHOUT_COMMAND: [(&str, &str); 1] =
    [("HideFirstSteps", "hides the list of first steps, which only pages have")];

/// The contents of all files in a folder and its subfolders, except tests.
fn sources(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let texts = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => vec![std::fs::read_to_string(&path).expect("a text")],
    };
    entries.filter(|path| !path.ends_with("tests")).flat_map(texts).collect()
}

#[test]
fn every_form_action_has_an_equivalent_command() {
    let mut found = BTreeSet::new();
    for text in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let acts = text.split("ServerAction::<").skip(1).filter_map(|rest| rest.split_once('>'));
        for (act, _) in acts {
            found.insert(act.to_owned());
            if WITHOUT_COMMAND.iter().any(|(not_shown, _)| *not_shown == act) {
                continue;
            }
            let call = WITH_COMMAND.iter().find(|(shown, _)| *shown == act).map(|(_, call)| *call);
            let call = call.unwrap_or_else(|| {
                panic!("{act} has neither a command nor a reason for its absence")
            });
            let is_named = text.contains(&format!("api::calls::{call}"))
                || (text.contains("use api::calls;") && text.contains(&format!("calls::{call}(")));
            assert!(is_named && text.contains("<EquivalentCommands"), "{act} does not show {call}");
        }
    }
    let reported = WITH_COMMAND
        .iter()
        .chain(&WITHOUT_COMMAND)
        .map(|(act, _)| (*act).to_owned())
        .collect::<BTreeSet<_>>();
    assert_eq!(reported, found, "the table lists exactly the actions of the console");
}

#[test]
fn commands_contain_no_secrets() {
    for call in samples().expect("the samples") {
        let both = format!("{} {}", call.cli(), call.curl());
        assert!(!both.contains("gantry_0"), "{both}");
        if call.path().ends_with("/me/password") {
            assert_eq!(*call.body(), Body::File("password.json"));
        }
    }
}
