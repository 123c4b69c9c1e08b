//! Checkpoints: links of the chain that are signed with a key outside of the database and stored elsewhere.
//!
//! The owner of the database can write another chain that holds by itself. The owner cannot sign it. A verifier compares an export with
//! the checkpoints: each of them names a link that the export must have.
//!
//! The engine has no keys. It says which bytes are signed; [`Link::message`] begins with a text that no other signature has.

use serde::{Deserialize, Serialize};

use crate::Hash;
use crate::canonical;

/// The first bytes of everything that is signed here.
const DOMAIN: &[u8] = b"gantry audit checkpoint 1\n";

/// A link of the chain at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The number of the last entry.
    pub seq: u64,
    /// Its link.
    pub hash: Hash,
    /// The link of entry 1, which no other installation has.
    pub installation: Hash,
    /// How often a backup was restored, plus 1.
    pub epoch: i64,
    /// When it was signed, in RFC 3339.
    pub at: String,
}

/// A signed link: a line of a file of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// What is signed.
    pub link: Link,
    /// Ed25519 over [`Link::message`], in Base64.
    pub signature: String,
}

impl Link {
    /// The bytes that are signed.
    ///
    /// # Errors
    /// None that these fields could give rise to.
    pub fn message(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok([DOMAIN, &canonical::bytes(self)?].concat())
    }
}
