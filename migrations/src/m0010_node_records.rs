//! The folder of a local node as a column, so that the database prevents overlaps.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0010_node_records.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0010_node_records"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
