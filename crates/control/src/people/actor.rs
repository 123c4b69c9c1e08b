//! Who asks, and what they may where.
//!
//! # Theory
//!
//! A *grant* is a person, a permission, and a deployment or everywhere; one on a deployment counts for all below it. No permission
//! contains another one, but for looking: whoever may do anything, anywhere, may look at everything. (What one deployment does shows in
//! the others: shared roles, nodes that move, the graph, the journal. A reader who sees half of it is told half the truth.)
//!
//! An act is asked for in one of three ways, and each use case says which:
//! * [`Actor::require`]: everywhere. What all deployments share: the switch, the catalog, records of machines that wait in *system*;
//! * [`Actor::require_in`]: in the deployment that it is about;
//! * [`Actor::require_in_all`]: in each deployment that a submission touches. Which those are is said in one place, the database's
//!   `touched_by`, because its guards count reviewers by it.
//!
//! A *token* acts for its person with what both may, never more, and never as a reviewer: whoever reviews is a person who looks.
//! What only somebody in person may do, such as making tokens, asks [`Actor::require_in_person`].
//!
//! An actor is what was true when a request came in. What writes looks them up again in its own transaction (`Actor::still`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::Problem;
use engine::ids::{DeploymentId, PersonId};
use sqlx::PgConnection;
use store::api_tokens::BearerRow;
use store::people::{self, PersonRow, TokenHash};
use uuid::Uuid;

use super::{PersonKind, Token, failed};

/// What a person may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Look at everything but secrets. Whoever has any permission has this one.
    Viewer,
    /// Propose, commit what is approved, retry, cancel, switch.
    Operator,
    /// Judge what others propose, and commit what is approved.
    Reviewer,
    /// Decide who may come in and do what.
    Admin,
}

impl Permission {
    const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Reviewer, Self::Admin];

    /// The word for people and for the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Reviewer => "reviewer",
            Self::Admin => "admin",
        }
    }

    /// Refuses it for a part of the tree, whether a person or a token is to have it there: who decides about people decides about all of
    /// them. `field`: where it was asked for.
    pub(super) fn require_givable_in_part(self, field: &str) -> Result<(), Problem> {
        match self {
            Self::Viewer | Self::Operator | Self::Reviewer => Ok(()),
            Self::Admin => Err(Problem::invalid(format!(
                "{field}: {self} is given everywhere or not at all: leave the deployment out."
            ))),
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Permission {
    type Err = Problem;

    fn from_str(word: &str) -> Result<Self, Problem> {
        let found = Self::ALL.into_iter().find(|permission| permission.as_str() == word);
        found.ok_or_else(|| {
            Problem::invalid("A permission is one of viewer, operator, reviewer and admin.")
        })
    }
}

/// The session that an actor came with.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    pub(super) hash: TokenHash,
    /// The cookie's value, which each transaction that writes presents to the database.
    pub(super) credential: Token,
    /// By which it is named: whoever has that is not let in by it.
    pub id: Uuid,
    /// How long ago they proved who they are.
    pub fresh_for: Duration,
    /// Whether they did so by a one-time sign-in.
    pub by_link: bool,
    /// The admin whose link began it, until a password is set: it may do nothing else before.
    pub link_by: Option<PersonId>,
    /// Whether its second factor is still to be presented or set up: it may do nothing else before.
    pub lacks_factor: bool,
}

impl Session {
    pub(super) fn of(row: &people::SessionRow, hash: TokenHash, credential: Token) -> Self {
        Self {
            hash,
            credential,
            id: row.id,
            fresh_for: row.fresh_for,
            by_link: row.by_link,
            link_by: row.link_by,
            lacks_factor: row.lacks_factor,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("fresh_for", &self.fresh_for)
            .finish_non_exhaustive()
    }
}

/// The token that an actor came with, and the bounds that it sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// Which.
    pub id: Uuid,
    /// The token itself, which each transaction that writes presents to the database.
    credential: Token,
    scopes: BTreeSet<Permission>,
    inside: Option<BTreeSet<DeploymentId>>,
}

/// Who asks for something. Only this module makes one, of an enabled person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Who.
    pub person: PersonId,
    /// Short name.
    pub name: String,
    /// What they may everywhere.
    pub permissions: BTreeSet<Permission>,
    /// What they may in single deployments besides.
    inside: BTreeMap<DeploymentId, BTreeSet<Permission>>,
    /// What the account stands for.
    pub kind: PersonKind,
    /// None: they came with a token, or were only looked up by name.
    pub session: Option<Session>,
    /// None: they came in person.
    pub token: Option<Bearer>,
}

fn password_needed() -> Problem {
    Problem {
        code: "password_needed".into(),
        ..Problem::forbidden(
            "This session began with a sign-in link that an admin made: set a password first, in My account or with \
             PUT /api/v1/me/password. Until then it may do nothing else.",
        )
    }
}

/// The code of a refusal because the session lacks its second factor.
pub const FACTOR_NEEDED: &str = "second_factor_needed";

pub(super) fn factor_needed() -> Problem {
    Problem {
        code: FACTOR_NEEDED.into(),
        ..Problem::forbidden(
            "This session lacks its second factor. Enter a code of your authenticator app or use a passkey at /second-factor, or send it \
             with POST /api/v1/me/second-factor. If you have none, set one up there first.",
        )
    }
}

fn known(words: &[String]) -> BTreeSet<Permission> {
    words.iter().filter_map(|word| word.parse().ok()).collect()
}

impl Actor {
    pub(super) fn of(row: PersonRow, session: Option<Session>) -> Self {
        let mut actor = Self {
            person: row.id,
            permissions: known(&row.permissions),
            inside: row.inside.iter().map(|(id, words)| (*id, known(words))).collect(),
            kind: PersonKind::of_word(&row.kind),
            name: row.name,
            session,
            token: None,
        };
        // The admin who made the link may have used it: nothing is permitted before there is a password that only the person knows. A
        // person with a stolen password lacks the second factor.
        if actor.needs_password() || actor.needs_factor() {
            actor.permissions.clear();
            actor.inside.clear();
        }
        actor
    }

    /// Whether this session may do nothing but set a password, because an admin's link began it.
    pub fn needs_password(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.link_by.is_some())
    }

    /// Refuses a session that may only set a password.
    ///
    /// # Errors
    /// `password_needed` (403).
    pub fn require_password(&self) -> Result<(), Problem> {
        match self.needs_password() {
            true => Err(password_needed()),
            false => Ok(()),
        }
    }

    /// Whether this session may do nothing but present or set up a second factor.
    pub fn needs_factor(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.lacks_factor)
    }

    /// Refuses a session that lacks its second factor.
    ///
    /// # Errors
    /// `second_factor_needed` (403).
    pub fn require_factor(&self) -> Result<(), Problem> {
        match self.needs_factor() {
            true => Err(factor_needed()),
            false => Ok(()),
        }
    }

    pub(super) fn of_bearer(row: BearerRow, credential: Token) -> Self {
        let bearer =
            Bearer { id: row.id, credential, scopes: known(&row.scopes), inside: row.inside };
        Self::of(row.person, None).bound_by(bearer)
    }

    /// The same token's actor as of another look-up.
    pub(super) fn of_bearer_again(row: BearerRow, token: &Bearer) -> Self {
        Self::of_bearer(row, token.credential.clone())
    }

    /// The same person, as far as a token lets them.
    fn bound_by(mut self, token: Bearer) -> Self {
        let mut kept = token.scopes.clone();
        kept.remove(&Permission::Reviewer);
        let looks = kept.contains(&Permission::Viewer) && self.may(Permission::Viewer);
        self.permissions.retain(|permission| kept.contains(permission));
        for permissions in self.inside.values_mut() {
            permissions.retain(|permission| kept.contains(permission));
        }
        if let Some(places) = &token.inside {
            let everywhere = std::mem::take(&mut self.permissions);
            self.inside.retain(|place, _| places.contains(place));
            for place in places {
                self.inside.entry(*place).or_default().extend(everywhere.iter().copied());
            }
        }
        self.inside.retain(|_, permissions| !permissions.is_empty());
        if looks {
            self.permissions.insert(Permission::Viewer);
        }
        self.token = Some(token);
        self
    }

    /// Whether they have a permission everywhere. Looking is for whoever may anything anywhere.
    pub fn may(&self, permission: Permission) -> bool {
        match permission {
            Permission::Viewer => !self.permissions.is_empty() || !self.inside.is_empty(),
            other => self.permissions.contains(&other),
        }
    }

    /// Whether they have a permission in a deployment.
    pub fn may_in(&self, permission: Permission, place: DeploymentId) -> bool {
        self.may(permission)
            || self.inside.get(&place).is_some_and(|given| given.contains(&permission))
    }

    /// Whether they have a permission in all of these deployments; in none of none.
    pub fn may_in_all(&self, permission: Permission, places: &BTreeSet<DeploymentId>) -> bool {
        self.may(permission)
            || (!places.is_empty() && places.iter().all(|place| self.may_in(permission, *place)))
    }

    /// Whether they have a permission in some deployment at least.
    pub fn may_somewhere(&self, permission: Permission) -> bool {
        self.may(permission) || self.inside.values().any(|given| given.contains(&permission))
    }

    /// Whether all that they may, they may everywhere: then nobody has to ask where.
    pub fn is_everywhere(&self) -> bool {
        self.inside.is_empty()
    }

    /// The actor as of this transaction, and until it ends. A request may have waited for a lock since it was looked up who sent it;
    /// whoever was signed out, disabled or deprived of a permission meanwhile does not get through.
    ///
    /// Every use case that writes asks this, and then the permission again. It does so behind the locks that are held for long (APPLY,
    /// the head, a proposal): whoever waits for those must not keep an admin from disabling somebody.
    ///
    /// From here on the transaction acts for this person: the database refuses what it writes in anybody else's name. An actor without
    /// a session or token ([`super::People::actor_by_name`]) reads only.
    ///
    /// # Errors
    /// Signed out, when they are not let in any more.
    pub(crate) async fn still(&self, on: &mut PgConnection) -> Result<Self, Problem> {
        // The person first, as whoever disables one does.
        let row = people::lock_person(on, self.person)
            .await
            .map_err(failed)?
            .ok_or_else(Problem::signed_out)?;
        let credential = match (&self.session, &self.token) {
            (_, Some(token)) => &token.credential,
            (Some(session), None) => &session.credential,
            (None, None) => return Err(Problem::signed_out()),
        };
        let acting = people::act_as(on, credential.reveal()).await.map_err(failed)?;
        let (_, lacks_factor) =
            acting.filter(|(person, _)| *person == self.person).ok_or_else(Problem::signed_out)?;
        let now =
            Self::of(row, self.session.clone().map(|session| Session { lacks_factor, ..session }));
        Ok(match &self.token {
            Some(token) => now.bound_by(token.clone()),
            None => now,
        })
    }

    fn missing(&self, permission: Permission, place: &str) -> Problem {
        if let Err(problem) = self.require_password().and_then(|()| self.require_factor()) {
            return problem;
        }
        let who = if self.token.is_some() {
            format!("This token of {}", self.name)
        } else {
            self.name.clone()
        };
        Problem::permission_missing(format!(
            "{who} does not have the permission {permission}{place}; an admin can give it."
        ))
    }

    /// Goes on only with a permission that counts everywhere.
    ///
    /// # Errors
    /// Forbidden, with what is missing and who can give it.
    pub fn require(&self, permission: Permission) -> Result<(), Problem> {
        if self.may(permission) {
            return Ok(());
        }
        let place =
            if self.may_somewhere(permission) { " everywhere, which this takes" } else { "" };
        Err(self.missing(permission, place))
    }

    /// Goes on only with a permission in a deployment.
    ///
    /// # Errors
    /// Forbidden, with what is missing and who can give it.
    pub fn require_in(&self, permission: Permission, place: DeploymentId) -> Result<(), Problem> {
        self.require_in_all(permission, &[place].into())
    }

    /// Goes on only with a permission in all of these deployments.
    ///
    /// # Errors
    /// Forbidden, with what is missing and who can give it.
    pub fn require_in_all(
        &self,
        permission: Permission,
        places: &BTreeSet<DeploymentId>,
    ) -> Result<(), Problem> {
        if self.may_in_all(permission, places) {
            return Ok(());
        }
        let place = match self.may_somewhere(permission) {
            true if places.len() > 1 => " in all deployments that this touches",
            true => " in this deployment",
            false => "",
        };
        Err(self.missing(permission, place))
    }

    /// Goes on with a permission in some deployment at least: in which one it takes is not known yet, and is asked once it is.
    ///
    /// # Errors
    /// Forbidden, with what is missing and who can give it.
    pub fn require_somewhere(&self, permission: Permission) -> Result<(), Problem> {
        if self.may_somewhere(permission) { Ok(()) } else { Err(self.missing(permission, "")) }
    }

    /// Goes on only with one of several permissions, in all of these deployments.
    ///
    /// # Errors
    /// As [`Actor::require_in_all`].
    pub fn require_any_in_all(
        &self,
        permissions: &[Permission],
        places: &BTreeSet<DeploymentId>,
    ) -> Result<(), Problem> {
        if permissions.iter().any(|permission| self.may_in_all(*permission, places)) {
            return Ok(());
        }
        Err(self.has_none_of(permissions))
    }

    /// Goes on with one of several permissions in some deployment at least.
    ///
    /// # Errors
    /// As [`Actor::require_somewhere`].
    pub fn require_any_somewhere(&self, permissions: &[Permission]) -> Result<(), Problem> {
        if permissions.iter().any(|permission| self.may_somewhere(*permission)) {
            return Ok(());
        }
        Err(self.has_none_of(permissions))
    }

    fn has_none_of(&self, permissions: &[Permission]) -> Problem {
        if let Err(problem) = self.require_password().and_then(|()| self.require_factor()) {
            return problem;
        }
        let words: Vec<&str> = permissions.iter().map(|permission| permission.as_str()).collect();
        let place = match permissions.iter().any(|permission| self.may_somewhere(*permission)) {
            true => " wherever this does something",
            false => "",
        };
        Problem::permission_missing(format!(
            "{} has none of the permissions {}{place}; an admin can give one.",
            self.name,
            words.join(", ")
        ))
    }

    /// Goes on only with somebody who came in person: not by a token.
    ///
    /// # Errors
    /// Forbidden.
    pub fn require_in_person(&self) -> Result<(), Problem> {
        self.require_password()?;
        self.require_factor()?;
        self.require_human()
    }

    /// The same, also for a session that lacks its second factor.
    ///
    /// # Errors
    /// Forbidden.
    pub fn require_to_enrol(&self) -> Result<(), Problem> {
        self.require_password()?;
        self.require_human()
    }

    /// The same, also for a session that may only set a password.
    pub(super) fn require_human(&self) -> Result<(), Problem> {
        match (&self.token, self.kind) {
            (None, PersonKind::Human) => Ok(()),
            _ => Err(Problem {
                code: "in_person".into(),
                ..Problem::forbidden(
                    "No token does this: sign in with a browser, as the person that you are.",
                )
            }),
        }
    }

    /// The words of all permissions that they have everywhere, and of those that they have in parts of the tree.
    pub fn permission_words(&self) -> Vec<String> {
        let inside =
            self.inside.values().flatten().copied().filter(|p| !self.permissions.contains(p));
        let inside: BTreeSet<Permission> = inside.collect();
        let everywhere = self.permissions.iter().map(ToString::to_string);
        everywhere
            .chain(inside.iter().map(|permission| format!("{permission} in some deployments")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u128) -> DeploymentId {
        DeploymentId(Uuid::from_u128(n))
    }

    fn actor(everywhere: &[&str], inside: &[(u128, &[&str])]) -> Actor {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let row = PersonRow {
            id: PersonId(Uuid::nil()),
            name: "ada".into(),
            kind: "human".into(),
            disabled: false,
            permissions: words(everywhere),
            inside: inside.iter().map(|(n, given)| (place(*n), words(given))).collect(),
        };
        Actor::of(row, None)
    }

    fn token(scopes: &[Permission], inside: Option<&[u128]>) -> Bearer {
        let inside = inside.map(|places| places.iter().map(|n| place(*n)).collect());
        let credential = Token("gantry_x".into());
        Bearer { id: Uuid::nil(), credential, scopes: scopes.iter().copied().collect(), inside }
    }

    #[test]
    fn a_grant_counts_where_it_was_given() {
        let ada = actor(&["viewer"], &[(1, &["operator"]), (2, &["operator", "reviewer"])]);
        assert!(ada.may(Permission::Viewer) && !ada.may(Permission::Operator));
        assert!(ada.require_in(Permission::Operator, place(1)).is_ok());
        assert!(ada.require_in(Permission::Reviewer, place(1)).is_err());
        assert!(ada.require_in(Permission::Operator, place(3)).is_err());
        let both = [place(1), place(2)].into();
        assert!(
            ada.may_in_all(Permission::Operator, &both)
                && !ada.may_in_all(Permission::Reviewer, &both)
        );
        let any = [Permission::Operator, Permission::Reviewer];
        assert!(ada.require_any_in_all(&any, &both).is_ok());
        assert!(ada.require_any_in_all(&any, &[place(1), place(3)].into()).is_err());
        assert!(
            !ada.may_in_all(Permission::Operator, &BTreeSet::new()),
            "nowhere is no place where they may"
        );
        assert!(actor(&["operator"], &[]).may_in_all(Permission::Operator, &BTreeSet::new()));
        assert!(
            ada.require_somewhere(Permission::Operator).is_ok()
                && ada.require_somewhere(Permission::Admin).is_err()
        );
        assert!(
            !actor(&[], &[]).may(Permission::Viewer)
                && actor(&[], &[(1, &["viewer"])]).may(Permission::Viewer)
        );
    }

    #[test]
    fn a_token_gives_what_both_may_and_never_reviews() {
        let all = Permission::ALL;
        let ada = actor(&["operator", "reviewer"], &[(1, &["admin", "reviewer"])]);
        let free = ada.clone().bound_by(token(&all, None));
        assert!(free.may(Permission::Operator) && !free.may_somewhere(Permission::Reviewer));
        assert!(free.require_in_person().is_err() && ada.require_in_person().is_ok());
        let bound = ada.clone().bound_by(token(&[Permission::Operator], Some(&[2, 3])));
        assert!(!bound.may(Permission::Operator) && bound.may_in(Permission::Operator, place(2)));
        assert!(
            !bound.may_in(Permission::Operator, place(1)),
            "of its person's places only those of both"
        );
        let looks = ada.bound_by(token(&[Permission::Viewer], None));
        assert!(!looks.may_somewhere(Permission::Operator));
        assert!(
            looks.may(Permission::Viewer),
            "whoever may anything may look, and so may their token"
        );
        let nobody = actor(&[], &[]).bound_by(token(&all, None));
        assert!(!nobody.may(Permission::Viewer));
    }
}
