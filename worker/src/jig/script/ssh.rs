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
//! A node has several addresses, and is there when one of them lets us in. They are tried one beside the other, each a moment after the one
//! before and at once when that has failed, and each for as long as it may take, whatever the others do: so addresses that swallow
//! packets don't keep one that answers from being tried. The one that let us in last goes first, and one that let us in and then said
//! nothing more goes last. What came of each is kept until addresses are tried again.
//!
//! A connection is no permission for ever. New commands use one only for some minutes ([`GREATEST_AGE`]), then another has to be let in;
//! and only while the worker still has the key that it was made with. What runs on an old one goes on there.
//!
//! Keys are Ed25519 or ECDSA. RSA is left out on purpose: the library's RSA has a known timing weakness (RUSTSEC-2023-0071).

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

/// How long one address may take until anybody answers there.
const ANSWERS: Duration = Duration::from_secs(5);
/// How long one address may take until it has let us in.
const LETS_IN: Duration = Duration::from_secs(15);
/// The next address is tried so long after the one before, if that is not through yet.
const APART: Duration = Duration::from_secs(1);
/// How long a connection is used for new commands. So long a key that was taken out of `authorized_keys` still lets in.
pub const GREATEST_AGE: Duration = Duration::from_secs(300);
/// How long it is remembered of a node that is not connected which address answered.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// A connection that nobody uses is closed after this.
const IDLE: Duration = Duration::from_secs(300);
/// A connection is asked this often whether the other end is there, and is given up after three times without an answer.
const ASKED: Duration = Duration::from_secs(10);
/// Bytes of a stream that wait for their reader.
const BUFFER: usize = 64 << 10;

/// Who is to be reached, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct Reach {
    /// Names or numbers, tried in this order, but for what is known of them.
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
    reference
        .map(|secret| (secret.name, secret.version))
        .ok_or_else(|| serde::de::Error::custom(wanted))
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
    /// Workers do not connect to this address.
    #[error("{address}: {why}")]
    Refused {
        /// Which.
        address: String,
        /// The rule.
        why: engine::reach::Refused,
    },
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
    #[error(
        "the host key of the node's record can't be read ({0}): it is what ssh-keyscan prints behind the name"
    )]
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

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Handshake> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Err(Handshake::OtherKey("a certificate".to_owned()));
        };
        if key.key_data() == self.key.key_data() {
            return Ok(true);
        }
        Err(Handshake::OtherKey(key.fingerprint(HashAlg::Sha256).to_string()))
    }
}

/// A connection, and how it was made.
struct Open {
    handle: Handle<Pinned>,
    address: String,
    key: Arc<PrivateKey>,
    made: Instant,
}

type Connection = Arc<Open>;
type Slot = Arc<tokio::sync::Mutex<Kept>>;

/// What is known of the way to a node.
#[derive(Default)]
struct Kept {
    connection: Option<Connection>,
    /// Where we were let in last.
    answered: Option<String>,
    /// Where we were let in, and nothing came any more.
    silent: Option<String>,
    tries: Option<Tries>,
}

/// What came of it when addresses were tried last.
struct Tries {
    ended: Instant,
    each: Vec<Tried>,
    failed: Option<SshError>,
}

/// An address that was tried.
#[derive(Debug, Clone)]
struct Tried {
    address: TriedAddress,
    /// Whether what is said of it reveals whether and what something listens there.
    reveals: bool,
}

impl Kept {
    fn usable(&self, key: &PrivateKey, greatest_age: Duration) -> Option<Connection> {
        let connection = self.connection.as_ref().filter(|connection| open(connection))?;
        let same_key = connection.key.public_key().key_data() == key.public_key().key_data();
        (same_key && connection.made.elapsed() < greatest_age).then(|| Arc::clone(connection))
    }

    /// Why nobody was reached, if that was found out since then: who waited for it need not find it out again.
    fn failed_since(&self, since: Instant) -> Option<SshError> {
        self.tries.as_ref().filter(|tries| tries.ended >= since)?.failed.clone()
    }

    /// The order in which addresses are tried.
    fn order(&self, addresses: &[String]) -> Vec<String> {
        let mut order = addresses.to_vec();
        order.sort_by_key(|address| match Some(address) {
            address if address == self.silent.as_ref() => 2,
            address if address == self.answered.as_ref() => 0,
            _ => 1,
        });
        order
    }

    fn note(&mut self, each: Vec<Tried>, came: &Result<Connection, SshError>) {
        if let Ok(connection) = came {
            self.answered = Some(connection.address.clone());
            self.silent.take_if(|silent| *silent == connection.address);
        }
        self.connection = came.as_ref().ok().cloned();
        self.tries =
            Some(Tries { ended: Instant::now(), each, failed: came.as_ref().err().cloned() });
    }

    fn is_remembered(&self) -> bool {
        let tried = self.tries.as_ref().is_some_and(|tries| tries.ended.elapsed() < REMEMBERED);
        tried || self.connection.as_ref().is_some_and(open)
    }
}

/// The connections of a worker, one for each node.
pub struct Connections {
    secrets: Arc<dyn SecretSource>,
    reachable: Reachable,
    greatest_age: Duration,
    kept: Mutex<HashMap<Reach, Slot>>,
}

impl Connections {
    /// None yet.
    pub fn new(secrets: Arc<dyn SecretSource>, reachable: Reachable) -> Self {
        Self { secrets, reachable, greatest_age: GREATEST_AGE, kept: Mutex::default() }
    }

    /// With another age than [`GREATEST_AGE`].
    #[must_use]
    pub fn no_older_than(self, greatest_age: Duration) -> Self {
        Self { greatest_age, ..self }
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
                opened(&connection, command)
                    .await
                    .map_err(|error| SshError::Broken(error.to_string()))
            }
        }
    }

    async fn start_alone(&self, reach: &Reach, command: &str) -> Result<Process, SshError> {
        let key = self.private_key(&reach.key).await?;
        let order = self.slot(reach).lock().await.order(&reach.addresses);
        let (_, came) = self.connect(order, reach, &key).await;
        opened(&came?, command).await.map_err(|error| SshError::Broken(error.to_string()))
    }

    /// Sees to it that there is a connection; gives the address that it is made to. However many addresses there are, it takes no longer
    /// than half a minute once nobody else is at it.
    ///
    /// # Errors
    /// When nobody is reached; see [`SshError`].
    pub async fn reach(&self, reach: &Reach) -> Result<String, SshError> {
        Ok(self.connection(reach).await?.address.clone())
    }

    /// What came of each address that was tried since then; where none had to be tried, of the one that we are connected to.
    pub async fn tried(&self, reach: &Reach, since: Instant) -> Vec<TriedAddress> {
        let slot = self.slot(reach);
        let kept = slot.lock().await;
        if let Some(tries) = kept.tries.as_ref().filter(|tries| tries.ended >= since) {
            return tries.each.iter().map(|tried| tried.address.clone()).collect();
        }
        let connected = kept.connection.iter().filter(|connection| open(connection));
        connected.map(|connection| let_in(&connection.address)).collect()
    }

    /// The addresses that were tried since then of which [`Self::tried`] says whether and what something listens there.
    pub async fn revealing(&self, reach: &Reach, since: Instant) -> Vec<String> {
        let slot = self.slot(reach);
        let kept = slot.lock().await;
        let tries = kept.tries.iter().filter(|tries| tries.ended >= since);
        let revealing = tries.flat_map(|tries| &tries.each).filter(|tried| tried.reveals);
        revealing.map(|tried| tried.address.address.clone()).collect()
    }

    /// Gives a node's connection up: it does not serve, whatever it says of itself. The next command makes another, and elsewhere if
    /// there is another address.
    pub async fn give_up(&self, reach: &Reach, why: &str) {
        let slot = self.slot(reach);
        let mut kept = slot.lock().await;
        let Some(connection) = kept.connection.take() else { return };
        let address = &connection.address;
        kept.answered.take_if(|answered| answered == address);
        kept.silent = Some(address.clone());
        let said = format!("it let us in, and then nothing came: {why}");
        let each = vec![Tried {
            address: TriedAddress { address: address.clone(), reached: false, said },
            reveals: false,
        }];
        kept.tries = Some(Tries { ended: Instant::now(), each, failed: None });
    }

    fn slot(&self, reach: &Reach) -> Slot {
        let Ok(mut kept) = self.kept.lock() else { return Slot::default() };
        // Nodes come and go, and so do their keys.
        kept.retain(|other, slot| {
            other == reach || slot.try_lock().map_or(true, |slot| slot.is_remembered())
        });
        Arc::clone(kept.entry(reach.clone()).or_default())
    }

    async fn connection(&self, reach: &Reach) -> Result<Connection, SshError> {
        let slot = self.slot(reach);
        let asked = Instant::now();
        // Held while it is made: whoever comes meanwhile has the same one.
        let mut kept = slot.lock().await;
        // Read anew for each command: who takes the file away wants us out.
        let key = match self.private_key(&reach.key).await {
            Ok(key) => key,
            Err(error) => {
                kept.connection = None;
                return Err(error);
            }
        };
        if let Some(connection) = kept.usable(&key, self.greatest_age) {
            return Ok(connection);
        }
        if let Some(error) = kept.failed_since(asked) {
            return Err(error);
        }
        let (each, came) = self.connect(kept.order(&reach.addresses), reach, &key).await;
        kept.note(each, &came);
        came
    }

    /// Tries addresses until one lets us in; gives what came of each, and what that amounts to.
    async fn connect(
        &self,
        addresses: Vec<String>,
        reach: &Reach,
        key: &Arc<PrivateKey>,
    ) -> (Vec<Tried>, Result<Connection, SshError>) {
        let pinned = match PublicKey::from_openssh(&reach.host_key) {
            Ok(pinned) => pinned,
            Err(error) => return (Vec::new(), Err(SshError::HostKey(error.to_string()))),
        };
        let (pinned, reachable) = (&pinned, &self.reachable);
        let (each, entered) = first_in(addresses, APART, move |address| async move {
            let heard = Heard::default();
            match timeout(LETS_IN, enter(&address, reachable, reach, pinned, key, &heard)).await {
                Ok(came) => came,
                Err(_) => Err(SshError::Unreached(vec![format!(
                    "{address}: {}",
                    heard.too_late(reach.port, LETS_IN)
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
        // What the parser says is about the text, and the text is secret.
        let key = key.map_err(|_| {
            SshError::Key(format!("secret {name} version {version} is no OpenSSH private key"))
        })?;
        if key.is_encrypted() {
            return Err(SshError::Key(format!(
                "secret {name} version {version} has a passphrase: take it off"
            )));
        }
        Ok(Arc::new(key))
    }
}

fn let_in(address: &str) -> TriedAddress {
    TriedAddress { address: address.to_owned(), reached: true, said: String::new() }
}

/// What came of one address.
enum Came {
    LetIn,
    /// Another let us in meanwhile.
    NotYet,
    Failed(SshError),
}

impl Came {
    fn tried(&self, address: &str) -> Tried {
        let said = match self {
            Self::LetIn => return Tried { address: let_in(address), reveals: false },
            Self::NotYet => {
                "nothing had come from there yet when another address let us in".to_owned()
            }
            Self::Failed(SshError::Unreached(whys)) => whys.join("; "),
            Self::Failed(error) => error.to_string(),
        };
        // The address stands beside it.
        let said = said.strip_prefix(&format!("{address}: ")).unwrap_or(&said).to_owned();
        // Who proved to have the host key of the record is who we want; a rule speaks of the record alone.
        let reveals =
            !matches!(self, Self::Failed(SshError::NotLetIn { .. } | SshError::Refused { .. }));
        Tried {
            address: TriedAddress { address: address.to_owned(), reached: false, said },
            reveals,
        }
    }
}

/// What it amounts to that no address let us in.
fn all_of(each: Vec<(String, Came)>) -> SshError {
    let failed = |came| if let Came::Failed(error) = came { Some(error) } else { None };
    let mut errors: Vec<SshError> = each.into_iter().filter_map(|(_, came)| failed(came)).collect();
    if errors.len() < 2 {
        return errors.pop().unwrap_or(SshError::NoAddress);
    }
    // Who answers, and is not who we want or does not want us, says more than silence does.
    errors.sort_by_key(|error| matches!(error, SshError::Unreached(_)));
    let whys = errors.into_iter().flat_map(|error| match error {
        SshError::Unreached(whys) => whys,
        other => vec![other.to_string()],
    });
    SshError::Unreached(whys.collect())
}

/// Tries addresses beside each other until one of them has us; gives what came of each that was tried, in this order.
async fn first_in<T, F>(
    addresses: Vec<String>,
    apart: Duration,
    enter: impl Fn(String) -> F,
) -> (Vec<(String, Came)>, Option<(String, T)>)
where
    F: Future<Output = Result<T, SshError>>,
{
    let mut each: Vec<(String, Came)> = Vec::with_capacity(addresses.len());
    let mut waiting = addresses.into_iter();
    let mut under_way = FuturesUnordered::new();
    let mut next = Instant::now();
    loop {
        let all_begun = waiting.len() == 0;
        tokio::select! {
            Some(ended) = under_way.next() => {
                let (place, came): (usize, Result<T, SshError>) = ended;
                match came {
                    Ok(entered) => {
                        each[place].1 = Came::LetIn;
                        let address = each[place].0.clone();
                        return (each, Some((address, entered)));
                    }
                    Err(error) => each[place].1 = Came::Failed(error),
                }
                next = Instant::now();
            }
            () = sleep_until(next), if !all_begun => {
                let Some(address) = waiting.next() else { continue };
                let (place, entering) = (each.len(), enter(address.clone()));
                each.push((address, Came::NotYet));
                under_way.push(async move { (place, entering.await) });
                next = Instant::now() + apart;
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
        |why: &dyn std::fmt::Display| SshError::Unreached(vec![format!("{address}: {why}")]);
    let stream = match timeout(ANSWERS, reachable.connect(address, reach.port)).await {
        Ok(stream) => stream.map_err(|error| match error {
            ConnectError::Refused(why) => SshError::Refused { address: address.to_owned(), why },
            ConnectError::Failed(error) => unreached(&error),
        })?,
        Err(_) => {
            return Err(unreached(&format!("no answer within {} seconds", ANSWERS.as_secs())));
        }
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
    let stream = Listened { stream, heard: heard.clone() };
    let connected =
        client::connect_stream(Arc::new(config), stream, Pinned { key: pinned.clone() }).await;
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
        Handshake::Ssh(error) => unreached(&heard.failed(reach.port, &error)),
    })?;
    let with = PrivateKeyWithHashAlg::new(Arc::clone(key), None);
    match handle.authenticate_publickey(&reach.user, with).await {
        Ok(result) if result.success() => Ok(handle),
        Ok(_) => Err(SshError::NotLetIn {
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
                        says.send_replace(Some(Ending::Cut(
                            "the node's SSH server runs no commands".to_owned(),
                        )));
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
            ending.get_or_insert_with(|| {
                Ending::Cut("it was closed before the command had ended".to_owned())
            });
            nothing
        });
        let _ = to.close().await;
        drop(connection);
    });
    Process::there(
        [Box::new(stdout), Box::new(stderr)],
        Box::new(stdin),
        ending,
        closed.drop_guard(),
    )
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
    use api::limits::ADDRESSES;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shell_takes_the_words_apart_again() {
        let words = ["a b", "it's", "", "$HOME `id` \\ \"x\"\nnext", "'"];
        let script = format!("for word in {}; do printf '%s|' \"$word\"; done", quoted(words));
        let output =
            std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words.join("|") + "|");
    }

    /// Seven addresses swallow what is sent to them; the eighth answers.
    #[tokio::test]
    async fn addresses_that_say_nothing_keep_none_from_being_tried() {
        let addresses: Vec<String> = (1..=ADDRESSES).map(|number| number.to_string()).collect();
        let last = addresses.last().cloned().unwrap_or_default();
        let (each, entered) = first_in(addresses, Duration::from_millis(1), |address| {
            let last = last.clone();
            async move { if address == last { Ok(address) } else { std::future::pending().await } }
        })
        .await;
        assert_eq!(entered.map(|(address, _)| address), Some(last));
        assert_eq!(each.len(), ADDRESSES);
        assert!(each[..ADDRESSES - 1].iter().all(|(_, came)| matches!(came, Came::NotYet)));
        let longest = APART * u32::try_from(ADDRESSES).expect("few") + LETS_IN;
        assert!(longest < Duration::from_secs(30), "what reach() promises");
    }

    #[tokio::test]
    async fn one_that_fails_is_no_reason_to_wait() {
        let fails = |address| async move {
            Err::<(), _>(SshError::Unreached(vec![format!("{address}: no")]))
        };
        let never = Duration::from_secs(1 << 20);
        let (each, entered) =
            first_in(vec!["a".into(), "b".into(), "c".into()], never, fails).await;
        assert!(entered.is_none());
        assert_eq!(all_of(each).to_string(), "the node is not reached: a: no; b: no; c: no");
        assert_eq!(all_of(Vec::new()), SshError::NoAddress);
    }

    #[test]
    fn a_record_names_its_key_and_never_holds_one() {
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
        assert!(plain.unwrap_err().to_string().contains("name a secret"));
    }
}
