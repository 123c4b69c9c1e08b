//! Checks that look at the code without running it. Warnings are errors here; while writing they stay warnings.

use crate::book;
use crate::command::Step;
use crate::licences;
use crate::tree::Tree;

/// What takes seconds: format, licences, single copies, the book with its contents and links, the container file.
pub(crate) fn quick(tree: &Tree) -> anyhow::Result<()> {
    Step::cargo(tree).args(["fmt", "--all", "--check"]).run()?;
    licences::check(tree)?;
    book::check(tree)?;
    book::build(tree)?;
    Step::new(tree, tree.path("scripts/hadolint")).run()
}

/// Clippy on both halves. `browser` alone and for itself: together with the server, its features and the server's
/// would be mixed in `app`, which neither half ever is.
pub(crate) fn clippy(tree: &Tree) -> anyhow::Result<()> {
    let deny = ["--", "-D", "warnings"];
    let server = ["clippy", "--locked", "--workspace", "--exclude", "browser", "--all-targets"];
    Step::cargo(tree).args(server).args(deny).run()?;
    Step::cargo(tree).args(["clippy", "--locked", "--package", "browser"]).args(deny).run()
}

/// Both.
pub(crate) fn all(tree: &Tree) -> anyhow::Result<()> {
    quick(tree)?;
    clippy(tree)
}
