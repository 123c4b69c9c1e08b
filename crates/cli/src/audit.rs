//! `gantry audit verify` and `gantry audit keygen`, which work without a server. A proof must not
//! rely on the server in question. The other `gantry audit` commands belong to the client.
//!
//! `verify` exits with 1 if the export, a link or a signature is invalid. It exits with 2 if it
//! can't check: a file is unreadable, or the export starts after an expected link.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail};
use control::audit::checkpoints::{SigningKey, VerifyingKey};
use engine::Hash;
use engine::audit::ChainDefect;
use engine::audit::checkpoint::Checkpoint;
use engine::audit::export::{Check, Verification};
use engine::counting::many;

use crate::unread::{ended, is_read_error};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Verify an export without a server: its hash chain, approvals and runs
    Verify(Verify),
    /// Create a key pair for signed checkpoints (GANTRY_AUDIT_KEY)
    Keygen(Keygen),
    #[command(flatten)]
    Server(client::Audit),
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// The export file, or - for standard input
    file: PathBuf,
    /// A link that the chain must contain, as `gantry audit chain` printed it
    #[arg(long, value_name = "SEQ:HASH")]
    expect: Vec<Expected>,
    /// File of signed checkpoints; the chain must contain each of their links
    #[arg(long, value_name = "FILE", requires = "key")]
    checkpoints: Option<PathBuf>,
    /// Public key of the checkpoints
    #[arg(long, value_name = "FILE", requires = "checkpoints")]
    key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub struct Keygen {
    /// New file for the private key; the public key is written to FILE.pub
    file: PathBuf,
}

/// A link that was recorded elsewhere.
#[derive(Debug, Clone, Copy)]
struct Expected {
    seq: u64,
    hash: Hash,
}

impl FromStr for Expected {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: String| {
            format!(
                "{reason}. A link is SEQ:HASH, as `gantry audit chain` prints it. SEQ is at least \
                 1, and HASH has 64 hexadecimal digits"
            )
        };
        let (seq, hash) =
            text.split_once(':').ok_or_else(|| wrong("the colon is missing".to_owned()))?;
        let seq = match seq.parse() {
            Ok(0) => return Err(wrong("there is no entry 0".to_owned())),
            Ok(seq) => seq,
            Err(error) => {
                return Err(wrong(format!("{seq:?} is not an entry number: {error}")));
            }
        };
        let hash =
            hash.parse().map_err(|error| wrong(format!("{hash:?} is not a hash: {error}")))?;
        Ok(Self { seq, hash })
    }
}

/// Creates a key pair. Fails if either file exists.
pub fn keygen(keygen: &Keygen) -> ExitCode {
    ended(create_key_pair(&keygen.file))
}

fn create_key_pair(path: &Path) -> Result<()> {
    let private = SigningKey::generate()?;
    let public = SigningKey::read(&private)?.public();
    let public_path = PathBuf::from(format!("{}.pub", path.display()));
    for (path, mode, text) in [(path, 0o600, private), (&public_path, 0o644, public)] {
        let result = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let result = result.and_then(|mut file| file.write_all(text.as_bytes()));
        result.with_context(|| format!("Cannot write {}", path.display()))?;
    }
    println!("Private key: {}. Give it to the server (GANTRY_AUDIT_KEY).", path.display());
    println!(
        "Public key: {}. Store it with the checkpoints, for `gantry audit verify`.",
        public_path.display()
    );
    Ok(())
}

pub fn run(verify: &Verify) -> ExitCode {
    match verified(verify) {
        Err(error)
            if matches!(
                error.downcast_ref::<ChainDefect>(),
                Some(ChainDefect::NotCovered { .. })
            ) =>
        {
            eprintln!("gantry: {error:#}");
            ExitCode::from(client::EXIT_USAGE)
        }
        done => ended(done),
    }
}

fn verified(verify: &Verify) -> Result<()> {
    let links = expected(verify)?;
    let expected = links.len();
    let check = Check::expecting(links).with_signatures(passkeys::verify);
    let proof = match verify.file.as_path() {
        path if path == Path::new("-") => read(check, std::io::stdin().lock()),
        path => File::open(path)
            .map_err(anyhow::Error::from)
            .and_then(|file| read(check, BufReader::new(file))),
    };
    let proof = proof.map_err(|error| {
        let prefix = if is_read_error(&error) { "Cannot read" } else { "Invalid export" };
        error.context(format!("{prefix} {}", verify.file.display()))
    })?;
    if verify.json {
        println!("{}", serde_json::to_string_pretty(&proof)?);
    } else {
        println!("{}", summary(&proof, expected));
    }
    Ok(())
}

/// All links that the chain must contain: from `--expect` and from the checkpoints.
fn expected(verify: &Verify) -> Result<Vec<(u64, Hash)>> {
    let mut links: Vec<(u64, Hash)> =
        verify.expect.iter().map(|link| (link.seq, link.hash)).collect();
    let (Some(path), Some(key)) = (&verify.checkpoints, &verify.key) else {
        return distinct(links);
    };
    let shown = path.display();
    let text = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))
    };
    let key = VerifyingKey::read(&text(key)?)
        .with_context(|| format!("File {} is not a public key", key.display()))?;
    let mut installation = None;
    for (n, line) in text(path)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let n = n + 1;
        let checkpoint: Checkpoint = serde_json::from_str(line)
            .with_context(|| format!("Line {n} of {shown} is not a checkpoint"))?;
        if !key.signed(&checkpoint) {
            bail!(
                "The checkpoint in line {n} of {shown} was not signed with this key, or it was \
                 altered."
            );
        }
        let link = checkpoint.link;
        if *installation.get_or_insert(link.installation) != link.installation {
            bail!(
                "The checkpoint in line {n} of {shown} belongs to another installation than those \
                 before it."
            );
        }
        links.push((link.seq, link.hash));
    }
    let first = installation
        .ok_or_else(|| anyhow!("File {shown} has no checkpoints, so it proves nothing."))?;
    links.push((1, first));
    distinct(links)
}

/// Sorts the links and removes duplicates. Fails if two of them have different hashes for one
/// entry.
fn distinct(mut links: Vec<(u64, Hash)>) -> Result<Vec<(u64, Hash)>> {
    links.sort_unstable();
    links.dedup();
    match links.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            bail!(
                "Entry {} is expected with two links, {} and {}.",
                pair[0].0,
                pair[0].1,
                pair[1].1
            )
        }
        None => Ok(links),
    }
}

fn read(mut check: Check, mut lines: impl BufRead) -> Result<Verification> {
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        check.line(line.trim_end())?;
        line.clear();
    }
    Ok(check.finish()?)
}

fn summary(proof: &Verification, expected: usize) -> String {
    let (chain, totals) = (&proof.chain, &proof.totals);
    if chain.last == 0 || chain.first == 0 {
        return "The export is empty: no entries are sealed.".to_owned();
    }
    let mut text = format!("Entries {} to {} match their seals.\n", chain.first, chain.last);
    if proof.whole {
        text.push_str(&format!(
            "Blueprints with the approvals that their policies require: {}. Runs that match their \
             blueprints: {}.\n{}, {}, {} and {} match the audit log.\n",
            totals.blueprints,
            totals.runs,
            many(totals.reviews, "review"),
            many(totals.verdicts, "verdict"),
            if totals.policies == 1 {
                "1 policy".to_owned()
            } else {
                format!("{} policies", totals.policies)
            },
            many(totals.objects, "document")
        ));
    } else {
        text.push_str(&format!(
            "The export is a part, so it proves only its chain. It starts after {}: compare this \
             link with the previous export.\n",
            chain.from
        ));
    }
    if expected > 0 {
        text.push_str("Each expected link is in the chain.\n");
    }
    text.push_str(&format!(
        "The last link is {}:{}. Store it elsewhere, for --expect.",
        chain.last, chain.hash
    ));
    text
}
