//! The gate in the database: the commits, verdicts and reviews that the guards accept and reject.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use migrations::Refusal;
use serde_json::json;
use sqlx::Executor as _;
use uuid::Uuid;
use world::{NewReview, World, assert_refused, deployment_doc, hex, node_doc, state};

/// A change of `web` with a review and an approval.
async fn approved(world: &World) -> (NewReview, i64) {
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    (planned, review)
}

#[tokio::test]
async fn approved_change_commits_once() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    assert_eq!(world.commit(&planned, review).await.unwrap(), 2);
    assert_eq!(
        (world.head().await, world.head_no(world.web).await, world.head_no(world.storage).await),
        (2, 2, 1)
    );
    assert_refused(
        "a second commit",
        world.commit(&planned, review).await,
        Refusal::ProposalChanged,
    );
    assert_eq!(world.change(world.storage).await, 3);
}

#[tokio::test]
async fn unapproved_change_does_not_commit() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    assert_refused(
        "a commit without a verdict",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    assert_eq!(world.head().await, 1);
}

#[tokio::test]
async fn author_and_non_reviewer_verdicts_are_refused() {
    let world = World::new().await;
    let planned = world.plan(world.web, world.ada).await;
    let review = world.submit(&planned).await.unwrap();
    for (who, by) in [
        (world.ada, Refusal::VerdictByAuthor),
        (world.eve, Refusal::NotAReviewer),
        (world.robot, Refusal::NotAReviewer),
    ] {
        assert_refused("verdict", world.verdict(review, who, "approve").await, by);
    }
    world.owner("UPDATE person SET disabled = true WHERE name = 'bo'").await.unwrap();
    assert_refused(
        "a verdict of a disabled person",
        world.verdict(review, world.bo, "approve").await,
        Refusal::NotAReviewer,
    );
    let by_policy =
        "INSERT INTO verdict (review_id, policy_number, kind) SELECT id, 1, 'approve' FROM review";
    assert_refused(
        "a verdict that names a policy",
        world.app(by_policy).await,
        Refusal::NotAReviewer,
    );
}

#[tokio::test]
async fn editor_is_author_even_if_unlisted() {
    let world = World::new().await;
    world
        .owner("UPDATE person SET permissions = '{operator, reviewer}' WHERE name = 'bo'")
        .await
        .unwrap();
    let mut planned = world.plan(world.web, world.ada).await;
    planned.version = world.edit(planned.proposal, world.bo).await.unwrap();
    let review = world.submit(&planned).await.unwrap();
    assert_refused(
        "an approval by a person who edited",
        world.verdict(review, world.bo, "approve").await,
        Refusal::VerdictByAuthor,
    );
    world.verdict(review, world.cy, "approve").await.unwrap();
    assert_refused(
        "an author who is not listed",
        world.commit(&planned, review).await,
        Refusal::IncompleteReview,
    );
}

#[tokio::test]
async fn last_verdict_of_each_reviewer_counts() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    world.verdict(review, world.bo, "request_changes").await.unwrap();
    assert_refused(
        "a withdrawn approval",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.verdict(review, world.cy, "approve").await.unwrap();
    assert_refused(
        "an open objection of bo",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn approval_counts_while_reviewer_has_permission() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    world.owner("UPDATE person SET permissions = '{viewer}' WHERE name = 'bo'").await.unwrap();
    assert_refused(
        "an approval without the permission",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world
        .owner("UPDATE person SET permissions = '{reviewer}', disabled = true WHERE name = 'bo'")
        .await
        .unwrap();
    assert_refused(
        "an approval of a disabled person",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.owner("UPDATE person SET disabled = false WHERE name = 'bo'").await.unwrap();
    assert_refused(
        "an approval from before the account was disabled",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn risky_change_needs_more_approvals() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.risk.push("destructive".into());
    assert_refused(
        "a risky change with one approval",
        world.submit(&planned).await,
        Refusal::IncompleteReview,
    );
    planned.needed = 2;
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "two approvals of one person",
        world.commit(&planned, review).await,
        Refusal::NotApproved,
    );
    world.verdict(review, world.cy, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn older_submission_is_void() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let version = world.edit(planned.proposal, world.ada).await.unwrap();
    assert_refused(
        "a commit of the older submission",
        world.commit(&planned, review).await,
        Refusal::ProposalChanged,
    );
    assert_refused(
        "a verdict on the older submission",
        world.verdict(review, world.cy, "approve").await,
        Refusal::ProposalChanged,
    );
    let old = world.submit(&planned).await;
    assert!(old.is_err(), "an outdated version must not be submitted: {old:?}");
    let newest = NewReview { version, ..planned };
    let newer = world.submit(&newest).await.unwrap();
    assert_refused(
        "a commit of the newer submission without approvals",
        world.commit(&newest, newer).await,
        Refusal::NotApproved,
    );
}

#[tokio::test]
async fn discarded_proposal_stays_closed() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let discard = "UPDATE proposal SET state = 'discarded'";
    assert_refused("a discard without a person", world.app(discard).await, Refusal::PersonMismatch);
    world.app_as(world.ada, discard).await.unwrap();
    assert_refused(
        "a commit of the discarded proposal",
        world.commit(&planned, review).await,
        Refusal::ProposalChanged,
    );
    assert_refused(
        "an edit of the discarded proposal",
        world.edit(planned.proposal, world.ada).await,
        Refusal::ProposalChanged,
    );
    assert_refused(
        "reopening the discarded proposal",
        world.app("UPDATE proposal SET state = 'open'").await,
        Refusal::AlreadyUsed,
    );
    let by_hand = world.propose(world.storage, world.ada).await;
    let closed = format!("UPDATE proposal SET state = 'committed' WHERE id = {by_hand}");
    assert_refused(
        "a proposal set to committed by hand",
        world.app(&closed).await,
        Refusal::IntentOutsideCommit,
    );
}

#[tokio::test]
async fn changed_base_voids_but_sibling_does_not() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    world.change(world.storage).await;
    world.commit(&planned, review).await.unwrap();

    let first = world.plan(world.web, world.ada).await;
    let review = world.submit(&first).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    // A proposal of another kind for the same deployment, committed first.
    let other = "INSERT INTO proposal (deployment_id, kind, created_by) SELECT deployment_id, 'autopilot', created_by
                 FROM proposal WHERE state = 'open' RETURNING id";
    let other: i64 = sqlx::query_scalar(other).fetch_one(world.db.owner()).await.unwrap();
    world.edit(other, world.ada).await.unwrap();
    let second = world.plan_for(other, world.web, world.ada).await;
    let sooner = world.submit(&second).await.unwrap();
    world.verdict(sooner, world.bo, "approve").await.unwrap();
    world.commit(&second, sooner).await.unwrap();
    assert_refused(
        "a commit with a changed base",
        world.commit(&first, review).await,
        Refusal::BaseChanged,
    );
}

/// Changes the document of *system*: approved by bo and committed.
async fn change_system(world: &World, change: impl FnOnce(&mut serde_json::Value)) -> i64 {
    let sql = "SELECT d.doc, convert_from(o.body, 'UTF8') FROM deployment d JOIN object o ON o.hash = d.doc WHERE d.system";
    let (old, body): (world::Hash, String) =
        sqlx::query_as(sql).fetch_one(world.db.app()).await.unwrap();
    let mut doc = serde_json::from_str(&body).unwrap();
    change(&mut doc);
    let new = world.put("deployment", doc).await;
    let proposal = world.propose(world.system, world.ada).await;
    let mut planned = world.plan_for(proposal, world.storage, world.ada).await;
    planned.risk = vec!["halt".into()];
    planned.documents = vec![("deployment", world.system, Some(old), Some(new))];
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&planned, review).await.unwrap()
}

/// A barclamp with one role.
async fn barclamp(world: &World, role: serde_json::Value) -> String {
    let name = role["name"].as_str().unwrap().to_owned();
    let role = hex(&world.put("role", role).await);
    let doc = json!({"name": "other", "version": role, "roles": {name: role}, "jigs": {}});
    hex(&world.put("barclamp", doc).await)
}

#[tokio::test]
async fn ancestor_commit_voids_only_its_readers() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let harmless = barclamp(&world, json!({"name": "clock", "jig": "noop"})).await;
    let moved = "SELECT count(*) FROM moved_base($1)";
    let clock = hex(&world.put("role", json!({"name": "clock", "jig": "noop"})).await);
    let clock = json!({"role": clock, "data": {}});
    change_system(&world, |doc| doc["roles"] = json!({"clock": clock})).await;
    change_system(&world, |doc| doc["inactive_jigs"] = json!(["rsync"])).await;
    change_system(&world, |doc| doc["barclamps"] = json!({"other": harmless})).await;
    let moved: i64 =
        sqlx::query_scalar(moved).bind(review).fetch_one(world.db.app()).await.unwrap();
    assert_eq!((world.head_no(world.system).await, moved), (4, 0));
    world.commit(&planned, review).await.unwrap();

    let earlier = json!({"name": "disk", "jig": "noop", "preceeds": ["app"]});
    let provider = json!({"name": "shop", "jig": "noop", "provides": ["app"]});
    let shop = hex(&world.put("role", provider.clone()).await);
    let (earlier, provider) = (barclamp(&world, earlier).await, barclamp(&world, provider).await);
    let changes: Vec<(&str, serde_json::Value)> = vec![
        ("roles", json!({"clock": clock, "app": clock})),
        ("roles", json!({"clock": clock, "shop": {"role": shop, "data": {}}})),
        ("roles", json!({})),
        ("barclamps", json!({"other": earlier})),
        ("barclamps", json!({"other": provider})),
        ("barclamps", json!({})),
        ("note", json!("a field that the database does not know")),
    ];
    for (field, value) in changes {
        let (planned, review) = approved(&world).await;
        change_system(&world, |doc| doc[field] = value.clone()).await;
        let refused = world.commit(&planned, review).await;
        assert_refused(&format!("{field} {value}"), refused, Refusal::BaseChanged);
        // Later commits do not make it valid again.
        change_system(&world, |doc| doc["inactive_jigs"] = json!([value.to_string()])).await;
        let refused = world.commit(&planned, review).await;
        assert_refused("a commit of the void review", refused, Refusal::BaseChanged);
        let sql = "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'";
        world.owner(sql).await.unwrap();
    }
}

/// The number of deployments that void a review.
async fn moved(world: &World, review: i64) -> i64 {
    let sql = "SELECT count(*) FROM moved_base($1)";
    sqlx::query_scalar(sql).bind(review).fetch_one(world.db.app()).await.unwrap()
}

/// New nodes of a deployment, without noderoles.
async fn new_nodes(
    world: &World,
    deployment: Uuid,
    count: usize,
) -> Vec<(&'static str, Uuid, Option<world::Hash>, Option<world::Hash>)> {
    let mut documents = Vec::new();
    for _ in 0..count {
        let id = Uuid::new_v4();
        let doc = node_doc(id, &format!("n{}.x.example", id.simple()), deployment, json!({}));
        documents.push(("node", id, None, Some(world.put("node", doc).await)));
    }
    documents
}

#[tokio::test]
async fn review_of_many_documents_is_strict() {
    let world = World::new().await;
    let mut reviews = Vec::new();
    for documents in [200, 201] {
        let mut planned = world.plan(world.web, world.ada).await;
        planned.documents.extend(new_nodes(&world, world.web, documents - 1).await);
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        reviews.push(review);
        let clock = hex(&world.put("role", json!({"name": "clock", "jig": "noop"})).await);
        let clock = json!({"role": clock, "data": {"documents": documents}});
        change_system(&world, |doc| doc["roles"] = json!({"clock": clock})).await;
        assert_eq!(moved(&world, review).await, i64::from(documents > 200), "{documents}");
        if documents > 200 {
            let refused = world.commit(&planned, review).await;
            assert_refused("the commit in system", refused, Refusal::BaseChanged);
        }
        let sql = "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'";
        world.owner(sql).await.unwrap();
    }
    let still = [moved(&world, reviews[0]).await, moved(&world, reviews[1]).await];
    assert_eq!(still, [0, 1]);
}

#[tokio::test]
async fn base_before_many_changed_documents_is_strict() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    // With the document of system, the commit changes 200 documents. It reads none of them.
    let sql = "SELECT d.doc, convert_from(o.body, 'UTF8') FROM deployment d JOIN object o ON o.hash = d.doc WHERE d.system";
    let (old, body): (world::Hash, String) =
        sqlx::query_as(sql).fetch_one(world.db.app()).await.unwrap();
    let mut doc: serde_json::Value = serde_json::from_str(&body).unwrap();
    doc["inactive_jigs"] = json!(["rsync"]);
    let new = world.put("deployment", doc).await;
    let proposal = world.propose(world.system, world.ada).await;
    let mut many = world.plan_for(proposal, world.storage, world.ada).await;
    many.risk = vec!["halt".into()];
    many.documents = vec![("deployment", world.system, Some(old), Some(new))];
    many.documents.extend(new_nodes(&world, world.storage, 199).await);
    let by = world.submit(&many).await.unwrap();
    world.verdict(by, world.bo, "approve").await.unwrap();
    let root = world.root_with(&many).await;
    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, by, &root).await.unwrap();
    let nodes = "INSERT INTO node (id, fqdn, deployment_id, doc, transport)
                 SELECT x.id, doc.body ->> 'fqdn', (doc.body ->> 'deployment')::uuid, x.new_hash, 'local'
                 FROM review_document x JOIN object o ON o.hash = x.new_hash
                 CROSS JOIN LATERAL (SELECT convert_from(o.body, 'UTF8')::jsonb AS body) doc
                 WHERE x.review_id = $1 AND x.kind = 'node'";
    sqlx::query(nodes).bind(by).execute(&mut *tx).await.unwrap();
    world.project(&mut tx, &many, number).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(moved(&world, review).await, 0, "200 documents");

    change_system(&world, |doc| doc["inactive_jigs"] = json!(["rsync", "scp"])).await;
    assert_eq!(moved(&world, review).await, 1, "201 documents");
    assert_refused("strict", world.commit(&planned, review).await, Refusal::BaseChanged);
    let (planned, review) = {
        let sql = "UPDATE proposal SET state = 'discarded', closed_at = now() WHERE state = 'open'";
        world.owner(sql).await.unwrap();
        approved(&world).await
    };
    change_system(&world, |doc| doc["inactive_jigs"] = json!(["rsync"])).await;
    world.commit(&planned, review).await.unwrap();
}

/// The role of the review wants an attribute. Nothing else connects it with the new noderole.
#[tokio::test]
async fn bound_owner_of_required_attribute_voids_readers() {
    let world = World::new().await;
    let role = |name: &str| json!({"name": name, "jig": "script", "jig_class": "script"});
    let mut reader = role("app");
    reader["wants"] = json!(["disk"]);
    let reader = json!({"app": {"role": hex(&world.put("role", reader).await)}});
    let mut planned = world.plan(world.web, world.ada).await;
    let doc = node_doc(world.n1, "n1.x.example", world.web, reader);
    planned.documents[0].3 = Some(world.put("node", doc).await);
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();

    let phantom: Uuid = sqlx::query_scalar("SELECT phantom FROM deployment WHERE system")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let mut noderoles = json!({});
    for (name, attrib, voids) in [("clock", "time", 0), ("probe", "disk", 1)] {
        let mut owner = role(name);
        owner["attribs"] = json!([{"name": attrib}]);
        noderoles[name] =
            json!({"deployment": world.system, "role": hex(&world.put("role", owner).await)});
        let proposal = world.propose(world.system, world.ada).await;
        let mut bound = world.plan_for(proposal, world.storage, world.ada).await;
        let doc = node_doc(phantom, "phantom.system.gantry", world.system, noderoles.clone());
        let old = world.root().await.nodes.remove(&phantom);
        bound.documents = vec![("node", phantom, old, Some(world.put("node", doc).await))];
        bound.risk = vec!["rerun".into()];
        let by = world.submit(&bound).await.unwrap();
        world.verdict(by, world.bo, "approve").await.unwrap();
        // The owner may write rows of another content than that of the document.
        let mut tx = world.db.owner().begin().await.unwrap();
        let root = world.root_with(&bound).await;
        let number = world.insert_blueprint(&mut tx, by, &root).await.unwrap();
        world.insert_step(&mut tx, phantom, world.system, name, number).await;
        world.project(&mut tx, &bound, number).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(moved(&world, review).await, voids, "{name} owns {attrib}");
    }
    assert_refused("void", world.commit(&planned, review).await, Refusal::BaseChanged);
}

#[tokio::test]
async fn understated_base_is_refused() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    planned.base = vec![(world.system, 9), (world.web, 1)];
    assert_refused(
        "a base with a later blueprint",
        world.submit(&planned).await,
        Refusal::IncompleteReview,
    );
    planned.base = vec![(world.web, 1)];
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    let refused = world.commit(&planned, review).await;
    assert_refused("a base without the parent", refused, Refusal::IncompleteReview);
}

#[tokio::test]
async fn second_change_taking_same_node_is_refused() {
    let world = World::new().await;
    world
        .app("INSERT INTO node (fqdn, deployment_id, transport) SELECT 'n9.x.example', id, 'local' FROM deployment WHERE system")
        .await
        .unwrap();
    let n9 = sqlx::query_scalar("SELECT id FROM node WHERE fqdn = 'n9.x.example'")
        .fetch_one(world.db.app())
        .await
        .unwrap();
    let mut plans = Vec::new();
    for deployment in [world.web, world.storage] {
        let doc = world.put("node", node_doc(n9, "n9.x.example", deployment, json!({}))).await;
        let mut planned = world.plan(deployment, world.ada).await;
        planned.documents = vec![("node", n9, None, Some(doc))];
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        plans.push((planned, review));
    }
    world.commit(&plans[0].0, plans[0].1).await.unwrap();
    assert_refused(
        "a second commit that takes the node",
        world.commit(&plans[1].0, plans[1].1).await,
        Refusal::BaseChanged,
    );
}

#[tokio::test]
async fn concurrent_commits_are_serialized() {
    let world = World::new().await;
    let mut plans = Vec::new();
    for deployment in [world.web, world.storage] {
        let planned = world.plan(deployment, world.ada).await;
        let review = world.submit(&planned).await.unwrap();
        world.verdict(review, world.bo, "approve").await.unwrap();
        plans.push((planned, review));
    }
    let (one, two) =
        tokio::join!(world.commit(&plans[0].0, plans[0].1), world.commit(&plans[1].0, plans[1].1));
    let refused: Vec<_> = [one, two].into_iter().filter_map(Result::err).collect();
    // The transaction that read the head too early gets a retryable error. Neither overwrites the
    // other.
    assert!(refused.len() <= 1, "{refused:?}");
    for error in &refused {
        let by = Refusal::of(error);
        assert!(
            matches!(by, Some(Refusal::NotNextBlueprint | Refusal::UnlistedDocuments)),
            "{error}"
        );
    }
    let line: Vec<(i64, Option<i64>)> =
        sqlx::query_as("SELECT number, parent FROM blueprint ORDER BY number")
            .fetch_all(world.db.app())
            .await
            .unwrap();
    assert_eq!(world.head().await, 3 - refused.len() as i64);
    assert!(line.windows(2).all(|pair| pair[1].1 == Some(pair[0].0)), "{line:?}");
}

#[tokio::test]
async fn root_differs_only_in_listed_documents() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let sound = world.root_with(&planned).await;

    let mut more = world.root().await;
    for (_, id, _, new) in &planned.documents {
        more.nodes.insert(*id, new.clone().unwrap());
    }
    let n2 = world
        .put("node", node_doc(world.n2, "n2.x.example", world.storage, json!({"evil": {}})))
        .await;
    more.nodes.insert(world.n2, n2);
    let more = world.put_root(&more).await;
    assert_refused(
        "a root with another changed document",
        world.commit_root(&planned, review, &more).await,
        Refusal::UnlistedDocuments,
    );

    let same = world.put_root(&world.root().await).await;
    assert_refused(
        "a root without the listed change",
        world.commit_root(&planned, review, &same).await,
        Refusal::UnlistedDocuments,
    );

    let mut gone = world.root().await;
    gone.nodes.insert(world.n1, planned.documents[0].3.clone().unwrap());
    gone.deployments.remove(&world.storage);
    let gone = world.put_root(&gone).await;
    assert_refused(
        "a root without an unlisted document",
        world.commit_root(&planned, review, &gone).await,
        Refusal::UnlistedDocuments,
    );

    let no_root = world.put("node", json!({"deployments": {}, "nodes": {}})).await;
    assert_refused(
        "an object that is not a root",
        world.commit_root(&planned, review, &no_root).await,
        Refusal::UnlistedDocuments,
    );

    // With so few documents, the byte comparison decides. Otherwise the row comparison above does.
    let mut wrong_kind = world.root().await;
    let (_, n1, _, new) = planned.documents[0].clone();
    wrong_kind.nodes.remove(&n1);
    wrong_kind.deployments.insert(n1, new.unwrap());
    let wrong_kind = world.put_root(&wrong_kind).await;
    assert_refused(
        "a root with an unknown field",
        world.commit_root(&planned, review, &wrong_kind).await,
        Refusal::UnlistedDocuments,
    );
    // One reader of a duplicate key sees the first value, another the last. No blueprint may
    // have such a root.
    let twice = {
        let (id, old) = (n1, world.root().await.nodes[&n1].clone());
        let entry = |hash: &[u8], blank: &str| format!("\"{id}\"{blank}:\"{}\"", hex(hash));
        let body = world.root_body(&sound).await;
        let new = entry(planned.documents[0].3.as_ref().unwrap(), "");
        assert!(body.contains(&new));
        let body = body.replace(&new, &format!("{},{new}", entry(&old, " ")));
        world.put_bytes("root", body.into_bytes()).await
    };
    assert_refused(
        "a root with a duplicate key",
        world.commit_root(&planned, review, &twice).await,
        Refusal::UnlistedDocuments,
    );
    for (case, root, expected) in [
        ("twice", &twice, false),
        ("sound", &sound, true),
        ("more", &more, false),
        ("fewer", &same, false),
        ("removed", &gone, false),
        ("no root", &no_root, false),
        ("beside", &wrong_kind, false),
    ] {
        let reported: bool = sqlx::query_scalar(
            "SELECT replaces_as_listed((SELECT root FROM blueprint WHERE number = $1), $2, $3)",
        )
        .bind(world.head().await)
        .bind(root)
        .bind(review)
        .fetch_one(world.db.owner())
        .await
        .unwrap();
        assert_eq!(reported, expected, "{case}");
    }

    world.commit_root(&planned, review, &sound).await.unwrap();
}

#[tokio::test]
async fn document_outside_base_is_refused() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    let old = world.root().await.nodes[&world.n2].clone();
    let new = world.put("node", node_doc(world.n2, "n2.x.example", world.storage, json!({}))).await;
    planned.documents.push(("node", world.n2, Some(old), Some(new)));
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused(
        "a document of storage, which is not in the base",
        world.commit(&planned, review).await,
        Refusal::IncompleteReview,
    );

    let empty = NewReview { base: Vec::new(), ..world.plan(world.storage, world.ada).await };
    let review = world.submit(&empty).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    assert_refused("an empty base", world.commit(&empty, review).await, Refusal::IncompleteReview);
}

#[tokio::test]
async fn new_deployment_writes_its_parent() {
    let world = World::new().await;
    let mut planned = world.plan(world.web, world.ada).await;
    let (id, phantom) = (Uuid::new_v4(), Uuid::new_v4());
    let doc =
        world.put("deployment", deployment_doc(id, "shop", Some(world.web), phantom, "")).await;
    let phantom_doc =
        world.put("node", node_doc(phantom, "phantom.shop.gantry", id, json!({}))).await;
    planned.documents = vec![
        ("deployment", id, None, Some(doc.clone())),
        ("node", phantom, None, Some(phantom_doc.clone())),
    ];
    let review = world.submit(&planned).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    let root = world.root_with(&planned).await;

    for parent_moves in [false, true] {
        let mut tx = world.db.app().begin().await.unwrap();
        let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
        let sql = "INSERT INTO deployment (id, parent, name, phantom, doc, head_no) VALUES ($1, $2, 'shop', $3, $4, $5)";
        sqlx::query(sql)
            .bind(id)
            .bind(world.web)
            .bind(phantom)
            .bind(&doc)
            .bind(number)
            .execute(&mut *tx)
            .await
            .unwrap();
        let sql = "INSERT INTO node (id, fqdn, deployment_id, phantom, doc, transport)
                   VALUES ($1, 'phantom.shop.gantry', $2, true, $3, 'none')";
        sqlx::query(sql).bind(phantom).bind(id).bind(&phantom_doc).execute(&mut *tx).await.unwrap();
        if parent_moves {
            let sql = "UPDATE deployment SET head_no = $2 WHERE id = $1";
            sqlx::query(sql).bind(world.web).bind(number).execute(&mut *tx).await.unwrap();
        }
        sqlx::query("UPDATE head SET number = $1").bind(number).execute(&mut *tx).await.unwrap();
        let line = "INSERT INTO blueprint_deployment SELECT id, head_no FROM deployment WHERE head_no = $1";
        sqlx::query(line).bind(number).execute(&mut *tx).await.unwrap();
        tx.execute("UPDATE proposal SET state = 'committed'").await.unwrap();
        match parent_moves {
            false => assert_refused(
                "a commit that leaves web unchanged",
                tx.commit().await,
                Refusal::IncompleteProjection,
            ),
            true => tx.commit().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn incomplete_commit_is_refused() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    let root = world.root_with(&planned).await;

    let mut tx = world.db.app().begin().await.unwrap();
    world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    assert_refused("a commit without its rows", tx.commit().await, Refusal::IncompleteProjection);

    let mut tx = world.db.app().begin().await.unwrap();
    let number = world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    sqlx::query("UPDATE head SET number = $1").bind(number).execute(&mut *tx).await.unwrap();
    tx.execute("UPDATE proposal SET state = 'committed'").await.unwrap();
    assert_refused(
        "a commit without its documents",
        tx.commit().await,
        Refusal::IncompleteProjection,
    );

    let mut tx = world.db.app().begin().await.unwrap();
    world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    let sql = "UPDATE node SET doc = (SELECT doc FROM node WHERE id = $2) WHERE id = $1";
    let other = sqlx::query(sql).bind(world.n1).bind(world.n2).execute(&mut *tx).await;
    assert_refused("a commit of another document", other, Refusal::UnlistedDocuments);
    drop(tx);

    let mut tx = world.db.app().begin().await.unwrap();
    world.insert_blueprint(&mut tx, review, &root).await.unwrap();
    let sql = "UPDATE head SET policy_number = 2";
    assert_refused(
        "a policy that does not exist",
        tx.execute(sql).await,
        Refusal::IntentOutsideCommit,
    );
    drop(tx);
    world.commit(&planned, review).await.unwrap();
}

#[tokio::test]
async fn submission_cannot_change_after_insert() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    for sql in [
        format!("INSERT INTO review_author VALUES ({review}, '{}')", world.eve),
        format!("INSERT INTO review_base VALUES ({review}, '{}', 1)", world.storage),
        format!(
            "INSERT INTO review_document VALUES ({review}, 'node', '{}', NULL, '\\x{}')",
            world.n2,
            hex(&planned.root)
        ),
    ] {
        assert_refused(&sql, world.app(&sql).await, Refusal::ReviewSealed);
    }
}

#[tokio::test]
async fn switch_repeats_root_and_keeps_approvals() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    assert_refused(
        "a switch that changes nothing",
        world.switch(true).await,
        Refusal::NotNextBlueprint,
    );
    world.switch(false).await.unwrap();
    assert_eq!(world.commit(&planned, review).await.unwrap(), 3);
    world.switch(true).await.unwrap();
    let other = world.put_root(&world::Root::default()).await;
    let sql = format!(
        "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch, committed_by) VALUES (5, 4, 'switch', '\\x{}', false, 1, '{}')",
        hex(&other),
        world.ada
    );
    assert_refused("a switch with another root", world.app(&sql).await, Refusal::NotNextBlueprint);
}

#[tokio::test]
async fn switch_cannot_change_intent() {
    let world = World::new().await;
    let mut tx = world.begin_as(world.ada).await;
    let sql = "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch, committed_by)
               SELECT number + 1, number, 'switch', root, false, t.epoch, p.id FROM blueprint t, person p WHERE p.name = 'ada'";
    tx.execute(sql).await.unwrap();
    let refused = tx.execute("UPDATE step SET jig = 'script'").await;
    assert_refused(
        "a switch that changes the desired state",
        refused,
        Refusal::IntentOutsideCommit,
    );
}

#[tokio::test]
async fn history_has_no_gap_fork_or_second_genesis() {
    let world = World::new().await;
    let insert = |number: i64, parent: &str, kind: &str, enabled: bool| {
        format!(
            "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch, committed_by)
             SELECT {number}, {parent}, '{kind}', root, {enabled}, 1, p.id FROM blueprint, person p WHERE number = 1 AND p.name = 'ada'"
        )
    };
    assert_refused(
        "a second genesis",
        world.app(&insert(1, "NULL", "genesis", true)).await,
        Refusal::NotNextBlueprint,
    );
    assert_refused(
        "a gap in the numbers",
        world.app(&insert(9, "8", "switch", false)).await,
        Refusal::NotNextBlueprint,
    );
    world.switch(false).await.unwrap();
    assert_refused(
        "a second blueprint with the same number",
        world.app(&insert(2, "1", "switch", false)).await,
        Refusal::NotNextBlueprint,
    );
    assert_eq!(
        state(world.app_as(world.ada, &insert(4, "2", "switch", true)).await),
        "23514",
        "numbers have no gaps"
    );
    assert_refused(
        "the head's number set by hand",
        world.app("UPDATE head SET number = 1").await,
        Refusal::IntentOutsideCommit,
    );
    assert_refused(
        "the switch set by hand",
        world.app("UPDATE head SET enabled = true").await,
        Refusal::IntentOutsideCommit,
    );
}

#[tokio::test]
async fn restore_voids_old_submissions_and_transactions() {
    let world = World::new().await;
    let (planned, review) = approved(&world).await;
    assert_eq!(state(world.app("UPDATE head SET epoch = 2").await), "42501");
    assert_eq!(state(world.app("SELECT raise_epoch()").await), "42501");
    assert_eq!(migrations::raise_epoch(world.db.owner()).await.unwrap(), 2);
    assert_refused(
        "a commit with an approval of the earlier epoch",
        world.commit(&planned, review).await,
        Refusal::EpochMismatch,
    );
    assert_refused(
        "a verdict on a review of the earlier epoch",
        world.verdict(review, world.cy, "approve").await,
        Refusal::EpochMismatch,
    );
    let sql = "INSERT INTO blueprint (number, parent, kind, root, enabled, epoch)
               SELECT number + 1, number, 'switch', root, false, epoch FROM blueprint";
    assert_refused(
        "a blueprint of the earlier epoch",
        world.app(sql).await,
        Refusal::EpochMismatch,
    );
    assert_refused(
        "an epoch that decreases",
        world.owner("UPDATE head SET epoch = 1").await,
        Refusal::IntentOutsideCommit,
    );

    // Transaction ids recur after a restore. An old target with this transaction's id does not
    // permit changes.
    world.owner("ALTER TABLE blueprint DISABLE TRIGGER guard_append_only").await.unwrap();
    let mut tx = world.db.owner().begin().await.unwrap();
    tx.execute("UPDATE blueprint SET xid = pg_current_xact_id()").await.unwrap();
    let refused = tx.execute("UPDATE step SET jig = 'script'").await;
    assert_refused(
        "a transaction id that was used before the restore",
        refused,
        Refusal::IntentOutsideCommit,
    );
    drop(tx);

    // A new version of the same proposal can be committed.
    let version = world.edit(planned.proposal, world.ada).await.unwrap();
    let again = NewReview { version, epoch: 2, ..planned };
    let review = world.submit(&again).await.unwrap();
    world.verdict(review, world.bo, "approve").await.unwrap();
    world.commit(&again, review).await.unwrap();
}
