//! What one server takes at most. Beyond these it says no at once, so that what it has taken goes on at its pace.

use std::time::Duration;

/// Bytes of a request's body; an edit is small, and so is a verdict.
pub const BODY: usize = 1024 * 1024;
/// Bytes of the body of a barclamp import, which carries scripts.
pub const IMPORT_BODY: usize = 16 * 1024 * 1024;
/// Bytes of what a machine reports of itself: its facts as JSON, however they are spaced.
pub const REPORT_BODY: usize = 2 * api::limits::FACTS;
/// Objects and lists within one another in a body of JSON. It is what `serde_json` reads, and a test holds it to that.
pub const LEVELS: usize = 127;
/// How long a request may take until its answer begins. Streams and downloads go on after that.
pub const REQUEST: Duration = Duration::from_secs(30);
/// How long a request's body may take to come; less than its answer, so that it is told as what it is.
pub const BODY_TIME: Duration = Duration::from_secs(25);
/// Connections at once; the next one waits until another ends. Each page has one for its stream, and a few more while it loads.
pub const CONNECTIONS: usize = 4096;
/// Bytes of a request's first line and headers. The longest address that a page has is a filter's, with its cookies.
pub const HEAD: usize = 64 * 1024;
/// How long a request's head may take to come, and a connection to say nothing. Longer than proxies keep one that nobody uses (a minute), so
/// that it is they who close it and no request is lost on it.
pub const HEAD_TIME: Duration = Duration::from_secs(75);
/// Requests that are worked on at once, answered already or not; the next one is refused (503). The database's pool is far smaller, so
/// more would wait there until they time out.
pub const REQUESTS: usize = 256;
/// Live streams at once. Each costs a task and a place in the feed's ring.
pub const STREAMS: usize = 1024;
/// Those of one person: a page has one for each tab, a program one for each thing that it follows.
pub const STREAMS_EACH: usize = 32;
/// Downloads at once: logs of runs and exports of the audit. Each asks the database for part after part.
pub const DOWNLOADS: usize = 32;
/// Those of one person.
pub const DOWNLOADS_EACH: usize = 4;
/// How long open answers may go on after the order to stop.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long a request may wait for a target, at most, as it is asked for.
pub const WAIT: Duration = Duration::from_secs(30);
/// So long before its time is over a request that waits is answered.
pub const ROOM: Duration = Duration::from_secs(2);
/// Requests that wait for something to happen at once, of all that are answered; the next one is answered at once.
pub const WAITING: usize = 64;
/// Those of one person.
pub const WAITING_EACH: usize = 8;
/// Fewest characters of the token that shows metrics.
pub const METRICS_TOKEN: usize = 16;
