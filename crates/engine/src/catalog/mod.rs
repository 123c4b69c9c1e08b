//! The catalog: barclamps, roles and scripts that deployments can use.
//!
//! A barclamp is a versioned set of roles. A role says what binding it also adds, how its step runs
//! and which data it takes. Barclamps, roles and scripts are content-addressed objects. A barclamp
//! names its roles by hash, and a role names its scripts by hash. A deployment pins barclamps and a
//! noderole pins its role. Importing a newer file therefore adds objects and changes nothing that
//! runs.
//!
//! Invariants, which [`read`] enforces and the rest of the engine relies on:
//!
//! * Every role of a barclamp has that barclamp's name.
//! * Within the barclamps that one deployment sees, a role name refers to one role.
//! * `requires` among roles that are visible together has no cycle.
//! * Fields with their default value are omitted, so equal roles have equal hashes.
//!
//! A role has *actions*. Every role has `run`, and a role may declare `remove`. A step is one
//! action of a noderole. `run` applies the role to its node. `remove` undoes it after the noderole
//! is unbound, and without it nothing runs on the node then. The role's content includes the
//! scripts of all its actions, so an approval covers all of them.
//!
//! A role may also have a [`Check`]. It is no action and has no step: it tests an applied `run`.
//!
//! The file format extends OpenCrowbar's barclamp metadata. Gantry's own keys (`concurrency-group`,
//! `retry`, `timeout`, `on-error`, ...) default to OpenCrowbar's behavior where that was sound.
//! Source: the barclamp files of opencrowbar/core and digitalrebar.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, Hash, Object, ObjectKind};
use crate::ids::{ActionName, AttribName, BarclampName, ConcurrencyGroupName, JigName, RoleName};

mod jig_class;
pub mod read;
pub mod version;

pub use jig_class::JigClass;

/// Maximum size of one script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 256 * 1024;
/// Maximum number of roles in one barclamp.
pub const MAX_ROLES: usize = 500;

/// A stored barclamp: a versioned set of roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Barclamp {
    /// The barclamp's name, unique together with `version`.
    pub name: BarclampName,
    /// The version as the file spells it, free text. A name and version never have two contents.
    pub version: String,
    /// The name that the console shows.
    #[serde(default)]
    pub display: String,
    /// A description for users.
    #[serde(default)]
    pub description: String,
    /// The content hash of each role.
    pub roles: BTreeMap<RoleName, Hash>,
    /// The jigs that this barclamp declares.
    #[serde(default)]
    pub jigs: BTreeMap<JigName, Jig>,
    /// Attributes that belong to nodes and not to a role. A role that wants one gets no extra
    /// parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribs: Vec<Attrib>,
    /// All other keys of the file. Gantry stores and shows them but does not interpret them.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
}

/// A method to run steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Jig {
    /// The program of the worker that runs the steps.
    pub class: JigClass,
    /// A description for users.
    #[serde(default)]
    pub description: String,
    /// The role that a node must have before this jig can work on it (OpenCrowbar's `implementor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_role: Option<RoleName>,
}

/// Defines what binding a role adds and how its step runs. A noderole's `role` is its content hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Role {
    /// The role's name.
    pub name: RoleName,
    /// The barclamp that contains the role.
    pub barclamp: BarclampName,
    /// The jig that runs its step.
    pub jig: JigName,
    /// The class of that jig, so that a noderole's pinned content alone says how to run it. Read
    /// from the barclamp files that were imported together.
    pub jig_class: JigClass,
    /// A description for users.
    #[serde(default)]
    pub description: String,
    /// The kind of role and how the planner treats it.
    #[serde(default)]
    pub flags: Flags,
    /// Roles whose noderoles become parents. Contains the client role of the jig if that role was
    /// imported together with this one. Binding also looks for the client roles of jigs among the
    /// visible roles.
    #[serde(default)]
    pub requires: Vec<RoleName>,
    /// Other names under which this role satisfies a requirement.
    #[serde(default)]
    pub provides: BTreeSet<RoleName>,
    /// Roles that must not be on the same node.
    #[serde(default)]
    pub conflicts: BTreeSet<RoleName>,
    /// Roles that run after this one where both exist.
    #[serde(default)]
    pub preceeds: BTreeSet<RoleName>,
    /// Attributes whose owners become parents.
    #[serde(default)]
    pub wants: Vec<AttribName>,
    /// Default data, the lowest layer.
    #[serde(default)]
    pub template: Value,
    /// The attributes that this role owns.
    #[serde(default)]
    pub attribs: Vec<Attrib>,
    /// How the annealer and the worker run its step.
    #[serde(default)]
    pub run: RunPolicy,
    /// The actions that it has next to `run`. Omitted if empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub actions: BTreeSet<ActionName>,
    /// The scripts of its actions, in the order in which they run.
    #[serde(default)]
    pub scripts: Vec<Script>,
    /// For a barrier: the role whose noderoles in a deployment the barrier represents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gathers: Option<RoleName>,
    /// All other keys of the file. Gantry stores and shows them but does not interpret them.
    #[serde(default)]
    pub metadata: Value,
}

/// OpenCrowbar's role flags, plus `facts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Flags {
    /// Always bound to the same node as the role that requires it.
    pub implicit: bool,
    /// Cannot be bound; other roles provide it.
    #[serde(rename = "abstract")]
    pub is_abstract: bool,
    /// A point in the graph that people wait for; listed first.
    pub milestone: bool,
    /// Its step destroys data and runs once per generation.
    pub destructive: bool,
    /// Bound to every discovered node.
    pub discovery: bool,
    /// Bound to the first admin node.
    pub bootstrap: bool,
    /// All its noderoles in a deployment act as one parent.
    pub cluster: bool,
    /// Runs on the deployment's phantom node.
    pub service: bool,
    /// Never bound on its own.
    #[serde(rename = "library")]
    pub is_library: bool,
    /// The node may be turned off when the step is done.
    pub powersave: bool,
    /// Retains the log of its last successful run.
    pub leaverunlog: bool,
    /// The `facts` that its runs return become facts of the node. A Gantry flag. Omitted if
    /// false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub facts: bool,
}

/// An attribute that a role owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attrib {
    /// The attribute's name, unique in the catalog.
    pub name: AttribName,
    /// The path of its value in the noderole's data, as keys from the top.
    pub map: Vec<String>,
    /// A description for users.
    #[serde(default)]
    pub description: String,
    /// The value if no layer sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The JSON Schema for values that users enter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// One script of a role. Its bytes are a separate object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Script {
    /// The file name, shown in logs.
    pub name: String,
    /// SHA-256 of its bytes.
    pub hash: Hash,
    /// The action that it belongs to. Omitted for `run`.
    #[serde(default = "ActionName::run", skip_serializing_if = "ActionName::is_run")]
    pub action: ActionName,
}

/// How the annealer and the worker run a role's step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RunPolicy {
    /// The state that its node must be in.
    pub needs: Needs,
    /// Whether the step runs on its node or on the worker.
    pub location: RunLocation,
    /// Whether the step needs its node exclusively.
    pub exclusive: bool,
    /// The concurrency group that limits the step. By default, a group with the role's name and no
    /// limit.
    pub concurrency_group: Option<ConcurrencyGroup>,
    /// The steps that an ERROR of this step stops.
    pub on_error: OnError,
    /// The effect of changed data on an applied step.
    pub on_change: OnChange,
    /// The effect of changed input from other noderoles on an applied step. Omitted if it is the
    /// default.
    #[serde(skip_serializing_if = "is_default")]
    pub on_input: OnInput,
    /// Paths of the values that the step reads, each as keys from the top. Without paths and wanted
    /// attributes, it reads all data of its parents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Vec<String>>,
    /// Whether an applied step runs again after its node was away. Omitted if it is the
    /// default.
    #[serde(skip_serializing_if = "is_default")]
    pub on_return: OnReturn,
    /// Number of failures before the step becomes ERROR. With 0, the first failure is an ERROR.
    pub retries: u32,
    /// Seconds until the first retry. Each further retry waits twice as long, at most one hour.
    pub backoff: u32,
    /// Maximum duration of one run, in seconds.
    pub timeout: u32,
    /// How many parents must finish before the step starts, and whether failed parents count.
    pub join: Join,
    /// Steps with a higher priority start first. The default is 0. Omitted if 0.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// How an applied step is checked. Omitted without a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

/// A check of an applied step: a script that fails if the node no longer is as `run` left it. The
/// role contains it as the script of [`ActionName::check`], so an approval covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CheckPolicy"))]
pub struct Check {
    /// Seconds between the starts of two checks.
    pub interval: u32,
    /// Maximum duration of one check, in seconds.
    pub timeout: u32,
    /// Number of consecutive failures with an effect on the step.
    pub failures: u32,
    /// Their effect.
    pub on_failure: OnFailure,
}

impl Check {
    /// The values of a check that sets none.
    pub const DEFAULT: Self =
        Self { interval: 60, timeout: 10, failures: 3, on_failure: OnFailure::Rerun };
}

/// `every 60 s, at most 10 s each; after 3 failures in a row, the step runs again, once`.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interval, timeout, failures, on_failure } = self;
        let after = match failures {
            1 => "after a failure".to_owned(),
            _ => format!("after {failures} failures in a row"),
        };
        let effect = match on_failure {
            OnFailure::Rerun => "the step runs again, once",
            OnFailure::Report => "the step is in ERROR until the check passes",
        };
        write!(f, "every {interval} s, at most {timeout} s each; {after}, {effect}")
    }
}

/// The effect of a failed check on an applied step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "FailedCheckPolicy")
)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The step runs again. If the check still fails then, the step is ERROR.
    #[default]
    Rerun,
    /// The step is ERROR until the check passes.
    Report,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for RunPolicy {
    fn default() -> Self {
        Self {
            needs: Needs::Alive,
            location: RunLocation::Node,
            exclusive: true,
            concurrency_group: None,
            on_error: OnError::Descendants,
            on_change: OnChange::Rerun,
            on_input: OnInput::Rerun,
            reads: Vec::new(),
            on_return: OnReturn::AfterRestart,
            retries: 0,
            backoff: 5,
            timeout: 3600,
            join: Join::default(),
            priority: 0,
            check: None,
        }
    }
}

/// The state that a step needs its node to be in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Needs {
    /// Up and available.
    #[default]
    Alive,
    /// Any state.
    Any,
    /// Known to be down.
    Dead,
}

/// Where a step runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunLocation {
    /// On the node, through its wrapper and ledger.
    #[default]
    Node,
    /// On the worker's machine, on behalf of the node.
    Worker,
}

/// A concurrency group: a limit that steps share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConcurrencyGroup {
    /// The group's name, unique in the deployment.
    pub name: ConcurrencyGroupName,
    /// Maximum number of its steps that run at once.
    pub max_running: u32,
    /// When the next steps of the group start.
    #[serde(default)]
    pub mode: ConcurrencyGroupMode,
}

/// When the next steps of a concurrency group start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConcurrencyGroupMode {
    /// The next step starts as soon as one ends.
    #[default]
    Rolling,
    /// The next chunk starts when all steps of the previous one have ended.
    Chunk,
}

/// The steps that an ERROR of a step stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Its descendants.
    #[default]
    Descendants,
    /// All steps on its node (OpenCrowbar's rule).
    Node,
}

/// The effect of changed noderole data on an applied step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    /// The step runs again.
    #[default]
    Rerun,
    /// The step keeps its applied result. Its next run uses the new data.
    Keep,
}

/// The effect of changed input on an applied step: data or output of other noderoles that it reads,
/// or the members of a barrier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ChangedInputPolicy")
)]
#[serde(rename_all = "snake_case")]
pub enum OnInput {
    /// The step runs again when its parents are done.
    #[default]
    Rerun,
    /// The step keeps its result and is reported as stale.
    Report,
    /// The step keeps its result. Its next run uses the new input.
    Ignore,
}

/// Whether an applied step runs again after its node was away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "NodeReturnPolicy"))]
#[serde(rename_all = "snake_case")]
pub enum OnReturn {
    /// It runs again unless the boot id proves that the machine did not restart.
    #[default]
    AfterRestart,
    /// It runs again.
    Always,
    /// It keeps its result, also after a restart.
    Never,
}

impl OnReturn {
    /// Whether an applied step keeps its result.
    pub fn resumes(self, is_same_boot: bool) -> bool {
        match self {
            Self::AfterRestart => is_same_boot,
            Self::Always => false,
            Self::Never => true,
        }
    }
}

/// When enough of a step's parents have finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Join {
    /// How many parents must finish.
    pub need: JoinNeed,
    /// The state in which a parent counts as finished.
    pub after: JoinAfter,
}

/// How many parents a join requires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinNeed {
    /// All parents.
    #[default]
    All,
    /// One parent.
    Any,
    /// At least this many parents.
    AtLeast(u32),
}

/// The parents that count for a join.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinAfter {
    /// Only ACTIVE parents.
    #[default]
    Success,
    /// ACTIVE and ERROR parents.
    End,
}

/// A barclamp that a deployment sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibleBarclamp<'p> {
    pub barclamp: &'p BarclampName,
    /// The version that applies in that deployment.
    pub version: Hash,
    /// Number of levels above the deployment at which the barclamp is pinned; 0 is the deployment
    /// itself.
    pub up: usize,
}

/// The barclamps that a deployment sees: its own pins and those of its ancestors, nearest first.
/// Each barclamp appears once. A pin hides all pins of the same barclamp above it, including roles
/// that only the hidden version has.
pub fn visible_barclamps<'p>(
    chain: impl IntoIterator<Item = &'p BTreeMap<BarclampName, Hash>>,
) -> Vec<VisibleBarclamp<'p>> {
    let (mut seen, mut visible) = (BTreeSet::new(), Vec::new());
    for (up, pins) in chain.into_iter().enumerate() {
        let nearest = pins.iter().filter(|(barclamp, _)| seen.insert(*barclamp));
        visible.extend(nearest.map(|(barclamp, version)| VisibleBarclamp {
            barclamp,
            version: *version,
            up,
        }));
    }
    visible
}

impl Role {
    /// Whether the role satisfies a requirement of `name`.
    pub fn satisfies(&self, name: &RoleName) -> bool {
        self.name == *name || self.provides.contains(name)
    }

    /// Whether the role has an action.
    pub fn has(&self, action: &ActionName) -> bool {
        action.is_run() || self.actions.contains(action)
    }

    /// The paths of the values that its step reads from other noderoles: the declared ones and
    /// those of the wanted attributes, which `attribs` contains. `None`: it reads all data of its
    /// parents.
    pub fn read_paths<'a>(
        &self,
        attribs: impl IntoIterator<Item = &'a Attrib>,
    ) -> Option<BTreeSet<Vec<String>>> {
        if self.run.reads.is_empty() && self.wants.is_empty() {
            return None;
        }
        let attribs_read = attribs.into_iter().filter(|attrib| self.wants.contains(&attrib.name));
        Some(attribs_read.map(|attrib| &attrib.map).chain(&self.run.reads).cloned().collect())
    }

    /// The reaction of an applied step to a changed input. A destructive step never runs again by
    /// itself, so it is reported.
    pub fn on_changed_input(&self) -> OnInput {
        match self.run.on_input {
            OnInput::Rerun if self.flags.destructive => OnInput::Report,
            on_input => on_input,
        }
    }

    /// Whether steps of the role become ACTIVE without a run: a milestone that runs nothing.
    pub fn is_immediate(&self) -> bool {
        self.flags.milestone && self.jig_class == JigClass::Noop
    }

    /// Whether a run of the role would do nothing although its jig runs scripts. Barclamps of other
    /// systems may come without their scripts.
    pub fn lacks_scripts(&self) -> bool {
        self.jig_class == JigClass::Script && self.scripts_of(&ActionName::run()).next().is_none()
    }

    /// Its check with the script.
    pub fn check(&self) -> Option<(&Check, &Script)> {
        self.run.check.as_ref().zip(self.scripts_of(&ActionName::check()).next())
    }

    /// The scripts of an action, in the order in which they run.
    pub fn scripts_of(&self, action: &ActionName) -> impl Iterator<Item = &Script> + Clone {
        self.scripts.iter().filter(move |script| script.action == *action)
    }

    /// Every name under which the role satisfies a requirement.
    pub fn names(&self) -> impl Iterator<Item = &RoleName> {
        std::iter::once(&self.name).chain(&self.provides)
    }

    /// The barrier of a cluster role; `None` for other roles.
    ///
    /// All noderoles of a cluster role in a deployment act as one parent. Without a barrier, N
    /// members and M children need N x M edges. One noderole between them, on the deployment's
    /// phantom node, reduces this to N + M. The barrier has no run and becomes ACTIVE as soon as
    /// all members are ACTIVE. It is derived from the role, so users never write, bind or add it.
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
                location: RunLocation::Worker,
                exclusive: false,
                ..RunPolicy::default()
            },
            actions: BTreeSet::new(),
            scripts: Vec::new(),
            gathers: Some(self.name.clone()),
            metadata: Value::Null,
        })
    }

    /// The concurrency group of its step, with the group's limit.
    pub fn concurrency_group(&self) -> (ConcurrencyGroupName, Option<u32>, ConcurrencyGroupMode) {
        match &self.run.concurrency_group {
            Some(concurrency_group) => (
                concurrency_group.name.clone(),
                Some(concurrency_group.max_running),
                concurrency_group.mode,
            ),
            None => {
                (ConcurrencyGroupName::of_role(&self.name), None, ConcurrencyGroupMode::default())
            }
        }
    }
}

/// All barclamps and roles that planning may look up because something pins them.
///
/// Contains only parsed objects, each under the hash of its stored bytes.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    barclamps: BTreeMap<Hash, Arc<Barclamp>>,
    roles: BTreeMap<Hash, Arc<Role>>,
    /// The barrier of each cluster role, derived from `roles`.
    barriers: BTreeMap<Hash, Hash>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A pinned object does not exist.
    #[error("The catalog has no {kind} {hash}. Import the barclamp that contains it")]
    Missing { kind: &'static str, hash: Hash },
    /// The bytes do not parse as an object of their kind.
    #[error("Object {hash} is not a {kind}: {reason}")]
    Unreadable {
        kind: &'static str,
        hash: Hash,
        /// The parser's message.
        reason: String,
    },
}

impl Catalog {
    /// Adds a catalog object and ignores objects of other kinds.
    ///
    /// # Errors
    /// [`CatalogError::Unreadable`] if its bytes do not parse.
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

    /// Adds a parsed role under its hash, for callers such as the browser that have no bytes.
    pub fn add_role(&mut self, hash: Hash, role: Arc<Role>) {
        // A barrier contains only names and flags, so canonical JSON can always represent it.
        if let Some(barrier) = role.barrier()
            && let Ok(barrier_hash) = canonical::hash(&barrier)
        {
            self.barriers.insert(hash, barrier_hash);
            self.roles.entry(barrier_hash).or_insert_with(|| Arc::new(barrier));
        }
        self.roles.insert(hash, role);
    }

    /// The hash of a cluster role's barrier.
    pub fn barrier(&self, role: Hash) -> Option<Hash> {
        self.barriers.get(&role).copied()
    }

    pub fn add_barclamp(&mut self, hash: Hash, barclamp: Arc<Barclamp>) {
        self.barclamps.insert(hash, barclamp);
    }

    pub fn role(&self, hash: Hash) -> Result<&Arc<Role>, CatalogError> {
        self.roles.get(&hash).ok_or(CatalogError::Missing { kind: "role", hash })
    }

    pub fn barclamp(&self, hash: Hash) -> Result<&Arc<Barclamp>, CatalogError> {
        self.barclamps.get(&hash).ok_or(CatalogError::Missing { kind: "barclamp", hash })
    }

    /// All barclamps, ordered by hash.
    pub fn barclamps(&self) -> impl Iterator<Item = (Hash, &Arc<Barclamp>)> {
        self.barclamps.iter().map(|(hash, barclamp)| (*hash, barclamp))
    }

    /// All roles, ordered by hash.
    pub fn roles(&self) -> impl Iterator<Item = (Hash, &Arc<Role>)> {
        self.roles.iter().map(|(hash, role)| (*hash, role))
    }
}
