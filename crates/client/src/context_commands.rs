//! `gantry context`: named servers and signing in to them.
//!
//! Invariant: credentials are sent only to their own server. A one-time link names its server. A
//! link to another server is rejected and not sent, because its recipient could sign in with it.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use ureq::http::Uri;

use crate::address::Address;
use crate::contexts::{Context, Contexts, Key, Secret, default_path};
use crate::exit::{Failure, Outcome};
use crate::output::table::Table;
use crate::output::{OutputFormat, note, value_text};
use crate::server::Server;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a server with a short name and sign in to it
    Add {
        /// Name of the context
        name: String,
        /// URL of the server, for example https://gantry.example.com
        #[arg(long, value_name = "URL")]
        server: String,
        #[command(flatten)]
        sign_in: SignInOptions,
        /// Code of your authenticator app, if you have a second factor
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
        /// Replace an existing context of that name
        #[arg(long)]
        replace: bool,
    },
    /// Sign in again after a session has ended or a token is no longer valid
    SignIn {
        /// Name of the context [default: the current one]
        name: Option<String>,
        #[command(flatten)]
        sign_in: SignInOptions,
        /// Code of your authenticator app, if you have a second factor
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
    },
    /// List all contexts
    List,
    /// Make a context the current one
    Use {
        /// Name of the context
        name: String,
    },
    /// Show the server and account of a context
    Show {
        /// Name of the context [default: the current one]
        name: Option<String>,
    },
    /// Remove a context with its credentials; its session continues until it is ended
    Remove {
        /// Name of the context
        name: String,
    },
}

/// Sign-in options. By default, a token or a one-time link is read from standard input.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct SignInOptions {
    /// File with a token (gantry_...), or - for standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with a one-time link, which works only once, or - for standard input
    #[arg(long, value_name = "FILE")]
    link_file: Option<PathBuf>,
    /// Sign in with this name and a password from standard input
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

const TOKEN: &str = api::names::TOKEN_PREFIX;
/// Maximum size of a secret, in bytes.
const LARGEST: u64 = 16 << 10;

impl SignInOptions {
    fn key(&self, address: &Address) -> Outcome<Key> {
        let session = |form: &[(&str, &str)]| {
            Ok(Key::Session(Server::new(address.clone(), None).sign_in(form)?))
        };
        if let Some(name) = &self.user {
            let password = secret(None, "the password")?;
            return session(&[("name", name), ("password", password.reveal())]);
        }
        if let Some(file) = &self.token_file {
            return Ok(Key::Token(secret(Some(file), "the token")?));
        }
        let given = secret(self.link_file.as_deref(), "a token or a one-time link")?;
        match self.link_file.is_none() && given.reveal().starts_with(TOKEN) {
            true => Ok(Key::Token(given)),
            false => session(&[("token", validated_link(address, &given)?)]),
        }
    }
}

/// Checks that a one-time link is for this server. Accepts a whole URL, its path, or the secret
/// alone.
fn validated_link<'l>(address: &Address, link: &'l Secret) -> Outcome<&'l str> {
    let text = link.reveal();
    let names_server = text.contains('/') && (!text.starts_with('/') || text.starts_with("//"));
    if !names_server {
        return Ok(text);
    }
    let none = || Failure::Usage("This is not a one-time link. Pass the whole link.".into());
    let uri: Uri = text.parse().map_err(|_| none())?;
    let host = uri.host().filter(|_| uri.scheme().is_some()).ok_or_else(none)?;
    if address.is_of(&uri) {
        return Ok(text);
    }
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Err(Failure::Usage(format!(
        "This link belongs to {host}{port} and was not sent to {address}. Sign in to the server \
         that created it. If both are the same server, pass only the part of the link after token=."
    )))
}

/// Reads one line from a file or standard input.
fn secret(file: Option<&Path>, description: &str) -> Outcome<Secret> {
    let mut text = String::new();
    let read = match file.filter(|path| *path != Path::new("-")) {
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_string(&mut text))
        }
        None => {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                note(&format!("Enter {description} on one line, then press Ctrl-D."));
            }
            stdin.lock().take(LARGEST).read_to_string(&mut text)
        }
    };
    let source = file.map_or("standard input".into(), |path| path.display().to_string());
    read.map_err(|error| Failure::Usage(format!("Cannot read {source}: {error}.")))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next()) {
        (Some(line), None) if !line.chars().any(char::is_control) => Ok(Secret::new(line)),
        _ => Err(Failure::Usage(format!(
            "Invalid content of {source}. It must be {description} on one line, \
                and nothing else."
        ))),
    }
}

pub(crate) fn run(
    output: OutputFormat,
    selected_context: Option<&str>,
    insecure: bool,
    command: &Command,
) -> Outcome {
    let path = default_path()?;
    let mut contexts = Contexts::read(&path)?;
    match command {
        Command::Add { name, server, sign_in, code, replace } => {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_valid) {
                return Err(Failure::Usage(
                    "Invalid context name. Use letters, digits, `-`, `_` and `.`, at most 64 \
                     characters."
                        .into(),
                ));
            }
            if contexts.contexts.contains_key(name) && !replace {
                return Err(Failure::Usage(format!(
                    "Context {name} exists already. Use --replace to replace it."
                )));
            }
            let address = Address::parse(server, insecure)?;
            let key = sign_in.key(&address)?;
            let who = account_name(&address, &key, code.as_deref())?;
            let context = Context { server: address.to_string(), insecure_http: insecure, key };
            contexts.contexts.insert(name.clone(), context);
            contexts.current = Some(name.clone());
            contexts.write(&path)?;
            output.either(
                &json!({"context": name, "server": address.to_string(), "account": who}),
                &format!("Context {name} is now in use: {address}, as {who}."),
            )
        }
        Command::SignIn { name, sign_in, code } => {
            let name = named(&contexts, name.as_deref().or(selected_context))?;
            let context = contexts.named(&name)?.clone();
            let address = Address::parse(&context.server, context.insecure_http || insecure)?;
            let key = sign_in.key(&address)?;
            let who = account_name(&address, &key, code.as_deref())?;
            contexts.contexts.insert(name.clone(), Context { key, ..context });
            contexts.write(&path)?;
            output.either(
                &json!({"context": name, "server": address.to_string(), "account": who}),
                &format!("Context {name}: {address}, as {who}."),
            )
        }
        Command::List => {
            let to_json = |(name, context): (&String, &Context)| {
                json!(
                    {
                        "name": name, "server": context.server, "by": context.key
                            .kind(), "current": contexts.current
                            .as_ref() == Some(name)
                    }
                )
            };
            let all: Vec<Value> = contexts.contexts.iter().map(to_json).collect();
            if output.is_document() {
                return output.document(&Value::Array(all));
            }
            if all.is_empty() {
                return output.line(
                    "No contexts yet. Add one: gantry context add NAME --server URL --link-file \
                     FILE",
                );
            }
            let mut table = Table::new(["", "NAME", "SERVER", "CREDENTIALS"]);
            for context in &all {
                let mark = if context["current"] == true { "*" } else { "" };
                table.row([
                    mark.to_owned(),
                    value_text(&context["name"]),
                    value_text(&context["server"]),
                    value_text(&context["by"]),
                ]);
            }
            output.write(&table.text(output))
        }
        Command::Use { name } => {
            contexts.named(name)?;
            contexts.current = Some(name.clone());
            contexts.write(&path)?;
            output.either(&json!({"current": name}), &format!("Context {name} is now in use."))
        }
        Command::Show { name } => {
            let name = named(&contexts, name.as_deref().or(selected_context))?;
            let context = contexts.named(&name)?;
            let value = json!(
                {
                    "name": name, "server": context.server, "by": context.key
                        .kind(), "current": contexts.current
                        .as_ref() == Some(&name)
                }
            );
            output.either(
                &value,
                &format!("Context {name}: {}, with a {}", context.server, context.key.kind()),
            )
        }
        Command::Remove { name } => {
            contexts.named(name)?;
            contexts.contexts.remove(name);
            contexts.current = contexts.current.filter(|current| current != name);
            contexts.write(&path)?;
            output.either(&json!({"removed": name}), &format!("Context {name} is removed."))
        }
    }
}

fn named(contexts: &Contexts, name: Option<&str>) -> Outcome<String> {
    let name = name.map(str::to_owned).or_else(|| contexts.current.clone());
    name.ok_or_else(|| {
        Failure::Nothing(
            "No context is in use. List them with `gantry context list`, and select one with \
             `gantry context use NAME`."
                .into(),
        )
    })
}

/// The account that the server returns for a key. An invalid key is an error, so it is not stored.
fn account_name(address: &Address, key: &Key, code: Option<&str>) -> Outcome<String> {
    let server = Server::new(address.clone(), Some(key.clone()));
    if let Some(code) = code {
        server.post("/me/second-factor", json!({ "code": code }))?;
    } else if matches!(key, Key::Session(_)) && server.get("/me/second-factor")?["needed"] == true {
        return Err(Failure::Usage(format!(
            "Your account needs a second factor. Sign in again with --code and a code of your \
             authenticator app. To set one up, open {address}/second-factor in a browser. If you \
             have only passkeys, use a token instead."
        )));
    }
    Ok(value_text(&server.show(&api::calls::show_account())?["person"]["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_another_server_is_rejected() {
        let address = Address::parse("http://127.0.0.1:7955", false).unwrap();
        let given = |text: &str| validated_link(&address, &Secret::new(text)).map(str::to_owned);
        for own in ["http://127.0.0.1:7955/sign-in#token=abc", "/sign-in#token=abc", "abc"] {
            assert_eq!(given(own).unwrap(), own);
        }
        for other in [
            "http://127.0.0.1:9999/sign-in#token=abc",
            "https://127.0.0.1:7955/sign-in#token=abc",
            "http://gantry.example.com:7955/sign-in#token=abc",
            "//127.0.0.1:9999/sign-in#token=abc",
            "127.0.0.1:9999/sign-in#token=abc",
        ] {
            let refused = given(other).unwrap_err();
            assert_eq!(refused.code(), 2, "{other}");
            assert!(!refused.to_string().contains("abc"), "{refused}");
        }
        let refused = given("http://127.0.0.1:9999/sign-in#token=abc").unwrap_err().to_string();
        assert!(refused.contains("127.0.0.1:9999") && refused.contains("not sent"), "{refused}");
    }
}
