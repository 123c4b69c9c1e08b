//! The database rejects actions of sessions without their second factor.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;
use world::{World, assert_refused, state};

const DENIED: &str = "42501";
const SECRET: &str = "decode(repeat('ab', 20), 'hex')";
/// The current TOTP time step.
const STEP: &str = "floor(extract(epoch FROM clock_timestamp()) / 30)::bigint";

impl World {
    /// Gives a person a confirmed authenticator app.
    async fn app_of(&self, person: Uuid) {
        let sql = format!(
            "INSERT INTO totp (person_id, secret, confirmed_at) VALUES ('{person}', {SECRET}, now())"
        );
        self.owner(&sql).await.unwrap();
    }

    async fn passkey_of(&self, person: Uuid) -> Uuid {
        let sql = format!(
            "INSERT INTO passkey (person_id, name, rp_id, origin, credential_id, credential)
             VALUES ('{person}', 'key', 'localhost', 'http://localhost', sha256(random()::text::bytea), '{{}}') RETURNING id"
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self.db.owner()).await.unwrap()
    }

    /// Puts a policy in force that requires a second factor.
    async fn demand(&self) {
        let mut tx = self.db.owner().begin().await.unwrap();
        let body = json!({"approvals": 1, "by_risk": {"destructive": 2}, "second_factor": true});
        let hash = world::put_json(&mut tx, "policy", body).await;
        tx.execute("ALTER TABLE policy DISABLE TRIGGER USER").await.unwrap();
        sqlx::query("UPDATE policy SET hash = $1").bind(hash).execute(&mut *tx).await.unwrap();
        tx.execute("ALTER TABLE policy ENABLE TRIGGER USER").await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn presented(&self, person: Uuid) -> bool {
        let sql = format!("SELECT factor_at IS NOT NULL FROM session WHERE person_id = '{person}'");
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self.db.owner()).await.unwrap()
    }

    /// Calls a function while acting for a person.
    async fn calls(&self, person: Uuid, call: &str) -> Result<bool, sqlx::Error> {
        let mut tx = self.begin_as(person).await;
        let done =
            sqlx::query_scalar(AssertSqlSafe(format!("SELECT {call}"))).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(done)
    }
}

fn approval(review: i64, person: Uuid) -> String {
    format!(
        "INSERT INTO verdict (review_id, person_id, kind) VALUES ({review}, '{person}', 'approve')"
    )
}

fn enrol_app(person: Uuid) -> String {
    format!("INSERT INTO totp (person_id, secret) VALUES ('{person}', {SECRET})")
}

fn enrol_passkey(person: Uuid) -> String {
    format!(
        "INSERT INTO passkey (person_id, name, rp_id, origin, credential_id, credential, counter)
         VALUES ('{person}', 'mine', 'localhost', 'http://localhost', sha256(random()::text::bytea), '{{}}', 0)"
    )
}

#[tokio::test]
async fn session_without_its_factor_writes_nothing() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.app_of(world.bo).await;
    let approve = approval(review, world.bo);
    assert_refused(
        "a verdict",
        world.app_as(world.bo, &approve).await,
        Refusal::SecondFactorRequired,
    );
    let comment = format!(
        "INSERT INTO comment (review_id, person_id, body) VALUES ({review}, '{}', 'x')",
        world.bo
    );
    assert!(
        world.app_as(world.bo, &comment).await.is_err(),
        "a session without its factor must not comment"
    );
    assert!(world.calls(world.bo, &format!("present_totp({STEP})")).await.unwrap());
    assert_eq!(world.app_as(world.bo, &approve).await.unwrap(), 1);

    world.app_of(world.ada).await;
    assert_refused("a commit", world.commit(&planned, review).await, Refusal::SecondFactorRequired);
    assert!(
        world.switch(false).await.is_err(),
        "a session without its factor must not change the switch"
    );
    world
        .owner(
            "UPDATE person SET permissions = permissions || '{admin}' WHERE name IN ('ada', 'bo')",
        )
        .await
        .unwrap();
    let person = "INSERT INTO person (name, kind) VALUES ('dee', 'human')";
    assert_refused("a person", world.app_as(world.ada, person).await, Refusal::NotAnAdmin);
    let token = format!(
        "INSERT INTO token (kind, hash, name, person_id, created_by, expires_at)
         VALUES ('api', sha256('t'), 'x', '{0}', '{0}', now() + interval '1 day')",
        world.ada
    );
    assert_refused("a token", world.app_as(world.ada, &token).await, Refusal::PersonMismatch);
    assert_eq!(
        world.app_as(world.bo, person).await.unwrap(),
        1,
        "an admin who presented the factor can write"
    );
}

#[tokio::test]
async fn policy_requires_enrolment_before_anything() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.demand().await;
    let approve = approval(review, world.bo);
    assert_refused(
        "a person without a factor",
        world.app_as(world.bo, &approve).await,
        Refusal::SecondFactorRequired,
    );
    world.app_as(world.bo, &enrol_app(world.bo)).await.unwrap();
    assert_refused(
        "a factor that is not confirmed",
        world.app_as(world.bo, &approve).await,
        Refusal::SecondFactorRequired,
    );
    assert!(
        !world.calls(world.bo, &format!("present_totp({STEP})")).await.unwrap(),
        "an unconfirmed app cannot be presented"
    );
    assert!(world.calls(world.bo, &format!("confirm_totp({STEP})")).await.unwrap());
    assert!(world.presented(world.bo).await);
    world.app_as(world.cy, &enrol_passkey(world.cy)).await.unwrap();
    assert!(world.presented(world.cy).await);
    // After its last factor is removed, a session needs a new one.
    let revoke = format!(
        "UPDATE passkey SET revoked_at = now(), revoked_by = '{0}' WHERE person_id = '{0}'",
        world.cy
    );
    world.app_as(world.cy, &revoke).await.unwrap();
    assert!(!world.presented(world.cy).await);
}

#[tokio::test]
async fn stolen_password_cannot_enrol_a_factor() {
    let world = World::new().await;
    world.demand().await;
    world.session(world.bo).await;
    world.app_of(world.bo).await;
    for sql in [enrol_passkey(world.bo), format!("{} ON CONFLICT DO NOTHING", enrol_app(world.bo))]
    {
        assert_refused(&sql, world.app_as(world.bo, &sql).await, Refusal::SecondFactorRequired);
    }
    let delete = format!("DELETE FROM totp WHERE person_id = '{}'", world.bo);
    assert_refused(
        "removal of the factor",
        world.app_as(world.bo, &delete).await,
        Refusal::SecondFactorRequired,
    );
    let confirm = world.calls(world.bo, &format!("confirm_totp({STEP})")).await;
    assert_refused("a confirmation", confirm, Refusal::SecondFactorRequired);
    let password = format!(
        "INSERT INTO account (person_id, password_hash)
         VALUES ('{}', '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$' || rtrim(encode(sha256(sha256('output')), 'base64'), '='))",
        world.bo
    );
    world.owner(&password).await.unwrap();
    // The session did not begin with a link.
    world.owner("UPDATE session SET by_link = false").await.unwrap();
    let set =
        "set_password((SELECT password_hash FROM account), 'x', sha256('output'), sha256('next'))";
    assert_refused(
        "another password",
        world.calls(world.bo, set).await,
        Refusal::SecondFactorRequired,
    );

    let key = world.passkey_of(world.cy).await;
    let revoke = format!("UPDATE passkey SET revoked_at = now() WHERE id = '{key}'");
    assert_refused(
        "a passkey revoked without a person",
        world.app(&revoke).await,
        Refusal::NotAnAdmin,
    );
    let revoke = format!(
        "UPDATE passkey SET revoked_at = now(), revoked_by = '{}' WHERE id = '{key}'",
        world.cy
    );
    assert_refused(
        "a passkey revoked without the factor",
        world.app_as(world.cy, &revoke).await,
        Refusal::NotAnAdmin,
    );
    assert!(
        !world.calls(world.bo, &format!("present_passkey('{key}')")).await.unwrap(),
        "the passkey belongs to another person"
    );
    assert!(world.calls(world.cy, &format!("present_passkey('{key}')")).await.unwrap());
    assert_eq!(world.app_as(world.cy, &revoke).await.unwrap(), 1);
    assert!(
        !world.calls(world.cy, &format!("present_passkey('{key}')")).await.unwrap(),
        "the passkey is revoked"
    );
}

#[tokio::test]
async fn code_is_accepted_once() {
    let world = World::new().await;
    world.app_of(world.bo).await;
    let present = |step: &str| format!("present_totp({STEP} {step})");
    for step in ["+ 3", "- 3"] {
        assert_refused(step, world.calls(world.bo, &present(step)).await, Refusal::CodeNotValid);
    }
    assert!(world.calls(world.bo, &present("")).await.unwrap());
    world.owner("UPDATE session SET factor_at = NULL").await.unwrap();
    for step in ["- 1", "- 2"] {
        assert_refused(step, world.calls(world.bo, &present(step)).await, Refusal::CodeNotValid);
    }
    assert!(!world.presented(world.bo).await);
    assert!(world.calls(world.bo, &present("+ 1")).await.unwrap());
    assert!(!world.calls(world.ada, &present("")).await.unwrap(), "no factor is set up");
    assert_refused(
        "a code without a session",
        world.app(&format!("SELECT {}", present(""))).await,
        Refusal::InsufficientCredential,
    );
}

#[tokio::test]
async fn only_functions_write_factors() {
    let world = World::new().await;
    world.app_of(world.bo).await;
    for sql in [
        "UPDATE session SET factor_at = now()",
        "UPDATE totp SET last_step = 0",
        "UPDATE totp SET confirmed_at = now()",
        "INSERT INTO totp (person_id, secret, confirmed_at) SELECT id, decode(repeat('ab', 20), 'hex'), now() FROM person",
        "SELECT mark_factor_presented()",
    ] {
        assert_eq!(state(world.app_as(world.bo, sql).await), DENIED, "{sql}");
    }
    for sql in
        ["SELECT secret FROM totp", "SELECT person_id FROM totp", "SELECT factor_at FROM session"]
    {
        assert_eq!(state(world.worker(sql).await), DENIED, "{sql}");
        let refused = sqlx::query(AssertSqlSafe(sql)).execute(world.db.metrics()).await;
        assert_eq!(state(refused), DENIED, "{sql}");
    }
    let foreign = enrol_app(world.cy);
    world.session(world.ada).await;
    assert_refused(
        "another person's factor",
        world.app_as(world.ada, &foreign).await,
        Refusal::NotAnAdmin,
    );
    assert_refused("a factor without a session", world.app(&foreign).await, Refusal::NotAnAdmin);
    let delete = format!("DELETE FROM totp WHERE person_id = '{}'", world.bo);
    assert_refused(
        "a reset by a person who is not an admin",
        world.app_as(world.ada, &delete).await,
        Refusal::NotAnAdmin,
    );
    world
        .owner("UPDATE person SET permissions = permissions || '{admin}' WHERE name = 'ada'")
        .await
        .unwrap();
    assert_eq!(world.app_as(world.ada, &delete).await.unwrap(), 1);
    let sql = "SELECT by FROM access_change WHERE kind = 'factor_removed' AND person_id = $1";
    let by: Uuid =
        sqlx::query_scalar(sql).bind(world.bo).fetch_one(world.db.owner()).await.unwrap();
    assert_eq!(by, world.ada, "ada gave bo access to the account");
}

#[tokio::test]
async fn set_up_is_confirmed_in_same_session() {
    let world = World::new().await;
    world.app_as(world.bo, &enrol_app(world.bo)).await.unwrap();
    let confirm = format!("confirm_totp({STEP})");
    world.owner("UPDATE totp SET created_at = now() - interval '16 minutes'").await.unwrap();
    assert!(
        !world.calls(world.bo, &confirm).await.unwrap(),
        "the time for the confirmation has passed"
    );
    world
        .owner("UPDATE totp SET created_at = now(), session_id = gen_random_uuid()")
        .await
        .unwrap();
    assert!(!world.calls(world.bo, &confirm).await.unwrap(), "another session started the setup");
    world.app_as(world.bo, "DELETE FROM totp").await.unwrap();
    world.app_as(world.bo, &enrol_app(world.bo)).await.unwrap();
    assert!(world.calls(world.bo, &confirm).await.unwrap());
}

#[tokio::test]
async fn audit_omits_authenticator_secret() {
    let world = World::new().await;
    world.app_as(world.bo, &enrol_app(world.bo)).await.unwrap();
    world.calls(world.bo, &format!("confirm_totp({STEP})")).await.unwrap();
    world.app_as(world.bo, "DELETE FROM totp").await.unwrap();
    let sql =
        "SELECT action, actor, detail::text FROM audit WHERE action LIKE 'totp.%' ORDER BY id";
    let rows: Vec<(String, Option<Uuid>, String)> =
        sqlx::query_as(sql).fetch_all(world.db.owner()).await.unwrap();
    let actions: Vec<&str> = rows.iter().map(|(action, ..)| action.as_str()).collect();
    assert_eq!(actions, ["totp.insert", "totp.update", "totp.delete"]);
    for (action, actor, detail) in rows {
        assert_eq!(actor, Some(world.bo), "{action}");
        assert!(
            !detail.contains("secret") && !detail.contains("abab") && !detail.contains("last_step"),
            "{detail}"
        );
    }
}
