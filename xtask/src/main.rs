//! What a person or a CI machine does with this tree, beyond what cargo does: `cargo xtask --help`.
//!
//! # Theory
//!
//! The Makefile is the door, the scripts in `scripts/` see that the tools are there (they run before anything could be
//! compiled), and everything else is here, in the language of the project: the site (`site`), the whole test run
//! (`test`), the checks that look at the tree rather than run it (`lint`, `licences`, `book`).
//!
//! Invariants: nothing here reaches for the network but through `scripts/` (called by `test` and by `site`), and
//! nothing is left running or changed outside the build folder and the cache.

mod book;
mod command;
mod leftovers;
mod licences;
mod lint;
mod site;
mod test;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::test::Part;
use crate::tree::Tree;

/// Builds, checks and tests Gantry.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds what the browser loads into target/site.
    Site,
    /// Runs everything that must pass, and tells what each part took.
    Test {
        /// Only these parts (their order is fixed); what they rest on must have been built.
        parts: Vec<Part>,
    },
    /// Format, clippy for server and browser, licences, single copies, the book.
    Lint,
    /// Every dependency's licence against deny.toml, and that there is one copy of what must be single.
    Licences,
    /// That every chapter is in the book's contents, every link leads somewhere, and mdBook makes a book of it.
    Book,
}

fn main() -> ExitCode {
    let done = Tree::here().and_then(|tree| match Arguments::parse().task {
        Task::Site => site::build(&tree),
        Task::Test { parts } => test::run(&tree, &parts),
        Task::Lint => lint::all(&tree),
        Task::Licences => licences::check(&tree),
        Task::Book => book::check(&tree).and_then(|()| book::build(&tree)),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ngantry: {error:#}");
            ExitCode::FAILURE
        }
    }
}
