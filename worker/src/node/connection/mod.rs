//! How a worker reaches a node, as its reviewed document says: transport, addresses, host key.
//!
//! * [`record`] takes the connection from the node's document, not from its row.
//! * [`Transport`] and [`SshEndpoint`] are the parsed connection.
//! * [`Dialer`] decides to which addresses this worker connects.

mod dialer;
mod endpoint;
pub mod record;
mod transport;

pub use dialer::{ConnectError, Dialer};
pub use endpoint::SshEndpoint;
pub use transport::{InvalidConnection, Transport};
