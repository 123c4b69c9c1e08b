//! Statements that the application role cannot execute, and guards that return with each migration
//! run.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use sqlx::Executor as _;
use uuid::Uuid;
use world::{World, assert_refused, state};

const APPEND_ONLY: [&str; 13] = [
    "object",
    "policy",
    "barclamp",
    "blueprint",
    "review",
    "review_base",
    "review_author",
    "review_document",
    "blueprint_deployment",
    "not_restored",
    "verdict",
    "audit",
    "seal",
];

/// SQLSTATE of a missing privilege.
const DENIED: &str = "42501";

#[tokio::test]
async fn history_is_append_only() {
    let world = World::new().await;
    world.change(world.web).await;
    for table in APPEND_ONLY {
        let column: String = sqlx::query_scalar(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum = 2",
        )
        .bind(table)
        .fetch_one(world.db.app())
        .await
        .unwrap();
        for sql in [
            format!("UPDATE {table} SET {column} = {column}"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table} CASCADE"),
        ] {
            assert_eq!(state(world.app(&sql).await), DENIED, "{sql}");
            assert_refused(&sql, world.owner(&sql).await, Refusal::AppendOnly);
        }
    }
    assert_eq!(state(world.app("UPDATE event SET kind = ''").await), DENIED);
    assert_refused(
        "a changed event",
        world.owner("UPDATE event SET kind = ''").await,
        Refusal::AppendOnly,
    );
    assert_eq!(state(world.app("DELETE FROM event").await), DENIED);
    assert_eq!(state(world.app("DELETE FROM head").await), DENIED);
    assert_refused("a deleted head", world.owner("DELETE FROM head").await, Refusal::AppendOnly);
}

#[tokio::test]
async fn object_with_wrong_hash_is_refused() {
    let world = World::new().await;
    let sql = "INSERT INTO object (hash, kind, body) VALUES (sha256('a'), 'role', 'b')";
    assert_eq!(state(world.app(sql).await), "23514");
    let swap = "INSERT INTO object (hash, kind, body) SELECT hash, kind, 'b' FROM object LIMIT 1
                ON CONFLICT (hash) DO UPDATE SET body = excluded.body";
    assert_eq!(state(world.app(swap).await), DENIED);
}

#[tokio::test]
async fn intent_changes_only_in_a_commit() {
    let world = World::new().await;
    for sql in [
        "UPDATE deployment SET doc = doc",
        "UPDATE deployment SET parent = NULL WHERE name = 'web'",
        "UPDATE deployment SET name = 'x' WHERE name = 'web'",
        "UPDATE deployment SET head_no = head_no",
        "DELETE FROM deployment",
        "UPDATE node SET deployment_id = deployment_id",
        "UPDATE node SET doc = NULL",
        "UPDATE node SET fqdn = 'a.b.c'",
        "UPDATE node SET phantom = false",
        "DELETE FROM node WHERE fqdn = 'n1.x.example'",
        "INSERT INTO node (fqdn, deployment_id) SELECT 'a.b.c', id FROM deployment WHERE name = 'web'",
        "INSERT INTO node (fqdn, deployment_id, phantom, alive, transport)
           SELECT 'a.b.c', id, true, true, 'none' FROM deployment WHERE system",
        "INSERT INTO node (fqdn, deployment_id, doc) SELECT 'a.b.c', d.id, n.doc FROM deployment d, node n WHERE system",
        "UPDATE noderole SET data = '{}'",
        "UPDATE noderole SET role_hash = role_hash",
        "UPDATE noderole SET disposition = 'gone'",
        "DELETE FROM noderole",
        "UPDATE step SET generation = generation + 1",
        "UPDATE step SET content_hash = content_hash",
        "UPDATE step SET destructive = true",
        "UPDATE step SET skipped = 'please'",
        "UPDATE step SET state = 'todo', concurrency_group_id = concurrency_group_id",
        "DELETE FROM step",
        "INSERT INTO step SELECT * FROM step",
        "DELETE FROM edge",
        "INSERT INTO edge SELECT a.id, b.id, 'hard' FROM step a JOIN step b ON a.id <> b.id",
        "UPDATE concurrency_group SET max_running = 1000",
        "INSERT INTO disruption_budget (deployment_id, name, max_down) SELECT id, 'x', 1 FROM deployment",
        "INSERT INTO policy (number, hash) SELECT 2, hash FROM policy",
        "UPDATE head SET policy_number = 0",
    ] {
        // The server's role lacks the privilege for some of them, a worker for all.
        let refused = state(world.app(sql).await);
        assert!([DENIED, "GY002"].contains(&refused.as_str()), "{sql}: {refused}");
        assert_eq!(state(world.worker(sql).await), DENIED, "{sql}");
        assert_refused(sql, world.owner(sql).await, Refusal::IntentOutsideCommit);
    }
}

#[tokio::test]
async fn progress_needs_no_commit() {
    let world = World::new().await;
    for sql in [
        "UPDATE deployment SET on_hold_by = (SELECT id FROM person WHERE name = 'ada'), on_hold_since = now() WHERE name = 'web'",
        "INSERT INTO node (fqdn, deployment_id) SELECT 'bare.x.example', id FROM deployment WHERE system",
    ] {
        assert!(world.app_as(world.ada, sql).await.unwrap() > 0, "{sql}");
    }
}

#[tokio::test]
async fn server_and_workers_cannot_disable_guards() {
    let world = World::new().await;
    for sql in [
        "ALTER TABLE blueprint DISABLE TRIGGER ALL",
        "DROP TRIGGER guard_blueprint ON blueprint",
        "ALTER TABLE blueprint OWNER TO gantry_server",
        "CREATE OR REPLACE FUNCTION committing() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "SET session_replication_role = replica",
        "CREATE TABLE mine (n int)",
        "CREATE TEMP TABLE blueprint (xid xid8, kind text, epoch bigint)",
        "INSERT INTO seal (seq, audit_id, prev_hash, hash) VALUES (1, 1, sha256('a'), sha256('b'))",
        "INSERT INTO blueprint (number, xid, kind, root, enabled, epoch) SELECT 2, xid, kind, root, enabled, epoch FROM blueprint",
        "INSERT INTO verdict (review_id, person_id, kind, at) SELECT 1, id, 'approve', '2000-01-01' FROM person",
        "INSERT INTO audit (at, action) VALUES ('2000-01-01', 'x')",
        "UPDATE person SET kind = 'human'",
        "UPDATE head SET epoch = 7",
    ] {
        assert_eq!(state(world.app(sql).await), DENIED, "{sql}");
        assert_eq!(state(world.worker(sql).await), DENIED, "{sql}");
    }
}

/// The programs can't read `infinity` and could not show any page with it.
#[tokio::test]
async fn all_times_are_limited() {
    let world = World::new().await;
    let unlimited: Vec<String> = sqlx::query_scalar(
        "SELECT format('%s.%s', c.relname, a.attname)
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
           AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 'timestamptz'::regtype
           AND NOT EXISTS (SELECT FROM pg_constraint x WHERE x.conrelid = c.oid AND x.contype = 'c'
             AND pg_get_constraintdef(x.oid) LIKE '%9999-01-01%' AND a.attnum = ANY (x.conkey))",
    )
    .fetch_all(world.db.owner())
    .await
    .unwrap();
    assert_eq!(unlimited, Vec::<String>::new());
}

/// A read-only role must not be able to stop claims and commits, or to fill the disk.
#[tokio::test]
async fn metrics_role_cannot_lock_or_write_objects() {
    let world = World::new().await;
    for sql in [
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_xact_lock(1)",
        "SELECT pg_advisory_xact_lock_shared(2)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT lo_create(0)",
    ] {
        let error = sqlx::query(sql).execute(world.db.metrics()).await.unwrap_err();
        assert_eq!(
            error.as_database_error().and_then(|e| e.code()).as_deref(),
            Some(DENIED),
            "{sql}"
        );
    }
    for sql in ["SELECT lo_from_bytea(0, 'x')", "SELECT lo_create(0)"] {
        assert_eq!(state(world.app(sql).await), DENIED, "{sql}");
        assert_eq!(state(world.worker(sql).await), DENIED, "{sql}");
    }
}

#[tokio::test]
async fn temporary_table_does_not_shadow_real_table() {
    let world = World::new().await;
    // Even for the owner's temporary table, the guards read the real one.
    let mut tx = world.db.owner().begin().await.unwrap();
    let shadow = "CREATE TEMP TABLE blueprint AS SELECT pg_current_xact_id() AS xid, 'change'::text AS kind, 1::bigint AS epoch";
    tx.execute(shadow).await.unwrap();
    assert_refused(
        "a temporary table with the name of a real one",
        tx.execute("UPDATE step SET jig = jig").await,
        Refusal::IntentOutsideCommit,
    );
}

#[tokio::test]
async fn steps_follow_their_node() {
    let world = World::new().await;
    let fits = "SELECT bool_and(node_fits) FROM step WHERE node_id = $1";
    let fits = || async {
        sqlx::query_scalar::<_, bool>(fits).bind(world.n1).fetch_one(world.db.app()).await.unwrap()
    };
    for (change, expected) in [
        ("joined = 'none'", false),
        ("joined = 'confirmed'", true),
        ("alive = false", false),
        ("alive = true", true),
    ] {
        world
            .owner(&format!("UPDATE node SET {change} WHERE fqdn = 'n1.x.example'"))
            .await
            .unwrap();
        assert_eq!(fits().await, expected, "node_fits is wrong after {change}");
        world.worker("UPDATE step SET node_fits = NOT node_fits").await.unwrap();
        assert_eq!(fits().await, expected, "writing node_fits by hand must have no effect");
    }
    world.owner("UPDATE node SET available = false WHERE fqdn = 'n1.x.example'").await.unwrap();
    assert!(!fits().await, "the node is in maintenance");
    let other: bool = sqlx::query_scalar("SELECT bool_and(node_fits) FROM step WHERE node_id = $1")
        .bind(world.n2)
        .fetch_one(world.db.app())
        .await
        .unwrap();
    assert!(other);
}

#[tokio::test]
async fn run_identity_never_changes() {
    let world = World::new().await;
    let insert = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until)
                  SELECT id, node_id, concurrency_group_id, generation, 1, 1, content_hash, exclusive, now() FROM step WHERE node_id = ";
    let insert = format!("{insert} '{}'", world.n1);
    world.owner(&insert).await.unwrap();
    assert_eq!(
        state(world.owner(&insert).await),
        "23505",
        "a step has one open run, and a node has one exclusive run"
    );
    for sql in [
        "UPDATE run SET generation = 9",
        "UPDATE run SET blueprint_number = 1",
        "UPDATE run SET epoch = 9",
    ] {
        assert_eq!(state(world.worker(sql).await), DENIED, "{sql}");
        assert_refused(sql, world.owner(sql).await, Refusal::RunIdentityChanged);
    }
    assert_eq!(state(world.worker("DELETE FROM run").await), DENIED);
    assert_refused(
        "a run deleted by the owner",
        world.owner("DELETE FROM run").await,
        Refusal::RunIdentityChanged,
    );
    world
        .owner("UPDATE run SET state = 'ended', ended_at = now(), outcome = 'lost'")
        .await
        .unwrap();
    world.owner("UPDATE run SET outcome = 'late', result = '{}'").await.unwrap();
    let reopened = "UPDATE run SET state = 'queued', ended_at = NULL, outcome = NULL";
    assert_refused("a reopened run", world.worker(reopened).await, Refusal::AlreadyUsed);
    world.owner(&insert).await.unwrap();
}

#[tokio::test]
async fn one_time_token_is_used_once() {
    let world = World::new().await;
    let sql = "INSERT INTO token (kind, hash, person_id, expires_at)
               SELECT 'sign_in', sha256('secret'), id, now() + interval '1 hour' FROM person WHERE name = 'ada'";
    world.owner(sql).await.unwrap();
    let spend = "SELECT FROM begin_session_by_link('secret', sha256(gen_random_uuid()::text::bytea), '1h', '1h', '', '')";
    let (one, two) = tokio::join!(world.app(spend), world.app(spend));
    assert_eq!(one.unwrap() + two.unwrap(), 1);
    assert_eq!(state(world.app("UPDATE token SET used_at = NULL").await), DENIED);
    assert_refused(
        "a token that is used twice",
        world.owner("UPDATE token SET used_at = NULL").await,
        Refusal::AlreadyUsed,
    );
}

#[tokio::test]
async fn audit_chain_detects_tampering() {
    let world = World::new().await;
    // The setup itself has written audit rows.
    let before: i32 =
        sqlx::query_scalar("SELECT seal_audit(1000)").fetch_one(world.db.app()).await.unwrap();
    let before = i64::from(before);
    for n in 0..5 {
        world
            .app(&format!("INSERT INTO audit (action, detail) VALUES ('act', '{{\"n\": {n}}}')"))
            .await
            .unwrap();
    }
    let seal = "SELECT seal_audit($1)";
    let first: i32 = sqlx::query_scalar(seal).bind(3).fetch_one(world.db.app()).await.unwrap();
    let (one, two) = tokio::join!(
        sqlx::query_scalar::<_, i32>(seal).bind(100).fetch_one(world.db.app()),
        sqlx::query_scalar::<_, i32>(seal).bind(100).fetch_one(world.db.app())
    );
    assert_eq!((first, one.unwrap() + two.unwrap()), (3, 2), "each row is sealed once");
    let broken_at = || async {
        sqlx::query_scalar::<_, Option<i64>>("SELECT audit_broken_at()")
            .fetch_one(world.db.app())
            .await
            .unwrap()
    };
    assert_eq!(broken_at().await, None);
    world.owner("ALTER TABLE audit DISABLE TRIGGER guard_append_only").await.unwrap();
    world
        .owner(
            "UPDATE audit SET detail = '{\"n\": 7}' WHERE action = 'act' AND detail = '{\"n\": 3}'",
        )
        .await
        .unwrap();
    assert_eq!(broken_at().await, Some(before + 4));
    world
        .owner("UPDATE audit SET detail = '{\"n\": 3}' WHERE detail = '{\"n\": 7}'")
        .await
        .unwrap();
    assert_eq!(broken_at().await, None);
    world.owner("ALTER TABLE seal DISABLE TRIGGER guard_append_only").await.unwrap();
    world.owner(&format!("DELETE FROM seal WHERE seq = {}", before + 2)).await.unwrap();
    assert_eq!(broken_at().await, Some(before + 3), "the chain has a missing link");
}

#[tokio::test]
async fn log_partitions_exist_and_chunks_are_unique() {
    let world = World::new().await;
    let line =
        "INSERT INTO run_log (run_id, at_offset, body) VALUES ($1, 0, 'x') ON CONFLICT DO NOTHING";
    for (run, stored) in [(1_i64, 1), (1, 0), (500_000_000, 1), (500_000_000, 0)] {
        let done = sqlx::query(line).bind(run).execute(world.db.owner()).await.unwrap();
        assert_eq!(done.rows_affected(), stored, "run {run} has other chunks than expected");
    }
    let made: i32 = sqlx::query_scalar("SELECT ensure_run_log_room()")
        .fetch_one(world.db.worker())
        .await
        .unwrap();
    assert_eq!(made, 0, "the migration created the partitions already");
}

#[tokio::test]
async fn second_migration_restores_guards() {
    let world = World::new().await;
    migrations::migrate(world.db.owner(), &migrations::Roles::default()).await.unwrap();
    assert!(migrations::is_current(world.db.app()).await.unwrap());
    assert_eq!(world.head().await, 1);

    world.owner("DROP TRIGGER guard_intent ON step").await.unwrap();
    world
        .owner(
            "CREATE OR REPLACE FUNCTION committing() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        )
        .await
        .unwrap();
    world
        .owner("GRANT ALL ON ALL TABLES IN SCHEMA public TO gantry_server, gantry_worker, gantry_metrics")
        .await
        .unwrap();
    world
        .owner("CREATE TRIGGER guard_old BEFORE UPDATE ON jig FOR EACH ROW EXECUTE FUNCTION guard_append_only()")
        .await
        .unwrap();
    world.app("UPDATE step SET priority = 7").await.unwrap();
    let roles = migrations::Roles::default();
    let (one, two) = tokio::join!(
        migrations::migrate(world.db.owner(), &roles),
        migrations::migrate(world.db.owner(), &roles)
    );
    one.unwrap();
    two.unwrap();
    assert_refused(
        "a change of the desired state outside of a commit",
        world.app("UPDATE step SET priority = 8").await,
        Refusal::IntentOutsideCommit,
    );
    assert_eq!(state(world.app("DELETE FROM verdict").await), DENIED);
    assert_eq!(state(world.worker("DELETE FROM step").await), DENIED);
    assert_eq!(state(sqlx::query("SELECT FROM token").execute(world.db.metrics()).await), DENIED);
    world.app("INSERT INTO jig (name, class) VALUES ('another', 'script')").await.unwrap();
}

#[tokio::test]
async fn newer_database_is_not_migrated() {
    let world = World::new().await;
    world
        .owner("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_future', 0)")
        .await
        .unwrap();
    assert!(!migrations::is_current(world.db.app()).await.unwrap());
    let refused =
        migrations::migrate(world.db.owner(), &migrations::Roles::default()).await.unwrap_err();
    assert!(matches!(refused, migrations::Error::Newer(_)), "{refused}");
}

#[tokio::test]
async fn database_before_first_release_is_not_migrated() {
    let world = World::new().await;
    world
        .owner("UPDATE seaql_migrations SET version = 'm0001_schema' WHERE version LIKE 'm0001%'")
        .await
        .unwrap();
    let schema_status = migrations::schema_status(world.db.app()).await.unwrap();
    assert_eq!(schema_status, migrations::SchemaStatus::Unsupported);
    let refused =
        migrations::migrate(world.db.owner(), &migrations::Roles::default()).await.unwrap_err();
    assert!(matches!(refused, migrations::Error::Unsupported), "{refused}");
    assert!(refused.to_string().contains("on a new, empty database"), "{refused}");
}

#[tokio::test]
async fn outdated_guards_are_detected() {
    let world = World::new().await;
    world.owner("UPDATE guard_version SET hash = sha256('older')").await.unwrap();
    assert!(!migrations::is_current(world.db.app()).await.unwrap());
}

#[tokio::test]
async fn deployment_depth_is_limited() {
    let world = World::new().await;
    // This test is not about commits.
    let mut tx = world.db.owner().begin().await.unwrap();
    sqlx::query("ALTER TABLE deployment DISABLE TRIGGER guard_document")
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query("ALTER TABLE deployment DISABLE TRIGGER guard_intent")
        .execute(&mut *tx)
        .await
        .unwrap();
    let insert = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
                  SELECT $1, $2, $3, gen_random_uuid(), doc, head_no FROM deployment WHERE system";
    let mut parent = world.web;
    // `system` and `web` are the first two levels.
    for level in 3..=17 {
        let id = Uuid::new_v4();
        let made = sqlx::query(insert)
            .bind(id)
            .bind(parent)
            .bind(format!("level-{level}"))
            .execute(&mut *tx)
            .await;
        match level {
            17 => assert_refused("a deployment at level 17", made, Refusal::TreeTooDeep),
            _ => drop(made.unwrap()),
        }
        parent = id;
    }
}

#[tokio::test]
async fn older_deployment_beyond_depth_limit_is_editable() {
    let world = World::new().await;
    let mut tx = world.db.owner().begin().await.unwrap();
    for guard in ["guard_document", "guard_intent", "guard_move"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("ALTER TABLE deployment DISABLE TRIGGER {guard}")))
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    // Simulates a tree from before the limit. A transaction cannot disable a used trigger, but it
    // can replace the trigger's function.
    let guard: String = sqlx::query_scalar("SELECT pg_get_functiondef('guard_levels'::regproc)")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let none = "CREATE OR REPLACE FUNCTION guard_levels() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'";
    sqlx::query(none).execute(&mut *tx).await.unwrap();
    // A commit writes the parent with every document.
    let write = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
                 SELECT $1, $2, $3, gen_random_uuid(), doc, head_no FROM deployment WHERE system
                 ON CONFLICT (id) DO UPDATE SET parent = $2, name = $3";
    let mut levels = vec![world.web];
    for level in 3..=17 {
        let id = Uuid::new_v4();
        let parent = *levels.last().unwrap();
        sqlx::query(write)
            .bind(id)
            .bind(parent)
            .bind(format!("level-{level}"))
            .execute(&mut *tx)
            .await
            .unwrap();
        levels.push(id);
    }
    sqlx::query(sqlx::AssertSqlSafe(guard)).execute(&mut *tx).await.unwrap();
    let [.., above, lowest] = levels[..] else { panic!("expected at least two levels") };
    let changed = sqlx::query(write)
        .bind(lowest)
        .bind(above)
        .bind("renamed")
        .execute(&mut *tx)
        .await
        .unwrap();
    assert_eq!(changed.rows_affected(), 1);
    // It may move up, but not back down.
    sqlx::query(write)
        .bind(lowest)
        .bind(world.web)
        .bind("renamed")
        .execute(&mut *tx)
        .await
        .unwrap();
    let settle = "SET CONSTRAINTS guard_levels_moved IMMEDIATE";
    sqlx::query(settle).execute(&mut *tx).await.unwrap();
    let moved = sqlx::query(write).bind(lowest).bind(above).bind("renamed").execute(&mut *tx).await;
    assert_refused("a move to a lower level", moved, Refusal::TreeTooDeep);
}

#[tokio::test]
async fn moved_deployment_fits_with_its_descendants() {
    let world = World::new().await;
    let mut tx = world.db.owner().begin().await.unwrap();
    for guard in ["guard_document", "guard_intent", "guard_move"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("ALTER TABLE deployment DISABLE TRIGGER {guard}")))
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    let insert = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
                  SELECT $1, $2, $3, gen_random_uuid(), doc, head_no FROM deployment WHERE system";
    let mut below_web = vec![world.web];
    for level in 3..=15 {
        let id = Uuid::new_v4();
        let parent = *below_web.last().unwrap();
        let made = sqlx::query(insert).bind(id).bind(parent).bind(format!("level-{level}"));
        made.execute(&mut *tx).await.unwrap();
        below_web.push(id);
    }
    let child = Uuid::new_v4();
    let made = sqlx::query(insert).bind(child).bind(world.storage).bind("child");
    made.execute(&mut *tx).await.unwrap();
    let settle = "SET CONSTRAINTS guard_levels_moved IMMEDIATE";
    sqlx::query(settle).execute(&mut *tx).await.unwrap();
    let place = "UPDATE deployment SET parent = $2 WHERE id = $1";
    let moved = |deployment: Uuid, parent: Uuid| sqlx::query(place).bind(deployment).bind(parent);
    // Levels 14 to 16: storage is at level 15, its child at level 16.
    moved(world.storage, below_web[12]).execute(&mut *tx).await.unwrap();
    let lower = moved(world.storage, below_web[13]).execute(&mut *tx).await;
    assert_refused("a child below the lowest level", lower, Refusal::TreeTooDeep);
}

#[tokio::test]
async fn cycle_of_parents_is_refused() {
    let world = World::new().await;
    let mut tx = world.db.owner().begin().await.unwrap();
    for guard in ["guard_intent", "guard_move"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("ALTER TABLE deployment DISABLE TRIGGER {guard}")))
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    let place = "UPDATE deployment SET parent = $2 WHERE id = $1";
    for (deployment, parent) in [(world.web, world.storage), (world.storage, world.web)] {
        sqlx::query(place).bind(deployment).bind(parent).execute(&mut *tx).await.unwrap();
    }
    let settle = "SET CONSTRAINTS guard_levels_moved IMMEDIATE";
    assert_refused(
        "a cycle of parents",
        sqlx::query(settle).execute(&mut *tx).await,
        Refusal::TreeTooDeep,
    );
}
