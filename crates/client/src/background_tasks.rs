//! The background tasks of servers and workers.

use clap::Subcommand;
use engine::counting::{duration, period};
use serde_json::Value;

use crate::address::Query;
use crate::client::{Client, WatchOption};
use crate::exit::Outcome;
use crate::names::from_one;
use crate::output::OutputFormat;
use crate::output::list::{List, word};

#[derive(Debug, Subcommand)]
pub(crate) enum BackgroundTask {
    /// List the background tasks of servers and workers, failing ones first
    List {
        /// Maximum number of background tasks, from 1 to 200 [default: 500]
        #[arg(
            long,
            value_name = "N",
            value_parser = from_one::<i64>,
            allow_negative_numbers = true
        )]
        limit: Option<i64>,
        #[command(flatten)]
        again: WatchOption,
    },
}

pub(crate) fn background_task(client: &Client, command: &BackgroundTask) -> Outcome {
    let BackgroundTask::List { limit, again } = command;
    let list = background_task_list();
    let text = |document: &Value, output: OutputFormat| {
        let more = match document["more"] == Value::Bool(true) {
            true => {
                let listed = document[list.items].as_array().map_or(0, Vec::len);
                format!("More background tasks exist. Only {listed} are listed.\n")
            }
            false => String::new(),
        };
        list.text(document, output) + &more
    };
    let place = Query::default().with("limit", *limit).on(&list.path);
    client.show(*again, || client.server.get(&place), text)
}

fn background_task_list() -> List {
    List {
        path: api::background_tasks::list_call().path(),
        items: "background_tasks",
        cursor: "",
        columns: &[
            ("NAME", |v, _| word(v, "name")),
            ("PROCESS", |v, _| word(&v["process"], "name")),
            ("PERIOD", |v, _| v["period_ms"].as_u64().map(period).unwrap_or_default()),
            ("LAST RUN", |v, o| o.time(&v["started"])),
            ("DURATION", |v, _| v["duration_ms"].as_u64().map(duration).unwrap_or_default()),
            ("RESULT", |v, _| match v["running"] == Value::Bool(true) {
                true => "running".to_owned(),
                false => word(v, if v["error"].is_null() { "outcome" } else { "error" }),
            }),
            ("FAILURES", |v, _| word(v, "failures")),
            ("NEXT RUN", |v, o| o.time(&v["next"])),
        ],
        none: "No background tasks found.",
    }
}
