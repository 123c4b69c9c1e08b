//! Rows that the server's role cannot write in people's names without their sessions.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;
use world::{Hash, NewReview, World, assert_refused, state};

const DENIED: &str = "42501";
/// Argon2id output of bo's password (see `with_password`), as SQL.
const PROOF: &str = "sha256('the output')";

impl World {
    /// Executes one statement after `act_as` with this credential, valid or not.
    async fn app_with(&self, credential: &str, sql: &str) -> Result<u64, sqlx::Error> {
        let mut tx = self.db.app().begin().await?;
        sqlx::query("SELECT act_as($1)").bind(credential).execute(&mut *tx).await?;
        let done = tx.execute(AssertSqlSafe(sql)).await?.rows_affected();
        tx.commit().await?;
        Ok(done)
    }

    async fn submitted(&self) -> i64 {
        let planned = self.plan(self.web, self.ada).await;
        self.submit(&planned).await.unwrap()
    }

    /// Gives eve an API token with these scopes. Its text is "token".
    async fn token(&self, scopes: &str) {
        let sql = format!(
            "INSERT INTO token (kind, hash, name, person_id, scopes, expires_at)
             VALUES ('api', sha256('token'), 'x', '{}', '{scopes}', now() + interval '1 day')",
            self.eve
        );
        self.owner(&sql).await.unwrap();
    }

    async fn with_password(&self) {
        let sql = format!(
            "INSERT INTO account (person_id, password_hash)
             VALUES ('{}', '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$' || rtrim(encode(sha256({PROOF}), 'base64'), '='))",
            self.bo
        );
        self.owner(&sql).await.unwrap();
    }

    async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self.db.owner()).await.unwrap()
    }
}

fn approval(review: i64, person: Uuid) -> String {
    format!(
        "INSERT INTO verdict (review_id, person_id, kind) VALUES ({review}, '{person}', 'approve')"
    )
}

#[tokio::test]
async fn verdict_without_the_reviewers_session_is_refused() {
    let world = World::new().await;
    let review = world.submitted().await;
    let approve = approval(review, world.bo);
    assert_refused(
        "a verdict without a session",
        world.app(&approve).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a verdict in the session of another reviewer",
        world.app_as(world.cy, &approve).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a verdict with a guessed session",
        world.app_with("guess", &approve).await,
        Refusal::PersonMismatch,
    );
    world.session(world.bo).await;
    for ended in ["expires_at = now(), idle_expires_at = now()", "idle_expires_at = now()"] {
        world
            .owner(&format!("UPDATE session SET {ended} WHERE person_id = '{}'", world.bo))
            .await
            .unwrap();
        let refused = world.app_with(&world.bo.to_string(), &approve).await;
        assert_refused(ended, refused, Refusal::PersonMismatch);
        world.owner("DELETE FROM session").await.unwrap();
        world.session(world.bo).await;
    }
    assert_eq!(world.app_as(world.bo, &approve).await.unwrap(), 1);
}

#[tokio::test]
async fn verdict_with_an_api_token_is_refused() {
    let world = World::new().await;
    let review = world.submitted().await;
    world.token("{operator}").await;
    world.owner("UPDATE person SET permissions = '{reviewer}' WHERE name = 'eve'").await.unwrap();
    let refused = world.app_with("token", &approval(review, world.eve)).await;
    assert_refused("a verdict with eve's token", refused, Refusal::InsufficientCredential);
}

#[tokio::test]
async fn disabled_persons_session_does_not_act() {
    let world = World::new().await;
    world.session(world.ada).await;
    world.owner("UPDATE person SET disabled = true WHERE name = 'ada'").await.unwrap();
    let sql = format!(
        "INSERT INTO proposal (deployment_id, created_by) VALUES ('{}', '{}')",
        world.web, world.ada
    );
    assert_refused(
        "the session of a disabled person",
        world.app_with(&world.ada.to_string(), &sql).await,
        Refusal::PersonMismatch,
    );
}

#[tokio::test]
async fn credential_of_an_ended_transaction_does_not_act() {
    let world = World::new().await;
    let mut connection = world.db.app().acquire().await.unwrap();
    world.session(world.ada).await;
    for ends in ["COMMIT", "ROLLBACK"] {
        connection.execute("BEGIN").await.unwrap();
        sqlx::query("SELECT act_as($1)")
            .bind(world.ada.to_string())
            .execute(&mut *connection)
            .await
            .unwrap();
        connection.execute(ends).await.unwrap();
        let sql = format!(
            "INSERT INTO proposal (deployment_id, created_by) VALUES ('{}', '{}')",
            world.web, world.ada
        );
        let refused = connection.execute(AssertSqlSafe(sql)).await;
        assert_refused(ends, refused, Refusal::PersonMismatch);
    }
}

#[tokio::test]
async fn acting_table_is_inaccessible() {
    let world = World::new().await;
    for sql in [
        format!(
            "INSERT INTO acting (xid, person_id) VALUES (pg_current_xact_id(), '{}')",
            world.ada
        ),
        format!("UPDATE acting SET person_id = '{}'", world.ada),
        "DELETE FROM acting".to_owned(),
        "SELECT * FROM acting".to_owned(),
    ] {
        assert_eq!(state(world.app_as(world.eve, &sql).await), DENIED, "{sql}");
    }
}

#[tokio::test]
async fn proposals_edits_and_comments_need_credential() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    let (ada, eve) = (world.ada, world.eve);
    let edit = format!(
        "INSERT INTO edit (proposal_id, seq, actor, body)
         SELECT proposal_id, 9, '{ada}', '{{\"edit\": \"any\"}}' FROM review WHERE id = {review}"
    );
    let undo = "UPDATE edit SET undone = true, touched_by = touched_by || ";
    for sql in [
        format!(
            "INSERT INTO proposal (deployment_id, created_by) VALUES ('{}', '{ada}')",
            world.storage
        ),
        edit,
        format!("{undo} '{ada}'::uuid"),
        format!("INSERT INTO comment (review_id, person_id, body) VALUES ({review}, '{ada}', 'x')"),
        format!(
            "INSERT INTO review_view (person_id, proposal_id, review_id) SELECT '{ada}', proposal_id, id FROM review"
        ),
    ] {
        assert_refused(&sql, world.app(&sql).await, Refusal::PersonMismatch);
        assert_refused(&sql, world.app_as(eve, &sql).await, Refusal::PersonMismatch);
        assert!(world.app_as(ada, &sql).await.unwrap() > 0, "{sql}");
    }
    let unseen = world.app_as(eve, "UPDATE edit SET undone = NOT undone").await;
    assert_refused("an undo without becoming an author", unseen, Refusal::PersonMismatch);
    let resolve = format!("UPDATE comment SET resolved_by = '{ada}'");
    assert_refused(
        "a thread resolved in another person's name",
        world.app_as(eve, &resolve).await,
        Refusal::PersonMismatch,
    );
    world.app_as(ada, &resolve).await.unwrap();
    let reopen = "UPDATE comment SET resolved_by = NULL, resolved_at = NULL";
    assert_refused(
        "a thread reopened without a person",
        world.app(reopen).await,
        Refusal::PersonMismatch,
    );
    world
        .owner(&format!("UPDATE person SET permissions = '{{viewer}}' WHERE id = '{}'", world.bo))
        .await
        .unwrap();
    assert_refused(
        "a thread reopened by a viewer",
        world.app_as(world.bo, reopen).await,
        Refusal::DiscussionDenied,
    );
    world.app_as(eve, reopen).await.unwrap();
    let version = world.edit(planned.proposal, eve).await.unwrap();
    let mut tx = world.begin_as(eve).await;
    let sql = format!(
        "INSERT INTO review (proposal_id, version, change_hash, effects_hash, policy_number, approvals_needed,
                                 epoch, root_hash, risk, created_by)
         SELECT {}, {version}, root, root, 1, 1, 1, root, '{{}}', '{ada}' FROM blueprint WHERE number = 1",
        planned.proposal
    );
    tx.execute(AssertSqlSafe(sql)).await.unwrap();
    assert_refused("a submission in ada's name", tx.commit().await, Refusal::PersonMismatch);
}

#[tokio::test]
async fn session_without_operator_permission_changes_no_proposal() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let permissions =
        |set: &str| format!("UPDATE person SET permissions = '{set}' WHERE id = '{}'", world.eve);
    world.owner(&permissions("{viewer}")).await.unwrap();
    let (eve, proposal) = (world.eve, planned.proposal);
    let changes = [
        "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'"
            .to_owned(),
        "UPDATE proposal SET title = 'x' WHERE state = 'open'".to_owned(),
        "UPDATE proposal SET version = version + 1 WHERE state = 'open'".to_owned(),
    ];
    let edit = format!(
        "INSERT INTO edit (proposal_id, seq, actor, body) VALUES ({proposal}, 9, '{eve}', '{{\"edit\": \"any\"}}')"
    );
    let undo = format!("UPDATE edit SET undone = true, touched_by = touched_by || '{eve}'::uuid");
    let propose = |place: Uuid| {
        format!("INSERT INTO proposal (deployment_id, created_by) VALUES ('{place}', '{eve}')")
    };
    let everywhere = [
        format!(
            "INSERT INTO node (fqdn, deployment_id, created_by) SELECT 'bare.x.example', id, '{eve}' FROM deployment WHERE system"
        ),
        format!(
            "INSERT INTO barclamp (name, version, hash, imported_by) SELECT 'b', '1', hash, '{eve}' FROM object LIMIT 1"
        ),
        format!("INSERT INTO import_report (by, report) VALUES ('{eve}', '{{\"barclamps\": []}}')"),
    ];
    let refused = async |sql: &str, by| assert_refused(sql, world.app_as(eve, sql).await, by);
    for sql in &changes {
        refused(sql, Refusal::PersonMismatch).await;
    }
    for sql in [&edit, &undo, &propose(world.system)].into_iter().chain(&everywhere) {
        refused(sql, Refusal::CannotCommit).await;
    }
    let by_eve = NewReview { by: eve, authors: vec![eve, world.ada], ..planned };
    assert_refused("a submission by eve", world.submit(&by_eve).await, Refusal::PersonMismatch);
    // An operator of another deployment.
    let grant = |place: Uuid| {
        format!(
            "INSERT INTO scoped_grant (person_id, permission, deployment_id) VALUES ('{eve}', 'operator', '{place}')"
        )
    };
    world.owner(&grant(world.storage)).await.unwrap();
    for sql in &changes {
        refused(sql, Refusal::PersonMismatch).await;
    }
    for sql in [&edit, &undo, &propose(world.system)].into_iter().chain(&everywhere) {
        refused(sql, Refusal::CannotCommit).await;
    }
    world.app_as(eve, &propose(world.storage)).await.unwrap();
    world.owner(&grant(world.web)).await.unwrap();
    for sql in [&edit, &undo, &changes[2], &changes[1]] {
        world.app_as(eve, sql).await.unwrap();
    }
    world.owner(&permissions("{operator}")).await.unwrap();
    for sql in &everywhere {
        world.app_as(eve, sql).await.unwrap();
    }
}

#[tokio::test]
async fn node_tokens_need_operator_of_the_node() {
    let world = World::new().await;
    let token = |by: &str| {
        format!(
            "INSERT INTO token (kind, hash, node_id, created_by, expires_at)
             VALUES ('node', sha256('x'), '{}', {by}, now() + interval '1 hour')",
            world.n1
        )
    };
    let (ada, bo) = (format!("'{}'", world.ada), format!("'{}'", world.bo));
    assert_refused(
        "a token without a person",
        world.app(&token("NULL")).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a token in ada's name without a session",
        world.app(&token(&ada)).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a token of ada's session that names no person",
        world.app_as(world.ada, &token("NULL")).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a token by a reviewer",
        world.app_as(world.bo, &token(&bo)).await,
        Refusal::InsufficientCredential,
    );
    world.app_as(world.ada, &token(&ada)).await.unwrap();
}

#[tokio::test]
async fn omitted_parts_name_the_edit_author() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let not_restored = format!(
        "INSERT INTO not_restored (proposal_id, first_edit, last_edit, blueprint_number, missing)
         SELECT proposal_id, min(seq), min(seq), 1, '{{x}}' FROM edit WHERE proposal_id = {} GROUP BY 1",
        planned.proposal
    );
    assert_refused("no person", world.app(&not_restored).await, Refusal::PersonMismatch);
    assert_refused(
        "another person",
        world.app_as(world.eve, &not_restored).await,
        Refusal::PersonMismatch,
    );
    world.app_as(world.ada, &not_restored).await.unwrap();
}

#[tokio::test]
async fn import_reports_need_their_person() {
    let world = World::new().await;
    let report = format!(
        "INSERT INTO import_report (by, report) VALUES ('{}', '{{\"barclamps\": []}}')",
        world.ada
    );
    assert_refused("no person", world.app(&report).await, Refusal::PersonMismatch);
    assert_refused(
        "another person",
        world.app_as(world.eve, &report).await,
        Refusal::PersonMismatch,
    );
    world.app_as(world.ada, &report).await.unwrap();
}

#[tokio::test]
async fn commit_and_switch_need_credential() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    let root = world::hex(&world.root_with(&planned).await);
    let commit = format!(
        "INSERT INTO blueprint (number, parent, kind, root, review_id, enabled, epoch, committed_by)
         SELECT number + 1, number, 'change', '\\x{root}', {review}, enabled, epoch, '{}' FROM head",
        world.ada
    );
    let switch = format!(
        "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch, committed_by)
         SELECT t.number + 1, t.number, 'switch', t.root, NOT t.enabled, h.epoch, '{}'
         FROM head h JOIN blueprint t ON t.number = h.number",
        world.ada
    );
    for sql in [commit, switch.clone()] {
        assert_refused(&sql, world.app(&sql).await, Refusal::PersonMismatch);
        assert_refused(&sql, world.app_as(world.eve, &sql).await, Refusal::PersonMismatch);
    }
    world.token("{viewer}").await;
    let by_eve = switch.replace(&world.ada.to_string(), &world.eve.to_string());
    assert_refused(
        "a viewer's token",
        world.app_with("token", &by_eve).await,
        Refusal::InsufficientCredential,
    );
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn hold_needs_operator_of_deployment() {
    let world = World::new().await;
    let (ada, web) = (world.ada, world.web);
    let hold = format!(
        "UPDATE deployment SET on_hold_by = '{ada}', on_hold_since = now() WHERE id = '{web}'"
    );
    let release =
        format!("UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL WHERE id = '{web}'");
    let out = format!(
        "UPDATE node SET available = false, unavailable_by = '{ada}', unavailable_at = now(), unavailable_reason = 'x'
         WHERE id = '{}'",
        world.n1
    );
    let back = format!(
        "UPDATE node SET available = true, unavailable_by = NULL, unavailable_at = NULL, unavailable_reason = NULL
         WHERE id = '{}'",
        world.n1
    );
    for sql in [&hold, &out] {
        assert_refused(sql, world.app(sql).await, Refusal::PersonMismatch);
        assert_refused(sql, world.app_as(world.eve, sql).await, Refusal::PersonMismatch);
        world.app_as(ada, sql).await.unwrap();
    }
    for sql in [&release, &back] {
        assert_refused(sql, world.app(sql).await, Refusal::PersonMismatch);
        assert_refused(sql, world.app_as(world.bo, sql).await, Refusal::CannotCommit);
        world.app_as(world.eve, sql).await.unwrap();
    }
}

#[tokio::test]
async fn drain_needs_operator_everywhere() {
    let world = World::new().await;
    let (ada, bo) = (world.ada, world.bo);
    let insert = "INSERT INTO worker (name, phase, lease_until) VALUES ('w', 'confirmed', now() + interval '1 hour')";
    world.worker(insert).await.unwrap();
    let drain = |by: Uuid| {
        format!("UPDATE worker SET drain_by = '{by}', drain_since = now(), drain_reason = 'x'")
    };
    let resume = "UPDATE worker SET drain_by = NULL, drain_since = NULL, drain_reason = NULL";
    // Operator of one deployment is not enough.
    let grant = format!(
        "INSERT INTO scoped_grant (person_id, permission, deployment_id) VALUES ('{bo}', 'operator', '{}')",
        world.web
    );
    world.owner(&grant).await.unwrap();
    assert_refused("no person", world.app(&drain(ada)).await, Refusal::PersonMismatch);
    let other = world.app_as(world.eve, &drain(ada)).await;
    assert_refused("another person", other, Refusal::PersonMismatch);
    assert_refused("a reviewer", world.app_as(bo, &drain(bo)).await, Refusal::CannotCommit);
    world.app_as(ada, &drain(ada)).await.unwrap();
    assert_refused("no person", world.app(resume).await, Refusal::PersonMismatch);
    assert_refused("a reviewer", world.app_as(bo, resume).await, Refusal::CannotCommit);
    assert_eq!(state(world.worker(resume).await), DENIED);
    world.app_as(world.eve, resume).await.unwrap();
    let audited = format!(
        "audit WHERE action = 'worker.update' AND source = 'database' AND actor = '{ada}'
         AND detail ->> 'drain_by' = '{ada}' AND detail ->> 'drain_reason' = 'x'"
    );
    assert_eq!(world.count(&audited).await, 1);
    assert_eq!(world.count("audit WHERE action = 'worker.update'").await, 2);
    // Neither does a part of a drain remain.
    let part = "UPDATE worker SET drain_reason = 'x'";
    assert_eq!(state(world.app_as(ada, part).await), "23514");
}

#[tokio::test]
async fn directly_inserted_session_is_refused() {
    let world = World::new().await;
    world.session(world.bo).await;
    for sql in [
        format!(
            "INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at)
             VALUES (sha256('mine'), '{}', now() + interval '1 hour', now() + interval '1 hour')",
            world.bo
        ),
        "UPDATE session SET token_hash = sha256('mine')".to_owned(),
        "UPDATE session SET expires_at = now() + interval '1 year'".to_owned(),
        "UPDATE session SET by_link = true, fresh_at = now()".to_owned(),
        format!(
            "UPDATE account SET password_hash = '$argon2id$x' WHERE person_id = '{}'",
            world.bo
        ),
        format!(
            "INSERT INTO account (person_id, password_hash) VALUES ('{}', '$argon2id$x')",
            world.bo
        ),
    ] {
        assert_eq!(state(world.app(&sql).await), DENIED, "{sql}");
    }
    let longer = "UPDATE session SET idle_expires_at = now() + interval '13 hours'";
    assert_refused(
        "a session beyond its idle limit",
        world.app(longer).await,
        Refusal::SessionLimitExceeded,
    );
    world.owner("UPDATE session SET idle_expires_at = now()").await.unwrap();
    let revived = "UPDATE session SET idle_expires_at = now() + interval '1 hour'";
    assert_refused(
        "a session that is extended after its end",
        world.app(revived).await,
        Refusal::SessionLimitExceeded,
    );
}

#[tokio::test]
async fn session_needs_link_or_password() {
    let world = World::new().await;
    world.with_password().await;
    let link = format!(
        "INSERT INTO token (kind, hash, person_id, expires_at)
         VALUES ('sign_in', sha256('link'), '{}', now() + interval '1 hour')",
        world.bo
    );
    world.owner(&link).await.unwrap();
    let by_link = |link: &str| {
        format!(
            "SELECT FROM begin_session_by_link('{link}', sha256(gen_random_uuid()::text::bytea), '1h', '1 year', '', '')"
        )
    };
    let by_password = |person: Uuid, proof: &str| {
        format!(
            "SELECT begin_session_by_password('{person}', {proof}, sha256(gen_random_uuid()::text::bytea), '1h', '1h', '', '')"
        )
    };
    world.app(&by_link("another")).await.unwrap();
    let stored = "(SELECT decode(split_part(password_hash, '$', 6) || '=', 'base64') FROM account)";
    for sql in [
        by_password(world.bo, "'guess'"),
        by_password(world.bo, stored),
        by_password(world.cy, PROOF),
    ] {
        world.app(&sql).await.unwrap();
    }
    assert_eq!(world.count("session").await, 0);
    for change in ["disabled = true", "kind = 'service'"] {
        world.owner(&format!("UPDATE person SET {change} WHERE name = 'bo'")).await.unwrap();
        world.app(&by_link("link")).await.unwrap();
        world.app(&by_password(world.bo, PROOF)).await.unwrap();
        world
            .owner("UPDATE person SET disabled = false, kind = 'human' WHERE name = 'bo'")
            .await
            .unwrap();
    }
    assert_eq!(world.count("session").await, 0);
    world.app(&by_password(world.bo, PROOF)).await.unwrap();
    world.app(&by_link("link")).await.unwrap();
    world.app(&by_link("link")).await.unwrap();
    assert_eq!(world.count("session WHERE expires_at <= now() + interval '7 days'").await, 2);
}

#[tokio::test]
async fn new_password_needs_old_one_or_link() {
    let world = World::new().await;
    world.with_password().await;
    world.session(world.bo).await;
    world.owner("UPDATE session SET by_link = false").await.unwrap();
    let set = |old: &str| {
        format!(
            "SELECT set_password((SELECT password_hash FROM account), '$argon2id$new', {old}, sha256('next'))"
        )
    };
    assert_refused("no person", world.app(&set(PROOF)).await, Refusal::InsufficientCredential);
    assert_refused(
        "a guessed old password",
        world.app_as(world.bo, &set("'guess'")).await,
        Refusal::NotAnAdmin,
    );
    assert_refused(
        "no old password",
        world.app_as(world.bo, &set("NULL")).await,
        Refusal::NotAnAdmin,
    );
    world
        .owner("UPDATE session SET by_link = true, fresh_at = now() - interval '61 minutes'")
        .await
        .unwrap();
    assert_refused(
        "a link from before",
        world.app_as(world.bo, &set("NULL")).await,
        Refusal::NotAnAdmin,
    );
    assert_eq!(world.count("account WHERE password_hash = '$argon2id$new'").await, 0);
    world.app_as(world.bo, &set(PROOF)).await.unwrap();
    assert_eq!(world.count("account WHERE password_hash = '$argon2id$new'").await, 1);
    assert_eq!(world.count("session WHERE token_hash = sha256('next') AND NOT by_link").await, 1);
}

#[tokio::test]
async fn people_and_links_need_admin() {
    let world = World::new().await;
    let (cy, web) = (world.cy, world.web);
    world.owner("UPDATE person SET permissions = '{admin}' WHERE name = 'bo'").await.unwrap();
    let token = |kind: &str, person: Uuid, by: Uuid| {
        format!(
            "INSERT INTO token (kind, hash, name, person_id, created_by, scopes, expires_at)
             VALUES ('{kind}', sha256(gen_random_uuid()::text::bytea), 'x', '{person}', '{by}', '{{viewer}}', now() + interval '1 day')"
        )
    };
    for sql in [
        "INSERT INTO person (name, permissions) VALUES ('mallory', '{reviewer}')".to_owned(),
        "UPDATE person SET permissions = '{reviewer}' WHERE name = 'eve'".to_owned(),
        "UPDATE person SET disabled = true WHERE name = 'eve'".to_owned(),
        format!("INSERT INTO scoped_grant VALUES ('{cy}', 'operator', '{web}')"),
        "DELETE FROM scoped_grant".to_owned(),
        token("sign_in", cy, world.bo),
    ] {
        assert_refused(&sql, world.app(&sql).await, Refusal::NotAnAdmin);
        assert_refused(&sql, world.app_as(cy, &sql).await, Refusal::NotAnAdmin);
        assert!(world.app_as(world.bo, &sql).await.unwrap() > 0, "{sql}");
    }
    let of_cy = token("api", cy, cy);
    assert_refused("a link without a person", world.app(&of_cy).await, Refusal::PersonMismatch);
    assert_refused(
        "a link in another admin's name",
        world.app_as(world.bo, &of_cy).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a token for another person",
        world.app_as(world.bo, &token("api", cy, world.bo)).await,
        Refusal::NotAnAdmin,
    );
    assert_refused(
        "a token for a service account",
        world.app_as(cy, &token("api", world.robot, cy)).await,
        Refusal::NotAnAdmin,
    );
    world.app_as(cy, &of_cy).await.unwrap();
    world.app_as(world.bo, &token("api", world.robot, world.bo)).await.unwrap();
    for change in
        ["expires_at = now() + interval '2 years'", "hash = sha256('mine')", "scopes = '{admin}'"]
    {
        assert_eq!(
            state(world.app(&format!("UPDATE token SET {change}")).await),
            DENIED,
            "{change}"
        );
    }
}

#[tokio::test]
async fn admin_token_cannot_change_people() {
    let world = World::new().await;
    world.owner("UPDATE person SET permissions = '{admin}' WHERE name = 'eve'").await.unwrap();
    world.token("{admin}").await;
    let sql = "UPDATE person SET permissions = '{reviewer}' WHERE name = 'robot'";
    assert_refused(
        "a change with a token",
        world.app_with("token", sql).await,
        Refusal::NotAnAdmin,
    );
}

impl World {
    /// Replans a review without its author, after raising the proposal's version.
    async fn replan(&self, before: i64, replanned: &NewReview) -> Result<(), sqlx::Error> {
        let mut tx = self.db.app().begin().await?;
        let raise = "UPDATE proposal SET version = $2 WHERE id = $1 AND version < $2";
        sqlx::query(raise)
            .bind(replanned.proposal)
            .bind(replanned.version)
            .execute(&mut *tx)
            .await?;
        let after = self.insert_review(&mut tx, replanned).await?;
        sqlx::query(
            "INSERT INTO replan (before_id, proposal_id, after_id, version, blueprint_number)
             SELECT $1, $2, $3, $4, number FROM head",
        )
        .bind(before)
        .bind(replanned.proposal)
        .bind(after)
        .bind(replanned.version)
        .execute(&mut *tx)
        .await?;
        tx.commit().await
    }
}

#[tokio::test]
async fn automatic_submission_needs_changed_base() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.base.push((world.storage, world.head_no(world.storage).await));
    planned.authors.push(world.cy);
    let before = world.submit(&planned).await.unwrap();
    let mut replanned = NewReview { version: planned.version + 1, ..planned.clone() };
    assert_refused(
        "a replan with an unchanged base",
        world.replan(before, &replanned).await,
        Refusal::PersonMismatch,
    );

    let other = world.plan(world.storage, world.ada).await;
    let review = world.submit(&other).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&other, review).await.unwrap();
    replanned.base.last_mut().unwrap().1 = world.head_no(world.storage).await;

    let document = |new: Hash| vec![("node", world.n1, planned.documents[0].2.clone(), Some(new))];
    let elsewhere = world.plan_for(planned.proposal, world.web, world.ada).await;
    let two = [replanned.documents.clone(), other.documents.clone()].concat();
    let forged = [
        ("other documents", NewReview { documents: elsewhere.documents, ..replanned.clone() }),
        (
            "another new document",
            NewReview { documents: document(planned.root.clone()), ..replanned.clone() },
        ),
        ("one more document", NewReview { documents: two, ..replanned.clone() }),
        ("no document", NewReview { documents: Vec::new(), ..replanned.clone() }),
        (
            "a policy",
            NewReview { new_policy: Some(planned.root.clone()), needed: 1000, ..replanned.clone() },
        ),
        ("a missing author", NewReview { authors: vec![world.ada], ..replanned.clone() }),
        ("the name of another person", NewReview { by: world.cy, ..replanned.clone() }),
        (
            "another change hash",
            NewReview { root: planned.documents[0].2.clone().unwrap(), ..replanned.clone() },
        ),
        ("fewer risks", NewReview { risk: Vec::new(), ..replanned.clone() }),
        ("a smaller base", NewReview { base: replanned.base[..2].to_vec(), ..replanned.clone() }),
    ];
    for (case, forged) in forged {
        assert_refused(case, world.replan(before, &forged).await, Refusal::PersonMismatch);
    }
    // An early check does not allow adding a document afterwards.
    let mut tx = world.db.app().begin().await.unwrap();
    let raise =
        format!("UPDATE proposal SET version = version + 1 WHERE id = {}", replanned.proposal);
    sqlx::raw_sql(AssertSqlSafe(raise)).execute(&mut *tx).await.unwrap();
    let after = world.insert_review(&mut tx, &replanned).await.unwrap();
    let early = format!(
        "INSERT INTO replan (before_id, proposal_id, after_id, version, blueprint_number)
           SELECT {before}, {}, {after}, {}, number FROM head;
         SET CONSTRAINTS guard_with_credential IMMEDIATE",
        replanned.proposal, replanned.version
    );
    let early = sqlx::raw_sql(AssertSqlSafe(early)).execute(&mut *tx).await;
    assert_refused("a document after an early check", early, Refusal::PersonMismatch);
    drop(tx);
    world.replan(before, &replanned).await.unwrap();
}

/// Without a person, no verdict is lost while the base of its review is unchanged.
#[tokio::test]
async fn proposal_changes_need_person_or_changed_base() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.base.push((world.storage, world.head_no(world.storage).await));
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    let change = |set: &str| format!("UPDATE proposal SET {set} WHERE id = {}", planned.proposal);
    let send_back = |set: &str| {
        format!(
            "{}; INSERT INTO replan (before_id, proposal_id, version, blueprint_number, refused)
             SELECT {review}, id, version, 1, '[\"gone\"]' FROM proposal WHERE id = {}",
            change(set),
            planned.proposal
        )
    };
    let raise = "version = version + 1";
    let drops = [change(raise), change("state = 'discarded'"), change("title = 'another'")];
    for sql in &drops {
        assert_refused(sql, world.app(sql).await, Refusal::PersonMismatch);
    }
    let unchanged = world.app(&send_back(raise)).await;
    assert_refused(
        "a proposal sent back with an unchanged base",
        unchanged,
        Refusal::PersonMismatch,
    );
    world.app_as(world.ada, &change("title = 'hers'")).await.unwrap();

    world.change(world.storage).await;
    for sql in &drops {
        assert_refused(sql, world.app(sql).await, Refusal::PersonMismatch);
    }
    let skipped = world.app(&send_back("version = version + 2")).await;
    assert_refused("a skipped version", skipped, Refusal::AlreadyUsed);
    let renamed = world.app(&send_back("version = version + 1, title = 'gone'")).await;
    assert_refused("a changed title", renamed, Refusal::PersonMismatch);
    world.app(&send_back(raise)).await.unwrap();
}

#[tokio::test]
async fn nodes_and_priorities_need_credential() {
    let world = World::new().await;
    let node = |by: &str| {
        format!(
            "INSERT INTO node (fqdn, deployment_id, created_by) SELECT 'n9.x.example', id, {by} FROM deployment WHERE system"
        )
    };
    let by_ada = node(&format!("'{}'", world.ada));
    assert_refused("a node in ada's name", world.app(&by_ada).await, Refusal::PersonMismatch);
    assert_refused(
        "a node in ada's name by eve",
        world.app_as(world.eve, &by_ada).await,
        Refusal::PersonMismatch,
    );
    assert_eq!(world.app_as(world.ada, &by_ada).await.unwrap(), 1);
    let priority = "UPDATE deployment SET priority = 5 WHERE name = 'web'";
    assert_refused(
        "a priority without a person",
        world.app(priority).await,
        Refusal::PersonMismatch,
    );
    assert_refused(
        "a priority by a reviewer",
        world.app_as(world.cy, priority).await,
        Refusal::CannotCommit,
    );
    world
        .app_as(
            world.ada,
            "UPDATE deployment SET on_hold_by = acting_person(), on_hold_since = now() WHERE name = 'web'",
        )
        .await
        .unwrap();
    assert_eq!(world.app_as(world.ada, priority).await.unwrap(), 1);
}

/// No transaction can record its changes under another person's name.
#[tokio::test]
async fn audit_names_only_acting_person() {
    let world = World::new().await;
    world
        .app_as(
            world.ada,
            "UPDATE deployment SET on_hold_by = acting_person(), on_hold_since = now() WHERE name = 'web'",
        )
        .await
        .unwrap();
    world.app_as(world.eve, "UPDATE deployment SET priority = 5 WHERE name = 'web'").await.unwrap();
    world
        .app("INSERT INTO node (fqdn, deployment_id) SELECT 'n9.x.example', id FROM deployment WHERE system")
        .await
        .unwrap();
    let sql = "SELECT coalesce(p.name, 'nobody') FROM audit a LEFT JOIN person p ON p.id = a.actor
               WHERE a.source = 'database' AND a.action IN ('deployment.update', 'node.insert') ORDER BY a.id DESC LIMIT 3";
    let actors: Vec<String> = sqlx::query_scalar(sql).fetch_all(world.db.app()).await.unwrap();
    assert_eq!(actors, ["nobody", "eve", "ada"]);
}

#[tokio::test]
async fn withdrawn_submission_is_not_replanned() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.base.push((world.storage, world.head_no(world.storage).await));
    let before = world.submit(&planned).await.unwrap();
    let undo = format!(
        "UPDATE edit SET undone = true, touched_by = touched_by || '{0}'::uuid WHERE proposal_id = {1};
         UPDATE proposal SET version = version + 1 WHERE id = {1}",
        world.ada, planned.proposal
    );
    let mut tx = world.begin_as(world.ada).await;
    sqlx::raw_sql(AssertSqlSafe(undo)).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let other = world.plan(world.storage, world.ada).await;
    let review = world.submit(&other).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&other, review).await.unwrap();
    let mut replanned = NewReview { version: planned.version + 1, ..planned.clone() };
    replanned.base.last_mut().unwrap().1 = world.head_no(world.storage).await;
    assert_refused(
        "a replan of a withdrawn submission",
        world.replan(before, &replanned).await,
        Refusal::PersonMismatch,
    );
}

#[tokio::test]
async fn transaction_acts_for_one_person() {
    let world = World::new().await;
    world.session(world.bo).await;
    let mut tx = world.begin_as(world.ada).await;
    let second =
        sqlx::query("SELECT act_as($1)").bind(world.bo.to_string()).execute(&mut *tx).await;
    assert_refused("a second person in one transaction", second, Refusal::PersonMismatch);
}
