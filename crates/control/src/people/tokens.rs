//! API tokens, which act for a person or a service account.
//!
//! A token is `gantry_` and 256 random bits; scanners for leaked secrets recognize the prefix. It
//! is shown once and stored as its SHA-256. Each request evaluates its permissions again: those
//! that both its person and the token have ([`super::actor`]).

use std::collections::BTreeSet;
use std::time::Duration;

use api::limits::LISTED_TOKENS;
use api::listing::{Key, Limit, PAGE_SIZE};
use api::names::TOKEN_PREFIX;
use api::people::{CreatedToken, TokenPage, TokenRequest, TokenSort, TokenView, TokensQuery};
use api::{Problem, limits};
use engine::counting::many;
use engine::ids::{DeploymentId, DeploymentName, PersonId};
use serde_json::json;
use store::audit::append_audit;
use store::people::api_tokens::{ApiTokenRow, MAX_TOKENS, NewToken};
use uuid::Uuid;

use super::{Actor, MAX_TOKEN_LENGTH, People, Permission, PersonKind, Token, failed, hash_of};
use crate::cursor;
use crate::text::{self, at};

const DAY: u64 = 24 * 3600;

impl People {
    /// The actor of a token, with the token's limits. `None` if the token is invalid or revoked.
    ///
    /// # Errors
    /// `too_many_requests` (429) beyond the request limit.
    pub async fn actor_of_token(&self, token: &str) -> Result<Option<Actor>, Problem> {
        if !token.starts_with(TOKEN_PREFIX) || token.len() > MAX_TOKEN_LENGTH {
            return Ok(None);
        }
        let found = store::people::api_tokens::bearer(self.store.pool(), &hash_of(token))
            .await
            .map_err(failed)?;
        let Some(found) = found else { return Ok(None) };
        self.requests.take(found.id).map_err(|wait| {
            let most = super::throttle::MAX_BY_TOKEN;
            let detail = format!(
                "A token can send {most} requests per minute. Try again in {}.",
                many(wait.as_secs().max(1), "second")
            );
            Problem::new(429, "too_many_requests", "Too many requests", detail).again_after(wait)
        })?;
        if found.note_due {
            store::people::api_tokens::record_use(self.store.pool(), found.id)
                .await
                .map_err(failed)?;
        }
        Ok(Some(Actor::from_bearer(found, Token(token.to_owned()))))
    }

    /// Creates a token for the actor, or as an admin for a service account.
    ///
    /// # Errors
    /// If the token would have more permissions than its person, Reviewer, Admin in a single
    /// deployment, or too long a validity. Also if the actor uses a token.
    pub async fn create_token(
        &self,
        actor: &Actor,
        input: &TokenRequest,
    ) -> Result<CreatedToken, Problem> {
        actor.require_in_person()?;
        let name = text::plain(&input.name)?;
        if name.is_empty()
            || name.chars().count() > limits::NODE_TOKEN_NAME
            || name.contains(['\n', '\t'])
        {
            let most = limits::NODE_TOKEN_NAME;
            return Err(Problem::invalid(format!(
                "name: must be one line of 1 to {most} characters. Describe the purpose of the \
                 token."
            )));
        }
        if input.days == 0 || input.days > limits::API_TOKEN_DAYS {
            return Err(Problem::invalid(format!(
                "days: must be from 1 to {}.",
                limits::API_TOKEN_DAYS
            )));
        }
        let scopes = scopes(&input.scopes)?;
        if input.deployment.is_some() {
            scopes.iter().try_for_each(|scope| scope.require_deployment_scope("deployment"))?;
        }
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let owner = input.person.unwrap_or(actor.person);
        store::people::accounts::lock_people(&mut transaction, &[actor.person, owner])
            .await
            .map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let account = match owner == actor.person {
            true => actor.clone(),
            false => {
                actor.require(Permission::Admin)?;
                let row =
                    store::people::lock_person(&mut transaction, owner).await.map_err(failed)?;
                let row = row.ok_or_else(|| {
                    Problem::not_found("This service account does not exist or is disabled.")
                })?;
                Actor::of(row, None)
            }
        };
        if owner != actor.person && account.kind == PersonKind::Human {
            return Err(Problem::forbidden(
                "You cannot create tokens for other people. Create tokens for yourself or for a \
                 service account.",
            ));
        }
        let deployment =
            self.find_deployment(&mut transaction, input.deployment.as_deref()).await?;
        for scope in &scopes {
            let may = deployment.map_or_else(
                || account.has_permission_somewhere(*scope),
                |place| account.has_permission_in(*scope, place),
            );
            let is_viewer = *scope == Permission::Viewer && account.may(Permission::Viewer);
            if !may && !is_viewer {
                return Err(Problem::forbidden(format!(
                    "A token cannot have more permissions than its account. Account {} does not \
                     have the permission {scope} there.",
                    account.name
                )));
            }
        }
        let token = Token::for_api_clients()?;
        let new = NewToken {
            person: owner,
            hash: token.hash(),
            name,
            scopes: scopes.iter().map(|scope| scope.as_str()).collect(),
            deployment,
            lifetime: Duration::from_secs(u64::from(input.days) * DAY),
            by: actor.person,
        };
        let made = store::people::api_tokens::insert_token(&mut transaction, &new)
            .await
            .map_err(failed)?;
        let (id, expires) = made.ok_or_else(|| {
            Problem::conflict(
                "too_many_tokens",
                format!(
                    "Account {} has {MAX_TOKENS} valid tokens, which is the maximum. Revoke one \
                     first.",
                    account.name
                ),
            )
        })?;
        let detail = json!({"person": account.name, "name": name, "scopes": new.scopes, "deployment": input.deployment, "days": input.days});
        append_audit(
            &mut transaction,
            Some(actor.person),
            "token.create",
            &id.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(CreatedToken { id, token: token.reveal().to_owned(), expires: at(expires) })
    }

    /// A page of the tokens of [`Self::tokens`].
    ///
    /// # Errors
    /// If they belong to another person, and the actor is not an admin.
    pub async fn token_page(
        &self,
        actor: &Actor,
        query: &TokensQuery,
    ) -> Result<TokenPage, Problem> {
        let person = match text::filter_text(&query.person)? {
            Some(person) => Some(self.person_named(actor, person).await?),
            None => None,
        };
        let mut reported = self.tokens(actor, person).await?;
        reported.retain(|token| query.valid.is_none_or(|holds| token.valid == holds));
        let (tokens, next) = cursor::page(
            reported,
            keys,
            query.sort,
            query.before.as_ref(),
            Limit::rows(query.limit, PAGE_SIZE),
        )?;
        Ok(TokenPage { tokens, next })
    }

    /// The tokens of the actor, or as an admin of another person: all valid tokens, and the newest
    /// of the others.
    ///
    /// # Errors
    /// If they belong to another person, and the actor is not an admin.
    pub async fn tokens(
        &self,
        actor: &Actor,
        person: Option<PersonId>,
    ) -> Result<Vec<TokenView>, Problem> {
        let owner = person.unwrap_or(actor.person);
        if owner != actor.person {
            actor.require(Permission::Admin)?;
        }
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let rows =
            store::people::api_tokens::list_tokens(&mut connection, owner, LISTED_TOKENS as u64)
                .await
                .map_err(failed)?;
        Ok(rows.into_iter().map(view).collect())
    }

    /// Revokes one of the actor's tokens, or as an admin any token. The revocation takes effect on
    /// the next request.
    ///
    /// # Errors
    /// If the token does not exist, or belongs to another person and the actor is not an admin.
    /// Also if the actor uses a token.
    pub async fn revoke_token(&self, actor: &Actor, token: Uuid) -> Result<(), Problem> {
        actor.require_in_person()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let row =
            store::people::api_tokens::token(&mut transaction, token).await.map_err(failed)?;
        let is_allowed = |row: &ApiTokenRow| {
            PersonId(row.person_id) == actor.person || actor.may(Permission::Admin)
        };
        // Do not reveal whether another person's token exists.
        let row = row.filter(is_allowed).ok_or_else(|| {
            Problem::not_found("You have no such token. See the list of your tokens.")
        })?;
        if !store::people::api_tokens::revoke(&mut transaction, token).await.map_err(failed)? {
            return Ok(());
        }
        let detail = json!({"person": row.person, "name": row.name});
        append_audit(
            &mut transaction,
            Some(actor.person),
            "token.revoke",
            &token.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Finds a deployment by name or id; `None` means everywhere. An empty name is an error,
    /// because it would give more than intended.
    pub(super) async fn find_deployment(
        &self,
        on: &mut sqlx::PgConnection,
        name: Option<&str>,
    ) -> Result<Option<DeploymentId>, Problem> {
        let Some(name) = name else { return Ok(None) };
        let name = DeploymentName::parse(name).map_err(|error| {
            Problem::invalid(format!("deployment: {error}. Omit it for all deployments."))
        })?;
        let by_name =
            store::deployments::deployment_named(&mut *on, name.as_str()).await.map_err(failed)?;
        let found = match (by_name, name.as_str().parse::<DeploymentId>()) {
            (None, Ok(id)) => {
                store::deployments::deployment_name(on, id).await.map_err(failed)?.map(|_| id)
            }
            (found, _) => found,
        };
        found.map(Some).ok_or_else(|| {
            Problem::not_found(format!(
                "Deployment {name} does not exist. See the list of deployments."
            ))
        })
    }
}

fn scopes(words: &[String]) -> Result<BTreeSet<Permission>, Problem> {
    let scopes =
        words.iter().map(|word| word.parse()).collect::<Result<BTreeSet<Permission>, Problem>>()?;
    if scopes.is_empty() {
        return Err(Problem::invalid(
            "scopes: must have at least one of viewer, operator and admin.",
        ));
    }
    if scopes.contains(&Permission::Reviewer) {
        return Err(Problem::invalid(
            "scopes: a token cannot have the permission reviewer. Only people can review.",
        ));
    }
    Ok(scopes)
}

fn keys(token: &TokenView, sort: TokenSort) -> Vec<Key> {
    let (made, id) = (Key::from(token.created.0), Key::from(token.id.to_string().as_str()));
    match sort {
        TokenSort::Valid => vec![Key::from(i64::from(token.valid)), made, id],
        TokenSort::Created => vec![made, id],
        TokenSort::Name => vec![Key::from(token.name.as_str()), id],
    }
}

fn view(row: ApiTokenRow) -> TokenView {
    TokenView {
        id: row.id,
        person: row.person,
        name: row.name,
        scopes: row.scopes,
        deployment: row.deployment,
        by: row.by,
        created: at(row.created_at),
        expires: at(row.expires_at),
        used: row.last_used_at.map(at),
        revoked: row.revoked_at.map(at),
        valid: row.holds,
    }
}
