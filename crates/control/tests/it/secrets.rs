//! Secrets in reviews: each one is named, counts as a risk, and is compared with the secrets that
//! workers have.

use engine::blueprint::secret_uses::SecretUseChange;
use engine::data::secret::{Descriptor, KnownSecret, SecretRef};
use engine::gate::{Policy, Risk};
use engine::lint::LintCheck;
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{Installation, role};

async fn uses(installation: &Installation, version: i64) -> Edit {
    let data = json!({"db": {"password": {"$secret": "db/password", "version": version}}});
    Edit::SetRoleData(edit::SetRoleData {
        deployment: installation.id("web").await,
        role: role("app"),
        data,
    })
}

#[tokio::test]
async fn review_names_secrets_and_policy_counts_them() {
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Secret, 2)].into(),
        ..Policy::default()
    })
    .await;
    installation.bound("web", 1, "app").await;
    let id =
        installation.submit(&installation.ada, "web", vec![uses(&installation, 1).await]).await;
    let review = installation.control.review(&installation.ada, id).await.unwrap();
    assert!(review.risks.contains(&Risk::Secret) && review.gate.needed == 2, "{:?}", review.risks);
    let named = "Uses secret db/password version 1 in app of web on n1.";
    assert!(
        review.summary[..review.always_shown].contains(&named.to_owned()),
        "{:?}",
        review.summary
    );
    let (stored,): (Vec<String>,) = sqlx::query_as("SELECT risk FROM review WHERE id = $1")
        .bind(id.0)
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert!(stored.contains(&"secret".to_owned()), "{stored:?}");
    installation.approve(&installation.bo, id).await;
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap_err().code, "not_approved");
    installation.approve(&installation.cy, id).await;
    installation.commit(&installation.ada, id).await.unwrap();

    let id =
        installation.submit(&installation.ada, "web", vec![uses(&installation, 2).await]).await;
    let review = installation.control.review(&installation.ada, id).await.unwrap();
    let [change] = review.impact.secrets.as_slice() else { panic!("{:?}", review.impact.secrets) };
    let secret = |version| SecretRef { name: "db/password".into(), version };
    assert_eq!(
        (change.change, &change.secret, &change.was),
        (SecretUseChange::Replaced, &secret(2), &Some(secret(1)))
    );
    assert_eq!((change.nodes.count, change.nodes.first[0].short()), (1, "n1"));
    let shown = &review.difference.deployments[0].roles[0].data[0];
    assert_eq!(shown.new, Some(json!("(secret db/password version 2)")), "{shown:?}");
}

#[tokio::test]
async fn node_key_in_data_is_not_submitted() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let worker = installation.worker().await;
    let report = async |descriptor| {
        let known = KnownSecret { name: "db/password".into(), versions: [1].into(), descriptor };
        assert!(
            store::workers::report_secrets(installation.database.worker(), worker, &[known])
                .await
                .unwrap()
        );
    };
    report(Some(Descriptor::NodeKey {})).await;
    let (id, version) =
        installation.propose(&installation.ada, "web", vec![uses(&installation, 1).await]).await;
    let refused = installation
        .control
        .submit(&installation.ada, id, version, "a key".into())
        .await
        .unwrap_err();
    assert!(
        refused.errors[0]
            .detail
            .starts_with("node-key-as-data: The role uses secret db/password version 1"),
        "{refused:?}"
    );
    report(Some(Descriptor::Data { deployments: ["edge".to_owned()].into() })).await;
    let id = installation
        .control
        .submit(&installation.ada, id, version, "a secret".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.ada, id).await.unwrap();
    let found = review
        .checks
        .iter()
        .find(|finding| finding.check == LintCheck::UnusableSecret)
        .expect("a warning");
    assert!(found.problem.contains("which deployment web may not use"), "{found}");
}
