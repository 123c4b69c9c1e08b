//! Values and where they come from: of a noderole as it is now, and of a run as it was told.

use engine::ids::{DeploymentId, NoderoleId, ProposalId, RunId, TargetNo};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::At;
use crate::listing::{Cursor, Kind, Order, Sort, sort};

/// Most values of one page.
pub const VALUES_SHOWN: usize = 200;
/// Most characters that are shown of one value, and that one may look for.
pub const VALUE_SHOWN: usize = 500;

/// Which values are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ValuesWanted {
    /// Part of a path, a value or a source, in any case; empty for all.
    pub find: String,
    /// Behind this path.
    pub after: Option<String>,
    /// Of a noderole: what it says itself and what others see of it, instead of all that a run of it would see.
    pub own: bool,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValueView {
    /// A JSON pointer.
    pub path: String,
    /// The value as text, secrets masked; cut at [`VALUE_SHOWN`] characters.
    pub value: String,
    /// `template`, `profile`, `deployment_role`, `system`, `wall`, `user`.
    pub layer: String,
    /// The same for people, and whose it is.
    pub source: String,
    /// Whose it is; None: of one that is not there any more.
    pub noderole: Option<NoderoleId>,
    /// The run that found it out, of a wall.
    pub run: Option<RunId>,
    /// The edit that set it, as far as it is known, of what people wrote.
    pub edit: Option<SetBy>,
}

/// An edit that set a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetBy {
    /// Of which proposal.
    pub proposal: ProposalId,
    /// Which of its edits.
    pub seq: i32,
    /// Who made it.
    pub by: String,
    /// When.
    pub at: At,
    /// The target that brought it.
    pub target: TargetNo,
}

/// A page of values, in the order of their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValuePage {
    /// At most [`VALUES_SHOWN`].
    pub values: Vec<ValueView>,
    /// How many there are.
    pub all: usize,
    /// How many of them were looked for.
    pub matching: usize,
    /// What to ask for to go on; None: that was the end.
    pub next: Option<String>,
}

/// Values of a noderole or of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValuesView {
    /// `app on n1.rack.example`.
    pub name: String,
    /// Whose they are.
    pub noderole: NoderoleId,
    /// Where that is bound, for whoever listens for changes.
    pub deployment: DeploymentId,
    /// The run that was told them; None: they are as of now.
    pub run: Option<RunId>,
    /// The values.
    pub page: ValuePage,
    /// What the run was given beside them; None: nothing, or it is of a noderole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surroundings: Option<Value>,
}

/// What an attempt returned, by its beginning, as long as it is kept for its node: 50 whole ones are 12 MiB. All of it is with its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultLine {
    /// The attempt.
    pub run: RunId,
    /// Whose.
    pub noderole: NoderoleId,
    /// The role, with the instance where that is not the first.
    pub role: String,
    /// What was done.
    pub action: String,
    /// `succeeded`, `failed`, `cancelled`, `late`.
    pub outcome: String,
    /// The target that it carried out.
    pub target: TargetNo,
    /// When it ended.
    pub at: At,
    /// What it returned, as JSON text; secrets are masked. Cut at [`VALUE_SHOWN`] characters, with `…` behind them then.
    pub result: String,
    /// How many bytes all of it has.
    pub bytes: u64,
}

/// How a run ended that handed something back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultOutcome {
    /// Well.
    Succeeded,
    /// Not well.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// After it had been given up.
    Late,
}

impl ResultOutcome {
    /// All of them.
    pub const EVERY: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Cancelled, Self::Late];

    /// The word in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Late => "late",
        }
    }
}

sort! {
    /// What results are sorted by.
    ResultSort, Order::falling(Self::Run), {
        /// Their runs, by number, which is their order in time.
        Run "run" [Number],
    }
}

/// Which results a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ResultsWanted {
    /// Of runs that ended like this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ResultOutcome>,
    /// Of this role; empty: of any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// In this order.
    pub sort: Order<ResultSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the results that are kept for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultLines {
    /// Newest first, or as asked.
    pub results: Vec<ResultLine>,
    /// How many are kept in all, whatever was asked for.
    pub all: usize,
    /// Where the next page begins; None: that was the end.
    pub next: Option<Cursor>,
}
