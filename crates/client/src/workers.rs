//! Commands for workers.

use api::workers::WorkerView;
use clap::Args;
use engine::counting::many;
use serde::Deserialize as _;
use serde_json::Value;

use crate::address::{Query, part};
use crate::client::{Client, ListOptions};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::{OutputFormat, comma_separated, facts, moment, moment_of, plain};

/// Workers, which execute runs.
#[derive(Debug, Args)]
pub(crate) struct Workers {
    /// Show only this worker, by name or id
    #[arg(value_name = "WORKER", conflicts_with_all = ["alive", "phase", "name", "limit", "all", "sort"])]
    worker: Option<String>,
    /// Only workers that are alive (true) or only those that are not (false)
    #[arg(long, value_parser = ["true", "false"])]
    alive: Option<String>,
    /// Only workers in this phase
    #[arg(long, value_parser = ["none", "welcomed", "integrated", "finalized", "confirmed", "nack"])]
    phase: Option<String>,
    /// Only workers with this text in the name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[command(flatten)]
    much: ListOptions,
}

pub(crate) fn workers(client: &Client, wanted: &Workers) -> Outcome {
    if let Some(worker) = &wanted.worker {
        let place = format!("/workers/{}", part(&names::worker(&client.server, worker)?));
        return client.show(wanted.much.again, || client.server.get(&place), worker_text);
    }
    let query = Query::default()
        .with("alive", &wanted.alive)
        .with("phase", &wanted.phase)
        .with("name", &wanted.name);
    client.list(&worker_list(), &query, &wanted.much)
}

pub(crate) fn worker_text(response: &Value, output: OutputFormat) -> String {
    let Ok(told) = WorkerView::deserialize(response) else { return outline(response) };
    let heard = if told.alive { "alive" } else { "not alive" };
    let name = output.heading(&format!("Worker {}:", plain(&told.name)));
    let more = told.leased - i64::try_from(told.runs.len()).unwrap_or(i64::MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let process = told.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("{name} {}, {heard}\n", told.phase.as_str())
        + &facts([
            ("reason", told.reason.clone().unwrap_or_default()),
            ("leased", format!("{} of {}", told.leased, many(told.capacity, "run"))),
            ("runs", comma_separated(&told.runs) + &more),
            ("jigs", told.jigs.join(", ")),
            ("host", format!("{}{process}", told.host)),
            ("version", told.version.clone()),
            ("started", moment_of(told.started.0)),
            ("heartbeat", moment_of(told.last_heartbeat.0)),
            ("lease until", moment_of(told.lease_until.0)),
            ("id", told.id.to_string()),
        ])
}

pub(crate) fn worker_list() -> List {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn worker_page_lists_leased_runs() {
        let moment = 1_790_000_000_000_i64;
        let mut view = json!({"id": uuid::Uuid::nil(), "name": "w1", "phase": "confirmed", "alive": true, "capacity": 8, "leased": 5,
            "runs": [7, 8], "jigs": ["noop", "script"], "host": "here", "pid": 12, "version": "0.1.0", "started": moment, "last_heartbeat": moment,
            "lease_until": moment, "reason": null});
        let text = worker_text(&view, OutputFormat::new(false));
        for line in [
            "Worker w1: confirmed, alive\n",
            "  leased       5 of 8 runs\n",
            "  runs         7, 8 and 3 more\n",
            "  jigs         noop, script\n",
            "  host         here, process 12\n",
            "  heartbeat    2026-09-21 14:13:20Z\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(!text.contains("reason"), "{text}");
        (view["alive"], view["leased"], view["runs"]) = (json!(false), json!(0), json!([]));
        (view["phase"], view["reason"]) = (json!("none"), json!("it was\nstopped"));
        let text = worker_text(&view, OutputFormat::new(false));
        assert!(
            text.starts_with("Worker w1: none, not alive\n  reason       it was stopped\n"),
            "{text}"
        );
        assert!(!text.contains("  runs"), "{text}");
        assert_eq!(
            worker_text(&json!({"of": "another"}), OutputFormat::new(false)),
            "of: another\n",
            "printed as an outline"
        );
    }
}
