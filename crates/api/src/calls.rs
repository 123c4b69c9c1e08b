//! Same by command: whatever a page does, as a command line and as a request.
//!
//! A page shows what somebody would type to do what its button does: one command of `gantry`, and one of `curl` against `/api/v1`. Both
//! come from one [`Call`], which has the ids and versions that are on the page, so they do what the page would do now, and are refused
//! where it would be refused. Nothing here carries anything out.
//!
//! Invariants:
//! * Both are lines for a POSIX shell. Whatever was not written here (names, reasons, data) is quoted by [`shell`] and can't be anything
//!   but itself.
//! * No secret is in them: a token and a session are named as variables of the reader's own shell, a password comes from a file.
//! * Each operation of the interface that changes something has a call, or says in the tests of this module why not; each call's path,
//!   method and body are held against `docs/openapi.json` there.

mod edits;
mod graphs;
mod lists;
mod machines;
mod people;
mod samples;
pub mod shell;
mod work;

pub use edits::{bind, discard, edit, propose, propose_on_node, put, redo, submit, unbind, undo};
pub use graphs::{graph, review_graph};
pub use lists::{List, list, list_of, noderole_data, run_data, search};
pub use machines::{
    NewNode, add_node, add_nodes, change_node, mint_node_token, propose_change, revoke_node_token,
    set_available, show_node, take_out_node,
};
pub use people::{
    add_person, change_grants, confirm_person, disable_person, dismiss_notices, enable_person,
    end_other_sessions, end_session, list_passkeys, make_link, make_token, remove_totp,
    reset_factor, revoke_passkey, revoke_token, set_password,
};
pub use samples::samples;
pub use work::{
    cancel_run, check_audit, comment, commit, execution, export_audit, hold, import, overview,
    policy, prioritise, reply, resolve, restore, retry, role_graph, run_log, script, show_review,
    show_role, verdict,
};

use serde_json::Value;

use crate::names::ROOT;
use shell::quoted;

/// The variable that says where Gantry is, for both commands.
pub const SERVER: &str = "GANTRY_SERVER";
/// The variable that has a token.
pub const TOKEN: &str = "GANTRY_TOKEN";
/// The variable that names the file with a session's cookie: `curl -c` wrote it when it signed in.
pub const SESSION: &str = "GANTRY_SESSION";

/// How a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Changes nothing.
    Get,
    /// Does something.
    Post,
    /// Puts something in the place of what is there.
    Put,
    /// Changes a part.
    Patch,
    /// Takes something away.
    Delete,
}

impl Method {
    /// As requests say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What a request says.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// This, as JSON.
    Json(Value),
    /// What is in a file: it is too large for a line, or nobody's business.
    File(&'static str),
}

/// One thing that is done, in both ways.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is typed behind `gantry`; empty: it has no command of its own.
    words: Vec<String>,
    /// What the command reads from its standard input.
    input: Option<String>,
    method: Method,
    /// Below `/api/v1`, with its query.
    path: String,
    body: Body,
    /// The version of the record that it was made on, where the request says it in a header.
    on: Option<i32>,
    /// Whether it takes a person who is signed in: no token does it.
    in_person: bool,
}

impl Call {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            words: Vec::new(),
            input: None,
            method,
            path: path.into(),
            body: Body::Empty,
            on: None,
            in_person: false,
        }
    }

    fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path)
    }

    fn post(path: impl Into<String>) -> Self {
        Self::new(Method::Post, path)
    }

    fn json(self, body: Value) -> Self {
        Self { body: Body::Json(body), ..self }
    }

    fn on(self, version: i32) -> Self {
        Self { on: Some(version), ..self }
    }

    fn in_person(self) -> Self {
        Self { in_person: true, ..self }
    }

    /// Said by the command line in these words.
    fn words<'a>(self, words: impl IntoIterator<Item = &'a str>) -> Self {
        Self { words: words.into_iter().map(str::to_owned).collect(), ..self }
    }

    /// One word more.
    fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    /// One option more. A value that begins like an option is tied to its name.
    fn option(self, name: &str, value: &str) -> Self {
        match value.starts_with('-') {
            true => self.word(format!("--{name}={value}")),
            false => self.word(format!("--{name}")).word(value),
        }
    }

    /// The version that is on the page: a command that names it is refused where the page's button would be.
    fn version(self, version: i32) -> Self {
        self.option("version", &version.to_string())
    }

    /// The last word, whatever it begins with.
    fn last(self, word: &str) -> Self {
        let call = if word.starts_with('-') { self.word("--") } else { self };
        call.word(word)
    }

    /// The same option with each of these.
    fn options(self, name: &str, values: impl IntoIterator<Item = String>) -> Self {
        values.into_iter().fold(self, |call, value| call.option(name, &value))
    }

    /// The same, of what is there.
    fn option_of(self, name: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.option(name, value) }
    }

    /// A switch, where it is on.
    fn switch(self, name: &str, on: bool) -> Self {
        if on { self.word(format!("--{name}")) } else { self }
    }

    /// How it asks.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The address on the server, without its query.
    pub fn path(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{ROOT}{path}")
    }

    /// The words of its query with their values.
    pub fn query(&self) -> Vec<(&str, &str)> {
        let query = self.path.split_once('?').map(|(_, query)| query).unwrap_or_default();
        query.split('&').filter_map(|pair| pair.split_once('=')).collect()
    }

    /// What it says.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Whether the request names a version in a header.
    pub fn names_version(&self) -> bool {
        self.on.is_some()
    }

    /// What is typed behind `gantry`, word by word as the program gets it. Where the program has no words of its own for something, it
    /// is `gantry api`, which sends any request.
    pub fn arguments(&self) -> Vec<String> {
        if !self.words.is_empty() {
            return self.words.clone();
        }
        let mut words = vec!["api".to_owned(), self.method.word().to_owned(), self.path.clone()];
        match &self.body {
            Body::Empty => {}
            Body::Json(_) => words.extend(["--body", "-"].map(str::to_owned)),
            Body::File(name) => words.extend(["--body", *name].map(str::to_owned)),
        }
        words.extend(
            self.on.iter().flat_map(|version| ["--if-match".to_owned(), format!("\"{version}\"")]),
        );
        words
    }

    /// What the program reads from its standard input, if it does.
    pub fn input(&self) -> Option<String> {
        match (&self.body, self.words.is_empty()) {
            (Body::Json(body), true) => Some(body.to_string()),
            _ => self.input.clone(),
        }
    }

    /// The command line.
    pub fn cli(&self) -> String {
        let words = self.arguments();
        let words =
            std::iter::once("gantry".to_owned()).chain(words.iter().map(|word| quoted(word)));
        let line = words.collect::<Vec<_>>().join(" ");
        match self.input() {
            Some(input) => format!("printf %s {} | {line}", quoted(&input)),
            None => line,
        }
    }

    /// The request. It prints what was refused, and ends with an error then.
    pub fn curl(&self) -> String {
        let mut parts = vec!["curl -sS --fail-with-body".to_owned()];
        parts.push(match self.in_person {
            true => format!("-b \"${SESSION}\""),
            false => format!("-H \"Authorization: Bearer ${TOKEN}\""),
        });
        if self.method != Method::Get {
            parts.push("-H 'X-Gantry: 1'".to_owned());
        }
        parts.extend(
            self.on.map(|version| format!("-H {}", quoted(&format!("If-Match: \"{version}\"")))),
        );
        // A body alone makes it a POST.
        let is_told = matches!(
            (self.method, &self.body),
            (Method::Get, _) | (Method::Post, Body::Json(_) | Body::File(_))
        );
        if !is_told {
            parts.push(format!("-X {}", self.method.word()));
        }
        match &self.body {
            Body::Empty => {}
            Body::Json(body) => parts.push(format!("--json {}", quoted(&body.to_string()))),
            Body::File(name) => parts.push(format!("--json @{name}")),
        }
        parts.push(format!("\"${SERVER}{ROOT}{}\"", self.path));
        parts.join(" ")
    }
}

#[cfg(test)]
mod tests;
