//! Exit codes: one for each kind of result, so that scripts need not parse texts.
//!
//! Invariant: 0 means that the requested state holds, even if there was nothing to change. If the
//! command matches nothing to act on, it exits with 4, never 0. An empty list is a valid result.
//!
//! Only this module defines the codes. Commands without a server also use [`EXIT_NEGATIVE`] and
//! [`EXIT_USAGE`].

use std::fmt;

use api::Problem;
use api::names::INVALID_QUERY_PREFIX;
use engine::ids::ReviewId;

/// The result is negative, or the command failed.
pub const EXIT_NEGATIVE: u8 = 1;
/// The command line or an input file is invalid, or a file is unreadable.
pub const EXIT_USAGE: u8 = 2;
/// The request conflicts with the state of the server.
const REJECTED: u8 = 5;

pub(crate) const EXIT_CODES: &str = "\
Commands that use a server exit with one of these codes:

    0  success, or the condition is met
    1  condition not met: differences, actual state not as desired, failed run or check
    2  invalid command line or file; nothing was changed
    3  the server is unreachable or can't answer
    4  nothing matched: unknown object, or nothing to change or to wait for; a list
       without items exits with 0
    5  the server rejected the request; the error contains the reason and the solution
    6  not signed in, or permission missing
  124  the time limit of --timeout expired
  130  interrupted (SIGINT)

`gantry diff` has the codes of diff(1): 0 for no difference, 1 for differences, 2 or more for
errors. If the reader of the output closes the pipe, a command exits with 0.";

/// Reasons why a command fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The result is negative.
    Negative(String),
    /// Invalid command line or file.
    Usage(String),
    /// The server does not answer, or its answer is invalid.
    Unreachable(String),
    /// Nothing matches.
    Nothing(String),
    /// Another change prevents this one. Only the client noticed.
    Conflict(String),
    /// The server rejected the request.
    Refused(Box<Problem>),
    /// The server rejected query parameters, which come from the command line.
    InvalidQuery(Box<Problem>),
    /// The credentials are missing or invalid.
    NotSignedIn(String),
    /// The time limit is exceeded.
    TimedOut(String),
    /// The reader of standard output closed the pipe.
    Unread,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The server's answer has an unexpected form. `expectation` describes it, for example
    /// "expected a blueprint".
    pub(crate) fn invalid_response(expectation: &str) -> Self {
        Self::Unreachable(format!(
            "The server's answer is invalid: {expectation}. Check that gantry and \
            the server have the same version."
        ))
    }

    /// Whether a retry can succeed without human action: the server is unreachable or overloaded.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(problem) => matches!(problem.status, 429 | 502..=504),
            _ => false,
        }
    }

    /// Turns a 400 response to a query into a usage error. All query parameters come from the
    /// command line.
    pub(crate) fn into_usage_error(self) -> Self {
        match self {
            Self::Refused(mut problem) if problem.status == 400 => {
                if let Some(words) = problem.detail.strip_prefix(INVALID_QUERY_PREFIX) {
                    problem.detail = words.to_owned();
                }
                Self::InvalidQuery(problem)
            }
            other => other,
        }
    }

    /// Adds the command that confirms a commit with a name. JSON output contains the server's own
    /// text.
    pub(crate) fn with_commit_command(self, review: ReviewId) -> Self {
        match self {
            Self::Refused(mut problem) if problem.code == "confirmation_required" => {
                let name_error = problem.errors.iter().find(|finding| finding.at == "name");
                let name =
                    name_error.and_then(|it| it.detail.strip_prefix("Type ")?.strip_suffix('.'));
                problem.detail = format!(
                    "{} Run: gantry review commit {review} --name {}",
                    problem.detail,
                    name.unwrap_or("NAME")
                );
                Self::Refused(problem)
            }
            other => other,
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Unread => 0,
            Self::Negative(_) => EXIT_NEGATIVE,
            Self::Usage(_) | Self::InvalidQuery(_) => EXIT_USAGE,
            Self::Unreachable(_) => 3,
            Self::Nothing(_) => 4,
            Self::Conflict(_) => REJECTED,
            Self::Refused(problem) => refused(problem),
            Self::NotSignedIn(_) => 6,
            Self::TimedOut(_) => 124,
        }
    }

    /// The error as JSON. A rejection has the server's problem details.
    pub(crate) fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Refused(problem) | Self::InvalidQuery(problem) => {
                serde_json::to_value(problem).unwrap_or_default()
            }
            other => serde_json::json!({"exit": other.code(), "detail": other.to_string()}),
        }
    }
}

/// Distinguishes a missing permission, which an admin can grant, from a rule that forbids the
/// request.
fn refused(problem: &Problem) -> u8 {
    match (problem.status, problem.code.as_str()) {
        (401, _) | (403, "forbidden" | "not_a_reviewer") => 6,
        (404, _) => 4,
        (500.., _) => 3,
        _ => REJECTED,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread => Ok(()),
            Self::Negative(text)
            | Self::Usage(text)
            | Self::Unreachable(text)
            | Self::Nothing(text)
            | Self::Conflict(text)
            | Self::NotSignedIn(text)
            | Self::TimedOut(text) => f.write_str(text),
            Self::Refused(problem) | Self::InvalidQuery(problem) => {
                write!(f, "{}: {}", problem.title, problem.detail)?;
                // Skip findings that only repeat the detail.
                let mut details =
                    problem.errors.iter().filter(|found| found.detail != problem.detail);
                details.try_for_each(|found| match found.at.as_str() {
                    "" => write!(f, "\n  {}", found.detail),
                    at => write!(f, "\n  {at}: {}", found.detail),
                })?;
                f.write_str(hint(problem))
            }
        }
    }
}

fn hint(problem: &Problem) -> &'static str {
    match problem.code.as_str() {
        "signed_out" => {
            "\nThe session has ended. Sign in again with a link from an admin (`gantry person link \
             NAME`): gantry context sign-in CONTEXT --link-file FILE. Or use your password: gantry \
             context sign-in CONTEXT --user NAME"
        }
        "token_refused" => {
            "\nUse a valid token: set GANTRY_TOKEN, or run gantry context sign-in CONTEXT \
             --token-file FILE"
        }
        _ => "",
    }
}

impl From<std::io::Error> for Failure {
    /// Only writing to standard output converts errors this way; errors of files have their own
    /// text.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Unread,
            _ => Self::Usage(format!("Cannot write to standard output: {error}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(status: u16, code: &str) -> u8 {
        Failure::Refused(Box::new(Problem::new(status, code, "No", "Because."))).code()
    }

    #[test]
    fn every_failure_has_its_exit_code() {
        assert_eq!(code(403, "author"), 5, "a rule of the gate exits with 5");
        assert_eq!(code(403, "forbidden"), 6, "a missing permission exits with 6");
        assert_eq!(
            code(403, "not_a_reviewer"),
            6,
            "a missing reviewer permission exits with 6, too"
        );
        let into_usage_error = |status| {
            Failure::Refused(Box::new(Problem::new(status, "x", "No", "Because.")))
                .into_usage_error()
        };
        assert_eq!(
            (into_usage_error(400).code(), into_usage_error(400).to_string().as_str()),
            (2, "No: Because.")
        );
        let detail = format!("{INVALID_QUERY_PREFIX}sort: unknown sort order \"nope\".");
        let query =
            Failure::Refused(Box::new(Problem::new(400, "x", "No", detail))).into_usage_error();
        assert_eq!(
            query.to_string(),
            "No: sort: unknown sort order \"nope\".",
            "the advice about the URL is left out"
        );
        assert_eq!(
            into_usage_error(400).as_json()["status"],
            400,
            "JSON has the status of the server"
        );
        assert_eq!(
            (into_usage_error(409).code(), into_usage_error(404).code()),
            (5, 4),
            "other statuses are not usage errors"
        );
        assert_eq!(
            (code(401, "signed_out"), code(404, "not_found"), code(409, "stale"), code(503, "x")),
            (6, 4, 5, 3)
        );
        let text = |text: &str| text.to_owned();
        let ends = [
            (Failure::Unread, 0),
            (Failure::Negative(text("")), 1),
            (Failure::Usage(text("")), 2),
            (Failure::Unreachable(text("")), 3),
            (Failure::Nothing(text("")), 4),
            (Failure::Conflict(text("")), 5),
            (Failure::NotSignedIn(text("")), 6),
            (Failure::TimedOut(text("")), 124),
        ];
        for (failure, number) in ends {
            assert_eq!(failure.code(), number, "{failure:?}");
            assert!(
                EXIT_CODES.contains(&format!("{number}  ")),
                "the help does not document exit code {number}"
            );
        }
    }

    #[test]
    fn book_lists_the_same_exit_codes() {
        let numbers = |lines: Vec<&str>| -> Vec<u8> {
            lines.iter().filter_map(|line| line.parse().ok()).collect()
        };
        let text =
            numbers(EXIT_CODES.lines().filter_map(|line| line.split_whitespace().next()).collect());
        let chapters = [
            include_str!("../../../docs/cli.md"),
            include_str!("../../../docs/quick-reference.md"),
        ];
        for chapter in chapters {
            let rows =
                chapter.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
            assert_eq!(numbers(rows.collect()), text);
        }
    }

    #[test]
    fn missing_commit_name_error_shows_the_command() {
        let refused =
            |code: &str| Failure::Refused(Box::new(Problem::new(422, code, "No", "Type it.")));
        let text = refused("confirmation_required").with_commit_command(ReviewId(8)).to_string();
        assert_eq!(text, "No: Type it. Run: gantry review commit 8 --name NAME");
        assert_eq!(refused("stale").with_commit_command(ReviewId(8)).to_string(), "No: Type it.");
    }

    #[test]
    fn temporary_failures_are_recognized() {
        let refused =
            |status| Failure::Refused(Box::new(Problem::new(status, "x", "No", "Because.")));
        assert!([429, 502, 503, 504].iter().all(|status| refused(*status).passes()));
        assert!(Failure::Unreachable(String::new()).passes());
        assert!(![401, 404, 409, 500].iter().any(|status| refused(*status).passes()));
        assert!(!Failure::Negative(String::new()).passes());
    }

    #[test]
    fn rejection_text_has_findings_and_advice() {
        let mut problem = Problem::new(422, "wrong", "Invalid request", "Two edits are wrong.");
        problem.errors =
            vec![api::problem::Finding { at: "edits/1".into(), detail: "no such role".into() }];
        let text = Failure::Refused(Box::new(problem)).to_string();
        assert_eq!(text, "Invalid request: Two edits are wrong.\n  edits/1: no such role");
        let over = Failure::Refused(Box::new(Problem::signed_out())).to_string();
        assert!(over.contains("gantry context sign-in"), "{over}");
    }
}
