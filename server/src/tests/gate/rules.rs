//! Every rule of the gate, broken separately, on every interface: REST, a page's form, and the
//! application's database connection.
//!
//! The rules are those of the engine's enum. [`after`] and [`break_only`] match all of them
//! exhaustively, so a new rule does not compile without a case. The rules that the gate shows are
//! compared with them.

use engine::gate::{GateResult, Rule};

use super::*;

/// The rules in the gate's order.
fn after(rule: Rule) -> Option<Rule> {
    match rule {
        Rule::Newest => Some(Rule::Resolved),
        Rule::Resolved => Some(Rule::Lint),
        Rule::Lint => Some(Rule::Base),
        Rule::Base => Some(Rule::Epoch),
        Rule::Epoch => Some(Rule::Policy),
        Rule::Policy => Some(Rule::Objections),
        Rule::Objections => Some(Rule::Approvals),
        Rule::Approvals => Some(Rule::Threads),
        Rule::Threads => None,
    }
}

/// The error of a commit, and the database's error if a target is inserted by hand. `None` for
/// rules that need the planner, which triggers don't have.
fn expected_error(rule: Rule) -> (&'static str, Option<&'static str>) {
    match rule {
        Rule::Newest => ("not_newest", Some("GY005")),
        Rule::Resolved => ("edit_refused", None),
        Rule::Lint => ("lint", None),
        Rule::Base => ("base_moved", Some("GY004")),
        Rule::Epoch => ("other_epoch", Some("GY008")),
        Rule::Policy => ("policy_moved", Some("GY006")),
        Rule::Objections | Rule::Approvals => ("not_approved", Some("GY007")),
        Rule::Threads => ("open_threads", Some("GY017")),
    }
}

/// A change to a committed deployment that ada proposed and bo approved.
struct ApprovedReview {
    server: TestServer,
    ada: String,
    bo: String,
    proposal: i64,
    version: i64,
    id: i64,
}

impl ApprovedReview {
    async fn new() -> Self {
        let server = TestServer::new().await;
        let bo = server.furnish().await;
        let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
        let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
        let node =
            server.send_get("/api/v1/nodes?filter=n1", &ada).await.json()["nodes"][0]["id"].clone();
        let edits =
            json!([{"edit": "bind", "deployment": board["id"], "node": node, "role": "app"}]);
        let first = server.draft(&ada, "web", edits).await;
        let first = server.submit(&ada, first).await;
        server.add_verdict_via(Interface::Rest, &bo, first, "approve").await;
        assert_eq!(server.commit_via(Interface::Rest, &ada, first).await.0, 201);
        let edits = server.data(&ada, "web", 1).await;
        let (proposal, version) = server.draft(&ada, "web", edits).await;
        let id = server.submit(&ada, (proposal, version)).await;
        server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
        Self { server, ada, bo, proposal, version, id }
    }

    async fn gate(&self) -> GateResult {
        let review =
            self.server.send_get(&format!("/api/v1/reviews/{}", self.id), &self.ada).await.json();
        serde_json::from_value(review["gate"].clone()).expect("a gate")
    }

    async fn broken(&self) -> Vec<Rule> {
        self.gate().await.broken().map(|state| state.rule).collect()
    }

    /// Inserts the target with the application's role and ada's session, and returns the database's
    /// error. Rolls back.
    async fn by_hand(&self) -> Option<String> {
        let sql = "INSERT INTO blueprint (number, parent, kind, root, review_id, enabled, epoch,
            committed_by)
                   SELECT h.number + 1, h.number, 'change', s.root_hash, s.id, h.enabled, h.epoch,
                   $2 FROM head h, review s
                   WHERE s.id = $1";
        let mut transaction = self.server.db.app().begin().await.expect("a transaction");
        let session = self.ada.split_once('=').expect("a cookie").1;
        sqlx::query("SELECT act_as($1)")
            .bind(session)
            .execute(&mut *transaction)
            .await
            .expect("an answer");
        let done =
            sqlx::query(sql).bind(self.id).bind(self.server.ada.0).execute(&mut *transaction).await;
        let refused = done.err()?;
        let state = refused
            .as_database_error()
            .and_then(|error| error.code())
            .map(|code| code.into_owned());
        Some(state.unwrap_or_else(|| panic!("expected an error of the database: {refused}")))
    }

    /// Makes a change that no interface allows, without side effects.
    async fn change_without_triggers(&self, table: &str, statement: &str) {
        let mut transaction = self.server.db.owner().begin().await.expect("a transaction");
        let switch = |on| sqlx::AssertSqlSafe(format!("ALTER TABLE {table} {on} TRIGGER USER"));
        sqlx::query(switch("DISABLE"))
            .execute(&mut *transaction)
            .await
            .expect("the owner has the permission");
        let done = sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&mut *transaction)
            .await
            .expect("the owner has the permission");
        assert_eq!(done.rows_affected(), 1, "{statement}");
        sqlx::query(switch("ENABLE"))
            .execute(&mut *transaction)
            .await
            .expect("the owner has the permission");
        transaction.commit().await.expect("a commit");
    }
}

/// Breaks this rule and no other.
async fn break_only(rule: Rule, case: &ApprovedReview) {
    let server = &case.server;
    match rule {
        Rule::Newest => {
            let path = format!("/api/v1/proposals/{}/discard", case.proposal);
            server.send_post(&path, &case.ada, json!({"version": case.version})).await.json();
        }
        Rule::Resolved => {
            let slipped = sqlx::query("UPDATE edit SET undone = true WHERE proposal_id = $1")
                .bind(case.proposal);
            let slipped =
                slipped.execute(server.db.owner()).await.expect("the owner has the permission");
            assert_eq!(slipped.rows_affected(), 1);
        }
        Rule::Lint => {
            case.change_without_triggers("jig", "UPDATE jig SET active = false WHERE name = 'noop'")
                .await
        }
        Rule::Base => {
            server
                .send_post("/api/v1/execution/off", &case.ada, json!({"reason": "a target"}))
                .await
                .json();
            case.change_without_triggers(
                "deployment",
                "UPDATE deployment SET head_no = 3 WHERE name = 'web'",
            )
            .await;
        }
        Rule::Epoch => server.sql("UPDATE head SET epoch = epoch + 1").await,
        Rule::Policy => {
            server
                .send_post("/api/v1/execution/off", &case.ada, json!({"reason": "a target"}))
                .await
                .json();
            let second = "INSERT INTO policy (number, hash, blueprint_number) SELECT 2, p.hash, \
                h.number FROM policy p, head h";
            case.change_without_triggers("policy", second).await;
            case.change_without_triggers("head", "UPDATE head SET policy_number = 2").await;
        }
        Rule::Objections => {
            let cy = NewPerson::human("cy", [Permission::Reviewer]);
            let cy = server.people.create_person(None, &cy).await.expect("a person");
            let cy = server.cookie_for(cy).await;
            server.add_verdict_via(Interface::Page, &cy, case.id, "request_changes").await;
        }
        Rule::Approvals => {
            server.sql("UPDATE person SET permissions = '{viewer}' WHERE name = 'bo'").await
        }
        Rule::Threads => {
            let path = format!("/api/v1/reviews/{}/threads", case.id);
            server.send_post(&path, &case.bo, json!({"body": "On a Friday?"})).await.json();
        }
    }
}

/// An approval by a reviewer whose access was granted by an author does not count.
#[tokio::test]
async fn approval_with_fresh_access_does_not_count() {
    let case = ApprovedReview::new().await;
    let link = "INSERT INTO access_change (person_id, kind, by) SELECT id, 'link', $1 FROM person \
        WHERE name = 'bo'";
    sqlx::query(link)
        .bind(case.server.ada.0)
        .execute(case.server.db.owner())
        .await
        .expect("the owner has the permission");
    assert!(case.by_hand().await.is_none(), "the approval is older than the access");
    case.server.add_verdict_via(Interface::Rest, &case.bo, case.id, "request_changes").await;
    case.server.add_verdict_via(Interface::Page, &case.bo, case.id, "approve").await;
    assert_eq!(case.broken().await, [Rule::Approvals]);
    case.server
        .refuses(&case.ada, case.id, &no(409, "not_approved"), "an approval with new access")
        .await;
    assert_eq!(case.by_hand().await.as_deref(), Some("GY040"));
}

/// The rule *Resolved* without the planner: the old place of a moved deployment is on hold.
#[tokio::test]
async fn move_out_of_a_hold_blocks_the_commit() {
    let mut case = ApprovedReview::new().await;
    let path = format!("/api/v1/proposals/{}/discard", case.proposal);
    case.server.send_post(&path, &case.ada, json!({"version": case.version})).await.json();
    let web = case.server.id_of("web", &case.ada).await;
    let move_below = async |case: &ApprovedReview, parent: &str| {
        let parent = case.server.id_of(parent, &case.ada).await;
        json!([{"edit": "move_deployment", "deployment": web, "parent": parent}])
    };
    let edits = move_below(&case, "edge").await;
    case.server.passes(&case.ada, "web", edits, &[&case.bo]).await;
    let edits = move_below(&case, "system").await;
    let draft = case.server.draft(&case.ada, "web", edits).await;
    case.id = case.server.submit(&case.ada, draft).await;
    case.server.add_verdict_via(Interface::Rest, &case.bo, case.id, "approve").await;
    assert_eq!((case.broken().await, case.by_hand().await), (vec![], None));
    let hold = async |case: &ApprovedReview, on_hold: bool| {
        let path = if on_hold { "hold" } else { "release" };
        let path = format!("/api/v1/deployments/edge/{path}");
        case.server.send_post(&path, &case.ada, json!({"reason": "an incident"})).await.json();
    };
    hold(&case, true).await;
    assert_eq!(case.broken().await, [Rule::Resolved]);
    case.server.refuses(&case.ada, case.id, &no(409, "leaves_hold"), "on hold").await;
    assert_eq!(case.by_hand().await.as_deref(), Some("GY027"));
    hold(&case, false).await;
    assert_eq!((case.broken().await, case.by_hand().await), (vec![], None));
    assert_eq!(case.server.commit_via(Interface::Page, &case.ada, case.id).await.0, 200);
}

/// xen is an admin who gives both people access, or the reviewer gives the author access.
#[tokio::test]
async fn approval_with_common_access_origin_is_ignored() {
    for (description, changes) in [
        ("two accounts of one admin", vec![("ada", "created", "xen"), ("bo", "created", "xen")]),
        ("an account of the reviewer", vec![("ada", "created", "bo")]),
        ("a link of the reviewer", vec![("ada", "link", "bo")]),
    ] {
        let case = ApprovedReview::new().await;
        let server = &case.server;
        server.sql("INSERT INTO person (name, permissions) VALUES ('xen', '{admin}')").await;
        assert!(case.by_hand().await.is_none(), "{description}");
        for (person, kind, by) in changes {
            let sql = "INSERT INTO access_change (person_id, kind, by, at)
                       SELECT p.id, $2, b.id, now() - interval '1 hour' FROM person p, person b
                       WHERE p.name = $1 AND b.name = $3";
            let given = sqlx::query(sql).bind(person).bind(kind).bind(by);
            given.execute(server.db.owner()).await.expect("the owner has the permission");
        }
        assert_eq!(case.broken().await, [Rule::Approvals], "{description}");
        server.refuses(&case.ada, case.id, &no(409, "not_approved"), description).await;
        assert_eq!(case.by_hand().await.as_deref(), Some("GY040"), "{description}");
    }
}

#[tokio::test]
async fn each_rule_alone_blocks_the_commit() {
    let every: Vec<Rule> = std::iter::successors(Some(Rule::Newest), |rule| after(*rule)).collect();
    let sound = ApprovedReview::new().await;
    let gate = sound.gate().await;
    assert_eq!(
        gate.rules.iter().map(|state| state.rule).collect::<Vec<_>>(),
        every,
        "the gate has exactly these rules"
    );
    assert!(gate.is_open() && sound.by_hand().await.is_none(), "no rule blocks the commit");
    assert_eq!(sound.server.commit_via(Interface::Page, &sound.ada, sound.id).await.0, 200);
    for rule in every {
        // Don't view the review before the rule is broken: the cached plan is right for the
        // submitted state.
        let case = ApprovedReview::new().await;
        break_only(rule, &case).await;
        assert_eq!(case.broken().await, [rule], "only this rule blocks the commit");
        let (code, by_hand) = expected_error(rule);
        case.server.refuses(&case.ada, case.id, &no(409, code), &format!("{rule:?}")).await;
        let path = format!("/api/v1/reviews/{}/commit", case.id);
        let lines = case.server.send_post(&path, &case.ada, json!({})).await.problem();
        let lines: Vec<&Value> =
            lines["errors"].as_array().expect("a list").iter().map(|error| &error["at"]).collect();
        assert_eq!(lines, [code], "{rule:?}");
        assert_eq!(case.by_hand().await.as_deref(), by_hand, "{rule:?}");
    }
}
