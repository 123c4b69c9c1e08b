//! A connection to the server's event stream, and its messages.

use std::collections::BTreeSet;

use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{EventSource, MessageEvent};

use super::Topic;
use super::subscriptions::JournalPosition;

/// The timeout for a silent connection, in milliseconds. The server sends a heartbeat every 15
/// seconds. Two missed heartbeats mean that the connection is dead.
pub(super) const SILENCE_TIMEOUT_MS: f64 = 40_000.0;

/// Handlers for the events of a connection.
pub(super) trait ConnectionHandler {
    fn opened(&self);
    fn message(&self, message: &MessageEvent);
    /// A heartbeat of the server.
    fn beat(&self, message: &MessageEvent);
    /// The connection failed.
    fn failed(&self);
}

/// An open connection. It owns the closures of its event listeners.
pub(super) struct Connection {
    source: EventSource,
    pub(super) topics: BTreeSet<Topic>,
    /// The time of the last message, in milliseconds since 1970.
    pub(super) last_message_at: f64,
    _message: Closure<dyn FnMut(MessageEvent)>,
    beat: Closure<dyn FnMut(MessageEvent)>,
    _opened: Closure<dyn FnMut()>,
    _failed: Closure<dyn FnMut()>,
}

impl Connection {
    pub(super) fn open<E: ConnectionHandler + Clone + 'static>(
        topics: BTreeSet<Topic>,
        (transaction, event): JournalPosition,
        handler: &E,
    ) -> Option<Self> {
        let names: Vec<String> = topics.iter().map(ToString::to_string).collect();
        let address = format!("/events?after={transaction}-{event}&topics={}", names.join(","));
        let source = EventSource::new(&address).ok()?;
        let (on_message, on_beat, on_opened, on_failed) =
            (handler.clone(), handler.clone(), handler.clone(), handler.clone());
        let message =
            Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| on_message.message(&event));
        let beat = Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| on_beat.beat(&event));
        let opened = Closure::<dyn FnMut()>::new(move || on_opened.opened());
        let failed = Closure::<dyn FnMut()>::new(move || on_failed.failed());
        source.set_onmessage(Some(message.as_ref().unchecked_ref()));
        // Ignored: a browser without `addEventListener` has no `EventSource` either.
        let _ = source.add_event_listener_with_callback("heartbeat", beat.as_ref().unchecked_ref());
        source.set_onopen(Some(opened.as_ref().unchecked_ref()));
        source.set_onerror(Some(failed.as_ref().unchecked_ref()));
        let last_message_at = js_sys::Date::now();
        Some(Self {
            source,
            topics,
            last_message_at,
            _message: message,
            beat,
            _opened: opened,
            _failed: failed,
        })
    }

    /// Whether the browser has stopped reconnecting, so that the caller has to open a new
    /// connection.
    pub(super) fn is_closed(&self) -> bool {
        self.source.ready_state() == EventSource::CLOSED
    }

    /// Whether the connection has been silent for too long.
    pub(super) fn is_silent(&self) -> bool {
        js_sys::Date::now() - self.last_message_at > SILENCE_TIMEOUT_MS
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.source.set_onmessage(None);
        self.source.set_onopen(None);
        self.source.set_onerror(None);
        let _ = self
            .source
            .remove_event_listener_with_callback("heartbeat", self.beat.as_ref().unchecked_ref());
        self.source.close();
    }
}
