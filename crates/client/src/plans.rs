//! Commands for deployments, proposals, reviews and blueprints.

use std::ops::RangeInclusive;

use api::blueprints::Comparison;
use api::proposals::Replanned;
use api::reviews::{ChangesSinceView, Discussion, ViewedChanges};
use api::views::board::{Board, RoleNoderoles};
use clap::{Args, Subcommand};
use engine::blueprint::Impact;
use engine::blueprint::impact::{Counted, Touched, WaveGroup};
use engine::blueprint::secret_uses::SecretChange;
use engine::blueprint::text::{Behind, Names};
use engine::catalog::read::MAX_PRIORITY;
use engine::counting::many;
use engine::ids::{BlueprintNumber, CommentId, ProposalId, ReviewId, actor_name};
use serde_json::{Value, json};
use ureq::http::Method;

use crate::address::{Query, part};
use crate::apply::read_edits;
use crate::args::{ExpectedVersion, ReasonArgs};
use crate::exit::{Failure, Outcome};
use crate::graphs::{self, GraphArgs};
use crate::lists::{self, Client, ListOptions, WatchOption};
use crate::output::{Paper, Table, moment_of, outline, plain, said, sanitize_lines, steps};
use crate::server::{RequestOptions, Server, taken};
use crate::{names, pages};

/// Valid priorities of a deployment.
const PRIORITY_RANGE: RangeInclusive<i64> = -(MAX_PRIORITY as i64)..=MAX_PRIORITY as i64;

#[derive(Debug, Subcommand)]
pub(crate) enum Deployment {
    /// List deployments, from system down
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// State of the deployment
        #[arg(long, value_parser = ["on_hold", "proposed", "review", "error", "working", "idle"])]
        state: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show the board: roles, their nodes and states
    Show {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the graph of noderoles in topological order
    Graph {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        wanted: GraphArgs,
    },
    /// List all nodes of a role; the board has only the first of many
    Noderoles {
        /// Name of the deployment
        name: String,
        /// Name of the role
        role: String,
        /// Name of the ancestor that the role belongs to
        #[arg(long, value_name = "NAME")]
        of_ancestor: Option<String>,
        /// Only this node
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Open a proposal on a deployment, or join the open one
    Propose {
        /// Name of the deployment
        name: String,
    },
    /// Put a deployment and its descendants on hold: no new runs start
    Hold {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// End the hold of a deployment
    Release {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// Set the priority of a deployment's runs
    Priority {
        /// Name of the deployment
        name: String,
        /// Priority; runs of higher priority start first
        #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(PRIORITY_RANGE))]
        priority: i32,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// Propose to restore a deployment's state at an earlier blueprint
    Restore {
        /// Name of the deployment
        name: String,
        /// Number of the blueprint
        #[arg(long, value_name = "N", value_parser = names::target)]
        blueprint: i64,
        /// Leave out things that can't be restored
        #[arg(long)]
        partial: bool,
    },
}

pub(crate) fn deployment(client: &Client, command: &Deployment) -> Outcome {
    let Client { server, output } = client;
    let post = |name: &str, what: &str, body: Value| {
        server.post(&format!("/deployments/{}/{what}", part(name)), body)
    };
    match command {
        Deployment::List { filter, state, much } => client.list(
            &lists::deployments(),
            &Query::default().with("filter", filter).with("state", state),
            much,
        ),
        Deployment::Show { name, again } => {
            names::deployment(server, name)?;
            let path = format!("/deployments/{}/board", part(name));
            client.show(*again, || server.get(&path), board)
        }
        Deployment::Graph { name, wanted } => {
            names::deployment(server, name)?;
            graphs::graph(client, &format!("/deployments/{}/graph", part(name)), wanted)
        }
        Deployment::Noderoles { name, role, of_ancestor, node, again } => {
            names::deployment(server, name)?;
            let node = node
                .as_deref()
                .map(|node| names::node(server, node))
                .transpose()?
                .map(|node| node.fqdn);
            let place = format!("/deployments/{}/noderoles", part(name));
            let query = Query::default()
                .with("role", role.as_str())
                .with("of_ancestor", of_ancestor)
                .with("node", &node);
            client.show(*again, || carriers(server, &place, &query), nodes_with_role_text)
        }
        Deployment::Propose { name } => {
            let response = post(name, "proposals", json!({}))?;
            output.either(
                &response,
                &format!("Proposal {} is open on {name}.", said(&response["proposal"])),
            )
        }
        Deployment::Hold { name, because } => {
            let response = post(name, "hold", json!({"on_hold": true, "reason": because.reason}))?;
            output.either(
                &response,
                &format!(
                    "Deployment {name} is on hold: no new runs start in it \
                or its descendants."
                ),
            )
        }
        Deployment::Release { name, because } => {
            let response = post(name, "hold", json!({"on_hold": false, "reason": because.reason}))?;
            output.either(&response, &format!("The hold on {name} has ended."))
        }
        Deployment::Priority { name, priority, because } => {
            let response =
                post(name, "priority", json!({"priority": priority, "reason": because.reason}))?;
            output.either(&response, &format!("Deployment {name} has priority {priority}."))
        }
        Deployment::Restore { name, blueprint: target, partial } => {
            let response = post(name, "restore", json!({"blueprint": target, "partial": partial}))?;
            let missing = response["missing"].as_array().map(Vec::as_slice).unwrap_or_default();
            let missing: String = missing
                .iter()
                .map(|what| format!("\n  left out: {}", plain(&said(what))))
                .collect();
            let edits = many(response["edits"].as_u64().unwrap_or_default(), "edit");
            let proposal = said(&response["proposal"]);
            output.either(
                &response,
                &format!(
                    "Proposal {proposal} restores {name} to blueprint {target} with \
                    {edits}.{missing}"
                ),
            )
        }
    }
}

/// Reads all noderoles of a role, page by page.
fn carriers(server: &Server, place: &str, query: &Query) -> Outcome<Value> {
    let mut whole: RoleNoderoles = server.read(&query.behind(place))?;
    while whole.more > 0 {
        let Some(last) = whole.noderoles.last().map(|chip| chip.noderole.to_string()) else {
            break;
        };
        let page: RoleNoderoles = server.read(&query.clone().with("after", last).behind(place))?;
        // An empty page that claims to have more would cause an endless loop.
        whole.more = if page.noderoles.is_empty() { 0 } else { page.more };
        whole.noderoles.extend(page.noderoles);
    }
    Ok(serde_json::to_value(&whole).unwrap_or_default())
}

fn nodes_with_role_text(value: &Value, output: Paper) -> String {
    let Ok(told) = serde_json::from_value::<RoleNoderoles>(value.clone()) else {
        return outline(value);
    };
    if told.noderoles.is_empty() {
        return "No nodes have this role.\n".to_owned();
    }
    let mut table = Table::new(["NODE", "STATE", "REQUIRED BY", "ERROR", "NODEROLE"]);
    for chip in told.noderoles {
        let going = if chip.removed { ", to be removed" } else { "" };
        table.row([
            chip.fqdn,
            format!("{}{going}", chip.state.word()),
            chip.required_by.unwrap_or_default(),
            chip.error.unwrap_or_default(),
            chip.noderole.to_string(),
        ]);
    }
    table.text(output)
}

/// A board as text. An answer with an unknown form is printed as an outline.
fn board(value: &Value, output: Paper) -> String {
    let Ok(board) = serde_json::from_value::<Board>(value.clone()) else { return outline(value) };
    let path: Vec<&str> =
        board.ancestors.iter().map(|name| name.as_str()).chain([board.name.as_str()]).collect();
    let mut text =
        format!("{}, blueprint {}\n", output.heading(&path.join(" / ")), board.blueprint);
    if let Some(hold) = &board.hold {
        text += &format!(
            "On hold by {} in {}: {}\n",
            plain(&hold.by),
            hold.deployment,
            plain(&hold.reason)
        );
    }
    if board.priority != 0 {
        text += &format!("Priority {} (default 0)\n", board.priority);
    }
    if let Some(open) = &board.proposal {
        let submitted = open.review.map(|id| format!(", in review {id}")).unwrap_or_default();
        text += &format!(
            "Proposal {} version {} by {}{submitted}: adds {}, removes {}, runs {} again\n",
            open.id,
            open.version,
            open.authors.join(", "),
            open.added,
            open.removed,
            open.reruns
        );
    }
    let mut table = Table::new(["ROLE", "BARCLAMP", "NODES", "DATA"]);
    for group in &board.groups {
        let owner =
            group.of_ancestor.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        for role in &group.roles {
            let chip = |chip: &api::views::board::BoardNoderole| {
                let going = if chip.removed { ", to be removed" } else { "" };
                format!("{} {}{going}", chip.short, chip.state.word())
            };
            let mut chips: Vec<String> = role.noderoles.iter().map(chip).collect();
            if role.more > 0 {
                chips.push(format!("and {} more", role.more));
            }
            let data = if role.data.as_object().is_none_or(serde_json::Map::is_empty) {
                String::new()
            } else {
                role.data.to_string()
            };
            table.row([
                role.role.to_string(),
                format!("{}{owner}", group.barclamp),
                chips.join(", "),
                data,
            ]);
        }
    }
    text + &table.text(output)
}

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
        text: Option<String>,
        #[command(flatten)]
        much: ListOptions,
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
    let on_version = |id: &ProposalId, on: &ExpectedVersion, what: &str, mut body: Value| {
        body["version"] = match on.version {
            Some(version) => json!(version),
            None => taken(&mut server.get(&format!("/proposals/{id}"))?, "version"),
        };
        server.post(&format!("/proposals/{id}/{what}"), body)
    };
    let at = |response: &Value| said(&response["version"]);
    match command {
        Proposal::List { mine, drafts, deployment, text, much } => {
            let query = Query::default().with("mine", *mine).with("drafts", *drafts);
            let query = query.with("deployment", deployment).with("text", text);
            client.list(&lists::proposals(), &query, much)
        }
        Proposal::Show { id, again } => {
            client.show(*again, || server.get(&format!("/proposals/{id}")), draft)
        }
        Proposal::Noderole { id, noderole, again } => {
            let (node, key) = names::carried(server, noderole)?;
            let query =
                Query::default().with("node", node.to_string()).with("noderole", key.to_string());
            let place = query.behind(&format!("/proposals/{id}/noderole"));
            client.show(*again, || server.get(&place), pages::drafted)
        }
        Proposal::Edit { id, edits, on } => {
            let response = on_version(id, on, "edits", json!({"edits": read_edits(&edits.file)?}))?;
            output.either(&response, &format!("Proposal {id} is at version {}.", at(&response)))
        }
        Proposal::Preview { id, edits } => {
            let response = server.post(
                &format!("/proposals/{id}/preview"),
                json!({"edits": read_edits(&edits.file)?}),
            )?;
            let refused = response["refused"].as_array().is_some_and(|refused| !refused.is_empty());
            output.either(&response, foreseen(&response).trim_end())?;
            match refused {
                true => {
                    Err(Failure::Negative("The server would reject some of these edits.".into()))
                }
                false => Ok(()),
            }
        }
        Proposal::Undo { id, on } => {
            let response = on_version(id, on, "undo", json!({}))?;
            output.either(
                &response,
                &format!("The last edit is undone. Proposal {id} is at version {}.", at(&response)),
            )
        }
        Proposal::Redo { id, on } => {
            let response = on_version(id, on, "redo", json!({}))?;
            output.either(
                &response,
                &format!("The edit is redone. Proposal {id} is at version {}.", at(&response)),
            )
        }
        Proposal::Discard { id, on } => {
            let response = on_version(id, on, "discard", json!({}))?;
            output.either(&response, &format!("Proposal {id} is discarded. Nothing else changed."))
        }
        Proposal::Submit { id, title, on } => {
            let response = on_version(id, on, "submit", json!({"title": title}))?;
            let review = said(&response["review"]);
            output.either(
                &response,
                &format!("Review {review} waits for another person: gantry review show {review}"),
            )
        }
        Proposal::Report { id } => {
            let response = server.get(&format!("/proposals/{id}/report"))?;
            output.either(&response, outline(&response).trim_end())
        }
    }
}

fn draft(value: &Value, output: Paper) -> String {
    let count = |word: &str| said(&value[word]);
    let node = value["scope"]["node"]["fqdn"]
        .as_str()
        .map(|node| format!(", node {node}"))
        .unwrap_or_default();
    let mut text = format!(
        "{} on {}{node}, version {}: adds {}, removes {}, runs {} again\nby {}\n",
        output.heading(&format!("Proposal {}", count("id"))),
        said(&value["scope"]["deployment"]),
        count("version"),
        count("added"),
        count("removed"),
        count("reruns"),
        plain(&said(&value["authors"]))
    );
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
        let at = edit["at"].as_i64().map(moment_of).unwrap_or_default();
        table.row([said(&edit["seq"]), said(&edit["text"]) + undone, said(&edit["actor"]), at]);
    }
    text += &table.text(output);
    for refused in value["refused"].as_array().map(Vec::as_slice).unwrap_or_default() {
        text += &format!(
            "rejected: edit {}: {}\n",
            said(&refused["edit"]),
            plain(&said(&refused["reason"]))
        );
    }
    text
}

fn replanned(value: &Value) -> Option<Replanned> {
    serde_json::from_value(value.clone()).ok()
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Changes of the base since a review was submitted, and the reasons why its proposal is back with
/// its authors.
fn reasons(replanned: &Replanned) -> Vec<String> {
    let moved = plain(&format!("Changed since: {}.", replanned.moved.join(", ")));
    let refused = replanned
        .refused
        .iter()
        .map(|finding| plain(&format!("{}: {}", finding.at, finding.detail)));
    [moved].into_iter().chain(refused).collect()
}

/// Differences between a review and the one that it replaces.
fn shift(came: &Replanned, value: &Value) -> Vec<String> {
    let mut lines = vec![match came.refused.is_empty() {
        true => format!("Planned again from review {}.", came.before),
        false => format!("Submitted again: review {} was sent back to its authors.", came.before),
    }];
    lines.extend(reasons(came));
    if !came.dropped.is_empty() {
        lines
            .push(plain(&format!("Verdicts that do not count here: {}.", came.dropped.join(", "))));
    }
    if came.same_effect {
        lines.push("The effect is unchanged.".to_owned());
        return lines;
    }
    if came.shift.is_empty() {
        lines.push("The same values change, but the effects or risks differ.".to_owned());
        return lines;
    }
    let names: Names = serde_json::from_value(value.clone()).unwrap_or_default();
    for (title, side) in [("Before:", &came.shift.before), ("Now:", &came.shift.after)] {
        lines.push(title.to_owned());
        match side.is_empty() {
            true => lines.push("  Nothing.".to_owned()),
            false => {
                let text = sanitize_lines(&side.text(&names, &Behind::default()));
                lines.extend(text.lines().map(|line| format!("  {line}")));
            }
        }
    }
    if came.more > 0 {
        lines.push(format!("{} not shown.", many(came.more, "document")));
    }
    lines
}

#[derive(Debug, Subcommand)]
pub(crate) enum Review {
    /// List reviews, newest first
    List {
        /// Your part in the review: any, waiting for you, or author
        #[arg(long, value_parser = ["all", "for_me", "mine"])]
        whose: Option<String>,
        /// Outcome of the review
        #[arg(long, value_parser = ["open", "committed", "discarded", "any"])]
        state: Option<String>,
        /// Name of the deployment
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// Part of the title
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show a review with its gate and discussion
    Show {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the differences of a review
    Diff {
        /// Number of the review
        id: ReviewId,
    },
    /// Show differences to the version that you viewed before
    Since {
        /// Number of the review
        id: ReviewId,
    },
    /// Mark a review as viewed; since then shows later differences
    View {
        /// Number of the review
        id: ReviewId,
    },
    /// Show which changes of a review you have viewed
    Viewed {
        /// Number of the review
        id: ReviewId,
        /// Mark these changes as viewed: deployment/ID or node/ID
        #[arg(value_name = "ANCHOR")]
        anchors: Vec<String>,
    },
    /// Show the graph of the changed noderoles and their neighbors, in topological order
    Graph {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        wanted: GraphArgs,
    },
    /// Show the impact of a commit: steps that would start, stop and wait
    Impact {
        /// Number of the review
        id: ReviewId,
    },
    /// Show the planning report, stage by stage
    Report {
        /// Number of the review
        id: ReviewId,
    },
    /// Approve a review
    Approve {
        /// Number of the review
        id: ReviewId,
        /// Reason of the verdict
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Request changes
    RequestChanges {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// Reject a review
    Reject {
        /// Number of the review
        id: ReviewId,
        #[command(flatten)]
        because: ReasonArgs,
    },
    /// Commit a review as the next blueprint
    Commit {
        /// Number of the review
        id: ReviewId,
        /// Name that confirms a change that can't be undone
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Cancel running steps that the change replaces
        #[arg(long)]
        cancel: bool,
    },
    /// Show the discussion of a review
    Discussion {
        /// Number of the review
        id: ReviewId,
    },
    /// Comment on a review
    Comment {
        /// Number of the review
        id: ReviewId,
        /// Text of the comment
        body: String,
        /// The change to comment on, as in the discussion [default: the whole review]
        #[arg(long, default_value = "", hide_default_value = true)]
        anchor: String,
    },
    /// Reply in a thread
    Reply {
        /// Number of the thread, from the discussion
        thread: CommentId,
        /// Text of the comment
        body: String,
    },
    /// Resolve a thread
    Resolve {
        /// Number of the thread, from the discussion
        thread: CommentId,
    },
    /// Reopen a thread
    Reopen {
        /// Number of the thread, from the discussion
        thread: CommentId,
    },
}

pub(crate) fn review(client: &Client, command: &Review) -> Outcome {
    let Client { server, output } = client;
    let verdict = |id: &ReviewId, kind: &str, reason: &str, told: &str| {
        let response = server
            .post(&format!("/reviews/{id}/verdicts"), json!({"kind": kind, "reason": reason}))?;
        output.either(&response, &format!("Review {id}: {told}."))
    };
    match command {
        Review::List { whose, state: fate, deployment, text, much } => {
            let query = Query::default()
                .with("whose", whose)
                .with("state", fate)
                .with("deployment", deployment)
                .with("text", text);
            client.list(&lists::reviews(), &query, much)
        }
        Review::Show { id, again } => {
            client.show(*again, || server.get(&format!("/reviews/{id}")), review_text)
        }
        Review::Diff { id } => {
            difference(client, &format!("/reviews/{id}/difference"), &Query::default())
        }
        Review::Since { id } => since(client, *id),
        Review::View { id } => {
            let response = server.post(&format!("/reviews/{id}/view"), json!({}))?;
            output.either(
                &response,
                &format!(
                    "Review {id} is marked as viewed. Compare later versions with `gantry review \
                     since`."
                ),
            )
        }
        Review::Viewed { id, anchors } => {
            let place = format!("/reviews/{id}/viewed");
            let response = match anchors.as_slice() {
                [] => server.get(&place)?,
                anchors => server.post(&place, json!({"anchors": anchors}))?,
            };
            if output.json { output.json(&response) } else { output.write(&opened(&response, *id)) }
        }
        Review::Graph { id, wanted } => {
            graphs::graph(client, &format!("/reviews/{id}/graph"), wanted)
        }
        Review::Impact { id } => {
            let response = server.get(&format!("/reviews/{id}/impact"))?;
            if output.json { output.json(&response) } else { output.write(&impact(&response)) }
        }
        Review::Report { id } => {
            let response = server.get(&format!("/reviews/{id}/report"))?;
            output.either(&response, outline(&response).trim_end())
        }
        Review::Approve { id, reason } => verdict(id, "approve", reason, "approved"),
        Review::RequestChanges { id, because } => {
            verdict(id, "request_changes", &because.reason, "changes requested")
        }
        Review::Reject { id, because } => verdict(id, "reject", &because.reason, "rejected"),
        Review::Commit { id, name, cancel } => {
            let body = json!({"name": name, "cancel": cancel});
            let response = server.post(&format!("/reviews/{id}/commit"), body).map_err(
                |failure| match output.json {
                    true => failure,
                    false => failure.with_commit_command(*id),
                },
            )?;
            let target = said(&response["blueprint"]);
            output.either(
                &response,
                &format!(
                    "Review {id} is committed as blueprint {target}. Follow it: gantry converge \
                     --blueprint {target}"
                ),
            )
        }
        Review::Discussion { id } => {
            let response = server.get(&format!("/reviews/{id}/discussion"))?;
            if output.json { output.json(&response) } else { output.write(&discussion(&response)) }
        }
        Review::Comment { id, body, anchor } => {
            let response = server
                .post(&format!("/reviews/{id}/threads"), json!({"anchor": anchor, "body": body}))?;
            output.either(&response, &format!("Thread {} is open.", said(&response["comment"])))
        }
        Review::Reply { thread, body } => {
            let response =
                server.post(&format!("/threads/{thread}/replies"), json!({"body": body}))?;
            output.either(&response, &format!("Comment {} is added.", said(&response["comment"])))
        }
        Review::Resolve { thread } => {
            let response = server.post(&format!("/threads/{thread}/resolve"), json!({}))?;
            output.either(&response, &format!("Thread {thread} is resolved."))
        }
        Review::Reopen { thread } => {
            let response = server.post(&format!("/threads/{thread}/reopen"), json!({}))?;
            output.either(&response, &format!("Thread {thread} is open again."))
        }
    }
}

/// Prints all differences, page by page: as text, or as JSON with all documents.
fn difference(client: &Client, path: &str, query: &Query) -> Outcome {
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

/// Prints all differences since the last view, page by page.
fn since(client: &Client, id: ReviewId) -> Outcome {
    let Client { server, output } = client;
    let path = format!("/reviews/{id}/since");
    let mut whole: ChangesSinceView = server.read(&path)?;
    while let Some(after) = whole.next.take() {
        let page: ChangesSinceView =
            server.read(&Query::default().with("after", after.to_string()).behind(&path))?;
        whole.difference.deployments.extend(page.difference.deployments);
        whole.difference.nodes.extend(page.difference.nodes);
        whole.noderoles.extend(page.noderoles);
        whole.contents.extend(page.contents);
        whole.pins.extend(page.pins);
        whole.next = page.next;
        whole.more = 0;
    }
    let response = serde_json::to_value(&whole).unwrap_or_default();
    let told = match whole.before {
        None => format!(
            "You have not viewed this review before. Show all changes: gantry review \
            diff {id}"
        ),
        Some(before) if whole.same_effect => {
            format!("It has the same effect as review {before}, which you viewed before.")
        }
        Some(before) => {
            format!("Since review {before}:\n{}", outline(&response["difference"]).trim_end())
        }
    };
    output.either(&response, &told)
}

/// The viewed changes, by anchor.
fn opened(value: &Value, id: ReviewId) -> String {
    let Ok(told) = serde_json::from_value::<ViewedChanges>(value.clone()) else {
        return outline(value);
    };
    let mut text =
        format!("You have viewed {} of {}.\n", told.viewed.len(), many(told.all, "change"));
    text += &told.viewed.iter().map(|anchor| format!("  {anchor}\n")).collect::<String>();
    if !told.outdated.is_empty() {
        text += "Changed since you viewed them:\n";
        text += &told.outdated.iter().map(|anchor| format!("  {anchor}\n")).collect::<String>();
    }
    text + &format!("All changes with their ids: gantry review diff {id} --json\n")
}

fn lines_of(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|all| all.iter().map(|line| plain(&said(line))).collect())
        .unwrap_or_default()
}

fn review_text(value: &Value, output: Paper) -> String {
    let word = |word: &str| plain(&said(&value[word]));
    let mut text =
        format!("{} {}\n", output.heading(&format!("Review {}:", word("review"))), word("title"));
    let node =
        value["node"].as_str().map(|node| format!(", node {}", plain(node))).unwrap_or_default();
    let at = value["at"].as_i64().map(moment_of).unwrap_or_default();
    text += &format!(
        "on {}{node}, by {}, {at}\nstate: {} (proposal {} version {}, planned on blueprint {})\n",
        word("deployment"),
        word("authors"),
        word("state").replace('_', " "),
        word("proposal"),
        word("version"),
        word("parent")
    );
    if !value["blueprint"].is_null() {
        text += &format!("blueprint: {}\n", word("blueprint"));
    }
    if !value["risks"].as_array().is_none_or(Vec::is_empty) {
        text += &format!("risks: {}\n", word("risks"));
    }
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text += &format!("\n{}\n{}", output.heading(title), indented(&lines));
        }
    };
    if let Some(replacement) = replanned(&value["replaced_by"]) {
        match replacement.after {
            Some(after) => {
                let effect_text =
                    if replacement.same_effect { "the same effect" } else { "another effect" };
                let mut lines = reasons(&replacement);
                lines.push(format!(
                    "Planned again as review {after}, with {effect_text}: gantry review show {after}"
                ));
                part("The base changed", lines);
            }
            None => part("Sent back to its authors", reasons(&replacement)),
        }
    }
    if let Some(came) = replanned(&value["replaces"]) {
        part("The base changed", shift(&came, value));
    }
    part("Summary", lines_of(&value["summary"]));
    let secrets = serde_json::from_value::<Vec<SecretChange>>(value["impact"]["secrets"].clone());
    part(
        "Secrets",
        secrets.unwrap_or_default().iter().map(|secret| plain(&secret.to_string())).collect(),
    );
    let checks = value["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    part("Lint", checks.iter().map(finding_line).collect());
    let waves = value["waves"].as_array().map(Vec::as_slice).unwrap_or_default();
    part(
        "Order",
        waves
            .iter()
            .map(|wave| format!("{}. {}", said(&wave["number"]), plain(&said(&wave["items"]))))
            .collect(),
    );
    part("Pending", lines_of(&value["pending_reasons"]));
    let gate = &value["gate"];
    let mut lines = vec![format!(
        "{} of {}",
        said(&gate["approvals"]),
        many(gate["needed"].as_u64().unwrap_or_default(), "approval")
    )];
    if !gate["can_approve"].as_array().is_none_or(Vec::is_empty) {
        lines.push(format!("can approve: {}", plain(&said(&gate["can_approve"]))));
    }
    for (permission, what) in
        [("may_judge", "you can't give a verdict"), ("may_commit", "you can't commit it")]
    {
        if let Some(why) = value[permission]["Err"].as_str() {
            lines.push(format!("{what}: {}", plain(why)));
        }
    }
    part("Gate", lines);
    let verdict = |verdict: &Value| {
        let at = verdict["at"].as_i64().map(moment_of).unwrap_or_default();
        let counts = if verdict["counts"] == true { "" } else { " (does not count)" };
        plain(&format!(
            "{} {}{counts}, {at} {}",
            said(&verdict["person"]),
            said(&verdict["kind"]),
            said(&verdict["reason"])
        ))
    };
    part(
        "Verdicts",
        value["verdicts"]
            .as_array()
            .map(|all| all.iter().map(verdict).collect())
            .unwrap_or_default(),
    );
    text
}

/// A lint finding on one line.
fn finding_line(value: &Value) -> String {
    let [level, at, what, remedy] =
        ["level", "at", "what", "remedy"].map(|word| said(&value[word]));
    plain(&format!("{level}: {at}: {what}. {remedy}"))
}

/// The preview of a proposal, with the edits that can't take effect.
fn foreseen(response: &Value) -> String {
    let lines = |word: &str| response[word].as_array().map(Vec::as_slice).unwrap_or_default();
    let each = |word: &str| {
        lines(word).iter().map(|line| format!("  {}\n", plain(&said(line)))).collect::<String>()
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

/// The impact of a change, line by line.
fn impact(value: &Value) -> String {
    let Ok(told) = serde_json::from_value::<Impact>(value.clone()) else {
        return outline(value);
    };
    let mut text = format!("Affects {}.\n", many(told.nodes, "node"));
    let mut part = |title: &str, count: usize, first: Vec<String>| {
        if count == 0 {
            return;
        }
        text += &format!("{title}: {count}\n");
        let more = count.saturating_sub(first.len());
        text += &first.iter().map(|line| format!("  {}\n", plain(line))).collect::<String>();
        if more > 0 {
            text += &format!("  and {more} more\n");
        }
    };
    let touched = |all: &Counted<Touched>| all.first.iter().map(Touched::to_string).collect();
    let restarts = told.restarts.first.iter().map(|restart| {
        let because =
            restart.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let in_use = if restart.in_use == Some(true) { ", ACTIVE now" } else { "" };
        format!("{}{in_use}{because}", restart.touched)
    });
    let lost = value["lost"]["first"].as_array().map(Vec::as_slice).unwrap_or_default();
    part("Runs for the first time", told.starts.count, touched(&told.starts));
    part("Runs again", told.restarts.count, restarts.collect());
    part("Uses the change with its next run", told.retained.count, touched(&told.retained));
    part("Removed", told.lost.count, lost.iter().map(item_line).collect());
    part("Runs remove on the node before it is gone", told.undone.count, touched(&told.undone));
    part("Nothing is run on the node", told.left.count, touched(&told.left));
    part("Loses data permanently", told.irreversible.count, touched(&told.irreversible));
    part("Secrets", told.secrets.len(), told.secrets.iter().map(ToString::to_string).collect());
    if let Some(interrupted) = told.interrupted.filter(|count| *count > 0) {
        text += &format!("ACTIVE steps that are interrupted: {interrupted}\n");
    }
    if let Some(lost) = told.lost_in_use.filter(|count| *count > 0) {
        text += &format!("ACTIVE steps that are removed: {lost}\n");
    }
    if !told.downstream.is_empty() {
        text += "Dependents that do not run again:\n";
        for behind in &told.downstream {
            let example = behind
                .noderoles
                .first
                .first()
                .map(|first| format!(", such as {first}"))
                .unwrap_or_default();
            text += &format!("  {} in {}{example}\n", behind.noderoles.count, behind.deployment);
        }
    }
    if !told.waves.is_empty() {
        text += &format!("In {}:\n", many(told.wave_count(), "wave"));
    }
    for wave in &told.waves {
        let group = |group: &WaveGroup| {
            let action = match group.action.is_run() {
                true => String::new(),
                false => format!("{} of ", group.action),
            };
            let step = format!("{action}{} of {}", group.role, group.deployment);
            if group.is_phantom() {
                return step;
            }
            let at_once = group.at_once.map(|n| format!(", {n} at once")).unwrap_or_default();
            format!("{step} on {}{at_once}", many(group.nodes, "node"))
        };
        let groups: Vec<String> = wave.groups.iter().map(group).collect();
        let wave_name = if wave.number == 0 {
            "Immediately".to_owned()
        } else {
            format!("Wave {}", wave.number)
        };
        text += &format!("  {wave_name}: {}\n", groups.join("; "));
    }
    if told.more_waves > 0 {
        text += &format!("  and {} more\n", many(told.more_waves, "wave"));
    }
    let risks: Vec<String> =
        value["risks"].as_array().map(|all| all.iter().map(said).collect()).unwrap_or_default();
    if !risks.is_empty() {
        text += &format!("Risks: {}\n", risks.join(", "));
    }
    text
}

/// An item with the text of a field. For a boolean, only the field's name.
fn field_line(word: &str, value: &Value) -> String {
    let word = word.replace('_', " ");
    match value {
        Value::Bool(true) => word,
        Value::Bool(false) => format!("not {word}"),
        other => format!("{word} {}", item_line(other)),
    }
}

/// An item on one line. Ids are left out of text output.
fn item_line(item: &Value) -> String {
    match item {
        // A noderole with its node, and any other fields.
        Value::Object(entries)
            if entries.contains_key("noderole") && entries.contains_key("fqdn") =>
        {
            let word = |word: &str| entries.get(word).map(item_line).unwrap_or_default();
            let place = entries
                .get("deployment")
                .map(|name| format!(" in {}", item_line(name)))
                .unwrap_or_default();
            let known = ["noderole", "fqdn", "deployment", "id", "kind"];
            let rest = entries
                .iter()
                .filter(|(word, value)| !value.is_null() && !known.contains(&word.as_str()));
            let rest: String =
                rest.map(|(word, value)| format!(", {}", field_line(word, value))).collect();
            format!("{} on {}{place}{rest}", word("noderole"), word("fqdn"))
        }
        Value::Object(entries) => {
            let told = entries.iter().filter(|(word, value)| {
                !value.is_null() && !matches!(word.as_str(), "id" | "node_id" | "noderole_id")
            });
            told.map(|(word, value)| field_line(word, value)).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(item_line).collect::<Vec<_>>().join("; "),
        other => plain(&said(other)),
    }
}

fn discussion(value: &Value) -> String {
    let Ok(told) = serde_json::from_value::<Discussion>(value.clone()) else {
        return outline(value);
    };
    if told.threads.is_empty() {
        return format!("No comments yet. Add one: gantry review comment {} TEXT\n", told.review);
    }
    let mut text = String::new();
    for thread in &told.threads {
        let state = match &thread.resolved {
            Some((by, at)) => format!("resolved by {}, {}", plain(by), moment_of(at.0)),
            None => "open".to_owned(),
        };
        let removed_text = if thread.current { "" } else { ", which this version no longer has" };
        text += &format!(
            "Thread {} ({state}), about {}{removed_text}\n",
            thread.id,
            plain(&thread.about)
        );
        for comment in &thread.comments {
            text += &format!("  {}, {}:\n", plain(&comment.person), moment_of(comment.at.0));
            text += &sanitize_lines(&comment.body)
                .lines()
                .map(|line| format!("    {line}\n"))
                .collect::<String>();
        }
    }
    text
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
        #[arg(value_parser = names::target)]
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

pub(crate) fn target(client: &Client, command: &Blueprint) -> Outcome {
    let Client { server, .. } = client;
    match command {
        Blueprint::List { deployment, much } => client.list(
            &lists::blueprints(),
            &Query::default().with("deployment", deployment),
            much,
        ),
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

fn blueprint_text(value: &Value, output: Paper) -> String {
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

/// Any request by method and path, for operations without a command of their own.
#[derive(Debug, Args)]
pub(crate) struct Api {
    /// GET, POST, PUT, PATCH or DELETE
    #[arg(value_parser = method)]
    method: Method,
    /// Path below /api/v1, for example /nodes?filter=n1
    path: String,
    /// JSON file with the request body, or - for standard input
    #[arg(long, value_name = "FILE")]
    body: Option<String>,
    /// If-Match header: a version such as "3", or an ETag from a response
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

fn method(text: &str) -> Result<Method, String> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let found = known.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "must be GET, POST, PUT, PATCH or DELETE".to_owned())
}

pub(crate) fn api(client: &Client, api: &Api) -> Outcome {
    if !api.path.starts_with('/') {
        return Err(Failure::Usage(format!(
            "Invalid path {}. It must begin with /, for example /nodes?filter=n1.",
            api.path
        )));
    }
    let body = api.body.as_deref().map(crate::apply::json_of).transpose()?;
    let with = RequestOptions { body, if_match: api.if_match.clone(), accept: None };
    let text = client.server.ask(&api.method, &api.path, &with)?.text;
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => client.output.json(&value),
        Err(_) => client.output.write(&text),
    }
}

#[cfg(test)]
mod tests {
    use engine::blueprint::difference::{Difference, Sides};
    use engine::gate::Policy;

    use super::*;

    fn secret_use() -> Value {
        json!({"change": "replaced", "secret": {"$secret": "db/password", "version": 2},
            "was": {"$secret": "db/password", "version": 1}, "kind": "data", "deployment": "web", "role": "app",
            "nodes": {"count": 1, "first": ["n1.example.com"]}})
    }

    #[test]
    fn review_lists_secrets_by_version() {
        let text = review_text(&json!({"impact": {"secrets": [secret_use()]}}), Paper::new(false));
        let line =
            "Secrets\n  uses secret db/password version 2 (was version 1) in app of web on n1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn impact_is_printed_line_by_line() {
        let told = Impact { nodes: 3, interrupted: Some(1), ..Impact::default() };
        let mut value = serde_json::to_value(told).unwrap();
        assert_eq!(impact(&value), "Affects 3 nodes.\nACTIVE steps that are interrupted: 1\n");
        let touched = json!({"deployment": "web", "fqdn": "n1.example.com", "noderole": "app", "id": uuid::Uuid::nil()});
        value["starts"] = json!({"count": 3, "first": [touched]});
        let text = impact(&value);
        assert!(text.contains("Runs for the first time: 3\n  app on n1\n  and 2 more\n"), "{text}");
        value["secrets"] = json!([secret_use()]);
        let text = impact(&value);
        assert!(
            text.contains("Secrets: 1\n  uses secret db/password version 2 (was version 1) in app of web on n1\n"),
            "{text}"
        );
    }

    #[test]
    fn wave_count_matches_listed_waves() {
        let wave = |number: u32| json!({"number": number, "runs": 1, "immediate": 0, "groups": []});
        let mut value = serde_json::to_value(Impact::default()).unwrap();
        assert!(!impact(&value).contains("wave"), "nothing runs");
        value["waves"] = json!([wave(0), wave(1), wave(2)]);
        value["more_waves"] = json!(3);
        let text = impact(&value);
        assert!(
            text.contains(
                "In 5 waves:\n  Immediately: \n  Wave 1: \n  Wave 2: \n  and 3 waves \
                more\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn viewed_changes_are_listed_by_anchor() {
        let node = format!("node/{}", uuid::Uuid::from_u128(2));
        let value = json!({"all": 2, "viewed": [node], "outdated": []});
        let all = "All changes with their ids: gantry review diff 7 --json\n";
        let text = opened(&value, ReviewId(7));
        assert_eq!(text, format!("You have viewed 1 of 2 changes.\n  {node}\n{all}"));
        let value = json!({"all": 1, "viewed": [], "outdated": [node]});
        let text = opened(&value, ReviewId(7));
        let before = "Changed since you viewed them:\n";
        assert_eq!(text, format!("You have viewed 0 of 1 change.\n{before}  {node}\n{all}"));
    }

    #[test]
    fn role_nodes_are_listed_with_pending_removal() {
        let id = uuid::Uuid::nil();
        let chip = json!({"noderole": id, "node": id, "fqdn": "n1.demo", "short": "n1", "state": "active", "required_by": null,
            "changed": false, "removed": true, "alive": true, "error": null});
        let text =
            nodes_with_role_text(&json!({"noderoles": [chip], "more": 0}), Paper::new(false));
        assert!(text.contains("n1.demo  ACTIVE, to be removed"), "{text}");
        let none = nodes_with_role_text(&json!({"noderoles": [], "more": 0}), Paper::new(false));
        assert_eq!(none, "No nodes have this role.\n");
    }

    #[test]
    fn preview_is_printed_line_by_line() {
        let nothing = json!({"refused": [], "lines": []});
        assert_eq!(foreseen(&nothing), "The proposal changes nothing.\n");
        let some = json!({"refused": ["there is no role x"], "lines": ["binds app to n1"]});
        assert_eq!(
            foreseen(&some),
            "Effect of the proposal:\n  binds app to n1\nRejected:\n  there is no role x\n"
        );
    }

    #[test]
    fn review_text_has_missing_permissions_with_reasons() {
        let value = json!({"review": 7, "title": "A proxy", "deployment": "web", "authors": ["ada"], "state": "waiting", "proposal": 3,
            "version": 1, "parent": 2, "summary": ["binds proxy to n1"], "gate": {"approvals": 0, "needed": 1, "can_approve": ["bo"]},
            "may_judge": {"Err": "you wrote part of this change"}, "may_commit": {"Ok": null}, "verdicts": [], "risks": []});
        let text = review_text(&value, Paper::new(false));
        for line in [
            "A proxy",
            "  binds proxy to n1",
            "0 of 1 approval",
            "can approve: bo",
            "you can't give a verdict: you wrote part",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("you can't commit"), "{text}");
    }

    fn moved(after: Option<i64>) -> Value {
        json!({"before": 5, "after": after, "blueprint": 4, "moved": ["web (blueprint 4)"], "dropped": ["bo (approved)"],
            "same_effect": false, "shift": {"before": Difference::default(), "after": Difference::default()}})
    }

    #[test]
    fn sent_back_review_and_proposal_give_the_reason() {
        let mut replan = moved(None);
        replan["refused"] = json!([{"at": "web", "detail": "It changed since."}]);
        let text =
            review_text(&json!({"state": "sent_back", "replaced_by": replan}), Paper::new(false));
        let lines = "\nSent back to its authors\n  Changed since: web (blueprint 4).\n  web: It changed since.\n";
        assert!(text.contains("state: sent back (") && text.contains(lines), "{text}");
        let text = draft(&json!({"sent_back": replan}), Paper::new(false));
        let lines = "sent back from review 5: its base changed\n  Changed since: web (blueprint \
            4).\n  web: It changed since.\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn resubmitted_review_shows_its_shift() {
        let mut came = moved(Some(6));
        let lines = |came: &Value| review_text(&json!({"replaces": came}), Paper::new(false));
        let text = lines(&came);
        assert!(
            text.contains("  Planned again from review 5.\n  Changed since: web (blueprint 4).\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "  Verdicts that do not count here: bo (approved).\n  The same values change,"
            ),
            "{text}"
        );
        let policy = |approvals: u32| Policy { approvals, ..Policy::default() };
        let side = |old, new| Difference {
            policy: Some(Sides { old: policy(old), new: policy(new) }),
            ..Difference::default()
        };
        came["shift"] = json!({"before": side(1, 2), "after": side(3, 2)});
        let text = lines(&came);
        let (was, is) = text.split_once("  Now:\n").expect("both sides");
        assert!(was.contains("  Before:\n    ") && is.starts_with("    "), "{text}");
        assert_ne!(was.lines().last(), is.lines().next(), "{text}");
    }

    #[test]
    fn findings_are_one_line_each() {
        let found = json!({"check": "reserved", "level": "warning", "at": "app on n1", "what": "it has no data",
            "remedy": "Set some."});
        let text = review_text(&json!({"checks": [found]}), Paper::new(false));
        assert!(text.contains("Lint\n  warning: app on n1: it has no data. Set some.\n"), "{text}");
        let text = draft(
            &json!({"refused": [{"edit": 2, "code": "already_bound", "reason": "Role app is \
                                                                                already bound to \
                                                                                node n1"}]}),
            Paper::new(false),
        );
        assert!(
            text.ends_with("rejected: edit 2: Role app is already bound to node n1\n"),
            "{text}"
        );
    }

    #[test]
    fn only_http_methods_of_the_api_are_accepted() {
        assert_eq!(method("get"), Ok(Method::GET));
        assert!(method("TRACE").is_err());
    }
}
