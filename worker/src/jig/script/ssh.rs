//! Nodes that are reached by SSH.
//!
//! The client is in this process and not a program beside it: a connection ends when the worker does, whatever ended it, and what went
//! wrong is a value and no text to be guessed from. One connection serves all that happens on a node; commands are channels of it. A
//! server that allows no further channel gets another connection for that command alone.
//!
//! A host's key is pinned in the node's record. It is the only key that is asked for and the only one that is taken: who answers with
//! another is either a machine that was set up anew, or somebody between us and it, and no worker can tell which. There is no first use
//! that is trusted. The private key is a secret of the worker; the record names it.
//!
//! Keys are Ed25519 or ECDSA. RSA is left out on purpose: the library's RSA has a known timing weakness (RUSTSEC-2023-0071).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::data::secret::{self, SecretRef};
use russh::client::{self, Handle};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg, Preferred};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::process::{Ending, Process};
use crate::secrets::SecretSource;

/// How long one address may take to answer, and then to let us in.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection that nobody uses is closed after this.
const IDLE: Duration = Duration::from_secs(300);
/// A connection is asked this often whether the other end is there, and is given up after three times without an answer.
const ASKED: Duration = Duration::from_secs(10);
/// Bytes of a stream that wait for their reader.
const BUFFER: usize = 64 << 10;

/// Who is to be reached, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct Reach {
    /// Names or numbers, tried in this order.
    pub addresses: Vec<String>,
    /// The port of all of them.
    #[serde(default = "usual_port")]
    pub port: u16,
    /// As whom.
    #[serde(default = "usual_user")]
    pub user: String,
    /// The secret that has the private key.
    #[serde(deserialize_with = "key")]
    pub key: (String, i64),
    /// The only host key that is taken, as `ssh-keyscan` prints it behind the name: `ssh-ed25519 AAAA...`.
    pub host_key: String,
}

fn usual_port() -> u16 {
    22
}

fn usual_user() -> String {
    "root".to_owned()
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<(String, i64), D::Error> {
    let value = Value::deserialize(from)?;
    let reference = secret::reference(&value);
    let wanted = "key: name a secret, {\"$secret\": \"name\", \"version\": 1}";
    reference.map(|secret| (secret.name, secret.version)).ok_or_else(|| serde::de::Error::custom(wanted))
}

/// Why a node is not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The record has no address.
    #[error("the node's record has no address")]
    NoAddress,
    /// Of each address, what came of trying it.
    #[error("the node is not reached: {}", .0.join("; "))]
    Unreached(Vec<String>),
    /// Somebody answers, and is not who the record says.
    #[error(
        "{address} has the host key {found}, and the node's record has {pinned}: if the machine was set up anew, put its new key into the \
         record; if not, somebody else answers there"
    )]
    OtherHost {
        /// Where.
        address: String,
        /// The fingerprint of what was shown.
        found: String,
        /// The fingerprint of what is pinned.
        pinned: String,
    },
    /// We are not let in.
    #[error(
        "{address} does not let {user} in with the key {key}: put the key's public half into that user's authorized_keys"
    )]
    NotLetIn {
        /// Where.
        address: String,
        /// As whom.
        user: String,
        /// The secret's name.
        key: String,
    },
    /// The private key can't be used.
    #[error("{0}")]
    Key(String),
    /// The host key of the record can't be read.
    #[error("the host key of the node's record can't be read ({0}): it is what ssh-keyscan prints behind the name")]
    HostKey(String),
    /// A connection that was there does not serve any more.
    #[error("the connection to the node broke: {0}")]
    Broken(String),
}

/// Who answers is asked for their key, and for nothing else.
struct Pinned {
    key: PublicKey,
}

/// What happens while a connection is made.
#[derive(Debug, thiserror::Error)]
enum Handshake {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error("another host key: {0}")]
    OtherKey(String),
}

impl client::Handler for Pinned {
    type Error = Handshake;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Handshake> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Err(Handshake::OtherKey("a certificate".to_owned()));
        };
        if key.key_data() == self.key.key_data() {
            return Ok(true);
        }
        Err(Handshake::OtherKey(key.fingerprint(HashAlg::Sha256).to_string()))
    }
}

/// A connection, and the address at which it was made.
struct Open {
    handle: Handle<Pinned>,
    address: String,
}

type Connection = Arc<Open>;
type Slot = Arc<tokio::sync::Mutex<Option<Connection>>>;

/// The connections of a worker, one for each node.
pub struct Connections {
    secrets: Arc<dyn SecretSource>,
    kept: Mutex<HashMap<Reach, Slot>>,
}

impl Connections {
    /// None yet.
    pub fn new(secrets: Arc<dyn SecretSource>) -> Self {
        Self { secrets, kept: Mutex::default() }
    }

    /// Starts a command there.
    ///
    /// # Errors
    /// When nobody is reached; see [`SshError`].
    pub async fn start(&self, reach: &Reach, command: &str) -> Result<Process, SshError> {
        let connection = self.connection(reach).await?;
        match opened(&connection, command).await {
            Ok(process) => Ok(process),
            // As many as the server allows: one more connection, for this command.
            Err(russh::Error::ChannelOpenFailure(_)) => self.start_alone(reach, command).await,
            Err(_) => {
                self.forget(reach, &connection).await;
                let connection = self.connection(reach).await?;
                opened(&connection, command).await.map_err(|error| SshError::Broken(error.to_string()))
            }
        }
    }

    async fn start_alone(&self, reach: &Reach, command: &str) -> Result<Process, SshError> {
        let connection = self.connect(reach).await?;
        opened(&connection, command).await.map_err(|error| SshError::Broken(error.to_string()))
    }

    /// Where the node is connected now; None: it is not.
    pub async fn address(&self, reach: &Reach) -> Option<String> {
        let slot = self.slot(reach);
        let kept = slot.lock().await;
        kept.as_ref().filter(|connection| open(connection)).map(|connection| connection.address.clone())
    }

    /// Gives a node's connection up: it does not serve, whatever it says of itself. The next command makes another.
    pub async fn give_up(&self, reach: &Reach) {
        *self.slot(reach).lock().await = None;
    }

    fn slot(&self, reach: &Reach) -> Slot {
        let Ok(mut kept) = self.kept.lock() else { return Slot::default() };
        // Nodes come and go, and so do their keys.
        kept.retain(|other, slot| {
            other == reach || slot.try_lock().map_or(true, |slot| slot.as_ref().is_some_and(open))
        });
        Arc::clone(kept.entry(reach.clone()).or_default())
    }

    async fn connection(&self, reach: &Reach) -> Result<Connection, SshError> {
        let slot = self.slot(reach);
        // Held while it is made: whoever comes meanwhile has the same one.
        let mut kept = slot.lock().await;
        if let Some(connection) = kept.as_ref().filter(|connection| open(connection)) {
            return Ok(Arc::clone(connection));
        }
        let connection = self.connect(reach).await?;
        *kept = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn forget(&self, reach: &Reach, broken: &Connection) {
        let slot = self.slot(reach);
        let mut kept = slot.lock().await;
        if kept.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, broken)) {
            *kept = None;
        }
    }

    /// Tries each address. Who shows another key, or does not let us in, is the node's answer only when no other address does better.
    async fn connect(&self, reach: &Reach) -> Result<Connection, SshError> {
        let pinned = PublicKey::from_openssh(&reach.host_key).map_err(|error| SshError::HostKey(error.to_string()))?;
        let key = self.private_key(&reach.key).await?;
        let mut graver = None;
        let mut tried = Vec::new();
        for address in &reach.addresses {
            match timeout(2 * CONNECT, connect(address, reach, &pinned, &key)).await {
                Ok(Ok(handle)) => return Ok(Arc::new(Open { handle, address: address.clone() })),
                Ok(Err(SshError::Unreached(why))) => tried.extend(why),
                Ok(Err(other)) => graver = graver.or(Some(other)),
                Err(_) => tried.push(format!("{address}: no answer within {} seconds", 2 * CONNECT.as_secs())),
            }
        }
        Err(match (graver, tried.is_empty()) {
            (Some(graver), _) => graver,
            (None, true) => SshError::NoAddress,
            (None, false) => SshError::Unreached(tried),
        })
    }

    async fn private_key(&self, (name, version): &(String, i64)) -> Result<Arc<PrivateKey>, SshError> {
        let secret = SecretRef { name: name.clone(), version: *version };
        let text = self.secrets.resolve(&secret).await.map_err(SshError::Key)?;
        let key = PrivateKey::from_openssh(&text);
        // What the parser says is about the text, and the text is secret.
        let key =
            key.map_err(|_| SshError::Key(format!("secret {name} version {version} is no OpenSSH private key")))?;
        if key.is_encrypted() {
            return Err(SshError::Key(format!("secret {name} version {version} has a passphrase: take it off")));
        }
        Ok(Arc::new(key))
    }
}

fn open(connection: &Connection) -> bool {
    !connection.handle.is_closed()
}

async fn connect(
    address: &str,
    reach: &Reach,
    pinned: &PublicKey,
    key: &Arc<PrivateKey>,
) -> Result<Handle<Pinned>, SshError> {
    let unreached = |why: &dyn std::fmt::Display| SshError::Unreached(vec![format!("{address}: {why}")]);
    let stream = match timeout(CONNECT, TcpStream::connect((address, reach.port))).await {
        Ok(stream) => stream.map_err(|error| unreached(&error))?,
        Err(_) => return Err(unreached(&format!("no answer within {} seconds", CONNECT.as_secs()))),
    };
    let config = client::Config {
        inactivity_timeout: Some(IDLE),
        keepalive_interval: Some(ASKED),
        keepalive_max: 3,
        nodelay: true,
        // A server has several keys, and shows one of the kind that it is asked for.
        preferred: Preferred { key: Cow::Owned(vec![pinned.algorithm()]), ..Preferred::default() },
        ..client::Config::default()
    };
    let _ = stream.set_nodelay(true);
    let connected = client::connect_stream(Arc::new(config), stream, Pinned { key: pinned.clone() }).await;
    let mut handle = connected.map_err(|error| match error {
        Handshake::OtherKey(found) => SshError::OtherHost {
            address: address.to_owned(),
            found,
            pinned: pinned.fingerprint(HashAlg::Sha256).to_string(),
        },
        Handshake::Ssh(russh::Error::NoCommonAlgo { .. }) => SshError::OtherHost {
            address: address.to_owned(),
            found: format!("none of the kind {}", pinned.algorithm()),
            pinned: pinned.fingerprint(HashAlg::Sha256).to_string(),
        },
        Handshake::Ssh(error) => unreached(&error),
    })?;
    let with = PrivateKeyWithHashAlg::new(Arc::clone(key), None);
    match handle.authenticate_publickey(&reach.user, with).await {
        Ok(result) if result.success() => Ok(handle),
        Ok(_) => {
            Err(SshError::NotLetIn { address: address.to_owned(), user: reach.user.clone(), key: reach.key.0.clone() })
        }
        Err(error) => Err(unreached(&error)),
    }
}

async fn opened(connection: &Connection, command: &str) -> Result<Process, russh::Error> {
    let channel = connection.handle.channel_open_session().await?;
    channel.exec(true, command).await?;
    Ok(attached(channel, Arc::clone(connection)))
}

/// A process out of a channel: two tasks carry its streams, and end when nobody has the process any more.
fn attached(channel: Channel<client::Msg>, connection: Connection) -> Process {
    let (mut from, to) = channel.split();
    let to = Arc::new(to);
    let (stdin, mut typed) = duplex(BUFFER);
    let (mut out, stdout) = duplex(BUFFER);
    let (mut err, stderr) = duplex(BUFFER);
    let (says, ending) = watch::channel(None);
    let closed = CancellationToken::new();

    let writing = (Arc::clone(&to), closed.clone());
    tokio::spawn(async move {
        let (to, closed) = writing;
        let mut into = to.make_writer();
        let copied = tokio::select! {
            copied = tokio::io::copy(&mut typed, &mut into) => copied,
            () = closed.cancelled() => return,
        };
        if copied.is_ok() {
            let _ = into.flush().await;
            let _ = to.eof().await;
        }
    });
    let until = closed.clone();
    tokio::spawn(async move {
        let carried = async {
            while let Some(message) = from.wait().await {
                match message {
                    ChannelMsg::Data { data } => pass(&mut out, &data).await,
                    ChannelMsg::ExtendedData { data, ext: 1 } => pass(&mut err, &data).await,
                    ChannelMsg::ExitStatus { exit_status } => {
                        says.send_replace(Some(Ending::Code(exit_status.cast_signed())));
                    }
                    ChannelMsg::ExitSignal { signal_name, .. } => {
                        says.send_replace(Some(Ending::Killed(format!("signal {signal_name:?}"))));
                    }
                    // The server does not run the command; it said why to nobody.
                    ChannelMsg::Failure => {
                        says.send_replace(Some(Ending::Cut("the node's SSH server runs no commands".to_owned())));
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            () = carried => {}
            () = until.cancelled() => {}
        }
        says.send_if_modified(|ending| {
            let nothing = ending.is_none();
            ending.get_or_insert_with(|| Ending::Cut("it was closed before the command had ended".to_owned()));
            nothing
        });
        let _ = to.close().await;
        drop(connection);
    });
    Process::there([Box::new(stdout), Box::new(stderr)], Box::new(stdin), ending, closed.drop_guard())
}

/// Whoever read this may be gone; the other stream still counts.
async fn pass(into: &mut DuplexStream, data: &[u8]) {
    let _ = into.write_all(data).await;
}

/// A command line that a POSIX shell takes apart into these words again.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = words.into_iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_shell_takes_the_words_apart_again() {
        let words = ["a b", "it's", "", "$HOME `id` \\ \"x\"\nnext", "'"];
        let script = format!("for word in {}; do printf '%s|' \"$word\"; done", quoted(words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words.join("|") + "|");
    }

    #[test]
    fn a_record_names_its_key_and_never_holds_one() {
        let record = |key: Value| json!({"addresses": ["10.0.0.1"], "key": key, "host_key": "ssh-ed25519 AAAA"});
        let reach: Reach =
            serde_json::from_value(record(json!({"$secret": "deploy", "version": 2}))).expect("a record");
        assert_eq!((reach.port, reach.user.as_str(), reach.key), (22, "root", ("deploy".to_owned(), 2)));
        let plain = serde_json::from_value::<Reach>(record(json!("-----BEGIN OPENSSH PRIVATE KEY-----")));
        assert!(plain.unwrap_err().to_string().contains("name a secret"));
    }
}
