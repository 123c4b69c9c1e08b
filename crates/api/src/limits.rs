//! How long texts may be that people write, in characters, and how large documents: the server refuses more, and no field takes more.

/// A change's title.
pub const TITLE: usize = 200;
/// What a verdict says.
pub const VERDICT: usize = 10_000;
/// A comment of a discussion.
pub const COMMENT: usize = 10_000;
/// What is looked for in a log.
pub const LOG_SEARCH: usize = 200;
/// What people say of a machine.
pub const DESCRIPTION: usize = 1_000;
/// The name of a passkey.
pub const PASSKEY_NAME: usize = 64;
/// What a machine's token is called.
pub const TOKEN_NAME: usize = 100;

/// A word of a refusal: longer than any name there is, so what is longer came with the request.
pub const REFUSAL_WORD: usize = 300;
/// The text of a refusal.
pub const REFUSAL: usize = 4_000;

/// Addresses of a machine: a look tries all of them.
pub const ADDRESSES: usize = engine::cluster::connection::ADDRESSES;
/// Machines that one text adds.
pub const INVENTORY: usize = 500;
/// Bytes of such a text.
pub const INVENTORY_BYTES: usize = 256 * 1024;
/// Wrong lines of it that one refusal names.
pub const FAULTS: usize = 20;
/// Bytes of a machine's hints, as JSON.
pub const HINTS: usize = engine::plan::edit::MAX_HINTS;
/// Bytes of what one source says of a machine, as JSON.
pub const FACTS: usize = 256 * 1024;
/// Bytes of a boot id, and of a boot environment's name.
pub const WORD: usize = 100;
/// Days that a machine's token may hold.
pub const TOKEN_DAYS: u32 = 366;
/// Days that a token holds unless its maker says otherwise: a machine's, and one of the API.
pub const USUAL_TOKEN_DAYS: u32 = 90;

/// Characters of a password at least.
pub const PASSWORD_LEAST: usize = 12;
/// Characters of a password at most.
pub const PASSWORD_MOST: usize = 1024;
/// Minutes within which an authenticator app is confirmed after its set-up began.
pub const TOTP_SETUP_MINUTES: u64 = 15;
/// Seconds within which the browser answers to the options for a passkey.
pub const PASSKEY_SECONDS: u64 = 300;
/// Days that a token of the API may hold.
pub const API_TOKEN_DAYS: u32 = 365;
/// Tokens of a person that a list has: those that hold, and then the newest of the others.
pub const TOKENS_TOLD: usize = 100;
/// Permissions that one person may be given, each deployment counting.
pub const GRANTS: usize = 200;
