//! Commands for blueprints and their rollouts, and the difference between two of them.

use api::blueprints::Comparison;
use api::call::Call;
use api::rollout::{BlueprintProgress, RetriedSteps};
use clap::Subcommand;
use engine::ids::{BlueprintNumber, actor_name};
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
use crate::output::{
    OutputFormat, format_time, plain, sanitize_lines, steps, time_text, value_text,
};
use crate::runs::role_and_action;
use crate::script_diff;
use crate::server::parse_answer;

/// Prints all differences, page by page: as text with the changed scripts, or as a document.
pub(crate) fn difference(client: &Client, call: &Call, query: &Query) -> Outcome {
    let Client { server, output } = client;
    let path = call.url();
    let mut whole: Comparison = server.read(&query.clone().with("format", "json").on(&path))?;
    while let Some(after) = whole.next.take() {
        let page: Comparison = server.read(
            &query.clone().with("format", "json").with("after", after.to_string()).on(&path),
        )?;
        whole.difference.deployments.extend(page.difference.deployments);
        whole.difference.nodes.extend(page.difference.nodes);
        whole.names.deployments.extend(page.names.deployments);
        whole.names.noderoles.extend(page.names.noderoles);
        whole.contents.extend(page.contents);
        whole.pins.extend(page.pins);
        whole.role_values.extend(page.role_values);
        whole.next = page.next;
        whole.more = 0;
    }
    if output.is_document() {
        return output.document(&serde_json::to_value(&whole).unwrap_or_default());
    }
    let text = sanitize_lines(&(whole.text() + &script_diff::scripts(&whole)));
    output.write(&output.with_changes(&text))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Blueprint {
    /// List blueprints, newest first
    List {
        /// Name of a deployment that the blueprint changed
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a blueprint and its progress
    Show {
        /// Number of the blueprint
        #[arg(value_parser = names::blueprint)]
        number: i64,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the rollout of a blueprint: its waves, failed steps and remaining time
    Progress {
        /// Number of the blueprint
        #[arg(value_parser = names::blueprint)]
        number: i64,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Retry the failed steps of a blueprint, at most 200 at a time
    Retry {
        /// Number of the blueprint
        #[arg(value_parser = names::blueprint)]
        number: i64,
        /// Also retry steps that destroy data
        #[arg(long)]
        destructive: bool,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Compare two blueprints, by number or by hash of the root
    Compare {
        /// Number of the old blueprint, or hash of its root
        from: String,
        /// Number of the new blueprint, or hash of its root
        to: String,
        /// Only this deployment
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
    },
}

pub(crate) fn blueprint(client: &Client, command: &Blueprint) -> Outcome {
    let Client { server, output } = client;
    match command {
        Blueprint::List { deployment, list_options } => client.list(
            &blueprint_list(),
            &Query::default().with("deployment", deployment),
            list_options,
        ),
        Blueprint::Show { number, again } => client.show(
            *again,
            || server.show(&api::calls::show_blueprint(BlueprintNumber(*number))),
            blueprint_text,
        ),
        Blueprint::Progress { number, again } => client.show(
            *again,
            || server.show(&api::calls::blueprint_progress(BlueprintNumber(*number))),
            progress_text,
        ),
        Blueprint::Retry { number, destructive, reason } => {
            let number = BlueprintNumber(*number);
            let retry = api::calls::retry_failed(number, &reason.reason, *destructive);
            let response = server.call(&retry)?;
            let outcome: RetriedSteps = parse_answer(&response, "expected the outcome of a retry")?;
            output.either(&response, &plain(&outcome.text()))
        }
        Blueprint::Compare { from, to, deployment } => {
            let compare = api::calls::compare_blueprints(from, to);
            difference(client, &compare, &Query::default().with("deployment", deployment))
        }
    }
}

fn blueprint_text(value: &Value, output: OutputFormat) -> String {
    let target = &value["blueprint"];
    let by = actor_name(target["by"].as_str());
    let at = time_text(&target["at"]);
    format!(
        "{} {}\n{} by {}, {at}\nprogress: {}, {} applied ({})\n",
        output.heading(&format!("Blueprint {}:", value_text(&target["number"]))),
        plain(&value_text(&target["title"])),
        value_text(&target["kind"]),
        plain(by),
        value_text(&value["progress"]).replace('_', " "),
        value_text(&value["applied"]),
        steps(&value["steps"])
    )
}

fn progress_text(value: &Value, output: OutputFormat) -> String {
    let Ok(view) = BlueprintProgress::deserialize(value) else { return outline(value) };
    let rollout = &view.rollout;
    let heading = output.heading(&format!("Blueprint {}:", rollout.blueprint.number));
    let mut text = format!("{heading} {}\n", rollout.text());
    if !view.waves.is_empty() {
        let mut table = Table::new(["WAVE", "STEPS"]);
        for (wave, number) in value["waves"].as_array().into_iter().flatten().zip(1..) {
            table.row([number.to_string(), steps(wave)]);
        }
        text += &format!("\n{}", table.text(output));
    }
    if view.more_waves {
        text += "More waves are left out.\n";
    }
    if !view.failed.is_empty() {
        let mut table = Table::new(["FAILED", "NODE", "DEPLOYMENT", "SINCE", "ERROR"]);
        for step in &view.failed {
            table.row([
                role_and_action(&step.role, &step.action),
                step.fqdn.clone(),
                step.deployment.to_string(),
                format_time(step.since.0),
                step.error.clone().unwrap_or_default(),
            ]);
        }
        text += &format!("\n{}", table.text(output));
        text +=
            &format!("Retry: gantry blueprint retry {} --reason TEXT\n", rollout.blueprint.number);
    }
    text
}

pub(crate) fn blueprint_list() -> List {
    List {
        path: api::calls::List::Blueprints.path(""),
        items: "blueprints",
        cursor: "before",
        columns: &[
            ("NUMBER", |v, _| word(v, "number")),
            ("KIND", |v, _| word(v, "kind")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("TITLE", |v, _| word(v, "title")),
            ("BY", |v, _| actor_name(v["by"].as_str()).to_owned()),
            ("APPROVED", |v, _| word(v, "approved_by")),
            ("TIME", |v, o| o.time(&v["at"])),
        ],
        none: "No blueprints found.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Format;

    #[test]
    fn rollout_lists_waves_and_failed_steps() {
        let counts = |active, error| {
            json!(
                {"blocked": 0, "todo": 0, "transition": 0, "active": active, "error": error}
            )
        };
        let view = json!({
            "rollout": {
                "blueprint": {"number": 7, "kind": "change", "root": "00", "enabled": true,
                "at": "1970-01-01T00:00:00Z", "by": "ada",
                    "review": 3, "title": "a", "deployment": "web", "authors": [],
                    "approved_by": []},
                "progress": "in_progress", "steps": counts(2, 1), "all": 3, "applied": 2,
                "seconds_left": 68,
            },
            "waves": [counts(2, 0), counts(0, 1)], "more_waves": true,
            "failed": [{"noderole": uuid::Uuid::nil(), "role": "app", "node": uuid::Uuid::nil(),
                "fqdn": "n1.demo", "deployment": "web", "deployment_id": uuid::Uuid::nil(),
                "destructive": false, "error": "it\nbroke", "since": "1970-01-01T00:00:00Z"}],
            "failed_destructive": 0, "timeline": {"nodes": [], "all_nodes": 0, "all_runs": 0},
            "may_retry": {"allowed": true}, "cursor": 1,
        });
        let text = progress_text(&view, OutputFormat::new(Format::Text));
        for line in [
            "Blueprint 7: 2 of 3 steps, about 70 s left, 1 failed\n",
            "\n2     1 ERROR\n",
            "More waves are left out.\n",
            "it broke",
            "gantry blueprint retry 7 --reason TEXT\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
    }
}
