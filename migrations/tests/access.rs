//! Approvals by people whose access comes from an author, second admins, and verdicts of disabled
//! accounts, as the database counts them.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use sqlx::AssertSqlSafe;
use uuid::Uuid;
use world::{World, assert_refused, state};

impl World {
    /// Executes one statement as an admin.
    async fn by(&self, admin: Uuid, sql: &str) -> Result<(), sqlx::Error> {
        self.app_as(admin, sql).await.map(drop)
    }

    async fn add(&self, by: Uuid, name: &str, permissions: &str) -> Uuid {
        self.by(
            by,
            &format!("INSERT INTO person (name, permissions) VALUES ('{name}', '{permissions}')"),
        )
        .await
        .unwrap();
        sqlx::query_scalar("SELECT id FROM person WHERE name = $1")
            .bind(name)
            .fetch_one(self.db.app())
            .await
            .unwrap()
    }

    async fn link(&self, by: Uuid, person: Uuid) {
        let sql = format!(
            "INSERT INTO token (kind, hash, person_id, expires_at)
             VALUES ('sign_in', sha256(gen_random_uuid()::text::bytea), '{person}', now() + interval '1 hour')"
        );
        self.by(by, &sql).await.unwrap();
    }

    async fn confirm(&self, person: Uuid, admin: Uuid) -> Result<i64, sqlx::Error> {
        let sql = "SELECT confirm_access($1, $2)";
        let mut tx = self.begin_as(admin).await;
        let confirmed =
            sqlx::query_scalar(sql).bind(person).bind(admin).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(confirmed)
    }

    /// Makes every recorded access change older.
    async fn later(&self, by: &str) {
        let sql = format!(
            "ALTER TABLE access_change DISABLE TRIGGER guard_append_only;
             UPDATE access_change SET at = at - interval '{by}';
             ALTER TABLE access_change ENABLE TRIGGER guard_append_only"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.db.owner()).await.unwrap();
    }

    async fn admins(&self) {
        self.owner(
            "UPDATE person SET permissions = permissions || '{admin}' WHERE name IN ('ada', 'cy')",
        )
        .await
        .unwrap();
    }

    /// Plans a change of ada with this person's approval and tries to commit it.
    async fn approved_by(&self, person: Uuid) -> Result<i64, sqlx::Error> {
        self.approved(self.ada, person).await
    }

    async fn approved(&self, author: Uuid, person: Uuid) -> Result<i64, sqlx::Error> {
        let planned = self.plan(self.web, author).await;
        let review = self.submit(&planned).await.unwrap();
        self.verdict(review, person, "approve").await.unwrap();
        let committed = self.commit(&planned, review).await;
        if committed.is_err() {
            self.owner("UPDATE proposal SET state = 'discarded' WHERE state = 'open'")
                .await
                .unwrap();
        }
        committed
    }
}

#[tokio::test]
async fn approval_with_fresh_access_from_author_is_ignored() {
    let world = World::new().await;
    world.admins().await;
    let dan = world.add(world.ada, "dan", "{reviewer}").await;
    assert_refused(
        "an account that the author created",
        world.approved_by(dan).await,
        Refusal::ApprovalExcluded,
    );
    world.link(world.ada, world.bo).await;
    assert_refused(
        "an account with a link from the author",
        world.approved_by(world.bo).await,
        Refusal::ApprovalExcluded,
    );
    world
        .by(world.ada, "UPDATE person SET permissions = '{viewer}' WHERE name = 'cy'")
        .await
        .unwrap();
    let grant =
        format!("INSERT INTO scoped_grant VALUES ('{}', 'reviewer', '{}')", world.cy, world.web);
    world.by(world.ada, &grant).await.unwrap();
    assert_refused(
        "a permission that the author granted",
        world.approved_by(world.cy).await,
        Refusal::ApprovalExcluded,
    );
    world.later("24 hours").await;
    for person in [dan, world.bo, world.cy] {
        world.approved_by(person).await.unwrap();
    }
}

/// cy is an admin and a reviewer, and acts through accounts that they control.
#[tokio::test]
async fn admin_cannot_approve_own_change_with_other_accounts() {
    let world = World::new().await;
    world.admins().await;
    let oli = world.add(world.cy, "oli", "{operator}").await;
    let ria = world.add(world.cy, "ria", "{reviewer}").await;
    world.link(world.cy, world.eve).await;
    for (case, author, person) in [
        ("two new accounts", oli, ria),
        ("a new author", oli, world.cy),
        ("a link for the author", world.eve, world.cy),
        ("a link and a new account", world.eve, ria),
    ] {
        assert_refused(case, world.approved(author, person).await, Refusal::ApprovalExcluded);
    }
    // Access from another admin, or from the owner of the installation.
    let ron = world.add(world.ada, "ron", "{reviewer}").await;
    for person in [world.bo, ron] {
        world.approved(oli, person).await.unwrap();
    }
    assert_eq!(world.confirm(oli, world.ada).await.unwrap(), 1);
    for person in [world.cy, ria] {
        world.approved(oli, person).await.unwrap();
    }
    world.later("24 hours").await;
    world.approved(world.eve, world.cy).await.unwrap();
}

#[tokio::test]
async fn admin_who_becomes_reviewer_cannot_approve_own_change() {
    let world = World::new().await;
    world.admins().await;
    let oli = world.add(world.ada, "oli", "{operator}").await;
    world
        .by(
            world.ada,
            "UPDATE person SET permissions = permissions || '{reviewer}' WHERE name = 'ada'",
        )
        .await
        .unwrap();
    let refused = world.approved(oli, world.ada).await;
    assert_refused(
        "an approval of a change by an account that the approver created",
        refused,
        Refusal::ApprovalExcluded,
    );
    // ada's own grant does not matter for other authors.
    world.approved(world.eve, world.ada).await.unwrap();
}

#[tokio::test]
async fn access_of_author_counts_at_the_submission() {
    let world = World::new().await;
    world.admins().await;
    let oli = world.add(world.cy, "oli", "{operator}").await;
    let planned = world.plan(world.web, oli).await;
    let review = world.submit(&planned).await.unwrap();
    let older = "ALTER TABLE review DISABLE TRIGGER guard_append_only;
                 UPDATE review SET created_at = created_at - interval '30 hours';
                 ALTER TABLE review ENABLE TRIGGER guard_append_only";
    sqlx::raw_sql(older).execute(world.db.owner()).await.unwrap();
    world.later("30 hours").await;
    world.verdict(review, world.cy, "approve").await.unwrap();
    let early = world.commit(&planned, review).await;
    assert_refused(
        "an author whose access was new at the submission",
        early,
        Refusal::ApprovalExcluded,
    );
    world.edit(planned.proposal, oli).await.unwrap();
    let again = world.plan_for(planned.proposal, world.web, oli).await;
    let review = world.submit(&again).await.unwrap();
    world.verdict(review, world.cy, "approve").await.unwrap();
    world.commit(&again, review).await.unwrap();
}

#[tokio::test]
async fn admin_cannot_approve_change_of_own_service_account() {
    let world = World::new().await;
    world.admins().await;
    world.owner("UPDATE person SET permissions = '{operator}' WHERE name = 'robot'").await.unwrap();
    let token = format!(
        "INSERT INTO token (kind, name, hash, person_id, created_by, scopes, expires_at)
         VALUES ('api', 'ci', sha256('x'), '{}', '{}', '{{operator}}', now() + interval '1 day')",
        world.robot, world.cy
    );
    world.by(world.cy, &token).await.unwrap();
    let refused = world.approved(world.robot, world.cy).await;
    assert_refused(
        "an approval by the admin who has the token",
        refused,
        Refusal::ApprovalExcluded,
    );
    world.approved(world.robot, world.bo).await.unwrap();
    world.later("24 hours").await;
    world.approved(world.robot, world.cy).await.unwrap();
}

#[tokio::test]
async fn approval_during_cooling_never_counts() {
    let world = World::new().await;
    world.admins().await;
    world.link(world.ada, world.bo).await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    // Simulates the next day: both are older, and the time between them is unchanged.
    world.later("30 hours").await;
    let older = "ALTER TABLE verdict DISABLE TRIGGER guard_append_only;
                 UPDATE verdict SET at = at - interval '30 hours';
                 ALTER TABLE verdict ENABLE TRIGGER guard_append_only";
    sqlx::raw_sql(older).execute(world.db.owner()).await.unwrap();
    assert_refused(
        "an approval from the cooling period",
        world.commit(&planned, review).await,
        Refusal::ApprovalExcluded,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn unrelated_access_changes_do_not_bar_approval() {
    let world = World::new().await;
    world.admins().await;
    world.link(world.cy, world.bo).await;
    world.approved_by(world.bo).await.unwrap();
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.link(world.ada, world.bo).await;
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn objection_with_fresh_access_counts() {
    let world = World::new().await;
    world.admins().await;
    world.link(world.ada, world.bo).await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "reject").await.unwrap();
    world.verdict(review, world.cy, "approve").await.unwrap();
    assert_refused(
        "a rejection by a person with new access",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
}

#[tokio::test]
async fn account_newer_than_submission_cannot_approve() {
    let world = World::new().await;
    world.admins().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    let dan = world.add(world.ada, "dan", "{reviewer}").await;
    assert_eq!(world.confirm(dan, world.cy).await.unwrap(), 1);
    // Simulates two days later: the review is older than the account by then, too.
    world.later("48 hours").await;
    let older = "ALTER TABLE review DISABLE TRIGGER guard_append_only;
                 UPDATE review SET created_at = created_at - interval '48 hours';
                 ALTER TABLE review ENABLE TRIGGER guard_append_only";
    sqlx::raw_sql(older).execute(world.db.owner()).await.unwrap();
    world.verdict(review, dan, "approve").await.unwrap();
    assert_refused(
        "an account that is newer than the submission",
        world.commit(&planned, review).await,
        Refusal::ApprovalExcluded,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
    world.approved_by(dan).await.unwrap();
}

/// cy is no author.
#[tokio::test]
async fn access_from_after_submission_bars_approval() {
    let world = World::new().await;
    world.admins().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    let dan = world.add(world.cy, "dan", "{reviewer}").await;
    world
        .by(world.cy, "UPDATE person SET permissions = '{operator, reviewer}' WHERE name = 'eve'")
        .await
        .unwrap();
    world.link(world.cy, world.bo).await;
    for person in [dan, world.eve, world.bo] {
        world.verdict(review, person, "approve").await.unwrap();
    }
    let refused = world.commit(&planned, review).await;
    assert_refused("approvals with new access only", refused, Refusal::ApprovalExcluded);
    for person in [dan, world.eve] {
        world.confirm(person, world.ada).await.unwrap();
    }
    let refused = world.commit(&planned, review).await;
    assert_refused(
        "confirmed accounts and grants from after the submission",
        refused,
        Refusal::ApprovalExcluded,
    );
    // Another admin confirms the link.
    world.confirm(world.bo, world.ada).await.unwrap();
    world.commit(&planned, review).await.unwrap();
    world.approved_by(dan).await.unwrap();
}

#[tokio::test]
async fn access_from_the_owner_never_bars() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    for sql in [
        "INSERT INTO person (name, permissions) VALUES ('dan', '{reviewer}')",
        "INSERT INTO token (kind, hash, person_id, expires_at)
         SELECT 'sign_in', sha256('d'), id, now() + interval '1 hour' FROM person WHERE name = 'dan'",
    ] {
        world.owner(sql).await.unwrap();
    }
    let dan = sqlx::query_scalar("SELECT id FROM person WHERE name = 'dan'")
        .fetch_one(world.db.owner())
        .await
        .unwrap();
    world.verdict(review, dan, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn access_from_fresh_admin_follows_chain() {
    let world = World::new().await;
    world.admins().await;
    let eva = world.add(world.ada, "eva", "{admin}").await;
    let dan = world.add(eva, "dan", "{reviewer}").await;
    assert_refused(
        "an account that ada's new admin created",
        world.approved_by(dan).await,
        Refusal::ApprovalExcluded,
    );
    assert_refused(
        "a confirmation by an admin whom ada created",
        world.confirm(dan, eva).await,
        Refusal::CannotConfirmAccess,
    );
    let fay = world.add(eva, "fay", "{admin}").await;
    assert_refused(
        "a confirmation by an admin whom eva created",
        world.confirm(dan, fay).await,
        Refusal::CannotConfirmAccess,
    );
    // After cy confirms eva, dan's access comes from eva alone. Then eva may confirm access given
    // by ada.
    assert_eq!(world.confirm(eva, world.cy).await.unwrap(), 1);
    world.approved_by(dan).await.unwrap();
    world.link(world.ada, world.bo).await;
    assert_eq!(world.confirm(world.bo, eva).await.unwrap(), 1);
}

#[tokio::test]
async fn only_its_person_dismisses_notice() {
    let world = World::new().await;
    world
        .owner(&format!(
            "INSERT INTO access_change (person_id, kind, by) VALUES ('{}', 'reset', '{}')",
            world.bo, world.ada
        ))
        .await
        .unwrap();
    let dismiss =
        format!("UPDATE access_change SET dismissed_at = now() WHERE person_id = '{}'", world.bo);
    assert_refused("no person", world.app(&dismiss).await, Refusal::PersonMismatch);
    assert_refused("an admin", world.app_as(world.ada, &dismiss).await, Refusal::PersonMismatch);
    assert!(world.app_as(world.bo, &dismiss).await.unwrap() > 0);
}

#[tokio::test]
async fn only_second_admin_confirms_access() {
    let world = World::new().await;
    world.admins().await;
    world.link(world.ada, world.bo).await;
    world.link(world.ada, world.cy).await;
    for (case, person, admin) in [
        ("the admin who gave it", world.bo, world.ada),
        ("a person who is not an admin", world.bo, world.eve),
        ("the person with the access", world.cy, world.cy),
        ("an admin with a link from ada", world.bo, world.cy),
    ] {
        assert_refused(case, world.confirm(person, admin).await, Refusal::CannotConfirmAccess);
    }
    world.later("24 hours").await;
    world.link(world.ada, world.bo).await;
    assert_refused(
        "an approval with new access",
        world.approved_by(world.bo).await,
        Refusal::ApprovalExcluded,
    );
    assert_eq!(world.confirm(world.bo, world.cy).await.unwrap(), 2);
    world.approved_by(world.bo).await.unwrap();
    assert_eq!(
        world.confirm(world.bo, world.cy).await.unwrap(),
        0,
        "the access is confirmed already"
    );
    for sql in [
        "UPDATE access_change SET confirmed_by = person_id",
        "INSERT INTO access_change (person_id, kind) SELECT id, 'created' FROM person",
        "DELETE FROM access_change",
    ] {
        assert_eq!(state(world.app(sql).await), "42501", "{sql}");
    }
}

#[tokio::test]
async fn policy_sets_the_cooling_period() {
    let world = World::new().await;
    world.admins().await;
    world.link(world.ada, world.bo).await;
    for (hours, let_through) in [(721, false), (-1, false), (0, true)] {
        let mut brings = world.plan(world.web, world.ada).await;
        let policy = serde_json::json!({"approvals": 1, "by_risk": {}, "cooling_hours": hours});
        brings.new_policy = Some(world.put("policy", policy).await);
        let review = world.submit(&brings).await.unwrap();
        world.verdict(review, world.cy, "approve").await.unwrap();
        let by_hand = format!(
            "INSERT INTO policy (number, hash) SELECT 2, new_policy_hash FROM review WHERE id = {review}"
        );
        let mut tx = world.db.app().begin().await.unwrap();
        let root = world.root_with(&brings).await;
        world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        let brought = sqlx::query(AssertSqlSafe(by_hand)).execute(&mut *tx).await;
        assert_eq!(brought.is_ok(), let_through, "{hours}: {brought:?}");
        tx.rollback().await.unwrap();
        world.owner("UPDATE proposal SET state = 'discarded' WHERE state = 'open'").await.unwrap();
    }
}

#[tokio::test]
async fn verdict_before_disabling_stays_void() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.owner("UPDATE person SET disabled = true WHERE name = 'bo'").await.unwrap();
    world.owner("UPDATE person SET disabled = false WHERE name = 'bo'").await.unwrap();
    assert_refused(
        "a verdict from before the account was disabled",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn session_of_an_admins_link_records_a_reset() {
    let world = World::new().await;
    world.admins().await;
    world.link(world.ada, world.bo).await;
    let begin = format!(
        "WITH spent AS (UPDATE token SET used_at = now() WHERE kind = 'sign_in' RETURNING person_id)
         SELECT count(*) FROM spent; INSERT INTO session (token_hash, person_id, idle_expires_at, expires_at)
         VALUES (sha256('s'), '{}', now() + interval '1 hour', now() + interval '1 hour')",
        world.bo
    );
    sqlx::raw_sql(AssertSqlSafe(begin)).execute(world.db.owner()).await.unwrap();
    let by: Option<Uuid> =
        sqlx::query_scalar("SELECT link_by FROM session WHERE token_hash = sha256('s')")
            .fetch_one(world.db.app())
            .await
            .unwrap();
    assert_eq!(by, Some(world.ada));
    let planned = world.plan(world.web, world.eve).await;
    let review = world.submit(&planned).await.unwrap();
    let mut tx = world.db.app().begin().await.unwrap();
    sqlx::query("SELECT act_as('s')").execute(&mut *tx).await.unwrap();
    let verdict = "INSERT INTO verdict (review_id, person_id, kind) VALUES ($1, $2, 'approve')";
    let given = sqlx::query(verdict).bind(review).bind(world.bo).execute(&mut *tx).await;
    assert_refused("a session from the link of an admin", given, Refusal::LinkSessionRestricted);
    tx.rollback().await.unwrap();
    for sql in [
        "INSERT INTO person (name) VALUES ('new')",
        "UPDATE person SET permissions = '{admin}' WHERE name = 'bo'",
        "INSERT INTO scoped_grant SELECT $bo, 'reviewer', id FROM deployment WHERE name = 'web'",
        "INSERT INTO token (kind, hash, person_id, created_by, expires_at) \
         SELECT 'api', sha256('x'), $bo, $bo, now() + interval '1 day'",
        "INSERT INTO proposal (deployment_id, created_by) SELECT id, $bo FROM deployment WHERE name = 'storage'",
        "INSERT INTO edit (proposal_id, seq, actor, body) SELECT id, 9, $bo, '{}' FROM proposal WHERE state = 'open'",
        "UPDATE edit SET undone = true",
        "INSERT INTO comment (review_id, person_id, body) SELECT max(id), $bo, 'x' FROM review",
        "UPDATE deployment SET on_hold_by = $bo, on_hold_since = now() WHERE name = 'web'",
        "UPDATE deployment SET priority = 9 WHERE name = 'web'",
        "UPDATE node SET available = false WHERE NOT phantom",
    ] {
        let sql = &sql.replace("$bo", &format!("'{}'::uuid", world.bo));
        let mut tx = world.db.app().begin().await.unwrap();
        sqlx::query("SELECT act_as('s')").execute(&mut *tx).await.unwrap();
        assert_refused(
            sql,
            sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *tx).await,
            Refusal::LinkSessionRestricted,
        );
    }
    // Ending the session first, or presenting it last, does not help either.
    let approve = format!(
        "INSERT INTO verdict (review_id, person_id, kind) VALUES ({review}, '{}', 'approve')",
        world.bo
    );
    let propose = format!(
        "INSERT INTO proposal (deployment_id, created_by) SELECT id, '{}' FROM deployment WHERE name = 'storage'",
        world.bo
    );
    for (sql, by) in [
        (
            format!(
                "SELECT act_as('s'); DELETE FROM session WHERE token_hash = sha256('s'); {approve}"
            ),
            Refusal::LinkSessionRestricted,
        ),
        (format!("{propose}; SELECT act_as('s')"), Refusal::PersonMismatch),
    ] {
        let mut tx = world.db.app().begin().await.unwrap();
        let done = match sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *tx).await {
            Ok(_) => tx.commit().await,
            Err(refused) => Err(refused),
        };
        assert_refused(&sql, done, by);
    }
    world.owner("UPDATE proposal SET state = 'discarded' WHERE state = 'open'").await.unwrap();
    let other = format!("UPDATE session SET link_by = '{}'", world.cy);
    assert_refused(
        "another session from the link",
        world.owner(&other).await,
        Refusal::LinkSessionRestricted,
    );
    world.later("24 hours").await;
    world.approved_by(world.bo).await.unwrap();
    world
        .owner("UPDATE session SET token_hash = sha256('t') WHERE token_hash = sha256('s')")
        .await
        .unwrap();
    assert_refused(
        "an approval after the reset",
        world.approved_by(world.bo).await,
        Refusal::ApprovalExcluded,
    );
}

impl World {
    /// Makes robot an admin with these permissions, granted by `granter`. Its token "robot",
    /// created by `creator`, has the same scopes.
    async fn managing_robot(&self, granter: Uuid, creator: Uuid, permissions: &str) {
        self.owner("UPDATE person SET permissions = '{viewer}' WHERE name = 'robot'")
            .await
            .unwrap();
        let grant = format!("UPDATE person SET permissions = '{permissions}' WHERE name = 'robot'");
        self.by(granter, &grant).await.unwrap();
        let token = format!(
            "INSERT INTO token (kind, name, hash, person_id, created_by, scopes, expires_at)
             VALUES ('api', 'ci', sha256('robot'), '{}', '{creator}', '{permissions}', now() + interval '1 day')",
            self.robot
        );
        self.by(creator, &token).await.unwrap();
    }

    /// Executes one statement with the token of robot.
    async fn by_robot(&self, sql: &str) -> Result<u64, sqlx::Error> {
        let mut tx = self.db.app().begin().await?;
        sqlx::query("SELECT act_as('robot')").execute(&mut *tx).await?;
        let done = sqlx::Executor::execute(&mut *tx, AssertSqlSafe(sql)).await?.rows_affected();
        tx.commit().await?;
        Ok(done)
    }

    async fn add_by_robot(&self, name: &str) -> Uuid {
        let sql =
            format!("INSERT INTO person (name, permissions) VALUES ('{name}', '{{operator}}')");
        self.by_robot(&sql).await.unwrap();
        let sql = "SELECT id FROM person WHERE name = $1";
        sqlx::query_scalar(sql).bind(name).fetch_one(self.db.app()).await.unwrap()
    }

    /// The names of those who gave a person access of this kind.
    async fn givers(&self, person: Uuid, kind: &str) -> Vec<String> {
        let sql = "SELECT p.name FROM access_change c JOIN person p ON p.id = c.by
                   WHERE c.person_id = $1 AND c.kind = $2 ORDER BY p.name";
        sqlx::query_scalar(sql).bind(person).bind(kind).fetch_all(self.db.owner()).await.unwrap()
    }
}

fn sign_in_link(person: Uuid) -> String {
    format!(
        "INSERT INTO token (kind, hash, person_id, expires_at)
         VALUES ('sign_in', sha256('link'), '{person}', now() + interval '1 hour')"
    )
}

#[tokio::test]
async fn service_account_manages_accounts_within_its_permissions() {
    let world = World::new().await;
    world.admins().await;
    world.managing_robot(world.cy, world.cy, "{operator,admin}").await;
    let dan = world.add_by_robot("dan").await;
    for sql in [
        "INSERT INTO person (name, kind, permissions) VALUES ('backup', 'service', '{viewer}')"
            .into(),
        "UPDATE person SET permissions = '{viewer}' WHERE name = 'dan'".into(),
        format!("INSERT INTO scoped_grant VALUES ('{dan}', 'operator', '{}')", world.web),
        "DELETE FROM scoped_grant".into(),
        sign_in_link(dan),
        "UPDATE person SET disabled = true WHERE name = 'dan'".into(),
        "UPDATE person SET disabled = false WHERE name = 'dan'".into(),
    ] {
        let sql: String = sql;
        assert_eq!(world.by_robot(&sql).await.unwrap(), 1, "{sql}");
    }
}

#[tokio::test]
async fn service_account_cannot_give_more_than_it_has() {
    let world = World::new().await;
    world.admins().await;
    world.managing_robot(world.cy, world.cy, "{admin}").await;
    let dan = world.add(world.cy, "dan", "{viewer}").await;
    let oli = world.add(world.cy, "oli", "{operator}").await;
    let beyond = [
        "INSERT INTO person (name, permissions) VALUES ('x', '{operator}')".to_owned(),
        "UPDATE person SET permissions = '{operator}' WHERE name = 'dan'".into(),
        format!("INSERT INTO scoped_grant VALUES ('{dan}', 'operator', '{}')", world.web),
        "UPDATE person SET disabled = true WHERE name = 'oli'".into(),
        sign_in_link(oli),
    ];
    let never = [
        "INSERT INTO person (name, permissions) VALUES ('x', '{reviewer}')".to_owned(),
        "INSERT INTO person (name, permissions) VALUES ('x', '{admin}')".into(),
        "INSERT INTO person (name, kind, permissions) VALUES ('x', 'service', '{admin}')".into(),
        "UPDATE person SET permissions = '{admin}' WHERE name = 'dan'".into(),
        format!("INSERT INTO scoped_grant VALUES ('{dan}', 'reviewer', '{}')", world.web),
        "UPDATE person SET permissions = '{viewer}' WHERE name = 'robot'".into(),
        "UPDATE person SET permissions = '{operator,admin}' WHERE name = 'robot'".into(),
        format!("INSERT INTO scoped_grant VALUES ('{}', 'operator', '{}')", world.robot, world.web),
        "UPDATE person SET disabled = true WHERE name = 'ada'".into(),
        "UPDATE person SET disabled = true WHERE name = 'bo'".into(),
        sign_in_link(world.bo),
    ];
    for sql in beyond.iter().chain(&never) {
        assert_refused(sql, world.by_robot(sql).await, Refusal::NotAnAdmin);
    }
    let own_token = format!(
        "INSERT INTO token (kind, name, hash, person_id, created_by, scopes, expires_at)
         VALUES ('api', 'x', sha256('x'), '{0}', '{0}', '{{admin}}', now() + interval '1 day')",
        world.robot
    );
    assert_eq!(state(world.by_robot(&own_token).await), "GY036");
    let confirm = format!("SELECT confirm_access('{dan}', '{}')", world.robot);
    assert_eq!(state(world.by_robot(&confirm).await), "GY041");
    // With the permission and the scope, only the second list is refused.
    world
        .owner("UPDATE person SET permissions = '{operator,admin}' WHERE name = 'robot'")
        .await
        .unwrap();
    let without_scope = world.by_robot(&beyond[0]).await;
    assert_refused("a token without the scope", without_scope, Refusal::NotAnAdmin);
    world.owner("UPDATE token SET scopes = '{operator}' WHERE name = 'ci'").await.unwrap();
    let not_admin = "UPDATE person SET disabled = true WHERE name = 'dan'";
    assert_refused(
        "a token without the scope admin",
        world.by_robot(not_admin).await,
        Refusal::NotAnAdmin,
    );
    world.owner("UPDATE token SET scopes = '{operator,admin}' WHERE name = 'ci'").await.unwrap();
    for sql in &never {
        assert_refused(sql, world.by_robot(sql).await, Refusal::NotAnAdmin);
    }
    for sql in &beyond {
        world.by_robot(sql).await.unwrap();
    }
}

#[tokio::test]
async fn access_by_service_account_counts_as_access_by_its_admins() {
    let world = World::new().await;
    world.admins().await;
    world
        .owner("UPDATE person SET permissions = '{reviewer,admin}' WHERE name = 'bo'")
        .await
        .unwrap();
    world.managing_robot(world.ada, world.cy, "{operator,admin}").await;
    world.later("30 days").await;
    let oli = world.add_by_robot("oli").await;
    assert_eq!(world.givers(oli, "created").await, ["ada", "cy", "robot"]);
    let refused = world.approved(oli, world.cy).await;
    assert_refused("access given with a token that cy created", refused, Refusal::ApprovalExcluded);
    for admin in [world.ada, world.cy] {
        assert_eq!(
            state(world.confirm(oli, admin).await),
            "GY041",
            "access given by the robot counts as access given by its admin"
        );
    }
    assert_eq!(world.confirm(oli, world.bo).await.unwrap(), 3);
    world.approved(oli, world.cy).await.unwrap();
}

#[tokio::test]
async fn password_reset_by_service_account_counts_as_reset_by_its_admins() {
    let world = World::new().await;
    world.admins().await;
    world.managing_robot(world.ada, world.cy, "{operator,admin}").await;
    world.by_robot(&sign_in_link(world.eve)).await.unwrap();
    let begin = "SELECT begin_session_by_link('link', sha256('s'), '1 hour', '1 hour', '', '')";
    world.app(begin).await.unwrap();
    world
        .owner("UPDATE session SET token_hash = sha256('n') WHERE token_hash = sha256('s')")
        .await
        .unwrap();
    assert_eq!(world.givers(world.eve, "reset").await, ["ada", "cy", "robot"]);
}

/// The session began with an older link, which a token of another admin created.
#[tokio::test]
async fn password_reset_counts_as_reset_by_givers_of_the_used_link() {
    for deletes in [false, true] {
        let world = World::new().await;
        world.admins().await;
        world
            .owner("UPDATE person SET permissions = '{reviewer,admin}' WHERE name = 'bo'")
            .await
            .unwrap();
        world.managing_robot(world.ada, world.cy, "{operator,admin}").await;
        world.by_robot(&sign_in_link(world.eve)).await.unwrap();
        world.owner("DELETE FROM token WHERE name = 'ci'").await.unwrap();
        let token = format!(
            "INSERT INTO token (kind, name, hash, person_id, created_by, scopes, expires_at)
             VALUES ('api', 'other', sha256('robot'), '{}', '{}', '{{operator,admin}}', now() + interval '1 day')",
            world.robot, world.bo
        );
        world.by(world.bo, &token).await.unwrap();
        world.by_robot(&sign_in_link(world.eve).replace("'link'", "'newer'")).await.unwrap();
        assert_eq!(
            world.givers(world.eve, "link").await,
            ["ada", "ada", "bo", "cy", "robot", "robot"]
        );
        let begin = "SELECT begin_session_by_link('link', sha256('s'), '1 hour', '1 hour', '', '')";
        world.app(begin).await.unwrap();
        if deletes {
            world.app("DELETE FROM token WHERE used_at IS NOT NULL").await.unwrap();
        }
        world
            .owner("UPDATE session SET token_hash = sha256('n') WHERE token_hash = sha256('s')")
            .await
            .unwrap();
        let expected: &[&str] =
            if deletes { &["ada", "bo", "cy", "robot"] } else { &["ada", "cy", "robot"] };
        assert_eq!(world.givers(world.eve, "reset").await, expected);
    }
}

#[tokio::test]
async fn grant_of_admin_to_service_account_is_recorded() {
    let world = World::new().await;
    world.admins().await;
    world.managing_robot(world.ada, world.cy, "{admin}").await;
    assert_eq!(world.givers(world.robot, "granted").await, ["ada"]);
}
