//! Commands for nodes.

pub(crate) mod noderoles;
mod text;
pub(crate) mod tokens;

use api::calls;
use api::nodes::{NodeChange, NodeRequest, SshRequest};
use clap::{Args, Subcommand};
use engine::ids::{DeploymentName, NodeId, ProposalId};
use engine::plan::edit;
use serde_json::{Map, Value, json};

use crate::address::Query;
use crate::args::{ExpectedVersion, ReasonArgs};
use crate::client::{Client, ListOptions, WatchOption};
use crate::exit::{Failure, Outcome};
use crate::input::{json_of, text_of};
use crate::names;
use crate::nodes::text::node_text;
use crate::nodes::tokens::{NodeToken, node_token};
use crate::output::list::{List, word};
use crate::output::outline::outline;
use crate::output::{plain, steps, value_text};
use crate::proposals::apply;
use crate::proposals::apply::ProposeArgs;
use crate::proposals::edits::Step;
use crate::proposals::newest_version;
use crate::server::{RequestOptions, Server, parse_answer};

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// List nodes
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// State of the node
        #[arg(long, value_parser = ["alive", "dead", "maintenance", "record_only"])]
        state: Option<String>,
        /// Name of the deployment that the node belongs to
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Show a node
    Show {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Add one node, or the nodes of a file
    Add(Add),
    /// Change a node's record
    Edit(Edit),
    /// Open a proposal for this node only
    Propose {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
    },
    /// Propose to move nodes to another deployment
    Move {
        /// Names of the nodes
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        /// Name of the deployment
        #[arg(long = "to", value_name = "DEPLOYMENT")]
        deployment: String,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Put a node in maintenance: no steps start on it
    StartMaintenance {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        #[command(flatten)]
        reason: ReasonArgs,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// End the maintenance of a node
    EndMaintenance {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        #[command(flatten)]
        reason: ReasonArgs,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Propose to expunge nodes whose machines no longer exist: they leave all deployments, and
    /// nothing runs on them
    Expunge {
        /// Names of the nodes
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        #[command(flatten)]
        reason: ReasonArgs,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Remove a node that is in no blueprint
    Remove {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// List health checks of a node, newest first
    HealthChecks {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        /// Only successful (true) or only failed (false) health checks
        #[arg(long, value_name = "BOOL", value_parser = ["true", "false"])]
        reached: Option<String>,
        /// Part of an address or a message
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// List noderoles of a node, in execution order
    Noderoles {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        /// State of the step
        #[arg(long, value_parser = ["blocked", "todo", "transition", "active", "error"])]
        state: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "NAME")]
        role: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// List stored results of a node, newest first
    Results {
        /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
        node: String,
        /// Outcome of the run
        #[arg(long, value_parser = ["succeeded", "failed", "canceled", "late"])]
        outcome: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "NAME")]
        role: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Manage the tokens that the node uses for its reports
    #[command(subcommand)]
    Token(NodeToken),
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Name of the node [default: derived from a MAC address or the serial number]
    #[arg(default_value = "", hide_default_value = true)]
    fqdn: String,
    /// MAC address; repeatable
    #[arg(long = "mac", value_name = "MAC")]
    macs: Vec<String>,
    /// Serial number
    #[arg(long, default_value = "", hide_default_value = true)]
    serial: String,
    /// Domain of a derived name
    #[arg(long, default_value = "", hide_default_value = true)]
    domain: String,
    /// Folder that is the node's root file system
    #[arg(long, default_value = "", hide_default_value = true)]
    root: String,
    /// SSH address of the node; repeatable
    #[arg(long = "ssh", value_name = "ADDRESS", requires_all = ["key", "host_key"])]
    addresses: Vec<String>,
    /// SSH port
    #[arg(long, default_value_t = 22)]
    port: u16,
    /// SSH user
    #[arg(long, default_value = "root")]
    user: String,
    /// Name of the secret that contains the private key
    #[arg(long)]
    key: Option<String>,
    /// Version of the secret
    #[arg(long, default_value_t = 1)]
    key_version: i64,
    /// Host key without the name, as ssh-keyscan prints it
    #[arg(long)]
    host_key: Option<String>,
    /// Add the nodes of a file, all or none; - for standard input. Each line has a node: its name,
    /// then values of these options, for example web-7.rack1.example.com root=/srv/nodes/web-7
    /// (with host_key and key_version for --host-key and --key-version)
    #[arg(short, long, value_name = "FILE", conflicts_with_all = SINGLE_NODE_OPTIONS)]
    file: Option<String>,
}

impl Add {
    fn request(&self) -> NodeRequest {
        let ssh = (!self.addresses.is_empty()).then(|| SshRequest {
            addresses: self.addresses.clone(),
            port: self.port,
            user: self.user.clone(),
            // Both are required with an address.
            key: self.key.clone().unwrap_or_default(),
            key_version: self.key_version,
            host_key: self.host_key.clone().unwrap_or_default(),
        });
        NodeRequest {
            fqdn: self.fqdn.clone(),
            macs: self.macs.clone(),
            serial: self.serial.clone(),
            domain: self.domain.clone(),
            root: self.root.clone(),
            ssh,
        }
    }
}

/// Options of a single node, which conflict with `--file`.
const SINGLE_NODE_OPTIONS: [&str; 11] = [
    "fqdn",
    "macs",
    "serial",
    "domain",
    "root",
    "addresses",
    "port",
    "user",
    "key",
    "key_version",
    "host_key",
];

#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// The node: full name, unique first label, id, or phantom:DEPLOYMENT
    node: String,
    /// Description for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// MAC addresses, replacing the current ones; repeatable
    #[arg(long = "mac", value_name = "MAC")]
    macs: Option<Vec<String>>,
    /// Serial number
    #[arg(long)]
    serial: Option<String>,
    /// File with hints for the roles' first runs, as a JSON object
    #[arg(long, value_name = "FILE")]
    hints: Option<String>,
    /// Folder that is the node's root file system
    #[arg(long)]
    root: Option<String>,
    /// SSH addresses, replacing the current ones; repeatable
    #[arg(long = "ssh", value_name = "ADDRESS")]
    addresses: Option<Vec<String>>,
    /// SSH port
    #[arg(long)]
    port: Option<u16>,
    /// SSH user
    #[arg(long)]
    user: Option<String>,
    /// Name of the secret that contains the private key
    #[arg(long)]
    key: Option<String>,
    /// Version of the secret
    #[arg(long)]
    key_version: Option<i64>,
    /// Host key without the name, as ssh-keyscan prints it
    #[arg(long)]
    host_key: Option<String>,
    /// Propose the new connection or hints of a node in a blueprint; opens a proposal on it if none
    /// is open
    #[arg(long, conflicts_with_all = ["description", "macs", "serial", "version"])]
    propose: bool,
    #[command(flatten)]
    on: ExpectedVersion,
}

impl Edit {
    fn change(&self) -> Outcome<Map<String, Value>> {
        let connection = without_nulls([
            ("root", json!(self.root)),
            ("addresses", json!(self.addresses)),
            ("port", json!(self.port)),
            ("user", json!(self.user)),
            ("key", json!(self.key)),
            ("key_version", json!(self.key_version)),
            ("host_key", json!(self.host_key)),
        ]);
        let hints = self.hints.as_deref().map(json_of).transpose()?;
        let change = without_nulls([
            ("description", json!(self.description)),
            ("macs", json!(self.macs)),
            ("serial", json!(self.serial)),
            ("hints", json!(hints)),
            (
                "connection",
                if connection.is_empty() { Value::Null } else { Value::Object(connection) },
            ),
        ]);
        if change.is_empty() {
            return Err(Failure::Usage(
                "No change was given. Use an option such as --description TEXT.".into(),
            ));
        }
        Ok(change)
    }

    /// The change as edits of the node's proposal.
    fn edits(&self, node: NodeId) -> Outcome<Vec<engine::plan::Edit>> {
        let change: NodeChange = serde_json::from_value(self.change()?.into())
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(change.edits(node))
    }
}

/// The fields without null values.
fn without_nulls<const N: usize>(words: [(&str, Value); N]) -> Map<String, Value> {
    words
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(word, value)| (word.to_owned(), value))
        .collect()
}

pub(crate) fn node(client: &Client, command: &Node) -> Outcome {
    let Client { server, output } = client;
    // The server knows full names and ids only, so short names are resolved here.
    let id = |node: &str| Ok::<_, Failure>(names::node(server, node)?.id);
    let set_maintenance =
        |node: &str, maintenance: bool, reason: &ReasonArgs, on: ExpectedVersion, view: &str| {
            let switch = calls::switch_maintenance(id(node)?, maintenance, &reason.reason);
            let response = server.call_on(&switch, on.tag())?;
            output.either(&response, &format!("Node {node} {view}."))
        };
    match command {
        Node::List { filter, state, deployment, list_options } => {
            let query = Query::default()
                .with("filter", filter)
                .with("state", state)
                .with("deployment", deployment);
            client.list(&node_list(), &query, list_options)
        }
        Node::Show { node, again } => {
            let shown = calls::show_node(&names::node(server, node)?.fqdn);
            client.show(*again, || server.show(&shown), node_text)
        }
        Node::Add(Add { file: Some(file), .. }) => {
            let response = server.call(&calls::add_nodes(&text_of(file)?))?;
            output.either(&response, &added_text(&response).join("\n"))
        }
        Node::Add(add) => {
            let response = server.call(&calls::create_node(&add.request()))?;
            output.either(&response, outline(&response).trim_end())
        }
        Node::Edit(edit) if edit.propose => {
            let node = names::node(server, &edit.node)?;
            let edits = edit.edits(node.id)?;
            let opened = server.call(&calls::propose_on_node(node.id))?;
            let proposal: ProposalId = parse_answer(&opened["proposal"], "expected a proposal")?;
            let version = newest_version(server, proposal)?;
            let mut response = server.call(&calls::edit(proposal, version, &edits))?;
            response["proposal"] = json!(proposal);
            let view = format!(
                "The change is in proposal {proposal}. Submit it: gantry proposal submit \
                 {proposal} --title TEXT"
            );
            output.either(&response, &view)
        }
        Node::Edit(edit) => {
            let (node, change) = (names::node(server, &edit.node)?, edit.change()?);
            let shown = calls::show_node(&node.fqdn);
            let on = match edit.on.tag() {
                None => server.request(&shown, RequestOptions::default())?.etag,
                message => message,
            };
            let response = server.call_on(&calls::patch_node(node.id, change), on)?;
            output.either(
                &response,
                &format!("Node {} is at version {}.", edit.node, value_text(&response["version"])),
            )
        }
        Node::Propose { node } => {
            let response = server.call(&calls::propose_on_node(id(node)?))?;
            output.either(
                &response,
                &format!("Proposal {} is open on {node}.", value_text(&response["proposal"])),
            )
        }
        Node::Move { nodes, deployment, propose } => {
            let current = apply::current(server, deployment)?;
            let to = current.board.id;
            let step = |(node, name): (NodeId, String)| Step {
                edit: edit::MoveNode { node, deployment: to }.into(),
                summary: format!("* node {name} moves to {deployment}"),
            };
            let steps: Vec<Step> = apply::named(server, nodes)?.into_iter().map(step).collect();
            apply::propose_one(client, &current, &steps, propose)
        }
        Node::StartMaintenance { node, reason, on } => {
            set_maintenance(node, true, reason, *on, "is in maintenance")
        }
        Node::EndMaintenance { node, reason, on } => set_maintenance(
            node,
            false,
            reason,
            *on,
            "is no longer in \
            maintenance",
        ),
        Node::Expunge { nodes, reason, propose } => {
            let steps: Vec<(DeploymentName, Step)> =
                nodes.iter().map(|name| expunge(server, name, reason)).collect::<Outcome<_>>()?;
            apply::propose_all(client, &apply::by_deployment(server, steps)?, propose)
        }
        Node::Remove { node, on } => {
            let response = server.call_on(&calls::delete_node(id(node)?), on.tag())?;
            output.either(&response, &format!("The record of {node} is deleted."))
        }
        Node::HealthChecks { node, reached, filter, list_options } => {
            let query = Query::default().with("reached", reached).with("filter", filter);
            client.list(&health_check_list(&names::node(server, node)?.fqdn), &query, list_options)
        }
        Node::Noderoles { node, state, role, list_options } => {
            let query = Query::default().with("state", state).with("role", role);
            client.list(&noderole_list(&names::node(server, node)?.fqdn), &query, list_options)
        }
        Node::Results { node, outcome, role, list_options } => {
            let query = Query::default().with("outcome", outcome).with("role", role);
            client.list(&result_list(&names::node(server, node)?.fqdn), &query, list_options)
        }
        Node::Token(command) => node_token(client, command),
    }
}

/// The edit that expunges a node, with the deployment of the node.
fn expunge(server: &Server, name: &str, reason: &ReasonArgs) -> Outcome<(DeploymentName, Step)> {
    let found = names::node(server, name)?;
    let edit = edit::ExpungeNode { node: found.id, reason: reason.reason.clone() }.into();
    Ok((found.deployment, Step { edit, summary: format!("- node {}", found.fqdn) }))
}

/// The result of adding the nodes of a file: their number and names.
fn added_text(response: &Value) -> Vec<String> {
    let nodes = response["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let view = match nodes.len() {
        1 => "Added 1 node:".to_owned(),
        count => format!("Added {count} nodes:"),
    };
    let names = nodes.iter().map(|node| format!("  {}", plain(&value_text(&node["fqdn"]))));
    std::iter::once(view).chain(names).collect()
}

pub(crate) fn node_list() -> List {
    List {
        path: calls::List::Nodes.path(""),
        items: "nodes",
        cursor: "after",
        columns: &[
            ("NAME", |v, _| word(v, "fqdn")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("STATE", |v, _| {
                let is = |word: &str| v[word] == Value::Bool(true);
                let state = if is("alive") { "alive" } else { "dead" };
                let out = if is("available") { "" } else { ", in maintenance" };
                format!("{state}{out}{}", if is("record_only") { ", record only" } else { "" })
            }),
            ("TRANSPORT", |v, _| word(v, "transport")),
            ("STEPS", |v, _| steps(&v["steps"])),
            ("ERROR", |v, _| word(v, "error")),
        ],
        none: "No nodes found.",
    }
}

pub(crate) fn health_check_list(node: &str) -> List {
    List {
        path: calls::List::HealthChecks.path(node),
        items: "health_checks",
        cursor: "before",
        columns: &[
            ("TIME", |v, o| o.time(&v["at"])),
            ("REACHED", |v, _| word(v, "reached")),
            ("ADDRESS", |v, _| word(v, "address")),
            ("MS", |v, _| word(v, "duration_ms")),
            ("WORKER", |v, _| word(v, "by")),
            ("ERROR", |v, _| word(v, "message")),
        ],
        none: "No health checks found.",
    }
}

pub(crate) fn noderole_list(node: &str) -> List {
    List {
        path: calls::List::Noderoles.path(node),
        items: "noderoles",
        cursor: "after",
        columns: &[
            ("ROLE", |v, _| word(v, "role")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("STATE", |v, _| word(v, "state")),
            ("SINCE", |v, o| o.time(&v["since"])),
            ("ERROR", |v, _| word(v, "error")),
            ("ID", |v, _| word(v, "id")),
        ],
        none: "No noderoles found.",
    }
}

pub(crate) fn result_list(node: &str) -> List {
    List {
        path: calls::List::Results.path(node),
        items: "results",
        cursor: "before",
        columns: &[
            ("RUN", |v, _| word(v, "run")),
            ("ROLE", |v, _| word(v, "role")),
            ("ACTION", |v, _| word(v, "action")),
            ("OUTCOME", |v, _| word(v, "outcome")),
            ("BLUEPRINT", |v, _| word(v, "blueprint")),
            ("TIME", |v, o| o.time(&v["at"])),
            ("BYTES", |v, _| word(v, "bytes")),
            ("RESULT", |v, _| word(v, "result")),
        ],
        none: "No stored results found.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_file_are_printed_by_name() {
        let node = |name: &str| json!({"node": "0", "fqdn": name});
        assert_eq!(
            added_text(&json!({"nodes": [node("n1.a.example")]})),
            ["Added 1 node:", "  n1.a.example"]
        );
        let two = added_text(&json!({"nodes": [node("n1.a.example"), node("n2.a.example")]}));
        assert_eq!(two, ["Added 2 nodes:", "  n1.a.example", "  n2.a.example"]);
    }

    #[test]
    fn node_change_has_only_given_fields() {
        assert_eq!(
            without_nulls([("a", json!(1)), ("b", Value::Null)]),
            Map::from_iter([("a".to_owned(), json!(1))])
        );
    }
}
