//! Scoped grants, names of sessions, API tokens of people and service accounts, and passwords.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0026_people.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0026_people"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
