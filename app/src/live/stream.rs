//! The connection itself, in the browser.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use api::At;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{EventSource, MessageEvent};

use super::{Event, Status, Topic, coalesced};

/// Calls that follow each other this closely become one connection.
const SETTLE: Duration = Duration::from_millis(40);
/// A tab that nobody looks at keeps its connection for so long.
const HIDDEN: Duration = Duration::from_secs(60);
/// Events that wait for the next frame before they become a reset: a page that sees none draws none.
const MOST_WAITING: usize = 5_000;
/// Waits between attempts when the server refuses; the browser itself tries again when it is only unreachable.
const RETRY: [u64; 4] = [1, 2, 5, 10];

pub(super) type Shared = StoredValue<Stream, LocalStorage>;
type Hear = Rc<dyn Fn(&[Event])>;

pub(super) struct Stream {
    status: RwSignal<Status>,
    hearers: Vec<Hearer>,
    next: u64,
    open: Option<Open>,
    /// Up to where events came; where the connection began, before any did.
    last: Option<Place>,
    waiting: Vec<Event>,
    frame_asked: bool,
    settling: bool,
    failures: usize,
    watches_tab: bool,
}

struct Hearer {
    id: u64,
    topics: Vec<Topic>,
    /// From where on; None once a connection covers that.
    from: Option<i64>,
    hear: Hear,
}

/// A place in the journal: transaction and event. A page's cursor has no event.
type Place = (i64, i64);

/// The id of an event, `transaction-event`.
fn place(id: &str) -> Option<Place> {
    let (transaction, event) = id.split_once('-')?;
    Some((transaction.parse().ok()?, event.parse().ok()?))
}

/// An open connection. Its closures live as long as it does.
struct Open {
    source: EventSource,
    topics: BTreeSet<Topic>,
    _message: Closure<dyn FnMut(MessageEvent)>,
    _opened: Closure<dyn FnMut()>,
    _failed: Closure<dyn FnMut()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.source.set_onmessage(None);
        self.source.set_onopen(None);
        self.source.set_onerror(None);
        self.source.close();
    }
}

impl Stream {
    pub(super) fn new(status: RwSignal<Status>) -> Self {
        Self {
            status,
            hearers: Vec::new(),
            next: 0,
            open: None,
            last: None,
            waiting: Vec::new(),
            frame_asked: false,
            settling: false,
            failures: 0,
            watches_tab: false,
        }
    }

    fn topics(&self) -> BTreeSet<Topic> {
        self.hearers.iter().flat_map(|hearer| hearer.topics.iter().copied()).collect()
    }

    /// Where a connection begins: behind the last event, and no later than whoever joined since.
    fn begin(&mut self) -> Place {
        let joined = self.hearers.iter_mut().filter_map(|hearer| hearer.from.take());
        let place = joined.map(|from| (from, 0)).chain(self.last).min().unwrap_or_default();
        self.last = Some(place);
        place
    }

    /// Whether the open connection carries all of it to everybody: it does not when something came before somebody joined who has
    /// older data.
    fn covers(&mut self, topics: &BTreeSet<Topic>) -> bool {
        let last = self.last.unwrap_or_default();
        let late = self.hearers.iter().filter_map(|hearer| hearer.from).any(|from| (from, 0) < last);
        let covers = !late && self.open.as_ref().is_some_and(|open| open.topics == *topics);
        if covers {
            self.hearers.iter_mut().for_each(|hearer| hearer.from = None);
        }
        covers
    }
}

pub(super) fn join(shared: Shared, topics: Vec<Topic>, from: i64, hear: Hear) -> u64 {
    let mut id = 0;
    let mut first = false;
    shared.update_value(|stream| {
        id = stream.next;
        stream.next += 1;
        stream.hearers.push(Hearer { id, topics, from: Some(from), hear });
        first = !std::mem::replace(&mut stream.watches_tab, true);
    });
    if first {
        watch_tab(shared);
    }
    settle(shared);
    id
}

pub(super) fn leave(shared: Shared, id: u64) {
    let left = shared.try_update_value(|stream| stream.hearers.retain(|hearer| hearer.id != id));
    if left.is_some() {
        settle(shared);
    }
}

/// Brings the connection in line with what is listened to, a moment later.
fn settle(shared: Shared) {
    let already = shared.try_update_value(|stream| std::mem::replace(&mut stream.settling, true));
    if already == Some(false) {
        set_timeout(move || adjust(shared), SETTLE);
    }
}

fn adjust(shared: Shared) {
    let wanted = shared.try_update_value(|stream| {
        stream.settling = false;
        let topics = stream.topics();
        let covered = stream.covers(&topics);
        (topics, covered)
    });
    match wanted {
        Some((topics, _)) if topics.is_empty() => close(shared),
        Some((topics, false)) => connect(shared, topics),
        _ => {}
    }
}

fn close(shared: Shared) {
    shared.try_update_value(|stream| {
        stream.open = None;
        stream.status.try_set(Status::Quiet);
    });
}

fn connect(shared: Shared, topics: BTreeSet<Topic>) {
    let Some((transaction, event)) = shared.try_update_value(Stream::begin) else { return };
    let names: Vec<String> = topics.iter().map(ToString::to_string).collect();
    let Ok(source) = EventSource::new(&format!("/events?after={transaction}-{event}&topics={}", names.join(",")))
    else {
        return;
    };
    let message = Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| receive(shared, &event));
    let opened = Closure::<dyn FnMut()>::new(move || {
        shared.try_update_value(|stream| {
            stream.failures = 0;
            stream.status.try_set(Status::Live);
        });
    });
    let failed = Closure::<dyn FnMut()>::new(move || lost(shared));
    source.set_onmessage(Some(message.as_ref().unchecked_ref()));
    source.set_onopen(Some(opened.as_ref().unchecked_ref()));
    source.set_onerror(Some(failed.as_ref().unchecked_ref()));
    let open = Open { source, topics, _message: message, _opened: opened, _failed: failed };
    shared.try_update_value(|stream| stream.open = Some(open));
}

fn receive(shared: Shared, message: &MessageEvent) {
    let Some(event) = message.data().as_string().and_then(|text| serde_json::from_str::<Event>(&text).ok()) else {
        return;
    };
    let id = place(&message.last_event_id());
    let ask = shared.try_update_value(|stream| {
        stream.last = id.or(stream.last);
        if stream.waiting.len() >= MOST_WAITING {
            stream.waiting = vec![Event::Reset];
        }
        stream.waiting.push(event);
        !std::mem::replace(&mut stream.frame_asked, true)
    });
    if ask == Some(true) {
        request_animation_frame(move || hand_on(shared));
    }
}

/// Hands on what came since the last frame. Hearers are called while nothing here is borrowed: they may join and leave.
fn hand_on(shared: Shared) {
    let taken = shared.try_update_value(|stream| {
        stream.frame_asked = false;
        let hearers: Vec<Hear> = stream.hearers.iter().map(|hearer| hearer.hear.clone()).collect();
        (std::mem::take(&mut stream.waiting), hearers)
    });
    let Some((events, hearers)) = taken else { return };
    let events = coalesced(events);
    for hear in hearers {
        hear(&events);
    }
}

fn lost(shared: Shared) {
    let again = shared.try_update_value(|stream| {
        if !matches!(stream.status.get_untracked(), Status::Lost { .. }) {
            stream.status.try_set(Status::Lost { since: At(js_sys::Date::now() as i64) });
        }
        let refused = stream.open.as_ref().is_some_and(|open| open.source.ready_state() == EventSource::CLOSED);
        refused.then(|| {
            stream.open = None;
            stream.failures += 1;
            RETRY[(stream.failures - 1).min(RETRY.len() - 1)]
        })
    });
    if let Some(Some(seconds)) = again {
        set_timeout(move || settle(shared), Duration::from_secs(seconds));
    }
}

/// Gives the connection back while nobody looks.
fn watch_tab(shared: Shared) {
    let handle = window_event_listener(leptos::ev::visibilitychange, move |_| {
        if !document().hidden() {
            settle(shared);
            return;
        }
        set_timeout(
            move || {
                if document().hidden() {
                    close(shared);
                }
            },
            HIDDEN,
        );
    });
    // Lives as long as the page.
    std::mem::forget(handle);
}
