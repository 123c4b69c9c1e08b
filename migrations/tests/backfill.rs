//! Migrations that backfill columns and tables, on data as of m0004.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use sqlx::{AssertSqlSafe, Executor as _};
use testdb::TestDatabase;

const BEFORE: [(&str, &str); 4] = [
    ("m0001_foundation", include_str!("../src/m0001_foundation.sql")),
    ("m0002_discussion", include_str!("../src/m0002_discussion.sql")),
    ("m0003_removal", include_str!("../src/m0003_removal.sql")),
    ("m0004_scopes_and_replans", include_str!("../src/m0004_scopes_and_replans.sql")),
];

/// `system` (1) has the children `web` (2) and `edge` (3), and had `old` (4). Target 2 came from a
/// proposal for `web` that also changed the document of `edge`. Target 3 is a switch. Target 4
/// removed `old` and introduced a policy. The phantom of each deployment has its number plus 10.
/// Rows of policies are protected as by the guards.
const DATA: &str = "
INSERT INTO object (hash, kind, body) VALUES (sha256('{\"deployments\":{},\"nodes\":{}}'), 'root', '{\"deployments\":{},\"nodes\":{}}'), (sha256('doc'), 'deployment', 'doc'),
  (sha256('policy'), 'policy', 'policy'), (sha256('new'), 'deployment', 'new');
INSERT INTO person (id, name) VALUES (lpad('7', 32, '0')::uuid, 'ada');
INSERT INTO policy (number, hash) VALUES (1, sha256('policy')), (2, sha256('policy'));
INSERT INTO target (number, parent, kind, root, enabled, epoch) VALUES (1, NULL, 'genesis', sha256('{\"deployments\":{},\"nodes\":{}}'), true, 1);
INSERT INTO deployment (id, parent, name, system, phantom, doc, head_no)
SELECT lpad(n::text, 32, '0')::uuid, CASE WHEN n > 1 THEN lpad('1', 32, '0')::uuid END, name, n = 1,
       lpad((n + 10)::text, 32, '0')::uuid, sha256('doc'), 1
FROM (VALUES (1, 'system'), (2, 'web'), (3, 'edge'), (4, 'old')) d (n, name);
INSERT INTO node (id, fqdn, deployment_id, phantom, doc, alive, transport)
SELECT lpad((n + 10)::text, 32, '0')::uuid, 'd' || n || '.phantom.example', lpad(n::text, 32, '0')::uuid, true, sha256('doc'), true, 'none'
FROM generate_series(1, 4) n;
INSERT INTO proposal (deployment_id, state, version, created_by)
SELECT lpad(n::text, 32, '0')::uuid, state, 1, lpad('7', 32, '0')::uuid
FROM (VALUES (2, 'committed'), (1, 'committed'), (2, 'open'), (3, 'open')) p (n, state);
INSERT INTO submission (proposal_id, version, change_hash, effects_hash, policy_number, approvals_needed, epoch, root_hash, created_by)
SELECT p.id, 1, sha256('c'), sha256('e'), 1, 1, 1, sha256('{\"deployments\":{},\"nodes\":{}}'), p.created_by FROM proposal p WHERE p.id IN (1, 2) ORDER BY p.id;
INSERT INTO submission_document (submission_id, kind, id, old_hash, new_hash) VALUES
  (1, 'deployment', lpad('3', 32, '0')::uuid, sha256('doc'), sha256('new')),
  (2, 'deployment', lpad('4', 32, '0')::uuid, sha256('doc'), NULL);
INSERT INTO target (number, parent, kind, root, submission_id, enabled, epoch) VALUES
  (2, 1, 'change', sha256('{\"deployments\":{},\"nodes\":{}}'), 1, true, 1), (3, 2, 'switch', sha256('{\"deployments\":{},\"nodes\":{}}'), NULL, false, 1), (4, 3, 'change', sha256('{\"deployments\":{},\"nodes\":{}}'), 2, false, 1);
UPDATE deployment SET head_no = 2 WHERE name IN ('web', 'edge');
UPDATE deployment SET head_no = 4, removed_in = 4 WHERE name = 'old';
UPDATE submission SET new_policy_hash = sha256('policy') WHERE id = 2;
UPDATE head SET number = 4, enabled = false, policy_number = 2;
CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'rows of % are never changed', TG_TABLE_NAME; END $$;
CREATE TRIGGER guard_append_only BEFORE UPDATE OR DELETE ON policy FOR EACH STATEMENT EXECUTE FUNCTION guard();
INSERT INTO edit (proposal_id, seq, actor, body, undone)
SELECT p, seq, lpad('7', 32, '0')::uuid, '{}', undone
FROM (VALUES (1, 1, true), (1, 2, false),
             (3, 1, false), (3, 2, true), (3, 3, false), (3, 4, true),
             (4, 1, true), (4, 2, true)) e (p, seq, undone);
";

/// A database as of m0004 with these rows.
async fn older(data: &str) -> TestDatabase {
    let db = TestDatabase::new().await;
    let owner = db.owner();
    owner.execute("DROP SCHEMA public CASCADE").await.unwrap();
    owner.execute("CREATE SCHEMA public").await.unwrap();
    owner
        .execute("CREATE TABLE seaql_migrations (version varchar PRIMARY KEY, applied_at bigint NOT NULL)")
        .await
        .unwrap();
    for (name, sql) in BEFORE {
        owner.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        sqlx::query("INSERT INTO seaql_migrations VALUES ($1, 0)")
            .bind(name)
            .execute(owner)
            .await
            .unwrap();
    }
    owner.execute(sqlx::raw_sql(AssertSqlSafe(data))).await.unwrap();
    db
}

#[tokio::test]
async fn ambiguous_root_stops_migration() {
    let odd = r#"{"deployments":{},"nodes":{} }"#;
    let db = older(&DATA.replace(r#"{"deployments":{},"nodes":{}}"#, odd)).await;
    let error = migrations::migrate(db.owner(), &migrations::Roles::default()).await.unwrap_err();
    assert!(format!("{error:#}").contains("not in canonical form"), "{error:#}");
}

#[tokio::test]
async fn policy_without_target_stops_migration() {
    let db = older(DATA).await;
    db.owner()
        .execute("INSERT INTO policy (number, hash) VALUES (3, sha256('policy'))")
        .await
        .unwrap();
    let stopped = migrations::migrate(db.owner(), &migrations::Roles::default()).await.unwrap_err();
    assert!(format!("{stopped:?}").contains("null values"), "{stopped:?}");
    let applied: i64 = sqlx::query_scalar("SELECT count(*) FROM seaql_migrations")
        .fetch_one(db.owner())
        .await
        .unwrap();
    assert_eq!(applied, 4, "the schema stays as it was");
}

#[tokio::test]
async fn missing_history_is_backfilled() {
    let db = older(DATA).await;
    let owner = db.owner();
    migrations::migrate(owner, &migrations::Roles::default()).await.unwrap();
    assert!(migrations::is_current(db.app()).await.unwrap());

    let lines: Vec<(String, i64)> = sqlx::query_as(
        "SELECT d.name, t.number FROM target_deployment t JOIN deployment d ON d.id = t.deployment_id ORDER BY t.number, d.name",
    )
    .fetch_all(db.app())
    .await
    .unwrap();
    let line = |name: &str, number: i64| (name.to_owned(), number);
    // From the proposal's deployment, the changed documents and the last target. A switch is in no
    // deployment's history.
    let expected =
        [line("system", 1), line("edge", 2), line("web", 2), line("old", 4), line("system", 4)];
    assert_eq!(lines, expected);

    let policies: Vec<(i64, i64)> = sqlx::query_as("SELECT number, target FROM policy ORDER BY 1")
        .fetch_all(db.app())
        .await
        .unwrap();
    assert_eq!(policies, [(1, 1), (2, 4)], "with the genesis, and with the commit that named it");
    let changed = owner.execute("UPDATE policy SET target = 2").await.unwrap_err().to_string();
    assert!(changed.contains("append-only"), "the guard is there again: {changed}");

    let dropped: Vec<(i64, i32)> =
        sqlx::query_as("SELECT proposal_id, seq FROM edit WHERE dropped ORDER BY 1, 2")
            .fetch_all(db.app())
            .await
            .unwrap();
    assert_eq!(dropped, [(3, 2)], "open, undone, and one behind it counts");
}

/// A person with a session, a person without sessions, a service account with a token, and one
/// without visits.
const DATA_OF_PEOPLE: &str = "
INSERT INTO person (name, kind) VALUES ('bo', 'human'), ('cy', 'human'), ('ci', 'service'), ('new', 'service');
INSERT INTO session (token_hash, person_id, last_seen_at, idle_expires_at, expires_at)
SELECT sha256('s'), id, '2026-03-03T00:00Z', now(), now() FROM person WHERE name = 'bo';
INSERT INTO audit (at, actor, action)
SELECT v.at, p.id, v.action FROM person p JOIN (VALUES
  ('bo', timestamptz '2026-01-01T00:00Z', 'sign_in'), ('cy', '2026-01-01T00:00Z', 'sign_in'), ('cy', '2026-02-02T00:00Z', 'sign_in'),
  ('cy', '2026-05-05T00:00Z', 'sign_in.offer')) v (name, at, action) ON v.name = p.name;
INSERT INTO token (kind, hash, name, person_id, scopes, expires_at, last_used_at)
SELECT 'api', sha256(t.name::bytea), t.name, p.id, '{viewer}', now() + interval '1 day', t.used
FROM person p, (VALUES ('one', timestamptz '2026-04-04T00:00Z'), ('two', NULL)) t (name, used) WHERE p.name = 'ci';
";

#[tokio::test]
async fn last_visit_is_backfilled_from_traces() {
    let db = older(&format!("{DATA}{DATA_OF_PEOPLE}")).await;
    migrations::migrate(db.owner(), &migrations::Roles::default()).await.unwrap();
    let seen: Vec<(String, String)> = sqlx::query_as(
        "SELECT p.name, to_char(v.at AT TIME ZONE 'UTC', 'MM-DD') FROM visit v JOIN person p ON p.id = v.person_id ORDER BY p.name",
    )
    .fetch_all(db.app())
    .await
    .unwrap();
    let at = |name: &str, day: &str| (name.to_owned(), day.to_owned());
    assert_eq!(seen, [at("bo", "03-03"), at("ci", "04-04"), at("cy", "02-02")]);
}

/// A password whose Argon2id output is sha256('the output').
const DATA_OF_PASSWORDS: &str = "
INSERT INTO account (person_id, password_hash)
SELECT id, '$argon2id$v=19$m=32768,t=3,p=1$c2FsdHNhbHQ$' || rtrim(encode(sha256('the output'), 'base64'), '=') FROM person;
";

#[tokio::test]
async fn migrated_password_hash_verifies_only() {
    let db = older(&format!("{DATA}{DATA_OF_PASSWORDS}")).await;
    migrations::migrate(db.owner(), &migrations::Roles::default()).await.unwrap();
    let proves = "SELECT proves_password(person_id, sha256('the output')),
                         proves_password(person_id, decode(split_part(password_hash, '$', 6) || '=', 'base64')) FROM account";
    let proves: (bool, bool) = sqlx::query_as(proves).fetch_one(db.owner()).await.unwrap();
    assert_eq!(proves, (true, false));
}

/// Two records from before MAC addresses had one spelling, without the guards added since.
const DATA_OF_NODES: &str = "
ALTER TABLE node DISABLE TRIGGER USER, DROP CONSTRAINT node_deployment_id_fkey;
DROP INDEX node_address, node_macs, person_admins;
INSERT INTO node (fqdn, deployment_id, macs) VALUES
  ('a.cards.example', gen_random_uuid(), '{00-25-90-AA-00-02,0025.90aa.0001,none,00:25:90:aa:00:02}'), ('b.cards.example', gen_random_uuid(), '{}');
";

#[tokio::test]
async fn mac_addresses_are_normalized() {
    let db = TestDatabase::new().await;
    let owner = db.owner();
    owner.execute(sqlx::raw_sql(AssertSqlSafe(DATA_OF_NODES))).await.unwrap();
    owner.execute(sqlx::raw_sql(include_str!("../src/m0025_machines_once.sql"))).await.unwrap();
    let macs: Vec<Vec<String>> =
        sqlx::query_scalar("SELECT macs FROM node ORDER BY fqdn").fetch_all(owner).await.unwrap();
    assert_eq!(macs, [vec!["00:25:90:aa:00:02", "00:25:90:aa:00:01", "none"], vec![]]);
}
