//! The database that a command is to work on, looked at before anything is done with it.
//!
//! *What for.* A wrong address, a password that is not taken, tables of another version and the owner's role in place of the
//! program's all come out somewhere: as a failed statement in the middle of the first run, or, worst, not at all, for the owner
//! may switch off every guard. So each is told at the start, with what to do.
//!
//! *Invariants.* Nothing here says an address: it has the password in it. Whoever starts while the database is away and can wait
//! ([`open_patiently`]) waits; everybody else is told at once.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use engine::reach::{Database, Policy};
use migrations::{Purpose, Standing};
use sqlx::postgres::PgConnectOptions;
use store::{Connecting, Store};

/// How often a database that is away is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// Why a database is of no use as it is.
enum Trouble {
    /// It may be back: nobody answers, or it is starting.
    Away(anyhow::Error),
    /// People have to do something.
    Unfit(anyhow::Error),
}

/// Who a command connects as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The owner of the tables.
    Owner,
    /// The role of the server or of the workers.
    Program(Purpose),
}

impl Role {
    /// The server's role.
    pub const SERVER: Self = Self::Program(Purpose::Server);
    /// The workers' role.
    pub const WORKER: Self = Self::Program(Purpose::Worker);

    fn variable(self) -> &'static str {
        match self {
            Self::Owner => OWNER_URL,
            Self::Program(_) => "DATABASE_URL",
        }
    }
}

/// The variable with the owner's address.
pub const OWNER_URL: &str = "GANTRY_OWNER_URL";

/// The database as this role, if it is available, is ours, and has the tables of this build.
pub async fn open(url: &str, role: Role) -> Result<Store> {
    let (store, options) = unopened(url, role)?;
    match look(&store, &options, role).await {
        Ok(()) => Ok(store),
        Err(Trouble::Away(why) | Trouble::Unfit(why)) => Err(why),
    }
}

/// The same, for a program that may wait until it is available.
pub async fn open_patiently(url: &str, role: Role) -> Result<Store> {
    let (store, options) = unopened(url, role)?;
    loop {
        match look(&store, &options, role).await {
            Ok(()) => return Ok(store),
            Err(Trouble::Unfit(why)) => return Err(why),
            Err(Trouble::Away(why)) => tracing::warn!("waiting: {why:#}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn unopened(url: &str, role: Role) -> Result<(Store, PgConnectOptions)> {
    let variable = role.variable();
    let options = address(url, variable)?;
    let store =
        Store::open(&Connecting::to(url)).with_context(|| format!("{variable} can't be used"))?;
    Ok((store, options))
}

/// What an address says, taken from the variable of that name.
pub fn address(url: &str, variable: &str) -> Result<PgConnectOptions> {
    if url.is_empty() {
        bail!(
            "{variable} is empty: give the address of a PostgreSQL database, postgres://ROLE:PASSWORD@HOST/DATABASE"
        );
    }
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        bail!("{variable} is no address of a PostgreSQL database: it begins with postgres://");
    }
    url.parse().with_context(|| format!("{variable} can't be read as an address"))
}

async fn look(store: &Store, options: &PgConnectOptions, role: Role) -> Result<(), Trouble> {
    let said = |error| told(error, options);
    // Whoever may change what a table is may switch off what guards it.
    let owns: bool = sqlx::query_scalar(
        "SELECT coalesce(bool_or(pg_has_role(relowner, 'USAGE')), false)
         FROM pg_class WHERE oid = to_regclass('seaql_migrations')",
    )
    .fetch_one(store.pool())
    .await
    .map_err(said)?;
    let name = options.get_username();
    if let (true, Role::Program(purpose)) = (owns, role) {
        return Err(Trouble::Unfit(anyhow!(
            "DATABASE_URL connects as {name}, which owns Gantry's tables and could disable their guards. Set DATABASE_URL to the \
             address of the {}'s role, and GANTRY_OWNER_URL to this one: only `gantry migrate`, `gantry admin` and `gantry up` use it",
            purpose.as_str()
        )));
    }
    let unfit = |why: &str| Err(Trouble::Unfit(anyhow!("{why}")));
    match migrations::standing(store.pool()).await.map_err(|error| Trouble::Unfit(error.into()))? {
        Standing::Current => fits(store, name, owns, role).await,
        Standing::Empty => unfit(
            "the database has no tables of Gantry's that this role may read: run `gantry migrate` as its owner, and connect as the role \
             that it grants rights to (gantry_server or gantry_worker, unless you chose others)",
        ),
        Standing::Behind => unfit(
            "the database's tables are those of an older Gantry: run `gantry migrate` of this one as its owner",
        ),
        Standing::Ahead => {
            unfit("the database's tables are those of a newer Gantry: start that one here")
        }
        Standing::OtherGuards => unfit(
            "what guards the database's tables is not what this Gantry was tested with: run `gantry migrate` of the one that is to work on it",
        ),
    }
}

/// The rules about addresses of nodes beside this database. `local`: nodes may be on this host.
pub fn reach(store: &Store, local: bool) -> Policy {
    let (host, port) = worker::reach::Reachable::beside(store.pool(), local).database.unzip();
    let database = host.zip(port).map(|(host, port)| Database {
        // Names are resolved by workers, right before they connect.
        addresses: host.parse().into_iter().collect(),
        host,
        port,
    });
    Policy { allow_local: local, own: worker::reach::own_addresses(), database }
}

/// Refuses a role that is another program's.
async fn fits(store: &Store, name: &str, owns: bool, role: Role) -> Result<(), Trouble> {
    let wrong = |why: String| Err(Trouble::Unfit(anyhow!("{why}")));
    let Role::Program(purpose) = role else {
        return match owns {
            true => Ok(()),
            false => wrong(format!(
                "GANTRY_OWNER_URL connects as {name}, which does not own Gantry's tables. Set it to the address of their owner"
            )),
        };
    };
    let of = async |purpose: Purpose| {
        let role = migrations::database_role(store.pool(), purpose).await;
        role.map_err(|error| Trouble::Unfit(error.into()))
    };
    let Some(own) = of(purpose).await? else {
        return wrong(
            "no migration has granted rights to roles. Run `gantry migrate` as the database's owner".to_owned(),
        );
    };
    let program = purpose.as_str();
    if !own.is_own {
        return wrong(format!(
            "DATABASE_URL connects as {name}, which is not the {program}'s role. Set DATABASE_URL of this command to the address of {}",
            own.name
        ));
    }
    for other in [Purpose::Server, Purpose::Worker].into_iter().filter(|other| *other != purpose) {
        if of(other).await?.is_some_and(|role| role.is_own) {
            return wrong(format!(
                "DATABASE_URL connects as {name}, which also has the rights of the {}'s role. Use a separate role for each program",
                other.as_str()
            ));
        }
    }
    Ok(())
}

/// What a failed connection means, and what to do.
fn told(error: sqlx::Error, options: &PgConnectOptions) -> Trouble {
    let role = options.get_username();
    let place = match options.get_socket() {
        Some(folder) => format!("in the folder {}", folder.display()),
        None => format!("at {}:{}", options.get_host(), options.get_port()),
    };
    let database = options.get_database().unwrap_or(role);
    let code = error.as_database_error().and_then(|refused| refused.code()).unwrap_or_default();
    let means = match &*code {
        "28P01" => format!("the database refuses {role}: the password is another one"),
        "28000" => {
            format!(
                "the database does not let {role} in from here: its pg_hba.conf says who may come from where"
            )
        }
        "3D000" => format!(
            "there is no database {database} {place}: `gantry migrate --print-setup` has the SQL that makes one"
        ),
        "42501" => {
            format!(
                "{role} may not connect to {database}: `gantry migrate --print-setup` has the SQL that lets it"
            )
        }
        // Starting, stopping, full.
        "57P01" | "57P02" | "57P03" | "53300" => {
            format!("the database {place} takes nobody in right now")
        }
        _ => format!("the database {place} does not answer"),
    };
    let lasts = ["28", "3D", "42"].iter().any(|class| code.starts_with(class));
    let why = anyhow::Error::new(error).context(means);
    if lasts { Trouble::Unfit(why) } else { Trouble::Away(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_postgresql() {
        for (wrong, word) in [
            ("", "is empty"),
            ("mysql://db/shop", "postgres://"),
            ("db.example.com", "postgres://"),
        ] {
            let said = format!("{:#}", address(wrong, "DATABASE_URL").unwrap_err());
            assert!(said.contains(word) && said.starts_with("DATABASE_URL"), "{said}");
        }
        let said = format!(
            "{:#}",
            address("postgres://a:geheim@h:notaport/d", "DATABASE_URL").unwrap_err()
        );
        assert!(!said.contains("geheim"), "{said}");
        let near =
            address("postgres://a@localhost/d?host=/srv/gantry/socket", "DATABASE_URL").unwrap();
        let (Trouble::Away(why) | Trouble::Unfit(why)) = told(sqlx::Error::PoolTimedOut, &near);
        assert!(
            why.to_string().contains("in the folder /srv/gantry/socket does not answer"),
            "{why}"
        );
        assert_eq!(
            address("postgresql://shop@db/x", "DATABASE_URL").unwrap().get_username(),
            "shop"
        );
    }
}
