//! The runs that this worker holds.
//!
//! Between the moment at which a run is leased and the one at which it is finished, the worker owes it two things: to renew its
//! lease, and to end it at once when that fails. Both hang on this register and not on apalis: a backend is polled only when a
//! slot is free, and leases must be kept also while none is.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use engine::ids::RunId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::jig::{Stop, StopReason, Stopper};

struct HeldRun {
    stopper: Stopper,
    good_until: Instant,
}

/// The register.
#[derive(Default)]
pub struct Held {
    runs: Mutex<BTreeMap<RunId, HeldRun>>,
    /// Rung when a run may be queued for us, or when a slot has become free. One listener; a ring that nobody hears is kept.
    pub bell: Notify,
}

impl Held {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, HeldRun>> {
        // Nothing below can panic half-way through a change.
        self.runs.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes a run in; its lease is good for `lease` from `since`.
    pub fn take(&self, run: RunId, since: Instant, lease: Duration) -> Stop {
        let (stopper, stop) = Stopper::new();
        self.runs().insert(run, HeldRun { stopper, good_until: since + lease });
        stop
    }

    /// Lets a run go.
    pub fn release(&self, run: RunId) {
        self.runs().remove(&run);
        self.bell.notify_one();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.runs().len()
    }

    /// All of them.
    pub fn ids(&self) -> Vec<RunId> {
        self.runs().keys().copied().collect()
    }

    /// Notes that a lease is good for longer.
    pub fn renewed(&self, run: RunId, since: Instant, lease: Duration) {
        if let Some(held) = self.runs().get_mut(&run) {
            held.good_until = since + lease;
        }
    }

    /// Tells one run to stop.
    pub fn stop(&self, run: RunId, why: StopReason) {
        if let Some(held) = self.runs().get(&run) {
            held.stopper.stop(why);
        }
    }

    /// Tells every run to stop.
    pub fn stop_all(&self, why: StopReason) {
        for held in self.runs().values() {
            held.stopper.stop(why);
        }
    }

    /// Stops the runs whose leases have run out unrenewed; others may have them by now.
    pub fn stop_outdated(&self, now: Instant) -> Vec<RunId> {
        let runs = self.runs();
        let outdated = runs.iter().filter(|(_, held)| held.good_until <= now);
        outdated
            .map(|(run, held)| {
                held.stopper.stop(StopReason::NotOurs);
                *run
            })
            .collect()
    }
}
