//! The live stream of a tab: one connection, whatever the page listens to.
//!
//! Parts of the page say which topics they want to hear ([`Live::hear`]) and from where in the journal; the connection carries the
//! union of them. It is opened again when that union changes, and resumes behind the last event that came, so that a change of page
//! or a lost connection leaves no gap. Events are handed on once for each frame that the browser draws, the last one of each thing
//! only: a thousand steps that move cost one redrawing.
//!
//! Rules that keep it honest: an event is a hint, and whoever is in doubt fetches again; `Reset` means that everybody does; a tab that
//! nobody looks at gives its connection back after a while, since a browser has few for one server.

#[cfg(not(feature = "ssr"))]
mod stream;

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
    let mut kept: Vec<Event> = events.into_iter().rev().filter(|event| seen.insert(thing(event))).collect();
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
        Event::Node { fqdn } => format!("n{fqdn}"),
        Event::Hold { deployment, .. } => format!("h{deployment}"),
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
