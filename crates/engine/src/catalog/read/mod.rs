//! Reading barclamp files.
//!
//! Reading has two halves, because a barclamp is rarely alone. [`read`] takes one file as far as it can be understood by itself
//! and gives a [`Draft`]. [`link`] takes the drafts of a set, and the catalog that is there already, and resolves what crosses
//! files: jigs (declared in a root file only), `requires` (of roles in files that come later), wanted attributes, versions that
//! children inherit. Only then is a role complete and has its hash: its jig's class is part of its content. [`import`] does both.
//!
//! Two forms are read, and one reader serves both. *Gantry's own* is OpenCrowbar's with further keys, and strict: a name that
//! nothing has is an error. *OpenCrowbar's and Digital Rebar's* is known by keys that only they have, or by its missing `barclamp`
//! section, and one such file makes the set theirs; there a name that nothing has is a warning, as such files live with roles that a server makes up while it runs, and
//! planning refuses to bind what stays unresolved. What those systems say and this one does not use is kept in `metadata`.
//!
//! Invariants:
//! * Nothing panics and nothing grows without bound: each limit below is checked where its cost would arise.
//! * Every finding has a file, a line and a column; errors are gathered, not only the first.
//! * Nothing is half imported: with any error there is no [`Import`].
//! * `requires`, wanted attributes, jig clients and `preceeds` of an import have no forced cycle among themselves and `base`.
//!
//! Sources: the barclamp files of opencrowbar/core and digitalrebar, and what their importers do with them.

mod cycle;
mod finding;
mod form;
mod link;
mod scripts;
mod yaml;

use std::collections::BTreeMap;

pub use finding::{At, Finding, Findings, Severity};
pub use form::Draft;
pub use link::{Import, ImportedBarclamp, link};

use super::Catalog;
use finding::Report;

/// Most bytes of one barclamp file.
pub const MAX_FILE: usize = 1024 * 1024;
/// Most levels of lists and maps in one another. The deepest known file has 11.
pub const MAX_DEPTH: usize = 32;
/// Most bytes that a file stands for when every alias is written out: its text, and 16 for each value.
pub const MAX_EXPANDED: usize = 4 * MAX_FILE;
/// Most findings of one report; more are a different file, not a longer list.
pub const MAX_FINDINGS: usize = 100;
/// Most files of one set.
pub const MAX_FILES: usize = 1000;
/// Most bytes of all scripts of one barclamp.
pub const MAX_SCRIPTS: usize = 8 * 1024 * 1024;
/// Longest time that one run may take: a week, in seconds.
pub const MAX_TIMEOUT: u32 = 7 * 24 * 3600;
/// Longest wait before the first retry: an hour, in seconds.
pub const MAX_BACKOFF: u32 = 3600;
/// Most retries of a step.
pub const MAX_RETRIES: u32 = 100;
/// Most steps that a lane may let run at once.
pub const MAX_LANE: u32 = 100_000;

/// One barclamp file and the files of its folder.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The name of the file in findings; its last part without the ending names a barclamp that does not name itself.
    pub path: &'a str,
    /// The file.
    pub bytes: &'a [u8],
    /// The files of its folder by their path inside it: `scripts/app/10-configure`.
    pub files: &'a BTreeMap<String, Vec<u8>>,
}

/// Reads one file as far as it can be understood by itself.
///
/// # Errors
/// Everything that is wrong with it, with at least one error.
pub fn read(source: &Source<'_>) -> Result<Draft, Findings> {
    form::read(source)
}

fn is_something_else(findings: &Findings) -> bool {
    matches!(&findings.0[..], [finding] if finding.what == form::NO_BARCLAMP)
}

/// Reads a set of files and links them; see [`read`] and [`link`].
///
/// # Errors
/// Everything that is wrong with any of them. Files are linked only when each can be read.
pub fn import(sources: &[Source<'_>], base: &Catalog) -> Result<Import, Findings> {
    let mut report = Report::default();
    let mut drafts = Vec::with_capacity(sources.len());
    let (mut passed_over, mut broken) = (Vec::new(), false);
    for source in sources {
        match read(source) {
            Ok(draft) => drafts.push(draft),
            Err(findings) if is_something_else(&findings) => passed_over.extend(findings.0),
            Err(findings) => {
                broken = true;
                report.extend(&findings);
            }
        }
    }
    // Among barclamps lie parameter files of their jigs; alone such a file is a mistake.
    if drafts.is_empty() {
        report.extend(&Findings(std::mem::take(&mut passed_over)));
    }
    if !broken && !drafts.is_empty() {
        let mut import = link(&drafts, base)?;
        let note = |finding| Finding { severity: Severity::Note, ..finding };
        import.findings.0.extend(passed_over.into_iter().map(note));
        return Ok(import);
    }
    for draft in &drafts {
        report.extend(draft.findings());
    }
    report.settle(|_| ()).and_then(|()| link(&drafts, base))
}
