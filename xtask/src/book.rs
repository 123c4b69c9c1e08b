//! Checks the book: table of contents and links.
//!
//! `docs/` is read both as files in the repository and as a book (mdBook). The book has only the
//! files that `SUMMARY.md` lists. A file that is not listed is missing from the book, and a
//! link out of `docs/` is broken there. This checks every Markdown file in `docs/`, and
//! `README.md`:
//! * `SUMMARY.md` lists each chapter exactly once.
//! * A link without a scheme names an existing file with exact case. In a chapter, that file must
//!   be in `docs/`.
//! * A fragment is a heading's anchor as mdBook generates it (and GitHub, for the characters that
//!   we use in headings).
//!
//! External links are not checked, so this needs no network.
//!
//! `cargo xtask book` also builds the book, and fails without mdBook. The lint reports the build as
//! skipped then (`crate::lint::skipped`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::command::Step;
use crate::tree::Tree;

const BOOK_FOLDER: &str = "docs";
const SUMMARY_FILE: &str = "docs/SUMMARY.md";
/// A checked file outside of the book.
const README_FILE: &str = "README.md";

/// Checks the book.
///
/// # Errors
/// Lists every chapter that is missing from the table of contents, and every broken link.
pub(crate) fn check(tree: &Tree) -> anyhow::Result<()> {
    let mut pages = BTreeMap::new();
    for path in markdown_files(tree, Path::new(BOOK_FOLDER))?
        .into_iter()
        .chain([PathBuf::from(README_FILE)])
    {
        let text =
            fs::read_to_string(tree.path(&path)).with_context(|| path.display().to_string())?;
        pages.insert(path, Page::read(&text));
    }
    let mut findings = missing_chapters(&pages)?;
    for (path, page) in &pages {
        findings.extend(page.links.iter().filter_map(|link| {
            let problem = dead(tree, &pages, path, &link.to)?;
            Some(format!("{}:{}: the link {:?} {problem}", path.display(), link.line, link.to))
        }));
    }
    if !findings.is_empty() {
        bail!("{}", findings.join("\n"));
    }
    println!("\n{} chapters, all in {SUMMARY_FILE}; every link leads somewhere", pages.len() - 2);
    Ok(())
}

/// Whether mdBook is installed or can be installed. If not, its script prints the reason.
pub(crate) fn is_mdbook_available(tree: &Tree) -> bool {
    Step::new(tree, tree.path("scripts/mdbook")).arg("--version").output().is_ok()
}

/// Builds the book into `target/book`.
///
/// # Errors
/// If mdBook is missing or fails.
pub(crate) fn build(tree: &Tree) -> anyhow::Result<()> {
    Step::new(tree, tree.path("scripts/mdbook")).args(["build", BOOK_FOLDER]).run()
}

/// Chapters that the table of contents does not list exactly once.
fn missing_chapters(pages: &BTreeMap<PathBuf, Page>) -> anyhow::Result<Vec<String>> {
    let summary = pages
        .get(Path::new(SUMMARY_FILE))
        .with_context(|| format!("{SUMMARY_FILE} is missing: the book has no contents"))?;
    let named: Vec<PathBuf> =
        summary.links.iter().filter_map(|link| target(Path::new(SUMMARY_FILE), &link.to)).collect();
    let chapters = pages
        .keys()
        .filter(|path| path.starts_with(BOOK_FOLDER) && *path != Path::new(SUMMARY_FILE));
    Ok(chapters
        .filter_map(|path| match named.iter().filter(|name| *name == path).count() {
            0 => Some(format!(
                "{}: {SUMMARY_FILE} does not name it, so it is in no book",
                path.display()
            )),
            1 => None,
            times => Some(format!("{}: {SUMMARY_FILE} names it {times} times", path.display())),
        })
        .collect())
}

/// Why a link is broken.
fn dead(tree: &Tree, pages: &BTreeMap<PathBuf, Page>, from: &Path, to: &str) -> Option<String> {
    if has_scheme(to) {
        return None;
    }
    let Some(path) = target(from, to) else {
        return Some("leads out of the tree".to_owned());
    };
    if from.starts_with(BOOK_FOLDER) && !path.starts_with(BOOK_FOLDER) {
        return Some(format!(
            "leads out of {BOOK_FOLDER}/, and so nowhere in the book: write the path as code \
             instead"
        ));
    }
    if !exists(tree, &path) {
        return Some(format!("leads nowhere: there is no {}", path.display()));
    }
    let (_, heading) = to.split_once('#')?;
    let known = pages.get(&path).is_some_and(|page| page.headings.contains(heading));
    (!known).then(|| format!("leads to no heading of {}", path.display()))
}

/// Whether a link has a scheme, so that it is not a path.
fn has_scheme(to: &str) -> bool {
    let scheme = to.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// The file that a link names, relative to the repository. `None` if it is outside.
fn target(from: &Path, to: &str) -> Option<PathBuf> {
    let file = to.split('#').next().unwrap_or_default();
    if file.is_empty() {
        return Some(from.to_path_buf());
    }
    let mut path = from.parent()?.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Whether a file or folder with exactly this name exists, also on case-insensitive file systems.
fn exists(tree: &Tree, path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return path.as_os_str().is_empty();
    };
    let entries = fs::read_dir(tree.path(folder)).into_iter().flatten().flatten();
    exists(tree, folder) && entries.into_iter().any(|entry| entry.file_name() == name)
}

/// All Markdown files below a folder.
fn markdown_files(tree: &Tree, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(tree.path(folder)).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(markdown_files(tree, &path)?);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The relevant parts of a Markdown file.
struct Page {
    links: Vec<Link>,
    /// Anchors of its headings.
    headings: BTreeSet<String>,
}

struct Link {
    /// Starts at 1.
    line: usize,
    to: String,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self { links: Vec::new(), headings: BTreeSet::new() };
        let mut heading: Option<String> = None;
        for (event, range) in
            Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES)
                .into_offset_iter()
        {
            match event {
                Event::Start(Tag::Link { link_type: LinkType::Email, .. }) => {}
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.links.push(Link { line, to: dest_url.into_string() });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    if let Some(heading) = heading.take() {
                        page.add_heading(&heading);
                    }
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// Later headings with the same text get a number as suffix.
    fn add_heading(&mut self, text: &str) {
        let name = anchor(text);
        let numbered = (1..).map(|n| format!("{name}-{n}"));
        let name = std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !self.headings.contains(name));
        self.headings.extend(name);
    }
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let anchor_char = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => {
            Some(c.to_lowercase().next().unwrap_or(c))
        }
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().chars().filter_map(anchor_char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENTS: &str = "# Contents\n\n- [One](one.md)\n- [Two](two.md)\n";

    /// The errors in a tree of these files.
    fn found(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        check(&Tree::at(folder.path())).err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn with_one(text: &str) -> String {
        found(&[
            ("README.md", "[the book](docs/one.md) ![a picture](docs/pictures/a.svg)"),
            ("docs/SUMMARY.md", CONTENTS),
            ("docs/one.md", text),
            ("docs/two.md", "# Two\n\n## Backup, and *restore*\n\n## Twice\n\n## Twice\n"),
            ("docs/pictures/a.svg", "<svg/>"),
        ])
    }

    #[test]
    fn complete_book_passes() {
        let text = "# One\n\n[b](two.md#backup-and-restore), [t](./two.md#twice-1), [up](#one), \
            ![p](pictures/a.svg), [out](https://example.com/x#y), <a@example.com>, \
                    [folder](pictures/)\n\n    [no link](in-code.md)\n\n`[n](x.md)`\n";
        assert_eq!(with_one(text), "");
    }

    #[test]
    fn broken_link_is_named_with_its_line() {
        for (link, problem) in [
            ("three.md", "leads nowhere: there is no docs/three.md"),
            ("Two.md", "leads nowhere: there is no docs/Two.md"),
            ("two.md#back-up", "leads to no heading of docs/two.md"),
            ("two.md#twice-2", "leads to no heading of docs/two.md"),
            ("#two", "leads to no heading of docs/one.md"),
            ("pictures/a.svg#x", "leads to no heading of docs/pictures/a.svg"),
            (
                "../README.md",
                "leads out of docs/, and so nowhere in the book: write the path as code instead",
            ),
            ("../../x.md", "leads out of the tree"),
            ("/two.md", "leads out of the tree"),
        ] {
            let text = format!("# One\n\nfirst\nsecond [x]({link})\n");
            assert_eq!(with_one(&text), format!("docs/one.md:4: the link {link:?} {problem}"));
        }
        let by_name = with_one("[x][y]\n\n[y]: three.md\n");
        assert_eq!(
            by_name,
            "docs/one.md:1: the link \"three.md\" leads nowhere: there is no docs/three.md"
        );
    }

    #[test]
    fn each_chapter_is_listed_once() {
        let chapters = [
            ("README.md", ""),
            ("docs/one.md", ""),
            ("docs/two.md", ""),
            ("docs/deep/three.md", ""),
        ];
        let with = |summary| found(&[&chapters[..], &[("docs/SUMMARY.md", summary)]].concat());
        assert_eq!(
            with(CONTENTS),
            "docs/deep/three.md: docs/SUMMARY.md does not name it, so it is in no book"
        );
        let twice = format!("{CONTENTS}- [Three](deep/three.md)\n- [Once more](two.md)\n");
        assert_eq!(with(&twice), "docs/two.md: docs/SUMMARY.md names it 2 times");
        assert!(found(&chapters).starts_with("docs/SUMMARY.md is missing"));
    }

    #[test]
    fn heading_anchors_match_mdbook() {
        for (heading, name) in [
            ("Why not yet", "why-not-yet"),
            ("`gantry up`, and more", "gantry-up-and-more"),
            ("Who may? Ada & Bo", "who-may-ada--bo"),
            ("on-change: keep", "on-change-keep"),
        ] {
            assert_eq!(
                Page::read(&format!("## {heading}\n")).headings,
                BTreeSet::from([name.to_owned()])
            );
        }
    }
}
