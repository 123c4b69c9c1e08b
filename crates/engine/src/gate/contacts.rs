//! Names of the people who can fix each broken rule.
//!
//! A reason without a name makes users search. The names are for messages only; permissions are
//! checked on each action. The lists are short because people read them.

use serde::{Deserialize, Serialize};

use super::{Facts, Reviewer, VerdictError, VerdictKind, may_review};
use crate::ids::PersonId;

/// Maximum number of names in one message. Further names are counted.
pub const NAMED: usize = 5;

/// Names of the people who can take actions other than a verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActionContacts {
    /// People who may edit and submit.
    pub operators: Vec<String>,
    /// People who may commit an approved review.
    pub committers: Vec<String>,
    /// People who may grant permissions.
    pub administrators: Vec<String>,
}

impl ActionContacts {
    /// Names the people who can change the proposal and submit it.
    pub fn to_submit(&self) -> String {
        match self.operators.as_slice() {
            [] => format!("No operator is left. {}", self.permission_hint("operator")),
            operators => format!("Can act: {}", named(operators)),
        }
    }

    pub fn commit_hint(&self) -> String {
        match self.committers.as_slice() {
            [] => self.permission_hint("operator"),
            committers => format!("Can act: {}", named(committers)),
        }
    }

    /// Names the people who can grant this permission.
    pub fn permission_hint(&self, permission: &str) -> String {
        match self.administrators.as_slice() {
            [] => format!("No admin is left to give the {permission} permission"),
            administrators => {
                format!("Can give the {permission} permission: {}", named(administrators))
            }
        }
    }
}

/// Joins names: `a`, `a and b`, `a, b, c, d, e and 3 more`.
pub fn named<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    match (shown.as_slice(), names.len() - shown.len()) {
        ([all @ .., last], 0) if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        (shown, 0) => shown.join(""),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// People whose last verdict is an objection that does not count. They may no longer review, or
/// their account was disabled after it.
pub fn ignored_objectors(input: &Facts) -> Vec<&str> {
    let ignored = |reviewer: &&Reviewer| {
        let last = input.verdicts.iter().rev().find(|verdict| verdict.person == reviewer.id);
        last.is_some_and(|verdict| {
            verdict.kind != VerdictKind::Approve && (verdict.void || !reviewer.eligible)
        })
    };
    let objectors = input.people.iter().filter(|p| !input.authors.contains(&p.id)).filter(ignored);
    objectors.map(|p| p.name.as_str()).collect()
}

/// Checks whether a person may give a verdict.
///
/// # Errors
/// The reason, with the names of people who can help.
pub fn check_can_review_or_explain(input: &Facts, person: PersonId) -> Result<(), String> {
    may_review(input, person).map_err(|no| match no {
        // No one can review an old version, so the message gives no names.
        VerdictError::NotNewest => {
            input.closed.map_or_else(|| no.to_string(), |closed| closed.to_string())
        }
        VerdictError::Author | VerdictError::NotAReviewer => {
            format!("{no}. {}", others(input, person))
        }
    })
}

fn others(input: &Facts, person: PersonId) -> String {
    let able = input
        .people
        .iter()
        .filter(|p| p.eligible && p.id != person && !input.authors.contains(&p.id));
    let able: Vec<&str> = able.map(|p| p.name.as_str()).collect();
    match able.as_slice() {
        [] => format!("No other person may review. {}", input.helpers.permission_hint("reviewer")),
        able => format!("Can act: {}", named(able)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_list_is_bounded() {
        let many: Vec<String> = (1..=1_000).map(|n| format!("p{n}")).collect();
        assert_eq!(named(&many[..0]), "");
        assert_eq!(named(&many[..1]), "p1");
        assert_eq!(named(&many[..2]), "p1 and p2");
        assert_eq!(named(&many[..5]), "p1, p2, p3, p4 and p5");
        assert_eq!(named(&many), "p1, p2, p3, p4, p5 and 995 more");
    }
}
