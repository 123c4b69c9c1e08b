//! A run, without its input and result.

use sea_orm::entity::prelude::*;

/// Its row.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "run")]
pub struct Model {
    /// The attempt, and its fencing token.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// Of which step.
    pub step_id: Uuid,
    /// Where.
    pub node_id: Uuid,
    /// The generation that it carries out.
    pub generation: i64,
    /// Why it ran although it had run before.
    pub cause: Option<String>,
    /// Who asked for that.
    pub cause_by: Option<String>,
    /// Failures of its step before it that were retried.
    pub failures: i32,
    /// `queued`, `running` or `ended`.
    pub state: String,
    /// How it ended.
    pub outcome: Option<String>,
    /// Who has or had it.
    pub worker_id: Option<Uuid>,
    /// When it was claimed.
    pub queued_at: TimeDateTimeWithTimeZone,
    /// When a worker took it.
    pub started_at: Option<TimeDateTimeWithTimeZone>,
    /// When it ended.
    pub ended_at: Option<TimeDateTimeWithTimeZone>,
    /// Whether somebody asked to stop it.
    pub cancel_requested: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// Bytes of its log.
    pub log_bytes: i64,
}

/// How it is joined with others.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
    /// Of which step.
    #[sea_orm(
        belongs_to = "super::step::Entity",
        from = "Column::StepId",
        to = "super::step::Column::Id"
    )]
    Step,
    /// Where.
    #[sea_orm(
        belongs_to = "super::node::Entity",
        from = "Column::NodeId",
        to = "super::node::Column::Id"
    )]
    Node,
    /// Who has or had it.
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
