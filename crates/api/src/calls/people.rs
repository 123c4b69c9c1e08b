//! Accounts, and how they come in. What decides about people takes an admin who is signed in: no token does it.

use engine::ids::{PasskeyId, PersonId};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Body, Call, Method};
use crate::people::{AccountKind, Grant};

/// Adds a person or a service account.
pub fn add_person(name: &str, kind: AccountKind, grants: &[Grant]) -> Call {
    let noun = if kind == AccountKind::Service { "service" } else { "person" };
    Call::post("/people")
        .json(json!({ "name": name, "kind": kind, "grants": grants }))
        .in_person()
        .words([noun, "add", name])
        .options("may", grants.iter().map(may))
}

/// `operator@web`.
fn may(grant: &Grant) -> String {
    match &grant.deployment {
        Some(deployment) => format!("{}@{deployment}", grant.permission),
        None => grant.permission.clone(),
    }
}

/// Says what somebody may from now on, in the place of all before, as of a version of that.
pub fn change_grants(id: PersonId, version: i32, grants: &[Grant]) -> Call {
    Call::new(Method::Patch, format!("/people/{id}/grants"))
        .on(version)
        .json(json!({ "grants": grants }))
        .in_person()
        .words(["person", "grant"])
        .word(id.to_string())
        .options("may", grants.iter().map(may))
        .switch("nothing", grants.is_empty())
        .version(version)
}

/// Keeps somebody out.
pub fn disable_person(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/disable"))
        .in_person()
        .words(["person", "disable"])
        .word(id.to_string())
}

/// Lets somebody in again.
pub fn enable_person(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/enable"))
        .in_person()
        .words(["person", "enable"])
        .word(id.to_string())
}

/// Confirms somebody's access as a second admin.
pub fn confirm_person(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/confirm"))
        .in_person()
        .words(["person", "confirm"])
        .word(id.to_string())
}

/// Dismisses one's own notices of resets.
pub fn dismiss_notices() -> Call {
    Call::new(Method::Delete, "/me/notices").in_person().words(["session", "dismiss-notices"])
}

/// Removes one's own authenticator app.
pub fn remove_totp() -> Call {
    Call::new(Method::Delete, "/me/totp").in_person().words(["session", "remove-totp"])
}

/// Resets the second factor of another person.
pub fn reset_factor(id: PersonId) -> Call {
    Call::new(Method::Delete, format!("/people/{id}/second-factor"))
        .in_person()
        .words(["person", "reset-second-factor"])
        .word(id.to_string())
}

/// Makes a link by which somebody comes in once.
pub fn make_link(id: PersonId) -> Call {
    Call::post(format!("/people/{id}/link"))
        .in_person()
        .words(["person", "link"])
        .word(id.to_string())
}

/// Sets one's own password, which no command line should have in it: it comes from a file, or is typed.
pub fn set_password() -> Call {
    Call { body: Body::File("password.json"), ..Call::new(Method::Put, "/me/password") }
        .in_person()
        .words(["session", "password"])
}

/// Ends one of one's own sessions.
pub fn end_session(id: Uuid) -> Call {
    Call::new(Method::Delete, format!("/me/sessions/{id}"))
        .in_person()
        .words(["session", "end"])
        .word(id.to_string())
}

/// Ends all of one's own sessions but the one that asks.
pub fn end_other_sessions() -> Call {
    Call::new(Method::Delete, "/me/sessions").in_person().words(["session", "end-others"])
}

/// Makes a token: one's own, or a service account's.
pub fn make_token(
    name: &str,
    scopes: &[&str],
    deployment: Option<&str>,
    days: Option<u32>,
    person: Option<PersonId>,
) -> Call {
    let mut body = json!({ "name": name, "scopes": scopes });
    let given = [
        ("deployment", deployment.map(Value::from)),
        ("days", days.map(Value::from)),
        ("person", person.map(|person| json!(person))),
    ];
    for (word, value) in given {
        if let (Some(body), Some(value)) = (body.as_object_mut(), value) {
            body.insert(word.into(), value);
        }
    }
    Call::post("/tokens")
        .json(body)
        .in_person()
        .words(["token", "make"])
        .option("name", name)
        .options("may", scopes.iter().map(|scope| (*scope).to_owned()))
        .option_of("in", deployment.unwrap_or_default())
        .option_of("days", &days.map(|days| days.to_string()).unwrap_or_default())
        .option_of("for", &person.map(|person| person.to_string()).unwrap_or_default())
}

/// Takes a token back.
pub fn revoke_token(id: Uuid) -> Call {
    Call::new(Method::Delete, format!("/tokens/{id}"))
        .in_person()
        .words(["token", "revoke"])
        .word(id.to_string())
}

/// Lists one's own passkeys.
pub fn list_passkeys() -> Call {
    Call::new(Method::Get, "/people/me").words(["me"])
}

/// Revokes a passkey.
pub fn revoke_passkey(id: PasskeyId) -> Call {
    Call::new(Method::Delete, format!("/passkeys/{id}"))
        .in_person()
        .words(["passkey", "revoke"])
        .word(id.to_string())
}
