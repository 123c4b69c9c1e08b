//! Transports: run commands on a node and stream their input and output.
//!
//! Everything on a node runs via the wrapper, which is called as a command of a POSIX shell. A
//! transport is therefore one function from arguments to a [`Process`].

use std::path::{Path, PathBuf};
use std::process::Stdio;

use engine::Hash;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use super::process::Process;
use super::ssh::{Connections, Reach, SshError, quoted};

/// A node's connection, as in its record.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum Transport {
    /// A folder of the worker's machine.
    Local {
        /// The folder that is the node's root.
        root: PathBuf,
    },
    /// Another machine.
    Ssh {
        /// The folder on that machine that is the node's root. It is created if missing.
        #[serde(default = "default_root")]
        root: PathBuf,
        #[serde(flatten)]
        reach: Reach,
    },
}

fn default_root() -> PathBuf {
    PathBuf::from("/")
}

/// Why a connection can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection is invalid or unknown to this worker.
    #[error(
        "This worker cannot reach the node, because its connection {connection} is unknown or \
         invalid ({reason})."
    )]
    Unknown {
        /// The connection, shortened.
        connection: String,
        /// The parser's message.
        reason: String,
    },
    /// The root is not an absolute path.
    #[error("The node's root {0:?} must be an absolute path.")]
    Relative(PathBuf),
    /// The root folder can't be created.
    #[error("Cannot use the node's root {root:?}: {error}")]
    Root { root: PathBuf, error: std::io::Error },
    /// The local shell can't be started.
    #[error("Cannot start the node's shell: {0}")]
    Spawn(std::io::Error),
    #[error(transparent)]
    Ssh(#[from] SshError),
}

/// Environment variables that local processes inherit from the worker. All others, such as the
/// database URL, are removed.
const INHERITED_VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

impl Transport {
    /// Parses a node's connection.
    ///
    /// # Errors
    /// If the transport is unknown or a field is missing.
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

    /// The root folder, as a path on the node.
    pub fn root(&self) -> &Path {
        match self {
            Self::Local { root } | Self::Ssh { root, .. } => root,
        }
    }

    /// A unique key for this root folder over all nodes.
    pub fn place(&self) -> String {
        match self {
            Self::Local { root } => root.to_string_lossy().into_owned(),
            Self::Ssh { root, reach } => {
                format!("{}@{}:{}", reach.user, reach.host_key, root.display())
            }
        }
    }

    /// Creates the root folder of a local node.
    ///
    /// # Errors
    /// If the folder can't be created.
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
    /// If it can't be started.
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

/// A local shell in its own process group, so that Ctrl-C in the worker's terminal does not reach
/// it.
fn shell(line: &str, words: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).arg("gantry").args(words);
    command.env_clear();
    for name in INHERITED_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.current_dir("/").process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub const WRAPPER: &str = include_str!("wrapper.sh");

/// The hash that names the wrapper on nodes.
pub fn wrapper_hash() -> Hash {
    Hash::of_bytes(WRAPPER.as_bytes())
}

/// Exit code of [`CALL_WRAPPER`] if the wrapper is missing or does not match its hash.
pub const NO_WRAPPER: i32 = 75;

/// Runs the wrapper `$2`, whose hash is `$1`, with the remaining arguments.
pub const CALL_WRAPPER: &str = r#"
sum=$1 wrapper=$2
shift 2
[ "$(sha256sum <"$wrapper" 2>/dev/null)" = "$sum  -" ] || exit 75
exec sh "$wrapper" "$@"
"#;

/// Writes the wrapper from standard input to `$1` and lists the scripts on the node, up to the
/// number that a worker remembers. Then runs the wrapper with the remaining arguments, if any.
pub const STAGE_WRAPPER: &str = r#"
umask 077
mkdir -p "${1%/*}" && cat >"$1.$$" && mv -f "$1.$$" "$1" || {
    rm -f "$1.$$"
    exit 1
}
ls "${1%/bin/*}/scripts" 2>/dev/null | head -n 10000
[ $# = 1 ] || exec sh "$@"
"#;
