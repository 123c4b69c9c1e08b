//! The journal, read once for all streams of this process.
//!
//! # Theory
//!
//! One task reads the journal behind the last place it has read, and hands each event to every stream through a ring
//! ([`broadcast`]). It is woken by NOTIFY on a connection of its own, and looks by itself every [`SWEEP`], so a lost notification
//! costs time and nothing else. While committed events wait for an older transaction, it looks again soon ([`HELD_BACK`]).
//!
//! Streams must neither miss an event nor get one twice. A stream joins the ring *first* and reads the journal from its own place
//! *afterwards*, to the end. Whatever that reading did not show lies at or above the line of its snapshot; lines only rise; so the
//! feed had not handed it out when the stream joined, and it comes through the ring. (So a stream waits until the feed has found its
//! first place.) What comes twice has a place that the stream has passed already, and is dropped by that. A stream that is too slow for the ring is told to fetch everything again ([`Told::Reset`]):
//! the feed waits for nobody.
//!
//! *Logs.* That a log grew is notified, not journalled. Such news go through a ring of their own, which may drop some: the next one
//! says more. Whenever notifications may have been lost, streams are told so ([`Grown::Unsure`]) and look themselves.
//!
//! When the database is away, the feed tries again, keeps its place, and goes on from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::ids::RunId;
use sqlx::postgres::PgNotification;
use store::journal::{self, Entry, Position, Resume};
use store::{Store, StoreError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Events that a stream may lag behind before it is told to fetch everything again.
const RING: usize = 1024;
/// How often the journal is looked at although nobody was notified.
const SWEEP: Duration = Duration::from_secs(3);
/// Notifications that follow each other this closely are answered by one look.
const PACE: Duration = Duration::from_millis(20);
/// How soon it is looked at again when events wait for an older transaction to end; each time twice as late, up to [`SWEEP`].
const HELD_BACK: Duration = Duration::from_millis(20);
/// How long to wait before trying again when the database is away.
const AWAY: Duration = Duration::from_secs(1);
/// How long a stream waits for a feed that has not read anything yet.
const FIRST_PLACE: Duration = Duration::from_secs(5);
/// Events read at once.
const PART: i64 = 500;
/// Events that a stream may catch up on; with more, fetching everything anew is cheaper.
const MOST_BEHIND: i64 = 2_000;

/// Why a stream can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The feed could not read anything since the server's start.
    #[error("the feed has not reached the journal yet")]
    NotThere,
}

/// What the feed tells streams.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    /// Something happened.
    Entry(Arc<Entry>),
    /// Places of before are no good any more (a backup was restored): fetch everything again.
    Reset(Position),
}

/// What the feed tells streams about logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grown {
    /// A run's log has so many bytes.
    To(RunId, i64),
    /// Nobody knows: some news may have been lost.
    Unsure,
}

/// The feed's end for those who listen. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    store: Store,
    ring: broadcast::Sender<Told>,
    logs: broadcast::Sender<Grown>,
    place: watch::Receiver<Position>,
}

/// A stream's end: what it still has to catch up on, then what the ring brings.
#[derive(Debug)]
pub(crate) struct Listening {
    feed: Feed,
    ring: broadcast::Receiver<Told>,
    place: Position,
    caught_up: bool,
}

/// A stream's end for news about logs.
#[derive(Debug)]
pub(crate) struct Logs(broadcast::Receiver<Grown>);

impl Logs {
    /// What comes next. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Grown {
        match self.0.recv().await {
            Ok(grown) => grown,
            Err(broadcast::error::RecvError::Lagged(_)) => Grown::Unsure,
            // The feed has ended, and so will the stream.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What a stream joins.
#[derive(Debug)]
pub(crate) struct Joined {
    /// What happens.
    pub events: Listening,
    /// What logs grow.
    pub logs: Logs,
    /// What is to be told before anything else.
    pub first: Option<Told>,
}

impl Feed {
    /// Starts the task that reads; it ends with `stopping`.
    pub(crate) fn start(store: Store, stopping: CancellationToken) -> Self {
        let (ring, _) = broadcast::channel(RING);
        let (logs, _) = broadcast::channel(RING);
        let (moved, place) = watch::channel(Position { xid: 0, id: 0 });
        let reader =
            Reader { store: store.clone(), ring: ring.clone(), logs: logs.clone(), place: moved };
        tokio::spawn(async move {
            tokio::select! {
                () = reader.run() => {}
                () = stopping.cancelled() => {}
            }
        });
        Self { store, ring, logs, place }
    }

    /// Listens from a place on, or from now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn listen(&self, after: Option<Position>) -> Result<Joined, FeedError> {
        // Before anything is read: see the theory.
        let (ring, logs) = (self.ring.subscribe(), self.logs.subscribe());
        let mut feed = self.place.clone();
        let found = timeout(FIRST_PLACE, feed.wait_for(|place| place.xid > 0))
            .await
            .is_ok_and(|found| found.is_ok());
        if !found {
            return Err(FeedError::NotThere);
        }
        let join = |place, first| Joined {
            events: Listening { feed: self.clone(), ring, place, caught_up: false },
            logs: Logs(logs),
            first,
        };
        let Some(after) = after else {
            let now = journal::cursor(self.store.pool()).await?;
            return Ok(join(Position::of_cursor(now), None));
        };
        match journal::resume(self.store.pool(), after, MOST_BEHIND).await? {
            Resume::There => Ok(join(after, None)),
            Resume::Reset(place) => Ok(join(place, Some(Told::Reset(place)))),
        }
    }
}

impl Listening {
    /// The place up to which everything was told.
    pub(crate) fn place(&self) -> Position {
        self.place
    }

    /// What comes next. None: the server stops. Cancel-safe: what was not handed out comes with the next call.
    ///
    /// # Errors
    /// When the database does not answer while catching up; the stream should end and be resumed.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Told>>, FeedError> {
        if !self.caught_up {
            let part = journal::read(self.feed.store.pool(), self.place, PART).await?;
            self.place = part.next;
            self.caught_up = !part.more;
            if !part.entries.is_empty() {
                return Ok(Some(
                    part.entries.into_iter().map(|entry| Told::Entry(Arc::new(entry))).collect(),
                ));
            }
        }
        loop {
            let told = match self.ring.recv().await {
                Ok(told) => told,
                Err(broadcast::error::RecvError::Closed) => return Ok(None),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "a stream is too slow");
                    // What follows is what the ring still holds; a reset covers everything up to now.
                    let place = *self.feed.place.borrow();
                    self.place = self.place.max(place);
                    return Ok(Some(vec![Told::Reset(self.place)]));
                }
            };
            match &told {
                Told::Entry(entry) if entry.position <= self.place => continue,
                Told::Entry(entry) => self.place = entry.position,
                Told::Reset(place) => self.place = *place,
            }
            return Ok(Some(vec![told]));
        }
    }
}

/// The task that reads.
struct Reader {
    store: Store,
    ring: broadcast::Sender<Told>,
    logs: broadcast::Sender<Grown>,
    place: watch::Sender<Position>,
}

impl Reader {
    async fn run(self) {
        loop {
            if let Err(error) = self.follow().await {
                tracing::warn!(%error, "the journal can't be read; trying again");
                tokio::time::sleep(AWAY).await;
            }
        }
    }

    /// Follows the journal until the database goes away.
    async fn follow(&self) -> Result<(), StoreError> {
        let mut wake = store::listener(self.store.pool()).await?;
        wake.listen_all([journal::CHANNEL, journal::LOG_CHANNEL]).await?;
        self.find_place().await?;
        // No listener is fine, here and below.
        let _ = self.logs.send(Grown::Unsure);
        let mut soon = HELD_BACK;
        loop {
            let held_back = self.read_on().await?;
            let wait = if held_back { soon } else { SWEEP };
            soon = if held_back { (soon * 2).min(SWEEP) } else { HELD_BACK };
            let mut grown = BTreeMap::new();
            if let Ok(heard) = timeout(wait, wake.try_recv()).await {
                soon = HELD_BACK;
                self.note(&mut grown, heard?);
                let until = Instant::now() + PACE;
                while let Ok(heard) = timeout_at(until, wake.try_recv()).await {
                    self.note(&mut grown, heard?);
                }
            }
            for (run, bytes) in grown {
                let _ = self.logs.send(Grown::To(run, bytes));
            }
        }
    }

    /// Notes what a notification says about logs; what others say is in the journal, which is read next anyway.
    fn note(&self, grown: &mut BTreeMap<RunId, i64>, heard: Option<PgNotification>) {
        let Some(heard) = heard else {
            // The connection was lost, and whatever was said meanwhile with it.
            let _ = self.logs.send(Grown::Unsure);
            return;
        };
        if heard.channel() != journal::LOG_CHANNEL {
            return;
        }
        let parts =
            heard.payload().split_once(' ').map(|(run, bytes)| (run.parse(), bytes.parse::<i64>()));
        if let Some((Ok(run), Ok(bytes))) = parts {
            let known = grown.entry(run).or_default();
            *known = bytes.max(*known);
        }
    }

    /// Starts at the journal's end; goes on from where it was after the database was away.
    async fn find_place(&self) -> Result<(), StoreError> {
        let place = *self.place.borrow();
        if place.xid == 0 {
            let end = journal::cursor(self.store.pool()).await?;
            self.place.send_replace(Position::of_cursor(end));
            return Ok(());
        }
        if let Resume::Reset(place) =
            journal::resume(self.store.pool(), place, i64::MAX - 1).await?
        {
            self.place.send_replace(place);
            let _ = self.ring.send(Told::Reset(place));
        }
        Ok(())
    }

    async fn read_on(&self) -> Result<bool, StoreError> {
        loop {
            let place = *self.place.borrow();
            let part = journal::read(self.store.pool(), place, PART).await?;
            for entry in part.entries {
                let _ = self.ring.send(Told::Entry(Arc::new(entry)));
            }
            self.place.send_replace(part.next);
            if !part.more {
                return Ok(part.held_back);
            }
        }
    }
}
