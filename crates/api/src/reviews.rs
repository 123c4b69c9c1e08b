//! Lists of reviews and of proposals: which part of them is asked for, and a page of that.
//!
//! Both are read page by page, newest first: a page names the last of it, and the next one begins behind that. What a list is asked for
//! is the query of its address, so whoever has the address has the list.

use serde::{Deserialize, Serialize};

use crate::console::{ProposalSummary, ReviewSummary};
use crate::listing::{Cursor, Order, ProposalSort, ReviewSort};

/// Longest text that a list is searched for, in characters.
pub const LONGEST_TEXT: usize = 200;

/// Whose.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// Everybody's.
    #[default]
    All,
    /// Those that this person could judge or commit now; they are open.
    ForMe,
    /// Those that this person wrote part of.
    Mine,
}

impl Whose {
    /// All of them.
    pub const EVERY: [Self; 3] = [Self::All, Self::ForMe, Self::Mine];

    /// The word in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::ForMe => "for_me",
            Self::Mine => "mine",
        }
    }
}

/// What became of them.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The newest submissions of open proposals: they wait for somebody.
    #[default]
    Open,
    /// They are targets.
    Committed,
    /// Their proposals were discarded.
    Discarded,
    /// All, those included that newer versions replaced.
    Any,
}

impl Fate {
    /// All of them.
    pub const EVERY: [Self; 4] = [Self::Open, Self::Committed, Self::Discarded, Self::Any];

    /// The word in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Committed => "committed",
            Self::Discarded => "discarded",
            Self::Any => "any",
        }
    }
}

/// Which reviews a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReviewsWanted {
    /// Whose.
    pub whose: Whose,
    /// What became of them.
    pub fate: Fate,
    /// Of this deployment, by its name; empty: of any.
    pub deployment: String,
    /// With this in the title; empty: with any. Large and small letters are the same.
    pub text: String,
    /// In this order.
    pub sort: Order<ReviewSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the list of reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReviewPage {
    /// In the order that was asked for: newest first, if none was.
    pub reviews: Vec<ReviewSummary>,
    /// Where the next page begins (`before`); None: there are no more. A search looks through so many reviews for one page, so a page
    /// may be short, or empty, and have another one behind it.
    pub next: Option<Cursor>,
}

/// Which open proposals a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProposalsWanted {
    /// Only those that this person opened or edited.
    pub mine: bool,
    /// Only those that were not submitted as they are.
    pub drafts: bool,
    /// Of this deployment, by its name, or of a node that was in it; empty: of any.
    pub deployment: String,
    /// With this in the name of the deployment or of the node; empty: with any. Large and small letters are the same.
    pub text: String,
    /// In this order.
    pub sort: Order<ProposalSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of the list of open proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProposalPage {
    /// In the order that was asked for: newest first, if none was.
    pub proposals: Vec<ProposalSummary>,
    /// Where the next page begins (`before`); None: there are no more.
    pub next: Option<Cursor>,
}

/// How many reviews wait for somebody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waiting {
    /// So many do for sure.
    pub count: usize,
    /// And maybe more: they are not counted any further, or not weighed yet.
    pub more: bool,
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.count, if self.more { "+" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_wire() {
        for whose in Whose::EVERY {
            assert_eq!(serde_json::to_value(whose).unwrap(), whose.as_str());
        }
        for fate in Fate::EVERY {
            assert_eq!(serde_json::to_value(fate).unwrap(), fate.as_str());
        }
    }

    #[test]
    fn what_is_not_exact_says_so() {
        assert_eq!(Waiting { count: 100, more: true }.to_string(), "100+");
        assert_eq!(Waiting { count: 3, more: false }.to_string(), "3");
    }
}
