//! Commands for the overview, the approval policy and execution.

use api::blueprints::BlueprintSummary;
use api::overview::Overview;
use api::pending::PendingPage;
use clap::Args;
use engine::counting::many;
use engine::ids::actor_name;
use serde::Deserialize as _;
use serde_json::Value;

use crate::args::OnOff;
use crate::client::{Client, WatchOption};
use crate::exit::Outcome;
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, facts, format_time, steps, value_text};
use crate::runs::pending::pending_text;

/// A resource that `--watch` can repeat.
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) again: WatchOption,
}

pub(crate) fn overview(client: &Client, show: &Show) -> Outcome {
    client.show(show.again, || client.server.show(&api::overview::show_call()), overview_text)
}

#[derive(Debug, Args)]
pub(crate) struct Execution {
    /// New state of execution
    state: OnOff,
    /// Reason, which everyone can read
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) fn execution(client: &Client, args: &Execution) -> Outcome {
    let enabled = args.state == OnOff::On;
    let response = client.server.call(&api::calls::execution(enabled, &args.reason))?;
    let state = if enabled { "Execution is on" } else { "Execution is off" };
    client.output.either(
        &response,
        &format!("{state} since blueprint {}.", value_text(&response["blueprint"])),
    )
}

pub(crate) fn overview_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = Overview::deserialize(response) else { return outline(response) };
    let execution =
        if view.enabled { "execution is on" } else { "execution is off: no steps start" };
    let mut text =
        format!("{}, {execution}\n", output.heading(&format!("Blueprint {}", view.blueprint)));
    let queued =
        view.queue.oldest.map(|at| format!(" since {}", format_time(at.0))).unwrap_or_default();
    text += &facts([
        (
            "deployments",
            counted(
                view.deployments.all,
                [
                    (view.deployments.on_hold, "on hold"),
                    (view.deployments.proposed, "with an open proposal"),
                ],
            ),
        ),
        (
            "nodes",
            counted(
                view.nodes.all,
                [(view.nodes.dead, "dead"), (view.nodes.maintenance, "in maintenance")],
            ),
        ),
        ("steps", steps(&response["steps"])),
        ("runs", format!("{} running, {} queued{queued}", view.queue.running, view.queue.queued)),
        (
            "workers",
            format!(
                "{} alive, capacity {}",
                view.workers.alive,
                many(view.workers.capacity, "run")
            ),
        ),
        ("reviews", format!("{} open, {} for you", view.open_reviews, view.reviews)),
    ]);
    for rollout in &view.rollouts {
        text +=
            &format!("  rollout of blueprint {}: {}\n", rollout.blueprint.number, rollout.text());
    }
    if !view.commits.is_empty() {
        text += &format!(
            "\n{}\n{}",
            output.heading("Last commits"),
            commits(&view.commits, output).text(output)
        );
    }
    if !view.stuck.is_empty() {
        text +=
            &format!("\n{}", pending_text(&PendingPage { groups: view.stuck, next: None }, output));
    }
    text
}

/// A total with non-zero parts, for example `30, 2 dead, 1 in maintenance`.
fn counted<const N: usize>(all: i64, parts: [(i64, &str); N]) -> String {
    let parts = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!(", {count} {label}"));
    format!("{all}{}", parts.collect::<String>())
}

fn commits(blueprints: &[BlueprintSummary], output: OutputFormat) -> Table {
    let mut table = Table::new(["BLUEPRINT", "DEPLOYMENT", "TITLE", "BY", "AT"]);
    for target in blueprints {
        let by = actor_name(target.by.as_deref()).to_owned();
        let deployment = target.deployment.clone().unwrap_or_default();
        table.row([
            target.number.to_string(),
            deployment,
            target.title.clone(),
            by,
            output.time_of(target.at.0),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn overview_has_counts_and_pending_steps() {
        let view = json!({"blueprint": 3, "enabled": false, "deployments": {"all": 2, "on_hold": 1,
            "proposed": 0},
            "nodes": {"all": 30, "dead": 2, "maintenance": 0},
            "steps": {
                "blocked": 0,
                "todo": 0,
                "transition": 0,
                "active": 5,
                "error": 1,
                "stale": 2,
                "unchecked": 1
            }, "stuck": [],
            "reviews": {"count": 1, "more": true}, "open_reviews": 2, "commits": [], "queue": {
                "queued": 0,
                "running": 4,
                "oldest": null
            },
            "workers": {"alive": 1, "capacity": 8}, "hours": [], "first_steps": null});
        let text = overview_text(&view, OutputFormat::default());
        for line in [
            "Blueprint 3, execution is off: no steps start\n",
            "  deployments  2, 1 on hold\n",
            "  nodes        30, 2 dead\n",
            "  steps        1 ERROR, 5 ACTIVE (2 stale, 1 unchecked)\n",
            "  runs         4 running, 0 queued\n",
            "  reviews      2 open, 1+ for you\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
    }
}
