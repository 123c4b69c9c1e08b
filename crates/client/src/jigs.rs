//! Commands for jigs.

use api::views::board::JigView;
use clap::Subcommand;
use engine::ids::JigName;
use engine::plan::edit;
use serde_json::Value;

use crate::client::{Client, WatchOption};
use crate::exit::Outcome;
use crate::output::table::Table;
use crate::output::{OutputFormat, value_text};
use crate::proposals::apply;
use crate::proposals::apply::ProposeArgs;
use crate::proposals::edits::Step;

#[derive(Debug, Subcommand)]
pub(crate) enum Jig {
    /// List the jigs of the barclamps in use
    List {
        #[command(flatten)]
        again: WatchOption,
    },
    /// Propose to turn a jig on in all deployments
    On {
        /// Name of the jig
        jig: JigName,
        #[command(flatten)]
        propose: ProposeArgs,
    },
    /// Propose to turn a jig off in all deployments: steps that need it do not start
    Off {
        /// Name of the jig
        jig: JigName,
        #[command(flatten)]
        propose: ProposeArgs,
    },
}

pub(crate) fn jig(client: &Client, command: &Jig) -> Outcome {
    match command {
        Jig::List { again } => {
            client.show(*again, || client.server.show(&api::calls::jigs()), jigs_text)
        }
        Jig::On { jig, propose } => switch(client, jig, true, propose),
        Jig::Off { jig, propose } => switch(client, jig, false, propose),
    }
}

fn switch(client: &Client, jig: &JigName, active: bool, propose: &ProposeArgs) -> Outcome {
    let Client { server, .. } = client;
    let current = apply::current(server, "system")?;
    let known: Vec<JigView> = match current.board.proposal {
        Some(_) => current.board.jigs.clone(),
        None => server.read(&api::calls::jigs().url())?,
    };
    let is_so = known.iter().any(|known| known.jig == *jig && known.active == active);
    let step = || Step {
        edit: edit::ActivateJig { jig: jig.clone(), active }.into(),
        summary: format!("* jig {jig}: {}", if active { "on" } else { "off" }),
    };
    let steps: Vec<Step> = (!is_so).then(step).into_iter().collect();
    apply::propose_one(client, &current, &steps, propose)
}

fn jigs_text(value: &Value, output: OutputFormat) -> String {
    let jigs = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if jigs.is_empty() {
        return "No jigs found.\n".to_owned();
    }
    let mut table = Table::new(["JIG", "STATE", "ROLES"]);
    for jig in jigs {
        let state = if jig["active"] == true { "on" } else { "off" };
        table.row([value_text(&jig["jig"]), state.to_owned(), value_text(&jig["roles"])]);
    }
    table.text(output)
}
