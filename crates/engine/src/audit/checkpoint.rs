//! Checkpoints: links of the chain that are signed with a key outside of the database and stored
//! elsewhere.
//!
//! The owner of the database can write another valid chain, but cannot sign it. A verifier compares
//! an export with the checkpoints: the export must have the link that each of them names.
//!
//! The engine has no keys. It defines only the bytes to sign.

use serde::{Deserialize, Serialize};

use crate::Hash;
use crate::canonical;

/// Separates these signatures from all others: every signed message begins with these bytes.
const DOMAIN: &[u8] = b"gantry audit checkpoint 1\n";

/// The end of the chain at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The number of the last entry.
    pub seq: u64,
    /// The link of the last entry.
    pub hash: Hash,
    /// The link of entry 1. It identifies the installation.
    pub installation: Hash,
    /// The number of restores, plus 1.
    pub epoch: i64,
    /// The time of the signature, in RFC 3339.
    pub at: String,
}

/// A signed link; a line of a checkpoint file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub link: Link,
    /// Ed25519 over [`Link::message`], in Base64.
    pub signature: String,
}

impl Link {
    /// The bytes to sign.
    ///
    /// # Errors
    /// Never: these fields always have a canonical form.
    pub fn message(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok([DOMAIN, &canonical::bytes(self)?].concat())
    }
}
