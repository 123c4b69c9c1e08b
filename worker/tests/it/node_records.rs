//! Rows of nodes, jigs and parents that differ from the reviewed documents: nothing runs, and no
//! key is sent.

use std::time::Duration;

use engine::catalog::JigClass;
use engine::ids::JigName;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};

const HOST_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

/// Changes a row in a way that only the database's owner can.
async fn forge(cluster: &Cluster, change: &str) {
    let sql = format!(
        "ALTER TABLE node DISABLE TRIGGER guard_node_record; UPDATE node SET {change} WHERE doc IS
             NOT NULL AND NOT phantom;
         ALTER TABLE node ENABLE TRIGGER guard_node_record"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
}

#[tokio::test]
async fn row_differing_from_document_stops_run() {
    for (change, field) in [
        ("connection = '{\"root\": \"/srv/other\"}'", "root"),
        ("hints = '{\"rack\": 7}'", "hints"),
    ] {
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
        assert!(
            error.contains("node n0.test.gantry differs from its document")
                && error.contains(field),
            "{error}"
        );
    }
}

#[tokio::test]
async fn node_differing_from_document_is_not_contacted() {
    let mut cluster = Cluster::of(0).await;
    cluster.add_role(role("app", JigClass::Test)).await;
    let ssh = json!({
        "root": "/", "addresses": ["127.0.0.1"], "port": 1, "user": "root", "key": {
            "$secret": "deploy/ssh",
            "version": 1
        },
        "host_key": HOST_KEY,
    });
    cluster.insert_node("/".into(), "ssh", ssh).await;
    cluster.commit(&[bind(0, "app")]).await;
    forge(&cluster, "address = '[\"127.0.0.2\"]', health_checked_at = NULL").await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let deadline = Instant::now() + Duration::from_secs(60);
    let check = loop {
        let sql = "SELECT detail, attempts FROM health_check ORDER BY at DESC LIMIT 1";
        let check: Option<(String, serde_json::Value)> =
            sqlx::query_as(sql).fetch_optional(cluster.pool()).await.expect("the health checks");
        match check {
            Some(check) => break check,
            None => assert!(Instant::now() < deadline, "no health check took place"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    worker.stop().await;
    assert!(check.0.contains("n0.test.gantry differs from its document (addresses)"), "{check:?}");
    assert_eq!(check.1, json!([]), "no address must be tried, so no key is used");
}

async fn own(cluster: &Cluster, statements: String) {
    sqlx::raw_sql(AssertSqlSafe(statements))
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
}

#[tokio::test]
async fn visible_node_differing_from_document_stops_run() {
    let mut cluster = Cluster::of(4).await;
    cluster.add_script_role("above", "#!/bin/sh\n", |_| ()).await;
    cluster.add_script_role("below", "#!/bin/sh\necho x >ran\n", |role| role.run.retries = 0).await;
    let changes = [
        ("address = '[\"10.9.9.9\"]'", "n0.test.gantry differs from its document (addresses)"),
        ("fqdn = 'other.test.gantry'", "n1.test.gantry differs from its document (fqdn)"),
    ];
    cluster.commit(&[bind(0, "above"), bind(1, "above")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    for (node, (change, _)) in changes.iter().enumerate() {
        cluster.reaches(node, "above", "active").await;
        let id = cluster.nodes[node].id;
        own(
            &cluster,
            format!(
                "ALTER TABLE node DISABLE TRIGGER USER; UPDATE node SET {change} WHERE id = '{id}';
                 ALTER TABLE node ENABLE TRIGGER USER"
            ),
        )
        .await;
    }
    cluster.commit(&[bind(2, "below").after(0, "above"), bind(3, "below").after(1, "above")]).await;
    for (parent, (_, reason)) in changes.iter().enumerate() {
        let node = parent + 2;
        cluster.reaches(node, "below", "error").await;
        let error = cluster.error(node, "below").await.expect("a reason");
        assert!(error.contains(reason), "{error}");
        assert!(!cluster.nodes[node].root.join("ran").exists());
    }
    worker.stop().await;
}

#[tokio::test]
async fn jig_row_differing_from_document_stops_run() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("app", "#!/bin/sh\necho x >ran\n", |role| role.run.retries = 0).await;
    cluster.commit(&[bind(0, "app")]).await;
    cluster.inactive_jigs.insert(JigName::parse("script").expect("a name"));
    let target = cluster.commit(&[]).await;
    let forge = "ALTER TABLE jig DISABLE TRIGGER guard_intent; UPDATE jig SET active = true WHERE
        name = 'script';
         SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE jig ENABLE TRIGGER guard_intent";
    own(&cluster, forge.to_owned()).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "app", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "app").await.expect("a reason");
    assert!(
        error.contains(&format!("jig.active of script is true, but blueprint {target} has false")),
        "{error}"
    );
    assert!(!cluster.nodes[0].root.join("ran").exists());
}

#[tokio::test]
async fn parent_row_differing_from_document_stops_run() {
    let fields = [
        ("step.immediate", "immediate = true"),
        ("step.skipped", "skipped = 'forged'"),
        ("step.rank", "rank = 7"),
        ("step.noderole_id", "node_id = (SELECT id FROM node WHERE fqdn = 'n4.test.gantry')"),
    ];
    let mut cluster = Cluster::of(fields.len() + 1).await;
    cluster.add_script_role("above", "#!/bin/sh\n", |_| ()).await;
    cluster.add_script_role("below", "#!/bin/sh\necho x >ran\n", |role| role.run.retries = 0).await;
    let binds = (0..fields.len())
        .flat_map(|node| [bind(node, "above"), bind(node, "below").after(node, "above")]);
    cluster.commit(&binds.collect::<Vec<_>>()).await;
    own(&cluster, "ALTER TABLE step DISABLE TRIGGER USER".to_owned()).await;
    for (node, (_, change)) in fields.iter().enumerate() {
        let (above, below) = (cluster.step(node, "above"), cluster.step(node, "below"));
        own(
            &cluster,
            format!(
                "UPDATE step SET {change}, state = 'active', applied_generation = generation WHERE
                     id = '{above}';
                 UPDATE step SET state = 'todo', pending = 0 WHERE id = '{below}'"
            ),
        )
        .await;
    }
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    for (node, (field, _)) in fields.iter().enumerate() {
        cluster.reaches(node, "below", "error").await;
        let error = cluster.error(node, "below").await.expect("a reason");
        assert!(error.contains(&format!("{field} of above on n")), "{field}: {error}");
        assert!(!cluster.nodes[node].root.join("ran").exists(), "{field}");
    }
    worker.stop().await;
}
