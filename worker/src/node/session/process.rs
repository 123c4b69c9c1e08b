//! A process on a node: three streams and an exit status.
//!
//! On this machine, it is a child process. On another machine, it is a channel of an SSH
//! connection. Both have the same interface. An SSH connection may break while the process
//! continues, which [`Ending::Disconnected`] reports.

use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Child;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

/// Time to read a stream after its process ended. A service may hold it open indefinitely.
pub(crate) const LATE_OUTPUT_TIME: Duration = Duration::from_millis(300);

/// How a process ended, as far as this machine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this code.
    Code(i32),
    /// A signal or an error ended it. The text is for users.
    Killed(String),
    /// The connection broke, so the process may still run. The text is for users.
    Disconnected(String),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Killed(how) => f.write_str(how),
            Self::Disconnected(reason) => write!(f, "the connection to the node broke: {reason}"),
        }
    }
}

impl Ending {
    /// The exit code, if there is one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(*code),
            Self::Killed(_) | Self::Disconnected(_) => None,
        }
    }

    fn of(status: ExitStatus) -> Self {
        status.code().map_or_else(|| Self::Killed(status.to_string()), Self::Code)
    }
}

pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A process. Dropping it does not end a remote process; the wrapper does that.
pub struct Process {
    /// Dropping it closes the input.
    pub stdin: Option<Writer>,
    pub stdout: Option<Reader>,
    pub stderr: Option<Reader>,
    location: Location,
}

enum Location {
    Local(Child),
    Remote {
        ending: watch::Receiver<Option<Ending>>,
        /// Closes the channel on drop.
        _channel: DropGuard,
    },
}

impl Process {
    /// Wraps a child process whose streams are pipes.
    pub fn local(mut child: Child) -> Self {
        Self {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as Writer),
            stdout: child.stdout.take().map(|stdout| Box::new(stdout) as Reader),
            stderr: child.stderr.take().map(|stderr| Box::new(stderr) as Reader),
            location: Location::Local(child),
        }
    }

    /// Wraps a remote process. `ending` receives how it ended.
    pub fn remote(
        [stdout, stderr]: [Reader; 2],
        stdin: Writer,
        ending: watch::Receiver<Option<Ending>>,
        channel: DropGuard,
    ) -> Self {
        let location = Location::Remote { ending, _channel: channel };
        Self { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr), location }
    }

    /// Waits for the end of the process.
    pub async fn wait(&mut self) -> Ending {
        match &mut self.location {
            Location::Local(child) => match child.wait().await {
                Ok(status) => Ending::of(status),
                Err(error) => Ending::Disconnected(error.to_string()),
            },
            Location::Remote { ending, .. } => {
                match ending.wait_for(Option::is_some).await.as_deref() {
                    Ok(Some(ending)) => ending.clone(),
                    _ => Ending::Disconnected("its channel is closed".to_owned()),
                }
            }
        }
    }

    /// Kills a child process and its process group. Releases a remote process.
    pub async fn kill(&mut self) {
        if let Location::Local(child) = &mut self.location {
            if let Some(pid) = child.id() {
                let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            let _ = child.wait().await;
        }
    }
}
