//! Which of the edits that were taken back are out of reach of redo.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0007_dropped.sql");

/// Applies `m0007_dropped.sql`.
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
