//! Proposals on *system*: edits that only they can contain, and their base.

use api::deployments::DeploymentsQuery;
use engine::cluster::NoderoleKey;
use engine::ids::{DeploymentId, DeploymentName, NodeId, ReviewId};
use engine::plan::{Edit, edit};
use uuid::Uuid;

use crate::installation::{Installation, role};

async fn in_deployment(installation: &Installation, node: NodeId) -> String {
    let (name,): (String,) = sqlx::query_as(
        "SELECT d.name FROM node n JOIN deployment d ON d.id = n.deployment_id WHERE n.id = $1",
    )
    .bind(node.0)
    .fetch_one(installation.database.owner())
    .await
    .unwrap();
    name
}

async fn done(installation: &Installation, edits: Vec<Edit>) {
    let review = installation.submit(&installation.ada, "system", edits).await;
    installation.approve(&installation.bo, review).await;
    installation.commit(&installation.ada, review).await.unwrap();
}

fn deployment(n: u128, name: &str, parent: DeploymentId) -> Edit {
    Edit::CreateDeployment(edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(n)),
        phantom: NodeId(Uuid::from_u128(n + 1)),
        name: DeploymentName::parse(name).unwrap(),
        parent,
    })
}

#[tokio::test]
async fn system_proposal_changes_top_deployments_and_returns_nodes() {
    let installation = Installation::new().await;
    let (system, n1) = (installation.id("system").await, installation.node(1).await);
    installation.bound("web", 1, "lonely").await;
    done(&installation, vec![deployment(0xa0, "storage", system)]).await;
    assert!(installation.board("storage").await.may_propose.is_allowed());

    let taken_off = Edit::Unbind(edit::Unbind {
        node: n1,
        noderole: NoderoleKey::first(role("lonely")),
        with_dependents: false,
    });
    done(
        &installation,
        vec![taken_off, Edit::MoveNode(edit::MoveNode { node: n1, deployment: system })],
    )
    .await;
    assert_eq!(in_deployment(&installation, n1).await, "system");

    done(
        &installation,
        vec![Edit::RemoveDeployment(edit::RemoveDeployment {
            deployment: DeploymentId(Uuid::from_u128(0xa0)),
        })],
    )
    .await;
    let left = installation
        .control
        .find_deployments(&installation.ada, &DeploymentsQuery::default())
        .await
        .unwrap();
    let left: Vec<String> =
        left.deployments.iter().map(|deployment| deployment.name.to_string()).collect();
    assert!(!left.contains(&"storage".to_owned()), "{left:?}");

    let proposal = installation.control.propose(&installation.ada, system).await.unwrap();
    let itself = Edit::RemoveDeployment(edit::RemoveDeployment { deployment: system });
    assert_eq!(
        installation
            .control
            .edit(&installation.ada, proposal, 0, vec![itself])
            .await
            .unwrap_err()
            .status,
        422
    );
}

#[tokio::test]
async fn system_review_is_replanned_after_every_commit() {
    let installation = Installation::new().await;
    let system = installation.id("system").await;
    let review = installation
        .submit(&installation.ada, "system", vec![deployment(0xa0, "storage", system)])
        .await;
    installation.approve(&installation.bo, review).await;
    installation.bound("web", 1, "lonely").await;
    let refused = installation.commit(&installation.ada, review).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "not_newest"), "{refused:?}");
    let sql = "SELECT after_id FROM replan WHERE before_id = $1";
    let replanned: Option<i64> = sqlx::query_scalar(sql)
        .bind(review.0)
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    let replanned = ReviewId(replanned.unwrap());
    installation.approve(&installation.bo, replanned).await;
    installation.commit(&installation.ada, replanned).await.unwrap();
    assert!(installation.board("storage").await.may_propose.is_allowed());
}
