//! Permissions per deployment, as the database checks them.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use uuid::Uuid;
use world::{World, assert_refused};

impl World {
    async fn grant(
        &self,
        person: Uuid,
        permission: &str,
        deployment: Uuid,
    ) -> Result<(), sqlx::Error> {
        let sql =
            format!("INSERT INTO scoped_grant VALUES ('{person}', '{permission}', '{deployment}')");
        self.owner(&sql).await.map(drop)
    }

    async fn touched(&self, review: i64) -> Vec<Uuid> {
        let sql = "SELECT t FROM unnest(touched_by($1)) AS t ORDER BY t";
        sqlx::query_scalar(sql).bind(review).fetch_all(self.db.owner()).await.unwrap()
    }
}

#[tokio::test]
async fn verdict_counts_only_in_reviewers_scope() {
    let world = World::new().await;
    world
        .owner("UPDATE person SET permissions = '{viewer}' WHERE name IN ('bo', 'cy')")
        .await
        .unwrap();
    world.grant(world.bo, "reviewer", world.web).await.unwrap();
    world.grant(world.cy, "reviewer", world.storage).await.unwrap();
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    assert_refused(
        "a reviewer of another deployment",
        world.verdict(review, world.cy, "approve").await,
        Refusal::NotAReviewer,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.owner("DELETE FROM scoped_grant").await.unwrap();
    assert_refused(
        "an approval after the grant was revoked",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.grant(world.bo, "reviewer", world.storage).await.unwrap();
    assert_refused(
        "a reviewer of another deployment",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.grant(world.bo, "reviewer", world.web).await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn committer_needs_permission_in_all_touched_deployments() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.owner("UPDATE person SET permissions = '{viewer}' WHERE name = 'ada'").await.unwrap();
    world.grant(world.ada, "operator", world.storage).await.unwrap();
    assert_refused(
        "an operator of another deployment",
        world.commit(&planned, review).await,
        Refusal::CannotCommit,
    );
    world.grant(world.ada, "operator", world.web).await.unwrap();
    assert_refused(
        "a switch by an operator of one deployment",
        world.switch(false).await,
        Refusal::CannotCommit,
    );
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn policy_change_needs_permission_everywhere() {
    let world = World::new().await;
    world.grant(world.bo, "reviewer", world.web).await.unwrap();
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    assert_eq!(
        world.touched(review).await,
        [world.web],
        "the review changes the deployment in which it was proposed"
    );
    let mut brings = world.plan(world.storage, world.ada).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let policy = serde_json::json!({"approvals": 3, "by_risk": {}});
    brings.new_policy = Some(world::put_json(&mut tx, "policy", policy).await);
    brings.needed = 3;
    tx.commit().await.unwrap();
    let review = world.submit(&brings).await.unwrap();
    let mut expected = vec![world.storage, world.system];
    expected.sort();
    assert_eq!(world.touched(review).await, expected);
}

#[tokio::test]
async fn gantry_name_is_reserved() {
    let world = World::new().await;
    assert_refused(
        "a new person named gantry",
        world.owner("INSERT INTO person (name) VALUES ('gantry')").await,
        Refusal::ReservedName,
    );
    let renamed = world.owner("UPDATE person SET name = 'gantry' WHERE name = 'bo'").await;
    assert_refused("a person renamed to gantry", renamed, Refusal::ReservedName);
    for statement in [
        "ALTER TABLE person DISABLE TRIGGER guard_name",
        "INSERT INTO person (name) VALUES ('gantry')",
        "ALTER TABLE person ENABLE TRIGGER guard_name",
    ] {
        world.owner(statement).await.unwrap();
    }
    world
        .owner("UPDATE person SET name = 'gantry', disabled = true WHERE name = 'gantry'")
        .await
        .unwrap();
}

#[tokio::test]
async fn invalid_scoped_grant_is_refused() {
    let world = World::new().await;
    assert_refused(
        "a grant on system",
        world.grant(world.bo, "operator", world.system).await,
        Refusal::InvalidGrantScope,
    );
    assert_refused(
        "a grant on an unknown deployment",
        world.grant(world.bo, "operator", Uuid::new_v4()).await,
        Refusal::InvalidGrantScope,
    );
    assert_eq!(world::state(world.grant(world.bo, "admin", world.web).await), "23514");
    assert_eq!(
        world::state(world.app("UPDATE scoped_grant SET permission = 'reviewer'").await),
        "42501"
    );
}

#[tokio::test]
async fn last_admin_survives_concurrent_removals() {
    let world = World::new().await;
    world
        .owner("UPDATE person SET permissions = '{admin}' WHERE name IN ('bo', 'cy')")
        .await
        .unwrap();
    let (mut one, mut two) =
        (world.db.owner().begin().await.unwrap(), world.db.owner().begin().await.unwrap());
    sqlx::query("UPDATE person SET disabled = true WHERE name = 'bo'")
        .execute(&mut *one)
        .await
        .unwrap();
    let other = tokio::spawn(async move {
        let done = sqlx::query("UPDATE person SET permissions = '{}' WHERE name = 'cy'")
            .execute(&mut *two)
            .await;
        match done {
            Ok(_) => two.commit().await,
            Err(error) => Err(error),
        }
    });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                 WHERE NOT l.granted AND a.datname = current_database())";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(world.db.owner()).await.unwrap() {
        tokio::task::yield_now().await;
    }
    one.commit().await.unwrap();
    assert_refused(
        "removal of the last admin after a concurrent one",
        other.await.unwrap(),
        Refusal::LastAdmin,
    );
    assert_refused(
        "disabling the last admin",
        world.owner("UPDATE person SET disabled = true WHERE name = 'cy'").await,
        Refusal::LastAdmin,
    );
    world
        .owner("UPDATE person SET disabled = false, permissions = '{}' WHERE name = 'bo'")
        .await
        .unwrap();
    world.owner("UPDATE person SET permissions = '{admin}' WHERE name = 'robot'").await.unwrap();
    let gone = world.owner("UPDATE person SET permissions = '{viewer}' WHERE name = 'cy'").await;
    assert_refused("removal of the last human admin", gone, Refusal::LastAdmin);
}

#[tokio::test]
async fn api_token_limits_are_enforced() {
    let world = World::new().await;
    let token = |scopes: &str, name: &str, holds: &str| {
        format!(
            "INSERT INTO token (kind, hash, name, person_id, scopes, expires_at)
             VALUES ('api', sha256(gen_random_uuid()::text::bytea), '{name}', '{}', '{scopes}', now() + interval '{holds}')",
            world.ada
        )
    };
    world.owner(&token("{operator}", "x", "365 days")).await.unwrap();
    for (scopes, name, holds) in [
        ("{reviewer}", "x", "1 day"),
        ("{}", "x", "1 day"),
        ("{operator}", "", "1 day"),
        ("{operator}", "x", "2 years"),
    ] {
        assert_eq!(
            world::state(world.owner(&token(scopes, name, holds)).await),
            "23514",
            "{scopes} {name} {holds}"
        );
    }
}
