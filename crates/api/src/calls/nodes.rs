//! Calls for nodes: records, connections and node tokens.

use engine::ids::NodeId;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::shell::encoded;
use super::{Call, Method};
use crate::nodes::{NodeChange, NodeRequest};

const NODES_PATH: &str = "/nodes";

/// Fields of the form for a new node. Empty fields are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewNode {
    pub fqdn: String,
    /// MAC addresses, separated by spaces.
    pub macs: String,
    pub serial: String,
    /// The folder that a local node uses as its root file system.
    pub root: String,
    /// SSH addresses, separated by spaces. Empty: the node is a local folder.
    pub addresses: String,
    pub port: String,
    pub user: String,
    /// Name of the secret that contains the private key.
    pub key: String,
    /// The only host key that is accepted.
    pub host_key: String,
}

/// Adds a node, for clients that have typed fields instead of a form.
pub fn create_node(request: &NodeRequest) -> Call {
    Call::post(NODES_PATH).json(json!(request))
}

/// Adds a node.
pub fn add_node(new: &NewNode) -> Call {
    let mut body = Map::new();
    put(&mut body, "fqdn", &new.fqdn);
    set_list(&mut body, "macs", &new.macs);
    put(&mut body, "serial", &new.serial);
    put(&mut body, "root", &new.root);
    if !new.addresses.trim().is_empty() {
        let mut ssh = Map::new();
        set_list(&mut ssh, "addresses", &new.addresses);
        ssh.extend(
            new.port.trim().parse::<u16>().ok().map(|port| ("port".to_owned(), json!(port))),
        );
        put(&mut ssh, "user", &new.user);
        // The server requires `key` and `host_key` in an SSH connection.
        ssh.insert("key".into(), new.key.trim().into());
        ssh.insert("host_key".into(), new.host_key.trim().into());
        body.insert("ssh".into(), ssh.into());
    }
    let has_ssh = body.contains_key("ssh");
    let ssh = if has_ssh { new.clone() } else { NewNode::default() };
    let several = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let call = Call::post(NODES_PATH).json(body.into()).command(["node", "add"]);
    let call = match new.fqdn.trim() {
        "" => call,
        fqdn => call.argument(fqdn),
    };
    call.options("mac", several(&new.macs))
        .option_if_set("serial", new.serial.trim())
        .option_if_set("root", new.root.trim())
        .options("ssh", several(&ssh.addresses))
        .option_if_set("port", ssh.port.trim())
        .option_if_set("user", ssh.user.trim())
        .option_if_set("key", ssh.key.trim())
        .option_if_set("host-key", ssh.host_key.trim())
}

/// Adds the nodes of a text with one node per line.
pub fn add_nodes(text: &str) -> Call {
    let call = Call::post("/nodes/bulk")
        .json(json!({ "text": text }))
        .command(["node", "add"])
        .option("file", "-");
    Call { input: Some(text.to_owned()), ..call }
}

fn put(body: &mut Map<String, Value>, name: &str, value: &str) {
    let value = value.trim();
    if !value.is_empty() {
        body.insert(name.into(), value.into());
    }
}

fn set_list(body: &mut Map<String, Value>, name: &str, values: &str) {
    let values: Vec<&str> = values.split_whitespace().collect();
    if !values.is_empty() {
        body.insert(name.into(), values.into());
    }
}

pub fn show_node(fqdn: &str) -> Call {
    Call::get(format!("/nodes/{}", encoded(fqdn))).command(["node", "show", fqdn])
}

/// Changes a node's record. The server requires a version.
pub fn patch_node(node: NodeId, change: Map<String, Value>) -> Call {
    Call::new(Method::Patch, format!("/nodes/{node}")).json(change.into())
}

/// Changes a node's record at this version. Fields that are not in `change` keep their values.
pub fn change_node(node: NodeId, version: i32, change: Map<String, Value>) -> Call {
    let words = edited(&change);
    let call = patch_node(node, change).on(version);
    let Some(words) = words else { return call };
    let call = call.command(["node", "edit"]).argument(node.to_string());
    words.into_iter().fold(call, |call, (name, value)| call.option(&name, &value)).version(version)
}

/// The command that proposes a change of a node in a blueprint. Hints come from a file, because no
/// option can contain them.
pub fn propose_change(fqdn: &str, change: &NodeChange) -> String {
    let connection =
        change.connection.as_ref().and_then(|connection| serde_json::to_value(connection).ok());
    let options =
        connection.as_ref().and_then(Value::as_object).and_then(edited).unwrap_or_default();
    let call = Call::get("").command(["node", "edit", fqdn]);
    let call = options.into_iter().fold(call, |call, (name, value)| call.option(&name, &value));
    let call = if change.hints.is_some() { call.option("hints", "FILE") } else { call };
    call.switch("propose", true).cli()
}

/// The change as options. `None` if an option can't express a part of it.
fn edited(change: &Map<String, Value>) -> Option<Vec<(String, String)>> {
    let mut options = Vec::new();
    for (name, value) in change {
        match (name.as_str(), value) {
            ("connection", Value::Object(connection)) => options.extend(edited(connection)?),
            ("macs" | "addresses", Value::Array(all)) if !all.is_empty() => {
                let option = if name == "macs" { "mac" } else { "ssh" };
                options.extend(
                    all.iter()
                        .filter_map(Value::as_str)
                        .map(|entry| (option.to_owned(), entry.to_owned())),
                );
            }
            ("hints", _) | (_, Value::Array(_) | Value::Object(_) | Value::Null) => return None,
            (_, Value::String(text)) => options.push((name.replace('_', "-"), text.clone())),
            (_, other) => options.push((name.replace('_', "-"), other.to_string())),
        }
    }
    Some(options)
}

/// Puts a node in maintenance at this version, or ends the maintenance.
pub fn set_maintenance(node: NodeId, version: i32, maintenance: bool, reason: &str) -> Call {
    switch_maintenance(node, maintenance, reason).on(version).version(version)
}

/// Puts a node in maintenance at any version, or ends the maintenance.
pub fn switch_maintenance(node: NodeId, maintenance: bool, reason: &str) -> Call {
    let verb = if maintenance { "start-maintenance" } else { "end-maintenance" };
    Call::post(format!("/nodes/{node}/{verb}"))
        .json(json!({ "reason": reason }))
        .command(["node", verb])
        .argument(node.to_string())
        .option("reason", reason)
}

/// Removes a node that is in no blueprint.
pub fn delete_node(node: NodeId) -> Call {
    Call::new(Method::Delete, format!("/nodes/{node}"))
        .command(["node", "remove"])
        .argument(node.to_string())
}

/// Creates a token for the node's own reports.
pub fn create_node_token(node: NodeId, name: &str, days: u32) -> Call {
    Call::post(format!("/nodes/{node}/tokens"))
        .json(json!({ "name": name, "days": days }))
        .session_only()
        .command(["node", "token", "create"])
        .argument(node.to_string())
        .option("name", name)
        .option("days", &days.to_string())
}

pub fn revoke_node_token(node: NodeId, token: Uuid) -> Call {
    Call::new(Method::Delete, format!("/nodes/{node}/tokens/{token}"))
        .command(["node", "token", "revoke"])
        .argument(node.to_string())
        .argument(token.to_string())
}
