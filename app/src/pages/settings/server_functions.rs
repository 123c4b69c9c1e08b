//! Server functions of the settings.

#[cfg(feature = "ssr")]
use api::Problem;
use api::overview::PolicyView;
use api::people::{
    AccountKind, CreatedPerson, CreatedToken, EndedSessions, Grant, MyAccount, OneTimeLink,
    PasskeyOptions, PasskeyRequest, PasskeyView, Password, PeopleQuery, PersonDetails, PersonPage,
    PersonView, Signature, SignatureRequest, TokenView,
};
#[cfg(feature = "ssr")]
use api::people::{PasswordRequest, PersonRequest, TokenRequest};
#[cfg(feature = "ssr")]
use control::people::{Permission, PersonAtVersion};
use engine::ids::{PasskeyId, PersonId, ProposalId};
use leptos::prelude::*;
use uuid::Uuid;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::fields::number;
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};
#[cfg(feature = "ssr")]
use crate::respond;

/// The approval policy in force.
#[server(name = ReadPolicy, prefix = "/call", endpoint = "policy", input = AsJson, output = AsJson)]
pub async fn policy() -> ServerResult<PolicyView> {
    let (request, actor) = signed_in()?;
    answer(request.control.policy_in_force(&actor).await).await
}

/// Opens a proposal on a deployment, or joins the open one. Redirects to its board with the policy
/// dialog.
#[server(name = ProposePolicy, prefix = "/call", endpoint = "propose-policy", output = AsJson)]
pub async fn propose_policy(deployment: String) -> ServerResult<ProposalId> {
    let (request, actor) = signed_in()?;
    let proposal = answer(request.control.propose_by_name(&actor, &deployment).await).await?;
    leptos_axum::redirect(&crate::addresses::board_for_policy(&deployment));
    Ok(proposal)
}

#[server(
    name = ReadAccount,
    prefix = "/call",
    endpoint = "account",
    input = AsJson,
    output = AsJson
)]
pub async fn account() -> ServerResult<(MyAccount, Vec<TokenView>)> {
    let (request, actor) = signed_in()?;
    let account = answer(request.people.mine(&actor).await).await?;
    Ok((account, answer(request.people.tokens(&actor, None).await).await?))
}

#[server(name = ReadPeople, prefix = "/call", endpoint = "people", input = AsJson, output = AsJson)]
pub async fn people(query: PeopleQuery) -> ServerResult<PersonPage> {
    let (request, actor) = signed_in()?;
    answer(request.people.list(&actor, &query).await).await
}

/// An account, by name or id.
#[server(name = ReadPerson, prefix = "/call", endpoint = "person", input = AsJson, output = AsJson)]
pub async fn person(person: String) -> ServerResult<(PersonDetails, Vec<TokenView>)> {
    let (request, actor) = signed_in()?;
    // The page requires an admin, also for the admin's own account.
    answer(actor.require(Permission::Admin)).await?;
    let id = answer(request.people.person_named(&actor, &person).await).await?;
    let person = answer(request.people.details(&actor, id).await).await?;
    Ok((person, answer(request.people.tokens(&actor, Some(id)).await).await?))
}

/// Adds a person or a service account, with their grants.
#[server(name = AddPerson, prefix = "/call", endpoint = "add-person", output = AsJson)]
pub async fn add_person(
    name: String,
    kind: AccountKind,
    #[server(default)] viewer: String,
    #[server(default)] operator: String,
    #[server(default)] reviewer: String,
    #[server(default)] admin: String,
    #[server(default)] inside: String,
) -> ServerResult<(CreatedPerson, Vec<Grant>)> {
    let boxes = [
        ("viewer", &*viewer),
        ("operator", &*operator),
        ("reviewer", &*reviewer),
        ("admin", &*admin),
    ];
    let grants = grants(boxes, &inside).map_err(refuse)?;
    let body = PersonRequest { name: name.trim().to_owned(), kind, grants: grants.clone() };
    let (request, actor) = signed_in()?;
    Ok((answer(request.people.add(&actor, &body).await).await?, grants))
}

#[server(name = ChangeGrants, prefix = "/call", endpoint = "change-grants", output = AsJson)]
pub async fn change_grants(
    person: PersonId,
    version: i32,
    #[server(default)] viewer: String,
    #[server(default)] operator: String,
    #[server(default)] reviewer: String,
    #[server(default)] admin: String,
    #[server(default)] inside: String,
) -> ServerResult<PersonView> {
    let boxes = [
        ("viewer", &*viewer),
        ("operator", &*operator),
        ("reviewer", &*reviewer),
        ("admin", &*admin),
    ];
    let grants = grants(boxes, &inside).map_err(refuse)?;
    let (request, actor) = signed_in()?;
    let seen = PersonAtVersion { person, version: Some(version) };
    answer(request.people.change_grants(&actor, seen, &grants).await).await
}

/// Disables or re-enables an account.
#[server(name = SetDisabled, prefix = "/call", endpoint = "set-disabled", output = AsJson)]
pub async fn set_disabled(person: PersonId, disabled: bool) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.set_disabled(&actor, person, disabled).await).await
}

#[server(name = ConfirmPerson, prefix = "/call", endpoint = "confirm-person", output = AsJson)]
pub async fn confirm_person(person: PersonId) -> ServerResult<PersonDetails> {
    let (request, actor) = signed_in()?;
    answer(request.people.confirm(&actor, person).await).await
}

#[server(
    name = ReadPasskeyOptions,
    prefix = "/call",
    endpoint = "passkey-options",
    input = AsJson,
    output = AsJson
)]
pub async fn passkey_options() -> ServerResult<PasskeyOptions> {
    let (request, actor) = signed_in()?;
    let site = request.site.map_err(refuse)?;
    answer(request.people.passkey_options(&actor, &site).await).await
}

#[server(
    name = RegisterPasskey,
    prefix = "/call",
    endpoint = "register-passkey",
    input = AsJson,
    output = AsJson
)]
pub async fn register_passkey(body: PasskeyRequest) -> ServerResult<PasskeyView> {
    let (request, actor) = signed_in()?;
    let site = request.site.map_err(refuse)?;
    answer(request.people.register_passkey(&actor, &site, &body).await).await
}

#[server(name = RevokePasskey, prefix = "/call", endpoint = "revoke-passkey", output = AsJson)]
pub async fn revoke_passkey(passkey: PasskeyId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.revoke_passkey(&actor, passkey).await).await
}

/// The challenge that the browser signs to confirm a passkey.
#[server(
    name = ConfirmationOptions,
    prefix = "/call",
    endpoint = "confirmation-options",
    input = AsJson,
    output = AsJson
)]
pub async fn confirmation_options(passkey: PasskeyId) -> ServerResult<SignatureRequest> {
    let (request, actor) = signed_in()?;
    let site = request.site.map_err(refuse)?;
    answer(request.people.confirmation_options(&actor, &site, passkey).await).await
}

#[server(
    name = ConfirmPasskey,
    prefix = "/call",
    endpoint = "confirm-passkey",
    input = AsJson,
    output = AsJson
)]
pub async fn confirm_passkey(
    passkey: PasskeyId,
    signature: Signature,
) -> ServerResult<PasskeyView> {
    let (request, actor) = signed_in()?;
    answer(request.people.confirm_passkey(&actor, passkey, &signature).await).await
}

/// Dismisses the notices about resets of your second factor.
#[server(name = DismissNotices, prefix = "/call", endpoint = "dismiss-notices", output = AsJson)]
pub async fn dismiss_notices() -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.dismiss_notices(&actor).await).await
}

/// Creates a single-use sign-in link.
#[server(name = CreateLink, prefix = "/call", endpoint = "new-link", output = AsJson)]
pub async fn new_link(person: PersonId) -> ServerResult<OneTimeLink> {
    respond::ensure_displayable("a new link", "POST /api/v1/people/ID/link").map_err(refuse)?;
    let (request, actor) = signed_in()?;
    answer(request.people.new_link(&actor, person).await).await
}

#[server(name = SetPassword, prefix = "/call", endpoint = "set-password", output = AsJson)]
pub async fn set_password(
    #[server(default)] old: Password,
    new: Password,
    again: Password,
) -> ServerResult<()> {
    if new != again {
        return Err(refuse(Problem::invalid(
            "The two new passwords differ. Enter the same password twice.",
        )));
    }
    let old = Some(old).filter(|old| !old.reveal().is_empty());
    let (request, actor) = signed_in()?;
    let body = PasswordRequest { old, new };
    let session = answer(request.people.set_password(&actor, &body).await).await?;
    // The current session continues under a new cookie.
    respond::append_cookie(&request.session_cookie.begin(&session));
    Ok(())
}

#[server(name = ResetFactor, prefix = "/call", endpoint = "reset-factor", output = AsJson)]
pub async fn reset_factor(person: PersonId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.reset_factor(Some(&actor), person).await).await
}

#[server(name = EndSession, prefix = "/call", endpoint = "end-session", output = AsJson)]
pub async fn end_session(session: Uuid) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.end_session(&actor, session).await).await
}

#[server(
    name = EndOtherSessions,
    prefix = "/call",
    endpoint = "end-other-sessions",
    output = AsJson
)]
pub async fn end_other_sessions() -> ServerResult<EndedSessions> {
    let (request, actor) = signed_in()?;
    answer(request.people.end_other_sessions(&actor).await).await
}

/// Creates a token for yourself or for a service account.
#[server(name = CreateToken, prefix = "/call", endpoint = "create-token", output = AsJson)]
pub async fn create_token(
    name: String,
    #[server(default)] days: String,
    #[server(default)] viewer: String,
    #[server(default)] operator: String,
    #[server(default)] admin: String,
    #[server(default)] deployment: String,
    #[server(default)] person: Option<PersonId>,
) -> ServerResult<CreatedToken> {
    respond::ensure_displayable("a new token", "POST /api/v1/tokens").map_err(refuse)?;
    let days = if days.trim().is_empty() {
        Ok(api::people::default_days())
    } else {
        number::<u32>("days", &days)
    }
    .map_err(refuse)?;
    let boxes = [("viewer", &viewer), ("operator", &operator), ("admin", &admin)];
    let scopes = boxes
        .into_iter()
        .filter(|(_, checked)| !checked.is_empty())
        .map(|(word, _)| word.to_owned())
        .collect();
    let deployment = Some(deployment.trim().to_owned()).filter(|name| !name.is_empty());
    let (request, actor) = signed_in()?;
    let body = TokenRequest { name, days, scopes, deployment, person };
    answer(request.people.create_token(&actor, &body).await).await
}

#[server(name = RevokeToken, prefix = "/call", endpoint = "revoke-token", output = AsJson)]
pub async fn revoke_token(token: Uuid) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.revoke_token(&actor, token).await).await
}

#[cfg(feature = "ssr")]
/// The grants of a form: its checkboxes, and a text with one `PERMISSION DEPLOYMENT` per line.
pub(super) fn grants(global: [(&str, &str); 4], inside: &str) -> Result<Vec<Grant>, Problem> {
    let checked = global.into_iter().filter(|(_, box_)| !box_.is_empty());
    let mut grants: Vec<Grant> = checked
        .map(|(permission, _)| Grant { permission: permission.to_owned(), deployment: None })
        .collect();
    for line in inside.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (permission, deployment) = line.split_once(char::is_whitespace).ok_or_else(|| {
            Problem::invalid(
                "Invalid permissions in single deployments: write a permission and a deployment on \
                 each line, such as `operator web`.",
            )
        })?;
        let deployment = Some(deployment.trim().to_owned());
        grants.push(Grant { permission: permission.to_lowercase(), deployment });
    }
    Ok(grants)
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    #[test]
    fn checkboxes_and_lines_parse_to_grants() {
        let boxes = [("viewer", "on"), ("operator", ""), ("reviewer", ""), ("admin", "")];
        let read = grants(boxes, " operator  web\n\nReviewer edge \n").expect("grants");
        let words: Vec<_> =
            read.iter().map(|g| (g.permission.as_str(), g.deployment.as_deref())).collect();
        assert_eq!(
            words,
            [("viewer", None), ("operator", Some("web")), ("reviewer", Some("edge"))]
        );
        assert!(grants(boxes, "operator").is_err());
    }
}
