//! Commands for proposals.

pub(crate) mod apply;
mod declaration;
pub(crate) mod edits;
pub(crate) mod export;

use api::call::Call;
use api::calls;
use api::proposals::Replanned;
use api::views::node_proposal::ProposedNoderole;
use clap::{Args, Subcommand};
use engine::data::written;
use engine::ids::ProposalId;
use engine::plan::Edit;
use serde::Deserialize as _;
use serde_json::Value;

use crate::address::Query;
use crate::args::ExpectedVersion;
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::{Failure, Outcome};
use crate::input::text_of;
use crate::names;
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, facts, plain, value_text};
use crate::server::{Server, parse_answer};

#[derive(Debug, Subcommand)]
pub(crate) enum Proposal {
    /// List open proposals, newest first
    List {
        /// Only proposals that you opened or edited
        #[arg(long)]
        mine: bool,
        /// Only proposals with edits that are not submitted
        #[arg(long)]
        drafts: bool,
        /// Name of the deployment
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// Part of the name of the deployment or node
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a proposal with its edits
    Show {
        /// Number of the proposal
        id: ProposalId,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the data of a noderole with the proposal's edits
    Noderole {
        /// Number of the proposal
        id: ProposalId,
        /// NODE/ROLE, for example n1/app
        noderole: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Append edits, all or none
    Edit {
        /// Number of the proposal
        id: ProposalId,
        #[command(flatten)]
        edits: EditsArgs,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Preview further edits without adding them
    Preview {
        /// Number of the proposal
        id: ProposalId,
        #[command(flatten)]
        edits: EditsArgs,
    },
    /// Undo the last edit
    Undo {
        /// Number of the proposal
        id: ProposalId,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Redo the last undone edit
    Redo {
        /// Number of the proposal
        id: ProposalId,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Discard a proposal
    Discard {
        /// Number of the proposal
        id: ProposalId,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Submit a proposal for review
    Submit {
        /// Number of the proposal
        id: ProposalId,
        /// Title of the review
        #[arg(long, value_name = "TEXT")]
        title: String,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Show the planning report, stage by stage
    Report {
        /// Number of the proposal
        id: ProposalId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EditsArgs {
    /// JSON file with a list of edits, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    file: String,
}

pub(crate) fn proposal(client: &Client, command: &Proposal) -> Outcome {
    let Client { server, output } = client;
    let version = |id: &ProposalId, on: &ExpectedVersion| match on.version {
        Some(version) => Ok(version),
        None => newest_version(server, *id),
    };
    let on_version = |id: &ProposalId, on: &ExpectedVersion, call: fn(ProposalId, i32) -> Call| {
        server.call(&call(*id, version(id, on)?))
    };
    let at = |response: &Value| value_text(&response["version"]);
    match command {
        Proposal::List { mine, drafts, deployment, filter, list_options } => {
            let query = Query::default().with("mine", *mine).with("drafts", *drafts);
            let query = query.with("deployment", deployment).with("filter", filter);
            client.list(&proposal_list(), &query, list_options)
        }
        Proposal::Show { id, again } => {
            client.show(*again, || server.show(&calls::show_proposal(*id)), proposal_text)
        }
        Proposal::Noderole { id, noderole, again } => {
            let (node, key) = names::noderole_on_node(server, noderole)?;
            let drafted = calls::proposed_noderole(*id, node, &key);
            client.show(*again, || server.show(&drafted), proposed_noderole_text)
        }
        Proposal::Edit { id, edits, on } => {
            let edits = read_edits(&edits.file)?;
            let response = server.call(&calls::edit(*id, version(id, on)?, &edits))?;
            output.either(&response, &format!("Proposal {id} is at version {}.", at(&response)))
        }
        Proposal::Preview { id, edits } => {
            let response = server.call(&calls::preview(*id, &read_edits(&edits.file)?))?;
            let refused = response["refused"].as_array().is_some_and(|refused| !refused.is_empty());
            output.either(&response, preview_text(&response).trim_end())?;
            match refused {
                true => {
                    Err(Failure::Negative("The server would reject some of these edits.".into()))
                }
                false => Ok(()),
            }
        }
        Proposal::Undo { id, on } => {
            let response = on_version(id, on, calls::undo)?;
            output.either(
                &response,
                &format!("The last edit is undone. Proposal {id} is at version {}.", at(&response)),
            )
        }
        Proposal::Redo { id, on } => {
            let response = on_version(id, on, calls::redo)?;
            output.either(
                &response,
                &format!("The edit is redone. Proposal {id} is at version {}.", at(&response)),
            )
        }
        Proposal::Discard { id, on } => {
            let response = on_version(id, on, calls::discard)?;
            output.either(&response, &format!("Proposal {id} is discarded. Nothing else changed."))
        }
        Proposal::Submit { id, title, on } => {
            let response = server.call(&calls::submit(*id, version(id, on)?, title))?;
            let review = value_text(&response["review"]);
            output.either(
                &response,
                &format!("Review {review} waits for another person: gantry review show {review}"),
            )
        }
        Proposal::Report { id } => {
            let response = server.show(&calls::proposal_report(*id))?;
            output.either(&response, outline(&response).trim_end())
        }
    }
}

/// The newest version of a proposal.
pub(crate) fn newest_version(server: &Server, id: ProposalId) -> Outcome<i32> {
    let answer = server.show(&calls::show_proposal(id))?;
    parse_answer(&answer["version"], "expected a proposal")
}

/// The effects of a proposal on noderoles. The edits themselves are printed next to it.
pub(crate) fn effect_text(added: u64, removed: u64, reruns: u64) -> String {
    match (added, removed, reruns) {
        // For example a moved deployment, a jig or the policy.
        (0, 0, 0) => "adds, removes and re-runs no noderoles".to_owned(),
        _ => format!("adds {added}, removes {removed}, runs {reruns} again"),
    }
}

pub(crate) fn proposal_text(value: &Value, output: OutputFormat) -> String {
    let count = |word: &str| value_text(&value[word]);
    let number = |word: &str| value[word].as_u64().unwrap_or_default();
    let node = value["scope"]["node"]["fqdn"]
        .as_str()
        .map(|node| format!(", node {node}"))
        .unwrap_or_default();
    let mut text = format!(
        "{} on {}{node}, version {}: {}\n",
        output.heading(&format!("Proposal {}", count("id"))),
        value_text(&value["scope"]["deployment"]),
        count("version"),
        effect_text(number("added"), number("removed"), number("reruns")),
    );
    let authors = plain(&value_text(&value["authors"]));
    if !authors.is_empty() {
        text += &format!("by {authors}\n");
    }
    if value["title"].as_str().is_some_and(|title| !title.is_empty()) {
        text += &format!("title: {}\n", plain(&value_text(&value["title"])));
    }
    if !value["review"].is_null() {
        text += &format!("in review {}\n", count("review"));
    }
    if let Some(replan) = replanned(&value["sent_back"]) {
        text += &format!(
            "sent back from review {}: its base changed\n{}",
            replan.before,
            indented(&reasons(&replan))
        );
    }
    let mut table = Table::new(["EDIT", "DESCRIPTION", "BY", "TIME"]);
    for edit in value["edits"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let undone = if edit["undone"] == true { " (undone)" } else { "" };
        let at = output.time(&edit["at"]);
        table.row([
            value_text(&edit["seq"]),
            value_text(&edit["text"]) + undone,
            value_text(&edit["actor"]),
            at,
        ]);
    }
    text += &table.text(output);
    for refused in value["refused"].as_array().map(Vec::as_slice).unwrap_or_default() {
        text += &format!(
            "rejected: edit {}: {}\n",
            value_text(&refused["edit"]),
            plain(&value_text(&refused["reason"]))
        );
    }
    text
}

pub(crate) fn replanned(value: &Value) -> Option<Replanned> {
    serde_json::from_value(value.clone()).ok()
}

pub(crate) fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Changes of the base since a review was submitted, and the reasons why its proposal is back with
/// its authors.
pub(crate) fn reasons(replanned: &Replanned) -> Vec<String> {
    let moved = plain(&format!("Changed since: {}.", replanned.moved.join(", ")));
    let refused = replanned
        .refused
        .iter()
        .map(|finding| plain(&format!("{}: {}", finding.at, finding.detail)));
    [moved].into_iter().chain(refused).collect()
}

/// The preview of a proposal, with the edits that can't take effect.
fn preview_text(response: &Value) -> String {
    let lines = |word: &str| response[word].as_array().map(Vec::as_slice).unwrap_or_default();
    let each = |word: &str| {
        lines(word)
            .iter()
            .map(|line| format!("  {}\n", plain(&value_text(line))))
            .collect::<String>()
    };
    let effect = match lines("lines") {
        [] => "The proposal changes nothing.\n".to_owned(),
        _ => format!("Effect of the proposal:\n{}", each("lines")),
    };
    match lines("refused") {
        [] => effect,
        _ => format!("{effect}Rejected:\n{}", each("refused")),
    }
}

/// Reads the edits of a proposal from a JSON file.
pub(crate) fn read_edits(file: &str) -> Outcome<Vec<Edit>> {
    let text = text_of(file)?;
    written::check(&text)
        .map_err(|error| Failure::Usage(format!("Invalid JSON in {file}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Usage(format!(
            "Invalid edits in {file}: {error}. The file must be a JSON list of edits (see \
             docs/edits.md)."
        ))
    })
}

pub(crate) fn proposal_list() -> List {
    List {
        path: calls::List::Proposals.path(""),
        items: "proposals",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "id")),
            ("DEPLOYMENT", |v, _| word(&v["scope"], "deployment")),
            ("NODE", |v, _| word(&v["scope"]["node"], "fqdn")),
            ("VERSION", |v, _| word(v, "version")),
            ("EDITS", |v, _| word(v, "edits")),
            ("AUTHORS", |v, _| word(v, "authors")),
            ("REVIEW", |v, _| word(v, "review")),
        ],
        none: "No open proposals found.",
    }
}

/// A noderole in an open proposal.
pub(crate) fn proposed_noderole_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = ProposedNoderole::deserialize(response) else { return outline(response) };
    let existence = match (view.proposed, view.rerun) {
        (true, _) => "exists only in the proposal",
        (false, true) => "exists, and the proposal runs it again",
        (false, false) => "exists",
    };
    let mut text = facts([
        ("state", existence.to_owned()),
        ("own data", view.data.to_string()),
        ("default data", view.defaults.to_string()),
    ]);
    if !view.attribs.is_empty() {
        let mut table = Table::new(["ATTRIBUTE", "PATH", "SCHEMA", "DESCRIPTION"]);
        for attrib in view.attribs {
            let schema = attrib.schema.map(|schema| schema.to_string()).unwrap_or_default();
            table.row([attrib.name, attrib.path, schema, attrib.description]);
        }
        text += &format!("\n{}", table.text(output));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn proposal_without_noderoles_has_no_zero_counts() {
        let empty = json!({"id": 4, "scope": {"deployment": "web"}, "version": 1, "authors": [],
            "added": 0, "removed": 0, "reruns": 0, "edits": []});
        let text = proposal_text(&empty, OutputFormat::default());
        assert!(
            text.starts_with(
                "Proposal 4 on web, version 1: adds, removes and re-runs no noderoles\n"
            ) && !text.contains("by "),
            "{text}"
        );
        assert_eq!(effect_text(2, 0, 1), "adds 2, removes 0, runs 1 again");
    }

    #[test]
    fn proposed_noderole_page_has_attribute_schemas() {
        let mut view = json!({"version": 2, "data": {"port": 81}, "defaults": {"port": 80},
            "proposed": false, "rerun": true,
            "attribs": [{"name": "port", "path": "/port", "description": "Where it listens",
            "schema": {"type": "integer"}}]});
        let text = proposed_noderole_text(&view, OutputFormat::default());
        for line in [
            "exists, and the proposal runs it again\n",
            "  own data      {\"port\":81}\n",
            "  default data  {\"port\":80}\n",
            "\nport       /port  {\"type\":\"integer\"}  Where it listens\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        view["proposed"] = json!(true);
        assert!(
            proposed_noderole_text(&view, OutputFormat::default())
                .contains("exists only in the proposal")
        );
        assert_eq!(
            proposed_noderole_text(&json!({"of": "another"}), OutputFormat::default()),
            "of: another\n",
            "an unknown answer is printed as an outline"
        );
    }

    #[test]
    fn preview_is_printed_line_by_line() {
        let nothing = json!({"refused": [], "lines": []});
        assert_eq!(preview_text(&nothing), "The proposal changes nothing.\n");
        let some = json!({"refused": ["there is no role x"], "lines": ["binds app to n1"]});
        assert_eq!(
            preview_text(&some),
            "Effect of the proposal:\n  binds app to n1\nRejected:\n  there is no role x\n"
        );
    }
}
