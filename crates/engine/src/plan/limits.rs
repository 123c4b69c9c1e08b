//! Limits of edits, and of the bindings that they cause.

/// Maximum length of a reason, in characters. A reason is copied to each noderole that it re-runs,
/// so a long one would be stored many times.
pub const MAX_REASON: usize = 1_000;

/// Maximum number of nodes in one edit.
pub const MAX_LISTED: usize = 1_000;

/// Maximum depth of the deployment tree, including *system*. Lookups, binding and review bases walk
/// all ancestors.
pub const MAX_LEVELS: usize = 16;

/// Maximum length of a chain of roles that add one another.
pub const MAX_DEPTH: usize = 64;
