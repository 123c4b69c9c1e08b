//! The register of runs that this worker leases.
//!
//! From lease to finish, the worker must renew a run's lease, and must end the run as soon as the
//! renewal fails. Both use this register, not apalis. apalis polls a backend only when a slot is
//! free, but leases need renewal also when all slots are taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use engine::ids::RunId;
use store::runs::Adopted;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::job::{Stop, StopReason, StopSender};

struct RunLease {
    stopper: StopSender,
    expires_at: Instant,
}

/// A leased run that its handler has not received yet.
#[derive(Debug, Clone)]
pub struct LeasedRun {
    pub run: RunId,
    /// Signals the run to stop.
    pub stop: Stop,
    /// Set if another worker started the run and was lost.
    pub adopted: Option<Adopted>,
}

#[derive(Default)]
pub struct Leases {
    runs: Mutex<BTreeMap<RunId, RunLease>>,
    /// Adopted runs that wait for a slot.
    adopted: Mutex<VecDeque<LeasedRun>>,
    /// Notified when a run may be queued or a slot has become free. Supports one listener, and
    /// stores one permit if it does not wait.
    pub wake: Notify,
}

impl Leases {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, RunLease>> {
        // No code below can panic in the middle of a change, so a poisoned lock is safe to use.
        self.runs.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a run. Its lease lasts for `lease` from `since`.
    pub fn add(&self, run: RunId, since: Instant, lease: Duration) -> Stop {
        let (stopper, stop) = StopSender::new();
        self.runs().insert(run, RunLease { stopper, expires_at: since + lease });
        stop
    }

    /// Adds a run of a lost worker. The queue continues it in the next free slot.
    pub fn adopt(&self, run: RunId, adopted: Adopted, since: Instant, lease: Duration) {
        let stop = self.add(run, since, lease);
        self.waiting().push_back(LeasedRun { run, stop, adopted: Some(adopted) });
        self.wake.notify_one();
    }

    /// Takes the adopted runs that wait for a slot.
    pub fn claim_adopted(&self) -> Vec<LeasedRun> {
        self.waiting().drain(..).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<LeasedRun>> {
        self.adopted.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn release(&self, run: RunId) {
        self.runs().remove(&run);
        self.wake.notify_one();
    }

    pub fn count(&self) -> usize {
        self.runs().len()
    }

    pub fn ids(&self) -> Vec<RunId> {
        self.runs().keys().copied().collect()
    }

    /// Records the renewal of a lease.
    pub fn renewed(&self, run: RunId, since: Instant, lease: Duration) {
        if let Some(run_lease) = self.runs().get_mut(&run) {
            run_lease.expires_at = since + lease;
        }
    }

    pub fn stop(&self, run: RunId, reason: StopReason) {
        if let Some(run_lease) = self.runs().get(&run) {
            run_lease.stopper.stop(reason);
        }
    }

    pub fn stop_all(&self, reason: StopReason) {
        for run_lease in self.runs().values() {
            run_lease.stopper.stop(reason);
        }
    }

    /// Stops the runs whose leases have expired. Other workers may have leased them since.
    pub fn stop_expired(&self, now: Instant) -> Vec<RunId> {
        let runs = self.runs();
        let expired = runs.iter().filter(|(_, run_lease)| run_lease.expires_at <= now);
        expired
            .map(|(run, run_lease)| {
                run_lease.stopper.stop(StopReason::LeaseLost);
                *run
            })
            .collect()
    }
}
