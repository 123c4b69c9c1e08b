//! Permissions in single deployments, and permissions of tokens.

use api::Problem;
use api::people::{
    AccountKind, Grant, Password, PasswordRequest, PersonRequest, TokenRequest, TokensQuery,
};
use api::reviews::{ReviewFilter, ReviewStateFilter, ReviewsQuery};
use api::views::board::BoardQuery;
use control::people::{Actor, ClientInfo, NewPerson, Permission, PersonAtVersion};
use engine::gate::VerdictKind;
use engine::plan::{Edit, edit};
use serde_json::Value;

use crate::installation::Installation;

fn grant(permission: &str, deployment: &str) -> Grant {
    Grant {
        permission: permission.into(),
        deployment: (!deployment.is_empty()).then(|| deployment.into()),
    }
}

impl Installation {
    async fn admin(&self) -> Actor {
        self.people
            .create_person(None, &NewPerson::human("root", [Permission::Admin]))
            .await
            .unwrap();
        self.people.sign_in_as_owner("root").await.unwrap()
    }

    /// A new person, signed in with their first link.
    async fn with(&self, admin: &Actor, name: &str, grants: &[Grant]) -> Actor {
        let request =
            PersonRequest { name: name.into(), kind: AccountKind::Human, grants: grants.to_vec() };
        let link = self.people.add(admin, &request).await.unwrap().link.unwrap().link;
        self.sign_in_with(&link).await
    }

    async fn sign_in_with(&self, link: &str) -> Actor {
        let token = link.rsplit('=').next().unwrap();
        let begun = self.people.sign_in(token, &ClientInfo::default(), None).await.unwrap();
        assert!(begun.needs_password);
        // As if a password had been set in the session.
        sqlx::query("UPDATE session SET link_by = NULL")
            .execute(self.database.owner())
            .await
            .unwrap();
        self.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap()
    }

    async fn token(
        &self,
        of: &Actor,
        scopes: &[&str],
        deployment: Option<&str>,
    ) -> Result<(String, Actor), Problem> {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let request = TokenRequest {
            name: "x".into(),
            days: 1,
            scopes,
            deployment: deployment.map(str::to_owned),
            person: None,
        };
        let made = self.people.create_token(of, &request).await?;
        let actor = self.people.actor_of_token(&made.token).await?.unwrap();
        Ok((made.token, actor))
    }

    async fn audit(&self, action: &str) -> Vec<Value> {
        let sql = "SELECT detail FROM audit WHERE action = $1 ORDER BY id";
        sqlx::query_scalar(sql).bind(action).fetch_all(self.database.owner()).await.unwrap()
    }
}

fn code<T: std::fmt::Debug>(refused: Result<T, Problem>) -> String {
    refused.expect_err("a refusal").code
}

#[tokio::test]
async fn permission_applies_to_deployment_and_descendants() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan = installation.with(&root, "dan", &[grant("operator", "web")]).await;
    let fay = installation.with(&root, "fay", &[grant("reviewer", "web")]).await;
    let gus = installation
        .with(&root, "gus", &[grant("reviewer", "edge"), grant("operator", "edge")])
        .await;
    installation.later(48).await;
    let (web, edge) = (installation.id("web").await, installation.id("edge").await);
    assert_eq!(code(installation.control.propose(&dan, edge).await), "forbidden");
    assert_eq!(code(installation.control.propose(&fay, web).await), "forbidden");
    assert!(
        installation
            .control
            .board(&dan, "web", BoardQuery::default())
            .await
            .unwrap()
            .may_propose
            .is_allowed()
    );
    assert!(
        !installation
            .control
            .board(&dan, "edge", BoardQuery::default())
            .await
            .unwrap()
            .may_propose
            .is_allowed(),
        "a viewer's permission does not include proposals"
    );
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&dan, "web", vec![edit]).await;

    let mine = ReviewsQuery { involvement: ReviewFilter::ForMe, ..ReviewsQuery::default() };
    let waits =
        async |who: &Actor| installation.control.reviews(who, &mine).await.unwrap().reviews.len();
    assert_eq!((waits(&fay).await, waits(&gus).await, waits(&dan).await), (1, 0, 0));
    let seen = installation.control.review(&gus, id).await.unwrap();
    assert!(seen.may_review.reason().unwrap().contains("fay"), "people who can review are named");
    assert!(
        !seen.may_commit.reason().unwrap().contains("gus"),
        "people who cannot commit are not named"
    );
    assert_eq!(
        code(
            installation.control.give_verdict(&gus, id, VerdictKind::Approve, String::new()).await
        ),
        "not_a_reviewer"
    );
    assert_eq!(
        code(
            installation
                .control
                .open_thread(&gus, id, engine::blueprint::Anchor::Whole, "?".into())
                .await
        ),
        "forbidden"
    );
    installation.approve(&fay, id).await;
    assert_eq!(code(installation.commit(&gus, id).await), "forbidden");
    assert_eq!(
        (waits(&fay).await, waits(&gus).await, waits(&dan).await),
        (1, 0, 1),
        "the people who may commit are notified"
    );
    installation.commit(&dan, id).await.unwrap();

    let reason = || "because".to_owned();
    let noderole = installation.noderole(1, "app").await;
    for refused in [
        installation.control.hold(&gus, web, true, reason()).await,
        installation.control.set_priority(&gus, web, 3, reason()).await,
        installation.control.retry(&gus, noderole, reason()).await,
        installation
            .control
            .set_maintenance(&gus, installation.node(1).await, true, reason())
            .await,
        installation.control.switch(&dan, false, reason()).await.map(drop),
        installation.control.delete_node(&dan, installation.node(4).await, None).await,
        installation.control.import_barclamps(Some(&dan), &Default::default()).await.map(drop),
    ] {
        assert_eq!(code(refused), "forbidden");
    }
    installation.control.hold(&dan, web, true, reason()).await.unwrap();
    installation
        .control
        .set_maintenance(&dan, installation.node(1).await, true, reason())
        .await
        .unwrap();
}

#[tokio::test]
async fn change_requires_permission_in_every_touched_deployment() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let take = Edit::MoveNode(edit::MoveNode {
        node: installation.node(1).await,
        deployment: installation.id("edge").await,
    });
    let taken = installation.submit(&installation.ada, "edge", vec![take]).await;
    installation.approve(&installation.bo, taken).await;
    installation.commit(&installation.ada, taken).await.unwrap();
    let web_only = installation.with(&root, "dan", &[grant("operator", "web")]).await;
    let reviewer_of_web = installation.with(&root, "fay", &[grant("reviewer", "web")]).await;
    let both = [grant("reviewer", "web"), grant("reviewer", "edge")];
    let reviewer_of_both = installation.with(&root, "gus", &both).await;
    let (web, n1) = (installation.id("web").await, installation.node(1).await);
    let (id, version) = installation
        .propose(
            &web_only,
            "web",
            vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: web })],
        )
        .await;
    assert_eq!(
        code(installation.control.submit(&web_only, id, version, "take it".into()).await),
        "forbidden"
    );
    let review = installation
        .control
        .submit(&installation.ada, id, version, "take it".into())
        .await
        .unwrap();
    let approve = async |who: &Actor| {
        installation.control.give_verdict(who, review, VerdictKind::Approve, String::new()).await
    };
    assert_eq!(code(approve(&reviewer_of_web).await), "not_a_reviewer");
    approve(&reviewer_of_both).await.unwrap();
    installation.people.change_grants(&root, reviewer_of_both.person, &both[..1]).await.unwrap();
    assert_eq!(
        code(installation.commit(&installation.ada, review).await),
        "not_approved",
        "an approval counts only while its person has the permission"
    );
    assert_eq!(code(installation.commit(&web_only, review).await), "forbidden");
}

#[tokio::test]
async fn move_needs_permissions_in_all_three_deployments() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let (web, edge) = (installation.id("web").await, installation.id("edge").await);
    let shop = engine::ids::DeploymentId(uuid::Uuid::from_u128(0xa0));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: shop,
        phantom: engine::ids::NodeId(uuid::Uuid::from_u128(0xa1)),
        name: "shop".parse().unwrap(),
        parent: web,
    });
    installation.moved_by("web", vec![create]).await;
    let of = |permission: &str, deployments: &[&str]| -> Vec<Grant> {
        deployments.iter().map(|deployment| grant(permission, deployment)).collect()
    };
    let of_shop = installation.with(&root, "dan", &of("operator", &["shop"])).await;
    let of_target = installation.with(&root, "eli", &of("operator", &["shop", "edge"])).await;
    let of_both = installation.with(&root, "fay", &of("operator", &["web", "edge"])).await;
    let target_only = installation.with(&root, "gus", &of("reviewer", &["shop", "edge"])).await;
    let source_only = installation.with(&root, "hal", &of("reviewer", &["web"])).await;
    let both = installation.with(&root, "ira", &of("reviewer", &["web", "edge"])).await;
    let edits = vec![Edit::MoveDeployment(edit::MoveDeployment { deployment: shop, parent: edge })];
    let (id, version) = installation.propose(&of_shop, "shop", edits).await;
    let submit =
        async |who: &Actor| installation.control.submit(who, id, version, "move it".into()).await;
    assert_eq!(code(submit(&of_shop).await), "forbidden");
    assert_eq!(
        code(submit(&of_target).await),
        "forbidden",
        "the permission is also needed in the old parent"
    );
    let review = submit(&of_both).await.unwrap();

    let approve = async |who: &Actor| {
        installation.control.give_verdict(who, review, VerdictKind::Approve, String::new()).await
    };
    assert_eq!(code(approve(&target_only).await), "not_a_reviewer");
    assert_eq!(code(approve(&source_only).await), "not_a_reviewer");
    approve(&both).await.unwrap();
    // The account of that reviewer is new, so another approval has to count.
    installation.approve(&installation.bo, review).await;
    let refused = installation.commit(&of_target, review).await.unwrap_err();
    assert_eq!(refused.code, "forbidden");
    assert!(
        refused.detail.contains("operator, reviewer in the deployments edge, shop, web."),
        "the error names the deployments: {}",
        refused.detail
    );
    installation.commit(&of_both, review).await.unwrap();
}

#[tokio::test]
async fn token_never_exceeds_person_and_never_reviews() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan =
        installation.with(&root, "dan", &[grant("operator", "web"), grant("reviewer", "")]).await;
    assert_eq!(code(installation.token(&dan, &["reviewer"], None).await), "invalid");
    assert_eq!(code(installation.token(&dan, &["admin"], None).await), "forbidden");
    assert_eq!(code(installation.token(&dan, &["operator"], Some("edge")).await), "forbidden");
    assert_eq!(code(installation.token(&dan, &[], None).await), "invalid");
    let (text, token) = installation.token(&dan, &["operator", "viewer"], None).await.unwrap();
    assert!(text.starts_with("gantry_") && text.len() == 7 + 64, "{text}");
    let stored =
        "SELECT count(*) FROM token WHERE hash = sha256($1::bytea) AND last_used_at IS NOT NULL";
    let stored: i64 = sqlx::query_scalar(stored)
        .bind(text.as_bytes())
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert_eq!(stored, 1, "only the hash of the token and its last use are stored");
    let refused = token.require(Permission::Admin).unwrap_err();
    assert!(
        refused.detail.contains("Use a token that has it") && !refused.needs_admin,
        "an admin cannot extend a token: {refused:?}"
    );

    let edit = installation.bind("web", 1, "app").await;
    let done = store::audit::run_with_token(
        token.token.as_ref().unwrap().id,
        installation.submit(&token, "web", vec![edit]),
    );
    let id = done.await;
    let made = installation.audit("review.submit").await;
    assert_eq!(
        made[0]["by_token"],
        token.token.as_ref().unwrap().id.to_string(),
        "the audit names the token"
    );
    let edit = installation.bind("edge", 2, "app").await;
    let others = installation.submit(&installation.ada, "edge", vec![edit]).await;
    let no = installation
        .control
        .give_verdict(&token, others, VerdictKind::Approve, String::new())
        .await;
    assert_eq!(code(no), "not_a_reviewer", "a token never reviews, even if its person may");
    assert!(!installation.control.review(&token, others).await.unwrap().may_review.is_allowed());
    assert!(installation.control.review(&dan, others).await.unwrap().may_review.is_allowed());
    let waits = ReviewsQuery { involvement: ReviewFilter::ForMe, ..ReviewsQuery::default() };
    assert_eq!(installation.control.reviews(&token, &waits).await.unwrap().reviews.len(), 0);
    assert_eq!(installation.control.reviews(&dan, &waits).await.unwrap().reviews.len(), 1);
    installation.approve(&installation.bo, id).await;
    installation.commit(&token, id).await.unwrap();
    assert_eq!(installation.listed(&token, ReviewStateFilter::Committed).await.len(), 1);

    let request = TokenRequest {
        name: "y".into(),
        days: 1,
        scopes: vec!["viewer".into()],
        deployment: None,
        person: None,
    };
    assert_eq!(code(installation.people.create_token(&token, &request).await), "session_required");
    let password = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    assert_eq!(code(installation.people.set_password(&token, &password).await), "session_required");
    assert_eq!(code(installation.people.end_other_sessions(&token).await), "session_required");
    assert_eq!(
        code(installation.control.mark_viewed(&token, others, Vec::new()).await),
        "session_required"
    );
    assert_eq!(
        code(
            installation
                .control
                .create_node_token(&token, installation.node(1).await, "z".into(), 1)
                .await
        ),
        "session_required"
    );
    let root_itself = root_in_person(&installation).await;
    for scopes in [&["admin"][..], &["viewer", "admin"]] {
        let refused = installation
            .token(&root_itself, scopes, Some("web"))
            .await
            .expect_err("a grant of admin in one deployment");
        assert_eq!(refused.code, "invalid");
        assert!(
            refused
                .detail
                .starts_with("deployment: The permission admin always applies everywhere"),
            "{refused:?}"
        );
    }
    installation
        .token(&root_itself, &["viewer"], Some("web"))
        .await
        .expect("a token for one deployment");
    let (_, root_token) =
        installation.token(&root_in_person(&installation).await, &["admin"], None).await.unwrap();
    assert_eq!(
        code(installation.people.new_link(&root_token, dan.person).await),
        "session_required"
    );
    assert_eq!(
        code(installation.people.change_grants(&root_token, dan.person, &[]).await),
        "session_required"
    );

    installation.people.change_grants(&root, dan.person, &[grant("viewer", "")]).await.unwrap();
    let now = installation.people.actor_of_token(&text).await.unwrap().unwrap();
    assert_eq!(
        code(installation.control.propose(&now, installation.id("web").await).await),
        "forbidden",
        "the token has only the current permissions of its person"
    );
    let edit = installation.bind("web", 3, "still").await;
    assert_eq!(
        code(installation.control.propose(&now, installation.id("web").await).await),
        "forbidden"
    );
    drop(edit);
    installation.people.set_disabled(&root, dan.person, true).await.unwrap();
    assert_eq!(
        installation.people.actor_of_token(&text).await.unwrap(),
        None,
        "the token is invalid immediately"
    );
    assert_eq!(installation.people.can_still_view(&now).await, Ok(false), "its streams end, too");
    installation.people.set_disabled(&root, dan.person, false).await.unwrap();
    assert_eq!(
        installation.people.actor_of_token(&text).await.unwrap(),
        None,
        "enabling the person does not restore the token"
    );
    assert_eq!(
        installation.people.can_still_view(&root_token).await,
        Ok(true),
        "a token of another person stays valid"
    );
    let disabled = installation.audit("person.disable").await;
    assert_eq!(disabled[0]["name"], "dan");
    assert_eq!(disabled[0]["tokens"], 1, "{disabled:?}");
    assert_eq!(installation.audit("person.enable").await, [serde_json::json!({"name": "dan"})]);

    let dan = installation
        .sign_in_with(&installation.people.new_link(&root, dan.person).await.unwrap().link)
        .await;
    let (text, again) = installation.token(&dan, &["viewer"], None).await.expect("another token");
    let again = again.token.unwrap().id;
    assert_eq!(code(installation.people.revoke_token(&installation.ada, again).await), "not_found");
    installation.people.revoke_token(&root, again).await.unwrap();
    assert_eq!(installation.people.actor_of_token(&text).await.unwrap(), None);
}

#[tokio::test]
async fn disabled_service_account_loses_tokens_permanently() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let request = PersonRequest {
        name: "robot".into(),
        kind: AccountKind::Service,
        grants: vec![grant("viewer", "")],
    };
    let robot = installation.people.add(&root, &request).await.unwrap().id;
    let request = TokenRequest {
        name: "x".into(),
        days: 1,
        scopes: vec!["viewer".into()],
        deployment: None,
        person: Some(robot),
    };
    let token = installation.people.create_token(&root, &request).await.unwrap().token;
    assert_eq!(
        installation.people.one(&root, robot).await.unwrap().last_seen,
        None,
        "the account was never used"
    );
    assert!(installation.people.actor_of_token(&token).await.unwrap().is_some());
    let seen = installation.people.one(&root, robot).await.unwrap().last_seen;
    assert!(seen.is_some(), "the use of a token counts as a visit");
    installation.people.disable(None, robot).await.unwrap();
    installation.people.set_disabled(&root, robot, false).await.unwrap();
    assert_eq!(
        installation.people.one(&root, robot).await.unwrap().last_seen,
        seen,
        "the visit is stored after the token is revoked"
    );
    assert_eq!(installation.people.actor_of_token(&token).await.unwrap(), None);
    assert_eq!(installation.audit("person.disable").await[0]["tokens"], 1);
    assert!(
        installation.people.tokens(&root, Some(robot)).await.unwrap()[0].revoked.is_some(),
        "the list shows the token as revoked"
    );
}

#[tokio::test]
async fn grant_accepts_name_or_id_of_deployment() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let web = installation.id("web").await.to_string();
    let request = |deployment: &str| PersonRequest {
        name: "dan".into(),
        kind: AccountKind::Human,
        grants: vec![grant("operator", deployment)],
    };
    let made = installation.people.add(&root, &request(&web)).await.unwrap();
    let person = installation.people.one(&root, made.id).await.unwrap();
    assert_eq!(person.grants, [grant("operator", "web")]);
    for nothing in ["wbe", "00000000-0000-4000-8000-00000000beef"] {
        let refused = installation.people.add(&root, &request(nothing)).await.unwrap_err();
        assert!(
            refused.detail.starts_with(&format!("Deployment {nothing} does not exist. See")),
            "{refused}"
        );
    }
    let by_name = [grant("viewer", "web")];
    let changed = installation.people.change_grants(&root, made.id, &by_name).await.unwrap();
    assert_eq!(changed.grants, by_name);
}

#[tokio::test]
async fn stream_ends_without_viewer_permission() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan =
        installation.with(&root, "dan", &[grant("viewer", ""), grant("operator", "web")]).await;
    let (_, all) = installation.token(&dan, &["viewer", "operator"], None).await.unwrap();
    let (_, acts) = installation.token(&dan, &["operator"], Some("web")).await.unwrap();
    let looks = async || {
        let mut answers = Vec::new();
        for actor in [&dan, &all, &acts] {
            answers.push(installation.people.can_still_view(actor).await.unwrap());
        }
        answers
    };
    assert_eq!(looks().await, [true; 3]);
    installation.people.change_grants(&root, dan.person, &[grant("viewer", "")]).await.unwrap();
    assert_eq!(
        looks().await,
        [true, true, false],
        "the operator token has no permission left in its deployment"
    );
    installation.people.change_grants(&root, dan.person, &[]).await.unwrap();
    assert_eq!(looks().await, [false; 3], "the session and both tokens have no viewer permission");
    let now = installation.people.sign_in_as_owner("dan").await.unwrap();
    let frame = installation.control.frame(&now).await.unwrap();
    assert_eq!(
        (frame.me.name.as_str(), frame.execution, frame.cursor),
        ("dan", None, None),
        "a person without permissions sees only their own account"
    );
    let frame = installation.control.frame(&installation.ada).await.unwrap();
    assert!(frame.execution == Some(true) && frame.cursor.is_some(), "{frame:?}");
    installation
        .people
        .change_grants(&root, dan.person, &[grant("operator", "web")])
        .await
        .unwrap();
    assert_eq!(looks().await, [true; 3]);
}

async fn root_in_person(installation: &Installation) -> Actor {
    installation.people.sign_in_as_owner("root").await.unwrap()
}

#[tokio::test]
async fn token_list_has_valid_and_newest_invalid_tokens() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan = installation.with(&root, "dan", &[grant("operator", "web")]).await;
    installation.token(&dan, &["viewer"], None).await.unwrap();
    let over = "INSERT INTO token (kind, hash, name, person_id, scopes, created_by, created_at, expires_at, revoked_at)
         SELECT kind, sha256(('over' || g)::bytea), 'over ' || g, person_id, scopes, created_by,
           created_at + make_interval(secs => g), expires_at, now()
         FROM token, generate_series(1, 150) g WHERE kind = 'api' AND name = 'x'";
    sqlx::query(over).execute(installation.database.owner()).await.unwrap();
    let names = async |of: &Actor| -> Vec<String> {
        installation
            .people
            .tokens(of, Some(dan.person))
            .await
            .unwrap()
            .into_iter()
            .map(|token| token.name)
            .collect()
    };
    let walked = async |sort: &str, valid: Option<bool>| -> Vec<String> {
        let order = TokensQuery { sort: sort.parse().unwrap(), valid, ..TokensQuery::default() };
        let (mut names, mut query) = (Vec::new(), order);
        loop {
            let page = installation.people.token_page(&dan, &query).await.unwrap();
            assert!(page.tokens.len() <= api::listing::PAGE_SIZE);
            names.extend(page.tokens.into_iter().map(|token| token.name));
            query.before = page.next;
            if query.before.is_none() {
                return names;
            }
        }
    };
    let reported = names(&dan).await;
    assert_eq!(reported.len(), api::limits::LISTED_TOKENS);
    assert_eq!(
        (reported[0].as_str(), reported[1].as_str(), reported[99].as_str()),
        ("x", "over 150", "over 52")
    );
    assert_eq!(walked("", None).await, reported, "the pages equal the whole list");
    assert_eq!(
        (walked("", Some(true)).await, walked("", Some(false)).await.len()),
        (vec!["x".to_owned()], 99)
    );
    let by_name = walked("name", None).await;
    assert!(by_name.is_sorted() && by_name.len() == reported.len(), "{by_name:?}");
    installation.people.set_disabled(&root, dan.person, true).await.unwrap();
    assert_eq!(names(&root).await[0], "over 150", "the token was revoked with its person");
}

#[tokio::test]
async fn a_service_account_has_tokens_only() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let request = |grants: Vec<Grant>| PersonRequest {
        name: "ci".into(),
        kind: AccountKind::Service,
        grants,
    };
    assert_eq!(
        code(installation.people.add(&root, &request(vec![grant("reviewer", "")])).await),
        "invalid"
    );
    assert_eq!(
        code(installation.people.add(&installation.ada, &request(vec![])).await),
        "forbidden"
    );
    let made =
        installation.people.add(&root, &request(vec![grant("operator", "web")])).await.unwrap();
    assert_eq!(made.link, None);
    assert_eq!(code(installation.people.new_link(&root, made.id).await), "service");
    let link = installation
        .people
        .create_sign_in_link(None, made.id, std::time::Duration::from_secs(60))
        .await
        .unwrap();
    assert!(
        installation.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.is_err(),
        "a service account cannot have a session"
    );
    let for_it = TokenRequest {
        name: "ci".into(),
        days: 30,
        scopes: vec!["operator".into()],
        deployment: None,
        person: Some(made.id),
    };
    assert_eq!(
        code(installation.people.create_token(&installation.ada, &for_it).await),
        "forbidden"
    );
    let another = TokenRequest { person: Some(installation.ada.person), ..for_it.clone() };
    assert_eq!(
        code(installation.people.create_token(&root, &another).await),
        "forbidden",
        "a token cannot be made for another person"
    );
    let token = installation.people.create_token(&root, &for_it).await.unwrap();
    let ci = installation.people.actor_of_token(&token.token).await.unwrap().unwrap();
    assert!(installation.control.propose(&ci, installation.id("web").await).await.is_ok());
    assert_eq!(
        code(installation.control.propose(&ci, installation.id("edge").await).await),
        "forbidden"
    );
    assert_eq!(installation.people.tokens(&root, Some(made.id)).await.unwrap().len(), 1);
    assert_eq!(
        code(installation.people.tokens(&installation.ada, Some(made.id)).await),
        "forbidden"
    );
    let id = made.id.to_string();
    for owner in ["ci", id.as_str()] {
        let query = TokensQuery { person: owner.into(), ..TokensQuery::default() };
        let listed = installation.people.token_page(&root, &query).await.unwrap();
        assert_eq!(listed.tokens.len(), 1, "{owner}");
        assert_eq!(listed.tokens[0].person, "ci");
        let refused = installation.people.token_page(&installation.ada, &query).await;
        assert_eq!(code(refused), "forbidden");
    }
    let unknown = TokensQuery { person: "zoe".into(), ..TokensQuery::default() };
    assert_eq!(code(installation.people.token_page(&root, &unknown).await), "not_found");
}

#[tokio::test]
async fn service_account_manages_people_if_granted() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let people = &installation.people;
    let request = |name: &str, kind, grants: &[Grant]| PersonRequest {
        name: name.into(),
        kind,
        grants: grants.to_vec(),
    };
    let granted = [grant("operator", "web"), grant("admin", "")];
    let made = people.add(&root, &request("ci", AccountKind::Service, &granted)).await.unwrap();
    let token = async |scopes: &[&str]| {
        let request = TokenRequest {
            name: "ci".into(),
            days: 30,
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            deployment: None,
            person: Some(made.id),
        };
        let token = people.create_token(&root, &request).await.unwrap().token;
        people.actor_of_token(&token).await.unwrap().unwrap()
    };
    let ci = token(&["operator", "admin"]).await;
    let human = |name, grants: &[Grant]| request(name, AccountKind::Human, grants);

    let dan = people.add(&ci, &human("dan", &[grant("operator", "web")])).await.unwrap();
    assert!(dan.link.is_some());
    assert!(people.new_link(&ci, dan.id).await.is_ok());
    people.set_disabled(&ci, dan.id, true).await.unwrap();
    people.set_disabled(&ci, dan.id, false).await.unwrap();
    people.change_grants(&ci, dan.id, &[grant("viewer", "")]).await.unwrap();

    // Beyond its permissions.
    for beyond in ["operator", "reviewer", "admin"] {
        let refused = people.add(&ci, &human("eve", &[grant(beyond, "")])).await;
        assert_eq!(code(refused), "forbidden", "{beyond}");
        let refused = people.change_grants(&ci, dan.id, &[grant(beyond, "")]).await;
        let detail =
            refused.as_ref().err().map(|problem| problem.detail.clone()).unwrap_or_default();
        let own = match beyond {
            "operator" => "Its token does not have this permission in all of the same deployments",
            _ => "Only a person can do that",
        };
        assert_eq!(
            detail,
            format!(
                "Service account ci cannot manage an account with the permission {beyond}. {own}. \
                 Sign in as an admin."
            )
        );
        assert_eq!(code(refused), "forbidden", "{beyond}");
    }
    for other in [installation.bo.person, root.person, made.id] {
        assert_eq!(code(people.set_disabled(&ci, other, true).await), "forbidden");
        assert_eq!(code(people.new_link(&ci, other).await), "forbidden");
        let refused = people.change_grants(&ci, other, &[grant("viewer", "")]).await;
        assert_eq!(code(refused), "forbidden");
    }
    // Actions of people.
    assert_eq!(code(people.confirm(&ci, dan.id).await), "session_required");
    assert_eq!(code(people.reset_factor(Some(&ci), dan.id).await), "session_required");
    let own = TokenRequest {
        name: "x".into(),
        days: 1,
        scopes: vec!["viewer".into()],
        deployment: None,
        person: None,
    };
    assert_eq!(code(people.create_token(&ci, &own).await), "session_required");
    // Without the scope, and with the token of a person.
    let operator = token(&["operator"]).await;
    assert_eq!(code(people.add(&operator, &human("eve", &[])).await), "forbidden");
    let own = TokenRequest { scopes: vec!["admin".into()], ..own };
    let own = people.create_token(&root, &own).await.unwrap().token;
    let own = people.actor_of_token(&own).await.unwrap().unwrap();
    assert_eq!(code(people.add(&own, &human("eve", &[])).await), "session_required");

    let revoked = people.change_grants(&root, made.id, &[grant("operator", "web")]).await;
    revoked.unwrap();
    assert_eq!(
        code(people.add(&ci, &human("eve", &[])).await),
        "forbidden",
        "the grant was revoked"
    );
}

#[tokio::test]
async fn password_is_set_with_link_then_changed() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan = installation.with(&root, "dan", &[grant("viewer", "")]).await;
    let request = |old: &str, new: &str| PasswordRequest {
        old: (!old.is_empty()).then(|| Password::typed(old)),
        new: Password::typed(new),
    };
    assert_eq!(
        code(installation.people.set_password(&dan, &request("", "dan-dan-dan!")).await),
        "weak_password"
    );
    let session =
        installation.people.set_password(&dan, &request("", "vague otter lamp")).await.unwrap();
    let sign_in = async |name: &str, password: &str| {
        installation
            .people
            .sign_in_by_password(name, Password::typed(password), &ClientInfo::default(), None)
            .await
    };
    assert_eq!(
        installation.people.can_still_view(&dan).await,
        Ok(false),
        "the session from before the sign-in was replaced"
    );
    let dan = installation.people.actor_of_session(session.reveal()).await.unwrap().unwrap();
    let wrong = sign_in("dan", "vague otter lamb").await.unwrap_err();
    assert_eq!((wrong.status, wrong.code.as_str()), (401, "sign_in_wrong"));
    for (name, password) in
        [("nobody", "vague otter lamp"), ("ada", "vague otter lamp"), ("ada", ""), ("", "x")]
    {
        assert_eq!(
            sign_in(name, password).await.unwrap_err(),
            wrong,
            "the response is the same for an unknown name: {name}"
        );
    }
    let begun = sign_in(" Dan ", "vague otter lamp").await.unwrap();
    let other =
        installation.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap();
    assert_eq!(
        code(installation.people.set_password(&other, &request("", "purple anvil rain")).await),
        "old_password"
    );
    assert_eq!(
        code(
            installation.people.set_password(&dan, &request("nonsense", "purple anvil rain")).await
        ),
        "old_password"
    );
    let rotated = installation
        .people
        .set_password(&other, &request("vague otter lamp", "purple anvil rain"))
        .await
        .unwrap();
    assert_eq!(installation.people.can_still_view(&dan).await, Ok(false), "other sessions end");
    assert!(
        installation.people.actor_of_session(begun.session.reveal()).await.unwrap().is_none(),
        "the current session has a new token"
    );
    let other = installation.people.actor_of_session(rotated.reveal()).await.unwrap().unwrap();
    assert_eq!(
        installation
            .people
            .sessions(&other)
            .await
            .unwrap()
            .iter()
            .map(|s| s.current)
            .collect::<Vec<_>>(),
        [true]
    );
    assert!(sign_in("dan", "vague otter lamp").await.is_err());

    // A forgotten password: an admin's link sets a new one without the old one.
    let first = installation.people.new_link(&root, dan.person).await.unwrap();
    let link = installation.people.new_link(&root, dan.person).await.unwrap();
    let voided = installation
        .people
        .sign_in(first.link.rsplit('=').next().unwrap(), &ClientInfo::default(), None)
        .await;
    assert_eq!(code(voided), "sign_in_expired");
    let again = installation.sign_in_with(&link.link).await;
    installation.people.set_password(&again, &request("", "seven slow candles")).await.unwrap();
    sign_in("dan", "seven slow candles").await.unwrap();
    let actions: Vec<Value> = installation
        .audit("password.set")
        .await
        .into_iter()
        .chain(installation.audit("password.change").await)
        .collect();
    assert_eq!(actions.len(), 3);
    let all: String = sqlx::query_scalar("SELECT string_agg(a::text, ' ') FROM audit a")
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert!(!all.contains("otter") && !all.contains("anvil") && !all.contains("candles"));
}

#[tokio::test]
async fn guessing_is_throttled_per_name_but_links_work() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan = installation.with(&root, "dan", &[grant("viewer", "")]).await;
    let new = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    installation.people.set_password(&dan, &new).await.unwrap();
    let from = |n: u8| ClientInfo {
        address: Some(std::net::IpAddr::from([192, 0, 2, n])),
        user_agent: String::new(),
    };
    let attempt = async |name: &str, password: &str, n: u8| {
        installation
            .people
            .sign_in_by_password(name, Password::typed(password), &from(n), None)
            .await
            .map(drop)
    };
    for name in ["dan", "nobody"] {
        for n in 0..10 {
            assert_eq!(code(attempt(name, "wrong", n).await), "sign_in_wrong");
        }
        assert_eq!(
            code(attempt(name, "vague otter lamp", 99).await),
            "too_many_attempts",
            "names are throttled whether or not they exist"
        );
    }
    let link = installation.people.new_link(&root, dan.person).await.unwrap();
    installation.sign_in_with(&link.link).await;
    for n in 0..8 {
        assert_eq!(code(attempt(&format!("n{n}"), "wrong", 7).await), "sign_in_wrong");
    }
    assert_eq!(
        code(attempt("other", "wrong", 7).await),
        "too_many_attempts",
        "the address has too many attempts: two before and eight now"
    );
}

#[tokio::test]
async fn sessions_that_end_each_other_leave_one() {
    for all in [true, false] {
        let installation = Installation::new().await;
        let root = installation.admin().await;
        let one = installation.with(&root, "dan", &[grant("viewer", "")]).await;
        let link = installation.people.new_link(&root, one.person).await.unwrap();
        let two = installation.sign_in_with(&link.link).await;
        let seen = installation.people.sessions(&one).await.unwrap();
        let named = |this: bool| seen.iter().find(|session| session.current == this).unwrap().id;
        let end = async |by: &Actor, other: uuid::Uuid| match all {
            true => installation.people.end_other_sessions(by).await.map(drop),
            false => installation.people.end_session(by, other).await,
        };
        let mut transaction = installation.database.app().begin().await.unwrap();
        let lock = "SELECT FROM person WHERE name = 'dan' FOR NO KEY UPDATE";
        sqlx::query(lock).execute(&mut *transaction).await.unwrap();
        let between = async {
            installation.so_many_wait(2).await;
            transaction.commit().await.unwrap();
        };
        let (first, second, ()) =
            tokio::join!(end(&one, named(false)), end(&two, named(true)), between);
        let answers = [first, second];
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        let refused = answers.into_iter().find_map(Result::err).unwrap();
        assert_eq!(refused.code, "signed_out", "the other session ended this one first");
    }
}

#[tokio::test]
async fn database_outage_is_not_a_failed_attempt() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan = installation.with(&root, "dan", &[grant("viewer", "")]).await;
    let new = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    installation.people.set_password(&dan, &new).await.unwrap();
    let sign_in = async |password: &str| {
        installation
            .people
            .sign_in_by_password("dan", Password::typed(password), &ClientInfo::default(), None)
            .await
    };
    let rename = async |sql: &'static str| {
        sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    };
    rename("ALTER TABLE account RENAME TO account_away").await;
    for _ in 0..12 {
        assert!(sign_in("vague otter lamp").await.unwrap_err().status >= 500);
    }
    rename("ALTER TABLE account_away RENAME TO account").await;
    assert_eq!(
        code(sign_in("wrong").await),
        "sign_in_wrong",
        "neither the name nor the address is throttled"
    );
    sign_in("vague otter lamp").await.unwrap();
}

#[tokio::test]
async fn gaining_reviewer_signs_out_and_last_admin_stays() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let dan = installation.with(&root, "dan", &[grant("viewer", "")]).await;
    installation.people.change_grants(&root, dan.person, &[grant("operator", "")]).await.unwrap();
    assert_eq!(installation.people.can_still_view(&dan).await, Ok(true));
    let view = installation
        .people
        .change_grants(&root, dan.person, &[grant("reviewer", "web"), grant("operator", "")])
        .await;
    assert_eq!(view.unwrap().grants, [grant("operator", ""), grant("reviewer", "web")]);
    assert_eq!(installation.people.can_still_view(&dan).await, Ok(false));
    assert_eq!(
        code(installation.people.change_grants(&root, dan.person, &[grant("admin", "web")]).await),
        "invalid"
    );
    assert_eq!(
        code(
            installation
                .people
                .change_grants(&root, dan.person, &[grant("operator", "nowhere")])
                .await
        ),
        "not_found"
    );
    for empty in ["", " ", "\0"] {
        let more_than_meant =
            Grant { permission: "operator".into(), deployment: Some(empty.into()) };
        assert_eq!(
            code(installation.people.change_grants(&root, dan.person, &[more_than_meant]).await),
            "invalid"
        );
        assert_eq!(code(installation.token(&root, &["viewer"], Some(empty)).await), "invalid");
    }
    let version = async || installation.people.one(&root, dan.person).await.unwrap().version;
    let before = version().await;
    let on = |version| PersonAtVersion { person: dan.person, version: Some(version) };
    let inside = [grant("operator", ""), grant("reviewer", "edge")];
    let view = installation.people.change_grants(&root, on(before), &inside).await.unwrap();
    assert_eq!(
        (view.version, version().await),
        (before + 1, before + 1),
        "a grant in one deployment also changes the version"
    );
    assert_eq!(
        code(installation.people.change_grants(&root, on(before), &[]).await),
        "changed_meanwhile"
    );
    installation.people.change_grants(&root, on(before + 1), &inside).await.unwrap();
    assert_eq!(version().await, before + 1, "an unchanged grant keeps the version");
    let everywhere = installation
        .people
        .change_grants(&root, dan.person, &[grant("operator", "system")])
        .await
        .unwrap();
    assert_eq!(everywhere.grants, [grant("operator", "")], "a grant on system applies everywhere");

    let last = installation
        .people
        .change_grants(&root, root.person, &[grant("viewer", "")])
        .await
        .unwrap_err();
    assert_eq!((last.code.as_str(), last.status), ("last_admin", 409));
    assert_eq!(last.detail, "Account root is the last admin. Make another person an admin first.");
    assert_eq!(
        code(installation.people.set_disabled(&root, root.person, true).await),
        "own_account"
    );
    installation.people.change_grants(&root, dan.person, &[grant("admin", "")]).await.unwrap();
    let dan = installation.people.sign_in_as_owner("dan").await.unwrap();
    let (one, two) = tokio::join!(
        installation.people.set_disabled(&dan, root.person, true),
        installation.people.set_disabled(&root, dan.person, true)
    );
    assert!(
        one.is_ok() != two.is_ok(),
        "one of two admins who remove each other must remain: {one:?} {two:?}"
    );
}

#[tokio::test]
async fn name_of_own_account_path_is_reserved() {
    let installation = Installation::new().await;
    let root = installation.admin().await;
    let request = PersonRequest { name: "me".into(), kind: AccountKind::Human, grants: Vec::new() };
    let refused = installation.people.add(&root, &request).await.unwrap_err();
    assert_eq!(
        refused.detail,
        "The name me is reserved, because /api/v1/people/me is your own account. Choose another \
         name."
    );
}

#[tokio::test]
async fn signing_in_ends_the_old_session() {
    let installation = Installation::new().await;
    let link = async || {
        installation
            .people
            .create_sign_in_link(None, installation.ada.person, std::time::Duration::from_secs(60))
            .await
            .unwrap()
    };
    let first = installation
        .people
        .sign_in(link().await.reveal(), &ClientInfo::default(), None)
        .await
        .unwrap()
        .session;
    let second = installation
        .people
        .sign_in(link().await.reveal(), &ClientInfo::default(), Some(first.reveal()))
        .await
        .unwrap()
        .session;
    assert!(installation.people.actor_of_session(first.reveal()).await.unwrap().is_none());
    assert!(installation.people.actor_of_session(second.reveal()).await.unwrap().is_some());
}
