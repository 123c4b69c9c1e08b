//! Importing barclamps. An import only adds to the catalog; it does not change the desired state.
//! Using an imported version is an edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::catalog::ImportedVersion;
use api::live::{Live, Topic};
use api::{Problem, problem};
use engine::Hash;
use engine::canonical::{Object, ObjectKind};
use engine::catalog::read::{Findings, Import, ImportedBarclamp, Severity, Source, import};
use engine::catalog::version::{self, before, compare, is_equal_except_jigs, newest};
use engine::catalog::{Barclamp, Catalog, CatalogError};
use serde::Serialize;
use serde_json::json;
use store::catalog::ImportOutcome;

use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{capitalize, sentence, some_of};
use crate::{Control, done};

/// Maximum total size of the files of one import, in bytes. It also limits the size of a request.
pub const MAX_IMPORT: usize = 16 * 1024 * 1024;

/// How often files are read again because the catalog they build on has changed.
const MAX_ATTEMPTS: usize = 3;

/// Files by path.
type Files = BTreeMap<String, Vec<u8>>;

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Imported {
    /// All barclamp versions of the import.
    pub barclamps: Vec<ImportedVersion>,
    /// Warnings and notes, each with file, line and column.
    pub findings: Vec<String>,
    /// Items that the previous version has and the new version lacks, one line each. Running
    /// noderoles keep them until an edit uses the new version.
    pub removed_parts: Vec<String>,
}

/// Stored lines per kind and import.
const MAX_STORED_LINES: usize = 500;

impl Imported {
    /// The record of the import that is stored.
    fn record(&self) -> api::catalog::Findings {
        let first =
            |lines: &[String]| lines.iter().take(MAX_STORED_LINES).cloned().collect::<Vec<_>>();
        let beyond = |lines: &[String]| lines.len().saturating_sub(MAX_STORED_LINES);
        api::catalog::Findings {
            barclamps: self.barclamps.clone(),
            removed_parts: first(&self.removed_parts),
            findings: first(&self.findings),
            omitted: beyond(&self.removed_parts) + beyond(&self.findings),
        }
    }

    /// The result as text, one line per version and finding.
    pub fn lines(&self) -> Vec<String> {
        let versions = self.barclamps.iter().map(|ImportedVersion { name, version, hash, new }| {
            let how = if *new { "is new" } else { "exists already, with the same content" };
            format!("Barclamp {name} {version} ({}) {how}.", hash.short())
        });
        versions
            .chain(self.removed_parts.iter().cloned())
            .chain(self.findings.iter().cloned())
            .collect()
    }
}

/// Parses the barclamps in these files, which are keyed by path. A barclamp can use all files below
/// the folder of its definition.
///
/// # Errors
/// All findings, with file, line and column.
pub fn read_files(files: &BTreeMap<String, Vec<u8>>, base: &Catalog) -> Result<Import, Problem> {
    read_files_with_findings(files, base)?.map_err(|findings| refused(&findings))
}

/// Like [`read_files`], but returns the findings inside the files as structured data.
///
/// # Errors
/// If there is nothing to read, or too much.
pub fn read_files_with_findings<'f>(
    files: &'f BTreeMap<String, Vec<u8>>,
    base: &Catalog,
) -> Result<Result<Import, Findings>, Problem> {
    let size: usize = files.values().map(Vec::len).sum();
    if size > MAX_IMPORT {
        return Err(Problem::new(
            413,
            "too_large",
            "Import too large",
            format!(
                "The files have {size} bytes in total, but an import can have at most \
                 {MAX_IMPORT}. Import them in several parts."
            ),
        ));
    }
    let yaml: Vec<(&String, &Vec<u8>)> =
        files.iter().filter(|(path, _)| is_barclamp(path)).collect();
    if yaml.is_empty() {
        return Err(Problem::invalid(
            "The import has no barclamp file. A barclamp file ends in .yml or .yaml and is not in \
             a folder of scripts.",
        ));
    }
    let source = |(path, bytes): &(&'f String, &'f Vec<u8>)| Source {
        path,
        bytes,
        folder: folder_of(path),
        files,
    };
    let sources: Vec<Source<'_>> = yaml.iter().map(source).collect();
    Ok(import(&sources, base))
}

fn is_barclamp(path: &str) -> bool {
    let yaml = path.ends_with(".yml") || path.ends_with(".yaml");
    yaml && !path.split('/').any(|part| part == "scripts")
}

/// The folder of a file, with a trailing slash; empty at the top level.
fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..=end])
}

/// Turns findings into a problem, errors first. `at` has the position of a finding, so its `detail`
/// does not repeat it.
fn refused(findings: &Findings) -> Problem {
    let ordered =
        [Severity::Error, Severity::Warning, Severity::Note].map(|severity| findings.of(severity));
    let errors = ordered.into_iter().flatten().map(|finding| problem::Finding {
        at: finding.position(),
        detail: sentence(&format!("{}: {}", finding.severity, finding.problem_and_suggestion())),
    });
    let first = findings
        .of(Severity::Error)
        .next()
        .map(engine::catalog::read::Finding::problem_and_suggestion)
        .unwrap_or_default();
    let more = match findings.of(Severity::Error).count() {
        0 | 1 => String::new(),
        n => format!(" This is the first of {n} errors."),
    };
    let detail = format!("{}{more}", sentence(&capitalize(&first)));
    let mut problem = Problem::new(422, "barclamp", "The barclamps cannot be imported", detail);
    problem.errors = errors.collect();
    problem
}

/// One line for each item that the newest version in `base` has and the imported version lacks.
///
/// # Errors
/// If a role in the catalog is missing.
pub fn removed_parts(base: &Catalog, read: &Import) -> Result<Vec<String>, Problem> {
    let newest = newest(base);
    removed_from(base, read, |barclamp| newest.get(&barclamp.name).map(|(_, old)| &***old))
}

/// One line for each item that the previous version has and the imported version lacks.
fn removed_from<'c>(
    base: &Catalog,
    read: &Import,
    before: impl Fn(&Barclamp) -> Option<&'c Barclamp>,
) -> Result<Vec<String>, Problem> {
    let merged = with_objects(base, read)?;
    let mut lines = Vec::new();
    for new in &read.barclamps {
        let Some(old) = before(&new.barclamp) else { continue };
        let found = compare(old, &new.barclamp, &merged).map_err(incomplete)?;
        let (name, version) = (&new.barclamp.name, &new.barclamp.version);
        lines.extend(
            found
                .removed_parts()
                .into_iter()
                .map(|line| format!("Barclamp {name} {version} no longer has: {line}")),
        );
    }
    Ok(lines)
}

/// The catalog with the imported objects added.
fn with_objects(catalog: &Catalog, read: &Import) -> Result<Catalog, Problem> {
    let mut merged = catalog.clone();
    for object in &read.objects {
        merged.add(object).map_err(incomplete)?;
    }
    Ok(merged)
}

fn incomplete(error: CatalogError) -> Problem {
    tracing::error!(%error, "an imported barclamp is incomplete");
    Problem::internal()
}

/// The catalog that an import builds on: the highest version of each barclamp, regardless of the
/// time of its import.
fn base(all: &Catalog) -> Result<Catalog, Problem> {
    let mut base = Catalog::default();
    for (hash, barclamp) in newest(all).into_values() {
        for role in barclamp.roles.values() {
            base.add_role(*role, all.role(*role).map_err(incomplete)?.clone());
        }
        base.add_barclamp(hash, barclamp.clone());
    }
    Ok(base)
}

/// The state of an imported version in the catalog.
enum CatalogState {
    /// The catalog does not have the version.
    New,
    /// The catalog has the same content: equal bytes, or a difference only in jigs that another
    /// file of the same import declares.
    Same(Hash),
    /// The catalog has other content for the version, or has the version in another spelling.
    Other { hash: Hash, version: String },
}

/// Looks an imported version up. `merged` is the catalog with the import added.
fn catalog_state(
    all: &Catalog,
    merged: &Catalog,
    new: &ImportedBarclamp,
) -> Result<CatalogState, Problem> {
    let Some((hash, stored)) = all.barclamps().find(|(_, other)| {
        other.name == new.barclamp.name && version::is_same(&other.version, &new.barclamp.version)
    }) else {
        return Ok(CatalogState::New);
    };
    let same = hash == new.hash
        || is_equal_except_jigs(stored, &new.barclamp, merged).map_err(incomplete)?;
    Ok(if same {
        CatalogState::Same(hash)
    } else {
        CatalogState::Other { hash, version: stored.version.clone() }
    })
}

/// An import, compared with the catalog.
struct ComparedImport {
    imported: Imported,
    /// The versions that the catalog does not have.
    new: Vec<ImportedBarclamp>,
    /// The objects of the new versions.
    objects: Vec<Object>,
}

/// Parses files and compares them with the whole catalog.
fn compare_import(all: &Catalog, files: &Files) -> Result<ComparedImport, Problem> {
    let read = read_files(files, &base(all)?)?;
    let merged = with_objects(all, &read)?;
    let (mut barclamps, mut new, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
    for imported in &read.barclamps {
        let barclamp = &imported.barclamp;
        let (hash, is_new) = match catalog_state(all, &merged, imported)? {
            CatalogState::New => (imported.hash, true),
            CatalogState::Same(hash) => (hash, false),
            CatalogState::Other { hash, version } => {
                conflicts.push(version_conflict(barclamp, &version, hash, imported.hash));
                continue;
            }
        };
        barclamps.push(ImportedVersion {
            name: barclamp.name.clone(),
            version: barclamp.version.clone(),
            hash,
            new: is_new,
        });
        if is_new {
            new.push(imported.clone());
        }
    }
    if !conflicts.is_empty() {
        return Err(content_conflict(conflicts));
    }
    // The objects of a known version are stored already, and a version never gets a second content.
    let is_new_object = |object: &&Object| {
        object.kind != ObjectKind::Barclamp || new.iter().any(|n| n.hash == object.hash)
    };
    let objects: Vec<Object> = read.objects.iter().filter(is_new_object).cloned().collect();
    let removed_parts = removed_from(all, &read, |barclamp| {
        let is_new = new.iter().any(|new| new.barclamp.name == barclamp.name);
        before(all, &barclamp.name, &barclamp.version)
            .filter(|_| is_new)
            .map(|barclamp| &**barclamp)
    })?;
    let findings: Vec<String> = read.findings.0.iter().map(ToString::to_string).collect();
    Ok(ComparedImport { imported: Imported { barclamps, removed_parts, findings }, new, objects })
}

impl Control {
    /// Imports barclamps, all or none. `actor` is `None` if Gantry itself imports the barclamps
    /// that it ships.
    ///
    /// # Errors
    /// Findings with file, line and column; a version that the catalog has with other content.
    pub async fn import_barclamps(
        &self,
        actor: Option<&Actor>,
        files: &Files,
    ) -> Result<Imported, Problem> {
        if let Some(actor) = actor {
            actor.require(Permission::Operator)?;
        }
        let files = Arc::new(files.clone());
        for _ in 0..MAX_ATTEMPTS {
            if let Some(imported) = self.try_import(actor, &files).await? {
                return Ok(imported);
            }
        }
        Err(Problem::conflict(
            "catalog_changed",
            "Nothing was imported: another import changed barclamps that yours depend on. Import \
             them again.",
        ))
    }

    /// Parses the files in a background thread, outside of a transaction, and imports them. `None`
    /// if the catalog they build on has changed meanwhile.
    async fn try_import(
        &self,
        actor: Option<&Actor>,
        files: &Arc<Files>,
    ) -> Result<Option<Imported>, Problem> {
        let mut connection = self.connection().await?;
        let all = self.cache.catalog(&mut connection).await.map_err(from_store)?;
        drop(connection);
        let ComparedImport { imported, new, objects } = {
            let (all, files) = (Arc::clone(&all), Arc::clone(files));
            let by =
                actor.map_or_else(|| self.compute_for_system(), |actor| self.compute_for(actor));
            by.work(move || compare_import(&all, &files)).await??
        };
        let by = actor.map(|a| a.person);
        let mut transaction = self.begin().await?;
        // From this lock on, no other import can change the catalog.
        store::catalog::lock_imports(&mut transaction).await.map_err(from_store)?;
        // The cached catalog is the same object until an import adds something.
        if !Arc::ptr_eq(&all, &self.cache.catalog(&mut transaction).await.map_err(from_store)?) {
            return Ok(None);
        }
        if !new.is_empty() {
            store::catalog::ensure_objects(&mut transaction, &objects).await.map_err(from_store)?;
        }
        for ImportedBarclamp { barclamp, hash, .. } in &new {
            let outcome = store::catalog::import_barclamp(&mut transaction, barclamp, *hash, by)
                .await
                .map_err(from_store)?;
            match outcome {
                ImportOutcome::Added | ImportOutcome::Unchanged => {}
                // Another import added this version meanwhile.
                ImportOutcome::ContentDiffers(stored_hash) => {
                    return Err(content_conflict(vec![version_conflict(
                        barclamp,
                        &barclamp.version,
                        stored_hash,
                        *hash,
                    )]));
                }
                ImportOutcome::Full => return Err(catalog_full()),
            }
        }
        if let Some(actor) = actor {
            actor.revalidate(&mut transaction).await?.require(Permission::Operator)?;
        }
        let detail = json!({"barclamps": imported.barclamps});
        store::audit::append_audit(&mut transaction, by, "catalog.import", "", &detail)
            .await
            .map_err(from_store)?;
        // Every start imports the shipped barclamps. Record this only if something is new.
        if by.is_some() || !new.is_empty() {
            store::catalog::append_import_report(&mut transaction, by, &imported.record())
                .await
                .map_err(from_store)?;
            store::events::append_event_to_topics(
                &mut transaction,
                &[Topic::Blueprints],
                &Live::Catalog,
            )
            .await
            .map_err(from_store)?;
        }
        done(transaction).await?;
        Ok(Some(imported))
    }
}

/// The versions in an import that a catalog has with other content, so it would refuse the import.
/// Each with its file and one line of text.
///
/// # Errors
/// If the import lacks one of its objects.
pub fn conflicting_versions(
    base: &Catalog,
    read: &Import,
) -> Result<Vec<(String, String)>, Problem> {
    let merged = with_objects(base, read)?;
    let mut lines = Vec::new();
    for new in &read.barclamps {
        if let CatalogState::Other { hash, version } = catalog_state(base, &merged, new)? {
            let clash = version_conflict(&new.barclamp, &version, hash, new.hash);
            let line = format!("{} {}: give it a new version", clash.at, clash.detail);
            lines.push((new.file.clone(), line));
        }
    }
    Ok(lines)
}

/// A finding for a version that the catalog has with other content, or in another spelling
/// (`stored`).
fn version_conflict(
    barclamp: &Barclamp,
    stored: &str,
    stored_hash: Hash,
    new: Hash,
) -> problem::Finding {
    let spelled = match stored == barclamp.version {
        true => String::new(),
        false => format!("as version {stored:?}, which is the same version, "),
    };
    problem::Finding {
        at: format!("{} {}", barclamp.name, barclamp.version),
        detail: format!(
            "already exists {spelled}with content {}, and the new content is {}",
            stored_hash.short(),
            new.short()
        ),
    }
}

/// Reports all clashes at once, so the author can fix them in one pass.
fn content_conflict(conflicts: Vec<problem::Finding>) -> Problem {
    let names: Vec<String> = conflicts.iter().map(|clash| clash.at.clone()).collect();
    let (exists, contents, versions, files) = match conflicts.len() {
        1 => ("exists", "the new content", "a new version", "its file"),
        _ => ("exist", "the new contents", "new versions", "their files"),
    };
    let mut problem = Problem::conflict(
        "other_content",
        format!(
            "Nothing was imported: {} already {exists} with other content, and a version never \
             changes. Give {contents} {versions} (`version:` in the file), or leave out {files}.",
            some_of(&names),
        ),
    );
    problem.errors = conflicts;
    problem
}

fn catalog_full() -> Problem {
    Problem::conflict(
        "catalog_full",
        format!(
            "Nothing was imported: the catalog has {} versions of barclamps, which is the maximum. \
             Versions cannot be deleted, so start with a new database.",
            store::catalog::MAX_BARCLAMPS
        ),
    )
}

#[cfg(test)]
mod tests {
    use engine::catalog::read::MAX_FILES;

    use crate::catalog::imports::*;

    fn files(entries: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        entries.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn broken_file_is_reported_with_line_and_column() {
        let files = files(&[("demo/demo.yml", "barclamp:\n  name: [demo\n")]);
        let problem = read_files(&files, &Catalog::default()).unwrap_err();
        assert_eq!((problem.status, problem.code.as_str()), (422, "barclamp"));
        assert!(problem.errors[0].at.starts_with("demo/demo.yml:"), "{problem:?}");
    }

    #[test]
    fn errors_precede_warnings_and_positions_appear_once() {
        let text = "barclamp: {name: demo, version: '1', odd: 1}\nroles:\n  - {name: app, jig: noop, flags: [odd]}\n  - {name: a, jig: noop, retries: x}\n  - {name: b}\n";
        let problem = read_files(&files(&[("demo.yml", text)]), &Catalog::default()).unwrap_err();
        let severities: Vec<&str> =
            problem.errors.iter().filter_map(|e| e.detail.split(':').next()).collect();
        assert_eq!(severities, ["error", "error", "warning", "warning"], "{problem:?}");
        assert!(
            problem.errors[0].at.starts_with("demo.yml:4:"),
            "the first error of the file comes first: {problem:?}"
        );
        let all = format!("{} {:?}", problem.detail, problem.errors);
        for error in &problem.errors {
            assert_eq!(all.matches(error.at.as_str()).count(), 1, "{all}");
        }
        assert!(problem.detail.starts_with("Key `retries` of role \"a\" must be"), "{problem:?}");
        assert!(problem.detail.ends_with("This is the first of 2 errors."), "{problem:?}");
    }

    #[test]
    fn too_many_files_are_rejected_before_parsing() {
        let broken: BTreeMap<String, Vec<u8>> =
            (0..=MAX_FILES).map(|n| (format!("{n:04}.yml"), b"barclamp: [".to_vec())).collect();
        let problem = read_files(&broken, &Catalog::default()).unwrap_err();
        assert_eq!(problem.errors.len(), 1);
        assert!(
            problem.detail.contains("set has 1001 files, and the limit is 1000"),
            "{problem:?}"
        );
    }

    /// A copy per file would take 16 GB.
    #[test]
    fn barclamps_in_one_folder_share_its_files() {
        let text =
            |n: usize| format!("barclamp: {{name: b{n}, version: '1'}}\nroles: []\n").into_bytes();
        let mut files: BTreeMap<String, Vec<u8>> =
            (0..MAX_FILES).map(|n| (format!("set/b{n}.yml"), text(n))).collect();
        files.insert("set/image".to_owned(), vec![1; MAX_IMPORT / 2]);
        assert_eq!(read_files(&files, &Catalog::default()).unwrap().barclamps.len(), MAX_FILES);
    }

    #[test]
    fn scripts_come_from_the_barclamp_folder() {
        let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script}]\n";
        let script = |path: &'static str| [("a/demo.yml", text), (path, "#!/bin/sh\n")];
        assert!(read_files(&files(&script("a/scripts/app/10-x")), &Catalog::default()).is_ok());
        for path in ["scripts/app/10-x", "ab/scripts/app/10-x", "a/b/scripts/app/10-x"] {
            let problem = read_files(&files(&script(path)), &Catalog::default()).unwrap_err();
            assert!(problem.detail.contains("has no scripts"), "{problem:?}");
        }
    }

    #[test]
    fn missing_barclamp_file_is_reported() {
        let files = files(&[("demo/scripts/app/10-x.yml", "")]);
        assert!(
            read_files(&files, &Catalog::default())
                .unwrap_err()
                .detail
                .contains("has no barclamp file")
        );
    }
}
