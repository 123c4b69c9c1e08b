//! Lint: what is wrong with a change although every edit takes effect.
//!
//! Planning refuses what can't be written down. Lint looks at what would be written down, and at the way there, and says what would
//! fail, destroy, stall or surprise. Reconfigurator has such a check of blueprints and runs it in tests and tools only; here the gate
//! asks for it, so a target with an error in it does not come into being, whoever approved it.
//!
//! Two levels. An **error** keeps a change from being submitted and committed: it would not work, or not be undone. A **warning** is
//! shown in the review: it may be meant.
//!
//! ## Invariants
//!
//! * Only what a change touches is found fault with: what was wrong before does not hold up a change elsewhere. A commit looks for
//!   errors under a lock, so they are looked for among what the change writes; only where noderoles go is all that stays looked
//!   through, once, for who waits for them. Warnings may look through all of it, once each.
//! * Pure, in one order, and bounded: [`MAX_EACH`] findings of a check are told, the rest is counted.
//! * A finding says what, where and what to do. It never has a value that might be a secret.
//! * Each check is one entry in [`Check::ALL`] and one function; each has a test that trips it and one that does not.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Hash;
use crate::blueprint::consequences::{Consequences, Planned, running};
use crate::blueprint::projection::StepIntent;
use crate::catalog::{Catalog, Role};
use crate::cluster::{NoderoleDoc, NoderoleKey, phantom};
use crate::data::secret::KnownSecret;
use crate::gate::Policy;
use crate::ids::{DeploymentId, JigName, NodeId, NoderoleId, PersonId};

mod data;
mod deployments;
mod order;
mod roles;
mod runs;

/// Findings of one check that are told; more are counted.
pub const MAX_EACH: usize = 50;

/// What lint looks at.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The change.
    pub planned: Planned<'a>,
    /// Everything that pins name.
    pub catalog: &'a Catalog,
    /// Jigs and whether each is active. One that is not there counts as active: it is added together with its first step.
    pub jigs: &'a BTreeMap<JigName, bool>,
    /// The secrets that workers have, by name. None: no worker says.
    pub secrets: Option<&'a BTreeMap<String, KnownSecret>>,
    /// The rank of a noderole as it is meant now; None: it is not there.
    pub rank: &'a dyn Fn(NoderoleId) -> Option<u32>,
    /// The policy before and after, if the change has another one.
    pub policy: Option<(&'a Policy, &'a Policy)>,
    /// How many people may review at this moment.
    pub reviewers: Reviewers,
}

/// How many people may review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reviewers {
    /// All of them.
    pub all: usize,
    /// Those who did not write the change: only they count for it.
    pub others: usize,
}

impl Reviewers {
    /// Of these people, where the change has these authors.
    pub fn of(people: &BTreeSet<PersonId>, authors: &BTreeSet<PersonId>) -> Self {
        Self { all: people.len(), others: people.difference(authors).count() }
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("planned", &self.planned).finish_non_exhaustive()
    }
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The change is neither submitted nor committed.
    Error,
    /// It is shown.
    Warning,
}

/// Something that lint found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LintFinding"))]
pub struct Finding {
    /// By which check.
    pub check: Check,
    /// How much it weighs.
    pub level: Level,
    /// Where, in words: `app on n1.example.com`, `web`.
    pub at: String,
    /// The noderole, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noderole: Option<NoderoleId>,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}", self.at, self.what, self.remedy)
    }
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $level:ident, $run:expr;)*) => {
        /// The checks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum Check {
            $($(#[$doc])* #[serde(rename = $id)] $name,)*
        }

        impl Check {
            /// Every check, in the order in which findings are told: errors first.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word by which programs and papers know it.
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// How much its findings weigh.
            pub fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }

            fn run(self, look: &Look<'_>, found: &mut Found) {
                match self { $(Self::$name => $run(look, found),)* }
            }
        }
    };
}

checks! {
    /// Two roles on a node that exclude each other.
    ConflictingRoles = "conflicting-roles", Error, roles::conflicting;
    /// A noderole of a role that others provide.
    AbstractRole = "abstract-role", Error, roles::is_abstract;
    /// A noderole of a deployment that its node is not part of.
    OutOfTree = "out-of-tree", Error, deployments::out_of_tree;
    /// An edge to nothing, or one against the order.
    BrokenOrder = "broken-order", Error, order::broken;
    /// A step that runs by a jig that no worker has.
    UnknownJig = "unknown-jig", Error, runs::unknown_jig;
    /// A step that runs by a jig that is switched off.
    InactiveJig = "inactive-jig", Error, runs::inactive_jig;
    /// A step that may take no time.
    NoTime = "no-time", Error, runs::no_time;
    /// A destructive step that runs again although nobody said why.
    DestructiveUnasked = "destructive-unasked", Error, runs::destructive_unasked;
    /// Data that is not what its attribute's schema says.
    BrokenSchema = "broken-schema", Error, data::broken_schema;
    /// A private key or access token in plain sight.
    PlainSecret = "plain-secret", Error, data::plain_secret;
    /// A half-written reference to a secret.
    BrokenReference = "broken-reference", Error, data::broken_reference;
    /// A node key in the data of a role.
    NodeKeyAsData = "node-key-as-data", Error, data::node_key_as_data;
    /// A policy that asks for less, together with something else that it would let pass.
    PolicyWeakened = "policy-weakened", Error, deployments::policy_weakened;
    /// A policy that asks for more approvals than there are people to give them.
    PolicyUnmet = "policy-unmet", Error, deployments::policy_unmet;
    /// A policy that asks for less than the one in force.
    PolicyWeaker = "policy-weaker", Warning, deployments::policy_weaker;
    /// A value under a name that sounds like a secret.
    SecretByName = "secret-by-name", Warning, data::secret_by_name;
    /// A secret that no worker has, or that the deployment may not use.
    UnusableSecret = "unusable-secret", Warning, data::unusable_secret;
    /// Two unrelated noderoles of a node that set one key.
    SharedKey = "shared-key", Warning, data::shared_key;
    /// A destructive step with retries, which don't count.
    DestructiveRetries = "destructive-retries", Warning, runs::destructive_retries;
    /// All nodes of a role restart at once.
    AllAtOnce = "all-at-once", Warning, runs::all_at_once;
    /// A re-run below which others go on with what they had.
    StaleBelow = "stale-below", Warning, runs::stale_below;
    /// A role's limit of runs at once that is gone.
    LimitGone = "limit-gone", Warning, runs::limit_gone;
    /// A limit of runs at once that limits nothing.
    LimitTooWide = "limit-too-wide", Warning, runs::limit_too_wide;
    /// A soft order against a hard one.
    SoftAgainstHard = "soft-against-hard", Warning, order::soft_against_hard;
    /// A service that stands for nothing.
    LonelyService = "lonely-service", Warning, roles::lonely_service;
    /// A cluster that can't keep a majority.
    ClusterSize = "cluster-size", Warning, roles::cluster_size;
    /// A barclamp of which a newer version is there.
    OlderBarclamp = "older-barclamp", Warning, deployments::older_barclamp;
    /// A role of another version than the barclamp in use.
    RoleBesidePin = "role-beside-pin", Warning, deployments::role_beside_pin;
    /// A deployment in which nothing is left.
    EmptiedDeployment = "emptied-deployment", Warning, deployments::emptied;
    /// A node that moves away from those that use it.
    MovedAway = "moved-away", Warning, deployments::moved_away;
}

/// Everything that is wrong with a change, errors first.
pub fn lint(subject: &Subject<'_>, consequences: &Consequences) -> Vec<Finding> {
    look(subject, Some(consequences), |_| true)
}

/// The errors alone: what the gate asks again at the commit.
pub fn errors(subject: &Subject<'_>) -> Vec<Finding> {
    look(subject, None, |check| check.level() == Level::Error)
}

fn look(
    subject: &Subject<'_>,
    consequences: Option<&Consequences>,
    wanted: impl Fn(Check) -> bool,
) -> Vec<Finding> {
    let look = Look { subject, consequences, members: OnceCell::new() };
    let mut findings = Vec::new();
    for check in Check::ALL.iter().copied().filter(|check| wanted(*check)) {
        let mut found = Found { check, findings: Vec::new(), more: 0 };
        check.run(&look, &mut found);
        found.close(&mut findings);
    }
    findings
}

/// Noderoles of a role's content in a deployment.
type Members = BTreeMap<(DeploymentId, Hash), usize>;

/// The subject and what checks ask of it.
struct Look<'a> {
    subject: &'a Subject<'a>,
    consequences: Option<&'a Consequences>,
    members: OnceCell<Members>,
}

impl<'a> Look<'a> {
    fn planned(&self) -> &Planned<'a> {
        &self.subject.planned
    }

    fn running(&self) -> impl Iterator<Item = &'a StepIntent> {
        running(self.subject.planned.projection)
    }

    /// A role that is there; lint is no place to say that the catalog is incomplete, the projection did.
    fn role(&self, hash: Hash) -> Option<&'a Role> {
        self.subject.catalog.role(hash).ok().map(|role| &**role)
    }

    fn noderole(&self, step: &StepIntent) -> Option<&'a NoderoleDoc> {
        self.subject.planned.new.noderole(step.node, &step.key).map(|(_, noderole)| noderole)
    }

    fn deployment(&self, id: DeploymentId) -> String {
        let Planned { old, new, .. } = self.planned();
        let known = new.deployments.get(&id).or_else(|| old.deployments.get(&id));
        known.map_or_else(|| id.to_string(), |d| d.doc.name.to_string())
    }

    fn fqdn(&self, id: NodeId) -> String {
        let Planned { old, new, .. } = self.planned();
        let stored = new.nodes.get(&id).or_else(|| old.nodes.get(&id));
        let name = |deployment| Some(self.deployment(deployment));
        stored.map_or_else(
            || id.to_string(),
            |stored| phantom::in_full(&stored.doc.fqdn, name).into_owned(),
        )
    }

    fn place(&self, node: NodeId, key: &NoderoleKey) -> String {
        format!("{key} on {}", self.fqdn(node))
    }

    /// How many noderoles each role will have in each deployment. One walk over all, made when the first check asks.
    fn members(&self) -> &Members {
        self.members.get_or_init(|| {
            let mut members = Members::new();
            for noderole in
                self.planned().new.nodes.values().flat_map(|node| node.doc.noderoles.values())
            {
                *members.entry((noderole.deployment, noderole.role)).or_default() += 1;
            }
            members
        })
    }
}

/// The findings of one check.
struct Found {
    check: Check,
    findings: Vec<Finding>,
    more: usize,
}

impl Found {
    fn add(&mut self, at: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) {
        self.push(at.into(), None, what.into(), remedy.into());
    }

    fn add_noderole(
        &mut self,
        look: &Look<'_>,
        place: (NodeId, &NoderoleKey),
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (node, key) = place;
        self.push(look.place(node, key), Some(key.id(node)), what.into(), remedy.into());
    }

    fn push(&mut self, at: String, noderole: Option<NoderoleId>, what: String, remedy: String) {
        if self.findings.len() == MAX_EACH {
            self.more += 1;
            return;
        }
        self.findings.push(Finding {
            check: self.check,
            level: self.check.level(),
            at,
            noderole,
            what,
            remedy,
        });
    }

    fn close(mut self, all: &mut Vec<Finding>) {
        if let Some(last) = self.findings.last_mut().filter(|_| self.more > 0) {
            last.what.push_str(&format!(" (and {} more like this)", self.more));
        }
        all.append(&mut self.findings);
    }
}
