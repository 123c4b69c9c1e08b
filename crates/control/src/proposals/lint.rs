//! Runs lint on a plan, with the required facts of the present. The rules are in the engine.

use std::collections::BTreeMap;

use api::{Problem, problem};
use engine::blueprint::{Impact, impact};
use engine::data::secret::KnownSecret;
use engine::gate::Policy;
use engine::ids::{JigName, NoderoleId};
use engine::lint::{self, Finding, Level, Reviewers, Subject};

use crate::current::CurrentState;
use crate::proposals::change::Planned;
use crate::text::sentence;

/// Whether each jig is active.
pub(crate) type Jigs = BTreeMap<JigName, bool>;

fn rank(present: &CurrentState, id: NoderoleId) -> Option<u32> {
    let (node, key) = present.skeleton.location(id)?;
    present.skeleton.nodes.get(node)?.noderoles.get(key).map(|noderole| noderole.rank)
}

/// The facts that lint needs in addition to the plan.
#[derive(Clone, Copy)]
pub(crate) struct LintFacts<'a> {
    pub jigs: &'a Jigs,
    pub secrets: Option<&'a BTreeMap<String, KnownSecret>>,
    /// The policy in force.
    pub policy: &'a Policy,
    pub reviewers: Reviewers,
}

/// Calls `check` with the lint subject of a plan.
fn with_subject<T>(
    present: &CurrentState,
    planned: &Planned,
    context: LintFacts<'_>,
    check: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    let LintFacts { jigs, secrets, policy, reviewers } = context;
    let rank = |id| rank(present, id);
    let policy = planned.effects.policy.as_ref().map(|set| (policy, &set.policy));
    let planned = planned.from(present);
    check(&Subject {
        planned,
        catalog: &present.catalog,
        jigs,
        secrets,
        rank: &rank,
        policy,
        reviewers,
    })
}

/// The lint errors of a plan, as text. The gate checks these at commit.
pub(crate) fn errors(
    present: &CurrentState,
    planned: &Planned,
    context: LintFacts<'_>,
) -> Vec<String> {
    with_subject(present, planned, context, |subject| {
        lint::errors(subject).iter().map(ToString::to_string).collect()
    })
}

/// All lint findings of a plan.
pub(crate) fn all(
    present: &CurrentState,
    planned: &Planned,
    context: LintFacts<'_>,
) -> Vec<Finding> {
    with_subject(present, planned, context, |subject| {
        lint::lint(subject, &impact(&subject.planned, None))
    })
}

/// All lint findings of a plan; a problem if one of them is an error.
pub(crate) fn findings(
    present: &CurrentState,
    planned: &Planned,
    impact: &Impact,
    context: LintFacts<'_>,
) -> Result<Vec<Finding>, Problem> {
    let findings = with_subject(present, planned, context, |subject| lint::lint(subject, impact));
    let errors: Vec<&Finding> =
        findings.iter().filter(|finding| finding.level == Level::Error).collect();
    let Some(first) = errors.first() else { return Ok(findings) };
    let mut problem = Problem::conflict(
        "lint",
        format!("The change cannot be submitted because of an error in {first}."),
    );
    let to_finding = |finding: &&Finding| problem::Finding {
        at: finding.at.clone(),
        detail: sentence(&format!(
            "{}: {}. {}",
            finding.check.id(),
            finding.problem,
            finding.remedy
        )),
    };
    problem.errors = errors.iter().map(to_finding).collect();
    Err(problem)
}
