//! Calls for people, sign-in and tokens. The page of an admin shows them with a session, because
//! the server rejects tokens of people here.

use engine::ids::{PasskeyId, PersonId};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Body, Call, Method};
use crate::people::{AccountKind, Grant};

/// Path of the list of tokens.
pub const TOKENS_PATH: &str = "/tokens";
/// Path of the list of the reader's sessions.
pub const SESSIONS_PATH: &str = "/me/sessions";

/// Adds a person or a service account.
pub fn add_person(name: &str, kind: AccountKind, grants: &[Grant]) -> Call {
    let noun = if kind == AccountKind::Service { "service" } else { "person" };
    Call::post("/people")
        .json(json!({ "name": name, "kind": kind, "grants": grants }))
        .session_only()
        .command([noun, "add", name])
        .options("permission", grants.iter().map(may))
}

/// The grant as text, for example `operator@web`.
fn may(grant: &Grant) -> String {
    match &grant.deployment {
        Some(deployment) => format!("{}@{deployment}", grant.permission),
        None => grant.permission.clone(),
    }
}

/// Replaces all permissions of a person, at this version of them.
pub fn change_grants(id: PersonId, version: i32, grants: &[Grant]) -> Call {
    replace_grants(id, grants).on(version).version(version)
}

/// Replaces all permissions of a person. The server requires a version.
pub fn replace_grants(id: PersonId, grants: &[Grant]) -> Call {
    Call::new(Method::Patch, format!("/people/{id}/grants"))
        .json(json!({ "grants": grants }))
        .session_only()
        .command(["person", "grant"])
        .argument(id.to_string())
        .options("permission", grants.iter().map(may))
        .switch("none", grants.is_empty())
}

pub fn disable_person(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/disable"))
        .session_only()
        .command(["person", "disable"])
        .argument(id.to_string())
}

pub fn enable_person(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/enable"))
        .session_only()
        .command(["person", "enable"])
        .argument(id.to_string())
}

/// Confirms a person's access as a second admin.
pub fn confirm_person(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/confirm"))
        .session_only()
        .command(["person", "confirm"])
        .argument(id.to_string())
}

/// Dismisses the reader's notices of sign-in resets.
pub fn dismiss_notices() -> Call {
    Call::new(Method::Delete, "/me/notices").session_only().command(["session", "dismiss-notices"])
}

/// Removes the reader's authenticator app.
pub fn remove_totp() -> Call {
    Call::new(Method::Delete, "/me/totp").session_only().command(["session", "remove-totp"])
}

/// Resets the second factor of another person.
pub fn reset_factor(id: PersonId) -> Call {
    Call::new(Method::Delete, format!("/people/{id}/second-factor"))
        .session_only()
        .command(["person", "reset-second-factor"])
        .argument(id.to_string())
}

/// Creates a one-time sign-in link.
pub fn create_link(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/link"))
        .session_only()
        .command(["person", "link"])
        .argument(id.to_string())
}

/// Sets the reader's password. It is read from a file or typed, never an argument of a command.
pub fn set_password() -> Call {
    Call { body: Body::File("password.json"), ..Call::new(Method::Put, "/me/password") }
        .session_only()
        .command(["session", "password"])
}

/// Ends one of the reader's sessions.
pub fn end_session(id: Uuid) -> Call {
    Call::new(Method::Delete, format!("/me/sessions/{id}"))
        .session_only()
        .command(["session", "end"])
        .argument(id.to_string())
}

/// Ends all of the reader's other sessions.
pub fn end_other_sessions() -> Call {
    Call::new(Method::Delete, SESSIONS_PATH).session_only().command(["session", "end-others"])
}

/// Creates a token for the reader or for a service account.
pub fn create_token(
    name: &str,
    scopes: &[&str],
    deployment: Option<&str>,
    days: Option<u32>,
    person: Option<PersonId>,
) -> Call {
    let mut body = json!({ "name": name, "scopes": scopes });
    let optional_fields = [
        ("deployment", deployment.map(Value::from)),
        ("days", days.map(Value::from)),
        ("person", person.map(|person| json!(person))),
    ];
    for (word, value) in optional_fields {
        if let (Some(body), Some(value)) = (body.as_object_mut(), value) {
            body.insert(word.into(), value);
        }
    }
    Call::post(TOKENS_PATH)
        .json(body)
        .session_only()
        .command(["token", "create"])
        .option("name", name)
        .options("permission", scopes.iter().map(|scope| (*scope).to_owned()))
        .option_if_set("in", deployment.unwrap_or_default())
        .option_if_set("days", &days.map(|days| days.to_string()).unwrap_or_default())
        .option_if_set("for", &person.map(|person| person.to_string()).unwrap_or_default())
}

pub fn revoke_token(id: Uuid) -> Call {
    Call::new(Method::Delete, format!("/tokens/{id}"))
        .session_only()
        .command(["token", "revoke"])
        .argument(id.to_string())
}

/// Shows the reader's account with its passkeys.
pub fn show_account() -> Call {
    Call::new(Method::Get, "/people/me").command(["me"])
}

pub fn revoke_passkey(id: PasskeyId) -> Call {
    Call::new(Method::Delete, format!("/passkeys/{id}"))
        .session_only()
        .command(["passkey", "revoke"])
        .argument(id.to_string())
}
