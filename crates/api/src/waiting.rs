//! Why not yet: what waits, for what, and who or what frees it.
//!
//! Without a reason an answer has the beginning of each list; with one, a page of it and the numbers of the others. Which part is asked
//! for is the query of its address, so whoever has the address has the list.

use engine::anneal::Wait;
use engine::ids::{DeploymentName, NodeId, NoderoleId, RoleName, RunId};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::console::{NoderoleRef, StepState};
use crate::listing::{Cursor, Kind, Order, Sort, sort};

/// Steps of each reason that are told when none is asked for.
pub const FIRST: usize = 5;
/// Steps of a page of one reason.
pub const PAGE: usize = 50;

sort! {
    /// What steps that wait for the same are sorted by.
    WaitingSort, Order::rising(Self::Since), {
        /// Since when they wait: those that wait longest first.
        Since "since" [Number, Text],
    }
}

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
    /// In this order, within each reason.
    pub sort: Order<WaitingSort>,
    /// Where the page before said that the next one begins; only of one reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// What waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingPage {
    /// By reason; reasons for which nothing waits are left out.
    pub groups: Vec<WaitingGroup>,
    /// Give this as `after` to get the next page of the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<Cursor>,
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
    /// How many of those that were looked at: 10,000 of each state, from the end at which the order begins. Not counted behind a page.
    pub count: Option<i64>,
    /// Whether there may be more than were counted.
    pub more: bool,
    /// The first of them, or the page, in the order that was asked for.
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
