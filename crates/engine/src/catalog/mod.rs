//! The catalog: what can be bound.
//!
//! A **barclamp** is a versioned set of roles; a **role** says what binding it brings along, how its step runs and which data it
//! takes. Both are content-addressed objects: a barclamp names its roles by hash, a role names its scripts by hash. A deployment
//! pins barclamps and a noderole pins its role, so importing a newer file adds objects and changes nothing that runs.
//!
//! Invariants (kept by [`read`], relied on by everything else):
//! * every role of a barclamp carries that barclamp's name;
//! * within what one deployment sees, a role name means one role;
//! * `requires` among the roles that are seen together has no cycle.
//!
//! The file format is OpenCrowbar's barclamp metadata and more: keys of our own (`lane`, `retry`, `timeout`, `on-error`, ...)
//! have defaults that give OpenCrowbar's behaviour where that was sound. Source: the barclamp files of opencrowbar/core and
//! digitalrebar.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, Hash, Object, ObjectKind};
use crate::ids::{AttribName, BarclampName, JigName, LaneName, RoleName};

pub mod read;
pub mod version;

/// Most bytes of one script.
pub const MAX_SCRIPT: usize = 256 * 1024;
/// Most roles of one barclamp.
pub const MAX_ROLES: usize = 500;

/// A versioned set of roles, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Barclamp {
    /// Unique together with `version`.
    pub name: BarclampName,
    /// Free text, as the file has it; two contents never share a name and a version.
    pub version: String,
    /// For people.
    #[serde(default)]
    pub display: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// The content of every role.
    pub roles: BTreeMap<RoleName, Hash>,
    /// The jigs that this barclamp declares.
    #[serde(default)]
    pub jigs: BTreeMap<JigName, Jig>,
    /// The attributes that belong to nodes rather than to a role: a role may want them, and they bring no parent along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribs: Vec<Attrib>,
    /// Whatever else the file says; kept, shown, not interpreted.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
}

/// A way to carry out steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Jig {
    /// Which program of the worker does it.
    pub class: JigClass,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// The role that a node must carry before this jig can work on it (OpenCrowbar's `implementor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_role: Option<RoleName>,
}

/// The worker's programs for steps. Files of other systems name classes that no worker here has; they import, with a finding, as
/// [`JigClass::Other`], and no step that needs one is ever claimed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JigClass {
    /// Scripts, run on the node through the node-side wrapper.
    Script,
    /// A real run that does nothing.
    Noop,
    /// A run that does what its data tells it: fail, take time, return data.
    Test,
    /// A class that this worker does not have.
    Other(String),
}

impl JigClass {
    /// The class that every worker has under this word; jigs of these names need no declaration.
    pub fn built_in(word: &str) -> Option<Self> {
        match word {
            "script" => Some(Self::Script),
            "noop" => Some(Self::Noop),
            "test" => Some(Self::Test),
            _ => None,
        }
    }

    /// The word in files and in the database.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Script => "script",
            Self::Noop => "noop",
            Self::Test => "test",
            Self::Other(name) => name,
        }
    }
}

/// What binding a role means and how its step runs. The content of a noderole's `role` hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Role {
    /// The role.
    pub name: RoleName,
    /// Where it comes from.
    pub barclamp: BarclampName,
    /// How its step is carried out.
    pub jig: JigName,
    /// The class of that jig, so that a noderole's pinned content alone says how to run it. As the files say that came with it.
    pub jig_class: JigClass,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What it is.
    #[serde(default)]
    pub flags: Flags,
    /// Roles whose noderoles become parents; the client role of its jig is among them where that came with it. (Binding asks what is in
    /// sight for the client roles of jigs in any case.)
    #[serde(default)]
    pub requires: Vec<RoleName>,
    /// Other names that this role answers to when one is required.
    #[serde(default)]
    pub provides: BTreeSet<RoleName>,
    /// Roles that must not be on the same node.
    #[serde(default)]
    pub conflicts: BTreeSet<RoleName>,
    /// Roles that wait for this one where both exist.
    #[serde(default)]
    pub preceeds: BTreeSet<RoleName>,
    /// Attributes whose owners become parents.
    #[serde(default)]
    pub wants: Vec<AttribName>,
    /// Default data; the lowest layer.
    #[serde(default)]
    pub template: Value,
    /// The attributes that this role owns.
    #[serde(default)]
    pub attribs: Vec<Attrib>,
    /// What its step asks of the annealer.
    #[serde(default)]
    pub run: RunPolicy,
    /// The scripts of its step, in the order in which they run.
    #[serde(default)]
    pub scripts: Vec<Script>,
    /// For a barrier: the role whose noderoles in a deployment it stands for. See [`Role::barrier`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gathers: Option<RoleName>,
    /// Whatever else the file says; kept, shown, not interpreted.
    #[serde(default)]
    pub metadata: Value,
}

/// OpenCrowbar's role flags, and one more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Flags {
    /// Comes along on the node of whoever requires it, never from elsewhere.
    pub implicit: bool,
    /// Can't be bound: others provide it.
    #[serde(rename = "abstract")]
    pub is_abstract: bool,
    /// A point in the graph that people wait for; listed first.
    pub milestone: bool,
    /// Its step loses data and runs once for each generation.
    pub destructive: bool,
    /// Bound to every node that is discovered.
    pub discovery: bool,
    /// Bound to the first admin node.
    pub bootstrap: bool,
    /// All its noderoles in a deployment act as one parent.
    pub cluster: bool,
    /// Runs on the deployment's phantom node.
    pub service: bool,
    /// Never bound by itself.
    #[serde(rename = "library")]
    pub is_library: bool,
    /// The node may be switched off when it is done.
    pub powersave: bool,
    /// Keeps the log of its last successful run.
    pub leaverunlog: bool,
    /// What its runs return under `facts` are facts of their node. Ours, and left out where it is not set: roles from before it keep their hash.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub facts: bool,
}

/// An attribute that a role owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attrib {
    /// Unique in the catalog.
    pub name: AttribName,
    /// Where its value sits in the noderole's data, as keys from the top.
    pub map: Vec<String>,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Used when no layer has a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// What a value that a person writes must look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// One script of a role. Its bytes are an object of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Script {
    /// The file's name, for logs.
    pub name: String,
    /// SHA-256 of its bytes.
    pub hash: Hash,
}

/// What the step of a role asks of the annealer and the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunPolicy {
    /// What its node must be.
    pub needs: Needs,
    /// Where it happens.
    pub place: Place,
    /// Whether it wants its node for itself.
    pub exclusive: bool,
    /// The lane that limits it; without one, a lane of the role's own name and no limit.
    pub lane: Option<Lane>,
    /// What an error of it stops.
    pub on_error: OnError,
    /// What changed data means for it.
    pub on_change: OnChange,
    /// How many failures it may have before it is an ERROR; 0 is an error at once.
    pub retries: u32,
    /// Seconds until the first retry; each further one waits twice as long, an hour at most.
    pub backoff: u32,
    /// Seconds that one run may take.
    pub timeout: u32,
    /// Edges below it: all, any or at least n of its parents, after success or after end.
    pub join: Join,
    /// Of what may start, the higher comes first; 0 usually. Left out where it is 0, so that roles from before it keep their hash.
    #[serde(skip_serializing_if = "is_usual")]
    pub priority: i32,
}

fn is_usual(priority: &i32) -> bool {
    *priority == 0
}

impl Default for RunPolicy {
    fn default() -> Self {
        Self {
            needs: Needs::Alive,
            place: Place::On,
            exclusive: true,
            lane: None,
            on_error: OnError::Descendants,
            on_change: OnChange::Rerun,
            retries: 0,
            backoff: 5,
            timeout: 3600,
            join: Join::default(),
            priority: 0,
        }
    }
}

/// What a step needs its node to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Needs {
    /// Up and available.
    #[default]
    Alive,
    /// It does not matter.
    Any,
    /// Known to be down.
    Dead,
}

/// Whether a step runs on its node or elsewhere for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// On the node, through its wrapper and ledger.
    #[default]
    On,
    /// For the node, on the worker.
    For,
}

/// A limit that steps share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lane {
    /// Unique in the deployment.
    pub name: LaneName,
    /// How many of its steps run at once.
    pub max_running: u32,
    /// Whether a node keeps its place between its steps of the lane.
    #[serde(default)]
    pub mode: LaneMode,
}

/// How a lane fills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaneMode {
    /// The next starts as soon as one ends.
    #[default]
    Rolling,
    /// The next group starts when all of the last have ended.
    Chunk,
}

/// What an ERROR of a step stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Its descendants.
    #[default]
    Descendants,
    /// Everything on its node (OpenCrowbar's rule).
    Node,
}

/// What changed data of a noderole means for what it applied before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    /// It runs again.
    #[default]
    Rerun,
    /// It keeps what it applied; the next re-run sees the new data.
    Keep,
}

/// When a child's parents are enough.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Join {
    /// How many of them.
    pub need: JoinNeed,
    /// What counts.
    pub after: JoinAfter,
}

/// How many parents a join asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinNeed {
    /// All of them.
    #[default]
    All,
    /// One of them.
    Any,
    /// That many of them.
    AtLeast(u32),
}

/// Which parents count for a join.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinAfter {
    /// ACTIVE ones.
    #[default]
    Success,
    /// ACTIVE and ERROR ones.
    End,
}

/// A barclamp that a deployment sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InSight<'p> {
    /// Which.
    pub barclamp: &'p BarclampName,
    /// The version that counts there.
    pub version: Hash,
    /// How many deployments up it is pinned.
    pub up: usize,
}

/// The barclamps that a deployment sees, from its own pins and those of each ancestor, nearest first. Each barclamp comes once: a pin
/// hides every pin of the same barclamp above it, with all that is in that version.
pub fn in_sight<'p>(
    chain: impl IntoIterator<Item = &'p BTreeMap<BarclampName, Hash>>,
) -> Vec<InSight<'p>> {
    let (mut seen, mut sight) = (BTreeSet::new(), Vec::new());
    for (up, pins) in chain.into_iter().enumerate() {
        let nearest = pins.iter().filter(|(barclamp, _)| seen.insert(*barclamp));
        sight.extend(nearest.map(|(barclamp, version)| InSight {
            barclamp,
            version: *version,
            up,
        }));
    }
    sight
}

impl Role {
    /// Whether the role is what somebody means who requires `name`.
    pub fn answers_to(&self, name: &RoleName) -> bool {
        self.name == *name || self.provides.contains(name)
    }

    /// Every name that it answers to.
    pub fn names(&self) -> impl Iterator<Item = &RoleName> {
        std::iter::once(&self.name).chain(&self.provides)
    }

    /// The barrier of a cluster role, and none for other roles.
    ///
    /// All noderoles of a cluster role in a deployment act as one parent. Without a barrier N members and M children would need
    /// N x M edges; with one noderole between them, on the deployment's phantom node, N + M do. It has no run of its own and is
    /// ACTIVE as soon as all members are. It follows from the role, so nobody writes it down, binds it or adds it.
    pub fn barrier(&self) -> Option<Self> {
        let jig = JigName::parse(JigClass::Noop.as_str()).ok().filter(|_| self.flags.cluster)?;
        Some(Self {
            name: self.name.barrier(),
            barclamp: self.barclamp.clone(),
            jig,
            jig_class: JigClass::Noop,
            description: format!("All of {} in a deployment", self.name),
            flags: Flags { milestone: true, ..Flags::default() },
            requires: Vec::new(),
            provides: BTreeSet::new(),
            conflicts: BTreeSet::new(),
            preceeds: BTreeSet::new(),
            wants: Vec::new(),
            template: Value::Null,
            attribs: Vec::new(),
            run: RunPolicy {
                needs: Needs::Any,
                place: Place::For,
                exclusive: false,
                ..RunPolicy::default()
            },
            scripts: Vec::new(),
            gathers: Some(self.name.clone()),
            metadata: Value::Null,
        })
    }

    /// The lane of its step and the limit there.
    pub fn lane(&self) -> (LaneName, Option<u32>, LaneMode) {
        match &self.run.lane {
            Some(lane) => (lane.name.clone(), Some(lane.max_running), lane.mode),
            None => (LaneName::of_role(&self.name), None, LaneMode::default()),
        }
    }
}

/// Everything that planning may look up: the barclamps and roles that pins name.
///
/// Holds only parsed objects, each under the hash that it was stored by.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    barclamps: BTreeMap<Hash, Arc<Barclamp>>,
    roles: BTreeMap<Hash, Arc<Role>>,
    /// The barrier of each cluster role. Derived.
    barriers: BTreeMap<Hash, Hash>,
}

/// What a catalog lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A pinned object is not there.
    #[error("the catalog has no {kind} {hash}: import the barclamp that has it")]
    Missing {
        /// What it should be.
        kind: &'static str,
        /// Its hash.
        hash: Hash,
    },
    /// Bytes that are not what their kind says.
    #[error("object {hash} is not a {kind}: {reason}")]
    Unreadable {
        /// What it should be.
        kind: &'static str,
        /// Its hash.
        hash: Hash,
        /// From the parser.
        reason: String,
    },
}

impl Catalog {
    /// Adds an object of the catalog; others are passed over.
    ///
    /// # Errors
    /// [`CatalogError::Unreadable`] when its bytes don't parse.
    pub fn add(&mut self, object: &Object) -> Result<(), CatalogError> {
        let unreadable = |kind, error: serde_json::Error| CatalogError::Unreadable {
            kind,
            hash: object.hash,
            reason: error.to_string(),
        };
        match object.kind {
            ObjectKind::Barclamp => {
                let barclamp =
                    serde_json::from_slice(&object.body).map_err(|e| unreadable("barclamp", e))?;
                self.barclamps.insert(object.hash, Arc::new(barclamp));
            }
            ObjectKind::Role => {
                let role =
                    serde_json::from_slice(&object.body).map_err(|e| unreadable("role", e))?;
                self.add_role(object.hash, Arc::new(role));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a role under its hash (for callers that hold parsed roles, such as the browser).
    pub fn add_role(&mut self, hash: Hash, role: Arc<Role>) {
        // A barrier holds names and flags alone, which canonical JSON always can say.
        if let Some(barrier) = role.barrier()
            && let Ok(of_barrier) = canonical::hash(&barrier)
        {
            self.barriers.insert(hash, of_barrier);
            self.roles.entry(of_barrier).or_insert_with(|| Arc::new(barrier));
        }
        self.roles.insert(hash, role);
    }

    /// The barrier of a cluster role, by hash.
    pub fn barrier(&self, role: Hash) -> Option<Hash> {
        self.barriers.get(&role).copied()
    }

    /// Adds a barclamp under its hash.
    pub fn add_barclamp(&mut self, hash: Hash, barclamp: Arc<Barclamp>) {
        self.barclamps.insert(hash, barclamp);
    }

    /// The role that this hash names.
    pub fn role(&self, hash: Hash) -> Result<&Arc<Role>, CatalogError> {
        self.roles.get(&hash).ok_or(CatalogError::Missing { kind: "role", hash })
    }

    /// The barclamp that this hash names.
    pub fn barclamp(&self, hash: Hash) -> Result<&Arc<Barclamp>, CatalogError> {
        self.barclamps.get(&hash).ok_or(CatalogError::Missing { kind: "barclamp", hash })
    }

    /// All barclamps, in the order of their hashes.
    pub fn barclamps(&self) -> impl Iterator<Item = (Hash, &Arc<Barclamp>)> {
        self.barclamps.iter().map(|(hash, barclamp)| (*hash, barclamp))
    }

    /// All roles, in the order of their hashes.
    pub fn roles(&self) -> impl Iterator<Item = (Hash, &Arc<Role>)> {
        self.roles.iter().map(|(hash, role)| (*hash, role))
    }
}
