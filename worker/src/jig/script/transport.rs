//! How a node is reached: commands with words, and their streams.
//!
//! Everything that happens on a node happens through the wrapper, and the wrapper is reached by running words in a POSIX shell
//! there. So a transport is one function: words to a [`Process`], whose streams are those of the words on the node.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use engine::Hash;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use super::process::Process;
use super::ssh::{Connections, Reach, SshError, quoted};

/// A node's connection, as its record has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum Transport {
    /// A folder of the worker's own machine.
    Local {
        /// The folder that is the node's root.
        root: PathBuf,
    },
    /// Another machine.
    Ssh {
        /// The folder there that is the node's root; it is made when it is missing.
        #[serde(default = "whole_machine")]
        root: PathBuf,
        /// Who it is, and how to get there.
        #[serde(flatten)]
        reach: Reach,
    },
}

fn whole_machine() -> PathBuf {
    PathBuf::from("/")
}

/// Why a node can't be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The record says nothing that this worker understands.
    #[error(
        "this worker can't reach the node: its connection {connection} is none that it knows ({reason})"
    )]
    Unknown {
        /// The record, shortened.
        connection: String,
        /// From the parser.
        reason: String,
    },
    /// The folder is no absolute path.
    #[error("the node's root {0:?} must be an absolute path")]
    Relative(PathBuf),
    /// The folder can't be made.
    #[error("the node's root {root:?} can't be used: {error}")]
    Root {
        /// The folder.
        root: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// No shell on this machine.
    #[error("the node's shell can't be started: {0}")]
    Spawn(std::io::Error),
    /// Nobody is reached there.
    #[error(transparent)]
    Ssh(#[from] SshError),
}

/// Variables of the worker that processes on its own machine get; everything else (the database's URL among it) stays here.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

impl Transport {
    /// Reads a node's connection.
    ///
    /// # Errors
    /// When this worker knows no such transport, or it lacks something.
    pub fn read(connection: &Value) -> Result<Self, TransportError> {
        let transport: Self = serde_json::from_value(connection.clone()).map_err(|error| {
            TransportError::Unknown {
                connection: connection.to_string().chars().take(200).collect(),
                reason: error.to_string(),
            }
        })?;
        if !transport.root().is_absolute() {
            return Err(TransportError::Relative(transport.root().to_owned()));
        }
        Ok(transport)
    }

    /// The node's root folder, as the node names it.
    pub fn root(&self) -> &Path {
        match self {
            Self::Local { root } | Self::Ssh { root, .. } => root,
        }
    }

    /// What tells this folder from every other one, here and elsewhere.
    pub fn place(&self) -> String {
        match self {
            Self::Local { root } => root.to_string_lossy().into_owned(),
            Self::Ssh { root, reach } => {
                format!("{}@{}:{}", reach.user, reach.host_key, root.display())
            }
        }
    }

    /// Makes the root folder, where that is ours to do.
    ///
    /// # Errors
    /// When it can't be made.
    pub async fn prepare(&self) -> Result<(), TransportError> {
        match self {
            Self::Local { root } => tokio::fs::create_dir_all(root)
                .await
                .map_err(|error| TransportError::Root { root: root.clone(), error }),
            Self::Ssh { .. } => Ok(()),
        }
    }

    /// Runs a shell line on the node with these words as `$1`, `$2`, ...
    ///
    /// # Errors
    /// When it can't be started.
    pub async fn start(
        &self,
        connections: &Connections,
        line: &str,
        words: &[String],
    ) -> Result<Process, TransportError> {
        match self {
            Self::Local { .. } => {
                shell(line, words).spawn().map(Process::here).map_err(TransportError::Spawn)
            }
            Self::Ssh { reach, .. } => {
                let words = ["sh", "-c", line, "gantry"]
                    .into_iter()
                    .chain(words.iter().map(String::as_str));
                Ok(connections.start(reach, &quoted(words)).await?)
            }
        }
    }
}

/// A shell of this machine, in a group of its own: Ctrl-C in the worker's terminal is the worker's business.
fn shell(line: &str, words: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).arg("gantry").args(words);
    command.env_clear();
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.current_dir("/").process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The wrapper's text.
pub const WRAPPER: &str = include_str!("wrapper.sh");

/// The hash that names the wrapper on nodes.
pub fn wrapper_hash() -> Hash {
    Hash::of_bytes(WRAPPER.as_bytes())
}

/// Exit code of [`CALL_WRAPPER`]: the wrapper is not there, or is not what its name says.
pub const NO_WRAPPER: i32 = 75;

/// Runs the wrapper `$2` (whose hash is `$1`) with all further words.
pub const CALL_WRAPPER: &str = r#"
sum=$1 wrapper=$2
shift 2
[ "$(sha256sum <"$wrapper" 2>/dev/null)" = "$sum  -" ] || exit 75
exec sh "$wrapper" "$@"
"#;

/// Puts the wrapper, from standard input, to `$1`; says which scripts are there, as many as are worth remembering; then runs it with all
/// further words, if there are any.
pub const STAGE_WRAPPER: &str = r#"
umask 077
mkdir -p "${1%/*}" && cat >"$1.$$" && mv -f "$1.$$" "$1" || {
    rm -f "$1.$$"
    exit 1
}
ls "${1%/bin/*}/scripts" 2>/dev/null | head -n 10000
[ $# = 1 ] || exec sh "$@"
"#;
