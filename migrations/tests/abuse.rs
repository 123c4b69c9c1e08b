//! Attacks on the gate with plain SQL as the application role, without Gantry's own code: the means
//! of an attacker with its connection. `docs/gate.md` maps each known attack to its test.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;
use world::{NewReview, Tx, World, assert_refused, deployment_doc, hex, node_doc, state};

/// A change of `web` with a review and an approval.
async fn approved(world: &World) -> (NewReview, i64) {
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    (planned, review)
}

async fn policy(world: &World, body: Value) -> world::Hash {
    world.put("policy", body).await
}

#[tokio::test]
async fn one_changed_byte_voids_approval() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let mut other = planned.clone();
    let data = json!({"app": {"deployment": world.web, "data": {"port": "another"}}});
    other.documents[0].3 =
        Some(world.put("node", node_doc(world.n1, "n1.x.example", world.web, data)).await);
    assert_refused(
        "a commit of another document",
        world.commit(&other, review).await,
        Refusal::UnlistedDocuments,
    );
    let replaced = "UPDATE review_document SET new_hash = old_hash";
    assert_eq!(state(world.app(replaced).await), "42501");
    assert_eq!(world.head().await, 1);
}

#[tokio::test]
async fn empty_change_is_refused() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.documents.clear();
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "an empty change",
        world.commit(&planned, review).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn verdict_before_submission_is_refused() {
    let world = World::new().await;
    assert_eq!(
        state(world.verdict(1, world.bo, "approve").await),
        "23503",
        "the review does not exist yet"
    );
    let planned = world.plan(world.web, world.ada).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let sql =
        "INSERT INTO review (proposal_id, version, change_hash, effects_hash, policy_number, approvals_needed,
                                       epoch, root_hash, created_by)
               VALUES ($1, $2, $3, $3, 1, 1, 1, $3, $4) RETURNING id";
    let id: i64 = sqlx::query_scalar(sql)
        .bind(planned.proposal)
        .bind(planned.version)
        .bind(&planned.root)
        .bind(world.ada)
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let sql = "INSERT INTO verdict (review_id, person_id, kind) VALUES ($1, $2, 'approve')";
    let early = sqlx::query(sql).bind(id).bind(world.bo).execute(&mut *tx).await;
    assert_refused("a verdict while the review is submitted", early, Refusal::ReviewSealed);
}

#[tokio::test]
async fn approval_does_not_apply_to_other_scope() {
    let world = World::new().await;
    let (_, web) = approved(&world).await;
    let planned = world.plan(world.storage, world.ada).await;
    let storage = world.submit(&planned).await.unwrap();
    assert_refused(
        "a commit of storage with the approval of web",
        world.commit(&planned, web).await,
        Refusal::UnlistedDocuments,
    );
    assert_refused(
        "a commit of storage without an approval",
        world.commit(&planned, storage).await,
        Refusal::NotApproved,
    );
    assert_eq!(world.head().await, 1);
}

#[tokio::test]
async fn submitter_is_author() {
    let world = World::new().await;
    world
        .owner("UPDATE person SET permissions = '{operator, reviewer}' WHERE name = 'bo'")
        .await
        .unwrap();
    let planned = NewReview { by: world.bo, ..world.plan(world.web, world.ada).await };
    let review = world.submit(&planned).await.unwrap();
    assert_refused(
        "an approval by the submitter",
        world.verdict(review, world.bo, "approve").await,
        Refusal::VerdictByAuthor,
    );
    world.verdict(review, world.cy, "approve").await.unwrap();
    assert_refused(
        "a submitter who is not listed as an author",
        world.commit(&planned, review).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn undo_and_redo_make_author() {
    let world = World::new().await;
    let proposal = world.propose(world.web, world.ada).await;
    let touch = |people: &str| {
        format!(
            "UPDATE edit SET touched_by = ARRAY[{people}]::uuid[] WHERE proposal_id = {proposal}"
        )
    };
    world.owner(&touch(&format!("'{}'", world.bo))).await.unwrap();
    for fewer in ["", &format!("'{}'", world.cy)] {
        assert_refused("removing an author", world.app(&touch(fewer)).await, Refusal::AppendOnly);
    }
    world.owner(&touch(&format!("'{}', '{}'", world.cy, world.bo))).await.unwrap();
    let planned = world.plan_for(proposal, world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    assert_refused(
        "a verdict of bo",
        world.verdict(review, world.bo, "approve").await,
        Refusal::VerdictByAuthor,
    );
}

#[tokio::test]
async fn submission_commits_once_under_concurrency() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let (one, two) = tokio::join!(world.commit(&planned, review), world.commit(&planned, review));
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1, "{one:?} {two:?}");
    assert_eq!(world.head().await, 2);
    assert_refused(
        "a second commit",
        world.commit(&planned, review).await,
        Refusal::ProposalChanged,
    );
    let by_hand = format!(
        "INSERT INTO blueprint (number, parent, kind, root, review_id, enabled, epoch, committed_by)
         SELECT 3, 2, 'change', root, {review}, true, 1, '{}' FROM blueprint WHERE number = 2",
        world.ada
    );
    assert_refused(
        "the same review as the next blueprint",
        world.app(&by_hand).await,
        Refusal::ProposalChanged,
    );
}

#[tokio::test]
async fn committer_needs_current_permission() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    world.owner("INSERT INTO person (name, permissions) VALUES ('fay', '{admin}')").await.unwrap();
    for changed in ["permissions = '{viewer,admin}'", "permissions = '{operator}', disabled = true"]
    {
        world.owner(&format!("UPDATE person SET {changed} WHERE name = 'ada'")).await.unwrap();
        assert_refused(changed, world.commit(&planned, review).await, Refusal::CannotCommit);
        assert_refused(changed, world.switch(false).await, Refusal::CannotCommit);
    }
    let nobody = "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch)
                  SELECT 2, 1, 'switch', root, false, 1 FROM blueprint";
    assert_refused("a commit without a person", world.app(nobody).await, Refusal::CannotCommit);
    world
        .owner("UPDATE person SET permissions = '{reviewer}', disabled = false WHERE name = 'ada'")
        .await
        .unwrap();
    assert_refused("a switch by a reviewer", world.switch(false).await, Refusal::CannotCommit);
    world.commit(&planned, review).await.unwrap();
}

/// All rows of a commit that introduces a policy.
async fn commit_policy(
    world: &World,
    tx: &mut Tx<'_>,
    s: &NewReview,
    id: i64,
    hash: &[u8],
) -> Result<(), sqlx::Error> {
    let root = world.root_with(s).await;
    let number = world.insert_blueprint(tx, id, &root).await?;
    let sql = "INSERT INTO policy (number, hash) SELECT policy_number + 1, $1 FROM head";
    sqlx::query(sql).bind(hash).execute(&mut **tx).await?;
    tx.execute("UPDATE head SET policy_number = policy_number + 1").await?;
    world.project(tx, s, number).await
}

#[tokio::test]
async fn policy_change_satisfies_old_and_new_policy() {
    let world = World::new().await;
    let (other, before) = approved(&world).await;
    let stricter = policy(&world, json!({"approvals": 2, "by_risk": {}})).await;
    let weaker = policy(&world, json!({"approvals": 1, "by_risk": {}})).await;
    let planned = world.plan(world.storage, world.ada).await;
    let brings = |hash: &world::Hash, needed| NewReview {
        new_policy: Some(hash.clone()),
        needed,
        ..planned.clone()
    };
    assert_refused(
        "one approval, which the new policy does not allow",
        world.submit(&brings(&stricter, 1)).await,
        Refusal::IncompleteReview,
    );
    let risky = NewReview { risk: vec!["destructive".into()], ..brings(&weaker, 1) };
    assert_refused(
        "one approval, which the old policy does not allow",
        world.submit(&risky).await,
        Refusal::IncompleteReview,
    );
    for broken in [json!({}), json!({"approvals": null}), json!([]), json!(null)] {
        let hash = policy(&world, broken.clone()).await;
        assert_refused(
            &broken.to_string(),
            world.submit(&brings(&hash, 20)).await,
            Refusal::IncompleteReview,
        );
    }

    let planned = brings(&stricter, 2);
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    let mut tx = world.db.app().begin().await.unwrap();
    let refused = commit_policy(&world, &mut tx, &planned, review, &stricter).await;
    assert_refused("one approval", refused, Refusal::NotApproved);
    drop(tx);
    world.verdict(review, world.cy, "approve").await.unwrap();
    let mut tx = world.db.app().begin().await.unwrap();
    let refused = commit_policy(&world, &mut tx, &planned, review, &weaker).await;
    assert_refused("a policy that was not reviewed", refused, Refusal::IntentOutsideCommit);
    drop(tx);
    let mut tx = world.db.app().begin().await.unwrap();
    commit_policy(&world, &mut tx, &planned, review, &stricter).await.unwrap();
    tx.commit().await.unwrap();

    // Approvals under the old policy do not apply under the new one.
    assert_refused(
        "an approval under the old policy",
        world.commit(&other, before).await,
        Refusal::PolicyChanged,
    );
    let version = world.edit(other.proposal, world.ada).await.unwrap();
    let again = NewReview { version, policy: 2, ..other };
    assert_refused(
        "one approval under the new policy",
        world.submit(&again).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn policy_raised_during_commit_counts() {
    let world = World::new().await;
    let (other, before) = approved(&world).await;
    let stricter = policy(&world, json!({"approvals": 2, "by_risk": {}})).await;
    let planned = world.plan(world.storage, world.ada).await;
    let planned = NewReview { new_policy: Some(stricter.clone()), needed: 2, ..planned };
    let review = world.submit(&planned).await.unwrap();
    for who in [world.bo, world.cy] {
        world.verdict(review, who, "approve").await.unwrap();
    }
    let mut tx = world.db.app().begin().await.unwrap();
    commit_policy(&world, &mut tx, &planned, review, &stricter).await.unwrap();
    let raise = async {
        world.has_lock_waiter().await;
        tx.commit().await
    };
    let (late, raised) = tokio::join!(world.commit(&other, before), raise);
    raised.unwrap();
    assert_refused(
        "a commit that read the head before the policy change",
        late,
        Refusal::NotNextBlueprint,
    );
    assert_refused(
        "a commit after the policy change",
        world.commit(&other, before).await,
        Refusal::PolicyChanged,
    );
}

#[tokio::test]
async fn destructive_step_without_its_risk_is_refused() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;
    for sql in [
        "UPDATE step SET destructive = true WHERE node_id = $1",
        "INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank, jig, generation, content_hash, state, destructive)
         SELECT gen_random_uuid(), noderole_id, node_id, 'wipe', concurrency_group_id, 1, 'script', 2, content_hash, 'todo', true
         FROM step WHERE node_id = $1",
    ] {
        let mut tx = world.db.app().begin().await.unwrap();
        world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        let hidden = sqlx::query(AssertSqlSafe(sql)).bind(world.n1).execute(&mut *tx).await;
        assert_refused(sql, hidden, Refusal::IncompleteReview);
    }
    // The same change with the risk named and two approvals.
    world.edit(planned.proposal, world.ada).await.unwrap();
    let mut planned = world.plan_for(planned.proposal, world.web, world.ada).await;
    planned.risk.push("destructive".into());
    planned.needed = 2;
    let review = world.submit(&planned).await.unwrap();
    for who in [world.bo, world.cy] {
        world.verdict(review, who, "approve").await.unwrap();
    }
    let root = world.root_with(&planned).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    let sql = "UPDATE step SET destructive = true, generation = $2 WHERE node_id = $1";
    let destructive = sqlx::query(sql).bind(world.n1).bind(number).execute(&mut *tx).await;
    // A named risk cannot make a step destructive if its role is not.
    assert_refused(
        "a destructive flag that differs from the role",
        destructive,
        Refusal::ProjectionMismatch,
    );
}

#[tokio::test]
async fn jig_switch_without_its_risk_is_refused() {
    let world = World::new().await;
    let phantom: Uuid = sqlx::query_scalar("SELECT phantom FROM deployment WHERE system")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let doc = async |note: &str, off: &[&str]| {
        let mut doc = deployment_doc(world.system, "system", None, phantom, note);
        doc["inactive_jigs"] = json!(off);
        world.put("deployment", doc).await
    };
    let commit = async |new: world::Hash, risk: &[&str]| {
        let mut planned = world.plan(world.web, world.ada).await;
        let old = world.root().await.deployments.remove(&world.system);
        planned.documents.push(("deployment", world.system, old, Some(new)));
        planned.root = world.root_with(&planned).await;
        planned.risk.extend(risk.iter().map(|risk| (*risk).to_owned()));
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        let commit = async {
            let root = world.root_with(&planned).await;
            let mut tx = world.db.app().begin().await?;
            let number = world.insert_blueprint(&mut tx, review, &root).await?;
            sqlx::query("UPDATE deployment SET head_no = $1 WHERE system")
                .bind(number)
                .execute(&mut *tx)
                .await?;
            world.project(&mut tx, &planned, number).await?;
            let switched =
                "UPDATE jig j SET active = NOT (jigs_off(d.doc) ? j.name) FROM deployment d
                            WHERE d.system AND j.active = (jigs_off(d.doc) ? j.name)";
            tx.execute(switched).await?;
            tx.commit().await
        };
        let commit = commit.await;
        if commit.is_err() {
            discard(&world, &planned).await;
        }
        commit
    };
    let off = doc("", &["script"]).await;
    assert_refused(
        "a disabled jig without its risk",
        commit(off.clone(), &["removal"]).await,
        Refusal::IncompleteReview,
    );
    commit(off, &["halt"]).await.unwrap();
    // It stays off while other parts of the document change, and can be turned on again.
    commit(doc("another", &["script"]).await, &[]).await.unwrap();
    assert_refused(
        "one more disabled jig without its risk",
        commit(doc("", &["script", "noop"]).await, &[]).await,
        Refusal::IncompleteReview,
    );
    commit(doc("", &[]).await, &[]).await.unwrap();
}

/// A change of one node's document as database rows, with these risks and an approval.
async fn changed(
    world: &World,
    node: (Uuid, &str, Uuid),
    noderoles: Value,
    others: &[Uuid],
    risk: &[&str],
) -> (NewReview, i64) {
    let mut planned = world.plan(world.web, world.ada).await;
    let (id, fqdn, deployment) = node;
    let old = world.root().await.nodes.remove(&id);
    planned.documents = vec![(
        "node",
        id,
        old,
        Some(world.put("node", node_doc(id, fqdn, deployment, noderoles)).await),
    )];
    for deployment in others {
        planned.base.push((*deployment, world.head_no(*deployment).await));
    }
    planned.root = world.root_with(&planned).await;
    planned.risk = risk.iter().map(|risk| (*risk).to_owned()).collect();
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    (planned, review)
}

/// Allows the next proposal for the same deployment.
async fn discard(world: &World, planned: &NewReview) {
    let sql = format!(
        "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE id = {}",
        planned.proposal
    );
    world.owner(&sql).await.unwrap();
}

/// Runs each statement in its own commit, which is rolled back.
async fn refused_within(world: &World, planned: &NewReview, review: i64, statements: &[&str]) {
    let root = world.root_with(planned).await;
    for sql in statements {
        let mut tx = world.db.app().begin().await.unwrap();
        world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        assert_refused(sql, tx.execute(AssertSqlSafe(*sql)).await, Refusal::IncompleteReview);
    }
}

#[tokio::test]
async fn removal_without_its_risk_is_refused() {
    let world = World::new().await;
    let n1 = (world.n1, "n1.x.example", world.web);
    let (hidden, review) = changed(&world, n1, json!({}), &[], &["rerun", "move"]).await;
    assert_refused(
        "removal of a noderole",
        world.commit(&hidden, review).await,
        Refusal::IncompleteReview,
    );
    discard(&world, &hidden).await;

    let mut node = world.plan(world.web, world.ada).await;
    node.documents[0].3 = None;
    node.root = world.root_with(&node).await;
    let review = world.submit(&node).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "removal of a node",
        world.commit(&node, review).await,
        Refusal::IncompleteReview,
    );
    discard(&world, &node).await;

    let shop = ChildDeployment::create(&world).await;
    let mut planned = world.plan(world.web, world.ada).await;
    let [doc, phantom] = shop.docs.clone().map(Some);
    planned.documents =
        vec![("deployment", shop.id, doc, None), ("node", shop.phantom, phantom, None)];
    planned.base.push((shop.id, world.head_no(shop.id).await));
    planned.root = world.root_with(&planned).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    let root = world.root_with(&planned).await;
    let mut tx = world.db.app().begin().await.unwrap();
    assert_refused(
        "removal of a deployment",
        world.insert_blueprint(&mut tx, review, &root).await,
        Refusal::IncompleteReview,
    );
    drop(tx);
    discard(&world, &planned).await;

    // Rows change under a commit whose documents do not contain the change.
    let (other, review) = approved(&world).await;
    let node = "(SELECT id FROM node WHERE fqdn = 'n2.x.example')";
    refused_within(
        &world,
        &other,
        review,
        &[
            &format!("UPDATE noderole SET disposition = 'gone' WHERE node_id = {node}"),
            &format!("UPDATE noderole SET disposition = 'expunged' WHERE node_id = {node}"),
            &format!("UPDATE step SET state = 'gone' WHERE node_id = {node}"),
            "UPDATE node SET removed_in = 3 WHERE fqdn = 'n2.x.example'",
            "UPDATE deployment SET removed_in = 3 WHERE name = 'storage'",
        ],
    )
    .await;
    discard(&world, &other).await;

    let (named, review) = changed(&world, n1, json!({}), &[], &["removal"]).await;
    let root = world.root_with(&named).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    for sql in [
        "UPDATE noderole SET disposition = 'gone' WHERE node_id = $1",
        "UPDATE step SET state = 'gone' WHERE node_id = $1",
    ] {
        sqlx::query(sql).bind(world.n1).execute(&mut *tx).await.unwrap();
    }
    world.project(&mut tx, &named, number).await.unwrap();
    tx.commit().await.unwrap();
}

/// A large database gets other join plans than a small one, and most of its objects are not roles.
/// Scripts are not even JSON.
#[tokio::test]
async fn document_risks_are_found_with_any_plan() {
    let world = World::new().await;
    let n1 = (world.n1, "n1.x.example", world.web);
    world.put_bytes("script", b"#!/bin/sh\n".to_vec()).await;
    let app = json!({"app": {"deployment": world.web, "data": {"port": 1}}});
    let (_, review) = changed(&world, n1, app, &[], &["removal", "move"]).await;
    for setting in ["enable_nestloop", "enable_hashjoin", "enable_mergejoin"] {
        let mut tx = world.db.app().begin().await.unwrap();
        let others = "SELECT set_config(name, (name = $1)::text, true)
                      FROM unnest(ARRAY['enable_nestloop', 'enable_hashjoin', 'enable_mergejoin']) AS name";
        sqlx::query(others).bind(setting).execute(&mut *tx).await.unwrap();
        let risks: Vec<String> =
            sqlx::query_scalar("SELECT risk FROM risks_of_documents($1) ORDER BY risk")
                .bind(review)
                .fetch_all(&mut *tx)
                .await
                .unwrap();
        assert!(risks.contains(&"rerun".to_owned()), "{setting}: {risks:?}");
    }
}

#[tokio::test]
async fn rerun_without_its_risk_is_refused() {
    let world = World::new().await;
    let n1 = (world.n1, "n1.x.example", world.web);
    let keeps = hex(&world.put("role", json!({"name": "app", "run": {"on_change": "keep"}})).await);
    let other = hex(&world.put("role", json!({"name": "app", "description": "another"})).await);
    let app = |more: Value| {
        let mut app = json!({"deployment": world.web, "data": {}});
        app.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "app": app })
    };
    for (case, more) in [
        ("other data", json!({"data": {"port": 1}})),
        ("another role", json!({"role": other})),
        ("a requested run", json!({"reruns": 1})),
        ("a requested run of a role that retains its result", json!({"reruns": 1, "role": keeps})),
    ] {
        let (hidden, review) = changed(&world, n1, app(more), &[], &["removal", "move"]).await;
        // Refused before any row changes.
        let root = world.root_with(&hidden).await;
        let mut tx = world.db.app().begin().await.unwrap();
        assert_refused(
            case,
            world.insert_blueprint(&mut tx, review, &root).await,
            Refusal::IncompleteReview,
        );
        drop(tx);
        discard(&world, &hidden).await;
    }
    // The deployment changes the data of a role, on nodes whose own documents stay unchanged.
    let phantom: Uuid = sqlx::query_scalar("SELECT phantom FROM deployment WHERE name = 'web'")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let web = async |data: Value| {
        let mut doc = deployment_doc(world.web, "web", Some(world.system), phantom, "");
        doc["roles"] = json!({"app": {"role": hex(&world.role), "data": data}});
        world.put("deployment", doc).await
    };
    let of_web = async |data: Value, risk: &[&str]| {
        let mut planned = world.plan(world.web, world.ada).await;
        let old = world.root().await.deployments.remove(&world.web);
        planned.documents = vec![("deployment", world.web, old, Some(web(data).await))];
        planned.root = world.root_with(&planned).await;
        planned.risk = risk.iter().map(|risk| (*risk).to_owned()).collect();
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        let committed = world.commit(&planned, review).await;
        if committed.is_err() {
            discard(&world, &planned).await;
        }
        committed
    };
    of_web(json!({}), &[]).await.unwrap();
    assert_refused(
        "a change of the deployment's data",
        of_web(json!({"port": 1}), &["removal"]).await,
        Refusal::IncompleteReview,
    );
    of_web(json!({"port": 1}), &["rerun"]).await.unwrap();

    // Rows only: neither a new rank nor new content of a role with `keep` causes a re-run.
    for more in [json!({"rank": 1}), json!({"rank": 1, "role": keeps, "data": {"port": 1}})] {
        let (other, review) = changed(&world, n1, app(more), &[], &[]).await;
        let again = [
            "UPDATE step SET generation = 3",
            "UPDATE step SET generation = 3 WHERE jig = 'script'",
        ];
        refused_within(&world, &other, review, &again).await;
        let root = world.root_with(&other).await;
        let mut tx = world.db.app().begin().await.unwrap();
        world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        let same_generation =
            "UPDATE step SET generation = generation, rank = 1 WHERE node_id = $1";
        sqlx::query(same_generation).bind(world.n1).execute(&mut *tx).await.unwrap();
        drop(tx);
        discard(&world, &other).await;
    }
    world.change(world.web).await;
}

#[tokio::test]
async fn move_without_its_risk_is_refused() {
    let world = World::new().await;
    let stays = json!({"app": {"deployment": world.web, "data": {}}});
    let moved_node = (world.n1, "n1.x.example", world.storage);
    let (hidden, review) =
        changed(&world, moved_node, stays.clone(), &[world.storage], &["removal", "rerun"]).await;
    assert_refused(
        "a move to a sibling",
        world.commit(&hidden, review).await,
        Refusal::IncompleteReview,
    );
    discard(&world, &hidden).await;

    // A move to a descendant does not leave the deployment, a move to an ancestor does.
    let shop = ChildDeployment::create(&world).await;
    let go = async |planned: &NewReview, review: i64, deployment: Uuid| {
        let root = world.root_with(planned).await;
        let mut tx = world.db.app().begin().await?;
        let number = world.insert_blueprint(&mut tx, review, &root).await?;
        let sql = "UPDATE node SET deployment_id = $2, doc = $3 WHERE id = $1";
        let row = sqlx::query(sql).bind(world.n1).bind(deployment).bind(&planned.documents[0].3);
        row.execute(&mut *tx).await?;
        let without_documents = NewReview { documents: Vec::new(), ..planned.clone() };
        world.project(&mut tx, &without_documents, number).await?;
        tx.commit().await
    };
    let below = (world.n1, "n1.x.example", shop.id);
    let (down, review) = changed(&world, below, stays.clone(), &[shop.id], &[]).await;
    go(&down, review, shop.id).await.unwrap();
    let home = (world.n1, "n1.x.example", world.web);
    let (up, review) = changed(&world, home, stays, &[shop.id], &[]).await;
    assert_refused(
        "a move to the parent",
        go(&up, review, world.web).await,
        Refusal::IncompleteReview,
    );
    discard(&world, &up).await;

    // Rows only.
    let (other, review) = {
        let planned = world.plan(world.storage, world.ada).await;
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        (planned, review)
    };
    let moves = "UPDATE node SET deployment_id = (SELECT id FROM deployment WHERE name = 'web') WHERE fqdn = 'n2.x.example'";
    refused_within(&world, &other, review, &[moves]).await;

    let stays = json!({"app": {"deployment": world.web, "data": {}}});
    let (named, review) =
        changed(&world, moved_node, stays, &[shop.id, world.storage], &["move"]).await;
    go(&named, review, world.storage).await.unwrap();
}

/// A move of a deployment as a submitted review, with these risks and other deployments in the
/// base.
async fn deployment_moved(
    world: &World,
    deployment: (Uuid, &str),
    parent: Uuid,
    others: &[Uuid],
    risk: &[&str],
) -> (NewReview, i64) {
    let (id, name) = deployment;
    let phantom: Uuid = sqlx::query_scalar("SELECT phantom FROM deployment WHERE id = $1")
        .bind(id)
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let mut planned = world.plan(world.web, world.ada).await;
    let old = world.root().await.deployments.remove(&id);
    let new = world.put("deployment", deployment_doc(id, name, Some(parent), phantom, "")).await;
    planned.documents = vec![("deployment", id, old, Some(new))];
    for deployment in others {
        planned.base.push((*deployment, world.head_no(*deployment).await));
    }
    planned.root = world.root_with(&planned).await;
    planned.risk = risk.iter().map(|risk| (*risk).to_owned()).collect();
    let review = world.submit(&planned).await.unwrap();
    (planned, review)
}

#[tokio::test]
async fn deployment_move_without_its_risk_is_refused() {
    let world = World::new().await;
    let storage = (world.storage, "storage");
    // The new parent is below the old one, so nothing is left. The move still needs its risk.
    let down = async |risk: &[&str]| {
        let (planned, review) =
            deployment_moved(&world, storage, world.web, &[world.storage], risk).await;
        world.verdict(review, world.bo, "approve").await.unwrap();
        (planned, review)
    };
    let (hidden, review) = down(&["removal", "rerun"]).await;
    assert_refused(
        "a move without its risk",
        world.commit(&hidden, review).await,
        Refusal::IncompleteReview,
    );
    discard(&world, &hidden).await;

    // Rows only: without the risk, and with the risk but without the document.
    let moves = "UPDATE deployment SET parent = (SELECT id FROM deployment WHERE name = 'web') WHERE name = 'storage'";
    assert_refused("a move without a commit", world.app(moves).await, Refusal::IntentOutsideCommit);
    let (other, review) = approved(&world).await;
    refused_within(&world, &other, review, &[moves]).await;
    discard(&world, &other).await;
    let more = json!({"app": {"deployment": world.web, "data": {"port": 5}}});
    let n1 = (world.n1, "n1.x.example", world.web);
    let (other, review) = changed(&world, n1, more, &[], &["move", "rerun"]).await;
    let mut tx = world.db.app().begin().await.unwrap();
    world.insert_blueprint(&mut tx, review, &world.root_with(&other).await).await.unwrap();
    assert_refused("a move without its document", tx.execute(moves).await, Refusal::UnlistedRows);
    drop(tx);
    discard(&world, &other).await;

    let (named, review) = down(&["move"]).await;
    world.commit(&named, review).await.unwrap();
    let sql = "SELECT parent = $1 FROM deployment WHERE name = 'storage'";
    let is_below: bool =
        sqlx::query_scalar(sql).bind(world.web).fetch_one(world.db.app()).await.unwrap();
    assert!(is_below);
    // The old parent has another child now, so a review that is based on it is void.
    assert_eq!(world.head_no(world.system).await, world.head().await);
}

#[tokio::test]
async fn deployment_move_needs_approval_in_both_places() {
    let world = World::new().await;
    let shop = ChildDeployment::create(&world).await;
    world.owner("UPDATE person SET permissions = '{viewer}' WHERE name = 'cy'").await.unwrap();
    let grant = async |deployment: Uuid| {
        let sql =
            format!("INSERT INTO scoped_grant VALUES ('{}', 'reviewer', '{deployment}')", world.cy);
        world.owner(&sql).await.unwrap();
    };
    grant(world.storage).await;
    let shop = (shop.id, "shop");
    let (unlisted, review) =
        deployment_moved(&world, shop, world.storage, &[shop.0], &["move"]).await;
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "a base without the new parent",
        world.commit(&unlisted, review).await,
        Refusal::IncompleteReview,
    );
    discard(&world, &unlisted).await;

    let others = [shop.0, world.storage];
    let (planned, review) = deployment_moved(&world, shop, world.storage, &others, &["move"]).await;
    let approve = async || world.verdict(review, world.cy, "approve").await;
    assert_refused("a reviewer of the child only", approve().await, Refusal::NotAReviewer);
    grant(shop.0).await;
    assert_refused("a reviewer without the old parent", approve().await, Refusal::NotAReviewer);
    grant(world.web).await;
    approve().await.unwrap();
    let revoke = format!("DELETE FROM scoped_grant WHERE deployment_id = '{}'", world.storage);
    world.owner(&revoke).await.unwrap();
    assert_refused(
        "an approval without the new parent",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    grant(world.storage).await;
    world.commit(&planned, review).await.unwrap();
}

async fn hold(world: &World, deployment: &str) {
    let sql = format!(
        "UPDATE deployment SET on_hold_by = '{}', on_hold_since = now() WHERE name = '{deployment}'",
        world.eve
    );
    world.owner(&sql).await.unwrap();
}

async fn end_hold(world: &World, deployment: &str) {
    let sql = format!(
        "UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL WHERE name = '{deployment}'"
    );
    world.owner(&sql).await.unwrap();
}

#[tokio::test]
async fn move_out_of_a_hold_is_refused() {
    let world = World::new().await;
    let shop = ChildDeployment::create(&world).await;
    let (planned, review) = deployment_moved(
        &world,
        (shop.id, "shop"),
        world.storage,
        &[shop.id, world.storage],
        &["move"],
    )
    .await;
    world.verdict(review, world.bo, "approve").await.unwrap();
    hold(&world, "web").await;
    assert_refused("hold", world.commit(&planned, review).await, Refusal::LeavesHold);
    // The hold of web would end, even if another one applies.
    for deployment in ["shop", "storage", "system"] {
        hold(&world, deployment).await;
    }
    let refused = world.commit(&planned, review).await.unwrap_err().to_string();
    assert!(refused.contains("shop leaves web (on hold by eve)"), "{refused}");
    // Its own hold moves with it, that of system stays above it, and that of storage is new.
    end_hold(&world, "web").await;
    world.commit(&planned, review).await.unwrap();
    end_hold(&world, "system").await;
    end_hold(&world, "shop").await;
    let sql = "SELECT on_hold($1)";
    let is_held: bool =
        sqlx::query_scalar(sql).bind(shop.id).fetch_one(world.db.app()).await.unwrap();
    assert!(is_held, "storage is on hold");
}

/// Other changes of the same review do not hide that a deployment leaves a hold.
#[tokio::test]
async fn left_hold_is_found_in_final_tree() {
    let world = World::new().await;
    let shop = ChildDeployment::create(&world).await;
    hold(&world, "web").await;
    let docs = world.root().await.deployments;
    let doc = async |id: Uuid, name: &str, parent: Uuid| {
        let doc = deployment_doc(id, name, Some(parent), Uuid::new_v4(), "");
        ("deployment", id, docs.get(&id).cloned(), Some(world.put("deployment", doc).await))
    };
    let left = async |documents: Vec<_>| -> Vec<String> {
        let mut planned = world.plan(world.web, world.ada).await;
        planned.documents = documents;
        let review = world.submit(&planned).await.unwrap();
        let sql = "SELECT name || ' ' || on_hold FROM left_holds($1)";
        let left = sqlx::query_scalar(sql).bind(review).fetch_all(world.db.app()).await.unwrap();
        discard(&world, &planned).await;
        left
    };
    let new = Uuid::new_v4();
    let to_storage = doc(shop.id, "shop", world.storage).await;
    let web_removed = ("deployment", world.web, docs.get(&world.web).cloned(), None);
    assert_eq!(left(vec![to_storage.clone(), web_removed]).await, ["shop web"]);
    let storage_below_web = doc(world.storage, "storage", world.web).await;
    assert_eq!(left(vec![to_storage.clone(), storage_below_web]).await, [""; 0]);
    let below_new = doc(shop.id, "shop", new).await;
    let new_in_web = doc(new, "new", world.web).await;
    assert_eq!(left(vec![below_new.clone(), new_in_web]).await, [""; 0]);
    let new_in_storage = doc(new, "new", world.storage).await;
    assert_eq!(left(vec![below_new, new_in_storage]).await, ["shop web"]);
    // The deployment on hold moves with everything below it.
    assert_eq!(left(vec![doc(world.web, "web", world.storage).await]).await, [""; 0]);
}

#[tokio::test]
async fn moved_noderole_waits_only_for_noderoles_above() {
    let world = World::new().await;
    let shop = ChildDeployment::create(&world).await;
    let others = [shop.id, world.storage];
    let (planned, review) =
        deployment_moved(&world, (shop.id, "shop"), world.storage, &others, &["move"]).await;
    world.verdict(review, world.bo, "approve").await.unwrap();
    // A noderole on the phantom node of shop, in this deployment, that waits for one on this node.
    let moved = async |deployment: Uuid, parent: Option<Uuid>| -> Result<(), sqlx::Error> {
        let mut tx = world.db.owner().begin().await.unwrap();
        let root = world.root_with(&planned).await;
        let number = world.insert_blueprint(&mut tx, review, &root).await?;
        let step = world.insert_step(&mut tx, shop.phantom, deployment, "app", number).await;
        let edge = "INSERT INTO edge (child, parent, kind)
                    SELECT $1, s.id, 'hard' FROM step s WHERE s.node_id = $2";
        sqlx::query(edge).bind(step).bind(parent).execute(&mut *tx).await?;
        world.project(&mut tx, &planned, number).await?;
        tx.commit().await
    };
    let old_place = moved(shop.id, Some(world.n1)).await;
    assert_refused("a noderole of the old parent", old_place, Refusal::ParentNotAbove);
    let left_behind = moved(world.web, None).await;
    assert_refused("a node of the old parent", left_behind, Refusal::ParentNotAbove);
    moved(shop.id, Some(world.n2)).await.unwrap();
}

#[tokio::test]
async fn name_like_an_id_is_refused() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;
    let id = Uuid::new_v4();
    for name in [id.to_string(), id.simple().to_string(), id.to_string().to_uppercase()] {
        let mut tx = world.db.app().begin().await.unwrap();
        world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        let sql = format!(
            "INSERT INTO deployment (id, parent, name, phantom, doc, head_no)
             SELECT gen_random_uuid(), parent, '{name}', gen_random_uuid(), doc, head_no
             FROM deployment WHERE name = 'web'"
        );
        assert_eq!(state(tx.execute(AssertSqlSafe(sql)).await), "23514", "{name}");
        let sql = format!("INSERT INTO person (name) VALUES ('{name}')");
        assert_eq!(state(world.owner(&sql).await), "23514", "{name}");
    }
    let sql = "INSERT INTO person (name) VALUES ('me')";
    assert_eq!(state(world.owner(sql).await), "23514", "the path of the own account");
}

#[tokio::test]
async fn node_scoped_proposal_changes_only_its_node() {
    let world = World::new().await;
    let sql = "INSERT INTO proposal (deployment_id, node_id, kind, created_by) VALUES ($1, $2, 'node_scoped', $3) RETURNING id";
    let proposal: i64 = sqlx::query_scalar(sql)
        .bind(world.web)
        .bind(world.n1)
        .bind(world.ada)
        .fetch_one(world.db.owner())
        .await
        .unwrap();
    world.edit(proposal, world.ada).await.unwrap();
    let own = world.plan_for(proposal, world.web, world.ada).await;
    let root = world.root().await;
    let phantom: Uuid = sqlx::query_scalar("SELECT phantom FROM deployment WHERE name = 'web'")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let web = deployment_doc(world.web, "web", Some(world.system), phantom, "");
    let with = |field: &str, value: Value| {
        let mut doc = web.clone();
        doc[field] = value;
        doc
    };
    let role =
        |data: Value| with("roles", json!({"app": {"role": hex(&world.role), "data": data}}));
    let carried = json!({"dns": {"deployment": world.web, "data": {}}});
    let fqdn = "phantom.web.gantry";
    let of_web =
        |doc: Option<Value>| ("deployment", world.web, root.deployments.get(&world.web), doc);
    let of_phantom = |doc: Option<Value>| ("node", phantom, root.nodes.get(&phantom), doc);
    let of = |node: &Uuid, doc: Option<Value>| ("node", *node, root.nodes.get(node), doc);
    let new = Uuid::new_v4();
    for (case, (kind, id, old, doc)) in [
        (
            "a change of another node",
            of(&world.n2, Some(node_doc(world.n2, "n2.x.example", world.storage, json!({})))),
        ),
        ("removal of another node", of(&world.n2, None)),
        ("a new node", of(&new, Some(node_doc(new, "n9.x.example", world.web, json!({}))))),
        (
            "a move to another deployment",
            of(&world.n1, Some(node_doc(world.n1, "n1.x.example", world.storage, json!({})))),
        ),
        ("the deployment", of_web(Some(with("note", json!("another"))))),
        ("data of a role in the deployment", of_web(Some(role(json!({"port": 1}))))),
        ("removal of the deployment", of_web(None)),
        ("removal of the phantom node", of_phantom(None)),
        (
            "a move of the phantom node",
            of_phantom(Some(node_doc(phantom, fqdn, world.storage, carried.clone()))),
        ),
    ] {
        let new = match doc {
            Some(doc) => Some(world.put(kind, doc).await),
            None => None,
        };
        let mut documents = own.documents.clone();
        documents.retain(|document| document.1 != id);
        documents.push((kind, id, old.cloned(), new));
        let wide = NewReview { documents, ..own.clone() };
        assert_refused(case, world.submit(&wide).await, Refusal::OutsideScope);
    }
    let policy = policy(&world, json!({"approvals": 1, "by_risk": {}})).await;
    let brings = NewReview { new_policy: Some(policy), ..own.clone() };
    assert_refused("a change of the policy", world.submit(&brings).await, Refusal::OutsideScope);

    // Required noderoles are also added on the phantom node, and become bindable in the deployment.
    let mut along = own.clone();
    for (kind, id, old, doc) in [
        of_phantom(Some(node_doc(phantom, fqdn, world.web, carried))),
        of_web(Some(role(json!({})))),
    ] {
        along.documents.push((kind, id, old.cloned(), Some(world.put(kind, doc.unwrap()).await)));
    }
    world.submit(&along).await.unwrap();
    // The proposal may remove the node.
    along.version = world.edit(proposal, world.ada).await.unwrap();
    along.documents = vec![("node", world.n1, own.documents[0].2.clone(), None)];
    world.submit(&along).await.unwrap();
}

#[tokio::test]
async fn destructive_step_among_many_is_found() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;
    let mut tx = world.db.app().begin().await.unwrap();
    world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    let crowd = |destructive: &str| {
        format!(
            "INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank, jig, generation, content_hash, state, destructive)
             SELECT gen_random_uuid(), noderole_id, node_id, 'a' || n, concurrency_group_id, n, 'script', 2, content_hash, 'todo', {destructive}
             FROM step, generate_series(1, 1000) n WHERE node_id = '{}'",
            world.n1
        )
    };
    tx.execute("SAVEPOINT before").await.unwrap();
    tx.execute(AssertSqlSafe(crowd("false"))).await.unwrap();
    tx.execute("ROLLBACK TO before").await.unwrap();
    assert_refused(
        "one of a thousand steps",
        tx.execute(AssertSqlSafe(crowd("n = 777"))).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn recreated_proposal_has_no_approvals() {
    let world = World::new().await;
    let (old, approved) = approved(&world).await;
    discard(&world, &old).await;
    let proposal = world.propose(world.web, world.ada).await;
    let again = NewReview { proposal, ..old.clone() };
    let review = world.submit(&again).await.unwrap();
    assert_refused(
        "an identical proposal",
        world.commit(&again, review).await,
        Refusal::NotApproved,
    );
    assert_refused(
        "an identical proposal with the old approval",
        world.commit(&again, approved).await,
        Refusal::ProposalChanged,
    );
    for sql in [
        format!("UPDATE verdict SET review_id = {review}"),
        format!("UPDATE review SET proposal_id = {proposal} WHERE id = {approved}"),
        format!("UPDATE edit SET proposal_id = {proposal}"),
        format!("UPDATE review_author SET review_id = {review}"),
    ] {
        assert_eq!(state(world.app(&sql).await), "42501", "{sql}");
    }
    assert_eq!(world.head().await, 1);
}

/// A deployment below `web` and its phantom node, with their initial documents.
struct ChildDeployment {
    id: Uuid,
    phantom: Uuid,
    docs: [world::Hash; 2],
}

impl ChildDeployment {
    /// Plans and commits a new deployment, always with the same name.
    async fn create(world: &World) -> Self {
        let (id, phantom) = (Uuid::new_v4(), Uuid::new_v4());
        let doc =
            world.put("deployment", deployment_doc(id, "shop", Some(world.web), phantom, "")).await;
        let phantom_doc =
            world.put("node", node_doc(phantom, "phantom.shop.gantry", id, json!({}))).await;
        let shop = Self { id, phantom, docs: [doc, phantom_doc] };
        let [doc, phantom_doc] = shop.docs.clone().map(Some);
        shop.changed(world, [None, None], [doc, phantom_doc]).await;
        shop
    }

    /// Removes the deployment as a commit does, and leaves its proposals unchanged.
    async fn removed(&self, world: &World) {
        let [doc, phantom_doc] = self.docs.clone().map(Some);
        self.changed(world, [doc, phantom_doc], [None, None]).await;
    }

    async fn changed(
        &self,
        world: &World,
        old: [Option<world::Hash>; 2],
        new: [Option<world::Hash>; 2],
    ) {
        let mut planned = world.plan(world.web, world.ada).await;
        let ([old_doc, old_phantom], [new_doc, new_phantom]) = (old, new);
        if old_doc.is_some() {
            planned.base.push((self.id, world.head_no(self.id).await));
        }
        let is_new = new_doc.is_some();
        planned.risk = if is_new { Vec::new() } else { vec!["removal".into()] };
        planned.documents = vec![
            ("deployment", self.id, old_doc, new_doc),
            ("node", self.phantom, old_phantom, new_phantom),
        ];
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        let root = world.root_with(&planned).await;
        let mut tx = world.db.app().begin().await.unwrap();
        let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        match is_new {
            true => self.rows_added(world, &mut tx, number).await,
            false => self.rows_removed(&mut tx, number).await,
        }
        let sql = "UPDATE deployment SET head_no = $2 WHERE id = $1";
        sqlx::query(sql).bind(world.web).bind(number).execute(&mut *tx).await.unwrap();
        sqlx::query("UPDATE head SET number = $1").bind(number).execute(&mut *tx).await.unwrap();
        let line = "INSERT INTO blueprint_deployment SELECT id, head_no FROM deployment WHERE head_no = $1";
        sqlx::query(line).bind(number).execute(&mut *tx).await.unwrap();
        let sql = "UPDATE proposal SET state = 'committed' WHERE id = $1";
        sqlx::query(sql).bind(planned.proposal).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn rows_added(&self, world: &World, tx: &mut Tx<'_>, number: i64) {
        let sql = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no) VALUES ($1, $2, 'shop', $3, $4, $5)";
        let row = sqlx::query(sql)
            .bind(self.id)
            .bind(world.web)
            .bind(self.phantom)
            .bind(&self.docs[0])
            .bind(number);
        row.execute(&mut **tx).await.unwrap();
        let sql = "INSERT INTO node (id, fqdn, deployment_id, phantom, doc, transport)
                   VALUES ($1, 'phantom.shop.gantry', $2, true, $3, 'none')";
        sqlx::query(sql)
            .bind(self.phantom)
            .bind(self.id)
            .bind(&self.docs[1])
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn rows_removed(&self, tx: &mut Tx<'_>, number: i64) {
        let sql = "UPDATE node SET removed_in = $2 WHERE id = $1";
        sqlx::query(sql).bind(self.phantom).bind(number).execute(&mut **tx).await.unwrap();
        let sql = "UPDATE deployment SET removed_in = $2, head_no = $2 WHERE id = $1";
        sqlx::query(sql).bind(self.id).bind(number).execute(&mut **tx).await.unwrap();
    }
}

#[tokio::test]
async fn recreated_deployment_has_no_approvals() {
    let world = World::new().await;
    let first = ChildDeployment::create(&world).await;
    let mut planned = world.plan(first.id, world.ada).await;
    let doc = deployment_doc(first.id, "shop", Some(world.web), first.phantom, "other");
    let doc = world.put("deployment", doc).await;
    planned.documents = vec![("deployment", first.id, Some(first.docs[0].clone()), Some(doc))];
    planned.base.push((world.web, world.head_no(world.web).await));
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    first.removed(&world).await;
    assert_refused(
        "a review of the removed deployment",
        world.commit(&planned, review).await,
        Refusal::BaseChanged,
    );
    let second = ChildDeployment::create(&world).await;
    assert_refused(
        "a review of the old deployment of the same name",
        world.commit(&planned, review).await,
        Refusal::BaseChanged,
    );
    let renamed = format!("UPDATE deployment SET removed_in = NULL WHERE id = '{}'", first.id);
    assert_refused(
        "restoring the removed row",
        world.app(&renamed).await,
        Refusal::IntentOutsideCommit,
    );
    assert_ne!(first.id, second.id);
    assert_eq!(world.head().await, 4);
}

#[tokio::test]
async fn commit_with_old_snapshot_is_refused() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut tx = world.db.app().begin().await.unwrap();
        tx.execute(AssertSqlSafe(format!("SET TRANSACTION ISOLATION LEVEL {level}")))
            .await
            .unwrap();
        tx.execute("SELECT count(*) FROM verdict").await.unwrap();
        world.verdict(review, world.cy, "reject").await.unwrap();
        assert_refused(
            level,
            world.insert_blueprint(&mut tx, review, &root).await,
            Refusal::NotNextBlueprint,
        );
        drop(tx);
        world.verdict(review, world.cy, "approve").await.unwrap();
    }
}

/// Commits while `first` is uncommitted. The commit waits for it and then sees it.
async fn meets(
    world: &World,
    planned: &NewReview,
    review: i64,
    first: &str,
) -> Result<i64, sqlx::Error> {
    let mut tx = world.db.owner().begin().await.unwrap();
    tx.execute(AssertSqlSafe(first)).await.unwrap();
    let goes_first = async {
        world.has_lock_waiter().await;
        tx.commit().await
    };
    let (commit, done) = tokio::join!(world.commit(planned, review), goes_first);
    done.unwrap();
    commit
}

#[tokio::test]
async fn commit_waits_for_concurrent_changes() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let reject = format!(
        "INSERT INTO verdict (review_id, person_id, kind) VALUES ({review}, '{}', 'reject')",
        world.bo
    );
    assert_refused(
        "a rejection by bo during the commit",
        meets(&world, &planned, review, &reject).await,
        Refusal::NotApproved,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();

    let disable = "UPDATE person SET disabled = true WHERE name = 'bo'";
    assert_refused(
        "bo is disabled during the commit",
        meets(&world, &planned, review, disable).await,
        Refusal::NotApproved,
    );
    world.owner("UPDATE person SET disabled = false WHERE name = 'bo'").await.unwrap();

    let disable = "UPDATE person SET disabled = true WHERE name = 'ada'";
    assert_refused(
        "ada is disabled during the commit",
        meets(&world, &planned, review, disable).await,
        Refusal::CannotCommit,
    );
    world.owner("UPDATE person SET disabled = false WHERE name = 'ada'").await.unwrap();

    let edit = format!(
        "WITH raised AS (UPDATE proposal SET version = version + 1 WHERE id = {0})
         INSERT INTO edit (proposal_id, seq, actor, body) VALUES ({0}, 9, '{1}', '{{}}')",
        planned.proposal, world.cy
    );
    assert_refused(
        "an edit by cy during the commit",
        meets(&world, &planned, review, &edit).await,
        Refusal::ProposalChanged,
    );
    assert_eq!(world.head().await, 1);
}

#[tokio::test]
async fn verdict_during_commit_is_too_late() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    world.project(&mut tx, &planned, number).await.unwrap();
    let commit = async {
        world.has_lock_waiter().await;
        tx.commit().await
    };
    let (late, committed) = tokio::join!(world.verdict(review, world.cy, "reject"), commit);
    committed.unwrap();
    assert_refused("a verdict after the commit", late, Refusal::ProposalChanged);
}

#[tokio::test]
async fn aborted_commit_leaves_nothing() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    world.project(&mut tx, &planned, number).await.unwrap();
    world.db.terminate_connections().await.unwrap();
    assert!(tx.commit().await.is_err(), "the commit fails without a connection");
    assert_eq!(world.head().await, 1);
    let committed = format!(
        "SELECT count(*) FROM node WHERE doc = '\\x{}'",
        hex(planned.documents[0].3.as_ref().unwrap())
    );
    assert_eq!(
        sqlx::query_scalar::<_, i64>(AssertSqlSafe(committed))
            .fetch_one(world.db.app())
            .await
            .unwrap(),
        0
    );
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn unapproved_script_reaches_no_run() {
    let world = World::new().await;
    world.change(world.web).await;
    let other = world.put("role", json!({"name": "app", "scripts": ["other"]})).await;
    let role = format!("UPDATE noderole SET role_hash = '\\x{}'", hex(&other));
    assert_refused(
        "another role of the noderole",
        world.app(&role).await,
        Refusal::IntentOutsideCommit,
    );
    let content = format!("UPDATE step SET content_hash = '\\x{}'", hex(&other));
    assert_refused(
        "another content of the step",
        world.app(&content).await,
        Refusal::IntentOutsideCommit,
    );
    assert_eq!(
        state(world.app("UPDATE object SET body = 'other' WHERE kind = 'role'").await),
        "42501"
    );
    let again = format!(
        "INSERT INTO barclamp (name, version, hash) VALUES ('installation', '1', '\\x{}')",
        hex(&other)
    );
    world.app(&again).await.unwrap();
    let moved = format!(
        "INSERT INTO barclamp (name, version, hash) VALUES ('installation', '1', '\\x{}')",
        hex(&world.role)
    );
    assert_eq!(state(world.app(&moved).await), "23505", "the content of a version cannot change");
}

#[tokio::test]
async fn lookalike_version_is_refused() {
    let world = World::new().await;
    let insert = async |version: &str| {
        let sql = "INSERT INTO barclamp (name, version, hash) VALUES ('installation', $1, $2)";
        sqlx::query(sql).bind(version).bind(&world.role).execute(world.db.app()).await.map(drop)
    };
    insert("1").await.unwrap();
    insert("2.0-rc1").await.unwrap();
    for alike in
        ["1 ", " 1", "\u{ff11}", "1\u{200b}", "1\n", "\u{661}", "", ".1", "1.", &"9".repeat(65)]
    {
        assert_refused(alike, insert(alike).await, Refusal::BarclampVersion);
    }
    for same in ["01", "0001", "v1", "V1", "2.00-RC01", "2-0.-rc.1", "2_0-rc+1"] {
        assert_refused(same, insert(same).await, Refusal::BarclampVersion);
    }
    for other in ["10", "1.0", "2.0", "2.0.rc1", "2.E", "1a", "v", &"9".repeat(64)] {
        insert(other).await.unwrap();
    }
}

/// Commits a review with every other risk, whose documents add a reference to a secret.
async fn commits_with(world: &World, data: Value, risk: &[&str]) -> Result<(), sqlx::Error> {
    let n1 = (world.n1, "n1.x.example", world.web);
    let app = json!({"app": {"deployment": world.web, "role": hex(&world.role), "data": data}});
    let risks: Vec<&str> = ["removal", "rerun", "move"].iter().chain(risk).copied().collect();
    let (planned, review) = changed(world, n1, app, &[], &risks).await;
    let committed = world.commit(&planned, review).await;
    if committed.is_err() {
        discard(world, &planned).await;
    }
    committed.map(drop)
}

#[tokio::test]
async fn secret_use_without_its_risk_is_refused() {
    let world = World::new().await;
    let secret = |version: i64| json!({"$secret": "db/admin", "version": version});
    for (case, data) in [
        ("a value", json!({"key": secret(1)})),
        ("a secret in a list", json!({"keys": [[{"deep": secret(1)}]]})),
        ("a malformed secret", json!({"key": {"$secret": ["db"]}})),
    ] {
        assert_refused(case, commits_with(&world, data, &[]).await, Refusal::IncompleteReview);
    }
    commits_with(&world, json!({"key": secret(1)}), &["secret"]).await.unwrap();
    let (same, rotated) = (json!({"key": secret(1), "port": 1}), json!({"key": secret(2)}));
    commits_with(&world, same, &[]).await.unwrap();
    assert_refused(
        "another version of the secret",
        commits_with(&world, rotated, &[]).await,
        Refusal::IncompleteReview,
    );
    commits_with(&world, json!({"port": 1}), &[]).await.unwrap();
}

#[tokio::test]
async fn template_secret_without_its_risk_is_refused() {
    let world = World::new().await;
    let with = async |template: Value| {
        let role =
            json!({"name": "app", "jig": "script", "jig_class": "script", "template": template});
        hex(&world.put("role", role).await)
    };
    let secret = |version: i64| json!({"$secret": "db/admin", "version": version});
    let risks = async |noderole: Value| {
        let mut planned = world.plan(world.web, world.ada).await;
        let noderoles = json!({"app": noderole});
        let doc = node_doc(world.n1, "n1.x.example", world.web, noderoles);
        planned.documents[0].3 = Some(world.put("node", doc).await);
        planned.root = world.root_with(&planned).await;
        let review = world.submit(&planned).await.unwrap();
        let sql = "SELECT 'secret' IN (SELECT risk FROM risks_of_documents($1))";
        let found: bool =
            sqlx::query_scalar(sql).bind(review).fetch_one(world.db.app()).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        let refused = world
            .commit(&planned, review)
            .await
            .is_err_and(|error| Refusal::of(&error) == Some(Refusal::IncompleteReview));
        assert_eq!(found, refused, "the commit must name the risk");
        world
            .owner(
                "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'",
            )
            .await
            .unwrap();
        found
    };
    let named = with(json!({"db": {"key": secret(1)}, "port": 1})).await;
    assert!(risks(json!({"role": named})).await, "the role of the noderole changes");
    assert!(
        risks(json!({"role": named, "data": {"port": 2}})).await,
        "other data do not hide the secret of the template"
    );
    assert!(
        !risks(json!({"role": named, "data": {"db": "none"}})).await,
        "the data override the secret"
    );
    assert!(
        !risks(json!({"role": with(json!({"port": 2})).await})).await,
        "the template has no secret"
    );
    assert!(
        !risks(json!({"role": with(json!([secret(1)])).await})).await,
        "the template is not an object"
    );
}

#[tokio::test]
async fn escaped_secret_key_is_found() {
    let world = World::new().await;
    let n1 = (world.n1, "n1.x.example", world.web);
    let mut planned = world.plan(world.web, world.ada).await;
    let app = json!({"app": {"deployment": world.web, "data": {"key": {"$secret": "db/admin", "version": 1}}}});
    let body = node_doc(n1.0, n1.1, n1.2, app).to_string().replace("$secret", "\\u0024secret");
    let old = world.root().await.nodes.remove(&n1.0);
    planned.documents =
        vec![("node", n1.0, old, Some(world.put_bytes("node", body.into_bytes()).await))];
    planned.root = world.root_with(&planned).await;
    planned.risk = ["removal", "rerun", "move"].map(str::to_owned).to_vec();
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "a secret with an escaped key",
        world.commit(&planned, review).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn deployment_secret_without_its_risk_is_refused() {
    let world = World::new().await;
    let phantom: Uuid = sqlx::query_scalar("SELECT phantom FROM deployment WHERE id = $1")
        .bind(world.web)
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let mut planned = world.plan(world.web, world.ada).await;
    let mut doc = deployment_doc(world.web, "web", Some(world.system), phantom, "");
    let data = json!({"key": {"$secret": "db/admin", "version": 1}});
    doc["roles"] = json!({"app": {"role": hex(&world.role), "data": data}});
    let old = world.root().await.deployments.remove(&world.web);
    planned.documents =
        vec![("deployment", world.web, old, Some(world.put("deployment", doc).await))];
    planned.root = world.root_with(&planned).await;
    planned.risk = ["removal", "rerun", "move"].map(str::to_owned).to_vec();
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "a secret in the deployment's data",
        world.commit(&planned, review).await,
        Refusal::IncompleteReview,
    );
}
