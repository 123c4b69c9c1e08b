//! Weighing: an open submission worked out on what is there now.
//!
//! Whether lint finds an error and whether the edits still come to what was reviewed is only known by planning anew. The commit does
//! that under its locks ([`settle`]); pages that show the gate ask the very same function, so a button never promises what the commit
//! refuses. A page is looked at more often than a commit is made, so what was worked out is kept for as long as everything that it
//! rests on is the same: it is a pure function of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use api::Problem;
use api::console::StepState as Shown;
use engine::anneal::StepState;
use engine::blueprint::consequences::{Consequences, below, consequences, running};
use engine::blueprint::projection::StepChange;
use engine::catalog::Catalog;
use engine::cluster::Skeleton;
use engine::gate::Policy;
use engine::ids::{ActionName, DeploymentId, NoderoleId, PolicyNo, StepId, SubmissionId};
use engine::lint::Finding;
use sqlx::PgConnection;
use store::{intent, reading};

use crate::Control;
use crate::commit::unlike;
use crate::linting::{self, Jigs};
use crate::people::Actor;
use crate::present::Present;
use crate::problems::from_store;
use crate::proposing::{Planned, counting, plan};
use crate::reviewing::Case;

/// Noderoles whose states are asked for; of a change that concerns more nobody is told what is up.
const CONCERNED: usize = 50_000;
/// Plans that are kept.
const KEPT: usize = 64;
/// Steps that kept plans may have together.
const KEPT_STEPS: usize = 100_000;

/// What a plan is judged on.
pub(crate) struct Ground<'a> {
    pub present: &'a Present,
    pub jigs: &'a Jigs,
    pub policy: &'a Policy,
}

/// A submission on the present.
pub(crate) struct Weighed {
    /// None: its edits can't be worked out any more.
    pub planned: Option<Planned>,
    /// What lint finds in it.
    pub findings: Vec<Finding>,
    /// Noderoles whose states say what is interrupted.
    pub concerned: Vec<NoderoleId>,
    unresolved: Option<String>,
    errors: Vec<String>,
}

impl Case {
    /// Whether it could still be committed as it is: then a plan says more. On a base that has moved the plan is another one anyhow,
    /// and what helps is to hear that it has moved.
    pub fn is_fresh(&self) -> bool {
        self.row.target.is_none()
            && self.facts.newest
            && self.facts.moved_base.is_empty()
            && self.facts.moved_documents.is_empty()
    }
}

/// Tells the gate what only a plan on the present knows.
pub(crate) fn settle(case: &mut Case, planned: Option<&Planned>, ground: &Ground<'_>) {
    if !case.is_fresh() {
        return;
    }
    case.facts.unresolved = unlike(case, planned);
    let errors = |planned| linting::errors(ground.present, planned, ground.jigs, ground.policy);
    case.facts.lint = planned.into_iter().flat_map(errors).collect();
}

impl Control {
    /// Tells the gate the same as a commit would. None: what was submitted is all that there is to say.
    pub(crate) async fn weigh(
        &self,
        on: &mut PgConnection,
        present: &Present,
        case: &mut Case,
    ) -> Result<Option<Arc<Weighed>>, Problem> {
        if !case.is_fresh() {
            return Ok(None);
        }
        let jigs = intent::jigs(on).await.map_err(from_store)?;
        let stamp = Stamp {
            skeleton: Arc::clone(&present.skeleton),
            catalog: Arc::clone(&present.catalog),
            policy: present.head.policy,
            jigs,
        };
        if let Some(kept) = self.kept.weighed.get(&stamp, case.row.id) {
            case.facts.unresolved.clone_from(&kept.unresolved);
            case.facts.lint.clone_from(&kept.errors);
            return Ok(Some(kept));
        }
        let policy = self.policy(on, present).await?;
        let edits = intent::edits(on, case.row.proposal).await.map_err(from_store)?;
        let planned = plan(present, &counting(&edits)).ok();
        settle(case, planned.as_ref(), &Ground { present, jigs: &stamp.jigs, policy: &policy });
        let findings = planned.as_ref().map(|planned| linting::all(present, planned, &stamp.jigs, &policy));
        let weighed = Arc::new(Weighed {
            findings: findings.unwrap_or_default(),
            concerned: planned.as_ref().map(|planned| concerned(present, planned)).unwrap_or_default(),
            unresolved: case.facts.unresolved.clone(),
            errors: case.facts.lint.clone(),
            planned,
        });
        self.kept.weighed.put(stamp, case.row.id, &weighed);
        Ok(Some(weighed))
    }

    /// What a submission leads to: now, while it can still be committed as it is; else as it was when it was submitted.
    pub async fn consequences(&self, actor: &Actor, id: SubmissionId) -> Result<Consequences, Problem> {
        Ok(self.review(actor, id).await?.consequences)
    }

    /// What a plan leads to, with what is up at this moment.
    pub(crate) async fn consequences_now(
        &self,
        on: &mut PgConnection,
        present: &Present,
        planned: &Planned,
        concerned: &[NoderoleId],
    ) -> Result<Consequences, Problem> {
        if concerned.len() > CONCERNED {
            return Ok(consequences(&planned.from(present), None));
        }
        let states = reading::states_of(on, concerned).await.map_err(from_store)?;
        let active = states.into_iter().filter(|(_, state)| state == Shown::Active.as_str());
        let active: BTreeSet<StepId> = active.map(|(id, _)| StepId::of(id, &ActionName::run())).collect();
        let progress = |step: StepId| active.contains(&step).then_some(StepState::Active);
        Ok(consequences(&planned.from(present), Some(&progress)))
    }

    /// What a commit would not start at once, in words.
    pub(crate) fn waits_after(&self, present: &Present, case: &Case, weighed: Option<&Weighed>) -> Vec<String> {
        if !case.is_fresh() {
            return Vec::new();
        }
        let mut waits = Vec::new();
        if !present.head.enabled {
            waits.push(
                "Execution is off: it can be committed, and nothing of it starts until execution is switched on."
                    .into(),
            );
        }
        let planned = weighed.and_then(|weighed| weighed.planned.as_ref());
        let runs = planned.into_iter().flat_map(|planned| running(&planned.projection)).map(|step| step.deployment);
        let deployments: BTreeSet<DeploymentId> = runs.chain([case.proposal.deployment]).collect();
        // Holding a deployment holds those below it.
        let chain: BTreeSet<DeploymentId> = deployments.iter().flat_map(|id| present.skeleton.chain(*id)).collect();
        let held = present.rows.iter().filter(|row| chain.contains(&row.id));
        waits.extend(held.filter_map(|row| {
            let (by, why) = row.held.as_ref()?;
            Some(format!(
                "{} is held by {by} ({why}): it can be committed, and its steps start when the hold ends.",
                row.name
            ))
        }));
        waits
    }
}

/// What runs again, what goes and what stands downstream: whether they are up makes the difference.
fn concerned(present: &Present, planned: &Planned) -> Vec<NoderoleId> {
    let again = running(&planned.projection).filter(|step| step.change != StepChange::New).map(|step| step.noderole);
    let below = below(&planned.from(present)).into_iter().map(|(node, key, _)| key.id(node));
    again.chain(planned.projection.removed.iter().copied()).chain(below).collect()
}

/// Everything that weighing rests on besides the submission, which never changes. Skeleton and catalog are the same as long as they
/// are the same in memory: the present shares them.
struct Stamp {
    skeleton: Arc<Skeleton>,
    catalog: Arc<Catalog>,
    policy: PolicyNo,
    jigs: Jigs,
}

impl Stamp {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.skeleton, &other.skeleton)
            && Arc::ptr_eq(&self.catalog, &other.catalog)
            && self.policy == other.policy
            && self.jigs == other.jigs
    }
}

/// What was weighed under one stamp.
#[derive(Default)]
pub(crate) struct Kept(RwLock<Option<Under>>);

/// A stamp, and the submissions that were weighed under it.
type Under = (Stamp, BTreeMap<SubmissionId, Arc<Weighed>>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Kept {
    fn get(&self, stamp: &Stamp, id: SubmissionId) -> Option<Arc<Weighed>> {
        let kept = self.0.read().ok()?;
        let (_, plans) = kept.as_ref().filter(|(under, _)| under.is(stamp))?;
        plans.get(&id).cloned()
    }

    fn put(&self, stamp: Stamp, id: SubmissionId, weighed: &Arc<Weighed>) {
        let Ok(mut kept) = self.0.write() else { return };
        if !kept.as_ref().is_some_and(|(under, _)| under.is(&stamp)) {
            *kept = Some((stamp, BTreeMap::new()));
        }
        let Some((_, plans)) = kept.as_mut() else { return };
        plans.insert(id, Arc::clone(weighed));
        let size = |weighed: &Weighed| weighed.planned.as_ref().map_or(0, |planned| planned.projection.steps.len());
        let mut steps: usize = plans.values().map(|weighed| size(weighed)).sum();
        // The oldest goes first; the one that was just asked for stays.
        while (plans.len() > KEPT || steps > KEPT_STEPS) && plans.len() > 1 {
            let Some(oldest) = plans.keys().copied().find(|other| *other != id) else { return };
            steps -= plans.remove(&oldest).map_or(0, |weighed| size(&weighed));
        }
    }
}
