//! Impact: plans an open review on the current target, to find its impact.
//!
//! Only a new plan shows whether lint finds errors and whether the edits still have the reviewed
//! effects. The commit does this under its locks ([`settle`]). Pages that show the gate use the
//! same function, so a button never promises what the commit refuses.
//!
//! Planning is CPU-bound and expensive in a large cluster. Page views are more frequent than
//! commits, and after each commit many people reload at once. Therefore:
//!
//! * Results are cached while all their inputs ([`PlanContext`]) are unchanged; weighing is a pure
//!   function of these. For most submissions only the small part for lists ([`PlanFacts`]) is
//!   cached; complete plans are cached only for a few.
//! * Plans run on blocking threads, never on threads that answer requests.
//! * One plan runs at a time, with fair shares per person as in [`compute`](crate::compute), but
//!   separate permits. A request for the same submission finds the result in the cache when its
//!   turn comes. A plan finishes even if its client disconnects, because the next one would need it
//!   again.
//! * A request that waits for its turn has no connection, so it does not block the database for
//!   others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use api::Problem;
use api::runs::StepState as ShownState;
use engine::anneal::StepState;
use engine::blueprint::impact::{Impact, below, impact, running, unchanged_progress};
use engine::blueprint::projection::StepChange;
use engine::blueprint::{DocumentChange, change_hash};
use engine::data::secret::KnownSecret;
use engine::gate::{Facts, Policy};
use engine::ids::{DeploymentId, NoderoleId, PersonId, ReviewId, StepId};
use engine::lint::{Finding, Reviewers};
use sqlx::PgConnection;
use store::proposals::EditRow;
use store::reviews::ReviewRow;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::Control;
use crate::compute::{MAX_WAIT, Permit, Permits, WAITING};
use crate::current::CurrentState;
use crate::people::Actor;
use crate::problems::from_store;
use crate::proposals::change::{self, Planned, counting, plan};
use crate::proposals::lint::{self, Jigs, LintFacts};
use crate::reviews::review::{Case, moved_documents, review_risks};

/// Maximum number of noderoles whose states are loaded. Larger changes show no information about
/// interruptions.
const MAX_AFFECTED: usize = 50_000;
/// Cached plans.
const MAX_CACHED_PLANS: usize = 64;
/// Maximum total number of steps in the cached plans.
const MAX_PLAN_STEPS: usize = 100_000;

/// Submissions for which the part for lists is cached.
const MAX_PLAN_FACTS: usize = 5_000;
/// Lint errors per submission that are cached for lists.
const MAX_LINT_ERRORS: usize = 20;

/// The input of weighing except the submission itself, which is immutable.
#[derive(Debug)]
pub(crate) struct PlanContext {
    pub present: CurrentState,
    pub jigs: Jigs,
    /// The secrets that workers have. `None` if no worker reports any.
    pub secrets: Option<BTreeMap<String, KnownSecret>>,
    pub policy: Policy,
    /// All people who may review in any deployment. The gate counts those who may review this
    /// change.
    pub reviewers: BTreeSet<PersonId>,
}

impl PlanContext {
    /// Whether weighing has the same result on both. The skeleton and the catalog are shared, so
    /// pointer equality is enough.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.present.skeleton, &other.present.skeleton)
            && Arc::ptr_eq(&self.present.catalog, &other.present.catalog)
            && self.present.head.policy == other.present.head.policy
            && self.jigs == other.jigs
            && self.secrets == other.secrets
            && self.reviewers == other.reviewers
    }

    /// The input for lint of a change with these authors.
    pub fn lint(&self, authors: &BTreeSet<PersonId>) -> LintFacts<'_> {
        let reviewers = Reviewers::of(&self.reviewers, authors);
        LintFacts {
            jigs: &self.jigs,
            secrets: self.secrets.as_ref(),
            policy: &self.policy,
            reviewers,
        }
    }
}

/// The facts for the gate that require a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlanFacts {
    moved_documents: Vec<String>,
    unresolved: Option<String>,
    lint: Vec<String>,
}

impl PlanFacts {
    fn of(
        context: &PlanContext,
        row: &ReviewRow,
        documents: &[DocumentChange],
        authors: &BTreeSet<PersonId>,
        planned: Option<&Planned>,
    ) -> Self {
        let errors = |planned| lint::errors(&context.present, planned, context.lint(authors));
        Self {
            moved_documents: Vec::new(),
            unresolved: plan_difference(row, documents, planned),
            lint: planned.into_iter().flat_map(errors).collect(),
        }
    }

    /// Adds these facts to the facts of a list.
    pub fn add_to(&self, facts: &mut Facts) {
        facts.moved_documents.clone_from(&self.moved_documents);
        facts.unresolved.clone_from(&self.unresolved);
        facts.lint.clone_from(&self.lint);
    }
}

/// A submission, planned on the present.
pub(crate) struct PlannedReview {
    /// `None` if the edits cannot be planned any more.
    pub planned: Option<Planned>,
    /// Lint findings.
    pub findings: Vec<Finding>,
    /// Noderoles whose states determine what the change interrupts.
    pub concerned: Vec<NoderoleId>,
    plan_facts: PlanFacts,
}

impl PlannedReview {
    fn of(
        context: &PlanContext,
        row: &ReviewRow,
        documents: &[DocumentChange],
        edits: &[EditRow],
    ) -> Self {
        let present = &context.present;
        let authors = authors(row, edits);
        let planned = plan(present, &counting(edits)).ok();
        let findings =
            planned.as_ref().map(|planned| lint::all(present, planned, context.lint(&authors)));
        Self {
            findings: findings.unwrap_or_default(),
            concerned: planned
                .as_ref()
                .map(|planned| affected_noderoles(present, planned))
                .unwrap_or_default(),
            plan_facts: PlanFacts::of(context, row, documents, &authors, planned.as_ref()),
            planned,
        }
    }
}

/// All authors of a submission.
fn authors(row: &ReviewRow, edits: &[EditRow]) -> BTreeSet<PersonId> {
    let mut authors = change::authors(edits);
    authors.insert(row.by);
    authors
}

impl Case {
    /// Whether the submission could still be committed unchanged, so that a plan is useful. If the
    /// base has moved, the plan differs anyway and the gate reports the moved base.
    pub fn is_fresh(&self) -> bool {
        self.row.target.is_none()
            && self.facts.newest
            && self.facts.moved_base.is_empty()
            && self.facts.moved_documents.is_empty()
            && self.facts.moved_records.is_empty()
    }
}

/// Adds the facts that require a plan on the present.
pub(crate) fn settle(case: &mut Case, planned: Option<&Planned>, context: &PlanContext) {
    if !case.is_fresh() {
        return;
    }
    let plan_facts =
        PlanFacts::of(context, &case.row, &case.documents, &case.facts.authors, planned);
    case.facts.unresolved = plan_facts.unresolved;
    case.facts.lint = plan_facts.lint;
}

impl Control {
    /// The current input of weighing.
    pub(crate) async fn plan_context(
        &self,
        on: &mut PgConnection,
        present: &CurrentState,
    ) -> Result<Arc<PlanContext>, Problem> {
        Ok(Arc::new(PlanContext {
            present: present.clone(),
            jigs: store::catalog::jigs(on).await.map_err(from_store)?,
            secrets: store::workers::known_secrets(on).await.map_err(from_store)?,
            policy: self.policy(on, present).await?,
            reviewers: store::reviews::reviewers(on)
                .await
                .map_err(from_store)?
                .into_iter()
                .collect(),
        }))
    }

    /// Adds the facts that a commit would find. `None` if the submission can no longer be
    /// committed. The caller must not have a connection.
    pub(crate) async fn plan_review(
        &self,
        actor: &Actor,
        context: &Arc<PlanContext>,
        case: &mut Case,
    ) -> Result<Option<Arc<PlannedReview>>, Problem> {
        if !case.is_fresh() {
            return Ok(None);
        }
        let planned_review = self.planned_review(actor, context, case).await?;
        case.facts.unresolved.clone_from(&planned_review.plan_facts.unresolved);
        case.facts.lint.clone_from(&planned_review.plan_facts.lint);
        Ok(Some(planned_review))
    }

    async fn planned_review(
        &self,
        actor: &Actor,
        context: &Arc<PlanContext>,
        case: &Case,
    ) -> Result<Arc<PlannedReview>, Problem> {
        let id = case.row.id;
        if let Some(cached) = self.plans.plan(context, id) {
            return Ok(cached);
        }
        let permit = self.plans.permit(Some(actor.person)).await?;
        if let Some(cached) = self.plans.plan(context, id) {
            return Ok(cached);
        }
        let mut connection = self.connection().await?;
        let edits = store::proposals::edits(&mut connection, case.row.proposal)
            .await
            .map_err(from_store)?;
        drop(connection);
        let (row, documents) = (case.row.clone(), case.documents.clone());
        let (plans, context) = (Arc::clone(&self.plans), Arc::clone(context));
        permit
            .work(move || {
                plans.computed.fetch_add(1, Ordering::Relaxed);
                let planned_review =
                    Arc::new(PlannedReview::of(&context, &row, &documents, &edits));
                plans.insert_plan(&context, id, &planned_review);
                plans.insert_facts(&context, id, planned_review.plan_facts.clone());
                planned_review
            })
            .await
    }

    /// The facts for lists, for the newest version of an open proposal whose base has not moved.
    /// `who` is `None` if the work counts for no person.
    pub(crate) async fn list_facts(
        &self,
        who: Option<PersonId>,
        context: &Arc<PlanContext>,
        id: ReviewId,
    ) -> Result<Arc<PlanFacts>, Problem> {
        if let Some(cached) = self.plans.list_facts(context, id) {
            return Ok(cached);
        }
        let permit = self.plans.permit(who).await?;
        if let Some(cached) = self.plans.list_facts(context, id) {
            return Ok(cached);
        }
        let mut connection = self.connection().await?;
        let row = store::reviews::find_review(&mut connection, id)
            .await
            .map_err(from_store)?
            .ok_or_else(Problem::internal)?;
        let documents = store::reviews::documents(&mut connection, id).await.map_err(from_store)?;
        let edits =
            store::proposals::edits(&mut connection, row.proposal).await.map_err(from_store)?;
        drop(connection);
        let (plans, context) = (Arc::clone(&self.plans), Arc::clone(context));
        permit
            .work(move || {
                let moved_documents = moved_documents(&context.present, &documents);
                plans.computed.fetch_add(1, Ordering::Relaxed);
                let plan_facts = match moved_documents.is_empty() {
                    true => {
                        let planned = plan(&context.present, &counting(&edits)).ok();
                        PlanFacts::of(
                            &context,
                            &row,
                            &documents,
                            &authors(&row, &edits),
                            planned.as_ref(),
                        )
                    }
                    false => PlanFacts { moved_documents, ..PlanFacts::default() },
                };
                plans.insert_facts(&context, id, plan_facts)
            })
            .await
    }

    /// The number of submissions planned for pages since the start of the process. Used for
    /// metrics.
    pub fn computed(&self) -> u64 {
        self.plans.count()
    }

    /// The cached facts of a submission, without planning.
    pub(crate) fn cached_plan_facts(
        &self,
        context: &PlanContext,
        id: ReviewId,
    ) -> Option<Arc<PlanFacts>> {
        self.plans.list_facts(context, id)
    }

    /// Weighs these submissions in the background and waits until `end` at most. Only one call does
    /// this at a time; another call waits for it and then handles the rest.
    pub(crate) async fn plan_reviews(
        &self,
        context: &Arc<PlanContext>,
        ids: &[ReviewId],
        end: Instant,
    ) {
        loop {
            let unknown = |id: &ReviewId| self.cached_plan_facts(context, *id).is_none();
            let missing: Vec<ReviewId> = ids.iter().copied().filter(unknown).collect();
            if missing.is_empty() {
                return;
            }
            let Ok(walk) = Arc::clone(&self.plans.walk).try_lock_owned() else {
                match timeout_at(end, self.plans.walk.lock()).await {
                    Ok(_) => continue,
                    Err(_) => return,
                }
            };
            let (control, context) = (self.clone(), Arc::clone(context));
            let task = tokio::spawn(async move {
                let _lock = walk;
                for id in missing {
                    if control.plans.is_over(&context) {
                        break;
                    }
                    if let Err(problem) = control.list_facts(None, &context, id).await {
                        tracing::warn!(%problem, review = %id, "cannot preview a review");
                        break;
                    }
                }
            });
            let _ = timeout_at(end, task).await;
            return;
        }
    }

    /// The impact of a submission: current ones while it can be committed unchanged,
    /// otherwise those at its submission.
    pub async fn impact(&self, actor: &Actor, id: ReviewId) -> Result<Impact, Problem> {
        Ok(self.review(actor, id).await?.impact)
    }

    /// The impact of a plan with the current step states.
    pub(crate) async fn current_impact(
        &self,
        on: &mut PgConnection,
        present: &CurrentState,
        planned: &Planned,
        concerned: &[NoderoleId],
    ) -> Result<Impact, Problem> {
        if concerned.len() > MAX_AFFECTED {
            return Ok(impact(&planned.from(present), None));
        }
        let states = store::deployments::step_states(on, concerned).await.map_err(from_store)?;
        let active = states.into_iter().filter(|(_, state)| state == ShownState::Active.as_str());
        let active: BTreeSet<StepId> = active.map(|(id, _)| StepId::run_of(id)).collect();
        let progress = |step: StepId| active.contains(&step).then_some(StepState::Active);
        Ok(impact(&planned.from(present), Some(&progress)))
    }

    /// The reasons why the steps of a change would not start right after its commit, as text.
    pub(crate) fn pending_after_commit(
        &self,
        present: &CurrentState,
        case: &Case,
        planned_review: Option<&PlannedReview>,
    ) -> Vec<String> {
        if !case.is_fresh() {
            return Vec::new();
        }
        let mut reasons = Vec::new();
        if !present.head.enabled {
            reasons.push(
                "Execution is off. You can commit this review, but no step starts until execution \
                 is on."
                    .into(),
            );
        }
        let planned = planned_review.and_then(|planned_review| planned_review.planned.as_ref());
        let runs = planned
            .into_iter()
            .flat_map(|planned| running(&planned.projection))
            .map(|step| step.deployment);
        let moved = planned
            .into_iter()
            .flat_map(|planned| &planned.effects.moved_deployments)
            .map(|moved| moved.deployment);
        let deployments: BTreeSet<DeploymentId> =
            runs.chain(moved).chain([case.proposal.deployment]).collect();
        // A hold also applies to descendants. After a move, the holds of the new ancestors apply.
        let chain: BTreeSet<DeploymentId> = match planned {
            Some(planned) => {
                let blueprint = &planned.materialized.blueprint;
                let parent = |id: &DeploymentId| blueprint.deployments.get(id)?.doc.parent;
                let chain = |id| std::iter::successors(Some(id), parent);
                deployments.into_iter().flat_map(chain).collect()
            }
            None => deployments.iter().flat_map(|id| present.skeleton.chain(*id)).collect(),
        };
        let rows = present.rows.iter().filter(|row| chain.contains(&row.id));
        reasons.extend(rows.filter_map(|row| {
            let (by, reason) = row.hold.as_ref()?;
            Some(format!(
                "Deployment {} is on hold by {by} ({reason}). You can commit this review, and its \
                 steps start when the hold ends.",
                row.name
            ))
        }));
        reasons
    }
}

/// Noderoles that run again, are removed or are downstream. Whether these are active determines
/// what the change interrupts.
fn affected_noderoles(present: &CurrentState, planned: &Planned) -> Vec<NoderoleId> {
    let rerunning = running(&planned.projection)
        .filter(|step| step.change != StepChange::New)
        .map(|step| step.noderole);
    let below = below(&planned.from(present)).into_iter().map(|(node, key, _)| key.id(node));
    let source = planned.from(present);
    let unchanged = unchanged_progress(&source).map(|step| step.noderole);
    rerunning
        .chain(planned.projection.removed.iter().copied())
        .chain(below)
        .chain(unchanged)
        .collect()
}

/// The cached results for one context.
pub(crate) struct PlanCache {
    under: RwLock<Option<CachedPlans>>,
    computed: AtomicU64,
    /// One permit for planning a submission.
    permits: Permits,
    /// Locked by the task that weighs many submissions in sequence.
    walk: Arc<Mutex<()>>,
}

impl Default for PlanCache {
    fn default() -> Self {
        Self {
            under: RwLock::default(),
            computed: AtomicU64::default(),
            permits: Permits::new(1, WAITING, MAX_WAIT),
            walk: Arc::default(),
        }
    }
}

/// A context and its results.
struct CachedPlans {
    context: Arc<PlanContext>,
    plans: BTreeMap<ReviewId, Arc<PlannedReview>>,
    plan_facts: BTreeMap<ReviewId, Arc<PlanFacts>>,
}

impl std::fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanCache").finish_non_exhaustive()
    }
}

impl PlanCache {
    /// The number of submissions planned.
    fn count(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// The permit to plan a submission. It is separate from the permits of [`Control`], so other
    /// work does not delay it.
    async fn permit(&self, who: Option<PersonId>) -> Result<Permit, Problem> {
        self.permits.acquire(who).await
    }

    fn read<T>(
        &self,
        context: &PlanContext,
        select: impl FnOnce(&CachedPlans) -> Option<T>,
    ) -> Option<T> {
        let under = self.under.read().ok()?;
        under.as_ref().filter(|under| under.context.is(context)).and_then(select)
    }

    fn plan(&self, context: &PlanContext, id: ReviewId) -> Option<Arc<PlannedReview>> {
        self.read(context, |under| under.plans.get(&id).cloned())
    }

    fn list_facts(&self, context: &PlanContext, id: ReviewId) -> Option<Arc<PlanFacts>> {
        self.read(context, |under| under.plan_facts.get(&id).cloned())
    }

    /// Whether the cache already belongs to a newer target.
    fn is_over(&self, context: &PlanContext) -> bool {
        let Ok(under) = self.under.read() else { return true };
        under
            .as_ref()
            .is_some_and(|under| under.context.present.head.number > context.present.head.number)
    }

    fn put(&self, context: &Arc<PlanContext>, put: impl FnOnce(&mut CachedPlans)) {
        let Ok(mut under) = self.under.write() else { return };
        if let Some(under) = under.as_mut().filter(|under| under.context.is(context)) {
            return put(under);
        }
        // A request that began before a newer target keeps its result. Do not cache it, because no
        // other request needs it.
        if under
            .as_ref()
            .is_some_and(|under| under.context.present.head.number > context.present.head.number)
        {
            return;
        }
        let new = CachedPlans {
            context: Arc::clone(context),
            plans: BTreeMap::new(),
            plan_facts: BTreeMap::new(),
        };
        put(under.insert(new));
    }

    fn insert_facts(
        &self,
        context: &Arc<PlanContext>,
        id: ReviewId,
        mut plan_facts: PlanFacts,
    ) -> Arc<PlanFacts> {
        plan_facts.lint.truncate(MAX_LINT_ERRORS);
        let plan_facts = Arc::new(plan_facts);
        self.put(context, |under| {
            under.plan_facts.insert(id, Arc::clone(&plan_facts));
            while under.plan_facts.len() > MAX_PLAN_FACTS {
                under.plan_facts.pop_first();
            }
        });
        plan_facts
    }

    fn insert_plan(
        &self,
        context: &Arc<PlanContext>,
        id: ReviewId,
        planned_review: &Arc<PlannedReview>,
    ) {
        self.put(context, |under| {
            let plans = &mut under.plans;
            plans.insert(id, Arc::clone(planned_review));
            let size = |planned_review: &PlannedReview| {
                planned_review.planned.as_ref().map_or(0, |planned| planned.projection.steps.len())
            };
            let mut steps: usize = plans.values().map(|planned_review| size(planned_review)).sum();
            // Evict the oldest submissions first, but keep the requested one.
            while (plans.len() > MAX_CACHED_PLANS || steps > MAX_PLAN_STEPS) && plans.len() > 1 {
                let Some(oldest) = plans.keys().copied().find(|other| *other != id) else { return };
                steps -= plans.remove(&oldest).map_or(0, |planned_review| size(&planned_review));
            }
        });
    }
}

/// The differences between the plan and the approved review; `None` if their hashes are equal.
pub(crate) fn plan_difference(
    row: &ReviewRow,
    documents: &[DocumentChange],
    planned: Option<&Planned>,
) -> Option<String> {
    let again = || {
        Some(
            "On the current target, the change differs from the reviewed one. An author must \
             submit it again"
                .to_owned(),
        )
    };
    let Some(planned) = planned else { return again() };
    if let Some(refused) = planned.effects.refused.first() {
        return Some(format!(
            "Edit {} can no longer take effect: {}",
            refused.edit, refused.reason
        ));
    }
    if planned.effects.is_empty() {
        return Some("The proposal changes nothing".to_owned());
    }
    let same = planned.effects.hash().is_ok_and(|hash| hash == row.effects)
        && change_hash(&planned.materialized.changes).is_ok_and(|hash| hash == row.change)
        && planned.materialized.changes == documents
        && planned.risks == review_risks(row);
    if same { None } else { again() }
}
