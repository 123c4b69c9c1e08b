//! How a worker connects to a node, with the validation of each field.
//!
//! The connection decides which machine runs an approved step. It is therefore part of the node's
//! document: hashed, reviewed, and read from there by the worker. The record of a node without a
//! document has the same fields and the same rules. A connection names its key and never contains
//! it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::data::secret::SecretRef;
use crate::text::deceptive_character;

/// Maximum number of addresses per node.
pub const ADDRESSES: usize = 8;
pub const SSH_PORT: u16 = 22;
/// Host key types that workers accept. RSA is not supported.
const KEY_TYPES: [&str; 4] =
    ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"];
/// Maximum lengths of the root folder, the key's name and the host key, in bytes.
const LONGEST: [usize; 3] = [4_096, 200, 2_000];

/// How a worker connects to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum Connection {
    /// A folder on the worker's own machine.
    Local {
        /// The folder that is the node's root.
        root: String,
    },
    /// Another machine, over SSH.
    Ssh(Ssh),
}

/// An SSH connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ssh {
    /// Host names or IP addresses, tried in this order.
    pub addresses: Vec<String>,
    /// The SSH port, 22 by default.
    #[serde(default = "ssh_port")]
    pub port: u16,
    /// The user account on the node.
    pub user: String,
    /// The secret that contains the private key.
    pub key: SecretRef,
    /// The only host key that the worker accepts: its type and the key in base64.
    pub host_key: String,
    /// The folder that is the node's root.
    #[serde(default = "default_root")]
    pub root: String,
}

fn ssh_port() -> u16 {
    SSH_PORT
}

fn default_root() -> String {
    "/".to_owned()
}

/// The connection fields that an edit changes. Omitted fields keep their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionChange {
    /// Host names or IP addresses, tried in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<String>>,
    /// The SSH port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The user account on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The name of the secret that contains the private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The version of that secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_version: Option<i64>,
    /// The only host key that the worker accepts: its type and the key in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// The folder that is the node's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

/// An invalid connection field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ConnectionError {
    pub field: &'static str,
    /// The problem and how to fix it, without a final full stop.
    pub reason: String,
}

fn invalid<T>(field: &'static str, reason: impl Into<String>) -> Result<T, ConnectionError> {
    Err(ConnectionError { field, reason: reason.into() })
}

/// A connection field for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayField {
    pub name: &'static str,
    /// The full value.
    value: String,
    /// The displayed value; a host key is shown as its fingerprint.
    pub shown: String,
}

/// A field in which two connections differ. `None`: that connection does not have the field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    pub name: &'static str,
    pub old: Option<String>,
    pub new: Option<String>,
}

impl Connection {
    /// The transport as the database spells it.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
            Self::Ssh(_) => "ssh",
        }
    }

    /// The node's addresses; empty for a local connection.
    pub fn addresses(&self) -> &[String] {
        match self {
            Self::Local { .. } => &[],
            Self::Ssh(ssh) => &ssh.addresses,
        }
    }

    /// The folder that is the node's root.
    pub fn root(&self) -> &str {
        match self {
            Self::Local { root } => root,
            Self::Ssh(ssh) => &ssh.root,
        }
    }

    /// Validates the connection and returns it in canonical spelling.
    ///
    /// # Errors
    /// [`ConnectionError`] for the first invalid field.
    pub fn checked(self) -> Result<Self, ConnectionError> {
        match self {
            Self::Local { root } => Ok(Self::Local { root: validate_root(&root)? }),
            Self::Ssh(ssh) => Ok(Self::Ssh(Ssh {
                addresses: validate_addresses(&ssh.addresses)?,
                port: validate_port(ssh.port)?,
                user: validate_user(&ssh.user)?,
                key: validate_key(&ssh.key)?,
                host_key: validate_host_key(&ssh.host_key)?,
                root: validate_root(&ssh.root)?,
            })),
        }
    }

    /// All fields for display.
    pub fn fields(&self) -> Vec<DisplayField> {
        let plain = |name, value: String| DisplayField { name, shown: value.clone(), value };
        let mut fields = vec![plain("transport", self.transport().to_owned())];
        if let Self::Ssh(ssh) = self {
            fields.push(plain("addresses", ssh.addresses.join(", ")));
            fields.push(plain("port", ssh.port.to_string()));
            fields.push(plain("user", ssh.user.clone()));
            fields
                .push(plain("key", format!("secret {} version {}", ssh.key.name, ssh.key.version)));
            let key_type = ssh.host_key.split_whitespace().next().unwrap_or_default();
            let shown = match fingerprint(&ssh.host_key) {
                Some(fingerprint) => format!("{key_type} {fingerprint}"),
                None => ssh.host_key.clone(),
            };
            fields.push(DisplayField { name: "host key", value: ssh.host_key.clone(), shown });
        }
        fields.push(plain("root", self.root().to_owned()));
        fields
    }

    /// The fields in which two connections differ.
    pub fn changes(old: Option<&Self>, new: Option<&Self>) -> Vec<FieldChange> {
        let fields = |side: Option<&Self>| side.map(Self::fields).unwrap_or_default();
        let (was, is) = (fields(old), fields(new));
        let names: BTreeSet<&str> = was.iter().chain(&is).map(|field| field.name).collect();
        let order = ["transport", "addresses", "port", "user", "key", "host key", "root"];
        let of =
            |fields: &[DisplayField], name| fields.iter().find(|field| field.name == name).cloned();
        let changed = order.into_iter().filter(|name| names.contains(name)).filter_map(|name| {
            let (old, new) = (of(&was, name), of(&is, name));
            if old == new {
                return None;
            }
            // Two host keys with the same fingerprint are shown in full to make the difference
            // visible.
            let alike = old.as_ref().map(|f| &f.shown) == new.as_ref().map(|f| &f.shown);
            let shown = |field: DisplayField| if alike { field.value } else { field.shown };
            Some(FieldChange { name, old: old.map(shown), new: new.map(shown) })
        });
        changed.collect()
    }

    /// The connection on one line: `ssh root@10.0.0.1:22, key secret deploy/ssh version 1, host key
    /// ssh-ed25519 SHA256:..., root /`.
    pub fn line(&self) -> String {
        let Self::Ssh(ssh) = self else { return format!("local, root {}", self.root()) };
        let addresses: Vec<String> = ssh
            .addresses
            .iter()
            .map(|address| format!("{}@{}:{}", ssh.user, bracketed(address), ssh.port))
            .collect();
        let fields = self.fields();
        let behind =
            fields.iter().filter(|field| matches!(field.name, "key" | "host key" | "root"));
        let behind: String =
            behind.map(|field| format!(", {} {}", field.name, field.shown)).collect();
        format!("ssh {}{behind}", addresses.join(" or "))
    }
}

/// Puts an IPv6 address in brackets so that a port can follow.
fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

impl From<&Connection> for ConnectionChange {
    fn from(connection: &Connection) -> Self {
        let root = Some(connection.root().to_owned());
        let Connection::Ssh(ssh) = connection else { return Self { root, ..Self::default() } };
        Self {
            addresses: Some(ssh.addresses.clone()),
            port: Some(ssh.port),
            user: Some(ssh.user.clone()),
            key: Some(ssh.key.name.clone()),
            key_version: Some(ssh.key.version),
            host_key: Some(ssh.host_key.clone()),
            root,
        }
    }
}

impl ConnectionChange {
    /// Whether it changes no field.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Combines two changes; this one overrides the earlier one.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        Self {
            addresses: self.addresses.or(earlier.addresses),
            port: self.port.or(earlier.port),
            user: self.user.or(earlier.user),
            key: self.key.or(earlier.key),
            key_version: self.key_version.or(earlier.key_version),
            host_key: self.host_key.or(earlier.host_key),
            root: self.root.or(earlier.root),
        }
    }

    /// Validates the change and returns it in canonical spelling.
    ///
    /// # Errors
    /// [`ConnectionError`] for the first invalid field.
    pub fn checked(&self) -> Result<Self, ConnectionError> {
        Ok(Self {
            addresses: self.addresses.as_deref().map(validate_addresses).transpose()?,
            port: self.port.map(validate_port).transpose()?,
            user: self.user.as_deref().map(validate_user).transpose()?,
            key: self
                .key
                .clone()
                .map(|name| validate_key(&SecretRef { name, version: 1 }))
                .transpose()?
                .map(|key| key.name),
            key_version: self
                .key_version
                .map(|version| {
                    validate_key(&SecretRef { name: "any".into(), version }).map(|key| key.version)
                })
                .transpose()?,
            host_key: self.host_key.as_deref().map(validate_host_key).transpose()?,
            root: self.root.as_deref().map(validate_root).transpose()?,
        })
    }

    /// Applies the change to a connection. Without one, the change must set every field.
    ///
    /// # Errors
    /// [`ConnectionError`] if a field is missing or does not exist for the transport.
    pub fn apply(&self, base: Option<&Connection>) -> Result<Connection, ConnectionError> {
        let has_ssh_fields = self.addresses.is_some()
            || self.port.is_some()
            || self.user.is_some()
            || self.key.is_some()
            || self.key_version.is_some()
            || self.host_key.is_some();
        let ssh = match base {
            Some(Connection::Local { root }) if !has_ssh_fields => {
                return Connection::Local {
                    root: self.root.clone().unwrap_or_else(|| root.clone()),
                }
                .checked();
            }
            Some(Connection::Local { .. }) => {
                return invalid(
                    "connection",
                    "The node is a folder on the workers' machine, so only its root can change. \
                     Add an SSH machine as another node",
                );
            }
            None if !has_ssh_fields => {
                let Some(root) = &self.root else { return invalid("root", "Name the folder") };
                return Connection::Local { root: root.clone() }.checked();
            }
            Some(Connection::Ssh(ssh)) => Some(ssh),
            None => None,
        };
        fn new_or_current<T: Clone>(
            field: &'static str,
            new: Option<&T>,
            old: Option<&T>,
        ) -> Result<T, ConnectionError> {
            match new.or(old) {
                Some(value) => Ok(value.clone()),
                None => invalid(field, "The node has no connection yet. Name every field"),
            }
        }
        Connection::Ssh(Ssh {
            addresses: new_or_current(
                "addresses",
                self.addresses.as_ref(),
                ssh.map(|ssh| &ssh.addresses),
            )?,
            port: self.port.or(ssh.map(|ssh| ssh.port)).unwrap_or(SSH_PORT),
            user: new_or_current("user", self.user.as_ref(), ssh.map(|ssh| &ssh.user))?,
            key: SecretRef {
                name: new_or_current("key", self.key.as_ref(), ssh.map(|ssh| &ssh.key.name))?,
                version: self.key_version.or(ssh.map(|ssh| ssh.key.version)).unwrap_or(1),
            },
            host_key: new_or_current(
                "host_key",
                self.host_key.as_ref(),
                ssh.map(|ssh| &ssh.host_key),
            )?,
            root: self
                .root
                .clone()
                .or_else(|| ssh.map(|ssh| ssh.root.clone()))
                .unwrap_or_else(default_root),
        })
        .checked()
    }

    /// The changed fields with their new values as JSON.
    pub fn fields(&self) -> Vec<(String, String)> {
        let written = serde_json::to_value(self).unwrap_or_default();
        let fields = written.as_object().into_iter().flatten();
        fields.map(|(name, value)| (name.clone(), value.to_string())).collect()
    }
}

/// The SHA-256 fingerprint of a public key, as `ssh-keygen -l` prints it. `None` if the text is not
/// a public key.
pub fn fingerprint(key: &str) -> Option<String> {
    let blob = STANDARD.decode(key.split_whitespace().nth(1)?).ok()?;
    Some(format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob))))
}

/// Returns an address in canonical spelling: an IP address in its shortest form, a host name in
/// lower case. A zone after `%` is unchanged.
pub fn canonical_address(address: &str) -> String {
    let (host, zone) = address.split_at(address.find('%').unwrap_or(address.len()));
    let host = host
        .parse::<IpAddr>()
        .map_or_else(|_| host.to_ascii_lowercase(), |ip| ip.to_canonical().to_string());
    host + zone
}

fn validate_addresses(addresses: &[String]) -> Result<Vec<String>, ConnectionError> {
    if addresses.is_empty() || addresses.len() > ADDRESSES {
        return invalid(
            "addresses",
            format!(
                "Name 1 to {ADDRESSES} host names or IP addresses, in the order in which to try \
                 them"
            ),
        );
    }
    if let Some(other) = addresses.iter().find(|address| !is_address(address)) {
        return invalid("addresses", format!("{other:?} is neither a host name nor an IP address"));
    }
    let canonical: Vec<String> =
        addresses.iter().map(|address| canonical_address(address)).collect();
    let duplicate =
        canonical.iter().enumerate().find(|(at, address)| canonical[..*at].contains(address));
    match duplicate {
        Some((_, duplicate)) => {
            invalid("addresses", format!("{duplicate} is listed twice. Name it once"))
        }
        None => Ok(canonical),
    }
}

fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '%' | '_');
    let host = text.split('%').next().unwrap_or_default();
    // Resolvers read `127.1` and `0x7f000001` as IP addresses, but people read them as names.
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = match hex {
        Some(digits) => digits.chars().all(|c| c.is_ascii_hexdigit()),
        None => !last.is_empty() && last.chars().all(|c| c.is_ascii_digit()),
    };
    !text.is_empty()
        && text.len() <= 253
        && !text.starts_with('-')
        && text.chars().all(plain)
        && (!is_number || host.parse::<IpAddr>().is_ok())
}

fn validate_port(port: u16) -> Result<u16, ConnectionError> {
    if port == 0 {
        invalid("port", "Port 0 is invalid. SSH usually listens on port 22")
    } else {
        Ok(port)
    }
}

fn validate_user(user: &str) -> Result<String, ConnectionError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '\\');
    if user.is_empty() || user.len() > 64 || user.starts_with('-') || !user.chars().all(plain) {
        return invalid("user", format!("{:?} is not a valid user name", crate::text::shown(user)));
    }
    Ok(user.to_owned())
}

fn validate_key(key: &SecretRef) -> Result<SecretRef, ConnectionError> {
    if key.parts().is_none() || key.version < 1 || key.name.len() > LONGEST[1] {
        return invalid(
            "key",
            "Give the name of the secret that has the private key, and its version (at least 1). The \
             name is that of its folder in the secrets folder of the workers",
        );
    }
    Ok(key.clone())
}

fn validate_host_key(text: &str) -> Result<String, ConnectionError> {
    let mut words = text.split_whitespace();
    let key_type = words.next().filter(|word| KEY_TYPES.contains(word));
    let base64 = |key: &&str| {
        key.len() >= 60
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '='))
    };
    match (key_type, words.next().filter(base64)) {
        // The comment after the key is dropped.
        (Some(key_type), Some(key)) if text.len() <= LONGEST[2] => Ok(format!("{key_type} {key}")),
        _ => invalid(
            "host_key",
            format!(
                "Give the host's public key as `ssh-keyscan -t ed25519 HOST` prints it, without \
                 the host name: the type and the key. The type must be one of {}. Workers accept \
                 no other key",
                KEY_TYPES.join(", ")
            ),
        ),
    }
}

fn validate_root(root: &str) -> Result<String, ConnectionError> {
    let root = match root.trim() {
        "" => "/",
        root => root,
    };
    let leads_up = root.split('/').any(|part| part == "..");
    if !root.starts_with('/')
        || root.len() > LONGEST[0]
        || leads_up
        || deceptive_character(root).is_some()
    {
        return invalid(
            "root",
            "Give an absolute path without '..', or leave it out to use the whole machine",
        );
    }
    Ok(root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST_KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";

    fn ssh() -> Ssh {
        Ssh {
            addresses: vec!["10.0.0.1".into()],
            port: 22,
            user: "root".into(),
            key: SecretRef { name: "deploy/ssh".into(), version: 1 },
            host_key: HOST_KEY.into(),
            root: "/".into(),
        }
    }

    #[test]
    fn connection_is_canonicalized() {
        let written = Ssh {
            addresses: vec![
                "N1.Example.com".into(),
                "::ffff:10.0.0.1".into(),
                "fe80::1%eth0".into(),
            ],
            host_key: format!("{HOST_KEY} root@n1"),
            root: String::new(),
            ..ssh()
        };
        let checked = Connection::Ssh(written).checked().unwrap();
        assert_eq!(checked.addresses(), ["n1.example.com", "10.0.0.1", "fe80::1%eth0"]);
        assert_eq!(checked.root(), "/");
        assert!(matches!(&checked, Connection::Ssh(ssh) if ssh.host_key == HOST_KEY));
    }

    #[test]
    fn invalid_connection_field_is_named() {
        let bad: [(&str, Ssh); 9] = [
            ("addresses", Ssh { addresses: vec![], ..ssh() }),
            ("addresses", Ssh { addresses: vec!["-oProxyCommand=x".into()], ..ssh() }),
            (
                "addresses",
                Ssh { addresses: vec!["10.0.0.1".into(), "::ffff:10.0.0.1".into()], ..ssh() },
            ),
            ("port", Ssh { port: 0, ..ssh() }),
            ("user", Ssh { user: "root; true".into(), ..ssh() }),
            ("key", Ssh { key: SecretRef { name: "../x".into(), version: 1 }, ..ssh() }),
            ("host_key", Ssh { host_key: "ssh-rsa AAAA".into(), ..ssh() }),
            ("root", Ssh { root: "/srv/../etc".into(), ..ssh() }),
            ("root", Ssh { root: "/srv/a\u{202e}b".into(), ..ssh() }),
        ];
        for (field, bad) in bad {
            assert_eq!(Connection::Ssh(bad).checked().unwrap_err().field, field);
        }
    }

    #[test]
    fn fingerprint_matches_ssh_keygen() {
        // As printed by `ssh-keygen -lf`.
        assert_eq!(
            fingerprint(HOST_KEY).unwrap(),
            "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"
        );
        assert_eq!(fingerprint("ssh-ed25519 no!base64"), None);
        assert_eq!(fingerprint(""), None);
    }

    #[test]
    fn line_contains_every_reviewed_field() {
        assert_eq!(
            Connection::Ssh(ssh()).line(),
            "ssh root@10.0.0.1:22, key secret deploy/ssh version 1, host key ssh-ed25519 \
             SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU, root /"
        );
        assert_eq!(Connection::Local { root: "/srv/n1".into() }.line(), "local, root /srv/n1");
    }

    #[test]
    fn partial_change_requires_existing_connection() {
        let change = ConnectionChange { user: Some("ops".into()), ..ConnectionChange::default() };
        assert_eq!(change.apply(None).unwrap_err().field, "addresses");
        let local = Connection::Local { root: "/srv/n1".into() };
        assert_eq!(change.apply(Some(&local)).unwrap_err().field, "connection");
        let whole = change.apply(Some(&Connection::Ssh(ssh()))).unwrap();
        assert_eq!(whole, Connection::Ssh(Ssh { user: "ops".into(), ..ssh() }));
    }

    #[test]
    fn host_keys_with_equal_fingerprint_are_distinguished() {
        let with = |host_key: &str| Connection::Ssh(Ssh { host_key: host_key.into(), ..ssh() });
        let changes =
            Connection::changes(Some(&with("ssh-ed25519 !")), Some(&with("ssh-ed25519  !")));
        assert_eq!(changes.len(), 1);
    }

    proptest! {
        #[test]
        fn changes_list_every_changed_field(
            port in 1..4_u16, user in "[ab]", version in 1..3_i64, root in "/[ab]", address in "[ab]", key in "[AB]{60}",
        ) {
            let new = Connection::Ssh(Ssh {
                addresses: vec![address], port, user, key: SecretRef { name: "k".into(), version },
                host_key: format!("ssh-ed25519 {key}"), root,
            });
            let old = Connection::Ssh(Ssh {
                addresses: vec!["a".into()], port: 1, user: "a".into(), key: SecretRef { name: "k".into(), version: 1 },
                host_key: format!("ssh-ed25519 {}", "A".repeat(60)), root: "/a".into(),
            });
            let changes = Connection::changes(Some(&old), Some(&new));
            prop_assert_eq!(changes.is_empty(), old == new);
            prop_assert!(changes.iter().all(|change| change.old != change.new));
            let back = Connection::changes(Some(&new), Some(&old));
            prop_assert_eq!(back.len(), changes.len());
            prop_assert_eq!(serde_json::from_value::<Connection>(serde_json::to_value(&new).unwrap()).unwrap(), new);
        }
    }
}
