//! People, permissions, and signing in.
//!
//! Every use case takes an [`Actor`] and asks it for a permission in a deployment ([`actor`]); a
//! missing permission means no. No permission contains another one, except that every permission
//! includes Viewer. In particular, an admin manages people, not nodes: changing nodes takes an
//! operator and, for each change, a reviewer.
//!
//! A person signs in with a *one-time link* from someone who may create one, or with name and
//! password ([`passwords`]). Both start a *session*. API clients use *tokens* ([`tokens`]). Links,
//! sessions and tokens are random values of 256 bits, shown once, and stored as SHA-256. A slow
//! hash is not needed, because random values of this length cannot be guessed.
//!
//! Invariants:
//! * A link can be used once. Only its owner learns whether it was used or has expired.
//! * A session ends [`SESSION_IDLE`] after the last request, [`SESSION_ABSOLUTE`] after its start,
//!   and on sign-out. It ends at once when its person is disabled. Every request looks it up in the
//!   database; there is no cache.
//! * Disabling a person also revokes their tokens, in the same transaction. Enabling the person
//!   again restores none of them, so a leaked token stays useless.
//! * The time of the last request is stored at most once per [`VISIT_PRECISION`], so a request
//!   usually costs one read.
//! * Every sign-in creates a new session and ends the browser's old one. This prevents session
//!   fixation.
//! * Signing in and out is audited in the same transaction. Failed sign-ins are not, because anyone
//!   can cause them. They are logged and counted by the [`throttle`].

pub(crate) mod admin_contacts;

mod access;
mod accounts;
mod actor;
pub(crate) mod passkeys;
mod passwords;
mod second_factor;
pub(crate) mod throttle;
mod tokens;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use api::names::TOKEN_PREFIX;
use engine::counting::many;
use engine::ids::{PersonId, SYSTEM_ACTOR, looks_like_id};
use rand::TryRngCore as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, Postgres, Transaction};
use store::people::{LinkError, REQUIRES_PASSWORD, SessionTimeouts, TokenHash};
use store::{Store, StoreError};
use uuid::Uuid;

use crate::problems;
use passwords::Hasher;
use throttle::{MAX_BY_SESSION, MAX_BY_TOKEN, MAX_FAILURES, MINUTE, Throttle, WINDOW, network};

pub(crate) use access::notices;
pub use accounts::{LINK_SETS_PASSWORD, LINK_VALIDITY, PersonAtVersion};
pub(crate) use actor::in_deployments;
pub use actor::{Actor, Bearer, FACTOR_NEEDED, Permission, Session};

/// A session ends after this time without a request.
pub const SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);
/// Maximum duration of a session, however much it is used.
pub const SESSION_ABSOLUTE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number of requests of one session per minute.
pub const SESSION_REQUESTS: u32 = MAX_BY_SESSION;
/// Maximum number of requests with one token per minute.
pub const TOKEN_REQUESTS: u32 = MAX_BY_TOKEN;
/// Failed sign-ins within [`FAILURE_WINDOW`], per address or per name, before further attempts have
/// to wait.
pub const FAILED_SIGN_INS: u32 = MAX_FAILURES;
/// The period in which failed sign-ins are counted.
pub const FAILURE_WINDOW: Duration = WINDOW;
/// Passwords that are hashed in parallel.
pub const HASH_CONCURRENCY: usize = passwords::AT_ONCE;
/// Passwords that are hashed or wait for it.
pub const MAX_HASH_TASKS: usize = passwords::WAITING;
/// The precision of a session's last visit.
pub const VISIT_PRECISION: Duration = Duration::from_secs(60);
/// Validity of the one-time links that a start prints: one working day.
pub const START_LINK_VALIDITY: Duration = Duration::from_secs(12 * 3600);

const SESSION_TIMES: SessionTimeouts = SessionTimeouts {
    idle: SESSION_IDLE,
    absolute: SESSION_ABSOLUTE,
    visit_interval: VISIT_PRECISION,
};
/// Longest text that is looked up as a token, in bytes. Valid tokens are shorter.
pub(crate) const MAX_TOKEN_LENGTH: usize = 128;
/// Stored length of a client's user agent, in characters.
const MAX_USER_AGENT: usize = 200;

/// The kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PersonKind {
    /// A person.
    Human,
    /// A service account for API clients. Its verdicts never count.
    Service,
}

impl PersonKind {
    /// The value in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => store::people::HUMAN,
            Self::Service => store::people::SERVICE,
        }
    }

    fn from_stored(word: &str) -> Self {
        match word {
            store::people::HUMAN => Self::Human,
            _ => Self::Service,
        }
    }
}

/// A secret that is shown once. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub(crate) fn random() -> Result<Self, Problem> {
        let mut bytes = [0u8; 32];
        rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|reason| {
            tracing::error!(%reason, "the system returned no random numbers");
            Problem::internal()
        })?;
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// A token for API clients. Its prefix identifies it, for example in a scan for leaked secrets.
    fn for_api_clients() -> Result<Self, Problem> {
        Ok(Self(format!("{TOKEN_PREFIX}{}", Self::random()?.0)))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> TokenHash {
        hash_of(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

pub(crate) fn hash_of(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// The origin of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// The client's address, if known.
    pub address: Option<IpAddr>,
    /// The client's user agent.
    pub user_agent: String,
}

impl ClientInfo {
    fn noted(&self) -> store::people::Origin {
        let shown = self.user_agent.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT);
        store::people::Origin {
            address: self.address.map(|address| address.to_string()).unwrap_or_default(),
            user_agent: shown.collect(),
        }
    }
}

/// A person to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPerson {
    /// Short name: lower case letters, digits, `.`, `_`, `@`, `-`. A name is never reused.
    pub name: String,
    pub kind: PersonKind,
    pub permissions: BTreeSet<Permission>,
}

impl NewPerson {
    pub fn human(
        name: impl Into<String>,
        permissions: impl IntoIterator<Item = Permission>,
    ) -> Self {
        Self {
            name: name.into(),
            kind: PersonKind::Human,
            permissions: permissions.into_iter().collect(),
        }
    }
}

/// Manages people, their sign-ins and sessions. The parameter `by` of its methods is the actor;
/// `None` is Gantry itself. Gantry itself needs a connection of the database owner
/// ([`People::with_owner`]), because the server's database role cannot change people.
#[derive(Debug, Clone)]
pub struct People {
    store: Store,
    /// The same database as its owner. Servers have none.
    owner: Option<Store>,
    /// Failed sign-ins per address.
    attempts: Arc<Throttle<Option<IpAddr>>>,
    /// Wrong passwords per name, including names that do not exist.
    names: Arc<Throttle<String>>,
    /// Requests per token.
    requests: Arc<Throttle<Uuid>>,
    /// Requests per session.
    session_requests: Arc<Throttle<TokenHash>>,
    hasher: Hasher,
}

fn unknown_person(id: PersonId) -> Problem {
    Problem::not_found(format!("Person {id} does not exist. See the list of people."))
}

/// A new session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The value of the browser's cookie.
    pub session: Token,
    /// Whether the link that was used also sets a password.
    pub needs_password: bool,
}

impl People {
    /// Clones share the counters of failed sign-ins.
    pub fn over(store: Store) -> Self {
        Self {
            store,
            owner: None,
            attempts: Arc::new(Throttle::of(MAX_FAILURES, WINDOW)),
            names: Arc::new(Throttle::of(MAX_FAILURES, WINDOW)),
            requests: Arc::new(Throttle::of(MAX_BY_TOKEN, MINUTE)),
            session_requests: Arc::new(Throttle::of(MAX_BY_SESSION, MINUTE)),
            hasher: Hasher::default(),
        }
    }

    /// Adds a connection of the database owner.
    pub fn with_owner(self, owner: Store) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// Begins a transaction for an admin, or for Gantry itself. The latter needs the owner's
    /// connection.
    async fn begin_as(
        &self,
        by: Option<&Actor>,
    ) -> Result<Transaction<'static, Postgres>, Problem> {
        let Some(actor) = by else {
            return self.owner.as_ref().unwrap_or(&self.store).pool().begin().await.map_err(failed);
        };
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        actor.revalidate(&mut transaction).await?.require(Permission::Admin)?;
        Ok(transaction)
    }

    /// Creates a person.
    ///
    /// # Errors
    /// If the name is invalid or taken, or `by` is not an admin.
    pub async fn create_person(
        &self,
        by: Option<&Actor>,
        new: &NewPerson,
    ) -> Result<PersonId, Problem> {
        require_admin(by)?;
        check_name(&new.name)?;
        let words: Vec<&str> =
            new.permissions.iter().map(|permission| permission.as_str()).collect();
        let mut transaction = self.begin_as(by).await?;
        let person =
            store::people::insert_person(&mut transaction, &new.name, new.kind.as_str(), &words)
                .await
                .map_err(failed)?
                .ok_or_else(|| {
                    Problem::conflict(
                        "name_taken",
                        format!("Person {} already exists. Choose another name.", new.name),
                    )
                })?;
        let detail = json!({"name": new.name, "kind": new.kind.as_str(), "permissions": words});
        store::audit::append_audit(
            &mut transaction,
            id_of(by),
            "person.create",
            &person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(person)
    }

    /// A person by name, as an actor without a session. Such an actor can read but not write.
    ///
    /// # Errors
    /// If the person does not exist or is disabled.
    pub async fn actor_by_name(&self, name: &str) -> Result<Actor, Problem> {
        let row = store::people::person_by_name(self.store.pool(), name).await.map_err(failed)?;
        match row {
            Some(row) if row.disabled => Err(Problem::forbidden(format!(
                "Person {name} is disabled. An admin can enable the account."
            ))),
            Some(row) => Ok(Actor::of(row, None)),
            None => Err(Problem::not_found(format!(
                "Person {name} does not exist. See the list of people."
            ))),
        }
    }

    /// Signs a person in with the authority of the database owner, who could insert a session by
    /// hand anyway. `gantry up` opens the first proposal like this, and tests act for people.
    ///
    /// # Errors
    /// As [`People::actor_by_name`], and if there is no connection of the owner.
    pub async fn sign_in_as_owner(&self, name: &str) -> Result<Actor, Problem> {
        let person = self.actor_by_name(name).await?.person;
        let session = Token::random()?;
        let mut transaction = self.begin_as(None).await?;
        store::people::insert_session(&mut transaction, person, &session.hash(), SESSION_TIMES)
            .await
            .map_err(failed)?;
        let detail = json!({"by": "owner"});
        store::audit::append_audit(
            &mut transaction,
            Some(person),
            "sign_in",
            &person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        let found = self.look_up(session.reveal()).await?;
        found.map(|(actor, _)| actor).ok_or_else(Problem::signed_out)
    }

    /// Creates a one-time sign-in link. Anyone who has the link can sign in as the person.
    ///
    /// # Errors
    /// If the person does not exist, or `by` is not an admin.
    pub async fn create_sign_in_link(
        &self,
        by: Option<&Actor>,
        person: PersonId,
        validity: Duration,
    ) -> Result<Token, Problem> {
        self.link(by, person, validity, &[]).await
    }

    /// Like [`Self::create_sign_in_link`], from the process that starts Gantry, for a person who
    /// has to set a password.
    ///
    /// # Errors
    /// If the person does not exist.
    pub async fn create_first_link(
        &self,
        person: PersonId,
        validity: Duration,
    ) -> Result<Token, Problem> {
        self.link(None, person, validity, &[REQUIRES_PASSWORD]).await
    }

    async fn link(
        &self,
        by: Option<&Actor>,
        person: PersonId,
        validity: Duration,
        requirements: &[&str],
    ) -> Result<Token, Problem> {
        require_admin(by)?;
        let row = store::people::person(self.store.pool(), person).await.map_err(failed)?;
        let row = row.ok_or_else(|| unknown_person(person))?;
        let token = Token::random()?;
        let mut transaction = self.begin_as(by).await?;
        store::people::insert_sign_in_link(
            &mut transaction,
            person,
            &token.hash(),
            validity,
            requirements,
        )
        .await
        .map_err(failed)?;
        let detail = json!({"name": row.name, "valid_seconds": validity.as_secs()});
        store::audit::append_audit(
            &mut transaction,
            id_of(by),
            "sign_in.offer",
            &person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(token)
    }

    /// Uses a one-time link and starts a session. `before` is the browser's old session, which
    /// ends.
    ///
    /// # Errors
    /// `sign_in_used`, `sign_in_expired` or `sign_in_unknown` (401) if the link is not valid;
    /// `too_many_attempts` (429) after too many failures from the address.
    pub async fn sign_in(
        &self,
        token: &str,
        visitor: &ClientInfo,
        before: Option<&str>,
    ) -> Result<NewSession, Problem> {
        self.attempts.check(&network(visitor.address)).map_err(too_many_from_address)?;
        // PostgreSQL refuses text with a NUL, and no link contains one.
        if token.len() > MAX_TOKEN_LENGTH || token.contains('\0') {
            return Err(self.refuse(visitor, LinkError::Unknown));
        }
        let (session, origin) = (Token::random()?, visitor.noted());
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let person_and_requirements = store::people::begin_session_by_link(
            &mut transaction,
            token,
            &session.hash(),
            SESSION_TIMES,
            &origin,
        )
        .await;
        let Some((person, requirements)) = person_and_requirements.map_err(failed)? else {
            let error = store::people::link_error(&mut transaction, &hash_of(token))
                .await
                .map_err(failed)?;
            return Err(self.refuse(visitor, error));
        };
        record_session(&mut transaction, person, &origin, before, "link").await?;
        transaction.commit().await.map_err(failed)?;
        Ok(NewSession {
            session,
            needs_password: requirements.iter().any(|word| word == REQUIRES_PASSWORD),
        })
    }

    fn refuse(&self, visitor: &ClientInfo, error: LinkError) -> Problem {
        tracing::warn!(address = ?visitor.address, ?error, "a sign-in with a link was rejected");
        self.attempts.note(network(visitor.address));
        let (code, detail) = match error {
            LinkError::Used => (
                "sign_in_used",
                "This sign-in link was already used. Each link works once. Ask an admin for a new \
                 one.",
            ),
            LinkError::Expired => (
                "sign_in_expired",
                "This sign-in link has expired or was revoked. Ask an admin for a new one.",
            ),
            LinkError::Unknown => (
                "sign_in_unknown",
                "This sign-in link does not exist. Check that you copied all of it.",
            ),
        };
        Problem::new(401, code, "Sign-in failed", detail)
    }

    /// The actor of a session's token. `None` if the session is invalid or has ended.
    ///
    /// # Errors
    /// `too_many_requests` (429) beyond [`SESSION_REQUESTS`].
    pub async fn actor_of_session(&self, token: &str) -> Result<Option<Actor>, Problem> {
        let Some((actor, note_due)) = self.look_up(token).await? else {
            return Ok(None);
        };
        self.session_requests.take(hash_of(token)).map_err(|wait| {
            let detail = format!(
                "A session can send {SESSION_REQUESTS} requests per minute, in all its tabs \
                 together. Try again in {}.",
                many(wait.as_secs().max(1), "second")
            );
            Problem::new(429, "too_many_requests", "Too many requests", detail).again_after(wait)
        })?;
        if note_due {
            store::people::record_visit(self.store.pool(), &hash_of(token), SESSION_TIMES)
                .await
                .map_err(failed)?;
        }
        Ok(Some(actor))
    }

    /// Whether an actor is still signed in and has Viewer. It does not count as a visit, because
    /// streams stay open without activity.
    pub async fn can_still_view(&self, actor: &Actor) -> Result<bool, Problem> {
        let current = match (&actor.token, &actor.session) {
            (Some(token), _) => {
                let row = store::people::api_tokens::bearer_by_id(self.store.pool(), token.id)
                    .await
                    .map_err(failed)?;
                row.map(|row| Actor::reload_bearer(row, token))
            }
            (None, Some(session)) => {
                let row = store::people::session(self.store.pool(), &session.hash, SESSION_TIMES)
                    .await
                    .map_err(failed)?;
                row.map(|row| {
                    let session = Session::of(&row, session.hash, session.credential.clone());
                    Actor::of(row.person, Some(session))
                })
            }
            (None, None) => None,
        };
        Ok(current.is_some_and(|current| current.may(Permission::Viewer)))
    }

    async fn look_up(&self, token: &str) -> Result<Option<(Actor, bool)>, Problem> {
        if token.is_empty() || token.len() > MAX_TOKEN_LENGTH {
            return Ok(None);
        }
        let hash = hash_of(token);
        let row = store::people::session(self.store.pool(), &hash, SESSION_TIMES)
            .await
            .map_err(failed)?;
        Ok(row.map(|row| {
            let credential = Token(token.to_owned());
            let session = Session::of(&row, hash, credential);
            (Actor::of(row.person, Some(session)), row.note_due)
        }))
    }

    /// Ends the actor's session. A missing or ended session is no error.
    pub async fn sign_out(&self, actor: &Actor) -> Result<(), Problem> {
        let Some(session) = &actor.session else {
            return Ok(());
        };
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let ended =
            store::people::end_session(&mut transaction, &session.hash).await.map_err(failed)?;
        if let Some(person) = ended {
            store::audit::append_audit(
                &mut transaction,
                Some(person),
                "sign_out",
                &person.to_string(),
                &json!({}),
            )
            .await
            .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Ends all sessions of the actor and revokes their unused links. Returns the number of
    /// sessions that ended.
    ///
    /// # Errors
    /// If the actor uses a token.
    pub async fn sign_out_everywhere(&self, actor: &Actor) -> Result<u64, Problem> {
        actor.require_in_person()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        store::people::accounts::lock_people(&mut transaction, &[actor.person])
            .await
            .map_err(failed)?;
        let ended = store::people::end_all_sessions(&mut transaction, actor.person, None)
            .await
            .map_err(failed)?;
        let subject = actor.person.to_string();
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "sign_out.everywhere",
            &subject,
            &json!({"sessions": ended}),
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(ended)
    }

    /// Disables a person: their sessions end, and their unused links and their tokens are revoked.
    ///
    /// # Errors
    /// If the person does not exist, `by` is not an admin, or `by` is the person.
    pub async fn disable(&self, by: Option<&Actor>, person: PersonId) -> Result<(), Problem> {
        require_admin(by)?;
        if by.is_some_and(|actor| actor.person == person) {
            return Err(Problem::conflict(
                "own_account",
                "You cannot disable your own account. Ask another admin.",
            ));
        }
        let mut transaction = self.begin_as(by).await?;
        let changed =
            store::people::set_disabled(&mut transaction, person, true).await.map_err(failed)?;
        if !changed {
            // The response needs another connection, so return this one first.
            drop(transaction);
            let person_row =
                store::people::person(self.store.pool(), person).await.map_err(failed)?;
            return match person_row {
                Some(_) => Ok(()),
                None => Err(unknown_person(person)),
            };
        }
        let (sessions, tokens) = revoke_all_access(&mut transaction, person).await?;
        let detail = json!({"sessions": sessions, "tokens": tokens});
        store::audit::append_audit(
            &mut transaction,
            id_of(by),
            "person.disable",
            &person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }
}

/// Records a new session and ends the browser's old one.
async fn record_session(
    connection: &mut PgConnection,
    person: PersonId,
    origin: &store::people::Origin,
    before: Option<&str>,
    by: &str,
) -> Result<(), Problem> {
    if let Some(before) =
        before.filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN_LENGTH)
    {
        store::people::end_session(connection, &hash_of(before)).await.map_err(failed)?;
    }
    let detail = json!({"by": by, "address": origin.address, "user_agent": origin.user_agent});
    store::audit::append_audit(connection, Some(person), "sign_in", &person.to_string(), &detail)
        .await
        .map_err(failed)
}

/// Ends all sessions and revokes all links and tokens of a disabled person. Returns the number of
/// sessions and of tokens.
async fn revoke_all_access(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<(u64, u64), Problem> {
    let sessions =
        store::people::end_all_sessions(connection, person, None).await.map_err(failed)?;
    let tokens = store::people::api_tokens::revoke_all(connection, person).await.map_err(failed)?;
    Ok((sessions, tokens))
}

fn id_of(actor: Option<&Actor>) -> Option<PersonId> {
    actor.map(|actor| actor.person)
}

fn require_admin(by: Option<&Actor>) -> Result<(), Problem> {
    by.map_or(Ok(()), |actor| actor.require(Permission::Admin))
}

/// The path of the own account in place of a name, as in `GET /people/me`. The constraint
/// `person_name_is_not_me` keeps people from having it.
const OWN_ACCOUNT: &str = "me";

pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    if name == SYSTEM_ACTOR {
        return Err(Problem::invalid(format!(
            "The name {SYSTEM_ACTOR} is reserved, because Gantry uses it for itself in the audit. \
             Choose another name."
        )));
    }
    if name == OWN_ACCOUNT {
        return Err(Problem::invalid(format!(
            "The name {OWN_ACCOUNT} is reserved, because /api/v1/people/{OWN_ACCOUNT} is your own \
             account. Choose another name."
        )));
    }
    if looks_like_id(name) {
        return Err(Problem::invalid(
            "A person's name must not look like an id, because paths accept both. Choose another \
             name.",
        ));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_valid = name.len() <= 96
        && name.starts_with(plain)
        && name.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '@' | '-'));
    match is_valid {
        true => Ok(()),
        false => Err(Problem::invalid(
            "A person's name must have 1 to 96 lower-case letters, digits, '.', '_', '@' and '-'. \
             It must start with a letter or digit.",
        )),
    }
}

/// Links and passwords share this counter, so a new link does not help.
fn too_many_from_address(wait: Duration) -> Problem {
    let detail = format!(
        "Too many sign-ins from your address failed, with passwords or links. Try again in {}. \
         Until then, links do not work from your address either.",
        minutes(wait)
    );
    too_many_attempts(detail, wait)
}

/// This counter is for passwords only, so a link still works.
fn too_many_for_name(wait: Duration) -> Problem {
    let detail = format!(
        "The password of this name was wrong too often. Try again in {}, or ask an admin for a \
         one-time sign-in link.",
        minutes(wait)
    );
    too_many_attempts(detail, wait)
}

fn minutes(wait: Duration) -> String {
    match wait.as_secs().div_ceil(60) {
        0 | 1 => "a minute".to_owned(),
        count => format!("{count} minutes"),
    }
}

fn too_many_attempts(detail: String, wait: Duration) -> Problem {
    Problem::new(429, "too_many_attempts", "Too many attempts", detail).again_after(wait)
}

fn failed(error: impl Into<StoreError>) -> Problem {
    problems::from_store(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::people::SessionsQuery;
    use testdb::TestDatabase;

    struct Installation {
        db: TestDatabase,
        people: People,
        ada: PersonId,
    }

    impl Installation {
        async fn new() -> Self {
            let db = TestDatabase::new().await;
            let people = People::over(Store::over(db.app().clone()))
                .with_owner(Store::over(db.owner().clone()));
            let ada = NewPerson::human("ada", [Permission::Operator]);
            let ada = people.create_person(None, &ada).await.expect("a person");
            Self { db, people, ada }
        }

        async fn link(&self) -> Token {
            self.people
                .create_sign_in_link(None, self.ada, Duration::from_secs(60))
                .await
                .expect("a sign-in")
        }

        async fn session(&self) -> Token {
            let link = self.link().await;
            self.people
                .sign_in(link.reveal(), &ClientInfo::default(), None)
                .await
                .expect("a session")
                .session
        }

        async fn actor(&self, session: &Token) -> Option<Actor> {
            self.people.actor_of_session(session.reveal()).await.expect("an answer")
        }

        async fn refused(&self, link: &Token) -> Problem {
            self.people
                .sign_in(link.reveal(), &ClientInfo::default(), None)
                .await
                .expect_err("a refusal")
        }

        async fn change(&self, sql: &'static str) {
            sqlx::query(sql).execute(self.db.owner()).await.expect("the statement succeeds");
        }

        async fn audit(&self) -> Vec<String> {
            let sql = "SELECT action FROM audit WHERE source = 'application' ORDER BY id";
            sqlx::query_scalar(sql).fetch_all(self.db.app()).await.expect("the audit")
        }
    }

    #[tokio::test]
    async fn parallel_sign_ins_use_a_link_once() {
        let installation = Installation::new().await;
        let link = installation.link().await;
        let tries = (0..8).map(|_| {
            let (people, link) = (installation.people.clone(), link.clone());
            tokio::spawn(async move {
                people.sign_in(link.reveal(), &ClientInfo::default(), None).await
            })
        });
        let mut sessions = Vec::new();
        for one in tries.collect::<Vec<_>>() {
            match one.await.expect("the task does not panic") {
                Ok(session) => sessions.push(session),
                Err(problem) => {
                    assert_eq!((problem.status, problem.code.as_str()), (401, "sign_in_used"))
                }
            }
        }
        assert_eq!(sessions.len(), 1);
        let actor = installation.actor(&sessions[0].session).await.expect("an actor");
        assert_eq!((actor.person, actor.name.as_str()), (installation.ada, "ada"));
        assert_eq!(installation.audit().await, ["person.create", "sign_in.offer", "sign_in"]);
    }

    #[tokio::test]
    async fn database_contains_no_usable_credential() {
        let installation = Installation::new().await;
        let (link, session) = (installation.link().await, installation.session().await);
        let dump =
            "SELECT string_agg(t::text, '') || (SELECT string_agg(s::text, '') FROM session s)
                    || (SELECT string_agg(a::text, '') FROM audit a) FROM token t";
        let dump: String =
            sqlx::query_scalar(dump).fetch_one(installation.db.owner()).await.expect("the rows");
        assert!(!dump.contains(link.reveal()) && !dump.contains(session.reveal()));
        assert!(
            !format!("{link:?} {:?}", installation.actor(&session).await)
                .contains(session.reveal())
        );
    }

    #[tokio::test]
    async fn sign_ins_and_sessions_expire() {
        let installation = Installation::new().await;
        let link = installation.link().await;
        installation.change("UPDATE token SET expires_at = now() - interval '1 second'").await;
        assert_eq!(installation.refused(&link).await.code, "sign_in_expired");

        let session = installation.session().await;
        assert!(installation.actor(&session).await.is_some());
        installation
            .change("UPDATE session SET idle_expires_at = now() - interval '1 second'")
            .await;
        assert_eq!(installation.actor(&session).await, None, "the idle session expired");

        let session = installation.session().await;
        installation.change("UPDATE session SET expires_at = now() - interval '1 second'").await;
        assert_eq!(
            installation.actor(&session).await,
            None,
            "the session expired at its maximum lifetime"
        );
    }

    #[tokio::test]
    async fn expired_sessions_are_deleted_without_further_requests() {
        let installation = Installation::new().await;
        let (over, idle, validity) = (
            installation.session().await,
            installation.session().await,
            installation.session().await,
        );
        for (session, sql) in [
            (
                &over,
                "UPDATE session SET expires_at = now(), idle_expires_at = now() WHERE token_hash = $1",
            ),
            (&idle, "UPDATE session SET idle_expires_at = now() WHERE token_hash = $1"),
        ] {
            let hash = session.hash();
            sqlx::query(sql)
                .bind(hash.as_slice())
                .execute(installation.db.owner())
                .await
                .expect("the session is ended");
        }
        let forgotten = async || {
            store::people::delete_expired_sessions(installation.db.app())
                .await
                .expect("deleted sessions")
        };
        assert_eq!((forgotten().await, forgotten().await), (1, 0));
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM session")
            .fetch_one(installation.db.app())
            .await
            .expect("a count");
        assert_eq!(left, 2);
        assert!(
            installation.actor(&validity).await.is_some()
                && installation.actor(&idle).await.is_none()
        );
    }

    #[tokio::test]
    async fn request_limit_is_per_session() {
        let installation = Installation::new().await;
        let (one, other) = (installation.session().await, installation.session().await);
        for _ in 1..SESSION_REQUESTS {
            installation.people.session_requests.note(hash_of(one.reveal()));
        }
        assert!(
            installation.actor(&one).await.is_some(),
            "the last allowed request of this session"
        );
        let problem =
            installation.people.actor_of_session(one.reveal()).await.expect_err("too many");
        assert_eq!((problem.status, problem.code.as_str()), (429, "too_many_requests"));
        assert!(
            problem.again_after.is_some_and(|seconds| (1..=60).contains(&seconds)),
            "{problem:?}"
        );
        assert!(installation.actor(&other).await.is_some());
    }

    #[tokio::test]
    async fn session_limit_ends_least_recently_used_session() {
        let installation = Installation::new().await;
        let first = installation.session().await;
        let many = "INSERT INTO session (token_hash, person_id, last_seen_at, idle_expires_at, expires_at)
             SELECT sha256(('s' || g)::bytea), person_id, now() - make_interval(mins => g), idle_expires_at, expires_at
             FROM session, generate_series(1, 120) g";
        installation.change(many).await;
        let last = installation.session().await;
        let (left, oldest): (i64, f64) =
            sqlx::query_as("SELECT count(*), max(extract(epoch FROM now() - last_seen_at))::float8 / 60 FROM session")
                .fetch_one(installation.db.app())
                .await
                .expect("a count");
        assert_eq!(left, store::people::MAX_SESSIONS);
        assert!((97.5..99.5).contains(&oldest), "{oldest}");
        let actor = installation.actor(&last).await.expect("the newest session is valid");
        assert!(
            installation.actor(&first).await.is_some(),
            "the session that was used recently is valid"
        );
        assert_eq!(
            installation.people.sessions(&actor).await.expect("a list").len(),
            100,
            "all sessions are listed"
        );
        let first = installation
            .people
            .session_page(&actor, &SessionsQuery::default())
            .await
            .expect("a page");
        let second_page = SessionsQuery { before: first.next, ..SessionsQuery::default() };
        let rest = installation.people.session_page(&actor, &second_page).await.expect("a page");
        assert_eq!(
            (first.sessions.len(), rest.sessions.len(), rest.next),
            (50, 50, None),
            "the list is also available page by page"
        );
    }

    #[tokio::test]
    async fn visits_are_stored_once_per_minute() {
        let installation = Installation::new().await;
        let session = installation.session().await;
        let seen = async || {
            let sql = "SELECT extract(epoch FROM now() - last_seen_at)::float8,
                              extract(epoch FROM idle_expires_at - now())::float8 FROM session";
            sqlx::query_as::<_, (f64, f64)>(sql)
                .fetch_one(installation.db.app())
                .await
                .expect("the session")
        };
        installation
            .change(
                "UPDATE session SET last_seen_at = now() - interval '50 s', idle_expires_at = now() + interval '100 s'",
            )
            .await;
        installation.actor(&session).await.expect("an actor");
        assert!(seen().await.0 > 49.0, "a visit within a minute is not stored again");
        installation.change("UPDATE session SET last_seen_at = now() - interval '61 s'").await;
        let actor = installation.actor(&session).await.expect("an actor");
        let (ago, left) = seen().await;
        assert!(ago < 30.0 && left > 11.9 * 3600.0, "{ago} {left}");
        installation
            .change("UPDATE session SET last_seen_at = now() - interval '61 s', expires_at = now() + interval '90 s'")
            .await;
        assert!(installation.people.can_still_view(&actor).await.expect("an answer"));
        assert!(seen().await.0 > 60.0, "a check of the session is not a visit");
        installation.actor(&session).await.expect("an actor");
        assert!(seen().await.1 <= 90.0);
    }

    #[tokio::test]
    async fn last_visit_outlives_its_session() {
        let installation = Installation::new().await;
        let ago = async || {
            let sql = "SELECT extract(epoch FROM now() - v.at)::float8 FROM visit v WHERE v.person_id = $1";
            sqlx::query_scalar::<_, f64>(sql)
                .bind(installation.ada.0)
                .fetch_optional(installation.db.app())
                .await
                .expect("a row")
        };
        assert_eq!(ago().await, None, "no visit yet");
        let session = installation.session().await;
        assert!(ago().await.is_some_and(|ago| ago < 30.0), "signing in counts as a visit");
        installation.change("UPDATE visit SET at = now() - interval '1 h'").await;
        installation.actor(&session).await.expect("an actor");
        assert!(
            ago().await.is_some_and(|ago| ago > 3500.0),
            "the visit is stored once per minute, like that of the session"
        );
        installation.change("UPDATE session SET last_seen_at = now() - interval '61 s'").await;
        let actor = installation.actor(&session).await.expect("an actor");
        assert!(ago().await.is_some_and(|ago| ago < 30.0));
        installation.people.sign_out(&actor).await.expect("the person is signed out");
        assert!(ago().await.is_some_and(|ago| ago < 30.0), "the visit outlives the session");
        installation.change("UPDATE visit SET at = now() + interval '1 h'").await;
        installation.session().await;
        assert!(ago().await.is_some_and(|ago| ago < 0.0), "a later visit is not overwritten");
    }

    #[tokio::test]
    async fn disabling_ends_access_immediately() {
        let installation = Installation::new().await;
        let (link, session) = (installation.link().await, installation.session().await);
        let actor = installation.actor(&session).await.expect("an actor");
        installation.people.disable(None, installation.ada).await.expect("the person is disabled");
        assert_eq!(installation.actor(&session).await, None);
        assert!(!installation.people.can_still_view(&actor).await.expect("an answer"));
        assert_eq!(installation.refused(&link).await.code, "sign_in_expired");
        assert_eq!(
            installation.people.actor_by_name("ada").await.expect_err("a refusal").status,
            403
        );

        // A direct change in the database works, too.
        let installation = Installation::new().await;
        let session = installation.session().await;
        installation.change("UPDATE person SET disabled = true").await;
        assert_eq!(installation.actor(&session).await, None);
    }

    #[tokio::test]
    async fn signing_out_ends_this_session_or_all() {
        let installation = Installation::new().await;
        let (one, two) = (installation.session().await, installation.session().await);
        let unused = installation.link().await;
        let actor = installation.actor(&one).await.expect("an actor");
        installation.people.sign_out(&actor).await.expect("the person is signed out");
        installation.people.sign_out(&actor).await.expect("a repeated call succeeds");
        assert_eq!(installation.actor(&one).await, None);
        let actor = installation.actor(&two).await.expect("an actor");
        assert_eq!(installation.people.sign_out_everywhere(&actor).await, Ok(1));
        assert_eq!(installation.actor(&two).await, None);
        assert_eq!(installation.refused(&unused).await.code, "sign_in_expired");
        let ends: Vec<_> = installation
            .audit()
            .await
            .into_iter()
            .filter(|action| action.starts_with("sign_out"))
            .collect();
        assert_eq!(ends, ["sign_out", "sign_out.everywhere"]);
    }

    #[tokio::test]
    async fn repeated_failures_throttle_the_address() {
        let installation = Installation::new().await;
        let visitor =
            ClientInfo { address: Some(IpAddr::from([192, 0, 2, 1])), user_agent: "x".into() };
        for _ in 0..MAX_FAILURES {
            let problem =
                installation.people.sign_in("wrong", &visitor, None).await.expect_err("a refusal");
            assert_eq!(problem.code, "sign_in_unknown");
        }
        let link = installation.link().await;
        let problem = installation
            .people
            .sign_in(link.reveal(), &visitor, None)
            .await
            .expect_err("a refusal");
        assert_eq!((problem.status, problem.code.as_str()), (429, "too_many_attempts"));
        assert!(problem.detail.contains("links do not work"), "{problem}");
        assert!(
            installation.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.is_ok(),
            "the link is not used up, and other addresses can sign in"
        );
    }

    #[tokio::test]
    async fn reserved_name_is_rejected() {
        let installation = Installation::new().await;
        let taken = NewPerson::human(SYSTEM_ACTOR, [Permission::Viewer]);
        let problem = installation.people.create_person(None, &taken).await.expect_err("a refusal");
        assert_eq!(problem.status, 400);
        assert!(problem.detail.contains("Choose another"), "{problem}");
        // The name in the database schema must be the same.
        let by_hand = sqlx::query("INSERT INTO person (name) VALUES ($1)")
            .bind(SYSTEM_ACTOR)
            .execute(installation.db.owner())
            .await;
        let refused = by_hand.expect_err("a refusal");
        assert_eq!(migrations::Refusal::of(&refused), Some(migrations::Refusal::ReservedName));
        assert!(
            refused.to_string().contains(&format!("have the name \"{SYSTEM_ACTOR}\"")),
            "{refused}"
        );
        installation
            .people
            .create_person(None, &NewPerson::human("gantry-ci", []))
            .await
            .expect("a free name");
    }

    #[tokio::test]
    async fn only_admins_manage_people() {
        let installation = Installation::new().await;
        let ada = installation.people.sign_in_as_owner("ada").await.expect("an actor");
        let bo = NewPerson::human("bo", [Permission::Admin]);
        assert_eq!(
            installation.people.create_person(Some(&ada), &bo).await.expect_err("a refusal").status,
            403
        );
        assert_eq!(
            installation
                .people
                .disable(Some(&ada), installation.ada)
                .await
                .expect_err("a refusal")
                .status,
            403
        );
        installation.people.create_person(None, &bo).await.expect("a person");
        assert_eq!(
            installation.people.create_person(None, &bo).await.expect_err("a refusal").code,
            "name_taken"
        );
        let bo = installation.people.sign_in_as_owner("bo").await.expect("an actor");
        assert!(
            bo.require(Permission::Viewer).is_ok() && bo.require(Permission::Reviewer).is_err()
        );
        assert_eq!(
            installation.people.disable(Some(&bo), bo.person).await.expect_err("a refusal").code,
            "own_account"
        );
        let id = "5f0c6c3e-0000-4000-8000-000000000001";
        for name in ["", "-x", "Ada", "a b", "é", &"x".repeat(97), id] {
            let new = NewPerson::human(name, [Permission::Viewer]);
            assert_eq!(
                installation.people.create_person(Some(&bo), &new).await.expect_err(name).status,
                400,
                "{name}"
            );
        }
    }
}
