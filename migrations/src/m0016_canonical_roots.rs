//! Checks that the current root is canonical. From here on, the guard relies on it for every
//! parent.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0016_canonical_roots.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0016_canonical_roots"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
