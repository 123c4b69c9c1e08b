//! The record of a node and its document: the changes of connection or hints that the guards accept
//! and reject.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use serde_json::{Value, json};
use uuid::Uuid;
use world::{NewReview, World, assert_refused, node_doc};

/// Statements that change the record of every node with this name.
fn changes(fqdn: &str) -> [String; 4] {
    [
        "transport = 'ssh'",
        "address = '[\"10.0.0.9\"]'",
        "connection = '{\"root\": \"/srv/other\"}'",
        "hints = '{\"rack\": 7}'",
    ]
    .map(|change| format!("UPDATE node SET {change} WHERE fqdn = '{fqdn}'"))
}

/// A planned change of n1 whose document has this connection and these hints.
async fn planned(world: &World, connection: Value, hints: Value) -> NewReview {
    let mut planned = world.plan(world.web, world.ada).await;
    let mut doc = node_doc(
        world.n1,
        "n1.x.example",
        world.web,
        json!({"app": {"deployment": world.web, "data": {"n": Uuid::new_v4()}}}),
    );
    (doc["connection"], doc["hints"]) = (connection, hints);
    planned.documents[0].3 = Some(world.put("node", doc).await);
    planned.risk.push("connection".into());
    planned
}

async fn approved(world: &World, planned: &NewReview) -> i64 {
    let review = world.submit(planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    review
}

/// Commits as Gantry does, so that the row matches the document.
async fn commit_with(world: &World, planned: &NewReview, row: &str) -> Result<(), sqlx::Error> {
    let review = approved(world, planned).await;
    let root = world.root_with(planned).await;
    let mut tx = world.db.app().begin().await?;
    let number = world.insert_blueprint(&mut tx, review, &root).await?;
    let sql = format!("UPDATE node SET doc = $2, {row} WHERE id = $1");
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(world.n1)
        .bind(&planned.documents[0].3)
        .execute(&mut *tx)
        .await?;
    world.project(&mut tx, planned, number).await?;
    tx.commit().await
}

fn local() -> Value {
    json!({"transport": "local", "root": "/srv/n1"})
}

#[tokio::test]
async fn documented_record_changes_by_commit_only() {
    let world = World::new().await;
    for sql in changes("n1.x.example") {
        assert_refused(&sql, world.app(&sql).await, Refusal::NodeRecordOutsideCommit);
        assert_refused(&sql, world.owner(&sql).await, Refusal::NodeRecordOutsideCommit);
    }
    let add = "INSERT INTO node (fqdn, deployment_id) SELECT 'bare.x.example', id FROM deployment WHERE system";
    world.app(add).await.unwrap();
    for sql in changes("bare.x.example") {
        assert_eq!(world.app(&sql).await.unwrap(), 1, "{sql}");
    }
}

#[tokio::test]
async fn row_differing_from_document_is_refused() {
    let world = World::new().await;
    for row in [
        "version = version",
        "connection = '{\"root\": \"/srv/other\"}'",
        "connection = '{\"root\": \"/srv/n1\"}', transport = 'ssh'",
        "connection = '{\"root\": \"/srv/n1\"}', hints = '{\"rack\": 8}'",
    ] {
        let planned = planned(&world, local(), json!({})).await;
        assert_refused(row, commit_with(&world, &planned, row).await, Refusal::NodeRecordMismatch);
        world
            .owner(
                "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'",
            )
            .await
            .unwrap();
    }
    let planned = planned(&world, local(), json!({"rack": 7})).await;
    commit_with(
        &world,
        &planned,
        "connection = '{\"root\": \"/srv/n1\"}', hints = '{\"rack\": 7}'",
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn commit_does_not_change_other_records() {
    let world = World::new().await;
    let planned = planned(&world, local(), json!({})).await;
    let review = approved(&world, &planned).await;
    let root = world.root_with(&planned).await;
    let mut tx = world.db.app().begin().await.unwrap();
    world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    let other =
        sqlx::query("UPDATE node SET connection = '{\"root\": \"/srv/other\"}' WHERE id = $1");
    assert_refused(
        "a change of the record of n2",
        other.bind(world.n2).execute(&mut *tx).await,
        Refusal::NodeRecordMismatch,
    );
}

#[tokio::test]
async fn changed_connection_without_its_risk_is_refused() {
    let world = World::new().await;
    let mut planned = planned(&world, local(), json!({})).await;
    planned.risk.retain(|risk| risk != "connection");
    let row = "connection = '{\"root\": \"/srv/n1\"}'";
    assert_refused(
        "a changed connection without its risk",
        commit_with(&world, &planned, row).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn changed_node_record_is_reported() {
    let world = World::new().await;
    let add = "INSERT INTO node (fqdn, deployment_id, transport, connection)
               SELECT 'bare.x.example', id, 'local', '{\"root\": \"/srv/bare\"}' FROM deployment WHERE system";
    world.app(add).await.unwrap();
    let id: Uuid = sqlx::query_scalar("SELECT id FROM node WHERE fqdn = 'bare.x.example'")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let mut doc = node_doc(id, "bare.x.example", world.web, json!({}));
    doc["connection"] = json!({"transport": "local", "root": "/srv/bare"});
    let mut planned = world.plan(world.web, world.ada).await;
    planned.documents.push(("node", id, None, Some(world.put("node", doc).await)));
    let review = world.submit(&planned).await.unwrap();
    let moved = || async {
        let sql = "SELECT fqdn FROM moved_records($1)";
        sqlx::query_scalar::<_, String>(sql).bind(review).fetch_all(world.db.app()).await.unwrap()
    };
    assert!(moved().await.is_empty());
    for (forward, backward) in [
        ("connection = '{\"root\": \"/srv/other\"}'", "connection = '{\"root\": \"/srv/bare\"}'"),
        ("hints = '{\"rack\": 7}'", "hints = '{}'"),
    ] {
        world
            .app(&format!("UPDATE node SET {forward} WHERE fqdn = 'bare.x.example'"))
            .await
            .unwrap();
        assert_eq!(moved().await, ["bare.x.example"], "{forward}");
        world
            .app(&format!("UPDATE node SET {backward} WHERE fqdn = 'bare.x.example'"))
            .await
            .unwrap();
        assert!(moved().await.is_empty(), "{backward}");
    }
}
