//! `gantry catalog`: barclamp files, without a server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use engine::catalog::Catalog;

/// Most files of one folder.
const MAX_FILES: usize = 10_000;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Read the barclamps of a folder and say what is wrong with them; exit code 1 when one can't be imported
    Check {
        /// The folder
        folder: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Check { folder, json } => check(folder, *json),
    }
}

fn check(folder: &Path, json: bool) -> Result<()> {
    let mut files = BTreeMap::new();
    collect(folder, folder, &mut files)?;
    let read = control::read_files(&files, &Catalog::default());
    if json {
        println!("{}", serde_json::to_string_pretty(&report(&read))?);
    } else {
        print(&read);
    }
    match read {
        Ok(_) => Ok(()),
        Err(problem) => bail!("{}", problem.title.to_lowercase()),
    }
}

type Read = Result<engine::catalog::read::Import, api::Problem>;

fn report(read: &Read) -> serde_json::Value {
    match read {
        Ok(import) => {
            let roles: usize = import.barclamps.iter().map(|b| b.roles.len()).sum();
            let jigs: usize = import.barclamps.iter().map(|b| b.barclamp.jigs.len()).sum();
            let attributes: usize = import.barclamps.iter().flat_map(|b| &b.roles).map(|r| r.attribs.len()).sum();
            let findings: Vec<String> = import.findings.0.iter().map(ToString::to_string).collect();
            serde_json::json!({
                "counts": {"barclamps": import.barclamps.len(), "roles": roles, "jigs": jigs, "attributes": attributes},
                "findings": findings,
            })
        }
        Err(problem) => serde_json::json!({"error": problem}),
    }
}

fn print(read: &Read) {
    match read {
        Ok(import) => {
            for finding in &import.findings.0 {
                println!("{finding}");
            }
            for barclamp in &import.barclamps {
                let (name, version) = (&barclamp.barclamp.name, &barclamp.barclamp.version);
                println!("{name} {version}: {} roles, {}", barclamp.roles.len(), barclamp.hash.short());
            }
        }
        Err(problem) => {
            let details: Vec<&str> = problem.errors.iter().map(|e| e.detail.as_str()).collect();
            println!("{}", if details.is_empty() { problem.detail.clone() } else { details.join("\n") });
        }
    }
}

/// Files below a folder by their path inside it; links are not followed.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("{} can't be read", folder.display()))?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            collect(root, &path, files)?;
        } else if kind.is_file() {
            if files.len() >= MAX_FILES {
                bail!("{} has more than {MAX_FILES} files: name the folder of the barclamps", root.display());
            }
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            let bytes = fs::read(&path).with_context(|| format!("{} can't be read", path.display()))?;
            files.insert(name, bytes);
        }
    }
    Ok(())
}
