//! Nodes: their view and the changes that people make to them.

pub use engine::alive::TriedAddress;
use engine::ids::{DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName, RunId};
use engine::plan::{Edit, edit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::JoinPhase;
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};
use crate::runs::{RunSummary, StateCounts, StepState};
use crate::{Allowed, At};

/// A node with its state, connection, noderoles and reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeView {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub fqdn: String,
    /// Version of the record. A change names the version that it is based on.
    pub version: i32,
    /// Description for people.
    pub description: String,
    /// The deployment that the node belongs to.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// Whether the node is in no blueprint.
    pub record_only: bool,
    /// Health and maintenance.
    pub status: NodeStatus,
    /// Connection to the node.
    pub connection: NodeConnection,
    /// MAC addresses of the network interfaces.
    pub macs: Vec<String>,
    /// Serial number.
    pub serial: String,
    /// Hints for the roles' first runs.
    pub hints: Value,
    /// The person who added the node, or null for Gantry itself.
    pub added_by: Option<String>,
    /// Time when the node was added.
    pub added: At,
    /// Latest health checks, newest first. Empty for a local folder.
    pub health_checks: Vec<HealthCheckView>,
    /// Noderoles of the node, in execution order.
    pub noderoles: Vec<NodeNoderole>,
    /// Whether the node has more noderoles. Use the list of noderoles to get all.
    pub more_noderoles: bool,
    /// Latest runs, newest first.
    pub runs: Vec<RunSummary>,
    /// Facts about the node, by source.
    pub facts: Vec<NodeFacts>,
    /// Latest reports of the node, newest first.
    pub reports: Vec<ReportView>,
    /// Tokens of the node, valid ones first.
    pub tokens: Vec<NodeToken>,
    /// Whether you can change the node, its maintenance and its tokens. Otherwise the reason.
    pub may_change: Allowed,
    /// Journal position of this view.
    pub cursor: i64,
}

/// Health and maintenance of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeStatus {
    /// Whether the node is alive.
    pub alive: bool,
    /// Time of the last change of `alive`, or null if no health check ever reached the node.
    pub alive_since: Option<At>,
    /// Time of the last successful health check.
    pub last_seen: Option<At>,
    /// Number of successive health checks that contradict `alive`. A report of the node counts as
    /// all but the last check that a change needs.
    pub contradicting: u32,
    /// Number of contradicting health checks that changes `alive`.
    pub threshold: u32,
    /// The maintenance of the node, or null if steps may start on it.
    pub maintenance: Option<Maintenance>,
    /// Phase of the node's join. Runs start only on confirmed nodes.
    pub joined: JoinPhase,
    /// Time when a worker last determined the running processes of the node.
    pub joined_since: Option<At>,
    /// Boot id, which changes with every boot.
    pub boot_id: Option<String>,
    /// Boot environment that the node reported.
    pub bootenv: Option<String>,
}

/// Maintenance of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Maintenance {
    /// The person who started the maintenance.
    pub by: Option<String>,
    /// Start of the maintenance.
    pub since: Option<At>,
    /// Reason for the maintenance.
    pub reason: String,
}

/// Connection to a node. It contains no secrets: workers resolve the name of the private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeConnection {
    /// Transport of the connection.
    #[cfg_attr(feature = "schema", schemars(with = "crate::enumerations::Transport"))]
    pub transport: String,
    /// The folder that is the node's root file system.
    pub root: String,
    /// SSH settings, or null for `local`.
    pub ssh: Option<SshView>,
}

/// SSH settings of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SshView {
    /// Host names or IP addresses, tried in this order.
    pub addresses: Vec<String>,
    /// Port of all addresses.
    pub port: u16,
    /// User name.
    pub user: String,
    /// Name of the secret that contains the private key.
    pub key: String,
    /// Version of the secret.
    pub key_version: i64,
    /// The only host key that is accepted.
    pub host_key: String,
    /// Fingerprint of the host key, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
}

/// Result of a health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HealthCheckView {
    /// Time of the health check.
    pub at: At,
    /// Whether the login succeeded.
    pub reached: bool,
    /// The address that succeeded, or the only address that was tried. Empty if several addresses
    /// failed.
    pub address: String,
    /// Reason for the failure, or a problem on the node.
    pub message: String,
    /// All addresses that were tried, in order. For a reused connection, its address.
    pub tried: Vec<TriedAddress>,
    /// Duration in milliseconds.
    pub duration_ms: u32,
    /// The worker that made the health check.
    pub by: String,
}

sort! {
    HealthCheckSort, Order::descending(Self::At), {
        /// Time in microseconds since 1970: two checks can have the same millisecond.
        At "at" [Number],
    }
}

/// Filters of the list of health checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HealthChecksQuery {
    /// Only successful (`true`) or only failed (`false`) health checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// Part of an address or a message, case-insensitive. Empty matches all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Sort order. Default: newest first.
    pub sort: Order<HealthCheckSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of health checks, newest first by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HealthCheckPage {
    /// The health checks.
    pub health_checks: Vec<HealthCheckView>,
    /// Cursor of the next page (`before`), or null on the last page. Gantry stores the last 50
    /// health checks of a node.
    pub next: Option<Cursor>,
}

sort! {
    NodeNoderoleSort, Order::ascending(Self::Rank), {
        /// Execution order: by rank, then by the ids of the steps.
        Rank "order" [Number, Text],
    }
}

/// Filters of the list of a node's noderoles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NodeNoderolesQuery {
    /// State of the noderole's step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StepState>,
    /// Role name. Empty matches all roles.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Sort order. Default: execution order.
    pub sort: Order<NodeNoderoleSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A page of a node's noderoles, in execution order by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeNoderolePage {
    /// The noderoles.
    pub noderoles: Vec<NodeNoderole>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A noderole of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeNoderole {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// The deployment that it is bound in.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// State of the step.
    pub state: StepState,
    /// Time of the last change of the state.
    pub since: At,
    /// Error message, if the step is in ERROR.
    pub error: Option<String>,
}

/// Kind of the source of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FactSource {
    /// The node reported them with its token. Gantry does not verify them.
    Node,
    /// A run of a role on the node found them.
    Role,
}

/// Facts about a node from one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeFacts {
    /// Kind of the source.
    pub source: FactSource,
    /// The role that found the facts, if the source is a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// The facts, as JSON.
    pub facts: Value,
    /// Time of the facts.
    pub at: At,
    /// The run that found the facts.
    pub run: Option<RunId>,
}

/// A report of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportView {
    /// Time of the report.
    pub at: At,
    /// Kind of the report.
    #[cfg_attr(feature = "schema", schemars(with = "crate::enumerations::ReportKind"))]
    pub kind: String,
    /// Boot id, or the name of a boot environment.
    pub value: String,
    /// Name of the token that the node used.
    pub token: String,
    /// Address that the report came from.
    pub address: String,
}

/// A token for a node's own reports, without its secret value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeToken {
    /// Id of the token.
    pub id: Uuid,
    /// Name of the token.
    pub name: String,
    /// The person who created it.
    pub by: Option<String>,
    /// Time of creation.
    pub created: At,
    /// Time of expiry.
    pub expires: At,
    /// Time of the last use, rounded to the minute.
    pub used: Option<At>,
    /// Time when the token was revoked.
    pub revoked: Option<At>,
    /// Whether the token is valid.
    pub valid: bool,
}

/// A new token. Its secret value is shown only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreatedNodeToken {
    /// Id of the token.
    pub id: Uuid,
    /// The secret value.
    pub token: String,
    /// Time of expiry.
    pub expires: At,
}

/// Fields of a line that adds a node. They follow the name as `field=value`.
pub const INVENTORY_FIELDS: [&str; 10] =
    ["mac", "serial", "domain", "root", "ssh", "port", "user", "key", "key_version", "host_key"];

/// The nodes that one text added, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddedNodes {
    /// The nodes.
    pub nodes: Vec<AddedNode>,
}

/// A node that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddedNode {
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node, given or derived.
    pub fqdn: String,
}

/// Changes of a node's record. Absent fields keep their values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeChange {
    /// Description for people.
    #[serde(default)]
    pub description: Option<String>,
    /// MAC addresses of the network interfaces.
    #[serde(default)]
    pub macs: Option<Vec<String>>,
    /// Serial number.
    #[serde(default)]
    pub serial: Option<String>,
    /// Hints for the roles' first runs, as a JSON object.
    #[serde(default)]
    pub hints: Option<Value>,
    /// Connection to the node.
    #[serde(default)]
    pub connection: Option<NodeConnectionChange>,
}

pub use engine::cluster::ConnectionChange as NodeConnectionChange;

impl NodeView {
    /// Removes the parts of the connection and the hints that equal the current values.
    pub fn differing(&self, change: NodeChange) -> NodeChange {
        let ssh = self.connection.ssh.as_ref();
        fn other<T: PartialEq>(new: Option<T>, now: Option<&T>) -> Option<T> {
            new.filter(|new| Some(new) != now)
        }
        let connection = change.connection.map(|connection| NodeConnectionChange {
            root: other(connection.root, Some(&self.connection.root)),
            addresses: other(connection.addresses, ssh.map(|ssh| &ssh.addresses)),
            port: other(connection.port, ssh.map(|ssh| &ssh.port)),
            user: other(connection.user, ssh.map(|ssh| &ssh.user)),
            key: other(connection.key, ssh.map(|ssh| &ssh.key)),
            key_version: other(connection.key_version, ssh.map(|ssh| &ssh.key_version)),
            host_key: other(connection.host_key, ssh.map(|ssh| &ssh.host_key)),
        });
        NodeChange {
            connection: connection.filter(|connection| !connection.is_empty()),
            hints: other(change.hints, Some(&self.hints)),
            ..change
        }
    }
}

impl NodeChange {
    /// The edits that propose the change of a node in a blueprint. The description and the hardware
    /// are in no document, so they are left out.
    pub fn edits(&self, node: NodeId) -> Vec<Edit> {
        let connection = self.connection.clone().filter(|connection| !connection.is_empty());
        let connection = connection
            .map(|connection| Edit::SetConnection(edit::SetConnection { node, connection }));
        let hints = self.hints.clone().map(|hints| Edit::SetHints(edit::SetHints { node, hints }));
        connection.into_iter().chain(hints).collect()
    }
}

sort! {
    NodeSort, Order::ascending(Self::Name), {
        Name "name" [Text],
        /// Dead nodes first, then nodes in maintenance, then the others.
        State "state" [Number, Text],
        Deployment "deployment" [Text, Text],
    }
}

/// State of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Health checks reach the node.
    Alive,
    /// Health checks do not reach the node.
    Dead,
    /// The node is in maintenance.
    Maintenance,
    /// The node is in no blueprint.
    RecordOnly,
}

impl NodeState {
    pub const EVERY: [Self; 4] = [Self::Alive, Self::Dead, Self::Maintenance, Self::RecordOnly];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Dead => "dead",
            Self::Maintenance => "maintenance",
            Self::RecordOnly => "record_only",
        }
    }
}

/// Filters of the list of nodes. An empty filter matches all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NodesQuery {
    /// Part of the name.
    pub filter: String,
    /// State of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Name of the deployment that the node belongs to.
    pub deployment: String,
    /// Sort order. Default: by name.
    pub sort: Order<NodeSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A node to add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeRequest {
    /// Name. If empty, it is derived from the other fields.
    #[serde(default)]
    pub fqdn: String,
    /// MAC addresses of the network interfaces, in any usual notation.
    #[serde(default)]
    pub macs: Vec<String>,
    /// Serial number.
    #[serde(default)]
    pub serial: String,
    /// Domain of a derived name. If empty, `nodes.gantry.internal`.
    #[serde(default)]
    pub domain: String,
    /// The folder that is the node's root file system: on the worker's host, or with `ssh` on the
    /// node. Empty with `ssh` means `/`.
    #[serde(default)]
    pub root: String,
    /// SSH connection. Absent: the node is a folder on the worker's host.
    #[serde(default)]
    pub ssh: Option<SshRequest>,
}

/// SSH connection to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SshRequest {
    /// Host names or IP addresses, tried in this order.
    pub addresses: Vec<String>,
    /// Port of all addresses.
    #[serde(default = "default_port")]
    pub port: u16,
    /// User name.
    #[serde(default = "default_user")]
    pub user: String,
    /// Name of the secret that contains the private key. Workers have it as a file.
    pub key: String,
    /// Version of the secret.
    #[serde(default = "default_key_version")]
    pub key_version: i64,
    /// The host key without the name, as `ssh-keyscan` prints it: `ssh-ed25519 AAAA...`. Only this
    /// key is accepted.
    pub host_key: String,
}

fn default_port() -> u16 {
    22
}

fn default_user() -> String {
    "root".into()
}

fn default_key_version() -> i64 {
    1
}

impl SshRequest {
    /// Default values. Addresses, key and host key have no defaults and stay empty.
    pub fn usual() -> Self {
        Self {
            addresses: Vec::new(),
            port: default_port(),
            user: default_user(),
            key: String::new(),
            key_version: default_key_version(),
            host_key: String::new(),
        }
    }
}

impl NodeRequest {
    pub fn named(fqdn: impl Into<String>, root: impl Into<String>) -> Self {
        Self { fqdn: fqdn.into(), root: root.into(), ..Self::default() }
    }
}

/// A node in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeSummary {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub fqdn: String,
    /// The deployment that it belongs to.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// Whether the node is alive.
    pub alive: bool,
    /// Whether steps may start on it. False during maintenance.
    pub available: bool,
    /// Transport of the connection.
    #[cfg_attr(feature = "schema", schemars(with = "crate::enumerations::Transport"))]
    pub transport: String,
    /// Error of the last health check, if it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// Its steps by state.
    pub steps: StateCounts,
    /// Whether the node is in no blueprint, so that it can be removed without a review.
    #[serde(default)]
    pub record_only: bool,
}

/// A page of the list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodePage {
    /// The nodes, by name by default.
    pub nodes: Vec<NodeSummary>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

paged! {
    NodePage: nodes of NodeSummary,
}

paged! {
    NodeNoderolePage: noderoles of NodeNoderole,
}

paged! {
    HealthCheckPage: health_checks of HealthCheckView,
}
