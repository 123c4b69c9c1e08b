//! The annealer's rules: how a step's state moves ([`apply`]), and which steps may start
//! ([`admit`]).
//!
//! Both are pure. The database applies the same rules in SQL, row by row and under locks, and must
//! agree with this module. The simulator, the tests and the pending reasons run this code directly.
//! The states and moves come from OpenCrowbar. Gantry differs in four points: it reports every move
//! of a row, and a retry has a precondition. A step does not stay in TRANSITION after its worker is
//! lost. If a node dies, its runs are ended, not deleted.
//!
//! ```text
//!           parents missing           claimed                 succeeded
//!   BLOCKED <-------------- TODO ---------------> TRANSITION ------------> ACTIVE
//!      |    -------------->  ^                        |                       |
//!      |    join satisfied   |        retry           | failed, lost,         | re-run, node dead,
//!      |                     +-----------+            v canceled              v ERROR above it
//!      +--- kept result: ACTIVE at once  +--------- ERROR              TODO or BLOCKED
//! ```
//!
//! A failed check moves ACTIVE to TODO or ERROR, and a check that passes again moves that ERROR
//! back to ACTIVE ([`check_transition`]).
//!
//! PROPOSED marks the additions of a proposal. No step exists before its commit, so no step is
//! stored in that state.
//!
//! # Invariants after every change
//!
//! 1. `pending` equals a recount over all parents ([`count`]), in every state. It counts the
//!    parents that the join still lacks and the order-only parents that are still going to run.
//! 2. TODO has `pending = 0` and BLOCKED has `pending > 0`. So a step starts only if its join
//!    holds.
//! 3. ACTIVE means that the result of the step's current generation is applied.
//! 4. A destructive step whose result of this generation is applied is neither TODO nor in
//!    TRANSITION.
//! 5. An immediate step is ACTIVE only while its `pending` is 0: it has no result that could
//!    outlive its parents. With `pending = 0` it is ACTIVE, or TODO between two calls of a batch
//!    ([`BATCH`]). A step that becomes skipped while it runs ends its run first.
//!
//! The database also enforces invariants 2 and 4, and `applied <= generation`, with CHECK
//! constraints.

mod admission;
mod check;
mod pending;
mod state;
mod step;
mod transition;
mod world;

pub use admission::{
    AdmissionView, BudgetId, BudgetView, ClaimPlan, ConcurrencyGroupKey, ConcurrencyGroupLimit,
    DeploymentView, Limits, NodeView, OpenRun, Reason, StepView, Timestamp, admit, awaited_steps,
    unmet_rules,
};
pub use check::{CheckHistory, CheckedStep, check_transition};
pub use pending::{
    Attempt, Link, OVERDUE_GRACE, PendingReason, UnknownPendingReason, blocked_by_failure,
    pending_reason,
};
pub use state::{StepState, UnknownState};
pub use step::{
    Cause, Count, MAX_BACKOFF, Progress, RerunReason, Step, UnknownCause, backoff, count,
};
pub use transition::{
    BATCH, Change, Committed, Event, InvariantViolation, LOSSES, Refused, Stop, apply, apply_each,
};
pub use world::{Child, Delta, Missing, Outcome, World};
