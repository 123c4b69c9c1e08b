//! Completion of names in the shell.
//!
//! The shell calls the program for each completion. It asks the server that the command line
//! selects. Invariant: a completion is quiet and short. Without an answer within [`LIMIT`], there
//! are no names.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use api::calls::List;
use clap::{Arg, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde_json::Value;

use crate::address::Query;
use crate::contexts::{Contexts, default_path};
use crate::exit::Outcome;
use crate::output::value_text;
use crate::server::Server;
use crate::{Options, client};

const LIMIT: Duration = Duration::from_millis(1_500);

/// Prints completions and exits, if the shell asks for them.
pub fn complete(program: impl Fn() -> Command) {
    CompleteEnv::with_factory(|| with_names(program(), "")).complete();
}

/// Things with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noun {
    Context,
    Deployment,
    Node,
    Role,
    Review,
    Worker,
}

/// Adds the completion of names to all arguments that take them.
fn with_names(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let complete = |arg: Arg| match noun(parent, &name, arg.get_id().as_str()) {
        Some(noun) => arg.add(ArgValueCompleter::new(move |word: &OsStr| candidates(noun, word))),
        None => arg,
    };
    command.mut_args(complete).mut_subcommands(|below| with_names(below, &name))
}

/// The kind of names that an argument of a command takes.
fn noun(parent: &str, command: &str, arg: &str) -> Option<Noun> {
    match (parent, command, arg) {
        ("context", "add", "name") | ("deployment", "create", "name") => None,
        (_, _, "context") | ("context", _, "name") => Some(Noun::Context),
        (_, _, "deployment" | "deployments" | "parent" | "of_ancestor")
        | ("deployment", _, "name")
        | ("wait", "deployment", "name")
        | (_, "export", "name") => Some(Noun::Deployment),
        (_, _, "node" | "nodes") => Some(Noun::Node),
        (_, _, "role" | "roles") | ("role", _, "name") => Some(Noun::Role),
        ("review", _, "id") | ("wait", "review", "id") => Some(Noun::Review),
        (_, _, "worker") => Some(Noun::Worker),
        _ => None,
    }
}

fn candidates(noun: Noun, word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    // A completion that fails must not disturb the line that a person types.
    let names = names(noun, &word).unwrap_or_default();
    names
        .into_iter()
        .filter(|name| name.starts_with(&*word))
        .map(CompletionCandidate::new)
        .collect()
}

fn names(noun: Noun, word: &str) -> Outcome<Vec<String>> {
    let (list, items, name) = match noun {
        Noun::Context => {
            return Ok(Contexts::read(&default_path()?)?.contexts.into_keys().collect());
        }
        Noun::Deployment => (List::Deployments, "deployments", "name"),
        Noun::Node => (List::Nodes, "nodes", "fqdn"),
        Noun::Role => (List::Roles, "roles", "name"),
        Noun::Review => (List::Reviews, "reviews", "review"),
        Noun::Worker => (List::Workers, "workers", "name"),
    };
    let query = match noun {
        Noun::Review => Query::default(),
        // Most workers of a list have ended and would hide the others.
        Noun::Worker => Query::default().with("filter", word).with("alive", "true"),
        _ => Query::default().with("filter", word),
    };
    let page = server()?.get(&query.on(&list.path("")))?;
    let all = page[items].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(all.iter().map(|item: &Value| value_text(&item[name])).collect())
}

/// The server that the command line selects.
fn server() -> Outcome<Server> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    let option = |name: &str| {
        let with_equals = format!("{name}=");
        let mut found = words.iter().enumerate().filter_map(|(at, word)| {
            let value = word.strip_prefix(&with_equals).map(str::to_owned);
            value.or_else(|| words.get(at + 1).filter(|_| word == name).cloned())
        });
        found.next()
    };
    let options = Options {
        context: option("--context"),
        server: option("--server"),
        insecure_http: words.iter().any(|word| word == "--insecure-http"),
        output: None,
        json: false,
    };
    Ok(client(&options)?.0.server.until(Some(Instant::now() + LIMIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_complete_their_nouns() {
        assert_eq!(noun("node", "show", "node"), Some(Noun::Node));
        assert_eq!(noun("gantry", "bind", "nodes"), Some(Noun::Node));
        assert_eq!(noun("gantry", "bind", "role"), Some(Noun::Role));
        assert_eq!(noun("deployment", "hold", "name"), Some(Noun::Deployment));
        assert_eq!(noun("deployment", "create", "name"), None, "a new name has no completions");
        assert_eq!(noun("review", "approve", "id"), Some(Noun::Review));
        assert_eq!(noun("context", "use", "name"), Some(Noun::Context));
        assert_eq!(noun("worker", "drain", "worker"), Some(Noun::Worker));
        assert_eq!(noun("gantry", "workers", "worker"), Some(Noun::Worker));
        assert_eq!(noun("proposal", "show", "id"), None);
    }
}
