//! An operation as a `gantry` command and as a `curl` request against `/api/v1`.
//!
//! Both come from one [`Call`]. It has the ids and versions of the page. So a command has the same
//! effect as the button, and fails in the same cases. Nothing in this module executes a command.
//!
//! Invariants:
//! * Both commands are lines for a POSIX shell. [`shell`] quotes every value that is not a literal
//!   of a call (names, reasons, data).
//! * No command contains a secret. Tokens and sessions are variables of the reader's shell; a
//!   password comes from a file.

pub mod shell;

use serde_json::Value;

use crate::names::ROOT;
use shell::quoted;

/// Environment variable with the server's URL, for both commands.
pub const SERVER_VARIABLE: &str = "GANTRY_SERVER";
/// Environment variable with an API token.
pub const TOKEN: &str = "GANTRY_TOKEN";
/// Environment variable with the path of a cookie file, as `curl -c` writes it at sign-in.
pub const SESSION_VARIABLE: &str = "GANTRY_SESSION";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Empty,
    Json(Value),
    /// The content of this file, for a body that is too long for a line or is secret.
    File(&'static str),
}

/// An operation as a `gantry` command and as a REST request.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Arguments of `gantry`. Empty if the operation has no command of its own.
    pub(crate) words: Vec<String>,
    /// Standard input of the command.
    pub(crate) input: Option<String>,
    pub(crate) method: Method,
    /// Path below `/api/v1`, with its query.
    pub(crate) path: String,
    pub(crate) body: Body,
    /// Version for the `If-Match` header.
    pub(crate) on: Option<i32>,
    /// Whether the request needs a session. The server rejects API tokens here.
    pub(crate) session_only: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            words: Vec::new(),
            input: None,
            method,
            path: path.into(),
            body: Body::Empty,
            on: None,
            session_only: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::Post, path)
    }

    pub(crate) fn json(self, body: Value) -> Self {
        Self { body: Body::Json(body), ..self }
    }

    pub(crate) fn on(self, version: i32) -> Self {
        Self { on: Some(version), ..self }
    }

    pub(crate) fn session_only(self) -> Self {
        Self { session_only: true, ..self }
    }

    /// Sets the arguments of `gantry`.
    pub(crate) fn command<'a>(self, words: impl IntoIterator<Item = &'a str>) -> Self {
        Self { words: words.into_iter().map(str::to_owned).collect(), ..self }
    }

    pub(crate) fn argument(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Adds an option. A value that starts with `-` is joined to the name with `=`. Otherwise clap
    /// would parse it as another option.
    pub(crate) fn option(self, name: &str, value: &str) -> Self {
        match value.starts_with('-') {
            true => self.argument(format!("--{name}={value}")),
            false => self.argument(format!("--{name}")).argument(value),
        }
    }

    /// Adds the version shown on the page. If the record has changed since, the command fails as
    /// the button does.
    pub(crate) fn version(self, version: i32) -> Self {
        self.option("version", &version.to_string())
    }

    /// Adds the last argument. `--` protects a value that starts with `-`.
    pub(crate) fn last(self, word: &str) -> Self {
        let call = if word.starts_with('-') { self.argument("--") } else { self };
        call.argument(word)
    }

    /// Adds the option once per value.
    pub(crate) fn options(self, name: &str, values: impl IntoIterator<Item = String>) -> Self {
        values.into_iter().fold(self, |call, value| call.option(name, &value))
    }

    /// Adds the option if the value is not empty.
    pub(crate) fn option_if_set(self, name: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.option(name, value) }
    }

    pub(crate) fn switch(self, name: &str, on: bool) -> Self {
        if on { self.argument(format!("--{name}")) } else { self }
    }

    pub fn method(&self) -> Method {
        self.method
    }

    /// Path on the server, without the query.
    pub fn path(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{ROOT}{path}")
    }

    /// Path on the server, with the query.
    pub fn url(&self) -> String {
        format!("{ROOT}{}", self.path)
    }

    pub fn query(&self) -> Vec<(&str, &str)> {
        let query = self.path.split_once('?').map(|(_, query)| query).unwrap_or_default();
        query.split('&').filter_map(|pair| pair.split_once('=')).collect()
    }

    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Whether the request has an `If-Match` header.
    pub fn has_version(&self) -> bool {
        self.on.is_some()
    }

    /// The `If-Match` header.
    pub fn if_match(&self) -> Option<String> {
        self.on.map(|version| format!("\"{version}\""))
    }

    /// Arguments of `gantry`. An operation without a command of its own uses `gantry api`, which
    /// sends any request.
    pub fn arguments(&self) -> Vec<String> {
        if !self.words.is_empty() {
            return self.words.clone();
        }
        let mut words = vec!["api".to_owned(), self.method.as_str().to_owned(), self.path.clone()];
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

    /// Standard input of the command.
    pub fn input(&self) -> Option<String> {
        match (&self.body, self.words.is_empty()) {
            (Body::Json(body), true) => Some(body.to_string()),
            _ => self.input.clone(),
        }
    }

    /// The `gantry` command line.
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

    /// The `curl` command line. On an HTTP error, it prints the response body and exits nonzero.
    pub fn curl(&self) -> String {
        let mut parts = vec!["curl -sS --fail-with-body".to_owned()];
        parts.push(match self.session_only {
            true => format!("-b \"${SESSION_VARIABLE}\""),
            false => format!("-H \"Authorization: Bearer ${TOKEN}\""),
        });
        if self.method != Method::Get {
            parts.push("-H 'X-Gantry: 1'".to_owned());
        }
        parts.extend(
            self.on.map(|version| format!("-H {}", quoted(&format!("If-Match: \"{version}\"")))),
        );
        // curl sends GET by default, and POST if there is a body.
        let is_implied = matches!(
            (self.method, &self.body),
            (Method::Get, _) | (Method::Post, Body::Json(_) | Body::File(_))
        );
        if !is_implied {
            parts.push(format!("-X {}", self.method.as_str()));
        }
        match &self.body {
            Body::Empty => {}
            Body::Json(body) => parts.push(format!("--json {}", quoted(&body.to_string()))),
            Body::File(name) => parts.push(format!("--json @{name}")),
        }
        parts.push(format!("\"${SERVER_VARIABLE}{ROOT}{}\"", self.path));
        parts.join(" ")
    }
}
