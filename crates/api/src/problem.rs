//! How Gantry says no: RFC 9457 problem details, with a word for programs and a sentence for people that says what to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Something that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{title}: {detail}")]
pub struct Problem {
    /// `about:blank` or the address of a page about this kind of problem.
    #[serde(rename = "type", default = "blank")]
    pub kind: String,
    /// A word for programs; stable.
    pub code: String,
    /// The same for every problem of this code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, to what, and what to do now.
    pub detail: String,
    /// Single findings, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Finding>,
    /// Whether a permission is missing, which admins give: who answers names some of them. No part of the answer itself.
    #[serde(skip)]
    pub admins_give: bool,
    /// After how many seconds it may be tried again, where that is known: a header of the answer says so (`Retry-After`), and no part of it.
    #[serde(skip)]
    pub again_after: Option<u64>,
}

/// One of several findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Where: a field, a file with line and column, an edit.
    pub at: String,
    /// What is wrong and what to do.
    pub detail: String,
}

/// After how long somebody comes back who was told that it does not go at the moment.
pub const MOMENT: Duration = Duration::from_secs(5);

/// The code of a refusal because nobody is signed in (any more).
pub const SIGNED_OUT: &str = "signed_out";

/// The code of a refusal because a token does not let in (any more).
pub const TOKEN_REFUSED: &str = "token_refused";

/// The word for *not known whether it was done*: what carries it is never sent again without a look.
pub const UNKNOWN_OUTCOME: &str = "unknown_outcome";

/// The word for a proposal that is on a deployment where one on a node is looked at. What was found under `deployment` is its name.
pub const ON_DEPLOYMENT: &str = "on_deployment";

/// A text of a refusal as it is told. It may quote what was sent, which may be of any length and comes back by its beginning; what it says behind
/// that, such as what to do, stays.
pub fn told(text: String) -> String {
    if text.len() <= limits::REFUSAL_WORD {
        return text;
    }
    let mut short = String::new();
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if word.chars().count() <= limits::REFUSAL_WORD {
            short.push_str(piece);
            continue;
        }
        // The end of a quotation and of a sentence, not the middle of a word that is all points.
        let end = word
            .strip_prefix(word.trim_end_matches(|c: char| c.is_ascii_punctuation()))
            .unwrap_or_default();
        short.extend(
            word.chars().take(limits::REFUSAL_WORD).chain(['…']).chain(end.chars().take(3)),
        );
        short.push_str(piece.strip_prefix(word).unwrap_or_default());
    }
    match short.chars().count() > limits::REFUSAL {
        true => short.chars().take(limits::REFUSAL).chain(['…']).collect(),
        false => short,
    }
}

/// Words that begin sentences. A text that begins with another word may begin with a name, and `web` and `Web` are two deployments.
const BEGINNINGS: &str = "a an binding cannot comment deployment invalid it jig no nobody node nothing object only passkey passkeys policy \
    proposal run say step submission target the there these this version what whoever you your";

/// With a capital letter at its beginning, as sentences have it.
fn capital(mut text: String) -> String {
    if text
        .split_once(' ')
        .is_some_and(|(word, _)| BEGINNINGS.split(' ').any(|known| known == word))
        && let Some(first) = text.get_mut(..1)
    {
        first.make_ascii_uppercase();
    }
    text
}

fn blank() -> String {
    "about:blank".into()
}

impl Problem {
    /// A problem of a kind.
    pub fn new(status: u16, code: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: blank(),
            code: code.into(),
            title: title.into(),
            status,
            detail: capital(told(detail.into())),
            errors: Vec::new(),
            admins_give: false,
            again_after: None,
        }
    }

    /// The same, to be tried again when so much time is over; whole seconds, and at least one.
    pub fn again_after(self, wait: Duration) -> Self {
        let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { again_after: Some(whole.max(1)), ..self }
    }

    /// Input that can't be taken (400).
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(400, "invalid", "This can't be taken", detail)
    }

    /// Nobody is signed in (401).
    pub fn signed_out() -> Self {
        Self::new(
            401,
            SIGNED_OUT,
            "You are not signed in",
            "Open a sign-in link, then come back to this page.",
        )
    }

    /// The account may not do this (403).
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "forbidden", "You may not do this", detail)
    }

    /// The account lacks a permission (403).
    pub fn permission_missing(detail: impl Into<String>) -> Self {
        Self { admins_give: true, ..Self::forbidden(detail) }
    }

    /// There is no such thing (404).
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "not_found", "Not found", detail)
    }

    /// The state of things does not allow it (409).
    pub fn conflict(code: &str, detail: impl Into<String>) -> Self {
        Self::new(409, code, "Not possible now", detail)
    }

    /// It could not be done at the moment (503); trying again in a moment may help.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(503, "unavailable", "Not available at the moment", detail).again_after(MOMENT)
    }

    /// What was asked for may have been done or not (503). It says nothing of trying again: whoever does has to look first.
    pub fn unknown_outcome(detail: impl Into<String>) -> Self {
        Self::new(503, UNKNOWN_OUTCOME, "Not known whether it was done", detail)
    }

    /// Something failed that is nobody's input (500). The log has the cause; the answer never does.
    pub fn internal() -> Self {
        Self::new(
            500,
            "internal",
            "Something went wrong here",
            "The server's log has the cause. Try again, and report it if it stays.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_comes_back_by_its_beginning_and_what_to_do_stays() {
        let name = "ü".repeat(5_000);
        let detail = Problem::not_found(format!(
            "There is no deployment {name:?}. The list has all of them."
        ))
        .detail;
        let begin =
            format!("\"{}…\". The list has all of them.", "ü".repeat(limits::REFUSAL_WORD - 1));
        assert!(detail.ends_with(&begin), "{detail}");
        let words = Problem::invalid("a ".repeat(50_000)).detail;
        assert_eq!((words.chars().count(), words.ends_with('…')), (limits::REFUSAL + 1, true));
        for short in [
            "",
            "As it is.",
            "Two\nlines  and\tmore. ",
            &"x".repeat(limits::REFUSAL_WORD),
            &"No end. ".repeat(100),
        ] {
            assert_eq!(told(short.to_owned()), short);
        }
        assert_eq!(told("!".repeat(400)), format!("{}…!!!", "!".repeat(limits::REFUSAL_WORD)));
    }

    #[test]
    fn detail_begins_with_a_capital_letter() {
        let detail = |text: &str| Problem::invalid(text).detail;
        assert_eq!(detail("there is no role x"), "There is no role x");
        for text in [
            "",
            "a",
            "macs: give one.",
            "n1 is gone.",
            "n1.example.com is gone.",
            "\"x\" is gone.",
            "Über x",
        ] {
            assert_eq!(detail(text), text);
        }
    }

    #[test]
    fn whoever_has_to_wait_is_told_whole_seconds_and_never_none() {
        let waits =
            |millis| Problem::internal().again_after(Duration::from_millis(millis)).again_after;
        assert_eq!([0, 1, 1_000, 1_001, 59_000].map(waits), [1, 1, 1, 2, 59].map(Some));
        assert_eq!(Problem::unavailable("").again_after, Some(MOMENT.as_secs()));
        assert_eq!(Problem::signed_out().again_after, None);
    }
}
