//! Canonical JSON and content hashes.
//!
//! A document's identity is the SHA-256 of its canonical bytes (RFC 8785). The database stores and
//! checks exactly these bytes. So two planners with the same result store the same object, and
//! blueprints differ where their hashes differ. The content of an approved hash cannot be replaced.
//!
//! Reconfigurator stores blueprints in some sixteen tables, with torn reads and full copies.
//! Documents share their unchanged parts, so a blueprint costs only its changes.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// The SHA-256 of an object's bytes. Text and JSON use lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// `None` unless there are exactly 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The first eight hexadecimal digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl Hash {
    /// Faster than one `write!` for each byte: a root names thousands of hashes.
    fn with_digits<T>(&self, then: impl FnOnce(&str) -> T) -> T {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        then(std::str::from_utf8(&digits).unwrap_or_default())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_digits(|digits| f.write_str(digits))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("A hash must have 64 lowercase hexadecimal digits")]
pub struct ParseHashError;

impl FromStr for Hash {
    type Err = ParseHashError;
    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseHashError);
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(ParseHashError),
        };
        let mut bytes = [0u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_digits(|digits| serializer.serialize_str(digits))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The canonical bytes of a value.
///
/// # Errors
/// If JSON cannot represent the value: map keys that are not text, numbers that are not finite. The
/// engine's own documents have neither.
pub fn bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json_canonicalizer::to_vec(value)
}

/// The hash of a value's canonical bytes. Errors as in [`bytes`].
pub fn hash<T: Serialize>(value: &T) -> Result<Hash, serde_json::Error> {
    bytes(value).map(|bytes| Hash::of_bytes(&bytes))
}

/// Kind of a stored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// The root of a blueprint.
    Root,
    /// Deployment document.
    Deployment,
    /// Node document.
    Node,
    /// A barclamp of the catalog.
    Barclamp,
    /// A role of the catalog.
    Role,
    /// The bytes of a script or template that a role runs.
    Script,
    /// Approval policy.
    Policy,
}

impl ObjectKind {
    /// The value of the database's `kind` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Deployment => "deployment",
            Self::Node => "node",
            Self::Barclamp => "barclamp",
            Self::Role => "role",
            Self::Script => "script",
            Self::Policy => "policy",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub hash: Hash,
    pub kind: ObjectKind,
    pub body: Vec<u8>,
}

impl Object {
    pub fn of_bytes(kind: ObjectKind, body: Vec<u8>) -> Self {
        Self { hash: Hash::of_bytes(&body), kind, body }
    }

    /// Hashes a value's canonical bytes. Errors as in [`bytes`].
    pub fn of<T: Serialize>(kind: ObjectKind, value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::of_bytes(kind, bytes(value)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hash_ignores_key_order_and_white_space() {
        let one: serde_json::Value =
            serde_json::from_str(r#"{"b": 1.0, "a": [true, null]}"#).unwrap();
        let two: serde_json::Value = serde_json::from_str(r#"{"a":[true,null],"b":1}"#).unwrap();
        assert_eq!(hash(&one).unwrap(), hash(&two).unwrap());
        assert_eq!(bytes(&one).unwrap(), br#"{"a":[true,null],"b":1}"#);
        assert_ne!(hash(&one).unwrap(), hash(&json!({"a": [true, null], "b": 2})).unwrap());
    }

    #[test]
    fn hash_round_trips_and_invalid_text_is_rejected() {
        let hash = Hash::of_bytes(b"gantry");
        assert_eq!(hash.to_string().parse::<Hash>().unwrap(), hash);
        for text in ["", "abc", &"G".repeat(64), &"A".repeat(64)] {
            assert!(text.parse::<Hash>().is_err());
        }
    }
}
