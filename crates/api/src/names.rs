//! Names that the server and its clients share: paths, cookies and the token prefix.

/// Path of the REST API.
pub const ROOT: &str = "/api/v1";
/// Session cookie for requests from this machine, which may use plain HTTP.
pub const LOCAL_SESSION_COOKIE: &str = "gantry_session";
/// Session cookie for all other requests. Browsers accept the `__Host-` prefix only with `Secure`,
/// over HTTPS and for this host alone.
pub const SESSION_COOKIE: &str = "__Host-gantry";
/// Start of the error message for an invalid query. A client that built the query from its own
/// options removes it.
pub const INVALID_QUERY_PREFIX: &str = "Invalid query parameters: ";
pub const TOKEN_PREFIX: &str = "gantry_";
