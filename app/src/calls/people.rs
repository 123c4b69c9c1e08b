//! Server functions of the settings: one for each method of `Accounts`.
#![expect(
    missing_docs,
    reason = "the macro generates a struct from the arguments of each function"
)]

use api::people::{
    AccountKind, CreatedPerson, CreatedToken, Ended, Grant, MyAccount, OneTimeLink, PasskeyOptions,
    PasskeyRequest, PasskeyView, Password, PeopleWanted, PersonDetails, PersonPage, PersonView,
    Signature, SignatureRequest, TokenView,
};
#[cfg(feature = "ssr")]
use api::people::{PasswordRequest, PersonRequest, TokenRequest};
use api::second_factor::{FactorOptions, SecondFactorPage};
use engine::ids::{PasskeyId, PersonId};
use leptos::prelude::*;
use uuid::Uuid;

use crate::failure::ServerResult;
use crate::wire::AsJson;

#[cfg(feature = "ssr")]
mod server {
    use std::sync::Arc;

    use api::Problem;
    use api::people::Grant;
    use leptos::prelude::*;

    use crate::accounts::Accounts;
    use crate::failure::{Failure, ServerResult};

    pub(super) fn accounts() -> ServerResult<Arc<dyn Accounts>> {
        use_context::<Arc<dyn Accounts>>().ok_or_else(|| Failure(Problem::internal()))
    }

    /// The grants of a form: its checkboxes, and a text with one `PERMISSION DEPLOYMENT` per line.
    pub(super) fn grants(global: [(&str, &str); 4], inside: &str) -> Result<Vec<Grant>, Problem> {
        let checked = global.into_iter().filter(|(_, box_)| !box_.is_empty());
        let mut grants: Vec<Grant> = checked
            .map(|(permission, _)| Grant { permission: permission.to_owned(), deployment: None })
            .collect();
        for line in inside.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (permission, deployment) = line.split_once(char::is_whitespace).ok_or_else(|| {
                Problem::invalid(
                    "Invalid permissions in single deployments: write a permission and a deployment on each line, such as `operator web`.",
                )
            })?;
            let deployment = Some(deployment.trim().to_owned());
            grants.push(Grant { permission: permission.to_lowercase(), deployment });
        }
        Ok(grants)
    }

    #[cfg(test)]
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
}
#[cfg(feature = "ssr")]
use super::server::{answer, number};
#[cfg(feature = "ssr")]
use server::{accounts, grants};

#[server(name = ReadAccount, prefix = "/call", endpoint = "account", input = AsJson, output = AsJson)]
pub async fn account() -> ServerResult<(MyAccount, Vec<TokenView>)> {
    answer(accounts()?.mine().await)
}

#[server(name = ReadPeople, prefix = "/call", endpoint = "people", input = AsJson, output = AsJson)]
pub async fn people(wanted: PeopleWanted) -> ServerResult<PersonPage> {
    answer(accounts()?.list(wanted).await)
}

#[server(name = ReadPerson, prefix = "/call", endpoint = "person", input = AsJson, output = AsJson)]
pub async fn person(id: PersonId) -> ServerResult<(PersonDetails, Vec<TokenView>)> {
    answer(accounts()?.one(id).await)
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
    let grants = answer(grants(boxes, &inside))?;
    let wish = PersonRequest { name: name.trim().to_owned(), kind, grants: grants.clone() };
    Ok((answer(accounts()?.add(wish).await)?, grants))
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
    let grants = answer(grants(boxes, &inside))?;
    answer(accounts()?.change_grants(person, version, grants).await)
}

/// Disables or re-enables an account.
#[server(name = SetDisabled, prefix = "/call", endpoint = "set-disabled", output = AsJson)]
pub async fn set_disabled(person: PersonId, disabled: bool) -> ServerResult<()> {
    answer(accounts()?.set_disabled(person, disabled).await)
}

#[server(name = ConfirmPerson, prefix = "/call", endpoint = "confirm-person", output = AsJson)]
pub async fn confirm_person(person: PersonId) -> ServerResult<PersonDetails> {
    answer(accounts()?.confirm(person).await)
}

#[server(name = ReadPasskeyOptions, prefix = "/call", endpoint = "passkey-options", input = AsJson, output = AsJson)]
pub async fn passkey_options() -> ServerResult<PasskeyOptions> {
    answer(accounts()?.passkey_options().await)
}

#[server(name = RegisterPasskey, prefix = "/call", endpoint = "register-passkey", input = AsJson, output = AsJson)]
pub async fn register_passkey(wish: PasskeyRequest) -> ServerResult<PasskeyView> {
    answer(accounts()?.register_passkey(wish).await)
}

#[server(name = RevokePasskey, prefix = "/call", endpoint = "revoke-passkey", output = AsJson)]
pub async fn revoke_passkey(passkey: PasskeyId) -> ServerResult<()> {
    answer(accounts()?.revoke_passkey(passkey).await)
}

/// The challenge that the browser signs to confirm a passkey.
#[server(name = ConfirmationOptions, prefix = "/call", endpoint = "confirmation-options", input = AsJson, output = AsJson)]
pub async fn confirmation_options(passkey: PasskeyId) -> ServerResult<SignatureRequest> {
    answer(accounts()?.confirmation_options(passkey).await)
}

#[server(name = ConfirmPasskey, prefix = "/call", endpoint = "confirm-passkey", input = AsJson, output = AsJson)]
pub async fn confirm_passkey(
    passkey: PasskeyId,
    signature: Signature,
) -> ServerResult<PasskeyView> {
    answer(accounts()?.confirm_passkey(passkey, signature).await)
}

/// Dismisses the notices about resets of your second factor.
#[server(name = DismissNotices, prefix = "/call", endpoint = "dismiss-notices", output = AsJson)]
pub async fn dismiss_notices() -> ServerResult<()> {
    answer(accounts()?.dismiss_notices().await)
}

/// Creates a single-use sign-in link.
#[server(name = CreateLink, prefix = "/call", endpoint = "new-link", output = AsJson)]
pub async fn new_link(person: PersonId) -> ServerResult<OneTimeLink> {
    answer(crate::respond::ensure_displayable("a new link", "POST /api/v1/people/ID/link"))?;
    answer(accounts()?.new_link(person).await)
}

#[server(name = SetPassword, prefix = "/call", endpoint = "set-password", output = AsJson)]
pub async fn set_password(
    #[server(default)] old: Password,
    new: Password,
    again: Password,
) -> ServerResult<()> {
    if new != again {
        return answer(Err(api::Problem::invalid(
            "The two new passwords differ. Enter the same password twice.",
        )));
    }
    let old = Some(old).filter(|old| !old.reveal().is_empty());
    answer(accounts()?.set_password(PasswordRequest { old, new }).await)
}

#[server(name = ReadSecondFactor, prefix = "/call", endpoint = "second-factor", input = AsJson, output = AsJson)]
pub async fn second_factor() -> ServerResult<SecondFactorPage> {
    answer(accounts()?.second_factor().await)
}

#[server(name = ReadFactorOptions, prefix = "/call", endpoint = "factor-options", input = AsJson, output = AsJson)]
pub async fn factor_options() -> ServerResult<FactorOptions> {
    answer(accounts()?.factor_options().await)
}

#[server(name = VerifyPasskey, prefix = "/call", endpoint = "present-passkey", input = AsJson, output = AsJson)]
pub async fn present_passkey(passkey: serde_json::Value) -> ServerResult<()> {
    answer(accounts()?.present_passkey(passkey).await)
}

#[server(name = ResetFactor, prefix = "/call", endpoint = "reset-factor", output = AsJson)]
pub async fn reset_factor(person: PersonId) -> ServerResult<()> {
    answer(accounts()?.reset_factor(person).await)
}

#[server(name = EndSession, prefix = "/call", endpoint = "end-session", output = AsJson)]
pub async fn end_session(session: Uuid) -> ServerResult<()> {
    answer(accounts()?.end_session(session).await)
}

#[server(name = EndOtherSessions, prefix = "/call", endpoint = "end-other-sessions", output = AsJson)]
pub async fn end_other_sessions() -> ServerResult<Ended> {
    answer(accounts()?.end_other_sessions().await)
}

/// Creates a token for yourself or for a service account.
#[server(name = CreateToken, prefix = "/call", endpoint = "make-token", output = AsJson)]
pub async fn make_token(
    name: String,
    #[server(default)] days: String,
    #[server(default)] viewer: String,
    #[server(default)] operator: String,
    #[server(default)] admin: String,
    #[server(default)] deployment: String,
    #[server(default)] person: Option<PersonId>,
) -> ServerResult<CreatedToken> {
    answer(crate::respond::ensure_displayable("a new token", "POST /api/v1/tokens"))?;
    let days = if days.trim().is_empty() {
        Ok(api::people::default_days())
    } else {
        number::<u32>("days", &days)
    };
    let boxes = [("viewer", &viewer), ("operator", &operator), ("admin", &admin)];
    let scopes = boxes
        .into_iter()
        .filter(|(_, checked)| !checked.is_empty())
        .map(|(word, _)| word.to_owned())
        .collect();
    let deployment = Some(deployment.trim().to_owned()).filter(|name| !name.is_empty());
    answer(
        accounts()?
            .make_token(TokenRequest { name, days: answer(days)?, scopes, deployment, person })
            .await,
    )
}

#[server(name = RevokeToken, prefix = "/call", endpoint = "revoke-token", output = AsJson)]
pub async fn revoke_token(token: Uuid) -> ServerResult<()> {
    answer(accounts()?.revoke_token(token).await)
}
