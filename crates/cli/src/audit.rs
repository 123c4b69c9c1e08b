//! `gantry audit verify`: whether an export of the audit is what was sealed. It asks no server: what it would say is what is in doubt. The
//! other commands of `gantry audit` do ask one, and are the client's.
//!
//! It ends as those do: with 1 where the chain does not hold, and with 2 where there is nothing to be read, which says nothing of a chain.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use engine::audit::{Chain, Check};

use crate::unread::{ended, is_unread};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check an export (GET /api/v1/audit/export) by its own chain
    Verify(Verify),
    #[command(flatten)]
    Server(client::Audit),
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// The export; - reads it from the standard input
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verify: &Verify) -> ExitCode {
    ended(verified(verify))
}

fn verified(verify: &Verify) -> Result<()> {
    let chain = match verify.file.as_path() {
        path if path == Path::new("-") => check(std::io::stdin().lock()),
        path => File::open(path).map_err(anyhow::Error::from).and_then(|file| check(BufReader::new(file))),
    };
    let chain = chain.map_err(|error| {
        let what = if is_unread(&error) { "can't be read" } else { "does not hold" };
        error.context(format!("{} {what}", verify.file.display()))
    })?;
    if verify.json {
        println!("{}", serde_json::to_string_pretty(&chain)?);
    } else {
        println!("{}", told(&chain));
    }
    Ok(())
}

fn check(mut lines: impl BufRead) -> Result<Chain> {
    let mut check = Check::default();
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        check.line(line.trim_end())?;
        line.clear();
    }
    Ok(check.finish()?)
}

fn told(chain: &Chain) -> String {
    if chain.last == 0 || chain.first == 0 {
        return "The export is empty: nothing was sealed.".to_owned();
    }
    let begins = match chain.first {
        1 => "the chain's beginning".to_owned(),
        first => format!("entry {first}, which goes on from {}: compare that with the export before", chain.from),
    };
    format!(
        "Entries {} to {} are what was sealed, from {begins}.\nThe last link is {}. Note it elsewhere: a later export that does not \
         have it at {} was changed.",
        chain.first, chain.last, chain.hash, chain.last
    )
}
