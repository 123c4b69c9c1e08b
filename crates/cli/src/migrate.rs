//! `gantry migrate`: brings a database up to date, as its owner.

use anyhow::{Context, Result};

use crate::database;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The database as its owner role, `postgres://...`
    #[arg(long, env = "GANTRY_OWNER_URL", hide_env_values = true)]
    owner_url: Option<String>,
    /// The role that server and workers use; it gets its rights here
    #[arg(long, env = "GANTRY_APP_ROLE", default_value = migrations::APP_ROLE)]
    app_role: String,
    /// Print the SQL that makes the roles and the database, and do nothing
    #[arg(long)]
    print_setup: bool,
    /// Say that the database was just restored from a backup: every review and run from before is void
    #[arg(long)]
    restored: bool,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    if arguments.print_setup {
        println!("{}", private_postgres::set_up_sql());
        return Ok(());
    }
    let url = owner_url(arguments.owner_url)?;
    migrate(&url, &arguments.app_role).await?;
    if arguments.restored {
        let epoch = raise_epoch(&url).await?;
        println!("This is epoch {epoch} now: submit open changes again.");
    }
    println!("The database is up to date.");
    Ok(())
}

/// The owner's URL, or how to get one.
pub fn owner_url(given: Option<String>) -> Result<String> {
    given.with_context(|| {
        format!(
            "GANTRY_OWNER_URL is not set: migrations need the owner role. As a superuser of the database, run\n\n{}\nand set GANTRY_OWNER_URL and DATABASE_URL to the two roles",
            private_postgres::set_up_sql()
        )
    })
}

/// The role that a URL connects as.
pub fn role_of(url: &str) -> Result<String> {
    Ok(database::address(url, "DATABASE_URL")?.get_username().to_owned())
}

pub async fn migrate(url: &str, app_role: &str) -> Result<()> {
    database::address(url, "GANTRY_OWNER_URL")?;
    migrations::migrate_url(url, app_role).await.context("the database could not be brought up to date")
}

async fn raise_epoch(url: &str) -> Result<i64> {
    let pool = sqlx::PgPool::connect(url).await.context("the database does not answer")?;
    let (epoch,): (i64,) = sqlx::query_as("SELECT raise_epoch()").fetch_one(&pool).await?;
    pool.close().await;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_taken_from_the_url() {
        assert_eq!(role_of("postgres://shop_app:secret@db.example.com/shop").unwrap(), "shop_app");
        assert!(role_of("http://db.example.com").is_err());
    }
}
