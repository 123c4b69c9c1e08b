//! The server process.
//!
//! It leads its own process group, so that Ctrl-C in the terminal does not stop it before Gantry. A
//! fast shutdown (SIGINT) ends sessions and keeps committed data. A throwaway server is stopped at
//! once (SIGQUIT), because its data is not needed.
//!
//! The server has a watcher: a shell that reads from a pipe whose other end only this process has.
//! When this process ends for any reason, the read returns. The shell then stops the server, and
//! removes the folder of a throwaway server. Destructors can't do this, because they don't run
//! after SIGKILL. Other processes may still use a durable server, such as a worker that stops too.
//! So the watcher first waits for their sessions to end (smart shutdown), then ends them (fast
//! shutdown).

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::At as _;
use crate::folder::Folder;
use crate::{Durability, Error, Settings};

/// Timeout of the fast shutdown. After that, the immediate one follows.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// $1 process id, $2 folder, $3 socket folder. The waits are limited, because a server may remain
/// as a zombie. A server that has taken over the folder has another process id in its file.
const THROWAWAY_SCRIPT: &str = r#"
read -r _
kill -QUIT "$1" 2>/dev/null
tries=0
while [ -e "$2/data/postmaster.pid" ] && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf -- "$2" "$3"
"#;
const DURABLE_SCRIPT: &str = r#"
read -r _
runs() { read -r pid 2>/dev/null <"$2/data/postmaster.pid" && [ "$pid" = "$1" ]; }
for signal in TERM INT QUIT; do
    runs "$@" || exit 0
    kill -s "$signal" "$1" 2>/dev/null
    tries=0
    while runs "$@" && [ "$tries" -lt 150 ]; do sleep 0.1; tries=$((tries + 1)); done
done
"#;

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub(crate) struct Postmaster {
    server: Child,
    watcher: Option<Child>,
    shutdown: Signal,
    ended: bool,
}

impl Postmaster {
    pub(crate) fn spawn(
        binaries: &Binaries,
        account: &Account,
        folder: &Folder,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let log_path = folder.start_log();
        let log = File::create(&log_path).at("Cannot write", &log_path)?;
        account.own(&log_path)?;
        let errors = log.try_clone().at("Cannot write", &log_path)?;
        let server = account
            .command(binaries.postgres())
            .arg("-D")
            .arg(folder.data())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .at("Cannot start", &binaries.postgres())?;
        let shutdown = match settings.durability {
            Durability::Durable => Signal::SIGINT,
            Durability::Throwaway => Signal::SIGQUIT,
        };
        let mut postmaster = Self { server, watcher: None, shutdown, ended: false };
        postmaster.watcher = Some(watch(&postmaster.server, folder, settings.durability)?);
        Ok(postmaster)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if !self.ended {
            self.ended = !matches!(self.server.try_wait(), Ok(None));
        }
        !self.ended
    }

    pub(crate) fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let stopped = self.stop_server();
        // The server has stopped, so the watcher is not needed. The folder's owner removes the
        // folder.
        if let Some(mut watcher) = self.watcher.take() {
            let _ = watcher.kill();
            let _ = watcher.wait();
        }
        stopped
    }

    fn stop_server(&mut self) -> Result<(), Error> {
        if !self.is_running() {
            return Ok(());
        }
        let pid = i32::try_from(self.server.id()).unwrap_or(i32::MAX);
        let _ = kill(Pid::from_raw(pid), self.shutdown);
        if self.wait(STOP_TIMEOUT) {
            return Ok(());
        }
        let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        self.wait(Duration::from_secs(10));
        Err(Error::NotStopped { pid, seconds: STOP_TIMEOUT.as_secs() })
    }

    fn wait(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        if let Err(left) = self.end() {
            tracing::warn!(error = %left, "the private database did not stop and was killed");
        }
    }
}

fn watch(server: &Child, folder: &Folder, durability: Durability) -> Result<Child, Error> {
    let script = match durability {
        Durability::Durable => DURABLE_SCRIPT,
        Durability::Throwaway => THROWAWAY_SCRIPT,
    };
    Command::new("/bin/sh")
        .args(["-c", script, "gantry-database-watcher", &server.id().to_string()])
        .arg(folder.root())
        .arg(folder.socket_dir())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .at("Cannot start the watcher of", folder.root())
}
