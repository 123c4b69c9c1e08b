//! The background tasks of servers and workers.

use api::background_tasks::MAX_TASKS;
use engine::counting::{duration, period};
use serde_json::Value;

use crate::client::Client;
use crate::exit::Outcome;
use crate::output::list::{List, word};
use crate::output::{OutputFormat, moment};
use crate::overview::Show;

pub(crate) fn background_tasks(client: &Client, show: &Show) -> Outcome {
    let list = background_task_list();
    let text = |document: &Value, output: OutputFormat| {
        let more = match document["more"] == Value::Bool(true) {
            true => format!("More background tasks exist. Only {MAX_TASKS} are listed.\n"),
            false => String::new(),
        };
        list.text(document, output) + &more
    };
    client.show(show.again, || client.server.get(&list.path), text)
}

fn background_task_list() -> List {
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
