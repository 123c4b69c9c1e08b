//! The review page shows the decision that the commit makes, and the people who can act.

use std::collections::BTreeMap;

use api::Allowed;
use api::reviews::{ReviewCount, ReviewStateFilter};
use api::reviews::{ReviewState, ReviewView};
use api::views::graph::{Appearance, AppearanceCount, GraphOptions};
use control::MissingVertex;
use control::people::{Actor, NewPerson, Permission};
use engine::blueprint::impact::NoderoleRerun;
use engine::cluster::NoderoleKey;
use engine::gate::{Policy, Risk, Rule, VerdictKind};
use engine::ids::ReviewId;
use engine::lint::{Level, LintCheck};
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{Installation, role};
use crate::lint::jig;

async fn review(installation: &Installation, by: &Actor, id: ReviewId) -> ReviewView {
    installation.control.review(by, id).await.unwrap()
}

async fn reruns(installation: &Installation, value: i64) -> Edit {
    Edit::SetRoleData(edit::SetRoleData {
        deployment: installation.id("web").await,
        role: role("app"),
        data: json!({"a": value}),
    })
}

async fn all_active(installation: &Installation) {
    sqlx::query("UPDATE step SET state = 'active', applied_generation = generation, pending = 0")
        .execute(installation.database.owner())
        .await
        .unwrap();
}

#[tokio::test]
async fn unchanged_steps_exclude_unapplied_ones() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "still").await;
    let (node, noderole) = (installation.node(1).await, NoderoleKey::first(role("still")));
    let edit = Edit::SetNoderoleData(edit::SetNoderoleData {
        node,
        noderole,
        data: serde_json::json!({"a": 1}),
    });
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    assert_eq!(
        review(&installation, &installation.bo, id).await.impact.retained.count,
        0,
        "the step was never applied, so its result is not retained"
    );
    all_active(&installation).await;
    assert_eq!(review(&installation, &installation.bo, id).await.impact.retained.count, 1);
}

#[tokio::test]
async fn lint_error_after_approval_is_shown() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = installation.bind("web", 2, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    let before = review(&installation, &installation.ada, id).await;
    assert_eq!(
        (before.state, before.may_commit, before.current),
        (ReviewState::Open, Allowed::Yes, true)
    );
    assert_eq!(
        installation.control.frame(&installation.ada).await.unwrap().pending_reviews.to_string(),
        "1",
        "the review can be committed"
    );
    jig(&installation, false).await;
    let shown = review(&installation, &installation.ada, id).await;
    let rule = shown.gate.rules.iter().find(|rule| rule.rule == Rule::Lint).unwrap();
    assert!(!rule.passes && rule.text.contains("Turn jig noop on first"), "{rule:?}");
    let errors: Vec<LintCheck> =
        shown.checks.iter().filter(|f| f.level == Level::Error).map(|f| f.check).collect();
    assert_eq!(errors[0], LintCheck::InactiveJig);
    let refused = installation.control.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!(
        shown.may_commit.reason(),
        Some(refused.detail.as_str()),
        "the page shows the same reason as the commit"
    );
    assert_eq!(
        installation.listed(&installation.bo, ReviewStateFilter::Open).await[0].state,
        ReviewState::Invalid,
        "the invalid review waits for nobody's verdict"
    );
    assert_eq!(
        installation.control.frame(&installation.ada).await.unwrap().pending_reviews,
        ReviewCount::default()
    );
    jig(&installation, true).await;
    assert_eq!(
        review(&installation, &installation.ada, id).await.state,
        ReviewState::Open,
        "a cached result must not outlive the change"
    );
}

#[tokio::test]
async fn only_active_steps_count_as_interrupted() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 2, "app").await;
    let edit = reruns(&installation, 1).await;
    let rerun = Edit::Rerun(edit::Rerun {
        node: installation.node(1).await,
        noderole: NoderoleKey::first(role("base")),
        reason: "a new kernel".into(),
    });
    let id = installation.submit(&installation.ada, "web", vec![edit, rerun]).await;
    let found = review(&installation, &installation.bo, id).await.impact;
    assert_eq!((found.restarts.count, found.interrupted, found.nodes), (3, Some(0), 2));
    assert_eq!((found.downstream[0].noderoles.count, found.downstream[0].in_use), (1, Some(0)));
    all_active(&installation).await;
    let shown = review(&installation, &installation.bo, id).await;
    assert_eq!(shown.impact.interrupted, Some(3));
    assert!(
        shown
            .impact
            .restarts
            .first
            .iter()
            .all(|NoderoleRerun { in_use, .. }| *in_use == Some(true))
    );
    assert_eq!(shown.impact.downstream[0].in_use, Some(1));
    assert_eq!(installation.control.impact(&installation.bo, id).await.unwrap(), shown.impact);
    // The blast radius spans several steps. app on n1 is not downstream, because it runs itself.
    let graph = installation
        .control
        .review_graph(&installation.bo, id, &GraphOptions::default(), MissingVertex::Note)
        .await
        .unwrap();
    let marked: Vec<(String, usize)> = graph
        .vertices
        .iter()
        .filter_map(|v| {
            v.appearances
                .iter()
                .find(|part| part.appearance == Appearance::Downstream)
                .map(|part| (v.role.to_string(), part.count))
        })
        .collect();
    assert_eq!(marked, [("runtime".to_owned(), 1)]);
    let app = graph.vertices.iter().find(|vertex| vertex.role == role("app")).unwrap();
    assert_eq!(
        app.appearances,
        [AppearanceCount { appearance: Appearance::Changed, count: 2 }],
        "the graph also shows steps that run again because of deployment data"
    );
    assert_eq!(
        shown.requested,
        ["Sets the data of app in web.", "Runs steps again: a new kernel."]
    );
    installation.approve(&installation.bo, id).await;
    installation.control.commit(&installation.ada, id).await.unwrap();
    let closed = review(&installation, &installation.bo, id).await;
    assert_eq!(
        (closed.current, closed.impact.interrupted, closed.impact.restarts.count),
        (false, None, 3)
    );
}

#[tokio::test]
async fn removal_shows_count_of_active_steps() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    all_active(&installation).await;
    let edit = Edit::Unbind(edit::Unbind {
        node: installation.node(1).await,
        noderole: NoderoleKey::first(role("app")),
        with_dependents: false,
    });
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let found = review(&installation, &installation.bo, id).await.impact;
    assert_eq!((found.lost.count, found.lost_in_use, found.nodes), (1, Some(1), 1));
}

/// A review as one person sees it: why they may not review it, and why they may not commit it.
async fn buttons(installation: &Installation, by: &Actor, id: ReviewId) -> [String; 2] {
    let shown = review(installation, by, id).await;
    // The page and the commit must agree.
    if let Some(reason) = shown.may_commit.reason() {
        let refused = installation.control.commit(by, id).await.unwrap_err();
        assert!(refused.status == 403 || refused.detail == reason, "{reason} / {}", refused.detail);
    }
    if let Some(reason) = shown.may_review.reason() {
        for kind in [VerdictKind::Approve, VerdictKind::RequestChanges, VerdictKind::Reject] {
            let refused = installation
                .control
                .give_verdict(by, id, kind, "because".into())
                .await
                .unwrap_err();
            assert_eq!(refused.detail, reason);
        }
    }
    [shown.may_review, shown.may_commit]
        .map(|allowed| allowed.reason().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn disabled_buttons_name_reason_and_people() {
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: BTreeMap::from([(Risk::Destructive, 2)]),
        ..Policy::default()
    })
    .await;
    installation.bound("web", 3, "runtime").await;
    let (ada, bo, cy) = (&installation.ada, &installation.bo, &installation.cy);
    let mut others = Vec::new();
    for (name, permission) in [
        ("dan", Permission::Viewer),
        ("eve", Permission::Operator),
        ("fay", Permission::Admin),
        ("gus", Permission::Reviewer),
    ] {
        installation
            .people
            .create_person(None, &NewPerson::human(name, [permission]))
            .await
            .unwrap();
        others.push(installation.people.sign_in_as_owner(name).await.unwrap());
    }
    let [dan, eve, _, gus] = &others[..] else { panic!("expected four more people") };
    let wipe = installation.bind("web", 1, "wipe").await;
    let (proposal, version) = installation.propose(ada, "web", vec![wipe]).await;
    let id = installation.control.submit(ada, proposal, version, "a wipe".into()).await.unwrap();
    let author =
        "You wrote part of this change, so another person must review it. Can act: bo, cy and gus";
    let stranger = "Your account may not review this deployment. Ask an admin for the reviewer \
                    permission. Can act: bo, cy and gus";
    let two = "0 of 2 approvals. 2 more needed. Can act: bo, cy and gus";

    // An author, a reviewer, a viewer, and an operator.
    assert_eq!(buttons(&installation, ada, id).await, [author, two]);
    assert_eq!(buttons(&installation, bo, id).await, ["", two]);
    let looks = "You cannot commit this review without the permission operator or reviewer. Can act: ada, bo, cy, eve and gus";
    assert_eq!(buttons(&installation, dan, id).await, [stranger, looks]);
    assert_eq!(buttons(&installation, eve, id).await, [stranger, two]);

    // One of two approvals.
    installation.approve(bo, id).await;
    assert_eq!(
        buttons(&installation, bo, id).await,
        ["", "1 of 2 approvals. 1 more needed. Can act: cy and gus"]
    );

    // An open thread.
    installation.approve(gus, id).await;
    let thread = installation
        .control
        .open_thread(cy, id, engine::blueprint::Anchor::Whole, "Why?".into())
        .await
        .unwrap();
    let open = "One thread is open, started by cy. The person who started a thread, or another \
                reviewer, can resolve it";
    assert_eq!(buttons(&installation, ada, id).await, [author, open]);
    installation.control.resolve_thread(cy, thread, true).await.unwrap();
    assert_eq!(buttons(&installation, ada, id).await, [author, ""]);

    // A rejection, and its withdrawal.
    installation.control.give_verdict(cy, id, VerdictKind::Reject, "no".into()).await.unwrap();
    let objects = "Changes were requested, or the change was rejected, by cy. Can decide again: \
                   cy. Can change it: ada";
    assert_eq!(buttons(&installation, ada, id).await, [author, objects]);
    installation.approve(cy, id).await;

    // A new lint error.
    jig(&installation, false).await;
    let [_, lint] = buttons(&installation, ada, id).await;
    assert!(lint.contains("Turn jig noop on first") && lint.ends_with("Can act: ada"), "{lint}");
    jig(&installation, true).await;

    // A hold, and execution turned off: both are shown, but block no button.
    installation
        .control
        .hold(eve, installation.id("web").await, true, "a move".into())
        .await
        .unwrap();
    installation.control.switch(eve, false, "maintenance".into()).await.unwrap();
    assert_eq!(buttons(&installation, ada, id).await, [author, ""]);
    let waits = review(&installation, ada, id).await.pending_reasons;
    assert!(
        waits[0].starts_with("Execution is off")
            && waits[1].starts_with("Deployment web is on hold by eve (a move)"),
        "{waits:?}"
    );

    // Too few reviewers remain.
    for gone in [gus, cy] {
        installation.people.disable(None, gone.person).await.unwrap();
    }
    let few = "1 of 2 approvals. No reviewer is left. Can give the reviewer permission: fay";
    assert_eq!(buttons(&installation, ada, id).await[1], few);

    // A newer version, and a commit.
    let other = installation.bind("web", 2, "wipe").await;
    let version = installation.control.edit(ada, proposal, version, vec![other]).await.unwrap();
    let replaced = "The proposal is closed or has a newer version";
    assert_eq!(buttons(&installation, bo, id).await[1], replaced);
    assert!(buttons(&installation, bo, id).await[0].contains("Open the newest version"));
    let undone = installation.control.undo(ada, proposal, version).await.unwrap();
    installation.control.discard(ada, proposal, undone).await.unwrap();
    let app = installation.bind("web", 1, "app").await;
    let id = installation.submit(ada, "web", vec![app]).await;
    installation.approve(bo, id).await;
    let target = installation.control.commit(ada, id).await.unwrap();
    assert_eq!(
        review(&installation, bo, id).await.may_commit,
        Allowed::no(format!("This review is already committed, as blueprint {target}."))
    );
}

#[tokio::test]
async fn stale_review_names_submitter_and_keeps_content() {
    let installation = Installation::new().await;
    let one = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![one]).await;
    installation.approve(&installation.bo, id).await;
    sqlx::query("SELECT raise_epoch()").execute(installation.database.owner()).await.unwrap();
    let [_, reason] = buttons(&installation, &installation.bo, id).await;
    assert!(
        reason.starts_with("Submitted before the database was restored")
            && reason.ends_with("Can act: ada"),
        "{reason}"
    );
    let other = installation.bind("web", 2, "app").await;
    let open = installation.board("web").await.proposal.unwrap();
    installation.control.edit(&installation.ada, open.id, open.version, vec![other]).await.unwrap();
    let shown = review(&installation, &installation.bo, id).await;
    assert!(
        !shown.current
            && shown.gate.rules.iter().all(|rule| rule.rule != Rule::Lint || rule.passes)
    );
    assert_eq!(shown.impact.interrupted, None, "the impact is that of the submission");
}
