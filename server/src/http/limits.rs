//! Limits of one server. Beyond them, it rejects requests at once, so that accepted requests keep
//! their speed.

use std::time::Duration;

/// Maximum size of a request body in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Maximum size in bytes of a barclamp import, which includes scripts.
pub const MAX_IMPORT_BYTES: usize = control::MAX_IMPORT;
/// Maximum size in bytes of a machine's report: its facts as JSON, with room for whitespace.
pub const MAX_REPORT_BYTES: usize = 2 * api::limits::FACTS;
/// Maximum nesting depth of a JSON body. It is the limit of `serde_json`; a test compares both.
pub const MAX_JSON_DEPTH: usize = 127;
/// Maximum time until the response to a request begins. Streams and downloads continue after that.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time to receive a request body. Less than [`REQUEST_TIMEOUT`], so that the error names
/// the body as the cause.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(25);
/// Maximum number of connections. Further ones wait until another one ends. Each page has one for
/// its stream, and a few more while it loads.
pub const MAX_CONNECTIONS: usize = 4096;
/// Maximum size in bytes of a request line and headers. The longest are URLs of filters, with
/// cookies.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum time to receive a request head, and maximum idle time of a connection. Reverse proxies
/// close idle connections after a minute. This is longer, so that the proxy closes first and no
/// request is lost.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Maximum number of requests in progress, including those whose response was sent. Further ones
/// get 503. The database pool is far smaller, so more requests would only wait there until they
/// time out.
pub const MAX_REQUESTS: usize = 256;
/// Maximum number of live streams. Each costs a task and a receiver of the feed's ring.
pub const MAX_STREAMS: usize = 1024;
/// Maximum number of live streams per person. A browser has one per tab, an API client one per
/// followed resource.
pub const MAX_STREAMS_PER_PERSON: usize = 32;
/// Maximum number of downloads (run logs and audit exports). Each reads the database in parts.
pub const MAX_DOWNLOADS: usize = 32;
/// Maximum number of downloads per person.
pub const MAX_DOWNLOADS_PER_PERSON: usize = 4;
/// Time for open responses to end after shutdown begins.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Maximum time that a request may ask to wait for a target.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Time before the end of [`REQUEST_TIMEOUT`] at which a waiting request is answered.
pub const WAIT_MARGIN: Duration = Duration::from_secs(2);
/// Maximum number of requests that wait for an event. Further ones are answered at once.
pub const MAX_WAITING: usize = 64;
/// Maximum number of waiting requests per person.
pub const MAX_WAITING_PER_PERSON: usize = 8;
/// Minimum number of characters in the metrics token.
pub const MIN_METRICS_TOKEN_LENGTH: usize = 16;
