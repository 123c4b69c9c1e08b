//! The table `step`, with the columns that pages show.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "step")]
pub struct Model {
    /// Derived from noderole and action.
    #[sea_orm(primary_key, auto_increment = false)]
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
    pub output: Option<Json>,
    /// The run that produced the output.
    pub output_run: Option<i64>,
    /// The last change of its state.
    pub since: TimeDateTimeWithTimeZone,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
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
