//! The files of an import, read from files and folders.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Outcome};

/// Limits of an import: files, and total bytes. The server's limits are lower.
const MAX_FILES: usize = 2_000;

const MAX_BYTES: u64 = 16 << 20;

/// Files to import, by path relative to their folder.
#[derive(Debug, Default)]
pub(crate) struct ImportFiles {
    pub(super) files: BTreeMap<String, String>,
    bytes: u64,
    /// Real paths of the folders on the path to the current one, to detect links that form a cycle.
    above: Vec<PathBuf>,
}

impl ImportFiles {
    pub(crate) fn add(&mut self, path: &Path, base: &Path) -> Outcome {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.') && path != base);
        match () {
            () if hidden => Ok(()),
            () if path.is_dir() => self.folder(path, base),
            () => self.file(path, base),
        }
    }

    fn folder(&mut self, path: &Path, base: &Path) -> Outcome {
        let unread = |error| unread(path, &error);
        let canonical = path.canonicalize().map_err(unread)?;
        if self.above.contains(&canonical) {
            return Err(wrong(
                path,
                "the folder is a link to a folder around it. Name folders without such links.",
            ));
        }
        self.above.push(canonical);
        for entry in std::fs::read_dir(path).map_err(unread)? {
            self.add(&entry.map_err(unread)?.path(), base)?;
        }
        self.above.pop();
        Ok(())
    }

    fn file(&mut self, path: &Path, base: &Path) -> Outcome {
        let mut bytes = Vec::new();
        let remaining = MAX_BYTES.saturating_sub(self.bytes);
        // Read one byte more than the limit, regardless of the file's size.
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(remaining + 1).read_to_end(&mut bytes));
        let read = read.map_err(|error| unread(path, &error))?;
        self.bytes += u64::try_from(read).unwrap_or(u64::MAX);
        if self.bytes > MAX_BYTES || self.files.len() >= MAX_FILES {
            let message = format!(
                "the import has more than {MAX_FILES} files or {MAX_BYTES} bytes. Name the \
                 barclamp's own folder."
            );
            return Err(wrong(path, &message));
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| {
            wrong(
                path,
                "the file is not UTF-8 text. Barclamps and their scripts \
                must be UTF-8.",
            )
        })?;
        let name = path.strip_prefix(base).unwrap_or(path).to_string_lossy().replace('\\', "/");
        match self.files.insert(name.clone(), text) {
            None => Ok(()),
            Some(_) => Err(wrong(
                path,
                &format!("{name} exists twice. Import the folders one after the other."),
            )),
        }
    }
}

fn wrong(path: &Path, message: &str) -> Failure {
    Failure::Usage(format!("Cannot import {}: {message}", path.display()))
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    wrong(path, &format!("{error}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_files_have_relative_paths() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("demo/app")).unwrap();
        std::fs::create_dir_all(folder.path().join("demo/.git")).unwrap();
        for (name, text) in [("demo/demo.yml", "a"), ("demo/app/10.sh", "b"), ("demo/.git/x", "c")]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let base = folder.path().join("demo");
        let mut gathered = ImportFiles::default();
        gathered.add(&base, &base).unwrap();
        assert_eq!(gathered.files.keys().collect::<Vec<_>>(), ["app/10.sh", "demo.yml"]);
        std::fs::write(base.join("bad"), [0xff]).unwrap();
        assert_eq!(gathered.add(&base.join("bad"), &base).unwrap_err().code(), 2);
    }

    #[test]
    fn import_rejects_link_cycles_and_large_files() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("demo");
        std::fs::create_dir_all(base.join("app")).unwrap();
        std::fs::write(base.join("demo.yml"), "a").unwrap();
        std::os::unix::fs::symlink(&base, base.join("app/again")).unwrap();
        let error = ImportFiles::default().add(&base, &base).unwrap_err().to_string();
        assert!(error.contains("app/again: the folder is a link to a folder around it"), "{error}");
        std::fs::remove_file(base.join("app/again")).unwrap();
        // A link to a sibling folder is not a cycle.
        std::fs::create_dir_all(folder.path().join("shared")).unwrap();
        std::fs::write(folder.path().join("shared/x.sh"), "x").unwrap();
        std::os::unix::fs::symlink(folder.path().join("shared"), base.join("shared")).unwrap();
        let mut gathered = ImportFiles::default();
        gathered.add(&base, &base).unwrap();
        assert_eq!(gathered.files.keys().collect::<Vec<_>>(), ["demo.yml", "shared/x.sh"]);
        // A large file is read only up to the limit.
        std::fs::File::create(base.join("huge")).unwrap().set_len(1 << 34).unwrap();
        let error = ImportFiles::default().add(&base, &base).unwrap_err().to_string();
        assert!(error.contains("huge: the import has more than"), "{error}");
    }
}
