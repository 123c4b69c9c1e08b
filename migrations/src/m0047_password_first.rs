//! Sessions that began with an admin's link act for no one until they have a password.

use sea_orm_migration::prelude::*;

pub(crate) const SQL: &str = include_str!("m0047_password_first.sql");

#[derive(Debug)]
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0047_password_first"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SQL).await?;
        Ok(())
    }
}
