//! Lint, with what it needs of the present. Which rules there are is the engine's business.

use std::collections::BTreeMap;

use api::Problem;
use api::problem;
use engine::blueprint::{Consequences, consequences};
use engine::gate::Policy;
use engine::ids::{JigName, NoderoleId};
use engine::lint::{self, Finding, Level, Subject};

use crate::present::Present;
use crate::proposing::Planned;

/// Whether each jig is active.
pub(crate) type Jigs = BTreeMap<JigName, bool>;

fn rank(present: &Present, id: NoderoleId) -> Option<u32> {
    let (node, key) = present.skeleton.place(id)?;
    present.skeleton.nodes.get(node)?.noderoles.get(key).map(|noderole| noderole.rank)
}

/// The errors in a plan, in words: what the gate asks at the commit.
pub(crate) fn errors(present: &Present, planned: &Planned, jigs: &Jigs, in_force: &Policy) -> Vec<String> {
    let rank = |id| rank(present, id);
    let policy = planned.effects.policy.as_ref().map(|set| (in_force, &set.policy));
    let subject = Subject { planned: planned.from(present), catalog: &present.catalog, jigs, rank: &rank, policy };
    lint::errors(&subject).iter().map(ToString::to_string).collect()
}

/// Everything that is wrong with a plan.
pub(crate) fn all(present: &Present, planned: &Planned, jigs: &Jigs, in_force: &Policy) -> Vec<Finding> {
    let rank = |id| rank(present, id);
    let policy = planned.effects.policy.as_ref().map(|set| (in_force, &set.policy));
    let planned = planned.from(present);
    let subject = Subject { planned, catalog: &present.catalog, jigs, rank: &rank, policy };
    lint::lint(&subject, &consequences(&planned, None))
}

/// Everything that is wrong with a plan; refused when an error is among it.
pub(crate) fn findings(
    present: &Present,
    planned: &Planned,
    consequences: &Consequences,
    jigs: &Jigs,
    in_force: &Policy,
) -> Result<Vec<Finding>, Problem> {
    let rank = |id| rank(present, id);
    let policy = planned.effects.policy.as_ref().map(|set| (in_force, &set.policy));
    let subject = Subject { planned: planned.from(present), catalog: &present.catalog, jigs, rank: &rank, policy };
    let findings = lint::lint(&subject, consequences);
    let errors: Vec<&Finding> = findings.iter().filter(|finding| finding.level == Level::Error).collect();
    let Some(first) = errors.first() else { return Ok(findings) };
    let mut problem = Problem::conflict("lint", format!("The change can’t be submitted like this. {first}."));
    let told = |finding: &&Finding| problem::Finding {
        at: finding.at.clone(),
        detail: format!("{}: {}. {}", finding.check.id(), finding.what, finding.remedy),
    };
    problem.errors = errors.iter().map(told).collect();
    Err(problem)
}
