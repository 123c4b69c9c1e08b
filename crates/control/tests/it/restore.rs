//! Restoring a deployment to an earlier target with a proposal.

use api::proposals::NotRestored;
use engine::ids::BlueprintNumber;
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::house::{House, role};

async fn committed(house: &House, edits: Vec<Edit>) -> BlueprintNumber {
    let id = house.submit(&house.ada, "web", edits).await;
    house.approve(&house.bo, id).await;
    house.commit(&house.ada, id).await.unwrap()
}

#[tokio::test]
async fn deployment_is_restored_by_reviewed_proposal() {
    let house = House::new().await;
    let web = house.id("web").await;
    let then = house.bound("web", 1, "app").await;
    let data = |port: u16| {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: web,
            role: role("app"),
            data: json!({"app": {"port": port}}),
        })
    };
    let unbind = Edit::Unbind(edit::Unbind {
        node: house.node(1).await,
        noderole: engine::cluster::NoderoleKey::first(role("app")),
        with_dependents: false,
    });
    committed(&house, vec![data(1), unbind, house.bind("web", 2, "wipe").await]).await;
    house.bound("edge", 3, "app").await;

    let restored = house.control.restore(&house.ada, "web", then, false).await.unwrap();
    assert!(restored.missing.is_empty() && restored.edits >= 3, "{restored:?}");
    let proposal = house.board("web").await.proposal.unwrap();
    assert_eq!(
        (proposal.id, proposal.title.as_str()),
        (restored.proposal, "Restore web as of blueprint 2")
    );
    let again = house.control.restore(&house.ada, "web", then, false).await.unwrap_err();
    assert_eq!(again.code, "proposal_open");

    let title = "as it was".to_owned();
    let id =
        house.control.submit(&house.ada, restored.proposal, restored.version, title).await.unwrap();
    assert_eq!(
        house.commit(&house.ada, id).await.unwrap_err().code,
        "not_approved",
        "a second person reviews it"
    );
    house.approve(&house.bo, id).await;
    let back = house.commit(&house.ada, id).await.unwrap();
    let point = api::blueprints::Point::Number;
    let left =
        house.control.compare(&house.cy, point(then), point(back), Some("web")).await.unwrap();
    // The node that joined later stays, without noderoles of the deployment.
    let text = left.text();
    assert_eq!(left.difference.deployments, vec![], "{text}");
    assert!(
        left.difference.nodes.iter().all(|node| node.noderoles.is_empty() && node.moved.is_some()),
        "{text}"
    );
    let nothing = house.control.restore(&house.ada, "web", then, false).await.unwrap_err();
    assert_eq!(nothing.code, "nothing_to_restore");
}

#[tokio::test]
async fn partial_restore_leaves_out_named_parts() {
    let house = House::new().await;
    let then = house.bound("web", 1, "app").await;
    let web = house.id("web").await;
    let data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 1}}),
    });
    let gone =
        Edit::ExpungeNode(edit::ExpungeNode { node: house.node(1).await, reason: "burnt".into() });
    committed(&house, vec![data, gone]).await;

    let traces = house.traces().await;
    let refused = house.control.restore(&house.ada, "web", then, false).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "not_restorable"));
    let named: Vec<&str> = refused.errors.iter().map(|error| error.at.as_str()).collect();
    assert_eq!(named, ["node n1", "app on n1", "base on n1", "runtime on n1"]);
    assert!(refused.errors[0].detail.contains("The node was expunged since"), "{refused:?}");
    assert_eq!(house.traces().await, traces, "nothing is opened");

    let restored = house.control.restore(&house.ada, "web", then, true).await.unwrap();
    assert_eq!((restored.edits, restored.missing.len()), (1, 4), "the data: {restored:?}");
    // The proposal and its review show the left-out parts, for as long as the review exists.
    let left_out =
        Some(NotRestored { blueprint: then, missing: restored.missing.clone(), more: 0 });
    let (_, proposal) = house.control.proposal(&house.cy, restored.proposal).await.unwrap();
    assert_eq!(
        (&proposal.not_restored, &house.board("web").await.proposal.unwrap().not_restored),
        (&left_out, &left_out)
    );
    let id = house
        .control
        .submit(&house.ada, restored.proposal, restored.version, "back".into())
        .await
        .unwrap();
    assert_eq!(house.control.review(&house.bo, id).await.unwrap().not_restored, left_out);
    // Without its edits the proposal restores nothing, so nothing is left out.
    let version =
        house.control.undo(&house.ada, restored.proposal, restored.version).await.unwrap();
    assert_eq!(house.board("web").await.proposal.unwrap().not_restored, None);
    let other = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 2}}),
    });
    let version =
        house.control.edit(&house.ada, restored.proposal, version, vec![other]).await.unwrap();
    let next =
        house.control.submit(&house.ada, restored.proposal, version, "other".into()).await.unwrap();
    let reviewed = async |id| house.control.review(&house.bo, id).await.unwrap().not_restored;
    assert_eq!((reviewed(next).await, reviewed(id).await), (None, left_out));
    for (name, target, code) in
        [("system", 2, "system"), ("nowhere", 2, "not_found"), ("edge", 99, "not_found")]
    {
        let refused = house
            .control
            .restore(&house.ada, name, BlueprintNumber(target), false)
            .await
            .unwrap_err();
        assert_eq!(refused.code, code, "{name}");
    }
}
