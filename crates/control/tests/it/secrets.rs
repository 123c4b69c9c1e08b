//! Secrets in reviews: each one is named, counts as a risk, and is compared with the secrets that
//! workers have.

use engine::blueprint::secret_uses::SecretUseChange;
use engine::data::secret::{Descriptor, KnownSecret, SecretRef};
use engine::gate::{Policy, Risk};
use engine::lint::Check;
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::house::{House, role};

async fn uses(house: &House, version: i64) -> Edit {
    let data = json!({"db": {"password": {"$secret": "db/password", "version": version}}});
    Edit::SetRoleData(edit::SetRoleData {
        deployment: house.id("web").await,
        role: role("app"),
        data,
    })
}

#[tokio::test]
async fn review_names_secrets_and_policy_counts_them() {
    let house = House::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Secret, 2)].into(),
        ..Policy::default()
    })
    .await;
    house.bound("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![uses(&house, 1).await]).await;
    let review = house.control.review(&house.ada, id).await.unwrap();
    assert!(review.risks.contains(&Risk::Secret) && review.gate.needed == 2, "{:?}", review.risks);
    let named = "Uses secret db/password version 1 in app of web on n1.";
    assert!(
        review.summary[..review.always_shown].contains(&named.to_owned()),
        "{:?}",
        review.summary
    );
    let (stored,): (Vec<String>,) = sqlx::query_as("SELECT risk FROM review WHERE id = $1")
        .bind(id.0)
        .fetch_one(house.database.owner())
        .await
        .unwrap();
    assert!(stored.contains(&"secret".to_owned()), "{stored:?}");
    house.approve(&house.bo, id).await;
    assert_eq!(house.commit(&house.ada, id).await.unwrap_err().code, "not_approved");
    house.approve(&house.cy, id).await;
    house.commit(&house.ada, id).await.unwrap();

    let id = house.submit(&house.ada, "web", vec![uses(&house, 2).await]).await;
    let review = house.control.review(&house.ada, id).await.unwrap();
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
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    let worker = house.worker().await;
    let report = async |descriptor| {
        let known = KnownSecret { name: "db/password".into(), versions: [1].into(), descriptor };
        assert!(
            store::workers::report_secrets(house.database.worker(), worker, &[known])
                .await
                .unwrap()
        );
    };
    report(Some(Descriptor::NodeKey {})).await;
    let (id, version) = house.propose(&house.ada, "web", vec![uses(&house, 1).await]).await;
    let refused = house.control.submit(&house.ada, id, version, "a key".into()).await.unwrap_err();
    assert!(
        refused.errors[0]
            .detail
            .starts_with("node-key-as-data: The role uses secret db/password version 1"),
        "{refused:?}"
    );
    report(Some(Descriptor::Data { deployments: ["edge".to_owned()].into() })).await;
    let id = house.control.submit(&house.ada, id, version, "a secret".into()).await.unwrap();
    let review = house.control.review(&house.ada, id).await.unwrap();
    let found = review
        .checks
        .iter()
        .find(|finding| finding.check == Check::UnusableSecret)
        .expect("a warning");
    assert!(found.what.contains("which deployment web may not use"), "{found}");
}
