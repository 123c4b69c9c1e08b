//! Queries for pages: bounded lists, each with an index, without locks.

mod admins;
mod admission;
mod audit;
mod export;
mod first_steps;
mod machines;
mod noderoles;
mod order;
mod overview;
mod runs;
mod steps;
mod targets;
mod values;
mod waiting;
mod workers;

pub use admins::admins;
pub use admission::admission_reasons;
pub use audit::{
    AuditActor, AuditFilter, AuditRow, audit, entry_exists, epoch, last_seal, seal_at, sealed,
    unsealed,
};
pub use export::{Stage, export_part};
pub use first_steps::{DEMO_CHANGE, FirstStepsRow, first_steps};
pub use machines::{
    CarriedFilter, CarriedRow, FactRow, LookFilter, LookRow, MAX_CARRIED, MachineRow, ReportRow,
    facts, looks, machine, node_detail_by_name, noderoles_of_node, reports,
};
pub use noderoles::{
    EdgeRow, NoderoleRow, RunningRow, children, noderole, open_run, parents, removal_state,
    retried_step,
};
pub use overview::{
    HourRow, Tally, blueprint_step_counts, deployment_step_counts, hours, policy_origin,
    step_counts, step_counts_except, tally,
};
pub use runs::{
    RunFilter, RunRow, noderole_deployment, run, run_deployment, run_documents, runs, runs_of_node,
    runs_of_step,
};
pub use steps::{
    DeploymentCounts, NodeFilter, NodeRow, StepRow, counts, local_nodes, node_liveness,
    node_step_counts, nodes, run_durations, step_names, step_states, steps_by_noderole, steps_of,
    unreached,
};
pub use targets::{TargetRow, blueprint_root, is_root, target, targets};
pub use values::{
    ResultFilter, ResultRow, SetRow, Setting, StepOf, node_results, run_input, sets, step_details,
};
pub use waiting::{
    AboveRow, InTheWay, LOOKED, PlaceRow, WaitingFilter, WaitingRow, WaitingRows, Whose, above,
    in_the_way, steps_with_names, waiting,
};
pub use workers::{WorkerFilter, WorkerRow, worker, worker_id_by_name, workers};

pub use crate::entity::run::Model as RunModel;
pub use crate::entity::step::Model as StepModel;
