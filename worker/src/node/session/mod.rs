//! Sessions: run commands on a node, on this machine or over SSH, and stream their input and
//! output.
//!
//! Everything on a node runs via the wrapper, which is called as a command of a POSIX shell. A
//! session is therefore one function from arguments to a [`Process`]. One SSH connection serves all
//! commands on a node ([`ssh`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

mod error;
pub mod process;
pub(crate) mod shell;
pub mod ssh;

pub use self::error::{OutputLimitExceeded, SessionError};

use self::process::{Ending, Process, Reader, Writer};
use self::shell::{local_shell, quoted};
use self::ssh::SshSessions;
use super::connection::Transport;

/// Timeout of a short command on a node, such as staging or a query.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum bytes of a command's output, and of its error output.
pub(crate) const MAX_COMMAND_OUTPUT: usize = 64 << 10;

/// Runs commands on one node.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) transport: Arc<Transport>,
    pub(crate) ssh: Arc<SshSessions>,
}

impl Session {
    /// Creates the root folder of a local node.
    pub(crate) async fn prepare(&self) -> Result<(), SessionError> {
        match &*self.transport {
            Transport::Local { root } => tokio::fs::create_dir_all(root)
                .await
                .map_err(|error| SessionError::Root { root: root.clone(), error }),
            Transport::Ssh { .. } => Ok(()),
        }
    }

    /// Runs a shell line on the node with these words as `$1`, `$2`, ...
    pub(crate) async fn start(
        &self,
        line: &str,
        words: &[String],
    ) -> Result<Process, SessionError> {
        match &*self.transport {
            Transport::Local { .. } => {
                local_shell(line, words).spawn().map(Process::local).map_err(SessionError::Spawn)
            }
            Transport::Ssh { endpoint, .. } => {
                let words = ["sh", "-c", line, "gantry"]
                    .into_iter()
                    .chain(words.iter().map(String::as_str));
                Ok(self.ssh.start(endpoint, &quoted(words)).await?)
            }
        }
    }

    /// Runs one short command and returns its standard output.
    pub(crate) async fn execute(
        &self,
        action: &'static str,
        line: &str,
        words: &[String],
        input: &[u8],
    ) -> Result<Vec<u8>, SessionError> {
        self.execute_with_limit(action, line, words, input, MAX_COMMAND_OUTPUT).await
    }

    /// Like `execute`, with another limit for the output.
    pub(crate) async fn execute_with_limit(
        &self,
        action: &'static str,
        line: &str,
        words: &[String],
        input: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, SessionError> {
        self.execute_within(COMMAND_TIMEOUT, action, line, words, input, limit).await
    }

    /// Like `execute_with_limit`, with another timeout.
    pub(crate) async fn execute_within(
        &self,
        time: Duration,
        action: &'static str,
        line: &str,
        words: &[String],
        input: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, SessionError> {
        let all = async {
            let mut process = self.start(line, words).await?;
            let (stdin, stdout, stderr) =
                (process.stdin.take(), process.stdout.take(), process.stderr.take());
            let feeding = async {
                feed(stdin, input).await;
                Ok(())
            };
            let reading = (
                read_to_limit(stdout, "standard output", limit),
                read_to_limit(stderr, "standard error", MAX_COMMAND_OUTPUT),
            );
            match futures::try_join!(feeding, reading.0, reading.1) {
                Ok(((), stdout, stderr)) => Ok((process.wait().await, stdout, stderr)),
                Err(exceeded) => {
                    process.kill().await;
                    Err(SessionError::TooMuchOutput { action, exceeded })
                }
            }
        };
        let (how, stdout, stderr) =
            timeout(time, all).await.map_err(|_| SessionError::Timeout { action, time })??;
        match how {
            Ending::Code(0) => Ok(stdout),
            how => Err(SessionError::CommandFailed { action, how, error: last_line(&stderr) }),
        }
    }
}

async fn feed(stdin: Option<Writer>, text: &[u8]) {
    if let Some(mut stdin) = stdin {
        // If a command ends before it has read all input, its exit code has the reason.
        let _ = stdin.write_all(text).await;
        let _ = stdin.shutdown().await;
    }
}

/// Reads a stream to its end, up to a limit. The other end may print indefinitely.
async fn read_to_limit(
    from: Option<Reader>,
    stream: &'static str,
    limit: usize,
) -> Result<Vec<u8>, OutputLimitExceeded> {
    let mut read = Vec::new();
    if let Some(from) = from {
        // After a read error, the bytes read so far are the result.
        let _ = from.take(limit as u64 + 1).read_to_end(&mut read).await;
    }
    if read.len() > limit { Err(OutputLimitExceeded { stream, limit }) } else { Ok(read) }
}

/// The last line of an error output that is not empty.
pub(crate) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("no output").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stream_beyond_its_limit_is_rejected() {
        let read = async |text: &'static [u8]| {
            read_to_limit(Some(Box::new(text)), "standard output", 4).await
        };
        assert_eq!(read(b"four").await.as_deref(), Ok(&b"four"[..]));
        assert_eq!(
            read(b"four.").await,
            Err(OutputLimitExceeded { stream: "standard output", limit: 4 })
        );
        let endless = read_to_limit(
            Some(Box::new(tokio::io::repeat(b'x'))),
            "standard error",
            MAX_COMMAND_OUTPUT,
        )
        .await;
        assert_eq!(
            endless,
            Err(OutputLimitExceeded { stream: "standard error", limit: MAX_COMMAND_OUTPUT })
        );
    }
}
