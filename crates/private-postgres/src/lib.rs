//! Runs a private PostgreSQL cluster from the installed binaries.
//!
//! `gantry up` must work on a new machine without a prepared database, and each test run needs an
//! isolated cluster. Both use this crate with different [`Durability`].
//!
//! **Access.** The cluster listens only on a Unix socket, in a folder that only its account may
//! enter. It authenticates with `peer`: the kernel reports the client's account, and only the
//! account that started Gantry maps to the roles. So there is no password to leak or rotate, and no
//! port that another program could use. A password file would add nothing, because only that
//! account could read it.
//!
//! **Root.** PostgreSQL does not run as root. If root starts it, all PostgreSQL programs run as an
//! unprivileged account: the owner of an existing data folder, or else `postgres`, or else
//! `nobody`.
//!
//! Invariants:
//! - One process uses a folder. It locks a file in the folder for the lifetime of
//!   [`PrivatePostgres`]. The kernel releases the lock when the process ends for any reason. A
//!   second start fails.
//! - The process with the lock owns every postmaster on that data folder. It first stops one that a
//!   killed process left and that has not stopped yet, because its sessions may have locks and its
//!   configuration may be outdated. Then it starts a new one.
//! - A data folder is complete or absent: `initdb` works in a temporary folder, which is then
//!   renamed.
//! - Every start overwrites the configuration files. Users' own settings are in `local.conf` in the
//!   data folder, which Gantry never changes.
//! - The postmaster has its own process group. Ctrl-C in the terminal reaches only Gantry, which
//!   stops its own work first and the database last.
//! - No cluster outlives its process, even after SIGKILL: a watcher process reads from a pipe and
//!   stops the server when the pipe closes. A [`Durability::Throwaway`] cluster leaves no folder.

mod account;
mod binaries;
mod configuration;
mod error;
mod folder;
mod postmaster;
mod roles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection};

use account::Account;
use binaries::Binaries;
use folder::Folder;
use postmaster::Postmaster;

pub use binaries::OLDEST_MAJOR;
pub use error::Error;
pub use roles::{
    DATABASE, METRICS_ROLE, OWNER_ROLE, PROGRAM_ROLES, SERVER_ROLE, WORKER_ROLE, ensure_roles,
    grant_connect_sql, restrict_functions_sql, setup_sql,
};

/// The superuser of a private cluster.
pub const ADMIN_ROLE: &str = "postgres";

/// Timeout of a start, including crash recovery.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// The data that a power failure may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// No committed data.
    Durable,
    /// All data, for tests. The data folder is removed when the cluster stops, also if its process
    /// is killed.
    Throwaway,
}

/// Settings of a private cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster's own folder (data, socket, log, lock). Created if missing.
    pub data_dir: PathBuf,
    pub durability: Durability,
    /// The folder of `initdb` and `postgres`. `None`: `GANTRY_PG_BIN`, then `PATH`, then
    /// `/usr/lib/postgresql/*/bin`.
    pub bin_dir: Option<PathBuf>,
    pub max_connections: u16,
}

impl Settings {
    /// A cluster that keeps committed data.
    pub fn durable(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            durability: Durability::Durable,
            bin_dir: None,
            max_connections: 200,
        }
    }

    /// A fast cluster for tests that is removed when it stops.
    pub fn throwaway(data_dir: impl Into<PathBuf>) -> Self {
        Self { durability: Durability::Throwaway, max_connections: 400, ..Self::durable(data_dir) }
    }
}

/// A running private cluster. Dropping it stops it (fast shutdown). [`PrivatePostgres::stop`] does
/// the same without blocking the executor, and returns errors.
#[derive(Debug)]
pub struct PrivatePostgres {
    // Order matters: the postmaster must stop before the folder's lock is released.
    postmaster: Postmaster,
    folder: Folder,
    binaries: Binaries,
    account: Account,
    settings: Settings,
}

impl PrivatePostgres {
    /// Creates the cluster if it is missing, starts it, and ensures that its roles and its database
    /// exist.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, the data belongs to another major version, the folder is in
    /// use or inaccessible, or the server does not start.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let mut cluster = blocking(move || Self::launch(settings)).await?;
        cluster.ready().await?;
        Ok(cluster)
    }

    /// URL of `database` for the owner role (migrations).
    pub fn owner_url(&self, database: &str) -> String {
        self.url(OWNER_ROLE, database)
    }

    /// URL of `database` for the server's role.
    pub fn server_url(&self, database: &str) -> String {
        self.url(SERVER_ROLE, database)
    }

    /// URL of `database` for the workers' role.
    pub fn worker_url(&self, database: &str) -> String {
        self.url(WORKER_ROLE, database)
    }

    /// URL of `database` for the monitoring role.
    pub fn metrics_url(&self, database: &str) -> String {
        self.url(METRICS_ROLE, database)
    }

    /// URL of `database` for the superuser, to create and drop databases.
    pub fn admin_url(&self, database: &str) -> String {
        self.url(ADMIN_ROLE, database)
    }

    /// The folder of the socket, for `psql -h`.
    pub fn socket_dir(&self) -> &Path {
        self.folder.socket_dir()
    }

    /// Whether the postmaster runs. It ends only if another process kills it.
    pub fn is_running(&mut self) -> bool {
        self.postmaster.is_running()
    }

    /// Restarts the postmaster if it has died. Returns whether it had. Callers poll this. All other
    /// parts of Gantry recover on their own once the database answers.
    ///
    /// # Errors
    /// As for [`PrivatePostgres::start`].
    pub async fn ensure_running(&mut self) -> Result<bool, Error> {
        if self.postmaster.is_running() {
            return Ok(false);
        }
        self.folder.stop_stale_postmaster()?;
        self.postmaster =
            Postmaster::spawn(&self.binaries, &self.account, &self.folder, &self.settings)?;
        self.ready().await?;
        Ok(true)
    }

    /// Stops the cluster: ends sessions, writes committed data to disk, and removes a throwaway
    /// folder.
    ///
    /// # Errors
    /// If the fast shutdown timed out and the postmaster had to be killed. Durable data recovers at
    /// the next start.
    pub async fn stop(self) -> Result<(), Error> {
        let Self { postmaster, folder, .. } = self;
        blocking(move || {
            let stopped = postmaster.stop();
            drop(folder);
            stopped
        })
        .await
    }

    fn launch(settings: Settings) -> Result<Self, Error> {
        let all = binaries::find(settings.bin_dir.as_deref())?;
        let account = Account::choose(&settings.data_dir)?;
        let folder = Folder::open(&settings, &account)?;
        let binaries = folder.choose_binaries(all)?;
        folder.stop_stale_postmaster()?;
        folder.ensure_initialized(&binaries, &account, &settings)?;
        configuration::write(&folder, &account, &settings)?;
        let postmaster = Postmaster::spawn(&binaries, &account, &folder, &settings)?;
        Ok(Self { postmaster, folder, binaries, account, settings })
    }

    async fn ready(&mut self) -> Result<(), Error> {
        let mut admin = self.wait_for_connection().await?;
        ensure_roles(&mut admin).await?;
        admin.close().await?;
        let options: PgConnectOptions = self.admin_url(DATABASE).parse()?;
        let options = options.disable_statement_logging();
        let mut admin = PgConnection::connect_with(&options).await?;
        admin.execute(AssertSqlSafe(restrict_functions_sql(PROGRAM_ROLES))).await?;
        admin.close().await?;
        Ok(())
    }

    async fn wait_for_connection(&mut self) -> Result<PgConnection, Error> {
        let options: PgConnectOptions = self.admin_url("postgres").parse()?;
        let options = options.disable_statement_logging();
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        loop {
            let refused = match PgConnection::connect_with(&options).await {
                Ok(connection) => return Ok(connection),
                Err(refused) => refused,
            };
            if !self.postmaster.is_running() || tokio::time::Instant::now() > deadline {
                return Err(Error::NotStarted {
                    reason: refused.to_string(),
                    log: self.folder.log_tail(),
                });
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    fn url(&self, role: &str, database: &str) -> String {
        let socket = percent_encode(&self.folder.socket_dir().to_string_lossy());
        let database = percent_encode(database);
        format!("postgres://{role}@localhost:{}/{database}?host={socket}", configuration::PORT)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(ended) => Err(Error::Interrupted(ended.to_string())),
    }
}

/// Percent-encodes all but unreserved characters (RFC 3986).
fn percent_encode(text: &str) -> String {
    const RESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_folder_names_are_url_encoded() {
        let url = format!("postgres://a@localhost:5432/b?host={}", percent_encode("/tmp/a b&c=ü%"));
        let options: PgConnectOptions = url.parse().unwrap();
        assert_eq!(options.get_socket().unwrap(), Path::new("/tmp/a b&c=ü%"));
        assert_eq!(options.get_database(), Some("b"));
    }
}
