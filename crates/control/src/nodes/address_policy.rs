//! Checks addresses in node records, and limits how many one person may add.
//!
//! Workers connect to the addresses in records from inside the operator's network, so records must
//! not allow scans of it. The rules are in [`engine::reach`]; workers apply them again to resolved
//! names. Counters are in memory, as in [`crate::people`].

use std::time::Duration;

use api::Problem;
use engine::counting::many;
use engine::ids::PersonId;
use engine::reach::Policy;

use crate::people::throttle::Throttle;

/// Addresses per person and minute, in single records.
pub const ADDRESSES_PER_MINUTE: u32 = 60;
/// Addresses per person and hour, in texts with many nodes: as many as one text of maximum size
/// has.
pub const ADDRESSES_PER_HOUR: u32 = 4_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Refuses addresses that the policy forbids.
pub(crate) fn check(policy: &Policy, addresses: &[String], port: u16) -> Result<(), Problem> {
    addresses.iter().try_for_each(|address| {
        let refused =
            |reason| Problem::invalid(format!("addresses: {address:?} is not allowed: {reason}."));
        policy.check_record(address, port).map_err(refused)
    })
}

/// Counters of added addresses, per person.
#[derive(Debug)]
pub(crate) struct Added {
    minute: Throttle<PersonId>,
    hour: Throttle<PersonId>,
}

impl Default for Added {
    fn default() -> Self {
        Self {
            minute: Throttle::of(ADDRESSES_PER_MINUTE, MINUTE),
            hour: Throttle::of(ADDRESSES_PER_HOUR, HOUR),
        }
    }
}

impl Added {
    /// Counts addresses of a single record.
    pub(crate) fn of_record(&self, person: PersonId, count: usize) -> Result<(), Problem> {
        self.minute.acquire_many(person, count).map_err(|wait| {
            refused(
                ADDRESSES_PER_MINUTE,
                "minute",
                wait,
                ", or add many nodes in one request (POST /api/v1/nodes/bulk)",
            )
        })?;
        self.count_text(person, count)
    }

    /// Counts addresses of a text with many nodes.
    pub(crate) fn count_text(&self, person: PersonId, count: usize) -> Result<(), Problem> {
        self.hour
            .acquire_many(person, count)
            .map_err(|wait| refused(ADDRESSES_PER_HOUR, "hour", wait, ""))
    }
}

fn refused(limit: u32, time: &str, wait: Duration, advice: &str) -> Problem {
    let wait_text = many(wait.as_secs().max(1), "second");
    let detail = format!(
        "A person can add at most {limit} addresses of nodes within one {time}. Try again in \
         {wait_text}{advice}."
    );
    Problem::new(429, "too_many_addresses", "Too many addresses", detail).again_after(wait)
}

#[cfg(test)]
mod tests {
    use api::limits::{ADDRESSES, INVENTORY};

    use crate::nodes::address_policy::*;
    use uuid::Uuid;

    #[test]
    fn refused_address_is_named_with_reason() {
        let (policy, listed) =
            (Policy::default(), |address: &str| vec!["10.0.0.1".to_owned(), address.to_owned()]);
        check(&policy, &listed("web-7.mgmt.example.com"), 22).unwrap();
        for address in [
            "169.254.169.254",
            "metadata.google.internal",
            "127.0.0.1",
            "localhost",
            "::",
            "fe80::1%eth0",
        ] {
            let refused = check(&policy, &listed(address), 22).unwrap_err();
            assert_eq!(refused.status, 400);
            assert!(
                refused.detail.starts_with(&format!("addresses: {address:?} is not allowed: ")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn addresses_per_person_are_limited() {
        let (added, person, other) =
            (Added::default(), PersonId(Uuid::from_u128(1)), PersonId(Uuid::from_u128(2)));
        added.of_record(person, ADDRESSES_PER_MINUTE as usize).unwrap();
        let refused = added.of_record(person, 1).unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (429, "too_many_addresses"));
        assert!(refused.again_after.is_some_and(|wait| wait <= 60), "{refused:?}");
        added.of_record(person, 0).unwrap();
        added.of_record(other, 1).unwrap();
        let left = (ADDRESSES_PER_HOUR - ADDRESSES_PER_MINUTE) as usize;
        assert!(
            added.count_text(person, left + 1).is_err(),
            "all addresses above the limit are rejected"
        );
        added.count_text(person, left).unwrap();
        assert!(added.count_text(person, 1).unwrap_err().detail.contains("within one hour"));
        assert_eq!(usize::try_from(ADDRESSES_PER_HOUR), Ok(INVENTORY * ADDRESSES));
    }
}
