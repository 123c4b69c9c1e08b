//! People, service accounts, sessions and tokens. What lets somebody in is printed once, when it is made, and kept nowhere here.

use std::collections::BTreeSet;
use std::io::Read as _;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use ureq::http::Method;
use uuid::Uuid;

use crate::address::{Address, Query, part};
use crate::contexts::{Contexts, Key, usual_place};
use crate::exit::{Failure, Outcome};
use crate::lists::{self, Again, Client, Much};
use crate::machines::shown_once;
use crate::names;
use crate::paper::{note, outline, said};
use crate::plans::OnVersion;
use crate::server::With;

#[derive(Debug, Subcommand)]
pub(crate) enum Person {
    /// People and service accounts, by name
    List {
        /// With this in the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// Of this kind
        #[arg(long, value_parser = ["human", "service"])]
        kind: Option<String>,
        /// Only those who are kept out (true), or are not (false)
        #[arg(long, value_parser = ["true", "false"])]
        disabled: Option<String>,
        #[command(flatten)]
        much: Much,
    },
    /// A person or a service account
    Show {
        /// Their name
        name: String,
        #[command(flatten)]
        again: Again,
    },
    /// Add a person, who gets a one-time link
    Add {
        /// Their name
        name: String,
        #[command(flatten)]
        grants: Grants,
    },
    /// Say what somebody may, in the place of all that they might before: name all that they keep
    Grant {
        /// Their name
        name: String,
        #[command(flatten)]
        grants: AllGrants,
        #[command(flatten)]
        on: OnVersion,
    },
    /// Keep somebody out from now on
    Disable {
        /// Their name
        name: String,
        #[command(flatten)]
        on: OnVersion,
    },
    /// Let somebody in again
    Enable {
        /// Their name
        name: String,
        #[command(flatten)]
        on: OnVersion,
    },
    /// Confirm somebody's access as a second admin: their approvals count at once
    Confirm {
        /// Their name
        name: String,
    },
    /// Remove the authenticator app and passkeys of a person who lost them, and end their sessions
    ResetSecondFactor {
        /// Their name
        name: String,
    },
    /// Make a one-time link for somebody
    Link {
        /// Their name
        name: String,
        #[command(flatten)]
        on: OnVersion,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Grants {
    /// viewer, operator, reviewer or admin; with @DEPLOYMENT only there and below; may be given again
    #[arg(long = "may", value_name = "PERMISSION[@DEPLOYMENT]")]
    may: Vec<String>,
}

impl Grants {
    fn json(&self) -> Value {
        grants_of(&self.may)
    }
}

/// What comes in the place of everything before. That it is nothing has to be said: a forgotten option would say it, too.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct AllGrants {
    /// viewer, operator, reviewer or admin; with @DEPLOYMENT only there and below; may be given again
    #[arg(long = "may", value_name = "PERMISSION[@DEPLOYMENT]")]
    may: Vec<String>,
    /// They may nothing from now on, not even look
    #[arg(long)]
    nothing: bool,
}

fn grants_of(may: &[String]) -> Value {
    let grant = |text: &String| match text.split_once('@') {
        Some((permission, deployment)) => {
            json!({"permission": permission, "deployment": deployment})
        }
        None => json!({"permission": text}),
    };
    may.iter().map(grant).collect()
}

/// What a person may, each as it is typed.
fn granted(person: &Value) -> BTreeSet<String> {
    let typed = |grant: &Value| match grant["deployment"].as_str() {
        Some(deployment) => format!("{}@{deployment}", said(&grant["permission"])),
        None => said(&grant["permission"]),
    };
    person["grants"].as_array().into_iter().flatten().map(typed).collect()
}

/// What somebody may now, and what is new about it.
fn told(name: &str, before: &BTreeSet<String>, now: &BTreeSet<String>) -> String {
    let listed = |grants: Vec<&str>| grants.join(", ");
    let of = |grants: &BTreeSet<String>, but: &BTreeSet<String>| {
        listed(grants.difference(but).map(String::as_str).collect())
    };
    let (given, taken) = (of(now, before), of(before, now));
    let mut lines = vec![match now.is_empty() {
        true => format!("{name} may nothing."),
        false => format!("{name} may {}.", listed(now.iter().map(String::as_str).collect())),
    }];
    if !given.is_empty() {
        lines.push(format!("Given: {given}."));
    }
    if !taken.is_empty() {
        lines.push(format!("Taken away: {taken}."));
    }
    if lines.len() == 1 {
        lines.push("That is what it was before.".to_owned());
    }
    lines.join("\n")
}

pub(crate) fn person(client: &Client, command: &Person) -> Outcome {
    let Client { server, paper } = client;
    let place =
        |name: &str| Ok::<_, Failure>(format!("/people/{}", part(&names::person(server, name)?)));
    let post = |name: &str, what: &str, on: OnVersion| {
        let with = With { body: Some(json!({})), if_match: on.tag(), accept: None };
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
            link_told(client, name, answer, "/link")
        }
        Person::Grant { name, grants, on } => {
            let place = place(name)?;
            let seen = server.ask(&Method::GET, &place, &With::default())?;
            let before: Value = seen.read()?;
            let body = json!({"grants": grants_of(&grants.may)});
            let with = With { body: Some(body), if_match: on.tag().or(seen.etag), accept: None };
            let answer: Value =
                server.ask(&Method::PATCH, &format!("{place}/grants"), &with)?.read()?;
            paper.either(&answer, &told(name, &granted(&before), &granted(&answer)))
        }
        Person::Disable { name, on } => {
            let answer = post(name, "disable", *on)?;
            paper.either(&answer, &format!("{name} is kept out, and their tokens are taken back."))
        }
        Person::Enable { name, on } => {
            let answer = post(name, "enable", *on)?;
            paper.either(
                &answer,
                &format!("{name} can come in. Tokens from before stay taken back."),
            )
        }
        Person::Confirm { name } => {
            let answer: Value = server.post(&format!("{}/confirm", place(name)?), json!({}))?;
            paper.either(
                &answer,
                &format!(
                    "The access of {name} is confirmed. Approvals by {name} count from now on."
                ),
            )
        }
        Person::ResetSecondFactor { name } => {
            let place = format!("{}/second-factor", place(name)?);
            let answer: Value = server.ask(&Method::DELETE, &place, &With::default())?.read()?;
            paper.either(
                &answer,
                &format!("The second factor of {name} is removed, and their sessions have ended."),
            )
        }
        Person::Link { name, on } => {
            let answer = post(name, "link", *on)?;
            link_told(client, name, answer, "")
        }
    }
}

/// The whole address of a one-time link, as who gets it can open it, for programs, too. `at`: where the answer has the link, as a JSON
/// pointer.
fn link_told(client: &Client, name: &str, mut answer: Value, at: &str) -> Outcome {
    let whole = made_whole(&mut answer, at, client.server.address());
    client.paper.either(&answer, &whole)?;
    if !client.paper.json {
        let minutes = answer.pointer(at).map(|link| said(&link["minutes"])).unwrap_or_default();
        note(&format!(
            "{name} comes in by this once, within {minutes} minutes. It is shown this once."
        ));
    }
    Ok(())
}

/// Puts the server before the way that an answer has, and says the whole.
fn made_whole(answer: &mut Value, at: &str, server: &Address) -> String {
    let Some(link) = answer.pointer_mut(&format!("{at}/link")) else { return String::new() };
    let way = said(link);
    let whole = if way.starts_with('/') { format!("{server}{way}") } else { way };
    *link = Value::String(whole.clone());
    whole
}

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// Service accounts, by name
    List {
        /// With this in the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        much: Much,
    },
    /// Add a service account: it has tokens only, and its verdicts never count
    Add {
        /// The service account's name
        name: String,
        #[command(flatten)]
        grants: Grants,
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
            let next = format!(
                "{name} is added. Make a token for it: gantry token make --for {name} --name TEXT --may viewer"
            );
            client.paper.either(&answer, &next)
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Your own tokens, or those of a service account: all that hold, then the newest of the others, at most 100
    List {
        /// Whose
        #[arg(long = "for", value_name = "NAME")]
        whose: Option<String>,
        /// Only those that hold (true), or only those that do not (false)
        #[arg(long, value_name = "BOOL", value_parser = ["true", "false"])]
        holds: Option<String>,
        #[command(flatten)]
        much: Much,
    },
    /// Make one; it is shown this once
    Make {
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        name: String,
        /// What it may at most: viewer, operator or admin; may be given again
        #[arg(long = "may", value_name = "PERMISSION", required = true)]
        may: Vec<String>,
        /// Only in this deployment and below; not with --may admin
        #[arg(long = "in", value_name = "DEPLOYMENT")]
        deployment: Option<String>,
        /// For how many days it holds
        #[arg(long, default_value_t = 90)]
        days: u32,
        /// The service account that it is for; without it yourself
        #[arg(long = "for", value_name = "NAME")]
        whose: Option<String>,
    },
    /// Take one back
    Revoke {
        /// The token's id, as the list of tokens has it
        id: Uuid,
    },
}

pub(crate) fn token(client: &Client, command: &Token) -> Outcome {
    let Client { server, paper } = client;
    let whose =
        |name: &Option<String>| name.as_deref().map(|name| names::person(server, name)).transpose();
    match command {
        Token::List { whose: name, holds, much } => {
            let query = Query::default().with("person", &whose(name)?).with("holds", holds);
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
            shown_once(client, &server.post("/tokens", Value::Object(body))?)
        }
        Token::Revoke { id } => {
            let answer =
                server.ask(&Method::DELETE, &format!("/tokens/{id}"), &With::default())?.read()?;
            paper.either(&answer, &format!("Token {id} is taken back."))
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Passkey {
    /// Revoke one: what it signed does not count for later commits
    Revoke {
        /// The passkey's id, as `me` shows it
        id: Uuid,
    },
}

pub(crate) fn passkey(client: &Client, command: &Passkey) -> Outcome {
    let Client { server, paper } = client;
    match command {
        Passkey::Revoke { id } => {
            let answer = server
                .ask(&Method::DELETE, &format!("/passkeys/{id}"), &With::default())?
                .read()?;
            paper.either(&answer, &format!("Passkey {id} is revoked."))
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Where you are signed in
    List {
        #[command(flatten)]
        much: Much,
    },
    /// Sign out somewhere
    End {
        /// The session's id, as the list of sessions has it
        id: Uuid,
    },
    /// Sign out everywhere but here
    EndOthers,
    /// Dismiss the notices of resets of your sign-in
    DismissNotices,
    /// Remove your authenticator app
    RemoveTotp,
    /// Set or change your password; both are read from the standard input, a line each: the old one, where there is one, and the new one
    Password,
}

/// What became of the other sessions.
fn ended(sessions: u64) -> String {
    match sessions {
        0 => "There was no other session.".to_owned(),
        1 => "One session is over.".to_owned(),
        more => format!("{more} sessions are over."),
    }
}

/// `context`: the one whose session asks.
pub(crate) fn session(client: &Client, context: Option<&str>, command: &Session) -> Outcome {
    let Client { server, paper } = client;
    match command {
        Session::List { much } => client.list(&lists::sessions(), &Query::default(), much),
        Session::End { id } => {
            let answer = server
                .ask(&Method::DELETE, &format!("/me/sessions/{id}"), &With::default())?
                .read()?;
            paper.either(&answer, "That session is over.")
        }
        Session::EndOthers => {
            let answer: Value =
                server.ask(&Method::DELETE, "/me/sessions", &With::default())?.read()?;
            paper.either(&answer, &ended(answer["sessions"].as_u64().unwrap_or_default()))
        }
        Session::DismissNotices => {
            let answer: Value =
                server.ask(&Method::DELETE, "/me/notices", &With::default())?.read()?;
            paper.either(&answer, "The notices are dismissed.")
        }
        Session::RemoveTotp => {
            let answer: Value =
                server.ask(&Method::DELETE, "/me/totp", &With::default())?.read()?;
            paper.either(&answer, "The authenticator app is removed.")
        }
        Session::Password => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(64 << 10).read_to_string(&mut text);
            read.map_err(|error| {
                Failure::Usage(format!("the standard input can't be read: {error}"))
            })?;
            let body = match text.lines().collect::<Vec<_>>().as_slice() {
                [new] => json!({"new": new}),
                [old, new] => json!({"old": old, "new": new}),
                _ => {
                    return Err(Failure::Usage(
                        "give the new password on a line, behind the old one where there is one"
                            .into(),
                    ));
                }
            };
            let with = With { body: Some(body), ..With::default() };
            let answer = server.ask(&Method::PUT, "/me/password", &with)?;
            // The session goes on under another cookie.
            if let (Some(context), Some(cookie)) = (context, answer.session.clone()) {
                let path = usual_place()?;
                let mut contexts = Contexts::read(&path)?;
                if let Some(context) = contexts.contexts.get_mut(context) {
                    context.key = Key::Session(cookie);
                }
                contexts.write(&path)?;
            }
            paper.either(&answer.read()?, "The password is set.")
        }
    }
}

/// Who asks, and what they may.
pub(crate) fn me(client: &Client) -> Outcome {
    let answer = client.server.get("/people/me")?;
    client.paper.either(&answer, outline(&answer).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_its_server_wherever_an_answer_has_it() {
        let server = Address::parse("https://gantry.example.com", false).unwrap();
        let whole = "https://gantry.example.com/sign-in#token=x";
        let link = || json!({"link": "/sign-in#token=x", "minutes": 15});
        for (mut answer, at) in [(link(), ""), (json!({"name": "bo", "link": link()}), "/link")] {
            assert_eq!(made_whole(&mut answer, at, &server), whole);
            assert_eq!(answer.pointer(&format!("{at}/link")), Some(&json!(whole)));
            assert_eq!(made_whole(&mut answer, at, &server), whole, "and once is enough");
        }
    }

    #[test]
    fn ended_sessions_are_counted_as_people_say_it() {
        let said = [0, 1, 2].map(ended);
        assert_eq!(
            said,
            ["There was no other session.", "One session is over.", "2 sessions are over."]
        );
    }

    #[test]
    fn a_grant_may_say_where() {
        let grants = Grants { may: vec!["viewer".into(), "operator@web".into()] };
        assert_eq!(
            grants.json(),
            json!([{"permission": "viewer"}, {"permission": "operator", "deployment": "web"}])
        );
    }

    #[test]
    fn that_somebody_may_nothing_has_to_be_said() {
        let program = Person::augment_subcommands(clap::Command::new("person"));
        let taken = |words: &[&str]| {
            let words = [&["person", "grant", "dan"][..], words].concat();
            program.clone().try_get_matches_from(words).is_ok()
        };
        assert!(!taken(&[]), "a forgotten option takes nothing away");
        assert!(!taken(&["--nothing", "--may", "viewer"]), "one of both");
        assert!(taken(&["--nothing"]));
        assert!(taken(&["--may", "viewer", "--may", "operator@web"]));
    }

    #[test]
    fn what_was_given_and_what_was_taken_away_is_told() {
        let person = |grants: &[&str]| {
            let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
            granted(&json!({"grants": grants_of(&grants)}))
        };
        let (all, some) =
            (person(&["viewer", "operator@web", "admin"]), person(&["viewer", "reviewer@edge"]));
        assert_eq!(
            told("dan", &all, &some),
            "dan may reviewer@edge, viewer.\nGiven: reviewer@edge.\nTaken away: admin, operator@web."
        );
        assert_eq!(
            told("dan", &some, &person(&[])),
            "dan may nothing.\nTaken away: reviewer@edge, viewer."
        );
        assert_eq!(
            told("dan", &some, &some),
            "dan may reviewer@edge, viewer.\nThat is what it was before."
        );
    }
}
