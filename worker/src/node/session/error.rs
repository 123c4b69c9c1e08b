//! Why a command on a node failed.

use std::path::PathBuf;
use std::time::Duration;

use super::process::Ending;
use super::ssh::SshError;

/// A stream exceeded the limit of its command.
#[derive(Debug, PartialEq, Eq)]
pub struct OutputLimitExceeded {
    pub(super) stream: &'static str,
    pub(super) limit: usize,
}

/// Why a command can't be started on a node, or failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The root folder can't be created.
    #[error("Cannot use the node's root {root:?}: {error}")]
    Root { root: PathBuf, error: std::io::Error },
    /// The local shell can't be started.
    #[error("Cannot start the node's shell: {0}")]
    Spawn(std::io::Error),
    #[error(transparent)]
    Ssh(#[from] SshError),
    #[error("The node did not answer within {} seconds while {action}.", time.as_secs())]
    Timeout { action: &'static str, time: Duration },
    #[error(
        "The node printed more than {} bytes to its {} while {action}, more than any valid answer. \
         Check the output of its login shell and of commands that its SSH server forces.",
        .exceeded.limit, .exceeded.stream
    )]
    TooMuchOutput { action: &'static str, exceeded: OutputLimitExceeded },
    #[error("Error on the node while {action} ({how}): {error}")]
    CommandFailed { action: &'static str, how: Ending, error: String },
}
