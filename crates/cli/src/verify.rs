//! `gantry verify`: checks that the database's rows match the approved documents, and that all
//! blueprints have their approvals.

use anyhow::{Context, Result, bail};
use control::{Control, Verified};
use engine::counting::many;

use crate::database;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Database URL with this program's role: gantry_server
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let url = arguments.database_url.ok_or(database::NoUrl)?;
    let store = database::open(&url, database::Role::SERVER).await?;
    let verified = Control::new(store).verify().await.context("Cannot verify the database")?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report(&verified))?);
    } else {
        print(&verified);
    }
    match verified.discrepancies.len() {
        0 => Ok(()),
        n => {
            bail!(
                "{n} rows differ from the documents and the audit log of blueprint {}. Report this \
                 with the output.",
                verified.target
            )
        }
    }
}

fn report(verified: &Verified) -> serde_json::Value {
    let discrepancy = |d: &store::blueprints::Discrepancy| {
        serde_json::json!(
            {"row": d.row, "expected": d.expected, "found": d.found}
        )
    };
    serde_json::json!({
        "target": verified.target,
        "steps": verified.steps,
        "discrepancies": verified.discrepancies.iter().map(discrepancy).collect::<Vec<_>>(),
    })
}

fn print(verified: &Verified) {
    for found in &verified.discrepancies {
        println!("{}", found.row);
        let say = |label: &str, value: &Option<serde_json::Value>| match value {
            Some(value) => println!("  {label} {value}"),
            None => println!("  {label} nothing"),
        };
        say("expected", &found.expected);
        say("found", &found.found);
    }
    if verified.discrepancies.is_empty() {
        let steps = many(verified.steps, "step");
        println!("Blueprint {}: all rows of {steps} match its documents.", verified.target);
    }
}
