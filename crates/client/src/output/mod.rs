//! Output to standard output and standard error, as text or JSON.
//!
//! Only results go to standard output. Progress, notes and errors go to standard error. All texts
//! pass [`terminal`], so that no text from elsewhere can control the terminal.
//! [`OutputFormat::raw`] is the only exception.

pub(crate) mod list;
pub(crate) mod outline;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod terminal;

use std::io::{IsTerminal as _, Write as _};

use engine::text::shown;
use serde_json::Value;

use crate::exit::Outcome;
use crate::output::terminal::{BOLD, printable};

/// The output of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputFormat {
    pub(crate) json: bool,
    /// Columns of the terminal, or `None` without a terminal.
    pub(crate) width: Option<usize>,
    color: bool,
}

impl OutputFormat {
    pub(crate) fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = terminal
            .then(|| usize::from(console::Term::stdout().size().1))
            .filter(|width| *width > 0);
        Self { json, width, color: terminal && !plain }
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        self.width.is_some()
    }

    pub(crate) fn write(self, text: &str) -> Outcome {
        self.raw(&printable(text))
    }

    /// Writes a text unchanged, including control sequences.
    pub(crate) fn raw(self, text: &str) -> Outcome {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    pub(crate) fn line(self, text: &str) -> Outcome {
        self.write(&format!("{text}\n"))
    }

    pub(crate) fn json(self, value: &Value) -> Outcome {
        self.line(&terminal::json(&serde_json::to_string_pretty(value).unwrap_or_default()))
    }

    /// Writes a document on one line.
    pub(crate) fn json_line(self, value: &Value) -> Outcome {
        self.line(&terminal::json(&value.to_string()))
    }

    /// Writes the answer as JSON, or the sentence as text.
    pub(crate) fn either(self, response: &Value, sentence: &str) -> Outcome {
        if self.json { self.json(response) } else { self.line(sentence) }
    }

    /// Clears the screen and writes a page.
    pub(crate) fn anew(self, text: &str) -> Outcome {
        let clear = if self.is_terminal() { "\x1b[H\x1b[2J\x1b[3J" } else { "" };
        self.raw(&format!("{clear}{}", printable(text)))
    }

    pub(crate) fn heading(self, text: &str) -> String {
        let [bold, reset] = BOLD;
        if self.color { format!("{bold}{text}{reset}") } else { text.to_owned() }
    }
}

/// Writes a note to standard error. Errors are ignored, because no one depends on notes.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// Puts a text on one line and escapes invisible characters.
pub(crate) fn plain(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shown(&line).chars().filter(|c| !c.is_control()).collect()
}

/// Applies [`plain`] to each line and keeps the indentation.
pub(crate) fn sanitize_lines(text: &str) -> String {
    let line = |line: &str| {
        let printable_text: String =
            line.chars().filter(|c| !c.is_control() || *c == '\t').collect();
        shown(&printable_text).into_owned() + "\n"
    };
    text.lines().map(line).collect()
}

/// Formats the time in an answer.
pub(crate) fn moment(value: &Value) -> String {
    value.as_i64().map(moment_of).unwrap_or_default()
}

/// Formats a time, for example `2026-09-22 14:05:09Z`.
pub(crate) fn moment_of(millis: i64) -> String {
    let format =
        time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]Z");
    let at = time::OffsetDateTime::from_unix_timestamp(millis.div_euclid(1000)).ok();
    at.and_then(|at| at.format(format).ok()).unwrap_or_default()
}

/// Numbers of steps by state, for example `3 ACTIVE, 1 ERROR`.
pub(crate) fn steps(value: &Value) -> String {
    let states = ["error", "transition", "todo", "blocked", "active"];
    let counts = states.iter().filter_map(|state| {
        let count = value.get(state)?.as_i64().filter(|count| *count > 0)?;
        Some(format!("{count} {}", state.to_uppercase()))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// A field's value as text: lists are separated by commas, null is empty.
pub(crate) fn said(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(said).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Names and values, one per line. Empty values are left out.
pub(crate) fn facts<const N: usize>(all: [(&str, String); N]) -> String {
    let fields: Vec<(&str, String)> = all
        .into_iter()
        .map(|(name, says)| (name, plain(&says)))
        .filter(|(_, says)| !says.is_empty())
        .collect();
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    fields.iter().map(|(name, says)| format!("  {name:width$}  {says}\n")).collect()
}

/// Maximum number of items of a list that are printed.
pub(crate) const FIRST: usize = 10;

/// Names separated by commas.
pub(crate) fn comma_separated<N: ToString>(all: impl IntoIterator<Item = N>) -> String {
    all.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn optional_moment(at: Option<api::At>) -> String {
    at.map(|at| moment_of(at.0)).unwrap_or_default()
}

pub(crate) fn permission_text(permission: &Result<(), String>) -> String {
    match permission {
        Ok(()) => "possible".to_owned(),
        Err(why) => format!("not possible: {why}"),
    }
}
