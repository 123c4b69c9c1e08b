//! The status of a review, and whose turn it is.
//!
//! The gate names every broken rule. A list shows one status and a badge one number, so both need
//! the rule that must be fixed first. A replaced review, an objection or a lint error comes before
//! missing approvals. Fixing it requires another review, which drops every verdict. Reviewers are
//! therefore asked only when an approval helps.

use serde::{Deserialize, Serialize};

use super::access::approval_counts;
use super::{Facts, GateResult, Rule, VerdictKind, may_review};
use crate::ids::PersonId;

/// The status of a review. If several apply, the first in this list is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewStatus {
    /// It is not the newest version of an open proposal.
    Replaced,
    /// Its base changed after it was submitted.
    Stale,
    /// A reviewer requested changes or rejected it.
    ChangesRequested,
    /// An edit does not take effect now, or lint reports errors.
    Invalid,
    /// Approvals are missing.
    Unreviewed,
    /// Only unresolved threads block it.
    ThreadsOpen,
    /// It can be committed.
    Open,
}

impl ReviewStatus {
    /// The status that follows from the gate.
    pub fn of(gate: &GateResult) -> Self {
        if gate.is_open() {
            return Self::Open;
        }
        // A gate without any rule is blocked and has no approvals.
        gate.broken().map(|rule| Self::of_rule(rule.rule)).min().unwrap_or(Self::Unreviewed)
    }

    fn of_rule(broken: Rule) -> Self {
        match broken {
            Rule::Newest => Self::Replaced,
            Rule::Base | Rule::Epoch | Rule::Policy => Self::Stale,
            Rule::Objections => Self::ChangesRequested,
            Rule::Resolved | Rule::Lint => Self::Invalid,
            Rule::Approvals => Self::Unreviewed,
            Rule::Threads => Self::ThreadsOpen,
        }
    }
}

/// The next action that a person can take on a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewAction {
    /// Give a verdict.
    Review,
    /// Commit it.
    Commit,
}

/// The next action for this person. A person who gave a verdict, of any kind, has had their turn.
pub fn next_action(
    facts: &Facts,
    gate: &GateResult,
    person: PersonId,
    can_commit: bool,
) -> Option<ReviewAction> {
    // An approval that does not count must be given again once it would.
    let has_current_verdict = || {
        let last = facts.last_verdict(person);
        last.is_some_and(|verdict| {
            verdict.kind != VerdictKind::Approve || approval_counts(facts, person)
        })
    };
    match ReviewStatus::of(gate) {
        ReviewStatus::Unreviewed
            if may_review(facts, person).is_ok()
                && facts.can_count(person)
                && !has_current_verdict() =>
        {
            Some(ReviewAction::Review)
        }
        ReviewStatus::Open if can_commit => Some(ReviewAction::Commit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{facts, person};
    use super::super::{Reviewer, Verdict, evaluate};
    use super::*;

    /// A review by person 1, approved by person 2. Person 3 could review it.
    fn approved() -> Facts {
        let reviewer = |n: u128| Reviewer { id: person(n), name: n.to_string(), eligible: true };
        Facts { people: (1..4).map(reviewer).collect(), ..facts() }
    }

    fn review_status(facts: &Facts) -> ReviewStatus {
        ReviewStatus::of(&evaluate(facts))
    }

    #[test]
    fn status_is_first_rule_to_fix() {
        let mut facts = approved();
        assert_eq!(review_status(&facts), ReviewStatus::Open);
        facts.open_threads.push("2".into());
        assert_eq!(
            review_status(&facts),
            ReviewStatus::ThreadsOpen,
            "the review has its approvals, so open threads are the next rule to fix"
        );
        facts.verdicts.clear();
        assert_eq!(review_status(&facts), ReviewStatus::Unreviewed);
        facts.lint.push("the jig is off".into());
        assert_eq!(
            review_status(&facts),
            ReviewStatus::Invalid,
            "an approval does not fix an invalid review"
        );
        facts.verdicts.push(Verdict {
            person: person(3),
            kind: VerdictKind::RequestChanges,
            at: 0,
            void: false,
        });
        assert_eq!(review_status(&facts), ReviewStatus::ChangesRequested);
        facts.moved_documents.push("n1".into());
        assert_eq!(review_status(&facts), ReviewStatus::Stale);
        facts.newest = false;
        assert_eq!(review_status(&facts), ReviewStatus::Replaced);
    }

    #[test]
    fn gate_without_rules_is_blocked() {
        let none =
            GateResult { rules: Vec::new(), approvals: 9, needed: 1, can_approve: Vec::new() };
        assert_eq!(ReviewStatus::of(&none), ReviewStatus::Unreviewed);
    }

    #[test]
    fn turn_belongs_to_people_who_can_act() {
        let next_action_of =
            |facts: &Facts, n: u128| next_action(facts, &evaluate(facts), person(n), true);
        let mut facts = approved();
        assert_eq!(
            (1..4).map(|n| next_action_of(&facts, n)).collect::<Vec<_>>(),
            [Some(ReviewAction::Commit); 3]
        );
        assert_eq!(next_action(&facts, &evaluate(&facts), person(1), false), None);
        facts.approvals_needed = 2;
        let turns = [1, 2, 3, 4].map(|n| next_action_of(&facts, n));
        assert_eq!(
            turns,
            [None, None, Some(ReviewAction::Review), None],
            "only the reviewer without a verdict has the turn"
        );
        facts.lint.push("the jig is off".into());
        assert_eq!(next_action_of(&facts, 3), None, "the authors must act first");
    }
}
