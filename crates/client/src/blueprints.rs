//! Commands for blueprints, and the difference between two of them.

use api::blueprints::Comparison;
use clap::Subcommand;
use engine::ids::{BlueprintNumber, actor_name};
use serde_json::Value;

use crate::address::Query;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::{OutputFormat, moment, moment_of, plain, said, sanitize_lines, steps};

/// Prints all differences, page by page: as text, or as JSON with all documents.
pub(crate) fn difference(client: &Client, path: &str, query: &Query) -> Outcome {
    let Client { server, output } = client;
    if !output.json {
        return output
            .write(&sanitize_lines(&server.text(&query.clone().with("as", "text").behind(path))?));
    }
    let mut whole: Comparison = server.read(&query.clone().with("as", "json").behind(path))?;
    while let Some(after) = whole.next.take() {
        let page: Comparison = server.read(
            &query.clone().with("as", "json").with("after", after.to_string()).behind(path),
        )?;
        whole.difference.deployments.extend(page.difference.deployments);
        whole.difference.nodes.extend(page.difference.nodes);
        whole.names.deployments.extend(page.names.deployments);
        whole.names.noderoles.extend(page.names.noderoles);
        whole.contents.extend(page.contents);
        whole.pins.extend(page.pins);
        whole.next = page.next;
        whole.more = 0;
    }
    output.json(&serde_json::to_value(&whole).unwrap_or_default())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Blueprint {
    /// List blueprints, newest first
    List {
        /// Name of a deployment that the blueprint changed
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show a blueprint and its progress
    Show {
        /// Number of the blueprint
        #[arg(value_parser = names::blueprint)]
        number: i64,
        #[command(flatten)]
        again: WatchOption,
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
    let Client { server, .. } = client;
    match command {
        Blueprint::List { deployment, much } => {
            client.list(&blueprint_list(), &Query::default().with("deployment", deployment), much)
        }
        Blueprint::Show { number, again } => client.show(
            *again,
            || server.get(&format!("/blueprints/{}", BlueprintNumber(*number))),
            blueprint_text,
        ),
        Blueprint::Compare { from, to, deployment } => {
            let query = Query::default()
                .with("from", from.as_str())
                .with("to", to.as_str())
                .with("deployment", deployment);
            difference(client, "/blueprints/compare", &query)
        }
    }
}

fn blueprint_text(value: &Value, output: OutputFormat) -> String {
    let target = &value["blueprint"];
    let by = actor_name(target["by"].as_str());
    let at = target["at"].as_i64().map(moment_of).unwrap_or_default();
    format!(
        "{} {}\n{} by {}, {at}\nprogress: {}, {} applied ({})\n",
        output.heading(&format!("Blueprint {}:", said(&target["number"]))),
        plain(&said(&target["title"])),
        said(&target["kind"]),
        plain(by),
        said(&value["progress"]).replace('_', " "),
        said(&value["applied"]),
        steps(&value["steps"])
    )
}

pub(crate) fn blueprint_list() -> List {
    List {
        path: "/blueprints".into(),
        items: "blueprints",
        cursor: "before",
        columns: &[
            ("NUMBER", |v| word(v, "number")),
            ("KIND", |v| word(v, "kind")),
            ("DEPLOYMENT", |v| word(v, "deployment")),
            ("TITLE", |v| word(v, "title")),
            ("BY", |v| actor_name(v["by"].as_str()).to_owned()),
            ("APPROVED", |v| word(v, "approved_by")),
            ("TIME", |v| moment(&v["at"])),
        ],
        none: "No blueprints found.",
    }
}
