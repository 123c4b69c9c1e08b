//! Errors of a private cluster, each with a remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Why a private cluster is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There are no usable binaries.
    #[error(
        "No PostgreSQL {oldest} or newer found in {looked}. Install it: `apt-get install \
         postgresql` (Debian, Ubuntu), `dnf install postgresql-server` (Fedora) or `brew install \
         postgresql` (macOS). If it is installed elsewhere, set GANTRY_PG_BIN to the folder of \
         `initdb` and `postgres`. To use another database server, set DATABASE_URL and \
         GANTRY_OWNER_URL."
    )]
    NotInstalled {
        /// The oldest supported major version.
        oldest: u32,
        /// The searched folders.
        looked: String,
    },
    /// The data folder belongs to another major version.
    #[error(
        "The data in {} was written by PostgreSQL {data}, but only {installed} is installed. \
         Install PostgreSQL {data}, or move the data into a new folder with pg_dumpall of version \
         {data}.",
        folder.display()
    )]
    MajorVersionMismatch {
        folder: PathBuf,
        data: u32,
        /// The installed major versions.
        installed: String,
    },
    /// Another process uses the folder.
    #[error(
        "The folder {} is in use by another Gantry ({holder}). Stop it, or choose another folder.",
        folder.display()
    )]
    InUse {
        folder: PathBuf,
        /// The process that uses it, if known.
        holder: String,
    },
    /// The folder has other content.
    #[error(
        "The folder {} is not empty and has no private database. Choose another folder.",
        folder.display()
    )]
    NotEmpty { folder: PathBuf },
    /// The folder belongs to another user.
    #[error(
        "The folder {} belongs to account {owner}, not to {me}. Start Gantry as {owner}, or choose \
         another folder.",
        folder.display()
    )]
    WrongOwner {
        folder: PathBuf,
        owner: String,
        /// The account of this process.
        me: String,
    },
    /// The unprivileged account can't enter the folder.
    #[error(
        "PostgreSQL cannot run as root, and account {account} cannot enter {}. Choose a folder \
         whose parents all accounts can enter, such as /var/lib/gantry, or start Gantry as an \
         ordinary user.",
        folder.display()
    )]
    Inaccessible { folder: PathBuf, account: String },
    /// The process runs as root, and there is no account to switch to.
    #[error(
        "PostgreSQL cannot run as root, and account `postgres` does not exist. Start Gantry as an \
         ordinary user."
    )]
    NoUnprivilegedAccount,
    #[error("The program {program} failed ({status}):\n{output}")]
    ProgramFailed { program: String, status: String, output: String },
    /// The server did not start.
    #[error("PostgreSQL did not start: {reason}\nThe end of its log:\n{log}")]
    NotStarted {
        /// The last connection error.
        reason: String,
        log: String,
    },
    /// The postmaster did not stop.
    #[error("PostgreSQL (process {pid}) did not stop within {seconds} s. Stop it, then try again.")]
    NotStopped {
        pid: i32,
        /// Timeout in seconds.
        seconds: u64,
    },
    /// A system call failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The attempted operation.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A statement failed.
    #[error("A statement on the private database failed: {0}")]
    Sql(#[from] sqlx::Error),
    /// The runtime ended during a start or stop.
    #[error("The start or stop of PostgreSQL was interrupted: {0}")]
    Interrupted(String),
}

/// Adds the attempted operation and the path to an I/O error.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source })
    }
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(io::Error::from).at(action, path)
    }
}
