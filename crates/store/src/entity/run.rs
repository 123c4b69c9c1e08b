//! The table `run`, without inputs and results.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "run")]
pub struct Model {
    /// The attempt id, which is the fencing token.
    #[sea_orm(primary_key)]
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
    pub queued_at: TimeDateTimeWithTimeZone,
    /// When a worker leased it.
    pub started_at: Option<TimeDateTimeWithTimeZone>,
    pub ended_at: Option<TimeDateTimeWithTimeZone>,
    pub cancel_requested: bool,
    /// The reason of a failure.
    pub error: Option<String>,
    /// The size of its log.
    pub log_bytes: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
    #[sea_orm(
        belongs_to = "super::step::Entity",
        from = "Column::StepId",
        to = "super::step::Column::Id"
    )]
    Step,
    #[sea_orm(
        belongs_to = "super::node::Entity",
        from = "Column::NodeId",
        to = "super::node::Column::Id"
    )]
    Node,
    #[sea_orm(
        belongs_to = "super::worker::Entity",
        from = "Column::WorkerId",
        to = "super::worker::Column::Id"
    )]
    Worker,
}

impl Related<super::step::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Step.def()
    }
}

impl Related<super::node::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Node.def()
    }
}

impl Related<super::worker::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Worker.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
