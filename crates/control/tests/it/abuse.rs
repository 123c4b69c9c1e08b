//! Known ways to bypass review in other systems, tried on the use cases. If an attacker would have
//! a database connection of the application's role, the test uses one too. `docs/gate.md` maps the
//! tests to the known cases.

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

use crate::installation::{Installation, role};

/// ada's change of `web`, approved by bo.
async fn approved(installation: &Installation) -> ReviewId {
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    id
}

async fn owner(installation: &Installation, sql: &str) {
    sqlx::query(AssertSqlSafe(sql)).execute(installation.database.owner()).await.unwrap();
}

async fn audited(installation: &Installation, action: &str) -> i64 {
    let sql = "SELECT count(*) FROM audit WHERE action = $1";
    sqlx::query_scalar(sql).bind(action).fetch_one(installation.database.owner()).await.unwrap()
}

#[tokio::test]
async fn submitter_is_an_author() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![edit]).await;
    let id = installation
        .control
        .submit(&installation.cy, proposal, version, "ada's edit".into())
        .await
        .unwrap();
    for author in [&installation.ada, &installation.cy] {
        let refused = installation
            .control
            .give_verdict(author, id, VerdictKind::Approve, String::new())
            .await
            .unwrap_err();
        assert_eq!(refused.code, "author", "{}", author.name);
    }
    assert_eq!(audited(&installation, "review.verdict.refused").await, 2);
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.cy, id).await.unwrap();
}

#[tokio::test]
async fn token_cannot_review() {
    let installation = Installation::new().await;
    let id = {
        let edit = installation.bind("web", 1, "app").await;
        installation.submit(&installation.ada, "web", vec![edit]).await
    };
    let permissions = [Permission::Operator, Permission::Reviewer].into();
    let robot = NewPerson { name: "robot".into(), kind: PersonKind::Service, permissions };
    installation.people.create_person(None, &robot).await.unwrap();
    let robot = installation.people.sign_in_as_owner("robot").await.unwrap();
    let refused = installation
        .control
        .give_verdict(&robot, id, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (403, "not_a_reviewer"));
    assert_eq!(installation.commit(&robot, id).await.unwrap_err().code, "not_approved");
    assert_eq!(audited(&installation, "review.commit.refused").await, 1);
}

#[tokio::test]
async fn refused_commit_is_audited() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    installation
        .people
        .create_person(None, &NewPerson::human("eve", [Permission::Admin]))
        .await
        .unwrap();
    let eve = installation.people.sign_in_as_owner("eve").await.unwrap();
    assert_eq!(installation.commit(&eve, id).await.unwrap_err().code, "forbidden");
    assert_eq!(audited(&installation, "review.commit.refused").await, 1);
    assert_eq!(installation.targets().await, 1);
}

#[tokio::test]
async fn repeated_refusal_is_audited_once() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    installation.people.create_person(None, &NewPerson::human("eve", [])).await.unwrap();
    let eve = installation.people.sign_in_as_owner("eve").await.unwrap();
    let tries = async |who: &Actor, id: ReviewId| {
        for _ in 0..3 {
            installation.commit(who, id).await.unwrap_err();
            installation
                .control
                .give_verdict(who, id, VerdictKind::Approve, String::new())
                .await
                .unwrap_err();
        }
    };
    let noted = async || {
        [
            audited(&installation, "review.commit.refused").await,
            audited(&installation, "review.verdict.refused").await,
        ]
    };
    tries(&eve, id).await;
    assert_eq!(noted().await, [1, 1]);
    for who in [&eve, &installation.ada] {
        tries(who, ReviewId(9_999)).await;
    }
    assert_eq!(noted().await, [1, 1], "a refusal for a missing object is not audited");
    installation
        .control
        .give_verdict(&installation.ada, id, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!(noted().await, [1, 2], "the refusal is audited once per person");

    // Simulates that a minute has passed.
    let mut transaction = installation.database.owner().begin().await.unwrap();
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
    let pool = installation.database.app();
    let sealed: i32 = sqlx::query_scalar("SELECT seal_audit(1000)").fetch_one(pool).await.unwrap();
    let broken: Option<i64> =
        sqlx::query_scalar("SELECT audit_broken_at()").fetch_one(pool).await.unwrap();
    assert!(sealed > 0 && broken.is_none(), "{sealed} {broken:?}");
}

#[tokio::test]
async fn edits_altered_after_approval_are_not_committed() {
    let installation = Installation::new().await;
    let edits =
        vec![installation.bind("web", 1, "app").await, installation.bind("web", 2, "wipe").await];
    let (proposal, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let version = installation.control.undo(&installation.ada, proposal, version).await.unwrap();
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "without the wipe".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    owner(&installation, "UPDATE edit SET undone = false").await;
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!(refused.code, "edit_refused", "{refused:?}");
    owner(&installation, "UPDATE edit SET undone = seq = 1").await;
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap_err().code, "edit_refused");
    assert_eq!((installation.targets().await, installation.steps().await.len()), (1, 0));
    owner(&installation, "UPDATE edit SET undone = seq = 2").await;
    installation.commit(&installation.ada, id).await.unwrap();
}

/// Inserts the same submission again by SQL, at the next version and without risks, so that one
/// approval would be enough.
async fn played_down(installation: &Installation, honest: ReviewId) -> ReviewId {
    let ReviewId(honest) = honest;
    let next = "UPDATE proposal SET version = version + 1 WHERE id = (SELECT proposal_id FROM review WHERE id =";
    owner(installation, &format!("{next} {honest})")).await;
    let mut tx = installation.database.owner().begin().await.unwrap();
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
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let edit = installation.bind("web", 1, "wipe").await;
    let honest = installation.submit(&installation.ada, "web", vec![edit]).await;
    let forged = played_down(&installation, honest).await;
    installation.approve(&installation.bo, forged).await;
    let refused = installation.commit(&installation.ada, forged).await.unwrap_err();
    assert_eq!(refused.code, "edit_refused", "{refused:?}");
    assert_eq!(installation.targets().await, 1);
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
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let web = installation.id("web").await;
    let uses = async |files| {
        let version = installation
            .control
            .import_barclamps(Some(&installation.ada), &files)
            .await
            .unwrap()
            .barclamps[0]
            .hash;
        let barclamp = engine::ids::BarclampName::parse("turning").unwrap();
        Edit::UseBarclamp(edit::UseBarclamp { deployment: web, barclamp, version })
    };
    let edits = vec![
        uses(turning("1", "")).await,
        Edit::AddRole(edit::AddRole { deployment: web, role: role("turns") }),
        installation.bind("web", 1, "turns").await,
    ];
    let id = installation.submit(&installation.ada, "web", edits).await;
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();

    let turned = vec![uses(turning("2", "destructive")).await];
    let honest = installation.submit(&installation.ada, "web", turned).await;
    let review = installation.control.review(&installation.bo, honest).await.unwrap();
    assert!(review.impact.waves.is_empty(), "no step runs: {review:?}");
    assert!(review.risks.contains(&Risk::Destructive) && review.gate.needed == 2, "{review:?}");
    installation.approve(&installation.bo, honest).await;
    assert_eq!(
        installation.commit(&installation.ada, honest).await.unwrap_err().code,
        "not_approved",
        "one approval is too few for a destructive role"
    );

    let forged = played_down(&installation, honest).await;
    installation.approve(&installation.bo, forged).await;
    let refused = installation.commit(&installation.ada, forged).await.unwrap_err();
    assert_eq!(refused.code, "edit_refused", "{refused:?}");
    assert_eq!(installation.targets().await, 2);
}

#[tokio::test]
async fn recreated_proposal_inherits_no_approval() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let draft = installation.board("web").await.proposal.unwrap();
    installation.control.discard(&installation.ada, draft.id, draft.version).await.unwrap();
    let edit = installation.bind("web", 1, "app").await;
    let again = installation.submit(&installation.ada, "web", vec![edit]).await;
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap_err().code, "not_newest");
    assert_eq!(
        installation.commit(&installation.ada, again).await.unwrap_err().code,
        "not_approved"
    );
    assert_eq!(
        installation.control.review(&installation.ada, id).await.unwrap().state,
        ReviewState::Discarded
    );
}

#[tokio::test]
async fn recreated_deployment_inherits_no_approval() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let make = || {
        Edit::CreateDeployment(edit::CreateDeployment {
            id: DeploymentId(Uuid::new_v4()),
            phantom: NodeId(Uuid::new_v4()),
            name: DeploymentName::parse("below").unwrap(),
            parent: web,
        })
    };
    let passes = async |edit: Edit| {
        let id = installation.submit(&installation.ada, "web", vec![edit]).await;
        installation.approve(&installation.bo, id).await;
        installation.commit(&installation.ada, id).await.unwrap();
    };
    passes(make()).await;
    let first = installation.id("below").await;
    let add = |deployment| Edit::AddRole(edit::AddRole { deployment, role: role("app") });
    let old = installation.submit(&installation.ada, "below", vec![add(first)]).await;
    installation.approve(&installation.bo, old).await;
    passes(Edit::RemoveDeployment(edit::RemoveDeployment { deployment: first })).await;
    passes(make()).await;
    let second = installation.id("below").await;
    assert_ne!(first, second);
    let targets = installation.targets().await;
    assert_eq!(installation.commit(&installation.ada, old).await.unwrap_err().status, 409);
    let new = installation.submit(&installation.ada, "below", vec![add(second)]).await;
    assert_eq!(installation.commit(&installation.ada, new).await.unwrap_err().code, "not_approved");
    assert_eq!(installation.targets().await, targets);
}

#[tokio::test]
async fn destructive_line_stays_visible_among_many_changes() {
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let mut edits = Vec::new();
    for n in 1..=4 {
        edits.push(installation.bind("web", n, "app").await);
        edits.push(installation.bind("web", n, "still").await);
    }
    edits.push(installation.bind("web", 4, "wipe").await);
    let id = installation.submit(&installation.ada, "web", edits).await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
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
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let web = installation.id("web").await;
    let (proposal, version) = {
        let edit = installation.bind("web", 2, "app").await;
        installation.propose(&installation.ada, "web", vec![edit]).await
    };
    let before = installation.traces().await;
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
            Edit::Rerun(edit::Rerun {
                node: installation.node(1).await,
                noderole,
                reason: reason.into(),
            }),
            "reason ",
        ),
    ] {
        let refused = installation
            .control
            .edit(&installation.ada, proposal, version, vec![edit.clone()])
            .await
            .unwrap_err();
        assert!(refused.status == 422 && refused.detail.contains("U+"), "{refused:?}");
        assert!(refused.detail.contains(place), "{refused:?}");
        let preview =
            installation.control.preview_edits(&installation.ada, proposal, vec![edit]).await;
        let reported =
            preview.map_or_else(|refused| refused.detail, |preview| preview.refused.concat());
        assert!(reported.contains(place), "{reported}");
    }
    let titled = installation
        .control
        .submit(&installation.ada, proposal, version, "safe\u{2066}".into())
        .await
        .unwrap_err();
    assert_eq!(titled.status, 400);
    assert_eq!(installation.traces().await, before);
    let fine = data(json!({"app": {"größe": "zwei\nZeilen\t漢"}}));
    installation.control.edit(&installation.ada, proposal, version, vec![fine]).await.unwrap();
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
async fn scripts_of(installation: &Installation, run: engine::ids::RunId) -> Vec<Vec<u8>> {
    let facts = store::runs::run_details(installation.database.worker(), &[run])
        .await
        .unwrap()
        .remove(&run)
        .unwrap();
    let role = store::catalog::object_body(installation.database.worker(), facts.role_hash)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(Hash::of_bytes(&role), facts.role_hash);
    let role: Role = serde_json::from_slice(&role).unwrap();
    let mut scripts = Vec::new();
    for script in &role.scripts {
        scripts.push(
            store::catalog::object_body(installation.database.worker(), script.hash)
                .await
                .unwrap()
                .unwrap(),
        );
    }
    scripts
}

#[tokio::test]
async fn scripts_imported_after_approval_never_run() {
    let installation = Installation::new().await;
    let right = "#!/bin/sh\necho right\n";
    let first = installation
        .control
        .import_barclamps(Some(&installation.ada), &tool("1", right))
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    let web = installation.id("web").await;
    let barclamp = engine::ids::BarclampName::parse("tool").unwrap();
    let edits = vec![
        Edit::UseBarclamp(edit::UseBarclamp {
            deployment: web,
            barclamp: barclamp.clone(),
            version: first,
        }),
        Edit::AddRole(edit::AddRole { deployment: web, role: role("tool") }),
        installation.bind("web", 1, "tool").await,
    ];
    let id = installation.submit(&installation.ada, "web", edits).await;
    installation.approve(&installation.bo, id).await;

    let wrong = "#!/bin/sh\necho wrong\n";
    let same = installation
        .control
        .import_barclamps(Some(&installation.cy), &tool("1", wrong))
        .await
        .unwrap_err();
    assert_eq!(same.code, "other_content", "the content of an imported version cannot change");
    installation.control.import_barclamps(Some(&installation.cy), &tool("2", wrong)).await.unwrap();
    assert_eq!(
        installation.control.review(&installation.bo, id).await.unwrap().state,
        ReviewState::Open,
        "an import does not change the review"
    );
    installation.commit(&installation.ada, id).await.unwrap();
    installation.control.import_barclamps(Some(&installation.cy), &tool("3", wrong)).await.unwrap();

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
        installation.database.worker(),
        &hello,
        std::time::Duration::from_secs(600),
    )
    .await
    .unwrap();
    store::workers::confirm_worker(installation.database.worker(), hello.id).await.unwrap();
    store::runs::set_node_alive(installation.database.owner(), installation.node(1).await, true)
        .await
        .unwrap();
    owner(&installation, "UPDATE step SET state = 'active', applied_generation = generation, pending = 0 WHERE jig = 'noop'")
        .await;
    owner(&installation, "UPDATE step SET state = 'todo', pending = 0 WHERE jig = 'script'").await;
    let claimed =
        store::runs::claim_runs(installation.database.worker(), Limits::default()).await.unwrap();
    assert_eq!(claimed.runs.len(), 1);
    assert_eq!(scripts_of(&installation, claimed.runs[0]).await, [right.as_bytes()]);
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
            "{path}: {test} is not a test"
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
        let reasons = unreachable.iter().filter(|row| row[0] == case);
        let reasons: Vec<&str> = reasons.map(|row| row[1].as_str()).collect();
        if tried.is_empty() {
            assert!(
                !reasons.is_empty(),
                "case {case} has neither a test nor a reason for its absence"
            );
            continue;
        }
        for (interface, excuse) in [('P', "by a page"), ('R', "by REST"), ('S', "by SQL")] {
            let excused = reasons.iter().any(|reason| reason.ends_with(excuse));
            assert!(
                tried.contains(interface) || excused,
                "case {case} is not tested over {interface}"
            );
        }
    }
}

/// The database and the planner have the same depth limit. So no other client exceeds it, and no
/// plan fails at its commit.
#[tokio::test]
async fn database_and_planner_have_same_depth_limit() {
    let installation = Installation::new().await;
    let mut tx = installation.database.owner().begin().await.unwrap();
    for guard in ["guard_document", "guard_intent"] {
        let off = format!("ALTER TABLE deployment DISABLE TRIGGER {guard}");
        sqlx::query(AssertSqlSafe(off)).execute(&mut *tx).await.unwrap();
    }
    let insert = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
                  SELECT $1, $2, $3, gen_random_uuid(), doc, head_no FROM deployment WHERE system";
    let mut parent = installation.id("web").await.0;
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
