//! Finds installed PostgreSQL binaries.
//!
//! Distributions install server binaries outside of `PATH`, several versions side by side. This
//! module returns all of them, best first, because an existing data folder determines the version.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The oldest major version that supports the schema.
pub const OLDEST_MAJOR: u32 = 14;

/// The server programs of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) dir: PathBuf,
    pub(crate) major: u32,
}

impl Binaries {
    pub(crate) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    pub(crate) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    fn from_dir(dir: &Path) -> Option<Self> {
        if !dir.join("initdb").is_file() {
            return None;
        }
        let output = Command::new(dir.join("postgres")).arg("--version").output().ok()?;
        let major = parse_major(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { dir: dir.to_owned(), major })
    }
}

/// Finds all usable installations, best first. A given folder (argument or `GANTRY_PG_BIN`) is the
/// only one searched.
pub(crate) fn find(named: Option<&Path>) -> Result<Vec<Binaries>, Error> {
    let named =
        named.map(Path::to_owned).or_else(|| env::var_os("GANTRY_PG_BIN").map(PathBuf::from));
    let dirs = match named {
        Some(dir) => vec![dir],
        None => default_dirs(),
    };
    let mut found: Vec<Binaries> = Vec::new();
    for binaries in dirs.iter().filter_map(|dir| Binaries::from_dir(dir)) {
        if binaries.major >= OLDEST_MAJOR && !found.iter().any(|f| f.major == binaries.major) {
            found.push(binaries);
        }
    }
    if found.is_empty() {
        let looked: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        return Err(Error::NotInstalled { oldest: OLDEST_MAJOR, looked: looked.join(", ") });
    }
    Ok(found)
}

fn default_dirs() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    let mut versioned: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    versioned.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    dirs.extend(versioned.into_iter().map(|(_, dir)| dir));
    dirs
}

/// Parses `postgres (PostgreSQL) 15.18 (Debian 15.18-1)` or `postgres (PostgreSQL) 18beta1`.
fn parse_major(version: &str) -> Option<u32> {
    let number = version.split("(PostgreSQL)").nth(1)?.trim_start();
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_parsed() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_major("postgres (PostgreSQL) 16\n"), Some(16));
        assert_eq!(parse_major("postgres: command not found"), None);
    }

    #[test]
    fn folder_without_binaries_names_the_package() {
        let empty = tempfile::tempdir().unwrap();
        let refused = find(Some(empty.path())).unwrap_err().to_string();
        assert!(refused.contains("apt-get install postgresql"), "{refused}");
        assert!(refused.contains(&empty.path().display().to_string()), "{refused}");
    }
}
