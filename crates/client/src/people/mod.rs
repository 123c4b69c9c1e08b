//! Commands for people and their permissions. New credentials are printed once and not stored.

pub(crate) mod passkeys;
pub(crate) mod services;
pub(crate) mod sessions;
pub(crate) mod tokens;

use std::collections::BTreeSet;

use api::call::Call;
use api::calls;
use api::people::{AccountKind, Grant};
use clap::{Args, Subcommand};
use engine::counting::many;
use engine::ids::PersonId;
use serde_json::Value;

use crate::address::{Address, Query};
use crate::args::ExpectedVersion;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::{note, value_text};
use crate::server::RequestOptions;

#[derive(Debug, Subcommand)]
pub(crate) enum Person {
    /// List people and service accounts
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// Kind of the account
        #[arg(long, value_parser = ["human", "service"])]
        kind: Option<String>,
        /// Only disabled (true) or only enabled (false) accounts
        #[arg(long, value_parser = ["true", "false"])]
        disabled: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a person or a service account
    Show {
        /// Name of the account
        name: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Add a person and create a one-time sign-in link
    Add {
        /// Name of the account
        name: String,
        #[command(flatten)]
        grants: GrantArgs,
    },
    /// Replace all permissions of a person
    Grant {
        /// Name of the account
        name: String,
        #[command(flatten)]
        grants: ReplaceGrantArgs,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Disable an account
    Disable {
        /// Name of the account
        name: String,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Enable a disabled account
    Enable {
        /// Name of the account
        name: String,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Confirm a person's access as a second admin, so that their approvals count at once
    Confirm {
        /// Name of the account
        name: String,
    },
    /// Remove a person's lost authenticator app and passkeys, and end their sessions
    ResetSecondFactor {
        /// Name of the account
        name: String,
    },
    /// Create a one-time sign-in link
    Link {
        /// Name of the account
        name: String,
        #[command(flatten)]
        on: ExpectedVersion,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// viewer, operator, reviewer or admin; with @DEPLOYMENT only for it and its descendants;
    /// repeatable
    #[arg(long = "permission", value_name = "PERMISSION[@DEPLOYMENT]")]
    permission: Vec<String>,
}

impl GrantArgs {
    fn grants(&self) -> Vec<Grant> {
        grants_of(&self.permission)
    }
}

/// New permissions, which replace all current ones. Removing all needs an option of its own, so
/// that a forgotten option has no effect.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ReplaceGrantArgs {
    /// viewer, operator, reviewer or admin; with @DEPLOYMENT only for it and its descendants;
    /// repeatable
    #[arg(long = "permission", value_name = "PERMISSION[@DEPLOYMENT]")]
    permission: Vec<String>,
    /// Remove all permissions, including viewer
    #[arg(long)]
    none: bool,
}

fn grants_of(permissions: &[String]) -> Vec<Grant> {
    let grant = |text: &String| match text.split_once('@') {
        Some((permission, deployment)) => {
            Grant { permission: permission.into(), deployment: Some(deployment.into()) }
        }
        None => Grant { permission: text.clone(), deployment: None },
    };
    permissions.iter().map(grant).collect()
}

/// A person's permissions, each in the form of the option.
fn granted(person: &Value) -> BTreeSet<String> {
    let grant_text = |grant: &Value| match grant["deployment"].as_str() {
        Some(deployment) => format!("{}@{deployment}", value_text(&grant["permission"])),
        None => value_text(&grant["permission"]),
    };
    person["grants"].as_array().into_iter().flatten().map(grant_text).collect()
}

/// A sentence with a person's permissions, and the changes.
fn grants_text(name: &str, before: &BTreeSet<String>, now: &BTreeSet<String>) -> String {
    let listed = |grants: Vec<&str>| grants.join(", ");
    let of = |grants: &BTreeSet<String>, but: &BTreeSet<String>| {
        listed(grants.difference(but).map(String::as_str).collect())
    };
    let (added, taken) = (of(now, before), of(before, now));
    let mut lines = vec![match now.is_empty() {
        true => format!("Permissions of {name}: none."),
        false => {
            format!("Permissions of {name}: {}.", listed(now.iter().map(String::as_str).collect()))
        }
    }];
    if !added.is_empty() {
        lines.push(format!("Added: {added}."));
    }
    if !taken.is_empty() {
        lines.push(format!("Removed: {taken}."));
    }
    if lines.len() == 1 {
        lines.push("Nothing changed.".to_owned());
    }
    lines.join("\n")
}

pub(crate) fn person(client: &Client, command: &Person) -> Outcome {
    let Client { server, output } = client;
    let on_person = |name: &str, call: fn(PersonId) -> Call, on: ExpectedVersion| {
        server.call_on(&call(names::person(server, name)?), on.tag())
    };
    match command {
        Person::List { filter, kind, disabled, list_options } => client.list(
            &person_list(),
            &Query::default().with("filter", filter).with("kind", kind).with("disabled", disabled),
            list_options,
        ),
        Person::Show { name, again } => {
            let person = calls::show_person(names::person(server, name)?);
            client.show(*again, || server.show(&person), |answer, _| outline(answer))
        }
        Person::Add { name, grants } => {
            let add = calls::add_person(name, AccountKind::Human, &grants.grants());
            let answer = server.call(&add)?;
            print_sign_in_link(client, name, answer, "/link")
        }
        Person::Grant { name, grants, on } => {
            let person = names::person(server, name)?;
            let shown = calls::show_person(person);
            let response = server.request(&shown, RequestOptions::default())?;
            let before: Value = response.read()?;
            let replace = calls::replace_grants(person, &grants_of(&grants.permission));
            let answer = server.call_on(&replace, on.tag().or(response.etag))?;
            output.either(&answer, &grants_text(name, &granted(&before), &granted(&answer)))
        }
        Person::Disable { name, on } => {
            let answer = on_person(name, calls::disable_person, *on)?;
            output.either(
                &answer,
                &format!("Account {name} is disabled, and its tokens are revoked."),
            )
        }
        Person::Enable { name, on } => {
            let answer = on_person(name, calls::enable_person, *on)?;
            output.either(
                &answer,
                &format!("Account {name} is enabled. Earlier tokens stay revoked."),
            )
        }
        Person::Confirm { name } => {
            let answer = server.call(&calls::confirm_person(names::person(server, name)?))?;
            output.either(
                &answer,
                &format!(
                    "The access of {name} is confirmed. Approvals by {name} count from now on."
                ),
            )
        }
        Person::ResetSecondFactor { name } => {
            let answer = server.call(&calls::reset_factor(names::person(server, name)?))?;
            output.either(
                &answer,
                &format!("The second factor of {name} is removed, and their sessions have ended."),
            )
        }
        Person::Link { name, on } => {
            let answer = on_person(name, calls::create_link, *on)?;
            print_sign_in_link(client, name, answer, "")
        }
    }
}

/// Prints a one-time link with its full URL, also in JSON output. `at` is the JSON pointer to the
/// link in the answer.
fn print_sign_in_link(client: &Client, name: &str, mut answer: Value, at: &str) -> Outcome {
    let whole = complete_link(&mut answer, at, client.server.address());
    client.output.either(&answer, &whole)?;
    if !client.output.is_document() {
        let minutes = answer.pointer(at).and_then(|link| link["minutes"].as_u64());
        let time = duration(minutes.unwrap_or_default());
        note(&format!(
            "This sign-in link for {name} works once, within {time}. It is shown only once."
        ));
    }
    Ok(())
}

/// Minutes as text, in hours if possible.
fn duration(minutes: u64) -> String {
    if minutes >= 60 && minutes.is_multiple_of(60) {
        many(minutes / 60, "hour")
    } else {
        many(minutes, "minute")
    }
}

/// Replaces the path in an answer by the full URL, and returns it.
fn complete_link(answer: &mut Value, at: &str, server: &Address) -> String {
    let Some(link) = answer.pointer_mut(&format!("{at}/link")) else { return String::new() };
    let path = value_text(link);
    let whole = if path.starts_with('/') { format!("{server}{path}") } else { path };
    *link = Value::String(whole.clone());
    whole
}

/// Prints your account and permissions.
pub(crate) fn me(client: &Client) -> Outcome {
    let answer = client.server.show(&calls::show_account())?;
    client.output.either(&answer, outline(&answer).trim_end())
}

pub(crate) fn person_list() -> List {
    List {
        path: calls::List::People.path(""),
        items: "people",
        cursor: "after",
        columns: &[
            ("NAME", |v, _| word(v, "name")),
            ("KIND", |v, _| word(v, "kind")),
            ("GRANTS", |v, _| grants(&v["grants"])),
            ("DISABLED", |v, _| word(v, "disabled")),
            ("PASSWORD", |v, _| word(v, "password")),
            ("LAST SEEN", |v, o| o.time(&v["last_seen"])),
            ("CREATED", |v, o| o.time(&v["created"])),
        ],
        none: "No accounts found.",
    }
}

/// Permissions as text, for example `viewer, operator in web`.
fn grants(value: &Value) -> String {
    let one = |grant: &Value| match grant["deployment"].as_str() {
        Some(deployment) => format!("{} in {deployment}", word(grant, "permission")),
        None => word(grant, "permission"),
    };
    value
        .as_array()
        .map(|all| all.iter().map(one).collect::<Vec<_>>().join(", "))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sign_in_link_contains_the_server() {
        let server = Address::parse("https://gantry.example.com", false).unwrap();
        let whole = "https://gantry.example.com/sign-in#token=x";
        let link = || json!({"link": "/sign-in#token=x", "minutes": 15});
        for (mut answer, at) in [(link(), ""), (json!({"name": "bo", "link": link()}), "/link")] {
            assert_eq!(complete_link(&mut answer, at, &server), whole);
            assert_eq!(answer.pointer(&format!("{at}/link")), Some(&json!(whole)));
            assert_eq!(
                complete_link(&mut answer, at, &server),
                whole,
                "the server is added only once"
            );
        }
    }

    #[test]
    fn grant_may_name_a_deployment() {
        let grants = GrantArgs { permission: vec!["viewer".into(), "operator@web".into()] };
        assert_eq!(
            json!(grants.grants()),
            json!([{"permission": "viewer"}, {"permission": "operator", "deployment": "web"}])
        );
    }

    #[test]
    fn removing_all_permissions_needs_an_option() {
        let program = Person::augment_subcommands(clap::Command::new("person"));
        let taken = |words: &[&str]| {
            let words = [&["person", "grant", "dan"][..], words].concat();
            program.clone().try_get_matches_from(words).is_ok()
        };
        assert!(!taken(&[]), "permissions are not removed without an option");
        assert!(
            !taken(&["--none", "--permission", "viewer"]),
            "the two options exclude each other"
        );
        assert!(taken(&["--none"]));
        assert!(taken(&["--permission", "viewer", "--permission", "operator@web"]));
    }

    #[test]
    fn permission_changes_are_printed() {
        let person = |grants: &[&str]| {
            let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
            granted(&json!({"grants": grants_of(&grants)}))
        };
        let (all, some) =
            (person(&["viewer", "operator@web", "admin"]), person(&["viewer", "reviewer@edge"]));
        assert_eq!(
            grants_text("dan", &all, &some),
            "Permissions of dan: reviewer@edge, viewer.\nAdded: reviewer@edge.\nRemoved: admin, \
             operator@web."
        );
        assert_eq!(
            grants_text("dan", &some, &person(&[])),
            "Permissions of dan: none.\nRemoved: reviewer@edge, viewer."
        );
        assert_eq!(
            grants_text("dan", &some, &some),
            "Permissions of dan: reviewer@edge, viewer.\nNothing changed."
        );
    }

    #[test]
    fn grants_include_the_deployment() {
        let value =
            json!([{"permission": "viewer"}, {"permission": "operator", "deployment": "web"}]);
        assert_eq!(grants(&value), "viewer, operator in web");
    }
}
