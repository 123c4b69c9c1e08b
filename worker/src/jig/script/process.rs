//! A process on a node, wherever that is: three streams and how it ended.
//!
//! On this machine it is a child; on another one it is a channel of an SSH connection. Whoever has one asks the same of both. What
//! differs is that a connection may break while the process goes on: that is an [`Ending`] of its own.

use std::process::ExitStatus;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Child;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

/// How a process ended, as far as is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By something else; in words.
    Killed(String),
    /// It may go on: the way to it broke. In words.
    Cut(String),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Killed(how) => f.write_str(how),
            Self::Cut(why) => write!(f, "the connection to the node broke: {why}"),
        }
    }
}

impl Ending {
    /// The code, if it ended with one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(*code),
            Self::Killed(_) | Self::Cut(_) => None,
        }
    }

    fn of(status: ExitStatus) -> Self {
        status.code().map_or_else(|| Self::Killed(status.to_string()), Self::Code)
    }
}

/// What is read from.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// What is written to.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A process. Dropped, it is not waited for any more; what it started on its node is the wrapper's to end.
pub struct Process {
    /// Taken by whoever writes; dropping it is the end of the input.
    pub stdin: Option<Writer>,
    /// Taken by whoever reads.
    pub stdout: Option<Reader>,
    /// Taken by whoever reads.
    pub stderr: Option<Reader>,
    where_it_is: Where,
}

enum Where {
    Here(Child),
    There {
        ending: watch::Receiver<Option<Ending>>,
        /// Closes its channel when it goes.
        _open: DropGuard,
    },
}

impl Process {
    /// A child of this process, whose streams are pipes.
    pub fn here(mut child: Child) -> Self {
        Self {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as Writer),
            stdout: child.stdout.take().map(|stdout| Box::new(stdout) as Reader),
            stderr: child.stderr.take().map(|stderr| Box::new(stderr) as Reader),
            where_it_is: Where::Here(child),
        }
    }

    /// A process at the other end of a connection, which says by `ending` how it ended.
    pub fn there(
        [stdout, stderr]: [Reader; 2],
        stdin: Writer,
        ending: watch::Receiver<Option<Ending>>,
        open: DropGuard,
    ) -> Self {
        let where_it_is = Where::There { ending, _open: open };
        Self { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr), where_it_is }
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> Ending {
        match &mut self.where_it_is {
            Where::Here(child) => match child.wait().await {
                Ok(status) => Ending::of(status),
                Err(error) => Ending::Cut(error.to_string()),
            },
            Where::There { ending, .. } => {
                match ending.wait_for(Option::is_some).await.as_deref() {
                    Ok(Some(ending)) => ending.clone(),
                    _ => Ending::Cut("its channel is gone".to_owned()),
                }
            }
        }
    }

    /// Ends a child of this process and the group that it leads. What is elsewhere is let go.
    pub async fn kill(&mut self) {
        if let Where::Here(child) = &mut self.where_it_is {
            if let Some(pid) = child.id() {
                let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            let _ = child.wait().await;
        }
    }
}
