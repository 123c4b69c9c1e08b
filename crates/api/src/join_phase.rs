//! The phases in which a node or a worker joins, as in Pacemaker: welcome, integrate, finalize,
//! confirm. Runs start only if node and worker are confirmed.

use serde::{Deserialize, Serialize};

/// Phase of the join of a node or a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinPhase {
    /// The node or worker has left or never joined.
    None,
    /// It is registered. On a node, a worker must still determine the running processes.
    Welcomed,
    /// It is being integrated.
    Integrated,
    /// It is about to be confirmed.
    Finalized,
    /// Runs can start on the node, or the worker takes runs while its lease is valid.
    Confirmed,
    /// It was rejected.
    Nack,
}

impl JoinPhase {
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Welcomed,
        Self::Integrated,
        Self::Finalized,
        Self::Confirmed,
        Self::Nack,
    ];

    /// The name on the wire and in the database.
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

    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_wire_format() {
        for phase in JoinPhase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
            assert_eq!(JoinPhase::from_name(phase.as_str()), Some(phase));
        }
    }
}
