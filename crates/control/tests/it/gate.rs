//! Attempts to bypass the gate.

use api::Allowed;
use api::reviews::ReviewState;
use api::reviews::ReviewStateFilter;
use control::people::{Actor, NewPerson, Permission};
use engine::gate::{Policy, Risk, Rule, VerdictKind};
use engine::ids::ReviewId;

use crate::installation::Installation;

#[tokio::test]
async fn author_approval_is_rejected() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let before = installation.traces().await;
    let refused = installation
        .control
        .give_verdict(&installation.ada, id, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (403, "author"));
    assert!(refused.detail.contains("You wrote part of this change"), "{}", refused.detail);
    assert_eq!(installation.traces().await, before);
    let (audited,): (i64,) =
        sqlx::query_as("SELECT count(*) FROM audit WHERE action = 'review.verdict.refused'")
            .fetch_one(installation.database.owner())
            .await
            .unwrap();
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn parallel_commits_create_one_target() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    let (one, two) = tokio::join!(
        installation.commit(&installation.ada, id),
        installation.commit(&installation.cy, id)
    );
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1, "{one:?} {two:?}");
    let again = installation.commit(&installation.ada, id).await.unwrap_err();
    let reported = (again.status, again.code.as_str(), again.detail.as_str(), again.errors.len());
    assert_eq!(
        reported,
        (409, "committed", "This review is already committed, as blueprint 2.", 0),
        "the response has nothing about later reviews"
    );
    assert_eq!(installation.traces().await[0], 2);
}

#[tokio::test]
async fn sibling_changes_commit_in_any_order() {
    let installation = Installation::new().await;
    let (one, two) =
        (installation.bind("web", 1, "app").await, installation.bind("edge", 2, "app").await);
    let (web, edge) = (
        installation.submit(&installation.ada, "web", vec![one]).await,
        installation.submit(&installation.ada, "edge", vec![two]).await,
    );
    installation.approve(&installation.bo, web).await;
    installation.approve(&installation.bo, edge).await;
    let (one, two) = tokio::join!(
        installation.commit(&installation.ada, web),
        installation.commit(&installation.cy, edge)
    );
    assert_ne!(one.unwrap(), two.unwrap());
    assert_eq!(installation.steps().await.len(), 6);
}

#[tokio::test]
async fn replanned_review_inherits_no_approval() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 3, "still").await;
    let edit = installation.data_edit("web", serde_json::json!({"a": 1})).await;
    let stale = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, stale).await;
    let edit = installation.bind("web", 2, "still").await;
    installation.moved_by("web", vec![edit]).await;

    let refused = installation.commit(&installation.ada, stale).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "not_newest"));
    let stale = installation.control.review(&installation.ada, stale).await.unwrap();
    let base = stale.gate.rules.iter().find(|rule| rule.rule == Rule::Base).unwrap();
    assert_eq!(base.text, "Planned on an older state: web (blueprint 4) changed since");
    let fresh = stale.replaced_by.unwrap().after.unwrap();
    let replaced = format!("Review {fresh} replaced this review. Continue with review {fresh}");
    assert!(refused.detail.starts_with(&replaced), "{}", refused.detail);
    assert_eq!(
        installation.commit(&installation.ada, fresh).await.unwrap_err().code,
        "not_approved",
        "the approval of the replaced review does not count"
    );
    installation.approve(&installation.bo, fresh).await;
    installation.commit(&installation.ada, fresh).await.unwrap();
}

#[tokio::test]
async fn only_one_change_moves_a_node() {
    let installation = Installation::new().await;
    let (one, two) =
        (installation.bind("web", 1, "app").await, installation.bind("edge", 1, "app").await);
    let (web, edge) = (
        installation.submit(&installation.ada, "web", vec![one]).await,
        installation.submit(&installation.ada, "edge", vec![two]).await,
    );
    installation.approve(&installation.bo, web).await;
    installation.approve(&installation.bo, edge).await;
    installation.commit(&installation.ada, web).await.unwrap();
    let refused = installation.commit(&installation.ada, edge).await.unwrap_err();
    assert_eq!(refused.code, "not_newest");
    let became =
        installation.control.review(&installation.ada, edge).await.unwrap().replaced_by.unwrap();
    assert!(became.after.is_none() && became.refused[0].detail.contains("n1"), "{became:?}");
    assert_eq!(installation.traces().await[0], 2);
}

#[tokio::test]
async fn restore_voids_every_review() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![edit]).await;
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    sqlx::query("SELECT raise_epoch()").execute(installation.database.owner()).await.unwrap();
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!(refused.code, "other_epoch");
    let fresh = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, fresh).await;
    installation.commit(&installation.ada, fresh).await.unwrap();
}

#[tokio::test]
async fn approval_requires_current_permission() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    installation.people.disable(None, installation.bo.person).await.unwrap();
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!(refused.code, "not_approved");
    assert!(
        refused.detail.contains("Can act") || refused.detail.contains("Nobody"),
        "{}",
        refused.detail
    );
}

#[tokio::test]
async fn last_objection_blocks_gate() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    let without_reason = installation
        .control
        .give_verdict(&installation.cy, id, VerdictKind::Reject, " ".into())
        .await
        .unwrap_err();
    assert_eq!(without_reason.status, 400, "a rejection needs a reason");
    installation
        .control
        .give_verdict(&installation.cy, id, VerdictKind::RequestChanges, "use n2".into())
        .await
        .unwrap();
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap_err().code, "not_approved");
    assert_eq!(
        installation.control.review(&installation.ada, id).await.unwrap().state,
        ReviewState::ChangesRequested
    );
    installation.approve(&installation.cy, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}

/// The error of a refused commit, with all reasons.
async fn refused(installation: &Installation, by: &Actor, id: ReviewId) -> (String, Vec<String>) {
    let before = installation.traces().await;
    let refused = installation.commit(by, id).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "not_approved"), "{refused:?}");
    assert_eq!(installation.traces().await, before, "{refused:?}");
    (refused.detail, refused.errors.into_iter().map(|finding| finding.detail).collect())
}

#[tokio::test]
async fn objection_blocks_every_committer_and_is_named() {
    let installation = Installation::under(Policy {
        approvals: 2,
        by_risk: Default::default(),
        ..Policy::default()
    })
    .await;
    let mut others = Vec::new();
    for name in ["dan", "eve"] {
        let person = NewPerson::human(name, [Permission::Operator, Permission::Reviewer]);
        installation.people.create_person(None, &person).await.unwrap();
        others.push(installation.people.sign_in_as_owner(name).await.unwrap());
    }
    let [dan, eve] = &others[..] else { panic!("expected two more people") };
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    for kind in [VerdictKind::Reject, VerdictKind::RequestChanges] {
        installation
            .control
            .give_verdict(&installation.bo, id, kind, "not on a Friday".into())
            .await
            .unwrap();
        let (detail, all) = refused(&installation, eve, id).await;
        assert!(
            detail.contains("the change was rejected, by bo"),
            "the objection is named before missing approvals: {detail}"
        );
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[1].starts_with("0 of 2 approvals"), "{all:?}");
    }
    // The required number of approvals does not outvote a rejection, no matter who commits.
    installation.approve(&installation.cy, id).await;
    installation.approve(dan, id).await;
    for by in [eve, &installation.ada, &installation.cy, &installation.bo] {
        let (detail, all) = refused(&installation, by, id).await;
        assert!(detail.contains("the change was rejected, by bo"), "{detail}");
        assert_eq!(all, [detail]);
        let shown = installation.control.review(by, id).await.unwrap();
        assert_eq!(
            (shown.state, shown.may_commit),
            (ReviewState::ChangesRequested, Allowed::no(all[0].clone()))
        );
    }
    installation.approve(&installation.bo, id).await;
    installation.commit(eve, id).await.unwrap();
}

#[tokio::test]
async fn objection_ends_with_reviewer_permission() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation
        .control
        .give_verdict(&installation.bo, id, VerdictKind::Reject, "no".into())
        .await
        .unwrap();
    installation.approve(&installation.cy, id).await;
    refused(&installation, &installation.ada, id).await;
    installation.people.disable(None, installation.bo.person).await.unwrap();
    let shown = installation.control.review(&installation.ada, id).await.unwrap();
    let rule = shown.gate.rules.iter().find(|rule| rule.rule == Rule::Objections).unwrap();
    assert!(rule.passes && rule.text.ends_with("no longer review do not count: bo"), "{rule:?}");
    installation.commit(&installation.ada, id).await.unwrap();
    let sql = "SELECT detail->'ignored_objections'->>0 FROM audit WHERE action = 'review.commit'";
    let audited: Option<String> =
        sqlx::query_scalar(sql).fetch_one(installation.database.owner()).await.unwrap();
    assert_eq!(audited.as_deref(), Some("bo"));
}

#[tokio::test]
async fn risky_changes_need_approvals_of_policy() {
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Destructive, 2)].into(),
        ..Policy::default()
    })
    .await;
    let edit = installation.bind("web", 1, "wipe").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let review = installation.control.review(&installation.ada, id).await.unwrap();
    assert_eq!((review.risks.as_slice(), review.gate.needed), ([Risk::Destructive].as_slice(), 2));
    assert!(review.summary[0].contains("be undone"), "{:?}", review.summary);
    installation.approve(&installation.bo, id).await;
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap_err().code, "not_approved");
    installation.approve(&installation.cy, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn policy_without_review_is_rejected() {
    let database = testdb::TestDatabase::new().await;
    let control = control::Control::new(store::Store::over(database.app().clone()));
    let policy = Policy { approvals: 0, by_risk: Default::default(), ..Policy::default() };
    assert!(control.ensure_genesis(&policy, &control::Demo::default()).await.is_err());
}

#[tokio::test]
async fn undo_or_redo_makes_an_author() {
    let installation = Installation::new().await;
    let edits =
        vec![installation.bind("web", 1, "app").await, installation.bind("web", 2, "app").await];
    let (proposal, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let version = installation.control.undo(&installation.bo, proposal, version).await.unwrap();
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "without n2".into())
        .await
        .unwrap();
    let refused = installation
        .control
        .give_verdict(&installation.bo, id, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!(refused.code, "author");
    let past_control =
        sqlx::query("INSERT INTO verdict (review_id, person_id, kind) VALUES ($1, $2, 'approve')")
            .bind(id.0)
            .bind(installation.bo.person.0)
            .execute(installation.database.app())
            .await;
    assert!(past_control.is_err(), "the database also rejects the approval");
    installation.approve(&installation.cy, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn destructive_commit_requires_typed_name() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "wipe").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let typed = |name: Option<&str>| control::CommitInput {
        review: id,
        typed: name.map(str::to_owned),
        cancel: false,
    };
    let refused =
        installation.control.commit(&installation.ada, typed(Some("web"))).await.unwrap_err();
    assert_eq!(refused.code, "not_approved", "a typed name does not replace an approval");
    installation.approve(&installation.bo, id).await;
    let before = installation.traces().await;
    for wrong in [None, Some(""), Some("edge"), Some("Web")] {
        let refused =
            installation.control.commit(&installation.ada, typed(wrong)).await.unwrap_err();
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (422, "confirmation_required"),
            "{wrong:?}"
        );
        assert!(refused.detail.contains("Type web to commit it"), "{}", refused.detail);
        assert_eq!(
            (refused.errors[0].at.as_str(), refused.errors[0].detail.as_str()),
            ("name", "Type web.")
        );
    }
    assert_eq!(installation.traces().await, before);
    let sql = "SELECT count(*) FROM audit WHERE action = 'review.commit.refused' AND detail->>'refused' = 'confirmation_required'";
    let audited: i64 =
        sqlx::query_scalar(sql).fetch_one(installation.database.owner()).await.unwrap();
    assert_eq!(audited, 1, "a repeated refusal is audited once");
    assert_eq!(
        installation.control.review(&installation.bo, id).await.unwrap().type_to_commit.as_deref(),
        Some("web")
    );
    installation.control.commit(&installation.ada, typed(Some(" web "))).await.unwrap();

    let harmless = installation.bind("web", 2, "app").await;
    let harmless = installation.submit(&installation.ada, "web", vec![harmless]).await;
    installation.approve(&installation.bo, harmless).await;
    assert_eq!(
        installation.control.review(&installation.bo, harmless).await.unwrap().type_to_commit,
        None
    );
    installation.control.commit(&installation.ada, harmless).await.unwrap();
}

#[tokio::test]
async fn old_open_review_stays_listed() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let waits = installation.submit(&installation.ada, "web", vec![edit]).await;
    let edits =
        vec![installation.bind("edge", 2, "app").await, installation.bind("edge", 3, "app").await];
    let (proposal, mut version) = installation.propose_each(&installation.ada, "edge", edits).await;
    let mut newest = waits;
    for n in 0..101 {
        newest = installation
            .control
            .submit(&installation.ada, proposal, version, format!("attempt {n}"))
            .await
            .unwrap();
        version = match n % 2 {
            0 => installation.control.undo(&installation.ada, proposal, version).await.unwrap(),
            _ => installation.control.redo(&installation.ada, proposal, version).await.unwrap(),
        };
    }
    let listed = installation.listed(&installation.bo, ReviewStateFilter::Open).await;
    assert_eq!(
        listed.iter().map(|r| (r.review, r.state)).collect::<Vec<_>>(),
        [(waits, ReviewState::Waiting)]
    );
    let all = installation.listed(&installation.bo, ReviewStateFilter::Any).await;
    assert_eq!(
        (all[0].review, all[0].state),
        (newest, ReviewState::Replaced),
        "the list has all reviews"
    );
    assert_eq!((all.len(), all[101].review), (102, waits));
}
