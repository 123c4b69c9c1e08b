//! Views of the console's pages: one struct for each page or part of a page.
//!
//! Lists are limited by the code that fills them, and have a count of the rest. Texts are ready for
//! display. Every value that a page bases a decision on is a field of its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::At;
use crate::listing::Cursor;
use crate::problem;
use crate::reviews::Waiting;
use engine::Hash;
use engine::blueprint::difference::{Mark, Sides};
use engine::blueprint::text::{self, Behind, Names, PinDescription};
use engine::blueprint::{Anchor, Consequences, Difference, Shift};
use engine::cluster::{EdgeKind, NoderoleKey};
use engine::data::Change;
use engine::gate::{GateResult, Policy, Risk, VerdictKind};
use engine::ids::{
    ActionName, BarclampName, BlueprintNumber, CommentId, DeploymentId, DeploymentName, JigName,
    NodeId, NoderoleId, PersonId, ProposalId, ReviewId, RoleName, RunId,
};
use engine::lint::Finding;
use engine::plan::clash::Over;
pub use engine::plan::ground::Ground;
pub use engine::plan::lift::{Brought, DropPreview, IllegalNode, RoleDropPreview};
use engine::plan::{NumberedEdit, Refusal};

/// Maximum number of noderoles in a cell of the board. The rest is shown as a count.
pub const MAX_NODEROLES_PER_CELL: usize = 24;
/// Maximum number of rows on a page of a list.
pub const PAGE_SIZE: usize = 50;

/// The signed-in person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Me {
    /// Id of the person.
    pub id: PersonId,
    /// Short name.
    pub name: String,
    /// Permissions: `viewer`, `operator`, `reviewer`, `admin`.
    pub permissions: Vec<String>,
    /// Id of the session, or null if the request did not use one.
    pub session: Option<Uuid>,
}

/// The frame around every page. Only signed-in people get it, so it reveals nothing to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// The signed-in person.
    pub me: Me,
    /// Reviews that you can approve, reject or commit now.
    pub reviews_waiting: Waiting,
    /// Whether execution is on, or null if you can't see it.
    pub execution: Option<bool>,
    /// Journal position of this view, to start a live stream from. Null if you can't read the
    /// journal.
    pub cursor: Option<i64>,
    /// The last reset of your sign-in by an admin, until you dismiss it.
    #[serde(default)]
    pub reset: Option<crate::people::AccessNotice>,
}

/// State of a step. `proposed` marks an addition of a draft and is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// A draft adds the step.
    Proposed,
    /// The step waits for other steps.
    Blocked,
    /// The step is ready to run.
    Todo,
    /// The step runs or is about to run.
    Transition,
    /// The step is applied.
    Active,
    /// The step failed.
    Error,
}

impl StepState {
    /// The name for people.
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

    /// The name in CSS classes and in the database.
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

/// Numbers of steps by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateCounts {
    /// Steps in BLOCKED.
    pub blocked: i64,
    /// Steps in TODO.
    pub todo: i64,
    /// Steps in TRANSITION.
    pub transition: i64,
    /// Steps in ACTIVE.
    pub active: i64,
    /// Steps in ERROR.
    pub error: i64,
}

impl StateCounts {
    /// The number of steps in a state. Proposed noderoles are not steps yet, so they are not
    /// counted.
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
    /// Id of the deployment.
    pub id: DeploymentId,
    /// Name of the deployment.
    pub name: DeploymentName,
    /// Number of levels below *system*.
    pub depth: u32,
    /// Number of nodes.
    pub nodes: i64,
    /// Its steps by state.
    pub steps: StateCounts,
    /// Number of the open proposal.
    pub proposal: Option<ProposalId>,
    /// Number of the open review.
    pub submission: Option<ReviewId>,
    /// The blueprint that last changed it.
    pub target: BlueprintNumber,
}

/// A page of the list of deployments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentPage {
    /// The deployments. By default, children follow their parent and siblings are sorted by name.
    pub deployments: Vec<DeploymentSummary>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// The board of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Board {
    /// Id of the deployment.
    pub id: DeploymentId,
    /// Name of the deployment.
    pub name: DeploymentName,
    /// Names of its ancestors, from *system* down to its parent.
    pub above: Vec<DeploymentName>,
    /// Whether it is *system*, the root of the tree.
    pub system: bool,
    /// The person who put it on hold.
    pub held_by: Option<String>,
    /// The hold that applies: its own or an ancestor's.
    #[serde(default)]
    pub hold: Option<HoldView>,
    /// Priority. Ready steps of deployments with a higher priority run first. Default: 0.
    #[serde(default)]
    pub priority: i32,
    /// The blueprint that last changed it.
    pub target: BlueprintNumber,
    /// The open proposal. The board includes its additions.
    pub proposal: Option<ProposalView>,
    /// Roles by barclamp. Roles of ancestors that run on the deployment's nodes come last.
    pub groups: Vec<BoardGroup>,
    /// Steps of the deployment's own noderoles that are left out of full cells. Together with the
    /// listed noderoles they are all of its steps.
    #[serde(default)]
    pub beyond: StateCounts,
    /// Nodes that can be bound here: the deployment's own and those of its ancestors.
    pub tray: Vec<TrayNode>,
    /// Number of further nodes.
    pub tray_more: usize,
    /// Roles that can be added.
    pub choices: Vec<RoleChoice>,
    /// Barclamp versions that can be used. Empty unless a proposal is open.
    #[serde(default)]
    pub versions: Vec<VersionChoice>,
    /// Barclamp versions that the deployment pins itself, including the draft's. Empty unless a
    /// proposal is open.
    #[serde(default)]
    pub own_versions: Vec<OwnVersion>,
    /// This deployment and its descendants, including the draft's: the deployments that a proposal
    /// can move nodes to. Empty unless a proposal is open.
    #[serde(default)]
    pub places: Vec<PlaceChoice>,
    /// Jigs of the barclamps in use, with the draft's changes. Empty unless a proposal is open.
    #[serde(default)]
    pub jigs: Vec<JigView>,
    /// The approval policy of all deployments: the draft's or the one in force. Null unless a
    /// proposal is open.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Whether you can make proposals here. Otherwise the reason.
    pub may_propose: Result<(), String>,
    /// Journal position of this view.
    pub cursor: i64,
}

/// A deployment that a node can be moved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlaceChoice {
    /// Id of the deployment.
    pub id: DeploymentId,
    /// Name of the deployment.
    pub name: DeploymentName,
    /// Whether it exists only in the draft.
    pub proposed: bool,
}

/// A jig, which runs the steps of its class in all deployments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JigView {
    /// Name of the jig.
    pub jig: JigName,
    /// Whether steps of this jig start.
    pub active: bool,
    /// Number of roles that use it, among the barclamps in use.
    pub roles: usize,
}

/// A hold: no new runs start in a deployment and its descendants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldView {
    /// The deployment on hold: this one or an ancestor.
    pub deployment: DeploymentName,
    /// The person who put it on hold.
    pub by: String,
    /// Reason of the hold.
    pub reason: String,
}

/// The roles of one barclamp on a board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoardGroup {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Name of the ancestor that the noderoles belong to, if they do.
    pub of_ancestor: Option<DeploymentName>,
    /// Its roles, milestones first.
    pub roles: Vec<BoardRole>,
}

/// A role on a board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoardRole {
    /// Name of the role.
    pub role: RoleName,
    /// Description for people.
    pub description: String,
    /// Jig, concurrency group and flags, for example `script`, `one by one`, `destructive`.
    pub traits: Vec<String>,
    /// Whether it can be bound manually on this board.
    pub bindable: bool,
    /// Whether the draft adds it to the deployment.
    pub proposed: bool,
    /// The deployment's data for the role, with the draft's edits.
    pub data: Value,
    /// Default values from the role's template, with secrets masked.
    #[serde(default)]
    pub below: Value,
    /// Schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// Its noderoles, at most 24.
    pub chips: Vec<Chip>,
    /// Number of further noderoles.
    pub more: usize,
}

/// A noderole in a cell of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chip {
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// Id of the node.
    pub node: NodeId,
    /// Full name of the node.
    pub fqdn: String,
    /// First label of the node's name.
    pub short: String,
    /// State of the step, or `proposed` if the noderole exists only in the draft.
    pub state: StepState,
    /// Role that requires a noderole which the draft adds.
    pub brought_by: Option<String>,
    /// Whether the draft changes it (data, a re-run).
    pub touched: bool,
    /// Whether the draft removes it.
    #[serde(default)]
    pub going: bool,
    /// Whether the node is alive.
    pub alive: bool,
    /// Error message, shortened.
    pub error: Option<String>,
}

/// A node that can be bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrayNode {
    /// Id of the node.
    pub node: NodeId,
    /// Full name of the node.
    pub fqdn: String,
    /// First label of the node's name.
    pub short: String,
    /// The deployment that it belongs to, with the draft's moves.
    pub deployment: DeploymentName,
    /// Whether it is alive.
    pub alive: bool,
    /// Number of its noderoles, with the draft's.
    pub noderoles: usize,
}

/// Maximum number of noderoles in a list of one role.
pub const MAX_NODES_WITH_ROLE: usize = 1_000;

/// Filters of the list of a role's noderoles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CarriersWanted {
    /// Name of the role.
    pub role: RoleName,
    /// Name of the ancestor that the role belongs to, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_ancestor: Option<String>,
    /// Name or id of a node. Empty matches all nodes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Id of the last noderole of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<NoderoleId>,
}

impl CarriersWanted {
    /// Selects all noderoles of the deployment's own role.
    pub fn of(role: RoleName) -> Self {
        Self { role, of_ancestor: None, node: String::new(), after: None }
    }
}

/// All noderoles of a role, including those that do not fit in a cell of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carriers {
    /// The noderoles by node name, with the draft's, at most 1,000.
    pub chips: Vec<Chip>,
    /// Number of further noderoles. To get them, pass the last noderole's id as `after`.
    pub more: usize,
}

/// A role that can be added to a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleChoice {
    /// Name of the role.
    pub role: RoleName,
    /// The barclamp of the role.
    pub barclamp: BarclampName,
    /// Description for people.
    pub description: String,
    /// Whether it is a milestone.
    pub milestone: bool,
}

/// A barclamp version that a deployment can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionChoice {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: Hash,
    /// Whether the deployment uses it, by its own pin or an ancestor's, with the draft's edits.
    pub using: bool,
    /// Things that the version in use has and this one lacks.
    pub lacks: Vec<String>,
}

/// A barclamp version that a deployment pins itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnVersion {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: Hash,
    /// The version that applies without the pin, or null if the barclamp is then no longer
    /// available.
    pub above: Option<FromAbove>,
}

/// A barclamp version that an ancestor pins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FromAbove {
    /// The deployment that pins it.
    pub from: DeploymentName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: Hash,
    /// Things that the deployment's own version has and this one lacks.
    pub lacks: Vec<String>,
}

/// A page of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CatalogPage {
    /// The versions by barclamp, newest first.
    pub versions: Vec<BarclampVersion>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A barclamp version in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarclampVersion {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: String,
    /// Description for people.
    pub description: String,
    /// Number of roles.
    pub roles: usize,
    /// Time of the import.
    pub imported: At,
    /// The person who imported it, or null if Gantry ships it.
    pub by: Option<String>,
    /// Deployments that pin it.
    pub used_by: Vec<DeploymentName>,
    /// The version that was imported before it.
    pub before: Option<String>,
    /// Things that the earlier version has and this one lacks.
    pub disappeared: Vec<String>,
    /// Scripts with hidden characters.
    #[serde(default, skip_serializing_if = "Deceiving::is_empty")]
    pub deceiving: Deceiving,
}

/// Preview of a proposal with further edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Foreseen {
    /// Reasons why edits can't take effect. Empty if all can.
    pub refused: Vec<String>,
    /// Description of the whole proposal, most important first.
    pub lines: Vec<String>,
}

/// An open proposal in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalSummary {
    /// Number of the proposal.
    pub id: ProposalId,
    /// Scope of the proposal.
    pub scope: ScopeView,
    /// Version of the proposal.
    pub version: i32,
    /// People who edited it.
    pub authors: Vec<String>,
    /// Number of edits, without undone ones.
    pub edits: usize,
    /// The review of this version, if it was submitted.
    pub submission: Option<ReviewId>,
}

/// Scope of a proposal: a deployment and its descendants, or one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeView {
    /// The deployment. For a proposal on a node, the node's deployment when the proposal was
    /// opened.
    pub deployment: DeploymentName,
    /// The node, if the scope is a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<ScopeNode>,
}

/// The node of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeNode {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub fqdn: String,
}

/// A proposal on a node, with the available edits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeProposal {
    /// Scope of the proposal.
    pub scope: ScopeView,
    /// The proposal.
    pub proposal: ProposalView,
    /// Noderoles of the node, with the draft's edits.
    pub carries: Vec<NodeRole>,
    /// Roles that can be bound to the node.
    pub choices: Vec<NodeChoice>,
    /// Whether you can edit it. Otherwise the reason.
    pub may_edit: Result<(), String>,
    /// Journal position of this view.
    pub cursor: i64,
}

/// A noderole of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRole {
    /// The noderole.
    pub noderole: NoderoleKey,
    /// The deployment that it is bound in.
    pub deployment: DeploymentName,
    /// Whether it exists only in the draft.
    pub proposed: bool,
}

/// A noderole with the edits of a proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DraftedNoderole {
    /// Its user data, with the proposal's edits.
    pub data: Value,
    /// Values that apply without user data, with secrets masked.
    pub below: Value,
    /// Schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// Whether it exists only in the proposal.
    pub proposed: bool,
    /// Whether the proposal runs it again.
    pub rerun: bool,
}

/// A role that can be bound to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeChoice {
    /// Id of the deployment.
    pub deployment: DeploymentId,
    /// Name of the deployment.
    pub name: DeploymentName,
    /// Name of the role.
    pub role: RoleName,
}

/// A conflict of two people's edits in a proposal: the later edit overrides the earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClashView {
    /// Number of the earlier edit.
    pub earlier: u32,
    /// Author of the earlier edit.
    pub earlier_by: String,
    /// Number of the later edit, which takes effect.
    pub later: u32,
    /// Author of the later edit.
    pub later_by: String,
    /// Subject of both edits.
    pub over: Over,
    /// The subject as text, for example `/port of app`.
    pub about: String,
}

/// An open proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalView {
    /// Number of the proposal.
    pub id: ProposalId,
    /// Version, which increases with every edit, undo and redo. Commands with another version are
    /// rejected.
    pub version: i32,
    /// Title of the proposal.
    pub title: String,
    /// Its authors: people who made, undid or redid an edit. They can't approve it.
    pub authors: Vec<String>,
    /// Whether an edit, undo, redo or submission makes you an author, so that you can no longer
    /// approve it.
    #[serde(default)]
    pub would_join: bool,
    /// Whether other people opened it or contributed edits, so that discarding it affects their
    /// work too.
    #[serde(default)]
    pub of_others: bool,
    /// Its edits, oldest first, including undone ones.
    pub edits: Vec<EditView>,
    /// The edit that undo would revert, as text.
    pub undo: Option<String>,
    /// The edit that redo would restore, as text.
    pub redo: Option<String>,
    /// Number of noderoles that it adds.
    pub added: usize,
    /// Number of noderoles that it removes.
    pub removed: usize,
    /// Number of noderoles that it runs again.
    pub reruns: usize,
    /// Edits that can't take effect.
    pub refused: Vec<Refusal>,
    /// Conflicts between edits of different people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clashes: Vec<ClashView>,
    /// The review of this version, if it was submitted.
    pub submission: Option<ReviewId>,
    /// Set while the proposal is back with its authors because the base of its review changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<Replanned>,
    /// Set if the proposal restores only a part of a deployment's earlier state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
}

/// An edit as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditView {
    /// Number of the edit.
    pub seq: u32,
    /// Description, for example `bind web-1 to app`.
    pub text: String,
    /// Author of the edit.
    pub actor: String,
    /// Time of the edit.
    pub at: At,
    /// Whether it was undone.
    pub undone: bool,
    /// People who undid or redid it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched_by: Vec<String>,
}

/// Data that a browser needs to plan an open proposal itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannerView {
    /// Version of the ground. It changes whenever the ground does.
    pub stamp: String,
    /// The data to plan with. Null if the client has the ground of this stamp. Also null if the
    /// ground is too large to send; then only the server can plan.
    pub ground: Option<Ground>,
    /// Number of the proposal.
    pub proposal: ProposalId,
    /// Version of the proposal.
    pub version: i32,
    /// Its edits, without undone ones.
    pub edits: Vec<NumberedEdit>,
    /// Number of the next edit.
    pub next: u32,
    /// Hash of the edits' effects.
    pub effects: Hash,
}

/// A noderole with its state, data and runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleView {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// Description of the role.
    pub description: String,
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node.
    pub fqdn: String,
    /// The deployment that it is bound in.
    pub deployment: DeploymentName,
    /// Id of the deployment, for live stream topics.
    pub deployment_id: DeploymentId,
    /// State of the step.
    pub state: StepState,
    /// Time of the last change of the state.
    pub since: At,
    /// Reasons of the state, each with the action that changes it.
    pub why: Vec<String>,
    /// Error message.
    pub error: Option<String>,
    /// Generation: the blueprint that last changed or re-ran it.
    pub generation: BlueprintNumber,
    /// The blueprint that it last applied, or null if it applied none.
    pub applied: Option<BlueprintNumber>,
    /// Short content hash of the role.
    pub role_hash: String,
    /// Its own data by layer, from lowest to highest precedence.
    pub layers: Vec<DataLayer>,
    /// All layers merged.
    pub merged: Value,
    /// Source of each merged value, at most 200.
    pub provenance: Vec<Provenance>,
    /// Number of merged values.
    pub values: usize,
    /// Output: the additions of the last successful run.
    pub wall: Value,
    /// Schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// Noderoles that it depends on.
    pub parents: Vec<NoderoleRef>,
    /// Noderoles that depend on it, at most 50.
    pub children: Vec<NoderoleRef>,
    /// Its runs, newest first, at most 50.
    pub runs: Vec<RunSummary>,
    /// Whether you can retry it. Otherwise the reason.
    pub may_retry: Result<(), String>,
    /// Its draft in an open proposal, if you can edit it there. Otherwise the reason.
    pub may_edit: Result<NoderoleDraft, String>,
    /// Whether you can propose changes on its node. Otherwise the reason.
    pub may_propose: Result<(), String>,
    /// Limits of runs from the role (retries, timeout, error scope, priority), as pairs of name and
    /// value.
    #[serde(default)]
    pub limits: Vec<(String, String)>,
}

/// A noderole in the open proposal of its deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleDraft {
    /// Number of the proposal.
    pub proposal: ProposalId,
    /// Version of the proposal, to send with an edit.
    pub version: i32,
    /// Whether an edit makes you an author, so that you can no longer approve it.
    #[serde(default)]
    pub would_join: bool,
    /// User data of the noderole, with the proposal's edits.
    pub data: Value,
    /// Values that apply without user data, with secrets masked.
    #[serde(default)]
    pub below: Value,
    /// Whether the proposal runs it again.
    pub rerun: bool,
}

/// A layer of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataLayer {
    /// `role template`, `deployment role`, `user`, `system` or `wall`.
    pub source: String,
    /// Values of the layer.
    pub value: Value,
}

/// A value with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Provenance {
    /// Path of the value, as a JSON pointer.
    pub path: String,
    /// The value, with secrets masked.
    pub value: String,
    /// The layer that sets the value.
    pub source: String,
}

/// An attribute of a role, for forms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttribView {
    /// Name of the attribute.
    pub name: String,
    /// Path of its value, as a JSON pointer.
    pub path: String,
    /// Description for people.
    pub description: String,
    /// JSON Schema of its value.
    pub schema: Option<Value>,
}

/// A noderole in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleRef {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// Name of the node.
    pub fqdn: String,
    /// State of the step.
    pub state: StepState,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run waits for a worker.
    Queued,
    /// A worker executes the run.
    Running,
    /// The run succeeded.
    Succeeded,
    /// The run failed.
    Failed,
    /// The worker's lease expired.
    Lost,
    /// A person canceled the run.
    Cancelled,
    /// The worker returned the run before it started.
    Unstarted,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// Run number, which is also the fencing token.
    pub id: RunId,
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// The action of the step: `run`, or `remove` for a noderole that is removed.
    #[serde(default = "ActionName::run", skip_serializing_if = "ActionName::is_run")]
    pub action: ActionName,
    /// Name of the node.
    pub fqdn: String,
    /// The deployment that the noderole is bound in.
    pub deployment: DeploymentName,
    /// State of the run.
    pub state: RunState,
    /// Reason of a re-run.
    pub cause: Option<String>,
    /// The blueprint that it executes.
    pub target: BlueprintNumber,
    /// The worker that executes or executed it.
    pub worker: Option<String>,
    /// Time when it was queued.
    pub queued: At,
    /// Time when a worker leased it.
    pub started: Option<At>,
    /// Time when it ended.
    pub ended: Option<At>,
    /// Error message.
    pub error: Option<String>,
}

/// A run with its input and result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunView {
    /// The run.
    pub run: RunSummary,
    /// Input, with secrets as references.
    pub input: Value,
    /// Source of each input value, at most 200.
    pub provenance: Vec<Provenance>,
    /// Number of input values.
    pub values: usize,
    /// Result of the run, also of a failed one. Null if it returned none or it is no longer stored.
    pub result: Option<Value>,
    /// Whether it returned a result that is no longer stored.
    pub result_gone: bool,
    /// Output: the difference between result and input.
    pub wall: Option<Value>,
    /// All runs of the same step, newest first, at most 50.
    pub attempts: Vec<RunSummary>,
    /// The review that approved the run's blueprint.
    pub submission: Option<ReviewId>,
    /// Whether you can cancel it. Otherwise the reason.
    pub may_cancel: Result<(), String>,
    /// Length of the log, in bytes.
    pub log_bytes: i64,
    /// Journal position of this view.
    pub cursor: i64,
    /// Limits of runs from the role (retries, timeout, error scope, priority), as pairs of name and
    /// value.
    #[serde(default)]
    pub limits: Vec<(String, String)>,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPart {
    /// Consecutive pieces, without gaps or overlaps.
    pub pieces: Vec<LogPiece>,
    /// Offset of the next part.
    pub next: i64,
    /// Whether the run has ended and this is the last part.
    pub complete: bool,
}

/// A piece of a log, as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPiece {
    /// Offset of its first byte in the log.
    pub offset: i64,
    /// Length in bytes of the log. It differs from the length of `text` if the piece is invalid
    /// UTF-8. Then `text` is only a note about it.
    pub bytes: i64,
    /// Time when it was received.
    pub at: At,
    /// Text of the piece.
    pub text: String,
}

/// Result of a search in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogFound {
    /// Matching lines, in order.
    pub hits: Vec<LogHit>,
    /// Cursor to continue the search.
    pub next: String,
    /// Number of bytes searched so far, from the start of the log.
    pub searched: i64,
    /// Current length of the log, in bytes.
    pub length: i64,
    /// Whether there is more to search.
    pub more: bool,
}

/// A line of a log that matches a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogHit {
    /// Offset of the line's first byte in the log.
    pub offset: i64,
    /// Line number, starting at 1.
    pub line: i64,
    /// Text of the line around the match, at most 200 characters.
    pub text: String,
}

/// A page of the list of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunPage {
    /// The runs, newest first by default.
    pub runs: Vec<RunSummary>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A blueprint in the target history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetSummary {
    /// Blueprint number.
    pub number: BlueprintNumber,
    /// Kind of the blueprint.
    pub kind: TargetKind,
    /// Hash of its root object.
    pub root: String,
    /// Whether execution is on from this blueprint.
    pub enabled: bool,
    /// Time of the commit.
    pub at: At,
    /// The person who committed it, or null for genesis.
    pub by: Option<String>,
    /// The review that it commits.
    pub submission: Option<ReviewId>,
    /// Title of the review, or reason of a switch.
    pub title: String,
    /// The deployment that the proposal was on.
    pub deployment: Option<String>,
    /// Authors of the proposal.
    pub authors: Vec<String>,
    /// People who approved it.
    pub approved_by: Vec<String>,
}

/// Kind of a blueprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// The initial blueprint.
    Genesis,
    /// A reviewed change.
    Change,
    /// Execution was turned on or off. The content equals the previous blueprint's.
    Switch,
}

/// A page of the list of blueprints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetPage {
    /// The blueprints, newest first by default.
    pub targets: Vec<TargetSummary>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
    /// Number of the newest blueprint.
    pub head: BlueprintNumber,
    /// The blueprint that removed the deployment, if the list is limited to a removed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_in: Option<BlueprintNumber>,
}

/// A comparison of two blueprints. `docs/blueprint-difference.md` describes its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The left side.
    pub from: Side,
    /// The right side.
    pub to: Side,
    /// The deployment that the comparison is limited to, or null for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    /// Set if only one side has the deployment, or if the sides have different deployments of this
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Differences between the two sides.
    pub difference: Difference,
    /// Number of deployments and nodes that differ but are left out here.
    #[serde(default)]
    pub more: usize,
    /// The last document of this page, as `after` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
    /// Names of the ids in the difference.
    pub names: Names,
    /// Changes within roles whose content differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Changed pins of barclamp versions, with the versions that apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Scripts with hidden characters that only the right side uses.
    #[serde(default, skip_serializing_if = "Deceiving::is_empty")]
    pub deceiving: Deceiving,
    /// Impact of a change from the left to the right side.
    pub consequences: Consequences,
}

/// A proposal that restores an earlier state of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restored {
    /// Number of the proposal, which is open and not submitted.
    pub proposal: ProposalId,
    /// Version of the proposal.
    pub version: i32,
    /// Number of edits.
    pub edits: usize,
    /// Things that can't be restored, each with the reason.
    pub missing: Vec<String>,
}

/// Things that a restoring proposal leaves out because they can't be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The blueprint with the state to restore.
    pub target: BlueprintNumber,
    /// The missing things, each with the reason.
    pub missing: Vec<String>,
    /// Number of further missing things.
    #[serde(default)]
    pub more: usize,
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// Blueprint number, if the request named one. For a review, the blueprint that it is based on.
    pub target: Option<BlueprintNumber>,
    /// The review, if this side is the result of a review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<ReviewId>,
    /// Hash of the blueprint's root object, if known.
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

/// Maximum number of documents in a comparison on one page.
pub const MAX_DOCUMENTS: usize = 400;

/// Some documents of a difference, the number left out, and the last document if others follow.
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

/// The number of documents up to and including `after`.
fn behind(difference: &Difference, after: Option<&Anchor>) -> Result<usize, crate::Problem> {
    let Some(after) = after else { return Ok(0) };
    let found = difference.documents().position(|document| document == *after);
    found.map(|at| at + 1).ok_or_else(|| {
        crate::Problem::invalid(format!(
            "Invalid value {after} for `after`. Use the `next` value of the previous page."
        ))
    })
}

/// Pairs of old and new role contents that a difference and its pins refer to. Only these may be
/// shown.
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
    let pinned_roles = pins.iter().flat_map(|pin| &pin.roles).map(|role| Some(role.contents));
    let sides = roles.chain(noderoles).chain(pinned_roles).flatten();
    sides.filter_map(|sides| sides.old.zip(sides.new)).collect()
}

/// Keeps only the pins of the shown deployments, and the contents that the shown parts refer to.
fn retain_shown(
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
    /// Keeps the first `most` documents and counts the others.
    #[must_use]
    pub fn cut(self, most: usize) -> Self {
        self.part(0, most)
    }

    /// Keeps at most `most` documents after `after`, and counts the others.
    ///
    /// # Errors
    /// If `after` is not one of the differing documents.
    pub fn page(self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = behind(&self.difference, after)?;
        Ok(self.part(skip, most))
    }

    fn part(mut self, skip: usize, most: usize) -> Self {
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        (self.difference, self.next) = (difference, next);
        self.more += more;
        self.names = self.names.only(&[&self.difference]);
        retain_shown(&self.difference, &mut self.pins, &mut self.contents);
        self
    }

    /// The comparison as text, for terminals and files.
    pub fn text(&self) -> String {
        let only = self.deployment.iter().map(|name| format!("in   {name}\n")).collect::<String>();
        let note = self.note.iter().map(|note| format!("{note}\n")).collect::<String>();
        let more = match self.more {
            0 => String::new(),
            n => format!("{n} more documents differ.\n"),
        };
        let difference = self.difference.text(&self.names, &self.behind());
        let deceiving = self.deceiving.text();
        format!("from {}\nto   {}\n{only}{note}\n{difference}{more}{deceiving}", self.from, self.to)
    }

    /// The known content of each hash.
    fn behind(&self) -> Behind {
        let pins = self.pins.iter().map(|pin| {
            let called = |side: &Option<PinnedVersion>| side.as_ref().map(ToString::to_string);
            let versions = Sides { old: called(&pin.old), new: called(&pin.new) };
            let roles = pin.roles.iter().map(|role| (role.role.clone(), role.contents)).collect();
            ((pin.deployment, pin.barclamp.clone()), PinDescription { versions, roles })
        });
        let contents =
            self.contents.iter().map(|content| ((content.old, content.new), content.lines()));
        Behind { pins: pins.collect(), contents: contents.collect() }
    }
}

/// A blueprint in a request: a number of the target history, or the hash of a root object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    Target(BlueprintNumber),
    Root(Hash),
}

/// A text that is neither a blueprint number nor a hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid blueprint {0:?}. Use the number of a target, or the hash of a root (64 \
    hexadecimal digits)."
)]
pub struct InvalidBlueprintRef(String);

impl Point {
    /// Parses a blueprint number or the hash of a root object.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn named(text: &str) -> Result<Self, crate::Problem> {
        text.trim()
            .parse()
            .map_err(|error: InvalidBlueprintRef| crate::Problem::invalid(error.to_string()))
    }
}

impl std::str::FromStr for Point {
    type Err = InvalidBlueprintRef;
    fn from_str(text: &str) -> Result<Self, InvalidBlueprintRef> {
        if let Ok(hash) = text.parse() {
            return Ok(Self::Root(hash));
        }
        let number =
            text.parse().map_err(|_| InvalidBlueprintRef(text.chars().take(80).collect()))?;
        Ok(Self::Target(BlueprintNumber(number)))
    }
}

/// A review in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewSummary {
    /// Review number.
    pub submission: ReviewId,
    /// Title of the review.
    pub title: String,
    /// The deployment that the proposal is on.
    pub deployment: DeploymentName,
    /// Name of the node, if the scope is a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Authors of the proposal.
    pub authors: Vec<String>,
    /// Time of submission.
    pub at: At,
    /// The most important change, and the number of further changes.
    pub summary: String,
    /// State of the review.
    pub state: ReviewState,
    /// Number of valid approvals, and number of required approvals.
    pub approvals: (u32, u32),
}

/// State of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    /// The review waits for verdicts.
    Waiting,
    /// The review can be committed.
    Open,
    /// A person objects.
    Objected,
    /// An edit no longer takes effect, or lint reports errors. The authors must edit the proposal.
    Faulty,
    /// The review has enough approvals, but threads of its discussion are open.
    Discussed,
    /// The review's base has changed.
    Stale,
    /// A newer version replaced the review.
    Replaced,
    /// The base changed, and the same edits no longer have the submitted effect. The proposal is
    /// back with its authors.
    SentBack,
    /// The review is committed.
    Committed,
    /// The proposal was discarded.
    Discarded,
}

/// A review with its differences, verdicts and gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewView {
    /// Review number.
    pub submission: ReviewId,
    /// Number of the proposal.
    pub proposal: ProposalId,
    /// Version of the proposal.
    pub version: i32,
    /// Title of the review.
    pub title: String,
    /// The deployment that the proposal is on.
    pub deployment: DeploymentName,
    /// Name of the node, if the scope is a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// State of the review.
    pub state: ReviewState,
    /// Hash of the change.
    pub change_hash: String,
    /// Hash of the effects.
    pub effects_hash: String,
    /// The blueprint that it is based on.
    pub parent: BlueprintNumber,
    /// The blueprint that it was committed as.
    pub target: Option<BlueprintNumber>,
    /// Time of submission.
    pub at: At,
    /// Authors of the proposal.
    pub authors: Vec<String>,
    /// Description of the change, most important first.
    pub summary: Vec<String>,
    /// Number of leading lines of `summary` that pages must always show. The same limit applies to
    /// `asked`.
    #[serde(default)]
    pub grave: usize,
    /// Lines of `summary` about the requested changes. Their impact is in `consequences`.
    #[serde(default)]
    pub asked: Vec<String>,
    /// Risk classes of the change.
    pub risks: Vec<Risk>,
    /// Differences to the base.
    pub difference: Difference,
    /// Number of documents that differ but are left out here. The review's `difference` resource
    /// has all.
    #[serde(default)]
    pub more: usize,
    /// The last document of this page, as `after` for the rest. Absent if there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
    /// Reasons of required noderoles, for example `brought by app`.
    pub brought: std::collections::BTreeMap<NoderoleId, String>,
    /// Names of the deployments in the difference.
    pub deployments: std::collections::BTreeMap<DeploymentId, DeploymentName>,
    /// Names of noderoles that others depend on, before or after the change.
    #[serde(default)]
    pub noderoles: std::collections::BTreeMap<NoderoleId, text::Place>,
    /// Changes within roles whose content differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Pins of barclamp versions that it adds or removes, with the versions that applied before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Scripts with hidden characters that the change starts to use.
    #[serde(default, skip_serializing_if = "Deceiving::is_empty")]
    pub deceiving: Deceiving,
    /// Set if the proposal restores only a part of a deployment's earlier state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Conflicts between edits of different authors, at the time of submission.
    #[serde(default)]
    pub clashes: Vec<ClashView>,
    /// Execution order in waves.
    pub waves: Vec<WaveView>,
    /// Impact of the change: on the current states of steps if `fresh` is true, otherwise at
    /// submission.
    #[serde(default)]
    pub consequences: Consequences,
    /// Lint findings: current ones if `fresh` is true, otherwise those at submission.
    #[serde(default)]
    pub checks: Vec<Finding>,
    /// Whether the view is based on the current state. Closed, replaced and stale reviews are shown
    /// as submitted.
    #[serde(default)]
    pub fresh: bool,
    /// Reasons why steps would not start right after a commit: execution is off, or a deployment is
    /// on hold.
    #[serde(default)]
    pub waits: Vec<String>,
    /// State of the approval gate.
    pub gate: GateResult,
    /// All verdicts, newest first.
    pub verdicts: Vec<VerdictView>,
    /// Whether the policy requires approvals to be signed with a passkey.
    #[serde(default)]
    pub signature_needed: bool,
    /// Whether you have a confirmed passkey to sign with.
    #[serde(default)]
    pub may_sign: bool,
    /// Whether you can give a verdict. Otherwise the reason.
    pub may_judge: Result<(), String>,
    /// Whether you can commit it now. Otherwise the reason.
    pub may_commit: Result<(), String>,
    /// The name to type at commit, because the change can't be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_to_commit: Option<String>,
    /// Set if this review replaces one whose base changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_from: Option<Replanned>,
    /// Set if the base of this review changed: its replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub became: Option<Replanned>,
}

impl ReviewView {
    /// Keeps the first `most` differing documents and their details, and counts the others.
    #[must_use]
    pub fn cut(self, most: usize) -> Self {
        self.part(0, most)
    }

    /// Keeps at most `most` documents after `after` with their details, and counts the others.
    ///
    /// # Errors
    /// If `after` is not one of the differing documents.
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
        let shift = self
            .came_from
            .iter()
            .flat_map(|previous| [&previous.shift.before, &previous.shift.after]);
        let shown: Vec<&Difference> = shift.chain([&self.difference]).collect();
        let names = Names { deployments: self.deployments, noderoles: self.noderoles }.only(&shown);
        (self.deployments, self.noderoles) = (names.deployments, names.noderoles);
        retain_shown(&self.difference, &mut self.pins, &mut self.contents);
        self
    }
}

/// A review whose base changed, and the result of replanning its edits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replanned {
    /// The review whose base changed. It can no longer be approved or committed.
    pub before: ReviewId,
    /// The review that replaced it, or null if the proposal is back with its authors.
    pub after: Option<ReviewId>,
    /// The blueprint that the new plan is based on.
    pub target: BlueprintNumber,
    /// Changes of the base, for example `web (target 12)`.
    pub moved: Vec<String>,
    /// People whose verdicts on the earlier review no longer count.
    pub dropped: Vec<String>,
    /// Whether both reviews have the same effect, each compared with its own base.
    pub same_effect: bool,
    /// Differences between the effects of the two reviews.
    pub shift: Shift,
    /// Number of documents left out of `shift`.
    #[serde(default)]
    pub more: usize,
    /// Reasons why the proposal is back with its authors. Edits no longer take effect, or documents
    /// would change in another way than submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<problem::Finding>,
}

impl Replanned {
    /// Keeps the first `most` documents on each side of the shift, and counts the others.
    fn cut(&mut self, most: usize) {
        for side in [&mut self.shift.before, &mut self.shift.after] {
            let part = Part::of(std::mem::take(side), 0, most);
            self.more += part.more;
            *side = part.difference;
        }
    }
}

/// A wave: noderoles that can run at the same time, as far as concurrency groups and nodes allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveView {
    /// Wave number, starting at 1.
    pub number: u32,
    /// Roles with their number of nodes, for example `app on 3 nodes, one by one`.
    pub items: Vec<String>,
    /// Number of noderoles.
    pub noderoles: usize,
}

/// A verdict on a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerdictView {
    /// The person who gave it.
    pub person: String,
    /// Kind of the verdict.
    pub kind: VerdictKind,
    /// Reason of the verdict.
    pub reason: String,
    /// Time of the verdict.
    pub at: At,
    /// Whether it counts now.
    pub counts: bool,
    /// Whether it is your own.
    pub yours: bool,
    /// Name of the passkey that signed it. Absent if it is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
}

/// The discussion of a proposal, across all its reviews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Discussion {
    /// The review that this view is for.
    pub submission: ReviewId,
    /// Threads, oldest first.
    pub threads: Vec<ThreadView>,
    /// Number of open threads. They block the gate.
    pub open: usize,
    /// Whether you can open a thread or reply. Otherwise the reason.
    pub may_write: Result<(), String>,
}

/// A thread of a discussion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadView {
    /// The comment that opened it.
    pub id: CommentId,
    /// The review that it was opened on.
    pub submission: ReviewId,
    /// The change that it is about.
    pub anchor: Anchor,
    /// The change as text, for example `app on n1, /app/port`.
    pub about: String,
    /// Whether the review of this view still contains that change.
    pub stands: bool,
    /// Comments, oldest first.
    pub comments: Vec<CommentView>,
    /// The person who resolved it and the time, or null if it is open.
    pub resolved: Option<(String, At)>,
    /// Whether you can resolve it. Otherwise the reason.
    pub may_resolve: Result<(), String>,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommentView {
    /// Number of the comment.
    pub id: CommentId,
    /// The person who wrote it.
    pub person: String,
    /// Text of the comment.
    pub body: String,
    /// Time of the comment.
    pub at: At,
}

/// Changes of a review since you last viewed an earlier review of the same proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SinceLook {
    /// The review of this view.
    pub submission: ReviewId,
    /// The review that you viewed before, or null if this is the first one of the proposal.
    pub before: Option<ReviewId>,
    /// Whether both have the same effect.
    pub same_effect: bool,
    /// Differences between the results of the two reviews, for documents that either of them
    /// changes.
    pub difference: Difference,
    /// Names of noderoles that others depend on in either review.
    #[serde(default)]
    pub noderoles: std::collections::BTreeMap<NoderoleId, text::Place>,
    /// Changes within roles whose content differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Pins of barclamp versions that differ between the two reviews.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Number of documents that differ but are left out here.
    #[serde(default)]
    pub more: usize,
    /// The last document of this page, as `after` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Anchor>,
}

impl SinceLook {
    /// Keeps at most `most` documents after `after`, and counts the others.
    ///
    /// # Errors
    /// If `after` is not one of the differing documents.
    pub fn page(mut self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = behind(&self.difference, after)?;
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        let names = Names { deployments: Default::default(), noderoles: self.noderoles }
            .only(&[&difference]);
        (self.difference, self.next, self.noderoles) = (difference, next, names.noderoles);
        self.more += more;
        retain_shown(&self.difference, &mut self.pins, &mut self.contents);
        Ok(self)
    }
}

/// Two contents of a role and their differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContentChange {
    /// Content hash before.
    pub old: Hash,
    /// Content hash after.
    pub new: Hash,
    /// Changes of the definition. Scripts appear with their name, short content hash and order.
    pub changes: Vec<Change>,
    /// Scripts that differ, with their text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
}

impl ContentChange {
    /// The differences, one per line: first the definition, then the scripts.
    pub fn lines(&self) -> Vec<String> {
        // The file's own line reports a changed script.
        let is_file = |path: &str| path.starts_with("/scripts/") && !path.ends_with("/place");
        let values =
            self.changes.iter().filter(|change| !is_file(&change.path)).map(ToString::to_string);
        values.chain(self.files.iter().map(ToString::to_string)).collect()
    }
}

/// Maximum number of lines of a file that are compared, from its start.
pub const MAX_FILE_LINES: usize = 2000;

/// A file that differs between two contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// File name.
    pub name: String,
    /// Kind of the difference.
    pub mark: Mark,
    /// Hash of the old file.
    pub old: Option<Hash>,
    /// Hash of the new file.
    pub new: Option<Hash>,
    /// Differences of the text.
    pub text: FileText,
}

/// For example `* script 10-cut.sh: +1 -1 lines`.
impl std::fmt::Display for FileChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marker = match self.mark {
            Mark::Added => '+',
            Mark::Removed => '-',
            Mark::Changed => '*',
        };
        let name = engine::text::shown(&self.name);
        write!(f, "{marker} script {name}: ")?;
        match &self.text {
            FileText::Lines { lines, cut } => {
                let of = |mark| lines.iter().filter(|line| line.mark == mark).count();
                write!(f, "+{} -{} lines", of(LineMark::Added), of(LineMark::Removed))?;
                if *cut { f.write_str(", the rest was not compared") } else { Ok(()) }
            }
            FileText::Binary { old, new } => {
                let bytes = |side: &Option<u64>| {
                    side.map_or_else(|| "nothing".to_owned(), |n| format!("{n} bytes"))
                };
                write!(f, "not text: {} -> {}", bytes(old), bytes(new))
            }
            FileText::Left => f.write_str("changed, but not compared: too many files"),
        }
    }
}

/// Differences of a file's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FileText {
    /// Differences by line.
    Lines {
        /// Lines that differ, with some context.
        lines: Vec<FileLine>,
        /// Whether the file is longer than the compared part, or a line is longer than its shown
        /// part.
        cut: bool,
    },
    /// The file is not text.
    Binary {
        /// Size before, in bytes.
        old: Option<u64>,
        /// Size after, in bytes.
        new: Option<u64>,
    },
    /// Not compared, because too many files differ.
    Left,
}

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileLine {
    /// Kind of the line.
    pub mark: LineMark,
    /// Line number in the old file for a removed line, otherwise in the new file.
    pub number: Option<u32>,
    /// Text of the line, with invisible characters escaped.
    pub text: String,
}

/// Kind of a line in a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LineMark {
    /// The line is unchanged.
    Kept,
    /// The line was added.
    Added,
    /// The line was removed.
    Removed,
    /// Unchanged lines are left out here.
    Gap,
}

/// A changed pin of a barclamp version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinChange {
    /// Id of the deployment.
    pub deployment: DeploymentId,
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// The version that applied before, or null for none.
    pub old: Option<PinnedVersion>,
    /// The version that applies after, or null for none.
    pub new: Option<PinnedVersion>,
    /// Roles that differ between the versions and that the deployment does not use. Its own changes
    /// do not name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<PinnedRole>,
}

/// A barclamp version that applies in a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedVersion {
    /// Version in the barclamp's file.
    pub version: String,
    /// Short content hash.
    pub hash: String,
    /// The ancestor that pins it, or null for the deployment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<DeploymentName>,
}

/// For example `2 (a1b2c3d4), from system`.
impl std::fmt::Display for PinnedVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.version, self.hash)?;
        self.from.iter().try_for_each(|name| write!(f, ", from {name}"))
    }
}

/// A role that differs between two versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedRole {
    /// Name of the role.
    pub role: RoleName,
    /// Its content hashes. Null on a side without the role.
    pub contents: Sides<Option<Hash>>,
}

/// Scripts with hidden characters, which are invisible or change the reading direction. The
/// executed script then differs from the text on screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deceiving {
    /// Some of these scripts, by barclamp, role and file.
    pub scripts: Vec<DeceivingScript>,
    /// Number of further scripts.
    #[serde(default)]
    pub more: usize,
}

impl Deceiving {
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
            "\nScripts with hidden characters, which can run other commands than they \
             show:\n{lines}{more}"
        )
    }
}

/// A script with hidden characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeceivingScript {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Name of the role.
    pub role: RoleName,
    /// File name.
    pub file: String,
    /// Content hash of the script.
    pub hash: Hash,
    /// Line and column of the first hidden character.
    pub at: (u32, u32),
    /// Description, for example `the script has the character U+202E, ...`.
    pub what: String,
}

impl std::fmt::Display for DeceivingScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { barclamp, role, file, at: (line, column), what, .. } = self;
        write!(f, "{role} of {barclamp}, {file}:{line}:{column}: {what}")
    }
}

/// Your progress in viewing a review, in documents (deployments and nodes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Opened {
    /// Number of documents that the review changes.
    pub all: usize,
    /// Documents whose current change you viewed.
    pub opened: std::collections::BTreeSet<Anchor>,
    /// Documents whose change you viewed in an earlier review, where it was different.
    pub outdated: std::collections::BTreeSet<Anchor>,
}

impl Opened {
    /// Merges another response. Viewed documents stay viewed, in any order of responses.
    pub fn more(&mut self, other: Self) {
        self.all = other.all;
        self.opened.extend(other.opened);
        self.outdated.extend(other.outdated);
        self.outdated.retain(|anchor| !self.opened.contains(anchor));
    }
}

/// A node to add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeWish {
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
    pub ssh: Option<SshWish>,
}

/// SSH connection to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SshWish {
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

impl SshWish {
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

impl NodeWish {
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
    /// Whether it is alive.
    pub alive: bool,
    /// Whether steps may start on it. False during maintenance.
    pub available: bool,
    /// `local` or `ssh`.
    pub transport: String,
    /// Error of the last health check, if it failed.
    #[serde(default)]
    pub unreached: Option<String>,
    /// Its steps by state.
    pub steps: StateCounts,
    /// Whether it is in no blueprint, so that it can be removed without a review.
    #[serde(default)]
    pub record: bool,
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

/// Appearance of a vertex in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// The state of its step.
    State(StepState),
    /// The change adds it.
    Added,
    /// The change removes it.
    Removed,
    /// The change modifies it or runs it again.
    Changed,
    /// It depends on something that the change runs again or removes, and stays unchanged itself:
    /// the blast radius.
    Downstream,
    /// It is a neighbour of the change and stays unchanged.
    Around,
}

/// A graph of noderoles, folded as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphView {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// Id of the deployment, for live stream topics.
    pub deployment_id: DeploymentId,
    /// The blueprint whose graph is shown, if it is not the current one. Such a graph has no
    /// states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<BlueprintNumber>,
    /// Vertices in a fixed order, so positions are stable between views.
    pub vertices: Vec<GraphVertex>,
    /// Edges from a dependency to its dependent, as indexes of `vertices`.
    pub edges: Vec<GraphEdge>,
    /// Number of noderoles in the whole graph.
    pub noderoles: usize,
    /// Number of edges in the whole graph.
    pub wires: usize,
    /// Number of the last wave of the whole graph.
    pub waves: u32,
    /// Set if the requested graph is too large: the parts that stay folded, and advice.
    pub cut: Option<String>,
    /// The marked path, if one was requested.
    pub trail: Option<GraphTrail>,
    /// Journal position of this view.
    pub cursor: i64,
}

/// The marked path of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphTrail {
    /// Description and size of the path, or the reason for its absence.
    pub said: String,
    /// Number of noderoles on the path.
    pub noderoles: usize,
    /// For the longest path: its noderoles in order, at most 100.
    pub way: Vec<GraphWaypoint>,
}

/// Maximum number of noderoles of a path that are listed.
pub const MAX_PATH_NODEROLES: usize = 100;

/// A noderole of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphWaypoint {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// Name, for example `app on n1`.
    pub name: String,
    /// Duration of its last successful run in milliseconds, if requested and available.
    pub took: Option<u64>,
}

/// A vertex: a role, or a single noderole of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphVertex {
    /// Key of the vertex in URLs: `web:app`, or the id of a noderole.
    pub key: String,
    /// Name of the role.
    pub role: RoleName,
    /// The deployment that the role is bound in.
    pub deployment: DeploymentName,
    /// Set for a single noderole.
    pub one: Option<GraphNoderole>,
    /// Number of noderoles that the vertex represents.
    pub members: usize,
    /// Number of noderoles by appearance, without zeros.
    pub looks: Vec<(Look, usize)>,
    /// First and last wave of its noderoles.
    pub waves: Option<(u32, u32)>,
    /// Number of its noderoles on the marked path.
    pub on_trail: usize,
}

/// A noderole of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphNoderole {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// First label of the node's name, with the instance number unless it is the first.
    pub short: String,
    /// Full name of the node.
    pub fqdn: String,
    /// Whether it has a page. A noderole that a change adds has none yet.
    pub has_page: bool,
}

/// An edge of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphEdge {
    /// Index of the dependency.
    pub from: usize,
    /// Index of the dependent.
    pub to: usize,
    /// Number of edges between noderoles that it represents. In the graph of a change: after the
    /// change.
    pub count: usize,
    /// The strongest kind of these edges.
    pub kind: EdgeKind,
    /// Number of these edges on the marked path.
    pub on_trail: usize,
    /// Number of these edges that the change adds.
    #[serde(default)]
    pub added: usize,
    /// Number of edges that the change removes.
    #[serde(default)]
    pub gone: usize,
}

/// Options of a graph. The URL of the page contains all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GraphWish {
    /// Roles to unfold into single noderoles.
    pub roles: Vec<RoleName>,
    /// Nodes whose noderoles are shown individually, by full or short name.
    pub nodes: Vec<String>,
    /// Key of a vertex. Only the vertex, its dependencies and its dependents are shown.
    pub focus: Option<String>,
    /// Direction from `focus`. Default: both.
    pub way: GraphWay,
    /// Maximum distance from `focus`, in edges. Default: no limit.
    pub steps: Option<u32>,
    /// The path to mark.
    pub trail: Option<TrailWish>,
    /// Whether to show only the noderoles of the marked path, individually.
    pub only_trail: bool,
    /// Blueprint number. A deployment's graph is shown as of this blueprint. Default: the newest
    /// one that has the deployment.
    pub target: Option<BlueprintNumber>,
}

impl GraphWish {
    /// Query parameters of the options, for pages and the API. Lists are separated by commas;
    /// defaults are left out.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let has_focus = self.focus.is_some();
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
            ("way", way.filter(|_| has_focus).map(str::to_owned)),
            ("steps", self.steps.filter(|_| has_focus).map(|steps| steps.to_string())),
            ("from", from),
            ("to", to),
            ("longest", longest.map(str::to_owned)),
            ("target", self.target.map(|target| target.to_string())),
            ("only", self.only_trail.then(|| "trail".to_owned())),
        ];
        all.into_iter().filter_map(|(word, said)| Some((word, said?))).collect()
    }
}

/// A path to mark in a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrailWish {
    /// Start of a path whose end is not chosen yet. Nothing is marked.
    From(String),
    /// All paths between two vertices, by key.
    Between(String, String),
    /// The longest path.
    Longest(Length),
}

/// Measure of a path's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// Number of noderoles.
    Count,
    /// Total duration of their last successful runs.
    Time,
}

/// Direction from the focused vertex.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GraphWay {
    /// Dependencies and dependents.
    #[default]
    Both,
    /// Dependencies.
    Up,
    /// Dependents.
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
        let side = Side { target: Some(BlueprintNumber(1)), submission: None, root: None };
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
    fn opened_documents_merge_in_any_order() {
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
    fn comparison_pages_add_up_to_the_whole() {
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
    fn comparison_text_contains_versions_and_scripts() {
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
            "* deployment d1\n  * barclamp tool: 2 (0a1b2c3d) -> 1 (0a1b2c3d), from system\n  * \
             role app: {} -> {}\n    /run/timeout: 1 -> 2\n    /scripts/10-a.sh/place: 1 -> 2\n    \
             * script 10-a.sh: +2 -1 lines\n    - script 20-b.sh: +0 -1 lines, the rest was not \
             compared\n    + script 30-c.bin: not text: nothing -> 7 bytes\n    * script 40-d.sh: \
             changed, but not compared: too many files\n",
            hash(1).short(),
            hash(2).short(),
        );
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn comparison_page_has_only_its_pins_and_contents() {
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
            submission: ReviewId(2),
            before: Some(ReviewId(1)),
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
    fn since_last_view_is_paged_and_shift_limited() {
        let whole = comparison().difference;
        let since = || SinceLook {
            submission: ReviewId(2),
            before: Some(ReviewId(1)),
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
            before: ReviewId(1),
            after: None,
            target: BlueprintNumber(2),
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
