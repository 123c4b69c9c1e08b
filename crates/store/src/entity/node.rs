//! The table `node`.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "node")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub fqdn: String,
    pub deployment_id: Uuid,
    /// Whether it is the phantom node of a deployment.
    pub phantom: bool,
    pub alive: bool,
    /// `false` in maintenance.
    pub available: bool,
    /// `none`, `local` or `ssh`.
    pub transport: String,
    /// The blueprint that removed it.
    pub removed_in: Option<i64>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
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
