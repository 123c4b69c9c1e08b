//! A deployment.

use sea_orm::entity::prelude::*;

/// Its row.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "deployment")]
pub struct Model {
    /// Which.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    /// The one above.
    pub parent: Option<Uuid>,
    /// Unique.
    pub name: String,
    /// Whether it is *system*.
    pub system: bool,
    /// The target that last changed it.
    pub head_no: i64,
}

/// How it is joined with others.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
