//! The client: a server and the output. It prints lists page by page, and again on changes
//! (`--watch`).

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::address::Query;
use crate::events::EventStream;
use crate::exit::Outcome;
use crate::names::from_one;
use crate::output::list::{List, OMITTED};
use crate::output::{Format, OutputFormat, note};
use crate::server::Server;

/// Maximum time between requests without an event: the stream does not cover all data.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// A server, and the output.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) server: Server,
    pub(crate) output: OutputFormat,
}

/// Limit and order of a list.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ListOptions {
    /// Maximum number of items
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one::<u64>,
          allow_negative_numbers = true)]
    limit: u64,
    /// All items, page by page
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Sort column; -COLUMN for descending order. The error for an unknown column lists the valid
    /// ones
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    sort: Option<String>,
    #[command(flatten)]
    pub(crate) again: WatchOption,
}

/// Whether to repeat the request.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct WatchOption {
    /// Show the result again whenever it changes; with -o json one document per line
    #[arg(long)]
    watch: bool,
}

impl Client {
    /// Reads and prints a list up to the limit.
    pub(crate) fn list(&self, list: &List, query: &Query, options: &ListOptions) -> Outcome {
        let most = if options.all {
            usize::MAX
        } else {
            usize::try_from(options.limit).unwrap_or(usize::MAX)
        };
        let query = query.clone().with("sort", &options.sort);
        let has_more = Cell::new(false);
        let ask = || {
            let document = list.document(list.read(&self.server, &query, most)?);
            has_more.set(!document["next"].is_null() || document.get(OMITTED).is_some());
            Ok(document)
        };
        self.show(options.again, ask, |document, output| list.text(document, output))?;
        if has_more.get() && !matches!(self.output.format, Format::Json | Format::Yaml) {
            note("More items exist. Show all with --all, or more with --limit N.");
        }
        Ok(())
    }

    /// Prints a resource. With `--watch`, prints it again whenever it changes.
    pub(crate) fn show(
        &self,
        again: WatchOption,
        ask: impl Fn() -> Outcome<Value>,
        text: impl Fn(&Value, OutputFormat) -> String,
    ) -> Outcome {
        let output = self.output;
        let mut current = ask()?;
        if !again.watch {
            if output.is_document() {
                return output.document(&current);
            }
            return output.write(&text(&current, output));
        }
        let print = |value: &Value| match output.is_document() {
            true => output.document_line(value),
            false => output.redraw(&text(value, output)),
        };
        print(&current)?;
        let mut events = EventStream::subscribe_while_read(&self.server, "");
        let mut disconnected = false;
        loop {
            events.wait(POLL_INTERVAL)?;
            let newest = match ask() {
                Ok(newest) => newest,
                Err(reason) if reason.passes() => {
                    if !disconnected {
                        note(&format!(
                            "{reason}\nRetrying until the server answers. Press Ctrl-C to \
                            stop."
                        ));
                    }
                    disconnected = true;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if disconnected || differs(&current, &newest) {
                print(&newest)?;
            }
            (current, disconnected) = (newest, false);
        }
    }
}

/// Whether more than the journal position has changed.
fn differs(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let words = |object: &Map<String, Value>| {
                object.keys().filter(|word| *word != "cursor").count()
            };
            let is_equal = |(word, value): (&String, &Value)| {
                word == "cursor" || after.get(word) == Some(value)
            };
            words(before) != words(after) || !before.iter().all(is_equal)
        }
        _ => before != after,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn watch_ignores_cursor_changes() {
        let board = |cursor: u64, target: u64| json!({"cursor": cursor, "blueprint": target});
        assert!(!differs(&board(1, 1), &board(2, 1)));
        assert!(differs(&board(1, 1), &board(1, 2)));
        assert!(differs(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(differs(&json!([1]), &json!([])) && !differs(&json!([1]), &json!([1])));
    }
}
