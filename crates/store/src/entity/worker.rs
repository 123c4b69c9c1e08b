//! The table `worker`.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "worker")]
pub struct Model {
    /// New at each start.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    /// For people. Unique.
    pub name: String,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
