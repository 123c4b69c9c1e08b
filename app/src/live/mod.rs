//! The live stream: one connection for all tabs of a browser and all topics of their pages.
//!
//! Parts of a page subscribe to topics from a position in the journal ([`Live::subscribe`]). The
//! connection carries the union of all topics. It is reopened when the union changes, and resumes
//! after the last received event. So neither a change of page nor a lost connection leaves a gap.
//! Events are delivered once per animation frame, and only the last one of each object. A thousand
//! moving steps cost one redraw.
//!
//! # Shared between tabs
//!
//! Over HTTP/1.1, a browser opens at most six connections per server for all its tabs. If each tab
//! had its own stream, six tabs would use all of them, and no tab could load anything. HTTP/2 lacks
//! this limit, but browsers use it over TLS only, and the operator chooses the proxy. So one tab,
//! the *leader*, has the connection for all tabs. It holds a lock of the browser, collects the
//! subscriptions of the other tabs and forwards events to them (`share`). When the leader closes or
//! crashes, the browser gives the lock to another tab. That tab collects all subscriptions again
//! and resumes at the earliest position of any tab. Each tab knows its own position in the journal
//! and skips events before it. Until the leader confirms a tab's subscription, the tab skips
//! nothing and does not advance. A leader that is silent for 40 seconds while another tab is
//! visible loses the lead.
//!
//! A tab opens its own connection if the shared connection has no room for more topics. It also
//! does so if the browser has no locks (pages over plain HTTP from another machine). It closes its
//! own connection after being hidden for a minute.
//!
//! # Reliability
//!
//! An event is a hint: a page that is in doubt fetches again, and `Reset` makes all pages do so. A
//! connection without a message for 40 seconds is dead (the server sends a heartbeat every 15). It
//! is reopened regardless of the browser's opinion, and the frame shows since when the page is
//! stale.

#[cfg(not(feature = "ssr"))]
mod connection;
#[cfg(not(feature = "ssr"))]
mod stream;
#[cfg(any(test, not(feature = "ssr")))]
mod subscriptions;
#[cfg(not(feature = "ssr"))]
mod tabs;

use std::collections::HashSet;

use api::At;
pub use api::live::{Live as Event, Topic};
use leptos::prelude::*;

/// The position for subscribers without their own: the one at which the frame was read.
pub const NOW: i64 = i64::MAX;

/// Whether the page is up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Not connected yet, or without subscriptions.
    Quiet,
    Live,
    /// The connection is lost and being reopened.
    Lost {
        since: At,
    },
}

/// The tab's live stream.
#[derive(Clone, Copy)]
pub struct Live {
    status: RwSignal<Status>,
    #[cfg(not(feature = "ssr"))]
    stream: StoredValue<stream::Stream, LocalStorage>,
}

impl Live {
    /// Creates the stream of a page. It connects on the first subscription.
    pub fn start() -> Self {
        let status = RwSignal::new(Status::Quiet);
        Self {
            status,
            #[cfg(not(feature = "ssr"))]
            stream: StoredValue::new_local(stream::Stream::new(status)),
        }
    }

    pub fn status(self) -> Status {
        self.status.get()
    }

    /// Calls `handler` with the events after the journal's position `from`, until the caller's
    /// owner is disposed.
    pub fn subscribe(self, topics: Vec<Topic>, from: i64, handler: impl Fn(&[Event]) + 'static) {
        #[cfg(not(feature = "ssr"))]
        {
            let subscription = stream::join(self.stream, topics, from, std::rc::Rc::new(handler));
            on_cleanup(move || stream::leave(self.stream, subscription));
        }
        #[cfg(feature = "ssr")]
        let _ = (self, topics, from, handler);
    }
}

/// The tab's live stream, from the context.
pub fn use_live() -> Live {
    use_context().unwrap_or_else(Live::start)
}

/// Drops the events that a page does not need: only the last one of each object remains, in the
/// original order.
pub fn coalesce(events: Vec<Event>) -> Vec<Event> {
    if events.contains(&Event::Reset) {
        return vec![Event::Reset];
    }
    let mut seen = HashSet::new();
    let mut events: Vec<Event> =
        events.into_iter().rev().filter(|event| seen.insert(object_key(event))).collect();
    events.reverse();
    events
}

/// A key for the object of an event.
fn object_key(event: &Event) -> String {
    match event {
        Event::Step { noderole, .. } => format!("s{noderole}"),
        Event::Run { run, .. } => format!("r{run}"),
        Event::Proposal { proposal, .. } => format!("p{proposal}"),
        Event::Review { review } => format!("v{review}"),
        Event::Blueprint { .. } => "t".into(),
        Event::Catalog => "c".into(),
        Event::Node { fqdn } => format!("n{fqdn}"),
        Event::Hold { deployment, .. } => format!("h{deployment}"),
        Event::Priority { deployment, .. } => format!("u{deployment}"),
        Event::Worker { worker, .. } => format!("w{worker}"),
        Event::Reset => "x".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::runs::StepState;
    use engine::ids::{BlueprintNumber, NodeId, NoderoleId, RoleName};

    fn step(role: &str, state: StepState) -> Event {
        let role = RoleName::parse(role).unwrap();
        Event::Step { noderole: NoderoleId::of(NodeId(Default::default()), &role, 0), state }
    }

    #[test]
    fn last_event_per_object_is_kept_in_order() {
        let (a, b) = (step("a", StepState::Active), step("b", StepState::Todo));
        let events = vec![
            step("a", StepState::Todo),
            b.clone(),
            Event::Blueprint { blueprint: BlueprintNumber(1) },
            step("a", StepState::Transition),
            a.clone(),
            Event::Blueprint { blueprint: BlueprintNumber(2) },
        ];
        assert_eq!(coalesce(events), [b, a, Event::Blueprint { blueprint: BlueprintNumber(2) }]);
    }

    #[test]
    fn reset_replaces_all_other_events() {
        assert_eq!(
            coalesce(vec![step("a", StepState::Todo), Event::Reset, step("b", StepState::Todo)]),
            [Event::Reset]
        );
    }
}
