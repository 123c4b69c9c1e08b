//! # Claim, lease, finish, reaper: step changes between commits
//!
//! The `run` table is the queue. A queued row is a queue entry, an open row is an attempt, and its
//! number is the attempt's fencing token. All state about runs is in the database, so workers and
//! servers may crash at any time.
//!
//! Invariants:
//! * The advisory lock CLAIM serializes claims ([`claim_runs`]). Limits count running runs, and two
//!   concurrent counts would exceed them.
//! * Every transaction here takes APPLY shared before it locks a row, and rows in the order run,
//!   steps by (rank, id). So commits, which take APPLY exclusively, never see half a transition,
//!   and deadlocks are impossible.
//! * A run ends once, in the transaction that changes its step and everything that follows. A later
//!   end is *late*: its result is stored with the run and not applied.
//! * Only [`engine::anneal`] decides the states of steps. This module loads its input and writes
//!   its outcome.
//! * Events and notifications are sent with the commit of the transaction, never earlier.

mod admission;
mod change_error;
mod checks;
mod claim;
mod counts;
mod details;
mod facts;
mod inputs;
mod leases;
mod list;
mod log;
mod models;
mod pending;
mod results;
mod rollout;
mod transition;
mod world;

pub use crate::entity::StepModel;
pub use admission::admission_reasons;
pub use change_error::ChangeError;
pub use checks::{
    CheckEffect, CheckResult, DueCheck, MAX_CHECK_DETAIL, RoleCheckRow, check_obstacle,
    lease_checks, record_check, return_check, role_check,
};
pub use claim::{Claimed, claim_runs};
pub(crate) use counts::STATE_COUNTS;
pub use counts::{
    HourRow, RoleCountsRow, StateCounts, Tally, blueprint_step_counts, deployment_step_counts,
    hours, role_step_counts_except, step_counts, tally,
};
pub use details::{
    Approval, Before, NewInput, RunFacts, RunRows, SignedBlueprint, StoredResult, VisibleStep,
    VisibleStepData, addresses, approvals, record_inputs, run_details, signed_blueprints,
    stored_results, visible_steps,
};
pub use facts::{FactSource, store_facts};
pub use inputs::{
    ChangedInput, ComparedInput, InputFinding, changed_inputs, pass_on_changed_inputs,
    settle_input, steps_not_active,
};
pub use leases::{Adopted, Leased, Renewed, adopt_run, lease_runs, renew_runs};
#[cfg(test)]
pub(crate) use list::run_query;
pub use list::{
    RunFilter, RunRow, noderole_deployment, run, run_deployment, run_documents, runs, runs_of_node,
    runs_of_step,
};
pub use log::{LogPiece, LogPosition, append_log, read_log_range};
pub use models::RunModel;
pub(crate) use models::joined_steps;
pub use pending::{
    AboveRow, MAX_STEPS_READ, NamedStepRow, PendingFilter, PendingRow, PendingRows, PendingScope,
    UnappliedSteps, above, pending_steps, steps_with_names, unapplied_steps,
};
pub use rollout::{
    FailedRow, RunCounts, TimelineRow, WaveRow, failed_in, failed_steps, run_counts, timeline,
    unfinished, waves,
};
pub(crate) use transition::{ConnectionResult, Expected, change_node_alive};
pub use transition::{
    Finished, Overdue, OverdueRun, Queued, RunEnd, cancel_run, cancel_superseded, commit_steps,
    end_overdue_run, end_removed_runs, finish_cancel, finish_run, finish_runs, overdue_runs,
    request_cancel, request_retry, rerun_step, retry_step, run_exists, set_node_alive,
    set_node_maintenance, settle_leftovers,
};
