//! `gantry catalog`: checks barclamp files without a server.
//!
//! It exits with 1 if the files can't be imported, and with 2 if they can't be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use engine::catalog::Catalog;
use engine::catalog::read::{At, Finding, Findings, Import, ImportedBarclamp, Severity};
use engine::counting::many;

use crate::unread::ended;

/// Maximum number of files in a folder.
const MAX_FILES: usize = 10_000;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check the barclamps of a folder; exits 1 if one can't be imported, 2 if one can't be read
    Check {
        /// The folder with the barclamps
        folder: PathBuf,
        /// Folder with the previous versions: reports missing parts, and fails if the content of an
        /// existing version has changed
        #[arg(long, value_name = "FOLDER")]
        since: Option<PathBuf>,
        /// Print JSON, even if the folder can't be read; the error is then the only finding
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Check { folder, since, json } => ended(check(folder, since.as_deref(), *json)),
    }
}

fn check(folder: &Path, since: Option<&Path>, json: bool) -> Result<()> {
    let (read, removed_parts) = match read_and_compare(folder, since) {
        Ok(examined) => examined,
        // A client that asked for JSON reads only standard output.
        Err(ReadError { place, error }) => {
            if json {
                print_report(&Err(Findings(vec![to_finding(place, &error)])), &[])?;
            }
            return Err(error);
        }
    };
    if json {
        print_report(&read, &removed_parts)?;
    } else {
        print(&read);
        removed_parts.iter().for_each(|line| println!("{line}"));
    }
    match read {
        Ok(_) => Ok(()),
        Err(_) => bail!("The barclamps cannot be imported."),
    }
}

type Read = Result<Import, Findings>;

/// A folder or file that could not be read.
struct ReadError<'f> {
    place: &'f Path,
    error: anyhow::Error,
}

/// Reads a folder, and lists the things that the previous versions had and it lacks.
fn read_and_compare<'f>(
    folder: &'f Path,
    since: Option<&'f Path>,
) -> Result<(Read, Vec<String>), ReadError<'f>> {
    let unread = |place| move |error| ReadError { place, error };
    let read = read(folder, &Catalog::default()).map_err(unread(folder))?;
    let Some(since) = since else { return Ok((read, Vec::new())) };
    let previous = known(since).map_err(unread(since))?;
    let Ok(import) = read else { return Ok((read, Vec::new())) };
    let comparison = control::removed_parts(&previous, &import)
        .and_then(|removed_parts| Ok((reject_changed_versions(&previous, import)?, removed_parts)));
    comparison.map_err(|problem| anyhow::anyhow!(problem.detail)).map_err(unread(folder))
}

/// An import rejects changed content under a known version.
fn reject_changed_versions(previous: &Catalog, import: Import) -> Result<Read, api::Problem> {
    let conflicts = control::conflicting_versions(previous, &import)?;
    if conflicts.is_empty() {
        return Ok(Ok(import));
    }
    let mut findings = import.findings;
    findings.0.extend(
        conflicts
            .into_iter()
            .map(|(file, message)| to_finding(Path::new(&file), &anyhow::anyhow!(message))),
    );
    Ok(Err(findings))
}

fn to_finding(place: &Path, error: &anyhow::Error) -> Finding {
    Finding {
        severity: Severity::Error,
        file: place.display().to_string(),
        line: At::START.line,
        column: At::START.column,
        message: format!("{error:#}"),
        suggestion: None,
    }
}

fn print_report(read: &Read, removed_parts: &[String]) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(&report(read, removed_parts))?);
    Ok(())
}

fn read(folder: &Path, base: &Catalog) -> Result<Read> {
    let mut found = FolderFiles::default();
    collect(folder, folder, &mut found)?;
    let linked = || match found.links.first() {
        Some(link) => format!(" Links are not read, and {} is a link.", link.display()),
        None => String::new(),
    };
    let mut read = control::read_files_with_findings(&found.files, base)
        .map_err(|problem| anyhow::anyhow!("{}{}", problem.detail, linked()))?;
    let (Ok(Import { findings, .. }) | Err(findings)) = &mut read;
    findings.0.extend(found.links.iter().map(|link| Finding {
        severity: Severity::Warning,
        ..to_finding(link, &anyhow::anyhow!("links are not read: replace the link by the file"))
    }));
    Ok(read)
}

/// Reads the barclamps of a folder. They must be valid.
fn known(folder: &Path) -> Result<Catalog> {
    let read = read(folder, &Catalog::default())?;
    let Ok(import) = read else {
        bail!("The barclamps of {} cannot be imported. Check that folder first.", folder.display());
    };
    let mut catalog = Catalog::default();
    for object in &import.objects {
        catalog.add(object)?;
    }
    Ok(catalog)
}

/// The report always has the same fields. With errors nothing is imported, so the counts are zero.
fn report(read: &Read, removed_parts: &[String]) -> serde_json::Value {
    let imported: &[ImportedBarclamp] = read.as_ref().map_or(&[], |import| &import.barclamps);
    let count = |size: fn(&ImportedBarclamp) -> usize| imported.iter().map(size).sum::<usize>();
    let findings = match read {
        Ok(import) => &import.findings,
        Err(findings) => findings,
    };
    serde_json::json!({
        "counts": {
            "barclamps": imported.len(),
            "roles": count(|b| b.roles.len()),
            "jigs": count(|b| b.barclamp.jigs.len()),
            "attributes": count(
                |b| b.barclamp.attribs.len() + b.roles
                    .iter()
                    .map(|role| role.attribs.len())
                    .sum::<usize>()
            ),
        },
        "findings": findings,
        "removed_parts": removed_parts,
    })
}

fn print(read: &Read) {
    let (Ok(Import { findings, .. }) | Err(findings)) = read;
    for finding in &findings.0 {
        println!("{finding}");
    }
    for barclamp in read.iter().flat_map(|import| &import.barclamps) {
        let (name, version) = (&barclamp.barclamp.name, &barclamp.barclamp.version);
        println!(
            "{name} {version}: {}, {}",
            many(barclamp.roles.len(), "role"),
            barclamp.hash.short()
        );
    }
}

/// Files by path relative to the folder, their total size, and links.
#[derive(Default)]
struct FolderFiles {
    files: BTreeMap<String, Vec<u8>>,
    bytes: u64,
    links: Vec<PathBuf>,
}

/// Collects the files of a folder recursively. Links are not followed. Files are read only up to
/// the size limit.
fn collect(root: &Path, folder: &Path, found: &mut FolderFiles) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("Cannot read {}", folder.display()))?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            collect(root, &path, found)?;
        } else if kind.is_file() {
            if found.files.len() >= MAX_FILES {
                bail!(
                    "Folder {} has more than {MAX_FILES} files. Name the folder of the barclamps.",
                    root.display()
                );
            }
            found.bytes +=
                entry.metadata().with_context(|| format!("Cannot read {}", path.display()))?.len();
            if found.bytes > u64::try_from(control::MAX_IMPORT)? {
                bail!(
                    "The files of {} have more than {} bytes in total, the limit of an import. \
                     File {} exceeds it.",
                    root.display(),
                    control::MAX_IMPORT,
                    path.display()
                );
            }
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            let bytes =
                fs::read(&path).with_context(|| format!("Cannot read {}", path.display()))?;
            found.files.insert(name, bytes);
        } else if kind.is_symlink() && found.links.len() < MAX_FILES {
            found.links.push(path.strip_prefix(root)?.to_owned());
        }
    }
    Ok(())
}
