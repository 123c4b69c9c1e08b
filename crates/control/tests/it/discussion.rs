//! Discussions on single changes, and the differences since the last view.

use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use engine::ids::CommentId;
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{Installation, role};

#[tokio::test]
async fn open_thread_blocks_gate_until_resolved() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    let anchor: Anchor =
        format!("node/{}/noderole/app", installation.node(1).await).parse().unwrap();
    let thread = installation
        .control
        .open_thread(&installation.cy, id, anchor.clone(), "Why n1?".into())
        .await
        .unwrap();
    installation
        .control
        .reply(&installation.ada, thread, "It has the disks.".into())
        .await
        .unwrap();

    let seen = installation.control.discussion(&installation.ada, id).await.unwrap();
    let first = &seen.threads[0];
    let lines: Vec<_> =
        first.comments.iter().map(|c| (c.person.as_str(), c.body.as_str())).collect();
    assert_eq!(lines, [("cy", "Why n1?"), ("ada", "It has the disks.")]);
    assert_eq!(
        (seen.open, first.anchor.clone(), first.current, first.subject.as_str()),
        (1, anchor, true, "app on n1")
    );
    assert!(!first.may_resolve.is_allowed(), "an author cannot resolve the thread");
    let refused =
        installation.control.resolve_thread(&installation.ada, thread, true).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (403, "not_yours"));
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!(
        (refused.code.as_str(), refused.detail.contains("by cy")),
        ("open_threads", true),
        "{}",
        refused.detail
    );

    installation.control.resolve_thread(&installation.cy, thread, true).await.unwrap();
    installation.control.resolve_thread(&installation.ada, thread, false).await.unwrap();
    assert_eq!(
        installation.commit(&installation.ada, id).await.unwrap_err().code,
        "open_threads",
        "the reopened thread blocks the commit"
    );
    installation.control.resolve_thread(&installation.bo, thread, true).await.unwrap();
    let resolved = installation.control.discussion(&installation.ada, id).await.unwrap().threads[0]
        .resolved
        .clone();
    assert_eq!(resolved.map(|resolution| resolution.by).as_deref(), Some("bo"));
    installation.commit(&installation.ada, id).await.unwrap();
    let closed = installation
        .control
        .open_thread(&installation.bo, id, Anchor::Whole, "late".into())
        .await
        .unwrap_err();
    assert_eq!(closed.code, "closed");
}

#[tokio::test]
async fn thread_stays_open_after_resubmission() {
    let installation = Installation::new().await;
    let edits =
        vec![installation.bind("web", 1, "app").await, installation.bind("web", 2, "app").await];
    let (proposal, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let first = installation
        .control
        .submit(&installation.ada, proposal, version, "both".into())
        .await
        .unwrap();
    let on_n2: Anchor = format!("node/{}", installation.node(2).await).parse().unwrap();
    let thread = installation
        .control
        .open_thread(&installation.bo, first, on_n2, "n2 is full".into())
        .await
        .unwrap();
    let version = installation.control.undo(&installation.ada, proposal, version).await.unwrap();
    let second = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, second).await;
    assert_eq!(
        installation.commit(&installation.ada, second).await.unwrap_err().code,
        "open_threads"
    );
    let seen = installation.control.discussion(&installation.bo, second).await.unwrap();
    assert_eq!(
        (seen.threads[0].id, seen.threads[0].current),
        (thread, false),
        "the commented change is no longer part of the review"
    );
    installation.control.resolve_thread(&installation.bo, thread, true).await.unwrap();
    installation.commit(&installation.ada, second).await.unwrap();
}

#[tokio::test]
async fn database_enforces_discussion_rules() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let thread = installation
        .control
        .open_thread(&installation.bo, id, Anchor::Whole, "wait".into())
        .await
        .unwrap();
    let ada = installation.ada.person.0;
    let state = |refused: Result<sqlx::postgres::PgQueryResult, sqlx::Error>| {
        let refused = refused.unwrap_err();
        refused
            .as_database_error()
            .and_then(|e| e.code())
            .map(|c| c.into_owned())
            .unwrap_or_default()
    };
    let resolve = "UPDATE comment SET resolved_by = $1, resolved_at = now()";
    assert_eq!(
        state(sqlx::query(resolve).bind(ada).execute(installation.database.app()).await),
        "GY018",
        "an author cannot resolve the thread"
    );
    let foreign =
        "INSERT INTO comment (review_id, thread_id, person_id, body) VALUES ($1, 77, $2, 'x')";
    let foreign =
        sqlx::query(foreign).bind(id.0).bind(ada).execute(installation.database.app()).await;
    assert!(state(foreign).starts_with("GY018"), "a reply needs a thread");
    let rewrite = sqlx::query("UPDATE comment SET body = 'fine'")
        .execute(installation.database.owner())
        .await;
    assert_eq!(state(rewrite), "GY001");
    assert_eq!(
        state(sqlx::query("DELETE FROM comment").execute(installation.database.owner()).await),
        "GY001"
    );
    installation.people.disable(None, installation.bo.person).await.unwrap();
    let silent = "INSERT INTO comment (review_id, person_id, body) VALUES ($1, $2, 'x')";
    let silent = sqlx::query(silent)
        .bind(id.0)
        .bind(installation.bo.person.0)
        .execute(installation.database.app())
        .await;
    assert_eq!(state(silent), "GY018", "a disabled person cannot comment");
    installation.control.resolve_thread(&installation.cy, thread, true).await.unwrap();
}

#[tokio::test]
async fn thread_requires_change_text_and_permission() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let elsewhere: Anchor = format!("node/{}", installation.node(2).await).parse().unwrap();
    let before: i64 = count(&installation).await;
    for (anchor, body) in [(elsewhere, "n2?"), (Anchor::Whole, " "), (Anchor::Whole, "a\u{202e}b")]
    {
        assert_eq!(
            installation
                .control
                .open_thread(&installation.bo, id, anchor, body.into())
                .await
                .unwrap_err()
                .status,
            400
        );
    }
    assert_eq!(
        installation
            .control
            .reply(&installation.bo, CommentId(9), "x".into())
            .await
            .unwrap_err()
            .status,
        404
    );
    assert_eq!(count(&installation).await, before);
}

async fn count(installation: &Installation) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM comment")
        .fetch_one(installation.database.owner())
        .await
        .unwrap()
}

#[tokio::test]
async fn differences_since_last_view_are_shown() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let (proposal, version) = installation
        .propose(&installation.ada, "web", vec![installation.bind("web", 1, "app").await])
        .await;
    let first = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    assert_eq!(
        installation.control.changes_since_view(&installation.bo, first).await.unwrap().before,
        None
    );
    installation.control.record_view(&installation.bo, first).await.unwrap();

    let data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 9}}),
    });
    let version =
        installation.control.edit(&installation.ada, proposal, version, vec![data]).await.unwrap();
    let second = installation
        .control
        .submit(&installation.ada, proposal, version, "two".into())
        .await
        .unwrap();
    for _ in 0..2 {
        let since =
            installation.control.changes_since_view(&installation.bo, second).await.unwrap();
        assert_eq!((since.before, since.same_effect), (Some(first), false));
        assert!(since.difference.nodes.is_empty(), "n1 is unchanged since the first review");
        assert_eq!(since.difference.deployments[0].roles[0].data[0].path, "/app");
        installation.control.record_view(&installation.bo, second).await.unwrap();
    }
    installation.control.record_view(&installation.bo, first).await.unwrap();
    assert_eq!(
        installation.control.changes_since_view(&installation.bo, second).await.unwrap().before,
        Some(first),
        "viewing an older review does not change the comparison"
    );
    assert_eq!(
        installation.control.changes_since_view(&installation.cy, second).await.unwrap().before,
        None,
        "each person has their own last view"
    );
}

#[tokio::test]
async fn repeated_verdict_is_stored_once() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    for _ in 0..3 {
        installation.approve(&installation.bo, id).await;
    }
    installation
        .control
        .give_verdict(&installation.bo, id, VerdictKind::Reject, "no".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    assert_eq!(
        installation.control.review(&installation.bo, id).await.unwrap().verdicts.len(),
        3,
        "approval, objection and approval are stored"
    );
}
