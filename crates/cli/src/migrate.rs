//! `gantry migrate`: creates or updates the database's tables, with the owner role.

use anyhow::{Context, Result};
use migrations::Roles;
use private_postgres::PROGRAM_ROLES;

use crate::database;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Database URL with the owner role, `postgres://...`
    #[arg(long, env = "GANTRY_OWNER_URL", hide_env_values = true)]
    owner_url: Option<String>,
    /// Database role of servers
    #[arg(long, env = "GANTRY_SERVER_ROLE", default_value = migrations::SERVER_ROLE)]
    server_role: String,
    /// Database role of workers
    #[arg(long, env = "GANTRY_WORKER_ROLE", default_value = migrations::WORKER_ROLE)]
    worker_role: String,
    /// Database role of monitoring, which only reads
    #[arg(long, env = "GANTRY_METRICS_ROLE", default_value = migrations::METRICS_ROLE)]
    metrics_role: String,
    /// Print the SQL that creates the four roles and the database, and exit
    #[arg(long)]
    print_setup: bool,
    /// Mark the database as restored from a backup: all earlier reviews and runs become void
    #[arg(long)]
    restored: bool,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    if arguments.print_setup {
        let roles = [&arguments.server_role, &arguments.worker_role, &arguments.metrics_role]
            .map(String::as_str);
        println!("{}", private_postgres::setup_sql(roles));
        return Ok(());
    }
    let url = owner_url(arguments.owner_url)?;
    let roles = Roles {
        server: arguments.server_role,
        worker: arguments.worker_role,
        metrics: arguments.metrics_role,
    };
    migrate(&url, &roles).await?;
    if arguments.restored {
        let epoch = raise_epoch(&url).await?;
        println!("The database is now in epoch {epoch}. Submit open changes again.");
    }
    println!("The database is up to date.");
    Ok(())
}

/// The owner's URL. The error explains how to get one.
pub fn owner_url(given: Option<String>) -> Result<String> {
    given.with_context(|| {
        format!(
            "GANTRY_OWNER_URL is not set, and migrations need the owner role. As a superuser of \
             the database, run\n\n{}\nThen set GANTRY_OWNER_URL, and the DATABASE_URL of each \
             program, to the URL of its role.",
            private_postgres::setup_sql(PROGRAM_ROLES)
        )
    })
}

/// The role that the URL in a variable connects as.
pub fn role_of(url: &str, variable: &str) -> Result<String> {
    Ok(database::address(url, variable)?.get_username().to_owned())
}

pub async fn migrate(url: &str, roles: &Roles) -> Result<()> {
    database::address(url, "GANTRY_OWNER_URL")?;
    migrations::migrate_url(url, roles).await.context("Cannot migrate the database")
}

async fn raise_epoch(url: &str) -> Result<i64> {
    let pool = sqlx::PgPool::connect(url).await.context("The database does not answer")?;
    let (epoch,): (i64,) = sqlx::query_as("SELECT raise_epoch()").fetch_one(&pool).await?;
    pool.close().await;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_read_from_url() {
        assert_eq!(
            role_of("postgres://shop_app:secret@db.example.com/shop", "DATABASE_URL").unwrap(),
            "shop_app"
        );
        assert!(role_of("http://db.example.com", "DATABASE_URL").is_err());
    }
}
