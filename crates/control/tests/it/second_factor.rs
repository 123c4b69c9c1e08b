//! The second factor of people: presenting, setting up, removing and resetting it.

use api::Problem;
use api::people::{Password, PasswordRequest};
use api::second_factor::{Code, FactorRequest};
use authenticator::Authenticator;
use control::people::{Actor, ClientInfo, People, Permission};
use engine::gate::{Policy, VerdictKind};
use passkeys::{RelyingParty, register, registration};
use serde_json::{Value, json};
use store::people::passkeys::NewPasskey;
use totp_rs::{Builder, Secret};

use crate::installation::Installation;

const ORIGIN: &str = "http://localhost:7780";
const PASSWORD: &str = "vague otter lamp";

fn code_of(problem: Result<impl std::fmt::Debug, Problem>) -> String {
    problem.expect_err("a refusal").code
}

fn factor_request(code: &str) -> FactorRequest {
    FactorRequest { code: Some(Code::entered(code)), answer: None }
}

fn answer(answer: Value) -> FactorRequest {
    FactorRequest { code: None, answer: Some(answer) }
}

/// The code of a secret, `steps` time steps from now.
fn code(secret: &str, steps: i64) -> String {
    let app = Builder::new().with_secret(Secret::try_from_base32(secret).unwrap()).build().unwrap();
    app.generate(seconds_since_1970().saturating_add_signed(30 * steps)).to_string()
}

fn seconds_since_1970() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

impl Installation {
    async fn post_password(&self, actor: &Actor) {
        let link = self
            .people
            .create_first_link(actor.person, std::time::Duration::from_secs(60))
            .await
            .unwrap();
        let begun = self.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.unwrap();
        let first = self.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap();
        self.people
            .set_password(&first, &PasswordRequest { old: None, new: Password::typed(PASSWORD) })
            .await
            .unwrap();
    }

    /// A session with password sign-in, and its token.
    async fn by_password(&self, name: &str) -> (Actor, String) {
        let password = Password::typed(PASSWORD);
        let begun = self
            .people
            .sign_in_by_password(name, password, &ClientInfo::default(), None)
            .await
            .unwrap();
        let token = begun.session.reveal().to_owned();
        (self.now(&token).await, token)
    }

    async fn now(&self, session: &str) -> Actor {
        self.people.actor_of_session(session).await.unwrap().unwrap()
    }

    async fn set_up(&self, actor: &Actor) -> String {
        // Tests use codes of neighboring time steps, so no new one may begin in between.
        let left = 30 - seconds_since_1970() % 30;
        if left < 10 {
            tokio::time::sleep(std::time::Duration::from_secs(left)).await;
        }
        let secret = self.people.start_totp(actor).await.unwrap().secret;
        self.people
            .confirm_totp(actor, &Code::entered(code(&secret, -1)), &ClientInfo::default())
            .await
            .unwrap();
        secret
    }

    async fn registers(&self, actor: &Actor) -> Authenticator {
        let (authenticator, site) = (Authenticator::new(), RelyingParty::of(ORIGIN).unwrap());
        let (options, state) = registration(&site, actor.person, "bo", &[]).unwrap();
        let made = register(&site, &state, &authenticator.create(ORIGIN, &options)).unwrap();
        let new = NewPasskey {
            person: actor.person,
            name: "key".into(),
            rp_id: site.rp_id,
            origin: site.origin,
            credential_id: made.credential_id,
            credential: made.credential,
            counter: made.counter,
        };
        let mut owner = self.database.owner().acquire().await.unwrap();
        store::people::passkeys::insert(&mut owner, &new).await.unwrap().unwrap();
        authenticator
    }

    async fn present(&self, actor: &Actor, request: &FactorRequest) -> Result<(), Problem> {
        let site = RelyingParty::of(ORIGIN).unwrap();
        self.people.present_factor(actor, Some(&site), request, &ClientInfo::default()).await
    }
}

#[tokio::test]
async fn session_by_password_needs_the_code() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.post_password(&installation.bo).await;
    let (bo, session) = installation.by_password("bo").await;
    assert!(!bo.needs_factor(), "no factor is set up and the policy requires none");
    let secret = installation.set_up(&bo).await;
    assert!(
        !installation.now(&session).await.needs_factor(),
        "setting up the app counts as presenting the factor"
    );

    let (bo, session) = installation.by_password("bo").await;
    assert!(bo.needs_factor() && bo.permissions.is_empty());
    assert_eq!(
        code_of(
            installation.control.give_verdict(&bo, id, VerdictKind::Approve, String::new()).await
        ),
        "second_factor_needed"
    );
    assert_eq!(code_of(installation.control.review(&bo, id).await), "second_factor_needed");
    assert_eq!(code_of(installation.people.end_other_sessions(&bo).await), "second_factor_needed");
    assert_eq!(
        code_of(installation.people.start_totp(&bo).await),
        "second_factor_needed",
        "adding another app needs the second factor"
    );
    assert_eq!(code_of(installation.people.remove_totp(&bo).await), "second_factor_needed");
    let password = PasswordRequest {
        old: Some(Password::typed(PASSWORD)),
        new: Password::typed("purple anvil rain"),
    };
    assert_eq!(
        code_of(installation.people.set_password(&bo, &password).await),
        "second_factor_needed"
    );
    assert!(!installation.people.can_still_view(&bo).await.unwrap());
    let state = installation.people.second_factor(&bo).await.unwrap();
    assert!(state.totp && state.needed && !state.required && state.passkeys == 0);

    assert_eq!(code_of(installation.present(&bo, &factor_request("12345")).await), "invalid");
    assert_eq!(code_of(installation.present(&bo, &FactorRequest::default()).await), "invalid");
    assert_eq!(
        code_of(installation.present(&bo, &factor_request(&code(&secret, -1))).await),
        "code_used",
        "the code was used to confirm the app"
    );
    installation.present(&bo, &factor_request(&code(&secret, 0))).await.unwrap();
    let now = installation.now(&session).await;
    assert!(!now.needs_factor() && now.may(Permission::Reviewer));
    installation.approve(&now, id).await;

    installation.people.remove_totp(&now).await.unwrap();
    assert!(!installation.by_password("bo").await.0.needs_factor());
    let sql = "SELECT action FROM audit WHERE source = 'application' AND action ~ 'factor|totp' ORDER BY id";
    let actions: Vec<String> =
        sqlx::query_scalar(sql).fetch_all(installation.database.owner()).await.unwrap();
    assert_eq!(actions, ["totp.confirm", "factor.present", "totp.remove"]);
    let all = "SELECT string_agg(a::text, ' ') FROM audit a";
    let all: String =
        sqlx::query_scalar(all).fetch_one(installation.database.owner()).await.unwrap();
    let bytes = Secret::try_from_base32(&secret).unwrap();
    let hex: String = bytes.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!all.contains(&secret) && !all.contains(&hex));
}

#[tokio::test]
async fn passkey_is_presented_once_per_request() {
    let installation = Installation::new().await;
    installation.post_password(&installation.bo).await;
    let (site, key) =
        (RelyingParty::of(ORIGIN).unwrap(), installation.registers(&installation.bo).await);
    let (bo, session) = installation.by_password("bo").await;
    assert!(bo.needs_factor());
    let none = RelyingParty::of("https://gantry.example.com").unwrap();
    assert_eq!(code_of(installation.people.factor_options(&bo, &none).await), "no_passkey");
    let options = installation.people.factor_options(&bo, &site).await.unwrap().options;
    let signed = key.get(ORIGIN, &options);
    let foreign = installation.registers(&installation.cy).await;
    let of_cy = foreign.get(ORIGIN, &options);
    assert_eq!(code_of(installation.present(&bo, &answer(of_cy)).await), "passkey_rejected");
    assert_eq!(
        code_of(installation.present(&bo, &answer(signed)).await),
        "no_passkey_request",
        "a request is used up by its answer"
    );
    let options = installation.people.factor_options(&bo, &site).await.unwrap().options;
    let old = "UPDATE session SET ceremony = jsonb_set(ceremony, '{second_factor,at}', '1')";
    sqlx::query(old).execute(installation.database.owner()).await.unwrap();
    assert_eq!(
        code_of(installation.present(&bo, &answer(key.get(ORIGIN, &options))).await),
        "no_passkey_request",
        "the request is too old"
    );
    assert_eq!(code_of(installation.present(&bo, &answer(json!({ "id": "x" }))).await), "invalid");
    let options = installation.people.factor_options(&bo, &site).await.unwrap().options;
    installation.present(&bo, &answer(key.get(ORIGIN, &options))).await.unwrap();
    assert!(!installation.now(&session).await.needs_factor());
}

#[tokio::test]
async fn copied_passkey_is_rejected() {
    let installation = Installation::new().await;
    installation.post_password(&installation.bo).await;
    let (site, key) =
        (RelyingParty::of(ORIGIN).unwrap(), installation.registers(&installation.bo).await);
    sqlx::query("UPDATE passkey SET counter = 7")
        .execute(installation.database.owner())
        .await
        .unwrap();
    let (bo, session) = installation.by_password("bo").await;
    let options = installation.people.factor_options(&bo, &site).await.unwrap().options;
    assert_eq!(
        code_of(installation.present(&bo, &answer(key.get(ORIGIN, &options))).await),
        "passkey_rejected"
    );
    assert!(installation.now(&session).await.needs_factor());
}

#[tokio::test]
async fn policy_forces_setup() {
    let installation =
        Installation::under(Policy { second_factor: true, ..Policy::default() }).await;
    installation.post_password(&installation.bo).await;
    let (bo, session) = installation.by_password("bo").await;
    assert!(bo.needs_factor());
    let (thief, _) = installation.by_password("bo").await;
    let state = installation.people.second_factor(&bo).await.unwrap();
    assert!(state.required && state.needed && !state.any());
    let page = installation.people.factor_page(&bo).await.unwrap();
    assert_eq!((page.person.as_str(), page.set_up), ("bo", None));
    let made = installation.people.start_totp(&bo).await.unwrap();
    assert_eq!(
        installation.people.factor_page(&bo).await.unwrap().set_up,
        Some(made.clone()),
        "pages without scripts can show the secret"
    );
    assert_eq!(
        installation.people.factor_page(&thief).await.unwrap().set_up,
        None,
        "another session cannot see the secret"
    );
    let confirm = async |actor: &Actor, steps| {
        installation
            .people
            .confirm_totp(actor, &Code::entered(code(&made.secret, steps)), &ClientInfo::default())
            .await
    };
    assert_eq!(code_of(confirm(&thief, 0).await), "no_totp");
    assert_eq!(code_of(confirm(&bo, 5).await), "code_wrong");
    confirm(&bo, 0).await.unwrap();
    let bo = installation.now(&session).await;
    assert!(!bo.needs_factor());
    assert_eq!(
        installation.people.factor_page(&bo).await.unwrap().set_up,
        None,
        "the secret is not shown again"
    );
    assert_eq!(code_of(installation.people.start_totp(&bo).await), "totp_set");
    assert_eq!(code_of(installation.people.start_totp(&thief).await), "second_factor_needed");
    installation.people.remove_totp(&bo).await.unwrap();
    assert!(installation.now(&session).await.needs_factor(), "the policy requires another factor");
}

#[tokio::test]
async fn wrong_codes_are_throttled() {
    let installation = Installation::new().await;
    installation.post_password(&installation.bo).await;
    let (bo, _) = installation.by_password("bo").await;
    let secret = installation.set_up(&bo).await;
    // A server with its own counters.
    let people = People::over(store::Store::over(installation.database.app().clone()));
    let (bo, session) = installation.by_password("bo").await;
    let from =
        |n: u8| ClientInfo { address: Some([192, 0, 2, n].into()), user_agent: String::new() };
    let present = async |n: u8, code: &str| {
        people.present_factor(&bo, None, &factor_request(code), &from(n)).await
    };
    let right = code(&secret, 0);
    let wrong = if right == "000000" { "000001" } else { "000000" };
    for n in 0..10 {
        assert_eq!(code_of(present(n, wrong).await), "code_wrong");
        let password = Password::typed(PASSWORD);
        people
            .sign_in_by_password("bo", password, &from(99), None)
            .await
            .expect("a sign-in by password");
    }
    let refused = present(20, &right).await.expect_err("a refusal");
    assert_eq!((refused.status, refused.code.as_str()), (429, "too_many_attempts"));
    assert!(installation.now(&session).await.needs_factor());
    let cy = installation.cy.clone();
    for _ in 0..10 {
        let _ = people.present_factor(&cy, None, &factor_request("000000"), &from(30)).await;
    }
    assert_eq!(
        code_of(people.present_factor(&cy, None, &factor_request("000000"), &from(31)).await),
        "no_totp",
        "a person without an app is not throttled"
    );
}

#[tokio::test]
async fn admin_resets_the_factor_of_another_person() {
    let installation = Installation::new().await;
    installation.post_password(&installation.bo).await;
    let (bo, session) = installation.by_password("bo").await;
    installation.set_up(&bo).await;
    installation.registers(&installation.bo).await;
    assert_eq!(
        installation
            .people
            .reset_factor(Some(&installation.ada), bo.person)
            .await
            .expect_err("a person who is not an admin")
            .status,
        403
    );
    let sql = "UPDATE person SET permissions = permissions || '{admin}' WHERE name = 'ada'";
    sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    let ada = installation.people.sign_in_as_owner("ada").await.unwrap();
    assert_eq!(
        code_of(installation.people.reset_factor(Some(&ada), ada.person).await),
        "own_account"
    );
    installation.people.reset_factor(Some(&ada), bo.person).await.unwrap();
    assert_eq!(
        installation.people.actor_of_session(&session).await.unwrap(),
        None,
        "the sessions ended"
    );
    assert!(!installation.by_password("bo").await.0.needs_factor());
    let details = installation.people.details(&ada, bo.person).await.unwrap();
    assert_eq!(details.access_changes[0].kind, "factor_removed");
    assert_eq!(
        details.approvals_limited[0].admin, "ada",
        "the admin who may know the password is named"
    );

    let (bo, _) = installation.by_password("bo").await;
    installation.set_up(&bo).await;
    installation.people.reset_factor(None, bo.person).await.unwrap();
    assert!(!installation.by_password("bo").await.0.needs_factor());
    let passkeys = "SELECT count(*) FROM passkey WHERE revoked_at IS NULL";
    let passkeys: i64 =
        sqlx::query_scalar(passkeys).fetch_one(installation.database.owner()).await.unwrap();
    assert_eq!(passkeys, 0);
    let detail =
        "SELECT detail FROM audit WHERE action = 'person.reset_factor' ORDER BY id LIMIT 1";
    let detail: Value =
        sqlx::query_scalar(detail).fetch_one(installation.database.owner()).await.unwrap();
    assert_eq!(
        detail,
        json!({ "name": "bo", "totp": true, "passkeys": 1, "sessions": detail["sessions"] })
    );
}
