//! Actors that lose their access during a request: every write loads the actor again.

use std::collections::BTreeSet;

use api::Problem;
use api::nodes::NodeChange;
use api::nodes::NodeRequest;
use api::people::{AccountKind, Grant, Password, PasswordRequest, PersonRequest, TokenRequest};
use control::CommitInput;
use control::people::{Actor, ClientInfo, NewPerson, Permission};
use engine::anneal::Limits;
use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentId, NodeId, NoderoleId, ProposalId, ReviewId, RunId,
};
use engine::plan::{Edit, edit};
use serde_json::json;
use uuid::Uuid;

use crate::installation::{self, Installation, role};

/// The objects for the tests.
struct TestObjects {
    edge: DeploymentId,
    nodes: [NodeId; 2],
    noderole: NoderoleId,
    run: RunId,
    /// A target at which edge had another state.
    then: BlueprintNumber,
    /// A proposal on web with an edit and an undone edit.
    proposal: ProposalId,
    version: i32,
    edit: Edit,
    review: ReviewId,
    thread: CommentId,
}

impl TestObjects {
    async fn of(installation: &Installation) -> Self {
        let edge = installation.id("edge").await;
        let then = installation.bound("edge", 2, "app").await;
        let data = Edit::SetRoleData(edit::SetRoleData {
            deployment: edge,
            role: role("app"),
            data: json!({"app": {"port": 1}}),
        });
        let changed = installation.submit(&installation.ada, "edge", vec![data]).await;
        installation.approve(&installation.bo, changed).await;
        installation.commit(&installation.ada, changed).await.unwrap();
        installation.worker().await;
        let claimed = store::runs::claim_runs(installation.database.worker(), Limits::default())
            .await
            .unwrap();

        let edits = vec![
            installation.bind("web", 1, "app").await,
            installation.bind("web", 3, "app").await,
        ];
        let (proposal, version) = installation.propose_each(&installation.ada, "web", edits).await;
        let version =
            installation.control.undo(&installation.ada, proposal, version).await.unwrap();
        let review = installation
            .control
            .submit(&installation.ada, proposal, version, "one".into())
            .await
            .unwrap();
        let thread = installation
            .control
            .open_thread(&installation.cy, review, Anchor::Whole, "why?".into())
            .await
            .unwrap();
        Self {
            edge,
            nodes: [installation.node(1).await, installation.node(4).await],
            noderole: installation.noderole(2, "base").await,
            run: claimed.runs[0],
            then,
            proposal,
            version,
            edit: installation.bind("web", 3, "still").await,
            review,
            thread,
        }
    }

    /// Every write about the cluster, each once.
    async fn change(
        &self,
        installation: &Installation,
        by: &Actor,
    ) -> Vec<(&'static str, Result<(), Problem>)> {
        let (control, reason) = (&installation.control, || "because".to_owned());
        let (proposal, version, id) = (self.proposal, self.version, self.review);
        let [n1, n4] = self.nodes;
        let shed = "barclamp: {name: shed, version: '1', description: For tests}\nroles:\n  - {name: shed, jig: noop}\n";
        let files = [("shed/shed.yml".to_owned(), shed.as_bytes().to_vec())].into();
        let commit = CommitInput { review: id, typed: None, cancel: false };
        let request = NodeRequest::named("new.house.example.com", "/srv/nodes/new");
        let described = NodeChange { description: Some("mine".into()), ..NodeChange::default() };
        vec![
            ("propose", control.propose(by, self.edge).await.map(drop)),
            ("propose on a node", control.propose_on_node(by, n4).await.map(drop)),
            ("edit", control.edit(by, proposal, version, vec![self.edit.clone()]).await.map(drop)),
            ("undo", control.undo(by, proposal, version).await.map(drop)),
            ("redo", control.redo(by, proposal, version).await.map(drop)),
            ("discard", control.discard(by, proposal, version).await),
            ("submit", control.submit(by, proposal, version, "mine".into()).await.map(drop)),
            ("restore", control.restore(by, "edge", self.then, true).await.map(drop)),
            ("import", control.import_barclamps(Some(by), &files).await.map(drop)),
            (
                "open a thread",
                control.open_thread(by, id, Anchor::Whole, "so".into()).await.map(drop),
            ),
            ("reply", control.reply(by, self.thread, "so".into()).await.map(drop)),
            ("reopen a thread", control.resolve_thread(by, self.thread, false).await),
            ("resolve a thread", control.resolve_thread(by, self.thread, true).await),
            ("record a view", control.record_view(by, id).await),
            ("mark as viewed", control.mark_viewed(by, id, vec![Anchor::Node(n1)]).await.map(drop)),
            (
                "give a verdict",
                control.give_verdict(by, id, VerdictKind::Approve, String::new()).await,
            ),
            ("commit", control.commit(by, commit).await.map(drop)),
            ("retry", control.retry(by, self.noderole, reason()).await),
            ("cancel", control.cancel(by, self.run).await),
            ("hold", control.hold(by, self.edge, true, reason()).await),
            ("set_priority", control.set_priority(by, self.edge, 3, reason()).await),
            ("switch", control.switch(by, false, reason()).await.map(drop)),
            ("add a node", control.add_node(by, request).await.map(drop)),
            (
                "add many",
                control
                    .add_nodes(by, "many.house.example.com root=/srv/nodes/many")
                    .await
                    .map(drop),
            ),
            ("change a node", control.change_node(by, n4, 1, described).await.map(drop)),
            ("start maintenance", control.set_maintenance(by, n4, true, reason()).await),
            (
                "create a node token",
                control.create_node_token(by, n4, "x".into(), 1).await.map(drop),
            ),
            ("revoke a node token", control.revoke_node_token(by, n4, Uuid::nil()).await),
            ("delete a record", control.delete_node(by, n4, None).await),
        ]
    }
}

/// Every write about other people, each once.
async fn change_people(
    installation: &Installation,
    by: &Actor,
) -> Vec<(&'static str, Result<(), Problem>)> {
    let (people, cy) = (&installation.people, installation.cy.person);
    let request =
        PersonRequest { name: "eve".into(), kind: AccountKind::Human, grants: Vec::new() };
    let grant = Grant { permission: "admin".into(), deployment: None };
    vec![
        ("add a person", people.add(by, &request).await.map(drop)),
        ("change grants", people.change_grants(by, cy, &[grant]).await.map(drop)),
        ("disable", people.set_disabled(by, cy, true).await),
        ("make a link", people.new_link(by, cy).await.map(drop)),
        ("confirm access", people.confirm(by, cy).await.map(drop)),
    ]
}

/// Every write about the person's own account, each once.
async fn change_oneself(
    installation: &Installation,
    by: &Actor,
) -> Vec<(&'static str, Result<(), Problem>)> {
    let people = &installation.people;
    let token = TokenRequest {
        name: "x".into(),
        days: 1,
        scopes: vec!["viewer".into()],
        deployment: None,
        person: None,
    };
    let password = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    vec![
        ("make a token", people.create_token(by, &token).await.map(drop)),
        ("revoke a token", people.revoke_token(by, Uuid::nil()).await),
        ("set a password", people.set_password(by, &password).await.map(drop)),
        ("dismiss notices", people.dismiss_notices(by).await),
        ("end a session", people.end_session(by, Uuid::nil()).await),
        ("end other sessions", people.end_other_sessions(by).await.map(drop)),
    ]
}

/// Signs a person in with a link.
async fn sign_in_with(installation: &Installation, name: &str) -> Actor {
    let person = installation.people.actor_by_name(name).await.unwrap().person;
    let link = installation
        .people
        .create_sign_in_link(None, person, std::time::Duration::from_secs(60))
        .await
        .unwrap();
    let begun =
        installation.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.unwrap();
    installation.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap()
}

/// Row counts that would reveal a write.
async fn left(installation: &Installation) -> (Vec<i64>, i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM comment) + (SELECT count(*) FROM viewed_change) + (SELECT count(*) FROM review_view) \
                 + (SELECT count(*) FROM person) + (SELECT count(*) FROM run WHERE cancel_requested), \
               (SELECT count(*) FROM proposal WHERE state = 'open') + (SELECT sum(version) FROM proposal)";
    let (more, proposals) =
        sqlx::query_as(sql).fetch_one(installation.database.owner()).await.unwrap();
    (installation.traces().await, more, proposals)
}

fn all_refused(tried: &[(&str, Result<(), Problem>)], status: u16, detail: &str) {
    for (call, answer) in tried {
        let found = answer.as_ref().map_err(|problem| problem.status);
        assert_eq!(found, Err(status), "{call}, {detail}: {answer:?}");
    }
}

async fn with_dan() -> Installation {
    let installation = Installation::new().await;
    let all = [Permission::Operator, Permission::Reviewer, Permission::Admin];
    for name in ["dan", "root"] {
        installation.people.create_person(None, &NewPerson::human(name, all)).await.unwrap();
    }
    installation
}

async fn sql(installation: &Installation, sql: &'static str) {
    sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
}

#[tokio::test]
async fn actor_disabled_during_request_writes_nothing() {
    let installation = with_dan().await;
    let things = TestObjects::of(&installation).await;
    let before = left(&installation).await;

    let dan = sign_in_with(&installation, "dan").await;
    sql(&installation, "UPDATE person SET permissions = '{}' WHERE name = 'dan'").await;
    all_refused(&things.change(&installation, &dan).await, 403, "without a permission");
    all_refused(&change_people(&installation, &dan).await, 403, "without a permission");
    sql(
        &installation,
        "UPDATE person SET permissions = '{operator,reviewer,admin}' WHERE name = 'dan'",
    )
    .await;

    installation.people.sign_out_everywhere(&dan).await.unwrap();
    all_refused(&things.change(&installation, &dan).await, 401, "signed out");
    all_refused(&change_people(&installation, &dan).await, 401, "signed out");
    all_refused(&change_oneself(&installation, &dan).await, 401, "signed out");

    let dan = sign_in_with(&installation, "dan").await;
    installation.people.disable(None, dan.person).await.unwrap();
    all_refused(&things.change(&installation, &dan).await, 401, "disabled");
    all_refused(&change_people(&installation, &dan).await, 401, "disabled");
    all_refused(&change_oneself(&installation, &dan).await, 401, "disabled");
    assert_eq!(left(&installation).await, before);

    // The same calls with the permission succeed, so the refusals above were due to the actor.
    let root = sign_in_with(&installation, "root").await;
    let control = &installation.control;
    let (proposal, version) = (things.proposal, things.version);
    control.propose(&root, things.edge).await.unwrap();
    control.edit(&root, proposal, version, vec![things.edit.clone()]).await.unwrap();
    control.record_view(&root, things.review).await.unwrap();
    control.cancel(&root, things.run).await.unwrap();
    installation.people.end_other_sessions(&root).await.unwrap();
    assert_ne!(left(&installation).await, before);
}

#[tokio::test]
async fn actor_disabled_during_submit_submits_nothing() {
    let installation = with_dan().await;
    let things = TestObjects::of(&installation).await;
    let dan = sign_in_with(&installation, "dan").await;
    let version = installation
        .control
        .edit(&dan, things.proposal, things.version, vec![things.edit.clone()])
        .await
        .unwrap();
    let before = left(&installation).await;
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT FROM proposal FOR UPDATE").execute(&mut *transaction).await.unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        installation.people.disable(None, dan.person).await.unwrap();
        transaction.commit().await.unwrap();
    };
    let (submitted, ()) = tokio::join!(
        installation.control.submit(&dan, things.proposal, version, "mine".into()),
        between
    );
    assert_eq!(submitted.unwrap_err().code, "signed_out");
    assert_eq!(left(&installation).await, before);
}

#[tokio::test]
async fn permission_revoked_during_retry_starts_nothing() {
    let installation = with_dan().await;
    let things = TestObjects::of(&installation).await;
    let dan = sign_in_with(&installation, "dan").await;
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::APPLY_LOCK)
        .execute(&mut *transaction)
        .await
        .unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        sql(&installation, "UPDATE person SET permissions = '{viewer}' WHERE name = 'dan'").await;
        transaction.commit().await.unwrap();
    };
    let (retried, ()) =
        tokio::join!(installation.control.retry(&dan, things.noderole, "again".into()), between);
    assert_eq!(retried.unwrap_err().code, "forbidden");
    // A retry that the step refuses is not recorded as a retry either.
    assert_eq!(
        installation
            .control
            .retry(&installation.ada, things.noderole, "again".into())
            .await
            .unwrap_err()
            .code,
        "state"
    );
    let noted: Vec<(String, Option<String>)> =
        sqlx::query_as("SELECT action, detail ->> 'refused' FROM audit WHERE action LIKE 'step.retry%' ORDER BY id")
            .fetch_all(installation.database.app())
            .await
            .unwrap();
    let refused = |detail: &str| ("step.retry.refused".to_owned(), Some(detail.to_owned()));
    assert_eq!(noted, [refused("forbidden"), refused("state")]);
}

/// Functions that write without reloading the actor, with the reason.
const WITHOUT_ACTOR: [(&str, &str); 13] = [
    ("begin", "the other functions begin with it"),
    ("ensure_genesis", "Gantry itself"),
    ("ensure_connection", "for a person with access to the machine and the database"),
    ("insert_in_savepoint", "runs in the transaction of `add_nodes`, which reloads the actor"),
    ("propose_binding", "records the author; the function that it calls reloads the actor"),
    ("replan", "Gantry itself"),
    ("append_report", "a machine with its own token"),
    ("note", "records a rejected request of any actor"),
    ("audit_refusal", "records a rejected request of any actor"),
    ("sign_in", "no one is signed in yet"),
    ("try_password", "no one is signed in yet; the database compares the proof"),
    ("sign_out", "ends only sessions of the client"),
    ("sign_out_everywhere", "ends only sessions of the client"),
];

/// The async functions of a file without its tests, as name and text. A text ends where the next
/// function starts.
fn functions(source: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().lines() {
        let code =
            line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        let begins = code.trim_start_matches("pub ").strip_prefix("async fn ");
        if let Some(name) = begins {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            found.push((name.to_owned(), String::new()));
        }
        if let Some((_, text)) = found.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    found
}

fn writes(text: &str) -> bool {
    let begins = text.contains(".begin()") && !text.contains("READ ONLY");
    let notes = ["append_audit(", "append_refusal(", "::ensure_", "::insert_"]
        .iter()
        .any(|call| text.contains(call));
    begins || (text.contains(".connection()") && notes)
}

/// Searches the source code for functions that open a read-write transaction or write on a
/// connection. Each must call `Actor::revalidate`, directly or through another function. The tests above
/// check the permissions that follow.
#[test]
fn every_write_reloads_the_actor() {
    let asks =
        [".revalidate(", ".lock_review_to_discuss(", ".lock_thread_to_discuss(", ".begin_change("];
    let (mut excused, mut checked) = (BTreeSet::new(), 0);
    for file in installation::sources() {
        for (name, text) in functions(&std::fs::read_to_string(&file).unwrap()) {
            let looks_up = asks.iter().any(|call| text.contains(call));
            match WITHOUT_ACTOR.iter().find(|(excuse, _)| *excuse == name) {
                _ if !writes(&text) => {}
                Some((excuse, _)) => drop(excused.insert(*excuse)),
                None => {
                    assert!(
                        looks_up,
                        "{name} in {} writes without calling Actor::revalidate",
                        file.display()
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(
        checked > 30,
        "found only {checked} functions that write: adapt the search of this test"
    );
    let needed: BTreeSet<&str> = WITHOUT_ACTOR.iter().map(|(name, _)| *name).collect();
    assert_eq!(excused, needed, "these exceptions are no longer needed");
}
