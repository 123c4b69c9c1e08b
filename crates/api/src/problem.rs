//! Error responses: RFC 9457 problem details with a stable code for API clients and a sentence for
//! people.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;
#[cfg(feature = "schema")]
use crate::problem_codes::CODES;
use crate::problem_codes::TYPE_PREFIX;

/// Problem details of an error (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{title}: {detail}")]
pub struct Problem {
    /// `urn:gantry:problem:` and the code.
    #[serde(rename = "type", default = "blank")]
    pub kind: String,
    /// Stable code for API clients. Later versions can add codes.
    #[cfg_attr(feature = "schema", schemars(with = "ProblemCode"))]
    pub code: String,
    /// Short summary. It is the same for all problems with this code.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// Explanation of this problem and how to solve it.
    pub detail: String,
    /// Individual errors, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Finding>,
    /// Whether a missing permission caused the problem. The server then adds names of admins to
    /// `detail`.
    #[serde(skip)]
    pub needs_admin: bool,
    /// Seconds after which a retry can succeed. Sent as the `Retry-After` header.
    #[serde(skip)]
    pub again_after: Option<u64>,
}

/// One of several errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Location: a field, an edit, or a file with line and column.
    pub at: String,
    /// Explanation and how to solve it.
    pub detail: String,
}

/// Default value of `Retry-After`.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Code of an error without a valid session or token.
pub const SIGNED_OUT: &str = "signed_out";

/// Code of an error because of an invalid token.
pub const TOKEN_REFUSED: &str = "token_refused";

/// Code of an error after which the client does not know whether the change took effect. Clients
/// must not retry such a request blindly.
pub const UNKNOWN_OUTCOME: &str = "unknown_outcome";

/// Code for a proposal that belongs to a deployment, not to a node. The finding `deployment` has
/// the deployment's name.
pub const DEPLOYMENT_PROPOSAL: &str = "on_deployment";

/// Shortens the words of an error message that are longer than `ERROR_WORD`, and the message to
/// `ERROR_TEXT`. A message can quote a value of any length from the request; the advice after it is
/// kept.
pub fn shortened(text: String) -> String {
    if text.len() <= limits::ERROR_WORD {
        return text;
    }
    let mut short = String::new();
    for segment in text.split_inclusive(char::is_whitespace) {
        let word = segment.trim_end();
        if word.chars().count() <= limits::ERROR_WORD {
            short.push_str(segment);
            continue;
        }
        // Keep the closing quote and full stop, but not all of a word that has only punctuation.
        let end = word
            .strip_prefix(word.trim_end_matches(|c: char| c.is_ascii_punctuation()))
            .unwrap_or_default();
        short.extend(word.chars().take(limits::ERROR_WORD).chain(['…']).chain(end.chars().take(3)));
        short.push_str(segment.strip_prefix(word).unwrap_or_default());
    }
    match short.chars().count() > limits::ERROR_TEXT {
        true => short.chars().take(limits::ERROR_TEXT).chain(['…']).collect(),
        false => short,
    }
}

fn blank() -> String {
    "about:blank".into()
}

/// The code of a problem, as a named schema. Clients must accept codes that they don't know, so the
/// list is one of two alternatives.
#[cfg(feature = "schema")]
struct ProblemCode;

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ProblemCode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProblemCode".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let known = generator.subschema_for::<KnownProblemCode>();
        schemars::json_schema!({
            "anyOf": [known, { "type": "string" }],
            "description": "The code of a problem. Later versions can add codes."
        })
    }
}

/// The known codes, as a named schema.
#[cfg(feature = "schema")]
struct KnownProblemCode;

#[cfg(feature = "schema")]
impl schemars::JsonSchema for KnownProblemCode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KnownProblemCode".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let codes: Vec<&str> = CODES.iter().map(|(code, _)| *code).collect();
        let line = |(code, about): &(&str, &str)| format!("* `{code}`: {about}");
        let about: Vec<String> = CODES.iter().map(line).collect();
        let about = format!("A known code of a problem.\n\n{}", about.join("\n"));
        schemars::json_schema!({ "type": "string", "enum": codes, "description": about })
    }
}

impl Problem {
    /// The same problem, with the `type` of its code.
    pub fn typed(&self) -> Self {
        Self { kind: format!("{TYPE_PREFIX}{}", self.code), ..self.clone() }
    }

    pub fn new(status: u16, code: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: blank(),
            code: code.into(),
            title: title.into(),
            status,
            detail: shortened(detail.into()),
            errors: Vec::new(),
            needs_admin: false,
            again_after: None,
        }
    }

    /// Sets `Retry-After`, rounded up to whole seconds and at least one.
    pub fn again_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { again_after: Some(seconds.max(1)), ..self }
    }

    /// Invalid input (400).
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(400, "invalid", "Invalid request", detail)
    }

    /// No valid session (401).
    pub fn signed_out() -> Self {
        Self::new(401, SIGNED_OUT, "Not signed in", "Sign in, then return to this page.")
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "forbidden", "Not allowed", detail)
    }

    /// A permission is missing (403).
    pub fn permission_missing(detail: impl Into<String>) -> Self {
        Self { needs_admin: true, ..Self::forbidden(detail) }
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(404, "not_found", "Not found", detail)
    }

    /// The current state does not allow the request (409).
    pub fn conflict(code: &str, detail: impl Into<String>) -> Self {
        Self::new(409, code, "Conflict", detail)
    }

    /// Temporarily unavailable (503). The client can retry after [`DEFAULT_RETRY_AFTER`].
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(503, "unavailable", "Temporarily unavailable", detail)
            .again_after(DEFAULT_RETRY_AFTER)
    }

    /// The change may or may not have taken effect (503). There is no `Retry-After`: the client
    /// must check first.
    pub fn unknown_outcome(detail: impl Into<String>) -> Self {
        Self::new(503, UNKNOWN_OUTCOME, "Unknown outcome", detail)
    }

    /// An internal error (500). Only the log has the cause, never the response.
    pub fn internal() -> Self {
        Self::new(
            500,
            "internal",
            "Internal error",
            "The server's log has the cause. Try again. If the error persists, report it.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_quoted_value_is_shortened_without_advice() {
        let name = "ü".repeat(5_000);
        let detail = Problem::not_found(format!(
            "There is no deployment {name:?}. The list has all of them."
        ))
        .detail;
        let begin =
            format!("\"{}…\". The list has all of them.", "ü".repeat(limits::ERROR_WORD - 1));
        assert!(detail.ends_with(&begin), "{detail}");
        let words = Problem::invalid("a ".repeat(50_000)).detail;
        assert_eq!((words.chars().count(), words.ends_with('…')), (limits::ERROR_TEXT + 1, true));
        for short in [
            "",
            "As it is.",
            "Two\nlines  and\tmore. ",
            &"x".repeat(limits::ERROR_WORD),
            &"No end. ".repeat(100),
        ] {
            assert_eq!(shortened(short.to_owned()), short);
        }
        assert_eq!(shortened("!".repeat(400)), format!("{}…!!!", "!".repeat(limits::ERROR_WORD)));
    }

    #[test]
    fn retry_after_rounds_up_to_one_second() {
        let waits =
            |millis| Problem::internal().again_after(Duration::from_millis(millis)).again_after;
        assert_eq!([0, 1, 1_000, 1_001, 59_000].map(waits), [1, 1, 1, 2, 59].map(Some));
        assert_eq!(Problem::unavailable("").again_after, Some(DEFAULT_RETRY_AFTER.as_secs()));
        assert_eq!(Problem::signed_out().again_after, None);
    }
}
