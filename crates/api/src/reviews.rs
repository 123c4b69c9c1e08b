//! Lists of reviews and proposals: filters and pages.
//!
//! The query of a list's URL contains all its filters, so a link always leads to the same list.

use serde::{Deserialize, Serialize};

use crate::console::{ProposalSummary, ReviewSummary};
use crate::listing::{Cursor, Order, ProposalSort, ReviewSort};

/// Maximum length of a text filter, in characters.
pub const MAX_TEXT_CHARS: usize = 200;

/// Reviews by the reader's part in them.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// All reviews.
    #[default]
    All,
    /// Open reviews that you can approve, reject or commit now.
    ForMe,
    /// Reviews that you are an author of.
    Mine,
}

impl Whose {
    pub const EVERY: [Self; 3] = [Self::All, Self::ForMe, Self::Mine];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::ForMe => "for_me",
            Self::Mine => "mine",
        }
    }
}

/// Reviews by outcome.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewStateFilter {
    /// Open reviews: the newest of each open proposal.
    #[default]
    Open,
    /// Committed reviews.
    Committed,
    /// Reviews whose proposal was discarded.
    Discarded,
    /// All reviews, including replaced ones.
    Any,
}

impl ReviewStateFilter {
    pub const EVERY: [Self; 4] = [Self::Open, Self::Committed, Self::Discarded, Self::Any];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Committed => "committed",
            Self::Discarded => "discarded",
            Self::Any => "any",
        }
    }
}

/// Filters of the list of reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReviewsWanted {
    /// The reader's part in the review. Default: all reviews.
    pub whose: Whose,
    /// Outcome of the review. Default: open reviews.
    pub state: ReviewStateFilter,
    /// Name of the deployment. Empty matches all.
    pub deployment: String,
    /// Part of the title, case-insensitive. Empty matches all.
    pub text: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ReviewSort>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the list of reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewPage {
    /// The reviews, newest first by default.
    pub reviews: Vec<ReviewSummary>,
    /// Cursor of the next page (`before`), or null on the last page. A request searches a limited
    /// number of reviews. So a page can be short or empty although a next page exists.
    pub next: Option<Cursor>,
}

/// Filters of the list of open proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProposalsWanted {
    /// Only proposals that you opened or edited.
    pub mine: bool,
    /// Only proposals with edits that are not submitted.
    pub drafts: bool,
    /// Name of the deployment. Includes proposals on nodes that were in it. Empty matches all.
    pub deployment: String,
    /// Part of the name of the deployment or node, case-insensitive. Empty matches all.
    pub text: String,
    /// Sort order. Default: newest first.
    pub sort: Order<ProposalSort>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the list of open proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalPage {
    /// The proposals, newest first by default.
    pub proposals: Vec<ProposalSummary>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

/// Number of reviews that need a person's action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewCount {
    /// Minimum number.
    pub count: usize,
    /// Whether there may be more that are not counted or evaluated yet.
    pub more: bool,
}

impl std::fmt::Display for ReviewCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.count, if self.more { "+" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_names_match_wire_format() {
        for whose in Whose::EVERY {
            assert_eq!(serde_json::to_value(whose).unwrap(), whose.as_str());
        }
        for fate in ReviewStateFilter::EVERY {
            assert_eq!(serde_json::to_value(fate).unwrap(), fate.as_str());
        }
    }

    #[test]
    fn inexact_count_has_a_plus_sign() {
        assert_eq!(ReviewCount { count: 100, more: true }.to_string(), "100+");
        assert_eq!(ReviewCount { count: 3, more: false }.to_string(), "3");
    }
}
