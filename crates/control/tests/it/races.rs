//! Races with a commit. A lock makes each race deterministic: the commit starts, passes its first
//! permission check and waits for the lock. Then the other event happens. Then the commit continues
//! and must detect it.

use std::future::Future;

use api::Problem;
use engine::gate::VerdictKind;
use engine::ids::{BlueprintNumber, ReviewId};
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{Installation, role};

/// ada's change of `web`, approved by bo.
async fn approved(installation: &Installation) -> ReviewId {
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    id
}

/// Commits, and runs `happens` after the commit's first permission check and before it reads under
/// its locks.
async fn commit_while(
    installation: &Installation,
    by: &control::people::Actor,
    id: ReviewId,
    happens: impl Future<Output = ()>,
) -> Result<BlueprintNumber, Problem> {
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::APPLY_LOCK)
        .execute(&mut *transaction)
        .await
        .unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        happens.await;
        transaction.commit().await.unwrap();
    };
    let (committed, ()) = tokio::join!(installation.commit(by, id), between);
    committed
}

async fn refused_while(
    installation: &Installation,
    id: ReviewId,
    happens: impl Future<Output = ()>,
) -> (u16, String) {
    let before = installation.targets().await;
    let refused = commit_while(installation, &installation.ada, id, happens).await.unwrap_err();
    assert_eq!(installation.targets().await, before, "{refused:?}");
    (refused.status, refused.code)
}

#[tokio::test]
async fn undisturbed_commit_succeeds() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    assert_eq!(
        commit_while(&installation, &installation.ada, id, async {}).await.unwrap(),
        BlueprintNumber(2)
    );
}

#[tokio::test]
async fn withdrawn_approval_stops_running_commit() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let reject = async {
        installation
            .control
            .give_verdict(&installation.bo, id, VerdictKind::Reject, "wait".into())
            .await
            .unwrap();
    };
    assert_eq!(refused_while(&installation, id, reject).await, (409, "not_approved".into()));
}

#[tokio::test]
async fn edit_stops_running_commit_and_makes_author() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![edit]).await;
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    let more = installation.bind("web", 2, "app").await;
    let edits = async {
        installation.control.edit(&installation.bo, proposal, version, vec![more]).await.unwrap();
    };
    assert_eq!(refused_while(&installation, id, edits).await, (409, "not_newest".into()));
    let again = installation
        .control
        .submit(&installation.ada, proposal, version + 1, "two".into())
        .await
        .unwrap();
    let verdict = installation
        .control
        .give_verdict(&installation.bo, again, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!(verdict.code, "author", "a person who approved and then edited is an author");
}

#[tokio::test]
async fn disabled_approver_stops_running_commit() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let disable =
        async { installation.people.disable(None, installation.bo.person).await.unwrap() };
    assert_eq!(refused_while(&installation, id, disable).await, (409, "not_approved".into()));
}

#[tokio::test]
async fn revoked_committer_stops_running_commit() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let shrink = async {
        let sql = "UPDATE person SET permissions = '{viewer}' WHERE name = 'ada'";
        sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    };
    assert_eq!(refused_while(&installation, id, shrink).await, (403, "forbidden".into()));
    let disable =
        async { installation.people.disable(None, installation.cy.person).await.unwrap() };
    let refused = commit_while(&installation, &installation.cy, id, disable).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (401, "signed_out"));
    let noted: Vec<String> = sqlx::query_scalar(
        "SELECT detail ->> 'refused' FROM audit WHERE action = 'review.commit.refused' ORDER BY id",
    )
    .fetch_all(installation.database.app())
    .await
    .unwrap();
    assert_eq!(noted, ["forbidden", "signed_out"], "the audit names the rejected person");
}

#[tokio::test]
async fn ended_session_stops_running_commit_and_verdict() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let sign_in = |person| {
        let installation = &installation;
        async move {
            let link = installation
                .people
                .create_sign_in_link(None, person, std::time::Duration::from_secs(60))
                .await
                .unwrap();
            let session = installation
                .people
                .sign_in(link.reveal(), &Default::default(), None)
                .await
                .unwrap()
                .session;
            installation.people.actor_of_session(session.reveal()).await.unwrap().unwrap()
        }
    };
    let cy = sign_in(installation.cy.person).await;
    let before = installation.targets().await;
    let sign_out = async { installation.people.sign_out(&cy).await.unwrap() };
    let refused = commit_while(&installation, &cy, id, sign_out).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (401, "signed_out"));
    assert_eq!(installation.targets().await, before);

    let cy = sign_in(installation.cy.person).await;
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT FROM proposal FOR UPDATE").execute(&mut *transaction).await.unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        installation.people.sign_out_everywhere(&cy).await.unwrap();
        transaction.commit().await.unwrap();
    };
    let (verdict, ()) = tokio::join!(
        installation.control.give_verdict(&cy, id, VerdictKind::Approve, String::new()),
        between
    );
    assert_eq!(verdict.unwrap_err().code, "signed_out");
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn discarded_proposal_stops_running_commit() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let draft = installation.board("web").await.proposal.unwrap();
    let discard = async {
        installation.control.discard(&installation.ada, draft.id, draft.version).await.unwrap()
    };
    assert_eq!(refused_while(&installation, id, discard).await, (409, "not_newest".into()));
}

#[tokio::test]
async fn restore_stops_running_commit() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let restore = async {
        sqlx::query("UPDATE head SET epoch = epoch + 1")
            .execute(installation.database.owner())
            .await
            .unwrap();
    };
    assert_eq!(refused_while(&installation, id, restore).await, (409, "other_epoch".into()));
}

#[tokio::test]
async fn moved_base_stops_running_commit() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let web = installation.id("web").await;
    let data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"a": 1}),
    });
    let id = installation.submit(&installation.ada, "web", vec![data]).await;
    installation.approve(&installation.bo, id).await;
    let other: i64 = sqlx::query_scalar(
        "INSERT INTO proposal (deployment_id, kind, created_by) VALUES ($1, 'autopilot', $2) RETURNING id",
    )
    .bind(web.0)
    .bind(installation.cy.person.0)
    .fetch_one(installation.database.owner())
    .await
    .unwrap();
    let other = engine::ids::ProposalId(other);
    let edit = installation.bind("web", 2, "app").await;
    let version = installation.control.edit(&installation.cy, other, 0, vec![edit]).await.unwrap();
    let sooner =
        installation.control.submit(&installation.cy, other, version, "more".into()).await.unwrap();
    installation.approve(&installation.bo, sooner).await;
    let (one, two) = tokio::join!(
        installation.commit(&installation.ada, id),
        installation.commit(&installation.cy, sooner)
    );
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1, "{one:?} {two:?}");
    let refused = one.err().or(two.err()).unwrap();
    // The other commit may already have replanned the review.
    assert!(["base_moved", "not_newest"].contains(&refused.code.as_str()), "{refused:?}");
}

#[tokio::test]
async fn database_outage_during_commit_leaves_no_trace() {
    let installation = Installation::new().await;
    let id = approved(&installation).await;
    let before = installation.traces().await;
    let mut transaction = installation.database.owner().begin().await.unwrap();
    // The commit's last statement waits here; everything else is already written.
    sqlx::query("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        installation.database.terminate_connections().await.unwrap();
    };
    let (committed, ()) = tokio::join!(installation.commit(&installation.ada, id), between);
    assert_eq!(committed.unwrap_err().status, 503);
    drop(transaction);
    assert_eq!(installation.traces().await, before);
    installation.commit(&installation.ada, id).await.unwrap();
}

/// The number of proposals, and of audit entries about their opening.
async fn opened(installation: &Installation) -> (i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM proposal), (SELECT count(*) FROM audit WHERE action = 'proposal.open')";
    sqlx::query_as(sql).fetch_one(installation.database.owner()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_opens_return_the_same_proposal() {
    let installation = Installation::new().await;
    let (web, node) = (installation.id("web").await, installation.node(1).await);
    for round in 1..=5 {
        let mut tries = tokio::task::JoinSet::new();
        for n in 0..12 {
            let control = installation.control.clone();
            let by = [&installation.ada, &installation.bo, &installation.cy][n % 3].clone();
            tries.spawn(async move {
                match n % 2 {
                    0 => (0, control.propose(&by, web).await),
                    _ => (1, control.propose_on_node(&by, node).await),
                }
            });
        }
        let mut ids = [std::collections::BTreeSet::new(), std::collections::BTreeSet::new()];
        for (scope, id) in tries.join_all().await {
            ids[scope].insert(id.unwrap());
        }
        assert_eq!(ids.each_ref().map(|ids| ids.len()), [1, 1], "{ids:?}");
        assert_eq!(
            opened(&installation).await,
            (2 * round, 2 * round),
            "each scope has one proposal and one audit entry for it"
        );
        for id in ids.into_iter().flatten() {
            installation.control.discard(&installation.ada, id, 0).await.unwrap();
        }
    }
}

#[tokio::test]
async fn open_never_returns_a_closed_proposal() {
    let installation = Installation::new().await;
    let (web, node) = (installation.id("web").await, installation.node(1).await);
    for on_node in [false, true] {
        let open = async |by| match on_node {
            true => installation.control.propose_on_node(by, node).await.unwrap(),
            false => installation.control.propose(by, web).await.unwrap(),
        };
        let before = open(&installation.ada).await;
        let mut transaction = installation.database.owner().begin().await.unwrap();
        assert!(store::proposals::discard_proposal(&mut transaction, before, 0).await.unwrap());
        let between = async {
            installation.has_lock_waiter().await;
            transaction.commit().await.unwrap();
        };
        let (after, ()) = tokio::join!(open(&installation.bo), between);
        assert_ne!(after, before);
        assert_eq!(open(&installation.cy).await, after);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn open_succeeds_during_parallel_discards() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..6 {
        let control = installation.control.clone();
        let by = [&installation.ada, &installation.bo, &installation.cy][n % 3].clone();
        tries.spawn(async move {
            for _ in 0..20 {
                let id = control.propose(&by, web).await.unwrap();
                // Another task may have been faster; the proposal is closed in either case.
                if let Err(late) = control.discard(&by, id, 0).await {
                    assert_eq!(late.code, "version", "{late:?}");
                }
            }
        });
    }
    tries.join_all().await;
    let (proposals, reported) = opened(&installation).await;
    assert_eq!(proposals, reported);
}
