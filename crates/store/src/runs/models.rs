//! The columns of runs that pages show.

use sea_orm::{DerivePartialModel, EntityTrait, JoinType, QuerySelect, Select};
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

/// Steps, joined with their noderoles and nodes.
pub(crate) fn joined_steps() -> Select<step::Entity> {
    step::Entity::find()
        .join(JoinType::InnerJoin, join(step::Column::NoderoleId, noderole::Column::Id))
        .join(JoinType::InnerJoin, join(step::Column::NodeId, node::Column::Id))
}
