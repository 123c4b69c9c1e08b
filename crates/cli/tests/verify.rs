//! The command `gantry verify`: output and exit codes.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::{Command, Output};

use control::{Control, Demo, DemoDeployment};
use engine::gate::Policy;
use engine::ids::DeploymentName;
use serde_json::{Value, json};
use store::Store;
use testdb::TestDatabase;

fn verify(url: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    command.arg("verify").args(more).env_remove("DATABASE_URL").env("GANTRY_LOG", "error");
    if !url.is_empty() {
        command.env("DATABASE_URL", url);
    }
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test]
async fn rows_differing_from_documents_are_named() {
    let database = TestDatabase::new().await;
    let empty = verify(database.app_url(), &[]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(err(&empty).contains("has no blueprint yet"), "{}", err(&empty));

    let web = DemoDeployment { name: DeploymentName::parse("web").unwrap(), roles: Vec::new() };
    let policy = Policy { approvals: 1, by_risk: Default::default(), ..Policy::default() };
    let demo = Demo { deployments: vec![web], nodes: Vec::new() };
    Control::new(Store::over(database.app().clone())).ensure_genesis(&policy, &demo).await.unwrap();
    let good = verify(database.app_url(), &[]);
    assert_eq!((good.status.code(), err(&good).as_str()), (Some(0), ""));
    assert_eq!(out(&good), "Blueprint 1: all rows of 0 steps match its documents.\n");
    let good = verify(database.app_url(), &["--json"]);
    let answer: Value = serde_json::from_str(&out(&good)).unwrap();
    assert_eq!(answer, json!({"target": 1, "steps": 0, "discrepancies": []}));

    // Only the database's owner can do this, with the triggers disabled.
    for sql in [
        "ALTER TABLE deployment DISABLE TRIGGER USER",
        "UPDATE deployment SET name = 'wob' WHERE name = 'web'",
        "ALTER TABLE deployment ENABLE TRIGGER USER",
    ] {
        sqlx::query(sql).execute(database.owner()).await.unwrap();
    }
    let bad = verify(database.app_url(), &[]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        out(&bad).contains("deployment") && out(&bad).contains("web") && out(&bad).contains("wob"),
        "{}",
        out(&bad)
    );
    assert!(err(&bad).contains("audit log of blueprint 1. Report this"), "{}", err(&bad));
    let bad = verify(database.app_url(), &["--json"]);
    let answer: Value = serde_json::from_str(&out(&bad)).unwrap();
    assert_eq!(
        (bad.status.code(), answer["discrepancies"].as_array().map(Vec::len)),
        (Some(1), Some(1))
    );
}

#[test]
fn unreachable_database_is_reported_without_password() {
    let output = verify("postgres://gantry:hunter2-long@127.0.0.1:1/gantry", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        !err(&output).contains("hunter2") && err(&output).contains("gantry: "),
        "{}",
        err(&output)
    );
    assert_eq!(out(&output), "");
}

#[test]
fn missing_database_url_is_a_usage_error() {
    let output = verify("", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--database-url"), "{}", err(&output));
}
