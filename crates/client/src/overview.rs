//! Commands for the overview, search, pending steps, the audit log and execution.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::PathBuf;

use api::audit::ChainView;
use api::background_tasks::MAX_TASKS;
use api::pending::PendingPage;
use clap::{Args, Subcommand};
use engine::counting::either;
use serde_json::{Value, json};

use crate::address::Query;
use crate::args::{Between, OnOff};
use crate::exit::{Failure, Outcome};
use crate::lists::{self, Client, ListOptions, WatchOption};
use crate::output::{Paper, note, outline, plain, said};
use crate::pages::pending_text;
use crate::server::{parse_answer, taken};
use crate::{names, pages, terminal};

/// A resource that `--watch` can repeat.
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) again: WatchOption,
}

/// A search.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Part of a name or a title, or a number
    text: String,
}

pub(crate) fn search(client: &Client, args: &Search) -> Outcome {
    let place = Query::default().with("q", args.text.as_str()).behind("/search");
    let results = client.server.get(&place)?;
    let more: Vec<String> = results["more"].as_array().into_iter().flatten().map(said).collect();
    let mut text = lists::hits().text(&results, client.output);
    if !more.is_empty() {
        text.push_str(&format!(
            "More results of these kinds exist: {}. Use a longer search text.\n",
            more.join(", ")
        ));
    }
    client.output.either(&results, text.trim_end())
}

pub(crate) fn background_tasks(client: &Client, show: &Show) -> Outcome {
    let list = lists::background_tasks();
    let text = |document: &Value, output: Paper| {
        let more = match document["more"] == Value::Bool(true) {
            true => format!("More background tasks exist. Only {MAX_TASKS} are listed.\n"),
            false => String::new(),
        };
        list.text(document, output) + &more
    };
    client.show(show.again, || client.server.get(&list.path), text)
}

pub(crate) fn overview(client: &Client, show: &Show) -> Outcome {
    client.show(show.again, || client.server.get("/overview"), pages::overview)
}

pub(crate) fn policy(client: &Client, show: &Show) -> Outcome {
    client.show(show.again, || client.server.get("/policy"), |value, _| outline(value))
}

#[derive(Debug, Args)]
pub(crate) struct Pending {
    /// Name of a deployment
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// The node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// List all steps with this reason (failed, held, ...)
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Sort order within each reason: since (longest pending first) or -since
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    sort: Option<String>,
    #[command(flatten)]
    again: WatchOption,
}

pub(crate) fn pending(client: &Client, args: &Pending) -> Outcome {
    let server = &client.server;
    let node = args
        .node
        .as_deref()
        .map(|node| names::node(server, node))
        .transpose()?
        .map(|node| node.fqdn);
    let query = Query::default()
        .with("deployment", &args.deployment)
        .with("node", &node)
        .with("reason", &args.reason)
        .with("sort", &args.sort);
    // With one reason, the pages form one list.
    let fetch = || {
        let mut whole = server.get(&query.behind("/pending"))?;
        while let (Some(reason), Value::String(next)) = (&args.reason, taken(&mut whole, "next")) {
            let mut more = server.get(&query.clone().with("after", next).behind("/pending"))?;
            if let (Some(steps_so_far), Some(steps)) =
                (steps_of(&mut whole, reason), steps_of(&mut more, reason))
            {
                steps_so_far.append(steps);
            }
            if let Some(page) = whole.as_object_mut() {
                page.insert("next".into(), taken(&mut more, "next"));
            }
        }
        Ok(whole)
    };
    client.show(args.again, fetch, |value, output| {
        match serde_json::from_value::<PendingPage>(value.clone()) {
            Ok(page) => match args.reason {
                None if page.groups.is_empty() => "No pending steps.\n".to_owned(),
                None => pending_text(&page, output),
                Some(_) => pending_with_reason(page, output),
            },
            Err(_) => outline(value),
        }
    })
}

/// Pending steps of the requested reason. The answer also has the counts of the other reasons.
fn pending_with_reason(mut page: PendingPage, output: Paper) -> String {
    page.groups.retain(|group| !group.steps.is_empty());
    if page.groups.is_empty() {
        "No pending steps with this reason.\n".to_owned()
    } else {
        pending_text(&page, output)
    }
}

/// The steps of one reason. The other reasons have only counts.
fn steps_of<'p>(page: &'p mut Value, reason: &str) -> Option<&'p mut Vec<Value>> {
    let groups = page.get_mut("groups")?.as_array_mut()?;
    groups.iter_mut().find(|group| group["reason"] == reason)?.get_mut("steps")?.as_array_mut()
}

/// Audit commands that need a server.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// List audit entries, newest first
    List(AuditList),
    /// Export the sealed audit log as JSON lines, for `gantry audit verify`
    Export(AuditExport),
    /// Verify the whole hash chain on the server, part by part
    Chain(AuditChain),
}

/// Filters of the audit log.
#[derive(Debug, Args)]
pub struct AuditList {
    /// Name of a person, or gantry for Gantry itself
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Action, for example review.commit
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Subject: a number or an id
    #[arg(long, value_name = "WHAT")]
    subject: Option<String>,
    /// Origin: application (with reasons), database (each changed row), or all
    #[arg(long, value_name = "SOURCE", value_parser = ["application", "database", "all"])]
    source: Option<String>,
    #[command(flatten)]
    between: Between,
    #[command(flatten)]
    much: ListOptions,
}

/// Range and file of an export.
#[derive(Debug, Args)]
pub struct AuditExport {
    /// Write to this new file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Start after this position of the chain
    #[arg(long, value_name = "N")]
    after: Option<i64>,
}

/// Range of a verification.
#[derive(Debug, Args)]
pub struct AuditChain {
    /// Start after this position of the chain
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
}

pub(crate) fn audit(client: &Client, command: &Audit) -> Outcome {
    match command {
        Audit::List(args) => {
            let query = Query::default()
                .with("who", &args.who)
                .with("action", &args.action)
                .with("subject", &args.subject)
                .with("source", &args.source);
            client.list(&lists::audit(), &args.between.words(query), &args.much)
        }
        Audit::Export(args) => export(client, args),
        Audit::Chain(args) => chain(client, args.after),
    }
}

fn export(client: &Client, args: &AuditExport) -> Outcome {
    let query = Query::default().with("after", args.after);
    let mut stream = client.server.stream(&query.behind("/audit/export"), "application/jsonl")?;
    let Some(path) = &args.output else {
        if client.output.is_terminal() {
            let mut lines = BufReader::new(stream).lines();
            return lines.try_for_each(|line| {
                client.output.line(&terminal::json(&copied(line, "the terminal")?))
            });
        }
        return copied(
            std::io::copy(&mut stream, &mut std::io::stdout().lock()).map(drop),
            "standard output",
        );
    };
    let shown = path.display();
    let mut file = File::create_new(path)
        .map_err(|error| Failure::Usage(format!("Cannot write {shown}: {error}.")))?;
    copied(std::io::copy(&mut stream, &mut file).and_then(|_| file.flush()), &shown.to_string())?;
    note(&format!("Verify it: gantry audit verify {shown}"));
    Ok(())
}

fn copied<T>(copied: std::io::Result<T>, destination: &str) -> Outcome<T> {
    copied.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Unreachable(format!(
            "The export to {destination} was interrupted: {error}. It is incomplete. Export again."
        )),
    })
}

fn chain(client: &Client, after: u64) -> Outcome {
    let Client { server, output } = client;
    let mut after = after;
    loop {
        let value = server.get(&format!("/audit/chain?after={after}"))?;
        let view: ChainView = parse_answer(&value, "expected an audit chain")?;
        if let Some(broken) = &view.broken {
            output.either(&value, &format!("The chain is broken: {}", plain(broken)))?;
            return Err(Failure::Negative(
                "The audit log was changed, or a part of it is missing. Compare it with an export."
                    .into(),
            ));
        }
        match view.next {
            Some(next) if next > after => after = next,
            _ => {
                let mut told = format!(
                    "The chain is valid up to {}. {} {} not sealed yet.",
                    view.end,
                    view.unsealed,
                    either(view.unsealed, "entry is", "entries are"),
                );
                if view.end > 0 {
                    told.push_str(&format!(
                        "\nThe last link is {}:{}. Store it elsewhere, for `gantry audit verify \
                         --expect`.",
                        view.end, view.hash
                    ));
                }
                return output.either(&value, &told);
            }
        }
    }
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
    let response =
        client.server.post("/execution", json!({"enabled": enabled, "reason": args.reason}))?;
    let state = if enabled { "Execution is on" } else { "Execution is off" };
    client
        .output
        .either(&response, &format!("{state} since blueprint {}.", said(&response["blueprint"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_filter_hides_other_reasons() {
        let step = json!({"noderole": uuid::Uuid::nil(), "role": "app", "node": uuid::Uuid::nil(), "fqdn": "n1.demo",
            "deployment": "web", "state": "error", "since": 0, "reasons": ["It failed."], "resolved_by": []});
        let group = |reason: &str, heading: &str, steps: Value| json!({"reason": reason, "heading": heading, "resolution": "a person", "count": 1, "more": false, "steps": steps});
        let page = |steps: Value| -> PendingPage {
            let groups = [group("failed", "Failed", steps), group("on_hold", "On hold", json!([]))];
            serde_json::from_value(json!({"groups": groups})).unwrap()
        };
        let told = pending_with_reason(page(json!([step])), Paper::new(false));
        assert!(
            told.contains(" (1) - resolved by a person\n") && told.contains("It failed."),
            "{told}"
        );
        assert!(!told.contains("On hold"), "{told}");
        assert_eq!(
            pending_with_reason(page(json!([])), Paper::new(false)),
            "No pending steps with this reason.\n"
        );
    }

    #[test]
    fn steps_of_requested_reason_are_found() {
        let mut page = json!({"groups": [{"reason": "on_hold", "steps": []}, {"reason": "failed", "steps": [1, 2]}]});
        assert_eq!(steps_of(&mut page, "failed").map(|steps| steps.len()), Some(2));
        assert_eq!(steps_of(&mut page, "on_hold").map(|steps| steps.len()), Some(0));
        assert!(steps_of(&mut page, "nothing").is_none());
        for other in [
            json!(null),
            json!([]),
            json!({"groups": []}),
            json!({"groups": [{"reason": "failed"}]}),
        ] {
            assert!(steps_of(&mut other.clone(), "failed").is_none(), "{other}");
        }
    }
}
