//! Excludes approvals by reviewers whose access has an origin in common with that of an author.
//!
//! An admin could otherwise create an account, a grant or a sign-in link, and approve their own
//! change with it, or propose a change with it and approve that. So recent access is traced back to
//! the people who gave it: for the reviewer at the verdict, for the authors at the submission. An
//! approval does not count if both lead to one person. Access is recent within the cooling period,
//! unless a second admin confirmed it. Access from after the submission bars an approval,
//! also if no author gave it: an account or grant permanently, a link while it is recent. The
//! database applies the same rules (`approval_barred`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Facts, MAX_COOLING_HOURS, Reviewer, Verdict, VerdictKind};
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
    /// Created a token of a service account.
    Token,
}

impl AccessKind {
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Granted,
        Self::Enabled,
        Self::Link,
        Self::Reset,
        Self::FactorRemoved,
        Self::Token,
    ];

    /// The kind as the database spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Granted => "granted",
            Self::Enabled => "enabled",
            Self::Link => "link",
            Self::Reset => "reset",
            Self::FactorRemoved => "factor_removed",
            Self::Token => "token",
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
            Self::Token => format!("{by} created a token of {to}"),
        }
    }
}

/// A change of a person's access by an admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// The person who got the access.
    pub person: PersonId,
    pub person_name: String,
    /// The admin who gave it.
    pub by: PersonId,
    pub by_name: String,
    pub kind: AccessKind,
    /// Microseconds since 1970.
    pub at: i64,
    /// Whether a second admin confirmed it.
    pub confirmed: bool,
}

/// The access changes of a review's reviewers and authors. Times are microseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The cooling period of the policy in force, in hours.
    pub cooling_hours: u32,
    /// When the review was submitted.
    pub submitted: i64,
    /// The current time.
    pub now: i64,
    /// Access changes of the reviewers, the authors, and everyone who gave them access.
    pub changes: Arc<Vec<AccessChange>>,
}

impl AccessChange {
    fn text(&self) -> String {
        self.kind.did(&self.by_name, &self.person_name)
    }

    fn text_with_time(&self) -> String {
        format!("{} at {}", self.text(), utc(self.at))
    }
}

/// Why an approval does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApprovalLimit<'a> {
    /// The reviewer's account or grant is from after the submission.
    Later(&'a AccessChange),
    /// An author's access came from the reviewer when the change was submitted.
    OfAuthor(&'a AccessChange),
    /// The reviewer's access came from an author, is a link from after the submission, or came from
    /// the person who gave an author this access.
    OfReviewer(&'a AccessChange, Option<&'a AccessChange>),
}

impl Access {
    fn active(&self, person: PersonId, at: i64) -> impl Iterator<Item = &AccessChange> {
        self.changes.iter().filter(move |c| {
            c.person == person
                && c.at <= at
                && (self.is_later(c) || !c.confirmed && at < self.cooled(c))
        })
    }

    /// Whether a change is an account or grant from after the submission.
    fn is_later(&self, change: &AccessChange) -> bool {
        matches!(change.kind, AccessKind::Created | AccessKind::Granted)
            && change.at > self.submitted
    }

    /// Whether a change is a link from after the submission, or the use of one.
    fn is_later_link(&self, change: &AccessChange) -> bool {
        matches!(change.kind, AccessKind::Link | AccessKind::Reset) && change.at > self.submitted
    }

    /// The end of a change's cooling period.
    fn cooled(&self, change: &AccessChange) -> i64 {
        change.at.saturating_add(i64::from(self.cooling_hours) * HOUR)
    }

    /// A person, and the people from whom their access came.
    fn origins(&self, person: PersonId, at: i64) -> BTreeSet<PersonId> {
        let givers = |(person, at)| self.active(person, at).map(|change| (change.by, change.at));
        reachable([(person, at)], givers).map(|(person, _)| person).collect()
    }

    fn leads_to(&self, change: &AccessChange, people: &BTreeSet<PersonId>) -> bool {
        !self.origins(change.by, change.at).is_disjoint(people)
    }

    /// The newest change of a person's access that came from these people.
    fn newest_from(
        &self,
        person: PersonId,
        at: i64,
        people: &BTreeSet<PersonId>,
    ) -> Option<&AccessChange> {
        self.active(person, at)
            .filter(|change| self.leads_to(change, people))
            .max_by_key(|change| change.at)
    }

    /// Why a person's approval at this time does not count. `None`: it counts.
    pub(super) fn exclusion(
        &self,
        person: PersonId,
        at: i64,
        authors: &BTreeSet<PersonId>,
    ) -> Option<ApprovalLimit<'_>> {
        if let Some(later) = self.active(person, at).find(|change| self.is_later(change)) {
            return Some(ApprovalLimit::Later(later));
        }
        let of_authors = |people: &BTreeSet<PersonId>| {
            let newest = |author: &PersonId| self.newest_from(*author, self.submitted, people);
            authors.iter().filter_map(newest).max_by_key(|change| change.at)
        };
        if let Some(change) = of_authors(&[person].into()) {
            return Some(ApprovalLimit::OfAuthor(change));
        }
        let origins: BTreeSet<PersonId> =
            authors.iter().flat_map(|author| self.origins(*author, self.submitted)).collect();
        let change = self
            .active(person, at)
            .filter(|change| self.is_later_link(change) || self.leads_to(change, &origins))
            .max_by_key(|change| change.at)?;
        let shared = (!self.leads_to(change, authors))
            .then(|| of_authors(&self.origins(change.by, change.at)));
        Some(ApprovalLimit::OfReviewer(change, shared.flatten()))
    }
}

/// Whether a person's last verdict is an approval that counts.
pub(super) fn approval_counts(facts: &Facts, person: PersonId) -> bool {
    facts.last_verdict(person).is_some_and(|verdict| {
        verdict.kind == VerdictKind::Approve
            && facts.is_signed(person)
            && facts.access.exclusion(person, verdict.at, &facts.authors).is_none()
    })
}

/// One sentence for each eligible reviewer whose approval does not count now, or did not when it
/// was given.
pub(super) fn explained(facts: &Facts, reviewers: &[&Reviewer]) -> Vec<String> {
    let of = |reviewer: &&Reviewer| explain(facts, reviewer);
    reviewers.iter().filter_map(of).collect()
}

/// One sentence for each approving reviewer who got access from an author, or gave an author
/// access, within the maximum cooling period before the approval. The approval counts; the sentence
/// informs readers of the review.
pub(super) fn noted(facts: &Facts, approving: &[&Reviewer]) -> Vec<String> {
    let of = |reviewer: &&Reviewer| {
        let given = facts.last_verdict(reviewer.id)?.at;
        let since = given.saturating_sub(i64::from(MAX_COOLING_HOURS) * HOUR);
        let between = |of: PersonId, by: PersonId| {
            of == reviewer.id && facts.authors.contains(&by)
                || by == reviewer.id && facts.authors.contains(&of)
        };
        let change = facts
            .access
            .changes
            .iter()
            .rfind(|c| between(c.person, c.by) && (since..=given).contains(&c.at))?;
        Some(change.text_with_time())
    };
    approving.iter().filter_map(of).collect()
}

fn explain(facts: &Facts, reviewer: &Reviewer) -> Option<String> {
    let (name, access) = (&reviewer.name, &facts.access);
    let approval =
        facts.last_verdict(reviewer.id).filter(|verdict| verdict.kind == VerdictKind::Approve);
    let at = approval.map_or(access.now, |verdict| verdict.at);
    match access.exclusion(reviewer.id, at, &facts.authors) {
        Some(ApprovalLimit::Later(change)) => Some(format!(
            "Approvals by {name} never count here: {} after the review was submitted. An author \
             can submit it again",
            change.text()
        )),
        Some(ApprovalLimit::OfAuthor(change)) => Some(format!(
            "Approvals by {name} do not count here: {}. An author can submit it again after {}, or \
             another admin can confirm the access of {}",
            change.text_with_time(),
            utc(access.cooled(change)),
            change.person_name
        )),
        Some(ApprovalLimit::OfReviewer(change, shared)) => {
            let until = access.cooled(change);
            let also = match shared {
                Some(shared) => format!(", and {}", shared.text_with_time()),
                None if access.is_later_link(change) => ", after the submission".to_owned(),
                None => String::new(),
            };
            let again = if approval.is_some() && until <= access.now {
                format!(". {name} must approve again")
            } else {
                String::new()
            };
            Some(format!(
                "Approvals by {name} count from {}, or when another admin confirms the access of {name}: {}{also}{again}",
                utc(until),
                change.text_with_time()
            ))
        }
        None => voided(facts, reviewer, approval.is_some())
            .or_else(|| unsigned(facts, reviewer, approval.is_some())),
    }
}

/// Whether an approval is void because its account was disabled.
fn voided(facts: &Facts, reviewer: &Reviewer, approved: bool) -> Option<String> {
    let of_reviewer = |verdict: &&Verdict| verdict.person == reviewer.id && verdict.void;
    let voided = facts.verdicts.iter().rev().find(of_reviewer)?;
    (voided.kind == VerdictKind::Approve && !approved).then(|| {
        let name = &reviewer.name;
        format!("{name} approved it before the account was disabled and must approve again")
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
        let name = |n| ["", "ada", "bo", "cy"].get(n as usize).copied().unwrap_or("dan").to_owned();
        AccessChange {
            person: person(of),
            person_name: name(of),
            by: person(by),
            by_name: name(by),
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
                "access that no author gave does not bar: {kind:?}"
            );
            assert!(
                evaluate(&approved(101, vec![change(2, 1, kind, 102)])).is_open(),
                "access given after the approval does not bar: {kind:?}"
            );
        }
        let mut late = approved(101, vec![change(2, 1, AccessKind::Link, 99)]);
        late.access.now = 200 * HOUR;
        assert!(
            !evaluate(&late).is_open(),
            "an approval that did not count when it was given never counts"
        );
        assert!(text(&late).ends_with("bo must approve again"), "{}", text(&late));
        late.access.cooling_hours = 0;
        assert!(evaluate(&late).is_open());
    }

    #[test]
    fn access_made_after_submission_never_counts() {
        for kind in AccessKind::ALL {
            let never = matches!(kind, AccessKind::Created | AccessKind::Granted);
            for by in [1, 2, 3] {
                let mut facts = approved(500, vec![change(2, by, kind, 101)]);
                assert_eq!(!evaluate(&facts).is_open(), never, "access {kind:?} given by {by}");
                facts.verdicts[0].at = 102 * HOUR;
                Arc::make_mut(&mut facts.access.changes)[0].confirmed = true;
                assert_eq!(
                    !evaluate(&facts).is_open(),
                    never,
                    "confirmed access {kind:?} given by {by}"
                );
            }
        }
        let after_the_verdict = approved(101, vec![change(2, 3, AccessKind::Link, 102)]);
        assert!(evaluate(&after_the_verdict).is_open());
    }

    #[test]
    fn link_from_after_submission_bars_approval() {
        for kind in [AccessKind::Link, AccessKind::Reset] {
            assert!(!evaluate(&approved(124, vec![change(2, 3, kind, 101)])).is_open());
            assert!(evaluate(&approved(125, vec![change(2, 3, kind, 101)])).is_open());
            assert!(
                evaluate(&approved(101, vec![change(2, 3, kind, 100)])).is_open(),
                "the link is from before the submission"
            );
        }
        assert!(text(&approved(102, vec![change(2, 3, AccessKind::Link, 101)])).ends_with(
            "cy created a sign-in link for bo at 1970-01-05 05:00 UTC, after the submission"
        ));
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

    /// One admin (dan) gave the author and the reviewer their access.
    #[test]
    fn access_from_one_admin_bars() {
        let given = |hour| {
            vec![change(1, 9, AccessKind::Created, hour), change(2, 9, AccessKind::Created, 99)]
        };
        let fresh = approved(101, given(98));
        assert_eq!(
            text(&fresh),
            "0 of 1 approval. 1 more needed. Can act: cy. Approvals by bo count from 1970-01-06 \
             03:00 UTC, or when another admin confirms the access of bo: dan created the account \
             of bo at 1970-01-05 03:00 UTC, and dan created the account of ada at 1970-01-05 02:00 \
             UTC"
        );
        for which in [0, 1] {
            let mut confirmed = fresh.clone();
            Arc::make_mut(&mut confirmed.access.changes)[which].confirmed = true;
            assert!(evaluate(&confirmed).is_open(), "{which}");
        }
        assert!(evaluate(&approved(101, given(76))).is_open(), "the author's access is old");
        assert!(evaluate(&approved(124, given(98))).is_open(), "the reviewer's access is old");
    }

    #[test]
    fn author_with_access_from_reviewer_bars() {
        for kind in AccessKind::ALL {
            let fresh = approved(500, vec![change(1, 2, kind, 99)]);
            assert!(
                !evaluate(&fresh).is_open(),
                "{kind:?}: access that is new at the submission bars"
            );
            let mut confirmed = fresh.clone();
            Arc::make_mut(&mut confirmed.access.changes)[0].confirmed = true;
            assert!(evaluate(&confirmed).is_open(), "{kind:?}");
            for hour in [76, 101] {
                assert!(evaluate(&approved(500, vec![change(1, 2, kind, hour)])).is_open());
            }
        }
        let chain = vec![change(9, 2, AccessKind::Granted, 98), change(1, 9, AccessKind::Link, 99)];
        assert!(!evaluate(&approved(101, chain)).is_open());
        assert_eq!(
            text(&approved(101, vec![change(1, 2, AccessKind::Link, 99)])),
            "0 of 1 approval. 1 more needed. Can act: cy. Approvals by bo do not count here: bo \
             created a sign-in link for ada at 1970-01-05 03:00 UTC. An author can submit it again \
             after 1970-01-06 03:00 UTC, or another admin can confirm the access of ada"
        );
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
            "never count here: ada gave bo a permission after the review was submitted. An author \
             can submit it again"
        ));
        assert_eq!(evaluate(&facts).can_approve, ["cy"]);
    }

    #[test]
    fn reset_between_author_and_reviewer_is_noted() {
        let facts = approved(200, vec![change(2, 1, AccessKind::Reset, 99)]);
        let noted =
            "1 of 1 approval. bo set a password with a sign-in link of ada at 1970-01-05 03:00 UTC";
        assert_eq!((evaluate(&facts).is_open(), text(&facts).as_str()), (true, noted));
        assert_eq!(
            text(&approved(200, vec![change(1, 2, AccessKind::Reset, 70)])),
            "1 of 1 approval. ada set a password with a sign-in link of bo at 1970-01-03 22:00 UTC"
        );
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
