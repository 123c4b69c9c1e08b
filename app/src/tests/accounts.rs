//! A fake of the accounts for the settings pages. It serves reads and refuses everything else as
//! not found.

use api::people::{
    AccessChangeView, AccessLimitView, AccountKind, CreatedPerson, CreatedToken, EndedSessions,
    Grant, MyAccount, OneTimeLink, PasskeyOptions, PasskeyRequest, PasskeyView, PasswordRequest,
    PeopleQuery, PersonDetails, PersonPage, PersonRequest, PersonView, Signature, SignatureRequest,
    TokenRequest, TokenView,
};
use api::second_factor::{FactorOptions, FactorRequest, SecondFactor, SecondFactorPage, TotpSetup};
use api::{At, Problem};
use control::people::{ClientInfo, PersonAtVersion, Token};
use engine::ids::{PasskeyId, PersonId};
use passkeys::RelyingParty;
use uuid::Uuid;

use super::fake::{Actor, Fake};
use super::serve::get;

/// Two people, one of them disabled, and a service account.
pub fn some() -> Vec<PersonView> {
    let account = |n: u128, name: &str, kind: AccountKind, disabled: bool| PersonView {
        id: PersonId(Uuid::from_u128(n)),
        name: name.into(),
        kind,
        disabled,
        grants: vec![Grant { permission: "operator".into(), deployment: Some("web".into()) }],
        password: kind == AccountKind::Human,
        last_seen: None,
        created: At(1_795_248_902_000),
        version: 1,
    };
    vec![
        account(1, "ada", AccountKind::Human, false),
        account(2, "bo", AccountKind::Human, true),
        account(3, "ci", AccountKind::Service, false),
    ]
}

/// A session that has completed its second factor.
pub fn factor() -> SecondFactorPage {
    SecondFactorPage { person: "ada".into(), state: SecondFactor::default(), set_up: None }
}

/// A confirmed and an unconfirmed passkey.
pub fn passkeys() -> Vec<PasskeyView> {
    let passkey = |n: u128, name: &str, confirmed: bool| PasskeyView {
        id: PasskeyId(Uuid::from_u128(n)),
        name: name.into(),
        host: "gantry.example".into(),
        fingerprint: format!("000{n} 1111 2222 3333 4444"),
        confirmed,
        confirmed_by: confirmed.then(|| "root".to_owned()),
        confirmer_revoked: confirmed.then_some(At(1_795_335_302_000)),
        created: At(1_795_248_902_000),
        used: None,
    };
    vec![passkey(1, "Laptop", true), passkey(2, "Phone", false)]
}

fn none() -> Problem {
    Problem::not_found("This item does not exist in the test.")
}

impl Fake {
    pub async fn mine(&self, _: &Actor) -> Result<MyAccount, Problem> {
        let person = self.read(|world| world.people.first().cloned())?.ok_or_else(none)?;
        let permissions = self.read(|world| world.permissions.clone())?;
        Ok(MyAccount {
            passkeys: self.read(|world| world.passkeys.clone())?,
            second_factor: SecondFactor::default(),
            person,
            permissions,
            token: None,
            requires_old_password: true,
            sessions: Vec::new(),
            notices: Vec::new(),
            password_needed: false,
        })
    }
    pub async fn tokens(&self, _: &Actor, _: Option<PersonId>) -> Result<Vec<TokenView>, Problem> {
        Ok(Vec::new())
    }
    pub async fn list(&self, _: &Actor, query: &PeopleQuery) -> Result<PersonPage, Problem> {
        self.read(|world| {
            let fits = |person: &&PersonView| {
                person.name.contains(&query.filter)
                    && query.kind.is_none_or(|kind| kind == person.kind)
                    && query.disabled.is_none_or(|disabled| disabled == person.disabled)
            };
            PersonPage { people: world.people.iter().filter(fits).cloned().collect(), next: None }
        })
    }
    pub async fn person_named(&self, _: &Actor, text: &str) -> Result<PersonId, Problem> {
        let found = self.read(|world| {
            let mut people = world.people.iter();
            people.find(|person| person.name == text).map(|person| person.id)
        })?;
        found.or_else(|| text.parse().ok()).ok_or_else(|| {
            Problem::not_found(format!("Person {text} does not exist. See the list of people."))
        })
    }
    pub async fn details(&self, _: &Actor, id: PersonId) -> Result<PersonDetails, Problem> {
        let person = self
            .read(|world| world.people.iter().find(|person| person.id == id).cloned())?
            .ok_or_else(none)?;
        let change = |kind: &str, by: Option<&str>| AccessChangeView {
            kind: kind.into(),
            permission: None,
            deployment: None,
            by: by.map(str::to_owned),
            at: At(1_795_248_902_000),
            confirmed_by: None,
            confirmed_at: None,
        };
        let limited = AccessLimitView { admin: "root".into(), until: At(1_795_335_302_000) };
        Ok(PersonDetails {
            person,
            access_changes: vec![change("reset", Some("root")), change("created", None)],
            approvals_limited: if id == PersonId(Uuid::from_u128(1)) {
                vec![limited]
            } else {
                Vec::new()
            },
            passkeys: self.read(|world| world.passkeys.clone())?,
        })
    }
    pub async fn factor_page(&self, _: &Actor) -> Result<SecondFactorPage, Problem> {
        self.read(|world| world.factor.clone())
    }
    pub async fn reset_factor(&self, _: Option<&Actor>, _: PersonId) -> Result<(), Problem> {
        Err(none())
    }
    pub async fn add(&self, _: &Actor, _: &PersonRequest) -> Result<CreatedPerson, Problem> {
        Err(none())
    }
    pub async fn change_grants(
        &self,
        _: &Actor,
        _: PersonAtVersion,
        _: &[Grant],
    ) -> Result<PersonView, Problem> {
        Err(none())
    }
    pub async fn set_disabled(&self, _: &Actor, _: PersonId, _: bool) -> Result<(), Problem> {
        Err(none())
    }
    pub async fn confirm(&self, _: &Actor, _: PersonId) -> Result<PersonDetails, Problem> {
        Err(none())
    }
    pub async fn passkey_options(
        &self,
        _: &Actor,
        _: &RelyingParty,
    ) -> Result<PasskeyOptions, Problem> {
        Err(none())
    }
    pub async fn register_passkey(
        &self,
        _: &Actor,
        _: &RelyingParty,
        _: &PasskeyRequest,
    ) -> Result<PasskeyView, Problem> {
        Err(none())
    }
    pub async fn revoke_passkey(&self, _: &Actor, _: PasskeyId) -> Result<(), Problem> {
        Err(none())
    }
    pub async fn confirmation_options(
        &self,
        _: &Actor,
        _: &RelyingParty,
        _: PasskeyId,
    ) -> Result<SignatureRequest, Problem> {
        Err(none())
    }
    pub async fn confirm_passkey(
        &self,
        _: &Actor,
        _: PasskeyId,
        _: &Signature,
    ) -> Result<PasskeyView, Problem> {
        Err(none())
    }
    pub async fn dismiss_notices(&self, _: &Actor) -> Result<(), Problem> {
        Err(none())
    }
    pub async fn new_link(&self, _: &Actor, _: PersonId) -> Result<OneTimeLink, Problem> {
        Err(none())
    }
    pub async fn set_password(&self, _: &Actor, _: &PasswordRequest) -> Result<Token, Problem> {
        Err(none())
    }
    pub async fn factor_options(
        &self,
        _: &Actor,
        _: &RelyingParty,
    ) -> Result<FactorOptions, Problem> {
        Err(none())
    }
    pub async fn present_factor(
        &self,
        _: &Actor,
        _: Option<&RelyingParty>,
        _: &FactorRequest,
        _: &ClientInfo,
    ) -> Result<(), Problem> {
        Err(none())
    }
    pub async fn end_session(&self, _: &Actor, _: Uuid) -> Result<(), Problem> {
        Err(none())
    }
    pub async fn end_other_sessions(&self, _: &Actor) -> Result<EndedSessions, Problem> {
        Err(none())
    }
    pub async fn create_token(&self, _: &Actor, _: &TokenRequest) -> Result<CreatedToken, Problem> {
        Err(none())
    }
    pub async fn revoke_token(&self, _: &Actor, _: Uuid) -> Result<(), Problem> {
        Err(none())
    }
}

#[tokio::test]
async fn people_and_service_accounts_have_separate_lists() {
    let fake = Fake::new(|_| {});
    let [ada, bo, ci] =
        ["ada", "bo", "ci"].map(|name| format!("href=\"{}\"", crate::addresses::person(name)));
    let people = get(&fake, "/settings/people").await;
    people.assert_contains(&[&ada, &bo, "disabled", "operator in web", ">password<", "kind=human"]);
    people.assert_lacks(&[&ci]);
    let programs = get(&fake, "/settings/services").await;
    programs.assert_contains(&[&ci, ">tokens<", "kind=service"]);
    programs.assert_lacks(&[&ada]);
    let out = get(&fake, "/settings/people?disabled=true").await;
    out.assert_contains(&[&bo]);
    out.assert_lacks(&[&ada]);
    let fresh = Fake::new(|world| world.people.clear());
    get(&fresh, "/settings/services")
        .await
        .assert_contains(&["No accounts yet", "Add a service account"]);
}

#[tokio::test]
async fn limited_approvals_offer_a_confirmation() {
    let fake = Fake::new(|_| {});
    let [ada, bo] = ["ada", "bo"].map(crate::addresses::person);
    let limited = get(&fake, &ada).await;
    limited.assert_contains(&[
        "Access from",
        "<b>root<",
        "approvals count on changes of the other",
        "Confirm access",
    ]);
    limited.assert_contains(&["password set with a sign-in link", "the owner of the installation"]);
    get(&fake, &bo).await.assert_lacks(&["Confirm access"]);
}

#[tokio::test]
async fn second_factor_page_accepts_code_or_passkey() {
    let state = SecondFactor { totp: true, passkeys: 1, required: false, needed: true };
    let fake = Fake::new(|world| world.factor.state = state);
    let page = get(&fake, "/second-factor?next=%2Fruns").await;
    page.assert_contains(&[
        "Signed in as",
        "autocomplete=\"one-time-code\"",
        "inputmode=\"numeric\"",
        "for=\"code\"",
        "Use a passkey",
    ]);
    page.assert_contains(&[
        "value=\"/runs\"",
        "value=\"present\"",
        "action=\"/sign-out\"",
        "An admin can reset your second factor",
    ]);
    page.assert_lacks(&["Set up an authenticator app", "<nav"]);
    let wrong = get(&fake, "/second-factor?problem=wrong&next=//evil.example").await;
    assert_eq!(wrong.status, 403);
    wrong.assert_contains(&["role=\"alert\"", "Wrong code", "value=\"/\""]);
    wrong.assert_lacks(&["evil.example\""]);
}

#[tokio::test]
async fn second_factor_page_sets_up_an_app() {
    let needed = SecondFactor { required: true, needed: true, ..SecondFactor::default() };
    let fake = Fake::new(|world| world.factor.state = needed);
    let page = get(&fake, "/second-factor").await;
    page.assert_contains(&[
        "The policy requires a second factor",
        "Set up an authenticator app",
        "value=\"start\"",
    ]);
    page.assert_contains(&[
        "Or register a passkey",
        "for=\"passkey-name\"",
        "Passkeys need JavaScript",
    ]);
    page.assert_lacks(&["one-time-code", "Use a passkey"]);
    let made = TotpSetup {
        secret: "ABCDEFGHIJKL".into(),
        uri: "otpauth://totp/Gantry:ada?secret=ABCDEFGHIJKL".into(),
    };
    let fake = Fake::new(|world| {
        world.factor = SecondFactorPage { state: needed, set_up: Some(made), ..factor() }
    });
    let page = get(&fake, "/second-factor").await;
    page.assert_contains(&[
        "ABCD EFGH IJKL",
        "href=\"otpauth://totp/Gantry:ada?secret=ABCDEFGHIJKL\"",
        "value=\"confirm\"",
    ]);
    let fake = Fake::new(|world| world.factor.state.totp = true);
    let page = get(&fake, "/second-factor").await;
    page.assert_contains(&["Your authenticator app is set up", "href=\"/settings/account\""]);
    page.assert_lacks(&["Sign out", "one-time-code"]);
}

#[tokio::test]
async fn unknown_person_is_not_found() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/settings/people/x").await;
    assert_eq!(page.status, 404);
    page.assert_contains(&["Person x does not exist."]);
}

#[tokio::test]
async fn account_menu_shows_missing_permissions() {
    let text = "<dt>Permissions</dt><dd>none<!></dd>";
    let nobody = Fake::new(|world| world.permissions.clear());
    get(&nobody, "/settings/policy").await.assert_contains(&["Signed in as", text]);
    let viewer = Fake::new(|world| world.permissions = vec!["viewer".into()]);
    get(&viewer, "/settings/policy").await.assert_lacks(&[text]);
}

#[tokio::test]
async fn account_without_permissions_links_to_grants() {
    let page = crate::addresses::person;
    let text = ["No permissions yet", "href=\"#may\""];
    let fake = Fake::new(|world| world.people[0].grants.clear());
    let none = get(&fake, &page("ada")).await;
    none.assert_contains(&text);
    none.assert_contains(&["id=\"may\"", "aria-label=\"Permissions\""]);
    get(&fake, &page("bo")).await.assert_lacks(&text);
}

#[tokio::test]
async fn account_lists_passkeys_with_their_actions() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/settings/account").await;
    page.assert_contains(&["with a passkey that was revoked"]);
    page.assert_contains(&[
        "Laptop",
        "0001 1111 2222 3333 4444",
        "by root",
        "not confirmed",
        "Confirm it with your other passkey.",
        "aria-label=\"Confirm with another passkey: Phone\"",
        "aria-label=\"Revoke passkey Laptop\"",
        "action=\"/call/revoke-passkey\"",
        "Register a passkey",
        "Passkeys need JavaScript.",
        "gantry me",
    ]);
    page.assert_lacks(&["Confirm with another passkey: Laptop"]);
    let first = Fake::new(|world| drop(world.passkeys.remove(0)));
    let page = get(&first, "/settings/account").await;
    page.assert_contains(&["Read its fingerprint to an admin"]);
    page.assert_lacks(&["Confirm with another passkey"]);
}

#[tokio::test]
async fn admin_compares_the_fingerprint_before_confirming() {
    let fake = Fake::new(|_| {});
    let person = crate::addresses::person("ada");
    let page = get(&fake, &person).await;
    page.assert_contains(&[
        "Compare the fingerprint with the person",
        "0002 1111 2222 3333 4444",
        "aria-label=\"Confirm passkey: Phone\"",
        "aria-label=\"Revoke passkey Phone\"",
    ]);
    page.assert_lacks(&["Confirm passkey: Laptop", "Register a passkey"]);
    let service = crate::addresses::person("ci");
    get(&fake, &service).await.assert_lacks(&["Compare the fingerprint"]);
}

#[tokio::test]
async fn confirmed_passkeys_offer_no_confirmation() {
    let person = crate::addresses::person("ada");
    let fake = Fake::new(|world| world.passkeys.truncate(1));
    for page in [person.as_str(), "/settings/account"] {
        let page = get(&fake, page).await;
        page.assert_contains(&["aria-label=\"Revoke passkey Laptop\""]);
        page.assert_lacks(&[
            "Confirm passkey",
            "Confirm with another passkey",
            "Compare the fingerprint",
            "not confirmed",
        ]);
    }
    let fake = Fake::new(|world| world.passkeys.clear());
    let page = get(&fake, &person).await;
    page.assert_contains(&["No passkeys yet."]);
    page.assert_lacks(&["Confirm passkey", "Compare the fingerprint"]);
}
