//! Commands for workers.

use api::workers::WorkerView;
use clap::{Args, Subcommand};
use engine::counting::many;
use serde::Deserialize as _;
use serde_json::Value;
use uuid::Uuid;

use crate::address::{Query, part};
use crate::args::ReasonArgs;
use crate::client::{Client, ListOptions};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::{OutputFormat, comma_separated, facts, moment_of, plain};
use crate::server::parse_answer;

/// Workers, which execute runs.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Workers {
    #[command(subcommand)]
    command: Option<WorkerCommand>,
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

#[derive(Debug, Subcommand)]
enum WorkerCommand {
    /// Drain a worker: it finishes its runs and takes no further ones
    Drain {
        /// Name or id of the worker
        worker: String,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// End the drain of a worker: it takes runs again
    Resume {
        /// Name or id of the worker
        worker: String,
        #[command(flatten)]
        because: ReasonArgs,
    },
}

pub(crate) fn workers(client: &Client, wanted: &Workers) -> Outcome {
    let change = |worker: &str, drain: bool, because: &ReasonArgs, view: &str| {
        let id: Uuid =
            parse_answer(&names::worker(&client.server, worker)?.into(), "expected an id")?;
        let response = client.server.call(&api::calls::drain(id, drain, &because.reason))?;
        client.output.either(&response, &format!("Worker {worker} {view}"))
    };
    match &wanted.command {
        Some(WorkerCommand::Drain { worker, because }) => {
            let view = "takes no further runs. It is drained when its last run has ended.";
            return change(worker, true, because, view);
        }
        Some(WorkerCommand::Resume { worker, because }) => {
            return change(worker, false, because, "takes runs again.");
        }
        None => {}
    }
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
    let Ok(view) = WorkerView::deserialize(response) else { return outline(response) };
    let heard = if view.alive { "alive" } else { "not alive" };
    let name = output.heading(&format!("Worker {}:", plain(&view.name)));
    let more = view.leased - i64::try_from(view.runs.len()).unwrap_or(i64::MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let process = view.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("{name} {}, {heard}\n", view.phase.as_str())
        + &facts([
            ("reason", view.reason.clone().unwrap_or_default()),
            ("drain", drain_text(&view)),
            ("leased", format!("{} of {}", view.leased, many(view.capacity, "run"))),
            ("runs", comma_separated(&view.runs) + &more),
            ("jigs", view.jigs.join(", ")),
            ("host", format!("{}{process}", view.host)),
            ("version", view.version.clone()),
            ("started", moment_of(view.started.0)),
            ("heartbeat", moment_of(view.last_heartbeat.0)),
            ("lease until", moment_of(view.lease_until.0)),
            ("id", view.id.to_string()),
        ])
}

fn drain_text(view: &WorkerView) -> String {
    let Some(drain) = &view.drain else { return String::new() };
    let state = match drain.drained {
        true => "drained".to_owned(),
        false => format!("draining, {} left", many(view.leased, "run")),
    };
    format!("{state}, by {} since {}: {}", drain.by, moment_of(drain.since.0), drain.reason)
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
        path: "/workers".into(),
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

    use super::*;

    #[test]
    fn worker_page_lists_leased_runs() {
        let moment = "2026-09-21T14:13:20Z";
        let mut view = json!({"id": Uuid::nil(), "name": "w1", "phase": "confirmed", "alive": true, "capacity": 8, "leased": 5,
            "runs": [7, 8], "jigs": ["noop", "script"], "host": "here", "pid": 12, "version": "0.1.0", "started": moment, "last_heartbeat": moment,
            "lease_until": moment, "reason": null, "drain": null, "may_drain": {"allowed": true, "reason": null}});
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
            "printed as an outline"
        );
    }
}
