//! The live stream: one connection for all tabs of a browser, whatever their pages listen to.
//!
//! Parts of a page say which topics they want to hear ([`Live::hear`]) and from where in the journal; the connection carries the
//! union of them. It is opened again when that union changes, and resumes behind the last event that came, so that a change of page
//! or a lost connection leaves no gap. Events are handed on once for each frame that the browser draws, the last one of each thing
//! only: a thousand steps that move cost one redrawing.
//!
//! ## Why tabs share it
//!
//! Over HTTP/1.1 a browser opens six connections to one server, all its tabs together. With a stream of each tab's own the sixth tab
//! takes the last one, and then no tab loads anything any more. (HTTP/2 has no such limit, but browsers speak it over TLS only, and
//! what stands in front of Gantry is the operator's choice.) So one tab has the *line* for all: the one that holds a lock of the
//! browser. It hears from the others what they want, and tells them what comes (`share`). When it goes, however it goes, the browser
//! gives the lock to another tab, which asks everybody anew and goes on from the earliest place that anybody has reached. Each tab
//! knows its own place in the journal and passes over what it has had; until the leader says that what the tab asked for comes, it
//! passes over nothing and moves nowhere. A tab that is not heard of for 40 seconds while another one looks at its page loses the lead.
//!
//! Where the browser has no such locks (pages over plain HTTP from another machine), or no topic more fits on the line, a tab has a
//! line of its own, and gives it back a minute after nobody looks at it.
//!
//! ## Rules that keep it honest
//!
//! An event is a hint, and whoever is in doubt fetches again; `Reset` means that everybody does. A line that says nothing for 40 seconds
//! (the server beats every 15) is dead, whatever the browser believes, and is opened again; the frame shows since when.

#[cfg(not(feature = "ssr"))]
mod line;
#[cfg(not(feature = "ssr"))]
mod share;
#[cfg(not(feature = "ssr"))]
mod stream;
#[cfg(any(test, not(feature = "ssr")))]
mod wants;

use std::collections::HashSet;

use api::At;
pub use api::live::{Live as Event, Topic};
use leptos::prelude::*;

/// For those who have no position of their own: from where the frame was read.
pub const NOW: i64 = i64::MAX;

/// Whether what the page shows is what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Not connected yet, or nothing to listen to.
    Quiet,
    /// Events come as they happen.
    Live,
    /// The connection was lost; it is being made again.
    Lost {
        /// When.
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
    /// The stream of a page; it connects when somebody listens.
    pub fn start() -> Self {
        let status = RwSignal::new(Status::Quiet);
        Self {
            status,
            #[cfg(not(feature = "ssr"))]
            stream: StoredValue::new_local(stream::Stream::new(status)),
        }
    }

    /// Whether it is live.
    pub fn status(self) -> Status {
        self.status.get()
    }

    /// Calls `hear` with what happens from the journal's position `from` on, until the caller's owner is cleaned up.
    pub fn hear(self, topics: Vec<Topic>, from: i64, hear: impl Fn(&[Event]) + 'static) {
        #[cfg(not(feature = "ssr"))]
        {
            let hearer = stream::join(self.stream, topics, from, std::rc::Rc::new(hear));
            on_cleanup(move || stream::leave(self.stream, hearer));
        }
        #[cfg(feature = "ssr")]
        let _ = (self, topics, from, hear);
    }
}

/// The tab's stream.
pub fn use_live() -> Live {
    use_context().unwrap_or_else(Live::start)
}

/// What a page still needs to know of a series of events: of each thing the last one, in the order of these.
pub fn coalesced(events: Vec<Event>) -> Vec<Event> {
    if events.contains(&Event::Reset) {
        return vec![Event::Reset];
    }
    let mut seen = HashSet::new();
    let mut kept: Vec<Event> =
        events.into_iter().rev().filter(|event| seen.insert(thing(event))).collect();
    kept.reverse();
    kept
}

/// What an event is about.
fn thing(event: &Event) -> String {
    match event {
        Event::Step { noderole, .. } => format!("s{noderole}"),
        Event::Run { run, .. } => format!("r{run}"),
        Event::Proposal { proposal, .. } => format!("p{proposal}"),
        Event::Submission { submission } => format!("v{submission}"),
        Event::Target { .. } => "t".into(),
        Event::Catalog => "c".into(),
        Event::Node { fqdn } => format!("n{fqdn}"),
        Event::Hold { deployment, .. } => format!("h{deployment}"),
        Event::Priority { deployment, .. } => format!("u{deployment}"),
        Event::Reset => "x".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::console::StepState;
    use engine::ids::{NodeId, NoderoleId, RoleName, TargetNo};

    fn step(role: &str, state: StepState) -> Event {
        let role = RoleName::parse(role).unwrap();
        Event::Step { noderole: NoderoleId::of(NodeId(Default::default()), &role, 0), state }
    }

    #[test]
    fn the_last_word_about_each_thing_stays_and_in_order() {
        let (a, b) = (step("a", StepState::Active), step("b", StepState::Todo));
        let events = vec![
            step("a", StepState::Todo),
            b.clone(),
            Event::Target { target: TargetNo(1) },
            step("a", StepState::Transition),
            a.clone(),
            Event::Target { target: TargetNo(2) },
        ];
        assert_eq!(coalesced(events), [b, a, Event::Target { target: TargetNo(2) }]);
    }

    #[test]
    fn a_reset_makes_everything_else_pointless() {
        assert_eq!(
            coalesced(vec![step("a", StepState::Todo), Event::Reset, step("b", StepState::Todo)]),
            [Event::Reset]
        );
    }
}
