//! Excludes approvals by reviewers who got their access from an author of the change.
//!
//! An admin could otherwise create an account, a grant or a sign-in link, and approve their own
//! change with it. An approval does not count if an author gave the reviewer access within the
//! cooling period before it. It counts once a second admin confirms the access. It never counts if
//! the account or grant is newer than the review. Access is traced back through givers whose own
//! access was recent at that time. The database applies the same rule (`approval_barred`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Facts, MAX_COOLING_HOURS, Reviewer, VerdictKind};
use crate::ids::PersonId;
use crate::walk::reachable;

/// One hour in microseconds.
const HOUR: i64 = 3_600_000_000;

/// How a person gave another one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// Created the account.
    Created,
    /// Granted the reviewer or admin permission.
    Granted,
    /// Enabled a disabled account.
    Enabled,
    /// Created a sign-in link.
    Link,
    /// A password was set with a sign-in link.
    Reset,
    /// Removed a second factor.
    FactorRemoved,
}

impl AccessKind {
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Granted, Self::Enabled, Self::Link, Self::Reset, Self::FactorRemoved];

    /// The kind as the database spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Granted => "granted",
            Self::Enabled => "enabled",
            Self::Link => "link",
            Self::Reset => "reset",
            Self::FactorRemoved => "factor_removed",
        }
    }

    fn did(self, by: &str, to: &str) -> String {
        match self {
            Self::Created => format!("{by} created the account of {to}"),
            Self::Granted => format!("{by} gave {to} a permission"),
            Self::Enabled => format!("{by} enabled the account of {to}"),
            Self::Link => format!("{by} created a sign-in link for {to}"),
            Self::Reset => format!("{to} set a password with a sign-in link of {by}"),
            Self::FactorRemoved => format!("{by} removed the second factor of {to}"),
        }
    }
}

/// A change of a person's access by another person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// The person who got the access.
    pub person: PersonId,
    /// The admin who gave it.
    pub by: PersonId,
    pub by_name: String,
    pub kind: AccessKind,
    /// Microseconds since 1970.
    pub at: i64,
    /// Whether a second admin confirmed it.
    pub confirmed: bool,
}

/// The access changes of a review's reviewers. Times are microseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The cooling period of the policy in force, in hours.
    pub cooling_hours: u32,
    /// When the review was submitted.
    pub submitted: i64,
    /// The current time.
    pub now: i64,
    /// Access changes of the reviewers and of those who gave them access.
    pub changes: Arc<Vec<AccessChange>>,
}

/// Why an approval does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApprovalLimit<'a> {
    change: &'a AccessChange,
    /// The time from which approvals count. `None`: never on this review.
    until: Option<i64>,
}

impl Access {
    fn active(&self, person: PersonId, at: i64) -> impl Iterator<Item = &AccessChange> {
        self.changes.iter().filter(move |c| {
            c.person == person && c.at <= at && self.until(c).is_none_or(|end| at < end)
        })
    }

    /// When a change stops to matter. `None`: never.
    fn until(&self, change: &AccessChange) -> Option<i64> {
        let made_later = matches!(change.kind, AccessKind::Created | AccessKind::Granted)
            && change.at > self.submitted;
        match (made_later, change.confirmed) {
            (true, _) => None,
            (false, true) => Some(change.at),
            (false, false) => Some(change.at.saturating_add(i64::from(self.cooling_hours) * HOUR)),
        }
    }

    /// The access change that bars a person's approval at this time. If several apply, returns the
    /// one that bars it longest.
    pub(super) fn bar(
        &self,
        person: PersonId,
        at: i64,
        authors: &BTreeSet<PersonId>,
    ) -> Option<ApprovalLimit<'_>> {
        let from_author = self.active(person, at).filter(|change| self.leads_to(change, authors));
        let bars = from_author.map(|change| ApprovalLimit { change, until: self.until(change) });
        bars.max_by_key(|bar| bar.until.unwrap_or(i64::MAX))
    }

    fn leads_to(&self, change: &AccessChange, authors: &BTreeSet<PersonId>) -> bool {
        let givers = |(person, at)| self.active(person, at).map(|above| (above.by, above.at));
        reachable([(change.by, change.at)], givers).any(|(person, _)| authors.contains(&person))
    }
}

/// Whether a person's last verdict is an approval that counts.
pub(super) fn approval_counts(facts: &Facts, person: PersonId) -> bool {
    facts.last_verdict(person).is_some_and(|verdict| {
        verdict.kind == VerdictKind::Approve
            && facts.is_signed(person)
            && facts.access.bar(person, verdict.at, &facts.authors).is_none()
    })
}

/// One sentence for each eligible reviewer whose approval does not count now, or did not when it
/// was given.
pub(super) fn explained(facts: &Facts, reviewers: &[&Reviewer]) -> Vec<String> {
    let of = |reviewer: &&Reviewer| explain(facts, reviewer);
    reviewers.iter().filter_map(of).collect()
}

/// One sentence for each approving reviewer who got access from an author within the maximum
/// cooling period before the approval. The approval counts; the sentence informs readers of the
/// review.
pub(super) fn noted(facts: &Facts, approving: &[&Reviewer]) -> Vec<String> {
    let of = |reviewer: &&Reviewer| {
        let given = facts.last_verdict(reviewer.id)?.at;
        let since = given.saturating_sub(i64::from(MAX_COOLING_HOURS) * HOUR);
        let by_author =
            |c: &&AccessChange| c.person == reviewer.id && facts.authors.contains(&c.by);
        let change = facts
            .access
            .changes
            .iter()
            .rfind(|c| by_author(c) && (since..=given).contains(&c.at))?;
        Some(format!("{} at {}", change.kind.did(&change.by_name, &reviewer.name), utc(change.at)))
    };
    approving.iter().filter_map(of).collect()
}

fn explain(facts: &Facts, reviewer: &Reviewer) -> Option<String> {
    let (name, access) = (&reviewer.name, &facts.access);
    let approval =
        facts.last_verdict(reviewer.id).filter(|verdict| verdict.kind == VerdictKind::Approve);
    let at = approval.map_or(access.now, |verdict| verdict.at);
    let Some(ApprovalLimit { change, until }) = access.bar(reviewer.id, at, &facts.authors) else {
        let voided = facts
            .verdicts
            .iter()
            .rev()
            .find(|verdict| verdict.person == reviewer.id && verdict.void);
        let lost = voided.is_some_and(|verdict| verdict.kind == VerdictKind::Approve)
            && approval.is_none();
        if lost {
            return Some(format!(
                "{name} approved it before the account was disabled and must approve again"
            ));
        }
        return unsigned(facts, reviewer, approval.is_some());
    };
    let did = change.kind.did(&change.by_name, name);
    Some(match until {
        None => {
            format!("Approvals by {name} never count here: {did} after the review was submitted")
        }
        Some(until) => {
            let again = if approval.is_some() && until <= access.now {
                format!(". {name} must approve again")
            } else {
                String::new()
            };
            format!(
                "Approvals by {name} count from {}, or when another admin confirms the access of {name}: {did} at {}{again}",
                utc(until),
                utc(change.at)
            )
        }
    })
}

/// Why an approval does not count if the policy requires a signature.
fn unsigned(facts: &Facts, reviewer: &Reviewer, approved: bool) -> Option<String> {
    let signing = facts.signing.as_ref()?;
    let name = &reviewer.name;
    match (approved, signing.able.contains(&reviewer.id)) {
        (true, true) => {
            Some(format!("{name} approved it without a passkey and must approve again with one"))
        }
        (true, false) => {
            Some(format!("{name} approved it without a passkey and has no confirmed passkey"))
        }
        (false, false) => Some(format!("{name} has no confirmed passkey")),
        (false, true) => None,
    }
}

/// Formats a time as `2026-11-23 12:00 UTC`.
pub fn utc(micros: i64) -> String {
    let minutes = micros.div_euclid(60_000_000);
    let (days, minute) = (minutes.div_euclid(1440), minutes.rem_euclid(1440));
    // Years start in March here, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (month, date) = ((march + 2) % 12 + 1, of_year - (153 * march + 2) / 5 + 1);
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{facts, person};
    use super::super::{Rule, Verdict, evaluate};
    use super::*;

    fn change(of: u128, by: u128, kind: AccessKind, hour: i64) -> AccessChange {
        AccessChange {
            person: person(of),
            by: person(by),
            by_name: "ada".into(),
            kind,
            at: hour * HOUR,
            confirmed: false,
        }
    }

    /// A review by person 1 (ada), submitted at hour 100 and approved by person 2 (bo) at `hour`.
    fn approved(hour: i64, changes: Vec<AccessChange>) -> Facts {
        let mut facts = facts();
        facts.verdicts = vec![Verdict {
            person: person(2),
            kind: VerdictKind::Approve,
            at: hour * HOUR,
            void: false,
        }];
        facts.access = Access {
            cooling_hours: 24,
            submitted: 100 * HOUR,
            now: hour * HOUR,
            changes: Arc::new(changes),
        };
        facts
    }

    fn text(facts: &Facts) -> String {
        let gate = evaluate(facts);
        gate.rules
            .into_iter()
            .find(|rule| rule.rule == Rule::Approvals)
            .map(|rule| rule.text)
            .unwrap_or_default()
    }

    #[test]
    fn approval_counts_after_cooling_or_confirmation() {
        for kind in AccessKind::ALL {
            let fresh = approved(101, vec![change(2, 1, kind, 99)]);
            assert!(!evaluate(&fresh).is_open(), "{kind:?}");
            assert_eq!(evaluate(&fresh).approvals, 0);
            assert!(evaluate(&approved(123, vec![change(2, 1, kind, 99)])).is_open(), "{kind:?}");
            let mut confirmed = fresh.clone();
            Arc::make_mut(&mut confirmed.access.changes)[0].confirmed = true;
            assert!(evaluate(&confirmed).is_open(), "{kind:?}");
            assert!(
                evaluate(&approved(101, vec![change(2, 3, kind, 99)])).is_open(),
                "of no author: {kind:?}"
            );
            assert!(
                evaluate(&approved(101, vec![change(2, 1, kind, 102)])).is_open(),
                "later: {kind:?}"
            );
        }
        let mut late = approved(101, vec![change(2, 1, AccessKind::Link, 99)]);
        late.access.now = 200 * HOUR;
        assert!(
            !evaluate(&late).is_open(),
            "what did not count when it was given counts at no time"
        );
        assert!(text(&late).ends_with("bo must approve again"), "{}", text(&late));
        late.access.cooling_hours = 0;
        assert!(evaluate(&late).is_open());
    }

    #[test]
    fn access_made_after_submission_never_counts() {
        for (kind, never) in
            [(AccessKind::Created, true), (AccessKind::Granted, true), (AccessKind::Link, false)]
        {
            let mut facts = approved(500, vec![change(2, 1, kind, 101)]);
            Arc::make_mut(&mut facts.access.changes)[0].confirmed = true;
            assert_eq!(!evaluate(&facts).is_open(), never, "{kind:?}");
        }
    }

    #[test]
    fn recent_access_chain_leads_to_author() {
        let chain = vec![change(9, 1, AccessKind::Link, 98), change(2, 9, AccessKind::Created, 99)];
        assert!(!evaluate(&approved(101, chain.clone())).is_open());
        assert!(evaluate(&approved(124, chain.clone())).is_open());
        let mut confirmed = chain.clone();
        confirmed[0].confirmed = true;
        assert!(evaluate(&approved(101, confirmed)).is_open());
        let long_ago = vec![change(9, 1, AccessKind::Link, 10), chain[1].clone()];
        assert!(evaluate(&approved(101, long_ago)).is_open());
        let circle = vec![change(9, 2, AccessKind::Link, 99), change(2, 9, AccessKind::Link, 99)];
        assert!(evaluate(&approved(101, circle)).is_open());
    }

    #[test]
    fn objection_with_recent_access_counts() {
        let mut facts = approved(101, vec![change(2, 1, AccessKind::Link, 99)]);
        facts.verdicts[0].kind = VerdictKind::Reject;
        assert_eq!(evaluate(&facts).closed_by().map(|rule| rule.rule), Some(Rule::Objections));
    }

    #[test]
    fn void_verdict_never_counts() {
        let mut facts = approved(101, Vec::new());
        facts.verdicts[0].void = true;
        assert!(
            text(&facts).contains("bo approved it before the account was disabled"),
            "{}",
            text(&facts)
        );
        facts.verdicts[0].kind = VerdictKind::Reject;
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::Approve,
            at: 0,
            void: false,
        });
        assert!(evaluate(&facts).is_open());
    }

    #[test]
    fn message_names_giver_and_time() {
        let facts = approved(101, vec![change(2, 1, AccessKind::Created, 99)]);
        assert_eq!(
            text(&facts),
            "0 of 1 approval. 1 more needed. Can act: cy. Approvals by bo count from 1970-01-06 03:00 UTC, or when another \
             admin confirms the access of bo: ada created the account of bo at 1970-01-05 03:00 UTC"
        );
        let facts = approved(103, vec![change(2, 1, AccessKind::Granted, 102)]);
        assert!(text(&facts).ends_with(
            "never count here: ada gave bo a permission after the review was submitted"
        ));
        assert_eq!(evaluate(&facts).can_approve, ["cy"]);
    }

    #[test]
    fn reset_by_author_is_noted_on_approval() {
        let facts = approved(200, vec![change(2, 1, AccessKind::Reset, 99)]);
        let noted =
            "1 of 1 approval. bo set a password with a sign-in link of ada at 1970-01-05 03:00 UTC";
        assert_eq!((evaluate(&facts).is_open(), text(&facts).as_str()), (true, noted));
        assert_eq!(
            text(&approved(900, vec![change(2, 1, AccessKind::Reset, 99)])),
            "1 of 1 approval"
        );
    }

    #[test]
    fn times_are_formatted_in_utc() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_478_399, "2026-11-23 23:59 UTC"),
            (-60, "1969-12-31 23:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), expected);
        }
    }
}
