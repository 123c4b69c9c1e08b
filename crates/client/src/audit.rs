//! Commands for the audit log.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::PathBuf;

use api::audit::{ChainView, export_call, verify_call};
use clap::{Args, Subcommand};
use engine::counting::either;
use engine::ids::actor_name;

use crate::address::Query;
use crate::args::Between;
use crate::client::{Client, ListOptions};
use crate::exit::{Failure, Outcome};
use crate::output::list::{List, word};
use crate::output::{note, plain, terminal};
use crate::server::parse_answer;

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
    actor: Option<String>,
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
    list_options: ListOptions,
}

/// Range and file of an export.
#[derive(Debug, Args)]
pub struct AuditExport {
    /// Write to this new file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
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
                .with("actor", &args.actor)
                .with("action", &args.action)
                .with("subject", &args.subject)
                .with("source", &args.source);
            client.list(&entry_list(), &args.between.add_to(query), &args.list_options)
        }
        Audit::Export(args) => export(client, args),
        Audit::Chain(args) => chain(client, args.after),
    }
}

fn export(client: &Client, args: &AuditExport) -> Outcome {
    let query = Query::default().with("after", args.after);
    let mut stream = client.server.stream(&query.on(&export_call().path()), "application/jsonl")?;
    let Some(path) = &args.file else {
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
        let query = Query::default().with("after", i64::try_from(after).ok());
        let value = server.get(&query.on(&verify_call().path()))?;
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
                let mut response = format!(
                    "The chain is valid up to {}. {} {} not sealed yet.",
                    view.end,
                    view.unsealed,
                    either(view.unsealed, "entry is", "entries are"),
                );
                if view.end > 0 {
                    response.push_str(&format!(
                        "\nThe last link is {}:{}. Store it elsewhere, for `gantry audit verify \
                         --expect`.",
                        view.end, view.hash
                    ));
                }
                return output.either(&value, &response);
            }
        }
    }
}

pub(crate) fn entry_list() -> List {
    List {
        path: api::calls::List::Audit.path(""),
        items: "entries",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "id")),
            ("TIME", |v, o| o.time(&v["at"])),
            ("PERSON", |v, _| actor_name(v["name"].as_str()).to_owned()),
            ("ACTION", |v, _| word(v, "action")),
            ("SUBJECT", |v, _| word(v, "subject")),
            ("SEALED", |v, _| word(v, "sealed")),
            (
                "DETAIL",
                |v, _| if v["detail"].is_null() { String::new() } else { v["detail"].to_string() },
            ),
        ],
        none: "No entries found.",
    }
}
