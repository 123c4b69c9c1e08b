//! Static checks. Warnings are errors here, but stay warnings in a regular build.
//!
//! Three checks need a tool that may be missing and that cannot always be installed: hadolint,
//! promtool and mdBook. Such a check passes without its tool, and [`skipped`] reports it at the end
//! of `lint` and of `test`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::book;
use crate::command::Step;
use crate::language;
use crate::licenses;
use crate::tree::Tree;

/// The fast checks: format, language, licenses, duplicate crates, the book, the container file,
/// the rules for Prometheus.
pub(crate) fn quick(tree: &Tree) -> anyhow::Result<()> {
    Step::cargo(tree).args(["fmt", "--all", "--check"]).run()?;
    language::check(tree)?;
    licenses::check(tree)?;
    book::check(tree)?;
    if book::is_mdbook_available(tree) {
        book::build(tree)?;
    }
    Step::new(tree, tree.path("scripts/hadolint")).run()?;
    Step::new(tree, tree.path("scripts/promtool")).run()
}

/// Runs clippy for server and browser. `browser` is checked alone: together with the server, cargo
/// would unify the features of `app`, and no real build does that.
pub(crate) fn clippy(tree: &Tree) -> anyhow::Result<()> {
    let deny = ["--", "-D", "warnings"];
    let server = ["clippy", "--locked", "--workspace", "--exclude", "browser", "--all-targets"];
    Step::cargo(tree).args(server).args(deny).run()?;
    Step::cargo(tree).args(["clippy", "--locked", "--package", "browser"]).args(deny).run()
}

pub(crate) fn all(tree: &Tree) -> anyhow::Result<()> {
    quick(tree)?;
    clippy(tree)?;
    for skipped in skipped(tree) {
        println!("{skipped}");
    }
    Ok(())
}

/// The checks of [`quick`] that passed without their tool.
pub(crate) fn skipped(tree: &Tree) -> Vec<String> {
    let cache = tree.cache().unwrap_or_default();
    let checks = [
        hadolint_skipped("hadolint", &tree.path("scripts/hadolint"), &cache),
        promtool_skipped("promtool", &cache),
        mdbook_skipped("mdbook", &tree.path("scripts/mdbook"), &cache),
    ];
    checks.into_iter().flatten().collect()
}

/// Without hadolint, and if pip can't install it, the container file is not linted.
fn hadolint_skipped(in_path: &str, script: &Path, cache: &Path) -> Option<String> {
    is_tool_missing(in_path, "hadolint", script, cache).then(|| {
        "skipped: the container file was not linted (hadolint is not installed, and pip cannot \
         install it)"
            .to_owned()
    })
}

/// Without promtool, and if apt-get can't download it, the rules for Prometheus are not checked.
fn promtool_skipped(in_path: &str, cache: &Path) -> Option<String> {
    let is_missing = !is_in_path(in_path) && !cache.join("promtool-debian/bin/promtool").is_file();
    is_missing.then(|| {
        "skipped: the rules of Prometheus were not checked (promtool is not installed, and \
         apt-get cannot download it)"
            .to_owned()
    })
}

/// Without mdBook, and if cargo can't install it, the book is not built.
fn mdbook_skipped(in_path: &str, script: &Path, cache: &Path) -> Option<String> {
    is_tool_missing(in_path, "mdbook", script, cache).then(|| {
        "skipped: the book was not built (mdBook is not installed, and cargo cannot install it)"
            .to_owned()
    })
}

/// Whether a tool is neither in `PATH` nor in the cache of its script.
fn is_tool_missing(in_path: &str, name: &str, script: &Path, cache: &Path) -> bool {
    if is_in_path(in_path) {
        return false;
    }
    let script = fs::read_to_string(script).unwrap_or_default();
    let version = script.lines().find_map(|line| line.strip_prefix("version=")).unwrap_or_default();
    !cache.join(format!("{name}-{version}/bin/{name}")).is_file()
}

fn is_in_path(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_check_of_prometheus_rules_is_reported() {
        let cache = tempfile::tempdir().expect("a folder");
        let skipped = promtool_skipped("/no/such/promtool", cache.path()).expect("a line");
        assert!(skipped.starts_with("skipped: the rules of Prometheus were not"), "{skipped}");
        fs::create_dir_all(cache.path().join("promtool-debian/bin")).expect("a folder");
        fs::write(cache.path().join("promtool-debian/bin/promtool"), "").expect("a file");
        assert_eq!(promtool_skipped("/no/such/promtool", cache.path()), None);
        assert_eq!(promtool_skipped("true", Path::new("/no/such/cache")), None);
    }

    #[test]
    fn skipped_container_lint_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        fs::write(&script, "set -e\nversion=1.2\n").expect("a file");
        let skipped =
            hadolint_skipped("/no/such/hadolint", &script, folder.path()).expect("a line");
        assert!(skipped.starts_with("skipped: the container file was not linted"), "{skipped}");
        fs::create_dir_all(folder.path().join("hadolint-1.2/bin")).expect("a folder");
        fs::write(folder.path().join("hadolint-1.2/bin/hadolint"), "").expect("a file");
        assert_eq!(hadolint_skipped("/no/such/hadolint", &script, folder.path()), None);
        assert_eq!(hadolint_skipped("true", &script, Path::new("/no/such/cache")), None);
    }

    #[test]
    fn skipped_book_build_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        fs::write(&script, "version=0.5.4\n").expect("a file");
        let skipped = mdbook_skipped("/no/such/mdbook", &script, folder.path()).expect("a line");
        assert!(skipped.starts_with("skipped: the book was not built"), "{skipped}");
        assert_eq!(mdbook_skipped("true", &script, folder.path()), None);
    }
}
