//! Health checks that end after the node has changed, and reports from nodes in the meantime.

use std::time::Duration;

use api::nodes::{NodeChange, NodeConnectionChange, TriedAddress};
use api::nodes::{NodeRequest, SshRequest};
use control::people::ClientInfo;
use engine::data::stored_bytes;
use engine::ids::NodeId;
use serde_json::{Value, json};
use store::nodes::{AsOf, HealthCheckResult};

use crate::installation::Installation;
use crate::nodes::{as_of, machine, ssh};

const NAME: &str = "m1.rack1.example.com";
const OTHER_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm0cXYYv8m2bBqQ1x9m4cYcYfXxQy0v0aT6k1yJ3b1Q";

/// A health check with the versions from its start: its boot id or error, and whether it surveyed
/// the node.
fn health_check(as_of: AsOf, came: Result<&str, &str>, surveyed: bool) -> HealthCheckResult {
    HealthCheckResult {
        as_of,
        tried: Vec::new(),
        address: "10.0.3.7".into(),
        came: came.map(str::to_owned).map_err(str::to_owned),
        survey: (came.is_ok() && surveyed).then_some(Ok(())),
        took: Duration::ZERO,
        by: "w".into(),
    }
}

async fn record(installation: &Installation, node: NodeId, looked: &HealthCheckResult) -> bool {
    store::nodes::record_health_check(installation.database.worker(), node, looked).await.unwrap()
}

/// A node that is alive and whose running processes are known.
async fn alive(installation: &Installation) -> NodeId {
    let id = machine(installation, NAME).await;
    let begun = as_of(installation, id).await;
    assert!(record(installation, id, &health_check(begun, Ok("boot-1"), true)).await);
    id
}

async fn life(installation: &Installation) -> (bool, String, u32) {
    let life = installation.control.node(&installation.ada, NAME).await.unwrap().status;
    (life.alive, life.joined.as_str().to_owned(), life.contradicting)
}

async fn sql(installation: &Installation, sql: &'static str) {
    sqlx::query(sql).execute(installation.database.app()).await.unwrap();
}

async fn until(installation: &Installation, condition: &'static str) {
    for _ in 0..500 {
        if sqlx::query_scalar::<_, bool>(condition)
            .fetch_one(installation.database.owner())
            .await
            .unwrap()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition did not become true: {condition}");
}

#[tokio::test]
async fn health_check_over_old_connection_is_discarded() {
    let installation = Installation::new().await;
    let id = alive(&installation).await;
    let begun = as_of(&installation, id).await;
    let addresses = Some(vec!["10.0.3.8".into()]);
    let change = NodeChange {
        connection: Some(NodeConnectionChange { addresses, ..NodeConnectionChange::default() }),
        ..NodeChange::default()
    };
    installation.control.change_node(&installation.ada, id, 1, change).await.unwrap();
    assert_eq!(life(&installation).await, (true, "none".into(), 0));
    sql(&installation, "UPDATE node SET health_checked_at = now() WHERE transport = 'ssh'").await;
    for came in [Ok("boot-1"), Ok("boot-2"), Err("refused"), Err("refused"), Err("refused")] {
        assert!(!record(&installation, id, &health_check(begun, came, true)).await, "{came:?}");
    }
    assert_eq!(life(&installation).await, (true, "none".into(), 0));
    assert_eq!(
        installation.control.node(&installation.ada, NAME).await.unwrap().health_checks.len(),
        1,
        "only the health check over the current connection is stored"
    );
    until(&installation, "SELECT health_checked_at IS NULL FROM node WHERE transport = 'ssh'")
        .await;
    // A due node has the version of its new connection.
    let due =
        store::nodes::due_nodes(installation.database.worker(), Duration::from_secs(3600), 10)
            .await
            .unwrap()
            .remove(0);
    assert!(due.as_of != begun && due.as_of == as_of(&installation, id).await);
    assert!(record(&installation, id, &health_check(due.as_of, Ok("boot-1"), true)).await);
    assert_eq!(life(&installation).await, (true, "confirmed".into(), 0));
}

#[tokio::test]
async fn health_check_from_before_report_is_discarded() {
    let installation = Installation::new().await;
    let id = alive(&installation).await;
    let minted = installation
        .control
        .create_node_token(&installation.ada, id, "its unit".into(), 30)
        .await
        .unwrap();
    let identity = installation
        .control
        .authenticate_node(&minted.token, &ClientInfo::default())
        .await
        .unwrap();
    // A health check is running, and the node reports a shutdown.
    let begun = as_of(&installation, id).await;
    installation.control.report_shutdown(&identity).await.unwrap();
    assert_eq!(life(&installation).await, (true, "welcomed".into(), 2));
    assert!(!record(&installation, id, &health_check(begun, Ok("boot-1"), true)).await);
    assert_eq!(
        life(&installation).await,
        (true, "welcomed".into(), 2),
        "the health check began before the report"
    );
    // A survey is running, and the node reports a start-up.
    let begun = as_of(&installation, id).await;
    installation.control.report_startup(&identity, "boot-2".into()).await.unwrap();
    assert!(!record(&installation, id, &health_check(begun, Ok("boot-1"), true)).await);
    assert_eq!(life(&installation).await.1, "welcomed");
    // However often the node reports, a health check that finds it unreachable counts.
    let begun = as_of(&installation, id).await;
    installation.control.report_startup(&identity, "boot-3".into()).await.unwrap();
    assert!(record(&installation, id, &health_check(begun, Err("refused"), false)).await);
    assert!(!life(&installation).await.0);
    // The dead node reports its start: one successful check is enough. A check from before the
    // report does not change that.
    let begun = as_of(&installation, id).await;
    installation.control.report_startup(&identity, "boot-4".into()).await.unwrap();
    record(&installation, id, &health_check(begun, Err("refused"), false)).await;
    assert_eq!(life(&installation).await, (false, "welcomed".into(), 1));
    let begun = as_of(&installation, id).await;
    assert!(record(&installation, id, &health_check(begun, Ok("boot-4"), true)).await);
    assert_eq!(life(&installation).await, (true, "confirmed".into(), 0));
    // A repeated report does not invalidate a running health check.
    let begun = as_of(&installation, id).await;
    installation.control.report_startup(&identity, "boot-4".into()).await.unwrap();
    assert_eq!(as_of(&installation, id).await, begun);
}

#[tokio::test]
async fn health_check_is_reevaluated_under_the_lock() {
    let installation = Installation::new().await;
    let id = alive(&installation).await;
    let begun = as_of(&installation, id).await;
    for _ in 0..2 {
        record(&installation, id, &health_check(begun, Err("refused"), false)).await;
    }
    // Another transaction has the APPLY lock, so the third check cannot change the node yet.
    let mut lock = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::APPLY_LOCK)
        .execute(&mut *lock)
        .await
        .unwrap();
    let pool = installation.database.worker().clone();
    let third = health_check(begun, Err("refused"), false);
    let turning =
        tokio::spawn(
            async move { store::nodes::record_health_check(&pool, id, &third).await.unwrap() },
        );
    until(&installation, "SELECT contradicting_checks = 3 FROM node WHERE transport = 'ssh'").await;
    assert!(
        !record(&installation, id, &health_check(begun, Ok("boot-1"), true)).await,
        "another health check changed the state in between"
    );
    lock.commit().await.unwrap();
    assert!(!turning.await.unwrap());
    assert_eq!(life(&installation).await, (true, "confirmed".into(), 0));
}

#[tokio::test]
async fn connection_change_during_health_check_is_not_confirmed() {
    let installation = Installation::new().await;
    let id = machine(&installation, NAME).await;
    let begun = as_of(&installation, id).await;
    let mut lock = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::APPLY_LOCK)
        .execute(&mut *lock)
        .await
        .unwrap();
    let pool = installation.database.worker().clone();
    let first = health_check(begun, Ok("boot-1"), true);
    let turning =
        tokio::spawn(
            async move { store::nodes::record_health_check(&pool, id, &first).await.unwrap() },
        );
    until(&installation, "SELECT count(*) = 1 FROM health_check").await;
    sqlx::query("UPDATE node SET connection_no = connection_no + 1 WHERE id = $1")
        .bind(id.0)
        .execute(&mut *lock)
        .await
        .unwrap();
    lock.commit().await.unwrap();
    assert!(!turning.await.unwrap());
    assert_eq!(life(&installation).await.1, "none");
}

#[tokio::test]
async fn excess_reports_are_refused_without_apply_lock() {
    let installation = Installation::new().await;
    let id = alive(&installation).await;
    let minted = installation
        .control
        .create_node_token(&installation.ada, id, "its unit".into(), 30)
        .await
        .unwrap();
    let identity = installation
        .control
        .authenticate_node(&minted.token, &ClientInfo::default())
        .await
        .unwrap();
    for _ in 0..store::nodes::MAX_REPORTS {
        installation.control.report_shutdown(&identity).await.unwrap();
    }
    // Claims share this lock, and reports must not wait for them.
    let mut claims = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock_shared($1)")
        .bind(migrations::APPLY_LOCK)
        .execute(&mut *claims)
        .await
        .unwrap();
    let refused = tokio::time::timeout(
        Duration::from_secs(20),
        installation.control.report_shutdown(&identity),
    )
    .await;
    assert_eq!(refused.expect("a result without waiting").unwrap_err().status, 429);
    claims.commit().await.unwrap();
}

#[tokio::test]
async fn health_check_shows_each_address() {
    let installation = Installation::new().await;
    let id = machine(&installation, NAME).await;
    let tried = |n: usize, reached| TriedAddress {
        address: format!("10.0.3.{n}"),
        reached,
        error: if reached { String::new() } else { "x".repeat(9_000) },
    };
    let mut check = health_check(as_of(&installation, id).await, Ok("boot-1"), true);
    check.tried = (0..20).map(|n| tried(n, n == 7)).collect();
    record(&installation, id, &check).await;
    let shown = installation
        .control
        .node_health_checks(&installation.ada, NAME, &Default::default())
        .await
        .unwrap()
        .health_checks
        .remove(0);
    assert_eq!(shown.tried.len(), api::limits::ADDRESSES);
    assert!(shown.tried[7].reached && shown.tried[7].error.is_empty());
    assert!(!shown.tried[6].reached && shown.tried[6].error.len() == 500);
}

#[tokio::test]
async fn registering_again_updates_the_connection() {
    let installation = Installation::new().await;
    let request = |host_key: &str| NodeRequest {
        ssh: Some(SshRequest { host_key: host_key.into(), ..ssh() }),
        ..NodeRequest::named(NAME, "/srv/m1")
    };
    let first = ssh().host_key;
    assert!(!installation.control.ensure_node(request(&first)).await.unwrap());
    assert!(
        !installation.control.ensure_node(request(&first)).await.unwrap(),
        "the node already exists"
    );
    let begun = installation.control.node(&installation.ada, NAME).await.unwrap();
    record(
        &installation,
        begun.id,
        &health_check(as_of(&installation, begun.id).await, Ok("boot-1"), true),
    )
    .await;
    assert_eq!(life(&installation).await.1, "confirmed");
    assert!(installation.control.ensure_node(request(OTHER_KEY)).await.unwrap());
    let shown = installation.control.node(&installation.ada, NAME).await.unwrap();
    assert_ne!(
        shown.connection.ssh.unwrap().fingerprint,
        begun.connection.ssh.unwrap().fingerprint
    );
    assert_eq!((shown.status.joined.as_str(), shown.version), ("none", begun.version + 1));
    let audit = "SELECT detail FROM audit WHERE action = 'node.change' AND actor IS NULL";
    let audit: Value =
        sqlx::query_scalar(audit).fetch_one(installation.database.owner()).await.unwrap();
    assert!(
        audit["connection"]["is"]["host_key"] == OTHER_KEY && audit["reason"].is_string(),
        "{audit}"
    );
    // A folder is another transport.
    let refused = installation
        .control
        .ensure_node(NodeRequest::named(NAME, "/srv/nodes/m1"))
        .await
        .unwrap_err();
    assert!(
        refused.code == "node_exists"
            && refused.detail.contains("with the transport ssh, not local"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn registering_cannot_change_node_in_blueprint() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let request = NodeRequest::named(crate::installation::fqdn(1).to_string(), "/srv/elsewhere/n1");
    assert_eq!(installation.control.ensure_node(request).await.unwrap_err().code, "in_blueprint");
}

#[tokio::test]
async fn disabled_person_cannot_add_or_delete_nodes() {
    let installation = Installation::new().await;
    let id = machine(&installation, NAME).await;
    // The actor was loaded before, like in a request that waits for a connection.
    let ada = installation.ada.clone();
    installation.people.disable(None, ada.person).await.unwrap();
    let request =
        NodeRequest { ssh: Some(ssh()), ..NodeRequest::named("m2.rack1.example.com", "") };
    assert_eq!(installation.control.add_node(&ada, request).await.unwrap_err().status, 401);
    assert_eq!(installation.control.delete_node(&ada, id, None).await.unwrap_err().status, 401);
    assert!(installation.control.node(&installation.bo, NAME).await.is_ok());
}

#[tokio::test]
async fn facts_exceeding_stored_size_are_rejected() {
    let installation = Installation::new().await;
    let id = machine(&installation, NAME).await;
    let minted = installation
        .control
        .create_node_token(&installation.ada, id, "its unit".into(), 30)
        .await
        .unwrap();
    let identity = installation
        .control
        .authenticate_node(&minted.token, &ClientInfo::default())
        .await
        .unwrap();
    let refused = installation
        .control
        .report_facts(&identity, json!({ "n": vec![1e-300; 4_000] }))
        .await
        .unwrap_err();
    assert!(
        refused.status == 400
            && refused.detail.contains("in the database, which stores all digits"),
        "{refused:?}"
    );
    // Everything that is not refused is stored.
    installation
        .control
        .report_facts(&identity, json!({ "n": vec![1e-300; 3_000] }))
        .await
        .unwrap();
    installation
        .control
        .report_facts(&identity, json!({ "n": vec![vec![0u8; 0]; 60_000] }))
        .await
        .unwrap();
}

#[tokio::test]
async fn stored_size_is_predicted_exactly() {
    let installation = Installation::new().await;
    let mut cases = vec![
        json!(null),
        json!([true, false, [], {}, [[1]], {"a": {"b": 2, "c": []}}]),
        json!({"text": "größe \u{1} \u{1f} \u{7f} \u{8}\u{c}\n\r\t \"\\/ 漢 😀", "k\n\"": 1}),
        json!([u64::MAX, i64::MIN, 0, -1]),
        json!([
            0.0,
            1.0,
            -1.5,
            0.1,
            1e15,
            1e16,
            1e17,
            1.5e16,
            123_456_789.125,
            1e-4,
            1e-5,
            1e-6,
            1.25e-7
        ]),
        json!([
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            1e300,
            -1.5e300,
            1e-300,
            f64::EPSILON
        ]),
    ];
    // Numbers of all magnitudes, from a deterministic generator, so that failures are reproducible.
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..500 {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        let float = f64::from_bits(bits);
        cases.push(json!({ "n": if float.is_finite() { json!(float) } else { json!(bits) } }));
    }
    for case in cases {
        let stored: i32 = sqlx::query_scalar("SELECT octet_length($1::jsonb::text)")
            .bind(&case)
            .fetch_one(installation.database.app())
            .await
            .unwrap();
        assert_eq!(stored_bytes(&case), usize::try_from(stored).unwrap(), "{case}");
    }
}
