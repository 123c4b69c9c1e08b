//! Addresses in node records: which are refused, and how many one person may add.
//!
//! Workers connect to what a record says, from inside the operator's network, so records must not serve to scan it. The rules about
//! addresses are [`engine::reach`]'s; workers apply them again to what names resolve to. The counts are kept in memory, as those of
//! [`crate::people`].

use std::time::Duration;

use api::Problem;
use engine::counting::many;
use engine::ids::PersonId;
use engine::reach::Policy;

use crate::people::throttle::Throttle;

/// Addresses that one person may add to records within a minute, one record at a time.
pub const ADDRESSES_A_MINUTE: u32 = 60;
/// Addresses that one person may add to records within an hour in all: as many as one full text of nodes has.
pub const ADDRESSES_AN_HOUR: u32 = 4_000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Refuses addresses that are no node's.
pub(crate) fn check(policy: &Policy, addresses: &[String], port: u16) -> Result<(), Problem> {
    addresses.iter().try_for_each(|address| {
        let refused = |why| Problem::invalid(format!("addresses: {address:?} is refused: {why}."));
        policy.check_record(address, port).map_err(refused)
    })
}

/// How many addresses each person added.
#[derive(Debug)]
pub(crate) struct Added {
    minute: Throttle<PersonId>,
    hour: Throttle<PersonId>,
}

impl Default for Added {
    fn default() -> Self {
        Self {
            minute: Throttle::of(ADDRESSES_A_MINUTE, MINUTE),
            hour: Throttle::of(ADDRESSES_AN_HOUR, HOUR),
        }
    }
}

impl Added {
    /// Counts addresses of one record.
    pub(crate) fn of_record(&self, person: PersonId, count: usize) -> Result<(), Problem> {
        self.minute.take_many(person, count).map_err(|wait| {
            refused(
                ADDRESSES_A_MINUTE,
                "minute",
                wait,
                ", or add many nodes as one text (POST /api/v1/nodes/many)",
            )
        })?;
        self.of_text(person, count)
    }

    /// Counts addresses of many records that come as one text.
    pub(crate) fn of_text(&self, person: PersonId, count: usize) -> Result<(), Problem> {
        self.hour
            .take_many(person, count)
            .map_err(|wait| refused(ADDRESSES_AN_HOUR, "hour", wait, ""))
    }
}

fn refused(most: u32, time: &str, wait: Duration, more: &str) -> Problem {
    let wait_text = many(wait.as_secs().max(1), "second");
    let detail = format!(
        "A person may add {most} addresses of nodes within one {time}. Try again in {wait_text}{more}."
    );
    Problem::new(429, "too_many_addresses", "Too many addresses", detail).again_after(wait)
}

#[cfg(test)]
mod tests {
    use api::limits::{ADDRESSES, INVENTORY};

    use super::*;
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
                refused.detail.starts_with(&format!("addresses: {address:?} is refused: ")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn one_person_adds_so_many_addresses() {
        let (added, person, other) =
            (Added::default(), PersonId(Uuid::from_u128(1)), PersonId(Uuid::from_u128(2)));
        added.of_record(person, ADDRESSES_A_MINUTE as usize).unwrap();
        let refused = added.of_record(person, 1).unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (429, "too_many_addresses"));
        assert!(refused.again_after.is_some_and(|wait| wait <= 60), "{refused:?}");
        added.of_record(person, 0).unwrap();
        added.of_record(other, 1).unwrap();
        let left = (ADDRESSES_AN_HOUR - ADDRESSES_A_MINUTE) as usize;
        assert!(added.of_text(person, left + 1).is_err(), "refused as a whole");
        added.of_text(person, left).unwrap();
        assert!(added.of_text(person, 1).unwrap_err().detail.contains("within one hour"));
        assert_eq!(usize::try_from(ADDRESSES_AN_HOUR), Ok(INVENTORY * ADDRESSES));
    }
}
