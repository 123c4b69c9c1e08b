//! Known ways to bypass review in other systems, tried on the use cases. Where an attacker would
//! have a database connection of the application's role, the tests use one too. `docs/gate.md` maps
//! the tests to the known cases.

use std::collections::BTreeMap;

use api::reviews::ReviewState;
use control::people::{Actor, NewPerson, Permission, PersonKind};
use engine::Hash;
use engine::anneal::Limits;
use engine::catalog::Role;
use engine::gate::{Policy, Risk, VerdictKind};
use engine::ids::{DeploymentId, DeploymentName, NodeId, ReviewId};
use engine::plan::{Edit, MAX_LEVELS, edit};
use serde_json::json;
use sqlx::AssertSqlSafe;
use store::workers::{NewWorker, WorkerId};
use uuid::Uuid;

use crate::house::{House, role};

/// ada's change of `web`, approved by bo.
async fn approved(house: &House) -> ReviewId {
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    house.approve(&house.bo, id).await;
    id
}

async fn owner(house: &House, sql: &str) {
    sqlx::query(AssertSqlSafe(sql)).execute(house.database.owner()).await.unwrap();
}

async fn audited(house: &House, action: &str) -> i64 {
    let sql = "SELECT count(*) FROM audit WHERE action = $1";
    sqlx::query_scalar(sql).bind(action).fetch_one(house.database.owner()).await.unwrap()
}

#[tokio::test]
async fn submitter_is_an_author() {
    let house = House::new().await;
    let edit = house.bind("web", 1, "app").await;
    let (proposal, version) = house.propose(&house.ada, "web", vec![edit]).await;
    let id = house.control.submit(&house.cy, proposal, version, "ada's edit".into()).await.unwrap();
    for author in [&house.ada, &house.cy] {
        let refused =
            house.control.judge(author, id, VerdictKind::Approve, String::new()).await.unwrap_err();
        assert_eq!(refused.code, "author", "{}", author.name);
    }
    assert_eq!(audited(&house, "review.verdict.refused").await, 2);
    house.approve(&house.bo, id).await;
    house.commit(&house.cy, id).await.unwrap();
}

#[tokio::test]
async fn token_cannot_review() {
    let house = House::new().await;
    let id = {
        let edit = house.bind("web", 1, "app").await;
        house.submit(&house.ada, "web", vec![edit]).await
    };
    let permissions = [Permission::Operator, Permission::Reviewer].into();
    let robot = NewPerson { name: "robot".into(), kind: PersonKind::Service, permissions };
    house.people.create_person(None, &robot).await.unwrap();
    let robot = house.people.sign_in_as_owner("robot").await.unwrap();
    let refused =
        house.control.judge(&robot, id, VerdictKind::Approve, String::new()).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (403, "not_a_reviewer"));
    assert_eq!(house.commit(&robot, id).await.unwrap_err().code, "not_approved");
    assert_eq!(audited(&house, "review.commit.refused").await, 1);
}

#[tokio::test]
async fn refused_commit_is_audited() {
    let house = House::new().await;
    let id = approved(&house).await;
    house.people.create_person(None, &NewPerson::human("eve", [Permission::Admin])).await.unwrap();
    let eve = house.people.sign_in_as_owner("eve").await.unwrap();
    assert_eq!(house.commit(&eve, id).await.unwrap_err().code, "forbidden");
    assert_eq!(audited(&house, "review.commit.refused").await, 1);
    assert_eq!(house.targets().await, 1);
}

#[tokio::test]
async fn repeated_refusal_is_audited_once() {
    let house = House::new().await;
    let id = approved(&house).await;
    house.people.create_person(None, &NewPerson::human("eve", [])).await.unwrap();
    let eve = house.people.sign_in_as_owner("eve").await.unwrap();
    let tries = async |who: &Actor, id: ReviewId| {
        for _ in 0..3 {
            house.commit(who, id).await.unwrap_err();
            house.control.judge(who, id, VerdictKind::Approve, String::new()).await.unwrap_err();
        }
    };
    let noted = async || {
        [
            audited(&house, "review.commit.refused").await,
            audited(&house, "review.verdict.refused").await,
        ]
    };
    tries(&eve, id).await;
    assert_eq!(noted().await, [1, 1]);
    for who in [&eve, &house.ada] {
        tries(who, ReviewId(9_999)).await;
    }
    assert_eq!(noted().await, [1, 1], "of what is not there nothing is");
    house.control.judge(&house.ada, id, VerdictKind::Approve, String::new()).await.unwrap_err();
    assert_eq!(noted().await, [1, 2], "of each person");

    // Simulates that a minute has passed.
    let mut transaction = house.database.owner().begin().await.unwrap();
    for later in [
        "ALTER TABLE audit DISABLE TRIGGER USER",
        "UPDATE audit SET at = at - interval '61 seconds'",
        "ALTER TABLE audit ENABLE TRIGGER USER",
    ] {
        sqlx::query(later).execute(&mut *transaction).await.unwrap();
    }
    transaction.commit().await.unwrap();
    tries(&eve, id).await;
    assert_eq!(noted().await, [2, 3]);
    let pool = house.database.app();
    let sealed: i32 = sqlx::query_scalar("SELECT seal_audit(1000)").fetch_one(pool).await.unwrap();
    let broken: Option<i64> =
        sqlx::query_scalar("SELECT audit_broken_at()").fetch_one(pool).await.unwrap();
    assert!(sealed > 0 && broken.is_none(), "{sealed} {broken:?}");
}

#[tokio::test]
async fn edits_altered_after_approval_are_not_committed() {
    let house = House::new().await;
    let edits = vec![house.bind("web", 1, "app").await, house.bind("web", 2, "wipe").await];
    let (proposal, version) = house.propose(&house.ada, "web", edits).await;
    let version = house.control.undo(&house.ada, proposal, version).await.unwrap();
    let id = house
        .control
        .submit(&house.ada, proposal, version, "without the wipe".into())
        .await
        .unwrap();
    house.approve(&house.bo, id).await;
    owner(&house, "UPDATE edit SET undone = false").await;
    let refused = house.commit(&house.ada, id).await.unwrap_err();
    assert_eq!(refused.code, "edit_refused", "{refused:?}");
    owner(&house, "UPDATE edit SET undone = seq = 1").await;
    assert_eq!(house.commit(&house.ada, id).await.unwrap_err().code, "edit_refused");
    assert_eq!((house.targets().await, house.steps().await.len()), (1, 0));
    owner(&house, "UPDATE edit SET undone = seq = 2").await;
    house.commit(&house.ada, id).await.unwrap();
}

/// Inserts the same submission again by SQL, at the next version and without risks, so that one
/// approval would be enough.
async fn played_down(house: &House, honest: ReviewId) -> ReviewId {
    let ReviewId(honest) = honest;
    let next = "UPDATE proposal SET version = version + 1 WHERE id = (SELECT proposal_id FROM review WHERE id =";
    owner(house, &format!("{next} {honest})")).await;
    let mut tx = house.database.owner().begin().await.unwrap();
    let forged: i64 = sqlx::query_scalar(
        "INSERT INTO review (proposal_id, version, title, change_hash, effects_hash, policy_number, approvals_needed, epoch,
                                 root_hash, summary, risk, created_by)
         SELECT s.proposal_id, p.version, s.title, change_hash, effects_hash, policy_number, 1, epoch, root_hash, summary, '{}',
                s.created_by
         FROM review s JOIN proposal p ON p.id = s.proposal_id WHERE s.id = $1 RETURNING id",
    )
    .bind(honest)
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    for part in ["base", "author", "document"] {
        let columns = match part {
            "base" => "deployment_id, head_no",
            "author" => "person_id",
            _ => "kind, id, old_hash, new_hash",
        };
        let sql = format!(
            "INSERT INTO review_{part} (review_id, {columns})
             SELECT {forged}, {columns} FROM review_{part} WHERE review_id = {honest}"
        );
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    ReviewId(forged)
}

#[tokio::test]
async fn understated_risks_are_not_committed() {
    let house = House::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let edit = house.bind("web", 1, "wipe").await;
    let honest = house.submit(&house.ada, "web", vec![edit]).await;
    let forged = played_down(&house, honest).await;
    house.approve(&house.bo, forged).await;
    let refused = house.commit(&house.ada, forged).await.unwrap_err();
    assert_eq!(refused.code, "edit_refused", "{refused:?}");
    assert_eq!(house.targets().await, 1);
}

/// A role whose content can change without a re-run.
fn turning(version: &str, flags: &str) -> BTreeMap<String, Vec<u8>> {
    let yaml = format!(
        "barclamp: {{name: turning, version: '{version}', description: For tests}}\nroles:\n  \
         - {{name: turns, jig: noop, on-change: keep, flags: [{flags}]}}\n"
    );
    [("turning/turning.yml".to_owned(), yaml.into_bytes())].into()
}

#[tokio::test]
async fn role_becoming_destructive_is_a_risk() {
    let house = House::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let web = house.id("web").await;
    let uses = async |files| {
        let version =
            house.control.import_barclamps(Some(&house.ada), &files).await.unwrap().barclamps[0].2;
        let barclamp = engine::ids::BarclampName::parse("turning").unwrap();
        Edit::UseBarclamp(edit::UseBarclamp { deployment: web, barclamp, version })
    };
    let edits = vec![
        uses(turning("1", "")).await,
        Edit::AddRole(edit::AddRole { deployment: web, role: role("turns") }),
        house.bind("web", 1, "turns").await,
    ];
    let id = house.submit(&house.ada, "web", edits).await;
    house.approve(&house.bo, id).await;
    house.commit(&house.ada, id).await.unwrap();

    let turned = vec![uses(turning("2", "destructive")).await];
    let honest = house.submit(&house.ada, "web", turned).await;
    let review = house.control.review(&house.bo, honest).await.unwrap();
    assert!(review.impact.waves.is_empty(), "nothing runs: {review:?}");
    assert!(review.risks.contains(&Risk::Destructive) && review.gate.needed == 2, "{review:?}");
    house.approve(&house.bo, honest).await;
    assert_eq!(
        house.commit(&house.ada, honest).await.unwrap_err().code,
        "not_approved",
        "one is too few"
    );

    let forged = played_down(&house, honest).await;
    house.approve(&house.bo, forged).await;
    let refused = house.commit(&house.ada, forged).await.unwrap_err();
    assert_eq!(refused.code, "edit_refused", "{refused:?}");
    assert_eq!(house.targets().await, 2);
}

#[tokio::test]
async fn recreated_proposal_inherits_no_approval() {
    let house = House::new().await;
    let id = approved(&house).await;
    let draft = house.board("web").await.proposal.unwrap();
    house.control.discard(&house.ada, draft.id, draft.version).await.unwrap();
    let edit = house.bind("web", 1, "app").await;
    let again = house.submit(&house.ada, "web", vec![edit]).await;
    assert_eq!(house.commit(&house.ada, id).await.unwrap_err().code, "not_newest");
    assert_eq!(house.commit(&house.ada, again).await.unwrap_err().code, "not_approved");
    assert_eq!(house.control.review(&house.ada, id).await.unwrap().state, ReviewState::Discarded);
}

#[tokio::test]
async fn recreated_deployment_inherits_no_approval() {
    let house = House::new().await;
    let web = house.id("web").await;
    let make = || {
        Edit::CreateDeployment(edit::CreateDeployment {
            id: DeploymentId(Uuid::new_v4()),
            phantom: NodeId(Uuid::new_v4()),
            name: DeploymentName::parse("below").unwrap(),
            parent: web,
        })
    };
    let passes = async |edit: Edit| {
        let id = house.submit(&house.ada, "web", vec![edit]).await;
        house.approve(&house.bo, id).await;
        house.commit(&house.ada, id).await.unwrap();
    };
    passes(make()).await;
    let first = house.id("below").await;
    let add = |deployment| Edit::AddRole(edit::AddRole { deployment, role: role("app") });
    let old = house.submit(&house.ada, "below", vec![add(first)]).await;
    house.approve(&house.bo, old).await;
    passes(Edit::RemoveDeployment(edit::RemoveDeployment { deployment: first })).await;
    passes(make()).await;
    let second = house.id("below").await;
    assert_ne!(first, second);
    let targets = house.targets().await;
    assert_eq!(house.commit(&house.ada, old).await.unwrap_err().status, 409);
    let new = house.submit(&house.ada, "below", vec![add(second)]).await;
    assert_eq!(house.commit(&house.ada, new).await.unwrap_err().code, "not_approved");
    assert_eq!(house.targets().await, targets);
}

#[tokio::test]
async fn destructive_line_stays_visible_among_many_changes() {
    let house = House::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let mut edits = Vec::new();
    for n in 1..=4 {
        edits.push(house.bind("web", n, "app").await);
        edits.push(house.bind("web", n, "still").await);
    }
    edits.push(house.bind("web", 4, "wipe").await);
    let id = house.submit(&house.ada, "web", edits).await;
    let review = house.control.review(&house.bo, id).await.unwrap();
    assert!(review.risks.contains(&Risk::Destructive));
    assert!(
        review.summary[0].contains("be undone") && review.summary[0].contains("n4"),
        "{:?}",
        review.summary
    );
    assert_eq!(review.gate.needed, 2);
}

#[tokio::test]
async fn misleading_texts_are_rejected() {
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    let web = house.id("web").await;
    let (proposal, version) = {
        let edit = house.bind("web", 2, "app").await;
        house.propose(&house.ada, "web", vec![edit]).await
    };
    let before = house.traces().await;
    let data =
        |data| Edit::SetRoleData(edit::SetRoleData { deployment: web, role: role("app"), data });
    let noderole = engine::cluster::NoderoleKey::first(role("app"));
    let reason = "nothing\u{202e}epiw";
    for (edit, place) in [
        (data(json!({"app": {"\u{202e}trop": 1}})), "/app "),
        (data(json!({"app": ["fine", {"note": "a\u{200b}b"}]})), "/app/1/note "),
        (data(json!({"app": "null\0byte"})), "/app "),
        (data(json!({"app": "\u{1b}[2K"})), "/app "),
        (
            Edit::Rerun(edit::Rerun { node: house.node(1).await, noderole, reason: reason.into() }),
            "reason ",
        ),
    ] {
        let refused = house
            .control
            .edit(&house.ada, proposal, version, vec![edit.clone()])
            .await
            .unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains("U+"), "{refused:?}");
        assert!(refused.detail.contains(place), "{refused:?}");
        let foreseen = house.control.foresee(&house.ada, proposal, vec![edit]).await;
        let told =
            foreseen.map_or_else(|refused| refused.detail, |foreseen| foreseen.refused.concat());
        assert!(told.contains(place), "{told}");
    }
    let titled = house
        .control
        .submit(&house.ada, proposal, version, "safe\u{2066}".into())
        .await
        .unwrap_err();
    assert_eq!(titled.status, 400);
    assert_eq!(house.traces().await, before);
    let fine = data(json!({"app": {"größe": "zwei\nZeilen\t漢"}}));
    house.control.edit(&house.ada, proposal, version, vec![fine]).await.unwrap();
}

fn tool(version: &str, script: &str) -> BTreeMap<String, Vec<u8>> {
    let yaml = format!(
        "barclamp: {{name: tool, version: '{version}', description: For tests}}\nroles:\n  - {{name: tool, jig: script}}\n"
    );
    [
        ("tool/tool.yml".to_owned(), yaml.into_bytes()),
        ("tool/scripts/tool/10-run".to_owned(), script.as_bytes().to_vec()),
    ]
    .into()
}

/// The scripts of a claimed run, as a worker loads them.
async fn scripts_of(house: &House, run: engine::ids::RunId) -> Vec<Vec<u8>> {
    let facts = store::runs::run_details(house.database.worker(), &[run])
        .await
        .unwrap()
        .remove(&run)
        .unwrap();
    let role = store::catalog::object_body(house.database.worker(), facts.role_hash)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(Hash::of_bytes(&role), facts.role_hash);
    let role: Role = serde_json::from_slice(&role).unwrap();
    let mut scripts = Vec::new();
    for script in &role.scripts {
        scripts.push(
            store::catalog::object_body(house.database.worker(), script.hash)
                .await
                .unwrap()
                .unwrap(),
        );
    }
    scripts
}

#[tokio::test]
async fn scripts_imported_after_approval_never_run() {
    let house = House::new().await;
    let right = "#!/bin/sh\necho right\n";
    let first = house
        .control
        .import_barclamps(Some(&house.ada), &tool("1", right))
        .await
        .unwrap()
        .barclamps[0]
        .2;
    let web = house.id("web").await;
    let barclamp = engine::ids::BarclampName::parse("tool").unwrap();
    let edits = vec![
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: web,
            barclamp: barclamp.clone(),
            version: first,
        }),
        Edit::AddRole(edit::AddRole { deployment: web, role: role("tool") }),
        house.bind("web", 1, "tool").await,
    ];
    let id = house.submit(&house.ada, "web", edits).await;
    house.approve(&house.bo, id).await;

    let wrong = "#!/bin/sh\necho wrong\n";
    let same =
        house.control.import_barclamps(Some(&house.cy), &tool("1", wrong)).await.unwrap_err();
    assert_eq!(same.code, "other_content", "one version, one content");
    house.control.import_barclamps(Some(&house.cy), &tool("2", wrong)).await.unwrap();
    assert_eq!(
        house.control.review(&house.bo, id).await.unwrap().state,
        ReviewState::Open,
        "an import changes nothing"
    );
    house.commit(&house.ada, id).await.unwrap();
    house.control.import_barclamps(Some(&house.cy), &tool("3", wrong)).await.unwrap();

    let hello = NewWorker {
        id: WorkerId(Uuid::new_v4()),
        name: "w".into(),
        capacity: 10,
        jigs: vec!["script".into(), "noop".into()],
        host: "here".into(),
        pid: 1,
        version: "0".into(),
    };
    store::workers::ensure_worker(
        house.database.worker(),
        &hello,
        std::time::Duration::from_secs(600),
    )
    .await
    .unwrap();
    store::workers::confirm_worker(house.database.worker(), hello.id).await.unwrap();
    store::runs::set_node_alive(house.database.owner(), house.node(1).await, true).await.unwrap();
    owner(&house, "UPDATE step SET state = 'active', applied_generation = generation, pending = 0 WHERE jig = 'noop'")
        .await;
    owner(&house, "UPDATE step SET state = 'todo', pending = 0 WHERE jig = 'script'").await;
    let claimed =
        store::runs::claim_runs(house.database.worker(), Limits::default()).await.unwrap();
    assert_eq!(claimed.runs.len(), 1);
    assert_eq!(scripts_of(&house, claimed.runs[0]).await, [right.as_bytes()]);
}

fn table_of_cases() -> (std::path::PathBuf, String) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/gate.md")).unwrap();
    (root, table)
}

/// All tests that the table in `docs/gate.md` names exist.
#[test]
fn table_of_cases_names_existing_tests() {
    let (root, table) = table_of_cases();
    let named: Vec<(&str, &str)> =
        table.split('`').filter_map(|word| word.split_once("::")).collect();
    assert!(named.len() > 50, "{named:?}");
    for (path, test) in named {
        let text = std::fs::read_to_string(root.join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let place = text
            .find(&format!("fn {test}()"))
            .unwrap_or_else(|| panic!("{path} has no test {test}"));
        let above = &text[..place];
        let attributes = &above[above.rfind("\n\n").unwrap_or(0)..];
        assert!(
            attributes.contains("#[test]") || attributes.contains("#[tokio::test"),
            "{path}: {test} is no test"
        );
    }
}

/// Each known case is tried over every interface, or `docs/gate.md` says why that is impossible.
#[test]
fn each_case_is_tried_over_every_interface() {
    let (_, table) = table_of_cases();
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let rows = |heading: &str| {
        let section = table.split("\n## ").find(|part| part.starts_with(heading)).unwrap();
        section.lines().filter(|line| line.starts_with('|')).skip(2).map(cells).collect::<Vec<_>>()
    };
    let mut ways: BTreeMap<String, String> = BTreeMap::new();
    let mut case = String::new();
    for row in rows("The cases") {
        assert_eq!(row.len(), 4, "{row:?}");
        case = if row[0].is_empty() { case } else { row[0].clone() };
        ways.entry(case.clone()).or_default().push_str(&row[3]);
    }
    let unreachable = rows("Not reachable yet");
    // The twenty known cases, and Gantry's own.
    for case in (1..=20).map(|case| case.to_string()).chain(["+".to_owned()]) {
        let tried = ways.get(&case).map_or("", String::as_str);
        let why_not = unreachable.iter().filter(|row| row[0] == case);
        let why_not: Vec<&str> = why_not.map(|row| row[1].as_str()).collect();
        if tried.is_empty() {
            assert!(!why_not.is_empty(), "case {case} is neither tried nor said to be unreachable");
            continue;
        }
        for (way, excuse) in [('P', "by a page"), ('R', "by REST"), ('S', "by SQL")] {
            let excused = why_not.iter().any(|what| what.ends_with(excuse));
            assert!(tried.contains(way) || excused, "case {case} is not tried by {way}");
        }
    }
}

/// The database and the planner have the same depth limit. So no other client exceeds it, and no
/// plan fails at its commit.
#[tokio::test]
async fn database_and_planner_have_same_depth_limit() {
    let house = House::new().await;
    let mut tx = house.database.owner().begin().await.unwrap();
    for guard in ["guard_document", "guard_intent"] {
        let off = format!("ALTER TABLE deployment DISABLE TRIGGER {guard}");
        sqlx::query(AssertSqlSafe(off)).execute(&mut *tx).await.unwrap();
    }
    let insert = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
                  SELECT $1, $2, $3, gen_random_uuid(), doc, head_no FROM deployment WHERE system";
    let mut parent = house.id("web").await.0;
    // system and web are levels 1 and 2.
    for level in 3..=MAX_LEVELS + 1 {
        let id = Uuid::new_v4();
        let made = sqlx::query(insert)
            .bind(id)
            .bind(parent)
            .bind(format!("level-{level}"))
            .execute(&mut *tx)
            .await;
        assert_eq!(made.is_ok(), level <= MAX_LEVELS, "{level}: {made:?}");
        parent = id;
    }
}
