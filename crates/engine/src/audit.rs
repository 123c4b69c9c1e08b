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

/// The last line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The place of the last entry before it; 0: there is none.
    pub end: u64,
    /// Its link.
    pub hash: Hash,
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
    #[error("entry {found} stands where {wanted} should: entries are missing, doubled, or in another order")]
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
    /// The end is not where the export says.
    #[error("the export says that it ends with entry {said}, and ends with entry {found}, or with another link")]
    End {
        /// What its last line names.
        said: u64,
        /// What comes before it.
        found: u64,
    },
    /// It has no last line.
    #[error("the export breaks off behind entry {0}: its last line, which names the end, is missing")]
    BrokenOff(u64),
    /// A line is not of an export.
    #[error("line {line} is no line of an export: {why}")]
    Line {
        /// Which, from 1 on.
        line: usize,
        /// What is wrong with it.
        why: String,
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
    let digest = Sha256::new().chain_update(previous.as_bytes()).chain_update(content.as_bytes()).finalize();
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

    /// The line that ends an export of it.
    pub fn end(&self) -> End {
        End { end: self.last, hash: self.hash }
    }
}

/// A line of an export.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Sealed(Sealed),
    End(End),
}

/// An export that is being checked, line by line.
#[derive(Debug, Clone, Default)]
pub struct Check {
    chain: Chain,
    lines: usize,
    ended: bool,
}

impl Check {
    /// The next line.
    ///
    /// # Errors
    /// When the chain does not hold there.
    pub fn line(&mut self, text: &str) -> Result<(), Broken> {
        self.lines += 1;
        let line = self.lines;
        let wrong = |why: &str| Broken::Line { line, why: why.to_owned() };
        if self.ended {
            return Err(wrong("it stands behind the end"));
        }
        match serde_json::from_str(text) {
            Ok(Line::Sealed(entry)) => self.chain.add(&entry),
            Ok(Line::End(end)) if end == self.chain.end() => {
                self.ended = true;
                Ok(())
            }
            Ok(Line::End(end)) => Err(Broken::End { said: end.end, found: self.chain.last }),
            Err(_) => Err(wrong("it has neither an entry with seq, previous, hash and content, nor the end")),
        }
    }

    /// What holds, when all lines were given.
    ///
    /// # Errors
    /// When its end is missing.
    pub fn finish(self) -> Result<Chain, Broken> {
        if self.ended { Ok(self.chain) } else { Err(Broken::BrokenOff(self.chain.last)) }
    }
}

/// Checks a whole export.
///
/// # Errors
/// Where the chain does not hold first.
pub fn verify<'t>(lines: impl IntoIterator<Item = &'t str>) -> Result<Chain, Broken> {
    let mut check = Check::default();
    lines.into_iter().try_for_each(|line| check.line(line))?;
    check.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn export(contents: &[String]) -> (Vec<Sealed>, End) {
        let mut chain = Chain::default();
        let entries = contents.iter().map(|content| {
            let entry = Sealed {
                seq: chain.last + 1,
                previous: chain.hash,
                hash: link(chain.hash, content),
                content: content.clone(),
            };
            chain.add(&entry).expect("the next one");
            entry
        });
        let entries = entries.collect();
        (entries, chain.end())
    }

    fn lines(entries: &[Sealed], end: &End) -> Vec<String> {
        let line = |entry| serde_json::to_string(entry).expect("JSON");
        entries.iter().map(line).chain([serde_json::to_string(end).expect("JSON")]).collect()
    }

    fn check(entries: &[Sealed], end: &End) -> Result<Chain, Broken> {
        let lines = lines(entries, end);
        verify(lines.iter().map(String::as_str))
    }

    proptest! {
        #[test]
        fn whatever_is_done_to_an_export_shows(
            contents in prop::collection::vec(".{0,20}", 2..12),
            at in any::<prop::sample::Index>(),
            how in 0..6,
        ) {
            let (mut entries, mut end) = export(&contents);
            let whole = check(&entries, &end).expect("it holds");
            prop_assert_eq!((whole.first, whole.last), (1, contents.len() as u64));
            let at = at.index(entries.len());
            match how {
                0 => entries[at].content.push('x'),
                1 => drop(entries.remove(at)),
                2 => {
                    let twice = entries[at].clone();
                    entries.insert(at, twice);
                }
                3 => {
                    let other = (at + 1) % entries.len();
                    entries.swap(at, other);
                }
                4 => {
                    // A changed text with a link of its own: what follows does not go on from it, or the end is another.
                    entries[at].content.push('x');
                    entries[at].hash = link(entries[at].previous, &entries[at].content);
                }
                _ => end.end += 1,
            }
            // Without its beginning an export is one of later entries: it says from where.
            match check(&entries, &end) {
                Ok(chain) => prop_assert!(how == 1 && at == 0 && chain.first == 2 && chain.from != Chain::default().from),
                Err(_) => prop_assert!(how != 1 || at > 0),
            }
        }
    }

    #[test]
    fn what_breaks_off_is_not_whole() {
        let (entries, end) = export(&["a".into(), "b".into()]);
        let lines = lines(&entries, &end);
        let of = |lines: &[String]| verify(lines.iter().map(String::as_str));
        assert_eq!(of(&lines[..2]), Err(Broken::BrokenOff(2)));
        assert_eq!(of(&[]), Err(Broken::BrokenOff(0)));
        assert!(matches!(of(&["{}".into()]), Err(Broken::Line { line: 1, .. })));
        let more = [lines.clone(), vec![lines[0].clone()]].concat();
        assert!(matches!(of(&more), Err(Broken::Line { line: 4, .. })));
        let none = serde_json::to_string(&Chain::default().end()).expect("JSON");
        assert_eq!(of(&[none]).map(|chain| chain.last), Ok(0), "nothing is sealed yet");
    }
}
