//! Viewed marks of changes: per person, valid while the change stays the same.

use engine::blueprint::Anchor;
use engine::gate::{Policy, Risk};
use engine::plan::{Edit, edit};
use serde_json::{Value, json};

use crate::installation::{Installation, role};

async fn data(installation: &Installation, deployment: &str, name: &str, data: Value) -> Edit {
    Edit::SetRoleData(edit::SetRoleData {
        deployment: installation.id(deployment).await,
        role: role(name),
        data,
    })
}

#[tokio::test]
async fn unchanged_parts_stay_viewed_after_resubmission() {
    let installation = Installation::new().await;
    let (one, two) =
        (installation.bind("web", 1, "app").await, installation.bind("web", 2, "app").await);
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![one, two]).await;
    let first = installation
        .control
        .submit(&installation.ada, proposal, version, "two".into())
        .await
        .unwrap();
    let opened = installation.control.viewed_changes(&installation.bo, first).await.unwrap();
    assert_eq!((opened.all, opened.viewed.len()), (3, 0), "{opened:?}");
    let nodes =
        [Anchor::Node(installation.node(1).await), Anchor::Node(installation.node(2).await)];
    for _ in 0..2 {
        let now = installation
            .control
            .mark_viewed(&installation.bo, first, nodes.to_vec())
            .await
            .unwrap();
        assert_eq!(
            (now.viewed.len(), now.outdated.len()),
            (2, 0),
            "marking a document twice has no effect"
        );
    }
    assert!(
        installation
            .control
            .viewed_changes(&installation.cy, first)
            .await
            .unwrap()
            .viewed
            .is_empty(),
        "marks belong to one person"
    );

    let more = installation.bind("web", 1, "wipe").await;
    let version =
        installation.control.edit(&installation.ada, proposal, version, vec![more]).await.unwrap();
    let second = installation
        .control
        .submit(&installation.ada, proposal, version, "more".into())
        .await
        .unwrap();
    let now = installation.control.viewed_changes(&installation.bo, second).await.unwrap();
    assert!(now.viewed.contains(&nodes[1]) && !now.viewed.contains(&nodes[0]), "{now:?}");
    assert_eq!(now.outdated, [nodes[0].clone()].into());
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM viewed_change")
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert_eq!(rows, 2, "each document has one row");
}

#[tokio::test]
async fn only_changed_documents_can_be_viewed() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let id = installation
        .submit(
            &installation.ada,
            "web",
            vec![data(&installation, "web", "app", json!({"a": 1})).await],
        )
        .await;
    let web = Anchor::Deployment(installation.id("web").await);
    for odd in [
        Anchor::Whole,
        Anchor::Node(installation.node(4).await),
        Anchor::Role(installation.id("web").await, role("app"), None),
    ] {
        let refused = installation
            .control
            .mark_viewed(&installation.bo, id, vec![web.clone(), odd])
            .await
            .unwrap_err();
        assert!(refused.detail.contains("does not change"), "{refused:?}");
    }
    assert!(
        installation.control.viewed_changes(&installation.bo, id).await.unwrap().viewed.is_empty(),
        "a list with an invalid document marks nothing"
    );
    let now = installation.control.mark_viewed(&installation.bo, id, vec![web]).await.unwrap();
    assert_eq!(now.viewed.len(), now.all);
    let missing = installation
        .control
        .viewed_changes(&installation.bo, engine::ids::ReviewId(999))
        .await
        .unwrap_err();
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn policy_change_can_be_viewed_and_discussed() {
    let installation = Installation::new().await;
    let policy = |approvals| {
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy { approvals, by_risk: [(Risk::Removal, 3)].into(), ..Policy::default() },
        })
    };
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![policy(1)]).await;
    let first = installation
        .control
        .submit(&installation.ada, proposal, version, "three to remove".into())
        .await
        .unwrap();
    let whole = Anchor::Policy(None);
    let now = installation
        .control
        .mark_viewed(&installation.bo, first, vec![whole.clone()])
        .await
        .unwrap();
    assert_eq!((now.all, now.viewed), (1, [whole.clone()].into()));

    let removal = Anchor::Policy(Some("/by_risk/removal".into()));
    installation
        .control
        .open_thread(&installation.bo, first, removal, "Why three?".into())
        .await
        .unwrap();
    let stays = Anchor::Policy(Some("/approvals".into()));
    assert!(
        installation
            .control
            .open_thread(&installation.bo, first, stays, "What?".into())
            .await
            .is_err(),
        "a value that does not change cannot be discussed"
    );
    let view = installation.control.discussion(&installation.ada, first).await.unwrap();
    assert_eq!(
        (view.threads[0].subject.as_str(), view.threads[0].current),
        ("the policy, /by_risk/removal", true)
    );

    let version = installation
        .control
        .edit(&installation.ada, proposal, version, vec![policy(2)])
        .await
        .unwrap();
    let second = installation
        .control
        .submit(&installation.ada, proposal, version, "and two for all".into())
        .await
        .unwrap();
    let now = installation.control.viewed_changes(&installation.bo, second).await.unwrap();
    assert_eq!(
        (now.viewed.len(), now.outdated),
        (0, [whole].into()),
        "the other policy is not marked as viewed"
    );
}
