//! Build and check tasks for developers and CI that cargo does not cover: `cargo xtask --help`.
//!
//! The Makefile is the entry point. The scripts in `scripts/` install the tools, because they must
//! run before anything compiles. Everything else is here, in Rust: the site (`site`), the full test
//! run (`test`), and the static checks (`lint`, `licenses`, `book`).
//!
//! Invariants: only `scripts/` (called by `test` and `site`) uses the network. Tasks leave no
//! process running, and change nothing outside of the build folder and the cache.

mod book;
mod command;
mod language;
mod leftover_processes;
mod licenses;
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
    /// Build the browser files into target/site
    Site {
        /// Build quickly for development: one large, unoptimized module
        #[arg(long)]
        dev: bool,
    },
    /// Run all checks and tests, and report the time of each part
    Test {
        /// Parts to run, in their fixed order. Earlier parts must have been built already
        parts: Vec<Part>,
    },
    /// Check format, clippy for server and browser, licenses, duplicate crates and the book
    Lint,
    /// Check all licenses against deny.toml, and find duplicate crates
    Licenses,
    /// Check the table of contents and the links of the book, and build it
    Book,
}

fn main() -> ExitCode {
    let result = Tree::find().and_then(|tree| match Arguments::parse().task {
        Task::Site { dev: true } => site::build_for_development(&tree),
        Task::Site { dev: false } => site::build(&tree),
        Task::Test { parts } => test::run(&tree, &parts),
        Task::Lint => lint::all(&tree),
        Task::Licenses => licenses::check(&tree),
        Task::Book => book::check(&tree).and_then(|()| book::build(&tree)),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ngantry: {error:#}");
            ExitCode::FAILURE
        }
    }
}
