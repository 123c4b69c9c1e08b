//! # Claim, lease, finish, janitor: step changes between commits
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

mod claim;
mod event;
mod facts;
mod job;
mod kept;
mod locks;
mod log;
mod looking;
mod queue;
mod reporting;
mod transition;
mod worker;
mod world;

pub use claim::{Claimed, claim_runs};
pub use event::{CHANNEL_CANCEL, CHANNEL_EVENT, CHANNEL_LOG, CHANNEL_RUN, CHANNEL_TODO};
pub use facts::{Witness, ensure_facts};
pub use job::{
    Approval, Before, Given, KeptResult, RunFacts, RunRows, Seen, SeenStep, SignedTarget,
    addresses, approvals, object_body, record_inputs, run_details, signed_blueprints,
    stored_results, visible_steps,
};
pub use locks::lock_apply_shared;
pub use log::{LogPiece, append_log, read_log_range};
pub use looking::{
    AsOf, DueNode, Looked, due_nodes, orphaned_attempts, reached_addresses, record_health_check,
};
pub use queue::{Leased, Renewed, lease_runs, renew_runs};
pub use reporting::{MOST_REPORTS, Report, Reported, Reporter, append_report};
pub use transition::{
    ChangeError, Finished, Overdue, OverdueRun, Queued, RunEnd, cancel_run, cancel_superseded,
    commit_steps, end_overdue_run, end_removed_runs, finish_cancel, finish_run, finish_runs,
    overdue_runs, request_cancel, request_retry, rerun_step, retry_step, run_exists,
    set_node_alive, set_node_available, settle_leftovers,
};
pub use worker::{
    NewWorker, Phase, WorkerId, confirm_worker, end_worker, ensure_worker, known_secrets,
    renew_worker, report_secrets,
};
