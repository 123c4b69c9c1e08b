//! Rows of nodes that differ from the reviewed documents: nothing runs, and no key is handed out.

use std::time::Duration;

use engine::catalog::JigClass;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};

const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

/// Changes a row as nobody but the owner of the database can.
async fn forge(cluster: &Cluster, change: &str) {
    let sql = format!(
        "ALTER TABLE node DISABLE TRIGGER guard_node_record; UPDATE node SET {change} WHERE doc IS NOT NULL AND NOT phantom;
         ALTER TABLE node ENABLE TRIGGER guard_node_record"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(cluster.db.owner()).await.expect("the owner may");
}

#[tokio::test]
async fn row_unlike_document_stops_the_run() {
    for (change, field) in [("connection = '{\"root\": \"/srv/other\"}'", "root"), ("hints = '{\"rack\": 7}'", "hints")]
    {
        let mut cluster = Cluster::of(1).await;
        let mut once = role("app", JigClass::Test);
        once.run.retries = 0;
        cluster.add_role(once).await;
        cluster.commit(&[bind(0, "app")]).await;
        forge(&cluster, change).await;
        let worker = Running::start(quick(&cluster.folder()), cluster.pool());
        cluster.reaches(0, "app", "error").await;
        worker.stop().await;
        let error = cluster.error(0, "app").await.expect("a reason");
        assert!(error.contains("node n0.test.gantry differs from its document") && error.contains(field), "{error}");
    }
}

#[tokio::test]
async fn row_unlike_document_is_not_reached() {
    let mut cluster = Cluster::of(0).await;
    cluster.add_role(role("app", JigClass::Test)).await;
    let ssh = json!({
        "root": "/", "addresses": ["127.0.0.1"], "port": 1, "user": "root", "key": {"$secret": "deploy/ssh", "version": 1},
        "host_key": HOST_KEY,
    });
    cluster.insert_node("/".into(), "ssh", ssh).await;
    cluster.commit(&[bind(0, "app")]).await;
    forge(&cluster, "address = '[\"127.0.0.2\"]', looked_at = NULL").await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let deadline = Instant::now() + Duration::from_secs(60);
    let look = loop {
        let sql = "SELECT said, tried FROM node_look ORDER BY at DESC LIMIT 1";
        let look: Option<(String, serde_json::Value)> =
            sqlx::query_as(sql).fetch_optional(cluster.pool()).await.expect("looks");
        match look {
            Some(look) => break look,
            None => assert!(Instant::now() < deadline, "nobody looked"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    worker.stop().await;
    assert!(look.0.contains("n0.test.gantry differs from its document (addresses)"), "{look:?}");
    assert_eq!(look.1, json!([]), "no address was tried, so no key was used");
}
