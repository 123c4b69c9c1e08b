//! The regular path of a change.

use api::reviews::ReviewState;
use api::runs::{StateCounts, StepState};
use api::views::board::{
    Board, BoardQuery, BoardRole, MAX_NODEROLES_PER_CELL, RoleNoderolesQuery, TrayFilter,
};
use engine::anneal::Limits;
use engine::blueprint::difference::Mark;
use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::BlueprintNumber;
use engine::plan::{Edit, edit};
use serde_json::json;
use store::workers::{NewWorker, WorkerId};

use crate::installation::{Installation, fqdn, role};

/// `app` requires `runtime`, and the request names `app` first.
#[tokio::test]
async fn edits_of_one_request_follow_the_graph() {
    let installation = Installation::new().await;
    let bind = async |n: usize, name: &str| installation.bind("web", n, name).await;
    let edits = vec![bind(1, "app").await, bind(2, "runtime").await];
    let (id, version) = installation.propose(&installation.ada, "web", edits.clone()).await;
    let requested_nodes = async |name: &str| -> Vec<(String, Option<String>)> {
        let board = installation.board("web").await;
        let mut roles = board.groups.iter().flat_map(|group| &group.roles);
        let role = roles.find(|role| role.role.as_str() == name).unwrap();
        role.noderoles.iter().map(|n| (n.short.clone(), n.required_by.clone())).collect()
    };
    let on = |short: &str| vec![(short.to_owned(), None)];
    assert_eq!(requested_nodes("runtime").await, on("n2"), "the runtime on n1 is not added again");
    assert_eq!(requested_nodes("app").await, on("n1"));

    // The same request again changes nothing. An error names the position in the request.
    let control = &installation.control;
    let version = control.edit(&installation.ada, id, version, edits).await.unwrap();
    assert_eq!(installation.board("web").await.proposal.unwrap().added, 3);
    let wrong = vec![bind(3, "app").await, bind(1, "lonely").await, bind(3, "runtime").await];
    let problem = control.edit(&installation.ada, id, version, wrong).await.unwrap_err();
    assert_eq!(problem.errors[0].at, "edit 2", "{problem:?}");

    // All roles are removed with one request, in any order.
    let unbind = |node, name: &str| {
        let noderole = NoderoleKey::first(role(name));
        Edit::Unbind(edit::Unbind { node, noderole, with_dependents: false })
    };
    let (n1, n2) = (installation.node(1).await, installation.node(2).await);
    let edits = vec![unbind(n2, "base"), unbind(n2, "runtime"), unbind(n1, "app")];
    control.edit(&installation.ada, id, version, edits).await.unwrap();
    assert_eq!(requested_nodes("runtime").await, vec![]);
}

/// A role that another role adds is requested with a binding of its own, and so stays.
#[tokio::test]
async fn bound_role_stays_without_its_requirer() {
    let installation = Installation::new().await;
    let bind = async |name: &str| installation.bind("web", 1, name).await;
    let (id, version) =
        installation.propose(&installation.ada, "web", vec![bind("app").await]).await;
    let reason = async || {
        let board = installation.board("web").await;
        let mut roles = board.groups.iter().flat_map(|group| &group.roles);
        let role = roles.find(|role| role.role.as_str() == "runtime").unwrap();
        role.noderoles[0].required_by.clone()
    };
    assert_eq!(reason().await.as_deref(), Some("required by app"));
    let edits = vec![bind("runtime").await];
    installation.control.edit(&installation.ada, id, version, edits).await.unwrap();
    assert_eq!(reason().await, None);
}

#[tokio::test]
async fn drop_leads_to_committed_steps() {
    let installation = Installation::new().await;
    let (web, n1) = (installation.id("web").await, installation.node(1).await);

    let preview =
        installation.control.preview_drop(&installation.ada, web, vec![n1]).await.unwrap();
    let app = preview.roles.iter().find(|r| r.role == role("app")).unwrap();
    assert_eq!((app.legal.as_slice(), app.added, app.wave), ([n1].as_slice(), 3, Some((3, 3))));
    let also_added: Vec<_> = app
        .also_added
        .iter()
        .map(|b| (b.role.as_str(), b.nodes.as_slice(), b.reason.as_str()))
        .collect();
    assert_eq!(
        also_added,
        [
            ("base", ["n1".to_owned()].as_slice(), "required by runtime, implicit"),
            ("runtime", &["n1".to_owned()], "required by app")
        ]
    );
    assert_eq!(app.moves, ["Node n1 moves from system to web"]);

    let edit = installation.bind("web", 1, "app").await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![edit]).await;
    let board = installation.board("web").await;
    let draft = board.proposal.as_ref().unwrap();
    assert_eq!((draft.added, draft.removed, draft.reruns), (3, 0, 0));
    assert_eq!(draft.undo.as_deref(), Some("bind n1 to app"));
    let chips: Vec<_> = board.groups[0].roles.iter().flat_map(|r| &r.noderoles).collect();
    assert!(chips.len() == 3 && chips.iter().all(|c| c.state == StepState::Proposed));
    assert!(installation.steps().await.is_empty(), "no step exists before its commit");

    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "n1 gets app".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.state, ReviewState::Waiting);
    assert!(review.may_review.is_allowed());
    assert_eq!(review.summary[0], "Adds app on n1.");
    let node = &review.difference.nodes[0];
    assert_eq!((node.mark, node.noderoles.len()), (Mark::Added, 3));
    assert_eq!(
        review.waves.iter().map(|w| w.items.join()).collect::<Vec<_>>(),
        ["base on one node", "runtime on one node", "app on one node"]
    );
    assert!(
        installation.commit(&installation.ada, id).await.is_err(),
        "the review has no approval yet"
    );

    installation.approve(&installation.bo, id).await;
    assert_eq!(
        installation.control.review(&installation.ada, id).await.unwrap().state,
        ReviewState::Open
    );
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap(), BlueprintNumber(2));
    let expected = [("base", "todo"), ("runtime", "blocked"), ("app", "blocked")];
    let steps = installation.steps().await;
    assert_eq!(
        steps.iter().map(|(r, _, s, g)| (r.as_str(), s.as_str(), *g)).collect::<Vec<_>>(),
        expected.map(|(r, s)| (r, s, 2))
    );
    let review = installation.control.review(&installation.ada, id).await.unwrap();
    assert_eq!(
        (review.state, review.gate.closed_by()),
        (ReviewState::Committed, None),
        "a committed review shows an open gate"
    );
    assert!(!review.may_review.is_allowed() && !review.may_commit.is_allowed());
    assert_eq!(
        review.difference.unchanged, 5,
        "system, edge and the three phantom nodes are unchanged"
    );
    assert!(installation.board("web").await.proposal.is_none());
    let view = installation
        .control
        .noderole(&installation.ada, installation.noderole(1, "runtime").await)
        .await
        .unwrap();
    assert_eq!(view.reasons, ["Waits for base on n1.house.example.com, which is TODO."]);
}

trait Join {
    fn join(&self) -> String;
}

impl Join for Vec<String> {
    fn join(&self) -> String {
        self.as_slice().join(", ")
    }
}

#[tokio::test]
async fn changed_data_reruns_only_affected_steps() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 2, "app").await;
    installation.bound("web", 2, "still").await;
    sqlx::query("UPDATE step SET state = 'active', applied_generation = generation, pending = 0")
        .execute(installation.database.owner())
        .await
        .unwrap();
    let web = installation.id("web").await;
    let deployment_data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 9090}}),
    });
    let noderole_data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("still"),
        data: json!({"x": 1}),
    });
    let id =
        installation.submit(&installation.ada, "web", vec![deployment_data, noderole_data]).await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(
        review.difference.deployments[0].roles[0].data[0].to_string(),
        "/app: added {\"port\":9090}"
    );
    assert!(
        review.summary.iter().any(|l| l == "Runs again: app on n1 and app on n2."),
        "{:?}",
        review.summary
    );
    installation.approve(&installation.bo, id).await;
    let target = installation.commit(&installation.cy, id).await.unwrap();
    for (name, _, state, generation) in installation.steps().await {
        let runs = name == "app";
        assert_eq!((state == "todo", generation == target.0), (runs, runs), "{name}");
    }
}

#[tokio::test]
async fn undo_and_redo_follow_edit_order() {
    let installation = Installation::new().await;
    let edits =
        vec![installation.bind("web", 1, "app").await, installation.bind("web", 2, "app").await];
    let (id, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let version = installation.control.undo(&installation.ada, id, version).await.unwrap();
    let draft = installation.board("web").await.proposal.unwrap();
    assert_eq!(
        (draft.undo.as_deref(), draft.redo.as_deref(), draft.added),
        (Some("bind n1 to app"), Some("bind n2 to app"), 3)
    );
    let version = installation.control.redo(&installation.ada, id, version).await.unwrap();
    assert_eq!(
        installation.control.redo(&installation.ada, id, version).await.unwrap_err().code,
        "nothing_to_do"
    );
    let version = installation.control.undo(&installation.ada, id, version).await.unwrap();
    let other = installation.bind("web", 3, "app").await;
    let version =
        installation.control.edit(&installation.ada, id, version, vec![other]).await.unwrap();
    assert_eq!(
        installation.control.redo(&installation.ada, id, version).await.unwrap_err().code,
        "nothing_to_do",
        "a new edit ends redo"
    );
    assert_eq!(
        installation.control.undo(&installation.ada, id, version - 1).await.unwrap_err().code,
        "version",
        "the version is outdated, because another edit came first"
    );
    // n2 was undone before n3 was added, so redo only restores n3.
    let version = installation.control.undo(&installation.ada, id, version).await.unwrap();
    assert_eq!(
        installation.board("web").await.proposal.unwrap().redo.as_deref(),
        Some("bind n3 to app")
    );
    let version = installation.control.redo(&installation.ada, id, version).await.unwrap();
    let draft = installation.board("web").await.proposal.unwrap();
    assert_eq!((draft.undo.as_deref(), draft.redo), (Some("bind n3 to app"), None));
    assert_eq!(
        installation.control.redo(&installation.ada, id, version).await.unwrap_err().code,
        "nothing_to_do"
    );
    installation.control.discard(&installation.ada, id, version).await.unwrap();
    assert!(installation.board("web").await.proposal.is_none());
}

#[tokio::test]
async fn edit_discards_verdicts() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![edit]).await;
    let first = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, first).await;
    let edit = installation.bind("web", 2, "app").await;
    let version =
        installation.control.edit(&installation.cy, proposal, version, vec![edit]).await.unwrap();
    let refused = installation.commit(&installation.ada, first).await.unwrap_err();
    assert_eq!(refused.code, "not_newest");
    let second = installation
        .control
        .submit(&installation.ada, proposal, version, "two".into())
        .await
        .unwrap();
    assert_eq!(
        installation.commit(&installation.ada, second).await.unwrap_err().code,
        "not_approved"
    );
    let refused = installation
        .control
        .give_verdict(&installation.cy, second, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!(refused.code, "author", "a person who edited the proposal is an author");
    installation.approve(&installation.bo, second).await;
    installation.commit(&installation.ada, second).await.unwrap();
}

#[tokio::test]
async fn execution_switch_voids_no_review() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    installation.control.switch(&installation.cy, false, "maintenance".into()).await.unwrap();
    assert_eq!(
        installation
            .control
            .switch(&installation.cy, false, "again".into())
            .await
            .unwrap_err()
            .code,
        "state"
    );
    installation.commit(&installation.ada, id).await.unwrap();
    let view = installation
        .control
        .noderole(&installation.ada, installation.noderole(1, "base").await)
        .await
        .unwrap();
    assert!(view.reasons.iter().any(|w| w.contains("Execution is off")), "{:?}", view.reasons);
}

#[tokio::test]
async fn hold_applies_to_descendants() {
    let installation = Installation::new().await;
    let database = installation.database.app();
    installation.bound("web", 1, "app").await;
    let (system, web) = (installation.id("system").await, installation.id("web").await);
    let worker = WorkerId(uuid::Uuid::new_v4());
    let hello = NewWorker {
        id: worker,
        name: "w".into(),
        capacity: 9,
        jigs: vec!["noop".into()],
        host: "here".into(),
        pid: 1,
        version: "0".into(),
    };
    let long = std::time::Duration::from_secs(600);
    store::workers::ensure_worker(installation.database.worker(), &hello, long).await.unwrap();
    store::workers::confirm_worker(installation.database.worker(), worker).await.unwrap();
    let reasons = async || {
        installation
            .control
            .noderole(&installation.ada, installation.noderole(1, "base").await)
            .await
            .unwrap()
            .reasons
    };
    assert_eq!(reasons().await, ["The step starts when a worker claims it."]);

    assert_eq!(
        store::runs::claim_runs(installation.database.worker(), Limits::default())
            .await
            .unwrap()
            .runs
            .len(),
        1
    );
    installation.control.hold(&installation.bo, system, true, "a fire drill".into()).await.unwrap();
    assert!(
        store::runs::lease_runs(installation.database.worker(), worker, &["noop"], 9, long)
            .await
            .unwrap()
            .is_empty(),
        "runs that were queued before the hold are not leased"
    );
    assert!(
        store::runs::claim_runs(installation.database.worker(), Limits::default())
            .await
            .unwrap()
            .runs
            .is_empty()
    );
    assert_eq!(reasons().await, ["Deployment system was put on hold by bo."]);
    let hold = installation.board("web").await.hold.unwrap();
    assert_eq!(
        (hold.deployment.as_str(), hold.by.as_str(), hold.reason.as_str()),
        ("system", "bo", "a fire drill")
    );
    assert_eq!(
        installation.board("web").await.on_hold_by,
        None,
        "the deployment itself is not on hold"
    );
    let again = installation
        .control
        .hold(&installation.ada, system, true, "me too".into())
        .await
        .unwrap_err();
    assert_eq!(
        (again.code.as_str(), again.detail.as_str()),
        ("state", "Deployment system is already on hold, by bo: a fire drill")
    );
    let head: i64 =
        sqlx::query_scalar("SELECT number FROM head").fetch_one(database).await.unwrap();
    assert_eq!(head, 2, "a hold does not create a blueprint");

    installation.control.hold(&installation.ada, web, true, "mine".into()).await.unwrap();
    installation.control.hold(&installation.ada, system, false, "over".into()).await.unwrap();
    assert_eq!(reasons().await, ["Deployment web was put on hold by ada."]);
    installation.control.hold(&installation.ada, web, false, "over".into()).await.unwrap();
    assert_eq!(
        store::runs::claim_runs(installation.database.worker(), Limits::default())
            .await
            .unwrap()
            .runs
            .len(),
        1
    );
    let audited: Vec<String> = sqlx::query_scalar(
        "SELECT action FROM audit WHERE action LIKE 'deployment.%' AND source = 'application' ORDER BY id",
    )
    .fetch_all(installation.database.owner())
    .await
    .unwrap();
    assert_eq!(
        audited,
        ["deployment.hold", "deployment.hold", "deployment.release", "deployment.release"]
    );
}

#[tokio::test]
async fn list_of_noderoles_includes_the_draft() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = installation.bind("web", 2, "app").await;
    installation.propose(&installation.ada, "web", vec![edit]).await;
    let all = installation
        .control
        .role_noderoles(&installation.ada, "web", None, &role("app"))
        .await
        .unwrap();
    let listed: Vec<_> =
        all.noderoles.iter().map(|chip| (chip.short.as_str(), chip.state)).collect();
    assert_eq!(listed, [("n1", StepState::Blocked), ("n2", StepState::Proposed)]);
    assert_eq!(all.more, 0);
    let first = all.noderoles.first().unwrap().noderole;
    let query = RoleNoderolesQuery { after: Some(first), ..RoleNoderolesQuery::of(role("app")) };
    let rest =
        installation.control.find_role_noderoles(&installation.ada, "web", &query).await.unwrap();
    assert_eq!(rest.noderoles, all.noderoles[1..], "a later page begins after the cursor");
    let gone = engine::ids::NoderoleId(uuid::Uuid::nil());
    let query = RoleNoderolesQuery { after: Some(gone), ..RoleNoderolesQuery::of(role("app")) };
    let moved = installation.control.find_role_noderoles(&installation.ada, "web", &query).await;
    assert_eq!(moved.unwrap_err().code, "moved");
    for (n, found) in [(1, 0..1), (2, 1..2), (3, 0..0)] {
        let query = RoleNoderolesQuery {
            node: fqdn(n).as_str().to_owned(),
            ..RoleNoderolesQuery::of(role("app"))
        };
        let on_it = installation
            .control
            .find_role_noderoles(&installation.ada, "web", &query)
            .await
            .unwrap();
        assert_eq!((on_it.noderoles.as_slice(), on_it.more), (&all.noderoles[found], 0), "n{n}");
    }
    let nowhere = RoleNoderolesQuery { node: "n9".into(), ..RoleNoderolesQuery::of(role("app")) };
    assert_eq!(
        installation
            .control
            .find_role_noderoles(&installation.ada, "web", &nowhere)
            .await
            .unwrap_err()
            .status,
        404
    );
    let none = installation
        .control
        .role_noderoles(&installation.ada, "web", Some("system"), &role("app"))
        .await
        .unwrap();
    assert!(none.noderoles.is_empty(), "system has no noderoles");
    let concurrent = installation
        .control
        .role_noderoles(&installation.ada, "web", Some("edge"), &role("app"))
        .await;
    assert_eq!(
        concurrent.unwrap_err().status,
        404,
        "a noderole of a sibling deployment is not on this board"
    );

    // The tray is sorted by name, regardless of bindings.
    let tray: Vec<String> =
        installation.board("web").await.tray.into_iter().map(|node| node.short).collect();
    assert_eq!(tray, ["n1", "n2", "n3", "n4"]);
}

/// The board lists at most 1,000 nodes in its tray. A search finds the others.
#[tokio::test]
async fn tray_search_includes_the_draft() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = installation.bind("web", 2, "app").await;
    installation.propose(&installation.ada, "web", vec![edit]).await;
    let find = async |text: &str, show: TrayFilter| {
        let (control, ada) = (&installation.control, &installation.ada);
        let found = control.find_tray_nodes(ada, "web", text, show).await.unwrap();
        assert_eq!(found.more, 0);
        found.nodes.into_iter().map(|node| node.short).collect::<Vec<_>>()
    };
    assert_eq!(find(" N2 ", TrayFilter::All).await, ["n2"]);
    assert_eq!(find("", TrayFilter::Free).await, ["n3", "n4"], "the draft binds n2");
    assert!(find("n9", TrayFilter::All).await.is_empty());
    let (control, ada) = (&installation.control, &installation.ada);
    let refused = control.find_tray_nodes(ada, "web", "a\0", TrayFilter::All).await;
    assert_eq!(refused.unwrap_err().status, 400);
    let refused = control.find_tray_nodes(ada, "no", "", TrayFilter::All).await;
    assert_eq!(refused.unwrap_err().status, 404);
}

/// Users know a step by its role and node.
#[tokio::test]
async fn refused_retry_names_role_and_node() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let refused = async |name: &str| {
        let id = installation.noderole(1, name).await;
        let refused =
            installation.control.retry(&installation.ada, id, "why not".into()).await.unwrap_err();
        (refused.status, refused.code, refused.detail)
    };
    let reported = |detail: &str| (409, "state".to_owned(), detail.to_owned());
    let (waits, blocked) = ("it already waits for a worker", "retry the steps that it waits for");
    let todo =
        format!("Step base on n1.house.example.com is TODO, so it cannot be retried: {waits}.");
    assert_eq!(refused("base").await, reported(&todo));
    let app =
        format!("Step app on n1.house.example.com is BLOCKED, so it cannot be retried: {blocked}.");
    assert_eq!(refused("app").await, reported(&app));
    let again = refused("app").await.2;
    assert!(!again.contains(&installation.noderole(1, "app").await.to_string()), "{again}");
}

#[tokio::test]
async fn board_counts_steps_of_hidden_noderoles() {
    let installation = Installation::new().await;
    let nodes = 5..=MAX_NODEROLES_PER_CELL + 6;
    let text: Vec<String> =
        nodes.clone().map(|n| format!("{} root=/srv/nodes/n{n}", fqdn(n))).collect();
    installation
        .control
        .add_nodes(&installation.ada, text.as_slice().join("\n").as_str())
        .await
        .unwrap();
    let mut edits = Vec::new();
    for n in nodes {
        edits.push(installation.bind("web", n, "app").await);
    }
    let id = installation.submit(&installation.ada, "web", edits).await;
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let of_chips = |board: &Board| {
        let mut counts = board.omitted;
        let own = board.groups.iter().filter(|group| group.of_ancestor.is_none());
        own.flat_map(|group| &group.roles)
            .flat_map(|role| &role.noderoles)
            .for_each(|chip| counts.count(chip.state));
        counts
    };
    let all = async || {
        installation.control.deployment_progress(&installation.ada, "web").await.unwrap().steps
    };
    let board = installation.board("web").await;
    assert_ne!(
        board.omitted,
        StateCounts::default(),
        "the counts include the steps of the two nodes beyond the limit"
    );
    assert_eq!(of_chips(&board), all().await);

    // A noderole without a chip fails.
    let chips = board.groups.iter().flat_map(|group| &group.roles).flat_map(|role| &role.noderoles);
    let shown: Vec<_> = chips.map(|chip| chip.noderole.0).collect();
    let failed = "UPDATE step SET state = 'error', error = 'no room left', pending = 0 WHERE noderole_id = \
                  (SELECT r.id FROM noderole r WHERE r.role = 'app' AND r.id <> ALL($1) LIMIT 1)";
    sqlx::query(failed).bind(shown).execute(installation.database.owner()).await.unwrap();
    let board = installation.board("web").await;
    assert_eq!(of_chips(&board), all().await);

    // It comes first in its cell, and its role counts all noderoles.
    let app = |board: &Board| {
        let own = board.groups.iter().filter(|group| group.of_ancestor.is_none());
        let mut roles = own.flat_map(|group| &group.roles);
        roles.find(|role| role.role.as_str() == "app").cloned().unwrap()
    };
    let role = app(&board);
    assert_eq!(role.noderoles[0].state, StepState::Error);
    assert_eq!(role.noderoles[0].error.as_deref(), Some("no room left"));
    assert!(role.noderoles[1].fqdn < role.noderoles[2].fqdn, "the others are sorted by name");
    let mut counts = role.omitted;
    role.noderoles.iter().for_each(|chip| counts.count(chip.state));
    assert_eq!(counts.error, 1);
    let total = [counts.blocked, counts.todo, counts.transition, counts.active, counts.error];
    assert_eq!(total.iter().sum::<i64>(), i64::try_from(role.noderoles.len() + role.more).unwrap());

    // The filter leaves out noderoles that are ACTIVE, but counts them.
    let active = "UPDATE step SET state = 'active', pending = 0, applied_generation = generation, input_checked = input_version WHERE state NOT IN ('error', 'gone')";
    sqlx::query(active).execute(installation.database.owner()).await.unwrap();
    let only = BoardQuery { not_active: true, ..BoardQuery::default() };
    let board = installation.control.board(&installation.ada, "web", only).await.unwrap();
    let filtered = app(&board);
    assert_eq!((filtered.noderoles.len(), filtered.more), (1, 0));
    assert_eq!(filtered.omitted.active + 1, total.iter().sum::<i64>());
    assert_eq!(of_chips(&board), all().await);
}

#[tokio::test]
async fn board_marks_stale_and_unchecked_noderoles() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let owner = installation.database.owner();
    for sql in [
        "UPDATE step SET state = 'active', pending = 0, applied_generation = generation, input_checked = input_version WHERE state <> 'gone'",
        "UPDATE step SET stale = true FROM noderole r WHERE r.id = noderole_id AND r.role = 'app'",
        "INSERT INTO role_check (step_id, node_id, due_at) SELECT s.id, s.node_id, now() FROM step s JOIN noderole r ON r.id = s.noderole_id WHERE r.role = 'runtime'",
    ] {
        sqlx::query(sql).execute(owner).await.unwrap();
    }
    let marks = async |not_active| -> Vec<(String, StepState, bool, bool)> {
        let query = BoardQuery { not_active, ..BoardQuery::default() };
        let board = installation.control.board(&installation.ada, "web", query).await.unwrap();
        let roles = board.groups.iter().flat_map(|group| &group.roles);
        let of = |role: &BoardRole| {
            let noderole = role.noderoles.first()?;
            let name = role.role.to_string();
            Some((name, noderole.state, noderole.stale, noderole.unchecked))
        };
        let mut all: Vec<_> = roles.filter_map(of).collect();
        all.sort();
        all
    };
    let active =
        |name: &str, stale, unchecked| (name.to_owned(), StepState::Active, stale, unchecked);
    let marked = [active("app", true, false), active("runtime", false, true)];
    assert_eq!(marks(true).await, marked);
    let [app, runtime] = marked;
    assert_eq!(marks(false).await, [app, active("base", false, false), runtime]);

    // An input that is not compared yet counts as stale, as in all counts.
    let changed = "UPDATE step SET input_version = input_checked + 1 FROM noderole r WHERE r.id = noderole_id AND r.role = 'base'";
    sqlx::query(changed).execute(owner).await.unwrap();
    assert!(marks(true).await.contains(&active("base", true, false)));
    let steps =
        installation.control.deployment_progress(&installation.ada, "web").await.unwrap().steps;
    assert_eq!((steps.stale, steps.unchecked), (2, 1));
    let role = role("runtime");
    let all = installation.control.role_noderoles(&installation.ada, "web", None, &role);
    assert!(all.await.unwrap().noderoles[0].unchecked);
}

#[tokio::test]
async fn commit_of_concurrency_group_passes_guards() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "door").await;
    let groups: Vec<(String, Option<i32>, String)> = sqlx::query_as(
        "SELECT name, max_running, mode FROM concurrency_group WHERE name = 'doors'",
    )
    .fetch_all(installation.database.owner())
    .await
    .unwrap();
    assert_eq!(groups, [("doors".to_owned(), Some(2), "chunk".to_owned())]);
}
