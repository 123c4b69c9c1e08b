//! A PostgreSQL of Gantry's own, made from the binaries that are installed.
//!
//! # Theory
//!
//! *What for.* `gantry up` must work on a fresh machine without a database being set up, and every test wants a cluster
//! that nobody else touches. Both get one here: same code, different [`Durability`].
//!
//! *Who may connect.* The cluster listens on a Unix socket alone, in a folder that only its account may enter, and
//! authenticates by `peer`: the kernel tells PostgreSQL which account is at the other end, and only the account that
//! started Gantry is mapped to the roles. So there is no password to store, leak or rotate, and no port that another
//! program could hold. (Passwords in a file would protect from nobody: whoever reads that file is that account already.)
//!
//! *Root.* PostgreSQL refuses to run as root. Started by root, every PostgreSQL program here runs as an unprivileged
//! account: the owner of an existing data folder, else `postgres`, else `nobody`.
//!
//! *Invariants.*
//! - One folder has one holder: a lock on a file in it is held as long as the [`PrivatePostgres`] lives and dies with
//!   the process, however that ends. A second start is refused, never "helpful".
//! - Whoever holds the lock owns every postmaster on that data folder. One left over by a killed holder is stopped
//!   first (its sessions may still hold locks, and its configuration may be old), then a fresh one starts.
//! - A data folder is complete or absent: `initdb` works beside it and the result is renamed into place.
//! - The configuration files are Gantry's and written again at every start; a person's own settings go into
//!   `local.conf` in the data folder, which is never touched.
//! - The postmaster is in a process group of its own: Ctrl-C in the terminal reaches Gantry, which stops its own work
//!   first and the database last.
//! - A [`Durability::Throwaway`] cluster leaves nothing behind, not even after SIGKILL of its holder: a small watcher
//!   process waits at the other end of a pipe and cleans up when the pipe closes.

mod account;
mod binaries;
mod configuration;
mod error;
mod folder;
mod postmaster;
mod roles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use account::Account;
use binaries::Binaries;
use folder::Folder;
use postmaster::Postmaster;

pub use binaries::OLDEST_MAJOR;
pub use error::Error;
pub use roles::{
    DATABASE, METRICS_ROLE, OWNER_ROLE, PROGRAM_ROLES, SERVER_ROLE, WORKER_ROLE, connect_sql,
    ensure_roles, set_up_sql,
};

/// The bootstrap superuser of a private cluster.
pub const ADMIN_ROLE: &str = "postgres";

/// How long a start may take; recovery after a crash is part of it.
const START_LIMIT: Duration = Duration::from_secs(180);

/// What the cluster may lose when the machine loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that was committed.
    Durable,
    /// Everything: for tests. The data folder is removed when the cluster stops, also when its holder is killed.
    Throwaway,
}

/// Where and how to run a private cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A folder that is the cluster's alone (data, socket, log, lock). Made when absent.
    pub data_dir: PathBuf,
    /// What may be lost.
    pub durability: Durability,
    /// The folder of `initdb` and `postgres`. `None`: `GANTRY_PG_BIN`, then `PATH`, then `/usr/lib/postgresql/*/bin`.
    pub bin_dir: Option<PathBuf>,
    /// The most sessions at once.
    pub max_connections: u16,
}

impl Settings {
    /// A cluster that keeps what is committed.
    pub fn durable(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            durability: Durability::Durable,
            bin_dir: None,
            max_connections: 200,
        }
    }

    /// A cluster for tests: fast, and gone afterwards.
    pub fn throwaway(data_dir: impl Into<PathBuf>) -> Self {
        Self { durability: Durability::Throwaway, max_connections: 400, ..Self::durable(data_dir) }
    }
}

/// A running private cluster. It stops (fast shutdown) when this is dropped; [`PrivatePostgres::stop`] does the same
/// without blocking the executor and reports what went wrong.
#[derive(Debug)]
pub struct PrivatePostgres {
    // Order matters: the postmaster stops before the folder's lock is let go.
    postmaster: Postmaster,
    folder: Folder,
    binaries: Binaries,
    account: Account,
    settings: Settings,
}

impl PrivatePostgres {
    /// Makes the cluster when it isn't there, starts it, and ensures its roles and its database.
    ///
    /// # Errors
    /// No PostgreSQL installed, another major version's data, folder in use or out of reach, or a start that failed
    /// (with the end of the server's log).
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let mut cluster = blocking(move || Self::launch(settings)).await?;
        cluster.ready().await?;
        Ok(cluster)
    }

    /// The URL by which the owner role (migrations) reaches `database`.
    pub fn owner_url(&self, database: &str) -> String {
        self.url(OWNER_ROLE, database)
    }

    /// The URL by which the server's role reaches `database`.
    pub fn server_url(&self, database: &str) -> String {
        self.url(SERVER_ROLE, database)
    }

    /// The URL by which the workers' role reaches `database`.
    pub fn worker_url(&self, database: &str) -> String {
        self.url(WORKER_ROLE, database)
    }

    /// The URL by which the role of monitoring reaches `database`.
    pub fn metrics_url(&self, database: &str) -> String {
        self.url(METRICS_ROLE, database)
    }

    /// The URL by which the bootstrap superuser reaches `database`: for making and dropping databases.
    pub fn admin_url(&self, database: &str) -> String {
        self.url(ADMIN_ROLE, database)
    }

    /// The folder of the socket, for `psql -h`.
    pub fn socket_dir(&self) -> &Path {
        self.folder.socket_dir()
    }

    /// Whether the postmaster still runs. It ends only when something kills it.
    pub fn is_running(&mut self) -> bool {
        self.postmaster.is_running()
    }

    /// Starts the postmaster again when it has died; true when it had. Callers poll this: everything else in Gantry
    /// goes on by itself once the database answers.
    ///
    /// # Errors
    /// As [`PrivatePostgres::start`].
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

    /// Stops the cluster: sessions are ended, what is committed is on disk, a throwaway folder is removed.
    ///
    /// # Errors
    /// The postmaster did not end by the fast shutdown and had to be killed (durable data recovers at the next start).
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
        folder.ensure_initialised(&binaries, &account, &settings)?;
        configuration::write(&folder, &account, &settings)?;
        let postmaster = Postmaster::spawn(&binaries, &account, &folder, &settings)?;
        Ok(Self { postmaster, folder, binaries, account, settings })
    }

    async fn ready(&mut self) -> Result<(), Error> {
        let mut admin = self.wait_for_connection().await?;
        ensure_roles(&mut admin).await?;
        admin.close().await?;
        Ok(())
    }

    async fn wait_for_connection(&mut self) -> Result<PgConnection, Error> {
        let options: PgConnectOptions = self.admin_url("postgres").parse()?;
        let options = options.disable_statement_logging();
        let deadline = tokio::time::Instant::now() + START_LIMIT;
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

fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_folders_survive_the_url() {
        let url = format!("postgres://a@localhost:5432/b?host={}", percent_encode("/tmp/a b&c=ü%"));
        let options: PgConnectOptions = url.parse().unwrap();
        assert_eq!(options.get_socket().unwrap(), Path::new("/tmp/a b&c=ü%"));
        assert_eq!(options.get_database(), Some("b"));
    }
}
