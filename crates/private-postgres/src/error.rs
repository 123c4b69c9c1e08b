//! What can go wrong, each with what to do next.

use std::io;
use std::path::{Path, PathBuf};

/// Why a private cluster isn't there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable binaries.
    #[error(
        "no PostgreSQL {oldest} or newer found (looked in {looked}). Install it (Debian, Ubuntu: `apt-get install \
         postgresql`; Fedora: `dnf install postgresql-server`; macOS: `brew install postgresql`), name the folder of \
         `initdb` and `postgres` in GANTRY_PG_BIN, or name a database in DATABASE_URL and GANTRY_OWNER_URL"
    )]
    NotInstalled {
        /// The oldest major version that will do.
        oldest: u32,
        /// The folders that were searched.
        looked: String,
    },
    /// The data belong to another major version.
    #[error(
        "the data in {} were written by PostgreSQL {data}, but only {installed} is installed. Install PostgreSQL {data}, \
         or move the data with pg_dumpall of version {data} into a new folder",
        folder.display()
    )]
    OtherMajor {
        /// The data folder.
        folder: PathBuf,
        /// The major version that wrote it.
        data: u32,
        /// The major versions that are installed.
        installed: String,
    },
    /// Another process has the folder.
    #[error("{} is in use by another Gantry ({holder}). Stop that one, or choose another folder", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Who holds it, as far as known.
        holder: String,
    },
    /// The folder holds something else.
    #[error("{} isn't empty and isn't a private database folder. Choose another folder", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder belongs to somebody else.
    #[error("{} belongs to account {owner}, not to {me}. Start Gantry as {owner}, or choose another folder", folder.display())]
    NotMine {
        /// The folder.
        folder: PathBuf,
        /// Its owner.
        owner: String,
        /// The account that asks.
        me: String,
    },
    /// The unprivileged account can't get there.
    #[error(
        "PostgreSQL doesn't run as root, so it runs as account {account}, which can't enter {}. Choose a folder whose \
         parents everybody may enter (such as /var/lib/gantry), or start Gantry as an ordinary user",
        folder.display()
    )]
    OutOfReach {
        /// The folder.
        folder: PathBuf,
        /// The unprivileged account.
        account: String,
    },
    /// Root without an account to step down to.
    #[error(
        "PostgreSQL doesn't run as root, and there is neither an account `postgres` nor `nobody` to run it as"
    )]
    NoAccount,
    /// A program of PostgreSQL failed.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// Which.
        program: String,
        /// Its exit status.
        status: String,
        /// What it printed.
        output: String,
    },
    /// The server didn't come up.
    #[error("PostgreSQL didn't start: {reason}\nThe end of its log:\n{log}")]
    NotStarted {
        /// The last refusal.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// A postmaster that won't end.
    #[error("PostgreSQL (process {pid}) didn't end within {seconds} s")]
    NotStopped {
        /// Its process id.
        pid: i32,
        /// How long was waited.
        seconds: u64,
    },
    /// The operating system refused something.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The server refused something.
    #[error("the private database refused: {0}")]
    Sql(#[from] sqlx::Error),
    /// The work was cut off by the end of the runtime.
    #[error("starting or stopping PostgreSQL was interrupted: {0}")]
    Interrupted(String),
}

/// Adds what was tried, and on what, to an I/O error.
pub(crate) trait At<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing, path: path.to_owned(), source })
    }
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(io::Error::from).at(doing, path)
    }
}
