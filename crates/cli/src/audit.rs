//! `gantry audit verify`: whether an export of the audit is what was sealed. It asks no server: what it would say is what is in doubt. The
//! other commands of `gantry audit` do ask one, and are the client's.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use engine::audit::{Chain, Check};

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

pub fn run(verify: &Verify) -> Result<()> {
    let chain = match verify.file.as_path() {
        path if path == Path::new("-") => check(std::io::stdin().lock()),
        path => check(BufReader::new(File::open(path).with_context(|| format!("{} can't be read", path.display()))?)),
    };
    let chain = chain.with_context(|| format!("{} does not hold", verify.file.display()))?;
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
