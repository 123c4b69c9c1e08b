//! A worker process.

use sea_orm::entity::prelude::*;

/// Its row.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "worker")]
pub struct Model {
    /// Fresh at each start.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    /// For people.
    pub name: String,
}

/// How it is joined with others.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
