//! A tab's part of the live stream, in the browser: the subscriptions of its page, the source of
//! their events, and delivery.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use api::At;
use api::live::MAX_TOPICS;
use leptos::prelude::*;
use uuid::Uuid;
use web_sys::MessageEvent;

use super::connection::{Connection, ConnectionHandler, SILENCE_TIMEOUT_MS};
use super::subscriptions::{JournalPosition, Subscriptions, parse_position};
use super::tabs::{Channel, TabMessage, request_lead};
use super::{Event, Status, Topic, coalesce};

/// Subscriptions within this time share one reconnect.
const SETTLE: Duration = Duration::from_millis(40);
/// A hidden tab closes its own, unshared connection after this time.
const HIDDEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of events queued for the next frame. Beyond it they become a reset. Hidden
/// pages get no frames.
const MAX_QUEUED_EVENTS: usize = 5_000;
/// Delays between reconnects when the server refuses, in seconds. If the server is only
/// unreachable, the browser reconnects itself.
const RETRY_DELAYS_SECS: [u64; 4] = [1, 2, 5, 10];
/// The interval of the health check of the connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// A tab without a message for this time (milliseconds) is closed, or suspended and will subscribe
/// again.
const TAB_TIMEOUT_MS: f64 = 300_000.0;

pub(super) type Shared = StoredValue<Stream, LocalStorage>;
type EventHandler = Rc<dyn Fn(&[Event])>;

/// The source of this tab's events.
enum Role {
    /// None: there was no subscription yet.
    Idle,
    /// The tab's own connection, not shared.
    Alone,
    /// The connection of another tab.
    Follower { channel: Channel, leader_heard: f64 },
    /// The tab's own connection, shared with all tabs.
    Leader { channel: Channel },
}

pub(super) struct Stream {
    status: RwSignal<Status>,
    tab: String,
    role: Role,
    next: u64,
    handlers: BTreeMap<u64, EventHandler>,
    /// The subscriptions of the page's parts.
    page: Subscriptions<u64>,
    /// The topics of the last request.
    requested: Option<BTreeSet<Topic>>,
    request_number: u64,
    /// The leader has not confirmed the last request yet.
    pending: bool,
    /// The subscriptions of all tabs, while this tab has the connection.
    tabs: Subscriptions<String>,
    seen: BTreeMap<String, f64>,
    /// Tabs whose requests are not confirmed yet.
    unconfirmed: BTreeMap<String, u64>,
    connection: Option<Connection>,
    waiting: Vec<Event>,
    frame_requested: bool,
    settling: bool,
    failures: usize,
    last_visible_at: f64,
}

impl Stream {
    pub(super) fn new(status: RwSignal<Status>) -> Self {
        Self {
            status,
            tab: Uuid::new_v4().to_string(),
            role: Role::Idle,
            next: 0,
            handlers: BTreeMap::new(),
            page: Subscriptions::default(),
            requested: None,
            request_number: 0,
            pending: false,
            tabs: Subscriptions::default(),
            seen: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            connection: None,
            waiting: Vec::new(),
            frame_requested: false,
            settling: false,
            failures: 0,
            last_visible_at: 0.0,
        }
    }

    fn send(&self, message: &TabMessage) {
        if let Role::Follower { channel, .. } | Role::Leader { channel } = &self.role {
            channel.send(message);
        }
    }

    fn leads(&self) -> bool {
        matches!(self.role, Role::Alone | Role::Leader { .. })
    }

    /// Reports the state of the connection to the page and the other tabs.
    fn set_connection_state(&mut self, lost: Option<i64>) {
        let status = lost.map_or(Status::Live, |since| Status::Lost { since: At(since) });
        self.status.try_set(status);
        if matches!(self.role, Role::Leader { .. }) {
            self.send(&TabMessage::Connection { lost });
        }
    }

    fn lost_since(&self) -> Option<i64> {
        match self.status.try_get_untracked() {
            Some(Status::Lost { since }) => Some(since.0),
            _ => None,
        }
    }

    /// Requests topics and a position if the last request does not cover them.
    fn request(&mut self) {
        let Some((topics, after)) = self.page.next_connection(self.requested.as_ref()) else {
            return;
        };
        self.requested = Some(topics.clone());
        self.request_number += 1;
        if self.leads() {
            let tab = self.tab.clone();
            match topics.is_empty() {
                true => self.tabs.leave(&tab),
                false => {
                    let own_topics: Vec<Topic> = topics.iter().copied().collect();
                    // This tab's own page has priority, since no other tab can serve it. Other tabs
                    // can open their own connections.
                    for other in self.tabs.make_room(&tab, &own_topics, MAX_TOPICS) {
                        self.seen.remove(&other);
                        self.unconfirmed.remove(&other);
                        self.send(&TabMessage::Full { tab: other });
                    }
                    self.tabs.join(tab, topics, after);
                }
            }
            return;
        }
        self.pending = !topics.is_empty();
        let message = match topics.is_empty() {
            true => TabMessage::Unsubscribe { tab: self.tab.clone() },
            false => TabMessage::Subscribe {
                tab: self.tab.clone(),
                request: self.request_number,
                topics: topics.iter().map(ToString::to_string).collect(),
                after,
            },
        };
        self.send(&message);
    }

    /// Repeats all subscriptions, because the connection's owner changed.
    fn request_again(&mut self) {
        self.requested = None;
        self.request();
    }
}

pub(super) fn join(shared: Shared, topics: Vec<Topic>, from: i64, handler: EventHandler) -> u64 {
    let mut id = 0;
    let mut first = false;
    shared.update_value(|stream| {
        id = stream.next;
        stream.next += 1;
        stream.handlers.insert(id, handler);
        stream.page.join(id, topics, (from, 0));
        first = matches!(stream.role, Role::Idle);
        if first {
            stream.role = Role::Alone;
        }
    });
    if first {
        begin(shared);
    }
    settle(shared);
    id
}

pub(super) fn leave(shared: Shared, id: u64) {
    let left = shared.try_update_value(|stream| {
        stream.handlers.remove(&id);
        stream.page.leave(&id);
    });
    if left.is_some() {
        settle(shared);
    }
}

/// Determines the tab's role among the others.
fn begin(shared: Shared) {
    if let Some(channel) = Channel::open(move |message| on_tab_message(shared, message)) {
        let leader_heard = js_sys::Date::now();
        shared.update_value(|stream| stream.role = Role::Follower { channel, leader_heard });
        request_lead(false, move || lead(shared), move || on_lead_lost(shared));
    }
    let on_pagehide = window_event_listener(leptos::ev::pagehide, move |_| {
        shared.try_update_value(|stream| {
            stream.send(&TabMessage::Unsubscribe { tab: stream.tab.clone() })
        });
    });
    // The browser itself may wait a long time before it reconnects.
    let on_online = window_event_listener(leptos::ev::online, move |_| {
        shared.try_update_value(|stream| {
            if stream.lost_since().is_some() {
                stream.connection = None;
            }
        });
        settle(shared);
    });
    let on_visible =
        window_event_listener(leptos::ev::visibilitychange, move |_| check_connection(shared));
    let _ = set_interval_with_handle(move || check_connection(shared), CHECK_INTERVAL);
    // These closures live as long as the page.
    std::mem::forget((on_pagehide, on_online, on_visible));
}

/// Makes this tab the leader.
fn lead(shared: Shared) {
    shared.try_update_value(|stream| {
        if let Role::Follower { channel, .. } = std::mem::replace(&mut stream.role, Role::Alone) {
            channel.send(&TabMessage::Lead);
            stream.role = Role::Leader { channel };
            stream.pending = false;
            stream.request_again();
        }
    });
    settle(shared);
}

/// Another tab stole the lead, because it received nothing from this one.
fn on_lead_lost(shared: Shared) {
    let follows = shared.try_update_value(|stream| {
        let Role::Leader { channel } = std::mem::replace(&mut stream.role, Role::Alone) else {
            return false;
        };
        stream.role = Role::Follower { channel, leader_heard: js_sys::Date::now() };
        stream.connection = None;
        stream.tabs = Subscriptions::default();
        stream.seen.clear();
        stream.request_again();
        true
    });
    if follows == Some(true) {
        request_lead(false, move || lead(shared), move || on_lead_lost(shared));
    }
}

/// Adapts the connection to the subscriptions after a short delay.
fn settle(shared: Shared) {
    let already = shared.try_update_value(|stream| std::mem::replace(&mut stream.settling, true));
    if already == Some(false) {
        set_timeout(move || adjust(shared), SETTLE);
    }
}

fn adjust(shared: Shared) {
    let connect = shared.try_update_value(|stream| {
        stream.settling = false;
        stream.request();
        if !stream.leads() {
            return None;
        }
        let (topics, after) = stream
            .tabs
            .next_connection(stream.connection.as_ref().map(|connection| &connection.topics))?;
        stream.connection = None;
        if topics.is_empty() {
            stream.status.try_set(Status::Quiet);
            return None;
        }
        Some((topics, after))
    });
    if let Some(Some((topics, after))) = connect {
        let connection = Connection::open(topics, after, &shared);
        shared.try_update_value(|stream| stream.connection = connection);
    }
    // The new connection covers all requests up to now.
    shared.try_update_value(|stream| {
        for (tab, request) in std::mem::take(&mut stream.unconfirmed) {
            stream.send(&TabMessage::Subscribed { tab, request });
        }
    });
}

impl ConnectionHandler for Shared {
    fn opened(&self) {
        self.try_update_value(|stream| {
            stream.failures = 0;
            stream.record_contact();
            stream.set_connection_state(None);
        });
    }

    fn message(&self, message: &MessageEvent) {
        let Some(event) =
            message.data().as_string().and_then(|text| serde_json::from_str::<Event>(&text).ok())
        else {
            return;
        };
        let position = parse_position(&message.last_event_id());
        self.try_update_value(|stream| {
            stream.record_contact();
            match position {
                Some(position) if event == Event::Reset => stream.tabs.restart(position),
                Some(position) => stream.tabs.advance(position),
                None => {}
            }
            stream.send(&TabMessage::Event { position, event: event.clone() });
        });
        receive(*self, position, event);
    }

    fn beat(&self, message: &MessageEvent) {
        let position = parse_position(&message.last_event_id());
        self.try_update_value(|stream| {
            stream.record_contact();
            if let Some(position) = position {
                stream.tabs.advance(position);
                stream.page.advance(position);
            }
            stream.send(&TabMessage::Beat { position });
        });
    }

    fn failed(&self) {
        on_connection_failed(*self, false);
    }
}

impl Stream {
    fn record_contact(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.last_message_at = js_sys::Date::now();
        }
    }
}

/// Queues an event for the page, unless the page received it before.
fn receive(shared: Shared, position: Option<JournalPosition>, event: Event) {
    let needs_frame = shared.try_update_value(|stream| {
        // Lengths of logs are not in the journal. Such events have the position of the event before
        // them.
        let has_position = !matches!(event, Event::Run { .. });
        if let (Some(position), Event::Reset) = (position, &event) {
            stream.page.restart(position);
        } else if let Some(position) = position.filter(|_| !stream.pending) {
            if has_position && stream.page.has_passed(position) {
                return false;
            }
            stream.page.advance(position);
        }
        if stream.waiting.len() >= MAX_QUEUED_EVENTS {
            stream.waiting = vec![Event::Reset];
        }
        stream.waiting.push(event);
        !std::mem::replace(&mut stream.frame_requested, true)
    });
    if needs_frame == Some(true) {
        request_animation_frame(move || deliver(shared));
    }
}

/// Delivers the events since the last frame. Nothing is borrowed during the callbacks, since these
/// may subscribe and unsubscribe.
fn deliver(shared: Shared) {
    let batch = shared.try_update_value(|stream| {
        stream.frame_requested = false;
        let handlers: Vec<EventHandler> = stream.handlers.values().cloned().collect();
        (std::mem::take(&mut stream.waiting), handlers)
    });
    let Some((events, handlers)) = batch else { return };
    let events = coalesce(events);
    for handler in handlers {
        handler(&events);
    }
}

/// Handles a failed or silent connection. The browser reconnects itself unless the server refused,
/// or the browser takes a dead connection for alive.
fn on_connection_failed(shared: Shared, silent: bool) {
    let again = shared.try_update_value(|stream| {
        let since = stream.lost_since().unwrap_or(js_sys::Date::now() as i64);
        stream.set_connection_state(Some(since));
        let over = silent || stream.connection.as_ref().is_some_and(Connection::is_closed);
        over.then(|| {
            stream.connection = None;
            stream.failures += 1;
            RETRY_DELAYS_SECS[(stream.failures - 1).min(RETRY_DELAYS_SECS.len() - 1)]
        })
    });
    if let Some(Some(seconds)) = again {
        set_timeout(move || settle(shared), Duration::from_secs(seconds));
    }
}

/// Handles a message of another tab.
fn on_tab_message(shared: Shared, message: TabMessage) {
    match message {
        TabMessage::Event { position, event } => {
            if follow(shared, |_| ()) {
                receive(shared, position, event);
            }
        }
        TabMessage::Beat { position } => {
            follow(shared, |stream| {
                if let Some(position) = position.filter(|_| !stream.pending) {
                    stream.page.advance(position);
                }
                stream.send(&TabMessage::Alive { tab: stream.tab.clone() });
            });
        }
        TabMessage::Connection { lost } => {
            follow(shared, |stream| stream.set_connection_state(lost));
        }
        TabMessage::Lead => {
            follow(shared, Stream::request_again);
        }
        TabMessage::Subscribed { tab, request } => {
            follow(shared, |stream| {
                if tab == stream.tab && request == stream.request_number {
                    stream.pending = false;
                }
            });
        }
        TabMessage::Full { tab } => connect_alone(shared, &tab),
        TabMessage::Subscribe { .. }
        | TabMessage::Alive { .. }
        | TabMessage::Unsubscribe { .. } => serve(shared, message),
    }
}

/// Runs `act` if another tab leads, and records that the leader is alive.
fn follow(shared: Shared, act: impl FnOnce(&mut Stream)) -> bool {
    let follows = shared.try_update_value(|stream| {
        let Role::Follower { leader_heard, .. } = &mut stream.role else { return false };
        *leader_heard = js_sys::Date::now();
        act(stream);
        true
    });
    follows == Some(true)
}

/// Handles messages to the leader.
fn serve(shared: Shared, message: TabMessage) {
    let changed = shared.try_update_value(|stream| {
        if !matches!(stream.role, Role::Leader { .. }) {
            return false;
        }
        let now = js_sys::Date::now();
        match message {
            TabMessage::Subscribe { tab, request, topics, after } => {
                let topics: Vec<Topic> =
                    topics.iter().filter_map(|topic| topic.parse().ok()).collect();
                if !stream.tabs.has_room(&tab, &topics, MAX_TOPICS) {
                    stream.send(&TabMessage::Full { tab });
                    return false;
                }
                stream.tabs.join(tab.clone(), topics, after);
                stream.seen.insert(tab.clone(), now);
                stream.unconfirmed.insert(tab, request);
                if let Some(lost) = stream.lost_since() {
                    stream.send(&TabMessage::Connection { lost: Some(lost) });
                } else if stream.connection.is_some() {
                    stream.send(&TabMessage::Connection { lost: None });
                }
            }
            TabMessage::Alive { tab } => {
                stream.seen.entry(tab).and_modify(|seen| *seen = now);
                return false;
            }
            TabMessage::Unsubscribe { tab } => {
                stream.tabs.leave(&tab);
                stream.seen.remove(&tab);
                stream.unconfirmed.remove(&tab);
            }
            _ => return false,
        }
        true
    });
    if changed == Some(true) {
        settle(shared);
    }
}

/// Opens an own connection, since the shared one has no room for this tab.
fn connect_alone(shared: Shared, tab: &str) {
    let alone = shared.try_update_value(|stream| {
        let full = stream.tab == tab && matches!(stream.role, Role::Follower { .. });
        if full {
            stream.role = Role::Alone;
            stream.pending = false;
            stream.request_again();
        }
        full
    });
    if alone == Some(true) {
        settle(shared);
    }
}

/// Checks whether the connection is alive.
fn check_connection(shared: Shared) {
    let now = js_sys::Date::now();
    let hidden = document().hidden();
    enum NextAction {
        Nothing,
        Reconnect,
        Steal,
        Settle,
    }
    let next = shared.try_update_value(|stream| {
        if !hidden {
            stream.last_visible_at = now;
        }
        let silent = stream.connection.as_ref().is_some_and(Connection::is_silent);
        match &stream.role {
            Role::Idle => NextAction::Nothing,
            Role::Follower { leader_heard, .. } => {
                match !hidden
                    && stream.requested.is_some()
                    && now - leader_heard > SILENCE_TIMEOUT_MS
                {
                    true => NextAction::Steal,
                    false => NextAction::Nothing,
                }
            }
            // An unshared connection of a hidden tab serves no one, and a browser has few
            // connections per server.
            Role::Alone
                if hidden && now - stream.last_visible_at > HIDDEN_TIMEOUT.as_millis() as f64 =>
            {
                stream.connection = None;
                stream.status.try_set(Status::Quiet);
                NextAction::Nothing
            }
            Role::Alone | Role::Leader { .. } if silent => NextAction::Reconnect,
            Role::Alone => NextAction::Settle,
            Role::Leader { .. } => {
                let (own, seen) = (stream.tab.clone(), &stream.seen);
                let is_there = |tab: &String| {
                    *tab == own || seen.get(tab).is_some_and(|seen| now - seen < TAB_TIMEOUT_MS)
                };
                stream.tabs.retain(is_there);
                let lost = stream.lost_since();
                stream.send(&TabMessage::Connection { lost });
                NextAction::Settle
            }
        }
    });
    match next {
        Some(NextAction::Reconnect) => on_connection_failed(shared, true),
        Some(NextAction::Steal) => {
            follow(shared, |_| ());
            request_lead(true, move || lead(shared), move || on_lead_lost(shared));
        }
        Some(NextAction::Settle) => settle(shared),
        Some(NextAction::Nothing) | None => {}
    }
}
