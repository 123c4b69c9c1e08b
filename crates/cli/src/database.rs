//! Checks of the database before a command uses it.
//!
//! A wrong URL or password, or tables of another version, would otherwise cause a failed statement
//! in the first run. The owner's role would not show up at all, although it can disable all
//! triggers. So commands check the database at the start, and errors say how to solve the problem.
//!
//! No error contains a database URL, because it contains the password. [`open_with_retry`] waits
//! for an unavailable database; all other commands fail at once.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use engine::reach::{Database, Policy};
use migrations::{RolePurpose, SchemaStatus};
use sqlx::postgres::PgConnectOptions;
use store::{Connecting, Store};

/// Interval between attempts to reach an unavailable database.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Reasons why a database can't be used.
enum OpenError {
    /// Temporary: the database does not answer or is starting.
    Temporary(anyhow::Error),
    /// Permanent: a person must change something.
    Permanent(anyhow::Error),
}

/// Database role that a command connects with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The owner of the tables.
    Owner,
    /// The role of the server or of the workers.
    Program(RolePurpose),
}

impl Role {
    pub const SERVER: Self = Self::Program(RolePurpose::Server);
    pub const WORKER: Self = Self::Program(RolePurpose::Worker);

    fn variable(self) -> &'static str {
        match self {
            Self::Owner => OWNER_URL,
            Self::Program(_) => "DATABASE_URL",
        }
    }
}

pub const OWNER_URL: &str = "GANTRY_OWNER_URL";

/// The command needs a database URL, and none is set.
#[derive(Debug)]
pub struct NoUrl;

impl std::error::Error for NoUrl {}

impl std::fmt::Display for NoUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "No database URL is set. Set DATABASE_URL, or use --database-url. To start everything \
             on one machine with a database of its own, run `gantry up`.",
        )
    }
}

/// Opens the database with this role. Fails if it is unavailable or has unexpected tables.
pub async fn open(url: &str, role: Role) -> Result<Store> {
    let (store, options) = create_store(url, role)?;
    match check_schema(&store, &options, role).await {
        Ok(()) => Ok(store),
        Err(OpenError::Temporary(error) | OpenError::Permanent(error)) => Err(error),
    }
}

/// Like [`open`], but waits while the database is unavailable.
pub async fn open_with_retry(url: &str, role: Role) -> Result<Store> {
    let (store, options) = create_store(url, role)?;
    loop {
        match check_schema(&store, &options, role).await {
            Ok(()) => return Ok(store),
            Err(OpenError::Permanent(error)) => return Err(error),
            Err(OpenError::Temporary(error)) => {
                tracing::warn!("waiting for the database: {error:#}")
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

fn create_store(url: &str, role: Role) -> Result<(Store, PgConnectOptions)> {
    let variable = role.variable();
    let options = address(url, variable)?;
    let store = Store::open(&Connecting::to(url)).with_context(|| format!("Invalid {variable}"))?;
    Ok((store, options))
}

/// Parses a database URL. `variable` is its environment variable, for errors.
pub fn address(url: &str, variable: &str) -> Result<PgConnectOptions> {
    if url.is_empty() {
        bail!(
            "{variable} is empty. Set it to the URL of a PostgreSQL database: \
             postgres://ROLE:PASSWORD@HOST/DATABASE"
        );
    }
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        bail!(
            "{variable} is not the URL of a PostgreSQL database. It must begin with postgres://."
        );
    }
    url.parse().with_context(|| format!("{variable} is not a valid URL"))
}

async fn check_schema(
    store: &Store,
    options: &PgConnectOptions,
    role: Role,
) -> Result<(), OpenError> {
    let text = |error| explained(error, options);
    // The owner of a table can disable its triggers.
    let owns_tables: bool = sqlx::query_scalar(
        "SELECT coalesce(bool_or(pg_has_role(relowner, 'USAGE')), false)
         FROM pg_class WHERE oid = to_regclass('seaql_migrations')",
    )
    .fetch_one(store.pool())
    .await
    .map_err(text)?;
    let name = options.get_username();
    if let (true, Role::Program(purpose)) = (owns_tables, role) {
        return Err(OpenError::Permanent(anyhow!(
            "DATABASE_URL connects as {name}, which owns Gantry's tables and could disable their \
             guards. Set DATABASE_URL to the URL of the {}'s role, and GANTRY_OWNER_URL to this \
             one. Only `gantry migrate`, `gantry admin` and `gantry up` use the owner.",
            purpose.as_str()
        )));
    }
    let unusable = |reason: &str| Err(OpenError::Permanent(anyhow!("{reason}")));
    match migrations::schema_status(store.pool())
        .await
        .map_err(|error| OpenError::Permanent(error.into()))?
    {
        SchemaStatus::Current => fits(store, name, owns_tables, role).await,
        SchemaStatus::Empty => unusable(
            "The database has no tables of Gantry that this role can read. Run `gantry migrate` as \
             the database's owner. Then connect as the role that it grants rights to (by default \
             gantry_server or gantry_worker).",
        ),
        SchemaStatus::Unsupported => unusable(
            "The database has the tables of an unreleased version of Gantry, which cannot be \
             upgraded. Run `gantry migrate` on a new, empty database.",
        ),
        SchemaStatus::Behind => unusable(
            "The database has the tables of an older Gantry. Run `gantry migrate` of this version \
             as the owner.",
        ),
        SchemaStatus::Ahead => {
            unusable("The database has the tables of a newer Gantry. Use that version.")
        }
        SchemaStatus::GuardsDiffer => unusable(
            "The guards of the database are not those of this Gantry version. Run `gantry migrate` \
             of the version that you want to use.",
        ),
    }
}

/// The rules for node addresses with this database. `local` allows nodes on this host.
pub fn reach(store: &Store, local: bool) -> Policy {
    let (host, port) =
        worker::node::connection::Dialer::for_pool(store.pool(), local).database.unzip();
    let database = host.zip(port).map(|(host, port)| Database {
        // Workers resolve host names, immediately before they connect.
        addresses: host.parse().into_iter().collect(),
        host,
        port,
    });
    Policy { allow_local: local, own: store::server_addresses::host_addresses(), database }
}

/// Rejects a role that belongs to another program.
async fn fits(store: &Store, name: &str, owns_tables: bool, role: Role) -> Result<(), OpenError> {
    let wrong = |reason: String| Err(OpenError::Permanent(anyhow!("{reason}")));
    let Role::Program(purpose) = role else {
        return match owns_tables {
            true => Ok(()),
            false => wrong(format!(
                "GANTRY_OWNER_URL connects as {name}, which does not own Gantry's tables. Set it \
                 to the URL of their owner."
            )),
        };
    };
    let of = async |purpose: RolePurpose| {
        let role = migrations::database_role(store.pool(), purpose).await;
        role.map_err(|error| OpenError::Permanent(error.into()))
    };
    let Some(own) = of(purpose).await? else {
        return wrong(
            "No migration has granted rights to roles. Run `gantry migrate` as the database's \
             owner."
                .to_owned(),
        );
    };
    let program = purpose.as_str();
    if !own.is_own {
        return wrong(format!(
            "DATABASE_URL connects as {name}, which is not the {program}'s role. Set DATABASE_URL \
             of this command to the URL of {}.",
            own.name
        ));
    }
    for other in
        [RolePurpose::Server, RolePurpose::Worker].into_iter().filter(|other| *other != purpose)
    {
        if of(other).await?.is_some_and(|role| role.is_own) {
            return wrong(format!(
                "DATABASE_URL connects as {name}, which also has the rights of the {}'s role. Use \
                 a separate role for each program.",
                other.as_str()
            ));
        }
    }
    Ok(())
}

/// Explains a failed connection and how to solve the problem.
fn explained(error: sqlx::Error, options: &PgConnectOptions) -> OpenError {
    let role = options.get_username();
    let location = match options.get_socket() {
        Some(folder) => format!("in the folder {}", folder.display()),
        None => format!("at {}:{}", options.get_host(), options.get_port()),
    };
    let database = options.get_database().unwrap_or(role);
    let code = error.as_database_error().and_then(|refused| refused.code()).unwrap_or_default();
    let message = match &*code {
        "28P01" => format!("The database rejects the password of role {role}"),
        "28000" => {
            format!(
                "The database does not accept role {role} from this host (check its pg_hba.conf)"
            )
        }
        "3D000" => format!(
            "Database {database} does not exist {location} (`gantry migrate --print-setup` prints \
             the SQL that creates one)"
        ),
        "42501" => {
            format!(
                "Role {role} cannot connect to {database} (`gantry migrate --print-setup` prints \
                 the SQL that allows it)"
            )
        }
        // The database is starting, stopping or out of connections.
        "57P01" | "57P02" | "57P03" | "53300" => {
            format!("The database {location} accepts no connections at the moment")
        }
        _ => format!("The database {location} does not answer"),
    };
    let is_permanent = ["28", "3D", "42"].iter().any(|class| code.starts_with(class));
    let error = anyhow::Error::new(error).context(message);
    if is_permanent { OpenError::Permanent(error) } else { OpenError::Temporary(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_postgresql_urls_are_accepted() {
        for (wrong, word) in [
            ("", "is empty"),
            ("mysql://db/shop", "postgres://"),
            ("db.example.com", "postgres://"),
        ] {
            let error = format!("{:#}", address(wrong, "DATABASE_URL").unwrap_err());
            assert!(error.contains(word) && error.starts_with("DATABASE_URL"), "{error}");
        }
        let error = format!(
            "{:#}",
            address("postgres://a:geheim@h:notaport/d", "DATABASE_URL").unwrap_err()
        );
        assert!(!error.contains("geheim"), "{error}");
        let socket_options =
            address("postgres://a@localhost/d?host=/srv/gantry/socket", "DATABASE_URL").unwrap();
        let (OpenError::Temporary(error) | OpenError::Permanent(error)) =
            explained(sqlx::Error::PoolTimedOut, &socket_options);
        assert!(
            error.to_string().contains("in the folder /srv/gantry/socket does not answer"),
            "{error}"
        );
        assert_eq!(
            address("postgresql://shop@db/x", "DATABASE_URL").unwrap().get_username(),
            "shop"
        );
    }
}
