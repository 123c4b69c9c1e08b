//! What the console's pages show, one struct for each page or part of one.
//!
//! Lists are bounded by whoever fills them and say how much there is beyond. Texts are ready to be read; whatever a page must
//! decide by is a field of its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::At;
use crate::listing::Cursor;
use crate::problem;
use crate::reviews::Waiting;
use engine::Hash;
use engine::blueprint::difference::{Mark, Sides};
use engine::blueprint::text::{self, Behind, Names, PinBehind};
use engine::blueprint::{Anchor, Consequences, Difference, Shift};
use engine::cluster::{EdgeKind, NoderoleKey};
use engine::data::Change;
use engine::gate::{GateState, Policy, Risk, VerdictKind};
use engine::ids::{
    BarclampName, CommentId, DeploymentId, DeploymentName, JigName, NodeId, NoderoleId, PersonId,
    ProposalId, RoleName, RunId, SubmissionId, TargetNo,
};
use engine::lint::Finding;
use engine::plan::clash::Over;
pub use engine::plan::ground::Ground;
pub use engine::plan::lift::{Brought, IllegalNode, Lift, LiftRole};
use engine::plan::{NumberedEdit, Refusal};

/// Node chips of a cell before they become a count.
pub const CHIPS_IN_CELL: usize = 24;
/// Rows of a list in one page.
pub const PAGE_SIZE: usize = 50;

/// Who is looking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Me {
    /// Who.
    pub id: PersonId,
    /// Short name.
    pub name: String,
    /// What they may do: `viewer`, `operator`, `reviewer`, `admin`.
    pub permissions: Vec<String>,
    /// The session that they look by; None: they came by another way.
    pub session: Option<Uuid>,
}

/// What every page has around it, for whoever is signed in: strangers learn nothing of what goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// Who that is.
    pub me: Me,
    /// Submissions that this person could judge or commit now.
    pub reviews_waiting: Waiting,
    /// Whether steps are started at all; None: they may not look.
    pub execution: Option<bool>,
    /// The journal's position when this was read: where a live stream begins; None: they may not look.
    pub cursor: Option<i64>,
    /// The last reset of their sign-in by an admin, until they dismiss it.
    #[serde(default)]
    pub reset: Option<crate::people::AccessNotice>,
}

/// A step's state as people see it. PROPOSED is what a draft would add; it is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// A draft would add it.
    Proposed,
    /// It waits for others.
    Blocked,
    /// It may start.
    Todo,
    /// It runs, or is about to.
    Transition,
    /// It is applied.
    Active,
    /// It failed.
    Error,
}

impl StepState {
    /// The word that people read.
    pub fn word(self) -> &'static str {
        match self {
            Self::Proposed => "PROPOSED",
            Self::Blocked => "BLOCKED",
            Self::Todo => "TODO",
            Self::Transition => "TRANSITION",
            Self::Active => "ACTIVE",
            Self::Error => "ERROR",
        }
    }

    /// The word for styles and for the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Blocked => "blocked",
            Self::Todo => "todo",
            Self::Transition => "transition",
            Self::Active => "active",
            Self::Error => "error",
        }
    }

    /// From the database's word.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [
            Self::Proposed,
            Self::Blocked,
            Self::Todo,
            Self::Transition,
            Self::Active,
            Self::Error,
        ];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

/// How many steps are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateCounts {
    /// BLOCKED.
    pub blocked: i64,
    /// TODO.
    pub todo: i64,
    /// TRANSITION.
    pub transition: i64,
    /// ACTIVE.
    pub active: i64,
    /// ERROR.
    pub error: i64,
}

impl StateCounts {
    /// How many are in a state. What is only proposed is no step yet, and counts nowhere.
    pub fn of(&self, state: StepState) -> i64 {
        match state {
            StepState::Proposed => 0,
            StepState::Blocked => self.blocked,
            StepState::Todo => self.todo,
            StepState::Transition => self.transition,
            StepState::Active => self.active,
            StepState::Error => self.error,
        }
    }

    /// Counts one more.
    pub fn count(&mut self, state: StepState) {
        match state {
            StepState::Proposed => {}
            StepState::Blocked => self.blocked += 1,
            StepState::Todo => self.todo += 1,
            StepState::Transition => self.transition += 1,
            StepState::Active => self.active += 1,
            StepState::Error => self.error += 1,
        }
    }
}

/// A deployment in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentSummary {
    /// Which.
    pub id: DeploymentId,
    /// Its name.
    pub name: DeploymentName,
    /// How far below *system*.
    pub depth: u32,
    /// Its nodes.
    pub nodes: i64,
    /// Its steps.
    pub steps: StateCounts,
    /// The open proposal on it.
    pub proposal: Option<ProposalId>,
    /// The submission that waits for review.
    pub submission: Option<SubmissionId>,
    /// The target that last changed it.
    pub target: TargetNo,
}

/// A page of deployments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentPage {
    /// In the order that was asked for: each directly below the one above it, siblings by their names, if none was.
    pub deployments: Vec<DeploymentSummary>,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
}

/// The deployment board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Board {
    /// Which.
    pub id: DeploymentId,
    /// Its name.
    pub name: DeploymentName,
    /// Names from *system* down to its parent.
    pub above: Vec<DeploymentName>,
    /// Whether it is *system*, at the root of all.
    pub system: bool,
    /// Who holds it, if somebody does.
    pub held_by: Option<String>,
    /// What keeps new runs from starting here: a hold of its own or of one above it.
    #[serde(default)]
    pub hold: Option<HoldView>,
    /// Of the steps that may start, those of a higher one come first; usually 0.
    #[serde(default)]
    pub priority: i32,
    /// The target that last changed it.
    pub target: TargetNo,
    /// The open proposal. While there is one, the board shows what it would add.
    pub proposal: Option<ProposalView>,
    /// Roles by barclamp; roles of ancestors that its nodes carry come last.
    pub groups: Vec<BoardGroup>,
    /// Steps of the deployment's own noderoles that have no chip, because their cells have no room for all: with the states of the chips
    /// they are all of its steps.
    #[serde(default)]
    pub beyond: StateCounts,
    /// Nodes that could be bound here: its own and those of its ancestors.
    pub tray: Vec<TrayNode>,
    /// How many more there are.
    pub tray_more: usize,
    /// Roles that could be added.
    pub choices: Vec<RoleChoice>,
    /// Versions of barclamps that could be used; none unless a proposal is open.
    #[serde(default)]
    pub versions: Vec<VersionChoice>,
    /// Versions of barclamps that it has of its own, the draft's included; none unless a proposal is open.
    #[serde(default)]
    pub own_versions: Vec<OwnVersion>,
    /// This deployment and those below it, the draft's included: where a proposal here can move nodes; none unless one is open.
    #[serde(default)]
    pub places: Vec<PlaceChoice>,
    /// Every jig that barclamps in use have, the draft's switches included; none unless a proposal is open.
    #[serde(default)]
    pub jigs: Vec<JigView>,
    /// The gate's policy, for all deployments: the draft's, else the one in force; none unless a proposal is open.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Whether this person may propose here; else why not.
    pub may_propose: Result<(), String>,
    /// The journal's position when this was read.
    pub cursor: i64,
}

/// A deployment that a node could be moved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlaceChoice {
    /// Which.
    pub id: DeploymentId,
    /// Its name.
    pub name: DeploymentName,
    /// Whether only the draft has it.
    pub proposed: bool,
}

/// A jig: what runs steps of its class, in all deployments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JigView {
    /// Which.
    pub jig: JigName,
    /// Whether anything starts by it.
    pub active: bool,
    /// How many roles of the barclamps in use run by it.
    pub roles: usize,
}

/// A hold: no new run starts in a deployment and those below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldView {
    /// The deployment that is held: this one or one above it.
    pub deployment: DeploymentName,
    /// Who holds it.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// The roles of one barclamp on a board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoardGroup {
    /// The barclamp.
    pub barclamp: BarclampName,
    /// Set when these are noderoles of an ancestor.
    pub of_ancestor: Option<DeploymentName>,
    /// Its roles, milestones first.
    pub roles: Vec<BoardRole>,
}

/// A role on a board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoardRole {
    /// Which.
    pub role: RoleName,
    /// For people.
    pub description: String,
    /// Jig, lane, flags: `script`, `one by one`, `destructive`.
    pub traits: Vec<String>,
    /// Whether it can be bound by hand on this board.
    pub bindable: bool,
    /// Whether the draft adds it to the deployment.
    pub proposed: bool,
    /// The deployment's data for it, the draft's edits included.
    pub data: Value,
    /// What holds where that says nothing: the role's template; secrets masked.
    #[serde(default)]
    pub below: Value,
    /// What the role's attributes expect of that data.
    pub attribs: Vec<AttribView>,
    /// Nodes that carry it; at most [`CHIPS_IN_CELL`].
    pub chips: Vec<Chip>,
    /// How many more.
    pub more: usize,
}

/// A node in a role's cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chip {
    /// The noderole.
    pub noderole: NoderoleId,
    /// The node.
    pub node: NodeId,
    /// Its whole name.
    pub fqdn: String,
    /// The first label of it.
    pub short: String,
    /// Its state; [`StepState::Proposed`] when only the draft has it.
    pub state: StepState,
    /// What brings it along, for those that the draft adds.
    pub brought_by: Option<String>,
    /// Whether the draft changes something about it (data, a re-run).
    pub touched: bool,
    /// Whether the draft removes it.
    #[serde(default)]
    pub going: bool,
    /// Whether its node is alive.
    pub alive: bool,
    /// The reason of an error, shortened.
    pub error: Option<String>,
}

/// A node that could be bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrayNode {
    /// Which.
    pub node: NodeId,
    /// Its whole name.
    pub fqdn: String,
    /// The first label of it.
    pub short: String,
    /// Where it belongs, the draft's moves included.
    pub deployment: DeploymentName,
    /// Whether it is alive.
    pub alive: bool,
    /// How many noderoles it carries, the draft's included.
    pub noderoles: usize,
}

/// Nodes that a list of carriers has at most.
pub const CARRIERS: usize = 1_000;

/// Which carriers of a role a list shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CarriersWanted {
    /// Of which role.
    pub role: RoleName,
    /// Where the role is an ancestor's: which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_ancestor: Option<String>,
    /// On this node alone, by its name or its id; empty: on any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Behind this noderole: the last one of the page before, while that said that there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<NoderoleId>,
}

impl CarriersWanted {
    /// All of a role of the deployment's own, from the first.
    pub fn of(role: RoleName) -> Self {
        Self { role, of_ancestor: None, node: String::new(), after: None }
    }
}

/// Everything that carries a role, beyond what its cell has room for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carriers {
    /// In the order of their nodes' names, the draft's included; at most [`CARRIERS`].
    pub chips: Vec<Chip>,
    /// How many more there are: `after` the last one's noderole.
    pub more: usize,
}

/// A role that could be added to a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleChoice {
    /// Which.
    pub role: RoleName,
    /// Whose.
    pub barclamp: BarclampName,
    /// For people.
    pub description: String,
    /// Whether it is a milestone.
    pub milestone: bool,
}

/// A version of a barclamp that a deployment could use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionChoice {
    /// Which.
    pub barclamp: BarclampName,
    /// What its file calls the version.
    pub version: String,
    /// Its content.
    pub hash: Hash,
    /// Whether the deployment uses it, by itself or as those above it do; the draft's edits included.
    pub using: bool,
    /// What the version in use has and this one has not.
    pub lacks: Vec<String>,
}

/// A version of a barclamp that a deployment has of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnVersion {
    /// Which.
    pub barclamp: BarclampName,
    /// What its file calls the version.
    pub version: String,
    /// Its content.
    pub hash: Hash,
    /// What the deployment would have without it; None: it would have the barclamp no more.
    pub above: Option<FromAbove>,
}

/// A version of a barclamp that a deployment above has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FromAbove {
    /// The deployment that pins it.
    pub from: DeploymentName,
    /// What its file calls the version.
    pub version: String,
    /// Its content.
    pub hash: Hash,
    /// What the deployment's own version has and this one has not.
    pub lacks: Vec<String>,
}

/// A page of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatalogPage {
    /// By barclamp, each barclamp's newest first.
    pub versions: Vec<BarclampVersion>,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
}

/// A version of a barclamp in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarclampVersion {
    /// Which.
    pub barclamp: BarclampName,
    /// What its file calls the version.
    pub version: String,
    /// The hash of its content.
    pub hash: String,
    /// For people.
    pub description: String,
    /// How many roles it has.
    pub roles: usize,
    /// When it came.
    pub imported: At,
    /// Who imported it; None: it is shipped.
    pub by: Option<String>,
    /// Deployments that pin it.
    pub used_by: Vec<DeploymentName>,
    /// The version that was imported before it.
    pub before: Option<String>,
    /// What that one has and this one has not.
    pub disappeared: Vec<String>,
    /// Its scripts that have hidden characters.
    #[serde(default, skip_serializing_if = "Deceiving::is_empty")]
    pub deceiving: Deceiving,
}

/// What a proposal would come to with further edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Foreseen {
    /// Why some of these edits can't take effect. Empty: all can.
    pub refused: Vec<String>,
    /// The whole proposal in plain words, most important first.
    pub lines: Vec<String>,
}

/// An open proposal in the list of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalSummary {
    /// Which.
    pub id: ProposalId,
    /// What it may touch.
    pub scope: ScopeView,
    /// Its version.
    pub version: i32,
    /// Who edited it.
    pub authors: Vec<String>,
    /// Edits that count.
    pub edits: usize,
    /// The submission of this version, if it was submitted.
    pub submission: Option<SubmissionId>,
}

/// What a proposal may touch: a deployment and those below it, or one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeView {
    /// The deployment; of a node: where that was when the proposal was opened.
    pub deployment: DeploymentName,
    /// The node, for a proposal that may touch nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<ScopeNode>,
}

/// The node of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeNode {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: String,
}

/// A proposal on a node, with what can be done in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeProposal {
    /// What it may touch.
    pub scope: ScopeView,
    /// The proposal.
    pub proposal: ProposalView,
    /// What the node carries, the draft's bindings included and what it unbinds left out.
    pub carries: Vec<NodeRole>,
    /// What could be bound to it.
    pub choices: Vec<NodeChoice>,
    /// Whether this person may edit it; else why not.
    pub may_edit: Result<(), String>,
    /// The journal's position when this was read.
    pub cursor: i64,
}

/// A noderole of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRole {
    /// What.
    pub noderole: NoderoleKey,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// Whether only the draft has it.
    pub proposed: bool,
}

/// A noderole as a proposal would have it: what a person can say of it there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DraftedNoderole {
    /// Its own data, as people set it, the proposal's edits included.
    pub data: Value,
    /// What applies where that says nothing, secrets masked.
    pub below: Value,
    /// What its role's attributes expect.
    pub attribs: Vec<AttribView>,
    /// Whether only the proposal has it.
    pub proposed: bool,
    /// Whether the proposal lets it run again.
    pub rerun: bool,
}

/// A role that could be bound to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeChoice {
    /// For which deployment.
    pub deployment: DeploymentId,
    /// Its name.
    pub name: DeploymentName,
    /// What.
    pub role: RoleName,
}

/// Two people's edits of one proposal of which the later overrules the earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClashView {
    /// The edit that loses.
    pub earlier: u32,
    /// Whose.
    pub earlier_by: String,
    /// The edit that wins, because it came later.
    pub later: u32,
    /// Whose.
    pub later_by: String,
    /// What they are about.
    pub over: Over,
    /// The same in words: `/port of app`.
    pub about: String,
}

/// An open proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalView {
    /// Which.
    pub id: ProposalId,
    /// Rises with every edit, undo and redo; a command that names another one is refused.
    pub version: i32,
    /// What it is for.
    pub title: String,
    /// Who shaped it: whoever made an edit, took one back or brought one again. None of them may approve it.
    pub authors: Vec<String>,
    /// Whether the reader could approve it and no longer can once they edit, undo, redo or submit it: it is somebody else's so far.
    #[serde(default)]
    pub would_join: bool,
    /// Whether anybody else than the reader opened it, or wrote or touched an edit of it: what is discarded is then not the reader's alone.
    #[serde(default)]
    pub of_others: bool,
    /// Its edits, oldest first, undone ones included.
    pub edits: Vec<EditView>,
    /// The edit that undo would take back, in words.
    pub undo: Option<String>,
    /// The edit that redo would bring back, in words.
    pub redo: Option<String>,
    /// Noderoles that it adds.
    pub added: usize,
    /// Noderoles that it removes.
    pub removed: usize,
    /// Noderoles that run again.
    pub reruns: usize,
    /// Edits that can't take effect.
    pub refused: Vec<Refusal>,
    /// Where one person's edit overrules another's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clashes: Vec<ClashView>,
    /// The submission of exactly this version, if it was submitted.
    pub submission: Option<SubmissionId>,
    /// Set while it is back with its authors because the base of its review moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<Replanned>,
    /// Set where it brings back a part of what a deployment was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
}

/// An edit in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditView {
    /// Its number.
    pub seq: u32,
    /// `bind web-1 to app`.
    pub text: String,
    /// Whose.
    pub actor: String,
    /// When.
    pub at: At,
    /// Whether it was taken back.
    pub undone: bool,
    /// Who took it back, who brought it again, who took that back, and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched_by: Vec<String>,
}

/// What a browser needs to plan by itself on an open proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannerView {
    /// Names the ground; changes when that does.
    pub stamp: String,
    /// None for who knows the ground of this stamp; and where it is too large to be sent: then the server has to be asked.
    pub ground: Option<Ground>,
    /// The proposal.
    pub proposal: ProposalId,
    /// Its version.
    pub version: i32,
    /// Its edits that count.
    pub edits: Vec<NumberedEdit>,
    /// The number of its next edit.
    pub next: u32,
    /// The hash of what the edits come to.
    pub effects: Hash,
}

/// A noderole and everything about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleView {
    /// Which.
    pub id: NoderoleId,
    /// Its role.
    pub role: RoleName,
    /// What the role is for.
    pub description: String,
    /// Its node.
    pub node: NodeId,
    /// The node's name.
    pub fqdn: String,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// The same, for the live stream's topic.
    pub deployment_id: DeploymentId,
    /// Now.
    pub state: StepState,
    /// Since when.
    pub since: At,
    /// Why it is in this state, each with what frees it.
    pub why: Vec<String>,
    /// The reason of an error.
    pub error: Option<String>,
    /// The target that asked for what it should be.
    pub generation: TargetNo,
    /// The target whose wish it has applied; None: none yet.
    pub applied: Option<TargetNo>,
    /// Short hash of its role's content.
    pub role_hash: String,
    /// Its own data by layer, lowest first.
    pub layers: Vec<DataLayer>,
    /// All layers merged.
    pub merged: Value,
    /// Where each value of the merged data comes from; at most [`VALUES_SHOWN`](crate::values::VALUES_SHOWN).
    pub provenance: Vec<Provenance>,
    /// How many values there are.
    pub values: usize,
    /// What its last successful run added.
    pub wall: Value,
    /// What its role's attributes expect.
    pub attribs: Vec<AttribView>,
    /// What it waits for.
    pub parents: Vec<NoderoleRef>,
    /// What waits for it; at most [`PAGE_SIZE`].
    pub children: Vec<NoderoleRef>,
    /// Its attempts, newest first; at most [`PAGE_SIZE`].
    pub runs: Vec<RunSummary>,
    /// Whether a retry is possible; else why not.
    pub may_retry: Result<(), String>,
    /// Whether its own data can be edited in an open proposal of its deployment; else why not.
    pub may_edit: Result<NoderoleDraft, String>,
    /// Whether the reader may propose changes on its node; else why not.
    pub may_propose: Result<(), String>,
    /// What its role says of runs, each with its name: retries, time, what an error stops, priority.
    #[serde(default)]
    pub limits: Vec<(String, String)>,
}

/// A noderole in the open proposal of its deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleDraft {
    /// The proposal.
    pub proposal: ProposalId,
    /// Its version: an edit names it.
    pub version: i32,
    /// Whether an edit makes the reader, who could approve it so far, an author of it.
    #[serde(default)]
    pub would_join: bool,
    /// The noderole's user data, the proposal's edits included.
    pub data: Value,
    /// What holds where that says nothing; secrets masked.
    #[serde(default)]
    pub below: Value,
    /// Whether the proposal lets it run again.
    pub rerun: bool,
}

/// One layer of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataLayer {
    /// `role template`, `deployment role`, `user`, `system`, `wall`.
    pub source: String,
    /// What it says.
    pub value: Value,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Provenance {
    /// A JSON pointer.
    pub path: String,
    /// The value, secrets masked.
    pub value: String,
    /// The layer.
    pub source: String,
}

/// An attribute of a role, for forms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttribView {
    /// Which.
    pub name: String,
    /// Where its value sits, as a JSON pointer.
    pub path: String,
    /// For people.
    pub description: String,
    /// What a value must look like.
    pub schema: Option<Value>,
}

/// A noderole in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleRef {
    /// Which.
    pub id: NoderoleId,
    /// Its role.
    pub role: RoleName,
    /// Its node's name.
    pub fqdn: String,
    /// Now.
    pub state: StepState,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Waits for a worker.
    Queued,
    /// A worker has it.
    Running,
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// Its worker went away.
    Lost,
    /// Somebody stopped it.
    Cancelled,
    /// It was handed back before it started.
    Unstarted,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// The attempt's id, which is its fencing token.
    pub id: RunId,
    /// Whose.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// The node's name.
    pub fqdn: String,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// Now.
    pub state: RunState,
    /// Why it ran although it had run before.
    pub cause: Option<String>,
    /// The target that it carries out.
    pub target: TargetNo,
    /// The worker that has or had it.
    pub worker: Option<String>,
    /// When it was claimed.
    pub queued: At,
    /// When a worker took it.
    pub started: Option<At>,
    /// When it ended.
    pub ended: Option<At>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A run and everything about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunView {
    /// The run.
    pub run: RunSummary,
    /// What it was told, secrets as references.
    pub input: Value,
    /// Where each value of it came from; at most [`VALUES_SHOWN`](crate::values::VALUES_SHOWN).
    pub provenance: Vec<Provenance>,
    /// How many values there are.
    pub values: usize,
    /// What it handed back, however it ended; None: nothing, or it is not kept any more.
    pub result: Option<Value>,
    /// Whether it handed something back that is not kept any more.
    pub result_gone: bool,
    /// What that added to what it was told.
    pub wall: Option<Value>,
    /// All attempts at the same step, newest first; at most [`PAGE_SIZE`].
    pub attempts: Vec<RunSummary>,
    /// The submission that it rests on.
    pub submission: Option<SubmissionId>,
    /// Whether it can be cancelled; else why not.
    pub may_cancel: Result<(), String>,
    /// Bytes of its log.
    pub log_bytes: i64,
    /// The journal's position when this was read.
    pub cursor: i64,
    /// What its role says of runs, each with its name: retries, time, what an error stops, priority.
    #[serde(default)]
    pub limits: Vec<(String, String)>,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPart {
    /// Pieces in order, without gap or overlap.
    pub pieces: Vec<LogPiece>,
    /// Where the next part begins.
    pub next: i64,
    /// Whether the run has ended and this was the last part.
    pub complete: bool,
}

/// A piece of a log as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPiece {
    /// Its first byte's place in the log.
    pub offset: i64,
    /// How many bytes of the log it is. More or fewer than its text has where that stands for bytes that are no UTF-8; then it holds
    /// nothing else.
    pub bytes: i64,
    /// When it came.
    pub at: At,
    /// Its text.
    pub text: String,
}

/// What a search in a log found, and how far it has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogFound {
    /// Lines that have it, in order.
    pub hits: Vec<LogHit>,
    /// Give this to go on behind what was searched.
    pub next: String,
    /// Bytes of the log that were searched, from its beginning.
    pub searched: i64,
    /// Bytes of the log now.
    pub length: i64,
    /// Whether there is more to search.
    pub more: bool,
}

/// A line of a log that has what was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogHit {
    /// The place of the line's first byte in the log.
    pub offset: i64,
    /// The line's number, from 1.
    pub line: i64,
    /// The line, around what was found; at most 200 characters.
    pub text: String,
}

/// A page of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunPage {
    /// In the order that was asked for: newest first, if none was.
    pub runs: Vec<RunSummary>,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
}

/// A target in the line of targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetSummary {
    /// Its place.
    pub number: TargetNo,
    /// What made it.
    pub kind: TargetKind,
    /// The hash of its blueprint's root.
    pub root: String,
    /// Whether steps are started from it on.
    pub enabled: bool,
    /// When it was committed.
    pub at: At,
    /// Who committed it; None: genesis.
    pub by: Option<String>,
    /// The submission that it carries out.
    pub submission: Option<SubmissionId>,
    /// What it is for: that one's title, or the reason of a switch.
    pub title: String,
    /// The deployment that was proposed on.
    pub deployment: Option<String>,
    /// Who proposed it.
    pub authors: Vec<String>,
    /// Who approved it.
    pub approved_by: Vec<String>,
}

/// What made a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// The beginning.
    Genesis,
    /// A reviewed change.
    Change,
    /// Execution was switched on or off; the blueprint is the one before.
    Switch,
}

/// A page of targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetPage {
    /// In the order that was asked for: newest first, if none was.
    pub targets: Vec<TargetSummary>,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
    /// The newest target of all.
    pub head: TargetNo,
    /// The target that removed the deployment whose line it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_in: Option<TargetNo>,
}

/// Two blueprints compared. `docs/blueprint-difference.md` describes it as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The left side.
    pub from: Side,
    /// The right side.
    pub to: Side,
    /// The one deployment that is looked at; None: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    /// Set when only one of the two has that deployment: which. Or when the two have different ones of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// In what they differ.
    pub difference: Difference,
    /// How many deployments and nodes differ that are not among these.
    #[serde(default)]
    pub more: usize,
    /// The last of these documents, if others come behind it: where the next page begins (`after`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
    /// Names of what the difference speaks of by id.
    pub names: Names,
    /// What differs inside of roles that get another content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Versions of barclamps that are pinned otherwise, each with what is seen in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Scripts that the right side uses, the left does not, and that have hidden characters.
    #[serde(default, skip_serializing_if = "Deceiving::is_empty")]
    pub deceiving: Deceiving,
    /// What going from the one to the other would lead to.
    pub consequences: Consequences,
}

/// A proposal that brings a deployment back to what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restored {
    /// The proposal, open and not submitted yet.
    pub proposal: ProposalId,
    /// Its version.
    pub version: i32,
    /// How many edits it has.
    pub edits: usize,
    /// What can't be brought back and was left out, each with the reason.
    pub missing: Vec<String>,
}

/// What a proposal that restores a deployment leaves out, because it can't be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The target that the deployment was to be as of.
    pub target: TargetNo,
    /// What, each with the reason.
    pub missing: Vec<String>,
    /// How many more there are.
    #[serde(default)]
    pub more: usize,
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// The target, if it was asked for as one; or what the submission was planned on.
    pub target: Option<TargetNo>,
    /// The submission, if it is what that would lead to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<SubmissionId>,
    /// The hash of the blueprint's root, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.submission, self.target) {
            (Some(submission), _) => write!(f, "review {submission}")?,
            (None, Some(target)) => write!(f, "target {target}")?,
            (None, None) => f.write_str("blueprint")?,
        }
        self.root.iter().try_for_each(|root| write!(f, " ({})", root.get(..8).unwrap_or(root)))
    }
}

/// Documents of a comparison that a page shows.
pub const DOCUMENTS_SHOWN: usize = 400;

/// Some documents of a difference, how many are left out, and the last one if others follow it.
struct Part {
    difference: Difference,
    more: usize,
    next: Option<Anchor>,
}

impl Part {
    fn of(difference: Difference, skip: usize, most: usize) -> Self {
        let all = difference.documents().count();
        let difference = difference.part(skip, most);
        let here = difference.documents().count();
        let next = difference.documents().last().filter(|_| skip + here < all);
        Self { difference, more: all - here, next }
    }
}

/// How many documents of a difference come up to this one.
fn behind(difference: &Difference, after: Option<&Anchor>) -> Result<usize, crate::Problem> {
    let Some(after) = after else { return Ok(0) };
    let found = difference.documents().position(|document| document == *after);
    found.map(|at| at + 1).ok_or_else(|| {
        crate::Problem::invalid(format!(
            "{after} is none of the documents that differ: give what `next` says."
        ))
    })
}

/// The contents that a difference and its pins speak of, the old one and the new one of each. Only these are told.
pub fn pairs(
    difference: &Difference,
    pins: &[PinChange],
) -> std::collections::BTreeSet<(Hash, Hash)> {
    let roles = difference
        .deployments
        .iter()
        .flat_map(|deployment| &deployment.roles)
        .map(|role| role.contents);
    let noderoles =
        difference.nodes.iter().flat_map(|node| &node.noderoles).map(|noderole| noderole.contents);
    let pinned = pins.iter().flat_map(|pin| &pin.roles).map(|role| Some(role.contents));
    let sides = roles.chain(noderoles).chain(pinned).flatten();
    sides.filter_map(|sides| sides.old.zip(sides.new)).collect()
}

/// Leaves the pins of the deployments that are shown, and the contents that those and what else is shown refer to.
fn keep_shown(
    difference: &Difference,
    pins: &mut Vec<PinChange>,
    contents: &mut Vec<ContentChange>,
) {
    let shown: std::collections::BTreeSet<_> =
        difference.deployments.iter().map(|deployment| deployment.id).collect();
    pins.retain(|pin| shown.contains(&pin.deployment));
    let pairs = pairs(difference, pins);
    contents.retain(|content| pairs.contains(&(content.old, content.new)));
}

impl Comparison {
    /// Only the first documents, for a page; the others are counted.
    #[must_use]
    pub fn cut(self, most: usize) -> Self {
        self.part(0, most)
    }

    /// Only so many documents, those behind `after`; the others are counted.
    ///
    /// # Errors
    /// When `after` is none of the documents that differ.
    pub fn page(self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = behind(&self.difference, after)?;
        Ok(self.part(skip, most))
    }

    fn part(mut self, skip: usize, most: usize) -> Self {
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        (self.difference, self.next) = (difference, next);
        self.more += more;
        self.names = self.names.only(&[&self.difference]);
        keep_shown(&self.difference, &mut self.pins, &mut self.contents);
        self
    }

    /// The comparison as text, for terminals and files.
    pub fn text(&self) -> String {
        let only = self.deployment.iter().map(|name| format!("in   {name}\n")).collect::<String>();
        let note = self.note.iter().map(|note| format!("{note}\n")).collect::<String>();
        let more = match self.more {
            0 => String::new(),
            n => format!("Beside that, {n} documents differ.\n"),
        };
        let difference = self.difference.text(&self.names, &self.behind());
        let deceiving = self.deceiving.text();
        format!("from {}\nto   {}\n{only}{note}\n{difference}{more}{deceiving}", self.from, self.to)
    }

    /// What stands behind the hashes, as far as it is known.
    fn behind(&self) -> Behind {
        let pins = self.pins.iter().map(|pin| {
            let called = |side: &Option<PinnedVersion>| side.as_ref().map(ToString::to_string);
            let versions = Sides { old: called(&pin.old), new: called(&pin.new) };
            let roles = pin.roles.iter().map(|role| (role.role.clone(), role.contents)).collect();
            ((pin.deployment, pin.barclamp.clone()), PinBehind { versions, roles })
        });
        let contents =
            self.contents.iter().map(|content| ((content.old, content.new), content.lines()));
        Behind { pins: pins.collect(), contents: contents.collect() }
    }
}

/// A blueprint that somebody asks for: a target by its number, or any by the hash of its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// In the line of targets.
    Target(TargetNo),
    /// Anywhere.
    Root(Hash),
}

/// A text that names no blueprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no blueprint: give the number of a target, or the 64 digits of a root's hash")]
pub struct NotAPoint(String);

impl Point {
    /// The blueprint that somebody named.
    ///
    /// # Errors
    /// When the text names none.
    pub fn named(text: &str) -> Result<Self, crate::Problem> {
        text.trim().parse().map_err(|error: NotAPoint| crate::Problem::invalid(error.to_string()))
    }
}

impl std::str::FromStr for Point {
    type Err = NotAPoint;
    fn from_str(text: &str) -> Result<Self, NotAPoint> {
        if let Ok(hash) = text.parse() {
            return Ok(Self::Root(hash));
        }
        let number = text.parse().map_err(|_| NotAPoint(text.chars().take(80).collect()))?;
        Ok(Self::Target(TargetNo(number)))
    }
}

/// A submission in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewSummary {
    /// Which.
    pub submission: SubmissionId,
    /// What it is for.
    pub title: String,
    /// On which deployment.
    pub deployment: DeploymentName,
    /// The one node that it may touch, if it is on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Who wrote it.
    pub authors: Vec<String>,
    /// When it was submitted.
    pub at: At,
    /// The gravest of what it does, and how many more changes there are.
    pub summary: String,
    /// Where it stands.
    pub state: ReviewState,
    /// Approvals that count, and how many are needed.
    pub approvals: (u32, u32),
}

/// Where a submission stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    /// Waits for verdicts.
    Waiting,
    /// May be committed.
    Open,
    /// Somebody objects.
    Objected,
    /// An edit takes no effect any more, or lint finds errors: its authors come first.
    Faulty,
    /// Enough approve it; threads of its discussion are open.
    Discussed,
    /// It was planned on something that changed since.
    Stale,
    /// A newer version replaced it.
    Replaced,
    /// What it rested on changed, and the same edits no longer do what was submitted: it is back with its authors.
    SentBack,
    /// It is a target.
    Committed,
    /// Its proposal was discarded.
    Discarded,
}

/// A submission and everything that decides about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewView {
    /// Which.
    pub submission: SubmissionId,
    /// Of which proposal.
    pub proposal: ProposalId,
    /// Which version of that.
    pub version: i32,
    /// What it is for.
    pub title: String,
    /// On which deployment.
    pub deployment: DeploymentName,
    /// The one node that it may touch, if it is on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Where it stands.
    pub state: ReviewState,
    /// Hash of the change.
    pub change_hash: String,
    /// Hash of the effects.
    pub effects_hash: String,
    /// The target that it was planned on.
    pub parent: TargetNo,
    /// The target that it became.
    pub target: Option<TargetNo>,
    /// When it was submitted.
    pub at: At,
    /// Who wrote it.
    pub authors: Vec<String>,
    /// In plain words, most important first.
    pub summary: Vec<String>,
    /// So many of the first lines of `summary` must not be overlooked; of `asked` at most so many. A page folds none of them away.
    #[serde(default)]
    pub grave: usize,
    /// Those of them that say what was asked for; what it leads to is in `consequences`.
    #[serde(default)]
    pub asked: Vec<String>,
    /// What makes it riskier than others.
    pub risks: Vec<Risk>,
    /// What differs.
    pub difference: Difference,
    /// How many documents differ that are not among these; programs read on in the review's `difference`.
    #[serde(default)]
    pub more: usize,
    /// The last of these documents, if there are more: where reading on begins (`after`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
    /// Why noderoles come along: `brought by app`.
    pub brought: std::collections::BTreeMap<NoderoleId, String>,
    /// Names of deployments that the difference speaks of.
    pub deployments: std::collections::BTreeMap<DeploymentId, DeploymentName>,
    /// Names of noderoles that others wait for, before or after.
    #[serde(default)]
    pub noderoles: std::collections::BTreeMap<NoderoleId, text::Place>,
    /// What differs inside of roles that get another content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Versions of barclamps that it pins or unpins, each with what was seen before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Scripts that it begins to use and that have hidden characters.
    #[serde(default, skip_serializing_if = "Deceiving::is_empty")]
    pub deceiving: Deceiving,
    /// Set where it brings back a part of what a deployment was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Where one author's edit overrules another's, as of its submission.
    #[serde(default)]
    pub clashes: Vec<ClashView>,
    /// The order in which it will run.
    pub waves: Vec<WaveView>,
    /// What it leads to: on the states of steps now if it is `fresh`, else as it was when it was submitted.
    #[serde(default)]
    pub consequences: Consequences,
    /// What lint finds: now if it is `fresh`, else as it was when it was submitted.
    #[serde(default)]
    pub checks: Vec<Finding>,
    /// Whether it was worked out on what is there now. What is closed, replaced or stale is shown as it was submitted.
    #[serde(default)]
    pub fresh: bool,
    /// What a commit would not start at once, and why: execution is off, a deployment is held.
    #[serde(default)]
    pub waits: Vec<String>,
    /// The gate.
    pub gate: GateState,
    /// All verdicts, newest first.
    pub verdicts: Vec<VerdictView>,
    /// Whether the policy demands that approvals are signed with a passkey.
    #[serde(default)]
    pub signature_needed: bool,
    /// Whether the reader has a confirmed passkey to sign with.
    #[serde(default)]
    pub may_sign: bool,
    /// Whether this person may judge; else why not.
    pub may_judge: Result<(), String>,
    /// Whether this person may commit now; else why not.
    pub may_commit: Result<(), String>,
    /// The name that has to be typed to commit it, because it can't be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_to_commit: Option<String>,
    /// Set when this is the plan anew of another one, whose base had moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_from: Option<Replanned>,
    /// What became of it when its base moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub became: Option<Replanned>,
}

impl ReviewView {
    /// Only the first documents that differ, and what is said of those; the others are counted.
    #[must_use]
    pub fn cut(self, most: usize) -> Self {
        self.part(0, most)
    }

    /// Only so many documents, those behind `after`, and what is said of those; the others are counted.
    ///
    /// # Errors
    /// When `after` is none of the documents that differ.
    pub fn page(self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = behind(&self.difference, after)?;
        Ok(self.part(skip, most))
    }

    fn part(mut self, skip: usize, most: usize) -> Self {
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        (self.difference, self.next) = (difference, next);
        self.more += more;
        let noderoles = self
            .difference
            .nodes
            .iter()
            .flat_map(|node| &node.noderoles)
            .map(|noderole| noderole.id);
        let noderoles: std::collections::BTreeSet<NoderoleId> = noderoles.collect();
        self.brought.retain(|id, _| noderoles.contains(id));
        for replanned in self.came_from.iter_mut().chain(&mut self.became) {
            replanned.cut(most);
        }
        let shift = self.came_from.iter().flat_map(|came| [&came.shift.before, &came.shift.after]);
        let shown: Vec<&Difference> = shift.chain([&self.difference]).collect();
        let names = Names { deployments: self.deployments, noderoles: self.noderoles }.only(&shown);
        (self.deployments, self.noderoles) = (names.deployments, names.noderoles);
        keep_shown(&self.difference, &mut self.pins, &mut self.contents);
        self
    }
}

/// A submission whose base moved, and what planning its edits anew came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replanned {
    /// The one whose base moved. It can't be approved or committed any more.
    pub before: SubmissionId,
    /// The one that took its place; None: the proposal is back with its authors, open for edits.
    pub after: Option<SubmissionId>,
    /// The target that it was planned anew on.
    pub target: TargetNo,
    /// What had changed: `web (target 12)`.
    pub moved: Vec<String>,
    /// Whose verdicts on the one before don't count any more.
    pub dropped: Vec<String>,
    /// Whether both do the same, each compared with its own base.
    pub same_effect: bool,
    /// In what they don't.
    pub shift: Shift,
    /// Documents of that which are left out.
    #[serde(default)]
    pub more: usize,
    /// Why the proposal was sent back: edits that no longer take effect, or documents that would change differently than submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<problem::Finding>,
}

impl Replanned {
    /// Only the first documents of what shifted; the others are counted.
    fn cut(&mut self, most: usize) {
        for side in [&mut self.shift.before, &mut self.shift.after] {
            let part = Part::of(std::mem::take(side), 0, most);
            self.more += part.more;
            *side = part.difference;
        }
    }
}

/// What runs together, as far as lanes and nodes allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveView {
    /// From 1.
    pub number: u32,
    /// Roles and how many nodes each: `app on 3 nodes, one by one`.
    pub items: Vec<String>,
    /// Noderoles in it.
    pub noderoles: usize,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerdictView {
    /// Whose.
    pub person: String,
    /// What.
    pub kind: VerdictKind,
    /// Why.
    pub reason: String,
    /// When.
    pub at: At,
    /// Whether it counts now.
    pub counts: bool,
    /// Whether it is the reader's own.
    pub yours: bool,
    /// The name of the passkey that signed it. Absent: it is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
}

/// What is said of a proposal, over all its submissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Discussion {
    /// The submission that is looked at.
    pub submission: SubmissionId,
    /// Threads, oldest first.
    pub threads: Vec<ThreadView>,
    /// Threads that are open: they keep the gate shut.
    pub open: usize,
    /// Whether this person may open a thread or reply; else why not.
    pub may_write: Result<(), String>,
}

/// A thread of a discussion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadView {
    /// The comment that opened it.
    pub id: CommentId,
    /// The submission that it was opened on.
    pub submission: SubmissionId,
    /// The change that it speaks of.
    pub anchor: Anchor,
    /// The same in words: `app on n1, /app/port`.
    pub about: String,
    /// Whether the submission that is looked at still has that change.
    pub stands: bool,
    /// What was said, oldest first.
    pub comments: Vec<CommentView>,
    /// Who resolved it, and when; None: it is open.
    pub resolved: Option<(String, At)>,
    /// Whether this person may resolve it; else why not.
    pub may_resolve: Result<(), String>,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommentView {
    /// Which.
    pub id: CommentId,
    /// Whose.
    pub person: String,
    /// The text.
    pub body: String,
    /// When.
    pub at: At,
}

/// What a submission changes against the one that this person looked at before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SinceLook {
    /// The submission that is looked at.
    pub submission: SubmissionId,
    /// The one that they looked at before; None: this is the first of its proposal that they look at.
    pub before: Option<SubmissionId>,
    /// Whether both do the same: what was planned anew came to the same effect.
    pub same_effect: bool,
    /// How what it would bring about differs; only documents that either of them changes.
    pub difference: Difference,
    /// Names of noderoles that others wait for in one of them.
    #[serde(default)]
    pub noderoles: std::collections::BTreeMap<NoderoleId, text::Place>,
    /// What differs inside of roles that have another content in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Versions of barclamps that both pin, or only one of them, and that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Documents that differ beside those.
    #[serde(default)]
    pub more: usize,
    /// The last of them, if others follow: `?after=` it has those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
}

impl SinceLook {
    /// Only so many documents, those behind `after`; the others are counted.
    ///
    /// # Errors
    /// When `after` is none of the documents that differ.
    pub fn page(mut self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = behind(&self.difference, after)?;
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        let names = Names { deployments: Default::default(), noderoles: self.noderoles }
            .only(&[&difference]);
        (self.difference, self.next, self.noderoles) = (difference, next, names.noderoles);
        self.more += more;
        keep_shown(&self.difference, &mut self.pins, &mut self.contents);
        Ok(self)
    }
}

/// Two contents of a role, and in what they differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContentChange {
    /// Before.
    pub old: Hash,
    /// After.
    pub new: Hash,
    /// Values of its definition; scripts by name, with their content's short hash and their place in the order.
    pub changes: Vec<Change>,
    /// Scripts that differ, with their text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
}

impl ContentChange {
    /// In what they differ, one line each: the definition value by value, then the scripts.
    pub fn lines(&self) -> Vec<String> {
        // That a script is another one is told of the file.
        let is_file = |path: &str| path.starts_with("/scripts/") && !path.ends_with("/place");
        let values =
            self.changes.iter().filter(|change| !is_file(&change.path)).map(ToString::to_string);
        values.chain(self.files.iter().map(ToString::to_string)).collect()
    }
}

/// Lines of a file that are compared, from its beginning.
pub const FILE_LINES: usize = 2000;

/// A file that two contents have otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// Its name.
    pub name: String,
    /// How.
    pub mark: Mark,
    /// The whole of it before, by which it can be asked for.
    pub old: Option<Hash>,
    /// The whole of it after.
    pub new: Option<Hash>,
    /// In what.
    pub text: FileText,
}

/// `* script 10-cut.sh: +1 -1 lines`.
impl std::fmt::Display for FileChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.mark {
            Mark::Added => '+',
            Mark::Removed => '-',
            Mark::Changed => '*',
        };
        let name = engine::text::shown(&self.name);
        write!(f, "{sign} script {name}: ")?;
        match &self.text {
            FileText::Lines { lines, cut } => {
                let of = |mark| lines.iter().filter(|line| line.mark == mark).count();
                write!(f, "+{} -{} lines", of(LineMark::Added), of(LineMark::Removed))?;
                if *cut { f.write_str(", and it goes on behind what was compared") } else { Ok(()) }
            }
            FileText::Binary { old, new } => {
                let bytes = |side: &Option<u64>| {
                    side.map_or_else(|| "nothing".to_owned(), |n| format!("{n} bytes"))
                };
                write!(f, "changed, and no text: {} -> {}", bytes(old), bytes(new))
            }
            FileText::Left => f.write_str("changed; there are too many to compare them all"),
        }
    }
}

/// How a file's text differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FileText {
    /// Line by line.
    Lines {
        /// Those that differ, with a few around them.
        lines: Vec<FileLine>,
        /// Whether the file goes on behind what was compared, or a line behind what is shown of it.
        cut: bool,
    },
    /// It is no text.
    Binary {
        /// Bytes before.
        old: Option<u64>,
        /// Bytes after.
        new: Option<u64>,
    },
    /// There are too many files to compare this one.
    Left,
}

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileLine {
    /// How.
    pub mark: LineMark,
    /// Its number: before, of one that is removed, else after.
    pub number: Option<u32>,
    /// What it says; what can't be seen is spelled out.
    pub text: String,
}

/// How a line differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LineMark {
    /// It is the same.
    Kept,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Here lines are left out that are the same.
    Gap,
}

/// A version of a barclamp that a deployment pins otherwise than before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinChange {
    /// Where.
    pub deployment: DeploymentId,
    /// Of what.
    pub barclamp: BarclampName,
    /// What is seen there before; None: nothing.
    pub old: Option<PinnedVersion>,
    /// What is seen there after; None: nothing.
    pub new: Option<PinnedVersion>,
    /// Roles that differ between the two and that the deployment's own changes don't name, since it does not use them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<PinnedRole>,
}

/// A version as a deployment sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedVersion {
    /// As its file calls it.
    pub version: String,
    /// Short hash.
    pub hash: String,
    /// The deployment above that pins it; None: the deployment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<DeploymentName>,
}

/// `2 (a1b2c3d4), from system`.
impl std::fmt::Display for PinnedVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.version, self.hash)?;
        self.from.iter().try_for_each(|name| write!(f, ", from {name}"))
    }
}

/// A role that another version has otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedRole {
    /// Which.
    pub role: RoleName,
    /// Its contents; None on a side that has no such role.
    pub contents: Sides<Option<Hash>>,
}

/// Scripts with hidden characters: such that can't be seen, or that turn the direction of reading, so what runs is not what is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deceiving {
    /// Some of them, by barclamp, role and file.
    pub scripts: Vec<DeceivingScript>,
    /// How many more there are.
    #[serde(default)]
    pub more: usize,
}

impl Deceiving {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    fn text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let lines: String = self.scripts.iter().map(|script| format!("  {script}\n")).collect();
        let more =
            if self.more > 0 { format!("  and {} more\n", self.more) } else { String::new() };
        format!(
            "\nScripts with hidden characters, so that what they run is not what they show:\n{lines}{more}"
        )
    }
}

/// A script with hidden characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeceivingScript {
    /// Whose.
    pub barclamp: BarclampName,
    /// Of which of its roles.
    pub role: RoleName,
    /// The file's name.
    pub file: String,
    /// The whole of it, by which it can be asked for.
    pub hash: Hash,
    /// Where the first such character is: the line, and the place in it.
    pub at: (u32, u32),
    /// What there is: `the script has the character U+202E, ...`.
    pub what: String,
}

impl std::fmt::Display for DeceivingScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { barclamp, role, file, at: (line, column), what, .. } = self;
        write!(f, "{role} of {barclamp}, {file}:{line}:{column}: {what}")
    }
}

/// How much of a submission a person has opened, in documents: deployments and nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Opened {
    /// Documents that the submission changes.
    pub all: usize,
    /// Those whose change they opened, as it is now.
    pub opened: std::collections::BTreeSet<Anchor>,
    /// Those whose change they opened in an earlier submission, where it was another.
    pub outdated: std::collections::BTreeSet<Anchor>,
}

impl Opened {
    /// Takes in what another answer says. What was opened stays opened, whichever of two answers came first.
    pub fn more(&mut self, other: Self) {
        self.all = other.all;
        self.opened.extend(other.opened);
        self.outdated.extend(other.outdated);
        self.outdated.retain(|anchor| !self.opened.contains(anchor));
    }
}

/// A node that somebody wants to add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeWish {
    /// Its name; empty: it is derived from what follows.
    #[serde(default)]
    pub fqdn: String,
    /// MAC addresses of its network cards, in any usual notation.
    #[serde(default)]
    pub macs: Vec<String>,
    /// Its serial number.
    #[serde(default)]
    pub serial: String,
    /// Where a derived name lies; empty: `nodes.gantry.internal`.
    #[serde(default)]
    pub domain: String,
    /// The folder that stands for its file system: on the worker's machine, or, with `ssh`, there; empty is then all of it.
    #[serde(default)]
    pub root: String,
    /// How it is reached; absent: it is a folder of the worker's machine.
    #[serde(default)]
    pub ssh: Option<SshWish>,
}

/// How a machine is reached by SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SshWish {
    /// Names or numbers, tried in this order.
    pub addresses: Vec<String>,
    /// The port of all of them.
    #[serde(default = "usual_port")]
    pub port: u16,
    /// As whom.
    #[serde(default = "usual_user")]
    pub user: String,
    /// The secret that has the private key, by name; workers have it as a file.
    pub key: String,
    /// Which of its versions.
    #[serde(default = "first_version")]
    pub key_version: i64,
    /// The host key, as `ssh-keyscan` prints it behind the name: `ssh-ed25519 AAAA...`. No other one is ever taken.
    pub host_key: String,
}

fn usual_port() -> u16 {
    22
}

fn usual_user() -> String {
    "root".into()
}

fn first_version() -> i64 {
    1
}

impl SshWish {
    /// What is left out stands as usual; where it is, and how it is known, is nowhere usual.
    pub fn usual() -> Self {
        Self {
            addresses: Vec::new(),
            port: usual_port(),
            user: usual_user(),
            key: String::new(),
            key_version: first_version(),
            host_key: String::new(),
        }
    }
}

impl NodeWish {
    /// One with a name.
    pub fn named(fqdn: impl Into<String>, root: impl Into<String>) -> Self {
        Self { fqdn: fqdn.into(), root: root.into(), ..Self::default() }
    }
}

/// A node in the list of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeSummary {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: String,
    /// Where it belongs.
    pub deployment: DeploymentName,
    /// Whether it is alive.
    pub alive: bool,
    /// Whether steps may start on it.
    pub available: bool,
    /// `local` or `ssh`.
    pub transport: String,
    /// Why it was not reached when somebody looked last.
    #[serde(default)]
    pub unreached: Option<String>,
    /// Its steps.
    pub steps: StateCounts,
    /// Whether it is a record alone: no target speaks of it, so it can be taken out without a review.
    #[serde(default)]
    pub record: bool,
}

/// A page of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodePage {
    /// In the order that was asked for: by their names, if none was.
    pub nodes: Vec<NodeSummary>,
    /// Give this to get the next page.
    pub next: Option<Cursor>,
}

/// How something in a graph is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// By the state of its step.
    State(StepState),
    /// A change adds it.
    Added,
    /// A change removes it.
    Removed,
    /// A change makes it another, or lets it run again.
    Changed,
    /// It depends on what a change runs again or takes away, and stays as it is: the blast radius.
    Downstream,
    /// It stands beside a change and stays as it is.
    Around,
}

/// A graph of noderoles, folded as its reader asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphView {
    /// Of which deployment.
    pub deployment: DeploymentName,
    /// The same, for the live stream's topic.
    pub deployment_id: DeploymentId,
    /// The target at which it was meant like this, when it is not the present: then nothing is said of states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetNo>,
    /// In a fixed order: positions stay from one view to the next.
    pub vertices: Vec<GraphVertex>,
    /// From what is waited for to what waits, as places in `vertices`.
    pub edges: Vec<GraphEdge>,
    /// Noderoles in the whole graph.
    pub noderoles: usize,
    /// Edges in the whole graph.
    pub wires: usize,
    /// The last wave of the whole graph.
    pub waves: u32,
    /// Set when what was asked for is too much for one picture: what was left folded, and what to do.
    pub cut: Option<String>,
    /// What the marked part is, when one was asked for.
    pub trail: Option<GraphTrail>,
    /// The journal's position when this was read.
    pub cursor: i64,
}

/// The part of a graph that somebody asked to have marked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphTrail {
    /// What it is and how much there is on it; or that there is nothing, and why.
    pub said: String,
    /// How many noderoles are on it.
    pub noderoles: usize,
    /// Of the longest way: its noderoles, from the first; the first [`WAY_TOLD`] of more.
    pub way: Vec<GraphWaypoint>,
}

/// Noderoles of a way that are told one by one.
pub const WAY_TOLD: usize = 100;

/// A noderole of a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphWaypoint {
    /// Which.
    pub id: NoderoleId,
    /// `app on n1`.
    pub name: String,
    /// How long its last successful run took, in milliseconds, when that was asked for and there is one.
    pub took: Option<u64>,
}

/// A role, or one noderole of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphVertex {
    /// Names it in addresses: `web:app`, or a noderole's id.
    pub key: String,
    /// The role.
    pub role: RoleName,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// Set for a single noderole.
    pub one: Option<GraphNoderole>,
    /// How many noderoles it stands for.
    pub members: usize,
    /// Of these, how many look how; none that is zero.
    pub looks: Vec<(Look, usize)>,
    /// The first and the last wave of these.
    pub waves: Option<(u32, u32)>,
    /// How many of these are on the trail.
    pub on_trail: usize,
}

/// A noderole of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphNoderole {
    /// Which.
    pub id: NoderoleId,
    /// Its node's first label, and the instance beyond the first.
    pub short: String,
    /// Its node's whole name.
    pub fqdn: String,
    /// Whether it has a page of its own: what a change would add has none yet.
    pub has_page: bool,
}

/// An edge of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphEdge {
    /// What is waited for.
    pub from: usize,
    /// What waits.
    pub to: usize,
    /// How many edges of noderoles it stands for; after a change, if the graph is of one.
    pub count: usize,
    /// The strongest kind among them.
    pub kind: EdgeKind,
    /// How many of them are on the trail.
    pub on_trail: usize,
    /// How many of them the change adds.
    #[serde(default)]
    pub added: usize,
    /// How many more there were before it.
    #[serde(default)]
    pub gone: usize,
}

/// What a reader of a graph asks for. Everything at once: it is the page's address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GraphWish {
    /// Roles whose noderoles are shown one by one.
    pub roles: Vec<RoleName>,
    /// Nodes whose noderoles are shown one by one, by full or short name.
    pub nodes: Vec<String>,
    /// Shows only this vertex (by key) and what it waits for and what waits for it.
    pub focus: Option<String>,
    /// Which of these; both unless said.
    pub way: GraphWay,
    /// Of these, the ones that are at most so many edges away; all unless said.
    pub steps: Option<u32>,
    /// What is to be marked.
    pub trail: Option<TrailWish>,
    /// Shows the noderoles of the trail alone, one by one.
    pub only_trail: bool,
    /// Of a deployment: as it was meant at this target. Without it: as it is meant now, or was last.
    pub target: Option<TargetNo>,
}

impl GraphWish {
    /// The words by which a page's address and the interface ask for it; lists by comma. What is not asked for is left out.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let of_focus = self.focus.is_some();
        let way = match self.way {
            GraphWay::Both => None,
            GraphWay::Up => Some("up"),
            GraphWay::Down => Some("down"),
        };
        let (from, to, longest) = match &self.trail {
            None => (None, None, None),
            Some(TrailWish::From(from)) => (Some(from.clone()), None, None),
            Some(TrailWish::Between(from, to)) => (Some(from.clone()), Some(to.clone()), None),
            Some(TrailWish::Longest(Length::Count)) => (None, None, Some("count")),
            Some(TrailWish::Longest(Length::Time)) => (None, None, Some("time")),
        };
        let roles: Vec<&str> = self.roles.iter().map(RoleName::as_str).collect();
        let all = [
            ("roles", Some(roles.join(",")).filter(|list| !list.is_empty())),
            ("nodes", Some(self.nodes.join(",")).filter(|list| !list.is_empty())),
            ("focus", self.focus.clone()),
            ("way", way.filter(|_| of_focus).map(str::to_owned)),
            ("steps", self.steps.filter(|_| of_focus).map(|steps| steps.to_string())),
            ("from", from),
            ("to", to),
            ("longest", longest.map(str::to_owned)),
            ("target", self.target.map(|target| target.to_string())),
            ("only", self.only_trail.then(|| "trail".to_owned())),
        ];
        all.into_iter().filter_map(|(word, said)| Some((word, said?))).collect()
    }
}

/// What is to be marked in a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrailWish {
    /// Nothing yet: a path is to begin at this vertex, and its end is still to be chosen.
    From(String),
    /// Every way between two vertices, by key.
    Between(String, String),
    /// The longest way.
    Longest(Length),
}

/// What makes a way long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// How many noderoles follow one another.
    Count,
    /// How long their last successful runs took.
    Time,
}

/// Which way to look from what is focused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GraphWay {
    /// To what it waits for and to what waits for it.
    #[default]
    Both,
    /// To what it waits for.
    Up,
    /// To what waits for it.
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::blueprint::difference::{DeploymentDifference, NodeDifference};
    use engine::ids::Fqdn;

    /// Three deployments, and five nodes that move to the first of them.
    fn comparison() -> Comparison {
        let id = |n: usize| DeploymentId(Uuid::from_u128(n as u128));
        let name = |n: usize| DeploymentName::parse(&format!("d{n}")).unwrap();
        let deployment = |n: usize| DeploymentDifference {
            id: id(n),
            name: name(n),
            mark: Mark::Changed,
            renamed: None,
            parent: None,
            phantom: None,
            inactive_jigs: Vec::new(),
            barclamps: Vec::new(),
            roles: Vec::new(),
        };
        let node = |n: usize| NodeDifference {
            id: NodeId(Uuid::from_u128(n as u128)),
            fqdn: Fqdn::parse(&format!("n{n}.example.com")).unwrap(),
            mark: Mark::Changed,
            renamed: None,
            phantom: None,
            moved: Some((None, Some(id(1)))),
            connection: None,
            hints: Vec::new(),
            noderoles: Vec::new(),
            unchanged: 0,
        };
        let side = Side { target: Some(TargetNo(1)), submission: None, root: None };
        Comparison {
            from: side.clone(),
            to: side,
            deployment: None,
            note: None,
            difference: Difference {
                deployments: (1..=3).map(deployment).collect(),
                nodes: (1..=5).map(node).collect(),
                unchanged: 9,
                ..Difference::default()
            },
            more: 0,
            next: None,
            contents: Vec::new(),
            pins: Vec::new(),
            deceiving: Deceiving::default(),
            names: Names {
                deployments: (1..=7).map(|n| (id(n), name(n))).collect(),
                ..Names::default()
            },
            consequences: Consequences::default(),
        }
    }

    #[test]
    fn what_was_opened_stays_opened_in_whatever_order_answers_come() {
        let anchor = |n: u128| Anchor::Node(NodeId(Uuid::from_u128(n)));
        let sets = |opened: &[u128], outdated: &[u128]| Opened {
            all: 3,
            opened: opened.iter().map(|n| anchor(*n)).collect(),
            outdated: outdated.iter().map(|n| anchor(*n)).collect(),
        };
        let (earlier, later) = (sets(&[1], &[2, 3]), sets(&[1, 2], &[3]));
        for order in [[earlier.clone(), later.clone()], [later.clone(), earlier]] {
            let mut known = sets(&[], &[2, 3]);
            order.into_iter().for_each(|answer| known.more(answer));
            assert_eq!(known, later);
        }
    }

    #[test]
    fn a_comparison_is_read_page_by_page_and_comes_to_the_whole() {
        let whole = comparison().difference;
        for most in 1..=9 {
            let (mut read, mut after) =
                (Difference { unchanged: 9, ..Difference::default() }, None);
            loop {
                let page = comparison().page(after.as_ref(), most).unwrap();
                let here = page.difference.documents().count();
                assert!((1..=most).contains(&here));
                assert_eq!(page.more + here, 8, "the others are counted");
                assert!(
                    page.names.deployments.len() <= here + 1,
                    "named is what is there: {:?}",
                    page.names
                );
                read.deployments.extend(page.difference.deployments);
                read.nodes.extend(page.difference.nodes);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(read, whole, "{most} at a time");
        }
        let end = comparison().page(whole.documents().last().as_ref(), 3).unwrap();
        assert_eq!((end.difference.is_empty(), end.next, end.more), (true, None, 8));
        let strange =
            comparison().page(Some(&Anchor::Node(NodeId(Uuid::from_u128(99)))), 3).unwrap_err();
        assert_eq!(strange.status, 400);
    }

    #[test]
    fn the_text_says_versions_and_scripts() {
        use engine::blueprint::difference::{BarclampDifference, RoleDifference};
        let hash = |n: u128| Hash::of_bytes(&n.to_be_bytes());
        let (barclamp, app) =
            (BarclampName::parse("tool").unwrap(), RoleName::parse("app").unwrap());
        let version = |version: &str, from: Option<&str>| PinnedVersion {
            version: version.into(),
            hash: "0a1b2c3d".into(),
            from: from.map(|name| DeploymentName::parse(name).unwrap()),
        };
        let line = |mark| FileLine { mark, number: None, text: "rm -r /".into() };
        let file = |name: &str, mark, text| FileChange {
            name: name.into(),
            mark,
            old: None,
            new: None,
            text,
        };
        let lines =
            [LineMark::Kept, LineMark::Added, LineMark::Added, LineMark::Gap, LineMark::Removed];
        let changed = FileText::Lines { lines: lines.map(line).into(), cut: false };
        let cut = FileText::Lines { lines: [LineMark::Removed].map(line).into(), cut: true };
        let value = |path: &str| Change {
            path: path.into(),
            kind: engine::data::ChangeKind::Changed,
            old: Some(1.into()),
            new: Some(2.into()),
            secret: false,
        };
        let contents = Sides { old: Some(hash(1)), new: Some(hash(2)) };
        let mut told = comparison();
        told.difference =
            Difference { deployments: told.difference.deployments, ..Difference::default() };
        told.difference.deployments.truncate(1);
        let deployment = &mut told.difference.deployments[0];
        let id = deployment.id;
        deployment.barclamps = vec![BarclampDifference {
            barclamp: barclamp.clone(),
            mark: Mark::Removed,
            old: Some("0a1b2c3d".into()),
            new: None,
        }];
        deployment.roles = vec![RoleDifference {
            role: app,
            mark: Mark::Changed,
            content: true,
            contents: Some(Sides { old: contents.old, new: contents.new }),
            data: Vec::new(),
        }];
        let (old, new) = (Some(version("2", None)), Some(version("1", Some("system"))));
        told.pins = vec![PinChange { deployment: id, barclamp, old, new, roles: Vec::new() }];
        told.contents = vec![ContentChange {
            old: hash(1),
            new: hash(2),
            changes: vec![
                value("/run/timeout"),
                value("/scripts/10-a.sh/content"),
                value("/scripts/10-a.sh/place"),
            ],
            files: vec![
                file("10-a.sh", Mark::Changed, changed),
                file("20-b.sh", Mark::Removed, cut),
                file("30-c.bin", Mark::Added, FileText::Binary { old: None, new: Some(7) }),
                file("40-d.sh", Mark::Changed, FileText::Left),
            ],
        }];
        let text = told.text();
        let (_, text) = text.split_once("\n\n").unwrap();
        let expected = format!(
            "* deployment d1\n  * barclamp tool: 2 (0a1b2c3d) -> 1 (0a1b2c3d), from system\n  * role app: {} -> {}\n    \
             /run/timeout: 1 -> 2\n    /scripts/10-a.sh/place: 1 -> 2\n    * script 10-a.sh: +2 -1 lines\n    \
             - script 20-b.sh: +0 -1 lines, and it goes on behind what was compared\n    \
             + script 30-c.bin: changed, and no text: nothing -> 7 bytes\n    \
             * script 40-d.sh: changed; there are too many to compare them all\n",
            hash(1).short(),
            hash(2).short(),
        );
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn a_part_has_the_pins_and_contents_of_what_it_shows() {
        let hash = |n: u128| Hash::of_bytes(&n.to_be_bytes());
        let pin = |n: u128| PinChange {
            deployment: DeploymentId(Uuid::from_u128(n)),
            barclamp: BarclampName::parse("web").unwrap(),
            old: None,
            new: None,
            roles: vec![PinnedRole {
                role: RoleName::parse("app").unwrap(),
                contents: Sides { old: Some(hash(n)), new: Some(hash(n + 100)) },
            }],
        };
        let content = |n: u128| ContentChange {
            old: hash(n),
            new: hash(n + 100),
            changes: Vec::new(),
            files: Vec::new(),
        };
        let whole = || Comparison {
            pins: (1..=3).map(pin).collect(),
            contents: (1..=4).map(content).collect(),
            ..comparison()
        };
        let first = whole().cut(2);
        assert_eq!(
            (first.pins, first.contents),
            ((1..=2).map(pin).collect(), (1..=2).map(content).collect())
        );
        let rest = whole().page(first.next.as_ref(), 9).unwrap();
        assert_eq!((&rest.pins, rest.contents), (&vec![pin(3)], vec![content(3)]));
        assert!(rest.pins.iter().all(|pin| rest.names.deployments.contains_key(&pin.deployment)));
        let since = SinceLook {
            submission: SubmissionId(2),
            before: Some(SubmissionId(1)),
            same_effect: false,
            difference: whole().difference,
            noderoles: Default::default(),
            contents: whole().contents,
            pins: whole().pins,
            more: 0,
            next: None,
        };
        let since = since.page(None, 2).unwrap();
        assert_eq!((since.pins.len(), since.contents.len()), (2, 2));
    }

    #[test]
    fn what_is_new_since_a_look_is_read_page_by_page_and_a_shift_is_bounded() {
        let whole = comparison().difference;
        let since = || SinceLook {
            submission: SubmissionId(2),
            before: Some(SubmissionId(1)),
            same_effect: false,
            difference: whole.clone(),
            noderoles: Default::default(),
            contents: Vec::new(),
            pins: Vec::new(),
            more: 0,
            next: None,
        };
        let first = since().page(None, 5).unwrap();
        assert_eq!((first.difference.documents().count(), first.more), (5, 3));
        let rest = since().page(first.next.as_ref(), 5).unwrap();
        assert_eq!((rest.difference.documents().count(), rest.more, rest.next), (3, 5, None));
        let strange =
            since().page(Some(&Anchor::Node(NodeId(Uuid::from_u128(99)))), 3).unwrap_err();
        assert_eq!(strange.status, 400);

        let mut replanned = Replanned {
            before: SubmissionId(1),
            after: None,
            target: TargetNo(2),
            moved: Vec::new(),
            dropped: Vec::new(),
            same_effect: false,
            shift: Shift { before: whole.clone(), after: whole.clone() },
            more: 0,
            refused: Vec::new(),
        };
        replanned.cut(6);
        let Shift { before, after } = &replanned.shift;
        assert_eq!(
            (before.documents().count(), after.documents().count(), replanned.more),
            (6, 6, 4)
        );
    }
}
