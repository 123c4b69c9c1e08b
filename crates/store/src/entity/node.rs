//! A node.

use sea_orm::entity::prelude::*;

/// Its row.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "node")]
pub struct Model {
    /// Which.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    /// Its name.
    pub fqdn: String,
    /// Where it belongs.
    pub deployment_id: Uuid,
    /// Whether it stands for a deployment.
    pub phantom: bool,
    /// Whether it is up.
    pub alive: bool,
    /// Whether steps may start on it.
    pub available: bool,
    /// `none`, `local` or `ssh`.
    pub transport: String,
    /// Set when it is gone.
    pub removed_in: Option<i64>,
}

/// How it is joined with others.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
    /// Where it belongs.
    #[sea_orm(
        belongs_to = "super::deployment::Entity",
        from = "Column::DeploymentId",
        to = "super::deployment::Column::Id"
    )]
    Deployment,
}

impl Related<super::deployment::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Deployment.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
