//! Measures and limits the download size of a first visit to each page.
//!
//! A first visit loads the main file, its JavaScript, and the files of the page's part, compressed
//! with Brotli. The build fails if a page exceeds the limit. Then all pages load code that only one
//! page needs, or a page has grown and must be split again (docs/developing.md).
//!
//! A piece of a page, loaded on demand, does not count for the first visit. It is reported by the
//! size that it adds to its page.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::pack;
use super::parts::Parts;

/// Maximum bytes of a first visit.
const MAX_FIRST_VISIT_BYTES: u64 = 700_000;

/// Pieces and their pages. The module of a page has its `pieces`.
const ON_DEMAND_PARTS: [(&str, &str); 7] = [
    ("board_forms", "board"),
    ("noderole_panel", "board"),
    ("planner", "board"),
    ("review_details", "review"),
    ("review_discussion", "review"),
    ("review_graph", "review"),
    ("reviewed_noderole", "review"),
];

/// Download sizes in bytes of Brotli.
pub(super) struct DownloadSizes {
    /// Size that every page loads.
    everywhere: u64,
    /// Additional size of each page, by the name of its part, largest first.
    parts: Vec<(String, u64)>,
    /// Additional size of each piece.
    pieces: Vec<(&'static str, u64)>,
}

/// Measures the parts of the module in `pkg`.
///
/// # Errors
/// If a file of a part is missing.
pub(super) fn of(pkg: &Path, parts: &Parts) -> anyhow::Result<DownloadSizes> {
    let size = |name: &str| -> anyhow::Result<u64> {
        let compressed = pack::variant_path(&pkg.join(name), "br");
        Ok(fs::metadata(&compressed).with_context(|| compressed.display().to_string())?.len())
    };
    let mut everywhere = size("gantry.wasm")?;
    for path in super::files(pkg)? {
        if path.extension().is_some_and(|ending| ending == "js") {
            everywhere += size(&path.to_string_lossy())?;
        }
    }
    let sum = |files: &mut dyn Iterator<Item = &String>| -> anyhow::Result<u64> {
        files.map(|file| size(&format!("{file}.wasm"))).sum()
    };
    let mut page_sizes = Vec::new();
    for (name, files) in
        parts.iter().filter(|(name, _)| ON_DEMAND_PARTS.iter().all(|(piece, _)| piece != name))
    {
        page_sizes.push((name.clone(), sum(&mut files.iter())?));
    }
    page_sizes.sort_by_key(|(name, own)| (std::cmp::Reverse(*own), name.clone()));
    let mut pieces = Vec::new();
    for (piece, page) in ON_DEMAND_PARTS {
        let (Some(files), Some(page_files)) = (parts.get(piece), parts.get(page)) else { continue };
        pieces.push((piece, sum(&mut files.iter().filter(|file| !page_files.contains(file)))?));
    }
    Ok(DownloadSizes { everywhere, parts: page_sizes, pieces })
}

impl DownloadSizes {
    /// Checks the limit.
    ///
    /// # Errors
    /// If a first visit exceeds the limit, or there are no parts because the module was not split.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.parts.is_empty() {
            bail!("the module was not split into parts, so a page cannot be loaded alone");
        }
        let oversized: Vec<_> = self
            .parts
            .iter()
            .filter(|(_, own)| self.everywhere + own > MAX_FIRST_VISIT_BYTES)
            .collect();
        if oversized.is_empty() {
            return Ok(());
        }
        let descriptions: Vec<_> = oversized
            .iter()
            .map(|(name, own)| {
                format!("{name} ({} of {MAX_FIRST_VISIT_BYTES})", self.everywhere + own)
            })
            .collect();
        bail!("a first visit exceeds the size limit, in bytes: {}", descriptions.join(", "))
    }
}

impl fmt::Display for DownloadSizes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<24} {:>12} {:>14}", "bytes as brotli", "its own part", "a first visit")?;
        for (name, own) in &self.parts {
            writeln!(out, "{name:<24} {own:>12} {:>14}", self.everywhere + own)?;
        }
        writeln!(out, "{:<24} {:>12} {:>14}", "every page", "", self.everywhere)?;
        for (name, own) in &self.pieces {
            writeln!(out, "{name:<24} {own:>12} {:>14}", "on demand")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A site with compressed files of these sizes.
    fn sizes(files: &[(&str, usize)], parts: &[(&str, &[&str])]) -> anyhow::Result<DownloadSizes> {
        let folder = tempfile::tempdir()?;
        for (name, size) in files {
            fs::write(folder.path().join(name), "plain")?;
            fs::write(folder.path().join(format!("{name}.br")), vec![0; *size])?;
        }
        let parts = parts.iter().map(|(name, files)| {
            ((*name).to_owned(), files.iter().map(|file| (*file).to_owned()).collect())
        });
        of(folder.path(), &parts.collect())
    }

    const MAIN: [(&str, usize); 3] =
        [("gantry.wasm", 300_000), ("gantry.js", 10_000), ("split.js", 1_000)];

    #[test]
    fn first_visit_counts_all_loaded_files() {
        let files = [&MAIN[..], &[("board.wasm", 200_000), ("chunk_1.wasm", 50_000)]].concat();
        let sizes = sizes(&files, &[("board", &["board", "chunk_1"]), ("nodes", &["chunk_1"])])
            .expect("all files exist");
        assert_eq!(sizes.everywhere, 311_000);
        assert_eq!(sizes.parts, [("board".to_owned(), 250_000), ("nodes".to_owned(), 50_000)]);
        sizes.check().expect("below the limit");
        assert!(sizes.to_string().contains("561000"), "{sizes}");
    }

    #[test]
    fn piece_counts_only_its_added_size() {
        let files = [
            &MAIN[..],
            &[("board.wasm", 300_000), ("shared_1.wasm", 80_000), ("planner.wasm", 90_000)],
        ]
        .concat();
        let parts: [(&str, &[&str]); 2] =
            [("board", &["board", "shared_1"]), ("planner", &["planner", "shared_1"])];
        let sizes = sizes(&files, &parts).expect("all files exist");
        assert_eq!(sizes.parts, [("board".to_owned(), 380_000)]);
        assert_eq!(sizes.pieces, [("planner", 90_000)]);
        sizes.check().expect("the planner is loaded on demand");
    }

    #[test]
    fn oversized_page_is_named() {
        let files = [&MAIN[..], &[("board.wasm", 389_000), ("graph.wasm", 389_001)]].concat();
        let sizes = sizes(&files, &[("board", &["board"]), ("graph", &["graph"])])
            .expect("all files exist");
        let message = sizes.check().expect_err("one byte over the limit").to_string();
        assert!(
            message.contains("graph (700001 of 700000)") && !message.contains("board"),
            "{message}"
        );
    }

    #[test]
    fn unsplit_or_incomplete_module_is_rejected() {
        assert!(sizes(&MAIN, &[]).expect("the sizes").check().is_err());
        assert!(sizes(&MAIN, &[("board", &["board"])]).is_err());
    }
}
