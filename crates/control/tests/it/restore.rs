//! Restoring a deployment to an earlier target with a proposal.

use api::proposals::NotRestored;
use engine::ids::BlueprintNumber;
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{Installation, role};

async fn committed(installation: &Installation, edits: Vec<Edit>) -> BlueprintNumber {
    let id = installation.submit(&installation.ada, "web", edits).await;
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap()
}

#[tokio::test]
async fn deployment_is_restored_by_reviewed_proposal() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let then = installation.bound("web", 1, "app").await;
    let data = |port: u16| {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: web,
            role: role("app"),
            data: json!({"app": {"port": port}}),
        })
    };
    let unbind = Edit::Unbind(edit::Unbind {
        node: installation.node(1).await,
        noderole: engine::cluster::NoderoleKey::first(role("app")),
        with_dependents: false,
    });
    committed(&installation, vec![data(1), unbind, installation.bind("web", 2, "wipe").await])
        .await;
    installation.bound("edge", 3, "app").await;

    let restored =
        installation.control.restore(&installation.ada, "web", then, false).await.unwrap();
    assert!(restored.missing.is_empty() && restored.edits >= 3, "{restored:?}");
    let proposal = installation.board("web").await.proposal.unwrap();
    assert_eq!(
        (proposal.id, proposal.title.as_str()),
        (restored.proposal, "Restore web as of blueprint 2")
    );
    let again =
        installation.control.restore(&installation.ada, "web", then, false).await.unwrap_err();
    assert_eq!(again.code, "proposal_open");

    let title = "as it was".to_owned();
    let id = installation
        .control
        .submit(&installation.ada, restored.proposal, restored.version, title)
        .await
        .unwrap();
    assert_eq!(
        installation.commit(&installation.ada, id).await.unwrap_err().code,
        "not_approved",
        "a second person must approve"
    );
    installation.approve(&installation.bo, id).await;
    let back = installation.commit(&installation.ada, id).await.unwrap();
    let point = api::blueprints::Point::Number;
    let left = installation
        .control
        .compare(&installation.cy, point(then), point(back), Some("web"))
        .await
        .unwrap();
    // The node that joined later stays, without noderoles of the deployment.
    let text = left.text();
    assert_eq!(left.difference.deployments, vec![], "{text}");
    assert!(
        left.difference.nodes.iter().all(|node| node.noderoles.is_empty() && node.moved.is_some()),
        "{text}"
    );
    let nothing =
        installation.control.restore(&installation.ada, "web", then, false).await.unwrap_err();
    assert_eq!(nothing.code, "nothing_to_restore");
}

#[tokio::test]
async fn partial_restore_leaves_out_named_parts() {
    let installation = Installation::new().await;
    let then = installation.bound("web", 1, "app").await;
    let web = installation.id("web").await;
    let data = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 1}}),
    });
    let gone = Edit::ExpungeNode(edit::ExpungeNode {
        node: installation.node(1).await,
        reason: "burnt".into(),
    });
    committed(&installation, vec![data, gone]).await;

    let traces = installation.traces().await;
    let refused =
        installation.control.restore(&installation.ada, "web", then, false).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "not_restorable"));
    let named: Vec<&str> = refused.errors.iter().map(|error| error.at.as_str()).collect();
    assert_eq!(named, ["node n1", "app on n1", "base on n1", "runtime on n1"]);
    assert!(refused.errors[0].detail.contains("The node was expunged since"), "{refused:?}");
    assert_eq!(installation.traces().await, traces, "no proposal is opened");

    let restored =
        installation.control.restore(&installation.ada, "web", then, true).await.unwrap();
    assert_eq!(
        (restored.edits, restored.missing.len()),
        (1, 4),
        "only the data is restored: {restored:?}"
    );
    // The proposal and its review show the left-out parts, for as long as the review exists.
    let not_restored =
        Some(NotRestored { blueprint: then, missing: restored.missing.clone(), more: 0 });
    let (_, proposal) =
        installation.control.proposal(&installation.cy, restored.proposal).await.unwrap();
    assert_eq!(
        (&proposal.not_restored, &installation.board("web").await.proposal.unwrap().not_restored),
        (&not_restored, &not_restored)
    );
    let id = installation
        .control
        .submit(&installation.ada, restored.proposal, restored.version, "back".into())
        .await
        .unwrap();
    assert_eq!(
        installation.control.review(&installation.bo, id).await.unwrap().not_restored,
        not_restored
    );
    // Without its edits the proposal restores nothing, so nothing is left out.
    let version = installation
        .control
        .undo(&installation.ada, restored.proposal, restored.version)
        .await
        .unwrap();
    assert_eq!(installation.board("web").await.proposal.unwrap().not_restored, None);
    let other = Edit::SetRoleData(edit::SetRoleData {
        deployment: web,
        role: role("app"),
        data: json!({"app": {"port": 2}}),
    });
    let version = installation
        .control
        .edit(&installation.ada, restored.proposal, version, vec![other])
        .await
        .unwrap();
    let next = installation
        .control
        .submit(&installation.ada, restored.proposal, version, "other".into())
        .await
        .unwrap();
    let reviewed =
        async |id| installation.control.review(&installation.bo, id).await.unwrap().not_restored;
    assert_eq!((reviewed(next).await, reviewed(id).await), (None, not_restored));
    for (name, target, code) in
        [("system", 2, "system"), ("nowhere", 2, "not_found"), ("edge", 99, "not_found")]
    {
        let refused = installation
            .control
            .restore(&installation.ada, name, BlueprintNumber(target), false)
            .await
            .unwrap_err();
        assert_eq!(refused.code, code, "{name}");
    }
}
