//! Deployments with their noderoles, steps and values.

mod deployment;
mod noderoles;
mod steps;
mod values;

pub use crate::entity::NoderoleModel;
pub use deployment::{
    DeploymentRow, deployment_name, deployment_named, deployment_rows, removed_deployment,
    set_hold, set_priority, top,
};
pub use noderoles::{
    DeploymentModel, EdgeRow, NoderoleRow, RunningRow, children, noderole, open_run, parents,
    removal_state, retried_step,
};
pub use steps::{
    BoardStepRow, DeploymentCounts, StepFilter, StepListRow, StepRow, counts, failed_noderoles,
    list_steps, run_durations, step_names, step_states, steps_by_noderole, steps_of,
    unfinished_noderoles,
};
pub use values::{
    ResultFilter, ResultRow, SetRow, Setting, StepOf, node_results, run_input, sets, step_details,
};
