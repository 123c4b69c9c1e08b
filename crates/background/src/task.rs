//! A task and the results of its runs.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

/// Periodic work.
pub trait Task: Send + 'static {
    /// Unique name in the process: a verb and its object, with hyphens.
    fn name(&self) -> &'static str;

    /// Purpose of the task, in one sentence for operators.
    fn purpose(&self) -> &'static str;

    /// Time from the start of one run to the start of the next.
    fn period(&self) -> Duration;

    /// Whether the delay grows with each failure in a row. A task that renews a lease must not wait
    /// longer than its period.
    fn backs_off(&self) -> bool {
        true
    }

    /// Runs once. Cancel-safe. After a panic, the same task runs again.
    fn run(&mut self) -> impl Future<Output = TaskResult> + Send;
}

pub type TaskResult = Result<Outcome, Failure>;

/// The result of a successful run, in one short sentence for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome(Cow<'static, str>);

impl Outcome {
    /// `Deleted 3 expired sessions.`, or `none` if the run found nothing to do.
    pub fn counted(count: u64, verb: &str, one: &str, many: &str, none: &'static str) -> Self {
        match count {
            0 => Self::from(none),
            1 => Self::from(format!("{verb} 1 {one}.")),
            count => Self::from(format!("{verb} {count} {many}.")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&'static str> for Outcome {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// Why a run failed. Every person with access to the console can read the text. The cause may
/// contain more and is only logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    text: String,
    cause: Option<String>,
}

impl Failure {
    /// `reason` must not contain a secret.
    pub fn new(task: &str, reason: impl Display) -> Self {
        Self { text: format!("{task}: {reason}"), cause: None }
    }

    /// The cause may be an error of the database, which can quote values.
    pub fn logged(task: &str, cause: impl Display) -> Self {
        Self {
            text: format!("{task}: internal error. Read the log of this process for the cause."),
            cause: Some(cause.to_string()),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_lists_its_counts() {
        let text = |count| {
            let outcome =
                Outcome::counted(count, "Deleted", "session", "sessions", "No session expired.");
            outcome.as_str().to_owned()
        };
        assert_eq!(text(0), "No session expired.");
        assert_eq!(text(1), "Deleted 1 session.");
        assert_eq!(text(2), "Deleted 2 sessions.");
    }
}
