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
mod placed;
mod scripts;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};

pub use finding::{At, Finding, Findings, Severity};
pub use form::Draft;
pub use link::{Import, ImportedBarclamp, link};
pub use placed::{Placed, placed};

use super::Catalog;
use crate::canonical::Hash;
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
/// Farthest that a priority may be from 0, on either side.
pub const MAX_PRIORITY: i32 = 100;
/// Most steps that a lane may let run at once.
pub const MAX_LANE: u32 = 100_000;

/// One barclamp file and the files of its folder.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The name of the file in findings; its last part without the ending names a barclamp that does not name itself.
    pub path: &'a str,
    /// The file.
    pub bytes: &'a [u8],
    /// Its folder among these files, with a slash at the end: what is in it is at the file's disposal. Empty: all of them.
    pub folder: &'a str,
    /// Files by their path, which files of one set may share: `demo/scripts/app/10-configure`.
    pub files: &'a BTreeMap<String, Vec<u8>>,
}

/// Reads one file as far as it can be understood by itself.
///
/// # Errors
/// Everything that is wrong with it, with at least one error.
pub fn read(source: &Source<'_>) -> Result<Draft, Findings> {
    form::read(source)
}

/// A draft without the bytes that drafts before it hold: files in one folder have its scripts in common.
fn with_new_scripts(mut draft: Draft, kept: &mut BTreeSet<Hash>) -> Draft {
    draft.scripts.retain(|hash, _| kept.insert(*hash));
    draft
}

fn is_something_else(findings: &Findings) -> bool {
    matches!(&findings.0[..], [finding] if finding.what == form::NO_BARCLAMP)
}

/// Reads a set of files and links them; see [`read`] and [`link`].
///
/// # Errors
/// Everything that is wrong with any of them. Files are linked only when each can be read.
pub fn import(sources: &[Source<'_>], base: &Catalog) -> Result<Import, Findings> {
    if let Some(surplus) = sources.get(MAX_FILES) {
        return Err(link::too_many(sources.len(), surplus.path));
    }
    let mut report = Report::default();
    let mut drafts = Vec::with_capacity(sources.len());
    let mut kept = BTreeSet::new();
    let (mut passed_over, mut broken) = (Vec::new(), false);
    for source in sources {
        match read(source).map(|draft| with_new_scripts(draft, &mut kept)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        format!(
            "barclamp: {{name: {name}, version: '1'}}\nroles:\n- {{name: {name}, jig: script, scripts: [common]}}\n"
        )
    }

    #[test]
    fn files_of_one_folder_keep_its_scripts_once() {
        let script = b"#!/bin/sh\n".to_vec();
        let files = BTreeMap::from([
            ("house/scripts/common".to_owned(), script.clone()),
            ("scripts/common".to_owned(), b"#!/bin/another\n".to_vec()),
        ]);
        let texts = [("house/one.yml", text("one")), ("house/two.yml", text("two"))];
        let sources = texts.each_ref().map(|(path, text)| Source {
            path,
            bytes: text.as_bytes(),
            folder: "house/",
            files: &files,
        });
        let mut kept = BTreeSet::new();
        let held = sources
            .each_ref()
            .map(|source| with_new_scripts(read(source).unwrap(), &mut kept).scripts.len());
        assert_eq!(held, [1, 0]);
        let import = import(&sources, &Catalog::default()).unwrap();
        let scripts: Vec<_> = import
            .barclamps
            .iter()
            .flat_map(|b| &b.roles)
            .map(|role| role.scripts[0].hash)
            .collect();
        assert_eq!(scripts, [Hash::of_bytes(&script); 2], "the folder's own");
        assert_eq!(import.objects.iter().filter(|object| object.body == script).count(), 1);
    }
}
