//! The line: one connection to the server, and what comes over it.

use std::collections::BTreeSet;

use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{EventSource, MessageEvent};

use super::Topic;
use super::wants::Place;

/// How long a line may say nothing, in milliseconds. The server says something every 15 seconds; who hears less than every second
/// time hears a line that is dead without knowing it.
pub(super) const SILENT: f64 = 40_000.0;

/// What happens on a line.
pub(super) trait Ends {
    /// It stands.
    fn opened(&self);
    /// A message came.
    fn message(&self, message: &MessageEvent);
    /// The server says that it is there.
    fn beat(&self, message: &MessageEvent);
    /// It broke.
    fn failed(&self);
}

/// An open connection. Its closures live as long as it does.
pub(super) struct Line {
    source: EventSource,
    pub(super) topics: BTreeSet<Topic>,
    /// When something came last, in milliseconds since 1970.
    pub(super) heard: f64,
    _message: Closure<dyn FnMut(MessageEvent)>,
    beat: Closure<dyn FnMut(MessageEvent)>,
    _opened: Closure<dyn FnMut()>,
    _failed: Closure<dyn FnMut()>,
}

impl Line {
    pub(super) fn open<E: Ends + Clone + 'static>(
        topics: BTreeSet<Topic>,
        (transaction, event): Place,
        ends: &E,
    ) -> Option<Self> {
        let names: Vec<String> = topics.iter().map(ToString::to_string).collect();
        let address = format!("/events?after={transaction}-{event}&topics={}", names.join(","));
        let source = EventSource::new(&address).ok()?;
        let (on_message, on_beat, on_opened, on_failed) =
            (ends.clone(), ends.clone(), ends.clone(), ends.clone());
        let message =
            Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| on_message.message(&event));
        let beat = Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| on_beat.beat(&event));
        let opened = Closure::<dyn FnMut()>::new(move || on_opened.opened());
        let failed = Closure::<dyn FnMut()>::new(move || on_failed.failed());
        source.set_onmessage(Some(message.as_ref().unchecked_ref()));
        // A browser without this event would have no line at all.
        let _ = source.add_event_listener_with_callback("heartbeat", beat.as_ref().unchecked_ref());
        source.set_onopen(Some(opened.as_ref().unchecked_ref()));
        source.set_onerror(Some(failed.as_ref().unchecked_ref()));
        let heard = js_sys::Date::now();
        Some(Self {
            source,
            topics,
            heard,
            _message: message,
            beat,
            _opened: opened,
            _failed: failed,
        })
    }

    /// Whether the browser has given up, so that we have to open another.
    pub(super) fn was_refused(&self) -> bool {
        self.source.ready_state() == EventSource::CLOSED
    }

    /// Whether it should have said something by now.
    pub(super) fn is_silent(&self) -> bool {
        js_sys::Date::now() - self.heard > SILENT
    }
}

impl Drop for Line {
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
