//! Lint: the review shows its findings, and errors block the gate.

use engine::lint::{Level, LintCheck};
use engine::plan::{Edit, edit};
use engine::report::Stage;
use serde_json::{Value, json};

use crate::installation::{Installation, role};

/// Switches the jig directly in the database. A reviewed switch would also move the base, and that
/// alone blocks the gate.
pub async fn jig(installation: &Installation, active: bool) {
    let mut transaction = installation.database.owner().begin().await.unwrap();
    sqlx::query("ALTER TABLE jig DISABLE TRIGGER USER").execute(&mut *transaction).await.unwrap();
    let done = sqlx::query("UPDATE jig SET active = $1 WHERE name = 'noop'").bind(active);
    assert_eq!(done.execute(&mut *transaction).await.unwrap().rows_affected(), 1);
    sqlx::query("ALTER TABLE jig ENABLE TRIGGER USER").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
}

async fn data(installation: &Installation, data: Value) -> Edit {
    Edit::SetRoleData(edit::SetRoleData {
        deployment: installation.id("web").await,
        role: role("app"),
        data,
    })
}

#[tokio::test]
async fn lint_error_after_approval_blocks_commit() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = installation.bind("web", 2, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    jig(&installation, false).await;
    let before = installation.traces().await;
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "lint"));
    assert!(refused.detail.contains("n2.house.example.com"), "{}", refused.detail);
    assert!(refused.detail.contains("Turn jig noop on first"), "{}", refused.detail);
    assert_eq!(installation.traces().await, before);
    let (audited,): (i64,) =
        sqlx::query_as("SELECT count(*) FROM audit WHERE action = 'review.commit.refused'")
            .fetch_one(installation.database.owner())
            .await
            .unwrap();
    assert_eq!(audited, 1);
    jig(&installation, true).await;
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn lint_error_blocks_submission() {
    let installation = Installation::new().await;
    let key = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----";
    let (id, version) = installation
        .propose(&installation.ada, "web", vec![data(&installation, json!({"tls": key})).await])
        .await;
    let before = installation.traces().await;
    let refused = installation
        .control
        .submit(&installation.ada, id, version, "a key".into())
        .await
        .unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "lint"));
    assert!(
        refused.errors[0].detail.starts_with("plain-secret: Value /tls contains a private key"),
        "{refused:?}"
    );
    assert!(!format!("{refused:?}").contains("MIIE"), "the finding must not repeat the secret");
    assert_eq!(installation.traces().await, before);
    // The planning report ends with the lint stage.
    let report = installation.control.report(&installation.ada, id).await.unwrap();
    let last = report.stages.last().unwrap();
    assert_eq!(
        (last.stage, last.results[0].text.as_str()),
        (Stage::Lint, "1 error and 0 warnings")
    );
    assert!(
        last.blocked_by[0].text.starts_with("app in web: Value /tls contains a private key"),
        "{last:?}"
    );
}

#[tokio::test]
async fn review_shows_warnings_and_effects() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 2, "app").await;
    let id = installation
        .submit(
            &installation.ada,
            "web",
            vec![data(&installation, json!({"admin": {"password": "x"}})).await],
        )
        .await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    let checks: Vec<LintCheck> = review.checks.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, [LintCheck::SecretByName, LintCheck::AllAtOnce]);
    assert!(review.checks.iter().all(|finding| finding.level == Level::Warning));
    assert!(
        review.gate.rules.iter().any(|rule| rule.text == "Lint found no errors" && rule.passes)
    );
    assert_eq!((review.impact.restarts.count, review.impact.starts.count), (2, 0));
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}
