//! Names that both ends of a request have to know, each once: where the interface is, which cookies a session has, how a token begins.

/// Where the interface is on its server.
pub const ROOT: &str = "/api/v1";
/// A session's cookie on this machine, where it may come without HTTPS.
pub const COOKIE_NEAR: &str = "gantry_session";
/// The same from elsewhere: browsers take a name like this only with Secure, from HTTPS, for this host alone.
pub const COOKIE_FAR: &str = "__Host-gantry";
/// What a refusal begins with of a query that can't be read: whoever wrote no address, but options, leaves it out.
pub const QUERY_UNREAD: &str = "What follows the question mark can't be read: ";
/// What every token begins with.
pub const TOKEN_PREFIX: &str = "gantry_";
