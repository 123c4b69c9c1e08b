//! The barclamps that Gantry ships. They are built into the binary, so it needs no other files.

use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};

static BARCLAMPS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../barclamps");

/// All shipped files by path.
pub fn files() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    collect(&BARCLAMPS, &mut files);
    files
}

fn collect(folder: &Dir<'_>, files: &mut BTreeMap<String, Vec<u8>>) {
    for file in folder.files() {
        files.insert(file.path().to_string_lossy().into_owned(), file.contents().to_vec());
    }
    for subfolder in folder.dirs() {
        collect(subfolder, files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::catalog::Catalog;
    use engine::catalog::read::Severity;

    #[test]
    fn shipped_barclamps_import_without_warnings() {
        let read = engine_import(&files());
        assert!(
            read.findings.0.iter().all(|finding| finding.severity == Severity::Note),
            "{:?}",
            read.findings
        );
        let demo = read.barclamps.iter().find(|b| b.barclamp.name.as_str() == "demo").unwrap();
        assert!(demo.roles.len() >= 10, "{}", demo.roles.len());
    }

    fn engine_import(files: &BTreeMap<String, Vec<u8>>) -> engine::catalog::read::Import {
        control::read_files(files, &Catalog::default()).unwrap()
    }
}
