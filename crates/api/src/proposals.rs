//! Proposals and their edits.

use crate::blueprints::Part;
use engine::blueprint::EffectDifference;
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, NodeId, ProposalId, ReviewId};
use engine::plan::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};
use crate::{At, problem};

sort! {
    ProposalSort, Order::descending(Self::Created), {
        Created "created" [Number],
        Deployment "deployment" [Text, Number],
    }
}

/// Filters of the list of open proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProposalsQuery {
    /// Only proposals that you opened or edited.
    pub mine: bool,
    /// Only proposals with edits that are not submitted.
    pub drafts: bool,
    /// Name of the deployment. Includes proposals on nodes that were in it. Empty matches all.
    pub deployment: String,
    /// Part of the name of the deployment or node, case-insensitive. Empty matches all.
    pub filter: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ProposalSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the list of open proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalPage {
    /// The proposals, newest first by default.
    pub proposals: Vec<ProposalSummary>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
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
    pub review: Option<ReviewId>,
}

/// Scope of a proposal: a deployment and its descendants, or one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeView {
    /// The deployment. For a proposal on a node, the node's deployment when the proposal was
    /// opened.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
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
    /// The setting that both edits change.
    // As JSON, because pages show only `subject`, and reading the type would add 30 kB to their
    // code.
    #[cfg_attr(feature = "schema", schemars(with = "engine::plan::clash::ClashSubject"))]
    pub setting: Value,
    /// The setting as text, for example `/port of app`.
    pub subject: String,
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
    pub makes_author: bool,
    /// Whether other people opened it or contributed edits, so that discarding it affects their
    /// work too.
    #[serde(default)]
    pub has_other_authors: bool,
    /// Its edits, oldest first, including undone ones.
    pub edits: Vec<EditView>,
    /// The edits that undo would revert, as text. They were made by one request.
    pub undo: Option<String>,
    /// The edits that redo would restore, as text.
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
    pub review: Option<ReviewId>,
    /// Set while the proposal is back with its authors because the base of its review changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<Replanned>,
    /// Set if the proposal restores only a part of a deployment's earlier state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restored: Option<NotRestored>,
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
pub struct NotRestored {
    /// The blueprint with the state to restore.
    pub blueprint: BlueprintNumber,
    /// The missing things, each with the reason.
    pub missing: Vec<String>,
    /// Number of further missing things.
    #[serde(default)]
    pub more: usize,
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
    pub blueprint: BlueprintNumber,
    /// Changes of the base, for example `web (blueprint 12)`.
    pub moved: Vec<String>,
    /// People whose verdicts on the earlier review no longer count.
    pub voided_verdicts: Vec<String>,
    /// Whether both reviews have the same effect, each compared with its own base.
    pub same_effect: bool,
    /// Differences between the effects of the two reviews.
    pub effect_changes: EffectDifference,
    /// Number of documents left out of `effect_changes`.
    #[serde(default)]
    pub more: usize,
    /// Reasons why the proposal is back with its authors. Edits no longer take effect, or documents
    /// would change in another way than submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<problem::Finding>,
}

impl Replanned {
    /// Keeps the first `most` documents on each side of `effect_changes`, and counts the others.
    pub(crate) fn cut(&mut self, most: usize) {
        for side in [&mut self.effect_changes.before, &mut self.effect_changes.after] {
            let part = Part::of(std::mem::take(side), 0, most);
            self.more += part.more;
            *side = part.difference;
        }
    }
}

paged! {
    ProposalPage: proposals of ProposalSummary,
}
