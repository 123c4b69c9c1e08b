//! Options that several commands have.

use clap::{Args, ValueEnum};

use crate::address::Query;

#[derive(Debug, Clone, Args)]
pub struct ReasonArgs {
    /// Reason, which everyone can read
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ExpectedVersion {
    /// Expected version, from show; fails if there is a newer one [default: the newest]
    #[arg(long, value_name = "N")]
    pub version: Option<i32>,
}

impl ExpectedVersion {
    /// The version as an `If-Match` header, if one was given.
    pub(crate) fn tag(self) -> Option<String> {
        self.version.map(|version| format!("\"{version}\""))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    /// Steps start
    On,
    /// No steps start in any deployment
    Off,
}

/// A period.
#[derive(Debug, Args)]
pub(crate) struct Between {
    /// Start of the period: a time such as 2026-09-22T14:00:00Z, or an age: 90s, 30m, 2h, 7d
    #[arg(long, value_name = "WHEN", value_parser = crate::time::parse_time)]
    since: Option<api::At>,
    /// End of the period, in the same form
    #[arg(long, value_name = "WHEN", value_parser = crate::time::parse_time)]
    until: Option<api::At>,
}

impl Between {
    pub(crate) fn add_to(&self, query: Query) -> Query {
        query.with("since", self.since).with("until", self.until)
    }
}
