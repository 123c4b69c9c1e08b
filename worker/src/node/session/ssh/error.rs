//! Why an SSH session to a node can't be opened.

/// Why a node can't be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    #[error("The node's record has no address.")]
    NoAddress,
    /// The result of each address.
    #[error("Cannot reach the node: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    /// The rules forbid connections to this address.
    #[error("{address}: {reason}")]
    Refused { address: String, reason: engine::reach::Refused },
    /// The server's host key differs from the pinned one.
    #[error(
        "Unexpected host key of {address}: {found}, but the node's record has {pinned}. If the \
         machine was reinstalled, put its new key into the record. If not, another machine may \
         answer there."
    )]
    HostKeyMismatch {
        address: String,
        /// Fingerprint of the server's key.
        found: String,
        /// Fingerprint of the pinned key.
        pinned: String,
    },
    /// The server rejects the private key.
    #[error(
        "Address {address} rejects user {user} with the key {key}. Add its public key to the \
         authorized_keys of that user."
    )]
    AuthenticationFailed { address: String, user: String, key: String },
    /// The private key can't be used.
    #[error("{0}")]
    Key(String),
    /// The pinned host key can't be parsed.
    #[error(
        "Invalid host key in the node's record ({0}). Use the output of ssh-keyscan without the \
         name."
    )]
    InvalidHostKey(String),
    /// An existing connection no longer works.
    #[error("The connection to the node broke: {0}")]
    Broken(String),
}
