//! The audit's chain, checked by whoever has an export of it.
//!
//! # Theory
//!
//! Every entry is sealed: its link is SHA-256 over the link before and the entry's exact text. Who changes, removes or adds an entry
//! anywhere has to make all later links anew, and then the chain's end is another one. So an export shows by itself whether it is whole
//! from its first entry to its last ([`Chain`]); whether it is *the* chain shows the end that somebody noted before: each export
//! names it.
//!
//! What the chain can't show: entries that were never written, and an end that was cut off together with the line that names it. Against
//! that helps to keep an earlier end elsewhere.
//!
//! Nothing here reads or waits: the server, the command line and the page give it lines.
//!
//! An export ([`export`]) also has the rows and documents that the entries are about. A [`checkpoint`] is a link that was signed and
//! stored elsewhere.

pub mod checkpoint;
pub mod export;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Hash;

/// An entry as it was sealed: a line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    /// Its place in the chain, from 1 on.
    pub seq: u64,
    /// The link before; zeros before the first.
    pub previous: Hash,
    /// Its own link.
    pub hash: Hash,
    /// The text that was sealed: JSON with id, at, actor, action, subject and detail.
    pub content: String,
}

/// What holds of a chain so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chain {
    /// The place of the first entry; 0: there was none yet.
    pub first: u64,
    /// The link that the first one goes on from.
    pub from: Hash,
    /// The place of the last entry; 0: there was none yet.
    pub last: u64,
    /// Its link.
    pub hash: Hash,
}

/// Where a chain does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// An entry is missing, there twice, or in another place.
    #[error(
        "entry {found} stands where {wanted} should: entries are missing, doubled, or in another order"
    )]
    Place {
        /// The place that comes next.
        wanted: u64,
        /// The one that is there.
        found: u64,
    },
    /// It goes on from something else than is before it.
    #[error("entry {0} does not go on from the entry before it")]
    Previous(u64),
    /// Its text is not the one that was sealed.
    #[error("entry {0} is not what was sealed")]
    Content(u64),
    /// The end is not the one that the export names.
    #[error(
        "the export names entry {said} as its end and ends with entry {found}, or with another link"
    )]
    End {
        /// The entry that the header or the last line names.
        said: u64,
        /// The last entry before it.
        found: u64,
    },
    /// It has no last line.
    #[error(
        "the export is cut off after entry {0}: its last line, which names the end, is missing"
    )]
    BrokenOff(u64),
    /// A line is not of an export.
    #[error("line {line} is not a line of an export: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A row, a document or an approval is missing or altered.
    #[error("{what}: {why}")]
    Proof {
        /// What it is about: `verdict 3`.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A link is not the one that was stored elsewhere.
    #[error(
        "entry {seq} has the link {found}, and {expected} was expected: the chain was computed again"
    )]
    Recomputed {
        /// The entry.
        seq: u64,
        /// The link that was stored elsewhere.
        expected: Hash,
        /// The link in the export.
        found: Hash,
    },
    /// The export ends before a link that was stored elsewhere.
    #[error(
        "entries {from} to {to} are missing: the chain had them when the newest expected link was stored"
    )]
    CutTail {
        /// The first one.
        from: u64,
        /// The last one that is known.
        to: u64,
    },
    /// The export begins after a link that was stored elsewhere.
    #[error(
        "the export begins after entry {after} and does not have entry {seq}: check a whole export"
    )]
    NotCovered {
        /// The entry that was expected.
        seq: u64,
        /// The last entry that it leaves out.
        after: u64,
    },
}

impl Default for Chain {
    fn default() -> Self {
        let zeros = Hash::from_bytes(&[0; 32]).unwrap_or_else(|| Hash::of_bytes(&[]));
        Self { first: 0, from: zeros, last: 0, hash: zeros }
    }
}

/// The link of a text behind another link.
pub fn link(previous: Hash, content: &str) -> Hash {
    let digest =
        Sha256::new().chain_update(previous.as_bytes()).chain_update(content.as_bytes()).finalize();
    Hash::from_bytes(&digest).unwrap_or(previous)
}

impl Chain {
    /// Goes on by one entry.
    ///
    /// # Errors
    /// When it is not the next one, or not what was sealed.
    pub fn add(&mut self, entry: &Sealed) -> Result<(), Broken> {
        let begins = self.first == 0;
        let wanted = if begins { entry.seq.max(1) } else { self.last + 1 };
        if entry.seq != wanted {
            return Err(Broken::Place { wanted, found: entry.seq });
        }
        // Only the first entry of all has nothing before it.
        let goes_on = if begins && entry.seq > 1 { true } else { entry.previous == self.hash };
        if !goes_on {
            return Err(Broken::Previous(entry.seq));
        }
        if link(entry.previous, &entry.content) != entry.hash {
            return Err(Broken::Content(entry.seq));
        }
        if begins {
            (self.first, self.from) = (entry.seq, entry.previous);
        }
        (self.last, self.hash) = (entry.seq, entry.hash);
        Ok(())
    }
}
