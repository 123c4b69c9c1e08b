//! Addresses and credentials of a node that is reached over SSH.

use engine::data::secret;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Address and credentials of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct SshEndpoint {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_record_with_private_key_is_rejected() {
        let record = |key: Value| {
            json!(
                {"addresses": ["10.0.0.1"], "key": key, "host_key": "ssh-ed25519 AAAA"}
            )
        };
        let endpoint: SshEndpoint =
            serde_json::from_value(record(json!({"$secret": "deploy", "version": 2})))
                .expect("a record");
        assert_eq!(
            (endpoint.port, endpoint.user.as_str(), endpoint.key),
            (22, "root", ("deploy".to_owned(), 2))
        );
        let plain = serde_json::from_value::<SshEndpoint>(record(json!(
            "-----BEGIN OPENSSH PRIVATE KEY-----"
        )));
        assert!(plain.unwrap_err().to_string().contains("must name a secret"));
    }
}
