//! The folder of a private cluster and its lock.
//!
//! Content:
//! - `lock`, locked by this process
//! - `data/` of PostgreSQL
//! - `socket/`
//! - `start.log`: output of the server before its own log is open
//! - `socket-folder`: path of the socket's folder if the regular one was too long
//!
//! The path of a Unix socket has at most 107 bytes. For longer paths, the socket is in a folder in
//! `/tmp` with a random name. The path is stored, so that the next start removes the folder of a
//! killed process.
//!
//! A `postmaster.pid` counts only if `/proc` confirms it, because process ids are reused (within
//! seconds in containers). A process belongs to this folder only if its working directory is the
//! data folder, which a server process never leaves.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkdtemp};

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::At as _;
use crate::{ADMIN_ROLE, Durability, Error, Settings, configuration};

/// Maximum length of a Unix socket's path, without the final NUL.
const SOCKET_PATH_LIMIT: usize = 107;
/// Timeout for the fast shutdown of a leftover postmaster, and again for its immediate shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// An open and locked folder.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    socket_dir: PathBuf,
    throwaway: bool,
    _lock: File,
}

impl Folder {
    /// Creates or opens the folder and locks it.
    pub(crate) fn open(settings: &Settings, account: &Account) -> Result<Self, Error> {
        let named = &settings.data_dir;
        let is_new = !named.exists();
        if is_new {
            create_parents(named)?;
            create_private_dir(named)?;
        }
        let root = named.canonicalize().at("Cannot find", named)?;
        require_own_folder(&root)?;
        if let Err(refused) = account.require_access(root.parent().unwrap_or(&root)) {
            if is_new {
                let _ = fs::remove_dir(&root);
            }
            return Err(refused);
        }
        let lock = acquire_lock(&root)?;
        account.own(&root.join("lock"))?;
        account.own(&root)?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700))
            .at("Cannot restrict the permissions of", &root)?;
        account.require_access(&root)?;
        let socket_dir = ensure_socket_dir(&root, account)?;
        let throwaway = settings.durability == Durability::Throwaway;
        Ok(Self { root, socket_dir, throwaway, _lock: lock })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub(crate) fn start_log(&self) -> PathBuf {
        self.root.join("start.log")
    }

    /// Returns the installation with the major version of the data folder, or the best one if there
    /// is no data yet.
    pub(crate) fn choose_binaries(&self, found: Vec<Binaries>) -> Result<Binaries, Error> {
        let version_file = fs::read_to_string(self.data().join("PG_VERSION")).ok();
        let data = version_file.and_then(|text| text.trim().parse::<u32>().ok());
        let installed = found.iter().map(|b| b.major.to_string()).collect::<Vec<_>>().join(", ");
        let chosen = found.into_iter().find(|b| data.is_none_or(|data| data == b.major));
        chosen.ok_or(Error::MajorVersionMismatch {
            folder: self.data(),
            data: data.unwrap_or_default(),
            installed,
        })
    }

    /// Creates the data folder if it is missing. `initdb` writes to a temporary folder, which is
    /// then renamed, so an interruption leaves no partial cluster.
    pub(crate) fn ensure_initialized(
        &self,
        binaries: &Binaries,
        account: &Account,
        settings: &Settings,
    ) -> Result<(), Error> {
        if self.data().join("PG_VERSION").exists() {
            return Ok(());
        }
        let fresh = self.root.join("data.new");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).at("Cannot remove", &fresh)?;
        }
        let mut initdb = account.command(binaries.initdb());
        initdb.arg("--pgdata").arg(&fresh).args([
            "--username",
            ADMIN_ROLE,
            "--encoding=UTF8",
            "--locale=C",
        ]);
        // These host rules are never used: pg_hba.conf is replaced before the first start.
        initdb.args(["--auth-local=peer", "--auth-host=reject"]);
        if settings.durability == Durability::Throwaway {
            initdb.arg("--no-sync");
        }
        run(initdb, "initdb", &fresh)?;
        fs::rename(&fresh, self.data()).at("Cannot rename", &fresh)
    }

    /// Stops a postmaster that a killed process left in this folder, and removes a stale lock file.
    ///
    /// This is safe because the caller has the folder's lock: no running Gantry uses that
    /// postmaster.
    pub(crate) fn stop_stale_postmaster(&self) -> Result<(), Error> {
        let pid_file = self.data().join("postmaster.pid");
        let Ok(text) = fs::read_to_string(&pid_file) else {
            return Ok(());
        };
        let Some(pid) = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()) else {
            return fs::remove_file(&pid_file).at("Cannot remove", &pid_file);
        };
        if !Path::new("/proc/self/cwd").exists() {
            // Without /proc, PostgreSQL's own check applies. It refuses to start twice.
            return Ok(());
        }
        if self.server_processes().contains(&pid) {
            tracing::info!(pid, folder = %self.root.display(), "stopping a leftover PostgreSQL");
            signal(pid, Signal::SIGINT);
            if !self.wait_until_stopped(STOP_TIMEOUT) {
                signal(pid, Signal::SIGQUIT);
            }
        }
        // The backends of a killed postmaster end by themselves, but with a delay.
        if !self.wait_until_stopped(STOP_TIMEOUT) {
            return Err(Error::NotStopped { pid, seconds: STOP_TIMEOUT.as_secs() });
        }
        match fs::remove_file(&pid_file) {
            Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result.at("Cannot remove", &pid_file),
        }
    }

    /// The end of the server's log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
        let mut text = tail(&self.start_log());
        let newest = fs::read_dir(self.data().join("log"))
            .into_iter()
            .flatten()
            .flatten()
            .max_by_key(|entry| entry.metadata().and_then(|found| found.modified()).ok());
        if let Some(entry) = newest {
            text.push_str(&tail(&entry.path()));
        }
        text
    }

    fn wait_until_stopped(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.server_processes().is_empty() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// All server processes whose working directory is the data folder.
    fn server_processes(&self) -> Vec<i32> {
        let data = self.data();
        let Ok(processes) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        processes
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                let process = PathBuf::from(format!("/proc/{pid}"));
                fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == data)
                    && fs::read_to_string(process.join("comm"))
                        .is_ok_and(|comm| comm.trim().starts_with("postgres"))
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.socket_dir.starts_with(&self.root) {
            let _ = fs::remove_dir_all(&self.socket_dir);
        }
        if self.throwaway {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

fn create_parents(folder: &Path) -> Result<(), Error> {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            fs::create_dir_all(parent).at("Cannot create", parent)
        }
        _ => Ok(()),
    }
}

fn create_private_dir(folder: &Path) -> Result<(), Error> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(there) if there.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        result => result.at("Cannot create", folder),
    }
}

/// Accepts an empty folder, or one of an earlier private cluster.
fn require_own_folder(root: &Path) -> Result<(), Error> {
    let mut entries = fs::read_dir(root).at("Cannot read", root)?;
    if entries.next().is_none() || root.join("lock").is_file() {
        return Ok(());
    }
    Err(Error::NotEmpty { folder: root.to_owned() })
}

fn acquire_lock(root: &Path) -> Result<File, Error> {
    let path = root.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .at("Cannot open", &path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(Error::InUse { folder: root.to_owned(), holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(refused)) => return Err(refused).at("Cannot lock", &path),
    }
    file.set_len(0).at("Cannot write", &path)?;
    writeln!(file, "process {}", std::process::id()).at("Cannot write", &path)?;
    Ok(file)
}

fn ensure_socket_dir(root: &Path, account: &Account) -> Result<PathBuf, Error> {
    let path_file = root.join("socket-folder");
    if let Ok(left) = fs::read(&path_file) {
        remove_stale_socket_dir(Path::new(OsStr::from_bytes(&left)), account);
        fs::remove_file(&path_file).at("Cannot remove", &path_file)?;
    }
    let default_dir = root.join("socket");
    let dir = if fits_socket_path(&default_dir) {
        create_private_dir(&default_dir)?;
        default_dir
    } else {
        let template = Path::new("/tmp/gantry-XXXXXX");
        let temporary = mkdtemp(template).at("Cannot create a folder for the socket:", template)?;
        fs::write(&path_file, temporary.as_os_str().as_bytes()).at("Cannot write", &path_file)?;
        account.own(&path_file)?;
        temporary
    };
    account.own(&dir)?;
    Ok(dir)
}

fn fits_socket_path(dir: &Path) -> bool {
    dir.as_os_str().len() + format!("/.s.PGSQL.{}", configuration::PORT).len() <= SOCKET_PATH_LIMIT
}

/// Removes a leftover socket folder, if it is a regular folder of the database's account with a
/// name of ours.
fn remove_stale_socket_dir(left: &Path, account: &Account) {
    let is_own = left.parent() == Some(Path::new("/tmp"))
        && left.file_name().is_some_and(|name| name.as_bytes().starts_with(b"gantry-"))
        && fs::symlink_metadata(left)
            .is_ok_and(|found| found.is_dir() && found.uid() == account.uid());
    if is_own {
        let _ = fs::remove_dir_all(left);
    }
}

fn signal(pid: i32, signal: Signal) {
    // The process may have ended already. The wait below handles both.
    let _ = kill(Pid::from_raw(pid), signal);
}

fn run(mut command: std::process::Command, program: &str, folder: &Path) -> Result<(), Error> {
    let output = command.output().at("Cannot run initdb for", folder)?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(Error::ProgramFailed {
        program: program.to_owned(),
        status: output.status.to_string(),
        output: text,
    })
}

fn tail(path: &Path) -> String {
    const BYTES: u64 = 4000;
    let Ok(mut file) = File::open(path) else {
        return String::new();
    };
    let length = file.metadata().map_or(0, |found| found.len());
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(length.saturating_sub(BYTES))).is_ok() {
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
