//! The columns of runs and steps that pages show.

use sea_orm::{DerivePartialModel, EntityTrait, JoinType, QuerySelect, Select};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::entity::{join, node, noderole, run, step};

/// A run, without its input and result.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "run::Entity")]
pub struct RunModel {
    /// The attempt id, which is the fencing token.
    pub id: i64,
    pub step_id: Uuid,
    pub node_id: Uuid,
    /// The generation of the step that it executes.
    pub generation: i64,
    /// The cause of a re-run.
    pub cause: Option<String>,
    /// The person who requested the re-run.
    pub cause_by: Option<String>,
    /// The number of retried failures of its step before it.
    pub failures: i32,
    /// `queued`, `running` or `ended`.
    pub state: String,
    pub outcome: Option<String>,
    /// The worker that leases or leased it.
    pub worker_id: Option<Uuid>,
    pub queued_at: OffsetDateTime,
    /// When a worker leased it.
    pub started_at: Option<OffsetDateTime>,
    pub ended_at: Option<OffsetDateTime>,
    pub cancel_requested: bool,
    /// The reason of a failure.
    pub error: Option<String>,
    /// The size of its log.
    pub log_bytes: i64,
}

/// A step.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct StepModel {
    /// Derived from noderole and action.
    pub id: Uuid,
    pub noderole_id: Uuid,
    pub node_id: Uuid,
    pub action: String,
    /// The longest path from a root.
    pub rank: i32,
    /// Whether it runs once per generation.
    pub destructive: bool,
    /// The blueprint that last changed or re-ran it.
    pub generation: i64,
    pub state: String,
    /// The reason why it is skipped.
    pub skipped: Option<String>,
    /// The number of parents that its join waits for.
    pub pending: i32,
    /// The generation whose result is applied. 0: none.
    pub applied_generation: i64,
    /// Failures since its last success.
    pub failures: i32,
    /// The cause of a due re-run.
    pub cause: Option<String>,
    /// The person who requested the re-run.
    pub cause_by: Option<String>,
    /// The maximum number of retries.
    pub retries: i32,
    /// Seconds before the first retry.
    pub backoff_s: i32,
    /// The time limit of a run in seconds.
    pub timeout_s: i32,
    /// Higher first.
    pub priority: i32,
    /// Whether its ERROR blocks its whole node.
    pub freezes_node: bool,
    /// The reason of an ERROR.
    pub error: Option<String>,
    /// The output of its last successful run.
    pub output: Option<Value>,
    /// The run that produced the output.
    pub output_run: Option<i64>,
    /// The last change of its state.
    pub since: OffsetDateTime,
}

/// Steps, joined with their noderoles and nodes.
pub(crate) fn joined_steps() -> Select<step::Entity> {
    step::Entity::find()
        .join(JoinType::InnerJoin, join(step::Column::NoderoleId, noderole::Column::Id))
        .join(JoinType::InnerJoin, join(step::Column::NodeId, node::Column::Id))
}
