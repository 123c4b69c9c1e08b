//! Limits for texts (in characters unless noted) and documents. The server rejects longer values,
//! and form fields do not accept them.

/// Title of a review.
pub const TITLE: usize = 200;
/// Reason of a verdict.
pub const VERDICT_REASON: usize = 10_000;
/// Comment in a discussion.
pub const COMMENT: usize = 10_000;
/// Search text for a log.
pub const LOG_SEARCH: usize = 200;
/// Description of a node.
pub const DESCRIPTION: usize = 1_000;
pub const PASSKEY_NAME: usize = 64;
/// Name of a node's token.
pub const NODE_TOKEN_NAME: usize = 100;

/// One word of an error message. No valid name is longer, so a longer word comes from the request.
pub const ERROR_WORD: usize = 300;
/// Text of an error message.
pub const ERROR_TEXT: usize = 4_000;

/// Addresses of a node. A health check tries all of them.
pub const ADDRESSES: usize = engine::cluster::connection::ADDRESSES;
/// Nodes that one request adds.
pub const INVENTORY: usize = 500;
/// Bytes of a text with several nodes.
pub const INVENTORY_BYTES: usize = 256 * 1024;
/// Invalid lines that one error message lists.
pub const INVENTORY_ERRORS: usize = 20;
/// Bytes of a node's hints, as JSON.
pub const HINTS: usize = engine::plan::edit::MAX_HINTS;
/// Bytes of the facts from one source about a node, as JSON.
pub const FACTS: usize = 256 * 1024;
/// Bytes of a boot id and of the name of a boot environment.
pub const BOOT_NAME: usize = 100;
/// Maximum lifetime of a node's token, in days.
pub const NODE_TOKEN_DAYS: u32 = 366;
/// Default lifetime of a token, in days: a node's token or an API token.
pub const DEFAULT_TOKEN_DAYS: u32 = 90;

/// Minimum length of a password.
pub const MIN_PASSWORD: usize = 12;
/// Maximum length of a password.
pub const MAX_PASSWORD: usize = 1024;
/// Minutes to confirm an authenticator app after its setup starts.
pub const TOTP_SETUP_MINUTES: u64 = 15;
/// Seconds for the browser to answer the options for a passkey.
pub const PASSKEY_TIMEOUT_SECONDS: u64 = 300;
/// Maximum lifetime of an API token, in days.
pub const API_TOKEN_DAYS: u32 = 365;
/// Tokens in a person's list: the valid ones first, then the newest of the others.
pub const LISTED_TOKENS: usize = 100;
/// Permissions of one person. The same permission in two deployments counts twice.
pub const GRANTS: usize = 200;
