//! Rate limits for attempts and requests, per key.
//!
//! Limits make guessing passwords infeasible. Tokens of 256 bits cannot be guessed anyway; there,
//! limits save cost and log space. Counters are in memory, per server and process, so several
//! servers allow several times as much. IPv6 clients count by their /64, the prefix of a single
//! site. The table has a fixed size. If it is full, the oldest counter is dropped, so a flood
//! evicts counters but locks out no one.
//!
//! These are fixed windows, not token buckets such as in the crate `governor`. A bucket refills
//! while it is used, so it permits almost twice the documented number in the first window. It also
//! cannot check without counting, uncount an attempt that was not a failure, or evict counters.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures within [`WINDOW`] before an address or a name has to wait.
pub(super) const MAX_FAILURES: u32 = 10;
/// The period in which failures count, from the first one.
pub(super) const WINDOW: Duration = Duration::from_secs(10 * 60);
/// Requests with one token per [`MINUTE`].
pub(super) const MAX_BY_TOKEN: u32 = 600;
/// Requests of one session per [`MINUTE`]. Each tab requests several parts of a page, and again
/// when they change.
pub(super) const MAX_BY_SESSION: u32 = 1_200;
/// The period in which requests count.
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of counters.
const MAX_COUNTERS: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Counter {
    since: Instant,
    count: u32,
}

/// Counts attempts per key in fixed windows.
#[derive(Debug)]
pub(crate) struct Throttle<K> {
    tries: Mutex<HashMap<K, Counter>>,
    most: u32,
    window: Duration,
}

impl<K: Eq + Hash + Clone> Throttle<K> {
    /// Permits `most` attempts per `window`, which starts with the first attempt.
    pub(crate) fn of(most: u32, window: Duration) -> Self {
        Self { tries: Mutex::default(), most, window }
    }

    /// Whether another attempt is permitted; if not, the time to wait.
    pub(super) fn check(&self, key: &K) -> Result<(), Duration> {
        self.check_at(key, Instant::now())
    }

    fn check_at(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counter) = tries.get(key) else {
            return Ok(());
        };
        let remaining = self.remaining(*counter, now);
        match counter.count >= self.most && !remaining.is_zero() {
            true => Err(remaining),
            false => Ok(()),
        }
    }

    /// Counts an attempt.
    pub(super) fn note(&self, key: K) {
        self.record_at(key, Instant::now());
    }

    fn record_at(&self, key: K, now: Instant) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = self.counter(&mut tries, key, now);
        counter.count = counter.count.saturating_add(1);
    }

    /// Checks and counts an attempt before it is made, so that parallel attempts count too.
    pub(super) fn take(&self, key: K) -> Result<(), Duration> {
        self.acquire_many(key, 1)
    }

    /// Checks and counts `count` attempts, all or none. Returns the time to wait if they exceed the
    /// limit.
    pub(crate) fn acquire_many(&self, key: K, count: usize) -> Result<(), Duration> {
        if count == 0 {
            return Ok(());
        }
        let now = Instant::now();
        // Both steps under one lock. Otherwise, parallel attempts could all pass the check before
        // the first one counts.
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = self.counter(&mut tries, key, now);
        let total = counter.count.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if total > self.most {
            return Err(self.remaining(*counter, now));
        }
        counter.count = total;
        Ok(())
    }

    /// The time until the window of a counter ends.
    fn remaining(&self, counter: Counter, now: Instant) -> Duration {
        self.window.saturating_sub(now.saturating_duration_since(counter.since))
    }

    /// The counter of the key's current window. Evicts another counter if the table is full.
    fn counter<'t>(
        &self,
        tries: &'t mut HashMap<K, Counter>,
        key: K,
        now: Instant,
    ) -> &'t mut Counter {
        self.make_room(tries, &key, now);
        let counter = tries.entry(key).or_insert(Counter { since: now, count: 0 });
        if self.remaining(*counter, now).is_zero() {
            *counter = Counter { since: now, count: 0 };
        }
        counter
    }

    fn make_room(&self, tries: &mut HashMap<K, Counter>, key: &K, now: Instant) {
        if tries.len() < MAX_COUNTERS || tries.contains_key(key) {
            return;
        }
        tries.retain(|_, counter| !self.remaining(*counter, now).is_zero());
        let first =
            tries.iter().min_by_key(|(_, counter)| counter.since).map(|(key, _)| key.clone());
        if let Some(first) = first.filter(|_| tries.len() >= MAX_COUNTERS) {
            tries.remove(&first);
        }
    }

    /// Uncounts one attempt that was not a failure.
    pub(super) fn release(&self, key: &K) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = tries.get_mut(key) {
            counter.count = counter.count.saturating_sub(1);
        }
    }

    /// Removes the counter.
    pub(super) fn forget(&self, key: &K) {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// The key for an address: IPv4 addresses as they are, IPv6 addresses by their /64.
pub(super) fn network(address: Option<IpAddr>) -> Option<IpAddr> {
    let address = address?.to_canonical();
    match address {
        IpAddr::V4(_) => Some(address),
        IpAddr::V6(v6) => {
            let prefix = v6.to_bits() & (u128::MAX << 64);
            Some(IpAddr::V6(Ipv6Addr::from_bits(prefix)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        network(Some(text.parse().expect("an address")))
    }

    fn throttle() -> Throttle<Option<IpAddr>> {
        Throttle::of(MAX_FAILURES, WINDOW)
    }

    #[test]
    fn failures_throttle_only_their_address() {
        let (throttle, now) = (throttle(), Instant::now());
        for _ in 0..MAX_FAILURES {
            assert_eq!(throttle.check_at(&address("2001:db8::1"), now), Ok(()));
            throttle.record_at(address("2001:db8::1"), now);
        }
        assert!(
            throttle.check_at(&address("2001:db8::2"), now).is_err(),
            "addresses of the same network are throttled together"
        );
        assert_eq!(throttle.check_at(&address("2001:db8:1::1"), now), Ok(()));
        assert_eq!(throttle.check_at(&None, now), Ok(()));
        assert_eq!(throttle.check_at(&address("2001:db8::1"), now + WINDOW), Ok(()));
        throttle.record_at(address("2001:db8::1"), now + WINDOW);
        assert_eq!(
            throttle.check_at(&address("2001:db8::1"), now + WINDOW),
            Ok(()),
            "the count starts again"
        );
    }

    #[test]
    fn successful_attempts_are_not_counted() {
        let throttle = throttle();
        for _ in 0..3 * MAX_FAILURES {
            assert_eq!(throttle.take(None), Ok(()));
            throttle.release(&None);
        }
        (0..MAX_FAILURES).for_each(|_| assert_eq!(throttle.take(None), Ok(())));
        assert!(throttle.take(None).is_err());
        throttle.forget(&None);
        assert_eq!(throttle.take(None), Ok(()));
    }

    #[test]
    fn counter_table_size_is_bounded() {
        let (throttle, now) = (throttle(), Instant::now());
        for number in 0..2 * MAX_COUNTERS {
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(
                u32::try_from(number).expect("a small number"),
            ));
            throttle.record_at(Some(from), now + Duration::from_micros(number as u64));
        }
        assert_eq!(throttle.tries.lock().expect("an unpoisoned lock").len(), MAX_COUNTERS);
    }
}
