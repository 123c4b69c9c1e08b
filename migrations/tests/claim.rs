//! The claim statement against its limits, with the real schema, indexes and triggers.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;

use migrations::{APPLY_LOCK, CLAIM_LOCK};
use sqlx::{AssertSqlSafe, Executor as _};
use testdb::TestDatabase;

const CLAIM: &str = include_str!("../../crates/store/src/runs/statements/claim.sql");

/// Nodes `n1..`, each with steps in the concurrency group of their role, in deployments `d1` and
/// its child `d2`.
struct ClaimDatabase(TestDatabase);

impl ClaimDatabase {
    async fn new() -> Self {
        let floor = Self(TestDatabase::new().await);
        // Only commits write intent, and these tests begin after a commit.
        floor
            .sql(
                "ALTER TABLE blueprint DISABLE TRIGGER USER; ALTER TABLE head DISABLE TRIGGER USER;
                 ALTER TABLE deployment DISABLE TRIGGER USER; ALTER TABLE node DISABLE TRIGGER guard_node;
                 ALTER TABLE noderole DISABLE TRIGGER USER; ALTER TABLE concurrency_group DISABLE TRIGGER USER;
                 ALTER TABLE disruption_budget DISABLE TRIGGER USER; ALTER TABLE jig DISABLE TRIGGER USER; ALTER TABLE step DISABLE TRIGGER guard_intent;
                 INSERT INTO object (hash, kind, body) VALUES (sha256('x'), 'role', 'x');
                 INSERT INTO blueprint (number, kind, root, enabled, epoch) VALUES (1, 'genesis', sha256('x'), true, 1);
                 UPDATE head SET number = 1;
                 INSERT INTO person (name) VALUES ('ada');
                 INSERT INTO jig (name, class) VALUES ('script', 'script'), ('asleep', 'script');
                 UPDATE jig SET active = false WHERE name = 'asleep';
                 BEGIN;
                 INSERT INTO deployment (id, parent, name, system, phantom, doc, head_no)
                 SELECT md5('d' || g)::uuid, CASE g WHEN 2 THEN md5('d1')::uuid END, 'd' || g, g = 1,
                        md5('n' || g)::uuid, sha256('x'), 1 FROM generate_series(1, 2) g;
                 INSERT INTO node (id, fqdn, deployment_id, alive, joined)
                 SELECT md5('n' || g)::uuid, 'n' || g || '.x.example', md5('d1')::uuid, true, 'confirmed'
                 FROM generate_series(1, 40) g;
                 COMMIT;",
            )
            .await;
        floor.workers(1000).await;
        floor
    }

    async fn sql(&self, sql: &str) {
        self.0.owner().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    async fn workers(&self, capacity: i32) {
        self.sql("DELETE FROM worker").await;
        let sql = format!(
            "INSERT INTO worker (name, phase, capacity, jigs, lease_until)
             VALUES ('w', 'confirmed', {capacity}, '{{script}}', now() + interval '1 hour')"
        );
        self.sql(&sql).await;
    }

    /// Steps of a role on nodes `first..=last` of deployment `d<n>`. `columns` and `values` set
    /// further columns.
    async fn steps(
        &self,
        deployment: i32,
        role: &str,
        (first, last): (i32, i32),
        columns: &str,
        values: &str,
    ) {
        let sql = format!(
            "INSERT INTO concurrency_group (deployment_id, name) VALUES (md5('d{deployment}')::uuid, '{role}') ON CONFLICT DO NOTHING;
             INSERT INTO noderole (id, node_id, role, deployment_id, role_hash)
             SELECT md5('{role}' || g)::uuid, md5('n' || g)::uuid, '{role}', md5('d{deployment}')::uuid, sha256('x')
             FROM generate_series({first}, {last}) g;
             INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation, content_hash, state, node_up, since{columns})
             SELECT md5('{role}' || g)::uuid, md5('{role}' || g)::uuid, md5('n' || g)::uuid, l.id, 0, 'script', 1, sha256('x'),
                    'todo', true, '2020-01-01'{values}
             FROM generate_series({first}, {last}) g, concurrency_group l
             WHERE l.name = '{role}' AND l.deployment_id = md5('d{deployment}')::uuid;"
        );
        self.sql(&sql).await;
    }

    /// One claim round as the worker's role. Returns the number of started runs per role, or `None`
    /// while another transaction claims.
    async fn round(&self, most: i64, batch: i64) -> Option<BTreeMap<String, usize>> {
        let mut tx = self.0.worker().begin().await.unwrap();
        let lock = "SELECT pg_try_advisory_xact_lock($1)";
        let mine: bool =
            sqlx::query_scalar(lock).bind(CLAIM_LOCK).fetch_one(&mut *tx).await.unwrap();
        if !mine {
            return None;
        }
        sqlx::query("SELECT pg_advisory_xact_lock_shared($1)")
            .bind(APPLY_LOCK)
            .execute(&mut *tx)
            .await
            .unwrap();
        sqlx::query(CLAIM).bind(most).bind(batch).bind(60.0_f64).fetch_all(&mut *tx).await.unwrap();
        let roles: Vec<String> = sqlx::query_scalar(
            "SELECT n.role FROM run r JOIN step s ON s.id = r.step_id JOIN noderole n ON n.id = s.noderole_id
             WHERE r.queued_at = now()",
        )
        .fetch_all(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        let mut started = BTreeMap::new();
        for role in roles {
            *started.entry(role).or_default() += 1;
        }
        Some(started)
    }

    /// Repeats rounds until nothing more starts, and returns the number of runs.
    async fn claim(&self, most: i64) -> usize {
        let mut all = 0;
        loop {
            let started: usize = self.round(most, 10).await.unwrap().values().sum();
            all += started;
            if started == 0 {
                return all;
            }
        }
    }

    async fn end(&self, runs: i64) {
        let sql = format!(
            "WITH ended AS (UPDATE run SET state = 'ended', ended_at = now(), outcome = 'succeeded'
               WHERE id IN (SELECT id FROM run WHERE ended_at IS NULL ORDER BY id LIMIT {runs}) RETURNING step_id)
             UPDATE step SET state = 'active', applied_generation = generation WHERE id IN (SELECT step_id FROM ended)"
        );
        self.sql(&sql).await;
    }
}

fn one(role: &str) -> BTreeMap<String, usize> {
    [(role.to_owned(), 1)].into()
}

#[tokio::test]
async fn claim_respects_limit_and_worker_capacity() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "a", (1, 40), "", "").await;
    assert_eq!(floor.claim(10).await, 10);
    floor.end(3).await;
    assert_eq!(floor.claim(10).await, 3);
    floor.workers(12).await;
    assert_eq!(floor.claim(1000).await, 2);
    floor.sql("UPDATE worker SET capacity = 1000, lease_until = now()").await;
    assert_eq!(floor.claim(1000).await, 0, "a worker without a heartbeat has no capacity");
    floor.sql("UPDATE worker SET lease_until = now() + interval '1 hour', phase = 'nack'").await;
    assert_eq!(floor.claim(1000).await, 0);
    floor.workers(1000).await;
    assert_eq!(floor.claim(1000).await, 25, "workers with enough capacity must claim the rest");
}

#[tokio::test]
async fn claim_counts_no_capacity_of_draining_workers() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "a", (1, 40), "", "").await;
    floor.workers(4).await;
    assert_eq!(floor.claim(1000).await, 4);
    floor
        .sql(
            "UPDATE run SET state = 'running', started_at = now(), worker_id = (SELECT id FROM worker);
             UPDATE worker SET drain_by = (SELECT id FROM person), drain_since = now(), drain_reason = 'x'",
        )
        .await;
    floor.end(1).await;
    assert_eq!(floor.claim(1000).await, 0, "the only worker is draining");
    floor
        .sql(
            "INSERT INTO worker (name, phase, capacity, jigs, lease_until)
             VALUES ('o', 'confirmed', 5, '{script}', now() + interval '1 hour')",
        )
        .await;
    assert_eq!(
        floor.claim(6).await,
        3,
        "the three runs of the draining worker count for the limit"
    );
    assert_eq!(
        floor.claim(1000).await,
        2,
        "runs of the draining worker use no slot of the other worker"
    );
    floor.sql("UPDATE worker SET drain_by = NULL, drain_since = NULL, drain_reason = NULL").await;
    assert_eq!(floor.claim(1000).await, 1);
}

#[tokio::test]
async fn concurrent_claims_respect_limit() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "a", (1, 40), "", "").await;
    let rounds =
        || async { floor.round(10, 4).await.map_or(0, |started| started.values().sum::<usize>()) };
    for _ in 0..5 {
        tokio::join!(rounds(), rounds(), rounds(), rounds(), rounds(), rounds());
    }
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM run WHERE ended_at IS NULL")
        .fetch_one(floor.0.worker())
        .await
        .unwrap();
    assert_eq!(open, 10);
}

#[tokio::test]
async fn concurrency_group_limits_and_chunks_are_respected() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "rolling", (1, 10), "", "").await;
    floor.steps(1, "chunk", (11, 20), "", "").await;
    floor
        .sql("UPDATE concurrency_group SET max_running = 2; UPDATE concurrency_group SET mode = 'chunk', max_running = 3 WHERE name = 'chunk'")
        .await;
    assert_eq!(floor.claim(100).await, 5);
    let end_one = |role: &str| {
        format!(
            "WITH ended AS (UPDATE run SET state = 'ended', ended_at = now(), outcome = 'succeeded' WHERE id = (
               SELECT min(r.id) FROM run r JOIN concurrency_group l ON l.id = r.concurrency_group_id WHERE l.name = '{role}' AND ended_at IS NULL)
             RETURNING step_id)
             UPDATE step SET state = 'active', applied_generation = 1 WHERE id IN (SELECT step_id FROM ended)"
        )
    };
    floor.sql(&end_one("rolling")).await;
    assert_eq!(floor.round(100, 10).await.unwrap(), one("rolling"));
    for left in [2, 1] {
        floor.sql(&end_one("chunk")).await;
        assert_eq!(floor.claim(100).await, 0, "{left} steps of the chunk still run");
    }
    floor.sql(&end_one("chunk")).await;
    assert_eq!(floor.claim(100).await, 3);
}

#[tokio::test]
async fn node_has_one_exclusive_run() {
    let floor = ClaimDatabase::new().await;
    for role in ["a", "b", "c"] {
        floor.steps(1, role, (1, 1), "", "").await;
    }
    floor.steps(1, "shared", (1, 1), ", exclusive", ", false").await;
    let started = floor.round(100, 10).await.unwrap();
    assert_eq!(started.get("shared"), Some(&1), "{started:?}");
    assert_eq!(started.len(), 2, "{started:?}");
    assert_eq!(floor.claim(100).await, 0);
    floor.end(2).await;
    assert_eq!(floor.claim(100).await, 1);
}

#[tokio::test]
async fn noderole_runs_one_action_at_once() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "a", (1, 2), ", exclusive", ", false").await;
    floor
        .sql(
            "UPDATE noderole SET disposition = 'expunged';
             INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank, jig, generation, content_hash, state,
               node_up, exclusive)
             SELECT gen_random_uuid(), noderole_id, node_id, 'remove', concurrency_group_id, rank, jig, generation, content_hash, state,
               node_up, exclusive FROM step",
        )
        .await;
    assert_eq!(floor.claim(100).await, 2);
    floor.end(1).await;
    assert_eq!(floor.claim(100).await, 1);
}

#[tokio::test]
async fn hold_and_switch_stop_new_runs() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "above", (1, 1), "", "").await;
    floor.steps(2, "below", (2, 2), "", "").await;
    let hold = |name: &str| {
        format!(
            "UPDATE deployment SET on_hold_by = (SELECT id FROM person), on_hold_since = now() WHERE name = '{name}'"
        )
    };
    floor.sql(&hold("d1")).await;
    assert_eq!(floor.claim(100).await, 0, "a hold also applies to nested deployments");
    floor.sql("UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL").await;
    floor.sql(&hold("d2")).await;
    assert_eq!(floor.round(100, 10).await.unwrap(), one("above"));
    floor
        .sql(
            "UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL; UPDATE head SET enabled = false",
        )
        .await;
    assert_eq!(floor.claim(100).await, 0);
    floor.sql("UPDATE head SET enabled = true").await;
    assert_eq!(floor.round(100, 10).await.unwrap(), one("below"));
}

#[tokio::test]
async fn step_starts_only_on_fitting_node() {
    let floor = ClaimDatabase::new().await;
    for needs in ["alive", "any", "dead"] {
        floor.steps(1, needs, (1, 1), ", needs, exclusive", &format!(", '{needs}', false")).await;
    }
    let started =
        |rows: Option<BTreeMap<String, usize>>| rows.unwrap().into_keys().collect::<Vec<_>>();
    floor.sql("UPDATE node SET available = false").await;
    assert_eq!(started(floor.round(100, 10).await), [""; 0]);
    floor.sql("UPDATE node SET available = true, alive = false").await;
    assert_eq!(started(floor.round(100, 10).await), ["any", "dead"]);
    floor.sql("UPDATE node SET alive = true, joined = 'welcomed'").await;
    assert_eq!(started(floor.round(100, 10).await), [""; 0]);
    floor.sql("UPDATE node SET joined = 'confirmed'").await;
    assert_eq!(started(floor.round(100, 10).await), ["alive"]);
}

#[tokio::test]
async fn blocked_steps_are_not_claimed() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "later", (1, 1), ", not_before", ", now() + interval '1 hour'").await;
    floor.steps(1, "blocked", (2, 2), "", "").await;
    floor
        .sql("UPDATE step SET state = 'blocked', pending = 1 WHERE id = md5('blocked2')::uuid")
        .await;
    floor.steps(1, "immediate", (3, 3), ", immediate", ", true").await;
    floor.steps(1, "skipped", (4, 4), ", skipped", ", 'condition'").await;
    floor.steps(1, "rests", (5, 5), ", applied_generation", ", 1").await;
    floor.steps(1, "asleep", (6, 6), "", "").await;
    floor.sql("UPDATE step SET jig = 'asleep' WHERE id = md5('asleep6')::uuid").await;
    floor.steps(1, "frozen", (7, 7), "", "").await;
    floor.steps(1, "broken", (7, 7), ", blocks_node", ", true").await;
    floor.sql("UPDATE step SET state = 'error' WHERE id = md5('broken7')::uuid").await;
    floor.steps(1, "again", (8, 8), ", applied_generation, cause", ", 1, 'drift'").await;
    assert_eq!(floor.round(100, 100).await.unwrap(), one("again"));
    floor
        .sql("UPDATE step SET blocks_node = false; UPDATE step SET not_before = now(); UPDATE jig SET active = true")
        .await;
    let started: Vec<String> = floor.round(100, 100).await.unwrap().into_keys().collect();
    assert_eq!(started, ["asleep", "frozen", "later"]);
}

/// A bug, or a stolen server role, may set such a step to TODO.
#[tokio::test]
async fn step_before_its_parent_blocks_no_other() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "child", (1, 1), "", "").await;
    floor.steps(1, "parent", (1, 1), "", "").await;
    floor
        .sql(
            "ALTER TABLE edge DISABLE TRIGGER guard_intent;
             INSERT INTO edge VALUES (md5('child1')::uuid, md5('parent1')::uuid, 'hard');
             UPDATE step SET since = '2019-01-01', rank = 1 WHERE id = md5('child1')::uuid;
             UPDATE concurrency_group SET name = 'both' WHERE name = 'child';
             UPDATE step SET concurrency_group_id = (SELECT id FROM concurrency_group WHERE name = 'both')",
        )
        .await;
    assert_eq!(
        floor.round(100, 1).await.unwrap(),
        one("parent"),
        "the parent must be claimed although its child shares its group and node"
    );
    floor.end(1).await;
    assert_eq!(floor.round(100, 1).await.unwrap(), one("child"));
}

#[tokio::test]
async fn disruption_budget_counts_nodes() {
    let floor = ClaimDatabase::new().await;
    floor
        .sql(
            "INSERT INTO disruption_budget (deployment_id, name, max_down) SELECT id, 'rack', 2 FROM deployment WHERE name = 'd1'",
        )
        .await;
    let budget = ", (SELECT array_agg(id) FROM disruption_budget)";
    for role in ["a", "b"] {
        floor
            .steps(
                1,
                role,
                (1, 5),
                ", disruption_budget_ids, exclusive",
                &format!("{budget}, false"),
            )
            .await;
    }
    assert_eq!(floor.claim(100).await, 4, "both steps of two nodes are claimed");
    floor.sql("UPDATE node SET alive = false WHERE fqdn = 'n5.x.example'; UPDATE step SET node_up = false WHERE node_id = md5('n5')::uuid").await;
    floor.end(2).await;
    assert_eq!(floor.claim(100).await, 0, "the dead node counts as down, too");
    floor.end(2).await;
    assert_eq!(floor.claim(100).await, 2, "both steps of one more node are claimed");
}

#[tokio::test]
async fn claim_order_is_fair_and_by_priority() {
    let floor = ClaimDatabase::new().await;
    floor.steps(1, "many", (1, 20), "", "").await;
    floor.steps(1, "urgent", (21, 21), ", priority", ", 5").await;
    floor.sql("UPDATE step SET rank = 9, since = now() WHERE id = md5('urgent21')::uuid").await;
    assert_eq!(floor.round(100, 1).await.unwrap(), one("urgent"));
    floor.steps(1, "deep", (22, 22), "", "").await;
    floor
        .sql("UPDATE step SET rank = 7, since = '2019-01-01' WHERE id = md5('deep22')::uuid")
        .await;
    assert_eq!(
        floor.round(100, 1).await.unwrap(),
        one("deep"),
        "the step that has waited longest is first"
    );
    floor.steps(2, "few", (23, 23), "", "").await;
    floor.sql("UPDATE step SET since = '2021-01-01' WHERE id = md5('few23')::uuid").await;
    assert_eq!(
        floor.round(100, 1).await.unwrap(),
        one("few"),
        "the other deployment already has two runs"
    );
}

/// `d1` has 10,000 ready steps, each on its own node. `d2` gets three that become ready later, on
/// other nodes.
async fn crowd() -> ClaimDatabase {
    let floor = ClaimDatabase::new().await;
    floor
        .sql(
            "INSERT INTO node (id, fqdn, deployment_id, alive, joined)
             SELECT md5('n' || g)::uuid, 'n' || g || '.x.example', md5('d1')::uuid, true, 'confirmed'
             FROM generate_series(41, 10003) g",
        )
        .await;
    floor.steps(1, "many", (1, 10_000), "", "").await;
    floor
}

#[tokio::test]
async fn large_deployment_does_not_starve_small_one() {
    let floor = crowd().await;
    assert_eq!(floor.claim(10).await, 10, "the large deployment takes every slot");
    floor.steps(2, "few", (10_001, 10_003), "", "").await;
    floor.sql("UPDATE step SET since = now() WHERE concurrency_group_id = (SELECT id FROM concurrency_group WHERE name = 'few')").await;
    assert_eq!(floor.claim(10).await, 0, "no slot is free");
    floor.end(1).await;
    assert_eq!(
        floor.round(10, 10).await.unwrap(),
        one("few"),
        "the first free slot goes to the small deployment"
    );
    floor.end(4).await;
    let next = floor.round(10, 10).await.unwrap();
    assert_eq!(
        (next["few"], next["many"]),
        (2, 2),
        "the small deployment must get two of the four free slots"
    );
}

#[tokio::test]
async fn deployment_priority_changes_claim_order() {
    let floor = crowd().await;
    floor.steps(2, "few", (10_001, 10_003), "", "").await;
    floor.sql("UPDATE deployment SET priority = -1 WHERE name = 'd2'").await;
    assert_eq!(floor.round(2, 10).await.unwrap(), BTreeMap::from([("many".to_owned(), 2)]));
    floor.sql("UPDATE deployment SET priority = 1 WHERE name = 'd2'").await;
    assert_eq!(floor.round(4, 10).await.unwrap(), BTreeMap::from([("few".to_owned(), 2)]));
}

#[tokio::test]
async fn jig_without_worker_uses_no_slot() {
    let floor = ClaimDatabase::new().await;
    floor.sql("INSERT INTO jig (name, class) VALUES ('puppet', 'puppet')").await;
    floor.steps(1, "a", (1, 2), "", "").await;
    floor.sql("UPDATE step SET jig = 'puppet'").await;
    assert_eq!(floor.claim(10).await, 0);
    floor.sql("UPDATE worker SET jigs = '{script,puppet}'").await;
    assert_eq!(floor.claim(10).await, 2);
}
