//! Accounts: the list of people, changes by admins, and changes of one's own account.
//!
//! Every change locks the rows of the actor and the person in a fixed order. It checks the actor's
//! permission under these locks. The database ensures that an enabled admin remains
//! (`guard_admins`), so two admins cannot disable each other at the same time.
//!
//! A person who gains Reviewer or Admin is signed out everywhere and has to sign in again. So a
//! session that leaked while it had few permissions does not gain any. The session in which admins
//! grant themselves a permission remains: otherwise the first admin, who may not have a password
//! yet, could not sign in again. Revoked permissions end on the next request in any case.
//!
//! A change that ends other sessions of the actor also locks the actor's own row. Otherwise, two
//! sessions that end each other would deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::listing::{Cursor, Key, Limit, PAGE_SIZE};
use api::people::{
    AccountKind, CreatedPerson, EndedSessions, Grant, MyAccount, OneTimeLink, Password,
    PasswordRequest, PeopleQuery, PersonPage, PersonRequest, PersonView, SessionPage, SessionSort,
    SessionView, SessionsQuery,
};
use api::{Problem, limits};
use engine::ids::{DeploymentId, PersonId};
use serde_json::json;
use sqlx::{PgConnection, Postgres, Transaction};
use store::audit::append_audit;
use store::people::REQUIRES_PASSWORD;
use store::people::accounts::{AccountListQuery, AccountRow, GrantRow};
use uuid::Uuid;

use super::passwords::Proof;
use super::{
    Actor, ClientInfo, NewSession, People, Permission, PersonKind, SESSION_TIMES, Token,
    check_name, failed, passwords, record_session, revoke_all_access, throttle, unknown_person,
};
use crate::cursor;
use crate::text::{self, at};

/// Validity of a link that an admin creates: enough time to reach the person, overnight included.
pub const LINK_VALIDITY: Duration = Duration::from_secs(24 * 3600);
/// For this long after a one-time sign-in, a new password does not require the old one.
pub const LINK_SETS_PASSWORD: Duration = Duration::from_secs(3600);
/// A person to change, and the version of their permissions that the client has seen, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonAtVersion {
    pub person: PersonId,
    /// Act only if the permissions still have this version.
    pub version: Option<i32>,
}

impl From<PersonId> for PersonAtVersion {
    fn from(person: PersonId) -> Self {
        Self { person, version: None }
    }
}

/// A person's permissions, as stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StoredPermissions {
    everywhere: BTreeSet<Permission>,
    inside: BTreeSet<(Permission, DeploymentId)>,
}

impl StoredPermissions {
    /// The first permission that keeps a service account from managing an account with these
    /// permissions: Reviewer, Admin, or one that the service account does not have itself.
    fn first_beyond(&self, service: &Actor) -> Option<Permission> {
        let everywhere = self.everywhere.iter().map(|permission| (*permission, None));
        let inside = self.inside.iter().map(|(permission, place)| (*permission, Some(*place)));
        let is_within = |(permission, place): &(Permission, Option<DeploymentId>)| match (
            *permission,
            *place,
        ) {
            (Permission::Viewer, _) => true,
            (Permission::Operator, None) => service.may(*permission),
            (Permission::Operator, Some(place)) => service.has_permission_in(*permission, place),
            (Permission::Reviewer | Permission::Admin, _) => false,
        };
        everywhere.chain(inside).find(|given| !is_within(given)).map(|(permission, _)| permission)
    }

    /// Whether `self` has the permission somewhere where `before` does not.
    fn gains(&self, before: &Self, permission: Permission) -> bool {
        let inside = |given: &Self| -> BTreeSet<DeploymentId> {
            given.inside.iter().filter(|(p, _)| *p == permission).map(|(_, place)| *place).collect()
        };
        if before.everywhere.contains(&permission) {
            return false;
        }
        self.everywhere.contains(&permission) || !inside(self).is_subset(&inside(before))
    }
}

impl People {
    /// A page of the list of people.
    ///
    /// # Errors
    /// If the actor is not an admin.
    pub async fn list(&self, actor: &Actor, query: &PeopleQuery) -> Result<PersonPage, Problem> {
        actor.require(Permission::Admin)?;
        let text: String = text::plain(&query.filter)?.to_lowercase().chars().take(96).collect();
        let after = match cursor::decode(query.sort, query.after.as_ref())?.as_deref() {
            Some([Key::Text(name)]) if check_name(name).is_ok() => Some(name.clone()),
            Some(_) => return Err(cursor::invalid_cursor(query.sort, query.after.as_ref())),
            None => None,
        };
        let size = Limit::rows(query.limit, PAGE_SIZE);
        let find = AccountListQuery {
            text,
            kind: query.kind.map(|kind| kind.as_str().to_owned()),
            disabled: query.disabled,
            descending: query.sort.descending,
            after,
        };
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let mut rows = store::people::accounts::accounts(&mut connection, &find, size as u64 + 1)
            .await
            .map_err(failed)?;
        let more = rows.len() > size;
        rows.truncate(size);
        let last = rows.last().filter(|_| more);
        let next = last.map(|row| Cursor::after_row(query.sort, &[Key::from(row.name.as_str())]));
        Ok(PersonPage { people: views(&mut connection, rows).await?, next })
    }

    /// The id of a person, by name or id. An id is not looked up; a later use fails if it is
    /// unknown.
    ///
    /// # Errors
    /// If no person has the name, or the actor is neither an admin nor that person.
    pub async fn person_named(&self, actor: &Actor, text: &str) -> Result<PersonId, Problem> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        if text == actor.name {
            return Ok(actor.person);
        }
        actor.require(Permission::Admin)?;
        // PostgreSQL cannot compare text with a NUL, and no name has one.
        let name = text.replace('\0', "\u{fffd}");
        let found =
            store::people::person_by_name(self.store.pool(), &name).await.map_err(failed)?;
        found.map(|row| row.id).ok_or_else(|| {
            Problem::not_found(format!("Person {text} does not exist. See the list of people."))
        })
    }

    /// One person.
    ///
    /// # Errors
    /// If the person does not exist, or the actor is neither an admin nor that person.
    pub async fn one(&self, actor: &Actor, id: PersonId) -> Result<PersonView, Problem> {
        if id != actor.person {
            actor.require(Permission::Admin)?;
        }
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let row = store::people::accounts::account(&mut connection, id)
            .await
            .map_err(failed)?
            .ok_or_else(|| unknown_person(id))?;
        let view = views(&mut connection, vec![row]).await?.pop();
        view.ok_or_else(Problem::internal)
    }

    /// The actor's own account.
    pub async fn mine(&self, actor: &Actor) -> Result<MyAccount, Problem> {
        let person = self.one(actor, actor.person).await?;
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let passkeys = super::passkeys::views(&mut connection, actor.person).await?;
        drop(connection);
        Ok(MyAccount {
            passkeys,
            permissions: actor.permission_names(),
            token: actor.token.as_ref().map(|token| token.id),
            requires_old_password: person.password && !can_set_by_link(actor),
            sessions: self.sessions(actor).await?,
            notices: self.own_notices(actor).await?,
            password_needed: actor.needs_password(),
            second_factor: self.second_factor(actor).await?,
            person,
        })
    }

    /// Adds a service account, or a person with a link for the first sign-in.
    ///
    /// # Errors
    /// If the name is invalid or taken, a grant is invalid, or the actor is not an admin.
    pub async fn add(
        &self,
        actor: &Actor,
        input: &PersonRequest,
    ) -> Result<CreatedPerson, Problem> {
        actor.require_manager()?;
        check_name(&input.name)?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        store::people::accounts::lock_people(&mut transaction, &[actor.person])
            .await
            .map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        actor.require(Permission::Admin)?;
        let given = self.grants_of(&mut transaction, &input.grants, input.kind).await?;
        require_within(&actor, &given)?;
        let inserted =
            store::people::insert_person(&mut transaction, &input.name, input.kind.as_str(), &[])
                .await
                .map_err(failed)?;
        let name_taken = || {
            Problem::conflict(
                "name_taken",
                format!("Person {} already exists. Choose another name.", input.name),
            )
        };
        let id = inserted.ok_or_else(name_taken)?;
        write(&mut transaction, id, &given).await?;
        let detail = json!({"name": input.name, "kind": input.kind, "grants": input.grants});
        append_audit(
            &mut transaction,
            Some(actor.person),
            "person.create",
            &id.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        let link = match input.kind {
            AccountKind::Human => Some(offer(&mut transaction, &actor, id, &input.name).await?),
            AccountKind::Service => None,
        };
        transaction.commit().await.map_err(failed)?;
        Ok(CreatedPerson { id, name: input.name.clone(), link })
    }

    /// Replaces the permissions of a person.
    ///
    /// # Errors
    /// If a grant is invalid, no admin would remain, or the actor is not an admin. 412 if the
    /// permissions changed meanwhile.
    pub async fn change_grants(
        &self,
        actor: &Actor,
        subject: impl Into<PersonAtVersion>,
        grants: &[Grant],
    ) -> Result<PersonView, Problem> {
        let subject: PersonAtVersion = subject.into();
        let id = subject.person;
        let (mut transaction, actor, row) = self.begin_change(actor, subject).await?;
        let kind = if row.kind == store::people::HUMAN {
            AccountKind::Human
        } else {
            AccountKind::Service
        };
        let after = self.grants_of(&mut transaction, grants, kind).await?;
        let old_rows =
            store::people::accounts::grants(&mut transaction, &[id]).await.map_err(failed)?;
        let before = stored_grants(&row, &old_rows);
        require_within(&actor, &after)?;
        if before != after {
            write(&mut transaction, id, &after).await?;
            let gains_power = [Permission::Reviewer, Permission::Admin]
                .into_iter()
                .any(|p| after.gains(&before, p));
            let own = actor.session.as_ref().filter(|_| actor.person == id);
            let ended_sessions = match gains_power {
                true => store::people::end_all_sessions(
                    &mut transaction,
                    id,
                    own.map(|session| &session.hash),
                )
                .await
                .map_err(failed)?,
                false => 0,
            };
            let detail = json!({"name": row.name, "was": grant_views(&row, &old_rows), "is": grants, "sessions_ended": ended_sessions});
            append_audit(
                &mut transaction,
                Some(actor.person),
                "person.grants",
                &id.to_string(),
                &detail,
            )
            .await
            .map_err(failed)?;
        }
        let now = store::people::accounts::account(&mut transaction, id)
            .await
            .map_err(failed)?
            .ok_or_else(|| unknown_person(id))?;
        let view = views(&mut transaction, vec![now]).await?.pop().ok_or_else(Problem::internal)?;
        transaction.commit().await.map_err(failed)?;
        Ok(view)
    }

    /// Disables or enables a person. Disabling ends their sessions and revokes their unused links
    /// and their tokens; enabling restores none of these.
    ///
    /// # Errors
    /// If the person does not exist or is the actor, no admin would remain, or the actor is not an
    /// admin. 412 if the permissions changed meanwhile.
    pub async fn set_disabled(
        &self,
        actor: &Actor,
        subject: impl Into<PersonAtVersion>,
        disabled: bool,
    ) -> Result<(), Problem> {
        let subject: PersonAtVersion = subject.into();
        let id = subject.person;
        let (mut transaction, actor, row) = self.begin_change(actor, subject).await?;
        if disabled && actor.person == id {
            return Err(Problem::conflict(
                "own_account",
                "You cannot disable your own account. Ask another admin.",
            ));
        }
        if !store::people::set_disabled(&mut transaction, id, disabled).await.map_err(failed)? {
            return Ok(());
        }
        let (action, detail) = match disabled {
            true => {
                let (sessions, tokens) = revoke_all_access(&mut transaction, id).await?;
                (
                    "person.disable",
                    json!({"name": row.name, "sessions": sessions, "tokens": tokens}),
                )
            }
            false => ("person.enable", json!({"name": row.name})),
        };
        append_audit(&mut transaction, Some(actor.person), action, &id.to_string(), &detail)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Creates a one-time link that signs a person in and lets them set a password without the old
    /// one. Earlier links are revoked.
    ///
    /// # Errors
    /// If the person does not exist, is disabled or is a service account, or the actor is not an
    /// admin. 412 if the permissions changed meanwhile.
    pub async fn new_link(
        &self,
        actor: &Actor,
        subject: impl Into<PersonAtVersion>,
    ) -> Result<OneTimeLink, Problem> {
        let subject: PersonAtVersion = subject.into();
        let id = subject.person;
        let (mut transaction, actor, row) = self.begin_change(actor, subject).await?;
        if row.kind != store::people::HUMAN {
            return Err(Problem::conflict(
                "service",
                format!(
                    "Account {} is a service account, so it cannot sign in with a link. Create a \
                     token for it.",
                    row.name
                ),
            ));
        }
        if row.disabled {
            return Err(Problem::conflict(
                "disabled",
                format!("Account {} is disabled. Enable it first.", row.name),
            ));
        }
        store::people::revoke_sign_in_links(&mut transaction, id).await.map_err(failed)?;
        let link = offer(&mut transaction, &actor, id, &row.name).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(link)
    }

    /// Locks both rows. Checks that the actor is still an admin, that a service account has the
    /// person's permissions itself, and that these have the version that the client has seen.
    pub(super) async fn begin_change(
        &self,
        actor: &Actor,
        PersonAtVersion { person: id, version }: PersonAtVersion,
    ) -> Result<(Transaction<'static, Postgres>, Actor, AccountRow), Problem> {
        actor.require_manager()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        store::people::accounts::lock_people(&mut transaction, &[actor.person, id])
            .await
            .map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        actor.require(Permission::Admin)?;
        let row = store::people::accounts::account(&mut transaction, id)
            .await
            .map_err(failed)?
            .ok_or_else(|| unknown_person(id))?;
        if version.is_some_and(|seen| seen != row.grants_version) {
            return Err(version_conflict(&row.name));
        }
        if actor.kind == PersonKind::Service {
            let grants =
                store::people::accounts::grants(&mut transaction, &[id]).await.map_err(failed)?;
            require_within(&actor, &stored_grants(&row, &grants))?;
        }
        Ok((transaction, actor, row))
    }

    /// The requested permissions, with deployments by id.
    async fn grants_of(
        &self,
        on: &mut PgConnection,
        grants: &[Grant],
        kind: AccountKind,
    ) -> Result<StoredPermissions, Problem> {
        if grants.len() > limits::GRANTS {
            return Err(Problem::invalid(format!(
                "grants: a person can have at most {}. A grant on a deployment also applies to all \
                 deployments below it.",
                limits::GRANTS
            )));
        }
        let top = store::deployments::top(on).await.map_err(failed)?;
        let (mut given, mut deployments) = (StoredPermissions::default(), BTreeMap::new());
        for grant in grants {
            let permission: Permission = grant.permission.parse()?;
            if kind == AccountKind::Service && permission == Permission::Reviewer {
                return Err(Problem::invalid(
                    "grants: a service account cannot have the permission reviewer. Only people \
                     can review.",
                ));
            }
            let place = match grant.deployment.as_deref() {
                None => None,
                Some(name) => match deployments.get(name) {
                    Some(place) => *place,
                    None => {
                        let place = self.find_deployment(on, Some(name)).await?;
                        deployments.insert(name, place);
                        place
                    }
                },
            };
            match place {
                // A grant on the root deployment is a grant everywhere.
                None => drop(given.everywhere.insert(permission)),
                Some(place) if Some(place) == top => drop(given.everywhere.insert(permission)),
                Some(place) => {
                    permission.require_deployment_scope("grants")?;
                    given.inside.insert((permission, place));
                }
            }
        }
        let everywhere = given.everywhere.clone();
        given.inside.retain(|(permission, _)| !everywhere.contains(permission));
        Ok(given)
    }

    /// A page of the actor's own sessions.
    pub async fn session_page(
        &self,
        actor: &Actor,
        query: &SessionsQuery,
    ) -> Result<SessionPage, Problem> {
        let keys = |session: &SessionView, sort: SessionSort| {
            let moment = match sort {
                SessionSort::Since => session.since,
                SessionSort::LastSeen => session.last_seen,
            };
            vec![Key::from(moment.0), Key::from(session.id.to_string().as_str())]
        };
        let all = self.sessions(actor).await?;
        let (sessions, next) = cursor::page(
            all,
            keys,
            query.sort,
            query.before.as_ref(),
            Limit::rows(query.limit, PAGE_SIZE),
        )?;
        Ok(SessionPage { sessions, next })
    }

    /// All sessions of the actor, newest first. There are few, so the list has no pages.
    pub async fn sessions(&self, actor: &Actor) -> Result<Vec<SessionView>, Problem> {
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let rows = store::people::sessions(&mut connection, actor.person).await.map_err(failed)?;
        let this = actor.session.as_ref().map(|session| session.hash);
        let view = |row: store::people::SessionListRow| SessionView {
            id: row.id,
            current: this.is_some_and(|hash| row.token_hash == hash),
            since: at(row.created_at),
            last_seen: at(row.last_seen_at),
            expires: at(row.expires_at),
            agent: row.user_agent,
            address: row.address,
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Ends one of the actor's own sessions.
    ///
    /// # Errors
    /// If there is no such session, or the actor uses a token.
    pub async fn end_session(&self, actor: &Actor, session: Uuid) -> Result<(), Problem> {
        actor.require_in_person()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        store::people::accounts::lock_people(&mut transaction, &[actor.person])
            .await
            .map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        if !store::people::end_session_by_id(&mut transaction, actor.person, session)
            .await
            .map_err(failed)?
        {
            return Err(Problem::not_found("You have no such session. It may have ended."));
        }
        let detail = json!({"session": session});
        append_audit(
            &mut transaction,
            Some(actor.person),
            "session.end",
            &actor.person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Ends all sessions of the actor except this one, and revokes their unused links.
    ///
    /// # Errors
    /// If the actor uses a token.
    pub async fn end_other_sessions(&self, actor: &Actor) -> Result<EndedSessions, Problem> {
        actor.require_in_person()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        store::people::accounts::lock_people(&mut transaction, &[actor.person])
            .await
            .map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let this = actor.session.as_ref().map(|session| session.hash);
        let sessions =
            store::people::end_all_sessions(&mut transaction, actor.person, this.as_ref())
                .await
                .map_err(failed)?;
        let detail = json!({"sessions": sessions});
        append_audit(
            &mut transaction,
            Some(actor.person),
            "session.end_others",
            &actor.person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(EndedSessions { sessions })
    }

    /// Sets the actor's password and returns the new value of this session. All other sessions end,
    /// and unused links are revoked.
    ///
    /// # Errors
    /// If the old password is wrong or missing, the new one is not acceptable, or the actor uses a
    /// token.
    pub async fn set_password(
        &self,
        actor: &Actor,
        input: &PasswordRequest,
    ) -> Result<Token, Problem> {
        actor.require_human()?;
        if !can_set_by_link(actor) {
            actor.require_factor()?;
        }
        passwords::check(&input.new, &actor.name)?;
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let stored = store::people::accounts::password(&mut connection, actor.person)
            .await
            .map_err(failed)?;
        drop(connection);
        let old = match can_set_by_link(actor) {
            true => None,
            false => {
                Some(self.verify_old_password(actor, input.old.clone(), stored.clone()).await?)
            }
        };
        let hash = self.hasher.hash(input.new.clone()).await?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        store::people::accounts::lock_people(&mut transaction, &[actor.person])
            .await
            .map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let next = Token::random()?;
        let old = old.as_ref().map(|proof| proof.0.as_slice());
        let is_set = store::people::accounts::set_password(
            &mut transaction,
            stored.as_deref(),
            &hash,
            old,
            &next.hash(),
        )
        .await;
        if !is_set.map_err(failed)? {
            return Err(Problem::conflict(
                "state",
                "The password was just changed in another session. Reload the page.",
            ));
        }
        let ended_sessions =
            store::people::end_all_sessions(&mut transaction, actor.person, Some(&next.hash()))
                .await
                .map_err(failed)?;
        let action = if stored.is_some() { "password.change" } else { "password.set" };
        let link_by = actor.session.as_ref().and_then(|session| session.link_by);
        let mut detail = json!({"sessions_ended": ended_sessions});
        if let (Some(by), Some(detail)) = (link_by, detail.as_object_mut()) {
            detail.insert("link_by".into(), json!(by));
        }
        append_audit(
            &mut transaction,
            Some(actor.person),
            action,
            &actor.person.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(next)
    }

    /// Verifies the old password. Wrong ones count as failed sign-ins, so a stolen session does not
    /// allow faster guessing.
    async fn verify_old_password(
        &self,
        actor: &Actor,
        old: Option<Password>,
        stored: Option<String>,
    ) -> Result<Proof, Problem> {
        if stored.is_none() {
            return Err(Problem::forbidden(
                "This session is too old to set a first password. Ask an admin for a new link, and \
                 sign in with it.",
            ));
        }
        let wrong = || {
            let mut problem = Problem::forbidden("The old password is wrong. Enter it again.");
            problem.code = "old_password".into();
            problem
        };
        let old =
            old.filter(|old| old.reveal().len() <= 4 * limits::MAX_PASSWORD).ok_or_else(wrong)?;
        self.names.take(actor.name.clone()).map_err(super::too_many_for_name)?;
        // An attempt without a result is not counted.
        let proof = self
            .hasher
            .verify(old, stored)
            .await
            .inspect_err(|_| self.names.release(&actor.name))?;
        let proof = proof.ok_or_else(wrong)?;
        self.names.release(&actor.name);
        Ok(proof)
    }

    /// Starts a session with name and password. `before` is the browser's old session, which ends.
    ///
    /// The response and its time are the same for an unknown name, a name without a password, and a
    /// wrong password.
    ///
    /// # Errors
    /// `sign_in_wrong` (401); `too_many_attempts` (429) after too many failures from the address or
    /// for the name.
    pub async fn sign_in_by_password(
        &self,
        name: &str,
        password: Password,
        client: &ClientInfo,
        before: Option<&str>,
    ) -> Result<NewSession, Problem> {
        let network = throttle::network(client.address);
        // PostgreSQL cannot compare text with a NUL. No name contains a NUL or its replacement
        // character.
        let name: String =
            name.trim().to_lowercase().replace('\0', "\u{fffd}").chars().take(97).collect();
        self.attempts.take(network).map_err(super::too_many_from_address)?;
        if let Err(wait) = self.names.take(name.clone()) {
            self.attempts.release(&network);
            return Err(super::too_many_for_name(wait));
        }
        let result = self.try_password(&name, password, client, before).await;
        match &result {
            Ok(Some(_)) => {
                self.attempts.release(&network);
                self.names.forget(&name);
            }
            Ok(None) => {
                tracing::warn!(address = ?client.address, "a sign-in with a password was rejected")
            }
            // An attempt without a result is not counted. Otherwise a database outage would lock
            // people out.
            Err(_) => {
                self.attempts.release(&network);
                self.names.release(&name);
            }
        }
        result?.ok_or_else(|| {
            Problem::new(
                401,
                "sign_in_wrong",
                "Sign-in failed",
                "The name or the password is wrong. If you forgot the password, ask an admin for a \
                 new link.",
            )
        })
    }

    /// `None`: the name or the password is wrong.
    async fn try_password(
        &self,
        name: &str,
        password: Password,
        client: &ClientInfo,
        before: Option<&str>,
    ) -> Result<Option<NewSession>, Problem> {
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let found = store::people::accounts::password_by_name(&mut connection, name)
            .await
            .map_err(failed)?;
        drop(connection);
        let is_short_enough = password.reveal().len() <= 4 * limits::MAX_PASSWORD;
        let password = if is_short_enough { password } else { Password::default() };
        let stored = found.as_ref().map(|(_, stored)| stored.clone());
        let proof = self.hasher.verify(password, stored).await?;
        let (Some((person, _)), Some(proof)) = (found, proof) else { return Ok(None) };
        let (session, origin) = (Token::random()?, client.noted());
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        // The database compares the proof again, because the person may have been disabled or may
        // have changed the password meanwhile.
        let hash = session.hash();
        let begun = store::people::begin_session_by_password(
            &mut transaction,
            person,
            &proof.0,
            &hash,
            SESSION_TIMES,
            &origin,
        )
        .await;
        if !begun.map_err(failed)? {
            return Ok(None);
        }
        record_session(&mut transaction, person, &origin, before, "password").await?;
        transaction.commit().await.map_err(failed)?;
        Ok(Some(NewSession { session, needs_password: false }))
    }
}

/// Whether the actor may set a password without the old one, because they recently signed in with a
/// link.
fn can_set_by_link(actor: &Actor) -> bool {
    actor
        .session
        .as_ref()
        .is_some_and(|session| session.by_link && session.fresh_for <= LINK_SETS_PASSWORD)
}

fn version_conflict(name: &str) -> Problem {
    Problem::new(
        412,
        "changed_meanwhile",
        "Changed in the meantime",
        format!(
            "The account or the permissions of {name} were changed after you loaded them. Reload \
             them, then try again."
        ),
    )
}

async fn offer(
    on: &mut PgConnection,
    by: &Actor,
    person: PersonId,
    name: &str,
) -> Result<OneTimeLink, Problem> {
    let token = Token::random()?;
    store::people::insert_sign_in_link(
        on,
        person,
        &token.hash(),
        LINK_VALIDITY,
        &[REQUIRES_PASSWORD],
    )
    .await
    .map_err(failed)?;
    let detail = json!({"name": name, "valid_seconds": LINK_VALIDITY.as_secs()});
    append_audit(on, Some(by.person), "sign_in.offer", &person.to_string(), &detail)
        .await
        .map_err(failed)?;
    Ok(OneTimeLink {
        link: format!("/sign-in#token={}", token.reveal()),
        minutes: LINK_VALIDITY.as_secs() / 60,
    })
}

/// Refuses a service account to manage an account with permissions beyond its own. As an admin, the
/// account itself has such a permission.
fn require_within(actor: &Actor, permissions: &StoredPermissions) -> Result<(), Problem> {
    if actor.kind != PersonKind::Service {
        return Ok(());
    }
    let Some(permission) = permissions.first_beyond(actor) else { return Ok(()) };
    let reason = match permission {
        Permission::Reviewer | Permission::Admin => "Only a person can do that",
        Permission::Viewer | Permission::Operator => {
            "Its token does not have this permission in all of the same deployments"
        }
    };
    Err(Problem::forbidden(format!(
        "Service account {} cannot manage an account with the permission {}. {reason}. Sign in as \
         an admin.",
        actor.name,
        permission.as_str()
    )))
}

async fn write(
    on: &mut PgConnection,
    id: PersonId,
    given: &StoredPermissions,
) -> Result<(), Problem> {
    let everywhere: Vec<&str> =
        given.everywhere.iter().map(|permission| permission.as_str()).collect();
    let inside =
        given.inside.iter().map(|(permission, place)| (permission.as_str(), *place)).collect();
    store::people::accounts::set_grants(on, id, &everywhere, &inside).await.map_err(failed)
}

fn stored_grants(row: &AccountRow, grants: &[GrantRow]) -> StoredPermissions {
    StoredPermissions {
        everywhere: row.permissions.iter().filter_map(|word| word.parse().ok()).collect(),
        inside: grants
            .iter()
            .filter_map(|grant| {
                Some((grant.permission.parse().ok()?, DeploymentId(grant.deployment_id)))
            })
            .collect(),
    }
}

/// Grants for display. A grant on a removed deployment has no effect and is left out.
fn grant_views(row: &AccountRow, grants: &[GrantRow]) -> Vec<Grant> {
    let everywhere =
        row.permissions.iter().map(|word| Grant { permission: word.clone(), deployment: None });
    let inside = grants.iter().filter(|grant| grant.person_id == row.id).filter_map(|grant| {
        let deployment = grant.deployment.clone()?;
        Some(Grant { permission: grant.permission.clone(), deployment: Some(deployment) })
    });
    everywhere.chain(inside).collect()
}

async fn views(on: &mut PgConnection, rows: Vec<AccountRow>) -> Result<Vec<PersonView>, Problem> {
    let ids: Vec<PersonId> = rows.iter().map(|row| PersonId(row.id)).collect();
    let grants = store::people::accounts::grants(on, &ids).await.map_err(failed)?;
    let view = |row: AccountRow| PersonView {
        id: PersonId(row.id),
        kind: if row.kind == store::people::HUMAN {
            AccountKind::Human
        } else {
            AccountKind::Service
        },
        disabled: row.disabled,
        grants: grant_views(&row, &grants),
        version: row.grants_version,
        password: row.password,
        last_seen: row.last_seen.map(at),
        created: at(row.created_at),
        name: row.name,
    };
    Ok(rows.into_iter().map(view).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gained_permissions_are_detected() {
        let place = DeploymentId(Uuid::from_u128(1));
        let grants_of = |everywhere: &[Permission], inside: &[Permission]| StoredPermissions {
            everywhere: everywhere.iter().copied().collect(),
            inside: inside.iter().map(|permission| (*permission, place)).collect(),
        };
        let (all, part, none) = (
            grants_of(&[Permission::Reviewer], &[]),
            grants_of(&[], &[Permission::Reviewer]),
            grants_of(&[Permission::Viewer], &[]),
        );
        assert!(all.gains(&part, Permission::Reviewer) && part.gains(&none, Permission::Reviewer));
        assert!(
            !part.gains(&all, Permission::Reviewer) && !part.gains(&part, Permission::Reviewer)
        );
        assert!(!none.gains(&all, Permission::Reviewer) && !all.gains(&none, Permission::Admin));
    }
}
