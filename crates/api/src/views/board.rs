//! The deployment board.

use engine::Hash;
use engine::gate::Policy;
use engine::ids::{
    BarclampName, BlueprintNumber, DeploymentId, DeploymentName, JigName, NodeId, NoderoleId,
    ProposalId, RoleName,
};
use engine::plan::NumberedEdit;
use engine::plan::planning_data::PlanningData;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Allowed;
use crate::deployments::AttribView;
use crate::listing::Limit;
use crate::proposals::ProposalView;
use crate::runs::{StateCounts, StepState};

/// Maximum number of noderoles in a cell of the board. The rest is shown as a count.
pub const MAX_NODEROLES_PER_CELL: usize = 24;

/// Filters of a board.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BoardQuery {
    /// Only noderoles that are stale, unchecked or not ACTIVE. The counts by state still include
    /// all.
    pub not_active: bool,
    /// Only the target, without the edits of the open proposal.
    pub target: bool,
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
    pub ancestors: Vec<DeploymentName>,
    /// Whether the deployment is *system*, the root of the tree.
    pub system: bool,
    /// The person who put it on hold.
    pub on_hold_by: Option<String>,
    /// The hold that applies: its own or an ancestor's.
    #[serde(default)]
    pub hold: Option<HoldView>,
    /// Priority. Ready steps of deployments with a higher priority run first. Default: 0.
    #[serde(default)]
    pub priority: i32,
    /// The blueprint that last changed it.
    pub blueprint: BlueprintNumber,
    /// The open proposal. The board includes its additions.
    pub proposal: Option<ProposalView>,
    /// Roles by barclamp. Roles of ancestors that run on the deployment's nodes come last.
    pub groups: Vec<BoardGroup>,
    /// Steps of the deployment's own noderoles that are left out of full cells. Together with the
    /// listed noderoles they are all of its steps. `stale` and `unchecked` also count the listed
    /// noderoles.
    #[serde(default)]
    pub omitted: StateCounts,
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
    pub destinations: Vec<DestinationChoice>,
    /// Jigs of the barclamps in use, with the draft's changes. Empty unless a proposal is open.
    #[serde(default)]
    pub jigs: Vec<JigView>,
    /// The approval policy of all deployments: the draft's or the one in force. Null unless a
    /// proposal is open.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Whether you can make proposals here. Otherwise the reason.
    pub may_propose: Allowed,
    /// Journal position of this view.
    pub cursor: i64,
}

/// A deployment that a node can be moved to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DestinationChoice {
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
    /// Reason for the hold.
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
    /// The person whose edit in the draft sets the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_by: Option<String>,
    /// Default values from the role's template, with secrets masked.
    #[serde(default)]
    pub defaults: Value,
    /// Schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// Its noderoles, at most 24. Those that failed come first, then by name of the node.
    pub noderoles: Vec<BoardNoderole>,
    /// Number of further noderoles.
    pub more: usize,
    /// Steps of the noderoles that are left out. Together with the listed noderoles they are all of
    /// the role's steps.
    #[serde(default)]
    pub omitted: StateCounts,
}

/// A noderole in a cell of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoardNoderole {
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
    pub required_by: Option<String>,
    /// Whether the draft changes it (data, a re-run).
    pub changed: bool,
    /// Whether the draft removes it.
    #[serde(default)]
    pub removed: bool,
    /// Whether its removal runs `remove` on the node. Otherwise its files and services stay there.
    #[serde(default)]
    pub runs_remove: bool,
    /// Whether the step is ACTIVE and its input has changed since its last run, or is being
    /// compared.
    #[serde(default)]
    pub stale: bool,
    /// Whether the step is ACTIVE and its check does not pass.
    #[serde(default)]
    pub unchecked: bool,
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
    /// Whether the node is alive.
    pub alive: bool,
    /// Number of its noderoles, with the draft's.
    pub noderoles: usize,
}

/// Nodes of a tray to show, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrayFilter {
    #[default]
    All,
    /// Nodes without roles.
    Free,
    /// Nodes that do not respond.
    Dead,
}

impl TrayFilter {
    /// Whether a node matches. `text` is a part of its name or of its deployment's name.
    pub fn fits(self, node: &TrayNode, text: &str) -> bool {
        let is_one = match self {
            Self::All => true,
            Self::Free => node.noderoles == 0,
            Self::Dead => !node.alive,
        };
        let text = text.trim().to_lowercase();
        is_one && (node.fqdn.contains(&text) || node.deployment.as_str().contains(&text))
    }
}

/// Nodes of a tray that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrayNodes {
    /// The first nodes by name, at most 200.
    pub nodes: Vec<TrayNode>,
    /// Number of further nodes.
    pub more: usize,
}

/// Maximum number of nodes that a search in a tray returns.
pub const MAX_FOUND_NODES: usize = 200;

/// Maximum number of noderoles in a list of one role.
pub const MAX_NODES_WITH_ROLE: usize = 1_000;

/// Filters of the list of a role's noderoles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleNoderolesQuery {
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
    /// Only the target, without the edits of the open proposal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub target: bool,
    /// Maximum number of noderoles on the page, from 1 to 200. Without it, a page has at most
    /// 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

impl RoleNoderolesQuery {
    /// Selects all noderoles of the deployment's own role.
    pub fn of(role: RoleName) -> Self {
        Self {
            role,
            of_ancestor: None,
            node: String::new(),
            after: None,
            target: false,
            limit: None,
        }
    }
}

/// All noderoles of a role, including those that do not fit in a cell of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleNoderoles {
    /// The noderoles by node name, with the draft's, at most 1,000 without a `limit`.
    pub noderoles: Vec<BoardNoderole>,
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
    /// Whether the role is a milestone.
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
    pub in_use: bool,
    /// Things that the version in use has and this one lacks.
    pub missing: Vec<String>,
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
    pub inherited: Option<InheritedVersion>,
}

/// A barclamp version that an ancestor pins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InheritedVersion {
    /// The deployment that pins it.
    pub from: DeploymentName,
    /// Version in the barclamp's file.
    pub version: String,
    /// Content hash of the version.
    pub hash: Hash,
    /// Things that the deployment's own version has and this one lacks.
    pub missing: Vec<String>,
}

/// Preview of a proposal with further edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditsPreview {
    /// Reasons why edits can't take effect. Empty if all can.
    pub refused: Vec<String>,
    /// Description of the whole proposal, most important first.
    pub lines: Vec<String>,
}

/// Data that a browser needs to plan an open proposal itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannerView {
    /// Version of the planning data. It changes whenever the data does.
    pub stamp: String,
    /// The data to plan with. Null if the client has the data of this stamp. Also null if the
    /// data is too large to send; then only the server can plan.
    pub planning_data: Option<PlanningData>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn tray_is_filtered_by_name_deployment_and_state() {
        let node = TrayNode {
            node: NodeId(Uuid::from_u128(1)),
            fqdn: "db-1.rack2.example.com".into(),
            short: "db-1".into(),
            deployment: DeploymentName::parse("storage").unwrap(),
            alive: true,
            noderoles: 0,
        };
        assert!(
            TrayFilter::All.fits(&node, " Rack2 ")
                && TrayFilter::Free.fits(&node, "stor")
                && TrayFilter::All.fits(&node, "")
        );
        assert!(!TrayFilter::All.fits(&node, "rack3") && !TrayFilter::Dead.fits(&node, ""));
        let busy = TrayNode { noderoles: 2, alive: false, ..node };
        assert!(!TrayFilter::Free.fits(&busy, "") && TrayFilter::Dead.fits(&busy, "db"));
    }
}
