//! An index of reviews by author.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0009_own_reviews.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0009_own_reviews"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
