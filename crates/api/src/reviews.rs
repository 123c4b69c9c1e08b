//! Lists of reviews: filters and pages.
//!
//! The query of a list's URL contains all its filters, so a link always leads to the same list.

use crate::blueprints::{Part, RoleValueChange, documents_up_to, retain_role_values, retain_shown};

use engine::Hash;
use engine::blueprint::text::Names;
use engine::blueprint::{Anchor, Difference, Impact, text};
use engine::cluster::NoderoleKey;
use engine::gate::{GateResult, Risk, VerdictKind};
use engine::ids::{
    ActionName, BlueprintNumber, CommentId, DeploymentId, DeploymentName, NodeId, NoderoleId,
    ProposalId, ReviewId, RoleName,
};
use engine::lint::Finding;
use serde::{Deserialize, Serialize};

use crate::catalog::{ContentChange, HiddenCharacters, PinChange};
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};
use crate::proposals::{ClashView, NotRestored, Replanned};
use crate::{Allowed, At};

/// Maximum length of a text filter, in characters.
pub const MAX_TEXT_CHARS: usize = 200;

/// Reviews by the reader's part in them.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewFilter {
    /// All reviews.
    #[default]
    All,
    /// Open reviews that you can approve, reject or commit now.
    ForMe,
    /// Reviews that you are an author of.
    Mine,
}

impl ReviewFilter {
    pub const EVERY: [Self; 3] = [Self::All, Self::ForMe, Self::Mine];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::ForMe => "for_me",
            Self::Mine => "mine",
        }
    }
}

/// Reviews by outcome.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewStateFilter {
    /// Open reviews: the newest of each open proposal.
    #[default]
    Open,
    /// Committed reviews.
    Committed,
    /// Reviews whose proposal was discarded.
    Discarded,
    /// All reviews, including replaced ones.
    Any,
}

impl ReviewStateFilter {
    pub const EVERY: [Self; 4] = [Self::Open, Self::Committed, Self::Discarded, Self::Any];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Committed => "committed",
            Self::Discarded => "discarded",
            Self::Any => "any",
        }
    }
}

/// Filters of the list of reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReviewsQuery {
    /// The reader's part in the review. Default: all reviews.
    pub involvement: ReviewFilter,
    /// Outcome of the review. Default: open reviews.
    pub state: ReviewStateFilter,
    /// Name of the deployment. Empty matches all.
    pub deployment: String,
    /// Part of the title, case-insensitive. Empty matches all.
    pub filter: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ReviewSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the list of reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewPage {
    /// The reviews, newest first by default.
    pub reviews: Vec<ReviewSummary>,
    /// Cursor of the next page (`before`), or null on the last page. A request searches a limited
    /// number of reviews. So a page can be short or empty although a next page exists.
    pub next: Option<Cursor>,
}

/// Number of reviews that need a person's action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewCount {
    /// Minimum number.
    pub count: usize,
    /// Whether there may be more that are not counted or evaluated yet.
    pub more: bool,
}

impl std::fmt::Display for ReviewCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.count, if self.more { "+" } else { "" })
    }
}

sort! {
    ReviewSort, Order::descending(Self::Submitted), {
        Submitted "submitted" [Number],
        Title "title" [Text, Number],
    }
}

/// A review in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewSummary {
    /// Review number.
    pub review: ReviewId,
    /// Title of the review.
    pub title: String,
    /// The deployment that the proposal is on.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// Id of the node, if the scope is a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// Authors of the proposal.
    pub authors: Vec<String>,
    /// Time of submission.
    pub at: At,
    /// The most important change, and the number of further changes.
    pub summary: String,
    /// State of the review.
    pub state: ReviewState,
    /// Number of approvals.
    pub approvals: ApprovalCount,
}

/// Number of approvals of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalCount {
    /// Number of valid approvals.
    pub valid: u32,
    /// Number of required approvals.
    pub required: u32,
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
    ChangesRequested,
    /// An edit no longer takes effect, or lint reports errors. The authors must edit the proposal.
    Invalid,
    /// The review has enough approvals, but threads of its discussion are open.
    ThreadsOpen,
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
    pub review: ReviewId,
    /// Number of the proposal.
    pub proposal: ProposalId,
    /// Version of the proposal.
    pub version: i32,
    /// Title of the review.
    pub title: String,
    /// The deployment that the proposal is on.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// Id of the node, if the scope is a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// State of the review.
    pub state: ReviewState,
    /// Hash of the change.
    pub change_hash: String,
    /// Hash of the effects.
    pub effects_hash: String,
    /// The blueprint that it is based on.
    pub parent: BlueprintNumber,
    /// The blueprint that it was committed as.
    pub blueprint: Option<BlueprintNumber>,
    /// Time of submission.
    pub at: At,
    /// Authors of the proposal.
    pub authors: Vec<String>,
    /// Description of the change, most important first.
    pub summary: Vec<String>,
    /// Number of leading lines of `summary` that pages must always show. The same limit applies to
    /// `requested`.
    #[serde(default)]
    pub always_shown: usize,
    /// Lines of `summary` about the requested changes. Their impact is in `impact`.
    #[serde(default)]
    pub requested: Vec<String>,
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
    /// Reasons of required noderoles, for example `required by app`.
    pub required_by: std::collections::BTreeMap<NoderoleId, String>,
    /// Names of the deployments in the difference.
    pub deployments: std::collections::BTreeMap<DeploymentId, DeploymentName>,
    /// Names of noderoles that others depend on, before or after the change.
    #[serde(default)]
    pub noderoles: std::collections::BTreeMap<NoderoleId, text::NamedNoderole>,
    /// Changes within roles whose content differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<ContentChange>,
    /// Pins of barclamp versions that it adds or removes, with the versions that applied before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinChange>,
    /// Effective values of the noderoles of deployment roles whose data or template changes. At
    /// most 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub role_values: Vec<RoleValueChange>,
    /// Number of further changed values of deployment roles.
    #[serde(default)]
    pub more_role_values: usize,
    /// Scripts with hidden characters that the change starts to use.
    #[serde(default, skip_serializing_if = "HiddenCharacters::is_empty")]
    pub hidden_characters: HiddenCharacters,
    /// Set if the proposal restores only a part of a deployment's earlier state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restored: Option<NotRestored>,
    /// Conflicts between edits of different authors, at the time of submission.
    #[serde(default)]
    pub clashes: Vec<ClashView>,
    /// Execution order in waves.
    pub waves: Vec<WaveView>,
    /// Impact of the change: on the current states of steps if `current` is true, otherwise at
    /// submission.
    #[serde(default)]
    pub impact: Impact,
    /// Lint findings: current ones if `current` is true, otherwise those at submission.
    #[serde(default)]
    pub checks: Vec<Finding>,
    /// Whether the view is based on the current state. Closed, replaced and stale reviews are shown
    /// as submitted.
    #[serde(default)]
    pub current: bool,
    /// Reasons why steps would not start right after a commit: execution is off, or a deployment is
    /// on hold.
    #[serde(default)]
    pub pending_reasons: Vec<String>,
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
    pub may_review: Allowed,
    /// Whether you can commit it now. Otherwise the reason.
    pub may_commit: Allowed,
    /// The name to type at commit, because the change can't be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_to_commit: Option<String>,
    /// Set if this review replaces one whose base changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replanned>,
    /// Set if the base of this review changed: its replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<Replanned>,
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
        let skip = documents_up_to(&self.difference, after)?;
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
        self.required_by.retain(|id, _| noderoles.contains(id));
        for replanned in self.replaces.iter_mut().chain(&mut self.replaced_by) {
            replanned.cut(most);
        }
        let effect_changes = self
            .replaces
            .iter()
            .flat_map(|previous| [&previous.effect_changes.before, &previous.effect_changes.after]);
        let shown: Vec<&Difference> = effect_changes.chain([&self.difference]).collect();
        let names = Names { deployments: self.deployments, noderoles: self.noderoles }.only(&shown);
        (self.deployments, self.noderoles) = (names.deployments, names.noderoles);
        retain_shown(&self.difference, &mut self.pins, &mut self.contents);
        retain_role_values(&self.difference, &mut self.role_values);
        self
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
    /// Whether the review is your own.
    pub own: bool,
    /// Name of the passkey that signed it. Absent if it is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
}

/// The discussion of a proposal, across all its reviews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Discussion {
    /// The review that this view is for.
    pub review: ReviewId,
    /// Threads, oldest first.
    pub threads: Vec<ThreadView>,
    /// Number of open threads. They block the gate.
    pub open: usize,
    /// Whether you can open a thread or reply. Otherwise the reason.
    pub may_write: Allowed,
}

/// A thread of a discussion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadView {
    /// The comment that opened it.
    pub id: CommentId,
    /// The review that it was opened on.
    pub review: ReviewId,
    /// The change that it is about.
    pub anchor: Anchor,
    /// The change as text, for example `app on n1, /app/port`.
    pub subject: String,
    /// Whether the review of this view still contains that change.
    pub current: bool,
    /// Comments, oldest first.
    pub comments: Vec<CommentView>,
    /// Its resolution, or null if it is open.
    pub resolved: Option<ThreadResolution>,
    /// Whether you can resolve it. Otherwise the reason.
    pub may_resolve: Allowed,
}

/// The resolution of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadResolution {
    /// Name of the person who resolved it.
    pub by: String,
    /// Time of the resolution.
    pub at: At,
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
pub struct ChangesSinceView {
    /// The review of this view.
    pub review: ReviewId,
    /// The review that you viewed before, or null if this is the first one of the proposal.
    pub before: Option<ReviewId>,
    /// Whether both have the same effect.
    pub same_effect: bool,
    /// Differences between the results of the two reviews, for documents that either of them
    /// changes.
    pub difference: Difference,
    /// Names of noderoles that others depend on in either review.
    #[serde(default)]
    pub noderoles: std::collections::BTreeMap<NoderoleId, text::NamedNoderole>,
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

impl ChangesSinceView {
    /// Keeps at most `most` documents after `after`, and counts the others.
    ///
    /// # Errors
    /// If `after` is not one of the differing documents.
    pub fn page(mut self, after: Option<&Anchor>, most: usize) -> Result<Self, crate::Problem> {
        let skip = documents_up_to(&self.difference, after)?;
        let Part { difference, more, next } = Part::of(self.difference, skip, most);
        let names = Names { deployments: Default::default(), noderoles: self.noderoles }
            .only(&[&difference]);
        (self.difference, self.next, self.noderoles) = (difference, next, names.noderoles);
        self.more += more;
        retain_shown(&self.difference, &mut self.pins, &mut self.contents);
        Ok(self)
    }
}

/// Your progress in viewing a review, in documents (deployments and nodes).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ViewedChanges {
    /// Number of documents that the review changes.
    pub all: usize,
    /// Documents whose current change you viewed.
    pub viewed: std::collections::BTreeSet<Anchor>,
    /// Documents whose change you viewed in an earlier review, where it was different.
    pub outdated: std::collections::BTreeSet<Anchor>,
}

impl ViewedChanges {
    /// Merges another response. Viewed documents stay viewed, in any order of responses.
    pub fn more(&mut self, other: Self) {
        self.all = other.all;
        self.viewed.extend(other.viewed);
        self.outdated.extend(other.outdated);
        self.outdated.retain(|anchor| !self.viewed.contains(anchor));
    }
}

paged! {
    ReviewPage: reviews of ReviewSummary,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_names_match_wire_format() {
        for involvement in ReviewFilter::EVERY {
            assert_eq!(serde_json::to_value(involvement).unwrap(), involvement.as_str());
        }
        for state in ReviewStateFilter::EVERY {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }

    #[test]
    fn inexact_count_has_a_plus_sign() {
        assert_eq!(ReviewCount { count: 100, more: true }.to_string(), "100+");
        assert_eq!(ReviewCount { count: 3, more: false }.to_string(), "3");
    }
}

#[cfg(test)]
mod page_tests {
    use super::*;
    use crate::blueprints::*;
    use crate::catalog::*;
    use engine::Hash;
    use engine::blueprint::EffectDifference;
    use engine::blueprint::difference::{DeploymentDifference, NodeDifference};
    use engine::blueprint::difference::{Mark, Sides};
    use engine::data::Change;
    use engine::ids::Fqdn;
    use engine::ids::{BarclampName, NodeId, RoleName};
    use uuid::Uuid;

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
            moved: Some(Sides { old: None, new: Some(id(1)) }),
            connection: None,
            hints: Vec::new(),
            noderoles: Vec::new(),
            unchanged: 0,
        };
        let side = Side { blueprint: Some(BlueprintNumber(1)), review: None, root: None };
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
            role_values: Vec::new(),
            more_role_values: 0,
            hidden_characters: HiddenCharacters::default(),
            names: Names {
                deployments: (1..=7).map(|n| (id(n), name(n))).collect(),
                ..Names::default()
            },
            impact: Impact::default(),
        }
    }

    #[test]
    fn opened_documents_merge_in_any_order() {
        let anchor = |n: u128| Anchor::Node(NodeId(Uuid::from_u128(n)));
        let sets = |opened: &[u128], outdated: &[u128]| ViewedChanges {
            all: 3,
            viewed: opened.iter().map(|n| anchor(*n)).collect(),
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
    fn comparison_pages_contain_every_difference() {
        let whole = comparison().difference;
        for most in 1..=9 {
            let (mut read, mut after) =
                (Difference { unchanged: 9, ..Difference::default() }, None);
            loop {
                let page = comparison().page(after.as_ref(), most).unwrap();
                let shown = page.difference.documents().count();
                assert!((1..=most).contains(&shown));
                assert_eq!(page.more + shown, 8, "more counts the remaining differences");
                assert!(
                    page.names.deployments.len() <= shown + 1,
                    "the page must only name its own deployments: {:?}",
                    page.names
                );
                read.deployments.extend(page.difference.deployments);
                read.nodes.extend(page.difference.nodes);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(read, whole, "pages of {most} differences differ from the whole list");
        }
        let end = comparison().page(whole.documents().last().as_ref(), 3).unwrap();
        assert_eq!((end.difference.is_empty(), end.next, end.more), (true, None, 8));
        let unknown =
            comparison().page(Some(&Anchor::Node(NodeId(Uuid::from_u128(99)))), 3).unwrap_err();
        assert_eq!(unknown.status, 400);
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
        let lines = [
            LineMark::Unchanged,
            LineMark::Added,
            LineMark::Added,
            LineMark::Gap,
            LineMark::Removed,
        ];
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
        let mut reported = comparison();
        reported.difference =
            Difference { deployments: reported.difference.deployments, ..Difference::default() };
        reported.difference.deployments.truncate(1);
        let deployment = &mut reported.difference.deployments[0];
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
        reported.pins = vec![PinChange { deployment: id, barclamp, old, new, roles: Vec::new() }];
        reported.contents = vec![ContentChange {
            old: hash(1),
            new: hash(2),
            changes: vec![
                value("/run/timeout"),
                value("/scripts/10-a.sh/content"),
                value("/scripts/10-a.sh/position"),
            ],
            files: vec![
                file("10-a.sh", Mark::Changed, changed),
                file("20-b.sh", Mark::Removed, cut),
                file("30-c.bin", Mark::Added, FileText::Binary { old: None, new: Some(7) }),
                file("40-d.sh", Mark::Changed, FileText::NotCompared),
            ],
        }];
        let text = reported.text();
        let (_, text) = text.split_once("\n\n").unwrap();
        let expected = format!(
            "* deployment d1\n  * barclamp tool: 2 (0a1b2c3d) -> 1 (0a1b2c3d), from system\n  * \
             role app: {} -> {}\n    /run/timeout: 1 -> 2\n    /scripts/10-a.sh/position: 1 -> 2\n    \
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
        let since = ChangesSinceView {
            review: ReviewId(2),
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
        let since = || ChangesSinceView {
            review: ReviewId(2),
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
        let unknown =
            since().page(Some(&Anchor::Node(NodeId(Uuid::from_u128(99)))), 3).unwrap_err();
        assert_eq!(unknown.status, 400);

        let mut replanned = Replanned {
            before: ReviewId(1),
            after: None,
            blueprint: BlueprintNumber(2),
            moved: Vec::new(),
            voided_verdicts: Vec::new(),
            same_effect: false,
            effect_changes: EffectDifference { before: whole.clone(), after: whole.clone() },
            more: 0,
            refused: Vec::new(),
        };
        replanned.cut(6);
        let EffectDifference { before, after } = &replanned.effect_changes;
        assert_eq!(
            (before.documents().count(), after.documents().count(), replanned.more),
            (6, 6, 4)
        );
    }
}

/// Maximum number of scripts of a noderole in a review.
pub const MAX_REVIEWED_SCRIPTS: usize = 20;
/// Maximum size of a script whose text is part of a review. Longer scripts are linked.
pub const SCRIPT_TEXT_BYTES: usize = 64 * 1024;

/// Selects a noderole of a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReviewedNoderoleQuery {
    /// Id of the node.
    pub node: NodeId,
    /// Role of the noderole. Use `app/1` for a second instance on the node.
    pub noderole: NoderoleKey,
}

/// The values and scripts that a noderole of a review runs with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewedNoderole {
    /// The role.
    pub role: RoleName,
    /// Effective values before and after the change, changed ones first, at most 200. Values that
    /// other noderoles return at run time are not included.
    pub values: Vec<ReviewedValue>,
    /// Number of values.
    pub all: usize,
    /// Interval, timeout and effect of the role's check as text. Null if the role has none.
    #[serde(default)]
    pub check: Option<String>,
    /// Scripts of the role in the order in which they run, at most 20.
    pub scripts: Vec<ReviewedScript>,
    /// Number of further scripts.
    pub more_scripts: usize,
}

/// An effective value of a noderole before and after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewedValue {
    /// Path of the value, as a JSON pointer.
    pub path: String,
    /// Value before the change, with secrets masked. Null if there was none.
    pub before: Option<String>,
    /// Value after the change, with secrets masked. Null if it does not exist.
    pub after: Option<String>,
    /// Whether the change changes it.
    pub changed: bool,
    /// The layer that sets it.
    pub source: String,
}

/// A script that a noderole of a review runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewedScript {
    /// File name.
    pub name: String,
    /// The action that runs it.
    pub action: ActionName,
    /// Hash of the content.
    pub hash: Hash,
    /// The text. Null if the script is binary or longer than 64 KiB.
    pub text: Option<String>,
}
