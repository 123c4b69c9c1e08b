//! Findings: problems that the reader reports about a file.
//!
//! Users fix findings in an editor. Every finding therefore contains the position, the actual and
//! expected content, and the most similar name if a name is wrong. Findings are values: the command
//! line prints them, the API returns them, and tests compare them.
//!
//! Invariant: a report contains at most [`MAX_FINDINGS`] findings of each
//! severity, so that notes never hide an error.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::MAX_NAME;
use crate::text::{number, shown};

/// Maximum number of findings of each severity in one report.
pub const MAX_FINDINGS: usize = 100;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Blocks the import until it is fixed.
    Error,
    /// Does not block the import, but is probably a mistake.
    Warning,
    /// Does not block the import; for information.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// A position in a file. Line and column start at 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct At {
    /// The line number.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl At {
    /// The first character of a file: the position of findings about the whole file.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// A problem in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The file, as the client named it.
    pub file: String,
    /// The line, starting at 1.
    pub line: u32,
    /// The column in characters, starting at 1.
    pub column: u32,
    /// The problem: the actual and the expected content.
    pub message: String,
    /// How to fix it, or the name that was probably intended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl Finding {
    /// The position in the form that editors understand.
    pub fn position(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }

    /// The problem and the suggestion, for output that shows the position separately.
    pub fn problem_and_suggestion(&self) -> String {
        match &self.suggestion {
            Some(suggestion) => format!("{}. {suggestion}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.position(), self.severity, self.problem_and_suggestion())
    }
}

/// All findings, ordered by file, line and column. As an error, at least one is a
/// [`Severity::Error`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Whether any finding blocks the import.
    pub fn has_errors(&self) -> bool {
        self.of(Severity::Error).next().is_some()
    }

    /// The findings of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.0.iter().filter(move |finding| finding.severity == severity)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}

/// Collects findings up to the limit per severity.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
    /// The number of findings per severity, including those over the limit.
    counts: BTreeMap<Severity, usize>,
}

impl Report {
    pub(super) fn add(&mut self, mut finding: Finding) {
        let count = self.counts.entry(finding.severity).or_default();
        *count += 1;
        if *count > MAX_FINDINGS {
            return;
        }
        finding.file = shown(&finding.file).into_owned();
        if *count == MAX_FINDINGS {
            finding.message = format!(
                "{}. This is finding {MAX_FINDINGS}, and further ones are omitted",
                finding.message
            );
        }
        self.findings.push(finding);
    }

    pub(super) fn extend(&mut self, findings: &Findings) {
        for finding in &findings.0 {
            self.add(finding.clone());
        }
    }

    /// The candidate most similar to `name` for a finding of this severity; see [`nearest`]. `None`
    /// if the finding would exceed the limit anyway. A file full of wrong names thus costs no more
    /// than the names that are shown.
    pub(super) fn nearest<'a>(
        &self,
        severity: Severity,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Option<String> {
        let is_full = self.counts.get(&severity).is_some_and(|count| *count >= MAX_FINDINGS);
        match is_full {
            true => None,
            false => nearest(name, candidates),
        }
    }

    /// Returns `value`, unless there is an error.
    pub(super) fn settle<T>(mut self, value: impl FnOnce(Findings) -> T) -> Result<T, Findings> {
        // A stable sort, so findings at one position keep their order.
        self.findings.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let findings = Findings(self.findings);
        match findings.has_errors() {
            true => Err(findings),
            false => Ok(value(findings)),
        }
    }
}

/// The candidate most similar to `name`, if it is similar enough to be a typo.
///
/// At most a third of its letters may be wrong, missing, added or swapped with a neighbor. The
/// first of equal candidates wins, so ordered candidates always give the same result.
fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    if name.is_empty() || name.len() > MAX_NAME {
        return None;
    }
    const MAX_CANDIDATES: usize = 5000;
    let allowed = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| *candidate != name && candidate.len() <= MAX_NAME)
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}

pub(super) fn suggestion_for(name: String) -> String {
    format!("Did you mean {name:?}?")
}

/// Describes a character that is not allowed in a text, and why.
pub(super) fn unseen(c: char) -> String {
    format!("the character {}, which is invisible or misleading. Remove it", number(c))
}

/// Shortens a text from a file to one line for a message.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}", format!("{}...", &text[..end])),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_returns_first_of_equal_candidates() {
        let names = ["app", "runtime", "time-sync", "time-sinc"];
        assert_eq!(nearest("runtme", names).as_deref(), Some("runtime"));
        assert_eq!(nearest("rutnime", names).as_deref(), Some("runtime"));
        assert_eq!(nearest("time-synk", names).as_deref(), Some("time-sync"));
        assert_eq!(nearest("milestone", names), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn full_report_still_records_errors() {
        let finding = |severity| Finding {
            severity,
            file: "a.yml".into(),
            line: 1,
            column: 1,
            message: "x".into(),
            suggestion: None,
        };
        let mut report = Report::default();
        for _ in 0..2 * MAX_FINDINGS {
            report.add(finding(Severity::Note));
        }
        report.add(finding(Severity::Error));
        let findings = report.settle(|_| ()).unwrap_err();
        assert_eq!(findings.of(Severity::Note).count(), MAX_FINDINGS);
        assert_eq!(findings.of(Severity::Error).count(), 1);
        assert!(findings.to_string().contains("further ones are omitted"));
    }
}
