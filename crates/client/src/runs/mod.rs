//! Commands for runs.

pub(crate) mod data;
pub(crate) mod logs;
pub(crate) mod pending;
pub(crate) mod rerun;

use api::runs::{RunState, RunSummary, RunView};
use clap::Subcommand;
use engine::ids::{ActionName, RoleName, RunId};
use serde::Deserialize as _;
use serde_json::Value;

use crate::address::Query;
use crate::args::Between;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::{Failure, Outcome};
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{
    FIRST, OutputFormat, facts, format_time, optional_moment, permission_text, plain,
};
use crate::runs::data::{ValueArgs, data};
use crate::server::parse_answer;

#[derive(Debug, Subcommand)]
pub(crate) enum Run {
    /// List runs, newest first
    List {
        /// State of the run
        #[arg(
            long,
            value_parser = [
                "queued",
                "running",
                "succeeded",
                "failed",
                "lost",
                "canceled",
                "unstarted"
            ]
        )]
        state: Option<String>,
        /// Name of the deployment that the noderole is bound in
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// The node
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "ROLE")]
        role: Option<String>,
        /// Name or id of the worker that executes or executed the run
        #[arg(long, value_name = "WORKER")]
        worker: Option<String>,
        #[command(flatten)]
        between: Between,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a run
    Show {
        /// Number of the run
        id: RunId,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the input of a run, with the sources of its values
    Data {
        /// Number of the run
        id: RunId,
        #[command(flatten)]
        values: ValueArgs,
    },
    /// Cancel a run
    Cancel {
        /// Number of the run
        id: RunId,
    },
}

pub(crate) fn run(client: &Client, command: &Run) -> Outcome {
    let Client { server, output } = client;
    match command {
        Run::List { state, deployment, node, role, worker, between, list_options } => {
            let node = node
                .as_deref()
                .map(|node| names::node(server, node))
                .transpose()?
                .map(|node| node.fqdn);
            let query = Query::default()
                .with("state", state)
                .with("deployment", deployment)
                .with("node", &node)
                .with("role", role)
                .with("worker", worker);
            client.list(&run_list(), &between.add_to(query), list_options)
        }
        Run::Show { id, again } => {
            client.show(*again, || server.show(&api::calls::show_run(*id)), run_text)
        }
        Run::Data { id, values } => data(client, &api::calls::run_data(*id, ""), values, false),
        Run::Cancel { id } => {
            let response = server.call(&api::calls::cancel_run(*id))?;
            output.either(&response, &format!("Run {id} will be canceled."))
        }
    }
}

pub(crate) fn run_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = RunView::deserialize(response) else { return outline(response) };
    let run = &view.run;
    let mut text = format!(
        "{} {} on {}, {}\n",
        output.heading(&format!("Run {}:", run.id)),
        role_and_action(&run.role, &run.action),
        plain(&run.fqdn),
        state_name(run.state)
    );
    text += &facts([
        ("error", run.error.clone().unwrap_or_default()),
        ("deployment", run.deployment.to_string()),
        ("blueprint", run.blueprint.to_string()),
        ("review", view.review.map(|id| id.to_string()).unwrap_or_default()),
        ("cause", run.cause.clone().unwrap_or_default()),
        ("worker", run.worker.clone().unwrap_or_default()),
        ("queued", format_time(run.queued.0)),
        ("started", optional_moment(run.started)),
        ("ended", optional_moment(run.ended)),
        ("result", result(&view)),
        ("cancel", permission_text(&view.may_cancel)),
        ("noderole", run.noderole.to_string()),
    ]);
    if view.attempts.len() > 1 {
        text += &format!("\n{}", attempts(&view.attempts, output).text(output));
    }
    let id = run.id;
    text + &format!(
        "Input: gantry run data {id}\nLog ({} bytes): gantry logs {id}\n",
        view.log_bytes
    )
}

fn result(view: &RunView) -> String {
    match &view.result {
        Some(result) => result.to_string(),
        None if view.result_expired => "no longer stored".to_owned(),
        None => String::new(),
    }
}

/// The state of a run as in lists and filters.
pub(crate) fn state_name(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Lost => "lost",
        RunState::Canceled => "canceled",
        RunState::Unstarted => "unstarted",
    }
}

pub(crate) fn attempts(runs: &[RunSummary], output: OutputFormat) -> Table {
    let mut table = Table::new(["RUN", "STATE", "BLUEPRINT", "QUEUED", "ENDED", "ERROR"]);
    for run in runs.iter().take(FIRST) {
        table.row([
            run.id.to_string(),
            state_name(run.state).to_owned(),
            run.blueprint.to_string(),
            output.time_of(run.queued.0),
            output.optional_time(run.ended),
            run.error.clone().unwrap_or_default(),
        ]);
    }
    table
}

pub(crate) fn run_view(value: &Value) -> Outcome<RunView> {
    parse_answer(value, "expected a run")
}

pub(crate) fn state_phrase(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "is queued",
        RunState::Running => "is running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Lost => "was lost with its worker",
        RunState::Canceled => "was canceled",
        RunState::Unstarted => "was returned to the queue before it started",
    }
}

/// The result of a run as an exit code.
pub(crate) fn ended(view: &RunView) -> Outcome {
    if view.run.state == RunState::Succeeded {
        return Ok(());
    }
    let reason =
        view.run.error.as_deref().map(|error| format!(": {}", plain(error))).unwrap_or_default();
    Err(Failure::Negative(format!("Run {} {}{reason}", view.run.id, state_phrase(view.run.state))))
}

/// The role, with the action unless that is `run`.
pub(crate) fn role_and_action(role: &RoleName, action: &ActionName) -> String {
    if action.is_run() { role.to_string() } else { format!("{role} ({action})") }
}

fn role_of(run: &Value) -> String {
    match run["action"].as_str() {
        None => word(run, "role"),
        Some(action) => format!("{} ({action})", word(run, "role")),
    }
}

pub(crate) fn run_list() -> List {
    List {
        path: api::calls::List::Runs.path(""),
        items: "runs",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "id")),
            ("STATE", |v, _| word(v, "state")),
            ("ROLE", |v, _| role_of(v)),
            ("NODE", |v, _| word(v, "fqdn")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("BLUEPRINT", |v, _| word(v, "blueprint")),
            ("QUEUED", |v, o| o.time(&v["queued"])),
            ("ENDED", |v, o| o.time(&v["ended"])),
            ("ERROR", |v, _| word(v, "error")),
        ],
        none: "No runs found.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(id: i64, state: &str) -> Value {
        json!({"id": id, "noderole": uuid::Uuid::nil(), "role": "app", "node": uuid::Uuid::nil(),
            "fqdn": "n1.demo",
            "deployment": "web", "deployment_id": uuid::Uuid::nil(), "state": state, "cause": null,
            "blueprint": 3, "worker": "w1", "queued": "2026-09-21T14:13:20Z", "started": null,
            "ended": null, "error": "it\nbroke"})
    }

    #[test]
    fn run_page_has_aligned_lines() {
        let view = json!({"run": summary(7, "failed"), "input": {"secret": "x"}, "provenance": [],
            "values": 0, "result": {"a": 1},
            "result_expired": false, "output": null, "attempts": [
                summary(7, "failed"),
                summary(6, "lost")
            ], "review": null,
            "may_cancel": {"allowed": false, "reason": "it has ended"}, "log_bytes": 12,
            "cursor": 1});
        let text = run_text(&view, OutputFormat::default());
        for line in [
            "Run 7: app on n1.demo, failed\n",
            "  error       it broke\n",
            "  deployment  web\n",
            "  result      {\"a\":1}\n",
            "  cancel      not possible: it has ended\n",
            "\n6    lost    3 ",
            "gantry logs 7\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(!text.contains("started") && !text.contains("secret"), "{text}");
        assert_eq!(
            run_text(&json!({"of": "another"}), OutputFormat::default()),
            "of: another\n",
            "an unknown answer is printed as an outline"
        );
    }

    #[test]
    fn run_of_removal_names_its_action() {
        let mut run = summary(7, "succeeded");
        run["action"] = json!("remove");
        assert_eq!(role_of(&run), "app (remove)");
        let view = json!({"run": run, "input": {}, "provenance": [], "values": 0, "result": {},
            "result_expired": false, "output": null, "attempts": [], "review": null,
            "may_cancel": {"allowed": false, "reason": "it has ended"}, "log_bytes": 0,
            "cursor": 1});
        let text = run_text(&view, OutputFormat::default());
        assert!(text.starts_with("Run 7: app (remove) on n1.demo, succeeded\n"), "{text}");
    }
}
