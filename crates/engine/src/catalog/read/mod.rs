//! Reads barclamp files.
//!
//! A barclamp usually needs other files, so reading has two stages. [`read`] parses one file and
//! returns a [`Draft`]. [`link`] resolves references between the drafts of a set and the existing
//! catalog. These are jigs (declared in a root file only), `requires`, wanted attributes, and
//! versions that children inherit. Only a linked role is complete and has its hash, because its
//! content includes the class of its jig. [`import`] does both.
//!
//! One reader handles two formats. Gantry's own format is OpenCrowbar's with further keys. It is
//! strict: an undefined name is an error. The OpenCrowbar and Digital Rebar format is detected by
//! keys that only it has, or by a missing `barclamp` section. One such file decides the format of
//! its set. There, an undefined name is a warning, because those servers create some roles at run
//! time. Planning refuses to bind a role with an unresolved name. Keys of those systems that Gantry
//! does not use are stored in `metadata`.
//!
//! Invariants:
//!
//! * No input causes a panic or unbounded growth. Each limit is checked where the cost would arise.
//! * Every finding has file, line and column. The reader reports all errors and not only the first.
//! * An import is all or nothing: with any error there is no [`Import`].
//! * `requires`, wanted attributes, jig clients and `preceeds` of an import have no forced cycle,
//!   including `base`.
//!
//! Sources: the barclamp files of opencrowbar/core and digitalrebar, and the behavior of their
//! importers.

mod cycle;
mod finding;
mod form;
mod link;
mod positions;
mod scripts;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

pub use finding::{At, Finding, Findings, MAX_FINDINGS, Severity};
pub use form::Draft;
pub use link::{Import, ImportedBarclamp, link};
pub use positions::{PositionedYaml, positioned_yaml};

use super::Catalog;
use crate::canonical::Hash;
use finding::Report;

/// Maximum size of one barclamp file, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// Maximum nesting depth of lists and maps. The deepest known file has 11.
pub const MAX_DEPTH: usize = 32;
/// Maximum size of a file with every alias expanded, in bytes: its text, and 16 for each value.
pub const MAX_EXPANDED_BYTES: usize = 4 * MAX_FILE_BYTES;
/// Maximum number of files in one set.
pub const MAX_FILES: usize = 1000;
/// Maximum total size of the scripts of one barclamp, in bytes.
pub const MAX_SCRIPTS_BYTES: usize = 8 * 1024 * 1024;
/// Maximum duration of one run, in seconds: one week.
pub const MAX_TIMEOUT: u32 = 7 * 24 * 3600;
/// Maximum delay before the first retry, in seconds: one hour.
pub const MAX_BACKOFF: u32 = 3600;
/// Maximum number of retries of a step.
pub const MAX_RETRIES: u32 = 100;
/// The intervals of a check, in seconds.
pub const CHECK_INTERVALS: RangeInclusive<u32> = 5..=24 * 3600;
/// The longest timeout of a check, in seconds.
pub const MAX_CHECK_TIMEOUT: u32 = 300;
/// Maximum number of failures of a check before it has an effect.
pub const MAX_CHECK_FAILURES: u32 = 100;
/// Maximum absolute value of a priority.
pub const MAX_PRIORITY: i32 = 100;
/// Maximum number of running steps that a concurrency group can allow.
pub const MAX_CONCURRENCY: u32 = 100_000;

/// One barclamp file and the files of its folder.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's name in findings. Its stem names a barclamp without a name of its own.
    pub path: &'a str,
    pub bytes: &'a [u8],
    /// The file's folder in `files`, with a trailing slash. The barclamp may use the files in it.
    /// Empty: all files.
    pub folder: &'a str,
    /// Files by path, shared by the files of one set: `demo/scripts/app/10-configure`.
    pub files: &'a BTreeMap<String, Vec<u8>>,
}

/// Parses one file, without references to other files.
///
/// # Errors
/// All findings, with at least one error.
pub fn read(source: &Source<'_>) -> Result<Draft, Findings> {
    form::read(source)
}

/// Removes scripts that earlier drafts contain, because files of one folder share its scripts.
fn without_repeated_scripts(mut draft: Draft, seen: &mut BTreeSet<Hash>) -> Draft {
    draft.scripts.retain(|hash, _| seen.insert(*hash));
    draft
}

fn is_not_barclamp(findings: &Findings) -> bool {
    matches!(&findings.0[..], [finding] if finding.message == form::NO_BARCLAMP)
}

/// Reads a set of files and links them; see [`read`] and [`link`].
///
/// # Errors
/// All findings of all files. Files are linked only if each can be read.
pub fn import(sources: &[Source<'_>], base: &Catalog) -> Result<Import, Findings> {
    if let Some(surplus) = sources.get(MAX_FILES) {
        return Err(link::too_many(sources.len(), surplus.path));
    }
    let mut report = Report::default();
    let mut drafts = Vec::with_capacity(sources.len());
    let mut seen = BTreeSet::new();
    let (mut passed_over, mut broken) = (Vec::new(), false);
    for source in sources {
        match read(source).map(|draft| without_repeated_scripts(draft, &mut seen)) {
            Ok(draft) => drafts.push(draft),
            Err(findings) if is_not_barclamp(&findings) => passed_over.extend(findings.0),
            Err(findings) => {
                broken = true;
                report.extend(&findings);
            }
        }
    }
    // Folders of barclamps also contain parameter files of their jigs. A set of only such files is
    // a mistake.
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
    fn files_of_one_folder_share_scripts() {
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
        let mut seen = BTreeSet::new();
        let counts = sources
            .each_ref()
            .map(|source| without_repeated_scripts(read(source).unwrap(), &mut seen).scripts.len());
        assert_eq!(counts, [1, 0]);
        let import = import(&sources, &Catalog::default()).unwrap();
        let scripts: Vec<_> = import
            .barclamps
            .iter()
            .flat_map(|b| &b.roles)
            .map(|role| role.scripts[0].hash)
            .collect();
        assert_eq!(
            scripts,
            [Hash::of_bytes(&script); 2],
            "each role uses the script of its own folder"
        );
        assert_eq!(import.objects.iter().filter(|object| object.body == script).count(), 1);
    }
}
