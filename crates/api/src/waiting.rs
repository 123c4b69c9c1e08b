//! Why not yet: what waits, for what, and who or what frees it.
//!
//! Without a reason an answer has the beginning of each list; with one, a page of it and the numbers of the others. Which part is asked
//! for is the query of its address, so whoever has the address has the list.

use std::fmt;
use std::str::FromStr;

use engine::anneal::Wait;
use engine::ids::{DeploymentName, NodeId, NoderoleId, RoleName, RunId, StepId};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::console::{NoderoleRef, StepState};

/// Steps of each reason that are told when none is asked for.
pub const FIRST: usize = 5;
/// Steps of a page of one reason.
pub const PAGE: usize = 50;

/// Which part of what waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WaitingWanted {
    /// In this deployment, by its name; empty: in any.
    pub deployment: String,
    /// On this node, by its name or its id; empty: on any.
    pub node: String,
    /// For this reason, by its word; empty: the beginning of each.
    pub reason: String,
    /// Behind this one, of one reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Behind>,
}

/// Where a page of one reason goes on: `1795248902000000.6f1c...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// Since when the last step waits, in microseconds since 1970.
    pub since: i64,
    /// Which it is.
    pub step: StepId,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.since, self.step)
    }
}

/// A text that is no place in a list of what waits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in the list: take what the page before said under next")]
pub struct NotAPlace(String);

impl FromStr for Behind {
    type Err = NotAPlace;
    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let parts = text.split_once('.').and_then(|(since, step)| since.parse().ok().zip(step.parse().ok()));
        let wrong = || NotAPlace(text.chars().take(80).collect());
        parts.map(|(since, step)| Self { since, step }).ok_or_else(wrong)
    }
}

impl Serialize for Behind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Behind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Behind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Behind".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Where a page of one reason goes on: what the page before said under `next`.",
            "pattern": r"^-?[0-9]+\.[0-9a-f-]{36}$",
        })
    }
}

/// What waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingPage {
    /// By reason; reasons for which nothing waits are left out.
    pub groups: Vec<WaitingGroup>,
    /// Give this as `after` to get the next page of the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<Behind>,
}

/// Steps that wait for the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingGroup {
    /// For what.
    pub reason: Wait,
    /// The same for people.
    pub heading: String,
    /// Who or what frees them.
    pub frees: String,
    /// How many; not counted behind a page.
    pub count: Option<i64>,
    /// Whether there may be more than were counted.
    pub more: bool,
    /// The first of them, or the page; those that wait longest first.
    pub steps: Vec<WaitingStep>,
}

/// A step that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingStep {
    /// Whose.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// Where.
    pub node: NodeId,
    /// Its name.
    pub fqdn: String,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// Its state.
    pub state: StepState,
    /// Since when it has that.
    pub since: At,
    /// Everything that it waits for, a sentence each.
    pub says: Vec<String>,
    /// What frees it.
    pub freed_by: Vec<Freeing>,
}

/// Something to look at, or to act on, so that a step goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Freeing {
    /// Another step.
    Step {
        /// Whose.
        #[serde(flatten)]
        noderole: NoderoleRef,
    },
    /// A run.
    Run {
        /// Which.
        run: RunId,
    },
    /// A node.
    Node {
        /// Its name.
        fqdn: String,
    },
    /// A deployment.
    Deployment {
        /// Its name.
        name: DeploymentName,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = Behind { since: 1_795_248_902_000_001, step: StepId(uuid::Uuid::from_u128(7)) };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "1", "1.", ".x", "x.y", "1.2.3"] {
            assert!(wrong.parse::<Behind>().is_err(), "{wrong}");
        }
    }
}
