//! How often something may be tried by one who tries it.
//!
//! Nobody guesses a token of 256 bits; for those it keeps whoever tries from costing anything, and from filling the log. For passwords it is
//! what makes guessing hopeless. It lives in memory: each server counts for itself and forgets with its process, so with several servers
//! that many times as much may be tried. IPv6 clients are counted by their /64, which is what one of them has to itself. The table has a
//! fixed size; when it is full, whoever was counted first makes room, so a flood costs the flooder's own record and nobody's access.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures within [`WINDOW`] before an address, or a name, has to wait.
pub(super) const MOST_FAILURES: u32 = 10;
/// How long failures count, from the first one on.
pub(super) const WINDOW: Duration = Duration::from_secs(10 * 60);
/// Requests by one token within [`MINUTE`].
pub(super) const MOST_BY_TOKEN: u32 = 600;
/// Requests of one session within [`MINUTE`]. A page asks for a few parts and again for what changes under it, in each tab.
pub(super) const MOST_BY_SESSION: u32 = 1_200;
/// What requests are counted in.
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// Those that are remembered.
const MOST_REMEMBERED: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Tries {
    since: Instant,
    count: u32,
}

/// Tries by whoever tries.
#[derive(Debug)]
pub(crate) struct Throttle<K> {
    tries: Mutex<HashMap<K, Tries>>,
    most: u32,
    window: Duration,
}

impl<K: Eq + Hash + Clone> Throttle<K> {
    /// So many within so long, from the first one on.
    pub(crate) fn of(most: u32, window: Duration) -> Self {
        Self { tries: Mutex::default(), most, window }
    }

    /// Whether one may try; else how long they have to wait.
    pub(super) fn check(&self, key: &K) -> Result<(), Duration> {
        self.check_at(key, Instant::now())
    }

    fn check_at(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = tries.get(key) else {
            return Ok(());
        };
        let left = self.window.saturating_sub(now.saturating_duration_since(known.since));
        match known.count >= self.most && !left.is_zero() {
            true => Err(left),
            false => Ok(()),
        }
    }

    /// Counts a try.
    pub(super) fn note(&self, key: K) {
        self.note_at(key, Instant::now());
    }

    fn note_at(&self, key: K, now: Instant) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_room(&mut tries, &key, now);
        let known = tries.entry(key).or_insert(Tries { since: now, count: 0 });
        if now.saturating_duration_since(known.since) >= self.window {
            *known = Tries { since: now, count: 0 };
        }
        known.count = known.count.saturating_add(1);
    }

    fn make_room(&self, tries: &mut HashMap<K, Tries>, key: &K, now: Instant) {
        if tries.len() < MOST_REMEMBERED || tries.contains_key(key) {
            return;
        }
        tries.retain(|_, known| now.saturating_duration_since(known.since) < self.window);
        let first = tries.iter().min_by_key(|(_, known)| known.since).map(|(key, _)| key.clone());
        if let Some(first) = first.filter(|_| tries.len() >= MOST_REMEMBERED) {
            tries.remove(&first);
        }
    }

    /// Checks, and counts what may be tried: of many who come at once, no more get through.
    pub(super) fn take(&self, key: K) -> Result<(), Duration> {
        self.check(&key)?;
        self.note(key);
        Ok(())
    }

    /// Checks whether so many more may be tried, and counts all of them; else none, and how long to wait.
    pub(crate) fn take_many(&self, key: K, count: usize) -> Result<(), Duration> {
        self.take_many_at(key, u32::try_from(count).unwrap_or(u32::MAX), Instant::now())
    }

    fn take_many_at(&self, key: K, count: u32, now: Instant) -> Result<(), Duration> {
        if count == 0 {
            return Ok(());
        }
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_room(&mut tries, &key, now);
        let known = tries.entry(key).or_insert(Tries { since: now, count: 0 });
        let left = self.window.saturating_sub(now.saturating_duration_since(known.since));
        if left.is_zero() {
            *known = Tries { since: now, count: 0 };
        }
        let all = known.count.saturating_add(count);
        if all > self.most {
            return Err(left);
        }
        known.count = all;
        Ok(())
    }

    /// One try less: it was none of those that are to be rare.
    pub(super) fn give_back(&self, key: &K) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tries.get_mut(key) {
            known.count = known.count.saturating_sub(1);
        }
    }

    /// Forgets what one tried.
    pub(super) fn forget(&self, key: &K) {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// By what an address is counted.
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
        Throttle::of(MOST_FAILURES, WINDOW)
    }

    #[test]
    fn an_address_waits_after_too_many_failures_and_others_do_not() {
        let (throttle, now) = (throttle(), Instant::now());
        for _ in 0..MOST_FAILURES {
            assert_eq!(throttle.check_at(&address("2001:db8::1"), now), Ok(()));
            throttle.note_at(address("2001:db8::1"), now);
        }
        assert!(throttle.check_at(&address("2001:db8::2"), now).is_err(), "the same network");
        assert_eq!(throttle.check_at(&address("2001:db8:1::1"), now), Ok(()));
        assert_eq!(throttle.check_at(&None, now), Ok(()));
        assert_eq!(throttle.check_at(&address("2001:db8::1"), now + WINDOW), Ok(()));
        throttle.note_at(address("2001:db8::1"), now + WINDOW);
        assert_eq!(
            throttle.check_at(&address("2001:db8::1"), now + WINDOW),
            Ok(()),
            "counting begins anew"
        );
    }

    #[test]
    fn what_was_no_failure_does_not_count() {
        let throttle = throttle();
        for _ in 0..3 * MOST_FAILURES {
            assert_eq!(throttle.take(None), Ok(()));
            throttle.give_back(&None);
        }
        (0..MOST_FAILURES).for_each(|_| assert_eq!(throttle.take(None), Ok(())));
        assert!(throttle.take(None).is_err());
        throttle.forget(&None);
        assert_eq!(throttle.take(None), Ok(()));
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_room() {
        let (throttle, now) = (throttle(), Instant::now());
        for number in 0..2 * MOST_REMEMBERED {
            let from =
                IpAddr::V4(std::net::Ipv4Addr::from_bits(u32::try_from(number).expect("small")));
            throttle.note_at(Some(from), now + Duration::from_micros(number as u64));
        }
        assert_eq!(throttle.tries.lock().expect("the table").len(), MOST_REMEMBERED);
    }
}
