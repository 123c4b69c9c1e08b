//! The statements that each database role may and may not execute.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Executor as _, PgPool};
use world::{World, state};

/// SQLSTATE of a missing privilege.
const DENIED: &str = "42501";

/// Neither the server nor a worker may execute these.
const REFUSED_TO_PROGRAMS: &[&str] = &[
    "UPDATE noderole SET system_data = '{}'",
    "UPDATE node SET phantom = true",
    "UPDATE head SET epoch = epoch + 1",
    "SELECT raise_epoch()",
    "UPDATE run SET generation = generation",
    "DELETE FROM run",
    "DELETE FROM run_log",
    "DELETE FROM step",
    "DELETE FROM noderole",
    "DELETE FROM node",
    "DELETE FROM deployment",
    "INSERT INTO seal (seq, audit_id, prev_hash, hash) VALUES (1, 1, sha256('a'), sha256('b'))",
    "UPDATE audit SET detail = '{}'",
    "DELETE FROM audit",
    "DELETE FROM event",
    "SELECT FROM acting",
    "INSERT INTO acting (xid, person_id) SELECT pg_current_xact_id(), id FROM person",
    "DELETE FROM acting",
    "UPDATE database_role SET name = 'gantry_metrics'",
    "UPDATE guard_version SET hash = sha256('other')",
    "DELETE FROM seaql_migrations",
    "UPDATE verdict SET kind = 'approve'",
    "UPDATE object SET body = ''",
];

/// A worker writes progress only.
const REFUSED_TO_WORKERS: &[&str] = &[
    "INSERT INTO verdict (review_id, person_id, kind) SELECT 1, id, 'approve' FROM node",
    "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch) SELECT number + 1, number, 'switch', root, enabled, epoch FROM blueprint",
    "INSERT INTO object (hash, kind, body) VALUES (sha256('a'), 'role', 'a')",
    "INSERT INTO policy (number, hash) SELECT 2, hash FROM policy",
    "INSERT INTO barclamp (name, version, hash) SELECT 'a', '1', hash FROM object",
    "INSERT INTO proposal (deployment_id, created_by) SELECT id, id FROM deployment",
    "UPDATE proposal SET state = 'discarded'",
    "INSERT INTO review_base (review_id, deployment_id, head_no) SELECT 1, id, 1 FROM deployment",
    "INSERT INTO review_author (review_id, person_id) SELECT 1, id FROM deployment",
    "INSERT INTO review_document (review_id, kind, id, new_hash) SELECT 1, 'node', id, doc FROM node",
    "INSERT INTO comment (review_id, person_id, body) SELECT 1, id, 'a' FROM deployment",
    "UPDATE head SET number = number",
    "UPDATE head SET enabled = true",
    "UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL",
    "UPDATE deployment SET doc = doc",
    "INSERT INTO node (fqdn, deployment_id) SELECT 'a.b.c', id FROM deployment WHERE system",
    "UPDATE node SET transport = 'local'",
    "UPDATE node SET connection = '{}'",
    "UPDATE node SET address = '[]'",
    "UPDATE node SET connection_no = connection_no + 1",
    "UPDATE node SET report_no = report_no + 1",
    "UPDATE node SET doc = doc",
    "UPDATE node SET deployment_id = deployment_id",
    "UPDATE node SET hints = '{}'",
    "UPDATE node SET available = true",
    "UPDATE node SET removed_in = NULL",
    "UPDATE noderole SET data = '{}'",
    "UPDATE noderole SET role_hash = role_hash",
    "UPDATE step SET generation = generation",
    "UPDATE step SET destructive = false",
    "UPDATE step SET skipped = 'a'",
    "UPDATE step SET content_hash = content_hash",
    "UPDATE step SET concurrency_group_id = concurrency_group_id",
    "UPDATE step SET node_id = node_id",
    "UPDATE step SET needs = 'any'",
    "INSERT INTO step SELECT * FROM step",
    "DELETE FROM edge",
    "INSERT INTO edge (child, parent, kind) SELECT id, id, 'hard' FROM step",
    "UPDATE concurrency_group SET max_running = 1000",
    "INSERT INTO disruption_budget (deployment_id, name, max_down) SELECT id, 'a', 1 FROM deployment",
    "UPDATE jig SET active = false",
    "INSERT INTO audit (action) VALUES ('a')",
    "INSERT INTO person (name) VALUES ('mallory')",
    "UPDATE person SET permissions = '{admin}'",
    "INSERT INTO scoped_grant (person_id, permission, deployment_id) SELECT id, 'reviewer', id FROM deployment",
    "INSERT INTO account (person_id, password_hash) SELECT id, '$argon2' FROM deployment",
    "UPDATE account SET password_hash = '$argon2'",
    "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at) SELECT sha256('a'), id, now(), now() FROM deployment",
    "INSERT INTO token (kind, hash, expires_at) VALUES ('worker', sha256('a'), now())",
    "UPDATE token SET revoked_at = NULL",
    "INSERT INTO node_fact (node_id, source, facts, token_id) SELECT id, 'node', '{}', id FROM node",
    "UPDATE run SET cancel_requested = false",
    "UPDATE worker SET capacity = 1000",
    "UPDATE worker SET drain_by = NULL, drain_since = NULL, drain_reason = NULL",
    "INSERT INTO server_address (address) VALUES ('192.0.2.1')",
    "UPDATE server_address SET seen_at = now()",
    "DELETE FROM server_address",
    "SELECT act_as('a')",
    "SELECT reset_join_confirmation(id) FROM node",
    "SELECT name FROM person",
    "SELECT permissions FROM person",
    "SELECT body FROM edit",
    "INSERT INTO access_change (person_id, kind) SELECT id, 'created' FROM node",
    "UPDATE access_change SET confirmed_at = now()",
    "SELECT FROM account",
    "SELECT FROM session",
    "SELECT FROM token",
    "SELECT FROM scoped_grant",
    "SELECT FROM idempotency",
    "SELECT FROM audit",
    "SELECT body FROM run_log",
    "SELECT note_projected(1)",
    "SELECT begin_session_by_link('a', 'a', '1 hour', '1 hour', 'a', 'a')",
    "SELECT confirm_access(id, id) FROM node",
    "SELECT acting_admin()",
];

/// The server does not write progress that only a worker sees.
const REFUSED_TO_SERVER: &[&str] = &[
    "UPDATE step SET output = '{}'",
    "UPDATE step SET output_run = 1",
    "UPDATE step SET results = '{}'",
    "UPDATE step SET node_id = node_id",
    "INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation, content_hash, state, output)
     SELECT gen_random_uuid(), noderole_id, node_id, concurrency_group_id, 0, jig, 1, content_hash, 'active', '{}' FROM step",
    "INSERT INTO noderole (id, node_id, role, deployment_id, role_hash, system_data)
     SELECT gen_random_uuid(), node_id, role, deployment_id, role_hash, '{}' FROM noderole",
    "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until)
     SELECT id, node_id, concurrency_group_id, generation, 1, 1, content_hash, exclusive, now() FROM step",
    "UPDATE run SET result = '{}'",
    "UPDATE run SET result_bytes = 1",
    "UPDATE run SET input = '{}'",
    "UPDATE run SET surroundings = '{}'",
    "UPDATE run SET worker_id = NULL",
    "UPDATE run SET started_at = now()",
    "UPDATE run SET log_bytes = 0",
    "UPDATE run SET lease_until = '-infinity'",
    "SELECT forget_excess_results('{1}')",
    "INSERT INTO run_log (run_id, at_offset, body) VALUES (1, 0, 'a')",
    "INSERT INTO run_log_0 (run_id, at_offset, body) VALUES (1, 0, 'a')",
    "UPDATE node SET alive = true",
    "UPDATE node SET alive_since = now()",
    "UPDATE node SET joined = 'confirmed'",
    "UPDATE node SET joined_at = now()",
    "UPDATE node SET boot_id = 'a'",
    "UPDATE node SET last_seen_at = now()",
    "INSERT INTO node (fqdn, deployment_id, alive) SELECT 'a.b.c', id, true FROM deployment WHERE system",
    "INSERT INTO node (fqdn, deployment_id, joined) SELECT 'a.b.c', id, 'confirmed' FROM deployment WHERE system",
    "INSERT INTO health_check (node_id, reached, duration_ms, by) SELECT id, true, 1, 'a' FROM node",
    "INSERT INTO node_fact (node_id, source, facts, run_id) SELECT id, 'role a', '{}', 1 FROM node",
    "UPDATE role_check SET state = 'passing'",
    "UPDATE role_check SET passes_until = now()",
    "INSERT INTO role_check (step_id, node_id, due_at) SELECT id, node_id, now() FROM step",
    "DELETE FROM role_check",
    "INSERT INTO worker (name, lease_until) VALUES ('a', now())",
    "UPDATE worker SET phase = 'confirmed'",
    "INSERT INTO disruption_budget (deployment_id, name, max_down) SELECT id, 'a', 1 FROM deployment",
    "SELECT ensure_run_log_room()",
    "SELECT forget_events('1 day')",
    "UPDATE edge SET kind = 'soft'",
    "UPDATE jig SET class = 'noop'",
];

/// Monitoring reads states, counts and times only.
const REFUSED_TO_METRICS: &[&str] = &[
    "SELECT FROM step_admission(1)",
    "SELECT connection FROM node",
    "SELECT address FROM node",
    "SELECT facts FROM node",
    "SELECT hints FROM node",
    "SELECT boot_id FROM node",
    "SELECT output FROM step",
    "SELECT results FROM step",
    "SELECT error FROM step",
    "SELECT content_hash FROM step",
    "SELECT input FROM run",
    "SELECT result FROM run",
    "SELECT error FROM run",
    "SELECT error FROM background_task",
    "SELECT FROM server_address",
    "SELECT data FROM noderole",
    "SELECT system_data FROM noderole",
    "SELECT FROM object",
    "SELECT FROM run_log",
    "SELECT FROM run_log_0",
    "SELECT FROM event",
    "SELECT FROM edit",
    "SELECT FROM comment",
    "SELECT FROM health_check",
    "SELECT detail FROM role_check",
    "SELECT FROM node_fact",
    "SELECT FROM node_report",
    "SELECT detail FROM audit",
    "SELECT hash FROM seal",
    "SELECT FROM person",
    "SELECT FROM account",
    "SELECT FROM session",
    "SELECT FROM token",
    "SELECT FROM scoped_grant",
    "SELECT FROM idempotency",
    "SELECT FROM acting",
    "SELECT person_id FROM verdict",
    "SELECT summary FROM review",
    "UPDATE step SET state = 'todo'",
    "UPDATE node SET alive = true",
    "INSERT INTO event (topic, kind) VALUES ('a', 'a')",
    "INSERT INTO verdict (review_id, kind) VALUES (1, 'approve')",
    "SELECT act_as('a')",
    "SELECT acting_person()",
    "SELECT seal_audit(1)",
    "SELECT forget_events('1 day')",
    "SELECT raise_epoch()",
];

/// Only the owner may execute these.
const REFUSED_TO_ALL: &[&str] = &[
    "SET ROLE gantry_owner",
    "SET ROLE postgres",
    "SET ROLE gantry_server",
    "SET ROLE gantry_worker",
    "SET ROLE gantry_metrics",
    "SET SESSION AUTHORIZATION gantry_owner",
    "SET session_replication_role = replica",
    "ALTER TABLE step DISABLE TRIGGER ALL",
    "ALTER TABLE step DISABLE TRIGGER guard_step_gone",
    "DROP TRIGGER guard_blueprint ON blueprint",
    "ALTER TABLE verdict OWNER TO gantry_worker",
    "CREATE TABLE mine (n int)",
    "CREATE TABLE public.mine (n int)",
    "CREATE TEMP TABLE blueprint (n int)",
    "CREATE SCHEMA mine",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION committing() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "CREATE TRIGGER mine BEFORE INSERT ON verdict FOR EACH ROW EXECUTE FUNCTION guard_append_only()",
    "TRUNCATE run",
    "TRUNCATE verdict CASCADE",
];

async fn assert_denied(role: &str, pool: &PgPool, statements: &[&str]) {
    for sql in statements {
        let refused = pool.execute(AssertSqlSafe(*sql)).await;
        assert!(refused.is_err(), "{role} must not run {sql}");
        assert_eq!(state(refused), DENIED, "{role}: {sql}");
    }
}

async fn assert_allowed(role: &str, pool: &PgPool, statements: &[&str]) {
    for sql in statements {
        let done = pool.execute(AssertSqlSafe(*sql)).await;
        assert!(done.is_ok(), "{role}: {sql}: {done:?}");
    }
}

#[tokio::test]
async fn worker_writes_progress_only() {
    let world = World::new().await;
    assert_denied("worker", world.db.worker(), REFUSED_TO_PROGRAMS).await;
    assert_denied("worker", world.db.worker(), REFUSED_TO_WORKERS).await;
}

#[tokio::test]
async fn server_cannot_write_worker_progress() {
    let world = World::new().await;
    assert_denied("server", world.db.server(), REFUSED_TO_PROGRAMS).await;
    assert_denied("server", world.db.server(), REFUSED_TO_SERVER).await;
}

#[tokio::test]
async fn metrics_reads_counts_only() {
    let world = World::new().await;
    assert_denied("metrics", world.db.metrics(), REFUSED_TO_METRICS).await;
    assert_allowed(
        "metrics",
        world.db.metrics(),
        &[
            "SELECT state, count(*) FROM step GROUP BY state",
            "SELECT r.outcome, d.name, count(*) FROM run r JOIN step s ON s.id = r.step_id JOIN noderole n ON n.id = s.noderole_id
             JOIN deployment d ON d.id = n.deployment_id GROUP BY 1, 2",
            "SELECT count(*) FROM node WHERE NOT alive AND removed_in IS NULL",
            "SELECT name, lease_until FROM worker",
            "SELECT (SELECT max(id) FROM audit), (SELECT max(audit_id) FROM seal)",
            "SELECT count(*) FROM proposal p JOIN review s ON s.proposal_id = p.id JOIN verdict v ON v.review_id = s.id",
            "SELECT number, enabled, epoch FROM head",
        ],
    )
    .await;
}

#[tokio::test]
async fn roles_cannot_switch_or_disable_guards() {
    let world = World::new().await;
    for (role, pool) in [
        ("server", world.db.server()),
        ("worker", world.db.worker()),
        ("metrics", world.db.metrics()),
    ] {
        let own = format!("SET ROLE gantry_{role}");
        let statements: Vec<&str> =
            REFUSED_TO_ALL.iter().copied().filter(|sql| *sql != own).collect();
        assert_denied(role, pool, &statements).await;
    }
}

#[tokio::test]
async fn worker_has_progress_privileges() {
    let world = World::new().await;
    // The state machine rejects most of them, but no privilege is missing.
    for sql in [
            "INSERT INTO worker (id, name, phase, capacity, jigs, host, pid, version, lease_until)
             VALUES (gen_random_uuid(), 'w', 'welcomed', 1, '{script}', 'h', 1, '0', now())",
            "UPDATE worker SET phase = 'confirmed', lease_until = now(), last_heartbeat_at = now()",
            "UPDATE step SET state = 'transition', since = now()",
            "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, content_hash, blueprint_number, epoch, exclusive, lease_until)
             SELECT id, node_id, concurrency_group_id, generation, content_hash, 1, 1, exclusive, now() FROM step",
            "UPDATE run SET state = 'running', worker_id = (SELECT id FROM worker), started_at = now()",
            "UPDATE run SET input = '{}', surroundings = '{}'",
            "INSERT INTO run_log (run_id, at_offset, at, body) SELECT id, 0, now(), 'a' FROM run ON CONFLICT DO NOTHING",
            "UPDATE run SET log_bytes = 1",
            "UPDATE run SET state = 'ended', outcome = 'succeeded', ended_at = now(), result = '{\"a\": 1}', result_bytes = 8",
            "UPDATE step SET state = 'active', applied_generation = generation, results = '{}', output = '{}', output_run = 1",
            "UPDATE node SET alive = false, joined = 'none', contradicting_checks = 0, last_seen_at = now() WHERE NOT phantom",
            "UPDATE node SET alive = true, alive_since = now(), joined = 'confirmed', joined_at = now(), boot_id = 'a' WHERE NOT phantom",
            "INSERT INTO health_check (node_id, reached, duration_ms, by) SELECT id, true, 1, 'w' FROM node WHERE NOT phantom",
            "INSERT INTO node_fact (node_id, source, facts, run_id) SELECT node_id, 'role a', '{}', id FROM run
             ON CONFLICT (node_id, source) DO UPDATE SET facts = excluded.facts, run_id = excluded.run_id",
            "UPDATE role_check SET worker_id = (SELECT id FROM worker), leased_at = now(), due_at = now()",
            "UPDATE role_check SET state = 'failing', failures = 1, caused_rerun = false, generation = 1, detail = 'a',
               duration_ms = 1, checked_at = now(), changed_at = now(), passes_until = now()",
            "INSERT INTO event (topic, subject, kind, body) VALUES ('runs', '1', 'run', '{}')",
            "SELECT seal_audit(10)",
            "SELECT ensure_run_log_room()",
            "SELECT forget_events('7 days')",
            "DELETE FROM worker WHERE NOT EXISTS (SELECT FROM run WHERE worker_id = worker.id)",
    ] {
        if let Err(refused) = world.worker(sql).await {
            assert_ne!(state(Err::<u64, _>(refused)), DENIED, "{sql}");
        }
    }
}

#[tokio::test]
async fn connection_change_withdraws_confirmation() {
    let world = World::new().await;
    world
        .app("INSERT INTO node (fqdn, deployment_id) SELECT 'bare.x.example', id FROM deployment WHERE system")
        .await
        .unwrap();
    let record = "WHERE fqdn = 'bare.x.example'";
    let life = format!("SELECT alive, joined FROM node {record}");
    let life = async || {
        sqlx::query_as::<_, (bool, String)>(AssertSqlSafe(life.as_str()))
            .fetch_one(world.db.app())
            .await
            .unwrap()
    };
    assert_eq!(
        life().await,
        (false, "none".to_owned()),
        "the new connection has no health check yet"
    );
    let confirmed = format!("UPDATE node SET alive = true, joined = 'confirmed' {record}");
    for change in [
        "connection = '{\"port\": 23}'",
        "address = '[\"192.0.2.7\"]'",
        "connection_no = connection_no + 1",
    ] {
        world.owner(&confirmed).await.unwrap();
        world.app(&format!("UPDATE node SET {change} {record}")).await.unwrap();
        assert_eq!(life().await, (true, "none".to_owned()), "{change}");
    }
    world.owner(&confirmed).await.unwrap();
    world.app(&format!("SELECT reset_join_confirmation(id) FROM node {record}")).await.unwrap();
    assert_eq!(life().await, (true, "welcomed".to_owned()));
    world.app(&format!("SELECT reset_join_confirmation(id) FROM node {record}")).await.unwrap();
    assert_eq!(
        life().await,
        (true, "welcomed".to_owned()),
        "repeated doubt must not raise the state"
    );
    world
        .app(&format!("UPDATE node SET removed_in = (SELECT number FROM head) {record}"))
        .await
        .unwrap();
    assert_eq!(life().await, (false, "none".to_owned()));
}

#[tokio::test]
async fn only_listed_functions_run_as_owner() {
    let world = World::new().await;
    let sql = "SELECT p.proname::text, r.role FROM pg_proc p, unnest(ARRAY['server', 'worker', 'metrics']) r (role)
               WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef AND p.prorettype <> 'trigger'::regtype
                 AND has_function_privilege('gantry_' || r.role, p.oid, 'EXECUTE')";
    let rows: Vec<(String, String)> =
        sqlx::query_as(sql).fetch_all(world.db.owner()).await.unwrap();
    let mut callers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (function, role) in rows {
        callers.entry(function).or_default().insert(role);
    }
    let expected = [
        ("act_as", &["server"][..]),
        ("acting_admin", &["server"]),
        ("acting_as_operator", &["server"]),
        ("acting_in_session", &["server"]),
        ("acting_manages", &["server"]),
        ("acting_pending", &["server"]),
        ("acting_pending_person", &["server"]),
        ("acting_person", &["server", "worker"]),
        ("acting_session", &["server"]),
        ("begin_session_by_link", &["server"]),
        ("begin_session_by_password", &["server"]),
        ("confirm_access", &["server"]),
        ("confirm_totp", &["server"]),
        ("reset_join_confirmation", &["server"]),
        ("ensure_run_log_room", &["worker"]),
        ("forget_events", &["worker"]),
        ("forget_excess_results", &["worker"]),
        ("note_projected", &["server"]),
        ("present_passkey", &["server"]),
        ("present_totp", &["server"]),
        ("seal_audit", &["server", "worker"]),
        ("set_password", &["server"]),
    ];
    let expected = expected.map(|(name, roles)| {
        (name.to_owned(), roles.iter().map(|role| (*role).to_owned()).collect())
    });
    assert_eq!(callers, BTreeMap::from(expected));
}

#[tokio::test]
async fn migration_revokes_privileges_of_earlier_roles() {
    let world = World::new().await;
    let granted = "SELECT has_table_privilege('pg_monitor', 'verdict', 'INSERT')
                     OR has_column_privilege('pg_monitor', 'step', 'output', 'UPDATE')
                     OR has_function_privilege('pg_monitor', 'seal_audit(int)', 'EXECUTE')";
    let granted =
        async || sqlx::query_scalar::<_, bool>(granted).fetch_one(world.db.owner()).await.unwrap();
    for sql in [
        "GRANT INSERT ON verdict TO pg_monitor",
        "GRANT UPDATE (output) ON step TO pg_monitor",
        "GRANT EXECUTE ON FUNCTION seal_audit(int) TO pg_monitor",
    ] {
        world.owner(sql).await.unwrap();
    }
    assert!(granted().await);
    migrations::migrate(world.db.owner(), &migrations::Roles::default()).await.unwrap();
    assert!(!granted().await);
}

#[tokio::test]
async fn role_purpose_is_read_from_database() {
    let world = World::new().await;
    let own = async |pool: &PgPool, purpose| {
        migrations::database_role(pool, purpose).await.unwrap().unwrap()
    };
    let server = own(world.db.worker(), migrations::RolePurpose::Server).await;
    assert_eq!((server.name.as_str(), server.is_own), ("gantry_server", false));
    assert!(own(world.db.worker(), migrations::RolePurpose::Worker).await.is_own);
    assert!(own(world.db.metrics(), migrations::RolePurpose::Metrics).await.is_own);
}
