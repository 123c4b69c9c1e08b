//! The database that a command is to work on, looked at before anything is done with it.
//!
//! *What for.* A wrong address, a password that is not taken, tables of another version and the owner's role in place of the
//! application's all come out somewhere: as a failed statement in the middle of the first run, or, worst, not at all, for the owner
//! may switch off every guard. So each is told at the start, with what to do.
//!
//! *Invariants.* Nothing here says an address: it has the password in it. Whoever starts while the database is away and can wait
//! ([`open_patiently`]) waits; everybody else is told at once.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use engine::reach::{Database, Policy};
use migrations::Standing;
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

/// Whose address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Application,
    Owner,
}

impl Role {
    /// The variable with its address.
    fn variable(self) -> &'static str {
        match self {
            Self::Application => "DATABASE_URL",
            Self::Owner => "GANTRY_OWNER_URL",
        }
    }
}

/// The database as the application's role, if it is there, is ours, and has the tables of this build.
pub async fn open(url: &str) -> Result<Store> {
    open_as(Role::Application, url).await
}

/// The same as the owner, who makes people and their first links.
pub async fn open_as_owner(url: &str) -> Result<Store> {
    open_as(Role::Owner, url).await
}

async fn open_as(role: Role, url: &str) -> Result<Store> {
    let (store, options) = unopened(role, url)?;
    match look(role, &store, &options).await {
        Ok(()) => Ok(store),
        Err(Trouble::Away(why) | Trouble::Unfit(why)) => Err(why),
    }
}

/// The same, for who may wait until it is there.
pub async fn open_patiently(url: &str) -> Result<Store> {
    let (store, options) = unopened(Role::Application, url)?;
    loop {
        match look(Role::Application, &store, &options).await {
            Ok(()) => return Ok(store),
            Err(Trouble::Unfit(why)) => return Err(why),
            Err(Trouble::Away(why)) => tracing::warn!("waiting: {why:#}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn unopened(role: Role, url: &str) -> Result<(Store, PgConnectOptions)> {
    let options = address(url, role.variable())?;
    let store = Store::open(&Connecting::to(url)).with_context(|| format!("{} can't be used", role.variable()))?;
    Ok((store, options))
}

/// What an address says, taken from the variable of that name.
pub fn address(url: &str, variable: &str) -> Result<PgConnectOptions> {
    if url.is_empty() {
        bail!("{variable} is empty: give the address of a PostgreSQL database, postgres://ROLE:PASSWORD@HOST/DATABASE");
    }
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        bail!("{variable} is no address of a PostgreSQL database: it begins with postgres://");
    }
    url.parse().with_context(|| format!("{variable} can't be read as an address"))
}

async fn look(expected: Role, store: &Store, options: &PgConnectOptions) -> Result<(), Trouble> {
    let said = |error| told(error, options);
    // Whoever may change what a table is may switch off what guards it.
    let owns: bool = sqlx::query_scalar(
        "SELECT coalesce(bool_or(pg_has_role(relowner, 'USAGE')), false)
         FROM pg_class WHERE oid = to_regclass('seaql_migrations')",
    )
    .fetch_one(store.pool())
    .await
    .map_err(said)?;
    let role = options.get_username();
    if owns && expected == Role::Application {
        return Err(Trouble::Unfit(anyhow!(
            "DATABASE_URL is that of {role}, who owns Gantry's tables and could switch off what guards them: give the \
             application's role there, and the owner's in GANTRY_OWNER_URL, which only `gantry migrate`, `gantry admin` and `gantry up` read"
        )));
    }
    let unfit = |why: &str| Err(Trouble::Unfit(anyhow!("{why}")));
    match migrations::standing(store.pool()).await.map_err(|error| Trouble::Unfit(error.into()))? {
        Standing::Current if !owns && expected == Role::Owner => Err(Trouble::Unfit(anyhow!(
            "GANTRY_OWNER_URL is that of {role}, who does not own Gantry's tables. Set it to the owner's address."
        ))),
        Standing::Current => Ok(()),
        Standing::Empty => {
            unfit("the database has no tables of Gantry's that this role may read: run `gantry migrate` as its owner")
        }
        Standing::Behind => {
            unfit("the database's tables are those of an older Gantry: run `gantry migrate` of this one as its owner")
        }
        Standing::Ahead => unfit("the database's tables are those of a newer Gantry: start that one here"),
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
            format!("the database does not let {role} in from here: its pg_hba.conf says who may come from where")
        }
        "3D000" => format!(
            "there is no database {database} {place}: `gantry migrate --print-setup` has the SQL that makes one"
        ),
        "42501" => {
            format!("{role} may not connect to {database}: `gantry migrate --print-setup` has the SQL that lets it")
        }
        // Starting, stopping, full.
        "57P01" | "57P02" | "57P03" | "53300" => format!("the database {place} takes nobody in right now"),
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
        for (wrong, word) in [("", "is empty"), ("mysql://db/shop", "postgres://"), ("db.example.com", "postgres://")] {
            let said = format!("{:#}", address(wrong, "DATABASE_URL").unwrap_err());
            assert!(said.contains(word) && said.starts_with("DATABASE_URL"), "{said}");
        }
        let said = format!("{:#}", address("postgres://a:geheim@h:notaport/d", "DATABASE_URL").unwrap_err());
        assert!(!said.contains("geheim"), "{said}");
        let near = address("postgres://a@localhost/d?host=/srv/gantry/socket", "DATABASE_URL").unwrap();
        let (Trouble::Away(why) | Trouble::Unfit(why)) = told(sqlx::Error::PoolTimedOut, &near);
        assert!(why.to_string().contains("in the folder /srv/gantry/socket does not answer"), "{why}");
        assert_eq!(address("postgresql://shop@db/x", "DATABASE_URL").unwrap().get_username(), "shop");
    }
}
