//! How a change moves states along the graph. A change costs only the children of the steps it
//! moves.
//!
//! * A parent that becomes **ACTIVE** frees the children whose join now holds. They become TODO.
//!   They become ACTIVE at once if they are immediate, or if their result is kept and no re-run is
//!   due.
//! * A parent that **runs again** (re-run, drift, dead node) returns TODO children to BLOCKED.
//!   ACTIVE children stay ACTIVE with `pending > 0`. Only immediate steps follow, because a barrier
//!   between two groups must not hide that the first group runs again.
//! * A parent in **ERROR** moves ACTIVE children whose join does not hold to BLOCKED, then *their*
//!   children, hop by hop. Their results are kept. It passes only through the steps that it blocks
//!   and through immediate steps. A step that was BLOCKED before stops it; otherwise every failure
//!   in a fresh deployment would cost all descendants. An applied destructive step stays ACTIVE and
//!   shields its children.
//! * Other steps never move a step in **TRANSITION**. The death of its node does. Its `pending`
//!   stays current. It becomes ACTIVE on success even if a parent has failed, because the parent
//!   was ACTIVE when the run started.
//! * A **dead node** undoes the steps that need it alive: they go to TODO or BLOCKED, and their
//!   open attempts are outdated. Immediate steps and steps *for* the node (create, power, fence)
//!   stay. When the node returns, applied steps that the caller names resume: they become ACTIVE
//!   without a run. The others run again.
//!
//! * A **failed check** of an ACTIVE step makes it run again at its generation, or makes it ERROR
//!   with its result kept ([`Step::is_check_failed`]). If the check passes again, the step becomes
//!   ACTIVE without a run. A destructive step never runs again for a check.
//!
//! **Doubt ends in ERROR.** A destructive step goes to ERROR if its result is unknown: it was lost,
//! failed half-way, or its node died. It ignores its retries and stays in ERROR when its node dies.
//! Only a retry by a person or a reviewed re-run starts it again; drift and hooks cannot.
//!
//! Ranks rise along edges. Changes are processed in (rank, id) order, so each step is visited once,
//! after all its parents are final. Rows are locked, and deltas are listed, in the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::step::{missing, satisfies};
use super::{Cause, Delta, Missing, Outcome, RerunReason, Step, StepState, World, backoff, count};
use crate::catalog::{JoinNeed, Needs};
use crate::cluster::EdgeKind;
use crate::ids::{BlueprintNumber, NodeId, StepId};

/// Maximum number of steps that become ACTIVE without a run in one call.
///
/// The others stay TODO with `pending = 0`, which is correct and passes every CHECK. They are
/// listed in [`Outcome::more`], and [`Change::Settle`] continues with them in the next transaction.
/// Admission skips them because [`Step::needs_no_run`] is true. By the same rule, a sweep finds
/// those that a crash left.
///
/// Applied destructive steps cannot be TODO, so the limit does not apply to them. It does not apply
/// to an ERROR either, because half-propagated blocking would make `pending` wrong.
pub const BATCH: usize = 1_000;

/// Retries after lost workers, for steps with fewer retries of their own: a loss says nothing about
/// the step. Bounded because a step that crashes its worker each time would otherwise run forever.
pub const LOSSES: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A claim took it: TODO to TRANSITION. A claim does this in SQL for many rows at once.
    Started,
    /// An attempt succeeded.
    Succeeded {
        /// The generation that the attempt was started for.
        generation: BlueprintNumber,
    },
    /// An attempt, or a hook at its end, failed.
    Failed {
        generation: BlueprintNumber,
        /// The error message, without secrets.
        reason: String,
        /// Whether another attempt may succeed.
        retry: bool,
    },
    /// The lease of an attempt that had started expired.
    Lost { generation: BlueprintNumber },
    /// An attempt ended before it started, or the node's ledger proves that it never started.
    NeverStarted,
    /// A person canceled the attempt. In one transaction with a re-run, the cancellation comes
    /// first.
    Canceled {
        /// The person, for messages.
        by: String,
    },
    /// A person retries an ERROR step.
    Retry {
        /// Stored as the cause.
        reason: RerunReason,
    },
    /// It must run (again) at this generation: the current one, or a newer one.
    Rerun {
        /// The target that re-runs it. The current generation for causes without a commit (drift,
        /// hook, data).
        generation: BlueprintNumber,
        /// Stored as the cause.
        reason: RerunReason,
    },
    /// The check of an ACTIVE step failed as often as its role allows.
    CheckFailed {
        /// The error message, without secrets.
        reason: String,
        /// Whether the step runs again. Otherwise, and if it is destructive, it becomes ERROR.
        rerun: bool,
    },
    /// The check of a step passes, after it made the step ERROR.
    CheckPassed,
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Lost { .. } => "lost",
            Self::NeverStarted => "never started",
            Self::Canceled { .. } => "canceled",
            Self::Retry { .. } => "retried",
            Self::Rerun { .. } => "re-run",
            Self::CheckFailed { .. } => "failed by its check",
            Self::CheckPassed => "passed by its check",
        }
    }
}

/// A step of a commit, after its intent is written and loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// New (with [`super::Progress::new`]) or changed.
    pub step: StepId,
    /// The target and the reason, if it must run again. The step may already have the target as its
    /// generation. A new step needs none.
    pub rerun: Option<(BlueprintNumber, RerunReason)>,
    /// All its current parents, if it is new, its edges or join changed, or an order-only parent's
    /// `skipped` changed.
    pub parents: Option<Vec<(StepId, EdgeKind)>>,
}

/// A change of the progress of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Step {
        step: StepId,
        event: Event,
    },
    /// All steps that a commit added or changed. Edges and intent already have their new values.
    Commit(Vec<Committed>),
    /// A node died. [`Event::NeverStarted`] ends its runs that never started before this.
    NodeDown {
        node: NodeId,
    },
    /// A node is alive again. The steps that must run again are TODO already and become admissible.
    NodeUp {
        node: NodeId,
        /// The steps whose applied results are still valid, although their node was away.
        resumed: BTreeSet<StepId>,
    },
    /// Continues with the steps that a batch left. Skips those that have moved since.
    Settle {
        /// [`Outcome::more`] of the previous call.
        steps: Vec<StepId>,
    },
}

/// Why [`apply`] has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Load these too and call again.
    #[error("The change needs steps that were not loaded")]
    Missing(Missing),
    /// The change does not fit the current state of the step. The caller writes nothing.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The loaded rows contradict each other.
    #[error(transparent)]
    InvariantViolation(#[from] InvariantViolation),
}

/// A change that does not fit the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The event is not possible in this state.
    State {
        step: StepId,
        state: StepState,
        /// The name of the event.
        event: &'static str,
    },
    /// It becomes ACTIVE without a run.
    NoRunNeeded { step: StepId },
    /// A generation never decreases.
    StaleGeneration {
        step: StepId,
        generation: BlueprintNumber,
        /// The requested generation.
        requested: BlueprintNumber,
    },
    /// It is destructive and in ERROR. Only a retry by a person, or a reviewed re-run, starts it
    /// again.
    Unrequested { step: StepId },
    /// It is destructive and already ran at this generation.
    AlreadyApplied { step: StepId, generation: BlueprintNumber },
}

impl Refused {
    pub fn step(&self) -> StepId {
        match self {
            Self::State { step, .. }
            | Self::NoRunNeeded { step }
            | Self::StaleGeneration { step, .. }
            | Self::Unrequested { step }
            | Self::AlreadyApplied { step, .. } => *step,
        }
    }

    /// The message with a name that people know, such as `app on n1`.
    pub fn message_for(&self, called: &str) -> String {
        match self {
            Self::State { state, event, .. } => {
                format!(
                    "Step {called} is {state}, so it cannot be {event}: {}.",
                    hint(event, *state)
                )
            }
            Self::NoRunNeeded { .. } => {
                format!("Step {called} needs no run: it becomes active by itself.")
            }
            Self::StaleGeneration { generation, requested, .. } => format!(
                "Step {called} is at generation {generation}, so blueprint {requested} cannot \
                 re-run it. Plan the change again on the current target."
            ),
            Self::Unrequested { .. } => format!(
                "Step {called} is destructive and in ERROR, so its result is unknown. Look at its \
                 node, then retry it."
            ),
            Self::AlreadyApplied { generation, .. } => format!(
                "Step {called} is destructive and was applied at generation {generation}. Only a \
                 reviewed re-run with a new generation runs it again."
            ),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message_for(&format!("{}", self.step())))
    }
}

impl std::error::Error for Refused {}

fn hint(event: &str, state: StepState) -> &'static str {
    match (event, state) {
        ("retried", StepState::Blocked) => "retry the steps that it waits for",
        ("retried", StepState::Todo) => "it already waits for a worker",
        ("retried", StepState::Transition) => "a run of it is open. Wait for its end, or cancel it",
        ("retried", StepState::Active) => "it is done. Propose a re-run instead",
        ("started", StepState::Transition) => "a run of it is open",
        ("started", _) => "only a TODO step can start",
        ("failed by its check" | "passed by its check", _) => "the step changed during the check",
        _ => "no run of it is open, so this result is late",
    }
}

/// The loaded rows violate an invariant. Gantry never writes such rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvariantViolation {
    /// Ranks rise along edges.
    #[error("the ranks of step {parent} and its child {child} do not rise")]
    Rank { parent: StepId, child: StepId },
    /// `pending` (or `satisfied`) equals a recount.
    #[error("the stored number of pending parents of step {step} is too low")]
    Count { step: StepId },
}

/// Applies a change to the steps. Writes nothing: [`World::take`] or the database does.
///
/// # Errors
/// [`Stop::Missing`] until enough is loaded. [`Stop::Refused`] if the change does not fit.
/// [`Stop::InvariantViolation`] if the loaded rows violate an invariant.
pub fn apply(world: &World, change: &Change) -> Result<Outcome, Stop> {
    let mut propagation = Propagation::new(world);
    match change {
        Change::Step { step, event } => propagation.event(*step, event)?,
        Change::Commit(steps) => {
            for committed in steps {
                propagation.touch(committed.step, |touch| touch.committed = Some(committed));
            }
        }
        Change::NodeDown { node } => propagation.on_node(*node, |_, touch| touch.node_down = true),
        Change::NodeUp { node, resumed } => propagation.on_node(*node, |id, touch| {
            touch.node_up = true;
            touch.resumes = resumed.contains(&id);
        }),
        Change::Settle { steps } => steps.iter().for_each(|step| propagation.touch(*step, |_| ())),
    }
    propagation.finish()
}

/// Applies several changes in order, each to the result of the previous one. The outcome is the
/// same as if each was applied and written alone. A change that does not fit is skipped and
/// reported by its index, and does not affect the others.
///
/// # Errors
/// [`Stop::Missing`] until enough is loaded. [`Stop::InvariantViolation`] if the loaded rows
/// violate an invariant. Never [`Stop::Refused`].
pub fn apply_each(
    world: &World,
    changes: &[Change],
) -> Result<(Outcome, BTreeMap<usize, Refused>), Stop> {
    let mut now = world.clone();
    let (mut merged, mut refused) = (Outcome::default(), BTreeMap::new());
    for (place, change) in changes.iter().enumerate() {
        match apply(&now, change) {
            Ok(outcome) => {
                now.take(&outcome);
                merged = merged.then(outcome);
            }
            Err(Stop::Refused(reason)) => {
                refused.insert(place, reason);
            }
            Err(other) => return Err(other),
        }
    }
    Ok((merged, refused))
}

/// Why a step is in the queue.
#[derive(Debug, Default)]
struct Touch<'c> {
    /// A parent became ERROR, or was blocked by one, and does not satisfy the step.
    errored: bool,
    node_down: bool,
    node_up: bool,
    /// The node was away, and its applied result is still valid.
    resumes: bool,
    committed: Option<&'c Committed>,
}

struct Propagation<'c> {
    world: &'c World,
    /// Copies of the steps that change.
    steps: BTreeMap<StepId, Step>,
    /// Steps to visit. Only steps of a higher rank are added, so each step comes once.
    queue: BTreeMap<(u32, StepId), Touch<'c>>,
    not_before: BTreeMap<StepId, Duration>,
    missing: Missing,
    settled: usize,
    more: BTreeSet<(u32, StepId)>,
    outdated: Vec<StepId>,
}

type Done = Result<(), Stop>;

impl<'c> Propagation<'c> {
    fn new(world: &'c World) -> Self {
        Self {
            world,
            steps: BTreeMap::new(),
            queue: BTreeMap::new(),
            not_before: BTreeMap::new(),
            missing: Missing::default(),
            settled: 0,
            more: BTreeSet::new(),
            outdated: Vec::new(),
        }
    }

    fn finish(mut self) -> Result<Outcome, Stop> {
        while let Some(((_, id), touch)) = self.queue.pop_first() {
            self.visit(id, &touch)?;
        }
        if !self.missing.is_empty() {
            return Err(Stop::Missing(self.missing));
        }
        let mut deltas = Vec::new();
        for (id, step) in self.steps {
            let not_before = self.not_before.get(&id).copied();
            let Some(old) = self.world.steps.get(&id) else { continue };
            if old.progress != step.progress || not_before.is_some() {
                let was = old.progress.state;
                deltas.push(Delta {
                    step: id,
                    rank: step.rank,
                    was,
                    now: step.progress,
                    not_before,
                });
            }
        }
        deltas.sort_by_key(|delta| (delta.rank, delta.step));
        let more = self.more.into_iter().map(|(_, step)| step).collect();
        Ok(Outcome { deltas, more, outdated: self.outdated })
    }

    fn see(&mut self, id: StepId) -> Option<&Step> {
        let found = self.steps.get(&id).or_else(|| self.world.steps.get(&id));
        if found.is_none() {
            self.missing.steps.insert(id);
        }
        found
    }

    fn change(&mut self, id: StepId) -> Option<&mut Step> {
        if !self.steps.contains_key(&id) {
            let step = self.see(id)?.clone();
            self.steps.insert(id, step);
        }
        self.steps.get_mut(&id)
    }

    fn touch(&mut self, id: StepId, set: impl FnOnce(&mut Touch<'c>)) {
        if let Some(rank) = self.see(id).map(|step| step.rank) {
            set(self.queue.entry((rank, id)).or_default());
        }
    }

    fn on_node(&mut self, node: NodeId, set: impl Fn(StepId, &mut Touch<'c>)) {
        let world = self.world;
        let Some(steps) = world.on_node.get(&node) else {
            self.missing.by_node.insert(node);
            return;
        };
        steps.iter().for_each(|step| self.touch(*step, |touch| set(*step, touch)));
    }

    /// Visits a step after all its parents are final.
    fn visit(&mut self, id: StepId, touch: &Touch<'c>) -> Done {
        if let Some(committed) = touch.committed {
            if !self.has_loaded_parents(committed) {
                return Ok(());
            }
            self.commit(committed)?;
        }
        if touch.node_up || touch.node_down {
            self.set_node_up(id, touch)?;
        }
        let Some(step) = self.see(id) else { return Ok(()) };
        let holds = step.progress.pending == 0;
        match step.progress.state {
            StepState::Blocked if holds => self.wait(id),
            StepState::Blocked if touch.errored && step.is_immediate() => {
                self.update_children(id, StepState::Blocked, StepState::Blocked, true)
            }
            // A failed check can break the join of a step that is due again. Its children are
            // ACTIVE with its earlier result, and the error must reach them.
            StepState::Todo if !holds && touch.errored => self.set(id, StepState::Blocked, true),
            StepState::Todo if !holds || step.needs_no_run() => self.wait(id),
            StepState::Active
                if !holds && (step.is_immediate() || (touch.errored && !step.is_final())) =>
            {
                self.set(id, StepState::Blocked, touch.errored)
            }
            _ => Ok(()),
        }
    }

    /// Sets the state of a step that does not run, from `pending` and from whether it needs a run.
    fn wait(&mut self, id: StepId) -> Done {
        let full = self.settled >= BATCH;
        let Some(step) = self.change(id) else { return Ok(()) };
        if step.progress.pending > 0 {
            return self.set(id, StepState::Blocked, false);
        }
        if !step.needs_no_run() {
            return self.set(id, StepState::Todo, false);
        }
        // An applied destructive step cannot be TODO (invariant 4), so the limit does not apply to
        // it.
        if full && !(step.destructive && step.is_applied()) {
            let key = (step.rank, id);
            self.more.insert(key);
            return self.set(id, StepState::Todo, false);
        }
        self.settled += 1;
        self.activate(id)
    }

    fn activate(&mut self, id: StepId) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        let progress = &mut step.progress;
        progress.applied = Some(progress.generation);
        progress.cause = None;
        progress.error = None;
        progress.failures = 0;
        self.set(id, StepState::Active, false)
    }

    fn set(&mut self, id: StepId, state: StepState, errored: bool) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        let before = std::mem::replace(&mut step.progress.state, state);
        self.update_children(id, before, state, errored)
    }

    /// Updates the children's counts and queues the affected children.
    fn update_children(
        &mut self,
        id: StepId,
        before: StepState,
        after: StepState,
        errored: bool,
    ) -> Done {
        let same = before == after || (before.is_ahead() && after.is_ahead());
        if same && !errored {
            return Ok(());
        }
        let Some((rank, skipped)) = self.see(id).map(|step| (step.rank, step.skipped)) else {
            return Ok(());
        };
        let world = self.world;
        let Some(children) = world.children.get(&id) else {
            self.missing.children_of.insert(id);
            return Ok(());
        };
        for child in children {
            let Some(step) = self.see(child.step) else { continue };
            if step.rank <= rank {
                return Err(InvariantViolation::Rank { parent: id, child: child.step }.into());
            }
            let key = (step.rank, child.step);
            let join_after = step.join.after;
            let was = satisfies(child.kind, join_after, before, skipped);
            let is = satisfies(child.kind, join_after, after, skipped);
            let blocked = errored && !is && child.kind != EdgeKind::OrderOnly;
            if was == is && !blocked {
                continue;
            }
            let touch = self.queue.entry(key).or_default();
            touch.errored |= blocked;
            let counted_later =
                touch.committed.is_some_and(|committed| committed.parents.is_some());
            if was != is && !counted_later {
                self.recount(child.step, child.kind, is)?;
            }
        }
        Ok(())
    }

    /// Adds or removes one parent that satisfies the step.
    fn recount(&mut self, id: StepId, kind: EdgeKind, satisfies: bool) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        let need = step.join.need;
        let progress = &mut step.progress;
        let step_by = |n: u32, up: bool| if up { n.checked_add(1) } else { n.checked_sub(1) };
        let pending = if kind == EdgeKind::OrderOnly || need == JoinNeed::All {
            step_by(progress.pending, !satisfies)
        } else {
            step_by(progress.satisfied, satisfies).and_then(|now| {
                let before = std::mem::replace(&mut progress.satisfied, now);
                (progress.pending + missing(need, now)).checked_sub(missing(need, before))
            })
        };
        progress.pending = pending.ok_or(InvariantViolation::Count { step: id })?;
        Ok(())
    }

    /// Whether all parents are loaded. Otherwise the count would be wrong and the change would load
    /// steps that it does not need.
    fn has_loaded_parents(&mut self, committed: &Committed) -> bool {
        let parents = committed.parents.iter().flatten();
        parents.fold(true, |known, (parent, _)| self.see(*parent).is_some() && known)
    }

    fn commit(&mut self, committed: &Committed) -> Done {
        let id = committed.step;
        if let Some(parents) = &committed.parents {
            let Some((rank, join)) = self.see(id).map(|step| (step.rank, step.join)) else {
                return Ok(());
            };
            let mut states = Vec::with_capacity(parents.len());
            for (parent, kind) in parents {
                let Some(step) = self.see(*parent) else { continue };
                if step.rank >= rank {
                    return Err(InvariantViolation::Rank { parent: *parent, child: id }.into());
                }
                states.push((*kind, step.progress.state, step.skipped));
            }
            let counted = count(join, states);
            if let Some(step) = self.change(id) {
                step.progress.pending = counted.pending;
                step.progress.satisfied = counted.satisfied;
            }
        }
        match committed.rerun {
            Some((generation, reason)) => self.rerun(id, generation, reason),
            None => Ok(()),
        }
    }

    /// Steps *for* the node and immediate steps keep their state when it dies.
    fn set_node_up(&mut self, id: StepId, touch: &Touch<'c>) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        step.progress.node_up = touch.node_up;
        if touch.node_up && step.progress.cause == Some(Cause::new(RerunReason::NodeAway)) {
            let again = (!touch.resumes).then_some(Cause::new(RerunReason::NodeBack));
            step.progress.cause = again;
        }
        if touch.node_up || step.needs != Needs::Alive || step.is_immediate() {
            return Ok(());
        }
        let for_good = step.is_final();
        let destructive = step.destructive;
        let applied = step.is_applied();
        let check_failed = step.is_check_failed();
        let progress = &mut step.progress;
        match progress.state {
            StepState::Transition => {
                self.outdated.push(id);
                if destructive {
                    return self.fail(
                        id,
                        "the node died during the run, and a destructive step is not repeated \
                         automatically",
                    );
                }
                self.abandon_attempt(id);
                self.wait(id)
            }
            StepState::Active if !for_good => {
                progress.cause = Some(Cause::new(RerunReason::NodeAway));
                self.wait(id)
            }
            // Only a person can decide whether a destructive step ran.
            StepState::Error if !destructive => {
                let reason =
                    if check_failed { RerunReason::NodeAway } else { RerunReason::NodeBack };
                progress.cause = Some(Cause::new(reason));
                progress.failures = 0;
                progress.error = None;
                self.wait(id)
            }
            StepState::Blocked | StepState::Todo if applied && !for_good => {
                progress.cause.get_or_insert(Cause::new(RerunReason::NodeAway));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn event(&mut self, id: StepId, event: &Event) -> Done {
        let Some(step) = self.see(id) else { return Ok(()) };
        let state = step.progress.state;
        let needs_no_run = step.needs_no_run();
        let present = step.progress.generation;
        let needs_decision = step.destructive && state == StepState::Error;
        let (is_checked, check_failed) =
            (step.is_applied() && !step.is_immediate(), step.is_check_failed());
        let fits = match event {
            Event::Started => state == StepState::Todo,
            Event::Retry { .. } => state == StepState::Error,
            Event::Rerun { .. } => true,
            Event::CheckFailed { .. } => state == StepState::Active && is_checked,
            Event::CheckPassed => check_failed,
            _ => state == StepState::Transition,
        };
        if !fits {
            return Err(Refused::State { step: id, state, event: event.name() }.into());
        }
        match event {
            Event::Started if needs_no_run => Err(Refused::NoRunNeeded { step: id }.into()),
            Event::Started => self.set(id, StepState::Transition, false),
            Event::Succeeded { generation } => self.succeeded(id, *generation),
            Event::Failed { generation, reason, retry } => {
                self.failed(id, *generation, reason, *retry)
            }
            Event::Lost { generation } => self.lost(id, *generation),
            Event::NeverStarted => {
                self.end_attempt(id);
                self.wait(id)
            }
            // A person who cancels a run wants it to stop. TODO would start the next one at once.
            Event::Canceled { by } => self.fail(id, &format!("canceled by {by}")),
            Event::Retry { reason } => self.retry(id, *reason),
            Event::Rerun { generation, .. } if needs_decision && *generation == present => {
                Err(Refused::Unrequested { step: id }.into())
            }
            Event::Rerun { generation, reason } => self.rerun(id, *generation, *reason),
            Event::CheckFailed { reason, rerun } => self.check_failed(id, reason, *rerun),
            Event::CheckPassed => self.check_passed(id),
        }
    }

    fn succeeded(&mut self, id: StepId, generation: BlueprintNumber) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        let destructive = step.destructive;
        let progress = &mut step.progress;
        if generation != progress.generation {
            // The attempt had outdated intent. Its result is stored with the run and never applied.
            self.end_attempt(id);
            return self.wait(id);
        }
        let again = progress.cause.filter(|cause| cause.again && !destructive);
        progress.applied = Some(generation);
        progress.cause = again.map(|cause| Cause::new(cause.reason));
        progress.failures = 0;
        progress.error = None;
        if again.is_some() { self.wait(id) } else { self.set(id, StepState::Active, false) }
    }

    fn failed(
        &mut self,
        id: StepId,
        generation: BlueprintNumber,
        reason: &str,
        retry: bool,
    ) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        if generation != step.progress.generation {
            self.abandon_attempt(id);
            return self.wait(id);
        }
        // A failed destructive step may have lost data already, and often its progress is unknown.
        let allowed = if retry && !step.destructive { step.retries } else { 0 };
        self.retry_or_fail(id, reason, allowed)
    }

    fn retry_or_fail(&mut self, id: StepId, reason: &str, allowed: u32) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        let may_retry = step.progress.failures < allowed;
        step.progress.failures = step.progress.failures.saturating_add(1);
        if !may_retry {
            return self.fail(id, reason);
        }
        step.progress.error = Some(reason.to_owned());
        let wait = backoff(step.backoff, step.progress.failures);
        self.not_before.insert(id, wait);
        self.abandon_attempt(id);
        self.wait(id)
    }

    fn lost(&mut self, id: StepId, generation: BlueprintNumber) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        if step.destructive {
            step.progress.failures = step.progress.failures.saturating_add(1);
            let reason = "the worker was lost during the run, and a destructive step is not \
                          repeated automatically: look at the node, then retry";
            return self.fail(id, reason);
        }
        if generation != step.progress.generation {
            self.abandon_attempt(id);
            return self.wait(id);
        }
        let allowed = step.retries.max(LOSSES);
        self.retry_or_fail(id, "the worker was lost during the run", allowed)
    }

    fn fail(&mut self, id: StepId, reason: &str) -> Done {
        self.abandon_attempt(id);
        if let Some(step) = self.change(id) {
            step.progress.error = Some(reason.to_owned());
        }
        self.set(id, StepState::Error, true)
    }

    fn retry(&mut self, id: StepId, reason: RerunReason) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        // Its check made it ERROR. It is done and must not run again, so it only leaves the ERROR.
        let cause = (!step.is_final()).then_some(Cause::new(reason));
        step.progress.failures = 0;
        step.progress.error = None;
        step.progress.cause = cause;
        self.not_before.insert(id, Duration::ZERO);
        self.wait(id)
    }

    fn rerun(&mut self, id: StepId, generation: BlueprintNumber, reason: RerunReason) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        let present = step.progress.generation;
        if generation < present {
            return Err(Refused::StaleGeneration {
                step: id,
                generation: present,
                requested: generation,
            }
            .into());
        }
        if generation == present && step.is_final() {
            return Err(Refused::AlreadyApplied { step: id, generation }.into());
        }
        let immediate = step.is_immediate();
        let progress = &mut step.progress;
        let running = progress.state == StepState::Transition;
        progress.generation = generation;
        progress.failures = 0;
        if running {
            progress.cause = Some(Cause { reason, again: true });
            return Ok(());
        }
        progress.error = None;
        if immediate && progress.state == StepState::Active && progress.pending == 0 {
            progress.applied = Some(generation);
            return Ok(());
        }
        progress.cause = (!immediate).then_some(Cause::new(reason));
        self.not_before.insert(id, Duration::ZERO);
        self.wait(id)
    }

    fn check_failed(&mut self, id: StepId, reason: &str, rerun: bool) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        if rerun && !step.destructive {
            let generation = step.progress.generation;
            return self.rerun(id, generation, RerunReason::Check);
        }
        // Without a cause: the result is kept, for the time when the check passes again.
        step.progress.error = Some(reason.to_owned());
        self.set(id, StepState::Error, true)
    }

    fn check_passed(&mut self, id: StepId) -> Done {
        let Some(step) = self.change(id) else { return Ok(()) };
        step.progress.error = None;
        self.wait(id)
    }

    /// Clears `again` after an attempt, so that the next attempt resolves the cause.
    fn end_attempt(&mut self, id: StepId) {
        if let Some(step) = self.change(id)
            && let Some(cause) = &mut step.progress.cause
        {
            cause.again = false;
        }
    }

    /// Like [`Self::end_attempt`], for an attempt that may have done part of its work. The earlier
    /// result is no longer valid, so the step gets a cause to run again.
    fn abandon_attempt(&mut self, id: StepId) {
        self.end_attempt(id);
        if let Some(step) = self.change(id)
            && step.is_applied()
        {
            step.progress.cause.get_or_insert(Cause::new(RerunReason::Retry));
        }
    }
}
