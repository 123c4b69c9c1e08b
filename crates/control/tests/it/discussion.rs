//! Discussions on single changes, and the differences since the last view.

use engine::blueprint::Anchor;
use engine::gate::VerdictKind;
use engine::ids::CommentId;
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::house::{House, role};

#[tokio::test]
async fn open_thread_blocks_gate_until_resolved() {
    let house = House::new().await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    house.approve(&house.bo, id).await;
    let anchor: Anchor = format!("node/{}/noderole/app", house.node(1).await).parse().unwrap();
    let thread =
        house.control.open_thread(&house.cy, id, anchor.clone(), "Why n1?".into()).await.unwrap();
    house.control.reply(&house.ada, thread, "It has the disks.".into()).await.unwrap();

    let seen = house.control.discussion(&house.ada, id).await.unwrap();
    let first = &seen.threads[0];
    let said: Vec<_> =
        first.comments.iter().map(|c| (c.person.as_str(), c.body.as_str())).collect();
    assert_eq!(said, [("cy", "Why n1?"), ("ada", "It has the disks.")]);
    assert_eq!(
        (seen.open, first.anchor.clone(), first.current, first.about.as_str()),
        (1, anchor, true, "app on n1")
    );
    assert!(first.may_resolve.is_err(), "an author does not wave a question away");
    let refused = house.control.resolve_thread(&house.ada, thread, true).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (403, "not_yours"));
    let refused = house.commit(&house.ada, id).await.unwrap_err();
    assert_eq!(
        (refused.code.as_str(), refused.detail.contains("by cy")),
        ("open_threads", true),
        "{}",
        refused.detail
    );

    house.control.resolve_thread(&house.cy, thread, true).await.unwrap();
    house.control.resolve_thread(&house.ada, thread, false).await.unwrap();
    assert_eq!(
        house.commit(&house.ada, id).await.unwrap_err().code,
        "open_threads",
        "opened again"
    );
    house.control.resolve_thread(&house.bo, thread, true).await.unwrap();
    let resolved =
        house.control.discussion(&house.ada, id).await.unwrap().threads[0].resolved.clone();
    assert_eq!(resolved.map(|(by, _)| by).as_deref(), Some("bo"));
    house.commit(&house.ada, id).await.unwrap();
    let closed =
        house.control.open_thread(&house.bo, id, Anchor::Whole, "late".into()).await.unwrap_err();
    assert_eq!(closed.code, "closed");
}

#[tokio::test]
async fn thread_stays_open_after_resubmission() {
    let house = House::new().await;
    let edits = vec![house.bind("web", 1, "app").await, house.bind("web", 2, "app").await];
    let (proposal, version) = house.propose(&house.ada, "web", edits).await;
    let first = house.control.submit(&house.ada, proposal, version, "both".into()).await.unwrap();
    let on_n2: Anchor = format!("node/{}", house.node(2).await).parse().unwrap();
    let thread =
        house.control.open_thread(&house.bo, first, on_n2, "n2 is full".into()).await.unwrap();
    let version = house.control.undo(&house.ada, proposal, version).await.unwrap();
    let second = house.control.submit(&house.ada, proposal, version, "one".into()).await.unwrap();
    house.approve(&house.bo, second).await;
    assert_eq!(house.commit(&house.ada, second).await.unwrap_err().code, "open_threads");
    let seen = house.control.discussion(&house.bo, second).await.unwrap();
    assert_eq!(
        (seen.threads[0].id, seen.threads[0].current),
        (thread, false),
        "what it spoke of is gone"
    );
    house.control.resolve_thread(&house.bo, thread, true).await.unwrap();
    house.commit(&house.ada, second).await.unwrap();
}

#[tokio::test]
async fn database_enforces_discussion_rules() {
    let house = House::new().await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    let thread =
        house.control.open_thread(&house.bo, id, Anchor::Whole, "wait".into()).await.unwrap();
    let ada = house.ada.person.0;
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
        state(sqlx::query(resolve).bind(ada).execute(house.database.app()).await),
        "GY018",
        "by an author"
    );
    let foreign =
        "INSERT INTO comment (review_id, thread_id, person_id, body) VALUES ($1, 77, $2, 'x')";
    let foreign = sqlx::query(foreign).bind(id.0).bind(ada).execute(house.database.app()).await;
    assert!(state(foreign).starts_with("GY018"), "a reply to nothing");
    let rewrite =
        sqlx::query("UPDATE comment SET body = 'fine'").execute(house.database.owner()).await;
    assert_eq!(state(rewrite), "GY001");
    assert_eq!(
        state(sqlx::query("DELETE FROM comment").execute(house.database.owner()).await),
        "GY001"
    );
    house.people.disable(None, house.bo.person).await.unwrap();
    let silent = "INSERT INTO comment (review_id, person_id, body) VALUES ($1, $2, 'x')";
    let silent =
        sqlx::query(silent).bind(id.0).bind(house.bo.person.0).execute(house.database.app()).await;
    assert_eq!(state(silent), "GY018", "who is disabled says nothing");
    house.control.resolve_thread(&house.cy, thread, true).await.unwrap();
}

#[tokio::test]
async fn thread_requires_change_text_and_permission() {
    let house = House::new().await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    let elsewhere: Anchor = format!("node/{}", house.node(2).await).parse().unwrap();
    let before: i64 = count(&house).await;
    for (anchor, body) in [(elsewhere, "n2?"), (Anchor::Whole, " "), (Anchor::Whole, "a\u{202e}b")]
    {
        assert_eq!(
            house.control.open_thread(&house.bo, id, anchor, body.into()).await.unwrap_err().status,
            400
        );
    }
    assert_eq!(
        house.control.reply(&house.bo, CommentId(9), "x".into()).await.unwrap_err().status,
        404
    );
    assert_eq!(count(&house).await, before);
}

async fn count(house: &House) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM comment")
        .fetch_one(house.database.owner())
        .await
        .unwrap()
}

#[tokio::test]
async fn differences_since_last_view_are_shown() {
    let house = House::new().await;
    let web = house.id("web").await;
    let (proposal, version) =
        house.propose(&house.ada, "web", vec![house.bind("web", 1, "app").await]).await;
    let first = house.control.submit(&house.ada, proposal, version, "one".into()).await.unwrap();
    assert_eq!(house.control.changes_since_view(&house.bo, first).await.unwrap().before, None);
    house.control.record_view(&house.bo, first).await.unwrap();

    let data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 9}}),
    });
    let version = house.control.edit(&house.ada, proposal, version, vec![data]).await.unwrap();
    let second = house.control.submit(&house.ada, proposal, version, "two".into()).await.unwrap();
    for _ in 0..2 {
        let since = house.control.changes_since_view(&house.bo, second).await.unwrap();
        assert_eq!((since.before, since.same_effect), (Some(first), false));
        assert!(since.difference.nodes.is_empty(), "n1 is as it was in the first");
        assert_eq!(since.difference.deployments[0].roles[0].data[0].path, "/app");
        house.control.record_view(&house.bo, second).await.unwrap();
    }
    house.control.record_view(&house.bo, first).await.unwrap();
    assert_eq!(
        house.control.changes_since_view(&house.bo, second).await.unwrap().before,
        Some(first),
        "looking back is no step on"
    );
    assert_eq!(
        house.control.changes_since_view(&house.cy, second).await.unwrap().before,
        None,
        "each for themselves"
    );
}

#[tokio::test]
async fn repeated_verdict_is_stored_once() {
    let house = House::new().await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    for _ in 0..3 {
        house.approve(&house.bo, id).await;
    }
    house.control.judge(&house.bo, id, VerdictKind::Reject, "no".into()).await.unwrap();
    house.approve(&house.bo, id).await;
    assert_eq!(
        house.control.review(&house.bo, id).await.unwrap().verdicts.len(),
        3,
        "yes, no, yes"
    );
}
