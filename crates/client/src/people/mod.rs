//! Commands for people and their permissions. New credentials are printed once and not stored.

pub(crate) mod passkeys;
pub(crate) mod services;
pub(crate) mod sessions;
pub(crate) mod tokens;

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use engine::counting::many;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::address::{Address, Query, part};
use crate::args::ExpectedVersion;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::{Failure, Outcome};
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
        much: ListOptions,
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
    fn json(&self) -> Value {
        grants_json(&self.permission)
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

fn grants_json(permissions: &[String]) -> Value {
    let grant = |text: &String| match text.split_once('@') {
        Some((permission, deployment)) => {
            json!({"permission": permission, "deployment": deployment})
        }
        None => json!({"permission": text}),
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
    let place =
        |name: &str| Ok::<_, Failure>(format!("/people/{}", part(&names::person(server, name)?)));
    let post = |name: &str, what: &str, on: ExpectedVersion| {
        let with = RequestOptions { body: Some(json!({})), if_match: on.tag(), accept: None };
        server.ask(&Method::POST, &format!("{}/{what}", place(name)?), &with)?.read::<Value>()
    };
    match command {
        Person::List { filter, kind, disabled, much } => client.list(
            &person_list(),
            &Query::default().with("filter", filter).with("kind", kind).with("disabled", disabled),
            much,
        ),
        Person::Show { name, again } => {
            let place = place(name)?;
            client.show(*again, || server.get(&place), |answer, _| outline(answer))
        }
        Person::Add { name, grants } => {
            let answer = server
                .post("/people", json!({"name": name, "kind": "human", "grants": grants.json()}))?;
            print_sign_in_link(client, name, answer, "/link")
        }
        Person::Grant { name, grants, on } => {
            let place = place(name)?;
            let response = server.ask(&Method::GET, &place, &RequestOptions::default())?;
            let before: Value = response.read()?;
            let body = json!({"grants": grants_json(&grants.permission)});
            let with = RequestOptions {
                body: Some(body),
                if_match: on.tag().or(response.etag),
                accept: None,
            };
            let answer: Value =
                server.ask(&Method::PATCH, &format!("{place}/grants"), &with)?.read()?;
            output.either(&answer, &grants_text(name, &granted(&before), &granted(&answer)))
        }
        Person::Disable { name, on } => {
            let answer = post(name, "disable", *on)?;
            output.either(
                &answer,
                &format!("Account {name} is disabled, and its tokens are revoked."),
            )
        }
        Person::Enable { name, on } => {
            let answer = post(name, "enable", *on)?;
            output.either(
                &answer,
                &format!("Account {name} is enabled. Earlier tokens stay revoked."),
            )
        }
        Person::Confirm { name } => {
            let answer: Value = server.post(&format!("{}/confirm", place(name)?), json!({}))?;
            output.either(
                &answer,
                &format!(
                    "The access of {name} is confirmed. Approvals by {name} count from now on."
                ),
            )
        }
        Person::ResetSecondFactor { name } => {
            let place = format!("{}/second-factor", place(name)?);
            let answer: Value =
                server.ask(&Method::DELETE, &place, &RequestOptions::default())?.read()?;
            output.either(
                &answer,
                &format!("The second factor of {name} is removed, and their sessions have ended."),
            )
        }
        Person::Link { name, on } => {
            let answer = post(name, "link", *on)?;
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
    let way = value_text(link);
    let whole = if way.starts_with('/') { format!("{server}{way}") } else { way };
    *link = Value::String(whole.clone());
    whole
}

/// Prints your account and permissions.
pub(crate) fn me(client: &Client) -> Outcome {
    let answer = client.server.get("/people/me")?;
    client.output.either(&answer, outline(&answer).trim_end())
}

pub(crate) fn person_list() -> List {
    List {
        path: "/people".into(),
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
    use super::*;

    #[test]
    fn sign_in_link_contains_the_server() {
        let server = Address::parse("https://gantry.example.com", false).unwrap();
        let whole = "https://gantry.example.com/sign-in#token=x";
        let link = || json!({"link": "/sign-in#token=x", "minutes": 15});
        for (mut answer, at) in [(link(), ""), (json!({"name": "bo", "link": link()}), "/link")] {
            assert_eq!(complete_link(&mut answer, at, &server), whole);
            assert_eq!(answer.pointer(&format!("{at}/link")), Some(&json!(whole)));
            assert_eq!(complete_link(&mut answer, at, &server), whole, "only once");
        }
    }

    #[test]
    fn grant_may_name_a_deployment() {
        let grants = GrantArgs { permission: vec!["viewer".into(), "operator@web".into()] };
        assert_eq!(
            grants.json(),
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
        assert!(!taken(&[]), "a missing option removes nothing");
        assert!(!taken(&["--none", "--permission", "viewer"]), "one of both");
        assert!(taken(&["--none"]));
        assert!(taken(&["--permission", "viewer", "--permission", "operator@web"]));
    }

    #[test]
    fn permission_changes_are_printed() {
        let person = |grants: &[&str]| {
            let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
            granted(&json!({"grants": grants_json(&grants)}))
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
