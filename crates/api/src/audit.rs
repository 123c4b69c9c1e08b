//! The audit log: its entries, its filters and the state of its hash chain.

use engine::Hash;
use engine::audit::Chain;
use engine::ids::PersonId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::At;
use crate::call::Call;
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};

/// Maximum number of links of the chain that one request verifies.
pub const MAX_VERIFIED_LINKS: usize = 10_000;

/// Origin of an audit entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditSource {
    /// Written by Gantry for a request, with the reason that the person gave.
    #[default]
    Application,
    /// Written by a database trigger, with the row that changed.
    Database,
    /// Entries of both origins.
    All,
}

impl AuditSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Database => "database",
            Self::All => "all",
        }
    }
}

/// Filters of the audit log. An empty filter matches all entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// Name of the person who made the change. `gantry` selects Gantry's own changes.
    pub actor: String,
    /// Action, for example `review.commit`.
    pub action: String,
    /// Subject as the entry names it: a number or an id.
    pub subject: String,
    /// Earliest time, inclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<At>,
    /// Latest time, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<At>,
    /// Origin of the entries. Default: `application`.
    pub source: AuditSource,
    /// Sort order. Default: newest first.
    pub sort: Order<AuditSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// Entry number.
    pub id: i64,
    /// Time of the action.
    pub at: At,
    /// The person who made the change, or null for Gantry itself.
    pub actor: Option<PersonId>,
    /// Current name of the person.
    pub name: Option<String>,
    /// The action, for example `review.commit`.
    pub action: String,
    /// The subject of the action: a number or an id.
    pub subject: String,
    /// Details of the action. The fields depend on the action.
    pub detail: Value,
    /// Origin of the entry: `application` or `database`.
    pub source: AuditSource,
    /// Position in the hash chain, or null if the entry is not sealed yet.
    pub sealed: Option<i64>,
}

/// A page of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditPage {
    /// The entries, newest first by default.
    pub entries: Vec<AuditEntry>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

/// The part of the hash chain to verify.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ChainQuery {
    /// Position of the last link that is already verified. 0 starts at the beginning.
    pub after: u64,
}

/// Result of a verification of the hash chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChainView {
    /// The verified links.
    pub chain: Chain,
    /// Description of the first broken link, or null if all verified links are valid.
    pub broken: Option<String>,
    /// Position to continue from (`after`), or null at the end of the chain.
    pub next: Option<u64>,
    /// Position of the last link of the whole chain.
    pub end: u64,
    /// Hash of the last link. Store it elsewhere to detect later changes to any earlier entry.
    pub hash: Hash,
    /// Number of entries that are not sealed yet. The count stops at 1,000.
    pub unsealed: i64,
}

sort! {
    AuditSort, Order::descending(Self::At), {
        /// Time of the action.
        At "at" [Number],
    }
}

paged! {
    AuditPage: entries of AuditEntry,
}

/// Verifies the audit log's hash chain. The command verifies the whole chain, the request only its
/// first part.
pub fn verify_call() -> Call {
    Call::get("/audit/chain").command(["audit", "chain"])
}

/// Exports the sealed entries of the audit log.
pub fn export_call() -> Call {
    Call::get("/audit/export").command(["audit", "export"]).option("file", "gantry-audit.jsonl")
}
