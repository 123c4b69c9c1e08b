//! Connections to nodes over SSH.
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

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::nodes::TriedAddress;
use engine::data::secret::{self, SecretRef};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use russh::client::{self, Handle};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg, Preferred};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::greeting::{Heard, Listened};
use super::process::{Ending, Process};
use crate::reach::{ConnectError, Reachable};
use crate::secrets::{Purpose, SecretSource};

/// Time for an address to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for an address to complete authentication.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Delay before the next address is tried while the previous one is still in progress.
const ATTEMPT_DELAY: Duration = Duration::from_secs(1);
/// Maximum age of a connection for new commands. A key removed from `authorized_keys` keeps access
/// for up to this time.
pub const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);
/// Time to remember the last good address of a node without a connection.
const MEMORY_TIME: Duration = Duration::from_secs(3600);
/// Time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Keepalive interval. The connection is closed after three unanswered keepalives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of a stream to buffer for its reader.
const BUFFER_SIZE: usize = 64 << 10;

/// Address and credentials of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct Reach {
    /// Host names or IP addresses. They are tried in this order, except for remembered results.
    pub addresses: Vec<String>,
    /// The port of all addresses.
    #[serde(default = "default_port")]
    pub port: u16,
    #[serde(default = "default_user")]
    pub user: String,
    /// The secret with the private key.
    #[serde(deserialize_with = "key")]
    pub key: (String, i64),
    /// The only accepted host key, as `ssh-keyscan` prints it after the host: `ssh-ed25519
    /// AAAA...`.
    pub host_key: String,
}

fn default_port() -> u16 {
    22
}

fn default_user() -> String {
    "root".to_owned()
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<(String, i64), D::Error> {
    let value = Value::deserialize(from)?;
    let reference = secret::reference(&value);
    let expected = "key must name a secret, {\"$secret\": \"name\", \"version\": 1}";
    reference
        .map(|secret| (secret.name, secret.version))
        .ok_or_else(|| serde::de::Error::custom(expected))
}

/// Why a node can't be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    #[error("The node's record has no address.")]
    NoAddress,
    /// The result of each address.
    #[error("Cannot reach the node: {}", .0.join("; "))]
    Unreachable(Vec<String>),
    /// The rules forbid connections to this address.
    #[error("{address}: {why}")]
    Refused { address: String, why: engine::reach::Refused },
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

/// Client handler that accepts only the pinned host key.
struct Pinned {
    key: PublicKey,
}

/// Progress of a handshake.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error("another host key: {0}")]
    OtherKey(String),
}

impl client::Handler for Pinned {
    type Error = HandshakeError;

    async fn check_server_key(
        &mut self,
        offered: &PublicKeyOrCertificate,
    ) -> Result<bool, HandshakeError> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = offered else {
            return Err(HandshakeError::OtherKey("a certificate".to_owned()));
        };
        if key.key_data() == self.key.key_data() {
            return Ok(true);
        }
        Err(HandshakeError::OtherKey(key.fingerprint(HashAlg::Sha256).to_string()))
    }
}

/// A connection with the key and time of its creation.
struct Open {
    handle: Handle<Pinned>,
    address: String,
    key: Arc<PrivateKey>,
    made: Instant,
}

type Connection = Arc<Open>;
type Slot = Arc<tokio::sync::Mutex<Kept>>;

/// State of the connection to a node.
#[derive(Default)]
struct Kept {
    connection: Option<Connection>,
    /// The last address that accepted the worker.
    answered: Option<String>,
    /// The address that accepted the worker and then stopped answering.
    silent: Option<String>,
    tries: Option<Attempts>,
}

/// The results of the last attempt to connect.
struct Attempts {
    ended: Instant,
    each: Vec<Attempt>,
    failed: Option<SshError>,
}

/// The result of one address.
#[derive(Debug, Clone)]
struct Attempt {
    address: TriedAddress,
    /// Whether the result reveals whether something listens at the address.
    reveals: bool,
}

impl Kept {
    fn usable(&self, key: &PrivateKey, max_age: Duration) -> Option<Connection> {
        let connection = self.connection.as_ref().filter(|connection| open(connection))?;
        let same_key = connection.key.public_key().key_data() == key.public_key().key_data();
        (same_key && connection.made.elapsed() < max_age).then(|| Arc::clone(connection))
    }

    /// The error, if the last attempt ended after `since` and failed. A caller that waited for that
    /// attempt does not repeat it.
    fn failed_since(&self, since: Instant) -> Option<SshError> {
        self.tries.as_ref().filter(|tries| tries.ended >= since)?.failed.clone()
    }

    /// The order in which to try the addresses.
    fn order(&self, addresses: &[String]) -> Vec<String> {
        let mut order = addresses.to_vec();
        order.sort_by_key(|address| match Some(address) {
            address if address == self.silent.as_ref() => 2,
            address if address == self.answered.as_ref() => 0,
            _ => 1,
        });
        order
    }

    fn note(&mut self, each: Vec<Attempt>, came: &Result<Connection, SshError>) {
        if let Ok(connection) = came {
            self.answered = Some(connection.address.clone());
            self.silent.take_if(|silent| *silent == connection.address);
        }
        self.connection = came.as_ref().ok().cloned();
        self.tries =
            Some(Attempts { ended: Instant::now(), each, failed: came.as_ref().err().cloned() });
    }

    fn is_recent(&self) -> bool {
        let tried = self.tries.as_ref().is_some_and(|tries| tries.ended.elapsed() < MEMORY_TIME);
        tried || self.connection.as_ref().is_some_and(open)
    }
}

/// The connections of a worker, one per node.
pub struct Connections {
    secrets: Arc<dyn SecretSource>,
    reachable: Reachable,
    max_age: Duration,
    kept: Mutex<HashMap<Reach, Slot>>,
}

impl Connections {
    pub fn new(secrets: Arc<dyn SecretSource>, reachable: Reachable) -> Self {
        Self { secrets, reachable, max_age: MAX_CONNECTION_AGE, kept: Mutex::default() }
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
    pub async fn start(&self, reach: &Reach, command: &str) -> Result<Process, SshError> {
        let connection = self.connection(reach).await?;
        match opened(&connection, command).await {
            Ok(process) => Ok(process),
            // The server's channel limit is reached: this command gets its own connection.
            Err(russh::Error::ChannelOpenFailure(_)) => {
                self.start_on_new_connection(reach, command).await
            }
            Err(_) => {
                self.forget(reach, &connection).await;
                let connection = self.connection(reach).await?;
                opened(&connection, command)
                    .await
                    .map_err(|error| SshError::Broken(error.to_string()))
            }
        }
    }

    async fn start_on_new_connection(
        &self,
        reach: &Reach,
        command: &str,
    ) -> Result<Process, SshError> {
        let key = self.private_key(&reach.key).await?;
        let order = self.slot(reach).lock().await.order(&reach.addresses);
        let (_, came) = self.connect(order, reach, &key).await;
        opened(&came?, command).await.map_err(|error| SshError::Broken(error.to_string()))
    }

    /// Ensures that a connection exists and returns its address. Takes at most half a minute,
    /// however many addresses there are, plus the wait for another attempt in progress.
    ///
    /// # Errors
    /// If the node can't be reached. See [`SshError`].
    pub async fn reach(&self, reach: &Reach) -> Result<String, SshError> {
        Ok(self.connection(reach).await?.address.clone())
    }

    /// The result of each address that was tried after `since`. If none was tried, the address of
    /// the open connection.
    pub async fn tried(&self, reach: &Reach, since: Instant) -> Vec<TriedAddress> {
        let slot = self.slot(reach);
        let kept = slot.lock().await;
        if let Some(tries) = kept.tries.as_ref().filter(|tries| tries.ended >= since) {
            return tries.each.iter().map(|tried| tried.address.clone()).collect();
        }
        let connected = kept.connection.iter().filter(|connection| open(connection));
        connected.map(|connection| let_in(&connection.address)).collect()
    }

    /// The addresses tried after `since` whose result in [`Self::tried`] reveals whether something
    /// listens there.
    pub async fn revealing(&self, reach: &Reach, since: Instant) -> Vec<String> {
        let slot = self.slot(reach);
        let kept = slot.lock().await;
        let tries = kept.tries.iter().filter(|tries| tries.ended >= since);
        let revealing = tries.flat_map(|tries| &tries.each).filter(|tried| tried.reveals);
        revealing.map(|tried| tried.address.address.clone()).collect()
    }

    /// Discards a connection that no longer works, although it is open. The next command makes a
    /// new one, preferably to another address.
    pub async fn give_up(&self, reach: &Reach, why: &str) {
        let slot = self.slot(reach);
        let mut kept = slot.lock().await;
        let Some(connection) = kept.connection.take() else { return };
        let address = &connection.address;
        kept.answered.take_if(|answered| answered == address);
        kept.silent = Some(address.clone());
        let error = format!("no data after the login: {why}");
        let each = vec![Attempt {
            address: TriedAddress { address: address.clone(), reached: false, error },
            reveals: false,
        }];
        kept.tries = Some(Attempts { ended: Instant::now(), each, failed: None });
    }

    fn slot(&self, reach: &Reach) -> Slot {
        let Ok(mut kept) = self.kept.lock() else { return Slot::default() };
        // Nodes and their keys change, so forget those that are no longer remembered.
        kept.retain(|other, slot| {
            other == reach || slot.try_lock().map_or(true, |slot| slot.is_recent())
        });
        Arc::clone(kept.entry(reach.clone()).or_default())
    }

    async fn connection(&self, reach: &Reach) -> Result<Connection, SshError> {
        let slot = self.slot(reach);
        let requested_at = Instant::now();
        // The lock is held during the attempt, so concurrent callers share the result.
        let mut kept = slot.lock().await;
        // Read the key for each command: removing its file revokes access.
        let key = match self.private_key(&reach.key).await {
            Ok(key) => key,
            Err(error) => {
                kept.connection = None;
                return Err(error);
            }
        };
        if let Some(connection) = kept.usable(&key, self.max_age) {
            return Ok(connection);
        }
        if let Some(error) = kept.failed_since(requested_at) {
            return Err(error);
        }
        let (each, came) = self.connect(kept.order(&reach.addresses), reach, &key).await;
        kept.note(each, &came);
        came
    }

    /// Tries the addresses until one accepts the worker. Returns each result and the overall one.
    async fn connect(
        &self,
        addresses: Vec<String>,
        reach: &Reach,
        key: &Arc<PrivateKey>,
    ) -> (Vec<Attempt>, Result<Connection, SshError>) {
        let pinned = match PublicKey::from_openssh(&reach.host_key) {
            Ok(pinned) => pinned,
            Err(error) => return (Vec::new(), Err(SshError::InvalidHostKey(error.to_string()))),
        };
        let (pinned, reachable) = (&pinned, &self.reachable);
        let (each, entered) = connect_first(addresses, ATTEMPT_DELAY, move |address| async move {
            let heard = Heard::default();
            match timeout(LOGIN_TIMEOUT, enter(&address, reachable, reach, pinned, key, &heard))
                .await
            {
                Ok(came) => came,
                Err(_) => Err(SshError::Unreachable(vec![format!(
                    "{address}: {}",
                    heard.too_late(reach.port, LOGIN_TIMEOUT)
                )])),
            }
        })
        .await;
        let tried = each.iter().map(|(address, came)| came.tried(address)).collect();
        let came = match entered {
            Some((address, handle)) => {
                Ok(Arc::new(Open { handle, address, key: Arc::clone(key), made: Instant::now() }))
            }
            None => Err(all_of(each)),
        };
        (tried, came)
    }

    async fn forget(&self, reach: &Reach, broken: &Connection) {
        let slot = self.slot(reach);
        let mut kept = slot.lock().await;
        kept.connection.take_if(|connection| Arc::ptr_eq(connection, broken));
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

fn let_in(address: &str) -> TriedAddress {
    TriedAddress { address: address.to_owned(), reached: true, error: String::new() }
}

/// The result of one address.
enum Came {
    Accepted,
    /// Another address accepted the worker first.
    Pending,
    Failed(SshError),
}

impl Came {
    fn tried(&self, address: &str) -> Attempt {
        let said = match self {
            Self::Accepted => return Attempt { address: let_in(address), reveals: false },
            Self::Pending => {
                "not needed, because another address accepted the login first".to_owned()
            }
            Self::Failed(SshError::Unreachable(reasons)) => reasons.join("; "),
            Self::Failed(error) => error.to_string(),
        };
        // The address is shown separately.
        let said = said.strip_prefix(&format!("{address}: ")).unwrap_or(&said).to_owned();
        // A server that proved the pinned host key is the right one, and a rule depends only on the
        // record. Neither reveals anything.
        let reveals = !matches!(
            self,
            Self::Failed(SshError::AuthenticationFailed { .. } | SshError::Refused { .. })
        );
        Attempt {
            address: TriedAddress { address: address.to_owned(), reached: false, error: said },
            reveals,
        }
    }
}

/// Combines the errors if no address accepted the worker.
fn all_of(each: Vec<(String, Came)>) -> SshError {
    let failed = |came| if let Came::Failed(error) = came { Some(error) } else { None };
    let mut errors: Vec<SshError> = each.into_iter().filter_map(|(_, came)| failed(came)).collect();
    if errors.len() < 2 {
        return errors.pop().unwrap_or(SshError::NoAddress);
    }
    // An error from a server that answers is more useful than a timeout.
    errors.sort_by_key(|error| matches!(error, SshError::Unreachable(_)));
    let reasons = errors.into_iter().flat_map(|error| match error {
        SshError::Unreachable(reasons) => reasons,
        other => vec![other.to_string()],
    });
    SshError::Unreachable(reasons.collect())
}

/// Tries the addresses concurrently until one accepts the worker. Returns the result of each
/// address that was tried, in this order.
async fn connect_first<T, F>(
    addresses: Vec<String>,
    delay: Duration,
    enter: impl Fn(String) -> F,
) -> (Vec<(String, Came)>, Option<(String, T)>)
where
    F: Future<Output = Result<T, SshError>>,
{
    let mut each: Vec<(String, Came)> = Vec::with_capacity(addresses.len());
    let mut remaining = addresses.into_iter();
    let mut in_progress = FuturesUnordered::new();
    let mut next = Instant::now();
    loop {
        let all_started = remaining.len() == 0;
        tokio::select! {
            Some(ended) = in_progress.next() => {
                let (index, came): (usize, Result<T, SshError>) = ended;
                match came {
                    Ok(entered) => {
                        each[index].1 = Came::Accepted;
                        let address = each[index].0.clone();
                        return (each, Some((address, entered)));
                    }
                    Err(error) => each[index].1 = Came::Failed(error),
                }
                next = Instant::now();
            }
            () = sleep_until(next), if !all_started => {
                let Some(address) = remaining.next() else { continue };
                let (index, attempt) = (each.len(), enter(address.clone()));
                each.push((address, Came::Pending));
                in_progress.push(async move { (index, attempt.await) });
                next = Instant::now() + delay;
            }
            else => return (each, None),
        }
    }
}

fn open(connection: &Connection) -> bool {
    !connection.handle.is_closed()
}

async fn enter(
    address: &str,
    reachable: &Reachable,
    reach: &Reach,
    pinned: &PublicKey,
    key: &Arc<PrivateKey>,
    heard: &Heard,
) -> Result<Handle<Pinned>, SshError> {
    let unreached =
        |why: &dyn std::fmt::Display| SshError::Unreachable(vec![format!("{address}: {why}")]);
    let stream = match timeout(CONNECT_TIMEOUT, reachable.connect(address, reach.port)).await {
        Ok(stream) => stream.map_err(|error| match error {
            ConnectError::Refused(why) => SshError::Refused { address: address.to_owned(), why },
            ConnectError::Failed(error) => unreached(&error),
        })?,
        Err(_) => {
            return Err(unreached(&format!(
                "no answer within {} seconds",
                CONNECT_TIMEOUT.as_secs()
            )));
        }
    };
    let config = client::Config {
        inactivity_timeout: Some(IDLE_TIMEOUT),
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: 3,
        nodelay: true,
        // A server has several host keys and shows one of the requested type.
        preferred: Preferred { key: Cow::Owned(vec![pinned.algorithm()]), ..Preferred::default() },
        ..client::Config::default()
    };
    let _ = stream.set_nodelay(true);
    let stream = Listened { stream, heard: heard.clone() };
    let connected =
        client::connect_stream(Arc::new(config), stream, Pinned { key: pinned.clone() }).await;
    let mut handle = connected.map_err(|error| match error {
        HandshakeError::OtherKey(found) => SshError::HostKeyMismatch {
            address: address.to_owned(),
            found,
            pinned: pinned.fingerprint(HashAlg::Sha256).to_string(),
        },
        HandshakeError::Ssh(russh::Error::NoCommonAlgo { .. }) => SshError::HostKeyMismatch {
            address: address.to_owned(),
            found: format!("none of type {}", pinned.algorithm()),
            pinned: pinned.fingerprint(HashAlg::Sha256).to_string(),
        },
        HandshakeError::Ssh(error) => unreached(&heard.failed(reach.port, &error)),
    })?;
    let signing_key = PrivateKeyWithHashAlg::new(Arc::clone(key), None);
    match handle.authenticate_publickey(&reach.user, signing_key).await {
        Ok(result) if result.success() => Ok(handle),
        Ok(_) => Err(SshError::AuthenticationFailed {
            address: address.to_owned(),
            user: reach.user.clone(),
            key: reach.key.0.clone(),
        }),
        Err(error) => Err(unreached(&heard.failed(reach.port, &error))),
    }
}

async fn opened(connection: &Connection, command: &str) -> Result<Process, russh::Error> {
    let channel = connection.handle.channel_open_session().await?;
    channel.exec(true, command).await?;
    Ok(attached(channel, Arc::clone(connection)))
}

/// Creates a process from a channel. Two tasks copy its streams, and end when the process is
/// dropped.
fn attached(channel: Channel<client::Msg>, connection: Connection) -> Process {
    let (mut from, sender) = channel.split();
    let sender = Arc::new(sender);
    let (stdin, mut typed) = duplex(BUFFER_SIZE);
    let (mut out, stdout) = duplex(BUFFER_SIZE);
    let (mut err, stderr) = duplex(BUFFER_SIZE);
    let (end_sender, ending) = watch::channel(None);
    let closed = CancellationToken::new();

    let writing = (Arc::clone(&sender), closed.clone());
    tokio::spawn(async move {
        let (sender, closed) = writing;
        let mut into = sender.make_writer();
        let copied = tokio::select! {
            copied = tokio::io::copy(&mut typed, &mut into) => copied,
            () = closed.cancelled() => return,
        };
        if copied.is_ok() {
            let _ = into.flush().await;
            let _ = sender.eof().await;
        }
    });
    let until = closed.clone();
    tokio::spawn(async move {
        let copying = async {
            while let Some(message) = from.wait().await {
                match message {
                    ChannelMsg::Data { data } => pass(&mut out, &data).await,
                    ChannelMsg::ExtendedData { data, ext: 1 } => pass(&mut err, &data).await,
                    ChannelMsg::ExitStatus { exit_status } => {
                        end_sender.send_replace(Some(Ending::Code(exit_status.cast_signed())));
                    }
                    ChannelMsg::ExitSignal { signal_name, .. } => {
                        end_sender
                            .send_replace(Some(Ending::Killed(format!("signal {signal_name:?}"))));
                    }
                    // The server refused to run the command and gave no reason.
                    ChannelMsg::Failure => {
                        end_sender.send_replace(Some(Ending::Disconnected(
                            "the node's SSH server does not run commands".to_owned(),
                        )));
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            () = copying => {}
            () = until.cancelled() => {}
        }
        end_sender.send_if_modified(|ending| {
            let is_unset = ending.is_none();
            ending.get_or_insert_with(|| {
                Ending::Disconnected("the channel was closed before the command ended".to_owned())
            });
            is_unset
        });
        let _ = sender.close().await;
        drop(connection);
    });
    Process::there(
        [Box::new(stdout), Box::new(stderr)],
        Box::new(stdin),
        ending,
        closed.drop_guard(),
    )
}

/// Copies data to a reader. The reader may be gone, but the other stream still needs service.
async fn pass(into: &mut DuplexStream, data: &[u8]) {
    let _ = into.write_all(data).await;
}

/// Quotes words for a POSIX shell, also plain ones, so that all commands to nodes look alike.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted_word).collect::<Vec<_>>().join(" ")
}

pub fn quoted_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use api::limits::ADDRESSES;
    use serde_json::json;

    use super::*;

    #[test]
    fn shell_splits_quoted_words_correctly() {
        let words = ["a b", "it's", "", "$HOME `id` \\ \"x\"\nnext", "'"];
        let script = format!("for word in {}; do printf '%s|' \"$word\"; done", quoted(words));
        let output =
            std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words.join("|") + "|");
    }

    /// Seven addresses drop packets; the eighth answers.
    #[tokio::test]
    async fn silent_addresses_do_not_delay_others() {
        let addresses: Vec<String> = (1..=ADDRESSES).map(|number| number.to_string()).collect();
        let last = addresses.last().cloned().unwrap_or_default();
        let (each, entered) = connect_first(addresses, Duration::from_millis(1), |address| {
            let last = last.clone();
            async move { if address == last { Ok(address) } else { std::future::pending().await } }
        })
        .await;
        assert_eq!(entered.map(|(address, _)| address), Some(last));
        assert_eq!(each.len(), ADDRESSES);
        assert!(each[..ADDRESSES - 1].iter().all(|(_, came)| matches!(came, Came::Pending)));
        let longest = ATTEMPT_DELAY * u32::try_from(ADDRESSES).expect("few") + LOGIN_TIMEOUT;
        assert!(longest < Duration::from_secs(30), "what reach() promises");
    }

    #[tokio::test]
    async fn failed_address_starts_the_next_at_once() {
        let failing = |address| async move {
            Err::<(), _>(SshError::Unreachable(vec![format!("{address}: no")]))
        };
        let never = Duration::from_secs(1 << 20);
        let (each, entered) =
            connect_first(vec!["a".into(), "b".into(), "c".into()], never, failing).await;
        assert!(entered.is_none());
        assert_eq!(all_of(each).to_string(), "Cannot reach the node: a: no; b: no; c: no");
        assert_eq!(all_of(Vec::new()), SshError::NoAddress);
    }

    #[test]
    fn node_record_with_private_key_is_rejected() {
        let record = |key: Value| json!({"addresses": ["10.0.0.1"], "key": key, "host_key": "ssh-ed25519 AAAA"});
        let reach: Reach =
            serde_json::from_value(record(json!({"$secret": "deploy", "version": 2})))
                .expect("a record");
        assert_eq!(
            (reach.port, reach.user.as_str(), reach.key),
            (22, "root", ("deploy".to_owned(), 2))
        );
        let plain =
            serde_json::from_value::<Reach>(record(json!("-----BEGIN OPENSSH PRIVATE KEY-----")));
        assert!(plain.unwrap_err().to_string().contains("must name a secret"));
    }
}
