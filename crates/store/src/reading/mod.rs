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
pub use admission::{admission_view, admission_view_of};
pub use audit::{
    AuditActor, AuditFilter, AuditRow, audit, epoch, is_entry, last_seal, seal_at, sealed, unsealed,
};
pub use export::{Stage, export_part};
pub use first_steps::{DEMO_CHANGE, FirstStepsRow, first_steps};
pub use machines::{
    CarriedFilter, CarriedRow, FactRow, LookFilter, LookRow, MAX_CARRIED, MachineRow, ReportRow,
    facts, looks, machine, machine_named, noderoles_on, reports,
};
pub use noderoles::{EdgeRow, NoderoleRow, RunningRow, children, noderole, open_run, parents};
pub use overview::{
    HourRow, Tally, all_steps, hours, policy_made, steps_beyond, steps_in, steps_of_target, tally,
};
pub use runs::{
    RunFilter, RunRow, place_of_noderole, place_of_run, run, run_documents, runs, runs_of_node,
    runs_of_step,
};
pub use steps::{
    DeploymentCounts, NodeFilter, NodeRow, StepRow, alive_nodes, counts, durations_of, local_nodes,
    node_counts, nodes, states_of, step_names, steps_by_noderole, steps_of, unreached,
};
pub use targets::{TargetRow, is_root, root_of, target, targets};
pub use values::{
    ResultFilter, ResultRow, SetRow, Setting, StepOf, results_of, run_given, sets, steps_of_values,
};
pub use waiting::{
    AboveRow, InTheWay, LOOKED, PlaceRow, WaitingFilter, WaitingRow, WaitingRows, Whose, above,
    in_the_way, step_places, waiting,
};
pub use workers::{WorkerFilter, WorkerRow, worker, worker_named, workers};

pub use crate::entity::run::Model as RunModel;
pub use crate::entity::step::Model as StepModel;
