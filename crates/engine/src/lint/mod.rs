//! Lint: finds problems in a change whose edits all take effect.
//!
//! Planning refuses changes that cannot be written. Lint checks the resulting documents and the
//! transition to them, and reports everything that would fail, destroy, stall or surprise.
//! Reconfigurator has such a check of blueprints, for tests and tools only. In Gantry the gate
//! requires it, so no target with a lint error exists, regardless of approvals.
//!
//! There are two levels. An error blocks submission and commit, because the change would not work
//! or could not be undone. A warning is shown in the review, because the change may be intended.
//!
//! Invariants:
//!
//! * Only objects that the change touches have findings, so existing problems do not block
//!   unrelated changes. A commit checks for errors under a lock, so errors are searched only in the
//!   documents it writes. The exception is removal of noderoles, which searches all remaining ones
//!   for children, once. Warnings may search everything, once each.
//! * Lint is pure, its order is fixed, and its output is bounded: [`MAX_FINDINGS_PER_CHECK`]
//!   findings per check, with a count of the rest.
//! * A finding names the problem, its location and the fix. It never contains a value that could be
//!   a secret.
//! * Each check is one entry in [`LintCheck::ALL`] and one function. Each has a test that triggers
//!   it and one that does not.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Hash;
use crate::blueprint::impact::{Impact, Planned, running};
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

/// Maximum number of findings per check. Further ones are counted.
pub const MAX_FINDINGS_PER_CHECK: usize = 50;

/// The input of lint.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub planned: Planned<'a>,
    /// Every catalog entry that pins name.
    pub catalog: &'a Catalog,
    /// Whether each jig is active. A missing jig counts as active, because it is added together
    /// with its first step.
    pub jigs: &'a BTreeMap<JigName, bool>,
    /// The secrets that workers have, by name. `None`: no worker has reported any.
    pub secrets: Option<&'a BTreeMap<String, KnownSecret>>,
    /// The current rank of a noderole; `None` if it does not exist.
    pub rank: &'a dyn Fn(NoderoleId) -> Option<u32>,
    /// The policy before and after, if the change sets another one.
    pub policy: Option<(&'a Policy, &'a Policy)>,
    pub reviewers: Reviewers,
}

/// The number of people who may review now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reviewers {
    pub all: usize,
    /// People who are not authors of the change. Only their approvals count for it.
    pub others: usize,
}

impl Reviewers {
    /// Counts these people for a change by these authors.
    pub fn of(people: &BTreeSet<PersonId>, authors: &BTreeSet<PersonId>) -> Self {
        Self { all: people.len(), others: people.difference(authors).count() }
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("planned", &self.planned).finish_non_exhaustive()
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The change can be neither submitted nor committed.
    Error,
    /// The finding is shown in the review.
    Warning,
}

/// A problem that lint found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LintFinding"))]
pub struct Finding {
    /// The check that found it.
    pub check: LintCheck,
    /// The severity.
    pub level: Level,
    /// The location as text: `app on n1.example.com`, `web`.
    pub at: String,
    /// The noderole, if the finding concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noderole: Option<NoderoleId>,
    /// The problem.
    pub problem: String,
    /// How to fix it.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}", self.at, self.problem, self.remedy)
    }
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $level:ident, $run:expr;)*) => {
        /// The checks of lint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum LintCheck {
            $($(#[$doc])* #[serde(rename = $id)] $name,)*
        }

        impl LintCheck {
            /// Every check in the order of the findings: errors first.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The check's id in the API and the documentation.
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// The severity of its findings.
            pub fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }

            fn run(self, context: &LintContext<'_>, found: &mut CheckFindings) {
                match self { $(Self::$name => $run(context, found),)* }
            }
        }
    };
}

checks! {
    /// Two roles on a node that conflict.
    ConflictingRoles = "conflicting-roles", Error, roles::conflicting_roles;
    /// A noderole of an abstract role, which only other roles can provide.
    AbstractRole = "abstract-role", Error, roles::is_abstract;
    /// A noderole of a deployment that does not contain its node.
    NodeOutsideDeployment = "node-outside-deployment", Error, deployments::node_outside_deployment;
    /// An edge to a missing noderole, or one against the order of ranks.
    BrokenOrder = "broken-order", Error, order::broken;
    /// A step with a jig that no worker has.
    UnknownJig = "unknown-jig", Error, runs::unknown_jig;
    /// A step with a jig that is turned off.
    InactiveJig = "inactive-jig", Error, runs::inactive_jig;
    /// A step whose timeout is 0.
    ZeroTimeout = "zero-timeout", Error, runs::zero_timeout;
    /// A destructive step that runs again without a stated reason.
    DestructiveRerun = "destructive-rerun", Error, runs::destructive_rerun;
    /// Data that does not match its attribute's schema.
    BrokenSchema = "broken-schema", Error, data::schema_mismatch;
    /// A private key or access token in plain text.
    PlainSecret = "plain-secret", Error, data::plain_secret;
    /// A malformed reference to a secret.
    BrokenReference = "broken-reference", Error, data::invalid_secret_reference;
    /// A node key in the data of a role.
    NodeKeyAsData = "node-key-as-data", Error, data::node_key_as_data;
    /// A policy that requires less, in one change with something that it would allow.
    PolicyWeakened = "policy-weakened", Error, deployments::mixed_policy_change;
    /// A policy that requires more approvals than there are people to give them.
    PolicyUnmet = "policy-unmet", Error, deployments::unsatisfiable_policy;
    /// A policy that requires less than the one in force.
    PolicyWeaker = "policy-weaker", Warning, deployments::weaker_policy;
    /// A plain value whose name suggests a secret.
    SecretByName = "secret-by-name", Warning, data::suspected_secret;
    /// A secret that no worker has, or that the deployment may not use.
    UnusableSecret = "unusable-secret", Warning, data::unusable_secret;
    /// Two unrelated noderoles of a node that set the same key.
    SharedKey = "shared-key", Warning, data::shared_key;
    /// A destructive step with retries, which have no effect.
    DestructiveRetries = "destructive-retries", Warning, runs::destructive_retries;
    /// All nodes of a role restart at once.
    AllAtOnce = "all-at-once", Warning, runs::simultaneous_restart;
    /// A re-run whose descendants keep the results of the previous run.
    StaleDescendants = "stale-descendants", Warning, runs::stale_descendants;
    /// A role's concurrency limit that the change removes.
    LimitRemoved = "limit-removed", Warning, runs::limit_removed;
    /// A concurrency limit that is too high to have an effect.
    LimitTooHigh = "limit-too-high", Warning, runs::limit_too_high;
    /// A soft edge that contradicts a hard one.
    ContradictingEdges = "contradicting-edges", Warning, order::contradicting_edges;
    /// A step of a role whose scripts are missing, so that its run does nothing.
    NothingToRun = "nothing-to-run", Warning, runs::nothing_to_run;
    /// A new service without parents and children.
    UnusedService = "unused-service", Warning, roles::unused_service;
    /// A cluster with one member or an even number of members.
    ClusterSize = "cluster-size", Warning, roles::cluster_size;
    /// A barclamp for which a newer version is available.
    OlderBarclamp = "older-barclamp", Warning, deployments::older_barclamp;
    /// A role whose version differs from that of the barclamp in use.
    RoleVersionMismatch = "role-version-mismatch", Warning, deployments::role_version_mismatch;
    /// A deployment that the change leaves empty.
    EmptiedDeployment = "emptied-deployment", Warning, deployments::emptied_deployment;
    /// A node that moves away from the noderoles that use it.
    MovedFromDependents = "moved-from-dependents", Warning, deployments::moved_from_dependents;
}

/// All findings of a change, errors first.
pub fn lint(subject: &Subject<'_>, impact: &Impact) -> Vec<Finding> {
    run_checks(subject, Some(impact), |_| true)
}

/// Only the errors. The gate checks them again at commit.
pub fn errors(subject: &Subject<'_>) -> Vec<Finding> {
    run_checks(subject, None, |check| check.level() == Level::Error)
}

fn run_checks(
    subject: &Subject<'_>,
    impact: Option<&Impact>,
    is_selected: impl Fn(LintCheck) -> bool,
) -> Vec<Finding> {
    let context = LintContext { subject, impact, members: OnceCell::new() };
    let mut findings = Vec::new();
    for check in LintCheck::ALL.iter().copied().filter(|check| is_selected(*check)) {
        let mut found = CheckFindings { check, findings: Vec::new(), more: 0 };
        check.run(&context, &mut found);
        found.close(&mut findings);
    }
    findings
}

/// Number of noderoles per deployment and role content.
type NoderoleCounts = BTreeMap<(DeploymentId, Hash), usize>;

/// The input with indexes that the checks share.
struct LintContext<'a> {
    subject: &'a Subject<'a>,
    impact: Option<&'a Impact>,
    members: OnceCell<NoderoleCounts>,
}

impl<'a> LintContext<'a> {
    fn planned(&self) -> &Planned<'a> {
        &self.subject.planned
    }

    fn running(&self) -> impl Iterator<Item = &'a StepIntent> {
        running(self.subject.planned.projection)
    }

    /// A role of the catalog. A missing role is not lint's concern: the projection reports it.
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
            |stored| phantom::long_name(&stored.doc.fqdn, name).into_owned(),
        )
    }

    fn location(&self, node: NodeId, key: &NoderoleKey) -> String {
        format!("{key} on {}", self.fqdn(node))
    }

    /// Number of noderoles per role and deployment after the change. Computed in one walk over all
    /// noderoles, on first use.
    fn members(&self) -> &NoderoleCounts {
        self.members.get_or_init(|| {
            let mut members = NoderoleCounts::new();
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
struct CheckFindings {
    check: LintCheck,
    findings: Vec<Finding>,
    more: usize,
}

impl CheckFindings {
    fn add(
        &mut self,
        at: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push(at.into(), None, problem.into(), remedy.into());
    }

    fn add_noderole(
        &mut self,
        context: &LintContext<'_>,
        place: (NodeId, &NoderoleKey),
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (node, key) = place;
        self.push(context.location(node, key), Some(key.id(node)), problem.into(), remedy.into());
    }

    fn push(&mut self, at: String, noderole: Option<NoderoleId>, problem: String, remedy: String) {
        if self.findings.len() == MAX_FINDINGS_PER_CHECK {
            self.more += 1;
            return;
        }
        self.findings.push(Finding {
            check: self.check,
            level: self.check.level(),
            at,
            noderole,
            problem,
            remedy,
        });
    }

    fn close(mut self, all: &mut Vec<Finding>) {
        if let Some(last) = self.findings.last_mut().filter(|_| self.more > 0) {
            last.problem.push_str(&format!(" (and {} more like this)", self.more));
        }
        all.append(&mut self.findings);
    }
}
