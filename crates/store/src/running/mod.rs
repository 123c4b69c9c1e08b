//! # Claim, lease, finish, janitor: how steps move between commits
//!
//! The `run` table is the queue: a queued row is a queue entry, an open row is an attempt under way, and the row's number is the
//! attempt's fencing token. Nothing about running lives anywhere else, so a worker, a server or all of them may die at any moment.
//!
//! Invariants:
//! * claims are serialised by the advisory lock CLAIM ([`claim_runs`]): limits count what runs, and two that count at once overshoot;
//! * every transaction here takes APPLY shared before it locks a row, and rows in the order run, steps by (rank, id), so commits
//!   (which take APPLY exclusively) never meet half a transition and nobody waits in a circle;
//! * a run ends exactly once, in the transaction that moves its step and everything that follows from it; whoever comes later is
//!   *late*: its result is kept with its run and applied nowhere;
//! * what a step becomes is decided by [`engine::anneal`] alone; this module loads what that asks for and writes what it answers;
//! * events and notifications leave with the transaction, never before it.

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
    Approval, Given, KeptResult, RunFacts, RunRows, Seen, SeenStep, SignedTarget, addresses,
    approvals, kept_results, object_body, record_inputs, run_facts, seen_steps, signed_targets,
};
pub use locks::share_apply;
pub use log::{LogPiece, append_log, read_log, read_log_span};
pub use looking::{AsOf, DueNode, Looked, due_nodes, reached_addresses, record_look, stray_runs};
pub use queue::{Leased, Renewed, lease_runs, renew_runs};
pub use reporting::{MOST_REPORTS, Report, Reported, Reporter, append_report};
pub use transition::{
    ChangeError, Finished, Overdue, OverdueRun, Queued, RunEnd, ask_to_cancel, ask_to_retry,
    cancel_run, commit_steps, end_cancelled, end_overdue_run, end_removed, end_superseded,
    finish_run, finish_runs, overdue_runs, rerun_step, retry_step, run_is_there, set_node_alive,
    set_node_available, settle_leftovers,
};
pub use worker::{
    Hello, Phase, WorkerId, bye, confirm_worker, ensure_worker, known_secrets, renew_worker,
    report_secrets,
};
