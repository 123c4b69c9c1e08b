//! Commands for noderoles.

use std::borrow::Borrow;

use api::deployments::{CheckState, DataLayer, NoderoleCheck, NoderoleRef, NoderoleView};
use clap::Subcommand;
use serde::Deserialize as _;
use serde_json::{Value, json};

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
        /// Only steps that this blueprint changed or re-ran last
        #[arg(long, value_name = "N", value_parser = names::blueprint)]
        blueprint: Option<i64>,
        #[command(flatten)]
        much: ListOptions,
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
        because: ReasonArgs,
    },
}

pub(crate) fn noderole(client: &Client, command: &Noderole) -> Outcome {
    let Client { server, output } = client;
    match command {
        Noderole::List { deployment, node, role, state, stale, blueprint, much } => {
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
                .with("blueprint", *blueprint);
            client.list(&step_list(), &query, much)
        }
        Noderole::Show { noderole, again } => {
            let id = names::noderole(server, noderole)?;
            client.show(*again, || server.get(&format!("/noderoles/{id}")), noderole_text)
        }
        Noderole::Data { noderole, own, values } => {
            let id = names::noderole(server, noderole)?;
            data(client, &format!("/noderoles/{id}/data"), values, *own)
        }
        Noderole::Retry { noderole, because } => {
            let id = names::noderole(server, noderole)?;
            let response = server
                .post(&format!("/noderoles/{id}/retry"), json!({"reason": because.reason}))?;
            output.either(&response, &format!("Noderole {noderole} runs again."))
        }
    }
}

fn step_list() -> List {
    List {
        path: "/steps".into(),
        items: "steps",
        cursor: "after",
        columns: &[
            ("NODEROLE", |v, _| format!("{}/{}", word(v, "fqdn"), word(v, "noderole"))),
            ("ACTION", |v, _| word(v, "action")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("STATE", |v, _| {
                let stale = if v["stale"] == true { ", stale" } else { "" };
                format!("{}{stale}", word(v, "state").to_uppercase())
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
        CheckState::Passing => "passes".to_owned(),
        CheckState::Failing => {
            format!("fails, {} of {} failures", check.failures, check.policy.failures)
        }
    };
    let last = check.checked.map(|at| format!(", last run {}", format_time(at.0)));
    let overdue = (check.state == CheckState::Passing && !check.passes).then_some(", overdue");
    let every = format!("every {} s", check.policy.interval);
    let head = format!(
        "{} {state}{}{}, {every}",
        plain(&check.script),
        last.unwrap_or_default(),
        overdue.unwrap_or_default()
    );
    let output = plain(check.detail.trim());
    if output.is_empty() { head } else { format!("{head}: {output}") }
}

pub(crate) fn noderole_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = NoderoleView::deserialize(response) else { return outline(response) };
    let applied = view.applied.map_or_else(|| "none yet".to_owned(), |target| target.to_string());
    let mut text = format!(
        "{} {}, since {}\n",
        output.heading(&format!("{} on {}:", view.role, plain(&view.fqdn))),
        view.state.label(),
        format_time(view.since.0)
    );
    text += &facts([
        ("deployment", view.deployment.to_string()),
        ("role", view.description.clone()),
        ("reason", view.why.join(" ")),
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
            table.row([layer.source.clone(), layer.value.to_string()]);
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
