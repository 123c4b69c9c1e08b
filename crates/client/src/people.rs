//! Commands for people, service accounts, sessions and tokens. New credentials are printed once and
//! not stored.

use std::collections::BTreeSet;
use std::io::Read as _;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use ureq::http::Method;
use uuid::Uuid;

use crate::address::{Address, Query, part};
use crate::args::ExpectedVersion;
use crate::contexts::{Contexts, Key, default_path};
use crate::exit::{Failure, Outcome};
use crate::lists::{self, Client, ListOptions, WatchOption};
use crate::machines::print_new_token;
use crate::names;
use crate::output::{note, outline, said};
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
    #[arg(long = "may", value_name = "PERMISSION[@DEPLOYMENT]")]
    may: Vec<String>,
}

impl GrantArgs {
    fn json(&self) -> Value {
        grants_json(&self.may)
    }
}

/// New permissions, which replace all current ones. Removing all needs an option of its own, so
/// that a forgotten option has no effect.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ReplaceGrantArgs {
    /// viewer, operator, reviewer or admin; with @DEPLOYMENT only for it and its descendants;
    /// repeatable
    #[arg(long = "may", value_name = "PERMISSION[@DEPLOYMENT]")]
    may: Vec<String>,
    /// Remove all permissions, including viewer
    #[arg(long)]
    nothing: bool,
}

fn grants_json(may: &[String]) -> Value {
    let grant = |text: &String| match text.split_once('@') {
        Some((permission, deployment)) => {
            json!({"permission": permission, "deployment": deployment})
        }
        None => json!({"permission": text}),
    };
    may.iter().map(grant).collect()
}

/// A person's permissions, each in the form of the option.
fn granted(person: &Value) -> BTreeSet<String> {
    let grant_text = |grant: &Value| match grant["deployment"].as_str() {
        Some(deployment) => format!("{}@{deployment}", said(&grant["permission"])),
        None => said(&grant["permission"]),
    };
    person["grants"].as_array().into_iter().flatten().map(grant_text).collect()
}

/// A sentence with a person's permissions, and the changes.
fn told(name: &str, before: &BTreeSet<String>, now: &BTreeSet<String>) -> String {
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
            &lists::people(),
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
            let body = json!({"grants": grants_json(&grants.may)});
            let with = RequestOptions {
                body: Some(body),
                if_match: on.tag().or(response.etag),
                accept: None,
            };
            let answer: Value =
                server.ask(&Method::PATCH, &format!("{place}/grants"), &with)?.read()?;
            output.either(&answer, &told(name, &granted(&before), &granted(&answer)))
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
    if !client.output.json {
        let minutes = answer.pointer(at).map(|link| said(&link["minutes"])).unwrap_or_default();
        note(&format!(
            "This sign-in link for {name} works once, within {minutes} minutes. It is shown only \
             once."
        ));
    }
    Ok(())
}

/// Replaces the path in an answer by the full URL, and returns it.
fn complete_link(answer: &mut Value, at: &str, server: &Address) -> String {
    let Some(link) = answer.pointer_mut(&format!("{at}/link")) else { return String::new() };
    let way = said(link);
    let whole = if way.starts_with('/') { format!("{server}{way}") } else { way };
    *link = Value::String(whole.clone());
    whole
}

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// List service accounts
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Add a service account, which has only tokens and no valid verdicts
    Add {
        /// Name of the service account
        name: String,
        #[command(flatten)]
        grants: GrantArgs,
    },
}

pub(crate) fn service(client: &Client, command: &Service) -> Outcome {
    match command {
        Service::List { filter, much } => client.list(
            &lists::people(),
            &Query::default().with("filter", filter).with("kind", "service"),
            much,
        ),
        Service::Add { name, grants } => {
            let answer = client.server.post(
                "/people",
                json!({"name": name, "kind": "service", "grants": grants.json()}),
            )?;
            let message = format!(
                "Account {name} is added. Create a token for it: gantry token make --for {name} \
                 --name TEXT --may viewer"
            );
            client.output.either(&answer, &message)
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List your tokens or those of a service account, valid ones first, at most 100
    List {
        /// Name of the service account [default: yourself]
        #[arg(long = "for", value_name = "NAME")]
        whose: Option<String>,
        /// Only valid (true) or only invalid (false) tokens
        #[arg(long, value_name = "BOOL", value_parser = ["true", "false"])]
        valid: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Create a token, which is shown only once
    Make {
        /// Name that says what the token is for
        #[arg(long, value_name = "TEXT")]
        name: String,
        /// Permission of the token: viewer, operator or admin; repeatable
        #[arg(long = "may", value_name = "PERMISSION", required = true)]
        may: Vec<String>,
        /// Limit the token to this deployment and its descendants; not with --may admin
        #[arg(long = "in", value_name = "DEPLOYMENT")]
        deployment: Option<String>,
        /// Lifetime in days
        #[arg(long, default_value_t = 90)]
        days: u32,
        /// Name of the service account that gets the token [default: yourself]
        #[arg(long = "for", value_name = "NAME")]
        whose: Option<String>,
    },
    /// Revoke a token
    Revoke {
        /// Id of the token, from the list of tokens
        id: Uuid,
    },
}

pub(crate) fn token(client: &Client, command: &Token) -> Outcome {
    let Client { server, output } = client;
    let whose =
        |name: &Option<String>| name.as_deref().map(|name| names::person(server, name)).transpose();
    match command {
        Token::List { whose: name, valid: holds, much } => {
            let query = Query::default().with("person", &whose(name)?).with("valid", holds);
            client.list(&lists::tokens(), &query, much)
        }
        Token::Make { name, may, deployment, days, whose: of } => {
            let mut body = Map::from_iter([
                ("name".to_owned(), json!(name)),
                ("scopes".to_owned(), json!(may)),
                ("days".to_owned(), json!(days)),
            ]);
            body.extend(deployment.iter().map(|name| ("deployment".to_owned(), json!(name))));
            body.extend(whose(of)?.map(|person| ("person".to_owned(), json!(person))));
            print_new_token(client, &server.post("/tokens", Value::Object(body))?)
        }
        Token::Revoke { id } => {
            let answer = server
                .ask(&Method::DELETE, &format!("/tokens/{id}"), &RequestOptions::default())?
                .read()?;
            output.either(&answer, &format!("Token {id} is revoked."))
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Passkey {
    /// Revoke a passkey: its signatures no longer count for later commits
    Revoke {
        /// Id of the passkey, from gantry me
        id: Uuid,
    },
}

pub(crate) fn passkey(client: &Client, command: &Passkey) -> Outcome {
    let Client { server, output } = client;
    match command {
        Passkey::Revoke { id } => {
            let answer = server
                .ask(&Method::DELETE, &format!("/passkeys/{id}"), &RequestOptions::default())?
                .read()?;
            output.either(&answer, &format!("Passkey {id} is revoked."))
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// List your sessions
    List {
        #[command(flatten)]
        much: ListOptions,
    },
    /// End a session
    End {
        /// Id of the session, from the list of sessions
        id: Uuid,
    },
    /// End all sessions except the current one
    EndOthers,
    /// Dismiss the notices of sign-in resets
    DismissNotices,
    /// Remove your authenticator app
    RemoveTotp,
    /// Set or change your password; reads the current one, if any, and the new one from standard
    /// input, one per line
    Password,
}

/// A sentence with the number of other sessions that ended.
fn ended(sessions: u64) -> String {
    match sessions {
        0 => "There were no other sessions.".to_owned(),
        1 => "1 session ended.".to_owned(),
        more => format!("{more} sessions ended."),
    }
}

/// `context` is the one whose session authenticates the request.
pub(crate) fn session(client: &Client, context: Option<&str>, command: &Session) -> Outcome {
    let Client { server, output } = client;
    match command {
        Session::List { much } => client.list(&lists::sessions(), &Query::default(), much),
        Session::End { id } => {
            let answer = server
                .ask(&Method::DELETE, &format!("/me/sessions/{id}"), &RequestOptions::default())?
                .read()?;
            output.either(&answer, "The session ended.")
        }
        Session::EndOthers => {
            let answer: Value =
                server.ask(&Method::DELETE, "/me/sessions", &RequestOptions::default())?.read()?;
            output.either(&answer, &ended(answer["sessions"].as_u64().unwrap_or_default()))
        }
        Session::DismissNotices => {
            let answer: Value =
                server.ask(&Method::DELETE, "/me/notices", &RequestOptions::default())?.read()?;
            output.either(&answer, "The notices are dismissed.")
        }
        Session::RemoveTotp => {
            let answer: Value =
                server.ask(&Method::DELETE, "/me/totp", &RequestOptions::default())?.read()?;
            output.either(&answer, "The authenticator app is removed.")
        }
        Session::Password => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(64 << 10).read_to_string(&mut text);
            read.map_err(|error| Failure::Usage(format!("Cannot read standard input: {error}.")))?;
            let body = match text.lines().collect::<Vec<_>>().as_slice() {
                [new] => json!({"new": new}),
                [old, new] => json!({"old": old, "new": new}),
                _ => {
                    return Err(Failure::Usage(
                        "Invalid input. Enter the current password, if any, and the new one, each \
                         on its own line."
                            .into(),
                    ));
                }
            };
            let with = RequestOptions { body: Some(body), ..RequestOptions::default() };
            let answer = server.ask(&Method::PUT, "/me/password", &with)?;
            // The session continues with a new cookie.
            if let (Some(context), Some(cookie)) = (context, answer.session.clone()) {
                let path = default_path()?;
                let mut contexts = Contexts::read(&path)?;
                if let Some(context) = contexts.contexts.get_mut(context) {
                    context.key = Key::Session(cookie);
                }
                contexts.write(&path)?;
            }
            output.either(&answer.read()?, "The password is set.")
        }
    }
}

/// Prints your account and permissions.
pub(crate) fn me(client: &Client) -> Outcome {
    let answer = client.server.get("/people/me")?;
    client.output.either(&answer, outline(&answer).trim_end())
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
    fn ended_sessions_are_counted() {
        let said = [0, 1, 2].map(ended);
        assert_eq!(
            said,
            ["There were no other sessions.", "1 session ended.", "2 sessions ended."]
        );
    }

    #[test]
    fn grant_may_name_a_deployment() {
        let grants = GrantArgs { may: vec!["viewer".into(), "operator@web".into()] };
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
        assert!(!taken(&["--nothing", "--may", "viewer"]), "one of both");
        assert!(taken(&["--nothing"]));
        assert!(taken(&["--may", "viewer", "--may", "operator@web"]));
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
            told("dan", &all, &some),
            "Permissions of dan: reviewer@edge, viewer.\nAdded: reviewer@edge.\nRemoved: admin, \
             operator@web."
        );
        assert_eq!(
            told("dan", &some, &person(&[])),
            "Permissions of dan: none.\nRemoved: reviewer@edge, viewer."
        );
        assert_eq!(
            told("dan", &some, &some),
            "Permissions of dan: reviewer@edge, viewer.\nNothing changed."
        );
    }
}
