//! How often signing in may fail from one address.
//!
//! Nobody guesses a token of 256 bits; this keeps those who try from costing anything, and from filling the log. It lives in memory:
//! each server counts for itself and forgets with its process, which is enough for that purpose. IPv6 clients are counted by their
//! /64, which is what one of them has to itself. The table has a fixed size; when it is full, the address that failed first makes
//! room, so a flood costs the flooder's own record and nobody's access.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures within [`WINDOW`] before an address has to wait.
pub(super) const MOST_FAILURES: u32 = 10;
/// How long failures count, from the first one on.
pub(super) const WINDOW: Duration = Duration::from_secs(10 * 60);
/// Addresses that are remembered.
const MOST_ADDRESSES: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Failures {
    since: Instant,
    count: u32,
}

/// Failures by address.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    failures: Mutex<HashMap<Option<IpAddr>, Failures>>,
}

impl Throttle {
    /// Whether an address may try; else how long it has to wait.
    pub(super) fn check(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        self.check_at(address, Instant::now())
    }

    fn check_at(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = failures.get(&network(address)) else {
            return Ok(());
        };
        let left = WINDOW.saturating_sub(now.saturating_duration_since(known.since));
        match known.count >= MOST_FAILURES && !left.is_zero() {
            true => Err(left),
            false => Ok(()),
        }
    }

    /// Counts a failure.
    pub(super) fn note_failure(&self, address: Option<IpAddr>) {
        self.note_failure_at(address, Instant::now());
    }

    fn note_failure_at(&self, address: Option<IpAddr>, now: Instant) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let key = network(address);
        if failures.len() >= MOST_ADDRESSES && !failures.contains_key(&key) {
            failures.retain(|_, known| now.saturating_duration_since(known.since) < WINDOW);
            let first = failures.iter().min_by_key(|(_, known)| known.since).map(|(key, _)| *key);
            if let Some(first) = first.filter(|_| failures.len() >= MOST_ADDRESSES) {
                failures.remove(&first);
            }
        }
        let known = failures.entry(key).or_insert(Failures { since: now, count: 0 });
        if now.saturating_duration_since(known.since) >= WINDOW {
            *known = Failures { since: now, count: 0 };
        }
        known.count = known.count.saturating_add(1);
    }
}

fn network(address: Option<IpAddr>) -> Option<IpAddr> {
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
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn an_address_waits_after_too_many_failures_and_others_do_not() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..MOST_FAILURES {
            assert_eq!(throttle.check_at(address("2001:db8::1"), now), Ok(()));
            throttle.note_failure_at(address("2001:db8::1"), now);
        }
        assert!(throttle.check_at(address("2001:db8::2"), now).is_err(), "the same network");
        assert_eq!(throttle.check_at(address("2001:db8:1::1"), now), Ok(()));
        assert_eq!(throttle.check_at(None, now), Ok(()));
        assert_eq!(throttle.check_at(address("2001:db8::1"), now + WINDOW), Ok(()));
        throttle.note_failure_at(address("2001:db8::1"), now + WINDOW);
        assert_eq!(throttle.check_at(address("2001:db8::1"), now + WINDOW), Ok(()), "counting begins anew");
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_room() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..2 * MOST_ADDRESSES {
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(u32::try_from(number).expect("small")));
            throttle.note_failure_at(Some(from), now + Duration::from_micros(number as u64));
        }
        assert_eq!(throttle.failures.lock().expect("the table").len(), MOST_ADDRESSES);
    }
}
