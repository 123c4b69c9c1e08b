//! Output to standard output and standard error, as text or JSON.
//!
//! Only results go to standard output. Progress, notes and errors go to standard error. All texts
//! pass [`crate::terminal`], so that no text from elsewhere can control the terminal.
//! [`Paper::raw`] is the only exception.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use engine::text::shown;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::exit::Outcome;
use crate::terminal::{self, BOLD, printable};

/// The output of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paper {
    pub(crate) json: bool,
    /// Columns of the terminal, or `None` without a terminal.
    pub(crate) width: Option<usize>,
    colour: bool,
}

impl Paper {
    pub(crate) fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = terminal
            .then(|| usize::from(console::Term::stdout().size().1))
            .filter(|width| *width > 0);
        Self { json, width, colour: terminal && !plain }
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
        if self.colour { format!("{bold}{text}{reset}") } else { text.to_owned() }
    }
}

/// Waits until the reader of standard output closes the pipe. Returns false if that can't be
/// detected, for example for a file.
pub(crate) fn wait_for_closed_pipe() -> bool {
    let out = std::io::stdout();
    // No events are requested: POLLERR and POLLHUP are always reported.
    let mut asked = [PollFd::new(out.as_fd(), PollFlags::empty())];
    loop {
        match poll(&mut asked, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(_) => return false,
            Ok(_) => break,
        }
    }
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    asked.iter().filter_map(|one| one.revents()).any(|events| events.intersects(closed))
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

/// A table without borders. Columns are as wide as their content; the widest are wrapped to fit the
/// terminal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// Minimum width of a wrapped column. Titles are never wrapped.
const MIN_COLUMN_WIDTH: u16 = 8;
/// Longer cells are shortened on a terminal, so that a single value does not fill the screen.
const MAX_CELL_WIDTH: usize = 1_000;
const COLUMN_GAP: u16 = 2;

impl Table {
    pub(crate) fn new(titles: impl IntoIterator<Item = &'static str>) -> Self {
        Self { titles: titles.into_iter().collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // Leading spaces are the indentation of a tree.
        let cell = |cell: String| {
            let indent = cell.len() - cell.trim_start_matches(' ').len();
            format!("{}{}", " ".repeat(indent), plain(&cell))
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(crate) fn text(&self, output: Paper) -> String {
        let text = self.layout(output.width).trim_fmt();
        let (titles, rows) = text.split_once('\n').unwrap_or((&text, ""));
        let end = if rows.is_empty() { "" } else { "\n" };
        format!("{}\n{rows}{end}", output.heading(titles))
    }

    fn layout(&self, max_width: Option<usize>) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_header(&self.titles);
        let last = self.titles.len().saturating_sub(1);
        for column in table.column_iter_mut() {
            column.set_padding((0, if column.index == last { 0 } else { COLUMN_GAP }));
        }
        match max_width {
            Some(max_width) => self.wrap(&mut table, max_width),
            None => _ = table.add_rows(&self.rows),
        }
        table
    }

    fn wrap(&self, table: &mut comfy_table::Table, max_width: usize) {
        let short = |cell| console::truncate_str(cell, MAX_CELL_WIDTH, "…");
        table
            .set_width(u16::try_from(max_width).unwrap_or(u16::MAX))
            .set_content_arrangement(ContentArrangement::Dynamic)
            .add_rows(self.rows.iter().map(|row| row.iter().map(|cell| short(cell))));
        let widths = table.column_max_content_widths();
        for ((column, width), title) in table.column_iter_mut().zip(widths).zip(&self.titles) {
            let title = u16::try_from(console::measure_text_width(title)).unwrap_or(u16::MAX);
            let least = width.min(MIN_COLUMN_WIDTH).max(title) + column.padding_width();
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
    }
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

/// Names of fields that contain times.
const TIME_FIELDS: [&str; 20] = [
    "at",
    "since",
    "seen",
    "created",
    "confirmed_at",
    "expires",
    "used",
    "revoked",
    "queued",
    "started",
    "ended",
    "imported",
    "added",
    "alive_since",
    "joined_since",
    "heard",
    "lease_until",
    "made",
    "until",
    "oldest",
];

/// Smaller numbers (before March 1973) are counts in a field of the same name.
const MIN_TIME_MILLIS: i64 = 100_000_000_000;

/// Prints any answer as an outline: one field per line, nested fields indented.
pub(crate) fn outline(value: &Value) -> String {
    let mut text = String::new();
    outline_into(&mut text, value, 0);
    text
}

fn outline_into(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) => {
            for (name, value) in
                entries.iter().filter(|(name, value)| *name != "cursor" && !value.is_null())
            {
                let name = plain(name);
                match one_line(&name, value) {
                    Some(line) => *text += &format!("{indent}{name}: {line}\n"),
                    None => {
                        *text += &format!("{indent}{name}:\n");
                        outline_into(text, value, depth + 1);
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut within = String::new();
                outline_into(&mut within, item, depth + 1);
                let start = within.find(|c| c != ' ').unwrap_or_default();
                *text += &format!("{indent}- {}", &within[start..]);
            }
        }
        other => *text += &format!("{indent}{}\n", plain(&said(other))),
    }
}

/// A field that fits on one line, or `None`.
fn one_line(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Number(_)
            if TIME_FIELDS.contains(&name) && value.as_i64() > Some(MIN_TIME_MILLIS) =>
        {
            Some(moment(value))
        }
        Value::Object(entries) if entries.is_empty() => Some("{}".to_owned()),
        Value::Object(entries) if name == "steps" && entries.contains_key("active") => {
            Some(steps(value))
        }
        // A permission field, which is a result with the reason as its error.
        Value::Object(entries) if entries.len() == 1 && entries.contains_key("Ok") => {
            Some("yes".to_owned())
        }
        Value::Object(entries) if entries.len() == 1 => {
            entries.get("Err").map(|reason| format!("no: {}", plain(&said(reason))))
        }
        Value::Object(_) => None,
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            Some(if items.is_empty() { "none".to_owned() } else { plain(&said(value)) })
        }
        Value::Array(_) => None,
        other => Some(plain(&said(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn output(width: Option<usize>) -> Paper {
        Paper { json: false, width, colour: false }
    }

    fn table() -> Table {
        let mut table = Table::new(["NAME", "TITLE"]);
        table.row(["n1".into(), "A proxy in front of everything".into()]);
        table.row(["  n22".into(), String::new()]);
        table
    }

    #[test]
    fn columns_fit_their_content() {
        let text = table().text(output(None));
        assert_eq!(text, "NAME   TITLE\nn1     A proxy in front of everything\n  n22\n");
    }

    #[test]
    fn narrow_terminal_wraps_widest_column() {
        let text = table().text(output(Some(20)));
        assert_eq!(
            text,
            "NAME   TITLE\nn1     A proxy in\n       front of\n       everything\n  n22\n"
        );
        let narrowest = table().text(output(Some(3)));
        assert!(narrowest.starts_with("NAME   TITLE\nn1     A proxy\n"), "{narrowest}");
    }

    #[test]
    fn huge_cell_is_shortened_on_terminals_only() {
        let mut table = Table::new(["VALUE", "SOURCE"]);
        table.row(["x".repeat(70_000), "role".into()]);
        let shown = table.text(output(Some(60)));
        assert!(shown.contains('…') && shown.lines().count() < 30, "{shown}");
        assert!(shown.lines().all(|line| console::measure_text_width(line) <= 60), "{shown}");
        assert_eq!(table.text(output(None)).matches('x').count(), 70_000);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["節点".into(), "active".into()]);
        table.row(["node".into(), "active".into()]);
        table.row(["é\u{301}".into(), "active".into()]);
        let text = table.text(output(None));
        assert_eq!(text, "NAME  STATE\n節点  active\nnode  active\né\u{301}     active\n");
    }

    #[test]
    fn control_characters_in_titles_are_escaped() {
        let mut table = Table::new(["TITLE"]);
        table.row(["a\x1b[2Jb\nc\u{202e}d".into()]);
        let text = table.text(output(None));
        assert!(
            !text.contains('\x1b') && text.lines().count() == 2 && text.contains("U+202E"),
            "{text:?}"
        );
    }

    #[test]
    fn outline_formats_times_and_permissions() {
        let value = json!({"name": "n1", "at": 1_790_000_000_000_i64, "queued": 3, "may": {"Err": "not\nyours"}, "can": {"Ok": null},
            "cursor": 7, "list": [{"a": 1, "b": null}], "steps": {"active": 2, "error": 1}, "empty": [], "tags": ["x", "y"]});
        let text = outline(&value);
        for line in [
            "name: n1",
            "at: 2026-09-21 14:13:20Z",
            "queued: 3",
            "may: no: not yours",
            "can: yes",
            "- a: 1",
            "steps: 1 ERROR, 2 ACTIVE",
            "empty: none",
            "tags: x, y",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("cursor"));
    }
}
