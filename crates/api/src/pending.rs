//! Pending steps, the reasons, and the actions that resolve them.
//!
//! Without a reason, the response has the first steps of each reason. With one, it has a page of
//! that reason and the counts of the others. The query of the URL contains all filters, so a link
//! always leads to the same list.

use engine::anneal::PendingReason;
use engine::ids::{ActionName, DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName, RunId};
use serde::{Deserialize, Serialize};

use crate::At;
use crate::deployments::NoderoleRef;
use crate::listing::{Cursor, KeyKind, Limit, Order, Sort, sort};
use crate::runs::StepState;

/// Number of steps per reason if the query selects no reason.
pub const STEPS_PER_REASON: usize = 5;
/// Number of steps on a page of one reason.
pub const PAGE: usize = 50;

sort! {
    PendingSort, Order::ascending(Self::Since), {
        /// Time since when the step is pending.
        Since "since" [Number, Text],
    }
}

/// Filters of the list of pending steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PendingQuery {
    /// Name of the deployment. Empty matches all.
    pub deployment: String,
    /// Name or id of the node. Empty matches all.
    pub node: String,
    /// Pending reason. Empty lists the first steps of each reason.
    pub reason: String,
    /// Sort order within each reason. Default: longest pending first.
    pub sort: Order<PendingSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page. Only valid with a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// A page of pending steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PendingPage {
    /// Pending steps by reason. Reasons without steps are left out.
    pub groups: Vec<PendingGroup>,
    /// Cursor of the next page of the reason (`after`), or null on the last page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<Cursor>,
}

/// Steps that are pending for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PendingGroup {
    /// Pending reason.
    pub reason: PendingReason,
    /// The reason as text.
    pub heading: String,
    /// The action or event that ends the wait.
    pub resolution: String,
    /// Number of steps among the first 10,000 of each state, in sort order. Null on later pages.
    pub count: Option<i64>,
    /// Whether there may be more than were counted.
    pub more: bool,
    /// The first steps or the page, in sort order.
    pub steps: Vec<PendingStep>,
}

/// A pending step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PendingStep {
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The role.
    pub role: RoleName,
    /// The action of the step: `run`, or `remove` for a noderole that is removed.
    #[serde(default = "ActionName::run", skip_serializing_if = "ActionName::is_run")]
    pub action: ActionName,
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node.
    pub fqdn: String,
    /// The deployment that it is bound in.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// State of the step.
    pub state: StepState,
    /// Time of the last change of the state.
    pub since: At,
    /// All pending reasons of the step, one sentence each.
    pub reasons: Vec<String>,
    /// Things that can end the wait.
    pub resolved_by: Vec<Resolver>,
}

/// Something to check or to change so that a step can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Resolver {
    /// Another step.
    Step {
        /// The noderole of that step.
        #[serde(flatten)]
        noderole: NoderoleRef,
    },
    /// A run.
    Run {
        /// Run number.
        run: RunId,
    },
    /// A node.
    Node {
        /// Id of the node.
        node: NodeId,
        /// Name of the node.
        fqdn: String,
    },
    /// A deployment.
    Deployment {
        /// Id of the deployment.
        id: DeploymentId,
        /// Name of the deployment.
        name: DeploymentName,
    },
}
