//! Commands for nodes, noderoles, runs, workers, roles and barclamps.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use api::catalog::{RoleGraph, RoleTie, RoleView};
use api::nodes::NodeChange;
use clap::{Args, Subcommand};
use engine::catalog::{Role as CatalogRole, Script};
use engine::ids::{NodeId, RunId};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use crate::address::{Query, part};
use crate::apply::{json_of, text_of};
use crate::args::{Between, ExpectedVersion, ReasonArgs};
use crate::exit::{Failure, Outcome};
use crate::lists::{self, Client, ListOptions, WatchOption};
use crate::output::{Paper, Table, moment, note, outline, plain, said, sanitize_lines};
use crate::server::{RequestOptions, taken};
use crate::{names, pages};

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// List nodes
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// State of the node
        #[arg(long, value_parser = ["alive", "dead", "unavailable", "record"])]
        state: Option<String>,
        /// Name of the deployment that the node belongs to
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show a node
    Show {
        /// The node: full name, unique first label, or id
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
        /// The node: full name, unique first label, or id
        node: String,
    },
    /// Put a node in maintenance: no steps start on it
    Out {
        /// The node: full name, unique first label, or id
        node: String,
        #[command(flatten)]
        because: ReasonArgs,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// End the maintenance of a node
    In {
        /// The node: full name, unique first label, or id
        node: String,
        #[command(flatten)]
        because: ReasonArgs,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Remove a node that is in no blueprint
    Remove {
        /// The node: full name, unique first label, or id
        node: String,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// List health checks of a node, newest first
    HealthChecks {
        /// The node: full name, unique first label, or id
        node: String,
        /// Only successful (true) or only failed (false) health checks
        #[arg(long, value_name = "BOOL", value_parser = ["true", "false"])]
        reached: Option<String>,
        /// Part of an address or a message
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// List noderoles of a node, in execution order
    Noderoles {
        /// The node: full name, unique first label, or id
        node: String,
        /// State of the step
        #[arg(long, value_parser = ["blocked", "todo", "transition", "active", "error"])]
        state: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "NAME")]
        role: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// List stored results of a node, newest first
    Results {
        /// The node: full name, unique first label, or id
        node: String,
        /// Outcome of the run
        #[arg(long, value_parser = ["succeeded", "failed", "cancelled", "late"])]
        outcome: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "NAME")]
        role: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Manage the tokens that the node uses for its reports
    #[command(subcommand)]
    Token(NodeToken),
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeToken {
    /// List tokens of a node, valid ones first, at most 50
    List {
        /// The node: full name, unique first label, or id
        node: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Create a token, which is shown only once
    Make {
        /// The node: full name, unique first label, or id
        node: String,
        /// Name that says what the token is for
        #[arg(long, value_name = "TEXT")]
        name: String,
        /// Lifetime in days
        #[arg(long, default_value_t = api::limits::DEFAULT_TOKEN_DAYS)]
        days: u32,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Revoke a token
    Revoke {
        /// The node: full name, unique first label, or id
        node: String,
        /// Id of the token, from the list of the node's tokens
        token: uuid::Uuid,
        #[command(flatten)]
        on: ExpectedVersion,
    },
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
    /// The node: full name, unique first label, or id
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
    fn change(&self) -> Outcome<Value> {
        let connection = told([
            ("root", json!(self.root)),
            ("addresses", json!(self.addresses)),
            ("port", json!(self.port)),
            ("user", json!(self.user)),
            ("key", json!(self.key)),
            ("key_version", json!(self.key_version)),
            ("host_key", json!(self.host_key)),
        ]);
        let hints = self.hints.as_deref().map(json_of).transpose()?;
        let change = told([
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
        Ok(Value::Object(change))
    }

    /// The change as edits of the node's proposal.
    fn edits(&self, node: NodeId) -> Outcome<Vec<engine::plan::Edit>> {
        let change: NodeChange = serde_json::from_value(self.change()?)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(change.edits(node))
    }
}

/// The fields without null values.
fn told<const N: usize>(words: [(&str, Value); N]) -> Map<String, Value> {
    words
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(word, value)| (word.to_owned(), value))
        .collect()
}

pub(crate) fn node(client: &Client, command: &Node) -> Outcome {
    let Client { server, output } = client;
    // The server knows full names and ids only, so short names are resolved here.
    let place =
        |node: &str| Ok::<_, Failure>(format!("/nodes/{}", part(&names::node(server, node)?.fqdn)));
    let available =
        |node: &str, available: bool, because: &ReasonArgs, on: ExpectedVersion, told: &str| {
            let body = json!({"available": available, "reason": because.reason});
            let with = RequestOptions { body: Some(body), if_match: on.tag(), accept: None };
            let response = server
                .ask(&Method::PUT, &format!("{}/availability", place(node)?), &with)?
                .read()?;
            output.either(&response, &format!("Node {node} {told}."))
        };
    match command {
        Node::List { filter, state, deployment, much } => {
            let query = Query::default()
                .with("filter", filter)
                .with("state", state)
                .with("deployment", deployment);
            client.list(&lists::nodes(), &query, much)
        }
        Node::Show { node, again } => {
            let place = place(node)?;
            client.show(*again, || server.get(&place), pages::node)
        }
        Node::Add(Add { file: Some(file), .. }) => {
            let response = server.post("/nodes/many", json!({"text": text_of(file)?}))?;
            output.either(&response, &added(&response).join("\n"))
        }
        Node::Add(add) => {
            let ssh = (!add.addresses.is_empty()).then(|| {
                json!({"addresses": add.addresses, "port": add.port, "user": add.user, "key": add.key, "key_version": add.key_version,
                    "host_key": add.host_key})
            });
            let body = json!({"fqdn": add.fqdn, "macs": add.macs, "serial": add.serial, "domain": add.domain, "root": add.root, "ssh": ssh});
            let response = server.post("/nodes", body)?;
            output.either(&response, outline(&response).trim_end())
        }
        Node::Edit(edit) if edit.propose => {
            let node = names::node(server, &edit.node)?;
            let edits = edit.edits(node.id)?;
            let proposal = taken(
                &mut server.post(&format!("/nodes/{}/proposals", node.id), json!({}))?,
                "proposal",
            );
            let place = format!("/proposals/{}", said(&proposal));
            let version = taken(&mut server.get(&place)?, "version");
            let mut response = server
                .post(&format!("{place}/edits"), json!({"version": version, "edits": edits}))?;
            response["proposal"] = proposal.clone();
            let told = format!(
                "The change is in proposal {}. Submit it: gantry proposal submit {0} --title TEXT",
                said(&proposal)
            );
            output.either(&response, &told)
        }
        Node::Edit(edit) => {
            let (place, change) = (place(&edit.node)?, edit.change()?);
            let on = match edit.on.tag() {
                None => server.ask(&Method::GET, &place, &RequestOptions::default())?.etag,
                said => said,
            };
            let with = RequestOptions { body: Some(change), if_match: on, accept: None };
            let response: Value = server.ask(&Method::PATCH, &place, &with)?.read()?;
            output.either(
                &response,
                &format!("Node {} is at version {}.", edit.node, said(&response["version"])),
            )
        }
        Node::Propose { node } => {
            let response = server.post(&format!("{}/proposals", place(node)?), json!({}))?;
            output.either(
                &response,
                &format!("Proposal {} is open on {node}.", said(&response["proposal"])),
            )
        }
        Node::Out { node, because, on } => {
            available(node, false, because, *on, "is in maintenance")
        }
        Node::In { node, because, on } => available(
            node,
            true,
            because,
            *on,
            "is no longer in \
            maintenance",
        ),
        Node::Remove { node, on } => {
            let with = RequestOptions { if_match: on.tag(), ..RequestOptions::default() };
            let response = server.ask(&Method::DELETE, &place(node)?, &with)?.read()?;
            output.either(&response, &format!("The record of {node} is deleted."))
        }
        Node::HealthChecks { node, reached, text, much } => {
            let query = Query::default().with("reached", reached).with("text", text);
            client.list(&lists::looks(&names::node(server, node)?.fqdn), &query, much)
        }
        Node::Noderoles { node, state, role, much } => {
            let query = Query::default().with("state", state).with("role", role);
            client.list(&lists::noderoles(&names::node(server, node)?.fqdn), &query, much)
        }
        Node::Results { node, outcome, role, much } => {
            let query = Query::default().with("outcome", outcome).with("role", role);
            client.list(&lists::results(&names::node(server, node)?.fqdn), &query, much)
        }
        Node::Token(command) => node_token(client, command),
    }
}

/// The result of adding the nodes of a file: their number and names.
fn added(response: &Value) -> Vec<String> {
    let nodes = response["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let told = match nodes.len() {
        1 => "Added 1 node:".to_owned(),
        count => format!("Added {count} nodes:"),
    };
    let names = nodes.iter().map(|node| format!("  {}", plain(&said(&node["fqdn"]))));
    std::iter::once(told).chain(names).collect()
}

fn node_token(client: &Client, command: &NodeToken) -> Outcome {
    let Client { server, output } = client;
    let place =
        |node: &str| Ok::<_, Failure>(format!("/nodes/{}", part(&names::node(server, node)?.fqdn)));
    match command {
        NodeToken::List { node, again } => {
            let place = place(node)?;
            client.show(*again, || Ok(taken(&mut server.get(&place)?, "tokens")), node_tokens)
        }
        NodeToken::Make { node, name, days, on } => {
            let with = RequestOptions {
                body: Some(json!({"name": name, "days": days})),
                if_match: on.tag(),
                accept: None,
            };
            let response: Value =
                server.ask(&Method::POST, &format!("{}/tokens", place(node)?), &with)?.read()?;
            print_new_token(client, &response)
        }
        NodeToken::Revoke { node, token, on } => {
            let with = RequestOptions { if_match: on.tag(), ..RequestOptions::default() };
            let response = server
                .ask(&Method::DELETE, &format!("{}/tokens/{token}", place(node)?), &with)?
                .read()?;
            output.either(&response, &format!("Token {token} is revoked."))
        }
    }
}

fn node_tokens(tokens: &Value, output: Paper) -> String {
    let tokens = tokens.as_array().map(Vec::as_slice).unwrap_or_default();
    if tokens.is_empty() {
        return "No tokens yet. Create one with `gantry node token make`.\n".to_owned();
    }
    let mut table = Table::new(["ID", "NAME", "VALID", "EXPIRES", "LAST USED", "CREATED BY"]);
    for token in tokens {
        let word = |word: &str| said(&token[word]);
        table.row([
            word("id"),
            word("name"),
            word("valid"),
            moment(&token["expires"]),
            moment(&token["used"]),
            word("by"),
        ]);
    }
    table.text(output)
}

/// Prints a new token: the secret to standard output, notes to standard error.
pub(crate) fn print_new_token(client: &Client, response: &Value) -> Outcome {
    client.output.either(response, &said(&response["token"]))?;
    if !client.output.json {
        note(&format!(
            "The token is shown only once and is valid until {}. Its id is {}.",
            moment(&response["expires"]),
            said(&response["id"])
        ));
    }
    Ok(())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Noderole {
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
        /// Show the noderole's own values and those that others see of it instead
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

#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// Part of the path, the value or the source
    #[arg(long, value_name = "TEXT")]
    find: Option<String>,
}

pub(crate) fn noderole(client: &Client, command: &Noderole) -> Outcome {
    let Client { server, output } = client;
    match command {
        Noderole::Show { noderole, again } => {
            let id = names::noderole(server, noderole)?;
            client.show(*again, || server.get(&format!("/noderoles/{id}")), pages::noderole)
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

/// Reads all values, page by page.
fn data(client: &Client, path: &str, wanted: &ValueArgs, own: bool) -> Outcome {
    let Client { server, output } = client;
    let mut query = Query::default().with("find", &wanted.find).with("own", own);
    let mut document = server.get(&query.behind(path))?;
    while let Some(page) = document.get_mut("page").and_then(Value::as_object_mut) {
        let Some(next) = page.get("next").and_then(Value::as_str) else { break };
        query = query.with("after", next);
        let mut more = taken(&mut server.get(&query.behind(path))?, "page");
        if let (Some(Value::Array(all)), Value::Array(values)) =
            (page.get_mut("values"), taken(&mut more, "values"))
        {
            all.extend(values);
        }
        page.insert("next".into(), taken(&mut more, "next"));
    }
    if output.json {
        return output.json(&document);
    }
    let mut table = Table::new(["PATH", "VALUE", "SOURCE"]);
    for value in document["page"]["values"].as_array().map(Vec::as_slice).unwrap_or_default() {
        table.row([said(&value["path"]), said(&value["value"]), said(&value["source"])]);
    }
    output.line(&plain(&said(&document["name"])))?;
    output.write(&table.text(*output))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Run {
    /// List runs, newest first
    List {
        /// State of the run
        #[arg(long, value_parser = ["queued", "running", "succeeded", "failed", "lost", "cancelled", "unstarted"])]
        state: Option<String>,
        /// Name of the deployment that the noderole is bound in
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// The node
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Name of the role
        #[arg(long, value_name = "ROLE")]
        role: Option<String>,
        /// Name or id of the worker that executes or executed the run
        #[arg(long, value_name = "WORKER")]
        worker: Option<String>,
        #[command(flatten)]
        between: Between,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show a run
    Show {
        /// Number of the run
        id: RunId,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Show the input of a run, with the sources of its values
    Data {
        /// Number of the run
        id: RunId,
        #[command(flatten)]
        values: ValueArgs,
    },
    /// Cancel a run
    Cancel {
        /// Number of the run
        id: RunId,
    },
}

pub(crate) fn run(client: &Client, command: &Run) -> Outcome {
    let Client { server, output } = client;
    match command {
        Run::List { state, deployment, node, role, worker, between, much } => {
            let node = node
                .as_deref()
                .map(|node| names::node(server, node))
                .transpose()?
                .map(|node| node.fqdn);
            let query = Query::default()
                .with("state", state)
                .with("deployment", deployment)
                .with("node", &node)
                .with("role", role)
                .with("worker", worker);
            client.list(&lists::runs(), &between.words(query), much)
        }
        Run::Show { id, again } => {
            client.show(*again, || server.get(&format!("/runs/{id}")), pages::run)
        }
        Run::Data { id, values } => data(client, &format!("/runs/{id}/data"), values, false),
        Run::Cancel { id } => {
            let response = server.post(&format!("/runs/{id}/cancel"), json!({}))?;
            output.either(&response, &format!("Run {id} will be canceled."))
        }
    }
}

/// Workers, which execute runs.
#[derive(Debug, Args)]
pub(crate) struct Workers {
    /// Show only this worker, by name or id
    #[arg(value_name = "WORKER", conflicts_with_all = ["alive", "phase", "name", "limit", "all", "sort"])]
    worker: Option<String>,
    /// Only workers that are alive (true) or only those that are not (false)
    #[arg(long, value_parser = ["true", "false"])]
    alive: Option<String>,
    /// Only workers in this phase
    #[arg(long, value_parser = ["none", "welcomed", "integrated", "finalized", "confirmed", "nack"])]
    phase: Option<String>,
    /// Only workers with this text in the name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[command(flatten)]
    much: ListOptions,
}

pub(crate) fn workers(client: &Client, wanted: &Workers) -> Outcome {
    if let Some(worker) = &wanted.worker {
        let place = format!("/workers/{}", part(&names::worker(&client.server, worker)?));
        return client.show(wanted.much.again, || client.server.get(&place), pages::worker);
    }
    let query = Query::default()
        .with("alive", &wanted.alive)
        .with("phase", &wanted.phase)
        .with("name", &wanted.name);
    client.list(&lists::workers(), &query, &wanted.much)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// List roles of the catalog, in the newest version of their barclamp
    List {
        /// Part of the name or the description
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// Name of the barclamp
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Show a role: its requirements, the attributes it reads, its schema and its deployments
    Show {
        /// Name of the role
        role: String,
        /// Name of the barclamp, if several have a role of that name
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Print a script of a role in the newest version of its barclamp, or any script by hash
    Script {
        /// Name of the role
        #[arg(required_unless_present = "hash")]
        role: Option<String>,
        /// Name of the script, as in gantry role show; optional if the role has only one
        script: Option<String>,
        /// Name of the barclamp, if several have a role of that name
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        /// Content hash of a script, in any version
        #[arg(long, value_name = "HASH", conflicts_with_all = ["role", "script", "barclamp"])]
        hash: Option<String>,
    },
    /// Show dependencies between roles, with the reasons
    Graph {
        /// The roles of this barclamp and their direct neighbors
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        /// This role with its dependencies and its dependents
        #[arg(long, value_name = "NAME", conflicts_with = "barclamp")]
        role: Option<String>,
        #[command(flatten)]
        again: WatchOption,
    },
}

pub(crate) fn role(client: &Client, command: &Role) -> Outcome {
    match command {
        Role::List { filter, barclamp, much } => client.list(
            &lists::roles(),
            &Query::default().with("filter", filter).with("barclamp", barclamp),
            much,
        ),
        Role::Show { role, barclamp, again } => {
            let place = Query::default()
                .with("barclamp", barclamp)
                .behind(&format!("/roles/{}", part(role)));
            client.show(*again, || client.server.get(&place), pages::role)
        }
        Role::Script { role, script, barclamp, hash } => {
            let hash = match (hash, role) {
                (Some(hash), _) => hash.clone(),
                (None, role) => {
                    let role = role.as_deref().unwrap_or_default();
                    let place = Query::default()
                        .with("barclamp", barclamp)
                        .behind(&format!("/roles/{}", part(role)));
                    let told: RoleView = client.server.read(&place)?;
                    find_script(&told.role, script.as_deref())?.hash.to_string()
                }
            };
            print_script(client, &hash)
        }
        Role::Graph { barclamp, role, again } => {
            let place = Query::default()
                .with("barclamp", barclamp)
                .with("role", role)
                .behind("/catalog/graph");
            client.show(
                *again,
                || client.server.get(&place),
                |response, _| role_graph_text(response),
            )
        }
    }
}

/// The script of a role with this name. Without a name, the role's only script.
fn find_script<'r>(role: &'r CatalogRole, wanted: Option<&str>) -> Outcome<&'r Script> {
    let known = || role.scripts.iter().map(|script| script.name.as_str());
    let all = || known().collect::<Vec<_>>().join(", ");
    match (wanted, role.scripts.as_slice()) {
        (_, []) => Err(Failure::Nothing(format!("Role {} has no scripts.", role.name))),
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::Usage(format!(
            "Role {} has several scripts. Name one of them: {}.",
            role.name,
            all()
        ))),
        (Some(name), scripts) => {
            scripts.iter().find(|script| script.name == name).ok_or_else(|| {
                let near = names::near(name, known());
                Failure::Nothing(format!(
                    "Role {} has no script {name}{near}.\nIts scripts: {}.",
                    role.name,
                    all()
                ))
            })
        }
    }
}

/// Prints a script unchanged, except for control sequences.
fn print_script(client: &Client, hash: &str) -> Outcome {
    let text = client.server.text(&format!("/scripts/{}", part(hash)))?;
    match (client.output.json, client.output.is_terminal()) {
        (true, _) => client.output.json(&json!({"hash": hash, "text": text})),
        (false, true) => client.output.write(&sanitize_lines(&text)),
        (false, false) => client.output.raw(&text),
    }
}

/// One line per role, with the roles that run before it.
fn role_graph_text(response: &Value) -> String {
    let Ok(graph) = RoleGraph::deserialize(response) else { return outline(response) };
    if graph.roles.is_empty() {
        return match graph.count {
            0 => "No roles found.\n".to_owned(),
            count => format!(
                "Too many roles ({count}) to list. Select some with --barclamp or --role.\n"
            ),
        };
    }
    let name =
        |index: usize| graph.roles.get(index).map(|role| role.name.as_str()).unwrap_or_default();
    let before = |index: usize| {
        let edges = graph.edges.iter().filter(|edge| edge.to == index);
        let words: Vec<String> = edges
            .map(|edge| match edge.tie {
                RoleTie::Requires => name(edge.from).to_owned(),
                RoleTie::Reads => format!("{} (reads its attributes)", name(edge.from)),
                RoleTie::Preceeds => format!("{} (declares the order)", name(edge.from)),
            })
            .collect();
        if words.is_empty() { String::new() } else { format!(" after {}", words.join(", ")) }
    };
    (0..graph.roles.len()).map(|index| format!("{}{}\n", name(index), before(index))).collect()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Barclamp {
    /// List imported barclamps, newest version first
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// List imports with their barclamps and findings
    Imports {
        /// Name of a barclamp in the import
        #[arg(long, value_name = "NAME")]
        barclamp: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Import barclamps from files and folders
    Import {
        /// Barclamp files, or folders that contain them
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

pub(crate) fn barclamp(client: &Client, command: &Barclamp) -> Outcome {
    match command {
        Barclamp::List { filter, much } => {
            client.list(&lists::barclamps(), &Query::default().with("filter", filter), much)
        }
        Barclamp::Imports { barclamp, much } => {
            client.list(&lists::imports(), &Query::default().with("barclamp", barclamp), much)
        }
        Barclamp::Import { paths } => {
            let mut gathered = ImportFiles::default();
            for path in paths {
                let base = if path.is_dir() {
                    path.as_path()
                } else {
                    path.parent().unwrap_or(Path::new(""))
                };
                gathered.add(path, base)?;
            }
            if gathered.files.is_empty() {
                return Err(Failure::Nothing(
                    "No files found. Name barclamp files, or folders that \
                    contain them."
                        .into(),
                ));
            }
            let response = client.server.post("/barclamps", json!({"files": gathered.files}))?;
            client.output.either(&response, &imported(&response).join("\n"))
        }
    }
}

/// The result of an import, one line per barclamp.
fn imported(response: &Value) -> Vec<String> {
    let list = |word: &str| response[word].as_array().map(Vec::as_slice).unwrap_or_default();
    let version = |barclamp: &Value| {
        let status =
            if barclamp[3] == true { "is new" } else { "exists already, with the same content" };
        let hash: String = said(&barclamp[2]).chars().take(8).collect();
        format!(
            "Barclamp {} {} ({hash}) {status}.",
            plain(&said(&barclamp[0])),
            plain(&said(&barclamp[1]))
        )
    };
    let notes = list("disappeared").iter().chain(list("findings")).map(|line| plain(&said(line)));
    list("barclamps").iter().map(version).chain(notes).collect()
}

/// Limits of an import: files, and total bytes. The server's limits are lower.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: u64 = 16 << 20;

/// Files to import, by path relative to their folder.
#[derive(Debug, Default)]
struct ImportFiles {
    files: BTreeMap<String, String>,
    bytes: u64,
    /// Real paths of the folders on the path to the current one, to detect links that form a cycle.
    above: Vec<PathBuf>,
}

impl ImportFiles {
    fn add(&mut self, path: &Path, base: &Path) -> Outcome {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.') && path != base);
        match () {
            () if hidden => Ok(()),
            () if path.is_dir() => self.folder(path, base),
            () => self.file(path, base),
        }
    }

    fn folder(&mut self, path: &Path, base: &Path) -> Outcome {
        let unread = |error| unread(path, &error);
        let canonical = path.canonicalize().map_err(unread)?;
        if self.above.contains(&canonical) {
            return Err(wrong(
                path,
                "the folder is a link to a folder around it. Name folders without such links.",
            ));
        }
        self.above.push(canonical);
        for entry in std::fs::read_dir(path).map_err(unread)? {
            self.add(&entry.map_err(unread)?.path(), base)?;
        }
        self.above.pop();
        Ok(())
    }

    fn file(&mut self, path: &Path, base: &Path) -> Outcome {
        let mut bytes = Vec::new();
        let remaining = MAX_BYTES.saturating_sub(self.bytes);
        // Read one byte more than the limit, regardless of the file's size.
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(remaining + 1).read_to_end(&mut bytes));
        let read = read.map_err(|error| unread(path, &error))?;
        self.bytes += u64::try_from(read).unwrap_or(u64::MAX);
        if self.bytes > MAX_BYTES || self.files.len() >= MAX_FILES {
            let much = format!(
                "the import has more than {MAX_FILES} files or {MAX_BYTES} bytes. Name the \
                 barclamp's own folder."
            );
            return Err(wrong(path, &much));
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| {
            wrong(
                path,
                "the file is not UTF-8 text. Barclamps and their scripts \
                must be UTF-8.",
            )
        })?;
        let name = path.strip_prefix(base).unwrap_or(path).to_string_lossy().replace('\\', "/");
        match self.files.insert(name.clone(), text) {
            None => Ok(()),
            Some(_) => Err(wrong(
                path,
                &format!("{name} exists twice. Import the folders one after the other."),
            )),
        }
    }
}

fn wrong(path: &Path, what: &str) -> Failure {
    Failure::Usage(format!("Cannot import {}: {what}", path.display()))
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    wrong(path, &format!("{error}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_files_have_relative_paths() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("demo/app")).unwrap();
        std::fs::create_dir_all(folder.path().join("demo/.git")).unwrap();
        for (name, text) in [("demo/demo.yml", "a"), ("demo/app/10.sh", "b"), ("demo/.git/x", "c")]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let base = folder.path().join("demo");
        let mut gathered = ImportFiles::default();
        gathered.add(&base, &base).unwrap();
        assert_eq!(gathered.files.keys().collect::<Vec<_>>(), ["app/10.sh", "demo.yml"]);
        std::fs::write(base.join("bad"), [0xff]).unwrap();
        assert_eq!(gathered.add(&base.join("bad"), &base).unwrap_err().code(), 2);
    }

    #[test]
    fn import_rejects_link_cycles_and_large_files() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("demo");
        std::fs::create_dir_all(base.join("app")).unwrap();
        std::fs::write(base.join("demo.yml"), "a").unwrap();
        std::os::unix::fs::symlink(&base, base.join("app/again")).unwrap();
        let said = ImportFiles::default().add(&base, &base).unwrap_err().to_string();
        assert!(said.contains("app/again: the folder is a link to a folder around it"), "{said}");
        std::fs::remove_file(base.join("app/again")).unwrap();
        // A link to a sibling folder is not a cycle.
        std::fs::create_dir_all(folder.path().join("shared")).unwrap();
        std::fs::write(folder.path().join("shared/x.sh"), "x").unwrap();
        std::os::unix::fs::symlink(folder.path().join("shared"), base.join("shared")).unwrap();
        let mut gathered = ImportFiles::default();
        gathered.add(&base, &base).unwrap();
        assert_eq!(gathered.files.keys().collect::<Vec<_>>(), ["demo.yml", "shared/x.sh"]);
        // A large file is read only up to the limit.
        std::fs::File::create(base.join("huge")).unwrap().set_len(1 << 34).unwrap();
        let said = ImportFiles::default().add(&base, &base).unwrap_err().to_string();
        assert!(said.contains("huge: the import has more than"), "{said}");
    }

    #[test]
    fn import_is_printed_line_by_line() {
        let response = json!({"barclamps": [["demo", "2", "3e3390a70eb0", false]], "disappeared": [], "findings": ["demo.yml:1:1: note: x"]});
        let lines = imported(&response);
        assert_eq!(
            lines,
            [
                "Barclamp demo 2 (3e3390a7) exists already, with the same content.",
                "demo.yml:1:1: note: x"
            ]
        );
    }

    #[test]
    fn script_name_is_required_if_ambiguous() {
        let role = |scripts: &[&str]| -> CatalogRole {
            let hash = "5f".repeat(32);
            let scripts: Vec<Value> =
                scripts.iter().map(|name| json!({"name": name, "hash": hash})).collect();
            serde_json::from_value(
                json!({"name": "app", "barclamp": "demo", "jig": "script", "jig_class": "script",
                "scripts": scripts}),
            )
            .unwrap()
        };
        let found = |scripts: &[&str], wanted: Option<&str>| {
            find_script(&role(scripts), wanted)
                .map(|script| script.name.clone())
                .map_err(|failure| failure.to_string())
        };
        assert_eq!(found(&["10-a.sh"], None), Ok("10-a.sh".to_owned()));
        assert_eq!(found(&["10-a.sh", "20-b.sh"], Some("20-b.sh")), Ok("20-b.sh".to_owned()));
        let several = "Role app has several scripts. Name one of them: 10-a.sh, 20-b.sh.";
        assert_eq!(found(&["10-a.sh", "20-b.sh"], None), Err(several.to_owned()));
        let unknown = "Role app has no script 10-b.sh (did you mean 10-a.sh?).\nIts scripts: \
            10-a.sh.";
        assert_eq!(found(&["10-a.sh"], Some("10-b.sh")), Err(unknown.to_owned()));
        assert_eq!(found(&[], None), Err("Role app has no scripts.".to_owned()));
    }

    #[test]
    fn nodes_of_a_file_are_printed_by_name() {
        let node = |name: &str| json!({"node": "0", "fqdn": name});
        assert_eq!(
            added(&json!({"nodes": [node("n1.a.example")]})),
            ["Added 1 node:", "  n1.a.example"]
        );
        let two = added(&json!({"nodes": [node("n1.a.example"), node("n2.a.example")]}));
        assert_eq!(two, ["Added 2 nodes:", "  n1.a.example", "  n2.a.example"]);
    }

    #[test]
    fn node_change_has_only_given_fields() {
        assert_eq!(
            told([("a", json!(1)), ("b", Value::Null)]),
            Map::from_iter([("a".to_owned(), json!(1))])
        );
    }
}
