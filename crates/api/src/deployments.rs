//! Deployments, and the noderoles in them.

use std::collections::{BTreeMap, BTreeSet};

use engine::catalog::Check;
use engine::cluster::NoderoleKey;
use engine::ids::{
    ActionName, BarclampName, BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId,
    ProposalId, ReviewId, RoleName,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};
use crate::runs::{RunLimit, RunSummary, StateCounts, StepState};
use crate::values::{Provenance, ValueLayer};
use crate::{Allowed, At};

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
    pub review: Option<ReviewId>,
    /// The blueprint that last changed it.
    pub blueprint: BlueprintNumber,
}

/// A deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentDetails {
    /// The deployment as in the list.
    #[serde(flatten)]
    pub summary: DeploymentSummary,
    /// Name of the parent. Null for *system*.
    pub parent: Option<DeploymentName>,
    /// Id of the parent. Null for *system*.
    pub parent_id: Option<DeploymentId>,
    /// Reason for the hold. Null if it is not on hold.
    pub on_hold: Option<String>,
    /// Priority, added to the priority of its steps.
    pub priority: i32,
}

/// A deployment to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeploymentRequest {
    /// Name, unique in the cluster.
    pub name: DeploymentName,
    /// Name of the parent. Default: *system*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeploymentName>,
}

/// A proposal that creates or removes a deployment once it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposedDeployment {
    /// Id of the deployment.
    pub id: DeploymentId,
    /// Number of the proposal.
    pub proposal: ProposalId,
    /// Version of the proposal with this edit.
    pub version: i32,
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

sort! {
    DeploymentSort, Order::ascending(Self::Tree), {
        /// Position in the tree: the names from *system* down.
        Tree "tree" [Text],
        Name "name" [Text],
        /// Number of nodes.
        Nodes "nodes" [Number, Text],
        /// Number of steps in ERROR.
        Errors "errors" [Number, Text],
        /// Number of the blueprint that last changed the deployment.
        Blueprint "blueprint" [Number, Text],
    }
}

/// State of a deployment. Several states can apply at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// On hold: no runs start.
    OnHold,
    /// A proposal is open.
    Proposed,
    /// The open proposal is submitted for review.
    Review,
    /// A step is in ERROR.
    Error,
    /// Steps run or are about to run.
    Working,
    /// None of the other states applies.
    Idle,
}

impl DeploymentState {
    pub const EVERY: [Self; 6] =
        [Self::OnHold, Self::Proposed, Self::Review, Self::Error, Self::Working, Self::Idle];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnHold => "on_hold",
            Self::Proposed => "proposed",
            Self::Review => "review",
            Self::Error => "error",
            Self::Working => "working",
            Self::Idle => "idle",
        }
    }
}

/// Filters of the list of deployments. An empty filter matches all deployments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeploymentsQuery {
    /// Part of the name.
    pub filter: String,
    /// State of the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeploymentState>,
    /// Sort order. Default: by position in the tree.
    pub sort: Order<DeploymentSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// The desired state of one deployment, which `gantry export` writes as a file. Nodes have their
/// names, and the phantom node of the deployment `web` is `phantom:web`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentDeclaration {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// Name of its parent, or null for *system*.
    pub parent: Option<DeploymentName>,
    /// Id of its phantom node.
    pub phantom: NodeId,
    /// Barclamp versions that it pins itself, as written in their files.
    pub versions: BTreeMap<BarclampName, String>,
    /// Nodes that belong to it, by name.
    pub members: Vec<String>,
    /// Its roles, by name.
    pub roles: BTreeMap<RoleName, DeclaredRole>,
    /// User data of its noderoles, by node and noderole. Noderoles without data are left out.
    pub node_data: BTreeMap<String, BTreeMap<NoderoleKey, Value>>,
}

/// A role of a deployment in its desired state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeclaredRole {
    /// The deployment's data for the role.
    pub data: Value,
    /// Nodes that have the role, by name.
    pub nodes: Vec<String>,
    /// Roles of the deployment that its noderoles require.
    pub requires: BTreeSet<RoleName>,
    /// Whether noderoles of other deployments require it.
    pub required_elsewhere: bool,
}

/// The state to declare.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeclarationQuery {
    /// Include the edits of the open proposal.
    pub draft: bool,
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
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// State of the step.
    pub state: StepState,
    /// Whether the step is ACTIVE and its input has changed since its last run.
    #[serde(default)]
    pub stale: bool,
    /// Time of the last change of the state.
    pub since: At,
    /// Reasons of the state, each with the action that changes it.
    pub reasons: Vec<String>,
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
    pub output: Value,
    /// Schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// Noderoles that it depends on.
    pub parents: Vec<NoderoleRef>,
    /// Noderoles that depend on it, at most 50.
    pub children: Vec<NoderoleRef>,
    /// Its runs, newest first, at most 50.
    pub runs: Vec<RunSummary>,
    /// Whether you can retry it. Otherwise the reason.
    pub may_retry: Allowed,
    /// Its draft in an open proposal, if you can edit it there. Otherwise the reason.
    pub may_edit: EditableDraft,
    /// Whether you can propose changes on its node. Otherwise the reason.
    pub may_propose: Allowed,
    /// Limits of runs from the role (retries, timeout, error scope, priority).
    #[serde(default)]
    pub limits: Vec<RunLimit>,
    /// The check of its role with the last result, or null if the role has none.
    #[serde(default)]
    pub check: Option<NoderoleCheck>,
}

/// The last result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// It has not run since the desired state of the step last changed.
    Unknown,
    /// It passed.
    Passing,
    /// It failed.
    Failing,
}

/// The check of a noderole and its last result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleCheck {
    /// Name of the script.
    pub script: String,
    /// Interval, timeout, failures before it has an effect, and the effect.
    pub policy: Check,
    /// The last result.
    pub state: CheckState,
    /// Whether the last result is a success that still counts. It counts until the check fails, the
    /// step runs again, or no worker has run the check for two intervals.
    pub passes: bool,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Whether a failed check made the step run again, and the check has not passed since.
    pub caused_rerun: bool,
    /// The end of the output, with secrets masked.
    pub detail: String,
    /// Duration of the last check, in milliseconds.
    pub duration_ms: u32,
    /// Time of the last result.
    pub checked: Option<At>,
    /// Time when the state last changed.
    pub changed: Option<At>,
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
    pub makes_author: bool,
    /// User data of the noderole, with the proposal's edits.
    pub data: Value,
    /// Name of the person whose edit in the proposal sets the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_by: Option<String>,
    /// Values that apply without user data, with secrets masked.
    #[serde(default)]
    pub defaults: Value,
    /// Whether the proposal runs it again.
    pub rerun: bool,
}

/// A noderole in an open proposal, or the reason why you can't edit it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "EditableDraftJson", into = "EditableDraftJson")]
pub enum EditableDraft {
    /// You can edit the noderole in the proposal.
    Yes(NoderoleDraft),
    /// You can't edit the noderole.
    No {
        /// The reason why you can't.
        reason: String,
    },
}

impl EditableDraft {
    /// You can't edit the noderole, for this reason.
    pub fn no(reason: impl Into<String>) -> Self {
        Self::No { reason: reason.into() }
    }

    /// The noderole with the proposal's edits, or `None` if you can't edit it.
    pub fn draft(&self) -> Option<&NoderoleDraft> {
        match self {
            Self::Yes(draft) => Some(draft),
            Self::No { .. } => None,
        }
    }
}

/// The JSON of [`EditableDraft`]: `{"draft": {...}}`, or `{"reason": "..."}`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct EditableDraftJson {
    /// The noderole with the proposal's edits, if you can edit it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draft: Option<NoderoleDraft>,
    /// The reason why you can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<EditableDraft> for EditableDraftJson {
    fn from(editable: EditableDraft) -> Self {
        match editable {
            EditableDraft::Yes(draft) => Self { draft: Some(draft), reason: None },
            EditableDraft::No { reason } => Self { draft: None, reason: Some(reason) },
        }
    }
}

impl From<EditableDraftJson> for EditableDraft {
    fn from(EditableDraftJson { draft, reason }: EditableDraftJson) -> Self {
        match draft {
            Some(draft) => Self::Yes(draft),
            None => Self::No { reason: reason.unwrap_or_default() },
        }
    }
}

/// A layer of data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataLayer {
    /// The layer.
    pub source: ValueLayer,
    /// Values of the layer.
    pub value: Value,
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
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node.
    pub fqdn: String,
    /// State of the step.
    pub state: StepState,
}

sort! {
    StepSort, Order::ascending(Self::Id), {
        /// Id of the step, which has no meaning.
        Id "id" [Text],
    }
}

/// Filters of the list of steps. An empty filter matches all steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StepsQuery {
    /// Name of the deployment in which the noderole is bound.
    pub deployment: String,
    /// Name or id of the node.
    pub node: String,
    /// Name of the role.
    pub role: String,
    /// State of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StepState>,
    /// Only steps whose input has changed since their last run.
    pub stale: bool,
    /// Only steps in ACTIVE whose check does not pass.
    pub unchecked: bool,
    /// Only steps that no blueprint after this one changed or re-ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blueprint: Option<BlueprintNumber>,
    /// Sort order. Default: by id.
    pub sort: Order<StepSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A page of the list of steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepPage {
    /// The steps.
    pub steps: Vec<StepSummary>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A step in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepSummary {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// The role, with the instance unless it is the first.
    pub noderole: NoderoleKey,
    /// The action of the step: `run`, or `remove` for a noderole that is removed.
    pub action: ActionName,
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node. For the phantom node of the deployment `web`, `phantom:web`.
    pub fqdn: String,
    /// The deployment in which the noderole is bound.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// State of the step.
    pub state: StepState,
    /// Time of the last change of the state.
    pub since: At,
    /// Whether the input of the step has changed since its last run.
    pub stale: bool,
    /// Whether the step is ACTIVE and its check does not pass: the check failed, even if less often
    /// than it takes to change the state, or has not run.
    #[serde(default)]
    pub unchecked: bool,
    /// Generation: the blueprint that last changed or re-ran it.
    pub generation: BlueprintNumber,
    /// Error message, if the step is in ERROR.
    pub error: Option<String>,
}

paged! {
    DeploymentPage: deployments of DeploymentSummary,
    StepPage: steps of StepSummary,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn editable_draft_is_an_object_with_draft_or_reason() {
        let draft = NoderoleDraft {
            proposal: ProposalId(7),
            version: 3,
            makes_author: false,
            data: json!({"port": 80}),
            data_by: None,
            defaults: json!({}),
            rerun: false,
        };
        for (editable, expected) in [
            (
                EditableDraft::Yes(draft),
                json!({"draft": {"proposal": 7, "version": 3, "makes_author": false,
                    "data": {"port": 80}, "defaults": {}, "rerun": false}}),
            ),
            (EditableDraft::no("No proposal."), json!({"reason": "No proposal."})),
        ] {
            let sent = serde_json::to_value(&editable).unwrap();
            assert_eq!(sent, expected);
            assert_eq!(serde_json::from_value::<EditableDraft>(sent).unwrap(), editable);
        }
    }
}
