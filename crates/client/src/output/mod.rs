//! Output to standard output and standard error, in the format of `--output`.
//!
//! Only results go to standard output. Progress, notes and errors go to standard error. All texts
//! pass [`terminal`], so that no text from elsewhere can control the terminal.
//! [`OutputFormat::raw`] is the only exception.
//!
//! A command passes its answer as a document. `json` and `yaml` print it, `name` prints only the
//! names in it, and `text` and `wide` print a text that the command makes of it.

pub(crate) mod list;
pub(crate) mod name;
pub(crate) mod outline;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod yaml;

use std::io::{IsTerminal as _, Write as _};

use api::Allowed;
use clap::ValueEnum;
use engine::text::shown;
use serde_json::Value;

use crate::exit::Outcome;
use crate::output::terminal::{BOLD, CYAN, GREEN, PLAIN, RED, YELLOW, printable, without_styles};

/// The form of results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people; tables show ages
    #[default]
    Text,
    /// Like text; tables show full times
    Wide,
    /// One JSON document, or one per line for continuous output
    Json,
    /// One YAML document, or several for continuous output
    Yaml,
    /// Only names, one per line
    Name,
}

/// The output of a command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OutputFormat {
    pub(crate) format: Format,
    /// Columns of the terminal, or `None` without a terminal.
    pub(crate) width: Option<usize>,
    pub(crate) color: bool,
}

impl OutputFormat {
    pub(crate) fn new(format: Format) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = terminal
            .then(|| usize::from(console::Term::stdout().size().1))
            .filter(|width| *width > 0);
        Self { format, width, color: terminal && !plain }
    }

    /// Whether the result is printed as a document instead of a text.
    pub(crate) fn is_document(self) -> bool {
        !matches!(self.format, Format::Text | Format::Wide)
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        self.width.is_some()
    }

    pub(crate) fn write(self, text: &str) -> Outcome {
        self.raw(&self.filtered(text))
    }

    fn filtered(self, text: &str) -> String {
        if self.color { printable(text) } else { without_styles(text) }
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

    /// Writes a document.
    pub(crate) fn document(self, value: &Value) -> Outcome {
        match self.format {
            Format::Yaml => self.write(&yaml::text(value)),
            Format::Name => self.write(&name::lines(value)),
            _ => {
                self.line(&terminal::json(&serde_json::to_string_pretty(value).unwrap_or_default()))
            }
        }
    }

    /// Writes one of several documents: JSON on one line, YAML after a separator.
    pub(crate) fn document_line(self, value: &Value) -> Outcome {
        match self.format {
            Format::Yaml => self.write(&format!("---\n{}", yaml::text(value))),
            Format::Name => self.document(value),
            _ => self.line(&terminal::json(&value.to_string())),
        }
    }

    /// Writes the answer as a document, or the sentence as text.
    pub(crate) fn either(self, response: &Value, sentence: &str) -> Outcome {
        if self.is_document() { self.document(response) } else { self.line(sentence) }
    }

    /// Clears the screen and writes a page.
    pub(crate) fn redraw(self, text: &str) -> Outcome {
        let clear = if self.is_terminal() { "\x1b[H\x1b[2J\x1b[3J" } else { "" };
        self.raw(&format!("{clear}{}", self.filtered(text)))
    }

    pub(crate) fn heading(self, text: &str) -> String {
        self.styled(BOLD, text)
    }

    /// A text in a color, if standard output shows colors.
    pub(crate) fn styled(self, style: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("{style}{text}{PLAIN}")
        } else {
            text.to_owned()
        }
    }

    /// Colors the states in a text of the client.
    pub(crate) fn with_states(self, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let states = [
            (GREEN, ["ACTIVE", "alive"]),
            (YELLOW, ["TRANSITION", "BLOCKED"]),
            (YELLOW, ["TODO", "PROPOSED"]),
            (RED, ["ERROR", "dead"]),
        ];
        let style = |word: &str| {
            states.iter().find(|(_, words)| words.contains(&word)).map(|(style, _)| *style)
        };
        let is_separator = |c: char| c == ' ' || c == ',' || c == '\n';
        let paint = |piece: &str| {
            let word = piece.trim_end_matches(is_separator);
            match style(word) {
                Some(style) => format!("{}{}", self.styled(style, word), &piece[word.len()..]),
                None => piece.to_owned(),
            }
        };
        text.split_inclusive(is_separator).map(paint).collect()
    }

    /// Colors the lines of a difference by their sign.
    pub(crate) fn with_changes(self, text: &str) -> String {
        let styled = |line: &str| match line.trim_start().split(' ').next().unwrap_or_default() {
            "---" | "+++" => self.styled(BOLD, line),
            "@@" => self.styled(CYAN, line),
            sign if sign.starts_with('+') => self.styled(GREEN, line),
            sign if sign.starts_with('-') => self.styled(RED, line),
            "*" => self.styled(YELLOW, line),
            _ => line.to_owned(),
        };
        text.lines().map(|line| styled(line) + "\n").collect()
    }

    /// Formats the time in an answer for a table: its age, or the full time with `wide`.
    pub(crate) fn time(self, value: &Value) -> String {
        millis(value).map(|at| self.time_of(at)).unwrap_or_default()
    }

    pub(crate) fn time_of(self, at: i64) -> String {
        if self.format == Format::Wide { format_time(at) } else { age(at, now()) }
    }

    pub(crate) fn optional_time(self, at: Option<api::At>) -> String {
        at.map(|at| self.time_of(at.0)).unwrap_or_default()
    }
}

fn now() -> i64 {
    let nanos = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}

/// The time from `at` to `now` in its largest unit: `3m`, `2h`; `in 5s` for a future time.
fn age(at: i64, now: i64) -> String {
    let seconds = now.abs_diff(at) / 1000;
    let (count, unit) = match seconds {
        0..60 => (seconds, 's'),
        60..3_600 => (seconds / 60, 'm'),
        3_600..86_400 => (seconds / 3_600, 'h'),
        _ => (seconds / 86_400, 'd'),
    };
    let before = if at > now.saturating_add(999) { "in " } else { "" };
    format!("{before}{count}{unit}")
}

/// Writes a note to standard error. Errors are ignored, because no one depends on notes.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", without_styles(text));
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
pub(crate) fn time_text(value: &Value) -> String {
    millis(value).map(format_time).unwrap_or_default()
}

/// A time in an answer, in milliseconds since 1970.
fn millis(value: &Value) -> Option<i64> {
    let rfc3339 = || {
        let format = &time::format_description::well_known::Rfc3339;
        let at = time::OffsetDateTime::parse(value.as_str()?, format).ok()?;
        i64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
    };
    value.as_i64().or_else(rfc3339)
}

/// Formats a time, for example `2026-09-22 14:05:09Z`.
pub(crate) fn format_time(millis: i64) -> String {
    let format =
        time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]Z");
    let at = time::OffsetDateTime::from_unix_timestamp(millis.div_euclid(1000)).ok();
    at.and_then(|at| at.format(format).ok()).unwrap_or_default()
}

/// Numbers of steps by state, for example `1 ERROR, 3 ACTIVE (2 stale)`.
pub(crate) fn steps(value: &Value) -> String {
    let states = ["error", "transition", "todo", "blocked", "active"];
    let counts = states.iter().filter_map(|state| {
        let count = value.get(state)?.as_i64().filter(|count| *count > 0)?;
        Some(format!("{count} {}", state.to_uppercase()))
    });
    let counts: Vec<String> = counts.collect();
    let text = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    // Stale and unchecked steps are ACTIVE, so these counts are parts of the last one.
    let marks: Vec<String> = ["stale", "unchecked"]
        .iter()
        .filter_map(|mark| {
            let count = value.get(mark)?.as_i64().filter(|count| *count > 0)?;
            Some(format!("{count} {mark}"))
        })
        .collect();
    if marks.is_empty() { text } else { format!("{text} ({})", marks.join(", ")) }
}

/// A field's value as text: lists are separated by commas, null is empty.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Names and values, one per line. Empty values are left out.
pub(crate) fn facts<const N: usize>(all: [(&str, String); N]) -> String {
    let fields: Vec<(&str, String)> = all
        .into_iter()
        .map(|(name, value)| (name, plain(&value)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    fields.iter().map(|(name, value)| format!("  {name:width$}  {value}\n")).collect()
}

/// Maximum number of items of a list that are printed.
pub(crate) const FIRST: usize = 10;

/// Names separated by commas.
pub(crate) fn comma_separated<N: ToString>(all: impl IntoIterator<Item = N>) -> String {
    all.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn optional_moment(at: Option<api::At>) -> String {
    at.map(|at| format_time(at.0)).unwrap_or_default()
}

pub(crate) fn permission_text(permission: &Allowed) -> String {
    match permission {
        Allowed::Yes => "possible".to_owned(),
        Allowed::No { reason } => format!("not possible: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ages =
            [(0, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (86_400, "1d"), (-300, "in 5m")];
        for (seconds, expected) in ages {
            assert_eq!(age(1_790_000_000_000 - seconds * 1_000, 1_790_000_000_000), expected);
        }
    }

    #[test]
    fn wide_output_has_full_times() {
        let wide = OutputFormat { format: Format::Wide, ..OutputFormat::default() };
        for at in [json!(1_790_000_000_000_i64), json!("2026-09-21T14:13:20Z")] {
            assert_eq!(wide.time(&at), "2026-09-21 14:13:20Z");
            assert!(OutputFormat::default().time(&at).len() < 8, "the short form is an age");
        }
        assert_eq!(wide.time(&Value::Null), "");
    }

    #[test]
    fn only_states_are_colored() {
        let output = OutputFormat { color: true, ..OutputFormat::default() };
        let text = output.with_states("n1  3 ACTIVE, 1 ERROR\nREACTIVE\n");
        assert_eq!(text, "n1  3 \x1b[32mACTIVE\x1b[0m, 1 \x1b[31mERROR\x1b[0m\nREACTIVE\n");
        assert_eq!(OutputFormat::default().with_states("ACTIVE"), "ACTIVE");
        let diff = output.with_changes("* role app\n@@ -1 +1 @@\n-a\n+b\n c\n");
        let [yellow, cyan, red, green] = [33, 36, 31, 32].map(|code| format!("\x1b[{code}m"));
        assert_eq!(
            diff,
            format!(
                "{yellow}* role app{PLAIN}\n{cyan}@@ -1 +1 \
                 @@{PLAIN}\n{red}-a{PLAIN}\n{green}+b{PLAIN}\n c\n"
            )
        );
    }
}
