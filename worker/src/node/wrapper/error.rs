//! Why an attempt failed before its scripts could finish.

use crate::node::connection::InvalidConnection;
use crate::node::session::SessionError;

/// Why an attempt can't be run, listed or ended. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    #[error(transparent)]
    Connection(#[from] InvalidConnection),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("The connection to the node broke before the run started.")]
    NeverStarted,
    /// A script can't be read, or the node requested an unknown one.
    #[error("{0}")]
    Script(String),
}
