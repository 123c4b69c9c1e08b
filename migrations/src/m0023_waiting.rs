//! Pending steps in their order, manual priorities, and who requested a re-run.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0023_waiting.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0023_waiting"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
