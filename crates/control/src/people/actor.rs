//! The actor of a request, and their permissions per deployment.
//!
//! A *grant* gives a person a permission, either everywhere or in a deployment and its descendants.
//! No permission contains another one, except that every grant includes Viewer everywhere. The
//! reason: deployments share roles, nodes, the graph and the journal, so a view of only one would
//! be misleading.
//!
//! Each use case states where it needs its permission:
//! * [`Actor::require`]: everywhere. For shared things: the execution switch, the catalog, records
//!   of nodes that are still in *system*.
//! * [`Actor::require_in`]: in the deployment that the request is about.
//! * [`Actor::require_in_all`]: in each deployment that a review touches. The database function
//!   `touched_by` defines these, because the database's guards count reviewers with it.
//!
//! A *token* has the permissions that both the token and its person have, and never Reviewer: only
//! people review. Actions that a person must do themselves, such as creating tokens, use
//! [`Actor::require_in_person`]. A service account that is an admin manages accounts with a token,
//! but none that has a permission beyond its own (`acting_manages` in the database).
//!
//! An actor reflects the state at the start of the request. Every write loads the actor again in
//! its own transaction (`Actor::revalidate`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::Problem;
use engine::ids::{DeploymentId, PersonId};
use sqlx::PgConnection;
use store::people::api_tokens::BearerRow;
use store::people::{PersonRow, TokenHash};
use uuid::Uuid;

use super::{PersonKind, Token, failed};

/// Maximum number of deployments that an error about a missing permission names.
const MAX_NAMED_DEPLOYMENTS: usize = 5;

/// A permission of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// See everything except secrets. Every other permission includes this one.
    Viewer,
    /// Propose, commit approved changes, retry, cancel, pause and resume.
    Operator,
    /// Review proposals of others, and commit approved changes.
    Reviewer,
    /// Manage people and their permissions.
    Admin,
}

impl Permission {
    const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Reviewer, Self::Admin];

    /// The value in the database and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Reviewer => "reviewer",
            Self::Admin => "admin",
        }
    }

    /// Refuses a grant or a token of Admin for a single deployment, because an admin manages all
    /// people. `field` is the request field.
    pub(super) fn require_deployment_scope(self, field: &str) -> Result<(), Problem> {
        match self {
            Self::Viewer | Self::Operator | Self::Reviewer => Ok(()),
            Self::Admin => Err(Problem::invalid(format!(
                "{field}: The permission {self} always applies everywhere. Omit the deployment."
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
            Problem::invalid("Unknown permission. Use viewer, operator, reviewer or admin.")
        })
    }
}

/// The session of an actor.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    pub(super) hash: TokenHash,
    /// The cookie's value. Each transaction that writes presents it to the database.
    pub(super) credential: Token,
    /// Public id of the session. It does not authenticate.
    pub id: Uuid,
    /// Time since the sign-in.
    pub fresh_for: Duration,
    /// Whether the session began with a one-time link.
    pub by_link: bool,
    /// The admin whose link began the session, until a password is set. Until then the session can
    /// only do that.
    pub link_by: Option<PersonId>,
    /// Whether the second factor is missing. Until it is presented or set up, the session can only
    /// do that.
    pub lacks_factor: bool,
}

impl Session {
    pub(super) fn of(row: &store::people::SessionRow, hash: TokenHash, credential: Token) -> Self {
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

/// The token of an actor, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    pub id: Uuid,
    /// The token's value. Each transaction that writes presents it to the database.
    credential: Token,
    scopes: BTreeSet<Permission>,
    inside: Option<BTreeSet<DeploymentId>>,
}

/// The authenticated sender of a request. Only this module creates one, and only for an enabled
/// person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub person: PersonId,
    /// Short name.
    pub name: String,
    /// Permissions that apply everywhere.
    pub permissions: BTreeSet<Permission>,
    /// Additional permissions in single deployments.
    inside: BTreeMap<DeploymentId, BTreeSet<Permission>>,
    pub kind: PersonKind,
    /// `None` if the actor uses a token or was only looked up by name.
    pub session: Option<Session>,
    /// `None` unless the request is authenticated with a token.
    pub token: Option<Bearer>,
}

fn password_needed() -> Problem {
    Problem {
        code: "password_needed".into(),
        ..Problem::forbidden(
            "This session began with a sign-in link from an admin. Set a password in My account, with \
             `gantry session password` or with PUT /api/v1/me/password. Until then, you can do \
             nothing else.",
        )
    }
}

/// The error code for a session that lacks its second factor.
pub const FACTOR_NEEDED: &str = "second_factor_needed";

pub(super) fn factor_needed() -> Problem {
    Problem {
        code: FACTOR_NEEDED.into(),
        ..Problem::forbidden(
            "This session lacks its second factor. Enter a code from your authenticator app or use \
             a passkey at /second-factor. API clients use POST /api/v1/me/second-factor. If you \
             have no second factor, set one up there first.",
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
            kind: PersonKind::from_stored(&row.kind),
            name: row.name,
            session,
            token: None,
        };
        // The admin who created the link may be the one who used it. So nothing is permitted until
        // the person has set a password. Without the second factor, the password may be stolen.
        if actor.needs_password() || actor.needs_factor() {
            actor.permissions.clear();
            actor.inside.clear();
        }
        actor
    }

    /// Whether the session may only set a password, because it began with an admin's link.
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

    /// Whether the session may only present or set up a second factor.
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

    pub(super) fn from_bearer(row: BearerRow, credential: Token) -> Self {
        let bearer =
            Bearer { id: row.id, credential, scopes: known(&row.scopes), inside: row.inside };
        Self::of(row.person, None).limited_to(bearer)
    }

    /// The actor of the same token, after a new lookup.
    pub(super) fn reload_bearer(row: BearerRow, token: &Bearer) -> Self {
        Self::from_bearer(row, token.credential.clone())
    }

    /// Reduces the permissions to those of a token.
    fn limited_to(mut self, token: Bearer) -> Self {
        let mut allowed = token.scopes.clone();
        allowed.remove(&Permission::Reviewer);
        let looks = allowed.contains(&Permission::Viewer) && self.may(Permission::Viewer);
        self.permissions.retain(|permission| allowed.contains(permission));
        for permissions in self.inside.values_mut() {
            permissions.retain(|permission| allowed.contains(permission));
        }
        if let Some(deployments) = &token.inside {
            let everywhere = std::mem::take(&mut self.permissions);
            self.inside.retain(|place, _| deployments.contains(place));
            for place in deployments {
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

    /// Whether the actor has the permission everywhere. Any permission anywhere includes Viewer.
    pub fn may(&self, permission: Permission) -> bool {
        match permission {
            Permission::Viewer => !self.permissions.is_empty() || !self.inside.is_empty(),
            other => self.permissions.contains(&other),
        }
    }

    /// Whether the actor has the permission in a deployment.
    pub fn has_permission_in(&self, permission: Permission, place: DeploymentId) -> bool {
        self.may(permission)
            || self.inside.get(&place).is_some_and(|given| given.contains(&permission))
    }

    /// Whether the actor has the permission in all of these deployments. For an empty set, they
    /// need it everywhere.
    pub fn has_permission_in_all(
        &self,
        permission: Permission,
        deployments: &BTreeSet<DeploymentId>,
    ) -> bool {
        self.may(permission)
            || (!deployments.is_empty()
                && deployments.iter().all(|place| self.has_permission_in(permission, *place)))
    }

    /// Whether the actor has the permission in at least one deployment.
    pub fn has_permission_somewhere(&self, permission: Permission) -> bool {
        self.may(permission) || self.inside.values().any(|given| given.contains(&permission))
    }

    /// Whether all permissions of the actor apply everywhere.
    pub fn is_unrestricted(&self) -> bool {
        self.inside.is_empty()
    }

    /// Loads the actor again and locks their row until the transaction ends. The request may have
    /// waited for a lock; meanwhile the person may have signed out, been disabled, or lost a
    /// permission.
    ///
    /// Every use case that writes calls this and then checks the permission again. It takes the
    /// long-held locks (APPLY, the head, a proposal) first. Otherwise a request that waits for them
    /// would keep an admin from disabling the person.
    ///
    /// From here on the transaction acts for this person: the database refuses writes in any other
    /// person's name. An actor without session and token ([`super::People::actor_by_name`]) can
    /// only read.
    ///
    /// # Errors
    /// Signed out (401) if the session or token is no longer valid.
    pub(crate) async fn revalidate(&self, connection: &mut PgConnection) -> Result<Self, Problem> {
        // Lock the person first, in the same order as disabling does.
        let row = store::people::lock_person(connection, self.person)
            .await
            .map_err(failed)?
            .ok_or_else(Problem::signed_out)?;
        let credential = match (&self.session, &self.token) {
            (_, Some(token)) => &token.credential,
            (Some(session), None) => &session.credential,
            (None, None) => return Err(Problem::signed_out()),
        };
        let acting_person =
            store::people::act_as(connection, credential.reveal()).await.map_err(failed)?;
        let (_, lacks_factor) = acting_person
            .filter(|(person, _)| *person == self.person)
            .ok_or_else(Problem::signed_out)?;
        let current =
            Self::of(row, self.session.clone().map(|session| Session { lacks_factor, ..session }));
        Ok(match &self.token {
            Some(token) => current.limited_to(token.clone()),
            None => current,
        })
    }

    fn missing(&self, permission: Permission, place: &str) -> Problem {
        if let Err(problem) = self.require_password().and_then(|()| self.require_factor()) {
            return problem;
        }
        if self.token.is_some() {
            return Problem::forbidden(format!(
                "Permission missing: this token of {} does not have the permission \
                 {permission}{place}. Use a token that has it. A token can have only the \
                 permissions of its owner.",
                self.name
            ));
        }
        Problem::permission_missing(format!(
            "Permission missing: {} does not have the permission {permission}{place}. An admin can \
             grant it.",
            self.name
        ))
    }

    /// Requires the permission everywhere.
    ///
    /// # Errors
    /// Forbidden (403), with the missing permission and the people who can grant it.
    pub fn require(&self, permission: Permission) -> Result<(), Problem> {
        if self.may(permission) {
            return Ok(());
        }
        let place = if self.has_permission_somewhere(permission) {
            " for all deployments, which this action requires"
        } else {
            ""
        };
        Err(self.missing(permission, place))
    }

    /// Requires the permission in a deployment.
    ///
    /// # Errors
    /// Forbidden (403), with the missing permission and the people who can grant it.
    pub fn require_in(&self, permission: Permission, place: DeploymentId) -> Result<(), Problem> {
        if self.has_permission_in(permission, place) {
            return Ok(());
        }
        let place = match self.has_permission_somewhere(permission) {
            true => " in this deployment",
            false => "",
        };
        Err(self.missing(permission, place))
    }

    /// Requires the permission in all of these deployments. The error names those without it.
    ///
    /// # Errors
    /// Forbidden (403), with the missing permission and the people who can grant it.
    pub fn require_in_all(
        &self,
        permission: Permission,
        deployments: &BTreeSet<DeploymentId>,
        name: impl Fn(DeploymentId) -> String,
    ) -> Result<(), Problem> {
        if self.has_permission_in_all(permission, deployments) {
            return Ok(());
        }
        let missing = deployments.iter().filter(|id| !self.has_permission_in(permission, **id));
        let place = match self.has_permission_somewhere(permission) {
            true => in_deployments(missing.map(|id| name(*id)).collect()),
            false => String::new(),
        };
        Err(self.missing(permission, &place))
    }

    /// Requires the permission in at least one deployment. Used while the deployment is not known
    /// yet; a second check follows.
    ///
    /// # Errors
    /// Forbidden (403), with the missing permission and the people who can grant it.
    pub fn require_somewhere(&self, permission: Permission) -> Result<(), Problem> {
        if self.has_permission_somewhere(permission) {
            Ok(())
        } else {
            Err(self.missing(permission, ""))
        }
    }

    /// Requires one of several permissions in a deployment.
    ///
    /// # Errors
    /// As [`Actor::require_in`].
    pub fn require_any_in(
        &self,
        permissions: &[Permission],
        deployment: DeploymentId,
    ) -> Result<(), Problem> {
        if permissions.iter().any(|permission| self.has_permission_in(*permission, deployment)) {
            return Ok(());
        }
        Err(self.permissions_missing(permissions, " in this deployment"))
    }

    /// Requires one of several permissions, the same one in all of these deployments. The error
    /// names the deployments.
    ///
    /// # Errors
    /// As [`Actor::require_in_all`].
    pub fn require_any_in_all(
        &self,
        permissions: &[Permission],
        deployments: &BTreeSet<DeploymentId>,
        name: impl Fn(DeploymentId) -> String,
    ) -> Result<(), Problem> {
        if permissions.iter().any(|permission| self.has_permission_in_all(*permission, deployments))
        {
            return Ok(());
        }
        let place = in_deployments(deployments.iter().map(|id| name(*id)).collect());
        Err(self.permissions_missing(permissions, &place))
    }

    /// Requires one of several permissions in at least one deployment.
    ///
    /// # Errors
    /// As [`Actor::require_somewhere`].
    pub fn require_any_somewhere(&self, permissions: &[Permission]) -> Result<(), Problem> {
        if permissions.iter().any(|permission| self.has_permission_somewhere(*permission)) {
            return Ok(());
        }
        Err(self.permissions_missing(permissions, ""))
    }

    /// `place` is named if the permissions exist elsewhere.
    fn permissions_missing(&self, permissions: &[Permission], place: &str) -> Problem {
        if let Err(problem) = self.require_password().and_then(|()| self.require_factor()) {
            return problem;
        }
        let words: Vec<&str> = permissions.iter().map(|permission| permission.as_str()).collect();
        let exist_elsewhere =
            permissions.iter().any(|permission| self.has_permission_somewhere(*permission));
        Problem::permission_missing(format!(
            "Permission missing: {} has none of the permissions {}{}. An admin can grant one.",
            self.name,
            words.join(", "),
            if exist_elsewhere { place } else { "" }
        ))
    }

    /// Requires a person with a browser session, not a token.
    ///
    /// # Errors
    /// Forbidden (403).
    pub fn require_in_person(&self) -> Result<(), Problem> {
        self.require_password()?;
        self.require_factor()?;
        self.require_human()
    }

    /// Requires an admin: a person with a session, or a token of a service account.
    ///
    /// A token of a person does not suffice, so that a leaked token gives no one access.
    ///
    /// # Errors
    /// Forbidden (403).
    pub fn require_manager(&self) -> Result<(), Problem> {
        if self.kind != PersonKind::Service {
            self.require_in_person()?;
        }
        self.require(Permission::Admin)
    }

    /// Like [`Actor::require_in_person`], but accepts a session that lacks its second factor.
    ///
    /// # Errors
    /// Forbidden (403).
    pub fn require_enrollable(&self) -> Result<(), Problem> {
        self.require_password()?;
        self.require_human()
    }

    /// Like [`Actor::require_enrollable`], but also accepts a session that may only set a password.
    pub(super) fn require_human(&self) -> Result<(), Problem> {
        match (&self.token, self.kind) {
            (None, PersonKind::Human) => Ok(()),
            _ => Err(Problem {
                code: "session_required".into(),
                ..Problem::forbidden(
                    "Tokens and service accounts cannot do this. Sign in with a browser as a \
                     person.",
                )
            }),
        }
    }

    /// The names of all permissions that the actor has, everywhere or in single deployments.
    pub fn permission_names(&self) -> Vec<String> {
        let inside =
            self.inside.values().flatten().copied().filter(|p| !self.permissions.contains(p));
        let inside: BTreeSet<Permission> = inside.collect();
        let everywhere = self.permissions.iter().map(ToString::to_string);
        everywhere
            .chain(inside.iter().map(|permission| format!("{permission} in some deployments")))
            .collect()
    }
}

/// ` in deployment web`, ` in the deployments edge, web`; at most a few names.
pub(crate) fn in_deployments(mut names: Vec<String>) -> String {
    names.sort();
    let more = names.len().saturating_sub(MAX_NAMED_DEPLOYMENTS);
    match names.as_slice() {
        [] => String::new(),
        [name] => format!(" in deployment {name}"),
        [..] if more > 0 => {
            let named = names[..MAX_NAMED_DEPLOYMENTS].join(", ");
            format!(" in the deployments {named} and {more} more")
        }
        names => format!(" in the deployments {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(n: u128) -> DeploymentId {
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
            inside: inside.iter().map(|(n, given)| (deployment(*n), words(given))).collect(),
        };
        Actor::of(row, None)
    }

    fn token(scopes: &[Permission], inside: Option<&[u128]>) -> Bearer {
        let inside = inside.map(|deployments| deployments.iter().map(|n| deployment(*n)).collect());
        let credential = Token("gantry_x".into());
        Bearer { id: Uuid::nil(), credential, scopes: scopes.iter().copied().collect(), inside }
    }

    #[test]
    fn grant_applies_in_its_deployment() {
        let ada = actor(&["viewer"], &[(1, &["operator"]), (2, &["operator", "reviewer"])]);
        assert!(ada.may(Permission::Viewer) && !ada.may(Permission::Operator));
        assert!(ada.require_in(Permission::Operator, deployment(1)).is_ok());
        assert!(ada.require_in(Permission::Reviewer, deployment(1)).is_err());
        assert!(ada.require_in(Permission::Operator, deployment(3)).is_err());
        let both = [deployment(1), deployment(2)].into();
        assert!(
            ada.has_permission_in_all(Permission::Operator, &both)
                && !ada.has_permission_in_all(Permission::Reviewer, &both)
        );
        let all = (1..=9).map(deployment).collect();
        let name = |id: DeploymentId| format!("d{}", id.0.as_u128());
        let detail = |deployments: &BTreeSet<DeploymentId>| {
            ada.require_in_all(Permission::Operator, deployments, name).unwrap_err().detail
        };
        assert!(ada.require_in_all(Permission::Operator, &both, name).is_ok());
        let (one, many) = (detail(&[deployment(2), deployment(3)].into()), detail(&all));
        assert!(one.contains("the permission operator in deployment d3."), "{one}");
        assert!(many.contains("in the deployments d3, d4, d5, d6, d7 and 2 more."), "{many}");
        let any = [Permission::Operator, Permission::Reviewer];
        assert!(ada.require_any_in_all(&any, &both, name).is_ok());
        let missing = [deployment(1), deployment(3)].into();
        let missing = ada.require_any_in_all(&any, &missing, name).unwrap_err().detail;
        assert!(
            missing.contains("permissions operator, reviewer in the deployments d1, d3."),
            "{missing}"
        );
        assert!(ada.require_any_in(&any, deployment(1)).is_ok());
        let missing = ada.require_any_in(&any, deployment(3)).unwrap_err().detail;
        assert!(missing.contains("operator, reviewer in this deployment."), "{missing}");
        assert!(
            !ada.has_permission_in_all(Permission::Operator, &BTreeSet::new()),
            "an empty set of deployments grants nothing"
        );
        assert!(
            actor(&["operator"], &[]).has_permission_in_all(Permission::Operator, &BTreeSet::new())
        );
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
    fn token_has_common_permissions_without_reviewer() {
        let all = Permission::ALL;
        let ada = actor(&["operator", "reviewer"], &[(1, &["admin", "reviewer"])]);
        let free = ada.clone().limited_to(token(&all, None));
        assert!(
            free.may(Permission::Operator) && !free.has_permission_somewhere(Permission::Reviewer)
        );
        assert!(free.require_in_person().is_err() && ada.require_in_person().is_ok());
        let bound = ada.clone().limited_to(token(&[Permission::Operator], Some(&[2, 3])));
        assert!(
            !bound.may(Permission::Operator)
                && bound.has_permission_in(Permission::Operator, deployment(2))
        );
        assert!(
            !bound.has_permission_in(Permission::Operator, deployment(1)),
            "only the deployments that the token and its person have in common"
        );
        let looks = ada.limited_to(token(&[Permission::Viewer], None));
        assert!(!looks.has_permission_somewhere(Permission::Operator));
        assert!(
            looks.may(Permission::Viewer),
            "every permission includes viewer, for people and for their tokens"
        );
        let nobody = actor(&[], &[]).limited_to(token(&all, None));
        assert!(!nobody.may(Permission::Viewer));
    }
}
