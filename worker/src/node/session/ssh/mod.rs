//! SSH sessions with nodes.
//!
//! The client runs in this process, so a connection never outlives the worker, and errors are
//! values instead of text to parse. One connection serves all commands on a node, each in its own
//! channel. If a server allows no further channel, that command gets a connection of its own.
//!
//! The node's record pins its host key. The worker requests and accepts no other key. Another key
//! means a reinstalled machine or an attacker, and a worker can't tell which. There is no trust on
//! first use. The private key is a secret of the worker, and the record names it.
//!
//! A node has several addresses and is reachable if one of them accepts the worker. The worker
//! tries them concurrently. Each starts a moment after the previous one, or at once if the previous
//! one failed. Each has its own timeout, so an address that drops packets does not delay the
//! others. The last address that accepted the worker goes first. An address that accepted the
//! worker and then went silent goes last. The results are cached until addresses are tried again.
//!
//! A connection does not grant permanent access. New commands use it for at most
//! [`MAX_CONNECTION_AGE`], and only while the worker still has the key of the connection. Then they
//! need a new connection. Commands on the old connection continue.
//!
//! Keys are Ed25519 or ECDSA. RSA is excluded, because the library's RSA has a timing weakness
//! (RUSTSEC-2023-0071).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::nodes::TriedAddress;
use engine::data::secret::SecretRef;
use russh::client::Handle;
use russh::keys::{PrivateKey, PublicKey};
use tokio::time::{Instant, timeout};

use self::attempts::{
    ATTEMPT_DELAY, Attempt, LOGIN_TIMEOUT, accepted, combined_error, connect_first,
};
use self::channel::open_channel;
use self::identification::FirstBytes;
use self::login::{PinnedHostKey, log_in};
use self::state::{Attempts, NodeState, open};
use super::process::Process;
use crate::node::connection::{Dialer, SshEndpoint};
use crate::secrets::{Purpose, SecretSource};

mod attempts;
mod channel;
mod error;
mod identification;
mod login;
mod state;

pub use self::error::SshError;

/// Maximum age of a connection for new commands. A key removed from `authorized_keys` keeps access
/// for up to this time.
pub const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);

/// An authenticated connection, with the key and time of its creation.
struct SshSession {
    handle: Handle<PinnedHostKey>,
    address: String,
    key: Arc<PrivateKey>,
    opened_at: Instant,
}

type SharedSession = Arc<SshSession>;
type Slot = Arc<tokio::sync::Mutex<NodeState>>;

/// The SSH sessions of a worker, one per node.
pub struct SshSessions {
    secrets: Arc<dyn SecretSource>,
    dialer: Dialer,
    max_age: Duration,
    nodes: Mutex<HashMap<SshEndpoint, Slot>>,
}

impl SshSessions {
    pub fn new(secrets: Arc<dyn SecretSource>, dialer: Dialer) -> Self {
        Self { secrets, dialer, max_age: MAX_CONNECTION_AGE, nodes: Mutex::default() }
    }

    /// Overrides [`MAX_CONNECTION_AGE`].
    #[must_use]
    pub fn with_max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    /// Starts a command on the node.
    ///
    /// # Errors
    /// If the node can't be reached. See [`SshError`].
    pub async fn start(&self, endpoint: &SshEndpoint, command: &str) -> Result<Process, SshError> {
        let connection = self.connection(endpoint).await?;
        match open_channel(&connection, command).await {
            Ok(process) => Ok(process),
            // The server's channel limit is reached: this command gets its own connection.
            Err(russh::Error::ChannelOpenFailure(_)) => {
                self.start_on_new_connection(endpoint, command).await
            }
            Err(_) => {
                self.forget(endpoint, &connection).await;
                let connection = self.connection(endpoint).await?;
                open_channel(&connection, command)
                    .await
                    .map_err(|error| SshError::Broken(error.to_string()))
            }
        }
    }

    async fn start_on_new_connection(
        &self,
        endpoint: &SshEndpoint,
        command: &str,
    ) -> Result<Process, SshError> {
        let key = self.private_key(&endpoint.key).await?;
        let order = self.slot(endpoint).lock().await.order(&endpoint.addresses);
        let (_, result) = self.connect(order, endpoint, &key).await;
        open_channel(&result?, command).await.map_err(|error| SshError::Broken(error.to_string()))
    }

    /// Ensures that a connection exists and returns its address. Takes at most half a minute,
    /// however many addresses there are, plus the wait for another attempt in progress.
    ///
    /// # Errors
    /// If the node can't be reached. See [`SshError`].
    pub async fn reach(&self, endpoint: &SshEndpoint) -> Result<String, SshError> {
        Ok(self.connection(endpoint).await?.address.clone())
    }

    /// The result of each address that was tried after `since`. If none was tried, the address of
    /// the open connection.
    pub async fn tried(&self, endpoint: &SshEndpoint, since: Instant) -> Vec<TriedAddress> {
        let slot = self.slot(endpoint);
        let state = slot.lock().await;
        if let Some(tries) = state.tries.as_ref().filter(|tries| tries.ended >= since) {
            return tries.each.iter().map(|tried| tried.address.clone()).collect();
        }
        let connected = state.connection.iter().filter(|connection| open(connection));
        connected.map(|connection| accepted(&connection.address)).collect()
    }

    /// The addresses tried after `since` whose result in [`Self::tried`] reveals whether something
    /// listens there.
    pub async fn revealing(&self, endpoint: &SshEndpoint, since: Instant) -> Vec<String> {
        let slot = self.slot(endpoint);
        let state = slot.lock().await;
        let tries = state.tries.iter().filter(|tries| tries.ended >= since);
        let revealing = tries.flat_map(|tries| &tries.each).filter(|tried| tried.reveals);
        revealing.map(|tried| tried.address.address.clone()).collect()
    }

    /// Discards a connection that no longer works, although it is open. The next command makes a
    /// new one, preferably to another address.
    pub async fn give_up(&self, endpoint: &SshEndpoint, reason: &str) {
        let slot = self.slot(endpoint);
        let mut state = slot.lock().await;
        let Some(connection) = state.connection.take() else { return };
        let address = &connection.address;
        state.answered.take_if(|answered| answered == address);
        state.silent = Some(address.clone());
        let error = format!("no data after the login: {reason}");
        let each = vec![Attempt {
            address: TriedAddress { address: address.clone(), reached: false, error },
            reveals: false,
        }];
        state.tries = Some(Attempts { ended: Instant::now(), each, failed: None });
    }

    fn slot(&self, endpoint: &SshEndpoint) -> Slot {
        let Ok(mut nodes) = self.nodes.lock() else { return Slot::default() };
        // Nodes and their keys change, so forget those that are no longer remembered.
        nodes.retain(|other, slot| {
            other == endpoint || slot.try_lock().map_or(true, |slot| slot.is_recent())
        });
        Arc::clone(nodes.entry(endpoint.clone()).or_default())
    }

    async fn connection(&self, endpoint: &SshEndpoint) -> Result<SharedSession, SshError> {
        let slot = self.slot(endpoint);
        let requested_at = Instant::now();
        // The lock is held during the attempt, so concurrent callers share the result.
        let mut state = slot.lock().await;
        // Read the key for each command: removing its file revokes access.
        let key = match self.private_key(&endpoint.key).await {
            Ok(key) => key,
            Err(error) => {
                state.connection = None;
                return Err(error);
            }
        };
        if let Some(connection) = state.usable(&key, self.max_age) {
            return Ok(connection);
        }
        if let Some(error) = state.failed_since(requested_at) {
            return Err(error);
        }
        let (each, result) = self.connect(state.order(&endpoint.addresses), endpoint, &key).await;
        state.note(each, &result);
        result
    }

    /// Tries the addresses until one accepts the worker. Returns each result and the overall one.
    async fn connect(
        &self,
        addresses: Vec<String>,
        endpoint: &SshEndpoint,
        key: &Arc<PrivateKey>,
    ) -> (Vec<Attempt>, Result<SharedSession, SshError>) {
        let pinned = match PublicKey::from_openssh(&endpoint.host_key) {
            Ok(pinned) => pinned,
            Err(error) => return (Vec::new(), Err(SshError::InvalidHostKey(error.to_string()))),
        };
        let (pinned, dialer) = (&pinned, &self.dialer);
        let (each, logged_in) =
            connect_first(addresses, ATTEMPT_DELAY, move |address| async move {
                let first_bytes = FirstBytes::default();
                match timeout(
                    LOGIN_TIMEOUT,
                    log_in(&address, dialer, endpoint, pinned, key, &first_bytes),
                )
                .await
                {
                    Ok(result) => result,
                    Err(_) => Err(SshError::Unreachable(vec![format!(
                        "{address}: {}",
                        first_bytes.too_late(endpoint.port, LOGIN_TIMEOUT)
                    )])),
                }
            })
            .await;
        let tried = each.iter().map(|(address, result)| result.tried(address)).collect();
        let result = match logged_in {
            Some((address, handle)) => Ok(Arc::new(SshSession {
                handle,
                address,
                key: Arc::clone(key),
                opened_at: Instant::now(),
            })),
            None => Err(combined_error(each)),
        };
        (tried, result)
    }

    async fn forget(&self, endpoint: &SshEndpoint, broken: &SharedSession) {
        let slot = self.slot(endpoint);
        let mut state = slot.lock().await;
        state.connection.take_if(|connection| Arc::ptr_eq(connection, broken));
    }

    async fn private_key(
        &self,
        (name, version): &(String, i64),
    ) -> Result<Arc<PrivateKey>, SshError> {
        let secret = SecretRef { name: name.clone(), version: *version };
        let text = self.secrets.resolve(&secret, Purpose::NodeKey).await;
        let text = text.map_err(|error| SshError::Key(error.to_string()))?;
        let key = PrivateKey::from_openssh(&text);
        // The parser's error may quote the text, which is secret.
        let key = key.map_err(|_| {
            SshError::Key(format!("Secret {name} version {version} is not an OpenSSH private key."))
        })?;
        if key.is_encrypted() {
            return Err(SshError::Key(format!(
                "Secret {name} version {version} has a passphrase. Remove it."
            )));
        }
        Ok(Arc::new(key))
    }
}
