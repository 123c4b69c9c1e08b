//! Access that admins gave, as an export records it, and the approvals that do not count because
//! of it.
//!
//! The rules are those of the database (`approval_barred` in `migrations/src/guards/people.sql`):
//! an approval does not count if its person and an author have an origin of access in common within
//! the cooling period. It also does not count if its person got an account or a grant after the
//! submission, or a link within the cooling period. A second admin's confirmation ends the cooling
//! period.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use crate::ids::PersonId;
use crate::walk::reachable;

/// A row of `access_change`, as the audit records it.
#[derive(Deserialize)]
pub(super) struct AccessRow {
    id: i64,
    person_id: PersonId,
    kind: String,
    #[serde(default)]
    by: Option<PersonId>,
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    #[serde(default, with = "time::serde::rfc3339::option")]
    confirmed_at: Option<OffsetDateTime>,
}

struct Change {
    person: PersonId,
    by: PersonId,
    at: OffsetDateTime,
    kind: String,
    /// The entry of the audit that records the confirmation.
    confirmed: Option<u64>,
}

/// All access changes so far.
#[derive(Default)]
pub(super) struct Access(BTreeMap<i64, Change>);

/// An approval whose person and an author may owe their access to one person.
pub(super) struct ApprovalContext<'a> {
    pub person: PersonId,
    /// When the verdict was given.
    pub given_at: OffsetDateTime,
    pub submitted: OffsetDateTime,
    pub cooling: Duration,
    pub authors: &'a BTreeSet<PersonId>,
    /// The entry of the commit. Later confirmations do not count.
    pub commit: u64,
}

impl Access {
    /// Adds the row of an entry.
    pub(super) fn record(&mut self, seq: u64, row: AccessRow) {
        let Some(by) = row.by else { return };
        let confirmed = row.confirmed_at.map(|_| seq);
        let change = self.0.entry(row.id).or_insert_with(|| Change {
            person: row.person_id,
            by,
            at: row.at,
            kind: row.kind,
            confirmed,
        });
        change.confirmed = change.confirmed.or(confirmed);
    }

    /// Whether the approval does not count because of new access.
    pub(super) fn excludes(&self, approval: &ApprovalContext<'_>) -> bool {
        let is_recent = |change: &Change, at: OffsetDateTime| {
            let unconfirmed = change.confirmed.is_none_or(|seq| seq >= approval.commit);
            unconfirmed && change.at > at - approval.cooling
        };
        let is_later = |change: &Change, kinds: [&str; 2]| {
            kinds.contains(&change.kind.as_str()) && change.at > approval.submitted
        };
        let is_new = |change: &Change| is_later(change, ["created", "granted"]);
        let bars_itself = |change: &Change| {
            change.person == approval.person
                && change.at <= approval.given_at
                && (is_new(change)
                    || is_later(change, ["link", "reset"]) && is_recent(change, approval.given_at))
        };
        let givers = |(person, at)| {
            let counts = move |change: &&Change| {
                change.person == person
                    && change.at <= at
                    && (is_recent(change, at) || is_new(change))
            };
            self.0.values().filter(counts).map(|change| (change.by, change.at))
        };
        let origins = |person: PersonId, at: OffsetDateTime| {
            reachable([(person, at)], givers).map(|(person, _)| person)
        };
        let of_authors: BTreeSet<PersonId> = approval
            .authors
            .iter()
            .flat_map(|author| origins(*author, approval.submitted))
            .collect();
        self.0.values().any(bars_itself)
            || origins(approval.person, approval.given_at)
                .any(|origin| of_authors.contains(&origin))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ADA: &str = "00000000-0000-0000-0000-0000000000a1";
    const BO: &str = "00000000-0000-0000-0000-0000000000b1";
    const CY: &str = "00000000-0000-0000-0000-0000000000c1";

    fn person(id: &str) -> PersonId {
        PersonId(id.parse().unwrap())
    }

    fn hour(hour: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::hours(hour)
    }

    fn row(id: i64, person: &str, by: &str, at: i64, kind: &str) -> AccessRow {
        serde_json::from_value(json!({"id": id, "person_id": person, "by": by, "kind": kind,
            "at": hour(at).format(&time::format_description::well_known::Rfc3339).unwrap()}))
        .unwrap()
    }

    /// Whether bo's approval at an hour is barred for a change that ada submitted at hour 100.
    fn barred(access: &Access, given_at: i64) -> bool {
        access.excludes(&ApprovalContext {
            person: person(BO),
            given_at: hour(given_at),
            submitted: hour(100),
            cooling: Duration::hours(24),
            authors: &BTreeSet::from([person(ADA)]),
            commit: 50,
        })
    }

    #[test]
    fn author_access_bars_approval_while_cooling() {
        let mut access = Access::default();
        access.record(1, row(1, BO, ADA, 90, "link"));
        assert!(barred(&access, 101));
        assert!(!barred(&access, 115));
        assert!(!barred(&access, 89));
    }

    #[test]
    fn access_after_the_submission_bars() {
        // Kind, and whether it bars an approval one hour and many hours later.
        for (kind, soon, late) in [
            ("created", true, true),
            ("granted", true, true),
            ("link", true, false),
            ("reset", true, false),
            ("enabled", false, false),
        ] {
            let mut access = Access::default();
            access.record(1, row(1, BO, CY, 101, kind));
            let barred = [100, 102, 200].map(|given_at| barred(&access, given_at));
            assert_eq!(barred, [false, soon, late], "{kind}");
        }
    }

    #[test]
    fn access_from_common_admin_bars_approval() {
        for (authors_at, given_at, bars) in [(90, 101, true), (70, 101, false), (90, 125, false)] {
            let mut access = Access::default();
            access.record(1, row(1, ADA, CY, authors_at, "created"));
            access.record(2, row(2, BO, CY, 95, "created"));
            assert_eq!(barred(&access, given_at), bars, "{authors_at} {given_at}");
        }
    }

    #[test]
    fn access_of_author_from_reviewer_bars() {
        let mut access = Access::default();
        access.record(1, row(1, ADA, BO, 90, "link"));
        assert!(barred(&access, 200), "access that is new at the submission bars");
        let mut confirmed = row(1, ADA, BO, 90, "link");
        confirmed.confirmed_at = Some(hour(110));
        access.record(2, confirmed);
        assert!(!barred(&access, 200));
    }

    #[test]
    fn confirmed_access_does_not_bar() {
        let mut access = Access::default();
        access.record(1, row(1, BO, ADA, 90, "link"));
        let mut confirmed = row(1, BO, ADA, 90, "link");
        confirmed.confirmed_at = Some(hour(91));
        access.record(60, confirmed);
        assert!(
            barred(&access, 101),
            "access that was confirmed after the commit bars the reviewer"
        );
        let mut access = Access::default();
        let mut confirmed = row(1, BO, ADA, 90, "link");
        confirmed.confirmed_at = Some(hour(91));
        access.record(1, row(1, BO, ADA, 90, "link"));
        access.record(2, confirmed);
        assert!(!barred(&access, 101));
    }

    #[test]
    fn access_through_another_person_bars() {
        let mut access = Access::default();
        access.record(1, row(1, CY, ADA, 80, "created"));
        access.record(2, row(2, BO, CY, 90, "created"));
        assert!(barred(&access, 101));
        let mut access = Access::default();
        access.record(1, row(1, CY, ADA, 10, "created"));
        access.record(2, row(2, BO, CY, 90, "created"));
        assert!(!barred(&access, 101), "the other person's access is old enough");
    }
}
