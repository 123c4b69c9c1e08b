//! Commands for sessions and the password.

use std::io::Read as _;

use clap::Subcommand;
use serde_json::json;
use uuid::Uuid;

use crate::address::Query;
use crate::client::{Client, ListOptions};
use crate::contexts::{Contexts, Key, default_path};
use crate::exit::{Failure, Outcome};
use crate::output::list::{List, word};
use crate::server::RequestOptions;

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// List your sessions
    List {
        #[command(flatten)]
        list_options: ListOptions,
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
fn ended_text(sessions: u64) -> String {
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
        Session::List { list_options } => {
            client.list(&session_list(), &Query::default(), list_options)
        }
        Session::End { id } => {
            let answer = server.call(&api::calls::end_session(*id))?;
            output.either(&answer, "The session ended.")
        }
        Session::EndOthers => {
            let answer = server.call(&api::calls::end_other_sessions())?;
            output.either(&answer, &ended_text(answer["sessions"].as_u64().unwrap_or_default()))
        }
        Session::DismissNotices => {
            let answer = server.call(&api::calls::dismiss_notices())?;
            output.either(&answer, "The notices are dismissed.")
        }
        Session::RemoveTotp => {
            let answer = server.call(&api::calls::remove_totp())?;
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
            let answer = server.request(&api::calls::set_password(), with)?;
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

pub(crate) fn session_list() -> List {
    List {
        path: api::calls::SESSIONS_PATH.into(),
        items: "sessions",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "id")),
            ("CURRENT", |v, _| word(v, "current")),
            ("SINCE", |v, o| o.time(&v["since"])),
            ("LAST SEEN", |v, o| o.time(&v["last_seen"])),
            ("EXPIRES", |v, o| o.time(&v["expires"])),
            ("ADDRESS", |v, _| word(v, "address")),
            ("CLIENT", |v, _| word(v, "agent")),
        ],
        none: "No sessions found.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_sessions_are_counted() {
        let text = [0, 1, 2].map(ended_text);
        assert_eq!(
            text,
            ["There were no other sessions.", "1 session ended.", "2 sessions ended."]
        );
    }
}
