//! Values with their sources: the current values of a noderole and the input of a run.

use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, NoderoleId, ProposalId, RunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::At;
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};

/// Maximum number of values of one page.
pub const MAX_VALUES: usize = 200;
/// Maximum number of characters shown of one value, and of a search text.
pub const MAX_VALUE_CHARS: usize = 500;

/// Filters of the list of values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ValuesQuery {
    /// Part of a path, a value or a source, case-insensitive. Empty matches all.
    pub filter: String,
    /// Path of the last value of the previous page.
    pub after: Option<String>,
    /// For a noderole: list only its own data and output, as other noderoles see them. By default,
    /// list all values that a run of it would see.
    pub own: bool,
}

/// The layer that sets a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ValueLayer {
    /// The template of the role.
    Template,
    /// A profile.
    Profile,
    /// The deployment's data for the role.
    DeploymentRole,
    /// Data that Gantry sets itself.
    System,
    /// The additions of the last successful run.
    Output,
    /// Data of the noderole.
    User,
}

impl ValueLayer {
    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Template => "role template",
            Self::Profile => "profile",
            Self::DeploymentRole => "deployment role",
            Self::System => "system",
            Self::Output => "output",
            Self::User => "user",
        }
    }
}

/// A value with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValueView {
    /// Path of the value, as a JSON pointer.
    pub path: String,
    /// The value as text, with secrets masked, at most 500 characters.
    pub value: String,
    /// The layer that sets the value.
    pub layer: ValueLayer,
    /// Description of the layer and its owner.
    pub source: String,
    /// The noderole that the value belongs to, or null if it no longer exists.
    pub noderole: Option<NoderoleId>,
    /// The run that produced the value, for an output.
    pub run: Option<RunId>,
    /// The edit that set the value, if a person set it and the edit is known.
    pub edit: Option<SetBy>,
}

/// An edit that set a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetBy {
    /// Number of the proposal.
    pub proposal: ProposalId,
    /// Number of the edit within the proposal.
    pub seq: i32,
    /// The person who made the edit.
    pub by: String,
    /// Time of the edit.
    pub at: At,
    /// The blueprint that applied the edit.
    pub blueprint: BlueprintNumber,
}

/// A page of values, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValuePage {
    /// The values, at most 200.
    pub values: Vec<ValueView>,
    /// Number of all values.
    pub all: usize,
    /// Number of values that match the filter.
    pub matching: usize,
    /// Path for `after` to get the next page, or null on the last page.
    pub next: Option<String>,
}

/// Values of a noderole or a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValuesView {
    /// Name of the noderole, for example `app on n1.rack.example`.
    pub name: String,
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The deployment that the noderole is bound in.
    pub deployment: DeploymentName,
    /// Id of the deployment.
    pub deployment_id: DeploymentId,
    /// The run whose input is listed, or null for the current values.
    pub run: Option<RunId>,
    /// The values.
    pub page: ValuePage,
    /// Further input of the run: facts and results of its node, and data of other nodes. Null for a
    /// noderole, or without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surroundings: Option<Value>,
}

/// The stored result of an attempt, shortened. The run has the complete result. (50 complete
/// results are up to 12 MiB.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultLine {
    /// Run number of the attempt.
    pub run: RunId,
    /// Id of the noderole.
    pub noderole: NoderoleId,
    /// The role, with the instance number unless it is the first.
    pub role: String,
    /// The action of the step.
    pub action: String,
    /// Outcome of the run.
    #[cfg_attr(feature = "schema", schemars(with = "ResultOutcome"))]
    pub outcome: String,
    /// The blueprint that the run executed.
    pub blueprint: BlueprintNumber,
    /// Time when the run ended.
    pub at: At,
    /// The result as JSON text, with secrets masked, at most 500 characters. A shortened result
    /// ends with `…`.
    pub result: String,
    /// Size of the complete result, in bytes.
    pub bytes: u64,
}

/// Outcome of a run that returned a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultOutcome {
    /// The run succeeded.
    Succeeded,
    /// The run failed.
    Failed,
    /// A person canceled the run.
    Canceled,
    /// The result arrived after Gantry had given up the run.
    Late,
}

impl ResultOutcome {
    pub const EVERY: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Canceled, Self::Late];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Late => "late",
        }
    }
}

sort! {
    ResultSort, Order::descending(Self::Run), {
        /// Run number, which is also the order in time.
        Run "run" [Number],
    }
}

/// Filters of the list of results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ResultsQuery {
    /// Outcome of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ResultOutcome>,
    /// Role name. Empty matches all roles.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ResultSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the results that are stored for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultPage {
    /// The results, newest first by default.
    pub results: Vec<ResultLine>,
    /// Number of stored results, regardless of filters.
    pub all: usize,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A value with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Provenance {
    /// Path of the value, as a JSON pointer.
    pub path: String,
    /// The value, with secrets masked.
    pub value: String,
    /// The layer that sets the value.
    pub source: String,
}

paged! {
    ResultPage: results of ResultLine,
}
