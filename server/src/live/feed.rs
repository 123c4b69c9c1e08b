//! Reads the journal once for all streams of this process.
//!
//! One task reads the journal from its last position and sends each event to all streams through a
//! ring ([`broadcast`]). NOTIFY wakes it on a connection of its own. It also polls every
//! [`POLL_INTERVAL`], so a lost notification only costs time. While committed events wait for an
//! older transaction, it polls again soon ([`HORIZON_RETRY`]).
//!
//! A stream must neither miss an event nor get one twice. It joins the ring *first* and *then*
//! reads the journal from its own position to the end. An event that this read does not return is
//! at or above its snapshot's xmin. The xmin only rises, so the feed had not sent that event when
//! the stream joined, and it arrives through the ring. (A stream therefore waits until the feed has
//! a first position.) An event that arrives twice has a position that the stream has passed, so it
//! is dropped. A stream that is too slow for the ring gets [`FeedMessage::Reset`] and must fetch
//! everything again: the feed waits for no stream.
//!
//! *Logs.* Growth of a log is notified but not in the journal. It goes through a separate ring,
//! which may drop messages, because the next one supersedes them. If notifications may have been
//! lost, streams get [`LogGrowth::Unknown`] and query the log themselves.
//!
//! If the database is unavailable, the feed retries and continues from its position.
//!
//! This is a stream and not a background task: it has no period, and it ends with its connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::live::Live;
use engine::ids::RunId;
use sqlx::postgres::PgNotification;
use store::events::{Entry, Position, Resume};
use store::{Store, StoreError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Number of events that a stream may lag before it must fetch everything again.
const RING_CAPACITY: usize = 1024;
/// Interval of the sweep that makes up for lost notifications.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Notifications within this time cause a single read.
const BATCH_WINDOW: Duration = Duration::from_millis(20);
/// Delay before the next poll while events wait for an older transaction. It doubles each time, up
/// to [`POLL_INTERVAL`].
const HORIZON_RETRY: Duration = Duration::from_millis(20);
/// Delay before a retry while the database is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum time that a stream waits for the first position of the feed.
const FIRST_POSITION_TIMEOUT: Duration = Duration::from_secs(5);
/// Events per query.
const PAGE_SIZE: i64 = 500;
/// Maximum number of events to catch up on. Beyond that, fetching everything again is cheaper.
const MAX_BACKLOG: i64 = 2_000;

/// Why a stream can't start or continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The feed has not read anything since the server's start.
    #[error("the feed has not read the journal yet")]
    NotReady,
}

/// A message of the feed to streams.
#[derive(Debug, Clone)]
pub(crate) enum FeedMessage {
    Entry(Arc<Entry<Live>>),
    /// Earlier positions are invalid (a backup was restored). Fetch everything again.
    Reset(Position),
}

/// A message about logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogGrowth {
    /// The length of a run's log in bytes.
    To(RunId, i64),
    /// Messages may have been lost.
    Unknown,
}

/// The subscribers' handle of the feed. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    store: Store,
    ring: broadcast::Sender<FeedMessage>,
    logs: broadcast::Sender<LogGrowth>,
    position: watch::Receiver<Position>,
}

/// A stream of events: first those to catch up on, then those of the ring.
#[derive(Debug)]
pub(crate) struct Listening {
    feed: Feed,
    ring: broadcast::Receiver<FeedMessage>,
    position: Position,
    caught_up: bool,
}

/// A stream of messages about logs.
#[derive(Debug)]
pub(crate) struct Logs(broadcast::Receiver<LogGrowth>);

impl Logs {
    /// Waits for the next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> LogGrowth {
        match self.0.recv().await {
            Ok(grown) => grown,
            Err(broadcast::error::RecvError::Lagged(_)) => LogGrowth::Unknown,
            // The feed has ended, and so will the stream.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The streams of a subscriber.
#[derive(Debug)]
pub(crate) struct Joined {
    pub events: Listening,
    /// Growth of logs.
    pub logs: Logs,
    /// A message to send before all others.
    pub first: Option<FeedMessage>,
}

impl Feed {
    /// Starts the reader task. It ends with `stopping`.
    pub(crate) fn start(store: Store, stopping: CancellationToken) -> Self {
        let (ring, _) = broadcast::channel(RING_CAPACITY);
        let (logs, _) = broadcast::channel(RING_CAPACITY);
        let (position_sender, position) = watch::channel(Position { xid: 0, id: 0 });
        let reader = Reader {
            store: store.clone(),
            ring: ring.clone(),
            logs: logs.clone(),
            position: position_sender,
        };
        tokio::spawn(async move {
            tokio::select! {
                () = reader.run() => {}
                () = stopping.cancelled() => {}
            }
        });
        Self { store, ring, logs, position }
    }

    /// Subscribes from a position, or from now.
    ///
    /// # Errors
    /// If the database does not answer.
    pub(crate) async fn listen(&self, after: Option<Position>) -> Result<Joined, FeedError> {
        // Join the ring before reading the journal: see the module documentation.
        let (ring, logs) = (self.ring.subscribe(), self.logs.subscribe());
        let mut feed = self.position.clone();
        let found = timeout(FIRST_POSITION_TIMEOUT, feed.wait_for(|position| position.xid > 0))
            .await
            .is_ok_and(|found| found.is_ok());
        if !found {
            return Err(FeedError::NotReady);
        }
        let join = |position, first| Joined {
            events: Listening { feed: self.clone(), ring, position, caught_up: false },
            logs: Logs(logs),
            first,
        };
        let Some(after) = after else {
            let now = store::events::cursor(self.store.pool()).await?;
            return Ok(join(Position::from_cursor(now), None));
        };
        match store::events::resume(self.store.pool(), after, MAX_BACKLOG).await? {
            Resume::There => Ok(join(after, None)),
            Resume::Reset(position) => Ok(join(position, Some(FeedMessage::Reset(position)))),
        }
    }
}

impl Listening {
    /// The position up to which all events were sent.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Waits for the next messages. `None` if the server stops. Cancel-safe: unreturned messages
    /// come with the next call.
    ///
    /// # Errors
    /// If the database does not answer while catching up. The stream should end, and its client
    /// resume it.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<FeedMessage>>, FeedError> {
        if !self.caught_up {
            let part =
                store::events::read(self.feed.store.pool(), self.position, PAGE_SIZE).await?;
            self.position = part.next;
            self.caught_up = !part.more;
            if !part.entries.is_empty() {
                return Ok(Some(
                    part.entries
                        .into_iter()
                        .map(|entry| FeedMessage::Entry(Arc::new(entry)))
                        .collect(),
                ));
            }
        }
        loop {
            let feed_message = match self.ring.recv().await {
                Ok(feed_message) => feed_message,
                Err(broadcast::error::RecvError::Closed) => return Ok(None),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "a stream is too slow");
                    // Next come the messages that the ring still has. A reset covers everything up
                    // to now.
                    let position = *self.feed.position.borrow();
                    self.position = self.position.max(position);
                    return Ok(Some(vec![FeedMessage::Reset(self.position)]));
                }
            };
            match &feed_message {
                FeedMessage::Entry(entry) if entry.position <= self.position => continue,
                FeedMessage::Entry(entry) => self.position = entry.position,
                FeedMessage::Reset(position) => self.position = *position,
            }
            return Ok(Some(vec![feed_message]));
        }
    }
}

/// The reader task.
struct Reader {
    store: Store,
    ring: broadcast::Sender<FeedMessage>,
    logs: broadcast::Sender<LogGrowth>,
    position: watch::Sender<Position>,
}

impl Reader {
    async fn run(self) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::warn!(%error, "cannot read the journal, retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Follows the journal until the database becomes unavailable.
    async fn follow(&self) -> Result<(), StoreError> {
        let mut wake = store::listener(self.store.pool()).await?;
        wake.listen_all([store::events::CHANNEL_EVENT, store::events::CHANNEL_LOG]).await?;
        self.find_position().await?;
        // A send fails only without subscribers. This applies to all sends here.
        let _ = self.logs.send(LogGrowth::Unknown);
        let mut soon = HORIZON_RETRY;
        loop {
            let is_delayed = self.read_new_entries().await?;
            let wait = if is_delayed { soon } else { POLL_INTERVAL };
            soon = if is_delayed { (soon * 2).min(POLL_INTERVAL) } else { HORIZON_RETRY };
            let mut grown = BTreeMap::new();
            if let Ok(heard) = timeout(wait, wake.try_recv()).await {
                soon = HORIZON_RETRY;
                self.note(&mut grown, heard?);
                let until = Instant::now() + BATCH_WINDOW;
                while let Ok(heard) = timeout_at(until, wake.try_recv()).await {
                    self.note(&mut grown, heard?);
                }
            }
            for (run, bytes) in grown {
                let _ = self.logs.send(LogGrowth::To(run, bytes));
            }
        }
    }

    /// Records a notification about a log. All others only wake the reader, which reads the journal
    /// next anyway.
    fn note(&self, grown: &mut BTreeMap<RunId, i64>, heard: Option<PgNotification>) {
        let Some(heard) = heard else {
            // The connection was lost, and with it any notifications.
            let _ = self.logs.send(LogGrowth::Unknown);
            return;
        };
        if heard.channel() != store::events::CHANNEL_LOG {
            return;
        }
        let parts =
            heard.payload().split_once(' ').map(|(run, bytes)| (run.parse(), bytes.parse::<i64>()));
        if let Some((Ok(run), Ok(bytes))) = parts {
            let known = grown.entry(run).or_default();
            *known = bytes.max(*known);
        }
    }

    /// Starts at the end of the journal. After a database failure, continues at the last position.
    async fn find_position(&self) -> Result<(), StoreError> {
        let position = *self.position.borrow();
        if position.xid == 0 {
            let end = store::events::cursor(self.store.pool()).await?;
            self.position.send_replace(Position::from_cursor(end));
            return Ok(());
        }
        if let Resume::Reset(position) =
            store::events::resume(self.store.pool(), position, i64::MAX - 1).await?
        {
            self.position.send_replace(position);
            let _ = self.ring.send(FeedMessage::Reset(position));
        }
        Ok(())
    }

    async fn read_new_entries(&self) -> Result<bool, StoreError> {
        loop {
            let position = *self.position.borrow();
            let part = store::events::read(self.store.pool(), position, PAGE_SIZE).await?;
            for entry in part.entries {
                let _ = self.ring.send(FeedMessage::Entry(Arc::new(entry)));
            }
            self.position.send_replace(part.next);
            if !part.more {
                return Ok(part.is_delayed);
            }
        }
    }
}
