//! The credential with which a transaction acts, and passwords that the database can only verify.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0043_credentials.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0043_credentials"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
