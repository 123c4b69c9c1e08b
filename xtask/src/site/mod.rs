//! What the browser loads: the module, styles, fonts, icons.
//!
//! # Theory
//!
//! The site is a folder (`target/site`) that the server hands out as it is: `/pkg/BUILD/*` with `gantry.js`, `gantry.wasm` and its
//! parts, and `gantry.css`; `/fonts/*` and what lies in `style/assets`; each text and module also as `.br` and `.gz`, so that
//! nothing is compressed while somebody waits.
//!
//! *BUILD* is the hash of what lies in it. So these files never change, browsers need not ask for them again, and a page never gets
//! parts of two builds. `site.json` says to the server which build it is, and which files each part of the module is made of.
//!
//! It is assembled anew beside the old one each time and takes its place only when it differs: a server that runs sees
//! a whole site or the whole next one, and unchanged files keep their time stamps, by which browsers ask. The slow part,
//! the module, is skipped when the compiler's output is that of the last time.

mod module;
mod pack;
mod parts;
mod style;
mod weight;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::tree::Tree;

/// Builds the site.
///
/// # Errors
/// When a tool is missing (set-up says which), a source is wrong, or the disk is.
pub(crate) fn build(tree: &Tree) -> anyhow::Result<()> {
    let _alone = alone(tree)?;
    let packages = PathBuf::from(tree.script("npm-packages", &["xtask"])?);
    let module = module::build(tree, &packages)?;

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
    let about = serde_json::json!({ "build": build, "parts": module.parts });
    fs::write(next.join("site.json"), serde_json::to_vec_pretty(&about)?)?;

    style::copy_fonts(&css, &packages, &next.join("fonts"))?;
    copy_assets(&tree.path("style/assets"), &next)?;

    let weighed = weight::of(&pkg, &module.parts)?;
    print!("\n{weighed}");
    weighed.judge()?;
    let changed = replace(&tree.site(), &next)?;
    println!("\n{}: {}", tree.site().display(), if changed { "built" } else { "nothing changed" });
    println!(
        "  gantry.css {}",
        pack::sizes(&tree.site().join("pkg").join(&build).join("gantry.css"))?
    );
    Ok(())
}

/// A build's name: a hash of its files and their names.
fn name_of(pkg: &Path) -> anyhow::Result<String> {
    let files = files(pkg)?;
    let names: String = files.iter().map(|path| format!("{}\n", path.display())).collect();
    let paths: Vec<_> = files.iter().map(|path| pkg.join(path)).collect();
    let mut name = module::fingerprint(names.as_bytes(), &paths)?;
    name.truncate(16);
    Ok(name)
}

/// Two builds of one site would write over each other's files: the second waits.
fn alone(tree: &Tree) -> anyhow::Result<File> {
    let folder = tree.target().join("site-build");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("waiting for another build of the site")?;
    Ok(lock)
}

/// Puts `next` in the place of `site`, unless they hold the same.
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

/// Every file of a folder, by its path in it.
fn contents(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for path in files(folder)? {
        let bytes = fs::read(folder.join(&path))?;
        found.insert(path, bytes);
    }
    Ok(found)
}

/// The paths in a folder of every file below it, sorted.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let here = folder.join(&below);
        for entry in fs::read_dir(&here).with_context(|| here.display().to_string())? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
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
    fn a_site_is_replaced_when_it_differs_and_only_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("site");

        assert!(replace(&place, &site(folder.path(), "next", "a")).expect("new"));
        assert!(!replace(&place, &site(folder.path(), "next", "a")).expect("same"));
        assert!(replace(&place, &site(folder.path(), "next", "b")).expect("other"));

        assert_eq!(fs::read_to_string(place.join("pkg/gantry.css")).expect("the file"), "b");
        let left: Vec<_> = fs::read_dir(folder.path())
            .expect("the folder")
            .map(|e| e.expect("entry").file_name())
            .collect();
        assert_eq!(left, ["site"]);
    }
}
