//! Static checks. Warnings are errors here, but stay warnings in a regular build.

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
    book::build(tree)?;
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
    clippy(tree)
}
