//! How long texts may be that people write, in characters: the server refuses more, and no field takes more.

/// A change's title.
pub const TITLE: usize = 200;
/// What a verdict says.
pub const VERDICT: usize = 10_000;
/// A comment of a discussion.
pub const COMMENT: usize = 10_000;
/// What is looked for in a log.
pub const LOG_SEARCH: usize = 200;
