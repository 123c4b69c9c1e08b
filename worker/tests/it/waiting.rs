//! Pending reasons of a large number of steps: bounded, indexed, each step once. Also the reason of
//! a blocked step.

use std::collections::BTreeSet;

use engine::anneal::{Limits, PendingReason};
use engine::catalog::JigClass;
use engine::ids::StepId;
use serde_json::json;
use sqlx::AssertSqlSafe;
use store::runs::{MAX_STEPS_READ, PendingFilter, PendingRows};
use time::OffsetDateTime;

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};

const EVERYWHERE: Limits = Limits { running: 10, batch: 10 };
const MANY: i64 = MAX_STEPS_READ + 2_500;

async fn own(cluster: &Cluster, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
}

async fn waiting(cluster: &Cluster, filter: PendingFilter, page: i64) -> PendingRows {
    let mut on = cluster.server().acquire().await.expect("a connection");
    store::runs::pending_steps(&mut on, EVERYWHERE, &filter, page).await.expect("the pending steps")
}

/// A step in ERROR with this many blocked steps below it, and one step that is blocked without a
/// failure.
async fn crowd() -> Cluster {
    let mut cluster = Cluster::of(2).await;
    for name in ["bad", "app", "far"] {
        cluster.add_role(role(name, JigClass::Test)).await;
    }
    let fails = json!({"test": {"fail": "no such disk"}});
    let slow = json!({"test": {"seconds": 300}});
    cluster
        .commit(&[
            bind(0, "bad").data(fails),
            bind(0, "app").after(0, "bad"),
            bind(0, "far").after(0, "app"),
            bind(1, "app").data(slow),
            bind(1, "far").after(1, "app"),
        ])
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "bad", "error").await;
    cluster.running(1, "app").await;
    worker.stop().await;
    let bad = cluster.step(0, "bad");
    own(
        &cluster,
        format!(
            "ALTER TABLE noderole DISABLE TRIGGER guard_intent; ALTER TABLE step DISABLE TRIGGER
                 guard_intent;
             ALTER TABLE edge DISABLE TRIGGER guard_intent;
             INSERT INTO noderole (id, node_id, role, instance, deployment_id, role_hash)
             SELECT md5('m' || g)::uuid, n.node_id, 'many', g, n.deployment_id, n.role_hash
             FROM step s JOIN noderole n ON n.id = s.noderole_id, generate_series(1, {MANY}) g
             WHERE s.id = '{bad}';
             INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig,
             generation, content_hash, state, pending, node_up, since)
             SELECT md5('m' || g)::uuid, md5('m' || g)::uuid, node_id, concurrency_group_id, 1,
             jig, generation, content_hash, 'blocked', 1, true,
               now() + make_interval(secs => g / 10)
             FROM step, generate_series(1, {MANY}) g WHERE id = '{bad}';
             INSERT INTO edge (child, parent, kind) SELECT md5('m' || g)::uuid, '{bad}', 'hard'
             FROM generate_series(1, {MANY}) g;
             ANALYZE step; ANALYZE edge;"
        ),
    )
    .await;
    cluster
}

#[tokio::test]
async fn pending_list_is_bounded_and_paged() {
    let cluster = crowd().await;
    let all = waiting(&cluster, PendingFilter::default(), 5).await;
    let of = |reason: PendingReason| {
        all.rows.iter().filter(|row| row.reason == reason.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of(PendingReason::Failed)[0].error.as_deref(), Some("no such disk"));
    let pending = of(PendingReason::DependencyFailed);
    assert_eq!(pending.len(), 5, "each reason must list the first five steps only");
    assert!(
        pending[0].more
            && pending[0].total > MAX_STEPS_READ - 100
            && pending[0].total <= MAX_STEPS_READ,
        "{}",
        pending[0].total
    );
    assert_ne!(pending[0].role, "many", "the steps that wait longest must come first");
    assert_eq!(
        of(PendingReason::Parents).len(),
        1,
        "a step with parents that can still succeed must have its own reason"
    );

    let mut seen = BTreeSet::new();
    let mut filter =
        PendingFilter { reason: Some(PendingReason::DependencyFailed), ..PendingFilter::default() };
    loop {
        let page = waiting(&cluster, filter, 1_000).await;
        let ours =
            page.rows.iter().filter(|row| row.reason == PendingReason::DependencyFailed.as_str());
        for row in ours {
            assert!(seen.insert(row.step), "step {} is listed twice", row.step);
        }
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    assert_eq!(
        i64::try_from(seen.len()).expect("a small number"),
        MANY + 2,
        "the list must include the steps of the commit"
    );
    let other = PendingFilter { node: Some(cluster.nodes[1].id), ..PendingFilter::default() };
    let pending = waiting(&cluster, other, 100).await;
    assert!(pending.rows.iter().all(|row| row.node == cluster.nodes[1].id.0), "{pending:?}");
}

#[tokio::test]
async fn reversed_pending_list_has_each_step_once() {
    let cluster = crowd().await;
    let descending = PendingFilter { descending: true, ..PendingFilter::default() };
    let all = waiting(&cluster, descending, 5).await;
    let pending: Vec<_> = all
        .rows
        .iter()
        .filter(|row| row.reason == PendingReason::DependencyFailed.as_str())
        .collect();
    assert_eq!(pending.len(), 5, "each reason must list the first five steps only");
    assert!(
        pending.iter().all(|row| row.role == "many"),
        "the steps that wait longest must not be listed: {pending:?}"
    );
    let last: OffsetDateTime =
        sqlx::query_scalar("SELECT max(since) FROM step WHERE state = 'blocked'")
            .fetch_one(cluster.db.owner())
            .await
            .expect("a time");
    assert_eq!(pending[0].since, last, "the newest of all steps must come first");

    let mut seen = Vec::new();
    let mut filter = PendingFilter { reason: Some(PendingReason::DependencyFailed), ..descending };
    loop {
        let page = waiting(&cluster, filter, 1_000).await;
        let ours =
            page.rows.iter().filter(|row| row.reason == PendingReason::DependencyFailed.as_str());
        seen.extend(ours.map(|row| (row.since, row.step)));
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    assert!(
        seen.is_sorted_by(|before, after| before > after),
        "each step must be listed once, newest first"
    );
    assert_eq!(
        i64::try_from(seen.len()).expect("a small number"),
        MANY + 2,
        "the list must include the steps of the commit"
    );
}

#[tokio::test]
async fn blocked_step_lists_parents_and_root_cause() {
    let cluster = crowd().await;
    let mut on = cluster.server().acquire().await.expect("a connection");
    let steps = [cluster.step(0, "far"), cluster.step(1, "far")];
    let rows = store::runs::above(&mut on, &steps).await.expect("the parents");
    let of = |step: StepId| {
        let ours = rows.iter().filter(move |row| row.step == step.0);
        ours.map(|row| (row.role.as_str(), row.state.as_str(), row.parent, row.open))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(steps[0]), [("app", "blocked", true, 1), ("bad", "error", false, 0)]);
    let [(role, state, parent, open)] = of(steps[1])[..] else { panic!("{rows:?}") };
    assert_eq!((role, parent, open), ("app", true, 1), "{state}");
    assert_ne!(state, "blocked", "the root cause must not be a blocked step");
}
