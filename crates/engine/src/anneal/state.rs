//! The stored states of a step. PROPOSED is not among them, because no step exists before its
//! commit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// State of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// The step waits for its parents.
    Blocked,
    /// The parents are done, and the step waits to start.
    Todo,
    /// An attempt is queued or running.
    Transition,
    /// The result of the step's generation is applied.
    Active,
    /// The step failed. It stays so until a person retries it or a change re-runs it.
    Error,
}

impl StepState {
    pub const ALL: [Self; 5] =
        [Self::Blocked, Self::Todo, Self::Transition, Self::Active, Self::Error];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Todo => "todo",
            Self::Transition => "transition",
            Self::Active => "active",
            Self::Error => "error",
        }
    }

    /// Whether the step runs or is still going to run. An order-only child waits for such a parent.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::Blocked | Self::Todo | Self::Transition)
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str().to_ascii_uppercase())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unknown step state {0:?}. Use blocked, todo, transition, active or error")]
pub struct UnknownState(pub String);

impl FromStr for StepState {
    type Err = UnknownState;
    fn from_str(text: &str) -> Result<Self, UnknownState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownState(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_has_same_name_in_database_and_json() {
        for state in StepState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert!("ACTIVE".parse::<StepState>().is_err() && "proposed".parse::<StepState>().is_err());
    }
}
