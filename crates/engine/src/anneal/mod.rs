//! The annealer's rules: how a step's state moves ([`apply`]), and which steps may start ([`admit`]).
//!
//! Both are pure. The database does the same work in SQL, row by row and under locks; what is written here is what it must agree
//! with, and what the simulator, the tests and "why not yet?" run as it is.
//!
//! ## States
//!
//! ```text
//!            parents missing             claimed                  succeeded
//!   BLOCKED <---------------- TODO ---------------> TRANSITION ---------------> ACTIVE
//!      |    ---------------->  ^                        |                         |
//!      |     join satisfied    |        retry           |  failed, lost,          |  re-run, node dead,
//!      |                       +-----------+            v  cancelled              v  ERROR above it
//!      +--- kept result: ACTIVE at once    +--------- ERROR              TODO or BLOCKED
//! ```
//!
//! PROPOSED is what a proposal would add; no step exists before its commit, so no step has that state.
//!
//! ## Invariants, after every change
//!
//! 1. `pending` is what a recount over all parents gives ([`count`]), in every state. It says how many parents are still missing
//!    before the step's join holds, plus the order-only parents that are still going to run.
//! 2. TODO has `pending = 0`, BLOCKED has `pending > 0`. So a step starts only when its join holds.
//! 3. ACTIVE means that the result of this very generation is applied.
//! 4. A destructive step whose result of this generation is applied neither waits to run nor runs.
//! 5. An instant is ACTIVE only while its `pending` is 0: it has no result that could outlive its parents. (With `pending = 0` it is
//!    ACTIVE, or TODO between two calls of one batch: see "Batches"; a step that is skipped while it runs ends its run first.)
//!
//! What the database also checks by CHECK: 2, 4, `applied <= generation`.
//!
//! ## Joins
//!
//! A *hard* or *soft* parent counts for the join: it satisfies when it is ACTIVE or, for joins *after end*, ERROR. An *order-only*
//! parent never counts; it makes its child wait as long as it is going to run itself (BLOCKED, TODO or TRANSITION, and not
//! skipped).
//!
//! For *all*, `pending` alone can be kept up to date by plus and minus one. For *any* and *at least n* it can't: from `pending = 0`
//! nobody can tell whether one parent more than needed is there. So a step with such a join needs [`Progress::satisfied`], the number
//! of counting parents that satisfy it. **Whoever loads steps hands that number in**: recounted from the parents of just these steps
//! (`count(*)` over `edge` and `step`), or from a column of its own. For *all* it is neither read nor written. A join of *at least
//! n* with fewer than n parents never holds: it fails closed, and planning refuses it; *any* of no parents holds.
//!
//! ## What moves what
//!
//! A change costs the children of the steps that it moves, and it moves few:
//!
//! * A parent that becomes **ACTIVE** frees those children whose join now holds: to TODO, or at once to ACTIVE when they are
//!   instants, or when they were blocked with their result kept and no re-run is due. These free their own children in turn.
//! * A parent that **runs again** (re-run, drift, dead node) takes TODO children back to BLOCKED. ACTIVE children stay ACTIVE, marked
//!   by `pending > 0`. Only instants follow: a barrier between two groups must not hide that the first group runs again.
//! * A parent that becomes **ERROR** takes ACTIVE children whose join does not hold to BLOCKED, and then *their* children, hop by
//!   hop; their results are kept. The ripple goes through the steps that it blocks and through instants, and stops at all others: a
//!   step that was BLOCKED already breaks nothing now. (Walking on through them would make every failure in a fresh deployment cost
//!   all of its descendants.) TRANSITION runs on; a destructive step with its result applied stays ACTIVE and shields its children.
//! * A step in **TRANSITION** is never moved by others, apart from its node's death; its `pending` is kept right. When it succeeds
//!   it is ACTIVE even if a parent has failed meanwhile: it ran on a parent that was well.
//!
//! * A **dead node** takes back what was done *on* it: steps that need it alive go to TODO or BLOCKED and their open attempts are
//!   outdated. Instants, and steps done *for* a node that need not be there (create, power, fence), are not on it and stay.
//!
//! **Doubt ends in ERROR.** A destructive step of which nobody knows whether it was done (lost, failed half-way, or its node died during
//! the run) is ERROR, stays so when its node dies, and starts again only when a person retries it or a review re-runs it; drift and
//! hooks can't, and its retries don't count.
//! A cancelled run ends in ERROR too: whoever stops a run wants it stopped, and TODO would start the next one at once. Other steps
//! that lose their worker go round again at least [`LOSSES`] times, whatever their own retries: that says nothing about the step.
//!
//! Ranks rise along edges. Changes are worked off in (rank, id) order, so a step is looked at once, when all its parents have
//! settled; that is also the order in which rows are locked, and the order of the deltas.
//!
//! ## Kept results and causes
//!
//! [`Progress::cause`] says why a step with an applied result is to run again; without one its result stands. That one field decides
//! whether a BLOCKED step whose parents are back runs or simply is ACTIVE again. A cause that comes while an attempt is running is
//! marked [`Cause::again`]: the attempt began before it, so its success is applied and the step runs once more.
//!
//! ## Batches
//!
//! At most [`BATCH`] steps become ACTIVE without a run in one call. Those beyond it are left TODO with `pending = 0`, which is true
//! (nothing is missing) and passes every CHECK, and are listed in [`Outcome::more`]; [`Change::Settle`] goes on with them, in the next
//! transaction. Nothing may start them: [`Step::rests`] tells them apart, admission leaves them out, and a sweep finds any that a
//! crash left behind by the same rule (TODO, and instant, skipped, or applied with no cause). Destructive steps with a kept result
//! can't be TODO and are settled beyond the limit; the ripple of an ERROR has no limit, because half a ripple has no true `pending`.
//!
//! ## Driving it from a database
//!
//! [`World`] holds the steps and lists of children that were loaded. [`apply`] answers with the deltas, or with what it lacks
//! ([`Missing`]). Which steps are needed depends on states, and states may move until they are locked, so:
//!
//! ```text
//! wanted := the step and its children
//! loop
//!     savepoint; lock and read all of `wanted` in (rank, id) order, with their lists of children
//!     apply(world, change)
//!         Ok(outcome)      -> write the deltas, done
//!         Err(Missing(m))  -> roll back to the savepoint (it releases the locks), wanted += m
//! ```
//!
//! `wanted` only grows, so the loop ends; it takes one round more for each hop of a chain that was not loaded ahead. Children
//! reachable through instants can be loaded ahead by one recursive query: edges and instants change only in a commit.
//!
//! ## Whose idea
//!
//! States and their moves are OpenCrowbar's, with its known faults mended: its bulk update on ERROR moved rows without anybody
//! noticing, a retry had no precondition, a dead worker left TRANSITION for ever, and a node's death deleted runs that went on.

mod admission;
mod state;
mod step;
mod transition;
mod waiting;
mod world;

pub use admission::{
    AdmissionView, BudgetId, BudgetView, DeploymentView, LaneKey, LaneView, Limits, Moment,
    NodeView, OpenRun, Reason, StepView, Taken, admit, why_not,
};
pub use state::{StepState, UnknownState};
pub use step::{Cause, Count, LONGEST_BACKOFF, Progress, Step, UnknownCause, Why, backoff, count};
pub use transition::{
    BATCH, Broken, Change, Committed, Event, LOSSES, Refused, Stop, apply, apply_each,
};
pub use waiting::{Attempt, ENDING, Link, UnknownWait, Wait, struck, wait_of};
pub use world::{Child, Delta, Missing, Outcome, World};
