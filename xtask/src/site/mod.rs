//! Builds the site: WebAssembly module, styles, fonts, icons.
//!
//! The server serves the folder `target/site` unchanged: `/pkg/BUILD/*` with `gantry.js`,
//! `gantry.wasm` and its parts, and `gantry.css`; `/fonts/*`; and the files of `style/assets`. Text
//! and module files also exist as `.br` and `.gz`, so that nothing is compressed during a request.
//!
//! *BUILD* is the hash of the folder's content. So these files never change, browsers cache them
//! permanently, and a page never gets files of two builds. `site.json` tells the server the name of
//! the build and the files of each part.
//!
//! A build assembles a new folder next to the old one, and replaces the old one only if they
//! differ. A running server sees either complete site, and unchanged files keep their modification
//! times, which browsers use to revalidate. If the compiler's output is unchanged, the slow
//! processing of the module is skipped.
//!
//! For development, the module is one file, neither optimized nor split, and `site.json` has no
//! parts. Both kinds of build replace the same folder, but each keeps its own intermediate files.

mod download_sizes;
mod module;
mod pack;
mod parts;
mod style;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::command::Step;
use crate::tree::Tree;

/// How the module is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Quickly, as one large file.
    Development,
    /// Optimized, in parts.
    Release,
}

/// Builds the site with an optimized module.
///
/// # Errors
/// If a tool is missing, a source file is invalid, a page is too heavy, or an I/O operation fails.
pub(crate) fn build(tree: &Tree) -> anyhow::Result<()> {
    build_kind(tree, Kind::Release)
}

/// Builds the site quickly, with a large module.
///
/// # Errors
/// If a tool is missing, a source file is invalid, or an I/O operation fails.
pub(crate) fn build_for_development(tree: &Tree) -> anyhow::Result<()> {
    build_kind(tree, Kind::Development)
}

fn build_kind(tree: &Tree, kind: Kind) -> anyhow::Result<()> {
    let _lock = alone(tree)?;
    let packages = PathBuf::from(Step::script(tree, "npm-packages").arg("xtask").output()?);
    let module = module::build(tree, &packages, kind)?;

    let next = tree.target().join("site.next");
    let _ = fs::remove_dir_all(&next);
    let new = next.join("pkg/new");
    fs::create_dir_all(&new).with_context(|| new.display().to_string())?;
    copy_folder(&module.folder, &new)?;
    let css = style::bundle(&tree.path("style"), "main.css")?;
    pack::write(&new.join("gantry.css"), css.as_bytes())?;
    let build = name_of(&new)?;
    let pkg = next.join("pkg").join(&build);
    fs::rename(&new, &pkg).with_context(|| pkg.display().to_string())?;
    let manifest = serde_json::json!({ "build": build, "parts": module.parts });
    fs::write(next.join("site.json"), serde_json::to_vec_pretty(&manifest)?)?;

    style::copy_fonts(&css, &packages, &next.join("fonts"))?;
    copy_assets(&tree.path("style/assets"), &next)?;

    if kind == Kind::Release {
        let sizes = download_sizes::of(&pkg, &module.parts)?;
        print!("\n{sizes}");
        sizes.check()?;
    }
    let changed = replace(&tree.site(), &next)?;
    println!("\n{}: {}", tree.site().display(), if changed { "built" } else { "nothing changed" });
    println!(
        "  gantry.css {}",
        pack::sizes(&tree.site().join("pkg").join(&build).join("gantry.css"))?
    );
    Ok(())
}

/// The name of a build: a hash of its files and their names.
fn name_of(pkg: &Path) -> anyhow::Result<String> {
    let files = files(pkg)?;
    let names: String = files.iter().map(|path| format!("{}\n", path.display())).collect();
    let paths: Vec<_> = files.iter().map(|path| pkg.join(path)).collect();
    let mut name = module::fingerprint(names.as_bytes(), &paths)?;
    name.truncate(16);
    Ok(name)
}

/// Takes a lock, because concurrent builds of one site would overwrite each other's files.
fn alone(tree: &Tree) -> anyhow::Result<File> {
    let folder = tree.target().join("site-build");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("waiting for another build of the site")?;
    Ok(lock)
}

/// Replaces `site` by `next`, unless their content is equal. Returns whether it did.
fn replace(site: &Path, next: &Path) -> anyhow::Result<bool> {
    if site.is_dir() && contents(site)? == contents(next)? {
        fs::remove_dir_all(next)?;
        return Ok(false);
    }
    let old = site.with_extension("old");
    let _ = fs::remove_dir_all(&old);
    if site.exists() {
        fs::rename(site, &old).with_context(|| site.display().to_string())?;
    }
    fs::rename(next, site).with_context(|| site.display().to_string())?;
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    Ok(true)
}

/// All files of a folder, by relative path.
fn contents(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for path in files(folder)? {
        let bytes = fs::read(folder.join(&path))?;
        found.insert(path, bytes);
    }
    Ok(found)
}

/// The sorted relative paths of all files below a folder.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(relative) = folders.pop() {
        let absolute = folder.join(&relative);
        for entry in fs::read_dir(&absolute).with_context(|| absolute.display().to_string())? {
            let entry = entry?;
            let path = relative.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    for path in files(from)? {
        let target = to.join(&path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(from.join(&path), &target).with_context(|| target.display().to_string())?;
    }
    Ok(())
}

fn copy_assets(from: &Path, to: &Path) -> anyhow::Result<()> {
    for path in files(from)? {
        pack::write(&to.join(&path), &fs::read(from.join(&path))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.join("pkg")).expect("a folder");
        fs::write(path.join("pkg/gantry.css"), text).expect("a file");
        path
    }

    #[test]
    fn site_is_replaced_only_if_different() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("site");

        assert!(replace(&place, &site(folder.path(), "next", "a")).expect("a new site"));
        assert!(!replace(&place, &site(folder.path(), "next", "a")).expect("the same site"));
        assert!(replace(&place, &site(folder.path(), "next", "b")).expect("another site"));

        assert_eq!(fs::read_to_string(place.join("pkg/gantry.css")).expect("the file"), "b");
        let left: Vec<_> = fs::read_dir(folder.path())
            .expect("the folder")
            .map(|e| e.expect("entry").file_name())
            .collect();
        assert_eq!(left, ["site"]);
    }
}
