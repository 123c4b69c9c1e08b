//! MAC addresses in one spelling, and indexes to find the node of an address.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0025_machines_once.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0025_machines_once"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
