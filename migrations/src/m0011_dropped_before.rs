//! Marks edits from before m0007 that redo skips.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0011_dropped_before.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0011_dropped_before"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
