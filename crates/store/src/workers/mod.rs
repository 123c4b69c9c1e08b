//! Workers. Each start of a worker is a row.

mod drain;
mod list;
mod registration;

pub use drain::{DrainRow, lock_worker, set_drain};

pub use list::{WorkerFilter, WorkerRow, worker, worker_id_by_name, workers};
pub use registration::{
    NewWorker, Phase, WorkerId, confirm_worker, end_worker, ensure_worker, known_secrets,
    may_end_lost_runs, renew_worker, report_secrets,
};
