//! Errors of a private cluster, each with a remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Why a private cluster is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There are no usable binaries.
    #[error(
        "no PostgreSQL {oldest} or newer found (looked in {looked}). Install it (Debian, Ubuntu: `apt-get install \
         postgresql`; Fedora: `dnf install postgresql-server`; macOS: `brew install postgresql`), name the folder of \
         `initdb` and `postgres` in GANTRY_PG_BIN, or name a database in DATABASE_URL and GANTRY_OWNER_URL"
    )]
    NotInstalled {
        /// The oldest supported major version.
        oldest: u32,
        /// The searched folders.
        looked: String,
    },
    /// The data folder belongs to another major version.
    #[error(
        "the data in {} were written by PostgreSQL {data}, but only {installed} is installed. Install PostgreSQL {data}, \
         or move the data with pg_dumpall of version {data} into a new folder",
        folder.display()
    )]
    OtherMajor {
        folder: PathBuf,
        data: u32,
        /// The installed major versions.
        installed: String,
    },
    /// Another process uses the folder.
    #[error("{} is in use by another Gantry ({holder}). Stop that one, or choose another folder", folder.display())]
    InUse {
        folder: PathBuf,
        /// The process that uses it, if known.
        holder: String,
    },
    /// The folder has other content.
    #[error("{} isn't empty and isn't a private database folder. Choose another folder", folder.display())]
    Foreign { folder: PathBuf },
    /// The folder belongs to another user.
    #[error("{} belongs to account {owner}, not to {me}. Start Gantry as {owner}, or choose another folder", folder.display())]
    NotMine {
        folder: PathBuf,
        owner: String,
        /// The account of this process.
        me: String,
    },
    /// The unprivileged account can't enter the folder.
    #[error(
        "PostgreSQL doesn't run as root, so it runs as account {account}, which can't enter {}. Choose a folder whose \
         parents everybody may enter (such as /var/lib/gantry), or start Gantry as an ordinary user",
        folder.display()
    )]
    OutOfReach { folder: PathBuf, account: String },
    /// The process runs as root, and there is no account to switch to.
    #[error(
        "PostgreSQL doesn't run as root, and there is neither an account `postgres` nor `nobody` to run it as"
    )]
    NoAccount,
    #[error("{program} failed ({status}):\n{output}")]
    Program { program: String, status: String, output: String },
    /// The server did not start.
    #[error("PostgreSQL didn't start: {reason}\nThe end of its log:\n{log}")]
    NotStarted {
        /// The last connection error.
        reason: String,
        log: String,
    },
    /// The postmaster did not stop.
    #[error("PostgreSQL (process {pid}) didn't end within {seconds} s")]
    NotStopped {
        pid: i32,
        /// Timeout in seconds.
        seconds: u64,
    },
    /// A system call failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A statement failed.
    #[error("the private database refused: {0}")]
    Sql(#[from] sqlx::Error),
    /// The runtime ended during a start or stop.
    #[error("starting or stopping PostgreSQL was interrupted: {0}")]
    Interrupted(String),
}

/// Adds the attempted operation and the path to an I/O error.
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
