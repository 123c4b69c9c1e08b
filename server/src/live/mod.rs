//! `GET /events`, and `GET /api/v1/watch` for API clients: the live stream as server-sent events.
//!
//! * `topics`: a comma-separated list of [`Topic`]s to receive. Without it, all topics but the
//!   growth of logs.
//! * `after`: the cursor of the page's data, or an event id. `Last-Event-ID`, which browsers send
//!   when they reconnect, takes precedence.
//!
//! A message has a [`Live`](api::live::Live) as JSON and the event's id. `reset` means: fetch
//! everything again. Every 15 seconds there is an event named `heartbeat`. Its id is the position
//! up to which all events were sent, so a quiet stream resumes close to the end of the journal. It
//! also shows that the connection is alive.
//!
//! The stream ends within 30 seconds ([`StreamIntervals`]) after its session or token ends;
//! reconnecting then returns 401. It also ends when its user loses the permission to view;
//! reconnecting then returns 403.

pub(crate) mod feed;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use api::Problem;
use api::live::{Live, MAX_TOPICS, Topic, UnknownTopic};
use api::problem::DEFAULT_RETRY_AFTER;
use api::runs::RunState;
use control::people::{Actor, Permission};
use engine::ids::{NoderoleId, RunId};
use store::events::{Entry, InvalidPosition, Position};

use crate::AppState;
use crate::http::limits;
use crate::http::permits::Full;
use crate::http::problems::{QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::live::feed::{FeedError, FeedMessage, Joined, LogGrowth};

/// Intervals of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamIntervals {
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Interval of the check that the user is still signed in and has the permission to view.
    pub session_check: Duration,
}

impl Default for StreamIntervals {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(15), session_check: Duration::from_secs(30) }
    }
}

/// Parameters of a stream.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StreamQuery {
    /// Comma-separated list of topics to receive. Default: all topics except the growth of logs.
    topics: String,
    /// Return events after this one: the id of an event, or the cursor of a page's data.
    after: String,
}

/// Opens a stream.
pub(crate) async fn events(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    actor.require(Permission::Viewer)?;
    let topics = Topics::parse(&query.topics)?;
    let after = start_position(&headers, &query.after)?;
    let permit = state.streams.take(actor.person).map_err(full)?;
    let subscription = state.feed.listen(after).await.map_err(|error| {
        tracing::warn!(%error, "cannot start a stream");
        Problem::unavailable("The journal is not available. Try again in a moment.")
    })?;
    let stream = stream(state, actor, topics, subscription);
    let stream = async_stream::stream! {
        let _permit = permit;
        for await event in stream {
            yield event;
        }
    };
    let mut answer = Sse::new(stream).into_response();
    // For proxies that would otherwise buffer the stream.
    answer
        .headers_mut()
        .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(answer)
}

fn full(full: Full) -> Problem {
    match full {
        Full::Server => Problem::unavailable(
            "The server has reached its limit of live streams. Close a tab, or try again later.",
        ),
        Full::ForOne => Problem::new(
            429,
            "too_many_streams",
            "Too many live streams",
            format!(
                "You already have {} open live streams, which is the limit. Close a tab or an API \
                 client, then try again.",
                limits::MAX_STREAMS_PER_PERSON
            ),
        )
        .again_after(DEFAULT_RETRY_AFTER),
    }
}

fn start_position(headers: &HeaderMap, after: &str) -> Result<Option<Position>, Problem> {
    let last =
        headers.get("last-event-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = if last.is_empty() { after } else { last };
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error: InvalidPosition| {
            Problem::invalid(format!("Invalid `after`: {error}."))
        }),
    }
}

/// The topics of a stream. An empty set means all.
#[derive(Debug, PartialEq, Eq)]
struct Topics(BTreeSet<Topic>);

impl Topics {
    fn parse(text: &str) -> Result<Self, Problem> {
        let named = text.split(',').map(str::trim).filter(|topic| !topic.is_empty());
        let topics: BTreeSet<Topic> = named
            .map(str::parse)
            .collect::<Result<_, UnknownTopic>>()
            .map_err(|error| Problem::invalid(format!("Invalid `topics`: {error}.")))?;
        match topics.len() > MAX_TOPICS {
            true => Err(Problem::invalid(format!(
                "Too many topics: a stream can have at most {MAX_TOPICS}. Open another stream, or \
                 omit the topics."
            ))),
            false => Ok(Self(topics)),
        }
    }

    fn matches(&self, entry: &Entry<Live>) -> bool {
        self.0.is_empty() || entry.topic.parse().is_ok_and(|topic| self.0.contains(&topic))
    }

    fn runs(&self) -> Vec<RunId> {
        self.0
            .iter()
            .filter_map(|topic| if let Topic::Run(run) = topic { Some(*run) } else { None })
            .collect()
    }
}

/// The runs whose logs a stream follows, with their deployments.
#[derive(Debug, Default)]
struct Logs {
    runs: Vec<RunId>,
    noderoles: BTreeMap<RunId, NoderoleId>,
}

impl Logs {
    /// Queries the current lengths. On an error, the next growth reports them.
    async fn current_lengths(&mut self, state: &AppState) -> Vec<Live> {
        let now = store::events::lengths(state.control.store().pool(), &self.runs)
            .await
            .unwrap_or_default();
        for live in &now {
            if let Live::Run { run, noderole, .. } = live {
                self.noderoles.insert(*run, *noderole);
            }
        }
        now
    }

    /// A run that is queued after its page was opened becomes known with its first event.
    fn learn(&mut self, feed_message: &FeedMessage) {
        if let FeedMessage::Entry(entry) = feed_message
            && let Live::Run { run, noderole, .. } = entry.event
            && self.runs.contains(&run)
        {
            self.noderoles.insert(run, noderole);
        }
    }

    async fn new_messages(&mut self, state: &AppState, grown: LogGrowth) -> Vec<Live> {
        match grown {
            _ if self.runs.is_empty() => Vec::new(),
            LogGrowth::To(run, log_bytes) => match self.noderoles.get(&run) {
                Some(noderole) => vec![Live::Run {
                    run,
                    noderole: *noderole,
                    state: RunState::Running,
                    log_bytes,
                }],
                None => Vec::new(),
            },
            LogGrowth::Unknown => self.current_lengths(state).await,
        }
    }
}

fn stream(
    state: AppState,
    actor: Actor,
    topics: Topics,
    subscription: Joined,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let Joined { mut events, logs: mut log_growth, first } = subscription;
    async_stream::stream! {
        let (mut heartbeat, mut still) = (
            every(state.stream_intervals.heartbeat),
            every(state.stream_intervals.session_check)
        );
        // Shows at once that the connection works, and its position.
        yield Ok(beat(events.position()));
        if let Some(feed_message) = first {
            yield Ok(message(&feed_message));
        }
        let mut logs = Logs { runs: topics.runs(), ..Logs::default() };
        let mut sieve = EventFilter { topics, last: None };
        for live in logs.new_messages(&state, LogGrowth::Unknown).await {
            yield Ok(unplaced(&live));
        }
        loop {
            let turn = tokio::select! {
                biased;
                () = state.stopping.cancelled() => break,
                _ = still.tick() => StreamEvent::SessionCheck,
                _ = heartbeat.tick() => StreamEvent::Heartbeat,
                feed_message = events.next() => StreamEvent::FeedMessage(feed_message),
                grown = log_growth.next() => StreamEvent::LogGrowth(grown),
            };
            match turn {
                // An error counts as no. The page reconnects when the database answers again.
                StreamEvent::SessionCheck if state.people.can_still_view(&actor).await != Ok(true) => break,
                StreamEvent::SessionCheck => {}
                StreamEvent::Heartbeat => yield Ok(beat(events.position())),
                StreamEvent::FeedMessage(Ok(Some(feed_message))) => {
                    for feed_message in feed_message
                        .iter()
                        .filter(|feed_message| sieve.accepts(feed_message)) {
                        logs.learn(feed_message);
                        yield Ok(message(feed_message));
                    }
                }
                // The server stops or the database is unavailable. The page reconnects.
                StreamEvent::FeedMessage(Ok(None) | Err(_)) => break,
                StreamEvent::LogGrowth(grown) => {
                    for live in logs.new_messages(&state, grown).await {
                        yield Ok(unplaced(&live));
                    }
                }
            }
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The next action of a stream.
enum StreamEvent {
    SessionCheck,
    Heartbeat,
    FeedMessage(Result<Option<Vec<FeedMessage>>, FeedError>),
    LogGrowth(LogGrowth),
}

/// Filters events by topic.
#[derive(Debug)]
struct EventFilter {
    topics: Topics,
    /// The last event sent. An event with several topics is in the journal once per topic.
    last: Option<Arc<Entry<Live>>>,
}

impl EventFilter {
    fn accepts(&mut self, feed_message: &FeedMessage) -> bool {
        let FeedMessage::Entry(entry) = feed_message else {
            return true;
        };
        let again = self.last.as_ref().is_some_and(|last| {
            last.position.xid == entry.position.xid && last.event == entry.event
        });
        if again || !self.topics.matches(entry) {
            return false;
        }
        self.last = Some(Arc::clone(entry));
        true
    }
}

fn message(feed_message: &FeedMessage) -> Event {
    let (place, live) = match feed_message {
        FeedMessage::Entry(entry) => (entry.position, &entry.event),
        FeedMessage::Reset(place) => (*place, &Live::Reset),
    };
    let event = Event::default().id(place.to_string());
    // Every `Live` can be serialized as JSON.
    event.json_data(live).unwrap_or_else(|_| beat(place))
}

/// A message that is not in the journal. It has no id, so the browser keeps its last one.
fn unplaced(live: &Live) -> Event {
    Event::default().json_data(live).unwrap_or_default()
}

fn beat(place: Position) -> Event {
    Event::default().event("heartbeat").id(place.to_string()).data("{}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ids::BlueprintNumber;

    fn entry(topic: &str, xid: i64, target: i64) -> FeedMessage {
        let live = Live::Blueprint { blueprint: BlueprintNumber(target) };
        FeedMessage::Entry(Arc::new(Entry {
            position: Position { xid, id: 1 },
            topic: topic.into(),
            event: live,
        }))
    }

    #[test]
    fn event_with_several_topics_is_sent_once() {
        let deployment = "deployment:00000000-0000-0000-0000-000000000001";
        let through = |topics: &str, feed_message: &[FeedMessage]| {
            let mut sieve =
                EventFilter { topics: Topics::parse(topics).expect("topics"), last: None };
            feed_message.iter().map(|feed_message| sieve.accepts(feed_message)).collect::<Vec<_>>()
        };
        let messages = [
            entry("blueprints", 1, 1),
            entry(deployment, 1, 1),
            entry(deployment, 1, 2),
            entry("blueprints", 2, 2),
        ];
        assert_eq!(through("", &messages), [true, false, true, true]);
        assert_eq!(through("blueprints", &messages), [true, false, false, true]);
        assert_eq!(through(deployment, &messages), [false, true, true, false]);
        assert_eq!(through("nodes,", &messages), [false; 4]);
        assert_eq!(through("nodes", &[FeedMessage::Reset(Position::from_cursor(1))]), [true]);
        assert_eq!(through("nodes", &[entry("of another version", 1, 1)]), [false]);
        for wrong in
            ["x", "run:1,run:y", &(0..=MAX_TOPICS).map(|n| format!("run:{n},")).collect::<String>()]
        {
            assert_eq!(Topics::parse(wrong).map_err(|problem| problem.status), Err(400), "{wrong}");
        }
    }

    #[test]
    fn reconnecting_browser_resumes_after_last_event() {
        let mut headers = HeaderMap::new();
        assert_eq!(start_position(&headers, ""), Ok(None));
        assert_eq!(start_position(&headers, "12"), Ok(Some(Position { xid: 12, id: 0 })));
        headers.insert("last-event-id", HeaderValue::from_static("15-3"));
        assert_eq!(start_position(&headers, "12"), Ok(Some(Position { xid: 15, id: 3 })));
        headers.insert("last-event-id", HeaderValue::from_static("x"));
        assert_eq!(start_position(&headers, "12").map_err(|problem| problem.status), Err(400));
    }
}
