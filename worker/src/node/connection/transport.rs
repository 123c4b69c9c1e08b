//! The transport of a node: a folder of this machine, or SSH.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::endpoint::SshEndpoint;

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
        endpoint: SshEndpoint,
    },
}

fn default_root() -> PathBuf {
    PathBuf::from("/")
}

/// Why a connection can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConnection {
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
}

impl Transport {
    /// Parses a node's connection.
    ///
    /// # Errors
    /// If the transport is unknown or a field is missing.
    pub fn read(connection: &Value) -> Result<Self, InvalidConnection> {
        let transport: Self = serde_json::from_value(connection.clone()).map_err(|error| {
            InvalidConnection::Unknown {
                connection: connection.to_string().chars().take(200).collect(),
                reason: error.to_string(),
            }
        })?;
        if !transport.root().is_absolute() {
            return Err(InvalidConnection::Relative(transport.root().to_owned()));
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
    pub fn root_key(&self) -> String {
        match self {
            Self::Local { root } => root.to_string_lossy().into_owned(),
            Self::Ssh { root, endpoint } => {
                format!("{}@{}:{}", endpoint.user, endpoint.host_key, root.display())
            }
        }
    }
}
