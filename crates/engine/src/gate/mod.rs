//! The gate: decides whether a review may become the next target.
//!
//! [`evaluate`] is a pure function of [`Facts`]. The page calls it to disable the commit button,
//! and the commit calls it inside its transaction. A database trigger checks the mandatory rules
//! again. There is no bypass and no flag that relaxes a rule. If facts for a rule are missing, the
//! rule is broken.
//!
//! The rules follow strong review systems and close the gaps by which others were bypassed:
//!
//! * The review is the newest of its proposal, and the proposal is open.
//! * Nothing inside its base has changed since, and it is from the current epoch of the database.
//! * It was submitted under the policy in force.
//! * It changes something, and every edit takes effect. No deployment moves out of a hold.
//! * [Lint](crate::lint) reports no error.
//! * No reviewer's last verdict requests changes or rejects it. One objection blocks the gate
//!   regardless of the number of approvals. It ends when the objector gives another verdict or
//!   another review replaces this one. It also ends when the objector may no longer review, and the
//!   gate reports that.
//! * Enough people approved it. Each person's last verdict counts if they may review now. Verdicts
//!   of authors never count.
//! * Approvals do not count if recent access connects the approver with an author ([`access`]).
//!   Verdicts from before an account was disabled are void.
//! * If the policy requires it, only approvals signed with a confirmed passkey count
//!   ([`signature`]).
//! * No thread of its discussion is open ([`discussion`]).

pub mod access;
pub mod contacts;
pub mod discussion;
pub mod review_status;
pub mod signature;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counting::many;
use crate::ids::{BlueprintNumber, DeploymentId, PersonId, PolicyNumber, ReviewId};
use crate::text::sentence;
use access::Access;
use contacts::{ActionContacts, NAMED, ignored_objectors, named};

/// Maximum number of approvals that a policy can require.
pub const MAX_APPROVALS: u32 = 20;
/// Maximum cooling period of a policy, in hours: 30 days.
pub const MAX_COOLING_HOURS: u32 = 720;
/// Default cooling period, in hours.
pub const COOLING_HOURS: u32 = 24;

/// Maximum number of signature rules in a policy.
pub const MAX_SIGNED_RULES: usize = 200;

/// A risk class of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// A destructive step runs.
    Destructive,
    /// An applied step runs again.
    Rerun,
    /// A noderole is removed.
    Removal,
    /// A deployment gets another parent, or a node moves to a deployment that is not below its old
    /// one.
    Move,
    /// A jig is turned off: steps that need it no longer start in any deployment.
    Halt,
    /// A use of a secret is added or replaced.
    Secret,
    /// The connection of a node in a blueprint changes, so its steps run on another machine.
    Connection,
}

impl Risk {
    pub const ALL: [Self; 7] = [
        Self::Destructive,
        Self::Rerun,
        Self::Removal,
        Self::Move,
        Self::Halt,
        Self::Secret,
        Self::Connection,
    ];

    /// The risk as the database spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Destructive => "destructive",
            Self::Rerun => "rerun",
            Self::Removal => "removal",
            Self::Move => "move",
            Self::Halt => "halt",
            Self::Secret => "secret",
            Self::Connection => "connection",
        }
    }

    /// The noun phrase for a change with this risk, as in `2 for a destructive change`.
    pub fn change(self) -> &'static str {
        match self {
            Self::Destructive => "a destructive change",
            Self::Rerun => "a re-run",
            Self::Removal => "a removal",
            Self::Move => "a move",
            Self::Halt => "a switched-off jig",
            Self::Secret => "a use of a secret",
            Self::Connection => "a new connection",
        }
    }
}

/// The approval policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Number of approvals that every change requires, at least 1.
    pub approvals: u32,
    /// Number of approvals that a change of a risk class requires. If several apply, the highest is
    /// required.
    #[serde(default)]
    pub by_risk: BTreeMap<Risk, u32>,
    /// Cooling period in hours, 0 to 720, default 24. During this time after getting access, a
    /// reviewer's approval does not count on changes by the admin who gave it.
    #[serde(default = "default_cooling_hours", skip_serializing_if = "is_default_cooling_hours")]
    pub cooling_hours: u32,
    /// Changes whose approvals must be signed with a passkey. If a policy has any such rule before
    /// or after a change to it, that change needs signed approvals too.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub signed: BTreeSet<SignedRule>,
    /// Whether everyone needs a second factor to sign in: a code from an authenticator app, or a
    /// passkey.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_factor: bool,
}

/// Changes whose approvals must be signed, selected by deployment (with its descendants), by risk,
/// or by both.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignedRule {
    /// The deployment, with its descendants; omit for all deployments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentId>,
    /// The risk class; omit for all changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
}

impl SignedRule {
    /// The rule as text. `name` returns a deployment's name.
    pub fn text(&self, name: impl Fn(DeploymentId) -> String) -> String {
        match (self.deployment, self.risk) {
            (None, None) => "every change".to_owned(),
            (None, Some(risk)) => risk.as_str().to_owned(),
            (Some(deployment), None) => format!("every change of deployment {}", name(deployment)),
            (Some(deployment), Some(risk)) => {
                format!("{} of deployment {}", risk.as_str(), name(deployment))
            }
        }
    }
}

impl fmt::Display for SignedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|deployment| deployment.to_string()))
    }
}

fn default_cooling_hours() -> u32 {
    COOLING_HOURS
}

fn is_default_cooling_hours(hours: &u32) -> bool {
    *hours == COOLING_HOURS
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            approvals: 1,
            by_risk: BTreeMap::new(),
            cooling_hours: COOLING_HOURS,
            signed: BTreeSet::new(),
            second_factor: false,
        }
    }
}

/// An invalid policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Too few or too many approvals.
    #[error(
        "A policy must require 1 to {MAX_APPROVALS} approvals, but this one requires {found}. \
         Review is mandatory"
    )]
    Approvals { found: u32 },
    /// The cooling period is too long.
    #[error("A cooling period must have 0 to {MAX_COOLING_HOURS} hours, but this one has {found}")]
    Cooling {
        /// Hours.
        found: u32,
    },
    /// Too many signature rules.
    #[error(
        "A policy can have at most {MAX_SIGNED_RULES} signature rules, but this one has {found}"
    )]
    SignedRules { found: usize },
}

impl Policy {
    /// Rejects invalid policies, including any under which a change would need no review.
    ///
    /// # Errors
    /// [`PolicyError`] for the first invalid setting.
    pub fn check(&self) -> Result<(), PolicyError> {
        let required = std::iter::once(self.approvals).chain(self.by_risk.values().copied());
        match required.into_iter().find(|n| !(1..=MAX_APPROVALS).contains(n)) {
            Some(found) => Err(PolicyError::Approvals { found }),
            None if self.cooling_hours > MAX_COOLING_HOURS => {
                Err(PolicyError::Cooling { found: self.cooling_hours })
            }
            None if self.signed.len() > MAX_SIGNED_RULES => {
                Err(PolicyError::SignedRules { found: self.signed.len() })
            }
            None => Ok(()),
        }
    }

    /// The differences to another policy, in a fixed order.
    pub fn changes(&self, other: &Self) -> Vec<PolicyChange> {
        let every = |policy: &Self| RequiredApprovals {
            own: Some(policy.approvals),
            approvals: policy.approvals,
        };
        let of = |policy: &Self, risk: Risk| RequiredApprovals {
            own: policy.by_risk.get(&risk).copied(),
            approvals: policy.approvals_for(&[risk].into()),
        };
        let every = PolicyChange {
            part: PolicySetting::AllChanges,
            old: Demand::RequiredApprovals(every(self)),
            new: Demand::RequiredApprovals(every(other)),
        };
        let cooling = PolicyChange {
            part: PolicySetting::Cooling,
            old: Demand::Hours(self.cooling_hours),
            new: Demand::Hours(other.cooling_hours),
        };
        let risks = self.by_risk.keys().chain(other.by_risk.keys()).collect::<BTreeSet<_>>();
        let risks = risks.into_iter().map(|risk| PolicyChange {
            part: PolicySetting::Risk(*risk),
            old: Demand::RequiredApprovals(of(self, *risk)),
            new: Demand::RequiredApprovals(of(other, *risk)),
        });
        let signed = self.signed.symmetric_difference(&other.signed).map(|rule| PolicyChange {
            part: PolicySetting::Signed(*rule),
            old: Demand::Needed(self.signed.contains(rule)),
            new: Demand::Needed(other.signed.contains(rule)),
        });
        let second_factor = PolicyChange {
            part: PolicySetting::SecondFactor,
            old: Demand::Needed(self.second_factor),
            new: Demand::Needed(other.second_factor),
        };
        let all = std::iter::once(every)
            .chain(risks)
            .chain([cooling])
            .chain(signed)
            .chain([second_factor]);
        all.filter(|change| change.old != change.new).collect()
    }

    /// The settings in which another policy is weaker than this one, as text. `None` if in none.
    pub fn weakened_settings(&self, other: &Self) -> Option<String> {
        let changes = self.changes(other);
        let weaker: Vec<String> =
            changes.iter().filter(|c| c.is_weaker()).map(ToString::to_string).collect();
        (!weaker.is_empty()).then(|| weaker.join(", "))
    }

    /// The number of approvals that a change with these risks requires.
    pub fn approvals_for(&self, risks: &BTreeSet<Risk>) -> u32 {
        let by_risk = risks.iter().filter_map(|risk| self.by_risk.get(risk).copied());
        by_risk.chain([self.approvals]).max().unwrap_or(MAX_APPROVALS).max(1)
    }
}

/// The number of approvals that a policy requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequiredApprovals {
    /// The number that the policy sets for this case itself; null if it sets none.
    pub own: Option<u32>,
    /// The number that applies, including the requirement for every change.
    pub approvals: u32,
}

impl fmt::Display for RequiredApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { own, approvals } = self;
        match own {
            Some(own) if own == approvals => write!(f, "{own}"),
            Some(own) => write!(f, "{own} ({approvals}, as for every change)"),
            None => write!(f, "{approvals} (as for every change)"),
        }
    }
}

/// One setting of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySetting {
    /// The approvals of every change.
    AllChanges,
    /// The approvals of changes with a risk.
    Risk(Risk),
    Cooling,
    Signed(SignedRule),
    SecondFactor,
}

/// The value of one setting of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// A number of approvals.
    RequiredApprovals(RequiredApprovals),
    Hours(u32),
    /// Whether something is required.
    Needed(bool),
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequiredApprovals(asks) => asks.fmt(f),
            Self::Hours(hours) => f.write_str(&many(*hours, "hour")),
            Self::Needed(true) => f.write_str("required"),
            Self::Needed(false) => f.write_str("not required"),
        }
    }
}

/// A setting in which two policies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyChange {
    pub part: PolicySetting,
    pub old: Demand,
    pub new: Demand,
}

impl PolicyChange {
    /// Whether the new policy requires less.
    pub fn is_weaker(&self) -> bool {
        match (self.old, self.new) {
            (Demand::RequiredApprovals(old), Demand::RequiredApprovals(new)) => {
                new.approvals < old.approvals
            }
            (Demand::Hours(old), Demand::Hours(new)) => new < old,
            (Demand::Needed(old), Demand::Needed(new)) => old && !new,
            _ => false,
        }
    }

    /// The changes to which the setting applies, or the name of the setting.
    pub fn about(&self) -> Cow<'static, str> {
        match self.part {
            PolicySetting::AllChanges => "every change".into(),
            PolicySetting::Risk(risk) => risk.as_str().into(),
            PolicySetting::Cooling => "cooling period".into(),
            PolicySetting::Signed(rule) => format!("signed approvals for {rule}").into(),
            PolicySetting::SecondFactor => "second factor at sign-in".into(),
        }
    }

    /// The JSON pointer of the setting in a policy.
    pub fn pointer(&self) -> String {
        match self.part {
            PolicySetting::AllChanges => "/approvals".to_owned(),
            PolicySetting::Risk(risk) => format!("/by_risk/{}", risk.as_str()),
            PolicySetting::Cooling => "/cooling_hours".to_owned(),
            PolicySetting::Signed(_) => "/signed".to_owned(),
            PolicySetting::SecondFactor => "/second_factor".to_owned(),
        }
    }
}

impl fmt::Display for PolicyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.about(), self.old, self.new)
    }
}

/// Whether a commit with these risks requires typing a name. No later change can undo such a
/// change, so one click is not enough.
pub fn requires_name(risks: &BTreeSet<Risk>) -> bool {
    risks.contains(&Risk::Destructive) || risks.contains(&Risk::Removal)
}

/// A commit without the required name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("This change cannot be undone ({}). Type {name} to commit it", words(risks))]
pub struct NameNotConfirmed {
    /// The name to type: that of the proposal's deployment, or of the node.
    pub name: String,
    pub risks: BTreeSet<Risk>,
}

fn words(risks: &BTreeSet<Risk>) -> String {
    risks.iter().map(|risk| risk.as_str()).collect::<Vec<_>>().join(", ")
}

/// Checks that the name was typed if the risks require it. Surrounding whitespace is ignored.
///
/// # Errors
/// [`NameNotConfirmed`] if the typed text is another name or missing.
pub fn check_name(
    risks: &BTreeSet<Risk>,
    name: &str,
    typed: Option<&str>,
) -> Result<(), NameNotConfirmed> {
    if !requires_name(risks) || typed.is_some_and(|typed| typed.trim() == name) {
        return Ok(());
    }
    Err(NameNotConfirmed { name: name.to_owned(), risks: risks.clone() })
}

/// A reviewer's verdict on a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Approve the change.
    Approve,
    /// Request changes.
    RequestChanges,
    /// Reject the change.
    Reject,
}

impl VerdictKind {
    /// The verdict as the database spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::RequestChanges => "request_changes",
            Self::Reject => "reject",
        }
    }
}

/// A verdict. Lists are in the order in which the verdicts were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The reviewer.
    pub person: PersonId,
    /// The kind of verdict.
    pub kind: VerdictKind,
    /// When the verdict was given, in microseconds since 1970.
    pub at: i64,
    /// Whether the verdict is void because the account was disabled after it.
    pub void: bool,
}

/// A person's current permissions, as the gate uses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reviewer {
    /// The person's id.
    pub id: PersonId,
    /// The person's name, for messages.
    pub name: String,
    /// Whether the account is human, enabled, and allowed to review this deployment.
    pub eligible: bool,
}

/// How a review ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedReview {
    /// A newer review of the same proposal.
    Replaced(ReviewId),
    Committed(BlueprintNumber),
    /// The proposal was discarded.
    Discarded,
}

impl fmt::Display for ClosedReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced(by) => {
                write!(f, "Review {by} replaced this review. Continue with review {by}")
            }
            Self::Committed(blueprint) => {
                write!(f, "This review is already committed, as blueprint {blueprint}")
            }
            Self::Discarded => f.write_str("The proposal of this review was discarded"),
        }
    }
}

/// The input of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub review: ReviewId,
    /// Whether the proposal is open and this is its newest review.
    pub newest: bool,
    /// How the review ended, if it is not the newest of an open proposal. For messages only.
    pub closed: Option<ClosedReview>,
    /// The reason if an edit is refused or nothing would change.
    pub unresolved: Option<String>,
    /// The holds that the change moves a deployment out of.
    pub left_holds: Vec<LeftHold>,
    /// The lint errors as text.
    pub lint: Vec<String>,
    /// Names of base deployments that changed since, each with the number of the target.
    pub moved_base: Vec<(String, i64)>,
    /// Names of documents that this review changes and another target changed first.
    pub moved_documents: Vec<String>,
    /// Names of nodes without a document whose record changed since planning.
    pub moved_records: Vec<String>,
    /// Whether the review is from the current epoch, that is, from after the last restore.
    pub same_epoch: bool,
    /// The policy under which it was submitted, and the policy in force.
    pub policy: (PolicyNumber, PolicyNumber),
    /// The number of approvals that the policy in force requires.
    pub approvals_needed: u32,
    /// Everyone who edited the proposal.
    pub authors: BTreeSet<PersonId>,
    /// All verdicts, oldest first.
    pub verdicts: Vec<Verdict>,
    /// Everyone who gave a verdict or could give one.
    pub people: Vec<Reviewer>,
    /// The access changes of these people.
    pub access: Access,
    /// The signed approvals. `None`: approvals need no signature.
    pub signing: Option<Signing>,
    /// The author of each unresolved thread, on any version of the proposal.
    pub open_threads: Vec<String>,
    /// People who can fix rules that no verdict fixes. For messages only; no decision uses it.
    pub helpers: ActionContacts,
}

/// A hold that a moved deployment would leave: its old place is on hold, and the new one is not
/// below the same hold. Without this rule, a move would end a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftHold {
    /// The name of the moved deployment.
    pub moved: String,
    /// The name of the deployment on hold.
    pub on_hold: String,
    /// The person who put it on hold.
    pub by: String,
}

/// Valid signatures of verdicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signing {
    /// People whose last verdict is signed with a confirmed passkey.
    pub signed: BTreeSet<PersonId>,
    /// People with a confirmed passkey.
    pub able: BTreeSet<PersonId>,
}

impl Facts {
    /// A person's last verdict that is not void.
    pub fn last_verdict(&self, person: PersonId) -> Option<&Verdict> {
        self.verdicts.iter().rev().find(|verdict| verdict.person == person && !verdict.void)
    }

    /// Whether every edit could take effect, if a hold did not prevent a move.
    pub fn is_stopped_by_hold(&self) -> bool {
        self.unresolved.is_none() && !self.left_holds.is_empty()
    }

    /// Whether this person's last verdict is an approval that counts.
    pub fn counts(&self, person: PersonId) -> bool {
        access::approval_counts(self, person)
    }

    /// Whether an approval by this person would count now, considering only access and passkeys.
    pub fn can_count(&self, person: PersonId) -> bool {
        let can_sign = self.signing.as_ref().is_none_or(|signing| signing.able.contains(&person));
        can_sign && self.access.exclusion(person, self.access.now, &self.authors).is_none()
    }

    /// Whether this person's last verdict is signed or needs no signature.
    fn is_signed(&self, person: PersonId) -> bool {
        self.signing.as_ref().is_none_or(|signing| signing.signed.contains(&person))
    }

    /// Eligible reviewers who are not authors.
    fn reviewers(&self) -> impl Iterator<Item = &Reviewer> {
        self.people.iter().filter(|p| p.eligible && !self.authors.contains(&p.id))
    }
}

/// A rule of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The review is the newest of an open proposal.
    Newest,
    /// Every edit takes effect, and the change is not empty. No deployment moves out of a hold.
    Resolved,
    /// Lint reports no error.
    Lint,
    /// Nothing inside the base has changed.
    Base,
    /// The review was submitted after the last restore.
    Epoch,
    /// The review was submitted under the policy in force.
    Policy,
    /// No reviewer requested changes or rejected the review.
    Objections,
    /// The review has enough approvals.
    Approvals,
    /// No thread is open.
    Threads,
}

/// The result of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleResult {
    /// The rule.
    pub rule: Rule,
    /// Whether the rule passes.
    pub passes: bool,
    /// The result as text. If the rule does not pass, includes how to fix it.
    pub text: String,
}

/// The result of the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateResult {
    /// The result of every rule, in a fixed order.
    pub rules: Vec<RuleResult>,
    /// Number of approvals that count.
    pub approvals: u32,
    /// Number of approvals required.
    pub needed: u32,
    /// Names of people who could approve and have not.
    pub can_approve: Vec<String>,
}

impl GateResult {
    /// Whether the review may be committed.
    pub fn is_open(&self) -> bool {
        !self.rules.is_empty() && self.rules.iter().all(|rule| rule.passes)
    }

    /// The first rule that does not pass.
    pub fn closed_by(&self) -> Option<&RuleResult> {
        self.broken().next()
    }

    /// All rules that do not pass.
    pub fn broken(&self) -> impl Iterator<Item = &RuleResult> {
        self.rules.iter().filter(|rule| !rule.passes)
    }
}

/// Why a person may not give a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictError {
    /// The person is an author of the change.
    #[error("You wrote part of this change, so another person must review it")]
    Author,
    /// The person has no reviewer permission for the deployment.
    #[error(
        "Your account may not review this deployment. Ask an admin for the reviewer permission"
    )]
    NotAReviewer,
    /// The review is no longer the newest of its proposal.
    #[error("This version of the change was replaced or closed. Open the newest version")]
    NotNewest,
}

/// Whether a person may give a verdict.
///
/// # Errors
/// [`VerdictError`] with the reason.
pub fn may_review(facts: &Facts, person: PersonId) -> Result<(), VerdictError> {
    if facts.authors.contains(&person) {
        return Err(VerdictError::Author);
    }
    if !facts.people.iter().any(|p| p.id == person && p.eligible) {
        return Err(VerdictError::NotAReviewer);
    }
    if !facts.newest {
        return Err(VerdictError::NotNewest);
    }
    Ok(())
}

/// Evaluates every rule.
pub fn evaluate(facts: &Facts) -> GateResult {
    let (approving, others): (Vec<&Reviewer>, Vec<&Reviewer>) =
        facts.reviewers().partition(|reviewer| access::approval_counts(facts, reviewer.id));
    let able = others.iter().filter(|reviewer| facts.can_count(reviewer.id));
    let can_approve: Vec<String> = able.map(|reviewer| reviewer.name.clone()).collect();
    // There is at most one approval per person, so the count fits.
    let approvals = u32::try_from(approving.len()).unwrap_or(u32::MAX);
    let needed = facts.approvals_needed.max(1);
    let rules = vec![
        newest(facts),
        resolved(facts),
        lint(facts),
        base(facts),
        epoch(facts),
        policy(facts),
        objections(facts),
        enough(facts, (approvals, needed), &can_approve, (approving.as_slice(), others.as_slice())),
        threads(facts),
    ];
    GateResult { rules, approvals, needed, can_approve }
}

fn state(rule: Rule, broken: Option<String>, holds: &str) -> RuleResult {
    RuleResult { rule, passes: broken.is_none(), text: broken.unwrap_or_else(|| holds.to_owned()) }
}

fn newest(facts: &Facts) -> RuleResult {
    let broken = (!facts.newest).then(|| match facts.closed {
        Some(closed) => closed.to_string(),
        None => "The proposal is closed or has a newer version".to_owned(),
    });
    state(Rule::Newest, broken, "Newest version of an open proposal")
}

fn resolved(facts: &Facts) -> RuleResult {
    let broken = facts
        .unresolved
        .as_ref()
        .map(|reason| format!("{} {}", sentence(reason), facts.helpers.to_submit()))
        .or_else(|| left_holds(&facts.left_holds));
    state(Rule::Resolved, broken, "Every edit takes effect")
}

fn left_holds(holds: &[LeftHold]) -> Option<String> {
    let moves: Vec<String> = holds
        .iter()
        .map(|hold| format!("{} leaves {} (on hold by {})", hold.moved, hold.on_hold, hold.by))
        .collect();
    let on_hold: BTreeSet<&str> = holds.iter().map(|hold| hold.on_hold.as_str()).collect();
    let on_hold: Vec<&str> = on_hold.into_iter().collect();
    (!moves.is_empty()).then(|| {
        format!(
            "The change moves a deployment out of a hold: {}. Ask an operator to end the hold of \
             {} first, or wait until it ends",
            named(&moves),
            named(&on_hold)
        )
    })
}

fn lint(facts: &Facts) -> RuleResult {
    let errors = facts.lint.first().map(|first| match facts.lint.len() {
        1 => first.clone(),
        n => format!("{n} errors. The first: {first}"),
    });
    let broken = errors.map(|errors| format!("{errors}. {}", facts.helpers.to_submit()));
    state(Rule::Lint, broken, "Lint found no errors")
}

fn base(facts: &Facts) -> RuleResult {
    let moved = moved(&facts.moved_base, &facts.moved_documents, &facts.moved_records);
    let broken = (!moved.is_empty()).then(|| {
        format!("Planned on an older state: {} changed since{}", named(&moved), submit_again(facts))
    });
    state(Rule::Base, broken, "Base unchanged since planning")
}

/// The people who can submit the review again. Empty if it is closed, because then no one can.
fn submit_again(facts: &Facts) -> String {
    match facts.closed {
        Some(_) => String::new(),
        None => format!(". An author must submit it again. {}", facts.helpers.to_submit()),
    }
}

/// Everything that changed since planning, each name once, with the reason.
pub fn moved(base: &[(String, i64)], documents: &[String], records: &[String]) -> Vec<String> {
    let deployments = base.iter().map(|(name, target)| format!("{name} (blueprint {target})"));
    let others = documents.iter().filter(|name| !base.iter().any(|(known, _)| known == *name));
    let others = others.map(|name| format!("{name} (changed by another blueprint)"));
    deployments
        .chain(others)
        .chain(records.iter().map(|name| format!("the record of node {name}")))
        .collect()
}

fn epoch(facts: &Facts) -> RuleResult {
    let broken = (!facts.same_epoch).then(|| {
        format!("Submitted before the database was restored from a backup{}", submit_again(facts))
    });
    state(Rule::Epoch, broken, "Submitted since the last restore")
}

fn policy(facts: &Facts) -> RuleResult {
    let (made, now) = facts.policy;
    let broken = (made != now).then(|| {
        format!(
            "Submitted under policy {made}, but policy {now} is in force{}",
            submit_again(facts)
        )
    });
    state(Rule::Policy, broken, &format!("Policy {now} is in force"))
}

fn enough(
    facts: &Facts,
    (approvals, needed): (u32, u32),
    can_approve: &[String],
    (approving, others): (&[&Reviewer], &[&Reviewer]),
) -> RuleResult {
    let signed = if facts.signing.is_some() { "signed approval" } else { "approval" };
    let counted = format!("{approvals} of {}", many(needed, signed));
    let broken = (approvals < needed).then(|| {
        let more = needed - approvals;
        let able = u32::try_from(can_approve.len()).unwrap_or(u32::MAX);
        let excluded = access::explained(facts, others);
        let who = match able {
            0 if excluded.is_empty() => {
                format!("No reviewer is left. {}", facts.helpers.permission_hint("reviewer"))
            }
            0 => format!("{more} more needed"),
            able if able < more => format!(
                "{more} more needed, but only {} can approve. {}",
                named(can_approve),
                facts.helpers.permission_hint("reviewer")
            ),
            _ => format!("{more} more needed. Can act: {}", named(can_approve)),
        };
        let sentences = [counted.clone(), who].into_iter().chain(excluded.into_iter().take(NAMED));
        sentences.collect::<Vec<_>>().join(". ")
    });
    let holds: Vec<String> = [counted].into_iter().chain(access::noted(facts, approving)).collect();
    state(Rule::Approvals, broken, &holds.join(". "))
}

fn objections(facts: &Facts) -> RuleResult {
    let objects =
        |id| facts.last_verdict(id).is_some_and(|verdict| verdict.kind != VerdictKind::Approve);
    let objecting = facts.reviewers().filter(|p| objects(p.id));
    let names: Vec<&str> = objecting.map(|p| p.name.as_str()).collect();
    let broken = (!names.is_empty()).then(|| {
        let names = named(&names);
        let change = match facts.helpers.operators.as_slice() {
            [] => String::new(),
            operators => format!(". Can change it: {}", named(operators)),
        };
        format!(
            "Changes were requested, or the change was rejected, by {names}. Can decide again: \
             {names}{change}"
        )
    });
    let ignored = ignored_objectors(facts);
    let holds = match ignored.as_slice() {
        [] => "No objections".to_owned(),
        ignored => format!(
            "No objections from current reviewers. Objections of people who may no longer review \
             do not count: {}",
            named(ignored)
        ),
    };
    state(Rule::Objections, broken, &holds)
}

fn threads(facts: &Facts) -> RuleResult {
    let by: BTreeSet<&str> = facts.open_threads.iter().map(String::as_str).collect();
    let by: Vec<&str> = by.into_iter().collect();
    let broken = (!by.is_empty()).then(|| {
        let (open, them) = match facts.open_threads.len() {
            1 => ("One thread is open".to_owned(), "it"),
            n => (format!("{n} threads are open"), "them"),
        };
        format!(
            "{open}, started by {}. The person who started a thread, or another reviewer, can \
             resolve {them}",
            named(&by)
        )
    });
    state(Rule::Threads, broken, "No open threads")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    pub(in crate::gate) fn person(n: u128) -> PersonId {
        PersonId(Uuid::from_u128(n))
    }

    #[test]
    fn changed_base_parts_are_named_once() {
        let both = Facts {
            moved_base: vec![("web".into(), 4)],
            moved_documents: vec!["web".into(), "n1".into()],
            moved_records: vec!["n2".into()],
            ..facts()
        };
        let text = base(&both).text;
        let named = "web (blueprint 4), n1 (changed by another blueprint) and the record of node n2 changed \
             since.";
        assert!(text.contains(named), "{text}");
    }

    #[test]
    fn irreversible_change_requires_typed_name() {
        for risk in [Risk::Destructive, Risk::Removal] {
            let risks = [risk, Risk::Rerun].into();
            for typed in [None, Some(""), Some("we"), Some("WEB"), Some("web2")] {
                let refused = check_name(&risks, "web", typed).unwrap_err();
                assert!(refused.to_string().contains("Type web to commit it"), "{refused}");
            }
            assert_eq!(check_name(&risks, "web", Some(" web ")), Ok(()));
        }
        assert_eq!(check_name(&[Risk::Rerun, Risk::Move].into(), "web", None), Ok(()));
    }

    pub(in crate::gate) fn facts() -> Facts {
        let reviewer =
            |n: u128, name: &str| Reviewer { id: person(n), name: name.into(), eligible: true };
        Facts {
            review: ReviewId(41),
            newest: true,
            closed: None,
            unresolved: None,
            left_holds: Vec::new(),
            lint: Vec::new(),
            moved_base: Vec::new(),
            moved_documents: Vec::new(),
            moved_records: Vec::new(),
            same_epoch: true,
            policy: (PolicyNumber(3), PolicyNumber(3)),
            approvals_needed: 1,
            authors: [person(1)].into(),
            verdicts: vec![Verdict {
                person: person(2),
                kind: VerdictKind::Approve,
                at: 0,
                void: false,
            }],
            people: vec![reviewer(1, "ada"), reviewer(2, "bo"), reviewer(3, "cy")],
            access: Access::default(),
            signing: None,
            open_threads: Vec::new(),
            helpers: ActionContacts::default(),
        }
    }

    fn left_hold(moved: &str) -> LeftHold {
        LeftHold { moved: moved.into(), on_hold: "edge".into(), by: "bo".into() }
    }

    #[test]
    fn left_holds_are_named_with_remedy() {
        let mut facts = facts();
        facts.left_holds = vec![left_hold("web"), left_hold("shop")];
        assert!(facts.is_stopped_by_hold());
        assert_eq!(
            resolved(&facts).text,
            "The change moves a deployment out of a hold: web leaves edge (on hold by bo) and shop \
             leaves edge (on hold by bo). Ask an operator to end the hold of edge first, or wait \
             until it ends"
        );
        facts.unresolved = Some("edit 2".into());
        assert!(!facts.is_stopped_by_hold());
        assert!(resolved(&facts).text.starts_with("edit 2."), "{}", resolved(&facts).text);
    }

    fn closed_by(facts: &Facts) -> Option<Rule> {
        evaluate(facts).closed_by().map(|rule| rule.rule)
    }

    #[test]
    fn too_few_eligible_reviewers_are_reported() {
        let mut facts = facts();
        facts.approvals_needed = 5;
        let text = |facts: &Facts| {
            evaluate(facts).closed_by().map(|rule| rule.text.clone()).unwrap_or_default()
        };
        assert_eq!(
            text(&facts),
            "1 of 5 approvals. 4 more needed, but only cy can approve. No admin is left to give \
             the reviewer permission"
        );
        facts.approvals_needed = 2;
        assert_eq!(text(&facts), "1 of 2 approvals. 1 more needed. Can act: cy");
    }

    #[test]
    fn another_persons_approval_opens_gate() {
        assert_eq!(closed_by(&facts()), None);
    }

    #[test]
    fn each_rule_blocks_gate_alone() {
        let changed = |change: &dyn Fn(&mut Facts)| {
            let mut facts = facts();
            change(&mut facts);
            closed_by(&facts)
        };
        assert_eq!(changed(&|f| f.newest = false), Some(Rule::Newest));
        assert_eq!(changed(&|f| f.unresolved = Some("edit 2".into())), Some(Rule::Resolved));
        assert_eq!(changed(&|f| f.left_holds.push(left_hold("web"))), Some(Rule::Resolved));
        assert_eq!(changed(&|f| f.lint.push("app on n1: its jig is off".into())), Some(Rule::Lint));
        assert_eq!(changed(&|f| f.moved_base.push(("web".into(), 32))), Some(Rule::Base));
        assert_eq!(changed(&|f| f.moved_documents.push("n1".into())), Some(Rule::Base));
        assert_eq!(changed(&|f| f.moved_records.push("n1".into())), Some(Rule::Base));
        assert_eq!(changed(&|f| f.same_epoch = false), Some(Rule::Epoch));
        assert_eq!(changed(&|f| f.policy.1 = PolicyNumber(4)), Some(Rule::Policy));
        assert_eq!(changed(&|f| f.approvals_needed = 2), Some(Rule::Approvals));
        assert_eq!(changed(&|f| f.people[1].eligible = false), Some(Rule::Approvals));
        assert_eq!(changed(&|f| f.people.clear()), Some(Rule::Approvals));
        assert_eq!(
            changed(&|f| f.verdicts.push(Verdict {
                person: person(3),
                kind: VerdictKind::Reject,
                at: 0,
                void: false
            })),
            Some(Rule::Objections)
        );
        assert_eq!(changed(&|f| f.open_threads.push("bo".into())), Some(Rule::Threads));
    }

    #[test]
    fn policy_changes_and_weaker_parts_are_complete() {
        let policy = |approvals, by_risk: &[(Risk, u32)]| Policy {
            approvals,
            by_risk: by_risk.iter().copied().collect(),
            ..Policy::default()
        };
        let change_texts = |old: &Policy, new: &Policy| {
            old.changes(new).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let old = policy(1, &[(Risk::Destructive, 3), (Risk::Move, 2)]);
        assert!(old.changes(&old).is_empty());
        let new = policy(2, &[(Risk::Destructive, 1)]);
        assert_eq!(
            change_texts(&old, &new),
            [
                "every change: 1 -> 2",
                "destructive: 3 -> 1 (2, as for every change)",
                "move: 2 -> 2 (as for every change)"
            ]
        );
        assert_eq!(
            old.weakened_settings(&new).as_deref(),
            Some("destructive: 3 -> 1 (2, as for every change)")
        );
        assert_eq!(new.weakened_settings(&old).as_deref(), Some("every change: 2 -> 1"));
        let two = policy(1, &[(Risk::Destructive, 2), (Risk::Move, 1)]);
        assert_eq!(
            old.weakened_settings(&two).as_deref(),
            Some("destructive: 3 -> 2, move: 2 -> 1")
        );
        // Different policies never have the same text.
        assert_eq!(
            change_texts(&policy(3, &[(Risk::Rerun, 1)]), &policy(3, &[(Risk::Rerun, 2)])).len(),
            1
        );
    }

    #[test]
    fn shorter_cooling_period_is_weaker() {
        let policy = |cooling_hours| Policy { cooling_hours, ..Policy::default() };
        assert_eq!(
            policy(24).weakened_settings(&policy(1)).as_deref(),
            Some("cooling period: 24 hours -> 1 hour")
        );
        assert_eq!(policy(1).weakened_settings(&policy(24)), None);
        assert_eq!(policy(1).changes(&policy(24)).len(), 1);
        assert_eq!(policy(721).check(), Err(PolicyError::Cooling { found: 721 }));
        assert_eq!((policy(0).check(), policy(720).check()), (Ok(()), Ok(())));
        let written = serde_json::to_string(&Policy::default()).unwrap();
        assert_eq!(
            written, r#"{"approvals":1,"by_risk":{}}"#,
            "a policy without the field is stored as before"
        );
        assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), Policy::default());
    }

    #[test]
    fn unsigned_approval_is_ignored_if_signature_required() {
        let mut facts = facts();
        facts.signing = Some(Signing { signed: BTreeSet::new(), able: [person(2)].into() });
        let text = |facts: &Facts| {
            evaluate(facts).closed_by().map(|rule| rule.text.clone()).unwrap_or_default()
        };
        assert_eq!(
            text(&facts),
            "0 of 1 signed approval. 1 more needed. Can act: bo. bo approved it without a passkey \
             and must approve again with one. cy has no confirmed passkey"
        );
        facts.signing = Some(Signing { signed: [person(2)].into(), able: [person(2)].into() });
        assert_eq!(closed_by(&facts), None);
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::Reject,
            at: 0,
            void: false,
        });
        assert_eq!(closed_by(&facts), Some(Rule::Objections), "objections need no signature");
    }

    #[test]
    fn dropped_signature_rules_are_weaker() {
        let rule = SignedRule { deployment: None, risk: Some(Risk::Destructive) };
        let signed = Policy { signed: [rule].into(), second_factor: true, ..Policy::default() };
        let reported =
            Policy::default().changes(&signed).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            reported,
            [
                "signed approvals for destructive: not required -> required",
                "second factor at sign-in: not required -> required"
            ]
        );
        assert_eq!(Policy::default().weakened_settings(&signed), None);
        assert!(signed.weakened_settings(&Policy::default()).is_some());
        let written = serde_json::to_string(&signed).unwrap();
        assert_eq!(
            written,
            r#"{"approvals":1,"by_risk":{},"signed":[{"risk":"destructive"}],"second_factor":true}"#
        );
        assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), signed);
        let many = (0..=MAX_SIGNED_RULES as u128)
            .map(|n| SignedRule { deployment: Some(DeploymentId(Uuid::from_u128(n))), risk: None });
        let many = Policy { signed: many.collect(), ..Policy::default() };
        assert!(matches!(many.check(), Err(PolicyError::SignedRules { .. })));
    }

    #[test]
    fn objection_is_reported_before_missing_approvals() {
        let mut facts = facts();
        facts.approvals_needed = 2;
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::RequestChanges,
            at: 0,
            void: false,
        });
        let gate = evaluate(&facts);
        let broken: Vec<Rule> = gate.broken().map(|rule| rule.rule).collect();
        assert_eq!(broken, [Rule::Objections, Rule::Approvals]);
        assert_eq!(
            gate.closed_by().map(|rule| rule.text.as_str()),
            Some("Changes were requested, or the change was rejected, by cy. Can decide again: cy")
        );
    }

    #[test]
    fn ignored_objection_is_reported() {
        let mut facts = facts();
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::Reject,
            at: 0,
            void: false,
        });
        assert_eq!(closed_by(&facts), Some(Rule::Objections));
        facts.people[2].eligible = false;
        let gate = evaluate(&facts);
        assert!(gate.is_open(), "only the verdicts of people who may review now count");
        let text = gate
            .rules
            .iter()
            .find(|rule| rule.rule == Rule::Objections)
            .map(|rule| rule.text.as_str());
        assert_eq!(
            text,
            Some(
                "No objections from current reviewers. Objections of people who may no longer \
                 review do not count: cy"
            )
        );
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::Approve,
            at: 0,
            void: false,
        });
        assert!(ignored_objectors(&facts).is_empty(), "a withdrawn objection is ignored");
    }

    #[test]
    fn author_approval_never_counts() {
        let mut facts = facts();
        facts.verdicts =
            vec![Verdict { person: person(1), kind: VerdictKind::Approve, at: 0, void: false }];
        assert_eq!(closed_by(&facts), Some(Rule::Approvals));
        assert_eq!(may_review(&facts, person(1)), Err(VerdictError::Author));
    }

    #[test]
    fn only_last_verdict_counts() {
        let mut facts = facts();
        facts.approvals_needed = 2;
        facts.verdicts.push(Verdict {
            person: person(2),
            kind: VerdictKind::Approve,
            at: 0,
            void: false,
        });
        assert_eq!(
            closed_by(&facts),
            Some(Rule::Approvals),
            "one person approving twice is one approval"
        );
        facts.approvals_needed = 1;
        facts.verdicts.push(Verdict {
            person: person(2),
            kind: VerdictKind::RequestChanges,
            at: 0,
            void: false,
        });
        let broken: Vec<Rule> = evaluate(&facts).broken().map(|rule| rule.rule).collect();
        assert_eq!(
            broken,
            [Rule::Objections, Rule::Approvals],
            "a withdrawn approval no longer counts"
        );
    }

    #[test]
    fn policy_without_review_is_rejected() {
        let policy = |approvals, destructive| Policy {
            approvals,
            by_risk: [(Risk::Destructive, destructive)].into(),
            ..Policy::default()
        };
        assert!(policy(0, 1).check().is_err());
        assert!(policy(1, 0).check().is_err());
        assert!(policy(1, 2).check().is_ok());
        assert_eq!(policy(1, 2).approvals_for(&[Risk::Rerun, Risk::Destructive].into()), 2);
    }

    proptest! {
        #[test]
        fn gate_requires_enough_eligible_approvals(
            needed in 0u32..4,
            authors in prop::collection::btree_set(0u128..5, 1..3),
            verdicts in prop::collection::vec((0u128..5, 0..3u8), 0..12),
            eligible in prop::collection::vec(any::<bool>(), 5),
        ) {
            let kind = |k| [VerdictKind::Approve, VerdictKind::RequestChanges, VerdictKind::Reject][usize::from(k)];
            let mut facts = facts();
            facts.approvals_needed = needed;
            facts.authors = authors.iter().map(|n| person(*n)).collect();
            facts.verdicts = verdicts.iter().map(|(p, k)| Verdict { person: person(*p), kind: kind(*k), at: 0, void: false }).collect();
            facts.people = eligible
                .iter()
                .enumerate()
                .map(|(n, eligible)| Reviewer { id: person(n as u128), name: n.to_string(), eligible: *eligible })
                .collect();
            let mut approving = 0;
            let mut objecting = 0;
            for n in 0..5u128 {
                let last = verdicts.iter().rev().find(|(p, _)| *p == n).map(|(_, k)| kind(*k));
                if authors.contains(&n) || !eligible[n as usize] {
                    continue;
                }
                approving += u32::from(last == Some(VerdictKind::Approve));
                objecting += u32::from(last.is_some_and(|k| k != VerdictKind::Approve));
            }
            prop_assert_eq!(evaluate(&facts).is_open(), approving >= needed.max(1) && objecting == 0);
        }
    }

    #[test]
    fn closed_review_names_its_outcome() {
        let closed = |outcome| Facts {
            newest: false,
            closed: Some(outcome),
            moved_base: vec![("web".into(), 4)],
            ..facts()
        };
        let texts = |outcome| {
            let facts = closed(outcome);
            let broken: Vec<String> =
                evaluate(&facts).broken().map(|rule| rule.text.clone()).collect();
            let verdict = contacts::check_can_review_or_explain(&facts, person(3)).unwrap_err();
            assert_eq!(verdict, broken[0]);
            broken
        };
        assert_eq!(
            texts(ClosedReview::Replaced(ReviewId(38)))[..2],
            [
                "Review 38 replaced this review. Continue with review 38",
                "Planned on an older state: web (blueprint 4) changed since"
            ]
        );
        assert_eq!(
            texts(ClosedReview::Committed(BlueprintNumber(9)))[0],
            "This review is already committed, as blueprint 9"
        );
        assert_eq!(texts(ClosedReview::Discarded)[0], "The proposal of this review was discarded");
    }
}
