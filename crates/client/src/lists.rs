//! Lists page by page, and `--watch`.
//!
//! A [`List`] describes a list: the fields with its items and its cursor, and the columns of its
//! table. JSON output has the server's answers, combined into one page.

use std::time::Duration;

use engine::counting::{duration, period};
use engine::ids::actor_name;
use serde_json::{Map, Value, json};

use crate::address::Query;
use crate::exit::{Failure, Outcome};
use crate::names::from_one;
use crate::output::{Paper, Table, moment, note, said, steps};
use crate::server::{EventStream, Server, taken};

/// Maximum time between requests without an event: the stream does not cover all data.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Field of a list's JSON document: number of items of the last page beyond `--limit`.
const OMITTED: &str = "omitted";

/// A server, and the output.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) server: Server,
    pub(crate) output: Paper,
}

/// Limit and order of a list.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ListOptions {
    /// Maximum number of items
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = from_one::<u64>)]
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
    /// Show the result again whenever it changes; with --json one document per line
    #[arg(long)]
    watch: bool,
}

/// A column: its title and its text for an item.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// A list of the API.
pub(crate) struct List {
    pub(crate) path: String,
    /// Field with the items.
    pub(crate) items: &'static str,
    /// Query parameter of the cursor. Empty if the list has a single page.
    pub(crate) cursor: &'static str,
    pub(crate) columns: &'static [Column],
    /// Text for an empty list.
    pub(crate) none: &'static str,
}

/// The items that were read from a list.
struct Read {
    /// Other fields of the first answer.
    around: Value,
    items: Vec<Value>,
    /// The server's cursor after the last page.
    next: Value,
    /// Number of items of the last page beyond the limit.
    omitted: usize,
}

impl List {
    fn read(&self, server: &Server, query: &Query, most: usize) -> Outcome<Read> {
        self.gather(|query| server.get(&query.behind(&self.path)), query, most)
    }

    fn gather(
        &self,
        ask: impl Fn(&Query) -> Outcome<Value>,
        query: &Query,
        most: usize,
    ) -> Outcome<Read> {
        let (mut items, mut query, mut around) = (Vec::new(), query.clone(), None);
        loop {
            let mut answer = ask(&query)?;
            let Value::Array(page) = taken(&mut answer, self.items) else {
                return Err(Failure::unlike("expected a list"));
            };
            items.extend(page);
            let next = taken(&mut answer, "next");
            let around = around.get_or_insert(answer);
            let omitted = items.len().saturating_sub(most);
            if next.is_null() || items.len() >= most || self.cursor.is_empty() {
                items.truncate(most);
                return Ok(Read { around: around.take(), items, next, omitted });
            }
            query = query.with(self.cursor, said(&next));
        }
    }

    /// The answer of the API with all pages combined. Items cut from the last page are counted.
    /// `next` points after that page, because a cursor can't point into a page.
    fn document(&self, read: Read) -> Value {
        let mut document =
            if let Value::Object(around) = read.around { around } else { Map::new() };
        document.insert(self.items.to_owned(), Value::Array(read.items));
        document.insert("next".to_owned(), read.next);
        if read.omitted > 0 {
            document.insert(OMITTED.to_owned(), json!(read.omitted));
        }
        Value::Object(document)
    }

    pub(crate) fn text(&self, document: &Value, output: Paper) -> String {
        let items = document[self.items].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            return format!("{}\n", self.none);
        }
        let mut table = Table::new(self.columns.iter().map(|(title, _)| *title));
        for item in items {
            table.row(self.columns.iter().map(|(_, show)| show(item)));
        }
        table.text(output)
    }
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
        let ask = || Ok(list.document(list.read(&self.server, &query, most)?));
        self.show(options.again, ask, |document, output| list.text(document, output))
    }

    /// Prints a resource. With `--watch`, prints it again whenever it changes.
    pub(crate) fn show(
        &self,
        again: WatchOption,
        ask: impl Fn() -> Outcome<Value>,
        text: impl Fn(&Value, Paper) -> String,
    ) -> Outcome {
        let output = self.output;
        let mut current = ask()?;
        if !again.watch {
            if output.json {
                return output.json(&current);
            }
            output.write(&text(&current, output))?;
            let more = |word| current.get(word).is_some_and(|more| !more.is_null());
            if more("next") || more(OMITTED) {
                note("More items exist. Show all with --all, or more with --limit N.");
            }
            return Ok(());
        }
        let tell = |value: &Value| match output.json {
            true => output.json_line(value),
            false => output.anew(&text(value, output)),
        };
        tell(&current)?;
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
                tell(&newest)?;
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

/// The text of a field.
pub(crate) fn word(item: &Value, word: &str) -> String {
    said(&item[word])
}

pub(crate) fn deployments() -> List {
    List {
        path: "/deployments".into(),
        items: "deployments",
        cursor: "after",
        columns: &[
            ("NAME", |v| {
                " ".repeat(
                    2 * usize::try_from(v["depth"].as_u64().unwrap_or_default())
                        .unwrap_or_default(),
                ) + &word(v, "name")
            }),
            ("NODES", |v| word(v, "nodes")),
            ("STEPS", |v| steps(&v["steps"])),
            ("PROPOSAL", |v| word(v, "proposal")),
            ("REVIEW", |v| word(v, "review")),
            ("BLUEPRINT", |v| word(v, "blueprint")),
        ],
        none: "No deployments found.",
    }
}

pub(crate) fn nodes() -> List {
    List {
        path: "/nodes".into(),
        items: "nodes",
        cursor: "after",
        columns: &[
            ("NAME", |v| word(v, "fqdn")),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("STATE", |v| {
                let is = |word: &str| v[word] == Value::Bool(true);
                let state = if is("alive") { "alive" } else { "dead" };
                let out = if is("available") { "" } else { ", in maintenance" };
                format!("{state}{out}{}", if is("record") { ", record only" } else { "" })
            }),
            ("TRANSPORT", |v| word(v, "transport")),
            ("STEPS", |v| steps(&v["steps"])),
            ("ERROR", |v| word(v, "unreached")),
        ],
        none: "No nodes found.",
    }
}

pub(crate) fn looks(node: &str) -> List {
    List {
        path: format!("/nodes/{}/health-checks", crate::address::part(node)),
        items: "health_checks",
        cursor: "before",
        columns: &[
            ("TIME", |v| moment(&v["at"])),
            ("REACHED", |v| word(v, "reached")),
            ("ADDRESS", |v| word(v, "address")),
            ("MS", |v| word(v, "took_ms")),
            ("WORKER", |v| word(v, "by")),
            ("ERROR", |v| word(v, "message")),
        ],
        none: "No health checks found.",
    }
}

pub(crate) fn noderoles(node: &str) -> List {
    List {
        path: format!("/nodes/{}/noderoles", crate::address::part(node)),
        items: "noderoles",
        cursor: "after",
        columns: &[
            ("ROLE", |v| word(v, "role")),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("STATE", |v| word(v, "state")),
            ("SINCE", |v| moment(&v["since"])),
            ("ERROR", |v| word(v, "error")),
            ("ID", |v| word(v, "id")),
        ],
        none: "No noderoles found.",
    }
}

pub(crate) fn results(node: &str) -> List {
    List {
        path: format!("/nodes/{}/results", crate::address::part(node)),
        items: "results",
        cursor: "before",
        columns: &[
            ("RUN", |v| word(v, "run")),
            ("ROLE", |v| word(v, "role")),
            ("ACTION", |v| word(v, "action")),
            ("OUTCOME", |v| word(v, "outcome")),
            ("BLUEPRINT", |v| word(v, "blueprint")),
            ("TIME", |v| moment(&v["at"])),
            ("BYTES", |v| word(v, "bytes")),
            ("RESULT", |v| word(v, "result")),
        ],
        none: "No stored results found.",
    }
}

pub(crate) fn proposals() -> List {
    List {
        path: "/proposals".into(),
        items: "proposals",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "id")),
            ("DEPLOYMENT", |v| word(&v["scope"], "deployment")),
            ("NODE", |v| word(&v["scope"]["node"], "fqdn")),
            ("VERSION", |v| word(v, "version")),
            ("EDITS", |v| word(v, "edits")),
            ("AUTHORS", |v| word(v, "authors")),
            ("REVIEW", |v| word(v, "review")),
        ],
        none: "No open proposals found.",
    }
}

pub(crate) fn reviews() -> List {
    List {
        path: "/reviews".into(),
        items: "reviews",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "review")),
            ("STATE", |v| word(v, "state")),
            ("APPROVALS", |v| {
                format!("{} of {}", said(&v["approvals"][0]), said(&v["approvals"][1]))
            }),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("TITLE", |v| word(v, "title")),
            ("AUTHORS", |v| word(v, "authors")),
            ("TIME", |v| moment(&v["at"])),
            ("SUMMARY", |v| word(v, "summary")),
        ],
        none: "No reviews found.",
    }
}

pub(crate) fn blueprints() -> List {
    List {
        path: "/blueprints".into(),
        items: "blueprints",
        cursor: "before",
        columns: &[
            ("NUMBER", |v| word(v, "number")),
            ("KIND", |v| word(v, "kind")),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("TITLE", |v| word(v, "title")),
            ("BY", |v| actor_name(v["by"].as_str()).to_owned()),
            ("APPROVED", |v| word(v, "approved_by")),
            ("TIME", |v| moment(&v["at"])),
        ],
        none: "No blueprints found.",
    }
}

/// The role of a run, with its action unless that is `run`.
fn role_and_action(run: &Value) -> String {
    match run["action"].as_str() {
        None => word(run, "role"),
        Some(action) => format!("{} ({action})", word(run, "role")),
    }
}

pub(crate) fn runs() -> List {
    List {
        path: "/runs".into(),
        items: "runs",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "id")),
            ("STATE", |v| word(v, "state")),
            ("ROLE", role_and_action),
            ("NODE", |v| word(v, "fqdn")),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("BLUEPRINT", |v| word(v, "blueprint")),
            ("QUEUED", |v| moment(&v["queued"])),
            ("ENDED", |v| moment(&v["ended"])),
            ("ERROR", |v| word(v, "error")),
        ],
        none: "No runs found.",
    }
}

pub(crate) fn barclamps() -> List {
    List {
        path: "/barclamps".into(),
        items: "versions",
        cursor: "after",
        columns: &[
            ("BARCLAMP", |v| word(v, "barclamp")),
            ("VERSION", |v| word(v, "version")),
            ("CONTENT", |v| word(v, "hash").chars().take(8).collect()),
            ("ROLES", |v| word(v, "roles")),
            ("USED BY", |v| word(v, "used_by")),
            ("IMPORTED", |v| moment(&v["imported"])),
            ("BY", |v| word(v, "by")),
            ("REMOVED", |v| word(v, "disappeared")),
        ],
        none: "No barclamps found.",
    }
}

pub(crate) fn roles() -> List {
    List {
        path: "/roles".into(),
        items: "roles",
        cursor: "after",
        columns: &[
            ("ROLE", |v| word(v, "name")),
            ("BARCLAMP", |v| word(v, "barclamp")),
            ("VERSION", |v| word(v, "version")),
            ("JIG", |v| word(v, "jig")),
            ("REQUIRES", |v| word(v, "requires")),
            ("DEPLOYMENTS", |v| word(v, "deployments")),
            ("NODEROLES", |v| word(v, "noderoles")),
            ("DESCRIPTION", |v| word(v, "description")),
        ],
        none: "No roles found.",
    }
}

pub(crate) fn imports() -> List {
    List {
        path: "/imports".into(),
        items: "imports",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "id")),
            ("TIME", |v| moment(&v["at"])),
            ("BY", |v| actor_name(v["by"].as_str()).to_owned()),
            ("BARCLAMPS", |v| {
                let versions = v["barclamps"].as_array().map(Vec::as_slice).unwrap_or_default();
                let named = versions.iter().map(|one| {
                    let known = if one["new"] == Value::Bool(true) { "" } else { " (known)" };
                    format!("{} {}{known}", word(one, "name"), word(one, "version"))
                });
                named.collect::<Vec<_>>().join(", ")
            }),
            ("FINDINGS", |v| {
                v["findings"].as_array().map(|lines| lines.len().to_string()).unwrap_or_default()
            }),
            ("REMOVED", |v| {
                v["disappeared"].as_array().map(|lines| lines.len().to_string()).unwrap_or_default()
            }),
        ],
        none: "No imports found.",
    }
}

/// Results of a search.
pub(crate) fn hits() -> List {
    List {
        path: "/search".into(),
        items: "hits",
        cursor: "",
        columns: &[
            ("KIND", |v| word(v, "kind")),
            ("ID", |v| word(v, "id")),
            ("NAME", |v| {
                let named =
                    ["name", "fqdn", "title", "role"].iter().find(|name| v[**name].is_string());
                named.map(|name| word(v, name)).unwrap_or_default()
            }),
            ("IN", |v| word(v, if v["barclamp"].is_string() { "barclamp" } else { "deployment" })),
        ],
        none: "Nothing found.",
    }
}

pub(crate) fn workers() -> List {
    List {
        path: "/workers".into(),
        items: "workers",
        cursor: "before",
        columns: &[
            ("NAME", |v| word(v, "name")),
            ("ALIVE", |v| word(v, "alive")),
            ("PHASE", |v| word(v, "phase")),
            ("RUNS", |v| format!("{} of {}", word(v, "leased"), word(v, "capacity"))),
            ("HOST", |v| word(v, "host")),
            ("VERSION", |v| word(v, "version")),
            ("LAST HEARTBEAT", |v| moment(&v["last_heartbeat"])),
            ("REASON", |v| word(v, "reason")),
        ],
        none: "No workers found. Start one with `gantry worker`.",
    }
}

pub(crate) fn background_tasks() -> List {
    List {
        path: "/background-tasks".into(),
        items: "background_tasks",
        cursor: "",
        columns: &[
            ("NAME", |v| word(v, "name")),
            ("PROCESS", |v| word(&v["process"], "name")),
            ("PERIOD", |v| v["period_ms"].as_u64().map(period).unwrap_or_default()),
            ("LAST RUN", |v| moment(&v["started"])),
            ("DURATION", |v| v["took_ms"].as_u64().map(duration).unwrap_or_default()),
            ("RESULT", |v| match v["running"] == Value::Bool(true) {
                true => "running".to_owned(),
                false => word(v, if v["error"].is_null() { "outcome" } else { "error" }),
            }),
            ("FAILURES", |v| word(v, "failures")),
            ("NEXT RUN", |v| moment(&v["next"])),
        ],
        none: "No background tasks found.",
    }
}

pub(crate) fn audit() -> List {
    List {
        path: "/audit".into(),
        items: "entries",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "id")),
            ("TIME", |v| moment(&v["at"])),
            ("PERSON", |v| actor_name(v["name"].as_str()).to_owned()),
            ("ACTION", |v| word(v, "action")),
            ("SUBJECT", |v| word(v, "subject")),
            ("SEALED", |v| word(v, "sealed")),
            (
                "DETAIL",
                |v| if v["detail"].is_null() { String::new() } else { v["detail"].to_string() },
            ),
        ],
        none: "No entries found.",
    }
}

pub(crate) fn people() -> List {
    List {
        path: "/people".into(),
        items: "people",
        cursor: "after",
        columns: &[
            ("NAME", |v| word(v, "name")),
            ("KIND", |v| word(v, "kind")),
            ("GRANTS", |v| grants(&v["grants"])),
            ("DISABLED", |v| word(v, "disabled")),
            ("PASSWORD", |v| word(v, "password")),
            ("LAST SEEN", |v| moment(&v["seen"])),
            ("CREATED", |v| moment(&v["created"])),
        ],
        none: "No accounts found.",
    }
}

/// Permissions as text, for example `viewer, operator in web`.
fn grants(value: &Value) -> String {
    let one = |grant: &Value| match grant["deployment"].as_str() {
        Some(deployment) => format!("{} in {deployment}", word(grant, "permission")),
        None => word(grant, "permission"),
    };
    value
        .as_array()
        .map(|all| all.iter().map(one).collect::<Vec<_>>().join(", "))
        .unwrap_or_default()
}

pub(crate) fn tokens() -> List {
    List {
        path: "/tokens".into(),
        items: "tokens",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "id")),
            ("NAME", |v| word(v, "name")),
            ("OWNER", |v| word(v, "person")),
            ("PERMISSIONS", |v| word(v, "scopes")),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("VALID", |v| word(v, "valid")),
            ("EXPIRES", |v| moment(&v["expires"])),
            ("LAST USED", |v| moment(&v["used"])),
        ],
        none: "No tokens found.",
    }
}

pub(crate) fn sessions() -> List {
    List {
        path: "/me/sessions".into(),
        items: "sessions",
        cursor: "before",
        columns: &[
            ("ID", |v| word(v, "id")),
            ("CURRENT", |v| word(v, "current")),
            ("SINCE", |v| moment(&v["since"])),
            ("LAST SEEN", |v| moment(&v["seen"])),
            ("EXPIRES", |v| moment(&v["expires"])),
            ("ADDRESS", |v| word(v, "address")),
            ("CLIENT", |v| word(v, "agent")),
        ],
        none: "No sessions found.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_ignores_cursor_changes() {
        let board = |cursor: u64, target: u64| json!({"cursor": cursor, "blueprint": target});
        assert!(!differs(&board(1, 1), &board(2, 1)));
        assert!(differs(&board(1, 1), &board(1, 2)));
        assert!(differs(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(differs(&json!([1]), &json!([])) && !differs(&json!([1]), &json!([1])));
    }

    #[test]
    fn json_document_combines_all_pages() {
        let pages = [
            json!({"blueprints": [9, 8], "next": 8, "head": 9, "removed_in": null}),
            json!({"blueprints": [7, 6], "next": 6, "head": 10}),
            json!({"blueprints": [5], "next": null, "head": 10}),
        ];
        let document = |most| {
            let ask = |query: &Query| {
                let page = match query.behind("").as_str() {
                    "" => 0,
                    "?before=8" => 1,
                    "?before=6" => 2,
                    other => panic!("{other}"),
                };
                Ok(pages[page].clone())
            };
            blueprints().document(blueprints().gather(ask, &Query::default(), most).unwrap())
        };
        assert_eq!(
            document(usize::MAX),
            json!({"blueprints": [9, 8, 7, 6, 5], "next": null, "head": 9, "removed_in": null})
        );
        assert_eq!(
            document(2),
            json!({"blueprints": [9, 8], "next": 8, "head": 9, "removed_in": null})
        );
        assert_eq!(
            document(3),
            json!({"blueprints": [9, 8, 7], "next": 6, "omitted": 1, "head": 9, "removed_in": null}),
            "the server's cursor"
        );
        let wrong =
            blueprints().gather(|_| Ok(json!(3)), &Query::default(), 1).map(|_| ()).unwrap_err();
        assert_eq!(wrong.code(), 3, "an invalid answer is an error");
    }

    #[test]
    fn empty_list_prints_its_text() {
        let output = Paper::new(false);
        assert_eq!(
            deployments().text(&json!({"deployments": [], "next": null}), output),
            "No deployments found.\n"
        );
        assert_eq!(runs().text(&json!({"runs": [], "next": null}), output), "No runs found.\n");
    }

    #[test]
    fn grants_include_the_deployment() {
        let value =
            json!([{"permission": "viewer"}, {"permission": "operator", "deployment": "web"}]);
        assert_eq!(grants(&value), "viewer, operator in web");
    }
}
