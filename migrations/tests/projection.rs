//! Rows match the documents of a commit: an approved commit with one additional manual statement.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal::{self, ProjectionMismatch, UnlistedRows};
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;
use world::{NewReview, World, assert_refused, node_doc};

/// A change of web that names every risk and has all approvals.
async fn approved(world: &World, mut planned: NewReview) -> (NewReview, i64) {
    planned.risk = ["destructive", "rerun", "removal", "move", "halt"].map(str::to_owned).into();
    planned.needed = 2;
    let review = world.submit(&planned).await.unwrap();
    for reviewer in [world.bo, world.cy] {
        world.verdict(review, reviewer, "approve").await.unwrap();
    }
    (planned, review)
}

async fn commit_with(
    world: &World,
    planned: &NewReview,
    review: i64,
    more: &str,
) -> Result<(), sqlx::Error> {
    let root = world.root_with(planned).await;
    let mut tx = world.db.app().begin().await?;
    let number = world.insert_blueprint(&mut tx, review, &root).await?;
    world.project(&mut tx, planned, number).await?;
    tx.execute(sqlx::raw_sql(AssertSqlSafe(more))).await?;
    tx.commit().await
}

#[tokio::test]
async fn row_without_listed_document_is_refused() {
    let world = World::new().await;
    world.grant_all().await;
    world
        .app("INSERT INTO node (fqdn, deployment_id) SELECT 'bare.x.example', id FROM deployment WHERE system")
        .await
        .unwrap();
    let planned = world.plan(world.web, world.ada).await;
    let (planned, review) = approved(&world, planned).await;
    let wide = json!({"name": "app", "jig": "script", "jig_class": "script",
        "run": {"concurrency_group": {"name": "app", "max_running": 1000}}});
    let wide = world.put("role", wide).await;
    let step = "INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank, jig, generation, content_hash, state, applied_generation)
                SELECT gen_random_uuid(), noderole_id, node_id, 'more', concurrency_group_id, 0, jig, 2, content_hash";
    let (n1, n2) = (format!("node_id = '{}'", world.n1), format!("node_id = '{}'", world.n2));
    let of = |fqdn: &str| {
        format!(
            "(SELECT s.id FROM step s JOIN node n ON n.id = s.node_id WHERE n.fqdn = '{fqdn}.x.example')"
        )
    };
    let cases: Vec<(String, Refusal)> = vec![
        (format!("UPDATE noderole SET data = '{{\"evil\": 1}}' WHERE {n2}"), UnlistedRows),
        (format!("UPDATE noderole SET data = '{{\"evil\": 1}}' WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE noderole SET doc = '{{}}' WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE noderole SET deployment_id = '{}' WHERE {n1}", world.storage), UnlistedRows),
        (format!("UPDATE noderole SET deployment_id = '{}' WHERE {n2}", world.web), UnlistedRows),
        (format!("UPDATE step SET destructive = true WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET exclusive = false WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET needs = 'any' WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET immediate = true WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET timeout_s = 9 WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET check_s = 9 WHERE {n1}"), ProjectionMismatch),
        // ACTIVE without a run, and everything else as it was.
        (
            format!(
                "UPDATE step SET immediate = true WHERE {n1};
                 UPDATE step SET state = 'active', applied_generation = generation WHERE {n1};
                 UPDATE step SET immediate = false WHERE {n1}"
            ),
            ProjectionMismatch,
        ),
        (
            format!("UPDATE step SET timeout_s = 9 WHERE {n1}; UPDATE step SET timeout_s = 3600 WHERE {n1}"),
            ProjectionMismatch,
        ),
        (format!("UPDATE step SET rank = 3 WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET join_kind = 'any' WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET concurrency_group_id = (SELECT concurrency_group_id FROM step WHERE {n2}) WHERE {n1}"), ProjectionMismatch),
        (format!("UPDATE step SET skipped = 'please' WHERE {n1}"), UnlistedRows),
        (format!("UPDATE step SET destructive = true WHERE {n2}"), UnlistedRows),
        (format!("UPDATE step SET exclusive = false WHERE {n2}"), UnlistedRows),
        (format!("UPDATE step SET generation = 2 WHERE {n2}"), UnlistedRows),
        (format!("UPDATE step SET content_hash = sha256('other') WHERE {n2}"), UnlistedRows),
        (format!("UPDATE step SET state = 'gone', pending = 0 WHERE {n2}"), UnlistedRows),
        (format!("{step}, 'todo', 0 FROM step WHERE {n1}"), ProjectionMismatch),
        (format!("{step}, 'active', 2 FROM step WHERE {n1}"), UnlistedRows),
        (format!("{step}, 'todo', 0 FROM step WHERE {n2}"), UnlistedRows),
        (format!("INSERT INTO edge VALUES ({}, {}, 'hard')", of("n1"), of("n2")), ProjectionMismatch),
        (format!("INSERT INTO edge VALUES ({}, {}, 'hard')", of("n2"), of("n1")), UnlistedRows),
        (format!("DELETE FROM step WHERE {n2}"), UnlistedRows),
        ("UPDATE concurrency_group SET max_running = 1000".into(), ProjectionMismatch),
        ("UPDATE concurrency_group SET max_running = 1000; SET CONSTRAINTS guard_concurrency_group_role IMMEDIATE".into(), ProjectionMismatch),
        (
            "SET CONSTRAINTS guard_concurrency_group_role IMMEDIATE; UPDATE concurrency_group SET max_running = 1000;
             UPDATE concurrency_group SET max_running = NULL"
                .into(),
            ProjectionMismatch,
        ),
        // The limit of another role, checked while a noderole names that role.
        (
            format!(
                "UPDATE noderole SET role_hash = '\\x{}' WHERE {n1}; UPDATE concurrency_group SET max_running = 1000;
                 SET CONSTRAINTS guard_concurrency_group_role IMMEDIATE",
                world::hex(&wide)
            ),
            UnlistedRows,
        ),
        (format!("INSERT INTO concurrency_group (deployment_id, name) VALUES ('{}', 'x')", world.storage), ProjectionMismatch),
        (format!("INSERT INTO disruption_budget (deployment_id, name, max_down) VALUES ('{}', 'x', 1)", world.web), UnlistedRows),
        ("UPDATE deployment SET name = 'x' WHERE name = 'storage'".into(), UnlistedRows),
        ("UPDATE deployment SET head_no = 1 WHERE name = 'web'".into(), UnlistedRows),
        ("UPDATE deployment SET head_no = 2 WHERE name = 'storage'".into(), ProjectionMismatch),
        ("UPDATE deployment SET removed_in = 2, head_no = 2 WHERE name = 'storage'".into(), UnlistedRows),
        ("UPDATE node SET fqdn = 'n7.x.example' WHERE fqdn = 'n2.x.example'".into(), UnlistedRows),
        ("UPDATE node SET fqdn = 'n7.x.example' WHERE fqdn = 'n1.x.example'".into(), ProjectionMismatch),
        (format!("UPDATE node SET deployment_id = '{}' WHERE fqdn = 'n1.x.example'", world.storage), ProjectionMismatch),
        (
            format!("SET CONSTRAINTS ALL IMMEDIATE; UPDATE step SET destructive = true WHERE {n1}"),
            Refusal::IntentOutsideCommit,
        ),
        (
            format!(
                "SET CONSTRAINTS ALL IMMEDIATE; SELECT note_projected(0); UPDATE step SET generation = 2 WHERE {n2}"
            ),
            Refusal::IntentOutsideCommit,
        ),
        (
            format!(
                "SET CONSTRAINTS ALL IMMEDIATE; SELECT note_projected(2); UPDATE step SET immediate = true WHERE {n1}"
            ),
            Refusal::IntentOutsideCommit,
        ),
        (format!("INSERT INTO blueprint_deployment VALUES ('{}', 2)", world.storage), ProjectionMismatch),
        (format!("INSERT INTO blueprint_deployment VALUES ('{}', 1)", world.n1), UnlistedRows),
        (format!("UPDATE node SET deployment_id = '{}' WHERE fqdn = 'bare.x.example'", world.web), UnlistedRows),
        ("UPDATE node SET fqdn = 'n8.x.example' WHERE fqdn = 'bare.x.example'".into(), UnlistedRows),
        ("UPDATE node SET removed_in = 1 WHERE fqdn = 'bare.x.example'".into(), UnlistedRows),
        (format!("INSERT INTO node (fqdn, deployment_id) VALUES ('n9.x.example', '{}')", world.system), UnlistedRows),
        (
            format!(
                "INSERT INTO node (fqdn, deployment_id, phantom, transport) VALUES ('n9.x.example', '{}', true, 'none')",
                world.web
            ),
            UnlistedRows,
        ),
        (
            "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
             SELECT gen_random_uuid(), id, 'x', gen_random_uuid(), doc, 2 FROM deployment WHERE name = 'web'"
                .into(),
            Refusal::UnlistedDocuments,
        ),
        ("UPDATE jig SET class = 'noop'".into(), UnlistedRows),
        ("UPDATE jig SET active = false".into(), ProjectionMismatch),
    ];
    for (sql, by) in cases {
        assert_refused(&sql, commit_with(&world, &planned, review, &sql).await, by);
    }
    commit_with(&world, &planned, review, "SELECT 1").await.unwrap();
}

/// The noderole of n1, which has only one.
async fn only_noderole(world: &World) -> Uuid {
    let sql = "SELECT id FROM noderole WHERE node_id = $1";
    sqlx::query_scalar(sql).bind(world.n1).fetch_one(world.db.app()).await.unwrap()
}

/// Statements that bind app a second time on n1, with the first as its parent.
fn bind_second(world: &World) -> String {
    format!(
        "INSERT INTO noderole (id, node_id, role, instance, deployment_id, role_hash, doc)
           SELECT gen_random_uuid(), node_id, role, 1, deployment_id, role_hash, '{{\"rank\": 1, \"reruns\": 0}}'
           FROM noderole WHERE node_id = '{0}';
         INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation, content_hash, state, pending)
           SELECT gen_random_uuid(), n.id, n.node_id, s.concurrency_group_id, 1, s.jig, 2, s.content_hash, 'blocked', 1
           FROM step s, noderole n WHERE s.node_id = '{0}' AND n.node_id = '{0}' AND n.instance = 1;
         INSERT INTO edge SELECT c.id, p.id, 'hard' FROM step c, step p WHERE c.rank = 1 AND p.rank = 0 AND p.node_id = '{0}'",
        world.n1
    )
}

#[tokio::test]
async fn deleted_edge_is_refused() {
    let world = World::new().await;
    world.grant_all().await;
    let parent = only_noderole(&world).await;
    let carried = |port: i32| {
        let after = json!([{"parent": parent, "kind": "hard"}]);
        json!({"app": {"data": {"port": port}}, "app/1": {"rank": 1, "parents": after}})
    };
    let plan = async |port: i32| {
        let mut planned = world.plan(world.web, world.ada).await;
        let doc = node_doc(world.n1, "n1.x.example", world.web, carried(port));
        planned.documents[0].3 = Some(world.put("node", doc).await);
        approved(&world, planned).await
    };
    let bind = bind_second(&world);
    let (planned, review) = plan(1).await;
    let without = bind.split("INSERT INTO edge").next().unwrap_or_default();
    assert_refused(
        "a deleted edge",
        commit_with(&world, &planned, review, without).await,
        ProjectionMismatch,
    );
    commit_with(&world, &planned, review, &bind).await.unwrap();

    let (planned, review) = plan(2).await;
    let own = commit_with(&world, &planned, review, "DELETE FROM edge").await;
    assert_refused("a deleted edge of a listed node", own, ProjectionMismatch);
    let other = world.plan(world.storage, world.eve).await;
    let (other, review) = approved(&world, other).await;
    let foreign = commit_with(&world, &other, review, "DELETE FROM edge").await;
    assert_refused("a deleted edge of another node", foreign, UnlistedRows);
    commit_with(&world, &other, review, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn approved_policy_must_be_in_force() {
    let world = World::new().await;
    let stricter = world.put("policy", json!({"approvals": 2, "by_risk": {}})).await;
    let planned =
        NewReview { new_policy: Some(stricter.clone()), ..world.plan(world.web, world.ada).await };
    let (planned, review) = approved(&world, planned).await;
    assert_refused(
        "a commit that keeps the old policy",
        commit_with(&world, &planned, review, "SELECT 1").await,
        Refusal::IncompleteProjection,
    );
    let brings = format!(
        "INSERT INTO policy (number, hash) VALUES (2, '\\x{}'); UPDATE head SET policy_number = 2",
        world::hex(&stricter)
    );
    commit_with(&world, &planned, review, &brings).await.unwrap();
}

#[tokio::test]
async fn transaction_commits_one_change() {
    let world = World::new().await;
    let (first, one) = approved(&world, world.plan(world.web, world.ada).await).await;
    let (_, two) = approved(&world, world.plan(world.storage, world.eve).await).await;
    let root = world.root_with(&first).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, one, &root).await.unwrap();
    world.project(&mut tx, &first, number).await.unwrap();
    assert_refused(
        "a second commit in one transaction",
        world.insert_blueprint(&mut tx, two, &root).await,
        Refusal::NotNextBlueprint,
    );
}

/// A noderole that an earlier commit removed does not return with another change of the same node.
#[tokio::test]
async fn removed_noderole_stays_removed() {
    let world = World::new().await;
    world.grant_all().await;
    let parent = only_noderole(&world).await;
    let plan = async |port: i32, both: bool| {
        let mut planned = world.plan(world.web, world.ada).await;
        let mut carried = json!({"app": {"data": {"port": port}}});
        if both {
            carried["app/1"] = json!({"rank": 1, "parents": [{"parent": parent, "kind": "hard"}]});
        }
        let doc = node_doc(world.n1, "n1.x.example", world.web, carried);
        planned.documents[0].3 = Some(world.put("node", doc).await);
        approved(&world, planned).await
    };
    let (planned, review) = plan(1, true).await;
    commit_with(&world, &planned, review, &bind_second(&world)).await.unwrap();
    let (planned, review) = plan(2, false).await;
    let unbind = "DELETE FROM edge; UPDATE step SET state = 'gone', pending = 0 WHERE rank = 1;
                  UPDATE noderole SET disposition = 'gone' WHERE instance = 1";
    commit_with(&world, &planned, review, unbind).await.unwrap();

    let (planned, review) = plan(3, false).await;
    for (sql, by) in [
        ("UPDATE step SET state = 'blocked', pending = 1 WHERE rank = 1", ProjectionMismatch),
        ("UPDATE step SET state = 'todo' WHERE rank = 1", Refusal::InvalidStepTransition),
        ("UPDATE noderole SET disposition = 'in_service' WHERE instance = 1", UnlistedRows),
        (
            "SET CONSTRAINTS guard_projected IMMEDIATE; UPDATE noderole SET disposition = 'in_service' WHERE instance = 1",
            UnlistedRows,
        ),
        ("UPDATE noderole SET data = '{\"evil\": 1}' WHERE instance = 1", UnlistedRows),
        ("UPDATE step SET destructive = true WHERE rank = 1", UnlistedRows),
        ("UPDATE step SET content_hash = sha256('other') WHERE rank = 1", UnlistedRows),
    ] {
        assert_refused(sql, commit_with(&world, &planned, review, sql).await, by);
    }
    commit_with(&world, &planned, review, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn commit_cancels_runs_that_it_replaces() {
    let world = World::new().await;
    world.grant_all().await;
    for sql in [
        "UPDATE node SET alive = true, joined = 'confirmed' WHERE NOT phantom",
        "INSERT INTO worker (name, phase, capacity, jigs, lease_until)
         VALUES ('w', 'confirmed', 9, '{script}', now() + interval '1 hour')",
    ] {
        world.owner(sql).await.unwrap();
    }
    let claim = format!(
        "WITH moved AS (UPDATE step SET state = 'transition' WHERE node_id = '{}' AND state = 'todo' RETURNING *)
         INSERT INTO run (step_id, node_id, concurrency_group_id, generation, content_hash, exclusive, blueprint_number, epoch, lease_until)
         SELECT m.id, m.node_id, m.concurrency_group_id, m.generation, m.content_hash, m.exclusive, h.number, h.epoch,
           now() + interval '1 min' FROM moved m, head h",
        world.n1
    );
    assert_eq!(world.app(&claim).await.unwrap(), 1);
    world
        .app("UPDATE run SET state = 'running', started_at = now(), worker_id = (SELECT id FROM worker)")
        .await
        .unwrap();
    let planned = world.plan(world.web, world.ada).await;
    let (planned, review) = approved(&world, planned).await;
    let cancel = |by: &str| {
        format!(
            "UPDATE run SET cancel_requested = true, superseded = true, error = 'canceled by {by}'"
        )
    };
    for by in ["ada", "the commit of blueprint 9"] {
        let refused = commit_with(&world, &planned, review, &cancel(by)).await;
        assert_refused(by, refused, Refusal::PersonMismatch);
    }
    commit_with(&world, &planned, review, &cancel("the commit of blueprint 2")).await.unwrap();
}

#[tokio::test]
async fn milestone_does_not_pass_without_its_edges() {
    let world = World::new().await;
    world.grant_all().await;
    let parent = only_noderole(&world).await;
    let role =
        json!({"name": "ready", "jig": "noop", "jig_class": "noop", "flags": {"milestone": true}});
    let role = world::hex(&world.put("role", role).await);
    let ready = json!({"role": role, "rank": 1, "parents": [{"parent": parent, "kind": "hard"}]});
    let doc = node_doc(
        world.n1,
        "n1.x.example",
        world.web,
        json!({"app": {"data": {"port": 1}}, "ready": ready}),
    );
    let mut planned = world.plan(world.web, world.ada).await;
    planned.documents[0].3 = Some(world.put("node", doc).await);
    let (planned, review) = approved(&world, planned).await;
    let edge = "INSERT INTO edge SELECT c.id, p.id, 'hard' FROM step c, step p
                WHERE c.immediate AND p.rank = 0 AND p.node_id = c.node_id";
    let bind = format!(
        "INSERT INTO jig (name, class) VALUES ('noop', 'noop') ON CONFLICT DO NOTHING;
         INSERT INTO concurrency_group (deployment_id, name) VALUES ('{web}', 'ready');
         INSERT INTO noderole (id, node_id, role, deployment_id, role_hash, doc)
           VALUES (gen_random_uuid(), '{n1}', 'ready', '{web}', decode('{role}', 'hex'), '{{\"rank\": 1, \"reruns\": 0}}');
         INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, immediate, generation, content_hash, state, pending)
           SELECT gen_random_uuid(), n.id, n.node_id, l.id, 1, 'noop', true, 2, sha256('x'), 'blocked', 1
           FROM noderole n, concurrency_group l WHERE n.role = 'ready' AND l.name = 'ready';
         {edge}",
        web = world.web,
        n1 = world.n1
    );
    let active = "UPDATE step SET state = 'active', pending = 0, applied_generation = generation WHERE immediate";
    let around = format!(
        "{bind}; DELETE FROM edge WHERE child = (SELECT id FROM step WHERE immediate); {active}; {edge}"
    );
    let refused = commit_with(&world, &planned, review, &around).await;
    assert_refused(
        "a milestone that passed while its edges were missing",
        refused,
        ProjectionMismatch,
    );
    commit_with(&world, &planned, review, &bind).await.unwrap();
}
