//! Settings that a session may change have no influence on guards, and extreme values in columns
//! that a role may write do no lasting harm.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};
use world::{Tx, World};

/// Values of the settings that are neither a choice nor a switch.
const OTHER_VALUES: &[(&str, &[&str])] = &[
    ("DateStyle", &["SQL, DMY", "German", "Postgres, MDY"]),
    ("TimeZone", &["Asia/Tokyo"]),
    ("extra_float_digits", &["-15"]),
    ("gin_fuzzy_search_limit", &["1"]),
    ("default_text_search_config", &["german"]),
];

/// Each other value of a setting that a session may change and that concerns the output of values
/// or the meaning of statements.
async fn changed_settings(world: &World) -> Vec<(String, String)> {
    let sql = "SELECT name, coalesce(enumvals, '{on,off}') FROM pg_settings
               WHERE context = 'user' AND vartype IN ('enum', 'bool')
                 AND (category LIKE 'Version and Platform Compatibility%'
                   OR category LIKE 'Client Connection Defaults%')
                 -- These fail on purpose, or only change the transaction.
                 AND name NOT IN ('default_transaction_read_only', 'transaction_read_only',
                   'transaction_isolation', 'default_transaction_isolation', 'transaction_deferrable',
                   'client_min_messages')";
    let rows: Vec<(String, Vec<String>)> =
        sqlx::query_as(sql).fetch_all(world.db.owner()).await.unwrap();
    let fixed = OTHER_VALUES.iter().map(|(name, values)| {
        ((*name).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
    });
    rows.into_iter()
        .chain(fixed)
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)))
        .collect()
}

async fn set(tx: &mut Tx<'_>, (name, value): &(String, String)) {
    let sql = "SELECT set_config($1, $2, true)";
    sqlx::query(sql).bind(name).bind(value).execute(&mut **tx).await.unwrap();
}

/// The database's audit rows that differ from the rows in their tables.
async fn differing(world: &World) -> Vec<String> {
    let sql = "SELECT a.action || ' ' || a.detail FROM audit a JOIN (
                 SELECT 'blueprint.insert' AS action, number::text AS subject,
                   audit_image('blueprint', to_jsonb(b)) AS image FROM blueprint b
                 UNION ALL SELECT 'proposal.insert', id::text, audit_image('proposal', to_jsonb(p)) - ARRAY['state', 'version', 'closed_at'] FROM proposal p
                 UNION ALL SELECT 'verdict.insert', id::text, audit_image('verdict', to_jsonb(v)) FROM verdict v
                 UNION ALL SELECT 'review.insert', id::text, audit_review(s) FROM review s
                 UNION ALL SELECT 'run.end', id::text, audit_run(r) FROM run r) t USING (action, subject)
               WHERE a.source = 'database' AND NOT a.detail @> t.image";
    sqlx::query_scalar(sql).fetch_all(world.db.owner()).await.unwrap()
}

#[tokio::test]
async fn settings_do_not_change_audit_rows() {
    let world = World::new().await;
    let settings = changed_settings(&world).await;
    for expected in ["bytea_output", "IntervalStyle", "standard_conforming_strings"] {
        assert!(settings.iter().any(|(name, _)| name == expected), "{expected}: {settings:?}");
    }
    for setting in &settings {
        let planned = world.plan(world.web, world.ada).await;
        let mut tx = world.begin_as(world.ada).await;
        set(&mut tx, setting).await;
        let review = world.insert_review(&mut tx, &planned).await.unwrap();
        tx.commit().await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        let root = world.root_with(&planned).await;
        let mut tx = world.db.app().begin().await.unwrap();
        set(&mut tx, setting).await;
        let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        world.project(&mut tx, &planned, number).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(differing(&world).await, Vec::<String>::new(), "{setting:?}");
    }
}

#[tokio::test]
async fn settings_do_not_change_audit_rows_of_runs() {
    let world = World::new().await;
    let run = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until)
               SELECT id, node_id, concurrency_group_id, generation, 1, 1, content_hash, true, now() FROM step LIMIT 1";
    for setting in changed_settings(&world).await {
        world.owner(run).await.unwrap();
        let mut tx = world.db.owner().begin().await.unwrap();
        set(&mut tx, &setting).await;
        let end = "UPDATE run SET state = 'ended', ended_at = now(), outcome = 'unstarted' WHERE state = 'queued'";
        tx.execute(end).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(differing(&world).await, Vec::<String>::new(), "{setting:?}");
    }
}

#[tokio::test]
async fn settings_do_not_change_functions_of_guards() {
    let world = World::new().await;
    let sql = "SELECT concat_ws(' | ', version_key('v01-rc1'), version_key('1.002'),
                 names_secret(E'{\"\\\\u0024secret\": 1}'), names_secret('{}'),
                 node_connection('ssh', '[\"192.0.2.1\"]', '{\"key\": \"k\"}'),
                 jsonb_array_length((SELECT jsonb_agg(r) FROM secret_references('{\"a\": {\"$secret\": 1}}') r)),
                 (SELECT string_agg(kind || id || encode(hash, 'hex'), ' ' ORDER BY id)
                   FROM root_documents((SELECT root FROM blueprint WHERE number = 1))))";
    let usual: String = sqlx::query_scalar(sql).fetch_one(world.db.app()).await.unwrap();
    for setting in changed_settings(&world).await {
        // A session parses a function once, so the setting comes first.
        let mut session = PgConnection::connect(world.db.server_url()).await.unwrap();
        sqlx::query("SELECT set_config($1, $2, false)")
            .bind(&setting.0)
            .bind(&setting.1)
            .execute(&mut session)
            .await
            .unwrap();
        let changed: String = sqlx::query_scalar(sql).fetch_one(&mut session).await.unwrap();
        assert_eq!(changed, usual, "{setting:?}");
    }
}

/// Without the prefix E, standard_conforming_strings changes the meaning of a backslash.
#[tokio::test]
async fn literals_of_functions_have_no_plain_backslash() {
    let world = World::new().await;
    let sql = r"SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
                AND prosrc ~ '(^|[^E])''[^'']*\\'";
    let functions: Vec<String> = sqlx::query_scalar(sql).fetch_all(world.db.owner()).await.unwrap();
    assert_eq!(functions, Vec::<String>::new());
}

/// Columns in which the role may write an extreme value. `docs/threat-model.md` has their effects.
const HARMLESS: &[&str] = &[
    "server: background_task.failures = 2147483647",
    "server: background_task.period_ms = 9223372036854775807",
    "server: background_task.duration_ms = 9223372036854775807",
    "server: step.not_before = '-infinity'",
    "server: step.not_before = '4713-01-02 BC'",
    "server: step.satisfied = 2147483647",
    "worker: background_task.failures = 2147483647",
    "worker: background_task.period_ms = 9223372036854775807",
    "worker: background_task.duration_ms = 9223372036854775807",
    "worker: run.err_bytes = 9223372036854775807",
    "worker: run.input_version = -2147483648",
    "worker: run.input_version = 2147483647",
    "worker: run.log_bytes = 9223372036854775807",
    "worker: run.out_bytes = 9223372036854775807",
    "worker: step.input_checked = 2147483647",
    "worker: step.not_before = '-infinity'",
    "worker: step.not_before = '4713-01-02 BC'",
    "worker: step.satisfied = 2147483647",
];

/// The columns that a role may set to an extreme value in existing rows.
async fn accepted(world: &World, role: &str, pool: &PgPool) -> BTreeSet<String> {
    let sql = "SELECT c.relname::text, a.attname::text, a.atttypid::regtype::text
               FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
               WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                 AND has_column_privilege('gantry_' || $1, c.oid, a.attnum, 'UPDATE')
                 AND a.atttypid IN ('int'::regtype, 'bigint'::regtype, 'timestamptz'::regtype)";
    let columns: Vec<(String, String, String)> =
        sqlx::query_as(sql).bind(role).fetch_all(world.db.owner()).await.unwrap();
    let mut accepted = BTreeSet::new();
    for (table, column, kind) in columns {
        let values = match kind.as_str() {
            "integer" => &["2147483647", "-2147483648"][..],
            "bigint" => &["9223372036854775807", "-9223372036854775808"],
            _ => &["'infinity'", "'-infinity'", "'294276-12-31'", "'4713-01-02 BC'"],
        };
        for value in values {
            let mut tx = pool.begin().await.unwrap();
            let sql = format!("UPDATE {table} SET {column} = {value}");
            let Ok(done) = tx.execute(AssertSqlSafe(sql)).await else { continue };
            let rows = done.rows_affected();
            if rows > 0 && tx.execute("SET CONSTRAINTS ALL IMMEDIATE").await.is_ok() {
                accepted.insert(format!("{role}: {table}.{column} = {value}"));
            }
        }
    }
    accepted
}

#[tokio::test]
async fn extreme_values_are_refused_or_harmless() {
    let world = World::new().await;
    world.change(world.web).await;
    world.propose(world.storage, world.eve).await;
    for sql in [
        "INSERT INTO worker (name, phase, lease_until) VALUES ('w', 'confirmed', now())",
        "INSERT INTO background_task (process_id, process_kind, process, task, purpose, period_ms, lease_until)
         VALUES (gen_random_uuid(), 'worker', 'w', 't', 'p', 1, now())",
        "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, lease_until)
         SELECT id, node_id, concurrency_group_id, generation, 1, 1, content_hash, false, now() FROM step",
        "UPDATE run SET state = 'running', started_at = now(), worker_id = (SELECT id FROM worker)",
        "INSERT INTO token (kind, hash, person_id, expires_at) SELECT 'sign_in', sha256('a'), id, now() FROM person LIMIT 1",
        "INSERT INTO visit (person_id, at) SELECT id, now() FROM person",
    ] {
        world.owner(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let mut found = BTreeSet::new();
    for (role, pool) in [("server", world.db.server()), ("worker", world.db.worker())] {
        found.extend(accepted(&world, role, pool).await);
    }
    let expected = HARMLESS.iter().map(|column| (*column).to_owned()).collect();
    assert_eq!(found, expected);
}
