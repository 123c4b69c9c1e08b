//! A machine: what is shown of it, and what people may change about it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::At;
use crate::console::{RunSummary, StepState};
use crate::listing::{Cursor, Kind, Order, Sort, sort};
use engine::ids::{DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName, RunId};
use engine::plan::Edit;

/// Everything about a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeView {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: String,
    /// The version of what people say of it; a change names the one that it was made on.
    pub version: i32,
    /// What people say of it.
    pub description: String,
    /// Where it belongs.
    pub deployment: DeploymentName,
    /// The same, for the live stream's topic.
    pub deployment_id: DeploymentId,
    /// Whether it is a record alone: no target speaks of it.
    pub record: bool,
    /// How it is.
    pub life: Life,
    /// How it is reached.
    pub way: Way,
    /// MAC addresses of its network cards.
    pub macs: Vec<String>,
    /// Its serial number.
    pub serial: String,
    /// What its roles may want to know before their first run.
    pub hints: Value,
    /// Who added it; None: Gantry itself.
    pub added_by: Option<String>,
    /// When.
    pub added: At,
    /// What came of the last looks, newest first; of a folder there are none.
    pub looks: Vec<LookView>,
    /// What it carries, in the order in which that runs.
    pub noderoles: Vec<Carried>,
    /// Whether it carries more than that: a list of its own has all of them.
    pub more_noderoles: bool,
    /// Its last runs, newest first.
    pub runs: Vec<RunSummary>,
    /// What is known of it, by who says it.
    pub facts: Vec<FactsOf>,
    /// What it last said of itself, newest first.
    pub reports: Vec<ReportView>,
    /// Its tokens, those that hold first.
    pub tokens: Vec<NodeToken>,
    /// Whether the reader may change it, its availability and its tokens; else why not.
    pub may_change: Result<(), String>,
    /// The journal's position as of which this is shown.
    pub cursor: i64,
}

/// How a machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Life {
    /// Whether it is alive.
    pub alive: bool,
    /// Since when it is, or is not; None: nobody ever reached it.
    pub alive_since: Option<At>,
    /// When it was reached last.
    pub seen: Option<At>,
    /// What speaks against `alive`, in looks: those in a row that said otherwise. What the machine reported of itself counts as much as all
    /// but the last of those that it takes.
    pub against: u32,
    /// How much of that turns it.
    pub enough: u32,
    /// None: steps may start on it. Else who took it out of service, when and why.
    pub unavailable: Option<OutOfService>,
    /// How far it has joined: `none`, `welcomed`, ... `confirmed`. Nothing starts on one that is not confirmed.
    pub joined: String,
    /// When somebody last found out what runs there.
    pub joined_since: Option<At>,
    /// What tells its present start from others.
    pub boot_id: Option<String>,
    /// What it booted, by its own word.
    pub bootenv: Option<String>,
}

/// Why nothing starts on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutOfService {
    /// Who says so.
    pub by: Option<String>,
    /// Since when.
    pub since: Option<At>,
    /// Why.
    pub reason: String,
}

/// How a machine is reached. Nothing in it is secret: the private key is named, and workers have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Way {
    /// `local` or `ssh`.
    pub transport: String,
    /// The folder that stands for its file system.
    pub root: String,
    /// Of a machine that is reached by SSH.
    pub ssh: Option<SshView>,
}

/// How a machine is reached by SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SshView {
    /// Names or numbers, tried in this order.
    pub addresses: Vec<String>,
    /// The port of all of them.
    pub port: u16,
    /// As whom.
    pub user: String,
    /// The name of the secret that has the private key.
    pub key: String,
    /// Which of its versions.
    pub key_version: i64,
    /// The only host key that is taken.
    pub host_key: String,
    /// The same, short, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
}

/// What came of trying one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TriedAddress {
    /// Which.
    pub address: String,
    /// Whether it let somebody in.
    pub reached: bool,
    /// Why not.
    pub said: String,
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LookView {
    /// When.
    pub at: At,
    /// Whether it let somebody in.
    pub reached: bool,
    /// Where it let somebody in; else the one address that was tried, and empty of several.
    pub address: String,
    /// Why it was not reached, or what was wrong there.
    pub said: String,
    /// Each address that was tried, in this order; of a connection that was there already the one that it is made to.
    pub tried: Vec<TriedAddress>,
    /// How long it took, in milliseconds.
    pub took_ms: u32,
    /// Which worker looked.
    pub by: String,
}

sort! {
    /// What looks are sorted by.
    LookSort, Order::falling(Self::At), {
        /// When they were, in microseconds since 1970: two may fall into one millisecond.
        At "at" [Number],
    }
}

/// Which looks a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct LooksWanted {
    /// Only those that were let in (`true`), or only those that were not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// With this in an address that was tried or in what was said, in any case; empty: with any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// In this order.
    pub sort: Order<LookSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of looks, newest first or as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LookPage {
    /// The looks.
    pub looks: Vec<LookView>,
    /// Give this as `before` to get the next page; the last 50 are kept.
    pub next: Option<Cursor>,
}

sort! {
    /// What the noderoles of a machine are sorted by.
    CarriedSort, Order::rising(Self::Rank), {
        /// As they run there: by rank, and then by what tells their steps apart.
        Rank "order" [Number, Text],
    }
}

/// Which noderoles of a machine a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CarriedWanted {
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StepState>,
    /// Of this role; empty: of any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// In this order.
    pub sort: Order<CarriedSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A page of the noderoles of a machine, in the order in which they run or as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarriedPage {
    /// The noderoles.
    pub noderoles: Vec<Carried>,
    /// Give this as `after` to get the next page.
    pub next: Option<Cursor>,
}

/// A noderole on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carried {
    /// Which.
    pub id: NoderoleId,
    /// Its role.
    pub role: RoleName,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// The same, for the live stream's topic.
    pub deployment_id: DeploymentId,
    /// Its state.
    pub state: StepState,
    /// Since when.
    pub since: At,
    /// Why it is in ERROR.
    pub error: Option<String>,
}

/// What somebody says of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FactsOf {
    /// `node`: itself; `role` and a name: a role that looked.
    pub source: String,
    /// What.
    pub facts: Value,
    /// When.
    pub at: At,
    /// The run that found it.
    pub run: Option<RunId>,
}

/// What a machine said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportView {
    /// When.
    pub at: At,
    /// `startup`, `shutdown`, `bootenv` or `facts`.
    pub kind: String,
    /// A boot id, or the name of a boot environment.
    pub said: String,
    /// By which of its tokens.
    pub token: String,
    /// Where it was heard from.
    pub address: String,
}

/// A token by which a machine speaks for itself, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeToken {
    /// Which.
    pub id: Uuid,
    /// What its maker calls it.
    pub name: String,
    /// Who made it.
    pub by: Option<String>,
    /// When.
    pub made: At,
    /// Until when it holds.
    pub expires: At,
    /// When it spoke last; to the minute.
    pub used: Option<At>,
    /// Since when it is taken back.
    pub revoked: Option<At>,
    /// Whether it holds.
    pub holds: bool,
}

/// A token that was made. What it is, is told this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MintedToken {
    /// Which.
    pub id: Uuid,
    /// The token itself.
    pub token: String,
    /// Until when it holds.
    pub expires: At,
}

/// What a line of a text may say of its machine behind the name, as `field=value`.
pub const INVENTORY_FIELDS: [&str; 10] =
    ["mac", "serial", "domain", "root", "ssh", "port", "user", "key", "key_version", "host_key"];

/// Machines that were added by one text with a machine a line, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddedNodes {
    /// Each of them.
    pub nodes: Vec<AddedNode>,
}

/// A machine that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddedNode {
    /// Which.
    pub node: NodeId,
    /// Its name, which may be derived.
    pub fqdn: String,
}

/// What is to be changed about a machine's record; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeChange {
    /// What people say of it.
    #[serde(default)]
    pub description: Option<String>,
    /// MAC addresses of its network cards.
    #[serde(default)]
    pub macs: Option<Vec<String>>,
    /// Its serial number.
    #[serde(default)]
    pub serial: Option<String>,
    /// What its roles may want to know before their first run: an object.
    #[serde(default)]
    pub hints: Option<Value>,
    /// How it is reached.
    #[serde(default)]
    pub way: Option<WayChange>,
}

/// What is to be changed about how a machine is reached; what is absent stays.
pub use engine::cluster::ConnectionChange as WayChange;

impl NodeView {
    /// The change without the parts of the connection and the hints that say what is there already.
    pub fn differing(&self, change: NodeChange) -> NodeChange {
        let ssh = self.way.ssh.as_ref();
        fn other<T: PartialEq>(new: Option<T>, now: Option<&T>) -> Option<T> {
            new.filter(|new| Some(new) != now)
        }
        let way = change.way.map(|way| WayChange {
            root: other(way.root, Some(&self.way.root)),
            addresses: other(way.addresses, ssh.map(|ssh| &ssh.addresses)),
            port: other(way.port, ssh.map(|ssh| &ssh.port)),
            user: other(way.user, ssh.map(|ssh| &ssh.user)),
            key: other(way.key, ssh.map(|ssh| &ssh.key)),
            key_version: other(way.key_version, ssh.map(|ssh| &ssh.key_version)),
            host_key: other(way.host_key, ssh.map(|ssh| &ssh.host_key)),
        });
        NodeChange {
            way: way.filter(|way| !way.is_empty()),
            hints: other(change.hints, Some(&self.hints)),
            ..change
        }
    }
}

impl NodeChange {
    /// The edits that propose the change of a node in a blueprint. What no document has (its description, its hardware) is not part of
    /// them.
    pub fn edits(&self, node: NodeId) -> Vec<Edit> {
        let way = self.way.clone().filter(|way| !way.is_empty());
        let connection = way.map(|connection| Edit::SetConnection { node, connection });
        let hints = self.hints.clone().map(|hints| Edit::SetHints { node, hints });
        connection.into_iter().chain(hints).collect()
    }
}
