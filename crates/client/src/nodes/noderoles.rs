//! Commands for noderoles.

use std::borrow::Borrow;

use api::deployments::{CheckState, DataLayer, NoderoleCheck, NoderoleRef, NoderoleView};
use clap::Subcommand;
use engine::counting::many;
use serde::Deserialize as _;
use serde_json::Value;

use crate::address::Query;
use crate::args::ReasonArgs;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{FIRST, OutputFormat, facts, format_time, permission_text, plain};
use crate::runs::attempts;
use crate::runs::data::{ValueArgs, data};

#[derive(Debug, Subcommand)]
pub(crate) enum Noderole {
    /// List steps of noderoles
    List {
        /// Name of the deployment
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// The node
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "NAME")]
        role: Option<String>,
        /// State of the step
        #[arg(long, value_parser = ["blocked", "todo", "transition", "active", "error"])]
        state: Option<String>,
        /// Only stale steps: their input has changed since their last run
        #[arg(long)]
        stale: bool,
        /// Only steps in ACTIVE whose check does not pass
        #[arg(long)]
        unchecked: bool,
        /// Only steps that this blueprint changed or re-ran last
        #[arg(long, value_name = "N", value_parser = names::blueprint)]
        blueprint: Option<i64>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a noderole's state with its reason, and its data
    Show {
        /// NODE/ROLE, for example n1/app, or the id
        noderole: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the values that a run would see now, with their sources
    Data {
        /// NODE/ROLE, for example n1/app, or the id
        noderole: String,
        /// Show only the noderole's own data and output, as other noderoles see them
        #[arg(long)]
        own: bool,
        #[command(flatten)]
        values: ValueArgs,
    },
    /// Retry a step after an error
    Retry {
        /// NODE/ROLE, for example n1/app, or the id
        noderole: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
}

pub(crate) fn noderole(client: &Client, command: &Noderole) -> Outcome {
    let Client { server, output } = client;
    match command {
        Noderole::List {
            deployment,
            node,
            role,
            state,
            stale,
            unchecked,
            blueprint,
            list_options,
        } => {
            let node = match node {
                Some(node) => Some(names::node(server, node)?.id.to_string()),
                None => None,
            };
            let query = Query::default()
                .with("deployment", deployment)
                .with("node", &node)
                .with("role", role)
                .with("state", state)
                .with("stale", *stale)
                .with("unchecked", *unchecked)
                .with("blueprint", *blueprint);
            client.list(&step_list(), &query, list_options)
        }
        Noderole::Show { noderole, again } => {
            let id = names::noderole(server, noderole)?;
            client.show(*again, || server.show(&api::calls::show_noderole(id)), noderole_text)
        }
        Noderole::Data { noderole, own, values } => {
            let id = names::noderole(server, noderole)?;
            data(client, &api::calls::noderole_data(id, "", false), values, *own)
        }
        Noderole::Retry { noderole, reason } => {
            let id = names::noderole(server, noderole)?;
            let response = server.call(&api::calls::retry(id, &reason.reason))?;
            output.either(&response, &format!("Noderole {noderole} runs again."))
        }
    }
}

fn step_list() -> List {
    List {
        path: api::calls::STEPS_PATH.into(),
        items: "steps",
        cursor: "after",
        columns: &[
            ("NODEROLE", |v, _| format!("{}/{}", word(v, "fqdn"), word(v, "noderole"))),
            ("ACTION", |v, _| word(v, "action")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("STATE", |v, _| {
                let marks = [("stale", ", stale"), ("unchecked", ", check does not pass")];
                let marks = marks.iter().filter(|(field, _)| v[*field] == true);
                let marks: String = marks.map(|(_, mark)| *mark).collect();
                format!("{}{marks}", word(v, "state").to_uppercase())
            }),
            ("SINCE", |v, o| o.time(&v["since"])),
            ("BLUEPRINT", |v, _| word(v, "generation")),
            ("ERROR", |v, _| word(v, "error")),
        ],
        none: "No steps found.",
    }
}

/// The check in a line, then the end of its output.
fn check_text(check: &NoderoleCheck) -> String {
    let state = match check.state {
        CheckState::Unknown => "has not run yet".to_owned(),
        CheckState::Passing if check.passes => "passes".to_owned(),
        CheckState::Passing => "passed, but the next run is overdue".to_owned(),
        CheckState::Failing => format!(
            "fails, {} in a row (effect after {})",
            many(check.failures, "failure"),
            check.policy.failures
        ),
    };
    let last = check.checked.map(|at| format!(", last run {}", format_time(at.0)));
    let every = format!("every {} s", check.policy.interval);
    let head = format!("{} {state}{}, {every}", plain(&check.script), last.unwrap_or_default());
    let output = plain(check.detail.trim());
    if output.is_empty() { head } else { format!("{head}: {output}") }
}

pub(crate) fn noderole_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = NoderoleView::deserialize(response) else { return outline(response) };
    let applied = view.applied.map_or_else(|| "none yet".to_owned(), |target| target.to_string());
    let mut text = format!(
        "{} {}{}, since {}\n",
        output.heading(&format!("{} on {}:", view.role, plain(&view.fqdn))),
        view.state.label(),
        if view.stale { ", stale" } else { "" },
        format_time(view.since.0)
    );
    text += &facts([
        ("deployment", view.deployment.to_string()),
        ("role", view.description.clone()),
        ("reason", view.reasons.join(" ")),
        ("error", view.error.clone().unwrap_or_default()),
        ("generation", view.generation.to_string()),
        ("applied blueprint", applied),
        ("check", view.check.as_ref().map(check_text).unwrap_or_default()),
        ("dependencies", noderoles_text(&view.parents)),
        ("dependents", noderoles_text(&view.children)),
        ("retry", permission_text(&view.may_retry)),
        ("id", view.id.to_string()),
    ]);
    let layers: Vec<&DataLayer> = view
        .layers
        .iter()
        .filter(|layer| layer.value.as_object().is_none_or(|data| !data.is_empty()))
        .collect();
    if !layers.is_empty() {
        let mut table = Table::new(["SOURCE", "DATA"]);
        for layer in layers {
            table.row([layer.source.label().to_owned(), layer.value.to_string()]);
        }
        text += &format!("\n{}", table.text(output));
    }
    if !view.runs.is_empty() {
        text += &format!("\n{}", attempts(&view.runs, output).text(output));
    }
    text + &format!("All values with their sources: gantry noderole data {}\n", view.id)
}

/// For example `proxy on n1 ACTIVE, app on n2 ERROR and 3 more`.
fn noderoles_text(all: &[impl Borrow<NoderoleRef>]) -> String {
    let one = |step: &NoderoleRef| format!("{} on {} {}", step.role, step.fqdn, step.state.label());
    let first: Vec<String> = all.iter().take(FIRST).map(|step| one(step.borrow())).collect();
    let more = all.len().saturating_sub(FIRST);
    first.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stale_step_and_overdue_check_are_described() {
        let id = uuid::Uuid::nil();
        let no = json!({"allowed": false, "reason": "No."});
        let check = json!({"script": "check/alive", "state": "passing", "passes": false,
            "failures": 0,
            "policy": {
                "interval": 30,
                "timeout": 5,
                "failures": 2,
                "on_failure": "report"
            }, "caused_rerun": false,
            "detail": "", "duration_ms": 3, "checked": null, "changed": null});
        let mut view = json!({"id": id, "role": "app", "description": "", "node": id,
            "fqdn": "n1.demo",
            "deployment": "web", "deployment_id": id, "state": "active", "stale": true,
            "since": "2026-09-21T14:13:20Z", "reasons": [], "error": null, "generation": 3,
            "applied": 3,
            "role_hash": "5f", "layers": [], "merged": {}, "provenance": [], "values": 0,
            "output": {},
            "attribs": [], "parents": [], "children": [], "runs": [], "may_retry": no,
            "may_edit": no,
            "may_propose": no, "check": check});
        let text = noderole_text(&view, OutputFormat::default());
        assert!(text.starts_with("app on n1.demo: ACTIVE, stale, since "), "{text}");
        let overdue = "check/alive passed, but the next run is overdue, every 30 s\n";
        assert!(text.contains(overdue), "{text}");
        view["check"]["state"] = json!("failing");
        view["check"]["failures"] = json!(3);
        let text = noderole_text(&view, OutputFormat::default());
        assert!(text.contains("fails, 3 failures in a row (effect after 2), every 30 s"), "{text}");
    }
}
