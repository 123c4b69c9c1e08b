//! The audit that the database writes: it records the right changes, every row is sealed, and no
//! role can forge a row.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _};
use world::{World, assert_refused, state};

const DENIED: &str = "42501";

async fn database_rows(world: &World, action: &str) -> Vec<(String, Value)> {
    let sql =
        "SELECT subject, detail FROM audit WHERE source = 'database' AND action = $1 ORDER BY id";
    sqlx::query_as(sql).bind(action).fetch_all(world.db.app()).await.unwrap()
}

async fn unsealed(world: &World) -> i64 {
    let sql = "SELECT count(*) FROM audit a WHERE NOT EXISTS (SELECT FROM seal s WHERE s.audit_id = a.id)";
    sqlx::query_scalar(sql).fetch_one(world.db.app()).await.unwrap()
}

#[tokio::test]
async fn each_change_is_audited() {
    let world = World::new().await;
    world.change(world.web).await;
    world.switch(false).await.unwrap();
    let statements = [
        ("person.insert", "INSERT INTO person (name) VALUES ('zed')"),
        ("person.update", "UPDATE person SET permissions = '{admin}' WHERE name = 'zed'"),
        (
            "scoped_grant.insert",
            "INSERT INTO scoped_grant SELECT p.id, 'operator', d.id FROM person p, deployment d WHERE p.name = 'zed' AND d.name = 'web'",
        ),
        ("scoped_grant.delete", "DELETE FROM scoped_grant"),
        (
            "account.insert",
            "INSERT INTO account (person_id, password_hash) SELECT id, '$argon2-first' FROM person WHERE name = 'zed'",
        ),
        (
            "account.update",
            "UPDATE account SET password_hash = '$argon2-second', changed_at = clock_timestamp()",
        ),
        (
            "session.insert",
            "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at) \
                            SELECT sha256('opaque'), id, now() + '1 h', now() + '1 h' FROM person WHERE name = 'zed'",
        ),
        ("session.delete", "DELETE FROM session WHERE token_hash = sha256('opaque')"),
        (
            "token.insert",
            "INSERT INTO token (kind, hash, person_id, expires_at) \
                          SELECT 'sign_in', sha256('opaque'), id, now() + '1 h' FROM person WHERE name = 'zed'",
        ),
        ("token.update", "UPDATE token SET revoked_at = now()"),
        (
            "node.insert",
            "INSERT INTO node (fqdn, deployment_id) SELECT 'bare.x.example', id FROM deployment WHERE system",
        ),
        (
            "node.update",
            "UPDATE node SET connection = '{\"user\": \"root\"}' WHERE fqdn = 'bare.x.example'",
        ),
        (
            "node.update",
            "UPDATE node SET hints = '{\"ip\": \"10.0.0.1\"}' WHERE fqdn = 'bare.x.example'",
        ),
        ("node.update", "UPDATE node SET description = 'a' WHERE fqdn = 'bare.x.example'"),
        (
            "node.update",
            "UPDATE node SET macs = '{00:25:90:aa:00:01}' WHERE fqdn = 'bare.x.example'",
        ),
        ("node.update", "UPDATE node SET serial = 'b' WHERE fqdn = 'bare.x.example'"),
        ("node.update", "UPDATE node SET available = false WHERE fqdn = 'bare.x.example'"),
        (
            "node.update",
            "UPDATE node SET removed_in = (SELECT number FROM head) WHERE fqdn = 'bare.x.example'",
        ),
        (
            "deployment.update",
            "UPDATE deployment SET on_hold_by = (SELECT id FROM person WHERE name = 'ada'), on_hold_since = now() WHERE name = 'web'",
        ),
        (
            "proposal.insert",
            "INSERT INTO proposal (deployment_id, created_by) SELECT d.id, p.id FROM deployment d, person p \
                             WHERE d.name = 'storage' AND p.name = 'ada'",
        ),
        (
            "edit.insert",
            "INSERT INTO edit (proposal_id, seq, actor, body) SELECT max(p.id), 1, max(p.created_by::text)::uuid, '{\"edit\": 1}' FROM proposal p",
        ),
        (
            "edit.update",
            "UPDATE edit SET undone = true WHERE proposal_id = (SELECT max(id) FROM proposal)",
        ),
        (
            "access_change.update",
            "UPDATE access_change SET dismissed_at = now() WHERE id = (SELECT max(id) FROM access_change)",
        ),
        (
            "proposal.update",
            "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'",
        ),
    ];
    for (action, sql) in statements {
        let before = database_rows(&world, action).await.len();
        world.owner(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(database_rows(&world, action).await.len(), before + 1, "{action}: {sql}");
    }
    for (action, rows) in
        [("blueprint.insert", 3), ("policy.insert", 1), ("review.insert", 1), ("verdict.insert", 1)]
    {
        assert_eq!(database_rows(&world, action).await.len(), rows, "{action}");
    }
    let review = database_rows(&world, "review.insert").await.remove(0).1;
    assert_eq!(review["authors"].as_array().unwrap().len(), 1);
    assert_eq!(review["base"].as_object().unwrap().len(), 2);
    let all: String = sqlx::query_scalar("SELECT string_agg(detail::text, '') FROM audit")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    for secret in ["argon2", "token_hash", "password_hash", "\"hash\": \"\\\\x7b"] {
        assert!(!all.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn dropped_reviews_are_audited() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.base.push((world.storage, world.head_no(world.storage).await));
    let review = world.submit(&planned).await.unwrap();
    world.change(world.storage).await;
    let send_back = format!(
        "UPDATE proposal SET version = version + 1 WHERE id = {0};
         INSERT INTO replan (before_id, proposal_id, version, blueprint_number, refused)
         SELECT {review}, id, version, 2, '[\"gone\"]' FROM proposal WHERE id = {0}",
        planned.proposal
    );
    world.app(&send_back).await.unwrap();
    let (raised, sent_back) = (
        database_rows(&world, "proposal.update").await,
        database_rows(&world, "replan.insert").await,
    );
    assert_eq!(raised.last().unwrap().1["version"], planned.version + 1);
    assert_eq!(sent_back.len(), 1);
}

#[tokio::test]
async fn comment_audit_contains_only_text_hash() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    let comment = format!(
        "INSERT INTO comment (review_id, person_id, body) VALUES ({review}, '{}', 'looks wrong')",
        world.bo
    );
    world.app_as(world.bo, &comment).await.unwrap();
    let resolve = "UPDATE comment SET resolved_by = person_id, resolved_at = now()";
    world.app_as(world.bo, resolve).await.unwrap();
    let (opened, resolved) = (
        database_rows(&world, "comment.insert").await,
        database_rows(&world, "comment.update").await,
    );
    assert_eq!((opened.len(), resolved.len()), (1, 1));
    let detail = opened[0].1.to_string();
    assert!(detail.contains("body_sha256") && !detail.contains("looks wrong"), "{detail}");
}

#[tokio::test]
async fn node_progress_is_not_audited() {
    let world = World::new().await;
    let before = database_rows(&world, "node.update").await.len();
    world
        .owner("UPDATE node SET alive = true, alive_since = now(), last_seen_at = now() WHERE NOT phantom")
        .await
        .unwrap();
    world.owner("UPDATE node SET available = true, connection = connection").await.unwrap();
    assert_eq!(database_rows(&world, "node.update").await.len(), before);
}

#[tokio::test]
async fn run_start_and_end_are_audited() {
    let world = World::new().await;
    let claim = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until) \
                 SELECT id, node_id, concurrency_group_id, generation, 1, 1, content_hash, true, now() FROM step LIMIT 1";
    world.owner(claim).await.unwrap();
    world.owner("INSERT INTO worker (name, lease_until) VALUES ('w', now())").await.unwrap();
    world
        .owner("UPDATE run SET state = 'running', started_at = now(), worker_id = (SELECT id FROM worker)")
        .await
        .unwrap();
    world.owner("UPDATE run SET lease_until = now() + '1 h', log_bytes = 5").await.unwrap();
    world
        .owner("UPDATE run SET state = 'ended', ended_at = now(), outcome = 'lost', result = '{\"a\": 1}'")
        .await
        .unwrap();
    world.owner("UPDATE run SET outcome = 'late'").await.unwrap();
    let start = database_rows(&world, "run.start").await;
    let end = database_rows(&world, "run.end").await;
    assert_eq!((start.len(), end.len()), (1, 2));
    let run = &start[0].1;
    for field in [
        "step_id",
        "node_id",
        "generation",
        "blueprint_number",
        "epoch",
        "content_hash",
        "started_at",
    ] {
        assert!(
            !run[field].is_null() && end.iter().all(|(_, end)| end[field] == run[field]),
            "{field}: {run}"
        );
    }
    assert_eq!((&end[0].1["outcome"], &end[1].1["outcome"]), (&"lost".into(), &"late".into()));
    assert!(run.get("result").is_none() && end[1].1.get("result").is_none());
}

#[tokio::test]
async fn reserved_ids_do_not_prevent_sealing() {
    let world = World::new().await;
    let mut late = world.db.app().begin().await.unwrap();
    late.execute("INSERT INTO audit (action) VALUES ('late')").await.unwrap();
    let reserve = "SELECT count(nextval(pg_get_serial_sequence('audit', 'id'))) FROM generate_series(1, 150000)";
    sqlx::query(AssertSqlSafe(reserve)).execute(world.db.owner()).await.unwrap();
    world.app("INSERT INTO audit (action) VALUES ('after')").await.unwrap();
    sqlx::query("SELECT seal_audit(100000)").execute(world.db.app()).await.unwrap();
    late.commit().await.unwrap();
    assert_eq!(unsealed(&world).await, 1);
    let sealed: i32 =
        sqlx::query_scalar("SELECT seal_audit(100000)").fetch_one(world.db.app()).await.unwrap();
    assert_eq!((sealed, unsealed(&world).await), (1, 0));
    let broken: Option<i64> =
        sqlx::query_scalar("SELECT audit_broken_at()").fetch_one(world.db.app()).await.unwrap();
    assert_eq!(broken, None);
}

#[tokio::test]
async fn role_cannot_forge_or_hide_rows() {
    let world = World::new().await;
    for sql in [
        "INSERT INTO audit (action, source) VALUES ('verdict.insert', 'database')",
        "INSERT INTO audit (id, action) OVERRIDING SYSTEM VALUE VALUES (-5, 'hidden')",
        "DELETE FROM audit_unsealed",
        "UPDATE audit_unsealed SET audit_id = -audit_id",
        "INSERT INTO audit_unsealed VALUES (-1)",
        "UPDATE audit SET detail = '{}'",
        "DELETE FROM audit",
        "ALTER TABLE audit DISABLE TRIGGER guard_audit",
        "ALTER TABLE verdict DISABLE TRIGGER guard_audit",
    ] {
        assert_eq!(state(world.app(sql).await), DENIED, "{sql}");
    }
    let picked = state(world.app("INSERT INTO audit (id, action) VALUES (-5, 'hidden')").await);
    assert!(picked == DENIED || picked == "428C9", "{picked}");
}

#[tokio::test]
async fn actor_is_the_acting_person() {
    let world = World::new().await;
    // The row that act_as() writes for a person with a valid session.
    let act = "INSERT INTO acting (xid, person_id) SELECT pg_current_xact_id(), id FROM person WHERE name = 'ada'";
    for (who, refused) in [("ada", false), ("bo", true)] {
        let mut tx = world.db.owner().begin().await.unwrap();
        tx.execute(act).await.unwrap();
        let written = sqlx::query(
            "INSERT INTO audit (actor, action) SELECT id, 'note' FROM person WHERE name = $1",
        )
        .bind(who)
        .execute(&mut *tx)
        .await;
        if refused {
            assert_refused(who, written, Refusal::ActorMismatch);
        } else {
            written.unwrap();
        }
    }
    let mut tx = world.db.owner().begin().await.unwrap();
    tx.execute(act).await.unwrap();
    tx.execute("INSERT INTO person (name) VALUES ('zed')").await.unwrap();
    let actor: Option<uuid::Uuid> = sqlx::query_scalar(
        "SELECT actor FROM audit WHERE action = 'person.insert' ORDER BY id DESC LIMIT 1",
    )
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    assert_eq!(actor, Some(world.ada), "the database's rows name the acting person");
}

#[tokio::test]
async fn audited_submission_rejects_new_parts() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let mut tx = world.begin_as(world.ada).await;
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO review (proposal_id, version, change_hash, effects_hash, policy_number, approvals_needed, epoch, root_hash, risk, created_by) \
         VALUES ($1, $2, $3, $3, 1, 1, 1, $3, '{rerun}', $4) RETURNING id",
    )
    .bind(planned.proposal)
    .bind(planned.version)
    .bind(&planned.root)
    .bind(world.ada)
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    tx.execute("SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    let late = sqlx::query("INSERT INTO review_author VALUES ($1, $2)")
        .bind(id)
        .bind(world.ada)
        .execute(&mut *tx)
        .await;
    assert_refused("an author after the submission", late, Refusal::ReviewSealed);
}
