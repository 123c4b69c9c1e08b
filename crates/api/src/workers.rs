//! Workers: who carries out runs, and whether they are heard.

use engine::ids::RunId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::At;
use crate::listing::{Cursor, Order, WorkerSort};

/// Runs of one worker that are named.
pub const RUNS_NAMED: usize = 20;

/// How far a worker has joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It has said goodbye, or never joined.
    None,
    /// It is known.
    Welcomed,
    /// It is being taken in.
    Integrated,
    /// It is nearly there.
    Finalized,
    /// Its capacity counts while it is heard.
    Confirmed,
    /// It was refused.
    Nack,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Welcomed,
        Self::Integrated,
        Self::Finalized,
        Self::Confirmed,
        Self::Nack,
    ];

    /// The word on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Welcomed => "welcomed",
            Self::Integrated => "integrated",
            Self::Finalized => "finalized",
            Self::Confirmed => "confirmed",
            Self::Nack => "nack",
        }
    }

    /// The phase of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }
}

/// Which workers a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WorkersWanted {
    /// Only those that are heard (`true`), or only those that are not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// Only those of this phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// With this in the name; empty: with any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// In this order.
    pub sort: Order<WorkerSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// One start of a worker. A worker that starts again is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerView {
    /// Which.
    pub id: Uuid,
    /// Its name; unique.
    pub name: String,
    /// How far it has joined.
    pub phase: Phase,
    /// Whether its lease holds: it was heard in time.
    pub alive: bool,
    /// Runs that it takes at once.
    pub capacity: u32,
    /// Runs that it holds.
    pub held: i64,
    /// The first of them, oldest first.
    pub runs: Vec<RunId>,
    /// Classes of jigs that it has.
    pub jigs: Vec<String>,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub pid: Option<i32>,
    /// Its build.
    pub version: String,
    /// When it started.
    pub started: At,
    /// When it was heard last.
    pub heard: At,
    /// Until when it counts as alive without being heard again.
    pub lease_until: At,
    /// Why it left.
    pub reason: Option<String>,
}

/// A page of the list of workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerPage {
    /// In the order that was asked for.
    pub workers: Vec<WorkerView>,
    /// Where the next page begins (`before`); None: there are no more.
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_wire() {
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
            assert_eq!(Phase::from_word(phase.as_str()), Some(phase));
        }
    }
}
