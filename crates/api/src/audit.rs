//! The audit: who did what, when, to what.

use engine::Hash;
use engine::audit::Chain;
use engine::ids::PersonId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::At;
use crate::listing::{AuditSort, Cursor, Order};

/// Links of the chain that one request checks.
pub const CHECKED: usize = 10_000;

/// Who wrote an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditSource {
    /// A use case, with the reasons that a person gave.
    #[default]
    Application,
    /// The database itself, with the row that changed.
    Database,
    /// Both.
    All,
}

impl AuditSource {
    /// Its name in a query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Database => "database",
            Self::All => "all",
        }
    }
}

/// Which entries a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AuditWanted {
    /// By this person, by their name; `gantry`: by Gantry itself; empty: by anybody.
    pub who: String,
    /// Of this action, such as `submission.commit`; empty: of any.
    pub action: String,
    /// About this, as its entries name it (a number, an id); empty: about anything.
    pub subject: String,
    /// From this moment on, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<At>,
    /// Before this moment, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<At>,
    /// Written by the application (the default), by the database, or by both.
    pub source: AuditSource,
    /// In this order.
    pub sort: Order<AuditSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// Which.
    pub id: i64,
    /// When.
    pub at: At,
    /// Who; None: Gantry itself.
    pub who: Option<PersonId>,
    /// Their name now.
    pub name: Option<String>,
    /// What was done.
    pub action: String,
    /// To what.
    pub subject: String,
    /// What else there is to say, as the action has it.
    pub detail: Value,
    /// Who wrote it: `application` or `database`.
    pub source: AuditSource,
    /// Its place in the chain; None: it is not sealed yet.
    pub sealed: Option<i64>,
}

/// A page of the audit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditPage {
    /// In the order that was asked for: newest first, if none was.
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins (`before`); None: there are no more.
    pub next: Option<Cursor>,
}

/// A part of the chain to check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ChainWanted {
    /// Behind this place; 0: from its beginning.
    pub after: u64,
}

/// Whether a part of the chain holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChainView {
    /// What holds of it.
    pub chain: Chain,
    /// Where it does not hold, in words; None: it holds as far as it was looked at.
    pub broken: Option<String>,
    /// Where the next part begins (`after`), with what this one ends with ([`Chain::hash`]); None: this was the end.
    pub next: Option<u64>,
    /// The end of the whole chain.
    pub end: u64,
    /// Its link: whoever notes it can tell later whether anything before it was changed.
    pub hash: Hash,
    /// Entries that are not sealed yet, at most 1,000 counted.
    pub unsealed: i64,
}
