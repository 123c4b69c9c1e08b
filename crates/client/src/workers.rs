//! Commands for workers.

use api::calls;
use api::workers::WorkerView;
use clap::{Args, Subcommand};
use engine::counting::many;
use serde::Deserialize as _;
use serde_json::Value;

use crate::address::Query;
use crate::args::ReasonArgs;
use crate::client::{Client, ListOptions};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::{OutputFormat, comma_separated, facts, format_time, plain};

/// Workers, which execute runs.
#[derive(Debug, Args)]
pub(crate) struct Workers {
    /// Show only this worker, by name or id
    #[arg(
        value_name = "WORKER",
        conflicts_with_all = ["alive", "draining", "phase", "filter", "limit", "all", "sort"]
    )]
    worker: Option<String>,
    /// Only workers that are alive (true) or only those that are not (false)
    #[arg(long, value_parser = ["true", "false"])]
    alive: Option<String>,
    /// Only workers that are draining or drained (true) or only those that are not (false)
    #[arg(long, value_parser = ["true", "false"])]
    draining: Option<String>,
    /// Only workers in this phase
    #[arg(
        long,
        value_parser = ["none", "welcomed", "integrated", "finalized", "confirmed", "nack"]
    )]
    phase: Option<String>,
    /// Only workers with this text in the name
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    list_options: ListOptions,
}

/// The commands below `gantry worker` that need a server.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Drain a worker: it finishes its runs and takes no further ones
    Drain {
        /// Name or id of the worker
        worker: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// End the drain of a worker: it takes runs again
    Resume {
        /// Name or id of the worker
        worker: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
}

pub(crate) fn change_worker(client: &Client, command: &WorkerCommand) -> Outcome {
    let (worker, drain, reason, text) = match command {
        WorkerCommand::Drain { worker, reason } => {
            let text = "takes no further runs. It is drained when its last run has ended.";
            (worker, true, reason, text)
        }
        WorkerCommand::Resume { worker, reason } => (worker, false, reason, "takes runs again."),
    };
    let id = names::worker(&client.server, worker)?;
    let response = client.server.call(&calls::drain(id, drain, &reason.reason))?;
    client.output.either(&response, &format!("Worker {worker} {text}"))
}

pub(crate) fn workers(client: &Client, command: &Workers) -> Outcome {
    if let Some(worker) = &command.worker {
        let worker = calls::show_worker(names::worker(&client.server, worker)?);
        return client.show(
            command.list_options.again,
            || client.server.show(&worker),
            worker_text,
        );
    }
    let query = Query::default()
        .with("alive", &command.alive)
        .with("draining", &command.draining)
        .with("phase", &command.phase)
        .with("filter", &command.filter);
    client.list(&worker_list(), &query, &command.list_options)
}

pub(crate) fn worker_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = WorkerView::deserialize(response) else { return outline(response) };
    let liveness = if view.alive { "alive" } else { "not alive" };
    let name = output.heading(&format!("Worker {}:", plain(&view.name)));
    let more = view.leased - i64::try_from(view.runs.len()).unwrap_or(i64::MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let process = view.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("{name} {}, {liveness}\n", view.phase.as_str())
        + &facts([
            ("reason", view.reason.clone().unwrap_or_default()),
            ("drain", drain_text(&view)),
            ("leased", format!("{} of {}", view.leased, many(view.capacity, "run"))),
            ("runs", comma_separated(&view.runs) + &more),
            ("jigs", view.jigs.join(", ")),
            ("host", format!("{}{process}", view.host)),
            ("version", view.version.clone()),
            ("started", format_time(view.started.0)),
            ("heartbeat", format_time(view.last_heartbeat.0)),
            ("lease until", format_time(view.lease_until.0)),
            ("id", view.id.to_string()),
        ])
}

fn drain_text(view: &WorkerView) -> String {
    let Some(drain) = &view.drain else { return String::new() };
    let state = match drain.drained {
        true => "drained".to_owned(),
        false => format!("draining, {} left", many(view.leased, "run")),
    };
    format!("{state}, by {} since {}: {}", drain.by, format_time(drain.since.0), drain.reason)
}

/// The state of a drain in a list.
fn drain_state(worker: &Value) -> String {
    let drain = &worker["drain"];
    match (drain.is_object(), drain["drained"].as_bool()) {
        (false, _) => String::new(),
        (true, Some(true)) => "drained".to_owned(),
        (true, _) => "draining".to_owned(),
    }
}

pub(crate) fn worker_list() -> List {
    List {
        path: calls::List::Workers.path(""),
        items: "workers",
        cursor: "before",
        columns: &[
            ("NAME", |v, _| word(v, "name")),
            ("ALIVE", |v, _| word(v, "alive")),
            ("PHASE", |v, _| word(v, "phase")),
            ("DRAIN", |v, _| drain_state(v)),
            ("RUNS", |v, _| format!("{} of {}", word(v, "leased"), word(v, "capacity"))),
            ("HOST", |v, _| word(v, "host")),
            ("VERSION", |v, _| word(v, "version")),
            ("LAST HEARTBEAT", |v, o| o.time(&v["last_heartbeat"])),
            ("REASON", |v, _| word(v, "reason")),
        ],
        none: "No workers found. Start one with `gantry worker`.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn worker_page_lists_leased_runs() {
        let moment = "2026-09-21T14:13:20Z";
        let mut view = json!({"id": Uuid::nil(), "name": "w1", "phase": "confirmed", "alive": true,
            "capacity": 8, "leased": 5,
            "runs": [7, 8], "jigs": ["noop", "script"], "host": "here", "pid": 12,
            "version": "0.1.0", "started": moment, "last_heartbeat": moment,
            "lease_until": moment, "reason": null, "drain": null, "may_drain": {"allowed": true,
            "reason": null}});
        let text = worker_text(&view, OutputFormat::default());
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
        assert!(!text.contains("reason") && !text.contains("drain"), "{text}");
        view["drain"] =
            json!({"by": "ada", "since": moment, "reason": "an\nupgrade", "drained": false});
        let text = worker_text(&view, OutputFormat::default());
        let line =
            "  drain        draining, 5 runs left, by ada since 2026-09-21 14:13:20Z: an upgrade\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(drain_state(&view), "draining");
        (view["drain"]["drained"], view["leased"]) = (json!(true), json!(0));
        let text = worker_text(&view, OutputFormat::default());
        assert!(text.contains("  drain        drained, by ada since "), "{text}");
        assert_eq!(drain_state(&view), "drained");
        view["drain"] = Value::Null;
        assert_eq!(drain_state(&view), "");
        (view["alive"], view["leased"], view["runs"]) = (json!(false), json!(0), json!([]));
        (view["phase"], view["reason"]) = (json!("none"), json!("it was\nstopped"));
        let text = worker_text(&view, OutputFormat::default());
        assert!(
            text.starts_with("Worker w1: none, not alive\n  reason       it was stopped\n"),
            "{text}"
        );
        assert!(!text.contains("  runs"), "{text}");
        assert_eq!(
            worker_text(&json!({"of": "another"}), OutputFormat::default()),
            "of: another\n",
            "an unknown answer is printed as an outline"
        );
    }
}
