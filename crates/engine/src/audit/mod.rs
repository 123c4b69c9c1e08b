//! The audit's hash chain, and its check on an export.
//!
//! Each entry is sealed: its link is the SHA-256 of the previous link and the entry's exact text.
//! To change, remove or add an entry, you must recompute all later links, which changes the end of
//! the chain. So an export proves that it is complete from its first entry to its last ([`Chain`]).
//! Each export names its end; an end that was stored earlier proves that this is *the* chain.
//!
//! The chain cannot reveal entries that were never written. It cannot reveal a cut end if the line
//! that names the end was cut too. An end that is stored elsewhere reveals that cut; a
//! [`checkpoint`] is such a link with a signature. An [`export`] also has the rows and documents
//! that its entries record.
//!
//! This module does no I/O. The server, the CLI and the console pass it the lines.

mod access;
pub mod checkpoint;
pub mod export;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Hash;

/// Sealed entry of the audit; a line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SealedEntry {
    /// Number of the entry in the chain, starting at 1.
    pub seq: u64,
    /// Link of the previous entry; zeros for the first entry.
    pub previous: Hash,
    /// Link of this entry.
    pub hash: Hash,
    /// The sealed text: JSON with `id`, `at`, `actor`, `action`, `subject` and `detail`.
    pub content: String,
}

/// Verified part of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chain {
    /// Number of the first entry; 0 without entries.
    pub first: u64,
    /// Link before the first entry.
    pub from: Hash,
    /// Number of the last entry; 0 without entries.
    pub last: u64,
    /// Link of the last entry.
    pub hash: Hash,
}

/// The first defect of a chain or an export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainDefect {
    /// An entry is missing, duplicated or out of order.
    #[error(
        "Entry {found} is in the place of entry {expected}: entries are missing, duplicated or out \
         of order"
    )]
    Position { expected: u64, found: u64 },
    #[error("Entry {0} does not link to the entry before it")]
    BrokenLink(u64),
    #[error("Entry {0} was altered: its text does not match its link")]
    Content(u64),
    #[error(
        "The export names entry {named} as its end, but ends with entry {found} or with another link"
    )]
    End {
        /// The entry that the header or the last line names.
        named: u64,
        found: u64,
    },
    #[error(
        "The export is cut off after entry {0}: its last line, which names the end, is missing"
    )]
    Truncated(u64),
    #[error("Line {line} is not a valid line of an export: {reason}")]
    Line {
        /// Starts at 1.
        line: usize,
        reason: String,
    },
    /// A row, a document or an approval is missing or altered.
    #[error("Verification failed at {subject}: {reason}")]
    Proof {
        /// Such as `verdict 3`.
        subject: String,
        reason: String,
    },
    /// A link differs from the link that was stored elsewhere.
    #[error("Entry {seq} has the link {found} instead of {expected}: the chain was computed again")]
    Recomputed { seq: u64, expected: Hash, found: Hash },
    /// The export ends before a link that was stored elsewhere.
    #[error("{} when the newest expected link was stored", missing_entries(*.from, *.to))]
    MissingTail {
        from: u64,
        /// The last entry that a stored link proves.
        to: u64,
    },
    /// The export begins after a link that was stored elsewhere.
    #[error("The export begins after entry {after} and lacks entry {seq}: check a full export")]
    NotCovered {
        seq: u64,
        /// The last entry before the export.
        after: u64,
    },
}

fn missing_entries(from: u64, to: u64) -> String {
    match from == to {
        true => format!("Entry {from} is missing: the chain had it"),
        false => format!("Entries {from} to {to} are missing: the chain had them"),
    }
}

impl Default for Chain {
    fn default() -> Self {
        let zeros = Hash::from_bytes(&[0; 32]).unwrap_or_else(|| Hash::of_bytes(&[]));
        Self { first: 0, from: zeros, last: 0, hash: zeros }
    }
}

/// The link of a text that follows the link `previous`.
pub fn link(previous: Hash, content: &str) -> Hash {
    let digest =
        Sha256::new().chain_update(previous.as_bytes()).chain_update(content.as_bytes()).finalize();
    Hash::from_bytes(&digest).unwrap_or(previous)
}

impl Chain {
    /// Adds the next entry.
    ///
    /// # Errors
    /// If it is not the next entry, or not the text that was sealed.
    pub fn add(&mut self, entry: &SealedEntry) -> Result<(), ChainDefect> {
        let is_first = self.first == 0;
        let expected = if is_first { entry.seq.max(1) } else { self.last + 1 };
        if entry.seq != expected {
            return Err(ChainDefect::Position { expected, found: entry.seq });
        }
        // An export may begin later. Its first entry then has a previous link that is not known
        // here.
        let is_linked = if is_first && entry.seq > 1 { true } else { entry.previous == self.hash };
        if !is_linked {
            return Err(ChainDefect::BrokenLink(entry.seq));
        }
        if link(entry.previous, &entry.content) != entry.hash {
            return Err(ChainDefect::Content(entry.seq));
        }
        if is_first {
            (self.first, self.from) = (entry.seq, entry.previous);
        }
        (self.last, self.hash) = (entry.seq, entry.hash);
        Ok(())
    }
}
