//! Permissions in single deployments, and permissions of tokens.

use api::Problem;
use api::people::{
    AccountKind, Grant, Password, PasswordRequest, PersonRequest, TokenRequest, TokensWanted,
};
use api::reviews::{ReviewStateFilter, ReviewsWanted, Whose};
use control::people::{Actor, ClientInfo, NewPerson, Permission, SeenPerson};
use engine::gate::VerdictKind;
use engine::plan::{Edit, edit};
use serde_json::Value;

use crate::house::House;

fn grant(permission: &str, deployment: &str) -> Grant {
    Grant {
        permission: permission.into(),
        deployment: (!deployment.is_empty()).then(|| deployment.into()),
    }
}

impl House {
    async fn admin(&self) -> Actor {
        self.people
            .create_person(None, &NewPerson::human("root", [Permission::Admin]))
            .await
            .unwrap();
        self.people.sign_in_as_owner("root").await.unwrap()
    }

    /// A new person, signed in with their first link.
    async fn with(&self, admin: &Actor, name: &str, grants: &[Grant]) -> Actor {
        let wish =
            PersonRequest { name: name.into(), kind: AccountKind::Human, grants: grants.to_vec() };
        let link = self.people.add(admin, &wish).await.unwrap().link.unwrap().link;
        self.come_in(&link).await
    }

    async fn come_in(&self, link: &str) -> Actor {
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
        let wish = TokenRequest {
            name: "x".into(),
            days: 1,
            scopes,
            deployment: deployment.map(str::to_owned),
            person: None,
        };
        let made = self.people.make_token(of, &wish).await?;
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
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("operator", "web")]).await;
    let fay = house.with(&root, "fay", &[grant("reviewer", "web")]).await;
    let gus =
        house.with(&root, "gus", &[grant("reviewer", "edge"), grant("operator", "edge")]).await;
    let (web, edge) = (house.id("web").await, house.id("edge").await);
    assert_eq!(code(house.control.propose(&dan, edge).await), "forbidden");
    assert_eq!(code(house.control.propose(&fay, web).await), "forbidden");
    assert!(house.control.board(&dan, "web").await.unwrap().may_propose.is_ok());
    assert!(
        house.control.board(&dan, "edge").await.unwrap().may_propose.is_err(),
        "looking is everywhere"
    );
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&dan, "web", vec![edit]).await;

    let mine = ReviewsWanted { whose: Whose::ForMe, ..ReviewsWanted::default() };
    let waits = async |who: &Actor| house.control.reviews(who, &mine).await.unwrap().reviews.len();
    assert_eq!((waits(&fay).await, waits(&gus).await, waits(&dan).await), (1, 0, 0));
    let seen = house.control.review(&gus, id).await.unwrap();
    assert!(seen.may_judge.unwrap_err().contains("fay"), "who can is named");
    assert!(!seen.may_commit.unwrap_err().contains("gus"), "and nobody who can't");
    assert_eq!(
        code(house.control.judge(&gus, id, VerdictKind::Approve, String::new()).await),
        "not_a_reviewer"
    );
    assert_eq!(
        code(
            house.control.open_thread(&gus, id, engine::blueprint::Anchor::Whole, "?".into()).await
        ),
        "forbidden"
    );
    house.approve(&fay, id).await;
    assert_eq!(code(house.commit(&gus, id).await), "forbidden");
    assert_eq!(
        (waits(&fay).await, waits(&gus).await, waits(&dan).await),
        (1, 0, 1),
        "theirs to commit"
    );
    house.commit(&dan, id).await.unwrap();

    let why = || "because".to_owned();
    let noderole = house.noderole(1, "app").await;
    for refused in [
        house.control.hold(&gus, web, true, why()).await,
        house.control.prioritise(&gus, web, 3, why()).await,
        house.control.retry(&gus, noderole, why()).await,
        house.control.set_available(&gus, house.node(1).await, false, why()).await,
        house.control.switch(&dan, false, why()).await.map(drop),
        house.control.take_out_node(&dan, house.node(4).await, None).await,
        house.control.import_barclamps(Some(&dan), &Default::default()).await.map(drop),
    ] {
        assert_eq!(code(refused), "forbidden");
    }
    house.control.hold(&dan, web, true, why()).await.unwrap();
    house.control.set_available(&dan, house.node(1).await, false, why()).await.unwrap();
}

#[tokio::test]
async fn change_requires_permission_in_every_touched_deployment() {
    let house = House::new().await;
    let root = house.admin().await;
    let take = Edit::MoveNode(edit::MoveNode {
        node: house.node(1).await,
        deployment: house.id("edge").await,
    });
    let taken = house.submit(&house.ada, "edge", vec![take]).await;
    house.approve(&house.bo, taken).await;
    house.commit(&house.ada, taken).await.unwrap();
    let web_only = house.with(&root, "dan", &[grant("operator", "web")]).await;
    let judge_of_web = house.with(&root, "fay", &[grant("reviewer", "web")]).await;
    let both = [grant("reviewer", "web"), grant("reviewer", "edge")];
    let judge_of_both = house.with(&root, "gus", &both).await;
    let (web, n1) = (house.id("web").await, house.node(1).await);
    let (id, version) = house
        .propose(
            &web_only,
            "web",
            vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: web })],
        )
        .await;
    assert_eq!(
        code(house.control.submit(&web_only, id, version, "take it".into()).await),
        "forbidden"
    );
    let review = house.control.submit(&house.ada, id, version, "take it".into()).await.unwrap();
    let judge = async |who: &Actor| {
        house.control.judge(who, review, VerdictKind::Approve, String::new()).await
    };
    assert_eq!(code(judge(&judge_of_web).await), "not_a_reviewer");
    judge(&judge_of_both).await.unwrap();
    house.people.change_grants(&root, judge_of_both.person, &both[..1]).await.unwrap();
    assert_eq!(
        code(house.commit(&house.ada, review).await),
        "not_approved",
        "their word counts as far as they may now"
    );
    assert_eq!(code(house.commit(&web_only, review).await), "forbidden");
}

#[tokio::test]
async fn token_never_exceeds_person_and_never_reviews() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("operator", "web"), grant("reviewer", "")]).await;
    assert_eq!(code(house.token(&dan, &["reviewer"], None).await), "invalid");
    assert_eq!(code(house.token(&dan, &["admin"], None).await), "forbidden");
    assert_eq!(code(house.token(&dan, &["operator"], Some("edge")).await), "forbidden");
    assert_eq!(code(house.token(&dan, &[], None).await), "invalid");
    let (text, token) = house.token(&dan, &["operator", "viewer"], None).await.unwrap();
    assert!(text.starts_with("gantry_") && text.len() == 7 + 64, "{text}");
    let stored =
        "SELECT count(*) FROM token WHERE hash = sha256($1::bytea) AND last_used_at IS NOT NULL";
    let stored: i64 = sqlx::query_scalar(stored)
        .bind(text.as_bytes())
        .fetch_one(house.database.owner())
        .await
        .unwrap();
    assert_eq!(stored, 1, "as its hash, and its use was noted");
    let refused = token.require(Permission::Admin).unwrap_err();
    assert!(
        refused.detail.contains("Use a token that has it") && !refused.needs_admin,
        "no admin can give a token a permission: {refused:?}"
    );

    let edit = house.bind("web", 1, "app").await;
    let done = store::audit::run_with_token(
        token.token.as_ref().unwrap().id,
        house.submit(&token, "web", vec![edit]),
    );
    let id = done.await;
    let made = house.audit("review.submit").await;
    assert_eq!(
        made[0]["by_token"],
        token.token.as_ref().unwrap().id.to_string(),
        "the audit names it"
    );
    let edit = house.bind("edge", 2, "app").await;
    let others = house.submit(&house.ada, "edge", vec![edit]).await;
    let no = house.control.judge(&token, others, VerdictKind::Approve, String::new()).await;
    assert_eq!(code(no), "not_a_reviewer", "although its person may");
    assert!(house.control.review(&token, others).await.unwrap().may_judge.is_err());
    assert!(house.control.review(&dan, others).await.unwrap().may_judge.is_ok());
    let waits = ReviewsWanted { whose: Whose::ForMe, ..ReviewsWanted::default() };
    assert_eq!(house.control.reviews(&token, &waits).await.unwrap().reviews.len(), 0);
    assert_eq!(house.control.reviews(&dan, &waits).await.unwrap().reviews.len(), 1);
    house.approve(&house.bo, id).await;
    house.commit(&token, id).await.unwrap();
    assert_eq!(house.listed(&token, ReviewStateFilter::Committed).await.len(), 1);

    let wish = TokenRequest {
        name: "y".into(),
        days: 1,
        scopes: vec!["viewer".into()],
        deployment: None,
        person: None,
    };
    assert_eq!(code(house.people.make_token(&token, &wish).await), "in_person");
    let password = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    assert_eq!(code(house.people.set_password(&token, &password).await), "in_person");
    assert_eq!(code(house.people.end_other_sessions(&token).await), "in_person");
    assert_eq!(code(house.control.mark_viewed(&token, others, Vec::new()).await), "in_person");
    assert_eq!(
        code(house.control.mint_node_token(&token, house.node(1).await, "z".into(), 1).await),
        "in_person"
    );
    let root_itself = root_in_person(&house).await;
    for scopes in [&["admin"][..], &["viewer", "admin"]] {
        let refused = house
            .token(&root_itself, scopes, Some("web"))
            .await
            .expect_err("admin in a part of the tree");
        assert_eq!(refused.code, "invalid");
        assert!(
            refused
                .detail
                .starts_with("deployment: The permission admin always applies everywhere"),
            "{refused:?}"
        );
    }
    house.token(&root_itself, &["viewer"], Some("web")).await.expect("what is given in a part");
    let (_, root_token) =
        house.token(&root_in_person(&house).await, &["admin"], None).await.unwrap();
    assert_eq!(code(house.people.new_link(&root_token, dan.person).await), "in_person");
    assert_eq!(code(house.people.change_grants(&root_token, dan.person, &[]).await), "in_person");

    house.people.change_grants(&root, dan.person, &[grant("viewer", "")]).await.unwrap();
    let now = house.people.actor_of_token(&text).await.unwrap().unwrap();
    assert_eq!(
        code(house.control.propose(&now, house.id("web").await).await),
        "forbidden",
        "it has what they have now"
    );
    let edit = house.bind("web", 3, "still").await;
    assert_eq!(code(house.control.propose(&now, house.id("web").await).await), "forbidden");
    drop(edit);
    house.people.set_disabled(&root, dan.person, true).await.unwrap();
    assert_eq!(house.people.actor_of_token(&text).await.unwrap(), None, "dead at once");
    assert_eq!(house.people.can_still_view(&now).await, Ok(false), "and so are its streams");
    house.people.set_disabled(&root, dan.person, false).await.unwrap();
    assert_eq!(
        house.people.actor_of_token(&text).await.unwrap(),
        None,
        "it does not come back with its person"
    );
    assert_eq!(house.people.can_still_view(&root_token).await, Ok(true), "another's goes on");
    let disabled = house.audit("person.disable").await;
    assert_eq!(disabled[0]["name"], "dan");
    assert_eq!(disabled[0]["tokens"], 1, "{disabled:?}");
    assert_eq!(house.audit("person.enable").await, [serde_json::json!({"name": "dan"})]);

    let dan = house.come_in(&house.people.new_link(&root, dan.person).await.unwrap().link).await;
    let (text, again) = house.token(&dan, &["viewer"], None).await.expect("they make another one");
    let again = again.token.unwrap().id;
    assert_eq!(code(house.people.revoke_token(&house.ada, again).await), "not_found");
    house.people.revoke_token(&root, again).await.unwrap();
    assert_eq!(house.people.actor_of_token(&text).await.unwrap(), None);
}

#[tokio::test]
async fn disabled_service_account_loses_tokens_permanently() {
    let house = House::new().await;
    let root = house.admin().await;
    let wish = PersonRequest {
        name: "robot".into(),
        kind: AccountKind::Service,
        grants: vec![grant("viewer", "")],
    };
    let robot = house.people.add(&root, &wish).await.unwrap().id;
    let wish = TokenRequest {
        name: "x".into(),
        days: 1,
        scopes: vec!["viewer".into()],
        deployment: None,
        person: Some(robot),
    };
    let token = house.people.make_token(&root, &wish).await.unwrap().token;
    assert_eq!(house.people.one(&root, robot).await.unwrap().seen, None, "never here");
    assert!(house.people.actor_of_token(&token).await.unwrap().is_some());
    let seen = house.people.one(&root, robot).await.unwrap().seen;
    assert!(seen.is_some(), "a token is a way to be here");
    house.people.disable(None, robot).await.unwrap();
    house.people.set_disabled(&root, robot, false).await.unwrap();
    assert_eq!(
        house.people.one(&root, robot).await.unwrap().seen,
        seen,
        "also when the token is gone"
    );
    assert_eq!(house.people.actor_of_token(&token).await.unwrap(), None);
    assert_eq!(house.audit("person.disable").await[0]["tokens"], 1);
    assert!(
        house.people.tokens(&root, Some(robot)).await.unwrap()[0].revoked.is_some(),
        "and the list says so"
    );
}

#[tokio::test]
async fn deployment_id_in_grant_is_refused_with_name() {
    let house = House::new().await;
    let root = house.admin().await;
    let web = house.id("web").await.to_string();
    let wish = |deployment: &str| PersonRequest {
        name: "dan".into(),
        kind: AccountKind::Human,
        grants: vec![grant("operator", deployment)],
    };
    let refused = house.people.add(&root, &wish(&web)).await.unwrap_err();
    assert_eq!(
        (refused.status, refused.detail),
        (404, format!("deployment: {web} is the id of deployment web. Use its name: web."))
    );
    for nothing in ["wbe", "00000000-0000-4000-8000-00000000beef"] {
        let refused = house.people.add(&root, &wish(nothing)).await.unwrap_err();
        assert!(
            refused.detail.starts_with(&format!("Deployment {nothing} does not exist. See")),
            "{refused}"
        );
    }
    assert!(house.people.add(&root, &wish("web")).await.is_ok());
}

#[tokio::test]
async fn stream_ends_without_viewer_permission() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("viewer", ""), grant("operator", "web")]).await;
    let (_, all) = house.token(&dan, &["viewer", "operator"], None).await.unwrap();
    let (_, acts) = house.token(&dan, &["operator"], Some("web")).await.unwrap();
    let looks = async || {
        let mut answers = Vec::new();
        for actor in [&dan, &all, &acts] {
            answers.push(house.people.can_still_view(actor).await.unwrap());
        }
        answers
    };
    assert_eq!(looks().await, [true; 3]);
    house.people.change_grants(&root, dan.person, &[grant("viewer", "")]).await.unwrap();
    assert_eq!(
        looks().await,
        [true, true, false],
        "that token may operate at most, and nowhere any more"
    );
    house.people.change_grants(&root, dan.person, &[]).await.unwrap();
    assert_eq!(
        looks().await,
        [false; 3],
        "signed in, with a token that holds, and without a permission"
    );
    let now = house.people.sign_in_as_owner("dan").await.unwrap();
    let frame = house.control.frame(&now).await.unwrap();
    assert_eq!(
        (frame.me.name.as_str(), frame.execution, frame.cursor),
        ("dan", None, None),
        "nothing but who they are"
    );
    let frame = house.control.frame(&house.ada).await.unwrap();
    assert!(frame.execution == Some(true) && frame.cursor.is_some(), "{frame:?}");
    house.people.change_grants(&root, dan.person, &[grant("operator", "web")]).await.unwrap();
    assert_eq!(looks().await, [true; 3]);
}

async fn root_in_person(house: &House) -> Actor {
    house.people.sign_in_as_owner("root").await.unwrap()
}

#[tokio::test]
async fn token_list_has_valid_and_newest_invalid_tokens() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("operator", "web")]).await;
    house.token(&dan, &["viewer"], None).await.unwrap();
    let over = "INSERT INTO token (kind, hash, name, person_id, scopes, created_by, created_at, expires_at, revoked_at)
         SELECT kind, sha256(('over' || g)::bytea), 'over ' || g, person_id, scopes, created_by,
           created_at + make_interval(secs => g), expires_at, now()
         FROM token, generate_series(1, 150) g WHERE kind = 'api' AND name = 'x'";
    sqlx::query(over).execute(house.database.owner()).await.unwrap();
    let names = async |of: &Actor| -> Vec<String> {
        house
            .people
            .tokens(of, Some(dan.person))
            .await
            .unwrap()
            .into_iter()
            .map(|token| token.name)
            .collect()
    };
    let walked = async |sort: &str, valid: Option<bool>| -> Vec<String> {
        let order = TokensWanted { sort: sort.parse().unwrap(), valid, ..TokensWanted::default() };
        let (mut names, mut wanted) = (Vec::new(), order);
        loop {
            let page = house.people.token_page(&dan, &wanted).await.unwrap();
            assert!(page.tokens.len() <= api::listing::PAGE_SIZE);
            names.extend(page.tokens.into_iter().map(|token| token.name));
            wanted.before = page.next;
            if wanted.before.is_none() {
                return names;
            }
        }
    };
    let told = names(&dan).await;
    assert_eq!(told.len(), api::limits::LISTED_TOKENS);
    assert_eq!(
        (told[0].as_str(), told[1].as_str(), told[99].as_str()),
        ("x", "over 150", "over 52")
    );
    assert_eq!(walked("", None).await, told, "page by page it is the same");
    assert_eq!(
        (walked("", Some(true)).await, walked("", Some(false)).await.len()),
        (vec!["x".to_owned()], 99)
    );
    let by_name = walked("name", None).await;
    assert!(by_name.is_sorted() && by_name.len() == told.len(), "{by_name:?}");
    house.people.set_disabled(&root, dan.person, true).await.unwrap();
    assert_eq!(names(&root).await[0], "over 150", "its token was taken back with its person");
}

#[tokio::test]
async fn a_service_account_has_tokens_only() {
    let house = House::new().await;
    let root = house.admin().await;
    let wish = |grants: Vec<Grant>| PersonRequest {
        name: "ci".into(),
        kind: AccountKind::Service,
        grants,
    };
    assert_eq!(code(house.people.add(&root, &wish(vec![grant("reviewer", "")])).await), "invalid");
    assert_eq!(code(house.people.add(&root, &wish(vec![grant("admin", "")])).await), "invalid");
    assert_eq!(code(house.people.add(&house.ada, &wish(vec![])).await), "forbidden");
    let made = house.people.add(&root, &wish(vec![grant("operator", "web")])).await.unwrap();
    assert_eq!(made.link, None);
    assert_eq!(code(house.people.new_link(&root, made.id).await), "service");
    let link = house
        .people
        .create_sign_in_link(None, made.id, std::time::Duration::from_secs(60))
        .await
        .unwrap();
    assert!(
        house.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.is_err(),
        "no session for a program"
    );
    let for_it = TokenRequest {
        name: "ci".into(),
        days: 30,
        scopes: vec!["operator".into()],
        deployment: None,
        person: Some(made.id),
    };
    assert_eq!(code(house.people.make_token(&house.ada, &for_it).await), "forbidden");
    let another = TokenRequest { person: Some(house.ada.person), ..for_it.clone() };
    assert_eq!(
        code(house.people.make_token(&root, &another).await),
        "forbidden",
        "nobody is spoken for"
    );
    let token = house.people.make_token(&root, &for_it).await.unwrap();
    let ci = house.people.actor_of_token(&token.token).await.unwrap().unwrap();
    assert!(house.control.propose(&ci, house.id("web").await).await.is_ok());
    assert_eq!(code(house.control.propose(&ci, house.id("edge").await).await), "forbidden");
    assert_eq!(house.people.tokens(&root, Some(made.id)).await.unwrap().len(), 1);
    assert_eq!(code(house.people.tokens(&house.ada, Some(made.id)).await), "forbidden");
    let wanted = TokensWanted { person: Some(made.id), ..TokensWanted::default() };
    assert_eq!(code(house.people.token_page(&house.ada, &wanted).await), "forbidden");
}

#[tokio::test]
async fn password_is_set_with_link_then_changed() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("viewer", "")]).await;
    let wish = |old: &str, new: &str| PasswordRequest {
        old: (!old.is_empty()).then(|| Password::typed(old)),
        new: Password::typed(new),
    };
    assert_eq!(
        code(house.people.set_password(&dan, &wish("", "dan-dan-dan!")).await),
        "weak_password"
    );
    let session = house.people.set_password(&dan, &wish("", "vague otter lamp")).await.unwrap();
    let sign_in = async |name: &str, password: &str| {
        house
            .people
            .sign_in_by_password(name, Password::typed(password), &ClientInfo::default(), None)
            .await
    };
    assert_eq!(
        house.people.can_still_view(&dan).await,
        Ok(false),
        "the session before is another now"
    );
    let dan = house.people.actor_of_session(session.reveal()).await.unwrap().unwrap();
    let wrong = sign_in("dan", "vague otter lamb").await.unwrap_err();
    assert_eq!((wrong.status, wrong.code.as_str()), (401, "sign_in_wrong"));
    for (name, password) in
        [("nobody", "vague otter lamp"), ("ada", "vague otter lamp"), ("ada", ""), ("", "x")]
    {
        assert_eq!(sign_in(name, password).await.unwrap_err(), wrong, "the same answer: {name}");
    }
    let begun = sign_in(" Dan ", "vague otter lamp").await.unwrap();
    let other = house.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap();
    assert_eq!(
        code(house.people.set_password(&other, &wish("", "purple anvil rain")).await),
        "old_password"
    );
    assert_eq!(
        code(house.people.set_password(&dan, &wish("nonsense", "purple anvil rain")).await),
        "old_password"
    );
    let rotated = house
        .people
        .set_password(&other, &wish("vague otter lamp", "purple anvil rain"))
        .await
        .unwrap();
    assert_eq!(house.people.can_still_view(&dan).await, Ok(false), "other sessions end");
    assert!(
        house.people.actor_of_session(begun.session.reveal()).await.unwrap().is_none(),
        "this one is rotated"
    );
    let other = house.people.actor_of_session(rotated.reveal()).await.unwrap().unwrap();
    assert_eq!(
        house.people.sessions(&other).await.unwrap().iter().map(|s| s.current).collect::<Vec<_>>(),
        [true]
    );
    assert!(sign_in("dan", "vague otter lamp").await.is_err());

    // A forgotten password: an admin's link sets a new one without the old one.
    let first = house.people.new_link(&root, dan.person).await.unwrap();
    let link = house.people.new_link(&root, dan.person).await.unwrap();
    let voided = house
        .people
        .sign_in(first.link.rsplit('=').next().unwrap(), &ClientInfo::default(), None)
        .await;
    assert_eq!(code(voided), "sign_in_expired");
    let again = house.come_in(&link.link).await;
    house.people.set_password(&again, &wish("", "seven slow candles")).await.unwrap();
    sign_in("dan", "seven slow candles").await.unwrap();
    let actions: Vec<Value> = house
        .audit("password.set")
        .await
        .into_iter()
        .chain(house.audit("password.change").await)
        .collect();
    assert_eq!(actions.len(), 3);
    let all: String = sqlx::query_scalar("SELECT string_agg(a::text, ' ') FROM audit a")
        .fetch_one(house.database.owner())
        .await
        .unwrap();
    assert!(!all.contains("otter") && !all.contains("anvil") && !all.contains("candles"));
}

#[tokio::test]
async fn guessing_is_throttled_per_name_but_links_work() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("viewer", "")]).await;
    let new = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    house.people.set_password(&dan, &new).await.unwrap();
    let from = |n: u8| ClientInfo {
        address: Some(std::net::IpAddr::from([192, 0, 2, n])),
        user_agent: String::new(),
    };
    let attempt = async |name: &str, password: &str, n: u8| {
        house
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
            "whether there is one or not"
        );
    }
    let link = house.people.new_link(&root, dan.person).await.unwrap();
    house.come_in(&link.link).await;
    for n in 0..8 {
        assert_eq!(code(attempt(&format!("n{n}"), "wrong", 7).await), "sign_in_wrong");
    }
    assert_eq!(
        code(attempt("other", "wrong", 7).await),
        "too_many_attempts",
        "by address: two before, eight now"
    );
}

#[tokio::test]
async fn sessions_that_end_each_other_leave_one() {
    for all in [true, false] {
        let house = House::new().await;
        let root = house.admin().await;
        let one = house.with(&root, "dan", &[grant("viewer", "")]).await;
        let link = house.people.new_link(&root, one.person).await.unwrap();
        let two = house.come_in(&link.link).await;
        let seen = house.people.sessions(&one).await.unwrap();
        let named = |this: bool| seen.iter().find(|session| session.current == this).unwrap().id;
        let end = async |by: &Actor, other: uuid::Uuid| match all {
            true => house.people.end_other_sessions(by).await.map(drop),
            false => house.people.end_session(by, other).await,
        };
        let mut held = house.database.app().begin().await.unwrap();
        let lock = "SELECT FROM person WHERE name = 'dan' FOR NO KEY UPDATE";
        sqlx::query(lock).execute(&mut *held).await.unwrap();
        let between = async {
            house.so_many_wait(2).await;
            held.commit().await.unwrap();
        };
        let (first, second, ()) =
            tokio::join!(end(&one, named(false)), end(&two, named(true)), between);
        let answers = [first, second];
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        let refused = answers.into_iter().find_map(Result::err).unwrap();
        assert_eq!(refused.code, "signed_out", "its session was ended first");
    }
}

#[tokio::test]
async fn database_outage_is_not_a_failed_attempt() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("viewer", "")]).await;
    let new = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    house.people.set_password(&dan, &new).await.unwrap();
    let sign_in = async |password: &str| {
        house
            .people
            .sign_in_by_password("dan", Password::typed(password), &ClientInfo::default(), None)
            .await
    };
    let rename = async |sql: &'static str| {
        sqlx::query(sql).execute(house.database.owner()).await.unwrap();
    };
    rename("ALTER TABLE account RENAME TO account_away").await;
    for _ in 0..12 {
        assert!(sign_in("vague otter lamp").await.unwrap_err().status >= 500);
    }
    rename("ALTER TABLE account_away RENAME TO account").await;
    assert_eq!(
        code(sign_in("wrong").await),
        "sign_in_wrong",
        "neither the name nor the address has to wait"
    );
    sign_in("vague otter lamp").await.unwrap();
}

#[tokio::test]
async fn gaining_reviewer_signs_out_and_last_admin_stays() {
    let house = House::new().await;
    let root = house.admin().await;
    let dan = house.with(&root, "dan", &[grant("viewer", "")]).await;
    house.people.change_grants(&root, dan.person, &[grant("operator", "")]).await.unwrap();
    assert_eq!(house.people.can_still_view(&dan).await, Ok(true));
    let view = house
        .people
        .change_grants(&root, dan.person, &[grant("reviewer", "web"), grant("operator", "")])
        .await;
    assert_eq!(view.unwrap().grants, [grant("operator", ""), grant("reviewer", "web")]);
    assert_eq!(house.people.can_still_view(&dan).await, Ok(false));
    assert_eq!(
        code(house.people.change_grants(&root, dan.person, &[grant("admin", "web")]).await),
        "invalid"
    );
    assert_eq!(
        code(house.people.change_grants(&root, dan.person, &[grant("operator", "nowhere")]).await),
        "not_found"
    );
    for empty in ["", " ", "\0"] {
        let more_than_meant =
            Grant { permission: "operator".into(), deployment: Some(empty.into()) };
        assert_eq!(
            code(house.people.change_grants(&root, dan.person, &[more_than_meant]).await),
            "invalid"
        );
        assert_eq!(code(house.token(&root, &["viewer"], Some(empty)).await), "invalid");
    }
    let version = async || house.people.one(&root, dan.person).await.unwrap().version;
    let before = version().await;
    let on = |version| SeenPerson { person: dan.person, version: Some(version) };
    let inside = [grant("operator", ""), grant("reviewer", "edge")];
    let view = house.people.change_grants(&root, on(before), &inside).await.unwrap();
    assert_eq!(
        (view.version, version().await),
        (before + 1, before + 1),
        "in a part of the tree, too"
    );
    assert_eq!(code(house.people.change_grants(&root, on(before), &[]).await), "changed_meanwhile");
    house.people.change_grants(&root, on(before + 1), &inside).await.unwrap();
    assert_eq!(version().await, before + 1, "the same is no change");
    let everywhere = house
        .people
        .change_grants(&root, dan.person, &[grant("operator", "system")])
        .await
        .unwrap();
    assert_eq!(everywhere.grants, [grant("operator", "")], "all of the tree is everywhere");

    let last =
        house.people.change_grants(&root, root.person, &[grant("viewer", "")]).await.unwrap_err();
    assert_eq!((last.code.as_str(), last.status), ("last_admin", 409));
    assert_eq!(last.detail, "Account root is the last admin. Make another person an admin first.");
    assert_eq!(code(house.people.set_disabled(&root, root.person, true).await), "own_account");
    house.people.change_grants(&root, dan.person, &[grant("admin", "")]).await.unwrap();
    let dan = house.people.sign_in_as_owner("dan").await.unwrap();
    let (one, two) = tokio::join!(
        house.people.set_disabled(&dan, root.person, true),
        house.people.set_disabled(&root, dan.person, true)
    );
    assert!(
        one.is_ok() != two.is_ok(),
        "of two who take each other out one stays: {one:?} {two:?}"
    );
}

#[tokio::test]
async fn signing_in_ends_the_old_session() {
    let house = House::new().await;
    let link = async || {
        house
            .people
            .create_sign_in_link(None, house.ada.person, std::time::Duration::from_secs(60))
            .await
            .unwrap()
    };
    let first = house
        .people
        .sign_in(link().await.reveal(), &ClientInfo::default(), None)
        .await
        .unwrap()
        .session;
    let second = house
        .people
        .sign_in(link().await.reveal(), &ClientInfo::default(), Some(first.reveal()))
        .await
        .unwrap()
        .session;
    assert!(house.people.actor_of_session(first.reveal()).await.unwrap().is_none());
    assert!(house.people.actor_of_session(second.reveal()).await.unwrap().is_some());
}
