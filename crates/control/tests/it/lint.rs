//! Lint: the review shows its findings, and errors block the gate.

use engine::lint::{Check, Level};
use engine::plan::Edit;
use engine::plan::report::Stage;
use serde_json::{Value, json};

use crate::house::{House, role};

/// Switches the jig directly in the database. A reviewed switch would also move the base, and that
/// alone blocks the gate.
pub async fn jig(house: &House, active: bool) {
    let mut transaction = house.database.owner().begin().await.unwrap();
    sqlx::query("ALTER TABLE jig DISABLE TRIGGER USER").execute(&mut *transaction).await.unwrap();
    let done = sqlx::query("UPDATE jig SET active = $1 WHERE name = 'noop'").bind(active);
    assert_eq!(done.execute(&mut *transaction).await.unwrap().rows_affected(), 1);
    sqlx::query("ALTER TABLE jig ENABLE TRIGGER USER").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
}

async fn data(house: &House, data: Value) -> Edit {
    Edit::SetRoleData { deployment: house.id("web").await, role: role("app"), data }
}

#[tokio::test]
async fn lint_error_after_approval_blocks_commit() {
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    let edit = house.bind("web", 2, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    house.approve(&house.bo, id).await;
    jig(&house, false).await;
    let before = house.traces().await;
    let refused = house.commit(&house.ada, id).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "lint"));
    assert!(refused.detail.contains("n2.house.example.com"), "{}", refused.detail);
    assert!(refused.detail.contains("Switch jig noop on first"), "{}", refused.detail);
    assert_eq!(house.traces().await, before);
    let (audited,): (i64,) =
        sqlx::query_as("SELECT count(*) FROM audit WHERE action = 'review.commit.refused'")
            .fetch_one(house.database.owner())
            .await
            .unwrap();
    assert_eq!(audited, 1);
    jig(&house, true).await;
    house.commit(&house.ada, id).await.unwrap();
}

#[tokio::test]
async fn lint_error_blocks_submission() {
    let house = House::new().await;
    let key = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----";
    let (id, version) =
        house.propose(&house.ada, "web", vec![data(&house, json!({"tls": key})).await]).await;
    let before = house.traces().await;
    let refused = house.control.submit(&house.ada, id, version, "a key".into()).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "lint"));
    assert!(
        refused.errors[0].detail.starts_with("plain-secret: Value /tls contains a private key"),
        "{refused:?}"
    );
    assert!(
        !format!("{refused:?}").contains("MIIE"),
        "what lint says is no second place where it stands"
    );
    assert_eq!(house.traces().await, before);
    // The planning report ends with the lint stage.
    let report = house.control.report(&house.ada, id).await.unwrap();
    let last = report.stages.last().unwrap();
    assert_eq!((last.stage, last.did[0].what.as_str()), (Stage::Lint, "1 error and 0 warnings"));
    assert!(
        last.blocked_by[0].what.starts_with("app in web: Value /tls contains a private key"),
        "{last:?}"
    );
}

#[tokio::test]
async fn warnings_and_consequences_are_shown_in_the_review() {
    let house = House::new().await;
    house.bound("web", 1, "app").await;
    house.bound("web", 2, "app").await;
    let id = house
        .submit(&house.ada, "web", vec![data(&house, json!({"admin": {"password": "x"}})).await])
        .await;
    let review = house.control.review(&house.bo, id).await.unwrap();
    let checks: Vec<Check> = review.checks.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, [Check::SecretByName, Check::AllAtOnce]);
    assert!(review.checks.iter().all(|finding| finding.level == Level::Warning));
    assert!(review.gate.rules.iter().any(|rule| rule.text == "Lint found no errors" && rule.holds));
    assert_eq!((review.consequences.restarts.count, review.consequences.starts.count), (2, 0));
    house.approve(&house.bo, id).await;
    house.commit(&house.ada, id).await.unwrap();
}
