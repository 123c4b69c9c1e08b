//! Passkeys and signed verdicts, with the server's and the worker's role.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use serde_json::{Value, json};
use sqlx::Executor as _;
use uuid::Uuid;
use world::{World, assert_refused, state};

const DENIED: &str = "42501";

fn registration(id: Uuid, person: Uuid) -> String {
    format!(
        "INSERT INTO passkey (id, person_id, name, rp_id, origin, credential_id, credential)
         VALUES ('{id}', '{person}', 'key', 'localhost', 'http://localhost', sha256('{id}'), '{{}}')"
    )
}

fn confirmation(id: Uuid, by: Uuid) -> String {
    format!(
        "INSERT INTO passkey_confirmation (passkey_id, by_passkey, nonce, client_data, authenticator_data, signature)
         VALUES ('{id}', '{by}', substr(sha256('n'), 1, 16), 'c', 'a', 's')"
    )
}

fn signature(verdict: i64, passkey: Uuid, message: &str) -> String {
    format!(
        "INSERT INTO verdict_signature (verdict_id, passkey_id, nonce, client_data, authenticator_data, signature)
         VALUES ({verdict}, '{passkey}', substr(sha256('n'), 1, 16), '{message}', 'a', 's')"
    )
}

impl World {
    /// Replaces the policy in force, as the owner.
    async fn policy(&self, policy: Value) {
        let hash = self.put("policy", policy).await;
        self.owner("ALTER TABLE policy DISABLE TRIGGER USER").await.unwrap();
        sqlx::query("UPDATE policy SET hash = $1")
            .bind(hash)
            .execute(self.db.owner())
            .await
            .unwrap();
        self.owner("ALTER TABLE policy ENABLE TRIGGER USER").await.unwrap();
    }

    /// A review of a change in *web*.
    async fn submitted(&self) -> i64 {
        let planned = self.plan(self.web, self.ada).await;
        self.submit(&planned).await.unwrap()
    }

    async fn is_demanded(&self, review: i64) -> bool {
        let sql = "SELECT EXISTS (SELECT FROM signature_demand WHERE review_id = $1)";
        sqlx::query_scalar(sql).bind(review).fetch_one(self.db.app()).await.unwrap()
    }

    /// A passkey confirmed by the owner.
    async fn passkey(&self, person: Uuid) -> Uuid {
        let id = Uuid::new_v4();
        self.app_as(person, &registration(id, person)).await.unwrap();
        self.owner(&format!("INSERT INTO passkey_confirmation (passkey_id) VALUES ('{id}')"))
            .await
            .unwrap();
        id
    }

    async fn approval(&self, review: i64, person: Uuid) -> i64 {
        let mut tx = self.begin_as(person).await;
        let sql = "INSERT INTO verdict (review_id, person_id, kind) VALUES ($1, $2, 'approve') RETURNING id";
        let id =
            sqlx::query_scalar(sql).bind(review).bind(person).fetch_one(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        id
    }
}

#[tokio::test]
async fn signature_demand_follows_policy_rules() {
    for (rules, demanded) in [
        (json!([]), false),
        (json!([{}]), true),
        (json!([{"risk": "rerun"}]), true),
        (json!([{"risk": "destructive"}]), false),
    ] {
        let world = World::new().await;
        world.policy(json!({"approvals": 1, "by_risk": {}, "signed": rules})).await;
        let review = world.submitted().await;
        assert_eq!(world.is_demanded(review).await, demanded, "{rules}");
    }
    for (place, risk, demanded) in [
        ("web", None, true),
        ("system", None, true),
        ("storage", None, false),
        ("web", Some("removal"), false),
    ] {
        let world = World::new().await;
        let id = match place {
            "web" => world.web,
            "system" => world.system,
            _ => world.storage,
        };
        let rule = match risk {
            Some(risk) => json!({"deployment": id, "risk": risk}),
            None => json!({"deployment": id}),
        };
        world.policy(json!({"approvals": 1, "by_risk": {}, "signed": [rule]})).await;
        let review = world.submitted().await;
        assert_eq!(world.is_demanded(review).await, demanded, "{place} {risk:?}");
    }
}

#[tokio::test]
async fn policy_change_needs_signature_with_any_rule() {
    let world = World::new().await;
    world
        .policy(json!({"approvals": 1, "by_risk": {}, "signed": [{"deployment": world.storage}]}))
        .await;
    let weaker = world.put("policy", json!({"approvals": 1, "by_risk": {}})).await;
    let planned =
        world::NewReview { new_policy: Some(weaker), ..world.plan(world.web, world.ada).await };
    let review = world.submit(&planned).await.unwrap();
    assert!(world.is_demanded(review).await);
}

#[tokio::test]
async fn early_constraint_check_cannot_skip_demand() {
    let world = World::new().await;
    world
        .policy(json!({"approvals": 1, "by_risk": {}, "signed": [{"deployment": world.web}]}))
        .await;
    // The documents are inserted after the database has decided.
    let proposal = world.propose(world.storage, world.ada).await;
    let mut planned = world.plan_for(proposal, world.storage, world.ada).await;
    let other = world.plan(world.web, world.ada).await;
    let (_, id, old, new) = other.documents[0].clone();
    planned.documents.clear();
    let mut tx = world.begin_as(world.ada).await;
    let review = world.insert_review(&mut tx, &planned).await.unwrap();
    tx.execute("SET CONSTRAINTS ALL IMMEDIATE").await.unwrap();
    let late = "INSERT INTO review_document (review_id, kind, id, old_hash, new_hash) VALUES ($1, 'node', $2, $3, $4)";
    let late = sqlx::query(late).bind(review).bind(id).bind(old).bind(new).execute(&mut *tx).await;
    assert_refused("a document after the early check", late, Refusal::ReviewSealed);
}

#[tokio::test]
async fn unsigned_approval_does_not_commit() {
    let world = World::new().await;
    world.policy(json!({"approvals": 1, "by_risk": {}, "signed": [{}]})).await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    let passkey = world.passkey(world.bo).await;
    world.approval(review, world.bo).await;
    assert_refused(
        "an unsigned approval",
        world.commit(&planned, review).await,
        Refusal::SignatureMissing,
    );
    let signed = world.approval(review, world.bo).await;
    world.app_as(world.bo, &signature(signed, passkey, "first")).await.unwrap();
    // A signature of the same message counts once.
    let again = world.approval(review, world.bo).await;
    assert_eq!(state(world.app_as(world.bo, &signature(again, passkey, "first")).await), "23505");
    assert_refused(
        "an unsigned approval after a signed one",
        world.commit(&planned, review).await,
        Refusal::SignatureMissing,
    );
    world.app_as(world.bo, &signature(again, passkey, "second")).await.unwrap();
    let revoke = format!(
        "UPDATE passkey SET revoked_at = now(), revoked_by = '{}' WHERE id = '{passkey}'",
        world.bo
    );
    world.app_as(world.bo, &revoke).await.unwrap();
    assert_refused(
        "an approval signed with a revoked passkey",
        world.commit(&planned, review).await,
        Refusal::SignatureMissing,
    );
    let other = world.passkey(world.bo).await;
    let last = world.approval(review, world.bo).await;
    world.app_as(world.bo, &signature(last, other, "third")).await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn passkeys_and_signatures_need_credential() {
    let world = World::new().await;
    world.policy(json!({"approvals": 1, "by_risk": {}, "signed": [{}]})).await;
    let review = world.submitted().await;
    let (of_bo, fresh) = (world.passkey(world.bo).await, Uuid::new_v4());
    let verdict = world.approval(review, world.bo).await;
    let other = world.app_as(world.cy, &registration(Uuid::new_v4(), world.bo)).await;
    assert_refused("a passkey registered for another person", other, Refusal::PersonMismatch);
    assert_refused(
        "a signature by another person",
        world.app_as(world.cy, &signature(verdict, of_bo, "m")).await,
        Refusal::SignatureByOtherPerson,
    );
    let of_cy = world.passkey(world.cy).await;
    let foreign = world.app_as(world.bo, &signature(verdict, of_cy, "m")).await;
    assert_refused(
        "a signature with another person's passkey",
        foreign,
        Refusal::SignatureByOtherPerson,
    );
    world.app_as(world.cy, &registration(fresh, world.cy)).await.unwrap();
    let by_bo = world.app_as(world.bo, &confirmation(fresh, of_bo)).await;
    assert_refused("a confirmation by a reviewer", by_bo, Refusal::PasskeyNotConfirmed);
    let stolen = world.app_as(world.bo, &confirmation(fresh, of_cy)).await;
    assert_refused(
        "a confirmation with another person's passkey",
        stolen,
        Refusal::PasskeyNotConfirmed,
    );
    let owner = format!("INSERT INTO passkey_confirmation (passkey_id) VALUES ('{fresh}')");
    assert_refused(
        "a confirmation in the name of the owner",
        world.app_as(world.cy, &owner).await,
        Refusal::PasskeyNotConfirmed,
    );
    world.app_as(world.cy, &confirmation(fresh, of_cy)).await.unwrap();
}

#[tokio::test]
async fn roles_cannot_change_passkeys_or_demands() {
    let world = World::new().await;
    let id = world.passkey(world.bo).await;
    for sql in [
        "UPDATE passkey SET credential = '{\"other\": 1}'",
        "UPDATE passkey SET person_id = (SELECT id FROM person WHERE name = 'cy')",
        "DELETE FROM passkey",
        "UPDATE passkey_confirmation SET by_passkey = NULL",
        "DELETE FROM passkey_confirmation",
        "DELETE FROM verdict_signature",
        "INSERT INTO signature_demand VALUES (1)",
        "DELETE FROM signature_demand",
    ] {
        assert_eq!(
            state(world.app_as(world.bo, sql).await),
            DENIED,
            "the server must not run {sql}"
        );
        assert_eq!(state(world.worker(sql).await), DENIED, "a worker must not run {sql}");
    }
    let insert = registration(Uuid::new_v4(), world.bo);
    for sql in [
        insert.as_str(),
        &confirmation(id, Uuid::new_v4()),
        "UPDATE passkey SET revoked_at = now()",
    ] {
        assert_eq!(state(world.worker(sql).await), DENIED, "a worker must not run {sql}");
    }
}
