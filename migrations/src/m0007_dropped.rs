//! Undone edits that redo skips.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0007_dropped.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0007_dropped"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
