//! A step, as far as pages show it.

use sea_orm::entity::prelude::*;

/// Its row.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "step")]
pub struct Model {
    /// Derived from noderole and action.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    /// Whose.
    pub noderole_id: Uuid,
    /// Where.
    pub node_id: Uuid,
    /// Which action.
    pub action: String,
    /// Topological.
    pub rank: i32,
    /// Whether it runs once for each generation.
    pub destructive: bool,
    /// The target that last changed or re-ran it.
    pub generation: i64,
    /// Its state.
    pub state: String,
    /// Why it was left out.
    pub skipped: Option<String>,
    /// Parents that its join waits for.
    pub pending: i32,
    /// The target whose wish it has applied; 0: none.
    pub applied_generation: i64,
    /// Failures since it last succeeded.
    pub failures: i32,
    /// Why a re-run is due.
    pub cause: Option<String>,
    /// Who asked for it.
    pub cause_by: Option<String>,
    /// Failures that are retried.
    pub retries: i32,
    /// Seconds before the first retry.
    pub backoff_s: i32,
    /// Seconds that a run may take.
    pub timeout_s: i32,
    /// Higher first.
    pub priority: i32,
    /// Whether an ERROR of it stops its whole node.
    pub freezes_node: bool,
    /// Why it is in ERROR.
    pub error: Option<String>,
    /// What its last success added.
    pub wall: Option<Json>,
    /// The run that this was.
    pub wall_run: Option<i64>,
    /// When its state changed.
    pub since: TimeDateTimeWithTimeZone,
}

/// How it is joined with others.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
    /// Whose it is.
    #[sea_orm(
        belongs_to = "super::noderole::Entity",
        from = "Column::NoderoleId",
        to = "super::noderole::Column::Id"
    )]
    Noderole,
}

impl Related<super::noderole::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Noderole.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
