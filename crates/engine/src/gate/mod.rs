//! The gate: whether a submission may become the next target.
//!
//! A pure function of facts ([`evaluate`]). It is asked by the page that shows why a button is off and, inside the commit's
//! transaction, by the commit itself; a trigger in the database checks the hard core of it once more. There is no way round it and
//! no flag that loosens it: a rule without facts counts as broken.
//!
//! Rules, after what strong review systems enforce and where others were bypassed:
//!
//! * the submission is the newest of its proposal, and the proposal is open;
//! * nothing inside its base changed since, and it was made in this life of the database (epoch);
//! * it was made under the policy that is in force;
//! * it changes something, and every edit takes effect;
//! * [lint](crate::lint) finds no error in it;
//! * nobody's last word asks for changes or rejects it: however many approve, one objection keeps it shut until whoever objects
//!   decides again, or another submission takes its place;
//! * enough people approved it: each person's last verdict counts, authors' never, and only those of people who may review at this
//!   very moment. So an objection ends, too, when whoever made it may not review any more, and the gate says that it did;
//! * approvals do not count by people whose access an author gave shortly before ([`access`]), and verdicts given before an account
//!   was disabled are void;
//! * where the policy demands it, only approvals that are signed with a confirmed passkey count ([`signature`]);
//! * no thread of its discussion is open ([`discussion`]).

pub mod access;
pub mod discussion;
pub mod signature;
pub mod standing;
pub mod who;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counting::many;
use crate::ids::{DeploymentId, PersonId, PolicyNo, SubmissionId};
use access::Access;
use who::{Helpers, NAMED, disregarded, named};

/// Most approvals that a policy may ask for.
pub const MAX_APPROVALS: u32 = 20;
/// Longest cooling period that a policy may have, in hours: 30 days.
pub const MAX_COOLING_HOURS: u32 = 720;
/// The cooling period of a policy that does not state one, in hours.
pub const COOLING_HOURS: u32 = 24;

/// Most rules on signatures that a policy may have.
pub const MAX_SIGNED_RULES: usize = 200;

/// What makes a change riskier than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// A destructive step runs.
    Destructive,
    /// Something that is applied runs again.
    Rerun,
    /// A noderole goes.
    Removal,
    /// A node changes hands between deployments that stand side by side.
    Move,
    /// A jig is switched off: nothing that needs it starts any more, in any deployment.
    Halt,
    /// A use of a secret is added or replaced.
    Secret,
    /// The connection of a node in a blueprint changes: its steps run on the machine that the new one names.
    Connection,
}

impl Risk {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Destructive,
        Self::Rerun,
        Self::Removal,
        Self::Move,
        Self::Halt,
        Self::Secret,
        Self::Connection,
    ];

    /// The word in the database.
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

    /// What a change with it is called: `2 for a destructive change`.
    pub fn change(self) -> &'static str {
        match self {
            Self::Destructive => "a destructive change",
            Self::Rerun => "a rerun",
            Self::Removal => "a removal",
            Self::Move => "a move",
            Self::Halt => "a halt of a jig",
            Self::Secret => "a use of a secret",
            Self::Connection => "a new connection",
        }
    }
}

/// What the gate asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Approvals that every change needs; at least 1.
    pub approvals: u32,
    /// Approvals that changes of a risk class need; the highest counts.
    #[serde(default)]
    pub by_risk: BTreeMap<Risk, u32>,
    /// Hours for which approvals do not count on the changes of the admin who gave the reviewer access; 0 to 720. Absent: 24.
    #[serde(default = "usual_cooling", skip_serializing_if = "is_usual_cooling")]
    pub cooling_hours: u32,
    /// Changes whose approvals must be signed with a passkey. A change of the policy is one of them if any rule is listed here, before
    /// or after it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub signed: BTreeSet<SignedRule>,
    /// Whether everyone needs a second factor to sign in: a code of an authenticator app, or a passkey.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_factor: bool,
}

/// Changes whose approvals must be signed: all of a deployment and those nested in it, all with a risk, or those with both.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignedRule {
    /// Absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentId>,
    /// Absent: every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
}

impl SignedRule {
    /// The rule in words. `name`: of a deployment.
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

fn usual_cooling() -> u32 {
    COOLING_HOURS
}

// A policy from before it had the field keeps its hash.
fn is_usual_cooling(hours: &u32) -> bool {
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

/// A policy that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Too few approvals, or too many.
    #[error(
        "a policy asks for 1 to {MAX_APPROVALS} approvals, and this one asks for {found}: review is mandatory"
    )]
    Approvals {
        /// What it asks for.
        found: u32,
    },
    /// Too long a cooling period.
    #[error("a cooling period has 0 to {MAX_COOLING_HOURS} hours, and this one has {found}")]
    Cooling {
        /// Its hours.
        found: u32,
    },
    /// Too many rules.
    #[error(
        "a policy has at most {MAX_SIGNED_RULES} rules on signatures, and this one has {found}"
    )]
    SignedRules {
        /// Its rules.
        found: usize,
    },
}

impl Policy {
    /// Refuses policies under which nothing would need a review.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn check(&self) -> Result<(), PolicyError> {
        let asked = std::iter::once(self.approvals).chain(self.by_risk.values().copied());
        match asked.into_iter().find(|n| !(1..=MAX_APPROVALS).contains(n)) {
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

    /// In what another policy differs from this one: first what it asks of every change, then each risk, the cooling period, each rule on
    /// signatures, the second factor.
    pub fn changes(&self, other: &Self) -> Vec<PolicyChange> {
        let every =
            |policy: &Self| Asks { own: Some(policy.approvals), approvals: policy.approvals };
        let of = |policy: &Self, risk: Risk| Asks {
            own: policy.by_risk.get(&risk).copied(),
            approvals: policy.approvals_for(&[risk].into()),
        };
        let every = PolicyChange {
            part: PolicyPart::Every,
            old: Demand::Asks(every(self)),
            new: Demand::Asks(every(other)),
        };
        let cooling = PolicyChange {
            part: PolicyPart::Cooling,
            old: Demand::Hours(self.cooling_hours),
            new: Demand::Hours(other.cooling_hours),
        };
        let risks = self.by_risk.keys().chain(other.by_risk.keys()).collect::<BTreeSet<_>>();
        let risks = risks.into_iter().map(|risk| PolicyChange {
            part: PolicyPart::Risk(*risk),
            old: Demand::Asks(of(self, *risk)),
            new: Demand::Asks(of(other, *risk)),
        });
        let signed = self.signed.symmetric_difference(&other.signed).map(|rule| PolicyChange {
            part: PolicyPart::Signed(*rule),
            old: Demand::Needed(self.signed.contains(rule)),
            new: Demand::Needed(other.signed.contains(rule)),
        });
        let second_factor = PolicyChange {
            part: PolicyPart::SecondFactor,
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

    /// Where another policy asks for less than this one: for what, and how much. None: nowhere.
    pub fn weaker_in(&self, other: &Self) -> Option<String> {
        let changes = self.changes(other);
        let weaker: Vec<String> =
            changes.iter().filter(|c| c.is_weaker()).map(ToString::to_string).collect();
        (!weaker.is_empty()).then(|| weaker.join(", "))
    }

    /// How many approvals a change with these risks needs.
    pub fn approvals_for(&self, risks: &BTreeSet<Risk>) -> u32 {
        let by_risk = risks.iter().filter_map(|risk| self.by_risk.get(risk).copied());
        by_risk.chain([self.approvals]).max().unwrap_or(MAX_APPROVALS).max(1)
    }
}

/// What a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Asks {
    /// What the policy says for just that; None: nothing.
    pub own: Option<u32>,
    /// So many approvals it needs then, since every change needs some.
    pub approvals: u32,
}

impl fmt::Display for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { own, approvals } = self;
        match own {
            Some(own) if own == approvals => write!(f, "{own}"),
            Some(own) => write!(f, "{own} ({approvals}, as every change)"),
            None => write!(f, "{approvals} (as every change)"),
        }
    }
}

/// A part of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyPart {
    /// Approvals of every change.
    Every,
    /// Approvals of changes with a risk.
    Risk(Risk),
    /// The cooling period.
    Cooling,
    /// A rule on signatures.
    Signed(SignedRule),
    /// The second factor.
    SecondFactor,
}

/// What a policy demands in one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Approvals.
    Asks(Asks),
    /// Hours.
    Hours(u32),
    /// Whether something is needed.
    Needed(bool),
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks(asks) => asks.fmt(f),
            Self::Hours(hours) => f.write_str(&many(*hours, "hour")),
            Self::Needed(true) => f.write_str("needed"),
            Self::Needed(false) => f.write_str("not needed"),
        }
    }
}

/// One part in which two policies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyChange {
    /// Which part.
    pub part: PolicyPart,
    /// Before.
    pub old: Demand,
    /// After.
    pub new: Demand,
}

impl PolicyChange {
    /// Whether less is asked for than before.
    pub fn is_weaker(&self) -> bool {
        match (self.old, self.new) {
            (Demand::Asks(old), Demand::Asks(new)) => new.approvals < old.approvals,
            (Demand::Hours(old), Demand::Hours(new)) => new < old,
            (Demand::Needed(old), Demand::Needed(new)) => old && !new,
            _ => false,
        }
    }

    /// The changes that it is about, or the name of the setting.
    pub fn about(&self) -> Cow<'static, str> {
        match self.part {
            PolicyPart::Every => "every change".into(),
            PolicyPart::Risk(risk) => risk.as_str().into(),
            PolicyPart::Cooling => "cooling period".into(),
            PolicyPart::Signed(rule) => format!("signed approvals for {rule}").into(),
            PolicyPart::SecondFactor => "second factor at sign-in".into(),
        }
    }

    /// Where it stands in a policy, as a JSON pointer.
    pub fn pointer(&self) -> String {
        match self.part {
            PolicyPart::Every => "/approvals".to_owned(),
            PolicyPart::Risk(risk) => format!("/by_risk/{}", risk.as_str()),
            PolicyPart::Cooling => "/cooling_hours".to_owned(),
            PolicyPart::Signed(_) => "/signed".to_owned(),
            PolicyPart::SecondFactor => "/second_factor".to_owned(),
        }
    }
}

impl fmt::Display for PolicyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.about(), self.old, self.new)
    }
}

/// Whether somebody has to type a name to commit a change with these risks: what it does can't be taken back by another change, so a
/// click is not enough.
pub fn asks_for_name(risks: &BTreeSet<Risk>) -> bool {
    risks.contains(&Risk::Destructive) || risks.contains(&Risk::Removal)
}

/// A commit without the name that it takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this can't be undone ({}): type {name} to commit it", words(risks))]
pub struct NameNotTyped {
    /// What to type: the deployment that the change was proposed on, or the node.
    pub name: String,
    /// Why.
    pub risks: BTreeSet<Risk>,
}

fn words(risks: &BTreeSet<Risk>) -> String {
    risks.iter().map(|risk| risk.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether the name was typed, if the risks ask for it. Spaces around it are no difference; anything else is.
///
/// # Errors
/// [`NameNotTyped`].
pub fn check_name(
    risks: &BTreeSet<Risk>,
    name: &str,
    typed: Option<&str>,
) -> Result<(), NameNotTyped> {
    if !asks_for_name(risks) || typed.is_some_and(|typed| typed.trim() == name) {
        return Ok(());
    }
    Err(NameNotTyped { name: name.to_owned(), risks: risks.clone() })
}

/// What a person says of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// It may be committed.
    Approve,
    /// Not like this.
    RequestChanges,
    /// Not at all.
    Reject,
}

impl VerdictKind {
    /// The word in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::RequestChanges => "request_changes",
            Self::Reject => "reject",
        }
    }
}

/// A verdict, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Who.
    pub person: PersonId,
    /// What.
    pub kind: VerdictKind,
    /// When, in microseconds since 1970.
    pub at: i64,
    /// Whether the person's account was disabled after it: it counts for nothing then.
    pub void: bool,
}

/// A person as the gate sees them now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reviewer {
    /// Who.
    pub id: PersonId,
    /// For messages.
    pub name: String,
    /// Whether they are a human, enabled, and may review this deployment.
    pub eligible: bool,
}

/// What the gate looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Which submission.
    pub submission: SubmissionId,
    /// Whether its proposal is open and this is its newest version.
    pub newest: bool,
    /// Whether an edit is refused, or nothing would change.
    pub unresolved: Option<String>,
    /// The errors that lint finds in it, in words.
    pub lint: Vec<String>,
    /// Deployments of its base that changed since, by name, and by which target.
    pub moved_base: Vec<(String, i64)>,
    /// Documents that it changes and that another target changed first, by name.
    pub moved_documents: Vec<String>,
    /// Nodes whose first document it writes and whose record changed since, by name.
    pub moved_records: Vec<String>,
    /// Whether it was made in this life of the database.
    pub same_epoch: bool,
    /// The policy that it was made under, and the one in force.
    pub policy: (PolicyNo, PolicyNo),
    /// How many approvals it needs under the policy in force.
    pub approvals_needed: u32,
    /// Everybody who edited it.
    pub authors: BTreeSet<PersonId>,
    /// All verdicts, oldest first.
    pub verdicts: Vec<Verdict>,
    /// Everybody who gave a verdict or could.
    pub people: Vec<Reviewer>,
    /// Who gave these people access.
    pub access: Access,
    /// Whose approvals are signed. None: approvals need no signature.
    pub signing: Option<Signing>,
    /// Who opened each thread that is not resolved, on any version of the proposal.
    pub open_threads: Vec<String>,
    /// Who can do something about rules that no verdict mends. Nothing is decided by it.
    pub helpers: Helpers,
}

/// Signatures of verdicts, as far as they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signing {
    /// People whose last verdict is signed with a confirmed passkey.
    pub signed: BTreeSet<PersonId>,
    /// People with a confirmed passkey.
    pub able: BTreeSet<PersonId>,
}

impl Facts {
    /// A person's last verdict that is not void.
    pub fn last_word(&self, person: PersonId) -> Option<&Verdict> {
        self.verdicts.iter().rev().find(|verdict| verdict.person == person && !verdict.void)
    }

    /// Whether this person's last verdict is an approval that counts.
    pub fn counts(&self, person: PersonId) -> bool {
        access::approves(self, person)
    }

    /// Whether an approval by this person would count now, as far as their access and their passkeys decide that.
    pub fn may_count(&self, person: PersonId) -> bool {
        let can_sign = self.signing.as_ref().is_none_or(|signing| signing.able.contains(&person));
        can_sign && self.access.bar(person, self.access.now, &self.authors).is_none()
    }

    /// Whether this person's last verdict is signed, or needs no signature.
    fn is_signed(&self, person: PersonId) -> bool {
        self.signing.as_ref().is_none_or(|signing| signing.signed.contains(&person))
    }

    /// Reviewers who wrote nothing of it.
    fn reviewers(&self) -> impl Iterator<Item = &Reviewer> {
        self.people.iter().filter(|p| p.eligible && !self.authors.contains(&p.id))
    }
}

/// The gate's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The newest submission of an open proposal.
    Newest,
    /// Every edit takes effect and something changes.
    Resolved,
    /// Lint finds no error.
    Lint,
    /// Nothing inside the base changed.
    Base,
    /// Made in this life of the database.
    Epoch,
    /// Made under the policy in force.
    Policy,
    /// Nobody objects.
    Objections,
    /// Enough approvals.
    Approvals,
    /// No thread is open.
    Threads,
}

/// A rule and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleState {
    /// Which.
    pub rule: Rule,
    /// Whether it holds.
    pub holds: bool,
    /// What an operator should read; says what to do if it does not hold.
    pub text: String,
}

/// What the gate says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GateState {
    /// Every rule, in a fixed order.
    pub rules: Vec<RuleState>,
    /// Approvals that count.
    pub approvals: u32,
    /// Approvals that are needed.
    pub needed: u32,
    /// Names of those who could approve and have not.
    pub can_approve: Vec<String>,
}

impl GateState {
    /// Whether the submission may be committed.
    pub fn is_open(&self) -> bool {
        !self.rules.is_empty() && self.rules.iter().all(|rule| rule.holds)
    }

    /// The first rule that does not hold.
    pub fn closed_by(&self) -> Option<&RuleState> {
        self.broken().next()
    }

    /// Every rule that does not hold.
    pub fn broken(&self) -> impl Iterator<Item = &RuleState> {
        self.rules.iter().filter(|rule| !rule.holds)
    }
}

/// Why a person may not give a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoVerdict {
    /// They wrote part of it.
    #[error("You wrote part of this change, so somebody else has to review it")]
    Author,
    /// They are no reviewer here.
    #[error(
        "Your account may not review this deployment: ask an administrator for the reviewer permission"
    )]
    NotAReviewer,
    /// It is not the newest any more.
    #[error("This version of the change was replaced or is closed: look at the newest one")]
    NotNewest,
}

/// Whether a person may give a verdict.
///
/// # Errors
/// The reason why not.
pub fn may_judge(facts: &Facts, person: PersonId) -> Result<(), NoVerdict> {
    if facts.authors.contains(&person) {
        return Err(NoVerdict::Author);
    }
    if !facts.people.iter().any(|p| p.id == person && p.eligible) {
        return Err(NoVerdict::NotAReviewer);
    }
    if !facts.newest {
        return Err(NoVerdict::NotNewest);
    }
    Ok(())
}

/// Evaluates every rule on these facts.
pub fn evaluate(facts: &Facts) -> GateState {
    let (approving, others): (Vec<&Reviewer>, Vec<&Reviewer>) =
        facts.reviewers().partition(|reviewer| access::approves(facts, reviewer.id));
    let able = others.iter().filter(|reviewer| facts.may_count(reviewer.id));
    let can_approve: Vec<String> = able.map(|reviewer| reviewer.name.clone()).collect();
    // At most one approval for each person, so the number fits.
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
    GateState { rules, approvals, needed, can_approve }
}

fn state(rule: Rule, broken: Option<String>, holds: &str) -> RuleState {
    RuleState { rule, holds: broken.is_none(), text: broken.unwrap_or_else(|| holds.to_owned()) }
}

fn newest(facts: &Facts) -> RuleState {
    let broken = (!facts.newest)
        .then(|| "A newer version of the proposal is there, or it is closed".to_owned());
    state(Rule::Newest, broken, "Newest version of an open proposal")
}

fn resolved(facts: &Facts) -> RuleState {
    let broken =
        facts.unresolved.as_ref().map(|why| format!("{why}. {}", facts.helpers.to_submit()));
    state(Rule::Resolved, broken, "Every edit takes effect")
}

fn lint(facts: &Facts) -> RuleState {
    let errors = facts.lint.first().map(|first| match facts.lint.len() {
        1 => first.clone(),
        n => format!("{n} errors. The first: {first}"),
    });
    let broken = errors.map(|errors| format!("{errors}. {}", facts.helpers.to_submit()));
    state(Rule::Lint, broken, "Lint finds no error")
}

fn base(facts: &Facts) -> RuleState {
    let moved = moved(&facts.moved_base, &facts.moved_documents, &facts.moved_records);
    let broken = (!moved.is_empty()).then(|| {
        format!(
            "Planned on an older state: {} changed since. It has to be submitted again. {}",
            named(&moved),
            facts.helpers.to_submit()
        )
    });
    state(Rule::Base, broken, "Base unchanged since planning")
}

/// What changed since planning, each by name once, with the reason.
pub fn moved(base: &[(String, i64)], documents: &[String], records: &[String]) -> Vec<String> {
    let deployments = base.iter().map(|(name, target)| format!("{name} (target {target})"));
    let others = documents.iter().filter(|name| !base.iter().any(|(known, _)| known == *name));
    let others = others.map(|name| format!("{name} (taken by another change)"));
    deployments
        .chain(others)
        .chain(records.iter().map(|name| format!("the record of node {name}")))
        .collect()
}

fn epoch(facts: &Facts) -> RuleState {
    let broken = (!facts.same_epoch).then(|| {
        format!(
            "Made before the database was restored from a backup: submit it again. {}",
            facts.helpers.to_submit()
        )
    });
    state(Rule::Epoch, broken, "Made in this life of the database")
}

fn policy(facts: &Facts) -> RuleState {
    let (made, now) = facts.policy;
    let broken = (made != now).then(|| {
        let who = facts.helpers.to_submit();
        format!("Made under policy {made}; policy {now} is in force. Submit it again. {who}")
    });
    state(Rule::Policy, broken, &format!("Policy {now}"))
}

fn enough(
    facts: &Facts,
    (approvals, needed): (u32, u32),
    can_approve: &[String],
    (approving, others): (&[&Reviewer], &[&Reviewer]),
) -> RuleState {
    let signed = if facts.signing.is_some() { "signed approval" } else { "approval" };
    let counted = format!("{approvals} of {}", many(needed, signed));
    let broken = (approvals < needed).then(|| {
        let more = needed - approvals;
        let able = u32::try_from(can_approve.len()).unwrap_or(u32::MAX);
        let barred = access::explained(facts, others);
        let who = match able {
            0 if barred.is_empty() => {
                format!("Nobody who may review is left. {}", facts.helpers.to_permit("reviewer"))
            }
            0 => format!("{more} more needed"),
            able if able < more => format!(
                "{more} more are needed and only {} can give one. {}",
                named(can_approve),
                facts.helpers.to_permit("reviewer")
            ),
            _ => format!("{more} more needed. Can act: {}", named(can_approve)),
        };
        let said = [counted.clone(), who].into_iter().chain(barred.into_iter().take(NAMED));
        said.collect::<Vec<_>>().join(". ")
    });
    let holds: Vec<String> = [counted].into_iter().chain(access::noted(facts, approving)).collect();
    state(Rule::Approvals, broken, &holds.join(". "))
}

fn objections(facts: &Facts) -> RuleState {
    let objects =
        |id| facts.last_word(id).is_some_and(|verdict| verdict.kind != VerdictKind::Approve);
    let objecting = facts.reviewers().filter(|p| objects(p.id));
    let names: Vec<&str> = objecting.map(|p| p.name.as_str()).collect();
    let broken = (!names.is_empty()).then(|| {
        let names = named(&names);
        let change = match facts.helpers.operators.as_slice() {
            [] => String::new(),
            operators => format!(". Can change it: {}", named(operators)),
        };
        format!("{names} asked for changes or rejected it. Can decide again: {names}{change}")
    });
    let gone = disregarded(facts);
    let holds = match gone.as_slice() {
        [] => "Nobody objects".to_owned(),
        gone => format!(
            "Nobody who may review objects. Counts no longer, because they may not review any more: what {} said against it",
            named(gone)
        ),
    };
    state(Rule::Objections, broken, &holds)
}

fn threads(facts: &Facts) -> RuleState {
    let by: BTreeSet<&str> = facts.open_threads.iter().map(String::as_str).collect();
    let by: Vec<&str> = by.into_iter().collect();
    let broken = (!by.is_empty()).then(|| {
        let (open, them) = match facts.open_threads.len() {
            1 => ("One thread is open".to_owned(), "it"),
            n => (format!("{n} threads are open"), "them"),
        };
        format!(
            "{open}, by {}: who opened {them}, or another reviewer, resolves {them}",
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
    fn moved_parts_are_named_once() {
        let both = Facts {
            moved_base: vec![("web".into(), 4)],
            moved_documents: vec!["web".into(), "n1".into()],
            moved_records: vec!["n2".into()],
            ..facts()
        };
        let text = base(&both).text;
        let named =
            "web (target 4), n1 (taken by another change) and the record of node n2 changed since.";
        assert!(text.contains(named), "{text}");
    }

    #[test]
    fn what_cannot_be_undone_takes_its_name() {
        for risk in [Risk::Destructive, Risk::Removal] {
            let risks = [risk, Risk::Rerun].into();
            for typed in [None, Some(""), Some("we"), Some("WEB"), Some("web2")] {
                let refused = check_name(&risks, "web", typed).unwrap_err();
                assert!(refused.to_string().contains("type web to commit it"), "{refused}");
            }
            assert_eq!(check_name(&risks, "web", Some(" web ")), Ok(()));
        }
        assert_eq!(check_name(&[Risk::Rerun, Risk::Move].into(), "web", None), Ok(()));
    }

    pub(in crate::gate) fn facts() -> Facts {
        let reviewer =
            |n: u128, name: &str| Reviewer { id: person(n), name: name.into(), eligible: true };
        Facts {
            submission: SubmissionId(41),
            newest: true,
            unresolved: None,
            lint: Vec::new(),
            moved_base: Vec::new(),
            moved_documents: Vec::new(),
            moved_records: Vec::new(),
            same_epoch: true,
            policy: (PolicyNo(3), PolicyNo(3)),
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
            helpers: Helpers::default(),
        }
    }

    fn closed_by(facts: &Facts) -> Option<Rule> {
        evaluate(facts).closed_by().map(|rule| rule.rule)
    }

    #[test]
    fn too_few_who_could_approve_is_said() {
        let mut facts = facts();
        facts.approvals_needed = 5;
        let text = |facts: &Facts| {
            evaluate(facts).closed_by().map(|rule| rule.text.clone()).unwrap_or_default()
        };
        assert_eq!(
            text(&facts),
            "1 of 5 approvals. 4 more are needed and only cy can give one. No administrator is left who could give the reviewer \
             permission"
        );
        facts.approvals_needed = 2;
        assert_eq!(text(&facts), "1 of 2 approvals. 1 more needed. Can act: cy");
    }

    #[test]
    fn opens_with_another_persons_approval() {
        assert_eq!(closed_by(&facts()), None);
    }

    #[test]
    fn each_rule_closes_it_alone() {
        let changed = |change: &dyn Fn(&mut Facts)| {
            let mut facts = facts();
            change(&mut facts);
            closed_by(&facts)
        };
        assert_eq!(changed(&|f| f.newest = false), Some(Rule::Newest));
        assert_eq!(changed(&|f| f.unresolved = Some("edit 2".into())), Some(Rule::Resolved));
        assert_eq!(changed(&|f| f.lint.push("app on n1: its jig is off".into())), Some(Rule::Lint));
        assert_eq!(changed(&|f| f.moved_base.push(("web".into(), 32))), Some(Rule::Base));
        assert_eq!(changed(&|f| f.moved_documents.push("n1".into())), Some(Rule::Base));
        assert_eq!(changed(&|f| f.moved_records.push("n1".into())), Some(Rule::Base));
        assert_eq!(changed(&|f| f.same_epoch = false), Some(Rule::Epoch));
        assert_eq!(changed(&|f| f.policy.1 = PolicyNo(4)), Some(Rule::Policy));
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
    fn every_part_in_which_a_policy_differs_is_said_and_every_weaker_one_found() {
        let policy = |approvals, by_risk: &[(Risk, u32)]| Policy {
            approvals,
            by_risk: by_risk.iter().copied().collect(),
            ..Policy::default()
        };
        let told = |old: &Policy, new: &Policy| {
            old.changes(new).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let old = policy(1, &[(Risk::Destructive, 3), (Risk::Move, 2)]);
        assert!(old.changes(&old).is_empty());
        let new = policy(2, &[(Risk::Destructive, 1)]);
        assert_eq!(
            told(&old, &new),
            [
                "every change: 1 -> 2",
                "destructive: 3 -> 1 (2, as every change)",
                "move: 2 -> 2 (as every change)"
            ]
        );
        assert_eq!(
            old.weaker_in(&new).as_deref(),
            Some("destructive: 3 -> 1 (2, as every change)")
        );
        assert_eq!(new.weaker_in(&old).as_deref(), Some("every change: 2 -> 1"));
        let two = policy(1, &[(Risk::Destructive, 2), (Risk::Move, 1)]);
        assert_eq!(old.weaker_in(&two).as_deref(), Some("destructive: 3 -> 2, move: 2 -> 1"));
        // Two policies that are not the same never come to the same words.
        assert_eq!(told(&policy(3, &[(Risk::Rerun, 1)]), &policy(3, &[(Risk::Rerun, 2)])).len(), 1);
    }

    #[test]
    fn shorter_cooling_period_is_weaker() {
        let policy = |cooling_hours| Policy { cooling_hours, ..Policy::default() };
        assert_eq!(
            policy(24).weaker_in(&policy(1)).as_deref(),
            Some("cooling period: 24 hours -> 1 hour")
        );
        assert_eq!(policy(1).weaker_in(&policy(24)), None);
        assert_eq!(policy(1).changes(&policy(24)).len(), 1);
        assert_eq!(policy(721).check(), Err(PolicyError::Cooling { found: 721 }));
        assert_eq!((policy(0).check(), policy(720).check()), (Ok(()), Ok(())));
        let written = serde_json::to_string(&Policy::default()).unwrap();
        assert_eq!(
            written, r#"{"approvals":1,"by_risk":{}}"#,
            "as policies were before they had the field"
        );
        assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), Policy::default());
    }

    #[test]
    fn unsigned_approval_does_not_count_where_signatures_are_demanded() {
        let mut facts = facts();
        facts.signing = Some(Signing { signed: BTreeSet::new(), able: [person(2)].into() });
        let text = |facts: &Facts| {
            evaluate(facts).closed_by().map(|rule| rule.text.clone()).unwrap_or_default()
        };
        assert_eq!(
            text(&facts),
            "0 of 1 signed approval. 1 more needed. Can act: bo. bo approved it without a passkey and has to approve again with \
             one. cy has no confirmed passkey"
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
        let told =
            Policy::default().changes(&signed).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            told,
            [
                "signed approvals for destructive: not needed -> needed",
                "second factor at sign-in: not needed -> needed"
            ]
        );
        assert_eq!(Policy::default().weaker_in(&signed), None);
        assert!(signed.weaker_in(&Policy::default()).is_some());
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
    fn an_objection_is_named_before_what_else_is_missing() {
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
            Some("cy asked for changes or rejected it. Can decide again: cy")
        );
    }

    #[test]
    fn an_objection_that_counts_no_longer_is_said() {
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
        assert!(gate.is_open(), "verdicts of those count who may review at this moment");
        let said = gate
            .rules
            .iter()
            .find(|rule| rule.rule == Rule::Objections)
            .map(|rule| rule.text.as_str());
        assert_eq!(
            said,
            Some(
                "Nobody who may review objects. Counts no longer, because they may not review any more: what cy said against it"
            )
        );
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::Approve,
            at: 0,
            void: false,
        });
        assert!(disregarded(&facts).is_empty(), "what was taken back before is no objection");
    }

    #[test]
    fn an_authors_approval_never_counts() {
        let mut facts = facts();
        facts.verdicts =
            vec![Verdict { person: person(1), kind: VerdictKind::Approve, at: 0, void: false }];
        assert_eq!(closed_by(&facts), Some(Rule::Approvals));
        assert_eq!(may_judge(&facts, person(1)), Err(NoVerdict::Author));
    }

    #[test]
    fn the_last_word_counts_and_only_once() {
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
            "who takes an approval back no longer approves"
        );
    }

    #[test]
    fn policies_without_review_are_refused() {
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
        fn never_open_without_enough_eligible_others(
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
}
