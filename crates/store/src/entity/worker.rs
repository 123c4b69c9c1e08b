//! The table `worker`.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "worker")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub name: String,
    pub phase: String,
    pub capacity: i32,
    pub jigs: Vec<String>,
    pub host: String,
    pub pid: Option<i32>,
    pub version: String,
    pub started_at: TimeDateTimeWithTimeZone,
    pub last_heartbeat_at: TimeDateTimeWithTimeZone,
    pub lease_until: TimeDateTimeWithTimeZone,
    pub reason: Option<String>,
    pub secrets: Json,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
